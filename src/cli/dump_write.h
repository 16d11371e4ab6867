/* Writes a dump, as binary records or as JSON lines. */
#ifndef CLI_DUMP_WRITE_H
#define CLI_DUMP_WRITE_H

#include "cli/dump_block.h"

#include <stdio.h>

struct dump_writer {
    FILE *file;
    bool json;
    uint64_t number; /* of the next record         */
    uint64_t sum;    /* of the head before it      */
    struct dump_totals totals;
    struct dump_block block; /* pairs not written yet */
};

/* Each returns false if it failed; errno says why. First dump_begin(); then for each table
 * dump_add_table() and its pairs; then dump_finish(), which also flushes the file. */
bool dump_begin(struct dump_writer *w, FILE *file, bool json);
bool dump_add_table(struct dump_writer *w, const struct dump_table *table);
bool dump_add_pair(struct dump_writer *w, const struct dump_pair *pair);
bool dump_finish(struct dump_writer *w);
/* Frees memory. The file stays open. */
void dump_writer_free(struct dump_writer *w);

#endif
