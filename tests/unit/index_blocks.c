/* Damaged key-value blocks, in every index: what is reported, what is left out, and what a repair
 * does. */
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdio.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS       200u
#define KEY_BYTES  20u /* in a block, whatever the index */
#define LONG       20000u
#define FOUND_MAX  4096u
#define BUF_BYTES  (64u * 1024)
#define NO_VERSION 0xff00u /* block_valid(): any generation */

struct rig {
    struct store_rig r;
    char buf[BUF_BYTES];
    char heard[16384];
};

static struct slice key_of(uint32_t n, char key[KEY_BYTES])
{
    memset(key, 'k', KEY_BYTES);
    key[0] = (char)(n >> 8);
    key[1] = (char)n;
    return (struct slice){key, KEY_BYTES};
}

static uint8_t fill_of(uint32_t n, unsigned version)
{
    return (uint8_t)(n + 101 * version);
}

static int put_n(struct rig *g, uint32_t n, size_t bytes, unsigned version)
{
    static char value[LONG];
    char key[KEY_BYTES];
    key_of(n, key);
    memset(value, fill_of(n, version), bytes);
    return far_put(g->r.session, g->r.table, key, KEY_BYTES, value, bytes);
}

/* FAR_OK: it has the value of this version. */
static int get_n(struct rig *g, uint32_t n, unsigned version)
{
    static uint8_t value[LONG];
    char key[KEY_BYTES];
    size_t len = 0;
    key_of(n, key);
    int rc = far_get(g->r.session, g->r.table, key, KEY_BYTES, value, sizeof value, &len);
    for (size_t i = 0; rc == FAR_OK && i < len; i++)
        assert_int_equal(value[i], fill_of(n, version));
    return rc;
}

static void open_on(struct rig *g, const struct knobs *knobs)
{
    store_rig_open_driven(
        &g->r, "mem:?size=16m&clients=8", knobs, NULL,
        &(struct far_table_options){.tuning = indexes_smallest(), .hash_seed = 5});
}
/* `longs`: of the keys, how many have a long value. */
static void start_on(struct rig *g, const struct knobs *knobs, unsigned longs)
{
    open_on(g, knobs);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(put_n(g, n, n - 40 < longs ? LONG : 100, 0), FAR_OK);
}
static void start_with(struct rig *g, unsigned longs)
{
    start_on(g, NULL, longs);
}
static void start(struct rig *g)
{
    start_with(g, 0);
}

/* ---- finding blocks -------------------------------------------------------------------------- */

struct objects {
    struct marker marker;
    unsigned count;
    struct {
        gaddr at;
        unsigned size_class;
    } of[FOUND_MAX];
};

static void note(struct marker *marker, gaddr at, unsigned size_class)
{
    struct objects *o = (struct objects *)marker;
    assert_true(o->count < FOUND_MAX);
    o->of[o->count].at = at;
    o->of[o->count++].size_class = size_class;
}

/* The block of a key with a value that begins with this byte; 0: the table reaches none. */
static gaddr block_of(struct rig *g, uint32_t n, unsigned version)
{
    static struct objects o;
    struct op *op = &g->r.session->op;
    struct index_view *view = store_known(g->r.session, g->r.table)->view;
    char key[KEY_BYTES];
    gaddr found = 0;
    key_of(n, key);
    o = (struct objects){.marker = {.mark = note}};
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(g->r.table->index.ops->mark(op, view, &o.marker), FAR_OK);
    for (unsigned i = 0; i < o.count && found == 0; i++) {
        uint32_t bytes = size_class_bytes(o.of[i].size_class);
        const struct block_head *h = op_buffer(op, BUF_BLOCK_IN, bytes);
        assert_non_null(h);
        batch_read(&op->batch, o.of[i].at, 0, (void *)(uintptr_t)h, bytes);
        assert_int_equal(batch_flush(&op->batch), FAR_OK);
        if (block_valid(h, bytes, NO_VERSION) && h->klen == KEY_BYTES &&
            memcmp(block_key(h), key, KEY_BYTES) == 0 &&
            *(const uint8_t *)block_value(h) == fill_of(n, version))
            found = o.of[i].at;
    }
    op_end(op);
    return found;
}

static void flip_at(struct rig *g, gaddr at, unsigned byte, unsigned bits)
{
    uint64_t word = store_rig_get(&g->r, at, byte / 8 * 8);
    store_rig_set(&g->r, at, byte / 8 * 8, word ^ (uint64_t)bits << 8 * (byte % 8));
}

/* Flips bits of the 50th byte of the block: of the value, if that is not short. */
static void flip(struct rig *g, uint32_t n, unsigned bits)
{
    gaddr at = block_of(g, n, 0);
    assert_true(at != 0);
    flip_at(g, at, 50, bits);
}

/* ---- iterating ------------------------------------------------------------------------------- */

struct seen {
    unsigned times[KEYS], damaged, partial;
};

static void see(const struct far_entry *e, struct seen *seen)
{
    assert_int_equal(e->key_len, KEY_BYTES);
    const uint8_t *key = e->key;
    uint32_t n = (uint32_t)key[0] << 8 | key[1];
    assert_true(n < KEYS);
    seen->times[n]++;
    for (size_t i = 0; e->value && i < e->value_len; i++)
        assert_int_equal(((const uint8_t *)e->value)[i], fill_of(n, 0));
}

/* All of the table, by calls with a buffer that grows when it has to. */
static void collect(struct rig *g, enum far_op_kind kind, unsigned flags, size_t cap,
                    struct seen *seen)
{
    struct far_op op = {.kind = kind, .table = g->r.table, .buf = g->buf, .cap = cap};
    struct far_result result = {.more = true};
    char last[KEY_BYTES];
    unsigned calls = 0;
    op.flags = flags;
    *seen = (struct seen){.damaged = 0};
    do {
        struct far_entry e;
        int rc = far_execute(g->r.session, &op, &result);
        assert_true(++calls < 10 * KEYS);
        if (rc == FAR_TOO_SMALL) {
            assert_int_equal(result.damaged, 0);
            assert_true(result.len > op.cap && result.len <= BUF_BYTES);
            op.cap = result.len;
            continue;
        }
        assert_true(rc == FAR_OK || rc == FAR_PARTIAL);
        assert_int_equal(result.damaged > 0, rc == FAR_PARTIAL);
        seen->partial += rc == FAR_PARTIAL;
        seen->damaged += result.damaged;
        for (size_t pos = 0; far_entry_next(g->buf, result.len, &pos, &e);) {
            see(&e, seen);
            if (kind == FAR_OP_SCAN) {
                op.key = memcpy(last, e.key, e.key_len);
                op.key_len = e.key_len;
                op.flags = flags | FAR_AFTER;
            }
        }
        op.cursor = result.cursor;
    } while (result.status == FAR_TOO_SMALL ||
             (kind == FAR_OP_SCAN ? result.more : op.cursor != 0));
}

static bool is_ordered(const struct rig *g)
{
    return g->r.table->index.ops->ordered;
}

/* All keys but these come, once, and it is said that these do not. */
static void expect_all_but(struct rig *g, const uint32_t *left_out, unsigned count, unsigned flags)
{
    static const size_t caps[] = {64, 1500, BUF_BYTES};
    for (unsigned i = 0; i < 6; i++) {
        struct seen seen;
        enum far_op_kind kind = i % 2 ? FAR_OP_SCAN : FAR_OP_ITERATE;
        if (kind == FAR_OP_SCAN && !is_ordered(g))
            continue;
        collect(g, kind, flags, caps[i / 2], &seen);
        assert_int_equal(seen.damaged, count);
        assert_true(count == 0 || seen.partial > 0);
        for (uint32_t n = 0; n < KEYS; n++) {
            unsigned times = 1;
            for (unsigned j = 0; j < count; j++)
                times -= left_out[j] == n;
            assert_int_equal(seen.times[n], times);
        }
    }
}

static void everything_but_damaged_blocks_is_returned(void **state)
{
    static struct rig g;
    static const uint32_t damaged[] = {0, 7, 8, 123, KEYS - 1};
    (void)state;
    start(&g);
    expect_all_but(&g, NULL, 0, 0);
    for (unsigned i = 0; i < 5; i++)
        flip(&g, damaged[i], 1);
    expect_all_but(&g, damaged, 5, 0);
    expect_all_but(&g, damaged, 5, FAR_KEYS_ONLY);
    for (uint32_t n = 0; n < KEYS; n++) {
        bool bad = n == 0 || n == 7 || n == 8 || n == 123 || n == KEYS - 1;
        assert_int_equal(get_n(&g, n, 0), bad ? FAR_CORRUPT : FAR_OK);
    }
    store_rig_close(&g.r);
}

/* Lookups go past blocks that are not whole (BLOCKS-1). */
static void expect_not_hidden(struct rig *g, uint32_t keys, uint32_t step)
{
    char key[KEY_BYTES];
    for (uint32_t damaged = 0; damaged < keys; damaged += step) {
        gaddr at = block_of(g, damaged, 0);
        flip_at(g, at, 50, 1);
        for (uint32_t n = 0; n < keys; n++) {
            assert_int_equal(get_n(g, n, 0), n == damaged ? FAR_CORRUPT : FAR_OK);
            int rc = far_insert(g->r.session, g->r.table, key_of(n, key).data, KEY_BYTES, "", 0);
            assert_int_equal(rc, n == damaged ? FAR_CORRUPT : FAR_EXISTS);
        }
        flip_at(g, at, 50, 1);
    }
}

/* All keys have the same fingerprint, so a lookup comes to many blocks. Then all have the same
 * hash: RCuckoo compares all of it. */
static void a_damaged_block_hides_no_other_key(void **state)
{
    static struct rig g;
    struct knobs knobs = pool_knobs_default;
    uint32_t keys = 0;
    (void)state;
    if (strcmp(index_tested, "sephash") == 0)
        return; /* it may hide older ones (SEPHASH-H9) */
    knobs.fingerprint_mask = 0;
    start_on(&g, &knobs, 0);
    expect_not_hidden(&g, KEYS, 20);
    store_rig_close(&g.r);
    knobs.hash_mask = 0;
    open_on(&g, &knobs);
    while (keys < 12 && put_n(&g, keys, 100, 0) == FAR_OK)
        keys++;
    assert_true(keys > 5);
    expect_not_hidden(&g, keys, 1);
    store_rig_close(&g.r);
}

/* Bits of the head and the key: nothing is known of the entry. */
static void every_byte_of_a_head_may_be_damaged(void **state)
{
    static struct rig g;
    static const uint32_t damaged = 7;
    (void)state;
    start(&g);
    gaddr at = block_of(&g, damaged, 0);
    for (unsigned byte = 0; byte < sizeof(struct block_head) + KEY_BYTES; byte++) {
        flip_at(&g, at, byte, 0x80);
        struct seen seen;
        collect(&g, FAR_OP_ITERATE, 0, BUF_BYTES, &seen);
        assert_int_equal(seen.damaged, 1);
        assert_int_equal(seen.times[damaged], 0);
        flip_at(&g, at, byte, 0x80);
    }
    expect_all_but(&g, NULL, 0, 0);
    store_rig_close(&g.r);
}

/* The key of a long block can be judged without its value (BLOCK-B1). */
static void a_damaged_long_value_is_left_out(void **state)
{
    static struct rig g;
    static const uint32_t damaged[] = {40};
    (void)state;
    start_with(&g, 4);
    gaddr at = block_of(&g, 40, 0);
    flip_at(&g, at, LONG / 2, 1);
    expect_all_but(&g, damaged, 1, 0);
    expect_all_but(&g, NULL, 0, FAR_KEYS_ONLY);
    store_rig_close(&g.r);
}

/* A value that was overwritten does not come back because the newer one is damaged, nor if that one
 * was deleted. */
static void no_old_value_comes_instead(void **state)
{
    static struct rig g;
    struct seen seen;
    char key[KEY_BYTES];
    (void)state;
    start(&g);
    assert_int_equal(put_n(&g, 7, 100, 1), FAR_OK);
    assert_int_equal(put_n(&g, 9, 100, 1), FAR_OK);
    flip_at(&g, block_of(&g, 7, 1), 50, 1);
    gaddr deleted = block_of(&g, 9, 1);
    key_of(9, key);
    assert_int_equal(far_delete(g.r.session, g.r.table, key, KEY_BYTES), FAR_OK);
    if (block_of(&g, 9, 1) == deleted) /* SepHash: it still leads there */
        flip_at(&g, deleted, 50, 1);
    collect(&g, FAR_OP_ITERATE, 0, BUF_BYTES, &seen);
    assert_int_equal(seen.times[7], 0);
    assert_int_equal(seen.times[9], 0);
    assert_true(seen.damaged >= 1 && seen.damaged <= 3);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(seen.times[n], n != 7 && n != 9);
    store_rig_close(&g.r);
}

/* A table with damaged blocks grows, and they stay what they are. */
static void a_table_grows_past_damaged_blocks(void **state)
{
    static struct rig g;
    (void)state;
    start(&g);
    flip(&g, 7, 1);
    flip(&g, 123, 1);
    for (uint32_t n = KEYS; n < 4 * KEYS; n++)
        assert_int_equal(put_n(&g, n, 100, 0), FAR_OK);
    for (uint32_t n = 0; n < 4 * KEYS; n++)
        assert_int_equal(get_n(&g, n, 0), n == 7 || n == 123 ? FAR_CORRUPT : FAR_OK);
    store_rig_close(&g.r);
}

/* ---- repairing ------------------------------------------------------------------------------- */

static void hear(void *arg, const char *line)
{
    struct rig *g = arg;
    size_t len = strlen(g->heard);
    snprintf(g->heard + len, sizeof g->heard - len, "%s\n", line);
}

/* A check finds that many damaged entries, and a repair leaves none. */
static struct far_pool_check repair(struct rig *g, unsigned damaged)
{
    struct far_pool_check check;
    g->heard[0] = '\0';
    assert_int_equal(far_pool_check(g->r.session, false, NULL, NULL, &check), FAR_CORRUPT);
    assert_int_equal(check.violations, damaged);
    if (far_pool_check(g->r.session, true, hear, g, &check) != FAR_OK)
        fail_msg("%s", g->heard);
    assert_int_equal(check.salvaged + check.lost, damaged);
    struct far_pool_check after;
    assert_int_equal(far_pool_check(g->r.session, false, NULL, NULL, &after), FAR_OK);
    return check;
}

/* Each bit of a block: its value and all else is as before. */
static void a_repair_corrects_one_bit(void **state)
{
    static struct rig g;
    struct far_pool_check check;
    const unsigned step = SLOWER > 1 ? 35 : 5;
    (void)state;
    start(&g);
    gaddr at = block_of(&g, 7, 0);
    for (unsigned byte = 0; byte < sizeof(struct block_head) + KEY_BYTES + 100; byte += step) {
        flip_at(&g, at, byte, 1u << byte % 8);
        if (byte == 0)
            flip(&g, 123, 4);
        g.heard[0] = '\0';
        if (far_pool_check(g.r.session, true, hear, &g, &check) != FAR_OK)
            fail_msg("%s", g.heard);
        assert_int_equal(check.salvaged, byte == 0 ? 2 : 1);
        assert_int_equal(check.lost, 0);
        assert_int_equal(get_n(&g, 7, 0), FAR_OK);
    }
    expect_all_but(&g, NULL, 0, 0);
    store_rig_close(&g.r);
}

/* Nothing proves what is in a block with two wrong bits, or which bit of a long one is wrong: the
 * entries are removed, all others stay, and the keys can be put again. */
static void a_repair_removes_what_nothing_proves(void **state)
{
    static struct rig g;
    (void)state;
    start_with(&g, 4);
    flip(&g, 7, 3);
    flip(&g, 123, 0x81);
    flip_at(&g, block_of(&g, 40, 0), LONG / 2, 1);
    flip(&g, 150, 8);
    (void)repair(&g, 4);
    assert_non_null(strstr(g.heard, "1 entry salvaged"));
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(get_n(&g, n, 0), n == 7 || n == 123 || n == 40 ? FAR_NOT_FOUND : FAR_OK);
    assert_int_equal(put_n(&g, 7, 100, 0), FAR_OK);
    assert_int_equal(put_n(&g, 123, 100, 0), FAR_OK);
    assert_int_equal(put_n(&g, 40, LONG, 0), FAR_OK);
    expect_all_but(&g, NULL, 0, 0);
    store_rig_close(&g.r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_but_damaged_blocks_is_returned),
        cmocka_unit_test(a_damaged_block_hides_no_other_key),
        cmocka_unit_test(every_byte_of_a_head_may_be_damaged),
        cmocka_unit_test(a_damaged_long_value_is_left_out),
        cmocka_unit_test(no_old_value_comes_instead),
        cmocka_unit_test(a_table_grows_past_damaged_blocks),
        cmocka_unit_test(a_repair_corrects_one_bit),
        cmocka_unit_test(a_repair_removes_what_nothing_proves),
    };
    (void)indexes_arguments(argc, argv);
    return INDEXES_RUN(tests);
}
