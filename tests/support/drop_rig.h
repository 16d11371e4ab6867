/* Tables to be dropped, and what is left of them. */
#ifndef TESTS_DROP_RIG_H
#define TESTS_DROP_RIG_H

#include "support/audit.h"
#include "support/puppet.h"
#include "support/race_rig.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"

static inline far_table *create(far_session *s, const char *name)
{
    far_table *t = NULL;
    assert_int_equal(far_table_create(s, name, "race", NULL, &t), FAR_OK);
    return t;
}

static inline int put(far_session *s, far_table *t, uint64_t key, size_t len)
{
    static const uint8_t value[8192];
    return far_put(s, t, &key, sizeof key, value, len);
}

static inline int get(far_session *s, far_table *t, uint64_t key)
{
    return far_exists(s, t, &key, sizeof key);
}

/* Keys with values of all kinds of sizes; enough to make the table grow. */
static inline void fill(far_session *s, far_table *t, unsigned keys)
{
    for (unsigned i = 0; i < keys; i++)
        assert_int_equal(put(s, t, i, i * 37 % 700 + (i % 97 == 0 ? 5000 : 0)), FAR_OK);
}

static inline uint64_t live_bytes(far_session *s)
{
    struct far_pool_usage usage;
    assert_int_equal(far_pool_usage(s, &usage), FAR_OK);
    return usage.live;
}

/* What the catalog is given for a table of that name. */
static inline struct table_desc desc_of(const char *name)
{
    struct table_desc desc = {.root = 1, .index = "race"};
    snprintf(desc.name, sizeof desc.name, "%s", name);
    return desc;
}

/* The first step only, as of a session that dies behind it. */
static inline void drop_and_stop(far_session *s, far_table *t)
{
    struct table_desc desc;
    assert_int_equal(op_begin(&s->op, NULL), FAR_OK);
    assert_int_equal(catalog_get(&s->op, t->index.desc.id, &desc), FAR_OK);
    assert_int_equal(catalog_drop(&s->op, &desc), FAR_OK);
    op_end(&s->op);
}

struct listed {
    unsigned count;
    const char *name;
    bool there;
};

static inline int list(void *arg, const char *name, const char *index)
{
    struct listed *l = arg;
    (void)index;
    l->count++;
    l->there |= strcmp(name, l->name) == 0;
    return 0;
}

static inline bool is_listed(far_session *s, const char *name, unsigned count)
{
    struct listed l = {.name = name};
    struct far_pool_info info;
    assert_int_equal(far_table_list(s, list, &l), FAR_OK);
    assert_int_equal(l.count, count);
    assert_int_equal(far_pool_info(s, &info), FAR_OK);
    assert_int_equal(info.tables, count);
    return l.there;
}

/* As users open pools: sessions that are not used are parked, and those that close leave nothing
 * behind. */
static inline struct store_rig open_kept(const char *uri)
{
    struct store_rig r = {.fab = NULL};
    assert_int_equal(far_pool_open(uri, &r.pool), FAR_OK);
    r.session = store_rig_join(&r);
    r.table = create(r.session, "t");
    return r;
}

static inline void close_kept(struct store_rig *r)
{
    far_session_close(r->session);
    far_pool_close(r->pool);
}

#endif
