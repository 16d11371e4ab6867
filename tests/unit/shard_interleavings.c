/* Interleavings that once broke SHARD: verbs are torn, delayed or reordered, as docs/fabric.md
 * allows. */
#include "support/shard_rig.h"

/* ---- a torn READ of a unit that is published meanwhile ------------------------------------ */
static unsigned torn;

/* ---- a torn READ while sids are renewed --------------------------------------------------- */
static uint64_t tail_early;
static unsigned stage;
static uint32_t stays, goes;
static struct batch_tap tap;

/* A's READ began before the plan was there: its tail word is of then. */
static int tear_tail(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *hit = NULL;
    for (unsigned i = 0; i < req->count && torn < 2; i++) /* the get's own, and that of its move */
        if (req->verbs[i].kind == FAB_READ && req->verbs[i].off == unit_off(the, 0) &&
            req->verbs[i].len == 32)
            hit = &req->verbs[i];
    int rc = hook.real->post(ep, req);
    if (hit) {
        torn++;
        ((uint64_t *)hit->buf)[2] = tail_early;
    }
    return rc;
}

/* B moves the unit. Before the post that fills the child, A comes. */
static void at_fill(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    (void)t;
    uint64_t child = unit_off(the, 32);
    for (unsigned i = 0; i < count && stage == 0; i++) {
        if (verbs[i].kind != FAB_CAS || verbs[i].off < child || verbs[i].off >= child + 40)
            continue;
        uint32_t v;
        stage = 1;
        hook_on(the->a->client.ep);
        hook.ops.post = tear_tail;
        (void)get(the, the->a, goes, &v); /* reads the child, moves its parent */
        hook_off();
        return;
    }
}

static void a_torn_read_does_not_seal_by_renewed_sids(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    (void)state;
    the = &g;
    torn = stage = 0;
    open_rig(&g);
    stays = key_with(&g, &from, 0x3f | 1 << 9,
                     1 << 9);               /* bucket 0 at version 4; bit 3 of its next sid */
    goes = key_with(&g, &from, 0x3f, 0x20); /* to bucket 32 */
    assert_int_equal(insert(&g, g.b, stays, 5), FAR_OK);
    assert_int_equal(insert(&g, g.b, goes, 6), FAR_OK);
    for (unsigned i = 0; i < 3; i++)
        resize(&g);
    assert_int_equal(get(&g, g.b, stays, &v), FAR_OK);
    assert_int_equal(far_update(g.b, g.t, &stays, 4, &(uint32_t){5}, 4),
                     FAR_OK); /* moves it to 3 */
    resize(&g);
    tail_early = word_of(&g, 0, 2);
    assert_true(shard_candidate(tail_early, 3));
    tap = (struct batch_tap){.posted = at_fill};
    g.b->op.batch.tap = &tap;
    (void)get(&g, g.b, goes, &v);
    g.b->op.batch.tap = NULL;
    printf("    stage %u torn %u\n", stage, torn);
    assert_int_equal(torn, 2);
    int rc = get(&g, g.b, stays, &v), check = far_table_check(g.b, g.t, say, NULL);
    printf("    the key that stays: %s; check: %s\n", far_strerror(rc), far_strerror(check));
    assert_int_equal(rc, FAR_OK);
    close_rig(&g);
}

/* ---- a sweep while a ride is in a bucket that is not published ---------------------------- */
static uint64_t ride_off;
static unsigned dropped;

/* Of the batch that fills the child, only the ride's own CAS happens (FABRIC-F5, and atomics have
 * no order). */
static int only_the_ride(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && !dropped; i++) {
        if (req->verbs[i].kind != FAB_CAS || req->verbs[i].off != ride_off)
            continue;
        struct fab_verb *all = req->verbs;
        unsigned count = req->count;
        dropped = 1;
        req->verbs = &all[i];
        req->count = 1;
        int rc = hook.real->post(ep, req);
        req->verbs = all;
        req->count = count;
        req->status = FAR_TIMEOUT;
        return rc;
    }
    return hook.real->post(ep, req);
}

static void a_sweep_finds_the_block_of_a_ride(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0, key, ride;
    struct far_pool_check result;
    (void)state;
    the = &g;
    dropped = 0;
    open_rig(&g);
    key = key_with(&g, &from, 7, 4);
    ride = key_with(&g, &from, 7, 4);
    assert_int_equal(insert(&g, g.b, key, 5), FAR_OK);
    resize(&g);
    ride_off = unit_off(&g, 4) + 8;
    hook_on(g.a->client.ep);
    hook.ops.post = only_the_ride;
    int rc = insert(&g, g.a, ride, 4711);
    hook_off();
    printf("    insert that rides: %s, word in the child: %llx, its mark: %llx\n", far_strerror(rc),
           (unsigned long long)word_of(&g, 4, 1), (unsigned long long)word_of(&g, 4, 3));
    assert_int_equal(dropped, 1);
    store_rig_kill(g.a);
    uint64_t word = word_of(&g, 4, 1);
    rc = far_pool_check(g.b, true, say, NULL, &result);
    printf("    sweep: %s, %llu bytes found, %u dead\n", far_strerror(rc),
           (unsigned long long)result.repaired_bytes, (unsigned)result.dead_clients);
    /* Others use the memory that was found. */
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t k = 100000 + i % 2000;
        if (shard_bucket(view_of(&g, g.b), hash_of(&g, k), 0) != 0)
            (void)far_put(g.b, g.r.table, &k, 4, &i, 4);
    }
    rc = get(&g, g.b, ride, &v);
    int check = far_table_check(g.b, g.t, say, NULL);
    printf("    word %llx; the ride's key: %s, value %u; check: %s\n", (unsigned long long)word,
           far_strerror(rc), v, far_strerror(check));
    assert_int_equal(check, FAR_OK);
    store_rig_close(&g.r);
}

/* ---- iterating over a unit that is moved meanwhile ---------------------------------------- */
static bool hit_unit(const struct fab_verb *verbs, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (verbs[i].kind == FAB_READ && verbs[i].off == unit_off(the, 0) && verbs[i].len == 32)
            return true;
    return false;
}

static void move_behind(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    (void)t;
    uint64_t guard = unit_off(the, 8) + 24; /* of the child that the move from version 1 makes */
    for (unsigned i = 0; i < count && stage == 0; i++) {
        if (hit_unit(verbs, count) || verbs[i].kind != FAB_READ || verbs[i].off != guard ||
            verbs[i].len != 8)
            continue; /* not those behind the unit */
        uint32_t v;
        stage = 1;
        (void)far_update(the->b, the->t, &stays, 4, &(uint32_t){6}, 4);
        (void)get(the, the->b, stays, &v);
    }
}

static void an_iteration_returns_no_deleted_key(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0, gone;
    char buf[4096];
    size_t len = 0;
    uint64_t cursor = 0;
    struct far_entry e;
    unsigned returned = 0;
    int rc;
    (void)state;
    the = &g;
    stage = 0;
    open_rig(&g);
    gone = key_with(&g, &from, 7, 4);
    stays = key_with(&g, &from, 15, 0);
    assert_int_equal(insert(&g, g.b, gone, 1), FAR_OK);
    assert_int_equal(insert(&g, g.b, stays, 2), FAR_OK);
    resize(&g);
    assert_int_equal(get(&g, g.b, gone, &v), FAR_OK); /* moved to bucket 4 */
    assert_int_equal(far_delete(g.b, g.t, &gone, 4), FAR_OK);
    resize(&g);
    tap = (struct batch_tap){.posted = move_behind};
    g.a->op.batch.tap = &tap;
    do {
        rc = far_iterate(g.a, g.t, &cursor, 0, buf, sizeof buf, &len);
        for (size_t pos = 0; rc == FAR_OK && far_entry_next(buf, len, &pos, &e);)
            returned += e.key_len == 4 && memcmp(e.key, &gone, 4) == 0;
    } while (rc == FAR_OK && cursor != 0);
    g.a->op.batch.tap = NULL;
    printf("    stage %u, iterate: %s, the deleted key was returned %u times\n", stage,
           far_strerror(rc), returned);
    assert_int_equal(stage, 1);
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(returned, 0);
    close_rig(&g);
}

/* ---- a sweep that reads a unit while it is moved twice ------------------------------------ */
static bool within;

/* A fails before it fills the child of the second move, which nobody completes for a while. */
static int not_the_second(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t child = unit_off(the, 8);
    for (unsigned i = 0; i < req->count; i++) {
        if (req->verbs[i].kind != FAB_CAS || req->verbs[i].off < child ||
            req->verbs[i].off >= child + 40)
            continue;
        dropped++;
        struct fab_verb *all = req->verbs;
        unsigned count = req->count;
        static struct fab_verb nothing;
        nothing = (struct fab_verb){.kind = FAB_READ, .len = 8, .buf = all[i].buf};
        req->verbs = &nothing;
        req->count = 1;
        int rc = hook.real->post(ep, req);
        req->verbs = all;
        req->count = count;
        req->status = FAR_TIMEOUT;
        return rc;
    }
    return hook.real->post(ep, req);
}

static void during_the_sweep(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    uint32_t v;
    (void)t;
    if (within)
        return;
    within = true;
    the->b->op.batch.tap = NULL;
    if (stage == 0 && hit_unit(verbs, count)) {
        stage = 1;
        hook_on(the->a->client.ep);
        hook.ops.post = not_the_second;
        int rc = get(the, the->a, goes, &v);
        hook_off();
        printf("    A moves the unit: %s, dropped %u, word %llx\n", far_strerror(rc), dropped,
               (unsigned long long)word_of(the, 0, 0));
    } else if (stage == 0) {
        (void)get(the, the->a, dummy, &v); /* it meets the sweep */
    }
    the->b->op.batch.tap = &tap;
    within = false;
}

static void a_sweep_marks_what_two_moves_have_sealed(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    struct sweep_result result = {0};
    (void)state;
    the = &g;
    dropped = stage = 0;
    within = false;
    open_rig(&g);
    goes = key_with(&g, &from, 15, 8);
    assert_int_equal(insert(&g, g.b, goes, 5), FAR_OK);
    resize(&g);
    resize(&g);
    tap = (struct batch_tap){.posted = during_the_sweep};
    g.b->op.batch.tap = &tap;
    int rc = pool_sweep(&g.b->op, &result);
    g.b->op.batch.tap = NULL;
    printf("    stage %u, sweep: %s\n", stage, far_strerror(rc));
    assert_int_equal(stage, 1);
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t k = 100000 + i % 2000;
        (void)far_put(g.b, g.r.table, &k, 4, &i, 4);
    }
    rc = get(&g, g.b, goes, &v);
    printf("    the key: %s, value %u\n", far_strerror(rc), v);
    struct audit a;
    far_session *both[] = {g.b, g.a};
    sim_audit(&a, g.r.pool, both, 2);
    printf("    audit: %u in two places, %s\n", a.wrong, a.wrong ? a.first : "");
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(a.wrong, 0);
    close_rig(&g);
}

/* ---- a full pool -------------------------------------------------------------------------- */
static void fill_pool(struct rig *g)
{
    int rc = FAR_OK;
    for (uint32_t i = 0, fails = 0; fails < 200; i++) {
        rc = far_put(g->b, g->r.table, &i, 4, "", 0);
        fails = rc == FAR_OK ? 0 : fails + 1;
    }
    printf("    the pool: %s\n", far_strerror(rc));
}

static void a_full_pool_can_be_read_and_deleted_from(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0, key[6];
    (void)state;
    the = &g;
    open_rig(&g);
    for (unsigned i = 0; i < 6; i++) {
        key[i] = key_with(&g, &from, 15, i < 3 ? 8 : 0);
        assert_int_equal(insert(&g, g.b, key[i], i), FAR_OK);
    }
    resize(&g);
    resize(&g);
    fill_pool(&g);
    int got = get(&g, g.b, key[0], &v), stayed = get(&g, g.b, key[5], &v);
    int deleted = far_delete(g.b, g.t, &key[0], 4);
    printf("    get: %s, %s; delete: %s\n", far_strerror(got), far_strerror(stayed),
           far_strerror(deleted));
    assert_int_equal(got, FAR_OK);
    assert_int_equal(stayed, FAR_OK);
    assert_int_equal(deleted, FAR_OK);
    close_rig(&g);
}

static void audit_now(struct rig *g, const char *when)
{
    struct audit a;
    far_session *both[] = {g->b, g->a};
    sim_audit(&a, g->r.pool, both, 2);
    printf("    %s: %llu nowhere, %u wrong\n", when, (unsigned long long)a.bytes[AUDIT_NOWHERE],
           a.wrong);
}
static void nothing_is_lost(void **state)
{
    struct rig g;
    uint32_t from = 0;
    (void)state;
    the = &g;
    open_rig(&g);
    audit_now(&g, "open");
    resize(&g);
    audit_now(&g, "resize");
    goes = key_with(&g, &from, 15, 8);
    assert_int_equal(insert(&g, g.b, goes, 5), FAR_OK);
    audit_now(&g, "insert");
    resize(&g);
    audit_now(&g, "resize");
    assert_int_equal(far_update(g.a, g.t, &goes, 4, "abcd", 4), FAR_OK);
    audit_now(&g, "update");
    close_rig(&g);
}

/* ---- the WRITE of a chain node that lands late -------------------------------------------- */
static struct fab_verb late;
static uint64_t late_words[8];

static int delay_the_node(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && dropped == 0; i++) {
        struct fab_verb *v = &req->verbs[i];
        if (v->kind != FAB_WRITE || v->node != 1 || v->len != 64 ||
            !shard_is(((uint64_t *)v->buf)[7], SHARD_OPEN))
            continue;
        dropped = 1;
        late = *v;
        memcpy(late_words, v->buf, 64);
        static struct fab_verb nothing;
        nothing = (struct fab_verb){.kind = FAB_READ, .len = 8, .off = 64, .buf = the->b->op.word};
        struct fab_verb *all = req->verbs;
        unsigned count = req->count;
        printf("    the node's post has %u verbs\n", count);
        req->verbs = &nothing;
        req->count = 1;
        int rc = hook.real->post(ep, req);
        req->verbs = all;
        req->count = count;
        req->status = FAR_TIMEOUT;
        return rc;
    }
    return hook.real->post(ep, req);
}

static uint32_t lane0(struct rig *g, uint32_t *from)
{
    for (;; ++*from) {
        struct shard_key k;
        shard_hash(view_of(g, g->b), (struct slice){from, 4}, &k);
        if (k.lane == 0 && (k.hash & 3) == 0)
            return (*from)++;
    }
}

static void a_late_write_of_a_chain_node_hits_nothing(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    (void)state;
    the = &g;
    dropped = 0;
    uri = "mem:?size=4m&nodes=2&clients=8&lease=60";
    open_rig(&g);
    uri = "mem:?size=16m&clients=8&lease=60";
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(insert(&g, g.b, lane0(&g, &from), i), FAR_OK);
    struct op *op = &g.b->op;
    gaddr at;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    while (pool_alloc_on(op, 0, size_class_for(64), &at) == FAR_OK)
        ;
    op_end(op);
    hook_on(g.b->client.ep);
    hook.ops.post = delay_the_node;
    int rc = insert(&g, g.b, lane0(&g, &from), 7);
    hook_off();
    printf("    insert: %s, delayed %u to %llx\n", far_strerror(rc), dropped,
           (unsigned long long)late.off);
    uint32_t key[20];
    for (unsigned i = 0; i < 20; i++) {
        key[i] = 5000 + i;
        assert_int_equal(far_put(g.b, g.r.table, &key[i], 4, &i, 4), FAR_OK);
    }
    for (unsigned i = 0; i < 8; i++) { /* it lands, within half a lease */
        store_rig_set(&g.r, gaddr_make(1, 0), late.off + i * 8, late_words[i]);
    }
    unsigned damaged = 0;
    for (unsigned i = 0; i < 20; i++) {
        size_t len;
        rc = far_get(g.b, g.r.table, &key[i], 4, &v, 4, &len);
        damaged += rc != FAR_OK;
        if (rc != FAR_OK)
            printf("    key %u of another table: %s\n", i, far_strerror(rc));
    }
    assert_int_equal(dropped, 1);
    assert_int_equal(damaged, 0);
    close_rig(&g);
}

/* ---- the same in level 1: a false miss of a get ------------------------------------------ */
static int tear_level_1(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *hit = NULL;
    uint64_t early = 0;
    for (unsigned i = 0; i < req->count && torn == 0; i++)
        if (req->verbs[i].kind == FAB_READ && req->verbs[i].off == unit_off(the, 4) &&
            req->verbs[i].len == 32)
            hit = &req->verbs[i];
    if (hit) { /* the first word is read, and the others after B has moved the unit */
        uint32_t v;
        torn++;
        early = word_of(the, 4, 0);
        assert_int_equal(get(the, the->b, goes, &v), FAR_OK);
        assert_int_equal(far_update(the->b, the->t, &stays, 4, &(uint32_t){6}, 4), FAR_OK);
    }
    int rc = hook.real->post(ep, req);
    if (hit)
        ((uint64_t *)hit->buf)[0] = early;
    return rc;
}

static void a_torn_read_makes_no_false_miss(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    (void)state;
    the = &g;
    torn = 0;
    open_rig(&g);
    goes = key_with(&g, &from, 7, 4);
    stays = key_with(&g, &from, 7, 0);
    assert_int_equal(insert(&g, g.b, goes, 5), FAR_OK);
    assert_int_equal(insert(&g, g.b, stays, 6), FAR_OK);
    resize(&g);
    hook_on(g.a->client.ep);
    hook.ops.post = tear_level_1;
    int rc = get(&g, g.a, goes, &v);
    hook_off();
    printf("    torn %u, guard %llx, get of a key that is there: %s\n", torn,
           (unsigned long long)word_of(&g, 4, 3), far_strerror(rc));
    assert_int_equal(rc, FAR_OK);
    close_rig(&g);
}

/* ---- a block that is written when its value is known --------------------------------------- */
static enum far_decision store_nine(void *arg, const void *old, size_t old_len, const void **value,
                                    size_t *value_len)
{
    static const uint32_t nine = 9;
    (void)arg;
    (void)old;
    (void)old_len;
    *value = &nine;
    *value_len = sizeof nine;
    return FAR_STORE;
}

/* Posts verb by verb, and looks for the key after each. */
static int get_after_each(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        uint32_t v;
        req->verbs = &all[i];
        req->count = 1;
        req->done = false;
        rc = hook.real->post(ep, req);
        assert_int_equal(get(the, the->b, stays, &v), FAR_OK);
    }
    req->verbs = all;
    req->count = count;
    return rc;
}

static void a_block_is_written_before_a_word_names_it(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0;
    (void)state;
    the = &g;
    open_rig(&g);
    stays = key_with(&g, &from, 7, 0);
    assert_int_equal(insert(&g, g.b, stays, 5), FAR_OK);
    hook_on(g.a->client.ep);
    hook.ops.post = get_after_each;
    int rc = far_modify(g.a, g.t, &stays, sizeof stays, store_nine, NULL);
    hook_off();
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(get(&g, g.b, stays, &v), FAR_OK);
    assert_int_equal(v, 9);
    close_rig(&g);
}

/* ---- purges that are broken off (SHARD-S4) ------------------------------------------------- */
static unsigned broken_slot; /* whose CAS does not happen at once */

/* The request with that CAS is delayed, and its client does not learn what becomes of it. */
static int delay_the_cas(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && dropped == 0; i++) {
        if (req->verbs[i].kind != FAB_CAS ||
            req->verbs[i].off != unit_off(the, 0) + 8 * broken_slot)
            continue;
        dropped = 1;
        late = req->verbs[i];
        req->done = true;
        req->status = FAR_TIMEOUT;
        return FAR_OK;
    }
    return hook.real->post(ep, req);
}

/* Bucket 0 has three keys of level 1, and its last slot is free. Returns that of the first slot. */
static uint32_t open_three(struct rig *g, uint32_t *from)
{
    uint32_t key[3];
    the = g;
    dropped = stage = 0;
    *from = 0;
    open_rig(g);
    for (unsigned i = 0; i < 3; i++) {
        key[i] = key_with(g, from, 7, 0);
        assert_int_equal(insert(g, g->b, key[i], i), FAR_OK);
    }
    goes = key_with(g, from, 7, 4);
    return key[0];
}

/* B's insert purges, without the CAS of the slot. */
static void break_a_purge(uint32_t key, unsigned slot)
{
    struct client *b = &the->b->client;
    dropped = 0;
    broken_slot = slot;
    client_withhold_announcements(b, true); /* the hook has another clock */
    hook_on(b->ep);
    hook.ops.post = delay_the_cas;
    assert_int_equal(insert(the, the->b, key, 7), FAR_TIMEOUT);
    hook_off();
    client_withhold_announcements(b, false);
    assert_int_equal(dropped, 1);
}

/* Two clients insert the same key: B comes before A's CAS of the last slot of level 1. */
static void (*before_it)(void);
static void before_the_cas(struct batch_tap *t, const struct fab_verb *verbs, unsigned count)
{
    (void)t;
    for (unsigned i = 0; i < count && stage == 0; i++) {
        if (verbs[i].kind != FAB_CAS || verbs[i].off != unit_off(the, 0) + 24)
            continue;
        stage = 1;
        before_it();
    }
}

static void expect_one_of_two(struct rig *g, void (*meanwhile)(void))
{
    before_it = meanwhile;
    tap = (struct batch_tap){.posted = before_the_cas};
    g->a->op.batch.tap = &tap;
    int rc = insert(g, g->a, goes, 5);
    g->a->op.batch.tap = NULL;
    assert_int_equal(stage, 1);
    assert_int_equal(rc, FAR_EXISTS);
    assert_int_equal(far_table_check(g->b, g->t, say, NULL), FAR_OK);
    close_rig(g);
}

static uint32_t second, other;

/* A slot is deleted, and a purge makes it a filler, but does not complete the frontier. */
static void leave_a_filler(void)
{
    assert_int_equal(far_delete(the->b, the->t, &second, 4), FAR_OK);
    break_a_purge(other, 3);
    assert_true(shard_is(word_of(the, 0, 0), SHARD_FILLER));
    assert_int_equal(insert(the, the->b, goes, 8), FAR_OK);
}

static void a_filler_of_a_purge_that_is_not_complete_is_not_free(void **state)
{
    struct rig g;
    uint32_t from, first = open_three(&g, &from);
    (void)state;
    second = key_with(&g, &from, 7, 0);
    other = key_with(&g, &from, 7, 0);
    assert_int_equal(far_delete(g.b, g.t, &first, 4), FAR_OK);
    assert_int_equal(insert(&g, g.b, second, 6), FAR_OK); /* by a purge that is complete */
    assert_true(shard_live(word_of(&g, 0, 0)) && shard_is(word_of(&g, 0, 3), SHARD_COMPLETE));
    expect_one_of_two(&g, leave_a_filler);
}

/* The CAS that was delayed happens now. */
static void land_late(void)
{
    assert_true(word_of(the, 0, 0) == late.compare);
    store_rig_set(&the->r, 0, unit_off(the, 0), late.swap);
    assert_int_equal(insert(the, the->b, goes, 8), FAR_OK);
}

/* A knows of a resize, and so it does not purge. */
static void fillers_are_there_before_the_frontier_is_complete(void **state)
{
    struct rig g;
    uint32_t from, first = open_three(&g, &from), v = 7;
    uint64_t at = offsetof(struct shard_root, count);
    (void)state;
    assert_int_equal(far_delete(g.b, g.t, &first, 4), FAR_OK);
    break_a_purge(key_with(&g, &from, 7, 0), 0);
    store_rig_set(&g.r, view_of(&g, g.b)->root, at, 1u << 30);
    assert_int_equal(far_put(g.b, g.t, &dummy, sizeof dummy, &v, sizeof v), FAR_OK);
    store_rig_set(&g.r, view_of(&g, g.b)->root, at, 0);
    for (unsigned i = 0; i < 20 && view_of(&g, g.a)->version == 0; i++)
        assert_int_equal(get(&g, g.a, dummy, &v), FAR_OK);
    assert_true(view_of(&g, g.a)->version == 1 && view_of(&g, g.a)->settled == 0);
    expect_one_of_two(&g, land_late);
}

/* ---- a move that finds no memory ----------------------------------------------------------- */
static void a_sealed_key_is_not_absent_because_the_pool_is_full(void **state)
{
    struct rig g;
    uint32_t from, v = 0;
    (void)state;
    uri = "mem:?size=1m&clients=8&lease=60"; /* too small for spares: a sweep would find one */
    (void)open_three(&g, &from);
    uri = "mem:?size=16m&clients=8&lease=60";
    for (unsigned i = 0; i < 3; i++) /* all of the unit: the plan takes a chain node */
        assert_int_equal(insert(&g, g.b, i == 0 ? goes : key_with(&g, &from, 7, 0), i), FAR_OK);
    resize(&g);
    store_rig_set(&g.r, 0, unit_off(&g, 0) + 24, word_of(&g, 0, 3) | shard_seal(0));
    fill_pool(&g);
    assert_int_equal(far_delete(g.a, g.t, &goes, sizeof goes), FAR_POOL_FULL);
    assert_int_equal(get(&g, g.a, goes, &v), FAR_OK);
    close_rig(&g);
}

/* ---- units that are not published ------------------------------------------------------------ */
static uint32_t moved[5]; /* more keys than level 1 has room for */
static unsigned looked;

/* When A has put the mark into the child, B looks for the last key behind each verb. */
static int look_behind_the_mark(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *all = req->verbs;
    unsigned count = req->count;
    int rc = FAR_OK;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        uint32_t v;
        req->verbs = &all[i];
        req->count = 1;
        req->done = false;
        rc = hook.real->post(ep, req);
        if (word_of(the, 4, 3) == 0)
            continue;
        looked++;
        for (unsigned k = 0; k < 5; k++)
            assert_int_equal(get(the, the->b, moved[k], &v), FAR_OK);
    }
    req->verbs = all;
    req->count = count;
    return rc;
}

/* SHARD-S5 */
static void a_child_is_whole_when_its_mark_is_there(void **state)
{
    struct rig g;
    uint32_t from = 0, v;
    (void)state;
    the = &g;
    looked = 0;
    open_rig(&g);
    for (uint32_t i = 0; i < 5; i++) {
        moved[i] = key_with(&g, &from, 7, 4);
        assert_int_equal(insert(&g, g.b, moved[i], i), FAR_OK);
    }
    resize(&g);
    assert_true(word_of(&g, 4, 3) == 0);
    hook_on(g.a->client.ep);
    hook.clock = g.r.clock->now;
    hook.ops.post = look_behind_the_mark;
    assert_int_equal(get(&g, g.a, moved[0], &v), FAR_OK);
    hook_off();
    assert_true(looked > 0);
    close_rig(&g);
}

/* SHARD-S6: nothing was moved by either of two resizes. */
static void a_get_looks_further_than_a_parent_that_is_not_published(void **state)
{
    struct rig g;
    uint32_t from = 0, v = 0, key;
    (void)state;
    open_rig(&g);
    key = key_with(&g, &from, 15, 12);
    assert_int_equal(insert(&g, g.b, key, 6), FAR_OK);
    resize(&g);
    resize(&g);
    assert_int_equal(get(&g, g.a, key, &v), FAR_OK);
    assert_int_equal(v, 6);
    close_rig(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_torn_read_makes_no_false_miss),
        cmocka_unit_test(a_torn_read_does_not_seal_by_renewed_sids),
        cmocka_unit_test(a_sweep_finds_the_block_of_a_ride),
        cmocka_unit_test(an_iteration_returns_no_deleted_key),
        cmocka_unit_test(a_sweep_marks_what_two_moves_have_sealed),
        cmocka_unit_test(a_full_pool_can_be_read_and_deleted_from),
        cmocka_unit_test(a_late_write_of_a_chain_node_hits_nothing),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(a_block_is_written_before_a_word_names_it),
        cmocka_unit_test(a_filler_of_a_purge_that_is_not_complete_is_not_free),
        cmocka_unit_test(fillers_are_there_before_the_frontier_is_complete),
        cmocka_unit_test(a_sealed_key_is_not_absent_because_the_pool_is_full),
        cmocka_unit_test(a_child_is_whole_when_its_mark_is_there),
        cmocka_unit_test(a_get_looks_further_than_a_parent_that_is_not_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
