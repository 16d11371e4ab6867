/* The conformance suite on mem:. */
#include "fabric/conformance.h"

static int open_mem(struct fab **fab)
{
    return fab_open("mem:?size=8m", fab);
}

int main(void)
{
    return conformance("mem:", open_mem);
}
