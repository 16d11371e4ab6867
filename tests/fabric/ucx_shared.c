/* The conformance suite on ucx:, with all endpoints on one shared hub. */
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
    memd_descriptors(FEW_DESCRIPTORS);
    int failed = conformance("ucx: on a shared hub", open_ucx);

    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
