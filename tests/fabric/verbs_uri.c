/* verbs: as far as it can be tested without a device. */
#include "fabric/rig.h"

static void refused(const char *uri, int status, const char *says)
{
    struct fab *fab = NULL;
    int rc = fab_open(uri, &fab);

    if (rc != status || !strstr(far_error_detail(), says))
        print_error("%s: %s: %s\n", uri, far_errname(rc), far_error_detail());
    assert_int_equal(rc, status);
    assert_null(fab);
    assert_non_null(strstr(far_error_detail(), says));
}

static void what_is_not_understood_is_named(void **state)
{
    (void)state;
    refused("verbs:", FAR_BAD_URI, "//host:port");
    refused("verbs:localhost:7000", FAR_BAD_URI, "//host:port");
    refused("verbs://", FAR_BAD_URI, "host:port");
    refused("verbs://localhost", FAR_BAD_URI, "localhost");
    refused("verbs://localhost:7000,", FAR_BAD_URI, "comma");
    refused("verbs://localhost:70000", FAR_BAD_URI, "70000");
    refused("verbs://localhost:7000?timeout=soon", FAR_BAD_URI, "timeout");
    refused("verbs://localhost:7000?timeout=0", FAR_BAD_URI, "timeout");
    refused("verbs://localhost:7000?lease=1", FAR_BAD_URI, "lease");
    refused("verbs://localhost:7000?colour=red", FAR_BAD_URI, "colour");
    refused("verbs://localhost:7000?secret=/nonexistent/secret", FAR_SYSTEM, "/nonexistent/secret");
}

static void too_many_nodes_are_refused(void **state)
{
    char uri[1024] = "verbs://a:1";

    (void)state;
    for (unsigned i = 0; i < FAB_NODES_MAX; i++)
        strcat(uri, ",a:1");
    refused(uri, FAR_BAD_URI, "64");
}

/* With a device or without, nothing listens at port 1. */
static void a_node_that_is_not_there_is_an_error(void **state)
{
    struct fab *fab = NULL;
    int rc = fab_open("verbs://127.0.0.1:1?timeout=500", &fab);

    (void)state;
#ifdef __SANITIZE_THREAD__
    assert_true(rc != FAR_OK); /* it leaves no room for the addresses that are set aside */
#else
    assert_true(rc == FAR_UNSUPPORTED || rc == FAR_UNREACHABLE);
#endif
    assert_null(fab);
    assert_true(far_error_detail()[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(too_many_nodes_are_refused),
        cmocka_unit_test(a_node_that_is_not_there_is_an_error),
    };

    return cmocka_run_group_tests_name("verbs: without a device", tests, NULL, NULL);
}
