/* The same seed gives the same run, event for event, whatever ran before. So does its recording. */
#include "check/check_internal.h"
#include "sim/rig.h"
#include "support/indexes.h"

#define SEEDS_MAX (300u / RIG_SLOW)
#define SEEDS     indexes_share(SEEDS_MAX)

static struct check_settings settings = {
    .clients = 4, .keys = 3, .ops = 15, .adversity = SIM_ALL, .profile = SIM_IB_LOOSE};

static int choose_index(void **state)
{
    (void)state;
    settings.index = index_tested;
    return 0;
}

static void repeat_themselves(enum sim_profile profile)
{
    static uint64_t trace[SEEDS_MAX];
    static struct sim_counts counts[SEEDS_MAX];
    struct check *one = check_new(), *other = check_new();
    struct check_result r;
    assert_true(one && other);
    settings.profile = profile;
    for (unsigned i = 0; i < SEEDS; i++) {
        check_seed(one, &settings, i + 1, &r);
        trace[i] = r.trace;
        counts[i] = r.counts;
    }
    /* In reverse order, by another harness, and with a time line. */
    check_keep_log(other, true);
    for (unsigned i = SEEDS; i-- > 0;) {
        check_seed(other, &settings, i + 1, &r);
        assert_int_equal(r.trace, trace[i]);
        assert_memory_equal(&r.counts, &counts[i], sizeof r.counts);
    }
    /* What one run learned and others use does not depend on which of them was the first. */
    assert_memory_equal(one->grows_at, other->grows_at, sizeof one->grows_at);
    check_free(one);
    check_free(other);
}

static void seeds_repeat_themselves(void **state)
{
    (void)state;
    repeat_themselves(SIM_IB); /* with everything that a plan may have */
    repeat_themselves(SIM_IB_LOOSE);
}

static void seeds_differ(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct check_result r;
    uint64_t last = 0;
    assert_non_null(c);
    for (unsigned i = 0; i < SEEDS; i++) {
        check_seed(c, &settings, i + 1, &r);
        assert_int_not_equal(r.trace, last);
        last = r.trace;
    }
    check_free(c);
}

static void a_recording_is_the_run(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct tape tape;
    struct check_result first, again;
    assert_non_null(c);
    tape_init(&tape);
    for (unsigned i = 0; i < SEEDS; i++) {
        tape_from_seed(&tape, i + 1, true);
        check_run(c, &settings, NULL, &tape, &first);
        assert_true(tape.count > 0);
        assert_true(tape_from_record(&tape, tape.mark, tape.count));
        check_run(c, &settings, NULL, &tape, &again);
        assert_int_equal(first.trace, again.trace);
        assert_int_equal(tape.at, tape.given);
        check_seed(c, &settings, i + 1, &again); /* recording changes nothing */
        assert_int_equal(first.trace, again.trace);
    }
    tape_free(&tape);
    check_free(c);
}

/* A fuzzer's bytes are a run too. */
static void bytes_are_a_run(void **state)
{
    (void)state;
    struct check *c = check_new();
    struct tape tape;
    struct check_result first, again;
    uint8_t bytes[512];
    struct rng rng;
    assert_non_null(c);
    tape_init(&tape);
    rng_seed(&rng, 5);
    for (unsigned i = 0; i < SEEDS; i++) {
        for (unsigned j = 0; j < sizeof bytes; j++)
            bytes[j] = (uint8_t)rng_next(&rng);
        size_t count = i % sizeof bytes;
        tape_from_bytes(&tape, bytes, count, false);
        check_run(c, &settings, NULL, &tape, &first);
        tape_from_bytes(&tape, bytes, count, false);
        check_run(c, &settings, NULL, &tape, &again);
        assert_int_equal(first.verdict, CHECK_PASSED);
        assert_int_equal(first.trace, again.trace);
    }
    tape_free(&tape);
    check_free(c);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
#define CASE(test) cmocka_unit_test_setup(test, choose_index)
    const struct CMUnitTest tests[] = {
        CASE(seeds_repeat_themselves),
        CASE(seeds_differ),
        CASE(a_recording_is_the_run),
        CASE(bytes_are_a_run),
    };
    return INDEXES_RUN(tests);
}
