/* The registry of clients: slots are taken once, run out, and come back; and what pool_info says.
 */
#include "support/pool_rig.h"

#include "store/store.h"

#include <pthread.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define SLOTS 5

static uint64_t slot_word(struct pool_rig *r, unsigned slot, size_t field)
{
    return pool_rig_get(r, 0, CLIENTS_OFF + slot * sizeof(struct client_slot) + field);
}

static void a_client_has_a_slot_of_its_own(void **state)
{
    struct pool_rig r[SLOTS];
    bool taken[SLOTS] = {false};

    (void)state;
    pool_rig_open(&r[0], "mem:?size=2m&clients=5");
    for (unsigned i = 1; i < SLOTS; i++)
        assert_int_equal(pool_rig_join(&r[i], r[0].fab, i + 1), FAR_OK);
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct client *c = &r[i].client;
        assert_in_range(c->slot, 0, SLOTS - 1);
        assert_false(taken[c->slot]);
        taken[c->slot] = true;
        assert_true(c->incarnation != 0);
        assert_true(slot_word(&r[0], c->slot, offsetof(struct client_slot, incarnation)) ==
                    c->incarnation);
        assert_true(slot_word(&r[0], c->slot, offsetof(struct client_slot, pid)) ==
                    (uint64_t)getpid());
    }
    for (unsigned i = SLOTS; i-- > 0;)
        pool_rig_close(&r[i]);
}

static void slots_run_out_and_are_used_again(void **state)
{
    struct pool_rig r[SLOTS], more;

    (void)state;
    pool_rig_open(&r[0], "mem:?size=2m&clients=5");
    for (unsigned i = 1; i < SLOTS; i++)
        assert_int_equal(pool_rig_join(&r[i], r[0].fab, i + 1), FAR_OK);
    assert_int_equal(pool_rig_join(&more, r[0].fab, 50), FAR_NO_CLIENT_SLOT);
    for (unsigned turn = 0; turn < 100; turn++) {
        unsigned i = 1 + turn % (SLOTS - 1), slot = r[i].client.slot;
        pool_rig_close(&r[i]);
        assert_true(slot_word(&r[0], slot, 0) == 0);
        assert_int_equal(pool_rig_join(&r[i], r[0].fab, 100 + turn), FAR_OK);
        assert_int_equal(r[i].client.slot, slot);
        assert_int_equal(pool_rig_join(&more, r[0].fab, 50), FAR_NO_CLIENT_SLOT);
    }
    for (unsigned i = SLOTS; i-- > 0;)
        pool_rig_close(&r[i]);
}

/* A client that was declared dead must not free the slot of the one that has it now. */
static void a_late_close_leaves_the_next_client_alone(void **state)
{
    struct pool_rig r, late;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m&clients=2");
    assert_int_equal(pool_rig_join(&late, r.fab, 2), FAR_OK);
    uint64_t off = CLIENTS_OFF + late.client.slot * sizeof(struct client_slot);
    pool_rig_set(&r, 0, off, 4711);
    pool_rig_close(&late);
    assert_true(pool_rig_get(&r, 0, off) == 4711);
    pool_rig_close(&r);
}

#define THREADS 6 /* for SLOTS slots, one of them taken: at least two are left out each time */
#define ROUNDS  50

struct comer {
    struct fab *fab;
    pthread_t thread;
    pthread_barrier_t *barrier;
    unsigned who;
    int rc[ROUNDS];
    unsigned slot[ROUNDS];
    uint64_t incarnation[ROUNDS];
};

static void *come_and_go(void *arg)
{
    struct comer *c = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct pool_rig r;
        pthread_barrier_wait(c->barrier);
        c->rc[i] = pool_rig_join(&r, c->fab, 1000 * i + c->who + 7);
        pthread_barrier_wait(c->barrier);
        if (c->rc[i] == FAR_OK) {
            c->slot[i] = r.client.slot;
            c->incarnation[i] = r.client.incarnation;
            pool_rig_close(&r);
        }
    }
    return NULL;
}

static void many_clients_that_come_at_once_share_what_there_is(void **state)
{
    static struct comer c[THREADS];
    struct pool_rig r;
    pthread_barrier_t barrier;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m&clients=5");
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (struct comer){.fab = r.fab, .barrier = &barrier, .who = i};
        assert_int_equal(pthread_create(&c[i].thread, NULL, come_and_go, &c[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(c[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (unsigned i = 0; i < ROUNDS; i++) {
        bool taken[SLOTS] = {false};
        unsigned in = 0;
        taken[r.client.slot] = true;
        for (unsigned who = 0; who < THREADS; who++) {
            if (c[who].rc[i] == FAR_OK) {
                assert_false(taken[c[who].slot[i]]);
                taken[c[who].slot[i]] = true;
                in++;
            } else {
                assert_int_equal(c[who].rc[i], FAR_NO_CLIENT_SLOT);
            }
        }
        assert_int_equal(in, SLOTS - 1);
    }
    pool_rig_close(&r);
}

static void info_adds_up(void **state)
{
    struct pool_rig r[2];
    struct far_pool_info info;
    struct table_desc d = {.name = "t", .index = "race"};
    gaddr at = 0;

    (void)state;
    pool_rig_open(&r[0], "mem:?size=4m&nodes=3&clients=7");
    assert_int_equal(pool_info(&r[0].op, &info), FAR_OK);
    assert_int_equal(info.nodes, 3);
    assert_int_equal(info.layout_version, POOL_LAYOUT_VERSION);
    assert_int_equal(info.clients, 1);
    assert_int_equal(info.clients_max, 7);
    assert_int_equal(info.tables, 0);
    assert_true(info.bytes_total == 3 * (4ull << 20));
    assert_true(info.bytes_allocated == 0);

    assert_int_equal(pool_rig_join(&r[1], r[0].fab, 2), FAR_OK);
    assert_int_equal(catalog_add(&r[1].op, &d), FAR_OK); /* one chunk for the descriptor */
    assert_int_equal(pool_alloc(&r[1].op, 2, size_class_for(200000), &at),
                     FAR_OK); /* four in a run */
    assert_int_equal(pool_info(&r[0].op, &info), FAR_OK);
    assert_int_equal(info.clients, 2);
    assert_int_equal(info.tables, 1);
    assert_true(info.bytes_allocated == 5 * CHUNK_BYTES);
    assert_true(info.bytes_free + info.bytes_allocated + info.bytes_metadata == info.bytes_total);
    pool_rig_close(&r[1]);
    assert_int_equal(pool_info(&r[0].op, &info), FAR_OK);
    assert_int_equal(info.clients, 1);
    pool_rig_close(&r[0]);
}

static void a_pool_needs_room_for_its_registry(void **state)
{
    struct fab *fab = NULL;
    struct pool pool;

    (void)state;
    assert_int_equal(fab_open("mem:?size=1m&clients=65536", &fab), FAR_OK);
    assert_int_equal(pool_open(fab, NULL, &pool), FAR_POOL_FULL);
    assert_true(fab->fresh); /* nothing was laid out */
    fab_close(fab);
    struct pool_rig r;
    pool_rig_open(&r, "mem:?size=48m&clients=65536"); /* a journal line each */
    assert_int_equal(r.pool.clients, 65536);
    pool_rig_close(&r);
}

/* The seed is the user's. Two sessions or two tables of the same number would be taken for one: a
 * memory node that has shut out the one would shut out the other. */
static void the_same_seed_does_not_give_the_same_name(void **state)
{
    struct far_session_options options = {.seed = 7};
    uint64_t incarnation[3], serial[3];
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        far_pool *pool = NULL;
        far_session *session = NULL;
        far_table *table = NULL;
        assert_int_equal(far_pool_open("mem:?size=2m", &pool), FAR_OK);
        assert_int_equal(far_session_open(pool, &options, &session), FAR_OK);
        assert_int_equal(far_table_create(session, "t", "race", NULL, &table), FAR_OK);
        incarnation[i] = session->client.incarnation;
        serial[i] = table->index.desc.serial;
        far_session_close(session);
        far_pool_close(pool);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_true(incarnation[i] != incarnation[(i + 1) % 3]);
        assert_true(serial[i] != serial[(i + 1) % 3]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_has_a_slot_of_its_own),
        cmocka_unit_test(slots_run_out_and_are_used_again),
        cmocka_unit_test(a_late_close_leaves_the_next_client_alone),
        cmocka_unit_test(many_clients_that_come_at_once_share_what_there_is),
        cmocka_unit_test(info_adds_up),
        cmocka_unit_test(a_pool_needs_room_for_its_registry),
        cmocka_unit_test(the_same_seed_does_not_give_the_same_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
