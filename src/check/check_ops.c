/* Keys, values and operations. */
#include "check/check_internal.h"

#include "base/hash.h"

#include <string.h>

far_table *check_table_of(const struct check *c, unsigned key)
{
    return c->table[key % c->plan.tables];
}

#define SHARED_BYTES 46u /* more than sessions keep of keys that they wrote: INDEX_OWN_KEY */
#define FIRST_BYTES  8u  /* more than an integer that stands for the beginning of a key */

static size_t append(char *bytes, size_t len, char byte, size_t count)
{
    memset(bytes + len, byte, count);
    return len + count;
}

/* All keys share their first bytes, many or few, or all but the first. */
static size_t alike_bytes(unsigned shape, unsigned key, char *bytes)
{
    size_t len = 0;
    switch (shape) {
    case 1: /* they differ in the last byte */
        len = append(bytes, len, 'p', SHARED_BYTES);
        return append(bytes, len, (char)key, 1);
    case 2: /* they differ behind the eighth byte, some only in how many NULs there are at the end */
        len = append(bytes, len, 'p', FIRST_BYTES);
        len = append(bytes, len, (char)(key / 3), 1);
        return append(bytes, len, '\0', key % 3);
    default:
        len = append(bytes, len, (char)key, 1);
        return append(bytes, len, 'p', SHARED_BYTES);
    }
}

/* Keys are prefixes of each other and some contain NULs, so a comparison of only a part, or only up
 * to a NUL, confuses them. Some are so long that a split needs a second read for them. */
size_t check_key_bytes(const struct check *c, unsigned key, char *bytes)
{
    static const char stem[] = "k\0kk\0k";
    key /= c->plan.tables;
    if (c->plan.key_shape > 0)
        return alike_bytes(c->plan.key_shape, key, bytes);
    size_t len = 1 + key % (sizeof stem - 1);
    memcpy(bytes, stem, len);
    for (unsigned n = key / (sizeof stem - 1); n > 0; n--)
        bytes[len++] = 'q';
    if (key % 8 == 5) {
        memset(bytes + len, 'z', 64);
        len += 64;
    }
    ASSERT(len <= KEY_BYTES_MAX);
    return len;
}

uint64_t check_hash_seed(const struct check *c, unsigned table)
{
    return 1 + c->plan.hash_seed + 100 * table;
}

bool check_rests(const struct check *c, unsigned key)
{
    char bytes[KEY_BYTES_MAX];
    size_t len = check_key_bytes(c, key, bytes);
    return (hash_key(bytes, len, check_hash_seed(c, key % c->plan.tables)).lo & 1) == 0;
}

/* A value is its number and then bytes that follow from the number, as does its length. */
size_t check_value_bytes(const struct check *c, uint32_t number, uint8_t *bytes)
{
    uint64_t x = (number + 1ull) * 0x9e3779b97f4a7c15u;
    size_t len = 8 + (x >> 59); /* mostly within a line of the pool */
    if ((x >> 56 & 7) == 0)
        len = 8 + (x >> 40) % (VALUE_MAX - 8);
    if (c->plan.alike)
        len = 8;
    memcpy(bytes, &number, sizeof number);
    for (size_t i = sizeof number; i < len; i++)
        bytes[i] = (uint8_t)((x >> (i % 8 * 7)) + i);
    return len;
}

uint32_t check_judge_value(struct check *c, unsigned key, const uint8_t *bytes, size_t len)
{
    uint8_t right[VALUE_MAX];
    uint32_t number = 0;
    if (len >= sizeof number)
        memcpy(&number, bytes, sizeof number);
    if (number == 0 || number >= c->values)
        check_fail(c, CHECK_BAD_VALUE, "k%u has a value of %zu bytes that no client wrote", key,
                   len);
    else if (check_value_bytes(c, number, right) != len || memcmp(right, bytes, len) != 0)
        check_fail(c, CHECK_BAD_VALUE, "k%u has a torn value: %zu bytes that begin like v%u", key,
                   len, number);
    else if (c->key_of[number] != key)
        check_fail(c, CHECK_BAD_VALUE, "k%u has the value v%u, which was written to k%u", key,
                   number, c->key_of[number]);
    else
        return number;
    return LIN_ABSENT;
}

static uint32_t new_value(struct check *c, unsigned key)
{
    ASSERT(c->values < VALUES_MAX);
    c->key_of[c->values] = (uint8_t)key;
    return c->values++;
}

static const enum far_op_kind op_kind[LIN_KINDS] = {
    [LIN_GET] = FAR_OP_GET,       [LIN_PUT] = FAR_OP_PUT,       [LIN_INSERT] = FAR_OP_INSERT,
    [LIN_UPDATE] = FAR_OP_UPDATE, [LIN_DELETE] = FAR_OP_DELETE, [LIN_EXISTS] = FAR_OP_EXISTS,
    [LIN_MODIFY] = FAR_OP_MODIFY,
};

#define MODIFIES_TO_REMOVE 8u /* of this many modifies about one removes the key */

/* Stores its value in any case, or removes the key, and notes the value it saw. */
static enum far_decision modify(void *arg, const void *old, size_t old_len, const void **value,
                                size_t *value_len)
{
    struct pending_op *pending = arg;
    pending->saw = old != NULL;
    pending->saw_len = old_len;
    if (old)
        memcpy(pending->got, old, old_len < sizeof pending->got ? old_len : sizeof pending->got);
    *value = pending->value;
    *value_len = pending->op.value_len;
    return pending->removes ? FAR_REMOVE : FAR_STORE;
}

void check_note_call(struct check *c, unsigned client, enum lin_kind kind, unsigned key,
                     struct pending_op *pending)
{
    bool writes = kind == LIN_PUT || kind == LIN_INSERT || kind == LIN_UPDATE || kind == LIN_MODIFY;
    ASSERT(client <= c->clients && key < c->keys);
    uint32_t number = writes ? new_value(c, key) : LIN_ABSENT;
    pending->removes = kind == LIN_MODIFY && number % MODIFIES_TO_REMOVE == 0;
    pending->kind = kind;
    pending->key = key;
    pending->op =
        (struct far_op){.kind = op_kind[kind],
                        .table = check_table_of(c, key),
                        .key = pending->key_bytes,
                        .key_len = check_key_bytes(c, key, pending->key_bytes),
                        .value = pending->value,
                        .value_len = writes ? check_value_bytes(c, number, pending->value) : 0,
                        .buf = pending->got,
                        .cap = sizeof pending->got,
                        .modify = modify,
                        .modify_arg = pending};
    pending->place =
        lin_call(&c->history, client, kind, key, pending->removes ? LIN_ABSENT : number);
    pending->name = (uint64_t)client << 32 | c->called[client]++;
    c->interval ^= hash_sum(&(uint64_t[2]){pending->name, c->returned}, 16, 1);
    if (writes && !pending->removes)
        sim_note(c->sim, "%s k%u = v%u (%zu bytes)", lin_kind_name(kind), key, number,
                 pending->op.value_len);
    else
        sim_note(c->sim, "%s k%u", lin_kind_name(kind), key);
}

static bool is_answer(enum lin_kind kind, int status)
{
    return status == FAR_OK || (status == FAR_EXISTS && kind == LIN_INSERT) ||
           (status == FAR_NOT_FOUND && kind != LIN_PUT && kind != LIN_INSERT && kind != LIN_MODIFY);
}

static bool reads_only(enum lin_kind kind)
{
    return kind == LIN_GET || kind == LIN_EXISTS;
}

void check_note_return(struct check *c, const struct pending_op *pending, int status, size_t len)
{
    enum lin_outcome outcome = LIN_DONE;
    uint32_t result = status == FAR_OK;
    char text[96];

    c->result.operations++;
    c->result.coverage.exists += pending->kind == LIN_EXISTS;
    c->result.coverage.found_full += status == FAR_POOL_FULL;
    c->result.coverage.modified += pending->kind == LIN_MODIFY;
    if (pending->kind == LIN_GET && status == FAR_OK) {
        result = check_judge_value(c, pending->key, pending->got, len);
    } else if (pending->kind == LIN_MODIFY && status == FAR_OK) {
        result = pending->saw ? check_judge_value(c, pending->key, pending->got, pending->saw_len)
                              : LIN_ABSENT;
    } else if (check_had_no_effect(c, status)) {
        outcome = LIN_FAILED;
        c->result.gave_up++;
    } else if (check_is_excused(c, status) && !reads_only(pending->kind)) {
        outcome = LIN_UNKNOWN;
        c->result.unknown++;
    } else if (!is_answer(pending->kind, status)) {
        outcome = LIN_UNKNOWN;
        check_fail_status(c, CHECK_BAD_STATUS, status, "%s k%u", lin_kind_name(pending->kind),
                          pending->key);
    }
    lin_return(&c->history, pending->place, outcome, result);
    c->returned ^= hash_sum(&(uint64_t[2]){pending->name, result}, 16, 2 + outcome);
    lin_describe(&c->history.op[pending->place], text, sizeof text);
    sim_note(c->sim, "   %s", text);
}

#define DAWDLE_NS     2000u
#define DAWDLE_STEPS  6u
#define ITERATE_CALLS 2048u

void check_dawdle(struct check *c)
{
    if (c->plan.dawdles && !sim_unwinding(c->sim) && tape_choose(c->tape, 2, TAPE_WORK))
        sim_sleep(c->sim, (uint64_t)DAWDLE_NS << tape_choose(c->tape, DAWDLE_STEPS, TAPE_WORK));
}

unsigned check_find_key(const struct check *c, unsigned table, const struct far_entry *e)
{
    char bytes[KEY_BYTES_MAX];
    unsigned key = table;
    while (key < KEYS_MAX &&
           (check_key_bytes(c, key, bytes) != e->key_len || memcmp(bytes, e->key, e->key_len) != 0))
        key += c->plan.tables;
    return key;
}

/*
 * Each pair must have been right at some instant of the call that returned it. Each key that was
 * never returned must have been absent at some instant of the whole iteration. So they are entered
 * as gets.
 */
int check_iterate(struct check *c, struct check_client *me)
{
    bool seen[KEYS_MAX] = {false};
    char buf[2048];
    struct lin_history *h = &c->history;
    unsigned table = tape_choose(c->tape, c->plan.tables, TAPE_WORK), room = SEEN_MAX - KEYS_MAX;
    size_t cap = sizeof buf >> tape_choose(c->tape, 2, TAPE_WORK), len = 0;
    uint64_t cursor = 0, first = ++h->stamp, ret = first;
    int rc = FAR_OK;

    c->plan.iterates = false; /* once */
    for (unsigned i = 0; i < ITERATE_CALLS && (i == 0 || cursor != 0); i++) {
        struct far_entry e;
        uint64_t call = ++h->stamp;
        rc = far_iterate(me->session, c->table[table], &cursor, 0, buf, cap, &len);
        ret = ++h->stamp;
        if (sim_unwinding(c->sim))
            return rc;
        if (rc != FAR_OK && !check_read_is_explained(c, rc))
            check_fail_status(c, CHECK_BAD_STATUS, rc, "an iteration");
        for (size_t pos = 0; rc == FAR_OK && far_entry_next(buf, len, &pos, &e);) {
            unsigned key = check_find_key(c, table, &e);
            if (key >= KEYS_MAX) {
                check_fail(c, CHECK_BAD_VALUE, "an iteration returned a key that no client wrote");
                return rc;
            }
            seen[key] = true;
            if (room-- == 0)
                return rc; /* keys were returned many times: what was seen is enough */
            lin_saw(h, me->id, call, ret, key, check_judge_value(c, key, e.value, e.value_len));
        }
        if (rc != FAR_OK)
            return rc;
        check_dawdle(c);
    }
    if (cursor != 0) {
        check_fail(c, CHECK_BAD_STATUS, "an iteration did not end within %u calls", ITERATE_CALLS);
        return rc;
    }
    c->result.coverage.iterated++;
    for (unsigned key = table; key < c->keys; key += c->plan.tables)
        if (!seen[key])
            lin_saw(h, me->id, first, ret, key, LIN_ABSENT);
    return rc;
}

int check_execute(struct check *c, far_session *session, unsigned client, enum lin_kind kind,
                  unsigned key)
{
    struct pending_op pending;
    struct far_result r;
    check_note_call(c, client, kind, key, &pending);
    int status = far_execute(session, &pending.op, &r);
    if (!sim_unwinding(c->sim))
        check_note_return(c, &pending, status, r.len);
    return status;
}
