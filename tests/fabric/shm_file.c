/* The conformance suite on shm: - a file. */
#include "fabric/conformance.h"
#include "support/shm_scratch.h"

static int open_shm(struct fab **fab)
{
    return fab_open(scratch_uri(scratch_name(true), "?size=8m"), fab);
}

int main(void)
{
    scratch_start();
    return scratch_finish(conformance("shm: a file", open_shm));
}
