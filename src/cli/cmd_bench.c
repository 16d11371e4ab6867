#include "base/text.h"
#include "bench/bench.h"
#include "bench/keys.h"
#include "bench/report.h"
#include "cli/cli.h"
#include "cli/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WORKLOADS "load,a,b,c,d,f"

static atomic_bool stop;

/* The first signal ends the measurement, the second (whose action is the default again) the
 * program. */
static void on_signal(int number)
{
    (void)number;
    atomic_store(&stop, true);
}

static void usage(void)
{
    const struct workload *w = NULL;
    const char *index = NULL;

    fputs("usage: farside bench [OPTION...]\n"
          "\n"
          "Runs workloads on a new table and shows what they took: round trips first, then verbs,\n"
          "bytes and time.\n"
          "\n"
          "  --pool URI         where the table is made (mem:)\n"
          "  --index NAME|all   which index keeps it (all):",
          stdout);
    for (unsigned i = 0; (index = far_index_name(i)) != NULL; i++)
        printf(" %s", index);
    fputs("\n"
          "  --tuning TEXT      what the table is made with (see below); its index must know it\n"
          "  --workload LIST    run in this order on one table (" DEFAULT_WORKLOADS ");\n"
          "                     a list without load has the keys loaded beforehand, unmeasured\n"
          "  --keys N           keys that are loaded (200k)\n"
          "  --ops N            operations of each workload (200k)\n"
          "  --processes N      processes that share the table, each with its threads (1);\n"
          "                     not on mem:\n"
          "  --threads N        threads, each with a session of its own (1)\n"
          "  --depth N          operations that each thread keeps in flight (1)\n"
          "  --key-size BYTES   at least 8 (16)\n"
          "  --value-size BYTES (32)\n"
          "  --dist NAME        zipfian, uniform or latest: how popular keys are (zipfian, but\n"
          "                     latest in workload d)\n"
          "  --theta T          skew of zipfian and latest, between 0 and 1 (0.99)\n"
          "  --seed N           of everything random: the same seed, the same operations (1)\n"
          "  --raw              also measure the same verbs with no index on top\n"
          "  --json FILE|-      write the results as JSON too; with - nothing else is printed\n"
          "  -h, --help         show this\n"
          "\n"
          "Counts take k, m and g (thousands), sizes k and m (1024s). The workloads:\n",
          stdout);
    for (unsigned i = 0; (w = workload_at(i)) != NULL; i++)
        printf("  %-8s%s\n", w->name, w->summary);
    cli_print_tuning();
}

/* ---- options --------------------------------------------------------------------------------- */

enum option_id {
    OPT_POOL = 256,
    OPT_INDEX,
    OPT_WORKLOAD,
    OPT_KEYS,
    OPT_OPS,
    OPT_PROCESSES,
    OPT_THREADS,
    OPT_DEPTH,
    OPT_KEY_SIZE,
    OPT_VALUE_SIZE,
    OPT_DIST,
    OPT_THETA,
    OPT_SEED,
    OPT_RAW,
    OPT_JSON,
    OPT_TUNING,
};

static const struct option options[] = {
    {"pool", required_argument, NULL, OPT_POOL},
    {"index", required_argument, NULL, OPT_INDEX},
    {"workload", required_argument, NULL, OPT_WORKLOAD},
    {"keys", required_argument, NULL, OPT_KEYS},
    {"ops", required_argument, NULL, OPT_OPS},
    {"processes", required_argument, NULL, OPT_PROCESSES},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"depth", required_argument, NULL, OPT_DEPTH},
    {"key-size", required_argument, NULL, OPT_KEY_SIZE},
    {"value-size", required_argument, NULL, OPT_VALUE_SIZE},
    {"dist", required_argument, NULL, OPT_DIST},
    {"theta", required_argument, NULL, OPT_THETA},
    {"seed", required_argument, NULL, OPT_SEED},
    {"raw", no_argument, NULL, OPT_RAW},
    {"json", required_argument, NULL, OPT_JSON},
    {"tuning", required_argument, NULL, OPT_TUNING},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool take_index(struct bench_config *c)
{
    char known[128] = "all";
    const char *name = NULL;
    bool found = strcmp(optarg, "all") == 0;
    for (unsigned i = 0; (name = far_index_name(i)) != NULL; i++) {
        strncat(known, ", ", sizeof known - strlen(known) - 1);
        strncat(known, name, sizeof known - strlen(known) - 1);
        found |= strcmp(optarg, name) == 0;
    }
    if (found)
        c->index = strcmp(optarg, "all") != 0 ? optarg : NULL;
    else
        cli_misused("bench", "unknown index '%s'; there are %s", optarg, known);
    return found;
}

static bool take_workloads(const char *text, struct bench_config *c)
{
    if (workload_parse(text, &c->workloads) == FAR_OK)
        return true;
    cli_misused("bench", "%s", far_error_detail());
    return false;
}

static bool take_dist(struct bench_config *c)
{
    c->dist_given = bench_dist_parse(optarg, &c->dist);
    if (!c->dist_given)
        cli_misused("bench", "--dist is '%s', but has to be zipfian, uniform or latest", optarg);
    return c->dist_given;
}

static bool take_theta(struct bench_config *c)
{
    char *end;
    double theta = strtod(optarg, &end);
    bool good = end != optarg && *end == '\0' && theta > 0 && theta < 1;
    if (good)
        c->theta = theta;
    else
        cli_misused("bench", "--theta is '%s', but has to lie between 0 and 1, both excluded",
                    optarg);
    return good;
}

static bool take_seed(struct bench_config *c)
{
    bool good = text_number(optarg, 0, INT64_MAX, &c->seed);
    if (!good)
        cli_misused("bench", "--seed is '%s', but has to be a whole number", optarg);
    return good;
}

static bool take_count(const char *name, uint64_t max, unsigned *value)
{
    uint64_t n;
    bool good = cli_count("bench", name, 1, max, &n);
    if (good)
        *value = (unsigned)n;
    return good;
}

static bool take_size(const char *name, uint64_t min, uint64_t max, unsigned *value)
{
    uint64_t n;
    bool good = cli_size("bench", name, min, max, &n);
    if (good)
        *value = (unsigned)n;
    return good;
}

static bool take_option(int id, struct bench_config *c, const char **json)
{
    switch (id) {
    case OPT_POOL:
        c->pool = optarg;
        return true;
    case OPT_INDEX:
        return take_index(c);
    case OPT_WORKLOAD:
        return take_workloads(optarg, c);
    case OPT_KEYS:
        return cli_count("bench", "--keys", 1, BENCH_COUNT_MAX, &c->keys);
    case OPT_OPS:
        return cli_count("bench", "--ops", 1, BENCH_COUNT_MAX, &c->ops);
    case OPT_PROCESSES:
        return take_count("--processes", BENCH_THREADS_MAX, &c->processes);
    case OPT_THREADS:
        return take_count("--threads", BENCH_THREADS_MAX, &c->threads);
    case OPT_DEPTH:
        return take_count("--depth", FAR_DEPTH_MAX, &c->depth);
    case OPT_KEY_SIZE:
        return take_size("--key-size", BENCH_KEY_MIN, FAR_KEY_MAX, &c->key_size);
    case OPT_VALUE_SIZE:
        return take_size("--value-size", 0, FAR_VALUE_MAX, &c->value_size);
    case OPT_DIST:
        return take_dist(c);
    case OPT_THETA:
        return take_theta(c);
    case OPT_SEED:
        return take_seed(c);
    case OPT_RAW:
        c->raw = true;
        return true;
    case OPT_TUNING:
        c->tuning = optarg;
        return true;
    default:
        *json = optarg;
        return true;
    }
}

/* ---- results --------------------------------------------------------------------------------- */

struct output {
    const struct bench_config *config;
    struct report report;
    bool table; /* print it           */
    bool begun; /* its head is there  */
    json_t *runs;
    struct progress progress;
    bool errors; /* an operation failed */
};

static void on_progress(void *arg, const char *index, const char *what, uint64_t done,
                        uint64_t total)
{
    struct output *o = arg;
    char text[64];
    snprintf(text, sizeof text, "%s %s", index, what);
    progress_show(&o->progress, text, done, total);
}

/* The head waits until there is something to measure: a pool that cannot be opened needs none. */
static void on_index_begin(void *arg, const char *index)
{
    struct output *o = arg;
    (void)index;
    if (o->table && !o->begun)
        report_begin(&o->report, stdout, o->config);
    o->begun = true;
}

static void on_run(void *arg, const struct bench_run *run)
{
    struct output *o = arg;
    progress_clear(&o->progress);
    if (o->table)
        report_run(&o->report, run);
    json_array_append_new(o->runs, report_json_run(o->config, run));
    for (unsigned k = 0; k < FAR_OP_KINDS; k++)
        o->errors |= bench_op_errors(&run->op[k]) > 0;
}

static void on_index_done(void *arg, const char *index)
{
    struct output *o = arg;
    progress_clear(&o->progress);
    if (o->table)
        report_index(&o->report, index);
}

static int write_json(FILE *file, const char *name, const struct output *o)
{
    json_t *all = report_json(o->config, o->runs, atomic_load(&stop));
    int bad = all == NULL || json_dumpf(all, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
    bad |= fputs("\n", file) == EOF || fflush(file) != 0;
    if (bad)
        fprintf(stderr, "farside bench: cannot write the JSON to '%s': %s\n", name,
                strerror(errno));
    json_decref(all);
    return bad ? CLI_FAILED : CLI_OK;
}

static int run(const struct bench_config *c, const char *json)
{
    bool to_stdout = json != NULL && strcmp(json, "-") == 0;
    FILE *file = to_stdout ? stdout : NULL;
    if (json != NULL && !to_stdout) {
        file = fopen(json, "w");
        if (file == NULL) {
            fprintf(stderr, "farside bench: cannot write '%s': %s\n", json, strerror(errno));
            return CLI_FAILED;
        }
    }

    struct output o = {.config = c, .table = !to_stdout, .runs = json_array()};
    struct bench_observer observer = {
        .arg = &o,
        .progress = on_progress,
        .index_begin = on_index_begin,
        .run = on_run,
        .index_done = on_index_done,
    };
    progress_init(&o.progress);
    cli_catch_signals(on_signal);
    int status = bench_suite(c, &observer);
    int code = o.errors ? CLI_FAILED : CLI_OK;
    if (status != FAR_OK)
        code = cli_failed("bench", status, "cannot go on");
    if (file != NULL && write_json(file, json, &o) != CLI_OK && code == CLI_OK)
        code = CLI_FAILED;
    if (atomic_load(&stop)) {
        fprintf(stderr, "farside bench: interrupted; this is what was measured until then\n");
        code = CLI_FAILED;
    }
    if (file != NULL && !to_stdout)
        fclose(file);
    json_decref(o.runs);
    return code;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_config config = bench_defaults;
    const char *json = NULL;
    int id;

    config.stop = &stop;
    workload_parse(DEFAULT_WORKLOADS, &config.workloads);
    opterr = 0;
    while ((id = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (id == 'h') {
            usage();
            return CLI_OK;
        }
        if (id == '?' || id == ':')
            return cli_bad_option("bench", id, argv);
        if (!take_option(id, &config, &json))
            return CLI_MISUSED;
    }
    if (optind < argc)
        return cli_misused("bench", "'%s' is one argument too many", argv[optind]);
    if (bench_check(&config) != FAR_OK)
        return cli_misused("bench", "%s", far_error_detail());
    return run(&config, json);
}
