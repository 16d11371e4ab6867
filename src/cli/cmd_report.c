#include "cli/cli.h"
#include "cli/pages.h"

#include <jansson.h>
#include <stdio.h>

#define FILES_MAX 64

/* Adds the results of a file to the array. Unless CLI_OK, the message is printed. */
static int add_results(json_t *results, const char *name)
{
    json_error_t error;
    json_t *one = json_load_file(name, JSON_REJECT_DUPLICATES, &error);
    if (!one) {
        fprintf(stderr, "farside report: cannot read '%s': %s\n", name, error.text);
        return CLI_FAILED;
    }
    if (!json_is_array(json_object_get(one, "runs")) &&
        !json_is_array(json_object_get(one, "groups")) &&
        !json_is_array(json_object_get(one, "experiments"))) {
        fprintf(stderr,
                "farside report: '%s' has no results: expected a file that bench, compare or "
                "reproduce has written with --json\n",
                name);
        json_decref(one);
        return CLI_FAILED;
    }
    return pages_add(results, one) ? CLI_OK : cli_no_memory("report");
}

static int draw(const struct pages_names *files, int count, char **names)
{
    struct pages pages;
    json_t *results = json_array();
    int code = results ? CLI_OK : cli_no_memory("report");
    for (int i = 0; i < count && code == CLI_OK; i++)
        code = add_results(results, names[i]);
    if (code == CLI_OK)
        code = pages_open(&pages, "report", files);
    if (code == CLI_OK)
        return pages_close_all(&pages, results);
    json_decref(results);
    return code;
}

int cmd_report(int argc, char **argv)
{
    struct pages_names files = {.json = NULL};
    const struct cli_option options[] = {
        {"report", "FILE", "the page, for a browser: one HTML file that needs nothing else",
         .text = &files.report},
        {"csv", "FILE|-", "the results for spreadsheets: a row for each run and kind of operation",
         .text = &files.csv},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "report",
        .usage = "[--report FILE] [--csv FILE|-] RESULTS...",
        .about = "Makes one page with charts of results that bench, compare and reproduce have "
                 "written with --json.",
        .options = options,
        .arg = "RESULTS",
        .args_max = FILES_MAX,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (!files.report && !files.csv)
        return cli_misused("report", "nothing to write: give --report FILE, --csv FILE or both");
    return draw(&files, argc - optind, argv + optind);
}
