/* Remote space and client caches. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"

#include <math.h>
#include <string.h>

#define ENTRY_BYTES 8.0 /* of RACE, SepHash and SHARD */

static const unsigned ratios[] = {64, 32, 16, 8};
#define RATIOS (sizeof ratios / sizeof *ratios)

static void plan(struct plan *p)
{
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++)
        for (unsigned part = 1; part <= 16; part *= 4) {
            struct plan_cell *cell = plan_add(p, index, "%s-1-of-%u", index, part);
            cell->keys /= part;
            cell->workloads = "load,get";
            cell->uniform = true;
            if (strcmp(index, "race") == 0)
                plan_tune(cell, "depth=12&hot=0");
        }
    for (unsigned i = 0; i < RATIOS; i++)
        plan_tune(plan_add(p, "sephash", "sephash-ratio-%u", ratios[i]), "slots=128&ratio=%u&hot=0",
                  ratios[i]);
    for (unsigned part = 1; part <= 4; part *= 4) {
        struct plan_cell *cell = plan_add(p, "chime", "chime-8-1-of-%u", part);
        cell->keys /= part;
        cell->workloads = "load,get";
        cell->key_size = cell->value_size = 8;
        cell->uniform = true;
    }
}

/* A number of the table with all keys, or a part of them. */
static double space(const struct results *r, const char *index, unsigned part, const char *member)
{
    return results_space(r, "get", member, "%s-1-of-%u", index, part);
}

static double per_key(const struct results *r, const char *index, const char *member)
{
    return space(r, index, 1, member) / space(r, index, 1, "keys");
}

/* The entries' share of the index. */
static double utilization(const struct results *r, const char *index)
{
    return 100 * ENTRY_BYTES * space(r, index, 1, "slots") / space(r, index, 1, "index_bytes");
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* From the papers, for each key: entries, and bytes of the client cache. SHARD Table 4 is after 4
 * billion keys, SepHash Table 2 after 100 million, CHIME Fig. 14 after 60 million. */
static const struct paper {
    const char *index;
    double shard_entries, shard_utilization, shard_cache_mb;
    double sephash_entries, sephash_index_gb;
} papers[] = {
    {"race", 6.44 / 4, 88.9, 108.00, 1.97, 1.66}, {"sephash", 7.82 / 4, 88.3, 326.05, 1.01, 0.85},
    {"shard", 4.83 / 4, 100, 2.36, NAN, NAN},     {"rcuckoo", NAN, NAN, NAN, NAN, NAN},
    {"chime", NAN, NAN, NAN, NAN, NAN},
};

static void show_indexes(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "index", "entries/key", "T4", "T2", "index B/key", "entries %", "T4",
                "cache bytes", "T4");
    for (unsigned i = 0; i < sizeof papers / sizeof *papers; i++) {
        const struct paper *p = &papers[i];
        sheet_row(s, "%s", plan_title(p->index));
        sheet_number(s, per_key(r, p->index, "slots"), 2);
        sheet_paper_number(s, 1, p->shard_entries, 2, "SHARD Table 4");
        sheet_paper_number(s, 1, p->sephash_entries, 2, "SepHash Table 2");
        sheet_number(s, per_key(r, p->index, "index_bytes"), 1);
        sheet_number(s, isnan(p->shard_utilization) ? NAN : utilization(r, p->index), 1);
        sheet_paper_number(s, 5, p->shard_utilization, 1, "SHARD Table 4");
        sheet_number(s, space(r, p->index, 1, "client_cache_bytes"), 0);
        if (isnan(p->shard_cache_mb))
            sheet_text(s, "-");
        else
            sheet_text(s, "%.2f MB", p->shard_cache_mb);
    }
    sheet_print(
        s, out,
        "Entries and bytes of the index, the entries' share of it, and the cache of one session "
        "(T4: SHARD Table 4, after 4 billion keys; T2: SepHash Table 2, after 100 million):");
}

static double fptable(const struct results *r, unsigned ratio, const char *member)
{
    return results_space(r, "load", member, "sephash-ratio-%u", ratio);
}

static void show_fptables(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    /* SepHash, Table 3: megabytes. */
    static const double plain[RATIOS] = {9, 18, 36, 73}, points[RATIOS] = {2.68, 5.36, 10.8, 22};
    sheet_texts(s, "MainSeg/CurSeg", "plain, bytes", "record points", "share %", "paper: plain",
                "record points", "share %");
    for (unsigned i = 0; i < RATIOS; i++) {
        double all = fptable(r, ratios[i], "fptable_plain_bytes"),
               some = fptable(r, ratios[i], "fptable_bytes");
        sheet_row(s, "%u", ratios[i]);
        sheet_number(s, all, 0);
        sheet_number(s, some, 0);
        sheet_number(s, 100 * some / all, 1);
        sheet_text(s, "%.0f MB", plain[i]);
        sheet_text(s, "%.2f MB", points[i]);
        sheet_paper_number(s, 3, 100 * points[i] / plain[i], 1, "SepHash Table 3");
    }
    sheet_print(s, out, "SepHash's FPTables (its Table 3):");
}

/* CHIME's cache for each key, with pairs of 8 and 8 bytes. */
static double chime_cache(const struct results *r, unsigned part)
{
    return space(r, "chime-8", part, "client_cache_bytes") / space(r, "chime-8", part, "keys");
}

static void show_chime(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "keys", "cache bytes", "bytes/key");
    for (unsigned part = 4; part >= 1; part /= 4) {
        sheet_begin_row(s);
        sheet_number(s, space(r, "chime-8", part, "keys"), 0);
        sheet_number(s, space(r, "chime-8", part, "client_cache_bytes"), 0);
        sheet_number(s, chime_cache(r, part), 2);
        sheet_paper(s, 2, part == 1 ? 0.46 : NAN, "CHIME Fig. 14, with 6 * 10^7 keys");
    }
    sheet_texts(s, "paper: 60000000", "27.6 MB", "0.46");
    sheet_print(s, out, "CHIME's cache of internal nodes, without the hotspot buffer (Fig. 14):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    show_indexes(r, &s, out);
    show_fptables(r, &s, out);
    show_chime(r, &s, out);
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void shard_c6(const struct results *r, struct claim_finding *f)
{
    double race = utilization(r, "race"), sephash = utilization(r, "sephash"),
           shard = utilization(r, "shard");
    claim_decide(
        f, CLAIM_ALL(claim_more(shard, race, 100 / 88.9), claim_more(race, sephash, 88.9 / 88.3)),
        "SHARD %.1f %%, RACE %.1f %%, SepHash %.1f %%", shard, race, sephash);
}

static void shard_c7(const struct results *r, struct claim_finding *f)
{
    double race = per_key(r, "race", "index_bytes"), sephash = per_key(r, "sephash", "index_bytes"),
           shard = per_key(r, "shard", "index_bytes");
    claim_decide(f, CLAIM_ALL(claim_more(race, shard, 0), claim_more(sephash, race, 0)),
                 "bytes of index for each key: SHARD %.1f, RACE %.1f, SepHash %.1f", shard, race,
                 sephash);
}

static void shard_c8(const struct results *r, struct claim_finding *f)
{
    double race = space(r, "race", 1, "client_cache_bytes"),
           sephash = space(r, "sephash", 1, "client_cache_bytes"),
           shard = space(r, "shard", 1, "client_cache_bytes");
    claim_decide(
        f, CLAIM_ALL(claim_more(race, shard, 108 / 2.36), claim_more(sephash, race, 326.05 / 108)),
        "bytes: SHARD %.0f, RACE %.0f, SepHash %.0f", shard, race, sephash);
}

/* How much the cache grows when the keys become four times as many. */
static double growth(const struct results *r, const char *index)
{
    return space(r, index, 1, "client_cache_bytes") / space(r, index, 4, "client_cache_bytes");
}

/*
 * The last part of the cache's growth from a sixteenth of the keys to all: that from a quarter on.
 * Whatever the cache has besides, it is 0.8 if the cache is linear in the keys, (1 - 1/4) / (1 -
 * 1/16), and 0.5 if it is logarithmic. 0.65 is the middle.
 */
static double late_growth(const struct results *r, const char *index)
{
    double all = space(r, index, 1, "client_cache_bytes"),
           some = space(r, index, 4, "client_cache_bytes"),
           few = space(r, index, 16, "client_cache_bytes");
    return (all - some) / (all - few);
}

static void shard_c9(const struct results *r, struct claim_finding *f)
{
    double race = late_growth(r, "race"), sephash = late_growth(r, "sephash"),
           shard = late_growth(r, "shard");
    claim_decide(f, CLAIM_ALL(0.65 - shard, race - 0.65, sephash - 0.65),
                 "SHARD %.2f, RACE %.2f, SepHash %.2f", shard, race, sephash);
}

static void sephash_c3(const struct results *r, struct claim_finding *f)
{
    double race = per_key(r, "race", "slots"), sephash = per_key(r, "sephash", "slots");
    claim_decide(f, claim_more(race, sephash, 1.97 / 1.01), "SepHash %.2f, RACE %.2f", sephash,
                 race);
}

static void sephash_c4(const struct results *r, struct claim_finding *f)
{
    double race = per_key(r, "race", "index_bytes"), sephash = per_key(r, "sephash", "index_bytes");
    claim_decide(f, claim_more(race, sephash, 1.66 / 0.85),
                 "bytes for each key: SepHash %.1f, RACE %.1f", sephash, race);
}

static void sephash_c6(const struct results *r, struct claim_finding *f)
{
    double all = space(r, "sephash", 1, "load_factor"),
           part = space(r, "sephash", 4, "load_factor");
    claim_decide(f, CLAIM_ALL(all - 0.9, part - 0.9), "%.3f with all keys, %.3f with a quarter",
                 all, part);
}

static void sephash_c7(const struct results *r, struct claim_finding *f)
{
    double share[RATIOS], worst = 0;
    for (unsigned i = 0; i < RATIOS; i++) {
        share[i] = 100 * fptable(r, ratios[i], "fptable_bytes") /
                   fptable(r, ratios[i], "fptable_plain_bytes");
        worst = isnan(worst) || share[i] <= worst ? worst : share[i];
    }
    claim_decide(f, 100.0 / 3 - worst, "%.1f, %.1f, %.1f, %.1f %%", share[0], share[1], share[2],
                 share[3]);
}

static void sephash_c8(const struct results *r, struct claim_finding *f)
{
    double margin[RATIOS - 1], growth_of[RATIOS - 1];
    for (unsigned i = 0; i + 1 < RATIOS; i++) {
        growth_of[i] =
            fptable(r, ratios[i + 1], "fptable_bytes") / fptable(r, ratios[i], "fptable_bytes");
        margin[i] = 0.3 - fabs(growth_of[i] - 2);
    }
    claim_decide(f, claim_least(RATIOS - 1, margin), "%.2f, %.2f and %.2f times as large",
                 growth_of[0], growth_of[1], growth_of[2]);
}

static void chime_c2(const struct results *r, struct claim_finding *f)
{
    double bytes = chime_cache(r, 1);
    claim_decide(f, 0.7 - bytes, "%.2f bytes for each key", bytes);
}

static void chime_c3(const struct results *r, struct claim_finding *f)
{
    double times = growth(r, "chime-8");
    claim_decide(f, 1 - fabs(times - 4), "%.2f times as large with four times the keys", times);
}

static const struct claim claims[] = {
    {"SHARD-CLAIM-6", "SHARD Table 4",
     "the entries' share of the index is larger in SHARD (100 %) than in RACE (88.9 %), and larger "
     "there than in SepHash (88.3 %)",
     shard_c6, NULL},
    {"SHARD-CLAIM-7", "SHARD Table 4",
     "SHARD takes less space (295 GB with the pairs) than RACE (314), and RACE less than SepHash "
     "(319)",
     shard_c7, NULL},
    {"SHARD-CLAIM-8", "SHARD Table 4",
     "SHARD's cache (2.36 MB) is smaller than RACE's (108 MB), and that smaller than SepHash's "
     "(326.05 MB)",
     shard_c8, NULL},
    {"SHARD-CLAIM-9", "SHARD 4.8",
     "SHARD's cache grows with the logarithm of the keys, RACE's and SepHash's grow linearly "
     "(here: of the growth from a sixteenth of the keys to all, less or more than 0.65 is from a "
     "quarter on; linear is 0.8, logarithmic 0.5)",
     shard_c9, NULL},
    {"SEPHASH-CLAIM-3", "SepHash Table 2",
     "SepHash has fewer entries per key (1.01) than RACE (1.97)", sephash_c3, NULL},
    {"SEPHASH-CLAIM-4", "SepHash Table 2",
     "SepHash's index is smaller (0.85 GB for 100 million keys) than RACE's (1.66 GB)", sephash_c4,
     NULL},
    {"SEPHASH-CLAIM-6", "SepHash 5.4.1", "more than 90 % of SepHash's entries are in use",
     sephash_c6, NULL},
    {"SEPHASH-CLAIM-7", "SepHash Table 3",
     "with record points, FPTables take at most a third of plain ones (9 and 2.68 MB at ratio 64)",
     sephash_c7, NULL},
    {"SEPHASH-CLAIM-8", "SepHash Table 3", "FPTables double when MainSegments halve", sephash_c8,
     NULL},
    {"CHIME-CLAIM-2", "CHIME Fig. 14",
     "the cache of internal nodes takes 27.6 MB for 60 million keys: 0.46 bytes for each (at most "
     "0.7 counts as that here)",
     chime_c2, NULL},
    {"CHIME-CLAIM-3", "CHIME Fig. 14", "the cache grows linearly with the keys", chime_c3, NULL},
    {"CHIME-CLAIM-4", "CHIME", "the cache is 8.7 times smaller than SMART's",
     CLAIM_NOT_MEASURED("Farside does not have SMART")},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, instead of 4 * 10^9 (SHARD), 10^8 (SepHash) and 6 * 10^7 (CHIME)",
    "the cache is that of one session; in the papers, of a compute node",
    "RACE's directory is limited to 12 bits; otherwise its room for a pool of 4 GiB would count",
    "RACE has 7 entries in a bucket, as in its own paper; SHARD's and SepHash's papers took 8",
    NULL,
};

const struct experiment experiment_space = {
    .name = "space",
    .summary = "remote space and client caches",
    .sources = "SHARD Table 4, SepHash Tables 2 and 3, CHIME Fig. 14",
    .setup = "mem:, one client; keys of 16 and values of 32 bytes (CHIME's cache: 8 and 8), put "
             "into an empty table, then read once at random",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
