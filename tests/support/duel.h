/*
 * CHANGE-C1: changes that lose their slot to another session. The other one acts between the look
 * and the CAS of the one that loses. The key is alone in its table, and an update wrote its value.
 */
#ifndef TESTS_DUEL_H
#define TESTS_DUEL_H

#include "support/hook.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEY      "key", 3
#define OLD      100u
#define MINE     200u
#define OTHERS   300u
#define ONE_MORE 1u /* what a modify adds */

struct duel {
    struct store_rig r; /* its session loses */
    far_session *other;
    void (*act)(void);      /* what the other does before the next CAS; NULL: nothing */
    uint64_t held, retired; /* bytes of the loser, before its call */
    uint64_t rtts;          /* that its call took */
};
static struct duel duel;

static inline int post_after_other(struct fab_ep *ep, struct fab_req *req)
{
    void (*act)(void) = duel.act;
    for (unsigned i = 0; i < req->count && duel.act; i++)
        if (req->verbs[i].kind == FAB_CAS) {
            duel.act = NULL;
            act();
        }
    return hook.real->post(ep, req);
}

static inline int update(far_session *s, uint32_t value)
{
    return far_update(s, duel.r.table, KEY, &value, sizeof value);
}

static inline int put(far_session *s, uint32_t value)
{
    return far_put(s, duel.r.table, KEY, &value, sizeof value);
}

static inline enum far_decision add_one(void *sum, const void *old, size_t old_len,
                                        const void **value, size_t *value_len)
{
    assert_int_equal(old_len, sizeof(uint32_t));
    memcpy(sum, old, old_len);
    *(uint32_t *)sum += ONE_MORE;
    *value = sum;
    *value_len = old_len;
    return FAR_STORE;
}

/* The key's value; 0: it is absent. */
static inline uint32_t value_now(far_session *s)
{
    uint32_t value = 0;
    size_t len = 0;
    int rc = far_get(s, duel.r.table, KEY, &value, sizeof value, &len);
    assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
    return value;
}

static inline void open_duel(const char *tuning, const struct knobs *knobs)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    duel = (struct duel){.act = NULL};
    store_rig_open(&duel.r, "mem:?size=8m", knobs, NULL, &options);
    duel.other = store_rig_join(&duel.r);
    assert_int_equal(put(duel.r.session, OLD), FAR_OK);
    assert_int_equal(put(duel.other, OLD), FAR_OK);
    assert_int_equal(update(duel.r.session, OLD), FAR_OK);
}

static inline void close_duel(void)
{
    far_session_close(duel.other);
    store_rig_close(&duel.r);
}

/* Calls it, and lets the other act before its CAS. */
static inline int lose(int (*call)(far_session *s, uint32_t value), void (*act)(void))
{
    struct client *c = &duel.r.session->client;
    duel.held = puppet_held_bytes(c);
    duel.retired = puppet_retired_bytes(c);
    duel.act = act;
    hook_on(c->ep);
    hook.ops.post = post_after_other;
    int rc = call(duel.r.session, MINE);
    hook_off();
    duel.rtts = duel.r.session->op.cost.rtts;
    assert_null(duel.act);
    return rc;
}

/* The call is done without a word of its own, and its block was given back. */
static inline void expect_done(int (*call)(far_session *s, uint32_t value), void (*act)(void),
                               uint32_t value)
{
    const struct client *c = &duel.r.session->client;
    assert_int_equal(lose(call, act), FAR_OK);
    assert_true(puppet_held_bytes(c) == duel.held);
    assert_true(puppet_retired_bytes(c) == duel.retired);
    assert_int_equal(value_now(duel.r.session), value);
    assert_int_equal(value_now(duel.other), value);
    assert_int_equal(far_table_check(duel.r.session, duel.r.table, NULL, NULL), FAR_OK);
}

/* The call tries again, and its value stands. */
static inline void expect_again(int (*call)(far_session *s, uint32_t value), void (*act)(void))
{
    assert_int_equal(lose(call, act), FAR_OK);
    assert_int_equal(value_now(duel.r.session), MINE);
    assert_int_equal(value_now(duel.other), MINE);
}

/* ---- what the other does --------------------------------------------------------------------- */

static inline void other_updates(void)
{
    assert_int_equal(update(duel.other, OTHERS), FAR_OK);
}

static inline void other_puts(void)
{
    assert_int_equal(put(duel.other, OTHERS), FAR_OK);
}

static inline void other_modifies(void)
{
    uint32_t sum = 0;
    assert_int_equal(far_modify(duel.other, duel.r.table, KEY, add_one, &sum), FAR_OK);
}

static inline void other_deletes(void)
{
    assert_int_equal(far_delete(duel.other, duel.r.table, KEY), FAR_OK);
}

static inline int modify_call(far_session *s, uint32_t value)
{
    uint32_t sum = value;
    return far_modify(s, duel.r.table, KEY, add_one, &sum);
}

static inline int delete_call(far_session *s, uint32_t value)
{
    (void)value;
    return far_delete(s, duel.r.table, KEY);
}

#endif
