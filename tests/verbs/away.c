/*
 * A pool of two memory nodes that is opened while the second is away: the session goes on with it
 * when it is back.
 *
 *   verbs_away URI ADDRESS FILE        the second node's address, and the file with its memory
 *
 * The pool has a table `t` with key0 to key39 on both nodes. `farside` is in the path.
 */
#include "farside.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS    40u
#define WAIT_NS (120ull * 1000000000)

static const char *uri, *address, *file;
static far_session *session;
static far_table *table;

static int get(unsigned i)
{
    char key[16], wanted[16], value[16];
    size_t bytes = 0;
    snprintf(key, sizeof key, "key%u", i);
    snprintf(wanted, sizeof wanted, "value%u", i);
    int rc = far_get(session, table, key, strlen(key), value, sizeof value, &bytes);
    assert_true(rc != FAR_OK || (bytes == strlen(wanted) && memcmp(value, wanted, bytes) == 0));
    return rc;
}

static void start_node(void)
{
    char listen[64];
    snprintf(listen, sizeof listen, "%.*s://%s", (int)strcspn(uri, ":"), uri, address);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return;
    execlp("farside", "farside", "memd", "--listen", listen, "--size", "8m", "--file", file, NULL);
    _exit(127);
}

static void a_session_finds_a_node_that_is_back(void **state)
{
    far_pool *pool = NULL;
    unsigned missing = KEYS, there = 0;
    struct far_pool_info info;
    (void)state;
    assert_int_equal(far_pool_open(uri, &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
    assert_int_equal(far_table_open(session, "t", NULL, &table), FAR_OK);
    for (unsigned i = 0; i < KEYS; i++) {
        int rc = get(i);
        assert_true(rc == FAR_OK || rc == FAR_UNREACHABLE);
        if (rc == FAR_OK) {
            there++;
        } else {
            assert_non_null(strstr(far_error_detail(), address));
            missing = i;
        }
    }
    assert_true(there > 0 && missing < KEYS);
    assert_int_equal(far_pool_info(session, &info), FAR_OK);
    assert_int_equal(info.nodes_away, 2);
    start_node();
    uint64_t began = clock_ns();
    while (get(missing) == FAR_UNREACHABLE) { /* nothing else goes on */
        assert_true(clock_ns() - began < WAIT_NS);
        usleep(50000);
    }
    printf("found after %llu ms\n", (unsigned long long)(clock_ns() - began) / 1000000);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(get(i), FAR_OK);
    assert_int_equal(far_pool_info(session, &info), FAR_OK);
    assert_int_equal(info.nodes_away, 0);
    far_session_close(session);
    far_pool_close(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_session_finds_a_node_that_is_back)};
    if (argc != 4)
        return 2;
    uri = argv[1];
    address = argv[2];
    file = argv[3];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
