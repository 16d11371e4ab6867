/* libFuzzer: a run in the simulator that takes its choices from the fuzzer's bytes. The first byte
 * selects the index. */
#include "check/check.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct check_settings settings = {
        .clients = 3, .keys = 2, .ops = 6, .adversity = SIM_ALL, .profile = SIM_IB};
    static struct check *check;
    static struct tape tape;
    struct check_result result;
    if (!check && !(check = check_new()))
        abort();
    if (size == 0)
        return 0;
    settings.index = check_index_of(data[0]);
    tape_from_bytes(&tape, data + 1, size - 1, false);
    check_run(check, &settings, NULL, &tape, &result);
    if (result.verdict != CHECK_PASSED) {
        fprintf(stderr, "%s: %s\n", check_verdict_name(result.verdict), result.what);
        abort();
    }
    return 0;
}
