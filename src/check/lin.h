/*
 * Linearizability: histories of operations on a key-value table, and a checker for them.
 *
 * A history is what clients saw: for each operation, when it was called, when it returned, and with
 * what result. It is linearizable if every operation can be given one instant between its call and
 * its return such that a sequential table, given the operations in that order, would have answered
 * the same. A history is linearizable exactly if its part for every key is, so keys are judged one
 * by one.
 *
 * The sequential table keeps for a key one word: 0 when it is absent, else the number of its
 * value. Callers number every value that they write differently.
 */
#ifndef CHECK_LIN_H
#define CHECK_LIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lin_kind { LIN_GET, LIN_PUT, LIN_INSERT, LIN_UPDATE, LIN_DELETE, LIN_EXISTS, LIN_MODIFY };
#define LIN_KINDS  7
#define LIN_ABSENT 0u /* the number of no value */

enum lin_outcome {
    LIN_UNKNOWN, /* took effect once, at any time after its call (even after the end), or never */
    LIN_DONE,    /* took effect between call and return; `result` says what it answered         */
    LIN_FAILED   /* had no effect and saw nothing: the checker skips it                         */
};

#define LIN_NEVER UINT64_MAX /* the return stamp of an operation that has not returned */

struct lin_op {
    uint64_t call, ret; /* stamps of one counter: a < b means that a came first */
    uint32_t client, key;
    uint32_t value; /* put, insert, update, modify: what it writes */
    /* get, modify: the value read, or LIN_ABSENT; put: 1; exists: 1 if the key was there, else 0;
     * insert, update, delete: 1 if it did its work, 0 if the key was there (insert) or was not. */
    uint32_t result;
    uint8_t kind, outcome;
};

struct lin_history {
    struct lin_op *op;
    size_t count, room;
    uint64_t stamp; /* of the last call or return */
};

/* Room for `room` operations. False when out of memory. */
bool lin_history_init(struct lin_history *h, size_t room);
void lin_history_free(struct lin_history *h);
void lin_history_clear(struct lin_history *h);

/* Notes a call. Its outcome is unknown until its return is noted. Returns the operation's place in
 * the history, which must have room. */
size_t lin_call(struct lin_history *h, unsigned client, enum lin_kind kind, unsigned key,
                uint32_t value);
/* Notes its return. An operation of unknown outcome may still take effect, so it never counts as
 * returned. */
void lin_return(struct lin_history *h, size_t at, enum lin_outcome outcome, uint32_t result);

/* Notes that a client saw the value, or LIN_ABSENT, at some instant between two stamps, as a get
 * would. */
void lin_saw(struct lin_history *h, unsigned client, uint64_t call, uint64_t ret, unsigned key,
             uint32_t value);

/*
 * Notes a scan that was called at `call`, returned at `ret` and returned `count` pairs. It need not
 * be a snapshot: every pair must have been right at some instant of the scan, and every key left
 * out must have been absent at some instant of it. So it is entered as one get per key. If it ended
 * before its range did (`more`), keys past its last are not judged. Returns NULL, or what is wrong
 * with the pairs themselves: not in order, twice, out of range, too many.
 */
struct lin_scan {
    unsigned client;
    uint64_t call, ret;
    const uint32_t *key; /* all keys of the range that were ever written, in their order */
    size_t keys;
    size_t limit; /* of pairs; 0: none */
    bool more;
};
struct lin_pair {
    uint32_t key, value;
};
const char *lin_scan(struct lin_history *h, const struct lin_scan *scan,
                     const struct lin_pair *pairs, size_t count);

/* Applies the operation to a sequential table that holds `state`. False if the table would have
 * answered differently. An operation of unknown outcome may answer anything. */
bool lin_apply(const struct lin_op *op, uint32_t state, uint32_t *after);

/* ---- the checker ----------------------------------------------------------------------------- */
enum lin_verdict { LIN_LINEARIZABLE, LIN_NOT_LINEARIZABLE, LIN_UNDECIDED };

/* Why a history is not linearizable, or not decided: the key, the longest order that was found for
 * its first operations, and the first operation that fits nowhere after that. */
struct lin_result {
    uint32_t key;
    size_t stuck;   /* place in the history              */
    size_t placed;  /* how many are in `order`           */
    size_t *order;  /* places in the history, from first */
    uint64_t steps; /* that the checker took, all keys   */
};

struct lin_checker; /* reusable working memory */

struct lin_checker *lin_checker_new(void);
void lin_checker_free(struct lin_checker *c);

/*
 * Judges a history in which every key is absent at first. `budget` bounds the steps per key; past
 * it, or when memory runs out, the verdict is LIN_UNDECIDED. If any key is wrong, the verdict is
 * LIN_NOT_LINEARIZABLE. The result's `order` belongs to the checker and lasts until its next use.
 */
enum lin_verdict lin_check(struct lin_checker *c, const struct lin_history *h, uint64_t budget,
                           struct lin_result *result);

const char *lin_kind_name(enum lin_kind kind);
/* "put k3 = 17", "get k3 -> absent", "insert k3 = 4 -> exists", "delete k3 -> ?" */
void lin_describe(const struct lin_op *op, char *text, size_t room);

#endif
