/* Latency over the load factor. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>

/* RACE's table: 2^DEPTH subtables of SUBTABLE places, from the beginning and for good. */
#define DEPTH_QUICK 6u
#define DEPTH       8u
#define SUBTABLE    1785u /* groups=85 */
#define ROOMY       100000000u

#define OPS 2000u /* so few that the load factor hardly changes */

static const struct plan_axis loads[2] = {{5, {10, 30, 50, 70, 85}}, {3, {10, 50, 85}}};

static void plan(struct plan *p)
{
    const struct plan_axis *axis = &loads[p->quick];
    unsigned depth = p->quick ? DEPTH_QUICK : DEPTH;
    uint64_t places = (uint64_t)SUBTABLE << depth;
    for (unsigned i = 0; i < axis->count; i++) {
        struct plan_cell *cell = plan_add(p, "race", "race-%u", axis->value[i]);
        plan_tune(cell, "groups=85&depth=%u&hot=0", depth);
        cell->workloads = "insert,get,update,delete";
        cell->uniform = true;
        cell->keys = places * axis->value[i] / 100;
        cell->ops = OPS;
        cell->until_full = true; /* with more operations it would become fuller */
        cell->expected_keys = ROOMY;
        cell->network = testbed_race(1);
    }
}

/* One client has one operation in flight: its mean latency, in microseconds. */
static double latency(const struct results *r, const char *op, unsigned load)
{
    return 1e6 / results_rate(r, op, "race-%u", load);
}

static void show(const struct results *r, struct sheet_sink *out)
{
    static const char *const ops[] = {"insert", "get", "update", "delete"};
    const struct plan_axis *axis = &loads[r->plan->quick];
    struct sheet s;
    sheet_init(&s);
    sheet_axis(&s, "load factor, %:", axis);
    for (unsigned i = 0; i < sizeof ops / sizeof *ops; i++) {
        sheet_row(&s, "%s", ops[i]);
        for (unsigned l = 0; l < axis->count; l++)
            sheet_number(&s, latency(r, ops[i], axis->value[l]), 2);
    }
    sheet_print(&s, out,
                "RACE, mean latency in microseconds (RACE Fig. 13; its text has ratios to other "
                "indexes only):");
}

static void race_c6(const struct results *r, struct claim_finding *f)
{
    const struct plan_axis *axis = &loads[r->plan->quick];
    unsigned least = axis->value[0], most = axis->value[axis->count - 1];
    double empty = latency(r, "insert", least), full = latency(r, "insert", most),
           trips = results_op(r, "insert", "insert", "rtts", "race-%u", most);
    claim_decide(f, 0.1 - fabs(full / empty - 1),
                 "%.2f us with %u %% of the places in use, %.2f us with %u %%, where an insert "
                 "takes %.2f round trips",
                 empty, least, full, most, trips);
}

static const struct claim claims[] = {
    {"RACE-CLAIM-6", "RACE 5.2.2",
     "an insert's latency does not grow with the load factor (here: by a tenth at most)", race_c6,
     NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "the table has room from the beginning, and is not split: 64 subtables of 1,785 places, 256 "
    "without --quick",
    NULL,
};

const struct experiment experiment_load_latency = {
    .name = "load-latency",
    .summary = "latency over the load factor",
    .sources = "RACE Fig. 13",
    .setup = "the model: ConnectX-5, one memory node, one client; 2000 operations of each kind; "
             "keys of 16 and values of 32 bytes, drawn uniformly",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
