/* libFuzzer: compares the checker with brute force, on tiny histories made of the fuzzer's bytes.
 * Four bytes make an operation: kind and outcome, value and result, call, length. */
#include "sim/brute.h"
#include "check/lin.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct lin_checker *checker;
    static struct lin_op ops[7];
    if (!checker && !(checker = lin_checker_new()))
        abort();

    struct lin_history h = {.op = ops, .room = 7};
    for (; size >= 4 && h.count < h.room; data += 4, size -= 4) {
        struct lin_op *op = &ops[h.count++];
        unsigned outcome = data[0] / 16 % 8;
        *op = (struct lin_op){.kind = data[0] % 16 % LIN_KINDS,
                              .outcome = outcome == 0   ? LIN_UNKNOWN
                                         : outcome == 1 ? LIN_FAILED
                                                        : LIN_DONE,
                              .value = 1 + data[1] % 4,
                              .call = 1 + data[2] % 16};
        op->ret = op->outcome == LIN_UNKNOWN ? LIN_NEVER : op->call + 1 + data[3] % 8;
        op->result = op->kind == LIN_PUT   ? 1u
                     : op->kind == LIN_GET ? data[1] / 16 % 5u
                                           : data[1] / 16 % 2u;
    }
    struct lin_result report;
    enum lin_verdict verdict = lin_check(checker, &h, 1000000, &report);
    if (verdict != (brute_linearizable(&h) ? LIN_LINEARIZABLE : LIN_NOT_LINEARIZABLE))
        abort();
    return 0;
}
