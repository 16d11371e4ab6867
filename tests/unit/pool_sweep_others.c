/* Sweeps, and clients that do not take part: one that has not met the sweep, one that comes
 * after a sweep without a sweeper, one whose cache leads to memory that a sweep finds. */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"

static int put(struct store_rig *r, far_session *s, uint64_t key)
{
    return far_put(s, r->table, &key, sizeof key, &key, sizeof key);
}

/* An announcement without an operation. */
static void announce(far_session *s)
{
    puppet_announce_hurried(&s->client);
    batch_read(&s->op.batch, 0, CONTROL_OFF, s->op.pool_word, 8);
    assert_int_equal(batch_flush(&s->op.batch), FAR_OK);
}

/* The rig's session announces a sweep. Returns another one, which holds memory. */
static far_session *begin_sweep(struct store_rig *r, struct probe *p)
{
    far_session *s = NULL;
    probe_open(p, r->fab);
    assert_int_equal(far_session_open(r->pool, NULL, &s), FAR_OK);
    assert_int_equal(put(r, s, 1), FAR_OK);
    assert_true(puppet_held_bytes(&s->client) > 0);
    probe_set(p, 0, NODE_SWEEP_OFF, probe_get(p, 0, NODE_NEXT_CHUNK_OFF));
    probe_set(p, 0, PROBE_CONTROL(sweep), client_owner_word(&r->session->client) | SWEEP_ANNOUNCED);
    return s;
}

/* SWEEP-P2: it has let go of nothing yet. The sweeper waits until all clients have met the
 * sweep, this one too, however often it sends its heartbeat. */
static void a_client_that_has_not_met_a_sweep_holds_it_up(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;
    far_session *s = begin_sweep(&r, &p);

    (void)state;
    uint64_t announced = probe_epoch(&p);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
        announce(s);
        assert_true(puppet_sweep_unmet(&s->client) && puppet_held_bytes(&s->client) > 0);
        assert_true(probe_get(&p, 0, PROBE_SLOT(s->client.slot, epoch)) <= announced);
    }
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
    }
    assert_true(puppet_held_bytes(&s->client) == 0);
    assert_true(probe_get(&p, 0, PROBE_SLOT(s->client.slot, epoch)) > announced);
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* Until it has heard of the end, a client does not give memory back. After that it does. */
static void a_sweep_that_has_ended_is_forgotten(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;
    far_session *s = begin_sweep(&r, &p);

    (void)state;
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
    assert_true(puppet_sweep(&s->client) != 0);
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    announce(s);
    assert_true(puppet_sweep(&s->client) == 0 && !puppet_sweep_unmet(&s->client));
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* A sweeper registered again, and could not announce that it has given up: its word names no
 * client. No client uses the lists or anything below its mark, until one needs memory and takes
 * the sweep over. */
static void a_sweep_that_nobody_makes_is_taken_over(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=2m&" HOUR);
    struct probe p;
    uint64_t keys = 0;

    (void)state;
    probe_open(&p, r.fab);
    while (put(&r, r.session, keys) == FAR_OK)
        keys++;
    for (uint64_t k = 0; k < keys; k++)
        assert_int_equal(far_delete(r.session, r.table, &k, 8), FAR_OK);
    uint64_t mark = probe_get(&p, 0, NODE_NEXT_CHUNK_OFF);
    uint64_t word = (client_owner_word(&r.session->client) ^ 1ull << 30) | SWEEP_ANNOUNCED;
    probe_set(&p, 0, NODE_SWEEP_OFF, mark);
    probe_set(&p, 0, PROBE_CONTROL(sweep), word);
    for (uint64_t k = 0; k < keys / 2; k++)
        assert_int_equal(put(&r, r.session, k), FAR_OK);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    probe_close(&p);
    store_rig_close(&r);
}

/* A pool with time that the test drives. Another session takes all memory, and dies in a sweep that
 * was announced or not. The rig's session has no memory, nor any that waits for its epoch. */
static struct store_rig rig_of_dead_sweeper(struct probe *p, uint64_t announced)
{
    struct far_table_options table = {.tuning = "groups=2"};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    gaddr at = 0;

    knobs.tick_ops = 1;
    store_rig_open_driven(&r, "mem:?size=2m", &knobs, NULL, &table);
    probe_open(p, r.fab);
    far_session *s = store_rig_join(&r);
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    while (pool_alloc(&s->op, 0, 0, &at) == FAR_OK) {
    }
    op_end(&s->op);
    probe_set(p, 0, NODE_SWEEP_OFF, probe_get(p, 0, NODE_NEXT_CHUNK_OFF));
    probe_set(p, 0, PROBE_CONTROL(deaths), 1); /* others died before it: a sweep is worth it */
    probe_set(p, 0, PROBE_CONTROL(sweep), client_owner_word(&s->client) | announced);
    store_rig_kill(s);
    client_drop_all(&r.session->client);
    return r;
}

static void expect_swept(struct store_rig *r, struct probe *p)
{
    assert_int_equal(put(r, r->session, 1), FAR_OK);
    assert_true(probe_get(p, 0, PROBE_CONTROL(sweep)) == 0);
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    probe_close(p);
    store_rig_close(r);
}

/* The sweeper died before it announced the sweep, so nobody has met that. A client that needs
 * memory waits until the sweeper is found dead, and then sweeps. */
static void a_sweep_that_was_never_announced_is_waited_for(void **state)
{
    struct probe p;
    (void)state;
    struct store_rig r = rig_of_dead_sweeper(&p, 0);
    expect_swept(&r, &p);
}

/* The sweeper's slot is free already. The client that needs memory cannot sweep before its own
 * failed verbs have arrived and its work is recovered: it waits for that. */
static void a_client_with_unfinished_work_takes_a_sweep_over_later(void **state)
{
    struct probe p;
    (void)state;
    struct store_rig r = rig_of_dead_sweeper(&p, SWEEP_ANNOUNCED);
    unsigned slot = owner_slot(probe_get(&p, 0, PROBE_CONTROL(sweep)));
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
    puppet_inherit(&r.session->client);
    puppet_strays(&r.session->client);
    expect_swept(&r, &p);
}

/* SWEEP-P3: if the client that split a subtable died before it changed the caches' version, the
 * subtable is out of the directory, but still in caches. */
static void a_sweep_outdates_caches(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct sweep_result swept;
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(put(&r, r.session, 1), FAR_OK);
    const struct cached *cached = &race_rig_view(&r)->base.cached;
    uint64_t version = probe_get(&p, cached->version_at, cached->version_delta);
    assert_true(!cached->stale && cached->version == version);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    assert_true(probe_get(&p, cached->version_at, cached->version_delta) != version);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    int (*mark)(void *arg, struct op *op, struct marker *marker);
    struct probe p;
    uint64_t epoch; /* when all was marked */
} marked;

static int mark_and_note(void *arg, struct op *op, struct marker *marker)
{
    int rc = marked.mark(arg, op, marker);
    marked.epoch = probe_epoch(&marked.p);
    return rc;
}

/* SWEEP-P3: an operation may still be reading what became unreachable before it could be marked. */
static void a_sweep_waits_for_two_epochs_behind_its_marks(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct sweep_result swept;

    (void)state;
    knobs.tick_ops = UINT32_MAX; /* nothing else moves the epoch on */
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    probe_open(&marked.p, r.fab);
    assert_int_equal(put(&r, r.session, 1), FAR_OK);
    marked.mark = r.pool->pool.mark;
    r.pool->pool.mark = mark_and_note;
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    assert_true(probe_epoch(&marked.p) >= marked.epoch + 2);
    probe_close(&marked.p);
    store_rig_close(&r);
}

/* `count` requests fail, from number `first` on; they take effect if `done` is set. */
static struct {
    const struct fab_ops *real;
    struct fab_ops ops;
    unsigned first, count, posted;
    bool done;
} breaks;

static int post_or_break(struct fab_ep *ep, struct fab_req *req)
{
    bool fails = breaks.posted >= breaks.first && breaks.posted < breaks.first + breaks.count;
    breaks.posted++;
    if (!fails)
        return breaks.real->post(ep, req);
    if (breaks.done)
        (void)breaks.real->post(ep, req);
    return FAR_UNKNOWN;
}

/* Others need not wait until the sweeper dies. */
static void a_sweep_that_broke_off_does_not_shut_others_out(void **state)
{
    unsigned finished = 0;

    (void)state;
    for (unsigned n = 0; finished < 4; n++) {
        struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
        far_session *s = NULL;
        struct sweep_result swept;
        struct probe p;
        assert_true(n < 4000);
        probe_open(&p, r.fab);
        assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
        assert_int_equal(put(&r, s, 1), FAR_OK);
        assert_int_equal(client_park(&r.session->op), FAR_OK); /* the sweep does not wait for it */
        breaks.real = s->client.ep->ops;
        breaks.ops = *breaks.real;
        breaks.ops.post = post_or_break;
        breaks.first = n / 4;
        breaks.count = n / 2 % 2 ? 2 : 1; /* also when it wants to give up */
        breaks.done = n % 2;
        breaks.posted = 0;
        s->client.ep->ops = &breaks.ops;
        finished += pool_sweep(&s->op, &swept) == FAR_OK;
        s->client.ep->ops = breaks.real;
        puppet_no_strays(&s->client); /* half a lease later */
        assert_int_equal(put(&r, s, 2), FAR_OK);
        assert_int_equal(client_park(&s->op), FAR_OK);
        assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
        assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
        far_session_close(s);
        probe_close(&p);
        store_rig_close(&r);
    }
}

/* The announcement fails, but lands while the sweep is given up: as early or as late as the orders
 * of verbs allow. */
static struct {
    struct probe *p;
    uint64_t from, to; /* of the announcement, while it is under way; to == 0: it is not */
    unsigned tries;
    bool early;
} lands;

static void post_one(struct fab_ep *ep, struct fab_verb *verb)
{
    struct fab_req one = {.verbs = verb, .count = 1};
    assert_int_equal(breaks.real->post(ep, &one), FAR_OK);
    assert_true(one.done);
}

static int post_and_land_late(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *v = req->verbs;
    bool cas = v[0].kind == FAB_CAS && v[0].off == PROBE_CONTROL(sweep);
    if (cas && (v[0].swap & SWEEP_ANNOUNCED) && lands.to == 0) {
        lands.from = v[0].compare;
        lands.to = v[0].swap;
        req->status = FAR_UNKNOWN;
        req->done = true;
        return FAR_OK;
    }
    if (lands.to == 0 || req->count != 3 || v[1].kind != FAB_CAS || v[2].kind != FAB_CAS)
        return breaks.real->post(ep, req);
    bool ordered = v[2].flags & FAB_FENCE;
    post_one(ep, &v[0]);
    if (ordered && lands.early)
        (void)probe_cas(lands.p, 0, PROBE_CONTROL(sweep), lands.from, lands.to);
    post_one(ep, &v[ordered ? 1 : 2]);
    if (!lands.early || !ordered)
        (void)probe_cas(lands.p, 0, PROBE_CONTROL(sweep), lands.from, lands.to);
    post_one(ep, &v[ordered ? 2 : 1]);
    lands.tries++;
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

static void an_announcement_that_lands_late_is_taken_back(void **state)
{
    (void)state;
    for (unsigned early = 0; early < 2; early++) {
        struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
        struct sweep_result swept;
        struct probe p;
        probe_open(&p, r.fab);
        r.fab->order = ORDER_IB; /* atomics are in no order without a fence */
        assert_int_equal(put(&r, r.session, 1), FAR_OK);
        breaks.real = r.session->client.ep->ops;
        breaks.ops = *breaks.real;
        breaks.ops.post = post_and_land_late;
        lands = (typeof(lands)){.p = &p, .early = early};
        r.session->client.ep->ops = &breaks.ops;
        assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_UNKNOWN);
        r.session->client.ep->ops = breaks.real;
        assert_int_equal(lands.tries, 1);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
        puppet_no_strays(&r.session->client);
        assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
        probe_close(&p);
        store_rig_close(&r);
    }
}

/* It has a journal line to recover, so it goes on, and meets the sweep later. */
static void an_operation_that_began_before_the_sweep_was_met_holds_it_up(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    far_session *s = NULL;
    struct probe p;
    struct op held;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    assert_int_equal(op_init(&held, &s->client), FAR_OK);
    probe_set(&p, 0, NODE_SWEEP_OFF, probe_get(&p, 0, NODE_NEXT_CHUNK_OFF));
    probe_set(&p, 0, PROBE_CONTROL(sweep), client_owner_word(&r.session->client) | SWEEP_ANNOUNCED);
    uint64_t announced = probe_epoch(&p);
    for (unsigned i = 0; i < 8; i++) { /* the epoch goes on by one, which the client validates */
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
        announce(s);
    }
    assert_true(puppet_sweep_unmet(&s->client) && puppet_epoch_validated(&s->client) > announced);
    puppet_set_undone(&s->client, 1);
    assert_int_equal(op_begin(&held, NULL), FAR_OK);
    puppet_set_undone(&s->client, 0);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
        assert_false(puppet_sweep_unmet(&s->client));
        assert_true(probe_get(&p, 0, PROBE_SLOT(s->client.slot, epoch)) <= announced);
    }
    op_end(&held);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
        assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    }
    assert_true(probe_get(&p, 0, PROBE_SLOT(s->client.slot, epoch)) > announced);
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0);
    op_free(&held);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    struct probe *p;
    far_session *s;
    uint64_t word; /* of the next sweep */
    bool came;
} next;

static void next_sweep_comes(void)
{
    next.came = true;
    probe_set(next.p, 0, PROBE_CONTROL(sweep), next.word);
    probe_set(next.p, 0, PROBE_CONTROL(sweeps), probe_get(next.p, 0, PROBE_CONTROL(sweeps)) + 1);
}

/* It comes behind the first verb of a request that reads the word and the count. */
static int next_within_post(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_req first = *req;
    uint64_t off = req->verbs[0].off;
    if (next.came || req->count != 2 ||
        (off != PROBE_CONTROL(sweep) && off != PROBE_CONTROL(sweeps)))
        return hook.real->post(ep, req);
    first.count = 1;
    hook_run(ep, &first);
    next_sweep_comes();
    req->verbs++;
    req->count--;
    hook_run(ep, req);
    req->verbs--;
    req->count++;
    return FAR_OK;
}

/* It comes before the marks are read, and another operation of the client announces it. */
static int next_before_the_marks_post(struct fab_ep *ep, struct fab_req *req)
{
    if (!next.came && req->verbs[0].off == NODE_SWEEP_OFF) {
        struct op other;
        next_sweep_comes();
        assert_int_equal(op_init(&other, &next.s->client), FAR_OK);
        puppet_announce_hurried(&next.s->client);
        batch_read(&other.batch, 0, CONTROL_OFF, other.pool_word, 8);
        assert_int_equal(batch_flush(&other.batch), FAR_OK);
        op_free(&other);
    }
    return hook.real->post(ep, req);
}

static void meet_while_the_next_comes(struct store_rig *r, struct probe *p,
                                      int (*post)(struct fab_ep *ep, struct fab_req *req))
{
    next.p = p;
    next.s = begin_sweep(r, p);
    next.word = probe_get(p, 0, PROBE_CONTROL(sweep)) + SWEEP_COUNT;
    next.came = false;
    probe_set(p, 0, PROBE_CONTROL(sweeps), probe_get(p, 0, PROBE_CONTROL(sweeps)) + 1);
    announce(next.s);
    assert_true(puppet_sweep_unmet(&next.s->client));
    hook_on(next.s->client.ep);
    hook.ops.post = post;
    assert_int_equal(client_meet_sweep(&next.s->op), FAR_OK);
    hook_off();
    assert_true(next.came);
}

static void end_next_sweep(struct store_rig *r, struct probe *p)
{
    probe_set(p, 0, PROBE_CONTROL(sweep), 0);
    far_session_close(next.s);
    probe_close(p);
    store_rig_close(r);
}

/* Else it would not know later that there was one more, and keep what that has found. */
static void a_client_that_meets_a_sweep_counts_no_later_one(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;

    (void)state;
    meet_while_the_next_comes(&r, &p, next_within_post);
    uint64_t sweeps = probe_get(&p, 0, PROBE_CONTROL(sweeps));
    assert_int_equal(puppet_sweeps_seen(&next.s->client), sweeps - 1);
    end_next_sweep(&r, &p);
}

/* The marks may be those of either sweep. */
static void a_client_does_not_meet_a_sweep_that_another_has_followed(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;

    (void)state;
    meet_while_the_next_comes(&r, &p, next_before_the_marks_post);
    assert_true(puppet_sweep(&next.s->client) == 0 && puppet_sweep_unmet(&next.s->client));
    end_next_sweep(&r, &p);
}

static void a_damaged_mark_is_within_the_node(void **state)
{
    struct store_rig r = store_rig_announcing("mem:?size=4m&" HOUR);
    struct probe p;
    uint64_t words[FAB_NODES_MAX] = {0};

    (void)state;
    probe_open(&p, r.fab);
    probe_set(&p, 0, NODE_SWEEP_OFF, UINT64_MAX);
    assert_int_equal(pool_read_marks(&r.session->op, NODE_SWEEP_OFF, words), FAR_OK);
    assert_int_equal(words[0], pool_head(&r.pool->pool, 0)->chunks);
    probe_set(&p, 0, NODE_SWEEP_OFF, 0);
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_has_not_met_a_sweep_holds_it_up),
        cmocka_unit_test(a_sweep_that_has_ended_is_forgotten),
        cmocka_unit_test(an_operation_that_began_before_the_sweep_was_met_holds_it_up),
        cmocka_unit_test(a_sweep_that_nobody_makes_is_taken_over),
        cmocka_unit_test(a_sweep_that_was_never_announced_is_waited_for),
        cmocka_unit_test(a_client_with_unfinished_work_takes_a_sweep_over_later),
        cmocka_unit_test(a_sweep_outdates_caches),
        cmocka_unit_test(a_sweep_waits_for_two_epochs_behind_its_marks),
        cmocka_unit_test(a_sweep_that_broke_off_does_not_shut_others_out),
        cmocka_unit_test(a_client_that_meets_a_sweep_counts_no_later_one),
        cmocka_unit_test(a_client_does_not_meet_a_sweep_that_another_has_followed),
        cmocka_unit_test(a_damaged_mark_is_within_the_node),
        cmocka_unit_test(an_announcement_that_lands_late_is_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
