/* The conformance suite on shm: - shared memory by name, of several nodes. */
#include "fabric/conformance.h"
#include "support/shm_scratch.h"

static int open_shm(struct fab **fab)
{
    return fab_open(scratch_uri(scratch_name(false), "?size=8m&nodes=3"), fab);
}

int main(void)
{
    scratch_start();
    return scratch_finish(conformance("shm: shared memory by name, of several nodes", open_shm));
}
