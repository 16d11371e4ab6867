/* Hints of CHIME: keys that a session has seen take a round trip less, if their values are in
 * blocks, and fewer bytes otherwise (HINT-H1, and index/hints.h). */
#include "index/chime/chime.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#define KEY "key", 3

#include "support/chime_image.h"
#include "support/hot_rig.h"

/* A session of another process that has opened the table, and has not seen the key. */
static far_session *join(struct store_rig *r)
{
    far_session *s = store_rig_join_apart(r);
    assert_int_equal(far_exists(s, r->table, "other", 5), FAR_NOT_FOUND);
    return s;
}

static void expect_cost(const far_session *s, int rc, int status, uint64_t round_trips)
{
    assert_int_equal(rc, status);
    expect_rtts(s, round_trips);
}

static enum far_decision append(void *arg, const void *old, size_t old_len, const void **value,
                                size_t *value_len)
{
    static char longer[16];
    (void)arg;
    memcpy(longer, old, old_len);
    longer[old_len] = '+';
    *value = longer;
    *value_len = old_len + 1;
    return FAR_STORE;
}

static void give_hint(const struct chime_view *view, const struct chime_key *key,
                      struct index_hint hint)
{
    struct index_hint none = {.slot = 0};
    struct chime_seen seen = {CHIME_BLOCK, hint.slot, CHIME_GROUP * hint.place, true};
    chime_hint_note(view, key, &seen, &none);
}

static void keys_that_were_seen_take_a_round_trip_less(void **state)
{
    static const struct {
        const char *tuning;
        uint32_t saved;
    } cases[] = {{"hot=0", 0}, {"hot=1", 1}, {"", 1}, {"hot=1&vacancy=0", 1}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t saved = cases[i].saved;
        struct store_rig r;
        rig(&r, "mem:?size=8m", cases[i].tuning);
        far_session *s = r.session, *other = join(&r);
        put(s, &r, "one");
        expect_rtts(s, 2);
        expect_get(s, &r, "one", 2 - saved); /* an own change is a hint, */
        far_session *mate = store_rig_join(&r);
        assert_int_equal(far_exists(mate, r.table, "other", 5), FAR_NOT_FOUND);
        expect_get(mate, &r, "one", 2 - saved); /* and one for its process (HINT-H4) */
        far_session_close(mate);
        expect_get(other, &r, "one", 2); /* not seen */
        expect_get(other, &r, "one", 2 - saved);
        expect_cost(s, far_put(s, r.table, KEY, "two", 3), FAR_OK, 3 - saved);
        expect_cost(s, far_update(s, r.table, KEY, "three", 5), FAR_OK, 3 - saved);
        expect_cost(s, far_insert(s, r.table, KEY, "four", 4), FAR_EXISTS, 3 - saved);
        expect_cost(s, far_modify(s, r.table, KEY, append, NULL), FAR_OK, 3 - saved);
        expect_get(s, &r, "three+", 2 - saved);
        expect_cost(s, far_delete(s, r.table, KEY), FAR_OK, 3 - saved);
        expect_cost(s, far_exists(s, r.table, KEY), FAR_NOT_FOUND, 1);
        far_session_close(other);
        store_rig_close(&r);
    }
}

static void a_get_reads_one_group_and_the_block(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    expect_get(r.session, &r, "one", 1);
    assert_int_equal(r.session->op.cost.verbs, 2);
    assert_int_equal(r.session->op.cost.bytes_read, 8 * CHIME_GROUP_WORDS + 64);
    store_rig_close(&r);
}

static void gets_that_go_by_a_hint_are_counted(void **state)
{
    struct store_rig r;
    struct far_table_info info;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    expect_get(r.session, &r, "one", 1);
    expect_get(r.session, &r, "one", 1);
    assert_int_equal(far_exists(r.session, r.table, "other", 5), FAR_NOT_FOUND);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_OK);
    assert_string_equal(info.session[0].name, "gets");
    assert_int_equal(info.session[0].value, 3);
    assert_string_equal(info.session[1].name, "hot_hits");
    assert_int_equal(info.session[1].value, 2);
    store_rig_close(&r);
}

static void a_get_of_an_inline_value_reads_one_group(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session, *other = join(&r);
    char got[8];
    assert_int_equal(far_put(s, r.table, "8 bytes.", 8, "8 bytes.", 8), FAR_OK);
    for (unsigned i = 0; i < 4; i++) {
        far_session *who = i < 2 ? s : other;
        assert_int_equal(far_get(who, r.table, "8 bytes.", 8, got, 8, NULL), FAR_OK);
        expect_rtts(who, 1);
        assert_int_equal(who->op.cost.bytes_read == 8 * CHIME_GROUP_WORDS, i % 2 == 1);
    }
    /* The entry may become that of a block, and be inline again. */
    assert_int_equal(far_put(other, r.table, "8 bytes.", 8, "short", 5), FAR_OK);
    expect_cost(s, far_get(s, r.table, "8 bytes.", 8, got, 8, NULL), FAR_OK, 2);
    expect_cost(s, far_get(s, r.table, "8 bytes.", 8, got, 8, NULL), FAR_OK, 1);
    assert_int_equal(far_put(other, r.table, "8 bytes.", 8, "8 bytes!", 8), FAR_OK);
    expect_cost(s, far_get(s, r.table, "8 bytes.", 8, got, 8, NULL), FAR_OK, 1);
    assert_memory_equal(got, "8 bytes!", 8);
    far_session_close(other);
    store_rig_close(&r);
}

static void a_hint_that_is_out_of_date_says_nothing(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    far_session *s = r.session, *other = join(&r);
    put(s, &r, "one");
    put(other, &r, "two");
    expect_get(s, &r, "two", 2); /* the block of the hint still has "one" */
    expect_get(s, &r, "two", 1);
    put(other, &r, "three");
    expect_cost(s, far_update(s, r.table, KEY, "four", 4), FAR_OK, 3);
    expect_get(s, &r, "four", 1);
    expect_get(other, &r, "four", 2);
    assert_int_equal(far_delete(s, r.table, KEY), FAR_OK);
    expect_cost(other, far_exists(other, r.table, KEY), FAR_NOT_FOUND, 2);
    expect_cost(other, far_exists(other, r.table, KEY), FAR_NOT_FOUND, 1);
    put(s, &r, "five");
    assert_int_equal(far_delete(other, r.table, KEY), FAR_OK);
    expect_cost(s, far_delete(s, r.table, KEY), FAR_NOT_FOUND, 2);
    expect_cost(s, far_exists(s, r.table, KEY), FAR_NOT_FOUND, 1);
    far_session_close(other);
    store_rig_close(&r);
}

/* The hint is of another key: the group has an entry of that, with its block. */
static void the_block_of_another_key_is_not_believed(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    char got[16] = "";
    (void)state;
    knobs.hash_mask = knobs.fingerprint_mask = 0; /* all keys have one fingerprint */
    store_rig_open(&r, "mem:?size=8m", &knobs, NULL,
                   &(struct far_table_options){.tuning = "hot=1"});
    far_session *s = r.session;
    assert_int_equal(far_put(s, r.table, "together1", 9, "one", 3), FAR_OK);
    assert_int_equal(far_put(s, r.table, "together2", 9, "two", 3), FAR_OK);
    const struct chime_view *view = chime_view(store_known(s, r.table)->view);
    struct chime_key first, second;
    chime_key_set(view, (struct slice){"together1", 9}, &first);
    chime_key_set(view, (struct slice){"together2", 9}, &second);
    assert_int_equal(first.fingerprint, second.fingerprint);
    give_hint(view, &first, chime_hint(view, &second));
    assert_int_equal(far_get(s, r.table, "together1", 9, got, sizeof got, NULL), FAR_OK);
    assert_string_equal(got, "one");
    give_hint(view, &first, chime_hint(view, &second));
    assert_int_equal(far_delete(s, r.table, "together1", 9), FAR_OK);
    assert_int_equal(far_exists(s, r.table, "together2", 9), FAR_OK);
    store_rig_close(&r);
}

/* A hint is of no use if the block is on another node than the leaf, and it costs nothing. */
static void a_block_of_another_node_is_not_read_ahead(void **state)
{
    struct store_rig r;
    (void)state;
    rig(&r, "mem:?size=8m&nodes=2", "hot=1");
    put(r.session, &r, "one");
    struct chime_view *view = chime_view(store_known(r.session, r.table)->view);
    struct chime_key key;
    chime_key_set(view, (struct slice){KEY}, &key);
    struct index_hint hint = chime_hint(view, &key);
    hint.slot ^= gaddr_make(1, 0); /* the same offset of the other node */
    give_hint(view, &key, hint);
    expect_get(r.session, &r, "one", 2);
    assert_int_equal(r.session->op.cost.verbs, 2);
    expect_get(r.session, &r, "one", 1);
    store_rig_close(&r);
}

/* HINT-H4: a hint may be half of one key's and half of another's. */
static void a_hint_may_lead_anywhere(void **state)
{
    struct store_rig r;
    struct chime_key key;
    (void)state;
    rig(&r, "mem:?size=8m", "span=8&neighbourhood=4&hot=1");
    put(r.session, &r, "one");
    struct chime_view *view = chime_view(store_known(r.session, r.table)->view);
    chime_key_set(view, (struct slice){KEY}, &key);
    for (unsigned i = 0; i < 4; i++) {
        struct index_hint hint = chime_hint(view, &key);
        if (i % 2 == 0)
            hint.slot |= (1ull << GADDR_UNIT_BITS) - 1; /* outside the pool */
        else
            hint.place = view->shape.groups; /* outside the leaf */
        give_hint(view, &key, hint);
        if (i < 2)
            expect_get(r.session, &r, "one", 2);
        else
            put(r.session, &r, "one");
    }
    store_rig_close(&r);
}

static size_t numbered(uint32_t number, char key[16])
{
    return (size_t)snprintf(key, 16, "user%08u", number * 7919 % 10007);
}

/* Keys move within their leaves, and to others. Hints of that are wrong, and nothing else is. */
static void keys_that_moved_are_found(void **state)
{
    enum { KEYS = 2000 };
    struct store_rig r;
    char key[16], got[8];
    (void)state;
    rig(&r, "mem:?size=8m", "span=8&neighbourhood=4&cache=16&hot=64");
    far_session *s = r.session, *other = join(&r);
    for (uint32_t i = 0; i < KEYS; i++) { /* `other` moves what `s` has seen */
        size_t len = numbered(i, key);
        assert_int_equal(far_put(other, r.table, key, len, "before", 6), FAR_OK);
        assert_int_equal(far_get(s, r.table, key, len, got, 8, NULL), FAR_OK);
        len = numbered(i / 2, key);
        assert_int_equal(far_get(s, r.table, key, len, got, 8, NULL), FAR_OK);
        len = numbered(i / 3, key);
        assert_int_equal(far_update(s, r.table, key, len, &i, 4), FAR_OK);
        assert_int_equal(far_get(other, r.table, key, len, got, 8, NULL), FAR_OK);
        assert_memory_equal(got, &i, 4);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        size_t len = numbered(i, key);
        assert_int_equal(far_get(s, r.table, key, len, got, 8, NULL), FAR_OK);
        assert_int_equal(far_delete(s, r.table, key, len), FAR_OK);
    }
    assert_int_equal(far_table_check(s, r.table, NULL, NULL), FAR_OK);
    far_session_close(other);
    store_rig_close(&r);
}

static void a_damaged_block_is_not_taken_for_an_absent_key(void **state)
{
    struct store_rig r;
    char got[16];
    (void)state;
    rig(&r, "mem:?size=8m", "hot=1");
    put(r.session, &r, "one");
    struct chime_key key;
    const struct chime_view *view = chime_view(store_known(r.session, r.table)->view);
    chime_key_set(view, (struct slice){KEY}, &key);
    gaddr block = pointer_gaddr(chime_hint(view, &key).slot);
    store_rig_set(&r, block, 16, ~store_rig_get(&r, block, 16));
    assert_int_equal(far_get(r.session, r.table, KEY, got, sizeof got, NULL), FAR_CORRUPT);
    assert_int_equal(far_delete(r.session, r.table, KEY), FAR_CORRUPT);
    store_rig_close(&r);
}

/* ---- a change that has to wait --------------------------------------------------------------- */

#define BLOCK_WORDS (64 / 8)
static struct {
    struct store_rig *r;
    struct image leaf;           /* as it is when the lock is let go */
    gaddr block;                 /* the block of the hint, */
    uint64_t words[BLOCK_WORDS]; /* and what it is then */
    unsigned pauses;
} lock;

static void copy_block(struct store_rig *r, gaddr from, uint64_t words[BLOCK_WORDS])
{
    for (unsigned i = 0; i < BLOCK_WORDS; i++)
        words[i] = store_rig_get(r, from, 8 * i);
}

/* The other client writes a block of the key where a freed one was, and lets the lock go. */
static void pause_once(struct fab_ep *ep, uint64_t ns)
{
    const struct chime_view *view = chime_view(store_known(lock.r->session, lock.r->table)->view);
    for (unsigned i = 0; i < BLOCK_WORDS; i++)
        store_rig_set(lock.r, lock.block, 8 * i, lock.words[i]);
    image_write(lock.r, view, &lock.leaf);
    lock.pauses++;
    hook.real->pause(ep, ns);
}

/* HINT-H1: what was read of the hint's block without the lock says nothing of what it is later. */
static void a_block_that_was_read_without_the_lock_is_not_believed(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct chime_key key;
    (void)state;
    knobs.generation_mask = 0; /* no word tells that the memory was used again */
    store_rig_open(&r, "mem:?size=8m", &knobs, NULL,
                   &(struct far_table_options){.tuning = "hot=1"});
    far_session *s = r.session, *other = join(&r);
    put(s, &r, "old");
    const struct chime_view *view = chime_view(store_known(s, r.table)->view);
    chime_key_set(view, (struct slice){KEY}, &key);
    struct index_hint old = chime_hint(view, &key);
    put(s, &r, "new");
    lock.r = &r;
    lock.pauses = 0;
    lock.block = pointer_gaddr(old.slot);
    copy_block(&r, pointer_gaddr(chime_hint(view, &key).slot), lock.words);
    give_hint(view, &key, old);
    image_read_top(&r, view, &lock.leaf);
    chime_entry(lock.leaf.node, image_used(&lock.leaf, 0))[1] = old.slot;
    store_rig_set(&r, lock.leaf.at, 0, client_owner_word(&other->client));
    hook_on(s->client.ep);
    hook.ops.pause = pause_once;
    assert_int_equal(far_modify(s, r.table, KEY, append, NULL), FAR_OK);
    hook_off();
    assert_int_equal(lock.pauses, 1);
    expect_get(s, &r, "new+", 1);
    far_session_close(other);
    store_rig_close(&r);
}

/* ---- the order ------------------------------------------------------------------------------- */

/* HINT-H1 */
static void the_block_is_read_behind_the_group(void **state)
{
    (void)state;
    expect_block_behind(8 * CHIME_GROUP_WORDS);
}

int main(void)
{
    index_tested = "chime";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_were_seen_take_a_round_trip_less),
        cmocka_unit_test(a_get_reads_one_group_and_the_block),
        cmocka_unit_test(gets_that_go_by_a_hint_are_counted),
        cmocka_unit_test(a_get_of_an_inline_value_reads_one_group),
        cmocka_unit_test(a_hint_that_is_out_of_date_says_nothing),
        cmocka_unit_test(the_block_of_another_key_is_not_believed),
        cmocka_unit_test(a_block_of_another_node_is_not_read_ahead),
        cmocka_unit_test(a_hint_may_lead_anywhere),
        cmocka_unit_test(long_blocks_are_not_read_ahead),
        cmocka_unit_test(keys_that_moved_are_found),
        cmocka_unit_test(a_damaged_block_is_not_taken_for_an_absent_key),
        cmocka_unit_test(a_block_that_was_read_without_the_lock_is_not_believed),
        cmocka_unit_test(the_block_is_read_behind_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
