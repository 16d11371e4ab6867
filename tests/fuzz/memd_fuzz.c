/* libFuzzer: what a memory node does with any messages. */
#include "fuzz/memd_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input_run(data, size);
    return 0;
}
