/* Two clients insert one key at once, into different buckets. */
#include "support/hook.h"
#include "support/probe.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static struct {
    struct store_rig r;
    far_session *other;
    uint64_t key;
    bool done;
    uint64_t *unused; /* for what a READ finds too late */
} duel;

static int insert(far_session *s)
{
    return far_insert(s, duel.r.table, &duel.key, sizeof duel.key, "v", 1);
}

/* A key whose buckets are apart. */
static uint64_t find_key(void)
{
    struct race_spot spot;
    uint64_t key = 0, apart = 0;
    assert_int_equal(far_exists(duel.r.session, duel.r.table, &key, 8), FAR_NOT_FOUND);
    do {
        race_rig_find(&duel.r, &key, sizeof key, &spot);
        uint64_t a = spot.key.combined[0], b = spot.key.combined[1];
        apart = a > b ? a - b : b - a;
    } while (apart < RACE_COMBINED_BYTES && ++key);
    return key;
}

/* While these buckets are full, the other client inserts the key. */
static void insert_elsewhere(const struct fab_verb *buckets)
{
    bool full[RACE_COMBINED_WORDS];
    gaddr node = gaddr_make(buckets->node, 0);
    struct probe p;
    duel.done = true;
    probe_open(&p, duel.r.fab);
    assert_int_equal(buckets->len, RACE_COMBINED_BYTES);
    for (unsigned i = 0; i < RACE_COMBINED_WORDS; i++)
        full[i] = probe_cas(&p, node, buckets->off + i * 8, 0, RACE_SLOT_TENTATIVE);
    assert_int_equal(insert(duel.other), FAR_OK);
    for (unsigned i = 0; i < RACE_COMBINED_WORDS; i++)
        if (full[i])
            assert_true(probe_cas(&p, node, buckets->off + i * 8, RACE_SLOT_TENTATIVE, 0));
    probe_close(&p);
}

/* A CAS of a slot, a READ of its buckets, and one of the others. If no fence keeps that behind the
 * CAS, the others are read before the other client inserts the key, and all else happens after
 * that. */
static int post_beside_insert(struct fab_ep *ep, struct fab_req *req)
{
    unsigned cas = 0;
    while (cas < req->count && req->verbs[cas].kind != FAB_CAS)
        cas++;
    if (cas == req->count || duel.done)
        return hook.real->post(ep, req);
    const struct fab_verb *v = &req->verbs[cas];
    assert_true(cas + 2 < req->count && v[1].kind == FAB_READ && v[2].kind == FAB_READ);
    assert_true(v->off >= v[1].off && v->off < v[1].off + v[1].len);
    bool early = !((v[1].flags | v[2].flags) & FAB_FENCE);
    struct fab_verb others = v[2];
    if (early) {
        hook_run(ep, &(struct fab_req){.verbs = &others, .count = 1});
        others.buf = duel.unused;
    }
    insert_elsewhere(&v[1]);
    req->verbs[cas + 2].buf = others.buf;
    hook_run(ep, req);
    return FAR_OK;
}

/* RACE-R2: the second look finds the other's slot. */
static void one_of_two_inserts_finds_the_key(void **state)
{
    struct far_table_options options = {.tuning = "groups=8&hot=0", .hash_seed = 3};

    (void)state;
    duel.done = false;
    store_rig_open(&duel.r, "mem:?size=4m", NULL, NULL, &options);
    duel.r.fab->order = 0; /* only fences order verbs */
    duel.other = store_rig_join(&duel.r);
    duel.key = find_key();
    duel.unused = op_buffer(&duel.r.session->op, BUF_BULK, RACE_COMBINED_BYTES);
    assert_non_null(duel.unused);
    hook_on(duel.r.session->client.ep);
    hook.ops.post = post_beside_insert;
    assert_int_equal(insert(duel.r.session), FAR_EXISTS);
    hook_off();
    assert_true(duel.done);
    assert_int_equal(far_delete(duel.r.session, duel.r.table, &duel.key, 8), FAR_OK);
    assert_int_equal(far_exists(duel.other, duel.r.table, &duel.key, 8), FAR_NOT_FOUND);
    far_session_close(duel.other);
    store_rig_close(&duel.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_two_inserts_finds_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
