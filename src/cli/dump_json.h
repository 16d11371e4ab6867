/* A dump as JSON lines, for people: one object on each line. docs/dump.md describes them. */
#ifndef CLI_DUMP_JSON_H
#define CLI_DUMP_JSON_H

#include "cli/dump_block.h"

#include <stdio.h>

/* Writes a line. False if it cannot be written; errno says why. */
bool dump_json_begin(FILE *file);
bool dump_json_table(FILE *file, const struct dump_table *table);
bool dump_json_pair(FILE *file, const struct dump_pair *pair);
bool dump_json_end(FILE *file, const struct dump_totals *totals);

enum dump_line { DUMP_LINE_BEGIN, DUMP_LINE_TABLE, DUMP_LINE_PAIR, DUMP_LINE_END };

struct dump_json_line {
    enum dump_line kind;
    struct dump_table table;
    struct dump_pair pair; /* points into `bytes` */
    struct dump_totals totals;
    struct dump_block bytes;
};

/* Understands a line. Returns NULL, or what is wrong with it, in a few words. `line` may be used
 * again for the next one; dump_block_free(&line->bytes) at the end. */
const char *dump_json_read(const char *text, size_t len, struct dump_json_line *line);

#endif
