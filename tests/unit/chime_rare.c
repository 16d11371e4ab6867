/* Rare cases of CHIME that random histories hardly ever meet: several deaths at certain verbs,
 * memory that is used again at the same address, old caches, shortages. */
#include "support/chime_rig.h"
#include "support/hook.h"

#define POOL "mem:?size=1m&clients=8"

static void open_with(const char *uri, struct knobs knobs)
{
    rig_open(uri, "span=8&neighbourhood=8&cache=16&hot=0", &knobs, 1);
    actor_join(&A, NULL);
}

static int set_up(void **state)
{
    (void)state;
    open_with(POOL, pool_knobs_default);
    return 0;
}

/* Keys that share their first 8 bytes, so that separators are long, and values in blocks. */
static void use_long_keys(void)
{
    keys.text = "prefix00%02u";
    keys.value_len = 300;
}

static unsigned node_class(void)
{
    return chime_node_class(&view_of(&B)->shape);
}

/* Takes all memory of the class. Returns whether `wanted` was a part of it. */
static bool take_all(unsigned size_class, gaddr wanted)
{
    struct op *op = &B.s->op;
    bool found = false;
    gaddr at = 0;
    expect_ok(op_begin(op, NULL));
    while (pool_alloc(op, 0, size_class, &at) == FAR_OK)
        found |= at == wanted;
    op_end(op);
    return found;
}

static bool of_groups(const struct fab_verb *v)
{
    return v->kind == FAB_WRITE && v->len == view_of(&B)->shape.group_bytes;
}

/* ---- shortages and growth -------------------------------------------------------------------- */

/* A leaf is split with the last memory of the pool, and its parent has no room for the new one: the
 * keys are there, and can be read and deleted. */
TEST(keys_behind_an_unknown_split_can_be_used_in_a_full_pool)
{
    gaddr at = 0, last = 0;
    each_ok(put_key, &B, 0, 63, 1); /* 8 full leaves, and a full parent */
    struct op *op = &B.s->op;
    expect_ok(op_begin(op, NULL));
    while (pool_alloc(op, 0, node_class(), &at) == FAR_OK)
        last = at;
    pool_free_unpublished(op->client, last, node_class());
    op_end(op);
    expect_ok(put_key(&B, 64, 64));
    expect_ok(get_key(&B, 64, 64));
    expect_ok(delete_key(&B, 64, 64));
}

/* A session has seen the tree when it was low. Others make it high. */
TEST(a_session_learns_that_the_tree_has_grown)
{
    open_with("mem:?size=256m&clients=8", pool_knobs_default);
    each_ok(put_key, &B, 0, 19, 1);
    expect_ok(get_key(&A, 3, 3));
    each_ok(put_key, &B, 20, 299999, 1);
    expect_ok(get_key(&A, 20000, 0));
    assert_true(A.s->op.cost.rtts < 20);
    expect_ok(get_key(&A, 299999, 0));
    assert_int_equal(chime_top_level(view_of(&A)->top), chime_top_level(view_of(&B)->top));
}

static void *no_bulk(struct fab_ep *ep, size_t bytes)
{
    return bytes == CHIME_STAGING_BYTES ? NULL : hook.real->buf_alloc(ep, bytes);
}

TEST(a_split_without_local_memory_releases_its_lock)
{
    each_ok(put_key, &B, 0, 7, 1);
    expect_ok(get_key(&A, 1, 1));
    hook_on(A.s->client.ep);
    hook.ops.buf_alloc = no_bulk;
    assert_int_equal(put_key(&A, 8, 8), FAR_NO_MEMORY);
    hook_off();
    assert_true(word_at(chime_top_at(view_of(&B)->top), 0) == 0);
}

/* ---- sessions that die in the middle --------------------------------------------------------- */

static struct chime_spot left, right; /* leaves that are merged */

/* 64 keys in 8 leaves. Of leaf 1 and leaf 2 so few are left that a delete of key 14 merges them. */
static void prepare_merge(uint64_t last)
{
    each_ok(put_key, &B, 0, last, 1);
    each_ok(delete_key, &B, 16, 21, 1);
    each_ok(delete_key, &B, 8, 13, 1);
    left = spot_of(&B, 15);
    right = spot_of(&B, 22);
    assert_true(left.name.at != right.name.at && left.parent == right.parent);
    expect_ok(get_key(&A, 1, 1));
}

static bool merges(const struct fab_req *req, unsigned i)
{
    return i == 0 && req->count >= 12 && req->verbs[0].kind == FAB_WRITE &&
           of_groups(&req->verbs[1]) && of_groups(&req->verbs[2]);
}

/* The request of a recovery. */
static bool completes_merge(const struct fab_req *req, unsigned i)
{
    return i == 0 && req->count >= 6 && of_groups(&req->verbs[0]) &&
           (req->verbs[1].kind == FAB_CAS || of_groups(&req->verbs[1]));
}

/* An operation of A dies when some verbs of such a request have happened. */
static int die_in(struct actor *a, bool (*request)(const struct fab_req *, unsigned),
                  unsigned verbs, deed *act, uint64_t number)
{
    actor_reach(a, (struct place){.is = request, .side = BEFORE_REQUEST, .then = verbs}, act,
                number, 0);
    int rc = actor_answer(a, FAR_TIMEOUT);
    actor_kill(a);
    return rc;
}

static void die_in_merge(unsigned verbs)
{
    prepare_merge(63);
    expect_ok(die_in(&A, merges, verbs, delete_key, 14));
}

/* Until the dead client that owns this lock is shut out. */
static void shut_out(uint64_t owner)
{
    bool alive = true;
    for (unsigned i = 0; i < 100 && alive; i++) {
        store_rig_pass(&rig, 2000ull * 1000000);
        expect_ok(get_key(&A, 1, 1));
        expect_ok(get_key(&B, 1, 1));
        expect_ok(op_begin(&B.s->op, NULL));
        (void)client_drive_epoch(&B.s->op);
        expect_ok(client_owner_alive(&B.s->op, owner, &alive));
        op_end(&B.s->op);
    }
    assert_false(alive);
}

/* The same, and another session takes the dead one's place. */
static void die_in_merge_and_be_shut_out(unsigned verbs)
{
    die_in_merge(verbs);
    actor_join(&A, NULL);
    shut_out(word_at(right.name.at, 0));
}

/* A merge was decided, and then its client died. Another one completes it, and dies when the right
 * node is dead, but the left one still names it. A third one recovers the parent. */
TEST(a_dead_node_is_not_freed_while_its_sibling_names_it)
{
    const size_t next_at = offsetof(struct chime_head, next),
                 sum_at = offsetof(struct chime_head, sum);
    for (unsigned verbs = 1; verbs <= 7; verbs++) {
        (void)set_up(NULL);
        die_in_merge(4);
        actor_join(&C, NULL);
        expect_ok(get_key(&C, 1, 1));
        (void)die_in(&C, completes_merge, verbs, get_key, 15);
        uint64_t sum = word_at(right.name.at, sum_at);
        for (uint64_t n = 64; n < 20000 && word_at(right.name.at, sum_at) == sum; n++)
            if (put_key(&B, n, n) != FAR_OK)
                break;
        bool named = chime_next_at(word_at(left.name.at, next_at)) == right.name.at;
        bool reused = word_at(right.name.at, sum_at) != sum;
        assert_false(reused && named);
        expect_ok(get_key(&B, 15, 15));
        expect_ok(get_key(&B, 22, 22));
        expect_sound_table();
    }
}

/* A has the left node's lock and is about to write, and B wants the right node. */
TEST(a_get_rests_while_another_session_recovers)
{
    die_in_merge(5);
    actor_join(&A, NULL);
    expect_ok(get_key(&A, 1, 1));
    actor_reach(&A, (struct place){.is = completes_merge}, get_key, 15, 15);
    uint64_t before = rig.clock->now;
    (void)get_key(&B, 22, 22);
    assert_true(rig.clock->now - before > 60000ull * 1000000); /* for leases, not for attempts */
    expect_ok(actor_go_on(&A));
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A leaf with a long separator is merged, and its memory and that of its separator are used for the
 * same again. But the separator has other bytes. Another session still knows the old ones. */
TEST(a_name_tells_long_separators_apart)
{
    struct knobs knobs = pool_knobs_default;
    knobs.generation_mask = 0;
    open_with(POOL, knobs);
    use_long_keys();
    each_ok(put_key, &B, 0, 31, 1);
    struct chime_spot old = spot_of(&B, 16);
    uint64_t lng = old.name.low.lng;
    assert_true(lng != 0);
    expect_ok(get_key(&A, 16, 16));
    each_ok(delete_key, &B, 16, 21, 1);
    each_ok(delete_key, &B, 8, 14, 1);
    assert_true(spot_of(&B, 16).name.at != old.name.at);
    each_ok(put_key, &B, 16, 20, 1);
    struct op *op = &B.s->op;
    unsigned block_class = size_class_for(block_bytes(10, keys.value_len));
    gaddr block = 0;
    expect_ok(op_begin(op, NULL));
    expect_ok(pool_alloc(op, 0, block_class, &block));
    op_end(op);
    bool node_found = false, separator_found = false;
    for (unsigned i = 0; i < 100 && !(node_found && separator_found); i++) {
        node_found |= take_all(node_class(), old.name.at);
        separator_found |= take_all(pointer_class(lng), pointer_gaddr(lng));
        expect_ok(get_key(&A, 1, 1));
        expect_ok(get_key(&B, 1, 1));
    }
    assert_true(node_found && separator_found);
    pool_free_unpublished(op->client, old.name.at, node_class());
    pool_free_unpublished(op->client, pointer_gaddr(lng), pointer_class(lng));
    pool_free_unpublished(op->client, block, block_class);
    expect_ok(put_key(&B, 21, 21));
    assert_int_equal(spot_of(&B, 23).name.at, old.name.at);
    expect_ok(get_key(&B, 16, 16));
    expect_ok(get_key(&A, 16, 16));
}

/* A remembers this first child of an internal node that was at that address once, and ended
 * there. */
static void remember_old(gaddr at, struct chime_child child, gaddr next, uint64_t high)
{
    uint64_t words[16] = {0};
    struct index_cache_stamp long_ago = {.epoch = 0, .version = UINT64_MAX};
    struct chime_inner *n = (struct chime_inner *)words;
    assert_true(chime_inner_bytes(1) <= sizeof words);
    n->next = next;
    n->high.k = high;
    n->bytes = (uint32_t)chime_inner_bytes(1);
    n->count = n->level = 1;
    n->child[0] = child;
    for (unsigned i = 0; i < 100 && A.s->op.epoch == 0; i++) { /* so that it is doubted */
        expect_ok(op_begin(&B.s->op, NULL));
        (void)client_drive_epoch(&B.s->op);
        op_end(&B.s->op);
        expect_ok(get_key(&B, 2, 2));
        expect_ok(get_key(&A, 2, 2));
    }
    assert_true(A.s->op.epoch > 0);
    index_cache_drop(view_of(&A)->cache, at);
    assert_true(index_cache_put(view_of(&A)->cache, at, long_ago, n, n->bytes));
}

/* Even keys, until there are two internal nodes. Returns the last one. */
static uint64_t fill_two_parents(void)
{
    uint64_t n = 0;
    do {
        n += 2;
        expect_ok(put_key(&B, n, n));
    } while (spot_of(&B, 2).parent == spot_of(&B, n).parent);
    return n;
}

/* The last leaf of an internal node is split. A does not know that. And what it knows of the next
 * internal node is from another one that was there before. That one began where the leaf ends now,
 * with a leaf at the same address. So the name that A expects of the leaf is right, but for another
 * key. */
TEST(a_leaf_ends_where_its_parent_does)
{
    for (unsigned puts = 0; puts < 2; puts++) {
        (void)set_up(NULL);
        struct chime_spot next = spot_of(&B, fill_two_parents());
        uint64_t low = next.name.low.k;
        while (spot_of(&B, low).parent == next.parent)
            low = spot_of(&B, low).name.low.k - 2;
        struct chime_spot last = spot_of(&B, low); /* of the left parent */
        expect_ok(get_key(&A, low, low));
        expect_ok(put_key(&B, last.name.low.k + 1, 1)); /* a split */
        struct chime_spot born = spot_of(&B, low);
        assert_true(born.name.at != last.name.at);
        remember_old(next.parent, (struct chime_child){born.name.low.k, born.name.at}, 0, 0);
        if (puts)
            expect_ok(put_key(&A, low + 1, 1));
        expect_ok(get_key(puts ? &B : &A, puts ? low + 1 : low, 0));
        expect_sound_table();
    }
}

/* Two internal nodes. A remembers one of them as another one that was there before, with a higher
 * beginning or a lower end. It looks for a key. */
TEST(an_internal_node_begins_where_others_say)
{
    for (unsigned i = 0; i < 4; i++) {
        bool end = i & 1, scans = i & 2;
        (void)set_up(NULL);
        uint64_t n = fill_two_parents();
        struct chime_spot first = spot_of(&B, 2), last = spot_of(&B, n);
        uint64_t wanted = end ? 20 : last.name.low.k - 2;
        assert_int_equal(spot_of(&B, wanted).parent, end ? first.parent : last.parent);
        expect_ok(get_key(&A, wanted, 0));
        expect_ok(get_key(&A, n, 0));
        if (end)
            remember_old(first.parent, (struct chime_child){0, first.name.at}, last.parent, 10);
        else
            remember_old(last.parent, (struct chime_child){last.name.low.k, last.name.at}, 0, 0);
        expect_ok(scans ? scan_keys(&A, wanted, 1) : get_key(&A, wanted, 0));
        char key[16];
        struct far_entry e;
        size_t pos = 0;
        assert_true(!scans || (far_entry_next(scanned, A.found, &pos, &e) &&
                               memcmp(e.key, key, key_bytes(wanted, key)) == 0));
    }
}

/* ---- what is remembered of a parent ---------------------------------------------------------- */

/* Until the memory of the right leaf is used again; A works meanwhile. Then A must find where a key
 * of that leaf is now. */
static void use_again_and_look(uint64_t n)
{
    for (; n < 100000 && is_dead(right.name.at); n++) {
        expect_ok(put_key(&B, n, n));
        expect_ok(get_key(&A, 1, 1));
    }
    each_ok(put_key, &B, n, n + 7, 1);
    expect_ok(put_key(&A, 21, 21));
    expect_ok(get_key(&B, 21, 21));
}

/* A has entered a leaf into its parent, and waits for the answer. Meanwhile another leaf of that
 * parent is merged, and an operation on A's ring finds that the version has changed. */
TEST(what_is_remembered_is_as_old_as_it_is)
{
    prepare_merge(55);
    actor_reach(&A,
                (struct place){A_WRITE, .side = AFTER_REQUEST, .len = 16, .least = 4,
                               .of = right.parent, .delta = 8,
                               .bytes = view_of(&B)->shape.bytes - 8},
                put_key, 56, 56);
    expect_ok(delete_key(&B, 14, 14));
    struct cached *cached = &view_of(&A)->base.cached;
    cached->version = word_at(cached->version_at, cached->version_delta);
    expect_ok(actor_go_on(&A));
    assert_true(is_dead(right.name.at));
    use_again_and_look(57);
}

/* ---- two that have died, one on the other ---------------------------------------------------- */

static gaddr merged_at; /* only the merge of this node stops */

static bool merges_it(const struct fab_req *req, unsigned i)
{
    return i == 0 && req->count >= 12 && req->verbs[0].kind == FAB_WRITE &&
           req->verbs[0].off == gaddr_offset(merged_at) + offsetof(struct chime_head, state);
}

static void delete_and_die(uint64_t n, gaddr at, unsigned verbs)
{
    actor_join(&C, NULL);
    expect_ok(get_key(&C, 1, 1));
    uint64_t owner = client_owner_word(&C.s->client);
    merged_at = at;
    expect_ok(die_in(&C, merges_it, verbs, delete_key, n));
    shut_out(owner);
}

/* A client dies when it has merged two internal nodes, but for the parent. The left one is
 * recovered. Another client dies when it has merged two of its leaves, but for the left one itself.
 * Then the right one is recovered. */
TEST(the_partner_of_a_node_is_recovered_with_its_children)
{
    open_with("mem:?size=1m&clients=16", pool_knobs_default);
    each_ok(put_key, &B, 0, 127, 1);
    each_ok(delete_key, &B, 111, 73, -1);
    each_ok(delete_key, &B, 127, 114, -1);
    gaddr low = spot_of(&B, 72).parent, high = spot_of(&B, 112).parent;
    assert_true(low != high);
    delete_and_die(113, high, 7);
    each_ok(put_key, &B, 73, 80, 1); /* the split recovers the left one */
    assert_true(word_at(low, 0) == 0);
    each_ok(delete_key, &B, 80, 78, -1);
    gaddr leaf = chime_next_at(word_at(spot_of(&B, 76).name.at, offsetof(struct chime_head, next)));
    delete_and_die(77, leaf, 4);
    assert_true(word_at(low, 0) != 0 && word_at(leaf, 0) != 0);
    (void)get_key(&A, 112, 112);
    int rc = put_key(&A, 112, 112);
    for (unsigned i = 0; i < 3 && rc != FAR_OK; i++)
        rc = put_key(&A, 112, 112);
    expect_ok(rc);
    expect_ok(get_key(&B, 112, 112));
}

/* ---- cursors --------------------------------------------------------------------------------- */

/* A client dies when it has merged two leaves, but for the lock of the right one. The left one is
 * merged and freed, too. An iteration has come to the right one before. */
TEST(an_iteration_passes_a_leaf_whose_merge_nobody_ended)
{
    char buf[4096];
    size_t len = 0;
    die_in_merge_and_be_shut_out(9);
    uint64_t range[4] = {22 - 6, 0, 0, 0};
    uint64_t check = hash_sum(range, sizeof range, view_of(&B)->seed ^ 0x6368696d65637572ull);
    uint64_t cursor = right.name.at | (check & 0xfff) << (GADDR_BITS + 12);
    each_ok(delete_key, &B, 0, 6, 1);
    expect_ok(put_key(&B, 15, 15)); /* the left one is recovered */
    each_ok(put_key, &B, 64, 79, 1);
    expect_ok(put_key(&B, 6, 6));
    expect_ok(delete_key(&B, 6, 6)); /* merges */
    bool taken = false;
    for (unsigned i = 0; i < 100 && !taken; i++) {
        taken = take_all(node_class(), left.name.at);
        expect_ok(get_key(&A, 7, 7));
        expect_ok(get_key(&B, 7, 7));
    }
    assert_true(taken);
    for (size_t at = 0; at < sizeof(struct chime_head); at += 8) /* it is a block now */
        store_rig_set(&rig, left.name.at, at, 0x1111);
    expect_ok(far_iterate(B.s, B.t, &cursor, 0, buf, sizeof buf, &len));
}

/* An iteration has returned one of several keys with the same turn. Its leaf is gone, and another
 * leaf that was in the same memory since is dead, too. That one had higher keys. */
TEST(an_iteration_among_keys_of_one_turn_does_not_trust_a_dead_leaf)
{
    bool found[24] = {false};
    each_ok(put_key, &B, 0, 23, 1);
    gaddr leaf = spot_of(&B, 16).name.at;
    each_ok(delete_key, &B, 18, 23, 1);
    each_ok(delete_key, &B, 9, 15, 1);
    assert_true(is_dead(leaf));
    uint64_t cursor = leaf | 7ull << GADDR_BITS | 1ull << (GADDR_BITS + 9) | 0x123ull << 52;
    do {
        char buf[4096];
        size_t len = 0;
        struct far_entry entry;
        expect_ok(far_iterate(B.s, B.t, &cursor, 0, buf, sizeof buf, &len));
        for (size_t at = 0; far_entry_next(buf, len, &at, &entry);)
            found[((const unsigned char *)entry.key)[7]] = true;
    } while (cursor != 0);
    for (unsigned n = 0; n < 9; n++)
        assert_true(found[n]);
}

/* Does the parent of the merged leaves name this child? */
static bool is_named(gaddr child)
{
    struct image parent;
    bool named = false;
    image_read(&rig, view_of(&B), left.parent, &parent);
    for (unsigned p = 0; p < view_of(&B)->shape.span; p++)
        named |=
            chime_kind_at(parent.node, p) != CHIME_EMPTY && chime_entry(parent.node, p)[1] == child;
    return named;
}

/* One bit of a leaf's lock is wrong: it looks dead. Its parent is recovered. */
TEST(a_leaf_that_only_looks_dead_is_not_freed)
{
    die_in_merge_and_be_shut_out(1);
    gaddr leaf = spot_of(&B, 40).name.at;
    store_rig_set(&rig, leaf, 0, CHIME_DEAD);
    (void)put_key(&B, 64, 64); /* the split recovers the parent */
    assert_true(word_at(left.parent, 0) == 0);
    store_rig_set(&rig, leaf, 0, 0);
    expect_ok(get_key(&A, 40, 40));
    assert_true(is_named(leaf));
}

/* ---- what a session has retired itself ------------------------------------------------------- */

static gaddr retired_leaf;
static unsigned followed; /* READs of it that take it for valid */

static bool count_followed(const struct fab_req *req, unsigned i)
{
    const struct fab_verb *v = &req->verbs[i];
    followed += v->kind == FAB_READ && !(v->flags & FAB_MAY_BE_FREED) &&
                v->node == gaddr_node(retired_leaf) &&
                v->off - gaddr_offset(retired_leaf) < view_of(&B)->shape.bytes;
    return false;
}

/* A has cached a node that B splits behind it, and then merges two children of the new half. Its
 * image of the old half still names the leaf that is dead now (CACHE-K6). */
static void follow_an_old_image(bool below)
{
    followed = 0;
    keys.factor = 16;
    each_ok(put_key, &B, 0, 63, 1);
    expect_ok(get_key(&A, 63, 63));
    gaddr old = spot_of(&A, 63).parent;
    keys.factor = 1;
    each_ok(put_key, &B, 1, 3, 1);
    keys.factor = 16;
    uint64_t old_top = view_of(&A)->top;
    expect_ok(op_begin(&A.s->op, NULL));
    expect_ok(chime_forget(&A.s->op, view_of(&A), 0));
    op_end(&A.s->op);
    retired_leaf = spot_of(&A, 55).name.at; /* the last but one */
    assert_true(spot_of(&A, 55).parent != old);
    for (uint64_t n = 55; n >= 40; n--)
        if (n % 8 != 0)
            expect_ok(delete_key(&A, n, n));
    assert_true(spot_of(&B, 48).name.at != retired_leaf);
    for (unsigned i = 0; i < 32; i++) /* the epoch goes on */
        expect_ok(get_key(i % 2 ? &A : &B, 63, 63));
    if (below) /* what is above the node is as old */
        view_of(&A)->top = old_top;
    expect_ok(below ? actor_begin(&A, (struct place){.is = count_followed}, get_key, 48, 0)
                    : actor_begin(&A, (struct place){.is = count_followed}, scan_keys, 0, 200));
    assert_int_equal(followed, 0);
}

TEST(an_old_image_does_not_lead_a_scan_to_what_its_session_has_retired)
{
    follow_an_old_image(false);
}

TEST(an_old_image_does_not_lead_down_to_what_its_session_has_retired)
{
    follow_an_old_image(true);
}

/* ---- what a recovery leaves behind ----------------------------------------------------------- */

/* A get writes that much only if it recovers something. */
static bool recovers(const struct fab_req *req, unsigned i)
{
    return i == 0 && req->count >= 5 && req->verbs[0].kind == FAB_WRITE;
}

/* A merge was decided, and its client died. Another one completes it, and dies after some verbs, or
 * not if that is 0. Then a key of the right leaf gets another value. A session that still knows the
 * right leaf must not find the old value there. */
TEST(nobody_reads_a_node_whose_merge_others_completed)
{
    for (unsigned verbs = 0; verbs <= 7; verbs++) {
        (void)set_up(NULL);
        die_in_merge(4);
        actor_join(&C, NULL);
        actor_join(&A, NULL); /* the reader */
        expect_ok(get_key(&A, 22, 22));
        expect_ok(get_key(&C, 1, 1));
        if (verbs > 0) {
            (void)die_in(&C, recovers, verbs, get_key, 15);
        } else {
            (void)get_key(&C, 15, 15);
            actor_kill(&C);
        }
        expect_ok(put_key(&B, 22, 1000));
        expect_ok(get_key(&A, 22, 0));
        assert_int_equal(A.found, 1000);
    }
}

/* The left leaf was recovered, and the right one is dead. The parent, which the dead client holds,
 * still names it. */
static void leave_dead_child(void)
{
    die_in_merge(4);
    expect_ok(put_key(&B, 15, 15));
    assert_true(is_dead(right.name.at));
    assert_true(word_at(left.parent, 0) != 0);
}

TEST(a_dead_child_is_retired)
{
    leave_dead_child();
    uint64_t before = B.s->client.stock.retired_ever;
    expect_ok(get_key(&B, 22, 22));
    assert_true(word_at(left.parent, 0) == 0);
    assert_int_equal(B.s->client.stock.retired_ever - before, size_class_bytes(node_class()));
}

/* A recovery takes a dead child out of its parent. Another session learns of the table, and reads
 * the parent, before that is written. Whatever was cached of the parent before becomes old
 * (CHIME-C10). */
TEST(a_recovery_outdates_caches_after_its_change)
{
    leave_dead_child();
    actor_join(&A, NULL);
    actor_reach(&B,
                (struct place){A_WRITE, .side = BEFORE_REQUEST, .of = left.parent,
                               .delta = chime_group_at(0), .bytes = 8,
                               .len = view_of(&B)->shape.group_bytes},
                get_key, 22, 22);
    expect_ok(get_key(&A, 1, 1));
    expect_ok(actor_go_on(&B));
    use_again_and_look(64);
}

/* A client wants to enter a leaf that it has split off. Others did so since, and merged it again.
 * The client that merged died when only the lock of the leaf did not say so. */
TEST(a_merged_leaf_is_not_entered)
{
    struct chime_wait wait = {0};
    die_in_merge_and_be_shut_out(9);
    struct chime_child_ref child = {.at = right.name.at, .k = right.name.low.k};
    expect_ok(op_begin(&B.s->op, NULL));
    expect_ok(chime_enter(&B.s->op, view_of(&B), &child, &wait));
    op_end(&B.s->op);
    assert_false(is_dead(right.name.at));
    assert_false(is_named(right.name.at));
}

/* ---- a leaf that its parent does not know ---------------------------------------------------- */

/* A splits a leaf by a key. The lock of the parent cannot be taken. */
static void split_unknown(gaddr parent, uint64_t number)
{
    actor_reach(
        &A, (struct place){A_CAS, .side = BEFORE_REQUEST, .of = parent, .bytes = 8, .each = true},
        put_key, number, number);
    int rc = STOPPED;
    while (rc == STOPPED)
        rc = actor_refuse(&A, FAR_UNREACHABLE);
    expect_ok(rc);
}

TEST(a_merge_takes_only_neighbours)
{
    each_ok(put_key, &B, 0, 126, 2);
    expect_ok(get_key(&A, 0, 0));
    split_unknown(spot_of(&B, 16).parent, 17); /* 24 to 30 are in a new leaf */
    each_ok(delete_key, &B, 34, 44, 2);
    expect_ok(delete_key(&B, 17, 17));
    each_ok(delete_key, &B, 18, 22, 2);
    each_ok(get_key, &B, 24, 32, 2);
    expect_sound_table();
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

/* The client that merged may have died before it changed the version of caches (CHIME-C10). */
TEST(a_sweep_outdates_caches)
{
    struct sweep_result swept;
    actor_leave(&A);
    expect_ok(put_key(&B, 1, 1));
    const struct cached *cached = &view_of(&B)->base.cached;
    uint64_t version = word_at(cached->version_at, cached->version_delta);
    expect_ok(pool_sweep(&B.s->op, &swept));
    assert_true(word_at(cached->version_at, cached->version_delta) != version);
}

/* A client dies while it merges two leaves, whose keys all begin with the same 8 bytes. The left
 * leaf was recovered. A sweep finds the dead leaf and its separator only by the parent. */
TEST(a_sweep_spares_a_dead_child)
{
    struct sweep_result swept;
    use_long_keys();
    leave_dead_child();
    uint64_t lng = right.name.low.lng;
    assert_true(lng != 0);
    expect_ok(pool_sweep(&B.s->op, &swept));
    assert_true(word_at(right.parent, 0) != 0);
    assert_false(take_all(node_class(), right.name.at));
    assert_false(take_all(pointer_class(lng), pointer_gaddr(lng)));
}

/* The separator of a leaf that its parent does not know is named only by the leaf, and by its left
 * sibling. */
TEST(a_sweep_spares_the_separator_of_an_unknown_leaf)
{
    struct sweep_result swept;
    use_long_keys();
    each_ok(put_key, &B, 0, 63, 1);
    expect_ok(get_key(&A, 1, 1));
    split_unknown(spot_of(&B, 63).parent, 64);
    actor_leave(&A);
    uint64_t lng = word_at(spot_of(&B, 63).name.at,
                           offsetof(struct chime_head, high) + offsetof(struct chime_edge, lng));
    assert_true(lng != 0);
    expect_ok(pool_sweep(&B.s->op, &swept));
    assert_false(take_all(pointer_class(lng), pointer_gaddr(lng)));
}

/* ---- resting --------------------------------------------------------------------------------- */

/* B wants to put a key, but A holds a lock. While B rests, nothing is in its hands that a sweep
 * would not find. Then the lock is free. */
static void expect_no_block_at_rest(gaddr locked, uint64_t number)
{
    far_session *sessions[] = {A.s, B.s, C.s};
    struct audit audit;
    struct op *op = &C.s->op;
    store_rig_set(&rig, locked, 0, client_owner_word(&A.s->client));
    actor_reach(&B, (struct place){.waits = true, .each = true}, put_key, number, number);
    while (op_in_flight(&B.s->op))
        assert_int_equal(actor_go_on(&B), STOPPED);
    expect_sound(&rig, sessions, 3, &audit);
    assert_int_equal(audit.bytes[AUDIT_NOWHERE], 0);
    op->word[0] = 0;
    batch_write(&op->batch, MARK_EARLY, locked, 0, op->word, 8);
    expect_ok(batch_flush(&op->batch));
    expect_ok(actor_go_until(&B, NOWHERE));
}

static void open_for_rest(struct knobs knobs, uint64_t last)
{
    open_with(POOL "&" HOUR, knobs);
    use_long_keys();
    actor_join(&C, NULL);
    each_ok(put_key, &B, 0, last, 1);
    expect_ok(get_key(&A, 1, 1));
    expect_ok(get_key(&C, 1, 1));
}

/* A change has written its block, and rests because somebody holds the lock. */
TEST(a_change_has_no_block_while_it_rests)
{
    open_for_rest(pool_knobs_default, 7);
    expect_no_block_at_rest(spot_of(&B, 1).name.at, 3);
}

/* The same, when the leaf is to be entered into its parent, and somebody holds that. */
TEST(a_change_has_no_block_while_it_waits_for_a_parent)
{
    struct knobs knobs = pool_knobs_default;
    knobs.patience = 8;
    open_for_rest(knobs, 55);
    gaddr parent = spot_of(&B, 55).parent;
    split_unknown(parent, 56);
    expect_no_block_at_rest(parent, 57);
}

/* ---- a scan during a merge ------------------------------------------------------------------- */

/* The first two leaves are read. Then the third is merged into the second. No leaf has a stem, so
 * Ks do not tell what was passed. */
TEST(a_scan_leaves_out_what_it_has_passed)
{
    size_t pos = 0;
    struct far_entry e, last = {0};
    struct knobs knobs = pool_knobs_default;
    knobs.stem_slack = FAR_KEY_MAX;
    open_with(POOL, knobs);
    use_long_keys();
    prepare_merge(63);
    actor_reach(&A,
                (struct place){A_READ, .nth = 3, .least = 4, .len = view_of(&B)->shape.group_bytes},
                scan_keys, 0, 0);
    expect_ok(delete_key(&B, 14, 14));
    assert_true(is_dead(right.name.at));
    expect_ok(actor_go_on(&A));
    for (; far_entry_next(scanned, A.found, &pos, &e); last = e)
        assert_true(!last.key || memcmp(last.key, e.key, 10) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPT(keys_behind_an_unknown_split_can_be_used_in_a_full_pool),
        SCRIPT(a_session_learns_that_the_tree_has_grown),
        SCRIPT(a_dead_node_is_not_freed_while_its_sibling_names_it),
        SCRIPT(a_get_rests_while_another_session_recovers),
        SCRIPT(a_split_without_local_memory_releases_its_lock),
        SCRIPT(a_name_tells_long_separators_apart),
        SCRIPT(a_leaf_ends_where_its_parent_does),
        SCRIPT(an_internal_node_begins_where_others_say),
        SCRIPT(what_is_remembered_is_as_old_as_it_is),
        SCRIPT(the_partner_of_a_node_is_recovered_with_its_children),
        SCRIPT(an_iteration_passes_a_leaf_whose_merge_nobody_ended),
        SCRIPT(an_iteration_among_keys_of_one_turn_does_not_trust_a_dead_leaf),
        SCRIPT(a_leaf_that_only_looks_dead_is_not_freed),
        SCRIPT(an_old_image_does_not_lead_a_scan_to_what_its_session_has_retired),
        SCRIPT(an_old_image_does_not_lead_down_to_what_its_session_has_retired),
        SCRIPT(nobody_reads_a_node_whose_merge_others_completed),
        SCRIPT(a_dead_child_is_retired),
        SCRIPT(a_recovery_outdates_caches_after_its_change),
        SCRIPT(a_merged_leaf_is_not_entered),
        SCRIPT(a_merge_takes_only_neighbours),
        SCRIPT(a_sweep_outdates_caches),
        SCRIPT(a_sweep_spares_a_dead_child),
        SCRIPT(a_sweep_spares_the_separator_of_an_unknown_leaf),
        SCRIPT(a_change_has_no_block_while_it_rests),
        SCRIPT(a_change_has_no_block_while_it_waits_for_a_parent),
        SCRIPT(a_scan_leaves_out_what_it_has_passed),
    };
    return cmocka_run_group_tests(tests, NULL, rig_close);
}
