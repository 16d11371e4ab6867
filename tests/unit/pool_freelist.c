/* Shared free lists: what one client gives, one other takes; damage is reported. */
#include "support/hook.h"
#include "support/pool_rig.h"
#include "support/probe.h"
#include "support/puppet.h"

#include <pthread.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define BUNDLE    62 /* objects in a bundle */
#define HEAD(cls) (NODE_FREE_OFF + (cls)*8)
#define GADDR     ((1ull << GADDR_BITS) - 1)

/* Takes `count` objects of a class into the client's stock of reusable ones. */
static void stock_up(struct pool_rig *r, unsigned node, unsigned size_class, unsigned count)
{
    gaddr *at = calloc(count, sizeof *at);
    assert_non_null(at);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pool_alloc(&r->op, node, size_class, &at[i]), FAR_OK);
    for (unsigned i = 0; i < count; i++)
        pool_free_unpublished(&r->client, at[i], size_class);
    free(at);
}

static void a_bundle_changes_hands(void **state)
{
    struct pool_rig r, other;
    static const unsigned classes[] = {0, 3, 7, 20, CLASS_COUNT - 1};

    (void)state;
    for (unsigned i = 0; i < sizeof classes / sizeof *classes; i++) {
        unsigned size_class = classes[i];
        gaddr given[3], got[3];
        uint64_t listed = 0;
        pool_rig_open(&r, "mem:?size=16m&nodes=2");
        assert_int_equal(pool_rig_join(&other, r.fab, 2), FAR_OK);
        stock_up(&r, 1, 7, 1); /* a page */
        for (unsigned n = 0; n < 3; n++)
            assert_int_equal(pool_alloc(&r.op, 1, size_class, &given[n]), FAR_OK);
        for (unsigned n = 0; n < 3; n++)
            pool_free_unpublished(&r.client, given[n], size_class);
        /* The page is one of them, if they are large enough. */
        uint64_t before = puppet_held_bytes(&r.client), page = size_class < 7 ? 512 : 0;
        uint64_t objects = puppet_kept(&r.client, 1, size_class);
        while (puppet_kept(&r.client, 1, size_class) > 0)
            assert_int_equal(client_give(&r.op, 1, size_class), FAR_OK);
        assert_true(puppet_held_bytes(&r.client) ==
                    before - objects * size_class_bytes(size_class) - page);
        assert_int_equal(freelist_bytes(&r.op, UINT64_MAX, &listed), FAR_OK);
        assert_true(listed == objects * size_class_bytes(size_class) + page);

        assert_int_equal(freelist_take(&other.op, 0, size_class), FAR_POOL_FULL); /* another node */
        assert_int_equal(freelist_take(&other.op, 1, size_class + (i ? -1u : 1u)), FAR_POOL_FULL);
        while (puppet_held_bytes(&other.client) < listed)
            assert_int_equal(freelist_take(&other.op, 1, size_class), FAR_OK);
        assert_true(puppet_held_bytes(&other.client) ==
                    objects * size_class_bytes(size_class) + page);
        assert_int_equal(freelist_take(&other.op, 1, size_class), FAR_POOL_FULL);
        assert_int_equal(freelist_bytes(&r.op, UINT64_MAX, &listed), FAR_OK);
        assert_true(listed == 0);
        for (unsigned n = 0; n < 3; n++) {
            unsigned same = 0;
            assert_int_equal(pool_alloc(&other.op, 1, size_class, &got[n]), FAR_OK);
            for (unsigned k = 0; k < 3; k++)
                same += given[k] == got[n];
            assert_true(same == 1 || size_class == 7); /* there the page is one of them */
        }
        pool_rig_close(&other);
        pool_rig_close(&r);
    }
}

/* A client that has freed much of several sizes, on several nodes, passes all of it on while it
 * works. */
static void surplus_of_every_node_and_class_is_passed_on(void **state)
{
    static const unsigned classes[] = {3, 7, 16, 24, RUN_CLASS, CLASS_COUNT - 16};
    struct pool_rig r;
    (void)state;
    pool_rig_open(&r, "mem:?size=64m&nodes=4");
    for (unsigned node = 0; node < 4; node++)
        for (unsigned i = 0; i < sizeof classes / sizeof *classes; i++)
            stock_up(&r, node, classes[i], 2 * stock_max(&r.client, classes[i]));
    for (unsigned turn = 0; turn < 2000; turn++) { /* far more than it takes */
        assert_int_equal(op_begin(&r.op, NULL), FAR_OK);
        assert_int_equal(client_upkeep(&r.op), FAR_OK);
        op_end(&r.op);
    }
    for (unsigned node = 0; node < 4; node++)
        for (unsigned i = 0; i < CLASS_COUNT; i++)
            assert_true(puppet_kept(&r.client, node, i) <= stock_max(&r.client, i));
    pool_rig_close(&r);
}

/* A client that leaves gives everything back: the next one takes no chunk. */
static void a_client_that_leaves_takes_nothing_along(void **state)
{
    struct pool_rig keeper, r;
    struct far_pool_usage usage;

    (void)state;
    pool_rig_open(&keeper, "mem:?size=32m&nodes=2");
    for (unsigned turn = 0; turn < 3; turn++) {
        uint64_t chunks[2];
        for (unsigned node = 0; node < 2; node++)
            chunks[node] = pool_rig_get(&keeper, node, NODE_NEXT_CHUNK_OFF);
        assert_int_equal(pool_rig_join(&r, keeper.fab, turn + 2), FAR_OK);
        for (unsigned size_class = 0; size_class < 30; size_class++)
            for (unsigned node = 0; node < 2; node++)
                stock_up(&r, node, size_class, 40);
        for (unsigned node = 0; node < 2 && turn > 0; node++)
            assert_true(pool_rig_get(&keeper, node, NODE_NEXT_CHUNK_OFF) == chunks[node]);
        pool_rig_close(&r);
        assert_true(pool_rig_get(&keeper, 0, PROBE_CONTROL(deaths)) == 0);
        assert_int_equal(pool_usage(&keeper.op, &usage), FAR_OK);
        assert_true(usage.unknown == 0); /* not an object, not a page */
        assert_true(usage.live == 0 && usage.retired == 0);
    }
    pool_rig_close(&keeper);
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define CLIENTS 4
#define OBJECTS 2000

/* Who has an object: 0 nobody, else 1 + the client. By address: all are on node 0. */
struct market {
    unsigned size_class;
    uint8_t *owner;
};

static void market_open(struct market *m, struct pool_rig *r, unsigned size_class)
{
    m->size_class = size_class;
    assert_non_null(m->owner = calloc(1, r->pool.head[0].size / 64));
}

/* Takes and gives at random. No object that is allocated may have an owner already. */
static int trade(struct pool_rig *r, struct market *m, unsigned who, uint64_t seed, unsigned turns)
{
    struct rng rng;
    gaddr *mine = calloc(OBJECTS, sizeof *mine);
    unsigned count = 0;
    int rc = mine ? FAR_OK : FAR_NO_MEMORY;

    rng_seed(&rng, seed);
    for (unsigned i = 0; i < turns && rc == FAR_OK; i++) {
        unsigned n = (unsigned)rng_below(&rng, 80);
        if (rng_below(&rng, 2) == 0) {
            for (; n > 0 && count < OBJECTS && rc == FAR_OK; n--) {
                gaddr at = 0;
                rc = pool_alloc(&r->op, 0, m->size_class, &at);
                if (rc != FAR_OK)
                    break;
                if (__atomic_exchange_n(&m->owner[at], 1 + who, __ATOMIC_RELAXED) != 0)
                    rc = FAR_CORRUPT; /* handed out twice */
                mine[count++] = at;
            }
            rc = rc == FAR_POOL_FULL ? FAR_OK : rc;
        } else {
            for (; n > 0 && count > 0; n--) {
                gaddr at = mine[--count];
                __atomic_store_n(&m->owner[at], 0, __ATOMIC_RELAXED);
                pool_free_unpublished(&r->client, at, m->size_class);
            }
            while (rc == FAR_OK && puppet_kept(&r->client, 0, m->size_class) > 100)
                rc = client_give(&r->op, 0, m->size_class);
        }
    }
    while (count > 0) {
        gaddr at = mine[--count];
        __atomic_store_n(&m->owner[at], 0, __ATOMIC_RELAXED);
        pool_free_unpublished(&r->client, at, m->size_class);
    }
    free(mine);
    return rc;
}

/* When all have left, the lists have every object of every chunk, once. */
static void expect_all_there(struct pool_rig *r, struct market *m)
{
    struct far_pool_usage usage;
    assert_int_equal(pool_usage(&r->op, &usage), FAR_OK);
    assert_true(usage.unknown == 0);
    uint64_t chunks = pool_rig_get(r, 0, NODE_NEXT_CHUNK_OFF), seen = 0, slabs = 0;
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t entry = pool_rig_get(r, 0, r->pool.head[0].table_off + i * 8);
        slabs += (entry >> 8 & 0xff) == m->size_class;
    }
    uint64_t objects = slabs * (CHUNK_BYTES / size_class_bytes(m->size_class));
    memset(m->owner, 0, r->pool.head[0].size / 64);
    for (; seen < objects; seen++) {
        gaddr at = 0;
        assert_int_equal(pool_alloc(&r->op, 0, m->size_class, &at), FAR_OK);
        assert_int_equal(m->owner[at], 0);
        m->owner[at] = 1;
    }
    if (m->size_class != 7) /* pages come from there */
        assert_true(pool_rig_get(r, 0, NODE_NEXT_CHUNK_OFF) == chunks);
}

static void clients_that_take_turns_lose_nothing(void **state)
{
    static const unsigned classes[] = {0, 5, 7, 12};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct pool_rig r[CLIENTS];
        struct market m;
        pool_rig_open(&r[0], "mem:?size=32m");
        for (unsigned c = 1; c < CLIENTS; c++)
            assert_int_equal(pool_rig_join(&r[c], r[0].fab, c + 1), FAR_OK);
        market_open(&m, &r[0], classes[i]);
        for (unsigned turn = 0; turn < 200; turn++)
            assert_int_equal(trade(&r[turn % CLIENTS], &m, turn % CLIENTS, turn, 10), FAR_OK);
        for (unsigned c = CLIENTS; c-- > 1;)
            pool_rig_close(&r[c]);
        expect_all_there(&r[0], &m);
        free(m.owner);
        pool_rig_close(&r[0]);
    }
}

struct trader {
    struct pool_rig rig;
    struct market *market;
    pthread_t thread;
    unsigned who;
    int rc;
};

static void *trade_on_a_thread(void *arg)
{
    struct trader *t = arg;
    t->rc = trade(&t->rig, t->market, t->who, t->who + 77, 400);
    return NULL;
}

static void threads_lose_nothing(void **state)
{
    static struct trader t[CLIENTS];
    struct pool_rig r;
    struct market m;

    (void)state;
    pool_rig_open(&r, "mem:?size=32m");
    market_open(&m, &r, 2);
    for (unsigned i = 0; i < CLIENTS; i++) {
        t[i].market = &m;
        t[i].who = i;
        assert_int_equal(pool_rig_join(&t[i].rig, r.fab, i + 2), FAR_OK);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&t[i].thread, NULL, trade_on_a_thread, &t[i]), 0);
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(t[i].thread, NULL);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(t[i].rc, FAR_OK);
        pool_rig_close(&t[i].rig);
    }
    expect_all_there(&r, &m);
    free(m.owner);
    pool_rig_close(&r);
}

/* ---- races and damage ------------------------------------------------------------------------ */

/* The head's tag: a list that has become the same again is not taken for unchanged. */
static void every_change_gives_another_head(void **state)
{
    struct pool_rig r;
    uint64_t seen[40];

    (void)state;
    pool_rig_open(&r, "mem:?size=4m");
    stock_up(&r, 0, 7, 1);
    stock_up(&r, 0, 0, 3);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(i % 2 ? freelist_take(&r.op, 0, 0) : client_give(&r.op, 0, 0), FAR_OK);
        seen[i] = pool_rig_get(&r, 0, HEAD(0));
        for (unsigned k = 0; k < i; k++)
            assert_true(seen[k] != seen[i]);
        assert_true((seen[i] & GADDR) == (i % 2 ? 0 : (seen[0] & GADDR)));
    }
    /* The tag wraps around without touching the address. */
    assert_true(freelist_head(UINT64_MAX, 5) == 5);
    assert_true(freelist_head(5, 7) == (7 | 1ull << GADDR_BITS));
    pool_rig_close(&r);
}

/* Another client changes the list before each CAS of this one. */
static unsigned head_of_others;

static int post_behind_another(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[req->count - 1];
    if (v->kind == FAB_CAS && v->off == HEAD(7)) {
        struct fab_verb change = {.kind = FAB_FAA, .node = v->node, .off = v->off, .len = 8};
        struct fab_req one = {.verbs = &change, .count = 1};
        uint64_t old;
        change.buf = &old;
        change.swap = 1ull << GADDR_BITS; /* the tag */
        hook_run(ep, &one);
        head_of_others++;
    }
    return hook.real->post(ep, req);
}

static void a_client_that_loses_all_races_keeps_what_it_has(void **state)
{
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=4m");
    stock_up(&r, 0, 7, 3);
    uint64_t held = puppet_held_bytes(&r.client);
    unsigned kept = puppet_kept(&r.client, 0, 7);
    head_of_others = 0;
    hook_on(r.client.ep);
    hook.ops.post = post_behind_another;
    assert_int_equal(client_give(&r.op, 0, 7), FAR_CONTENTION);
    hook_off();
    assert_true(head_of_others > 8);
    assert_int_equal(puppet_kept(&r.client, 0, 7), kept);
    assert_true(puppet_held_bytes(&r.client) == held);
    pool_rig_close(&r);
}

static void a_damaged_bundle_is_corrupt(void **state)
{
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=4m");
    stock_up(&r, 0, 7, 1);
    stock_up(&r, 0, 0, 3);
    assert_int_equal(client_give(&r.op, 0, 0), FAR_OK);
    gaddr page = pool_rig_get(&r, 0, HEAD(0)) & GADDR;
    pool_rig_set(&r, gaddr_node(page), gaddr_offset(page) + 8, BUNDLE + 1);
    uint64_t held = puppet_held_bytes(&r.client);
    assert_int_equal(freelist_take(&r.op, 0, 0), FAR_CORRUPT);
    assert_true(puppet_held_bytes(&r.client) == held);

    pool_rig_set(&r, 0, HEAD(0), GADDR & ~(0xffull << GADDR_UNIT_BITS)); /* the end of node 0 */
    assert_int_equal(freelist_take(&r.op, 0, 0), FAR_CORRUPT);
    uint64_t listed = 0;
    assert_int_equal(freelist_bytes(&r.op, UINT64_MAX, &listed), FAR_OK); /* does not run past it */
    pool_rig_close(&r);
}

/* A list that leads round in a circle, as one that changes while it is walked may seem to. */
static void a_walk_of_a_list_ends(void **state)
{
    struct pool_rig r;
    uint64_t listed = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=1m");
    stock_up(&r, 0, 7, 1);
    stock_up(&r, 0, 0, 3);
    assert_int_equal(client_give(&r.op, 0, 0), FAR_OK);
    gaddr page = pool_rig_get(&r, 0, HEAD(0)) & GADDR;
    pool_rig_set(&r, 0, gaddr_offset(page), page);
    assert_int_equal(freelist_bytes(&r.op, UINT64_MAX, &listed), FAR_OK);
    pool_rig_set(&r, 0, gaddr_offset(page), 0);
    pool_rig_close(&r);
}

/* Else pieces would be cut from memory that belongs to others. */
static void no_run_is_too_short(void **state)
{
    struct pool_rig r;
    unsigned size_class = 0, wanted = CLASS_COUNT - 2;

    (void)state;
    pool_rig_open(&r, "mem:?size=16m");
    pool_rig_set(&r, 0, HEAD(RUN_CLASS), gaddr_make(0, 1 << 20));
    pool_rig_set(&r, 0, HEAD(wanted - 1), gaddr_make(0, 1 << 20));
    uint64_t chunks = size_class_chunks(wanted);
    assert_int_equal(freelist_run_class(&r.op, 0, chunks, &size_class), FAR_POOL_FULL);
    pool_rig_set(&r, 0, HEAD(wanted), gaddr_make(0, 1 << 20));
    assert_int_equal(freelist_run_class(&r.op, 0, chunks, &size_class), FAR_OK);
    assert_int_equal(size_class, wanted);
    pool_rig_set(&r, 0, HEAD(RUN_CLASS), 0);
    pool_rig_set(&r, 0, HEAD(wanted - 1), 0);
    pool_rig_set(&r, 0, HEAD(wanted), 0);
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bundle_changes_hands),
        cmocka_unit_test(surplus_of_every_node_and_class_is_passed_on),
        cmocka_unit_test(a_client_that_leaves_takes_nothing_along),
        cmocka_unit_test(clients_that_take_turns_lose_nothing),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(every_change_gives_another_head),
        cmocka_unit_test(a_client_that_loses_all_races_keeps_what_it_has),
        cmocka_unit_test(a_damaged_bundle_is_corrupt),
        cmocka_unit_test(a_walk_of_a_list_ends),
        cmocka_unit_test(no_run_is_too_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
