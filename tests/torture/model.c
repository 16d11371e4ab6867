/*
 * Long random sequences of operations on every index, by one thread, compared with a model that is
 * an array: every status and every value must agree. With small parts of tables, colliding hashes,
 * several sessions whose caches go stale, and pools that are closed and opened again in between.
 */
#include "support/ordered_index.h"
#include "support/store_rig.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS_MAX  4096
#define SESSIONS  3
#define VALUE_MAX 300

struct setting {
    const char *name;
    const char *index;  /* NULL: every one */
    const char *tuning; /* NULL: as usual  */
    const char *uri;
    unsigned keys, ops;
    uint64_t hash_mask;
    uint8_t fingerprint_mask;
};

struct model {
    const struct setting *setting;
    struct knobs knobs;
    struct rng rng;
    struct fab *fab;
    far_pool *pool;
    far_session *session[SESSIONS];
    far_table *table;
    bool ordered;
    uint32_t sorted[KEYS_MAX];  /* all keys in ascending order */
    uint32_t version[KEYS_MAX]; /* of the value that the key has; 0: it is absent */
    unsigned present;
};

/* Keys of different lengths, some of them prefixes of others, some with NULs. */
static size_t key_bytes(uint32_t id, uint8_t *key)
{
    size_t len = 4 + (id % 16 == 3 ? 120 : id % 5);

    memset(key, 0, len);
    memcpy(key, &id, 4);
    return len;
}

/* A value begins with its key's number and its version, which determine the rest. */
static size_t value_bytes(uint32_t id, uint32_t version, uint8_t *value)
{
    struct rng rng;
    size_t len = 8 + (id * 7 + version * 13) % (version % 10 == 9 ? VALUE_MAX - 8 : 40);

    rng_seed(&rng, (uint64_t)id << 32 | version);
    for (size_t i = 8; i < len; i++)
        value[i] = (uint8_t)rng_next(&rng);
    memcpy(value, &id, 4);
    memcpy(value + 4, &version, 4);
    return len;
}

static void open_pool(struct model *m)
{
    assert_int_equal(store_open(m->fab, &m->knobs, &m->pool), FAR_OK);
    m->pool->pool.kept = true; /* one thread: nobody waits for the sessions that it does not use */
    for (unsigned i = 0; i < SESSIONS; i++) {
        struct far_session_options options = {.depth = 1, .seed = rng_next(&m->rng) | 1};
        assert_int_equal(far_session_open(m->pool, &options, &m->session[i]), FAR_OK);
    }
}

static void close_pool(struct model *m)
{
    for (unsigned i = 0; i < SESSIONS; i++)
        far_session_close(m->session[i]);
    far_pool_close(m->pool);
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    print_message("%s\n", line);
}

/* An iteration returns what the model has: every key once, with its value. */
static void expect_all_returned(struct model *m, far_session *s)
{
    uint8_t key[128], want[VALUE_MAX];
    static char buf[70000];
    size_t cap = 1000 + rng_below(&m->rng, sizeof buf - 1000), len = 0;
    uint64_t cursor = 0;
    unsigned count = 0;
    do {
        struct far_entry e;
        assert_int_equal(far_iterate(s, m->table, &cursor, 0, buf, cap, &len), FAR_OK);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e); count++) {
            uint32_t id = 0;
            memcpy(&id, e.key, 4);
            assert_true(id < KEYS_MAX && m->version[id] != 0);
            assert_int_equal(e.key_len, key_bytes(id, key));
            assert_memory_equal(e.key, key, e.key_len);
            assert_int_equal(e.value_len, value_bytes(id, m->version[id], want));
            assert_memory_equal(e.value, want, e.value_len);
        }
    } while (cursor != 0);
    assert_int_equal(count, m->present);
}

static int compare(const void *a, const void *b)
{
    uint8_t key[2][128];
    size_t len[2] = {key_bytes(*(const uint32_t *)a, key[0]),
                     key_bytes(*(const uint32_t *)b, key[1])};
    int order = memcmp(key[0], key[1], len[0] < len[1] ? len[0] : len[1]);
    return order != 0 ? order : (len[0] > len[1]) - (len[0] < len[1]);
}

/* Chooses where in the order of keys a scan begins and ends. An end past the last key: no bound. */
static void pick_range(struct model *m, uint32_t *first, uint32_t *end, struct far_range *range,
                       uint8_t from[128], uint8_t to[128])
{
    uint32_t keys = m->setting->keys;
    *first = (uint32_t)rng_below(&m->rng, keys);
    *end = (uint32_t)rng_below(&m->rng, keys + 1);
    *range = (struct far_range){.limit = (unsigned)rng_below(&m->rng, 3) * 7};
    range->from = from;
    range->from_len = key_bytes(m->sorted[*first], from);
    if (*end < keys) {
        range->to = to;
        range->to_len = key_bytes(m->sorted[*end], to);
    }
    if (rng_below(&m->rng, 2)) {
        range->flags = FAR_AFTER;
        ++*first;
    }
}

/* Scans a range to its end, some at a time: every key that the model has there, in order. */
static void expect_range_returned(struct model *m, far_session *s)
{
    uint8_t from[128], to[128], key[128], want[VALUE_MAX];
    static char buf[4000];
    struct far_range range;
    uint32_t at = 0, end = 0;
    bool more = false;
    pick_range(m, &at, &end, &range, from, to);
    do {
        struct far_entry e;
        size_t len = 0, cap = 500 + rng_below(&m->rng, sizeof buf - 500);
        unsigned count = 0;
        assert_int_equal(far_scan(s, m->table, &range, buf, cap, &len, &more), FAR_OK);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e); count++) {
            while (at < end && m->version[m->sorted[at]] == 0)
                at++;
            assert_true(at < end);
            uint32_t id = m->sorted[at++];
            assert_int_equal(e.key_len, key_bytes(id, key));
            assert_memory_equal(e.key, key, e.key_len);
            assert_int_equal(e.value_len, value_bytes(id, m->version[id], want));
            assert_memory_equal(e.value, want, e.value_len);
            range.from_len = e.key_len;
            memcpy(from, e.key, e.key_len);
            range.flags = FAR_AFTER;
        }
        assert_true(range.limit == 0 || count <= range.limit);
        if (range.limit > 0 && count == range.limit)
            more = at < end; /* the scan may not know that there is no more */
    } while (more);
    while (at < end && m->version[m->sorted[at]] == 0)
        at++;
    assert_true(at >= end);
}

static void expect_sound(struct model *m)
{
    struct far_table_info info;
    far_session *s = m->session[rng_below(&m->rng, SESSIONS)];

    assert_int_equal(far_table_check(s, m->table, print_line, NULL), FAR_OK);
    assert_int_equal(far_table_info(s, m->table, &info), FAR_OK);
    assert_int_equal(info.keys, m->present);
    expect_all_returned(m, s);
    for (unsigned i = 0; m->ordered && i < 8; i++)
        expect_range_returned(m, s);
}

static void check_get(struct model *m, far_session *s, uint32_t id)
{
    uint8_t key[128], want[VALUE_MAX], got[VALUE_MAX];
    size_t klen = key_bytes(id, key), len = 0;
    int rc = far_get(s, m->table, key, klen, got, sizeof got, &len);

    if (m->version[id] == 0) {
        assert_int_equal(rc, FAR_NOT_FOUND);
        return;
    }
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(len, value_bytes(id, m->version[id], want));
    assert_memory_equal(got, want, len);
}

/* A change that depends on the old value: stores the version, deletes the key, or keeps it. */
struct modification {
    enum far_decision decision;
    uint8_t value[VALUE_MAX];
    size_t len;
    uint32_t saw; /* the version that was there */
};

static enum far_decision modify(void *arg, const void *old, size_t old_len, const void **value,
                                size_t *value_len)
{
    struct modification *m = arg;
    m->saw = 0;
    if (old)
        memcpy(&m->saw, (const char *)old + 4, 4);
    assert_true(!old || old_len >= 8);
    *value = m->value;
    *value_len = m->len;
    return m->decision;
}

static void check_modify(struct model *m, far_session *s, uint32_t id, uint32_t version)
{
    uint8_t key[128];
    size_t klen = key_bytes(id, key);
    struct modification how = {.decision = (enum far_decision)rng_below(&m->rng, 3)};
    how.len = value_bytes(id, version, how.value);
    int rc = far_modify(s, m->table, key, klen, modify, &how);
    if (rc == FAR_TABLE_FULL && m->version[id] == 0 && m->setting->hash_mask != UINT64_MAX)
        return;
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(how.saw, m->version[id]);
    if (how.decision == FAR_KEEP)
        return;
    version = how.decision == FAR_STORE ? version : 0;
    m->present += (version != 0) - (m->version[id] != 0);
    m->version[id] = version;
}

/* One operation that changes the key. If the table reports that it is full, nothing has changed. */
static void check_change(struct model *m, far_session *s, enum far_op_kind kind, uint32_t id,
                         uint32_t version)
{
    uint8_t key[128], value[VALUE_MAX];
    size_t klen = key_bytes(id, key), vlen = value_bytes(id, version, value);
    bool there = m->version[id] != 0;
    int rc = FAR_OK, want = FAR_OK;

    switch (kind) {
    case FAR_OP_PUT:
        rc = far_put(s, m->table, key, klen, value, vlen);
        break;
    case FAR_OP_INSERT:
        rc = far_insert(s, m->table, key, klen, value, vlen);
        want = there ? FAR_EXISTS : FAR_OK;
        break;
    case FAR_OP_UPDATE:
        rc = far_update(s, m->table, key, klen, value, vlen);
        want = there ? FAR_OK : FAR_NOT_FOUND;
        break;
    default:
        rc = far_delete(s, m->table, key, klen);
        want = there ? FAR_OK : FAR_NOT_FOUND;
        version = 0;
        break;
    }
    if (rc == FAR_TABLE_FULL && !there && m->setting->hash_mask != UINT64_MAX)
        return;
    assert_int_equal(rc, want);
    if (rc == FAR_OK) {
        m->present += (version != 0) - (m->version[id] != 0);
        m->version[id] = version;
    }
}

/* Grows, churns, shrinks to nothing and grows again. */
static enum far_op_kind pick_kind(struct model *m, unsigned step)
{
    static const unsigned weights[4][FAR_OP_KINDS] = {
        /* none get exists put insert update delete */
        {0, 10, 5, 35, 35, 10, 5},
        {0, 25, 10, 20, 15, 15, 15},
        {0, 10, 5, 5, 5, 10, 65},
        {0, 20, 5, 25, 20, 15, 15},
    };
    const unsigned *w = weights[step * 4ull / m->setting->ops % 4];
    unsigned at = (unsigned)rng_below(&m->rng, 100), kind = 0;

    while (at >= w[kind])
        at -= w[kind++];
    return (enum far_op_kind)kind;
}

static const char small[] = "the index's smallest";

static void run(const struct setting *setting, const char *index, uint64_t seed)
{
    static struct model m;
    struct far_table_options options = {.tuning = setting->tuning == small ? tuning_smallest(index)
                                                                           : setting->tuning,
                                        .hash_seed = seed};
    unsigned ops = setting->ops / SLOWER;

    print_message("%s: %s\n", index, setting->name);

    m = (struct model){.setting = setting, .knobs = pool_knobs_default};
    m.knobs.hash_mask = setting->hash_mask;
    m.knobs.fingerprint_mask = setting->fingerprint_mask;
    m.ordered = index_find(index)->ordered;
    for (uint32_t id = 0; id < setting->keys; id++)
        m.sorted[id] = id;
    qsort(m.sorted, setting->keys, sizeof *m.sorted, compare);
    rng_seed(&m.rng, seed);
    assert_int_equal(fab_open(setting->uri, &m.fab), FAR_OK);
    open_pool(&m);
    assert_int_equal(far_table_create(m.session[0], "t", index, &options, &m.table), FAR_OK);
    for (unsigned step = 0; step < ops; step++) {
        far_session *s = m.session[rng_below(&m.rng, step % 64 ? 1 : SESSIONS)];
        uint32_t id = (uint32_t)rng_below(&m.rng, setting->keys);
        enum far_op_kind kind = pick_kind(&m, step * SLOWER);
        if (step % 9 == 0) {
            check_modify(&m, s, id, step + 1);
        } else if (kind == FAR_OP_GET) {
            check_get(&m, s, id);
        } else if (kind == FAR_OP_EXISTS) {
            uint8_t key[128];
            size_t klen = key_bytes(id, key);
            assert_int_equal(far_exists(s, m.table, key, klen),
                             m.version[id] ? FAR_OK : FAR_NOT_FOUND);
        } else {
            check_change(&m, s, kind, id, step + 1);
        }
        if (step % (ops / 20 + 1) == 0)
            expect_sound(&m);
        if (step % (ops / 4 + 1) == ops / 5) {
            close_pool(&m);
            open_pool(&m);
            assert_int_equal(far_table_open(m.session[1], "t", NULL, &m.table), FAR_OK);
        }
    }
    expect_sound(&m);
    for (uint32_t id = 0; id < setting->keys; id++)
        check_get(&m, m.session[id % SESSIONS], id);
    close_pool(&m);
    fab_close(m.fab);
}

#define ALL UINT64_MAX

static const struct setting settings[] = {
    {"plain", NULL, NULL, "mem:?size=256m", 4096, 60000, ALL, 0xff},
    {"small parts", NULL, small, "mem:?size=256m", 4096, 60000, ALL, 0xff},
    {"three groups, three nodes", "race", "groups=3", "mem:?size=128m&nodes=3", 4096, 60000, ALL,
     0xff},
    {"small parts, three nodes", NULL, small, "mem:?size=128m&nodes=3", 2000, 40000, ALL, 0xff},
    {"plain, three nodes, deferred", NULL, NULL, "mem:?size=128m&nodes=3&defer=1", 4096, 40000, ALL,
     0xff},
    {"one fingerprint for all", NULL, small, "mem:?size=256m", 1000, 20000, ALL, 0},
    {"four fingerprints", NULL, small, "mem:?size=256m", 2000, 40000, ALL, 0x81},
    {"few bits of the hashes", NULL, small, "mem:?size=256m", 1000, 30000, 0xff00ffff000000ff,
     0xff},
    {"few of everything", NULL, small, "mem:?size=128m&nodes=3", 1000, 30000, 0x0f00000f0000003f,
     0x0f},
    {"sixteen hashes", NULL, small, "mem:?size=8m", 200, 10000, 0x0f, 0xff},
    {"two hashes, often full", NULL, small, "mem:?size=8m", 100, 10000, 0x01, 0xff},
    {"in order", ORDERED_NAME, NULL, "mem:?size=64m", 100, 4000, ALL, 0xff},
    {"in order, three nodes, deferred", ORDERED_NAME, NULL, "mem:?size=64m&nodes=3&defer=1", 40,
     4000, ALL, 0xff},
};

static void every_setting_agrees_with_the_model(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *index = settings[i].index;
        if (index)
            run(&settings[i], index, 1000 + i);
        for (unsigned n = 0; !settings[i].index && (index = far_index_name(n)) != NULL; n++)
            run(&settings[i], index, 1000 + i);
    }
}

int main(void)
{
    ordered_index_add();
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_setting_agrees_with_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
