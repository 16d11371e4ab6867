/* Two clients insert one key at once, into different slots. */
#include "index/race/race.h"
#include "support/hook.h"
#include "support/probe.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct {
    struct store_rig *r;
    far_session *other;
    uint64_t key;
    bool done;
} rival;

static int insert(far_session *s)
{
    return far_insert(s, rival.r->table, &rival.key, sizeof rival.key, "v", 1);
}

/* A slot was free when the other looked, and is free again: nobody has committed it. */
static void insert_elsewhere(unsigned node, uint64_t off)
{
    struct probe p;
    rival.done = true;
    probe_open(&p, rival.r->fab);
    assert_true(probe_get(&p, gaddr_make(node, 0), off) == 0);
    probe_set(&p, gaddr_make(node, 0), off, RACE_SLOT_TENTATIVE);
    assert_int_equal(insert(rival.other), FAR_OK);
    probe_set(&p, gaddr_make(node, 0), off, 0);
    probe_close(&p);
}

/* Before the CAS of an insert, another client inserts the key. */
static int post_after_insert(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && !rival.done; i++)
        if (req->verbs[i].kind == FAB_CAS)
            insert_elsewhere(req->verbs[i].node, req->verbs[i].off);
    return hook.real->post(ep, req);
}

/* RACE-R2: the second look finds the other's slot. */
static void one_of_two_inserts_finds_the_key(void **state)
{
    struct far_table_options options = {.tuning = "groups=2&hot=0", .hash_seed = 3};
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=4m", NULL, NULL, &options);
    rival = (typeof(rival)){.r = &r, .other = store_rig_join(&r), .key = 7};
    hook_on(r.session->client.ep);
    hook.ops.post = post_after_insert;
    assert_int_equal(insert(r.session), FAR_EXISTS);
    hook_off();
    assert_true(rival.done);
    assert_int_equal(far_delete(r.session, r.table, &rival.key, 8), FAR_OK);
    assert_int_equal(far_exists(rival.other, r.table, &rival.key, 8), FAR_NOT_FOUND);
    far_session_close(rival.other);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_two_inserts_finds_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
