/* Interleavings that once broke RCuckoo: requests stop halfway or are torn, and other sessions come
 * between two verbs of one, as docs/fabric.md allows. */
#include "index/rcuckoo/rcuckoo.h"
#include "support/hook.h"
#include "support/sweep_rig.h"

#include <stdio.h>

/* All rows of the table have one lock. */
struct rig {
    struct store_rig r;
    far_session *a, *b; /* b is r.session */
    far_table *t;
};
static struct rig *the; /* for hooks and taps */

static void open_rig_with(struct rig *g, const char *uri, const char *tuning)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    struct knobs knobs = pool_knobs_default;
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r, uri, &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join(&g->r);
    assert_int_equal(far_table_create(g->b, "s", "rcuckoo", &options, &g->t), FAR_OK);
    the = g;
}

static void open_rig(struct rig *g, const char *uri)
{
    open_rig_with(g, uri, "rows=2&lock_rows=16");
}

static void close_rig(struct rig *g)
{
    far_session_close(g->a);
    store_rig_close(&g->r);
}

static int put_u32(struct rig *g, far_session *s, uint32_t key, uint32_t value)
{
    return far_put(s, g->t, &key, sizeof key, &value, sizeof value);
}
static int get_u32(struct rig *g, far_session *s, uint32_t key, uint32_t *value)
{
    size_t len = 0;
    return far_get(s, g->t, &key, sizeof key, value, sizeof *value, &len);
}
static struct rcuckoo_view *view_of(struct rig *g, far_session *s)
{
    return rcuckoo_view(store_known(s, g->t)->view);
}

/* The subtable, as session b knows it. */
static struct rcuckoo_sub sub_of(struct rig *g)
{
    uint32_t v;
    (void)get_u32(g, g->b, 1, &v);
    return *(struct rcuckoo_sub *)index_part_of(&view_of(g, g->b)->parts, 0);
}
static uint64_t lock_word(struct rig *g)
{
    return store_rig_get(&g->r, sub_of(g).part.anchor, rcuckoo_word_at(0));
}

/* The endpoint's functions from now on, with the rig's time: driven_now() finds it behind them. */
static void hook_at(struct fab_ep *ep)
{
    hook_on(ep);
    hook.clock = the->r.clock->now;
}

/* ---- sessions that die in the middle --------------------------------------------------------- */

static unsigned verbs_done; /* of the request that ends with an error, those that happen */
static bool second;         /* it is the one that writes rows, not the one that locks */

static bool unlocks(const struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind == FAB_FAA)
            return true;
    return false;
}

static bool has_write(const struct fab_req *req)
{
    return req->count > 1 && req->verbs[0].kind == FAB_WRITE;
}

/* Only the first verbs happen. */
static int post_some(struct fab_ep *ep, struct fab_req *req, unsigned first, unsigned end)
{
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    req->verbs = all + first;
    req->count = end - first;
    int rc = hook.real->post(ep, req);
    req->verbs = all;
    req->count = count;
    return rc;
}

static int stop_halfway(struct fab_ep *ep, struct fab_req *req)
{
    bool journals = has_write(req) && req->verbs[0].off < gaddr_offset(sub_of(the).part.anchor);
    if (!journals || unlocks(req) != second || verbs_done == 0)
        return hook.real->post(ep, req);
    int rc = post_some(ep, req, 0, verbs_done);
    verbs_done = 0;
    req->status = FAR_TIMEOUT;
    return rc;
}

/* The session's put ends with an error: of the request that locks, or the one that writes, only the
 * first `done` verbs have happened. */
static void put_fails(struct rig *g, far_session *s, uint32_t key, bool writes, unsigned done)
{
    verbs_done = done;
    second = writes;
    hook_at(s->client.ep);
    hook.ops.post = stop_halfway;
    assert_int_not_equal(put_u32(g, s, key, key), FAR_OK);
    hook_off();
    assert_int_equal(verbs_done, 0);
}

static int recover(far_session *by, const struct client *dead)
{
    puppet_suspect(&by->client, dead->slot, dead->incarnation);
    return client_recover(&by->op);
}

/* Goes on with it. It may have ended meanwhile. */
static int recover_again(far_session *by, const struct client *dead)
{
    uint64_t word = store_rig_get(&the->r, NODE0, slot_delta(dead->slot));
    return word == 0 ? FAR_OK : puppet_recover(&by->op, dead->slot, word);
}

/* ---- the lock of a redo, released by another recovery ---------------------------------------- */
static struct client waiting; /* a dead client whose line names a lock that it perhaps holds */
static unsigned came;

/* `done` is in the line, and the unlock has not happened yet. */
static int recover_another_before_unlock(struct fab_ep *ep, struct fab_req *req)
{
    unsigned faa = 0;
    while (faa < req->count && req->verbs[faa].kind != FAB_FAA)
        faa++;
    if (faa == req->count || came > 0)
        return hook.real->post(ep, req);
    came++;
    int rc = post_some(ep, req, 0, faa);
    assert_int_equal(rc, FAR_OK);
    req->done = false;
    rc = recover(the->a, &waiting);
    printf("    the other recovery: %s\n", far_strerror(rc));
    return post_some(ep, req, faa, req->count);
}

/* Readers that have seen the row before tell by its version that it was written. */
static void a_row_that_is_redone_has_the_version_of_its_change(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8");
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    const struct rcuckoo_shape *s = &view_of(&g, g.b)->shape;
    struct rcuckoo_sub sub = sub_of(&g);
    uint64_t id = rcuckoo_sub_id(view_of(&g, g.b), &sub), row[64], item[64] = {0};
    assert_true(s->row <= 64 && s->entry < 64);
    rcuckoo_row_init(s, id, 1, row);
    for (unsigned version = 1; version < 70000; version += 9999) {
        item[0] = rcuckoo_redo_word(1, 2, 0, version & UINT16_MAX);
        rcuckoo_row_redo(s, id, row, item);
        assert_int_equal(rcuckoo_version(*rcuckoo_meta(s, row)), version & UINT16_MAX);
        assert_true(rcuckoo_row_whole(s, id, 1, row));
    }
    close_rig(&g);
}

static void a_redo_unlocks_once(void **state)
{
    struct rig g;
    (void)state;
    came = 0;
    open_rig(&g, "mem:?size=4m&clients=8");
    far_session *x = store_rig_join(&g.r), *y = store_rig_join(&g.r);
    put_fails(&g, x, 7, false, 1); /* the intent */
    put_fails(&g, y, 8, true, 2);  /* the redo and the row */
    assert_int_equal(lock_word(&g), 1);
    waiting = x->client;
    struct client dead = y->client;
    store_rig_kill(x);
    store_rig_kill(y);
    hook_at(g.b->client.ep);
    hook.ops.post = recover_another_before_unlock;
    int rc = recover(g.b, &dead);
    hook_off();
    printf("    recovery: %s, lock word %llx\n", far_strerror(rc),
           (unsigned long long)lock_word(&g));
    assert_int_equal(came, 1);
    assert_int_equal(recover_again(g.a, &waiting), FAR_OK);
    assert_true(lock_word(&g) == 0);
    assert_int_equal(put_u32(&g, g.a, 9, 9), FAR_OK);
    close_rig(&g);
}

/* The request that writes rows stops when it has unlocked. */
static int stop_behind_the_unlock(struct fab_ep *ep, struct fab_req *req)
{
    unsigned end = 0;
    for (unsigned i = 0; i < req->count && came == 0; i++)
        end = req->verbs[i].kind == FAB_FAA ? i + 1 : end;
    if (end == 0)
        return hook.real->post(ep, req);
    came++;
    int rc = post_some(ep, req, 0, end);
    req->status = FAR_TIMEOUT;
    return rc;
}

/* RCUCKOO-C6: another client has changed the row since. */
static void a_change_that_was_unlocked_is_not_made_again(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    came = 0;
    open_rig(&g, "mem:?size=4m&clients=8");
    far_session *x = store_rig_join(&g.r);
    assert_int_equal(put_u32(&g, g.b, 7, 1), FAR_OK);
    hook_at(x->client.ep);
    hook.ops.post = stop_behind_the_unlock;
    assert_int_equal(put_u32(&g, x, 7, 2), FAR_UNKNOWN);
    hook_off();
    struct client dead = x->client;
    store_rig_kill(x);
    assert_true(came == 1 && lock_word(&g) == 0);
    assert_int_equal(put_u32(&g, g.b, 7, 3), FAR_OK);
    assert_int_equal(recover(g.b, &dead), FAR_OK);
    assert_int_equal(get_u32(&g, g.b, 7, &v), FAR_OK);
    assert_int_equal(v, 3);
    close_rig(&g);
}

/* ---- a lock that is released without a change ------------------------------------------------ */

/* The unlock does not happen, and its client is not told. */
static int drop_the_unlock(struct fab_ep *ep, struct fab_req *req)
{
    if (came > 0 || !unlocks(req))
        return hook.real->post(ep, req);
    came++;
    req->done = true;
    req->status = FAR_TIMEOUT;
    return FAR_OK;
}

/* The session's next line names locks of another table. */
static void change_another_table(far_session *s)
{
    uint32_t key = 1;
    far_table *other = NULL;
    assert_int_equal(far_table_create(s, "other", "rcuckoo", NULL, &other), FAR_OK);
    assert_int_equal(far_put(s, other, &key, sizeof key, &key, sizeof key), FAR_OK);
}

/* RCUCKOO-C5: the line still says so when its client has gone on and died. */
static void a_line_stays_until_its_locks_are_released(void **state)
{
    struct rig g;
    uint32_t key = 7;
    (void)state;
    came = 0;
    open_rig(&g, "mem:?size=4m&clients=8");
    far_session *x = store_rig_join(&g.r);
    assert_int_equal(put_u32(&g, x, key, 1), FAR_OK);
    hook_at(x->client.ep);
    hook.ops.post = drop_the_unlock;
    assert_int_not_equal(far_insert(x, g.t, &key, sizeof key, &key, sizeof key), FAR_OK);
    hook_off();
    assert_true(came == 1 && lock_word(&g) == 1);
    change_another_table(x);
    struct client dead = x->client;
    store_rig_kill(x);
    assert_int_equal(recover(g.a, &dead), FAR_OK);
    assert_true(lock_word(&g) == 0);
    close_rig(&g);
}

/* ---- a client that dies while its line is judged --------------------------------------------- */
static far_session *dying;
static struct fab_req *its_request;
static struct batch_tap tap;

/* Does a recovery of `waiting` read the lines of others? */
static bool visits(const struct fab_verb *verbs, unsigned count)
{
    const struct pool *pool = &the->r.pool->pool;
    uint64_t own = journal_off(pool->clients) + (uint64_t)waiting.slot * JOURNAL_BYTES;
    for (unsigned i = 0; i < count; i++)
        if (verbs[i].kind == FAB_READ && verbs[i].len == JOURNAL_BYTES && verbs[i].off != own)
            return true;
    return false;
}

/* Its lines have been read, the registry has not: its redo and its row are written, and it is shut
 * out. */
static void shut_out_behind_the_lines(struct batch_tap *t, const struct fab_verb *verbs,
                                      unsigned count)
{
    static bool read;
    (void)t;
    if (came == 0 && read) {
        came++;
        uint64_t delta = slot_delta(dying->client.slot);
        assert_int_equal(post_some(dying->client.ep, its_request, 0, 2), FAR_OK);
        store_rig_set(&the->r, NODE0, delta, dying->client.incarnation | CLIENT_FENCED);
    }
    read = visits(verbs, count);
}

static int recover_another_before_writing(struct fab_ep *ep, struct fab_req *req)
{
    if (!unlocks(req) || came > 0)
        return hook.real->post(ep, req);
    its_request = req;
    tap = (struct batch_tap){.posted = shut_out_behind_the_lines};
    the->a->op.batch.tap = &tap;
    int rc = recover(the->a, &waiting);
    the->a->op.batch.tap = NULL;
    printf("    the other recovery: %s\n", far_strerror(rc));
    req->status = FAR_TIMEOUT;
    req->done = true;
    return FAR_OK;
}

static void a_lock_is_not_released_under_a_redo_that_was_not_seen(void **state)
{
    struct rig g;
    (void)state;
    came = 0;
    open_rig(&g, "mem:?size=4m&clients=8");
    far_session *x = store_rig_join(&g.r);
    dying = store_rig_join(&g.r);
    put_fails(&g, x, 7, false, 1); /* the intent */
    waiting = x->client;
    store_rig_kill(x);
    hook_at(dying->client.ep);
    hook.ops.post = recover_another_before_writing;
    assert_int_not_equal(put_u32(&g, dying, 8, 8), FAR_OK);
    hook_off();
    struct client dead = dying->client;
    store_rig_kill(dying);
    assert_int_equal(came, 1);
    printf("    lock word %llx\n", (unsigned long long)lock_word(&g));
    assert_true((lock_word(&g) & 1) == 1); /* the redo is not done: its recovery releases it */
    assert_int_equal(recover_again(g.a, &waiting), FAR_OK);
    assert_int_equal(recover_again(g.b, &dead), FAR_OK);
    assert_true(lock_word(&g) == 0);
    assert_int_equal(put_u32(&g, g.a, 9, 9), FAR_OK);
    close_rig(&g);
}

/* ---- a line that was left by a client that goes on ------------------------------------------- */
static void drive(struct rig *g, far_session *const *s, unsigned count)
{
    uint32_t v;
    for (unsigned i = 0; i < 12; i++)
        for (unsigned k = 0; k < count; k++) {
            client_hurry_epoch(&s[k]->client);
            (void)get_u32(g, s[k], 1, &v);
        }
}

static void a_lock_is_not_released_under_a_redo_that_was_left(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8&lease=1000");
    const uint64_t ms = 1000000;
    far_session *x = store_rig_join(&g.r), *c = store_rig_join(&g.r);
    far_session *all[] = {g.a, g.b, c};
    put_fails(&g, c, 8, true,
              2); /* it recovers that itself, when its verbs cannot arrive any more */
    drive(&g, all, 3);
    store_rig_pass(&g.r, 300 * ms);
    drive(&g, all, 3);
    store_rig_pass(&g.r, 300 * ms);
    drive(&g, all, 3);
    assert_int_equal(get_u32(&g, c, 8, &v), FAR_OK);
    assert_true(lock_word(&g) == 0);
    put_fails(&g, c, 9, true, 2); /* and again: the next attempt is a lease after the last one */
    put_fails(&g, x, 7, false, 1);
    waiting = x->client;
    store_rig_kill(x);
    int rc = FAR_TIMEOUT;
    for (unsigned i = 0; i < 8 && rc == FAR_TIMEOUT; i++) {
        rc = recover_again(g.a, &waiting);
        printf("    recovery: %s, lock word %llx, %u undone\n", far_strerror(rc),
               (unsigned long long)lock_word(&g), puppet_undone(&c->client));
        store_rig_pass(&g.r, 110 * ms);
        drive(&g, all, 3);
    }
    for (unsigned i = 0; i < 12; i++) {
        store_rig_pass(&g.r, 110 * ms);
        drive(&g, all, 3);
    }
    printf("    at the end: lock word %llx, %u undone\n", (unsigned long long)lock_word(&g),
           puppet_undone(&c->client));
    assert_int_equal(puppet_undone(&c->client), 0);
    assert_true(lock_word(&g) == 0);
    assert_int_equal(put_u32(&g, g.a, 10, 10), FAR_OK);
    far_session_close(c);
    close_rig(&g);
}

/* ---- a row that is written again and again --------------------------------------------------- */
static uint32_t toggled; /* the key's value: 1 or 2 */
static unsigned looks;

static void toggle(void)
{
    toggled = 3 - toggled;
    assert_int_equal(put_u32(the, the->b, 8, toggled), FAR_OK);
}

/* Before the verb, the key gets its other value. Its READ finds all of the row as it was before
 * that, but the meta word as it is then; or the other way round (FABRIC-F1). */
static int tear_read(struct fab_ep *ep, struct fab_req *req, unsigned i, bool late)
{
    const struct rcuckoo_shape *s = &view_of(the, the->b)->shape;
    static uint64_t other[4096];
    uint64_t *image = req->verbs[i].buf;
    size_t bytes = req->verbs[i].len;
    int rc = post_some(ep, req, i, i + 1);
    memcpy(other, image, bytes);
    toggle();
    if (rc == FAR_OK)
        rc = post_some(ep, req, i, i + 1);
    for (size_t k = 0; k < bytes / 8; k++)
        if ((k % s->row == s->row - 1) == late)
            image[k] = other[k];
    return rc;
}

/* All READs of rows are torn. Of two that are to find the same, the first is torn by one change,
 * and the second by the next, which takes it back. */
static int tear_rows(struct fab_ep *ep, struct fab_req *req)
{
    uint32_t row = rcuckoo_row_bytes(&view_of(the, the->b)->shape);
    unsigned torn = 0;
    int rc = FAR_OK;
    for (unsigned i = 0; i < req->count && rc == FAR_OK; i++) {
        const struct fab_verb *v = &req->verbs[i];
        bool hit = v->kind == FAB_READ && (v->len == row || v->len == 2 * row);
        rc = hit ? tear_read(ep, req, i, torn > 0) : post_some(ep, req, i, i + 1);
        torn += hit;
    }
    looks += torn > 0;
    return looks > 20 ? hook.real->post(ep, req) : rc;
}

static void a_row_that_changes_is_not_damaged(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    looks = 0;
    toggled = 1;
    open_rig(&g, "mem:?size=4m&clients=8");
    toggle();
    (void)get_u32(&g, g.a, 1, &v);
    hook_at(g.a->client.ep);
    hook.ops.post = tear_rows;
    int rc = get_u32(&g, g.a, 8, &v);
    hook_off();
    printf("    get: %s, %u looks\n", far_strerror(rc), looks);
    assert_int_equal(rc, FAR_OK);
    close_rig(&g);
}

/* ---- entries that differ only in their lengths ----------------------------------------------- */
static void an_entry_of_another_length_is_another_one(void **state)
{
    uint64_t tuning[RCUCKOO_TUNINGS] = {2, 8, 8, 230, 1, 1, 1, 1}, rows[2][64] = {0};
    struct rcuckoo_shape s = {0};
    (void)state;
    assert_true(rcuckoo_shape_set(&s, tuning));
    struct rcuckoo_snapshot snap = {.before = rows[0], .rows = rows[1]};
    for (unsigned i = 0; i < 2;
         i++) { /* the key of one zero moves away, that of two takes its slot */
        struct rcuckoo_entry e = {RCUCKOO_INLINE, 1 + i, 0};
        rcuckoo_tags(&s, rows[i])[3] = rcuckoo_tag(&s, e);
        *rcuckoo_meta(&s, rows[i]) = rcuckoo_meta_of(&s, 7, 0, rows[i], i);
    }
    assert_non_null(rcuckoo_snapshot_gone(&s, &snap, 0, 3));
}

/* ---- damage ---------------------------------------------------------------------------------- */
static void the_directory_is_only_advice(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8");
    (void)sub_of(&g);
    gaddr root = view_of(&g, g.b)->root;
    store_rig_set(&g.r, root, 0, store_rig_get(&g.r, root, 0) | 1ull << 30); /* outside the pool */
    for (uint32_t k = 0; k < 40; k++)
        assert_int_equal(put_u32(&g, g.b, k, k), FAR_OK);
    close_rig(&g);
}

/* ---- a lock of a living client that a dead one's line names, too ----------------------------- */
static bool kept;

/* A holds the lock, and its operation keeps the epoch from going on twice. */
static int recover_meanwhile(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t before = 0, after = 0;
    uint32_t v;
    if (came > 0 || !unlocks(req))
        return hook.real->post(ep, req);
    came = 1;
    assert_int_equal(client_epoch_now(&the->b->op, &before), FAR_OK);
    (void)recover(the->b, &waiting);
    for (unsigned i = 0; i < 40; i++) {
        (void)recover_again(the->b, &waiting);
        client_hurry_epoch(&the->b->client);
        (void)get_u32(the, the->b, 1, &v);
    }
    assert_int_equal(client_epoch_now(&the->b->op, &after), FAR_OK);
    printf("    epochs %llu to %llu, lock word %llx\n", (unsigned long long)before,
           (unsigned long long)after, (unsigned long long)lock_word(the));
    assert_true(before > 0 && after == before + 1);
    kept = lock_word(the) & 1;
    return hook.real->post(ep, req);
}

static void a_lock_is_not_released_before_two_epochs_have_passed(void **state)
{
    struct rig g;
    uint32_t v;
    (void)state;
    came = 0;
    kept = false;
    open_rig(&g, "mem:?size=4m&clients=8");
    far_session *x = store_rig_join(&g.r);
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    put_fails(&g, x, 7, false, 1); /* the intent */
    waiting = x->client;
    store_rig_kill(x);
    for (unsigned i = 0; i < 20; i++) { /* the epoch goes on, and A knows the newest one */
        if (i < 10)
            client_hurry_epoch(&g.b->client);
        assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_OK);
        assert_int_equal(get_u32(&g, g.b, 1, &v), FAR_OK);
    }
    hook_at(g.a->client.ep);
    hook.ops.post = recover_meanwhile;
    assert_int_equal(put_u32(&g, g.a, 8, 8), FAR_OK);
    hook_off();
    assert_int_equal(came, 1);
    assert_true(kept);
    close_rig(&g);
}

/* ---- a lock that nobody takes while its holder is looked for --------------------------------- */

/* The recovery reads the lines of others. */
static void look_for_repair(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    (void)t;
    came += visits(verbs, count);
    assert_true(!visits(verbs, count) || (lock_word(the) & RCUCKOO_REPAIR));
}

/* RCUCKOO-C9 */
static void a_recovery_closes_the_words_before_it_reads_lines(void **state)
{
    struct rig g;
    (void)state;
    came = 0;
    open_rig(&g, "mem:?size=4m&clients=8");
    far_session *x = store_rig_join(&g.r);
    change_another_table(g.b);     /* it has a line, too */
    put_fails(&g, x, 7, false, 2); /* the intent and the lock */
    assert_true(lock_word(&g) == 1);
    waiting = x->client;
    store_rig_kill(x);
    tap = (struct batch_tap){.posted = look_for_repair};
    g.a->op.batch.tap = &tap;
    assert_int_equal(recover(g.a, &waiting), FAR_OK);
    g.a->op.batch.tap = NULL;
    assert_true(came > 0 && lock_word(&g) == 0);
    close_rig(&g);
}

/* ---- a dead client that has only named a lock ------------------------------------------------ */
static unsigned looks;         /* at the lock word, by the recovery */
static unsigned looks_closed;  /* after R was set */
static bool closed_once;       /* R was set */
static unsigned let_go;        /* at which look the lock's holder releases it; 0: never */
static unsigned let_go_closed; /* the same, counted after R was set */

static void release_at_a_look(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    uint64_t at = gaddr_offset(sub_of(the).part.anchor) + rcuckoo_word_at(0), word = lock_word(the);
    (void)t;
    closed_once |= (word & RCUCKOO_REPAIR) != 0;
    for (unsigned i = 0; i < count; i++)
        if (verbs[i].kind == FAB_READ && verbs[i].off == at) {
            looks++;
            looks_closed += closed_once;
        }
    if (word & 1 &&
        ((let_go > 0 && looks == let_go) || (let_go_closed > 0 && looks_closed == let_go_closed)))
        store_rig_set(&the->r, sub_of(the).part.anchor, rcuckoo_word_at(0), word & ~1ull);
}

/* A dead client holds nothing, but its spent line names the lock, and so does the one of an idle
 * client that lives. Another client holds the lock. A recovers. */
static int recover_the_idle(struct rig *g, unsigned at, unsigned at_closed)
{
    open_rig(g, "mem:?size=4m&clients=8");
    far_session *x = store_rig_join(&g->r);
    assert_int_equal(put_u32(g, x, 7, 7), FAR_OK);
    assert_int_equal(put_u32(g, g->b, 6, 6), FAR_OK);
    waiting = x->client;
    store_rig_kill(x);
    store_rig_set(&g->r, sub_of(g).part.anchor, rcuckoo_word_at(0), 1);
    looks = looks_closed = 0;
    closed_once = false;
    let_go = at;
    let_go_closed = at_closed;
    tap = (struct batch_tap){.posted = release_at_a_look};
    g->a->op.batch.tap = &tap;
    int rc = recover(g->a, &waiting);
    g->a->op.batch.tap = NULL;
    return rc;
}

/* RCUCKOO-C9: what is seen free is not the dead client's. */
static void the_death_of_an_idle_client_closes_nothing(void **state)
{
    struct rig g;
    (void)state;
    assert_int_equal(recover_the_idle(&g, 3, 0), FAR_OK);
    assert_false(closed_once);
    assert_int_equal(looks, 3);
    assert_int_equal(lock_word(&g), 0);
    close_rig(&g);
}

/* The same under R. The line of the idle client stays as it is. */
static void a_recovery_does_not_wait_for_a_lock_that_was_free(void **state)
{
    struct rig g;
    (void)state;
    assert_int_equal(recover_the_idle(&g, 0, 3), FAR_OK);
    assert_true(closed_once);
    assert_int_equal(looks_closed, 3);
    assert_int_equal(lock_word(&g), 0);
    close_rig(&g);
}

/* The holder is slow, so the recovery gives up and leaves R. A lease of the rig is a minute. */
static void what_a_recovery_has_closed_is_soon_open_again(void **state)
{
    struct rig g;
    (void)state;
    assert_int_equal(recover_the_idle(&g, 0, 0), FAR_TIMEOUT);
    assert_int_equal(lock_word(&g), RCUCKOO_REPAIR | 1);
    store_rig_set(&g.r, sub_of(&g).part.anchor, rcuckoo_word_at(0), RCUCKOO_REPAIR);
    uint64_t before = g.r.clock->now;
    assert_int_equal(put_u32(&g, g.a, 8, 8), FAR_OK);
    assert_in_range(g.r.clock->now - before, 1, 20000000);
    assert_int_equal(lock_word(&g), 0);
    close_rig(&g);
}

/* The same of a line that an operation of the session itself has left. */
static void what_a_session_has_closed_for_itself_is_soon_open_again(void **state)
{
    struct rcuckoo_locks locks = {1, {{0, 1}}, {0}};
    struct rig g;
    struct journal line;
    uint32_t v;
    (void)state;
    open_rig(&g, "mem:?size=4m&clients=8");
    assert_int_equal(put_u32(&g, g.b, 6, 6), FAR_OK); /* its spent line names the lock */
    assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_NOT_FOUND);
    struct rcuckoo_sub sub = sub_of(&g);
    assert_int_equal(journal_take(&g.a->op, gaddr_node(sub.part.anchor), &line), FAR_OK);
    rcuckoo_intend(&g.a->op, view_of(&g, g.a), &sub, &line, &locks);
    assert_int_equal(batch_flush(&g.a->op.batch), FAR_OK);
    journal_give(&g.a->op, &line, false);
    store_rig_set(&g.r, sub.part.anchor, rcuckoo_word_at(0), 1);
    assert_int_equal(client_complete(&g.a->op), FAR_TIMEOUT);
    assert_int_equal(lock_word(&g), RCUCKOO_REPAIR | 1);
    store_rig_set(&g.r, sub.part.anchor, rcuckoo_word_at(0), RCUCKOO_REPAIR);
    uint64_t before = g.r.clock->now;
    assert_int_equal(put_u32(&g, g.a, 8, 8), FAR_OK);
    assert_in_range(g.r.clock->now - before, 1, 20000000);
    assert_int_equal(lock_word(&g), 0);
    close_rig(&g);
}

/* ---- a ring in which every operation holds a lock -------------------------------------------- */

enum { DEEPEST_RING = 64 };

/* As a ring of that many changes leaves it: each has a line, and a lock of its own. */
static void hold_locks(struct rig *g, far_session *s, unsigned depth, struct journal *line)
{
    struct rcuckoo_view *view = view_of(g, s);
    struct rcuckoo_sub sub = sub_of(g);
    for (unsigned i = 0; i < depth; i++) {
        struct rcuckoo_locks locks = {1, {{i / 32, 1ull << i % 32}}, {0}};
        bool closed = false;
        assert_int_equal(journal_take(&s->op, gaddr_node(sub.part.anchor), &line[i]), FAR_OK);
        rcuckoo_lock(&s->op, view, &sub, &line[i], &locks);
        assert_int_equal(batch_flush(&s->op.batch), FAR_OK);
        assert_true(rcuckoo_locked(&s->op, &locks, &closed));
    }
}

static void open_wide(struct rig *g, far_session **s)
{
    uint32_t v;
    open_rig_with(g, "mem:?size=8m&clients=8", "rows=1024&lock_rows=1");
    *s = store_rig_join(&g->r);
    assert_int_equal(get_u32(g, *s, 1, &v), FAR_NOT_FOUND); /* it knows the table */
    assert_int_equal(get_u32(g, g->a, 1, &v), FAR_NOT_FOUND);
    assert_true(view_of(g, *s)->shape.words >= DEEPEST_RING / 32);
}

static void assert_all_free(struct rig *g)
{
    for (unsigned i = 0; i < DEEPEST_RING / 32; i++)
        assert_int_equal(store_rig_get(&g->r, sub_of(g).part.anchor, rcuckoo_word_at(i)), 0);
}

/* Verbs of the recovery of a session that died with such a ring. */
static uint64_t verbs_for_the_dead(unsigned depth)
{
    struct rig g;
    struct journal line[DEEPEST_RING];
    far_session *x;
    open_wide(&g, &x);
    hold_locks(&g, x, depth, line);
    struct client dead = x->client;
    store_rig_kill(x);
    uint64_t before = g.a->op.cost.verbs;
    assert_int_equal(recover(g.a, &dead), FAR_OK);
    uint64_t verbs = g.a->op.cost.verbs - before;
    assert_all_free(&g);
    close_rig(&g);
    return verbs;
}

/* The same of a session that recovers its own lines. */
static uint64_t verbs_for_itself(unsigned depth)
{
    struct rig g;
    struct journal line[DEEPEST_RING];
    far_session *x;
    open_wide(&g, &x);
    hold_locks(&g, x, depth, line);
    for (unsigned i = 0; i < depth; i++)
        journal_give(&x->op, &line[i], false);
    uint64_t before = x->op.cost.verbs;
    assert_int_equal(client_complete(&x->op), FAR_OK);
    uint64_t verbs = x->op.cost.verbs - before;
    assert_all_free(&g);
    far_session_close(x);
    close_rig(&g);
    return verbs;
}

static void assert_linear(uint64_t (*verbs)(unsigned depth))
{
    uint64_t at8 = verbs(8), at16 = verbs(16), at32 = verbs(32), at64 = verbs(64);
    printf("    %llu, %llu, %llu and %llu verbs\n", (unsigned long long)at8,
           (unsigned long long)at16, (unsigned long long)at32, (unsigned long long)at64);
    assert_in_range(at32 - at16, 16, 2 * (at16 - at8) + 8);
    assert_in_range(at64 - at32, 32, 2 * (at32 - at16) + 8);
}

/* JOURNAL-J7 */
static void a_recovery_goes_by_the_depth_of_the_ring(void **state)
{
    (void)state;
    assert_linear(verbs_for_the_dead);
}

static void a_client_recovers_its_own_ring_by_its_depth(void **state)
{
    (void)state;
    assert_linear(verbs_for_itself);
}

/* RCUCKOO-C10, JOURNAL-J7: two lines of a ring name a lock. The first one has only named it. The
 * second one holds it and has begun to write. */
static far_session *name_a_lock_twice(struct rig *g, struct journal line[2])
{
    struct rcuckoo_locks locks = {1, {{0, 1}}, {0}};
    far_session *x;
    open_wide(g, &x);
    struct rcuckoo_sub sub = sub_of(g);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(journal_take(&x->op, gaddr_node(sub.part.anchor), &line[i]), FAR_OK);
        rcuckoo_intend(&x->op, view_of(g, x), &sub, &line[i], &locks);
        assert_int_equal(batch_flush(&x->op.batch), FAR_OK);
    }
    store_rig_set(&g->r, sub.part.anchor, rcuckoo_word_at(0), 1);
    journal_redo(&x->op, &line[1], "", 0);
    assert_int_equal(batch_flush(&x->op.batch), FAR_OK);
    return x;
}

static void lines_of_one_ring_are_told_apart(void **state)
{
    struct rig g;
    struct journal line[2];
    (void)state;
    for (unsigned itself = 0; itself < 2; itself++) {
        far_session *x = name_a_lock_twice(&g, line);
        journal_give(&x->op, &line[0], false);
        journal_give(&x->op, &line[1], false);
        if (itself) { /* it has to wait, for the line that holds the lock is its own */
            assert_int_equal(client_complete(&x->op), FAR_TIMEOUT);
            assert_int_equal(lock_word(&g), RCUCKOO_REPAIR | 1);
        }
        waiting = x->client;
        store_rig_kill(x);
        assert_int_equal(recover(g.a, &waiting), FAR_OK);
        assert_all_free(&g);
        close_rig(&g);
    }
}

/* ---- a path of several rows ------------------------------------------------------------------ */

/* RCUCKOO-C2: the locks of all rows that a request writes are held. */
static int look_for_locks(struct fab_ep *ep, struct fab_req *req)
{
    const struct rcuckoo_shape *s = &view_of(the, the->b)->shape;
    struct rcuckoo_sub sub = sub_of(the);
    unsigned rows = 0;
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        if (v->kind != FAB_WRITE || v->len != rcuckoo_row_bytes(s) ||
            v->off < gaddr_offset(sub.rows))
            continue;
        unsigned row = (unsigned)((v->off - gaddr_offset(sub.rows)) / v->len);
        uint64_t at = rcuckoo_word_at(rcuckoo_lock_word(s, row));
        assert_true(store_rig_get(&the->r, sub.part.anchor, at) & rcuckoo_lock_bit(s, row));
        rows++;
    }
    came += rows > 1;
    return hook.real->post(ep, req);
}

static void all_rows_of_a_path_are_locked(void **state)
{
    struct rig g;
    (void)state;
    came = 0;
    open_rig_with(&g, "mem:?size=8m", "rows=16&lock_rows=1&grows=0");
    assert_int_equal(put_u32(&g, g.b, 0, 0), FAR_OK);
    hook_at(g.a->client.ep);
    hook.ops.post = look_for_locks;
    for (uint32_t key = 1; came == 0 && key < 16 * RCUCKOO_SLOTS; key++)
        assert_int_equal(put_u32(&g, g.a, key, key), FAR_OK);
    hook_off();
    assert_true(came > 0);
    close_rig(&g);
}

/* Of the first request that writes several rows, only the first verbs happen. */
static int stop_in_a_path(struct fab_ep *ep, struct fab_req *req)
{
    unsigned writes = 0;
    for (unsigned i = 0; i < req->count; i++)
        writes += req->verbs[i].kind == FAB_WRITE;
    if (!unlocks(req) || writes < 4 || verbs_done == 0) /* redo and done, and the rows */
        return hook.real->post(ep, req);
    int rc = post_some(ep, req, 0, verbs_done);
    verbs_done = 0;
    req->status = FAR_TIMEOUT;
    return rc;
}

static void a_path_that_was_begun_is_completed(void **state)
{
    (void)state;
    for (unsigned done = 1; done < 3; done++) { /* the redo, and then the first row */
        struct rig g;
        uint32_t keys = 0, v = 0;
        open_rig_with(&g, "mem:?size=8m&lease=100", "rows=16&lock_rows=16&grows=0");
        assert_int_equal(put_u32(&g, g.b, keys, keys), FAR_OK);
        verbs_done = done;
        hook_at(g.a->client.ep);
        hook.ops.post = stop_in_a_path;
        while (verbs_done > 0 && keys < 16 * RCUCKOO_SLOTS) {
            keys++;
            (void)put_u32(&g, g.a, keys, keys);
        }
        hook_off();
        printf("    put %u has a path\n", keys);
        assert_int_equal(verbs_done, 0);
        assert_int_equal(recover(g.b, &g.a->client), FAR_OK);
        for (uint32_t k = 0; k <= keys; k++) {
            assert_int_equal(get_u32(&g, g.b, k, &v), FAR_OK);
            assert_int_equal(v, k);
        }
        assert_int_equal(far_table_check(g.b, g.t, NULL, NULL), FAR_OK);
        close_rig(&g);
    }
}

/* ---- requests whose outcome is not known ----------------------------------------------------- */
static uint64_t unknown_at; /* the offset that the request changes by a CAS */

/* It happens, but its client is not told. */
static int forget_the_answer(struct fab_ep *ep, struct fab_req *req)
{
    bool hit = false;
    for (unsigned i = 0; i < req->count && came == 0; i++)
        hit |= req->verbs[i].kind == FAB_CAS && req->verbs[i].off == unknown_at;
    came += hit;
    int rc = hook.real->post(ep, req);
    if (hit)
        req->status = FAR_TIMEOUT;
    return rc;
}

/* A puts keys until it splits the subtable; the CAS of that word of the anchor has an unknown
 * outcome. */
static void split_fails(struct rig *g, size_t word)
{
    int rc = FAR_OK;
    open_rig(g, "mem:?size=8m&lease=100");
    assert_int_equal(put_u32(g, g->b, 1, 1), FAR_OK);
    came = 0;
    unknown_at = gaddr_offset(sub_of(g).part.anchor) + word;
    hook_at(g->a->client.ep);
    hook.ops.post = forget_the_answer;
    for (uint32_t k = 2; k < 60 && came == 0; k++)
        rc = put_u32(g, g->a, k, k);
    hook_off();
    printf("    put: %s\n", far_strerror(rc));
    assert_int_equal(came, 1);
}

static void children_that_may_be_published_are_not_reused(void **state)
{
    struct rig g;
    struct audit audit;
    (void)state;
    split_fails(&g, offsetof(struct rcuckoo_anchor, forward));
    assert_int_equal(sim_audit(&audit, g.r.pool, (far_session *[]){g.b, g.a}, 2), FAR_OK);
    assert_int_equal(audit.wrong, 0);
    close_rig(&g);
}

/* Nothing points to the children, and their client does not know that. */
static void children_of_a_closing_of_unknown_outcome_are_reported_as_lost(void **state)
{
    struct rig g;
    struct audit audit;
    (void)state;
    split_fails(&g, offsetof(struct rcuckoo_anchor, closer));
    assert_int_equal(sim_audit(&audit, g.r.pool, (far_session *[]){g.b, g.a}, 2), FAR_OK);
    assert_int_equal(audit.wrong, 0);
    assert_true(audit.bytes[AUDIT_NOWHERE] > 0);
    assert_true(audit.bytes[AUDIT_NOWHERE] <= puppet_lost_bytes(&g.a->client));
    close_rig(&g);
}

static void a_session_that_may_have_closed_a_subtable_gives_up_its_slot(void **state)
{
    struct rig g;
    (void)state;
    split_fails(&g, offsetof(struct rcuckoo_anchor, closer));
    assert_true(puppet_renounced(&g.a->client));
    close_rig(&g);
}

/* The request that writes the row does not happen, so the old block stays in use. */
static void a_block_that_may_be_in_use_is_not_retired(void **state)
{
    struct rig g;
    struct audit audit;
    uint32_t key = 1;
    char value[100] = {0}; /* too long to be inline */
    (void)state;
    open_rig(&g, "mem:?size=8m&lease=100");
    assert_int_equal(far_put(g.a, g.t, &key, sizeof key, value, sizeof value), FAR_OK);
    assert_int_equal(put_u32(&g, g.b, 2, 2), FAR_OK);
    verbs_done = 1;
    second = true;
    hook_at(g.a->client.ep);
    hook.ops.post = stop_halfway;
    assert_int_equal(far_put(g.a, g.t, &key, sizeof key, value, sizeof value), FAR_UNKNOWN);
    hook_off();
    assert_int_equal(verbs_done, 0);
    assert_int_equal(sim_audit(&audit, g.r.pool, (far_session *[]){g.b, g.a}, 2), FAR_OK);
    assert_int_equal(audit.wrong, 0);
    close_rig(&g);
}

/* ---- words that were damaged ----------------------------------------------------------------- */

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("    %s\n", line);
}

/* RCUCKOO-W7: a lock that nobody holds, R, S and the stamp of a recovery that nobody does. Puts
 * wait for them in vain; a check finds all of them, and repairs them. */
static void a_check_opens_what_nobody_will_open(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    open_rig(&g, "mem:?size=8m&lease=100");
    assert_int_equal(put_u32(&g, g.b, 1, 7), FAR_OK);
    struct rcuckoo_sub sub = sub_of(&g);
    store_rig_set(&g.r, sub.part.anchor, rcuckoo_word_at(0), 1 | RCUCKOO_REPAIR | RCUCKOO_CLOSED);
    store_rig_set(&g.r, sub.part.anchor, offsetof(struct rcuckoo_anchor, repair), 0x12345);
    assert_int_equal(put_u32(&g, g.b, 1, 8), FAR_CONTENTION);
    struct far_pool_check found = {0};
    assert_int_equal(far_pool_check(g.b, true, say, NULL, &found), FAR_OK);
    assert_true(found.repaired >= 3);
    assert_int_equal(lock_word(&g), 0);
    assert_int_equal(store_rig_get(&g.r, sub.part.anchor, offsetof(struct rcuckoo_anchor, repair)),
                     0);
    assert_int_equal(put_u32(&g, g.b, 1, 9), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_OK);
    assert_int_equal(v, 9);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_opens_what_nobody_will_open),
        cmocka_unit_test(a_row_that_is_redone_has_the_version_of_its_change),
        cmocka_unit_test(a_redo_unlocks_once),
        cmocka_unit_test(a_change_that_was_unlocked_is_not_made_again),
        cmocka_unit_test(a_line_stays_until_its_locks_are_released),
        cmocka_unit_test(a_recovery_closes_the_words_before_it_reads_lines),
        cmocka_unit_test(the_death_of_an_idle_client_closes_nothing),
        cmocka_unit_test(a_recovery_does_not_wait_for_a_lock_that_was_free),
        cmocka_unit_test(what_a_recovery_has_closed_is_soon_open_again),
        cmocka_unit_test(what_a_session_has_closed_for_itself_is_soon_open_again),
        cmocka_unit_test(a_recovery_goes_by_the_depth_of_the_ring),
        cmocka_unit_test(a_client_recovers_its_own_ring_by_its_depth),
        cmocka_unit_test(lines_of_one_ring_are_told_apart),
        cmocka_unit_test(all_rows_of_a_path_are_locked),
        cmocka_unit_test(a_lock_is_not_released_before_two_epochs_have_passed),
        cmocka_unit_test(a_path_that_was_begun_is_completed),
        cmocka_unit_test(children_that_may_be_published_are_not_reused),
        cmocka_unit_test(children_of_a_closing_of_unknown_outcome_are_reported_as_lost),
        cmocka_unit_test(a_session_that_may_have_closed_a_subtable_gives_up_its_slot),
        cmocka_unit_test(a_block_that_may_be_in_use_is_not_retired),
        cmocka_unit_test(a_lock_is_not_released_under_a_redo_that_was_not_seen),
        cmocka_unit_test(a_lock_is_not_released_under_a_redo_that_was_left),
        cmocka_unit_test(a_row_that_changes_is_not_damaged),
        cmocka_unit_test(an_entry_of_another_length_is_another_one),
        cmocka_unit_test(the_directory_is_only_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
