/* The conformance suite on ucx: by put, get and atomics that UCX emulates over TCP. */
#define RIG_NETWORK 1000
#include "support/memd_child.h"
#include "fabric/conformance.h"

static struct memd_child node;

static int open_ucx(struct fab **fab)
{
    static const char *const more[] = {"--size", "8m", "--threads", "1", NULL};

    if (node.pid)
        memd_end(&node, SIGTERM);
    memd_start_at(&node, "ucx://127.0.0.1:0?rma=1", more);
    return fab_open(memd_uri(&node, 1, "?mode=rma"), fab);
}

int main(void)
{
    int failed;

    setenv("UCX_TLS", "tcp", 1);
    failed = conformance("ucx: by emulated put and get", open_ucx);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
