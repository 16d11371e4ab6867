/* Changes of one process take turns at a leaf. One thread has several sessions, and each goes on
 * only when the test says so. All leaves share one queue. */
#include "index/chime/chime.h"
#include "pool/turns.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define URI      "mem:?size=16m&defer=1&groups=1"
#define SESSIONS 3
#define STEP_NS  100
#define STEPS    200000 /* more than an operation takes, unless it waits for ever */
#define KEYS     24     /* some leaves */

enum { A, B, C }; /* the sessions */

static struct {
    struct store_rig store;
    far_session *session[SESSIONS];
    far_table *table;
    _Atomic uint32_t *queue; /* the next ticket, and the one that is served */
    uint64_t key[SESSIONS], value;
} r;

static enum far_decision keep(void *arg, const void *old, size_t old_len, const void **value,
                              size_t *value_len)
{
    (void)arg, (void)old, (void)old_len, (void)value, (void)value_len;
    return FAR_KEEP;
}

static uint64_t *key_of(unsigned who, uint64_t number)
{
    r.key[who] = __builtin_bswap64(number);
    return &r.key[who];
}

/* Begins a change. It runs until it has posted its first verb, or waits. */
static void begin(unsigned who, enum far_op_kind kind, uint64_t number)
{
    struct far_op op = {.kind = kind,
                        .table = r.table,
                        .key = key_of(who, number),
                        .key_len = 8,
                        .value = &r.value,
                        .value_len = 8,
                        .modify = keep};
    assert_int_equal(far_submit(r.session[who], &op), FAR_OK);
}

/* Lets a session take this many steps. */
static bool goes_on(unsigned who, unsigned steps, int *status)
{
    struct far_result result;
    for (unsigned i = 0; i < steps; i++) {
        if (far_reap(r.session[who], &result, 1, 0) == 1) {
            *status = result.status;
            return true;
        }
        store_rig_pass(&r.store, STEP_NS);
    }
    return false;
}

static int end(unsigned who)
{
    int status = FAR_INVALID;
    assert_true(goes_on(who, STEPS, &status));
    return status;
}

static struct op *op_of(unsigned who)
{
    return &r.session[who]->slot[0].op;
}

/* Does nobody have a turn, or wait for one? */
static bool no_turns(void)
{
    return atomic_load(&r.queue[0]) == atomic_load(&r.queue[1]);
}

static int set_up(void **state)
{
    struct far_session_options options = {.depth = 1, .seed = 5};
    struct far_table_options table = {.tuning = "span=8&neighbourhood=4&cache=16&hot=0",
                                      .hash_seed = 3};
    struct knobs knobs = pool_knobs_default;
    struct turn turn;
    (void)state;
    memset(&r, 0, sizeof r);
    knobs.turn_queues = 1;
    knobs.group_words = 0;
    knobs.patience = 20;
    store_rig_open_driven(&r.store, URI, &knobs, &options, NULL);
    assert_int_equal(far_table_create(r.store.session, "c", "chime", &table, &r.table), FAR_OK);
    for (unsigned i = 0; i < SESSIONS; i++) {
        options.seed = 10 + i;
        assert_int_equal(far_session_open(r.store.pool, &options, &r.session[i]), FAR_OK);
    }
    for (uint64_t k = 1; k <= KEYS; k++) {
        begin(A, FAR_OP_PUT, 10 * k);
        assert_int_equal(end(A), FAR_OK);
    }
    for (unsigned i = 1; i < SESSIONS; i++) { /* they know the tree */
        begin(i, FAR_OP_UPDATE, 10);
        assert_int_equal(end(i), FAR_OK);
    }
    turn_take(&r.store.session->op, 1, &turn);
    r.queue = (_Atomic uint32_t *)(void *)turn.queue;
    turn_give(&r.store.session->op, &turn);
    assert_true(no_turns());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SESSIONS; i++)
        far_session_close(r.session[i]);
    store_rig_close(&r.store);
    return 0;
}

static void a_change_waits_for_its_turn_without_verbs(void **state)
{
    int status;
    (void)state;
    begin(A, FAR_OP_UPDATE, 10);
    begin(B, FAR_OP_UPDATE, 20);
    begin(C, FAR_OP_UPDATE, 10);
    assert_false(goes_on(B, 20, &status) || goes_on(C, 20, &status));
    assert_true(op_of(A)->cost.verbs > 0);
    assert_true(op_of(B)->cost.verbs == 0 && op_of(C)->cost.verbs == 0);
    for (unsigned i = 0; i < SESSIONS; i++) {
        assert_int_equal(end(i), FAR_OK);
        assert_int_equal(op_of(i)->cost.rtts, 2); /* nobody has met a lock */
    }
    assert_true(no_turns());
}

static void every_change_gives_its_turn(void **state)
{
    static const struct {
        enum far_op_kind kind;
        uint64_t key;
        int status;
    } cases[] = {{FAR_OP_UPDATE, 10, FAR_OK},        {FAR_OP_UPDATE, 11, FAR_NOT_FOUND},
                 {FAR_OP_INSERT, 10, FAR_EXISTS},    {FAR_OP_INSERT, 12, FAR_OK},
                 {FAR_OP_PUT, 13, FAR_OK},           {FAR_OP_DELETE, 12, FAR_OK},
                 {FAR_OP_DELETE, 12, FAR_NOT_FOUND}, {FAR_OP_MODIFY, 10, FAR_OK}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t tickets = atomic_load(&r.queue[0]);
        begin(A, cases[i].kind, cases[i].key);
        assert_false(no_turns());
        assert_int_equal(end(A), cases[i].status);
        assert_true(no_turns());
        assert_int_equal(atomic_load(&r.queue[0]), tickets + 1);
    }
    for (uint64_t k = 300; k < 400; k++) { /* splits */
        begin(A, FAR_OP_PUT, k);
        assert_int_equal(end(A), FAR_OK);
        assert_true(no_turns());
    }
    for (uint64_t k = 300; k < 400; k++) { /* merges; and B goes right, because of what it knows */
        begin(k % 2 ? A : B, FAR_OP_DELETE, k);
        assert_int_equal(end(k % 2 ? A : B), FAR_OK);
        assert_true(no_turns());
    }
}

static int refuse(struct fab_ep *ep, struct fab_req *req)
{
    (void)ep;
    (void)req;
    return err_fail(FAR_UNREACHABLE, "refused by the test");
}

static void a_change_that_fails_gives_its_turn(void **state)
{
    int (*post)(struct fab_ep *, struct fab_req *) = r.store.clock->ops.post;
    (void)state;
    for (unsigned steps = 0; steps < 3; steps++) { /* before it has the lock, and while it has it */
        int status = FAR_OK;
        begin(A, FAR_OP_UPDATE, 20);
        bool ended = goes_on(A, steps, &status);
        r.store.clock->ops.post = refuse;
        if (!ended)
            status = end(A);
        r.store.clock->ops.post = post;
        assert_true(no_turns());
        begin(A, FAR_OP_UPDATE, 200); /* it registers again, if it gave that up */
        (void)end(A);
        assert_true(no_turns());
    }
}

/* The leaf of a key, as B knows it. */
static gaddr leaf_of(uint64_t number)
{
    struct op *op = &r.session[B]->op;
    struct chime_bound bound = chime_key_bound((struct slice){key_of(B, number), 8});
    struct chime_wait wait = {0};
    struct chime_spot spot;
    struct chime_view *view = chime_view(store_known(r.session[B], r.table)->view);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(chime_descend(op, view, &bound, 0, true, &wait, &spot), FAR_OK);
    op_end(op);
    return spot.name.at;
}

/* A client of another process has the lock. As long as A looks at it, A has the turn; it has none
 * while it rests. */
static void a_change_that_rests_has_no_turn(void **state)
{
    uint64_t delta = offsetof(struct chime_head, lock), looks = 0;
    int status;
    (void)state;
    gaddr leaf = leaf_of(10);
    store_rig_set(&r.store, leaf, delta, client_owner_word(&r.session[C]->client));
    begin(A, FAR_OP_UPDATE, 10);
    assert_false(no_turns());
    for (; !no_turns() && looks < STEPS; looks++)
        assert_false(goes_on(A, 1, &status));
    assert_in_range(looks, 100, STEPS - 1); /* it has looked many times, and now it rests */
    store_rig_set(&r.store, leaf, delta, 0);
    assert_int_equal(end(A), FAR_OK);
    assert_true(no_turns());
}

/* A looks at a lock that another process has. B does not: it waits for A. */
static void one_of_a_process_looks_at_a_lock(void **state)
{
    uint64_t delta = offsetof(struct chime_head, lock);
    int status;
    (void)state;
    gaddr leaf = leaf_of(10);
    store_rig_set(&r.store, leaf, delta, client_owner_word(&r.session[C]->client));
    begin(A, FAR_OP_UPDATE, 10);
    begin(B, FAR_OP_UPDATE, 10);
    for (unsigned i = 0; i < 40; i++)
        assert_false(goes_on(A, 1, &status) || goes_on(B, 1, &status));
    assert_true(op_of(A)->cost.rtts > 2);
    assert_int_equal(op_of(B)->cost.rtts, 0);
    store_rig_set(&r.store, leaf, delta, 0);
    assert_int_equal(end(A), FAR_OK);
    assert_int_equal(end(B), FAR_OK);
    assert_int_equal(op_of(B)->cost.rtts, 2);
    assert_true(no_turns());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_change_waits_for_its_turn_without_verbs), TEST(every_change_gives_its_turn),
        TEST(a_change_that_fails_gives_its_turn),        TEST(a_change_that_rests_has_no_turn),
        TEST(one_of_a_process_looks_at_a_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
