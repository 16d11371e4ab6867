/*
 * The command line: what the subcommands share.
 *
 * A subcommand gets its own name as argv[0] and returns the exit status.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "farside.h"

#include <getopt.h>
#include <stdbool.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_MISUSED = 2 };

struct cli_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

int cmd_bench(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_put(int argc, char **argv);
int cmd_del(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_memd(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_drop(int argc, char **argv);

/* Says on stderr what is wrong with the call, and where to read on. Returns CLI_MISUSED. */
int cli_misused(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says on stderr what failed and why: the status and its detail. Returns CLI_MISUSED if the status
 * blames what the user typed (a URI, an index), else CLI_FAILED. */
int cli_failed(const char *command, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What getopt_long() returned is '?' or ':'. Its own messages must be off: opterr = 0, and the
 * short options begin with ':'. Returns CLI_MISUSED. */
int cli_bad_option(const char *command, int got, char **argv);

/* Numbers as options have them: counts with k, m, g for powers of 1000, sizes with powers of 1024.
 * False, with the message said, if it is not one or out of [min, max]. */
bool cli_count(const char *command, const char *option, uint64_t min, uint64_t max,
               uint64_t *value);
bool cli_size(const char *command, const char *option, uint64_t min, uint64_t max, uint64_t *value);

/* For --help: the names that each index knows, with their ranges and defaults. */
void cli_print_tuning(void);
/* A key as it was typed, or in hexadecimal digits. CLI_OK, or the message was said. */
int cli_take_key(const char *command, const char *text, bool hex, unsigned char key[FAR_KEY_MAX],
                 size_t *key_len);

/* Text for JSON, which has to be UTF-8: other bytes become "\xHH". NULL when out of memory. */
struct json_t *cli_json_text(const char *text);

/*
 * A signal must not end a program that has a session open: the session would look dead, and keep its
 * slot and its memory until others have waited for its lease. SIGINT, SIGTERM and SIGHUP call the
 * handler, and kill at the second time; SIGPIPE calls it, and then is an error of the write.
 */
void cli_catch_signals(void (*handler)(int number));
/* The same for programs that just go on to their end, which is near, and then say by their exit status
 * that they were asked to stop. */
void cli_hold_signals(void);
bool cli_stopped(void);

#define CLI_DEFAULT_TABLE "default"

/* A pool and a table in it, as get, put, del, stat and drop name them. */
struct cli_target {
    const char *pool, *table, *index; /* index: NULL for any */
};

/* Opens pool and session; says that a mem: pool will not last. CLI_OK, or the message was said. */
int cli_open(const char *command, const struct cli_target *target, far_pool **pool,
             far_session **session);

#endif
