/* The parts of a page, one for each kind of results. `path` is that of the results in `root`. */
#ifndef REPORT_PAGE_INTERNAL_H
#define REPORT_PAGE_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* False when out of memory. */
bool page_bench(FILE *out, const json_t *root, const char *path);
bool page_reproduce(FILE *out, const json_t *root, const char *path);

#endif
