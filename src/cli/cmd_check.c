/* farside check: runs an index in the simulator, seed by seed or under every schedule. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/check_sites.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "check/check.h"

#include <inttypes.h>
#include <limits.h>
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FAILURES_SHOWN 10u /* further ones are only counted */
#define SHRINK_RUNS    20000u
#define PROGRAMS_MAX   1000000u
#define SCHEDULES_MAX  10000000u /* of one program */
#define NOT_GIVEN      UINT_MAX
#define ENUMERATED     (0u | SIM_REORDER | SIM_INTERLEAVE | SIM_TORN | SIM_CRASH | SIM_ERROR)

struct config {
    struct check_settings set;
    struct cli_indexes indexes; /* none: all */
    uint64_t first, last;
    bool exhaustive;
    uint64_t switches;
    bool fail_fast, no_shrink;
    bool coverage;
    const char *unmet; /* a file */
    const char *at;    /* an aim */
    const char *json;
};

static atomic_bool stop;

static void print_lists(void)
{
    fputs("\nThe faults:", stdout);
    for (unsigned i = 0; i < SIM_ADVERSITY_COUNT; i++)
        printf(" %s", sim_adversity_name((enum sim_adversity)i));
    fputs("\n", stdout);
    cli_print_indexes();
}

/* ---- options --------------------------------------------------------------------------------- */

static bool take_seeds(const char *command, const char *given, void *arg)
{
    struct config *c = arg;
    char text[64];
    snprintf(text, sizeof text, "%s", given);
    char *dots = strstr(text, "..");
    const char *last = dots ? dots + 2 : text;
    if (dots)
        *dots = '\0';
    if (strlen(given) < sizeof text && text_number(text, 0, UINT64_MAX - 1, &c->first) &&
        text_number(last, c->first, UINT64_MAX - 1, &c->last))
        return true;
    cli_misused(command, "invalid --seeds '%s': expected A..B with A not above B, or one number",
                given);
    return false;
}

static bool unknown_fault(const char *command, const char *name)
{
    char known[256] = "all, none";
    for (unsigned i = 0; i < SIM_ADVERSITY_COUNT; i++) {
        strncat(known, ", ", sizeof known - strlen(known) - 1);
        strncat(known, sim_adversity_name((enum sim_adversity)i), sizeof known - strlen(known) - 1);
    }
    cli_misused(command, "unknown fault '%s' (available: %s)", name, known);
    return false;
}

static bool take_faults(const char *command, const char *given, void *arg)
{
    unsigned set = 0;
    char text[256], *rest = text;
    if (strcmp(given, "all") == 0 || strcmp(given, "none") == 0) {
        *(unsigned *)arg = *given == 'a' ? SIM_ALL : 0;
        return true;
    }
    snprintf(text, sizeof text, "%s", given);
    for (const char *one = NULL; (one = strsep(&rest, ",")) != NULL;) {
        unsigned i = 0;
        while (i < SIM_ADVERSITY_COUNT && strcmp(one, sim_adversity_name(i)) != 0)
            i++;
        if (i == SIM_ADVERSITY_COUNT)
            return unknown_fault(command, one);
        set |= 1u << i;
    }
    *(unsigned *)arg = set;
    return true;
}

static bool take_profile(const char *command, const char *given, void *arg)
{
    for (unsigned i = 0; i < SIM_PROFILES; i++)
        if (strcmp(given, sim_profile_name((enum sim_profile)i)) == 0) {
            *(enum sim_profile *)arg = (enum sim_profile)i;
            return true;
        }
    cli_misused(command, "invalid --profile '%s': expected sc, ib or ib_loose", given);
    return false;
}

/* Does --exhaustive enumerate all of these faults? */
static int check_enumerated(unsigned adversity)
{
    for (unsigned i = 0; i < SIM_ADVERSITY_COUNT; i++)
        if (adversity & ~ENUMERATED & 1u << i)
            return cli_misused("check",
                               "--exhaustive does not support fault '%s' (available: none, "
                               "reorder, torn, interleave, crash, error)",
                               sim_adversity_name((enum sim_adversity)i));
    return CLI_OK;
}

/* Fills in what was not given, which depends on --exhaustive. */
static int fill_defaults(struct config *c)
{
    if (!c->exhaustive && c->switches != UINT64_MAX)
        return cli_misused("check", "--switches needs --exhaustive");
    if (c->exhaustive && (c->coverage || c->at))
        return cli_misused("check", "--exhaustive does not go with %s",
                           c->coverage ? "--coverage" : "--at");
    const char *twice = c->set.tails ? "tails" : c->set.chains ? "chains" : NULL;
    if (twice && (c->exhaustive || c->set.profile == SIM_IB_LOOSE))
        return cli_misused("check", "--%s does not go with %s", twice,
                           c->exhaustive ? "--exhaustive" : "--profile ib_loose");
    if (c->set.chains && (c->set.tails || c->coverage || c->at))
        return cli_misused("check", "--chains does not go with %s",
                           c->set.tails  ? "--tails"
                           : c->coverage ? "--coverage"
                                         : "--at");
    if (c->unmet && !c->coverage)
        return cli_misused("check", "--unmet needs --coverage");
    if (!c->exhaustive && c->set.grow > 0)
        return cli_misused("check", "--grow needs --exhaustive");
    if (c->set.clients == 0)
        c->set.clients = c->exhaustive ? 2 : 3;
    if (c->set.keys == 0)
        c->set.keys = c->exhaustive ? 1 : 3;
    if (c->set.ops == 0)
        c->set.ops = c->exhaustive ? 1 : 25;
    if (c->set.adversity == NOT_GIVEN)
        c->set.adversity = c->exhaustive ? SIM_REORDER | SIM_INTERLEAVE : SIM_ALL;
    if (c->exhaustive && (c->set.clients + (c->set.grow > 0) > CHECK_CLIENTS_MAX ||
                          c->set.ops > CHECK_STEPS_MAX || check_programs(&c->set) > PROGRAMS_MAX))
        return cli_misused("check",
                           "too much for --exhaustive: try 2 clients, 1 or 2 keys and a few "
                           "operations");
    return c->exhaustive ? check_enumerated(c->set.adversity) : CLI_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

struct tally { /* of one index */
    const char *index;
    uint64_t histories, passed, failed, undecided, operations, gave_up, unknown;
    uint64_t reused, sweeps, reaped;
    uint64_t programs, grown, calmed;
    bool complete;
    struct sim_counts counts;
    struct check_totals totals;
    double seconds;
    json_t *failures;
};

struct output {
    const struct config *config;
    bool text; /* print text */
    struct progress progress;
    struct sites *sites; /* NULL: not counted */
    json_t *indexes;
    json_t *aimed;              /* NULL: no run was aimed */
    struct check_totals totals; /* of all indexes */
    uint64_t passed, failed, undecided;
};

static void faults_text(unsigned adversity, char *text, size_t room)
{
    size_t used = 0;
    if (adversity == SIM_ALL || adversity == 0) {
        snprintf(text, room, "%s", adversity ? "all" : "none");
        return;
    }
    for (unsigned i = 0; i < SIM_ADVERSITY_COUNT && used < room; i++)
        if (adversity & 1u << i)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? "," : "",
                                     sim_adversity_name((enum sim_adversity)i));
}

static void repeat_command(const struct output *o, const struct check_settings *s, uint64_t seed,
                           char *text, size_t room)
{
    char faults[128], aim[160] = "";
    if (s->aim)
        check_sites_aim_text(o->sites, s->aim, aim, sizeof aim);
    faults_text(s->adversity, faults, sizeof faults);
    snprintf(text, room,
             "farside check --index %s --seeds %" PRIu64 "..%" PRIu64
             " --clients %u --keys %u --ops %u --faults %s --profile %s%s%s%s",
             s->index, seed, seed, s->clients, s->keys, s->ops, faults,
             sim_profile_name(s->profile),
             s->tails    ? " --tails"
             : s->chains ? " --chains"
                         : "",
             s->aim ? " --at " : "", aim);
}

static void note_failure(struct output *o, struct tally *t, uint64_t seed,
                         const struct check_settings *s, const struct check_result *r)
{
    char command[512];
    repeat_command(o, s, seed, command, sizeof command);
    if (t->failed + t->undecided > FAILURES_SHOWN)
        return;
    json_array_append_new(t->failures, json_pack("{s:I, s:s, s:s, s:s}", "seed", (json_int_t)seed,
                                                 "verdict", check_verdict_name(r->verdict), "what",
                                                 r->what, "replay", command));
    if (!o->text)
        return;
    progress_clear(&o->progress);
    printf("%s: seed %" PRIu64 ": %s: %s\n  repeat: %s\n", s->index, seed,
           check_verdict_name(r->verdict), r->what, command);
    fflush(stdout);
}

static void print_shrunk(struct check *check, const struct output *o,
                         const struct check_settings *s, uint64_t seed,
                         const struct check_result *r)
{
    struct check_shrunk shrunk;
    char command[512];
    check_shrink(check, s, seed, r, SHRINK_RUNS, &shrunk);
    repeat_command(o, &shrunk.settings, shrunk.seed, command, sizeof command);
    printf("  smaller (%u runs): %s\n"
           "  its history, with %zu eventful choices left:\n",
           shrunk.runs, command, shrunk.choices);
    check_print(check, stdout);
    printf("\n");
    fflush(stdout);
}

static void print_counts(const struct tally *t)
{
    const uint64_t *h = t->counts.happened;
    printf("  faults: %" PRIu64 " crashes, %" PRIu64 " pauses, %" PRIu64 " errors, %" PRIu64
           " nodes lost\n"
           "  verbs: %" PRIu64 " torn, %" PRIu64 " atomics halved, %" PRIu64 " reordered, %" PRIu64
           " completed before they were visible\n"
           "  pool: %" PRIu64 " objects reused, %" PRIu64 " sweeps, %" PRIu64
           " clients shut out, %" PRIu64 " recovered\n"
           "  %" PRIu64 " of unknown outcome, %" PRIu64 " gave up, %" PRIu64 " undecided; %.1f s\n",
           h[SIM_NUMBER_CRASH], h[SIM_NUMBER_PAUSE], h[SIM_NUMBER_ERROR], h[SIM_NUMBER_NODE],
           t->counts.torn, t->counts.halved, t->counts.reordered, t->counts.late, t->reused,
           t->sweeps, t->counts.shut_out, t->reaped, t->unknown, t->gave_up, t->undecided,
           t->seconds);
    if (t->counts.waited > 0)
        printf("  tails: %" PRIu64 " heads lost, %" PRIu64 " tails lost, %" PRIu64
               " verbs met a word on its way to the tail\n",
               t->counts.heads_lost, t->counts.tails_lost, t->counts.waited);
}

static double share(uint64_t part, uint64_t of)
{
    return of ? 100.0 * (double)part / (double)of : 0;
}

/* Shows what the runs were like, not only that they passed. */
static void print_totals(const struct check_totals *n)
{
    printf("  growth: %.2f restructurings a run; one on another in %.0f %% of the runs, with a "
           "ring in "
           "%.0f %%, on several nodes in %.0f %%\n"
           "  runs: %.0f %% with two tables, %.0f %% with masked CAS emulated, %.0f %% without a "
           "fence, %.0f %% accounted for before a sweep\n"
           "  sessions: %" PRIu64 " opened at work, %" PRIu64 " closed (%" PRIu64
           " while parked), %" PRIu64 " parkings, %" PRIu64 " tables attached, %" PRIu64
           " iterated, %" PRIu64 " ranges scanned, %" PRIu64 " locks taken, %" PRIu64
           " recovered by journals (%" PRIu64 " with their change)\n"
           "  caches: %" PRIu64 " entries followed, %" PRIu64 " doubted, %" PRIu64
           " parts replaced\n"
           "  tables: %" PRIu64 " dropped, found gone by %" PRIu64 " operations\n"
           "  beside others: %" PRIu64 " checks, %" PRIu64 " repairs\n",
           n->runs ? (double)n->restructured / (double)n->runs : 0, share(n->cascades, n->runs),
           share(n->rings, n->runs), share(n->nodes, n->runs), share(n->tables, n->runs),
           share(n->emulated, n->runs), share(n->unfenced, n->runs), share(n->accounted, n->runs),
           n->opened, n->closed, n->closed_parked, n->parks, n->attached, n->iterated, n->scanned,
           n->locks, n->recovered, n->redone, n->cached_fresh, n->cached_doubted, n->cached_changes,
           n->dropped, n->found_gone, n->checked, n->repaired);
}

static void add_totals(struct check_totals *sum, const struct check_totals *n)
{
#define CHECK_X(name, text, of_one) sum->name += n->name;
    CHECK_TOTALS(CHECK_X)
#undef CHECK_X
}

/* Has everything happened that is counted? */
static bool all_happened(const struct check_totals *n)
{
    bool all = true;
#define CHECK_X(name, text, of_one)                                                                \
    if (n->name == 0) {                                                                            \
        fprintf(stderr, "farside check: never happened: %s\n", text);                              \
        all = false;                                                                               \
    }
    CHECK_TOTALS(CHECK_X)
#undef CHECK_X
    return all;
}

static json_t *totals_json(const struct check_totals *n)
{
    json_t *all = json_object();
#define CHECK_X(name, text, of_one)                                                                \
    json_object_set_new(all, text, json_integer((json_int_t)n->name));
    CHECK_TOTALS(CHECK_X)
#undef CHECK_X
    return all;
}

static json_t *tally_json(const struct tally *t)
{
    json_t *faults = json_object(), *all = NULL;
    for (unsigned i = SIM_NUMBER_CRASH; i <= SIM_NUMBER_NODE; i++)
        json_object_set_new(faults, sim_adversity_name((enum sim_adversity)i),
                            json_integer((json_int_t)t->counts.happened[i]));
    all = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, "
                    "s:f, s:O}",
                    "index", t->index, "histories", (json_int_t)t->histories, "passed",
                    (json_int_t)t->passed, "failed", (json_int_t)t->failed, "undecided",
                    (json_int_t)t->undecided, "operations", (json_int_t)t->operations, "verbs",
                    (json_int_t)t->counts.verbs, "resizes", (json_int_t)t->totals.restructured,
                    "unknown", (json_int_t)t->unknown, "gave_up", (json_int_t)t->gave_up, "torn",
                    (json_int_t)t->counts.torn, "halved", (json_int_t)t->counts.halved, "reordered",
                    (json_int_t)t->counts.reordered, "late", (json_int_t)t->counts.late, "faults",
                    faults, "seconds", t->seconds, "failures", t->failures);
    if (all)
        json_object_set_new(all, "pool",
                            json_pack("{s:I, s:I, s:I, s:I}", "reused", (json_int_t)t->reused,
                                      "sweeps", (json_int_t)t->sweeps, "shut_out",
                                      (json_int_t)t->counts.shut_out, "recovered",
                                      (json_int_t)t->reaped));
    if (all && t->programs == 0)
        json_object_set_new(all, "coverage", totals_json(&t->totals));
    if (all && t->counts.waited > 0)
        json_object_set_new(all, "tails",
                            json_pack("{s:I, s:I, s:I}", "heads_lost",
                                      (json_int_t)t->counts.heads_lost, "tails_lost",
                                      (json_int_t)t->counts.tails_lost, "waited",
                                      (json_int_t)t->counts.waited));
    if (all && t->programs > 0) {
        json_object_set_new(all, "programs", json_integer((json_int_t)t->programs));
        json_object_set_new(all, "programs_with_growth", json_integer((json_int_t)t->grown));
        json_object_set_new(all, "runs_with_growth", json_integer((json_int_t)t->totals.grew));
        json_object_set_new(all, "cut_short", json_integer((json_int_t)t->calmed));
        json_object_set_new(all, "complete", json_boolean(t->complete));
    }
    return all;
}

static void finish_index(struct output *o, struct tally *t)
{
    progress_clear(&o->progress);
    if (o->text) {
        printf("%s: ", t->index);
        if (t->programs > 0)
            printf("%" PRIu64 " programs, ", t->programs);
        printf("%" PRIu64 " histories, %" PRIu64 " operations, %" PRIu64 " verbs, %" PRIu64
               " resizes\n",
               t->histories, t->operations, t->counts.verbs, t->totals.restructured);
        if (t->programs > 0)
            printf("  %s; %" PRIu64 " schedules that retried too long were cut short\n",
                   t->complete ? "every schedule" : "not every schedule: a limit was reached",
                   t->calmed);
        if (o->config->set.grow > 0)
            printf("  growth: in %" PRIu64 " of %" PRIu64
                   " programs, in %.0f %% of the histories\n",
                   t->grown, t->programs, share(t->totals.grew, t->totals.runs));
        if (t->programs == 0)
            print_totals(&t->totals);
        print_counts(t);
    }
    json_array_append_new(o->indexes, tally_json(t));
    json_decref(t->failures);
    o->passed += t->passed;
    o->failed += t->failed;
    o->undecided += t->undecided;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* Printed if the code under test fails an assert or crashes, so that the seed is not lost. */
static char crash_message[640];
static struct sigaction before[NSIG];

static void on_death(int number)
{
    ssize_t ignored = write(STDERR_FILENO, crash_message, strlen(crash_message));
    (void)ignored;
    sigaction(number, &before[number], NULL);
    raise(number);
}

static void on_stop(int number)
{
    (void)number;
    atomic_store(&stop, true);
}

static void catch_signals(void)
{
    static char stack[64 * 1024];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction death = {.sa_handler = on_death, .sa_flags = SA_ONSTACK | SA_NODEFER};
    struct sigaction ending = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigemptyset(&death.sa_mask);
    sigemptyset(&ending.sa_mask);
    sigaltstack(&alternate, NULL);
    for (unsigned i = 0; i < sizeof deadly / sizeof *deadly; i++)
        sigaction(deadly[i], &death, &before[deadly[i]]);
    sigaction(SIGINT, &ending, NULL);
    sigaction(SIGTERM, &ending, NULL);
}

static void run_seed(struct check *check, struct output *o, struct tally *t,
                     const struct check_settings *s, uint64_t seed)
{
    struct check_result r;
    char command[512];
    repeat_command(o, s, seed, command, sizeof command);
    snprintf(crash_message, sizeof crash_message,
             "farside check: crashed in seed %" PRIu64 "; to repeat it: %s\n", seed, command);
    check_seed(check, s, seed, &r);
    t->histories++;
    t->operations += r.operations;
    t->gave_up += r.gave_up;
    t->unknown += r.unknown;
    check_add_coverage(&t->totals, &r.coverage);
    t->reused += r.reused;
    t->sweeps += r.sweeps;
    t->reaped += r.reaped;
    check_add_counts(&t->counts, &r.counts);
    if (r.verdict == CHECK_PASSED) {
        t->passed++;
        return;
    }
    bool undecided = r.verdict == CHECK_UNDECIDED;
    *(undecided ? &t->undecided : &t->failed) += 1;
    note_failure(o, t, seed, s, &r);
    if (!undecided && t->failed == 1 && o->text && !o->config->no_shrink)
        print_shrunk(check, o, s, seed, &r);
}

/* All seeds, or those of the index if all indexes share them. */
static void run_seeds(struct check *check, struct output *o, struct tally *t,
                      const struct check_settings *s)
{
    const struct config *c = o->config;
    bool shared = c->indexes.count == 0;
    uint64_t total = c->last - c->first + 1;
    for (uint64_t i = 0; i < total && !atomic_load(&stop); i++) {
        if (shared && check_index_of(c->first + i) != s->index)
            continue;
        run_seed(check, o, t, s, c->first + i);
        if (c->fail_fast && t->failed + t->undecided > 0)
            break;
        if (i % 16 == 0)
            progress_show(&o->progress, s->index, i + 1, total);
    }
}

/* ---- aimed runs ------------------------------------------------------------------------------ */

#define RARE     3u  /* a fault that was met less often at a place is aimed at, */
#define AIMS_MAX 12u /* at most so often                                        */

/* Runs seeds that have reached the place, until the fault is not rare there. */
static void aim_at(struct check *check, struct output *o, struct tally *t, uint32_t number,
                   enum site_fault fault)
{
    const struct site *site = &o->sites->site[number];
    for (unsigned i = 0; i < AIMS_MAX && site->witnesses > 0 && site->met[fault] < RARE; i++) {
        const struct site_witness *w = &site->witness[i % site->witnesses];
        struct site_aim aim = {.site = number, .fault = fault, .skip = i / site->witnesses};
        struct check_settings s = o->config->set;
        s.index = w->index;
        s.aim = &aim;
        if (atomic_load(&stop) || (o->config->fail_fast && t->failed + t->undecided > 0))
            return;
        run_seed(check, o, t, &s, w->seed);
    }
}

static void run_aimed(struct check *check, struct output *o)
{
    struct tally t = {.index = "aimed", .failures = json_array()};
    uint64_t begin = clock_ns();
    for (uint32_t i = 0; i < o->sites->count; i++) {
        for (unsigned fault = 0; fault < SITE_FAULT_COUNT; fault++)
            if (site_applies(&o->sites->site[i], fault) && site_fault_aimable(fault))
                aim_at(check, o, &t, i, fault);
        progress_show(&o->progress, t.index, i + 1, o->sites->count);
    }
    t.seconds = (double)(clock_ns() - begin) / 1e9;
    progress_clear(&o->progress);
    if (o->text)
        printf("aimed at rare faults: %" PRIu64 " histories, %" PRIu64 " operations; %.1f s\n",
               t.histories, t.operations, t.seconds);
    o->aimed =
        json_pack("{s:I, s:I, s:I, s:o}", "histories", (json_int_t)t.histories, "passed",
                  (json_int_t)t.passed, "failed", (json_int_t)t.failed, "failures", t.failures);
    o->passed += t.passed;
    o->failed += t.failed;
    o->undecided += t.undecided;
}

/* ---- schedules ------------------------------------------------------------------------------- */

struct exhausting {
    struct output *output;
    const struct check_settings *set;
};

static bool on_program(void *arg, const struct check_exhausted *x)
{
    struct exhausting *e = arg;
    progress_show(&e->output->progress, e->set->index, x->programs, check_programs(e->set));
    return !atomic_load(&stop);
}

static void print_program(const struct check_settings *s, const struct check_program *p)
{
    for (unsigned key = 0; key < s->keys; key++)
        printf("  k%u is %s at the start\n", key, p->present >> key & 1 ? "present" : "absent");
    for (unsigned i = 0; i < s->clients; i++) {
        printf("  c%u:", i);
        for (unsigned j = 0; j < s->ops; j++)
            printf(" %s k%u%s", lin_kind_name((enum lin_kind)p->step[i][j].kind), p->step[i][j].key,
                   j + 1 < s->ops ? "," : "\n");
    }
    if (s->grow > 0)
        printf("  c%u: put a key that makes the table grow\n", s->clients);
}

static void run_exhaustive(struct check *check, struct output *o, struct tally *t,
                           const struct check_settings *s)
{
    struct check_exhausted x;
    struct exhausting e = {.output = o, .set = s};
    snprintf(crash_message, sizeof crash_message,
             "farside check: crashed while enumerating schedules\n");
    check_exhaust(check, s, (size_t)o->config->switches, SCHEDULES_MAX, on_program, &e, &x);
    t->programs = x.programs;
    t->grown = x.grown;
    t->totals = x.totals;
    t->histories = x.runs;
    t->operations = x.operations;
    t->failed = x.failed;
    t->undecided = x.undecided;
    t->passed = x.runs - x.failed - x.undecided;
    t->counts = x.counts;
    t->calmed = x.calmed;
    t->complete = x.complete && x.failed == 0;
    if (x.failed == 0)
        return;
    json_array_append_new(t->failures,
                          json_pack("{s:s, s:s}", "verdict", check_verdict_name(x.first.verdict),
                                    "what", x.first.what));
    if (!o->text)
        return;
    progress_clear(&o->progress);
    printf("%s: %s: %s\n", s->index, check_verdict_name(x.first.verdict), x.first.what);
    print_program(s, &x.program);
    check_print(check, stdout);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static json_t *results_json(const struct output *o)
{
    char faults[128];
    const struct config *c = o->config;
    faults_text(c->set.adversity, faults, sizeof faults);
    json_t *all = json_pack(
        "{s:s, s:{s:I, s:I, s:i, s:i, s:i, s:s, s:s, s:b}, s:O, s:I, s:I, s:I}", "version",
        far_version(), "settings", "first_seed", (json_int_t)c->first, "last_seed",
        (json_int_t)c->last, "clients", (int)c->set.clients, "keys", (int)c->set.keys, "ops",
        (int)c->set.ops, "faults", faults, "profile", sim_profile_name(c->set.profile),
        "exhaustive", (int)c->exhaustive, "indexes", o->indexes, "passed", (json_int_t)o->passed,
        "failed", (json_int_t)o->failed, "undecided", (json_int_t)o->undecided);
    if (all && o->aimed)
        json_object_set(all, "aimed", o->aimed);
    if (all && c->coverage)
        json_object_set_new(all, "places", check_sites_json(o->sites));
    return all;
}

/* Counts sites, and reads --at, which names one. */
static int begin_sites(struct check *check, struct output *o, struct config *c)
{
    static struct site_aim aim;
    if (!c->coverage && !c->at)
        return CLI_OK;
    o->sites = sites_new();
    if (!o->sites)
        return cli_failed("check", FAR_NO_MEMORY, "cannot start");
    check_count_sites(check, o->sites);
    if (!c->at)
        return CLI_OK;
    c->set.aim = &aim;
    return check_sites_take_aim(o->sites, c->at, &aim) ? CLI_OK : CLI_MISUSED;
}

static void run_index(struct check *check, struct output *o, const char *index)
{
    struct check_settings s = o->config->set;
    struct tally t = {.index = index, .failures = json_array()};
    uint64_t begin = clock_ns();
    s.index = index;
    if (o->config->exhaustive)
        run_exhaustive(check, o, &t, &s);
    else
        run_seeds(check, o, &t, &s);
    t.seconds = (double)(clock_ns() - begin) / 1e9;
    add_totals(&o->totals, &t.totals);
    if (o->config->indexes.count == 0 && t.histories == 0) { /* fewer seeds than indexes */
        json_decref(t.failures);
        return;
    }
    finish_index(o, &t);
}

static int run(struct config *c)
{
    FILE *file = NULL;
    if (!cli_json_open("check", c->json, &file))
        return CLI_FAILED;
    struct output o = {.config = c, .text = file != stdout, .indexes = json_array()};
    struct check *check = check_new();
    const char *index = NULL;
    int code = CLI_OK;
    progress_init(&o.progress);
    if (!check)
        code = cli_failed("check", FAR_NO_MEMORY, "cannot start");
    else
        code = begin_sites(check, &o, c);
    catch_signals();
    for (unsigned i = 0; code == CLI_OK && !atomic_load(&stop); i++) {
        index = c->indexes.count == 0  ? far_index_name(i)
                : i < c->indexes.count ? c->indexes.name[i]
                                       : NULL;
        if (!index)
            break;
        run_index(check, &o, index);
    }
    if (code == CLI_OK && c->coverage && !c->at)
        run_aimed(check, &o);
    if (o.failed > 0 || o.undecided > 0)
        code = CLI_FAILED;
    if (atomic_load(&stop)) {
        fprintf(stderr, "farside check: interrupted\n");
        code = CLI_FAILED;
    }
    if (o.text && c->coverage && code != CLI_MISUSED)
        check_sites_print(o.sites);
    if (c->unmet && !atomic_load(&stop)) {
        bool met = check_sites_compare(o.sites, c->unmet);
        if (!all_happened(&o.totals) || !met)
            code = CLI_FAILED;
    }
    if (o.text && check && code != CLI_MISUSED)
        printf("%" PRIu64 " passed, %" PRIu64 " failed\n", o.passed, o.failed);
    if (file && cli_json_close("check", c->json, file, results_json(&o)) != CLI_OK)
        code = CLI_FAILED;
    check_free(check);
    sites_free(o.sites);
    json_decref(o.aimed);
    json_decref(o.indexes);
    return code;
}

int cmd_check(int argc, char **argv)
{
    struct config c = {
        .set = {.adversity = NOT_GIVEN, .profile = SIM_IB},
        .first = 1,
        .last = 1000,
        .switches = UINT64_MAX,
    };
    const struct cli_option options[] = {
        {"index", "LIST|all", "the indexes to check; all share the seeds (all)",
         .take = cli_take_indexes, .arg = &c.indexes},
        {"seeds", "A..B", "one run for each seed; A alone is one run (1..1000)", .take = take_seeds,
         .arg = &c},
        {"clients", "N", "clients that work at the same time (3)", .number = &c.set.clients,
         .min = 1, .max = CHECK_CLIENTS_MAX},
        {"keys", "N", "keys they contend for (3)", .number = &c.set.keys, .min = 1,
         .max = CHECK_KEYS_MAX},
        {"ops", "N", "operations of each client (25)", .number = &c.set.ops, .min = 1,
         .max = CHECK_OPS_MAX},
        {"faults", "LIST", "what may go wrong: a list of faults, all or none (all)",
         .take = take_faults, .arg = &c.set.adversity},
        {"profile", "NAME", "what verbs promise: sc, ib or ib_loose (ib)", .take = take_profile,
         .arg = &c.set.profile},
        {"tails", NULL,
         "give each node a second image, which lags as the marks of verbs allow, and lose one of "
         "the two in most runs (docs/fabric.md)",
         .flag = &c.set.tails},
        {"chains", NULL,
         "keep each word on two nodes, as pools with replicas=2 do, and compare the two in the end "
         "(docs/replication.md)",
         .flag = &c.set.chains},
        {"exhaustive", NULL,
         "run every schedule of every program of this size instead of seeds (2 clients, 1 key, 1 "
         "operation, --faults reorder,interleave; torn, crash and error can be added)",
         .flag = &c.exhaustive},
        {"switches", "N",
         "with --exhaustive: only schedules that switch at most N times away from the client that "
         "ran last",
         .large = &c.switches, .max = 1000000},
        {"grow", "N",
         "with --exhaustive: fill each table until its next key restructures it for the Nth time, "
         "and add a client that puts that key",
         .number = &c.set.grow, .min = 1, .max = CHECK_GROW_MAX},
        {"coverage", NULL,
         "count the faults that struck at each place in the source that posts verbs; then run "
         "seeds again that reach places where a fault was rare, with that fault there",
         .flag = &c.coverage},
        {"unmet", "FILE",
         "with --coverage: fail if a fault was met nowhere at a place where the file does not "
         "allow it",
         .text = &c.unmet},
        {"at", "PLACE,FAULT,N",
         "in each run, let the fault strike at that place, once, after N posts there",
         .text = &c.at},
        {"fail-fast", NULL, "stop at the first failure", .flag = &c.fail_fast},
        {"no-shrink", NULL, "do not search for a smaller run that fails the same way",
         .flag = &c.no_shrink},
        {"json", "FILE|-", "also write the results as JSON; with -, print only that",
         .text = &c.json},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "check",
        .usage = "[OPTION...]",
        .about = "Runs an index in a simulator with faults, and checks that every history is "
                 "linearizable, that the structure stays sound and that every operation ends. "
                 "Freed memory is filled with a pattern and reused at once; no client may touch it "
                 "before. The seed decides the kind of run: one or two tables that grow, on "
                 "several nodes; clients that come and go; small pools, sweeps, counters about to "
                 "wrap around, emulated masked CAS, no fence; tables that are dropped while others "
                 "use them, and checked and repaired while others change them.",
        .notes = "A seed that fails is shown with the command that repeats it.",
        .lists = print_lists,
        .options = options,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    code = fill_defaults(&c);
    return code == CLI_OK ? run(&c) : code;
}
