/* The modelled network: order, fences, limits, atomics, and that a run is the same twice. */
#include "model/model.h"
#include "store/store.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define VERBS_MAX   64u
#define CLIENTS_MAX 16u
#define WORD        4096u /* a place of the memory */

/* What one client does: requests with these verbs, one after the other. */
struct job {
    struct fab *fab;
    struct fab_ep *ep; /* if it outlives the client */
    unsigned count, rounds;
    struct fab_verb verbs[VERBS_MAX]; /* the buffer of each is a word that the client takes */
    uint64_t ns;                      /* that all rounds took */
    uint64_t result[VERBS_MAX];       /* of the last round */
};

static void work(void *arg)
{
    struct job *job = arg;
    struct fab_ep *ep = NULL;
    assert_int_equal(job->fab->ops->ep_open(job->fab, &ep), FAR_OK);
    uint64_t bytes = 0, *at = NULL;
    for (unsigned i = 0; i < job->count; i++)
        bytes += job->verbs[i].len;
    uint64_t *buf = ep->ops->buf_alloc(ep, bytes);
    assert_non_null(buf);
    at = buf;
    for (unsigned i = 0; i < job->count; i++) {
        job->verbs[i].buf = at;
        at += job->verbs[i].len / 8;
    }
    uint64_t from = model_now(job->fab);
    for (unsigned i = 0; i < job->rounds; i++) {
        struct fab_req req = {.verbs = job->verbs, .count = job->count};
        assert_int_equal(ep->ops->post(ep, &req), FAR_OK);
        while (!req.done)
            ep->ops->poll(ep, true);
        assert_int_equal(req.status, FAR_OK);
    }
    job->ns = model_now(job->fab) - from;
    for (unsigned i = 0; i < job->count; i++)
        job->result[i] = *(uint64_t *)job->verbs[i].buf;
    ep->ops->buf_free(ep, buf, bytes);
    ep->ops->ep_close(ep);
}

/* Runs the jobs of all clients on a new network. Returns how many events that took. */
static uint64_t run(struct job *jobs, unsigned clients)
{
    char uri[64];
    struct fab *fab = NULL;
    snprintf(uri, sizeof uri, "model:?nic=cx6&threads=%u&size=1m", clients);
    assert_int_equal(model_open(uri, &fab), FAR_OK);
    for (unsigned i = 0; i < clients; i++)
        jobs[i].fab = fab;
    assert_int_equal(model_run(fab, work, jobs, sizeof *jobs, NULL, NULL), FAR_OK);
    uint64_t events = model_counts(fab)->events;
    fab_close(fab);
    return events;
}

static struct fab_verb verb(enum fab_kind kind, uint64_t off)
{
    return (struct fab_verb){.kind = (uint8_t)kind, .len = 8, .off = off, .swap = 1};
}

/* The nanoseconds of one request with `count` verbs of the kind, of an idle network. */
static uint64_t time_of(enum fab_kind kind, unsigned count, uint8_t flags_of_last)
{
    struct job job = {.count = count, .rounds = 1};
    for (unsigned i = 0; i < count; i++)
        job.verbs[i] = verb(kind, WORD + 64 * i);
    job.verbs[count - 1].flags = flags_of_last;
    run(&job, 1);
    return job.ns;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The word is busy with atomics of other clients, so each waits there. A READ behind it must not
 * take effect before it. */
static void verbs_of_a_connection_take_effect_in_order(void **state)
{
    (void)state;
    struct job jobs[CLIENTS_MAX] = {{.count = 0}};
    for (unsigned i = 0; i < CLIENTS_MAX; i++)
        jobs[i] = (struct job){
            .count = 2, .rounds = 1, .verbs = {verb(FAB_FAA, WORD), verb(FAB_READ, WORD)}};
    run(jobs, CLIENTS_MAX);
    uint64_t seen = 0;
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        assert_true(jobs[i].result[1] > jobs[i].result[0]);
        assert_true(jobs[i].result[0] < CLIENTS_MAX);
        seen |= 1ull << jobs[i].result[0];
    }
    assert_int_equal(seen, (1ull << CLIENTS_MAX) - 1); /* each atomic saw another number */
}

static void a_fence_waits_for_the_answers_before_it(void **state)
{
    (void)state;
    uint64_t one = time_of(FAB_READ, 1, 0), two = time_of(FAB_READ, 2, 0),
             fenced = time_of(FAB_READ, 2, FAB_FENCE);
    assert_in_range(one, 2000, 3000);
    assert_true(two < one + one / 2);
    assert_true(fenced > one + one / 2);
    /* There is no answer to wait for. */
    assert_int_equal(time_of(FAB_WRITE, 2, FAB_FENCE), time_of(FAB_WRITE, 2, 0));
}

static void a_connection_has_16_reads_under_way(void **state)
{
    (void)state;
    uint64_t latency = time_of(FAB_READ, 1, 0);
    assert_true(time_of(FAB_READ, 16, 0) - time_of(FAB_READ, 15, 0) < latency / 4);
    assert_true(time_of(FAB_READ, 17, 0) - time_of(FAB_READ, 16, 0) > latency / 2);
    assert_true(time_of(FAB_WRITE, 17, 0) - time_of(FAB_WRITE, 16, 0) < latency / 4);
}

/* Millions of atomics a second, with 4 of each client in a request, on one word or each on its
 * own. */
static double rate_of_atomics(bool one_word, uint64_t *events)
{
    struct job jobs[CLIENTS_MAX] = {{.count = 0}};
    uint64_t longest = 0;
    for (unsigned i = 0; i < CLIENTS_MAX; i++) {
        jobs[i] = (struct job){.count = 4, .rounds = 25};
        for (unsigned k = 0; k < 4; k++)
            jobs[i].verbs[k] = verb(FAB_FAA, WORD + (one_word ? 0 : 64 * (4 * i + k)));
    }
    *events = run(jobs, CLIENTS_MAX);
    for (unsigned i = 0; i < CLIENTS_MAX; i++)
        if (jobs[i].ns > longest)
            longest = jobs[i].ns;
    return CLIENTS_MAX * 4 * 25 * 1000.0 / (double)longest;
}

static void atomics_on_one_word_are_serial(void **state)
{
    (void)state;
    uint64_t events = 0;
    double same = rate_of_atomics(true, &events), spread = rate_of_atomics(false, &events);
    assert_true(2.8 < same && same < 3.1);
    assert_true(spread > 5 * same);
}

static void a_run_is_the_same_twice(void **state)
{
    (void)state;
    uint64_t events[2];
    double rate[2];
    for (unsigned i = 0; i < 2; i++)
        rate[i] = rate_of_atomics(true, &events[i]);
    assert_true(rate[0] == rate[1]);
    assert_int_equal(events[0], events[1]);
}

/* Atomics of all clients on a word, then each client's READs, and the load of the latter alone. */
static void the_load_is_that_of_the_busiest_since_its_begin(void **state)
{
    (void)state;
    struct job jobs[CLIENTS_MAX] = {{.count = 0}};
    struct fab *fab = NULL;
    struct model_load load;
    assert_int_equal(model_open("model:?nic=cx6&machines=2&threads=8&nodes=2&size=1m", &fab),
                     FAR_OK);
    for (unsigned i = 0; i < CLIENTS_MAX; i++)
        jobs[i] =
            (struct job){.fab = fab, .count = 1, .rounds = 25, .verbs = {verb(FAB_FAA, WORD)}};
    assert_int_equal(model_run(fab, work, jobs, sizeof *jobs, NULL, NULL), FAR_OK);
    model_load(fab, &load);
    assert_int_equal(model_load_busiest(&load), MODEL_NODE_WORD);
    assert_int_equal(load.busy[MODEL_NODE_WORD], 16 * 25 * 330000ull); /* 330 ns each */
    assert_in_range(load.time, load.busy[MODEL_NODE_WORD], load.busy[MODEL_NODE_WORD] * 11 / 10);

    model_load_begin(fab);
    model_load(fab, &load);
    assert_int_equal(load.time, 0);
    for (unsigned i = 0; i < CLIENTS_MAX; i++) { /* twelve clients read the node 1 */
        jobs[i] =
            (struct job){.fab = fab, .count = 1, .rounds = 1, .verbs = {verb(FAB_READ, WORD)}};
        jobs[i].verbs[0].node = i < 12;
    }
    assert_int_equal(model_run(fab, work, jobs, sizeof *jobs, NULL, NULL), FAR_OK);
    model_load(fab, &load);
    assert_int_equal(load.busy[MODEL_NODE_WORD], 0);
    assert_int_equal(load.busy[MODEL_NODE_VERBS], 12 * 9000);          /* 9 ns each */
    assert_int_equal(load.busy[MODEL_CLIENT_VERBS], 8 * 9000);         /* of a machine */
    assert_int_equal(load.busy[MODEL_NODE_SENDS], 12 * (46 + 8) * 41); /* 41 ps for a byte */
    assert_int_equal(load.busy[MODEL_NODE_RECEIVES], 12 * 46 * 41);
    assert_int_equal(load.busy[MODEL_CLIENT_THREADS], 60000 + 217000); /* post and completion */
    assert_true(load.busy[MODEL_CLIENT_THREADS] < load.time);
    fab_close(fab);
}

/* ---- an index -------------------------------------------------------------------------------- */

struct reader {
    far_pool *pool;
    struct fab *fab;
    uint64_t ns;
};

static void get_twice(void *arg)
{
    struct reader *r = arg;
    far_session *session = NULL;
    struct far_table_options options = {.tuning = "hot=0"};
    far_table *table = NULL;
    char value[8];
    size_t len = 0;
    assert_int_equal(far_session_open(r->pool, NULL, &session), FAR_OK);
    assert_int_equal(far_table_create(session, "table", "race", &options, &table), FAR_OK);
    assert_int_equal(far_put(session, table, "key", 3, "value", 5), FAR_OK);
    for (unsigned i = 0; i < 2; i++) { /* the first fills the cache */
        uint64_t from = model_now(r->fab);
        assert_int_equal(far_get(session, table, "key", 3, value, sizeof value, &len), FAR_OK);
        r->ns = model_now(r->fab) - from;
    }
    far_session_close(session);
}

/* Two READs of buckets, then one of the block. */
static void a_get_of_race_takes_what_its_round_trips_take(void **state)
{
    (void)state;
    struct reader r = {.ns = 0};
    assert_int_equal(model_open("model:?nic=cx6&size=64m", &r.fab), FAR_OK);
    assert_int_equal(store_open(r.fab, NULL, &r.pool), FAR_OK);
    assert_int_equal(model_run(r.fab, get_twice, &r, sizeof r, NULL, NULL), FAR_OK);
    far_pool_close(r.pool);
    fab_close(r.fab);
    uint64_t expected = time_of(FAB_READ, 2, 0) + time_of(FAB_READ, 1, 0);
    assert_in_range(r.ns, expected, expected + expected / 20);
}

/* A request whose verbs and buffers are on the client's stack. */
static void add_from_stack(void *arg)
{
    struct job *job = arg;
    struct fab_ep *ep = job->ep;
    for (; job->count < job->rounds; job->count++) {
        uint64_t words[VERBS_MAX];
        struct fab_verb verbs[VERBS_MAX];
        for (unsigned i = 0; i < VERBS_MAX; i++) {
            verbs[i] = verb(FAB_FAA, WORD);
            verbs[i].buf = &words[i];
        }
        struct fab_req req = {.verbs = verbs, .count = VERBS_MAX};
        assert_int_equal(ep->ops->post(ep, &req), FAR_OK);
        while (!req.done)
            ep->ops->poll(ep, true);
    }
}

/* What a client has posted lands after its death, too: all of it or a part is counted twice when
 * the next client in its place does the round again, and nothing is missing. */
static void a_dead_clients_verbs_still_land(void **state)
{
    (void)state;
    enum { CLIENTS = 4, ROUNDS = 50 };
    struct job jobs[CLIENTS] = {{.count = 0}}, last = {.count = 1, .rounds = 1};
    struct fab *fab = NULL;
    assert_int_equal(model_open("model:?nic=cx6&threads=4&size=1m", &fab), FAR_OK);
    for (unsigned i = 0; i < CLIENTS; i++) {
        jobs[i] = (struct job){.fab = fab, .rounds = ROUNDS};
        assert_int_equal(fab->ops->ep_open(fab, &jobs[i].ep), FAR_OK);
    }
    model_let_die(fab, 20000, 1);
    assert_int_equal(model_run(fab, add_from_stack, jobs, sizeof *jobs, NULL, NULL), FAR_OK);
    uint64_t deaths = model_counts(fab)->deaths;
    assert_true(deaths > 10);

    struct job reads[CLIENTS];
    last.verbs[0] = verb(FAB_READ, WORD);
    last.fab = fab;
    for (unsigned i = 0; i < CLIENTS; i++)
        reads[i] = last;
    assert_int_equal(model_run(fab, work, reads, sizeof *reads, NULL, NULL), FAR_OK);
    uint64_t planned = (uint64_t)CLIENTS * ROUNDS * VERBS_MAX;
    assert_in_range(reads[0].result[0], planned, planned + deaths * VERBS_MAX);
    for (unsigned i = 0; i < CLIENTS; i++)
        fab->ops->ep_close(jobs[i].ep);
    fab_close(fab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verbs_of_a_connection_take_effect_in_order),
        cmocka_unit_test(a_fence_waits_for_the_answers_before_it),
        cmocka_unit_test(a_connection_has_16_reads_under_way),
        cmocka_unit_test(atomics_on_one_word_are_serial),
        cmocka_unit_test(a_run_is_the_same_twice),
        cmocka_unit_test(the_load_is_that_of_the_busiest_since_its_begin),
        cmocka_unit_test(a_dead_clients_verbs_still_land),
        cmocka_unit_test(a_get_of_race_takes_what_its_round_trips_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
