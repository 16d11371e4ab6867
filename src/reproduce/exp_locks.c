/* Rows of a lock, and locks of a word, in RCuckoo. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

/* 95 % of 512 rows of 8 places. */
#define ROWS    512u
#define KEYS    (ROWS * 8 * 95 / 100)
#define CLIENTS 8u

/* Inserts that fill a table from 85 to 95 %, as in Fig. 8b. */
#define LATE_ROWS 1024u
#define LATE_KEYS (LATE_ROWS * 8 * 85 / 100)
#define LATE_OPS  (LATE_ROWS * 8 * 10 / 100)

static const struct plan_axis late_locks = {4, {1, 4, 16, 64}};
static const struct plan_axis lock_rows[2] = {{7, {1, 2, 4, 16, 64, 256, 512}},
                                              {4, {1, 4, 16, 512}}};
static const struct plan_axis locks_of_word[2] = {{4, {1, 4, 16, 64}}, {2, {1, 64}}};

static void plan_late(struct plan *p)
{
    for (unsigned l = 0; l < late_locks.count; l++) {
        struct plan_cell *cell = plan_add(p, "rcuckoo", "late-locks-%u", late_locks.value[l]);
        plan_tune(cell, "grows=0&rows=%u&locks=%u", LATE_ROWS, late_locks.value[l]);
        cell->workloads = "insert";
        cell->keys = LATE_KEYS;
        cell->ops = LATE_OPS;
        cell->key_size = cell->value_size = 8;
        cell->until_full = true;
        cell->network = testbed_rcuckoo(CLIENTS);
    }
}

static void plan(struct plan *p)
{
    const struct plan_axis *rows = &lock_rows[p->quick], *locks = &locks_of_word[p->quick];
    for (unsigned l = 0; l < locks->count; l++)
        for (unsigned i = 0; i < rows->count; i++) {
            struct plan_cell *cell =
                plan_add(p, "rcuckoo", "rows-%u-locks-%u", rows->value[i], locks->value[l]);
            plan_tune(cell, "grows=0&rows=%u&lock_rows=%u&locks=%u", ROWS, rows->value[i],
                      locks->value[l]);
            cell->keys = KEYS;
            cell->ops = KEYS;
            cell->key_size = cell->value_size = 8;
            cell->until_full = true;
            cell->network = testbed_rcuckoo(CLIENTS);
        }
    plan_late(p);
}

static double late(const struct results *r, unsigned locks, const char *member)
{
    return results_op(r, "insert", "insert", member, "late-locks-%u", locks);
}

static double cost(const struct results *r, unsigned rows, unsigned locks, const char *member)
{
    return results_op(r, "load", "put", member, "rows-%u-locks-%u", rows, locks);
}

static double fill(const struct results *r, unsigned rows, unsigned locks)
{
    return 100 * results_space(r, "load", "load_factor", "rows-%u-locks-%u", rows, locks);
}

static void show_grid(const struct results *r, struct sheet_sink *out, const char *title,
                      const char *member, int decimals)
{
    const struct plan_axis *rows = &lock_rows[r->plan->quick],
                           *locks = &locks_of_word[r->plan->quick];
    struct sheet s;
    sheet_init(&s);
    sheet_row(&s, "locks of a word");
    s.lines = true;
    for (unsigned i = 0; i < rows->count; i++)
        sheet_text(&s, "%u row%s", rows->value[i], rows->value[i] == 1 ? "" : "s");
    for (unsigned l = 0; l < locks->count; l++) {
        sheet_row(&s, "%u", locks->value[l]);
        for (unsigned i = 0; i < rows->count; i++)
            sheet_number(&s,
                         member ? cost(r, rows->value[i], locks->value[l], member)
                                : fill(r, rows->value[i], locks->value[l]),
                         decimals);
    }
    sheet_print(&s, out, title);
}

static void show_late(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    sheet_texts(&s, "locks of a word", "99th percentile", "mean");
    for (unsigned l = 0; l < late_locks.count; l++) {
        sheet_row(&s, "%u", late_locks.value[l]);
        sheet_number(&s, late(r, late_locks.value[l], "rtts_p99"), 0);
        sheet_number(&s, late(r, late_locks.value[l], "rtts"), 2);
    }
    sheet_print(&s, out,
                "Round trips of the inserts that fill a table from 85 to 95 % (RCuckoo Fig. 8b, a "
                "plot), with locks of 16 rows:");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    show_grid(r, out,
              "Round trips of an insert, 99th percentile, by the rows of a lock (RCuckoo Fig. 5, a "
              "plot; its text: fewest with 2 to 16 rows; 31 stands for 31 or more):",
              "rtts_p99", 0);
    show_grid(r, out, "Round trips of an insert, mean:", "rtts", 2);
    show_grid(r, out, "Fill of the table at the end, %; below 95, an insert failed before:", NULL,
              1);
    show_late(r, out);
}

static void rcuckoo_c16(const struct results *r, struct claim_finding *f)
{
    double one = cost(r, 1, 64, "rtts_p99"), four = cost(r, 4, 64, "rtts_p99"),
           sixteen = cost(r, 16, 64, "rtts_p99"), all = cost(r, 512, 64, "rtts_p99");
    double best = CLAIM_ALL(four, sixteen);
    claim_decide(f, CLAIM_ALL(one - best + 0.5, all - best),
                 "%.0f with 1 row, %.0f with 4, %.0f with 16, %.0f with 512", one, four, sixteen,
                 all);
}

static void rcuckoo_c17(const struct results *r, struct claim_finding *f)
{
    double sixteen = cost(r, 16, 64, "rtts"), all = cost(r, 512, 64, "rtts");
    claim_decide(f, all - 1.5 * sixteen, "%.2f with one lock, %.2f with 16 rows, on average", all,
                 sixteen);
}

static void rcuckoo_c18(const struct results *r, struct claim_finding *f)
{
    double one = cost(r, 1, 1, "rtts"), many = cost(r, 1, 64, "rtts");
    claim_decide(f, one - 1.5 * many, "%.2f with 1 lock of a word, %.2f with 64, on average", one,
                 many);
}

static void rcuckoo_c19(const struct results *r, struct claim_finding *f)
{
    (void)r;
    claim_open(f, "there is no switch for independent hashing or a search in depth");
}

static void rcuckoo_c22(const struct results *r, struct claim_finding *f)
{
    double four = late(r, 4, "rtts"), many = late(r, 64, "rtts");
    claim_decide(f, CLAIM_ALL(1.25 * many - four, 1.25 * four - many),
                 "%.2f with 4, %.2f with 64, on average", four, many);
}

static const struct claim claims[] = {
    {"RCUCKOO-CLAIM-16", "RCuckoo Fig. 5",
     "with 64 locks of a word, the 99th percentile is smallest with 2 to 16 rows of a lock",
     rcuckoo_c16, NULL},
    {"RCUCKOO-CLAIM-17", "RCuckoo Fig. 5",
     "one lock for all rows costs many more round trips than locks of 16 rows (here: half more)",
     rcuckoo_c17, NULL},
    {"RCUCKOO-CLAIM-18", "RCuckoo Fig. 5",
     "with locks of one row, one lock of a word costs many more round trips than 64 (here: half "
     "more)",
     rcuckoo_c18, NULL},
    {"RCUCKOO-CLAIM-19", "RCuckoo Fig. 8b",
     "dependent hashing and a search in breadth need a tenth of the round trips of independent "
     "hashing and a search in depth",
     rcuckoo_c19, NULL},
    {"RCUCKOO-CLAIM-22", "RCuckoo Fig. 8b",
     "four locks of a word are about as good as more of them (here: within a quarter)", rcuckoo_c22,
     NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "round trips of the whole insert are counted, not only those for its locks",
    "a subtable has at most 64 lock words: with few locks of a word, rows share locks",
    "an insert takes at most four lock words",
    NULL,
};

const struct experiment experiment_locks = {
    .name = "locks",
    .summary = "rows of a lock, and locks of a word, in RCuckoo",
    .sources = "RCuckoo Fig. 5, Fig. 8b",
    .setup =
        "the model: ConnectX-5, 8 clients fill 512 rows to 95 %, and 1024 rows from 85 to 95 %; "
        "keys and values of 8 bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
