/* Images of units that are torn or old, and what SHARD does to notice: each test shows client A
 * one, as docs/fabric.md allows, and asks whether a key was lost or is there twice. B is another
 * client, whose changes A's images show or do not show. */
#include "support/shard_actors.h"

static uint32_t key[16], extra;

/* B inserts the key, and returns it. */
static uint32_t add(uint32_t k)
{
    expect_ok(insert_key(&B, k, 6));
    return k;
}
static uint32_t new_key(uint64_t mask, uint64_t want)
{
    return key_with(the, &from, mask, want);
}

/* Keys of bucket 0 in its first slots; the extra one goes to bucket 4 with the next resize. */
static void fill_slots(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        key[i] = add(new_key(7, 0));
    assert_true(shard_live(word_of(the, 0, 0)));
    extra = new_key(7, 4);
}
static void fill_two(void)
{
    fill_slots(1);
    add(extra);
}

static void set_word(uint64_t bucket, unsigned slot, uint64_t word)
{
    store_rig_set(&the->r, 0, unit_off(the, bucket) + slot * 8, word);
}

static gaddr top_of(void)
{
    struct shard_unit unit;
    uint64_t delta;
    shard_unit_set(view_of(the, B.s), &unit, 0, 0);
    gaddr at = shard_slot_at(view_of(the, B.s), &unit, 5, &delta);
    return at + delta;
}

/* The key that A's image did not show as it is must not be lost. */
static void expect_there(void)
{
    expect_ok(get_key(&B, extra, 0));
    end();
}

/* ---- the READ of a unit, with some words of an earlier time -------------------------------- */
static uint64_t early[4];

static void remember(void)
{
    for (unsigned i = 0; i < 4; i++)
        early[i] = word_of(the, 0, i);
}

/* A comes to its nth READ of level 1. */
static void reach_read(unsigned nth, deed *act, uint32_t k)
{
    struct place read = {A_READ, .nth = nth, .delta = unit_off(the, 0), .bytes = 1, .len = 32};
    actor_reach(&A, read, act, k, 5);
}

/* It happens, but A finds some words as they were, a bit for each slot. Returns what A's call
 * returns. */
static int read_early(unsigned words)
{
    assert_true(actor_step(&A));
    for (unsigned i = 0; i < 4; i++)
        if (words & 1u << i)
            ((uint64_t *)A.verb->buf)[i] = early[i];
    return actor_go_on(&A);
}

/* A has read levels 1 and 2 for the first time. */
static void reach_behind_read(deed *act)
{
    struct place read = {A_READ, .side = AFTER_REQUEST, .delta = unit_off(the, 0), .bytes = 1};
    actor_reach(&A, read, act, extra, 9);
}

/* ---- SHARD-S4: purges ----------------------------------------------------------------------- */

/* The first slot is purged and used for the key; then the frontier is used. */
static void purge_and_fill(void)
{
    uint32_t next = new_key(7, 0);
    expect_ok(delete_key(&B, key[0], 0));
    add(extra);
    add(next);
    assert_true(shard_live(word_of(the, 0, 0)) && shard_live(word_of(the, 0, 3)));
}

TEST(a_purge_shows_behind_its_frontier)
{
    fill_slots(3);
    remember();
    reach_read(1, insert_key, extra);
    purge_and_fill();
    assert_int_equal(read_early(1 << 0), FAR_EXISTS);
    end();
}

TEST(two_looks_must_show_the_same_frontier)
{
    fill_slots(3);
    expect_ok(delete_key(&B, key[0], 0));
    key[0] = add(new_key(7, 0)); /* purges */
    remember();
    assert_true(shard_live(early[0]) && shard_is(early[3], SHARD_COMPLETE));
    reach_read(2, insert_key, extra); /* the first is whole, and shows that frontier */
    purge_and_fill();
    assert_int_equal(read_early(1 << 0), FAR_EXISTS);
    end();
}

TEST(a_unit_that_is_full_is_read_twice)
{
    fill_slots(6);
    reach_behind_read(insert_key);
    expect_ok(delete_key(&B, key[0], 0));
    add(extra);
    for (unsigned i = 0; i < 7; i++) /* the unit gets a chain, and is full again */
        add(new_key(7, 0));
    assert_int_equal(actor_go_on(&A), FAR_EXISTS);
    end();
}

/* SHARD-S3. */
TEST(a_deleted_slot_is_not_used_at_once)
{
    fill_slots(2);
    reach_behind_read(insert_key);
    expect_ok(delete_key(&B, key[0], 0));
    add(extra);
    assert_int_equal(actor_go_on(&A), FAR_EXISTS);
    end();
}

/* Behind each verb of A, B finds the key that the chain node is to take over. */
TEST(a_chain_node_is_written_before_it_is_linked)
{
    fill_slots(6);
    int rc = actor_begin(&A, (struct place){.side = AFTER, .each = true}, insert_key, extra, 5);
    for (; rc == STOPPED; rc = actor_go_on(&A))
        expect_ok(get_key(&B, key[5], 0));
    expect_ok(rc);
    assert_true(shard_is_link(store_rig_get(&the->r, top_of(), 0)));
    end();
}

/* ---- SHARD-S5: moves ------------------------------------------------------------------------ */

TEST(a_plan_does_not_miss_what_came_into_a_purged_slot)
{
    fill_slots(3);
    uint32_t goes = new_key(7, 4);
    expect_ok(delete_key(&B, key[0], 0));
    expect_ok(delete_key(&B, key[1], 0));
    add(goes);
    remember();
    assert_true(shard_is(early[1], SHARD_FILLER) && shard_is(early[3], SHARD_COMPLETE));
    add(extra);
    add(new_key(7, 0));
    resize(the);
    reach_read(2, get_key, goes); /* the first is the get's own, the second that of its move */
    expect_ok(read_early(1 << 1));
    expect_there();
}

TEST(a_move_does_not_rely_on_an_image_of_before_its_plan)
{
    fill_slots(1);
    uint32_t goes = add(new_key(7, 4));
    remember();
    add(extra);
    resize(the);
    set_word(0, 3, shard_control(SHARD_PLAN, 1, false)); /* of another mover */
    reach_read(2, get_key, goes);
    expect_ok(read_early(1 << 2));
    expect_there();
}

/* The actor comes to its first CAS of a bucket, or of another place. */
static void reach_cas(struct actor *a, uint64_t off, deed *act, uint32_t k)
{
    struct place cas = {A_CAS, .side = BEFORE_REQUEST, .delta = off, .bytes = 40};
    actor_reach(a, cas, act, k, 5);
}

/* B moves the unit. It has been purged, and is sealed when B is about to fill its child. */
static void reach_fill(uint64_t child)
{
    remember();
    reach_cas(&B, unit_off(the, child), get_key, new_key(2 * child - 1, child));
}

/* A does not know yet that the barrier is over, until it announces again. */
static void forget_the_barrier(void)
{
    view_of(the, A.s)->settled = 0;
    A.s->client.epoch.seen = view_of(the, B.s)->barrier - 1;
    client_withhold_announcements(&A.s->client, true);
}
static void announce_again(void)
{
    client_withhold_announcements(&A.s->client, false);
}

/* A's image has one word of before the move, and others as the move has left them. */
static void insert_at_the_fill(unsigned early_slot)
{
    reach_fill(4);
    forget_the_barrier();
    reach_read(1, insert_key, extra);
    expect_ok(read_early(1u << early_slot));
    announce_again();
    (void)actor_go_on(&B);
}

/* The plan is in a filler, and A sees the frontier freed. */
TEST(an_insert_does_not_use_a_frontier_that_a_move_has_freed)
{
    fill_slots(3);
    expect_ok(delete_key(&B, key[0], 0));
    expect_ok(delete_key(&B, key[1], 0));
    add(new_key(7, 0));
    resize(the);
    insert_at_the_fill(1);
    assert_true(shard_is(early[1], SHARD_FILLER) && shard_is(early[3], SHARD_COMPLETE));
    expect_there();
}

/* The plan is in the frontier, and A sees a filler freed that no purge has completed. */
TEST(an_insert_does_not_use_a_filler_that_a_move_has_freed)
{
    fill_slots(3);
    expect_ok(delete_key(&B, key[0], 0));
    set_word(0, 0, shard_control(SHARD_FILLER, 1, false)); /* of a client that died then */
    resize(the);
    insert_at_the_fill(3);
    expect_there();
}

/* B's plan is in a filler. If A put another one into the frontier, that would not say that B has
 * begun to renew sids. */
TEST(a_plan_is_not_put_into_a_frontier_that_a_move_has_freed)
{
    extra = add(new_key(0x3f | 1 << 9, 1 << 9)); /* stays; bit 3 of its next sid is set */
    for (unsigned i = 0; i < 2; i++)
        key[i] = add(new_key(0x3f, 0));
    for (unsigned i = 0; i < 3; i++)
        resize(the);
    expect_ok(update_key(&B, extra, 6)); /* moves it */
    expect_ok(delete_key(&B, key[0], 0));
    expect_ok(delete_key(&B, key[1], 0));
    uint32_t goes = add(new_key(0x3f, 0x20));
    resize(the);
    reach_fill(32);
    assert_true(shard_is(early[2], SHARD_FILLER) && shard_is(early[3], SHARD_COMPLETE));
    reach_read(2, get_key, goes); /* the first is the get's own */
    expect_ok(read_early(1 << 2));
    (void)actor_go_on(&B);
    expect_there();
}

/* A updates the key before B's move can seal its entry. */
TEST(a_move_takes_no_entry_that_it_could_not_seal)
{
    fill_two();
    resize(the);
    reach_cas(&B, unit_off(the, 0), get_key, extra);
    forget_the_barrier();
    expect_ok(update_key(&A, extra, 9));
    announce_again();
    (void)actor_go_on(&B);
    expect_found(&B, extra, 9);
    end();
}

/* A inserts the key where B's move wants its plan to be. */
TEST(a_move_does_not_go_on_without_its_plan)
{
    fill_slots(1);
    resize(the);
    reach_cas(&B, unit_off(the, 0), get_key, new_key(7, 4));
    forget_the_barrier();
    expect_ok(insert_key(&A, extra, 9));
    announce_again();
    (void)actor_go_on(&B);
    expect_there();
}

/* Another mover seals the entry behind the link. */
TEST(a_writer_before_the_barrier_notices_a_move_in_level_3)
{
    fill_slots(6);
    add(extra);
    resize(the);
    forget_the_barrier();
    reach_behind_read(update_key);
    gaddr node = pointer_gaddr(store_rig_get(&the->r, top_of(), 0));
    uint64_t entry = store_rig_get(&the->r, node, 8);
    assert_true(shard_live(entry));
    store_rig_set(&the->r, node, 8, entry | shard_seal(0));
    store_rig_set(&the->r, node, 16, shard_control(SHARD_PLAN, 1, false));
    expect_ok(actor_go_on(&A));
    announce_again();
    expect_there();
}

/* Another mover has sealed the extra key's entry. */
static void seal_extra(void)
{
    fill_two();
    resize(the);
    set_word(0, 1, word_of(the, 0, 1) | shard_seal(0));
    set_word(0, 2, shard_control(SHARD_PLAN, 1, false));
}

TEST(a_writer_does_not_use_slots_of_a_move_under_way)
{
    seal_extra();
    expect_ok(insert_key(&A, new_key(7, 0), 7));
    expect_there();
}

TEST(a_mark_alone_does_not_publish)
{
    seal_extra();
    set_word(4, 3, shard_control(SHARD_MARK, 1, false)); /* and before the entry */
    expect_ok(insert_key(&A, new_key(7, 0), 7));
    expect_there();
}

TEST(a_reader_finds_what_is_sealed)
{
    seal_extra();
    expect_ok(get_key(&A, extra, 0));
    end();
}

/* B moves the unit, and uses the slot of the key that has gone. */
static void move_and_overwrite(void)
{
    uint64_t word = word_of(the, 0, 1);
    expect_ok(get_key(&B, extra, 0));
    add(new_key(15, 0));
    assert_true(shard_live(word_of(the, 0, 1)) && word_of(the, 0, 1) != word);
}

TEST(a_reader_does_not_rely_on_an_image_of_after_the_move)
{
    fill_two();
    resize(the);
    reach_read(1, get_key, extra);
    move_and_overwrite();
    expect_ok(actor_go_on(&A));
    end();
}

/* The table is at version 4, which renews the sids. */
static void resize_to_4(void)
{
    for (unsigned i = 0; i < 3; i++)
        resize(the);
    expect_ok(update_key(&B, extra, 8));
    resize(the);
}

/* Another mover seals what goes, and says so in the plan. */
static void seal_and_say(void)
{
    for (unsigned i = 0; i < 4; i++) {
        uint64_t word = word_of(the, 0, i);
        if (shard_is(word, SHARD_PLAN))
            set_word(0, i, word | SHARD_PLAN_SEALED);
        else if (shard_live(word) && shard_entry_goes(word, 3, 0))
            set_word(0, i, word | shard_seal(3));
    }
}

TEST(a_move_does_not_rely_on_an_image_of_before_the_seals)
{
    uint32_t goes = add(new_key(0x3f, 0x20)); /* with version 4 */
    extra = add(new_key(0x3ff, 0x220));       /* its next sid is the same */
    resize_to_4();
    remember();
    set_word(0, 2, shard_control(SHARD_PLAN, 4, false));
    reach_read(3, get_key, goes);
    seal_and_say();
    expect_ok(read_early(1 << 1));
    expect_there();
}

TEST(a_move_does_not_seal_by_next_sids)
{
    extra = add(new_key(0x23f, 0x200)); /* stays, but the last bit of its next sid is set */
    uint32_t goes = add(new_key(0x3f, 0x20));
    resize_to_4();
    set_word(0, 2, shard_control(SHARD_PLAN, 4, false));
    remember();
    reach_read(3, get_key, goes);
    uint64_t word = word_of(the, 0, 0), sid = shard_sid(view_of(the, B.s), hash_of(the, extra), 4);
    seal_and_say();
    set_word(0, 0, shard_with_sid(word, sid));
    expect_ok(read_early(1 << 2));
    expect_there();
}

/* ---- changes that leave a unit behind -------------------------------------------------------- */

/* A moves nothing that it can leave. */
static void leave_behind(void)
{
    view_of(the, A.s)->move_every = UINT32_MAX;
    view_of(the, A.s)->behind_ops = 16;
}

TEST(a_change_may_leave_a_unit_behind)
{
    fill_two();
    resize(the);
    leave_behind();
    expect_ok(update_key(&A, extra, 9));
    assert_true(word_of(the, 4, 3) == 0);
    expect_found(&B, extra, 9); /* moves it */
    assert_true(word_of(the, 4, 3) != 0);
    expect_found(&A, extra, 9);
    end();
}

TEST(a_change_leaves_no_unit_that_is_being_moved)
{
    fill_two();
    resize(the);
    uint32_t goes = new_key(7, 4);
    reach_fill(4);
    leave_behind();
    expect_ok(insert_key(&A, goes, 5));
    (void)actor_go_on(&B);
    expect_found(&B, goes, 5);
    end();
}

/* Its unit must be read twice. */
TEST(a_change_leaves_its_unit_behind_once)
{
    fill_slots(3);
    expect_ok(delete_key(&B, key[0], 0));
    add(new_key(7, 0)); /* purges */
    assert_true(shard_is(word_of(the, 0, 3), SHARD_COMPLETE));
    resize(the);
    leave_behind();
    expect_ok(insert_key(&A, extra, 5));
    assert_true(word_of(the, 4, 3) != 0);
    expect_there();
}

/* Its image shows an entry as another mover has left it, and nothing else of that move. */
TEST(a_change_that_leaves_a_unit_behind_finds_next_sids)
{
    extra = add(new_key(0x23f, 0x200)); /* stays, but the last bit of its next sid is set */
    uint32_t goes = add(new_key(0x3f, 0x20));
    resize_to_4();
    remember();
    leave_behind();
    reach_read(1, update_key, extra);
    uint64_t word = word_of(the, 0, 0), sid = shard_sid(view_of(the, B.s), hash_of(the, extra), 4);
    set_word(0, 2, shard_control(SHARD_PLAN, 4, false));
    seal_and_say();
    set_word(0, 0, shard_with_sid(word, sid));
    expect_ok(read_early(1 << 1 | 1 << 2));
    expect_found(&B, extra, 5);
    expect_ok(get_key(&B, goes, 0));
    end();
}

/* ---- SHARD-S8: the root and the barrier ----------------------------------------------------- */

/* A knows the new version, but not when the barrier is over. */
static void resize_and_hold_back(void)
{
    resize(the);
    struct shard_view *view = view_of(the, A.s);
    assert_int_equal(view->version, 1);
    view->settled = 0;
    view->barrier = 0;
    store_rig_set(&the->r, view->root, offsetof(struct shard_root, resize), shard_resize(1, 0));
}

TEST(a_reader_before_the_barrier_notices_a_move)
{
    fill_two();
    resize_and_hold_back();
    expect_ok(update_key(&B, extra, 7));
    expect_found(&A, extra, 7);
    end();
}

TEST(a_writer_before_the_barrier_notices_a_move)
{
    fill_slots(1);
    resize_and_hold_back();
    assert_int_equal(get_key(&B, extra, 0), FAR_NOT_FOUND); /* moves the unit: nothing goes */
    assert_true(shard_is(word_of(the, 0, 1), SHARD_PLAN));
    add(new_key(7, 0)); /* replaces the plan */
    expect_ok(insert_key(&A, extra, 6));
    expect_there();
}

/* The table seems to have so many keys. If they are many, the next put resizes it. */
static void set_count(uint64_t count)
{
    store_rig_set(&the->r, view_of(the, B.s)->root, offsetof(struct shard_root, count), count);
}

/* B sets the next version. */
static void set_version(void)
{
    set_count(1u << 30);
    expect_ok(put_key(&B, dummy, 7));
    set_count(0);
}

/* C's second READ of the root, which is for its segments, has those of before a resize. */
TEST(a_torn_root_deceives_nobody)
{
    static struct actor C;
    const uint64_t first = offsetof(struct shard_root, segment);
    struct shard_root root;
    gaddr at = view_of(the, B.s)->root;
    actor_set(&C, &the->r, store_rig_join(&the->r), the->t);
    /* The first is for the geometry. */
    actor_reach(&C, (struct place){A_READ, .nth = 2, .of = at, .bytes = 1, .len = sizeof root},
                get_key, dummy, 0);
    for (uint64_t i = 0; i < sizeof root; i += 8)
        *(uint64_t *)((char *)&root + i) = store_rig_get(&the->r, at, i);
    set_version();
    assert_true(actor_step(&C));
    memcpy((char *)C.verb->buf + first, (char *)&root + first, sizeof root - first);
    expect_ok(actor_go_on(&C));
    actor_leave(&C);
    end();
}

/* B has set the next version, and moves as soon as it may. */
static void move_when_settled(unsigned before)
{
    for (unsigned i = 0; i < 50 && view_of(the, B.s)->settled == before; i++)
        expect_ok(put_key(&B, dummy, 7));
    if (view_of(the, B.s)->settled > before)
        move_and_overwrite();
}

static void look_around(struct actor *a, unsigned times)
{
    while (times-- > 0)
        expect_ok(get_key(a, dummy, 0));
}

TEST(no_move_begins_before_all_know_the_version)
{
    end();
    for (unsigned before = 0; before < 64; before++) { /* the epochs of A and B differ */
        start(state);
        fill_two();
        look_around(&B, before / 8);
        look_around(&A, before % 8);
        reach_read(1, get_key, extra);
        set_version();
        move_when_settled(0);
        expect_ok(actor_go_on(&A));
        end();
    }
}

/* Until the caches have been validated, and need not be read again. */
static void validate(void)
{
    for (unsigned i = 0; i < 20; i++) {
        look_around(&A, 1);
        look_around(&B, 1);
    }
}

/* The epoch of A's get is newer than the last one that B has validated. */
TEST(the_barrier_counts_from_the_newest_epoch)
{
    fill_two();
    validate();
    client_withhold_announcements(&B.s->client, true);
    for (unsigned i = 0; i < 20; i++) {
        client_hurry_epoch(&A.s->client);
        look_around(&A, 1);
    }
    reach_read(1, get_key, extra);
    assert_true(client_epoch_view(&A.s->client).validated >
                client_epoch_view(&B.s->client).validated);
    set_version();
    client_withhold_announcements(&B.s->client, false);
    move_when_settled(0);
    expect_ok(actor_go_on(&A));
    end();
}

/* Of B's resize, the last request does not get through: the second one behind its CAS. */
static void set_version_only(void)
{
    set_count(1u << 30);
    struct place cas = {A_CAS, .side = AFTER_REQUEST, .of = view_of(the, B.s)->root, .bytes = 1};
    actor_reach(&B, cas, put_key, dummy, 7);
    assert_int_equal(actor_go_until(&B, (struct place){.side = AFTER_REQUEST}), STOPPED);
    assert_int_equal(actor_go_until(&B, (struct place){.side = BEFORE_REQUEST}), STOPPED);
    expect_ok(actor_answer(&B, FAR_UNREACHABLE));
    set_count(0);
}

TEST(a_resize_that_was_broken_off_has_no_barrier_yet)
{
    fill_two();
    validate();
    set_version_only();
    for (unsigned i = 0; i < 100 && view_of(the, B.s)->settled == 0; i++) {
        expect_ok(put_key(&B, dummy, 7));
        look_around(&A, 1);
    }
    assert_int_equal(view_of(the, B.s)->settled, 1);
    expect_ok(get_key(&B, extra, 0)); /* moves it */
    expect_ok(get_key(&A, extra, 0));
    end();
}

TEST(the_barrier_of_the_resize_before_does_not_count)
{
    fill_slots(1);
    extra = add(new_key(15, 8));
    resize(the);
    expect_ok(update_key(&B, extra, 6)); /* moves it to version 1 */
    validate();
    reach_read(1, get_key, extra);
    set_version_only();
    move_when_settled(1);
    expect_ok(actor_go_on(&A));
    end();
}

/* ---- memory of a client that was too late --------------------------------------------------- */

/* B came before A's CAS: what A has allocated for it is not lost. */
static void expect_no_loss(void)
{
    expect_ok(actor_go_on(&A));
    assert_true(puppet_lost_bytes(&A.s->client) == 0);
    end();
}

TEST(a_chain_node_that_comes_too_late_is_not_lost)
{
    fill_slots(6);
    reach_cas(&A, gaddr_offset(top_of()), put_key, extra);
    add(new_key(7, 0));
    assert_true(shard_is_link(store_rig_get(&the->r, top_of(), 0)));
    expect_no_loss();
}

TEST(a_segment_that_comes_too_late_is_not_lost)
{
    gaddr root = view_of(the, B.s)->root;
    set_count(1u << 30);
    reach_cas(&A, gaddr_offset(root) + offsetof(struct shard_root, segment[1]), put_key, dummy);
    store_rig_set(&the->r, root, offsetof(struct shard_root, claim), 0); /* it is lost */
    set_version();
    assert_true(store_rig_get(&the->r, root, offsetof(struct shard_root, segment[1].tops)) != 0);
    expect_no_loss();
}

#define CASE(test) cmocka_unit_test_setup(test, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_purge_shows_behind_its_frontier),
        CASE(two_looks_must_show_the_same_frontier),
        CASE(a_deleted_slot_is_not_used_at_once),
        CASE(a_unit_that_is_full_is_read_twice),
        CASE(a_plan_does_not_miss_what_came_into_a_purged_slot),
        CASE(a_move_does_not_rely_on_an_image_of_before_its_plan),
        CASE(a_move_does_not_rely_on_an_image_of_before_the_seals),
        CASE(a_move_takes_no_entry_that_it_could_not_seal),
        CASE(a_move_does_not_go_on_without_its_plan),
        CASE(a_writer_does_not_use_slots_of_a_move_under_way),
        CASE(an_insert_does_not_use_a_frontier_that_a_move_has_freed),
        CASE(an_insert_does_not_use_a_filler_that_a_move_has_freed),
        CASE(a_plan_is_not_put_into_a_frontier_that_a_move_has_freed),
        CASE(a_mark_alone_does_not_publish),
        CASE(a_reader_finds_what_is_sealed),
        CASE(no_move_begins_before_all_know_the_version),
        CASE(the_barrier_counts_from_the_newest_epoch),
        CASE(a_chain_node_is_written_before_it_is_linked),
        CASE(a_reader_does_not_rely_on_an_image_of_after_the_move),
        CASE(a_move_does_not_seal_by_next_sids),
        CASE(a_change_may_leave_a_unit_behind),
        CASE(a_change_leaves_no_unit_that_is_being_moved),
        CASE(a_change_leaves_its_unit_behind_once),
        CASE(a_change_that_leaves_a_unit_behind_finds_next_sids),
        CASE(a_reader_before_the_barrier_notices_a_move),
        CASE(a_writer_before_the_barrier_notices_a_move),
        CASE(a_writer_before_the_barrier_notices_a_move_in_level_3),
        CASE(a_torn_root_deceives_nobody),
        CASE(a_resize_that_was_broken_off_has_no_barrier_yet),
        CASE(the_barrier_of_the_resize_before_does_not_count),
        CASE(a_chain_node_that_comes_too_late_is_not_lost),
        CASE(a_segment_that_comes_too_late_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
