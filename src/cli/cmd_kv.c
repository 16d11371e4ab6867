/* farside get, put, del: commands on one key, with the same options. */
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
    const char *tuning; /* of a table that put creates */
    bool hex;
    const char *key_text, *value_text; /* value_text: NULL if not given */
    unsigned char key[FAR_KEY_MAX];
    size_t key_len;
};

static void print_options(bool put)
{
    fputs("\n" CLI_POOL_HELP "  --table NAME    the table (" CLI_DEFAULT_TABLE ")\n"
          "  --index NAME    the index that keeps the table\n",
          stdout);
    if (put)
        fputs("  --tuning TEXT   parameters of a table that put creates (see below)\n", stdout);
    fputs("  --hex           KEY is in hexadecimal, two digits for each byte\n"
          "  -h, --help      show this help\n"
          "\n"
          "Put -- before a KEY that begins with -.\n",
          stdout);
}

static void usage_get(void)
{
    fputs("usage: farside get [OPTION...] KEY\n"
          "\n"
          "Writes the value of KEY to the standard output, without change; on a terminal, a\n"
          "newline follows. The exit status is 3 if there is no such key.\n",
          stdout);
    print_options(false);
}

static void usage_put(void)
{
    fputs("usage: farside put [OPTION...] KEY [VALUE]\n"
          "\n"
          "Sets the value of KEY, whether or not the key exists. Without VALUE, or with -, the\n"
          "value is read from the standard input, up to its end. If the table does not exist, it\n"
          "is created and kept by the index that --index names (" DEFAULT_INDEX ").\n",
          stdout);
    print_options(true);
    cli_print_tuning();
}

static void usage_del(void)
{
    fputs("usage: farside del [OPTION...] KEY\n"
          "\n"
          "Deletes KEY and its value. The exit status is 3 if there is no such key.\n",
          stdout);
    print_options(false);
}

/* ---- reading the call ------------------------------------------------------------------------ */

/* Reads the options, the key and the value of a put. False: as cli_read(). */
static bool read_call(struct kv_call *c, const char *command, void (*usage)(void), int argc,
                      char **argv, int *code)
{
    *c = (struct kv_call){.command = command, .target = {.table = CLI_DEFAULT_TABLE}};
    const struct cli_option options[] = {
        {.name = "tuning", .text = &c->tuning}, /* put only */
        CLI_POOL(&c->target.pool),
        {.name = "table", .text = &c->target.table},
        {.name = "index", .text = &c->target.index},
        {.name = "hex", .flag = &c->hex},
        {.name = NULL},
    };
    bool put = usage == usage_put;
    const struct cli_syntax syntax = {.command = command,
                                      .usage = usage,
                                      .options = put ? options : options + 1,
                                      .arg = "KEY",
                                      .args_max = put ? 2 : 1};
    if (!cli_read(&syntax, argc, argv, code))
        return false;
    c->key_text = argv[optind];
    c->value_text = argc - optind > 1 ? argv[optind + 1] : NULL;
    *code = cli_take_key(command, c->key_text, c->hex, c->key, &c->key_len);
    return *code == CLI_OK;
}

/* ---- working on a table ---------------------------------------------------------------------- */

/* Creates the table if it does not exist; opens it if another client was faster. `*doing` says which
 * of the two has failed. */
static int open_or_create(struct cli_table *t, const struct kv_call *c, const char **doing)
{
    const struct cli_target *target = &c->target;
    struct far_table_options made = {.tuning = c->tuning};
    int rc = far_table_open(t->session, target->table, target->index, &t->table);
    *doing = "open";
    if (rc == FAR_NO_TABLE) {
        rc = far_table_create(t->session, target->table,
                              target->index ? target->index : DEFAULT_INDEX, &made, &t->table);
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

static int open_table_to_put(const struct kv_call *c, struct cli_table *t)
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
    fwrite(buf, 1, len, stdout);
    if (isatty(STDOUT_FILENO))
        fputc('\n', stdout);
    return CLI_OK;
}

int cmd_get(int argc, char **argv)
{
    struct kv_call c;
    struct cli_table t;
    int code = CLI_OK;
    if (!read_call(&c, "get", usage_get, argc, argv, &code))
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

static int put_value(const struct kv_call *c, const void *value, size_t len)
{
    struct cli_table t;
    int code = open_table_to_put(c, &t);
    if (code != CLI_OK)
        return code;
    int rc = far_put(t.session, t.table, c->key, c->key_len, value, len);
    cli_close_table(&t);
    return rc == FAR_OK ? CLI_OK : failed_on_key(c, rc);
}

int cmd_put(int argc, char **argv)
{
    struct kv_call c;
    int code = CLI_OK;
    if (!read_call(&c, "put", usage_put, argc, argv, &code))
        return code;
    if (c.value_text && strcmp(c.value_text, "-") != 0)
        return put_value(&c, c.value_text, strlen(c.value_text));

    unsigned char *buf = malloc(FAR_VALUE_MAX);
    if (!buf)
        return cli_no_memory(c.command);
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
    struct cli_table t;
    int code = CLI_OK;
    if (!read_call(&c, "del", usage_del, argc, argv, &code))
        return code;
    code = cli_open_table(c.command, &c.target, &t);
    if (code != CLI_OK)
        return code;
    int rc = far_delete(t.session, t.table, c.key, c.key_len);
    cli_close_table(&t);
    return rc == FAR_OK ? CLI_OK : failed_on_key(&c, rc);
}
