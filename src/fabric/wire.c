#include "fabric/wire.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT_MS_DEFAULT 5000

/* Waiting for another client that is making the pool. */
#define CLAIM_WAIT_NS  (60ull * 1000000000)
#define CLAIM_PAUSE_NS 10000000ull

/* ---- the secret ------------------------------------------------------------------------------ */

static int read_secret(const char *path, char *text, size_t *bytes)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    bool known = fd >= 0 && fstat(fd, &status) == 0;
    ssize_t got = known ? read(fd, text, WIRE_SECRET_MAX + 1) : -1;
    int error = errno;

    if (fd >= 0)
        close(fd);
    if (known && (status.st_mode & (S_IROTH | S_IWOTH)))
        return err_fail(FAR_INVALID,
                        "all users of this machine can %s the secret in %s: chmod o= it",
                        status.st_mode & S_IROTH ? "read" : "change", path);
    if (got < 0)
        return err_fail(FAR_SYSTEM, "cannot read the secret in %s: %s", path, strerror(error));
    *bytes = (size_t)got;
    return FAR_OK;
}

/* Takes over what was read. A newline at its end does not count. */
static int take_secret(const char *text, size_t bytes, const char *file, struct wire_secret *secret)
{
    if (bytes > WIRE_SECRET_MAX)
        return err_fail(FAR_INVALID, "the secret has more than %u bytes", WIRE_SECRET_MAX);
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    if (bytes == 0)
        return err_fail(FAR_INVALID, "the secret%s%s is empty", file ? " in " : "",
                        file ? file : "");
    if (bytes < WIRE_SECRET_MIN)
        return err_fail(FAR_INVALID, "the secret%s%s has %zu bytes, but needs at least %u",
                        file ? " in " : "", file ? file : "", bytes, WIRE_SECRET_MIN);
    memcpy(secret->key, text, bytes);
    secret->bytes = bytes;
    return FAR_OK;
}

int wire_secret_load(const char *file, struct wire_secret *secret)
{
    char text[WIRE_SECRET_MAX + 1];
    const char *value = NULL;
    size_t bytes = 0;
    int rc;

    if (!file)
        file = getenv("FARSIDE_SECRET_FILE");
    if (!file)
        value = getenv("FARSIDE_SECRET");
    if (!file && !value) {
        secret->bytes = 0;
        return FAR_OK;
    }
    if (!file)
        return take_secret(value, strnlen(value, sizeof text), NULL, secret);
    rc = read_secret(file, text, &bytes);
    if (rc == FAR_OK)
        rc = take_secret(text, bytes, file, secret);
    sodium_memzero(text, sizeof text);
    return rc;
}

void wire_secret_forget(struct wire_secret *secret)
{
    sodium_memzero(secret, sizeof *secret);
}

void wire_prove(const struct wire_secret *secret, enum wire_role role,
                const uint8_t client_nonce[WIRE_NONCE], const uint8_t node_nonce[WIRE_NONCE],
                uint64_t link, uint8_t proof[WIRE_PROOF])
{
    static const char *const label[] = {"farside client 1", "farside node 1"};
    crypto_auth_hmacsha256_state mac;

    _Static_assert(WIRE_PROOF == crypto_auth_hmacsha256_BYTES, "a proof is one HMAC");
    if (secret->bytes == 0) {
        memset(proof, 0, WIRE_PROOF);
        return;
    }
    /* These return 0, always. */
    (void)crypto_auth_hmacsha256_init(&mac, secret->key, secret->bytes);
    (void)crypto_auth_hmacsha256_update(&mac, (const uint8_t *)label[role],
                                        strlen(label[role]) + 1);
    (void)crypto_auth_hmacsha256_update(&mac, client_nonce, WIRE_NONCE);
    (void)crypto_auth_hmacsha256_update(&mac, node_nonce, WIRE_NONCE);
    (void)crypto_auth_hmacsha256_update(&mac, (const uint8_t *)&link, sizeof link);
    (void)crypto_auth_hmacsha256_final(&mac, proof);
    sodium_memzero(&mac, sizeof mac);
}

uint64_t wire_knock(const struct wire_secret *secret)
{
    static const char label[] = "farside knock 1";
    crypto_auth_hmacsha256_state mac;
    uint8_t sum[crypto_auth_hmacsha256_BYTES];
    uint64_t knock = 0;

    if (secret->bytes == 0)
        return 0;
    (void)crypto_auth_hmacsha256_init(&mac, secret->key, secret->bytes);
    (void)crypto_auth_hmacsha256_update(&mac, (const uint8_t *)label, sizeof label);
    (void)crypto_auth_hmacsha256_final(&mac, sum);
    sodium_memzero(&mac, sizeof mac);
    memcpy(&knock, sum, sizeof knock);
    return knock;
}

bool wire_proof_equal(const uint8_t a[WIRE_PROOF], const uint8_t b[WIRE_PROOF])
{
    return sodium_memcmp(a, b, WIRE_PROOF) == 0;
}

int wire_random(void *bytes, size_t count)
{
    if (sodium_init() < 0) /* threads may call it, any number of times */
        return err_fail(FAR_SYSTEM, "libsodium does not start");
    randombytes_buf(bytes, count);
    return FAR_OK;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Reads the next one and moves *rest behind it and its comma; "" at the end. */
static int next_address(const char **rest, struct wire_address *address)
{
    struct wire_address a = {.text = ""};
    size_t bytes = strcspn(*rest, ","), host_bytes;
    const char *host = a.text, *colon;
    uint64_t port;

    if (bytes == 0 || bytes >= sizeof a.text)
        return err_fail(FAR_BAD_URI, "'%s' where host:port is expected", *rest);
    memcpy(a.text, *rest, bytes);
    colon = strrchr(a.text, ':');
    if (!colon || !text_number(colon + 1, 0, 65535, &port) || strlen(colon + 1) >= sizeof a.port)
        return err_fail(FAR_BAD_URI, "'%s' has no :port from 0 to 65535 at its end", a.text);
    host_bytes = (size_t)(colon - host);
    if (host[0] == '[' && host_bytes > 1 && host[host_bytes - 1] == ']') {
        host++;
        host_bytes -= 2;
    }
    if (host_bytes == 0 || host_bytes > WIRE_HOST_MAX)
        return err_fail(FAR_BAD_URI, "'%s' has no host before its port", a.text);
    memcpy(a.host, host, host_bytes);
    memcpy(a.port, colon + 1, strlen(colon + 1));
    *rest += bytes;
    if (**rest == ',') {
        ++*rest;
        if (**rest == '\0')
            return err_fail(FAR_BAD_URI, "a comma at the end, where host:port is expected");
    }
    *address = a;
    return FAR_OK;
}

static int first_address(const struct uri *uri, const char **rest)
{
    if (strncmp(uri->rest, "//", 2) != 0)
        return err_fail(FAR_BAD_URI, "'%s' where //host:port is expected", uri->rest);
    *rest = uri->rest + 2;
    return FAR_OK;
}

int wire_listener_uri(const struct uri *uri, struct wire_address *address)
{
    const char *rest = NULL;
    int rc = uri_finish(uri);

    if (rc == FAR_OK)
        rc = first_address(uri, &rest);
    if (rc == FAR_OK)
        rc = next_address(&rest, address);
    if (rc == FAR_OK && rest[0])
        rc = err_fail(FAR_BAD_URI, "'%s' follows the address to listen at", rest);
    return rc;
}

/* ---- a client's memory nodes ----------------------------------------------------------------- */

int wire_nodes_read(struct uri *uri, uint64_t timeout_ms_min, uint64_t timeout_ms_max,
                    struct wire_nodes *nodes, struct fab *fab)
{
    const char *secret = uri_option(uri, "secret"), *rest = NULL;
    int rc = uri_number(uri, "timeout", TIMEOUT_MS_DEFAULT, timeout_ms_min, timeout_ms_max,
                        &nodes->timeout_ms);

    struct fab_options pool = {0};
    if (rc == FAR_OK)
        rc = fab_pool_options(uri, &pool);
    fab_set_options(fab, &pool);
    if (rc == FAR_OK)
        rc = uri_number(uri, "groups", 1, 0, 1, &fab->groups);
    if (rc == FAR_OK)
        rc = uri_finish(uri);
    if (rc == FAR_OK)
        rc = wire_secret_load(secret, &nodes->secret);
    if (rc == FAR_OK)
        rc = first_address(uri, &rest);
    while (rc == FAR_OK && (rest[0] || fab->nodes == 0)) {
        if (fab->nodes == FAB_NODES_MAX)
            return err_fail(FAR_BAD_URI, "more than %d memory nodes", FAB_NODES_MAX);
        rc = next_address(&rest, &nodes->address[fab->nodes++]);
    }
    return rc;
}

int wire_nodes_challenged(const struct wire_nodes *nodes, const struct wire_challenge *challenge,
                          const char **why)
{
    bool needed = challenge->secret_needed != 0, given = nodes->secret.bytes > 0;

    *why = needed ? "the node needs a secret, and none was given"
                  : "a secret was given, but the node has none";
    return needed == given ? FAR_OK : FAR_REFUSED;
}

int wire_nodes_welcomed(struct wire_nodes *nodes, unsigned node, const struct wire_welcome *welcome,
                        struct fab *fab, const char **why)
{
    ASSERT(node < fab->nodes);
    *why = "the node does not say how much memory it has";
    if (welcome->size == 0 || welcome->size % 64 != 0)
        return FAR_CORRUPT;
    unsigned expected = WIRE_NODE_NEW;
    if (__atomic_compare_exchange_n(&nodes->known[node], &expected, WIRE_NODE_LEARNT, false,
                                    __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
        nodes->instance[node] = welcome->instance;
        nodes->formatted[node] = welcome->flags & WIRE_FLAG_FORMATTED;
        if (!(fab_away(fab) >> node & 1)) /* else nobody relies on its size yet */
            fab->size[node] = welcome->size;
        __atomic_store_n(&fab->found[node], welcome->size, __ATOMIC_RELEASE);
        __atomic_store_n(&nodes->known[node], WIRE_NODE_KNOWN, __ATOMIC_RELEASE);
    } else if (expected == WIRE_NODE_LEARNT) {
        *why = "another thread is connecting to the node for the first time";
        return FAR_UNREACHABLE;
    }
    *why = "the node has come back without the memory that it had";
    return nodes->instance[node] == welcome->instance && fab->found[node] == welcome->size
               ? FAR_OK
               : FAR_NODE_LOST;
}

/* Node 0 has the registry and the catalog, so a pool cannot be opened without it. */
static int without_root(const struct fab *fab, int status)
{
    char why[ERR_DETAIL_BYTES];

    snprintf(why, sizeof why, "%s", far_error_detail());
    return fab->nodes == 1
               ? status
               : err_fail(status, "%s; this is the first node: the pool needs it to be opened",
                          why);
}

int wire_nodes_connect(struct fab *fab, int (*connect)(struct fab *fab, unsigned node))
{
    int rc = FAR_OK;

    for (unsigned i = 0; i < fab->nodes && rc == FAR_OK; i++) {
        rc = connect(fab, i);
        if (rc != FAR_UNREACHABLE && rc != FAR_TIMEOUT)
            continue;
        if (i == 0)
            return without_root(fab, rc);
        fab->away |= 1ull << i; /* AWAY-1 */
        fab->size[i] = FAB_AWAY_BYTES;
        rc = FAR_OK;
    }
    return rc;
}

/* Is a memory node listed twice, perhaps by two names? */
static int check_distinct(const struct wire_nodes *nodes, const struct fab *fab)
{
    for (unsigned i = 1; i < fab->nodes; i++)
        for (unsigned k = 0; k < i; k++)
            if (nodes->known[i] == WIRE_NODE_KNOWN && nodes->known[k] == WIRE_NODE_KNOWN &&
                nodes->instance[i] == nodes->instance[k])
                return err_fail(FAR_BAD_URI, "%s and %s are the same memory node: list it once",
                                nodes->address[k].text, nodes->address[i].text);
    return FAR_OK;
}

int wire_nodes_claim(const struct wire_nodes *nodes, struct fab *fab,
                     int (*claim)(struct fab *fab, uint32_t *value))
{
    uint64_t start = clock_ns();
    uint32_t value;
    int rc = check_distinct(nodes, fab);

    if (rc != FAR_OK)
        return rc;
    while ((rc = claim(fab, &value)) == FAR_OK && value == WIRE_CLAIM_WAIT) {
        if (clock_ns() - start > CLAIM_WAIT_NS)
            return err_fail(FAR_TIMEOUT, "another client has been making the pool on %s for %llu s",
                            nodes->address[0].text, CLAIM_WAIT_NS / 1000000000);
        clock_sleep(CLAIM_PAUSE_NS);
    }
    if (rc != FAR_OK)
        return rc;
    fab->fresh = value == WIRE_CLAIM_YOURS;
    if (fab->fresh && fab->away != 0)
        return err_fail(FAR_UNREACHABLE, "%s has no pool yet, and %s, which it needs, is away",
                        nodes->address[0].text, nodes->address[__builtin_ctzll(fab->away)].text);
    for (unsigned i = 1; i < fab->nodes && fab->fresh; i++) {
        if (nodes->formatted[i])
            return err_fail(FAR_NOT_A_POOL, "%s has no pool yet, but %s is part of one",
                            nodes->address[0].text, nodes->address[i].text);
    }
    return FAR_OK;
}

uint64_t wire_clock_least(const struct wire_clock *clock, uint64_t here)
{
    uint64_t passed = here > clock->here ? here - clock->here : 0;

    return clock->node + passed - passed / 8;
}

uint32_t wire_valid_us(uint64_t lease_ms, uint64_t timeout_ms)
{
    /* An eighth of the lease is left for clocks whose rates differ. */
    uint64_t lease_us = lease_ms * 1000 / 8 * 3, timeout_us = timeout_ms * 1000;
    uint64_t us = lease_us != 0 && lease_us < timeout_us ? lease_us : timeout_us;

    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

void wire_node_info(const struct wire_counts *counts, const struct wire_address *address,
                    struct far_node_info *info)
{
    const struct wire_count_set *c = &counts->count;

    _Static_assert(sizeof info->address >= sizeof address->text,
                   "with the NUL that text ends with");
    *info = (struct far_node_info){.bytes = counts->size,
                                   .uptime_ms = counts->uptime_ms,
                                   .clients = c->clients,
                                   .connects = c->connects,
                                   .refused = c->refused,
                                   .batches = c->batches,
                                   .requests = c->requests,
                                   .verbs = c->verbs,
                                   .bytes_read = c->bytes_read,
                                   .bytes_written = c->bytes_written,
                                   .rejected = c->rejected,
                                   .fences = c->fences,
                                   .fenced = c->fenced,
                                   .old_views = c->old_views};
    memcpy(info->address, address->text, sizeof address->text);
}
