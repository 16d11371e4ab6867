/* Journal lines that stay as they are when their operations have ended; recoveries that note what
 * they have redone, and that look at the lines of all clients. */
#include "support/recovery_rig.h"

#define NODES "mem:?nodes=3&size=4m&clients=8&" LEASE

static bool line_says(struct probe *p, gaddr at)
{
    return probe_get(p, at, offsetof(struct journal_line, intent.stamp)) != 0;
}

/* An operation has changed something, released its locks, and leaves its line as it is. */
static void spend(far_session *s, struct journal *j)
{
    uint64_t redo = 99;
    journal_redo(&s->op, j, &redo, 8);
    journal_done(&s->op, j);
    assert_int_equal(batch_flush(&s->op.batch), FAR_OK);
    journal_spend(&s->op, j);
}

static void fence(struct probe *p, far_session *s)
{
    probe_set(p, 0, PROBE_SLOT(s->client.slot, incarnation), s->client.incarnation | CLIENT_FENCED);
}

/* ---- spent lines ----------------------------------------------------------------------------- */

static void a_spent_line_is_used_again(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j, again;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    take(s, 0, &j, 1);
    spend(s, &j);
    assert_true(line_says(&p, j.at));
    assert_int_equal(puppet_undone(&s->client), 0);
    take(s, 0, &again, 4);
    assert_true(again.at == j.at);
    assert_int_equal(recover(r.session, s), FAR_OK);
    assert_true(seen.calls == 1 && seen.sum == 4 && seen.redo == 0 && !seen.done);
    close_dead(s);
    end(&r, &p);
}

static void a_dead_clients_spent_line_says_that_it_is_done(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    take(s, 0, &j, 1);
    spend(s, &j);
    assert_int_equal(recover(r.session, s), FAR_OK);
    assert_true(seen.calls == 1 && seen.redo == 99 && seen.done);
    assert_false(line_says(&p, j.at));
    assert_true(probe_incarnation(&p, s->client.slot) == 0);
    close_dead(s);
    end(&r, &p);
}

/* Also if there are more than fit into a batch, and if an operation took a line but wrote nothing
 * there. Parking a client that has none costs no more than before. */
static void a_parked_client_has_blank_lines(void **state)
{
    enum { LINES = BATCH_MAX + 3 };
    struct store_rig r;
    struct probe p;
    struct journal j[3][LINES];

    (void)state;
    begin(&r, &p, NODES);
    far_session *s = join(&r);
    unsigned count[3] = {LINES, 0, 2};
    for (unsigned node = 0; node < 3; node++) {
        for (unsigned i = 0; i < count[node]; i++)
            take(s, node, &j[node][i], 1);
        for (unsigned i = 0; i < count[node]; i++)
            spend(s, &j[node][i]);
    }
    struct journal unused[2];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(journal_take(&s->op, 2, &unused[i]), FAR_OK);
    journal_give(&s->op, &unused[0], true);
    journal_give(&s->op, &unused[1], false);
    for (unsigned turn = 0; turn < 2; turn++) {
        unsigned before = s->op.cost.rtts;
        assert_int_equal(client_park(&s->op), FAR_OK);
        assert_true(puppet_parked(&s->client));
        assert_int_equal(s->op.cost.rtts - before, turn == 0 ? 4 : 1);
    }
    for (unsigned node = 0; node < 3; node++)
        for (unsigned i = 0; i < count[node]; i++)
            assert_false(line_says(&p, j[node][i].at));
    assert_int_equal(get(&r, s), FAR_OK); /* the lines can be used again */
    gaddr known = j[2][0].at + j[2][1].at;
    for (unsigned i = 0; i < 2; i++) {
        take(s, 2, &j[2][i], 1);
        known -= j[2][i].at;
    }
    assert_true(known == 0);
    close_dead(s);
    end(&r, &p);
}

static void lines_in_use_are_not_blanked(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j[2], again;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    for (unsigned i = 0; i < 2; i++)
        take(s, 0, &j[i], 1);
    for (unsigned i = 0; i < 2; i++)
        spend(s, &j[i]);
    take(s, 0, &again, 4);
    assert_true(again.at == j[1].at);
    assert_int_equal(client_park(&s->op), FAR_OK);
    assert_false(line_says(&p, j[0].at));
    assert_true(line_says(&p, j[1].at));
    close_dead(s);
    end(&r, &p);
}

static struct {
    struct op *op;
    struct journal line;
    bool took;
} sibling;

static int post_and_take(struct fab_ep *ep, struct fab_req *req)
{
    if (!sibling.took && req->verbs[0].kind == FAB_WRITE && req->verbs[0].len == 16) {
        sibling.took = true;
        assert_int_equal(journal_take(sibling.op, 0, &sibling.line), FAR_OK);
    }
    return hook.real->post(ep, req);
}

/* A sibling takes a line while the WRITE that blanks one is under way. */
static void a_line_is_not_taken_while_it_is_blanked(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;
    struct op op;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    take(s, 0, &j, 1);
    spend(s, &j);
    assert_int_equal(op_init(&op, &s->client), FAR_OK);
    sibling = (typeof(sibling)){.op = &op};
    hook_on(s->client.ep);
    hook.ops.post = post_and_take;
    assert_int_equal(client_park(&s->op), FAR_OK);
    hook_off();
    assert_true(sibling.took && sibling.line.at != j.at);
    journal_give(&op, &sibling.line, true);
    op_free(&op);
    close_dead(s);
    end(&r, &p);
}

static struct {
    int rc;
    unsigned node;
} fails;

static int fail_to_blank(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    bool blanks = v->kind == FAB_WRITE && v->len == 16 && v->node == fails.node;
    return blanks ? fails.rc : hook.real->post(ep, req);
}

/* The WRITE may arrive later. So no operation uses the line before the client has recovered it. */
static void a_line_is_left_if_it_may_be_blanked_later(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j, other;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    take(s, 0, &j, 1);
    spend(s, &j);
    hook_on(s->client.ep);
    hook.ops.post = fail_to_blank;
    fails = (typeof(fails)){FAR_UNKNOWN, 0};
    assert_int_equal(client_park(&s->op), FAR_OK);
    hook_off();
    assert_false(puppet_parked(&s->client));
    assert_int_equal(puppet_undone(&s->client), 1);
    assert_int_equal(journal_take(&s->op, 0, &other), FAR_OK);
    assert_true(other.at != j.at);
    journal_give(&s->op, &other, true);
    puppet_no_strays(&s->client);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_true(seen.calls == 1 && seen.done);
    assert_false(line_says(&p, j.at));
    assert_int_equal(client_park(&s->op), FAR_OK);
    assert_true(puppet_parked(&s->client));
    far_session_close(s);
    end(&r, &p);
}

/* The epochs do not wait for an idle client because a node is away. */
static void a_client_is_parked_while_a_node_is_away(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j[3];

    (void)state;
    begin(&r, &p, NODES);
    far_session *s = join(&r);
    for (unsigned node = 0; node < 3; node++) {
        take(s, node, &j[node], 1);
        spend(s, &j[node]);
    }
    hook_on(s->client.ep);
    hook.ops.post = fail_to_blank;
    fails = (typeof(fails)){FAR_UNREACHABLE, 1};
    assert_int_equal(client_park(&s->op), FAR_OK);
    hook_off();
    assert_true(puppet_parked(&s->client));
    for (unsigned node = 0; node < 3; node++)
        assert_true(line_says(&p, j[node].at) == (node == 1));
    assert_int_equal(client_park(&s->op), FAR_OK); /* the next heartbeat */
    assert_false(line_says(&p, j[1].at));
    assert_int_equal(puppet_undone(&s->client), 0);
    far_session_close(s);
    end(&r, &p);
}

/* JOURNAL-J4: the slot is not free before its lines are blank. */
static void a_client_that_leaves_has_blank_lines(void **state)
{
    static const int ways[] = {FAR_OK, FAR_UNREACHABLE, FAR_UNKNOWN};
    struct store_rig r;
    struct probe p;

    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        struct journal j[2];
        begin(&r, &p, NODES);
        far_session *s = join(&r);
        unsigned slot = s->client.slot;
        uint64_t incarnation = s->client.incarnation;
        for (unsigned i = 0; i < 2; i++) {
            take(s, i, &j[i], 1);
            spend(s, &j[i]);
        }
        hook_on(s->client.ep);
        hook.ops.post = fail_to_blank;
        fails = (typeof(fails)){ways[way], ways[way] == FAR_OK ? 9 : 1};
        far_session_close(s);
        assert_true(probe_incarnation(&p, slot) == (way == 0 ? 0 : incarnation));
        assert_false(line_says(&p, j[0].at));
        assert_true(line_says(&p, j[1].at) == (way > 0));
        assert_int_equal(puppet_recover(&r.session->op, slot, incarnation), FAR_OK);
        assert_int_equal(seen.calls, way > 0);
        end(&r, &p);
    }
}

/* ---- recoveries that redo a change ----------------------------------------------------------- */

static struct {
    unsigned calls;
    bool done[2];
    gaddr own;
    uint64_t own_stamp, stamp;
} redo;

/* Redoes the change under a line of its own, and fails before it has blanked the dead client's. */
static int redo_once(void *arg, struct op *op, const struct journal_entry *entry)
{
    struct journal_subject subject = {.place = 6, .tag = 8, .what = 7};
    struct journal own;
    uint64_t data = 3;
    (void)arg;
    assert_true(redo.calls < 2);
    redo.done[redo.calls] = entry->done;
    if (redo.calls++ > 0)
        return FAR_OK;
    assert_int_equal(journal_take(op, 0, &own), FAR_OK);
    journal_intend(op, &own, &subject, &data, 8);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    journal_entry_done(op, entry);
    journal_done(op, &own);
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    redo.own = own.at;
    redo.own_stamp = own.stamp;
    redo.stamp = entry->stamp;
    journal_spend(op, &own);
    return FAR_UNREACHABLE;
}

static void a_second_recovery_finds_the_change_done(void **state)
{
    const uint64_t done = offsetof(struct journal_line, done);
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    r.pool->pool.recover = redo_once;
    redo = (typeof(redo)){0};
    far_session *s = join(&r);
    take(s, 0, &j, 1);
    assert_int_equal(recover(r.session, s), FAR_UNREACHABLE);
    assert_true(redo.stamp == j.stamp && redo.own_stamp != j.stamp);
    assert_true(probe_get(&p, j.at, done) == j.stamp);
    assert_true(probe_get(&p, redo.own, done) == redo.own_stamp);
    s->client.incarnation = probe_incarnation(&p, s->client.slot);
    assert_int_equal(recover(r.session, s), FAR_OK);
    assert_true(redo.calls == 2 && !redo.done[0] && redo.done[1]);
    close_dead(s);
    end(&r, &p);
}

/* ---- looking at the lines of all clients ----------------------------------------------------- */

static struct {
    uint64_t alive, dead; /* sums of what the intents said */
    unsigned calls, redone;
    gaddr last;
} visited;

static void note_visit(void *arg, const struct journal_entry *entry, bool alive)
{
    uint64_t data = 0;
    assert_true(arg == &visited && entry->len == 8 && entry->stamp != 0);
    memcpy(&data, entry->data, 8);
    *(alive ? &visited.alive : &visited.dead) += data;
    visited.calls++;
    visited.redone += entry->redo && entry->done;
    visited.last = entry->at;
}

static void visit(struct op *op, unsigned node)
{
    visited = (typeof(visited)){0};
    assert_int_equal(journal_visit(op, node, note_visit, &visited), FAR_OK);
}

static void the_lines_of_all_slots_are_visited(void **state)
{
    struct journal_subject subject = {.place = 6, .tag = 8, .what = 7};
    struct store_rig r;
    struct probe p;
    struct journal j[8];

    (void)state;
    begin(&r, &p, "mem:?nodes=3&size=4m&clients=80&" LEASE);
    far_session *live = join(&r), *dead = join(&r);
    visit(&r.session->op, 0);
    assert_int_equal(visited.calls, 0);
    take(r.session, 0, &j[0], 1);
    for (unsigned i = 1; i < 4; i++) /* a chain */
        take(live, 0, &j[i], 1ull << i);
    take(live, 1, &j[4], 1 << 4);
    take(dead, 0, &j[5], 1 << 5);
    take(dead, 0, &j[6], 1 << 6);
    take(live, 0, &j[7], 1 << 7);
    give(live, &j[7]); /* it says nothing */
    spend(live, &j[3]);
    for (unsigned slot = 3; slot < 80; slot++) /* more than are read at once */
        probe_set(&p, 0, PROBE_SLOT(slot, journals), 1);
    journal_plant(&p, &r.pool->pool, 70, subject, 1 << 8);
    journal_plant(&p, &r.pool->pool, 71, subject, 1 << 9);
    probe_set(&p, 0, PROBE_SLOT(70, incarnation), claim_of(live));
    probe_set(&p, 0, PROBE_SLOT(71, incarnation), 4711);
    fence(&p, dead);
    visit(&r.session->op, 0);
    assert_true(visited.alive == (1 | 2 | 4 | 8 | 1 << 9));
    assert_true(visited.dead == (1 << 5 | 1 << 6 | 1 << 8));
    assert_int_equal(visited.calls, 8);
    assert_int_equal(visited.redone, 1);
    visit(&r.session->op, 1);
    assert_true(visited.calls == 1 && visited.alive == 1 << 4 && visited.last == j[4].at);
    visit(&r.session->op, 2);
    assert_int_equal(visited.calls, 0);
    probe_set(&p, 0, PROBE_SLOT(70, incarnation), 0);
    probe_set(&p, 0, PROBE_SLOT(71, incarnation), 0);
    give(r.session, &j[0]);
    close_dead(live);
    close_dead(dead);
    end(&r, &p);
}

/* JOURNAL-J6: before the lines, and after all of them. A ring that is deep makes chains as long. */
static void a_visit_reads_the_registry_twice(void **state)
{
    enum { LINES = 20 };
    struct store_rig r;
    struct probe p;
    struct journal j[LINES];

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    for (unsigned i = 0; i < LINES; i++)
        take(s, 0, &j[i], 1ull << i);
    uint64_t before = r.session->op.cost.rtts;
    visit(&r.session->op, 0);
    assert_int_equal(visited.calls, LINES);
    assert_int_equal(r.session->op.cost.rtts - before, 2 + LINES);
    close_dead(s);
    end(&r, &p);
}

/* It is not fenced, and recovers itself what it left. */
static void a_client_that_renewed_its_registration_is_alive(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r);
    uint64_t incarnation = s->client.incarnation;
    take(s, 0, &j, 1);
    spend(s, &j);
    puppet_lapse(&s->client);
    assert_int_equal(get(&r, s), FAR_OK);
    assert_true(s->client.incarnation != incarnation);
    visit(&r.session->op, 0);
    assert_true(visited.alive == 1 && visited.dead == 0);
    far_session_close(s);
    end(&r, &p);
}

static struct {
    struct probe *probe;
    far_session *session;
    uint64_t fenced; /* CLIENT_FENCED: it dies at once */
} joins;

/* The client takes its slot just before the lines are read. */
static int post_and_join(struct fab_ep *ep, struct fab_req *req)
{
    if (req->verbs[0].off >= journal_off(8) && joins.session) {
        const struct client *c = &joins.session->client;
        probe_set(joins.probe, 0, PROBE_SLOT(c->slot, incarnation), c->incarnation | joins.fenced);
        joins.session = NULL;
    }
    return hook.real->post(ep, req);
}

/* JOURNAL-J6 */
static void a_client_that_joins_meanwhile_is_alive(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bool fenced = i & 1, dies = i & 2;
        begin(&r, &p, URI);
        far_session *s = join(&r);
        take(s, 0, &j, 1);
        probe_set(&p, 0, PROBE_SLOT(s->client.slot, incarnation),
                  fenced ? 4711 | CLIENT_FENCED : 0);
        joins = (typeof(joins)){&p, s, dies ? CLIENT_FENCED : 0};
        hook_on(r.session->client.ep);
        hook.ops.post = post_and_join;
        visit(&r.session->op, 0);
        hook_off();
        assert_true(!joins.session && visited.alive == 1 && visited.dead == 0);
        probe_set(&p, 0, PROBE_SLOT(s->client.slot, incarnation), s->client.incarnation);
        give(s, &j);
        far_session_close(s);
        end(&r, &p);
    }
}

static int visit_and_compare(void *arg, struct op *op, const struct journal_entry *entry)
{
    uint64_t data = 0;
    (void)arg;
    seen.calls++;
    visit(op, 0);
    memcpy(&data, entry->data, 8);
    assert_int_equal(data, 2); /* of the line that is recovered, not of the last one visited */
    assert_true(visited.alive == 5 && visited.dead == 2);
    return FAR_OK;
}

static void a_recovery_looks_at_the_lines_of_others(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j[3];

    (void)state;
    begin(&r, &p, URI);
    r.pool->pool.recover = visit_and_compare;
    far_session *dead = join(&r), *live = join(&r);
    take(r.session, 0, &j[0], 1);
    take(dead, 0, &j[1], 2);
    take(live, 0, &j[2], 4);
    assert_int_equal(recover(r.session, dead), FAR_OK);
    assert_int_equal(seen.calls, 1);
    assert_false(line_says(&p, j[1].at));
    give(r.session, &j[0]);
    close_dead(dead);
    close_dead(live);
    end(&r, &p);
}

static void a_damaged_chain_is_visited_up_to_the_damage(void **state)
{
    struct store_rig r;
    struct probe p;
    struct journal j[2], other;

    (void)state;
    begin(&r, &p, URI);
    far_session *s = join(&r), *t = join(&r);
    for (unsigned i = 0; i < 2; i++)
        take(s, 0, &j[i], 1ull << i);
    take(t, 0, &other, 4);
    probe_set(&p, j[1].at, offsetof(struct journal_line, magic), 1);
    visit(&r.session->op, 0);
    assert_true(visited.calls == 2 && visited.alive == 5);
    probe_set(&p, 0, JOURNAL_AT(&r.pool->pool, s->client.slot, next), UINT64_MAX);
    visit(&r.session->op, 0);
    assert_true(visited.calls == 2 && visited.alive == 5);
    close_dead(s);
    close_dead(t);
    end(&r, &p);
}

/* ---- the epoch within an operation ----------------------------------------------------------- */

static void an_operation_reads_the_epoch(void **state)
{
    struct store_rig r;
    struct probe p;
    uint64_t epoch = 0;

    (void)state;
    begin(&r, &p, URI);
    struct op *op = &r.session->op;
    push_epochs(r.session);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    unsigned before = op->cost.rtts;
    assert_int_equal(client_epoch_now(op, &epoch), FAR_OK);
    assert_int_equal(op->cost.rtts - before, 1);
    assert_true(epoch == probe_epoch(&p));
    push_epochs(r.session);
    assert_true(probe_epoch(&p) < epoch + 2); /* it lasts */
    op_end(op);
    push_epochs(r.session);
    assert_true(probe_epoch(&p) >= epoch + 2);
    end(&r, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spent_line_is_used_again),
        cmocka_unit_test(a_dead_clients_spent_line_says_that_it_is_done),
        cmocka_unit_test(a_parked_client_has_blank_lines),
        cmocka_unit_test(lines_in_use_are_not_blanked),
        cmocka_unit_test(a_line_is_not_taken_while_it_is_blanked),
        cmocka_unit_test(a_line_is_left_if_it_may_be_blanked_later),
        cmocka_unit_test(a_client_is_parked_while_a_node_is_away),
        cmocka_unit_test(a_client_that_leaves_has_blank_lines),
        cmocka_unit_test(a_second_recovery_finds_the_change_done),
        cmocka_unit_test(the_lines_of_all_slots_are_visited),
        cmocka_unit_test(a_client_that_renewed_its_registration_is_alive),
        cmocka_unit_test(a_visit_reads_the_registry_twice),
        cmocka_unit_test(a_client_that_joins_meanwhile_is_alive),
        cmocka_unit_test(a_recovery_looks_at_the_lines_of_others),
        cmocka_unit_test(a_damaged_chain_is_visited_up_to_the_damage),
        cmocka_unit_test(an_operation_reads_the_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
