/*
 * far_session_fd() on verbs:. A server that only sleeps on the descriptor and reaps gets all of its
 * results, even if a node dies or vanishes and comes back, and is not woken in vain.
 *
 *   verbs_wait URI
 *
 * The nodes of the last cases are started here, with the `farside` that is in the path.
 */
#include "fabric/verbs/verbs_internal.h"
#include "store/store.h"
#include "support/wait_loop.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define WORK      200u
#define FILE_NAME "/tmp/wait.region"

static const char *uri;

struct rig {
    far_pool *pool;
    far_session *session;
    far_table *table;
};

static void rig_open(struct rig *r, const char *text)
{
    int rc = far_pool_open(text, &r->pool);

    if (rc != FAR_OK)
        print_error("%s: %s: %s\n", text, far_errname(rc), far_error_detail());
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(far_session_open(r->pool, NULL, &r->session), FAR_OK);
    assert_int_equal(far_table_create(r->session, "wait", "race", NULL, &r->table), FAR_OK);
}

static void rig_close(struct rig *r)
{
    far_session_close(r->session);
    far_pool_close(r->pool);
}

static void submit_get(struct rig *r, uint64_t *buf)
{
    static const uint64_t key = 1;
    struct far_op op = {
        .kind = FAR_OP_GET, .table = r->table, .key = &key, .key_len = 8, .buf = buf, .cap = 8};

    assert_int_equal(far_submit(r->session, &op), FAR_OK);
}

static void a_loop_that_only_sleeps_gets_everything(void **state)
{
    struct far_result result;
    struct wait_loop l;
    struct rig r;
    uint64_t got;

    (void)state;
    rig_open(&r, uri);
    wait_loop_open(&l, r.session);
    assert_int_equal(wait_loop_rest(&l, 600), 0);
    for (unsigned depth = 1; depth <= 16; depth *= 16) {
        uint64_t wakes = wait_loop_work(&l, r.table, WORK, depth);

        print_message("depth %u: %.2f wake-ups an operation\n", depth,
                      (double)wakes / (2.0 * WORK));
        assert_in_range(wakes, 1, 2 * WORK * 16);
    }
    assert_in_range(wait_loop_rest(&l, 1500), 0, 2); /* beside the keeper's heartbeats */
    /* A synchronous call polls, and may take what the descriptor would have been readable for. */
    for (unsigned i = 0; i < 50; i++) {
        unsigned n;

        submit_get(&r, &got);
        n = far_reap(r.session, &result, 1, 0);
        assert_int_equal(far_exists(r.session, r.table, "x", 1), FAR_NOT_FOUND);
        assert_true(n == 1 || wait_loop_within(&l, 0));
        while (n == 0)
            n = wait_loop_step(&l, &result, 1);
        assert_int_equal(result.status, FAR_OK);
    }
    wait_loop_close(&l);
    rig_close(&r);
}

/* ---- nodes that go --------------------------------------------------------------------------- */

static pid_t node_start(const char *port)
{
    char address[64], ready[16], first = 0;
    int pipes[2];

    snprintf(address, sizeof address, "verbs://10.77.0.1:%s", port);
    assert_int_equal(pipe(pipes), 0);
    snprintf(ready, sizeof ready, "%d", pipes[1]);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pipes[0]);
        execlp("farside", "farside", "memd", "--listen", address, "--size", "16m", "--ready-fd",
               ready, "--file", FILE_NAME, NULL);
        _exit(127);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &first, 1), 1);
    close(pipes[0]);
    return pid;
}

static void node_kill(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Gets until the status is as wanted; each of them ends, and none by spinning. */
static void get_until(struct rig *r, struct wait_loop *l, bool good)
{
    uint64_t got;
    int rc = FAR_OK;

    for (unsigned tries = 0; tries < 1000; tries++) {
        struct far_result result;
        uint64_t before = l->wakes;

        submit_get(r, &got);
        while (wait_loop_step(l, &result, 1) == 0) {
        }
        rc = result.status;
        assert_in_range(l->wakes - before, 1, 1000);
        if ((rc == FAR_OK) == good)
            return;
        usleep(20000);
    }
    print_error("%s: %s\n", far_errname(rc), far_error_detail());
    assert_true(false);
}

static void a_node_that_dies_is_noticed(void **state)
{
    uint64_t value = 1;
    struct wait_loop l;
    struct rig r;

    (void)state;
    unlink(FILE_NAME);
    pid_t node = node_start("7080");
    rig_open(&r, "verbs://10.77.0.1:7080?timeout=60000&lease=60000");
    assert_int_equal(far_put(r.session, r.table, &value, 8, &value, 8), FAR_OK);
    wait_loop_open(&l, r.session);
    get_until(&r, &l, true);
    for (unsigned i = 0; i < 2; i++) {
        node_kill(node);
        if (i == 1) /* the news comes while nothing is in flight */
            assert_in_range(wait_loop_rest(&l, 300), 0, 2);
        get_until(&r, &l, false);
        node = node_start("7080");
        get_until(&r, &l, true);
    }
    wait_loop_close(&l);
    rig_close(&r);
    node_kill(node);
}

/* The node vanishes silently, as when its machine loses power: only a time-out shows it. */
static void a_node_that_vanishes_is_noticed(void **state)
{
    uint64_t value = 1, got;
    struct far_result result;
    struct wait_loop l;
    struct rig r;

    (void)state;
    unlink(FILE_NAME);
    pid_t node = node_start("7081");
    rig_open(&r, "verbs://10.77.0.1:7081?timeout=60000&lease=60000");
    assert_int_equal(far_put(r.session, r.table, &value, 8, &value, 8), FAR_OK);
    struct rdma_event_channel *cm = ((struct verbs_ep *)r.session->client.ep)->cm;
    int deaf[2], real = cm->fd;
    assert_int_equal(pipe(deaf), 0);
    cm->fd = deaf[0]; /* which never becomes readable, and takes no questions */
    wait_loop_open(&l, r.session);
    node_kill(node);
    ((struct verbs_fab *)r.pool->fab)->wire.timeout_ms = 1000;
    submit_get(&r, &got);
    while (wait_loop_step(&l, &result, 1) == 0) {
    }
    assert_int_not_equal(result.status, FAR_OK);
    print_message("%llu wake-ups: %s\n", (unsigned long long)l.wakes, far_error_detail());
    assert_in_range(l.wakes, 1, 100);
    cm->fd = real;
    ((struct verbs_fab *)r.pool->fab)->wire.timeout_ms = 60000;
    node = node_start("7081"); /* so that the session can be closed in order */
    get_until(&r, &l, true);
    wait_loop_close(&l);
    rig_close(&r);
    close(deaf[0]);
    close(deaf[1]);
    node_kill(node);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_that_only_sleeps_gets_everything),
        cmocka_unit_test(a_node_that_dies_is_noticed),
        cmocka_unit_test(a_node_that_vanishes_is_noticed),
    };

    if (argc != 2) {
        fprintf(stderr, "usage: %s URI\n", argv[0]);
        return 2;
    }
    uri = argv[1];
    return cmocka_run_group_tests_name(uri, tests, NULL, NULL);
}
