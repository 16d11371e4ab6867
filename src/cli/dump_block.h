/* What the writer and the readers of dumps share: tables, and blocks of pairs. */
#ifndef CLI_DUMP_BLOCK_H
#define CLI_DUMP_BLOCK_H

#include "cli/dump_layout.h"

#include <stdbool.h>
#include <stdio.h>

struct dump_table {
    char name[FAR_NAME_MAX + 1];
    char index[FAR_NAME_MAX + 1];    /* "": not given */
    char tuning[FAR_TUNING_MAX + 1]; /* "": not given */
};

struct dump_pair {
    const unsigned char *key, *value;
    size_t key_len, value_len;
};

/* Bytes that grow; as payload of DUMP_PAIRS, `count` pairs. */
struct dump_block {
    unsigned char *bytes;
    size_t len, cap;
    unsigned count;
};

/* Makes room for `cap` bytes. False when out of memory. */
bool dump_block_reserve(struct dump_block *block, size_t cap);
/* Appends a pair. False when out of memory. */
bool dump_block_add(struct dump_block *block, const struct dump_pair *pair);
void dump_block_clear(struct dump_block *block);
void dump_block_free(struct dump_block *block);

/* "2 tables, 7 pairs, 123 bytes in keys and values" */
void dump_print_totals(FILE *out, const struct dump_totals *totals);

/* The pair at *pos of `len` bytes; moves *pos behind it. False if there is none, or if what is
 * there is not a pair: *pos is less than `len` then. */
bool dump_pair_next(const unsigned char *bytes, size_t len, size_t *pos, struct dump_pair *pair);

#endif
