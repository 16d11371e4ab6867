/* Groups of CHIME with flipped bits (CHIME-C11, CHIME-C12): what needs them fails, and nothing else does. */
#include "support/chime_image.h"
#include "support/sweep_rig.h"

#include <stdio.h>

#define TUNING "span=32&neighbourhood=4&cache=16&hot=0"
#define FEW    18u  /* keys that fit into one leaf */
#define MANY   300u /* keys that do not            */

struct form {
    size_t klen, vlen;
};
static const struct form forms[] = {
    {8, 8},   /* inline             */
    {8, 100}, /* in a block         */
    {20, 8},  /* the key is as long */
};
#define FORMS (sizeof forms / sizeof forms[0])

struct rig {
    struct store_rig r;
    far_session *s; /* r.session */
    far_table *t;
    struct form form;
    struct chime_view *view;
    struct image leaf; /* the only one at first, as it was */
    unsigned group;    /* of it, which is damaged: the one with the most entries */
};

/* Keys are not in order: the numbers are mixed. */
static struct slice key_of(const struct rig *g, uint64_t n, char key[32])
{
    uint64_t mixed = n * 0x9e3779b97f4a7c15u;
    memset(key, 'k', 32);
    memcpy(key, &mixed, 8);
    return (struct slice){key, g->form.klen};
}
static uint64_t number_of(const void *key)
{
    uint64_t mixed = 0;
    memcpy(&mixed, key, 8);
    return mixed * 0xf1de83e19937733du; /* the inverse */
}

static int put_n(struct rig *g, uint64_t n)
{
    char key[32], value[128];
    memset(value, (int)n, sizeof value);
    struct slice k = key_of(g, n, key);
    return far_put(g->s, g->t, k.data, k.len, value, g->form.vlen);
}

/* FAR_OK: it has the value that was put. */
static int get_n(struct rig *g, uint64_t n)
{
    char key[32], value[128], want[128];
    size_t len = 0;
    struct slice k = key_of(g, n, key);
    int rc = far_get(g->s, g->t, k.data, k.len, value, sizeof value, &len);
    memset(want, (int)n, sizeof want);
    if (rc == FAR_OK && (len != g->form.vlen || memcmp(value, want, len) != 0))
        fail_msg("key %llu has a value that nobody put", (unsigned long long)n);
    return rc;
}

/* Is the damaged group, of whatever leaf, in the key's neighbourhood? */
static bool concerned(struct rig *g, uint64_t n)
{
    char bytes[32];
    struct chime_key key;
    chime_key_set(g->view, key_of(g, n, bytes), &key);
    struct chime_window w = chime_window(&g->view->shape, key.home);
    return (g->group + g->view->shape.groups - w.first) % g->view->shape.groups < w.count;
}

static uint64_t word_of(struct rig *g, unsigned word)
{
    return store_rig_get(&g->r, g->leaf.at, chime_group_at(g->group) + 8 * word);
}
static void set_word(struct rig *g, unsigned word, uint64_t to)
{
    store_rig_set(&g->r, g->leaf.at, chime_group_at(g->group) + 8 * word, to);
}
static void flip(struct rig *g, unsigned bit)
{
    set_word(g, bit / 64, word_of(g, bit / 64) ^ 1ull << bit % 64);
}
static unsigned used(struct rig *g)
{
    unsigned count = 0;
    for (unsigned i = 0; i < CHIME_GROUP; i++)
        count += chime_kind(word_of(g, 0), i) != CHIME_EMPTY;
    return count;
}
/* A bit of the value, or of the pointer, of the group's first entry. */
static unsigned bit_of_value(struct rig *g)
{
    unsigned i = 0;
    while (chime_kind(word_of(g, 0), i) == CHIME_EMPTY)
        i++;
    return 64 * (2 + 2 * i) + 7;
}

static void open_rig(struct rig *g, struct form form)
{
    struct far_table_options options = {.tuning = TUNING, .hash_seed = 5};
    memset(g, 0, sizeof *g);
    g->form = form;
    store_rig_open_driven(&g->r, "mem:?size=8m&clients=8", NULL, NULL, NULL);
    g->s = g->r.session;
    assert_int_equal(far_table_create(g->s, "d", "chime", &options, &g->t), FAR_OK);
    for (uint64_t n = 0; n < FEW; n++)
        assert_int_equal(put_n(g, n), FAR_OK);
    g->view = chime_view(store_known(g->s, g->t)->view);
    image_read_top(&g->r, g->view, &g->leaf);
    assert_int_equal(chime_head(g->leaf.node)->level, 0);
    unsigned most = 0, best = 0;
    for (g->group = 0; g->group < g->view->shape.groups; g->group++)
        if (used(g) > most) {
            most = used(g);
            best = g->group;
        }
    g->group = best;
    assert_true(most >= 3);
}

/* ---- iterating and scanning -------------------------------------------------------------------- */

struct seen {
    unsigned count, partial, damaged;
};

static void collect(struct rig *g, enum far_op_kind kind, struct seen *seen)
{
    char buf[2048], last[32];
    struct far_op op = {.kind = kind, .table = g->t, .buf = buf, .cap = sizeof buf};
    struct far_result result;
    *seen = (struct seen){0};
    do {
        int rc = far_execute(g->s, &op, &result);
        assert_true(rc == FAR_OK || rc == FAR_PARTIAL);
        assert_int_equal(result.damaged > 0, rc == FAR_PARTIAL);
        seen->partial += rc == FAR_PARTIAL;
        seen->damaged += result.damaged;
        struct far_entry e;
        for (size_t pos = 0; far_entry_next(buf, result.len, &pos, &e); seen->count++) {
            assert_int_equal(e.value_len, g->form.vlen);
            for (size_t i = 0; i < e.value_len; i++)
                assert_int_equal(((const uint8_t *)e.value)[i], (uint8_t)number_of(e.key));
            if (kind == FAR_OP_SCAN) {
                op.key = memcpy(last, e.key, e.key_len);
                op.key_len = e.key_len;
                op.flags = FAR_AFTER;
            }
        }
        op.cursor = result.cursor;
    } while (kind == FAR_OP_SCAN ? result.more : op.cursor != 0);
}

static void iterations_and_scans_go_past_a_damaged_group_and_say_so(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        struct seen seen;
        struct far_table_info info;
        open_rig(&g, forms[f]);
        unsigned there = used(&g);
        flip(&g, bit_of_value(&g));
        collect(&g, FAR_OP_ITERATE, &seen);
        assert_int_equal(seen.count, FEW - there);
        assert_int_equal(seen.partial, 1); /* once, by the call that passed it */
        assert_int_equal(seen.damaged, CHIME_GROUP);
        collect(&g, FAR_OP_SCAN, &seen);
        assert_int_equal(seen.count, FEW - there);
        assert_true(seen.partial > 0);
        assert_int_equal(far_table_info(g.s, g.t, &info), FAR_OK);
        assert_int_equal(info.damaged, CHIME_GROUP);
        assert_int_equal(info.keys, FEW - there);
        store_rig_close(&g.r);
    }
}

/* ---- sweeping ---------------------------------------------------------------------------------- */

static void sweep(struct rig *g)
{
    struct sweep_result swept;
    assert_int_equal(pool_sweep(&g->s->op, &swept), FAR_OK);
}

/* Fills memory that a sweep has freed with other blocks. */
static void reuse(struct rig *g)
{
    for (uint64_t n = 0; n < 1000; n++)
        assert_int_equal(put(&g->r, g->s, n, 60 + n % 80), FAR_OK);
}

/* A bit, or all kinds of entries, are damaged while the pool is swept, and restored behind that. */
static void a_sweep_frees_nothing_that_a_damaged_group_points_to(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++)
        for (unsigned kinds = 0; kinds < 2; kinds++) {
            struct rig g;
            struct far_pool_usage usage;
            open_rig(&g, forms[f]);
            uint64_t good = word_of(&g, 0);
            set_word(&g, 0, kinds ? good & ~0xffull : good ^ 1ull << CHIME_SUM_AT);
            assert_int_equal(far_pool_usage(g.s, &usage), FAR_OK);
            sweep(&g);
            reuse(&g);
            set_word(&g, 0, good);
            for (uint64_t n = 0; n < FEW; n++)
                assert_int_equal(get_n(&g, n), FAR_OK);
            store_rig_close(&g.r);
        }
}

static void ignore(struct marker *marker, gaddr at, unsigned size_class)
{
    (void)marker;
    (void)at;
    (void)size_class;
}

static void a_marker_hears_of_damage(void **state)
{
    struct rig g;
    struct marker marker = {.mark = ignore};
    (void)state;
    open_rig(&g, forms[0]);
    assert_int_equal(op_begin(&g.s->op, NULL), FAR_OK);
    assert_int_equal(chime_mark(&g.s->op, &g.view->base, &marker), FAR_OK);
    assert_false(marker.damaged);
    flip(&g, bit_of_value(&g));
    assert_int_equal(chime_mark(&g.s->op, &g.view->base, &marker), FAR_OK);
    assert_true(marker.damaged);
    op_end(&g.s->op);
    store_rig_close(&g.r);
}

/* ---- inserts and splits ------------------------------------------------------------------------ */

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
    assert_true(g->view->splits > 1);
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
            assert_int_equal(seen.damaged, CHIME_GROUP * (g.view->splits + 1));
            store_rig_close(&g.r);
        }
}

/* ---- repairing --------------------------------------------------------------------------------- */

static char heard[65536];
static void hear(void *arg, const char *line)
{
    (void)arg;
    size_t len = strlen(heard);
    snprintf(heard + len, sizeof heard - len, "%s\n", line);
}

static struct far_pool_check repair(struct rig *g)
{
    struct far_pool_check check;
    heard[0] = '\0';
    assert_int_equal(far_pool_check(g->s, false, NULL, NULL, &check), FAR_CORRUPT);
    if (far_pool_check(g->s, true, hear, NULL, &check) != FAR_OK)
        fail_msg("%s", heard);
    assert_int_equal(far_table_check(g->s, g->t, NULL, NULL), FAR_OK);
    return check;
}

/* Every kind of bit: of the kinds, the era, the tag and the checksum; of a key and a value. */
static void a_repair_undoes_one_flipped_bit(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        const unsigned bits[] = {
            0, 1, 10, CHIME_TAG_AT, CHIME_SUM_AT + 9, bit_of_value(&g) - 64, bit_of_value(&g)};
        unsigned there = used(&g);
        for (unsigned i = 0; i < sizeof bits / sizeof bits[0]; i++) {
            flip(&g, bits[i]);
            struct far_pool_check check = repair(&g);
            assert_int_equal(check.salvaged, there);
            assert_int_equal(check.lost, 0);
            assert_non_null(strstr(heard, "entries salvaged, 0 lost"));
            for (uint64_t n = 0; n < FEW; n++)
                assert_int_equal(get_n(&g, n), FAR_OK);
        }
        store_rig_close(&g.r);
    }
}

/* Two flipped bits of one entry. Blocks prove the other entries; nothing proves what is inline. */
static void a_repair_keeps_the_entries_that_prove_themselves(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        unsigned there = used(&g), left = 0;
        flip(&g, bit_of_value(&g));
        flip(&g, bit_of_value(&g) + 1);
        struct far_pool_check check = repair(&g);
        assert_int_equal(check.salvaged, f == 0 ? 0 : there - 1);
        assert_int_equal(check.lost, f == 0 ? there : 1);
        for (uint64_t n = 0; n < FEW; n++) {
            int rc = get_n(&g, n);
            assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
            left += rc == FAR_OK;
            assert_int_equal(put_n(&g, n), FAR_OK);
            assert_int_equal(get_n(&g, n), FAR_OK);
        }
        assert_int_equal(left, FEW - check.lost);
        store_rig_close(&g.r);
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
    store_rig_close(&g.r);
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
    store_rig_close(&g.r);
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
    store_rig_set(&g.r, g.leaf.at, at, store_rig_get(&g.r, g.leaf.at, at) ^ 64);
    assert_int_equal(far_iterate(g.s, g.t, &cursor, 0, buf, sizeof buf, &len), FAR_CORRUPT);
    store_rig_close(&g.r);
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
    assert_int_equal(far_delete(g.s, g.t, &key, 8), FAR_OK);
    assert_int_equal(word_of(&g, 2 + 2 * two[0]), v);
    set_word(&g, 0,
             g0 ^ 3ull << CHIME_SUM_AT); /* more than one bit is wrong: the kind, and others */
    struct far_pool_check check = repair(&g);
    assert_int_equal(check.salvaged, there - 1);
    assert_int_equal(far_get(g.s, g.t, &key, 8, bytes, sizeof bytes, &len), FAR_NOT_FOUND);
    store_rig_close(&g.r);
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
        store_rig_close(&g.r);
    }
}

/* Beyond one bit, all leaves have all entries of the group. Each keeps its own. */
static void a_repair_after_splits_keeps_what_proves_itself(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        unsigned there = used(&g), missing = 0;
        flip(&g, bit_of_value(&g));
        flip(&g, bit_of_value(&g) + 1);
        grow(&g);
        struct far_pool_check check = repair(&g);
        for (uint64_t n = 0; n < FEW; n++)
            missing += get_n(&g, n) != FAR_OK;
        assert_int_equal(missing, f == 0 ? there : 1);
        assert_int_equal(check.salvaged, there - missing);
        store_rig_close(&g.r);
    }
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
