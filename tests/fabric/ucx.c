/* The conformance suite on ucx:, with a memory node of its own for each case. */
#define RIG_NETWORK 200
#include "support/memd_child.h"
#include "fabric/conformance.h"

static struct memd_child node;

static int open_ucx(struct fab **fab)
{
    static const char *const more[] = {"--size", "8m", "--threads", "2", NULL};

    if (node.pid)
        memd_end(&node, SIGTERM);
    memd_start(&node, 0, more);
    return fab_open(memd_uri(&node, 1, ""), fab);
}

int main(void)
{
    int failed = conformance("ucx:", open_ucx);

    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
