/* Mixes of inserts and searches. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#define CLIENTS 128u

static const struct mix {
    unsigned percent; /* of inserts */
    const char *workload;
} mixes[] = {
    {10, "insert=10+get=90"}, {25, "insert=25+get=75"}, {50, "insert=50+get=50"},
    {75, "insert=75+get=25"}, {90, "insert=90+get=10"},
};
#define MIXES (sizeof mixes / sizeof *mixes)

static const char *const indexes[] = {"race", "sephash"};
#define INDEXES (sizeof indexes / sizeof *indexes)

/* With --quick, every other mix. */
static unsigned step(const struct plan *p)
{
    return p->quick ? 2 : 1;
}

static void plan(struct plan *p)
{
    for (unsigned i = 0; i < INDEXES; i++)
        for (unsigned m = 0; m < MIXES; m += step(p)) {
            struct plan_cell *cell = plan_add(p, indexes[i], "%s-%u", indexes[i], mixes[m].percent);
            cell->workloads = mixes[m].workload;
            cell->network = testbed_sephash(CLIENTS);
        }
}

static double rate(const struct results *r, const char *index, const struct mix *mix)
{
    return results_rate(r, mix->workload, "%s-%u", index, mix->percent) / 1e6;
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    sheet_row(&s, "inserts, %%:");
    for (unsigned m = 0; m < MIXES; m += step(r->plan))
        sheet_text(&s, "%u", mixes[m].percent);
    for (unsigned i = 0; i < INDEXES; i++) {
        sheet_row(&s, "%s", plan_title(indexes[i]));
        for (unsigned m = 0; m < MIXES; m += step(r->plan))
            sheet_number(&s, rate(r, indexes[i], &mixes[m]), 2);
    }
    sheet_print(&s, out,
                "Inserts and gets, millions of operations a second (SepHash Fig. 14; its text: at "
                "the end SepHash has 8 times RACE's):");
}

static void race_c5(const struct results *r, struct claim_finding *f)
{
    double rates[MIXES];
    unsigned count = 0;
    for (unsigned m = 0; m < MIXES; m += step(r->plan))
        rates[count++] = rate(r, "race", &mixes[MIXES - 1 - m]);
    claim_decide(f, claim_rising(count, rates, 0), "%.2f with 10 %% gets, %.2f with 90 %%",
                 rates[0], rates[count - 1]);
}

static void sephash_c11(const struct results *r, struct claim_finding *f)
{
    const struct mix *few = &mixes[0], *half = &mixes[MIXES / 2], *most = &mixes[MIXES - 1];
    double sephash = rate(r, "sephash", most), race = rate(r, "race", most);
    double kept = sephash / rate(r, "sephash", few), falls = race / rate(r, "race", half);
    claim_decide(f, CLAIM_ALL(kept - 0.75, 0.75 - falls, claim_more(sephash, race, 8)),
                 "with 90 %% inserts SepHash has %.2f of its throughput with 10 %%, RACE %.2f of "
                 "that with 50 %%, SepHash %.2f times RACE's",
                 kept, falls, sephash / race);
}

static const struct claim claims[] = {
    {"RACE-CLAIM-5", "RACE 5.2.4",
     "throughput grows with the share of searches in a mix with inserts", race_c5, NULL},
    {"SEPHASH-CLAIM-11", "SepHash 5.2.3",
     "SepHash keeps its throughput as the share of inserts grows, RACE's falls rapidly beyond "
     "half, "
     "and in the end SepHash has 8 times RACE's (here: a quarter less is neither kept nor rapid)",
     sephash_c11, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer are loaded, and as many operations done, instead of 10^7 (SepHash) and "
    "9 * 10^7 (RACE)",
    "RACE, too, has SepHash's machines: 16 clients on each",
    NULL,
};

const struct experiment experiment_mixes = {
    .name = "mixes",
    .summary = "throughput over the share of inserts among searches",
    .sources = "SepHash Fig. 14, RACE Fig. 15",
    .setup = "the model: ConnectX-5, 128 clients on 8 machines, one memory node; keys of 16 and "
             "values of 32 bytes, zipfian",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
