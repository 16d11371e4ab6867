/*
 * Processes that change a table in shared memory are killed at any time. Acknowledged changes
 * persist, the other processes go on, and in the end the table is sound.
 */
#include "base/rng.h"
#include "support/shm_scratch.h"

#define KILLS   (60 / RIG_SLOW + 10)
#define VICTIMS 2 /* at a time */
#define HOT     16
#define STEPS   4000 /* of one victim, at most: bounds what the pool must hold */

static struct {
    char uri[256];
    uint64_t *done; /* by victim: steps that were finished */
} shared;

struct key {
    uint32_t victim, step;
};

/* A value begins with its key. Lengths differ, so that all size classes are used. */
static size_t value_of(struct key key, char value[256])
{
    size_t len = 16 + (key.victim * 31 + key.step * 17) % 200;

    memset(value, (int)('a' + key.step % 26), len);
    memcpy(value, &key, sizeof key);
    return len;
}

/* Every step adds a key and changes a key that all share; every fourth deletes an earlier key. */
static void step(far_session *session, far_table *table, struct key key)
{
    char value[256];
    size_t len = value_of(key, value);
    uint64_t hot = key.step % HOT;

    ASSERT(far_insert(session, table, &key, sizeof key, value, len) == FAR_OK);
    ASSERT(far_put(session, table, &hot, 7, value, len) == FAR_OK);
    if (key.step % 4 == 3) {
        key.step -= 2;
        ASSERT(far_delete(session, table, &key, sizeof key) == FAR_OK);
    }
}

/* Did a later step delete the key of this one? */
static bool deleted(unsigned of, uint64_t done)
{
    return of % 4 == 1 && of + 2 < done;
}

static void victim(void *arg)
{
    uint32_t self = (uint32_t)(uintptr_t)arg;
    far_session *session;
    far_table *table;
    far_pool *pool;

    ASSERT(far_pool_open(shared.uri, &pool) == FAR_OK);
    ASSERT(far_session_open(pool, NULL, &session) == FAR_OK);
    ASSERT(far_table_open(session, "t", NULL, &table) == FAR_OK);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(session, table, (struct key){self, i});
        __atomic_store_n(&shared.done[self], i + 1, __ATOMIC_RELEASE);
    }
    pause();
}

static void judge_value(far_session *session, far_table *table, struct key key)
{
    char expected[256], value[256];
    size_t len = 0, expected_len = value_of(key, expected);
    int rc = far_get(session, table, &key, sizeof key, value, sizeof value, &len);

    if (rc != FAR_OK)
        print_error("step %u of victim %u: %s\n", key.step, key.victim, far_errname(rc));
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(len, expected_len);
    assert_memory_equal(value, expected, len);
}

static void judge_victim(far_session *session, far_table *table, uint32_t self)
{
    uint64_t done = shared.done[self];

    for (uint32_t i = 0; i < done; i++) {
        struct key key = {self, i};

        if (deleted(i, done))
            assert_int_equal(far_exists(session, table, &key, sizeof key), FAR_NOT_FOUND);
        else if (i + 2 != done || done % 4 != 3) /* the step under way might have deleted it */
            judge_value(session, table, key);
    }
}

static void report(void *arg, const char *line)
{
    (void)arg;
    print_error("%s\n", line);
}

static void judge_table(far_session *session, far_table *table, uint32_t victims)
{
    for (uint32_t i = 0; i < victims; i++)
        judge_victim(session, table, i);
    for (uint64_t hot = 0; hot < HOT; hot++) {
        char expected[256], value[256];
        size_t len;
        struct key key;

        assert_int_equal(far_get(session, table, &hot, 7, value, sizeof value, &len), FAR_OK);
        memcpy(&key, value, sizeof key);
        assert_int_equal(key.step % HOT, hot);
        assert_int_equal(len, value_of(key, expected));
        assert_memory_equal(value, expected, len);
    }
    assert_int_equal(far_table_check(session, table, report, NULL), FAR_OK);
}

/* The parent is a client too, and goes on while others die. */
static void survive(far_session *session, far_table *table, uint32_t self)
{
    uint64_t from = shared.done[self];

    for (uint32_t i = (uint32_t)from; i < from + 20; i++)
        step(session, table, (struct key){self, i});
    shared.done[self] = from + 20;
}

static void the_table_outlives_its_clients(void **state)
{
    const struct far_table_options small = {.tuning = "groups=2"}; /* many splits */
    const uint32_t parent = KILLS;
    struct far_pool_info info;
    pid_t child[VICTIMS];
    far_session *session;
    far_table *table;
    far_pool *pool;
    struct rng rng;

    (void)state;
    rng_seed(&rng, 7);
    shared.done = scratch_shared((KILLS + 1) * sizeof *shared.done);
    strcpy(shared.uri, scratch_uri(scratch_name(false), "?size=256m&nodes=2"));
    assert_int_equal(far_pool_open(shared.uri, &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
    assert_int_equal(far_table_create(session, "t", "race", &small, &table), FAR_OK);
    for (uint32_t i = 0; i < KILLS + VICTIMS; i++) {
        if (i >= VICTIMS) {
            uint32_t dying = i - VICTIMS;

            /* Kill it once it is at work, at a random instant. */
            while (__atomic_load_n(&shared.done[dying], __ATOMIC_ACQUIRE) == 0) {
                assert_false(child_gone(child[dying % VICTIMS]));
                usleep(100);
            }
            survive(session, table, parent);
            usleep((useconds_t)rng_below(&rng, 3000));
            kill(child[dying % VICTIMS], SIGKILL);
            assert_true(child_killed(child_end(child[dying % VICTIMS])));
            survive(session, table, parent);
            judge_victim(session, table, dying);
        }
        if (i < KILLS)
            child[i % VICTIMS] = child_start(victim, (void *)(uintptr_t)i);
    }
    judge_table(session, table, KILLS + 1);
    assert_int_equal(far_pool_info(session, &info), FAR_OK);
    assert_int_equal(info.clients, 1 + KILLS); /* killed clients still have their slots */
    far_session_close(session);
    far_pool_close(pool);

    /* The same for a client that comes afterwards, in another mapping. */
    strchr(shared.uri, '?')[0] = '\0';
    assert_int_equal(far_pool_open(shared.uri, &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
    assert_int_equal(far_table_open(session, "t", NULL, &table), FAR_OK);
    judge_table(session, table, KILLS + 1);
    survive(session, table, parent);
    far_session_close(session);
    far_pool_close(pool);
    munmap(shared.done, (KILLS + 1) * sizeof *shared.done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(the_table_outlives_its_clients),
    };

    return scratch_run(tests);
}
