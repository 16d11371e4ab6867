/* Throughput and latency of inserts over clients. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>
#include <string.h>

static const struct plan_axis clients[2] = {{8, {1, 2, 4, 8, 16, 32, 64, 128}}, {3, {1, 64, 128}}};
static const struct plan_axis race_clients[2] = {{5, {1, 16, 32, 64, 128}}, {2, {1, 128}}};

static void plan(struct plan *p)
{
    const struct plan_axis *axis = &clients[p->quick], *race = &race_clients[p->quick];
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        for (unsigned c = 0; c < axis->count; c++) {
            struct plan_cell *cell = plan_add(p, index, "%s-%u", index, axis->value[c]);
            cell->workloads = "insert,add";
            cell->network = testbed_sephash(axis->value[c]);
        }
    for (unsigned c = 0; c < race->count; c++) {
        struct plan_cell *cell = plan_add(p, "race", "loaded-%u", race->value[c]);
        cell->workloads = "get,update,delete,insert";
        cell->network = testbed_race(race->value[c]);
        cell->keys *= 4; /* enough for deletes of CELL_LEAST_MS */
        cell->ops = race->value[c] > 1 ? cell->keys / 2 : cell->keys / 20;
    }
}

static double rate_of(const struct results *r, const char *workload, const char *index,
                      unsigned count)
{
    return results_rate(r, workload, "%s-%u", index, count) / 1e6;
}

static double rate(const struct results *r, const char *index, unsigned count)
{
    return rate_of(r, "insert", index, count);
}

static double latency(const struct results *r, const char *index, unsigned count,
                      const char *quantile)
{
    return results_op(r, "insert", "insert", quantile, "%s-%u", index, count);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void show_rates(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const struct plan_axis *axis = &clients[r->plan->quick];
    const char *index = NULL;
    for (unsigned add = 0; add <= 1; add++) {
        sheet_axis(s, "clients:", axis);
        s->scaling = true;
        for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
            sheet_row(s, "%s", plan_title(index));
            for (unsigned c = 0; c < axis->count; c++)
                sheet_number(s, rate_of(r, add ? "add" : "insert", index, axis->value[c]), 2);
        }
        sheet_print(
            s, out,
            add ? "Puts of new keys, the same: an insert has to say whether the key was there, "
                  "which SepHash's paper leaves out:"
                : "Inserts that double a table, millions a second (SepHash Fig. 12; its text: "
                  "SepHash has 1.4 to 4.2 times of the others, RACE among them):");
    }
}

/* SepHash's text: of one client. */
static double median_in_paper(const char *index)
{
    return strcmp(index, "sephash") == 0 ? 4.3 : strcmp(index, "race") == 0 ? 7.4 : NAN;
}

static void show_latencies(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const struct plan_axis *axis = &clients[r->plan->quick];
    const char *index = NULL;
    for (unsigned tail = 0; tail <= 1; tail++) {
        sheet_axis(s, "clients:", axis);
        for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
            sheet_row(s, "%s", plan_title(index));
            for (unsigned c = 0; c < axis->count; c++)
                sheet_number(s, latency(r, index, axis->value[c], tail ? "p99_us" : "p50_us"), 1);
            if (!tail && axis->value[0] == 1)
                sheet_paper(s, 1, median_in_paper(index), "SepHash 5.2.1");
        }
        sheet_print(
            s, out,
            tail ? "The same, 99th percentile of the latency in microseconds (SepHash Fig. 13):"
                 : "The same, median latency in microseconds (SepHash Fig. 13; its text, with "
                   "one client: SepHash 4.3, RACE 7.4):");
    }
}

static void show_race(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    static const char *const ops[] = {"insert", "get", "delete", "update"};
    const struct plan_axis *axis = &race_clients[r->plan->quick];
    sheet_axis(s, "RACE, clients:", axis);
    s->scaling = true;
    for (unsigned i = 0; i < sizeof ops / sizeof *ops; i++) {
        sheet_row(s, "%s", ops[i]);
        for (unsigned c = 0; c < axis->count; c++)
            sheet_number(s, results_rate(r, ops[i], "loaded-%u", axis->value[c]) / 1e6, 2);
    }
    sheet_print(s, out,
                "RACE after loading, millions of operations a second (RACE Fig. 14; the text has "
                "ratios to other indexes only):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    show_rates(r, &s, out);
    show_latencies(r, &s, out);
    show_race(r, &s, out);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* SepHash's puts of new keys, as a multiple of RACE's. */
static double adds(const struct results *r, unsigned count)
{
    return rate_of(r, "add", "sephash", count) / rate_of(r, "add", "race", count);
}

static void sephash_c13(const struct results *r, struct claim_finding *f)
{
    const struct plan_axis *axis = &clients[r->plan->quick];
    double gain[PLAN_AXIS_MAX], margin[PLAN_AXIS_MAX];
    for (unsigned c = 0; c < axis->count; c++) {
        gain[c] = rate(r, "sephash", axis->value[c]) / rate(r, "race", axis->value[c]);
        margin[c] = claim_more(gain[c], 1, 0);
    }
    claim_decide(f, claim_least(axis->count, margin),
                 "%.2f times RACE's with %u, %.2f with %u clients; puts of new keys %.2f and %.2f",
                 gain[0], axis->value[0], gain[axis->count - 1], axis->value[axis->count - 1],
                 adds(r, axis->value[0]), adds(r, axis->value[axis->count - 1]));
}

static void sephash_c14(const struct results *r, struct claim_finding *f)
{
    double one = rate(r, "sephash", 1), most = rate(r, "sephash", 128);
    claim_decide(f, most / one - 0.75 * 128, "%.1f times one client's with 128 (here: 96 at least)",
                 most / one);
}

static void sephash_c15(const struct results *r, struct claim_finding *f)
{
    double some = rate(r, "race", 64), most = rate(r, "race", 128);
    claim_decide(f, 1.2 * some - most, "%.2f with 64, %.2f with 128 clients", some, most);
}

static void sephash_c16(const struct results *r, struct claim_finding *f)
{
    double race = latency(r, "race", 1, "p50_us"), sephash = latency(r, "sephash", 1, "p50_us");
    claim_decide(f, 0.25 - fabs(sephash / race / 0.58 - 1), "%.1f us of %.1f us: %.0f %%", sephash,
                 race, 100 * sephash / race);
}

static void sephash_c17(const struct results *r, struct claim_finding *f)
{
    double race = latency(r, "race", 128, "p50_us"), sephash = latency(r, "sephash", 128, "p50_us");
    claim_decide(f, CLAIM_ALL(sephash / race - 1, 1.25 - sephash / race),
                 "with 128 clients: SepHash %.1f us, RACE %.1f us", sephash, race);
}

static void sephash_c18(const struct results *r, struct claim_finding *f)
{
    double race = latency(r, "race", 128, "p99_us"), sephash = latency(r, "sephash", 128, "p99_us");
    claim_decide(f, claim_more(race, sephash, 1000),
                 "99th percentile with 128 clients: RACE %.1f us, SepHash %.1f us", race, sephash);
}

static void race_c7(const struct results *r, struct claim_finding *f)
{
    double get = results_op(r, "get", "get", "p50_us", "loaded-1"),
           update = results_op(r, "update", "update", "p50_us", "loaded-1"),
           delete = results_op(r, "delete", "delete", "p50_us", "loaded-1"), trip = get / 2;
    claim_decide(
        f,
        CLAIM_ALL(0.35 * trip - fabs(update - get - trip), 0.35 * trip - fabs(delete - get - trip)),
        "medians with one client: get %.1f us (two round trips), update %.1f us, delete "
        "%.1f us",
        get, update, delete);
}

static const struct claim claims[] = {
    {"SEPHASH-CLAIM-13", "SepHash 5.2.1",
     "SepHash inserts faster than RACE with any number of clients", sephash_c13, NULL},
    {"SEPHASH-CLAIM-14", "SepHash 5.2.1", "SepHash's inserts grow linearly up to 128 clients",
     sephash_c14, NULL},
    {"SEPHASH-CLAIM-15", "SepHash 5.2.1",
     "RACE's inserts stop to become more at about 64 clients (here: less than a fifth more with "
     "128)",
     sephash_c15, NULL},
    {"SEPHASH-CLAIM-16", "SepHash 5.2.1",
     "one client's median insert takes 58 % of RACE's time: 4.3 of 7.4 us (here: within a quarter "
     "of that, 44 to 73 %)",
     sephash_c16, NULL},
    {"SEPHASH-CLAIM-17", "SepHash 5.2.1",
     "with many clients SepHash's median insert takes slightly longer than RACE's (here: by at "
     "most "
     "a quarter)",
     sephash_c17, NULL},
    {"SEPHASH-CLAIM-18", "SepHash 5.2.1",
     "RACE's tail grows to a thousand times SepHash's, which stays as it is", sephash_c18, NULL},
    {"RACE-CLAIM-7", "RACE 5.2.2", "updates and deletes take one round trip longer than searches",
     race_c7, NULL},
    {"RACE-CLAIM-8", "RACE", "RACE inserts 16.9, 5.3 and 1.4 times as fast as Pilaf, FaRM and DrTM",
     CLAIM_NOT_MEASURED("Farside does not have these systems")},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer are loaded, and as many inserted; SepHash's paper inserts 10^8 into an "
    "empty "
    "table. With so few keys, most of that would be the contention of all clients for a tiny table",
    "a client has one operation in flight; the papers took the best of 1 to 4 coroutines (SepHash) "
    "or do not say (RACE)",
    "SepHash's paper does not say which percentile its tail is",
    NULL,
};

const struct experiment experiment_insert = {
    .name = "insert",
    .summary = "throughput and latency of inserts over clients",
    .sources = "SepHash Fig. 12 and 13, RACE Fig. 14",
    .setup = "the model: ConnectX-5, one memory node, 16 clients on a machine (RACE after loading: "
             "32); keys of 16 and values of 32 bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
