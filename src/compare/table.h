/* The results of a comparison: text for people, JSON for programs. */
#ifndef COMPARE_TABLE_H
#define COMPARE_TABLE_H

#include "compare/compare.h"

#include <jansson.h>
#include <stdio.h>

/* Prints how the stores are set up, and which ones are left out. */
void table_setup(const struct compare *c, FILE *out);
/* Prints the complete rounds. There must be one at least. No line has more than 100
 * columns. */
void table_results(const struct compare *c, FILE *out);

/* A new reference; NULL when out of memory. docs/man/farside-compare.1 describes the members. */
json_t *table_json(const struct compare *c, bool interrupted);

#endif
