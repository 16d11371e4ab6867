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
    assert_in_range(r.clock->now - before, 40 * 1000, 20 * 1000000);
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

/* PAUSE-1. It does not matter how long the operation has waited. */
static void a_lock_that_changes_hands_is_looked_at_soon(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found;
    (void)state;
    begin(200);
    struct op *op = &r.session->op;
    uint64_t first = 0, last = 0, verbs = op->cost.verbs, round_trip = 3000;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t word = client_owner_word(i % 2 ? &owner->client : &r.session->client);
        store_rig_pass(&r, round_trip);
        uint64_t before = r.clock->now;
        assert_int_equal(index_lock_wait(op, &wait, word, &found), FAR_OK);
        assert_int_equal(found, INDEX_LOCK_HELD);
        uint64_t pause = r.clock->now - before;
        assert_true(pause <= INDEX_PAUSE_MOST * round_trip);
        first += i < 4 ? pause : 0;
        last += i >= 996 ? pause : 0;
    }
    assert_in_range(first, 4 * INDEX_PAUSE_NS_LEAST / 2, 12 * round_trip);
    assert_true(last > first);            /* there are more competitors than it seemed */
    assert_true(op->cost.verbs == verbs); /* nobody has the lock for long: no need to ask */
    end();
}

/* PAUSE-2. While one owner has the lock, pauses grow with the time, and no faster. */
static void a_lock_that_stands_still_is_looked_at_less_and_less_often(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found = INDEX_LOCK_HELD;
    (void)state;
    begin(100000);
    struct op *op = &r.session->op;
    uint64_t word = client_owner_word(&owner->client), began = r.clock->now;
    uint64_t verbs = op->cost.verbs, longest = 0;
    unsigned looks = 0;
    for (; found == INDEX_LOCK_HELD; looks++) {
        uint64_t before = r.clock->now;
        assert_int_equal(index_lock_wait(op, &wait, word, &found), FAR_OK);
        uint64_t pause = r.clock->now - before;
        assert_true(pause <= 2 * INDEX_PAUSE_NS_LEAST || pause <= (before - began) / 4);
        longest = pause > longest ? pause : longest;
    }
    assert_int_equal(found, INDEX_LOCK_OVERDUE);
    assert_in_range(r.clock->now - began, 50000000, 51000000); /* a quarter of the lease */
    assert_in_range(longest, 500000, 1000000);
    assert_in_range(looks, 30, 200);
    assert_true(op->cost.verbs - verbs <= 2 * (looks / 16 + 1));
    end();
}

static void a_lock_is_not_lost_to_others_without_end(void **state)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state found;
    int rc = FAR_OK;
    unsigned looks = 0;
    (void)state;
    begin(200);
    for (; rc == FAR_OK && looks < 1000000; looks++)
        rc = index_lock_wait(&r.session->op, &wait,
                             client_owner_word(looks % 2 ? &owner->client : &r.session->client),
                             &found);
    assert_int_equal(rc, FAR_CONTENTION);
    assert_true(looks > 10 * INDEX_ATTEMPTS);
    end();
}

/* PAUSE-1, for changes that lose a word by CAS; PAUSE-2, for those that lose it very often. */
static void changes_that_lose_pause_in_proportion_to_what_they_take(void **state)
{
    static const uint64_t takes[] = {4000, 100000};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        unsigned attempts = 0;
        begin(200);
        struct op *op = &r.session->op;
        uint64_t sum = 0, most = INDEX_PAUSE_MOST * takes[i], began = r.clock->now;
        for (unsigned lost = 0; lost < 100; lost++) {
            uint64_t before = r.clock->now;
            assert_true(index_attempt_after_pause(op, &attempts, lost));
            uint64_t pause = r.clock->now - before;
            assert_true(pause <= (lost < 2 ? 0 : lost < 8 ? 6 * takes[i] : most));
            sum += pause;
            store_rig_pass(&r, takes[i]);
        }
        assert_in_range(sum, 100 * most / 4, 100 * most);
        while (index_attempt_after_pause(op, &attempts, attempts))
            store_rig_pass(&r, takes[i]);
        assert_int_equal(attempts, INDEX_ATTEMPTS + 1);
        assert_in_range(r.clock->now - began, 500000000, 5000000000);
        end();
    }
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
        cmocka_unit_test(a_lock_that_changes_hands_is_looked_at_soon),
        cmocka_unit_test(a_lock_that_stands_still_is_looked_at_less_and_less_often),
        cmocka_unit_test(a_lock_is_not_lost_to_others_without_end),
        cmocka_unit_test(changes_that_lose_pause_in_proportion_to_what_they_take),
        cmocka_unit_test(the_lock_of_a_client_that_has_left_is_orphaned),
        cmocka_unit_test(a_client_that_died_is_shut_out_by_those_that_wait_for_it),
        cmocka_unit_test(a_live_owner_is_not_waited_for_without_end),
        cmocka_unit_test(no_pause_outlasts_a_heartbeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
