/* --json FILE, --report FILE and --csv FILE of the commands that measure. */
#ifndef CLI_PAGES_H
#define CLI_PAGES_H

#include "cli/outfile.h"

#include <jansson.h>

/* NULL: not wanted. */
struct pages_names {
    const char *json, *report, *csv;
};

#define PAGES_OPTIONS(names)                                                                       \
    {"json", "FILE|-", "also write the results as JSON; with -, print only that",                  \
     .text = &(names)->json},                                                                      \
        {"report", "FILE",                                                                         \
         "also write a page with charts, for a browser: one HTML file that needs nothing "         \
         "else",                                                                                   \
         .text = &(names)->report},                                                                \
    {                                                                                              \
        "csv", "FILE|-",                                                                           \
            "also write the results for spreadsheets: a row for each run and kind of "             \
            "operation",                                                                           \
            .text = &(names)->csv                                                                  \
    }

struct pages {
    const char *command, *json_name;
    FILE *json;
    struct outfile report, csv;
};

/* Opens the files that are wanted; only one may be "-", the standard output. Unless CLI_OK, the
 * message is printed, and nothing is left to close. */
int pages_open(struct pages *p, const char *command, const struct pages_names *names);

/* Does one of them go to the standard output? */
bool pages_to_stdout(const struct pages *p);

/* Writes the results, an object as --json has it, and closes the files. NULL means out of memory.
 * If nothing was measured, older pages and spreadsheets stay as they were. Takes over the
 * reference. Returns an exit status. */
int pages_close(struct pages *p, json_t *results, bool measured);
/* The same with an array of such objects, for files other than JSON. */
int pages_close_all(struct pages *p, json_t *array);

/* Adds an object as --json has it to an array; a comparison has one for each group of stores. Takes
 * over the reference. False when out of memory. */
bool pages_add(json_t *array, json_t *results);

#endif
