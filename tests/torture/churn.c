/*
 * Churn: updates, deletes and inserts write fifty times a pool's capacity while the live data fill
 * two thirds of it. No operation fails, usage does not grow, and nothing is lost. Every index has
 * small values, and values on three nodes. The other mixes are dealt out, unless the run is --long;
 * with sanitizers all are.
 */
#include "support/audit.h"
#include "support/indexes.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define SAMPLES   16u
#define TIMES     50 /* the pool's capacity */
#define WARM_UP   5
#define VALUE_MAX 100000u
#define KEYS_MAX  200000u

struct mix {
    const char *what, *uri;
    bool dealt;
    unsigned count;
    size_t size[6]; /* of values, equally likely */
};

static const struct mix mixes[] = {
    {"small values", "mem:?size=4m", false, 1, {40}},
    {"values of 1000 bytes", "mem:?size=8m", true, 1, {1000}},
    {"values of many sizes", "mem:?size=16m", true, 6, {0, 100, 250, 1000, 3000, 9000}},
    {"large values", "mem:?size=32m", true, 1, {70000}},
    {"three nodes", "mem:?size=4m&nodes=3", false, 3, {100, 500, 1500}},
    {"a fabric that waits", "mem:?size=4m&defer=1", true, 2, {200, 900}},
};

struct churn {
    struct store_rig rig;
    const struct mix *mix;
    struct rng rng;
    uint32_t *version; /* of each key; 0: not there */
    unsigned keys;     /* that the table has between operations */
    uint8_t value[VALUE_MAX], got[VALUE_MAX];
    uint64_t written;
};

/* Key and version determine a value's length and bytes. */
static size_t make_value(struct churn *c, uint32_t key, uint32_t version)
{
    struct rng rng;
    rng_seed(&rng, (uint64_t)key << 32 | version);
    size_t len = c->mix->size[rng_below(&rng, c->mix->count)];
    uint8_t byte = (uint8_t)rng_next(&rng);
    memset(c->value, byte, len);
    if (len >= 8)
        memcpy(c->value, (uint32_t[]){key, version}, 8);
    return len;
}

static void put(struct churn *c, uint32_t key)
{
    size_t len = make_value(c, key, ++c->version[key]);
    int rc = far_put(c->rig.session, c->rig.table, &key, sizeof key, c->value, len);
    if (rc != FAR_OK)
        fail_msg("%s: put after %llu bytes: %s: %s", c->mix->what, (unsigned long long)c->written,
                 far_errname(rc), far_error_detail());
    c->written += size_class_bytes(size_class_for(block_bytes(sizeof key, len)));
}

static void check(struct churn *c, uint32_t key)
{
    size_t len = 0, want = make_value(c, key, c->version[key]);
    assert_int_equal(
        far_get(c->rig.session, c->rig.table, &key, sizeof key, c->got, VALUE_MAX, &len), FAR_OK);
    assert_int_equal(len, want);
    assert_memory_equal(c->got, c->value, len);
}

static void usage(struct churn *c, struct far_pool_usage *u)
{
    puppet_reclaim_all(&c->rig.session->op); /* what waits is not used */
    assert_int_equal(far_pool_usage(c->rig.session, u), FAR_OK);
    assert_true(u->unknown == 0);
}

/* Fills the pool until the live data take two thirds of it. */
static void fill(struct churn *c)
{
    struct far_pool_usage u = {0};
    uint64_t room = 1;
    while (u.live * 3 / 2 < room) {
        assert_true(c->keys + 16 < KEYS_MAX);
        for (unsigned i = 0; i < 16; i++)
            put(c, c->keys++);
        usage(c, &u);
        room = u.total - u.metadata;
    }
}

static void turn(struct churn *c)
{
    uint32_t key = (uint32_t)rng_below(&c->rng, c->keys);
    if (rng_below(&c->rng, 2) == 0) {
        assert_int_equal(far_delete(c->rig.session, c->rig.table, &key, sizeof key), FAR_OK);
        if (rng_below(&c->rng, 8) == 0)
            assert_int_equal(far_exists(c->rig.session, c->rig.table, &key, sizeof key),
                             FAR_NOT_FOUND);
    }
    put(c, key);
    if (rng_below(&c->rng, 16) == 0)
        check(c, (uint32_t)rng_below(&c->rng, c->keys));
}

/* What is in use on average while four times the capacity goes through the pool. An index may keep
 * old values for some time, so a single look says little. */
static uint64_t average_used(struct churn *c, uint64_t capacity)
{
    uint64_t sum = 0, from = c->written;
    for (unsigned i = 1; i <= SAMPLES; i++) {
        struct far_pool_usage u;
        while (c->written < from + 4 * capacity * i / SAMPLES)
            turn(c);
        usage(c, &u);
        sum += u.total - u.free;
    }
    return sum / SAMPLES;
}

static void churn(const struct mix *mix)
{
    struct churn *c = calloc(1, sizeof *c);
    struct far_pool_info info;
    struct audit a;

    assert_non_null(c);
    assert_non_null(c->version = calloc(KEYS_MAX, sizeof *c->version));
    c->mix = mix;
    rng_seed(&c->rng, 1);
    store_rig_open(&c->rig, mix->uri, NULL, NULL, NULL);
    fill(c);
    assert_int_equal(far_pool_info(c->rig.session, &info), FAR_OK);
    uint64_t capacity = (info.bytes_total - info.bytes_metadata) / SLOWER;
    for (c->written = 0; c->written < WARM_UP * capacity;)
        turn(c);
    uint64_t warm = average_used(c, capacity);
    while (c->written < (TIMES - 4) * capacity)
        turn(c);
    assert_true(average_used(c, capacity) <= warm * 11 / 10);
    for (uint32_t key = 0; key < c->keys; key++)
        check(c, key);
    assert_int_equal(far_table_check(c->rig.session, c->rig.table, NULL, NULL), FAR_OK);
    sim_audit(&a, c->rig.pool, &c->rig.session, 1);
    if (a.wrong > 0)
        fail_msg("%s: %s", mix->what, a.first);
    assert_true(a.bytes[AUDIT_NOWHERE] == 0);
    store_rig_close(&c->rig);
    free(c->version);
    free(c);
}

static void fifty_times_its_capacity_goes_through_a_pool(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if ((SLOWER == 1 && !mixes[i].dealt) || indexes_deal(i))
            churn(&mixes[i]);
}

/* One session deletes, the other inserts. */
static void what_one_session_frees_another_uses(void **state)
{
    struct far_session_options seeded = {.seed = 2};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *other = NULL;
    uint8_t value[2000];
    uint32_t first = 0, next = 0;
    struct far_pool_usage u;

    (void)state;
    memset(value, 7, sizeof value);
    knobs.tick_ops = 8; /* one thread runs both: neither can wait for the other */
    store_rig_open_driven(&r, "mem:?size=8m", &knobs, NULL, NULL); /* closing waits for a lease */
    assert_int_equal(far_session_open(r.pool, &seeded, &other), FAR_OK);
    do {
        assert_int_equal(far_insert(other, r.table, &next, sizeof next, value, sizeof value),
                         FAR_OK);
        next++;
        assert_int_equal(far_pool_usage(r.session, &u), FAR_OK);
    } while (u.live * 3 / 2 < u.total - u.metadata);
    for (unsigned i = 0; i < indexes_share(60000 / SLOWER); i++) {
        assert_int_equal(far_delete(r.session, r.table, &first, sizeof first), FAR_OK);
        first++;
        assert_int_equal(far_insert(other, r.table, &next, sizeof next, value, sizeof value),
                         FAR_OK);
        next++;
    }
    for (; first < next; first++)
        assert_int_equal(far_delete(other, r.table, &first, sizeof first), FAR_OK);
    far_session_close(other);
    store_rig_close(&r);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_times_its_capacity_goes_through_a_pool),
        cmocka_unit_test(what_one_session_frees_another_uses),
    };
    return INDEXES_RUN(tests);
}
