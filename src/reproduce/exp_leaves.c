/* CHIME's leaves: of several sizes, read whole as in Sherman, and beside RACE's buckets. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>

#define CLIENTS 320u

/* Of several spans: a table so small that clients soon have all internal nodes in their caches. */
static const unsigned spans[] = {8, 16, 32, 64};
#define SPAN_CLIENTS  160u
#define SPAN_PART     5u    /* of the keys of other tables */
#define OPS_OF_CLIENT 1500u /* three times as many as there are internal nodes of eight entries */

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The paper's workloads; LOAD are inserts here. */
static const struct {
    const char *workload, *title;
    double paper; /* CHIME's throughput over Sherman's, by its text */
} runs[] = {
    {"insert", "LOAD", 1.6}, {"a", "A", 2.2}, {"b", "B", 3.6}, {"c", "C", 4.3}, {"d", "D", 4.2}};

/* In RACE a key may be in 28 places of as many as 126. */
#define RACE_GROUPS 6u
#define AMPLIFIED   28u

/* KiB of the hotspot buffer, for each 2000 keys: the paper has 30 MB for 60 million. */
#define KEYS_OF_HOT_KIB 2000u

static struct plan_cell *add(struct plan *p, const char *name)
{
    struct plan_cell *cell = plan_add(p, "chime", "%s", name);
    cell->workloads = "c,b,a,d,insert";
    cell->network = testbed_chime(CLIENTS);
    cell->ops = cell->keys / 2;
    cell->key_size = cell->value_size = 8;
    return cell;
}

static void plan(struct plan *p)
{
    plan_tune(add(p, "sherman"), "whole=1&vacancy=0&hot=0");
    plan_tune(add(p, "chime"), "hot=%u", (unsigned)plan_keys(p) / KEYS_OF_HOT_KIB);
    for (unsigned i = 0; i < COUNT(spans); i++) {
        struct plan_cell *cell = plan_add(p, "chime", "span-%u", spans[i]);
        plan_tune(cell, "span=%u&neighbourhood=8&hot=0", spans[i]);
        cell->workloads = "c";
        cell->network = testbed_chime(SPAN_CLIENTS);
        cell->key_size = cell->value_size = 8;
        cell->keys /= SPAN_PART;
        cell->ops = (p->quick ? 1u : 10u) * SPAN_CLIENTS * OPS_OF_CLIENT;
    }
    plan_tune(plan_add(p, "race", "race-full"), "groups=%u&hot=0", RACE_GROUPS);
    struct plan_cell *cell = plan_add(p, "chime", "chime-full");
    plan_tune(cell, "span=64&neighbourhood=%u&hot=0", AMPLIFIED);
    cell->key_size = cell->value_size = 8;
}

static double rate(const struct results *r, const char *workload, const char *cell)
{
    return results_rate(r, workload, "%s", cell) / 1e6;
}

static double span_rate(const struct results *r, unsigned span)
{
    return results_rate(r, "c", "span-%u", span) / 1e6;
}

static double filled(const struct results *r, const char *cell)
{
    return 100 * results_space(r, "load", "split_load_mean", "%s", cell);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    sheet_texts(&s, "workload", "like Sherman", "CHIME", "times", "paper");
    for (unsigned i = 0; i < COUNT(runs); i++) {
        double sherman = rate(r, runs[i].workload, "sherman"),
               chime = rate(r, runs[i].workload, "chime");
        sheet_row(&s, "%s", runs[i].title);
        sheet_number(&s, sherman, 2);
        sheet_number(&s, chime, 2);
        sheet_number(&s, chime / sherman, 2);
        sheet_paper_number(&s, 3, runs[i].paper, 1, "CHIME Fig. 12");
    }
    sheet_print(&s, out,
                "Millions of operations a second with 320 clients: CHIME that reads whole leaves, "
                "as Sherman does, and as it is (CHIME Fig. 12):");

    sheet_texts(&s, "span", "M gets/s", "read");
    for (unsigned i = 0; i < COUNT(spans); i++) {
        sheet_row(&s, "%u", spans[i]);
        sheet_number(&s, span_rate(r, spans[i]), 2);
        sheet_number(&s, results_op(r, "c", "get", "bytes_read", "span-%u", spans[i]), 0);
    }
    sheet_print(&s, out,
                "YCSB C over the span, neighbourhood 8, 160 clients (CHIME Fig. 18e, up to 512):");

    sheet_texts(&s, "places where a key may be: 28", "mean % at a split");
    sheet_row(&s, "RACE, 126 places");
    sheet_number(&s, filled(r, "race-full"), 1);
    sheet_row(&s, "CHIME, 64 places");
    sheet_number(&s, filled(r, "chime-full"), 1);
    sheet_print(&s, out, "Load factor at equal amplification (CHIME Fig. 3d, 128 places):");
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void chime_c8(const struct results *r, struct claim_finding *f)
{
    double race = filled(r, "race-full"), chime = filled(r, "chime-full");
    claim_decide(f, chime - race, "CHIME %.1f %%, RACE %.1f %%, when a part is full", chime, race);
}

static void chime_c9(const struct results *r, struct claim_finding *f)
{
    double least = span_rate(r, 8), less = span_rate(r, 16), half = span_rate(r, 32),
           all = span_rate(r, 64);
    claim_decide(f, CLAIM_ALL(0.1 - fabs(half / all - 1), 0.95 - less / all, 0.95 - least / all),
                 "%.2f with 8, %.2f with 16, %.2f with 32, %.2f with 64 (here: the same within a "
                 "tenth, lower by 5 %% at least)",
                 least, less, half, all);
}

static void chime_c10(const struct results *r, struct claim_finding *f)
{
    double gain[COUNT(runs)], margin[COUNT(runs)];
    for (unsigned i = 0; i < COUNT(runs); i++) {
        gain[i] = rate(r, runs[i].workload, "chime") / rate(r, runs[i].workload, "sherman");
        margin[i] = gain[i] - 1;
    }
    claim_decide(f, claim_least(COUNT(runs), margin),
                 "LOAD %.2f, A %.2f, B %.2f, C %.2f, D %.2f times what it does with whole leaves",
                 gain[0], gain[1], gain[2], gain[3], gain[4]);
}

static const struct claim claims[] = {
    {"CHIME-CLAIM-8", "CHIME Fig. 3d",
     "at equal amplification, hopscotch hashing fills tables more than RACE", chime_c8, NULL},
    {"CHIME-CLAIM-9", "CHIME 5.4",
     "throughput is the same for spans from 32 to 512 (here: to 64), and lower below 32", chime_c9,
     NULL},
    {"CHIME-CLAIM-10", "CHIME 5.2",
     "CHIME is faster than Sherman (here: than with whole leaves), ROLEX and SMART in A to D and "
     "LOAD",
     chime_c10, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, and a fifth of them for the spans, instead of 6 * 10^7; each client has a "
    "cache of its own, which is empty at first",
    "Sherman is CHIME's tree with whole=1, vacancy=0 and hot=0: gets and changes read whole "
    "leaves, inserts also keep hopscotch's places",
    "LOAD are inserts that make the table half as large again",
    "RACE's subtables have 126 places, and leaves 64, instead of 128: a leaf's vacancy is one word",
    "Farside does not have ROLEX and SMART",
    NULL,
};

const struct experiment experiment_leaves = {
    .name = "leaves",
    .summary = "CHIME's leaves: their size, and what reading them whole costs",
    .sources = "CHIME Fig. 3d, 12 and 18e",
    .setup = "the model: ConnectX-6, 320 clients on 10 machines, one memory node; keys and values "
             "of 8 bytes, zipfian; load factors on mem:",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
