/* What SepHash's operations cost in round trips, with one client: these numbers do not depend on
 * the machine. */
#include "index/sephash/sephash.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS       (60000u / SLOWER)
#define MEMORY     16u
#define KEYS_TUNED 12000u

static struct sephash_view *view_of(struct store_rig *r)
{
    return sephash_view(store_known(r->session, r->table)->view);
}

struct counts {
    uint64_t merges, splits, renewals, more;
};

/* Puts a key, and checks what that cost: 2, and 4 or 5 more with a merge or a split. */
static uint64_t put(struct store_rig *r, uint64_t key, struct counts *counts)
{
    struct sephash_view *view = view_of(r);
    uint64_t merges = view->merges, splits = view->base.grown - merges;
    unsigned start = view->parts.start;
    struct sephash_key k;
    sephash_hash(view, (struct slice){&key, sizeof key}, &k);
    const struct sephash_segment *s = &sephash_known_of(view, k.hash)->segment;
    bool renews =
        index_split_renews(s->part.depth - start, index_split_phase(start, s->part.suffix));
    uint64_t entries = s->entries + view->shape.slots;
    assert_int_equal(far_put(r->session, r->table, &key, sizeof key, &key, sizeof key), FAR_OK);
    uint64_t rtts = r->session->op.cost.rtts;
    bool merge = view->merges > merges, split = view->base.grown - view->merges > splits;
    counts->merges += merge;
    counts->splits += split;
    counts->renewals += split && renews;
    uint64_t most = split ? 2 + 5 : merge ? 2 + 4 : 2;
    if (split && renews)
        most += entries / BATCH_MAX + 4;
    /* To get memory takes three or two more, now and then. */
    counts->more += rtts > most;
    assert_true(rtts <= most + MEMORY);
    return rtts;
}

static void merges_take_four_round_trips_and_splits_five(void **state)
{
    struct store_rig r;
    struct counts counts = {0};
    uint64_t key = 0, sum = 0;
    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL,
                   &(struct far_table_options){.tuning = SLOWER == 1 ? NULL : "slots=64&ratio=16",
                                               .hash_seed = 1});
    assert_int_equal(far_put(r.session, r.table, &key, sizeof key, &key, sizeof key), FAR_OK);
    for (key = 1; key < KEYS; key++)
        sum += put(&r, key, &counts);
    assert_true(counts.merges > 100 && counts.splits > 4 && counts.renewals > 0);
    assert_true(counts.splits > counts.renewals);
    assert_true(counts.more <= KEYS / 100);
    assert_true((double)sum / KEYS <= (SLOWER == 1 ? 2.15 : 2.4));
    store_rig_close(&r);
}

static double average(struct store_rig *r, uint64_t from, uint64_t to,
                      int (*call)(struct store_rig *r, uint64_t key))
{
    uint64_t sum = 0;
    for (uint64_t key = from; key < to; key++) {
        assert_int_equal(call(r, key), FAR_OK);
        sum += r->session->op.cost.rtts;
    }
    return (double)sum / (double)(to - from);
}

static int call_put(struct store_rig *r, uint64_t key)
{
    return far_put(r->session, r->table, &key, sizeof key, &key, sizeof key);
}
static int call_get(struct store_rig *r, uint64_t key)
{
    uint64_t value = 0;
    size_t len = 0;
    return far_get(r->session, r->table, &key, sizeof key, &value, sizeof value, &len);
}
static int call_update(struct store_rig *r, uint64_t key)
{
    return far_update(r->session, r->table, &key, sizeof key, &key, sizeof key);
}
static int call_insert(struct store_rig *r, uint64_t key)
{
    return far_insert(r->session, r->table, &key, sizeof key, &key, sizeof key);
}
static int call_delete(struct store_rig *r, uint64_t key)
{
    return far_delete(r->session, r->table, &key, sizeof key);
}

static void operations_keep_their_costs_with_all_tunings(void **state)
{
    static const char *const tunings[] = {NULL, "points=2", "filter=1", "points=0",
                                          "filter=1&points=0"};
    (void)state;
    for (unsigned i = 0; i < sizeof tunings / sizeof *tunings; i++) {
        struct store_rig r;
        struct far_table_info info;
        uint64_t keys = KEYS_TUNED;
        store_rig_open(&r, "mem:?size=64m", NULL, NULL,
                       &(struct far_table_options){.tuning = tunings[i]});
        assert_true(average(&r, 0, keys, call_put) <= 2.2);
        assert_true(average(&r, 0, keys, call_get) <= 2.1);
        assert_true(average(&r, 0, keys, call_update) <= 3.15);
        assert_true(average(&r, keys, keys + keys / 4, call_insert) <= 2.3);
        assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
        assert_int_equal(info.keys, keys + keys / 4);
        assert_true(info.load_factor >= 0.85); /* a fraction of its CurSegments is empty */
        assert_string_equal(info.figure[0].name, "fptable_bytes");
        assert_string_equal(info.figure[1].name, "fptable_plain_bytes");
        assert_true(info.figure[0].value <= info.figure[1].value);
        assert_int_equal(info.figure[0].value == info.figure[1].value, i >= 3);
        assert_string_equal(info.figure[2].name, "header_bytes");
        assert_string_equal(info.figure[3].name, "directory_bytes");
        assert_true(info.figure[2].value > 0 && info.figure[3].value >= 8 &&
                    info.figure[2].value + info.figure[3].value < info.index_bytes / 4);
        assert_string_equal(info.session[0].name, "merges");
        assert_true(info.session[0].value > 0 && info.session[0].value <= info.splits);
        assert_true(info.split_ns > 0);
        assert_true(average(&r, 0, keys + keys / 4, call_delete) <= 3.15);
        assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
        store_rig_close(&r);
    }
}

/* A session that has not looked for a while finds what another one has made of its segments. */
static void a_session_follows_merges_and_splits_of_others(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    struct store_rig other = r;
    other.session = store_rig_join(&r);
    assert_true(average(&other, 0, 1000, call_put) < 3);
    assert_true(average(&r, 1000, KEYS / 2, call_put) < 3);
    /* Three for each segment: the new CurSegment, or the fork, the anchor and the CurSegment. */
    assert_true(average(&other, 0, KEYS / 2, call_get) < 2.5);
    assert_true(average(&other, 0, KEYS / 2, call_delete) < 3.5);
    far_session_close(other.session);
    store_rig_close(&r);
}

int main(void)
{
    index_tested = "sephash";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_take_four_round_trips_and_splits_five),
        cmocka_unit_test(operations_keep_their_costs_with_all_tunings),
        cmocka_unit_test(a_session_follows_merges_and_splits_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
