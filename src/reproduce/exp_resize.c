/* Throughput of inserts while tables grow. */
#include "bench/summary.h"
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>

#define GROWTH  16u /* the inserts, as a multiple of the keys that are there before */
#define THREADS 12u /* of each of three machines */
#define ROWS    20u /* of the table, at most */

/* Tables of SHARD with another tuning, for the last columns. */
#define NOT_COMBINING "shard-not-combining"
#define OFTEN         "shard-sync-1"
#define RARELY        "shard-sync-1000"

static struct plan_cell *add(struct plan *p, const char *index, const char *name)
{
    struct plan_cell *cell = plan_add(p, index, "%s", name);
    cell->workloads = "insert";
    cell->keys /= 4;
    cell->ops = GROWTH * cell->keys;
    cell->key_size = cell->value_size = 8;
    cell->network = testbed_shard(THREADS);
    cell->window_us = p->quick ? 1000 : 10000;
    return cell;
}

static void plan(struct plan *p)
{
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        add(p, index, index);
    plan_tune(add(p, "shard", NOT_COMBINING), "combining=0&hot=0");
    plan_tune(add(p, "shard", OFTEN), "sync=1&hot=0");
    plan_tune(add(p, "shard", RARELY), "sync=1000&hot=0");
}

/* ---- time lines ------------------------------------------------------------------------------ */

/* Rates are millions a second. */
struct pace {
    double rate;    /* of the whole run */
    double fastest; /* window */
    double slowest; /* the mean of the slowest tenth of the windows */
    double dip_ms;  /* the longest time below half of the fastest window */
};

static double mean_of_slowest(double *rates, unsigned count)
{
    unsigned tenth = count / 10 + 1;
    double sum = 0;
    summary_sort(rates, count);
    for (unsigned i = 0; i < tenth; i++)
        sum += rates[i];
    return sum / tenth;
}

/* The windows at the end that are below half of the fastest do not count: there, clients that are
 * done have left the rest to others. */
static struct pace pace(const struct results *r, const char *cell)
{
    double rates[BENCH_WINDOWS_MAX], fastest = 0;
    unsigned count = results_timeline(r, "insert", rates, BENCH_WINDOWS_MAX, "%s", cell);
    double rate = results_rate(r, "insert", "%s", cell);
    unsigned low = 0, longest = 0;
    if (count == 0 || isnan(rate))
        return (struct pace){NAN, NAN, NAN, NAN};
    for (unsigned i = 0; i < count; i++)
        fastest = rates[i] > fastest ? rates[i] : fastest;
    while (rates[count - 1] < fastest / 2)
        count--;
    for (unsigned i = 0; i < count; i++) {
        low = rates[i] < fastest / 2 ? low + 1 : 0;
        longest = low > longest ? low : longest;
    }
    return (struct pace){rate / 1e6, fastest / 1e6, mean_of_slowest(rates, count) / 1e6,
                         longest * plan_find(r->plan, cell)->window_us / 1e3};
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The windows of the longest run. */
static unsigned most_windows(const struct results *r)
{
    double rates[BENCH_WINDOWS_MAX];
    unsigned longest = 0;
    for (unsigned i = 0; i < r->plan->count; i++) {
        unsigned count =
            results_timeline(r, "insert", rates, BENCH_WINDOWS_MAX, "%s", r->plan->cell[i].name);
        longest = count > longest ? count : longest;
    }
    return longest;
}

/* The mean of the windows of a row; NAN if the run ended before. */
static double rate_in(const struct results *r, const char *cell, unsigned row, unsigned windows)
{
    double rates[BENCH_WINDOWS_MAX], sum = 0;
    unsigned count = results_timeline(r, "insert", rates, BENCH_WINDOWS_MAX, "%s", cell);
    if ((row + 1) * windows > count)
        return NAN;
    for (unsigned i = 0; i < windows; i++)
        sum += rates[row * windows + i];
    return sum / windows / 1e6;
}

static void head(struct sheet *s)
{
    const char *index = NULL;
    sheet_row(s, "until, ms");
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        sheet_text(s, "%s", plan_title(index));
    sheet_text(s, "SHARD-");
    sheet_text(s, "sync=1");
    sheet_text(s, "sync=1000");
}

static void show_paces(const struct results *r, struct sheet *s)
{
    static const char *const titles[] = {"whole run", "fastest window", "slowest tenth",
                                         "longest dip, ms"};
    for (unsigned t = 0; t < sizeof titles / sizeof *titles; t++) {
        sheet_row(s, "%s", titles[t]);
        for (unsigned i = 0; i < r->plan->count; i++) {
            struct pace p = pace(r, r->plan->cell[i].name);
            double number[] = {p.rate, p.fastest, p.slowest, p.dip_ms};
            sheet_number(s, number[t], t == 3 ? 0 : 2);
        }
    }
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    unsigned most = most_windows(r), windows = most / ROWS + 1; /* windows of a row */
    double row_ms = windows * r->plan->cell[0].window_us / 1e3;
    sheet_init(&s);
    head(&s);
    s.lines = true;
    for (unsigned row = 0; row < most / windows; row++) {
        sheet_begin_row(&s);
        sheet_number(&s, (row + 1) * row_ms, 0);
        for (unsigned i = 0; i < r->plan->count; i++)
            sheet_number(&s, rate_in(r, r->plan->cell[i].name, row, windows), 2);
    }
    show_paces(r, &s);
    sheet_print(
        &s, out,
        "Millions of inserts a second as the table grows to 17 times its size (SHARD Fig. 16 and "
        "17b; its text: dips of 0.3 s in SHARD, 0.8 s in SepHash, 4.8 s in RACE). A dip is the "
        "time below half of the fastest window; SHARD- does not combine, and "
        "with sync= it reports after that many inserts:");
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void shard_c17(const struct results *r, struct claim_finding *f)
{
    double race = pace(r, "race").rate, sephash = pace(r, "sephash").rate,
           shard = pace(r, "shard").rate;
    claim_decide(f, CLAIM_ALL(claim_more(shard, race, 2.8), claim_more(shard, sephash, 4.8)),
                 "SHARD %.2f, RACE %.2f, SepHash %.2f", shard, race, sephash);
}

static void shard_c18(const struct results *r, struct claim_finding *f)
{
    double race = pace(r, "race").dip_ms, sephash = pace(r, "sephash").dip_ms,
           shard = pace(r, "shard").dip_ms;
    claim_decide(
        f, CLAIM_ALL(claim_more(sephash, shard, 0.8 / 0.3), claim_more(race, sephash, 4.8 / 0.8)),
        "the longest time below half of the fastest window: SHARD %.0f ms, SepHash %.0f ms, RACE "
        "%.0f ms",
        shard, sephash, race);
}

static void shard_c19(const struct results *r, struct claim_finding *f)
{
    struct pace often = pace(r, OFTEN), rarely = pace(r, RARELY);
    double steady = often.slowest / often.fastest, unsteady = rarely.slowest / rarely.fastest;
    claim_decide(f,
                 CLAIM_ALL(claim_more(rarely.rate, often.rate, 0), claim_more(steady, unsteady, 0)),
                 "%.2f with a report after each insert, %.2f after 1000; the slowest tenth of the "
                 "time has %.2f and %.2f of the fastest window",
                 often.rate, rarely.rate, steady, unsteady);
}

static void shard_c25(const struct results *r, struct claim_finding *f)
{
    struct pace with = pace(r, "shard"), without = pace(r, NOT_COMBINING);
    double worst = with.slowest / without.slowest, all = with.rate / without.rate;
    claim_decide(f, CLAIM_ALL(claim_more(worst, 1, 1.5), worst - all),
                 "the slowest tenth of the time is %.2f times as fast, the whole run %.2f times",
                 worst, all);
}

static const struct claim claims[] = {
    {"SHARD-CLAIM-17", "SHARD 4.5",
     "SHARD inserts faster than RACE and SepHash, resizing included (at least 2.8 and 4.8 times)",
     shard_c17, NULL},
    {"SHARD-CLAIM-18", "SHARD 4.5",
     "the dip of a resize is shortest in SHARD (0.3 s), then SepHash (0.8 s), then RACE (4.8 s)",
     shard_c18, NULL},
    {"SHARD-CLAIM-19", "SHARD 2.4",
     "a report after each insert gives steadier, but lower throughput than one after 1000",
     shard_c19, NULL},
    {"SHARD-CLAIM-25", "SHARD 4.6",
     "RDMA-combining makes the slowest time of a resize 1.5 times as fast, and the total by less "
     "(here: the slowest tenth of the time)",
     shard_c25, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, so a resize takes milliseconds",
    "12 threads on each of 3 machines; the paper does not say how many",
    "the paper does not say when a dip begins and ends; here it is below half of the fastest "
    "window",
    NULL,
};

const struct experiment experiment_resize = {
    .name = "resize",
    .summary = "throughput of inserts while tables grow",
    .sources = "SHARD Fig. 6d, 16 and 17b",
    .setup =
        "the model: ConnectX-5, 36 clients on 3 machines, 3 memory nodes; keys and values of 8 "
        "bytes; one run of inserts, in windows of 10 ms (with --quick 1 ms)",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
