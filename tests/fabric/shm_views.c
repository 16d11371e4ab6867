/* Views of clients that are processes, on shm:. One that is stopped may do one more piece of a
 * request: what it had asked for. */
#include "fabric/view_processes.h"
#include "pool/pool_internal.h"

#define ROUNDS 50u

static struct fab *fab;
static uint32_t view = 1;

static void a_client_works_in_a_view_that_another_has_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        view_run(view++, i % 2, NULL);
        assert_in_range(views->after, views->at_fence, views->at_fence + 1);
    }
}

static int start(void **state)
{
    const char *name = scratch_name(false);
    struct pool pool;

    (void)state;
    views = scratch_shared(sizeof *views);
    snprintf(views->uri, sizeof views->uri, "%s", scratch_uri(name, ""));
    return fab_open(scratch_uri(name, "?size=8m"), &fab) || pool_open(fab, NULL, &pool);
}

static int end(void **state)
{
    (void)state;
    fab_close(fab);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_works_in_a_view_that_another_has_refused),
    };

    scratch_start();
    return scratch_finish(cmocka_run_group_tests(tests, start, end));
}
