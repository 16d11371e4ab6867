/*
 * Threads on one table with few keys and tiny parts that are restructured all the time. Threads
 * yield before one batch in four, so that they meet between any two round trips even on few cores.
 * With --long they do more than a million operations, also under a sanitizer.
 *
 * Threads do not assert. They count what is wrong, and the test asserts when they have ended.
 */
#include "support/indexes.h"
#include "support/store_rig.h"

#include "store/store_internal.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define THREADS 4

struct trial;

struct racer {
    struct trial *trial;
    pthread_t thread;
    unsigned who;
    far_session *session;
    struct rng rng;
    struct rng
        posts; /* of the session's posts: also those of the keeper, when it has the session */
    struct batch_tap tap;
    uint64_t fillers; /* keys of its own that it has added to make the table grow */
    unsigned wrong;
    char first_wrong[200];
    uint32_t *own; /* the values of its own keys, if the test needs them */
};

struct trial {
    struct fab *fab;
    far_pool *pool;
    far_table *table;
    unsigned rounds;
    pthread_barrier_t barrier;
    atomic_uint done; /* writers that have ended */
    struct racer racer[THREADS];
    int outcome[THREADS];
};

/* ---- a trial --------------------------------------------------------------------------------- */

static void yield_sometimes(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    struct racer *a = (struct racer *)((char *)tap - offsetof(struct racer, tap));

    (void)verbs;
    (void)count;
    if (rng_next(&a->posts) % 4 == 0)
        sched_yield();
}

static void __attribute__((format(printf, 2, 3))) wrong(struct racer *a, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (a->wrong++ == 0)
        vsnprintf(a->first_wrong, sizeof a->first_wrong, format, args);
    va_end(args);
}

static void expect(struct racer *a, int rc, int want, const char *what)
{
    if (rc != want)
        wrong(a, "%s: %s instead of %s", what, far_errname(rc), far_errname(want));
}

static void trial_open(struct trial *s, const char *uri, unsigned patience, unsigned rounds)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options tiny = {.tuning = indexes_smallest(), .hash_seed = 77};

    memset(s, 0, sizeof *s);
    knobs.patience = patience;
    s->rounds = indexes_long ? 3 * rounds : SLOWER == 1 ? rounds : indexes_share(rounds / SLOWER);
    assert_int_equal(fab_open(uri, &s->fab), FAR_OK);
    assert_int_equal(store_open(s->fab, &knobs, &s->pool), FAR_OK);
    s->pool->pool.kept = true; /* nobody waits for the sessions of threads that have ended */
    pthread_barrier_init(&s->barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        struct racer *a = &s->racer[i];
        struct far_session_options options = {.depth = 8, .seed = 100 + i};
        a->trial = s;
        a->who = i;
        rng_seed(&a->rng, 200 + i);
        rng_seed(&a->posts, 300 + i);
        assert_int_equal(far_session_open(s->pool, &options, &a->session), FAR_OK);
        client_enter(&a->session->client); /* the keeper may be about to park the session */
        a->tap.posted = yield_sometimes;
        a->session->op.batch.tap = &a->tap;
        client_leave(&a->session->client);
    }
    assert_int_equal(far_table_create(s->racer[0].session, "t", index_tested, &tiny, &s->table),
                     FAR_OK);
}

static void trial_run(struct trial *s, void *(*part)(void *))
{
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&s->racer[i].thread, NULL, part, &s->racer[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(s->racer[i].thread, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        if (s->racer[i].wrong)
            fail_msg("thread %u: %u wrong, first %s", i, s->racer[i].wrong,
                     s->racer[i].first_wrong);
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    print_message("%s\n", line);
}

/* With no thread at work: every session finds the table sound. Returns the number of keys. */
static uint64_t trial_check(struct trial *s)
{
    struct far_table_info info;

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(far_table_check(s->racer[i].session, s->table, print_line, NULL), FAR_OK);
    assert_int_equal(far_table_info(s->racer[0].session, s->table, &info), FAR_OK);
    return info.keys;
}

static void trial_close(struct trial *s)
{
    for (unsigned i = 0; i < THREADS; i++) {
        far_session_close(s->racer[i].session);
        free(s->racer[i].own);
    }
    pthread_barrier_destroy(&s->barrier);
    far_pool_close(s->pool);
    fab_close(s->fab);
}

/* ---- fillers: keys of one thread, which keep the subtables splitting ------------------------- */

#define FILLER 0xf000000000000000ull

static void add_filler(struct racer *a)
{
    uint64_t key = FILLER | (uint64_t)a->who << 32 | a->fillers++;
    expect(a, far_insert(a->session, a->trial->table, &key, 8, &key, 8), FAR_OK, "filler");
}

/* All acknowledged fillers are there. Returns their number. */
static uint64_t expect_fillers(struct trial *s)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        for (uint64_t n = 0; n < s->racer[i].fillers; n++) {
            uint64_t key = FILLER | (uint64_t)i << 32 | n, value = 0;
            size_t len = 0;
            assert_int_equal(far_get(s->racer[0].session, s->table, &key, 8, &value, 8, &len),
                             FAR_OK);
            assert_true(len == 8 && value == key);
            all++;
        }
    }
    return all;
}

/* ---- values that identify themselves --------------------------------------------------------- */

#define WORDS_MAX 40

/* key, writer and number, then words that follow from these; returns the length in bytes. */
static size_t proof_make(uint64_t key, uint64_t writer, uint64_t n, uint64_t *value)
{
    size_t words = 3 + (size_t)((key + n) % (WORDS_MAX - 3));

    value[0] = key;
    value[1] = writer;
    value[2] = n;
    for (size_t i = 3; i < words; i++)
        value[i] = (value[i - 1] ^ key ^ n << 20 ^ writer << 50) * 0x9e3779b97f4a7c15 + i;
    return words * 8;
}

static bool proof_holds(uint64_t key, const uint64_t *value, size_t len)
{
    uint64_t want[WORDS_MAX];

    return len >= 24 && value[0] == key && value[1] < THREADS &&
           proof_make(key, value[1], value[2], want) == len && memcmp(value, want, len) == 0;
}

#define SHARED_KEYS 12

static void *put_and_get(void *arg)
{
    struct racer *a = arg;
    far_table *t = a->trial->table;

    for (unsigned i = 0; i < a->trial->rounds; i++) {
        uint64_t key = rng_below(&a->rng, SHARED_KEYS), value[WORDS_MAX];
        size_t len = 0;
        int rc = FAR_OK;
        switch (rng_below(&a->rng, 8)) {
        case 0:
        case 1:
            len = proof_make(key, a->who, i, value);
            expect(a, far_put(a->session, t, &key, 8, value, len), FAR_OK, "put");
            break;
        case 2:
            len = proof_make(key, a->who, i, value);
            rc = far_update(a->session, t, &key, 8, value, len);
            expect(a, rc, rc == FAR_NOT_FOUND ? rc : FAR_OK, "update");
            break;
        case 3:
            len = proof_make(key, a->who, i, value);
            rc = far_insert(a->session, t, &key, 8, value, len);
            expect(a, rc, rc == FAR_EXISTS ? rc : FAR_OK, "insert");
            break;
        case 4:
            rc = far_delete(a->session, t, &key, 8);
            expect(a, rc, rc == FAR_NOT_FOUND ? rc : FAR_OK, "delete");
            break;
        case 5:
            add_filler(a);
            break;
        default:
            rc = far_get(a->session, t, &key, 8, value, sizeof value, &len);
            expect(a, rc, rc == FAR_NOT_FOUND ? rc : FAR_OK, "get");
            if (rc == FAR_OK && !proof_holds(key, value, len))
                wrong(a, "key %u has a value that no thread put", (unsigned)key);
            break;
        }
    }
    return NULL;
}

static void gets_return_only_what_was_put(void **state)
{
    static const unsigned patience[] = {0, 200};

    (void)state;
    for (unsigned p = 0; p < 2; p++) {
        struct trial s;
        trial_open(&s, p ? "mem:?size=256m" : "mem:?size=128m&nodes=3", patience[p], 20000);
        trial_run(&s, put_and_get);
        uint64_t keys = trial_check(&s), expected = expect_fillers(&s);
        for (uint64_t key = 0; key < SHARED_KEYS; key++)
            expected += far_exists(s.racer[1].session, s.table, &key, 8) == FAR_OK;
        assert_true(keys == expected);
        trial_close(&s);
    }
}

/* The same through rings on a fabric that waits: operations of one thread interleave too. */
static void *ring_put_and_get(void *arg)
{
    enum { DEPTH = 8 };
    struct racer *a = arg;
    uint64_t key[DEPTH], value[DEPTH][WORDS_MAX];
    unsigned places = (1u << DEPTH) - 1;

    for (unsigned i = 0; i < a->trial->rounds || places != (1u << DEPTH) - 1;) {
        if (i < a->trial->rounds && places != 0) {
            unsigned p = (unsigned)__builtin_ctz(places);
            bool get = rng_below(&a->rng, 2);
            key[p] = rng_below(&a->rng, SHARED_KEYS);
            struct far_op op = {
                .kind = get ? FAR_OP_GET : (enum far_op_kind)(FAR_OP_PUT + rng_below(&a->rng, 4)),
                .table = a->trial->table,
                .key = &key[p],
                .key_len = 8,
                .value = value[p],
                .value_len = get ? 0 : proof_make(key[p], a->who, i, value[p]),
                .buf = value[p],
                .cap = sizeof value[p],
                .user_data = p | (get ? 256 : 0)};
            expect(a, far_submit(a->session, &op), FAR_OK, "submit");
            places &= ~(1u << p);
            i++;
            if (i % 8 == 0)
                add_filler(a);
            continue;
        }
        struct far_result r[DEPTH];
        unsigned n = far_reap(a->session, r, DEPTH, 1);
        for (unsigned k = 0; k < n; k++) {
            unsigned p = r[k].user_data & 255;
            int rc = r[k].status;
            if (rc != FAR_OK && rc != FAR_NOT_FOUND && rc != FAR_EXISTS)
                wrong(a, "an operation of the ring: %s", far_errname(rc));
            if (r[k].user_data >> 8 && rc == FAR_OK && !proof_holds(key[p], value[p], r[k].len))
                wrong(a, "key %u has a value that no thread put", (unsigned)key[p]);
            places |= 1u << p;
        }
    }
    return NULL;
}

static void rings_return_only_what_was_put(void **state)
{
    struct trial s;

    (void)state;
    trial_open(&s, "mem:?size=256m&defer=1&groups=1", 200, 10000);
    trial_run(&s, ring_put_and_get);
    uint64_t keys = trial_check(&s), expected = expect_fillers(&s);
    for (uint64_t key = 0; key < SHARED_KEYS; key++)
        expected += far_exists(s.racer[1].session, s.table, &key, 8) == FAR_OK;
    assert_true(keys == expected);
    trial_close(&s);
}

/* ---- counters that only go up ---------------------------------------------------------------- */

#define COUNTERS 4

/* Thread 0 counts, thread 1 makes the table grow, and all others read: no counter goes back. */
static void *count_or_watch(void *arg)
{
    struct racer *a = arg;
    struct trial *s = a->trial;
    uint64_t last[COUNTERS] = {0};

    if (a->who == 0) {
        for (uint64_t n = 1; n <= s->rounds; n++) {
            for (uint64_t key = 0; key < COUNTERS; key++)
                expect(a, far_put(a->session, s->table, &key, 8, &n, 8), FAR_OK, "count");
        }
        atomic_fetch_add(&s->done, 1);
        return NULL;
    }
    while (atomic_load(&s->done) == 0) {
        if (a->who == 1 && a->fillers < s->rounds)
            add_filler(a);
        for (uint64_t key = 0; key < COUNTERS; key++) {
            uint64_t n = 0;
            size_t len = 0;
            int rc = far_get(a->session, s->table, &key, 8, &n, 8, &len);
            if (rc == FAR_NOT_FOUND && last[key] == 0)
                continue;
            expect(a, rc, FAR_OK, "read a counter");
            if (rc == FAR_OK && n < last[key])
                wrong(a, "counter %u went from %llu to %llu", (unsigned)key,
                      (unsigned long long)last[key], (unsigned long long)n);
            last[key] = n;
        }
    }
    return NULL;
}

static void counters_never_go_back(void **state)
{
    (void)state;
    for (unsigned p = 0; p < 2; p++) {
        struct trial s;
        trial_open(&s, "mem:?size=256m", p ? 200 : 0, 15000);
        trial_run(&s, count_or_watch);
        assert_true(trial_check(&s) == COUNTERS + expect_fillers(&s));
        for (uint64_t key = 0; key < COUNTERS; key++) {
            uint64_t n = 0;
            size_t len = 0;
            assert_int_equal(far_get(s.racer[2].session, s.table, &key, 8, &n, 8, &len), FAR_OK);
            assert_true(n == s.rounds);
        }
        trial_close(&s);
    }
}

/* ---- one hot key ----------------------------------------------------------------------------- */

#define CHANGES 4096u /* of a thread, at most */

/* When the changes of each thread ended, by one clock of all; 0: not yet. The start of the latest
 * one that has ended. */
static atomic_uint_fast64_t hot_clock, hot_ended[THREADS][CHANGES], hot_latest;

/* A get may not return a value whose change had ended when a later one began that has ended since.
 * So changes that others have made needless must really lie before those. */
static void *change_and_read_hot_key(void *arg)
{
    struct racer *a = arg;
    const uint64_t key = 7;
    for (uint64_t n = 0; n < a->trial->rounds && n < CHANGES; n++) {
        uint64_t value = n * THREADS + a->who, found = 0, latest = 0;
        uint64_t began = atomic_fetch_add(&hot_clock, 1) + 1;
        size_t len = 0;
        int rc = n % 4 == 3 ? far_put(a->session, a->trial->table, &key, 8, &value, 8)
                            : far_update(a->session, a->trial->table, &key, 8, &value, 8);
        expect(a, rc, FAR_OK, "change the hot key");
        atomic_store(&hot_ended[a->who][n], atomic_fetch_add(&hot_clock, 1) + 1);
        latest = atomic_load(&hot_latest);
        while (latest < began && !atomic_compare_exchange_weak(&hot_latest, &latest, began))
            ;
        latest = atomic_load(&hot_latest);
        rc = far_get(a->session, a->trial->table, &key, 8, &found, 8, &len);
        expect(a, rc, FAR_OK, "read the hot key");
        uint64_t ended = atomic_load(&hot_ended[found % THREADS][found / THREADS % CHANGES]);
        if (found != UINT64_MAX && ended != 0 && ended < latest)
            wrong(a, "a value was read that had been overwritten for good");
    }
    return NULL;
}

static void a_hot_key_never_has_an_older_value(void **state)
{
    struct trial s;
    uint64_t key = 7, first = UINT64_MAX, joined = 0;

    (void)state;
    trial_open(&s, "mem:?size=256m&defer=1&groups=1", 200, CHANGES);
    assert_int_equal(far_put(s.racer[0].session, s.table, &key, 8, &first, 8), FAR_OK);
    memset(hot_ended, 0, sizeof hot_ended);
    hot_latest = 0;
    trial_run(&s, change_and_read_hot_key);
    for (unsigned i = 0; i < THREADS; i++)
        joined += s.racer[i].session->groups.joined;
    print_message("%llu of %u changes joined others\n", (unsigned long long)joined,
                  THREADS * (s.rounds < CHANGES ? s.rounds : CHANGES));
    assert_true(trial_check(&s) == 1);
    trial_close(&s);
}

/* ---- repairs --------------------------------------------------------------------------------- */

/* As far_pool_check() does it, which also waits for heartbeats. */
static void repair(struct racer *a)
{
    struct index_report report = {.line = print_line, .repair = true};
    struct table_view *known = NULL;
    store_enter(a->session);
    int rc = store_view_begin(a->session, &a->session->op, a->trial->table, &known);
    if (rc == FAR_OK) {
        rc = INDEX_CALL(a->trial->table->index.ops, check, &a->session->op, known->view, &report);
        store_view_end(a->session, &a->session->op, known, rc);
    }
    store_leave(a->session);
    if (rc != FAR_CONTENTION)
        expect(a, rc, FAR_OK, "repair");
    if (report.violations + report.stranded + report.repaired > 0)
        wrong(a, "%u violations, %u stranded, %u repaired", report.violations, report.stranded,
              report.repaired);
}

/* Thread 0 repairs the table, and all others insert and delete keys of their own. Nobody dies, so
 * there is nothing to be repaired, and what was inserted is there. */
static void *repair_or_churn(void *arg)
{
    struct racer *a = arg;
    struct trial *s = a->trial;

    while (a->who == 0 && atomic_load(&s->done) < THREADS - 1)
        repair(a);
    for (uint64_t n = 0; n < s->rounds && a->who > 0; n++) {
        uint64_t key = (uint64_t)a->who << 8 | n % 2, value = 0;
        size_t len = 0;
        expect(a, far_insert(a->session, s->table, &key, 8, &n, 8), FAR_OK, "insert");
        expect(a, far_get(a->session, s->table, &key, 8, &value, 8, &len), FAR_OK, "get");
        expect(a, far_delete(a->session, s->table, &key, 8), FAR_OK, "delete");
    }
    atomic_fetch_add(&s->done, a->who > 0);
    return NULL;
}

static void a_repair_beside_others_finds_nothing(void **state)
{
    struct trial s;
    (void)state;
    trial_open(&s, "mem:?size=64m&lease=60", 0, 1000);
    trial_run(&s, repair_or_churn);
    assert_int_equal(trial_check(&s), 0);
    trial_close(&s);
}

/* ---- one winner ------------------------------------------------------------------------------ */

static unsigned count_outcome(const struct trial *s, int rc)
{
    unsigned n = 0;

    for (unsigned i = 0; i < THREADS; i++)
        n += s->outcome[i] == rc;
    return n;
}

/* All do the same at once. Of the outcomes, exactly one is FAR_OK, the others are `rest`. */
static void one_wins(struct racer *a, int rc, int rest, const char *what)
{
    struct trial *s = a->trial;

    s->outcome[a->who] = rc;
    pthread_barrier_wait(&s->barrier);
    if (a->who == 0 && (count_outcome(s, FAR_OK) != 1 || count_outcome(s, rest) != THREADS - 1))
        wrong(a, "%s: %u won, %u lost", what, count_outcome(s, FAR_OK), count_outcome(s, rest));
    pthread_barrier_wait(&s->barrier);
}

static void *insert_and_delete_together(void *arg)
{
    struct racer *a = arg;
    struct trial *s = a->trial;

    for (unsigned i = 0; i < s->rounds; i++) {
        uint64_t key = i % 5, value = (uint64_t)a->who << 32 | i;
        one_wins(a, far_insert(a->session, s->table, &key, 8, &value, 8), FAR_EXISTS, "insert");
        uint64_t got = 0;
        size_t len = 0;
        expect(a, far_get(a->session, s->table, &key, 8, &got, 8, &len), FAR_OK, "get");
        if ((uint32_t)got != i || got >> 32 >= THREADS || s->outcome[got >> 32] != FAR_OK)
            wrong(a, "round %u: the value is not the winner's", i);
        if (rng_below(&a->rng, 2))
            add_filler(a);
        pthread_barrier_wait(&s->barrier);
        one_wins(a, far_delete(a->session, s->table, &key, 8), FAR_NOT_FOUND, "delete");
        expect(a, far_exists(a->session, s->table, &key, 8), FAR_NOT_FOUND, "deleted");
        pthread_barrier_wait(&s->barrier);
    }
    return NULL;
}

static void of_inserts_and_deletes_at_once_one_wins(void **state)
{
    (void)state;
    for (unsigned p = 0; p < 2; p++) {
        struct trial s;
        trial_open(&s, p ? "mem:?size=128m&nodes=2" : "mem:?size=128m", p ? 200 : 0, 3000);
        trial_run(&s, insert_and_delete_together);
        assert_true(trial_check(&s) == expect_fillers(&s));
        trial_close(&s);
    }
}

/* ---- churn, then quiet ----------------------------------------------------------------------- */

#define OWN_KEYS 500

static uint64_t own_key(unsigned who, uint64_t n)
{
    return 0x1000000000000000ull | (uint64_t)who << 32 | n;
}

/* Each thread knows what its own keys have, while keys of other threads come and go. */
static void *churn(void *arg)
{
    struct racer *a = arg;
    far_table *t = a->trial->table;

    for (uint32_t i = 1; i <= a->trial->rounds; i++) {
        uint64_t n = rng_below(&a->rng, OWN_KEYS), key = own_key(a->who, n), value = i, got = 0;
        uint64_t shared = rng_below(&a->rng, SHARED_KEYS);
        size_t len = 0;
        int rc = FAR_OK;
        bool there = a->own[n] != 0;
        switch (rng_below(&a->rng, 6)) {
        case 0:
            expect(a, far_put(a->session, t, &key, 8, &value, 8), FAR_OK, "put");
            a->own[n] = i;
            break;
        case 1:
            expect(a, far_insert(a->session, t, &key, 8, &value, 8), there ? FAR_EXISTS : FAR_OK,
                   "insert");
            a->own[n] = there ? a->own[n] : i;
            break;
        case 2:
            expect(a, far_update(a->session, t, &key, 8, &value, 8), there ? FAR_OK : FAR_NOT_FOUND,
                   "update");
            a->own[n] = there ? i : 0;
            break;
        case 3:
            expect(a, far_delete(a->session, t, &key, 8), there ? FAR_OK : FAR_NOT_FOUND, "delete");
            a->own[n] = 0;
            break;
        case 4:
            expect(a, far_get(a->session, t, &key, 8, &got, 8, &len),
                   there ? FAR_OK : FAR_NOT_FOUND, "get");
            if (there && got != a->own[n])
                wrong(a, "own key %u holds another value", (unsigned)n);
            break;
        default:
            rc = i % 2 ? far_put(a->session, t, &shared, 8, &shared, 8)
                       : far_delete(a->session, t, &shared, 8);
            expect(a, rc, rc == FAR_NOT_FOUND && i % 2 == 0 ? rc : FAR_OK, "shared");
            break;
        }
    }
    return NULL;
}

static void after_the_churn_keys_are_as_acknowledged(void **state)
{
    (void)state;
    for (unsigned p = 0; p < 2; p++) {
        struct trial s;
        uint64_t expected = 0;

        trial_open(&s, p ? "mem:?size=128m&nodes=3" : "mem:?size=256m", p ? 200 : 0, 25000);
        for (unsigned i = 0; i < THREADS; i++)
            assert_non_null(s.racer[i].own = calloc(OWN_KEYS, sizeof *s.racer[i].own));
        trial_run(&s, churn);
        uint64_t keys = trial_check(&s);
        for (unsigned i = 0; i < THREADS * OWN_KEYS; i++) {
            uint64_t key = own_key(i / OWN_KEYS, i % OWN_KEYS), got = 0;
            uint32_t want = s.racer[i / OWN_KEYS].own[i % OWN_KEYS];
            size_t len = 0;
            far_session *any = s.racer[i % THREADS].session;
            assert_int_equal(far_get(any, s.table, &key, 8, &got, 8, &len),
                             want ? FAR_OK : FAR_NOT_FOUND);
            assert_true(got == want);
            expected += want != 0;
        }
        for (uint64_t key = 0; key < SHARED_KEYS; key++)
            expected += far_exists(s.racer[0].session, s.table, &key, 8) == FAR_OK;
        assert_true(keys == expected);
        trial_close(&s);
    }
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_return_only_what_was_put),
        cmocka_unit_test(rings_return_only_what_was_put),
        cmocka_unit_test(counters_never_go_back),
        cmocka_unit_test(a_hot_key_never_has_an_older_value),
        cmocka_unit_test(a_repair_beside_others_finds_nothing),
        cmocka_unit_test(of_inserts_and_deletes_at_once_one_wins),
        cmocka_unit_test(after_the_churn_keys_are_as_acknowledged),
    };
    return INDEXES_RUN(tests);
}
