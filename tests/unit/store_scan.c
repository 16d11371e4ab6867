/* Scans of ordered tables through the store and the ring, held against a sorted model. */
#include "support/ordered_index.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS_MAX 400u

struct model {
    struct store_rig rig; /* its table "t" is kept by race */
    far_table *table;     /* and this one is ordered       */
    struct rng rng;
    unsigned count;
    struct pair {
        uint8_t key[24];
        size_t key_len, value_len;
        uint8_t value[40];
    } pair[KEYS_MAX]; /* in order */
};

static void open_model(struct model *m, const char *uri, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    store_rig_open(&m->rig, uri, NULL, NULL, NULL);
    rng_seed(&m->rng, seed);
    assert_int_equal(far_table_create(m->rig.session, "o", ORDERED_NAME, NULL, &m->table), FAR_OK);
}

static void close_model(struct model *m)
{
    assert_int_equal(far_table_check(m->rig.session, m->table, NULL, NULL), FAR_OK);
    store_rig_close(&m->rig);
}

/* Of few bytes that matter to comparisons, so that keys are prefixes and neighbours of each
 * other. */
static struct pair random_pair(struct model *m)
{
    static const uint8_t bytes[] = {0x00, 0x01, 'a', 0x7f, 0x80, 0xff};
    struct pair p = {.key_len = 1 + rng_below(&m->rng, 5),
                     .value_len = rng_below(&m->rng, sizeof p.value)};
    for (size_t i = 0; i < p.key_len; i++)
        p.key[i] = bytes[rng_below(&m->rng, sizeof bytes)];
    for (size_t i = 0; i < p.value_len; i++)
        p.value[i] = (uint8_t)rng_next(&m->rng);
    return p;
}

/* The order of keys, said another way than index_key_compare() does. */
static bool below(const void *a, size_t a_len, const void *b, size_t b_len)
{
    const uint8_t *x = a, *y = b;
    for (size_t i = 0;; i++) {
        if (i == a_len || i == b_len)
            return i == a_len && i < b_len;
        if (x[i] != y[i])
            return x[i] < y[i];
    }
}

/* Puts the pair into the model, or takes it out. */
static void model_set(struct model *m, const struct pair *p, bool there)
{
    unsigned at = 0;
    while (at < m->count && below(m->pair[at].key, m->pair[at].key_len, p->key, p->key_len))
        at++;
    bool found = at < m->count && !below(p->key, p->key_len, m->pair[at].key, m->pair[at].key_len);
    if (found && !there)
        memmove(&m->pair[at], &m->pair[at + 1], (--m->count - at) * sizeof *m->pair);
    if (!found && there) {
        assert_true(m->count < KEYS_MAX);
        memmove(&m->pair[at + 1], &m->pair[at], (m->count++ - at) * sizeof *m->pair);
    }
    if (there)
        m->pair[at] = *p;
}

static void change(struct model *m, far_session *s)
{
    struct pair p = random_pair(m);
    if (m->count < KEYS_MAX && rng_below(&m->rng, 4) > 0) {
        assert_int_equal(far_put(s, m->table, p.key, p.key_len, p.value, p.value_len), FAR_OK);
        model_set(m, &p, true);
    } else {
        int rc = far_delete(s, m->table, p.key, p.key_len);
        assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
        model_set(m, &p, false);
    }
}

static void fill(struct model *m, unsigned changes)
{
    for (unsigned i = 0; i < changes; i++)
        change(m, m->rig.session);
}

static bool within(const struct far_range *r, const struct pair *p)
{
    if (below(p->key, p->key_len, r->from, r->from_len))
        return false;
    if ((r->flags & FAR_AFTER) && !below(r->from, r->from_len, p->key, p->key_len))
        return false;
    return !r->to || below(p->key, p->key_len, r->to, r->to_len);
}

/* The first of the model that the range holds, from a place on. */
static unsigned next_within(const struct model *m, const struct far_range *r, unsigned at)
{
    while (at < m->count && !within(r, &m->pair[at]))
        at++;
    return at;
}

static void expect_entry(const struct far_entry *e, const struct pair *p, bool keys_only)
{
    assert_int_equal(e->key_len, p->key_len);
    assert_memory_equal(e->key, p->key, p->key_len);
    assert_int_equal(e->value_len, p->value_len);
    if (keys_only)
        assert_null(e->value);
    else
        assert_memory_equal(e->value, p->value, p->value_len);
}

/* Scans the range to its end, in as many calls as the limit and the buffer take. */
static void expect_range(struct model *m, struct far_range range, size_t cap)
{
    static char buf[65536];
    const struct far_range whole = range;
    unsigned at = next_within(m, &whole, 0);
    bool more = true;
    assert_true(cap <= sizeof buf);
    while (more) {
        struct far_entry e;
        size_t len = 0;
        unsigned count = 0;
        assert_int_equal(far_scan(m->rig.session, m->table, &range, buf, cap, &len, &more), FAR_OK);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e); count++) {
            assert_true(at < m->count);
            expect_entry(&e, &m->pair[at], range.flags & FAR_KEYS_ONLY);
            at = next_within(m, &whole, at + 1);
            range.from = e.key; /* in the buffer */
            range.from_len = e.key_len;
        }
        assert_true(range.limit == 0 || count <= range.limit);
        assert_true(count > 0 || !more);
        if (!more)
            assert_int_equal(at, m->count);
        range.flags |= FAR_AFTER;
    }
}

static void scans_return_what_is_in_the_range(void **state)
{
    static const char *const uris[] = {"mem:?size=64m", "mem:?size=32m&nodes=3",
                                       "mem:?size=64m&defer=1"};
    struct model *m = malloc(sizeof *m);

    (void)state;
    for (unsigned n = 0; n < 3; n++) {
        open_model(m, uris[n], n + 1);
        expect_range(m, (struct far_range){.limit = 3}, 1000); /* an empty table */
        for (unsigned turn = 0; turn < 60; turn++) {
            fill(m, 10);
            struct pair from = random_pair(m), to = random_pair(m);
            struct far_range r = {
                .from = from.key, .from_len = from.key_len, .to = to.key, .to_len = to.key_len};
            if (rng_below(&m->rng, 4) == 0)
                r.from = NULL, r.from_len = 0;
            if (rng_below(&m->rng, 4) == 0)
                r.to = NULL, r.to_len = 0;
            r.limit = (unsigned)rng_below(&m->rng, 12);
            r.flags = (unsigned)rng_below(&m->rng, 4);
            expect_range(m, r, 64 + rng_below(&m->rng, 4000));
        }
        close_model(m);
    }
    free(m);
}

/* How many entries one call returns, and whether it says that there may be more. */
static unsigned scan_once(struct model *m, struct far_range range, bool *more)
{
    char buf[4096];
    struct far_op op = {.kind = FAR_OP_SCAN,
                        .table = m->table,
                        .key = range.from,
                        .key_len = range.from_len,
                        .to = range.to,
                        .to_len = range.to_len,
                        .limit = range.limit,
                        .flags = range.flags,
                        .buf = buf,
                        .cap = sizeof buf};
    struct far_result result;
    struct far_entry e;
    unsigned count = 0;
    assert_int_equal(far_execute(m->rig.session, &op, &result), FAR_OK);
    for (size_t pos = 0; far_entry_next(buf, result.len, &pos, &e);)
        count++;
    assert_int_equal(count, result.count);
    *more = result.more;
    return count;
}

static void the_ends_of_a_range_are_exact(void **state)
{
    struct model *m = malloc(sizeof *m);
    bool more = true;

    (void)state;
    open_model(m, "mem:?size=16m", 1);
    static const char *const keys[] = {"a", "ab", "b", "ba", "c"};
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(far_put(m->rig.session, m->table, keys[i], strlen(keys[i]), "v", 1),
                         FAR_OK);
    static const struct {
        const char *from, *to;
        unsigned flags, limit, count;
        bool more;
    } cases[] = {
        {NULL, NULL, 0, 0, 5, false},         {NULL, NULL, FAR_AFTER, 0, 5, false},
        {"", NULL, FAR_AFTER, 0, 5, false},   {NULL, "", 0, 0, 0, false},
        {"a", "a", 0, 0, 0, false},           {"b", "a", 0, 0, 0, false},
        {"a", "ab", 0, 0, 1, false},          {"a", "ab", FAR_AFTER, 0, 0, false},
        {"a", "b", 0, 0, 2, false},           {"a", "b", FAR_AFTER, 0, 1, false},
        {"aa", "bz", FAR_AFTER, 0, 3, false}, {"c", NULL, 0, 0, 1, false},
        {"c", NULL, FAR_AFTER, 0, 0, false},  {"d", NULL, 0, 0, 0, false},
        {NULL, NULL, 0, 4, 4, true},          {NULL, NULL, 0, 6, 5, false},
        {NULL, "b", 0, 1, 1, true},           {NULL, "b", 0, 3, 2, false},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct far_range r = {.from = cases[i].from,
                              .from_len = cases[i].from ? strlen(cases[i].from) : 0,
                              .to = cases[i].to,
                              .to_len = cases[i].to ? strlen(cases[i].to) : 0,
                              .limit = cases[i].limit,
                              .flags = cases[i].flags};
        assert_int_equal(scan_once(m, r, &more), cases[i].count);
        assert_int_equal(more, cases[i].more);
    }
    close_model(m);
    free(m);
}

static void an_entry_that_does_not_fit_says_how_long_it_is(void **state)
{
    struct model *m = malloc(sizeof *m);
    static char value[5000], buf[6000], before[6000];
    size_t len = 0, pos = 0;
    bool more = false;
    struct far_entry e;

    (void)state;
    open_model(m, "mem:?size=16m", 1);
    far_session *s = m->rig.session;
    memset(value, 'x', sizeof value);
    memset(buf, 0x5a, sizeof buf);
    memcpy(before, buf, sizeof buf);
    assert_int_equal(far_put(s, m->table, "a", 1, "v", 1), FAR_OK);
    assert_int_equal(far_put(s, m->table, "b", 1, value, sizeof value), FAR_OK);
    struct far_range range = {.from = "b", .from_len = 1};
    assert_int_equal(far_scan(s, m->table, &range, buf, 100, &len, &more), FAR_TOO_SMALL);
    assert_true(len > sizeof value && len < sizeof buf && !more);
    assert_memory_equal(buf, before, sizeof buf);
    assert_int_equal(far_scan(s, m->table, &range, buf, len, &len, &more), FAR_OK);
    assert_true(far_entry_next(buf, len, &pos, &e) && e.value_len == sizeof value && !more);

    range.from_len = 0; /* what fits is returned, and the rest is for the next call */
    assert_int_equal(far_scan(s, m->table, &range, buf, 100, &len, &more), FAR_OK);
    pos = 0;
    assert_true(more && far_entry_next(buf, len, &pos, &e) && e.key_len == 1);
    assert_false(far_entry_next(buf, len, &pos, &e));
    range.flags = FAR_KEYS_ONLY;
    assert_int_equal(far_scan(s, m->table, &range, buf, 100, &len, NULL), FAR_OK);
    pos = 0;
    assert_true(far_entry_next(buf, len, &pos, &e) && far_entry_next(buf, len, &pos, &e));
    assert_true(e.value == NULL && e.value_len == sizeof value);
    close_model(m);
    free(m);
}

/* Between any two looks of a scan, another session adds and removes keys; those that stay come. */
static void keys_that_stay_are_returned_while_others_come_and_go(void **state)
{
    struct model *m = malloc(sizeof *m);
    far_session *other = NULL;
    char buf[256];

    (void)state;
    open_model(m, "mem:?size=64m", 7);
    assert_int_equal(far_session_open(m->rig.pool, NULL, &other), FAR_OK);
    for (uint16_t i = 0; i < 200; i++) {
        uint8_t key[2] = {(uint8_t)i, 's'};
        assert_int_equal(far_put(m->rig.session, m->table, key, 2, &i, 2), FAR_OK);
    }
    struct far_range range = {.from = NULL};
    unsigned stayed = 0, entries = 0;
    uint8_t last[2] = {0, 0};
    bool more = true;
    while (more) {
        struct far_entry e;
        size_t len = 0;
        assert_int_equal(far_scan(other, m->table, &range, buf, sizeof buf, &len, &more), FAR_OK);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e); entries++) {
            assert_true(entries == 0 || memcmp(last, e.key, 2) < 0);
            memcpy(last, e.key, 2);
            if (last[1] == 's')
                assert_int_equal(last[0], stayed++);
            range.from = last;
            range.from_len = 2;
        }
        range.flags = FAR_AFTER;
        for (unsigned i = 0; i < 5; i++) {
            uint8_t key[2] = {(uint8_t)rng_below(&m->rng, 200), (uint8_t)rng_below(&m->rng, 256)};
            if (key[1] != 's' && rng_below(&m->rng, 2))
                assert_int_equal(far_put(m->rig.session, m->table, key, 2, "", 0), FAR_OK);
            else if (key[1] != 's')
                (void)far_delete(m->rig.session, m->table, key, 2);
        }
    }
    assert_int_equal(stayed, 200);
    far_session_close(other);
    close_model(m);
    free(m);
}

static void the_ring_scans_too(void **state)
{
    enum { FLIGHT = 8 };
    static const char *const uris[] = {"mem:?size=64m", "mem:?size=64m&defer=1"};
    struct model *m = malloc(sizeof *m);
    static char buf[FLIGHT][4096];

    (void)state;
    for (unsigned n = 0; n < 2; n++) {
        open_model(m, uris[n], 3);
        fill(m, 300);
        assert_true(m->count > 100);
        struct far_op op[FLIGHT];
        struct far_result result[FLIGHT];
        unsigned begins[FLIGHT], returned = 0;
        for (unsigned i = 0; i < FLIGHT; i++) {
            const struct pair *p = &m->pair[begins[i] = i * 10];
            op[i] = (struct far_op){.kind = FAR_OP_SCAN,
                                    .table = m->table,
                                    .key = p->key,
                                    .key_len = p->key_len,
                                    .limit = 20,
                                    .buf = buf[i],
                                    .cap = sizeof buf[i],
                                    .user_data = i};
        }
        assert_int_equal(far_submit_many(m->rig.session, op, FLIGHT, NULL), FAR_OK);
        while (returned < FLIGHT)
            returned += far_reap(m->rig.session, result + returned, FLIGHT - returned, 1);
        for (unsigned i = 0; i < FLIGHT; i++) {
            struct far_entry e;
            unsigned at = begins[result[i].user_data];
            assert_int_equal(result[i].status, FAR_OK);
            assert_true(result[i].count == 20 && result[i].more);
            for (size_t pos = 0; far_entry_next(buf[result[i].user_data], result[i].len, &pos, &e);)
                expect_entry(&e, &m->pair[at++], false);
            assert_int_equal(at, begins[result[i].user_data] + 20);
        }
        op[0].cap = 8;
        assert_int_equal(far_submit(m->rig.session, op), FAR_OK);
        assert_int_equal(far_reap(m->rig.session, result, 1, 1), 1);
        assert_true(result->status == FAR_TOO_SMALL && result->len > 8);
        close_model(m);
    }
    free(m);
}

static void scans_and_their_entries_are_counted(void **state)
{
    struct model *m = malloc(sizeof *m);
    struct far_stats stats;
    bool more = false;

    (void)state;
    open_model(m, "mem:?size=16m", 1);
    fill(m, 100);
    far_stats(m->rig.session, m->table, &stats);
    assert_int_equal(stats.op[FAR_OP_SCAN].count, 0);
    assert_int_equal(scan_once(m, (struct far_range){.limit = 5}, &more), 5);
    assert_int_equal(scan_once(m, (struct far_range){.limit = 2}, &more), 2);
    far_stats(m->rig.session, m->table, &stats);
    const struct far_op_stats *s = &stats.op[FAR_OP_SCAN];
    assert_true(s->count == 2 && s->entries == 7 && s->errors == 0);
    assert_true(s->rtts == 4 && s->verbs >= 4 && s->bytes_read > 0 && s->bytes_written == 0);
    close_model(m);
    free(m);
}

static void hash_tables_do_not_scan(void **state)
{
    struct store_rig r;
    char buf[100];
    size_t len = 7;
    bool more = true;
    struct far_range range = {.limit = 1};
    struct far_result result;
    struct far_stats stats;
    static const char says[] =
        "table 't' has index race, which does not keep keys in order; indexes of "
        "this build that do: chime";

    (void)state;
    store_rig_open(&r, "mem:?size=16m&defer=1", NULL, NULL, NULL);
    assert_int_equal(far_scan(r.session, r.table, &range, buf, 100, &len, &more), FAR_UNSUPPORTED);
    assert_string_equal(far_error_detail(), says);
    assert_true(len == 7 && more);
    struct far_op op = {.kind = FAR_OP_SCAN, .table = r.table, .buf = buf, .cap = sizeof buf};
    assert_int_equal(far_execute(r.session, &op, &result), FAR_UNSUPPORTED);
    assert_int_equal(far_submit(r.session, &op), FAR_OK);
    assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
    assert_int_equal(result.status, FAR_UNSUPPORTED);
    assert_string_equal(far_error_detail(), says);
    far_stats(r.session, r.table, &stats);
    assert_int_equal(stats.op[FAR_OP_SCAN].count, 0);
    store_rig_close(&r);
}

static void wrong_use_is_refused(void **state)
{
    struct model *m = malloc(sizeof *m);
    static char longest[FAR_KEY_MAX + 1];
    char buf[100];
    size_t len = 7;
    bool more = true;

    (void)state;
    open_model(m, "mem:?size=16m", 1);
    far_session *s = m->rig.session;
    static const struct {
        struct far_range range;
        int rc;
        const char *says;
    } cases[] = {
        {{.from_len = 1}, FAR_INVALID, "from is NULL, but from_len is 1"},
        {{.to_len = 2}, FAR_INVALID, "to is NULL, but to_len is 2"},
        {{.from = longest, .from_len = FAR_KEY_MAX + 1},
         FAR_KEY_SIZE,
         "from has 4097 bytes, but a key has at most 4096"},
        {{.to = longest, .to_len = FAR_KEY_MAX + 1},
         FAR_KEY_SIZE,
         "to has 4097 bytes, but a key has at most 4096"},
        {{.flags = 4}, FAR_INVALID, "flags has unknown bits"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(far_scan(s, m->table, &cases[i].range, buf, 100, &len, &more),
                         cases[i].rc);
        assert_string_equal(far_error_detail(), cases[i].says);
    }
    struct far_range range = {.from = longest, .from_len = FAR_KEY_MAX};
    assert_int_equal(far_scan(s, m->table, &range, NULL, 100, &len, &more), FAR_INVALID);
    assert_string_equal(far_error_detail(), "buf must not be NULL");
    assert_true(len == 7 && more);
    uint64_t cursor = 0;
    assert_int_equal(far_iterate(s, m->table, &cursor, FAR_AFTER, buf, 100, &len), FAR_INVALID);
    assert_int_equal(far_scan(s, m->table, &range, buf, 100, &len, &more), FAR_OK);
    assert_true(len == 0 && !more);
    close_model(m);
    free(m);
}

static void only_ordered_indexes_have_a_scan(void **state)
{
    const struct index_ops *ops = NULL;
    (void)state;
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++) {
        assert_int_equal(ops->ordered, ops->scan != NULL);
        assert_string_not_equal(ops->name, ORDERED_NAME); /* it is for tests only */
    }
    assert_ptr_equal(index_find(ORDERED_NAME), &ordered_index);
    assert_null(index_find("nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_return_what_is_in_the_range),
        cmocka_unit_test(the_ends_of_a_range_are_exact),
        cmocka_unit_test(an_entry_that_does_not_fit_says_how_long_it_is),
        cmocka_unit_test(keys_that_stay_are_returned_while_others_come_and_go),
        cmocka_unit_test(the_ring_scans_too),
        cmocka_unit_test(scans_and_their_entries_are_counted),
        cmocka_unit_test(hash_tables_do_not_scan),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(only_ordered_indexes_have_a_scan),
    };
    ordered_index_add();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
