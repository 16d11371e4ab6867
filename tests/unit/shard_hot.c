/* Hints and own keys of SHARD: keys that a session has seen or written take one or two round trips
 * less (HINT-H1, HINT-H2), also while the table grows (SHARD-S9, SHARD-S10). */
#include "support/shard_rig.h"

static uint32_t key;

static void open_hot(struct rig *g, const char *where, unsigned kib)
{
    const char *usual = uri;
    the = g;
    uri = where ? where : usual;
    hot = kib;
    open_rig(g);
    uri = usual;
}

#define DEFERRED "mem:?size=16m&clients=8&lease=60&defer=1"

static uint64_t rtts(const far_session *s)
{
    return s->op.cost.rtts;
}

static int put_key(struct rig *g, far_session *s, uint32_t value)
{
    return far_put(s, g->t, &key, sizeof key, &value, sizeof value);
}
static int update(struct rig *g, far_session *s, uint32_t k, uint32_t value)
{
    return far_update(s, g->t, &k, sizeof k, &value, sizeof value);
}
static void expect_put(struct rig *g, far_session *s, uint32_t value, uint64_t round_trips)
{
    assert_int_equal(put_key(g, s, value), FAR_OK);
    assert_int_equal(rtts(s), round_trips);
}
static void expect_get(struct rig *g, far_session *s, uint32_t value, uint64_t round_trips)
{
    uint32_t v = 0;
    assert_int_equal(get(g, s, key, &v), FAR_OK);
    assert_int_equal(v, value);
    assert_int_equal(rtts(s), round_trips);
}

static void keys_that_were_seen_take_a_round_trip_less(void **state)
{
    (void)state;
    for (unsigned kib = 0; kib < 2; kib++) {
        struct rig g;
        uint32_t from = 0;
        open_hot(&g, NULL, kib);
        key = key_with(&g, &from, 3, 0);
        expect_put(&g, g.b, 1, 2);
        expect_get(&g, g.b, 1, 2 - kib); /* an own change is a hint */
        expect_put(&g, g.b, 2, 3 - kib);
        expect_get(&g, g.a, 2, 2); /* not seen */
        expect_get(&g, g.a, 2, 2 - kib);
        expect_put(&g, g.b, 3, 3 - kib);
        expect_get(&g, g.a, 3, 2); /* the hint is out of date */
        expect_get(&g, g.a, 3, 2 - kib);
        assert_int_equal(insert(&g, g.a, key, 4), FAR_EXISTS);
        assert_int_equal(far_delete(g.a, g.t, &key, sizeof key), FAR_OK);
        assert_int_equal(rtts(g.a), 3 - kib);
        assert_int_equal(get(&g, g.b, key, &from), FAR_NOT_FOUND);
        assert_int_equal(get(&g, g.b, key, &from), FAR_NOT_FOUND); /* it is forgotten */
        assert_int_equal(rtts(g.b), 1);
        close_rig(&g);
    }
}

/* On mem: a look costs nothing. */
static void own_keys_are_changed_in_one_round_trip(void **state)
{
    static const struct {
        const char *uri;
        unsigned kib;
        uint64_t change;
    } cases[] = {{DEFERRED, 1, 1}, {DEFERRED, 0, 3}, {NULL, 1, 2}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t change = cases[i].change;
        struct rig g;
        uint32_t from = 0;
        open_hot(&g, cases[i].uri, cases[i].kib);
        key = key_with(&g, &from, 3, 0);
        expect_put(&g, g.b, 1, 2);
        expect_put(&g, g.b, 2, change);
        assert_int_equal(update(&g, g.b, key, 3), FAR_OK);
        assert_int_equal(rtts(g.b), change);
        expect_get(&g, g.a, 3, 2);
        assert_int_equal(far_delete(g.b, g.t, &key, sizeof key), FAR_OK);
        assert_int_equal(rtts(g.b), change);
        assert_int_equal(update(&g, g.b, key, 4), FAR_NOT_FOUND);
        assert_int_equal(get(&g, g.a, key, &from), FAR_NOT_FOUND);
        assert_int_equal(far_table_check(g.b, g.t, say, NULL), FAR_OK);
        close_rig(&g);
    }
}

/* HINT-H2: what it meets may be older than the operation. */
static void an_own_change_that_lost_is_not_done(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    (void)state;
    open_hot(&g, DEFERRED, 1);
    key = key_with(&g, &from, 3, 0);
    assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
    assert_int_equal(update(&g, g.a, key, 2), FAR_OK);
    assert_int_equal(update(&g, g.b, key, 3), FAR_OK);
    assert_int_equal(rtts(g.b), 3); /* in vain, then by a hint of what it met */
    assert_int_equal(get(&g, g.a, key, &v), FAR_OK);
    assert_int_equal(v, 3);
    close_rig(&g);
}

/* PTR-5: entries have three bits of generation. */
static void an_own_word_is_trusted_for_six_epochs(void **state)
{
    (void)state;
    for (unsigned epochs = 5; epochs < 9; epochs++) {
        struct rig g;
        uint32_t from = 0, v = 0;
        open_hot(&g, DEFERRED, 1);
        key = key_with(&g, &from, 3, 0);
        assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
        uint64_t written = g.b->op.epoch;
        while (client_epoch_view(&g.b->client).validated < written + epochs) {
            assert_int_equal(client_drive_epoch(&g.a->op), FAR_OK);
            assert_int_equal(client_drive_epoch(&g.b->op), FAR_OK);
        }
        assert_int_equal(get(&g, g.b, key, &v), FAR_OK); /* reads caches again */
        assert_int_equal(put_key(&g, g.b, 2), FAR_OK);
        assert_true(g.b->op.epoch >= written + epochs);
        assert_int_equal(rtts(g.b), g.b->op.epoch - written < 7 ? 1 : 2);
        close_rig(&g);
    }
}

/* A hint is of no use if the block is on another node than the unit, and it costs nothing. */
static void a_block_of_another_node_is_not_read_ahead(void **state)
{
    struct rig g;
    struct shard_key hashed;
    (void)state;
    open_hot(&g, "mem:?size=8m&nodes=2&clients=8&lease=60", 1);
    key = 5;
    assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
    shard_hash(view_of(&g, g.b), (struct slice){&key, sizeof key}, &hashed);
    struct index_hint hint = shard_hint(view_of(&g, g.b), &hashed);
    assert_int_not_equal(hint.slot, 0);
    uint64_t elsewhere = hint.slot ^ gaddr_make(1, 0); /* the same offset of the other node */
    shard_hint_note(view_of(&g, g.b), &hashed,
                    (struct index_hint){.slot = elsewhere, .place = hint.place});
    expect_get(&g, g.b, 1, 2);
    expect_get(&g, g.b, 1, 1);
    close_rig(&g);
}

/* ---- the order ------------------------------------------------------------------------------- */

/* HINT-H1 */
static void the_block_is_read_behind_the_slot(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    (void)state;
    open_hot(&g, NULL, 1);
    key = key_with(&g, &from, 3, 0);
    assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
    unsigned order = g.r.fab->order;
    g.r.fab->order = ORDER_ALL & ~ORDER(FAB_R, FAB_R);
    hook_record(g.b->client.ep);
    int rc = get(&g, g.b, key, &v);
    hook_off();
    g.r.fab->order = order;
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(recorded.posts, 1);
    unsigned slot = 0; /* an announcement may go along */
    while (slot + 1 < recorded.count && recorded.verb[slot].off != unit_off(&g, 0))
        slot++;
    assert_int_equal(recorded.verb[slot].len, 8);
    assert_int_equal(recorded.verb[slot + 1].off, gaddr_offset(pointer_gaddr(word_of(&g, 0, 0))));
    assert_true(recorded.verb[slot + 1].flags & FAB_FENCE);
    close_rig(&g);
}

/* ---- units that are not published ------------------------------------------------------------ */

static uint64_t child_off, only; /* the child of a move, and the one CAS of it that happens */
static unsigned dropped;
static int outcome; /* of the batch */

/* Of the batch that fills the child, one CAS happens, or none: atomics have no order. */
static int fill_one(struct fab_ep *ep, struct fab_req *req)
{
    bool fills = false;
    for (unsigned i = 0; i < req->count; i++) {
        struct fab_verb *v = &req->verbs[i];
        if (v->kind != FAB_CAS || v->off < child_off || v->off >= child_off + 40)
            continue;
        fills = true;
        if (v->off != only)
            v->compare = UINT64_MAX;
    }
    int rc = hook.real->post(ep, req);
    dropped += fills;
    if (fills && outcome != FAR_OK)
        req->status = outcome;
    return rc;
}

/* A moves unit 0 on the way to a key, and fails when it fills the child. */
static void move_in_part(struct rig *g, uint64_t slot)
{
    uint32_t v = 0;
    child_off = unit_off(g, 4);
    only = slot;
    dropped = 0;
    outcome = FAR_OK;
    hook_on(g->a->client.ep);
    hook.ops.post = fill_one;
    (void)get(g, g->a, key, &v);
    hook_off();
    assert_int_equal(dropped, 1);
    assert_int_equal(word_of(g, 4, 3), 0);
}

/* SHARD-S9: what is in the child does not count yet, even if it is what the session has written. */
static void a_change_does_not_follow_a_hint_into_an_unpublished_unit(void **state)
{
    (void)state;
    for (unsigned own = 0; own < 2; own++) {
        struct rig g;
        uint32_t from = 0, v = 0;
        open_hot(&g, own ? DEFERRED : NULL, 1);
        key = key_with(&g, &from, 7, 4); /* in slot 0 of unit 0, then of unit 4 */
        assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
        uint64_t word = word_of(&g, 0, 0);
        resize(&g);
        move_in_part(&g, unit_off(&g, 4));
        assert_true(word_of(&g, 4, 0) == word && word_of(&g, 0, 0) == (word | shard_seal(0)));
        assert_int_equal(update(&g, g.b, key, 2), FAR_OK);
        far_session *third = store_rig_join_apart(&g.r);
        assert_int_equal(get(&g, third, key, &v), FAR_OK);
        assert_int_equal(v, 2);
        far_session_close(third);
        close_rig(&g);
    }
}

/* SHARD-S9: the same for a get, of an insert that rode on the move, and has not ended. */
static void a_get_does_not_follow_a_hint_into_an_unpublished_unit(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0, ride;
    (void)state;
    open_hot(&g, NULL, 1);
    key = key_with(&g, &from, 7, 4);
    ride = key_with(&g, &from, 7, 4);
    assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
    assert_int_equal(insert(&g, g.b, ride, 2), FAR_OK);
    assert_int_equal(far_delete(g.a, g.t, &ride, sizeof ride), FAR_OK);
    resize(&g);
    child_off = unit_off(&g, 4);
    only = child_off + 8;
    dropped = 0;
    outcome = FAR_TIMEOUT;
    hook_on(g.a->client.ep);
    hook.ops.post = fill_one;
    int rc = insert(&g, g.a, ride, 3);
    hook_off();
    assert_int_not_equal(rc, FAR_OK);
    assert_true(dropped == 1 && shard_live(word_of(&g, 4, 1)) && word_of(&g, 4, 0) == 0);
    assert_int_equal(get(&g, g.b, ride, &v), FAR_NOT_FOUND);
    close_rig(&g);
}

/* ---- sealed words ---------------------------------------------------------------------------- */

/* SHARD-S9: of a unit that has passed the authority on. */
static void a_sealed_word_is_not_believed_because_of_a_hint(void **state)
{
    (void)state;
    for (unsigned updated = 0; updated < 2; updated++) {
        struct rig g;
        uint32_t from = 0, v = 0;
        open_hot(&g, NULL, 1);
        key = key_with(&g, &from, 7, 4);
        assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
        assert_int_equal(get(&g, g.a, key, &v), FAR_OK);
        if (updated) /* since the hint */
            assert_int_equal(update(&g, g.b, key, 2), FAR_OK);
        resize(&g);
        assert_int_equal(update(&g, g.b, key, 3), FAR_OK);
        assert_true(shard_sealed_by(word_of(&g, 0, 0), 0));
        before_the_barrier(&g);
        assert_int_equal(get(&g, g.a, key, &v), FAR_OK);
        assert_int_equal(v, 3);
        close_rig(&g);
    }
}

/* ---- movers ---------------------------------------------------------------------------------- */

static unsigned looks; /* at level 1 of unit 0 */

static int count_looks(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        looks += req->verbs[i].kind == FAB_READ && req->verbs[i].off == unit_off(the, 0) &&
                 req->verbs[i].len == 32;
    return hook.real->post(ep, req);
}

/* SHARD-S10: a key that stays is read where it is. But a change moves the unit first, so that it is
 * not in the way of one that renews sids. */
static void a_change_with_a_hint_moves_a_unit_that_is_behind(void **state)
{
    (void)state;
    for (unsigned own = 0; own < 2; own++) {
        struct rig g;
        uint32_t from = 0, v = 0;
        open_hot(&g, own ? DEFERRED : NULL, 1);
        key = key_with(&g, &from, 7, 0);
        assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
        resize(&g);
        looks = 0;
        hook_on(g.b->client.ep);
        hook.ops.post = count_looks;
        assert_int_equal(get(&g, g.b, key, &v), FAR_OK);
        assert_int_equal(looks, 0);
        assert_int_equal(word_of(&g, 4, 3), 0);
        assert_int_equal(update(&g, g.b, key, 2), FAR_OK);
        assert_int_not_equal(word_of(&g, 4, 3), 0);
        looks = 0;
        assert_int_equal(update(&g, g.b, key, 3), FAR_OK); /* it is known to be moved */
        hook_off();
        assert_int_equal(looks, 0);
        close_rig(&g);
    }
}

/* SHARD-S10: the same if the session does not know yet that the barrier is over. */
static void a_change_with_a_hint_sees_a_move_before_the_barrier(void **state)
{
    struct rig g;
    uint32_t from = 0, stays;
    (void)state;
    open_hot(&g, NULL, 1);
    key = key_with(&g, &from, 7, 4);
    stays = key_with(&g, &from, 7, 0);
    assert_int_equal(put_key(&g, g.b, 1), FAR_OK);
    assert_int_equal(insert(&g, g.a, stays, 2), FAR_OK);
    resize(&g);
    move_in_part(&g, 0);
    before_the_barrier(&g);
    assert_int_equal(update(&g, g.a, stays, 3), FAR_OK);
    assert_int_not_equal(word_of(&g, 4, 3), 0);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_were_seen_take_a_round_trip_less),
        cmocka_unit_test(own_keys_are_changed_in_one_round_trip),
        cmocka_unit_test(an_own_change_that_lost_is_not_done),
        cmocka_unit_test(an_own_word_is_trusted_for_six_epochs),
        cmocka_unit_test(a_block_of_another_node_is_not_read_ahead),
        cmocka_unit_test(the_block_is_read_behind_the_slot),
        cmocka_unit_test(a_change_does_not_follow_a_hint_into_an_unpublished_unit),
        cmocka_unit_test(a_get_does_not_follow_a_hint_into_an_unpublished_unit),
        cmocka_unit_test(a_sealed_word_is_not_believed_because_of_a_hint),
        cmocka_unit_test(a_change_with_a_hint_moves_a_unit_that_is_behind),
        cmocka_unit_test(a_change_with_a_hint_sees_a_move_before_the_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
