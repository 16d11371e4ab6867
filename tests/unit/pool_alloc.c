/* Allocation: size classes, chunks and their table, full nodes, objects that come back. */
#include "support/hook.h"
#include "support/pool_rig.h"
#include "support/puppet.h"

#include "base/fiber.h"

#include <pthread.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define BIGGEST ((4u << 20) + (64u << 10)) /* 4 MiB and a key */

static void every_size_gets_the_smallest_class_that_holds_it(void **state)
{
    unsigned expected = 0;

    (void)state;
    for (unsigned i = 1; i < CLASS_COUNT; i++)
        assert_true(size_class_bytes(i) > size_class_bytes(i - 1));
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        assert_int_equal(size_class_bytes(i) % 64, 0);
    assert_int_equal(size_class_bytes(0), 64);
    assert_int_equal(size_class_bytes(CLASS_COUNT - 1), BIGGEST);
    for (size_t bytes = 1; bytes <= BIGGEST; bytes++) {
        if (bytes > size_class_bytes(expected))
            expected++;
        if (size_class_for(bytes) != expected) /* two million asserts would take too long */
            fail_msg("%zu bytes: class %u, not %u", bytes, size_class_for(bytes), expected);
    }
    assert_int_equal(size_class_for(0), 0);
    assert_int_equal(size_class_for(BIGGEST + 1), CLASS_COUNT);
    assert_int_equal(size_class_for((1ull << 32) + 1), CLASS_COUNT);
    assert_int_equal(size_class_for(SIZE_MAX), CLASS_COUNT);
}

static void classes_waste_at_most_a_fifth_above_the_smallest(void **state)
{
    (void)state;
    for (unsigned i = 8; i < CLASS_COUNT; i++)
        assert_true(size_class_bytes(i) - size_class_bytes(i - 1) <= size_class_bytes(i) / 5 + 64);
}

/* The longest class of a number of chunks fills them. */
static void chunks_in_a_row_are_a_run(void **state)
{
    (void)state;
    for (uint64_t chunks = 1; chunks < 200; chunks++) {
        unsigned size_class = size_class_for_chunks(chunks);
        assert_true(size_class >= CHUNK_CLASS);
        assert_true(size_class_chunks(size_class) <= chunks);
        assert_true(size_class_bytes(size_class) == size_class_chunks(size_class) * CHUNK_BYTES);
        assert_true(size_class == CLASS_COUNT - 1 || size_class_chunks(size_class + 1) > chunks);
        assert_true(size_class_chunks(size_class) > chunks * 4 / 5 || chunks > RUN_CHUNKS_MAX);
    }
    assert_true(size_class_bytes(RUN_CLASS) > CLASS_SMALL_MAX);
    assert_true(size_class_bytes(RUN_CLASS - 1) <= CLASS_SMALL_MAX);
}

/* ---- objects --------------------------------------------------------------------------------- */

/* A bit for each 64 bytes of a node that some object has. */
struct coverage {
    uint8_t *used[FAB_NODES_MAX];
};

static void coverage_open(struct coverage *c, const struct pool *pool)
{
    for (unsigned i = 0; i < pool->nodes; i++)
        assert_non_null(c->used[i] = calloc(1, pool->head[i].size / 64));
}

static void coverage_close(struct coverage *c, const struct pool *pool)
{
    for (unsigned i = 0; i < pool->nodes; i++)
        free(c->used[i]);
}

/* The object lies within the chunks of its node, and overlaps none before it. */
static void coverage_add(struct coverage *c, const struct pool *pool, gaddr at, unsigned size_class)
{
    unsigned node = gaddr_node(at);
    uint64_t off = gaddr_offset(at), bytes = size_class_bytes(size_class);

    assert_true(node < pool->nodes);
    const struct node_head *head = &pool->head[node];
    assert_true(off >= head->chunks_off64 * 64ull);
    assert_true(off + bytes <= head->chunks_off64 * 64ull + (head->chunks * CHUNK_BYTES));
    assert_true(off + bytes <= head->size);
    for (uint64_t i = off / 64; i < (off + bytes) / 64; i++) {
        if (c->used[node][i])
            fail_msg("node %u offset %llu is in two objects", node, (unsigned long long)i * 64);
        c->used[node][i] = 1;
    }
}

/* The chunk table says what the object's chunks are for. */
static void expect_chunk_entry(struct pool_rig *r, gaddr at, unsigned size_class)
{
    unsigned node = gaddr_node(at);
    const struct node_head *head = &r->pool.head[node];
    uint64_t chunk = (gaddr_offset(at) - head->chunks_off64 * 64ull) >> CHUNK_SHIFT;
    uint64_t run = (size_class_bytes(size_class) + CHUNK_BYTES - 1) >> CHUNK_SHIFT;
    bool large = size_class_bytes(size_class) > CLASS_SMALL_MAX;

    for (uint64_t i = 0; i < run; i++) {
        uint64_t entry = pool_rig_get(r, node, head->table_off + (chunk + i) * 8);
        enum chunk_kind kind = !large ? CHUNK_SLAB : i == 0 ? CHUNK_LARGE : CHUNK_LARGE_TAIL;
        assert_true(entry == chunk_entry(kind, size_class, r->client.slot, run));
    }
}

static void objects_of_all_classes_and_nodes_never_overlap(void **state)
{
    struct pool_rig r;
    struct coverage c;
    struct rng rng;

    (void)state;
    pool_rig_open(&r, "mem:?size=128m&nodes=3");
    coverage_open(&c, &r.pool);
    rng_seed(&rng, 7);
    for (unsigned i = 0; i < 20000; i++) {
        /* Mostly small objects, but every class on every node comes up. */
        unsigned most = rng_below(&rng, 100) == 0 ? CLASS_COUNT : 20;
        unsigned size_class = (unsigned)rng_below(&rng, most);
        unsigned node = (unsigned)rng_below(&rng, 3);
        gaddr at = 0;
        int rc = pool_alloc(&r.op, node, size_class, &at);
        if (rc == FAR_POOL_FULL)
            continue;
        assert_int_equal(rc, FAR_OK);
        coverage_add(&c, &r.pool, at, size_class);
        if (i % 16 == 0 || size_class_bytes(size_class) > CLASS_SMALL_MAX)
            expect_chunk_entry(&r, at, size_class);
    }
    coverage_close(&c, &r.pool);
    pool_rig_close(&r);
}

static void clients_never_get_the_same_object(void **state)
{
    struct pool_rig r[3];
    struct coverage c;
    struct rng rng;

    (void)state;
    pool_rig_open(&r[0], "mem:?size=64m&nodes=2");
    for (unsigned i = 1; i < 3; i++)
        assert_int_equal(pool_rig_join(&r[i], r[0].fab, i + 1), FAR_OK);
    coverage_open(&c, &r[0].pool);
    rng_seed(&rng, 8);
    for (unsigned i = 0; i < 6000; i++) {
        struct pool_rig *who = &r[rng_below(&rng, 3)];
        unsigned size_class = (unsigned)rng_below(&rng, 24);
        gaddr at = 0;
        assert_int_equal(pool_alloc(&who->op, (unsigned)rng_below(&rng, 2), size_class, &at),
                         FAR_OK);
        coverage_add(&c, &r[0].pool, at, size_class);
        if (i % 16 == 0)
            expect_chunk_entry(who, at, size_class);
    }
    coverage_close(&c, &r[0].pool);
    for (unsigned i = 3; i-- > 0;)
        pool_rig_close(&r[i]);
}

#define THREADS 3

struct taker {
    struct pool_rig rig;
    pthread_t thread;
    int rc;
    unsigned count;
    gaddr taken[1024];
};

/* Takes whole chunks until there are no more. */
static void *take_all(void *arg)
{
    struct taker *t = arg;

    t->rc = FAR_OK;
    for (t->count = 0; t->count < 1024; t->count++) {
        t->rc =
            pool_alloc(&t->rig.op, t->count % 2, size_class_for(CHUNK_BYTES), &t->taken[t->count]);
        if (t->rc != FAR_OK)
            break;
    }
    return NULL;
}

static void threads_share_a_pool_down_to_its_last_chunk(void **state)
{
    static struct taker t[THREADS];
    struct coverage c;
    unsigned count = 0;

    (void)state;
    pool_rig_open(&t[0].rig, "mem:?size=16m&nodes=2");
    const struct pool *pool = &t[0].rig.pool;
    for (unsigned i = 1; i < THREADS; i++)
        assert_int_equal(pool_rig_join(&t[i].rig, t[0].rig.fab, i + 1), FAR_OK);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i].thread, NULL, take_all, &t[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(t[i].thread, NULL);
    coverage_open(&c, pool);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(t[i].rc, FAR_POOL_FULL);
        count += t[i].count;
        for (unsigned n = 0; n < t[i].count; n++)
            coverage_add(&c, pool, t[i].taken[n], size_class_for(CHUNK_BYTES));
    }
    assert_int_equal(count, pool->head[0].chunks + pool->head[1].chunks);
    coverage_close(&c, pool);
    for (unsigned i = THREADS; i-- > 0;)
        pool_rig_close(&t[i].rig);
}

static void every_chunk_below_the_counter_has_an_entry(void **state)
{
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=64m");
    for (unsigned size_class = 0; size_class < CLASS_COUNT; size_class++) {
        gaddr at = 0;
        assert_int_equal(pool_alloc(&r.op, 0, size_class, &at), FAR_OK);
    }
    const struct node_head *head = &r.pool.head[0];
    uint64_t taken = pool_rig_get(&r, 0, NODE_NEXT_CHUNK_OFF);
    assert_true(taken > CLASS_COUNT && taken <= head->chunks);
    for (uint64_t i = 0; i < head->chunks; i++) {
        uint64_t entry = pool_rig_get(&r, 0, head->table_off + i * 8);
        assert_true((i < taken) == (entry != 0));
    }
    pool_rig_close(&r);
}

/* ---- full nodes ------------------------------------------------------------------------------ */

/* Takes objects near `node` until the pool is full, and counts them by the node they came from. */
static void exhaust(struct pool_rig *r, unsigned node, unsigned size_class, unsigned *by_node)
{
    int rc = FAR_OK;

    for (unsigned i = 0; rc == FAR_OK; i++) {
        gaddr at = 0;
        assert_true(i < 1u << 20);
        rc = pool_alloc(&r->op, node, size_class, &at);
        if (rc == FAR_OK)
            by_node[gaddr_node(at)]++;
        else
            assert_true(at == 0);
    }
    assert_int_equal(rc, FAR_POOL_FULL);
}

static void a_full_node_sends_to_the_others(void **state)
{
    struct pool_rig r;
    unsigned by_node[3] = {0}, size_class = size_class_for(CLASS_SMALL_MAX);
    unsigned of_chunk = CHUNK_BYTES / CLASS_SMALL_MAX;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m&nodes=3");
    for (unsigned i = 0; i < r.pool.head[1].chunks * of_chunk; i++) {
        gaddr at = 0;
        assert_int_equal(pool_alloc(&r.op, 1, size_class, &at), FAR_OK);
        assert_int_equal(gaddr_node(at), 1);
    }
    exhaust(&r, 1, size_class, by_node);
    assert_int_equal(by_node[0], r.pool.head[0].chunks * of_chunk);
    assert_int_equal(by_node[1], 0);
    assert_int_equal(by_node[2], r.pool.head[2].chunks * of_chunk);
    for (unsigned node = 0; node < 3; node++) {
        gaddr at = 42;
        assert_int_equal(pool_alloc(&r.op, node, size_class, &at), FAR_POOL_FULL);
        assert_true(at == 42);
        /* The counter is not past the last chunk. */
        assert_true(pool_rig_get(&r, node, NODE_NEXT_CHUNK_OFF) == r.pool.head[node].chunks);
    }
    pool_rig_close(&r);
}

static void a_smaller_request_fits_after_a_large_one_failed(void **state)
{
    struct pool_rig r;
    unsigned large = 0, small = 0, by_node[1] = {0};
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=3m");
    uint64_t chunks = r.pool.head[0].chunks, run = (1u << 20) / CHUNK_BYTES;
    exhaust(&r, 0, size_class_for(1u << 20), &large);
    assert_int_equal(large, chunks / run);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(pool_alloc(&r.op, 0, size_class_for(BIGGEST), &at), FAR_POOL_FULL);
    exhaust(&r, 0, size_class_for(CHUNK_BYTES), by_node);
    small = by_node[0];
    assert_int_equal(small, chunks - large * run);
    pool_rig_close(&r);
}

static void an_object_that_does_not_divide_a_chunk_stays_within_it(void **state)
{
    struct pool_rig r;
    unsigned by_node[1] = {0}, size_class = size_class_for(10000);

    (void)state;
    pool_rig_open(&r, "mem:?size=1m");
    exhaust(&r, 0, size_class, by_node);
    assert_int_equal(by_node[0],
                     r.pool.head[0].chunks * (CHUNK_BYTES / size_class_bytes(size_class)));
    pool_rig_close(&r);
}

/* ---- operations of one client at the same time ----------------------------------------------- */

#define FIBERS      8
#define FIBERS_MANY 80 /* more than the times that an operation tries to get an object */

struct asker {
    struct op op;
    struct fiber *fiber;
    unsigned size_class;
    int rc;
    gaddr at;
};

static void ask(void *arg)
{
    struct asker *a = arg;
    a->rc = pool_alloc(&a->op, 0, a->size_class, &a->at);
}

static void prepare_asking(struct pool_rig *r, struct asker *a, unsigned size_class)
{
    *a = (struct asker){.size_class = size_class, .rc = 1};
    assert_int_equal(op_init(&a->op, &r->client), FAR_OK);
    a->op.batch.on_ring = true;
    assert_non_null(a->fiber = fiber_create(64 * 1024, ask, a));
}

/* An operation on a ring, which asks and then waits for the fabric. */
static void start_asking(struct pool_rig *r, struct asker *a, unsigned size_class)
{
    prepare_asking(r, a, size_class);
    fiber_resume(a->fiber);
    assert_false(fiber_finished(a->fiber));
}

static void free_askers(struct asker *a, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        fiber_destroy(a[i].fiber);
        op_free(&a[i].op);
    }
}

/* Resumes them until all have their answers. Those that wait for each other pause in between. */
static void drive_askers(struct pool_rig *r, struct asker *a, unsigned count)
{
    unsigned left = count;
    for (unsigned turn = 0; left > 0; turn++) {
        assert_true(turn < 10000);
        r->ep->ops->poll(r->ep, true);
        r->ep->ops->pause(r->ep, 1000);
        for (unsigned i = 0; i < count; i++) {
            const struct batch *b = &a[i].op.batch;
            if (fiber_finished(a[i].fiber) || (b->wake_at == 0 && !b->req.done))
                continue;
            fiber_resume(a[i].fiber);
            left -= fiber_finished(a[i].fiber);
        }
    }
    free_askers(a, count);
}

/* Fibers that all want an object of the class when there is none. */
static void ask_at_once(struct pool_rig *r, struct asker *a, unsigned count, unsigned size_class)
{
    for (unsigned i = 0; i < count; i++)
        start_asking(r, &a[i], size_class);
    drive_askers(r, a, count);
}

/* Each has got an object of its own. */
static void expect_answers(struct pool_rig *r, const struct asker *a, unsigned count)
{
    struct coverage c;
    coverage_open(&c, &r->pool);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(a[i].rc, FAR_OK);
        coverage_add(&c, &r->pool, a[i].at, a[i].size_class);
    }
    coverage_close(&c, &r->pool);
}

/* ALLOC-A6 */
static void operations_that_find_no_memory_fetch_one_chunk(void **state)
{
    static struct asker a[FIBERS];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&defer=1");
    ask_at_once(&r, a, FIBERS, 0);
    expect_answers(&r, a, FIBERS);
    assert_true(pool_rig_get(&r, 0, NODE_NEXT_CHUNK_OFF) == 1);
    pool_rig_close(&r);
}

/* A clock that takes longer to read than any pause here. It stops after many looks, so that who
 * never yields fails the test instead of hanging it. */
#define SLOW_LOOKS 1000u
static unsigned slow_looks;

static uint64_t slow_now(struct fab_ep *ep)
{
    (void)ep;
    slow_looks += slow_looks < SLOW_LOOKS;
    return slow_looks * 1000000ull;
}

static void an_operation_that_pauses_lets_others_run_if_the_clock_is_slow(void **state)
{
    static struct asker a[FIBERS];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&defer=1");
    slow_looks = 0;
    hook_on(r.ep);
    hook.ops.now = slow_now;
    ask_at_once(&r, a, FIBERS, 0);
    expect_answers(&r, a, FIBERS);
    assert_true(slow_looks < SLOW_LOOKS);
    hook_off();
    pool_rig_close(&r);
}

/* A fetch that brings one object serves one of those that wait. The others do not wait for ever. */
static void operations_that_wait_for_fetches_get_memory_in_the_end(void **state)
{
    static struct asker a[FIBERS_MANY];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&defer=1");
    ask_at_once(&r, a, FIBERS_MANY, CHUNK_CLASS);
    expect_answers(&r, a, FIBERS_MANY);
    pool_rig_close(&r);
}

/* The same in the store's ring. The end of a fetch wakes those that wait: they read no clock. */
static void the_end_of_a_fetch_wakes_those_that_wait(void **state)
{
    static struct asker a[FIBERS_MANY];
    static struct batch *pausing[FIBERS_MANY];
    struct batch_ring ring = {.pausing = pausing};
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&defer=1");
    for (unsigned i = 0; i < FIBERS_MANY; i++) {
        prepare_asking(&r, &a[i], CHUNK_CLASS);
        a[i].op.batch.ring = &ring;
        fiber_resume(a[i].fiber);
    }
    for (unsigned left = FIBERS_MANY, turn = 0; left > 0; turn++) {
        struct batch *b;
        assert_true(turn < 10000 && ring.pausing_count == 0);
        r.ep->ops->poll(r.ep, true);
        while ((b = batch_ring_next(&ring, 0))) {
            struct asker *asker =
                (struct asker *)(void *)((char *)b - offsetof(struct asker, op.batch));
            fiber_resume(asker->fiber);
            left -= fiber_finished(asker->fiber);
        }
    }
    free_askers(a, FIBERS_MANY);
    expect_answers(&r, a, FIBERS_MANY);
    pool_rig_close(&r);
}

static void operations_that_wait_for_a_fetch_that_fails_fail_too(void **state)
{
    static struct asker a[FIBERS];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m&defer=1");
    for (unsigned i = 0; i < r.pool.head[0].chunks; i++) {
        gaddr at = 0;
        assert_int_equal(pool_alloc(&r.op, 0, CHUNK_CLASS, &at), FAR_OK);
    }
    ask_at_once(&r, a, FIBERS, 0);
    for (unsigned i = 0; i < FIBERS; i++)
        assert_int_equal(a[i].rc, FAR_POOL_FULL);
    pool_rig_close(&r);
}

/* Nothing resumes the operation on the ring before the call has ended. */
static void a_call_does_not_wait_for_a_fetch_on_the_ring(void **state)
{
    static struct asker a;
    struct pool_rig r;
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&defer=1");
    start_asking(&r, &a, 0);
    assert_int_equal(pool_alloc(&r.op, 0, 0, &at), FAR_OK);
    drive_askers(&r, &a, 1);
    assert_int_equal(a.rc, FAR_OK);
    assert_true(a.at != at);
    pool_rig_close(&r);
}

static void operations_that_fetch_a_chunk_each_keep_all_of_both(void **state)
{
    static struct asker a;
    struct pool_rig r;
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&defer=1");
    uint64_t chunks = pool_rig_get(&r, 0, NODE_NEXT_CHUNK_OFF);
    start_asking(&r, &a, 0);
    assert_int_equal(pool_alloc(&r.op, 0, 0, &at), FAR_OK);
    drive_askers(&r, &a, 1);
    assert_true(pool_rig_get(&r, 0, NODE_NEXT_CHUNK_OFF) == chunks + 2);
    assert_true(puppet_held_bytes(&r.client) == 2 * CHUNK_BYTES - 2 * size_class_bytes(0));
    pool_rig_close(&r);
}

static void the_last_chunk_serves_all_who_asked_for_it(void **state)
{
    static struct asker a[FIBERS];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m&defer=1");
    for (unsigned i = 0; i < r.pool.head[0].chunks - 1; i++) {
        gaddr at = 0;
        assert_int_equal(pool_alloc(&r.op, 0, size_class_for(CHUNK_BYTES), &at), FAR_OK);
    }
    ask_at_once(&r, a, FIBERS, 0);
    expect_answers(&r, a, FIBERS);
    pool_rig_close(&r);
}

/* ---- objects that come back ------------------------------------------------------------------ */

static int by_address(const void *a, const void *b)
{
    gaddr x = *(const gaddr *)a, y = *(const gaddr *)b;
    return x < y ? -1 : x > y;
}

#define SOME 500

static void what_was_given_back_is_used_first(void **state)
{
    struct pool_rig r;
    gaddr first[SOME], again[SOME], at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&nodes=2");
    for (unsigned i = 0; i < SOME; i++)
        assert_int_equal(pool_alloc(&r.op, 1, 3, &first[i]), FAR_OK);
    for (unsigned i = 0; i < SOME; i++)
        pool_free_unpublished(&r.client, first[i], 3);
    assert_true(puppet_retired_bytes(&r.client) == 0);
    uint64_t verbs = r.op.cost.verbs;
    assert_int_equal(pool_alloc(&r.op, 0, 3, &at), FAR_OK);
    assert_int_equal(gaddr_node(at), 0); /* not for another node, */
    assert_int_equal(pool_alloc(&r.op, 1, 4, &at), FAR_OK);
    for (unsigned i = 0; i < SOME; i++)
        assert_true(at != first[i]); /* nor for another class */
    verbs = r.op.cost.verbs;
    for (unsigned i = 0; i < SOME; i++)
        assert_int_equal(pool_alloc(&r.op, 1, 3, &again[i]), FAR_OK);
    assert_true(r.op.cost.verbs == verbs); /* all of it local */
    qsort(first, SOME, sizeof *first, by_address);
    qsort(again, SOME, sizeof *again, by_address);
    assert_memory_equal(first, again, sizeof first);
    pool_rig_close(&r);
}

/* A retired object, which others may be reading, is reused when the epoch has gone on, and not
 * before. */
static void what_was_retired_is_used_again_in_time(void **state)
{
    struct pool_rig r;
    gaddr first[SOME], again[SOME];

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    for (unsigned i = 0; i < SOME; i++)
        assert_int_equal(pool_alloc(&r.op, 0, 3, &first[i]), FAR_OK);
    uint64_t held = puppet_held_bytes(&r.client), epoch = puppet_epoch_seen(&r.client);
    for (unsigned i = 0; i < SOME; i++)
        pool_retire(&r.client, first[i], 3);
    assert_true(puppet_retired_bytes(&r.client) == SOME * size_class_bytes(3));
    assert_true(puppet_held_bytes(&r.client) == held);
    assert_false(client_reclaim(&r.client));
    for (unsigned i = 0; puppet_epoch_seen(&r.client) < epoch + 3; i++) {
        assert_true(i < 100);
        assert_false(client_reclaim(&r.client));
        assert_int_equal(client_drive_epoch(&r.op), FAR_OK);
    }
    while (puppet_in_limbo(&r.client) > 0)
        assert_true(client_reclaim(&r.client));
    assert_true(puppet_retired_bytes(&r.client) == 0);
    assert_true(puppet_held_bytes(&r.client) == held + SOME * size_class_bytes(3));
    for (unsigned i = 0; i < SOME; i++)
        assert_int_equal(pool_alloc(&r.op, 0, 3, &again[i]), FAR_OK);
    qsort(first, SOME, sizeof *first, by_address);
    qsort(again, SOME, sizeof *again, by_address);
    assert_memory_equal(first, again, sizeof first);
    pool_rig_close(&r);
}

static void more_than_a_client_should_keep_is_there_for_others(void **state)
{
    enum { MANY = 4000 };
    static gaddr at[MANY];
    struct pool_rig r, other;
    gaddr got = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    assert_int_equal(pool_rig_join(&other, r.fab, 2), FAR_OK);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(pool_alloc(&r.op, 0, 3, &at[i]), FAR_OK);
    for (unsigned i = 0; i < MANY; i++) {
        pool_free_unpublished(&r.client, at[i], 3);
        assert_int_equal(client_upkeep(&r.op), FAR_OK);
    }
    uint64_t kept = puppet_held_bytes(&r.client);
    assert_true(kept < MANY * size_class_bytes(3) / 2);
    uint64_t chunks = pool_rig_get(&r, 0, NODE_NEXT_CHUNK_OFF);
    for (unsigned i = 0; i < MANY / 2; i++)
        assert_int_equal(pool_alloc(&other.op, 0, 3, &got), FAR_OK);
    assert_true(pool_rig_get(&r, 0, NODE_NEXT_CHUNK_OFF) == chunks);
    pool_rig_close(&other);
    pool_rig_close(&r);
}

static void a_given_back_object_serves_a_full_pool(void **state)
{
    struct pool_rig r;
    unsigned by_node[2] = {0}, size_class = size_class_for(300000);
    gaddr at = 0, other = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m&nodes=2");
    assert_int_equal(pool_alloc(&r.op, 0, size_class, &at), FAR_OK);
    exhaust(&r, 0, size_class, by_node);
    pool_free_unpublished(&r.client, at, size_class);
    assert_int_equal(pool_alloc(&r.op, 1, size_class, &other), FAR_OK);
    assert_true(other == at); /* asked for near node 1, found on node 0 */
    assert_int_equal(pool_alloc(&r.op, 0, size_class, &other), FAR_POOL_FULL);
    pool_rig_close(&r);
}

/* A look at the shared list, the chunk, its entry in the table. */
static void a_chunk_costs_three_round_trips_and_an_object_none(void **state)
{
    struct pool_rig r;
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    for (unsigned i = 0; i < 3 * (CHUNK_BYTES / 64); i++)
        assert_int_equal(pool_alloc(&r.op, 0, 0, &at), FAR_OK);
    assert_true(r.op.cost.rtts == 3 * 3);
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_gets_the_smallest_class_that_holds_it),
        cmocka_unit_test(classes_waste_at_most_a_fifth_above_the_smallest),
        cmocka_unit_test(chunks_in_a_row_are_a_run),
        cmocka_unit_test(objects_of_all_classes_and_nodes_never_overlap),
        cmocka_unit_test(clients_never_get_the_same_object),
        cmocka_unit_test(threads_share_a_pool_down_to_its_last_chunk),
        cmocka_unit_test(every_chunk_below_the_counter_has_an_entry),
        cmocka_unit_test(a_full_node_sends_to_the_others),
        cmocka_unit_test(a_smaller_request_fits_after_a_large_one_failed),
        cmocka_unit_test(an_object_that_does_not_divide_a_chunk_stays_within_it),
        cmocka_unit_test(operations_that_find_no_memory_fetch_one_chunk),
        cmocka_unit_test(an_operation_that_pauses_lets_others_run_if_the_clock_is_slow),
        cmocka_unit_test(operations_that_wait_for_fetches_get_memory_in_the_end),
        cmocka_unit_test(the_end_of_a_fetch_wakes_those_that_wait),
        cmocka_unit_test(operations_that_wait_for_a_fetch_that_fails_fail_too),
        cmocka_unit_test(a_call_does_not_wait_for_a_fetch_on_the_ring),
        cmocka_unit_test(operations_that_fetch_a_chunk_each_keep_all_of_both),
        cmocka_unit_test(the_last_chunk_serves_all_who_asked_for_it),
        cmocka_unit_test(what_was_given_back_is_used_first),
        cmocka_unit_test(what_was_retired_is_used_again_in_time),
        cmocka_unit_test(more_than_a_client_should_keep_is_there_for_others),
        cmocka_unit_test(a_given_back_object_serves_a_full_pool),
        cmocka_unit_test(a_chunk_costs_three_round_trips_and_an_object_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
