/* Sessions whose pool is swept, and the audit of what is where. */
#ifndef TESTS_SWEEP_RIG_H
#define TESTS_SWEEP_RIG_H

#include "support/audit.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"

static inline far_session *join(struct store_rig *r, uint64_t seed, unsigned depth)
{
    struct far_session_options options = {.seed = seed, .depth = depth};
    far_session *s = NULL;
    assert_int_equal(far_session_open(r->pool, &options, &s), FAR_OK);
    return s;
}

static inline int put(struct store_rig *r, far_session *s, uint64_t key, size_t len)
{
    static uint8_t value[100000];
    for (size_t i = 0; i < len; i++)
        value[i] = (uint8_t)(key + i);
    return far_put(s, r->table, &key, sizeof key, value, len);
}

static inline void expect_sound(struct store_rig *r, far_session *const *sessions, unsigned count,
                                struct audit *a)
{
    sim_audit(a, r->pool, sessions, count);
    if (a->wrong > 0)
        fail_msg("%u objects in two places: %s", a->wrong, a->first);
}

#endif
