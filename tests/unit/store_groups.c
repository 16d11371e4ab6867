/* Groups of changes of one key: who joins whom, who is done, and who goes to far memory. One thread
 * has several sessions, and each goes on only when the test says so. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define URI       "mem:?size=64m&defer=1&groups=1"
#define SESSIONS  4
#define FEW_STEPS 30    /* more than the verbs of an operation take */
#define STEPS     20000 /* more than an operation takes, unless it waits for ever */

enum { A, B, C, D }; /* the sessions */

struct rig {
    struct store_rig store;
    far_session *session[SESSIONS];
    uint64_t key[2];
    uint64_t value[SESSIONS]; /* what each session writes: its number, and more */
};

static void open_rig(struct rig *r, unsigned words, unsigned spares)
{
    struct far_session_options options = {.depth = 1, .seed = 5};
    struct knobs knobs = pool_knobs_default;
    memset(r, 0, sizeof *r);
    knobs.group_words = words;
    knobs.group_spares = spares;
    store_rig_open_driven(&r->store, URI, &knobs, &options, NULL);
    for (unsigned i = 0; i < SESSIONS; i++) {
        options.seed = 10 + i;
        assert_int_equal(far_session_open(r->store.pool, &options, &r->session[i]), FAR_OK);
        r->value[i] = 100 + i;
    }
    r->key[0] = 1;
    r->key[1] = 2;
}

static void close_rig(struct rig *r)
{
    for (unsigned i = 0; i < SESSIONS; i++)
        far_session_close(r->session[i]);
    store_rig_close(&r->store);
}

static enum far_decision add_one(void *arg, const void *old, size_t old_len, const void **value,
                                 size_t *value_len)
{
    uint64_t *sum = arg;
    assert_int_equal(old_len, 8);
    memcpy(sum, old, 8);
    ++*sum;
    *value = sum;
    *value_len = 8;
    return FAR_STORE;
}

/* Begins a change. It runs until it has posted its first verb, or waits for another one. */
static void begin_on(struct rig *r, unsigned who, enum far_op_kind kind, unsigned key)
{
    static uint64_t sum[SESSIONS];
    struct far_op op = {.kind = kind,
                        .table = r->store.table,
                        .key = &r->key[key],
                        .key_len = 8,
                        .value = &r->value[who],
                        .value_len = 8,
                        .modify = add_one,
                        .modify_arg = &sum[who]};
    assert_int_equal(far_submit(r->session[who], &op), FAR_OK);
}

static void begin(struct rig *r, unsigned who, enum far_op_kind kind)
{
    begin_on(r, who, kind, 0);
}

/* Lets a session go on. False: its operation has not ended within so many steps. */
static bool goes_on(struct rig *r, unsigned who, unsigned steps, int *status)
{
    struct far_result result;
    for (unsigned i = 0; i < steps; i++) {
        if (far_reap(r->session[who], &result, 1, 0) == 1) {
            *status = result.status;
            return true;
        }
        store_rig_pass(&r->store, 100);
    }
    return false;
}

static int end(struct rig *r, unsigned who)
{
    int status = FAR_INVALID;
    assert_true(goes_on(r, who, STEPS, &status));
    return status;
}

/* The same, but the operation must not wait for another one. */
static int end_at_once(struct rig *r, unsigned who)
{
    int status = FAR_INVALID;
    assert_true(goes_on(r, who, FEW_STEPS, &status));
    return status;
}

/* The session has changed the key before, so the key counts as hot. */
static void make_hot(struct rig *r, bool present)
{
    for (unsigned i = 0; i < SESSIONS; i++) {
        begin(r, i, FAR_OP_PUT);
        assert_int_equal(end(r, i), FAR_OK);
        begin_on(r, i, FAR_OP_PUT, 1);
        assert_int_equal(end(r, i), FAR_OK);
        begin(r, i, FAR_OP_PUT);
        assert_int_equal(end(r, i), FAR_OK);
    }
    if (!present)
        assert_int_equal(far_delete(r->store.session, r->store.table, &r->key[0], 8), FAR_OK);
}

/* The rig, with a key that is hot to all sessions. */
static void open_hot(struct rig *r, unsigned words, unsigned spares, bool present)
{
    open_rig(r, words, spares);
    make_hot(r, present);
}

/* A goes to far memory, B waits for it, and C finds B. */
static void meet(struct rig *r, enum far_op_kind a, enum far_op_kind b, enum far_op_kind c)
{
    begin(r, A, a);
    begin(r, B, b);
    begin(r, C, c);
}

static void all_end(struct rig *r, int a, int b, int c)
{
    assert_int_equal(end(r, A), a);
    assert_int_equal(end(r, B), b);
    assert_int_equal(end(r, C), c);
}

static uint64_t value_of(struct rig *r, unsigned key)
{
    uint64_t value = 0;
    size_t len = 0;
    int rc = far_get(r->store.session, r->store.table, &r->key[key], 8, &value, 8, &len);
    return rc == FAR_OK ? value : 0;
}

static uint64_t joined(struct rig *r, unsigned who)
{
    struct far_stats stats;
    far_stats(r->session[who], r->store.table, &stats);
    uint64_t sum = 0;
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        sum += stats.op[k].joined;
    return sum;
}

static void a_follower_is_done_with_its_leader(void **state)
{
    static const enum far_op_kind kinds[][2] = {
        {FAR_OP_UPDATE, FAR_OP_UPDATE}, {FAR_OP_PUT, FAR_OP_PUT}, {FAR_OP_UPDATE, FAR_OP_PUT}};
    (void)state;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct rig r;
        struct far_stats before, after;
        open_hot(&r, 4096, 3, true);
        far_stats(r.session[C], r.store.table, &before);
        meet(&r, FAR_OP_UPDATE, kinds[i][0], kinds[i][1]);
        assert_int_equal(end(&r, A), FAR_OK);
        assert_int_equal(value_of(&r, 0), r.value[A]); /* B has waited */
        assert_int_equal(end(&r, B), FAR_OK);
        assert_int_equal(end(&r, C), FAR_OK);
        assert_int_equal(value_of(&r, 0), r.value[B]);
        far_stats(r.session[C], r.store.table, &after);
        assert_int_equal(joined(&r, C), 1);
        assert_int_equal(after.op[kinds[i][1]].count, before.op[kinds[i][1]].count + 1);
        assert_int_equal(after.op[kinds[i][1]].rtts, before.op[kinds[i][1]].rtts);
        assert_int_equal(joined(&r, A) + joined(&r, B), 0);
        close_rig(&r);
    }
}

static void nobody_joins_a_leader_that_has_gone_to_far_memory(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, true);
    begin(&r, A, FAR_OP_UPDATE);
    begin(&r, B, FAR_OP_UPDATE);
    assert_int_equal(end(&r, A), FAR_OK);
    int status;
    while (r.session[B]->slot[0].op.batch.wake_at != 0) /* until it has posted */
        assert_false(goes_on(&r, B, 1, &status));
    begin(&r, C, FAR_OP_UPDATE);
    assert_int_equal(end(&r, B), FAR_OK);
    assert_int_equal(end(&r, C), FAR_OK);
    assert_int_equal(value_of(&r, 0), r.value[C]);
    assert_int_equal(joined(&r, B) + joined(&r, C), 0);
    close_rig(&r);
}

/* The put may add the key: then an update right before it would have found nothing. */
static void an_update_does_not_join_a_put(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, false);
    meet(&r, FAR_OP_UPDATE, FAR_OP_PUT, FAR_OP_UPDATE);
    all_end(&r, FAR_NOT_FOUND, FAR_OK, FAR_OK);
    assert_int_equal(value_of(&r, 0), r.value[C]);
    close_rig(&r);
}

static void updates_that_follow_find_nothing_but_puts_do_not_care(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, false);
    meet(&r, FAR_OP_UPDATE, FAR_OP_UPDATE, FAR_OP_UPDATE);
    begin(&r, D, FAR_OP_PUT);
    all_end(&r, FAR_NOT_FOUND, FAR_NOT_FOUND, FAR_NOT_FOUND);
    assert_int_equal(joined(&r, C), 1);
    assert_int_equal(value_of(&r, 0), 0);
    assert_int_equal(end(&r, D), FAR_OK);
    assert_int_equal(joined(&r, D), 0);
    assert_int_equal(value_of(&r, 0), r.value[D]);
    close_rig(&r);
}

static void inserts_deletes_and_modifies_do_not_join(void **state)
{
    static const struct {
        enum far_op_kind kind;
        int status;
        uint64_t value; /* afterwards */
    } cases[] = {{FAR_OP_INSERT, FAR_EXISTS, 100 + B},
                 {FAR_OP_DELETE, FAR_OK, 0},
                 {FAR_OP_MODIFY, FAR_OK, 100 + B + 1}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r;
        open_hot(&r, 4096, 3, true);
        meet(&r, FAR_OP_UPDATE, FAR_OP_UPDATE, cases[i].kind);
        all_end(&r, FAR_OK, FAR_OK, cases[i].status);
        assert_int_equal(value_of(&r, 0), cases[i].value);
        close_rig(&r);
    }
}

/* If it did, the insert would have found the put's value. */
static void nobody_joins_an_insert_or_a_modify(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, false);
    meet(&r, FAR_OP_UPDATE, FAR_OP_INSERT, FAR_OP_PUT);
    all_end(&r, FAR_NOT_FOUND, FAR_OK, FAR_OK);
    assert_int_equal(value_of(&r, 0), r.value[C]);
    meet(&r, FAR_OP_UPDATE, FAR_OP_MODIFY, FAR_OP_PUT);
    all_end(&r, FAR_OK, FAR_OK, FAR_OK);
    assert_int_equal(value_of(&r, 0), r.value[C]);
    assert_int_equal(joined(&r, C), 0);
    close_rig(&r);
}

static int refuse(struct fab_ep *ep, struct fab_req *req)
{
    (void)ep;
    (void)req;
    return err_fail(FAR_UNREACHABLE, "refused by the test");
}

static void a_follower_of_a_leader_that_fails_executes_itself(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, true);
    meet(&r, FAR_OP_UPDATE, FAR_OP_UPDATE, FAR_OP_UPDATE);
    assert_int_equal(end(&r, A), FAR_OK);
    int (*post)(struct fab_ep *, struct fab_req *) = r.store.clock->ops.post;
    r.store.clock->ops.post = refuse;
    assert_int_equal(end(&r, B), FAR_UNREACHABLE);
    r.store.clock->ops.post = post;
    assert_int_equal(end(&r, C), FAR_OK);
    assert_int_equal(value_of(&r, 0), r.value[C]);
    assert_int_equal(joined(&r, C), 0);
    close_rig(&r);
}

/* And nobody joins the leader any more that it has lost patience with. */
static void a_follower_that_loses_patience_executes_itself(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, true);
    begin(&r, A, FAR_OP_UPDATE); /* and stands still */
    begin(&r, B, FAR_OP_UPDATE); /* so does this one, in the queue */
    begin(&r, C, FAR_OP_UPDATE);
    assert_int_equal(end(&r, C), FAR_OK);
    assert_int_equal(joined(&r, C), 0);
    assert_int_equal(value_of(&r, 0), r.value[C]);
    begin(&r, D, FAR_OP_UPDATE);
    assert_int_equal(end_at_once(&r, D), FAR_OK);
    assert_int_equal(value_of(&r, 0), r.value[D]);
    (void)end(&r, A); /* it may be overwritten by those */
    assert_int_equal(end(&r, B), FAR_OK);
    close_rig(&r);
}

/* A leader that stood still for a second does not make others wait for seconds. */
static void one_slow_leader_makes_nobody_patient(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, true);
    begin(&r, A, FAR_OP_UPDATE);
    store_rig_pass(&r.store, 1000000000);
    assert_int_equal(end(&r, A), FAR_OK);
    begin(&r, A, FAR_OP_UPDATE); /* and stands still again */
    begin(&r, B, FAR_OP_UPDATE);
    assert_int_equal(end(&r, B), FAR_OK);
    (void)end(&r, A);
    close_rig(&r);
}

static void groups_of_two_keys_share_a_word(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 1, 3, true);
    begin(&r, A, FAR_OP_UPDATE);
    begin(&r, B, FAR_OP_UPDATE);
    begin_on(&r, C, FAR_OP_UPDATE, 1);
    all_end(&r, FAR_OK, FAR_OK, FAR_OK);
    assert_int_equal(value_of(&r, 1), r.value[C]);
    assert_int_equal(value_of(&r, 0), r.value[B]);
    close_rig(&r);
}

/* B has one record. When C looks, it is that of a group whose leader took effect, but of another
 * key. */
static void a_record_that_is_used_again_says_nothing(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 0, false);
    meet(&r, FAR_OP_UPDATE, FAR_OP_UPDATE, FAR_OP_PUT);
    assert_int_equal(end(&r, A), FAR_NOT_FOUND);
    assert_int_equal(end(&r, B), FAR_NOT_FOUND);
    begin_on(&r, B, FAR_OP_PUT, 1);
    assert_int_equal(end(&r, B), FAR_OK);
    assert_int_equal(end(&r, C), FAR_OK);
    assert_int_equal(joined(&r, C), 0);
    assert_int_equal(value_of(&r, 0), r.value[C]);
    close_rig(&r);
}

/* A session that never goes to far memory would lose its lease. */
static void a_session_whose_heartbeat_is_due_does_not_follow(void **state)
{
    struct rig r;
    (void)state;
    open_hot(&r, 4096, 3, true);
    store_rig_pass(&r.store, puppet_lease_ns(&r.session[A]->client) / 4);
    begin(&r, D, FAR_OP_UPDATE); /* it sends its heartbeat */
    assert_int_equal(end(&r, D), FAR_OK);
    begin(&r, A, FAR_OP_UPDATE);
    begin(&r, D, FAR_OP_UPDATE);
    begin(&r, C, FAR_OP_UPDATE);
    assert_int_equal(end_at_once(&r, C), FAR_OK);
    (void)end(&r, A);
    (void)end(&r, D);
    close_rig(&r);
}

static void long_keys_and_cold_keys_have_no_groups(void **state)
{
    struct rig r;
    char key[64] = "a key that is longer than the room for it in a record";
    (void)state;
    open_rig(&r, 4096, 3);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned s = 0; s < SESSIONS; s++)
            assert_int_equal(far_put(r.session[s], r.store.table, key, sizeof key, &r.value[s], 8),
                             FAR_OK);
    meet(&r, FAR_OP_PUT, FAR_OP_PUT, FAR_OP_PUT);
    assert_int_equal(end(&r, C), FAR_OK);
    assert_int_equal(end(&r, B), FAR_OK);
    assert_int_equal(end(&r, A), FAR_OK);
    for (unsigned s = 0; s < SESSIONS; s++)
        assert_int_equal(joined(&r, s), 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_follower_is_done_with_its_leader),
        cmocka_unit_test(nobody_joins_a_leader_that_has_gone_to_far_memory),
        cmocka_unit_test(an_update_does_not_join_a_put),
        cmocka_unit_test(updates_that_follow_find_nothing_but_puts_do_not_care),
        cmocka_unit_test(inserts_deletes_and_modifies_do_not_join),
        cmocka_unit_test(nobody_joins_an_insert_or_a_modify),
        cmocka_unit_test(a_follower_of_a_leader_that_fails_executes_itself),
        cmocka_unit_test(a_follower_that_loses_patience_executes_itself),
        cmocka_unit_test(one_slow_leader_makes_nobody_patient),
        cmocka_unit_test(groups_of_two_keys_share_a_word),
        cmocka_unit_test(a_record_that_is_used_again_says_nothing),
        cmocka_unit_test(a_session_whose_heartbeat_is_due_does_not_follow),
        cmocka_unit_test(long_keys_and_cold_keys_have_no_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
