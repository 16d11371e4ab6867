/*
 * A client for the tests with several hosts. It changes keys of tables of every index, and records
 * in a file what was confirmed to it (ledger.h).
 *
 *   worker make POOL                      makes a table for every index
 *   worker work POOL LEDGER N [LIMIT_MS]  works as client N until SIGTERM. With a limit, operations
 *                                         may fail for lack of a node, but only within that time;
 *                                         each that does is a line of the standard output
 *   worker await LEDGER N COUNT           waits until client N has made that many more operations
 *                                         with success, for a minute at most
 *   worker verify POOL LEDGER             every key holds what was acknowledged to its client
 *   worker away POOL                      makes a table of its own and takes orders from the
 *                                         standard input: `sort` finds the keys that need a node
 *                                         which is away, `heal` waits until there are none;
 *                                         `measure MS` works for that long on the others, with some
 *                                         of those beside them, and prints the 99th percentile
 */
#include "base/clock.h"
#include "base/rng.h"
#include "index/tuning.h"
#include "support/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLIENTS     3u
#define TABLES      8u /* at most: indexes of a build */
#define RANGE       200u
#define SHARED      32u
#define AWAIT_NS    60000000000ull
#define AWAIT_POLL  10000   /* us */
#define SETTLE_US   1500000 /* more than half of the lease that the scripts give */
#define REST_US     2000
#define VERIFY_GETS 3 /* a reader that was slow is fenced, and reads again */

static struct ledger {
    struct client {
        struct cell cell[TABLES][RANGE];
        uint64_t version, shared_version;
        uint64_t done; /* operations with success */
    } client[CLIENTS];
} * ledger;

static struct {
    far_pool *pool;
    far_session *session;
    far_table *table[TABLES];
    unsigned tables;
} at;

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
    (void)signal;
    stop = 1;
}

static void die(const char *what, int rc)
{
    fprintf(stderr, "worker: %s: %s (%s)\n", what, far_errname(rc), far_error_detail());
    exit(1);
}

static void must(const char *what, int rc)
{
    if (rc != FAR_OK)
        die(what, rc);
}

static void open_ledger(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    if (fd < 0 || ftruncate(fd, sizeof *ledger) != 0)
        die(strerror(errno), FAR_SYSTEM);
    ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger == MAP_FAILED)
        die(strerror(errno), FAR_SYSTEM);
    close(fd);
}

static void join(const char *uri)
{
    must("opening the pool", far_pool_open(uri, &at.pool));
    must("a session", far_session_open(at.pool, NULL, &at.session));
}

static void leave(void)
{
    far_session_close(at.session);
    far_pool_close(at.pool);
}

static void make_tables(void)
{
    const char *index;
    far_table *table;

    for (unsigned i = 0; (index = far_index_name(i)) != NULL; i++) {
        const struct far_table_options small = {.tuning = tuning_smallest(index)}; /* many splits */
        must(index, far_table_create(at.session, index, index, &small, &table));
    }
}

static void open_tables(void)
{
    const char *index;

    while (at.tables < TABLES && (index = far_index_name(at.tables)) != NULL) {
        must(index, far_table_open(at.session, index, NULL, &at.table[at.tables]));
        at.tables++;
    }
}

/* ---- work ------------------------------------------------------------------------------------ */

static bool for_lack_of_a_node(int rc)
{
    return rc == FAR_UNREACHABLE || rc == FAR_TIMEOUT || rc == FAR_UNKNOWN || rc == FAR_FENCED ||
           rc == FAR_NODE_LOST;
}

static int read_cell(unsigned table, struct cell *cell, struct key key)
{
    struct value_head head = {.version = 0};
    int rc = ledger_get(at.session, at.table[table], key, &head);

    if (rc != FAR_OK && rc != FAR_NOT_FOUND)
        return rc;
    if (!cell_settle(cell, rc == FAR_OK ? head.version : 0)) {
        fprintf(stderr,
                "worker: key %u of %u in %s is version %llu; acknowledged was %llu, in doubt is "
                "%llx\n",
                key.number, key.owner, far_table_name(at.table[table]),
                (unsigned long long)head.version, (unsigned long long)cell->acked,
                (unsigned long long)cell->intent);
        exit(1);
    }
    return FAR_OK;
}

static int read_shared(unsigned table, struct key key)
{
    struct value_head head;
    int rc = ledger_get(at.session, at.table[table], key, &head);

    if (rc != FAR_OK)
        return rc == FAR_NOT_FOUND ? FAR_OK : rc;
    if (head.writer >= CLIENTS ||
        head.version >
            __atomic_load_n(&ledger->client[head.writer].shared_version, __ATOMIC_ACQUIRE))
        die("a value of nobody", FAR_CORRUPT);
    return FAR_OK;
}

static int change_own(unsigned self, unsigned table, unsigned kind, struct rng *rng)
{
    struct client *me = &ledger->client[self];
    struct key key = {self, (uint32_t)rng_below(rng, RANGE)};
    struct cell *cell = &me->cell[table][key.number];

    if (cell->intent || kind == CHANGES)
        return read_cell(table, cell, key);
    return cell_change(at.session, at.table[table], cell, key, (enum ledger_change)kind,
                       ++me->version);
}

static int change_shared(unsigned self, unsigned table, unsigned kind, struct rng *rng)
{
    struct client *me = &ledger->client[self];
    struct key key = {CLIENTS, (uint32_t)rng_below(rng, SHARED)};

    if (kind == CHANGES)
        return read_shared(table, key);
    uint64_t version = __atomic_add_fetch(&me->shared_version, 1, __ATOMIC_ACQ_REL);
    int rc =
        ledger_change(at.session, at.table[table], key, (enum ledger_change)kind, self, version);
    return rc == FAR_EXISTS || rc == FAR_NOT_FOUND ? FAR_OK : rc;
}

static void work(unsigned self, uint64_t limit_ms)
{
    struct rng rng;

    rng_seed(&rng, (uint64_t)getpid());
    while (!stop) {
        unsigned table = (unsigned)rng_below(&rng, at.tables);
        unsigned kind = (unsigned)rng_below(&rng, CHANGES + 1);
        uint64_t began = clock_ns();
        int rc = rng_below(&rng, 4) == 0 ? change_shared(self, table, kind, &rng)
                                         : change_own(self, table, kind, &rng);
        uint64_t ms = (clock_ns() - began) / 1000000;

        if (rc == FAR_OK) {
            __atomic_add_fetch(&ledger->client[self].done, 1, __ATOMIC_RELAXED);
        } else if (limit_ms == 0 || !for_lack_of_a_node(rc)) {
            die("an operation", rc);
        } else {
            printf("%s after %llu ms: %s\n", far_errname(rc), (unsigned long long)ms,
                   far_error_detail());
            usleep(REST_US); /* while a node is known to be away, operations fail at once */
        }
        if (limit_ms != 0 && ms > limit_ms) {
            fprintf(stderr,
                    "worker: an operation took %llu ms, %llu are allowed: ", (unsigned long long)ms,
                    (unsigned long long)limit_ms);
            die("it ended with", rc);
        }
    }
}

/* What was under way when the last one by this number ended may still take effect, until its
 * batches have expired; then its keys can be looked at. */
static void succeed(unsigned self)
{
    usleep(SETTLE_US);
    for (unsigned t = 0; t < at.tables; t++) {
        for (uint32_t i = 0; i < RANGE; i++) {
            struct cell *cell = &ledger->client[self].cell[t][i];

            if (cell->intent)
                must("what was in doubt", read_cell(t, cell, (struct key){self, i}));
        }
    }
}

static bool in_doubt(unsigned self)
{
    for (unsigned t = 0; t < at.tables; t++) {
        for (unsigned i = 0; i < RANGE; i++) {
            if (ledger->client[self].cell[t][i].intent)
                return true;
        }
    }
    return false;
}

static void verify(void)
{
    uint64_t there = 0;

    for (unsigned t = 0; t < at.tables; t++) {
        for (unsigned c = 0; c < CLIENTS; c++) {
            for (uint32_t i = 0; i < RANGE; i++) {
                struct cell *cell = &ledger->client[c].cell[t][i];
                int rc = FAR_FENCED;

                for (unsigned n = 0; rc == FAR_FENCED && n < VERIFY_GETS; n++)
                    rc = read_cell(t, cell, (struct key){c, i});
                must("reading a key", rc);
                there += cell->acked != 0;
            }
        }
        for (uint32_t i = 0; i < SHARED; i++)
            must("reading a shared key", read_shared(t, (struct key){CLIENTS, i}));
    }
    printf("%llu keys as acknowledged\n", (unsigned long long)there);
}

static void await(unsigned self, uint64_t count)
{
    const uint64_t *done = &ledger->client[self].done;
    uint64_t from = __atomic_load_n(done, __ATOMIC_RELAXED), start = clock_ns();

    while (__atomic_load_n(done, __ATOMIC_RELAXED) - from < count) {
        if (clock_ns() - start > AWAIT_NS) {
            fprintf(stderr, "worker: client %u has made %llu operations in a minute, not %llu\n",
                    self, (unsigned long long)(*done - from), (unsigned long long)count);
            exit(1);
        }
        usleep(AWAIT_POLL);
    }
}

/* ---- a node is away -------------------------------------------------------------------------- */

#define AWAY_KEYS  240u
#define AWAY_VALUE 128u
#define AWAY_DEPTH 16u
#define AWAY_LOST  2u /* operations in flight on keys whose node is away */
#define AWAY_TIMES 200000u

static struct {
    uint32_t key[AWAY_KEYS]; /* those whose node is there, then the others */
    unsigned there;
    struct slot {
        uint64_t began;
        char value[AWAY_VALUE];
    } slot[AWAY_DEPTH];
    uint64_t time[AWAY_TIMES];
    unsigned times, failed;
} away;

/* The keys take turns with the tables, one of each index. */
static far_table *away_table(uint32_t key)
{
    return at.table[key % at.tables];
}

static void away_fill(void)
{
    const char *index;
    char value[AWAY_VALUE] = "", name[64];

    for (at.tables = 0; (index = far_index_name(at.tables)) != NULL; at.tables++) {
        const struct far_table_options spread = {.expected_keys = 8192,
                                                 .tuning = tuning_smallest(index)};
        snprintf(name, sizeof name, "away-%s", index);
        must(index, far_table_create(at.session, name, index, &spread, &at.table[at.tables]));
    }
    for (uint32_t i = 0; i < AWAY_KEYS; i++) {
        away.key[i] = i;
        must("a key", far_put(at.session, away_table(i), &i, sizeof i, value, sizeof value));
    }
}

static void away_sort(void)
{
    uint32_t lost[AWAY_KEYS];
    unsigned count = 0;
    char value[AWAY_VALUE];

    away.there = 0;
    for (uint32_t i = 0; i < AWAY_KEYS; i++) {
        int rc = FAR_FENCED;

        for (unsigned n = 0; rc == FAR_FENCED && n < VERIFY_GETS; n++)
            rc = far_get(at.session, away_table(i), &i, sizeof i, value, sizeof value, NULL);
        if (rc == FAR_OK)
            away.key[away.there++] = i;
        else if (for_lack_of_a_node(rc))
            lost[count++] = i;
        else
            die("sorting keys", rc);
    }
    memcpy(away.key + away.there, lost, count * sizeof *lost);
    printf("%u there %u away\n", away.there, count);
}

/* The last slots work on keys whose node is away. */
static void away_submit(unsigned i, struct rng *rng)
{
    struct slot *slot = &away.slot[i];
    bool lost = i >= AWAY_DEPTH - AWAY_LOST;
    unsigned from = lost ? away.there : 0;
    const uint32_t *key =
        &away.key[from + rng_below(rng, lost ? AWAY_KEYS - away.there : away.there)];
    struct far_op op = {.kind = rng_below(rng, 2) ? FAR_OP_GET : FAR_OP_UPDATE,
                        .table = away_table(*key),
                        .key = key,
                        .key_len = sizeof *key,
                        .value = slot->value,
                        .value_len = sizeof slot->value,
                        .buf = slot->value,
                        .cap = sizeof slot->value,
                        .user_data = i};

    slot->began = clock_ns();
    must("submitting", far_submit(at.session, &op));
}

static void away_reaped(const struct far_result *result)
{
    uint64_t took = clock_ns() - away.slot[result->user_data].began;

    if (result->status != FAR_OK && !for_lack_of_a_node(result->status))
        die("an operation", result->status);
    away.failed += result->status != FAR_OK;
    if (result->user_data >= AWAY_DEPTH - AWAY_LOST)
        return;
    if (result->status != FAR_OK && result->status != FAR_FENCED)
        die("an operation that needs nodes which are there", result->status);
    if (away.times < AWAY_TIMES)
        away.time[away.times++] = took;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* What needs the node that is away may fail at once: it is tried again after others have ended. */
static void away_measure(uint64_t ms)
{
    bool idle[AWAY_DEPTH];
    uint64_t start = clock_ns();
    unsigned in_flight = 0;
    struct rng rng;

    rng_seed(&rng, start);
    away.times = away.failed = 0;
    memset(idle, true, sizeof idle);
    do {
        struct far_result result[AWAY_DEPTH];
        bool lost = true;

        for (unsigned i = 0; i < AWAY_DEPTH && clock_ns() - start < ms * 1000000; i++) {
            if (!idle[i])
                continue;
            away_submit(i, &rng);
            idle[i] = false;
            in_flight++;
        }
        while (lost && in_flight > 0) {
            unsigned count = far_reap(at.session, result, AWAY_DEPTH, 1);

            for (unsigned i = 0; i < count; i++) {
                away_reaped(&result[i]);
                idle[result[i].user_data] = true;
                lost &= result[i].user_data >= AWAY_DEPTH - AWAY_LOST;
            }
            in_flight -= count;
        }
    } while (in_flight > 0);
    if (away.times == 0)
        die("measuring nothing", FAR_INVALID);
    qsort(away.time, away.times, sizeof *away.time, by_size);
    printf("%llu us: the 99th percentile of %u, %llu us the longest; %u failed\n",
           (unsigned long long)away.time[away.times * 99 / 100] / 1000, away.times,
           (unsigned long long)away.time[away.times - 1] / 1000, away.failed);
}

/* Until every key can be reached, for a minute at most. */
static void away_heal(void)
{
    uint64_t start = clock_ns();
    char value[AWAY_VALUE];

    for (uint32_t i = 0; i < AWAY_KEYS;) {
        int rc = far_get(at.session, away_table(i), &i, sizeof i, value, sizeof value, NULL);

        if (rc == FAR_OK)
            i++;
        else if (!for_lack_of_a_node(rc) || clock_ns() - start > AWAIT_NS)
            die("a key", rc);
        else
            usleep(REST_US);
    }
    printf("all there\n");
}

static void take_orders(void)
{
    char line[64];
    unsigned long long ms;

    away_fill();
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "sort\n") == 0)
            away_sort();
        else if (strcmp(line, "heal\n") == 0)
            away_heal();
        else if (sscanf(line, "measure %llu", &ms) == 1)
            away_measure(ms);
        else
            die(line, FAR_INVALID);
    }
}

static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    if (*end || n > most)
        die(text, FAR_INVALID);
    return (unsigned)n;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    const char *verb = argc > 1 ? argv[1] : "";

    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(verb, "make") == 0) {
        join(argv[2]);
        make_tables();
        leave();
    } else if ((argc == 5 || argc == 6) && strcmp(verb, "work") == 0) {
        unsigned self = number(argv[4], CLIENTS - 1);
        unsigned limit = argc == 6 ? number(argv[5], 3600000) : 0;

        open_ledger(argv[3]);
        join(argv[2]);
        open_tables();
        if (in_doubt(self))
            succeed(self);
        work(self, limit);
        leave();
    } else if (argc == 5 && strcmp(verb, "await") == 0) {
        open_ledger(argv[2]);
        await(number(argv[3], CLIENTS - 1), number(argv[4], 1000000));
    } else if (argc == 4 && strcmp(verb, "verify") == 0) {
        open_ledger(argv[3]);
        join(argv[2]);
        open_tables();
        verify();
        leave();
    } else if (argc == 3 && strcmp(verb, "away") == 0) {
        const struct far_session_options deep = {.depth = AWAY_DEPTH};

        must("opening the pool", far_pool_open(argv[2], &at.pool));
        must("a session", far_session_open(at.pool, &deep, &at.session));
        take_orders();
        leave();
    } else {
        fprintf(stderr,
                "worker: make POOL | work POOL LEDGER N [LIMIT_MS] | await LEDGER N COUNT | "
                "verify POOL LEDGER | away POOL\n");
        return 2;
    }
    return 0;
}
