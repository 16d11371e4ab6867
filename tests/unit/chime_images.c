/* Images of CHIME's nodes: what a group is bound to, and what the walker finds wrong in a node. */
#include "support/chime_rig.h"

static int set_up(void **state)
{
    (void)state;
    rig_open("mem:?size=4m&clients=8", SMALL, &pool_knobs_default, 3);
    actor_join(&A, NULL);
    assert_int_equal(get_key(&B, 1, 0), FAR_NOT_FOUND); /* it knows the table */
    return 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* A number that, as the bytes of a key, has this home. */
static uint64_t key_at_home(unsigned home, unsigned nth)
{
    for (uint64_t number = 1;; number++) {
        char bytes[16];
        struct chime_key key;
        chime_key_set(view_of(&B), (struct slice){bytes, key_bytes(number, bytes)}, &key);
        if (key.home == home && nth-- == 0)
            return number;
    }
}

/* CHIME-C2: no word of a group, and nothing of its node's name, can change without its checksum. */
TEST(a_group_is_bound_to_all_that_it_says)
{
    struct image i;
    for (unsigned nth = 0; nth < 4; nth++)
        expect_ok(put_key(&B, key_at_home(0, nth), nth));
    const struct chime_view *view = view_of(&B);
    image_read_top(&rig, view, &i);
    struct chime_name name = chime_head_name(i.at, chime_head(i.node));
    uint64_t *words = chime_group(i.node, 0);
    assert_true(chime_group_whole(chime_name_seal(view, &name), 0, words));
    assert_false(chime_group_whole(chime_name_seal(view, &name), 1, words));
    for (unsigned w = 0; w < CHIME_GROUP_WORDS; w++) {
        words[w] ^= 1ull << 40;
        assert_false(chime_group_whole(chime_name_seal(view, &name), 0, words));
        words[w] ^= 1ull << 40;
    }
    for (unsigned w = 0; w < sizeof name / 8; w++) {
        struct chime_name other = name;
        ((uint64_t *)&other)[w] ^= 8;
        assert_false(chime_group_whole(chime_name_seal(view, &other), 0, words));
    }
}

/* A READ finds a value that does not belong to its key, because the entry is being written. */
TEST(a_torn_entry_is_no_hit)
{
    uint64_t key = key_at_home(0, 0);
    expect_ok(put_key(&B, key, 4));
    expect_ok(get_key(&A, key, 0));
    actor_reach(&A, (struct place){.is = reads_groups, .side = AFTER_REQUEST}, get_key, key, 0);
    uint64_t *words = A.verb->buf;
    for (unsigned w = 0; w < A.verb->len / 8; w += CHIME_GROUP_WORDS)
        for (unsigned e = 0; e < CHIME_GROUP; e++)
            words[w + 2 + 2 * e] ^= 1;
    expect_ok(actor_go_on(&A));
    assert_int_equal(A.found, 4);
}

TEST(a_value_may_move_into_the_leaf_and_out_of_it)
{
    static const size_t lens[] = {8, 3, 8, 100, 8};
    char value[100] = "a value", got[100];
    size_t len = 0;
    uint64_t key = 7;
    for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
        expect_ok(far_put(B.s, B.t, &key, 8, value, lens[i]));
        expect_ok(far_get(A.s, A.t, &key, 8, got, sizeof got, &len));
        assert_int_equal(len, lens[i]);
        assert_memory_equal(got, value, len);
    }
    expect_whole_table();
}

/* ---- what the walker proves ------------------------------------------------------------------ */
static const char *expected;
static unsigned reported;

static void hear(void *arg, const char *line)
{
    (void)arg;
    reported += strstr(line, expected) != NULL;
}

/* The walker must say this of the table with such a node. */
static void expect_violation(struct image *bad, const char *what)
{
    image_write(&rig, view_of(&B), bad);
    expected = what;
    reported = 0;
    assert_int_equal(far_table_check(B.s, B.t, hear, NULL), FAR_CORRUPT);
    assert_true(reported > 0);
}

/* Makes a tree of `count` keys, and reads its highest node. */
static void make_tree(unsigned count, struct image *top)
{
    each_ok(put_key, &B, 1, count, 1);
    expect_whole_table();
    image_read_top(&rig, view_of(&B), top);
}

static void set_kind(struct image *i, unsigned place, unsigned kind)
{
    uint64_t *word = chime_group(i->node, place / CHIME_GROUP);
    *word = chime_with_kind(*word, place % CHIME_GROUP, kind);
    chime_head(i->node)->vacancy = chime_vacancy(&view_of(&B)->shape, i->node);
}

TEST(the_walker_finds_a_wrong_leaf)
{
    struct image good, bad;
    make_tree(4, &good);
    bad = good;
    chime_head(bad.node)->state = chime_state(CHIME_BORN, bad.at, bad.at, view_of(&B)->seed);
    expect_violation(&bad, "CHIME-W1");
    bad = good;
    chime_head(bad.node)->state =
        1 ^ chime_state(CHIME_BORN, bad.at, bad.at, view_of(&B)->seed); /* a wrong seal */
    expect_violation(&bad, "CHIME-W1");
    bad = good;
    chime_head(bad.node)->next += 1ull << GADDR_BITS; /* another era */
    expect_violation(&bad, "CHIME-W2");
    bad = good;
    chime_head(bad.node)->vacancy ^= 1;
    expect_violation(&bad, "CHIME-W6");
    bad = good;
    unsigned from = image_used(&bad, 0), to = 0;
    while (chime_kind_at(bad.node, to) != CHIME_EMPTY)
        to++;
    memcpy(chime_entry(bad.node, to), chime_entry(bad.node, from), 16);
    set_kind(&bad, to, CHIME_INLINE);
    expect_violation(&bad, "CHIME-W4");
    image_write(&rig, view_of(&B), &good);
    expect_whole_table();
}

TEST(the_walker_finds_a_misplaced_key)
{
    struct image i;
    expect_ok(put_key(&B, key_at_home(0, 0), 1));
    image_read_top(&rig, view_of(&B), &i);
    memcpy(chime_entry(i.node, 5), chime_entry(i.node, 0), 16);
    set_kind(&i, 0, CHIME_EMPTY);
    set_kind(&i, 5, CHIME_INLINE);
    expect_violation(&i, "CHIME-W5");
}

TEST(the_walker_finds_wrong_children)
{
    struct image top, bad, leaf;
    make_tree(20, &top);
    assert_int_equal(chime_head(top.node)->level, 1);
    bad = top;
    chime_entry(bad.node, image_used(&bad, 1))[0] += 1; /* another separator */
    expect_violation(&bad, "CHIME-W7");
    bad = top;
    unsigned first = image_used(&bad, 0);
    assert_int_equal(chime_entry(bad.node, first)[0], 0);
    set_kind(&bad, first, CHIME_EMPTY);
    expect_violation(&bad, "CHIME-W7: no child for the beginning");
    image_write(&rig, view_of(&B), &top);
    image_read(&rig, view_of(&B), chime_entry(top.node, image_used(&top, 0))[1], &leaf);
    bad = leaf;
    chime_entry(bad.node, image_used(&bad, 0))[0] = UINT64_MAX; /* above the leaf's range */
    expect_violation(&bad, "CHIME-W4: a key or child outside");
    image_write(&rig, view_of(&B), &leaf);
    expect_whole_table();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRIPT(a_group_is_bound_to_all_that_it_says),
        SCRIPT(a_torn_entry_is_no_hit),
        SCRIPT(a_value_may_move_into_the_leaf_and_out_of_it),
        SCRIPT(the_walker_finds_a_wrong_leaf),
        SCRIPT(the_walker_finds_a_misplaced_key),
        SCRIPT(the_walker_finds_wrong_children),
    };
    return cmocka_run_group_tests(tests, NULL, rig_close);
}
