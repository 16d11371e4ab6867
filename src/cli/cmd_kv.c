/* farside get, put, del: one key by hand. They share their options. */
#include "base/err.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_INDEX "race"

struct kv_call {
    const char *command;
    struct cli_target target;
    const char *tuning; /* put: of a table that it makes */
    bool hex, help;
    char **args;
    int arg_count;
    unsigned char key[FAR_KEY_MAX];
    size_t key_len;
};

static const struct option put_options[] = {
    {"tuning", required_argument, NULL, 'T'},
    {"pool", required_argument, NULL, 'p'},
    {"table", required_argument, NULL, 't'},
    {"index", required_argument, NULL, 'i'},
    {"hex", no_argument, NULL, 'x'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};
static const struct option *const options = put_options + 1; /* all but the first are for all */

static void print_options(bool put)
{
    fputs("\n"
          "  --pool URI      the pool (needed)\n"
          "  --table NAME    the table in it (" CLI_DEFAULT_TABLE ")\n"
          "  --index NAME    the index that keeps the table\n",
          stdout);
    if (put)
        fputs("  --tuning TEXT   what a table that is not there is made with (see below)\n",
              stdout);
    fputs("  --hex           KEY is given in hexadecimal digits\n"
          "  -h, --help      show this\n"
          "\n"
          "A KEY that begins with - goes after --.\n",
          stdout);
}

/* ---- reading the call ------------------------------------------------------------------------ */

/* Reads options, the key and how many further arguments are allowed. */
static int read_call(struct kv_call *c, const char *command, int args_max,
                     const struct option *known, int argc, char **argv)
{
    int id;
    *c = (struct kv_call){.command = command, .target = {.table = CLI_DEFAULT_TABLE}};
    opterr = 0;
    while ((id = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        switch (id) {
        case 'p':
            c->target.pool = optarg;
            break;
        case 't':
            c->target.table = optarg;
            break;
        case 'i':
            c->target.index = optarg;
            break;
        case 'T':
            c->tuning = optarg;
            break;
        case 'x':
            c->hex = true;
            break;
        case 'h':
            c->help = true;
            return CLI_OK;
        default:
            return cli_bad_option(command, id, argv);
        }
    }
    c->args = argv + optind;
    c->arg_count = argc - optind;
    if (c->arg_count == 0)
        return cli_misused(command, "a KEY is needed");
    if (c->arg_count > args_max)
        return cli_misused(command, "'%s' is one argument too many", c->args[args_max]);
    if (c->target.pool == NULL)
        return cli_misused(command, "--pool URI is needed");
    return cli_take_key(command, c->args[0], c->hex, c->key, &c->key_len);
}

/* ---- working on a table ---------------------------------------------------------------------- */

struct kv_table {
    far_pool *pool;
    far_session *session;
    far_table *table;
};

static void close_table(struct kv_table *t)
{
    far_session_close(t->session);
    far_pool_close(t->pool);
}

/* Makes the table if it is not there; if another client is faster, takes that one. */
static int open_or_create(struct kv_table *t, const struct kv_call *c)
{
    const struct cli_target *target = &c->target;
    struct far_table_options made = {.tuning = c->tuning};
    int status = far_table_open(t->session, target->table, target->index, &t->table);
    if (status == FAR_NO_TABLE) {
        status = far_table_create(t->session, target->table,
                                  target->index != NULL ? target->index : DEFAULT_INDEX, &made,
                                  &t->table);
        if (status != FAR_TABLE_EXISTS)
            return status;
        status = far_table_open(t->session, target->table, target->index, &t->table);
    }
    if (status == FAR_OK && c->tuning != NULL)
        fprintf(stderr, "farside %s: note: the table is there already: --tuning has no effect\n",
                c->command);
    return status;
}

static int open_table(const struct kv_call *c, bool create, struct kv_table *t)
{
    const struct cli_target *target = &c->target;
    *t = (struct kv_table){.pool = NULL};
    int code = cli_open(c->command, target, &t->pool, &t->session);
    if (code != CLI_OK)
        return code;
    int status = create ? open_or_create(t, c)
                        : far_table_open(t->session, target->table, target->index, &t->table);
    if (status == FAR_OK)
        return CLI_OK;
    close_table(t);
    return cli_failed(c->command, status, "cannot open the table '%s'", target->table);
}

static int failed_on_key(const struct kv_call *c, int status)
{
    ASSERT(c->args != NULL); /* read_call() has set them, or nothing was called */
    return cli_failed(c->command, status, "key '%s'", c->args[0]);
}

/* ---- the commands ---------------------------------------------------------------------------- */

static int print_value(const struct kv_call *c, struct kv_table *t, unsigned char *buf)
{
    size_t len = 0;
    int status = far_get(t->session, t->table, c->key, c->key_len, buf, FAR_VALUE_MAX, &len);
    if (status != FAR_OK)
        return failed_on_key(c, status);
    fwrite(buf, 1, len, stdout);
    if (isatty(STDOUT_FILENO))
        fputc('\n', stdout);
    return CLI_OK;
}

static int no_memory(const char *command)
{
    fprintf(stderr, "farside %s: out of memory\n", command);
    return CLI_FAILED;
}

int cmd_get(int argc, char **argv)
{
    struct kv_call c;
    struct kv_table t;
    int code = read_call(&c, "get", 1, options, argc, argv);
    if (c.help) {
        fputs("usage: farside get --pool URI [OPTION...] KEY\n"
              "\n"
              "Writes the value of KEY to the output as it is; on a terminal, a newline follows.\n"
              "Exits with 1 if there is no such key.\n",
              stdout);
        print_options(false);
        return CLI_OK;
    }
    if (code == CLI_OK)
        code = open_table(&c, false, &t);
    if (code != CLI_OK)
        return code;
    unsigned char *buf = malloc(FAR_VALUE_MAX);
    code = buf != NULL ? print_value(&c, &t, buf) : no_memory(c.command);
    free(buf);
    close_table(&t);
    return code;
}

/* All of the standard input. */
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

static int put_value(const struct kv_call *c, const void *value, size_t len)
{
    struct kv_table t;
    int code = open_table(c, true, &t);
    if (code != CLI_OK)
        return code;
    int status = far_put(t.session, t.table, c->key, c->key_len, value, len);
    close_table(&t);
    return status == FAR_OK ? CLI_OK : failed_on_key(c, status);
}

int cmd_put(int argc, char **argv)
{
    struct kv_call c;
    int code = read_call(&c, "put", 2, put_options, argc, argv);
    if (c.help) {
        fputs("usage: farside put --pool URI [OPTION...] KEY [VALUE]\n"
              "\n"
              "Sets the value of KEY, whether or not it was there. Without VALUE, or with -, the\n"
              "value is read from the input, up to its end. A table that is not there is made,\n"
              "kept by the index named (" DEFAULT_INDEX ").\n",
              stdout);
        print_options(true);
        cli_print_tuning();
        return CLI_OK;
    }
    if (code != CLI_OK)
        return code;
    if (c.arg_count == 2 && strcmp(c.args[1], "-") != 0)
        return put_value(&c, c.args[1], strlen(c.args[1]));

    unsigned char *buf = malloc(FAR_VALUE_MAX);
    if (buf == NULL)
        return no_memory(c.command);
    size_t len = 0;
    code = read_value(c.command, buf, &len);
    if (code == CLI_OK)
        code = put_value(&c, buf, len);
    free(buf);
    return code;
}

int cmd_del(int argc, char **argv)
{
    struct kv_call c;
    struct kv_table t;
    int code = read_call(&c, "del", 1, options, argc, argv);
    if (c.help) {
        fputs("usage: farside del --pool URI [OPTION...] KEY\n"
              "\n"
              "Deletes KEY and its value. Exits with 1 if there is no such key.\n",
              stdout);
        print_options(false);
        return CLI_OK;
    }
    if (code == CLI_OK)
        code = open_table(&c, false, &t);
    if (code != CLI_OK)
        return code;
    int status = far_delete(t.session, t.table, c.key, c.key_len);
    close_table(&t);
    return status == FAR_OK ? CLI_OK : failed_on_key(&c, status);
}
