/* The audit of a quiet pool, for tests that also look into its memory. */
#ifndef TESTS_AUDIT_H
#define TESTS_AUDIT_H

#include "support/probe.h"
#include "support/puppet.h"
#include "check/audit.h"

#include <stdio.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* After orderly use: no memory is in two places, and none is lost. */
static inline void expect_nothing_lost(far_pool *pool, far_session *s)
{
    struct audit a;
    struct far_pool_usage usage;
    assert_int_equal(sim_audit(&a, pool, &s, 1), FAR_OK);
    if (a.wrong > 0)
        fail_msg("%u objects in two places: %s", a.wrong, a.first);
    assert_int_equal(a.bytes[AUDIT_NOWHERE], 0);
    assert_int_equal(far_pool_usage(s, &usage), FAR_OK);
    assert_int_equal(usage.unknown, 0);
    assert_true(puppet_lost_bytes(&s->client) == 0);
}

#endif
