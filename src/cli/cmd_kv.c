/* farside get, exists, put, insert, update, incr, del: commands on one key, with the same
 * options. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kv_command {
    const char *name, *usage, *about;
    bool creates; /* a table that does not exist */
    int args_max;
};

struct kv_call {
    const char *command;
    struct cli_target target;
    const char *tuning; /* of a table that is created */
    bool hex;
    const char *key_text, *value_text; /* value_text: NULL if not given */
    unsigned char key[FAR_KEY_MAX];
    size_t key_len;
};

#define VALUE_HELP                                                                                 \
    "Without VALUE, or with -, the value is read from the standard input, up to its end. "
#define CREATE_HELP                                                                                \
    "If the table does not exist, it is created and kept by the index that --index names "         \
    "(" CLI_DEFAULT_INDEX ")."

static const struct kv_command get_command = {
    "get", "[OPTION...] KEY",
    "Writes the value of KEY to the standard output, without change; on a terminal, control "
    "characters and backslashes are escaped, and a newline follows. The exit status is 3 if there "
    "is no such key.",
    false, 1};
static const struct kv_command exists_command = {
    "exists", "[OPTION...] KEY",
    "Prints nothing. The exit status is 0 if there is such a key, and 3 if there is none.", false,
    1};
static const struct kv_command put_command = {
    "put", "[OPTION...] KEY [VALUE|-]",
    "Sets the value of KEY, whether or not the key exists. " VALUE_HELP CREATE_HELP, true, 2};
static const struct kv_command insert_command = {
    "insert", "[OPTION...] KEY [VALUE|-]",
    "Adds KEY with a value. If the key exists, nothing is changed and the exit status is "
    "4. " VALUE_HELP CREATE_HELP,
    true, 2};
static const struct kv_command update_command = {
    "update", "[OPTION...] KEY [VALUE|-]",
    "Sets the value of KEY. If there is no such key, none is added and the exit status is "
    "3. " VALUE_HELP,
    false, 2};
static const struct kv_command incr_command = {
    "incr", "[OPTION...] KEY [BY]",
    "Adds BY (1) to the value of KEY, as one atomic operation, and prints the sum. The value is a "
    "decimal number of 64 bits with a sign; an absent key counts as 0. If it is anything else, or "
    "the sum does not fit, nothing is changed. " CREATE_HELP,
    true, 2};
static const struct kv_command del_command = {
    "del", "[OPTION...] KEY",
    "Deletes KEY and its value. The exit status is 3 if there is no such key.", false, 1};

/* ---- reading the call ------------------------------------------------------------------------ */

/* Reads the options, the key and the value. False: as cli_read(). */
static bool read_call(struct kv_call *c, const struct kv_command *command, int argc, char **argv,
                      int *code)
{
    *c = (struct kv_call){.command = command->name, .target = {.table = CLI_DEFAULT_TABLE}};
    const struct cli_option options[] = {
        CLI_POOL(&c->target.pool),
        CLI_TABLE(&c->target.table),
        CLI_INDEX(&c->target.index),
        {"hex", NULL, "KEY is in hexadecimal, two digits for each byte", .flag = &c->hex},
        {command->creates ? "tuning" : NULL, "TEXT",
         "parameters of a table that is created: name=number, joined by &", .text = &c->tuning},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = command->name,
        .usage = command->usage,
        .about = command->about,
        .notes = "Put -- before a KEY that begins with -.",
        .lists = command->creates ? cli_print_tuning : NULL,
        .options = options,
        .arg = "KEY",
        .args_max = command->args_max,
    };
    if (!cli_read(&syntax, argc, argv, code))
        return false;
    c->key_text = argv[optind];
    c->value_text = argc - optind > 1 ? argv[optind + 1] : NULL;
    *code = cli_take_key(c->command, c->key_text, c->hex, c->key, &c->key_len);
    return *code == CLI_OK;
}

/* ---- working on a table ---------------------------------------------------------------------- */

/* Creates the table if it does not exist; opens it if another client was faster. `*doing` says
 * which of the two has failed. */
static int open_or_create(struct cli_table *t, const struct kv_call *c, const char **doing)
{
    const struct cli_target *target = &c->target;
    struct far_table_options made = {.tuning = c->tuning};
    int rc = far_table_open(t->session, target->table, target->index, &t->table);
    *doing = "open";
    if (rc == FAR_NO_TABLE) {
        rc = far_table_create(t->session, target->table,
                              target->index ? target->index : CLI_DEFAULT_INDEX, &made, &t->table);
        if (rc != FAR_TABLE_EXISTS) {
            *doing = "create";
            return rc;
        }
        rc = far_table_open(t->session, target->table, target->index, &t->table);
    }
    if (rc == FAR_OK && c->tuning)
        fprintf(stderr, "farside %s: note: the table exists already, so --tuning has no effect\n",
                c->command);
    return rc;
}

static int open_table_to_add(const struct kv_call *c, struct cli_table *t)
{
    *t = (struct cli_table){.pool = NULL};
    int code = cli_open(c->command, &c->target, &t->pool, &t->session);
    if (code != CLI_OK)
        return code;
    const char *doing = NULL;
    int rc = open_or_create(t, c, &doing);
    if (rc == FAR_OK)
        return CLI_OK;
    code = cli_failed(c->command, rc, "cannot %s the table '%s'", doing, c->target.table);
    cli_close_table(t);
    return code;
}

static int failed_on_key(const struct kv_call *c, int rc)
{
    return cli_failed(c->command, rc, "key '%s'", c->key_text);
}

/* ---- the commands ---------------------------------------------------------------------------- */

static int print_value(const struct kv_call *c, struct cli_table *t, unsigned char *buf)
{
    size_t len = 0;
    int rc = far_get(t->session, t->table, c->key, c->key_len, buf, FAR_VALUE_MAX, &len);
    if (rc != FAR_OK)
        return failed_on_key(c, rc);
    if (isatty(STDOUT_FILENO)) { /* which control characters would change */
        cli_print_escaped(stdout, buf, len);
        fputc('\n', stdout);
    } else {
        fwrite(buf, 1, len, stdout);
    }
    return CLI_OK;
}

int cmd_get(int argc, char **argv)
{
    struct kv_call c;
    struct cli_table t;
    int code = CLI_OK;
    if (!read_call(&c, &get_command, argc, argv, &code))
        return code;
    code = cli_open_table(c.command, &c.target, &t);
    if (code != CLI_OK)
        return code;
    unsigned char *buf = malloc(FAR_VALUE_MAX);
    code = buf ? print_value(&c, &t, buf) : cli_no_memory(c.command);
    free(buf);
    cli_close_table(&t);
    return code;
}

/* Reads the standard input to its end. */
static int read_value(const char *command, unsigned char *buf, size_t *len)
{
    size_t n = fread(buf, 1, FAR_VALUE_MAX, stdin);
    if (ferror(stdin)) {
        fprintf(stderr, "farside %s: cannot read the value: %s\n", command, strerror(errno));
        return CLI_FAILED;
    }
    if (n == FAR_VALUE_MAX && fgetc(stdin) != EOF) {
        fprintf(stderr, "farside %s: the value is longer than %u bytes\n", command, FAR_VALUE_MAX);
        return CLI_FAILED;
    }
    *len = n;
    return CLI_OK;
}

typedef int store_fn(far_session *session, far_table *table, const void *key, size_t key_len,
                     const void *value, size_t value_len);

static int store_value(const struct kv_call *c, bool creates, store_fn *store, const void *value,
                       size_t len)
{
    struct cli_table t;
    int code = creates ? open_table_to_add(c, &t) : cli_open_table(c->command, &c->target, &t);
    if (code != CLI_OK)
        return code;
    int rc = store(t.session, t.table, c->key, c->key_len, value, len);
    if (rc != FAR_OK)
        code = failed_on_key(c, rc);
    cli_close_table(&t);
    return code;
}

/* put, insert, update. The value is read to its end before the pool is opened. */
static int cmd_store(const struct kv_command *command, store_fn *store, int argc, char **argv)
{
    struct kv_call c;
    int code = CLI_OK;
    if (!read_call(&c, command, argc, argv, &code))
        return code;
    if (c.value_text && strcmp(c.value_text, "-") != 0)
        return store_value(&c, command->creates, store, c.value_text, strlen(c.value_text));

    unsigned char *buf = malloc(FAR_VALUE_MAX);
    if (!buf)
        return cli_no_memory(c.command);
    size_t len = 0;
    code = read_value(c.command, buf, &len);
    if (code == CLI_OK)
        code = store_value(&c, command->creates, store, buf, len);
    free(buf);
    return code;
}

int cmd_put(int argc, char **argv)
{
    return cmd_store(&put_command, far_put, argc, argv);
}

int cmd_insert(int argc, char **argv)
{
    return cmd_store(&insert_command, far_insert, argc, argv);
}

int cmd_update(int argc, char **argv)
{
    return cmd_store(&update_command, far_update, argc, argv);
}

/* exists, del */
static int cmd_on_key(const struct kv_command *command,
                      int (*run)(far_session *session, far_table *table, const void *key,
                                 size_t key_len),
                      int argc, char **argv)
{
    struct kv_call c;
    struct cli_table t;
    int code = CLI_OK;
    if (!read_call(&c, command, argc, argv, &code))
        return code;
    code = cli_open_table(c.command, &c.target, &t);
    if (code != CLI_OK)
        return code;
    int rc = run(t.session, t.table, c.key, c.key_len);
    if (rc == FAR_NOT_FOUND && command == &exists_command)
        code = CLI_MISSING; /* an answer, which needs no message */
    else if (rc != FAR_OK)
        code = failed_on_key(&c, rc);
    cli_close_table(&t);
    return code;
}

int cmd_exists(int argc, char **argv)
{
    return cmd_on_key(&exists_command, far_exists, argc, argv);
}

int cmd_del(int argc, char **argv)
{
    return cmd_on_key(&del_command, far_delete, argc, argv);
}

/* ---- incr ------------------------------------------------------------------------------------ */

#define NUMBER_BYTES 24 /* of a number of 64 bits as text */

struct increment {
    int64_t by;
    const char *wrong; /* why nothing was added; NULL: it was */
    char sum[NUMBER_BYTES];
};

/* A decimal number with an optional minus, and nothing else. */
static bool read_number(const char *text, size_t len, int64_t *number)
{
    bool minus = len > 0 && text[0] == '-';
    int64_t n = 0;
    if (len == (size_t)minus)
        return false;
    for (size_t i = minus; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        int digit = minus ? '0' - text[i] : text[i] - '0';
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, digit, &n))
            return false;
    }
    *number = n;
    return true;
}

static enum far_decision add(void *arg, const void *old, size_t old_len, const void **value,
                             size_t *value_len)
{
    struct increment *i = arg;
    int64_t sum = 0;
    i->wrong = NULL;
    if (old && !read_number(old, old_len, &sum))
        i->wrong = "its value is not a decimal number of 64 bits";
    else if (__builtin_add_overflow(sum, i->by, &sum))
        i->wrong = "the sum does not fit into 64 bits";
    if (i->wrong)
        return FAR_KEEP;
    *value_len = (size_t)snprintf(i->sum, sizeof i->sum, "%" PRId64, sum);
    *value = i->sum;
    return FAR_STORE;
}

static int increment(const struct kv_call *c, struct increment *i)
{
    struct cli_table t;
    int code = open_table_to_add(c, &t);
    if (code != CLI_OK)
        return code;
    int rc = far_modify(t.session, t.table, c->key, c->key_len, add, i);
    if (rc != FAR_OK)
        code = failed_on_key(c, rc);
    cli_close_table(&t);
    if (rc != FAR_OK)
        return code;
    if (!i->wrong) {
        puts(i->sum);
        return CLI_OK;
    }
    fprintf(stderr, "farside incr: key '%s' is unchanged: %s\n", c->key_text, i->wrong);
    return CLI_FAILED;
}

int cmd_incr(int argc, char **argv)
{
    struct kv_call c;
    struct increment i = {.by = 1};
    const char *by = argc > 2 ? argv[argc - 1] : "";
    int code = CLI_OK;
    /* A negative number at the end is not an option. */
    bool negative = by[0] == '-' && read_number(by, strlen(by), &i.by);
    if (!read_call(&c, &incr_command, negative ? argc - 1 : argc, argv, &code))
        return code;
    if (negative && c.value_text)
        return cli_misused(c.command, "unexpected argument '%s'", by);
    if (c.value_text && !read_number(c.value_text, strlen(c.value_text), &i.by))
        return cli_misused(c.command, "invalid number '%s': expected a decimal number of 64 bits",
                           c.value_text);
    return increment(&c, &i);
}
