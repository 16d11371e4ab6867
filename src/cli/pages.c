#include "cli/pages.h"

#include "cli/cli.h"
#include "report/csv.h"
#include "report/page.h"

bool pages_one_dash(const char *command, const char *json, const char *report, const char *csv)
{
    unsigned dashes =
        (json && cli_is_dash(json)) + (report && cli_is_dash(report)) + (csv && cli_is_dash(csv));
    if (dashes > 1)
        cli_misused(command, "only one file can be -, the standard output");
    return dashes <= 1;
}

bool pages_to_stdout(const struct pages *p)
{
    return p->report.file == stdout || p->csv.file == stdout;
}

bool pages_open(struct pages *p, const char *command, const char *report, const char *csv)
{
    *p = (struct pages){.report = {.name = NULL}};
    if (!outfile_open(&p->report, command, report))
        return false;
    if (outfile_open(&p->csv, command, csv))
        return true;
    outfile_discard(&p->report);
    return false;
}

static int write_files(struct pages *p, const json_t *results)
{
    bool good = results != NULL;
    if (good && p->report.file)
        good = page_write(p->report.file, results);
    if (good && p->csv.file)
        csv_write(p->csv.file, results);
    int report = outfile_close(&p->report, good), csv = outfile_close(&p->csv, good);
    return report != CLI_OK ? report : csv;
}

int pages_close(struct pages *p, json_t *results)
{
    int code = CLI_OK;
    if (results && json_array_size(results) == 0) {
        outfile_discard(&p->report);
        outfile_discard(&p->csv);
    } else
        code = write_files(p, results);
    json_decref(results);
    return code;
}
