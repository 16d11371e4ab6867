/* The conformance suite on mem: whose requests complete in a later poll. */
#include "fabric/conformance.h"

static int open_mem(struct fab **fab)
{
    return fab_open("mem:?size=8m&defer=1", fab);
}

int main(void)
{
    return conformance("mem: whose requests complete in a later poll", open_mem);
}
