/* Messages: judging what arrives, and putting verbs into words. */
#include "fabric/wire.h"

#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- judging --------------------------------------------------------------------------------- */

int wire_check(const void *message, size_t bytes)
{
    static const struct {
        uint16_t least, most_is_more; /* of its kind; more: what follows is judged later */
    } sizes[] = {
        [WIRE_HELLO] = {sizeof(struct wire_hello), 0},
        [WIRE_CHALLENGE] = {sizeof(struct wire_challenge), 0},
        [WIRE_PROOF_IS] = {sizeof(struct wire_proof), 0},
        [WIRE_WELCOME] = {sizeof(struct wire_welcome), 0},
        [WIRE_REFUSED] = {sizeof(struct wire_refused), 0},
        [WIRE_BATCH] = {sizeof(struct wire_batch), 1},
        [WIRE_REPLY] = {sizeof(struct wire_reply), 1},
        [WIRE_IDENTIFY] = {sizeof(struct wire_client), 0},
        [WIRE_FENCE] = {sizeof(struct wire_client), 0},
        [WIRE_CLAIM] = {sizeof(struct wire_head), 0},
        [WIRE_FORMATTED] = {sizeof(struct wire_head), 0},
        [WIRE_STAT] = {sizeof(struct wire_head), 0},
        [WIRE_COUNTS] = {sizeof(struct wire_counts), 0},
        [WIRE_ANSWER] = {sizeof(struct wire_answer), 0},
    };
    struct wire_head head;

    if (bytes < sizeof head || bytes > WIRE_MESSAGE_MAX)
        return err_fail(FAR_INVALID, "a message of %zu bytes", bytes);
    memcpy(&head, message, sizeof head);
    if (head.magic != WIRE_MAGIC)
        return err_fail(FAR_INVALID, "something else than a message");
    if (head.version != WIRE_VERSION)
        return err_fail(FAR_LAYOUT, "protocol version %u, this is version %u", head.version,
                        WIRE_VERSION);
    if (head.type == 0 || head.type >= sizeof sizes / sizeof *sizes)
        return err_fail(FAR_INVALID, "a message of type %u", head.type);
    if (bytes < sizes[head.type].least ||
        (bytes > sizes[head.type].least && !sizes[head.type].most_is_more))
        return err_fail(FAR_INVALID, "a message of type %u and %zu bytes", head.type, bytes);
    return FAR_OK;
}

/* The least that a verb takes, so that counts can be compared with what is there. */
#define VERB_MIN sizeof(struct wire_verb)

static int check_verb(const struct wire_verb *v, size_t left, uint64_t size)
{
    uint64_t len_max = v->kind > FAB_WRITE ? 8 : WIRE_MESSAGE_MAX;

    if (v->kind > FAB_FAA || ((v->off | v->len) & 7) != 0 || v->len == 0 || v->len > len_max)
        return err_fail(FAR_INVALID, "verb kind %u of %u bytes at 0x%llx", v->kind, v->len,
                        (unsigned long long)v->off);
    if (wire_verb_bytes(v->kind, v->len) > left)
        return err_fail(FAR_INVALID, "a batch that ends within a verb");
    if (v->len > size || v->off > size - v->len)
        return err_fail(FAR_BOUNDS, "verb kind %u of %u bytes at 0x%llx of 0x%llx", v->kind, v->len,
                        (unsigned long long)v->off, (unsigned long long)size);
    return FAR_OK;
}

static int check_part(char **at, const char *end, uint64_t size, struct wire_reader *reader)
{
    struct wire_part part;

    if ((size_t)(end - *at) < sizeof part)
        return err_fail(FAR_INVALID, "a batch that ends before a part");
    memcpy(&part, *at, sizeof part);
    *at += sizeof part;
    reader->reply_bytes += sizeof(struct wire_result);
    if (part.verbs == 0 || part.verbs > WIRE_PART_VERBS)
        return err_fail(FAR_INVALID, "a part of %u verbs", part.verbs);
    for (unsigned i = 0; i < part.verbs; i++) {
        size_t left = (size_t)(end - *at);
        struct wire_verb v;
        int rc;

        if (left < VERB_MIN)
            return err_fail(FAR_INVALID, "a batch that ends before a verb");
        memcpy(&v, *at, sizeof v);
        rc = check_verb(&v, left, size);
        if (rc)
            return rc;
        *at += wire_verb_bytes(v.kind, v.len);
        reader->reply_bytes += wire_result_bytes(v.kind, v.len);
        reader->bytes_read += v.kind == FAB_WRITE ? 0 : v.len;
        reader->bytes_written += v.kind == FAB_READ ? 0 : v.len;
        if (reader->reply_bytes > WIRE_MESSAGE_MAX)
            return err_fail(FAR_INVALID, "a batch whose reply is too long");
    }
    reader->verbs += part.verbs;
    return FAR_OK;
}

int wire_batch_check(void *message, size_t bytes, uint64_t size, struct wire_reader *reader)
{
    struct wire_reader r = {.at = (char *)message + sizeof(struct wire_batch),
                            .reply_bytes = sizeof(struct wire_reply)};
    char *at = r.at;
    const char *end = (char *)message + bytes;
    struct wire_batch batch;

    memcpy(&batch, message, sizeof batch);
    if (batch.parts == 0 || batch.parts > (bytes - sizeof batch) / VERB_MIN)
        return err_fail(FAR_INVALID, "a batch of %u parts in %zu bytes", batch.parts, bytes);
    r.parts = batch.parts;
    for (unsigned i = 0; i < batch.parts; i++) {
        int rc = check_part(&at, end, size, &r);

        if (rc)
            return rc;
    }
    if (at != end)
        return err_fail(FAR_INVALID, "%zu bytes behind a batch", (size_t)(end - at));
    *reader = r;
    return FAR_OK;
}

unsigned wire_batch_next(struct wire_reader *reader, struct fab_verb verb[WIRE_PART_VERBS],
                         char **result)
{
    const struct wire_part *part = (const struct wire_part *)(void *)reader->at;
    char *at = reader->at + sizeof *part;

    for (unsigned i = 0; i < part->verbs; i++) {
        const struct wire_verb *w = (const struct wire_verb *)(void *)at;
        uint64_t *arg = (uint64_t *)(void *)(at + sizeof *w);
        struct fab_verb *v = &verb[i];

        *v = (struct fab_verb){.kind = w->kind, .len = w->len, .off = w->off};
        v->buf = w->kind == FAB_WRITE ? (void *)arg : *result;
        if (w->kind == FAB_CAS || w->kind == FAB_MCAS) {
            v->compare = arg[0];
            v->swap = arg[1];
        } else if (w->kind == FAB_FAA) {
            v->swap = arg[0];
        }
        if (w->kind == FAB_MCAS) {
            v->compare_mask = arg[2];
            v->swap_mask = arg[3];
        }
        at += wire_verb_bytes(w->kind, w->len);
        *result += wire_result_bytes(w->kind, w->len);
    }
    reader->at = at;
    reader->parts--;
    return part->verbs;
}

char *wire_put_verb(char *at, const struct fab_verb *verb, uint32_t from, uint32_t len)
{
    struct wire_verb *w = (struct wire_verb *)(void *)at;
    uint64_t *arg = (uint64_t *)(void *)(at + sizeof *w);

    *w = (struct wire_verb){.kind = verb->kind, .len = len, .off = verb->off + from};
    switch (verb->kind) {
    case FAB_WRITE:
        memcpy(arg, (const char *)verb->buf + from, len);
        break;
    case FAB_MCAS:
        arg[2] = verb->compare_mask;
        arg[3] = verb->swap_mask; /* fall through */
    case FAB_CAS:
        arg[0] = verb->compare;
        arg[1] = verb->swap;
        break;
    case FAB_FAA:
        arg[0] = verb->swap;
        break;
    default:
        break;
    }
    return at + wire_verb_bytes(verb->kind, len);
}

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
