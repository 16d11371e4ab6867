/*
 * Clients that die: processes that work on one pool in shared memory are killed at any instant and
 * replaced, while the others go on.
 *
 * A worker records what was acknowledged in memory that outlives it (ledger.h). Its successor first
 * looks at every key of its range. Besides its own range, every worker changes keys that all share.
 *
 * Now and then the parent repairs the pool. The pool is smaller than all the memory that killed
 * clients held: without repairs it would be full before the end.
 *
 *   kill9                      the test: every index gets its share of the kills
 *   kill9 --kills N            the same with more kills (`make torture`)
 *   kill9 --recovery N         measures how soon the others reach their speed again
 *   kill9 --long ...           each index gets all of them, not a share
 *
 * If FARSIDE names the program, `farside pool check` and `farside stat` look at the pool at the
 * end.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "support/indexes.h"
#include "support/ledger.h"
#include "support/shm_scratch.h"

#define WORKERS   4u
#define RANGE     3000u /* keys of a worker, which uses more and more of them */
#define RANGE_LOW 100u
#define SHARED    64u          /* keys of all */
#define LEASE     "lease=1000" /* far longer than the system ever suspends a runnable process */
#define LIFE_US   250000       /* of a worker that is about to be killed, at most */
#define PACE      32  /* operations, then a rest: the faster the others go on, the more memory */
#define PACE_US   500 /* waits for the epoch of a killed client                                */

struct worker {
    struct cell cell[RANGE];
    uint64_t version;        /* the last that it tried to store in any key */
    uint64_t shared_version; /* likewise, of the keys that all share */
    uint64_t ops;            /* of all its processes */
    uint64_t started;        /* the present process is at work */
    uint64_t fenced;         /* operations that ended with FAR_FENCED */
    uint64_t repairs;        /* that it began */
    pid_t pid;
};

static struct shared {
    char uri[256];
    uint64_t range; /* of keys that workers use now */
    struct worker worker[WORKERS];
} * shared;

struct job {
    unsigned self;
    uint64_t generation;
    bool repairs; /* it may begin with a repair */
};

/* ---- a worker -------------------------------------------------------------------------------- */

struct client_of_pool {
    far_pool *pool;
    far_session *session;
    far_table *table;
};

static void die(const char *what, struct key key, int rc)
{
    fprintf(stderr, "kill9: %s: key %u of %u: %s (%s)\n", what, key.number, key.owner,
            far_errname(rc), far_error_detail());
    _exit(1);
}

static void join_pool(struct client_of_pool *c)
{
    ASSERT(far_pool_open(shared->uri, &c->pool) == FAR_OK);
    int rc = far_session_open(c->pool, NULL, &c->session);
    if (rc != FAR_OK)
        die("a new session", (struct key){0, 0}, rc);
    ASSERT(far_table_open(c->session, "t", NULL, &c->table) == FAR_OK);
}

static void leave_pool(struct client_of_pool *c)
{
    far_session_close(c->session);
    far_pool_close(c->pool);
}

/* The version that a key has; 0: none. A session that did not run for a lease is fenced; then the
 * read is tried again. */
static uint64_t look_up(struct client_of_pool *c, struct key key)
{
    struct value_head head;
    int rc = FAR_FENCED;

    for (unsigned i = 0; rc == FAR_FENCED && i < 1000; i++)
        rc = ledger_get(c->session, c->table, key, &head);
    if (rc == FAR_NOT_FOUND)
        return 0;
    if (rc != FAR_OK)
        die("get", key, rc);
    if (key.owner == WORKERS &&
        (head.writer >= WORKERS ||
         head.version >
             __atomic_load_n(&shared->worker[head.writer].shared_version, __ATOMIC_ACQUIRE)))
        die("a value that no worker wrote", key, rc);
    return head.version;
}

static enum far_decision keep(void *arg, const void *old, size_t len, const void **value,
                              size_t *value_len)
{
    (void)arg;
    (void)old;
    (void)len;
    (void)value;
    (void)value_len;
    return FAR_KEEP;
}

/* A change that was under way may take effect until somebody completes it: a get does not wait for
 * that, but another change of the key does. */
static void decide(struct client_of_pool *c, struct key key)
{
    int rc = FAR_FENCED;
    for (unsigned i = 0; rc == FAR_FENCED && i < 1000; i++)
        rc = far_modify(c->session, c->table, &key, sizeof key, keep, NULL);
    if (rc != FAR_OK)
        die("a decision", key, rc);
}

/* After a kill or an error of unknown outcome, finds out what the key has. */
static void settle(struct client_of_pool *c, struct cell *cell, struct key key)
{
    decide(c, key);
    uint64_t found = look_up(c, key);
    if (!cell_settle(cell, found)) {
        fprintf(stderr,
                "kill9: key %u of %u has version %llu; acknowledged was %llu, intended %llx\n",
                key.number, key.owner, (unsigned long long)found, (unsigned long long)cell->acked,
                (unsigned long long)cell->intent);
        _exit(1);
    }
}

static void settle_range(struct client_of_pool *c, unsigned self)
{
    for (uint32_t i = 0; i < RANGE; i++)
        settle(c, &shared->worker[self].cell[i], (struct key){self, i});
}

/* One operation on a key of its own. */
static void change_own(struct client_of_pool *c, unsigned self, struct rng *rng)
{
    struct worker *me = &shared->worker[self];
    struct key key = {self, (uint32_t)rng_below(rng, shared->range)};
    struct cell *cell = &me->cell[key.number];
    unsigned kind = (unsigned)rng_below(rng, CHANGES + 1);
    int rc = FAR_OK;

    if (kind < CHANGES)
        rc = cell_change(c->session, c->table, cell, key, (enum ledger_change)kind, ++me->version);
    if (rc != FAR_OK && rc != FAR_FENCED)
        die("a change", key, rc);
    me->fenced += rc == FAR_FENCED;
    if (rc == FAR_FENCED || kind == CHANGES)
        settle(c, cell, key);
}

static void change_shared(struct client_of_pool *c, unsigned self, struct rng *rng)
{
    struct worker *me = &shared->worker[self];
    struct key key = {WORKERS, (uint32_t)rng_below(rng, SHARED)};
    unsigned kind = (unsigned)rng_below(rng, CHANGES + 1);

    if (kind == CHANGES) {
        (void)look_up(c, key);
        return;
    }
    uint64_t version = __atomic_add_fetch(&me->shared_version, 1, __ATOMIC_ACQ_REL);
    int rc = ledger_change(c->session, c->table, key, (enum ledger_change)kind, self, version);
    me->fenced += rc == FAR_FENCED;
    if (rc != FAR_OK && rc != FAR_EXISTS && rc != FAR_NOT_FOUND && rc != FAR_FENCED)
        die("a change of a shared key", key, rc);
}

/* Some workers begin with a repair, so that sweepers are killed too. */
static void repair_first(struct client_of_pool *c, struct worker *me)
{
    struct far_pool_check check;
    me->repairs++; /* few workers live to its end */
    int rc = far_pool_check(c->session, true, NULL, NULL, &check);
    if (rc != FAR_OK && rc != FAR_CONTENTION && rc != FAR_FENCED)
        die("a repair", (struct key){0, 0}, rc);
}

static void work(void *arg)
{
    const struct job *job = arg;
    struct worker *me = &shared->worker[job->self];
    struct client_of_pool c;
    struct rng rng;

    rng_seed(&rng, job->generation * WORKERS + job->self);
    join_pool(&c);
    settle_range(&c, job->self);
    __atomic_store_n(&me->started, 1, __ATOMIC_RELEASE);
    if (job->repairs && rng_below(&rng, 8) == 0)
        repair_first(&c, me);
    for (;;) { /* until it is killed */
        if (rng_below(&rng, 4) == 0)
            change_shared(&c, job->self, &rng);
        else
            change_own(&c, job->self, &rng);
        if (__atomic_add_fetch(&me->ops, 1, __ATOMIC_RELAXED) % PACE == 0)
            usleep(PACE_US);
    }
}

/* ---- the parent ------------------------------------------------------------------------------ */

static unsigned kills_wanted = RIG_SLOW == 1 ? 80 : 12;
static unsigned kills;      /* the present index's share */
static unsigned recoveries; /* to be measured */

static void start_worker(unsigned self, uint64_t generation)
{
    struct worker *w = &shared->worker[self];
    w->started = 0;
    w->pid = child_start(work, &(struct job){self, generation, recoveries == 0});
}

/* Waits until the worker has looked at its range and is at work. */
static void await_worker(unsigned self)
{
    struct worker *w = &shared->worker[self];
    while (!__atomic_load_n(&w->started, __ATOMIC_ACQUIRE)) {
        assert_false(child_gone(w->pid));
        usleep(200);
    }
}

static void kill_worker(unsigned self)
{
    pid_t pid = shared->worker[self].pid;
    kill(pid, SIGKILL);
    assert_true(child_killed(child_end(pid)));
}

static void say(void *arg, const char *line)
{
    (void)arg;
    print_message("  %s\n", line);
}

static void make_pool(const char *options)
{
    const struct far_table_options small = {.tuning = indexes_smallest()}; /* many splits */
    struct client_of_pool c;

    shared = scratch_shared(sizeof *shared);
    strcpy(shared->uri, scratch_uri(scratch_name(false), options));
    assert_int_equal(far_pool_open(shared->uri, &c.pool), FAR_OK);
    assert_int_equal(far_session_open(c.pool, NULL, &c.session), FAR_OK);
    assert_int_equal(far_table_create(c.session, "t", index_tested, &small, &c.table), FAR_OK);
    leave_pool(&c);
    strchr(shared->uri, '?')[0] = '\0';
}

/* While the others work, the pool is sound; only what killed clients held is missing, and a repair
 * gets it back. */
static void check_live(bool repair)
{
    struct client_of_pool c;
    struct far_pool_check check = {0};

    join_pool(&c);
    int rc = far_pool_check(c.session, repair, say, NULL, &check);
    if (rc != FAR_OK && rc != FAR_FENCED && rc != FAR_CONTENTION)
        fail_msg("a check: %s (%s)", far_errname(rc), far_error_detail());
    leave_pool(&c);
}

/* With no other client left. A check that was suspended for longer than a lease starts again. */
static void check_all(struct client_of_pool *c, bool repair, struct far_pool_check *check)
{
    int rc = FAR_FENCED;
    for (unsigned i = 0; rc == FAR_FENCED && i < 100; i++)
        rc = far_pool_check(c->session, repair, say, NULL, check);
    assert_int_equal(rc, FAR_OK);
}

static void run_program(const char *format)
{
    char command[600];
    const char *program = getenv("FARSIDE");
    if (!program)
        return;
    snprintf(command, sizeof command, format, program, shared->uri);
    assert_int_equal(system(command), 0);
}

/* With all workers killed: what was acknowledged is there, and the memory that they held is
 * found. */
static void judge(void)
{
    struct client_of_pool c;
    struct far_pool_check check;
    struct far_pool_usage u;
    struct far_pool_info info;
    uint64_t ops = 0, fenced = 0, repairs = 0;

    join_pool(&c);
    for (unsigned i = 0; i < WORKERS; i++) {
        settle_range(&c, i);
        ops += shared->worker[i].ops;
        fenced += shared->worker[i].fenced;
        repairs += shared->worker[i].repairs;
    }
    for (uint32_t i = 0; i < SHARED; i++)
        (void)look_up(&c, (struct key){WORKERS, i});
    check_all(&c, true, &check);
    assert_true(check.leaked_bytes == 0);
    check_all(&c, false, &check);
    assert_int_equal(check.dead_clients, 0);
    assert_true(check.leaked_bytes == 0);
    for (unsigned i = 0; i < WORKERS; i++)
        settle_range(&c, i);
    assert_int_equal(far_pool_usage(c.session, &u), FAR_OK);
    assert_true(u.unknown == 0);
    assert_true(u.total == u.metadata + u.live + u.retired + u.free);
    assert_int_equal(far_pool_info(c.session, &info), FAR_OK);
    assert_int_equal(info.clients, 1);
    leave_pool(&c);
    print_message("%u kills, %llu operations, %llu fenced, %llu repairs; live %llu KiB of %llu\n",
                  kills, (unsigned long long)ops, (unsigned long long)fenced,
                  (unsigned long long)repairs, (unsigned long long)u.live / 1024,
                  (unsigned long long)u.total / 1024);
    run_program("%s pool check '%s'");
    run_program("%s stat --pool '%s' >/dev/null");
}

static void what_was_acknowledged_outlives_its_client(void **state)
{
    struct rng rng;
    (void)state;
    rng_seed(&rng, 9);
    kills = indexes_share(kills_wanted);
    unsigned checks = kills < 80 ? kills / 8 + 1 : 10; /* kills between two checks */
    make_pool("?size=128m&nodes=2&clients=64&" LEASE);
    for (unsigned i = 0; i < WORKERS; i++) {
        shared->range = RANGE_LOW;
        start_worker(i, 0);
    }
    for (unsigned i = 0; i < kills; i++) {
        unsigned victim = (unsigned)rng_below(&rng, WORKERS);
        /* The table grows all the time: splits are the most interesting place for a kill. */
        shared->range = RANGE_LOW + (uint64_t)(RANGE - RANGE_LOW) * i / kills;
        await_worker(victim);
        usleep((useconds_t)rng_below(&rng, LIFE_US));
        kill_worker(victim);
        if (i % checks == checks - 1)
            check_live(i / checks % 2 == 1);
        start_worker(victim, i + 1);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        await_worker(i);
        kill_worker(i);
    }
    judge();
    munmap(shared, sizeof *shared);
}

/* ---- how soon the others reach their speed again --------------------------------------------- */

#define RECOVERY_LEASE_MS 500
#define WINDOW_US         (RECOVERY_LEASE_MS * 1000 / 10)

static uint64_t ops_but_of(unsigned victim)
{
    uint64_t ops = 0;
    for (unsigned i = 0; i < WORKERS; i++)
        ops += i == victim ? 0 : __atomic_load_n(&shared->worker[i].ops, __ATOMIC_RELAXED);
    return ops;
}

/* Operations per second of the others, over the next `us`. */
static double rate_but_of(unsigned victim, unsigned us)
{
    uint64_t from = clock_ns(), ops = ops_but_of(victim);
    usleep(us);
    return (double)(ops_but_of(victim) - ops) * 1e9 / (double)(clock_ns() - from);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* From the kill to the end of the last window, of the next four leases, in which the others did
 * less than 90 % of what they did before. */
static void measure(unsigned count)
{
    double *leases = calloc(count, sizeof *leases), lowest = 1;
    struct rng rng;
    assert_non_null(leases);
    rng_seed(&rng, 11);
    for (unsigned i = 0; i < count; i++) {
        unsigned victim = (unsigned)rng_below(&rng, WORKERS);
        for (unsigned w = 0; w < WORKERS; w++)
            await_worker(w);
        usleep(2 * RECOVERY_LEASE_MS * 1000);
        double before = rate_but_of(victim, RECOVERY_LEASE_MS * 1000);
        uint64_t killed = clock_ns(), now = killed;
        kill_worker(victim);
        while (now - killed < 4ull * RECOVERY_LEASE_MS * 1000000) {
            double rate = rate_but_of(victim, WINDOW_US) / before;
            now = clock_ns();
            lowest = rate < lowest ? rate : lowest;
            if (rate < 0.9)
                leases[i] = (double)(now - killed) / (RECOVERY_LEASE_MS * 1e6);
        }
        start_worker(victim, i + 1);
    }
    qsort(leases, count, sizeof *leases, compare_doubles);
    print_message(
        "back at 90 %% of the speed after %.2f leases (median), %.2f (90 %%), %.2f (max); "
        "slowest window %.0f %%\n",
        leases[count / 2], leases[count * 9 / 10], leases[count - 1], lowest * 100);
    free(leases);
}

static void survivors_soon_reach_their_speed_again(void **state)
{
    (void)state;
    make_pool("?size=512m&nodes=2&clients=64&lease=500");
    shared->range = RANGE;
    for (unsigned i = 0; i < WORKERS; i++)
        start_worker(i, 0);
    measure(indexes_share(recoveries));
    for (unsigned i = 0; i < WORKERS; i++)
        kill_worker(i);
    munmap(shared, sizeof *shared);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest measured[] = {
        SCRATCH_CASE(survivors_soon_reach_their_speed_again),
    };

    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(what_was_acknowledged_outlives_its_client),
    };

    int at = indexes_arguments(argc, argv);
    if (argc == at + 2 && strcmp(argv[at], "--kills") == 0)
        kills_wanted = (unsigned)atoi(argv[at + 1]);
    if (argc == at + 2 && strcmp(argv[at], "--recovery") == 0 && atoi(argv[at + 1]) > 0) {
        recoveries = (unsigned)atoi(argv[at + 1]);
        return scratch_run_indexes(measured);
    }
    return scratch_run_indexes(tests);
}
