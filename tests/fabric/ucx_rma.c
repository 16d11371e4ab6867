/* The conformance suite on ucx: by put, get and atomics, on a transport that does them by itself:
 * UCX's shared memory, which is not used unless it is asked for. */
#define RIG_NETWORK 20
#include "support/memd_child.h"
#include "fabric/conformance.h"

static struct memd_child node;

static int open_ucx(struct fab **fab)
{
    static const char *const more[] = {"--size", "8m", "--threads", "2", NULL};
    int rc;

    if (node.pid)
        memd_end(&node, SIGTERM);
    memd_start_at(&node, "ucx://127.0.0.1:0?rma=1", more);
    rc = fab_open(memd_uri(&node, 1, ""), fab);
    /* Found out, not asked for; and what cannot be had with it is not promised. */
    if (rc == FAR_OK)
        ASSERT((*fab)->order == 0 && (*fab)->caps == 0 && !(*fab)->ops->fence);
    return rc;
}

int main(void)
{
    int failed;

    setenv("UCX_TLS", "posix,self,tcp", 1);
    failed = conformance("ucx: by put and get", open_ucx);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
