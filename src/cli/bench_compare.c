#include "cli/bench_compare.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "compare/table.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void on_progress(void *arg, const char *store, const char *workload, uint64_t done,
                        uint64_t total)
{
    char text[64];
    snprintf(text, sizeof text, "%s %.40s", store, workload);
    progress_show(arg, text, done, total);
}

/* Measures, and prints the table. */
static int measure(struct compare *c, struct progress *progress, bool table)
{
    if (table) {
        table_setup(c, stdout);
        fflush(stdout);
    }
    int rc = compare_run(c);
    progress_clear(progress);
    if (rc != FAR_OK)
        return cli_failed("bench", rc, "the comparison failed");
    if (table && c->rounds > 0)
        table_results(c, stdout);
    return CLI_OK;
}

static int open_failed(int rc)
{
    if (rc == FAR_INVALID)
        return cli_misused("bench", "%s", far_error_detail());
    if (rc != FAR_NO_FABRIC)
        return cli_failed("bench", rc, "cannot compare");
    fprintf(stderr, "farside bench: cannot compare: %s\n", far_error_detail());
    return CLI_FAILED;
}

int bench_compare(const struct bench_config *config, const char *list, unsigned rounds,
                  const char *json)
{
    struct compare *c = NULL;
    struct progress progress;
    char program[PATH_MAX] = "";
    FILE *file = NULL;
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return cli_failed("bench", FAR_SYSTEM, "cannot find this program: %s", strerror(errno));
    progress_init(&progress);
    struct compare_config compare = {.bench = config,
                                     .list = list,
                                     .program = program,
                                     .rounds = rounds,
                                     .arg = &progress,
                                     .progress = on_progress};
    int rc = compare_open(&compare, &c);
    if (rc != FAR_OK)
        return open_failed(rc);
    int code = cli_json_open("bench", json, &file) ? CLI_OK : CLI_FAILED;
    if (code == CLI_OK)
        code = measure(c, &progress, file != stdout);
    bool stopped = atomic_load(config->stop);
    if (file && cli_json_close("bench", json, file, table_json(c, stopped)) != CLI_OK)
        code = CLI_FAILED;
    if (stopped)
        fprintf(stderr, "farside bench: interrupted: %u of %u rounds are complete\n", c->rounds,
                rounds);
    compare_close(c);
    return stopped ? CLI_FAILED : code;
}
