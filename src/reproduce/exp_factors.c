/* What the techniques of the indexes contribute. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <string.h>

/* A table with some of an index's techniques switched off. */
struct variant {
    const char *name, *title, *tuning;
};

static const struct variant shard[] = {
    {"shard", "SHARD", "hot=0"},
    {"shard-sync-1", "reports after each change", "sync=1&hot=0"},
    {"shard-sync-10000", "after 10000 changes", "sync=10000&hot=0"},
};

/* The paper's structure: no lanes, but a filter. */
#define SEPHASH_PAPER "slots=128&ratio=64&lane=512&hot=0"
static const struct variant sephash[] = {
    {"sephash", "SepHash", SEPHASH_PAPER "&filter=1"},
    {"sephash-no-filter", "without the filter", SEPHASH_PAPER "&filter=0"},
    {"sephash-plain", "with plain FPTables", SEPHASH_PAPER "&filter=1&points=0"},
    {"sephash-whole", "without FPTables", SEPHASH_PAPER "&filter=1&points=2"},
};

/* In the paper's order, each with one technique more. */
static const struct variant chime[] = {
    {"chime-whole", "whole leaves (Sherman)", "whole=1&vacancy=0&meta=1&hot=0"},
    {"chime-hopscotch", "+ hopscotch leaves", "vacancy=0&meta=1&hot=0"},
    {"chime-vacancy", "+ vacancy bitmap", "meta=1&hot=0"},
    {"chime-metadata", "+ leaf metadata", "hot=0"},
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* KiB of CHIME's hotspot buffer, for each 2000 keys: the paper has 30 MB for 60 million. */
#define KEYS_OF_HOT_KIB 2000u

static struct plan_cell *add(struct plan *p, const char *index, const struct variant *v)
{
    struct plan_cell *cell = plan_add(p, index, "%s", v->name);
    plan_tune(cell, "%s", v->tuning);
    return cell;
}

static void plan_chime(struct plan *p)
{
    static const unsigned clients[] = {320, 640};
    for (unsigned i = 0; i < COUNT(chime); i++) {
        struct plan_cell *cell = add(p, "chime", &chime[i]);
        cell->workloads = "insert,c";
        cell->key_size = cell->value_size = 8;
        cell->network = testbed_chime(320);
        cell->ops = cell->keys / 2;
    }
    for (unsigned i = 0; i < COUNT(clients); i++)
        for (unsigned hot = 0; hot <= 1; hot++) {
            struct plan_cell *cell =
                plan_add(p, "chime", "chime-%s-%u", hot ? "hot" : "cold", clients[i]);
            plan_tune(cell, "hot=%u", hot * (unsigned)plan_keys(p) / KEYS_OF_HOT_KIB);
            cell->workloads = "c";
            cell->key_size = cell->value_size = 8;
            cell->network = testbed_chime(clients[i]);
            plan_busy(p, cell);
        }
}

static void plan(struct plan *p)
{
    for (unsigned i = 0; i < COUNT(shard); i++) {
        struct plan_cell *cell = add(p, "shard", &shard[i]);
        cell->workloads = "insert,get";
        cell->key_size = cell->value_size = 8;
        cell->uniform = true;
        cell->network = testbed_shard(36);
    }
    for (unsigned i = 0; i < COUNT(sephash); i++) {
        struct plan_cell *cell = add(p, "sephash", &sephash[i]);
        cell->workloads = "insert,get";
        cell->uniform = true;
        cell->network = testbed_sephash(128);
    }
    struct plan_cell *race = plan_add(p, "race", "race");
    race->workloads = "insert,get";
    race->uniform = true;
    race->network = testbed_sephash(128);
    plan_chime(p);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static double rate(const struct results *r, const char *workload, const char *cell)
{
    return results_rate(r, workload, "%s", cell) / 1e6;
}

static double cost(const struct results *r, const char *workload, const char *member,
                   const char *cell)
{
    return results_op(r, workload, strcmp(workload, "insert") == 0 ? "insert" : "get", member, "%s",
                      cell);
}

/* Rows for variants: throughput, round trips and bytes of inserts and gets. */
static void show_variants(const struct results *r, struct sheet_sink *out, const char *title,
                          const struct variant *variants, unsigned count, const char *get)
{
    struct sheet s;
    sheet_init(&s);
    sheet_row(&s, "variant");
    for (unsigned gets = 0; gets <= 1; gets++) {
        sheet_text(&s, gets ? "M gets/s" : "M inserts/s");
        sheet_text(&s, "rtts");
        sheet_text(&s, "verbs");
        sheet_text(&s, "read");
    }
    for (unsigned i = 0; i < count; i++) {
        const char *cell = variants[i].name;
        sheet_row(&s, "%s", variants[i].title);
        for (unsigned gets = 0; gets <= 1; gets++) {
            const char *workload = gets ? get : "insert";
            sheet_number(&s, rate(r, workload, cell), 2);
            sheet_number(&s, cost(r, workload, "rtts", cell), 2);
            sheet_number(&s, cost(r, workload, "verbs", cell), 2);
            sheet_number(&s, cost(r, workload, "bytes_read", cell), 0);
        }
    }
    sheet_print(&s, out, title);
}

static void show_hot(const struct results *r, struct sheet_sink *out)
{
    static const char *const cells[] = {"chime-cold-320", "chime-hot-320", "chime-cold-640",
                                        "chime-hot-640"};
    struct sheet s;
    sheet_init(&s);
    sheet_texts(&s, "clients, hotspot buffer", "M gets/s", "read");
    for (unsigned i = 0; i < COUNT(cells); i++) {
        sheet_row(&s, "%s, %s", i < 2 ? "320" : "640", i % 2 == 0 ? "none" : "0.5 bytes a key");
        sheet_number(&s, rate(r, "c", cells[i]), 2);
        sheet_number(&s, cost(r, "c", "bytes_read", cells[i]), 0);
    }
    sheet_print(&s, out,
                "CHIME's speculative reads (CHIME Fig. 17; its text: up to 1.2 times beyond "
                "500 clients):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    static const struct variant race[] = {{"race", "RACE", ""}};
    show_variants(r, out, "SHARD, 108 clients (SHARD Fig. 17):", shard, COUNT(shard), "get");
    show_variants(r, out, "SepHash, 128 clients (SepHash Fig. 19):", sephash, COUNT(sephash),
                  "get");
    show_variants(r, out, "RACE on the same machines, to compare with:", race, COUNT(race), "get");
    show_variants(
        r, out,
        "CHIME, 320 clients, YCSB LOAD and C (CHIME Fig. 15; its text: hopscotch leaves 2.3 "
        "times in C, the vacancy bitmap 1.6 in LOAD, leaf metadata 1.6 in C):",
        chime, COUNT(chime), "c");
    show_hot(r, out);
}

/* ---- claims ---------------------------------------------------------------------------------- */

#define NO_SWITCH(function, text)                                                                  \
    static void function(const struct results *r, struct claim_finding *f)                         \
    {                                                                                              \
        (void)r;                                                                                   \
        claim_open(f, text);                                                                       \
    }
NO_SWITCH(shard_c22, "there is no switch: an index with locks would be another index")
NO_SWITCH(shard_c23, "there is no switch: tables are always resized bucket by bucket")
NO_SWITCH(sephash_c25, "there is no switch: entries always have their depth bits")
NO_SWITCH(chime_c22, "metadata are not replicated here; a leaf's range is in its checksums")

static void shard_c24(const struct results *r, struct claim_finding *f)
{
    double gain = rate(r, "insert", "shard") / rate(r, "insert", "shard-sync-1");
    claim_decide(f, claim_more(gain, 1, 4.1), "%.2f times", gain);
}

static void sephash_c26(const struct results *r, struct claim_finding *f)
{
    double gain = rate(r, "insert", "sephash") / rate(r, "insert", "race");
    claim_decide(f, claim_more(gain, 1, 3.3), "%.2f times", gain);
}

static void sephash_c27(const struct results *r, struct claim_finding *f)
{
    double gain = rate(r, "get", "sephash") / rate(r, "get", "sephash-whole"),
           with = cost(r, "get", "bytes_read", "sephash"),
           without = cost(r, "get", "bytes_read", "sephash-whole");
    claim_decide(f, gain - 0.75 * 22,
                 "%.1f times, reading %.0f instead of %.0f bytes (here: 16.5 times at least)", gain,
                 with, without);
}

static void sephash_c28(const struct results *r, struct claim_finding *f)
{
    double gain = rate(r, "get", "sephash") / rate(r, "get", "sephash-no-filter"),
           with = cost(r, "get", "bytes_read", "sephash"),
           without = cost(r, "get", "bytes_read", "sephash-no-filter");
    claim_decide(f, CLAIM_ALL(claim_more(gain, 1, 2), without - with),
                 "gets are %.2f times as fast, and read %.0f instead of %.0f bytes", gain, with,
                 without);
}

static void chime_c17(const struct results *r, struct claim_finding *f)
{
    double gets = rate(r, "c", "chime-hopscotch") / rate(r, "c", "chime-whole"),
           inserts = rate(r, "insert", "chime-hopscotch") / rate(r, "insert", "chime-whole");
    claim_decide(f, CLAIM_ALL(claim_more(gets, 1, 2.3), 1 + CLAIM_TIE - inserts),
                 "%.2f times in C, %.2f times in LOAD", gets, inserts);
}

static void chime_c18(const struct results *r, struct claim_finding *f)
{
    double gain = rate(r, "insert", "chime-vacancy") / rate(r, "insert", "chime-hopscotch");
    claim_decide(f, claim_more(gain, 1, 1.6), "%.2f times", gain);
}

static void chime_c19(const struct results *r, struct claim_finding *f)
{
    double gain = rate(r, "c", "chime-metadata") / rate(r, "c", "chime-vacancy"),
           verbs = cost(r, "c", "verbs", "chime-vacancy") - cost(r, "c", "verbs", "chime-metadata");
    claim_decide(f, CLAIM_ALL(claim_more(gain, 1, 1.6), verbs),
                 "%.2f verbs less for each get, %.2f times in C", verbs, gain);
}

static void chime_c20(const struct results *r, struct claim_finding *f)
{
    double some = rate(r, "c", "chime-hot-320") / rate(r, "c", "chime-cold-320"),
           many = rate(r, "c", "chime-hot-640") / rate(r, "c", "chime-cold-640");
    claim_decide(f, CLAIM_ALL(1 + CLAIM_TIE - some, claim_more(many, 1, 1.2)),
                 "%.2f times with 320, %.2f with 640 clients", some, many);
}

static bool reports_cost_verbs(const struct results *r, char *numbers, size_t room)
{
    double trips = cost(r, "insert", "rtts", "shard-sync-1") - cost(r, "insert", "rtts", "shard"),
           verbs = cost(r, "insert", "verbs", "shard-sync-1") - cost(r, "insert", "verbs", "shard");
    snprintf(numbers, room, "with a report each, %+.2f round trips and %+.2f verbs", trips, verbs);
    return trips < 0.1 && verbs > 1;
}

static bool whole_leaf_saves_a_trip(const struct results *r, char *numbers, size_t room)
{
    double with = cost(r, "insert", "rtts", "chime-vacancy"),
           without = cost(r, "insert", "rtts", "chime-hopscotch");
    snprintf(numbers, room, "%.2f round trips with it, %.2f without", with, without);
    return with > without + 0.1;
}

static const struct claim claims[] = {
    {"SHARD-CLAIM-22", "SHARD 4.6",
     "Ordered-CAS saves 1 to 2 round trips of a read, 1.4 times in reads", shard_c22, NULL},
    {"SHARD-CLAIM-23", "SHARD 4.6", "lazy resizing gives 1.5 times in inserts", shard_c23, NULL},
    {"SHARD-CLAIM-24", "SHARD 4.6",
     "adapting the frequency of reports gives 4.1 times in inserts, against a report with each",
     shard_c24,
     CLAIM_REASON(
         "A report travels with other verbs of the insert: it costs verbs, but no round trip",
         reports_cost_verbs)},
    {"SEPHASH-CLAIM-25", "SepHash 5.5.1",
     "depth bits in the entries double the throughput of inserts", sephash_c25, NULL},
    {"SEPHASH-CLAIM-26", "SepHash 5.5.1",
     "with all techniques, SepHash inserts 3.3 times as fast as RACE with 128 clients", sephash_c26,
     NULL},
    {"SEPHASH-CLAIM-27", "SepHash 5.5.2", "FPTables make searches 22 times as fast", sephash_c27,
     NULL},
    {"SEPHASH-CLAIM-28", "SepHash 5.5.2",
     "the filter keeps most searches from reading the CurSegment, and makes them twice as fast",
     sephash_c28, NULL},
    {"CHIME-CLAIM-17", "CHIME 5.3",
     "to read a neighbourhood instead of a leaf gives 2.3 times in C, and nothing in LOAD",
     chime_c17, NULL},
    {"CHIME-CLAIM-18", "CHIME 5.3", "the vacancy bitmap gives 1.6 times in LOAD", chime_c18,
     CLAIM_REASON(
         "Without the bitmap an insert reads the whole leaf at once, and saves a round trip",
         whole_leaf_saves_a_trip)},
    {"CHIME-CLAIM-19", "CHIME 5.3",
     "leaf metadata at hand save a remote access for each operation, 1.6 times in C", chime_c19,
     NULL},
    {"CHIME-CLAIM-20", "CHIME 5.3",
     "speculative reads give nothing with 320 clients, up to 1.2 times in C beyond 500", chime_c20,
     NULL},
    {"CHIME-CLAIM-22", "CHIME Fig. 16",
     "sibling-based validation makes leaf metadata 1.4 to 8.6 times smaller", chime_c22, NULL},
    {"SEPHASH-CLAIM-24", "SepHash",
     "without two of its techniques, SepHash still inserts 1.6 times as fast as RACE",
     CLAIM_NOT_MEASURED("There are no switches for them")},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, instead of about 10^9 (SHARD), 10^8 (SepHash) and 6 * 10^7 (CHIME)",
    "techniques without a switch cannot be taken away: what is left out says so below",
    "CHIME: without its metadata technique, a get reads the sibling pointer besides, in the same "
    "round trip; in the paper that is a READ of its own",
    "CHIME: each client has a hotspot buffer of its own, of 0.5 bytes for each key",
    NULL,
};

const struct experiment experiment_factors = {
    .name = "factors",
    .summary = "what the techniques of the indexes contribute",
    .sources = "SHARD Fig. 17, SepHash Fig. 19, CHIME Fig. 15 and 17",
    .setup = "the model, with each paper's machines, NIC and clients; tables with a tuning that "
             "switches techniques off",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
