/* A line on a terminal that says how far long work has come. Says nothing into a pipe. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;     /* is stderr a terminal? */
    bool line_open; /* something stands on the line */
    uint64_t since; /* when the work at hand was first seen */
    uint64_t first; /* and how far it was then */
    char what[64];  /* the work at hand */
};

void progress_init(struct progress *p);
void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t total);
/* Wipes the line, so that something else can be printed. */
void progress_clear(struct progress *p);

#endif
