/* A mix like that of ZippyDB. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

/* About what pairs of ZippyDB have on average. */
#define KEY_SIZE   48u
#define VALUE_SIZE 43u

static const char *const keys[] = {"uniform", "zipfian"};
#define DISTS (sizeof keys / sizeof *keys)

static void plan(struct plan *p)
{
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        for (unsigned d = 0; d < DISTS; d++) {
            struct plan_cell *cell = plan_add(p, index, "%s-%s", index, keys[d]);
            cell->workloads = "zippydb";
            cell->uniform = d == 0;
            cell->key_size = KEY_SIZE;
            cell->value_size = VALUE_SIZE;
            cell->network = testbed_shard(36);
            plan_busy(p, cell);
        }
}

static double rate(const struct results *r, const char *index, unsigned dist)
{
    return results_rate(r, "zippydb", "%s-%s", index, keys[dist]) / 1e6;
}

static void show(const struct results *r, struct sheet_sink *out)
{
    const char *index = NULL;
    struct sheet s;
    sheet_init(&s);
    sheet_texts(&s, "index", keys[0], keys[1]);
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
        sheet_row(&s, "%s", plan_title(index));
        for (unsigned d = 0; d < DISTS; d++)
            sheet_number(&s, rate(r, index, d), 2);
    }
    sheet_print(&s, out,
                "86 % gets, 14 % puts of keys that exist, millions of operations a second (SHARD "
                "Fig. 15, a plot of two workloads):");
}

static void shard_c26(const struct results *r, struct claim_finding *f)
{
    double race[DISTS], sephash[DISTS];
    for (unsigned d = 0; d < DISTS; d++) {
        race[d] = rate(r, "shard", d) / rate(r, "race", d);
        sephash[d] = rate(r, "shard", d) / rate(r, "sephash", d);
    }
    claim_decide(f,
                 CLAIM_ALL(claim_more(race[0], 1, 6), claim_more(race[1], 1, 6),
                           claim_more(sephash[0], 1, 1.9), claim_more(sephash[1], 1, 1.9)),
                 "%.2f times RACE and %.2f times SepHash with uniform keys, %.2f and %.2f with "
                 "zipfian ones",
                 race[0], sephash[0], race[1], sephash[1]);
}

static double trips(const struct results *r, const char *index)
{
    return results_op(r, "zippydb", "get", "rtts", "%s-%s", index, keys[0]);
}

static bool gets_take_two(const struct results *r, char *numbers, size_t room)
{
    snprintf(numbers, room, "%.2f round trips, RACE %.2f", trips(r, "shard"), trips(r, "race"));
    return trips(r, "shard") > 1.9 && trips(r, "race") > 1.9;
}

static const struct claim claims[] = {
    {"SHARD-CLAIM-26", "SHARD 4.4",
     "in two workloads of ZippyDB SHARD has 6.0 and 12.6 times the throughput of RACE, 1.9 and 2.2 "
     "times that of SepHash",
     shard_c26,
     CLAIM_REASON(
         "A get of SHARD reads the block and compares the whole key, so it takes two round "
         "trips, as in RACE",
         gets_take_two)},
    {.name = NULL},
};

static const char *const differs[] = {
    "the paper ran RocksDB's benchmark; here the mix is drawn by itself, without its seeks and "
    "inserts, from all keys alike or by a zipfian distribution",
    "10^6 keys or fewer, instead of about 10^9",
    NULL,
};

const struct experiment experiment_zippydb = {
    .name = "zippydb",
    .summary = "a mix like that of ZippyDB",
    .sources = "SHARD Fig. 15",
    .setup = "the model: ConnectX-5, 108 clients on 3 machines with 3 memory nodes; keys of 48 and "
             "values of 43 bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
