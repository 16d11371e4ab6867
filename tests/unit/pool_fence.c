/*
 * Shutting a dead client out takes as long as memory nodes take to answer. Operations that do not
 * need it go on meanwhile.
 */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define WAIT_NS 60000000000ull

static struct {
    bool held;       /* nodes do not answer             */
    int status;      /* what they answer then           */
    unsigned fences; /* that were tried                 */
} net;

static int slow_fence(struct fab_ep *ep, uint64_t client)
{
    (void)ep;
    (void)client;
    net.fences++;
    return net.held ? FAB_PENDING : net.status;
}

static void checked_pause(struct fab_ep *ep, uint64_t ns)
{
    ASSERT(!net.held); /* it would wait forever */
    hook.real->pause(ep, ns);
}

static int put(struct store_rig *r, uint64_t value)
{
    return far_put(r->session, r->table, "key", 3, &value, sizeof value);
}

/* A session ends like a process that dies. Its slot is returned. */
static unsigned leave_dead(struct store_rig *r)
{
    far_session *s = NULL;

    assert_int_equal(far_session_open(r->pool, NULL, &s), FAR_OK);
    unsigned slot = s->client.slot;
    assert_int_equal(far_put(s, r->table, "other", 5, "value", 5), FAR_OK);
    store_rig_kill(s);
    return slot;
}

static void open_rig(struct store_rig *r)
{
    struct knobs knobs = pool_knobs_default;

    knobs.tick_ops = 1;
    store_rig_open(r, "mem:?size=64m&lease=60", &knobs, NULL, NULL);
    hook_on(r->session->client.ep);
    hook.ops.fence = slow_fence;
    hook.ops.pause = checked_pause;
}

/* Works until that many fences were tried; every operation succeeds. */
static void work_until_fences(struct store_rig *r, unsigned count)
{
    uint64_t start = hook.real->now(hook.ep);

    for (uint64_t i = 0; net.fences < count; i++) {
        assert_int_equal(put(r, i), FAR_OK);
        assert_true(hook.real->now(hook.ep) - start < WAIT_NS);
    }
}

static void work_until_free(struct store_rig *r, struct probe *p, unsigned slot)
{
    uint64_t start = hook.real->now(hook.ep);

    for (uint64_t i = 0; probe_incarnation(p, slot) != 0; i++) {
        assert_int_equal(put(r, i), FAR_OK);
        assert_true(hook.real->now(hook.ep) - start < WAIT_NS);
    }
}

static void operations_do_not_wait_for_a_fence(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    open_rig(&r);
    probe_open(&p, r.fab);
    net = (typeof(net)){.held = true, .status = FAR_OK};
    unsigned slot = leave_dead(&r);
    uint64_t incarnation = probe_incarnation(&p, slot);
    work_until_fences(&r, 10);
    /* Until all nodes have answered, it is not counted as dead. */
    assert_true(probe_incarnation(&p, slot) == incarnation);
    net.held = false;
    work_until_free(&r, &p, slot);
    hook_off();
    probe_close(&p);
    store_rig_close(&r);
}

/* While a node is away the dead client is not shut out, and nobody is held up. The fence is
 * tried again. */
static void a_fence_that_fails_is_tried_again(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    open_rig(&r);
    probe_open(&p, r.fab);
    net = (typeof(net)){.status = FAR_UNREACHABLE};
    unsigned slot = leave_dead(&r);
    uint64_t incarnation = probe_incarnation(&p, slot);
    work_until_fences(&r, 3);
    assert_true(probe_incarnation(&p, slot) == incarnation);
    net.status = FAR_OK;
    work_until_free(&r, &p, slot);
    hook_off();
    probe_close(&p);
    store_rig_close(&r);
}

static uint64_t pause_ns;
static void long_pause(struct fab_ep *ep, uint64_t ns)
{
    (void)ep;
    (void)ns;
    hook.clock += pause_ns;
}

static int patient_fence(struct fab_ep *ep, uint64_t client)
{
    (void)ep;
    (void)client;
    return ++net.fences < 100 ? FAB_PENDING : FAR_OK;
}

/* A client that waits for nodes is not taken for dead, however long their time-out is. */
static void a_client_that_waits_for_a_fence_keeps_its_lease(void **state)
{
    struct store_rig r;
    struct probe p;

    (void)state;
    store_rig_open(&r, "mem:?size=64m&lease=3600000", NULL, NULL, NULL);
    struct client *c = &r.session->client;
    probe_open(&p, r.fab);
    unsigned slot = leave_dead(&r);
    net = (typeof(net)){.fences = 0};
    hook_on(c->ep);
    hook_clock();
    hook.ops.fence = patient_fence;
    hook.ops.pause = long_pause;
    pause_ns = puppet_lease_ns(c) / 10;
    uint64_t heartbeat = probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat));
    assert_int_equal(puppet_recover(&r.session->op, slot, probe_incarnation(&p, slot)), FAR_OK);
    assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat)) > heartbeat + 20);
    assert_false(client_lapsed(c));
    assert_true(probe_incarnation(&p, slot) == 0);
    hook_off();
    puppet_never_lapse(c); /* by the clock that it has now */
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_do_not_wait_for_a_fence),
        cmocka_unit_test(a_fence_that_fails_is_tried_again),
        cmocka_unit_test(a_client_that_waits_for_a_fence_keeps_its_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
