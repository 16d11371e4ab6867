/* Many sessions of one process on ucx:, more than there are file descriptors for. */
#include "support/memd_child.h"
#include "fabric/rig.h"

#include <dirent.h>
#include <pthread.h>

#define SESSIONS    1000u
#define DESCRIPTORS 1024
#define THREADS     8u
#define KEYS        32u

/* A lease that no machine is too slow for. */
#define OPTIONS "?clients=1024&lease=60000&timeout=60000"

static struct memd_child node;
static far_pool *pool;
static far_session *session[SESSIONS];
static far_table *table[SESSIONS];

static int setup(void **state)
{
    static const char *const more[] = {"--size", "512m", NULL};

    (void)state;
    memd_start(&node, 0, more);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    memd_descriptors(DESCRIPTORS);
    if (node.pid)
        memd_end(&node, SIGKILL);
    return 0;
}

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;

    ASSERT(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 3; /* ".", ".." and its own */
}

static void open_sessions(unsigned count, const char *options)
{
    int rc = far_pool_open(memd_uri(&node, 1, options), &pool);

    ASSERT(rc == FAR_OK);
    for (unsigned i = 0; i < count; i++) {
        rc = far_session_open(pool, NULL, &session[i]);
        if (rc != FAR_OK)
            print_error("session %u: %s (%s)\n", i, far_errname(rc), far_error_detail());
        ASSERT(rc == FAR_OK);
        rc = i == 0 ? far_table_create(session[0], "t", far_index_name(0), NULL, &table[0])
                    : far_table_open(session[i], "t", NULL, &table[i]);
        ASSERT(rc == FAR_OK);
    }
}

static void close_sessions(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        far_session_close(session[i]);
    far_pool_close(pool);
}

static int put(unsigned by, unsigned key, uint64_t value)
{
    return far_put(session[by], table[by], &key, sizeof key, &value, sizeof value);
}

static int get(unsigned by, unsigned key, uint64_t *value)
{
    size_t len;

    return far_get(session[by], table[by], &key, sizeof key, value, sizeof *value, &len);
}

static void a_thousand_sessions_need_few_descriptors(void **state)
{
    uint64_t value;

    (void)state;
    memd_descriptors(DESCRIPTORS);
    open_sessions(SESSIONS, OPTIONS);
    assert_true(open_descriptors() < DESCRIPTORS / 2);
    for (unsigned i = 0; i < SESSIONS; i++)
        assert_int_equal(put(i, i, i), FAR_OK);
    for (unsigned i = 0; i < SESSIONS; i++) {
        assert_int_equal(get(SESSIONS - 1 - i, i, &value), FAR_OK);
        assert_int_equal(value, i);
    }
    close_sessions(SESSIONS);
}

/* Each thread has a session and keys of its own. */
static void *work(void *arg)
{
    unsigned self = (unsigned)(uintptr_t)arg;

    for (uint64_t round = 1; round <= 50; round++) {
        uint64_t value;

        for (unsigned k = 0; k < KEYS; k++)
            ASSERT(put(self, self * KEYS + k, round * (k + 1)) == FAR_OK);
        for (unsigned k = 0; k < KEYS; k++) {
            ASSERT(get(self, self * KEYS + k, &value) == FAR_OK);
            ASSERT(value == round * (k + 1));
        }
    }
    return NULL;
}

static void run_threads(void *(*body)(void *))
{
    pthread_t thread[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        ASSERT(pthread_create(&thread[i], NULL, body, (void *)(uintptr_t)i) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

static void threads_can_share_a_hub(void **state)
{
    (void)state;
    memd_descriptors(FEW_DESCRIPTORS);
    open_sessions(THREADS, OPTIONS);
    run_threads(work);
    close_sessions(THREADS);
}

/* One thread may notice it for all; each thread still gets its own operation's status. */
static void *fail_by_name(void *arg)
{
    unsigned self = (unsigned)(uintptr_t)arg;
    uint64_t value;
    int rc = get(self, 0, &value);

    ASSERT(rc == FAR_UNREACHABLE || rc == FAR_UNKNOWN || rc == FAR_TIMEOUT);
    ASSERT(strstr(far_error_detail(), node.address) != NULL);
    return NULL;
}

static void a_lost_node_is_reported_to_every_thread(void **state)
{
    (void)state;
    memd_descriptors(FEW_DESCRIPTORS);
    open_sessions(THREADS, "?clients=1024&lease=60000&timeout=2000");
    assert_int_equal(put(0, 0, 1), FAR_OK);
    memd_hang(&node);
    run_threads(fail_by_name);
    memd_end(&node, SIGKILL);
    run_threads(fail_by_name);
    close_sessions(THREADS);
}

static void too_few_descriptors_have_a_message(void **state)
{
    far_session *more;

    (void)state;
    memd_descriptors(DESCRIPTORS);
    open_sessions(1, OPTIONS);
    memd_descriptors(open_descriptors() + 2);
    assert_int_equal(far_session_open(pool, NULL, &more), FAR_SYSTEM);
    assert_non_null(strstr(far_error_detail(), "too few file descriptors"));
    memd_descriptors(DESCRIPTORS);
    assert_int_equal(far_session_open(pool, NULL, &more), FAR_OK);
    far_session_close(more);
    close_sessions(1);
}

#define ONE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(a_thousand_sessions_need_few_descriptors),
        ONE(threads_can_share_a_hub),
        ONE(a_lost_node_is_reported_to_every_thread),
        ONE(too_few_descriptors_have_a_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
