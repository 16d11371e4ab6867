/* Reads a dump, record by record, and refuses it at the first record that is not as it was
 * written. */
#ifndef CLI_DUMP_READ_H
#define CLI_DUMP_READ_H

#include "cli/dump_block.h"
#include "cli/dump_json.h"

#include <stdio.h>

struct dump_record {
    enum dump_kind kind;
    uint64_t number, last;          /* of the record; JSON: of its first and last line, from 1 on */
    const struct dump_table *table; /* the one that this record is about                      */
    const unsigned char *pairs;     /* DUMP_PAIRS: for dump_pair_next(), until the next read      */
    size_t len;
    unsigned count;
};

struct dump_reader {
    FILE *file;
    bool json;
    uint64_t offset; /* bytes read           */
    uint64_t number; /* of the next record, or of the line in `line` */
    uint64_t at;     /* where that begins    */
    uint64_t sum;    /* binary: of the head before it */
    bool declared;   /* JSON: the first line says that there is an end */
    bool held;       /* JSON: `line` is not used yet */
    bool any_table;
    struct dump_table table;
    struct dump_totals totals; /* so far */
    struct dump_block payload;
    struct dump_block line; /* JSON */
    struct dump_json_line parsed;
    char error[256]; /* after a failure: what is wrong, and where */
};

/* Looks at the beginning of the file to see which kind of dump it is. False if it is none. */
bool dump_open(struct dump_reader *r, FILE *file);
/* The next record; the last one is DUMP_END. False if the dump is damaged, cut off or
 * unreadable. */
bool dump_read(struct dump_reader *r, struct dump_record *record);
/* Frees memory. The file stays open. */
void dump_reader_free(struct dump_reader *r);

#endif
