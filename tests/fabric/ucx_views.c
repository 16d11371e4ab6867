/* Views of clients that are processes, on ucx:. A batch is executed as a whole or refused, wherever
 * its client was stopped. */
#include "support/memd_child.h"
#include "fabric/view_processes.h"

#define ROUNDS 8u

static char file[] = "/tmp/farside-views-XXXXXX";
static struct memd_child node;
static uint32_t view = 1;

static const char *const in_file[] = {"--size", "8m", "--file", file, NULL};

/* Once the fence has returned, the word stays. Requests of unknown outcome were not
 * acknowledged. */
static void nothing_was_added_behind_the_fence(uint64_t unknown)
{
    assert_int_equal(views->after, views->at_fence);
    static uint64_t before;
    assert_in_range(views->after - before, views->added, views->added + unknown);
    before = views->after;
}

static void a_client_works_in_a_view_that_another_has_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        view_run(view++, false, NULL);
        nothing_was_added_behind_the_fence(0);
    }
}

static void a_stopped_client_is_refused_when_it_goes_on(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        view_run(view++, true, NULL);
        nothing_was_added_behind_the_fence(0);
    }
}

static void kill_and_restart(void)
{
    unsigned port = memd_port(&node);

    memd_end(&node, SIGKILL);
    memd_start(&node, port, in_file);
}

static void a_node_that_was_killed_and_restarted_still_refuses(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        view_run(view++, true, kill_and_restart);
        nothing_was_added_behind_the_fence(1);
    }
}

static int start(void **state)
{
    int fd = mkstemp(file);

    (void)state;
    views = scratch_shared(sizeof *views);
    if (fd >= 0)
        close(fd);
    memd_start(&node, 0, in_file);
    snprintf(views->uri, sizeof views->uri, "%s", memd_uri(&node, 1, ""));
    return fd < 0;
}

static int end(void **state)
{
    (void)state;
    unlink(file);
    return memd_end(&node, SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_works_in_a_view_that_another_has_refused),
        cmocka_unit_test(a_stopped_client_is_refused_when_it_goes_on),
        cmocka_unit_test(a_node_that_was_killed_and_restarted_still_refuses),
    };

    scratch_start();
    return scratch_finish(cmocka_run_group_tests(tests, start, end));
}
