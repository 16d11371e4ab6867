/* farside dump: writes tables to a file. docs/dump.md describes the formats. */
#include "cli/cli.h"
#include "cli/dump_write.h"
#include "cli/progress.h"
#include "cli/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND        "dump"
#define BUF_BYTES      (1u << 20) /* of entries at first; grows to the longest */
#define CHOSEN_MAX     256u
#define OWNER_ONLY     0600 /* as the files of new pools */
#define PARTIAL_END    ".partial"
#define INCOMPLETE_END ".incomplete"

struct dump_call {
    struct cli_target target;
    const char *chosen[CHOSEN_MAX]; /* --table; none: all */
    unsigned count;
    bool json;
    const char *name; /* of the file */
};

/* Where the dump goes. A regular file is written under another name first, so that what has its
 * name is always a whole dump. */
struct output {
    const char *name;
    char *partial; /* NULL: written in place */
    char *target;  /* the name without links; NULL: written in place */
    mode_t mode;   /* that the dump gets */
    FILE *file;
};

struct dumping {
    const struct dump_call *call;
    struct cli_table t;
    struct output out;
    struct dump_writer writer;
    struct progress progress;
    char *buf; /* of entries */
    size_t cap, len;
    uint64_t away;    /* nodes whose part of the tables is left out */
    uint64_t damaged; /* entries that were left out, at most */
};

/* ---- the file -------------------------------------------------------------------------------- */

static int cannot_write(const struct output *out)
{
    int why = errno;
    if (!cli_stopped()) /* a signal, or a reader that has left */
        fprintf(stderr, "farside " COMMAND ": cannot write '%s': %s\n", out->name,
                why == EWOULDBLOCK ? "another dump is writing it" : strerror(why));
    return CLI_FAILED;
}

/* Locks the file for this dump, and makes sure that it still has its name: another dump may have
 * published it in between. One that was killed does not hold its lock. */
static bool own(int fd, const char *name)
{
    struct stat locked, named;
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &locked) != 0)
        return false;
    errno = EWOULDBLOCK;
    return stat(name, &named) == 0 && named.st_dev == locked.st_dev &&
           named.st_ino == locked.st_ino;
}

#define FRESH (O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW)

/* A new file, whatever has the name: that may be what a killed dump left, or a file or a link that
 * somebody has put there. A file that another dump is writing is locked. */
static int open_fresh(const char *name)
{
    int fd = open(name, FRESH, OWNER_ONLY);
    if (fd >= 0 || errno != EEXIST)
        return fd;
    int old = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    bool locked = old >= 0 && flock(old, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!locked && unlink(name) == 0)
        fd = open(name, FRESH, OWNER_ONLY);
    int why = errno;
    if (old >= 0)
        close(old);
    errno = why;
    return fd;
}

static FILE *open_partial(struct output *out)
{
    size_t size = strlen(out->target) + sizeof PARTIAL_END;
    out->partial = malloc(size);
    if (!out->partial)
        return NULL;
    snprintf(out->partial, size, "%s" PARTIAL_END, out->target);
    int fd = open_fresh(out->partial);
    FILE *file = own(fd, out->partial) ? fdopen(fd, "w") : NULL;
    if (file)
        return file;
    int why = errno;
    if (fd >= 0)
        close(fd);
    free(out->partial); /* it is not ours to remove */
    out->partial = NULL;
    errno = why;
    return NULL;
}

/* A link stays, and the file that it leads to is replaced. */
static int open_output(struct output *out, const char *name)
{
    struct stat st;
    *out = (struct output){.name = name, .mode = OWNER_ONLY};
    if (cli_is_dash(name)) {
        out->file = stdout;
        return CLI_OK;
    }
    bool there = stat(name, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) {
        out->file = fopen(name, "w");
    } else {
        out->target = there ? realpath(name, NULL) : strdup(name);
        out->mode = there ? st.st_mode & 07777 : OWNER_ONLY;
        out->file = out->target ? open_partial(out) : NULL;
    }
    return out->file ? CLI_OK : cannot_write(out);
}

/* Makes the new name last: until its directory is written, a crash may undo it. Some file systems
 * cannot do that. */
static bool sync_directory(const char *name)
{
    char *copy = strdup(name);
    int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool good = fd < 0 || fsync(fd) == 0 || errno == EINVAL;
    if (fd >= 0)
        close(fd);
    free(copy);
    return good;
}

/* A dump that lacks what is on nodes that are away must not replace a whole one: it gets a name of
 * its own. */
static bool rename_incomplete(struct output *out)
{
    size_t size = strlen(out->target) + sizeof INCOMPLETE_END;
    char *name = malloc(size);
    if (!name)
        return false;
    snprintf(name, size, "%s" INCOMPLETE_END, out->target);
    free(out->target);
    out->target = name;
    return true;
}

/* Gives the complete dump its name. */
static int publish(struct output *out, bool incomplete)
{
    if (!out->partial)
        return CLI_OK;
    if (incomplete && !rename_incomplete(out))
        return cannot_write(out);
    if (fchmod(fileno(out->file), out->mode) != 0 || fsync(fileno(out->file)) != 0 ||
        rename(out->partial, out->target) != 0)
        return cannot_write(out);
    free(out->partial);
    out->partial = NULL;
    return sync_directory(out->target) ? CLI_OK : cannot_write(out);
}

/* Closes the file. A dump that was not published leaves nothing behind. */
static void close_output(struct output *out)
{
    if (out->partial)
        unlink(out->partial);
    if (out->file && out->file != stdout)
        fclose(out->file);
    free(out->partial);
    free(out->target);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Writes the entries in the buffer. */
static bool write_entries(struct dumping *d)
{
    struct far_entry e;
    for (size_t pos = 0; far_entry_next(d->buf, d->len, &pos, &e);) {
        struct dump_pair pair = {
            .key = e.key, .key_len = e.key_len, .value = e.value, .value_len = e.value_len};
        if (!dump_add_pair(&d->writer, &pair))
            return false;
    }
    return true;
}

static bool grow(struct dumping *d, size_t cap)
{
    char *bigger = realloc(d->buf, cap);
    if (!bigger)
        return false;
    d->buf = bigger;
    d->cap = cap;
    return true;
}

/* far_iterate() that counts the entries that are left out. */
static int read_entries(struct dumping *d, uint64_t *cursor, uint64_t *damaged)
{
    struct far_op op = {.kind = FAR_OP_ITERATE,
                        .table = d->t.table,
                        .cursor = *cursor,
                        .flags = FAR_PASS_AWAY,
                        .buf = d->buf,
                        .cap = d->cap};
    struct far_result result;
    int rc = far_execute(d->t.session, &op, &result);
    d->len = result.len;
    if (rc == FAR_OK || rc == FAR_PARTIAL)
        *cursor = result.cursor;
    *damaged += result.damaged;
    return rc == FAR_PARTIAL ? FAR_OK : rc;
}

static int write_pairs(struct dumping *d, const char *name)
{
    uint64_t cursor = 0, damaged = 0;
    int rc = FAR_OK;
    do {
        rc = read_entries(d, &cursor, &damaged);
        if (rc == FAR_TOO_SMALL && !grow(d, d->len))
            return cli_no_memory(COMMAND);
        if (rc == FAR_OK && !write_entries(d))
            return cannot_write(&d->out);
        progress_count(&d->progress, name, d->writer.totals.pairs, d->writer.totals.bytes);
    } while ((rc == FAR_TOO_SMALL || (rc == FAR_OK && cursor != 0)) && !cli_stopped());
    int code = CLI_OK;
    if (rc != FAR_OK && !cli_stopped())
        code = cli_failed(COMMAND, rc, "cannot read the table '%s'", name);
    if (damaged > 0) {
        progress_clear(&d->progress);
        (void)cli_partial(COMMAND, name, damaged);
    }
    d->damaged += damaged;
    return rc == FAR_UNREACHABLE && d->away ? CLI_OK : code; /* the rest of the table is left out */
}

static int write_table(struct dumping *d, const char *name)
{
    struct far_table_info info;
    struct dump_table table = {.name = ""};
    d->t.table = NULL;
    int rc = far_table_open(d->t.session, name, NULL, &d->t.table);
    if (rc == FAR_OK)
        rc = far_table_info(d->t.session, d->t.table, &info);
    if (rc == FAR_UNREACHABLE && d->away && d->t.table) {
        info.tuning[0] = '\0';
        fprintf(stderr, "farside " COMMAND ": the tuning of the table '%s' is left out\n", name);
        rc = FAR_OK;
    }
    if (rc == FAR_NO_TABLE && d->call->count == 0) /* dropped since the tables were listed */
        return CLI_OK;
    if (rc != FAR_OK)
        return cli_failed(COMMAND, rc, "cannot read the table '%s'", name);
    snprintf(table.name, sizeof table.name, "%s", name);
    snprintf(table.index, sizeof table.index, "%s", far_table_index(d->t.table));
    snprintf(table.tuning, sizeof table.tuning, "%s", info.tuning);
    if (!dump_add_table(&d->writer, &table))
        return cannot_write(&d->out);
    return write_pairs(d, name);
}

static int write_tables(struct dumping *d, const struct table_list *all)
{
    const struct dump_call *c = d->call;
    unsigned count = c->count > 0 ? c->count : all->count;
    int code = CLI_OK;
    for (unsigned i = 0; i < count && code == CLI_OK && !cli_stopped(); i++)
        code = write_table(d, c->count > 0 ? c->chosen[i] : all->item[i].name);
    return code;
}

static int write_dump(struct dumping *d, const struct table_list *all)
{
    int code = open_output(&d->out, d->call->name);
    if (code != CLI_OK)
        return code;
    code = dump_begin(&d->writer, d->out.file, d->call->json) ? write_tables(d, all)
                                                              : cannot_write(&d->out);
    progress_clear(&d->progress);
    if (code == CLI_OK && cli_stopped())
        code = CLI_FAILED;
    if (code == CLI_OK && !dump_finish(&d->writer))
        code = cannot_write(&d->out);
    if (code == CLI_OK)
        code = publish(&d->out, d->away != 0);
    if (cli_interrupted())
        fprintf(stderr,
                "farside " COMMAND ": interrupted after %" PRIu64 " pairs: '%s' is not %s\n",
                d->writer.totals.pairs, d->out.name, d->out.partial ? "written" : "complete");
    if (code == CLI_OK && d->out.file != stdout)
        dump_print_totals(stdout, &d->writer.totals);
    if (code == CLI_OK && d->away != 0) {
        fprintf(stderr,
                "farside " COMMAND
                ": '%s' is incomplete: it lacks what the nodes hold that are away\n",
                d->out.target ? d->out.target : d->out.name);
        code = CLI_FAILED;
    }
    if (code == CLI_OK && d->damaged > 0)
        code = CLI_PARTIAL;
    dump_writer_free(&d->writer);
    close_output(&d->out);
    return code;
}

/* Before anything is written: are all chosen tables there? */
static int check_chosen(const struct dump_call *c, const struct table_list *all)
{
    for (unsigned i = 0; i < c->count; i++)
        if (!table_list_find(all, c->chosen[i]))
            return cli_failed(COMMAND, FAR_NO_TABLE, "cannot dump the table '%s'", c->chosen[i]);
    return CLI_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int dump(const struct dump_call *c)
{
    struct dumping d = {.call = c, .buf = malloc(BUF_BYTES), .cap = BUF_BYTES};
    struct table_list all = {.count = 0};
    int code =
        d.buf ? cli_open(COMMAND, &c->target, &d.t.pool, &d.t.session) : cli_no_memory(COMMAND);
    if (code != CLI_OK) {
        free(d.buf);
        return code;
    }
    cli_interrupt_io(true);
    progress_init(&d.progress);
    struct far_pool_info info = {.nodes_away = 0};
    int rc = far_pool_info(d.t.session, &info);
    d.away = info.nodes_away;
    if (rc == FAR_OK)
        rc = table_list_read(d.t.session, &all);
    code = rc == FAR_OK ? check_chosen(c, &all) : cli_failed(COMMAND, rc, "cannot list the tables");
    if (code == CLI_OK)
        code = write_dump(&d, &all);
    table_list_free(&all);
    free(d.buf);
    cli_close_table(&d.t);
    return code;
}

static bool take_chosen(const char *command, const char *text, void *arg)
{
    struct dump_call *c = arg;
    if (c->count < CHOSEN_MAX) {
        c->chosen[c->count++] = text;
        return true;
    }
    cli_misused(command, "too many --table options: at most %u are allowed", CHOSEN_MAX);
    return false;
}

int cmd_dump(int argc, char **argv)
{
    struct dump_call c = {.count = 0};
    const struct cli_option options[] = {
        CLI_POOL(&c.target.pool),
        {"table", "NAME", "only this table; may be repeated (all tables)", .take = take_chosen,
         .arg = &c},
        {"json", NULL, "write JSON lines, for people; they have no checksums", .flag = &c.json},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = COMMAND,
        .usage = "[OPTION...] FILE|-",
        .about = "Writes tables with their index, their tuning and all their pairs to FILE, or "
                 "with - to the standard output, for 'farside load'. FILE is replaced when the "
                 "dump is complete. Others may change the tables meanwhile: each pair was there at "
                 "some instant.",
        .notes = "Entries that are damaged, or in a part of a table that is, are left out, all "
                 "others are written, and the exit status is 5.",
        .options = options,
        .arg = "FILE",
        .args_max = 1,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    c.name = argv[optind];
    if (c.name[0] == '\0')
        return cli_misused(COMMAND, "the name of the file is empty");
    if (cli_is_dash(c.name) && !c.json && isatty(STDOUT_FILENO))
        return cli_misused(COMMAND, "a terminal cannot show records: give a FILE, or --json");
    return dump(&c);
}
