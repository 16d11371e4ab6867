/*
 * A store that is compared: Farside itself, or a rival.
 *
 * C and C++ include this header. A rival that needs a library is a module, farside-rival-NAME.so,
 * which is opened when it is to be compared (see fabric/module.h). It calls nothing of the program
 * but `fail` of its setup.
 *
 * All stores get the same calls: a client of each thread runs arrays of operations that were
 * prepared before, so making keys and checking values is not part of the measured time.
 */
#ifndef COMPARE_RIVAL_H
#define COMPARE_RIVAL_H

#include "farside.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RIVAL_TEXT_BYTES   512
#define RIVAL_VARIANTS_MAX 2

struct rival_op {
    const void *key;
    const void *value; /* put */
    void *buf;         /* get: where the value is copied to; has room for value_max bytes */
    uint32_t key_len, value_len;
    bool put; /* else get */
    /* Set by run(), for a get: */
    bool found;
    uint32_t got_len;
};

struct rival_setup {
    uint32_t key_min, key_max, value_min, value_max; /* bytes */
    uint64_t keys;                                   /* as many are loaded */
    unsigned threads;
    unsigned depth; /* operations that a client has in flight, or puts into one transaction */
    uint64_t seed;
    const char *index, *tuning; /* of Farside's table; tuning may be NULL */
    const char *program;        /* path of `farside`, for its memory node */
    /* err_fail(): notes what is wrong and returns the status. */
    int (*fail)(int status, const char *format, ...);
};

/*
 * Functions return FAR_OK, or what fail() returned.
 *
 * FAR_NO_FABRIC    what the store needs is not installed
 * FAR_UNSUPPORTED  the store cannot keep keys or values of these sizes
 */
struct rival_ops {
    /* Makes an empty store. The setup outlives it. */
    int (*open)(const struct rival_setup *setup, void **store);
    void (*close)(void *store);
    /* Writes which version it is, how it is set up, and what is done for an operation. */
    void (*describe)(void *store, char text[RIVAL_TEXT_BYTES]);
    /* A client for one thread, which alone uses it. */
    int (*client_open)(void *store, void **client);
    void (*client_close)(void *client);
    /* Runs the operations, and returns when all of them are done. */
    int (*run)(void *client, struct rival_op *ops, unsigned count);
};

/* What a module exports, under the name `farside_module`. */
struct rival_module {
    char build[64]; /* as in struct module */
    const struct rival_ops *variant[RIVAL_VARIANTS_MAX];
};

#endif
