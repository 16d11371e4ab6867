/*
 * For suites that run on every index of the build. INDEXES_RUN(tests) runs them on one index after
 * the other: index_tested is the one whose turn it is. After that it is RACE again, for tests that
 * need to know how an index works.
 *
 * What takes long is shared: each index gets its part of the work, and the suite takes as long as
 * with one index. An argument changes that:
 *
 *   PROGRAM --long             each index gets all of the work, as `make check-long` wants
 *   PROGRAM --index NAME       only this index, with all of the work; also one that is not listed
 *                              (index_add_unlisted())
 *   PROGRAM --index NAME --share N  only this index, with an Nth of the work
 */
#ifndef TESTS_INDEXES_H
#define TESTS_INDEXES_H

#include "farside.h"
#include "index/tuning.h"
#include "support/index_tested.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *indexes_only; /* NULL: all */
static bool indexes_long;
static unsigned indexes_part; /* of --share, or 0 */

static inline unsigned indexes_count(void)
{
    unsigned count = 0;
    while (far_index_name(count))
        count++;
    return count;
}

/* Does each index get all of the work? */
static inline bool indexes_alone(void)
{
    return indexes_long || (indexes_only && indexes_part == 0);
}

/* What the present index does of the suite's work, at least 1. */
static inline unsigned indexes_share(unsigned work)
{
    unsigned count = indexes_alone() ? 1 : indexes_part ? indexes_part : indexes_count();
    return work > count ? work / count : 1;
}

/* Of several things that take long, is the nth one for the present index? Each is for one. */
static inline bool indexes_deal(unsigned nth)
{
    return indexes_alone() || strcmp(far_index_name(nth % indexes_count()), index_tested) == 0;
}

/* The tuning of small tables, which grow soon and often. */
static inline const char *indexes_smallest(void)
{
    return tuning_smallest(index_tested);
}

/* The nth index that the suite runs on. NULL past the last. */
static inline const char *indexes_nth(unsigned n)
{
    if (!indexes_only)
        return far_index_name(n);
    return n == 0 ? indexes_only : NULL;
}

static inline bool indexes_turn(unsigned n)
{
    const char *name = indexes_nth(n);
    if (!name)
        return false;
    index_tested = name;
    printf("index %s:\n", index_tested);
    fflush(stdout);
    return true;
}

/* Takes the arguments above; all others are the program's. Returns the next one's place. */
static inline int indexes_arguments(int argc, char **argv)
{
    int at = 1;
    for (; at < argc; at++) {
        if (strcmp(argv[at], "--long") == 0)
            indexes_long = true;
        else if (at + 1 < argc && strcmp(argv[at], "--share") == 0)
            indexes_part = (unsigned)atoi(argv[++at]);
        else if (at + 1 < argc && strcmp(argv[at], "--index") == 0)
            indexes_only = argv[++at];
        else
            break;
    }
    if (indexes_only && !tuning_smallest(indexes_only)) {
        fprintf(stderr, "unknown index '%s'\n", indexes_only);
        exit(2);
    }
    return at;
}

/* The number of tests that failed, of all indexes. */
#define INDEXES_RUN(tests)                                                                         \
    ({                                                                                             \
        int indexes_failed = 0;                                                                    \
        for (unsigned index_ = 0; indexes_turn(index_); index_++)                                  \
            indexes_failed += cmocka_run_group_tests_name(index_tested, tests, NULL, NULL);        \
        index_tested = "race";                                                                     \
        indexes_failed;                                                                            \
    })

#endif
