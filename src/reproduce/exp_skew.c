/* Throughput over the skew of keys. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

/* Theta, in 1/100. */
static const struct plan_axis skews[2] = {{6, {50, 60, 70, 80, 90, 99}}, {2, {50, 99}}};

static void plan(struct plan *p)
{
    const struct plan_axis *axis = &skews[p->quick];
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        for (unsigned c = 0; c < axis->count; c++) {
            struct plan_cell *cell = plan_add(p, index, "%s-%u", index, axis->value[c]);
            cell->workloads = "a";
            cell->theta = axis->value[c] / 100.0;
            cell->key_size = cell->value_size = 8;
            cell->network = testbed_chime(p->quick ? 160 : 640);
            plan_busy(p, cell);
        }
}

static double rate(const struct results *r, const char *index, unsigned theta)
{
    return results_rate(r, "a", "%s-%u", index, theta) / 1e6;
}

static void show(const struct results *r, struct sheet_sink *out)
{
    const struct plan_axis *axis = &skews[r->plan->quick];
    const char *index = NULL;
    struct sheet s;
    sheet_init(&s);
    sheet_row(&s, "theta:");
    for (unsigned c = 0; c < axis->count; c++)
        sheet_text(&s, "%.2f", axis->value[c] / 100.0);
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
        sheet_row(&s, "%s", plan_title(index));
        for (unsigned c = 0; c < axis->count; c++)
            sheet_number(&s, rate(r, index, axis->value[c]), 2);
    }
    sheet_print(&s, out,
                "Half gets, half updates, millions of operations a second (CHIME Fig. "
                "18a; the text has no numbers):");
}

static void chime_c13(const struct results *r, struct claim_finding *f)
{
    double even = rate(r, "chime", 50), skewed = rate(r, "chime", 99);
    claim_decide(f, skewed - even, "%.2f with theta 0.5, %.2f with 0.99", even, skewed);
}

static const struct claim claims[] = {
    {"CHIME-CLAIM-13", "CHIME 5.4", "CHIME's throughput rises slightly with the skew", chime_c13,
     NULL},
    {"CHIME-CLAIM-14", "CHIME", "SMART's throughput falls with the skew",
     CLAIM_NOT_MEASURED("Farside does not have SMART")},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, instead of 6 * 10^7",
    "clients of a machine do not share a cache. They combine changes of the same key, and no reads",
    "the paper compares CHIME with Sherman, ROLEX and SMART; here are Farside's indexes",
    NULL,
};

const struct experiment experiment_skew = {
    .name = "skew",
    .summary = "throughput over the skew of keys",
    .sources = "CHIME Fig. 18a",
    .setup = "the model: ConnectX-6, 640 clients (with --quick 160) on 10 machines, one memory "
             "node; YCSB A with keys and values of 8 bytes",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
