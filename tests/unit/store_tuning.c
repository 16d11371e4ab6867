/* Tables that are made with a tuning: what it does, who sees it, and what is refused. */
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#define RACE_GROUP_SLOTS 21

static struct far_table_info info_of(far_session *session, far_table *table)
{
    struct far_table_info info;
    assert_int_equal(far_table_info(session, table, &info), FAR_OK);
    return info;
}

static struct far_table_info make(far_session *session, const char *name, const char *index,
                                  const char *tuning)
{
    struct far_table_options options = {.tuning = tuning};
    far_table *table = NULL;
    assert_int_equal(far_table_create(session, name, index, &options, &table), FAR_OK);
    return info_of(session, table);
}

static void a_table_is_made_as_its_tuning_says(void **state)
{
    static const struct {
        const char *tuning, *shown;
        unsigned groups;
    } cases[] = {{NULL, "groups=85&depth=0&hot=4096", 85},
                 {"", "groups=85&depth=0&hot=4096", 85},
                 {"groups=2", "groups=2&depth=0&hot=4096", 2},
                 {"depth=9&groups=340", "groups=340&depth=9&hot=4096", 340},
                 {"groups=0.25k", "groups=256&depth=0&hot=4096", 256}};
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    assert_string_equal(info_of(r.session, r.table).tuning,
                        "groups=85&depth=0&hot=4096"); /* without options */
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%u", i);
        struct far_table_info info = make(r.session, name, "race", cases[i].tuning);
        assert_string_equal(info.tuning, cases[i].shown);
        assert_int_equal(info.slots, cases[i].groups * RACE_GROUP_SLOTS);
    }
    store_rig_close(&r);
}

/* Of every index: what is shown makes a table of the same geometry. */
static void what_is_shown_can_be_given_again(void **state)
{
    const struct index_ops *ops = NULL;
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++) {
        char name[8];
        uint64_t asked[TUNING_MAX], shown[TUNING_MAX];
        snprintf(name, sizeof name, "a%u", i);
        struct far_table_info first = make(r.session, name, ops->name, ops->smallest);
        assert_int_equal(tuning_parse(ops->name, ops->tuning, ops->smallest, asked), FAR_OK);
        assert_int_equal(tuning_parse(ops->name, ops->tuning, first.tuning, shown), FAR_OK);
        assert_memory_equal(shown, asked, tuning_count(ops->tuning) * sizeof *asked);
        snprintf(name, sizeof name, "b%u", i);
        struct far_table_info second = make(r.session, name, ops->name, first.tuning);
        assert_string_equal(second.tuning, first.tuning);
        assert_int_equal(second.slots, first.slots);
    }
    store_rig_close(&r);
}

/* Tests that are about growth, and the simulator, count on it. */
static void the_smallest_geometry_grows_within_160_keys(void **state)
{
    const struct index_ops *ops = NULL;
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++) {
        struct far_table_options options = {.tuning = ops->smallest};
        far_table *table = NULL;
        assert_int_equal(far_table_create(r.session, ops->name, ops->name, &options, &table),
                         FAR_OK);
        for (uint32_t key = 0; key < 160; key++)
            assert_int_equal(far_put(r.session, table, &key, sizeof key, "", 0), FAR_OK);
        assert_true(info_of(r.session, table).splits > 0);
    }
    store_rig_close(&r);
}

/* It is in far memory: not only the handle that made the table knows it. */
static void others_see_it_too(void **state)
{
    struct far_table_options options = {.tuning = "groups=3"};
    far_pool *pool = NULL;
    far_session *session = NULL;
    far_table *table = NULL;
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, &options);
    assert_int_equal(store_open(r.fab, NULL, &pool), FAR_OK); /* as another process would */
    assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
    assert_int_equal(far_table_open(session, "t", NULL, &table), FAR_OK);
    assert_string_equal(info_of(session, table).tuning, "groups=3&depth=0&hot=4096");
    for (uint32_t key = 0; key < 1000; key++) /* it splits, and that changes nothing */
        assert_int_equal(far_put(session, table, &key, sizeof key, "", 0), FAR_OK);
    assert_true(info_of(session, table).splits > 0);
    assert_string_equal(info_of(session, table).tuning, "groups=3&depth=0&hot=4096");
    assert_string_equal(info_of(r.session, r.table).tuning, "groups=3&depth=0&hot=4096");
    far_session_close(session);
    far_pool_close(pool);
    store_rig_close(&r);
}

static void what_the_index_does_not_take_is_refused(void **state)
{
    static const struct {
        const char *tuning, *detail;
    } bad[] = {
        {"grups=2",
         "index race: unknown tuning 'grups' (known: groups=2..340, depth=0..18, hot=0..4m)"},
        {"groups=2&rows=3",
         "index race: unknown tuning 'rows' (known: groups=2..340, depth=0..18, hot=0..4m)"},
        {"groups=2&groups=2", "index race: tuning 'groups' is given twice"},
        {"groups", "index race: tuning 'groups' has no '='"},
        {"groups=many", "index race: tuning 'groups' takes a number from 2 to 340, not 'many'"},
        {"groups=0", "index race: tuning 'groups' takes a number from 2 to 340, not '0'"},
        {"groups=1", "index race: tuning 'groups' takes a number from 2 to 340, not '1'"},
        {"groups=341", "index race: tuning 'groups' takes a number from 2 to 340, not '341'"},
        {"groups=4294967298", /* 2 in 32 bits */
         "index race: tuning 'groups' takes a number from 2 to 340, not '4294967298'"},
    };
    struct far_pool_info before, after;
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=16m", NULL, NULL, NULL);
    assert_int_equal(far_pool_info(r.session, &before), FAR_OK);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct far_table_options options = {.tuning = bad[i].tuning};
        far_table *table = NULL;
        assert_int_equal(far_table_create(r.session, "u", "race", &options, &table), FAR_INVALID);
        assert_string_equal(far_error_detail(), bad[i].detail);
        assert_null(table);
        assert_int_equal(far_table_open(r.session, "u", NULL, &table), FAR_NO_TABLE);
    }
    assert_int_equal(far_pool_info(r.session, &after), FAR_OK);
    assert_int_equal(after.bytes_allocated, before.bytes_allocated);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_made_as_its_tuning_says),
        cmocka_unit_test(what_is_shown_can_be_given_again),
        cmocka_unit_test(the_smallest_geometry_grows_within_160_keys),
        cmocka_unit_test(others_see_it_too),
        cmocka_unit_test(what_the_index_does_not_take_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
