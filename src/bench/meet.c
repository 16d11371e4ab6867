#include "bench/meet.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/status.h"
#include "bench/bench.h"
#include "bench/keys.h"
#include "bench/tables.h"
#include "store/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BEAT_NS      100000000u
#define LOOK_MIN_NS  50000u /* between two looks of a machine that waits at a step */
#define LOOK_MAX_NS  5000000u
#define NOTE_NS      5000000000u /* between two notes about machines that are awaited */
#define KEY_BYTES    32
#define CREATE_TRIES 3

enum state { ABSENT, PRESENT, LEFT, FAILED };

/* What a machine brought to a step. */
struct brought {
    int32_t status;
    char detail[ERR_DETAIL_BYTES];
};

/* What is in the table. The machines have the same build, so it is there as it is in memory. */
struct row {
    uint64_t run; /* of the head of the same meeting */
    uint64_t beat, steps;
    uint32_t state;
    uint32_t stop;
    int32_t pid;
    uint32_t first, count; /* workers */
    uint32_t added_run;    /* the number of the run that they are in; 0: none */
    char host[MEET_HOST_BYTES];
    struct brought brought[2]; /* to step n: n % 2; how it ended: the one behind the last step */
    uint64_t added[BENCH_THREADS_MAX]; /* only `count` are in the table */
};

/* What machine 0 says of the run. */
struct head {
    uint64_t run;
    uint32_t machines;
    char options[MEET_OPTIONS_MAX];
};

struct peer {
    struct row row;
    char host[MEET_HOST_BYTES]; /* set once, when it is first seen */
    uint64_t heard;             /* when its heartbeat was last seen to move */
    bool lost;
};

struct meet {
    struct meet_options options;
    uint64_t patience_ns;
    far_pool *pool;
    far_session *session;
    far_table *table;
    pthread_mutex_t lock; /* of all that follows, and of the session */
    pthread_cond_t ending;
    pthread_t keeper;
    bool kept, ends; /* the keeper runs; is to end */
    bool refused;    /* machine 0: one of the others cannot take part */
    atomic_bool stop;
    uint64_t looked; /* when the others' rows were last read */
    int failed;      /* the meeting is over: a machine was given up, or the table is unusable */
    char detail[ERR_DETAIL_BYTES];
    struct workload_added *added;
    unsigned all;
    struct peer peer[]; /* with this machine's own row */
};

/* ---- rows ------------------------------------------------------------------------------------ */

static struct row *own(struct meet *m)
{
    return &m->peer[m->options.rank].row;
}

static size_t row_bytes(unsigned workers)
{
    return offsetof(struct row, added) + workers * sizeof(uint64_t);
}

/* Parks the session. One that does something ten times a second is never idle, so without this,
 * clients that wait for an epoch would wait for its next heartbeat. */
static void rest(struct meet *m)
{
    struct err_detail kept;
    err_keep(&kept);
    client_enter(&m->session->client);
    (void)client_park(&m->session->op); /* if it fails, the next operation finds out */
    client_leave(&m->session->client);
    err_restore(&kept);
}

static size_t key_of(const char *what, unsigned rank, char key[KEY_BYTES])
{
    return (size_t)snprintf(key, KEY_BYTES, "%s %u", what, rank);
}

/* A full pool may have room again soon. If not, the heartbeat stands still for the others. */
static bool passes(int status)
{
    return status == FAR_POOL_FULL || status == FAR_CONTENTION;
}

static int write_row(struct meet *m)
{
    struct row *r = own(m);
    char key[KEY_BYTES];
    size_t len = key_of("row", m->options.rank, key);
    r->stop = atomic_load(&m->stop);
    for (unsigned i = 0; i < r->count; i++)
        r->added[i] = atomic_load_explicit(&m->added[r->first + i].count, memory_order_acquire);
    return far_put(m->session, m->table, key, len, r, row_bytes(r->count));
}

static int read_row(struct meet *m, unsigned rank, struct row *row)
{
    char key[KEY_BYTES];
    size_t len = key_of("row", rank, key), got = 0;
    int rc = far_get(m->session, m->table, key, len, row, sizeof *row, &got);
    if (rc != FAR_OK)
        return rc;
    if (got < row_bytes(0) || row->count > BENCH_THREADS_MAX || got != row_bytes(row->count) ||
        row->state > FAILED || row->first > BENCH_THREADS_MAX)
        return err_fail(FAR_CORRUPT, "what machine %u wrote cannot be read", rank);
    row->host[sizeof row->host - 1] = '\0';
    for (unsigned i = 0; i < 2; i++)
        row->brought[i].detail[ERR_DETAIL_BYTES - 1] = '\0';
    return FAR_OK;
}

/* "machine 2 (host)" */
#define WHO_BYTES (MEET_HOST_BYTES + 32)
static const char *who(const struct meet *m, unsigned rank, char text[WHO_BYTES])
{
    const char *host = m->peer[rank].host;
    snprintf(text, WHO_BYTES, *host ? "machine %u (%s)" : "machine %u", rank, host);
    return text;
}

static int fail_of(const struct meet *m, unsigned rank, const struct brought *b)
{
    char text[WHO_BYTES];
    if (rank == m->options.rank)
        return err_fail(b->status, "%s", b->detail);
    return err_fail(b->status, "%s: %.150s", who(m, rank, text),
                    *b->detail ? b->detail : far_strerror(b->status));
}

static void note(const struct meet *m, const char *text)
{
    if (m->options.note)
        m->options.note(m->options.arg, text);
}

/* ---- looking at the others ------------------------------------------------------------------- */

/* Takes over what another machine has added to the table under test. */
static void take_added(struct meet *m, const struct row *r)
{
    if (!m->added || r->added_run != own(m)->added_run || r->first + r->count > m->all)
        return;
    for (unsigned i = 0; i < r->count; i++)
        atomic_store_explicit(&m->added[r->first + i].count, r->added[i], memory_order_release);
}

static void give_up(struct meet *m, unsigned rank)
{
    char text[WHO_BYTES];
    m->peer[rank].lost = true;
    if (m->failed == FAR_OK) {
        m->failed = FAR_SYSTEM;
        snprintf(m->detail, sizeof m->detail, "%s has not answered for %" PRIu64 " s",
                 who(m, rank, text), m->patience_ns / 1000000000);
    }
    atomic_store(&m->stop, true);
}

static int look_at(struct meet *m, unsigned rank, struct row *row)
{
    struct peer *p = &m->peer[rank];
    int rc = read_row(m, rank, row);
    if (rc == FAR_NOT_FOUND && p->row.state == ABSENT)
        return FAR_OK;
    if (rc != FAR_OK)
        return passes(rc) ? FAR_OK : rc;
    if (row->run != own(m)->run)
        return err_fail(FAR_SYSTEM, "another run of the same name has begun");
    if (p->row.state == ABSENT)
        memcpy(p->host, row->host, sizeof p->host);
    if (p->row.state == ABSENT || row->beat != p->row.beat)
        p->heard = clock_ns();
    memcpy(&p->row, row, row_bytes(row->count));
    take_added(m, row);
    if (row->stop || row->state == FAILED)
        atomic_store(&m->stop, true);
    return FAR_OK;
}

/* Reads all rows, and judges whether their machines are alive. */
static int look(struct meet *m)
{
    struct row row;
    int rc = FAR_OK;
    for (unsigned i = 0; i < m->options.machines && rc == FAR_OK; i++)
        if (i != m->options.rank)
            rc = look_at(m, i, &row);
    if (rc != FAR_OK) {
        if (m->failed == FAR_OK) {
            m->failed = rc;
            snprintf(m->detail, sizeof m->detail, "the machines cannot meet any more: %.200s",
                     *far_error_detail() ? far_error_detail() : far_strerror(rc));
        }
        atomic_store(&m->stop, true);
        return rc;
    }
    uint64_t now = clock_ns();
    bool was_away = now - m->looked > m->patience_ns / 2;
    m->looked = now;
    for (unsigned i = 0; i < m->options.machines; i++) {
        struct peer *p = &m->peer[i];
        if (i == m->options.rank || p->row.state != PRESENT || p->lost)
            continue;
        if (was_away)
            p->heard = now;
        else if (now - p->heard > m->patience_ns)
            give_up(m, i);
    }
    return FAR_OK;
}

/* The thread that renews the heartbeat, and looks at those of the others. */
static void *keep(void *arg)
{
    struct meet *m = arg;
    pthread_mutex_lock(&m->lock);
    while (!m->ends) {
        if (m->options.stop && atomic_load(m->options.stop))
            atomic_store(&m->stop, true);
        own(m)->beat++;
        (void)write_row(m); /* if it fails, so does the look */
        if (m->failed == FAR_OK)
            (void)look(m);
        rest(m);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += BEAT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_clockwait(&m->ending, &m->lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static int start_keeper(struct meet *m)
{
    m->looked = clock_ns();
    int error = pthread_create(&m->keeper, NULL, keep, m);
    if (error != 0)
        return err_fail(FAR_SYSTEM, "cannot start a thread: %s", strerror(error));
    m->kept = true;
    return FAR_OK;
}

static void end_keeper(struct meet *m)
{
    if (!m->kept)
        return;
    pthread_mutex_lock(&m->lock);
    m->ends = true;
    pthread_cond_signal(&m->ending);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->keeper, NULL);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void bring(struct meet *m, uint64_t step, int status)
{
    struct brought *b = &own(m)->brought[step % 2];
    b->status = status;
    snprintf(b->detail, sizeof b->detail, "%s", status != FAR_OK ? far_error_detail() : "");
}

/* Which machines have come to a step? */
enum coming { AWAITED, ALL_CAME, NOT_ALL_COME };

/* Sets *status to the first error that they brought, or to why one of them will not come. */
static enum coming judge(const struct meet *m, uint64_t step, int *status)
{
    static const struct brought ended = {.status = FAR_STOPPED, .detail = "it has ended early"};
    enum coming all = ALL_CAME;
    *status = FAR_OK;
    for (unsigned i = 0; i < m->options.machines; i++) {
        const struct row *r = &m->peer[i].row;
        bool came = r->steps >= step, left = r->state == LEFT || r->state == FAILED;
        const struct brought *b = &r->brought[(came ? step : r->steps + 1) % 2];
        if (!came && all != NOT_ALL_COME)
            all = left ? NOT_ALL_COME : AWAITED;
        if (came && *status == FAR_OK && b->status != FAR_OK)
            *status = fail_of(m, i, b);
        else if (!came && left && *status == FAR_OK)
            *status = fail_of(m, i, b->status != FAR_OK ? b : &ended);
    }
    return all;
}

int meet_agree(struct meet *m, int status)
{
    int rc = FAR_OK, found = FAR_OK;
    pthread_mutex_lock(&m->lock);
    uint64_t step = own(m)->steps + 1, began = clock_ns();
    bring(m, step, status);
    own(m)->steps = step;
    for (bool written = false;;) {
        rc = written ? FAR_OK : write_row(m);
        written = rc == FAR_OK;
        if (m->failed == FAR_OK)
            (void)look(m);
        if (judge(m, step, &found) != AWAITED)
            break;
        if (m->failed != FAR_OK)
            found = err_fail(m->failed, "%s", m->detail);
        else
            found = passes(rc) ? FAR_OK : rc;
        if (found != FAR_OK)
            break;
        rest(m);
        pthread_mutex_unlock(&m->lock);
        uint64_t pause = (clock_ns() - began) / 8;
        clock_sleep(pause < LOOK_MIN_NS ? LOOK_MIN_NS : pause > LOOK_MAX_NS ? LOOK_MAX_NS : pause);
        pthread_mutex_lock(&m->lock);
    }
    rest(m);
    pthread_mutex_unlock(&m->lock);
    return found;
}

int meet_post(struct meet *m, const char *what, const void *bytes, size_t len)
{
    char key[KEY_BYTES];
    size_t key_len = key_of(what, m->options.rank, key);
    pthread_mutex_lock(&m->lock);
    int rc = far_put(m->session, m->table, key, key_len, bytes, len);
    rest(m);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

int meet_take(struct meet *m, unsigned rank, const char *what, void *bytes, size_t cap, size_t *len)
{
    char key[KEY_BYTES];
    size_t key_len = key_of(what, rank, key);
    pthread_mutex_lock(&m->lock);
    int rc = far_get(m->session, m->table, key, key_len, bytes, cap, len);
    rest(m);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

int meet_share(struct meet *m, int status, void *bytes, size_t len)
{
    size_t got = len;
    bool leads = m->options.rank == 0;
    if (leads && status == FAR_OK)
        status = meet_post(m, "shared", bytes, len);
    status = meet_agree(m, status);
    if (status != FAR_OK)
        return status;
    if (!leads)
        status = meet_take(m, 0, "shared", bytes, len, &got);
    if (status == FAR_OK && got != len)
        status = err_fail(FAR_CORRUPT, "machine 0 shares %zu bytes, not %zu", got, len);
    return meet_agree(m, status); /* until then, it is not replaced */
}

void meet_watch_added(struct meet *m, struct workload_added *added, unsigned all, unsigned first,
                      unsigned count)
{
    pthread_mutex_lock(&m->lock);
    struct row *r = own(m);
    m->added = added;
    m->all = all;
    r->first = first;
    r->count = added ? count : 0;
    r->added_run += added != NULL;
    pthread_mutex_unlock(&m->lock);
}

unsigned meet_rank(const struct meet *m)
{
    return m->options.rank;
}

unsigned meet_machines(const struct meet *m)
{
    return m->options.machines;
}

const char *meet_host(const struct meet *m, unsigned rank)
{
    return m->peer[rank].host;
}

const atomic_bool *meet_stop(const struct meet *m)
{
    return &m->stop;
}

void meet_set_stop(struct meet *m)
{
    atomic_store(&m->stop, true);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void table_name(const struct meet *m, char name[FAR_NAME_MAX + 1])
{
    snprintf(name, FAR_NAME_MAX + 1, TABLES_PREFIX "meet-%s", m->options.name);
}

static bool stopped(const struct meet *m)
{
    return atomic_load(&m->stop) || (m->options.stop && atomic_load(m->options.stop));
}

/* The line of one text of options in which it differs from another; "" if it has no such line. */
static void differing_line(const char *text, const char *other, char line[64])
{
    while (*text && *other) {
        size_t a = strcspn(text, "\n"), b = strcspn(other, "\n");
        if (a != b || memcmp(text, other, a) != 0)
            break;
        text += a + (text[a] != '\0');
        other += b + (other[b] != '\0');
    }
    snprintf(line, 64, "%.*s", (int)strcspn(text, "\n"), text);
}

static int check_head(const struct meet *m, const struct head *h)
{
    char here[64], there[64];
    if (h->machines != m->options.machines)
        return err_fail(FAR_INVALID, "it was started for %u machines, machine 0 for %u",
                        m->options.machines, h->machines);
    if (strcmp(h->options, m->options.options) == 0)
        return FAR_OK;
    differing_line(m->options.options, h->options, here);
    differing_line(h->options, m->options.options, there);
    return err_fail(FAR_INVALID, "it was started with %s, machine 0 with %s",
                    *here ? here : "fewer options", *there ? there : "fewer options");
}

static void init_row(struct meet *m, uint64_t run)
{
    struct row *r = own(m);
    r->run = run;
    r->state = PRESENT;
    r->pid = (int32_t)getpid();
    if (gethostname(r->host, sizeof r->host) != 0)
        snprintf(r->host, sizeof r->host, "unknown");
    r->host[sizeof r->host - 1] = '\0';
    memcpy(m->peer[m->options.rank].host, r->host, sizeof r->host);
}

/* Does the heartbeat of machine 0 move within that time? Sets *row to the last that was read. */
static int leader_lives(struct meet *m, uint64_t limit_ns, struct row *row, bool *lives)
{
    struct row first = {.run = 0};
    int rc = FAR_OK;
    *row = first;
    *lives = false;
    for (uint64_t began = clock_ns(); !*lives && !stopped(m); clock_sleep(BEAT_NS)) {
        rc = read_row(m, 0, row);
        if ((rc != FAR_OK && rc != FAR_NOT_FOUND) || clock_ns() - began > limit_ns)
            break;
        *lives = rc == FAR_OK && first.run == row->run && first.beat != row->beat;
        if (rc == FAR_OK && first.run == 0)
            first = *row;
    }
    return rc == FAR_NOT_FOUND || rc == FAR_NO_TABLE ? FAR_OK : rc;
}

/* Machine 0: makes the table, instead of one that an earlier run has left. */
static int make_table(struct meet *m)
{
    char name[FAR_NAME_MAX + 1];
    bool lives = false;
    struct row row;
    table_name(m, name);
    int rc = FAR_TABLE_EXISTS;
    for (unsigned i = 0; i < CREATE_TRIES && rc == FAR_TABLE_EXISTS; i++) {
        rc = far_table_create(m->session, name, far_index_name(0), NULL, &m->table);
        if (rc != FAR_TABLE_EXISTS)
            return rc;
        int old = far_table_open(m->session, name, NULL, &m->table);
        if (old == FAR_NO_TABLE)
            continue;
        if (old != FAR_OK)
            return old;
        note(m, "an earlier run of this name has left its table: waiting to see whether it goes "
                "on");
        old = leader_lives(m, m->patience_ns, &row, &lives);
        if (old == FAR_OK && lives)
            return err_fail(FAR_EXISTS,
                            "a run named '%s' is under way, with machine 0 on %s (process %d): "
                            "give this one another name, or another rank",
                            m->options.name, row.host, (int)row.pid);
        if (old == FAR_OK && stopped(m))
            return err_fail(FAR_STOPPED, "interrupted");
        if (old == FAR_OK)
            old = far_table_drop(m->session, m->table);
        if (old != FAR_OK && old != FAR_NO_TABLE)
            return old;
        m->table = NULL;
    }
    return rc;
}

/* Lists the machines that have not come. */
static unsigned list_missing(const struct meet *m, char text[128])
{
    unsigned missing = 0;
    size_t len = 0;
    *text = '\0';
    for (unsigned i = 0; i < m->options.machines; i++)
        if (m->peer[i].row.state == ABSENT && ++missing && len < 128)
            len += (size_t)snprintf(text + len, 128 - len, "%s%u", missing > 1 ? ", " : "", i);
    return missing;
}

static int await_all(struct meet *m)
{
    char list[128], text[192];
    unsigned missing = 0, before = 0;
    uint64_t began = clock_ns(), noted = began - NOTE_NS;
    do {
        int rc = FAR_OK;
        pthread_mutex_lock(&m->lock);
        missing = list_missing(m, list);
        m->refused = judge(m, 1, &rc) == NOT_ALL_COME;
        rc = m->failed != FAR_OK ? err_fail(m->failed, "%s", m->detail) : FAR_OK;
        pthread_mutex_unlock(&m->lock);
        if (m->refused)
            return FAR_OK; /* the step that follows says whose error it is, to all */
        if (missing == 0 || rc != FAR_OK)
            return rc;
        if (stopped(m))
            return err_fail(FAR_STOPPED, "interrupted");
        snprintf(text, sizeof text, "waiting for machine%s %s", missing == 1 ? "" : "s", list);
        if (missing != before && clock_ns() - noted >= NOTE_NS) {
            note(m, text);
            noted = clock_ns();
            before = missing;
        }
        clock_sleep(BEAT_NS / 2);
    } while (clock_ns() - began < m->patience_ns * MEET_JOIN_FACTOR);
    return err_fail(FAR_SYSTEM, "machine%s %s %s not come within %" PRIu64 " s",
                    missing == 1 ? "" : "s", list, missing == 1 ? "has" : "have",
                    m->patience_ns * MEET_JOIN_FACTOR / 1000000000);
}

static int lead(struct meet *m)
{
    struct head head = {.machines = m->options.machines};
    uint64_t run = bench_mix(clock_boot_ns() ^ ((uint64_t)time(NULL) << 20) ^ (uint64_t)getpid());
    int rc = make_table(m);
    if (rc != FAR_OK)
        return rc;
    head.run = run;
    snprintf(head.options, sizeof head.options, "%s", m->options.options);
    init_row(m, run);
    rc = write_row(m);
    if (rc == FAR_OK)
        rc = far_put(m->session, m->table, "head", strlen("head"), &head, sizeof head);
    if (rc == FAR_OK)
        rc = start_keeper(m);
    return rc == FAR_OK ? await_all(m) : rc;
}

/* Looks once for a meeting that machine 0 leads now. *found is set if there is one. */
static int find_meeting(struct meet *m, struct head *head, bool *found)
{
    char name[FAR_NAME_MAX + 1];
    size_t len = 0;
    struct row row = {.run = 0};
    bool lives = false;
    table_name(m, name);
    *found = false;
    int rc = far_table_open(m->session, name, NULL, &m->table);
    if (rc == FAR_OK)
        rc = far_get(m->session, m->table, "head", strlen("head"), head, sizeof *head, &len);
    if (rc == FAR_OK && len != sizeof *head)
        rc = err_fail(FAR_CORRUPT, "machine 0 is of another version");
    if (rc == FAR_OK)
        rc = leader_lives(m, 4 * (uint64_t)BEAT_NS, &row, &lives);
    head->options[sizeof head->options - 1] = '\0';
    *found = rc == FAR_OK && lives && row.run == head->run;
    return rc == FAR_NO_TABLE || rc == FAR_NOT_FOUND ? FAR_OK : rc;
}

static int await_meeting(struct meet *m, struct head *head)
{
    bool found = false, noted = false;
    uint64_t began = clock_ns();
    while (clock_ns() - began < m->patience_ns * MEET_JOIN_FACTOR) {
        int rc = find_meeting(m, head, &found);
        if (rc != FAR_OK || found)
            return rc;
        if (stopped(m))
            return err_fail(FAR_STOPPED, "interrupted");
        if (!noted)
            note(m, "waiting for machine 0");
        noted = true;
        far_table_close(m->table);
        m->table = NULL;
        clock_sleep(BEAT_NS);
    }
    return err_fail(FAR_SYSTEM, "machine 0 has not come within %" PRIu64 " s",
                    m->patience_ns * MEET_JOIN_FACTOR / 1000000000);
}

static int follow(struct meet *m)
{
    struct head head;
    char key[KEY_BYTES];
    struct row other;
    size_t len = key_of("row", m->options.rank, key);
    int rc = await_meeting(m, &head);
    if (rc != FAR_OK)
        return rc;
    init_row(m, head.run);
    m->peer[0].heard = clock_ns();
    int good = check_head(m, &head);
    if (good != FAR_OK) { /* machine 0 reads why */
        own(m)->state = FAILED;
        bring(m, 1, good);
    }
    rc = far_insert(m->session, m->table, key, len, own(m), row_bytes(0));
    if (rc == FAR_EXISTS && read_row(m, m->options.rank, &other) == FAR_OK) {
        own(m)->state = ABSENT; /* the row is not this machine's */
        return err_fail(FAR_EXISTS, "there are two machines %u: the other one is process %d on %s",
                        m->options.rank, (int)other.pid, other.host);
    }
    if (good != FAR_OK) {
        struct brought why = own(m)->brought[1];
        return err_fail(good, "%s", why.detail);
    }
    return rc == FAR_OK ? start_keeper(m) : rc;
}

/* Waits until the others have left. If one could not take part, those that have yet to come are to
 * read why. */
static void await_leaving(struct meet *m)
{
    bool all = false;
    for (uint64_t began = clock_ns(); !all && clock_ns() - began < m->patience_ns;) {
        pthread_mutex_lock(&m->lock);
        all = look(m) != FAR_OK;
        bool here = false;
        for (unsigned i = 0; i < m->options.machines; i++)
            here |=
                i != m->options.rank && !m->peer[i].lost &&
                (m->peer[i].row.state == PRESENT || (m->refused && m->peer[i].row.state == ABSENT));
        all |= !here;
        rest(m);
        pthread_mutex_unlock(&m->lock);
        if (!all)
            clock_sleep(LOOK_MAX_NS);
    }
}

static void leave(struct meet *m, int status)
{
    pthread_mutex_lock(&m->lock);
    bring(m, own(m)->steps + 1, status);
    own(m)->state = status == FAR_OK || status == FAR_STOPPED ? LEFT : FAILED;
    own(m)->count = 0;
    (void)write_row(m);
    pthread_mutex_unlock(&m->lock);
    if (m->options.rank == 0)
        await_leaving(m);
}

void meet_close(struct meet *m, int status)
{
    struct err_detail kept;
    if (!m)
        return;
    err_keep(&kept);
    if (m->table && own(m)->state == PRESENT)
        leave(m, status);
    end_keeper(m);
    if (m->table && m->options.rank == 0 && own(m)->run != 0)
        (void)far_table_drop(m->session, m->table);
    far_session_close(m->session);
    far_pool_close(m->pool);
    pthread_cond_destroy(&m->ending);
    pthread_mutex_destroy(&m->lock);
    free(m);
    err_restore(&kept);
}

static int check_options(const struct meet_options *o)
{
    if (o->machines == 0 || o->machines > MEET_MACHINES_MAX)
        return err_fail(FAR_INVALID, "from 1 to %u machines can measure together",
                        MEET_MACHINES_MAX);
    if (o->rank >= o->machines)
        return err_fail(FAR_INVALID, "of %u machines, the ranks are from 0 to %u: there is no %u",
                        o->machines, o->machines - 1, o->rank);
    if (strncmp(o->pool, "mem:", 4) == 0 || strncmp(o->pool, "model:", 6) == 0)
        return err_fail(FAR_INVALID,
                        "machines meet in a pool that they share, and %.*s: is one of "
                        "this process: use verbs:, ucx: or shm:",
                        (int)strcspn(o->pool, ":"), o->pool);
    if (!*o->name || strlen(o->name) > MEET_NAME_MAX)
        return err_fail(FAR_INVALID, "the name of a run has from 1 to %u bytes", MEET_NAME_MAX);
    if (strlen(o->options) >= MEET_OPTIONS_MAX)
        return err_fail(FAR_INVALID, "the options are longer than %u bytes together",
                        MEET_OPTIONS_MAX - 1);
    return FAR_OK;
}

int meet_open(const struct meet_options *options, struct meet **meet)
{
    struct far_session_options session = {.depth = 1};
    int rc = check_options(options);
    if (rc != FAR_OK)
        return rc;
    struct meet *m = calloc(1, sizeof *m + options->machines * sizeof *m->peer);
    if (!m)
        return err_fail(FAR_NO_MEMORY, "no memory for %u machines", options->machines);
    m->options = *options;
    m->patience_ns = options->patience_ms * UINT64_C(1000000);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->ending, NULL);
    rc = far_pool_open(options->pool, &m->pool);
    if (rc == FAR_OK)
        rc = far_session_open(m->pool, &session, &m->session);
    if (rc == FAR_OK)
        rc = options->rank == 0 ? lead(m) : follow(m);
    if (rc == FAR_OK)
        rc = meet_agree(m, FAR_OK);
    if (rc != FAR_OK)
        meet_close(m, rc);
    else
        *meet = m;
    return rc;
}
