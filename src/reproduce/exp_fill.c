/* RCuckoo over the fill of its table and the size of its entries. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>

/* A table of a fixed size: 16384 rows of 8 places. */
#define ROWS       "16k"
#define PLACES     (16384u * 8)
#define FILL_RANGE 2u /* a run fills the table from so many percent below to so many above */
#define MIX        "insert=50+get=50"
#define LOW        5u  /* nearly empty */
#define HIGH       90u /* of the paper's insert throughput */
#define HIGHEST    95u

static const struct plan_axis fills[2] = {{5, {LOW, 25, 50, HIGH, HIGHEST}},
                                          {3, {LOW, HIGH, HIGHEST}}};
/* Bytes of values, all of them inline. */
static const struct plan_axis values[2] = {{5, {8, 16, 32, 64, 128}}, {2, {8, 64}}};

/* 120 clients on 6 machines. */
static struct plan_network six_machines(void)
{
    return (struct plan_network){
        .nic = "cx5", .machines = 6, .threads = 20, .depth = 1, .nodes = 1, .locks_in_nic = true};
}

static struct plan_cell *add(struct plan *p, const char *what, unsigned number)
{
    struct plan_cell *cell = plan_add(p, "rcuckoo", "%s-%u", what, number);
    cell->key_size = cell->value_size = 8;
    return cell;
}

static struct plan_cell *add_fill(struct plan *p, const char *what, unsigned fill)
{
    struct plan_cell *cell = add(p, what, fill);
    plan_tune(cell, "grows=0&rows=" ROWS);
    cell->keys = PLACES / 100 * (fill - FILL_RANGE);
    cell->ops = PLACES / 100 * 2 * FILL_RANGE;
    cell->workloads = "insert";
    cell->until_full = true;
    return cell;
}

static void plan(struct plan *p)
{
    const struct plan_axis *fill = &fills[p->quick], *value = &values[p->quick];
    for (unsigned i = 0; i < fill->count; i++) {
        add_fill(p, "many", fill->value[i])->network = testbed_rcuckoo(320);
        add_fill(p, "few", fill->value[i])->network = testbed_rcuckoo(8);
        add_fill(p, "mix", fill->value[i])->workloads = MIX;
    }
    for (unsigned inlined = 0; inlined <= 1; inlined++) {
        struct plan_cell *cell = add(p, "inline", inlined);
        plan_tune(cell, "value=%u&hot=0", inlined * 8);
        cell->workloads = "b,a";
        cell->network = six_machines();
    }
    for (unsigned i = 0; i < value->count; i++) {
        struct plan_cell *cell = add(p, "entry", value->value[i]);
        plan_tune(cell, "value=%u&hot=0", value->value[i]);
        cell->value_size = value->value[i];
        cell->workloads = "c," MIX;
        cell->network = six_machines();
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static double insert_rate(const struct results *r, unsigned fill)
{
    return results_rate(r, "insert", "many-%u", fill) / 1e6;
}

static double insert_us(const struct results *r, unsigned fill)
{
    return results_op(r, "insert", "insert", "p50_us", "few-%u", fill);
}

/* The mean of a get and an insert. */
static double mean(const struct results *r, const char *member, unsigned fill)
{
    return (results_op(r, MIX, "get", member, "mix-%u", fill) +
            results_op(r, MIX, "insert", member, "mix-%u", fill)) /
           2;
}

static double bytes(const struct results *r, unsigned fill)
{
    return mean(r, "bytes_read", fill) + mean(r, "bytes_written", fill);
}

static double inline_rate(const struct results *r, const char *workload, bool inlined)
{
    return results_rate(r, workload, "inline-%u", inlined) / 1e6;
}

static double entry_rate(const struct results *r, const char *workload, unsigned size)
{
    return results_rate(r, workload, "entry-%u", size) / 1e6;
}

static void show_fills(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const struct plan_axis *fill = &fills[r->plan->quick];
    sheet_texts(s, "fill, %", "M inserts/s", "paper", "8 clients, us", "bytes", "verbs");
    for (unsigned i = 0; i < fill->count; i++) {
        unsigned at = fill->value[i];
        sheet_row(s, "%u", at);
        sheet_number(s, insert_rate(r, at), 2);
        sheet_paper_number(s, 1, at == LOW ? 11.5 : at == HIGH ? 4.5 : NAN, 1, "RCuckoo Fig. 7");
        sheet_number(s, insert_us(r, at), 1);
        sheet_number(s, bytes(r, at), 0);
        sheet_number(s, mean(r, "verbs", at), 2);
    }
    sheet_print(s, out,
                "Inserts of 320 clients; their median latency with 8 clients; bytes and verbs of "
                "an operation, half gets and half inserts (RCuckoo Fig. 7):");
}

static void show_inline(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "values of 8 bytes", "B", "A");
    for (unsigned inlined = 0; inlined <= 1; inlined++) {
        sheet_row(s, inlined ? "inline" : "in extents");
        sheet_number(s, inline_rate(r, "b", inlined), 2);
        sheet_number(s, inline_rate(r, "a", inlined), 2);
    }
    sheet_print(s, out,
                "YCSB, 120 clients, millions of operations a second (RCuckoo Fig. 8d; its text: "
                "inline 1.21 times in B, 1.37 in A):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    const struct plan_axis *value = &values[r->plan->quick];
    struct sheet s;
    sheet_init(&s);
    show_fills(r, &s, out);
    show_inline(r, &s, out);
    sheet_axis(&s, "bytes of a value:", value);
    for (unsigned reads = 0; reads <= 1; reads++) {
        sheet_row(&s, reads ? "C" : "half inserts");
        for (unsigned i = 0; i < value->count; i++)
            sheet_number(&s, entry_rate(r, reads ? "c" : MIX, value->value[i]), 2);
    }
    sheet_print(&s, out,
                "Inline values, 120 clients, millions of operations a second (RCuckoo Fig. 8c; the "
                "text has no numbers):");
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void rcuckoo_c11(const struct results *r, struct claim_finding *f)
{
    double low = insert_rate(r, LOW), high = insert_rate(r, HIGH);
    claim_decide(
        f, CLAIM_ALL(low - 0.75 * 11.5, 1.25 * 11.5 - low, high - 0.75 * 4.5, 1.25 * 4.5 - high),
        "%.2f nearly empty, %.2f at 90 %%", low, high);
}

static void rcuckoo_c12(const struct results *r, struct claim_finding *f)
{
    double more = bytes(r, HIGHEST) / bytes(r, LOW),
           verbs = mean(r, "verbs", HIGHEST) / mean(r, "verbs", LOW);
    claim_decide(f, CLAIM_ALL(2 - more, 1.5 - verbs), "%.2f times the bytes, %.2f times the verbs",
                 more, verbs);
}

static void rcuckoo_c13(const struct results *r, struct claim_finding *f)
{
    double low = insert_us(r, LOW), high = insert_us(r, HIGHEST);
    double tail_low = results_op(r, "insert", "insert", "p99_us", "few-%u", LOW),
           tail_high = results_op(r, "insert", "insert", "p99_us", "few-%u", HIGHEST);
    claim_decide(f, 0.25 - fabs(high / low / 2 - 1),
                 "%.1f us nearly empty, %.1f us at 95 %%; the 99th percentile: %.1f and %.1f us",
                 low, high, tail_low, tail_high);
}

static void rcuckoo_c14(const struct results *r, struct claim_finding *f)
{
    double b = inline_rate(r, "b", true) / inline_rate(r, "b", false),
           a = inline_rate(r, "a", true) / inline_rate(r, "a", false);
    claim_decide(f, CLAIM_ALL(claim_more(b, 1, 1.21), claim_more(a, 1, 1.37)),
                 "%.2f times in B, %.2f in A", b, a);
}

static void rcuckoo_c15(const struct results *r, struct claim_finding *f)
{
    double inserts = entry_rate(r, MIX, 64) / entry_rate(r, MIX, 8),
           reads = entry_rate(r, "c", 64) / entry_rate(r, "c", 8);
    claim_decide(f, CLAIM_ALL(claim_more(1, inserts, 0), reads - 0.9),
                 "with values of 64 instead of 8 bytes, %.2f of the throughput with half inserts, "
                 "%.2f in C",
                 inserts, reads);
}

static bool rows_grow(const struct results *r, char *numbers, size_t room)
{
    double small = results_op(r, "c", "get", "bytes_read", "entry-8"),
           large = results_op(r, "c", "get", "bytes_read", "entry-64");
    snprintf(numbers, room, "%.0f bytes with values of 8, %.0f with 64", small, large);
    return large > 2 * small;
}

static const struct claim claims[] = {
    {"RCUCKOO-CLAIM-11", "RCuckoo 5.3",
     "320 clients insert 11.5 million a second into a nearly empty table, 4.5 at 90 %", rcuckoo_c11,
     NULL},
    {"RCUCKOO-CLAIM-12", "RCuckoo 5.3",
     "as the table fills, the bytes of an operation at most double, and its messages grow at most "
     "1.5 times",
     rcuckoo_c12, NULL},
    {"RCUCKOO-CLAIM-13", "RCuckoo 5.3",
     "inserts at the maximum fill take about twice as long as into an empty table (here: 1.5 to "
     "2.5 "
     "times in the median)",
     rcuckoo_c13, NULL},
    {"RCUCKOO-CLAIM-14", "RCuckoo 5.5", "inline values give 1.21 times in B, 1.37 times in A",
     rcuckoo_c14, NULL},
    {"RCUCKOO-CLAIM-15", "RCuckoo 5.5",
     "larger entries lower the throughput of inserts, and hardly that of reads (here: 0.9 of it "
     "stay)",
     rcuckoo_c15, CLAIM_REASON("A get reads both rows of its key whole", rows_grow)},
    {.name = NULL},
};

static const char *const differs[] = {
    "the table has 131072 places, the paper's 10^8; each run fills it by 4 %, around the fill that "
    "the table names",
    "keys and values of 8 bytes; the paper's have 4",
    "bytes and verbs are of one client on mem:",
    NULL,
};

const struct experiment experiment_fill = {
    .name = "fill",
    .summary = "RCuckoo over the fill of its table and the size of its entries",
    .sources = "RCuckoo Fig. 7, 8c and 8d",
    .setup = "the model: ConnectX-5, one memory node; 320 or 8 clients on 8 machines that fill a "
             "table of a fixed size, 120 on 6 machines for sizes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
