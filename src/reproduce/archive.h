/*
 * The directory with the results: a file DIR/EXPERIMENT/CELL.json for each measured cell.
 *
 * A file is written under another name and then renamed, so it is there as a whole or not at all.
 * It contains the version and the configuration, by which a later run decides whether it can use
 * the result.
 */
#ifndef REPRODUCE_ARCHIVE_H
#define REPRODUCE_ARCHIVE_H

#include <jansson.h>
#include <stdbool.h>

struct archive_key {
    const char *dir, *experiment, *cell;
    json_t *configuration; /* borrowed */
};

enum archive_state {
    ARCHIVE_NONE,  /* there is no result */
    ARCHIVE_OTHER, /* of another configuration or version, or not a result at all */
    ARCHIVE_FOUND
};

/* Does the directory have results of the experiment? */
bool archive_has(const char *dir, const char *experiment);

/* Makes the directories. FAR_SYSTEM: the detail says what cannot be made. */
int archive_make(const char *dir, const char *experiment);

/* Looks for the result of a cell. If it is found, *runs is set to a new reference. */
enum archive_state archive_load(const struct archive_key *key, json_t **runs);

/* Keeps a result. FAR_SYSTEM: the detail says why it cannot be written. FAR_NO_MEMORY. */
int archive_save(const struct archive_key *key, json_t *runs);

#endif
