/* The conformance suite on mem: of several nodes. */
#include "fabric/conformance.h"

static int open_mem(struct fab **fab)
{
    return fab_open("mem:?size=8m&nodes=3", fab);
}

int main(void)
{
    return conformance("mem: of several nodes", open_mem);
}
