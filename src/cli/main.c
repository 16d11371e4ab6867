/* farside: one program with subcommands. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const struct cli_command commands[] = {
    {"bench", "measure workloads on an index", cmd_bench},
    {"compare", "measure other stores beside Farside", cmd_compare},
    {"reproduce", "repeat experiments of the papers", cmd_reproduce},
    {"report", "make a page with charts of results", cmd_report},
    {"check", "test an index in a simulator with faults", cmd_check},
    {"get", "print the value of a key", cmd_get},
    {"exists", "say by the exit status whether a key exists", cmd_exists},
    {"put", "set the value of a key", cmd_put},
    {"insert", "add a key that does not exist", cmd_insert},
    {"update", "set the value of a key that exists", cmd_update},
    {"incr", "add to a number", cmd_incr},
    {"del", "delete a key", cmd_del},
    {"list", "print all keys of a table and their values", cmd_list},
    {"keys", "print all keys of a table", cmd_keys},
    {"scan", "print a range of keys in order with their values", cmd_scan},
    {"table", "list, create and drop tables", cmd_table},
    {"dump", "write tables to a file", cmd_dump},
    {"load", "read tables from a file", cmd_load},
    {"pool", "check, repair and remove a pool; its members", cmd_pool},
    {"stat", "show what a pool and its tables hold", cmd_stat},
    {"memd", "run a memory node", cmd_memd},
    {"doctor", "find out what is wrong with this machine or a pool", cmd_doctor},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static void usage(FILE *out)
{
    fputs("usage: farside COMMAND [OPTION...]\n"
          "       farside --help | --version\n"
          "\n"
          "Key-value tables in far memory.\n"
          "\n",
          out);
    for (unsigned i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-11s%s\n", commands[i].name, commands[i].summary);
    fputs("\n"
          "'farside COMMAND --help' explains each command. A pool is named by a URI: with --pool, "
          "or\n"
          "in the environment variable FARSIDE_POOL. mem: is memory of this process: it starts\n"
          "empty and is gone when the process ends.\n"
          "\n"
          "The exit status is 1 if the command failed, 2 if it was used wrongly, 3 if there is no\n"
          "such key or table, and 4 if there is one already.\n",
          out);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return CLI_MISUSED;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 && argc > 2)
        return dispatch(3, (char *[]){argv[0], argv[2], (char *)"--help", NULL});
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        usage(stdout);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0) {
        printf("farside %s\n", far_version());
        return CLI_OK;
    }
    for (unsigned i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    bool option = name[0] == '-';
    fprintf(stderr, "farside: unknown %s '%s'", option ? "option" : "command", name);
    for (unsigned i = 0; i < COMMANDS && !option; i++)
        fprintf(stderr, "%s %s", i > 0 ? "," : " (available:", commands[i].name);
    fprintf(stderr, "%s\nTry 'farside --help'.\n", option ? "" : ")");
    return CLI_MISUSED;
}

int main(int argc, char **argv)
{
    int code = dispatch(argc, argv);
    /* Output that could not be written is a failure, too. */
    int written = cli_output_end();
    return cli_end(code == CLI_OK ? written : code);
}
