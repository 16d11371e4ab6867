/*
 * Files that a command writes at its end, such as --report and --csv.
 *
 * They are opened before the command begins its work, so that a name that cannot be written is
 * refused at once. Until everything is written, the content is in NAME.part; so a command that
 * fails or is killed leaves an older file as it was.
 */
#ifndef CLI_OUTFILE_H
#define CLI_OUTFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

struct outfile {
    const char *command, *name; /* name: NULL if the file is not wanted */
    FILE *file;
    char path[PATH_MAX]; /* where links lead to */
    char part[PATH_MAX]; /* "": the file is a device or a pipe, which is written directly */
};

/* Without a name, `file` is NULL; "-" is the standard output. False if it cannot be opened; then
 * the message is printed. */
bool outfile_open(struct outfile *o, const char *command, const char *name);
/* Puts what was written in the place of the file. If that fails, or `good` is false because memory
 * ran out, prints a message. Returns an exit status. */
int outfile_close(struct outfile *o, bool good);
/* Closes the file and leaves an older one as it was. */
void outfile_discard(struct outfile *o);

#endif
