/*
 * Tuning: the numbers of an index's own that a table is made with.
 *
 * Users write them as text, "groups=85&...". An index lists what it knows in a const table; the
 * text becomes an array of numbers, by position in that table.
 */
#ifndef INDEX_TUNING_H
#define INDEX_TUNING_H

#include "base/err.h"

#define TUNING_MAX 10u /* parameters of an index */

struct tuning_param {
    const char *name;
    const char *meaning;         /* one line, for --help */
    uint64_t least, most, usual; /* usual: where the text does not name it */
};

/* How many there are. The table ends with one that has no name; NULL has none. */
unsigned tuning_count(const struct tuning_param *params);

/*
 * Sets value[i] for every params[i]. The text may be NULL or empty: then all are as usual. Numbers
 * take the suffixes of text_size(). FAR_INVALID, with the index and the offending part in the
 * detail: a name that the index does not know (the detail lists those it does), a name given twice,
 * a part without '=', what is no number or out of range. Then the values are untouched.
 */
int tuning_parse(const char *index, const struct tuning_param *params, const char *text,
                 uint64_t value[TUNING_MAX]);

/* The reverse: all names with their values, as text that tuning_parse() takes. */
void tuning_text(const struct tuning_param *params, const uint64_t *value,
                 char text[FAR_TUNING_MAX + 1]);

/* The tuning of the named index's smallest geometry; NULL if there is no such index. */
const char *tuning_smallest(const char *index);

/* The same for the simulator: the n-th of its small geometries, counted round. The first is the
 * smallest one. */
const char *tuning_varied(const char *index, unsigned n);

#endif
