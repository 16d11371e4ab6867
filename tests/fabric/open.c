/* Opening fabrics by URI: what is accepted, what is refused, and with which message. */
#include "fabric/rig.h"

static void an_unknown_scheme_is_named_and_refused(void **state)
{
    struct fab *fab = NULL;

    (void)state;
    assert_int_equal(fab_open("nosuch:", &fab), FAR_NO_FABRIC);
    assert_non_null(strstr(far_error_detail(), "nosuch"));
    assert_non_null(strstr(far_error_detail(), "mem:"));
    assert_int_equal(fab_open("me:", &fab), FAR_NO_FABRIC);
    assert_int_equal(fab_open("memory:", &fab), FAR_NO_FABRIC);
    assert_int_equal(fab_open("mem", &fab), FAR_BAD_URI);
    assert_int_equal(fab_open("", &fab), FAR_BAD_URI);
    assert_null(fab);
    fab_close(NULL);
}

static void mem_refuses_what_it_does_not_understand(void **state)
{
    static const char *const bad[] = {
        "mem:name",           "mem://host",     "mem:?size=0",      "mem:?size=1023k",
        "mem:?size=2000g",    "mem:?size=many", "mem:?nodes=0",     "mem:?nodes=65",
        "mem:?nodes=-1",      "mem:?clients=0", "mem:?clients=1.5", "mem:?defer=2",
        "mem:?colour=red",    "mem:?lease=49",  "mem:?lease=0",     "mem:?lease=5s",
        "mem:?lease=3600001",
    };
    struct fab *fab = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int rc = fab_open(bad[i], &fab);

        if (rc != FAR_BAD_URI)
            print_error("%s: %s\n", bad[i], far_errname(rc));
        assert_int_equal(rc, FAR_BAD_URI);
        assert_true(far_error_detail()[0]);
        assert_null(fab);
    }
}

static void mem_takes_its_options(void **state)
{
    static const struct {
        const char *uri;
        unsigned nodes;
        uint64_t size, clients, lease;
        bool immediate;
    } good[] = {
        {"mem:", 1, 4ull << 30, 0, 0, true},
        {"mem:?size=1m", 1, 1 << 20, 0, 0, true},
        {"mem:?size=1048639", 1, 1 << 20, 0, 0, true}, /* whole lines */
        {"mem:?nodes=64&size=2m", 64, 2 << 20, 0, 0, true},
        {"mem:?clients=7&size=1m&nodes=2", 2, 1 << 20, 7, 0, true},
        {"mem:?lease=50&size=1m", 1, 1 << 20, 0, 50, true},
        {"mem:?size=1m&lease=3600000", 1, 1 << 20, 0, 3600000, true},
        {"mem:?defer=1&size=1m", 1, 1 << 20, 0, 0, false},
        {"mem:?defer=0&size=1m", 1, 1 << 20, 0, 0, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct fab *fab;

        assert_int_equal(fab_open(good[i].uri, &fab), FAR_OK);
        assert_int_equal(fab->nodes, good[i].nodes);
        for (unsigned n = 0; n < fab->nodes; n++)
            assert_true(fab->size[n] == good[i].size);
        assert_int_equal(fab->clients_wanted, good[i].clients);
        assert_int_equal(fab->lease_ms, good[i].lease);
        assert_int_equal(!!(fab->caps & FAB_CAP_IMMEDIATE), good[i].immediate);
        assert_true(fab->caps & FAB_CAP_MCAS);
        assert_int_equal(fab->order, ORDER_ALL);
        assert_true(fab->fresh);
        assert_string_equal(fab->ops->scheme, "mem");
        fab_close(fab);
    }
}

static void a_verb_of_no_kind_is_invalid(void **state)
{
    struct fab *fab;
    uint64_t word;
    struct fab_verb v = {.kind = FAB_FAA, .len = 8, .buf = &word};

    (void)state;
    assert_int_equal(fab_open("mem:?size=1m", &fab), FAR_OK);
    assert_int_equal(fab_check(fab, &v), FAR_OK);
    v.len = 16;
    assert_int_equal(fab_check(fab, &v), FAR_INVALID);
    v.len = 8;
    v.kind = FAB_FAA + 1;
    assert_int_equal(fab_check(fab, &v), FAR_INVALID);
    v.kind = 255;
    assert_int_equal(fab_check(fab, &v), FAR_INVALID);
    fab_close(fab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_scheme_is_named_and_refused),
        cmocka_unit_test(mem_refuses_what_it_does_not_understand),
        cmocka_unit_test(mem_takes_its_options),
        cmocka_unit_test(a_verb_of_no_kind_is_invalid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
