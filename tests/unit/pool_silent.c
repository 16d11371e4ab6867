/* Who counts as silent, and since when. The test drives the clock. */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct {
    struct store_rig r;
    struct probe p;
    unsigned slot; /* of a session that died */
    unsigned found;
} here;

static int set_up(void **state)
{
    (void)state;
    store_rig_open_driven(&here.r, "mem:?size=4m&clients=4&lease=60", NULL, NULL, NULL);
    probe_open(&here.p, here.r.fab);
    far_session *s = store_rig_join(&here.r);
    here.slot = s->client.slot;
    here.found = 0;
    assert_int_equal(client_park(&s->op), FAR_OK); /* it is in nobody's way, so nobody else looks */
    store_rig_kill(s);
    hook_on(here.r.session->client.ep);
    hook.ops.now = hook.ops.coarse = hook_coarse;
    hook.clock = here.r.clock->now;
    hook.ops.life = NULL; /* as between machines: only heartbeats tell */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    here.r.clock->now = hook.clock;
    hook_off();
    probe_close(&here.p);
    store_rig_close(&here.r);
    return 0;
}

static uint64_t slot_word(uint64_t at)
{
    return probe_get(&here.p, 0, at);
}

static void count_found(void *arg, unsigned slot, const struct client_slot *s, bool dead)
{
    (void)arg, (void)s;
    assert_true(dead);
    assert_int_equal(slot, here.slot);
    here.found++;
}

/* The next client of the slot comes. Its heartbeat happens to be the same. */
static void pause_until_the_next_client_comes(struct fab_ep *ep, uint64_t ns)
{
    uint64_t at = PROBE_SLOT(here.slot, incarnation);
    hook_pause(ep, ns);
    hook.ops.pause = hook_pause;
    probe_set(&here.p, 0, at, slot_word(at) + 1);
}

static void the_next_client_of_a_slot_is_not_silent(void **state)
{
    (void)state;
    hook.ops.pause = pause_until_the_next_client_comes;
    assert_int_equal(client_find_silent(&here.r.session->op, count_found, NULL), FAR_OK);
    assert_int_equal(here.found, 0);
    assert_int_equal(client_find_silent(&here.r.session->op, count_found, NULL), FAR_OK);
    assert_int_equal(here.found, 1);
}

static void heartbeat(void)
{
    uint64_t at = PROBE_SLOT(here.slot, heartbeat);
    probe_set(&here.p, 0, at, slot_word(at) + 1);
}

static void pause_and_send_heartbeat(struct fab_ep *ep, uint64_t ns)
{
    hook_pause(ep, ns);
    heartbeat();
}

static void a_client_whose_heartbeat_moves_is_not_silent(void **state)
{
    (void)state;
    hook.ops.pause = pause_and_send_heartbeat;
    assert_int_equal(client_find_silent(&here.r.session->op, count_found, NULL), FAR_OK);
    assert_int_equal(here.found, 0);
}

/* It has lived a little longer than the look of an earlier call. That says nothing of now. */
static void a_call_that_reaps_looks_twice_itself(void **state)
{
    unsigned dead = 1;
    (void)state;
    hook.ops.pause = pause_and_send_heartbeat;
    assert_int_equal(client_reap_dead(&here.r.session->op, &dead), FAR_OK);
    assert_int_equal(dead, 0);
    heartbeat(); /* its last */
    hook.ops.pause = hook_pause;
    assert_int_equal(client_reap_dead(&here.r.session->op, &dead), FAR_OK);
    assert_int_equal(dead, 1);
    assert_true(probe_incarnation(&here.p, here.slot) == 0);
    assert_int_equal(client_reap_dead(&here.r.session->op, &dead), FAR_OK);
    assert_int_equal(dead, 0); /* it counts for one call */
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_next_client_of_a_slot_is_not_silent),
        CASE(a_client_whose_heartbeat_moves_is_not_silent),
        CASE(a_call_that_reaps_looks_twice_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
