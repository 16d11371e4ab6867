/*
 * CHANGE-C1 on RACE: changes that lose their slot to another session. The other one acts between
 * the look and the CAS of the one that loses. If its block shows that it has overwritten what the
 * loser would have stored, the loser is done; otherwise it tries again.
 */
#include "index/walk.h"
#include "support/hook.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEY      "key", 3
#define OLD      100u
#define MINE     200u
#define OTHERS   300u
#define ONE_MORE 1u /* what a modify adds */

/* A look, the block, the CAS, the winner's block. */
#define RTTS_DONE 4u

struct duel {
    struct store_rig r; /* its session loses */
    far_session *other;
    void (*act)(struct duel *d); /* what the other does before the next CAS; NULL: nothing */
    uint64_t held, retired;      /* bytes of the loser, before its call */
};

static struct duel duel;

static bool has_cas(const struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind == FAB_CAS)
            return true;
    return false;
}

static int post_after_other(struct fab_ep *ep, struct fab_req *req)
{
    void (*act)(struct duel *) = duel.act;
    if (act && has_cas(req)) {
        duel.act = NULL;
        act(&duel);
    }
    return hook.real->post(ep, req);
}

static int update(far_session *s, uint32_t value)
{
    return far_update(s, duel.r.table, KEY, &value, sizeof value);
}

static int put(far_session *s, uint32_t value)
{
    return far_put(s, duel.r.table, KEY, &value, sizeof value);
}

static enum far_decision add_one(void *sum, const void *old, size_t old_len, const void **value,
                                 size_t *value_len)
{
    assert_int_equal(old_len, sizeof(uint32_t));
    memcpy(sum, old, old_len);
    *(uint32_t *)sum += ONE_MORE;
    *value = sum;
    *value_len = old_len;
    return FAR_STORE;
}

static int modify(far_session *s)
{
    uint32_t sum = 0;
    return far_modify(s, duel.r.table, KEY, add_one, &sum);
}

/* The key's value; 0: it is absent. */
static uint32_t value_now(far_session *s)
{
    uint32_t value = 0;
    size_t len = 0;
    int rc = far_get(s, duel.r.table, KEY, &value, sizeof value, &len);
    assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
    return value;
}

/* The key is alone in its table, so that it gets the same place again after a delete. An update
 * wrote its value. */
static void open_duel(void)
{
    struct far_table_options options = {.tuning = "groups=2&hot=0", .hash_seed = 3};
    duel = (struct duel){.act = NULL};
    store_rig_open(&duel.r, "mem:?size=8m", NULL, NULL, &options);
    duel.other = store_rig_join(&duel.r);
    assert_int_equal(put(duel.r.session, OLD), FAR_OK);
    assert_int_equal(put(duel.other, OLD), FAR_OK);
    assert_int_equal(update(duel.r.session, OLD), FAR_OK);
}

static void close_duel(void)
{
    far_session_close(duel.other);
    store_rig_close(&duel.r);
}

/* Calls it, and lets the other act before its CAS. */
static int lose(int (*call)(far_session *s, uint32_t value), void (*act)(struct duel *d))
{
    struct client *c = &duel.r.session->client;
    duel.held = puppet_held_bytes(c);
    duel.retired = puppet_retired_bytes(c);
    duel.act = act;
    hook_on(c->ep);
    hook.ops.post = post_after_other;
    int rc = call(duel.r.session, MINE);
    hook_off();
    assert_null(duel.act);
    return rc;
}

/* The call is done, the other's value stands, and the block was given back. */
static void expect_done(int (*call)(far_session *s, uint32_t value), void (*act)(struct duel *d))
{
    open_duel();
    const struct client *c = &duel.r.session->client;
    assert_int_equal(lose(call, act), FAR_OK);
    assert_int_equal(duel.r.session->op.cost.rtts, RTTS_DONE);
    assert_true(puppet_held_bytes(c) == duel.held);
    assert_true(puppet_retired_bytes(c) == duel.retired);
    assert_int_equal(value_now(duel.r.session), OTHERS);
    assert_int_equal(far_table_check(duel.r.session, duel.r.table, NULL, NULL), FAR_OK);
    close_duel();
}

/* The call tries again, and its value stands. */
static void expect_again(int (*call)(far_session *s, uint32_t value), void (*act)(struct duel *d))
{
    open_duel();
    assert_int_equal(lose(call, act), FAR_OK);
    assert_true(duel.r.session->op.cost.rtts > RTTS_DONE);
    assert_int_equal(value_now(duel.r.session), MINE);
    assert_int_equal(value_now(duel.other), MINE);
    assert_int_equal(far_table_check(duel.r.session, duel.r.table, NULL, NULL), FAR_OK);
    close_duel();
}

/* ---- what the other does --------------------------------------------------------------------- */

static void other_updates(struct duel *d)
{
    assert_int_equal(update(d->other, OTHERS), FAR_OK);
}

static void other_updates_twice(struct duel *d)
{
    assert_int_equal(update(d->other, OTHERS + 1), FAR_OK);
    assert_int_equal(update(d->other, OTHERS), FAR_OK);
}

static void other_puts(struct duel *d)
{
    assert_int_equal(put(d->other, OTHERS), FAR_OK);
}

static void other_modifies(struct duel *d)
{
    assert_int_equal(modify(d->other), FAR_OK);
}

static void other_deletes(struct duel *d)
{
    assert_int_equal(far_delete(d->other, d->r.table, KEY), FAR_OK);
}

static void other_deletes_and_inserts(struct duel *d)
{
    uint32_t value = OTHERS;
    other_deletes(d);
    assert_int_equal(far_insert(d->other, d->r.table, KEY, &value, sizeof value), FAR_OK);
}

static void other_deletes_and_puts(struct duel *d)
{
    other_deletes(d);
    other_puts(d);
}

/* Where the key's slot is: the other looks, because the loser is in the middle of a call. */
static struct race_spot spot_of(struct duel *d, const void *key, size_t len)
{
    struct store_rig other = d->r;
    struct race_spot spot;
    other.session = d->other;
    race_rig_find(&other, key, len, &spot);
    assert_true(spot.found.place >= 0);
    return spot;
}

static void set_slot(struct duel *d, const struct race_spot *spot, uint64_t word)
{
    struct store_rig other = d->r;
    other.session = d->other;
    store_rig_set(&other, spot->look.subtable,
                  race_place_offset(&spot->key, (unsigned)spot->found.place), word);
}

/* A put that has not committed its slot yet. */
static void other_dies_before_it_commits(struct duel *d)
{
    other_deletes_and_puts(d);
    struct race_spot spot = spot_of(d, KEY);
    set_slot(d, &spot, spot.found.slot | RACE_SLOT_TENTATIVE);
}

static void other_seals(struct duel *d)
{
    struct race_spot spot = spot_of(d, KEY);
    set_slot(d, &spot, spot.found.slot | RACE_SLOT_SEALED);
}

static void other_updates_and_seals(struct duel *d)
{
    other_updates(d);
    other_seals(d);
}

/* The slot has another key, with the same fingerprint, and that key was updated. */
static void other_key_takes_the_slot(struct duel *d)
{
    static const char key[] = "another key";
    uint32_t value = OTHERS;
    struct race_spot mine = spot_of(d, KEY);
    assert_int_equal(far_put(d->other, d->r.table, key, sizeof key, &value, 4), FAR_OK);
    assert_int_equal(far_update(d->other, d->r.table, key, sizeof key, &value, 4), FAR_OK);
    struct race_spot others = spot_of(d, key, sizeof key);
    uint64_t mask = slot_fingerprint_mask(RACE_SLOT);
    set_slot(d, &mine, (others.found.slot & ~mask) | (mine.found.slot & mask));
}

/* The slot gives its block the class after its own: a check has found that. */
static void other_repairs(struct duel *d)
{
    struct store_rig other = d->r;
    struct race_spot spot = spot_of(d, KEY);
    uint64_t found = spot.found.slot;
    struct index_finding finding = {
        .fault = RACE_CLASS,
        .place = (unsigned)race_place_offset(&spot.key, (unsigned)spot.found.place) / 8,
        .found = found,
        .right = pointer_with_class(found, pointer_class(found) - 1)};
    bool done = false;
    other.session = d->other;
    assert_int_equal(
        race_repair(&d->other->op, race_rig_view(&other), spot.look.subtable, &finding, &done),
        FAR_OK);
    assert_true(done);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void an_update_that_loses_to_an_update_is_done(void **state)
{
    (void)state;
    expect_done(update, other_updates);
    expect_done(update, other_updates_twice);
}

static void a_put_that_loses_to_a_put_or_an_update_is_done(void **state)
{
    (void)state;
    expect_done(put, other_puts);
    expect_done(put, other_updates);
    expect_done(put, other_deletes_and_puts);
}

/* The modify has seen the value before, and no other may come between. */
static void a_change_that_loses_to_a_modify_tries_again(void **state)
{
    (void)state;
    expect_again(update, other_modifies);
    expect_again(put, other_modifies);
}

/* The insert has seen that the key was absent. */
static void a_change_that_loses_to_an_insert_tries_again(void **state)
{
    (void)state;
    expect_again(update, other_deletes_and_inserts);
    expect_again(put, other_deletes_and_inserts);
}

/* Right before the put the key may have been absent, as it was here: there was nothing to
 * update. */
static void an_update_that_loses_to_a_put_tries_again(void **state)
{
    (void)state;
    expect_again(update, other_puts);
    expect_again(update, other_deletes_and_puts);
}

static void a_change_that_loses_to_a_delete_finds_no_key(void **state)
{
    (void)state;
    expect_again(put, other_deletes);
    open_duel();
    assert_int_equal(lose(update, other_deletes), FAR_NOT_FOUND);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
}

static int modify_call(far_session *s, uint32_t value)
{
    (void)value;
    return modify(s);
}

static int delete_call(far_session *s, uint32_t value)
{
    (void)value;
    return far_delete(s, duel.r.table, KEY);
}

/* They depend on what was there, so they are never done without having had the slot. */
static void a_modify_or_delete_that_loses_tries_again(void **state)
{
    (void)state;
    open_duel();
    assert_int_equal(lose(modify_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), OTHERS + ONE_MORE);
    assert_int_equal(lose(delete_call, other_updates), FAR_OK);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
}

/* Nobody sees its value, and if the other is dead, nobody ever will. */
static void a_tentative_slot_is_no_winner(void **state)
{
    (void)state;
    expect_again(put, other_dies_before_it_commits);
}

/* The slot still has the block that the loser found. */
static void a_slot_that_was_only_sealed_is_no_winner(void **state)
{
    (void)state;
    expect_again(update, other_seals);
    expect_again(put, other_seals);
}

/* It was updated before it was sealed. */
static void a_winner_that_is_sealed_has_won(void **state)
{
    (void)state;
    open_duel();
    assert_int_equal(lose(update, other_updates_and_seals), FAR_OK);
    assert_int_equal(duel.r.session->op.cost.rtts, RTTS_DONE);
    assert_int_equal(value_now(duel.r.session), OTHERS);
    close_duel();
}

static void another_key_with_the_same_fingerprint_is_no_winner(void **state)
{
    (void)state;
    open_duel();
    assert_int_equal(lose(update, other_key_takes_the_slot), FAR_NOT_FOUND);
    assert_int_equal(value_now(duel.r.session), 0);
    close_duel();
    open_duel();
    assert_int_equal(lose(put, other_key_takes_the_slot), FAR_OK);
    assert_int_equal(value_now(duel.r.session), MINE);
    close_duel();
}

/* The slot gives its block a wrong size. A repair corrects that, and the block is the old one. */
static void a_slot_that_was_repaired_is_no_winner(void **state)
{
    (void)state;
    open_duel();
    struct race_spot spot = spot_of(&duel, KEY);
    set_slot(&duel, &spot, pointer_with_class(spot.found.slot, pointer_class(spot.found.slot) + 1));
    assert_int_equal(lose(update, other_repairs), FAR_OK);
    assert_int_equal(value_now(duel.r.session), MINE);
    close_duel();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_that_loses_to_an_update_is_done),
        cmocka_unit_test(a_put_that_loses_to_a_put_or_an_update_is_done),
        cmocka_unit_test(a_change_that_loses_to_a_modify_tries_again),
        cmocka_unit_test(a_change_that_loses_to_an_insert_tries_again),
        cmocka_unit_test(an_update_that_loses_to_a_put_tries_again),
        cmocka_unit_test(a_change_that_loses_to_a_delete_finds_no_key),
        cmocka_unit_test(a_modify_or_delete_that_loses_tries_again),
        cmocka_unit_test(a_tentative_slot_is_no_winner),
        cmocka_unit_test(a_slot_that_was_only_sealed_is_no_winner),
        cmocka_unit_test(a_winner_that_is_sealed_has_won),
        cmocka_unit_test(another_key_with_the_same_fingerprint_is_no_winner),
        cmocka_unit_test(a_slot_that_was_repaired_is_no_winner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
