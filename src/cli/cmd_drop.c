/* farside drop: removes a table. */
#include "cli/cli.h"

#include <stdio.h>

#define COMMAND "drop"

static void usage(void)
{
    fputs("usage: farside drop [OPTION...] TABLE\n"
          "\n"
          "Removes TABLE with everything in it, and frees its memory. Operations of sessions that\n"
          "still use the table fail.\n"
          "\n" CLI_POOL_HELP "  --index NAME    drop the table only if this index keeps it\n"
          "  -h, --help      show this help\n"
          "\n"
          "Put -- before a TABLE that begins with -.\n",
          stdout);
}

int cmd_drop(int argc, char **argv)
{
    struct cli_target target = {.pool = NULL};
    const struct cli_option options[] = {
        CLI_POOL(&target.pool),
        {.name = "index", .text = &target.index},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = COMMAND, .usage = usage, .options = options, .arg = "TABLE", .args_max = 1};
    struct cli_table t;
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    target.table = argv[optind];
    code = cli_open_table(COMMAND, &target, &t);
    if (code != CLI_OK)
        return code;
    int rc = far_table_drop(t.session, t.table);
    if (rc != FAR_OK)
        code = cli_failed(COMMAND, rc, "cannot drop the table '%s'", target.table);
    cli_close_table(&t);
    return code;
}
