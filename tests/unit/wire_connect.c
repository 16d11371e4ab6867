/* Connecting to the nodes of a pool: which of them may be away (AWAY-1). */
#include "fabric/wire.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define NODES 3u
#define SIZE  4096u

static int answer[NODES];
static unsigned asked;

static int connect_node(struct fab *fab, unsigned node)
{
    asked++;
    if (answer[node] != FAR_OK)
        return err_fail(answer[node], "no connection");
    fab->size[node] = SIZE;
    return FAR_OK;
}

static int connect_all(struct fab *fab, int first, int second)
{
    *fab = (struct fab){.nodes = NODES};
    asked = 0;
    answer[0] = first;
    answer[1] = second;
    return wire_nodes_connect(fab, connect_node);
}

static void a_node_that_cannot_be_reached_is_away(void **state)
{
    const int away[] = {FAR_UNREACHABLE, FAR_TIMEOUT};
    struct fab fab;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(connect_all(&fab, FAR_OK, away[i]), FAR_OK);
        assert_int_equal(fab_away(&fab), 2);
        assert_int_equal(fab.size[1], FAB_AWAY_BYTES);
        assert_true(fab.size[0] == SIZE && fab.size[2] == SIZE);
    }
    assert_int_equal(connect_all(&fab, FAR_OK, FAR_OK), FAR_OK);
    assert_int_equal(fab_away(&fab), 0);
}

static void the_first_node_must_be_there(void **state)
{
    struct fab fab;
    (void)state;
    assert_int_equal(connect_all(&fab, FAR_TIMEOUT, FAR_OK), FAR_TIMEOUT);
    assert_non_null(strstr(far_error_detail(), "no connection; this is the first node"));
    assert_int_equal(asked, 1);
}

static void a_node_that_refuses_is_not_away(void **state)
{
    const int refused[] = {FAR_REFUSED, FAR_NODE_LOST, FAR_SYSTEM};
    struct fab fab;
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(connect_all(&fab, FAR_OK, refused[i]), refused[i]);
        assert_int_equal(asked, 2);
    }
}

static int claim_nothing(struct fab *fab, uint32_t *value)
{
    (void)fab;
    asked++;
    *value = WIRE_CLAIM_THERE;
    return FAR_OK;
}

/* Two addresses of one node: found before anything is claimed there. */
static void a_node_that_is_listed_twice_is_refused(void **state)
{
    struct fab fab = {.nodes = NODES};
    struct wire_nodes nodes = {.timeout_ms = 0};
    (void)state;
    asked = 0;
    for (unsigned i = 0; i < NODES; i++) {
        nodes.known[i] = WIRE_NODE_KNOWN;
        nodes.instance[i] = i == 2 ? 7 : 100 + i;
        snprintf(nodes.address[i].text, sizeof nodes.address[i].text, "host%u:7000", i);
    }
    assert_int_equal(wire_nodes_claim(&nodes, &fab, claim_nothing), FAR_OK);
    nodes.instance[2] = nodes.instance[0];
    assert_int_equal(wire_nodes_claim(&nodes, &fab, claim_nothing), FAR_BAD_URI);
    assert_non_null(strstr(far_error_detail(), "host0:7000 and host2:7000 are the same"));
    nodes.known[2] = WIRE_NODE_NEW; /* away: nothing is known of it */
    assert_int_equal(wire_nodes_claim(&nodes, &fab, claim_nothing), FAR_OK);
    assert_int_equal(asked, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_cannot_be_reached_is_away),
        cmocka_unit_test(the_first_node_must_be_there),
        cmocka_unit_test(a_node_that_refuses_is_not_away),
        cmocka_unit_test(a_node_that_is_listed_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
