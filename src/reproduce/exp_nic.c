/* The model of a NIC against measurements of others: bare verbs, and RACE. */
#include "reproduce/experiment.h"
#include "reproduce/measured.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>

#define KEYS      100000u
#define OPS       80000u
#define QUICK_OPS 40000u

static const char *const verbs[] = {[MEASURED_READ] = "read", [MEASURED_WRITE] = "write"};
static const char *const ways[] = {[MEASURED_OWN] = "own", [MEASURED_SHARED] = "shared"};
static const char *const workloads[] = {
    [MEASURED_C] = "c", [MEASURED_A] = "a", [MEASURED_UPDATE] = "update"};

/* ---- cells ----------------------------------------------------------------------------------- */

static struct plan_network testbed(unsigned threads, unsigned depth, unsigned way)
{
    return (struct plan_network){.nic = "cx6",
                                 .machines = 1,
                                 .threads = threads,
                                 .depth = depth,
                                 .nodes = 1,
                                 .untuned = way == MEASURED_SHARED,
                                 .model_only = true};
}

static void plan_grid(struct plan *p, unsigned verb)
{
    for (unsigned t = 0; t < MEASURED_GRID_THREADS; t++) {
        unsigned threads = measured_grid_threads[t];
        struct plan_cell *cell = plan_add_verbs(p, verbs[verb], "grid-%s-%u", verbs[verb], threads);
        cell->network = testbed(threads, 1, MEASURED_OWN);
        cell->verbs.outstanding.count = MEASURED_GRID_OUTSTANDING;
        for (unsigned i = 0; i < MEASURED_GRID_OUTSTANDING; i++)
            cell->verbs.outstanding.value[i] = measured_grid_outstanding[i];
    }
}

static void plan_doorbells(struct plan *p, unsigned verb, unsigned way)
{
    for (unsigned t = 0; t < MEASURED_THREADS; t++) {
        unsigned threads = measured_threads[t];
        struct plan_cell *cell =
            plan_add_verbs(p, verbs[verb], "%s-%s-%u", ways[way], verbs[verb], threads);
        cell->network = testbed(threads, 1, way);
        cell->verbs.outstanding = (struct plan_axis){1, {MEASURED_CURVE_OUTSTANDING}};
    }
}

/* The points of RACE's curves with --quick. */
static bool left_out(const struct plan *p, unsigned threads)
{
    return p->quick && threads != 1 && threads != 16 && threads != 48 && threads != 96;
}

static void plan_race(struct plan *p, unsigned way)
{
    for (unsigned t = 0; t < MEASURED_THREADS; t++) {
        unsigned threads = measured_threads[t];
        if (left_out(p, threads))
            continue;
        struct plan_cell *cell = plan_add(p, "race", "race-%s-%u", ways[way], threads);
        cell->workloads = "c,a,update";
        cell->keys = KEYS;
        cell->ops = p->quick ? QUICK_OPS : OPS;
        cell->key_size = cell->value_size = 8;
        cell->network = testbed(threads, MEASURED_COROUTINES, way);
    }
}

/* What papers say of ConnectX-5. */
enum { SPREAD, ONE_WORD, IN_NIC, ATOMICS };
static const char *const atomics[ATOMICS] = {
    [SPREAD] = "cx5-cas-spread", [ONE_WORD] = "cx5-cas-one", [IN_NIC] = "cx5-cas-nic"};
#define KB 1024u

static void plan_atomics(struct plan *p)
{
    for (unsigned i = 0; i < ATOMICS; i++) {
        struct plan_cell *cell = plan_add_verbs(p, "cas", "%s", atomics[i]);
        cell->network = (struct plan_network){.nic = "cx5",
                                              .machines = 8,
                                              .threads = 8,
                                              .depth = 1,
                                              .nodes = 1,
                                              .locks_in_nic = i == IN_NIC,
                                              .model_only = true};
        cell->verbs.one_place = i != SPREAD;
        cell->verbs.outstanding = (struct plan_axis){1, {8}};
    }
}

static void plan_cx5(struct plan *p)
{
    static const char *const inserting[] = {"race", "sephash"};
    plan_atomics(p);
    for (unsigned bytes = 8; bytes <= KB; bytes *= KB / 8) {
        struct plan_cell *cell = plan_add_verbs(p, "read", "cx5-read-%u", bytes);
        cell->network = testbed_sephash(1);
        cell->network.model_only = true;
        cell->verbs.bytes = bytes;
        cell->verbs.outstanding = (struct plan_axis){1, {1}};
    }
    for (unsigned i = 0; i < 2; i++) {
        struct plan_cell *cell = plan_add(p, inserting[i], "cx5-insert-%s", inserting[i]);
        cell->workloads = "insert";
        cell->network = testbed_sephash(1);
        cell->network.model_only = true;
    }
    for (unsigned untuned = 0; untuned <= 1; untuned++) {
        struct plan_cell *cell = plan_add(p, "shard", "cx5-get-%s", ways[untuned]);
        cell->workloads = "get";
        cell->key_size = cell->value_size = 8;
        cell->uniform = true;
        cell->network = testbed_shard(36);
        cell->network.depth = 4;
        cell->network.untuned = untuned;
        cell->network.model_only = true;
    }
}

static void plan(struct plan *p)
{
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
        plan_grid(p, verb);
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
        for (unsigned way = 0; way < MEASURED_DOORBELLS; way++)
            plan_doorbells(p, verb, way);
    for (unsigned way = 0; way < MEASURED_DOORBELLS; way++)
        plan_race(p, way);
    plan_cx5(p);
}

/* ---- numbers: millions per second, by places in the arrays of measured.h --------------------- */

static double grid_rate(const struct results *r, unsigned verb, unsigned t, unsigned i)
{
    return results_rate_at(r, i, "grid-%s-%u", verbs[verb], measured_grid_threads[t]) / 1e6;
}

static double verb_rate(const struct results *r, unsigned verb, unsigned way, unsigned t)
{
    return results_rate_at(r, 0, "%s-%s-%u", ways[way], verbs[verb], measured_threads[t]) / 1e6;
}

static double race_rate(const struct results *r, unsigned workload, unsigned way, unsigned t)
{
    return results_rate(r, workloads[workload], "race-%s-%u", ways[way], measured_threads[t]) / 1e6;
}

static void add_grid(const struct results *r, unsigned verb, struct measured_errors *e)
{
    for (unsigned t = 0; t < MEASURED_GRID_THREADS; t++)
        for (unsigned i = 0; i < MEASURED_GRID_OUTSTANDING; i++)
            measured_add(e, measured_error(measured_grid[verb][t][i], grid_rate(r, verb, t, i)));
}

static void add_doorbells(const struct results *r, unsigned verb, unsigned way,
                          struct measured_errors *e)
{
    for (unsigned t = 0; t < MEASURED_THREADS; t++)
        measured_add(e,
                     measured_error(measured_doorbells[verb][way][t], verb_rate(r, verb, way, t)));
}

static struct measured_errors grid_errors(const struct results *r)
{
    struct measured_errors e = {.count = 0};
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
        add_grid(r, verb, &e);
    return e;
}

static void add_all_doorbells(const struct results *r, struct measured_errors *e)
{
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
        for (unsigned way = 0; way < MEASURED_DOORBELLS; way++)
            add_doorbells(r, verb, way, e);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void point(struct sheet *s, double measured, double model, const char *source)
{
    double error = 100 * measured_error(measured, model);
    sheet_paper_number(s, s->columns + 1, measured, 2, source);
    sheet_number(s, model, 2);
    if (isnan(error))
        sheet_text(s, "-");
    else
        sheet_text(s, "%+.1f %%", error);
}

/* The heads of a table with two groups of measured, model, error. */
static void heads(struct sheet *s, const char *second, const char *left, const char *right)
{
    sheet_row(s, "threads");
    if (second)
        sheet_text(s, "%s", second);
    for (unsigned group = 0; group < 2; group++) {
        sheet_text(s, "%s", group == 0 ? left : right);
        sheet_text(s, "model");
        sheet_text(s, "error");
    }
}

static void show_grid(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    heads(&s, "outstanding", "READ", "WRITE");
    for (unsigned t = 0; t < MEASURED_GRID_THREADS; t++)
        for (unsigned i = 0; i < MEASURED_GRID_OUTSTANDING; i++) {
            sheet_row(&s, "%u", measured_grid_threads[t]);
            sheet_text(&s, "%u", measured_grid_outstanding[i]);
            for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
                point(&s, measured_grid[verb][t][i], grid_rate(r, verb, t, i), "SMART Fig. 4");
        }
    sheet_print(&s, out,
                "Verbs of 8 bytes, own doorbells, over threads and verbs outstanding of each: "
                "measured (SMART Fig. 4), model, and the model's error; millions a second:");
}

static void show_doorbells(const struct results *r, unsigned verb, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    heads(&s, NULL, "own", "shared");
    s.lines = s.scaling = true;
    for (unsigned t = 0; t < MEASURED_THREADS; t++) {
        sheet_row(&s, "%u", measured_threads[t]);
        for (unsigned way = 0; way < MEASURED_DOORBELLS; way++)
            point(&s, measured_doorbells[verb][way][t], verb_rate(r, verb, way, t), "SMART Fig. 3");
    }
    sheet_print(&s, out,
                verb == MEASURED_READ
                    ? "READs with own and with the driver's shared doorbells, 8 outstanding of "
                      "each thread: measured (SMART Fig. 3), model, error; millions a second:"
                    : "WRITEs, the same:");
}

static void error_row(struct sheet *s, const char *name, const struct measured_errors *e)
{
    sheet_row(s, "%s", name);
    sheet_text(s, "%u", e->count);
    sheet_number(s, 100 * measured_median(e), 1);
    sheet_number(s, 100 * measured_worst(e), 1);
}

static void show_errors(const struct results *r, struct sheet_sink *out)
{
    static const char *const grids[] = {"READ, grid", "WRITE, grid"};
    static const char *const curves[][MEASURED_DOORBELLS] = {
        {"READ, own doorbells", "READ, shared doorbells"},
        {"WRITE, own doorbells", "WRITE, shared doorbells"}};
    struct measured_errors all = grid_errors(r);
    struct sheet s;
    sheet_init(&s);
    sheet_texts(&s, "part", "points", "median", "worst");
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++) {
        struct measured_errors e = {.count = 0};
        add_grid(r, verb, &e);
        error_row(&s, grids[verb], &e);
    }
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
        for (unsigned way = 0; way < MEASURED_DOORBELLS; way++) {
            struct measured_errors e = {.count = 0};
            add_doorbells(r, verb, way, &e);
            error_row(&s, curves[verb][way], &e);
        }
    add_all_doorbells(r, &all);
    error_row(&s, "all", &all);
    sheet_print(&s, out, "The model's errors, in percent:");
}

static void show_race(const struct results *r, unsigned workload, struct sheet_sink *out)
{
    static const char *const titles[] = {
        [MEASURED_C] =
            "RACE, YCSB C, millions of operations a second: as published beside ours with shared "
            "doorbells, and with all of SMART's techniques beside ours with own doorbells (SMART "
            "Fig. 8). The model was not fitted to these:",
        [MEASURED_A] = "RACE, YCSB A, the same (SMART Fig. 8):",
        [MEASURED_UPDATE] = "RACE, updates only, the same (SMART Fig. 14):"};
    const char *source = workload == MEASURED_UPDATE ? "SMART Fig. 14" : "SMART Fig. 8";
    struct sheet s;
    sheet_init(&s);
    heads(&s, NULL, "published", "SMART");
    s.lines = s.scaling = true;
    for (unsigned t = 0; t < MEASURED_THREADS; t++) {
        if (left_out(r->plan, measured_threads[t]) || isnan(measured_race[workload][0][t]))
            continue;
        sheet_row(&s, "%u", measured_threads[t]);
        point(&s, measured_race[workload][MEASURED_SHARED][t],
              race_rate(r, workload, MEASURED_SHARED, t), source);
        point(&s, measured_race[workload][MEASURED_OWN][t], race_rate(r, workload, MEASURED_OWN, t),
              source);
    }
    sheet_print(&s, out, titles[workload]);
}

static void cx5_row(struct sheet *s, const char *what, double published, double model,
                    const char *source)
{
    sheet_row(s, "%s", what);
    point(s, published, model, source);
    sheet_text(s, "%s", source);
}

static double us_of_read(const struct results *r, unsigned bytes)
{
    return 1e6 / results_rate_at(r, 0, "cx5-read-%u", bytes);
}

static void show_cx5(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    sheet_texts(&s, "what", "published", "model", "error", "source");
    cx5_row(&s, "CAS, spread words, M/s", 50, results_rate_at(r, 0, "%s", atomics[SPREAD]) / 1e6,
            "RCuckoo Fig. 1");
    cx5_row(&s, "CAS, one word, M/s", 3, results_rate_at(r, 0, "%s", atomics[ONE_WORD]) / 1e6,
            "RCuckoo Fig. 1");
    cx5_row(&s, "CAS, one word in the NIC, M/s", 9,
            results_rate_at(r, 0, "%s", atomics[IN_NIC]) / 1e6, "RCuckoo Fig. 1");
    cx5_row(&s, "READ of 1 KB / two of 8 bytes", NAN, us_of_read(r, KB) / (2 * us_of_read(r, 8)),
            "RCuckoo Fig. 1");
    cx5_row(&s, "insert of SepHash, us", 4.3,
            results_op(r, "insert", "insert", "p50_us", "cx5-insert-sephash"), "SepHash Fig. 13");
    cx5_row(&s, "insert of RACE, us", 7.4,
            results_op(r, "insert", "insert", "p50_us", "cx5-insert-race"), "SepHash Fig. 13");
    for (unsigned way = 0; way < MEASURED_DOORBELLS; way++)
        cx5_row(&s, way == MEASURED_OWN ? "gets of SHARD, M/s" : "  with shared doorbells, M/s",
                15.5, results_rate(r, "get", "cx5-get-%s", ways[way]) / 1e6, "SHARD Fig. 13");
    sheet_print(
        &s, out,
        "ConnectX-5: what papers say in words, and the model. The rates of CAS are where its "
        "parameters are from; the rest was not fitted. RCuckoo's paper says of two READs only "
        "that they take longer. Inserts are medians of one client, gets those of 108 threads "
        "with 4 in flight:");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    show_grid(r, out);
    for (unsigned verb = 0; verb < MEASURED_VERBS; verb++)
        show_doorbells(r, verb, out);
    show_errors(r, out);
    for (unsigned workload = 0; workload < MEASURED_WORKLOADS; workload++)
        show_race(r, workload, out);
    show_cx5(r, out);
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void within_bars(struct claim_finding *f, const struct measured_errors *e)
{
    double median = measured_median(e), worst = measured_worst(e);
    claim_decide(f, CLAIM_ALL(MEASURED_MEDIAN_BAR - median, MEASURED_WORST_BAR - worst),
                 "median %.1f %%, worst %.1f %% of %u points", 100 * median, 100 * worst, e->count);
}

static void model_c1(const struct results *r, struct claim_finding *f)
{
    struct measured_errors e = grid_errors(r);
    within_bars(f, &e);
}

static void model_c2(const struct results *r, struct claim_finding *f)
{
    struct measured_errors e = {.count = 0};
    add_all_doorbells(r, &e);
    within_bars(f, &e);
}

/* Places in measured_threads. */
enum { AT_16 = 2, AT_48 = 6, AT_96 = 12 };

static void smart_c1(const struct results *r, struct claim_finding *f)
{
    double some = race_rate(r, MEASURED_C, MEASURED_SHARED, AT_48),
           many = race_rate(r, MEASURED_C, MEASURED_SHARED, AT_96);
    claim_decide(f, claim_more(some, many, 11.5 / 6.5), "%.1f with 48 threads, %.1f with 96", some,
                 many);
}

static void smart_c2(const struct results *r, struct claim_finding *f)
{
    double shared = race_rate(r, MEASURED_C, MEASURED_SHARED, AT_96),
           own = race_rate(r, MEASURED_C, MEASURED_OWN, AT_96);
    claim_decide(f, claim_more(own, shared, 23.9 / 6.5),
                 "%.1f with own doorbells, %.1f with shared", own, shared);
}

static void smart_c3(const struct results *r, struct claim_finding *f)
{
    double some = race_rate(r, MEASURED_C, MEASURED_OWN, AT_48),
           many = race_rate(r, MEASURED_C, MEASURED_OWN, AT_96);
    claim_decide(f, claim_more(many, some, 23.9 / 20.6), "%.1f with 48 threads, %.1f with 96", some,
                 many);
}

static void smart_c4(const struct results *r, struct claim_finding *f)
{
    double some = race_rate(r, MEASURED_UPDATE, MEASURED_SHARED, AT_16),
           many = race_rate(r, MEASURED_UPDATE, MEASURED_SHARED, AT_96);
    claim_decide(f, claim_more(some, many, 2.35 / 0.18), "%.2f with 16 threads, %.2f with 96", some,
                 many);
}

static const struct claim claims[] = {
    {"MODEL-CLAIM-1", "the grids",
     "half of the model's errors are at most 10 %, and all of them at most 30 %", model_c1, NULL},
    {"MODEL-CLAIM-2", "the doorbells",
     "half of the model's errors are at most 10 %, and all of them at most 30 %", model_c2, NULL},
    {"SMART-CLAIM-1", "SMART Fig. 8",
     "with shared doorbells, more threads than 48 make YCSB C slower (11.5 with 48, 6.5 with 96)",
     smart_c1, NULL},
    {"SMART-CLAIM-2", "SMART Fig. 8",
     "with SMART's techniques and 96 threads, YCSB C is more than twice as fast (23.9) as without "
     "(6.5)",
     smart_c2, NULL},
    {"SMART-CLAIM-3", "SMART Fig. 8",
     "with SMART's techniques, YCSB C is faster with 96 threads (23.9) than with 48 (20.6)",
     smart_c3, NULL},
    {"SMART-CLAIM-4", "SMART Fig. 14",
     "as published, updates of popular keys get more than five times slower (2.35 with 16 threads, "
     "0.18 with 96)",
     smart_c4, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "verbs: the model's parameters were found from the same grids and curves, so this is how well "
    "it fits, not a prediction",
    "RACE: 10^5 keys instead of 10^8, so that the most popular keys get a larger "
    "share of the operations",
    "RACE: Farside's own, in which an update that loses its slot to another update counts as done "
    "(CHANGE-C1 in src/index/change.h), where the measured ones try again",
    "RACE: with one thread, the measured ones take 1.8 us of it for a get and 4.3 us for an "
    "update, "
    "and the model 1.2 and 1.6; why is not known, so rates of operations that the client's "
    "processor limits are too high here",
    "RACE: ours always has pauses between attempts, which grow; the published one has none, and "
    "SMART has its own",
    "RACE, own doorbells: Farside's limit of outstanding verbs stands beside SMART's throttling",
    NULL,
};

const struct experiment experiment_nic = {
    .name = "nic",
    .summary = "the model of a NIC against measurements of others",
    .sources = "SMART Fig. 3, 4, 8 and 14 (raw results, ConnectX-6)",
    .setup = "the model, also with --testbed: ConnectX-6, one machine with up to 96 threads, one "
             "memory node; RACE with keys and values of 8 bytes, 8 operations in flight of each "
             "thread",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
