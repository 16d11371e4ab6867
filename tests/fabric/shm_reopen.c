/* A pool in shared memory outlives its users: closed and opened again, it has its data. */
#include "support/indexes.h"
#include "support/shm_scratch.h"

#define KEYS 2000

static void value_of(unsigned i, char value[64])
{
    snprintf(value, 64, "the value of %u, %.*s", i, (int)(i % 20), "and as much as that");
}

static void fill_pool(void *arg)
{
    far_session *session;
    far_table *table;
    far_pool *pool;
    char value[64];

    ASSERT(far_pool_open(arg, &pool) == FAR_OK);
    ASSERT(far_session_open(pool, NULL, &session) == FAR_OK);
    ASSERT(far_table_create(session, "people", index_tested, NULL, &table) == FAR_OK);
    for (unsigned i = 0; i < KEYS; i++) {
        value_of(i, value);
        ASSERT(far_put(session, table, &i, sizeof i, value, strlen(value)) == FAR_OK);
    }
    far_session_close(session);
    far_pool_close(pool);
}

/* Without closing anything: what was done is done. */
static void fill_pool_and_die(void *arg)
{
    char value[64] = "never the last word";
    far_session *session;
    far_table *table;
    far_pool *pool;

    fill_pool(arg);
    ASSERT(far_pool_open(arg, &pool) == FAR_OK);
    ASSERT(far_session_open(pool, NULL, &session) == FAR_OK);
    ASSERT(far_table_open(session, "people", NULL, &table) == FAR_OK);
    for (unsigned i = 0; i < KEYS; i++) {
        ASSERT(far_put(session, table, &i, sizeof i, value, strlen(value)) == FAR_OK);
        value_of(i, value);
        ASSERT(far_put(session, table, &i, sizeof i, value, strlen(value)) == FAR_OK);
    }
    kill(getpid(), SIGKILL);
}

static void judge_pool(const char *uri, unsigned nodes, unsigned clients_left)
{
    struct far_pool_info info;
    far_session *session;
    far_table *table;
    far_pool *pool;

    assert_int_equal(far_pool_open(uri, &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
    assert_int_equal(far_pool_info(session, &info), FAR_OK);
    assert_int_equal(info.nodes, nodes);
    assert_int_equal(info.tables, 1);
    assert_int_equal(info.clients, 1 + clients_left);
    assert_int_equal(far_table_open(session, "people", index_tested, &table), FAR_OK);
    for (unsigned i = 0; i < KEYS; i++) {
        char expected[64], value[64];
        size_t len;

        value_of(i, expected);
        assert_int_equal(far_get(session, table, &i, sizeof i, value, sizeof value, &len), FAR_OK);
        assert_int_equal(len, strlen(expected));
        assert_memory_equal(value, expected, len);
    }
    assert_int_equal(far_table_check(session, table, NULL, NULL), FAR_OK);
    far_session_close(session);
    far_pool_close(pool);
}

static void fill_then_judge(bool by_path, bool die)
{
    const char *name = scratch_name(by_path);
    char *uri = (char *)(uintptr_t)scratch_uri(name, "?size=16m&nodes=2&lease=60000");
    int status = child_end(child_start(die ? fill_pool_and_die : fill_pool, uri));

    assert_true(die ? child_killed(status) : status == 0);
    judge_pool(scratch_uri(name, ""), 2, die);
    judge_pool(scratch_uri(name, "?size=16m"), 2, die);
    judge_pool(scratch_uri(name, "?nodes=2"), 2, die);
    judge_pool(uri, 2, die);
}

static void another_process_finds_a_pool_by_name(void **state)
{
    (void)state;
    fill_then_judge(false, false);
}

static void another_process_finds_a_pool_by_path(void **state)
{
    (void)state;
    fill_then_judge(true, false);
}

static void a_pool_survives_the_process_that_filled_it(void **state)
{
    (void)state;
    fill_then_judge(false, true);
    fill_then_judge(true, true);
}

/* A copy of the file is the pool as it was. */
static void a_copy_of_the_file_is_a_pool(void **state)
{
    const char *name = scratch_name(true), *copy = scratch_name(true);
    int from, to;
    struct stat st;

    (void)state;
    fill_pool((void *)(uintptr_t)scratch_uri(name, "?size=8m"));
    from = open(name, O_RDONLY);
    to = open(copy, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(from >= 0 && to >= 0);
    assert_int_equal(fstat(from, &st), 0);
    assert_int_equal(st.st_size, 8 << 20);
    for (off_t left = st.st_size; left > 0;) {
        char piece[65536];
        ssize_t got = read(from, piece, sizeof piece);

        assert_true(got > 0);
        assert_int_equal(write(to, piece, (size_t)got), got);
        left -= got;
    }
    close(from);
    close(to);
    assert_int_equal(far_pool_remove(scratch_uri(name, "")), FAR_OK);
    judge_pool(scratch_uri(copy, ""), 1, 0);
}

/* One process, two handles: what one writes, the other reads. */
static void two_handles_in_one_process_see_the_same_pool(void **state)
{
    const char *uri = scratch_uri(scratch_name(false), "?size=8m");
    far_session *session[2];
    far_table *table[2];
    far_pool *pool[2];
    char value[8];
    size_t len;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(far_pool_open(uri, &pool[i]), FAR_OK);
        assert_int_equal(far_session_open(pool[i], NULL, &session[i]), FAR_OK);
    }
    assert_int_equal(far_table_create(session[0], "t", index_tested, NULL, &table[0]), FAR_OK);
    assert_int_equal(far_table_create(session[1], "t", index_tested, NULL, &table[1]),
                     FAR_TABLE_EXISTS);
    assert_int_equal(far_table_open(session[1], "t", index_tested, &table[1]), FAR_OK);
    assert_int_equal(far_put(session[0], table[0], "key", 3, "value", 5), FAR_OK);
    assert_int_equal(far_get(session[1], table[1], "key", 3, value, sizeof value, &len), FAR_OK);
    assert_int_equal(len, 5);
    assert_memory_equal(value, "value", 5);
    for (unsigned i = 0; i < 2; i++) {
        far_session_close(session[i]);
        far_pool_close(pool[i]);
    }
}

/* Of the process' address space, in pages. */
static unsigned long mapped(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages;

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    return pages;
}

/* With sizes that are not multiples of a page. */
static void opening_and_closing_leaves_no_mappings_behind(void **state)
{
    unsigned long before = 0, page = (unsigned long)sysconf(_SC_PAGESIZE);

    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        const char *name = scratch_name(round % 2);
        char options[64];

        snprintf(options, sizeof options, "?size=%u&nodes=3", (8u << 20) + 64 * round);
        fill_pool((void *)(uintptr_t)scratch_uri(name, options));
        judge_pool(scratch_uri(name, ""), 3, 0);
        assert_int_equal(far_pool_remove(scratch_uri(name, "")), FAR_OK);
        if (round == 1) /* by now the process has all mappings that it makes only once */
            before = mapped();
    }
    /* The C library keeps the stacks of threads that have ended, up to 40 MB of them. Each round
     * has mapped 24 MB. Sanitizers keep mapping memory. */
    if (RIG_SANITIZED == 1)
        assert_in_range(mapped(), 0, before + (64 << 20) / page);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(another_process_finds_a_pool_by_name),
        SCRATCH_CASE(another_process_finds_a_pool_by_path),
        SCRATCH_CASE(a_pool_survives_the_process_that_filled_it),
        SCRATCH_CASE(a_copy_of_the_file_is_a_pool),
        SCRATCH_CASE(two_handles_in_one_process_see_the_same_pool),
        SCRATCH_CASE(opening_and_closing_leaves_no_mappings_behind),
    };

    return scratch_run_indexes(tests);
}
