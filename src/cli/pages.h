/* --report FILE and --csv FILE of the commands that measure. */
#ifndef CLI_PAGES_H
#define CLI_PAGES_H

#include "cli/outfile.h"

#include <jansson.h>

struct pages {
    struct outfile report, csv;
};

/* Opens the files whose names are not NULL. False if one cannot be opened; then the message is
 * printed, and nothing is left to close. */
bool pages_open(struct pages *p, const char *command, const char *report, const char *csv);

/* Writes the files that are open, and closes them. The array has objects as --json writes them; NULL
 * means out of memory. If it is empty, nothing was measured, and older files stay as they were.
 * Takes over the reference. Returns an exit status. */
int pages_close(struct pages *p, json_t *results);

#endif
