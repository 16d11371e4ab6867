/* What actors of verb_script.h do with keys and values of four bytes. */
#ifndef TESTS_DEEDS_H
#define TESTS_DEEDS_H

#include "support/verb_script.h"

static inline int put_key(struct actor *a, uint64_t key, uint64_t value)
{
    uint32_t k = (uint32_t)key, v = (uint32_t)value;
    return far_put(a->s, a->t, &k, sizeof k, &v, sizeof v);
}

static inline int insert_key(struct actor *a, uint64_t key, uint64_t value)
{
    uint32_t k = (uint32_t)key, v = (uint32_t)value;
    return far_insert(a->s, a->t, &k, sizeof k, &v, sizeof v);
}

static inline int update_key(struct actor *a, uint64_t key, uint64_t value)
{
    uint32_t k = (uint32_t)key, v = (uint32_t)value;
    return far_update(a->s, a->t, &k, sizeof k, &v, sizeof v);
}

static inline int delete_key(struct actor *a, uint64_t key, uint64_t unused)
{
    uint32_t k = (uint32_t)key;
    (void)unused;
    return far_delete(a->s, a->t, &k, sizeof k);
}

/* What it finds is a->found. */
static inline int get_key(struct actor *a, uint64_t key, uint64_t unused)
{
    uint32_t k = (uint32_t)key, v = 0;
    size_t len = 0;
    (void)unused;
    int rc = far_get(a->s, a->t, &k, sizeof k, &v, sizeof v, &len);
    a->found = v;
    return rc;
}

static inline void expect_found(struct actor *a, uint32_t key, uint32_t value)
{
    expect_ok(get_key(a, key, 0));
    assert_int_equal(a->found, value);
}

/* The values are the keys. */
static inline void put_keys(struct actor *a, uint32_t first, uint32_t end)
{
    for (uint32_t key = first; key < end; key++)
        expect_ok(put_key(a, key, key));
}

static inline void expect_keys(struct actor *a, uint32_t first, uint32_t end)
{
    for (uint32_t key = first; key < end; key++)
        expect_found(a, key, key);
}

#endif
