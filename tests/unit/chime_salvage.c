/* Groups of CHIME with flipped bits (CHIME-C11, CHIME-C12): what needs them fails, and nothing else
 * does. */
#include "support/chime_image.h"
#include "support/damage_rig.h"
#include "support/hook.h"

#define TUNING "span=32&neighbourhood=4&cache=16&hot=0"
#define FEW    18u  /* keys that fit into one leaf */
#define MANY   300u /* keys that do not            */

/* First bytes that do not tell keys apart: then leaves have stems. */
static const struct form alike = {28, 100, 20};

struct rig {
    struct damage_rig d;
    struct chime_view *view;
    struct image leaf; /* the only one at first, as it was */
    unsigned group;    /* of it, which is damaged: the one with the most entries */
};

/* Keys are not in order: the numbers are mixed. */
static uint64_t key_word(uint64_t n)
{
    return n * 0x9e3779b97f4a7c15u;
}
static uint64_t key_number(uint64_t word)
{
    return word * 0xf1de83e19937733du; /* the inverse */
}

/* Is the damaged group, of whatever leaf, in the key's neighbourhood? */
static bool concerned(struct rig *g, uint64_t n)
{
    char bytes[32];
    struct chime_key key;
    chime_key_set(g->view, key_of(&g->d, n, bytes), &key);
    struct chime_window w = chime_window(&g->view->shape, key.home);
    return (g->group + g->view->shape.groups - w.first) % g->view->shape.groups < w.count;
}

static uint64_t word_of(struct rig *g, unsigned word)
{
    return store_rig_get(&g->d.r, g->leaf.at, chime_group_at(g->group) + 8 * word);
}
static void set_word(struct rig *g, unsigned word, uint64_t to)
{
    store_rig_set(&g->d.r, g->leaf.at, chime_group_at(g->group) + 8 * word, to);
}
static unsigned used(struct rig *g)
{
    unsigned count = 0;
    for (unsigned i = 0; i < CHIME_GROUP; i++)
        count += chime_kind(word_of(g, 0), i) != CHIME_EMPTY;
    return count;
}
static unsigned bit_of_value(struct rig *g)
{
    unsigned i = 0;
    while (chime_kind(word_of(g, 0), i) == CHIME_EMPTY)
        i++;
    return 64 * (2 + 2 * i) + 7;
}

static void open_rig(struct rig *g, struct form form)
{
    *g = (struct rig){.d = {.form = form}};
    damage_rig_open(g, "chime", TUNING, FEW);
    g->view = chime_view(store_known(g->d.s, g->d.t)->view);
    image_read_top(&g->d.r, g->view, &g->leaf);
    assert_int_equal(chime_head(g->leaf.node)->level, 0);
    assert_true(choose_part(g, &g->group, g->view->shape.groups) >= 3);
}

/* ---- iterating and scanning ------------------------------------------------------------------ */

static void iterations_and_scans_go_past_a_damaged_group_and_say_so(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        struct seen seen;
        open_rig(&g, forms[f]);
        unsigned there = used(&g);
        flip(&g, bit_of_value(&g));
        expect_passed_once(&g, CHIME_GROUP, FEW - there);
        collect(&g, FAR_OP_SCAN, &seen);
        assert_int_equal(seen.count, FEW - there);
        assert_true(seen.partial > 0);
        close_rig(&g);
    }
}

/* ---- sweeping -------------------------------------------------------------------------------- */

/* A bit, or all kinds of entries, are damaged while the pool is swept, and restored behind that. */
static void a_sweep_frees_nothing_that_a_damaged_group_points_to(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++)
        for (unsigned kinds = 0; kinds < 2; kinds++) {
            struct rig g;
            open_rig(&g, forms[f]);
            uint64_t good = word_of(&g, 0);
            sweep_beside_damage(&g, 0, kinds ? good & ~0xffull : good ^ 1ull << CHIME_SUM_AT);
            expect_all(&g, FEW);
            close_rig(&g);
        }
}

static void a_marker_hears_of_damage(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, forms[0]);
    expect_marker_hears(&g);
    close_rig(&g);
}

/* ---- inserts and splits ---------------------------------------------------------------------- */

/* Puts many keys. Those whose neighbourhood has the damaged group are refused, and only those. */
static void grow(struct rig *g)
{
    unsigned refused = 0;
    for (uint64_t n = FEW; n < MANY; n++) {
        int rc = put_n(g, n);
        assert_int_equal(rc, concerned(g, n) ? FAR_CORRUPT : FAR_OK);
        refused += rc != FAR_OK;
    }
    assert_true(refused > 0 && refused < (MANY - FEW) / 2);
    assert_true(g->view->base.grown > 1);
}

static void keys_of_other_groups_are_inserted_and_a_split_copies_the_damage(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++)
        for (unsigned bits = 1; bits <= 2; bits++) {
            struct rig g;
            struct seen seen;
            open_rig(&g, forms[f]);
            flip(&g, bit_of_value(&g));
            if (bits == 2)
                flip(&g, bit_of_value(&g) + 1);
            grow(&g);
            for (uint64_t n = 0; n < MANY; n++) {
                int rc = get_n(&g, n);
                assert_true(rc == FAR_OK || (rc == FAR_CORRUPT && concerned(&g, n)));
            }
            collect(&g, FAR_OP_ITERATE, &seen);
            assert_int_equal(seen.damaged, CHIME_GROUP * (g.view->base.grown + 1));
            close_rig(&g);
        }
}

/* ---- repairing ------------------------------------------------------------------------------- */

/* Every kind of bit: of the kinds, the era, the tag and the checksum; of a key and a value. */
static void a_repair_undoes_one_flipped_bit(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        const unsigned bits[] = {
            0, 1, 10, CHIME_TAG_AT, CHIME_SUM_AT + 9, bit_of_value(&g) - 64, bit_of_value(&g)};
        for (unsigned i = 0; i < sizeof bits / sizeof bits[0]; i++)
            expect_undone(&g, bits[i], FEW);
        close_rig(&g);
    }
}

static void a_repair_keeps_the_entries_that_prove_themselves(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        expect_proved_kept(&g, f == 0, FEW);
        close_rig(&g);
    }
}

/* The places of the first two entries of the damaged group. */
static void first_two(struct rig *g, unsigned two[2])
{
    unsigned count = 0;
    for (unsigned i = 0; i < CHIME_GROUP && count < 2; i++)
        if (chime_kind(word_of(g, 0), i) != CHIME_EMPTY)
            two[count++] = i;
    assert_int_equal(count, 2);
}

/* A pointer that leads to a whole block of another key. */
static void a_repair_takes_no_entry_without_proof(void **state)
{
    struct rig g;
    unsigned two[2];
    (void)state;
    open_rig(&g, forms[1]);
    unsigned there = used(&g);
    first_two(&g, two);
    set_word(&g, 2 + 2 * two[0], word_of(&g, 2 + 2 * two[1]));
    struct far_pool_check check = repair(&g);
    assert_int_equal(check.salvaged, there - 1);
    assert_int_equal(check.lost, 1);
    close_rig(&g);
}

/* The same entry in two places of the group, both in the key's neighbourhood, or in two groups. */
static void a_repair_keeps_a_key_once(void **state)
{
    struct rig g;
    char bytes[32];
    struct chime_key key;
    (void)state;
    open_rig(&g, forms[1]);
    unsigned from = CHIME_GROUP, to = 0, there = used(&g), hood = g.view->shape.hood;
    for (unsigned i = 0; i + 1 < CHIME_GROUP && from == CHIME_GROUP; i++) {
        uint64_t k = __builtin_bswap64(word_of(&g, 1 + 2 * i));
        chime_key_set(g.view, (struct slice){memcpy(bytes, &k, 8), 8}, &key);
        unsigned place = CHIME_GROUP * g.group + i + 1;
        if (chime_kind(word_of(&g, 0), i) == CHIME_BLOCK &&
            chime_kind(word_of(&g, 0), i + 1) == CHIME_BLOCK &&
            ((place - key.home) & (g.view->shape.span - 1)) < hood) {
            from = i;
            to = i + 1;
        }
    }
    assert_true(from < CHIME_GROUP);
    for (unsigned i = 1; i <= 2; i++)
        set_word(&g, 2 * to + i, word_of(&g, 2 * from + i));
    struct far_pool_check check = repair(&g);
    assert_int_equal(check.salvaged, there - 1);
    close_rig(&g);
}

/* A bit of the range: no group fits, so it is not known what the leaf is. */
static void a_damaged_range_is_not_taken_for_damaged_groups(void **state)
{
    struct rig g;
    char buf[2048];
    size_t len = 0;
    uint64_t cursor = 0, at = offsetof(struct chime_head, high);
    (void)state;
    open_rig(&g, forms[0]);
    store_rig_set(&g.d.r, g.leaf.at, at, store_rig_get(&g.d.r, g.leaf.at, at) ^ 64);
    assert_int_equal(far_iterate(g.d.s, g.d.t, &cursor, 0, buf, sizeof buf, &len), FAR_CORRUPT);
    close_rig(&g);
}

/* A key was deleted. Its entry is as it was, but for its kind; the block may still be whole. */
static void a_repair_does_not_bring_back_what_was_deleted(void **state)
{
    struct rig g;
    unsigned two[2];
    char bytes[32];
    size_t len = 0;
    (void)state;
    open_rig(&g, forms[1]);
    unsigned there = used(&g);
    first_two(&g, two);
    uint64_t g0 = word_of(&g, 0), v = word_of(&g, 2 + 2 * two[0]);
    uint64_t key = __builtin_bswap64(word_of(&g, 1 + 2 * two[0]));
    assert_int_equal(far_delete(g.d.s, g.d.t, &key, 8), FAR_OK);
    assert_int_equal(word_of(&g, 2 + 2 * two[0]), v);
    set_word(&g, 0,
             g0 ^ 3ull << CHIME_SUM_AT); /* more than one bit is wrong: the kind, and others */
    struct far_pool_check check = repair(&g);
    assert_int_equal(check.salvaged, there - 1);
    assert_int_equal(far_get(g.d.s, g.d.t, &key, 8, bytes, sizeof bytes, &len), FAR_NOT_FOUND);
    close_rig(&g);
}

static void a_repair_after_splits_loses_nothing(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        flip(&g, bit_of_value(&g));
        grow(&g);
        struct far_pool_check check = repair(&g);
        assert_true(check.repaired >= 2);
        assert_int_equal(check.lost, 0);
        for (uint64_t n = 0; n < MANY; n++)
            assert_int_equal(get_n(&g, n), n < FEW || !concerned(&g, n) ? FAR_OK : FAR_NOT_FOUND);
        close_rig(&g);
    }
}

/* Beyond one bit, all leaves have all entries of the group. Each keeps its own. */
static void a_repair_after_splits_keeps_what_proves_itself(void **state)
{
    (void)state;
    for (unsigned f = 0; f <= FORMS; f++) {
        struct rig g;
        open_rig(&g, f < FORMS ? forms[f] : alike);
        unsigned there = used(&g), missing = 0;
        flip(&g, bit_of_value(&g));
        flip(&g, bit_of_value(&g) + 1);
        grow(&g);
        struct far_pool_check check = repair(&g);
        for (uint64_t n = 0; n < FEW; n++)
            missing += get_n(&g, n) != FAR_OK;
        assert_int_equal(missing, f == 0 ? there : 1);
        assert_int_equal(check.salvaged, there - missing);
        close_rig(&g);
    }
}

/* The last leaf, which has a stem (CHIME-C14). */
static void to_last_leaf(struct rig *g)
{
    for (gaddr at = g->leaf.at; at != 0; at = chime_next_at(chime_head(g->leaf.node)->next))
        image_read(&g->d.r, g->view, at, &g->leaf);
    assert_true(chime_head_stem(chime_head(g->leaf.node)).len > 0);
    assert_true(choose_part(g, &g->group, g->view->shape.groups) >= 3);
}

static void a_repair_after_splits_of_a_leaf_with_a_stem_keeps_what_proves_itself(void **state)
{
    struct rig g;
    unsigned missing = 0;
    (void)state;
    open_rig(&g, alike);
    for (uint64_t n = FEW; n < 2 * FEW; n++)
        assert_int_equal(put_n(&g, n), FAR_OK);
    to_last_leaf(&g);
    unsigned there = used(&g);
    flip(&g, bit_of_value(&g));
    flip(&g, bit_of_value(&g) + 1);
    for (uint64_t n = 2 * FEW; n < MANY; n++)
        (void)put_n(&g, n);
    struct far_pool_check check = repair(&g);
    for (uint64_t n = 0; n < 2 * FEW; n++)
        missing += get_n(&g, n) != FAR_OK;
    assert_int_equal(missing, 1);
    assert_int_equal(check.salvaged, there - 1);
    close_rig(&g);
}

/* ---- a client that dies beside damage -------------------------------------------------------- */

static unsigned verbs_left;
static bool died;

/* The client dies after some verbs. */
static int post_until_death(struct fab_ep *ep, struct fab_req *req)
{
    unsigned count = req->count;
    if (died || verbs_left == 0) {
        died = true;
        return FAR_UNREACHABLE;
    }
    if (count <= verbs_left) {
        verbs_left -= count;
        return hook.real->post(ep, req);
    }
    died = true;
    req->count = verbs_left;
    int rc = hook.real->post(ep, req);
    req->count = count;
    req->status = FAR_UNKNOWN;
    return rc;
}

/* Another session puts keys until it dies. Returns how many it has put. */
static uint64_t put_until_death(struct rig *g, unsigned verbs)
{
    far_session *mine = g->d.s, *other = store_rig_join(&g->d.r);
    uint64_t n = FEW;
    g->d.s = other;
    (void)get_n(g, 0); /* it opens the table */
    verbs_left = verbs;
    died = false;
    hook_on(other->client.ep);
    hook.ops.post = post_until_death;
    while (!died && n < MANY) {
        int rc = put_n(g, n);
        n += rc == FAR_OK || rc == FAR_CORRUPT;
    }
    hook_off();
    store_rig_kill(other);
    g->d.s = mine;
    return n;
}

/* What it held is recovered, and what was damaged is as damaged as before. */
static void go_on_after_death(struct rig *g, uint64_t put, bool one_bit)
{
    for (uint64_t n = put; n < MANY; n++) {
        int rc = FAR_CONTENTION;
        for (unsigned i = 0; i < 8 && rc == FAR_CONTENTION; i++)
            rc = put_n(g, n);
        assert_int_equal(rc, concerned(g, n) ? FAR_CORRUPT : FAR_OK);
    }
    for (uint64_t n = 0; n < MANY; n++) {
        int rc = get_n(g, n);
        assert_true(rc == FAR_OK || (rc == FAR_CORRUPT && concerned(g, n)));
    }
    struct far_pool_check check = repair(g);
    assert_true(!one_bit || check.lost == 0);
    for (uint64_t n = 0; n < MANY; n++) {
        int rc = get_n(g, n);
        bool was_put = n < FEW || !concerned(g, n);
        assert_true(rc == FAR_OK || (rc == FAR_NOT_FOUND && (!was_put || (n < FEW && !one_bit))));
    }
}

/* Also in the middle of a split: the new leaf is locked, too. */
static void a_client_that_dies_beside_damage_holds_up_nobody(void **state)
{
    const unsigned step = SLOWER > 1 ? 9 : 3;
    (void)state;
    for (unsigned f = 0; f < FORMS; f++)
        for (unsigned verbs = f; verbs < 160; verbs += step) {
            struct rig g;
            open_rig(&g, forms[f]);
            flip(&g, bit_of_value(&g));
            if (verbs % 2)
                flip(&g, bit_of_value(&g) + 1);
            uint64_t put = put_until_death(&g, verbs);
            assert_true(died);
            go_on_after_death(&g, put, verbs % 2 == 0);
            close_rig(&g);
        }
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* The address of the leaf that has the key. */
static gaddr leaf_of(struct rig *g, uint64_t n)
{
    char bytes[32];
    struct chime_bound bound = chime_key_bound(key_of(&g->d, n, bytes));
    struct chime_wait wait = {0};
    struct chime_spot spot;
    assert_int_equal(op_begin(&g->d.s->op, NULL), FAR_OK);
    assert_int_equal(chime_descend(&g->d.s->op, g->view, &bound, 0, true, &wait, &spot), FAR_OK);
    op_end(&g->d.s->op);
    return spot.name.at;
}

static unsigned entries_of(struct rig *g, gaddr at)
{
    struct image leaf;
    image_read(&g->d.r, g->view, at, &leaf);
    return chime_used(&g->view->shape, chime_vacancy(&g->view->shape, leaf.node));
}

static void flip_head(struct rig *g, gaddr at, unsigned bit)
{
    uint64_t word = store_rig_get(&g->d.r, at, bit / 64 * 8ull);
    store_rig_set(&g->d.r, at, bit / 64 * 8ull, word ^ 1ull << bit % 64);
}

/* Bits of what is in a head, but for the lock, the vacancy and the intent. */
static const unsigned head_bits[] = {
    8 * offsetof(struct chime_head, next) + 7,  8 * offsetof(struct chime_head, next) + 50,
    8 * offsetof(struct chime_head, state) + 3, 8 * offsetof(struct chime_head, low) + 20,
    8 * offsetof(struct chime_head, high) + 41, 8 * offsetof(struct chime_head, level) + 1,
    8 * offsetof(struct chime_head, sum) + 11,
};
#define HEAD_BITS (sizeof head_bits / sizeof head_bits[0])

/* All keys of other leaves come; also if a call ends just before the leaf. */
static void iterations_and_scans_go_past_a_damaged_head(void **state)
{
    struct rig g;
    struct seen seen;
    (void)state;
    open_rig(&g, forms[0]);
    for (uint64_t n = FEW; n < MANY; n++)
        assert_int_equal(put_n(&g, n), FAR_OK);
    for (unsigned i = 0; i < HEAD_BITS; i++)
        for (unsigned parts = 1; parts <= 3; parts += 2) {
            gaddr at = leaf_of(&g, 40 * i);
            unsigned there = entries_of(&g, at);
            g.d.r.pool->pool.knobs.iterate_parts = parts;
            flip_head(&g, at, head_bits[i]);
            collect(&g, FAR_OP_ITERATE, &seen);
            assert_int_equal(seen.count, MANY - there);
            assert_int_equal(seen.damaged, g.view->shape.span);
            collect(&g, FAR_OP_SCAN, &seen); /* by the parents, without the heads */
            assert_int_equal(seen.count, MANY);
            flip_head(&g, at, 64 * CHIME_HEAD_WORDS + CHIME_SUM_AT); /* so it needs the head */
            collect(&g, FAR_OP_SCAN, &seen);
            assert_int_equal(seen.count, MANY - there);
            assert_true(seen.damaged >= g.view->shape.span);
            flip_head(&g, at, 64 * CHIME_HEAD_WORDS + CHIME_SUM_AT);
            flip_head(&g, at, head_bits[i]);
        }
    collect(&g, FAR_OP_ITERATE, &seen);
    assert_int_equal(seen.count, MANY);
    assert_int_equal(seen.damaged, 0);
    close_rig(&g);
}

static void a_repair_corrects_one_bit_of_a_head(void **state)
{
    struct rig g;
    struct far_pool_check check;
    (void)state;
    open_rig(&g, forms[0]);
    for (uint64_t n = FEW; n < MANY; n++)
        assert_int_equal(put_n(&g, n), FAR_OK);
    for (unsigned i = 0; i < HEAD_BITS; i++) {
        gaddr at = leaf_of(&g, 40 * i);
        uint64_t before = store_rig_get(&g.d.r, at, head_bits[i] / 64 * 8ull);
        flip_head(&g, at, head_bits[i]);
        assert_int_equal(far_pool_check(g.d.s, false, NULL, NULL, &check), FAR_CORRUPT);
        heard[0] = '\0';
        if (far_pool_check(g.d.s, true, hear, NULL, &check) != FAR_OK)
            fail_msg("bit %u: %s", head_bits[i], heard);
        assert_int_equal(store_rig_get(&g.d.r, at, head_bits[i] / 64 * 8ull), before);
        expect_all(&g, MANY);
    }
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(iterations_and_scans_go_past_a_damaged_group_and_say_so),
        cmocka_unit_test(a_sweep_frees_nothing_that_a_damaged_group_points_to),
        cmocka_unit_test(a_marker_hears_of_damage),
        cmocka_unit_test(keys_of_other_groups_are_inserted_and_a_split_copies_the_damage),
        cmocka_unit_test(a_repair_undoes_one_flipped_bit),
        cmocka_unit_test(a_repair_keeps_the_entries_that_prove_themselves),
        cmocka_unit_test(a_repair_takes_no_entry_without_proof),
        cmocka_unit_test(a_repair_keeps_a_key_once),
        cmocka_unit_test(a_damaged_range_is_not_taken_for_damaged_groups),
        cmocka_unit_test(a_repair_does_not_bring_back_what_was_deleted),
        cmocka_unit_test(a_repair_after_splits_loses_nothing),
        cmocka_unit_test(a_repair_after_splits_keeps_what_proves_itself),
        cmocka_unit_test(a_repair_after_splits_of_a_leaf_with_a_stem_keeps_what_proves_itself),
        cmocka_unit_test(a_client_that_dies_beside_damage_holds_up_nobody),
        cmocka_unit_test(iterations_and_scans_go_past_a_damaged_head),
        cmocka_unit_test(a_repair_corrects_one_bit_of_a_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
