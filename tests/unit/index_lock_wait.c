/* Waiting for the owner of a lock: how long, and what is found out about the owner. */
#include "index/attempt.h"
#include "index/lock_wait.h"
#include "support/store_rig.h"
#include "support/leaks_allowed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct store_rig r;
static far_session *owner;
static struct index_view *view;

static void begin(unsigned patience)
{
    struct knobs knobs = pool_knobs_default;
    uint64_t key = 1;
    knobs.patience = patience;
    store_rig_open_driven(&r, "mem:?size=4m&clients=8&lease=200", &knobs, NULL, NULL);
    assert_int_equal(far_session_open(r.pool, NULL, &owner), FAR_OK);
    assert_int_equal(far_put(owner, r.table, &key, 8, &key, 8), FAR_OK);
    assert_int_equal(far_put(r.session, r.table, &key, 8, &key, 8), FAR_OK);
    view = store_known(r.session, r.table)->view;
    assert_int_equal(op_begin(&r.session->op, &view->cached), FAR_OK);
}

static void end(void)
{
    op_end(&r.session->op);
    far_session_close(owner);
    store_rig_close(&r);
}

/* Waits until it is over; returns how often the lock was to be looked at. */
static unsigned wait_for(struct index_lock_wait *wait, uint64_t word, enum index_lock_state *state)
{
    unsigned looks = 0;
    for (;; looks++) {
        assert_int_equal(index_lock_wait(&r.session->op, wait, word, state), FAR_OK);
        if (*state != INDEX_LOCK_HELD)
            return looks;
    }
}

static void an_owner_that_lives_is_given_patience(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found;
    (void)state;
    begin(40);
    uint64_t word = client_owner_word(&owner->client), before = r.clock->now;
    uint64_t verbs = r.session->op.cost.verbs;
    assert_int_equal(wait_for(&wait, word, &found), 40);
    assert_int_equal(found, INDEX_LOCK_OVERDUE);
    assert_true(r.session->op.cost.verbs - verbs >= 2); /* it was asked for after 16 and 32 looks */
    assert_true(r.clock->now - before == 1023 * 1000ull + 30 * 1000000ull);
    assert_int_equal(wait_for(&wait, word, &found), 0);
    end();
}

static void an_owner_is_given_a_quarter_of_its_lease_at_most(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found;
    (void)state;
    begin(1000);
    uint64_t before = r.clock->now;
    wait_for(&wait, client_owner_word(&owner->client), &found);
    assert_int_equal(found, INDEX_LOCK_OVERDUE);
    assert_in_range(r.clock->now - before, 50000000, 51000000);
    end();
}

static void another_owner_is_given_patience_again(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found;
    (void)state;
    begin(10);
    assert_int_equal(wait_for(&wait, client_owner_word(&owner->client), &found), 10);
    assert_int_equal(wait_for(&wait, client_owner_word(&r.session->client), &found), 10);
    assert_int_equal(found, INDEX_LOCK_OVERDUE);
    end();
}

static void the_lock_of_a_client_that_has_left_is_orphaned(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found;
    (void)state;
    begin(200);
    uint64_t word = client_owner_word(&owner->client);
    far_session_close(owner);
    assert_int_equal(wait_for(&wait, word, &found), 16);
    assert_int_equal(found, INDEX_LOCK_ORPHANED);
    assert_int_equal(far_session_open(r.pool, NULL, &owner), FAR_OK);
    end();
}

/* Rests until the lock is free or orphaned, or time is up. The owner may say that it lives. */
static int rest_until_over(uint64_t word, bool lives, enum index_lock_state *found)
{
    struct index_lock_wait wait = {0};
    int rc = FAR_OK;
    uint64_t key = 2;
    for (unsigned turn = 0; rc == FAR_OK; turn++) {
        wait_for(&wait, word, found);
        if (*found == INDEX_LOCK_ORPHANED)
            return FAR_OK;
        if (lives)
            assert_int_equal(far_put(owner, r.table, &key, 8, &key, 8), FAR_OK);
        assert_true(turn < 100000);
        rc = index_lock_rest(&r.session->op, view, &wait);
        assert_true(rc != FAR_OK || op_in_flight(&r.session->op));
    }
    return rc;
}

static void a_client_that_died_is_shut_out_by_those_that_wait_for_it(void **state)
{
    enum index_lock_state found;
    (void)state;
    begin(3);
    uint64_t word = client_owner_word(&owner->client);
    assert_int_equal(op_begin(&owner->op, NULL), FAR_OK); /* and it stops */
    assert_int_equal(rest_until_over(word, false, &found), FAR_OK);
    assert_int_equal(found, INDEX_LOCK_ORPHANED);
    op_end(&owner->op);
    end();
}

static void a_live_owner_is_not_waited_for_without_end(void **state)
{
    enum index_lock_state found;
    (void)state;
    begin(3);
    uint64_t word = client_owner_word(&owner->client);
    assert_int_equal(rest_until_over(word, true, &found), FAR_CONTENTION);
    assert_true(client_owner_word(&owner->client) == word);
    end();
}

/* A lease this short is possible in the model of a network only. */
static void no_pause_outlasts_a_heartbeat(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found;
    unsigned attempts = 0;
    (void)state;
    begin(200);
    struct op *op = &r.session->op;
    uint64_t lease = 3000000, kept = op->client->lease_ns;
    op->client->lease_ns = lease;
    for (unsigned i = 0; i < 100; i++) {
        uint64_t before = r.clock->now;
        assert_true(index_attempt_after_pause(op, &attempts, attempts));
        assert_true(r.clock->now - before <= lease / 8);
        before = r.clock->now;
        assert_int_equal(index_lock_wait(op, &wait, client_owner_word(&owner->client), &found),
                         FAR_OK);
        assert_true(r.clock->now - before <= lease / 8);
    }
    op->client->lease_ns = kept;
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_that_lives_is_given_patience),
        cmocka_unit_test(an_owner_is_given_a_quarter_of_its_lease_at_most),
        cmocka_unit_test(another_owner_is_given_patience_again),
        cmocka_unit_test(the_lock_of_a_client_that_has_left_is_orphaned),
        cmocka_unit_test(a_client_that_died_is_shut_out_by_those_that_wait_for_it),
        cmocka_unit_test(a_live_owner_is_not_waited_for_without_end),
        cmocka_unit_test(no_pause_outlasts_a_heartbeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
