/* What each status means to its callers. Ask status_means() instead of listing statuses. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "farside.h"

#include <stdbool.h>

enum status_meaning {
    /* Not a failure: whether the key is in the table. */
    STATUS_ANSWER = 1,
    /* The operation ended because of what it read. No batch is under way: what it allocated and did
     * not publish is still its own. */
    STATUS_SETTLED = 2,
    /* An operation on a key that ends like this changed nothing, and may succeed later. */
    STATUS_NO_EFFECT = 4,
    /* A memory node or the way to it failed; the detail names the node. These are turned into one
     * another: FAR_TIMEOUT into FAR_UNKNOWN, for one. */
    STATUS_FABRIC = 8,
    /* A part of a request, for one node: the node executed nothing of it, and will not. */
    STATUS_NOT_EXECUTED = 16,
    /* The batch was refused on this side, before it was posted. */
    STATUS_NOT_POSTED = 32,
    /* The caller asked for something that does not exist or makes no sense. */
    STATUS_MISUSE = 64,
    /* The pool holds something that it should not. If the client's lease has lapsed, it may have
     * read memory that was reused, and the pool is in order. */
    STATUS_DAMAGE = 128
};

/* One row for each status of FAR_ERRORS; a missing row does not compile. 0: nobody asks. */
enum {
    STATUS_OF_NOT_FOUND = STATUS_ANSWER | STATUS_SETTLED,
    STATUS_OF_EXISTS = STATUS_ANSWER | STATUS_SETTLED,
    STATUS_OF_TOO_SMALL = 0,
    STATUS_OF_INVALID = STATUS_MISUSE | STATUS_NOT_POSTED,
    STATUS_OF_KEY_SIZE = 0,
    STATUS_OF_VALUE_SIZE = 0,
    STATUS_OF_BAD_URI = STATUS_MISUSE,
    STATUS_OF_NO_FABRIC = STATUS_MISUSE,
    STATUS_OF_NO_INDEX = STATUS_MISUSE,
    STATUS_OF_NO_TABLE = STATUS_SETTLED,
    STATUS_OF_TABLE_EXISTS = STATUS_SETTLED,
    STATUS_OF_WRONG_INDEX = 0,
    STATUS_OF_NOT_A_POOL = 0,
    STATUS_OF_LAYOUT = 0,
    STATUS_OF_CORRUPT = STATUS_DAMAGE | STATUS_SETTLED,
    STATUS_OF_POOL_FULL = STATUS_NO_EFFECT | STATUS_SETTLED,
    STATUS_OF_TABLE_FULL = STATUS_NO_EFFECT | STATUS_SETTLED,
    STATUS_OF_CATALOG_FULL = STATUS_SETTLED,
    STATUS_OF_NO_CLIENT_SLOT = 0,
    STATUS_OF_FENCED = STATUS_NO_EFFECT | STATUS_NOT_EXECUTED | STATUS_NOT_POSTED,
    STATUS_OF_UNREACHABLE = STATUS_FABRIC | STATUS_NOT_EXECUTED,
    STATUS_OF_TIMEOUT = STATUS_FABRIC,
    STATUS_OF_CONTENTION = STATUS_NO_EFFECT | STATUS_SETTLED,
    STATUS_OF_UNSUPPORTED = 0,
    STATUS_OF_BOUNDS = STATUS_DAMAGE | STATUS_NOT_POSTED,
    STATUS_OF_UNKNOWN = STATUS_FABRIC,
    STATUS_OF_NO_MEMORY = 0,
    STATUS_OF_SYSTEM = 0,
    STATUS_OF_RING_FULL = 0,
    STATUS_OF_STOPPED = 0,
    STATUS_OF_REFUSED = STATUS_FABRIC | STATUS_NOT_EXECUTED,
    STATUS_OF_NODE_LOST = STATUS_FABRIC | STATUS_NOT_EXECUTED,
    STATUS_OF_STARTED = 0,
    STATUS_OF_PARTIAL = STATUS_DAMAGE
};

/* Does the status have one of these meanings? FAR_OK has none. */
static inline bool status_means(int status, unsigned meanings)
{
    switch (status) {
#define FAR_X(name, value, text)                                                                   \
    case FAR_##name:                                                                               \
        return (STATUS_OF_##name & meanings) != 0;
        FAR_ERRORS(FAR_X)
#undef FAR_X
    }
    return false;
}

/* FABRIC-F5: may verbs of a request that completed like this have happened, or happen yet? */
static inline bool status_in_doubt(int status)
{
    return status != FAR_OK && status != FAR_UNREACHABLE;
}

#endif
