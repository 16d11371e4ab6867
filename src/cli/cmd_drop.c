/* farside drop: removes a table. */
#include "cli/cli.h"

#include <stdio.h>

#define COMMAND "drop"

static void usage(void)
{
    fputs(
        "usage: farside drop --pool URI [OPTION...] TABLE\n"
        "\n"
        "Removes TABLE with all that is in it, and gives its memory back. Sessions that still use\n"
        "the table find out: their operations fail.\n"
        "\n"
        "  --pool URI      the pool (needed)\n"
        "  --index NAME    only if this index keeps the table\n"
        "  -h, --help      show this\n"
        "\n"
        "A TABLE that begins with - goes after --.\n",
        stdout);
}

static int drop(const struct cli_target *target)
{
    far_pool *pool = NULL;
    far_session *session = NULL;
    far_table *table = NULL;
    int code = cli_open(COMMAND, target, &pool, &session);
    if (code != CLI_OK)
        return code;
    int status = far_table_open(session, target->table, target->index, &table);
    if (status != FAR_OK)
        code = cli_failed(COMMAND, status, "cannot open the table '%s'", target->table);
    if (status == FAR_OK) {
        status = far_table_drop(session, table);
        if (status != FAR_OK)
            code = cli_failed(COMMAND, status, "cannot drop the table '%s'", target->table);
    }
    far_session_close(session);
    far_pool_close(pool);
    return code;
}

int cmd_drop(int argc, char **argv)
{
    static const struct option options[] = {
        {"pool", required_argument, NULL, 'p'},
        {"index", required_argument, NULL, 'i'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct cli_target target = {.pool = NULL};
    int id;

    opterr = 0;
    while ((id = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (id) {
        case 'p':
            target.pool = optarg;
            break;
        case 'i':
            target.index = optarg;
            break;
        case 'h':
            usage();
            return CLI_OK;
        default:
            return cli_bad_option(COMMAND, id, argv);
        }
    }
    if (optind == argc)
        return cli_misused(COMMAND, "a TABLE is needed");
    if (optind + 1 < argc)
        return cli_misused(COMMAND, "'%s' is one argument too many", argv[optind + 1]);
    if (target.pool == NULL)
        return cli_misused(COMMAND, "--pool URI is needed");
    target.table = argv[optind];
    return drop(&target);
}
