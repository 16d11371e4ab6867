/*
 * Scans of ordered tables. lin_scan() judges what a scan returns: directly, and as the gets that it
 * amounts to. A scan of several calls is judged call by call, because each call continues after the
 * last key of the one before.
 */
#include "check/check_internal.h"

#include <stdlib.h>
#include <string.h>

#define BUF_BYTES  2048u
#define LIMIT_MOST 12u

static bool is_ordered(const char *index)
{
    const struct index_ops *ops = index_find(index);
    return ops && ops->ordered;
}

static const char *index_of(const struct check *c, unsigned table)
{
    return table == 0 ? c->set->index : c->plan.other_index;
}

bool check_can_scan(const struct check *c)
{
    for (unsigned i = 0; i < c->plan.tables; i++)
        if (is_ordered(index_of(c, i)))
            return true;
    return false;
}

/* A scan under way. */
struct scanning {
    unsigned table;
    uint32_t order[KEYS_MAX]; /* the table's keys, in their order */
    unsigned keys;
    char from[KEY_BYTES_MAX], to[KEY_BYTES_MAX];
    struct far_range range;      /* what is left of it */
    uint32_t in_range[KEYS_MAX]; /* its keys */
    unsigned in_range_count;
    char buf[BUF_BYTES];
    size_t cap;
    struct far_result result;
    struct lin_pair pair[KEYS_MAX];
};

static int by_bytes(const void *a, const void *b, void *arg)
{
    char x[KEY_BYTES_MAX], y[KEY_BYTES_MAX];
    struct slice left = {x, check_key_bytes(arg, *(const uint32_t *)a, x)};
    struct slice right = {y, check_key_bytes(arg, *(const uint32_t *)b, y)};
    return index_key_compare(left, right);
}

/* The whole table, or from one of its keys on, or up to one. */
static void choose_range(struct check *c, struct scanning *s)
{
    struct tape *t = c->tape;
    s->table = tape_choose(t, c->plan.tables, TAPE_WORK);
    while (!is_ordered(index_of(c, s->table)))
        s->table = (s->table + 1) % c->plan.tables;
    for (unsigned key = s->table; key < c->keys; key += c->plan.tables)
        s->order[s->keys++] = key;
    qsort_r(s->order, s->keys, sizeof *s->order, by_bytes, c);

    unsigned low = tape_choose(t, s->keys + 1, TAPE_WORK); /* 0: from the first on */
    unsigned span = tape_choose(t, s->keys + 1 - low, TAPE_WORK);
    if (low > 0) {
        s->range.from = s->from;
        s->range.from_len = check_key_bytes(c, s->order[low - 1], s->from);
    }
    if (span > 0) { /* 0: to the last */
        s->range.to = s->to;
        s->range.to_len = check_key_bytes(c, s->order[low + span - 1], s->to);
    }
    s->range.flags = tape_choose(t, 2, TAPE_WORK) ? FAR_AFTER : 0;
    if (tape_choose(t, 2, TAPE_WORK))
        s->range.limit = 1 + tape_choose(t, LIMIT_MOST, TAPE_WORK);
    s->cap = BUF_BYTES >> tape_choose(t, 2, TAPE_WORK);
}

/* One call; through the ring, which is empty, if the client has one. */
static int call(struct check *c, struct check_client *me, struct scanning *s)
{
    struct far_op op = {.kind = FAR_OP_SCAN,
                        .table = c->table[s->table],
                        .key = s->range.from,
                        .key_len = s->range.from_len,
                        .to = s->range.to,
                        .to_len = s->range.to_len,
                        .limit = s->range.limit,
                        .flags = s->range.flags,
                        .buf = s->buf,
                        .cap = s->cap};
    if (c->plan.ring == 1)
        return far_execute(me->session, &op, &s->result);
    int rc = far_submit(me->session, &op);
    if (rc != FAR_OK)
        return rc;
    return far_reap(me->session, &s->result, 1, 1) == 1 ? s->result.status : FAR_INVALID;
}

/* Call it before the scan: `from` may be in the buffer. */
static void find_in_range(const struct check *c, struct scanning *s)
{
    const struct scan_range range = {.from = {s->range.from, s->range.from_len},
                                     .after = (s->range.flags & FAR_AFTER) != 0,
                                     .to = {s->range.to, s->range.to_len}};
    s->in_range_count = 0;
    for (unsigned i = 0; i < s->keys; i++) {
        char bytes[KEY_BYTES_MAX];
        struct slice key = {bytes, check_key_bytes(c, s->order[i], bytes)};
        if (index_scan_place(&range, key) == SCAN_WITHIN)
            s->in_range[s->in_range_count++] = s->order[i];
    }
}

/* Judges what the call returned, and moves the range past it. */
static void judge(struct check *c, struct check_client *me, struct scanning *s, uint64_t called,
                  uint64_t ret)
{
    struct lin_scan scan = {.client = me->id,
                            .call = called,
                            .ret = ret,
                            .key = s->in_range,
                            .keys = s->in_range_count,
                            .limit = s->range.limit,
                            .more = s->result.more};
    struct far_entry e;
    size_t count = 0;
    for (size_t pos = 0; far_entry_next(s->buf, s->result.len, &pos, &e); count++) {
        unsigned key = check_find_key(c, s->table, &e);
        if (key >= KEYS_MAX || count == KEYS_MAX) {
            check_fail(c, CHECK_BAD_VALUE, "a scan returned %s",
                       key >= KEYS_MAX ? "a key that no client wrote"
                                       : "more entries than there are keys");
            return;
        }
        s->pair[count] = (struct lin_pair){key, check_judge_value(c, key, e.value, e.value_len)};
        s->range.from = e.key; /* in the buffer, as callers may have it */
        s->range.from_len = e.key_len;
        s->range.flags |= FAR_AFTER;
    }
    const char *wrong = lin_scan(&c->history, &scan, s->pair, count);
    if (wrong)
        check_fail(c, CHECK_BAD_VALUE, "%s", wrong);
}

int check_scan(struct check *c, struct check_client *me)
{
    struct scanning *s = calloc(1, sizeof *s);
    int rc = FAR_OK;
    bool more = true;
    ASSERT(s);
    c->plan.scans = false; /* once */
    choose_range(c, s);
    while (more && c->result.verdict == CHECK_PASSED) {
        find_in_range(c, s);
        uint64_t called = ++c->history.stamp;
        sim_note(c->sim, "scans");
        rc = call(c, me, s);
        uint64_t ret = ++c->history.stamp;
        if (sim_unwinding(c->sim))
            break;
        sim_note(c->sim, "   %s, %u entries%s", far_errname(rc), s->result.count,
                 s->result.more ? " and more" : "");
        if (rc != FAR_OK && !check_read_is_explained(c, rc))
            check_fail_status(c, CHECK_BAD_STATUS, rc, "a scan");
        if (rc != FAR_OK)
            break;
        judge(c, me, s, called, ret);
        more = s->result.more;
        check_dawdle(c);
        c->result.coverage.scanned += !more;
    }
    free(s);
    return rc;
}
