/*
 * Pools with voters: sessions register with them, and clients change who votes, while voters cannot
 * be reached, or are killed and come back with the log as it was, or without it.
 *
 * All clients agree about every view: that is what the harness keeps here. In the end most voters
 * count, and the last view is one that all can learn.
 */
#include "check/check_internal.h"

#include "store/store_internal.h"

#define ENTRIES_FORGOTTEN 16u

/* Compares what a client knows with what others knew in the same view. */
static void compare(struct check *c, const struct members *m)
{
    struct members_account *a = &c->members;
    unsigned view = members_view(m);
    uint64_t seed[2] = {m->voters, view};
    uint64_t sum = hash_sum(m->life, sizeof m->life, hash_sum(seed, sizeof seed, 0));
    if (view >= VIEWS_MAX)
        return;
    if (a->sum[view] == 0)
        a->sum[view] = sum;
    else if (a->sum[view] != sum)
        check_fail(c, CHECK_BAD_STRUCTURE, "clients disagree about the members in view %u", view);
    if (view < a->newest)
        return;
    a->newest = view;
    for (unsigned i = 0; i < c->plan.nodes; i++)
        a->counts[i] =
            m->voters >> i & 1 && m->life[i] == life_part(sim_word(c->sim, i, NODE_LIFE_OFF));
}

/* A node is killed, and starts again; with the log as it was, or without what came last. Never more
 * than one at a time, or most voters would not count. */
static void kill_voter(struct check *c)
{
    struct members_account *a = &c->members;
    unsigned node = tape_choose(c->tape, c->plan.nodes, TAPE_FAULT);
    for (unsigned i = 0; i < c->plan.nodes; i++)
        if (!a->counts[i])
            return;
    a->counts[node] = false;
    a->lives++;
    sim_fill(c->sim, node, NODE_LIFE_OFF, 2, (uint8_t)a->lives);
    if (tape_choose(c->tape, 2, TAPE_FAULT))
        sim_fill(c->sim, node, members_off(c->pool->pool.clients) + log_off(1),
                 8ull * ENTRIES_FORGOTTEN, 0);
    c->result.coverage.voters_killed++;
    sim_note(c->sim, "a voter is killed");
}

static bool is_expected(const struct check *c, int rc)
{
    return rc == FAR_OK || rc == FAR_EXISTS || rc == FAR_INVALID || rc == FAR_CONTENTION ||
           rc == FAR_FENCED || rc == FAR_UNREACHABLE || check_is_excused(c, rc);
}

static int change(struct check *c, struct check_client *me)
{
    unsigned node = tape_choose(c->tape, c->plan.nodes, TAPE_WORK);
    bool in = c->plan.restarts || tape_choose(c->tape, 2, TAPE_WORK);
    sim_note(c->sim, in ? "takes a voter in" : "puts a voter out");
    return far_pool_change_members(me->session, node, in);
}

int check_members_use(struct check *c, struct check_client *me)
{
    struct far_members all;
    if (c->plan.restarts && tape_choose(c->tape, 3, TAPE_WORK) == 2)
        kill_voter(c);
    bool changes = tape_choose(c->tape, 3, TAPE_WORK) > 0;
    int rc = changes ? change(c, me) : far_pool_members(me->session, &all, NULL);
    if (sim_unwinding(c->sim))
        return rc;
    if (!is_expected(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, changes ? "changing the members" : "members");
    compare(c, &me->session->client.members);
    c->result.coverage.members_changed += changes && rc == FAR_OK;
    return rc == FAR_EXISTS || rc == FAR_INVALID ? FAR_OK : rc;
}

void check_members_audit(struct check *c, far_session *session)
{
    struct far_members all;
    if (!c->plan.votes || c->result.verdict != CHECK_PASSED)
        return;
    int rc = far_pool_members(session, &all, NULL);
    if (rc != FAR_OK || all.answering < all.majority)
        check_fail_status(c, CHECK_NOT_LIVE, rc, "with all nodes back, reading the members");
    compare(c, &session->client.members);
    if (all.view < c->members.newest)
        check_fail(c, CHECK_BAD_STRUCTURE, "view %u is lost: the last one is %u", c->members.newest,
                   all.view);
}
