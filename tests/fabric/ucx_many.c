/* Many requests on ucx: at once. They are sent in several messages, the first ones without a
 * poll. */
#include "support/memd_child.h"
#include "fabric/rig.h"

#define REQUESTS 500u /* more than fit the messages that may be under way */
#define AT       65536u

static struct fab *fab;

static void many_requests_complete_and_the_first_are_sent_without_a_poll(void **state)
{
    struct rig *r = rig_on(fab), *other = rig_on(fab);
    struct fab_verb verb[REQUESTS][2];
    struct fab_req req[REQUESTS];
    gaddr at = gaddr_make(0, AT);
    (void)state;

    rig_set(r, at, 0, 0); /* connects */
    for (unsigned i = 0; i < REQUESTS; i++) {
        r->buf[i] = i + 1;
        verb[i][0] = (struct fab_verb){
            .kind = FAB_WRITE, .len = 8, .off = AT + 64 * (i + 1), .buf = &r->buf[i]};
        verb[i][1] = (struct fab_verb){
            .kind = FAB_FAA, .len = 8, .off = AT, .swap = 1, .buf = &r->buf[REQUESTS + i]};
        req[i] = (struct fab_req){.verbs = verb[i], .count = 2};
        assert_int_equal(fab->ops->post(r->ep, &req[i]), FAR_OK);
    }
    uint64_t executed = 0, before = 0;
    for (unsigned i = 0; executed < 64 && i < 200000; i++)
        executed = rig_get(other, at, 0);
    assert_true(executed >= 64);
    for (unsigned i = 0; i < REQUESTS; i++) {
        while (!req[i].done)
            fab->ops->poll(r->ep, true);
        assert_int_equal(req[i].status, FAR_OK);
        before += r->buf[REQUESTS + i];
        assert_int_equal(rig_get(other, at, 64 * (i + 1)), i + 1);
    }
    assert_int_equal(before, REQUESTS * (REQUESTS - 1) / 2); /* each was executed once */
    rig_free(other);
    rig_free(r);
}

int main(void)
{
    static const char *const more[] = {"--size", "8m", "--threads", "2", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_requests_complete_and_the_first_are_sent_without_a_poll),
    };
    struct memd_child node = {0};
    memd_start(&node, 0, more);
    ASSERT(fab_open(memd_uri(&node, 1, ""), &fab) == FAR_OK);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fab_close(fab);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
