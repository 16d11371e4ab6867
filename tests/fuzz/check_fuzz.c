/* libFuzzer: a run of RACE in the simulator that takes its choices from the fuzzer's bytes. */
#include "sim/check.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct check_settings settings = {.index = "race",
                                                   .clients = 3,
                                                   .keys = 2,
                                                   .ops = 6,
                                                   .adversity = SIM_ALL,
                                                   .profile = SIM_IB};
    static struct check *check;
    static struct tape tape;
    struct check_result result;
    if (!check && !(check = check_new()))
        abort();
    tape_from_bytes(&tape, data, size, false);
    check_run(check, &settings, NULL, &tape, &result);
    if (result.verdict != CHECK_PASSED) {
        fprintf(stderr, "%s: %s\n", check_verdict_name(result.verdict), result.what);
        abort();
    }
    return 0;
}
