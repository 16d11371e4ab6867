/* Ks behind the stem of a leaf (CHIME-C14): keys that begin alike, keys that leave the stem, and
 * leaves with different stems. */
#include "support/chime_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

/* ---- what scans cost ------------------------------------------------------------------------- */

#define LOADED (20000u / SLOWER)
#define SCANS  200u
#define WANTED 10u

/* "user" and 12 digits; or 16 digits that are spread over all there can be; or 10 fields of each
 * row, whose first 8 bytes tell the rows apart. In ascending order, or in none. */
struct load {
    bool spread, rows, ascending;
};

static struct slice user_key(const struct load *l, uint64_t number, char text[40])
{
    unsigned long long bits = number * 0x9e3779b97f4a7c15u, n = number;
    if (l->rows)
        snprintf(text, 40, "%07llu/field%03llu", n / 10, n % 10);
    else
        snprintf(text, 40, l->spread ? "%016llx" : "user%012llu", l->spread ? bits : n);
    return (struct slice){text, 16};
}

static unsigned verbs_of_a_scan(struct store_rig *r, const struct load *l, uint64_t number)
{
    static char buf[4096];
    char text[40];
    size_t len = 0, pos = 0;
    bool more = false;
    struct far_entry e;
    struct slice from = user_key(l, number, text);
    struct far_range range = {.from = from.data, .from_len = from.len, .limit = WANTED};
    expect_ok(far_scan(r->session, r->table, &range, buf, sizeof buf, &len, &more));
    unsigned verbs = (unsigned)r->session->op.cost.verbs;
    for (uint64_t i = 0; i < WANTED && !l->spread; i++) {
        assert_true(far_entry_next(buf, len, &pos, &e));
        from = user_key(l, number + i, text);
        assert_memory_equal(e.key, from.data, from.len);
    }
    return verbs;
}

/* The average of scans. All internal nodes are cached. */
static double verbs_of_scans(const struct load *l)
{
    struct store_rig r;
    unsigned verbs = 0;
    char text[40], value[32] = {0};
    store_rig_open(&r, "mem:?size=32m", NULL, NULL,
                   &(struct far_table_options){.tuning = "hot=0", .hash_seed = 1});
    for (uint64_t i = 0; i < LOADED; i++) {
        struct slice key = user_key(l, l->ascending ? i : i * 7919 % LOADED, text);
        expect_ok(far_put(r.session, r.table, key.data, key.len, value, sizeof value));
    }
    for (unsigned i = 0; i < 2 * SCANS; i++) {
        unsigned scan = verbs_of_a_scan(&r, l, 200 + i % SCANS * (LOADED - 400ull) / SCANS);
        verbs += i < SCANS ? 0 : scan;
    }
    expect_ok(far_table_check(r.session, r.table, NULL, NULL));
    store_rig_close(&r);
    return (double)verbs / SCANS;
}

static void scans_of_keys_that_begin_alike_take_the_verbs_of_others(void **state)
{
    double spread = verbs_of_scans(&(struct load){.spread = true});
    double random = verbs_of_scans(&(struct load){.ascending = false});
    double ascending = verbs_of_scans(&(struct load){.ascending = true});
    (void)state;
    printf("    verbs of a scan: spread %.2f, alike %.2f, in ascending order %.2f\n", spread,
           random, ascending);
    assert_true(random <= 1.05 * spread && ascending <= 1.05 * spread);
}

/* A new leaf that gets only the key of one field will have many rows. */
static void scans_of_rows_that_were_loaded_in_order_take_the_verbs_of_others(void **state)
{
    double random = verbs_of_scans(&(struct load){.rows = true});
    double ascending = verbs_of_scans(&(struct load){.rows = true, .ascending = true});
    (void)state;
    printf("    verbs of a scan of rows: %.2f, in ascending order %.2f\n", random, ascending);
    assert_true(ascending <= 1.05 * random);
}

/* ---- against a model ------------------------------------------------------------------------- */

#define KEYS 240u

static uint64_t model[KEYS]; /* 0: the key is not there */
static struct slice name[KEYS];
static char text_of[KEYS][32];
static bool short_values; /* of 8 bytes: pairs of keys of 8 bytes are inline */

/* Groups of keys that share much, and within a group some that share more; some have 8 bytes, some
 * are a beginning of others, and end with NULs. */
static int by_bytes(const void *a, const void *b)
{
    return index_key_compare(*(const struct slice *)a, *(const struct slice *)b);
}

static void name_keys(void)
{
    static const char *const group[] = {"together", "togetheraaaaaaaa", "togetheraaaabbbb", "zz"};
    for (unsigned n = 0; n < KEYS; n++) {
        char *text = text_of[n];
        memset(text, 0, 32);
        size_t len = (size_t)snprintf(text, 32, "%s%03u", group[n % 4], n / 4 * 37 % 997);
        if (n % 16 == 3)
            len = n % 32 == 3 ? (size_t)snprintf(text, 32, "zz%06u", n) /* 8 bytes */
                              : (size_t)snprintf(text, 32, "togethe%c", 's' + n / 32);
        if (n % 16 == 4)
            len += 1 + n / 64; /* NULs */
        name[n] = (struct slice){text, len};
    }
    qsort(name, KEYS, sizeof *name, by_bytes);
}

static void change_key(struct actor *a, unsigned n, uint64_t value)
{
    char bytes[40] = {0};
    memcpy(bytes, &value, 8);
    size_t len = short_values || value % 3 == 0 ? 8 : sizeof bytes;
    int rc = value ? far_put(a->s, a->t, name[n].data, name[n].len, bytes, len)
                   : far_delete(a->s, a->t, name[n].data, name[n].len);
    assert_int_equal(rc, value || model[n] ? FAR_OK : FAR_NOT_FOUND);
    model[n] = value;
}

static void expect_range(struct actor *a, unsigned from, unsigned to)
{
    static char buf[65536];
    struct far_range range = {.from = name[from].data, .from_len = name[from].len};
    size_t len = 0, pos = 0;
    bool more = false;
    struct far_entry e;
    if (to < KEYS) {
        range.to = name[to].data;
        range.to_len = name[to].len;
    }
    expect_ok(far_scan(a->s, a->t, &range, buf, sizeof buf, &len, &more));
    for (unsigned n = from; n < to && n < KEYS; n++) {
        if (model[n] == 0)
            continue;
        assert_true(far_entry_next(buf, len, &pos, &e));
        assert_int_equal(e.key_len, name[n].len);
        assert_memory_equal(e.key, name[n].data, e.key_len);
        assert_memory_equal(e.value, &model[n], 8);
    }
    assert_false(far_entry_next(buf, len, &pos, &e) || more);
}

static void expect_model(struct actor *a)
{
    char value[40];
    for (unsigned n = 0; n < KEYS; n++) {
        size_t len = 0;
        int rc = far_get(a->s, a->t, name[n].data, name[n].len, value, sizeof value, &len);
        assert_int_equal(rc, model[n] ? FAR_OK : FAR_NOT_FOUND);
        assert_true(model[n] == 0 || memcmp(value, &model[n], 8) == 0);
    }
    for (unsigned n = 0; n < KEYS; n += 7)
        expect_range(a, n, n % 2 ? KEYS : n + n % 61);
    expect_sound_table();
}

/* The order in which a round takes its keys. */
static unsigned key_of_round(unsigned round, unsigned i)
{
    static const unsigned factor[] = {1, KEYS - 1, 77, 133};
    return i * factor[round % 4] % KEYS;
}

/* Inserts, updates that make values long or short, and deletes until hardly anything is left, in
 * several orders. */
static void all_operations_find_keys_that_leave_stems(void **state)
{
    (void)state;
    name_keys();
    for (unsigned way = 0; way < 12; way++) {
        struct knobs knobs = pool_knobs_default;
        static const char *const tuning[] = {SMALL, "span=8&neighbourhood=8&cache=16",
                                             "span=16&neighbourhood=8&cache=64&hot=0"};
        knobs.stem_slack = way / 3 % 2 ? 4 : 0;
        short_values = way / 6;
        rig_open("mem:?nodes=2&size=8m", tuning[way % 3], &knobs, way);
        actor_join(&A, NULL);
        memset(model, 0, sizeof model);
        for (unsigned round = 0; round < 8; round++) {
            for (unsigned i = 0; i < KEYS; i++) {
                unsigned n = key_of_round(round + way, i);
                bool removes = round % 2 == 1 && n % 11 != round;
                change_key(&B, n, removes ? 0 : 1000 * (round + 1) + i + 1);
            }
            expect_model(&A);
            expect_model(&B);
        }
    }
}

/* ---- the name -------------------------------------------------------------------------------- */

/* What is cached of a leaf of another stem does not fit, though its separator has the same
 * bytes. */
static void the_name_of_a_leaf_says_how_long_its_stem_is(void **state)
{
    (void)state;
    rig_open("mem:?size=4m", SMALL, &pool_knobs_default, 3);
    keys.text = "together%03u";
    each_ok(put_key, &B, 0, 60, 1);
    struct chime_spot spot = spot_of(&B, 40);
    struct image leaf;
    assert_true(spot.stem.len > 0);
    image_read(&rig, view_of(&B), spot.name.at, &leaf);
    struct chime_window all = chime_all(&view_of(&B)->shape);
    assert_int_equal(chime_judge(view_of(&B), leaf.node, all, &spot.name), CHIME_FITS);
    struct chime_stem stem = chime_head_stem(chime_head(leaf.node));
    assert_true(stem.len == spot.stem.len && stem.hash == spot.stem.hash);
    spot.name.low.sum--; /* a stem that is shorter by a byte */
    assert_int_equal(chime_edge_stem(&spot.name.low) + 1, spot.stem.len);
    assert_int_not_equal(chime_judge(view_of(&B), leaf.node, all, &spot.name), CHIME_FITS);
}

/* ---- the walker ------------------------------------------------------------------------------ */

static void hear(void *arg, const char *line)
{
    const char **finding = arg;
    if (*finding && strncmp(line, *finding, strlen(*finding)) == 0)
        *finding = NULL;
}

static void expect_finding(struct image *bad, const struct image *good, const char *finding)
{
    struct image old = *good;
    image_write(&rig, view_of(&B), bad);
    assert_int_equal(far_table_check(B.s, B.t, hear, &finding), FAR_CORRUPT);
    assert_null(finding);
    image_write(&rig, view_of(&B), &old);
    expect_sound_table();
}

/* CHIME-W5 and CHIME-W7. */
static void the_walker_finds_wrong_stems(void **state)
{
    (void)state;
    rig_open("mem:?size=4m", SMALL, &pool_knobs_default, 3);
    keys.text = "together%03u";
    each_ok(put_key, &B, 0, 60, 1);
    struct chime_spot spot = spot_of(&B, 40);
    struct image leaf, bad;
    image_read(&rig, view_of(&B), spot.name.at, &leaf);
    bad = leaf;
    chime_entry(bad.node, image_used(&bad, 0))[0]++;
    expect_finding(&bad, &leaf, "CHIME-W5");
    bad = leaf;
    chime_head(bad.node)->stem ^= 1;
    chime_head(bad.node)->sum = chime_head_sum(view_of(&B), bad.at, chime_head(bad.node));
    expect_finding(&bad, &leaf, "CHIME-W7");
}

/* A parent's entry that leads to a pair, whose value would be a stem of 4,095 bytes. */
static void the_walker_takes_no_pair_for_a_separator(void **state)
{
    (void)state;
    rig_open("mem:?size=4m", SMALL, &pool_knobs_default, 3);
    keys.text = "together%03u";
    for (unsigned n = 0; n < 60; n++)
        expect_ok(put_key(&B, n, UINT64_MAX));
    struct chime_spot spot = spot_of(&B, 40);
    struct image leaf, parent, bad;
    image_read(&rig, view_of(&B), spot.name.at, &leaf);
    image_read(&rig, view_of(&B), spot.parent, &parent);
    unsigned place = 0;
    while (chime_kind_at(parent.node, place) != CHIME_BLOCK)
        place++;
    bad = parent;
    chime_entry(bad.node, place)[1] = chime_entry(leaf.node, image_used(&leaf, 0))[1];
    expect_finding(&bad, &parent, "CHIME-W9: an entry without a whole block");
}

int main(void)
{
    index_tested = "chime";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_of_keys_that_begin_alike_take_the_verbs_of_others),
        cmocka_unit_test(scans_of_rows_that_were_loaded_in_order_take_the_verbs_of_others),
        cmocka_unit_test(all_operations_find_keys_that_leave_stems),
        cmocka_unit_test(the_walker_finds_wrong_stems),
        cmocka_unit_test(the_walker_takes_no_pair_for_a_separator),
        cmocka_unit_test(the_name_of_a_leaf_says_how_long_its_stem_is),
    };
    return cmocka_run_group_tests(tests, NULL, rig_close);
}
