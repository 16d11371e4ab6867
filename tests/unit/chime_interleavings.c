/* Interleavings that CHIME must survive. A script of changes splits, merges and moves. One of them
 * stops between any two of its verbs, or in the middle of a WRITE. There others look at all keys,
 * or the client dies. Other tests direct what a run of the simulator seldom does. */
#include "index/chime/chime.h"
#include "support/chime_image.h"
#include "support/hook.h"
#include "support/sweep_rig.h"

#include <stdio.h>

#define KEYS         64u
#define STEPS        (3 * KEYS)
#define HOUR_NS      (3600ull * 1000000000)
#define REGISTRY_END 0x10000u /* no table is below */
#define SMALL        "span=8&neighbourhood=4&cache=16&hot=0"

struct rig {
    struct store_rig r;
    far_session *a, *b, *c; /* b is r.session */
    far_table *t;
    uint64_t value[KEYS]; /* 0: the key is not there */
};
static struct rig *the; /* for hooks */
static bool long_keys;  /* all with the same first 8 bytes */
static bool long_lease; /* nobody is taken for dead by time alone */
/* Seeds of sessions say on which nodes their new leaves are. */
#define SEED_OF_A       614
#define SEED_OTHER_NODE 404
static uint64_t seed_of_a = SEED_OF_A;

static void open_rig(struct rig *g)
{
    struct far_table_options options = {.tuning = SMALL, .hash_seed = 3};
    struct far_session_options session = {.seed = 3};
    struct knobs knobs = pool_knobs_default;
    memset(g, 0, sizeof *g);
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r,
                          long_lease ? "mem:?nodes=2&size=4m&clients=8&" HOUR
                                     : "mem:?nodes=2&size=4m&clients=8&lease=100",
                          &knobs, &session, NULL);
    g->b = g->r.session;
    g->a = join(&g->r, seed_of_a, 1);
    g->c = join(&g->r, 20, 1);
    assert_int_equal(far_table_create(g->b, "c", "chime", &options, &g->t), FAR_OK);
    assert_int_equal(far_delete(g->b, g->t, "k", 1), FAR_NOT_FOUND); /* it knows the table */
    the = g;
}

static void close_rig(struct rig *g)
{
    if (g->a)
        far_session_close(g->a);
    if (g->c)
        far_session_close(g->c);
    store_rig_close(&g->r);
}

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
}

static void expect_whole(struct rig *g)
{
    struct audit a;
    assert_int_equal(far_table_check(g->b, g->t, say, NULL), FAR_OK);
    expect_sound(&g->r, &g->b, 1, &a);
}

/* Posts some of a request's verbs. */
static int post_part(struct fab_ep *ep, struct fab_req *req, unsigned from, unsigned count)
{
    struct fab_verb *all = req->verbs;
    unsigned of = req->count;
    req->verbs = all + from;
    req->count = count;
    req->done = false;
    int rc = hook.real->post(ep, req);
    req->verbs = all;
    req->count = of;
    return rc;
}

static struct chime_view *view_of(struct rig *g, far_session *s)
{
    return chime_view(store_known(s, g->t)->view);
}

/* ---- the script ------------------------------------------------------------------------------ */

static size_t key_bytes(unsigned number, char key[16])
{
    uint64_t k = __builtin_bswap64((uint64_t)number * 1000003);
    if (long_keys)
        return (size_t)snprintf(key, 16, "together%03u", number);
    memcpy(key, &k, 8);
    return 8;
}

static unsigned step_key(unsigned step)
{
    return (step % KEYS * 37 + step / KEYS * 11) % KEYS;
}
/* What the step gives its key. */
static uint64_t step_value(unsigned step)
{
    return step < 2 * KEYS ? step + 1 : 0;
}

static int do_step(struct rig *g, far_session *s, unsigned step)
{
    char key[16];
    size_t len = key_bytes(step_key(step), key);
    uint64_t value = step_value(step);
    return value ? far_put(s, g->t, key, len, &value, 8) : far_delete(s, g->t, key, len);
}

static void run_step(struct rig *g, unsigned step)
{
    assert_int_equal(do_step(g, g->b, step), FAR_OK);
    g->value[step_key(step)] = step_value(step);
}

/* ---- looking --------------------------------------------------------------------------------- */
static unsigned changing; /* the step that is under way; STEPS: none is */
static bool done_seen;    /* it has taken effect: somebody has seen it */
static bool undone;       /* its client was told that it has no effect */

/* Somebody has found this value, or 0. */
static void expect_found(struct rig *g, unsigned number, uint64_t value)
{
    bool may = changing < STEPS && number == step_key(changing);
    if (may && !undone && value == step_value(changing))
        done_seen = true;
    else if (value != g->value[number] || (may && done_seen))
        fail_msg("key %u is %llu, not %llu; step %u", number, (unsigned long long)value,
                 (unsigned long long)g->value[number], changing);
}

static void look_at_keys(struct rig *g, far_session *s)
{
    for (unsigned number = 0; number < KEYS; number++) {
        char key[16];
        uint64_t value = 0;
        size_t len = 0;
        int rc = far_get(s, g->t, key, key_bytes(number, key), &value, 8, &len);
        if (rc != FAR_NOT_FOUND)
            assert_int_equal(rc, FAR_OK);
        expect_found(g, number, value);
    }
}

static void scan_keys(struct rig *g, far_session *s)
{
    char buf[8192], key[16];
    size_t len = 0, pos = 0;
    struct far_range range = {0};
    struct far_entry e = {0};
    bool more = true;
    assert_int_equal(far_scan(s, g->t, &range, buf, sizeof buf, &len, &more), FAR_OK);
    assert_false(more);
    bool any = far_entry_next(buf, len, &pos, &e);
    for (unsigned number = 0; number < KEYS; number++) {
        uint64_t value = 0;
        size_t klen = key_bytes(number, key);
        if (any && e.key_len == klen && memcmp(e.key, key, klen) == 0) {
            memcpy(&value, e.value, 8);
            any = far_entry_next(buf, len, &pos, &e);
        }
        expect_found(g, number, value);
    }
    assert_false(any);
}

static void look(struct rig *g, far_session *s)
{
    look_at_keys(g, s);
    scan_keys(g, s);
}

/* ---- a client that stops --------------------------------------------------------------------- */
static struct {
    unsigned at, verbs; /* it stops at this verb that changes the table; those that it has posted */
    bool tears;         /* half of the next WRITE is done */
    bool looked;        /* others look while it stands still, instead of its death */
    bool stopped, dead;
    unsigned slot;
    uint64_t slot_word;
    unsigned deaths, moves; /* nodes that it has said to be dead; WRITEs of all groups */
    unsigned locks;         /* attempts to take one */
} stop;

/* Others see what there is. If they had to wait for the client, they have shut it out. */
static void look_meanwhile(struct rig *g)
{
    look(g, g->b);
    if (g->c)
        look(g, g->c);
    stop.dead = store_rig_get(&g->r, NODE0, slot_delta(stop.slot)) != stop.slot_word;
}

/* Does the verb change the table? Attempts to take a lock do not count: there are many. */
static bool changes_table(const struct fab_verb *v)
{
    return v->kind != FAB_READ && v->off >= REGISTRY_END &&
           !(v->kind == FAB_CAS && v->compare == 0);
}

/* Counts such verbs. Returns the one at which the client stops; count: it does not. */
static unsigned count_verbs(const struct fab_req *req)
{
    unsigned at = req->count;
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        stop.deaths += v->kind == FAB_CAS && v->swap == CHIME_DEAD;
        stop.locks += v->kind == FAB_CAS && v->compare == 0 && v->off >= REGISTRY_END;
        stop.moves += v->kind == FAB_WRITE && v->len == view_of(the, the->b)->shape.group_bytes;
        if (changes_table(v) && stop.verbs++ == stop.at)
            at = i;
    }
    return at;
}

static int post_until(struct fab_ep *ep, struct fab_req *req)
{
    if (stop.dead)
        return FAR_UNREACHABLE;
    unsigned from = count_verbs(req);
    int rc = FAR_OK;
    if (from == req->count)
        return hook.real->post(ep, req);
    struct fab_verb *v = &req->verbs[from];
    bool tears = stop.tears && v->kind == FAB_WRITE && v->len > 8;
    stop.stopped = true;
    if (from > 0)
        rc = post_part(ep, req, 0, from);
    if (tears) {
        uint32_t len = v->len;
        v->len = len / 16 * 8;
        rc = post_part(ep, req, from, 1);
        v->len = len;
    }
    stop.dead = !stop.looked;
    if (stop.looked)
        look_meanwhile(the);
    if (!stop.dead)
        return post_part(ep, req, from, req->count - from);
    req->status = FAR_UNKNOWN;
    return from > 0 || tears ? rc : FAR_UNREACHABLE;
}

/* Step `changing` is done by a session, and stops at a verb. Returns what it returns. */
static int stop_in_step(struct rig *g, far_session *s, unsigned at)
{
    stop.at = at;
    stop.stopped = stop.dead = false;
    stop.verbs = stop.deaths = stop.moves = stop.locks = 0;
    stop.slot = s->client.slot;
    stop.slot_word = store_rig_get(&g->r, NODE0, slot_delta(stop.slot));
    hook_on(s->client.ep);
    hook.ops.post = post_until;
    int rc = do_step(g, s, changing);
    hook_off();
    if (rc == FAR_OK)
        done_seen = true;
    else if (rc != FAR_UNKNOWN)
        undone = !done_seen;
    return rc;
}

/* The same. A session that has stopped there is dead. */
static void die_in_step(struct rig *g, far_session **s, unsigned at)
{
    int rc = stop_in_step(g, *s, at);
    if (!stop.dead && rc == FAR_OK)
        return;
    store_rig_kill(*s);
    *s = NULL;
}

/* After step `changing`, which may have stopped in the middle. */
static void go_on(struct rig *g)
{
    unsigned step = changing;
    if (g->c)
        look(g, g->c);
    look(g, g->b);
    int rc = do_step(g, g->b, step);
    if (rc != FAR_NOT_FOUND)
        assert_int_equal(rc, FAR_OK);
    g->value[step_key(step)] = step_value(step);
    changing = STEPS;
    look(g, g->b);
    for (unsigned next = step + 1; next < STEPS && next < step + 24; next++)
        run_step(g, next);
    look(g, g->b);
    if (g->c)
        look(g, g->c); /* what it has cached is old */
    expect_whole(g);
}

static void prepare(struct rig *g, unsigned step)
{
    open_rig(g);
    changing = STEPS;
    for (unsigned i = 0; i < step; i++)
        run_step(g, i);
    look(g, g->a);
    look(g, g->b);
    look(g, g->c);
    changing = step;
    done_seen = undone = false;
}

/* The client of a step stops at a verb. Returns whether it came there. */
static bool try_step(unsigned step, unsigned at)
{
    struct rig g;
    prepare(&g, step);
    die_in_step(&g, &g.a, at);
    bool stopped = stop.stopped;
    go_on(&g);
    close_rig(&g);
    return stopped;
}

/* The client of a step dies, and then the next one does. */
static bool try_twice(unsigned step, unsigned at, unsigned then)
{
    struct rig g;
    prepare(&g, step);
    die_in_step(&g, &g.a, at);
    bool stopped = stop.stopped;
    undone = false;
    if (stopped)
        die_in_step(&g, &g.c, then);
    undone = false;
    stopped &= stop.stopped;
    go_on(&g);
    close_rig(&g);
    return stopped;
}

static void try_all(unsigned step, bool twice)
{
    unsigned at = 0, runs = 0;
    while (try_step(step, at))
        at++;
    for (unsigned first = 0; twice && first < at; first++)
        for (unsigned then = 0; try_twice(step, first, then); then++)
            runs++;
    printf("    step %u: %u verbs, %u times two deaths\n", step, at, runs);
}

/* What a step does beside its change. */
enum kind { NOTHING, MOVE, SPLIT, MERGE, NO_MERGE }; /* NO_MERGE: one that was given up */

static unsigned find_steps(enum kind kind, unsigned found[STEPS])
{
    struct rig g;
    unsigned count = 0;
    prepare(&g, 0);
    for (changing = 0; changing < STEPS; changing++) {
        uint64_t splits = view_of(&g, g.a)->base.grown;
        assert_int_equal(stop_in_step(&g, g.a, UINT32_MAX), FAR_OK);
        enum kind is = stop.deaths > 0                          ? MERGE
                       : view_of(&g, g.a)->base.grown != splits ? SPLIT
                       : stop.moves > 0                         ? MOVE
                       : stop.locks > 3                         ? NO_MERGE
                                                                : NOTHING;
        if (is == kind || (kind == NOTHING && is == NO_MERGE))
            found[count++] = changing;
    }
    close_rig(&g);
    assert_true(count > 0);
    return count;
}

/* Tries `max` of the steps that do this, with keys of both kinds. `twice`: with two deaths, if keys
 * are short; with long ones each attempt writes a block. */
static void try_kind(enum kind kind, unsigned max, bool twice)
{
    unsigned found[STEPS];
    for (unsigned keys = 0; keys < 2; keys++) {
        long_keys = keys == 1;
        unsigned count = find_steps(kind, found);
        for (unsigned i = 0; i < max; i++)
            try_all(found[(uint64_t)i * count / max], twice && !long_keys);
    }
    long_keys = false;
}

#define STOPPING_TEST(name, kind, max, twice, looks, torn)                                         \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        stop.tears = torn;                                                                         \
        stop.looked = looks;                                                                       \
        try_kind(kind, max, twice);                                                                \
    }

STOPPING_TEST(a_change_may_stop_anywhere, NOTHING, 3, false, false, false)
STOPPING_TEST(a_move_may_stop_anywhere, MOVE, 3, false, false, false)
STOPPING_TEST(a_split_may_stop_anywhere, SPLIT, 3, false, false, false)
STOPPING_TEST(a_merge_may_stop_anywhere, MERGE, 3, false, false, false)
STOPPING_TEST(a_change_may_stop_in_a_write, NOTHING, 2, false, false, true)
STOPPING_TEST(a_move_may_stop_in_a_write, MOVE, 2, false, false, true)
STOPPING_TEST(a_split_may_stop_in_a_write, SPLIT, 2, false, false, true)
STOPPING_TEST(a_merge_may_stop_in_a_write, MERGE, 2, false, false, true)
STOPPING_TEST(a_change_may_be_seen_anywhere, NOTHING, 2, false, true, false)
STOPPING_TEST(a_move_may_be_seen_anywhere, MOVE, 2, false, true, true)
STOPPING_TEST(a_split_may_be_seen_anywhere, SPLIT, 2, false, true, true)
STOPPING_TEST(a_merge_may_be_seen_anywhere, MERGE, 2, false, true, true)
STOPPING_TEST(a_recovery_of_a_split_may_stop_anywhere, SPLIT, 1, true, false, true)
STOPPING_TEST(a_recovery_of_a_merge_may_stop_anywhere, MERGE, 1, true, false, true)

/* ---- a client that comes late ---------------------------------------------------------------- */
static unsigned late_steps; /* that others do meanwhile */
static unsigned mover;      /* the step of the client that is late */

static void do_late_steps(struct rig *g)
{
    for (; late_steps > 0; late_steps--, changing++)
        run_step(g, changing);
}

/* Before a client reads leaves that it has found, others change them. */
static int read_late(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (late_steps > 0 && v->kind == FAB_READ && v->len % (8 * CHIME_GROUP_WORDS) == 0)
        do_late_steps(the);
    return hook.real->post(ep, req);
}

/* The session looks for a key, or scans if there is none; others do the steps before it reads. */
static void look_late(unsigned step, unsigned number)
{
    struct rig g;
    char key[16];
    uint64_t value = 0;
    size_t len = 0;
    prepare(&g, step);
    late_steps = 6;
    hook_on(g.c->client.ep);
    hook.ops.post = read_late;
    if (number == KEYS) {
        scan_keys(&g, g.c);
    } else {
        int rc = far_get(g.c, g.t, key, key_bytes(number, key), &value, 8, &len);
        assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
        assert_int_equal(value, g.value[number]);
    }
    hook_off();
    assert_int_equal(late_steps, 0);
    close_rig(&g);
}

static void look_late_at(enum kind kind)
{
    unsigned found[STEPS];
    for (unsigned keys = 0; keys < 2; keys++) {
        long_keys = keys == 1;
        unsigned count = find_steps(kind, found);
        for (unsigned i = 0; i < 4; i++) {
            for (unsigned number = i; number < KEYS; number += 4) /* of each leaf at least one */
                look_late(found[i * count / 4], number);
            look_late(found[i * count / 4], KEYS);
        }
    }
    long_keys = false;
}

static void a_reader_may_come_after_a_split(void **state)
{
    (void)state;
    look_late_at(SPLIT);
}

static void a_reader_may_come_after_a_merge(void **state)
{
    (void)state;
    look_late_at(MERGE);
}

/* An iteration by small parts, while others do a step after each part. What is there throughout is
 * returned. */
static void iterate_during(unsigned from, unsigned steps)
{
    struct rig g;
    char buf[64], key[16];
    uint64_t cursor = 0;
    bool seen[KEYS] = {false};
    prepare(&g, from);
    for (unsigned part = 0; part == 0 || cursor != 0; part++) {
        size_t len = 0, pos = 0;
        struct far_entry e;
        assert_true(part < 40 * KEYS);
        assert_int_equal(far_iterate(g.c, g.t, &cursor, 0, buf, sizeof buf, &len), FAR_OK);
        while (far_entry_next(buf, len, &pos, &e))
            for (unsigned n = 0; n < KEYS; n++)
                seen[n] |= key_bytes(n, key) == e.key_len && memcmp(key, e.key, e.key_len) == 0;
        late_steps = changing < from + steps;
        do_late_steps(&g);
    }
    for (unsigned n = 0; n < KEYS; n++)
        if (g.value[n] != 0)
            assert_true(seen[n]);
    close_rig(&g);
}

static void an_iteration_finds_what_is_merged(void **state)
{
    (void)state;
    for (unsigned keys = 0; keys < 2; keys++) {
        long_keys = keys == 1;
        for (unsigned from = 2 * KEYS; from < STEPS - 8; from += 3)
            iterate_during(from, STEPS - from - 6);
    }
    long_keys = false;
}

/* A client has split a leaf. Before it enters the new one into the parent, others do so, and merge
 * it again. */
static int enter_late(struct fab_ep *ep, struct fab_req *req)
{
    if (late_steps == 1 && req->verbs[0].kind == FAB_CAS) {
        late_steps = 0;
        changing = STEPS;
        the->value[step_key(mover)] = step_value(mover);
        look(the, the->b);
        for (unsigned step = 2 * KEYS; step < STEPS; step++) {
            char key[16];
            (void)far_delete(the->b, the->t, key, key_bytes(step_key(step), key));
        }
    }
    for (unsigned i = 0; i < req->count; i++)
        if (late_steps == 2 && req->verbs[i].kind == FAB_WRITE &&
            req->verbs[i].len == view_of(the, the->b)->shape.bytes)
            late_steps = 1;
    return hook.real->post(ep, req);
}

static void a_dead_node_is_not_entered(void **state)
{
    unsigned found[STEPS], count = find_steps(SPLIT, found);
    (void)state;
    for (unsigned i = 0; i < count; i++) {
        struct rig g;
        mover = found[i];
        prepare(&g, mover);
        late_steps = 2;
        hook_on(g.a->client.ep);
        hook.ops.post = enter_late;
        assert_int_equal(do_step(&g, g.a, mover), FAR_OK);
        hook_off();
        memset(g.value, 0, sizeof g.value);
        changing = STEPS;
        look(&g, g.b);
        for (unsigned step = 0; step < KEYS; step++)
            run_step(&g, step);
        look(&g, g.c);
        expect_whole(&g);
        close_rig(&g);
    }
}

static void a_scan_keeps_its_limit(void **state)
{
    struct rig g;
    char buf[4096];
    size_t len = 0, pos = 0;
    struct far_range range = {.limit = 3};
    struct far_entry e;
    unsigned count = 0;
    bool more = false;
    (void)state;
    long_keys = true;
    prepare(&g, 30);
    assert_int_equal(far_scan(g.b, g.t, &range, buf, sizeof buf, &len, &more), FAR_OK);
    while (far_entry_next(buf, len, &pos, &e))
        count++;
    assert_int_equal(count, 3);
    assert_true(more);
    close_rig(&g);
    long_keys = false;
}

/* ---- a recovery that fails ------------------------------------------------------------------- */
static bool taken; /* the lock of a dead client: the next request fails, and no other one */

static int fail_after_taking(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (taken && late_steps == 1) {
        late_steps = 0;
        return FAR_UNREACHABLE;
    }
    taken |= req->count == 1 && v->kind == FAB_CAS && v->off >= REGISTRY_END && v->compare != 0 &&
             v->swap != 0;
    return hook.real->post(ep, req);
}

/* A client dies in a step. Another one takes its lock and cannot go on, but lives. */
static bool fail_to_recover(unsigned step, unsigned at)
{
    struct rig g;
    stop.tears = true;
    stop.looked = false;
    prepare(&g, step);
    die_in_step(&g, &g.a, at);
    bool stopped = stop.stopped;
    undone = taken = false;
    late_steps = 1;
    hook_on(g.b->client.ep);
    hook.ops.post = fail_after_taking;
    if (do_step(&g, g.b, step) == FAR_OK)
        done_seen = true;
    hook_off();
    go_on(&g);
    close_rig(&g);
    return stopped;
}

static void a_recovery_that_fails_is_left_to_others(void **state)
{
    unsigned found[STEPS];
    (void)state;
    for (unsigned kind = MOVE; kind <= MERGE; kind++) {
        unsigned count = find_steps(kind, found);
        for (unsigned i = 0, at = 0; i < 3; i++, at = 0)
            while (fail_to_recover(found[i * count / 3], at))
                at++;
    }
}

/* ---- a reader that is slow ------------------------------------------------------------------- */
static struct {
    bool upper; /* the upper half of each leaf is read first */
    bool early; /* it begins to read before the other client dies, not only before the recovery */
    bool met;
    unsigned at; /* where that client dies */
} slow;

/* Posts halves of READs of leaves, one by one. With the later ones, all other verbs. */
static int post_halves(struct fab_ep *ep, struct fab_req *req, bool upper, bool later)
{
    uint32_t bytes = view_of(the, the->b)->shape.group_bytes;
    int rc = FAR_OK;
    for (unsigned i = 0; i < req->count && rc == FAR_OK; i++) {
        struct fab_verb *v = &req->verbs[i], whole = *v;
        bool leaf = v->kind == FAB_READ && v->len == bytes;
        if (leaf) {
            v->len = bytes / 2;
            v->off += upper ? v->len : 0;
            v->buf = (char *)v->buf + (upper ? v->len : 0);
        }
        if (leaf || later)
            rc = post_part(ep, req, i, 1);
        *v = whole;
    }
    return rc;
}

/* Others need not wait for the lease of the client that has died: it has given up its name. */
static void renounce(struct rig *g)
{
    uint64_t at = slot_delta(stop.slot),
             incarnation =
                 store_rig_get(&g->r, NODE0, at + offsetof(struct client_slot, incarnation));
    store_rig_set(&g->r, NODE0, at + offsetof(struct client_slot, heartbeat),
                  client_slot_renounced(incarnation));
}

/* Half of each leaf is read before others act, and the rest afterwards. */
static int read_slowly(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = &req->verbs[0];
    if (slow.met || v->kind != FAB_READ || v->len != view_of(the, the->b)->shape.group_bytes)
        return hook.real->post(ep, req);
    slow.met = true;
    int rc = post_halves(ep, req, slow.upper, false);
    struct hook mine = hook;
    if (slow.early)
        die_in_step(the, &the->a, slow.at);
    if (!the->a)
        renounce(the);
    look(the, the->b);
    hook = mine;
    assert_true(the->r.clock->now < hook.clock + HOUR_NS); /* else the reader is dead itself */
    done_seen = undone = false;                            /* the reader began before */
    return rc == FAR_OK ? post_halves(ep, req, !slow.upper, true) : rc;
}

/* The client of a step dies, and is recovered, while another one scans. Returns whether it came
 * there. */
static bool scan_slowly(unsigned step, unsigned at)
{
    struct rig g;
    prepare(&g, step);
    slow.met = false;
    slow.at = at;
    if (!slow.early)
        die_in_step(&g, &g.a, at);
    undone = false;
    hook_on(g.c->client.ep);
    hook.clock = g.r.clock->now;
    hook.ops.post = read_slowly;
    scan_keys(&g, g.c);
    hook_off();
    assert_true(slow.met);
    close_rig(&g);
    return stop.stopped;
}

/* CHIME-C6: a recovery takes an era that no reader has seen. */
static void a_scan_may_be_slow_during_a_recovery(void **state)
{
    unsigned found[STEPS];
    (void)state;
    stop.tears = stop.looked = false;
    long_lease = true;
    unsigned count = find_steps(MOVE, found);
    for (unsigned i = 0; i < count && i < 6; i++)
        for (unsigned way = 0; way < 4; way++) {
            slow.upper = way & 1;
            slow.early = way & 2;
            for (unsigned at = 0; scan_slowly(found[i], at); at++)
                ;
        }
    long_lease = false;
}

/* ---- unknown outcomes ------------------------------------------------------------------------ */
enum unsure { DONE, NOT_DONE, REFUSED };
static struct {
    enum unsure how;
    unsigned at, count; /* this request fails; those that change the table */
    bool met;
} unsure;

/* One request ends with an error, and its client lives. */
static int post_unsure(struct fab_ep *ep, struct fab_req *req)
{
    bool changes = false;
    int rc = FAR_OK;
    for (unsigned i = 0; i < req->count; i++)
        changes |= req->verbs[i].kind != FAB_READ && req->verbs[i].off >= REGISTRY_END;
    if (!changes || unsure.count++ != unsure.at)
        return hook.real->post(ep, req);
    unsure.met = true;
    if (unsure.how == REFUSED)
        return FAR_FENCED;
    if (unsure.how == DONE)
        rc = hook.real->post(ep, req);
    req->done = true;
    req->status = FAR_TIMEOUT;
    return rc;
}

/* While a client waits, the one that has failed does other things. So it does not look dead. */
static void pause_with_others(struct fab_ep *ep, uint64_t ns)
{
    (void)ep;
    the->r.clock->now += ns;
    hook.clock = the->r.clock->now;
    assert_int_equal(far_delete(the->a, the->r.table, "k", 1), FAR_NOT_FOUND);
}

/* What the client does whose request fails. */
typedef int unsure_step(struct rig *g);
static int unsure_change(struct rig *g)
{
    char key[16];
    unsigned number = step_key(changing);
    size_t len = key_bytes(number, key);
    uint64_t value = step_value(changing);
    return value && g->value[number] == 0 ? far_insert(g->a, g->t, key, len, &value, 8)
                                          : do_step(g, g->a, changing);
}
/* The lock is taken, and released. */
static int unsure_insert(struct rig *g)
{
    uint64_t value = 1;
    char key[16];
    return far_insert(g->a, g->t, key, key_bytes(step_key(changing - 1), key), &value, 8);
}

static bool fail_in_step(unsigned step, unsigned at, unsure_step *act)
{
    struct rig g;
    prepare(&g, step);
    far_session_close(g.c);
    g.c = NULL;
    unsure.at = at;
    unsure.count = 0;
    unsure.met = false;
    hook_on(g.a->client.ep);
    hook.clock = g.r.clock->now;
    hook.ops.post = post_unsure;
    int rc = act(&g);
    hook_off();
    if (act == unsure_change)
        done_seen = rc == FAR_OK;
    undone = rc != FAR_OK && rc != FAR_UNKNOWN;
    hook_on(g.b->client.ep);
    hook.clock = g.r.clock->now;
    hook.ops.pause = pause_with_others;
    go_on(&g);
    hook_off();
    close_rig(&g);
    return unsure.met;
}

static void fail_everywhere(unsigned step, unsure_step *act)
{
    for (unsigned how = DONE; how <= REFUSED; how++) {
        unsure.how = (enum unsure)how;
        for (unsigned at = 0; fail_in_step(step, at, act); at++)
            ;
    }
}

/* CHIME-C9: a client that may hold a lock gives up its name, so that others can recover. */
static void locks_of_unknown_outcome_do_not_stay(void **state)
{
    unsigned found[STEPS];
    (void)state;
    seed_of_a = SEED_OTHER_NODE; /* a split takes several requests */
    for (unsigned kind = NOTHING; kind <= NO_MERGE; kind++) {
        unsigned count = find_steps(kind, found);
        unsigned tries = kind == SPLIT ? 4 : 1;
        for (unsigned i = 0; i < tries; i++)
            fail_everywhere(found[i * count / tries], unsure_change);
    }
    fail_everywhere(KEYS, unsure_insert);
    seed_of_a = SEED_OF_A;
}

/* ---- a fabric that answers early ------------------------------------------------------------- */
static struct fab_verb late_verbs[BATCH_MAX];
static unsigned late_count;

/* WRITEs are answered before they can be seen, unless a READ follows them in their request. Others
 * look before that. */
static int answer_early(struct fab_ep *ep, struct fab_req *req)
{
    bool writes = true;
    for (unsigned i = 0; i < req->count; i++)
        writes &= req->verbs[i].kind == FAB_WRITE;
    if (writes && late_count == 0) {
        memcpy(late_verbs, req->verbs, req->count * sizeof *late_verbs);
        late_count = req->count;
        req->done = true;
        req->status = FAR_OK;
        return FAR_OK;
    }
    int rc = hook.real->post(ep, req);
    if (late_count > 0) {
        struct fab_req late = {.verbs = late_verbs, .count = late_count};
        late_count = 0;
        look(the, the->b);
        hook_run(ep, &late);
    }
    return rc;
}

/* What is written on one memory node can be seen before that on another one which names it. */
static void a_split_waits_until_its_new_node_can_be_seen(void **state)
{
    unsigned found[STEPS];
    (void)state;
    seed_of_a = SEED_OTHER_NODE;
    unsigned count = find_steps(SPLIT, found);
    for (unsigned i = 0; i < count; i++) {
        struct rig g;
        prepare(&g, found[i]);
        hook_on(g.a->client.ep);
        hook.clock = g.r.clock->now;
        hook.ops.post = answer_early;
        int rc = do_step(&g, g.a, changing);
        hook_off();
        assert_int_equal(rc, FAR_OK);
        go_on(&g);
        close_rig(&g);
    }
    seed_of_a = SEED_OF_A;
}

/* ---- images of a leaf ------------------------------------------------------------------------ */

/* An 8-byte key with this home. No test uses it otherwise. */
static uint64_t key_at_home(struct rig *g, unsigned home, unsigned nth)
{
    for (uint64_t k = 1;; k++) {
        struct chime_key key;
        chime_key_set(view_of(g, g->b), (struct slice){&k, 8}, &key);
        if (key.home == home && nth-- == 0)
            return k;
    }
}
static int put_word(struct rig *g, far_session *s, uint64_t key, uint64_t value)
{
    return far_put(s, g->t, &key, 8, &value, 8);
}
static int get_word(struct rig *g, far_session *s, uint64_t key, uint64_t *value)
{
    size_t len = 0;
    return far_get(s, g->t, &key, 8, value, 8, &len);
}

/* CHIME-C2: no word of a group, and nothing of its node's name, can change without its checksum. */
static void a_group_is_bound_to_all_that_it_says(void **state)
{
    struct rig g;
    struct image i;
    (void)state;
    open_rig(&g);
    for (unsigned nth = 0; nth < 4; nth++)
        assert_int_equal(put_word(&g, g.b, key_at_home(&g, 0, nth), nth), FAR_OK);
    image_read_top(&g.r, view_of(&g, g.b), &i);
    const struct chime_view *view = view_of(&g, g.b);
    struct chime_name name = chime_head_name(i.at, chime_head(i.node));
    uint64_t *words = chime_group(i.node, 0);
    assert_true(chime_group_whole(chime_name_seal(view, &name), 0, words));
    assert_false(chime_group_whole(chime_name_seal(view, &name), 1, words));
    for (unsigned w = 0; w < CHIME_GROUP_WORDS; w++) {
        words[w] ^= 1ull << 40;
        assert_false(chime_group_whole(chime_name_seal(view, &name), 0, words));
        words[w] ^= 1ull << 40;
    }
    for (unsigned w = 0; w < sizeof name / 8; w++) {
        struct chime_name other = name;
        ((uint64_t *)&other)[w] ^= 8;
        assert_false(chime_group_whole(chime_name_seal(view, &other), 0, words));
    }
    close_rig(&g);
}

/* ---- a get while its key is written ---------------------------------------------------------- */
static unsigned disturbed;

/* A READ finds a value that does not belong to its key, because the entry is being written. */
static int tear_a_read(struct fab_ep *ep, struct fab_req *req)
{
    int rc = hook.real->post(ep, req);
    if (disturbed > 0 || req->count == 0 || req->verbs[0].kind != FAB_READ ||
        req->verbs[0].len % (8 * CHIME_GROUP_WORDS) != 0)
        return rc;
    uint64_t *words = req->verbs[0].buf;
    for (unsigned w = 0; w < req->verbs[0].len / 8; w += CHIME_GROUP_WORDS)
        for (unsigned e = 0; e < CHIME_GROUP; e++)
            words[w + 2 + 2 * e] ^= 1;
    disturbed++;
    return rc;
}

static void a_torn_entry_is_no_hit(void **state)
{
    struct rig g;
    uint64_t v = 0, key;
    (void)state;
    disturbed = 0;
    open_rig(&g);
    key = key_at_home(&g, 0, 0);
    assert_int_equal(put_word(&g, g.b, key, 4), FAR_OK);
    assert_int_equal(get_word(&g, g.a, key, &v), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = tear_a_read;
    int rc = get_word(&g, g.a, key, &v);
    hook_off();
    assert_int_equal(disturbed, 1);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(v, 4);
    close_rig(&g);
}

static void a_value_may_move_into_the_leaf_and_out_of_it(void **state)
{
    static const size_t lens[] = {8, 3, 8, 100, 8};
    struct rig g;
    char value[100] = "a value", found[100];
    size_t len = 0;
    uint64_t key = 7;
    (void)state;
    open_rig(&g);
    for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
        assert_int_equal(far_put(g.b, g.t, &key, 8, value, lens[i]), FAR_OK);
        assert_int_equal(far_get(g.c, g.t, &key, 8, found, sizeof found, &len), FAR_OK);
        assert_int_equal(len, lens[i]);
        assert_memory_equal(found, value, len);
    }
    expect_whole(&g);
    close_rig(&g);
}

/* ---- what the walker proves ------------------------------------------------------------------ */
static const char *expected;
static unsigned reported;

static void hear(void *arg, const char *line)
{
    (void)arg;
    reported += strstr(line, expected) != NULL;
}

/* The walker must say this of the table. */
static void expect_violation(struct rig *g, const char *what)
{
    expected = what;
    reported = 0;
    assert_int_equal(far_table_check(g->b, g->t, hear, NULL), FAR_CORRUPT);
    assert_true(reported > 0);
}

static void open_tree(struct rig *g, unsigned keys)
{
    open_rig(g);
    changing = STEPS;
    for (unsigned step = 0; step < keys; step++)
        run_step(g, step);
    expect_whole(g);
}

static void the_walker_finds_a_wrong_leaf(void **state)
{
    struct rig g;
    struct image good, bad;
    (void)state;
    open_tree(&g, 4);
    image_read_top(&g.r, view_of(&g, g.b), &good);
    bad = good;
    chime_head(bad.node)->state = chime_state(CHIME_BORN, bad.at, bad.at, view_of(&g, g.b)->seed);
    image_write(&g.r, view_of(&g, g.b), &bad);
    expect_violation(&g, "CHIME-W1");
    bad = good;
    chime_head(bad.node)->next += 1ull << GADDR_BITS; /* another era */
    image_write(&g.r, view_of(&g, g.b), &bad);
    expect_violation(&g, "CHIME-W2");
    bad = good;
    chime_head(bad.node)->vacancy ^= 1;
    image_write(&g.r, view_of(&g, g.b), &bad);
    expect_violation(&g, "CHIME-W6");
    bad = good;
    unsigned from = image_used(&bad, 0), to = 0;
    while (chime_kind_at(bad.node, to) != CHIME_EMPTY)
        to++;
    memcpy(chime_entry(bad.node, to), chime_entry(bad.node, from), 16);
    *chime_group(bad.node, to / CHIME_GROUP) =
        chime_with_kind(*chime_group(bad.node, to / CHIME_GROUP), to % CHIME_GROUP, CHIME_INLINE);
    chime_head(bad.node)->vacancy &= ~(1ull << to);
    image_write(&g.r, view_of(&g, g.b), &bad);
    expect_violation(&g, "CHIME-W4");
    image_write(&g.r, view_of(&g, g.b), &good);
    expect_whole(&g);
    close_rig(&g);
}

static void the_walker_finds_a_misplaced_key(void **state)
{
    struct rig g;
    struct image i;
    (void)state;
    open_rig(&g);
    assert_int_equal(put_word(&g, g.b, key_at_home(&g, 0, 0), 1), FAR_OK);
    image_read_top(&g.r, view_of(&g, g.b), &i);
    memcpy(chime_entry(i.node, 5), chime_entry(i.node, 0), 16);
    *chime_group(i.node, 0) = chime_with_kind(*chime_group(i.node, 0), 0, CHIME_EMPTY);
    *chime_group(i.node, 1) = chime_with_kind(*chime_group(i.node, 1), 1, CHIME_INLINE);
    chime_head(i.node)->vacancy = chime_vacancy(&view_of(&g, g.b)->shape, i.node);
    image_write(&g.r, view_of(&g, g.b), &i);
    expect_violation(&g, "CHIME-W5");
    close_rig(&g);
}

/* The child of the tree's highest node in this order of places. */
static gaddr child_of(struct image *top, unsigned nth)
{
    return chime_entry(top->node, image_used(top, nth))[1];
}

static void the_walker_finds_wrong_children(void **state)
{
    struct rig g;
    struct image top, bad, leaf;
    (void)state;
    open_tree(&g, 20);
    image_read_top(&g.r, view_of(&g, g.b), &top);
    assert_int_equal(chime_head(top.node)->level, 1);
    bad = top;
    chime_entry(bad.node, image_used(&bad, 1))[0] += 1; /* another separator */
    image_write(&g.r, view_of(&g, g.b), &bad);
    expect_violation(&g, "CHIME-W7");
    bad = top;
    unsigned first = image_used(&bad, 0);
    assert_int_equal(chime_entry(bad.node, first)[0], 0);
    *chime_group(bad.node, 0) = chime_with_kind(*chime_group(bad.node, 0), first, CHIME_EMPTY);
    chime_head(bad.node)->vacancy |= 1ull << first;
    image_write(&g.r, view_of(&g, g.b), &bad);
    expect_violation(&g, "CHIME-W7: no child for the beginning");
    image_write(&g.r, view_of(&g, g.b), &top);
    image_read(&g.r, view_of(&g, g.b), child_of(&top, 0), &leaf);
    bad = leaf;
    uint64_t *entry = chime_entry(bad.node, image_used(&bad, 0));
    entry[0] = UINT64_MAX; /* above the leaf's range */
    image_write(&g.r, view_of(&g, g.b), &bad);
    expect_violation(&g, "CHIME-W4: a key or child outside");
    image_write(&g.r, view_of(&g, g.b), &leaf);
    expect_whole(&g);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_may_stop_anywhere),
        cmocka_unit_test(a_move_may_stop_anywhere),
        cmocka_unit_test(a_split_may_stop_anywhere),
        cmocka_unit_test(a_merge_may_stop_anywhere),
        cmocka_unit_test(a_change_may_stop_in_a_write),
        cmocka_unit_test(a_move_may_stop_in_a_write),
        cmocka_unit_test(a_split_may_stop_in_a_write),
        cmocka_unit_test(a_merge_may_stop_in_a_write),
        cmocka_unit_test(a_change_may_be_seen_anywhere),
        cmocka_unit_test(a_move_may_be_seen_anywhere),
        cmocka_unit_test(a_split_may_be_seen_anywhere),
        cmocka_unit_test(a_merge_may_be_seen_anywhere),
        cmocka_unit_test(a_recovery_of_a_split_may_stop_anywhere),
        cmocka_unit_test(a_recovery_of_a_merge_may_stop_anywhere),
        cmocka_unit_test(a_reader_may_come_after_a_split),
        cmocka_unit_test(a_reader_may_come_after_a_merge),
        cmocka_unit_test(an_iteration_finds_what_is_merged),
        cmocka_unit_test(a_dead_node_is_not_entered),
        cmocka_unit_test(a_scan_keeps_its_limit),
        cmocka_unit_test(a_recovery_that_fails_is_left_to_others),
        cmocka_unit_test(a_scan_may_be_slow_during_a_recovery),
        cmocka_unit_test(locks_of_unknown_outcome_do_not_stay),
        cmocka_unit_test(a_split_waits_until_its_new_node_can_be_seen),
        cmocka_unit_test(a_group_is_bound_to_all_that_it_says),
        cmocka_unit_test(a_torn_entry_is_no_hit),
        cmocka_unit_test(a_value_may_move_into_the_leaf_and_out_of_it),
        cmocka_unit_test(the_walker_finds_a_wrong_leaf),
        cmocka_unit_test(the_walker_finds_a_misplaced_key),
        cmocka_unit_test(the_walker_finds_wrong_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
