/*
 * Values of the results by their path in the JSON: "runs/3/per_op/get/rtts".
 *
 * Pages are made of the same JSON that --json writes. Each number of a table is named by its path,
 * which stands beside it in the page (data-json), so that a program can compare them.
 */
#ifndef REPORT_LOOKUP_H
#define REPORT_LOOKUP_H

#include <jansson.h>

#define LOOKUP_PATH_BYTES 160

/* The value, or NULL. */
const json_t *lookup(const json_t *root, const char *path);
/* NAN if there is no number. */
double lookup_number(const json_t *root, const char *path);
/* "" if there is no text. */
const char *lookup_text(const json_t *root, const char *path);

#endif
