/* Which sessions the keeper of a pool borrows, to park them or to send their heartbeats. */
#include "store/keeper.c"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void use(struct store_rig *r)
{
    assert_int_equal(far_put(r->session, r->table, "k", 1, "v", 1), FAR_OK);
}

/* Else a session that is used all the time would be parked between its operations. */
static void a_session_that_was_used_since_the_last_look_is_left_alone(void **state)
{
    struct store_rig r;
    uint64_t turn = 0;

    (void)state;
    store_rig_open(&r, "mem:?size=4m", NULL, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        use(&r);
        assert_false(borrow(r.session, &turn));
    }
    assert_true(borrow(r.session, &turn)); /* nothing has happened since */
    client_return(&r.session->client, turn);
    store_rig_close(&r);
}

static void a_session_that_is_parked_is_left_alone_until_its_heartbeat(void **state)
{
    struct store_rig r;
    uint64_t turn = 0;

    (void)state;
    store_rig_open_driven(&r, "mem:?size=4m", NULL, NULL, NULL);
    use(&r);
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    (void)borrow(r.session, &turn); /* it was used */
    assert_false(borrow(r.session, &turn));
    store_rig_pass(&r, puppet_lease_ns(&r.session->client) / 4);
    assert_true(borrow(r.session, &turn));
    client_return(&r.session->client, turn);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_that_was_used_since_the_last_look_is_left_alone),
        cmocka_unit_test(a_session_that_is_parked_is_left_alone_until_its_heartbeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
