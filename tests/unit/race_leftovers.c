/*
 * What clients leave behind that died in the middle: tentative slots, claims, subtables that are
 * sealed in part or in whole. The next client goes on from there, and nothing is lost.
 */
#include "support/hook.h"
#include "support/puppet.h"
#include "support/race_groups.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS   30u
#define GROUPS 2u
#define WORDS  (sizeof(struct race_subtable_head) / 8 + GROUPS * 3 * RACE_BUCKET_WORDS)
#define DEAD   0xdeadull /* an incarnation of no client */

static void rig(struct store_rig *r)
{
    struct knobs knobs = pool_knobs_default;
    struct far_table_options options = {.tuning = RACE_GROUPS(GROUPS), .hash_seed = 3};

    knobs.patience = 3;
    store_rig_open(r, "mem:?size=4m", &knobs, NULL, &options);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_insert(r->session, r->table, &i, sizeof i, &i, sizeof i), FAR_OK);
}

static int get(struct store_rig *r, uint32_t key, uint32_t *value)
{
    size_t len = 0;
    return far_get(r->session, r->table, &key, sizeof key, value, sizeof *value, &len);
}

/* All keys hold what they should: themselves, but for the one that holds `value` (0: is absent). */
static void expect_keys(struct store_rig *r, uint32_t except, uint32_t value)
{
    struct far_table_info info;
    uint32_t got = 0;

    for (uint32_t i = 0; i < KEYS; i++) {
        if (i == except && value == 0) {
            assert_int_equal(get(r, i, &got), FAR_NOT_FOUND);
            continue;
        }
        assert_int_equal(get(r, i, &got), FAR_OK);
        assert_int_equal(got, i == except ? value : i);
    }
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    assert_int_equal(far_table_info(r->session, r->table, &info), FAR_OK);
    assert_int_equal(info.keys, KEYS - (except < KEYS && value == 0));
}

/* A splitter that died when it had sealed that many words of a subtable. */
static void seal_some(struct store_rig *r, gaddr subtable, unsigned words, bool claim)
{
    for (unsigned i = sizeof(struct race_subtable_head) / 8; i < words; i++) {
        uint64_t word = store_rig_get(r, subtable, i * 8);
        if (race_is_slot(i))
            store_rig_set(r, subtable, i * 8, race_slot_sealed(word));
    }
    if (claim)
        store_rig_set(r, subtable, offsetof(struct race_subtable_head, claim), DEAD);
}

/* Every point in a splitter's work, and every kind of operation that comes upon it. */
static void a_split_that_was_begun_is_ended_by_others(void **state)
{
    (void)state;
    for (unsigned words = 8; words <= WORDS; words += 3) {
        for (unsigned kind = 0; kind < 8; kind++) {
            struct store_rig r;
            struct race_spot spot;
            uint32_t key = words % KEYS, fresh = 5555, got = 0;
            bool claim = kind % 2;

            rig(&r);
            race_rig_find(&r, &key, sizeof key, &spot);
            seal_some(&r, spot.look.subtable, words, claim);
            expect_keys(&r, KEYS, 0); /* readers are not disturbed */
            switch (kind / 2) {
            case 0:
                assert_int_equal(far_update(r.session, r.table, &key, sizeof key, &fresh, 4),
                                 FAR_OK);
                expect_keys(&r, key, fresh);
                break;
            case 1:
                assert_int_equal(far_delete(r.session, r.table, &key, sizeof key), FAR_OK);
                expect_keys(&r, key, 0);
                break;
            case 2:
                assert_int_equal(far_insert(r.session, r.table, &fresh, sizeof fresh, &key, 4),
                                 FAR_OK);
                assert_int_equal(get(&r, fresh, &got), FAR_OK);
                assert_int_equal(far_delete(r.session, r.table, &fresh, sizeof fresh), FAR_OK);
                expect_keys(&r, KEYS, 0);
                break;
            default:
                assert_int_equal(far_insert(r.session, r.table, &key, sizeof key, &fresh, 4),
                                 FAR_EXISTS);
                expect_keys(&r, KEYS, 0);
                break;
            }
            store_rig_close(&r);
        }
    }
}

/* A claim alone makes others wait a while, not for ever. */
static void a_claim_of_the_dead_is_outlived(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    uint32_t key = 0;

    (void)state;
    rig(&r);
    race_rig_find(&r, &key, sizeof key, &spot);
    store_rig_set(&r, spot.look.subtable, offsetof(struct race_subtable_head, claim), DEAD);
    for (uint32_t i = KEYS; i < 200; i++)
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/*
 * An inserter that died before its commit: its tentative slot, in any place that the key may have,
 * is invisible to readers, and gives way to the next client that inserts.
 */
static void a_tentative_slot_of_the_dead_is_nothing(void **state)
{
    unsigned tried = 0;

    (void)state;
    for (unsigned place = 0; place < RACE_PLACES; place++) {
        struct store_rig r;
        struct race_spot spot;
        uint32_t key = 4711, got = 0;

        rig(&r);
        race_rig_find(&r, &key, sizeof key, &spot);
        if (race_is_slot(place) && spot.look.words[place] == 0) {
            uint64_t off = race_place_offset(&spot.key, place);
            /* Its block was never written: the address is of memory that is in use otherwise. */
            struct block_ref block = {.at = spot.look.subtable, .generation = 1};
            uint64_t dead =
                slot_make(RACE_SLOT, &block, spot.key.fingerprint) | RACE_SLOT_TENTATIVE;
            store_rig_set(&r, spot.look.subtable, off, dead);
            assert_int_equal(get(&r, key, &got), FAR_NOT_FOUND);
            assert_int_equal(far_update(r.session, r.table, &key, 4, &key, 4), FAR_NOT_FOUND);
            assert_int_equal(far_delete(r.session, r.table, &key, 4), FAR_NOT_FOUND);
            assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
            assert_int_equal(far_insert(r.session, r.table, &key, 4, &key, 4), FAR_OK);
            assert_int_equal(get(&r, key, &got), FAR_OK);
            assert_int_equal(far_delete(r.session, r.table, &key, 4), FAR_OK);
            expect_keys(&r, KEYS, 0);
            tried++;
        }
        store_rig_close(&r);
    }
    assert_true(tried >= 4);
}

static void set_slot(struct store_rig *r, const struct race_spot *spot, uint64_t word)
{
    store_rig_set(r, spot->look.subtable,
                  race_place_offset(&spot->key, (unsigned)spot->found.place), word);
}

/* RACE-R5: its block is whole, and a client completes a split that was begun. */
static void a_tentative_slot_of_the_dead_is_not_committed_by_a_split(void **state)
{
    struct store_rig r;
    struct race_spot dead, other;
    uint32_t key = 4711, sealed = 0, got = 0;

    (void)state;
    rig(&r);
    assert_int_equal(far_insert(r.session, r.table, &key, sizeof key, &key, 4), FAR_OK);
    race_rig_find(&r, &key, sizeof key, &dead);
    gaddr subtable = dead.look.subtable;
    set_slot(&r, &dead, dead.found.slot | RACE_SLOT_TENTATIVE);
    for (race_rig_find(&r, &sealed, sizeof sealed, &other); other.look.subtable != subtable;
         race_rig_find(&r, &sealed, sizeof sealed, &other))
        assert_true(++sealed < KEYS);
    set_slot(&r, &other, other.found.slot | RACE_SLOT_SEALED);
    assert_int_equal(far_update(r.session, r.table, &sealed, sizeof sealed, &sealed, 4), FAR_OK);
    race_rig_find(&r, &key, sizeof key, &dead);
    assert_true(dead.look.subtable != subtable);
    assert_int_equal(get(&r, key, &got), FAR_NOT_FOUND);
    expect_keys(&r, KEYS, 0);
    store_rig_close(&r);
}

/* Tentative slots do not fill a subtable for ever, nor make it split: they are killed. */
static void tentative_slots_of_the_dead_are_no_reason_to_split(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    struct far_table_info info;
    uint32_t key = 0;

    (void)state;
    rig(&r);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    uint64_t splits = info.splits;
    race_rig_find(&r, &key, sizeof key, &spot);
    for (unsigned i = 8; i < WORDS; i++) {
        if (race_is_slot(i) && store_rig_get(&r, spot.look.subtable, i * 8) == 0)
            store_rig_set(&r, spot.look.subtable, i * 8, RACE_SLOT_TENTATIVE | 4096);
    }
    for (uint32_t i = KEYS; i < KEYS + 2; i++)
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_int_equal(info.keys, KEYS + 2);
    assert_int_equal(info.splits, splits);
    for (uint32_t i = KEYS; i < KEYS + 2; i++)
        assert_int_equal(far_delete(r.session, r.table, &i, sizeof i), FAR_OK);
    expect_keys(&r, KEYS, 0);
    store_rig_close(&r);
}

/* A subtable whose keys were all deleted before it was sealed: there is no block to read, and by
 * a session that never read one there was no buffer either. */
static void an_empty_subtable_is_split(void **state)
{
    struct far_table_options options = {.tuning = RACE_GROUPS(GROUPS), .hash_seed = 3};
    struct store_rig r;
    uint32_t key = 1;

    (void)state;
    store_rig_open(&r, "mem:?size=4m", NULL, NULL, &options);
    assert_int_equal(far_exists(r.session, r.table, &key, sizeof key), FAR_NOT_FOUND);
    seal_some(&r, race_entry_subtable(race_rig_view(&r)->entries[0]), WORDS, true);
    assert_int_equal(far_put(r.session, r.table, &key, sizeof key, "v", 1), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/*
 * A splitter that died after publishing the children, before it updated the directory. Sessions
 * that come later find the old subtable, and follow it; so does the walker.
 */
static void a_split_that_the_directory_never_heard_of(void **state)
{
    struct store_rig r;
    far_session *later = NULL;
    uint32_t got = 0;
    size_t len = 0;

    (void)state;
    rig(&r);
    gaddr directory = race_rig_view(&r)->directory, root = race_rig_view(&r)->root;
    uint64_t before = store_rig_get(&r, directory, 0);
    for (uint32_t i = KEYS; i < 300; i++)
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    uint64_t depth = store_rig_get(&r, root, 0);
    assert_true(depth >= 3);
    for (uint64_t i = 0; i < 1ull << depth; i++) /* as if no split had been noted */
        store_rig_set(&r, directory, i * 8, i == 0 ? before : 0);
    store_rig_set(&r, root, 0, 0);

    assert_int_equal(far_session_open(r.pool, NULL, &later), FAR_OK);
    assert_int_equal(far_table_check(later, r.table, NULL, NULL), FAR_OK);
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(far_get(later, r.table, &i, sizeof i, &got, sizeof got, &len), FAR_OK);
        assert_int_equal(got, i);
    }
    for (uint32_t i = 300; i < 900; i++) /* more splits on top of it */
        assert_int_equal(far_insert(later, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    assert_int_equal(far_table_check(later, r.table, NULL, NULL), FAR_OK);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    far_session_close(later);
    assert_int_equal(far_session_open(r.pool, NULL, &later), FAR_OK);
    for (uint32_t i = 0; i < 900; i++)
        assert_int_equal(far_exists(later, r.table, &i, sizeof i), FAR_OK);
    far_session_close(later);
    store_rig_close(&r);
}

/* A journal may name a subtable that was split since, and whose memory is another table's. That one
 * may be writing it just now: a READ finds the old claim and header, and no children yet
 * (FABRIC-F1). */
static struct {
    gaddr at;
    struct race_subtable_head old;
    unsigned torn;
} reused;

static int post_torn(struct fab_ep *ep, struct fab_req *req)
{
    hook_run(ep, req);
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *v = &req->verbs[i];
        if (v->kind != FAB_READ || gaddr_make(v->node, v->off) != reused.at ||
            v->len != sizeof(struct race_subtable_head) || reused.torn++ > 0)
            continue;
        struct race_subtable_head *head = v->buf;
        head->claim = reused.old.claim;
        head->header = reused.old.header;
    }
    return FAR_OK;
}

static bool is_of(const struct race_view *view, gaddr at)
{
    for (uint64_t i = 0; i < 1ull << view->depth; i++)
        if (race_entry_subtable(view->entries[i]) == at)
            return true;
    return false;
}

static void a_journal_of_a_subtable_that_is_gone(void **state)
{
    struct store_rig r;
    struct far_table_options options = {.tuning = RACE_GROUPS(GROUPS), .hash_seed = 5};
    far_table *other = NULL;

    (void)state;
    rig(&r);
    far_session *s = r.session;
    uint64_t entry = race_rig_view(&r)->entries[0];
    uint32_t key = KEYS, suffix = 0;
    reused = (typeof(reused)){.at = race_entry_subtable(entry)};
    while (is_of(race_rig_view(&r), reused.at)) {
        assert_int_equal(far_insert(s, r.table, &key, sizeof key, &key, sizeof key), FAR_OK);
        key++;
    }
    for (unsigned i = 0; i < sizeof reused.old / 8; i++)
        ((uint64_t *)&reused.old)[i] = store_rig_get(&r, reused.at, i * 8ull);
    puppet_reclaim_all(&s->op);
    assert_int_equal(far_table_create(s, "other", "race", &options, &other), FAR_OK);
    key = 0;
    do {
        assert_int_equal(far_insert(s, other, &key, sizeof key, &key, sizeof key), FAR_OK);
        assert_true(key++ < 10000);
    } while (!is_of(race_view(store_known(s, other)->view), reused.at));

    const struct table_desc *desc = &r.table->index.desc;
    struct journal_entry line = {
        .owner = DEAD,
        .subject = {.place = (uint16_t)desc->id, .tag = desc->serial, .what = suffix},
        .data = &entry,
        .len = sizeof entry};
    hook_on(s->client.ep);
    hook.ops.post = post_torn;
    int rc = r.pool->pool.recover(r.pool->pool.tables, &s->op, &line);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_true(store_rig_get(&r, reused.at, offsetof(struct race_subtable_head, claim)) == 0);
    assert_int_equal(far_table_check(s, other, NULL, NULL), FAR_OK);
    while (key-- > 0)
        assert_int_equal(far_exists(s, other, &key, sizeof key), FAR_OK);
    store_rig_close(&r);
}

/* This client has claimed the split of a subtable and sealed it, and then its operation failed. Its
 * next one goes on with the split, and does not wait for the owner of the claim. */
static void a_split_that_a_client_began_itself_goes_on(void **state)
{
    struct far_table_options options = {.tuning = RACE_GROUPS(GROUPS), .hash_seed = 3};
    struct store_rig r;
    struct race_spot spot;
    uint32_t key = 1;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=4m", NULL, NULL, &options);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    race_rig_find(&r, &key, sizeof key, &spot);
    seal_some(&r, spot.look.subtable, WORDS, true);
    store_rig_set(&r, spot.look.subtable, offsetof(struct race_subtable_head, claim),
                  client_owner_word(&r.session->client));
    uint64_t began = r.clock->now;
    assert_int_equal(far_delete(r.session, r.table, &key, sizeof key), FAR_OK);
    assert_true(r.clock->now == began);
    expect_keys(&r, key, 0);
    store_rig_close(&r);
}

/* Its header is damaged, so what its other words say leads nowhere. */
static void a_journal_of_a_damaged_subtable_changes_nothing(void **state)
{
    const uint64_t forward_at = offsetof(struct race_subtable_head, forward);
    struct store_rig r;

    (void)state;
    rig(&r);
    const struct race_view *view = race_rig_view(&r);
    uint64_t entry = view->entries[0];
    gaddr at = race_entry_subtable(entry);
    const struct table_desc *desc = &r.table->index.desc;
    struct journal_entry line = {.owner = DEAD,
                                 .subject = {.place = (uint16_t)desc->id, .tag = desc->serial},
                                 .data = &entry,
                                 .len = sizeof entry};
    uint64_t header = store_rig_get(&r, at, offsetof(struct race_subtable_head, header));
    store_rig_set(&r, at, offsetof(struct race_subtable_head, header), header ^ 1);
    store_rig_set(&r, at, forward_at, view->root);
    assert_int_equal(op_begin(&r.session->op, NULL), FAR_OK); /* as when a writer meets the dead */
    int rc = r.pool->pool.recover(r.pool->pool.tables, &r.session->op, &line);
    assert_int_equal(rc, FAR_OK);
    assert_true(op_in_flight(&r.session->op));
    op_end(&r.session->op);
    assert_true(store_rig_get(&r, view->directory, 0) == entry);
    store_rig_set(&r, at, forward_at, 0);
    store_rig_set(&r, at, offsetof(struct race_subtable_head, header), header);
    expect_keys(&r, KEYS, 0);
    store_rig_close(&r);
}

/* Another client may have replaced or deleted it where the split has moved it. The READ says so. */
static void a_block_behind_a_sealed_slot_may_be_freed(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    uint32_t key = 1, got = 0, reads = 0;

    (void)state;
    rig(&r);
    race_rig_find(&r, &key, sizeof key, &spot);
    uint64_t block = gaddr_offset(pointer_gaddr(spot.found.slot));
    seal_some(&r, spot.look.subtable, WORDS, false);
    hook_record(r.session->client.ep);
    assert_int_equal(get(&r, key, &got), FAR_OK);
    hook_off();
    for (unsigned i = 0; i < recorded.count; i++) {
        const struct fab_verb *v = &recorded.verb[i];
        if (v->kind != FAB_READ || v->off != block)
            continue;
        reads++;
        assert_true(v->flags & FAB_MAY_BE_FREED);
    }
    assert_true(reads > 0);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_that_was_begun_is_ended_by_others),
        cmocka_unit_test(a_claim_of_the_dead_is_outlived),
        cmocka_unit_test(a_tentative_slot_of_the_dead_is_nothing),
        cmocka_unit_test(a_tentative_slot_of_the_dead_is_not_committed_by_a_split),
        cmocka_unit_test(tentative_slots_of_the_dead_are_no_reason_to_split),
        cmocka_unit_test(an_empty_subtable_is_split),
        cmocka_unit_test(a_split_that_the_directory_never_heard_of),
        cmocka_unit_test(a_journal_of_a_subtable_that_is_gone),
        cmocka_unit_test(a_split_that_a_client_began_itself_goes_on),
        cmocka_unit_test(a_block_behind_a_sealed_slot_may_be_freed),
        cmocka_unit_test(a_journal_of_a_damaged_subtable_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
