/* Latency and throughput over the size of values. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#define KEY 16u

/* RACE and SepHash: bytes of key and value. */
static const struct plan_axis pairs[2] = {{8, {64, 128, 256, 512, 1024, 2048, 4096, 8192}},
                                          {4, {64, 512, 2048, 8192}}};
static const struct plan_axis sephash_pairs[2] = {{6, {64, 128, 256, 512, 1024, 2048}},
                                                  {4, {64, 256, 512, 1024}}};
/* CHIME: bytes of a value. */
static const struct plan_axis values[2] = {{7, {8, 16, 32, 64, 128, 256, 512}}, {3, {8, 64, 512}}};

static void plan(struct plan *p)
{
    const struct plan_axis *race = &pairs[p->quick], *sephash = &sephash_pairs[p->quick],
                           *chime = &values[p->quick];
    for (unsigned i = 0; i < race->count; i++) {
        struct plan_cell *cell = plan_add(p, "race", "race-%u", race->value[i]);
        cell->workloads = "get,update,insert,delete";
        cell->keys /= 10;
        cell->ops = cell->keys / 2;
        cell->value_size = race->value[i] - KEY;
        cell->network = testbed_race(1);
    }
    for (unsigned i = 0; i < sephash->count; i++) {
        struct plan_cell *cell = plan_add(p, "sephash", "sephash-%u", sephash->value[i]);
        cell->workloads = "insert,get";
        cell->keys /= 4;
        cell->value_size = sephash->value[i] - KEY;
        cell->network = testbed_sephash(128);
        plan_busy(p, cell);
    }
    for (unsigned i = 0; i < chime->count; i++) {
        struct plan_cell *cell = plan_add(p, "chime", "chime-%u", chime->value[i]);
        cell->workloads = "c";
        cell->keys /= 4;
        cell->key_size = 8;
        cell->value_size = chime->value[i];
        cell->network = testbed_chime(p->quick ? 320 : 640);
        plan_busy(p, cell);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const char *const ops[] = {"insert", "get", "delete", "update"};
#define OPS (sizeof ops / sizeof *ops)

static double race_us(const struct results *r, const char *op, unsigned bytes)
{
    return results_op(r, op, op, "p50_us", "race-%u", bytes);
}

static double sephash_rate(const struct results *r, const char *workload, unsigned bytes)
{
    return results_rate(r, workload, "sephash-%u", bytes) / 1e6;
}

static double chime_rate(const struct results *r, unsigned bytes)
{
    return results_rate(r, "c", "chime-%u", bytes) / 1e6;
}

static void show(const struct results *r, struct sheet_sink *out)
{
    const struct plan_axis *race = &pairs[r->plan->quick],
                           *sephash = &sephash_pairs[r->plan->quick],
                           *chime = &values[r->plan->quick];
    struct sheet s;
    sheet_init(&s);
    sheet_axis(&s, "bytes of a pair:", race);
    for (unsigned o = 0; o < OPS; o++) {
        sheet_row(&s, "%s", ops[o]);
        for (unsigned i = 0; i < race->count; i++)
            sheet_number(&s, race_us(r, ops[o], race->value[i]), 1);
    }
    sheet_print(&s, out, "RACE, one client, median latency in microseconds (RACE Fig. 16):");
    sheet_axis(&s, "bytes of a pair:", sephash);
    for (unsigned search = 0; search <= 1; search++) {
        sheet_row(&s, search ? "get" : "insert");
        for (unsigned i = 0; i < sephash->count; i++)
            sheet_number(&s, sephash_rate(r, search ? "get" : "insert", sephash->value[i]), 2);
    }
    sheet_print(&s, out,
                "SepHash, 128 clients, millions of operations a second (SepHash Fig. 22):");
    sheet_axis(&s, "bytes of a value:", chime);
    sheet_row(&s, "get");
    for (unsigned i = 0; i < chime->count; i++)
        sheet_number(&s, chime_rate(r, chime->value[i]), 2);
    sheet_print(&s, out,
                "CHIME, millions of gets a second; 8 bytes are inline, more are in "
                "blocks (CHIME Fig. 18c and 18d):");
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void race_c9(const struct results *r, struct claim_finding *f)
{
    double small[OPS], margin[OPS], large[OPS];
    for (unsigned o = 0; o < OPS; o++) {
        small[o] = race_us(r, ops[o], 512) / race_us(r, ops[o], 64);
        large[o] = race_us(r, ops[o], 8192) / race_us(r, ops[o], 64);
        margin[o] = CLAIM_ALL(1.15 - small[o], large[o] - 1);
    }
    claim_decide(
        f, claim_least(OPS, margin),
        "up to 512 bytes insert %.2f, get %.2f, delete %.2f, update %.2f times as long; up "
        "to 8 KiB %.2f, %.2f, %.2f, %.2f times",
        small[0], small[1], small[2], small[3], large[0], large[1], large[2], large[3]);
}

#define HARDLY 0.9 /* a throughput that hardly falls keeps this part */

static void sephash_c22(const struct results *r, struct claim_finding *f)
{
    double share = sephash_rate(r, "insert", 1024) / sephash_rate(r, "insert", 64);
    claim_decide(f, share - HARDLY, "with 1024 bytes, %.2f of the inserts with 64", share);
}

static void sephash_c23(const struct results *r, struct claim_finding *f)
{
    double small = sephash_rate(r, "get", 64), edge = sephash_rate(r, "get", 256),
           large = sephash_rate(r, "get", 1024);
    claim_decide(f, CLAIM_ALL(edge / small - HARDLY, edge - large),
                 "%.2f with 64 bytes, %.2f with 256, %.2f with 1024", small, edge, large);
}

static void chime_c15(const struct results *r, struct claim_finding *f)
{
    (void)r;
    claim_open(f, "pairs of more than 8 and 8 bytes are always in blocks here");
}

static void chime_c16(const struct results *r, struct claim_finding *f)
{
    double small = chime_rate(r, 8), large = chime_rate(r, 512);
    claim_decide(f, 9.4 - small / large, "by %.1f times, from 8 inline to 512 bytes in a block",
                 small / large);
}

static const struct claim claims[] = {
    {"RACE-CLAIM-9", "RACE 5.2.5",
     "latencies grow with the size of a pair, only slightly up to 512 bytes (here: by at most 15 "
     "%)",
     race_c9, NULL},
    {"SEPHASH-CLAIM-22", "SepHash 5.6.3",
     "the throughput of inserts hardly depends on the size (here: 0.9 of it stay)", sephash_c22,
     NULL},
    {"SEPHASH-CLAIM-23", "SepHash 5.6.3",
     "the throughput of searches falls if a pair has more than 256 bytes, the size of a PCIe "
     "packet "
     "(here: up to 256 bytes, 0.9 of it stay)",
     sephash_c23, NULL},
    {"CHIME-CLAIM-15", "CHIME 5.4",
     "with inline values of 512 bytes, gets are 9.4 times slower than "
     "with 8",
     chime_c15, NULL},
    {"CHIME-CLAIM-16", "CHIME 5.4",
     "with indirect values, the fall is smaller than inline (9.4 times)", chime_c16, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^5 keys (RACE) and 2.5 * 10^5 keys (SepHash, CHIME) or fewer",
    "RACE's paper gives the size of a block with its header, here it is key and value; a delete "
    "here reads the beginning of a block only",
    "CHIME keeps only pairs of 8 and 8 bytes inline here",
    NULL,
};

const struct experiment experiment_value_size = {
    .name = "value-size",
    .summary = "latency and throughput over the size of values",
    .sources = "RACE Fig. 16, SepHash Fig. 22, CHIME Fig. 18c and 18d",
    .setup = "the model: each paper's machines and NIC; one client (RACE), 128 (SepHash), 640 "
             "(CHIME; with --quick 320)",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
