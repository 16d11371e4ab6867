/* Interleavings that CHIME must survive. A list of changes splits, merges and moves. One of them
 * stops between any two of its verbs, or in the middle of a WRITE. There others look at all keys,
 * or the client dies. Other tests direct what a run of the simulator seldom does. */
#include "support/chime_rig.h"
#include "support/hook.h"

#define KEYS         64u
#define STEPS        (3 * KEYS)
#define HOUR_NS      (3600ull * 1000000000)
#define REGISTRY_END 0x10000u /* no table is below */

static uint64_t value_of[KEYS]; /* 0: the key is not there */
static bool long_keys;          /* all with the same first 8 bytes */
static bool long_lease;         /* nobody is taken for dead by time alone */
/* Seeds of sessions say on which nodes their new leaves are. */
#define SEED_OF_A       614
#define SEED_OTHER_NODE 404
static uint64_t seed_of_a = SEED_OF_A;

static int set_up(void **state)
{
    struct knobs knobs = pool_knobs_default;
    (void)state;
    knobs.stem_slack = 0; /* then many long keys leave the stems of their leaves */
    rig_open(long_lease ? "mem:?nodes=2&size=4m&clients=8&" HOUR
                        : "mem:?nodes=2&size=4m&clients=8&lease=100",
             SMALL, &knobs, 3);
    actor_join(&A, join(&rig, seed_of_a, 1));
    actor_join(&C, join(&rig, 20, 1));
    keys.factor = 1000003;
    keys.text = long_keys ? "together%03u" : NULL;
    memset(value_of, 0, sizeof value_of);
    assert_int_equal(far_delete(B.s, B.t, "k", 1), FAR_NOT_FOUND); /* it knows the table */
    return 0;
}

/* ---- the changes ----------------------------------------------------------------------------- */

static unsigned step_key(uint64_t step)
{
    return (unsigned)(step % KEYS * 37 + step / KEYS * 11) % KEYS;
}
/* What the step gives its key. */
static uint64_t step_value(uint64_t step)
{
    return step < 2 * KEYS ? step + 1 : 0;
}

static int do_step(struct actor *a, uint64_t step, uint64_t unused)
{
    (void)unused;
    return (step_value(step) ? put_key : delete_key)(a, step_key(step), step_value(step));
}

static void run_step(unsigned step)
{
    expect_ok(do_step(&B, step, 0));
    value_of[step_key(step)] = step_value(step);
}

/* ---- looking --------------------------------------------------------------------------------- */
static unsigned changing; /* the step that is under way; STEPS: none is */
static bool done_seen;    /* it has taken effect: somebody has seen it */
static bool undone;       /* its client was told that it has no effect */

/* Somebody has found this value, or 0. */
static void expect_found(unsigned number, uint64_t value)
{
    bool may = changing < STEPS && number == step_key(changing);
    if (may && !undone && value == step_value(changing))
        done_seen = true;
    else if (value != value_of[number] || (may && done_seen))
        fail_msg("key %u is %llu, not %llu; step %u", number, (unsigned long long)value,
                 (unsigned long long)value_of[number], changing);
}

/* What scan_keys() of all keys has found. */
static void expect_scanned(struct actor *a)
{
    char key[16];
    size_t pos = 0;
    struct far_entry e = {0};
    assert_false(more_to_scan);
    bool any = far_entry_next(scanned, a->found, &pos, &e);
    for (unsigned number = 0; number < KEYS; number++) {
        uint64_t value = 0;
        size_t len = key_bytes(number, key);
        if (any && e.key_len == len && memcmp(e.key, key, len) == 0) {
            memcpy(&value, e.value, 8);
            any = far_entry_next(scanned, a->found, &pos, &e);
        }
        expect_found(number, value);
    }
    assert_false(any);
}

/* Unless it is dead. */
static void look(struct actor *a)
{
    if (!a->s)
        return;
    for (unsigned number = 0; number < KEYS; number++) {
        int rc = get_key(a, number, 0);
        if (rc != FAR_NOT_FOUND)
            expect_ok(rc);
        expect_found(number, a->found);
    }
    expect_ok(scan_keys(a, 0, 0));
    expect_scanned(a);
}

/* ---- a client that stops --------------------------------------------------------------------- */
static struct {
    bool tears; /* half of the next WRITE is done */
    bool looks; /* others look while it stands still, instead of its death */
    bool stopped, dead;
    unsigned deaths, moves; /* nodes that it has said to be dead; WRITEs of all groups */
    unsigned locks;         /* attempts to take one */
} stop;

/* Does the verb change the table? Attempts to take a lock do not count: there are many. */
static bool changes_table(const struct fab_req *req, unsigned i)
{
    const struct fab_verb *v = &req->verbs[i];
    bool locks = v->kind == FAB_CAS && v->compare == 0;
    stop.deaths += v->kind == FAB_CAS && v->swap == CHIME_DEAD;
    stop.locks += locks && v->off >= REGISTRY_END;
    stop.moves += v->kind == FAB_WRITE && v->len == view_of(&B)->shape.group_bytes;
    return v->kind != FAB_READ && v->off >= REGISTRY_END && !locks;
}

/* Others see what there is. If they had to wait for the client, they have shut it out. */
static void look_meanwhile(struct actor *a)
{
    uint64_t slot = slot_delta(a->s->client.slot), before = word_at(NODE0, slot);
    look(&B);
    look(&C);
    stop.dead = word_at(NODE0, slot) != before;
}

/* Step `changing` is done by an actor, and stops at a verb. Returns what it returns. */
static int stop_in_step(struct actor *a, unsigned at)
{
    stop.dead = false;
    stop.deaths = stop.moves = stop.locks = 0;
    int rc =
        actor_begin(a, (struct place){.is = changes_table, .nth = at + 1}, do_step, changing, 0);
    stop.stopped = rc == STOPPED;
    if (stop.stopped) {
        if (stop.tears)
            actor_tear(a);
        stop.dead = !stop.looks;
        if (stop.looks)
            look_meanwhile(a);
        rc = stop.dead ? actor_abort(a) : actor_go_on(a);
    }
    if (rc == FAR_OK)
        done_seen = true;
    else if (rc != FAR_UNKNOWN)
        undone = !done_seen;
    return rc;
}

/* The same. A session that has stopped there is dead. */
static void die_in_step(struct actor *a, unsigned at)
{
    int rc = stop_in_step(a, at);
    if (stop.dead || rc != FAR_OK)
        actor_kill(a);
}

/* After step `changing`, which may have stopped in the middle. */
static void go_on(void)
{
    unsigned step = changing;
    look(&C);
    look(&B);
    int rc = do_step(&B, step, 0);
    if (rc != FAR_NOT_FOUND)
        expect_ok(rc);
    value_of[step_key(step)] = step_value(step);
    changing = STEPS;
    look(&B);
    for (unsigned next = step + 1; next < STEPS && next < step + 24; next++)
        run_step(next);
    look(&B);
    look(&C); /* what it has cached is old */
    expect_whole_table();
}

static void prepare(unsigned step)
{
    set_up(NULL);
    changing = STEPS;
    for (unsigned i = 0; i < step; i++)
        run_step(i);
    look(&A);
    look(&B);
    look(&C);
    changing = step;
    done_seen = undone = false;
}

/* The client of a step stops at a verb; returns whether it came there. If `then` is not NEVER, the
 * next client stops in the same step at that verb. */
#define NEVER (1u << 30)
static bool try_step(unsigned step, unsigned at, unsigned then)
{
    prepare(step);
    die_in_step(&A, at);
    bool stopped = stop.stopped;
    if (then != NEVER) {
        undone = false;
        if (stopped)
            die_in_step(&C, then);
        undone = false;
        stopped &= stop.stopped;
    }
    go_on();
    return stopped;
}

static void try_all(unsigned step, bool twice)
{
    unsigned at = 0, runs = 0;
    while (try_step(step, at, NEVER))
        at++;
    for (unsigned first = 0; twice && first < at; first++)
        for (unsigned then = 0; try_step(step, first, then); then++)
            runs++;
    printf("    step %u: %u verbs, %u times two deaths\n", step, at, runs);
}

/* What a step does beside its change. */
enum kind { NOTHING, MOVE, SPLIT, MERGE, NO_MERGE }; /* NO_MERGE: one that was given up */
static unsigned found[STEPS];

static unsigned find_steps(enum kind kind)
{
    unsigned count = 0;
    prepare(0);
    for (changing = 0; changing < STEPS; changing++) {
        uint64_t splits = view_of(&A)->base.grown;
        expect_ok(stop_in_step(&A, NEVER));
        enum kind is = stop.deaths > 0                     ? MERGE
                       : view_of(&A)->base.grown != splits ? SPLIT
                       : stop.moves > 0                    ? MOVE
                       : stop.locks > 3                    ? NO_MERGE
                                                           : NOTHING;
        if (is == kind || (kind == NOTHING && is == NO_MERGE))
            found[count++] = changing;
    }
    assert_true(count > 0);
    return count;
}

/* Tries `max` of the steps of a kind, with keys of both kinds. */
struct stopping {
    enum kind kind;
    unsigned max;
    bool tears, looks;
    bool twice; /* with two deaths, if keys are short; with long ones each attempt writes a block */
};

static void stop_anywhere(void **state)
{
    const struct stopping *how = *state;
    stop.tears = how->tears;
    stop.looks = how->looks;
    for (unsigned way = 0; way < 2; way++) {
        long_keys = way == 1;
        unsigned count = find_steps(how->kind);
        for (unsigned i = 0; i < how->max; i++)
            try_all(found[(uint64_t)i * count / how->max], how->twice && !long_keys);
    }
    long_keys = false;
}

static struct CMUnitTest stopping(const char *name, struct stopping *how)
{
    return (struct CMUnitTest){name, stop_anywhere, set_up, NULL, how};
}
#define STOPPING(name, which, ...) stopping(#name, &(struct stopping){.kind = which, __VA_ARGS__})

/* ---- a client that comes late ---------------------------------------------------------------- */

/* C looks for a key, or scans if there is none. Before it reads leaves that it has found, others
 * change them. */
static void look_late(unsigned step, unsigned number)
{
    bool scans = number == KEYS;
    prepare(step);
    actor_reach(&C, (struct place){.is = reads_groups}, scans ? scan_keys : get_key,
                scans ? 0 : number, 0);
    for (; changing < step + 6; changing++)
        run_step(changing);
    int rc = actor_go_on(&C);
    if (scans) {
        expect_ok(rc);
        expect_scanned(&C);
    } else {
        assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
        assert_int_equal(C.found, value_of[number]);
    }
}

static void look_late_at(enum kind kind)
{
    for (unsigned way = 0; way < 2; way++) {
        long_keys = way == 1;
        unsigned count = find_steps(kind);
        for (unsigned i = 0; i < 4; i++) {
            for (unsigned number = i; number < KEYS; number += 4) /* of each leaf at least one */
                look_late(found[i * count / 4], number);
            look_late(found[i * count / 4], KEYS);
        }
    }
    long_keys = false;
}

TEST(a_reader_may_come_after_a_split)
{
    look_late_at(SPLIT);
}

TEST(a_reader_may_come_after_a_merge)
{
    look_late_at(MERGE);
}

/* An iteration by small parts, while others do a step after each part. What is there throughout is
 * returned. */
static void iterate_during(unsigned from, unsigned steps)
{
    char buf[64], key[16];
    uint64_t cursor = 0;
    bool seen[KEYS] = {false};
    prepare(from);
    for (unsigned part = 0; part == 0 || cursor != 0; part++) {
        size_t len = 0, pos = 0;
        struct far_entry e;
        assert_true(part < 40 * KEYS);
        expect_ok(far_iterate(C.s, C.t, &cursor, 0, buf, sizeof buf, &len));
        while (far_entry_next(buf, len, &pos, &e))
            for (unsigned n = 0; n < KEYS; n++)
                seen[n] |= key_bytes(n, key) == e.key_len && memcmp(key, e.key, e.key_len) == 0;
        if (changing < from + steps)
            run_step(changing++);
    }
    for (unsigned n = 0; n < KEYS; n++)
        assert_true(seen[n] || value_of[n] == 0);
}

TEST(an_iteration_finds_what_is_merged)
{
    for (unsigned way = 0; way < 2; way++) {
        long_keys = way == 1;
        for (unsigned from = 2 * KEYS; from < STEPS - 8; from += 3)
            iterate_during(from, STEPS - from - 6);
    }
    long_keys = false;
}

/* A has split a leaf. Before it enters the new one into the parent, others do so, and merge it
 * again. */
TEST(a_dead_node_is_not_entered)
{
    unsigned count = find_steps(SPLIT);
    for (unsigned i = 0; i < count; i++) {
        unsigned step = found[i];
        prepare(step);
        actor_reach(&A,
                    (struct place){A_WRITE, .len = view_of(&B)->shape.bytes, .side = AFTER_REQUEST},
                    do_step, step, 0);
        int rc = actor_go_until(&A, (struct place){A_CAS, .first = true});
        if (rc == STOPPED) {
            changing = STEPS;
            value_of[step_key(step)] = step_value(step);
            look(&B);
            for (unsigned n = 0; n < KEYS; n++)
                (void)delete_key(&B, step_key(2 * KEYS + n), 0);
            rc = actor_go_on(&A);
        }
        expect_ok(rc);
        memset(value_of, 0, sizeof value_of);
        changing = STEPS;
        look(&B);
        for (unsigned n = 0; n < KEYS; n++)
            run_step(n);
        look(&C);
        expect_whole_table();
    }
}

TEST(a_scan_keeps_its_limit)
{
    size_t pos = 0;
    struct far_entry e;
    unsigned count = 0;
    long_keys = true;
    prepare(30);
    long_keys = false;
    expect_ok(scan_keys(&B, 0, 3));
    while (far_entry_next(scanned, B.found, &pos, &e))
        count++;
    assert_int_equal(count, 3);
    assert_true(more_to_scan);
}

/* ---- a recovery that fails ------------------------------------------------------------------- */

/* The lock of a dead client. */
static bool takes_lock(const struct fab_req *req, unsigned i)
{
    const struct fab_verb *v = &req->verbs[i];
    return req->count == 1 && v->kind == FAB_CAS && v->off >= REGISTRY_END && v->compare != 0 &&
           v->swap != 0;
}

/* A dies in a step. B takes its lock and cannot go on, but lives. */
static bool fail_to_recover(unsigned step, unsigned at)
{
    prepare(step);
    die_in_step(&A, at);
    bool stopped = stop.stopped;
    undone = false;
    int rc = actor_begin(&B, (struct place){.is = takes_lock, .side = AFTER}, do_step, step, 0);
    if (rc == STOPPED)
        rc = actor_go_until(&B, (struct place){.first = true});
    if (rc == STOPPED)
        rc = actor_refuse(&B, FAR_UNREACHABLE);
    done_seen |= rc == FAR_OK;
    go_on();
    return stopped;
}

TEST(a_recovery_that_fails_is_left_to_others)
{
    stop.tears = true;
    stop.looks = false;
    for (unsigned kind = MOVE; kind <= MERGE; kind++) {
        unsigned count = find_steps(kind);
        for (unsigned i = 0, at = 0; i < 3; i++, at = 0)
            while (fail_to_recover(found[i * count / 3], at))
                at++;
    }
}

/* ---- a reader that is slow ------------------------------------------------------------------- */

/* Halves of READs of leaves happen. With the later ones, all other verbs of the request. */
static void read_halves(struct actor *a, bool upper, bool later)
{
    uint32_t bytes = view_of(&B)->shape.group_bytes;
    for (a->next = 0; a->next < a->req->count;) {
        struct fab_verb *v = &a->req->verbs[a->next], whole = *v;
        bool leaf = v->kind == FAB_READ && v->len == bytes;
        if (leaf) {
            v->len = bytes / 2;
            v->off += upper ? v->len : 0;
            v->buf = (char *)v->buf + (upper ? v->len : 0);
        }
        if (leaf || later)
            expect_ok(actor_do(a, 1));
        else
            a->next++;
        *v = whole;
    }
}

/* Others need not wait for the lease of the client that has died: it has given up its name. */
static void renounce(unsigned slot)
{
    uint64_t at = slot_delta(slot),
             incarnation = word_at(NODE0, at + offsetof(struct client_slot, incarnation));
    store_rig_set(&rig, NODE0, at + offsetof(struct client_slot, heartbeat),
                  client_slot_renounced(incarnation));
}

/* The client of a step dies, and is recovered, while C scans. C reads a half of each leaf before
 * others act, and the rest afterwards. `early`: it begins to read before the other client dies, not
 * only before the recovery. Returns whether that client came to its verb. */
static bool scan_slowly(unsigned step, unsigned at, bool upper, bool early)
{
    prepare(step);
    unsigned slot = A.s->client.slot;
    if (!early)
        die_in_step(&A, at);
    undone = false;
    actor_reach(&C, (struct place){A_READ, .first = true, .len = view_of(&B)->shape.group_bytes},
                scan_keys, 0, 0);
    read_halves(&C, upper, false);
    if (early)
        die_in_step(&A, at);
    if (!A.s)
        renounce(slot);
    look(&B);
    assert_true(rig.clock->now < C.own.now + HOUR_NS); /* else the reader is dead itself */
    done_seen = undone = false;                        /* the reader began before */
    read_halves(&C, !upper, true);
    expect_ok(actor_go_on(&C));
    expect_scanned(&C);
    return stop.stopped;
}

/* CHIME-C6: a recovery takes an era that no reader has seen. */
TEST(a_scan_may_be_slow_during_a_recovery)
{
    stop.tears = stop.looks = false;
    long_lease = true;
    unsigned count = find_steps(MOVE);
    for (unsigned i = 0; i < count && i < 6; i++)
        for (unsigned way = 0; way < 4; way++)
            for (unsigned at = 0; scan_slowly(found[i], at, way & 1, way & 2); at++)
                ;
    long_lease = false;
}

/* ---- unknown outcomes ------------------------------------------------------------------------ */

/* Is this the first verb of its request that changes the table? */
static bool changes_first(const struct fab_req *req, unsigned i)
{
    unsigned first = 0;
    while (first < i &&
           (req->verbs[first].kind == FAB_READ || req->verbs[first].off < REGISTRY_END))
        first++;
    return first == i && req->verbs[i].kind != FAB_READ && req->verbs[i].off >= REGISTRY_END;
}

/* While a client waits, the one that has failed does other things, with another table. So it
 * does not look dead. */
static void pause_with_others(struct fab_ep *ep, uint64_t ns)
{
    (void)ep;
    rig.clock->now += ns;
    hook.clock = rig.clock->now;
    assert_int_equal(far_delete(A.s, rig.table, "k", 1), FAR_NOT_FOUND);
}

static int insert_or_do_step(struct actor *a, uint64_t step, uint64_t unused)
{
    unsigned number = step_key(step);
    return step_value(step) && value_of[number] == 0 ? insert_key(a, number, step_value(step))
                                                     : do_step(a, step, unused);
}

/* The key is there: a lock is taken, and released. */
static int insert_what_is_there(struct actor *a, uint64_t step, uint64_t unused)
{
    (void)unused;
    return insert_key(a, step_key(step - 1), 1);
}

enum outcome { HAPPENED, DID_NOT_HAPPEN, WAS_REFUSED };

/* One request of A ends with an error, and A lives. */
static bool fail_in_step(unsigned step, unsigned at, enum outcome outcome, deed *act)
{
    prepare(step);
    actor_leave(&C);
    int rc =
        actor_begin(&A,
                    (struct place){.is = changes_first,
                                   .nth = at + 1,
                                   .side = outcome == HAPPENED ? AFTER_REQUEST : BEFORE_REQUEST},
                    act, step, 0);
    bool met = rc == STOPPED;
    if (met)
        rc = outcome == WAS_REFUSED ? actor_refuse(&A, FAR_FENCED) : actor_answer(&A, FAR_TIMEOUT);
    if (act == insert_or_do_step)
        done_seen = rc == FAR_OK;
    undone = rc != FAR_OK && rc != FAR_UNKNOWN;
    hook_on(B.s->client.ep);
    hook.clock = rig.clock->now;
    hook.ops.pause = pause_with_others;
    go_on();
    hook_off();
    return met;
}

static void fail_everywhere(unsigned step, deed *act)
{
    for (unsigned outcome = HAPPENED; outcome <= WAS_REFUSED; outcome++)
        for (unsigned at = 0; fail_in_step(step, at, outcome, act); at++)
            ;
}

/* CHIME-C9: a client that may hold a lock gives up its name, so that others can recover. */
TEST(locks_of_unknown_outcome_do_not_stay)
{
    seed_of_a = SEED_OTHER_NODE; /* a split takes several requests */
    for (unsigned kind = NOTHING; kind <= NO_MERGE; kind++) {
        unsigned count = find_steps(kind);
        unsigned tries = kind == SPLIT ? 4 : 1;
        for (unsigned i = 0; i < tries; i++)
            fail_everywhere(found[i * count / tries], insert_or_do_step);
    }
    fail_everywhere(KEYS, insert_what_is_there);
    seed_of_a = SEED_OF_A;
}

/* ---- a fabric that answers early ------------------------------------------------------------- */

static bool only_writes(const struct fab_req *req, unsigned i)
{
    bool writes = i == 0;
    for (unsigned n = 0; n < req->count; n++)
        writes &= req->verbs[n].kind == FAB_WRITE;
    return writes;
}

/* What is written on one memory node can be seen before that on another one which names it: WRITEs
 * are answered before they can be seen, unless a READ follows them in their request. Others look
 * before that, but after the next request. */
TEST(a_split_waits_until_its_new_node_can_be_seen)
{
    seed_of_a = SEED_OTHER_NODE;
    unsigned count = find_steps(SPLIT);
    for (unsigned i = 0; i < count; i++) {
        struct fab_verb verbs[BATCH_MAX];
        prepare(found[i]);
        int rc = actor_begin(&A, (struct place){.is = only_writes}, do_step, changing, 0);
        while (rc == STOPPED) {
            struct fab_req late = {.verbs = verbs, .count = A.req->count};
            memcpy(verbs, A.req->verbs, late.count * sizeof *verbs);
            A.place = (struct place){.side = AFTER_REQUEST};
            assert_int_equal(actor_answer(&A, FAR_OK), STOPPED);
            look(&B);
            expect_ok(A.real->post(A.s->client.ep, &late));
            while (!late.done)
                A.real->poll(A.s->client.ep, true);
            rc = actor_go_until(&A, (struct place){.is = only_writes});
        }
        expect_ok(rc);
        go_on();
    }
    seed_of_a = SEED_OF_A;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STOPPING(a_change_may_stop_anywhere, NOTHING, .max = 3),
        STOPPING(a_move_may_stop_anywhere, MOVE, .max = 3),
        STOPPING(a_split_may_stop_anywhere, SPLIT, .max = 3),
        STOPPING(a_merge_may_stop_anywhere, MERGE, .max = 3),
        STOPPING(a_change_may_stop_in_a_write, NOTHING, .max = 2, .tears = true),
        STOPPING(a_move_may_stop_in_a_write, MOVE, .max = 2, .tears = true),
        STOPPING(a_split_may_stop_in_a_write, SPLIT, .max = 2, .tears = true),
        STOPPING(a_merge_may_stop_in_a_write, MERGE, .max = 2, .tears = true),
        STOPPING(a_change_may_be_seen_anywhere, NOTHING, .max = 2, .looks = true),
        STOPPING(a_move_may_be_seen_anywhere, MOVE, .max = 2, .tears = true, .looks = true),
        STOPPING(a_split_may_be_seen_anywhere, SPLIT, .max = 2, .tears = true, .looks = true),
        STOPPING(a_merge_may_be_seen_anywhere, MERGE, .max = 2, .tears = true, .looks = true),
        STOPPING(a_recovery_of_a_split_may_stop_anywhere, SPLIT, .max = 1, .tears = true,
                 .twice = true),
        STOPPING(a_recovery_of_a_merge_may_stop_anywhere, MERGE, .max = 1, .tears = true,
                 .twice = true),
        SCRIPT(a_reader_may_come_after_a_split),
        SCRIPT(a_reader_may_come_after_a_merge),
        SCRIPT(an_iteration_finds_what_is_merged),
        SCRIPT(a_dead_node_is_not_entered),
        SCRIPT(a_scan_keeps_its_limit),
        SCRIPT(a_recovery_that_fails_is_left_to_others),
        SCRIPT(a_scan_may_be_slow_during_a_recovery),
        SCRIPT(locks_of_unknown_outcome_do_not_stay),
        SCRIPT(a_split_waits_until_its_new_node_can_be_seen),
    };
    return cmocka_run_group_tests(tests, NULL, rig_close);
}
