/* Tables that are dropped while other sessions hold them: at rest, on rings, in threads, in the
 * middle of an operation. */
#include "index/cache.h"
#include "index/race/race.h"
#include "support/drop_rig.h"
#include "support/hook.h"

#include "store/drop.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static void a_parked_session_finds_out(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *parked = store_rig_join(&r);
    assert_int_equal(put(parked, r.table, 1, 10), FAR_OK);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    assert_int_equal(far_table_drop(r.session, r.table), FAR_OK);
    puppet_reclaim_all(&r.session->op);
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

/* CAT-6: another table has the place, and its descriptor is at the same address, of the same
 * generation, with the same name. */
static void a_parked_session_is_not_deceived(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=16m&" HOUR, NULL, NULL, NULL);
    far_session *parked = store_rig_join(&r);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    for (unsigned i = 0; i < 3; i++) { /* then the same memory is used each time */
        assert_int_equal(far_table_drop(r.session, create(r.session, "u")), FAR_OK);
        puppet_reclaim_all(&r.session->op);
    }
    far_table *first = create(r.session, "u"), *u = first;
    assert_int_equal(put(parked, first, 1, 300), FAR_OK);
    assert_int_equal(client_park(&parked->op), FAR_OK);
    unsigned rounds = 0;
    do {
        assert_int_equal(far_table_drop(r.session, u), FAR_OK);
        puppet_reclaim_all(&r.session->op);
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
    puppet_reclaim_all(&r.session->op);
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

/* FABRIC-F1: the words of a READ have no order. A session reads the place while another drops the
 * table: the word before, and whatever its batch reads later after the version was changed. */
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

static void sessions_at_work_find_out(void **state)
{
    (void)state;
    for (unsigned round = 0; round < (SLOWER > 1 ? 1u : 5u); round++) {
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
        puppet_reclaim_all(&r.session->op);
        expect_nothing_lost(r.pool, r.session);
        close_kept(&r);
    }
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

/* A session stands still in the middle of an operation, until it is taken for dead, the table is
 * dropped and its memory used again. What it then reads is no damage. */
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
        puppet_reclaim_all(&s->op);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_parked_session_finds_out),
        cmocka_unit_test(a_parked_session_is_not_deceived),
        cmocka_unit_test(a_ring_finds_out),
        cmocka_unit_test(a_view_lasts_as_long_as_its_operations),
        cmocka_unit_test(a_dropped_table_is_not_attached),
        cmocka_unit_test(a_place_that_is_read_torn_deceives_nobody),
        cmocka_unit_test(a_cache_of_entries_finds_out),
        cmocka_unit_test(sessions_at_work_find_out),
        cmocka_unit_test(a_session_that_stands_still_delays_the_memory),
        cmocka_unit_test(a_session_that_stood_still_finds_no_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
