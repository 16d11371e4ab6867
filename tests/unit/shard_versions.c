/* Units of SHARD that are two versions behind, or behind while a resize is pending. */
#include "support/shard_rig.h"

static unsigned looks;
static uint32_t key;

/* A looks for the unit that has the authority. When it has read the newest one, which is not
 * published, B moves the key there. */
static int move_behind_the_look(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t newest = unit_off(the, 12);
    bool hit = false;
    for (unsigned i = 0; i < req->count; i++)
        hit |=
            req->verbs[i].kind == FAB_READ && req->verbs[i].off == newest && req->verbs[i].len > 8;
    int rc = hook.real->post(ep, req);
    if (hit && ++looks == 2) { /* the first one is that of any get */
        uint32_t v = 0;
        assert_int_equal(word_of(the, 12, 0), 0);
        assert_int_equal(get(the, the->b, key, &v), FAR_OK);
        assert_int_not_equal(word_of(the, 12, 0), 0);
    }
    return rc;
}

/* SHARD-S6 */
static void a_reader_does_not_stay_where_the_authority_was(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    (void)state;
    the = &g;
    looks = 0;
    open_rig(&g);
    key = key_with(&g, &from, 15, 12); /* units 0, 4, 12 at versions 0, 1, 2 */
    assert_int_equal(insert(&g, g.b, key, 5), FAR_OK);
    resize(&g);
    resize(&g);
    hook_on(g.a->client.ep);
    hook.ops.post = move_behind_the_look;
    int rc = get(&g, g.a, key, &v);
    hook_off();
    assert_true(looks >= 2);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(v, 5);
    close_rig(&g);
}

static uint8_t fingerprint_of(struct rig *g, uint32_t k)
{
    struct shard_key hashed;
    shard_hash(view_of(g, g->b), (struct slice){&k, sizeof k}, &hashed);
    return hashed.fingerprint;
}

/* Seals have the parity of their move only. A unit that is at version 1 has seals of the move from
 * 0. If it were taken for one of version 2, they would look like those of the move that is pending:
 * but what they name has been freed since. */
static void a_reader_before_the_barrier_does_not_follow_old_seals(void **state)
{
    struct rig g;
    uint32_t from = 0, absent, v = 0;
    (void)state;
    the = &g;
    open_rig(&g);
    key = key_with(&g, &from, 7, 4); /* goes with the move from 0 */
    do
        absent = key_with(&g, &from, 31, 16); /* would go with the move from 2 */
    while (fingerprint_of(&g, absent) != fingerprint_of(&g, key));
    assert_int_equal(insert(&g, g.b, key, 5), FAR_OK);
    resize(&g);
    assert_int_equal(get(&g, g.b, key, &v), FAR_OK); /* moves it */
    uint64_t sealed = word_of(&g, 0, 0);
    assert_true(shard_sealed_by(sealed, 0));
    resize(&g);
    assert_int_equal(far_delete(g.b, g.t, &key, sizeof key), FAR_OK);
    resize(&g);
    assert_int_equal(view_of(&g, g.a)->version, 3);
    assert_true(word_of(&g, 0, 0) == sealed);
    assert_int_equal(word_of(&g, 8, 3), 0); /* it was not moved since */
    gaddr block = pointer_gaddr(sealed);    /* others use its memory now */
    store_rig_set(&g.r, block, 16, ~store_rig_get(&g.r, block, 16));
    before_the_barrier(&g);
    assert_int_equal(get(&g, g.a, absent, &v), FAR_NOT_FOUND);
    close_rig(&g);
}

static struct {
    uint64_t off;
    unsigned posted, fenced;
} later[2]; /* READs that must come behind that of level 1 */

static int watch_order(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++)
        for (unsigned k = 0; k < 2; k++)
            if (req->verbs[i].kind == FAB_READ && req->verbs[i].off == later[k].off) {
                later[k].posted++;
                later[k].fenced += req->verbs[i].flags & FAB_FENCE;
            }
    return hook.real->post(ep, req);
}

/* SHARD-S6, SHARD-S8: on a fabric that keeps no order by itself, a writer reads level 2 behind
 * level 1, and behind both whether the child has been touched. */
static void a_writer_before_the_barrier_reads_in_order(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 6;
    (void)state;
    the = &g;
    open_rig(&g);
    key = key_with(&g, &from, 7, 5);
    assert_int_equal(insert(&g, g.b, key, 5), FAR_OK);
    resize(&g);
    unsigned level1 = view_of(&g, g.a)->level1, order = g.r.pool->fab->order;
    later[0].off = unit_off(&g, 1) + level1 * 8ull;
    later[1].off = unit_off(&g, 5) + (level1 - 1) * 8ull;
    for (unsigned k = 0; k < 2; k++)
        later[k].posted = later[k].fenced = 0;
    before_the_barrier(&g);
    g.r.pool->fab->order = 0;
    hook_on(g.a->client.ep);
    hook.ops.post = watch_order;
    int rc = far_put(g.a, g.t, &key, sizeof key, &v, sizeof v);
    hook_off();
    g.r.pool->fab->order = order;
    assert_int_equal(rc, FAR_OK);
    for (unsigned k = 0; k < 2; k++) {
        assert_true(later[k].posted > 0);
        assert_int_equal(later[k].fenced, later[k].posted);
    }
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_does_not_stay_where_the_authority_was),
        cmocka_unit_test(a_reader_before_the_barrier_does_not_follow_old_seals),
        cmocka_unit_test(a_writer_before_the_barrier_reads_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
