/* How full tables become before they must grow. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"

#include <math.h>

static const unsigned groups[] = {2, 8, 32, 85, 340};
static const unsigned localities[] = {150, 180, 200, 230, 260, 300, 400}; /* f, in 1/100 */
static const unsigned spans[] = {8, 16, 32, 64};
static const unsigned neighbourhoods[] = {2, 4, 8, 16};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* RCuckoo's table of a fixed size: 16384 rows of 8 places. */
#define FIXED_ROWS "16k"
/* f = 4, with locks of many rows. */
#define WIDE_LOCKS "rcuckoo-f-400-wide-locks"
#define FIXED_KEYS 140000u /* more than there are places */

static void plan(struct plan *p)
{
    for (unsigned i = 0; i < COUNT(groups); i++)
        plan_tune(plan_add(p, "race", "race-groups-%u", groups[i]), "groups=%u&hot=0", groups[i]);
    for (unsigned i = 0; i < COUNT(localities); i++) {
        struct plan_cell *cell = plan_add(p, "rcuckoo", "rcuckoo-f-%u", localities[i]);
        plan_tune(cell, "grows=0&rows=" FIXED_ROWS "&f=%u", localities[i]);
        cell->keys = FIXED_KEYS;
        cell->key_size = cell->value_size = 8;
        cell->until_full = true;
    }
    struct plan_cell *wide = plan_add(p, "rcuckoo", WIDE_LOCKS);
    plan_tune(wide, "grows=0&rows=" FIXED_ROWS "&f=400&lock_rows=1024");
    wide->keys = FIXED_KEYS;
    wide->key_size = wide->value_size = 8;
    wide->until_full = true;
    for (unsigned i = 0; i < COUNT(spans); i++) {
        struct plan_cell *cell = plan_add(p, "chime", "chime-span-%u", spans[i]);
        plan_tune(cell, "span=%u&neighbourhood=8", spans[i]);
        cell->key_size = cell->value_size = 8;
    }
    for (unsigned i = 0; i < COUNT(neighbourhoods); i++) {
        struct plan_cell *cell = plan_add(p, "chime", "chime-near-%u", neighbourhoods[i]);
        plan_tune(cell, "span=64&neighbourhood=%u", neighbourhoods[i]);
        cell->key_size = cell->value_size = 8;
    }
}

/* The load factor of what was split, in percent. */
static double split_load(const struct results *r, const char *what, unsigned number)
{
    return 100 * results_space(r, "load", "split_load_mean", "%s-%u", what, number);
}

static double fill(const struct results *r, unsigned f)
{
    return 100 * results_space(r, "load", "load_factor", "rcuckoo-f-%u", f);
}

static double cache(const struct results *r, const char *what, unsigned number)
{
    return results_space(r, "load", "client_cache_bytes", "%s-%u", what, number);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void show_race(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "places in a subtable", "mean % at a split", "highest %", "paper");
    for (unsigned i = 0; i < COUNT(groups); i++) {
        sheet_row(s, "%u", groups[i] * 3 * 7);
        sheet_number(s, split_load(r, "race-groups", groups[i]), 1);
        sheet_number(
            s, 100 * results_space(r, "load", "split_load_max", "race-groups-%u", groups[i]), 1);
        sheet_paper_text(s, 1, "90", "RACE Fig. 12");
    }
    sheet_print(s, out,
                "RACE, 7 places in a bucket: load factor of subtables when an insert fails (Fig. "
                "12; the paper does not give the size of its subtables):");
}

static void show_rcuckoo(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "f", "fill %", "paper");
    for (unsigned i = 0; i < COUNT(localities); i++) {
        sheet_row(s, "%.1f", localities[i] / 100.0);
        sheet_number(s, fill(r, localities[i]), 1);
        sheet_paper_text(s, 1, localities[i] == 230 ? "> 95" : "", "RCuckoo Fig. 4b");
    }
    sheet_print(s, out, "RCuckoo: fill of " FIXED_ROWS " rows at the first failure (Fig. 4b):");
}

static void show_chime(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "span", "neighbourhood", "mean % at a split", "cache bytes", "paper %");
    for (unsigned i = 0; i < COUNT(spans); i++) {
        sheet_row(s, "%u", spans[i]);
        sheet_text(s, "8");
        sheet_number(s, split_load(r, "chime-span", spans[i]), 1);
        sheet_number(s, cache(r, "chime-span", spans[i]), 0);
        sheet_paper_text(s, 2, spans[i] == 64 ? "88.1" : "", "CHIME Fig. 19");
    }
    for (unsigned i = 0; i < COUNT(neighbourhoods); i++) {
        unsigned n = neighbourhoods[i];
        sheet_row(s, "64");
        sheet_text(s, "%u", n);
        sheet_number(s, split_load(r, "chime-near", n), 1);
        sheet_number(s, cache(r, "chime-near", n), 0);
        sheet_paper_text(s, 2,
                         n == 2    ? "37.7"
                         : n == 16 ? "99.8"
                         : n == 8  ? "88.1"
                                   : "",
                         "CHIME Fig. 19");
    }
    sheet_print(s, out, "CHIME: load factor of leaves that are split (Fig. 19a, 19b):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    show_race(r, &s, out);
    show_rcuckoo(r, &s, out);
    show_chime(r, &s, out);
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void race_c2(const struct results *r, struct claim_finding *f)
{
    (void)r;
    claim_open(f, "buckets always have 7 places here");
}

static void race_c3(const struct results *r, struct claim_finding *f)
{
    double load = split_load(r, "race-groups", 85);
    claim_decide(f, 5 - fabs(load - 90), "%.1f %% on average", load);
}

static void rcuckoo_c3(const struct results *r, struct claim_finding *f)
{
    double fills[COUNT(localities)];
    for (unsigned i = 0; i < COUNT(localities); i++)
        fills[i] = fill(r, localities[i]);
    claim_decide(f, claim_rising(COUNT(localities), fills, 0.01),
                 "from %.1f %% (f = %.1f) to %.1f %% (f = %.1f)", fills[0], localities[0] / 100.0,
                 fills[COUNT(localities) - 1], localities[COUNT(localities) - 1] / 100.0);
}

static void rcuckoo_c4(const struct results *r, struct claim_finding *f)
{
    double filled = fill(r, 230);
    claim_decide(f, filled - 95, "%.1f %%", filled);
}

static void chime_c5(const struct results *r, struct claim_finding *f)
{
    double loads[COUNT(neighbourhoods)];
    for (unsigned i = 0; i < COUNT(neighbourhoods); i++)
        loads[i] = split_load(r, "chime-near", neighbourhoods[i]);
    claim_decide(f, claim_rising(COUNT(neighbourhoods), loads, 0), "%.1f, %.1f, %.1f, %.1f %%",
                 loads[0], loads[1], loads[2], loads[3]);
}

static void chime_c6(const struct results *r, struct claim_finding *f)
{
    double loads[COUNT(spans)], falling[COUNT(spans)];
    for (unsigned i = 0; i < COUNT(spans); i++) {
        loads[i] = split_load(r, "chime-span", spans[i]);
        falling[i] = 1 / loads[i];
    }
    claim_decide(f, claim_rising(COUNT(spans), falling, 0), "%.1f, %.1f, %.1f, %.1f %%", loads[0],
                 loads[1], loads[2], loads[3]);
}

static void chime_c7(const struct results *r, struct claim_finding *f)
{
    double wide = cache(r, "chime-span", 64), narrow = cache(r, "chime-span", 8),
           near = cache(r, "chime-near", 2), far = cache(r, "chime-near", 16);
    claim_decide(f, CLAIM_ALL(narrow - wide, near - far),
                 "bytes: %.0f at span 8, %.0f at span 64; %.0f at neighbourhood 2, %.0f at 16",
                 narrow, wide, near, far);
}

static bool wide_locks_fill(const struct results *r, char *numbers, size_t room)
{
    double wide = 100 * results_space(r, "load", "load_factor", WIDE_LOCKS);
    snprintf(numbers, room, "with lock_rows=1024, f = 4 fills to %.1f %%", wide);
    return wide > fill(r, 400) + 1;
}

static const struct claim claims[] = {
    {"RACE-CLAIM-2", "RACE Fig. 12", "the maximum load factor grows with the places of a bucket",
     race_c2, NULL},
    {"RACE-CLAIM-3", "RACE Fig. 12",
     "with 7 places in a bucket, a table fills to about 90 % (here: 85 to 95)", race_c3, NULL},
    {"RCUCKOO-CLAIM-3", "RCuckoo Fig. 4b", "the maximum fill grows with f", rcuckoo_c3,
     CLAIM_REASON("Paths of a large f span more rows than the locks of an insert cover by default",
                  wide_locks_fill)},
    {"RCUCKOO-CLAIM-4", "RCuckoo 3.3", "with f = 2.3 the table fills to more than 95 %", rcuckoo_c4,
     NULL},
    {"CHIME-CLAIM-5", "CHIME Fig. 19b",
     "the maximum load factor grows with the neighbourhood, from 37.7 % at 2 to 99.8 % at 16",
     chime_c5, NULL},
    {"CHIME-CLAIM-6", "CHIME Fig. 19a", "the maximum load factor falls as the span grows", chime_c6,
     NULL},
    {"CHIME-CLAIM-7", "CHIME Fig. 19a, 19b",
     "the cache shrinks as the span grows, and grows as the neighbourhood shrinks", chime_c7, NULL},
    {"RACE-CLAIM-4", "RACE",
     "two choices and the shared overflow bucket each raise the maximum load factor",
     CLAIM_NOT_MEASURED("There is no switch for either")},
    {.name = NULL},
};

static const char *const differs[] = {
    "RACE's buckets always have 7 places, so the figure's range of associativities cannot be run; "
    "the size of a subtable is varied instead",
    "RCuckoo: one run for each f instead of ten; the paper does not give the size of its table",
    "CHIME's nodes have at most 64 entries here; the figure may go up to 512",
    NULL,
};

const struct experiment experiment_load_factor = {
    .name = "load-factor",
    .summary = "how full tables become before they must grow",
    .sources = "RACE Fig. 12, RCuckoo Fig. 4b, CHIME Fig. 19a and 19b",
    .setup = "mem:, one client puts keys into an empty table; RCuckoo's has a fixed size",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
