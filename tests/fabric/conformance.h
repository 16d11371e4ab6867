/*
 * The conformance suite: what every fabric must do, run through batches as protocol code does.
 *
 * A program names an opener and calls conformance(). The fabric needs CONFORMANCE_NODE_BYTES of
 * memory on each node, any number of nodes, and endpoints for three threads. Nothing is assumed
 * of the memory's contents, unless the fabric says it is fresh. litmus.h has the cases with
 * several threads.
 */
#ifndef TESTS_FABRIC_CONFORMANCE_H
#define TESTS_FABRIC_CONFORMANCE_H

#include "fabric/litmus.h"
#include "fabric/rig.h"
#include "fabric/superblock_layout.h"

#include <stdio.h>

#define CONFORMANCE_NODE_BYTES (8u << 20)

typedef int conformance_opener(struct fab **fab);
static conformance_opener *conformance_open;
static const char *conformance_name;

static int conformance_setup(void **state)
{
    struct fab *fab;
    int rc = conformance_open(&fab);

    if (rc) {
        print_error("open: %s: %s\n", far_errname(rc), far_error_detail());
        return -1;
    }
    *state = rig_on(fab);
    return 0;
}

static int conformance_teardown(void **state)
{
    struct rig *r = *state;
    struct fab *fab = r->fab;

    rig_free(r);
    fab_close(fab);
    return 0;
}

static void fill(uint64_t *words, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = (seed + i) * 0x9e3779b97f4a7c15ull;
}

/* ---- geometry and buffers -------------------------------------------------------------------- */

static void geometry_is_sound(void **state)
{
    struct rig *r = *state;

    assert_in_range(r->fab->nodes, 1, FAB_NODES_MAX);
    assert_int_equal(r->fab->order & ~ORDER_ALL, 0);
    for (unsigned n = 0; n < r->fab->nodes; n++) {
        assert_true(r->fab->size[n] >= CONFORMANCE_NODE_BYTES);
        assert_int_equal(r->fab->size[n] % 64, 0);
    }
}

static void fresh_memory_is_zero(void **state)
{
    struct rig *r = *state;

    if (!r->fab->fresh)
        skip();
    for (unsigned n = 0; n < r->fab->nodes; n++) {
        fill(r->buf, 1 << 20, 1);
        batch_read(&r->b, gaddr_make(n, 0), 0, r->buf, 1 << 20);
        rig_flush(r);
        r->buf[NODE_LIFE_OFF / 8] = 0; /* which memory nodes write */
        for (size_t i = 0; i < (1 << 20) / 8; i++)
            assert_true(r->buf[i] == 0);
        assert_true(rig_get(r, gaddr_make(n, 0), r->fab->size[n] - 8) == 0);
    }
}

static void buffers_are_aligned_and_zeroed(void **state)
{
    static const size_t sizes[] = {8, 64, 72, 4096, 1 << 20};
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int again = 0; again < 2; again++) { /* the second time, memory may be used already */
            uint64_t *buf = r->fab->ops->buf_alloc(r->ep, sizes[i]);

            assert_non_null(buf);
            assert_int_equal((uintptr_t)buf % 64, 0);
            for (size_t w = 0; w < sizes[i] / 8; w++)
                assert_true(buf[w] == 0);
            memset(buf, 0xff, sizes[i]);
            r->fab->ops->buf_free(r->ep, buf, sizes[i]);
        }
    }
}

static void time_does_not_go_back(void **state)
{
    struct rig *r = *state;
    uint64_t before = batch_now(&r->b);

    for (int i = 0; i < 100; i++) {
        uint64_t now = batch_now(&r->b);

        assert_true(now >= before);
        before = now;
        batch_pause(&r->b, 1000);
    }
    batch_pause(&r->b, 100000);
    assert_true(batch_now(&r->b) >= before);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static void reads_return_what_was_written(void **state)
{
    static const uint32_t sizes[] = {8,   16,   56,   64,   72,    120,       128,    136,
                                     512, 1000, 4096, 8184, 65536, 65536 + 8, 1 << 20};
    struct rig *r = *state;
    uint64_t *out = r->buf, *in = r->buf + RIG_BUF_BYTES / 16;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t len = sizes[i];
        uint64_t shift = 8 * (i % 8); /* lines are met at every word of theirs */
        gaddr at = gaddr_make((unsigned)i % r->fab->nodes, 1 << 20);

        fill(out, len, i + 1);
        rig_set(r, at, shift, 11);
        rig_set(r, at, shift + 8 + len, 22);
        batch_write(&r->b, MARK_EARLY, at, shift + 8, out, len);
        rig_flush(r);
        fill(in, len + 16, 99);
        batch_read(&r->b, at, shift, in, len + 16);
        rig_flush(r);
        assert_int_equal(in[0], 11);
        assert_memory_equal(in + 1, out, len);
        assert_int_equal(in[len / 8 + 1], 22);
    }
}

static void a_read_stays_within_its_buffer(void **state)
{
    struct rig *r = *state;
    gaddr at = gaddr_make(0, 4096);

    fill(r->buf, 256, 3);
    batch_write(&r->b, MARK_EARLY, at, 0, r->buf, 256);
    rig_flush(r);
    for (uint32_t len = 8; len <= 192; len += 8) {
        memset(r->buf + 100, 0xee, 256);
        batch_read(&r->b, at, 0, r->buf + 101, len);
        rig_flush(r);
        assert_true(r->buf[100] == 0xeeeeeeeeeeeeeeeeull);
        assert_memory_equal(r->buf + 101, r->buf, len);
        assert_true(r->buf[101 + len / 8] == 0xeeeeeeeeeeeeeeeeull);
    }
}

static void the_last_bytes_can_be_used(void **state)
{
    struct rig *r = *state;

    for (unsigned n = 0; n < r->fab->nodes; n++) {
        gaddr last = gaddr_make(n, r->fab->size[n] - 64);

        fill(r->buf, 64, n);
        batch_write(&r->b, MARK_EARLY, last, 0, r->buf, 64);
        rig_ordered(r, FAB_W, FAB_A);
        batch_faa(&r->b, MARK_PUBLISH, last, 56, 1, r->buf + 8);
        rig_flush(r);
        assert_true(r->buf[8] == r->buf[7]);
        assert_true(rig_get(r, last, 56) == r->buf[7] + 1);
    }
}

static void cas_swaps_only_what_it_expects(void **state)
{
    struct rig *r = *state;
    gaddr at = gaddr_make(r->fab->nodes - 1, 8192);
    uint64_t *old = r->buf;

    rig_set(r, at, 0, 1);
    rig_set(r, at, 8, 5);
    rig_set(r, at, 16, 2);

    batch_cas(&r->b, MARK_PUBLISH, at, 8, 5, UINT64_MAX, old);
    rig_flush(r);
    assert_true(*old == 5);
    assert_true(rig_get(r, at, 8) == UINT64_MAX);

    batch_cas(&r->b, MARK_PUBLISH, at, 8, 5, 7, old);
    rig_flush(r);
    assert_true(*old == UINT64_MAX);
    assert_true(rig_get(r, at, 8) == UINT64_MAX);

    batch_cas(&r->b, MARK_PUBLISH, at, 8, UINT64_MAX, UINT64_MAX, old); /* to itself: a success */
    rig_flush(r);
    assert_true(*old == UINT64_MAX);

    batch_cas(&r->b, MARK_PUBLISH, at, 8, UINT64_MAX, 1ull << 63, old);
    rig_flush(r);
    assert_true(rig_get(r, at, 8) == 1ull << 63);
    assert_true(rig_get(r, at, 0) == 1); /* neighbours */
    assert_true(rig_get(r, at, 16) == 2);
}

static void masked_cas_minds_its_masks(void **state)
{
    static const struct {
        uint64_t word, compare, compare_mask, swap, swap_mask, after;
    } cases[] = {
        /* the whole word, as CAS */
        {5, 5, UINT64_MAX, 9, UINT64_MAX, 9},
        {6, 5, UINT64_MAX, 9, UINT64_MAX, 6},
        /* compare the low byte, swap the low byte; the rest differs from `compare` and stays */
        {0xaabb00000000cc01, 0x01, 0xff, 0x02, 0xff, 0xaabb00000000cc02},
        {0xaabb00000000cc03, 0x01, 0xff, 0x02, 0xff, 0xaabb00000000cc03},
        /* compare here, swap there */
        {0x00000000000000f0, 0xf0, 0xf0, 0x1234000000000000, 0xffff000000000000,
         0x12340000000000f0},
        {0x00000000000000e0, 0xf0, 0xf0, 0x1234000000000000, 0xffff000000000000, 0xe0},
        /* bits of compare and swap outside the masks do not count */
        {0x10, 0xffffffffffffff10, 0xff, 0xffffffffffffffff, 0x01, 0x11},
        /* overlapping masks; one bit, the highest */
        {0x0ff0, 0x0ff0, 0x0ff0, 0x5a5a, 0x00ff, 0x0f5a},
        {0, 0, 1ull << 63, UINT64_MAX, 1ull << 63, 1ull << 63},
        {1ull << 63, 0, 1ull << 63, UINT64_MAX, 1ull << 63, 1ull << 63},
        /* nothing to compare: always; nothing to swap: never a change */
        {0xdead, 0xbeef, 0, 0xff, 0xf0, 0xdefd},
        {0xdead, 0xdead, UINT64_MAX, 0xff, 0, 0xdead},
        {0xdead, 0xbeef, UINT64_MAX, 0xff, 0, 0xdead},
    };
    struct rig *r = *state;
    gaddr at = gaddr_make(0, 8192);

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_set(r, at, 0, 1);
        rig_set(r, at, 8, cases[i].word);
        rig_set(r, at, 16, 2);
        *r->buf = 77;
        batch_mcas(&r->b, MARK_PUBLISH, at, 8, cases[i].compare, cases[i].compare_mask,
                   cases[i].swap, cases[i].swap_mask, r->buf);
        rig_flush(r);
        assert_true(*r->buf == cases[i].word);
        assert_true(rig_get(r, at, 8) == cases[i].after);
        assert_true(rig_get(r, at, 0) == 1);
        assert_true(rig_get(r, at, 16) == 2);
    }
}

static void faa_adds_and_wraps_around(void **state)
{
    static const uint64_t adds[] = {1, 0, 41, UINT64_MAX, 1ull << 63, 1ull << 63, UINT64_MAX - 99};
    struct rig *r = *state;
    gaddr at = gaddr_make(0, 8192);
    uint64_t value = 58;

    rig_set(r, at, 0, 1);
    rig_set(r, at, 8, value);
    rig_set(r, at, 16, 2);
    for (size_t i = 0; i < sizeof adds / sizeof adds[0]; i++) {
        batch_faa(&r->b, MARK_PUBLISH, at, 8, adds[i], r->buf);
        rig_flush(r);
        assert_true(*r->buf == value);
        value += adds[i];
        assert_true(rig_get(r, at, 8) == value);
    }
    assert_true(value == UINT64_MAX);
    batch_faa(&r->b, MARK_PUBLISH, at, 8, 1, r->buf);
    rig_flush(r);
    assert_true(rig_get(r, at, 8) == 0); /* and nothing is carried into the neighbours */
    assert_true(rig_get(r, at, 0) == 1);
    assert_true(rig_get(r, at, 16) == 2);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void verbs_of_a_batch_take_effect_in_order(void **state)
{
    struct rig *r = *state;
    gaddr at = gaddr_make(0, 8192);
    uint64_t *seen = r->buf + 8;

    r->buf[0] = 10;
    r->buf[1] = 30;
    batch_write(&r->b, MARK_EARLY, at, 0, &r->buf[0], 8);
    rig_ordered(r, FAB_W, FAB_R);
    batch_read(&r->b, at, 0, &seen[0], 8);
    batch_fence(&r->b);
    batch_cas(&r->b, MARK_PUBLISH, at, 0, 10, 20, &seen[1]);
    batch_fence(&r->b);
    batch_faa(&r->b, MARK_PUBLISH, at, 0, 5, &seen[2]);
    batch_fence(&r->b);
    batch_read(&r->b, at, 0, &seen[3], 8);
    batch_fence(&r->b);
    batch_write(&r->b, MARK_EARLY, at, 0, &r->buf[1], 8);
    rig_ordered(r, FAB_W, FAB_A);
    batch_mcas(&r->b, MARK_PUBLISH, at, 0, 30, UINT64_MAX, 0x100, 0xff00, &seen[4]);
    batch_fence(&r->b);
    batch_read(&r->b, at, 0, &seen[5], 8);
    rig_flush(r);
    assert_int_equal(seen[0], 10);
    assert_int_equal(seen[1], 10);
    assert_int_equal(seen[2], 20);
    assert_int_equal(seen[3], 25);
    assert_int_equal(seen[4], 30);
    assert_int_equal(seen[5], 0x100 + 30);
}

static void a_batch_reaches_every_node(void **state)
{
    struct rig *r = *state;
    unsigned nodes = r->fab->nodes;
    uint64_t *in = r->buf + 1024;

    for (unsigned n = 0; n < nodes; n++) {
        r->buf[n] = 1000 + n;
        batch_write(&r->b, MARK_EARLY, gaddr_make(n, 16384), 8, &r->buf[n], 8);
    }
    rig_flush(r);
    for (unsigned n = 0; n < nodes; n++)
        batch_read(&r->b, gaddr_make(n, 16384), 8, &in[n], 8);
    for (unsigned n = 0; n < nodes && batch_room(&r->b); n++)
        batch_faa(&r->b, MARK_PUBLISH, gaddr_make(n, 16384), 16, 0, &in[64 + n]);
    rig_flush(r);
    for (unsigned n = 0; n < nodes; n++)
        assert_int_equal(in[n], 1000 + n);
    assert_int_equal(r->cost.rtts, 2); /* all nodes at once */
    assert_int_equal(r->cost.verbs, 3 * nodes);
}

static void a_fence_holds_between_nodes(void **state)
{
    struct rig *r = *state;
    unsigned last = r->fab->nodes - 1;

    rig_set(r, gaddr_make(0, 16384), 0, 0);
    rig_set(r, gaddr_make(last, 16384), 64, 0);
    r->cost = (struct cost){0};
    batch_faa(&r->b, MARK_PUBLISH, gaddr_make(0, 16384), 0, 3, &r->buf[0]);
    batch_fence(&r->b);
    batch_faa(&r->b, MARK_PUBLISH, gaddr_make(last, 16384), 64, 4, &r->buf[1]);
    rig_flush(r);
    if (last > 0)
        assert_int_equal(r->cost.rtts, 2);
    else
        assert_int_equal(r->cost.rtts, r->fab->order & ORDER(FAB_A, FAB_A) ? 1 : 2);
    assert_int_equal(rig_get(r, gaddr_make(0, 16384), 0), 3);
    assert_int_equal(rig_get(r, gaddr_make(last, 16384), 64), 4);
}

static void a_full_batch_goes_out_and_one_more_is_refused(void **state)
{
    struct rig *r = *state;
    gaddr at = gaddr_make(0, 32768);

    rig_set(r, at, 0, 0);
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < BATCH_MAX; i++)
            batch_faa(&r->b, MARK_PUBLISH, at, 0, 1, &r->buf[i]);
        assert_int_equal(batch_room(&r->b), 0);
        rig_flush(r);
        assert_int_equal(batch_room(&r->b), BATCH_MAX);
        assert_int_equal(rig_get(r, at, 0), (round + 1) * BATCH_MAX);
    }
    for (unsigned i = 0; i < BATCH_MAX + 3; i++)
        batch_faa(&r->b, MARK_PUBLISH, at, 0, 1, &r->buf[i]);
    assert_int_equal(batch_flush(&r->b), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "128"));
    assert_int_equal(rig_get(r, at, 0), 2 * BATCH_MAX);
}

static void an_empty_batch_costs_nothing(void **state)
{
    struct rig *r = *state;

    assert_int_equal(batch_flush(&r->b), FAR_OK);
    batch_fence(&r->b);
    assert_int_equal(batch_flush(&r->b), FAR_OK);
    assert_int_equal(r->cost.rtts, 0);
    assert_int_equal(r->cost.verbs, 0);
}

static void costs_are_counted(void **state)
{
    struct rig *r = *state;
    gaddr at = gaddr_make(0, 8192);

    batch_read(&r->b, at, 0, r->buf, 64);
    batch_write(&r->b, MARK_EARLY, at, 1024, r->buf, 128);
    batch_cas(&r->b, MARK_PUBLISH, at, 2048, 0, 0, r->buf + 100);
    batch_faa(&r->b, MARK_PUBLISH, at, 2056, 0, r->buf + 101);
    rig_flush(r);
    assert_int_equal(r->cost.rtts, 1);
    assert_int_equal(r->cost.verbs, 4);
    assert_int_equal(r->cost.bytes_read, 64 + 8 + 8);
    assert_int_equal(r->cost.bytes_written, 128 + 8 + 8);
    batch_read(&r->b, at, 0, r->buf, 8);
    rig_flush(r);
    assert_int_equal(r->cost.rtts, 2);
    assert_int_equal(r->cost.bytes_read, 64 + 8 + 8 + 8);
}

/* ---- bad verbs ------------------------------------------------------------------------------- */

struct bad_verb {
    const char *what;
    int status;
    uint8_t kind;
    unsigned node;             /* counted from the first that is not there, if past_nodes */
    bool past_nodes, past_end; /* past_end: off counts from the node's end */
    uint64_t off;
    uint32_t len;
    uintptr_t buf_shift; /* misaligns the buffer; UINTPTR_MAX: no buffer */
};

static const struct bad_verb bad_verbs[] = {
    {"READ past the end by a word", FAR_BOUNDS, FAB_READ, .past_end = true, .off = 0, .len = 8},
    {"READ that ends past the end", FAR_BOUNDS, FAB_READ, .past_end = true, .off = -8ull,
     .len = 16},
    {"WRITE past the end by a word", FAR_BOUNDS, FAB_WRITE, .past_end = true, .off = 0, .len = 8},
    {"WRITE that ends past the end", FAR_BOUNDS, FAB_WRITE, .past_end = true, .off = -56ull,
     .len = 64},
    {"CAS past the end", FAR_BOUNDS, FAB_CAS, .past_end = true, .off = 0, .len = 8},
    {"MCAS past the end", FAR_BOUNDS, FAB_MCAS, .past_end = true, .off = 0, .len = 8},
    {"FAA past the end", FAR_BOUNDS, FAB_FAA, .past_end = true, .off = 0, .len = 8},
    {"READ at the last offset", FAR_BOUNDS, FAB_READ, .off = UINT64_MAX - 7, .len = 8},
    {"READ that wraps around", FAR_BOUNDS, FAB_READ, .off = UINT64_MAX - 63, .len = 128},
    {"WRITE that wraps around", FAR_BOUNDS, FAB_WRITE, .off = UINT64_MAX - 7, .len = 16},
    {"FAA at the last offset", FAR_BOUNDS, FAB_FAA, .off = UINT64_MAX - 7, .len = 8},
    {"READ longer than any node", FAR_BOUNDS, FAB_READ, .past_end = true, .off = -8ull,
     .len = UINT32_MAX - 7},
    {"READ on no node", FAR_BOUNDS, FAB_READ, .past_nodes = true, .len = 8},
    {"WRITE on no node", FAR_BOUNDS, FAB_WRITE, .past_nodes = true, .len = 8},
    {"CAS on the last node number", FAR_BOUNDS, FAB_CAS, .node = 255, .len = 8},
    {"READ misaligned", FAR_INVALID, FAB_READ, .off = 4, .len = 8},
    {"WRITE misaligned", FAR_INVALID, FAB_WRITE, .off = 1, .len = 8},
    {"CAS misaligned", FAR_INVALID, FAB_CAS, .off = 4, .len = 8},
    {"MCAS misaligned", FAR_INVALID, FAB_MCAS, .off = 2, .len = 8},
    {"FAA misaligned", FAR_INVALID, FAB_FAA, .off = 7, .len = 8},
    {"READ of nothing", FAR_INVALID, FAB_READ, .len = 0},
    {"WRITE of nothing", FAR_INVALID, FAB_WRITE, .len = 0},
    {"READ of half a word", FAR_INVALID, FAB_READ, .len = 12},
    {"WRITE of a byte", FAR_INVALID, FAB_WRITE, .len = 1},
    {"READ into a misaligned buffer", FAR_INVALID, FAB_READ, .len = 8, .buf_shift = 4},
    {"WRITE from a misaligned buffer", FAR_INVALID, FAB_WRITE, .len = 8, .buf_shift = 1},
    {"CAS without a place for the old word", FAR_INVALID, FAB_CAS, .len = 8,
     .buf_shift = UINTPTR_MAX},
};

static void add_bad(struct rig *r, const struct bad_verb *bad)
{
    unsigned node = bad->past_nodes ? r->fab->nodes : bad->node;
    uint64_t delta = bad->past_end ? r->fab->size[0] + bad->off : bad->off;
    void *buf = bad->buf_shift == UINTPTR_MAX ? NULL : (char *)r->buf + bad->buf_shift;
    gaddr at = gaddr_make(node, 0);

    switch (bad->kind) {
    case FAB_READ:
        batch_read(&r->b, at, delta, buf, bad->len);
        break;
    case FAB_WRITE:
        batch_write(&r->b, MARK_EARLY, at, delta, buf, bad->len);
        break;
    case FAB_CAS:
        batch_cas(&r->b, MARK_PUBLISH, at, delta, 0, 0, buf);
        break;
    case FAB_MCAS:
        batch_mcas(&r->b, MARK_PUBLISH, at, delta, 0, 1, 0, 1, buf);
        break;
    default:
        batch_faa(&r->b, MARK_PUBLISH, at, delta, 0, buf);
    }
}

/* The bad verb stands alone, first, last, behind a fence and behind verbs on another node, and
 * in none of these places does anything of its batch happen. */
static void a_bad_verb_spoils_its_whole_batch(void **state)
{
    struct rig *r = *state;
    gaddr here = gaddr_make(0, 65536), there = gaddr_make(r->fab->nodes - 1, 65536);

    rig_set(r, here, 0, 100);
    rig_set(r, there, 8, 200);
    for (size_t i = 0; i < sizeof bad_verbs / sizeof bad_verbs[0]; i++) {
        for (int place = 0; place < 5; place++) {
            uint64_t *old = r->buf + 64;
            struct cost before = r->cost;
            int rc;

            if (place >= 2) {
                batch_faa(&r->b, MARK_PUBLISH, here, 0, 1, &old[0]);
                batch_faa(&r->b, MARK_PUBLISH, there, 8, 1, &old[1]);
            }
            if (place >= 3)
                batch_fence(&r->b);
            add_bad(r, &bad_verbs[i]);
            if (place == 4)
                batch_fence(&r->b);
            if (place == 1 || place == 4) {
                batch_faa(&r->b, MARK_PUBLISH, here, 0, 1, &old[2]);
                batch_faa(&r->b, MARK_PUBLISH, there, 8, 1, &old[3]);
            }
            rc = batch_flush(&r->b);
            if (rc != bad_verbs[i].status)
                print_error("%s, place %d: %s\n", bad_verbs[i].what, place, far_errname(rc));
            assert_int_equal(rc, bad_verbs[i].status);
            assert_true(far_error_detail()[0]);
            assert_memory_equal(&r->cost, &before, sizeof before);
        }
    }
    assert_int_equal(rig_get(r, here, 0), 100);
    assert_int_equal(rig_get(r, there, 8), 200);
}

/* Bytes from the address plus delta, past 2^64, would be a good offset again. */
static void an_address_that_wraps_is_out_of_bounds(void **state)
{
    struct rig *r = *state;

    batch_read(&r->b, gaddr_make(0, 4096), 0 - 4096ull, r->buf, 8);
    assert_int_equal(batch_flush(&r->b), FAR_BOUNDS);
    batch_write(&r->b, MARK_EARLY, gaddr_make(0, 4096), 0 - 64ull, r->buf, 64);
    assert_int_equal(batch_flush(&r->b), FAR_BOUNDS);
}

static void the_first_mistake_is_the_one_reported(void **state)
{
    struct rig *r = *state;

    batch_read(&r->b, gaddr_make(0, 0), 4, r->buf, 8);
    batch_read(&r->b, gaddr_make(0, 0), r->fab->size[0], r->buf, 8);
    assert_int_equal(batch_flush(&r->b), FAR_INVALID);
    batch_read(&r->b, gaddr_make(0, 0), 0, r->buf, 8);
    assert_int_equal(batch_flush(&r->b), FAR_OK);
}

/* ---- requests, as batches post them ---------------------------------------------------------- */

#define REQUESTS 16

/* Many under way at once on one endpoint: each completes, once, whatever was polled for. */
static void requests_complete_each(void **state)
{
    struct rig *r = *state;
    struct fab_verb verb[REQUESTS][2];
    struct fab_req req[REQUESTS];
    gaddr at = gaddr_make(0, 131072);
    unsigned done = 0;

    rig_set(r, at, 0, 0);
    for (unsigned i = 0; i < REQUESTS; i++) {
        r->buf[i] = i + 1;
        verb[i][0] = (struct fab_verb){
            .kind = FAB_WRITE, .len = 8, .off = 131072 + 64 * (i + 1), .buf = &r->buf[i]};
        verb[i][1] = (struct fab_verb){
            .kind = FAB_FAA, .len = 8, .off = 131072, .swap = 1, .buf = &r->buf[REQUESTS + i]};
        req[i] = (struct fab_req){.verbs = verb[i], .count = 2, .owner = &req[i]};
        assert_int_equal(r->fab->ops->post(r->ep, &req[i]), FAR_OK);
        if (r->fab->caps & FAB_CAP_IMMEDIATE)
            assert_true(req[i].done);
    }
    for (unsigned polls = 0; done < REQUESTS && polls < 1000 * REQUESTS; polls++) {
        r->fab->ops->poll(r->ep, true);
        done = 0;
        for (unsigned i = 0; i < REQUESTS; i++)
            done += req[i].done;
    }
    assert_int_equal(done, REQUESTS);
    for (unsigned i = 0; i < REQUESTS; i++) {
        assert_int_equal(req[i].status, FAR_OK);
        assert_ptr_equal(req[i].owner, &req[i]);
        assert_int_equal(rig_get(r, at, 64 * (i + 1)), i + 1);
    }
    assert_int_equal(rig_get(r, at, 0), REQUESTS);
    r->fab->ops->poll(r->ep, true); /* with nothing under way it returns */
    r->fab->ops->poll(r->ep, false);
}

static void endpoints_share_the_memory(void **state)
{
    struct rig *r = *state, *other = rig_on(r->fab);

    for (uint64_t i = 0; i < 100; i++) {
        gaddr at = gaddr_make((unsigned)i % r->fab->nodes, 4096 * i);

        rig_set(r, at, 0, i);
        assert_int_equal(rig_get(other, at, 0), i);
        batch_cas(&other->b, MARK_PUBLISH, at, 0, i, i + 1, other->buf);
        rig_flush(other);
        assert_int_equal(rig_get(r, at, 0), i + 1);
    }
    rig_free(other);
}

/* ---- views ----------------------------------------------------------------------------------- */

#define VIEW_AT 262144u

/* The newest view of all nodes. Their memory may have outlived other cases. */
static uint32_t newest_view(struct rig *r)
{
    uint64_t newest = 0;

    for (unsigned n = 0; n < r->fab->nodes; n++) {
        uint64_t view = rig_get(r, gaddr_make(n, 0), NODE_VIEW_OFF);
        newest = view > newest ? view : newest;
    }
    return (uint32_t)newest;
}

static void fence_all(struct rig *r, uint32_t view)
{
    for (unsigned n = 0; n < r->fab->nodes; n++)
        assert_int_equal(rig_fence_view(r, n, view), FAR_OK);
}

/* Writes, adds and swaps on a node. */
static int try_change(struct rig *r, unsigned node, uint64_t value)
{
    gaddr at = gaddr_make(node, VIEW_AT);

    r->buf[0] = value;
    batch_write(&r->b, MARK_EARLY, at, 0, r->buf, 8);
    batch_read(&r->b, at, 0, &r->buf[1], 8);
    batch_faa(&r->b, MARK_PUBLISH, at, 8, value, &r->buf[2]);
    batch_mcas(&r->b, MARK_PUBLISH, at, 16, 0, 0, value, UINT64_MAX, &r->buf[3]);
    return batch_flush(&r->b);
}

/* The node refuses it. If it shuts connections of older views, the first request may end with that.
 * `other` finds that nothing of it has happened. */
static void expect_refused(struct rig *r, struct rig *other, unsigned node, uint32_t node_view)
{
    gaddr at = gaddr_make(node, VIEW_AT);
    uint64_t before[3], view = r->ep->view;
    int rc = FAR_UNKNOWN;
    char text[64];

    for (unsigned i = 0; i < 3; i++)
        before[i] = rig_get(other, at, 8 * i);
    for (unsigned i = 0; i < 10 && (rc == FAR_UNKNOWN || rc == FAR_UNREACHABLE); i++)
        rc = try_change(r, node, 1000000);
    assert_int_equal(rc, FAR_FENCED);
    assert_int_equal(r->ep->view_refused, node_view);
    snprintf(text, sizeof text, "is in view %u, and refused a request of view %u", node_view,
             (unsigned)view);
    assert_non_null(strstr(far_error_detail(), text));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(rig_get(other, at, 8 * i), before[i]);
}

static void expect_done(struct rig *r, struct rig *other, unsigned node, uint64_t value)
{
    gaddr at = gaddr_make(node, VIEW_AT);
    uint64_t before = rig_get(other, at, 8);
    int rc = try_change(r, node, value);

    if (rc == FAR_UNKNOWN || rc == FAR_UNREACHABLE) { /* the connection was of an older view */
        before = rig_get(other, at, 8);
        rc = try_change(r, node, value);
    }
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(rig_get(other, at, 0), value);
    assert_int_equal(rig_get(other, at, 8), before + value);
    assert_int_equal(rig_get(other, at, 16), value);
}

static void older_views_are_refused(void **state)
{
    struct rig *r = *state;

    if (!r->fab->ops->fence_view)
        skip();
    struct rig *other = rig_on(r->fab);
    uint32_t base = newest_view(r);
    for (unsigned n = 0; n < r->fab->nodes; n++) {
        r->ep->view = base + 1;
        expect_done(r, other, n, 1);
        assert_int_equal(rig_fence_view(other, n, base + 2), FAR_OK);
        expect_refused(r, other, n, base + 2);
        for (uint32_t newer = 2; newer < 4; newer++) {
            r->ep->view = base + newer;
            expect_done(r, other, n, newer);
        }
        assert_int_equal(rig_get(r, gaddr_make(n, 0), NODE_VIEW_OFF), base + 2);
        r->ep->view = base + 1;
        expect_refused(r, other, n, base + 2);
        r->b.outside_views = true;
        expect_done(r, other, n, 4);
        r->b.outside_views = false;
        r->ep->view = 0;
        expect_done(r, other, n, 5);
    }
    rig_free(other);
}

static void a_lower_view_changes_nothing(void **state)
{
    struct rig *r = *state;

    if (!r->fab->ops->fence_view)
        skip();
    struct rig *other = rig_on(r->fab);
    uint32_t base = newest_view(r);
    fence_all(r, base + 3);
    fence_all(other, base + 2);
    fence_all(other, 0);
    for (unsigned n = 0; n < r->fab->nodes; n++) {
        assert_int_equal(rig_get(r, gaddr_make(n, 0), NODE_VIEW_OFF), base + 3);
        r->ep->view = base + 2;
        expect_refused(r, other, n, base + 3);
        r->ep->view = base + 3;
        expect_done(r, other, n, 7);
    }
    rig_free(other);
}

/* As who goes on to the next view does it. */
static void a_client_can_have_its_own_view_refused(void **state)
{
    struct rig *r = *state;

    if (!r->fab->ops->fence_view)
        skip();
    struct rig *other = rig_on(r->fab);
    uint32_t base = newest_view(r);
    for (unsigned n = 0; n < r->fab->nodes; n++) {
        r->ep->view = base + 1;
        expect_done(r, other, n, 1);
        assert_int_equal(rig_fence_view(r, n, base + 2), FAR_OK);
        expect_refused(r, other, n, base + 2);
        r->ep->view = base + 2;
        assert_int_equal(try_change(r, n, 2), FAR_OK);
    }
    rig_free(other);
}

/* A refusal is that of a request, not of its connection, which others may share. */
static void endpoints_have_views_of_their_own(void **state)
{
    struct rig *r = *state;

    if (!r->fab->ops->fence_view)
        skip();
    struct rig *other = rig_on(r->fab), *without = rig_on(r->fab);
    uint32_t base = newest_view(r);
    for (unsigned round = 0; round < 3; round++) {
        r->ep->view = base + 1;
        other->ep->view = base + 2;
        for (unsigned n = 0; n < r->fab->nodes; n++) {
            expect_done(r, without, n, 1);
            expect_done(other, without, n, 2);
        }
        fence_all(without, base + 2);
        for (unsigned n = 0; n < r->fab->nodes; n++) {
            expect_refused(r, without, n, base + 2);
            expect_done(other, without, n, 3);
            expect_done(without, other, n, 4);
        }
        assert_int_equal(other->ep->view_refused, 0);
        base += 2;
    }
    struct rig *late = rig_on(r->fab); /* the view is the node's, not that of its connections */
    late->ep->view = base - 1;
    expect_refused(late, without, 0, base);
    rig_free(late);
    rig_free(without);
    rig_free(other);
}

static void a_node_that_refuses_has_nothing_of_the_request(void **state)
{
    struct rig *r = *state;
    unsigned last = r->fab->nodes - 1;
    int rc = FAR_UNREACHABLE;

    if (!r->fab->ops->fence_view || last == 0)
        skip();
    struct rig *other = rig_on(r->fab);
    uint32_t base = newest_view(r);
    rig_set(other, gaddr_make(last, VIEW_AT), 0, 5);
    assert_int_equal(rig_fence_view(other, last, base + 2), FAR_OK);
    r->ep->view = base + 1;
    for (unsigned i = 0; i < 10 && rc == FAR_UNREACHABLE; i++) {
        for (unsigned n = 0; n <= last; n++)
            batch_faa(&r->b, MARK_PUBLISH, gaddr_make(n, VIEW_AT), 0, 1, &r->buf[n]);
        rc = batch_flush(&r->b);
    }
    assert_true(rc == FAR_FENCED || rc == FAR_UNKNOWN);
    assert_int_equal(rig_get(other, gaddr_make(last, VIEW_AT), 0), 5);
    rig_free(other);
}

static struct rig *learner;
static int learning; /* how it ends */

static int learn(const struct batch_policy *policy)
{
    (void)policy;
    if (learning == FAR_OK)
        learner->ep->view = learner->ep->view_refused;
    return learning;
}

static void note_failure(const struct batch_policy *policy)
{
    (void)policy;
}

/* Adds 1 on each node, of which the last one knows a newer view. */
static int add_in_old_view(struct rig *r, struct rig *other, int learns)
{
    static const struct batch_policy policy = {.learn = learn, .failed = note_failure};
    unsigned last = r->fab->nodes - 1;
    uint32_t base = newest_view(other);

    for (unsigned n = 0; n <= last; n++)
        rig_set(other, gaddr_make(n, VIEW_AT), 0, 0);
    r->ep->view = base + 1;
    rig_get(r, gaddr_make(last, VIEW_AT), 0);
    assert_int_equal(rig_fence_view(other, last, base + 2), FAR_OK);
    learner = r;
    learning = learns;
    r->b.policy = &policy;
    for (unsigned n = 0; n <= last; n++)
        batch_faa(&r->b, MARK_PUBLISH, gaddr_make(n, VIEW_AT), 0, 1, &r->buf[n]);
    int rc = batch_flush(&r->b);
    r->b.policy = NULL;
    r->ep->view = 0;
    return rc;
}

static void what_an_old_view_did_not_do_is_done_in_the_new_one(void **state)
{
    struct rig *r = *state;

    if (!r->fab->ops->fence_view)
        skip();
    struct rig *other = rig_on(r->fab);
    int rc = add_in_old_view(r, other, FAR_OK);
    if (strncmp(conformance_name, "verbs:", 6) == 0) /* the connection was of the older view */
        assert_true(rc == FAR_OK || rc == FAR_UNKNOWN || rc == FAR_UNREACHABLE);
    else
        assert_int_equal(rc, FAR_OK);
    for (unsigned n = 0; n < r->fab->nodes; n++)
        assert_in_range(rig_get(other, gaddr_make(n, VIEW_AT), 0), rc == FAR_OK, 1);
    rig_free(other);
}

/* Then what was done on other nodes stays, so the outcome of the whole is not known. */
static void a_new_view_cannot_be_learned(void **state)
{
    struct rig *r = *state;
    unsigned last = r->fab->nodes - 1;

    if (!r->fab->ops->fence_view)
        skip();
    struct rig *other = rig_on(r->fab);
    int rc = add_in_old_view(r, other, FAR_UNREACHABLE);
    uint64_t first = rig_get(other, gaddr_make(0, VIEW_AT), 0);
    assert_true(rc == FAR_UNKNOWN || rc == FAR_UNREACHABLE);
    assert_true(first == 0 || rc == FAR_UNKNOWN);
    assert_int_equal(rig_get(other, gaddr_make(last, VIEW_AT), 0), 0);
    rig_free(other);
}

/* Requests of several views on one endpoint, before anybody refuses one: each is executed. */
static void a_change_of_view_loses_no_request(void **state)
{
    struct rig *r = *state;
    struct fab_verb verb[REQUESTS];
    struct fab_req req[REQUESTS];
    unsigned done = 0;

    if (!r->fab->ops->fence_view)
        skip();
    uint32_t base = newest_view(r);
    rig_set(r, gaddr_make(0, VIEW_AT), 0, 0);
    for (unsigned i = 0; i < REQUESTS; i++) {
        verb[i] = (struct fab_verb){
            .kind = FAB_FAA, .len = 8, .off = VIEW_AT, .swap = 1, .buf = &r->buf[i]};
        req[i] = (struct fab_req){.verbs = &verb[i], .count = 1, .view = i % 4 ? base + i / 4 : 0};
        assert_int_equal(r->fab->ops->post(r->ep, &req[i]), FAR_OK);
    }
    while (done < REQUESTS) {
        r->fab->ops->poll(r->ep, true);
        done = 0;
        for (unsigned i = 0; i < REQUESTS; i++)
            done += req[i].done;
    }
    for (unsigned i = 0; i < REQUESTS; i++)
        assert_int_equal(req[i].status, FAR_OK);
    assert_int_equal(rig_get(r, gaddr_make(0, VIEW_AT), 0), REQUESTS);
}

static void *add_until_refused(void *arg)
{
    struct rig *r = arg;
    int rc = FAR_OK;

    while (rc == FAR_OK) {
        for (unsigned i = 0; i < 16; i++)
            batch_faa(&r->b, MARK_PUBLISH, gaddr_make(0, VIEW_AT), 0, 1, &r->buf[i]);
        rc = batch_flush(&r->b);
    }
    return NULL;
}

/* Once fence_view() has returned, nothing of an older view happens any more. */
static void a_view_fence_ends_work_under_way(void **state)
{
    struct rig *r = *state;
    gaddr at = gaddr_make(0, VIEW_AT);
    pthread_t thread;

    if (!r->fab->ops->fence_view)
        skip();
    struct rig *other = rig_on(r->fab);
    for (unsigned round = 0; round < (RIG_SLOW > 100 ? 2 : 200 / RIG_SLOW); round++) {
        uint32_t base = newest_view(other);
        r->ep->view = base + 1;
        rig_set(other, at, 0, 0);
        assert_int_equal(pthread_create(&thread, NULL, add_until_refused, r), 0);
        while (rig_get(other, at, 0) < 100)
            batch_pause(&other->b, 1000);
        assert_int_equal(rig_fence_view(other, 0, base + 2), FAR_OK);
        uint64_t added = rig_get(other, at, 0);
        pthread_join(thread, NULL);
        assert_int_equal(rig_get(other, at, 0), added);
    }
    rig_free(other);
}

/* ---- the suite ------------------------------------------------------------------------------- */

#define CASE(f) cmocka_unit_test_setup_teardown(f, conformance_setup, conformance_teardown)

static int conformance(const char *name, conformance_opener *open)
{
    const struct CMUnitTest cases[] = {
        CASE(geometry_is_sound),
        CASE(fresh_memory_is_zero),
        CASE(buffers_are_aligned_and_zeroed),
        CASE(time_does_not_go_back),
        CASE(reads_return_what_was_written),
        CASE(a_read_stays_within_its_buffer),
        CASE(the_last_bytes_can_be_used),
        CASE(cas_swaps_only_what_it_expects),
        CASE(masked_cas_minds_its_masks),
        CASE(faa_adds_and_wraps_around),
        CASE(verbs_of_a_batch_take_effect_in_order),
        CASE(a_batch_reaches_every_node),
        CASE(a_fence_holds_between_nodes),
        CASE(a_full_batch_goes_out_and_one_more_is_refused),
        CASE(an_empty_batch_costs_nothing),
        CASE(costs_are_counted),
        CASE(a_bad_verb_spoils_its_whole_batch),
        CASE(an_address_that_wraps_is_out_of_bounds),
        CASE(the_first_mistake_is_the_one_reported),
        CASE(requests_complete_each),
        CASE(endpoints_share_the_memory),
        CASE(older_views_are_refused),
        CASE(a_lower_view_changes_nothing),
        CASE(a_client_can_have_its_own_view_refused),
        CASE(endpoints_have_views_of_their_own),
        CASE(a_node_that_refuses_has_nothing_of_the_request),
        CASE(what_an_old_view_did_not_do_is_done_in_the_new_one),
        CASE(a_new_view_cannot_be_learned),
        CASE(a_change_of_view_loses_no_request),
        CASE(a_view_fence_ends_work_under_way),
        CASE(litmus_orders_hold),
        CASE(litmus_one_word_is_coherent),
        CASE(litmus_words_are_never_torn),
        CASE(litmus_cas_counter_is_exact),
        CASE(litmus_masked_cas_fields_are_exact),
        CASE(litmus_faa_tickets_are_unique),
    };

    conformance_open = open;
    conformance_name = name;
    return cmocka_run_group_tests_name(name, cases, NULL, NULL);
}

#endif
