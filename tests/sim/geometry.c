/* The simulator makes the tables of every index with one of its small tunings. */
#include "check/check_internal.h"
#include "sim/rig.h"

static void expect_small(struct check *c, far_session *session, unsigned i)
{
    struct far_table_info info;
    const struct index_ops *ops = c->table[i]->index.ops;
    const char *small = tuning_varied(ops->name, c->plan.tuning);
    uint64_t least[TUNING_MAX], made[TUNING_MAX];

    assert_int_equal(far_table_info(session, c->table[i], &info), FAR_OK);
    assert_int_equal(tuning_parse(ops->name, ops->tuning, small, least), FAR_OK);
    assert_int_equal(tuning_parse(ops->name, ops->tuning, info.tuning, made), FAR_OK);
    assert_memory_equal(made, least, tuning_count(ops->tuning) * sizeof *made);
}

/* Sets up a run, but does not run it. Returns how many tables it has. */
static unsigned set_up(const struct check_settings *s, const struct check_program *program,
                       uint64_t seed)
{
    struct check *c = check_new();
    far_session *session = NULL;

    assert_non_null(c);
    c->set = s;
    c->program = program;
    c->tape = &c->own_tape;
    c->values = 1;
    tape_from_seed(c->tape, seed, false);
    assert_true(check_set_up(c, NULL));
    assert_int_equal(far_session_open(c->pool, NULL, &session), FAR_OK);
    for (unsigned i = 0; i < c->plan.tables; i++)
        expect_small(c, session, i);
    unsigned tables = c->plan.tables;
    far_session_close(session);
    check_tear_down(c);
    check_free(c);
    return tables;
}

static void tables_have_a_small_geometry(void **state)
{
    static const struct check_program program = {.present = 0};
    struct check_settings s = {.clients = 2, .keys = 2, .ops = 1, .profile = SIM_IB};

    (void)state;
    for (unsigned i = 0; (s.index = far_index_name(i)) != NULL; i++) {
        unsigned two = 0;
        for (uint64_t seed = 1; seed <= 20; seed++)
            two += set_up(&s, NULL, seed) == 2;
        assert_true(two > 0);
        set_up(&s, &program, 1); /* of an enumeration */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_have_a_small_geometry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
