/* What a client knows of a node's clock (WIRE-W5): the two clocks run at different rates, and
 * answers take time. All clocks here are numbers that the test moves. */
#include "fabric/wire.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define MS         1000000ull
#define LEASE_MS   5000u
#define TIMEOUT_MS 1000000u
#define START      (1000000 * MS)
#define FAR_AHEAD  (UINT64_MAX / 2)

/* Two machines: in `real` nanoseconds a clock advances by real * rate / 1000. */
struct machines {
    uint64_t client, node;
    unsigned client_rate, node_rate;
};

static void pass(struct machines *m, uint64_t real)
{
    m->client += real / 1000 * m->client_rate;
    m->node += real / 1000 * m->node_rate;
}

/* The node answers, and the client takes the answer that much later. */
static struct wire_clock answer(struct machines *m, uint64_t delay)
{
    struct wire_clock clock = {.node = m->node};
    pass(m, delay);
    clock.here = m->client;
    return clock;
}

static const uint64_t span[] = {0, MS, 100 * MS, 15000 * MS, 86400000 * MS};
#define SPANS (sizeof span / sizeof *span)

/* If a client took the node's clock for more than it is, a batch could be executed too late. */
static void a_clock_is_never_overestimated(void **state)
{
    (void)state;
    for (unsigned rate = 900; rate <= 1100; rate += 50) {
        for (unsigned i = 0; i < SPANS * SPANS; i++) {
            struct machines m = {START, START + FAR_AHEAD, rate, 1000 - 20};
            struct wire_clock clock = answer(&m, span[i / SPANS]);
            pass(&m, span[i % SPANS]);
            assert_true(wire_clock_least(&clock, m.client) <= m.node);
        }
    }
}

/* The client's clock loses or gains a tenth; each answer says again how far it is off. */
static void a_client_whose_clock_drifts_stays_valid(void **state)
{
    const uint64_t valid_ns = wire_valid_us(LEASE_MS, TIMEOUT_MS) * 1000ull;
    (void)state;
    for (unsigned rate = 900; rate <= 1100; rate += 200) {
        struct machines m = {START, START, rate, 1000};
        for (unsigned hour = 0; hour < 3600; hour++) {
            struct wire_clock clock = answer(&m, MS);
            pass(&m, 1000 * MS);
            uint64_t sent = wire_clock_least(&clock, m.client);
            pass(&m, 100 * MS); /* the message is on its way */
            assert_true(sent <= m.node && m.node - sent <= valid_ns);
        }
    }
}

/* FABRIC-F5: when the client's clock says that half a lease has passed since it sent a batch, the
 * node must not execute it any more. */
static void a_batch_ends_within_half_a_lease(void **state)
{
    const uint64_t valid_ns = wire_valid_us(LEASE_MS, TIMEOUT_MS) * 1000ull;
    (void)state;
    for (unsigned rate = 900; rate <= 1100; rate += 50) {
        struct machines m = {START, START, rate, 1000 - 20};
        struct wire_clock clock = answer(&m, MS);
        pass(&m, 10000 * MS);
        uint64_t sent = wire_clock_least(&clock, m.client), sent_here = m.client;
        while (m.client - sent_here < LEASE_MS * MS / 2)
            pass(&m, MS);
        assert_true(m.node - sent > valid_ns);
    }
}

static void the_time_out_bounds_it_too(void **state)
{
    (void)state;
    assert_int_equal(wire_valid_us(LEASE_MS, 10), 10000);
    assert_int_equal(wire_valid_us(0, 10), 10000); /* the lease is not known yet */
    assert_int_equal(wire_valid_us(UINT32_MAX, UINT32_MAX), UINT32_MAX);
}

static void a_clock_that_went_back_counts_from_there(void **state)
{
    const struct wire_clock clock = {.node = START, .here = START};
    (void)state;
    assert_int_equal(wire_clock_least(&clock, START - MS), START);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_is_never_overestimated),
        cmocka_unit_test(a_client_whose_clock_drifts_stays_valid),
        cmocka_unit_test(a_batch_ends_within_half_a_lease),
        cmocka_unit_test(the_time_out_bounds_it_too),
        cmocka_unit_test(a_clock_that_went_back_counts_from_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
