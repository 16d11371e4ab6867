/* Interleavings and limits that once broke SepHash, or that must not: verbs are torn or delayed as
 * docs/fabric.md allows, sessions come between two verbs of another. */
#include "support/sephash_rig.h"

static void open_table(const char *tuning)
{
    open_actors("mem:?size=4m&clients=8", "sephash", tuning, NULL);
}

static const struct sephash_segment *segment_of(uint32_t key)
{
    return &sephash_known_of(view_of(&B), key_of(key).hash)->segment;
}

/* B merges the segment by changing a key of it. */
static void merge_all(uint32_t key)
{
    uint64_t before = view_of(&B)->merges;
    for (uint32_t i = 0; view_of(&B)->merges == before; i++)
        expect_ok(put_key(&B, key, i));
}

/* Deeds: checks of the table, and of the pool, with repairs or without. */
static int check_table(struct actor *a, uint64_t unused, uint64_t neither)
{
    (void)unused;
    (void)neither;
    return far_table_check(a->s, a->t, say, NULL);
}
static int check_pool(struct actor *a, uint64_t repairs, uint64_t unused)
{
    struct far_pool_check result = {0};
    (void)unused;
    return far_pool_check(a->s, repairs, say, NULL, &result);
}

/* ---- READs of all slots while they are filled ------------------------------------------------ */

static struct place slots_place(enum stop_side side)
{
    return (struct place){A_READ, .side = side, .len = 8 * view_of(&B)->shape.slots};
}

/* A slot of those that A reads, as it is now. */
static uint64_t slot_now(unsigned n)
{
    const struct fab_verb *v = A.verb;
    return store_rig_get(&rig, gaddr_make(v->node, v->off & ~63ull), (v->off & 63) + 8 * n);
}

/* The first empty slot in A's image. */
static unsigned first_empty(void)
{
    const uint64_t *slot = A.verb->buf;
    unsigned n = 0;
    while (n < view_of(&B)->shape.slots && slot[n] != 0)
        n++;
    return n;
}

/* Each READ finds the first empty slot before two keys are put, and those behind it after that
 * (FABRIC-F1). */
TEST(a_walk_takes_no_torn_read_for_damage)
{
    unsigned tears = 0;
    uint32_t keys = 8;
    open_table("slots=512&ratio=4&depth=0&lane=512");
    put_keys(&B, 0, keys);
    struct place slots = slots_place(AFTER_REQUEST);
    slots.each = true;
    int rc = actor_begin(&A, slots, check_pool, true, 0);
    for (; rc == STOPPED; rc = actor_go_on(&A)) {
        unsigned n = first_empty();
        if (n + 2 >= view_of(&B)->shape.slots)
            continue;
        put_keys(&B, keys, keys + 2);
        keys += 2;
        ((uint64_t *)A.verb->buf)[n + 1] = slot_now(n + 1);
        tears++;
    }
    printf("    %u tears, check: %s\n", tears, far_strerror(rc));
    assert_true(tears >= 3);
    expect_keys(&B, 0, keys);
    expect_ok(rc);
}

static uint64_t stray;

static bool removes_stray(const struct fab_req *req, unsigned verb)
{
    return req->verbs[verb].compare == stray;
}

/* Right before A removes an entry behind an empty slot, keys are put until one is behind it. */
TEST(a_repair_leaves_no_hole_among_the_slots)
{
    open_table("slots=512&ratio=4&depth=0&lane=512");
    put_keys(&B, 0, 8);
    actor_reach(&A, slots_place(BEFORE), check_table, 0, 0);
    uint64_t off = A.verb->off;
    stray = slot_now(3);
    expect_ok(actor_go_on(&A));
    store_rig_set(&rig, 0, off + 8 * 9, stray);
    struct place repair = {A_CAS, .side = BEFORE_REQUEST, .is = removes_stray};
    actor_reach(&A, repair, check_pool, true, 0);
    put_keys(&B, 8, 11);
    expect_ok(actor_go_on(&A));
    expect_keys(&B, 0, 11);
    expect_ok(check_pool(&A, false, 0));
}

/* A deletes a key. Its READ finds the first empty slot before B deletes the key there, and the one
 * behind it after another key was put. */
TEST(a_torn_read_shows_no_state_that_never_was)
{
    open_table("slots=32&ratio=4&depth=0&lane=512");
    expect_ok(put_key(&B, 1, 1));
    expect_ok(get_key(&A, 1, 0)); /* it knows the segment */
    actor_reach(&A, slots_place(AFTER_REQUEST), delete_key, 1, 0);
    unsigned n = first_empty();
    uint64_t *slot = A.verb->buf;
    expect_ok(delete_key(&B, 1, 0));
    expect_ok(put_key(&B, 2, 2));
    slot[n + 1] = slot_now(n + 1);
    assert_true(slot[n] == 0 && slot[n + 1] != 0);
    assert_int_equal(actor_go_on(&A), FAR_NOT_FOUND); /* B has deleted it */
    assert_int_equal(get_key(&A, 1, 0), FAR_NOT_FOUND);
    expect_sound_table();
}

/* ---- an iteration while keys that share a group come and go ---------------------------------- */

/* Two keys of the same fp and fp2 in a table of one segment. */
static void find_group(uint32_t pair[2])
{
    static uint32_t first[SEPHASH_FPS << SEPHASH_FP2_BITS];
    memset(first, 0, sizeof first);
    for (pair[1] = 1000;; pair[1]++) {
        struct sephash_key k = key_of(pair[1]);
        unsigned group = k.fp << SEPHASH_FP2_BITS | k.fp2;
        if ((pair[0] = first[group]) != 0)
            return;
        first[group] = pair[1];
    }
}

TEST(an_iteration_leaves_no_key_out)
{
    uint32_t pair[2], seen[2] = {0, 0}, deleted = 0;
    char buf[24]; /* for one entry */
    size_t len = 0;
    uint64_t cursor = 0;
    open_table("slots=4&ratio=64&depth=0");
    expect_ok(put_key(&B, 1, 1));
    find_group(pair);
    for (unsigned i = 0; i < 2; i++)
        expect_ok(put_key(&B, pair[i], 5));
    do {
        struct far_entry e;
        expect_ok(far_iterate(B.s, B.t, &cursor, 0, buf, sizeof buf, &len));
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);)
            for (unsigned i = 0; i < 2; i++)
                seen[i] += memcmp(e.key, &pair[i], 4) == 0;
        /* The first one that was returned is deleted, and nothing remains of it. */
        if (deleted == 0 && seen[0] + seen[1] > 0) {
            deleted = pair[seen[0] == 0];
            expect_ok(delete_key(&B, deleted, 0));
            merge_all(1);
        }
    } while (cursor != 0);
    printf("    returned: %u and %u times\n", seen[0], seen[1]);
    assert_true(deleted != 0 && seen[0] > 0 && seen[1] > 0);
}

/* Two keys whose hashes have the same 23 highest bits. */
static void find_tie(uint64_t seed, uint32_t pair[2])
{
    enum { BITS = 23 };
    uint32_t *first = calloc(1u << BITS, sizeof *first);
    assert_non_null(first);
    for (pair[1] = 1000;; pair[1]++) {
        uint64_t high = hash_key(&pair[1], 4, seed).hi >> (64 - BITS);
        if (first[high] != 0) {
            pair[0] = first[high];
            break;
        }
        first[high] = pair[1];
    }
    free(first);
}

TEST(an_iteration_ends_if_keys_have_the_same_place)
{
    struct knobs knobs = pool_knobs_default;
    uint32_t pair[2];
    char buf[64];
    size_t len = 0, cap = 24; /* for one entry */
    uint64_t cursor = 0;
    unsigned returned = 0, calls = 0;
    int rc = FAR_OK;
    knobs.fingerprint_mask = 0;
    open_actors("mem:?size=4m&clients=8", "sephash", "slots=4&ratio=64&depth=0", &knobs);
    find_tie(B.t->index.desc.hash_seed, pair);
    for (unsigned i = 0; i < 2; i++)
        expect_ok(put_key(&B, pair[i], 5));
    do {
        struct far_entry e;
        rc = far_iterate(B.s, B.t, &cursor, 0, buf, cap, &len);
        if (rc == FAR_TOO_SMALL) {
            assert_true(len > cap && len <= sizeof buf);
            cap = len;
            continue;
        }
        expect_ok(rc);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);)
            returned++;
    } while (++calls < 100 && (rc != FAR_OK || cursor != 0));
    printf("    %u returned in %u calls, with %zu bytes\n", returned, calls, cap);
    assert_true(calls < 100);
    assert_true(returned >= 2);
}

/* All of it fits into the buffer. A segment is read in parts, which end in the middle of a
 * fingerprint. */
TEST(an_iteration_of_a_table_at_rest_returns_each_key_once)
{
    enum { KEYS = 3000 };
    static char buf[64 * KEYS];
    static unsigned seen[KEYS];
    size_t len = 0;
    uint64_t cursor = 0;
    open_actors("mem:?size=16m&clients=8", "sephash", "slots=128&ratio=64&depth=0", NULL);
    for (uint32_t key = 0; key < KEYS; key++)
        expect_ok(put_key(&B, key, 1));
    memset(seen, 0, sizeof seen);
    do {
        struct far_entry e;
        expect_ok(far_iterate(B.s, B.t, &cursor, 0, buf, sizeof buf, &len));
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);) {
            uint32_t key;
            memcpy(&key, e.key, sizeof key);
            seen[key]++;
        }
    } while (cursor != 0);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(seen[i], 1);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* There are more than fit into half of a segment. */
TEST(keys_that_no_split_separates_fill_the_table_cleanly)
{
    uint32_t keys = 0;
    int rc = FAR_OK;
    struct knobs knobs = pool_knobs_default;
    knobs.hash_mask = 0;
    open_actors("mem:?size=16m&clients=8", "sephash", "slots=128&ratio=1&depth=0&lane=512", &knobs);
    for (; keys < 4000 && rc == FAR_OK; keys += rc == FAR_OK)
        rc = put_key(&B, keys, keys);
    printf("    %u keys, then %s\n", keys, far_strerror(rc));
    assert_int_equal(rc, FAR_TABLE_FULL);
    expect_keys(&A, 0, keys);
    expect_sound_table();
}

TEST(deletes_go_on_however_often_the_pool_runs_full)
{
    static const struct {
        const char *tuning;
        size_t value;
    } run[] = {{"slots=4&ratio=1&depth=0", 4},
               {"slots=4&ratio=1&depth=0", 400},
               {"slots=32&ratio=16&depth=0&lane=512", 4},
               {"slots=32&ratio=16&depth=0&lane=512", 1000},
               {"slots=128&ratio=64&depth=2&lane=512", 16000}};
    static char value[16384];
    for (unsigned i = 0; i < sizeof run / sizeof *run; i++) {
        uint32_t put = 0, gone = 0;
        unsigned refused = 0;
        open_actors("mem:?size=2m&clients=8", "sephash", run[i].tuning, NULL);
        for (unsigned round = 0; round < 300 / SLOWER && refused == 0; round++) {
            unsigned fails = 0;
            while (fails < 20) {
                int rc = far_put(B.s, B.t, &put, 4, value, run[i].value);
                assert_true(rc == FAR_OK || rc == FAR_POOL_FULL);
                fails = rc == FAR_OK ? 0 : fails + 1;
                put++;
            }
            for (unsigned n = 0; n < 1 + round % 7 && gone < put;) {
                int rc = far_delete(B.s, B.t, &gone, 4);
                refused += rc != FAR_OK && rc != FAR_NOT_FOUND;
                n += rc == FAR_OK;
                if (rc != FAR_OK && rc != FAR_NOT_FOUND)
                    printf("    %s, %zu B: round %u: delete: %s\n", run[i].tuning, run[i].value,
                           round, far_strerror(rc));
                gone++;
            }
        }
        assert_int_equal(refused, 0);
        expect_sound_table();
    }
}

/* Takes all memory but a few objects of one class. */
static void take_all_but(far_session *s, unsigned count, unsigned size_class)
{
    struct op *op = &s->op;
    gaddr at = 0, left[8];
    unsigned taken = 0;
    assert_true(count <= 8);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    for (; taken < count; taken++)
        assert_int_equal(pool_alloc(op, 0, size_class, &left[taken]), FAR_OK);
    for (unsigned i = CLASS_COUNT; i-- > 0;)
        while (pool_alloc(op, 0, i, &at) == FAR_OK)
            continue; /* ends: the pool is small */
    while (taken > 0)
        pool_free_unpublished(&s->client, left[--taken], size_class);
    op_end(op);
}

/* Inserts have filled the CurSegment and the pool, and the merge found no memory. It gives no block
 * back, so only what it is for lets it use the reserve. */
TEST(a_value_is_replaced_behind_inserts_that_filled_the_pool)
{
    static const char value[400];
    for (unsigned puts = 0; puts < 2; puts++) {
        uint32_t key = 0;
        open_actors("mem:?size=2m&clients=8", "sephash", "slots=4&ratio=1&depth=0", NULL);
        far_session_close(A.s); /* idle, it would hold up the epoch */
        A.s = NULL;
        for (; key < 3; key++)
            assert_int_equal(far_put(B.s, B.t, &key, 4, value, sizeof value), FAR_OK);
        take_all_but(B.s, 4, size_class_for(block_bytes(4, sizeof value)));
        assert_int_equal(far_insert(B.s, B.t, &key, 4, value, sizeof value), FAR_OK);
        assert_int_equal(view_of(&B)->base.grown, 0);
        key = 0;
        int rc = puts ? far_put(B.s, B.t, &key, 4, value, sizeof value)
                      : far_update(B.s, B.t, &key, 4, value, sizeof value);
        assert_int_equal(rc, FAR_OK);
        assert_int_equal(view_of(&B)->merges, 1);
    }
}

/* ---- a damaged directory --------------------------------------------------------------------- */
TEST(the_directory_is_only_advice)
{
    const uint32_t keys = 300;
    open_table("slots=4&ratio=1&depth=2");
    put_keys(&B, 0, keys);
    gaddr root = view_of(&B)->root;
    uint64_t word = store_rig_get(&rig, root, 0), depth = index_deep_depth(word);
    gaddr directory = index_deep_at(word);
    for (unsigned bit = 0; bit < 64; bit++) { /* of an entry */
        uint64_t at = 8 * (bit % (1u << depth)), entry = store_rig_get(&rig, directory, at);
        actor_join(&C);
        store_rig_set(&rig, directory, at, entry ^ 1ull << bit);
        expect_keys(&C, 0, keys);
        assert_int_equal(far_table_check(B.s, B.t, NULL, NULL), FAR_CORRUPT);
        expect_ok(far_pool_check(C.s, true, NULL, NULL, &(struct far_pool_check){0}));
        expect_ok(far_table_check(B.s, B.t, NULL, NULL));
        actor_leave(&C);
    }
    for (unsigned bit = 0; bit < 64; bit++) { /* of the word in the root */
        actor_join(&C);
        store_rig_set(&rig, root, 0, word ^ 1ull << bit);
        expect_keys(&C, 0, keys);
        (void)far_table_check(B.s, B.t, NULL, NULL); /* a smaller directory is none the worse */
        store_rig_set(&rig, root, 0, word);
        actor_leave(&C);
    }
    expect_ok(far_table_check(B.s, B.t, NULL, NULL));
}

static void count_line(void *arg, const char *line)
{
    (void)line;
    ++*(unsigned *)arg;
}

TEST(a_root_that_names_no_directory_is_one_finding)
{
    unsigned lines = 0;
    open_table("slots=4&ratio=1&depth=2");
    put_keys(&B, 0, 300);
    gaddr root = view_of(&B)->root;
    uint64_t word = store_rig_get(&rig, root, 0);
    store_rig_set(&rig, root, 0, word | GADDR_MASK);
    assert_int_equal(far_table_check(B.s, B.t, count_line, &lines), FAR_CORRUPT);
    assert_int_equal(lines, 1);
    assert_string_equal(far_error_detail(), "1 violation");
    store_rig_set(&rig, root, 0, word);
    expect_sound_table();
}

/* ---- an append, verb by verb ----------------------------------------------------------------- */

/* When A's CAS has filled the slot, B finds the key. */
TEST(a_mark_comes_before_its_slot)
{
    unsigned filled = 0;
    open_table("slots=4&ratio=4&depth=0&filter=1");
    expect_ok(put_key(&B, 1, 1));
    assert_int_equal(get_key(&B, 2, 0), FAR_NOT_FOUND);
    struct place slot = {A_CAS, .side = AFTER, .of = sephash_target(segment_of(2)->state),
                         .bytes = sephash_slot_at(&view_of(&B)->shape, 4), .each = true};
    int rc = actor_begin(&A, slot, put_key, 2, 5);
    for (; rc == STOPPED; rc = actor_go_on(&A), filled++) {
        assert_int_equal(insert_key(&B, 2, 0), FAR_EXISTS);
        expect_ok(get_key(&B, 2, 0));
    }
    expect_ok(rc);
    assert_int_equal(filled, 1);
}

/* ---- a merge whose outcome is not known ------------------------------------------------------ */

static struct place anchor_place(uint32_t key, enum stop_side side)
{
    return (struct place){A_CAS, .side = side, .of = segment_of(key)->part.anchor, .bytes = 8};
}

/* A's CAS of the anchor happens, but A is not told. */
static void merge_with_unknown_outcome(struct audit *audit)
{
    open_table("slots=4&ratio=4&depth=0");
    expect_ok(put_key(&B, 1, 1));
    merge_all(1); /* so there is an old MainSegment, too */
    struct place merge = anchor_place(1, AFTER_REQUEST);
    int rc = FAR_OK;
    for (uint32_t i = 0; i < 8 && rc == FAR_OK; i++)
        rc = actor_begin(&A, merge, put_key, 1, i);
    assert_int_equal(rc, STOPPED);
    expect_ok(actor_answer(&A, FAR_TIMEOUT));
    expect_ok(sim_audit(audit, rig.pool, (far_session *[]){B.s, A.s}, 2));
}

TEST(a_segment_that_may_be_published_is_not_reused)
{
    struct audit audit;
    merge_with_unknown_outcome(&audit);
    assert_int_equal(audit.wrong, 0);
}

TEST(what_a_merge_of_unknown_outcome_may_lose_is_reported)
{
    struct audit audit;
    merge_with_unknown_outcome(&audit);
    printf("    %llu bytes are in no place\n", (unsigned long long)audit.bytes[AUDIT_NOWHERE]);
    assert_true(audit.bytes[AUDIT_NOWHERE] > 0);
    assert_true(puppet_lost_bytes(&A.s->client) >= audit.bytes[AUDIT_NOWHERE]);
}

/* ---- the reserve, and two clients that have read the root ------------------------------------ */
static struct sephash_root read_root(void)
{
    struct sephash_root root;
    struct op *op = &B.s->op;
    batch_read(&op->batch, view_of(&B)->root, 0, op->word, SEPHASH_ROOT_CHANGES);
    expect_ok(batch_flush(&op->batch));
    memcpy(&root, op->word, SEPHASH_ROOT_CHANGES);
    return root;
}

/* A table that both know, with its reserve complete. Returns its root. */
static struct sephash_root open_reserve(void)
{
    open_table("slots=4&ratio=4&depth=0");
    expect_ok(put_key(&B, 1, 1));
    expect_ok(put_key(&A, 2, 1));
    expect_ok(sephash_reserve_restore(&B.s->op, view_of(&B)));
    struct sephash_root root = read_root();
    assert_int_not_equal(root.reserve[SEPHASH_RESERVE - 1], 0);
    return root;
}

static void take_reserve(struct actor *a, struct sephash_root root)
{
    expect_ok(sephash_reserve_take(&a->s->op, view_of(a), &root));
}

/* Likewise, with its reserve taken. */
static struct sephash_root open_without_reserve(void)
{
    take_reserve(&A, open_reserve());
    return read_root();
}

TEST(what_is_in_the_reserve_is_taken_once)
{
    struct audit audit;
    struct sephash_root root = open_reserve();
    take_reserve(&A, root);
    take_reserve(&B, root);
    audit_both(&audit);
}

static int flush(struct actor *a, uint64_t unused, uint64_t neither)
{
    (void)unused;
    (void)neither;
    return batch_flush(&a->s->op.batch);
}

/* Fills the reserve as a client that has read `root`, and is told what became of that or is not. */
static int fill_reserve(struct actor *a, const struct sephash_root *root, bool told)
{
    struct sephash_spares spares;
    struct op *op = &a->s->op;
    expect_ok(sephash_reserve_fill(op, view_of(a), root, 1, &spares));
    assert_true(spares.count > 0);
    sephash_reserve_add(op, view_of(a), &spares);
    int rc = actor_begin(a, (struct place){.side = AFTER_REQUEST}, flush, 0, 0);
    assert_int_equal(rc, STOPPED);
    rc = told ? actor_go_on(a) : actor_answer(a, FAR_TIMEOUT);
    sephash_reserve_end(op, view_of(a), &spares, true, rc);
    return rc;
}

TEST(what_the_reserve_has_no_room_for_is_not_lost)
{
    struct audit audit;
    struct sephash_root root = open_without_reserve();
    expect_ok(fill_reserve(&A, &root, true));
    expect_ok(fill_reserve(&B, &root, true));
    audit_both(&audit);
    assert_int_equal(audit.bytes[AUDIT_NOWHERE], 0);
}

TEST(what_may_be_in_the_reserve_is_not_reused)
{
    struct audit audit;
    struct sephash_root root = open_without_reserve();
    assert_int_not_equal(fill_reserve(&A, &root, false), FAR_OK);
    audit_both(&audit);
}

static int take(struct actor *a, uint64_t unused, uint64_t neither)
{
    struct sephash_root root = read_root();
    (void)unused;
    (void)neither;
    return sephash_reserve_take(&a->s->op, view_of(a), &root);
}

/* B takes it for gone, and fills it anew. */
TEST(what_is_perhaps_taken_from_the_reserve_counts_as_lost)
{
    struct audit audit;
    (void)open_reserve();
    uint64_t lost = puppet_lost_bytes(&A.s->client);
    actor_reach(&A, (struct place){.side = AFTER_REQUEST}, take, 0, 0);
    assert_int_not_equal(actor_answer(&A, FAR_TIMEOUT), FAR_OK);
    audit_both(&audit);
    assert_true(audit.bytes[AUDIT_NOWHERE] > 0);
    assert_true(puppet_lost_bytes(&A.s->client) >= lost + audit.bytes[AUDIT_NOWHERE]);
}

/* Else it would store values in what deletes will need. */
TEST(a_client_that_cannot_fill_the_reserve_stores_nothing_before_it_can)
{
    struct sephash_root root = open_without_reserve();
    struct sephash_spares spares;
    assert_false(view_of(&B)->owes);
    take_all_but(B.s, 0, 0);
    assert_int_equal(sephash_reserve_fill(&B.s->op, view_of(&B), &root, 1, &spares), FAR_POOL_FULL);
    sephash_reserve_end(&B.s->op, view_of(&B), &spares, false, FAR_OK);
    assert_true(view_of(&B)->owes);
}

/* ---- what an anchor leads to ----------------------------------------------------------------- */

/* SEPHASH-H7: from A's CAS of the anchor on, B reads behind each verb. */
TEST(a_fork_is_written_before_the_anchor_leads_to_it)
{
    open_table("slots=4&ratio=1&depth=0");
    expect_ok(put_key(&B, 0, 0));
    expect_ok(put_key(&A, 1, 1));
    struct place cas = anchor_place(0, AFTER);
    cas.each = true;
    for (uint32_t i = 2; i < 100 && view_of(&A)->base.grown == view_of(&A)->merges; i++) {
        int rc = actor_begin(&A, cas, put_key, i, i);
        for (; rc == STOPPED; rc = actor_go_on(&A))
            do
                expect_ok(get_key(&B, 0, 0));
            while (actor_step(&A));
        expect_ok(rc);
    }
    assert_true(view_of(&A)->base.grown > view_of(&A)->merges);
}

/* SEPHASH-H7: a client that has guessed an old one must not find it again. */
TEST(no_word_of_an_anchor_comes_again)
{
    enum { MERGES = 40 };
    uint64_t word[MERGES];
    unsigned again = 0;
    open_table("slots=4&ratio=4&depth=0");
    expect_ok(put_key(&B, 1, 1));
    gaddr anchor = segment_of(1)->part.anchor;
    for (unsigned i = 0; i < MERGES; i++) {
        merge_all(1);
        expect_ok(get_key(&A, 1, 0)); /* the epoch does not wait for it */
        word[i] = store_rig_get(&rig, anchor, 0);
        for (unsigned k = 0; k < i; k++) {
            assert_true(word[k] != word[i]);
            again += sephash_target(word[k]) == sephash_target(word[i]);
        }
    }
    assert_true(again > 0); /* memory was used again */
}

/* ---- what is known of a CurSegment that was replaced meanwhile ------------------------------- */
TEST(what_was_counted_in_another_segment_is_forgotten)
{
    open_table("slots=4&ratio=4&depth=0");
    for (uint32_t i = 0; i < 3; i++)
        expect_ok(put_key(&B, 1, i));
    struct sephash_segment old = *segment_of(1);
    merge_all(1);
    assert_true(segment_of(1)->state != old.state);
    unsigned barren = segment_of(1)->barren;
    old.seen = segment_of(1)->seen + 5; /* as an operation that ends now */
    sephash_know_seen(view_of(&B), &old);
    assert_true(segment_of(1)->seen < old.seen);
    sephash_know_barren(view_of(&B), &old, barren + 1);
    assert_int_equal(segment_of(1)->barren, barren);
    expect_ok(put_key(&B, 1, 5));
    expect_sound_table();
}

/* ---- a directory that is doubled ------------------------------------------------------------- */

/* A comes to its CAS of the root's word. */
static void double_the_directory(enum stop_side side)
{
    open_table("slots=4&ratio=1&depth=0");
    expect_ok(put_key(&B, 0, 0));
    struct place cas = {A_CAS, .side = side, .of = view_of(&B)->root, .bytes = 8};
    put_until(&A, cas, 1);
}

TEST(a_directory_is_written_before_it_is_published)
{
    double_the_directory(AFTER);
    expect_sound_table();
    expect_ok(actor_go_on(&A));
}

/* A does not know whether its CAS has happened. */
static void expect_nothing_in_two_places(void)
{
    struct audit audit;
    expect_ok(actor_answer(&A, FAR_TIMEOUT));
    audit_both(&audit);
}

TEST(a_directory_that_may_be_in_use_is_not_retired)
{
    double_the_directory(BEFORE);
    expect_nothing_in_two_places();
}

TEST(a_directory_that_may_be_published_is_not_reused)
{
    double_the_directory(AFTER);
    expect_nothing_in_two_places();
}

/* ---- a table that grows behind a walk -------------------------------------------------------- */
static uint32_t next_key;

static uint64_t directory_word(void)
{
    return store_rig_get(&rig, B.t->index.desc.root, offsetof(struct sephash_root, directory));
}

static bool is_first(const struct fab_req *req, unsigned verb)
{
    (void)req;
    return verb == 0;
}

/* The walk has visited all parts, and asks for the directory. Before that the table grows. */
TEST(a_walk_does_not_mistake_growth_for_damage)
{
    unsigned asks = 0;
    open_actors("mem:?size=16m&clients=8", "sephash", "slots=64&ratio=2&lane=512", NULL);
    for (next_key = 0; next_key < 100; next_key++)
        expect_ok(put_key(&B, next_key, 0));
    assert_int_equal(far_exists(A.s, A.t, "x", 1), FAR_NOT_FOUND);
    struct place asks_directory = {A_READ,
                                   .side = BEFORE_REQUEST,
                                   .of = B.t->index.desc.root,
                                   .delta = offsetof(struct sephash_root, directory),
                                   .bytes = 8,
                                   .len = 8,
                                   .is = is_first,
                                   .each = true};
    int rc = actor_begin(&A, asks_directory, check_table, 0, 0);
    for (; rc == STOPPED; rc = actor_go_on(&A), asks++) {
        unsigned depth = index_deep_depth(directory_word());
        while (asks == 0 && index_deep_depth(directory_word()) < depth + 2)
            expect_ok(put_key(&B, next_key++, 0));
    }
    expect_ok(rc);
    assert_int_equal(asks, 1);
}

/* Puts keys until the key's segment is split. Returns what it was before. */
static struct index_part split_segment(uint32_t key)
{
    struct index_part part = segment_of(key)->part;
    while (segment_of(key)->part.depth == part.depth)
        expect_ok(put_key(&B, next_key++, 0));
    return part;
}

/* A split that was not noted in the directory is noted with the next one. Else every session would
 * be sent there for as long as the table lasts. */
TEST(an_entry_that_leads_to_an_ancestor_is_replaced)
{
    open_table("slots=4&ratio=1&depth=1");
    for (next_key = 0; next_key < 10; next_key++)
        expect_ok(put_key(&B, next_key, 0));
    struct index_part old = split_segment(1), part = segment_of(1)->part;
    uint64_t word = directory_word();
    for (uint64_t i = part.suffix; i < 1ull << index_deep_depth(word); i += 1ull << part.depth)
        store_rig_set(&rig, index_deep_at(word), 8 * i, index_deep(old.anchor, old.depth));
    (void)split_segment(1);
    part = segment_of(1)->part;
    word = directory_word();
    for (uint64_t i = part.suffix; i < 1ull << index_deep_depth(word); i += 1ull << part.depth)
        assert_true(store_rig_get(&rig, index_deep_at(word), 8 * i) ==
                    index_deep(part.anchor, part.depth));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_takes_no_torn_read_for_damage),
        cmocka_unit_test(a_repair_leaves_no_hole_among_the_slots),
        cmocka_unit_test(a_torn_read_shows_no_state_that_never_was),
        cmocka_unit_test(a_mark_comes_before_its_slot),
        cmocka_unit_test(what_a_merge_of_unknown_outcome_may_lose_is_reported),
        cmocka_unit_test(a_segment_that_may_be_published_is_not_reused),
        cmocka_unit_test(what_is_in_the_reserve_is_taken_once),
        cmocka_unit_test(what_the_reserve_has_no_room_for_is_not_lost),
        cmocka_unit_test(what_may_be_in_the_reserve_is_not_reused),
        cmocka_unit_test(what_is_perhaps_taken_from_the_reserve_counts_as_lost),
        cmocka_unit_test(a_client_that_cannot_fill_the_reserve_stores_nothing_before_it_can),
        cmocka_unit_test(a_fork_is_written_before_the_anchor_leads_to_it),
        cmocka_unit_test(no_word_of_an_anchor_comes_again),
        cmocka_unit_test(what_was_counted_in_another_segment_is_forgotten),
        cmocka_unit_test(a_directory_is_written_before_it_is_published),
        cmocka_unit_test(a_directory_that_may_be_in_use_is_not_retired),
        cmocka_unit_test(a_directory_that_may_be_published_is_not_reused),
        cmocka_unit_test(an_iteration_leaves_no_key_out),
        cmocka_unit_test(an_iteration_ends_if_keys_have_the_same_place),
        cmocka_unit_test(an_iteration_of_a_table_at_rest_returns_each_key_once),
        cmocka_unit_test(keys_that_no_split_separates_fill_the_table_cleanly),
        cmocka_unit_test(the_directory_is_only_advice),
        cmocka_unit_test(a_root_that_names_no_directory_is_one_finding),
        cmocka_unit_test(a_walk_does_not_mistake_growth_for_damage),
        cmocka_unit_test(an_entry_that_leads_to_an_ancestor_is_replaced),
        cmocka_unit_test(deletes_go_on_however_often_the_pool_runs_full),
        cmocka_unit_test(a_value_is_replaced_behind_inserts_that_filled_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, close_actors);
}
