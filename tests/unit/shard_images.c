/* Images of units that are torn or old, and what SHARD does to notice: each test shows a client
 * one, as docs/fabric.md allows, and asks whether a key was lost or is there twice. */
#include "support/shard_rig.h"

/* ---- the READ of a unit, with some words of an earlier time -------------------------------- */
static struct {
    unsigned nth;      /* which READ of level 1 it is, from 1; 0 when it has happened */
    unsigned words;    /* the earlier ones, a bit for each slot */
    uint64_t early[4]; /* what they are */
    void (*meanwhile)(void);
} tear;

static void remember(struct rig *g)
{
    for (unsigned i = 0; i < 4; i++)
        tear.early[i] = word_of(g, 0, i);
}

static int tear_unit(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *hit = NULL;
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind == FAB_READ && req->verbs[i].off == unit_off(the, 0) &&
            req->verbs[i].len == 32)
            hit = &req->verbs[i];
    hit = hit && tear.nth > 0 && --tear.nth == 0 ? hit : NULL;
    if (hit && tear.meanwhile)
        tear.meanwhile();
    int rc = hook.real->post(ep, req);
    for (unsigned i = 0; hit && i < 4; i++)
        if (tear.words & 1u << i)
            ((uint64_t *)hit->buf)[i] = tear.early[i];
    return rc;
}

/* A's READs are hooked from here to tear_end(). */
static void tear_begin(struct rig *g, unsigned nth, unsigned words, void (*meanwhile)(void))
{
    tear.nth = nth;
    tear.words = words;
    tear.meanwhile = meanwhile;
    hook_on(g->a->client.ep);
    hook.ops.post = tear_unit;
}
static void tear_end(void)
{
    hook_off();
    assert_int_equal(tear.nth, 0);
}

static void set_word(struct rig *g, uint64_t bucket, unsigned slot, uint64_t word)
{
    store_rig_set(&g->r, 0, unit_off(g, bucket) + slot * 8, word);
}

static gaddr top_of(struct rig *g)
{
    struct shard_unit unit;
    uint64_t delta;
    shard_unit_set(view_of(g, g->b), &unit, 0, 0);
    gaddr at = shard_slot_at(view_of(g, g->b), &unit, 5, &delta);
    return at + delta;
}

static int delete (struct rig *g, far_session *s, uint32_t key)
{
    return far_delete(s, g->t, &key, sizeof key);
}

static int update(struct rig *g, far_session *s, uint32_t key, uint32_t value)
{
    return far_update(s, g->t, &key, sizeof key, &value, sizeof value);
}

static uint32_t key[16], extra, from;

static void start(struct rig *g)
{
    the = g;
    from = 0;
    open_rig(g);
}

/* Keys of bucket 0 in its first slots. */
static void fill_slots(struct rig *g, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        key[i] = key_with(g, &from, 7, 0);
        assert_int_equal(insert(g, g->b, key[i], i), FAR_OK);
    }
    assert_true(shard_live(word_of(g, 0, 0)));
    extra = key_with(g, &from, 7, 4);
}

static void sound(struct rig *g)
{
    assert_int_equal(far_table_check(g->b, g->t, say, NULL), FAR_OK);
    close_rig(g);
}

/* ---- SHARD-S4: purges ----------------------------------------------------------------------- */

/* The first slot is purged and used for the key; then the frontier is used. */
static void purge_and_fill(void)
{
    uint32_t next = key_with(the, &from, 7, 0);
    assert_int_equal(delete (the, the->b, key[0]), FAR_OK);
    assert_int_equal(insert(the, the->b, extra, 100), FAR_OK);
    assert_int_equal(insert(the, the->b, next, 101), FAR_OK);
    assert_true(shard_live(word_of(the, 0, 0)) && shard_live(word_of(the, 0, 3)));
}

static void a_purge_shows_behind_its_frontier(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 3);
    remember(&g);
    tear_begin(&g, 1, 1 << 0, purge_and_fill);
    int rc = insert(&g, g.a, extra, 5);
    tear_end();
    assert_int_equal(rc, FAR_EXISTS);
    sound(&g);
}

static void two_looks_must_show_the_same_frontier(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 3);
    assert_int_equal(delete (&g, g.b, key[0]), FAR_OK);
    key[0] = key_with(&g, &from, 7, 0);
    assert_int_equal(insert(&g, g.b, key[0], 6), FAR_OK); /* purges */
    remember(&g);
    assert_true(shard_live(tear.early[0]) && shard_is(tear.early[3], SHARD_COMPLETE));
    tear_begin(&g, 2, 1 << 0, purge_and_fill); /* the first is whole, and shows that frontier */
    int rc = insert(&g, g.a, extra, 5);
    tear_end();
    assert_int_equal(rc, FAR_EXISTS);
    sound(&g);
}

/* Between A's first READ of level 1 and 2 and what it posts next. */
static struct batch_tap tap;
static unsigned stage;
static void (*between)(void);
static bool reads_unit(const struct fab_verb *verbs, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (verbs[i].kind == FAB_READ && verbs[i].off == unit_off(the, 0))
            return true;
    return false;
}
static void after_the_read(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    (void)t;
    if (stage == 0)
        stage = reads_unit(verbs, count);
    else if (stage++ == 1)
        between();
}

static int change_with(struct rig *g,
                       int (*change)(struct rig *g, far_session *s, uint32_t key, uint32_t value),
                       void (*meanwhile)(void))
{
    stage = 0;
    between = meanwhile;
    tap = (struct batch_tap){.posted = after_the_read};
    g->a->op.batch.tap = &tap;
    int rc = change(g, g->a, extra, 5);
    g->a->op.batch.tap = NULL;
    assert_true(stage > 1);
    return rc;
}

/* The unit gets a chain, and is full again. */
static void fill_chain(void)
{
    assert_int_equal(delete (the, the->b, key[0]), FAR_OK);
    assert_int_equal(insert(the, the->b, extra, 100), FAR_OK);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(insert(the, the->b, key_with(the, &from, 7, 0), i), FAR_OK);
}

static void a_unit_that_is_full_is_read_twice(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 6);
    assert_int_equal(change_with(&g, insert, fill_chain), FAR_EXISTS);
    sound(&g);
}

/* SHARD-S3. */
static void delete_and_insert(void)
{
    assert_int_equal(delete (the, the->b, key[0]), FAR_OK);
    assert_int_equal(insert(the, the->b, extra, 100), FAR_OK);
}

static void a_deleted_slot_is_not_used_at_once(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 2);
    assert_int_equal(change_with(&g, insert, delete_and_insert), FAR_EXISTS);
    sound(&g);
}

/* Posts verb by verb, and looks after each for the key that a chain node is to take over. */
static int one_by_one(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        uint32_t v;
        req->verbs = &all[i];
        req->count = 1;
        req->done = false;
        rc = hook.real->post(ep, req);
        assert_int_equal(get(the, the->b, key[5], &v), FAR_OK);
    }
    req->verbs = all;
    req->count = count;
    return rc;
}

static void a_chain_node_is_written_before_it_is_linked(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 6);
    hook_on(g.a->client.ep);
    hook.ops.post = one_by_one;
    int rc = insert(&g, g.a, extra, 5);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_true(shard_is_link(store_rig_get(&g.r, top_of(&g), 0)));
    sound(&g);
}

/* ---- SHARD-S5: moves ------------------------------------------------------------------------ */

/* The key that A's image did not show as it is must not be lost. */
static void expect_there(struct rig *g)
{
    uint32_t v = 0;
    int rc = get(g, g->b, extra, &v);
    assert_int_equal(rc, FAR_OK);
    sound(g);
}

static void a_plan_does_not_miss_what_came_into_a_purged_slot(void **state)
{
    struct rig g;
    uint32_t v, goes;
    (void)state;
    start(&g);
    fill_slots(&g, 3);
    goes = key_with(&g, &from, 7, 4);
    assert_int_equal(delete (&g, g.b, key[0]), FAR_OK);
    assert_int_equal(delete (&g, g.b, key[1]), FAR_OK);
    assert_int_equal(insert(&g, g.b, goes, 6), FAR_OK);
    remember(&g);
    assert_true(shard_is(tear.early[1], SHARD_FILLER) && shard_is(tear.early[3], SHARD_COMPLETE));
    assert_int_equal(insert(&g, g.b, extra, 7), FAR_OK);
    assert_int_equal(insert(&g, g.b, key_with(&g, &from, 7, 0), 8), FAR_OK);
    resize(&g);
    tear_begin(&g, 2, 1 << 1, NULL); /* the first is the get's own, the second that of its move */
    assert_int_equal(get(&g, g.a, goes, &v), FAR_OK);
    tear_end();
    expect_there(&g);
}

static void a_move_does_not_rely_on_an_image_of_before_its_plan(void **state)
{
    struct rig g;
    uint32_t v, goes;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    goes = key_with(&g, &from, 7, 4);
    assert_int_equal(insert(&g, g.b, goes, 6), FAR_OK);
    remember(&g);
    assert_int_equal(insert(&g, g.b, extra, 7), FAR_OK);
    resize(&g);
    set_word(&g, 0, 3, shard_control(SHARD_PLAN, 1, false)); /* of another mover */
    tear_begin(&g, 2, 1 << 2, NULL);
    assert_int_equal(get(&g, g.a, goes, &v), FAR_OK);
    tear_end();
    expect_there(&g);
}

/* B moves a unit. A comes before B's first CAS of a bucket: the unit itself, or its child. */
static uint64_t changed_off;
static void (*before_it)(void);
static void before_the_change(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    (void)t;
    for (unsigned i = 0; i < count && stage == 0; i++) {
        if (verbs[i].kind != FAB_CAS || verbs[i].off < changed_off ||
            verbs[i].off >= changed_off + 40)
            continue;
        stage = 1;
        before_it();
    }
}

static void meet_at(struct rig *g, uint64_t bucket, uint32_t got, void (*meanwhile)(void))
{
    uint32_t v;
    stage = 0;
    changed_off = unit_off(g, bucket);
    before_it = meanwhile;
    tap = (struct batch_tap){.posted = before_the_change};
    g->b->op.batch.tap = &tap;
    (void)get(g, g->b, got, &v);
    g->b->op.batch.tap = NULL;
    assert_int_equal(stage, 1);
}

/* The unit has been purged, and is sealed when A comes. A's image has one word of before the move,
 * and others as the move has left them. */
static unsigned early_word;
static void meet_the_fill(struct rig *g, uint64_t child, unsigned early, void (*meanwhile)(void))
{
    remember(g);
    early_word = 1u << early;
    meet_at(g, child, key_with(g, &from, 2 * child - 1, child), meanwhile);
}

/* A does not know yet that the barrier is over, until it announces again. */
static void forget_the_barrier(struct rig *g)
{
    struct client *a = &g->a->client;
    view_of(g, g->a)->settled = 0;
    a->epoch.seen = view_of(g, g->b)->barrier - 1;
    client_withhold_announcements(a, true);
}

static void insert_while_pending(void)
{
    forget_the_barrier(the);
    tear_begin(the, 1, early_word, NULL);
    assert_int_equal(insert(the, the->a, extra, 5), FAR_OK);
    tear_end();
    client_withhold_announcements(&the->a->client, false);
}

/* The plan is in a filler, and A sees the frontier freed. */
static void an_insert_does_not_use_a_frontier_that_a_move_has_freed(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 3);
    assert_int_equal(delete (&g, g.b, key[0]), FAR_OK);
    assert_int_equal(delete (&g, g.b, key[1]), FAR_OK);
    assert_int_equal(insert(&g, g.b, key_with(&g, &from, 7, 0), 6), FAR_OK);
    resize(&g);
    meet_the_fill(&g, 4, 1, insert_while_pending);
    assert_true(shard_is(tear.early[1], SHARD_FILLER) && shard_is(tear.early[3], SHARD_COMPLETE));
    expect_there(&g);
}

/* The plan is in the frontier, and A sees a filler freed that no purge has completed. */
static void an_insert_does_not_use_a_filler_that_a_move_has_freed(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 3);
    assert_int_equal(delete (&g, g.b, key[0]), FAR_OK);
    set_word(&g, 0, 0, shard_control(SHARD_FILLER, 1, false)); /* of a client that died then */
    resize(&g);
    meet_the_fill(&g, 4, 3, insert_while_pending);
    expect_there(&g);
}

static void move_what_is_moved(void)
{
    uint32_t v;
    tear_begin(the, 2, early_word, NULL); /* the first is the get's own */
    assert_int_equal(get(the, the->a, key[3], &v), FAR_OK);
    tear_end();
}

/* B's plan is in a filler. If A put another one into the frontier, that would not say that B has
 * begun to renew sids. */
static void a_plan_is_not_put_into_a_frontier_that_a_move_has_freed(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    extra = key_with(&g, &from, 0x3f | 1 << 9, 1 << 9); /* stays; bit 3 of its next sid is set */
    assert_int_equal(insert(&g, g.b, extra, 5), FAR_OK);
    for (unsigned i = 0; i < 2; i++) {
        key[i] = key_with(&g, &from, 0x3f, 0);
        assert_int_equal(insert(&g, g.b, key[i], i), FAR_OK);
    }
    for (unsigned i = 0; i < 3; i++)
        resize(&g);
    assert_int_equal(far_update(g.b, g.t, &extra, 4, &(uint32_t){6}, 4), FAR_OK); /* moves it */
    assert_int_equal(delete (&g, g.b, key[0]), FAR_OK);
    assert_int_equal(delete (&g, g.b, key[1]), FAR_OK);
    key[3] = key_with(&g, &from, 0x3f, 0x20);
    assert_int_equal(insert(&g, g.b, key[3], 7), FAR_OK);
    resize(&g);
    meet_the_fill(&g, 32, 2, move_what_is_moved);
    assert_true(shard_is(tear.early[2], SHARD_FILLER) && shard_is(tear.early[3], SHARD_COMPLETE));
    expect_there(&g);
}

static void update_while_pending(void)
{
    forget_the_barrier(the);
    assert_int_equal(update(the, the->a, extra, 9), FAR_OK);
    client_withhold_announcements(&the->a->client, false);
}

/* A updates the key before B's move can seal its entry. */
static void a_move_takes_no_entry_that_it_could_not_seal(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 6), FAR_OK);
    resize(&g);
    meet_at(&g, 0, extra, update_while_pending);
    assert_int_equal(get(&g, g.b, extra, &v), FAR_OK);
    assert_int_equal(v, 9);
    sound(&g);
}

static void insert_at_the_plan(void)
{
    forget_the_barrier(the);
    assert_int_equal(insert(the, the->a, extra, 9), FAR_OK);
    client_withhold_announcements(&the->a->client, false);
}

/* A inserts the key where B's move wants its plan to be. */
static void a_move_does_not_go_on_without_its_plan(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    resize(&g);
    meet_at(&g, 0, key_with(&g, &from, 7, 4), insert_at_the_plan);
    expect_there(&g);
}

/* The entry behind the link, by another mover. */
static void seal_in_the_chain(void)
{
    gaddr node = pointer_gaddr(store_rig_get(&the->r, top_of(the), 0));
    uint64_t entry = store_rig_get(&the->r, node, 8);
    assert_true(shard_live(entry));
    store_rig_set(&the->r, node, 8, entry | shard_seal(0));
    store_rig_set(&the->r, node, 16, shard_control(SHARD_PLAN, 1, false));
}

static void a_writer_before_the_barrier_notices_a_move_in_level_3(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 6);
    assert_int_equal(insert(&g, g.b, extra, 6), FAR_OK);
    resize(&g);
    forget_the_barrier(&g);
    assert_int_equal(change_with(&g, update, seal_in_the_chain), FAR_OK);
    client_withhold_announcements(&g.a->client, false);
    expect_there(&g);
}

static void a_writer_does_not_use_slots_of_a_move_under_way(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 6), FAR_OK);
    resize(&g);
    set_word(&g, 0, 1, word_of(&g, 0, 1) | shard_seal(0)); /* by another mover */
    set_word(&g, 0, 2, shard_control(SHARD_PLAN, 1, false));
    assert_int_equal(insert(&g, g.a, key_with(&g, &from, 7, 0), 7), FAR_OK);
    expect_there(&g);
}

static void a_mark_alone_does_not_publish(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 6), FAR_OK);
    resize(&g);
    set_word(&g, 0, 1, word_of(&g, 0, 1) | shard_seal(0)); /* by another mover */
    set_word(&g, 0, 2, shard_control(SHARD_PLAN, 1, false));
    set_word(&g, 4, 3, shard_control(SHARD_MARK, 1, false)); /* and before the entry */
    assert_int_equal(insert(&g, g.a, key_with(&g, &from, 7, 0), 7), FAR_OK);
    expect_there(&g);
}

static void a_reader_finds_what_is_sealed(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 6), FAR_OK);
    resize(&g);
    set_word(&g, 0, 1, word_of(&g, 0, 1) | shard_seal(0)); /* by another mover */
    set_word(&g, 0, 2, shard_control(SHARD_PLAN, 1, false));
    assert_int_equal(get(&g, g.a, extra, &v), FAR_OK);
    sound(&g);
}

/* B moves the unit, and uses the slot of the key that has gone. */
static void move_and_overwrite(void)
{
    uint32_t v;
    uint64_t word = word_of(the, 0, 1);
    assert_int_equal(get(the, the->b, extra, &v), FAR_OK);
    assert_int_equal(insert(the, the->b, key_with(the, &from, 15, 0), 8), FAR_OK);
    assert_true(shard_live(word_of(the, 0, 1)) && word_of(the, 0, 1) != word);
}

static void a_reader_does_not_rely_on_an_image_of_after_the_move(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 6), FAR_OK);
    resize(&g);
    tear_begin(&g, 1, 0, move_and_overwrite);
    int rc = get(&g, g.a, extra, &v);
    tear_end();
    assert_int_equal(rc, FAR_OK);
    sound(&g);
}

/* Another mover seals what goes, and says so in the plan. */
static void seal_and_say(void)
{
    for (unsigned i = 0; i < 4; i++) {
        uint64_t word = word_of(the, 0, i);
        if (shard_is(word, SHARD_PLAN))
            set_word(the, 0, i, word | SHARD_PLAN_SEALED);
        else if (shard_live(word) && shard_entry_goes(word, 3, 0))
            set_word(the, 0, i, word | shard_seal(3));
    }
}

static void a_move_does_not_rely_on_an_image_of_before_the_seals(void **state)
{
    struct rig g;
    uint32_t v, goes;
    (void)state;
    start(&g);
    goes = key_with(&g, &from, 0x3f, 0x20);    /* goes at version 4, which renews the sids */
    extra = key_with(&g, &from, 0x3ff, 0x220); /* its next sid is the same */
    assert_int_equal(insert(&g, g.b, goes, 6), FAR_OK);
    assert_int_equal(insert(&g, g.b, extra, 7), FAR_OK);
    for (unsigned i = 0; i < 3; i++)
        resize(&g);
    assert_int_equal(far_update(g.b, g.t, &extra, 4, &(uint32_t){8}, 4), FAR_OK);
    resize(&g);
    remember(&g);
    set_word(&g, 0, 2, shard_control(SHARD_PLAN, 4, false));
    tear_begin(&g, 3, 1 << 1, seal_and_say);
    assert_int_equal(get(&g, g.a, goes, &v), FAR_OK);
    tear_end();
    expect_there(&g);
}

static void seal_say_and_renew(void)
{
    uint64_t word = word_of(the, 0, 0);
    seal_and_say();
    set_word(the, 0, 0,
             shard_with_sid(word, shard_sid(view_of(the, the->b), hash_of(the, extra), 4)));
}

static void a_move_does_not_seal_by_next_sids(void **state)
{
    struct rig g;
    uint32_t v, goes;
    (void)state;
    start(&g);
    extra = key_with(&g, &from, 0x23f, 0x200); /* stays, but the last bit of its next sid is set */
    goes = key_with(&g, &from, 0x3f, 0x20);
    assert_int_equal(insert(&g, g.b, extra, 6), FAR_OK);
    assert_int_equal(insert(&g, g.b, goes, 7), FAR_OK);
    for (unsigned i = 0; i < 3; i++)
        resize(&g);
    assert_int_equal(far_update(g.b, g.t, &extra, 4, &(uint32_t){8}, 4), FAR_OK);
    resize(&g);
    set_word(&g, 0, 2, shard_control(SHARD_PLAN, 4, false));
    remember(&g);
    tear_begin(&g, 3, 1 << 2, seal_say_and_renew);
    assert_int_equal(get(&g, g.a, goes, &v), FAR_OK);
    tear_end();
    expect_there(&g);
}

/* ---- SHARD-S8: the root and the barrier ----------------------------------------------------- */

/* Until the caches have been validated, and need not be read again. */
static void validate(struct rig *g)
{
    uint32_t v;
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(get(g, g->a, dummy, &v), FAR_OK);
        assert_int_equal(get(g, g->b, dummy, &v), FAR_OK);
    }
}

/* A knows the new version, but not when the barrier is over. */
static void hold_back(struct rig *g)
{
    struct shard_view *view = view_of(g, g->a);
    assert_int_equal(view->version, 1);
    view->settled = 0;
    view->barrier = 0;
    store_rig_set(&g->r, view->root, offsetof(struct shard_root, resize), shard_resize(1, 0));
}

static void a_reader_before_the_barrier_notices_a_move(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 5), FAR_OK);
    resize(&g);
    hold_back(&g);
    assert_int_equal(far_update(g.b, g.t, &extra, 4, &(uint32_t){6}, 4), FAR_OK);
    assert_int_equal(get(&g, g.a, extra, &v), FAR_OK);
    assert_int_equal(v, 6);
    sound(&g);
}

static void a_writer_before_the_barrier_notices_a_move(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    resize(&g);
    hold_back(&g);
    assert_int_equal(get(&g, g.b, extra, &v), FAR_NOT_FOUND); /* moves the unit: nothing goes */
    assert_true(shard_is(word_of(&g, 0, 1), SHARD_PLAN));
    assert_int_equal(insert(&g, g.b, key_with(&g, &from, 7, 0), 5), FAR_OK); /* replaces the plan */
    assert_int_equal(insert(&g, g.a, extra, 6), FAR_OK);
    expect_there(&g);
}

/* B sets the next version. */
static void set_version(struct rig *g)
{
    uint64_t at = offsetof(struct shard_root, count);
    uint32_t v = 7;
    store_rig_set(&g->r, view_of(g, g->b)->root, at, 1u << 30);
    assert_int_equal(far_put(g->b, g->t, &dummy, sizeof dummy, &v, sizeof v), FAR_OK);
    store_rig_set(&g->r, view_of(g, g->b)->root, at, 0);
}

/* The second READ of the root, which is for its segments, has those of before a resize. */
static int tear_root(struct fab_ep *ep, struct fab_req *req)
{
    gaddr root = view_of(the, the->b)->root;
    struct fab_verb *hit = NULL;
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind == FAB_READ && req->verbs[i].off == gaddr_offset(root) &&
            req->verbs[i].len == sizeof(struct shard_root))
            hit = &req->verbs[i];
    if (!hit || tear.nth == 0 || --tear.nth > 0)
        return hook.real->post(ep, req);
    uint64_t words = sizeof(struct shard_root) / 8,
             first = offsetof(struct shard_root, segment) / 8;
    uint64_t early[sizeof(struct shard_root) / 8];
    unsigned behind = (unsigned)(hit - req->verbs);
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    for (uint64_t i = 0; i < words; i++)
        early[i] = store_rig_get(&the->r, root, i * 8);
    req->count = behind; /* what goes before it comes before the resize */
    int rc = hook.real->post(ep, req);
    set_version(the);
    req->verbs = hit;
    req->count = count - behind;
    req->done = false;
    rc = rc == FAR_OK ? hook.real->post(ep, req) : rc;
    req->verbs = all;
    req->count = count;
    memcpy((uint64_t *)hit->buf + first, early + first, (words - first) * 8);
    return rc;
}

static void a_torn_root_deceives_nobody(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    far_session *c = store_rig_join(&g.r);
    tear.nth = 2; /* the first is for the geometry */
    hook_on(c->client.ep);
    hook.ops.post = tear_root;
    int rc = get(&g, c, dummy, &v);
    tear_end();
    assert_int_equal(rc, FAR_OK);
    far_session_close(c);
    sound(&g);
}

/* B has set the next version, and moves as soon as it may. */
static void move_when_settled(unsigned before)
{
    uint32_t v = 7;
    for (unsigned i = 0; i < 50 && view_of(the, the->b)->settled == before; i++)
        assert_int_equal(far_put(the->b, the->t, &dummy, 4, &v, 4), FAR_OK);
    if (view_of(the, the->b)->settled > before)
        move_and_overwrite();
}

static void resize_and_move(void)
{
    set_version(the);
    move_when_settled(0);
}

static void no_move_begins_before_all_know_the_version(void **state)
{
    (void)state;
    for (unsigned before = 0; before < 64; before++) { /* the epochs of A and B differ */
        struct rig g;
        uint32_t v = 0;
        start(&g);
        fill_slots(&g, 1);
        assert_int_equal(insert(&g, g.b, extra, 5), FAR_OK);
        for (unsigned i = 0; i < before / 8; i++)
            assert_int_equal(get(&g, g.b, dummy, &v), FAR_OK);
        for (unsigned i = 0; i < before % 8; i++)
            assert_int_equal(get(&g, g.a, dummy, &v), FAR_OK);
        tear_begin(&g, 1, 0, resize_and_move);
        int rc = get(&g, g.a, extra, &v);
        tear_end();
        assert_int_equal(rc, FAR_OK);
        sound(&g);
    }
}

/* The epoch of A's get is newer than the last one that B has validated. */
static void resize_in_the_epoch_before(void)
{
    assert_true(client_epoch_view(&the->a->client).validated >
                client_epoch_view(&the->b->client).validated);
    set_version(the);
    client_withhold_announcements(&the->b->client, false);
    move_when_settled(0);
}

static void the_barrier_counts_from_the_newest_epoch(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 5), FAR_OK);
    validate(&g);
    client_withhold_announcements(&g.b->client, true);
    for (unsigned i = 0; i < 20; i++) {
        client_hurry_epoch(&g.a->client);
        assert_int_equal(get(&g, g.a, dummy, &v), FAR_OK);
    }
    tear_begin(&g, 1, 0, resize_in_the_epoch_before);
    int rc = get(&g, g.a, extra, &v);
    tear_end();
    assert_int_equal(rc, FAR_OK);
    sound(&g);
}

/* Of a resize, the last request does not get through. */
static int break_off(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t root = gaddr_offset(view_of(the, the->b)->root);
    if (stage == 1)
        stage = 2;
    else if (stage == 2) {
        stage = 3;
        req->done = true;
        req->status = FAR_UNREACHABLE;
        return FAR_OK;
    }
    for (unsigned i = 0; i < req->count && stage == 0; i++)
        if (req->verbs[i].kind == FAB_CAS && req->verbs[i].off == root)
            stage = 1;
    return hook.real->post(ep, req);
}

static void set_version_only(void)
{
    stage = 0;
    client_withhold_announcements(&the->b->client, true); /* the hook has another clock */
    hook_on(the->b->client.ep);
    hook.ops.post = break_off;
    set_version(the);
    hook_off();
    client_withhold_announcements(&the->b->client, false);
    assert_int_equal(stage, 3);
}

static void a_resize_that_was_broken_off_has_no_barrier_yet(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    assert_int_equal(insert(&g, g.b, extra, 5), FAR_OK);
    validate(&g);
    set_version_only();
    for (unsigned i = 0; i < 100 && view_of(&g, g.b)->settled == 0; i++) {
        assert_int_equal(far_put(g.b, g.t, &dummy, 4, &v, 4), FAR_OK);
        assert_int_equal(get(&g, g.a, dummy, &v), FAR_OK);
    }
    assert_int_equal(view_of(&g, g.b)->settled, 1);
    assert_int_equal(get(&g, g.b, extra, &v), FAR_OK); /* moves it */
    assert_int_equal(get(&g, g.a, extra, &v), FAR_OK);
    sound(&g);
}

/* Before A reads the unit. */
static void break_off_and_move(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    (void)t;
    if (stage > 0 || !reads_unit(verbs, count))
        return;
    set_version_only();
    move_when_settled(1);
}

static void the_barrier_of_the_resize_before_does_not_count(void **state)
{
    struct rig g;
    uint32_t v = 0;
    (void)state;
    start(&g);
    fill_slots(&g, 1);
    extra = key_with(&g, &from, 15, 8);
    assert_int_equal(insert(&g, g.b, extra, 5), FAR_OK);
    resize(&g);
    assert_int_equal(update(&g, g.b, extra, 6), FAR_OK); /* moves it to version 1 */
    validate(&g);
    stage = 0;
    tap = (struct batch_tap){.posted = break_off_and_move};
    g.a->op.batch.tap = &tap;
    int rc = get(&g, g.a, extra, &v);
    g.a->op.batch.tap = NULL;
    assert_int_equal(stage, 3);
    assert_int_equal(rc, FAR_OK);
    sound(&g);
}

/* ---- memory of a client that was too late --------------------------------------------------- */

/* A puts a key. B comes before A's CAS at this place: what A has allocated for it is not lost. */
static void come_before(struct rig *g, uint64_t off, uint32_t put, void (*meanwhile)(void))
{
    uint32_t v = 5;
    stage = 0;
    changed_off = off;
    before_it = meanwhile;
    tap = (struct batch_tap){.posted = before_the_change};
    g->a->op.batch.tap = &tap;
    int rc = far_put(g->a, g->t, &put, sizeof put, &v, sizeof v);
    g->a->op.batch.tap = NULL;
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(stage, 1);
    assert_true(puppet_lost_bytes(&g->a->client) == 0);
    sound(g);
}

static void make_chain(void)
{
    assert_int_equal(insert(the, the->b, key_with(the, &from, 7, 0), 6), FAR_OK);
    assert_true(shard_is_link(store_rig_get(&the->r, top_of(the), 0)));
}

static void a_chain_node_that_comes_too_late_is_not_lost(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    fill_slots(&g, 6);
    come_before(&g, gaddr_offset(top_of(&g)), extra, make_chain);
}

static void resize_first(void)
{
    set_version(the);
    gaddr root = view_of(the, the->b)->root;
    assert_true(store_rig_get(&the->r, root, offsetof(struct shard_root, segment[1].tops)) != 0);
}

static void a_segment_that_comes_too_late_is_not_lost(void **state)
{
    struct rig g;
    (void)state;
    start(&g);
    gaddr root = view_of(&g, g.b)->root;
    store_rig_set(&g.r, root, offsetof(struct shard_root, count), 1u << 30);
    come_before(&g, gaddr_offset(root) + offsetof(struct shard_root, segment[1]), dummy,
                resize_first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_purge_shows_behind_its_frontier),
        cmocka_unit_test(two_looks_must_show_the_same_frontier),
        cmocka_unit_test(a_deleted_slot_is_not_used_at_once),
        cmocka_unit_test(a_unit_that_is_full_is_read_twice),
        cmocka_unit_test(a_plan_does_not_miss_what_came_into_a_purged_slot),
        cmocka_unit_test(a_move_does_not_rely_on_an_image_of_before_its_plan),
        cmocka_unit_test(a_move_does_not_rely_on_an_image_of_before_the_seals),
        cmocka_unit_test(a_move_takes_no_entry_that_it_could_not_seal),
        cmocka_unit_test(a_move_does_not_go_on_without_its_plan),
        cmocka_unit_test(a_writer_does_not_use_slots_of_a_move_under_way),
        cmocka_unit_test(an_insert_does_not_use_a_frontier_that_a_move_has_freed),
        cmocka_unit_test(an_insert_does_not_use_a_filler_that_a_move_has_freed),
        cmocka_unit_test(a_plan_is_not_put_into_a_frontier_that_a_move_has_freed),
        cmocka_unit_test(a_mark_alone_does_not_publish),
        cmocka_unit_test(a_reader_finds_what_is_sealed),
        cmocka_unit_test(no_move_begins_before_all_know_the_version),
        cmocka_unit_test(the_barrier_counts_from_the_newest_epoch),
        cmocka_unit_test(a_chain_node_is_written_before_it_is_linked),
        cmocka_unit_test(a_reader_does_not_rely_on_an_image_of_after_the_move),
        cmocka_unit_test(a_move_does_not_seal_by_next_sids),
        cmocka_unit_test(a_reader_before_the_barrier_notices_a_move),
        cmocka_unit_test(a_writer_before_the_barrier_notices_a_move),
        cmocka_unit_test(a_writer_before_the_barrier_notices_a_move_in_level_3),
        cmocka_unit_test(a_torn_root_deceives_nobody),
        cmocka_unit_test(a_resize_that_was_broken_off_has_no_barrier_yet),
        cmocka_unit_test(the_barrier_of_the_resize_before_does_not_count),
        cmocka_unit_test(a_chain_node_that_comes_too_late_is_not_lost),
        cmocka_unit_test(a_segment_that_comes_too_late_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
