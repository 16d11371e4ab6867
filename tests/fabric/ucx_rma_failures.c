/*
 * ucx: by put, get and atomics: who uses them and who does not, that both sorts of clients get on
 * with each other, and what happens when nodes die, hang and come back.
 */
#include "support/memd_child.h"
#include "fabric/rig.h"

#include "base/clock.h"

#include <pthread.h>

#define AT      65536
#define TICKETS 2000u

static char file[] = "/tmp/farside-rma-XXXXXX";
static struct memd_child node;

static const char *const in_memory[] = {"--size", "8m", "--threads", "2", NULL};
static const char *const in_file[] = {"--size", "8m", "--file", file, NULL};

static int setup(void **state)
{
    int fd;

    (void)state;
    strcpy(file + sizeof file - 7, "XXXXXX");
    fd = mkstemp(file);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

static int teardown(void **state)
{
    (void)state;
    if (node.pid)
        memd_end(&node, SIGKILL);
    unlink(file);
    return 0;
}

static void start(const char *transports, unsigned port, bool rma, const char *const *more)
{
    char listen[64];

    setenv("UCX_TLS", transports, 1);
    snprintf(listen, sizeof listen, "ucx://127.0.0.1:%u%s", port, rma ? "?rma=1" : "");
    memd_start_at(&node, listen, more);
}

static struct rig *open_rig(const char *options)
{
    struct fab *fab;
    int rc = fab_open(memd_uri(&node, 1, options), &fab);

    if (rc)
        print_error("%s: %s\n", far_errname(rc), far_error_detail());
    ASSERT(rc == FAR_OK);
    return rig_on(fab);
}

static void close_rig(struct rig *r)
{
    struct fab *fab = r->fab;

    rig_free(r);
    fab_close(fab);
}

static void refuses(const char *options, int expected, const char *says)
{
    struct fab *fab;

    assert_int_equal(fab_open(memd_uri(&node, 1, options), &fab), expected);
    assert_non_null(strstr(far_error_detail(), says));
}

static int try_add(struct rig *r)
{
    batch_faa(&r->b, gaddr_make(0, AT), 0, 1, r->buf);
    return batch_flush(&r->b);
}

/* Until it works again, for a while; or is refused. */
static int add_again(struct rig *r)
{
    int rc = FAR_TIMEOUT;

    for (unsigned i = 0; i < 1000 && rc != FAR_OK && rc != FAR_UNSUPPORTED; i++) {
        rc = try_add(r);
        if (rc)
            clock_sleep(10000000);
    }
    return rc;
}

static bool by_put(const struct rig *r)
{
    return r->fab->order == 0;
}

static void it_is_used_where_it_is_offered_and_real(void **state)
{
    struct rig *r;

    (void)state;
    start("posix,self,tcp", 0, true, in_memory);
    r = open_rig("");
    assert_true(by_put(r));
    close_rig(r);
    r = open_rig("?mode=am");
    assert_false(by_put(r));
    assert_null(r->fab->ops->fence); /* others could not be shut out */
    close_rig(r);
    refuses("?mode=put", FAR_BAD_URI, "auto, am or rma");
    memd_end(&node, SIGTERM);

    start("tcp", 0, true, in_memory);
    r = open_rig("");
    assert_false(by_put(r));
    close_rig(r);
    r = open_rig("?mode=rma");
    assert_true(by_put(r));
    close_rig(r);
    memd_end(&node, SIGTERM);

    /* A file is not memory that UCX can share. */
    start("posix,self,tcp", 0, true, in_file);
    r = open_rig("");
    assert_false(by_put(r));
    close_rig(r);
    memd_end(&node, SIGTERM);

    start("posix,self,tcp", 0, false, in_memory);
    r = open_rig("");
    assert_false(by_put(r));
    assert_non_null(r->fab->ops->fence);
    close_rig(r);
    refuses("?mode=rma", FAR_UNSUPPORTED, "does not offer");
}

static void *draw_tickets(void *arg)
{
    for (unsigned i = 0; i < TICKETS; i++)
        ASSERT(try_add(arg) == FAR_OK);
    return NULL;
}

static void both_sorts_of_clients_add_up(void **state)
{
    struct rig *by_message, *by_atomic;
    pthread_t other;

    (void)state;
    start("posix,self,tcp", 0, true, in_memory);
    by_message = open_rig("?mode=am");
    /* The pool is the first one's to make, and the second would wait for it. */
    by_message->fab->ops->formatted(by_message->fab);
    by_atomic = open_rig("");
    assert_int_equal(pthread_create(&other, NULL, draw_tickets, by_message), 0);
    draw_tickets(by_atomic);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(rig_get(by_message, gaddr_make(0, AT), 0), 2 * TICKETS);
    assert_int_equal(rig_get(by_atomic, gaddr_make(0, AT), 0), 2 * TICKETS);
    close_rig(by_atomic);
    close_rig(by_message);
}

static void a_node_that_dies_is_noticed(const char *transports, const char *options)
{
    struct rig *r;
    int rc = FAR_OK;

    start(transports, 0, true, in_memory);
    r = open_rig(options);
    assert_true(by_put(r));
    assert_int_equal(try_add(r), FAR_OK);
    memd_end(&node, SIGKILL);
    /* Memory that is shared goes on without its node, until UCX has noticed. */
    for (unsigned i = 0; i < 3000 && rc == FAR_OK; i++) {
        rc = try_add(r);
        clock_sleep(10000000);
    }
    assert_true(rc == FAR_UNREACHABLE || rc == FAR_TIMEOUT || rc == FAR_UNKNOWN);
    assert_non_null(strstr(far_error_detail(), node.address));
    close_rig(r);
}

static void a_shared_node_that_dies_is_noticed(void **state)
{
    (void)state;
    a_node_that_dies_is_noticed("posix,self,tcp", "?timeout=1000");
}

static void an_emulated_node_that_dies_is_noticed(void **state)
{
    (void)state;
    a_node_that_dies_is_noticed("tcp", "?timeout=1000&mode=rma");
}

static void a_node_that_comes_back_is_found(void **state)
{
    struct rig *r;
    unsigned port;

    (void)state;
    start("tcp", 0, true, in_file);
    port = memd_port(&node);
    r = open_rig("?timeout=3000&mode=rma");
    assert_int_equal(try_add(r), FAR_OK);
    memd_end(&node, SIGKILL);
    assert_int_not_equal(try_add(r), FAR_OK);
    start("tcp", port, true, in_file);
    assert_int_equal(add_again(r), FAR_OK);
    /* How clients are told apart has to stay what it was. */
    memd_end(&node, SIGTERM);
    start("tcp", port, false, in_file);
    assert_int_equal(add_again(r), FAR_UNSUPPORTED);
    assert_non_null(strstr(far_error_detail(), "rma"));
    close_rig(r);
}

static void a_node_that_hangs_is_a_timeout(void **state)
{
    struct rig *r;

    (void)state;
    start("tcp", 0, true, in_memory);
    r = open_rig("?timeout=2000&mode=rma");
    for (unsigned i = 0; i < 2; i++) {
        kill(node.pid, SIGSTOP);
        assert_int_equal(waitpid(node.pid, NULL, WUNTRACED), node.pid);
        batch_write(&r->b, gaddr_make(0, AT), 64, r->buf, 8);
        batch_fence(&r->b);
        batch_faa(&r->b, gaddr_make(0, AT), 0, 1, r->buf);
        batch_read(&r->b, gaddr_make(0, AT), 128, r->buf + 1, 64);
        assert_int_equal(batch_flush(&r->b), FAR_TIMEOUT);
        assert_non_null(strstr(far_error_detail(), node.address));
        kill(node.pid, SIGCONT);
        assert_int_equal(add_again(r), FAR_OK);
    }
    close_rig(r);
}

#define ONE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(it_is_used_where_it_is_offered_and_real), ONE(both_sorts_of_clients_add_up),
        ONE(a_shared_node_that_dies_is_noticed),      ONE(an_emulated_node_that_dies_is_noticed),
        ONE(a_node_that_comes_back_is_found),         ONE(a_node_that_hangs_is_a_timeout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
