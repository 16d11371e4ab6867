/* Interleavings and limits that RCuckoo must survive. A test moves entries, tears verbs or stops
 * clients where a run of the simulator seldom does. */
#include "support/rcuckoo_rig.h"

#define SMALL "rows=64&lock_rows=1&locks=16"
#define TINY  "rows=4&lock_rows=1&locks=2" /* is soon split */

static void open_with(const char *tuning, const struct knobs *knobs)
{
    open_actors("mem:?size=4m&clients=8&lease=100", "rcuckoo", tuning, knobs);
}

/* A table that both actors know, with one key: its rows, as B knows them. */
static struct rcuckoo_sub open_one(const char *tuning, uint32_t number, uint32_t value)
{
    open_with(tuning, NULL);
    expect_ok(put_key(&B, number, value));
    meet_table(&A);
    return sub_of(number);
}

/* ---- rows, as a client that holds their locks reads and writes them -------------------------- */

static uint64_t *read_row(const struct rcuckoo_sub *sub, unsigned row)
{
    struct op *op = &B.s->op;
    uint64_t *image = op_buffer(op, BUF_BULK, row_bytes());
    batch_read(&op->batch, sub->rows, rcuckoo_row_at(shape(), row), image, row_bytes());
    expect_ok(batch_flush(&op->batch));
    return image;
}

static void write_entry(const struct rcuckoo_sub *sub, unsigned row, unsigned slot, unsigned tag,
                        const uint64_t *entry)
{
    struct op *op = &B.s->op;
    const struct rcuckoo_shape *s = shape();
    uint64_t item[1 + RCUCKOO_ENTRY_MAX / 8], *image = read_row(sub, row);
    item[0] = rcuckoo_redo_word(row, slot, tag, rcuckoo_version(*rcuckoo_meta(s, image)) + 1);
    memcpy(item + 1, entry, 8 * (size_t)s->entry);
    rcuckoo_row_redo(s, rcuckoo_sub_id(view_of(&B), sub), image, item);
    batch_write(&op->batch, MARK_EARLY, sub->rows, rcuckoo_row_at(s, row), image, row_bytes());
    expect_ok(batch_flush(&op->batch));
}

/* Moves the entry from one of its rows to the other, as an insert does along its path. */
static void move_key(uint32_t number, unsigned from)
{
    static const uint64_t nothing[RCUCKOO_ENTRY_MAX / 8];
    const struct rcuckoo_shape *s = shape();
    struct rcuckoo_key key = key_of(&number);
    struct rcuckoo_sub sub = sub_of(number);
    uint64_t entry[RCUCKOO_ENTRY_MAX / 8], *row = read_row(&sub, key.row[from]);
    unsigned found = rcuckoo_candidates(s, &key, row);
    assert_int_not_equal(found, 0);
    unsigned slot = (unsigned)__builtin_ctz(found), tag = rcuckoo_tags(s, row)[slot];
    memcpy(entry, rcuckoo_slot(s, row, slot), 8 * (size_t)s->entry);
    unsigned room = rcuckoo_row_free(s, read_row(&sub, key.row[!from]));
    assert_true(room < RCUCKOO_SLOTS);
    write_entry(&sub, key.row[!from], room, tag, entry);
    write_entry(&sub, key.row[from], slot, RCUCKOO_EMPTY, nothing);
}

/* In which of its rows is the key? */
static unsigned side_of(uint32_t number)
{
    struct rcuckoo_key key = key_of(&number);
    struct rcuckoo_sub sub = sub_of(number);
    return rcuckoo_candidates(shape(), &key, read_row(&sub, key.row[0])) ? 0 : 1;
}

/* A table with a key that is to be moved. It is in that row, and its rows are neighbours or not. */
static uint32_t open_to_move(bool neighbours, unsigned side)
{
    (void)open_one(SMALL, 1, 1);
    for (uint32_t number = 1000;; number++) {
        struct rcuckoo_key key = key_of(&number);
        unsigned a = key.row[0], b = key.row[1];
        if ((a + 1 == b || b + 1 == a) != neighbours)
            continue;
        expect_ok(put_key(&B, number, number));
        if (side_of(number) != side)
            move_key(number, !side);
        assert_int_equal(side_of(number), side);
        return number;
    }
}

/* ---- a get while its key is moved ------------------------------------------------------------ */

/* A's gets find a key so often that they leave out the second look. */
static void leave_out_the_second_look(void)
{
    for (unsigned i = 0; i < 64; i++)
        expect_found(&A, 1, 1);
    assert_true(view_of(&A)->hits >= 64);
}

/* Between A's READs of its rows, the key is moved from the second to the first. */
static void move_between_the_reads(uint32_t moved)
{
    struct place read = {A_READ, .side = AFTER, .len = row_bytes(), .least = 2};
    actor_reach(&A, read, get_key, moved, 0);
    move_key(moved, 1);
    expect_ok(actor_go_on(&A));
    assert_int_equal(A.found, moved);
}

TEST(a_miss_is_validated)
{
    move_between_the_reads(open_to_move(false, 1));
}

TEST(a_miss_is_validated_by_a_second_look_that_comes_later)
{
    uint32_t moved = open_to_move(false, 1);
    leave_out_the_second_look();
    move_between_the_reads(moved);
}

/* The same, and before the second look the key is moved back, so that the first row has the same
 * entries again. */
TEST(a_miss_is_not_validated_by_a_row_that_is_as_before)
{
    uint32_t moved = open_to_move(false, 1);
    leave_out_the_second_look();
    struct place read = {A_READ, .side = AFTER, .len = row_bytes(), .least = 2};
    struct rcuckoo_sub sub = sub_of(moved);
    uint64_t row = rcuckoo_row_at(shape(), key_of(&moved).row[0]);
    struct place second = {A_READ, .side = BEFORE, .of = sub.rows};
    second.delta = row + row_bytes() - 8;
    second.bytes = 8;
    actor_reach(&A, read, get_key, moved, 0);
    move_key(moved, 1);
    assert_int_equal(actor_go_until(&A, second), STOPPED);
    move_key(moved, 0);
    expect_ok(actor_go_until(&A, NOWHERE));
    assert_int_equal(A.found, moved);
}

/* One READ has both rows: the second as it was before the key was moved there, the first as it was
 * afterwards. */
static void move_within_the_read(uint32_t moved)
{
    struct rcuckoo_sub sub = sub_of(moved);
    struct rcuckoo_key key = key_of(&moved);
    struct place read = {A_READ, .side = AFTER, .len = 2 * row_bytes()};
    actor_reach(&A, read, get_key, moved, 0);
    move_key(moved, 0);
    uint64_t *first = (uint64_t *)A.verb->buf + (key.row[0] < key.row[1] ? 0 : shape()->row);
    memcpy(first, read_row(&sub, key.row[0]), row_bytes());
    expect_ok(actor_go_on(&A));
    assert_int_equal(A.found, moved);
}

TEST(a_miss_in_one_read_is_validated_by_both_rows)
{
    move_within_the_read(open_to_move(true, 0));
}

TEST(a_miss_in_one_read_is_validated_by_both_rows_later)
{
    uint32_t moved = open_to_move(true, 0);
    leave_out_the_second_look();
    move_within_the_read(moved);
}

/* A hit is the key's at the instant when its row was read (RCUCKOO-C3), also if the key leaves that
 * row before the operation ends. */
TEST(a_hit_needs_no_second_look)
{
    uint32_t moved = open_to_move(false, 0);
    leave_out_the_second_look();
    struct place read = {A_READ, .side = AFTER, .len = row_bytes(), .least = 2};
    actor_reach(&A, read, get_key, moved, 0);
    move_key(moved, 0);
    uint64_t looks = view_of(&A)->hits;
    expect_ok(actor_go_on(&A));
    assert_int_equal(A.found, moved);
    assert_int_equal(view_of(&A)->hits, looks + 1);
}

/* ---- an insert that moves keys --------------------------------------------------------------- */

/* Between any two verbs of the batch that writes the rows of a path, another client reads all
 * keys. */
TEST(a_key_that_is_moved_is_always_there)
{
    const struct place path = {.side = AFTER, .is = writes_a_path, .each = true};
    unsigned looks = 0;
    (void)open_one(SMALL, 0, 0);
    for (uint32_t key = 1; key < 460; key++) {
        int rc = actor_begin(&B, path, put_key, key, key);
        for (; rc == STOPPED; rc = actor_go_on(&B), looks++)
            expect_keys(&A, 0, key);
        expect_ok(rc);
    }
    assert_true(looks > 0);
    expect_keys(&B, 0, 460);
}

/* A row that a key came to and left again is not the row that it was: RCUCKOO-C4 relies on that. */
TEST(a_row_that_was_written_has_another_meta_word)
{
    uint32_t key = 5;
    struct rcuckoo_sub sub = open_one(SMALL, key, 1);
    unsigned row = key_of(&key).row[side_of(key)];
    uint64_t before = *rcuckoo_meta(shape(), read_row(&sub, row));
    expect_ok(put_key(&B, key, 2));
    expect_ok(put_key(&B, key, 1));
    uint64_t after = *rcuckoo_meta(shape(), read_row(&sub, row));
    assert_int_equal(rcuckoo_version(after), rcuckoo_version(before) + 2);
}

/* A session may read rows by an address where another subtable has its rows now. */
TEST(a_row_belongs_to_its_subtable)
{
    uint32_t key = 5;
    struct rcuckoo_sub sub = open_one(SMALL, key, 1);
    unsigned row = key_of(&key).row[side_of(key)];
    uint64_t id = rcuckoo_sub_id(view_of(&B), &sub), *image = read_row(&sub, row);
    assert_true(rcuckoo_row_whole(shape(), id, row, image));
    for (unsigned half = 0; half < 2; half++) {
        id = rcuckoo_child_id(view_of(&B), &sub, half);
        assert_false(rcuckoo_row_whole(shape(), id, row, image));
    }
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
    asked += old_len == sizeof *counter;
    memcpy(counter, old, old_len < sizeof *counter ? old_len : sizeof *counter);
    counter->count++;
    *value = counter;
    *value_len = sizeof *counter;
    return FAR_STORE;
}

static int count_k(struct actor *a, uint64_t key, uint64_t value)
{
    static struct counter c;
    (void)key;
    (void)value;
    return far_modify(a->s, a->t, "k", 1, count_on, &c);
}

static bool asked_once(const struct fab_req *req, unsigned verb)
{
    (void)req;
    (void)verb;
    return asked == 1;
}

/* The user has answered once. Before the locks are taken again, another client changes the key. */
TEST(a_modify_stores_its_last_answer)
{
    struct counter c = {0};
    size_t len = 0;
    asked = 0;
    open_with(SMALL, NULL);
    expect_ok(far_put(B.s, B.t, "k", 1, &c, sizeof c));
    struct place locks = {A_MCAS, .side = BEFORE_REQUEST, .is = asked_once};
    actor_reach(&A, locks, count_k, 0, 0);
    c.count = 10;
    expect_ok(far_put(B.s, B.t, "k", 1, &c, sizeof c));
    expect_ok(actor_go_on(&A));
    assert_int_equal(asked, 2);
    expect_ok(far_get(B.s, B.t, "k", 1, &c, sizeof c, &len));
    assert_int_equal(c.count, 11);
}

/* A's last answer needed a block, so A takes memory for this one before it is asked. But the rows
 * are locked. While A rests, it has nothing that a sweep would not find. */
TEST(a_modify_has_no_memory_while_it_rests)
{
    struct counter c = {0};
    struct audit audit;
    open_with("rows=2&lock_rows=16", NULL); /* all rows have one lock */
    expect_ok(far_put(A.s, A.t, "k", 1, &c, sizeof c));
    expect_ok(count_k(&A, 0, 0));
    meet_table(&B);
    gaddr anchor = sub_of(1).part.anchor;
    store_rig_set(&rig, anchor, rcuckoo_word_at(0), 1);
    actor_reach(&A, (struct place){.waits = true, .each = true}, count_k, 0, 0);
    while (op_in_flight(&A.s->op))
        assert_int_equal(actor_go_on(&A), STOPPED);
    audit_both(&audit);
    assert_int_equal(audit.bytes[AUDIT_NOWHERE], 0);
    store_rig_set(&rig, anchor, rcuckoo_word_at(0), 0);
    expect_ok(actor_go_until(&A, NOWHERE));
    expect_sound_table();
}

/* ---- rows that are torn ---------------------------------------------------------------------- */

/* A puts 2 for the key, which was 1, and dies in the middle of the row. Returns its slot. */
static unsigned die_in_a_put(uint32_t key)
{
    expect_ok(put_key(&B, key, 1));
    expect_found(&A, key, 1);
    actor_reach(&A, (struct place){A_WRITE, .len = row_bytes()}, put_key, key, 2);
    actor_tear(&A);
    unsigned slot = A.s->client.slot;
    assert_int_equal(actor_kill(&A), FAR_UNKNOWN);
    return slot;
}

TEST(a_get_waits_for_the_recovery_of_a_dead_writer)
{
    open_with(SMALL, NULL);
    (void)die_in_a_put(77);
    expect_found(&B, 77, 2);
    expect_sound_table();
}

/* A's READ of the row shows the entry with the value of another one that was there before. */
TEST(a_get_returns_nothing_of_a_torn_row)
{
    const uint32_t value = 0x7a11e5u;
    char *hit;
    open_with(SMALL, NULL);
    expect_ok(put_key(&B, 5, value));
    actor_reach(&A, (struct place){A_READ, .side = AFTER, .each = true}, get_key, 5, 0);
    while (!(hit = memmem(A.verb->buf, A.verb->len, &value, sizeof value)))
        assert_int_equal(actor_go_on(&A), STOPPED);
    memset(hit, 0, sizeof value);
    expect_ok(actor_go_until(&A, NOWHERE));
    assert_int_equal(A.found, value);
}

/* ---- recoveries ------------------------------------------------------------------------------ */

/* Verbs of the subtable's locks. */
static struct place lock_place(const struct rcuckoo_sub *sub, enum verb_kind kind,
                               enum stop_side side)
{
    struct place locks = anchor_place(sub, kind, rcuckoo_word_at(0), side);
    locks.bytes = 8ull * shape()->words;
    return locks;
}

/* C recovers A, and dies when it has unlocked. At that instant the row is whole. */
TEST(a_redo_is_not_repeated_behind_its_unlock)
{
    const uint32_t key = 77;
    open_with(SMALL, NULL);
    actor_join(&C);
    meet_table(&C);
    unsigned dead = die_in_a_put(key);
    struct rcuckoo_sub sub = sub_of(key);
    struct place unlock = lock_place(&sub, A_FAA, AFTER);
    unlock.is = is_last_faa;
    actor_reach(&C, unlock, recover_slot, dead, 0);
    expect_found(&B, key, 2);
    unsigned recoverer = kill_actor(&C);
    expect_ok(put_key(&B, key, 3));
    expect_ok(recover_slot(&B, recoverer, 0));
    expect_ok(recover_slot(&B, dead, 0));
    expect_found(&B, key, 3);
    expect_sound_table();
}

/* Two dead clients: A holds the locks, with a row half written, C wanted them. D has begun to
 * recover A, so that A is fenced, and has died before it wrote a row. */
TEST(locks_of_a_half_written_row_are_kept)
{
    const uint32_t key = 77;
    open_with(SMALL, NULL);
    actor_join(&C);
    actor_join(&D);
    meet_table(&C);
    meet_table(&D);
    unsigned holder = die_in_a_put(key);
    struct rcuckoo_sub sub = sub_of(key);
    unsigned row = key_of(&key).row[0];
    uint64_t at = rcuckoo_word_at(rcuckoo_lock_word(shape(), row));
    uint64_t bit = rcuckoo_lock_bit(shape(), row);
    assert_true(store_rig_get(&rig, sub.part.anchor, at) & bit);
    struct place write = {A_WRITE, .side = BEFORE_REQUEST, .len = row_bytes()};
    actor_reach(&D, write, recover_slot, holder, 0);
    unsigned recoverer = kill_actor(&D);
    actor_reach(&C, lock_place(&sub, A_MCAS, AFTER_REQUEST), put_key, key, 4);
    unsigned other = kill_actor(&C);
    assert_int_equal(recover_slot(&B, other, 0), FAR_TIMEOUT); /* after the holder's redo */
    assert_true(store_rig_get(&rig, sub.part.anchor, at) & bit);
    expect_ok(recover_slot(&B, recoverer, 0));
    expect_ok(recover_slot(&B, holder, 0));
    expect_ok(recover_slot(&B, other, 0));
    assert_int_equal(store_rig_get(&rig, sub.part.anchor, at), 0);
    expect_found(&B, key, 2);
}

/* ---- an iteration while a key is moved ------------------------------------------------------- */
static char returned[4096];
static uint64_t cursor;

/* What the call returns is a->found bytes. */
static int iterate(struct actor *a, uint64_t key, uint64_t value)
{
    size_t len = 0;
    (void)key;
    (void)value;
    int rc = far_iterate(a->s, a->t, &cursor, 0, returned, sizeof returned, &len);
    a->found = len;
    return rc;
}

/* A comes to the two READs of all rows that an iteration makes. */
static void reach_snapshot(enum stop_side side)
{
    uint32_t rows = (uint32_t)rcuckoo_rows_bytes(shape());
    cursor = 0;
    actor_reach(&A, (struct place){A_READ, .side = side, .len = rows, .least = 2}, iterate, 0, 0);
}

/* A key is in its first row, and A has read all rows once. */
static uint32_t open_snapshot(void)
{
    uint32_t moved = open_to_move(false, 0);
    reach_snapshot(AFTER);
    return moved;
}

/* Moves the key, and lets A's last READ find the row that it has left as it is now. */
static void leave_row(uint32_t moved, unsigned from)
{
    unsigned row = key_of(&moved).row[from];
    struct rcuckoo_sub sub = sub_of(moved);
    char *image = A.req->verbs[A.next - 1].buf;
    move_key(moved, from);
    memcpy(image + rcuckoo_row_at(shape(), row), read_row(&sub, row), row_bytes());
}

static void expect_returned_once(uint32_t key)
{
    struct far_entry e;
    size_t pos = 0;
    unsigned seen = 0;
    expect_ok(actor_go_on(&A));
    while (far_entry_next(returned, A.found, &pos, &e))
        seen += memcmp(e.key, &key, 4) == 0 && memcmp(e.value, &key, 4) == 0;
    assert_int_equal(seen, 1);
}

TEST(an_iteration_returns_a_key_once_if_it_is_moved)
{
    uint32_t moved = open_snapshot();
    move_key(moved, 0);
    expect_returned_once(moved);
}

TEST(an_iteration_finds_a_key_that_is_moved)
{
    uint32_t moved = open_snapshot();
    assert_true(actor_step(&A));
    leave_row(moved, 0);
    expect_returned_once(moved);
}

TEST(an_iteration_finds_a_key_that_is_moved_twice)
{
    uint32_t moved = open_snapshot();
    leave_row(moved, 0);
    assert_true(actor_step(&A));
    leave_row(moved, 1);
    expect_returned_once(moved);
}

TEST(an_iteration_returns_nothing_of_a_torn_row)
{
    uint32_t torn = open_snapshot();
    const struct rcuckoo_shape *s = shape();
    assert_true(actor_step(&A));
    char *image = A.req->verbs[A.next - 1].buf;
    uint64_t *row = (uint64_t *)(image + rcuckoo_row_at(s, key_of(&torn).row[0]));
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++)
        rcuckoo_slot(s, row, slot)[s->value_at] ^= 1;
    expect_returned_once(torn);
}

/* Before A's first snapshot, B adds keys until the subtable is split. The call finds nothing but
 * that, and may read no more: that is not the end. */
TEST(an_iteration_that_begins_at_a_split_is_not_over)
{
    enum { BEFORE_SPLIT = 20 };
    struct knobs knobs = pool_knobs_default;
    bool seen[BEFORE_SPLIT] = {false};
    uint32_t key = BEFORE_SPLIT;
    knobs.iterate_parts = 1;
    open_with(SMALL, &knobs);
    put_keys(&B, 1, BEFORE_SPLIT);
    expect_ok(get_key(&A, 1, 0));
    reach_snapshot(BEFORE_REQUEST);
    for (unsigned depth = sub_of(1).part.depth; sub_of(1).part.depth == depth; key++)
        expect_ok(put_key(&B, key, key));
    int rc = actor_go_on(&A);
    for (;; rc = iterate(&A, 0, 0)) {
        struct far_entry e;
        expect_ok(rc);
        for (size_t pos = 0; far_entry_next(returned, A.found, &pos, &e);) {
            memcpy(&key, e.key, sizeof key);
            if (key < BEFORE_SPLIT)
                seen[key] = true;
        }
        if (cursor == 0)
            break;
    }
    for (key = 1; key < BEFORE_SPLIT; key++)
        assert_true(seen[key]);
}

/* ---- damage ---------------------------------------------------------------------------------- */
TEST(a_damaged_row_is_not_written)
{
    uint32_t key = 5;
    struct rcuckoo_sub sub = open_one(SMALL, key, 1);
    uint64_t at = rcuckoo_row_at(shape(), key_of(&key).row[0]) + 8;
    uint64_t word = store_rig_get(&rig, sub.rows, at);
    store_rig_set(&rig, sub.rows, at, word ^ 1);
    assert_int_equal(put_key(&B, key, 2), FAR_CORRUPT);
    assert_int_equal(get_key(&A, key + 1, 0), FAR_NOT_FOUND);
    store_rig_set(&rig, sub.rows, at, word);
    expect_found(&A, key, 1);
    expect_ok(put_key(&B, key, 2)); /* the locks were released */
}

TEST(a_damaged_block_is_not_a_miss)
{
    static const char key[] = "a key that is not inline";
    char value[100] = {0};
    size_t len = 0;
    struct rcuckoo_key k;
    struct rcuckoo_sub sub;
    open_with(SMALL, NULL);
    expect_ok(far_put(B.s, B.t, key, sizeof key, value, sizeof value));
    rcuckoo_key_set(view_of(&B), (struct slice){key, sizeof key}, &k);
    expect_ok(rcuckoo_find(&B.s->op, view_of(&B), k.hash, &sub));
    for (unsigned i = 0; i < 2; i++) {
        uint64_t *row = read_row(&sub, k.row[i]);
        unsigned found = rcuckoo_candidates(shape(), &k, row);
        if (found == 0)
            continue;
        gaddr block =
            pointer_gaddr(rcuckoo_slot_pointer(shape(), row, (unsigned)__builtin_ctz(found)));
        store_rig_set(&rig, block, 64, store_rig_get(&rig, block, 64) ^ 1);
    }
    assert_int_equal(far_get(A.s, A.t, key, sizeof key, value, sizeof value, &len), FAR_CORRUPT);
}

/* ---- locks and splits ------------------------------------------------------------------------ */
TEST(rows_may_share_a_lock)
{
    open_with("rows=4&lock_rows=1&locks=1&words=1", NULL);
    put_keys(&B, 0, 10);
}

TEST(keys_that_no_split_separates_fill_the_table)
{
    struct knobs knobs = pool_knobs_default;
    knobs.hash_mask = 0;
    open_with(SMALL, &knobs);
    put_keys(&B, 0, 2 * RCUCKOO_SLOTS);
    assert_int_equal(put_key(&B, 2 * RCUCKOO_SLOTS, 0), FAR_TABLE_FULL);
    assert_int_equal(view_of(&B)->base.grown, 0);
    expect_sound_table();
}

/* From B's CAS of `forward` on, C changes a key behind each verb, and A reads it. */
TEST(a_get_follows_a_split_at_once)
{
    uint32_t looks = 1000;
    struct rcuckoo_sub sub = open_one(TINY, 0, 0);
    actor_join(&C);
    uint64_t forward = offsetof(struct rcuckoo_anchor, forward);
    put_until(&B, anchor_place(&sub, A_CAS, forward, AFTER), 1);
    do {
        expect_ok(put_key(&C, 0, ++looks));
        expect_found(&A, 0, looks);
    } while (actor_step(&B));
    expect_ok(actor_go_on(&B));
}

/* A sets the moved bits. Its CAS of `forward` arrives late, and then A is dead: C has read the
 * anchor, and is about to take the closer's place. */
TEST(a_subtable_that_was_split_is_not_opened)
{
    const uint64_t forward = offsetof(struct rcuckoo_anchor, forward);
    const uint64_t closer = offsetof(struct rcuckoo_anchor, closer);
    struct rcuckoo_sub sub = open_one(TINY, 0, 0);
    actor_join(&C);
    actor_join(&D);
    expect_ok(get_key(&C, 0, 0));
    put_until(&A, anchor_place(&sub, A_CAS, forward, BEFORE), 1);
    uint64_t late = A.verb->swap;
    (void)kill_actor(&A);
    actor_reach(&C, anchor_place(&sub, A_CAS, closer, BEFORE_REQUEST), put_key, 0, 7);
    puppet_renew_lease(&B.s->client); /* time has passed until C took A for dead */
    store_rig_set(&rig, sub.part.anchor, forward, late);
    expect_ok(actor_go_on(&C));
    expect_found(&D, 0, 7); /* it begins with what the anchor says now */
    expect_sound_table();
}

/* A client has closed the subtable, set the moved bits, and died. */
TEST(the_moved_bits_of_a_dead_closer_are_removed)
{
    const uint32_t key = 5;
    struct rcuckoo_sub sub = open_one(SMALL, key, 1);
    const struct rcuckoo_shape *s = shape();
    store_rig_set(&rig, sub.part.anchor, offsetof(struct rcuckoo_anchor, closer),
                  client_owner_word(&A.s->client));
    for (unsigned i = 0; i < s->words; i++)
        store_rig_set(&rig, sub.part.anchor, rcuckoo_word_at(i), RCUCKOO_CLOSED);
    for (unsigned i = 0; i < s->rows; i++) {
        uint64_t at = rcuckoo_row_at(s, i + 1) - 8;
        store_rig_set(&rig, sub.rows, at, store_rig_get(&rig, sub.rows, at) | RCUCKOO_MOVED);
    }
    (void)kill_actor(&A);
    expect_ok(get_key(&B, key, 0)); /* the moved bits alone say nothing */
    expect_ok(put_key(&B, key, 2));
    for (unsigned i = 0; i < s->rows; i++)
        assert_false(store_rig_get(&rig, sub.rows, rcuckoo_row_at(s, i + 1) - 8) & RCUCKOO_MOVED);
    expect_sound_table();
}

/* A has allocated the children, and is about to close the subtable: B splits it first. */
TEST(children_that_come_too_late_are_not_lost)
{
    struct rcuckoo_sub sub = open_one(TINY, 0, 0);
    uint64_t closer = offsetof(struct rcuckoo_anchor, closer);
    put_until(&A, anchor_place(&sub, A_CAS, closer, BEFORE_REQUEST), 1);
    for (uint32_t more = 1000; view_of(&B)->base.grown == 0; more++)
        expect_ok(put_key(&B, more, 1));
    expect_ok(actor_go_on(&A));
    assert_true(puppet_lost_bytes(&A.s->client) == 0);
    expect_sound_table();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_miss_is_validated),
        cmocka_unit_test(a_miss_is_validated_by_a_second_look_that_comes_later),
        cmocka_unit_test(a_miss_is_not_validated_by_a_row_that_is_as_before),
        cmocka_unit_test(a_miss_in_one_read_is_validated_by_both_rows),
        cmocka_unit_test(a_miss_in_one_read_is_validated_by_both_rows_later),
        cmocka_unit_test(a_hit_needs_no_second_look),
        cmocka_unit_test(a_key_that_is_moved_is_always_there),
        cmocka_unit_test(a_row_that_was_written_has_another_meta_word),
        cmocka_unit_test(a_row_belongs_to_its_subtable),
        cmocka_unit_test(a_modify_stores_its_last_answer),
        cmocka_unit_test(a_modify_has_no_memory_while_it_rests),
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
    return cmocka_run_group_tests(tests, NULL, close_actors);
}
