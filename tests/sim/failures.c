/*
 * RCuckoo while clients die in the middle of changes, in virtual time.
 *
 * Survivors run 50 % get and 50 % update (YCSB-A) on uniform keys. Meanwhile other sessions are
 * opened one after the other. Each makes changes, inserts and updates, and dies at a random verb of
 * one, as in section 5.4 of the paper: the batch that it posts then is cut short, and nothing of it
 * arrives any more. A round trip takes 1.6 us, and more for long batches. What the survivors do in
 * a second of virtual time is compared with a run in which nobody dies.
 *
 * Every change stores a number of its own. So each get, and a look at all keys at the end, tells
 * whether an acknowledged change was lost.
 *
 *   sim_failures           500 deaths a second, a lease of 2 ms
 *   sim_failures --long    prints what several rates and leases cost
 */
#include "base/rng.h"
#include "sim/rig.h"
#include "store/store.h"
#include "support/puppet.h"

#include <stdio.h>
#include <stdlib.h>

#define SURVIVORS  15u
#define MORTAL     SURVIVORS /* the simulated client whose sessions die */
#define LIFE_VERBS 32u       /* of such a session, at most: some changes */
#define KEYS       (500000u / RIG_SLOW)
#define INSERTS    4096u /* by sessions that die, at most */
#define STRETCH_NS (200000000u / RIG_SLOW)
#define NODE_BYTES (64ull << 20)
#define SLOTS      64u /* of the registry */

struct load {
    unsigned lease_ms;
    unsigned deaths; /* a second */
};

/* A change. Its number is the value that it stores. */
struct stored {
    uint64_t key;
    uint64_t end; /* UINT64_MAX: it was not acknowledged, and may take effect at any time */
};

struct worker {
    struct run *run;
    far_session *session;
    struct rng rng;
    uint64_t done, failed;
};

struct run {
    struct load load;
    far_pool *pool;
    far_table *table;
    uint64_t until;
    struct worker worker[SURVIVORS + 1];
    uint64_t deaths, inserts;
    struct stored *change;
    size_t changes, room;
    uint64_t started[KEYS + INSERTS]; /* by key: when the latest acknowledged change began */
};

/* ---- what must not be lost ------------------------------------------------------------------- */

static uint64_t note_change(struct run *run, uint64_t key)
{
    if (run->changes == run->room) {
        run->room = run->room ? 2 * run->room : 1 << 20;
        run->change = realloc(run->change, run->room * sizeof *run->change);
        ASSERT(run->change);
    }
    run->change[run->changes] = (struct stored){key, UINT64_MAX};
    return run->changes++;
}

static void acknowledge(struct run *run, uint64_t number, uint64_t began)
{
    struct stored *c = &run->change[number];
    c->end = sim_now(rig.sim);
    if (run->started[c->key] < began)
        run->started[c->key] = began;
}

/* The key had this value after a change of it had been acknowledged that began at `started`. So the
 * change that stored the value had not ended before that. */
static void judge(const struct run *run, uint64_t key, uint64_t value, uint64_t started)
{
    ASSERT(value < run->changes && run->change[value].key == key);
    ASSERT(run->change[value].end >= started);
}

/* ---- operations ------------------------------------------------------------------------------ */

static int get(struct worker *w, uint64_t key)
{
    struct run *run = w->run;
    uint64_t value = 0, started = run->started[key];
    size_t len = 0;
    int rc = far_get(w->session, run->table, &key, sizeof key, &value, sizeof value, &len);
    if (rc == FAR_OK)
        judge(run, key, value, started);
    return rc;
}

static int change(struct worker *w, uint64_t key,
                  int (*how)(far_session *session, far_table *table, const void *key,
                             size_t key_len, const void *value, size_t value_len))
{
    struct run *run = w->run;
    uint64_t began = sim_now(rig.sim), number = note_change(run, key);
    int rc = how(w->session, run->table, &key, sizeof key, &number, sizeof number);
    if (rc == FAR_OK)
        acknowledge(run, number, began);
    return rc;
}

static void survive(void *arg)
{
    struct worker *w = arg;
    while (sim_now(rig.sim) < w->run->until) {
        uint64_t key = rng_below(&w->rng, KEYS);
        int rc = rng_below(&w->rng, 2) ? get(w, key) : change(w, key, far_update);
        if (rc == FAR_OK)
            w->done++;
        else
            w->failed++;
    }
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static struct {
    const struct fab_ops *real;
    struct fab_ops ops;
    unsigned left; /* verbs until it dies */
} mortal;

/* Posts as many verbs as are left to the client, and none after that. */
static int post_until_death(struct fab_ep *ep, struct fab_req *req)
{
    if (mortal.left >= req->count) {
        mortal.left -= req->count;
        return mortal.real->post(ep, req);
    }
    struct fab_req part = *req;
    part.count = (uint16_t)mortal.left;
    mortal.left = 0;
    if (part.count == 0)
        return FAR_UNREACHABLE;
    ASSERT(mortal.real->post(ep, &part) == FAR_OK);
    while (!part.done)
        mortal.real->poll(ep, true);
    req->status = FAR_UNKNOWN;
    req->done = true;
    return FAR_OK;
}

/* A session that dies in the middle of one of its first changes. */
static void live_and_die(struct worker *w)
{
    struct run *run = w->run;
    struct far_session_options options = {.seed = 1000 + run->deaths};
    ASSERT(far_session_open(run->pool, &options, &w->session) == FAR_OK);
    ASSERT(get(w, rng_below(&w->rng, KEYS)) == FAR_OK);
    struct fab_ep *ep = w->session->client.ep;
    mortal.real = ep->ops;
    mortal.ops = *ep->ops;
    mortal.ops.post = post_until_death;
    mortal.left = 1 + (unsigned)rng_below(&w->rng, LIFE_VERBS);
    ep->ops = &mortal.ops;
    while (mortal.left > 0) {
        if (rng_below(&w->rng, 2))
            (void)change(w, rng_below(&w->rng, KEYS), far_update);
        else
            (void)change(w, KEYS + run->inserts++, far_insert);
        ASSERT(run->inserts < INSERTS);
    }
    puppet_die(&w->session->client);
    far_session_close(w->session);
    w->session = NULL;
    run->deaths++;
}

static void die_again_and_again(void *arg)
{
    struct worker *w = arg;
    struct run *run = w->run;
    uint64_t next = sim_now(rig.sim);
    while (run->load.deaths > 0) {
        next += rng_below(&w->rng, 2 * 1000000000ull / run->load.deaths);
        uint64_t now = sim_now(rig.sim);
        if (next >= run->until)
            return;
        sim_sleep(rig.sim, next > now ? next - now : 1);
        live_and_die(w);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void open_pool(struct run *run)
{
    struct sim_settings set = rig_settings(SIM_IB, SIM_INTERLEAVE, SURVIVORS + 1);
    set.nodes = 1;
    set.node_bytes = NODE_BYTES;
    set.direct_verbs_max = 64ull * KEYS;
    tape_from_seed(&rig.tape, 1, false);
    assert_int_equal(sim_begin(rig.sim, &set, &rig.tape), FAR_OK);
    sim_fab(rig.sim)->clients_wanted = SLOTS;
    sim_fab(rig.sim)->lease_ms = run->load.lease_ms;
    assert_int_equal(store_open(sim_fab(rig.sim), NULL, &run->pool), FAR_OK);
}

static void fill(struct run *run)
{
    struct far_session_options session = {.seed = 1};
    struct far_table_options table = {.expected_keys = KEYS, .hash_seed = 1};
    struct worker filler = {.run = run};
    assert_int_equal(far_session_open(run->pool, &session, &filler.session), FAR_OK);
    assert_int_equal(far_table_create(filler.session, "t", "rcuckoo", &table, &run->table), FAR_OK);
    for (uint64_t key = 0; key < KEYS; key++)
        assert_int_equal(change(&filler, key, far_insert), FAR_OK);
    far_session_close(filler.session); /* if idle, it would be a client that is silent */
}

static void work(struct run *run)
{
    run->until = sim_now(rig.sim) + STRETCH_NS;
    for (unsigned i = 0; i <= SURVIVORS; i++) {
        struct worker *w = &run->worker[i];
        struct far_session_options options = {.seed = 10 + i};
        w->run = run;
        rng_seed(&w->rng, 77 + i);
        if (i != MORTAL) {
            assert_int_equal(far_session_open(run->pool, &options, &w->session), FAR_OK);
            sim_identify_client(rig.sim, i, w->session->client.incarnation);
        }
        assert_int_equal(sim_start(rig.sim, i, i == MORTAL ? die_again_and_again : survive, w),
                         FAR_OK);
    }
    assert_int_equal(sim_run(rig.sim, UINT64_MAX / 2), SIM_FINISHED);
}

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
}

/* The table is sound, has what was acknowledged, and takes changes. */
static void inspect(struct run *run)
{
    struct worker *w = &run->worker[0];
    struct far_pool_check found;
    size_t changes = run->changes;
    assert_int_equal(far_pool_check(w->session, true, say, NULL, &found), FAR_OK);
    assert_int_equal(far_table_check(w->session, run->table, say, NULL), FAR_OK);
    for (size_t i = 0; i < changes; i++) {
        const struct stored *c = &run->change[i];
        int rc = c->key >= KEYS ? get(w, c->key) : FAR_OK; /* an insert by a client that has died */
        assert_true(rc == FAR_OK || (rc == FAR_NOT_FOUND && c->end == UINT64_MAX));
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        assert_int_equal(get(w, key), FAR_OK);
        if (key % 16 == 0)
            assert_int_equal(change(w, key, far_update), FAR_OK);
    }
}

/* Runs the load, and returns how many operations the survivors complete in a second. */
static double run_load(struct load load)
{
    struct run *run = calloc(1, sizeof *run);
    uint64_t done = 0, failed = 0;
    assert_non_null(run);
    run->load = load;
    open_pool(run);
    fill(run);
    work(run);
    for (unsigned i = 0; i < SURVIVORS; i++) {
        done += run->worker[i].done;
        failed += run->worker[i].failed;
        if (i > 0)
            far_session_close(run->worker[i].session);
    }
    inspect(run);
    far_session_close(run->worker[0].session);
    far_pool_close(run->pool);
    sim_end(rig.sim);
    double rate = (double)done / STRETCH_NS * 1e9;
    printf("      lease %u ms, %4llu deaths: %.3f million operations a second, %llu failed\n",
           load.lease_ms, (unsigned long long)run->deaths, rate / 1e6, (unsigned long long)failed);
    uint64_t expected = load.deaths * (uint64_t)STRETCH_NS / 1000000000u;
    assert_true(run->deaths >= expected / 2 && run->deaths <= 2 * expected);
    free(run->change);
    free(run);
    return rate;
}

static void survivors_keep_most_of_their_throughput(void **state)
{
    (void)state;
    double alone = run_load((struct load){.lease_ms = 2});
    double among_deaths = run_load((struct load){.lease_ms = 2, .deaths = 500});
    printf("      ratio %.3f\n", among_deaths / alone);
    if (RIG_SLOW == 1) /* a smaller table has fewer locks */
        assert_true(among_deaths >= 0.7 * alone);
}

static void other_rates_and_leases(void **state)
{
    static const unsigned leases[] = {2, 3}, rates[] = {100, 500, 1000};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        double alone = run_load((struct load){.lease_ms = leases[i]});
        for (unsigned k = 0; k < 3; k++) {
            double rate = run_load((struct load){.lease_ms = leases[i], .deaths = rates[k]});
            printf("      lease %u ms, %u deaths a second: ratio %.3f\n", leases[i], rates[k],
                   rate / alone);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest asserted[] = {
        cmocka_unit_test_setup_teardown(survivors_keep_most_of_their_throughput, rig_set_up,
                                        rig_tear_down),
    };
    const struct CMUnitTest printed[] = {
        cmocka_unit_test_setup_teardown(other_rates_and_leases, rig_set_up, rig_tear_down),
    };
    bool all = argc > 1 && strcmp(argv[1], "--long") == 0;
    return all ? cmocka_run_group_tests(printed, NULL, NULL)
               : cmocka_run_group_tests(asserted, NULL, NULL);
}
