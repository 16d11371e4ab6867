/* Popular keys on SepHash: what their operations read, and what changes do that lose a slot or find
 * a CurSegment full. */
#include "index/sephash/sephash.h"
#include "support/hook.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

struct rig {
    struct store_rig r; /* its session is the one that is looked at */
    far_session *other;
};
static struct rig g;

static void open_rig(const char *tuning, struct knobs knobs)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    store_rig_open_driven(&g.r, "mem:?size=8m", &knobs, NULL, &options);
    g.other = store_rig_join(&g.r);
}

static void close_rig(void)
{
    far_session_close(g.other);
    store_rig_close(&g.r);
}

/* All keys have the same hash, so nothing but their blocks tells them apart. */
static struct knobs all_collide(void)
{
    struct knobs knobs = pool_knobs_default;
    knobs.hash_mask = 0;
    knobs.fingerprint_mask = 0;
    return knobs;
}

static int put(far_session *s, uint32_t key, uint32_t value)
{
    return far_put(s, g.r.table, &key, sizeof key, &value, sizeof value);
}

static int update(far_session *s, uint32_t key, uint32_t value)
{
    return far_update(s, g.r.table, &key, sizeof key, &value, sizeof value);
}

static int delete (far_session *s, uint32_t key)
{
    return far_delete(s, g.r.table, &key, sizeof key);
}

static int get(far_session *s, uint32_t key, uint32_t *value)
{
    size_t len = 0;
    return far_get(s, g.r.table, &key, sizeof key, value, sizeof *value, &len);
}

static void expect(far_session *s, uint32_t key, uint32_t value)
{
    uint32_t found = 0;
    assert_int_equal(get(s, key, &found), FAR_OK);
    assert_int_equal(found, value);
}

static void expect_absent(far_session *s, uint32_t key)
{
    uint32_t found = 0;
    assert_int_equal(get(s, key, &found), FAR_NOT_FOUND);
}

/* ---- newest first (SEPHASH-H10) -------------------------------------------------------------- */

static const struct cost *cost(void)
{
    return &g.r.session->op.cost;
}

/* With three copies in the slots it costs what it costs with thirty. */
static void one_copy_of_a_popular_key_is_read(void **state)
{
    struct cost gets, updates;
    (void)state;
    open_rig("slots=128&depth=0&lane=512", pool_knobs_default);
    for (uint32_t value = 0; value < 3; value++)
        assert_int_equal(put(g.r.session, 1, value), FAR_OK);
    expect(g.r.session, 1, 2);
    gets = *cost();
    assert_int_equal(update(g.r.session, 1, 3), FAR_OK);
    updates = *cost();
    for (uint32_t value = 4; value < 30; value++)
        assert_int_equal(put(g.r.session, 1, value), FAR_OK);
    expect(g.r.session, 1, 29);
    assert_int_equal(cost()->rtts, gets.rtts);
    assert_int_equal(cost()->verbs, gets.verbs);
    assert_int_equal(cost()->bytes_read, gets.bytes_read);
    assert_int_equal(update(g.r.session, 1, 30), FAR_OK);
    assert_int_equal(cost()->rtts, updates.rtts);
    assert_int_equal(cost()->verbs, updates.verbs);
    assert_int_equal(cost()->bytes_read, updates.bytes_read);
    expect(g.r.session, 1, 30);
    close_rig();
}

/* The newest copy that agrees is another key's: that says nothing of this one. */
static void the_newest_copy_of_another_key_hides_nothing(void **state)
{
    (void)state;
    open_rig("slots=16&depth=0", all_collide());
    for (uint32_t key = 1; key <= 3; key++)
        for (uint32_t value = 0; value < 3; value++)
            assert_int_equal(put(g.r.session, key, 10 * key + value), FAR_OK);
    for (uint32_t key = 1; key <= 3; key++)
        expect(g.r.session, key, 10 * key + 2);
    expect_absent(g.r.session, 4);
    assert_int_equal(update(g.r.session, 4, 40), FAR_NOT_FOUND);
    assert_int_equal(update(g.r.session, 1, 13), FAR_OK);
    assert_int_equal(delete (g.r.session, 2), FAR_OK);
    assert_int_equal(delete (g.r.session, 2), FAR_NOT_FOUND);
    expect(g.r.session, 1, 13);
    assert_int_equal(put(g.r.session, 3, 33), FAR_OK);
    expect_absent(g.r.session, 2);
    expect(g.r.session, 3, 33);
    for (uint32_t value = 0; value < 8; value++) /* and behind a merge */
        assert_int_equal(put(g.r.session, 3, 100 + value), FAR_OK);
    assert_true(sephash_view(store_known(g.r.session, g.r.table)->view)->merges > 0);
    expect(g.r.session, 1, 13);
    expect_absent(g.r.session, 2);
    expect(g.r.session, 3, 107);
    assert_int_equal(far_table_check(g.r.session, g.r.table, NULL, NULL), FAR_OK);
    close_rig();
}

static struct sephash_view *view(void)
{
    return sephash_view(store_known(g.r.session, g.r.table)->view);
}

/* The current CurSegment. The table has one segment. */
static gaddr cur(void)
{
    return sephash_target(sephash_known_of(view(), 0)->segment.state);
}

/* An older copy is no answer. */
static void a_newest_copy_that_is_damaged_is_not_passed_over(void **state)
{
    uint32_t value = 0;
    (void)state;
    open_rig("slots=16&depth=0", pool_knobs_default);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(put(g.r.session, 1, i), FAR_OK);
    expect(g.r.session, 1, 3);
    gaddr block = pointer_gaddr(store_rig_get(&g.r, cur(), sephash_slot_at(&view()->shape, 3)));
    store_rig_set(&g.r, block, 0, ~store_rig_get(&g.r, block, 0));
    assert_int_equal(get(g.r.session, 1, &value), FAR_CORRUPT);
    assert_int_equal(update(g.r.session, 1, 4), FAR_CORRUPT);
    close_rig();
}

/* ---- waiting for a merge --------------------------------------------------------------------- */

static struct {
    unsigned polls, looks; /* READs of the anchor alone, and of slots */
    unsigned merge_at;     /* before this poll the other session merges */
} waiting;

static int count_waiting(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *v = req->verbs; /* an announcement may follow */
    gaddr anchor = sephash_known_of(view(), 0)->segment.part.anchor;
    for (unsigned i = 0; i < req->count; i++)
        waiting.looks += v[i].kind == FAB_READ && v[i].len == 8 * view()->shape.slots;
    if (v->kind == FAB_READ && v->len == 8 && v->off == gaddr_offset(anchor) &&
        ++waiting.polls == waiting.merge_at)
        assert_int_equal(put(g.other, 2, 20), FAR_OK);
    return hook.real->post(ep, req);
}

/* The CurSegment is full, and the client that has filled it is slow or dead. The other session
 * waits in vain, and merges. */
static void fill_without_a_merge(unsigned merge_at)
{
    open_rig("slots=16&depth=0&filter=0", pool_knobs_default);
    assert_int_equal(put(g.r.session, 1, 10), FAR_OK);
    assert_int_equal(put(g.other, 1, 11), FAR_OK);
    for (unsigned slot = 2; slot < 16; slot++)
        store_rig_set(&g.r, cur(), sephash_slot_at(&view()->shape, slot), SEPHASH_VOID);
    memset(&waiting, 0, sizeof waiting);
    waiting.merge_at = merge_at;
    hook_on(g.r.session->client.ep);
    hook.ops.post = count_waiting;
    assert_int_equal(update(g.r.session, 1, 12), FAR_OK);
    hook_off();
}

/* All that it reads is the anchor's word: the slots are read as often after ten polls as after
 * one. */
static void who_waits_for_a_merge_reads_the_anchor_alone(void **state)
{
    unsigned looks[2];
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        unsigned merge_at = i == 0 ? 1 : 10;
        fill_without_a_merge(merge_at);
        assert_int_equal(waiting.polls, merge_at);
        assert_int_equal(view()->merges, 0);
        looks[i] = waiting.looks;
        expect(g.r.session, 1, 12);
        expect(g.r.session, 2, 20);
        close_rig();
    }
    assert_int_equal(looks[0], looks[1]);
}

static void who_waits_in_vain_merges(void **state)
{
    (void)state;
    fill_without_a_merge(UINT32_MAX);
    assert_int_equal(waiting.polls, pool_knobs_default.patience);
    assert_int_equal(view()->merges, 1);
    expect(g.r.session, 1, 12);
    assert_int_equal(far_table_check(g.r.session, g.r.table, NULL, NULL), FAR_OK);
    close_rig();
}

int main(void)
{
    index_tested = "sephash";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_copy_of_a_popular_key_is_read),
        cmocka_unit_test(the_newest_copy_of_another_key_hides_nothing),
        cmocka_unit_test(a_newest_copy_that_is_damaged_is_not_passed_over),
        cmocka_unit_test(who_waits_for_a_merge_reads_the_anchor_alone),
        cmocka_unit_test(who_waits_in_vain_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
