/* The directory of parts: what a client that has split a part advises. It is only advice, so no
 * operation fails if an entry is wrong. */
#include "index/parts.h"
#include "support/pool_rig.h"
#include "support/puppet.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define START 1u

static struct pool_rig r;
static struct index_table table;
static struct index_parts parts;
static uint64_t child[2], word; /* the root's, when the split was made */

static gaddr allocate(unsigned size_class)
{
    gaddr at = 0;
    assert_int_equal(pool_alloc(&r.op, 0, size_class, &at), FAR_OK);
    return at;
}

static uint64_t part(unsigned depth)
{
    return index_deep(allocate(size_class_for(64)), depth);
}

static void set(gaddr at, uint64_t delta, uint64_t to)
{
    pool_rig_set(&r, gaddr_node(at), gaddr_offset(at) + delta, to);
}
static uint64_t get(gaddr at, uint64_t delta)
{
    return pool_rig_get(&r, gaddr_node(at), gaddr_offset(at) + delta);
}

/* A root, and a directory with these entries. */
static int open_parts(void **state)
{
    (void)state;
    pool_rig_open(&r, "mem:?size=2m");
    table = (struct index_table){.pool = &r.pool, .desc.root = allocate(size_class_for(64))};
    parts =
        (struct index_parts){.table = &table, .start = START, .depth_max = 16, .anchor_bytes = 64};
    for (unsigned i = 0; i < 2; i++)
        child[i] = allocate(size_class_for(64));
    return 0;
}

static int close_parts(void **state)
{
    (void)state;
    pool_rig_close(&r);
    return 0;
}

static void make_directory(const uint64_t *entries, unsigned depth)
{
    gaddr at = allocate(index_directory_class(depth));
    for (unsigned i = 0; i < 1u << depth; i++)
        set(at, 8ull * i, entries[i]);
    word = index_deep(at, depth);
    set(table.desc.root, 0, word);
}

static struct index_part parent_of(uint64_t entry, uint64_t suffix)
{
    return (struct index_part){.anchor = index_deep_at(entry),
                               .depth = (uint8_t)index_deep_depth(entry),
                               .suffix = suffix};
}

/* It leads all entries of the part to the children, also those that are older than the part. It
 * leaves alone those that others have made newer, and what is no entry. */
static void advice_is_for_entries_that_are_not_newer(void **state)
{
    uint64_t parent = part(2), older = part(1), newer = part(3), other = part(1), none = part(0);
    uint64_t entries[16] = {parent, other, other, other, older, other, other, other,
                            newer,  other, other, other, none,  other, other, other};
    uint64_t expected[16];

    (void)state;
    make_directory(entries, 4);
    memcpy(expected, entries, sizeof entries);
    expected[0] = index_deep(child[0], 3);
    expected[4] = index_deep(child[1], 3);
    struct index_part p = parent_of(parent, 0);
    index_parts_advise(&r.op, &parts, &p, child, word, NULL);
    for (unsigned i = 0; i < 16; i++)
        assert_true(get(index_deep_at(word), 8ull * i) == expected[i]);
    assert_true(get(table.desc.root, 0) == word);
}

static void a_directory_is_doubled_with_the_children(void **state)
{
    uint64_t entries[2] = {part(1), part(1)};

    (void)state;
    make_directory(entries, 1);
    struct index_part p = parent_of(entries[1], 1);
    uint64_t retired = puppet_retired_bytes(&r.client);
    index_parts_advise(&r.op, &parts, &p, child, word, entries);
    uint64_t now = get(table.desc.root, 0);
    assert_int_equal(index_deep_depth(now), 2);
    assert_true(get(index_deep_at(now), 0) == entries[0]);
    assert_true(get(index_deep_at(now), 8) == index_deep(child[0], 2));
    assert_true(get(index_deep_at(now), 16) == entries[0]);
    assert_true(get(index_deep_at(now), 24) == index_deep(child[1], 2));
    assert_true(puppet_retired_bytes(&r.client) > retired); /* the smaller one */
}

static void a_directory_that_another_has_doubled_is_left_alone(void **state)
{
    uint64_t entries[2] = {part(1), part(1)};

    (void)state;
    make_directory(entries, 1);
    struct index_part p = parent_of(entries[1], 1);
    uint64_t later = index_deep(allocate(index_directory_class(2)), 2);
    set(table.desc.root, 0, later);
    pool_free_unpublished(&r.client, allocate(index_directory_class(2)), index_directory_class(2));
    uint64_t held = puppet_held_bytes(&r.client);
    index_parts_advise(&r.op, &parts, &p, child, word, entries);
    assert_true(get(table.desc.root, 0) == later);
    assert_true(puppet_held_bytes(&r.client) == held); /* the memory of its own is back */
    assert_true(puppet_retired_bytes(&r.client) == 0);
}

/* What was read of it as a part of that depth says nothing of this one. */
static void a_part_is_known_by_its_anchor_and_its_depth(void **state)
{
    uint64_t entries[4] = {part(1), part(2), 0, part(2)};

    (void)state;
    entries[2] = entries[0];
    make_directory(entries, 2);
    parts.bytes = sizeof(struct index_part);
    assert_int_equal(index_parts_attach(&r.op, &parts, word), FAR_OK);
    struct index_part like = *index_part_of(&parts, 2);
    assert_ptr_equal(index_part_known(&parts, &like), index_part_of(&parts, 0));
    like.depth++;
    assert_null(index_part_known(&parts, &like));
    like = *index_part_of(&parts, 3);
    like.anchor = index_deep_at(entries[1]);
    assert_null(index_part_known(&parts, &like));
    index_parts_detach(&parts);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, open_parts, close_parts)
    const struct CMUnitTest tests[] = {
        CASE(advice_is_for_entries_that_are_not_newer),
        CASE(a_directory_is_doubled_with_the_children),
        CASE(a_directory_that_another_has_doubled_is_left_alone),
        CASE(a_part_is_known_by_its_anchor_and_its_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
