/* farside pool: checks and removes whole pools. */
#include "cli/cli.h"
#include "cli/progress.h"
#include "out/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Scripts must be able to distinguish "something is wrong with the pool" from "unknown". */
enum { CHECK_CLEAN = CLI_OK, CHECK_PROBLEMS = CLI_FAILED, CHECK_NOT_DONE = 3 };

#define COMMAND "pool check"

/* ---- output ---------------------------------------------------------------------------------- */

struct listener {
    struct progress progress;
    json_t *lines; /* NULL: print them */
    const atomic_bool *stop;
    bool repair;   /* without a terminal, print each step */
    char step[64]; /* the last one printed */
};

static void print_step(struct listener *t, const char *what)
{
    if (!t->repair || t->progress.shown || strncmp(t->step, what, sizeof t->step - 1) == 0)
        return;
    snprintf(t->step, sizeof t->step, "%s", what);
    fprintf(stderr, "farside " COMMAND ": %s\n", what);
}

static void on_finding(void *arg, const char *line)
{
    struct listener *t = arg;
    if (t->lines) {
        json_array_append_new(t->lines, out_text(line));
        return;
    }
    progress_clear(&t->progress);
    puts(line);
}

static bool on_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct listener *t = arg;
    progress_show(&t->progress, what, done, total);
    print_step(t, what);
    return !atomic_load(t->stop);
}

static bool is_clean(const struct far_pool_check *c, bool repair)
{
    return c->violations == 0 && c->stranded == 0 && c->leaked_bytes == 0 &&
           (repair || c->dead_clients == 0);
}

static void print_json(const char *uri, bool repair, const struct far_pool_check *c, json_t *lines)
{
    json_t *all = json_pack(
        "{s:s, s:o, s:b, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:o}", "farside",
        far_version(), "uri", out_text(uri), "repair", repair, "clean", is_clean(c, repair),
        "violations", (int)c->violations, "stranded", (int)c->stranded, "repaired",
        (int)c->repaired, "dead_sessions", (int)c->dead_clients, "salvaged_entries",
        (int)c->salvaged, "lost_entries", (int)c->lost, "leaked_bytes", (json_int_t)c->leaked_bytes,
        "repaired_bytes", (json_int_t)c->repaired_bytes, "findings", lines);
    cli_json_print(all);
}

static void print_summary(const char *uri, bool repair, const struct far_pool_check *c)
{
    unsigned dead = repair ? 0 : c->dead_clients;
    if (repair && (c->repaired > 0 || c->dead_clients > 0 || c->repaired_bytes > 0))
        printf("%s: repaired %u finding%s, %u dead session%s, %" PRIu64 " bytes\n", uri,
               c->repaired, text_plural(c->repaired), c->dead_clients, text_plural(c->dead_clients),
               c->repaired_bytes);
    if (c->salvaged > 0 || c->lost > 0)
        printf("%s: of damaged entries %u were salvaged and %u lost\n", uri, c->salvaged, c->lost);
    if (is_clean(c, repair))
        printf("%s: clean\n", uri);
    else
        printf("%s: %u damaged, %u lock%s stranded, %u session%s dead, %" PRIu64
               " bytes leaked%s\n",
               uri, c->violations, c->stranded, text_plural(c->stranded), dead, text_plural(dead),
               c->leaked_bytes, repair ? "" : "; try --repair");
}

/* ---- check ----------------------------------------------------------------------------------- */

static int cannot_check(int rc, const char *uri)
{
    int code = cli_failed(COMMAND, rc, "cannot check the pool '%s'", uri);
    return code == CLI_MISUSED ? code : CHECK_NOT_DONE;
}

static int check_open_pool(far_pool *pool, const char *uri, bool repair, bool json)
{
    struct listener t = {.lines = json ? json_array() : NULL, .repair = repair};
    struct far_pool_check check = {0};
    far_session *session = NULL;

    t.stop = cli_stop_on_signals();
    progress_init(&t.progress);
    if (repair)
        print_step(&t, "opening a session");
    int rc = far_session_open(pool, NULL, &session);
    if (rc == FAR_OK) {
        far_session_watch(session, on_progress, &t);
        rc = far_pool_check(session, repair, on_finding, &t, &check);
        progress_clear(&t.progress);
    }
    if (rc != FAR_OK && (rc != FAR_CORRUPT || !session)) {
        int code = cannot_check(rc, uri);
        json_decref(t.lines);
        far_session_close(session);
        return code;
    }
    far_session_close(session);
    if (json)
        print_json(uri, repair, &check, t.lines);
    else
        print_summary(uri, repair, &check);
    return is_clean(&check, repair) ? CHECK_CLEAN : CHECK_PROBLEMS;
}

static int check_pool(const char *uri, bool repair, bool json)
{
    far_pool *pool = NULL;
    int rc = far_pool_open(uri, &pool);
    if (rc == FAR_CORRUPT) { /* the pool was reached, and is damaged */
        cli_failed(COMMAND, rc, "cannot open the pool '%s'", uri);
        return CHECK_PROBLEMS;
    }
    if (rc != FAR_OK)
        return cannot_check(rc, uri);
    int code = check_open_pool(pool, uri, repair, json);
    far_pool_close(pool);
    return code;
}

static int cmd_pool_check(int argc, char **argv)
{
    const char *uri = NULL;
    bool repair = false, json = false;
    const struct cli_option options[] = {
        CLI_POOL(&uri),
        {"repair", NULL, "repair what is wrong", .flag = &repair},
        {"json", NULL, "print JSON", .flag = &json},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = COMMAND,
        .usage = "[[--pool] URI] [OPTION...]",
        .about = "Walks a whole pool while others work on it, and reports what is wrong: broken "
                 "links, duplicates, and locks and memory of dead sessions.",
        .notes = "The exit status is 0 if nothing is wrong (or all was repaired), 1 if something "
                 "is, 2 if the command was used wrongly, and 3 if the pool could not be checked.",
        .options = options,
        .pool_arg = true,
    };
    int code = CLI_OK;
    return cli_read(&syntax, argc, argv, &code) ? check_pool(uri, repair, json) : code;
}

/* ---- remove ---------------------------------------------------------------------------------- */

#define REMOVE "pool remove"

struct removal {
    const char *uri;
    bool yes, force;
    struct far_pool_info info; /* without force: what is removed */
};

static int refuse_removal(const char *uri, const char *why)
{
    fprintf(stderr, "farside " REMOVE ": cannot remove the pool '%s': %s\n", uri, why);
    return CLI_FAILED;
}

/* Refuses pools that have no file. */
static int check_removable(const char *uri)
{
    if (strncmp(uri, "mem:", 4) == 0)
        return refuse_removal(uri, "a mem: pool is gone when its process ends");
    if (strncmp(uri, "ucx:", 4) == 0 || strncmp(uri, "verbs:", 6) == 0)
        return refuse_removal(uri, "it is the memory of its nodes: stop each 'farside memd', and "
                                   "remove the file of its --file");
    return CLI_OK;
}

/* What the pool holds. The options of the URI are left out: with a size, opening a pool that does
 * not exist would create it. */
static int look(struct removal *r)
{
    far_pool *pool = NULL;
    far_session *session = NULL;
    char *place = strndup(r->uri, strcspn(r->uri, "?"));
    if (!place)
        return cli_no_memory(REMOVE);
    cli_stop_on_signals();
    int rc = far_pool_open(place, &pool);
    if (rc == FAR_OK)
        rc = far_session_open(pool, NULL, &session);
    if (rc == FAR_OK)
        rc = far_pool_info(session, &r->info);
    free(place);
    int code = rc == FAR_OK ? CLI_OK : cli_failed(REMOVE, rc, "cannot open the pool '%s'", r->uri);
    if (code != CLI_OK && (rc == FAR_CORRUPT || rc == FAR_LAYOUT || rc == FAR_NO_CLIENT_SLOT))
        fprintf(stderr, "With --force it is removed all the same.\n");
    far_session_close(session);
    far_pool_close(pool);
    return code;
}

/* Is the pool in use? The session that counts is among those that it counts. */
static int check_unused(const struct removal *r)
{
    unsigned others = r->info.clients - 1;
    if (others == 0)
        return CLI_OK;
    fprintf(stderr,
            "farside " REMOVE ": the pool '%s' has %u other session%s, alive or dead.\n"
            "'farside pool check --repair' removes dead ones; with --force the pool is removed all "
            "the same.\n",
            r->uri, others, text_plural(others));
    return CLI_FAILED;
}

static bool ask(const struct removal *r)
{
    char answer[8] = "";
    fprintf(stderr, "Remove the pool '%s'", r->uri);
    if (!r->force)
        fprintf(stderr, " with %u table%s", r->info.tables, text_plural(r->info.tables));
    fputs("? [y/N] ", stderr);
    cli_interrupt_io(true);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int remove_pool(struct removal *r)
{
    int code = check_removable(r->uri);
    if (code == CLI_OK && !r->force)
        code = look(r);
    if (code == CLI_OK && !r->force)
        code = check_unused(r);
    if (code != CLI_OK)
        return code;
    if (!r->yes && !ask(r))
        return refuse_removal(r->uri, "the answer was not yes");
    int rc = far_pool_remove(r->uri);
    return rc == FAR_OK ? CLI_OK : cli_failed(REMOVE, rc, "cannot remove the pool '%s'", r->uri);
}

static int cmd_pool_remove(int argc, char **argv)
{
    struct removal r = {.uri = NULL};
    const struct cli_option options[] = {
        CLI_POOL(&r.uri),
        {"yes", NULL, "do not ask", .flag = &r.yes},
        {"force", NULL, "also a pool that has sessions, or cannot be opened", .flag = &r.force},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = REMOVE,
        .usage = "[[--pool] URI] [OPTION...]",
        .about = "Removes a shm: pool with everything in it, after asking.",
        .options = options,
        .pool_arg = true,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (!r.yes && !isatty(STDIN_FILENO))
        return cli_misused(REMOVE, "there is no terminal to ask on: give --yes");
    return remove_pool(&r);
}

int cmd_pool(int argc, char **argv)
{
    static const struct cli_command subcommands[] = {
        {.name = "check", .run = cmd_pool_check},
        {.name = "members", .run = cmd_pool_members},
        {.name = "remove", .run = cmd_pool_remove},
        {.name = NULL},
    };
    return cli_subcommand("pool", subcommands, argc, argv);
}
