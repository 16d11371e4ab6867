/*
 * Tests of tables with damaged parts that hold several entries: rows of RCuckoo, groups of CHIME.
 *
 * A test that includes this defines the functions that are declared here. Its struct rig begins
 * with a struct damage_rig, `d`.
 */
#ifndef SUPPORT_DAMAGE_RIG_H
#define SUPPORT_DAMAGE_RIG_H

#include "support/sweep_rig.h"

#include <stdio.h>

struct form {
    size_t klen, vlen, alike; /* bytes: all keys begin with as many k */
};
static const struct form forms[] = {
    {8, 8, 0},   /* key and value inline */
    {8, 100, 0}, /* the value in a block */
    {20, 8, 0},  /* the key is too long  */
};
#define FORMS (sizeof forms / sizeof forms[0])

struct damage_rig {
    struct store_rig r;
    far_session *s; /* r.session */
    far_table *t;
    struct form form;
};
struct rig;

/* Opens a table with FEW keys, and chooses the part that is damaged: the one with the most
 * entries. */
static void open_rig(struct rig *g, struct form form);
/* The first eight bytes of the n-th key behind those that are alike, and which one it is. */
static uint64_t key_word(uint64_t n);
static uint64_t key_number(uint64_t word);
/* Does an operation on the key need the damaged part? */
static bool concerned(struct rig *g, uint64_t n);
/* Words of the damaged part. */
static uint64_t word_of(struct rig *g, unsigned word);
static void set_word(struct rig *g, unsigned word, uint64_t to);
/* Its entries, and a bit of the value, or of the pointer, of the first one. */
static unsigned used(struct rig *g);
static unsigned bit_of_value(struct rig *g);

static inline struct damage_rig *base(struct rig *g)
{
    return (struct damage_rig *)g;
}
static inline struct slice key_of(const struct damage_rig *d, uint64_t n, char key[32])
{
    uint64_t word = key_word(n);
    memset(key, 'k', 32);
    memcpy(key + d->form.alike, &word, 8);
    return (struct slice){key, d->form.klen};
}

static inline int put_n(struct rig *g, uint64_t n)
{
    struct damage_rig *d = base(g);
    char key[32], value[128];
    memset(value, (int)n, sizeof value);
    struct slice k = key_of(d, n, key);
    return far_put(d->s, d->t, k.data, k.len, value, d->form.vlen);
}

/* FAR_OK: it has the value that was put. */
static inline int get_n(struct rig *g, uint64_t n)
{
    struct damage_rig *d = base(g);
    char key[32], value[128], want[128];
    size_t len = 0;
    struct slice k = key_of(d, n, key);
    int rc = far_get(d->s, d->t, k.data, k.len, value, sizeof value, &len);
    memset(want, (int)n, sizeof want);
    if (rc == FAR_OK && (len != d->form.vlen || memcmp(value, want, len) != 0))
        fail_msg("key %llu has a value that nobody put", (unsigned long long)n);
    return rc;
}

static inline void flip(struct rig *g, unsigned bit)
{
    set_word(g, bit / 64, word_of(g, bit / 64) ^ 1ull << bit % 64);
}

static inline void damage_rig_open(struct rig *g, const char *index, const char *tuning,
                                   unsigned few)
{
    struct damage_rig *d = base(g);
    struct far_table_options options = {.tuning = tuning, .hash_seed = 5};
    store_rig_open_driven(&d->r, "mem:?size=8m&clients=8", NULL, NULL, NULL);
    d->s = d->r.session;
    assert_int_equal(far_table_create(d->s, "d", index, &options, &d->t), FAR_OK);
    for (uint64_t n = 0; n < few; n++)
        assert_int_equal(put_n(g, n), FAR_OK);
}
/* Sets *part to the one of `count` that has the most entries. Returns how many. */
static inline unsigned choose_part(struct rig *g, unsigned *part, unsigned count)
{
    unsigned most = 0, best = 0;
    for (*part = 0; *part < count; ++*part)
        if (used(g) > most) {
            most = used(g);
            best = *part;
        }
    *part = best;
    return most;
}
static inline void close_rig(struct rig *g)
{
    store_rig_close(&base(g)->r);
}

/* ---- iterating and scanning ------------------------------------------------------------------ */

struct seen {
    unsigned count, partial, damaged;
};

static inline void collect(struct rig *g, enum far_op_kind kind, struct seen *seen)
{
    struct damage_rig *d = base(g);
    char buf[2048], last[32];
    struct far_op op = {.kind = kind, .table = d->t, .buf = buf, .cap = sizeof buf};
    struct far_result result;
    unsigned calls = 0;
    *seen = (struct seen){0};
    do {
        int rc = far_execute(d->s, &op, &result);
        assert_true(++calls < 10000);
        assert_true(rc == FAR_OK || rc == FAR_PARTIAL);
        assert_int_equal(result.damaged > 0, rc == FAR_PARTIAL);
        seen->partial += rc == FAR_PARTIAL;
        seen->damaged += result.damaged;
        struct far_entry e;
        for (size_t pos = 0; far_entry_next(buf, result.len, &pos, &e); seen->count++) {
            uint64_t word = 0;
            memcpy(&word, e.key, 8);
            assert_int_equal(e.value_len, d->form.vlen);
            for (size_t i = 0; i < e.value_len; i++)
                assert_int_equal(((const uint8_t *)e.value)[i], (uint8_t)key_number(word));
            if (kind == FAR_OP_SCAN) {
                op.key = memcpy(last, e.key, e.key_len);
                op.key_len = e.key_len;
                op.flags = FAR_AFTER;
            }
        }
        op.cursor = result.cursor;
    } while (kind == FAR_OP_SCAN ? result.more : op.cursor != 0);
}

/* `entries`: places of the damaged part. `keys`: how many keys the other parts have. */
static inline void expect_passed_once(struct rig *g, unsigned entries, unsigned keys)
{
    struct far_table_info info;
    struct seen seen;
    collect(g, FAR_OP_ITERATE, &seen);
    assert_int_equal(seen.count, keys);
    assert_int_equal(seen.partial, 1); /* by the call that passed it */
    assert_int_equal(seen.damaged, entries);
    assert_int_equal(far_table_info(base(g)->s, base(g)->t, &info), FAR_OK);
    assert_int_equal(info.damaged, entries);
    assert_int_equal(info.keys, keys);
}

/* ---- sweeping -------------------------------------------------------------------------------- */

/* A word of the part is damaged while the pool is swept and its memory used again, and restored
 * behind that. */
static inline void sweep_beside_damage(struct rig *g, unsigned word, uint64_t damaged)
{
    struct damage_rig *d = base(g);
    struct far_pool_usage usage;
    struct sweep_result swept;
    uint64_t good = word_of(g, word);
    set_word(g, word, damaged);
    assert_int_equal(far_pool_usage(d->s, &usage), FAR_OK);
    assert_int_equal(pool_sweep(&d->s->op, &swept), FAR_OK);
    for (uint64_t n = 0; n < 1000; n++)
        assert_int_equal(put(&d->r, d->s, n, 60 + n % 80), FAR_OK);
    set_word(g, word, good);
}

static inline void ignore(struct marker *marker, gaddr at, unsigned size_class)
{
    (void)marker;
    (void)at;
    (void)size_class;
}

static inline void expect_marker_hears(struct rig *g)
{
    struct damage_rig *d = base(g);
    struct marker marker = {.mark = ignore};
    struct index_view *view = store_known(d->s, d->t)->view;
    const struct index_ops *ops = d->t->index.ops;
    assert_int_equal(op_begin(&d->s->op, NULL), FAR_OK);
    assert_int_equal(ops->mark(&d->s->op, view, &marker), FAR_OK);
    assert_false(marker.damaged);
    flip(g, bit_of_value(g));
    assert_int_equal(ops->mark(&d->s->op, view, &marker), FAR_OK);
    assert_true(marker.damaged);
    op_end(&d->s->op);
}

/* ---- repairing ------------------------------------------------------------------------------- */

static char heard[65536];
static inline void hear(void *arg, const char *line)
{
    (void)arg;
    size_t len = strlen(heard);
    snprintf(heard + len, sizeof heard - len, "%s\n", line);
}

static inline struct far_pool_check repair(struct rig *g)
{
    struct damage_rig *d = base(g);
    struct far_pool_check check;
    heard[0] = '\0';
    assert_int_equal(far_pool_check(d->s, false, NULL, NULL, &check), FAR_CORRUPT);
    if (far_pool_check(d->s, true, hear, NULL, &check) != FAR_OK)
        fail_msg("%s", heard);
    assert_int_equal(far_table_check(d->s, d->t, NULL, NULL), FAR_OK);
    return check;
}

static inline void expect_all(struct rig *g, uint64_t keys)
{
    for (uint64_t n = 0; n < keys; n++)
        assert_int_equal(get_n(g, n), FAR_OK);
}

/* A flipped bit is found, and nothing is lost. */
static inline void expect_undone(struct rig *g, unsigned bit, uint64_t keys)
{
    unsigned there = used(g);
    flip(g, bit);
    struct far_pool_check check = repair(g);
    assert_int_equal(check.salvaged, there);
    assert_int_equal(check.lost, 0);
    assert_non_null(strstr(heard, "entries salvaged, 0 lost"));
    expect_all(g, keys);
}

/* Two bits of one entry. Blocks prove the other entries; nothing proves what is inline. */
static inline void expect_proved_kept(struct rig *g, bool inlined, uint64_t keys)
{
    unsigned there = used(g), left = 0;
    flip(g, bit_of_value(g));
    flip(g, bit_of_value(g) + 1);
    struct far_pool_check check = repair(g);
    assert_int_equal(check.salvaged, inlined ? 0 : there - 1);
    assert_int_equal(check.lost, inlined ? there : 1);
    for (uint64_t n = 0; n < keys; n++) {
        int rc = get_n(g, n);
        assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
        left += rc == FAR_OK;
        assert_int_equal(put_n(g, n), FAR_OK);
        assert_int_equal(get_n(g, n), FAR_OK);
    }
    assert_int_equal(left, keys - check.lost);
}

#endif
