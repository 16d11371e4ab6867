/* Round trips of each operation. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"

#include <math.h>
#include <string.h>

static void plan(struct plan *p)
{
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
        struct plan_cell *cell = plan_add(p, index, "%s", index);
        cell->workloads = "load,get,update,insert,add,delete";
        cell->key_size = cell->value_size = 8;
        cell->uniform = true;
    }
}

struct row {
    const char *op, *index;
    double shard_paper;    /* SHARD, Table 3; NAN: not in it */
    const char *own_paper; /* what the index's own paper says */
};

/* The own papers: RACE sections 3.2 and 5.2.2; SepHash 4.3 and 5.2.2; SHARD Table 3; RCuckoo 1;
 * CHIME Table 1, if all internal nodes are cached. */
static const struct row rows[] = {
    {"get", "race", 2.03, "2"},
    {"get", "sephash", 2.20, "2"},
    {"get", "shard", 1.00, "1.00"},
    {"get", "rcuckoo", NAN, "1"},
    {"get", "chime", NAN, "1 or 2"},
    {"insert", "race", 12.79, "3"},
    {"insert", "sephash", 11.56, "2"},
    {"insert", "shard", 2.59, "2.59"},
    {"insert", "rcuckoo", NAN, "2 in the median"},
    {"insert", "chime", NAN, "3"},
    {"add", "race", NAN, ""},
    {"add", "sephash", NAN, "2, blind"},
    {"add", "shard", NAN, ""},
    {"add", "rcuckoo", NAN, ""},
    {"add", "chime", NAN, ""},
    {"update", "race", 3.03, "3"},
    {"update", "sephash", 3.20, ""},
    {"update", "shard", 2.00, "2.00"},
    {"update", "rcuckoo", NAN, "2"},
    {"update", "chime", NAN, "3 or 4"},
    {"delete", "race", 3.03, "3"},
    {"delete", "sephash", 3.20, ""},
    {"delete", "shard", 2.00, "2.00"},
    {"delete", "rcuckoo", NAN, "2"},
    {"delete", "chime", NAN, "3 or 4"},
};

/* The operation that a workload consists of. */
static const char *kind_of(const char *workload)
{
    return strcmp(workload, "add") == 0 ? "put" : workload;
}

static double rtts(const struct results *r, const char *index, const char *op)
{
    return results_op(r, op, kind_of(op), "rtts", "%s", index);
}

static void show(const struct results *r, struct sheet_sink *out)
{
    static const struct {
        const char *member;
        int decimals;
    } columns[] = {
        {"rtts", 2}, {"rtts_p99", 0}, {"verbs", 2}, {"bytes_read", 1}, {"bytes_written", 1}};
    struct sheet s;
    sheet_init(&s);
    s.left = 2;
    sheet_texts(&s, "op", "index", "round trips", "p99", "verbs", "read", "written",
                "SHARD Table 3", "own paper");
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        bool first = i == 0 || strcmp(row->op, rows[i - 1].op) != 0;
        sheet_row(&s, "%s", first ? row->op : "");
        sheet_text(&s, "%s", plan_title(row->index));
        for (unsigned c = 0; c < sizeof columns / sizeof *columns; c++)
            sheet_number(
                &s, results_op(r, row->op, kind_of(row->op), columns[c].member, "%s", row->index),
                columns[c].decimals);
        sheet_paper_number(&s, s.left, row->shard_paper, 2, "SHARD Table 3");
        sheet_paper_text(&s, s.left, row->own_paper, "its own paper");
    }
    sheet_print(
        &s, out,
        "Round trips of an operation: mean and 99th percentile; verbs and bytes, mean. add: "
        "put of new keys, which does not ask whether they are there:");
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* What SHARD's Table 3 has. */
static double in_table_3(const char *index, const char *op)
{
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].index, index) == 0 && strcmp(rows[i].op, op) == 0)
            return rows[i].shard_paper;
    return NAN;
}

/* Does the index take more than the other, as in the table? */
static double more(const struct results *r, const char *op, const char *index, const char *other)
{
    return claim_more(rtts(r, index, op), rtts(r, other, op),
                      in_table_3(index, op) / in_table_3(other, op));
}

/* Is SHARD's number below RACE's, and RACE's below SepHash's? */
static void decide_order(const struct results *r, struct claim_finding *f, const char *op)
{
    double race = rtts(r, "race", op), sephash = rtts(r, "sephash", op),
           shard = rtts(r, "shard", op);
    claim_decide(f, CLAIM_ALL(more(r, op, "race", "shard"), more(r, op, "sephash", "race")),
                 "SHARD %.2f, RACE %.2f, SepHash %.2f", shard, race, sephash);
}

static void shard_c1(const struct results *r, struct claim_finding *f)
{
    decide_order(r, f, "get");
}

static void shard_c2(const struct results *r, struct claim_finding *f)
{
    double race = rtts(r, "race", "insert"), sephash = rtts(r, "sephash", "insert"),
           shard = rtts(r, "shard", "insert");
    claim_decide(
        f, CLAIM_ALL(more(r, "insert", "sephash", "shard"), more(r, "insert", "race", "sephash")),
        "SHARD %.2f, SepHash %.2f, RACE %.2f", shard, sephash, race);
}

static void shard_c3(const struct results *r, struct claim_finding *f)
{
    decide_order(r, f, "update");
}

static void shard_c4(const struct results *r, struct claim_finding *f)
{
    double race = rtts(r, "race", "delete") - rtts(r, "race", "update"),
           sephash = rtts(r, "sephash", "delete") - rtts(r, "sephash", "update"),
           shard = rtts(r, "shard", "delete") - rtts(r, "shard", "update");
    claim_decide(f, CLAIM_ALL(0.1 - fabs(race), 0.1 - fabs(sephash), 0.1 - fabs(shard)),
                 "the difference is %.2f (RACE), %.2f (SepHash), %.2f (SHARD)", race, sephash,
                 shard);
}

static void shard_c5(const struct results *r, struct claim_finding *f)
{
    double race = rtts(r, "race", "update") - rtts(r, "race", "get"),
           sephash = rtts(r, "sephash", "update") - rtts(r, "sephash", "get"),
           shard = rtts(r, "shard", "update") - rtts(r, "shard", "get");
    claim_decide(f, CLAIM_ALL(0.1 - fabs(race - 1), 0.1 - fabs(sephash - 1), 0.1 - fabs(shard - 1)),
                 "%.2f (RACE), %.2f (SepHash), %.2f (SHARD) more than a get", race, sephash, shard);
}

static void race_c1(const struct results *r, struct claim_finding *f)
{
    double get = rtts(r, "race", "get"), insert = rtts(r, "race", "insert"),
           update = rtts(r, "race", "update"), delete = rtts(r, "race", "delete");
    claim_decide(f,
                 CLAIM_ALL(0.1 - fabs(get - 2), 0.3 - fabs(insert - 3), 0.1 - fabs(update - 3),
                           0.1 - fabs(delete - 3)),
                 "get %.2f, insert %.2f with splits, update %.2f, delete %.2f", get, insert, update,
                 delete);
}

static void sephash_c2(const struct results *r, struct claim_finding *f)
{
    double insert = rtts(r, "sephash", "insert");
    claim_decide(f, 0.3 - fabs(insert - 2),
                 "%.2f on average, with merges and splits; %.2f of a put of a new key", insert,
                 rtts(r, "sephash", "add"));
}

static void rcuckoo_c1(const struct results *r, struct claim_finding *f)
{
    double get = rtts(r, "rcuckoo", "get"), update = rtts(r, "rcuckoo", "update"),
           delete = rtts(r, "rcuckoo", "delete");
    claim_decide(f, CLAIM_ALL(0.1 - fabs(get - 1), 0.1 - fabs(update - 2), 0.1 - fabs(delete - 2)),
                 "get %.2f, update %.2f, delete %.2f, with pairs of 8 and 8 bytes inline", get,
                 update, delete);
}

static void rcuckoo_c2(const struct results *r, struct claim_finding *f)
{
    double insert = rtts(r, "rcuckoo", "insert");
    claim_decide(f, 0.3 - fabs(insert - 2), "%.2f on average, with splits", insert);
}

static void chime_c1(const struct results *r, struct claim_finding *f)
{
    double get = rtts(r, "chime", "get"), insert = rtts(r, "chime", "insert"),
           update = rtts(r, "chime", "update"), delete = rtts(r, "chime", "delete");
    claim_decide(f, CLAIM_ALL(2.05 - get, 3.05 - insert, 4.05 - update, 4.05 - delete),
                 "get %.2f, insert %.2f with splits, update %.2f, delete %.2f", get, insert, update,
                 delete);
}

#define READS_KEY                                                                                  \
    "Farside's SHARD reads the block after the entry and compares the whole key: a round trip "    \
    "more than in the paper, and no wrong answer for keys with equal fingerprints"

static bool reads_key(const struct results *r, char *numbers, size_t room)
{
    double get = rtts(r, "shard", "get");
    snprintf(numbers, room, "a get takes %.2f round trips", get);
    return fabs(get - 2) < 0.1;
}

static const struct claim claims[] = {
    {"SHARD-CLAIM-1", "SHARD Table 3",
     "a search takes fewer round trips in SHARD (1.00) than in RACE (2.03), and fewer there than "
     "in "
     "SepHash (2.20)",
     shard_c1, CLAIM_REASON(READS_KEY, reads_key)},
    {"SHARD-CLAIM-2", "SHARD Table 3",
     "an insert, resizing included, takes fewer round trips in SHARD (2.59) than in SepHash "
     "(11.56), and fewer there than in RACE (12.79)",
     shard_c2, NULL},
    {"SHARD-CLAIM-3", "SHARD Table 3",
     "an update takes fewer round trips in SHARD (2.00) than in RACE (3.03), and fewer there than "
     "in SepHash (3.20)",
     shard_c3, CLAIM_REASON(READS_KEY, reads_key)},
    {"SHARD-CLAIM-4", "SHARD Table 3", "a delete takes as many round trips as an update", shard_c4,
     NULL},
    {"SHARD-CLAIM-5", "SHARD Table 3", "an update takes one round trip more than a search",
     shard_c5, NULL},
    {"RACE-CLAIM-1", "RACE 5.2.2",
     "without resizing, a search takes 2 round trips, an insert, update or delete 3", race_c1,
     NULL},
    {"SEPHASH-CLAIM-2", "SepHash 4.3",
     "without a merge or split, an insert waits for 2 round trips", sephash_c2, NULL},
    {"RCUCKOO-CLAIM-1", "RCuckoo 1",
     "inlined values are read in 1 round trip, updates and deletes take 2", rcuckoo_c1, NULL},
    {"RCUCKOO-CLAIM-2", "RCuckoo 1", "the median insert takes 2 round trips", rcuckoo_c2, NULL},
    {"CHIME-CLAIM-1", "CHIME Table 1",
     "with all internal nodes cached, a search takes at most 2 round trips, an insert 3, an "
     "update or delete 4",
     chime_c1, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "one client instead of up to 108, so nobody waits for others",
    "10^6 keys or fewer; the paper says trillions, but its sizes fit 10^9",
    "an insert's round trips include the splits, moves and merges that it does itself",
    NULL,
};

const struct experiment experiment_rtts = {
    .name = "rtts",
    .summary = "round trips of each operation",
    .sources = "SHARD Table 3",
    .setup = "mem:, one client, one operation in flight; keys and values of 8 bytes, drawn "
             "uniformly; inserts double the table",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
