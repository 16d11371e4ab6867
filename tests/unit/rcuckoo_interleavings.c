/* Interleavings and limits that RCuckoo must survive. A test moves entries, tears verbs or stops
 * clients where a run of the simulator seldom does. */
#include "index/rcuckoo/rcuckoo.h"
#include "support/hook.h"
#include "support/sweep_rig.h"

#include <stdio.h>

struct rig {
    struct store_rig r;
    far_session *a, *b; /* b is r.session */
    far_table *t;
};
static struct rig *the; /* for hooks */

#define SMALL "rows=64&lock_rows=1&locks=16"

static void open_rig_with(struct rig *g, const char *tuning, struct knobs knobs)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    knobs.tick_ops = 1;
    store_rig_open_driven(&g->r, "mem:?size=4m&clients=8&lease=100", &knobs, NULL, NULL);
    g->b = g->r.session;
    g->a = store_rig_join(&g->r);
    assert_int_equal(far_table_create(g->b, "c", "rcuckoo", &options, &g->t), FAR_OK);
    the = g;
}

static void open_rig(struct rig *g, const char *tuning)
{
    open_rig_with(g, tuning, pool_knobs_default);
}

static void close_rig(struct rig *g)
{
    if (g->a)
        far_session_close(g->a);
    store_rig_close(&g->r);
}

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
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

/* ---- rows, as a client that holds their locks reads and writes them -------------------------- */
static struct rcuckoo_view *view_of(struct rig *g)
{
    return rcuckoo_view(store_known(g->b, g->t)->view);
}
static const struct rcuckoo_shape *shape_of(struct rig *g)
{
    return &view_of(g)->shape;
}
static struct rcuckoo_key key_of(struct rig *g, const uint32_t *number)
{
    struct rcuckoo_key key;
    rcuckoo_key_set(view_of(g), (struct slice){number, sizeof *number}, &key);
    return key;
}
static struct rcuckoo_sub sub_of(struct rig *g, uint32_t number)
{
    struct rcuckoo_sub sub;
    assert_int_equal(rcuckoo_find(&g->b->op, view_of(g), key_of(g, &number).hash, &sub), FAR_OK);
    return sub;
}

static uint64_t *read_row(struct rig *g, const struct rcuckoo_sub *sub, unsigned row)
{
    struct op *op = &g->b->op;
    const struct rcuckoo_shape *s = shape_of(g);
    uint64_t *image = op_buffer(op, BUF_BULK, rcuckoo_row_bytes(s));
    batch_read(&op->batch, sub->rows, rcuckoo_row_at(s, row), image, rcuckoo_row_bytes(s));
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
    return image;
}

static void write_entry(struct rig *g, const struct rcuckoo_sub *sub, unsigned row, unsigned slot,
                        unsigned tag, const uint64_t *entry)
{
    struct op *op = &g->b->op;
    const struct rcuckoo_shape *s = shape_of(g);
    uint64_t item[1 + RCUCKOO_ENTRY_MAX / 8], *image = read_row(g, sub, row);
    item[0] = rcuckoo_redo_word(row, slot, tag, rcuckoo_version(*rcuckoo_meta(s, image)) + 1);
    memcpy(item + 1, entry, 8 * (size_t)s->entry);
    rcuckoo_row_redo(s, rcuckoo_sub_id(view_of(g), sub), image, item);
    batch_write(&op->batch, sub->rows, rcuckoo_row_at(s, row), image, rcuckoo_row_bytes(s));
    assert_int_equal(batch_flush(&op->batch), FAR_OK);
}

/* Moves the entry from one of its rows to the other, as an insert does along its path. */
static void move_key(struct rig *g, uint32_t number, unsigned from)
{
    static const uint64_t nothing[RCUCKOO_ENTRY_MAX / 8];
    const struct rcuckoo_shape *s = shape_of(g);
    struct rcuckoo_key key = key_of(g, &number);
    struct rcuckoo_sub sub = sub_of(g, number);
    uint64_t entry[RCUCKOO_ENTRY_MAX / 8], *row = read_row(g, &sub, key.row[from]);
    unsigned found = rcuckoo_candidates(s, &key, row);
    assert_int_not_equal(found, 0);
    unsigned slot = (unsigned)__builtin_ctz(found), tag = rcuckoo_tags(s, row)[slot];
    memcpy(entry, rcuckoo_slot(s, row, slot), 8 * (size_t)s->entry);
    unsigned room = rcuckoo_row_free(s, read_row(g, &sub, key.row[!from]));
    assert_true(room < RCUCKOO_SLOTS);
    write_entry(g, &sub, key.row[!from], room, tag, entry);
    write_entry(g, &sub, key.row[from], slot, RCUCKOO_EMPTY, nothing);
}

/* In which of its rows is the key? */
static unsigned side_of(struct rig *g, uint32_t number)
{
    struct rcuckoo_key key = key_of(g, &number);
    struct rcuckoo_sub sub = sub_of(g, number);
    return rcuckoo_candidates(shape_of(g), &key, read_row(g, &sub, key.row[0])) ? 0 : 1;
}

/* A key that is not there yet, whose rows are neighbours or are not. */
static uint32_t find_key(struct rig *g, bool neighbours)
{
    for (uint32_t number = 1000;; number++) {
        struct rcuckoo_key key = key_of(g, &number);
        unsigned a = key.row[0], b = key.row[1];
        if ((a + 1 == b || b + 1 == a) == neighbours)
            return number;
    }
}

/* Puts the key, and has it in the row wanted. */
static void put_in(struct rig *g, uint32_t number, unsigned side)
{
    assert_int_equal(put_u32(g, g->b, number, number), FAR_OK);
    if (side_of(g, number) != side)
        move_key(g, number, !side);
    assert_int_equal(side_of(g, number), side);
}

/* Posts some of a request's verbs. */
static int post_part(struct fab_ep *ep, struct fab_req *req, unsigned from, unsigned count)
{
    struct fab_verb *all = req->verbs;
    unsigned of = req->count;
    req->verbs = all + from;
    req->count = count;
    req->done = false;
    int rc = hook.real->post(ep, req);
    req->verbs = all;
    req->count = of;
    return rc;
}

/* ---- a get while its key is moved ------------------------------------------------------------ */
static uint32_t moved_key;
static struct rcuckoo_sub split_sub;
static unsigned moves;

static bool reads_rows(const struct fab_req *req, unsigned rows)
{
    return req->count > 1 && req->verbs[0].kind == FAB_READ &&
           req->verbs[0].len == rows * rcuckoo_row_bytes(shape_of(the));
}

/* Between the READs of A and B, the key is moved from B to A. */
static int move_between(struct fab_ep *ep, struct fab_req *req)
{
    if (moves > 0 || !reads_rows(req, 1))
        return hook.real->post(ep, req);
    moves++;
    int rc = post_part(ep, req, 0, 1);
    move_key(the, moved_key, 1);
    return rc == FAR_OK ? post_part(ep, req, 1, req->count - 1) : rc;
}

static void a_miss_is_validated(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    moves = 0;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_OK); /* it knows the rows */
    moved_key = find_key(&g, false);
    put_in(&g, moved_key, 1);
    hook_on(g.a->client.ep);
    hook.ops.post = move_between;
    int rc = get_u32(&g, g.a, moved_key, &v);
    hook_off();
    assert_int_equal(moves, 1);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(v, moved_key);
    close_rig(&g);
}

/* One READ has both rows: B as it was before the key was moved there, A as it was afterwards. */
static int move_within(struct fab_ep *ep, struct fab_req *req)
{
    const struct rcuckoo_shape *s = shape_of(the);
    if (moves > 0 || !reads_rows(req, 2))
        return hook.real->post(ep, req);
    moves++;
    int rc = post_part(ep, req, 0, 1);
    move_key(the, moved_key, 0);
    struct rcuckoo_sub sub = sub_of(the, moved_key);
    struct rcuckoo_key key = key_of(the, &moved_key);
    uint64_t *a = (uint64_t *)req->verbs[0].buf + (key.row[0] < key.row[1] ? 0 : s->row);
    memcpy(a, read_row(the, &sub, key.row[0]), rcuckoo_row_bytes(s));
    return rc == FAR_OK ? post_part(ep, req, 1, req->count - 1) : rc;
}

static void a_miss_in_one_read_is_validated_by_both_rows(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    moves = 0;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_OK);
    moved_key = find_key(&g, true);
    put_in(&g, moved_key, 0);
    hook_on(g.a->client.ep);
    hook.ops.post = move_within;
    int rc = get_u32(&g, g.a, moved_key, &v);
    hook_off();
    assert_int_equal(moves, 1);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(v, moved_key);
    close_rig(&g);
}

/* ---- an insert that moves keys --------------------------------------------------------------- */
static uint32_t keys_put;
static unsigned paths;

static bool all_found(struct rig *g, far_session *s)
{
    uint32_t v = 0;
    for (uint32_t key = 0; key < keys_put; key++)
        if (get_u32(g, s, key, &v) != FAR_OK || v != key)
            return false;
    return true;
}

/* Between any two verbs of the batch that writes the rows of a path, another client reads all
 * keys. */
static int look_at_each_step(struct fab_ep *ep, struct fab_req *req)
{
    unsigned rows = 0;
    int rc = FAR_OK;
    for (unsigned i = 0; i < req->count; i++)
        rows += req->verbs[i].kind == FAB_WRITE &&
                req->verbs[i].len == rcuckoo_row_bytes(shape_of(the));
    if (rows < 2)
        return hook.real->post(ep, req);
    paths++;
    for (unsigned i = 0; i < req->count && rc == FAR_OK; i++) {
        rc = post_part(ep, req, i, 1);
        assert_true(all_found(the, the->a));
    }
    return rc;
}

static void a_key_that_is_moved_is_always_there(void **state)
{
    struct rig g;
    (void)state;
    paths = 0;
    open_rig(&g, SMALL);
    keys_put = 0;
    assert_int_equal(put_u32(&g, g.b, keys_put, keys_put), FAR_OK);
    hook_on(g.b->client.ep);
    hook.ops.post = look_at_each_step;
    for (keys_put = 1; keys_put < 460; keys_put++)
        assert_int_equal(put_u32(&g, g.b, keys_put, keys_put), FAR_OK);
    hook_off();
    printf("    %u paths\n", paths);
    assert_true(paths > 0);
    assert_true(all_found(&g, g.b));
    close_rig(&g);
}

/* A row that a key came to and left again is not the row that it was: RCUCKOO-C4 relies on that. */
static void a_row_that_was_written_has_another_meta_word(void **state)
{
    struct rig g;
    uint32_t key = 5;
    (void)state;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, key, 1), FAR_OK);
    struct rcuckoo_sub sub = sub_of(&g, key);
    unsigned row = key_of(&g, &key).row[side_of(&g, key)];
    uint64_t before = *rcuckoo_meta(shape_of(&g), read_row(&g, &sub, row));
    assert_int_equal(put_u32(&g, g.b, key, 2), FAR_OK);
    assert_int_equal(put_u32(&g, g.b, key, 1), FAR_OK);
    uint64_t after = *rcuckoo_meta(shape_of(&g), read_row(&g, &sub, row));
    assert_int_equal(rcuckoo_version(after), rcuckoo_version(before) + 2);
    close_rig(&g);
}

/* A session may read rows by an address where another subtable has its rows now. */
static void a_row_belongs_to_its_subtable(void **state)
{
    struct rig g;
    uint32_t key = 5;
    (void)state;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, key, 1), FAR_OK);
    struct rcuckoo_sub sub = sub_of(&g, key);
    unsigned row = key_of(&g, &key).row[side_of(&g, key)];
    uint64_t id = rcuckoo_sub_id(view_of(&g), &sub), *image = read_row(&g, &sub, row);
    assert_true(rcuckoo_row_whole(shape_of(&g), id, row, image));
    for (unsigned half = 0; half < 2; half++)
        assert_false(
            rcuckoo_row_whole(shape_of(&g), rcuckoo_child_id(view_of(&g), &sub, half), row, image));
    close_rig(&g);
}

/* ---- a modify whose answer needs a block ----------------------------------------------------- */
struct counter {
    uint64_t count;
    char rest[56]; /* too long to be inline */
};
static unsigned asked;

static enum far_decision count_on(void *arg, const void *old, size_t old_len, const void **value,
                                  size_t *value_len)
{
    struct counter *counter = arg;
    assert_int_equal(old_len, sizeof *counter);
    memcpy(counter, old, sizeof *counter);
    counter->count++;
    asked++;
    *value = counter;
    *value_len = sizeof *counter;
    return FAR_STORE;
}

/* The user has answered once. Before the locks are taken again, another client changes the key. */
static int change_before_the_locks(struct fab_ep *ep, struct fab_req *req)
{
    static const struct counter ten = {.count = 10};
    bool locks = false;
    for (unsigned i = 0; i < req->count; i++)
        locks |= req->verbs[i].kind == FAB_MCAS;
    if (locks && asked == 1 && moves++ == 0)
        assert_int_equal(far_put(the->b, the->t, "k", 1, &ten, sizeof ten), FAR_OK);
    return hook.real->post(ep, req);
}

static void a_modify_stores_its_last_answer(void **state)
{
    struct rig g;
    struct counter c = {0};
    size_t len = 0;
    (void)state;
    asked = moves = 0;
    open_rig(&g, SMALL);
    assert_int_equal(far_put(g.b, g.t, "k", 1, &c, sizeof c), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = change_before_the_locks;
    int rc = far_modify(g.a, g.t, "k", 1, count_on, &c);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(asked, 2);
    assert_int_equal(far_get(g.b, g.t, "k", 1, &c, sizeof c, &len), FAR_OK);
    assert_int_equal(c.count, 11);
    close_rig(&g);
}

/* ---- rows that are torn ---------------------------------------------------------------------- */
static unsigned tears;

/* Half of the first row is written, and the client dies. */
static int die_at_the_row(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && tears == 0; i++) {
        struct fab_verb *v = &req->verbs[i];
        if (v->kind != FAB_WRITE || v->len != rcuckoo_row_bytes(shape_of(the)))
            continue;
        uint32_t len = v->len;
        tears++;
        v->len = len / 16 * 8;
        int rc = post_part(ep, req, 0, i + 1);
        v->len = len;
        req->status = FAR_UNKNOWN;
        return rc;
    }
    return tears > 0 ? FAR_UNREACHABLE : hook.real->post(ep, req);
}

static void a_get_waits_for_the_recovery_of_a_dead_writer(void **state)
{
    struct rig g;
    uint32_t v = 0, key = 77;
    (void)state;
    tears = 0;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, key, 1), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, key, &v), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = die_at_the_row;
    int rc = put_u32(&g, g.a, key, 2);
    hook_off();
    printf("    put: %s\n", far_strerror(rc));
    assert_int_equal(tears, 1);
    store_rig_kill(g.a);
    g.a = NULL;
    rc = get_u32(&g, g.b, key, &v);
    printf("    get: %s, %u\n", far_strerror(rc), v);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(v, 2);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- recoveries ------------------------------------------------------------------------------ */
static unsigned stopped; /* posts after which nothing of the client arrives any more */

static unsigned kill_session(far_session **s)
{
    unsigned slot = (*s)->client.slot;
    store_rig_kill(*s);
    *s = NULL;
    return slot;
}

/* Recovers the client of a slot, or goes on with a recovery that another one has begun. */
static int recover_slot(struct rig *g, far_session *by, unsigned slot)
{
    uint64_t word = store_rig_get(&g->r, NODE0, slot_delta(slot));
    return word == 0 ? FAR_OK : puppet_recover(&by->op, slot, word);
}

static bool is_lock(const struct fab_verb *v)
{
    uint64_t words = gaddr_offset(split_sub.part.anchor) + rcuckoo_word_at(0);
    return v->off >= words && v->off < words + 8ull * shape_of(the)->words;
}

/* The client stops when it has unlocked. At that instant the row is whole. */
static int stop_at_the_unlock(struct fab_ep *ep, struct fab_req *req)
{
    unsigned end = 0;
    if (stopped > 0)
        return FAR_UNREACHABLE;
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind == FAB_FAA && is_lock(&req->verbs[i]))
            end = i + 1;
    if (end == 0)
        return hook.real->post(ep, req);
    uint32_t v = 0;
    stopped = 1;
    int rc = post_part(ep, req, 0, end);
    assert_int_equal(get_u32(the, the->b, moved_key, &v), FAR_OK);
    assert_int_equal(v, 2);
    req->status = FAR_UNKNOWN;
    return rc;
}

/* A put of 2 for the key stops in the middle of the row. */
static unsigned die_in_a_put(struct rig *g, uint32_t key)
{
    uint32_t v = 0;
    tears = stopped = 0;
    moved_key = key;
    assert_int_equal(put_u32(g, g->b, key, 1), FAR_OK);
    assert_int_equal(get_u32(g, g->a, key, &v), FAR_OK);
    split_sub = sub_of(g, key);
    hook_on(g->a->client.ep);
    hook.ops.post = die_at_the_row;
    assert_int_equal(put_u32(g, g->a, key, 2), FAR_UNKNOWN);
    hook_off();
    assert_int_equal(tears, 1);
    return kill_session(&g->a);
}

static void a_redo_is_not_repeated_behind_its_unlock(void **state)
{
    struct rig g;
    uint32_t v = 0, key = 77;
    (void)state;
    open_rig(&g, SMALL);
    far_session *c = store_rig_join(&g.r);
    assert_int_equal(get_u32(&g, c, key, &v), FAR_NOT_FOUND); /* it knows the table */
    unsigned dead = die_in_a_put(&g, key);
    hook_on(c->client.ep);
    hook.ops.post = stop_at_the_unlock;
    assert_int_not_equal(recover_slot(&g, c, dead), FAR_OK);
    hook_off();
    assert_int_equal(stopped, 1);
    unsigned recoverer = kill_session(&c);
    assert_int_equal(put_u32(&g, g.b, key, 3), FAR_OK);
    assert_int_equal(recover_slot(&g, g.b, recoverer), FAR_OK);
    assert_int_equal(recover_slot(&g, g.b, dead), FAR_OK);
    assert_int_equal(get_u32(&g, g.b, key, &v), FAR_OK);
    assert_int_equal(v, 3);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

/* The client stops behind its masked CAS of a lock. */
static int stop_at_the_lock(struct fab_ep *ep, struct fab_req *req)
{
    if (stopped > 0)
        return FAR_UNREACHABLE;
    for (unsigned i = 0; i < req->count; i++)
        stopped += req->verbs[i].kind == FAB_MCAS && is_lock(&req->verbs[i]);
    return hook.real->post(ep, req);
}

/* The client stops before it writes a row. */
static int stop_before_the_row(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        stopped += req->verbs[i].kind == FAB_WRITE &&
                   req->verbs[i].len == rcuckoo_row_bytes(shape_of(the));
    return stopped > 0 ? FAR_UNREACHABLE : hook.real->post(ep, req);
}

/* Two dead clients: one holds the locks, with a row half written, the other wanted them. */
static void locks_of_a_half_written_row_are_kept(void **state)
{
    struct rig g;
    uint32_t v = 0, key = 77;
    (void)state;
    open_rig(&g, SMALL);
    far_session *c = store_rig_join(&g.r), *d = store_rig_join(&g.r);
    assert_int_equal(get_u32(&g, c, key, &v), FAR_NOT_FOUND);
    assert_int_equal(get_u32(&g, d, key, &v), FAR_NOT_FOUND);
    unsigned holder = die_in_a_put(&g, key);
    const struct rcuckoo_shape *s = shape_of(&g);
    unsigned row = key_of(&g, &key).row[0];
    uint64_t word = rcuckoo_word_at(rcuckoo_lock_word(s, row)), bit = rcuckoo_lock_bit(s, row);
    assert_true(store_rig_get(&g.r, split_sub.part.anchor, word) & bit);
    hook_on(d->client.ep); /* begins to recover the holder, so that it is fenced */
    hook.ops.post = stop_before_the_row;
    assert_int_not_equal(recover_slot(&g, d, holder), FAR_OK);
    hook_off();
    assert_true(stopped > 0);
    stopped = 0;
    hook_on(c->client.ep);
    hook.ops.post = stop_at_the_lock;
    assert_int_not_equal(put_u32(&g, c, key, 4), FAR_OK);
    hook_off();
    assert_true(stopped > 0);
    unsigned other = kill_session(&c), recoverer = kill_session(&d);
    assert_int_equal(recover_slot(&g, g.b, other), FAR_TIMEOUT); /* after the holder's redo */
    assert_true(store_rig_get(&g.r, split_sub.part.anchor, word) & bit);
    assert_int_equal(recover_slot(&g, g.b, recoverer), FAR_OK);
    assert_int_equal(recover_slot(&g, g.b, holder), FAR_OK);
    assert_int_equal(recover_slot(&g, g.b, other), FAR_OK);
    assert_int_equal(store_rig_get(&g.r, split_sub.part.anchor, word), 0);
    assert_int_equal(get_u32(&g, g.b, key, &v), FAR_OK);
    assert_int_equal(v, 2);
    close_rig(&g);
}

/* ---- an iteration while a key is moved ------------------------------------------------------- */
static enum { MOVE_BETWEEN, MOVE_ONCE, MOVE_TWICE, TEAR } disturbance;

/* Moves the key, and lets the READ find the row that it has left as it is now. */
static void leave_row(const struct fab_verb *v, unsigned from)
{
    const struct rcuckoo_shape *s = shape_of(the);
    unsigned row = key_of(the, &moved_key).row[from];
    struct rcuckoo_sub sub = sub_of(the, moved_key);
    move_key(the, moved_key, from);
    memcpy((char *)v->buf + rcuckoo_row_at(s, row), read_row(the, &sub, row), rcuckoo_row_bytes(s));
}

static int disturb_a_snapshot(struct fab_ep *ep, struct fab_req *req)
{
    const struct rcuckoo_shape *s = shape_of(the);
    struct fab_verb *v = req->verbs;
    if (moves > 0 || req->count < 2 || v[1].kind != FAB_READ || v[1].len != rcuckoo_rows_bytes(s))
        return hook.real->post(ep, req);
    moves++;
    assert_int_equal(post_part(ep, req, 0, 1), FAR_OK);
    if (disturbance == MOVE_BETWEEN)
        move_key(the, moved_key, 0);
    if (disturbance == MOVE_TWICE)
        leave_row(&v[0], 0);
    assert_int_equal(post_part(ep, req, 1, 1), FAR_OK);
    unsigned side = disturbance == MOVE_TWICE;
    uint64_t *row =
        (uint64_t *)((char *)v[1].buf + rcuckoo_row_at(s, key_of(the, &moved_key).row[0]));
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS && disturbance == TEAR; slot++)
        rcuckoo_slot(s, row, slot)[s->value_at] ^= 1;
    if (disturbance == MOVE_ONCE || disturbance == MOVE_TWICE)
        leave_row(&v[1], side);
    return post_part(ep, req, 2, req->count - 2);
}

static void iterate_disturbed(int how)
{
    struct rig g;
    char buf[4096];
    size_t len = 0, pos = 0;
    uint64_t cursor = 0;
    uint32_t seen = 0, v = 0;
    struct far_entry e;
    disturbance = how;
    moves = 0;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, 1, 1), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_OK);
    moved_key = find_key(&g, false);
    put_in(&g, moved_key, 0);
    hook_on(g.a->client.ep);
    hook.ops.post = disturb_a_snapshot;
    assert_int_equal(far_iterate(g.a, g.t, &cursor, 0, buf, sizeof buf, &len), FAR_OK);
    hook_off();
    assert_int_equal(moves, 1);
    while (far_entry_next(buf, len, &pos, &e))
        seen += memcmp(e.key, &moved_key, 4) == 0 && memcmp(e.value, &moved_key, 4) == 0;
    assert_int_equal(seen, 1);
    close_rig(&g);
}

static void an_iteration_returns_a_key_once_if_it_is_moved(void **state)
{
    (void)state;
    iterate_disturbed(MOVE_BETWEEN);
}

static void an_iteration_finds_a_key_that_is_moved(void **state)
{
    (void)state;
    iterate_disturbed(MOVE_ONCE);
}

static void an_iteration_finds_a_key_that_is_moved_twice(void **state)
{
    (void)state;
    iterate_disturbed(MOVE_TWICE);
}

static void an_iteration_returns_nothing_of_a_torn_row(void **state)
{
    (void)state;
    iterate_disturbed(TEAR);
}

/* ---- an iteration that begins where a subtable is split -------------------------------------- */
#define KEYS_BEFORE 20u

/* Before the first snapshot, another session adds keys until the subtable is split. */
static int split_before_a_snapshot(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *v = req->verbs;
    if (moves > 0 || req->count < 2 || v[1].kind != FAB_READ ||
        v[1].len != rcuckoo_rows_bytes(shape_of(the)))
        return hook.real->post(ep, req);
    moves++;
    unsigned depth = sub_of(the, 1).part.depth;
    for (uint32_t key = KEYS_BEFORE; sub_of(the, 1).part.depth == depth; key++)
        assert_int_equal(put_u32(the, the->b, key, key), FAR_OK);
    return hook.real->post(ep, req);
}

/* The call finds nothing but that the subtable was split, and may read no more: that is not the
 * end. */
static void an_iteration_that_begins_at_a_split_is_not_over(void **state)
{
    (void)state;
    struct rig g;
    struct knobs knobs = pool_knobs_default;
    char buf[4096];
    bool seen[KEYS_BEFORE] = {false};
    uint64_t cursor = 0;
    uint32_t v = 0;
    moves = 0;
    knobs.iterate_parts = 1;
    open_rig_with(&g, SMALL, knobs);
    for (uint32_t key = 1; key < KEYS_BEFORE; key++)
        assert_int_equal(put_u32(&g, g.b, key, key), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, 1, &v), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = split_before_a_snapshot;
    do {
        struct far_entry e;
        size_t len = 0, pos = 0;
        assert_int_equal(far_iterate(g.a, g.t, &cursor, 0, buf, sizeof buf, &len), FAR_OK);
        while (far_entry_next(buf, len, &pos, &e)) {
            memcpy(&v, e.key, sizeof v);
            if (v < KEYS_BEFORE)
                seen[v] = true;
        }
    } while (cursor != 0);
    hook_off();
    assert_int_equal(moves, 1);
    for (uint32_t key = 1; key < KEYS_BEFORE; key++)
        assert_true(seen[key]);
    close_rig(&g);
}

#define TORN_VALUE 0x7a11e5u

/* The READ of the row shows the entry with the value of another one that was there before. */
static int tear_the_value(struct fab_ep *ep, struct fab_req *req)
{
    const uint32_t value = TORN_VALUE;
    int rc = hook.real->post(ep, req);
    for (unsigned i = 0; i < req->count && tears == 0; i++) {
        char *hit = req->verbs[i].kind == FAB_READ
                        ? memmem(req->verbs[i].buf, req->verbs[i].len, &value, sizeof value)
                        : NULL;
        if (hit) {
            memset(hit, 0, sizeof value);
            tears++;
        }
    }
    return rc;
}

static void a_get_returns_nothing_of_a_torn_row(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    tears = 0;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, 5, TORN_VALUE), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = tear_the_value;
    assert_int_equal(get_u32(&g, g.a, 5, &v), FAR_OK);
    hook_off();
    assert_int_equal(tears, 1);
    assert_int_equal(v, TORN_VALUE);
    close_rig(&g);
}

/* ---- damage ---------------------------------------------------------------------------------- */
static void a_damaged_row_is_not_written(void **state)
{
    struct rig g;
    uint32_t key = 5, v = 0;
    (void)state;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, key, 1), FAR_OK);
    struct rcuckoo_sub sub = sub_of(&g, key);
    uint64_t at = rcuckoo_row_at(shape_of(&g), key_of(&g, &key).row[0]) + 8;
    uint64_t word = store_rig_get(&g.r, sub.rows, at);
    store_rig_set(&g.r, sub.rows, at, word ^ 1);
    assert_int_equal(put_u32(&g, g.b, key, 2), FAR_CORRUPT);
    assert_int_equal(get_u32(&g, g.a, key + 1, &v), FAR_NOT_FOUND);
    store_rig_set(&g.r, sub.rows, at, word);
    assert_int_equal(get_u32(&g, g.a, key, &v), FAR_OK);
    assert_int_equal(v, 1);
    assert_int_equal(put_u32(&g, g.b, key, 2), FAR_OK); /* the locks were released */
    close_rig(&g);
}

static void a_damaged_block_is_not_a_miss(void **state)
{
    static const char key[] = "a key that is not inline";
    struct rig g;
    char value[100] = {0};
    size_t len = 0;
    (void)state;
    open_rig(&g, SMALL);
    assert_int_equal(far_put(g.b, g.t, key, sizeof key, value, sizeof value), FAR_OK);
    struct rcuckoo_key k;
    struct rcuckoo_sub sub;
    rcuckoo_key_set(view_of(&g), (struct slice){key, sizeof key}, &k);
    assert_int_equal(rcuckoo_find(&g.b->op, view_of(&g), k.hash, &sub), FAR_OK);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t *row = read_row(&g, &sub, k.row[i]);
        unsigned found = rcuckoo_candidates(shape_of(&g), &k, row);
        if (found == 0)
            continue;
        uint64_t pointer = rcuckoo_slot_pointer(shape_of(&g), row, (unsigned)__builtin_ctz(found));
        uint64_t word = store_rig_get(&g.r, pointer_gaddr(pointer), 64);
        store_rig_set(&g.r, pointer_gaddr(pointer), 64, word ^ 1);
    }
    assert_int_equal(far_get(g.a, g.t, key, sizeof key, value, sizeof value, &len), FAR_CORRUPT);
    close_rig(&g);
}

/* ---- locks and splits ------------------------------------------------------------------------ */
static void rows_may_share_a_lock(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "rows=4&lock_rows=1&locks=1&words=1");
    for (uint32_t key = 0; key < 10; key++)
        assert_int_equal(put_u32(&g, g.b, key, key), FAR_OK);
    close_rig(&g);
}

static void keys_that_no_split_separates_fill_the_table(void **state)
{
    struct rig g;
    struct knobs knobs = pool_knobs_default;
    uint32_t keys = 0;
    int rc = FAR_OK;
    (void)state;
    knobs.hash_mask = 0;
    open_rig_with(&g, SMALL, knobs);
    for (; keys < 100 && rc == FAR_OK; keys += rc == FAR_OK)
        rc = put_u32(&g, g.b, keys, keys);
    assert_int_equal(rc, FAR_TABLE_FULL);
    assert_int_equal(keys, 2 * RCUCKOO_SLOTS);
    assert_int_equal(view_of(&g)->base.grown, 0);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- a get while a subtable is split --------------------------------------------------------- */
static far_session *writer;
static unsigned looks;

/* From the CAS of `forward` on, another client changes a key behind each verb, and a third reads
 * it. */
static int change_at_each_step(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t forward =
        gaddr_offset(split_sub.part.anchor) + offsetof(struct rcuckoo_anchor, forward);
    bool is_split = false;
    int rc = FAR_OK;
    for (unsigned i = 0; i < req->count; i++)
        is_split |= req->verbs[i].kind == FAB_CAS && req->verbs[i].off == forward;
    if (!is_split || looks > 0)
        return hook.real->post(ep, req);
    for (unsigned i = 0; i < req->count && rc == FAR_OK; i++) {
        uint32_t v = 0;
        rc = post_part(ep, req, i, 1);
        looks += looks > 0 || (req->verbs[i].kind == FAB_CAS && req->verbs[i].off == forward);
        if (looks == 0)
            continue;
        assert_int_equal(put_u32(the, writer, 0, 1000 + looks), FAR_OK);
        assert_int_equal(get_u32(the, the->a, 0, &v), FAR_OK);
        assert_int_equal(v, 1000 + looks);
    }
    return rc;
}

static void a_get_follows_a_split_at_once(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    looks = 0;
    open_rig(&g, "rows=4&lock_rows=1&locks=2");
    writer = store_rig_join(&g.r);
    assert_int_equal(put_u32(&g, g.b, 0, 0), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, 0, &v), FAR_OK);
    split_sub = sub_of(&g, 0);
    hook_on(g.b->client.ep);
    hook.ops.post = change_at_each_step;
    for (uint32_t key = 1; key < 100 && looks == 0; key++)
        assert_int_equal(put_u32(&g, g.b, key, key), FAR_OK);
    hook_off();
    printf("    %u looks\n", looks);
    assert_true(looks > 0);
    far_session_close(writer);
    close_rig(&g);
}

/* A client sets the moved bits. Its CAS of `forward` arrives late, and then the client is dead. */
static uint64_t late_forward;

static int stop_before_forward(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t forward =
        gaddr_offset(split_sub.part.anchor) + offsetof(struct rcuckoo_anchor, forward);
    if (late_forward != 0)
        return FAR_UNREACHABLE;
    for (unsigned i = 0; i < req->count; i++) {
        if (req->verbs[i].kind != FAB_CAS || req->verbs[i].off != forward)
            continue;
        late_forward = req->verbs[i].swap;
        int rc = post_part(ep, req, 0, i);
        req->status = FAR_UNKNOWN;
        return rc;
    }
    return hook.real->post(ep, req);
}

/* It arrives when another client has read the anchor, and is about to take the closer's place. */
static int set_forward_before_take_over(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t closer = gaddr_offset(split_sub.part.anchor) + offsetof(struct rcuckoo_anchor, closer);
    for (unsigned i = 0; i < req->count && looks == 0; i++) {
        if (req->verbs[i].kind != FAB_CAS || req->verbs[i].off != closer)
            continue;
        looks++;
        store_rig_set(&the->r, split_sub.part.anchor, offsetof(struct rcuckoo_anchor, forward),
                      late_forward);
    }
    return hook.real->post(ep, req);
}

static void a_subtable_that_was_split_is_not_opened(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    looks = 0;
    late_forward = 0;
    open_rig(&g, "rows=4&lock_rows=1&locks=2");
    far_session *c = store_rig_join(&g.r), *d = store_rig_join(&g.r);
    assert_int_equal(put_u32(&g, g.b, 0, 0), FAR_OK);
    assert_int_equal(get_u32(&g, c, 0, &v), FAR_OK);
    split_sub = sub_of(&g, 0);
    hook_on(g.a->client.ep);
    hook.ops.post = stop_before_forward;
    for (uint32_t key = 1; key < 100 && late_forward == 0; key++)
        (void)put_u32(&g, g.a, key, key);
    hook_off();
    assert_int_not_equal(late_forward, 0);
    (void)kill_session(&g.a);
    hook_on(c->client.ep);
    hook.ops.post = set_forward_before_take_over;
    assert_int_equal(put_u32(&g, c, 0, 7), FAR_OK);
    hook_off();
    assert_int_equal(looks, 1);
    assert_int_equal(get_u32(&g, d, 0, &v), FAR_OK); /* it begins with what the anchor says now */
    assert_int_equal(v, 7);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    far_session_close(c);
    far_session_close(d);
    close_rig(&g);
}

/* A client has closed the subtable, set the moved bits, and died. */
static void the_moved_bits_of_a_dead_closer_are_removed(void **state)
{
    struct rig g;
    uint32_t key = 5, v = 0;
    (void)state;
    open_rig(&g, SMALL);
    assert_int_equal(put_u32(&g, g.b, key, 1), FAR_OK);
    assert_int_equal(get_u32(&g, g.a, key, &v), FAR_OK);
    const struct rcuckoo_shape *s = shape_of(&g);
    struct rcuckoo_sub sub = sub_of(&g, key);
    store_rig_set(&g.r, sub.part.anchor, offsetof(struct rcuckoo_anchor, closer),
                  client_owner_word(&g.a->client));
    for (unsigned i = 0; i < s->words; i++)
        store_rig_set(&g.r, sub.part.anchor, rcuckoo_word_at(i), RCUCKOO_CLOSED);
    for (unsigned i = 0; i < s->rows; i++) {
        uint64_t at = rcuckoo_row_at(s, i + 1) - 8;
        store_rig_set(&g.r, sub.rows, at, store_rig_get(&g.r, sub.rows, at) | RCUCKOO_MOVED);
    }
    store_rig_kill(g.a);
    g.a = NULL;
    assert_int_equal(get_u32(&g, g.b, key, &v), FAR_OK); /* the moved bits alone say nothing */
    assert_int_equal(put_u32(&g, g.b, key, 2), FAR_OK);
    for (unsigned i = 0; i < s->rows; i++)
        assert_false(store_rig_get(&g.r, sub.rows, rcuckoo_row_at(s, i + 1) - 8) & RCUCKOO_MOVED);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- two clients that split ------------------------------------------------------------------ */
static uint32_t more;

/* A has allocated the children, and is about to close the subtable: B splits it first. */
static int split_before_the_closing(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t closer = gaddr_offset(split_sub.part.anchor) + offsetof(struct rcuckoo_anchor, closer);
    for (unsigned i = 0; i < req->count && looks == 0; i++) {
        if (req->verbs[i].kind != FAB_CAS || req->verbs[i].off != closer)
            continue;
        looks++;
        while (view_of(the)->base.grown == 0)
            assert_int_equal(put_u32(the, the->b, more++, 1), FAR_OK);
    }
    return hook.real->post(ep, req);
}

static void children_that_come_too_late_are_not_lost(void **state)
{
    struct rig g;
    (void)state;
    looks = 0;
    more = 1000;
    open_rig(&g, "rows=4&lock_rows=1&locks=2");
    assert_int_equal(put_u32(&g, g.b, 0, 0), FAR_OK);
    split_sub = sub_of(&g, 0);
    hook_on(g.a->client.ep);
    hook.ops.post = split_before_the_closing;
    for (uint32_t key = 1; key < 100 && looks == 0; key++)
        assert_int_equal(put_u32(&g, g.a, key, key), FAR_OK);
    hook_off();
    assert_int_equal(looks, 1);
    assert_true(puppet_lost_bytes(&g.a->client) == 0);
    assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_miss_is_validated),
        cmocka_unit_test(a_miss_in_one_read_is_validated_by_both_rows),
        cmocka_unit_test(a_key_that_is_moved_is_always_there),
        cmocka_unit_test(a_row_that_was_written_has_another_meta_word),
        cmocka_unit_test(a_row_belongs_to_its_subtable),
        cmocka_unit_test(a_modify_stores_its_last_answer),
        cmocka_unit_test(a_get_waits_for_the_recovery_of_a_dead_writer),
        cmocka_unit_test(a_redo_is_not_repeated_behind_its_unlock),
        cmocka_unit_test(locks_of_a_half_written_row_are_kept),
        cmocka_unit_test(an_iteration_returns_a_key_once_if_it_is_moved),
        cmocka_unit_test(an_iteration_finds_a_key_that_is_moved),
        cmocka_unit_test(an_iteration_finds_a_key_that_is_moved_twice),
        cmocka_unit_test(an_iteration_returns_nothing_of_a_torn_row),
        cmocka_unit_test(an_iteration_that_begins_at_a_split_is_not_over),
        cmocka_unit_test(a_get_returns_nothing_of_a_torn_row),
        cmocka_unit_test(a_damaged_row_is_not_written),
        cmocka_unit_test(a_damaged_block_is_not_a_miss),
        cmocka_unit_test(rows_may_share_a_lock),
        cmocka_unit_test(keys_that_no_split_separates_fill_the_table),
        cmocka_unit_test(a_get_follows_a_split_at_once),
        cmocka_unit_test(a_subtable_that_was_split_is_not_opened),
        cmocka_unit_test(the_moved_bits_of_a_dead_closer_are_removed),
        cmocka_unit_test(children_that_come_too_late_are_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
