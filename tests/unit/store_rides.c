/* Operations of one session on one key that go out as one change (ride.h). One session's update
 * goes to far memory first. The other session's operations meet while they wait for that. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define URI   "mem:?size=64m&defer=1&groups=1"
#define MOST  16
#define STEPS 20000 /* more than all operations take */

struct rig {
    struct store_rig store;
    far_session *first, *many;
    uint64_t key, value;
    unsigned count; /* operations of `many` */
    int status[MOST];
};

static struct far_op change_of(struct rig *r, enum far_op_kind kind, const void *value, size_t len)
{
    return (struct far_op){.kind = kind,
                           .table = r->store.table,
                           .key = &r->key,
                           .key_len = 8,
                           .value = value,
                           .value_len = len};
}

static void finish(far_session *s, struct rig *r, unsigned count)
{
    struct far_result result;
    for (unsigned i = 0; i < STEPS && count > 0; i++) {
        if (far_reap(s, &result, 1, 0) == 1) {
            r->status[result.user_data] = result.status;
            count--;
        }
        store_rig_pass(&r->store, 100);
    }
    assert_int_equal(count, 0);
}

static void submit(struct rig *r, struct far_op op)
{
    op.user_data = r->count++;
    assert_int_equal(far_submit(r->many, &op), FAR_OK);
}

static void put(far_session *s, struct rig *r, uint64_t key)
{
    assert_int_equal(far_put(s, r->store.table, &key, 8, &r->value, 8), FAR_OK);
}

/* Both sessions have changed the key a short while ago. The first one changes it again, and its
 * operation stays under way. */
static void open_rig(struct rig *r)
{
    struct far_session_options options = {.depth = MOST, .seed = 5};
    memset(r, 0, sizeof *r);
    store_rig_open_driven(&r->store, URI, NULL, &options, NULL);
    r->key = 1;
    r->value = 100;
    assert_int_equal(far_session_open(r->store.pool, &options, &r->first), FAR_OK);
    assert_int_equal(far_session_open(r->store.pool, &options, &r->many), FAR_OK);
    for (unsigned i = 0; i < 2; i++) {
        put(r->first, r, 1);
        put(r->many, r, 1);
    }
    struct far_op op = change_of(r, FAR_OP_UPDATE, &r->value, 8);
    assert_int_equal(far_submit(r->first, &op), FAR_OK);
}

static void all_end(struct rig *r)
{
    finish(r->first, r, 1);
    assert_int_equal(r->status[0], FAR_OK);
    finish(r->many, r, r->count);
}

static void close_rig(struct rig *r)
{
    far_session_close(r->first);
    far_session_close(r->many);
    store_rig_close(&r->store);
}

/* What all changes of the session have cost, or how many rode with others. */
static uint64_t sum_of(struct rig *r, size_t field)
{
    struct far_stats stats;
    uint64_t sum = 0;
    far_stats(r->many, r->store.table, &stats);
    for (unsigned kind = 0; kind < FAR_OP_KINDS; kind++)
        sum += *(uint64_t *)((char *)&stats.op[kind] + field);
    return sum;
}
#define SUM(r, field) sum_of(r, offsetof(struct far_op_stats, field))

static uint64_t value_of(struct rig *r)
{
    uint64_t value = 0;
    size_t len = 0;
    int rc = far_get(r->store.session, r->store.table, &r->key, 8, &value, 8, &len);
    return rc == FAR_OK ? value : 0;
}

static enum far_decision add_one(void *arg, const void *old, size_t len, const void **value,
                                 size_t *value_len)
{
    uint64_t *sum = arg;
    *sum = 0;
    if (old)
        memcpy(sum, old, len);
    ++*sum;
    *value = sum;
    *value_len = 8;
    return FAR_STORE;
}

static void submit_modify(struct rig *r, far_modify_fn *modify, void *arg)
{
    struct far_op op = change_of(r, FAR_OP_MODIFY, NULL, 0);
    op.modify = modify;
    op.modify_arg = arg;
    submit(r, op);
}

static void modifies_are_one_change(void **state)
{
    struct rig r;
    uint64_t sums[MOST], alone;
    (void)state;
    open_rig(&r);
    finish(r.first, &r, 1);
    alone = SUM(&r, rtts);
    assert_int_equal(far_modify(r.many, r.store.table, &r.key, 8, add_one, sums), FAR_OK);
    alone = SUM(&r, rtts) - alone;
    struct far_op first = change_of(&r, FAR_OP_UPDATE, &r.value, 8);
    assert_int_equal(far_submit(r.first, &first), FAR_OK);
    uint64_t before = SUM(&r, rtts);
    for (unsigned i = 0; i < MOST; i++)
        submit_modify(&r, add_one, &sums[i]);
    all_end(&r);
    for (unsigned i = 0; i < MOST; i++) {
        assert_int_equal(r.status[i], FAR_OK);
        assert_int_equal(sums[i], 100 + i + 1); /* each saw what the one before it left */
    }
    assert_int_equal(value_of(&r), 100 + MOST);
    assert_int_equal(SUM(&r, joined), MOST - 1);
    assert_in_range(SUM(&r, rtts) - before, 1, alone + 1); /* its hint was outdated */
    close_rig(&r);
}

static void each_finds_what_the_one_before_it_left(void **state)
{
    struct rig r;
    uint64_t seven = 7, eight = 8, sum;
    (void)state;
    open_rig(&r);
    submit(&r, change_of(&r, FAR_OP_DELETE, NULL, 0));
    submit(&r, change_of(&r, FAR_OP_DELETE, NULL, 0));
    submit(&r, change_of(&r, FAR_OP_UPDATE, &eight, 8));
    submit(&r, change_of(&r, FAR_OP_INSERT, &seven, 8));
    submit(&r, change_of(&r, FAR_OP_INSERT, &eight, 8));
    submit_modify(&r, add_one, &sum);
    submit(&r, change_of(&r, FAR_OP_INSERT, NULL, 0));
    static const int status[] = {FAR_OK,     FAR_NOT_FOUND, FAR_NOT_FOUND, FAR_OK,
                                 FAR_EXISTS, FAR_OK,        FAR_EXISTS};
    all_end(&r);
    for (unsigned i = 0; i < r.count; i++)
        assert_int_equal(r.status[i], status[i]);
    assert_int_equal(value_of(&r), 8);
    assert_int_equal(SUM(&r, joined), r.count - 1);
    close_rig(&r);
}

static void a_key_that_is_gone_at_the_end_is_removed(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r);
    submit(&r, change_of(&r, FAR_OP_INSERT, &r.value, 8));
    submit(&r, change_of(&r, FAR_OP_PUT, NULL, 0)); /* an empty value */
    submit(&r, change_of(&r, FAR_OP_INSERT, &r.value, 8));
    submit(&r, change_of(&r, FAR_OP_DELETE, NULL, 0));
    all_end(&r);
    assert_int_equal(r.status[0], FAR_EXISTS);
    assert_int_equal(r.status[1], FAR_OK);
    assert_int_equal(r.status[2], FAR_EXISTS);
    assert_int_equal(r.status[3], FAR_OK);
    assert_int_equal(far_exists(r.store.session, r.store.table, &r.key, 8), FAR_NOT_FOUND);
    close_rig(&r);
}

static void a_key_that_stays_as_it_was_is_not_written(void **state)
{
    struct rig r;
    uint64_t other = 9;
    (void)state;
    open_rig(&r);
    uint64_t before = SUM(&r, bytes_written);
    for (unsigned i = 0; i < 3; i++)
        submit(&r, change_of(&r, FAR_OP_INSERT, &other, 8));
    all_end(&r);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(r.status[i], FAR_EXISTS);
    assert_int_equal(SUM(&r, joined), 2);
    assert_int_equal(SUM(&r, bytes_written), before);
    assert_int_equal(value_of(&r), 100);
    close_rig(&r);
}

/* ---- changes that fail ----------------------------------------------------------------------- */

static unsigned refusals;
static int (*real_post)(struct fab_ep *, struct fab_req *);

static bool publishes(const struct fab_req *req)
{
    bool cas = false;
    for (unsigned i = 0; i < req->count; i++)
        cas |= req->verbs[i].kind == FAB_CAS;
    return cas;
}

static int refuse_some(struct fab_ep *ep, struct fab_req *req)
{
    if (refusals == 0 || !publishes(req))
        return real_post(ep, req);
    refusals--;
    req->away = UINT64_MAX;
    req->away_status = FAR_UNREACHABLE;
    return err_fail(FAR_UNREACHABLE, "refused by the test");
}

/* Three modifies ride while posts go that way, the first times. */
static void modify_while(struct rig *r, int (*post)(struct fab_ep *, struct fab_req *),
                         unsigned times)
{
    static uint64_t sums[3];
    open_rig(r);
    for (unsigned i = 0; i < 3; i++)
        submit_modify(r, add_one, &sums[i]);
    finish(r->first, r, 1);
    refusals = times;
    real_post = r->store.clock->ops.post;
    r->store.clock->ops.post = post;
    finish(r->many, r, 3);
    r->store.clock->ops.post = real_post;
}

/* The CAS of all is not sent, and then that of the one that took the others with it. */
static void if_the_change_fails_everybody_executes_itself(void **state)
{
    struct rig r;
    (void)state;
    modify_while(&r, refuse_some, 2);
    assert_int_equal(r.status[0], FAR_UNREACHABLE);
    assert_int_equal(r.status[1], FAR_OK);
    assert_int_equal(r.status[2], FAR_OK);
    assert_int_equal(value_of(&r), 102);
    assert_int_equal(SUM(&r, joined), 0);
    close_rig(&r);
}

/* A batch with an atomic takes effect, but nobody hears of it. */
static int lose_answer(struct fab_ep *ep, struct fab_req *req)
{
    int rc = real_post(ep, req);
    if (!publishes(req) || refusals == 0)
        return rc;
    refusals--;
    while (rc == FAR_OK && !req->done)
        ep->ops->poll(ep, true);
    req->status = FAR_UNKNOWN;
    return rc;
}

static void if_the_outcome_is_unknown_it_is_so_for_all(void **state)
{
    struct rig r;
    (void)state;
    modify_while(&r, lose_answer, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(r.status[i], FAR_UNKNOWN);
    assert_int_equal(value_of(&r), 103); /* nobody did it twice */
    close_rig(&r);
}

static enum far_decision store_nothing(void *arg, const void *old, size_t len, const void **value,
                                       size_t *value_len)
{
    (void)arg;
    (void)old;
    (void)len;
    *value = NULL;
    *value_len = 8;
    return FAR_STORE;
}

static void a_decision_that_is_refused_concerns_one_only(void **state)
{
    struct rig r;
    uint64_t sums[2];
    (void)state;
    for (unsigned bad = 0; bad < 2; bad++) {
        open_rig(&r);
        for (unsigned i = 0; i < 2; i++)
            submit_modify(&r, i == bad ? store_nothing : add_one, &sums[i]);
        all_end(&r);
        assert_int_equal(r.status[bad], FAR_INVALID);
        assert_int_equal(r.status[!bad], FAR_OK);
        assert_int_equal(value_of(&r), 101);
        close_rig(&r);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Puts the next letter before the old value. All operations use the same memory for that. */
static char letter;
static enum far_decision put_before(void *arg, const void *old, size_t len, const void **value,
                                    size_t *value_len)
{
    char *memory = arg;
    memory[0] = letter++;
    memcpy(memory + 1, old, len);
    *value = memory;
    *value_len = len + 1;
    return FAR_STORE;
}

static void several_may_use_the_same_memory(void **state)
{
    struct rig r;
    char memory[4096], got[4096];
    size_t len = 0;
    (void)state;
    letter = 'a';
    open_rig(&r);
    submit(&r, change_of(&r, FAR_OP_PUT, "z", 1));
    for (unsigned i = 0; i < 3; i++)
        submit_modify(&r, put_before, memory);
    all_end(&r);
    assert_int_equal(SUM(&r, joined), 3);
    assert_int_equal(far_get(r.many, r.store.table, &r.key, 8, got, sizeof got, &len), FAR_OK);
    assert_int_equal(len, 4);
    assert_memory_equal(got, "cbaz", 4);
    close_rig(&r);
}

static void those_behind_a_long_value_go_by_themselves(void **state)
{
    struct rig r;
    static char memory[3][4096], value[2000], got[4096];
    size_t len = 0;
    (void)state;
    open_rig(&r);
    memset(value, 'v', sizeof value);
    submit(&r, change_of(&r, FAR_OP_PUT, value, sizeof value));
    for (unsigned i = 0; i < 3; i++)
        submit_modify(&r, put_before, memory[i]);
    all_end(&r);
    for (unsigned i = 0; i < r.count; i++)
        assert_int_equal(r.status[i], FAR_OK);
    assert_int_equal(far_get(r.many, r.store.table, &r.key, 8, got, sizeof got, &len), FAR_OK);
    assert_int_equal(len, sizeof value + 3);
    close_rig(&r);
}

/* Both keys are hot, and an operation on each of them is under way. */
static void operations_on_other_keys_do_not_ride(void **state)
{
    struct rig r;
    uint64_t sums[2], other = 2, value = 0;
    size_t len = 0;
    (void)state;
    open_rig(&r);
    put(r.first, &r, other);
    put(r.first, &r, other);
    struct far_op op = change_of(&r, FAR_OP_UPDATE, &r.value, 8);
    op.key = &other;
    assert_int_equal(far_submit(r.first, &op), FAR_OK);
    submit_modify(&r, add_one, &sums[0]);
    op.kind = FAR_OP_MODIFY;
    op.modify = add_one;
    op.modify_arg = &sums[1];
    submit(&r, op);
    finish(r.first, &r, 2);
    finish(r.many, &r, 2);
    assert_int_equal(value_of(&r), 101);
    assert_int_equal(far_get(r.many, r.store.table, &other, 8, &value, 8, &len), FAR_OK);
    assert_int_equal(value, 101);
    assert_int_equal(SUM(&r, joined), 0);
    close_rig(&r);
}

/* A ring's fibers have small stacks, and a callback of a call may expect a large one. */
static void the_callback_of_a_call_runs_in_the_call(void **state)
{
    struct rig r;
    uint64_t sums[2];
    (void)state;
    open_rig(&r);
    submit_modify(&r, add_one, &sums[0]);
    finish(r.first, &r, 1);
    assert_int_equal(far_modify(r.many, r.store.table, &r.key, 8, add_one, &sums[1]), FAR_OK);
    finish(r.many, &r, 1);
    assert_int_equal(value_of(&r), 102);
    assert_int_equal(SUM(&r, joined), 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modifies_are_one_change),
        cmocka_unit_test(each_finds_what_the_one_before_it_left),
        cmocka_unit_test(a_key_that_is_gone_at_the_end_is_removed),
        cmocka_unit_test(a_key_that_stays_as_it_was_is_not_written),
        cmocka_unit_test(if_the_change_fails_everybody_executes_itself),
        cmocka_unit_test(if_the_outcome_is_unknown_it_is_so_for_all),
        cmocka_unit_test(a_decision_that_is_refused_concerns_one_only),
        cmocka_unit_test(several_may_use_the_same_memory),
        cmocka_unit_test(those_behind_a_long_value_go_by_themselves),
        cmocka_unit_test(operations_on_other_keys_do_not_ride),
        cmocka_unit_test(the_callback_of_a_call_runs_in_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
