/*
 * Processes that write large values into shared memory are stopped in the middle, for longer than
 * their lease, while others work in the same pool. When they go on, nothing is damaged: every value
 * that was acknowledged is there, byte for byte, and a check of the pool finds nothing (LEASE-L4).
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "store/store.h"
#include "support/hook.h"
#include "support/indexes.h"
#include "support/probe.h"
#include "support/shm_scratch.h"

#define LEASE     "&lease=100"
#define LEASE_NS  100000000ull
#define TRIES     1000 /* on a busy machine the lease of any process may lapse */
#define STOPS     indexes_share(25)
#define WORKERS   3 /* the parent is the first */
#define KEYS      4 /* of each */
#define BYTES_MIN (4u << 10)
#define BYTES_MAX (4u << 20)

static struct shared {
    char uri[256];
    bool over;
    struct {
        uint64_t tried[KEYS], done[KEYS]; /* steps: begun, and acknowledged */
        uint64_t steps;
    } of[WORKERS];
} * shared;

static struct {
    far_pool *pool;
    far_session *session;
    far_table *table;
    uint64_t *value, *got; /* BYTES_MAX */
    struct rng rng;
} at;

static void join(uint64_t seed)
{
    ASSERT(far_pool_open(shared->uri, &at.pool) == FAR_OK);
    ASSERT(far_session_open(at.pool, NULL, &at.session) == FAR_OK);
    int rc = far_table_open(at.session, "t", NULL, &at.table);
    if (rc == FAR_NO_TABLE)
        rc = far_table_create(at.session, "t", index_tested, NULL, &at.table);
    ASSERT(rc == FAR_OK);
    at.value = malloc(BYTES_MAX);
    at.got = malloc(BYTES_MAX);
    ASSERT(at.value && at.got);
    rng_seed(&at.rng, seed);
}

static void leave(void)
{
    far_session_close(at.session);
    far_pool_close(at.pool);
    free(at.value);
    free(at.got);
}

/* ---- values ---------------------------------------------------------------------------------- */

struct key {
    uint32_t worker, key;
};

/* From 4 KiB to 4 MiB, each power of two as often. */
static size_t value_bytes(struct key key, uint64_t step)
{
    uint64_t parts[2] = {(uint64_t)key.worker << 32 | key.key, step};
    uint64_t hash = hash_sum(parts, sizeof parts, 0);
    size_t bytes = (size_t)BYTES_MIN << hash % 11;

    bytes = bytes > BYTES_MAX ? BYTES_MAX : bytes;
    return bytes - (hash >> 8) % (bytes / 2) / 8 * 8;
}

static size_t make_value(struct key key, uint64_t step, uint64_t *value)
{
    size_t bytes = value_bytes(key, step);

    for (size_t i = 0; i < bytes / 8; i++)
        value[i] =
            (step << 32 | (uint64_t)key.worker << 24 | key.key) ^ (i * 0x9e3779b97f4a7c15ull);
    return bytes;
}

/* A pool that waits for a stopped process may be full, and locks may be held. */
static bool may_fail(int rc)
{
    return rc == FAR_POOL_FULL || rc == FAR_CONTENTION || rc == FAR_FENCED;
}

static void step(uint32_t worker)
{
    struct key key = {worker, (uint32_t)rng_below(&at.rng, KEYS)};
    uint64_t next = shared->of[worker].tried[key.key] + 1;
    size_t bytes = make_value(key, next, at.value);

    shared->of[worker].tried[key.key] = next;
    int rc = far_put(at.session, at.table, &key, sizeof key, at.value, bytes);
    if (rc != FAR_OK && !may_fail(rc))
        print_error("worker %u: %s: %s\n", worker, far_errname(rc), far_error_detail());
    ASSERT(rc == FAR_OK || may_fail(rc));
    if (rc == FAR_OK)
        shared->of[worker].done[key.key] = next;
    __atomic_add_fetch(&shared->of[worker].steps, 1, __ATOMIC_RELEASE);
}

static int get(struct key key, size_t *len)
{
    int rc = FAR_FENCED;

    for (unsigned i = 0; i < TRIES && rc == FAR_FENCED; i++)
        rc = far_get(at.session, at.table, &key, sizeof key, at.got, BYTES_MAX, len);
    return rc;
}

/* The value is the last one that was acknowledged, or one that was tried since. */
static void judge(struct key key, uint64_t done, uint64_t tried)
{
    size_t len = 0;
    int rc = get(key, &len);

    if (rc == FAR_NOT_FOUND && done == 0)
        return;
    if (rc != FAR_OK)
        print_error("key %u of %u: %s: %s\n", key.key, key.worker, far_errname(rc),
                    far_error_detail());
    assert_int_equal(rc, FAR_OK);
    uint64_t found = at.got[0] >> 32;
    assert_in_range(found, done, tried);
    assert_int_equal(len, make_value(key, found, at.value));
    assert_memory_equal(at.got, at.value, len);
}

static void judge_worker(uint32_t worker)
{
    for (uint32_t i = 0; i < KEYS; i++)
        judge((struct key){worker, i}, shared->of[worker].done[i], shared->of[worker].tried[i]);
}

/* ---- processes ------------------------------------------------------------------------------- */

static void worker(void *arg)
{
    uint32_t self = (uint32_t)(uintptr_t)arg;

    join(self);
    while (!__atomic_load_n(&shared->over, __ATOMIC_RELAXED))
        step(self);
    leave();
}

static void stop(pid_t child)
{
    int status = 0;

    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
}

/* Works until the lease of a client that stands still has lapsed, and others have had time to take
 * it for dead. */
static void work_for_leases(unsigned leases)
{
    uint64_t began = clock_ns();

    for (unsigned i = 0; i < 20 || clock_ns() - began < leases * LEASE_NS; i++) {
        step(0);
        usleep(1000);
    }
}

static void await_step(uint32_t self, pid_t child, uint64_t from)
{
    while (__atomic_load_n(&shared->of[self].steps, __ATOMIC_ACQUIRE) == from) {
        assert_false(child_gone(child));
        usleep(100);
    }
}

static void report(void *arg, const char *line)
{
    (void)arg;
    print_error("%s\n", line);
}

static void check(bool repair, struct far_pool_check *found)
{
    int rc = FAR_FENCED;

    for (unsigned i = 0; i < TRIES && rc == FAR_FENCED; i++)
        rc = far_pool_check(at.session, repair, report, NULL, found);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(found->violations, 0);
}

/* A session whose lease lapses while it is closed leaves its slot and its memory to others. */
static void the_pool_is_sound(void)
{
    struct far_pool_check found;

    check(false, &found);
    if (found.dead_clients > 0 || found.leaked_bytes > 0)
        check(true, &found);
    check(false, &found);
    assert_int_equal(found.stranded, 0);
    assert_int_equal(found.dead_clients, 0);
}

static void open_all(const char *options)
{
    shared = scratch_shared(sizeof *shared);
    strcpy(shared->uri, scratch_uri(scratch_name(false), options));
    join(1000);
}

static void close_all(void)
{
    leave();
    munmap(shared, sizeof *shared);
    scratch_teardown(NULL);
}

static void stopped_writers_damage_nothing(void **state)
{
    pid_t child[WORKERS] = {0};

    (void)state;
    open_all("?size=192m" LEASE);
    for (uint32_t i = 1; i < WORKERS; i++)
        child[i] = child_start(worker, (void *)(uintptr_t)i);
    for (uint32_t i = 1; i < WORKERS; i++)
        await_step(i, child[i], 0);
    for (unsigned i = 0; i < STOPS; i++) {
        uint32_t self = 1 + i % (WORKERS - 1);
        usleep((useconds_t)rng_below(&at.rng, 3000)); /* anywhere */
        stop(child[self]);
        uint64_t steps = shared->of[self].steps;
        work_for_leases(2);
        judge_worker(0);
        kill(child[self], SIGCONT);
        await_step(self, child[self], steps);
    }
    __atomic_store_n(&shared->over, true, __ATOMIC_RELAXED);
    for (uint32_t i = 1; i < WORKERS; i++)
        assert_int_equal(child_end(child[i]), 0);
    for (uint32_t i = 0; i < WORKERS; i++)
        judge_worker(i);
    the_pool_is_sound();
    close_all();
}

/* ---- a stop inside of a WRITE ---------------------------------------------------------------- */

#define BIG (256u << 10)

static void post_part(struct fab_ep *ep, struct fab_verb *verbs, unsigned count)
{
    struct fab_req part = {.verbs = verbs, .count = count};

    if (count > 0)
        hook_run(ep, &part);
    ASSERT(count == 0 || part.status == FAR_OK);
}

/* Executes the request, and stops this process when half of its long WRITE has been written. */
static int post_and_stop(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *v = req->verbs;
    unsigned at_verb = 0;

    while (at_verb < req->count && (v[at_verb].kind != FAB_WRITE || v[at_verb].len < BIG))
        at_verb++;
    if (at_verb == req->count)
        return hook.real->post(ep, req);
    struct fab_verb first = v[at_verb], second = first;
    first.len = BIG / 2;
    second.off += first.len;
    second.buf = (char *)second.buf + first.len;
    second.len -= first.len;
    post_part(ep, v, at_verb);
    post_part(ep, &first, 1);
    hook_off(); /* once */
    raise(SIGSTOP);
    post_part(ep, &second, 1);
    post_part(ep, v + at_verb + 1, req->count - at_verb - 1);
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

static void stops_in_a_write(void *arg)
{
    struct key key = {1, 0};
    int rc = FAR_FENCED;

    (void)arg;
    join(1);
    hook_on(at.session->client.ep);
    hook.ops.post = post_and_stop;
    memset(at.value, 'x', BIG);
    __atomic_store_n(&shared->of[1].done[0], at.session->client.slot, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->of[1].done[1], at.session->client.incarnation, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < TRIES && rc == FAR_FENCED; i++)
        rc = far_put(at.session, at.table, &key, sizeof key, at.value, BIG);
    ASSERT(rc == FAR_OK);
    leave();
}

static uint64_t incarnation_in(unsigned slot)
{
    struct probe p;

    probe_open(&p, at.pool->fab);
    uint64_t incarnation = probe_incarnation(&p, slot);
    probe_close(&p);
    return incarnation;
}

static void a_client_that_stops_in_a_write_keeps_its_memory(void **state)
{
    struct key key = {1, 0};
    int status = 0;
    size_t len = 0;

    (void)state;
    open_all("?size=64m" LEASE);
    pid_t child = child_start(stops_in_a_write, NULL);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    work_for_leases(4);
    assert_true(incarnation_in((unsigned)shared->of[1].done[0]) == shared->of[1].done[1]);
    judge_worker(0);
    kill(child, SIGCONT);
    assert_int_equal(child_end(child), 0);
    judge_worker(0);
    assert_int_equal(get(key, &len), FAR_OK);
    assert_int_equal(len, BIG);
    memset(at.value, 'x', BIG);
    assert_memory_equal(at.got, at.value, BIG);
    the_pool_is_sound();
    close_all();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(a_client_that_stops_in_a_write_keeps_its_memory),
        SCRATCH_CASE(stopped_writers_damage_nothing),
    };

    indexes_arguments(argc, argv);
    return scratch_run_indexes(tests);
}
