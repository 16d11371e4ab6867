/* --report FILE and --csv FILE of the commands that measure. */
#ifndef CLI_PAGES_H
#define CLI_PAGES_H

#include "cli/outfile.h"

#include <jansson.h>

struct pages {
    struct outfile report, csv;
};

/* Only one of them may be "-", the standard output. False: the message is printed. NULL: not wanted. */
bool pages_one_dash(const char *command, const char *json, const char *report, const char *csv);

/* Does one of them go to the standard output? */
bool pages_to_stdout(const struct pages *p);

/* Opens the files whose names are not NULL. False if one cannot be opened; then the message is
 * printed, and nothing is left to close. */
bool pages_open(struct pages *p, const char *command, const char *report, const char *csv);

/* Writes the files that are open, and closes them. The array has objects as --json writes them; NULL
 * means out of memory. If it is empty, nothing was measured, and older files stay as they were.
 * Takes over the reference. Returns an exit status. */
int pages_close(struct pages *p, json_t *results);

#endif
