/* A pool with a probe, and sessions whose registrations a test breaks off or takes away. */
#ifndef TESTS_REGISTER_RIG_H
#define TESTS_REGISTER_RIG_H

#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define LEASE    "lease=3600000" /* no lease lapses by itself */
#define URI      "mem:?size=16m&clients=8&" LEASE
#define URI_RING "mem:?size=16m&clients=8&defer=1&" LEASE

static inline int get(struct store_rig *r, far_session *s)
{
    uint64_t key = 1, got = 0;
    return far_get(s, r->table, &key, 8, &got, 8, NULL);
}

static inline int submit_get(struct store_rig *r, far_session *s, uint64_t *got)
{
    static const uint64_t key = 1;
    struct far_op op = {
        .kind = FAR_OP_GET, .table = r->table, .key = &key, .key_len = 8, .buf = got, .cap = 8};
    return far_submit(s, &op);
}

static inline int put(struct store_rig *r, far_session *s, uint64_t key)
{
    return far_put(s, r->table, &key, 8, &key, 8);
}

static inline far_session *join(struct store_rig *r)
{
    far_session *s = NULL;
    assert_int_equal(far_session_open(r->pool, NULL, &s), FAR_OK);
    assert_int_equal(get(r, s), FAR_OK);
    return s;
}

/* Frees the slot of a client that others have declared dead. */
static inline void shut_out(struct probe *p, far_session *s)
{
    probe_set(p, 0, PROBE_SLOT(s->client.slot, incarnation), 0);
    puppet_lapse(&s->client);
}

static inline void start(struct store_rig *r, struct probe *p, const char *uri)
{
    struct knobs knobs = pool_knobs_default;
    knobs.tick_ops = 1000; /* announcements are sent when the test wants them */
    store_rig_open(r, uri, &knobs, NULL, NULL);
    probe_open(p, r->fab);
    assert_int_equal(put(r, r->session, 1), FAR_OK);
}

static inline void end(struct store_rig *r, struct probe *p)
{
    probe_close(p);
    store_rig_close(r);
}

/* Drives the epochs on, as far as other sessions allow. */
static inline void push_epochs(far_session *s)
{
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(client_drive_epoch(&s->op), FAR_OK);
}

static inline bool claims_slot(const struct fab_verb *v)
{
    return v->kind == FAB_CAS && v->off >= CLIENTS_OFF && v->compare == 0;
}

/* Posts until node 0 is out of reach. */
static struct {
    unsigned pass; /* posts behind the claim of a slot that arrive */
    bool claimed;
} breaks;

static inline int post_until_it_breaks(struct fab_ep *ep, struct fab_req *req)
{
    if (breaks.claimed && breaks.pass == 0)
        return FAR_UNREACHABLE; /* for a moment */
    breaks.pass -= breaks.claimed;
    breaks.claimed |= claims_slot(&req->verbs[0]);
    return hook.real->post(ep, req);
}

/* For hooks: a pause takes no time. */
static inline void pause_not(struct fab_ep *ep, uint64_t ns)
{
    (void)ep, (void)ns;
}

#endif
