/* The conformance suite on shm: - a file, of several nodes. */
#include "fabric/conformance.h"
#include "support/shm_scratch.h"

static int open_shm(struct fab **fab)
{
    return fab_open(scratch_uri(scratch_name(true), "?size=8m&nodes=3"), fab);
}

int main(void)
{
    scratch_start();
    return scratch_finish(conformance("shm: a file, of several nodes", open_shm));
}
