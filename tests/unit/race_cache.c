/*
 * A session's cache of the directory keeps addresses, so it must be filled within an epoch, and
 * never with something older than the epoch of an operation that uses it.
 */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define LEASE "lease=3600000"

static void put(struct store_rig *r, uint64_t key)
{
    assert_int_equal(far_put(r->session, r->table, &key, 8, &key, 8), FAR_OK);
}

static bool is_free(const struct client *c, gaddr at)
{
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        if (puppet_keeps(c, at, i))
            return true;
    return false;
}

/* The subtable that the view's cache names for a key. */
static gaddr subtable_of(const struct race_view *view, uint64_t number)
{
    struct race_key key;
    race_hash(view, (struct slice){&number, 8}, &key);
    return race_entry_subtable(view->entries[key.hash & ((1ull << view->depth) - 1)]);
}

/* Every key is there, as a session sees it that has cached nothing, and the table is sound. */
static void all_there(struct store_rig *r, uint64_t keys)
{
    far_session *fresh = NULL;
    assert_int_equal(far_session_open(r->pool, NULL, &fresh), FAR_OK);
    for (uint64_t key = 0; key < keys; key++)
        assert_int_equal(far_exists(fresh, r->table, &key, 8), FAR_OK);
    assert_int_equal(far_table_check(fresh, r->table, NULL, NULL), FAR_OK);
    far_session_close(fresh);
}

static void drive_epochs(far_session *s, unsigned turns)
{
    for (unsigned i = 0; i < turns; i++)
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
    while (client_reclaim(&s->client)) {
    }
}

/* ---- attaching ------------------------------------------------------------------------------- */

static struct {
    struct store_rig *rig;
    gaddr parent;
    uint64_t keys;
    unsigned stage;
} attach;

/* The parked session's first operation: when it announces itself, the subtable that its view may
 * know by now is split and retired; when it then reads that subtable, it is used for another. */
static int post_while_attaching(struct fab_ep *ep, struct fab_req *req)
{
    struct store_rig *r = attach.rig;
    const struct fab_verb *v = &req->verbs[0];
    if (attach.stage == 0 && v->off == CONTROL_OFF) {
        attach.stage = 1;
        for (uint64_t before = race_rig_view(r)->base.grown;
             race_rig_view(r)->base.grown == before;)
            put(r, attach.keys++);
        for (unsigned i = 0; i < 40 && !is_free(&r->session->client, attach.parent); i++)
            drive_epochs(r->session, 1);
    } else if (attach.stage == 1 && v->kind == FAB_READ && v->off == gaddr_offset(attach.parent)) {
        attach.stage = 2;
        while (is_free(&r->session->client, attach.parent))
            put(r, attach.keys++);
    }
    return hook.real->post(ep, req);
}

static void a_table_is_attached_within_an_epoch(void **state)
{
    struct far_table_options table = {.tuning = "groups=2"};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *idle = NULL;
    uint64_t key = 1000000;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=64m&" LEASE, &knobs, NULL, &table);
    assert_int_equal(far_session_open(r.pool, NULL, &idle), FAR_OK);
    for (attach.keys = 0; attach.keys < 20; attach.keys++)
        put(&r, attach.keys);
    attach.parent = race_entry_subtable(race_rig_view(&r)->entries[0]);
    attach.rig = &r;
    assert_int_equal(client_park(&idle->op), FAR_OK); /* as the keeper does */
    hook_on(idle->client.ep);
    hook.ops.post = post_while_attaching;
    assert_int_equal(far_put(idle, r.table, &key, 8, &key, 8), FAR_OK);
    hook_off();
    assert_true(attach.stage >= 1);
    all_there(&r, attach.keys);
    far_session_close(idle);
    store_rig_close(&r);
}

/* ---- refreshing ------------------------------------------------------------------------------ */

static struct {
    bool (*hold)(const struct fab_req *req);
    bool executed; /* the one that is held */
    bool execute;  /* the next one, when it is held back */
    struct fab_req *req;
    unsigned posts;
    gaddr directory, subtable;
} held;

/* Holds one request back, or its answer: answers may come in any order. */
static int post_or_hold(struct fab_ep *ep, struct fab_req *req)
{
    held.posts++;
    if (!held.hold || !held.hold(req)) {
        hook_run(ep, req);
        return FAR_OK;
    }
    held.hold = NULL;
    if (held.execute)
        hook_run(ep, req);
    held.executed = held.execute;
    req->done = false;
    held.req = req;
    return FAR_OK;
}

static void poll_nothing(struct fab_ep *ep, bool wait)
{
    (void)ep;
    (void)wait;
}

static struct fab_req *take_held(void)
{
    struct fab_req *req = held.req;
    assert_non_null(req);
    held.req = NULL;
    return req;
}

static bool is_directory(const struct fab_req *req)
{
    return req->count == 2 && req->verbs[0].kind == FAB_READ &&
           req->verbs[0].off == gaddr_offset(held.directory);
}

static bool is_fourth(const struct fab_req *req)
{
    (void)req;
    return held.posts == 4;
}

static bool is_subtable(const struct fab_req *req)
{
    return req->verbs[0].kind == FAB_READ && req->verbs[0].off == gaddr_offset(held.subtable);
}

static void submit(far_session *s, far_table *table, enum far_op_kind kind, uint64_t *key,
                   uint64_t *value)
{
    struct far_op op = {.kind = kind,
                        .table = table,
                        .key = key,
                        .key_len = 8,
                        .value = value,
                        .value_len = 8,
                        .buf = value,
                        .cap = 8};
    assert_int_equal(far_submit(s, &op), FAR_OK);
}

/* One operation of a ring reads the directory, and its answer is slow. Meanwhile another session
 * splits a subtable, the epoch goes on, and a second operation of the ring begins. When the first
 * one's answer comes, it must not lead the second to the old subtable, which is soon reused. */
static void an_older_directory_does_not_replace_a_newer_one(void **state)
{
    struct far_table_options table = {.tuning = "groups=2", .hash_seed = 5};
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *ring = NULL;
    struct far_result result[4];
    uint64_t keys = 0, key_a = 0, key_b = 1, value = 0, got = 0;

    (void)state;
    knobs.tick_ops = 1000000;
    store_rig_open(&r, "mem:?size=64m&defer=1&" LEASE, &knobs, NULL, &table);
    assert_int_equal(far_session_open(r.pool, &(struct far_session_options){.depth = 4}, &ring),
                     FAR_OK);
    while (keys == 0 || race_rig_view(&r)->base.grown < 3)
        put(&r, keys++);
    assert_int_equal(far_exists(ring, r.table, &key_a, 8), FAR_OK); /* attaches */
    struct race_view *view = race_view(store_known(ring, r.table)->view);
    while (subtable_of(view, key_b) == subtable_of(view, key_a))
        key_b++;
    held.directory = view->directory;
    held.subtable = subtable_of(view, key_a);
    hook_on(ring->client.ep);
    hook.ops.post = post_or_hold;
    hook.ops.poll = poll_nothing;
    for (unsigned i = 0; i < 12; i++) {
        drive_epochs(ring, 1);
        drive_epochs(r.session, 1);
    }
    drive_epochs(r.session, 6);
    drive_epochs(ring, 6);

    view->base.cached.stale = true; /* as after any flight on behalf of another table */
    held.hold = is_directory;
    held.execute = true;
    submit(ring, r.table, FAR_OP_GET, &key_b, &got);
    struct fab_req *directory = take_held();
    while (subtable_of(race_rig_view(&r), key_a) == held.subtable)
        put(&r, keys++);
    drive_epochs(r.session, 6);
    drive_epochs(ring, 6);

    held.posts = 0;
    held.hold = is_fourth;
    submit(ring, r.table, FAR_OP_UPDATE, &key_a, &value);
    struct fab_req *update = take_held();
    put(&r, key_a); /* so that the update's CAS fails, and it looks at the cache once more */
    fab_complete(directory, directory->status);
    unsigned reaped = far_reap(ring, result, 4, 0);
    held.hold = is_subtable;
    held.execute = false;
    fab_complete(update, update->status);
    reaped += far_reap(ring, result, 4, 0);
    if (held.req) { /* it is about to read the old subtable's `forward` */
        struct fab_req *late = take_held();
        for (unsigned i = 0; i < 6; i++) {
            drive_epochs(ring, 1);
            drive_epochs(r.session, 1);
        }
        while (is_free(&r.session->client, held.subtable))
            put(&r, keys++);
        hook_run(ring->client.ep, late);
    }
    while (reaped < 2) {
        unsigned n = far_reap(ring, result, 4, 1);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(result[i].status, FAR_OK);
        reaped += n;
    }
    hook_off();
    all_there(&r, keys);
    far_session_close(ring);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_attached_within_an_epoch),
        cmocka_unit_test(an_older_directory_does_not_replace_a_newer_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
