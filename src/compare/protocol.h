/* The protocols of Redis and memcached, as far as gets and puts need them. */
#ifndef COMPARE_PROTOCOL_H
#define COMPARE_PROTOCOL_H

#include "compare/rival.h"

struct protocol {
    /* At least as many bytes as a request or a reply has besides its key and value. */
    size_t overhead;
    /* Writes the request of an operation and returns its bytes. */
    size_t (*encode)(const struct rival_op *op, unsigned char *out);
    /*
     * Reads the reply to the operation at the beginning of `len` bytes. *used is the reply's
     * length, or 0 if it is not complete yet. A value of more than value_max bytes is an error.
     *
     * FAR_CORRUPT  this is no reply to the operation
     * FAR_SYSTEM   the server reports an error; the detail has its text
     */
    int (*parse)(const unsigned char *in, size_t len, struct rival_op *op, uint32_t value_max,
                 size_t *used);
};

extern const struct protocol protocol_resp; /* Redis, RESP2 */
extern const struct protocol
    protocol_memcached; /* memcached's binary protocol: keys are any bytes */

#endif
