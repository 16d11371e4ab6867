/* Arrays larger than any size class: where their elements are, and that all of their memory
 * comes back: by epochs, at once, or by a sweep after a crash. */
#include "support/hook.h"
#include "support/pool_rig.h"
#include "support/probe.h"
#include "support/puppet.h"

#include "pool/array.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define MIB (1ull << 20)

/* Bytes of the pool that nobody has. */
static uint64_t free_bytes(struct pool_rig *r)
{
    struct far_pool_usage u;
    assert_int_equal(pool_usage(&r->op, &u), FAR_OK);
    return u.free;
}

static uint64_t unknown_bytes(struct pool_rig *r)
{
    struct far_pool_usage u;
    assert_int_equal(pool_usage(&r->op, &u), FAR_OK);
    return u.unknown;
}

/* ---- where elements are ---------------------------------------------------------------------- */

/* Every element lies within a piece of its array, and none overlaps another: each is written with
 * its number, and then all are read. */
static void expect_apart(struct pool_rig *r, const struct pool_array *a, uint64_t step)
{
    struct batch *b = &r->op.batch;
    uint64_t *word = op_buffer(&r->op, BUF_BULK, BATCH_MAX * 8), n = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < a->count;) {
            uint64_t first = i;
            for (n = 0; n < BATCH_MAX && i < a->count; n++, i += step) {
                uint64_t delta = 0;
                gaddr at = pool_array_at(a, i, &delta);
                word[n] = i * 3 + 1;
                /* Its first and its last word: of neighbours, these are adjacent. */
                if (pass == 0 && n % 2 == 0)
                    batch_write(b, MARK_EARLY, at, delta, &word[n], 8);
                else if (pass == 0)
                    batch_write(b, MARK_EARLY, at, delta + a->element - 8, &word[n], 8);
                else
                    batch_read(b, at, delta + (n % 2 ? a->element - 8 : 0), &word[n], 8);
            }
            assert_int_equal(batch_flush(b), FAR_OK);
            for (uint64_t k = 0; k < n && pass == 1; k++)
                assert_true(word[k] == (first + k * step) * 3 + 1);
        }
    }
}

/* Consecutive elements of a stripe are adjacent, and stripes go round the nodes. */
static void expect_places(const struct pool_rig *r, const struct pool_array *a,
                          const struct array_shape *s)
{
    unsigned node = 0;
    for (uint64_t i = 0; i < a->count; i++) {
        uint64_t delta = 0, before = 0;
        gaddr at = pool_array_at(a, i, &delta);
        uint64_t bytes =
            size_class_bytes(at == a->piece[a->pieces - 1] ? a->last_class : a->piece_class);
        if (a->lanes == 1) /* else the other lanes' last ones are as short */
            assert_true(delta + a->element <= bytes);
        node = gaddr_node(at);
        if (s->stripe == 0)
            assert_int_equal(node, gaddr_node(a->piece[0]));
        else
            assert_int_equal(node, (s->node + i / s->stripe) % r->pool.nodes);
        if (i % (1ull << a->stripe_shift) != 0) {
            assert_true(pool_array_at(a, i - 1, &before) == at);
            assert_true(before + a->element == delta);
        }
    }
}

static void elements_have_places_of_their_own(void **state)
{
    static const struct array_shape shapes[] = {
        {.count = 1, .element = 8},
        {.count = 1, .element = 65536},
        {.count = 7, .element = 64},
        {.count = 100000, .element = 8},
        {.count = 100000, .element = 144, .node = 2}, /* RCuckoo's rows */
        {.count = 40000, .element = 512, .node = 1},  /* SHARD's buckets */
        {.count = 5000, .element = 1000},
        {.count = 17, .element = 65536},
        {.count = 1, .element = 8, .stripe = 1},
        {.count = 100001, .element = 64, .stripe = 1, .node = 2},
        {.count = 100001, .element = 144, .stripe = 16, .node = 1},
        {.count = 12345, .element = 1000, .stripe = 1024},
        {.count = 60, .element = 65536, .stripe = 2},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pool_rig r;
        struct pool_array a, again;
        pool_rig_open(&r, "mem:?size=64m&nodes=3");
        assert_int_equal(pool_array_alloc(&r.op, &shapes[i], &a), FAR_OK);
        assert_int_equal(a.lanes, shapes[i].stripe ? 3 : 1);
        expect_places(&r, &a, &shapes[i]);
        expect_apart(&r, &a, 1);
        /* Others find the same. */
        assert_int_equal(pool_array_open(&r.op, a.ref, &again), FAR_OK);
        assert_int_equal(again.pieces, a.pieces);
        assert_memory_equal(again.piece, a.piece, a.pieces * sizeof *a.piece);
        for (uint64_t e = 0; e < a.count; e += 17) {
            uint64_t delta = 0, other = 0;
            assert_true(pool_array_at(&a, e, &delta) == pool_array_at(&again, e, &other));
            assert_true(delta == other);
        }
        assert_true(pool_array_bytes(&again) == pool_array_bytes(&a));
        pool_array_drop(&r.op, &a, FAR_CONTENTION);
        pool_array_close(&a);
        pool_array_close(&again);
        pool_rig_close(&r);
    }
}

/* Rows of 144 bytes and powers of two leave no room unused. */
static void pieces_fit_their_elements(void **state)
{
    static const struct array_shape shapes[] = {{.count = 1u << 17, .element = 144},
                                                {.count = 1u << 20, .element = 8},
                                                {.count = 1u << 14, .element = 512},
                                                {.count = 1u << 16, .element = 192}};
    (void)state;
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pool_rig r;
        struct pool_array a;
        pool_rig_open(&r, "mem:?size=64m");
        assert_int_equal(pool_array_alloc(&r.op, &shapes[i], &a), FAR_OK);
        uint64_t needed = shapes[i].count * shapes[i].element;
        assert_true(pool_array_bytes(&a) - size_class_bytes(pointer_class(a.ref)) == needed);
        pool_array_drop(&r.op, &a, FAR_CONTENTION);
        pool_array_close(&a);
        pool_rig_close(&r);
    }
}

/* An array that takes most of a node of 1 GiB, of which little is ever touched. */
static void an_array_may_be_as_large_as_a_node(void **state)
{
    struct array_shape shape = {.count = 1000 * MIB / 512, .element = 512};
    struct pool_rig r;
    struct pool_array a;

    (void)state;
    pool_rig_open(&r, "mem:?size=1g");
    uint64_t before = r.op.cost.rtts;
    assert_int_equal(pool_array_alloc(&r.op, &shape, &a), FAR_OK);
    assert_int_equal(a.pieces, 1000);
    assert_true(r.op.cost.rtts - before < 5 * 1000ull);
    expect_apart(&r, &a, 4099);
    pool_array_drop(&r.op, &a, FAR_CONTENTION);
    pool_array_close(&a);
    pool_rig_close(&r);
}

/* ---- clearing -------------------------------------------------------------------------------- */

static void expect_words(struct pool_rig *r, gaddr at, uint64_t bytes, uint64_t value)
{
    uint64_t *image = op_buffer(&r->op, BUF_BULK, bytes);
    batch_read(&r->op.batch, at, 0, image, (uint32_t)bytes);
    assert_int_equal(batch_flush(&r->op.batch), FAR_OK);
    for (uint64_t i = 0; i < bytes / 8; i++)
        if (image[i] != value)
            fail_msg("word %llu is %llx", (unsigned long long)i, (unsigned long long)image[i]);
}

/* At once, or by parts. */
static void clear_all(struct pool_rig *r, const struct pool_array *a, uint64_t part)
{
    uint64_t done = 0;
    if (part == 0)
        assert_int_equal(pool_array_clear(&r->op, a), FAR_OK);
    for (uint64_t before = 0; part > 0 && !pool_array_is_clear(a, done); before = done) {
        assert_int_equal(pool_array_clear_part(&r->op, a, &done, part), FAR_OK);
        assert_in_range(done, before + 1, before + part);
    }
}

/* All memory is filled with a pattern. Then an array is cleared in the middle of it. */
static void clearing_an_array_clears_all_of_it_and_nothing_else(void **state)
{
    struct pool_rig r;
    struct pool_array a;
    struct array_shape shape = {.count = 20011, .element = 144};
    static gaddr dirty[600];
    unsigned count = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=16m&nodes=2");
    while (pool_alloc(&r.op, count % 2, CHUNK_CLASS, &dirty[count]) == FAR_OK)
        count++;
    void *pattern = op_buffer(&r.op, BUF_INDEX, CHUNK_BYTES);
    memset(pattern, 0xee, CHUNK_BYTES);
    for (unsigned i = 0; i < count; i++) {
        batch_write(&r.op.batch, MARK_EARLY, dirty[i], 0, pattern, CHUNK_BYTES);
        assert_int_equal(batch_flush(&r.op.batch), FAR_OK);
    }
    for (unsigned turn = 0; turn < 4; turn++) {
        struct sweep_result swept;
        bool *kept = calloc(count, sizeof *kept);
        puppet_set_lost_bytes(&r.client, 1);
        /* Nothing marks them, so the sweep makes runs of all. The pattern stays in them. */
        assert_int_equal(pool_sweep(&r.op, &swept), FAR_OK);
        shape.stripe = turn % 2 * 64;
        assert_int_equal(pool_array_alloc(&r.op, &shape, &a), FAR_OK);
        for (unsigned i = 0; i < a.pieces; i++)
            expect_words(&r, a.piece[i] + 16, 8, 0xeeeeeeeeeeeeeeeeull);
        clear_all(&r, &a, turn / 2 * 100040);
        for (unsigned i = 0; i < count; i++) {
            for (unsigned p = 0; p < a.pieces; p++) {
                uint64_t bytes =
                    size_class_bytes(p + a.lanes >= a.pieces ? a.last_class : a.piece_class);
                kept[i] |=
                    dirty[i] + CHUNK_BYTES / 64 > a.piece[p] && dirty[i] < a.piece[p] + bytes / 64;
            }
            bool list = gaddr_offset(pointer_gaddr(a.ref)) - gaddr_offset(dirty[i]) < CHUNK_BYTES;
            if (!kept[i] && !list) /* its beginning may be a page of the shared lists */
                expect_words(&r, dirty[i] + 16, CHUNK_BYTES - 1024, 0xeeeeeeeeeeeeeeeeull);
        }
        for (unsigned p = 0; p < a.pieces; p++)
            expect_words(&r, a.piece[p],
                         size_class_bytes(p + a.lanes >= a.pieces ? a.last_class : a.piece_class),
                         0);
        pool_array_drop(&r.op, &a, FAR_CONTENTION);
        pool_array_close(&a);
        for (unsigned i = 0; i < count; i++) { /* and again */
            batch_write(&r.op.batch, MARK_EARLY, dirty[i], 0, pattern, CHUNK_BYTES);
            assert_int_equal(batch_flush(&r.op.batch), FAR_OK);
        }
        for (unsigned node = 0; node < 2; node++) /* the lists were overwritten */
            for (unsigned i = 0; i < CLASS_COUNT; i++)
                pool_rig_set(&r, node, NODE_FREE_OFF + i * 8ull, 0);
        client_drop_all(&r.client);
        free(kept);
    }
    pool_rig_close(&r);
}

static struct {
    uint64_t ns, bytes_most, posts;
} slow;

static int post_slowly(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < req->count; i++)
        bytes += req->verbs[i].len;
    slow.bytes_most = bytes > slow.bytes_most ? bytes : slow.bytes_most;
    slow.posts++;
    hook.clock += slow.ns;
    return hook.real->post(ep, req);
}

static bool stop_at_half(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)what;
    *(unsigned *)arg += 1;
    return done < total / 2;
}

/* It may take many leases; each batch is short. */
static void clearing_an_array_keeps_the_lease(void **state)
{
    struct pool_rig r;
    struct pool_array a;
    struct array_shape shape = {.count = 60 * MIB / 64, .element = 64};
    unsigned reports = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=64m&lease=1000");
    assert_int_equal(op_begin(&r.op, NULL), FAR_OK);
    assert_int_equal(pool_array_alloc(&r.op, &shape, &a), FAR_OK);
    slow = (typeof(slow)){.ns = 1000000000ull / 16};
    hook_on(r.ep);
    hook_clock();
    puppet_renew_lease(&r.client);
    hook.ops.post = post_slowly;
    assert_int_equal(pool_array_clear(&r.op, &a), FAR_OK);
    hook_off();
    assert_true(slow.posts * slow.ns > 3 * puppet_lease_ns(&r.client));
    assert_true(slow.bytes_most < 2 * MIB);
    assert_false(puppet_lost_lease(&r.client));
    puppet_renew_lease(&r.client);
    puppet_set_progress(&r.client, stop_at_half, &reports);
    assert_int_equal(pool_array_clear(&r.op, &a), FAR_STOPPED);
    assert_true(reports > 10 && reports < 40);
    puppet_set_progress(&r.client, NULL, NULL);
    pool_array_drop(&r.op, &a, FAR_STOPPED);
    pool_array_close(&a);
    op_end(&r.op);
    pool_rig_close(&r);
}

/* ---- giving back ----------------------------------------------------------------------------- */

static void an_array_that_does_not_fit_is_given_back_to_the_byte(void **state)
{
    static const struct array_shape shapes[] = {
        {.count = 40 * MIB / 512, .element = 512},             /* more than a node has   */
        {.count = 14 * MIB / 512, .element = 512},             /* more than is left      */
        {.count = 14 * MIB / 144, .element = 144, .node = 1},  /* the last piece is short */
        {.count = 40 * MIB / 64, .element = 64, .stripe = 64}, /* one of three is full   */
        {.count = 1ull << 50, .element = 8},                   /* more than there can be */
        {.count = UINT64_MAX, .element = 65536, .stripe = 1},
    };
    struct pool_rig r;
    struct pool_array a = {.ref = 77};
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=16m&nodes=3");
    for (unsigned node = 0; node < 3; node++)
        for (unsigned i = 0; i < 60 + 20 * node; i++)
            assert_int_equal(pool_alloc_on(&r.op, node, CHUNK_CLASS, &at), FAR_OK);
    uint64_t before = free_bytes(&r);
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint64_t rtts = r.op.cost.rtts;
        assert_int_equal(pool_array_alloc(&r.op, &shapes[i], &a), FAR_POOL_FULL);
        if (i == 0 || i > 3) /* not even an empty pool has room: nothing is tried */
            assert_true(r.op.cost.rtts == rtts);
        assert_int_equal(a.ref, 77);
        assert_true(free_bytes(&r) == before);
        assert_true(puppet_retired_bytes(&r.client) == 0 && puppet_lost_bytes(&r.client) == 0);
        /* Nor does the client keep it from others. */
        unsigned size_class = size_class_for(shapes[i].element == 144 ? 9 * CHUNK_BYTES : MIB);
        for (unsigned node = 0; node < 3; node++)
            assert_true(puppet_kept(&r.client, node, size_class) <= 4);
    }
    pool_rig_close(&r);
}

static void an_array_goes_to_another_node_as_a_whole(void **state)
{
    struct array_shape shape = {.count = 9 * MIB / 512, .element = 512};
    struct pool_rig r;
    struct pool_array a;
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=16m&nodes=3");
    for (unsigned node = 0; node < 2; node++)
        for (unsigned i = 0; i < 150; i++)
            assert_int_equal(pool_alloc_on(&r.op, node, CHUNK_CLASS, &at), FAR_OK);
    assert_int_equal(pool_array_alloc(&r.op, &shape, &a), FAR_OK);
    for (unsigned i = 0; i < a.pieces; i++)
        assert_int_equal(gaddr_node(a.piece[i]), 2);
    pool_array_drop(&r.op, &a, FAR_CONTENTION);
    pool_array_close(&a);
    /* An array that must be on one node says so. */
    int rc = FAR_OK;
    while (rc == FAR_OK)
        rc = pool_alloc_on(&r.op, 0, 60, &at);
    assert_int_equal(rc, FAR_POOL_FULL);
    assert_non_null(strstr(far_error_detail(), "node 0"));
    pool_rig_close(&r);
}

static void a_retired_array_comes_back_by_epochs(void **state)
{
    struct array_shape shape = {.count = 6 * MIB / 64, .element = 64, .stripe = 16};
    struct pool_rig r;
    struct pool_array a;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&nodes=2");
    uint64_t before = free_bytes(&r);
    for (unsigned turn = 0; turn < 4; turn++) {
        assert_int_equal(pool_array_alloc(&r.op, &shape, &a), FAR_OK);
        uint64_t bytes = pool_array_bytes(&a);
        pool_array_retire(&r.client, &a);
        assert_true(puppet_retired_bytes(&r.client) == bytes);
        gaddr first = a.piece[0], at = 0;
        assert_int_equal(pool_alloc_on(&r.op, gaddr_node(first), a.piece_class, &at), FAR_OK);
        for (unsigned i = 0; i < a.pieces; i++)
            assert_true(at != a.piece[i]); /* not yet */
        pool_free_unpublished(&r.client, at, a.piece_class);
        pool_array_close(&a);
        for (unsigned i = 0; i < 16; i++) {
            assert_int_equal(client_drive_epoch(&r.op), FAR_OK);
            while (client_reclaim(&r.client)) {
            }
        }
        assert_true(free_bytes(&r) == before);
    }
    pool_rig_close(&r);
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

static int mark_array(void *arg, struct op *op, struct marker *marker)
{
    (void)op;
    if (arg)
        pool_array_mark(arg, marker);
    return FAR_OK;
}

/* Pieces and descriptor are live. A sweep leaves them alone, and finds all of them when nothing
 * leads there any more. */
static void sweeps_and_usage_know_all_of_an_array(void **state)
{
    struct array_shape shape = {.count = 5000, .element = 1000, .stripe = 16};
    struct pool_rig r;
    struct pool_array a, b;
    struct sweep_result swept;
    struct far_pool_usage u;

    (void)state;
    pool_rig_open(&r, "mem:?size=16m&nodes=2");
    assert_int_equal(pool_array_alloc(&r.op, &shape, &a), FAR_OK);
    r.pool.mark = mark_array;
    r.pool.tables = &a;
    assert_int_equal(pool_usage(&r.op, &u), FAR_OK);
    assert_true(u.live == pool_array_bytes(&a));
    assert_true(u.unknown == 0);
    expect_apart(&r, &a, 1);
    assert_int_equal(pool_array_alloc(&r.op, &shape, &b), FAR_OK);
    pool_array_abandon(&r.client, &b); /* nobody knows whether something leads there */
    assert_true(unknown_bytes(&r) == pool_array_bytes(&b));
    assert_int_equal(pool_sweep(&r.op, &swept), FAR_OK);
    assert_true(swept.bytes >= pool_array_bytes(&b));
    assert_true(unknown_bytes(&r) == 0);
    pool_array_close(&b);
    for (unsigned i = 0; i < 100; i++) { /* what is allocated now is not the array's */
        gaddr at = 0;
        uint64_t delta = 0;
        if (pool_alloc(&r.op, i % 2, CHUNK_CLASS, &at) != FAR_OK)
            break;
        for (uint64_t e = 0; e < a.count; e += 8) {
            gaddr piece = pool_array_at(&a, e, &delta);
            gaddr unit = piece + delta / 64;
            assert_false(unit >= at && unit < at + CHUNK_BYTES / 64);
        }
    }
    assert_int_equal(pool_array_open(&r.op, a.ref, &b), FAR_OK);
    pool_array_close(&b);
    pool_array_close(&a);
    r.pool.tables = NULL;
    pool_rig_close(&r);
}

static struct {
    unsigned at; /* the post that does not get out, and none after it */
    unsigned posts;
    bool lands; /* that one gets out, but its outcome is unknown */
    bool wrote; /* it wrote to a chunk */
} crash;

static int post_until(struct fab_ep *ep, struct fab_req *req)
{
    crash.posts++;
    if (crash.posts > crash.at || (crash.posts == crash.at && !crash.lands))
        return FAR_UNREACHABLE;
    if (crash.posts < crash.at)
        return hook.real->post(ep, req);
    for (unsigned i = 0; i < req->count; i++)
        crash.wrote |= req->verbs[i].kind == FAB_WRITE && req->verbs[i].off >= CHUNK_BYTES;
    hook_run(ep, req);
    req->status = FAR_TIMEOUT;
    return FAR_OK;
}

/* A client dies after each post of an allocation. Another client's sweep finds all that it had,
 * and leaves an array alone that was complete before. */
static void after_a_crash_anywhere_a_sweep_finds_all(void **state)
{
    struct array_shape shape = {.count = 3 * MIB / 144, .element = 144, .stripe = 16};
    bool done = false;
    unsigned crashes = 0;

    (void)state;
    for (unsigned at = 1; !done; at++) {
        for (unsigned lands = 0; lands < 2 && !done; lands++) {
            struct pool_rig r, dead;
            struct pool_array kept, a = {.piece = NULL};
            struct sweep_result swept;
            pool_rig_open(&r, "mem:?size=12m&nodes=2");
            assert_int_equal(pool_array_alloc(&r.op, &shape, &kept), FAR_OK);
            expect_apart(&r, &kept, 1);
            r.pool.mark = mark_array;
            r.pool.tables = &kept;
            assert_int_equal(pool_rig_join(&dead, r.fab, 2), FAR_OK);
            uint64_t before = free_bytes(&r);
            crash = (typeof(crash)){.at = at, .lands = lands};
            hook_on(dead.ep);
            hook.ops.post = post_until;
            int rc = pool_array_alloc(&dead.op, &shape, &a);
            if (rc == FAR_OK)
                rc = pool_array_clear(&dead.op, &a);
            if (rc == FAR_OK)
                done = true;
            hook_off();
            crashes += rc != FAR_OK;
            /* The client is gone. Its slot is freed, as a recovery would. */
            uint64_t slot = slot_delta(dead.client.slot);
            pool_rig_set(&r, 0, slot, 0);
            client_free_in_child(&dead.client);
            memset(&dead.client, 0, sizeof dead.client);
            assert_int_equal(pool_sweep(&r.op, &swept), FAR_OK);
            assert_true(unknown_bytes(&r) == 0);
            assert_true(free_bytes(&r) == before);
            struct pool_array again;
            assert_int_equal(pool_array_open(&r.op, kept.ref, &again), FAR_OK);
            pool_array_close(&again);
            /* All of the memory can be allocated again. */
            assert_int_equal(pool_array_alloc(&r.op, &shape, &again), FAR_OK);
            pool_array_drop(&r.op, &again, FAR_CONTENTION);
            pool_array_close(&again);
            pool_array_close(&a);
            op_free(&dead.op);
            dead.ep->ops->ep_close(dead.ep);
            pool_array_close(&kept);
            r.pool.tables = NULL;
            pool_rig_close(&r);
        }
    }
    assert_true(crashes > 20);
}

/* The client does not die, but its posts fail. What it still knows is free again, and the rest
 * is counted as lost: every byte is one or the other. */
static void after_an_error_every_byte_is_free_or_lost(void **state)
{
    struct array_shape shape = {.count = 3 * MIB / 144, .element = 144, .stripe = 16};
    bool done = false;
    unsigned writes = 0;

    (void)state;
    for (unsigned at = 1; !done; at++) {
        struct pool_rig r;
        struct pool_array a = {.piece = NULL};
        pool_rig_open(&r, "mem:?size=12m&nodes=2");
        crash = (typeof(crash)){.at = at, .lands = true};
        hook_on(r.ep);
        hook.ops.post = post_until;
        int rc = pool_array_alloc(&r.op, &shape, &a);
        bool had = rc == FAR_OK;
        if (had)
            rc = pool_array_clear(&r.op, &a);
        done = rc == FAR_OK;
        if (had)
            pool_array_drop(&r.op, &a, done ? FAR_CONTENTION : rc);
        hook_off();
        uint64_t lost = puppet_lost_bytes(&r.client);
        assert_true(unknown_bytes(&r) <= lost);
        /* A late WRITE could hit memory that is used again. So the descriptor, or all of the
         * array, is lost. */
        if (!done && crash.wrote)
            assert_true(lost >= (had ? pool_array_bytes(&a) : 64));
        writes += crash.wrote;
        pool_array_close(&a);
        puppet_no_strays(&r.client);
        pool_rig_close(&r);
    }
    assert_true(writes > 1);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void shapes_that_cannot_be_are_refused(void **state)
{
    static const struct array_shape shapes[] = {
        {.count = 0, .element = 8},
        {.count = 1, .element = 0},
        {.count = 1, .element = 12},
        {.count = 1, .element = ARRAY_ELEMENT_MAX + 8},
        {.count = 9, .element = 8, .stripe = 3},
        {.count = 9, .element = 8, .stripe = 1ull << 20},
        {.count = 9, .element = 8, .stripe = 1ull << 63},
    };
    struct pool_rig r;
    struct pool_array a;

    (void)state;
    pool_rig_open(&r, "mem:?size=4m&nodes=2");
    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint64_t rtts = r.op.cost.rtts;
        assert_int_equal(pool_array_alloc(&r.op, &shapes[i], &a), FAR_INVALID);
        assert_true(r.op.cost.rtts == rtts);
    }
    pool_rig_close(&r);
}

static void a_damaged_descriptor_is_no_array(void **state)
{
    struct array_shape shape = {.count = 5 * MIB / 64, .element = 64, .stripe = 16};
    struct pool_rig r;
    struct pool_array a, b = {.ref = 5};

    (void)state;
    pool_rig_open(&r, "mem:?size=16m&nodes=2");
    assert_int_equal(pool_array_alloc(&r.op, &shape, &a), FAR_OK);
    gaddr at = pointer_gaddr(a.ref);
    uint64_t bytes = sizeof(struct array_head) + a.pieces * 8ull;
    for (uint64_t bit = 0; bit < bytes * 8; bit++) {
        uint64_t off = gaddr_offset(at) + bit / 64 * 8;
        uint64_t word = pool_rig_get(&r, gaddr_node(at), off);
        pool_rig_set(&r, gaddr_node(at), off, word ^ 1ull << bit % 64);
        assert_int_equal(pool_array_open(&r.op, a.ref, &b), FAR_CORRUPT);
        assert_int_equal(b.ref, 5);
        pool_rig_set(&r, gaddr_node(at), off, word);
    }
    for (unsigned bit = 0; bit < POINTER_OWN_AT(0); bit++) {
        int rc = pool_array_open(&r.op, a.ref ^ 1ull << bit, &b);
        if (rc == FAR_OK) { /* another class, but the same address */
            assert_true(bit >= GADDR_BITS);
            assert_memory_equal(b.piece, a.piece, a.pieces * 8ull);
            pool_array_close(&b);
        } else {
            assert_int_equal(rc, FAR_CORRUPT);
        }
    }
    /* The index's own bits are ignored. */
    assert_int_equal(pool_array_open(&r.op, a.ref | 1ull << 63, &b), FAR_OK);
    assert_true(b.ref == a.ref);
    pool_array_close(&b);
    /* A whole descriptor whose pieces are not in the pool, or not all of a lane on one node. */
    const struct array_shape two = {.count = 2 * MIB / 64, .element = 64};
    for (unsigned turn = 0; turn < 4; turn++) {
        struct pool_array bad;
        assert_int_equal(pool_array_alloc(&r.op, &two, &bad), FAR_OK);
        assert_int_equal(bad.pieces, 2);
        uint64_t off = gaddr_offset(pointer_gaddr(bad.ref));
        struct array_head *h = op_buffer(&r.op, BUF_BULK, 64);
        batch_read(&r.op.batch, pointer_gaddr(bad.ref), 0, h, 48);
        assert_int_equal(batch_flush(&r.op.batch), FAR_OK);
        gaddr *piece = (gaddr *)(h + 1);
        gaddr wrong[] = {0, gaddr_make(2, 64), gaddr_make(1, 16 * MIB), piece[1]};
        wrong[3] ^= 1ull << GADDR_UNIT_BITS;
        piece[1] = wrong[turn];
        h->checksum = hash_sum(&h->count, 40, ARRAY_SEED);
        batch_write(&r.op.batch, MARK_EARLY, gaddr_make(gaddr_node(pointer_gaddr(bad.ref)), 0), off,
                    h, 48);
        assert_int_equal(batch_flush(&r.op.batch), FAR_OK);
        assert_int_equal(pool_array_open(&r.op, bad.ref, &b), FAR_CORRUPT);
        pool_array_drop(&r.op, &bad, FAR_CONTENTION);
        pool_array_close(&bad);
    }
    pool_array_drop(&r.op, &a, FAR_CONTENTION);
    pool_array_close(&a);
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_have_places_of_their_own),
        cmocka_unit_test(pieces_fit_their_elements),
        cmocka_unit_test(an_array_may_be_as_large_as_a_node),
        cmocka_unit_test(clearing_an_array_clears_all_of_it_and_nothing_else),
        cmocka_unit_test(clearing_an_array_keeps_the_lease),
        cmocka_unit_test(an_array_that_does_not_fit_is_given_back_to_the_byte),
        cmocka_unit_test(an_array_goes_to_another_node_as_a_whole),
        cmocka_unit_test(a_retired_array_comes_back_by_epochs),
        cmocka_unit_test(sweeps_and_usage_know_all_of_an_array),
        cmocka_unit_test(after_a_crash_anywhere_a_sweep_finds_all),
        cmocka_unit_test(after_an_error_every_byte_is_free_or_lost),
        cmocka_unit_test(shapes_that_cannot_be_are_refused),
        cmocka_unit_test(a_damaged_descriptor_is_no_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
