/* How often SHARD's clients report what they have inserted. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

static const unsigned alphas[] = {1, 10, 100, 1000, 10000, 100000}; /* in 1/10000 */
#define ALPHAS (sizeof alphas / sizeof *alphas)

static void plan(struct plan *p)
{
    for (unsigned i = 0; i < ALPHAS; i++) {
        struct plan_cell *cell = plan_add(p, "shard", "alpha-%u", alphas[i]);
        plan_tune(cell, "alpha=%u&hot=0", alphas[i]);
        cell->workloads = "insert";
        cell->until_full = true; /* chains are limited, so it must not be delayed for too long */
        cell->ops = 3 * cell->keys;
        cell->key_size = cell->value_size = 8;
        cell->network = testbed_shard(36);
    }
}

static double rate(const struct results *r, unsigned alpha)
{
    return results_rate(r, "insert", "alpha-%u", alpha) / 1e6;
}

static double cost(const struct results *r, unsigned alpha, const char *member)
{
    return results_op(r, "insert", "insert", member, "alpha-%u", alpha);
}

/* The load factor at which buckets were moved, in percent. */
static double moved_at(const struct results *r, unsigned alpha)
{
    return 100 * results_space(r, "insert", "split_load_mean", "alpha-%u", alpha);
}

static double inserted(const struct results *r, unsigned alpha)
{
    return results_space(r, "insert", "keys", "alpha-%u", alpha);
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    sheet_texts(&s, "alpha", "M inserts/s", "round trips", "verbs", "buckets moved at %", "keys");
    for (unsigned i = 0; i < ALPHAS; i++) {
        sheet_row(&s, "%g", alphas[i] / 10000.0);
        sheet_number(&s, rate(r, alphas[i]), 2);
        sheet_number(&s, cost(r, alphas[i], "rtts"), 3);
        sheet_number(&s, cost(r, alphas[i], "verbs"), 2);
        sheet_number(&s, moved_at(r, alphas[i]), 1);
        sheet_number(&s, inserted(r, alphas[i]), 0);
    }
    sheet_print(
        &s, out,
        "SHARD, inserts of 108 clients that double a table (SHARD Fig. 18; its text: most at "
        "0.1):");
}

static void shard_c20(const struct results *r, struct claim_finding *f)
{
    double best = rate(r, 1000), margin[ALPHAS];
    for (unsigned i = 0; i < ALPHAS; i++)
        margin[i] = alphas[i] == 1000 ? 1 : best - 1.01 * rate(r, alphas[i]);
    claim_decide(f, claim_least(ALPHAS, margin),
                 "%.2f at 0.0001, %.2f at 0.1, %.2f at 1, %.2f at 10", rate(r, 1), best,
                 rate(r, 10000), rate(r, 100000));
}

/* An insert fails if its buckets of levels 1 and 2 and its chain in level 3 are full. So if a large
 * alpha ends with a full table and 0.1 does not, more keys have gone to levels 2 and 3. */
static void shard_c21(const struct results *r, struct claim_finding *f)
{
    double often = cost(r, 1, "rtts"), normal = cost(r, 1000, "rtts");
    double late = inserted(r, 100000), in_time = inserted(r, 1000);
    double more = late < in_time ? in_time - late : moved_at(r, 100000) - moved_at(r, 1000);
    claim_decide(f, CLAIM_ALL(often - normal, more),
                 "%.3f round trips at 0.0001, %.3f at 0.1; with 10 the table was full with %.0f "
                 "keys, with 0.1 it has %.0f, and its buckets were moved at %.1f %%",
                 often, normal, late, in_time, moved_at(r, 1000));
}

static const struct claim claims[] = {
    {"SHARD-CLAIM-20", "SHARD 4.7", "inserts are fastest at alpha = 0.1 (here: by 1 % at least)",
     shard_c20, NULL},
    {"SHARD-CLAIM-21", "SHARD 4.7",
     "a small alpha costs round trips for reports; a large one delays resizing, so that more keys "
     "go to levels 2 and 3 (here: until these are full)",
     shard_c21, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, and as many inserts, instead of about 10^9; the interval between reports "
    "grows with the "
    "table",
    "how many keys are in which level is not counted",
    "chains behind level 3 are limited: if the table is resized too late, an insert fails, and the "
    "run ends with fewer keys",
    NULL,
};

const struct experiment experiment_alpha = {
    .name = "alpha",
    .summary = "how often SHARD's clients report what they have inserted",
    .sources = "SHARD Fig. 18",
    .setup =
        "the model: ConnectX-5, 108 clients on 3 machines, 3 memory nodes; keys and values of 8 "
        "bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
