/* Checks of an RCuckoo table beside sessions at work: they find nothing. */
#include "index/rcuckoo/rcuckoo.h"
#include "index/walk.h"
#include "support/hook.h"
#include "support/sweep_rig.h"

#include <stdio.h>

struct rig {
    struct store_rig r;
    far_session *a, *b; /* a checks; b is r.session */
    far_table *t;
    struct rcuckoo_sub sub;
};
static struct rig *the; /* for hooks */
static bool busy;       /* the other session is at work */
static unsigned looks;  /* of the walker, at what the test is about */
static unsigned lines;  /* that the walker has reported */

/* Four lock words, so that a READ of all of them is longer than that of one. */
static void open_rig(struct rig *g)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options options = {.tuning = "rows=64&lock_rows=1&locks=16&grows=0",
                                        .hash_seed = 3};
    uint32_t v = 0;
    size_t len = 0;
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r, "mem:?size=4m&clients=8&lease=100", &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join(&g->r);
    assert_int_equal(far_table_create(g->b, "c", "rcuckoo", &options, &g->t), FAR_OK);
    for (uint32_t key = 0; key < 20; key++)
        assert_int_equal(far_put(g->b, g->t, &key, sizeof key, &key, sizeof key), FAR_OK);
    assert_int_equal(far_get(g->a, g->t, &v, sizeof v, &v, sizeof v, &len), FAR_OK);
    struct rcuckoo_view *view = rcuckoo_view(store_known(g->b, g->t)->view);
    assert_int_equal(rcuckoo_find(&g->b->op, view, 0, &g->sub), FAR_OK);
    assert_int_equal(view->shape.words, 4);
    the = g;
    looks = lines = 0;
}

static void close_rig(struct rig *g)
{
    far_session_close(g->a);
    store_rig_close(&g->r);
}

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
    lines++;
}

static void check(struct rig *g)
{
    struct index_report report = {.line = say};
    struct op *op = &g->a->op;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(rcuckoo_check(op, store_known(g->a, g->t)->view, &report), FAR_OK);
    op_end(op);
}

static void check_with(struct rig *g, int (*post)(struct fab_ep *ep, struct fab_req *req))
{
    hook_on(g->a->client.ep);
    hook.ops.post = post;
    check(g);
    hook_off();
}

static uint64_t lock_word(void)
{
    return store_rig_get(&the->r, the->sub.part.anchor, rcuckoo_word_at(0));
}
static void set_lock_word(uint64_t word)
{
    store_rig_set(&the->r, the->sub.part.anchor, rcuckoo_word_at(0), word);
}
static void set_closer(uint64_t closer)
{
    store_rig_set(&the->r, the->sub.part.anchor, offsetof(struct rcuckoo_anchor, closer), closer);
}

/* Does the request read this? */
static bool reads(const struct fab_req *req, uint64_t off, uint32_t len)
{
    bool hit = false;
    for (unsigned i = 0; i < req->count; i++)
        hit |=
            req->verbs[i].kind == FAB_READ && req->verbs[i].off == off && req->verbs[i].len == len;
    return hit;
}
static bool reads_lock_words(const struct fab_req *req)
{
    return reads(req, gaddr_offset(the->sub.part.anchor) + rcuckoo_word_at(0), 4 * 8);
}

/* ---- locks ----------------------------------------------------------------------------------- */

/* The put holds its locks, and is about to write its rows: then the table is checked. */
static int check_under_locks(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t rows = gaddr_offset(the->sub.rows);
    for (unsigned i = 0; i < req->count && !busy; i++) {
        if (req->verbs[i].kind != FAB_WRITE || req->verbs[i].off < rows ||
            req->verbs[i].off >=
                rows + rcuckoo_rows_bytes(&rcuckoo_view(store_known(the->a, the->t)->view)->shape))
            continue;
        busy = true;
        looks++;
        check(the);
        busy = false;
    }
    return hook.real->post(ep, req);
}

static void a_lock_of_a_session_at_work_is_not_stranded(void **state)
{
    struct rig g;
    uint32_t key = 3, v = 8;
    size_t len = 0;
    (void)state;
    open_rig(&g);
    hook_on(g.b->client.ep);
    hook.ops.post = check_under_locks;
    assert_int_equal(far_put(g.b, g.t, &key, sizeof key, &v, sizeof v), FAR_OK);
    hook_off();
    assert_int_equal(looks, 1);
    assert_int_equal(lines, 0);
    assert_int_equal(far_put(g.a, g.t, &key, sizeof key, &key, sizeof key), FAR_OK);
    assert_int_equal(far_get(g.b, g.t, &key, sizeof key, &v, sizeof v, &len), FAR_OK);
    assert_int_equal(v, key);
    close_rig(&g);
}

/* At each look at the lock words, the same lock is held, by one operation after the other. */
static int hold_at_looks(struct fab_ep *ep, struct fab_req *req)
{
    bool hit = reads_lock_words(req);
    if (hit)
        set_lock_word(1);
    hook_run(ep, req);
    if (hit)
        set_lock_word(0);
    looks += hit;
    return FAR_OK;
}

static void a_lock_that_is_taken_again_and_again_is_not_stranded(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g);
    check_with(&g, hold_at_looks);
    assert_true(looks > 1);
    assert_int_equal(lines, 0);
    assert_int_equal(lock_word(), 0);
    close_rig(&g);
}

static void a_lock_that_nobody_holds_is_reported_and_stays(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g);
    assert_int_equal(client_park(&g.b->op), FAR_OK); /* its lines are blank */
    set_lock_word(1);
    check(&g);
    assert_int_equal(lines, 1);
    assert_int_equal(lock_word(), 1);
    set_lock_word(0);
    close_rig(&g);
}

/* ---- closing --------------------------------------------------------------------------------- */

#define NOBODY 0x1230007u /* a client that is not in slot 7 any more */

/* The subtable is closed at all looks. Then it is opened before `closer` is read, or its closer is
 * asked for. */
static bool opens_late; /* `closer` was read before */
static int open_behind_the_looks(struct fab_ep *ep, struct fab_req *req)
{
    bool anchor = reads(req, gaddr_offset(the->sub.part.anchor), sizeof(struct rcuckoo_anchor));
    bool registry = reads(req, slot_delta(owner_slot(NOBODY)), 8);
    looks += reads_lock_words(req);
    if (looks == INDEX_WALK_LOOKS && (opens_late ? registry : anchor)) {
        looks++; /* once */
        set_lock_word(0);
        set_closer(0);
    }
    return hook.real->post(ep, req);
}

static void a_subtable_that_was_opened_meanwhile_is_not_called_closed(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct rig g;
        open_rig(&g);
        opens_late = i;
        set_closer(NOBODY);
        set_lock_word(RCUCKOO_CLOSED);
        check_with(&g, open_behind_the_looks);
        assert_true(looks > INDEX_WALK_LOOKS);
        assert_int_equal(lines, 0);
        close_rig(&g);
    }
}

/* ---- keys that are moved --------------------------------------------------------------------- */

/* Writes an entry into a row, as a client that holds its lock does. */
static void write_entry(unsigned row, unsigned slot, unsigned tag, const uint64_t *entry)
{
    struct op *op = &the->b->op;
    struct rcuckoo_view *view = rcuckoo_view(store_known(the->b, the->t)->view);
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t item[1 + RCUCKOO_ENTRY_MAX / 8];
    uint64_t *image = op_buffer(op, BUF_BULK, rcuckoo_row_bytes(s));
    batch_read(&op->batch, the->sub.rows, rcuckoo_row_at(s, row), image, rcuckoo_row_bytes(s));
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    item[0] = rcuckoo_redo_word(row, slot, tag, rcuckoo_version(*rcuckoo_meta(s, image)) + 1);
    memcpy(item + 1, entry, 8 * (size_t)s->entry);
    rcuckoo_row_redo(s, rcuckoo_sub_id(view, &the->sub), image, item);
    batch_write(&op->batch, MARK_EARLY, the->sub.rows, rcuckoo_row_at(s, row), image,
                rcuckoo_row_bytes(s));
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
}

/* Sets the key's entry in the row where it is not, or takes it out of there. */
static void copy_entry(bool there)
{
    static const uint64_t nothing[RCUCKOO_ENTRY_MAX / 8];
    const uint32_t number = 3;
    struct op *op = &the->b->op;
    struct rcuckoo_view *view = rcuckoo_view(store_known(the->b, the->t)->view);
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t entry[RCUCKOO_ENTRY_MAX / 8], *row[2];
    struct rcuckoo_key key;
    rcuckoo_key_set(view, (struct slice){&number, sizeof number}, &key);
    char *image = op_buffer(op, BUF_BULK, 2ull * rcuckoo_row_bytes(s));
    for (unsigned i = 0; i < 2; i++) {
        row[i] = (uint64_t *)(image + (size_t)i * rcuckoo_row_bytes(s));
        batch_read(&op->batch, the->sub.rows, rcuckoo_row_at(s, key.row[i]), row[i],
                   rcuckoo_row_bytes(s));
    }
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    unsigned from = rcuckoo_candidates(s, &key, row[0]) ? 0 : 1;
    unsigned slot = (unsigned)__builtin_ctz(rcuckoo_candidates(s, &key, row[from]));
    unsigned tag = rcuckoo_tags(s, row[from])[slot];
    memcpy(entry, rcuckoo_slot(s, row[from], slot), 8 * (size_t)s->entry);
    unsigned room = there ? rcuckoo_row_free(s, row[!from])
                          : (unsigned)__builtin_ctz(rcuckoo_candidates(s, &key, row[!from]));
    assert_true(room < RCUCKOO_SLOTS);
    write_entry(key.row[!from], room, there ? tag : RCUCKOO_EMPTY, there ? entry : nothing);
}

/* At each look at the rows, a key is being moved. */
static int move_at_looks(struct fab_ep *ep, struct fab_req *req)
{
    const struct rcuckoo_shape *s = &rcuckoo_view(store_known(the->a, the->t)->view)->shape;
    bool hit = reads(req, gaddr_offset(the->sub.rows), rcuckoo_rows_bytes(s));
    if (hit)
        copy_entry(true);
    hook_run(ep, req);
    if (hit)
        copy_entry(false);
    looks += hit;
    return FAR_OK;
}

static void a_key_that_is_moved_again_and_again_is_not_there_twice(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g);
    check_with(&g, move_at_looks);
    assert_true(looks > 1);
    assert_int_equal(lines, 0);
    close_rig(&g);
}

/* The key's lock is held at the looks: an insert that is slow may be moving it. */
static int lock_at_looks(struct fab_ep *ep, struct fab_req *req)
{
    bool hit = reads_lock_words(req);
    for (unsigned i = 0; i < 4 && hit; i++)
        store_rig_set(&the->r, the->sub.part.anchor, rcuckoo_word_at(i), 0xffff);
    hook_run(ep, req);
    for (unsigned i = 0; i < 4 && hit; i++)
        store_rig_set(&the->r, the->sub.part.anchor, rcuckoo_word_at(i), 0);
    looks += hit;
    return FAR_OK;
}

static void a_key_in_rows_that_are_locked_may_be_there_twice(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g);
    copy_entry(true);
    check_with(&g, lock_at_looks);
    assert_true(looks > 1);
    assert_int_equal(lines, 0);
    check(&g);
    assert_int_equal(lines, 1);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_of_a_session_at_work_is_not_stranded),
        cmocka_unit_test(a_lock_that_is_taken_again_and_again_is_not_stranded),
        cmocka_unit_test(a_lock_that_nobody_holds_is_reported_and_stays),
        cmocka_unit_test(a_subtable_that_was_opened_meanwhile_is_not_called_closed),
        cmocka_unit_test(a_key_that_is_moved_again_and_again_is_not_there_twice),
        cmocka_unit_test(a_key_in_rows_that_are_locked_may_be_there_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
