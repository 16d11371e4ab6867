/* The catalog of tables: names, order, its limit, and clients that add at the same time. */
#include "support/pool_rig.h"
#include "support/puppet.h"

#include <pthread.h>
#include <stdio.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct table_desc desc_of(const char *name, uint64_t root)
{
    struct table_desc d = {.root = root, .hash_seed = root * 7 + 1, .id = 999};

    snprintf(d.name, sizeof d.name, "%s", name);
    snprintf(d.index, sizeof d.index, "race");
    return d;
}

static void expect_desc(const struct table_desc *got, const struct table_desc *want)
{
    assert_string_equal(got->name, want->name);
    assert_string_equal(got->index, want->index);
    assert_true(got->root == want->root);
    assert_true(got->hash_seed == want->hash_seed);
    assert_int_equal(got->id, want->id);
}

static void an_empty_catalog_has_no_table(void **state)
{
    struct pool_rig r;
    struct table_desc d = {.id = 77};

    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    assert_int_equal(catalog_find(&r.op, "t", &d), FAR_NO_TABLE);
    assert_int_equal(catalog_get(&r.op, 0, &d), FAR_NO_TABLE);
    assert_int_equal(catalog_get(&r.op, r.pool.places, &d), FAR_NO_TABLE);
    assert_int_equal(d.id, 77);
    pool_rig_close(&r);
}

static void tables_are_found_by_name_and_in_the_order_of_their_making(void **state)
{
    static struct table_desc made[1024];
    struct pool_rig r, other;
    struct table_desc d;
    char name[FAR_NAME_MAX + 1];

    (void)state;
    pool_rig_open(&r, "mem:?size=8m&nodes=2");
    unsigned places = r.pool.places;
    assert_int_equal(places, 1024); /* a place for each 8 KiB of node 0 */
    for (unsigned i = 0; i < places; i++) {
        /* From one byte to the longest, among them names that begin alike. */
        memset(name, 'n', sizeof name);
        name[i % FAR_NAME_MAX + 1] = '\0';
        name[0] = (char)('n' + i / FAR_NAME_MAX);
        made[i] = desc_of(name, 1000 + i);
        assert_int_equal(catalog_add(&r.op, &made[i]), FAR_OK);
        assert_int_equal(made[i].id, i);
    }
    assert_int_equal(pool_rig_join(&other, r.fab, 2),
                     FAR_OK); /* a client that was not there at the time */
    for (unsigned i = 0; i < places; i++) {
        assert_int_equal(catalog_get(&other.op, i, &d), FAR_OK);
        expect_desc(&d, &made[i]);
        assert_int_equal(catalog_find(&other.op, made[i].name, &d), FAR_OK);
        expect_desc(&d, &made[i]);
    }
    assert_int_equal(catalog_find(&other.op, "absent", &d), FAR_NO_TABLE);

    struct table_desc more = desc_of("one too many", 1);
    assert_int_equal(catalog_add(&r.op, &more), FAR_CATALOG_FULL);
    assert_int_equal(more.id, 999);
    more = desc_of("n", 1);
    assert_int_equal(catalog_add(&r.op, &more), FAR_TABLE_EXISTS); /* nearer than "full" */
    pool_rig_close(&other);
    pool_rig_close(&r);
}

static void a_second_table_of_a_name_is_refused(void **state)
{
    struct pool_rig r;
    struct table_desc first = desc_of("twice", 1), second = desc_of("twice", 2), d;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    assert_int_equal(catalog_add(&r.op, &first), FAR_OK);
    assert_int_equal(catalog_add(&r.op, &second), FAR_TABLE_EXISTS);
    assert_int_equal(catalog_find(&r.op, "twice", &d), FAR_OK);
    expect_desc(&d, &first);
    assert_int_equal(catalog_get(&r.op, 1, &d), FAR_NO_TABLE);
    pool_rig_close(&r);
}

static void refused_descriptors_take_no_memory(void **state)
{
    struct pool_rig r;
    struct table_desc d = desc_of("here", 1);

    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    assert_int_equal(catalog_add(&r.op, &d), FAR_OK);
    for (unsigned i = 0; i < 20000; i++)
        assert_int_equal(catalog_add(&r.op, &d), FAR_TABLE_EXISTS);
    assert_true(puppet_retired_bytes(&r.client) == 0);
    pool_rig_close(&r);
}

/* ---- clients that add at the same time ------------------------------------------------------- */

#define THREADS 4
#define ROUNDS  15 /* times THREADS, plus the shared ones, fit the catalog */

struct adder {
    struct pool_rig rig;
    pthread_t thread;
    pthread_barrier_t *barrier;
    unsigned who;
    int rc[ROUNDS];
    unsigned id[ROUNDS];
};

/* Every round, all add a table of one name at once. */
static void *add_the_same(void *arg)
{
    struct adder *a = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "round %u", i);
        struct table_desc d = desc_of(name, 100 * i + a->who);
        pthread_barrier_wait(a->barrier);
        a->rc[i] = catalog_add(&a->rig.op, &d);
        a->id[i] = d.id;
    }
    return NULL;
}

/* Every round, each adds a table of a name of its own. */
static void *add_different(void *arg)
{
    struct adder *a = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "round %u by %u", i, a->who);
        struct table_desc d = desc_of(name, 100 * i + a->who);
        pthread_barrier_wait(a->barrier);
        a->rc[i] = catalog_add(&a->rig.op, &d);
        a->id[i] = d.id;
    }
    return NULL;
}

static void run_adders(struct adder *a, void *(*run)(void *))
{
    pthread_barrier_t barrier;

    pthread_barrier_init(&barrier, NULL, THREADS);
    pool_rig_open(&a[0].rig, "mem:?size=8m&nodes=2");
    for (unsigned i = 0; i < THREADS; i++) {
        if (i > 0)
            assert_int_equal(pool_rig_join(&a[i].rig, a[0].rig.fab, i + 1), FAR_OK);
        a[i].who = i;
        a[i].barrier = &barrier;
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&a[i].thread, NULL, run, &a[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(a[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

static void of_clients_that_add_one_name_one_wins(void **state)
{
    static struct adder a[THREADS];
    struct table_desc d;
    unsigned tables = 0;

    (void)state;
    run_adders(a, add_the_same);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned winner = THREADS;
        for (unsigned who = 0; who < THREADS; who++) {
            if (a[who].rc[i] == FAR_OK) {
                assert_int_equal(winner, THREADS);
                winner = who;
            } else {
                assert_int_equal(a[who].rc[i], FAR_TABLE_EXISTS);
            }
        }
        assert_in_range(winner, 0, THREADS - 1);
        assert_int_equal(catalog_get(&a[0].rig.op, a[winner].id[i], &d), FAR_OK);
        assert_true(d.root == 100 * i + winner);
    }
    for (unsigned i = 0; i < a[0].rig.pool.places; i++)
        tables += catalog_get(&a[0].rig.op, i, &d) == FAR_OK;
    assert_int_equal(tables, ROUNDS);
    for (unsigned i = THREADS; i-- > 0;)
        pool_rig_close(&a[i].rig);
}

static void clients_that_add_different_names_all_win(void **state)
{
    static struct adder a[THREADS];
    bool seen[THREADS * ROUNDS] = {false};

    (void)state;
    run_adders(a, add_different);
    for (unsigned who = 0; who < THREADS; who++) {
        for (unsigned i = 0; i < ROUNDS; i++) {
            struct table_desc d;
            assert_int_equal(a[who].rc[i], FAR_OK);
            assert_in_range(a[who].id[i], 0, THREADS * ROUNDS - 1);
            assert_false(seen[a[who].id[i]]);
            seen[a[who].id[i]] = true;
            assert_int_equal(catalog_get(&a[0].rig.op, a[who].id[i], &d), FAR_OK);
            assert_true(d.root == 100 * i + who);
        }
    }
    for (unsigned i = THREADS; i-- > 0;)
        pool_rig_close(&a[i].rig);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void a_damaged_entry_is_corrupt_not_absent(void **state)
{
    struct pool_rig r;
    struct table_desc first = desc_of("first", 1), second = desc_of("second", 2), d;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    assert_int_equal(catalog_add(&r.op, &first), FAR_OK);
    assert_int_equal(catalog_add(&r.op, &second), FAR_OK);
    uint64_t at = r.pool.catalog_off, word = pool_rig_get(&r, 0, at);
    struct table_desc more = desc_of("third", 3);
    for (unsigned bit = 0; bit < 64; bit++) {
        pool_rig_set(&r, 0, at, word ^ 1ull << bit);
        assert_int_equal(catalog_find(&r.op, "first", &d), FAR_CORRUPT);
        assert_int_equal(catalog_get(&r.op, 0, &d), FAR_CORRUPT);
        assert_int_equal(catalog_find(&r.op, "second", &d), FAR_OK);
        assert_int_equal(catalog_add(&r.op, &more),
                         FAR_CORRUPT); /* the damaged one may have had that name */
    }
    pool_rig_set(&r, 0, at, word);
    assert_int_equal(catalog_find(&r.op, "first", &d), FAR_OK);

    uint64_t off = gaddr_offset(word & ((1ull << GADDR_BITS) - 1));
    uint64_t kept = pool_rig_get(&r, 0, off + 24);
    pool_rig_set(&r, 0, off + 24, kept ^ 1);
    assert_int_equal(catalog_find(&r.op, "first", &d), FAR_CORRUPT);
    assert_int_equal(catalog_find(&r.op, "second", &d), FAR_OK);
    assert_int_equal(catalog_get(&r.op, 0, &d), FAR_CORRUPT);
    assert_int_equal(catalog_get(&r.op, 1, &d), FAR_OK);
    assert_int_equal(catalog_add(&r.op, &first), FAR_CORRUPT);
    pool_rig_close(&r);
}

/* Adds "first", and a table whose name has the same hash: only descriptors tell them apart. */
static void add_two_of_one_hash(struct pool_rig *r, struct table_desc *first,
                                struct table_desc *alike)
{
    unsigned hash = hash_sum("first", 5, 0) & 0xff, i = 0;
    char name[16];

    do
        snprintf(name, sizeof name, "n%u", i++);
    while ((hash_sum(name, strlen(name), 0) & 0xff) != hash);
    *first = desc_of("first", 1);
    *alike = desc_of(name, 2);
    assert_int_equal(catalog_add(&r->op, first), FAR_OK);
    assert_int_equal(catalog_add(&r->op, alike), FAR_OK);
}

static void a_damaged_descriptor_hides_no_other(void **state)
{
    struct pool_rig r;
    struct table_desc first, alike, d;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    add_two_of_one_hash(&r, &first, &alike);
    uint64_t off = gaddr_offset(first.word & ((1ull << GADDR_BITS) - 1));
    pool_rig_set(&r, 0, off + 24, pool_rig_get(&r, 0, off + 24) ^ 1);
    assert_int_equal(catalog_find(&r.op, alike.name, &d), FAR_OK);
    expect_desc(&d, &alike);
    assert_int_equal(catalog_find(&r.op, "first", &d), FAR_CORRUPT);
    assert_int_equal(catalog_add(&r.op, &alike), FAR_TABLE_EXISTS);
    pool_rig_close(&r);
}

/* The second word has a class that no descriptor has, and its check bits are right. The READ of the
 * first descriptor must not stay in the batch. */
static void a_damaged_class_leaves_no_verbs_behind(void **state)
{
    struct pool_rig r;
    struct table_desc first, alike, d;

    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    add_two_of_one_hash(&r, &first, &alike);
    uint64_t off = r.pool.catalog_off + alike.id * sizeof(struct catalog_entry);
    uint64_t word = catalog_with_state(alike.word | 7ull << GADDR_BITS, CATALOG_LIVE);
    pool_rig_set(&r, 0, off, word);
    assert_int_equal(catalog_find(&r.op, alike.name, &d), FAR_CORRUPT);
    assert_int_equal(r.op.batch.count, 0);
    pool_rig_close(&r);
}

/* ---- walks ----------------------------------------------------------------------------------- */

struct marked {
    struct marker marker;
    unsigned count;
    gaddr at;
};

static void note_marked(struct marker *marker, gaddr at, unsigned size_class)
{
    struct marked *m = (struct marked *)marker;
    (void)size_class;
    m->count++;
    m->at = at;
}

/* A walk comes to live tables and to dropped ones, and to a damaged entry, so that a check reports
 * it. It does not come to a name that somebody is adding. A damaged entry leads nowhere. */
static void walks_come_to_tables_and_to_damage(void **state)
{
    static const struct {
        enum catalog_state state;
        bool damaged, walked, dropped, marked;
    } cases[] = {
        {CATALOG_TENTATIVE, false, false, false, false},
        {CATALOG_LIVE, false, true, false, true},
        {CATALOG_DROPPED, false, true, true, true},
        {CATALOG_TENTATIVE, true, true, false, false},
        {CATALOG_LIVE, true, true, false, false},
        {CATALOG_DROPPED, true, true, false, false},
    };
    struct pool_rig r;
    struct table_desc d = desc_of("t", 1);

    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    assert_int_equal(catalog_add(&r.op, &d), FAR_OK);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t word = catalog_with_state(d.word, cases[i].state);
        struct marked m = {.marker.mark = note_marked};
        unsigned any = 0, dropped = 0;
        pool_rig_set(&r, 0, r.pool.catalog_off, word ^ cases[i].damaged);
        assert_int_equal(catalog_next(&r.op, false, &any), cases[i].walked ? FAR_OK : FAR_NO_TABLE);
        assert_int_equal(catalog_next(&r.op, true, &dropped),
                         cases[i].dropped ? FAR_OK : FAR_NO_TABLE);
        assert_int_equal(catalog_mark(&r.op, &m.marker), FAR_OK);
        assert_int_equal(m.count, cases[i].marked);
        assert_true(m.at == (cases[i].marked ? catalog_gaddr(word) : 0));
    }
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_catalog_has_no_table),
        cmocka_unit_test(tables_are_found_by_name_and_in_the_order_of_their_making),
        cmocka_unit_test(a_second_table_of_a_name_is_refused),
        cmocka_unit_test(refused_descriptors_take_no_memory),
        cmocka_unit_test(of_clients_that_add_one_name_one_wins),
        cmocka_unit_test(clients_that_add_different_names_all_win),
        cmocka_unit_test(a_damaged_entry_is_corrupt_not_absent),
        cmocka_unit_test(a_damaged_descriptor_hides_no_other),
        cmocka_unit_test(a_damaged_class_leaves_no_verbs_behind),
        cmocka_unit_test(walks_come_to_tables_and_to_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
