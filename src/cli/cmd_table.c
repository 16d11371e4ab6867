/* farside table: lists, creates and drops tables. */
#include "cli/cli.h"
#include "cli/tables.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECTED_KEYS_MAX 1000000000000ull

#define HYPHEN_NOTE "Put -- before a TABLE that begins with -."

/* ---- list ------------------------------------------------------------------------------------ */

/* What is shown of a table. */
struct row {
    const struct table_name *table;
    const struct far_table_info *info; /* NULL: not asked for */
};

static void print_row(const struct row *r)
{
    cli_print_escaped(stdout, r->table->name, strlen(r->table->name));
    printf("\t%s", r->table->index);
    if (r->info)
        printf("\t%" PRIu64 "\t%s", r->info->keys, r->info->tuning);
    putchar('\n');
}

static json_t *json_row(const struct row *r)
{
    json_t *row = cli_json_table(r->table->name);
    json_object_set_new(row, "index", json_string(r->table->index));
    if (r->info) {
        json_object_set_new(row, "keys", json_integer((json_int_t)r->info->keys));
        json_object_set_new(row, "tuning", json_string(r->info->tuning));
    }
    return row;
}

static int count_keys(far_session *session, const struct table_name *name,
                      struct far_table_info *info)
{
    far_table *table = NULL;
    int rc = far_table_open(session, name->name, NULL, &table);
    if (rc == FAR_OK)
        rc = far_table_info(session, table, info);
    return rc == FAR_OK ? CLI_OK
                        : cli_failed("table list", rc, "cannot read the table '%s'", name->name);
}

/* `rows`: NULL to print text. A table that is dropped meanwhile fails alone. */
static int list_tables(far_session *session, const struct table_list *tables, bool count,
                       json_t *rows)
{
    int code = CLI_OK;
    for (unsigned i = 0; i < tables->count && !cli_stopped(); i++) {
        struct far_table_info info;
        int counted = count ? count_keys(session, &tables->item[i], &info) : CLI_OK;
        struct row row = {&tables->item[i], count ? &info : NULL};
        if (counted != CLI_OK)
            code = counted;
        else if (rows)
            json_array_append_new(rows, json_row(&row));
        else
            print_row(&row);
    }
    return code;
}

static int cmd_table_list(int argc, char **argv)
{
    struct cli_target target = {.pool = NULL};
    bool count = false, json = false;
    const struct cli_option options[] = {
        CLI_POOL(&target.pool),
        {"count", NULL,
         "show the number of keys and the tuning, too; this reads every table from end to end",
         .flag = &count},
        {"json", NULL, "print JSON", .flag = &json},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "table list",
        .usage = "[OPTION...]",
        .about = "Lists the tables of a pool.",
        .options = options,
    };
    struct table_list tables = {.count = 0};
    struct cli_table t = {.pool = NULL};
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    code = cli_open(syntax.command, &target, &t.pool, &t.session);
    if (code != CLI_OK)
        return code;
    cli_interrupt_io(true);
    json_t *rows = json ? json_array() : NULL;
    int rc = table_list_read(t.session, &tables);
    code = rc == FAR_OK ? list_tables(t.session, &tables, count, rows)
                        : cli_failed(syntax.command, rc, "cannot list the tables");
    if (rc == FAR_OK && json && !cli_stopped())
        cli_json_print(json_pack("{s:s, s:O}", "farside", far_version(), "tables", rows));
    json_decref(rows);
    table_list_free(&tables);
    cli_close_table(&t);
    return code;
}

/* ---- create, drop ---------------------------------------------------------------------------- */

static int cmd_table_create(int argc, char **argv)
{
    struct cli_target target = {.index = CLI_DEFAULT_INDEX};
    struct far_table_options made = {.tuning = NULL};
    const struct cli_option options[] = {
        CLI_POOL(&target.pool),
        {"index", "NAME", "the index that keeps the table (" CLI_DEFAULT_INDEX ")",
         .text = &target.index},
        {"tuning", "TEXT", "parameters of the table: name=number, joined by &",
         .text = &made.tuning},
        {"expected-keys", "N", "make room for that many keys; the table grows beyond it",
         .large = &made.expected_keys, .max = EXPECTED_KEYS_MAX},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "table create",
        .usage = "[OPTION...] TABLE",
        .about = "Creates an empty table.",
        .notes = HYPHEN_NOTE,
        .lists = cli_print_tuning,
        .options = options,
        .arg = "TABLE",
        .args_max = 1,
    };
    struct cli_table t = {.pool = NULL};
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    target.table = argv[optind];
    code = cli_open(syntax.command, &target, &t.pool, &t.session);
    if (code != CLI_OK)
        return code;
    int rc = far_table_create(t.session, target.table, target.index, &made, &t.table);
    if (rc != FAR_OK)
        code = cli_failed(syntax.command, rc, "cannot create the table '%s'", target.table);
    cli_close_table(&t);
    return code;
}

static int cmd_table_drop(int argc, char **argv)
{
    struct cli_target target = {.pool = NULL};
    const struct cli_option options[] = {
        CLI_POOL(&target.pool),
        {"index", "NAME", "remove the table only if this index keeps it", .text = &target.index},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "table drop",
        .usage = "[OPTION...] TABLE",
        .about = "Removes a table with everything in it.",
        .notes = HYPHEN_NOTE,
        .options = options,
        .arg = "TABLE",
        .args_max = 1,
    };
    struct cli_table t;
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    target.table = argv[optind];
    code = cli_open_table(syntax.command, &target, &t);
    if (code != CLI_OK)
        return code;
    int rc = far_table_drop(t.session, t.table);
    if (rc != FAR_OK)
        code = cli_failed(syntax.command, rc, "cannot drop the table '%s'", target.table);
    cli_close_table(&t);
    return code;
}

int cmd_table(int argc, char **argv)
{
    static const struct cli_command subcommands[] = {
        {.name = "list", .run = cmd_table_list},
        {.name = "create", .run = cmd_table_create},
        {.name = "drop", .run = cmd_table_drop},
        {.name = NULL},
    };
    return cli_subcommand("table", subcommands, argc, argv);
}
