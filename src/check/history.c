/* Histories: calls and returns, the answers of a sequential table, and text for people. */
#include "check/lin.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lin_history_init(struct lin_history *h, size_t room)
{
    memset(h, 0, sizeof *h);
    h->op = malloc(room * sizeof *h->op);
    h->room = h->op ? room : 0;
    return h->op != NULL;
}

void lin_history_free(struct lin_history *h)
{
    free(h->op);
    memset(h, 0, sizeof *h);
}

void lin_history_clear(struct lin_history *h)
{
    h->count = 0;
    h->stamp = 0;
}

size_t lin_call(struct lin_history *h, unsigned client, enum lin_kind kind, unsigned key,
                uint32_t value)
{
    ASSERT(h->count < h->room);
    h->op[h->count] = (struct lin_op){.call = ++h->stamp,
                                      .ret = LIN_NEVER,
                                      .client = client,
                                      .key = key,
                                      .value = value,
                                      .kind = (uint8_t)kind,
                                      .outcome = LIN_UNKNOWN};
    return h->count++;
}

void lin_return(struct lin_history *h, size_t at, enum lin_outcome outcome, uint32_t result)
{
    ASSERT(at < h->count && h->op[at].ret == LIN_NEVER);
    struct lin_op *op = &h->op[at];
    op->outcome = (uint8_t)outcome;
    op->result = result;
    uint64_t now = ++h->stamp;
    if (outcome != LIN_UNKNOWN)
        op->ret = now;
}

void lin_saw(struct lin_history *h, unsigned client, uint64_t call, uint64_t ret, unsigned key,
             uint32_t value)
{
    ASSERT(h->count < h->room);
    h->op[h->count++] = (struct lin_op){.call = call,
                                        .ret = ret,
                                        .client = client,
                                        .key = key,
                                        .result = value,
                                        .kind = LIN_GET,
                                        .outcome = LIN_DONE};
}

/* The key's place in the range; the number of its keys if it is not there. */
static size_t place_in_range(const struct lin_scan *scan, uint32_t key)
{
    size_t at = 0;
    while (at < scan->keys && scan->key[at] != key)
        at++;
    return at;
}

const char *lin_scan(struct lin_history *h, const struct lin_scan *scan,
                     const struct lin_pair *pairs, size_t count)
{
    ASSERT(scan->call < scan->ret);
    size_t end = 0; /* behind the key of the last pair */
    if (scan->limit > 0 && count > scan->limit)
        return "a scan returned more entries than its limit";
    if (scan->more && count == 0)
        return "a scan returned nothing, but says that there is more";
    for (size_t i = 0; i < count; i++) {
        size_t at = place_in_range(scan, pairs[i].key);
        if (at == scan->keys)
            return "a scan returned a key out of its range";
        if (i > 0 && pairs[i].key == pairs[i - 1].key)
            return "a scan returned a key twice";
        if (at < end)
            return "a scan returned keys out of order";
        if (pairs[i].value == LIN_ABSENT)
            return "a scan returned a key without a value";
        end = at + 1;
    }
    size_t next = 0;
    for (size_t i = 0; i < (scan->more ? end : scan->keys); i++) {
        bool given = next < count && pairs[next].key == scan->key[i];
        lin_saw(h, scan->client, scan->call, scan->ret, scan->key[i],
                given ? pairs[next].value : LIN_ABSENT);
        next += given;
    }
    return NULL;
}

bool lin_apply(const struct lin_op *op, uint32_t state, uint32_t *after)
{
    bool present = state != LIN_ABSENT;
    bool works = true;
    uint32_t changed = state;

    switch ((enum lin_kind)op->kind) {
    case LIN_GET:
        *after = state;
        return op->outcome == LIN_UNKNOWN || op->result == state;
    case LIN_PUT:
        changed = op->value;
        break;
    case LIN_INSERT:
        works = !present;
        changed = present ? state : op->value;
        break;
    case LIN_UPDATE:
        works = present;
        changed = present ? op->value : state;
        break;
    case LIN_DELETE:
        works = present;
        changed = LIN_ABSENT;
        break;
    case LIN_EXISTS:
        works = present;
        break;
    case LIN_MODIFY:
        *after = op->value;
        return op->outcome == LIN_UNKNOWN || op->result == state;
    }
    *after = changed;
    return op->outcome == LIN_UNKNOWN || (op->result != 0) == works;
}

const char *lin_kind_name(enum lin_kind kind)
{
    static const char *const name[LIN_KINDS] = {"get",    "put",    "insert", "update",
                                                "delete", "exists", "modify"};
    return name[kind];
}

static const char *result_text(const struct lin_op *op)
{
    if (op->outcome == LIN_UNKNOWN)
        return "?";
    if (op->outcome == LIN_FAILED)
        return "gave up";
    if (op->result)
        return "ok";
    return op->kind == LIN_INSERT ? "exists" : op->kind == LIN_GET ? "absent" : "not found";
}

void lin_describe(const struct lin_op *op, char *text, size_t room)
{
    const char *kind = lin_kind_name((enum lin_kind)op->kind);
    if (op->kind == LIN_GET && op->outcome == LIN_DONE && op->result != LIN_ABSENT)
        snprintf(text, room, "get k%u -> v%u", op->key, op->result);
    else if (op->kind == LIN_MODIFY && op->value == LIN_ABSENT)
        snprintf(text, room, "modify k%u, remove -> %s v%u", op->key, result_text(op), op->result);
    else if (op->kind == LIN_MODIFY && op->outcome == LIN_DONE)
        snprintf(text, room, "modify k%u = v%u -> saw %c%u", op->key, op->value,
                 op->result == LIN_ABSENT ? '-' : 'v', op->result);
    else if (op->kind == LIN_GET || op->kind == LIN_DELETE || op->kind == LIN_EXISTS)
        snprintf(text, room, "%s k%u -> %s", kind, op->key, result_text(op));
    else
        snprintf(text, room, "%s k%u = v%u -> %s", kind, op->key, op->value, result_text(op));
}
