/* RACE's tuning for a number of bucket groups; 0: as usual. */
#ifndef TESTS_RACE_GROUPS_H
#define TESTS_RACE_GROUPS_H

#include <stdio.h>

#define RACE_GROUPS(groups) race_groups_text((groups), (char[24]){""})

static inline const char *race_groups_text(unsigned groups, char text[24])
{
    if (groups)
        snprintf(text, 24, "groups=%u", groups);
    return text;
}

#endif
