/* Progress on stderr, if that is a terminal: a bar, or counts. A line is as long as the terminal is
 * wide at most, and is printed ten times a second at most. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;     /* is stderr a terminal? */
    bool line_open; /* the line is not empty */
    uint64_t since; /* when the current work began */
    uint64_t first; /* what was done by then */
    uint64_t next;  /* when the line is shown again */
    char what[64];  /* the current work */
};

void progress_init(struct progress *p);
void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t total);
/* For work whose end is not known: pairs and bytes so far, and bytes in a second. */
void progress_count(struct progress *p, const char *what, uint64_t pairs, uint64_t bytes);
/* Clears the line, so that something else can be printed. */
void progress_clear(struct progress *p);

#endif
