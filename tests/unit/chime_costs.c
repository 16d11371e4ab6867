/* What CHIME's operations cost in round trips and bytes, with one client: these numbers do not
 * depend on the machine. */
#include "index/chime/chime.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#define KEYS    (100000u / SLOWER)
#define SCANNED 100u
#define SCANS   400u

/* ---- calls ----------------------------------------------------------------------------------- */

/* Keys of 8 bytes in no order, or strings of 32 that begin alike. */
struct keys {
    bool strings, ascending;
};

static struct slice key_of(const struct keys *k, uint64_t number, char text[40])
{
    uint64_t bits = k->ascending ? number : number * 0x9e3779b97f4a7c15u;
    if (k->strings) {
        snprintf(text, 40, "customer%024llu", (unsigned long long)bits);
        return (struct slice){text, 32};
    }
    bits = __builtin_bswap64(bits);
    memcpy(text, &bits, 8);
    return (struct slice){text, 8};
}

static struct slice value_of(const struct keys *k, struct slice key, char value[100])
{
    memset(value, 'v', 100);
    memcpy(value, key.data, 8);
    return (struct slice){value, k->strings ? 100 : 8};
}

enum what { INSERT, GET, UPDATE, DELETE };

static int call(struct store_rig *r, const struct keys *k, enum what what, uint64_t number)
{
    char text[40], bytes[100], got[100];
    struct slice key = key_of(k, number, text), value = value_of(k, key, bytes);
    size_t len = 0;
    switch (what) {
    case INSERT:
        return far_insert(r->session, r->table, key.data, key.len, value.data, value.len);
    case UPDATE:
        return far_update(r->session, r->table, key.data, key.len, value.data, value.len);
    case DELETE:
        return far_delete(r->session, r->table, key.data, key.len);
    case GET:
        break;
    }
    int rc = far_get(r->session, r->table, key.data, key.len, got, sizeof got, &len);
    assert_true(rc != FAR_OK || (len == value.len && memcmp(got, value.data, len) == 0));
    return rc;
}

struct costs {
    double rtts, bytes, verbs;
};

/* The average of calls that all have this status. */
static struct costs cost(struct store_rig *r, const struct keys *k, enum what what, uint64_t from,
                         uint64_t to, int status)
{
    struct cost sum = {0};
    for (uint64_t i = from; i < to; i++) {
        assert_int_equal(call(r, k, what, i), status);
        sum.rtts += r->session->op.cost.rtts;
        sum.bytes_read += r->session->op.cost.bytes_read;
        sum.verbs += r->session->op.cost.verbs;
    }
    double calls = (double)(to - from);
    return (struct costs){(double)sum.rtts / calls, (double)sum.bytes_read / calls,
                          (double)sum.verbs / calls};
}

static struct costs cost_of_scans(struct store_rig *r, const struct keys *k)
{
    static char buf[64 * 1024];
    struct cost sum = {0};
    for (unsigned i = 0; i < SCANS; i++) {
        char text[40];
        size_t len = 0;
        struct slice from = key_of(k, i * (KEYS / 2 / SCANS), text);
        struct far_range range = {.from = from.data, .from_len = from.len, .limit = SCANNED};
        bool more = false;
        assert_int_equal(far_scan(r->session, r->table, &range, buf, sizeof buf, &len, &more),
                         FAR_OK);
        sum.rtts += r->session->op.cost.rtts;
        sum.bytes_read += r->session->op.cost.bytes_read;
    }
    return (struct costs){(double)sum.rtts / SCANS, (double)sum.bytes_read / SCANS, 0};
}

static void open_table(struct store_rig *r, const char *tuning)
{
    store_rig_open(r, "mem:?size=128m", NULL, NULL,
                   &(struct far_table_options){.tuning = tuning, .hash_seed = 1});
}

static double load_at_splits(struct store_rig *r)
{
    struct far_table_info info;
    assert_int_equal(far_table_info(r->session, r->table, &info), FAR_OK);
    assert_int_equal(info.keys, KEYS);
    assert_true((double)info.client_cache_bytes <= 0.6 * KEYS);
    return info.split_load_mean;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void gets_take_one_round_trip_and_changes_two(void **state)
{
    struct store_rig r;
    struct keys k = {0};
    (void)state;
    open_table(&r, "hot=0");
    assert_true(cost(&r, &k, INSERT, 0, KEYS, FAR_OK).rtts <= 2.3);
    assert_true(load_at_splits(&r) >= 0.85);
    struct costs get = cost(&r, &k, GET, 0, KEYS, FAR_OK);
    assert_true(get.rtts <= 1.02 && get.bytes <= 220);
    assert_true(cost(&r, &k, GET, KEYS, KEYS + KEYS / 4, FAR_NOT_FOUND).rtts <= 1.02);
    struct costs update = cost(&r, &k, UPDATE, 0, KEYS, FAR_OK);
    assert_true(update.rtts <= 2.05 && update.verbs <= 6.3); /* it reads no vacancy */
    struct costs scan = cost_of_scans(&r, &k);
    assert_true(scan.rtts <= 1.5 && scan.bytes <= 2.6 * 16 * SCANNED);
    assert_true(cost(&r, &k, DELETE, 0, KEYS - KEYS / 20, FAR_OK).rtts <= 2.06);
    store_rig_close(&r);
}

/* Keys are moved while others are inserted, so an insert of an inline pair is no hint. */
static void gets_of_inline_values_take_one_round_trip_after_a_load(void **state)
{
    struct store_rig r;
    struct keys k = {0};
    (void)state;
    open_table(&r, NULL);
    (void)cost(&r, &k, INSERT, 0, KEYS, FAR_OK);
    assert_true(cost(&r, &k, GET, 0, KEYS, FAR_OK).rtts <= 1.001);
    store_rig_close(&r);
}

static void leaves_stay_full_if_keys_come_in_ascending_order(void **state)
{
    struct store_rig r;
    struct keys k = {.ascending = true};
    (void)state;
    open_table(&r, NULL);
    assert_true(cost(&r, &k, INSERT, 0, KEYS, FAR_OK).rtts <= 2.3);
    assert_true(load_at_splits(&r) >= 0.85);
    struct costs scan = cost_of_scans(&r, &k);
    assert_true(scan.rtts <= 1.5 && scan.bytes <= 2.6 * 16 * SCANNED);
    store_rig_close(&r);
}

/* All separators are longer than 8 bytes. */
static void strings_that_begin_alike_take_one_round_trip_more(void **state)
{
    struct store_rig r;
    struct keys k = {.strings = true};
    (void)state;
    open_table(&r, "hot=0");
    (void)cost(&r, &k, INSERT, 0, KEYS, FAR_OK);
    (void)cost(&r, &k, GET, 0, KEYS, FAR_OK); /* all nodes are cached */
    assert_true(cost(&r, &k, GET, 0, KEYS, FAR_OK).rtts <= 2.1);
    assert_true(cost(&r, &k, UPDATE, 0, KEYS, FAR_OK).rtts <= 3.1);
    assert_true(cost_of_scans(&r, &k).rtts <= 3);
    store_rig_close(&r);
}

/* The fabric orders no READ behind an atomic, so lock and neighbourhood take a round trip each. */
static void changes_take_three_where_atomics_are_not_ordered(void **state)
{
    struct store_rig r;
    struct keys k = {0};
    (void)state;
    open_table(&r, "hot=0");
    r.fab->order &= ~ORDER(FAB_A, FAB_R);
    assert_true(cost(&r, &k, INSERT, 0, KEYS, FAR_OK).rtts <= 3.3);
    assert_true(cost(&r, &k, UPDATE, 0, KEYS, FAR_OK).rtts <= 3.1);
    double delete = cost(&r, &k, DELETE, 0, KEYS - KEYS / 20, FAR_OK).rtts;
    assert_true(delete > 2.9 && delete <= 3.1);
    store_rig_close(&r);
}

static double bytes_of_a_get(const char *tuning)
{
    struct store_rig r;
    struct keys k = {0};
    open_table(&r, tuning);
    (void)cost(&r, &k, INSERT, 0, KEYS / 4, FAR_OK);
    (void)cost(&r, &k, GET, 0, KEYS / 4, FAR_OK); /* makes keys hot */
    struct costs get = cost(&r, &k, GET, 0, KEYS / 4, FAR_OK);
    assert_true(get.rtts <= 1.02);
    store_rig_close(&r);
    return get.bytes;
}

static void each_part_of_the_design_saves_bytes(void **state)
{
    double usual = bytes_of_a_get("hot=0");
    (void)state;
    assert_true(bytes_of_a_get("hot=0&whole=1") >= 4 * usual);
    assert_true(bytes_of_a_get(NULL) < usual); /* with hot keys */
    double pointer = bytes_of_a_get("hot=0&meta=1"), fences = bytes_of_a_get("hot=0&meta=2");
    assert_true(usual < pointer && pointer < fences);

    struct store_rig r;
    struct keys k = {0};
    open_table(&r, "vacancy=0");
    assert_true(cost(&r, &k, INSERT, 0, KEYS / 4, FAR_OK).bytes >= 1152);
    store_rig_close(&r);
}

int main(void)
{
    index_tested = "chime";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_take_one_round_trip_and_changes_two),
        cmocka_unit_test(gets_of_inline_values_take_one_round_trip_after_a_load),
        cmocka_unit_test(leaves_stay_full_if_keys_come_in_ascending_order),
        cmocka_unit_test(strings_that_begin_alike_take_one_round_trip_more),
        cmocka_unit_test(changes_take_three_where_atomics_are_not_ordered),
        cmocka_unit_test(each_part_of_the_design_saves_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
