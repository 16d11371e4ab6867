/* Clients that die while others work. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#define CLIENTS  64u
#define LEASE_MS 3u

static const struct plan_axis deaths[2] = {{4, {0, 100, 500, 2000}}, {2, {0, 500}}};

/* RCuckoo beyond what it bears, with several sizes of locks. */
#define MANY_DEATHS 2000u
static const struct plan_axis lock_rows = {3, {1, 4, 16}};

static void set(const struct plan *p, struct plan_cell *cell, unsigned dying)
{
    cell->workloads = "a";
    cell->keys = plan_keys(p);
    cell->ops = (p->quick ? 3 : 4) * plan_keys(p);
    cell->key_size = cell->value_size = 8;
    cell->uniform = true;
    cell->network = testbed_rcuckoo(CLIENTS);
    cell->network.deaths = dying;
    cell->network.lease_ms = LEASE_MS;
}

static void plan_locks(struct plan *p)
{
    for (unsigned i = 0; i < lock_rows.count; i++)
        for (unsigned many = 0; many <= 1; many++) {
            unsigned dying = many * MANY_DEATHS;
            struct plan_cell *cell =
                plan_add(p, "rcuckoo", "rcuckoo-rows-%u-%u", lock_rows.value[i], dying);
            plan_tune(cell, "lock_rows=%u&hot=0", lock_rows.value[i]);
            set(p, cell, dying);
        }
}

static void plan(struct plan *p)
{
    const struct plan_axis *a = &deaths[p->quick];
    for (unsigned n = 0; plan_index(n); n++)
        for (unsigned i = 0; i < a->count; i++)
            set(p, plan_add(p, plan_index(n), "%s-%u", plan_index(n), a->value[i]), a->value[i]);
    plan_locks(p);
}

static double rate(const struct results *r, const char *index, unsigned n)
{
    return results_rate(r, "a", "%s-%u", index, n) / 1e6;
}

static double rows_rate(const struct results *r, unsigned rows, unsigned dying)
{
    return results_rate(r, "a", "rcuckoo-rows-%u-%u", rows, dying) / 1e6;
}

/* What is left of the throughput without deaths. */
static double kept(const struct results *r, unsigned rows)
{
    return rows_rate(r, rows, MANY_DEATHS) / rows_rate(r, rows, 0);
}

static void show_locks(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_axis(s, "rows of a lock:", &lock_rows);
    for (unsigned many = 0; many <= 1; many++) {
        sheet_row(s, "%u deaths/s", many * MANY_DEATHS);
        for (unsigned i = 0; i < lock_rows.count; i++)
            sheet_number(s, rows_rate(r, lock_rows.value[i], many * MANY_DEATHS), 2);
    }
    sheet_row(s, "%% kept");
    for (unsigned i = 0; i < lock_rows.count; i++)
        sheet_number(s, 100 * kept(r, lock_rows.value[i]), 1);
    sheet_print(s, out, "RCuckoo with other sizes of locks (RCuckoo Fig. 8a):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    const struct plan_axis *a = &deaths[r->plan->quick];
    struct sheet s;
    sheet_init(&s);
    sheet_axis(&s, "deaths/s:", a);
    for (unsigned n = 0; plan_index(n); n++) {
        sheet_row(&s, "%s", plan_title(plan_index(n)));
        for (unsigned i = 0; i < a->count; i++)
            sheet_number(&s, rate(r, plan_index(n), a->value[i]), 2);
    }
    sheet_print(&s, out,
                "YCSB A, uniform, millions of operations a second (RCuckoo Fig. 8a, a plot; its "
                "text: throughput stays high up to about 500 deaths a second):");
    show_locks(r, &s, out);
}

static void rcuckoo_c20(const struct results *r, struct claim_finding *f)
{
    double none = rate(r, "rcuckoo", 0), many = rate(r, "rcuckoo", 500);
    claim_decide(f, many - 0.7 * none, "%.2f without deaths, %.2f with 500 a second", none, many);
}

static void rcuckoo_c21(const struct results *r, struct claim_finding *f)
{
    double falling[PLAN_AXIS_MAX];
    for (unsigned i = 0; i < lock_rows.count; i++)
        falling[i] = -kept(r, lock_rows.value[i]);
    claim_decide(f, claim_rising(lock_rows.count, falling, 0),
                 "with %u deaths a second %.2f of it stays with 1 row, %.2f with 4, %.2f with 16",
                 MANY_DEATHS, -falling[0], -falling[1], -falling[2]);
}

static const struct claim claims[] = {
    {"RCUCKOO-CLAIM-20", "RCuckoo 5.4",
     "throughput stays high up to 500 deaths a second (here: at least 0.7 of that without)",
     rcuckoo_c20, NULL},
    {"RCUCKOO-CLAIM-21", "RCuckoo 5.4", "beyond that, fewer rows of a lock lose less", rcuckoo_c21,
     NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "a client that dies is gone with all it holds, and another one connects; in the paper, an "
    "insert "
    "is cut short, and its client goes on",
    "a client counts as dead after a lease of 3 ms; the paper waits for 100 ms, but detects the "
    "lock that is held, not the client",
    "updates and gets of keys that are there, without inserts",
    NULL,
};

const struct experiment experiment_failures = {
    .name = "failures",
    .summary = "throughput while clients die",
    .sources = "RCuckoo Fig. 8a",
    .setup = "the model: ConnectX-5, 64 clients on 8 machines; keys and values of 8 bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
