#include "base/status.h"
#include "bench/machine.h"
#include "out/text.h"
#include "cli/cli.h"
#include "cli/machines.h"
#include "cli/pages.h"
#include "cli/progress.h"
#include "reproduce/archive.h"
#include "reproduce/reproduce.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_DIR "reproduction"

static void print_experiments(void)
{
    const struct experiment *e = NULL;
    fputs("\nThe experiments:\n", stdout);
    for (unsigned i = 0; (e = experiment_at(i)) != NULL; i++)
        printf("  %-12s%s\n", e->name, e->summary);
}

static int print_list(void)
{
    const struct experiment *e = NULL;
    for (unsigned i = 0; (e = experiment_at(i)) != NULL; i++) {
        printf("%s: %s\n", e->name, e->summary);
        text_wrap(stdout, "    ", e->sources);
    }
    return CLI_OK;
}

struct session {
    struct reproduce_options options;
    struct experiment_list list;
    const char *names;           /* the list as typed */
    unsigned cells;              /* of all experiments */
    unsigned done;               /* cells of experiments that are finished */
    unsigned outdated, failures; /* cells, as in struct reproduction */
    const struct reproduction *current;
    struct progress progress;
    bool table; /* print tables */
    int rc;     /* the error that ended it */
    json_t *experiments;
};

static void on_progress(void *arg, const struct plan_cell *cell, const char *what, uint64_t done,
                        uint64_t total)
{
    struct session *s = arg;
    const struct reproduction *r = s->current;
    char text[128];
    snprintf(text, sizeof text, "%u/%u %s %s: %s", s->done + r->measured + r->reused + 1, s->cells,
             r->experiment->name, cell->name, what);
    progress_show(&s->progress, text, done, total);
}

/* Says how to go on with the results that are kept. */
static void print_resume(const struct session *s, const char *why)
{
    fprintf(stderr,
            "farside reproduce: %s; what is finished is in '%s'. To continue: farside reproduce %s "
            "--resume%s --out '%s'",
            why, s->options.dir, s->names, s->options.quick ? " --quick" : "", s->options.dir);
    if (s->options.setting.testbed)
        fprintf(stderr, " --testbed '%s'", s->options.setting.testbed);
    fputs("\n", stderr);
}

static int print_failure(const struct session *s, const struct reproduction *r, int rc)
{
    if (rc == FAR_STOPPED) {
        print_resume(s, "interrupted");
        return CLI_FAILED;
    }
    int code = r->failed ? cli_failed("reproduce", rc, "%s: cannot measure %s", r->experiment->name,
                                      r->failed->name)
                         : cli_failed("reproduce", rc, "%s", r->experiment->name);
    if (rc == FAR_NO_FABRIC && !s->options.setting.testbed)
        fprintf(stderr, "farside reproduce: hint: this build has no model of a network; --testbed "
                        "URI measures on a pool\n");
    else if (s->done > 0)
        print_resume(s, "not finished");
    return code;
}

static int run_experiment(struct session *s, const struct experiment *e)
{
    struct reproduction *r = reproduce_new(e, s->options.quick);
    if (!r)
        return cli_no_memory("reproduce");
    s->current = r;
    int rc = reproduce_run(r, &s->options);
    s->rc = rc;
    int code = CLI_OK;
    progress_clear(&s->progress);
    if (rc != FAR_OK)
        code = print_failure(s, r, rc);
    else if (s->table)
        reproduce_print(r, stdout);
    if (rc == FAR_OK && cell_kept(&s->options.setting) &&
        json_array_append_new(s->experiments, reproduce_json(r, &s->options)) != 0)
        code = cli_no_memory("reproduce");
    s->done += r->plan.count;
    s->outdated += r->outdated;
    s->failures += r->failures;
    reproduce_free(r);
    return code;
}

/* Counts the cells of all experiments. False when out of memory. */
static bool count_cells(struct session *s)
{
    for (unsigned i = 0; i < s->list.count; i++) {
        struct reproduction *r = reproduce_new(s->list.item[i], s->options.quick);
        if (!r)
            return false;
        s->cells += r->plan.count;
        reproduce_free(r);
    }
    return true;
}

static int run_experiments(struct session *s)
{
    int code = count_cells(s) ? CLI_OK : cli_no_memory("reproduce");
    if (code == CLI_OK && s->table)
        printf("Farside %s: %u measurements; the results are kept in '%s'.\n\n", far_version(),
               s->cells, s->options.dir);
    fflush(stdout);
    for (unsigned i = 0; i < s->list.count && code == CLI_OK; i++) {
        code = run_experiment(s, s->list.item[i]);
        if (s->table && !cli_output_good()) /* main() says so */
            code = CLI_FAILED;
    }
    if (s->failures > 0) {
        fprintf(stderr, "farside reproduce: %u measurement%s failed; --resume tries %s again\n",
                s->failures, text_plural(s->failures), s->failures == 1 ? "it" : "them");
        code = CLI_FAILED;
    }
    if (s->outdated > 0)
        fprintf(stderr,
                "farside reproduce: note: %u result%s of another configuration or version %s "
                "measured again\n",
                s->outdated, text_plural(s->outdated), s->outdated == 1 ? "was" : "were");
    return code;
}

/* All that is finished. A new reference; NULL when out of memory. */
static json_t *session_json(const struct session *s, bool complete)
{
    char time[MACHINE_TIME_BYTES];
    return json_pack("{s:s, s:s, s:o, s:b, s:b, s:O}", "farside", far_version(), "time",
                     machine_time(time), "machine", machine_json(), "quick", s->options.quick,
                     "complete", complete, "experiments", s->experiments);
}

static int run(struct session *s, const struct pages_names *files)
{
    static const struct pages_names none;
    struct pages pages;
    bool kept = cell_kept(&s->options.setting);
    int code = pages_open(&pages, "reproduce", kept ? files : &none);
    if (code != CLI_OK)
        return code;
    s->table = kept && !pages_to_stdout(&pages);
    s->experiments = json_array();
    progress_init(&s->progress);
    code = run_experiments(s);
    bool measured = json_array_size(s->experiments) > 0;
    int written = pages_close(&pages, session_json(s, code == CLI_OK), measured);
    json_decref(s->experiments);
    return code == CLI_OK ? written : code;
}

/* Refuses to replace results by accident. */
static int check_dir(const struct session *s)
{
    for (unsigned i = 0; i < s->list.count; i++)
        if (archive_has(s->options.dir, s->list.item[i]->name)) {
            fprintf(stderr,
                    "farside reproduce: '%s' already has results of %s: use them with --resume, "
                    "replace them with --force, or choose another directory with --out\n",
                    s->options.dir, s->list.item[i]->name);
            return CLI_FAILED;
        }
    return CLI_OK;
}

int cmd_reproduce(int argc, char **argv)
{
    struct session s = {.options = {.dir = DEFAULT_DIR}};
    struct machines machines = MACHINES_DEFAULT;
    char text[MEET_OPTIONS_MAX];
    bool list = false, force = false;
    struct pages_names files = {.json = NULL};
    char names[EXPERIMENT_NAMES_BYTES];
    const struct cli_option options[] = {
        {"list", NULL, "print the experiments and the figures that they repeat", .flag = &list},
        {"quick", NULL, "fewer keys, operations and points: all of it takes an hour or two",
         .flag = &s.options.quick},
        {"out", "DIR", "the directory for the results (" DEFAULT_DIR ")", .text = &s.options.dir},
        {"resume", NULL,
         "use the results in DIR that are of the same configuration and version, and measure only "
         "what is missing",
         .flag = &s.options.resume},
        {"force", NULL, "measure again what DIR has results of, and replace them", .flag = &force},
        {"testbed", "URI",
         "measure throughput and latency on this pool, not on the model; the clients are threads "
         "of this process, or of all machines",
         .text = &s.options.setting.testbed},
        MACHINES_OPTIONS(&machines),
        PAGES_OPTIONS(&files),
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "reproduce",
        .usage = "LIST|all [OPTION...]\n       farside reproduce --list",
        .about =
            "Repeats experiments of the papers on the indexes, and says which of their claims hold "
            "here. LIST has names with commas between them. Throughput and latency are of a "
            "modelled network in virtual time; round trips, bytes and space do not depend on time.",
        .lists = print_experiments,
        .options = options,
        .args_max = 1,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (list)
        return print_list();
    if (optind == argc)
        return cli_misused("reproduce", "no experiment is given (available: %s, all)",
                           experiment_names(names));
    if (s.options.resume && force)
        return cli_misused("reproduce", "--resume and --force exclude each other");
    s.names = argv[optind];
    if (experiment_parse(s.names, &s.list) != FAR_OK)
        return cli_misused("reproduce", "%s", far_error_detail());
    code = machines_find("reproduce", &machines);
    if (code != CLI_OK)
        return code;
    if (machines.count > 1 && !s.options.setting.testbed)
        return cli_misused("reproduce", "--machines needs --testbed URI: the model has machines of "
                                        "its own");
    if (!s.options.resume && !force && machines.rank == 0)
        code = check_dir(&s);
    if (code != CLI_OK)
        return code;
    struct cell_setting *setting = &s.options.setting;
    setting->stop = cli_stop_on_signals();
    snprintf(text, sizeof text, "version %s\n%.1500s\n%s", far_version(), s.names,
             s.options.quick ? "--quick" : "all points");
    code = machines_meet("reproduce", &machines, setting->testbed, text, setting->stop,
                         &setting->meet);
    if (code != CLI_OK)
        return code;
    if (setting->meet)
        setting->stop = meet_stop(setting->meet);
    s.options.setting.progress = on_progress;
    s.options.setting.arg = &s;
    code = run(&s, &files);
    meet_close(setting->meet, s.rc);
    return code;
}
