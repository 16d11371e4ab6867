#include "cli/pages.h"

#include "cli/cli.h"
#include "report/page.h"
#include "report/spreadsheet.h"

static bool is_stdout(const char *name)
{
    return name && cli_is_dash(name);
}

int pages_open(struct pages *p, const char *command, const struct pages_names *names)
{
    *p = (struct pages){.command = command, .json_name = names->json};
    if (is_stdout(names->json) + is_stdout(names->report) + is_stdout(names->csv) > 1)
        return cli_misused(command, "only one file can be -, the standard output");
    if (outfile_open(&p->report, command, names->report) &&
        outfile_open(&p->csv, command, names->csv) && cli_json_open(command, names->json, &p->json))
        return CLI_OK;
    outfile_discard(&p->report);
    outfile_discard(&p->csv);
    return CLI_FAILED;
}

bool pages_to_stdout(const struct pages *p)
{
    return p->json == stdout || p->report.file == stdout || p->csv.file == stdout;
}

bool pages_add(json_t *array, json_t *results)
{
    json_t *groups = json_object_get(results, "groups");
    int bad = groups ? json_array_extend(array, groups) : json_array_append(array, results);
    json_decref(results);
    return bad == 0;
}

int pages_close_all(struct pages *p, json_t *array)
{
    bool good = array != NULL;
    if (good && p->report.file)
        good = page_write(p->report.file, array);
    if (good && p->csv.file)
        spreadsheet_write(p->csv.file, array);
    int report = outfile_close(&p->report, good), csv = outfile_close(&p->csv, good);
    json_decref(array);
    return report != CLI_OK ? report : csv;
}

int pages_close(struct pages *p, json_t *results, bool measured)
{
    int code = CLI_OK, pages = CLI_OK;
    if (p->json)
        code = cli_json_close(p->command, p->json_name, p->json, json_incref(results));
    if (measured) {
        json_t *array = json_array();
        if (!pages_add(array, json_incref(results))) {
            json_decref(array);
            array = NULL;
        }
        pages = pages_close_all(p, array);
    } else {
        outfile_discard(&p->report);
        outfile_discard(&p->csv);
    }
    json_decref(results);
    return code != CLI_OK ? code : pages;
}
