/* What gets read, what tables consist of, and how far inserts reach. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"

#include <math.h>
#include <string.h>

/* RCuckoo's table of a fixed size: 16384 rows of 8 places, filled to 95 %. */
#define ROWS        "16k"
#define PLACES      131072u
#define FILL        95u
#define ROWS_APART  "5"  /* of rows that count as near each other */
#define ROWS_WITHIN "32" /* of a path that counts as short */

/* CHIME's hotspot buffer: 30 MB for 60 million keys. */
#define KEYS_OF_HOT_KIB 2000u

static void plan(struct plan *p)
{
    static const char *const hashes[] = {"race", "sephash"};
    for (unsigned i = 0; i < sizeof hashes / sizeof *hashes; i++) {
        struct plan_cell *cell = plan_add(p, hashes[i], "%s", hashes[i]);
        cell->workloads = "load,get";
        cell->uniform = true;
    }
    struct plan_cell *cell = plan_add(p, "rcuckoo", "rcuckoo");
    plan_tune(cell, "grows=0&rows=" ROWS "&f=230");
    cell->keys = PLACES / 100 * FILL;
    cell->key_size = cell->value_size = 8;
    cell = plan_add(p, "chime", "chime");
    plan_tune(cell, "hot=%u", (unsigned)plan_keys(p) / KEYS_OF_HOT_KIB);
    cell->workloads = "c";
    cell->ops = 10 * plan_keys(p);
    cell->key_size = cell->value_size = 8;
}

static double space(const struct results *r, const char *index, const char *member)
{
    return results_space(r, strcmp(index, "chime") == 0 ? "c" : "load", member, "%s", index);
}

/* READs of a get, but for that of the block. What a get writes are words that announce its epoch;
 * all its other verbs are READs. */
static double reads(const struct results *r, const char *index)
{
    return results_op(r, "get", "get", "verbs", "%s", index) -
           results_op(r, "get", "get", "bytes_written", "%s", index) / 8 - 1;
}

/* Of RACE the headers of buckets, of SepHash those of CurSegments with their filters. */
static double headers(const struct results *r, const char *index)
{
    return space(r, index, "header_bytes");
}

/* SepHash's FPTables belong to its directory, as in the paper. */
static double directory(const struct results *r, const char *index)
{
    double tables = strcmp(index, "sephash") == 0 ? space(r, index, "fptable_bytes") : 0;
    return space(r, index, "directory_bytes") + tables;
}

static double part(const struct results *r, const char *index, const char *some, const char *all)
{
    return 100 * space(r, index, some) / space(r, index, all);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void show_hashes(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    static const struct {
        const char *index, *reads, *headers, *directory;
    } rows[] = {{"race", "2.0", "188.56", "6.00"}, {"sephash", "2.05", "2.37", "2.96"}};
    sheet_texts(s, "index", "READs of a get", "paper", "headers", "MB there", "directory",
                "MB there");
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        sheet_row(s, "%s", plan_title(rows[i].index));
        sheet_number(s, reads(r, rows[i].index), 2);
        sheet_paper_text(s, 1, rows[i].reads, "SepHash Table 1");
        sheet_number(s, headers(r, rows[i].index), 0);
        sheet_text(s, "%s", rows[i].headers);
        sheet_number(s, directory(r, rows[i].index), 0);
        sheet_text(s, "%s", rows[i].directory);
    }
    sheet_print(s, out,
                "READs of a get without the block's, and bytes of metadata in the index (SepHash "
                "Tables 1 and 2, the latter after 10^8 inserts; its directory has the FPTables):");
}

static void show_paths(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "RCuckoo, f = 2.3", "%", "paper");
    sheet_row(s, "rows at most " ROWS_APART " apart");
    sheet_number(s, part(r, "rcuckoo", "keys_near", "keys"), 1);
    sheet_paper_text(s, 1, "68", "RCuckoo Fig. 4a");
    sheet_row(s, "nothing displaced");
    sheet_number(s, part(r, "rcuckoo", "paths_unmoved", "paths"), 1);
    sheet_paper_text(s, 1, "> 50", "RCuckoo Fig. 4c");
    sheet_row(s, "span at most " ROWS_WITHIN " rows");
    sheet_number(s, part(r, "rcuckoo", "paths_short", "paths"), 1);
    sheet_paper_text(s, 1, "95", "RCuckoo Fig. 4c");
    sheet_print(s, out,
                "Rows of keys, and paths of the inserts that fill " ROWS
                " rows to 95 % (RCuckoo Fig. 4a and 4c):");
}

static void show_hits(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    sheet_texts(s, "CHIME", "% hits", "read", "paper");
    sheet_row(s, "0.5 bytes a key");
    sheet_number(s, part(r, "chime", "hot_hits", "gets"), 1);
    sheet_number(s, results_op(r, "c", "get", "bytes_read", "chime"), 0);
    sheet_paper_text(s, 1, "81.0", "CHIME 5.4");
    sheet_print(s, out, "Hotspot buffer, YCSB C (CHIME 5.4):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    show_hashes(r, &s, out);
    show_paths(r, &s, out);
    show_hits(r, &s, out);
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void sephash_c1(const struct results *r, struct claim_finding *f)
{
    double race = reads(r, "race"), sephash = reads(r, "sephash");
    claim_decide(f, 2.5 - sephash, "SepHash %.2f READs besides that of the block, RACE %.2f",
                 sephash, race);
}

static void sephash_c5(const struct results *r, struct claim_finding *f)
{
    double race = headers(r, "race") + directory(r, "race"),
           sephash = headers(r, "sephash") + directory(r, "sephash");
    claim_decide(f, race - sephash,
                 "SepHash %.0f bytes of headers, %.0f of directory and FPTables; RACE %.0f and "
                 "%.0f",
                 headers(r, "sephash"), directory(r, "sephash"), headers(r, "race"),
                 directory(r, "race"));
}

static void rcuckoo_c5(const struct results *r, struct claim_finding *f)
{
    double near = part(r, "rcuckoo", "keys_near", "keys");
    claim_decide(f, 68.0 / 4 - fabs(near - 68), "%.1f %%", near);
}

static void rcuckoo_c6(const struct results *r, struct claim_finding *f)
{
    double unmoved = part(r, "rcuckoo", "paths_unmoved", "paths"),
           within = part(r, "rcuckoo", "paths_short", "paths");
    claim_decide(f, CLAIM_ALL(unmoved - 50, within - 95),
                 "%.1f %% displace nothing, %.1f %% span at most " ROWS_WITHIN " rows", unmoved,
                 within);
}

static void chime_c21(const struct results *r, struct claim_finding *f)
{
    double hits = part(r, "chime", "hot_hits", "gets");
    claim_decide(f, 81.0 / 4 - fabs(hits - 81), "%.1f %% with as many bytes for each key", hits);
}

static const struct claim claims[] = {
    {"SEPHASH-CLAIM-1", "SepHash Table 1",
     "a search reads about 2 buckets (here: 2.5 at most, without the block)", sephash_c1, NULL},
    {"SEPHASH-CLAIM-5", "SepHash Table 2",
     "SepHash's metadata in buckets and directory (5.33 MB) are smaller than RACE's (194.56 MB)",
     sephash_c5, NULL},
    {"RCUCKOO-CLAIM-5", "RCuckoo Fig. 4a",
     "with f = 2.3 the rows of 68 % of the keys are at most five apart", rcuckoo_c5, NULL},
    {"RCUCKOO-CLAIM-6", "RCuckoo Fig. 4c",
     "up to 95 % fill, more than half of the inserts displace nothing, and 95 % span at most 32 "
     "rows",
     rcuckoo_c6, NULL},
    {"CHIME-CLAIM-21", "CHIME 5.4",
     "a hotspot buffer of 30 MB for 60 million keys is hit by 81.0 % of the lookups (here: within "
     "a quarter of that)",
     chime_c21, NULL},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, instead of 10^8 (SepHash), 10^5 rows (RCuckoo) and 6 * 10^7 keys (CHIME)",
    "SepHash has no filter here, as by default; a get reads the lane of the key instead",
    "CHIME's buffer is empty at the beginning, and keeps groups of keys by their hashes",
    NULL,
};

const struct experiment experiment_anatomy = {
    .name = "anatomy",
    .summary = "what gets read, what tables consist of, how far inserts reach",
    .sources = "SepHash Tables 1 and 2, RCuckoo Fig. 4a and 4c, CHIME 5.4",
    .setup = "mem:, one client; RACE and SepHash with keys of 16 and values of 32 bytes, RCuckoo "
             "and CHIME with 8 and 8; CHIME's YCSB C is zipfian, with ten gets for each key",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
