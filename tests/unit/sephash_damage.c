/* A damaged block may replace or delete any older entry that has its tag (SEPHASH-H9). Damaged
 * words make nothing free that is in use. */
#include "index/sephash/sephash.h"
#include "support/sweep_rig.h"

#include <stdio.h>

#define KEY    1u
#define OTHERS 1000000u /* from here on: keys that fill segments */

struct rig {
    struct store_rig r;
    far_session *s;
    far_table *t;
    uint32_t next;
};

static void open_rig(struct rig *g, const char *tuning)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    store_rig_open_driven(&g->r, "mem:?size=8m&clients=8", NULL, NULL, NULL);
    g->s = g->r.session;
    g->next = OTHERS;
    assert_int_equal(far_table_create(g->s, "s", "sephash", &options, &g->t), FAR_OK);
}
static void close_rig(struct rig *g)
{
    store_rig_close(&g->r);
}

static int put_u32(struct rig *g, uint32_t key, uint32_t value)
{
    return far_put(g->s, g->t, &key, sizeof key, &value, sizeof value);
}
static int get_u32(struct rig *g, uint32_t key, uint32_t *value)
{
    size_t len = 0;
    return far_get(g->s, g->t, &key, sizeof key, value, sizeof *value, &len);
}
static void expect(struct rig *g, uint32_t key, int want)
{
    uint32_t value = 0;
    assert_int_equal(get_u32(g, key, &value), want);
}

static struct sephash_view *view_of(struct rig *g)
{
    return sephash_view(store_known(g->s, g->t)->view);
}
static void hash_u32(struct rig *g, uint32_t key, struct sephash_key *k)
{
    sephash_hash(view_of(g), (struct slice){&key, sizeof key}, k);
}
static const struct sephash_segment *segment_of(struct rig *g, uint32_t key)
{
    struct sephash_key k;
    hash_u32(g, key, &k);
    return &sephash_known_of(view_of(g), k.hash)->segment;
}

/* A key of the segment that nobody has put. */
static uint32_t other_of(struct rig *g, uint32_t key)
{
    while (segment_of(g, ++g->next) != segment_of(g, key))
        continue;
    return g->next;
}
/* Puts and deletes another key of the segment until it is merged. */
static void merge(struct rig *g, uint32_t key)
{
    uint64_t before = segment_of(g, key)->state;
    uint32_t other = other_of(g, key);
    for (unsigned i = 0; segment_of(g, key)->state == before; i++)
        assert_int_equal(i % 2 ? far_delete(g->s, g->t, &other, 4) : put_u32(g, other, 0), FAR_OK);
}
/* Puts keys until the segment has that depth, or until one is refused. */
static int deepen(struct rig *g, uint32_t key, unsigned depth)
{
    int rc = FAR_OK;
    while (segment_of(g, key)->part.depth < depth && rc == FAR_OK)
        rc = put_u32(g, other_of(g, key), 0);
    return rc;
}

/* The block of the newest entry of the key's segment. */
static gaddr last_block(struct rig *g, uint32_t key)
{
    const struct sephash_segment *s = segment_of(g, key);
    uint64_t last = 0, word = 0;
    for (unsigned i = 0; i < view_of(g)->shape.slots; i++, last = word ? word : last)
        word =
            store_rig_get(&g->r, sephash_target(s->state), sephash_slot_at(&view_of(g)->shape, i));
    assert_true(last != 0);
    return pointer_gaddr(last);
}

/* Two bits of a block. */
static void damage(struct rig *g, gaddr at)
{
    store_rig_set(&g->r, at, 16, store_rig_get(&g->r, at, 16) ^ 3);
}
static void damage_last(struct rig *g, uint32_t key)
{
    damage(g, last_block(g, key));
}

/* The key has a value in the MainSegment. A newer one is damaged, or a delete of it. */
static void open_damaged(struct rig *g, const char *tuning, bool deleted)
{
    uint32_t key = KEY;
    open_rig(g, tuning);
    assert_int_equal(put_u32(g, key, 1), FAR_OK);
    merge(g, key);
    assert_int_equal(put_u32(g, key, 2), FAR_OK);
    if (deleted)
        assert_int_equal(far_delete(g->s, g->t, &key, sizeof key), FAR_OK);
    damage_last(g, key);
    expect(g, key, FAR_CORRUPT);
}

static void hear(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
}
static void repair(struct rig *g, unsigned lost)
{
    struct far_pool_check check;
    assert_int_equal(far_table_check(g->s, g->t, NULL, NULL), FAR_CORRUPT);
    assert_int_equal(far_pool_check(g->s, true, hear, NULL, &check), FAR_OK);
    assert_int_equal(check.lost, lost);
    assert_int_equal(far_table_check(g->s, g->t, hear, NULL), FAR_OK);
}

/* How often an iteration returns the key. */
static unsigned times(struct rig *g, uint32_t key)
{
    static char buf[65536];
    unsigned count = 0;
    uint64_t cursor = 0;
    do {
        struct far_entry e;
        size_t len = 0;
        int rc = far_iterate(g->s, g->t, &cursor, 0, buf, sizeof buf, &len);
        assert_true(rc == FAR_OK || rc == FAR_PARTIAL);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);)
            count += memcmp(e.key, &key, sizeof key) == 0;
    } while (cursor != 0);
    return count;
}

static void expect_nothing_in_two_places(struct rig *g)
{
    struct audit audit;
    assert_int_equal(sim_audit(&audit, g->r.pool, (far_session *[]){g->s}, 1), FAR_OK);
    if (audit.wrong > 0)
        printf("    %s\n", audit.first);
    assert_int_equal(audit.wrong, 0);
}

/* ---- merges and splits ----------------------------------------------------------------------- */

static void a_merge_brings_no_key_back(void **state)
{
    (void)state;
    for (unsigned deleted = 0; deleted < 2; deleted++) {
        struct rig g;
        open_damaged(&g, "slots=4&ratio=64&depth=0", deleted);
        for (unsigned i = 0; i < 3; i++) {
            merge(&g, KEY);
            expect(&g, KEY, FAR_CORRUPT);
            assert_int_equal(times(&g, KEY), 0);
        }
        close_rig(&g);
    }
}

/* Entries get new split bits at depth 4, from their blocks. */
static void a_split_brings_no_key_back(void **state)
{
    (void)state;
    for (unsigned deleted = 0; deleted < 2; deleted++) {
        struct rig g;
        open_damaged(&g, "slots=4&ratio=1&depth=0", deleted);
        for (unsigned depth = 1; depth <= 5; depth++) {
            assert_int_equal(deepen(&g, KEY, depth), FAR_OK);
            expect(&g, KEY, FAR_CORRUPT);
            assert_int_equal(times(&g, KEY), 0);
        }
        close_rig(&g);
    }
}

/* Two keys that have the same tag and segment up to depth 4, and not from then on. */
static void find_pair(struct rig *g, uint32_t pair[2])
{
    struct sephash_key a, b;
    for (pair[0] = 1;; pair[0]++) {
        hash_u32(g, pair[0], &a);
        for (pair[1] = pair[0] + 1; pair[1] < pair[0] + 20000; pair[1]++) {
            hash_u32(g, pair[1], &b);
            if (a.fp == b.fp && a.fp2 == b.fp2 && (a.hash & 15) == (b.hash & 15) &&
                (a.hash >> 4 & 15) != (b.hash >> 4 & 15))
                return;
        }
    }
}

/* The damaged entry may be of any of two keys, and cannot have the split bits of both. */
static void a_split_does_not_guess_the_key_of_a_damaged_entry(void **state)
{
    struct rig g;
    uint32_t pair[2];
    (void)state;
    open_rig(&g, "slots=4&ratio=1&depth=0");
    assert_int_equal(put_u32(&g, 0, 0), FAR_OK);
    find_pair(&g, pair);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(put_u32(&g, pair[i], 1), FAR_OK);
    merge(&g, pair[0]);
    assert_int_equal(put_u32(&g, pair[0], 2), FAR_OK);
    damage_last(&g, pair[0]);
    assert_int_equal(deepen(&g, pair[0], 4), FAR_CORRUPT);
    for (unsigned i = 0; i < 2; i++)
        expect(&g, pair[i], FAR_CORRUPT);
    repair(&g, 3);
    assert_int_equal(deepen(&g, pair[0], 4), FAR_OK);
    for (unsigned i = 0; i < 2; i++)
        expect(&g, pair[i], FAR_NOT_FOUND);
    close_rig(&g);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static void a_repair_brings_no_key_back(void **state)
{
    (void)state;
    for (unsigned deleted = 0; deleted < 2; deleted++)
        for (unsigned merged = 0; merged < 2; merged++) {
            struct rig g;
            open_damaged(&g, "slots=4&ratio=64&depth=0", deleted);
            if (merged)
                merge(&g, KEY);
            repair(&g, 2);
            expect(&g, KEY, FAR_NOT_FOUND);
            merge(&g, KEY);
            expect(&g, KEY, FAR_NOT_FOUND);
            close_rig(&g);
        }
}

/* Two keys that have the same tag and different lanes. The second one has the higher lane. */
static void find_lanes(struct rig *g, uint32_t pair[2])
{
    struct sephash_key a, b;
    for (pair[0] = 1;; pair[0]++) {
        hash_u32(g, pair[0], &a);
        for (pair[1] = 1; pair[1] < 20000; pair[1]++) {
            hash_u32(g, pair[1], &b);
            if (sephash_key_tag(view_of(g), &a, 0) == sephash_key_tag(view_of(g), &b, 0) &&
                a.lane < b.lane)
                return;
        }
    }
}

/* The damaged entry is not of the other key, which has another lane. */
static void a_repair_leaves_other_lanes_alone(void **state)
{
    struct rig g;
    struct sephash_key k;
    uint32_t pair[2];
    (void)state;
    open_rig(&g, "slots=40&ratio=64&depth=0&lane=8");
    assert_int_equal(put_u32(&g, 0, 0), FAR_OK);
    find_lanes(&g, pair);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(put_u32(&g, pair[i], 1), FAR_OK);
    hash_u32(&g, pair[1], &k);
    damage(&g, pointer_gaddr(sephash_hint(view_of(&g), &k).slot));
    expect(&g, pair[0], FAR_OK);
    expect(&g, pair[1], FAR_CORRUPT);
    repair(&g, 1);
    expect(&g, pair[0], FAR_OK);
    expect(&g, pair[1], FAR_NOT_FOUND);
    close_rig(&g);
}

/* The value before the one that was deleted is damaged, by a bit that a repair can tell. */
static void a_repair_does_not_bring_back_what_was_deleted(void **state)
{
    (void)state;
    for (unsigned merges = 0; merges < 3; merges++) {
        struct rig g;
        uint32_t key = KEY;
        struct far_pool_check check;
        open_rig(&g, "slots=4&ratio=64&depth=0");
        assert_int_equal(put_u32(&g, key, 1), FAR_OK);
        gaddr at = last_block(&g, key);
        merge(&g, key);
        store_rig_set(&g.r, at, 16, store_rig_get(&g.r, at, 16) ^ 2);
        expect(&g, key, FAR_CORRUPT);
        assert_int_equal(put_u32(&g, key, 2), FAR_OK);
        assert_int_equal(far_delete(g.s, g.t, &key, sizeof key), FAR_OK);
        for (unsigned i = 0; i < merges; i++)
            merge(&g, key);
        expect_nothing_in_two_places(&g);
        assert_int_equal(far_pool_check(g.s, true, hear, NULL, &check), FAR_OK);
        assert_int_equal(far_table_check(g.s, g.t, hear, NULL), FAR_OK);
        expect(&g, key, FAR_NOT_FOUND);
        merge(&g, key);
        expect(&g, key, FAR_NOT_FOUND);
        assert_int_equal(times(&g, key), 0);
        close_rig(&g);
    }
}

/* A delete that hides nothing any more goes with the next merge, and costs no memory. */
static void a_key_can_be_put_again(void **state)
{
    struct rig g;
    uint32_t value = 0;
    (void)state;
    open_damaged(&g, "slots=4&ratio=64&depth=0&hot=0", true);
    merge(&g, KEY);
    assert_int_equal(put_u32(&g, KEY, 3), FAR_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(get_u32(&g, KEY, &value), FAR_OK);
        assert_int_equal(value, 3);
        merge(&g, KEY);
    }
    assert_int_equal(times(&g, KEY), 1);
    assert_int_equal(far_table_check(g.s, g.t, hear, NULL), FAR_OK);
    close_rig(&g);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The block of an old value has 64 bytes, and its entry says 128. */
static void a_merge_does_not_free_the_neighbours_of_a_block(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, "slots=4&ratio=64&depth=0");
    assert_int_equal(put_u32(&g, KEY, 1), FAR_OK);
    gaddr cur = sephash_target(segment_of(&g, KEY)->state);
    uint64_t at = sephash_slot_at(&view_of(&g)->shape, 0), word = store_rig_get(&g.r, cur, at);
    assert_int_equal(pointer_class(word), 0);
    store_rig_set(&g.r, cur, at, pointer_with_class(word, 1));
    assert_int_equal(put_u32(&g, KEY, 2), FAR_OK);
    merge(&g, KEY);
    expect(&g, KEY, FAR_OK);
    expect_nothing_in_two_places(&g);
    close_rig(&g);
}

/* A word of the reserve names a block that is in use. */
static void a_damaged_reserve_is_not_taken(void **state)
{
    struct rig g;
    struct sephash_root root = {0};
    uint64_t last = offsetof(struct sephash_root, reserve) + 8ull * (SEPHASH_RESERVE - 1);
    (void)state;
    open_rig(&g, "slots=4&ratio=64&depth=0");
    assert_int_equal(put_u32(&g, KEY, 1), FAR_OK);
    uint64_t word = store_rig_get(&g.r, sephash_target(segment_of(&g, KEY)->state),
                                  sephash_slot_at(&view_of(&g)->shape, 0));
    uint64_t spare = sephash_spare(pointer_gaddr(word), 0) ^ 1ull << POINTER_OWN_AT(0);
    store_rig_set(&g.r, view_of(&g)->root, last, spare);
    root.reserve[SEPHASH_RESERVE - 1] = spare;
    assert_int_equal(sephash_reserve_take(&g.s->op, view_of(&g), &root), FAR_OK);
    assert_int_equal(store_rig_get(&g.r, view_of(&g)->root, last), 0);
    expect_nothing_in_two_places(&g);
    expect(&g, KEY, FAR_OK);
    close_rig(&g);
}

/* If a session has not met a segment for long, its anchor may have come to the same word again
 * (SEPHASH-H7): nothing is read by what was known. */
static unsigned first_verbs;
static void count_first(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    (void)tap;
    (void)verbs;
    if (first_verbs == 0)
        first_verbs = count;
}

static void what_was_known_long_ago_is_not_used(void **state)
{
    struct batch_tap tap = {.posted = count_first};
    struct sephash_key k;
    struct rig g;
    (void)state;
    open_rig(&g, "slots=4&ratio=64&depth=0");
    assert_int_equal(put_u32(&g, KEY, 1), FAR_OK);
    hash_u32(&g, KEY, &k);
    for (unsigned old = 0; old < 2; old++) {
        struct sephash_segment *s = &sephash_known_of(view_of(&g), k.hash)->segment;
        s->seen = g.s->op.epoch - (old ? 2000 : 500);
        first_verbs = 0;
        g.s->op.batch.tap = &tap;
        expect(&g, KEY, FAR_OK);
        g.s->op.batch.tap = NULL;
        assert_int_equal(first_verbs > 1, !old); /* of the anchor alone */
    }
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_merge_brings_no_key_back),
        cmocka_unit_test(a_split_brings_no_key_back),
        cmocka_unit_test(a_split_does_not_guess_the_key_of_a_damaged_entry),
        cmocka_unit_test(a_repair_brings_no_key_back),
        cmocka_unit_test(a_repair_leaves_other_lanes_alone),
        cmocka_unit_test(a_repair_does_not_bring_back_what_was_deleted),
        cmocka_unit_test(a_key_can_be_put_again),
        cmocka_unit_test(a_merge_does_not_free_the_neighbours_of_a_block),
        cmocka_unit_test(a_damaged_reserve_is_not_taken),
        cmocka_unit_test(what_was_known_long_ago_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
