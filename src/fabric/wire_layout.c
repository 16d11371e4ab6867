/* Messages: checking what arrives, encoding and decoding verbs. */
#include "fabric/wire_layout.h"

#include <string.h>

/* ---- checking -------------------------------------------------------------------------------- */

int wire_check(const void *message, size_t bytes)
{
    static const struct {
        uint16_t least, more; /* more: what follows is checked later */
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
        [WIRE_FENCE_VIEW] = {sizeof(struct wire_head), 0},
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
        return err_fail(FAR_INVALID, "not a Farside message");
    if (head.version != WIRE_VERSION)
        return err_fail(FAR_LAYOUT, "protocol version %u, where version %u is expected",
                        head.version, WIRE_VERSION);
    if (head.type == 0 || head.type >= sizeof sizes / sizeof *sizes)
        return err_fail(FAR_INVALID, "a message of type %u", head.type);
    if (bytes < sizes[head.type].least ||
        (bytes > sizes[head.type].least && !sizes[head.type].more))
        return err_fail(FAR_INVALID, "a message of type %u and %zu bytes", head.type, bytes);
    return FAR_OK;
}

/* The least that a verb takes, to bound counts by the length of the message. */
#define VERB_MIN sizeof(struct wire_verb)

static int check_verb(const struct wire_verb *v, size_t left, uint64_t size)
{
    uint64_t len_max = v->kind > FAB_WRITE ? 8 : WIRE_MESSAGE_MAX;

    if (v->kind > FAB_FAA || ((v->off | v->len) & 7) != 0 || v->len == 0 || v->len > len_max)
        return err_fail(FAR_INVALID, "verb kind %u of %u bytes at 0x%llx", v->kind, v->len,
                        (unsigned long long)v->off);
    if (wire_verb_bytes(v->kind, v->len) > left)
        return err_fail(FAR_INVALID, "the batch ends within a verb");
    if (v->len > size || v->off > size - v->len)
        return err_fail(FAR_BOUNDS, "verb kind %u of %u bytes at 0x%llx of 0x%llx", v->kind, v->len,
                        (unsigned long long)v->off, (unsigned long long)size);
    return FAR_OK;
}

static int check_part(char **at, const char *end, uint64_t size, struct wire_reader *reader)
{
    struct wire_part part;

    if ((size_t)(end - *at) < sizeof part)
        return err_fail(FAR_INVALID, "the batch ends before a part");
    memcpy(&part, *at, sizeof part);
    *at += sizeof part;
    reader->reply_bytes += sizeof(struct wire_result);
    if (part.verbs == 0 || part.verbs > WIRE_PART_VERBS)
        return err_fail(FAR_INVALID, "a part of %u verbs", part.verbs);
    for (unsigned i = 0; i < part.verbs; i++) {
        size_t left = (size_t)(end - *at);
        struct wire_verb v;

        if (left < VERB_MIN)
            return err_fail(FAR_INVALID, "the batch ends before a verb");
        memcpy(&v, *at, sizeof v);
        int rc = check_verb(&v, left, size);
        if (rc != FAR_OK)
            return rc;
        *at += wire_verb_bytes(v.kind, v.len);
        reader->reply_bytes += wire_result_bytes(v.kind, v.len);
        reader->bytes_read += v.kind == FAB_WRITE ? 0 : v.len;
        reader->bytes_written += v.kind == FAB_READ ? 0 : v.len;
        if (reader->reply_bytes > WIRE_MESSAGE_MAX)
            return err_fail(FAR_INVALID, "the reply to the batch is too long");
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

        if (rc != FAR_OK)
            return rc;
    }
    if (at != end)
        return err_fail(FAR_INVALID, "%zu bytes after the batch", (size_t)(end - at));
    *reader = r;
    return FAR_OK;
}

/* ---- encoding and decoding ------------------------------------------------------------------- */

unsigned wire_batch_next(struct wire_reader *reader, struct fab_verb verb[WIRE_PART_VERBS],
                         char **result)
{
    const struct wire_part *part = (const struct wire_part *)(void *)reader->at;
    char *at = reader->at + sizeof *part;

    ASSERT(reader->parts > 0);
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

    ASSERT(verb->kind <= FAB_FAA && (uintptr_t)at % 8 == 0);
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
