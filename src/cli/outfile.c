#include "cli/outfile.h"

#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".part"

static bool cannot_write(const struct outfile *o)
{
    fprintf(stderr, "farside %s: cannot write '%s': %s\n", o->command, o->name, strerror(errno));
    return false;
}

/* Sets path and part. False: errno says why. */
static bool find_paths(struct outfile *o)
{
    struct stat status;
    char real[PATH_MAX];
    const char *path = realpath(o->name, real) ? real : o->name;
    bool there = stat(path, &status) == 0;
    if (!*o->name || (there && S_ISDIR(status.st_mode))) {
        errno = *o->name ? EISDIR : ENOENT;
        return false;
    }
    if (there && access(path, W_OK) != 0)
        return false;
    if (strlen(path) + sizeof SUFFIX > sizeof o->part) {
        errno = ENAMETOOLONG;
        return false;
    }
    strcpy(o->path, path);
    if (!there || S_ISREG(status.st_mode))
        strcat(strcpy(o->part, path), SUFFIX);
    return true;
}

bool outfile_open(struct outfile *o, const char *command, const char *name)
{
    *o = (struct outfile){.command = command, .name = name};
    if (!name)
        return true;
    if (cli_is_dash(name)) {
        o->file = stdout;
        return true;
    }
    if (!find_paths(o))
        return cannot_write(o);
    o->file = fopen(*o->part ? o->part : o->path, "w");
    return o->file || cannot_write(o);
}

void outfile_discard(struct outfile *o)
{
    if (o->file && o->file != stdout)
        fclose(o->file);
    if (o->file && *o->part)
        unlink(o->part);
    o->file = NULL;
}

int outfile_close(struct outfile *o, bool good)
{
    if (!o->file)
        return CLI_OK;
    if (!good) {
        outfile_discard(o);
        return cli_no_memory(o->command);
    }
    if (o->file == stdout) { /* main() looks whether it could be written */
        o->file = NULL;
        return CLI_OK;
    }
    good = fflush(o->file) == 0 && !ferror(o->file);
    if (good && *o->part) /* a pipe cannot be synchronized */
        good = fsync(fileno(o->file)) == 0 && rename(o->part, o->path) == 0;
    if (!good) {
        cannot_write(o);
        outfile_discard(o);
        return CLI_FAILED;
    }
    fclose(o->file);
    o->file = NULL;
    return CLI_OK;
}
