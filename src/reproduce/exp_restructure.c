/* What inserts spend on splits and merges. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <math.h>
#include <string.h>

static const unsigned clients[] = {1, 128};
static const unsigned roomy_clients = 128;

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void plan(struct plan *p)
{
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        for (unsigned c = 0; c < COUNT(clients); c++) {
            struct plan_cell *cell = plan_add(p, index, "%s-%u", index, clients[c]);
            cell->workloads = "insert";
            cell->network = testbed_sephash(clients[c]);
        }
    struct plan_cell *cell = plan_add(p, "race", "race-roomy");
    cell->workloads = "insert";
    cell->network = testbed_sephash(roomy_clients);
    cell->expected_keys = 4 * plan_keys(p);
}

static double figure(const struct results *r, const char *index, unsigned count, const char *member)
{
    return results_space(r, "insert", member, "%s-%u", index, count);
}

static double rate(const struct results *r, const char *index, unsigned count)
{
    return results_rate(r, "insert", "%s-%u", index, count);
}

/* Merges are counted only where there are some. */
static double merges(const struct results *r, const char *index, unsigned count)
{
    double found = figure(r, index, count, "merges");
    return isnan(found) && !isnan(figure(r, index, count, "splits")) ? 0 : found;
}

static double splits(const struct results *r, const char *index, unsigned count)
{
    return figure(r, index, count, "splits") - merges(r, index, count);
}

/* The part of the clients' time that restructuring takes. */
static double share(const struct results *r, const char *index, unsigned count)
{
    double inserted = (double)plan_keys(r->plan);
    double time_us = 1e6 * count * inserted / rate(r, index, count);
    return figure(r, index, count, "split_us") / time_us;
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* What restructuring takes of the time in SepHash's Table 1, in percent. */
static double in_table_1(const char *index, unsigned count)
{
    static const struct {
        const char *index;
        unsigned clients;
        double percent;
    } papers[] = {
        {"race", 1, 50.8}, {"race", 128, 50.5}, {"sephash", 1, 3.5}, {"sephash", 128, 1.0}};
    for (unsigned i = 0; i < COUNT(papers); i++)
        if (strcmp(papers[i].index, index) == 0 && papers[i].clients == count)
            return papers[i].percent;
    return NAN;
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    const char *index = NULL;
    sheet_init(&s);
    sheet_texts(&s, "index", "clients", "M inserts/s", "splits", "merges", "ms in all",
                "% of the time");
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        for (unsigned c = 0; c < COUNT(clients); c++) {
            sheet_row(&s, "%s", c == 0 ? plan_title(index) : "");
            sheet_text(&s, "%u", clients[c]);
            sheet_number(&s, rate(r, index, clients[c]) / 1e6, 2);
            sheet_number(&s, splits(r, index, clients[c]), 0);
            sheet_number(&s, merges(r, index, clients[c]), 0);
            sheet_number(&s, figure(r, index, clients[c], "split_us") / 1e3, 1);
            sheet_number(&s, 100 * share(r, index, clients[c]), 1);
            sheet_paper(&s, 6, in_table_1(index, clients[c]), "SepHash Table 1");
        }
    sheet_row(&s, "RACE, roomy");
    sheet_text(&s, "%u", roomy_clients);
    sheet_number(&s, results_rate(r, "insert", "race-roomy") / 1e6, 2);
    sheet_number(&s, results_space(r, "insert", "splits", "race-roomy"), 0);
    sheet_text(&s, "0");
    sheet_number(&s, results_space(r, "insert", "split_us", "race-roomy") / 1e3, 1);
    sheet_print(&s, out,
                "Inserts that double a table, and what its splits and merges take (SepHash Table 1 "
                "and Fig. 2; the table's share of the time with 1 and 128 clients: RACE 50.8 and "
                "50.5 %, SepHash 3.5 and 1.0 %):");
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void sephash_c19(const struct results *r, struct claim_finding *f)
{
    double one = splits(r, "sephash", 1) / splits(r, "race", 1),
           sephash = splits(r, "sephash", 128), race = splits(r, "race", 128);
    claim_decide(f, 1.25 / 8 - sephash / race,
                 "with 128 clients SepHash splits %.0f times, RACE %.0f times: %.2f; with one "
                 "client %.2f",
                 sephash, race, sephash / race, one);
}

static void sephash_c20(const struct results *r, struct claim_finding *f)
{
    double race = share(r, "race", 1), crowd = share(r, "race", 128),
           sephash = share(r, "sephash", 1), sephash_crowd = share(r, "sephash", 128);
    claim_decide(f,
                 CLAIM_ALL(0.125 - fabs(race - 0.5), 0.125 - fabs(crowd - 0.5), 0.1 - sephash,
                           0.1 - sephash_crowd),
                 "with 1 and 128 clients: RACE %.1f and %.1f %%, SepHash %.1f and %.1f %%",
                 100 * race, 100 * crowd, 100 * sephash, 100 * sephash_crowd);
}

static void sephash_c21(const struct results *r, struct claim_finding *f)
{
    double roomy = results_rate(r, "insert", "race-roomy") / 1e6,
           grows = rate(r, "race", roomy_clients) / 1e6;
    claim_decide(f, roomy / grows - 1.5, "%.2f instead of %.2f, %.2f times (here: 1.5 at least)",
                 roomy, grows, roomy / grows);
}

static const struct claim claims[] = {
    {"SEPHASH-CLAIM-19", "SepHash 5.2.1",
     "SepHash splits an eighth as often as RACE (here: that and a quarter more at most)",
     sephash_c19, NULL},
    {"SEPHASH-CLAIM-20", "SepHash Table 1",
     "resizing takes half of RACE's insert time (here: within a quarter of that), and a few "
     "percent of SepHash's (here: less than 10)",
     sephash_c20, NULL},
    {"SEPHASH-CLAIM-21", "SepHash Fig. 2",
     "RACE inserts twice as fast into a table that is large enough", sephash_c21, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer are loaded, and as many inserted, instead of 10^8 into an empty table",
    "the time is that of clients who split, merge or move parts of the table, wait for another who "
    "does, or do so in vain; those who only meet a part that is being split are not in it",
    "the roomy table has room for four times the keys that are loaded",
    NULL,
};

const struct experiment experiment_restructure = {
    .name = "restructure",
    .summary = "what inserts spend on splits and merges",
    .sources = "SepHash Table 1 and Fig. 2",
    .setup = "the model: ConnectX-5, one memory node, 16 clients on a machine; keys of 16 and "
             "values of 32 bytes; inserts double the table",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
