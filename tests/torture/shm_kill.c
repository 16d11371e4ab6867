/*
 * Processes that change a table in shared memory are killed at any time. Acknowledged changes
 * persist, the other processes go on, and in the end the table is sound.
 *
 * The pool has a table of every index. Victims take turns with them. They share one pool because
 * closing it waits for the leases of the killed clients, which takes longer than all the rest.
 */
#include "base/rng.h"
#include "index/tuning.h"
#include "support/shm_scratch.h"

#define KILLS   (60 / RIG_SLOW + 10)
#define VICTIMS 2 /* at a time */
#define HOT     16
#define STEPS   4000 /* of one victim, at most: bounds what the pool must hold */
#define TABLES  8u   /* at most: indexes of a build */

static struct {
    char uri[256];
    uint64_t *done; /* by victim: steps that were finished */
} shared;

static struct {
    far_pool *pool;
    far_session *session;
    far_table *table[TABLES];
    unsigned tables;
} at;

static void join(void)
{
    const char *index = NULL;

    ASSERT(far_pool_open(shared.uri, &at.pool) == FAR_OK);
    ASSERT(far_session_open(at.pool, NULL, &at.session) == FAR_OK);
    for (at.tables = 0; (index = far_index_name(at.tables)) != NULL; at.tables++) {
        const struct far_table_options small = {.tuning = tuning_smallest(index)}; /* many splits */
        far_table **table = &at.table[at.tables];

        ASSERT(at.tables < TABLES);
        int rc = far_table_open(at.session, index, NULL, table);
        if (rc == FAR_NO_TABLE)
            rc = far_table_create(at.session, index, index, &small, table);
        ASSERT(rc == FAR_OK);
    }
}

static void leave(void)
{
    far_session_close(at.session);
    far_pool_close(at.pool);
}

/* The parent is a victim, too: one of a number for each table, behind all others. */
static uint32_t parent_of(unsigned table)
{
    return KILLS + table;
}

static far_table *table_of(uint32_t victim)
{
    return at.table[victim < KILLS ? victim % at.tables : victim - KILLS];
}

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
static void step(struct key key)
{
    char value[256];
    size_t len = value_of(key, value);
    uint64_t hot = key.step % HOT;
    far_table *table = table_of(key.victim);

    ASSERT(far_insert(at.session, table, &key, sizeof key, value, len) == FAR_OK);
    ASSERT(far_put(at.session, table, &hot, 7, value, len) == FAR_OK);
    if (key.step % 4 == 3) {
        key.step -= 2;
        ASSERT(far_delete(at.session, table, &key, sizeof key) == FAR_OK);
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

    join();
    for (uint32_t i = 0; i < STEPS; i++) {
        step((struct key){self, i});
        __atomic_store_n(&shared.done[self], i + 1, __ATOMIC_RELEASE);
    }
    pause();
}

static void judge_value(struct key key)
{
    char expected[256], value[256];
    size_t len = 0, expected_len = value_of(key, expected);
    int rc = far_get(at.session, table_of(key.victim), &key, sizeof key, value, sizeof value, &len);

    if (rc != FAR_OK)
        print_error("step %u of victim %u: %s\n", key.step, key.victim, far_errname(rc));
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(len, expected_len);
    assert_memory_equal(value, expected, len);
}

static void judge_victim(uint32_t self)
{
    uint64_t done = shared.done[self];

    for (uint32_t i = 0; i < done; i++) {
        struct key key = {self, i};

        if (deleted(i, done))
            assert_int_equal(far_exists(at.session, table_of(self), &key, sizeof key),
                             FAR_NOT_FOUND);
        else if (i + 2 != done || done % 4 != 3) /* the step under way might have deleted it */
            judge_value(key);
    }
}

static void report(void *arg, const char *line)
{
    (void)arg;
    print_error("%s\n", line);
}

static void judge_table(far_table *table)
{
    for (uint64_t hot = 0; hot < HOT; hot++) {
        char expected[256], value[256];
        size_t len;
        struct key key;

        assert_int_equal(far_get(at.session, table, &hot, 7, value, sizeof value, &len), FAR_OK);
        memcpy(&key, value, sizeof key);
        assert_int_equal(key.step % HOT, hot);
        assert_ptr_equal(table_of(key.victim), table);
        assert_int_equal(len, value_of(key, expected));
        assert_memory_equal(value, expected, len);
    }
    assert_int_equal(far_table_check(at.session, table, report, NULL), FAR_OK);
}

static void judge_all(void)
{
    for (uint32_t i = 0; i < KILLS + at.tables; i++)
        judge_victim(i);
    for (unsigned i = 0; i < at.tables; i++)
        judge_table(at.table[i]);
}

/* The parent is a client too, and goes on while others die. */
static void survive(unsigned table)
{
    uint32_t self = parent_of(table);
    uint64_t from = shared.done[self];

    for (uint32_t i = (uint32_t)from; i < from + 20; i++)
        step((struct key){self, i});
    shared.done[self] = from + 20;
}

static void the_table_outlives_its_clients(void **state)
{
    struct far_pool_info info;
    pid_t child[VICTIMS];
    struct rng rng;

    (void)state;
    rng_seed(&rng, 7);
    shared.done = scratch_shared((KILLS + TABLES) * sizeof *shared.done);
    strcpy(shared.uri, scratch_uri(scratch_name(false), "?size=256m&nodes=2&lease=2000"));
    join();
    for (uint32_t i = 0; i < KILLS + VICTIMS; i++) {
        if (i >= VICTIMS) {
            uint32_t dying = i - VICTIMS;

            /* Kill it once it is at work, at a random instant. */
            while (__atomic_load_n(&shared.done[dying], __ATOMIC_ACQUIRE) == 0) {
                assert_false(child_gone(child[dying % VICTIMS]));
                usleep(100);
            }
            survive(dying % at.tables);
            usleep((useconds_t)rng_below(&rng, 3000));
            kill(child[dying % VICTIMS], SIGKILL);
            assert_true(child_killed(child_end(child[dying % VICTIMS])));
            survive(dying % at.tables);
            judge_victim(dying);
        }
        if (i < KILLS)
            child[i % VICTIMS] = child_start(victim, (void *)(uintptr_t)i);
    }
    judge_all();
    assert_int_equal(far_pool_info(at.session, &info), FAR_OK);
    /* Killed clients have their slots until somebody waits for them. */
    assert_in_range(info.clients, 1, 1 + KILLS);
    leave();

    /* The same for a client that comes afterwards, in another mapping. */
    strchr(shared.uri, '?')[0] = '\0';
    join();
    judge_all();
    for (unsigned i = 0; i < at.tables; i++)
        survive(i);
    leave();
    munmap(shared.done, (KILLS + TABLES) * sizeof *shared.done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(the_table_outlives_its_clients),
    };

    return scratch_run(tests);
}
