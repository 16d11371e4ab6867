/* Members of a pool: what voters decide, who counts as one, and the lines of client slots. */
#include "members/members.h"

#include "support/hook.h"
#include "support/leaks_allowed.h"
#include "support/pool_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define POOL "mem:?size=2m&nodes=3&voters=3"

struct rig {
    struct pool_rig first, second; /* two clients of one pool */
};

static void open_rig(struct rig *r, const char *uri)
{
    pool_rig_open(&r->first, uri);
    assert_int_equal(pool_rig_join(&r->second, r->first.fab, 2), FAR_OK);
}

static void close_rig(struct rig *r)
{
    pool_rig_close(&r->second);
    pool_rig_close(&r->first);
}

static int change(struct pool_rig *r, enum members_change what, unsigned node)
{
    return members_propose(&r->client.members, r->client.to_voters, what, node);
}

static int learn(struct pool_rig *r)
{
    return members_read(&r->client.members, r->client.to_voters);
}

static void expect_voters(struct pool_rig *r, uint64_t voters, unsigned view)
{
    assert_int_equal(learn(r), FAR_OK);
    assert_int_equal(r->client.members.voters, voters);
    assert_int_equal(members_view(&r->client.members), view);
}

static uint64_t log_at(struct pool_rig *r, unsigned entry)
{
    return members_off(r->pool.clients) + log_off(entry);
}

static uint64_t line_at(struct pool_rig *r, unsigned slot)
{
    return members_off(r->pool.clients) + presence_off(slot);
}

/* The node is killed, and starts again: it lives another life. */
static void kill_node(struct pool_rig *r, unsigned node)
{
    pool_rig_set(r, node, NODE_LIFE_OFF, pool_rig_get(r, node, NODE_LIFE_OFF) + 1);
}

/* And it has forgotten the log. */
static void empty_node(struct pool_rig *r, unsigned node)
{
    kill_node(r, node);
    for (unsigned entry = 1; entry < 16; entry++)
        pool_rig_set(r, node, log_at(r, entry), 0);
}

/* ---- the log --------------------------------------------------------------------------------- */

static void all_clients_learn_what_is_decided(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    expect_voters(&r.first, 7, 1);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 1), FAR_OK);
    expect_voters(&r.first, 5, 2);
    expect_voters(&r.second, 5, 2);
    assert_int_equal(change(&r.second, MEMBERS_IN, 1), FAR_OK);
    expect_voters(&r.first, 7, 3);
    assert_int_equal(change(&r.first, MEMBERS_IN, 1), FAR_EXISTS);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 1), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 1), FAR_EXISTS);
    close_rig(&r);
}

static void two_that_suspect_each_others_node_do_not_both_get_it_out(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 1), FAR_OK);
    assert_int_equal(change(&r.second, MEMBERS_OUT, 2), FAR_INVALID);
    expect_voters(&r.first, 5, 2);
    /* Also if that was decided by clients that did not know of each other (MEMBERS-3). */
    for (unsigned i = 0; i < 3; i++)
        pool_rig_set(&r.first, i, log_at(&r.first, 2),
                     log_decided(members_value(MEMBERS_OUT, 2, 0)));
    expect_voters(&r.first, 5, 3);
    expect_voters(&r.second, 5, 3);
    close_rig(&r);
}

static void what_one_voter_has_accepted_is_brought_to_a_decision(void **state)
{
    struct rig r;
    uint32_t value = members_value(MEMBERS_OUT, 2, 0);
    (void)state;
    open_rig(&r, POOL);
    pool_rig_set(&r.first, 0, log_at(&r.first, 1), log_word(3, 3, value));
    assert_int_equal(change(&r.second, MEMBERS_OUT, 1), FAR_INVALID); /* the other one was first */
    expect_voters(&r.first, 3, 2);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pool_rig_get(&r.first, i, log_at(&r.first, 1)), log_decided(value));
    close_rig(&r);
}

static void what_most_have_accepted_is_learned_by_reading(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    for (unsigned i = 1; i < 3; i++)
        pool_rig_set(&r.first, i, log_at(&r.first, 1),
                     log_word(1, 1, members_value(MEMBERS_OUT, 2, 0)));
    expect_voters(&r.second, 3, 2);
    close_rig(&r);
}

static void what_was_only_promised_binds_nobody(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    for (unsigned i = 0; i < 3; i++)
        pool_rig_set(&r.first, i, log_at(&r.first, 1), log_word(7 + i, 0, 0));
    expect_voters(&r.first, 7, 1);
    assert_int_equal(change(&r.second, MEMBERS_OUT, 1), FAR_OK);
    expect_voters(&r.first, 5, 2);
    close_rig(&r);
}

static void too_few_and_too_many_voters_are_refused(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, "mem:?size=2m&nodes=6&voters=3");
    assert_int_equal(change(&r.first, MEMBERS_IN, 3), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_IN, 4), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_IN, 5), FAR_INVALID);
    for (unsigned i = 2; i < 5; i++)
        assert_int_equal(change(&r.first, MEMBERS_OUT, i), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 1), FAR_INVALID);
    expect_voters(&r.second, 3, 6);
    close_rig(&r);
}

static void a_client_that_comes_late_learns_all_though_the_first_voters_are_gone(void **state)
{
    struct rig r;
    struct pool_rig late;
    (void)state;
    open_rig(&r, "mem:?size=2m&nodes=6&voters=3");
    assert_int_equal(change(&r.first, MEMBERS_IN, 4), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 1), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_IN, 5), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 2), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_IN, 3), FAR_OK);
    assert_int_equal(change(&r.first, MEMBERS_OUT, 0), FAR_OK);
    for (unsigned i = 3; i < 6; i++) { /* what they know then, they were taught */
        empty_node(&r.first, i);
        assert_int_equal(change(&r.first, MEMBERS_IN, i), FAR_OK);
    }
    for (unsigned i = 0; i < 3; i++)
        empty_node(&r.first, i);
    assert_int_equal(pool_rig_join(&late, r.first.fab, 3), FAR_OK);
    expect_voters(&late, 0x38, 10);
    assert_int_equal(late.ep->view, 10);
    pool_rig_close(&late);
    close_rig(&r);
}

static void the_log_ends_with_a_clear_message(void **state)
{
    struct rig r;
    int rc = FAR_OK;
    (void)state;
    open_rig(&r, POOL);
    for (unsigned i = 1; i < MEMBERS_ENTRIES; i++)
        assert_int_equal(change(&r.first, i % 2 ? MEMBERS_OUT : MEMBERS_IN, 2), FAR_OK);
    rc = change(&r.first, MEMBERS_IN, 2);
    assert_int_equal(rc, FAR_POOL_FULL);
    assert_non_null(strstr(far_error_detail(), "4095 times"));
    expect_voters(&r.second, 3, MEMBERS_ENTRIES);
    close_rig(&r);
}

/* ---- lives ----------------------------------------------------------------------------------- */

static void a_voter_that_was_killed_counts_when_it_is_taken_in_again(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    kill_node(&r.first, 1);
    assert_int_equal(members_ask(&r.first.client.members, r.first.client.to_voters, 1),
                     FAR_NODE_LOST);
    expect_voters(&r.first, 7, 1); /* two of three are a majority */
    assert_int_equal(change(&r.first, MEMBERS_IN, 1), FAR_OK);
    assert_int_equal(learn(&r.second), FAR_OK);
    assert_int_equal(members_ask(&r.second.client.members, r.second.client.to_voters, 1), FAR_OK);
    expect_voters(&r.second, 7, 2);
    close_rig(&r);
}

static void a_voter_that_forgot_makes_no_second_truth(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    uint32_t value = members_value(MEMBERS_OUT, 1, 0);
    /* Voters 1 and 2 have accepted it, so it is decided, and nobody knows that yet. */
    pool_rig_set(&r.first, 1, log_at(&r.first, 1), log_word(1, 1, value));
    pool_rig_set(&r.first, 2, log_at(&r.first, 1), log_word(1, 1, value));
    empty_node(&r.first, 2);
    assert_int_equal(change(&r.second, MEMBERS_OUT, 2), FAR_UNREACHABLE);
    assert_int_equal(r.second.client.members.voters, 5); /* of these, one is left */
    assert_int_equal(members_view(&r.second.client.members), 2);
    close_rig(&r);
}

static void without_a_majority_nothing_is_decided_and_nobody_registers(void **state)
{
    struct rig r;
    struct pool_rig other;
    (void)state;
    open_rig(&r, POOL);
    kill_node(&r.first, 1);
    empty_node(&r.first, 2);
    assert_int_equal(change(&r.first, MEMBERS_IN, 1), FAR_UNREACHABLE);
    assert_non_null(strstr(far_error_detail(), "only 1 of 3 voters"));
    assert_non_null(strstr(far_error_detail(), "was killed"));
    assert_int_equal(pool_rig_join(&other, r.first.fab, 3), FAR_UNREACHABLE);
    /* An operator knows that they are as they were. */
    assert_int_equal(members_accept(&r.first.client.members, r.first.client.to_voters), FAR_OK);
    expect_voters(&r.second, 7, 3);
    assert_int_equal(members_accept(&r.second.client.members, r.second.client.to_voters),
                     FAR_EXISTS);
    assert_int_equal(pool_rig_join(&other, r.first.fab, 3), FAR_OK);
    pool_rig_close(&other);
    close_rig(&r);
}

/* Voters 0 and 1 have put 0 out, and nobody else knows. Then all are killed, and 0 stays away. */
static void what_was_decided_is_there_when_an_operator_accepts_voters(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    uint32_t out = members_value(MEMBERS_OUT, 0, pool_rig_get(&r.first, 0, NODE_LIFE_OFF));
    pool_rig_set(&r.first, 1, log_at(&r.first, 1), log_word(1, 1, out));
    for (unsigned i = 0; i < 3; i++)
        kill_node(&r.first, i);
    assert_int_equal(members_accept(&r.first.client.members, r.first.client.to_voters), FAR_OK);
    pool_rig_set(&r.first, 0, log_at(&r.first, 1), log_decided(out)); /* 0 is back */
    expect_voters(&r.first, 6, 4);
    expect_voters(&r.second, 6, 4);
    close_rig(&r);
}

static int post_to_lost_node(struct fab_ep *ep, struct fab_req *req)
{
    return req->verbs[0].node == 1 ? err_fail(FAR_NODE_LOST, "node 1 has lost its memory")
                                   : hook.real->post(ep, req);
}

static void a_node_that_has_lost_its_memory_is_not_taken_in(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    hook_on(r.first.ep);
    hook.ops.post = post_to_lost_node;
    assert_int_equal(change(&r.first, MEMBERS_IN, 1), FAR_NODE_LOST);
    hook_off();
    expect_voters(&r.second, 7, 1);
    close_rig(&r);
}

/* Its superblock is gone. The pool opens without it, and the other voters put it out. */
static void a_voter_with_data_comes_back_empty(void **state)
{
    struct rig r;
    struct pool_rig third;
    struct far_members all;
    struct far_member list[FAR_NODES_MAX];
    (void)state;
    open_rig(&r, POOL);
    empty_node(&r.first, 1);
    pool_rig_set(&r.first, 1, 0, 0);
    assert_int_equal(pool_rig_join(&third, r.first.fab, 3), FAR_OK);
    assert_int_equal(pool_members(&third.op, &all, list), FAR_OK);
    assert_int_equal(all.answering, 2);
    assert_int_not_equal(list[1].status, FAR_OK);
    assert_int_equal(pool_change_members(&third.op, 1, false), FAR_OK);
    expect_voters(&third, 5, 2);
    pool_rig_close(&third);
    close_rig(&r);
}

static void the_head_of_the_log_is_read_from_any_node(void **state)
{
    struct rig r;
    struct pool_rig other;
    (void)state;
    open_rig(&r, POOL);
    pool_rig_set(&r.first, 0, members_off(r.first.pool.clients) + 8, 12345);
    assert_int_equal(pool_rig_join(&other, r.first.fab, 3), FAR_OK);
    pool_rig_close(&other);
    for (unsigned i = 1; i < 3; i++)
        pool_rig_set(&r.first, i, members_off(r.first.pool.clients), 12345);
    assert_int_equal(pool_rig_join(&other, r.first.fab, 3), FAR_CORRUPT);
    close_rig(&r);
}

/* ---- lines of client slots ------------------------------------------------------------------- */

static void a_session_is_present_while_it_is_open(void **state)
{
    struct rig r;
    struct pool_rig third;
    (void)state;
    open_rig(&r, POOL);
    assert_int_equal(pool_rig_join(&third, r.first.fab, 3), FAR_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pool_rig_get(&r.first, i, line_at(&r.first, third.client.slot)),
                         third.client.incarnation);
        assert_int_equal(pool_rig_get(&r.first, i, line_at(&r.first, third.client.slot) + 8), 1);
    }
    pool_rig_close(&third);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pool_rig_get(&r.first, i, line_at(&r.first, third.client.slot)), 0);
    close_rig(&r);
}

static void a_session_that_registers_again_is_present_under_its_new_name(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    uint64_t before = r.first.client.incarnation;
    unsigned slot = r.first.client.slot;
    for (unsigned i = 1; i < 3; i++) /* as after a try of which the outcome is not known */
        pool_rig_set(&r.second, i, line_at(&r.second, slot), 77);
    r.first.client.attention.lease_lost = true;
    assert_int_equal(op_begin(&r.first.op, NULL), FAR_OK);
    op_end(&r.first.op);
    assert_int_not_equal(r.first.client.incarnation, before);
    assert_int_equal(r.first.client.slot, slot);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pool_rig_get(&r.second, i, line_at(&r.second, r.first.client.slot)),
                         r.first.client.incarnation);
    close_rig(&r);
}

static void a_slot_that_voters_gave_away_is_not_taken(void **state)
{
    struct rig r;
    struct pool_rig third;
    uint64_t holder = 0;
    (void)state;
    open_rig(&r, POOL);
    unsigned next = r.second.client.slot + 1;
    pool_rig_set(&r.first, 0, line_at(&r.first, next), 77);
    pool_rig_set(&r.first, 2, line_at(&r.first, next), 77);
    assert_int_equal(members_present(&r.first.client.members, r.first.client.to_voters,
                                     (struct presence_claim){next, 0, 55, false}, &holder),
                     FAR_CONTENTION);
    assert_int_equal(holder, 77);
    assert_int_equal(pool_rig_get(&r.first, 1, line_at(&r.first, next)), 0); /* it withdrew */
    assert_int_equal(pool_rig_join(&third, r.first.fab, 3), FAR_OK);
    assert_int_equal(third.client.slot, next + 1);
    pool_rig_close(&third);
    /* A minority does not count. */
    pool_rig_set(&r.first, 2, line_at(&r.first, next), 0);
    assert_int_equal(pool_rig_join(&third, r.first.fab, 3), FAR_OK);
    assert_int_equal(third.client.slot, next);
    pool_rig_close(&third);
    close_rig(&r);
}

static void the_last_slot_is_taken_back_from_one_that_never_registered(void **state)
{
    struct rig r;
    struct pool_rig third;
    (void)state;
    open_rig(&r, POOL "&clients=3&lease=60");
    for (unsigned i = 0; i < 3; i++)
        pool_rig_set(&r.first, i, line_at(&r.first, 2), 77);
    assert_int_equal(pool_rig_join(&third, r.first.fab, 3), FAR_OK);
    assert_int_equal(third.client.slot, 2);
    assert_int_equal(pool_rig_get(&third, 1, line_at(&third, 2)), third.client.incarnation);
    pool_rig_close(&third);
    close_rig(&r);
}

static void a_client_learns_of_a_view_when_a_node_refuses_its_own(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    assert_int_equal(r.first.ep->view, 1);
    assert_int_equal(pool_change_members(&r.second.op, 1, false), FAR_OK);
    assert_int_equal(r.second.ep->view, 2);
    /* Its first batch is refused, and posted again: it does not notice. */
    assert_int_equal(pool_rig_get(&r.first, 0, NODE_VIEW_OFF), 2);
    assert_int_equal(r.first.ep->view, 2);
    assert_int_equal(pool_rig_get(&r.first, 0, line_at(&r.first, r.first.client.slot) + 8), 2);
    close_rig(&r);
}

/* A client left the slot while voter 1 could not be reached. Then the slot's owner meets a view in
 * which that voter is half of them. */
static void a_line_that_was_left_behind_costs_nobody_a_slot(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, POOL);
    struct client *c = &r.first.client;
    unsigned slot = c->slot;
    uint64_t incarnation = c->incarnation;
    pool_rig_set(&r.second, 1, line_at(&r.second, slot), 77);
    assert_int_equal(pool_change_members(&r.second.op, 2, false), FAR_OK);
    assert_int_equal(pool_rig_get(&r.first, 0, NODE_VIEW_OFF), 2);
    assert_true(c->slot == slot && c->incarnation == incarnation && !c->attention.lease_lost);
    assert_int_equal(pool_rig_get(&r.second, 1, line_at(&r.second, slot)), incarnation);
    /* If the slot is another client's, the voters are right. */
    pool_rig_set(&r.second, 1, line_at(&r.second, slot), 77);
    pool_rig_set(&r.second, 0, slot_delta(slot), 77);
    assert_int_equal(pool_change_members(&r.second.op, 2, true), FAR_OK);
    pool_rig_set(&r.second, 2, line_at(&r.second, slot), 77);
    batch_read(&r.first.op.batch, NODE0, NODE_VIEW_OFF, r.first.op.word, 8);
    assert_int_equal(batch_flush(&r.first.op.batch), FAR_FENCED);
    assert_true(c->attention.lease_lost);
    close_rig(&r);
}

static struct rig *beside;
static unsigned changed;

/* Just before a client changes its word in the registry, a view begins. */
static void begin_view(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    (void)tap;
    for (unsigned i = 0; i < count && changed == 0; i++)
        if (verbs[i].kind == FAB_CAS && verbs[i].off >= CLIENTS_OFF) {
            changed = 1;
            ASSERT(pool_change_members(&beside->second.op, 1, false) == FAR_OK);
        }
}

static void a_view_that_begins_while_a_session_registers_again_costs_no_slot(void **state)
{
    struct rig r;
    struct batch_tap tap = {.posted = begin_view};
    (void)state;
    open_rig(&r, POOL);
    struct client *c = &r.first.client;
    unsigned slot = c->slot;
    beside = &r;
    changed = 0;
    r.first.op.batch.tap = &tap;
    c->attention.lease_lost = true;
    assert_int_equal(op_begin(&r.first.op, NULL), FAR_OK);
    op_end(&r.first.op);
    r.first.op.batch.tap = NULL;
    assert_int_equal(changed, 1);
    assert_int_equal(c->slot, slot);
    assert_int_equal(pool_rig_get(&r.second, 0, slot_delta(slot)), c->incarnation);
    for (unsigned i = 0; i < 3; i += 2) {
        assert_int_equal(pool_rig_get(&r.second, i, line_at(&r.second, slot)), c->incarnation);
        assert_int_equal(pool_rig_get(&r.second, i, line_at(&r.second, slot) + 8), 2);
    }
    close_rig(&r);
}

static unsigned fences;

static int count_fence(struct fab_ep *ep, uint64_t identity)
{
    (void)ep;
    (void)identity;
    fences++;
    return FAR_OK;
}

/* It tried the last slot, too, before it got its own, and could not take its line back there. */
static void a_client_that_has_a_slot_is_not_shut_out_for_its_line_at_another(void **state)
{
    struct rig r;
    struct pool_rig third;
    (void)state;
    open_rig(&r, POOL "&clients=3&lease=60");
    for (unsigned i = 0; i < 3; i++)
        pool_rig_set(&r.first, i, line_at(&r.first, 2), r.first.client.incarnation);
    const struct fab_ops *real = r.first.fab->ops;
    struct fab_ops counting = *real;
    counting.fence = count_fence;
    r.first.fab->ops = &counting;
    fences = 0;
    assert_int_equal(pool_rig_join(&third, r.first.fab, 3), FAR_OK);
    assert_int_equal(third.client.slot, 2);
    assert_int_equal(fences, 0);
    pool_rig_close(&third);
    r.first.fab->ops = real;
    close_rig(&r);
}

/* Voter 1 is killed when the client wants to say that it works in the new view. */
static void kill_before_attending(struct batch_tap *tap, const struct fab_verb *verbs,
                                  unsigned count)
{
    (void)tap;
    for (unsigned i = 0; i < count && changed == 0; i++)
        if (verbs[i].kind == FAB_WRITE) {
            changed = 1;
            kill_node(&beside->second, 1);
        }
}

static void a_client_works_in_no_view_that_it_has_not_attended(void **state)
{
    struct rig r;
    struct batch_tap tap = {.posted = kill_before_attending};
    (void)state;
    open_rig(&r, POOL);
    beside = &r;
    changed = 0;
    assert_int_equal(pool_change_members(&r.second.op, 2, false), FAR_OK);
    r.first.client.to_voters->tap = &tap;
    for (unsigned i = 0; i < 2; i++) {
        batch_read(&r.first.op.batch, NODE0, NODE_VIEW_OFF, r.first.op.word, 8);
        assert_int_equal(batch_flush(&r.first.op.batch), FAR_UNREACHABLE);
        assert_int_equal(r.first.ep->view, 1);
    }
    r.first.client.to_voters->tap = NULL;
    assert_int_equal(members_accept(&r.second.client.members, r.second.client.to_voters), FAR_OK);
    assert_int_equal(pool_rig_get(&r.first, 0, NODE_VIEW_OFF), 2);
    assert_int_equal(r.first.ep->view, 3);
    close_rig(&r);
}

/* ---- making pools ---------------------------------------------------------------------------- */

/* Makes a pool on nodes of which some say that they are witnesses. */
static int make(const char *uri, uint64_t witnesses, struct pool_rig *r)
{
    struct fab *fab = NULL;
    struct fab_ep *ep = NULL;
    struct cost cost = {0};
    struct batch b;
    assert_int_equal(fab_open(uri, &fab), FAR_OK);
    assert_int_equal(fab->ops->ep_open(fab, &ep), FAR_OK);
    batch_init(&b, ep, &cost);
    uint64_t *word = ep->ops->buf_alloc(ep, 8);
    *word = NODE_KIND_WITNESS;
    for (unsigned i = 0; i < fab->nodes; i++)
        if (witnesses >> i & 1)
            batch_write(&b, MARK_EARLY, gaddr_make(i, 0), NODE_KIND_OFF, word, 8);
    assert_int_equal(batch_flush(&b), FAR_OK);
    ep->ops->buf_free(ep, word, 8);
    ep->ops->ep_close(ep);
    int rc = pool_rig_join(r, fab, 1);
    r->owns_fab = true;
    if (rc != FAR_OK)
        fab_close(fab);
    return rc;
}

static void a_witness_votes_and_keeps_no_data(void **state)
{
    struct pool_rig r;
    struct far_members all;
    struct far_member list[FAR_NODES_MAX];
    gaddr at = 0;
    (void)state;
    assert_int_equal(make("mem:?size=2m&nodes=3&voters=3", 4, &r), FAR_OK);
    assert_int_equal(r.pool.nodes, 2);
    assert_int_equal(pool_members(&r.op, &all, list), FAR_OK);
    assert_int_equal(all.nodes, 3);
    assert_int_equal(all.voters, 3);
    assert_int_equal(all.majority, 2);
    assert_int_equal(all.answering, 3);
    assert_true(list[1].data && !list[2].data && list[2].votes);
    int rc = FAR_OK;
    while (rc == FAR_OK) {
        assert_true(gaddr_node(at) < 2);
        rc = pool_alloc(&r.op, 0, CLASS_COUNT / 2, &at);
    }
    assert_int_equal(rc, FAR_POOL_FULL);
    pool_rig_close(&r);
}

static void wrong_witnesses_and_voters_are_refused(void **state)
{
    struct pool_rig r;
    struct fab *fab = NULL;
    (void)state;
    assert_int_equal(make("mem:?size=2m&nodes=3&voters=3", 1, &r), FAR_INVALID);
    assert_int_equal(make("mem:?size=2m&nodes=3&voters=3", 2, &r), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "witnesses come last"));
    assert_int_equal(make("mem:?size=2m&nodes=3", 4, &r), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "has no voters"));
    assert_int_equal(make("mem:?size=2m&nodes=2&voters=3", 0, &r), FAR_INVALID);
    assert_int_equal(make("mem:?size=2m&nodes=3&voters=3&clients=20000", 4, &r), FAR_POOL_FULL);
    assert_non_null(strstr(far_error_detail(), "too few to hold a pool"));
    assert_int_equal(make("mem:?size=1m&nodes=64&voters=3", 0, &r), FAR_INVALID);
    assert_int_equal(fab_open("mem:?voters=2", &fab), FAR_BAD_URI);
    assert_int_equal(fab_open("mem:?voters=7", &fab), FAR_BAD_URI);
}

static void a_small_node_has_room_for_the_log(void **state)
{
    struct pool_rig r;
    (void)state;
    pool_rig_open(&r, "mem:?size=1m&voters=1");
    assert_true(r.pool.head[0].chunks >= 8);
    assert_int_equal(change(&r, MEMBERS_OUT, 0), FAR_INVALID);
    pool_rig_close(&r);
}

static void a_pool_without_voters_does_not_pay(void **state)
{
    struct pool_rig r;
    struct far_members all;
    (void)state;
    pool_rig_open(&r, "mem:?size=2m&nodes=2");
    assert_int_equal(r.pool.catalog_off, members_off(r.pool.clients));
    assert_null(r.client.members.word);
    assert_int_equal(r.ep->view, 0);
    assert_int_equal(pool_members(&r.op, &all, NULL), FAR_OK);
    assert_int_equal(all.voters, 0);
    assert_int_equal(pool_change_members(&r.op, 0, false), FAR_UNSUPPORTED);
    assert_int_equal(pool_accept_members(&r.pool), FAR_UNSUPPORTED);
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_clients_learn_what_is_decided),
        cmocka_unit_test(two_that_suspect_each_others_node_do_not_both_get_it_out),
        cmocka_unit_test(what_one_voter_has_accepted_is_brought_to_a_decision),
        cmocka_unit_test(what_most_have_accepted_is_learned_by_reading),
        cmocka_unit_test(what_was_only_promised_binds_nobody),
        cmocka_unit_test(too_few_and_too_many_voters_are_refused),
        cmocka_unit_test(a_client_that_comes_late_learns_all_though_the_first_voters_are_gone),
        cmocka_unit_test(the_log_ends_with_a_clear_message),
        cmocka_unit_test(a_voter_that_was_killed_counts_when_it_is_taken_in_again),
        cmocka_unit_test(a_voter_that_forgot_makes_no_second_truth),
        cmocka_unit_test(without_a_majority_nothing_is_decided_and_nobody_registers),
        cmocka_unit_test(the_head_of_the_log_is_read_from_any_node),
        cmocka_unit_test(a_session_is_present_while_it_is_open),
        cmocka_unit_test(a_session_that_registers_again_is_present_under_its_new_name),
        cmocka_unit_test(a_slot_that_voters_gave_away_is_not_taken),
        cmocka_unit_test(the_last_slot_is_taken_back_from_one_that_never_registered),
        cmocka_unit_test(a_client_learns_of_a_view_when_a_node_refuses_its_own),
        cmocka_unit_test(what_was_decided_is_there_when_an_operator_accepts_voters),
        cmocka_unit_test(a_node_that_has_lost_its_memory_is_not_taken_in),
        cmocka_unit_test(a_voter_with_data_comes_back_empty),
        cmocka_unit_test(a_line_that_was_left_behind_costs_nobody_a_slot),
        cmocka_unit_test(a_view_that_begins_while_a_session_registers_again_costs_no_slot),
        cmocka_unit_test(a_client_that_has_a_slot_is_not_shut_out_for_its_line_at_another),
        cmocka_unit_test(a_client_works_in_no_view_that_it_has_not_attended),
        cmocka_unit_test(a_witness_votes_and_keeps_no_data),
        cmocka_unit_test(wrong_witnesses_and_voters_are_refused),
        cmocka_unit_test(a_small_node_has_room_for_the_log),
        cmocka_unit_test(a_pool_without_voters_does_not_pay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
