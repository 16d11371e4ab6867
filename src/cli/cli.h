/*
 * The command line: what the subcommands share.
 *
 * A subcommand gets its own name as argv[0] and returns the exit status.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "out/text.h"

#include "farside.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

/* Exit statuses; farside(1) lists them. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_MISUSED = 2,
    CLI_MISSING = 3, /* there is no such key or table                       */
    CLI_EXISTS = 4,  /* there is one already, and the command wants to add it */
    CLI_PARTIAL = 5  /* done, but entries that are damaged were left out      */
};

struct cli_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

int cmd_bench(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_reproduce(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_exists(int argc, char **argv);
int cmd_put(int argc, char **argv);
int cmd_insert(int argc, char **argv);
int cmd_update(int argc, char **argv);
int cmd_incr(int argc, char **argv);
int cmd_del(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_pool_members(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_memd(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_keys(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_table(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_load(int argc, char **argv);

/* Runs the subcommand that argv[1] names, of an array that a NULL name ends. */
int cli_subcommand(const char *command, const struct cli_command *subcommands, int argc,
                   char **argv);

/* Prints to stderr what is wrong with the call, and where to read on. Returns CLI_MISUSED. */
int cli_misused(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints that no pool is given. Returns CLI_MISUSED. */
int cli_no_pool(const char *command);

/* Prints to stderr what failed and why: the status and its detail. Returns the exit status:
 * CLI_MISUSED if what the user typed (a URI, an index) is the cause, CLI_MISSING or CLI_EXISTS for
 * a key or a table, else CLI_FAILED. */
int cli_failed(const char *command, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One option of a command, and where its value goes: exactly one of the pointers is set. Help,
 * completion and manual have their options from here: scripts/man-options. */
struct cli_option {
    const char *name;  /* without the two hyphens; NULL ends an array of options */
    const char *takes; /* what its value is called */
    const char *help;  /* what it means, and in parentheses its default; NULL: it is not shown */
    char letter;       /* of a flag that also has a short name */
    bool *flag;        /* takes no value */
    const char **text;
    /* A number from min to max: a count, with k, m, g for powers of 1000, or if `bytes`, a size,
     * with k, m, g, t for powers of 1024. */
    unsigned *number;
    uint64_t *large;
    uint64_t min, max;
    bool bytes;
    /* Anything else. False if the text is not understood; the message is printed then. */
    bool (*take)(const char *command, const char *text, void *arg);
    void *arg;
    bool needed; /* the option must be given */
    bool pool;   /* the text is the pool; see CLI_POOL() */
};

/* --pool URI. Without it, the pool is the one that FARSIDE_POOL names, else what *uri is set to; if
 * that is NULL, a pool must be given. Every command that takes a pool has this option. */
#define CLI_POOL(uri)                                                                              \
    {                                                                                              \
        "pool", "URI", "the pool (FARSIDE_POOL)", .text = (uri), .pool = true                      \
    }
/* The table, for commands that work on one. */
#define CLI_TABLE(table)                                                                           \
    {                                                                                              \
        "table", "NAME", "the table (" CLI_DEFAULT_TABLE ")", .text = (table)                      \
    }
#define CLI_INDEX(index)                                                                           \
    {                                                                                              \
        "index", "NAME", "the index that keeps the table", .text = (index)                         \
    }
#define CLI_OPTIONS_MAX 32u

struct cli_syntax {
    const char *command;
    /* For --help: how it is called, what it does, what else there is to know, and what values of
     * its options can be. */
    const char *usage, *about, *notes;
    void (*lists)(void);
    const struct cli_option *options;
    const char *arg; /* what its first argument is called, if one must be given */
    int args_max;
    bool pool_arg; /* the pool may be given as an argument, ahead of the others */
};

/* Reads the options; the arguments are from argv[optind] on. False if there is nothing left to do,
 * because help was printed or the call was wrong: *code is the exit status then. */
bool cli_read(const struct cli_syntax *syntax, int argc, char **argv, int *code);

/* For --index LIST|all, the names joined by commas: arg is a struct cli_indexes *, with none for
 * all. */
#define CLI_INDEXES_MAX 16u
struct cli_indexes {
    const char *name[CLI_INDEXES_MAX];
    unsigned count;
    const char *text; /* as given; NULL: not given */
};
bool cli_take_indexes(const char *command, const char *text, void *arg);

/* Prints bytes to the stream, with the escapes of text_escape(). */
void cli_print_escaped(FILE *out, const void *bytes, size_t len);

/* For --help: the names of the indexes, and the tuning names of each index with their ranges and
 * defaults. */
void cli_print_indexes(void);
void cli_print_tuning(void);
/* Reads a key as typed, or from hexadecimal digits. Unless CLI_OK, the message is printed. */
int cli_take_key(const char *command, const char *text, bool hex, unsigned char key[FAR_KEY_MAX],
                 size_t *key_len);

/* A new object with the name of a table: "name", and if that is not UTF-8, "name_hex". */
struct json_t *cli_json_table(const char *name);

/* Opens the file of --json FILE|-; without a name, *file is NULL. False if it cannot be opened;
 * then the message is printed. */
bool cli_json_open(const char *command, const char *name, FILE **file);
/* Writes the object and closes the file. Takes over the reference; NULL means out of memory. */
int cli_json_close(const char *command, const char *name, FILE *file, struct json_t *object);
/* Prints the object to the standard output; takes over the reference. */
void cli_json_print(struct json_t *object);

/* Prints how many entries of a table are damaged and were left out. Returns CLI_PARTIAL. */
int cli_partial(const char *command, const char *table, uint64_t damaged);
/* Prints that memory ran out. Returns CLI_FAILED. */
int cli_no_memory(const char *command);

/*
 * A signal must not end a program that has a session open: the session would look dead, and keep
 * its slot and its memory until others have waited for its lease. So SIGINT, SIGTERM and SIGHUP set
 * a flag the first time, and kill the second time. SIGPIPE only sets it; the write then fails, as
 * it does beyond a limit of the file's size. Loops look at the flag, sessions are closed, and then
 * cli_end() lets the signal end the program, so that the shell sees it: the exit status is 128 and
 * the number of the signal.
 */
/* Begins to catch signals, and returns the flag. cli_open() does it, too. */
const atomic_bool *cli_stop_on_signals(void);
/* For commands that read or write streams while a session is open: a signal also ends a read or
 * write that waits, which fails with EINTR. cli_close_table() ends that, because the library's
 * system calls should not fail. */
void cli_interrupt_io(bool interrupt);
bool cli_stopped(void);
/* For far_session_watch(): a signal ends calls that walk whole tables. */
bool cli_go_on(void *arg, const char *what, uint64_t done, uint64_t total);
/* The same, but not if only the reader of the output has left, of which nobody needs to be told. */
bool cli_interrupted(void);
/* If a signal came, ends the program by it. Otherwise returns the code. */
int cli_end(int code);

/* Does "-" stand for the standard input or output? */
bool cli_is_dash(const char *name);

/* False if the standard output cannot be written. Remembers why, for main(). */
bool cli_output_good(void);
/* Writes what is buffered. Prints a message, unless the reader has left, and returns CLI_FAILED if
 * not all output could be written. */
int cli_output_end(void);

#define CLI_DEFAULT_TABLE "default"
#define CLI_DEFAULT_INDEX "race"

/* A pool and a table in it, as users name them. */
struct cli_target {
    const char *pool, *table, *index; /* index: NULL for any */
};

/* Names the memory nodes that the pool was opened without. Returns them as bits. */
uint64_t cli_print_away(const char *command, far_session *session);

/* Opens pool and session, and prints a note if the pool is mem:, or has nodes that are away. A
 * signal stops the session's long calls. Unless CLI_OK, the message is printed. */
int cli_open(const char *command, const struct cli_target *target, far_pool **pool,
             far_session **session);

struct cli_table {
    far_pool *pool;
    far_session *session;
    far_table *table;
};

/* Opens pool, session and table. Unless CLI_OK, the message is printed. */
int cli_open_table(const char *command, const struct cli_target *target, struct cli_table *table);
void cli_close_table(struct cli_table *table);

#endif
