#include "fabric/wire.h"

#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- the secret ------------------------------------------------------------------------------ */

static int read_secret(const char *path, char *text, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd < 0 ? -1 : read(fd, text, WIRE_SECRET_MAX + 1);
    int error = errno;

    if (fd >= 0)
        close(fd);
    if (got < 0)
        return err_fail(FAR_SYSTEM, "cannot read the secret in %s: %s", path, strerror(error));
    *bytes = (size_t)got;
    return FAR_OK;
}

int wire_secret_load(const char *file, struct wire_secret *secret)
{
    char text[WIRE_SECRET_MAX + 1];
    const char *value = NULL;
    size_t bytes = 0;

    if (!file)
        file = getenv("FARSIDE_SECRET_FILE");
    if (!file)
        value = getenv("FARSIDE_SECRET");
    if (file) {
        int rc = read_secret(file, text, &bytes);
        if (rc)
            return rc;
    } else if (value) {
        bytes = strnlen(value, sizeof text);
        memcpy(text, value, bytes);
    } else {
        secret->bytes = 0;
        return FAR_OK;
    }
    if (bytes > WIRE_SECRET_MAX)
        return err_fail(FAR_INVALID, "the secret has more than %u bytes", WIRE_SECRET_MAX);
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    if (bytes == 0)
        return err_fail(FAR_INVALID, "the secret%s%s is empty", file ? " in " : "",
                        file ? file : "");
    memcpy(secret->key, text, bytes);
    secret->bytes = bytes;
    return FAR_OK;
}

void wire_prove(const struct wire_secret *secret, enum wire_role role,
                const uint8_t client_nonce[WIRE_NONCE], const uint8_t node_nonce[WIRE_NONCE],
                uint64_t link, uint8_t proof[WIRE_PROOF])
{
    static const char *const label[] = {"farside client 1", "farside node 1"};
    struct hmac256 m;

    if (secret->bytes == 0) {
        memset(proof, 0, WIRE_PROOF);
        return;
    }
    hmac256_start(&m, secret->key, secret->bytes);
    hmac256_add(&m, label[role], strlen(label[role]) + 1);
    hmac256_add(&m, client_nonce, WIRE_NONCE);
    hmac256_add(&m, node_nonce, WIRE_NONCE);
    hmac256_add(&m, &link, sizeof link);
    hmac256_end(&m, proof);
}

bool wire_proof_equal(const uint8_t a[WIRE_PROOF], const uint8_t b[WIRE_PROOF])
{
    uint8_t differences = 0;

    for (unsigned i = 0; i < WIRE_PROOF; i++)
        differences |= a[i] ^ b[i];
    return differences == 0;
}

int wire_random(void *bytes, size_t count)
{
    /* Up to 256 bytes come whole or not at all. */
    return getrandom(bytes, count, 0) == (ssize_t)count
               ? FAR_OK
               : err_fail(FAR_SYSTEM, "no random numbers: %s", strerror(errno));
}

/* ---- addresses ------------------------------------------------------------------------------- */

int wire_address_next(const char **rest, struct wire_address *address)
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
                                   .fenced = c->fenced};
    memcpy(info->address, address->text, sizeof address->text);
}
