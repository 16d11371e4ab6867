/* Throughput of one thread over its operations in flight. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

static const struct plan_axis depths[2] = {{6, {1, 2, 4, 8, 16, 32}}, {4, {1, 4, 8, 16}}};

static const struct {
    const char *op;
    double paper; /* 16 tasks against one: RACE 5.2.8 */
} ops[] = {{"insert", 2.2}, {"get", 2.6}, {"delete", 2.7}, {"update", 2.4}};
#define OPS (sizeof ops / sizeof *ops)

static void plan(struct plan *p)
{
    const struct plan_axis *axis = &depths[p->quick];
    for (unsigned i = 0; i < axis->count; i++) {
        struct plan_cell *cell = plan_add(p, "race", "depth-%u", axis->value[i]);
        cell->workloads = "get,update,delete,insert";
        cell->ops = cell->keys / 2;
        cell->network = testbed_race(1);
        cell->network.depth = axis->value[i];
    }
}

static double rate(const struct results *r, const char *op, unsigned depth)
{
    return results_rate(r, op, "depth-%u", depth) / 1e6;
}

static void show(const struct results *r, struct sheet_sink *out)
{
    const struct plan_axis *axis = &depths[r->plan->quick];
    struct sheet s;
    sheet_init(&s);
    sheet_axis(&s, "in flight:", axis);
    sheet_text(&s, "16 to 1");
    sheet_text(&s, "paper");
    for (unsigned o = 0; o < OPS; o++) {
        sheet_row(&s, "%s", ops[o].op);
        for (unsigned i = 0; i < axis->count; i++)
            sheet_number(&s, rate(r, ops[o].op, axis->value[i]), 2);
        sheet_number(&s, rate(r, ops[o].op, 16) / rate(r, ops[o].op, 1), 1);
        sheet_paper_number(&s, 1 + axis->count, ops[o].paper, 1, "RACE Fig. 21");
    }
    sheet_print(&s, out, "RACE, one thread, millions of operations a second (RACE Fig. 21):");
}

static void race_c10(const struct results *r, struct claim_finding *f)
{
    double margin[OPS];
    for (unsigned o = 0; o < OPS; o++) {
        double one = rate(r, ops[o].op, 1), some = rate(r, ops[o].op, 8),
               many = rate(r, ops[o].op, 16);
        margin[o] = CLAIM_ALL(some - one, 1.15 * some - many);
    }
    claim_decide(f, claim_least(OPS, margin), "get: %.2f with 1, %.2f with 8, %.2f with 16",
                 rate(r, "get", 1), rate(r, "get", 8), rate(r, "get", 16));
}

static void race_c11(const struct results *r, struct claim_finding *f)
{
    double gain[OPS], margin[OPS];
    for (unsigned o = 0; o < OPS; o++) {
        gain[o] = rate(r, ops[o].op, 16) / rate(r, ops[o].op, 1);
        margin[o] = CLAIM_ALL(gain[o] - 0.67 * ops[o].paper, 1.5 * ops[o].paper - gain[o]);
    }
    claim_decide(f, claim_least(OPS, margin), "insert %.1f, get %.1f, delete %.1f, update %.1f",
                 gain[0], gain[1], gain[2], gain[3]);
}

static const struct claim claims[] = {
    {"RACE-CLAIM-10", "RACE 5.2.8",
     "the throughput grows up to 8 tasks and no more beyond (here: by less than 15 %)", race_c10,
     NULL},
    {"RACE-CLAIM-11", "RACE 5.2.8",
     "16 tasks have 2.2 (insert), 2.6 (search), 2.7 (delete), 2.4 (update) times the throughput of "
     "one (here: two thirds to one and a half of that)",
     race_c11, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "the time of the client's processor is modelled, not measured",
    NULL,
};

const struct experiment experiment_coroutines = {
    .name = "coroutines",
    .summary = "throughput of one thread over its operations in flight",
    .sources = "RACE Fig. 21",
    .setup = "the model: ConnectX-5, one client; RACE with keys of 16 and values of 32 bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
