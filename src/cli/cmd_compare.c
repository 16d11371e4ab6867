#include "cli/measure.h"
#include "cli/pages.h"
#include "cli/progress.h"
#include "compare/compare.h"

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

static int open_failed(int rc)
{
    if (rc == FAR_INVALID)
        return cli_misused("compare", "%s", far_error_detail());
    if (rc != FAR_NO_FABRIC)
        return cli_failed("compare", rc, "cannot compare");
    fprintf(stderr, "farside compare: cannot compare: %s\n", far_error_detail());
    return CLI_FAILED;
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
        return cli_failed("compare", rc, "the comparison failed");
    if (table && c->rounds > 0)
        table_results(c, stdout);
    return CLI_OK;
}

static int run(struct compare_config *config, const struct pages_names *files)
{
    struct compare *c = NULL;
    struct progress progress;
    struct pages pages;
    progress_init(&progress);
    config->arg = &progress;
    config->progress = on_progress;
    int rc = compare_open(config, &c);
    if (rc != FAR_OK)
        return open_failed(rc);
    int code = pages_open(&pages, "compare", files);
    if (code == CLI_OK) {
        code = measure(c, &progress, !pages_to_stdout(&pages));
        bool stopped = atomic_load(config->bench->stop);
        int written = pages_close(&pages, table_json(c, stopped), compare_measured(c));
        if (stopped)
            fprintf(stderr, "farside compare: interrupted: %u of %u rounds are complete\n",
                    c->rounds, config->rounds);
        code = stopped ? CLI_FAILED : code == CLI_OK ? written : code;
    }
    compare_close(c);
    return code;
}

int cmd_compare(int argc, char **argv)
{
    struct bench_config c = bench_defaults;
    struct pages_names files = {.json = NULL};
    char program[PATH_MAX] = "";
    struct compare_config config = {
        .bench = &c, .list = "all", .program = program, .rounds = COMPARE_ROUNDS_DEFAULT};
    c.index = CLI_DEFAULT_INDEX;
    c.keys = c.ops = 0;
    const struct cli_option options[] = {
        {"rounds", "N", "rounds, in which all stores take turns (5)", .number = &config.rounds,
         .min = 1, .max = COMPARE_ROUNDS_MAX},
        {"index", "NAME", "the index that keeps Farside's table (" CLI_DEFAULT_INDEX ")",
         .text = &c.index},
        {"workload", "LIST",
         "the workloads and mixes to run, in this order, of gets, puts, updates and misses "
         "(" COMPARE_WORKLOADS
         "); if load is not the first, the keys are loaded before without being measured",
         .take = measure_take_workloads, .arg = &c.workloads},
        {"keys", "N", "keys to load (200k; for servers at most 5k for each operation in flight)",
         .large = &c.keys, .min = 1, .max = BENCH_COUNT_MAX},
        {"ops", "N", "operations of each workload (as many)", .large = &c.ops, .min = 1,
         .max = BENCH_COUNT_MAX},
        {"threads", "N", "threads, each with a client of its own (1)", .number = &c.threads,
         .min = 1, .max = BENCH_THREADS_MAX},
        {"depth", "N", "operations that each thread keeps in flight, or has in one transaction (1)",
         .number = &c.depth, .min = 1, .max = FAR_DEPTH_MAX},
        MEASURE_OPTIONS(&c),
        PAGES_OPTIONS(&files),
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "compare",
        .usage = "[OPTION...] [LIST|all]",
        .about = "Measures Farside beside other stores, in turns with the same operations: lmdb, "
                 "cuckoo, redis, memcached. Without a list, those that are installed. The pools "
                 "are its own.",
        .notes = "Counts take k, m and g (powers of 1000), sizes take k and m (powers of 1024). "
                 "'farside bench --help' lists the workloads.",
        .options = options,
        .args_max = 1,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (optind < argc)
        config.list = argv[optind];
    if (c.workloads.count == 0)
        workload_parse(COMPARE_WORKLOADS, &c.workloads);
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return cli_failed("compare", FAR_SYSTEM, "cannot find this program: %s", strerror(errno));
    c.stop = cli_stop_on_signals();
    return run(&config, &files);
}
