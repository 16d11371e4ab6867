/* Throughput of inserts while tables grow. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>
#include <stdlib.h>

#define STEPS   16u
#define THREADS 12u /* of each of three machines */

static void plan(struct plan *p)
{
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
        struct plan_cell *cell = plan_add(p, index, "%s", index);
        cell->workloads = "insert,insert,insert,insert,insert,insert,insert,insert,"
                          "insert,insert,insert,insert,insert,insert,insert,insert";
        cell->keys /= 4;
        cell->ops = cell->keys;
        cell->key_size = cell->value_size = 8;
        cell->network = testbed_shard(THREADS);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct pace {
    double median, least; /* millions a second */
};

static struct pace pace(const struct results *r, const char *index)
{
    double rates[STEPS];
    for (unsigned i = 0; i < STEPS; i++) {
        rates[i] = results_rate_at(r, i, "%s", index) / 1e6;
        if (isnan(rates[i]))
            return (struct pace){NAN, NAN};
    }
    qsort(rates, STEPS, sizeof *rates, compare);
    return (struct pace){rates[STEPS / 2], rates[0]};
}

static void show(const struct results *r, FILE *out)
{
    struct sheet s;
    const char *index = NULL;
    sheet_init(&s);
    sheet_row(&s);
    sheet_text(&s, "keys, in quarters");
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        sheet_text(&s, "%s", plan_title(index));
    for (unsigned step = 0; step < STEPS; step++) {
        sheet_row(&s);
        sheet_text(&s, "%u to %u", step + 1, step + 2);
        for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
            sheet_number(&s, results_rate_at(r, step, "%s", index) / 1e6, 2);
    }
    sheet_row(&s);
    sheet_text(&s, "slowest / median");
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        sheet_number(&s, pace(r, index).least / pace(r, index).median, 2);
    sheet_print(
        &s, out,
        "Millions of inserts a second as the table grows to 17 times its size (SHARD Fig. 16; "
        "its text: dips of 0.3 s in SHARD, 0.8 s in SepHash, 4.8 s in RACE):");
}

static void shard_c17(const struct results *r, struct claim_finding *f)
{
    double race = pace(r, "race").median, sephash = pace(r, "sephash").median,
           shard = pace(r, "shard").median;
    claim_decide(f, CLAIM_ALL(shard - race, shard - sephash),
                 "in the median: SHARD %.2f, RACE %.2f, SepHash %.2f", shard, race, sephash);
}

static void shard_c18(const struct results *r, struct claim_finding *f)
{
    struct pace race = pace(r, "race"), sephash = pace(r, "sephash"), shard = pace(r, "shard");
    double of_race = race.least / race.median, of_sephash = sephash.least / sephash.median,
           of_shard = shard.least / shard.median;
    claim_decide(f, CLAIM_ALL(of_shard - of_race, of_shard - of_sephash),
                 "the slowest step against the median: SHARD %.2f, SepHash %.2f, RACE %.2f",
                 of_shard, of_sephash, of_race);
}

static const struct claim claims[] = {
    {"SHARD-C17", "SHARD 4.5",
     "SHARD inserts faster than RACE and SepHash, resizing included (at least 2.8 and 4.8 times)",
     shard_c17,
     "RACE and SepHash take as many round trips here as their own papers say: see rtts."},
    {"SHARD-C18", "SHARD 4.5",
     "the dip of a resize is smallest in SHARD (0.3 s), then SepHash (0.8 s), then RACE (4.8 s)",
     shard_c18, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, so a resize takes milliseconds",
    "a step is an equal number of inserts, not of milliseconds; clients begin each step with empty "
    "caches",
    "12 threads on each of 3 machines; the paper does not say how many",
    NULL,
};

const struct experiment experiment_resize = {
    .name = "resize",
    .summary = "throughput of inserts while tables grow",
    .sources = "SHARD Fig. 16",
    .setup =
        "the model: ConnectX-5, 36 clients on 3 machines, 3 memory nodes; keys and values of 8 "
        "bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
