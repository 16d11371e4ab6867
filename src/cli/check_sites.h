/* What farside check --coverage shows: the faults that struck at each place that posts verbs. */
#ifndef CLI_CHECK_SITES_H
#define CLI_CHECK_SITES_H

#include "sim/sites.h"

#include <jansson.h>

/* Reads NAME,FAULT,N. False, and says why, if it is not that. */
bool check_sites_take_aim(const struct sites *s, const char *given, struct site_aim *aim);
/* The same as text. */
void check_sites_aim_text(const struct sites *s, const struct site_aim *aim, char *text,
                          size_t room);

void check_sites_print(const struct sites *s);
json_t *check_sites_json(const struct sites *s);

/* Compares with a file that lists what may stay unmet. False, and says why on stderr, if anything
 * else is unmet, or if the file is wrong. */
bool check_sites_compare(const struct sites *s, const char *path);

#endif
