/*
 * Sends random messages, from a seed, to a memory node: `memd_hostile [INPUTS [SEED]]`. The checks
 * are those of memd_input.h and of a sanitizer. In tests/fuzz/memd_fuzz.c a fuzzer chooses the
 * messages.
 */
#include "base/rng.h"
#include "fuzz/memd_input.h"

#include <inttypes.h>
#include <stdio.h>

#define INPUT_MAX 96u

int main(int argc, char **argv)
{
    uint64_t inputs = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct wire_count_set count;

    for (uint64_t i = 0; i < inputs; i++) {
        uint8_t data[INPUT_MAX];
        struct rng rng;
        size_t bytes;

        rng_seed(&rng, seed + i);
        bytes = rng_below(&rng, sizeof data);
        for (size_t n = 0; n < bytes; n++)
            data[n] = (uint8_t)rng_next(&rng);
        input_run(data, bytes);
    }
    memd_counts(&input_node.memd, &count);
    printf("%" PRIu64 " inputs: %" PRIu64 " batches of %" PRIu64 " verbs executed, %" PRIu64
           " messages rejected, %" PRIu64 " batches fenced\n",
           inputs, count.batches, count.verbs, count.rejected, count.fenced);
    /* It is no test if all is rejected. */
    ASSERT(inputs < 1000 || (count.batches > inputs / 100 && count.fenced > 0));
    free(input_node.reply);
    free(input_node.memd.region.base);
    return 0;
}
