/* The index that a test makes its tables with. Suites that run on every index change it: see
 * indexes.h. */
#ifndef TESTS_INDEX_TESTED_H
#define TESTS_INDEX_TESTED_H

static const char *index_tested = "race";

#endif
