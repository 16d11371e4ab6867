/* Sessions that are closed when a node is full, or does not answer. */
#include "support/hook.h"
#include "support/probe.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define CHUNKS_MOST 256

static void open_pool(const char *uri, far_pool **pool, far_session **s, far_session **other)
{
    assert_int_equal(far_pool_open(uri, pool), FAR_OK);
    assert_int_equal(far_session_open(*pool, NULL, s), FAR_OK);
    assert_int_equal(far_session_open(*pool, NULL, other), FAR_OK);
}

/* FREELIST-S3: the pages for what lies on a full node come from elsewhere, with more than was
 * needed. */
static void a_session_that_leaves_takes_nothing_along_from_other_nodes(void **state)
{
    (void)state;
    for (unsigned full = 0; full < 2; full++) {
        far_pool *pool = NULL;
        far_session *s = NULL, *other = NULL;
        gaddr at = 0, chunk[CHUNKS_MOST];
        unsigned chunks = 0;
        struct far_pool_usage usage;
        struct probe p;

        open_pool("mem:?size=4m&nodes=2&lease=20000", &pool, &s, &other);
        client_enter(&s->client);
        client_enter(&other->client);
        assert_int_equal(pool_alloc(&other->op, full, 0, &at), FAR_OK);
        pool_free_unpublished(&other->client, at, 0);
        do {
            assert_true(chunks < CHUNKS_MOST);
            assert_int_equal(pool_alloc(&s->op, full, CHUNK_CLASS, &chunk[chunks++]), FAR_OK);
        } while (gaddr_node(chunk[chunks - 1]) == full);
        client_leave(&other->client);
        far_session_close(other);
        while (chunks > 0)
            pool_free_unpublished(&s->client, chunk[--chunks], CHUNK_CLASS);
        client_leave(&s->client);
        probe_open(&p, pool->fab);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 0);
        probe_close(&p);
        assert_int_equal(far_pool_usage(s, &usage), FAR_OK);
        assert_int_equal(usage.unknown, 0);
        far_session_close(s);
        far_pool_close(pool);
    }
}

static unsigned late;

/* The request that gives the first bundle away times out, and may arrive later. */
static int late_post(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *last = &req->verbs[req->count - 1];
    if (late == 0 && last->kind == FAB_CAS && last->off >= NODE_FREE_OFF &&
        last->off < NODE_FREE_OFF + CLASS_COUNT * 8) {
        late++;
        req->status = FAR_TIMEOUT;
        req->done = true;
        return FAR_OK;
    }
    return hook.real->post(ep, req);
}

/* EPOCH-E6: a client does not give its slot up while its own verbs may still arrive. */
static void a_session_whose_last_bundle_may_be_late_keeps_its_slot(void **state)
{
    far_pool *pool = NULL;
    far_session *s = NULL, *other = NULL;
    gaddr at = 0;
    struct probe p;

    (void)state;
    open_pool("mem:?size=4m&lease=20000", &pool, &s, &other);
    probe_open(&p, pool->fab);
    client_enter(&other->client);
    assert_int_equal(pool_alloc(&other->op, 0, 0, &at), FAR_OK);
    pool_free_unpublished(&other->client, at, 0);
    unsigned slot = other->client.slot;
    uint64_t incarnation = other->client.incarnation;
    hook_on(other->client.ep);
    hook.ops.post = late_post;
    client_leave(&other->client);
    far_session_close(other);
    assert_int_equal(late, 1);
    assert_true(probe_incarnation(&p, slot) == incarnation);
    probe_close(&p);
    far_session_close(s);
    far_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_that_leaves_takes_nothing_along_from_other_nodes),
        cmocka_unit_test(a_session_whose_last_bundle_may_be_late_keeps_its_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
