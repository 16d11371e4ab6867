/* far_modify(): one atomic read-modify-write, at the price of an update. */
#include "support/hook.h"
#include "support/indexes.h"
#include "support/store_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* A callback with a fixed decision, which notes what it saw. */
struct fixed {
    enum far_decision decision;
    const void *value;
    size_t value_len;
    unsigned calls;
    bool present;
    size_t old_len;
    char old[64];
};

static enum far_decision obey(void *arg, const void *old, size_t old_len, const void **value,
                              size_t *value_len)
{
    struct fixed *t = arg;
    t->calls++;
    t->present = old != NULL;
    t->old_len = old_len;
    if (old && old_len <= sizeof t->old)
        memcpy(t->old, old, old_len);
    *value = t->value;
    *value_len = t->value_len;
    return t->decision;
}

static int modify(struct store_rig *r, const char *key, struct fixed *t)
{
    return far_modify(r->session, r->table, key, strlen(key), obey, t);
}

static void holds(struct store_rig *r, const char *key, const char *value)
{
    char got[64];
    size_t len = 0;
    int rc = far_get(r->session, r->table, key, strlen(key), got, sizeof got, &len);
    assert_int_equal(rc, value ? FAR_OK : FAR_NOT_FOUND);
    if (value) {
        assert_int_equal(len, strlen(value));
        assert_memory_equal(got, value, len);
    }
}

static void each_decision_is_carried_out(void **state)
{
    struct store_rig r;
    struct fixed keep = {.decision = FAR_KEEP}, remove = {.decision = FAR_REMOVE};
    struct fixed store = {.decision = FAR_STORE, .value = "new", .value_len = 3};
    struct fixed empty = {.decision = FAR_STORE};

    (void)state;
    store_rig_open(&r, "mem:?size=4m", NULL, NULL, NULL);
    assert_int_equal(modify(&r, "k", &keep), FAR_OK);
    assert_true(keep.calls == 1 && !keep.present);
    assert_int_equal(modify(&r, "k", &remove), FAR_OK);
    assert_false(remove.present);
    holds(&r, "k", NULL);
    assert_int_equal(modify(&r, "k", &store), FAR_OK);
    assert_false(store.present);
    holds(&r, "k", "new");
    assert_int_equal(modify(&r, "k", &keep), FAR_OK);
    assert_true(keep.present && keep.old_len == 3);
    assert_memory_equal(keep.old, "new", 3);
    assert_int_equal(modify(&r, "k", &empty), FAR_OK);
    holds(&r, "k", "");
    assert_int_equal(modify(&r, "k", &keep), FAR_OK);
    assert_true(keep.present && keep.old_len == 0); /* empty is not absent */
    assert_int_equal(modify(&r, "k", &remove), FAR_OK);
    assert_true(remove.present);
    holds(&r, "k", NULL);
    store_rig_close(&r);
}

static void bad_decisions_are_refused_and_nothing_is_done(void **state)
{
    struct store_rig r;
    struct fixed none = {.decision = (enum far_decision)7};
    struct fixed null = {.decision = FAR_STORE, .value = NULL, .value_len = 3};
    struct fixed longer = {.decision = FAR_STORE, .value = "x", .value_len = FAR_VALUE_MAX + 1};
    struct far_pool_check check;

    (void)state;
    store_rig_open(&r, "mem:?size=4m", NULL, NULL, NULL);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(modify(&r, "k", &none), FAR_INVALID);
        assert_int_equal(modify(&r, "k", &null), FAR_INVALID);
        assert_int_equal(modify(&r, "k", &longer), FAR_VALUE_SIZE);
        assert_int_equal(far_modify(r.session, r.table, "k", 1, NULL, NULL), FAR_INVALID);
        assert_int_equal(far_modify(r.session, r.table, "", 0, obey, &none), FAR_KEY_SIZE);
        assert_int_equal(far_modify(NULL, r.table, "k", 1, obey, &none), FAR_INVALID);
        holds(&r, "k", i ? "v" : NULL);
        assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK);
    }
    assert_int_equal(far_pool_check(r.session, false, NULL, NULL, &check), FAR_OK);
    assert_true(check.leaked_bytes == 0);
    store_rig_close(&r);
}

/* Cuts the old value in half, in place. */
static enum far_decision halve(void *arg, const void *old, size_t old_len, const void **value,
                               size_t *value_len)
{
    (void)arg;
    *value = old;
    *value_len = old_len / 2;
    return FAR_STORE;
}

static void the_new_value_may_be_part_of_the_old_one(void **state)
{
    struct store_rig r;
    size_t len = 100000, got_len = 0;
    char *value = malloc(len), *got = malloc(len);

    (void)state;
    store_rig_open(&r, "mem:?size=64m&nodes=2", NULL, NULL, NULL);
    for (size_t i = 0; i < len; i++)
        value[i] = (char)(i * 7 / 3);
    assert_int_equal(far_put(r.session, r.table, "k", 1, value, len), FAR_OK);
    while (len > 0) {
        assert_int_equal(far_modify(r.session, r.table, "k", 1, halve, NULL), FAR_OK);
        len /= 2;
        assert_int_equal(far_get(r.session, r.table, "k", 1, got, len, &got_len), FAR_OK);
        assert_int_equal(got_len, len);
        assert_memory_equal(got, value, len);
    }
    free(value);
    free(got);
    store_rig_close(&r);
}

static uint64_t rtts(struct store_rig *r, enum far_op_kind kind)
{
    struct far_stats stats;
    far_stats(r->session, r->table, &stats);
    return stats.op[kind].rtts;
}

/* Also where a node orders no more than InfiniBand does, and where the value goes elsewhere. */
static void it_costs_what_an_update_costs(void **state)
{
    static const char *const uris[] = {"mem:?size=16m", "mem:?size=16m&nodes=3",
                                       "mem:?size=16m&defer=1"};
    static const char *const tuning[] = {NULL, NULL,
                                         "hot=0"}; /* else an update looks for nothing */
    (void)state;
    for (unsigned u = 0; u < 3; u++) {
        struct store_rig r;
        struct fixed t = {.decision = FAR_STORE, .value = "0123456789", .value_len = 10};
        store_rig_open(&r, uris[u], NULL, &(struct far_session_options){.seed = 1},
                       &(struct far_table_options){.hash_seed = 1, .tuning = tuning[u]});
        r.fab->order = ORDER_IB;
        for (unsigned i = 0; i < 128; i++) /* so that memory of each node is at hand */
            assert_int_equal(far_put(r.session, r.table, &i, 4, "0123456789", 10), FAR_OK);
        uint64_t before = rtts(&r, FAR_OP_PUT);
        for (unsigned i = 1000; i < 1100; i++)
            assert_int_equal(far_put(r.session, r.table, &i, 4, "0123456789", 10), FAR_OK);
        uint64_t insert = rtts(&r, FAR_OP_PUT) - before;
        assert_int_equal(far_put(r.session, r.table, "k", 1, "v", 1), FAR_OK);
        for (unsigned i = 0; i < 100; i++) {
            assert_int_equal(far_update(r.session, r.table, "k", 1, "w", 1), FAR_OK);
            assert_int_equal(modify(&r, "k", &t), FAR_OK);
        }
        assert_true(rtts(&r, FAR_OP_MODIFY) == rtts(&r, FAR_OP_UPDATE));
        before = rtts(&r, FAR_OP_MODIFY);
        for (unsigned i = 2000; i < 2100; i++)
            assert_int_equal(far_modify(r.session, r.table, &i, 4, obey, &t), FAR_OK);
        assert_true(rtts(&r, FAR_OP_MODIFY) - before <= insert + insert / 20);
        store_rig_close(&r);
    }
}

/* Another session is faster: the callback sees what that one wrote. */
static struct {
    struct store_rig *rig;
    far_session *rival;
    unsigned turns;
} race;

static int post_behind_a_rival(struct fab_ep *ep, struct fab_req *req)
{
    bool decides = false;
    for (unsigned i = 0; i < req->count; i++)
        decides |= req->verbs[i].kind == FAB_CAS;
    if (decides && race.turns > 0) {
        char value[8];
        int len = snprintf(value, sizeof value, "r%u", race.turns--);
        if (race.turns % 3 == 1)
            assert_int_equal(far_delete(race.rival, race.rig->table, "k", 1), FAR_OK);
        else
            assert_int_equal(far_put(race.rival, race.rig->table, "k", 1, value, (size_t)len),
                             FAR_OK);
    }
    return hook.real->post(ep, req);
}

static void a_rival_makes_it_decide_again(void **state)
{
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=4m&lease=3600000", NULL, NULL, NULL);
    assert_int_equal(far_session_open(r.pool, NULL, &race.rival), FAR_OK);
    race.rig = &r;
    for (unsigned turns = 1; turns < 9; turns++) {
        struct fixed t = {
            .decision = turns % 2 ? FAR_STORE : FAR_REMOVE, .value = "mine", .value_len = 4};
        assert_int_equal(far_put(r.session, r.table, "k", 1, "old", 3), FAR_OK);
        hook_on(r.session->client.ep);
        hook.ops.post = post_behind_a_rival;
        race.turns = turns;
        assert_int_equal(modify(&r, "k", &t), FAR_OK);
        hook_off();
        assert_true(race.turns == 0 ? t.calls > 1 : t.calls > 0);
        assert_true(!t.present || memcmp(t.old, "r", 1) == 0 || race.turns > 0);
        holds(&r, "k", turns % 2 ? "mine" : NULL);
    }
    far_session_close(race.rival);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* ---- counters -------------------------------------------------------------------------------- */

static enum far_decision add_one(void *arg, const void *old, size_t len, const void **value,
                                 size_t *value_len)
{
    uint64_t *count = arg;
    *count = 0;
    if (old)
        memcpy(count, old, len);
    ++*count;
    *value = count;
    *value_len = sizeof *count;
    return FAR_STORE;
}

#define COUNTERS 3
#define THREADS  4
#define TURNS    (6000 / SLOWER)

static void *count(void *arg)
{
    struct store_rig *r = arg;
    far_session *s = NULL;
    uint64_t mine = 0;
    ASSERT(far_session_open(r->pool, NULL, &s) == FAR_OK);
    for (unsigned i = 0; i < TURNS; i++) {
        int rc = far_modify(s, r->table, &(char){(char)(i % COUNTERS)}, 1, add_one, &mine);
        ASSERT(rc == FAR_OK);
    }
    far_session_close(s);
    return NULL;
}

static void no_increment_of_many_threads_is_lost(void **state)
{
    struct store_rig r;
    pthread_t thread[THREADS];
    uint64_t total = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, count, &r), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (char key = 0; key < COUNTERS; key++) {
        uint64_t value = 0;
        assert_int_equal(far_get(r.session, r.table, &key, 1, &value, 8, NULL), FAR_OK);
        total += value;
    }
    assert_true(total == (uint64_t)THREADS * TURNS);
    store_rig_close(&r);
}

static void the_ring_modifies_too(void **state)
{
    struct store_rig r;
    uint64_t mine[16], value = 0;
    struct far_result result[16];

    (void)state;
    store_rig_open(&r, "mem:?size=16m&defer=1", NULL, &(struct far_session_options){.depth = 16},
                   NULL);
    for (unsigned turn = 0; turn < 50; turn++) {
        for (unsigned i = 0; i < 16; i++) {
            struct far_op op = {.kind = FAR_OP_MODIFY,
                                .table = r.table,
                                .key = "k",
                                .key_len = 1,
                                .modify = add_one,
                                .modify_arg = &mine[i]};
            assert_int_equal(far_submit(r.session, &op), FAR_OK);
        }
        for (unsigned n = 0; n < 16;) {
            unsigned got = far_reap(r.session, result, 16, 1);
            for (unsigned i = 0; i < got; i++)
                assert_int_equal(result[i].status, FAR_OK);
            n += got;
        }
    }
    assert_int_equal(far_get(r.session, r.table, "k", 1, &value, 8, NULL), FAR_OK);
    assert_true(value == 50 * 16);
    store_rig_close(&r);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_decision_is_carried_out),
        cmocka_unit_test(bad_decisions_are_refused_and_nothing_is_done),
        cmocka_unit_test(the_new_value_may_be_part_of_the_old_one),
        cmocka_unit_test(no_increment_of_many_threads_is_lost),
        cmocka_unit_test(the_ring_modifies_too),
    };
    /* The others may cost more, or wait for a rival that holds a lock. */
    const struct CMUnitTest of_race[] = {
        cmocka_unit_test(it_costs_what_an_update_costs),
        cmocka_unit_test(a_rival_makes_it_decide_again),
    };
    int failed = INDEXES_RUN(tests);
    return failed + cmocka_run_group_tests(of_race, NULL, NULL);
}
