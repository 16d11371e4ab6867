/* ucx: carries values that take many messages each, from one node and from two. */
#include "support/memd_child.h"
#include "support/values.h"

static struct memd_child node[2];

static const char *const settings[] = {"--size", "64m", NULL};

static int setup(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        memd_start(&node[i], 0, settings);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        if (node[i].pid)
            memd_end(&node[i], SIGKILL);
    return 0;
}

static void the_largest_values_come_back_from_a_node(void **state)
{
    (void)state;
    values_round_trip(memd_uri(node, 1, ""));
}

static void the_largest_values_come_back_from_two_nodes(void **state)
{
    (void)state;
    values_round_trip(memd_uri(node, 2, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_largest_values_come_back_from_a_node, setup, teardown),
        cmocka_unit_test_setup_teardown(the_largest_values_come_back_from_two_nodes, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
