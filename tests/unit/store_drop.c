/* Dropping tables: names, handles, memory, sessions that still hold the table, and drops that their
 * session did not complete. */
#include "index/race/race.h"
#include "support/audit.h"
#include "support/hook.h"
#include "index/cache.h"
#include "support/puppet.h"
#include "support/race_rig.h"
#include "store/drop.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"

static far_table *create(far_session *s, const char *name)
{
    far_table *t = NULL;
    assert_int_equal(far_table_create(s, name, "race", NULL, &t), FAR_OK);
    return t;
}

static int put(far_session *s, far_table *t, uint64_t key, size_t len)
{
    static const uint8_t value[8192];
    return far_put(s, t, &key, sizeof key, value, len);
}

static int get(far_session *s, far_table *t, uint64_t key)
{
    return far_exists(s, t, &key, sizeof key);
}

/* Keys with values of all kinds of sizes; enough to make the table grow. */
static void fill(far_session *s, far_table *t, unsigned keys)
{
    for (unsigned i = 0; i < keys; i++)
        assert_int_equal(put(s, t, i, i * 37 % 700 + (i % 97 == 0 ? 5000 : 0)), FAR_OK);
}

/* What is retired comes back: with nobody else at work, within a few epochs. */
static void come_back(far_session *s)
{
    for (unsigned i = 0; i < 100000 && puppet_in_limbo(&s->client) > 0; i++) {
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
        client_reclaim(&s->client);
    }
    assert_true(puppet_retired_bytes(&s->client) == 0);
}

static uint64_t live_bytes(far_session *s)
{
    struct far_pool_usage usage;
    assert_int_equal(far_pool_usage(s, &usage), FAR_OK);
    return usage.live;
}

/* The first step only, as of a session that dies behind it. */
static void drop_and_stop(far_session *s, far_table *t)
{
    struct table_desc desc;
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    assert_int_equal(catalog_get(&s->op, t->index.desc.id, &desc), FAR_OK);
    assert_int_equal(catalog_drop(&s->op, &desc), FAR_OK);
    op_end(&s->op);
}

struct listed {
    unsigned count;
    const char *name;
    bool there;
};

static int list(void *arg, const char *name, const char *index)
{
    struct listed *l = arg;
    (void)index;
    l->count++;
    l->there |= strcmp(name, l->name) == 0;
    return 0;
}

static bool is_listed(far_session *s, const char *name, unsigned count)
{
    struct listed l = {.name = name};
    struct far_pool_info info;
    assert_int_equal(far_table_list(s, list, &l), FAR_OK);
    assert_int_equal(l.count, count);
    assert_int_equal(far_pool_info(s, &info), FAR_OK);
    assert_int_equal(info.tables, count);
    return l.there;
}

/* ---- names and handles ----------------------------------------------------------------------- */

static void a_dropped_table_is_gone(void **state)
{
    struct store_rig r;
    far_table *found = NULL;
    struct far_stats stats;
    struct far_table_info info;
    uint64_t cursor = 0;
    char buf[4096];
    size_t len = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_table *u = create(r.session, "u");
    assert_int_equal(put(r.session, u, 1, 10), FAR_OK);
    assert_true(is_listed(r.session, "u", 2));
    assert_int_equal(far_table_drop(r.session, u), FAR_OK);
    assert_false(is_listed(r.session, "u", 1));
    assert_null(store_known(r.session, u)->view);

    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    assert_string_equal(far_error_detail(), "table 'u' was dropped");
    assert_int_equal(put(r.session, u, 1, 10), FAR_NO_TABLE);
    assert_int_equal(far_iterate(r.session, u, &cursor, 0, buf, sizeof buf, &len), FAR_NO_TABLE);
    assert_int_equal(far_table_info(r.session, u, &info), FAR_NO_TABLE);
    assert_int_equal(far_table_check(r.session, u, NULL, NULL), FAR_NO_TABLE);
    assert_int_equal(far_table_drop(r.session, u), FAR_NO_TABLE);
    assert_int_equal(far_table_open(r.session, "u", NULL, &found), FAR_NO_TABLE);
    assert_null(found);
    assert_string_equal(far_table_name(u), "u");
    far_stats(r.session, u, &stats);
    assert_int_equal(stats.op[FAR_OP_PUT].count, 2);

    far_table *again = create(r.session, "u");
    assert_ptr_not_equal(again, u);
    assert_int_equal(again->index.desc.id, u->index.desc.id); /* the place is used again */
    assert_int_equal(get(r.session, again, 1), FAR_NOT_FOUND);
    assert_int_equal(put(r.session, again, 1, 10), FAR_OK);
    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    assert_int_equal(far_table_open(r.session, "u", "race", &found), FAR_OK);
    assert_ptr_equal(found, again);
    assert_int_equal(put(r.session, r.table, 1, 10), FAR_OK);
    store_rig_close(&r);
}

static void the_name_is_free_at_once(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *dropper = store_rig_join(&r);
    fill(r.session, r.table, 100);
    drop_and_stop(dropper, r.table);
    assert_false(is_listed(r.session, "t", 0));
    far_table *again = create(dropper, "t"); /* at another place: the memory has not come back */
    assert_int_not_equal(again->index.desc.id, r.table->index.desc.id);
    assert_int_equal(put(dropper, again, 1, 10), FAR_OK);
    assert_int_equal(get(dropper, again, 2), FAR_NOT_FOUND);
    far_session_close(dropper);
    store_rig_close(&r);
}

/* Far more than fit, if places, handles or memory were not used again. */
static void places_are_used_again(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    for (unsigned i = 0; i < (SLOWER > 1 ? 600u : 3000u); i++) {
        far_table *u = create(r.session, i % 2 ? "u" : "v");
        assert_int_equal(u->index.desc.id, 1);
        assert_int_equal(put(r.session, u, i, 100), FAR_OK);
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
    }
    come_back(r.session);
    expect_nothing_lost(r.pool, r.session);
    store_rig_close(&r);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_comes_back_to_the_byte(void **state)
{
    struct store_rig r;
    struct far_pool_info first = {0}, info;

    (void)state;
    store_rig_open(&r, "mem:?size=32m&nodes=2&" HOUR, NULL, NULL, NULL);
    fill(r.session, r.table, 500);
    uint64_t live = live_bytes(r.session);
    for (unsigned i = 0; i < 6; i++) {
        far_table *u = create(r.session, "u");
        fill(r.session, u, SLOWER > 1 ? 2000 : 10000); /* it grows */
        assert_true(live_bytes(r.session) > live + (512u << 10));
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
        assert_true(live_bytes(r.session) == live);
        come_back(r.session);
        expect_nothing_lost(r.pool, r.session);
        assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
        first = i == 0 ? info : first;
        assert_true(info.bytes_allocated < 2 * first.bytes_allocated);
    }
    for (uint64_t i = 0; i < 500; i++)
        assert_int_equal(get(r.session, r.table, i), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* What a damaged pointer leads to may be another table's: nothing is freed by it. */
static void a_damaged_table_is_dropped_and_swept(void **state)
{
    struct store_rig r;
    struct sweep_result swept;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    uint64_t live = live_bytes(r.session);
    far_table *u = create(r.session, "u");
    fill(r.session, u, 300);
    fill(r.session, r.table, 300);
    uint64_t with_t = live_bytes(r.session);
    const struct race_view *view = race_view(store_known(r.session, u)->view);
    const struct race_view *other = race_view(store_known(r.session, r.table)->view);
    gaddr from = race_entry_subtable(other->entries[0]), to = race_entry_subtable(view->entries[0]);
    uint64_t word = 0, at = sizeof(struct race_subtable_head) + 8;
    while ((word = store_rig_get(&r, from, at)) == 0)
        at += 8;
    store_rig_set(&r, to, at, word); /* a slot that leads to a block of the other table */
    assert_int_equal(far_table_drop(r.session, u), FAR_OK);
    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    assert_true(live_bytes(r.session) < with_t && live_bytes(r.session) > live);
    assert_true(puppet_lost_bytes(&r.session->client) > 0);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    assert_true(swept.bytes > 0);
    puppet_set_lost_bytes(&r.session->client, 0); /* as whoever sweeps to get it back does */
    expect_nothing_lost(r.pool, r.session);
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(get(r.session, r.table, i), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* ---- sessions that still hold the table ------------------------------------------------------ */

static void a_parked_session_finds_out(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *parked = store_rig_join(&r);
    assert_int_equal(put(parked, r.table, 1, 10), FAR_OK);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    assert_int_equal(far_table_drop(r.session, r.table), FAR_OK);
    come_back(r.session);
    far_table *u = create(r.session, "u"); /* of the same memory */
    fill(r.session, u, 1000);
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    assert_int_equal(put(parked, r.table, 1, 10), FAR_NO_TABLE);
    assert_null(store_known(parked, r.table)->view);
    assert_int_equal(get(parked, r.table, 1), FAR_NO_TABLE);
    assert_int_equal(get(parked, u, 1), FAR_OK);
    assert_int_equal(far_table_check(parked, u, NULL, NULL), FAR_OK);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    far_session_close(parked);
    store_rig_close(&r);
}

/* CAT-6: another table has the place, and its descriptor is at the same address, of the same generation,
 * with the same name. */
static void a_parked_session_is_not_deceived(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *parked = store_rig_join(&r);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    for (unsigned i = 0; i < 3; i++) { /* then the same memory is used each time */
        assert_int_equal(far_table_drop(r.session, create(r.session, "u")), FAR_OK);
        come_back(r.session);
    }
    far_table *first = create(r.session, "u"), *u = first;
    assert_int_equal(put(parked, first, 1, 300), FAR_OK);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    unsigned rounds = 0;
    do {
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
        come_back(r.session);
        u = create(r.session, "u");
    } while (u->index.desc.word != first->index.desc.word && ++rounds < 1000);
    assert_true(u->index.desc.word == first->index.desc.word);
    assert_int_equal(u->index.desc.id, first->index.desc.id);
    assert_int_equal(get(parked, first, 1), FAR_NO_TABLE);
    assert_int_equal(get(parked, u, 1), FAR_NOT_FOUND);
    far_session_close(parked);
    store_rig_close(&r);
}

/* The session's own ring: operations in flight end, or find out; later ones find out. */
static void a_ring_finds_out(void **state)
{
    struct store_rig r;
    struct far_session_options options = {.depth = 16};
    struct far_result results[16];
    uint64_t key[16];

    (void)state;
    store_rig_open(&r, "mem:?size=16m&defer=1&" HOUR, NULL, &options, NULL);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 16; i++) {
            key[i] = i;
            struct far_op op = {.kind = i % 2 ? FAR_OP_PUT : FAR_OP_GET,
                                .table = r.table,
                                .key = &key[i],
                                .key_len = 8,
                                .value = key,
                                .value_len = 64};
            assert_int_equal(far_submit(r.session, &op), FAR_OK);
        }
        if (round == 0)
            assert_int_equal(far_table_drop(r.session, r.table), FAR_OK);
        unsigned count = far_reap(r.session, results, 16, 16);
        assert_int_equal(count, 16);
        for (unsigned i = 0; i < count; i++) {
            int rc = results[i].status;
            assert_true(rc == FAR_NO_TABLE ||
                        (round == 0 && (rc == FAR_OK || rc == FAR_NOT_FOUND)));
        }
    }
    assert_null(store_known(r.session, r.table)->view);
    come_back(r.session);
    expect_nothing_lost(r.pool, r.session);
    store_rig_close(&r);
}

/* An operation of the ring is using the view when another one finds out. */
static void a_view_lasts_as_long_as_its_operations(void **state)
{
    struct store_rig r;
    struct far_result result;
    uint64_t key = 1;

    (void)state;
    store_rig_open(&r, "mem:?size=16m&defer=1&" HOUR, NULL, NULL, NULL);
    far_session *dropper = store_rig_join(&r);
    assert_int_equal(put(r.session, r.table, key, 10), FAR_OK);
    struct far_op op = {.kind = FAR_OP_EXISTS, .table = r.table, .key = &key, .key_len = 8};
    assert_int_equal(far_submit(r.session, &op), FAR_OK);
    const struct table_view *v = store_known(r.session, r.table);
    drop_and_stop(dropper, r.table);
    v->view->cached.stale = true;
    assert_int_equal(get(r.session, r.table, key), FAR_NO_TABLE);
    assert_non_null(v->view);
    assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
    assert_int_equal(result.status, FAR_OK); /* it began before */
    assert_null(v->view);
    far_session_close(dropper);
    store_rig_close(&r);
}

/* CAT-3: neither by name nor by handle, though its memory has not come back yet. */
static void a_dropped_table_is_not_attached(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *other = store_rig_join(&r);
    assert_int_equal(put(r.session, r.table, 1, 10), FAR_OK);
    drop_and_stop(r.session, r.table);
    assert_int_equal(get(other, r.table, 1), FAR_NO_TABLE);
    assert_int_equal(client_park(&r.session->op), FAR_OK); /* all that it has cached is stale */
    assert_int_equal(get(r.session, r.table, 1), FAR_NO_TABLE);
    far_session_close(other);
    store_rig_close(&r);
}

/* FABRIC-F1: the words of a READ have no order. A session reads the place while another drops the table: the
 * word before, and whatever its batch reads later after the version was changed. */
static struct {
    far_session *dropper;
    far_table *table;
    bool done;
} tearing;

static void drop_and_outdate(far_session *s, far_table *t)
{
    drop_and_stop(s, t);
    catalog_bump_version(&s->op, &t->index.desc);
    ASSERT(batch_flush(&s->op.batch) == FAR_OK);
}

static int post_word_by_word(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t place = ep->fab->size[0];
    if (!tearing.done)
        place = tearing.dropper->pool->pool.catalog_off +
                tearing.table->index.desc.id * sizeof(struct catalog_entry);
    for (unsigned i = 0; i < req->count; i++) {
        struct fab_verb whole = req->verbs[i];
        uint32_t step = whole.kind == FAB_READ ? 8 : whole.len;
        for (uint32_t at = 0; at < whole.len; at += step) {
            struct fab_verb v = whole;
            v.off += at;
            v.buf = (char *)whole.buf + at;
            v.len = step;
            hook_run(ep, &(struct fab_req){.verbs = &v, .count = 1});
            if (v.node == 0 && v.off == place && !tearing.done) {
                tearing.done = true;
                drop_and_outdate(tearing.dropper, tearing.table);
            }
        }
    }
    req->status = FAR_OK;
    req->done = true;
    return FAR_OK;
}

static void a_place_that_is_read_torn_deceives_nobody(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    assert_int_equal(put(r.session, r.table, 1, 10), FAR_OK);
    far_session *reader = store_rig_join(&r);
    assert_int_equal(get(reader, r.table, 1), FAR_OK);
    store_known(reader, r.table)->view->cached.stale = true;
    tearing = (typeof(tearing)){.dropper = r.session, .table = r.table};
    hook_on(reader->client.ep);
    hook.ops.post = post_word_by_word;
    assert_int_equal(get(reader, r.table, 1), FAR_OK); /* it was there when the word was read */
    hook_off();
    assert_true(tearing.done);
    int rc = FAR_OK;
    for (unsigned i = 0; i < 1000 && rc == FAR_OK; i++) /* a few announcements */
        rc = get(reader, r.table, 1);
    assert_int_equal(rc, FAR_NO_TABLE);
    far_session_close(reader);
    store_rig_close(&r);
}

/* An index whose refresh() is that of the entry cache finds out, too. */
static void a_cache_of_entries_finds_out(void **state)
{
    struct store_rig r;
    struct index_cache *cache = NULL;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *other = store_rig_join(&r);
    assert_int_equal(put(other, r.table, 1, 10), FAR_OK);
    struct index_view *view = store_known(other, r.table)->view;
    assert_int_equal(index_cache_new(65536, 64, &view->cached, &cache), FAR_OK);
    assert_int_equal(op_begin(&other->op, NULL), FAR_OK);
    view->cached.stale = true;
    assert_int_equal(index_cache_refresh(&other->op, view, cache), FAR_OK);
    assert_false(view->cached.stale);
    drop_and_outdate(r.session, r.table);
    view->cached.stale = true;
    assert_int_equal(index_cache_refresh(&other->op, view, cache), FAR_NO_TABLE);
    assert_true(view->cached.stale);
    op_end(&other->op);
    index_cache_free(cache);
    far_session_close(other);
    store_rig_close(&r);
}

#define THREADS 3

struct user {
    far_pool *pool;
    far_table *table;
    pthread_t thread;
    unsigned who;
    atomic_uint *at_work;
    unsigned done;
    int last;
};

/* Works on the table until that is gone. */
static void *use(void *arg)
{
    struct user *u = arg;
    far_session *s = NULL;
    char buf[4096];
    size_t len = 0;
    uint64_t cursor = 0;
    u->last = far_session_open(u->pool, NULL, &s);
    atomic_fetch_add(u->at_work, 1);
    for (uint64_t i = 0; u->last == FAR_OK || u->last == FAR_NOT_FOUND; i++, u->done++) {
        uint64_t key = i * THREADS + u->who;
        if (i % 16 == 15)
            u->last = far_iterate(s, u->table, &cursor, FAR_KEYS_ONLY, buf, sizeof buf, &len);
        else if (i % 4 == 3)
            u->last = far_delete(s, u->table, &(uint64_t){key / 2}, 8);
        else
            u->last = put(s, u->table, key % 20000, i % 300);
    }
    far_session_close(s);
    return NULL;
}

/* As users open pools: sessions that are not used are parked, and those that close leave nothing behind. */
static struct store_rig open_kept(const char *uri)
{
    struct store_rig r = {.fab = NULL};
    assert_int_equal(far_pool_open(uri, &r.pool), FAR_OK);
    r.session = store_rig_join(&r);
    r.table = create(r.session, "t");
    return r;
}

static void close_kept(struct store_rig *r)
{
    far_session_close(r->session);
    far_pool_close(r->pool);
}

static void sessions_at_work_find_out(void **state)
{
    (void)state;
    for (unsigned round = 0; round < (SLOWER > 1 ? 2u : 5u); round++) {
        struct store_rig r = open_kept("mem:?size=64m&nodes=2&lease=60000");
        struct user u[THREADS];
        atomic_uint at_work = 0;
        far_table *t = create(r.session, "u");
        for (unsigned i = 0; i < THREADS; i++) {
            u[i] = (struct user){.pool = r.pool, .table = t, .who = i, .at_work = &at_work};
            assert_int_equal(pthread_create(&u[i].thread, NULL, use, &u[i]), 0);
        }
        while (atomic_load(&at_work) < THREADS)
            sched_yield();
        for (unsigned i = 0; i < round * 300; i++)
            assert_int_equal(put(r.session, t, i, i % 700), FAR_OK);
        assert_int_equal(far_table_drop(r.session, t), FAR_OK);
        for (unsigned i = 0; i < THREADS; i++) {
            pthread_join(u[i].thread, NULL);
            assert_int_equal(u[i].last, FAR_NO_TABLE);
        }
        assert_int_equal(put(r.session, r.table, 1, 10), FAR_OK);
        come_back(r.session);
        expect_nothing_lost(r.pool, r.session);
        close_kept(&r);
    }
}

/* ---- races ----------------------------------------------------------------------------------- */

struct rival {
    far_pool *pool;
    pthread_t thread;
    unsigned created, dropped;
    int failed;
};

#define RIVALRIES (SLOWER > 1 ? 40u : 200u)

/* Creates and drops tables of two names, as all the others do. */
static void *compete(void *arg)
{
    struct rival *c = arg;
    far_session *s = NULL;
    c->failed = far_session_open(c->pool, NULL, &s);
    for (unsigned i = 0; i < RIVALRIES && c->failed == FAR_OK; i++) {
        const char *name = i % 2 ? "a" : "b";
        far_table *t = NULL;
        int rc = far_table_create(s, name, "race", NULL, &t);
        c->created += rc == FAR_OK;
        if (rc == FAR_TABLE_EXISTS)
            rc = far_table_open(s, name, NULL, &t);
        if (rc == FAR_OK)
            (void)put(s, t, i, 64);
        if (rc == FAR_OK) {
            rc = far_table_drop(s, t);
            c->dropped += rc == FAR_OK;
        }
        if (rc != FAR_OK && rc != FAR_NO_TABLE)
            c->failed = rc;
    }
    far_session_close(s);
    return NULL;
}

static void of_creates_and_drops_one_wins_each(void **state)
{
    struct store_rig r = open_kept("mem:?size=32m&lease=60000");
    struct rival c[THREADS];
    unsigned created = 0, dropped = 0;

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (struct rival){.pool = r.pool};
        assert_int_equal(pthread_create(&c[i].thread, NULL, compete, &c[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(c[i].thread, NULL);
        if (c[i].failed != FAR_OK)
            fail_msg("%s", far_errname(c[i].failed));
        created += c[i].created;
        dropped += c[i].dropped;
    }
    assert_true(created > 0);
    assert_int_equal(created, dropped); /* each drops what it has created, if nobody else does */
    assert_false(is_listed(r.session, "a", 1));
    come_back(r.session);
    expect_nothing_lost(r.pool, r.session);
    close_kept(&r);
}

/* CAT-1, one interleaving at a time: a rival adds the same name when the first has read the places, when
 * its place is tentative, or when it has killed what was in its way. */
static struct {
    struct store_rig *rig;
    far_session *rival;
    unsigned at, posts; /* which post the rival comes before */
    int rc;
    bool inside;
} adding;

static struct table_desc desc_of(const char *name)
{
    struct table_desc desc = {.root = 1, .index = "race"};
    snprintf(desc.name, sizeof desc.name, "%s", name);
    return desc;
}

static int post_with_a_rival(struct fab_ep *ep, struct fab_req *req)
{
    if (!adding.inside && ++adding.posts == adding.at) {
        struct table_desc desc = desc_of("same");
        adding.inside = true;
        adding.rc = catalog_add(&adding.rival->op, &desc);
        adding.inside = false;
    }
    return hook.real->post(ep, req);
}

static void of_two_adders_one_wins_whenever_they_meet(void **state)
{
    bool late = false;
    (void)state;
    for (unsigned at = 1; !late; at++) {
        struct store_rig r;
        struct table_desc desc = desc_of("same"), found;
        store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
        adding = (typeof(adding)){.rig = &r, .rival = store_rig_join(&r), .at = at};
        hook_on(r.session->client.ep);
        hook.ops.post = post_with_a_rival;
        int rc = catalog_add(&r.session->op, &desc);
        hook_off();
        late = adding.posts < at;
        assert_true(rc == FAR_OK || (!late && rc == FAR_TABLE_EXISTS));
        if (!late) {
            assert_true((rc == FAR_OK) != (adding.rc == FAR_OK));
            assert_true(rc == FAR_OK ? adding.rc == FAR_TABLE_EXISTS : rc == FAR_TABLE_EXISTS);
        }
        assert_int_equal(catalog_find(&r.session->op, "same", &found), FAR_OK);
        unsigned tables = 0;
        assert_int_equal(catalog_count(&r.session->op, &tables), FAR_OK);
        assert_int_equal(tables, 2);
        far_session_close(adding.rival);
        store_rig_close(&r);
    }
}

/* ---- drops that their session did not complete ------------------------------------------------ */

/* A dropped table is nobody's free memory before its drop is completed, and then it is. */
static void a_sweep_leaves_a_dropped_table_alone(void **state)
{
    struct store_rig r;
    struct sweep_result swept;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    uint64_t before = live_bytes(r.session);
    far_table *u = create(r.session, "u");
    fill(r.session, u, 3000);
    uint64_t with_u = live_bytes(r.session);
    drop_and_stop(r.session, u);
    assert_int_equal(pool_sweep(&r.session->op, &swept), FAR_OK);
    assert_true(live_bytes(r.session) == with_u);
    far_table *v = create(r.session, "v");
    assert_int_equal(far_table_drop(r.session, v), FAR_OK); /* which completes that of u, too */
    assert_true(live_bytes(r.session) == before);
    assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
    come_back(r.session);
    expect_nothing_lost(r.pool, r.session);
    store_rig_close(&r);
}

static void a_full_pool_completes_drops(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    far_table *u = create(r.session, "u");
    unsigned keys = 0;
    while (put(r.session, u, keys, 4000) == FAR_OK)
        keys++;
    assert_true(keys > 100);
    drop_and_stop(r.session, u);
    for (unsigned i = 0; i < keys; i++)
        assert_int_equal(put(r.session, r.table, i, 4000), FAR_OK);
    store_rig_close(&r);
}

static void a_full_catalog_completes_drops(void **state)
{
    struct store_rig r;
    far_table *t = NULL;
    (void)state;
    store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    far_table *u = create(r.session, "u");
    unsigned places = r.pool->pool.places;
    for (unsigned i = 2; i < places; i++) {
        char name[16];
        snprintf(name, sizeof name, "more%u", i);
        struct table_desc desc = desc_of(name);
        assert_int_equal(catalog_add(&r.session->op, &desc), FAR_OK);
    }
    assert_int_equal(far_table_create(r.session, "v", "race", NULL, &t), FAR_CATALOG_FULL);
    drop_and_stop(r.session, u);
    assert_int_equal(far_table_create(r.session, "v", "race", NULL, &t), FAR_OK);
    assert_int_equal(t->index.desc.id, u->index.desc.id);
    store_rig_close(&r);
}

static void take_line(void *arg, const char *line)
{
    snprintf(arg, 100, "%s", line);
}

static void a_repair_completes_drops(void **state)
{
    struct store_rig r;
    struct far_pool_check check;
    char line[100] = "";
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    uint64_t before = live_bytes(r.session);
    far_table *u = create(r.session, "u");
    fill(r.session, u, 1000);
    drop_and_stop(r.session, u);
    assert_int_equal(far_pool_check(r.session, false, take_line, line, &check), FAR_OK);
    assert_string_equal(line, "note: 1 table is being dropped");
    assert_int_equal(check.violations + check.stranded, 0);
    assert_true(live_bytes(r.session) > before);
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
    assert_true(live_bytes(r.session) == before);
    assert_int_equal(check.leaked_bytes, 0);
    store_rig_close(&r);
}

/* Another session completes the drop while this one is at it: before each of its posts in turn. Once
 * the other has the memory, this one does not give it back. */
static struct {
    far_session *other;
    unsigned id, at, posts;
    bool released;
} completing;

static int post_while_another_completes(struct fab_ep *ep, struct fab_req *req)
{
    if (++completing.posts == completing.at) {
        struct op *op = &completing.other->op;
        struct table_desc desc;
        ASSERT(op_begin(op, NULL) == FAR_OK);
        if (catalog_get(op, completing.id, &desc) == FAR_OK && table_is_dropped(&desc))
            ASSERT(catalog_release(op, &desc, &completing.released) == FAR_OK);
        op_end(op);
        ASSERT(client_park(op) == FAR_OK);
    }
    return hook.real->post(ep, req);
}

static void a_drop_is_completed_once(void **state)
{
    bool late = false;
    unsigned released = 0;
    (void)state;
    for (unsigned at = 1; !late; at++) {
        struct store_rig r;
        store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL,
                       &(struct far_table_options){.tuning = "groups=2"});
        far_session *other = store_rig_join(&r);
        assert_int_equal(client_park(&other->op), FAR_OK);
        far_table *u = create(r.session, "u");
        for (unsigned i = 0; i < 40; i++)
            assert_int_equal(put(r.session, u, i, 100), FAR_OK);
        completing = (typeof(completing)){.other = other, .id = u->index.desc.id, .at = at};
        hook_on(r.session->client.ep);
        hook.ops.post = post_while_another_completes;
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
        hook_off();
        late = completing.posts < at;
        released += completing.released;
        assert_int_equal(puppet_in_limbo(&r.session->client) > 0, !completing.released);
        assert_int_equal(get(r.session, u, 1), FAR_NO_TABLE);
        far_session_close(other);
        store_rig_close(&r);
    }
    assert_true(released > 10);
}

/* An operation that does not end holds the memory back, not the name. */
static void a_session_that_stands_still_delays_the_memory(void **state)
{
    struct store_rig r;
    far_table *found = NULL;
    (void)state;
    store_rig_open(&r, "mem:?size=4m&lease=50", NULL, NULL, NULL);
    far_session *slow = store_rig_join(&r);
    far_table *u = create(r.session, "u");
    uint64_t before = live_bytes(r.session);
    assert_int_equal(op_begin(&slow->op, NULL), FAR_OK);
    hook_on(r.session->client.ep);
    hook_clock(); /* nobody's lease lapses, for the clock of the one that waits stands still */
    assert_int_equal(far_table_drop(r.session, u), FAR_TIMEOUT);
    assert_int_equal(far_table_open(r.session, "u", NULL, &found), FAR_NO_TABLE);
    assert_true(live_bytes(r.session) == before);
    assert_int_equal(far_table_drop(r.session, u), FAR_NO_TABLE);
    hook_off();
    op_end(&slow->op);
    far_session_close(slow);
    assert_int_equal(store_drop_settle(r.pool, &r.session->op), FAR_OK);
    assert_true(live_bytes(r.session) < before);
    store_rig_close(&r);
}

/* A session stands still in the middle of an operation, until it is taken for dead, the table is dropped
 * and its memory used again. What it then reads is no damage. */
static struct {
    struct store_rig *rig;
    far_table *other;
    const struct fab_ep *ep;
    unsigned at, posts;
    int (*post)(struct fab_ep *ep, struct fab_req *req);
} stopped;

static int post_after_a_drop(struct fab_ep *ep, struct fab_req *req)
{
    if (ep == stopped.ep && ++stopped.posts == stopped.at) {
        far_session *s = stopped.rig->session;
        ASSERT(far_table_drop(s, stopped.rig->table) == FAR_OK);
        while (puppet_in_limbo(&s->client) > 0) {
            ASSERT(client_drive_epoch(&s->op) == FAR_OK);
            client_reclaim(&s->client);
        }
        for (unsigned i = 0; i < 50; i++) /* blocks as large as a root */
            ASSERT(put(s, stopped.other, i, 90) == FAR_OK);
    }
    return stopped.post(ep, req);
}

static int info_of(far_session *s, far_table *t)
{
    struct far_table_info info;
    return far_table_info(s, t, &info);
}

static void no_line(void *arg, const char *line)
{
    (void)arg;
    fail_msg("%s", line);
}

static int check_of(far_session *s, far_table *t)
{
    return far_table_check(s, t, no_line, NULL);
}

static int get_one(far_session *s, far_table *t)
{
    return get(s, t, 1);
}

static int open_named(far_session *s, far_table *t)
{
    far_table *found = NULL;
    return far_table_open(s, far_table_name(t), NULL, &found);
}

static int create_other(far_session *s, far_table *t)
{
    far_table *made = NULL;
    int rc = far_table_create(s, "w", "race", NULL, &made);
    return rc == FAR_OK ? get_one(s, t) : rc;
}

static int list_all(far_session *s, far_table *t)
{
    struct listed l = {.name = far_table_name(t)};
    int rc = far_table_list(s, list, &l);
    return rc == FAR_OK ? get_one(s, t) : rc;
}

static int put_many(far_session *s, far_table *t)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < 60 && rc == FAR_OK; i++)
        rc = put(s, t, i, 60);
    return rc == FAR_OK ? get_one(s, t) : rc; /* the last may have been done before */
}

static int iterate_all(far_session *s, far_table *t)
{
    char buf[512];
    size_t len = 0;
    uint64_t cursor = 0;
    int rc = FAR_OK;
    do
        rc = far_iterate(s, t, &cursor, 0, buf, sizeof buf, &len);
    while (rc == FAR_OK && cursor != 0);
    return rc;
}

static int delete_many(far_session *s, far_table *t)
{
    int rc = FAR_NOT_FOUND;
    for (unsigned i = 0; i < 30 && (rc == FAR_NOT_FOUND || rc == FAR_OK); i++)
        rc = far_delete(s, t, &(uint64_t){i}, 8);
    if (rc == FAR_NOT_FOUND || rc == FAR_OK)
        rc = get_one(s, t);
    return rc == FAR_NOT_FOUND ? FAR_OK : rc;
}

static int use_pool(far_session *s, far_table *t)
{
    struct far_pool_usage usage;
    int rc = far_pool_usage(s, &usage);
    return rc == FAR_OK ? get_one(s, t) : rc;
}

static int check_the_pool(far_session *s, far_table *t)
{
    struct far_pool_check check;
    int rc = far_pool_check(s, false, NULL, NULL, &check);
    return rc == FAR_OK ? get_one(s, t) : rc;
}

/* `allowed`: besides FAR_NO_TABLE. */
static void stand_still(int (*work)(far_session *s, far_table *t), int allowed)
{
    bool late = false;
    for (unsigned at = 1; !late; at++) {
        struct store_rig r;
        store_rig_open_driven(&r, "mem:?size=4m&lease=1000", NULL, NULL,
                              &(struct far_table_options){.tuning = "groups=2"});
        assert_int_equal(put(r.session, r.table, 1, 10), FAR_OK);
        far_session *slow = store_rig_join(&r);
        stopped = (typeof(stopped)){.rig = &r,
                                    .other = create(r.session, "u"),
                                    .ep = slow->client.ep,
                                    .at = at,
                                    .post = r.clock->ops.post};
        r.clock->ops.post = post_after_a_drop;
        int rc = work(slow, r.table);
        late = stopped.posts < at;
        stopped.ep = NULL;
        if (late)
            assert_int_equal(rc, FAR_OK);
        else if (rc != allowed)
            assert_int_equal(rc, FAR_NO_TABLE);
        far_session_close(slow);
        store_rig_close(&r);
    }
    assert_true(stopped.posts > 1);
}

static void a_session_that_stood_still_finds_no_damage(void **state)
{
    (void)state;
    stand_still(get_one, FAR_NO_TABLE);
    stand_still(put_many, FAR_NO_TABLE);
    stand_still(delete_many, FAR_NO_TABLE);
    stand_still(iterate_all, FAR_NO_TABLE);
    stand_still(info_of, FAR_NO_TABLE);
    stand_still(check_of, FAR_NO_TABLE);
    stand_still(open_named, FAR_OK); /* it may have found it before */
    stand_still(create_other, FAR_NO_TABLE);
    stand_still(list_all, FAR_NO_TABLE);
    stand_still(use_pool, FAR_FENCED);
    stand_still(check_the_pool, FAR_FENCED);
}

/* ---- many ------------------------------------------------------------------------------------ */

static void thousands_of_tables_come_and_go(void **state)
{
    struct store_rig r;
    unsigned many = SLOWER > 1 ? 60 : 600;
    far_table **t = calloc(many, sizeof(far_table *));
    (void)state;
    assert_non_null(t);
    store_rig_open(&r, "mem:?size=64m&" HOUR, NULL, NULL, NULL);
    assert_int_equal(r.pool->pool.places, 4096);
    uint64_t live = live_bytes(r.session);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < many; i++) {
            char name[16];
            snprintf(name, sizeof name, "n%u", i);
            t[i] = create(r.session, name);
            assert_int_equal(put(r.session, t[i], i, 20), FAR_OK);
        }
        assert_true(is_listed(r.session, "n7", many + 1));
        for (unsigned i = 0; i < many; i++)
            assert_int_equal(get(r.session, t[i], i), FAR_OK);
        for (unsigned i = 0; i < many; i++) /* not in the order of their making */
            assert_int_equal(far_table_drop(r.session, t[i * 7 % many]), FAR_OK);
        assert_false(is_listed(r.session, "n7", 1));
        assert_true(live_bytes(r.session) == live);
    }
    come_back(r.session);
    expect_nothing_lost(r.pool, r.session);
    free(t);
    store_rig_close(&r);
}

static far_table *create_small(far_session *s, unsigned i)
{
    struct far_table_options options = {.tuning = "groups=2&depth=2"};
    far_table *table = NULL;
    char name[16];
    snprintf(name, sizeof name, "n%u", i);
    assert_int_equal(far_table_create(s, name, "race", &options, &table), FAR_OK);
    return table;
}

/* As many as the catalog holds. */
static void a_pool_holds_4096_tables(void **state)
{
    static far_table *table[4096];
    struct store_rig r;
    struct table_desc found;
    far_table *none = NULL;
    uint64_t got = 0;
    char name[16];

    (void)state;
    store_rig_open(&r, "mem:?size=128m&" HOUR, NULL, NULL, NULL);
    struct op *op = &r.session->op;
    for (uint64_t i = 1; i < 4096; i++) {
        table[i] = create_small(r.session, (unsigned)i);
        assert_int_equal(far_put(r.session, table[i], &i, 8, &i, 8), FAR_OK);
    }
    assert_true(is_listed(r.session, "n4095", 4096));
    for (unsigned i = 1; i < 4096; i += 5) {
        snprintf(name, sizeof name, "n%u", i);
        op->cost = (struct cost){0};
        assert_int_equal(catalog_find(op, name, &found), FAR_OK);
        assert_true(op->cost.rtts <= 2); /* the places, and the descriptors that it may be */
        assert_true(op->cost.verbs < 64);
        assert_string_equal(found.name, name);
    }
    assert_int_equal(far_table_open(r.session, "n4096", NULL, &none), FAR_NO_TABLE);
    assert_int_equal(far_table_create(r.session, "n4096", "race", NULL, &none), FAR_CATALOG_FULL);
    assert_int_equal(far_table_create(r.session, "n17", "race", NULL, &none), FAR_TABLE_EXISTS);
    assert_int_equal(far_table_drop(r.session, r.table), FAR_OK); /* a hole */
    assert_int_equal(far_table_create(r.session, "n17", "race", NULL, &none), FAR_TABLE_EXISTS);
    assert_int_equal(create_small(r.session, 4096)->index.desc.id, r.table->index.desc.id);
    for (uint64_t i = 1; i < 4096; i++) {
        assert_int_equal(far_get(r.session, table[i], &i, 8, &got, 8, NULL), FAR_OK);
        assert_true(got == i);
    }
    store_rig_close(&r);
}

/* Its place is another table's by now, which is not looked at for what the line says. */
static void a_journal_of_a_dropped_table_is_nothing_to_do(void **state)
{
    struct store_rig r;
    uint64_t rtts[2];

    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    struct op *op = &r.session->op;
    const struct pool *pool = &r.pool->pool;
    const struct table_desc *desc = &r.table->index.desc;
    assert_int_equal(far_exists(r.session, r.table, "k", 1), FAR_NOT_FOUND); /* the view is made */
    for (unsigned same = 0; same < 2; same++) {
        struct journal_entry entry = {.subject = {.place = desc->id, .tag = desc->serial + !same},
                                      .data =
                                          race_view(store_known(r.session, r.table)->view)->entries,
                                      .len = 8};
        op->cost = (struct cost){0};
        assert_int_equal(pool->recover(pool->tables, op, &entry), FAR_OK);
        rtts[same] = op->cost.rtts;
    }
    assert_true(rtts[0] < rtts[1]);
    store_rig_close(&r);
}

static uint64_t away; /* offset of a root that is out of reach */

static int post_not_to_a_root(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].off == away)
            return FAR_UNREACHABLE;
    return hook.real->post(ep, req);
}

/* Two sessions died in the middle of a drop. The memory of the first table is out of reach. */
static void a_table_that_cannot_be_walked_holds_up_no_other(void **state)
{
    struct table_desc now;
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    struct op *op = &r.session->op;
    far_table *other = create(r.session, "other");
    far_table *table[] = {r.table, other};
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(catalog_drop(op, &table[i]->index.desc), FAR_OK);
    op_end(op);
    away = gaddr_offset(r.table->index.desc.root);
    hook_on(r.session->client.ep);
    hook.ops.post = post_not_to_a_root;
    assert_int_equal(store_drop_settle(r.pool, op), FAR_UNREACHABLE);
    hook_off();
    assert_int_equal(catalog_get(op, other->index.desc.id, &now), FAR_NO_TABLE);
    assert_int_equal(catalog_get(op, r.table->index.desc.id, &now), FAR_OK);
    assert_int_equal(store_drop_settle(r.pool, op), FAR_OK);
    assert_int_equal(catalog_get(op, r.table->index.desc.id, &now), FAR_NO_TABLE);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dropped_table_is_gone),
        cmocka_unit_test(the_name_is_free_at_once),
        cmocka_unit_test(places_are_used_again),
        cmocka_unit_test(memory_comes_back_to_the_byte),
        cmocka_unit_test(a_damaged_table_is_dropped_and_swept),
        cmocka_unit_test(a_parked_session_finds_out),
        cmocka_unit_test(a_parked_session_is_not_deceived),
        cmocka_unit_test(a_ring_finds_out),
        cmocka_unit_test(a_view_lasts_as_long_as_its_operations),
        cmocka_unit_test(a_dropped_table_is_not_attached),
        cmocka_unit_test(a_place_that_is_read_torn_deceives_nobody),
        cmocka_unit_test(a_cache_of_entries_finds_out),
        cmocka_unit_test(sessions_at_work_find_out),
        cmocka_unit_test(of_creates_and_drops_one_wins_each),
        cmocka_unit_test(of_two_adders_one_wins_whenever_they_meet),
        cmocka_unit_test(a_sweep_leaves_a_dropped_table_alone),
        cmocka_unit_test(a_full_pool_completes_drops),
        cmocka_unit_test(a_full_catalog_completes_drops),
        cmocka_unit_test(a_repair_completes_drops),
        cmocka_unit_test(a_drop_is_completed_once),
        cmocka_unit_test(a_session_that_stands_still_delays_the_memory),
        cmocka_unit_test(a_session_that_stood_still_finds_no_damage),
        cmocka_unit_test(thousands_of_tables_come_and_go),
        cmocka_unit_test(a_pool_holds_4096_tables),
        cmocka_unit_test(a_table_that_cannot_be_walked_holds_up_no_other),
        cmocka_unit_test(a_journal_of_a_dropped_table_is_nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
