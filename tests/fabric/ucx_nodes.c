/* The conformance suite on ucx: with three memory nodes. */
#define RIG_NETWORK 400
#include "support/memd_child.h"
#include "fabric/conformance.h"

#define NODES 3

static struct memd_child node[NODES];

static void end_nodes(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        if (node[i].pid)
            ASSERT(memd_end(&node[i], SIGTERM) == 0);
    }
}

static int open_ucx(struct fab **fab)
{
    static const char *const more[] = {"--size", "8m", NULL};

    end_nodes();
    for (unsigned i = 0; i < NODES; i++)
        memd_start(&node[i], 0, more);
    return fab_open(memd_uri(node, NODES, ""), fab);
}

int main(void)
{
    int failed = conformance("ucx: on three nodes", open_ucx);

    end_nodes();
    return failed;
}
