/* Rows of RCuckoo with flipped bits (RCUCKOO-C13, RCUCKOO-C14): what needs them fails, and nothing
 * else does. */
#include "index/rcuckoo/rcuckoo.h"
#include "support/damage_rig.h"
#include "support/hook.h"

#define TUNING "rows=16&lock_rows=1&locks=4"
#define FEW    60u  /* keys that fit into one subtable */
#define MANY   400u /* keys that do not                */

struct rig {
    struct damage_rig d;
    struct rcuckoo_view *view;
    struct rcuckoo_sub sub; /* the first subtable */
    unsigned row;           /* of it, which is damaged: the one with the most entries */
};

static uint64_t key_word(uint64_t n)
{
    return n;
}
static uint64_t key_number(uint64_t word)
{
    return word;
}

/* Does the key belong to the damaged row, of whatever subtable? */
static bool concerned(struct rig *g, uint64_t n)
{
    char bytes[32];
    struct rcuckoo_key key;
    rcuckoo_key_set(g->view, key_of(&g->d, n, bytes), &key);
    return key.row[0] == g->row || key.row[1] == g->row;
}

static uint64_t word_of(struct rig *g, unsigned word)
{
    return store_rig_get(&g->d.r, g->sub.rows, rcuckoo_row_at(&g->view->shape, g->row) + 8 * word);
}
static void set_word(struct rig *g, unsigned word, uint64_t to)
{
    store_rig_set(&g->d.r, g->sub.rows, rcuckoo_row_at(&g->view->shape, g->row) + 8 * word, to);
}
static unsigned tags_word(const struct rig *g)
{
    return g->view->shape.row - 2;
}
static unsigned used(struct rig *g)
{
    uint64_t tags = word_of(g, tags_word(g));
    unsigned count = 0;
    for (; tags; tags >>= 8)
        count += (tags & 0xff) != 0;
    return count;
}

static void open_tuned(struct rig *g, struct form form, const char *tuning)
{
    *g = (struct rig){.d = {.form = form}};
    damage_rig_open(g, "rcuckoo", tuning, FEW);
    g->view = rcuckoo_view(store_known(g->d.s, g->d.t)->view);
    assert_int_equal(rcuckoo_find(&g->d.s->op, g->view, 0, &g->sub), FAR_OK);
    assert_int_equal(g->sub.part.depth, 0);
    assert_true(choose_part(g, &g->row, g->view->shape.rows) >= 4);
}

static void open_rig(struct rig *g, struct form form)
{
    open_tuned(g, form, TUNING);
}

static unsigned bit_of_value(struct rig *g)
{
    return 64 * g->view->shape.value_at + 7;
}

/* ---- iterating ------------------------------------------------------------------------------- */

static void an_iteration_goes_past_a_damaged_row_and_says_so(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        unsigned there = used(&g);
        flip(&g, bit_of_value(&g));
        expect_passed_once(&g, RCUCKOO_SLOTS, FEW - there);
        close_rig(&g);
    }
}

/* ---- sweeping -------------------------------------------------------------------------------- */

/* The bit, or all tags, are damaged while the pool is swept, and restored behind that. */
static void a_sweep_frees_nothing_that_a_damaged_row_points_to(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++)
        for (unsigned tags = 0; tags < 2; tags++) {
            struct rig g;
            open_rig(&g, forms[f]);
            unsigned word = tags ? tags_word(&g) : 0;
            sweep_beside_damage(&g, word, tags ? 0 : word_of(&g, word) ^ 1);
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

/* A drop walks the table twice: what it judges, and what it retires. In between a row is damaged:
 * some slots seem to point to the block of another table. */
static struct rig *dropped;
static uint64_t others;
static unsigned looks;

static int damage_at_the_second_look(struct fab_ep *ep, struct fab_req *req)
{
    bool reads = false;
    for (unsigned i = 0; i < req->count; i++)
        reads |=
            req->verbs[i].kind == FAB_READ && req->verbs[i].off == gaddr_offset(dropped->sub.rows);
    for (unsigned slot = 0; reads && looks == 1 && slot < RCUCKOO_SLOTS; slot++) {
        const struct rcuckoo_shape *s = &dropped->view->shape;
        if (slot == 0 || word_of(dropped, slot * s->entry + s->value_at) == 0)
            set_word(dropped, slot * s->entry + s->value_at, others);
    }
    looks += reads;
    return hook.real->post(ep, req);
}

static void a_drop_retires_nothing_that_a_damaged_row_points_to(void **state)
{
    struct rig g;
    struct audit audit;
    struct far_table_options options = {.tuning = TUNING};
    far_table *other = NULL;
    char value[100] = "v";
    (void)state;
    open_rig(&g, forms[1]);
    assert_int_equal(far_table_create(g.d.s, "o", "rcuckoo", &options, &other), FAR_OK);
    assert_int_equal(far_put(g.d.s, other, "key", 3, value, sizeof value), FAR_OK);
    struct rcuckoo_view *view = rcuckoo_view(store_known(g.d.s, other)->view);
    struct rcuckoo_sub sub;
    assert_int_equal(rcuckoo_find(&g.d.s->op, view, 0, &sub), FAR_OK);
    others = 0;
    for (unsigned i = 0; i < view->shape.rows * view->shape.row && others == 0; i++)
        if (i % view->shape.row < RCUCKOO_SLOTS * view->shape.entry &&
            i % view->shape.row % view->shape.entry == view->shape.value_at)
            others = store_rig_get(&g.d.r, sub.rows, 8ull * i);
    assert_true(others != 0);
    far_session *s = store_rig_join(&g.d.r);
    dropped = &g;
    looks = 0;
    hook_on(s->client.ep);
    hook.ops.post = damage_at_the_second_look;
    assert_int_equal(far_table_drop(s, g.d.t), FAR_OK);
    hook_off();
    assert_true(looks >= 2);
    expect_sound(&g.d.r, (far_session *const[]){g.d.s, s}, 2, &audit);
    far_session_close(s);
    close_rig(&g);
}

/* ---- inserts and splits ---------------------------------------------------------------------- */

/* Puts many keys. Those that belong to the damaged row are refused, and only those. */
static void grow(struct rig *g)
{
    unsigned refused = 0;
    for (uint64_t n = FEW; n < MANY; n++) {
        int rc = put_n(g, n);
        assert_int_equal(rc, concerned(g, n) ? FAR_CORRUPT : FAR_OK);
        refused += rc != FAR_OK;
    }
    assert_true(refused > 0 && refused < (MANY - FEW) / 4);
    assert_true(g->view->base.grown > 1);
}

static void expect_damage_only_there(struct rig *g)
{
    for (uint64_t n = 0; n < MANY; n++) {
        int rc = get_n(g, n);
        if (rc != FAR_OK)
            assert_true(concerned(g, n));
        assert_true(rc == FAR_OK || rc == FAR_CORRUPT);
    }
}

static void keys_of_other_rows_are_inserted_and_a_split_copies_the_damage(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++)
        for (unsigned bits = 1; bits <= 2; bits++) {
            struct rig g;
            struct seen seen;
            open_rig(&g, forms[f]);
            unsigned there = used(&g);
            flip(&g, bit_of_value(&g));
            if (bits == 2)
                flip(&g, bit_of_value(&g) + 1);
            grow(&g);
            expect_damage_only_there(&g);
            collect(&g, FAR_OP_ITERATE, &seen);
            assert_true(seen.damaged >= 2 * RCUCKOO_SLOTS);
            assert_true(there > 0);
            close_rig(&g);
        }
}

/* A table that does not grow: paths lead around the damaged row, until the others are nearly full.
 * Each row has a lock word, so inserts lock no groups: all but the key's rows are guessed.
 * It stays as it is: with a checksum of what it has, nobody would know that it is damaged. */
static void paths_go_around_a_damaged_row(void **state)
{
    struct rig g;
    unsigned kept = FEW;
    int rc = FAR_OK;
    (void)state;
    open_tuned(&g, forms[0], "rows=16&lock_rows=1&locks=1&grows=0");
    flip(&g, bit_of_value(&g));
    uint64_t before[64];
    assert_true(g.view->shape.row <= 64);
    for (unsigned i = 0; i < g.view->shape.row; i++)
        before[i] = word_of(&g, i);
    for (uint64_t n = FEW; rc != FAR_TABLE_FULL; n++) {
        rc = concerned(&g, n) ? FAR_OK : put_n(&g, n);
        kept += !concerned(&g, n) && rc == FAR_OK;
        assert_true(rc == FAR_OK || rc == FAR_TABLE_FULL);
    }
    /* With what the damaged row has. Without the detour, 113 keys are kept, and with it 124. */
    assert_true(kept >= (g.view->shape.rows - 1) * RCUCKOO_SLOTS);
    for (unsigned i = 0; i < g.view->shape.row; i++)
        assert_true(word_of(&g, i) == before[i]);
    close_rig(&g);
}

/* ---- repairing ------------------------------------------------------------------------------- */

/* Every kind of bit: of a key, a value, the tags, the version and the checksum. */
static void a_repair_undoes_one_flipped_bit(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        unsigned tags = 64 * tags_word(&g);
        const unsigned bits[] = {3,        bit_of_value(&g), tags,
                                 tags + 9, tags + 64 + 4,    tags + 64 + 50};
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

/* All tags and the checksum are gone: entries with blocks are still known by them. */
static void a_repair_does_not_need_the_tags(void **state)
{
    (void)state;
    for (unsigned f = 1; f < FORMS; f++) {
        struct rig g;
        open_rig(&g, forms[f]);
        unsigned there = used(&g);
        set_word(&g, tags_word(&g), 0);
        struct far_pool_check check = repair(&g);
        assert_int_equal(check.salvaged, there);
        assert_int_equal(check.lost, 0);
        for (uint64_t n = 0; n < FEW; n++)
            assert_int_equal(get_n(&g, n), FAR_OK);
        close_rig(&g);
    }
}

/* A pointer that leads to a whole block of another key, and two entries for one key. */
static void a_repair_takes_no_entry_without_proof(void **state)
{
    struct rig g;
    (void)state;
    open_rig(&g, forms[1]);
    const struct rcuckoo_shape *s = &g.view->shape;
    unsigned a = RCUCKOO_SLOTS, b = RCUCKOO_SLOTS, there = used(&g);
    uint64_t tags = word_of(&g, tags_word(&g));
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++)
        if (tags >> 8 * slot & 0xff) {
            b = a < RCUCKOO_SLOTS && b == RCUCKOO_SLOTS ? slot : b;
            a = a == RCUCKOO_SLOTS ? slot : a;
        }
    assert_true(b < RCUCKOO_SLOTS);
    set_word(&g, a * s->entry + s->value_at, word_of(&g, b * s->entry + s->value_at));
    struct far_pool_check check = repair(&g);
    assert_int_equal(check.salvaged, there - 1);
    assert_int_equal(check.lost, 1);
    for (unsigned i = 0; i < s->entry; i++) /* now the same entry in both slots */
        set_word(&g, a * s->entry + i, word_of(&g, b * s->entry + i));
    check = repair(&g);
    assert_int_equal(check.salvaged, there - 1);
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

/* Beyond one bit, both children have all entries. Each keeps its own. */
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
        assert_int_equal(check.salvaged, f == 0 ? 0 : there - 1);
        for (uint64_t n = 0; n < FEW; n++)
            missing += get_n(&g, n) != FAR_OK;
        assert_int_equal(missing, f == 0 ? there : 1);
        if (f < 2) /* of a pointer that is damaged, the key is known */
            assert_int_equal(check.lost, missing);
        close_rig(&g);
    }
}

/* A block was found damaged; since then the entry has been replaced. */
static void an_entry_that_has_changed_is_not_removed(void **state)
{
    struct rig g;
    struct op *op;
    bool done = true;
    (void)state;
    open_rig(&g, forms[1]);
    op = &g.d.s->op;
    unsigned slot = 0;
    while (!(word_of(&g, tags_word(&g)) >> 8 * slot & 0xff))
        slot++;
    unsigned place = g.row * RCUCKOO_SLOTS + slot;
    uint64_t pointer = word_of(&g, slot * g.view->shape.entry + g.view->shape.value_at);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(rcuckoo_remove(op, g.view, &g.sub, place, pointer ^ 64, &done), FAR_OK);
    assert_false(done);
    op_end(op);
    expect_all(&g, FEW);
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(rcuckoo_remove(op, g.view, &g.sub, place, pointer, &done), FAR_OK);
    assert_true(done);
    op_end(op);
    unsigned left = 0;
    for (uint64_t n = 0; n < FEW; n++)
        left += get_n(&g, n) == FAR_OK;
    assert_int_equal(left, FEW - 1);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_iteration_goes_past_a_damaged_row_and_says_so),
        cmocka_unit_test(a_sweep_frees_nothing_that_a_damaged_row_points_to),
        cmocka_unit_test(a_marker_hears_of_damage),
        cmocka_unit_test(a_drop_retires_nothing_that_a_damaged_row_points_to),
        cmocka_unit_test(keys_of_other_rows_are_inserted_and_a_split_copies_the_damage),
        cmocka_unit_test(paths_go_around_a_damaged_row),
        cmocka_unit_test(a_repair_undoes_one_flipped_bit),
        cmocka_unit_test(a_repair_keeps_the_entries_that_prove_themselves),
        cmocka_unit_test(a_repair_does_not_need_the_tags),
        cmocka_unit_test(a_repair_takes_no_entry_without_proof),
        cmocka_unit_test(a_repair_after_splits_loses_nothing),
        cmocka_unit_test(a_repair_after_splits_keeps_what_proves_itself),
        cmocka_unit_test(an_entry_that_has_changed_is_not_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
