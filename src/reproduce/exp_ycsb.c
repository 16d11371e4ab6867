/* YCSB throughput. */
#include "reproduce/experiment.h"
#include "reproduce/sheet.h"
#include "reproduce/testbed.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* SHARD and SepHash took the best of 1 to 4 operations in flight of each thread. */
#define DEPTH 4u

static const char *const shard_workloads[] = {"a", "b", "c", "d", "f"};
static const char *const sephash_workloads[] = {"a", "b", "c", "d"};
static const char *const rcuckoo_workloads[] = {"a", "b", "c"};
static const char *const deleting[] = {"race", "sephash", "shard"};
#define DELETED_KEYS 500000u
static const char *const chime_workloads[] = {"insert", "a", "b", "c", "d"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* By plan.quick: the papers' clients, some of them. */
static const struct plan_axis sephash_clients[2] = {{5, {1, 16, 32, 64, 128}}, {1, {128}}};
static const struct plan_axis rcuckoo_clients[2] = {{5, {8, 40, 80, 160, 320}}, {2, {40, 320}}};
static const struct plan_axis chime_clients[2] = {{5, {10, 80, 160, 320, 640}}, {1, {160}}};
static const struct plan_axis shard_threads[2] = {{5, {4, 8, 16, 24, 36}}, {3, {8, 16, 36}}};

/* ---- cells ----------------------------------------------------------------------------------- */

/* With --quick, what claims need, and uniform A, B and C of all indexes. */
static const struct {
    const char *index, *workloads[2]; /* by whether keys are uniform; NULL: none */
} quick[] = {
    {"race", {"b,c,d", "a,b,c,d,f,update"}},
    {"sephash", {"b,c,d", "a,b,c,d,f,update"}},
    {"shard", {"b,c,d", "a,b,c,d,f,update"}},
    {"rcuckoo", {"c", "a,b,c"}},
    {"chime", {NULL, "a,b,c"}},
};

static const char *workloads_of(const struct plan *p, const char *index, bool uniform)
{
    for (unsigned i = 0; p->quick && i < COUNT(quick); i++)
        if (strcmp(quick[i].index, index) == 0)
            return quick[i].workloads[uniform];
    return uniform ? "a,b,c,d,f,update" : "a,b,c,d,f";
}

static void plan_shard(struct plan *p, const char *index)
{
    for (unsigned uniform = 0; uniform <= 1; uniform++) {
        const char *workloads = workloads_of(p, index, uniform);
        if (!workloads)
            continue;
        struct plan_cell *cell =
            plan_add(p, index, "shard-%s-%s", uniform ? "uniform" : "zipfian", index);
        cell->workloads = workloads;
        cell->key_size = cell->value_size = 8;
        cell->uniform = uniform;
        cell->network = testbed_shard(36);
        cell->network.depth = DEPTH;
        cell->ops = cell->keys / 2;
    }
}

/* Deletes for CELL_LEAST_MS need many keys. */
static void plan_deletes(struct plan *p)
{
    for (unsigned i = 0; i < COUNT(deleting); i++) {
        struct plan_cell *cell = plan_add(p, deleting[i], "shard-delete-%s", deleting[i]);
        cell->workloads = "delete";
        cell->keys = DELETED_KEYS;
        cell->ops = DELETED_KEYS - 1;
        cell->key_size = cell->value_size = 8;
        cell->network = testbed_shard(36);
        cell->network.depth = DEPTH;
    }
}

static void plan_clients_of(struct plan *p, const char *index)
{
    const struct plan_axis *axis = &sephash_clients[p->quick];
    for (unsigned i = 0; i < axis->count; i++) {
        struct plan_cell *cell = plan_add(p, index, "clients-%u-%s", axis->value[i], index);
        cell->workloads = "a,b,c,d";
        cell->ops = cell->keys / 2;
        cell->network = testbed_sephash(axis->value[i]);
        cell->network.depth = DEPTH;
    }
}

static void plan_others(struct plan *p)
{
    const struct plan_axis *threads = &shard_threads[p->quick],
                           *rcuckoo = &rcuckoo_clients[p->quick], *chime = &chime_clients[p->quick];
    for (unsigned i = 0; i < threads->count; i++) {
        struct plan_cell *cell = plan_add(p, "shard", "threads-%u", threads->value[i]);
        cell->workloads = "get";
        cell->key_size = cell->value_size = 8;
        cell->uniform = true;
        cell->network = testbed_shard(threads->value[i]);
    }
    for (unsigned i = 0; i < rcuckoo->count; i++) {
        struct plan_cell *cell = plan_add(p, "rcuckoo", "rcuckoo-%u", rcuckoo->value[i]);
        cell->workloads = "a,b,c";
        cell->key_size = cell->value_size = 8;
        cell->network = testbed_rcuckoo(rcuckoo->value[i]);
        plan_busy(p, cell);
    }
    for (unsigned i = 0; i < chime->count; i++) {
        struct plan_cell *cell = plan_add(p, "chime", "chime-%u", chime->value[i]);
        cell->workloads = "insert,a,b,c,d";
        cell->key_size = cell->value_size = 8;
        cell->network = testbed_chime(chime->value[i]);
        plan_busy(p, cell);
    }
    struct plan_cell *scans = plan_add(p, "chime", "chime-scans");
    scans->workloads = "e";
    scans->key_size = scans->value_size = 8;
    scans->network = testbed_chime(320);
    scans->ops = scans->keys / 5;
}

static void plan(struct plan *p)
{
    const char *index = NULL;
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
        plan_shard(p, index);
        plan_clients_of(p, index);
    }
    plan_deletes(p);
    plan_others(p);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* In millions a second. */
static double shard_rate(const struct results *r, bool uniform, const char *index, const char *w)
{
    return results_rate(r, w, "shard-%s-%s", uniform ? "uniform" : "zipfian", index) / 1e6;
}

static double rate_with(const struct results *r, unsigned clients, const char *index, const char *w)
{
    return results_rate(r, w, "clients-%u-%s", clients, index) / 1e6;
}

static void show_shard(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const char *index = NULL;
    sheet_row(s, "index");
    for (int uniform = 1; uniform >= 0; uniform--)
        for (unsigned w = 0; w < COUNT(shard_workloads); w++)
            sheet_text(s, "%s %c", uniform ? "unif." : "zipf.", toupper(*shard_workloads[w]));
    for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
        sheet_row(s, "%s", plan_title(index));
        for (int uniform = 1; uniform >= 0; uniform--)
            for (unsigned w = 0; w < COUNT(shard_workloads); w++)
                sheet_number(s, shard_rate(r, uniform, index, shard_workloads[w]), 2);
    }
    sheet_print(
        s, out,
        "108 clients on 3 machines, uniform and zipfian keys, millions of operations a second "
        "(SHARD Fig. 12; its text: SHARD reaches 14.5 with uniform keys):");
}

static void show_clients(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const struct plan_axis *axis = &sephash_clients[r->plan->quick];
    const char *index = NULL;
    s->left = 2;
    s->across = s->scaling = true;
    sheet_texts(s, "YCSB", "index");
    for (unsigned c = 0; c < axis->count; c++)
        sheet_text(s, "%u clients", axis->value[c]);
    for (unsigned w = 0; w < COUNT(sephash_workloads); w++)
        for (unsigned i = 0; (index = plan_index(i)) != NULL; i++) {
            sheet_row(s, "%c", i == 0 ? toupper(*sephash_workloads[w]) : ' ');
            sheet_text(s, "%s", plan_title(index));
            for (unsigned c = 0; c < axis->count; c++)
                sheet_number(s, rate_with(r, axis->value[c], index, sephash_workloads[w]), 2);
        }
    sheet_print(
        s, out,
        "Over clients, one memory node, zipfian keys, millions of operations a second (SepHash "
        "Fig. 17; its text has no numbers):");
}

static void show_rcuckoo(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const struct plan_axis *axis = &rcuckoo_clients[r->plan->quick];
    s->across = s->scaling = true;
    sheet_row(s, "YCSB");
    for (unsigned c = 0; c < axis->count; c++)
        sheet_text(s, "%u clients", axis->value[c]);
    for (unsigned w = 0; w < COUNT(rcuckoo_workloads); w++) {
        sheet_row(s, "%c", toupper(*rcuckoo_workloads[w]));
        for (unsigned c = 0; c < axis->count; c++)
            sheet_number(
                s, results_rate(r, rcuckoo_workloads[w], "rcuckoo-%u", axis->value[c]) / 1e6, 2);
    }
    sheet_print(
        s, out,
        "RCuckoo with inline pairs, millions of operations a second (its Fig. 6; the text has "
        "no numbers):");
}

static void show_chime(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const struct plan_axis *axis = &chime_clients[r->plan->quick];
    s->across = s->scaling = true;
    sheet_row(s, "YCSB");
    for (unsigned c = 0; c < axis->count; c++)
        sheet_text(s, "%u clients", axis->value[c]);
    for (unsigned w = 0; w < COUNT(chime_workloads); w++) {
        sheet_row(s, "%s", chime_workloads[w]);
        for (unsigned c = 0; c < axis->count; c++)
            sheet_number(s, results_rate(r, chime_workloads[w], "chime-%u", axis->value[c]) / 1e6,
                         2);
    }
    sheet_row(s, "e (320 clients)");
    sheet_number(s, results_rate(r, "e", "chime-scans") / 1e6, 2);
    sheet_print(
        s, out,
        "CHIME with inline pairs, millions of operations a second (its Fig. 12; the text has "
        "ratios to other indexes only):");
}

static void show_threads(const struct results *r, struct sheet *s, struct sheet_sink *out)
{
    const struct plan_axis *axis = &shard_threads[r->plan->quick];
    s->across = s->scaling = true;
    sheet_axis(s, "threads of a machine", axis);
    sheet_row(s, "SHARD, get");
    for (unsigned i = 0; i < axis->count; i++)
        sheet_number(s, results_rate(r, "get", "threads-%u", axis->value[i]) / 1e6, 2);
    sheet_print(s, out,
                "Millions of gets a second, one in flight of each thread (SHARD Fig. 13a):");
}

static void show(const struct results *r, struct sheet_sink *out)
{
    struct sheet s;
    sheet_init(&s);
    show_shard(r, &s, out);
    show_threads(r, &s, out);
    show_clients(r, &s, out);
    show_rcuckoo(r, &s, out);
    show_chime(r, &s, out);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* The geometric mean of SHARD's throughput over the other's, of some workloads. */
static double shard_gain(const struct results *r, bool uniform, const char *other,
                         const char *const *workloads, unsigned count)
{
    double sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += log(shard_rate(r, uniform, "shard", workloads[i]) /
                   shard_rate(r, uniform, other, workloads[i]));
    return exp(sum / count);
}

static void shard_c10(const struct results *r, struct claim_finding *f)
{
    double race = shard_gain(r, true, "race", shard_workloads, COUNT(shard_workloads)),
           sephash = shard_gain(r, true, "sephash", shard_workloads, COUNT(shard_workloads));
    claim_decide(f, CLAIM_ALL(claim_more(race, 1, 1.6), claim_more(sephash, 1, 1.9)),
                 "%.2f times RACE and %.2f times SepHash, as the mean of A, B, C, D, F", race,
                 sephash);
}

static void shard_c11(const struct results *r, struct claim_finding *f)
{
    static const char *const reads[] = {"b", "c", "d"};
    double race = shard_gain(r, false, "race", reads, COUNT(reads)),
           sephash = shard_gain(r, false, "sephash", reads, COUNT(reads));
    claim_decide(f, CLAIM_ALL(claim_more(race, 1, 1.8), claim_more(sephash, 1, 1.9)),
                 "%.2f times RACE and %.2f times SepHash, as the mean of B, C, D", race, sephash);
}

/* One index over another, in two workloads. */
static void decide_weaker(const struct results *r, struct claim_finding *f, const char *index,
                          const char *other, const char *weak, const char *strong)
{
    double in_weak = shard_rate(r, true, index, weak) / shard_rate(r, true, other, weak),
           in_strong = shard_rate(r, true, index, strong) / shard_rate(r, true, other, strong);
    claim_decide(f, claim_more(in_strong, in_weak, 0), "%s has %.2f of %s in %s, %.2f in %s",
                 plan_title(index), in_weak, plan_title(other), weak, in_strong, strong);
}

static void shard_c12(const struct results *r, struct claim_finding *f)
{
    decide_weaker(r, f, "sephash", "race", "a", "c");
}

static void shard_c13(const struct results *r, struct claim_finding *f)
{
    decide_weaker(r, f, "race", "shard", "d", "c");
}

static void shard_c14(const struct results *r, struct claim_finding *f)
{
    double race = shard_rate(r, true, "race", "c"), sephash = shard_rate(r, true, "sephash", "c");
    claim_decide(f, claim_more(race, sephash, 0), "RACE %.2f, SepHash %.2f", race, sephash);
}

static void shard_c15(const struct results *r, struct claim_finding *f)
{
    double few = results_rate(r, "get", "threads-8") / 1e6,
           some = results_rate(r, "get", "threads-16") / 1e6,
           many = results_rate(r, "get", "threads-36") / 1e6;
    claim_decide(f, CLAIM_ALL(some - 1.2 * few, 1.2 * some - many),
                 "%.2f at 8 threads, %.2f at 16, %.2f at 36", few, some, many);
}

static void shard_c16(const struct results *r, struct claim_finding *f)
{
    double update[2], delete[2];
    static const char *const others[2] = {"race", "sephash"};
    for (unsigned i = 0; i < 2; i++) {
        update[i] =
            shard_rate(r, true, "shard", "update") / shard_rate(r, true, others[i], "update");
        delete[i] = results_rate(r, "delete", "shard-delete-shard") /
                    results_rate(r, "delete", "shard-delete-%s", others[i]);
    }
    claim_decide(f,
                 CLAIM_ALL(claim_more(update[0], 1, 0), claim_more(update[1], 1, 0),
                           claim_more(delete[0], 1, 0), claim_more(delete[1], 1, 0)),
                 "updates: %.2f times RACE, %.2f times SepHash; deletes: %.2f and %.2f", update[0],
                 update[1], delete[0], delete[1]);
}

static void sephash_c9(const struct results *r, struct claim_finding *f)
{
    double share[COUNT(sephash_workloads)], margin[COUNT(sephash_workloads)];
    for (unsigned w = 0; w < COUNT(sephash_workloads); w++) {
        share[w] = rate_with(r, 128, "sephash", sephash_workloads[w]) /
                   rate_with(r, 128, "race", sephash_workloads[w]);
        margin[w] = 0.25 - fabs(share[w] - 1);
    }
    claim_decide(f, claim_least(COUNT(sephash_workloads), margin),
                 "with 128 clients, of RACE: A %.2f, B %.2f, C %.2f, D %.2f", share[0], share[1],
                 share[2], share[3]);
}

static void sephash_c10(const struct results *r, struct claim_finding *f)
{
    double splits = results_space(r, "a", "splits", "clients-128-race");
    claim_decide(f, 0.5 - splits, "%.0f splits", splits);
}

static void sephash_c12(const struct results *r, struct claim_finding *f)
{
    double sephash = shard_rate(r, true, "sephash", "c"), race = shard_rate(r, true, "race", "c");
    claim_decide(f, 0.25 - fabs(sephash / race - 1), "SepHash %.2f, RACE %.2f", sephash, race);
}

static void rcuckoo_c9(const struct results *r, struct claim_finding *f)
{
    double uniform = shard_rate(r, true, "rcuckoo", "c"),
           zipfian = shard_rate(r, false, "rcuckoo", "c");
    claim_decide(f, 0.1 - fabs(zipfian / uniform - 1), "%.2f uniform, %.2f zipfian", uniform,
                 zipfian);
}

static double rcuckoo_rate(const struct results *r, unsigned clients, const char *w)
{
    return results_rate(r, w, "rcuckoo-%u", clients) / 1e6;
}

static void rcuckoo_c7(const struct results *r, struct claim_finding *f)
{
    double a = rcuckoo_rate(r, 320, "a"), b = rcuckoo_rate(r, 320, "b"),
           c = rcuckoo_rate(r, 320, "c");
    claim_decide(f, claim_rising(3, (double[]){a, b, c}, 0),
                 "with 320 clients: A %.2f, B %.2f, C %.2f", a, b, c);
}

static void rcuckoo_c8(const struct results *r, struct claim_finding *f)
{
    const struct plan_axis *axis = &rcuckoo_clients[r->plan->quick];
    double rates[PLAN_AXIS_MAX];
    for (unsigned i = 0; i < axis->count; i++)
        rates[i] = rcuckoo_rate(r, axis->value[i], "a");
    claim_decide(f, claim_rising(axis->count, rates, 0), "A: %.2f with %u clients, %.2f with %u",
                 rates[0], axis->value[0], rates[axis->count - 1], axis->value[axis->count - 1]);
}

/* The most clients that were measured. */
static unsigned most_chime(const struct results *r)
{
    const struct plan_axis *axis = &chime_clients[r->plan->quick];
    return axis->value[axis->count - 1];
}

static void chime_c11(const struct results *r, struct claim_finding *f)
{
    double load = results_op(r, "insert", "insert", "p99_us", "chime-%u", most_chime(r)),
           insert = results_op(r, "d", "insert", "p99_us", "chime-%u", most_chime(r));
    claim_decide(f, claim_more(load, insert, 0),
                 "99 %% of the inserts within %.1f us of inserts only, %.1f us in D", load, insert);
}

static void chime_c12(const struct results *r, struct claim_finding *f)
{
    double a = results_rate(r, "a", "chime-%u", most_chime(r)) / 1e6,
           b = results_rate(r, "b", "chime-%u", most_chime(r)) / 1e6,
           c = results_rate(r, "c", "chime-%u", most_chime(r)) / 1e6;
    claim_decide(f, claim_rising(3, (double[]){a, b, c}, 0), "A %.2f, B %.2f, C %.2f", a, b, c);
}

#define READS_KEY                                                                                  \
    "Farside's SHARD reads the block and compares the whole key, one round trip more than in the " \
    "paper"

static bool reads_key(const struct results *r, char *numbers, size_t room)
{
    double get = results_op(r, "c", "get", "rtts", "shard-uniform-shard");
    snprintf(numbers, room, "a get takes %.2f round trips", get);
    return get > 1.9;
}

static bool search_costs_more(const struct results *r, char *numbers, size_t room)
{
    double verbs[2], bytes[2];
    for (unsigned i = 0; i < 2; i++) {
        const char *index = i == 0 ? "sephash" : "race";
        verbs[i] = results_op(r, "c", "get", "verbs", "shard-uniform-%s", index);
        bytes[i] = results_op(r, "c", "get", "bytes_read", "shard-uniform-%s", index);
    }
    snprintf(numbers, room, "%.0f bytes and %.2f verbs, RACE %.0f bytes and %.2f", bytes[0],
             verbs[0], bytes[1], verbs[1]);
    return bytes[0] > 1.5 * bytes[1] && verbs[0] > 1.1 * verbs[1];
}

static const struct claim claims[] = {
    {"SHARD-CLAIM-10", "SHARD 4.2",
     "uniform keys: SHARD has 1.6 times the throughput of RACE, 1.9 times "
     "that of SepHash",
     shard_c10, CLAIM_REASON(READS_KEY, reads_key)},
    {"SHARD-CLAIM-11", "SHARD 4.2",
     "zipfian keys, mostly reads: SHARD has 1.8 times the throughput of RACE, 1.9 times that of "
     "SepHash",
     shard_c11, CLAIM_REASON(READS_KEY, reads_key)},
    {"SHARD-CLAIM-12", "SHARD 4.2",
     "SepHash is weak with many updates (A), because they are appended and cause merges", shard_c12,
     NULL},
    {"SHARD-CLAIM-13", "SHARD 4.2", "RACE is weak in D, because its inserts take more round trips",
     shard_c13, NULL},
    {"SHARD-CLAIM-14", "SHARD 4.3", "RACE searches faster than SepHash", shard_c14, NULL},
    {"SHARD-CLAIM-15", "SHARD 4.3",
     "searches stop to become more at about 16 threads of a machine, where the NIC is saturated",
     shard_c15, NULL},
    {"SHARD-CLAIM-16", "SHARD 4.3", "SHARD updates and deletes faster than RACE and SepHash",
     shard_c16, CLAIM_REASON(READS_KEY, reads_key)},
    {"SEPHASH-CLAIM-9", "SepHash 5.3",
     "SepHash's throughput is close to RACE's in A, B, C and D (here: within a quarter)",
     sephash_c9, NULL},
    {"SEPHASH-CLAIM-10", "SepHash 5.3", "YCSB A causes no split of RACE", sephash_c10, NULL},
    {"SEPHASH-CLAIM-12", "SepHash 5.2.2",
     "uniform searches are about as fast as RACE's (here: within a quarter)", sephash_c12,
     CLAIM_REASON("A search reads more here, with more verbs", search_costs_more)},
    {"RCUCKOO-CLAIM-9", "RCuckoo 5.3",
     "reads are as fast with any distribution of keys (here: within a tenth)", rcuckoo_c9, NULL},
    {"RCUCKOO-CLAIM-7", "RCuckoo 5.3", "the throughput falls with the share of updates: C, B, A",
     rcuckoo_c7, NULL},
    {"RCUCKOO-CLAIM-8", "RCuckoo 5.3", "A scales up to 320 clients", rcuckoo_c8, NULL},
    {"CHIME-CLAIM-11", "CHIME 5.2",
     "inserts have a longer tail in LOAD, with its many splits, than in D", chime_c11, NULL},
    {"CHIME-CLAIM-12", "inferred from CHIME Table 1",
     "updates cost more round trips than searches, so A is slower than B, and B than C", chime_c12,
     NULL},
    {"RCUCKOO-CLAIM-10", "RCuckoo", "RCuckoo and FUSEE are similar in A",
     CLAIM_NOT_MEASURED("Farside does not have FUSEE")},
    {.name = NULL},
};

static const char *const differs[] = {
    "10^6 keys or fewer, instead of about 10^9 (SHARD), 10^8 (SepHash), 9 * 10^7 (RCuckoo) and 6 * "
    "10^7 (CHIME)",
    "a thread of SHARD's and SepHash's testbeds has 4 operations in flight; the papers took the "
    "best "
    "of 1 to 4. RCuckoo's and CHIME's clients have one",
    "B has 5 % updates everywhere; SHARD's paper took 10 %",
    "every client has a cache of its own, which is empty when a workload begins; CHIME's clients "
    "of a machine share one. Farside's combine changes of the same key, and no reads",
    "CHIME's LOAD is inserts into a table with 10^6 keys or fewer, which is not empty",
    "RCuckoo's keys and values have 8 bytes; the paper's have 4",
    NULL,
};

const struct experiment experiment_ycsb = {
    .name = "ycsb",
    .summary = "YCSB throughput",
    .sources = "SHARD Fig. 12 and 13a, SepHash Fig. 17, RCuckoo Fig. 6, CHIME Fig. 12",
    .setup = "the model, each paper's machines, NIC and clients; keys and values of 8 bytes, "
             "SepHash's of 16 and 32",
    .differs = differs,
    .plan = plan,
    .show = show,
    .claims = claims,
};
