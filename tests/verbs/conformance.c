/*
 * The conformance suite on the pool of a URI, for a device that is emulated in software on an
 * emulated processor: the same cases, with fewer repetitions.
 *
 *   verbs_conformance URI
 */
#define RIG_NETWORK  3000
#define LITMUS_SLOTS 16
#include "fabric/conformance.h"

#include <stdio.h>

static const char *pool;

static int open_pool(struct fab **fab)
{
    return fab_open(pool, fab);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s URI\n", argv[0]);
        return 2;
    }
    pool = argv[1];
    return conformance(pool, open_pool);
}
