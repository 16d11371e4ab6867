/* Places in the source that post verbs: the list of them, what is counted there, and faults aimed
 * at one. */
#include "check/check.h"
#include "sim/rig.h"

#define SEEDS (RIG_SLOW > 1 ? 4u : 12u)

static struct check_settings settings = {
    .index = "race", .clients = 3, .keys = 3, .ops = 15, .adversity = SIM_ALL, .profile = SIM_IB};

static struct check *c;
static struct sites *sites;

static int start(void **state)
{
    (void)state;
    c = check_new();
    sites = sites_new();
    return c && sites ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    check_free(c);
    sites_free(sites);
    settings.aim = NULL;
    return 0;
}

static void each_place_is_there_once(void **state)
{
    (void)state;
    bool pool = false, shard = false;
    assert_true(sites->count > 200);
    for (uint32_t i = 0; i < sites->count; i++) {
        const struct site *site = &sites->site[i];
        assert_true(site->line > 0 && site->function[0] != '\0');
        assert_int_equal(sites_find(sites, site->name), i);
        pool |= strncmp(site->name, "pool/", 5) == 0;
        shard |= strncmp(site->name, "index/shard/", 12) == 0;
        assert_true(strncmp(site->name, "sim/", 4) != 0);
    }
    assert_true(pool && shard);
    assert_int_equal(sites_find(sites, "pool/none.c:none"), SITE_NONE);
    assert_int_equal(sites_number(sites, NULL), SITE_NONE);
}

static void counting_changes_no_run(void **state)
{
    (void)state;
    struct check *other = check_new();
    struct check_result counted, plain;
    assert_non_null(other);
    check_count_sites(c, sites);
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        check_seed(c, &settings, seed, &counted);
        check_seed(other, &settings, seed, &plain);
        assert_int_equal(counted.trace, plain.trace);
    }
    check_free(other);
}

/* What the sites have met agrees with what the simulator has counted. */
static void what_happens_is_counted(void **state)
{
    (void)state;
    uint64_t met[SITE_FAULT_COUNT] = {0}, posts = 0;
    struct sim_counts sum = {0};
    struct check_result r;
    check_count_sites(c, sites);
    for (unsigned seed = 1; seed <= 10 * SEEDS; seed++) {
        check_seed(c, &settings, seed, &r);
        check_add_counts(&sum, &r.counts);
    }
    for (uint32_t i = 0; i < sites->count; i++) {
        posts += sites->site[i].posts;
        for (unsigned j = 0; j < SITE_FAULT_COUNT; j++) {
            met[j] += sites->site[i].met[j];
            if (sites->site[i].met[j] > 0)
                assert_true(site_applies(&sites->site[i], (enum site_fault)j));
        }
    }
    assert_true(posts > 0 && posts <= sum.requests);
    assert_true(met[SITE_TORN] > 0 && met[SITE_TORN] <= sum.torn);
    assert_true(met[SITE_BEFORE] > 0 && met[SITE_BEHIND] > 0 && met[SITE_STOPPED] > 0);
    assert_true(met[SITE_UNKNOWN] > 0 && met[SITE_REUSED] > 0);
}

static void expect_struck(const char *name, enum site_fault fault)
{
    struct site_aim aim = {.site = sites_find(sites, name), .fault = fault, .skip = 1};
    struct check_result first, again;
    assert_int_not_equal(aim.site, SITE_NONE);
    unsigned struck = 0;
    settings.aim = &aim;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        uint64_t before = sites->site[aim.site].met[fault];
        check_seed(c, &settings, seed, &first);
        assert_int_equal(first.verdict, CHECK_PASSED);
        struck += sites->aimed;
        assert_true(!sites->aimed || sites->site[aim.site].met[fault] > before);
        check_seed(c, &settings, seed, &again);
        assert_int_equal(first.trace, again.trace);
    }
    if (struck < SEEDS / 2) /* some have few faults, or none */
        fail_msg("%s, %s: %u times only", name, site_fault_name(fault), struck);
    settings.aim = NULL;
}

static void a_fault_strikes_where_it_is_aimed_at(void **state)
{
    (void)state;
    check_count_sites(c, sites);
    for (unsigned i = 0; i < SITE_FAULT_COUNT; i++)
        if (site_fault_aimable((enum site_fault)i) && i != SITE_TORN)
            expect_struck("index/race/race_write.c:add", (enum site_fault)i);
    expect_struck("index/race/race_read.c:race_look_finish", SITE_TORN);
}

static void runs_that_reach_a_place_are_known(void **state)
{
    (void)state;
    struct check_result r;
    uint32_t add = sites_find(sites, "index/race/race_write.c:add");
    check_count_sites(c, sites);
    for (unsigned seed = 1; seed <= 2 * SITE_WITNESSES; seed++)
        check_seed(c, &settings, seed, &r);
    const struct site *site = &sites->site[add];
    assert_int_equal(site->witnesses, SITE_WITNESSES);
    for (unsigned i = 0; i < SITE_WITNESSES; i++) {
        assert_string_equal(site->witness[i].index, "race");
        uint64_t before = site->posts;
        check_seed(c, &settings, site->witness[i].seed, &r);
        assert_true(site->posts > before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_place_is_there_once, start, end),
        cmocka_unit_test_setup_teardown(counting_changes_no_run, start, end),
        cmocka_unit_test_setup_teardown(what_happens_is_counted, start, end),
        cmocka_unit_test_setup_teardown(a_fault_strikes_where_it_is_aimed_at, start, end),
        cmocka_unit_test_setup_teardown(runs_that_reach_a_place_are_known, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
