/* Interleavings that once broke RCuckoo: requests stop halfway or are torn, and other sessions come
 * between two verbs of one, as docs/fabric.md allows. */
#include "support/rcuckoo_rig.h"

static struct rcuckoo_sub sub; /* the first one */

static void open_with(const char *uri, const char *tuning)
{
    open_actors(uri, "rcuckoo", tuning, NULL);
    meet_table(&B);
    sub = sub_of(1);
}

/* All rows of the table have one lock. */
static void open_uri(const char *uri)
{
    open_with(uri, "rows=2&lock_rows=16");
}
static void open_table(void)
{
    open_uri("mem:?size=4m&clients=8");
}

static uint64_t lock_word(void)
{
    return store_rig_get(&rig, sub.part.anchor, rcuckoo_word_at(0));
}
static void set_lock_word(uint64_t word)
{
    store_rig_set(&rig, sub.part.anchor, rcuckoo_word_at(0), word);
}

/* ---- sessions that die in the middle --------------------------------------------------------- */

static bool unlocks(const struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind == FAB_FAA)
            return true;
    return false;
}

/* The first verb of a request writes the journal. */
static bool journals(const struct fab_req *req, unsigned verb)
{
    return verb == 0 && req->verbs[0].off < gaddr_offset(sub.part.anchor);
}
static bool locks_rows(const struct fab_req *req, unsigned verb)
{
    return journals(req, verb) && !unlocks(req);
}
static bool writes_rows(const struct fab_req *req, unsigned verb)
{
    return journals(req, verb) && unlocks(req);
}

/* The operation fails: of the request that locks, or of the one that writes, only the first `done`
 * verbs have happened. */
static int fail_halfway(struct actor *a, deed *act, uint32_t key, bool writes, unsigned done)
{
    struct place place = {A_WRITE, .then = done, .least = 2,
                          .is = writes ? writes_rows : locks_rows};
    actor_reach(a, place, act, key, key);
    return actor_answer(a, FAR_TIMEOUT);
}
static void put_fails(struct actor *a, uint32_t key, bool writes, unsigned done)
{
    assert_int_not_equal(fail_halfway(a, put_key, key, writes, done), FAR_OK);
}

/* C has written the intent to lock, and died. Returns its slot. */
static unsigned die_with_an_intent(void)
{
    if (!C.s)
        actor_join(&C);
    put_fails(&C, 7, false, 1);
    return kill_actor(&C);
}

/* Readers that have seen the row before tell by its version that it was written. */
TEST(a_row_that_is_redone_has_the_version_of_its_change)
{
    open_table();
    expect_ok(put_key(&B, 1, 1));
    const struct rcuckoo_shape *s = shape();
    uint64_t id = rcuckoo_sub_id(view_of(&B), &sub), row[64], item[64] = {0};
    assert_true(s->row <= 64 && s->entry < 64);
    rcuckoo_row_init(s, id, 1, row);
    for (unsigned version = 1; version < 70000; version += 9999) {
        item[0] = rcuckoo_redo_word(1, 2, 0, version & UINT16_MAX);
        rcuckoo_row_redo(s, id, row, item);
        assert_int_equal(rcuckoo_version(*rcuckoo_meta(s, row)), version & UINT16_MAX);
        assert_true(rcuckoo_row_whole(s, id, 1, row));
    }
}

/* A recovers a client that held the lock: `done` is in the line, and the unlock has not happened
 * yet. Now B recovers a client whose line names the lock, too. */
TEST(a_redo_unlocks_once)
{
    open_table();
    actor_join(&C);
    actor_join(&D);
    unsigned waiting = die_with_an_intent();
    put_fails(&D, 8, true, 2); /* the redo and the row */
    assert_int_equal(lock_word(), 1);
    unsigned dead = kill_actor(&D);
    actor_reach(&A, (struct place){.kind = A_FAA}, recover_slot, dead, 0);
    printf("    the other recovery: %s\n", far_strerror(recover_slot(&B, waiting, 0)));
    printf("    recovery: %s\n", far_strerror(actor_go_on(&A)));
    expect_ok(recover_slot(&B, waiting, 0));
    assert_true(lock_word() == 0);
    expect_ok(put_key(&A, 9, 9));
}

/* RCUCKOO-C6: C's request stops when it has unlocked, and another client changes the row. */
TEST(a_change_that_was_unlocked_is_not_made_again)
{
    open_table();
    actor_join(&C);
    expect_ok(put_key(&B, 7, 1));
    actor_reach(&C, (struct place){A_FAA, .side = AFTER, .is = is_last_faa}, put_key, 7, 2);
    assert_int_equal(actor_answer(&C, FAR_TIMEOUT), FAR_UNKNOWN);
    unsigned dead = kill_actor(&C);
    assert_true(lock_word() == 0);
    expect_ok(put_key(&B, 7, 3));
    expect_ok(recover_slot(&B, dead, 0));
    expect_found(&B, 7, 3);
}

/* ---- a lock that is released without a change ------------------------------------------------ */

/* The session's next line names locks of another table. */
static void change_another_table(far_session *s)
{
    uint32_t key = 1;
    far_table *other = NULL;
    expect_ok(far_table_create(s, "other", "rcuckoo", NULL, &other));
    expect_ok(far_put(s, other, &key, sizeof key, &key, sizeof key));
}

/* RCUCKOO-C5: C's unlock does not happen, and C is not told. The line still says so when C has gone
 * on and died. */
TEST(a_line_stays_until_its_locks_are_released)
{
    open_table();
    actor_join(&C);
    expect_ok(put_key(&C, 7, 1));
    actor_reach(&C, (struct place){A_FAA, .side = BEFORE_REQUEST}, insert_key, 7, 7);
    assert_int_not_equal(actor_answer(&C, FAR_TIMEOUT), FAR_OK);
    assert_true(lock_word() == 1);
    change_another_table(C.s);
    unsigned dead = kill_actor(&C);
    expect_ok(recover_slot(&A, dead, 0));
    assert_true(lock_word() == 0);
}

/* ---- a client that dies while its line is judged --------------------------------------------- */
static unsigned recovered; /* the slot */

static bool is_line_of_another(const struct fab_req *req, unsigned verb)
{
    uint64_t lines = journal_off(rig.pool->pool.clients);
    return req->verbs[verb].off != lines + (uint64_t)recovered * JOURNAL_BYTES;
}

/* The recovery of that slot reads the lines of others. */
static struct place visit(enum stop_side side)
{
    return (struct place){A_READ, .side = side, .len = JOURNAL_BYTES, .is = is_line_of_another,
                          .each = true};
}

/* D is about to write its redo and its row. A has read D's line, and has not read the registry yet,
 * when D writes both and is shut out. */
TEST(a_lock_is_not_released_under_a_redo_that_was_not_seen)
{
    open_table();
    actor_join(&C);
    actor_join(&D);
    recovered = die_with_an_intent();
    actor_reach(&D, (struct place){A_FAA, .side = BEFORE_REQUEST}, put_key, 8, 8);
    actor_reach(&A, visit(AFTER_REQUEST), recover_slot, recovered, 0);
    assert_true(actor_step(&D) && actor_step(&D));
    store_rig_set(&rig, NODE0, slot_delta(D.s->client.slot),
                  D.s->client.incarnation | CLIENT_FENCED);
    printf("    recovery: %s\n", far_strerror(actor_go_until(&A, NOWHERE)));
    assert_int_not_equal(actor_answer(&D, FAR_TIMEOUT), FAR_OK);
    unsigned dead = kill_actor(&D);
    assert_true((lock_word() & 1) == 1); /* the redo is not done: its recovery releases it */
    expect_ok(recover_slot(&A, recovered, 0));
    expect_ok(recover_slot(&B, dead, 0));
    assert_true(lock_word() == 0);
    expect_ok(put_key(&A, 9, 9));
}

/* ---- a line that was left by a client that goes on ------------------------------------------- */

/* Time passes, and A, B and D go on. */
static void drive(uint64_t ms)
{
    struct actor *all[] = {&A, &B, &D};
    store_rig_pass(&rig, ms * 1000000);
    for (unsigned i = 0; i < 12; i++)
        for (unsigned k = 0; k < 3; k++) {
            client_hurry_epoch(&all[k]->s->client);
            (void)get_key(all[k], 1, 0);
        }
}

TEST(a_lock_is_not_released_under_a_redo_that_was_left)
{
    open_uri("mem:?size=4m&clients=8&lease=1000");
    actor_join(&C);
    actor_join(&D);
    put_fails(&D, 8, true, 2); /* it recovers that itself, when its verbs cannot arrive any more */
    drive(0);
    drive(300);
    drive(300);
    expect_ok(get_key(&D, 8, 0));
    assert_true(lock_word() == 0);
    put_fails(&D, 9, true, 2); /* and again: the next attempt is a lease after the last one */
    unsigned waiting = die_with_an_intent();
    int rc = FAR_TIMEOUT;
    for (unsigned i = 0; i < 8 && rc == FAR_TIMEOUT; i++) {
        rc = recover_slot(&A, waiting, 0);
        printf("    recovery: %s, lock word %llx, %u undone\n", far_strerror(rc),
               (unsigned long long)lock_word(), puppet_undone(&D.s->client));
        drive(110);
    }
    for (unsigned i = 0; i < 12; i++)
        drive(110);
    assert_int_equal(puppet_undone(&D.s->client), 0);
    assert_true(lock_word() == 0);
    expect_ok(put_key(&A, 10, 10));
}

/* ---- a row that is written again and again --------------------------------------------------- */

static bool reads_rows(const struct fab_req *req, unsigned verb)
{
    const struct fab_verb *v = &req->verbs[verb];
    return v->kind == FAB_READ && (v->len == row_bytes() || v->len == 2 * row_bytes());
}

/* A's READ of rows happens once more, behind a change of the key. A finds all of the rows as they
 * were before that, but the meta words as they are then; or the other way round (FABRIC-F1). */
static void tear_read(bool late, uint32_t value)
{
    static uint64_t other[4096];
    uint64_t *image = A.verb->buf;
    size_t words = A.verb->len / 8, row = shape()->row;
    memcpy(other, image, 8 * words);
    expect_ok(put_key(&B, 8, value));
    A.next--;
    assert_true(actor_step(&A));
    for (size_t k = 0; k < words; k++)
        if ((k % row == row - 1) == late)
            image[k] = other[k];
}

/* Of two READs that are to find the same, the first is torn by one change, and the second by the
 * next, which takes it back. */
TEST(a_row_that_changes_is_not_damaged)
{
    unsigned looks = 0;
    bool late = false;
    open_table();
    expect_ok(put_key(&B, 8, 2));
    meet_table(&A);
    struct place rows = {A_READ, .side = AFTER, .is = reads_rows, .each = true};
    int rc = actor_begin(&A, rows, get_key, 8, 0);
    for (; rc == STOPPED; rc = looks < 40 ? actor_go_on(&A) : actor_go_until(&A, NOWHERE)) {
        for (unsigned i = late = 0; &A.req->verbs[i] < A.verb; i++)
            late |= reads_rows(A.req, i);
        tear_read(late, 1 + looks++ % 2);
    }
    printf("    get: %s, %u looks\n", far_strerror(rc), looks);
    expect_ok(rc);
}

/* ---- entries that differ only in their lengths ----------------------------------------------- */
TEST(an_entry_of_another_length_is_another_one)
{
    uint64_t tuning[RCUCKOO_TUNINGS] = {2, 8, 8, 230, 1, 1, 1, 1}, rows[2][64] = {0};
    struct rcuckoo_shape s = {0};
    assert_true(rcuckoo_shape_set(&s, tuning));
    struct rcuckoo_snapshot snap = {.before = rows[0], .rows = rows[1]};
    /* The key of one zero moves away, that of two takes its slot. */
    for (unsigned i = 0; i < 2; i++) {
        struct rcuckoo_entry e = {RCUCKOO_INLINE, 1 + i, 0};
        rcuckoo_tags(&s, rows[i])[3] = rcuckoo_tag(&s, e);
        *rcuckoo_meta(&s, rows[i]) = rcuckoo_meta_of(&s, 7, 0, rows[i], i);
    }
    assert_non_null(rcuckoo_snapshot_gone(&s, &snap, 0, 3));
}

/* ---- damage ---------------------------------------------------------------------------------- */
TEST(the_directory_is_only_advice)
{
    open_table();
    gaddr root = view_of(&B)->root;
    store_rig_set(&rig, root, 0, store_rig_get(&rig, root, 0) | 1ull << 30); /* outside the pool */
    put_keys(&B, 0, 40);
}

/* ---- a lock of a living client that a dead one's line names, too ----------------------------- */

/* A holds the lock, and its operation keeps the epoch from going on twice. */
TEST(a_lock_is_not_released_before_two_epochs_have_passed)
{
    uint64_t before = 0, after = 0;
    open_table();
    expect_ok(put_key(&B, 1, 1));
    unsigned waiting = die_with_an_intent();
    for (unsigned i = 0; i < 20; i++) { /* the epoch goes on, and A knows the newest one */
        if (i < 10)
            client_hurry_epoch(&B.s->client);
        expect_ok(get_key(&A, 1, 0));
        expect_ok(get_key(&B, 1, 0));
    }
    actor_reach(&A, (struct place){A_FAA, .side = BEFORE_REQUEST}, put_key, 8, 8);
    expect_ok(client_epoch_now(&B.s->op, &before));
    for (unsigned i = 0; i < 41; i++) {
        (void)recover_slot(&B, waiting, 0);
        client_hurry_epoch(&B.s->client);
        (void)get_key(&B, 1, 0);
    }
    expect_ok(client_epoch_now(&B.s->op, &after));
    assert_true(before > 0 && after == before + 1);
    assert_true(lock_word() & 1);
    expect_ok(actor_go_on(&A));
}

static uint64_t since(void)
{
    return store_rig_get(&rig, sub.part.anchor, offsetof(struct rcuckoo_anchor, since));
}

/* As far as those let it that are dead, or stopped. */
static void let_the_epoch_go_on(void)
{
    struct actor *all[] = {&A, &B, &D};
    for (unsigned i = 0; i < 60; i++) {
        struct actor *a = all[i % 3];
        if (a->s && (!a->fiber || fiber_finished(a->fiber))) {
            client_hurry_epoch(&a->s->client);
            expect_ok(get_key(a, 6, 0));
        }
    }
}

/* RCUCKOO-C9: A dies when its recovery has cleared R, and C when it has set R again. In between, D
 * takes the lock. The epoch that A noted before says nothing of D. */
TEST(an_epoch_counts_only_for_the_closing_that_it_was_noted_for)
{
    open_table();
    struct place locked = anchor_place(&sub, A_FAA, rcuckoo_word_at(0), BEFORE_REQUEST);
    struct place closes = anchor_place(&sub, A_MCAS, rcuckoo_word_at(0), AFTER_REQUEST);
    struct place clears = closes;
    clears.nth = 2;
    expect_ok(put_key(&B, 6, 6));
    actor_join(&D);
    unsigned waiting = die_with_an_intent();
    let_the_epoch_go_on();
    actor_reach(&D, locked, put_key, 8, 8);
    assert_int_equal(recover_slot(&A, waiting, 0), FAR_TIMEOUT);
    assert_true(since() > 0);
    expect_ok(actor_go_on(&D));
    actor_reach(&A, clears, recover_slot, waiting, 0);
    assert_int_equal(lock_word(), 0);
    let_the_epoch_go_on();
    expect_ok(recover_slot(&B, kill_actor(&A), 0));
    actor_reach(&D, locked, put_key, 9, 9);
    actor_join(&C);
    actor_reach(&C, closes, recover_slot, waiting, 0);
    assert_int_equal(lock_word(), RCUCKOO_REPAIR | 1);
    expect_ok(recover_slot(&B, kill_actor(&C), 0));
    let_the_epoch_go_on();
    (void)recover_slot(&B, waiting, 0);
    assert_int_equal(lock_word(), RCUCKOO_REPAIR | 1);
    expect_ok(actor_go_on(&D));
}

/* RCUCKOO-C9: nobody takes the lock while its holder is looked for. */
TEST(a_recovery_closes_the_words_before_it_reads_lines)
{
    unsigned visits = 0;
    open_table();
    actor_join(&C);
    change_another_table(B.s);  /* it has a line, too */
    put_fails(&C, 7, false, 2); /* the intent and the lock */
    assert_true(lock_word() == 1);
    recovered = kill_actor(&C);
    int rc = actor_begin(&A, visit(BEFORE_REQUEST), recover_slot, recovered, 0);
    for (; rc == STOPPED; rc = actor_go_on(&A), visits++)
        assert_true(lock_word() & RCUCKOO_REPAIR);
    expect_ok(rc);
    assert_true(visits > 0 && lock_word() == 0);
}

/* ---- a dead client that has only named a lock ------------------------------------------------ */
static unsigned looks;        /* at the lock word, by the recovery */
static unsigned looks_closed; /* after R was set */
static bool closed_once;      /* R was set */

/* C is dead and holds nothing, but its spent line names the lock, and so does the one of B, which
 * lives and is idle. Another client holds the lock. A recovers C. The holder releases the lock at
 * that look of A, or that one after R was set; 0: never. */
static int recover_the_idle(unsigned let_go, unsigned let_go_closed)
{
    open_table();
    actor_join(&C);
    expect_ok(put_key(&C, 7, 7));
    expect_ok(put_key(&B, 6, 6));
    unsigned dead = kill_actor(&C);
    set_lock_word(1);
    looks = looks_closed = 0;
    closed_once = false;
    struct place requests = {.side = BEFORE_REQUEST, .each = true};
    struct place look = anchor_place(&sub, A_READ, rcuckoo_word_at(0), BEFORE);
    int rc = actor_begin(&A, requests, recover_slot, dead, 0);
    for (; rc == STOPPED; rc = actor_go_on(&A)) {
        uint64_t word = lock_word();
        closed_once |= (word & RCUCKOO_REPAIR) != 0;
        for (unsigned i = 0; i < A.req->count; i++)
            if (place_is(&look, A.req, i)) {
                looks++;
                looks_closed += closed_once;
            }
        if (word & 1 && ((let_go > 0 && looks == let_go) ||
                         (let_go_closed > 0 && looks_closed == let_go_closed)))
            set_lock_word(word & ~1ull);
    }
    return rc;
}

/* RCUCKOO-C9: what is seen free is not the dead client's. */
TEST(the_death_of_an_idle_client_closes_nothing)
{
    expect_ok(recover_the_idle(3, 0));
    assert_false(closed_once);
    assert_int_equal(looks, 3);
    assert_int_equal(lock_word(), 0);
}

/* The same under R. The line of the idle client stays as it is. */
TEST(a_recovery_does_not_wait_for_a_lock_that_was_free)
{
    expect_ok(recover_the_idle(0, 3));
    assert_true(closed_once);
    assert_int_equal(looks_closed, 3);
    assert_int_equal(lock_word(), 0);
}

/* The holder was slow, so A gave up and left R. A lease of the rig is a minute. */
static void expect_soon_open_again(void)
{
    assert_int_equal(lock_word(), RCUCKOO_REPAIR | 1);
    set_lock_word(RCUCKOO_REPAIR);
    uint64_t before = rig.clock->now;
    expect_ok(put_key(&A, 8, 8));
    assert_in_range(rig.clock->now - before, 1, 20000000);
    assert_int_equal(lock_word(), 0);
}

TEST(what_a_recovery_has_closed_is_soon_open_again)
{
    assert_int_equal(recover_the_idle(0, 0), FAR_TIMEOUT);
    expect_soon_open_again();
}

/* The session's line says that it is about to take the first lock. */
static void intend_first(far_session *s, struct rcuckoo_view *view, struct journal *line)
{
    struct rcuckoo_locks locks = {1, {{0, 1}}, {0}};
    expect_ok(journal_take(&s->op, gaddr_node(sub.part.anchor), line));
    rcuckoo_intend(&s->op, view, &sub, line, &locks);
    expect_ok(batch_flush(&s->op.batch));
}

/* The same of a line that an operation of the session itself has left. */
TEST(what_a_session_has_closed_for_itself_is_soon_open_again)
{
    struct journal line;
    open_table();
    expect_ok(put_key(&B, 6, 6)); /* its spent line names the lock */
    assert_int_equal(get_key(&A, 1, 0), FAR_NOT_FOUND);
    intend_first(A.s, view_of(&A), &line);
    journal_give(&A.s->op, &line, false);
    set_lock_word(1);
    assert_int_equal(client_complete(&A.s->op), FAR_TIMEOUT);
    expect_soon_open_again();
}

/* Clients write no such lines. But what a line names is changed, so it must be there. */
TEST(a_line_that_names_no_lock_of_the_table_is_left_alone)
{
    struct rcuckoo_intent intent = {.lock = {{0, 1}}};
    struct journal_entry line = {.data = &intent, .len = rcuckoo_intent_bytes(1), .stamp = 77};
    open_table();
    assert_int_equal(get_key(&A, 1, 0), FAR_NOT_FOUND);
    for (unsigned i = 0; i < 2; i++) { /* a lock word too many; an anchor that is none */
        gaddr at = i ? sub.rows : sub.part.anchor;
        unsigned word = i ? 0 : view_of(&A)->shape.words;
        uint64_t was = store_rig_get(&rig, at, rcuckoo_word_at(word));
        intent.anchor = rcuckoo_intent_anchor(at, 1);
        intent.lock[0].word = word;
        store_rig_set(&rig, at, rcuckoo_word_at(word), 1);
        expect_ok(rcuckoo_recover(&A.s->op, &view_of(&A)->base, &line));
        assert_int_equal(store_rig_get(&rig, at, rcuckoo_word_at(word)), 1);
        store_rig_set(&rig, at, rcuckoo_word_at(word), was);
    }
}

/* ---- a ring in which every operation holds a lock -------------------------------------------- */

enum { DEEPEST_RING = 64 };

static void open_wide(void)
{
    open_with("mem:?size=8m&clients=8", "rows=1024&lock_rows=1");
    actor_join(&C);
    assert_int_equal(get_key(&C, 1, 0), FAR_NOT_FOUND); /* it knows the table */
    assert_int_equal(get_key(&A, 1, 0), FAR_NOT_FOUND);
    assert_true(view_of(&C)->shape.words >= DEEPEST_RING / 32);
}

static void expect_all_free(void)
{
    for (unsigned i = 0; i < DEEPEST_RING / 32; i++)
        assert_int_equal(store_rig_get(&rig, sub.part.anchor, rcuckoo_word_at(i)), 0);
}

/* Verbs of a recovery of C: its ring has that many changes, and each has a line and a lock of its
 * own. C is dead, or recovers its own lines. */
static uint64_t verbs_for(unsigned depth, bool itself)
{
    struct journal line[DEEPEST_RING];
    open_wide();
    for (unsigned i = 0; i < depth; i++) {
        struct rcuckoo_locks locks = {1, {{i / 32, 1ull << i % 32}}, {0}};
        bool closed = false;
        expect_ok(journal_take(&C.s->op, gaddr_node(sub.part.anchor), &line[i]));
        rcuckoo_lock(&C.s->op, view_of(&C), &sub, &line[i], &locks);
        expect_ok(batch_flush(&C.s->op.batch));
        assert_true(rcuckoo_locked(&C.s->op, &locks, &closed));
    }
    for (unsigned i = 0; i < depth && itself; i++)
        journal_give(&C.s->op, &line[i], false);
    unsigned slot = itself ? C.s->client.slot : kill_actor(&C);
    struct op *op = itself ? &C.s->op : &A.s->op;
    uint64_t before = op->cost.verbs;
    expect_ok(itself ? client_complete(op) : recover_slot(&A, slot, 0));
    uint64_t verbs = op->cost.verbs - before;
    expect_all_free();
    return verbs;
}

static void expect_linear(bool itself)
{
    uint64_t at8 = verbs_for(8, itself), at16 = verbs_for(16, itself);
    uint64_t at32 = verbs_for(32, itself), at64 = verbs_for(64, itself);
    printf("    %llu, %llu, %llu and %llu verbs\n", (unsigned long long)at8,
           (unsigned long long)at16, (unsigned long long)at32, (unsigned long long)at64);
    assert_in_range(at32 - at16, 16, 2 * (at16 - at8) + 8);
    assert_in_range(at64 - at32, 32, 2 * (at32 - at16) + 8);
}

/* JOURNAL-J7 */
TEST(a_recovery_goes_by_the_depth_of_the_ring)
{
    expect_linear(false);
}

TEST(a_client_recovers_its_own_ring_by_its_depth)
{
    expect_linear(true);
}

/* RCUCKOO-C10, JOURNAL-J7: two lines of a ring name a lock. The first one has only named it. The
 * second one holds it and has begun to write. */
TEST(lines_of_one_ring_are_told_apart)
{
    struct journal line[2];
    for (unsigned itself = 0; itself < 2; itself++) {
        open_wide();
        intend_first(C.s, view_of(&C), &line[0]);
        intend_first(C.s, view_of(&C), &line[1]);
        set_lock_word(1);
        journal_redo(&C.s->op, &line[1], "", 0);
        expect_ok(batch_flush(&C.s->op.batch));
        journal_give(&C.s->op, &line[0], false);
        journal_give(&C.s->op, &line[1], false);
        if (itself) { /* it has to wait, for the line that holds the lock is its own */
            assert_int_equal(client_complete(&C.s->op), FAR_TIMEOUT);
            assert_int_equal(lock_word(), RCUCKOO_REPAIR | 1);
        }
        unsigned dead = kill_actor(&C);
        expect_ok(recover_slot(&A, dead, 0));
        expect_all_free();
    }
}

/* ---- a path of several rows ------------------------------------------------------------------ */

/* RCUCKOO-C2: the locks of all rows that A's requests write are held. When most rows are full, A
 * locks groups of rows, and paths lead from one group to another. */
TEST(all_rows_of_a_path_are_locked)
{
    bool path = false;
    int rc = FAR_OK;
    open_with("mem:?size=8m", "rows=32&lock_rows=1&locks=4&grows=0");
    const struct rcuckoo_shape *s = shape();
    struct place rows = {A_WRITE, .of = sub.rows, .bytes = rcuckoo_rows_bytes(s),
                         .len = row_bytes(), .each = true};
    for (uint32_t key = 1; rc == FAR_OK; key++) {
        rc = actor_begin(&A, rows, put_key, key, key);
        for (; rc == STOPPED; rc = actor_go_on(&A)) {
            unsigned row = (unsigned)((A.verb->off - gaddr_offset(sub.rows)) / A.verb->len);
            uint64_t at = rcuckoo_word_at(rcuckoo_lock_word(s, row));
            assert_true(store_rig_get(&rig, sub.part.anchor, at) & rcuckoo_lock_bit(s, row));
            path |= writes_a_path(A.req, 0);
        }
    }
    assert_int_equal(rc, FAR_TABLE_FULL);
    assert_true(path);
}

static bool begins_a_path(const struct fab_req *req, unsigned verb)
{
    return verb == 0 && unlocks(req) && writes_a_path(req, verb);
}

/* Of A's first request that writes several rows, only the first verbs happen. */
TEST(a_path_that_was_begun_is_completed)
{
    for (unsigned done = 1; done < 3; done++) { /* the redo, and then the first row */
        open_with("mem:?size=8m&lease=100", "rows=16&lock_rows=16&grows=0");
        expect_ok(put_key(&B, 0, 0));
        put_until(&A, (struct place){.is = begins_a_path, .then = done}, 1);
        (void)actor_answer(&A, FAR_TIMEOUT);
        expect_ok(recover_slot(&B, A.s->client.slot, 0));
        expect_keys(&B, 0, (uint32_t)A.key + 1);
        expect_sound_table();
    }
}

/* ---- requests whose outcome is not known ----------------------------------------------------- */

/* A puts keys until it splits the subtable. Its CAS of that word of the anchor happens, but A is
 * not told. */
static void split_fails(size_t word)
{
    open_uri("mem:?size=8m&lease=100");
    expect_ok(put_key(&B, 1, 1));
    put_until(&A, anchor_place(&sub, A_CAS, word, AFTER_REQUEST), 2);
    printf("    put: %s\n", far_strerror(actor_answer(&A, FAR_TIMEOUT)));
}

TEST(children_that_may_be_published_are_not_reused)
{
    struct audit audit;
    split_fails(offsetof(struct rcuckoo_anchor, forward));
    audit_both(&audit);
}

/* Nothing points to the children, and their client does not know that. */
TEST(children_of_a_closing_of_unknown_outcome_are_reported_as_lost)
{
    struct audit audit;
    split_fails(offsetof(struct rcuckoo_anchor, closer));
    audit_both(&audit);
    assert_true(audit.bytes[AUDIT_NOWHERE] > 0);
    assert_true(audit.bytes[AUDIT_NOWHERE] <= puppet_lost_bytes(&A.s->client));
}

TEST(a_session_that_may_have_closed_a_subtable_gives_up_its_slot)
{
    split_fails(offsetof(struct rcuckoo_anchor, closer));
    assert_true(puppet_renounced(&A.s->client));
}

/* Its value is too long to be inline. */
static int put_long(struct actor *a, uint64_t key, uint64_t unused)
{
    static const char value[100];
    uint32_t k = (uint32_t)key;
    (void)unused;
    return far_put(a->s, a->t, &k, sizeof k, value, sizeof value);
}

/* The request that writes the row does not happen, so the old block stays in use. */
TEST(a_block_that_may_be_in_use_is_not_retired)
{
    struct audit audit;
    open_uri("mem:?size=8m&lease=100");
    expect_ok(put_long(&A, 1, 0));
    expect_ok(put_key(&B, 2, 2));
    assert_int_equal(fail_halfway(&A, put_long, 1, true, 1), FAR_UNKNOWN);
    audit_both(&audit);
}

/* ---- words that were damaged ----------------------------------------------------------------- */

/* RCUCKOO-W7: a lock that nobody holds, R, S and the stamp of a recovery that nobody does. Puts
 * wait for them in vain; a check finds all of them, and repairs them. */
TEST(a_check_opens_what_nobody_will_open)
{
    const uint64_t repair = offsetof(struct rcuckoo_anchor, repair);
    struct far_pool_check found = {0};
    open_uri("mem:?size=8m&lease=100");
    expect_ok(put_key(&B, 1, 7));
    set_lock_word(1 | RCUCKOO_REPAIR | RCUCKOO_CLOSED);
    store_rig_set(&rig, sub.part.anchor, repair, 0x12345);
    assert_int_equal(put_key(&B, 1, 8), FAR_CONTENTION);
    expect_ok(far_pool_check(B.s, true, say, NULL, &found));
    assert_true(found.repaired >= 3);
    assert_int_equal(lock_word(), 0);
    assert_int_equal(store_rig_get(&rig, sub.part.anchor, repair), 0);
    expect_ok(put_key(&B, 1, 9));
    expect_found(&A, 1, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_check_opens_what_nobody_will_open),
        cmocka_unit_test(a_row_that_is_redone_has_the_version_of_its_change),
        cmocka_unit_test(a_redo_unlocks_once),
        cmocka_unit_test(a_change_that_was_unlocked_is_not_made_again),
        cmocka_unit_test(a_line_stays_until_its_locks_are_released),
        cmocka_unit_test(an_epoch_counts_only_for_the_closing_that_it_was_noted_for),
        cmocka_unit_test(a_recovery_closes_the_words_before_it_reads_lines),
        cmocka_unit_test(the_death_of_an_idle_client_closes_nothing),
        cmocka_unit_test(a_recovery_does_not_wait_for_a_lock_that_was_free),
        cmocka_unit_test(what_a_recovery_has_closed_is_soon_open_again),
        cmocka_unit_test(what_a_session_has_closed_for_itself_is_soon_open_again),
        cmocka_unit_test(a_line_that_names_no_lock_of_the_table_is_left_alone),
        cmocka_unit_test(a_recovery_goes_by_the_depth_of_the_ring),
        cmocka_unit_test(a_client_recovers_its_own_ring_by_its_depth),
        cmocka_unit_test(lines_of_one_ring_are_told_apart),
        cmocka_unit_test(all_rows_of_a_path_are_locked),
        cmocka_unit_test(a_lock_is_not_released_before_two_epochs_have_passed),
        cmocka_unit_test(a_path_that_was_begun_is_completed),
        cmocka_unit_test(children_that_may_be_published_are_not_reused),
        cmocka_unit_test(children_of_a_closing_of_unknown_outcome_are_reported_as_lost),
        cmocka_unit_test(a_session_that_may_have_closed_a_subtable_gives_up_its_slot),
        cmocka_unit_test(a_block_that_may_be_in_use_is_not_retired),
        cmocka_unit_test(a_lock_is_not_released_under_a_redo_that_was_not_seen),
        cmocka_unit_test(a_lock_is_not_released_under_a_redo_that_was_left),
        cmocka_unit_test(a_row_that_changes_is_not_damaged),
        cmocka_unit_test(an_entry_of_another_length_is_another_one),
        cmocka_unit_test(the_directory_is_only_advice),
    };
    return cmocka_run_group_tests(tests, NULL, close_actors);
}
