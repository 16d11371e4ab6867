/*
 * Epochs: certificates, announcements that cost no round trip, and the promise itself: a retired
 * object is not reused while any operation or cache may lead to it. An observer judges that. It
 * knows when each operation began and when each object was retired, and nothing of epochs.
 */
#include "support/hook.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include "index/race/race.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define HOUR "lease=3600000"

/* EPOCH-E1: the global epoch is at most one ahead of every registered client's certificate. */
static void expect_e1(struct probe *p, unsigned clients)
{
    uint64_t certificate[64];
    assert_true(clients <= 64);
    for (unsigned i = 0; i < clients; i++)
        certificate[i] =
            probe_incarnation(p, i) ? probe_get(p, 0, PROBE_SLOT(i, epoch)) : UINT64_MAX - 1;
    uint64_t epoch = probe_epoch(p);
    for (unsigned i = 0; i < clients; i++)
        assert_true(epoch <= certificate[i] + 1);
}

static void put(struct store_rig *r, far_session *s, uint64_t key, uint64_t value)
{
    assert_int_equal(far_put(s, r->table, &key, sizeof key, &value, sizeof value), FAR_OK);
}

/* ---- stamps ---------------------------------------------------------------------------------- */

static void no_stamp_is_given_twice(void **state)
{
    enum { EACH = 200 };
    struct store_rig r;
    uint64_t stamp[2 * EACH];

    (void)state;
    store_rig_open(&r, "mem:?size=4m&" HOUR, NULL, NULL, NULL);
    far_session *other = store_rig_join(&r);
    for (unsigned i = 0; i < EACH; i++) {
        stamp[2 * i] = client_stamp(&r.session->client);
        stamp[2 * i + 1] = client_stamp(&other->client);
    }
    for (unsigned i = 0; i < 2 * EACH; i++) {
        assert_true(stamp[i] >> CLIENT_STAMP_BITS == 0);
        for (unsigned j = 0; j < i; j++)
            assert_true(stamp[i] != stamp[j]);
    }
    far_session_close(other);
    store_rig_close(&r);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static void a_client_certifies_what_it_has_read(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct probe p;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    probe_open(&p, r.fab);
    const struct client *c = &r.session->client;
    assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, epoch)) == 0);
    uint64_t last = 0, heartbeat = probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat));
    for (unsigned i = 0; i < 200; i++) {
        put(&r, r.session, 1, i);
        uint64_t certificate = probe_get(&p, 0, PROBE_SLOT(c->slot, epoch));
        assert_true(certificate >= last && certificate <= probe_epoch(&p));
        assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat)) > heartbeat);
        assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, retired_bytes)) <= 64 * i);
        heartbeat = probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat));
        expect_e1(&p, 4);
        last = certificate;
    }
    assert_true(last > 0 + 20); /* alone, it moves the epoch on by itself */
    probe_close(&p);
    store_rig_close(&r);
}

/* A client that has retired nothing does not read the registry, and does not move the epoch on. */
static void readers_leave_the_epoch_alone(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct probe p;
    uint64_t key = 1, value = 0;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    probe_open(&p, r.fab);
    put(&r, r.session, key, 5);
    uint64_t epoch = probe_epoch(&p), bytes = 0;
    for (unsigned i = 0; i < 100; i++) {
        struct far_stats stats;
        assert_int_equal(far_get(r.session, r.table, &key, 8, &value, 8, NULL), FAR_OK);
        far_stats(r.session, r.table, &stats);
        bytes = stats.op[FAR_OP_GET].bytes_read;
    }
    assert_true(probe_epoch(&p) == epoch);
    assert_true(bytes / 100 < 512);
    probe_close(&p);
    store_rig_close(&r);
}

/* EPOCH-E2: an announcement may read the cache's version before it reads the epoch. */
static void an_epoch_is_validated_by_the_next_announcement(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct probe p;
    uint64_t key = 1;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    probe_open(&p, r.fab);
    const struct client *c = &r.session->client;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
    uint64_t epoch = probe_epoch(&p);
    assert_true(puppet_epoch_validated(c) == epoch);
    probe_set(&p, 0, PROBE_CONTROL(epoch), epoch + 1);
    assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
    assert_true(puppet_epoch_seen(c) == epoch + 1 && puppet_epoch_validated(c) == epoch);
    assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
    assert_true(puppet_epoch_validated(c) == epoch + 1);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- no round trip --------------------------------------------------------------------------- */

static void run_some(unsigned tick_ops, const char *uri, struct far_stats *stats)
{
    struct knobs knobs = pool_knobs_default;
    struct far_session_options session = {.seed = 3};
    struct far_table_options table = {.hash_seed = 9, .expected_keys = 400};
    struct store_rig r;

    knobs.tick_ops = tick_ops;
    store_rig_open(&r, uri, &knobs, &session, &table);
    for (uint64_t k = 0; k < 200; k++) {
        uint64_t value = 0;
        assert_int_equal(far_insert(r.session, r.table, &k, 8, &k, 8), FAR_OK);
        assert_int_equal(far_get(r.session, r.table, &k, 8, &value, 8, NULL), FAR_OK);
        assert_int_equal(far_update(r.session, r.table, &k, 8, &k, 8), FAR_OK);
        if (k % 2)
            assert_int_equal(far_delete(r.session, r.table, &k, 8), FAR_OK);
        assert_int_equal(far_exists(r.session, r.table, &k, 8), k % 2 ? FAR_NOT_FOUND : FAR_OK);
    }
    far_stats(r.session, r.table, stats);
    store_rig_close(&r);
}

/* The same operations, with an announcement at every one and with none: round trip for round trip
 * the same. */
static void announcements_cost_no_round_trip(void **state)
{
    static const char *const uris[] = {"mem:?size=4m&" HOUR, "mem:?size=4m&nodes=3&" HOUR,
                                       "mem:?size=4m&defer=1&" HOUR};
    (void)state;
    for (unsigned u = 0; u < 3; u++) {
        struct far_stats often, never;
        run_some(1, uris[u], &often);
        run_some(UINT32_MAX, uris[u], &never);
        for (unsigned kind = 0; kind < FAR_OP_KINDS; kind++) {
            assert_true(often.op[kind].count == never.op[kind].count);
            assert_true(often.op[kind].rtts == never.op[kind].rtts);
        }
        assert_true(often.op[FAR_OP_GET].verbs > never.op[FAR_OP_GET].verbs);
    }
}

/* ---- the observer ---------------------------------------------------------------------------- */

#define SESSIONS 3
#define DEPTH    4

struct shadow {
    far_session *session;
    uint64_t began[DEPTH]; /* step at which the place's operation began, 0: none in flight */
    struct entry {
        uint64_t object, step;
    } * limbo; /* what is retired, and since when */
    size_t count, head, room;
    uint64_t keys[DEPTH], values[DEPTH], got[DEPTH];
};

struct observer {
    struct store_rig rig;
    struct shadow shadow[SESSIONS];
    struct rng rng;
    uint64_t step, blocks, subtables; /* reused so far */
};

static void observe_operations(struct observer *o, struct shadow *s)
{
    for (unsigned i = 0; i < DEPTH; i++) {
        bool in_flight = s->session->slot && op_in_flight(&s->session->slot[i].op);
        if (!in_flight)
            s->began[i] = 0;
        else if (s->began[i] == 0)
            s->began[i] = o->step;
    }
}

/* The object goes back to a stock now. Who could still be led to it? */
static void expect_nobody_there(struct observer *o, const struct entry *e)
{
    gaddr at = e->object & ((1ull << GADDR_BITS) - 1);
    unsigned size_class = (unsigned)(e->object >> GADDR_BITS);

    for (unsigned i = 0; i < SESSIONS; i++) {
        struct shadow *s = &o->shadow[i];
        for (unsigned n = 0; n < DEPTH; n++)
            if (s->began[n] != 0 && s->began[n] < e->step)
                fail_msg("step %llu: reused what was retired at %llu, with an operation of session "
                         "%u in flight since %llu",
                         (unsigned long long)o->step, (unsigned long long)e->step, i,
                         (unsigned long long)s->began[n]);
        struct race_view *view = (struct race_view *)store_known(s->session, o->rig.table)->view;
        for (uint64_t n = 0; view && !view->base.cached.stale && n < 1ull << view->depth; n++)
            if (race_entry_subtable(view->entries[n]) == at)
                fail_msg("step %llu: reused a subtable that session %u has in its cache",
                         (unsigned long long)o->step, i);
    }
    if (size_class == race_subtable_class(2))
        o->subtables++;
    else
        o->blocks++;
}

static void observe_limbo(struct observer *o, struct shadow *s)
{
    const struct client *c = &s->session->client;
    size_t room = puppet_limbo_room(c);
    if (room != s->room) { /* it has grown, and nothing was taken out in that step */
        s->limbo = realloc(s->limbo, room * sizeof *s->limbo);
        assert_non_null(s->limbo);
        assert_true(puppet_limbo_head(c) == 0);
        struct entry *old = malloc(room * sizeof *old);
        assert_non_null(old);
        for (size_t i = 0; i < s->count; i++)
            old[i] = s->limbo[(s->head + i) & (s->room - 1)];
        free(s->limbo);
        s->limbo = old;
        s->head = 0;
        s->room = room;
    }
    for (; s->head != puppet_limbo_head(c); s->head = (s->head + 1) & (room - 1), s->count--) {
        assert_true(s->count > 0);
        expect_nobody_there(o, &s->limbo[s->head]);
    }
    for (; s->count < puppet_in_limbo(c); s->count++) {
        size_t at = (s->head + s->count) & (room - 1);
        s->limbo[at] = (struct entry){puppet_limbo_object(c, s->count), o->step};
    }
}

static void submit(struct observer *o, struct shadow *s)
{
    static const enum far_op_kind kinds[] = {FAR_OP_INSERT, FAR_OP_PUT,    FAR_OP_PUT,
                                             FAR_OP_UPDATE, FAR_OP_DELETE, FAR_OP_GET};
    unsigned place = 0;
    while (place < DEPTH && s->keys[place] != 0)
        place++;
    if (place == DEPTH)
        return;
    s->keys[place] = 1 + rng_below(&o->rng, 600);
    s->values[place] = s->keys[place] * 3;
    struct far_op op = {.kind = kinds[rng_below(&o->rng, 6)],
                        .table = o->rig.table,
                        .key = &s->keys[place],
                        .key_len = 8,
                        .value = &s->values[place],
                        .value_len = 8,
                        .buf = &s->got[place],
                        .cap = 8,
                        .user_data = place};
    assert_int_equal(far_submit(s->session, &op), FAR_OK);
}

static void reap(struct shadow *s, unsigned least)
{
    struct far_result results[DEPTH];
    unsigned n = far_reap(s->session, results, DEPTH, least);
    for (unsigned i = 0; i < n; i++) {
        unsigned place = (unsigned)results[i].user_data;
        int rc = results[i].status;
        assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND || rc == FAR_EXISTS);
        if (rc == FAR_OK && results[i].len == 8)
            assert_true(s->got[place] == s->keys[place] * 3);
        s->keys[place] = 0;
    }
}

/* One step of one session: it starts an operation, or one of its batches is carried out. From
 * time to time another session becomes the slow one, and waits in the middle of an operation. */
static void observe(uint64_t seed, unsigned steps)
{
    struct knobs knobs = pool_knobs_default;
    struct far_session_options session = {.depth = DEPTH, .seed = seed};
    struct far_table_options table = {.tuning = "groups=2", .hash_seed = seed};
    struct observer o = {.step = 0};
    unsigned slow = 0;
    struct probe p;

    knobs.tick_ops = 2;
    rng_seed(&o.rng, seed);
    store_rig_open(&o.rig, "mem:?size=16m&defer=1&" HOUR, &knobs, &session, &table);
    probe_open(&p, o.rig.fab);
    o.shadow[0].session = o.rig.session;
    for (unsigned i = 1; i < SESSIONS; i++) {
        session.seed += 1000;
        assert_int_equal(far_session_open(o.rig.pool, &session, &o.shadow[i].session), FAR_OK);
    }
    for (o.step = 1; o.step <= steps; o.step++) {
        if (rng_below(&o.rng, 200) == 0)
            slow = (unsigned)rng_below(&o.rng, SESSIONS + 1);
        unsigned who = (unsigned)rng_below(&o.rng, SESSIONS);
        if (who == slow && rng_below(&o.rng, 50) != 0)
            continue;
        struct shadow *s = &o.shadow[who];
        if (rng_below(&o.rng, 3) == 0)
            submit(&o, s);
        else
            reap(s, 0);
        observe_operations(&o, s);
        observe_limbo(&o, s);
        if (o.step % 64 == 0)
            expect_e1(&p, SESSIONS);
    }
    assert_true(o.blocks > steps / 200);
    assert_true(o.subtables > 0);
    for (unsigned i = SESSIONS; i-- > 0;) {
        while (o.shadow[i].session->running_count + o.shadow[i].session->finished_count > 0)
            reap(&o.shadow[i], 1);
        free(o.shadow[i].limbo);
        if (i > 0)
            far_session_close(o.shadow[i].session);
    }
    assert_int_equal(far_table_check(o.rig.session, o.rig.table, NULL, NULL), FAR_OK);
    probe_close(&p);
    store_rig_close(&o.rig);
}

static void nothing_is_reused_while_somebody_may_be_led_to_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 24 / SLOWER; seed++)
        observe(seed, 20000);
}

/* ---- clients that come, go, and do nothing --------------------------------------------------- */

static void the_epoch_goes_on_while_clients_come_and_go(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *other[5] = {NULL};
    struct probe p;
    struct rng rng;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=8m&clients=8&" HOUR, &knobs, NULL, NULL);
    probe_open(&p, r.fab);
    rng_seed(&rng, 4);
    uint64_t last = probe_epoch(&p), first = last;
    for (unsigned i = 0; i < 20000 / SLOWER; i++) {
        unsigned n = (unsigned)rng_below(&rng, 5);
        if (rng_below(&rng, 8) != 0) {
            put(&r, other[n] ? other[n] : r.session, rng_below(&rng, 100), i);
        } else if (other[n]) {
            far_session_close(other[n]);
            other[n] = NULL;
        } else {
            assert_int_equal(far_session_open(r.pool, NULL, &other[n]), FAR_OK);
        }
        expect_e1(&p, 8);
        uint64_t epoch = probe_epoch(&p);
        assert_true(epoch == last || epoch == last + 1);
        last = epoch;
    }
    assert_true(last > first + 20000 / SLOWER / 100);
    for (unsigned i = 0; i < 5; i++)
        far_session_close(other[i]);
    probe_close(&p);
    store_rig_close(&r);
}

/* Until its lease is over, and no longer. */
static void an_idle_client_holds_memory_back_for_a_lease(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *idle = NULL;
    struct probe p;
    const uint64_t lease = 100000000;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open_driven(&r, "mem:?size=64m&lease=100", &knobs, NULL, NULL);
    probe_open(&p, r.fab);
    assert_int_equal(far_session_open(r.pool, NULL, &idle), FAR_OK);
    put(&r, idle, 1, 1);
    uint64_t certificate = probe_get(&p, 0, PROBE_SLOT(idle->client.slot, epoch));
    uint64_t silent_since = p.ep->ops->now(p.ep), now = silent_since;
    bool shut_out = false;
    do {
        put(&r, r.session, 2, now);
        store_rig_pass(&r, lease / 20);
        now = p.ep->ops->now(p.ep);
        shut_out = probe_incarnation(&p, idle->client.slot) != idle->client.incarnation;
        if (!shut_out)
            assert_true(probe_epoch(&p) <= certificate + 1);
        assert_true(now - silent_since < 3 * lease);
    } while (!shut_out);
    assert_true(now - silent_since >= lease);
    for (unsigned i = 0; i < 20; i++)
        put(&r, r.session, 2, i);
    assert_true(probe_epoch(&p) > certificate + 1);
    /* It notices, and goes on as another client. */
    uint64_t before = idle->client.incarnation;
    put(&r, idle, 1, 2);
    assert_true(idle->client.incarnation != before);
    far_session_close(idle);
    probe_close(&p);
    store_rig_close(&r);
}

/* A READ of several words is not of one instant: a client that joined before the epoch went on may
 * be seen in the epoch and not yet in the number of slots to look at. */
static void a_registry_that_grew_is_read_again(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *late = NULL;
    struct probe p;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    probe_open(&p, r.fab);
    for (unsigned i = 0; i < 10; i++)
        put(&r, r.session, 1, i);
    assert_int_equal(far_session_open(r.pool, NULL, &late), FAR_OK);
    uint64_t certificate = probe_get(&p, 0, PROBE_SLOT(late->client.slot, epoch));
    for (unsigned i = 0; i < 10; i++) {
        puppet_know_slots(&r.session->client,
                          1); /* as if every announcement had read that word too early */
        put(&r, r.session, 1, i);
        assert_true(probe_epoch(&p) <= certificate + 1);
    }
    far_session_close(late);
    probe_close(&p);
    store_rig_close(&r);
}

/* EPOCH-E1: all clients have certified an epoch, and it has gone on since. What the client
 * certifies when it is parked is above every epoch, but it must not move on the one that it has
 * just read. */
static void a_client_that_is_parked_moves_on_what_all_have_certified(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct probe p;

    (void)state;
    knobs.tick_ops = UINT32_MAX;
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    far_session *other = store_rig_join(&r);
    probe_open(&p, r.fab);
    uint64_t epoch = probe_epoch(&p);
    for (unsigned i = 0; i < 2; i++) { /* the first one finds that the registry has grown */
        assert_true(puppet_advances_from(&r.session->client) == NO_EPOCH);
        probe_set(&p, 0, PROBE_CONTROL(epoch), epoch + i);
        puppet_announce_hurried(&r.session->client);
        put(&r, r.session, 1, i);
    }
    assert_true(puppet_advances_from(&r.session->client) != NO_EPOCH);
    assert_int_equal(client_park(&r.session->op), FAR_OK);
    assert_true(puppet_parked(&r.session->client));
    assert_true(probe_epoch(&p) <= probe_get(&p, 0, PROBE_SLOT(other->client.slot, epoch)) + 1);
    far_session_close(other);
    probe_close(&p);
    store_rig_close(&r);
}

/* Another operation of the session sends announcements when a refresh has read the cache's version,
 * and posts its next batch. */
struct between {
    struct batch_tap tap;
    struct op op;
    unsigned posts, announcements;
};

static void announce_between(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    struct between *b = (struct between *)tap;
    (void)verbs;
    (void)count;
    if (++b->posts != 2)
        return;
    for (unsigned i = 0; i < b->announcements; i++) {
        puppet_announce(b->op.client);
        batch_read(&b->op.batch, 0, CONTROL_OFF, b->op.pool_word, 8);
        assert_int_equal(batch_flush(&b->op.batch), FAR_OK);
    }
}

/* EPOCH-E2: two announcements validate an epoch that was read after the cache was. */
static void a_cache_filled_between_announcements_is_stale(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;

    (void)state;
    knobs.tick_ops = UINT32_MAX;
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    put(&r, r.session, 1, 1);
    struct race_view *view = (struct race_view *)store_known(r.session, r.table)->view;
    for (unsigned sent = 0; sent <= 3; sent++) {
        struct between b = {.tap = {announce_between}, .announcements = sent};
        assert_int_equal(op_init(&b.op, &r.session->client), FAR_OK);
        r.session->op.batch.tap = &b.tap;
        assert_int_equal(race_refresh(&r.session->op, view), FAR_OK);
        r.session->op.batch.tap = NULL;
        assert_int_equal(b.posts, 2);
        assert_true(view->base.cached.stale == (sent > 0));
        op_free(&b.op);
    }
    store_rig_close(&r);
}

/* EPOCH-E6: one of its requests has just failed, and may still arrive. */
static void a_client_with_stray_writes_certifies_nothing_newer(void **state)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    far_session *s = NULL;
    struct probe p;

    (void)state;
    knobs.tick_ops = 1;
    store_rig_open(&r, "mem:?size=4m&" HOUR, &knobs, NULL, NULL);
    probe_open(&p, r.fab);
    assert_int_equal(far_session_open(r.pool, NULL, &s), FAR_OK);
    put(&r, s, 1, 1);
    struct client *c = &s->client;
    unsigned slot = c->slot;
    uint64_t inc = c->incarnation, certificate = probe_get(&p, 0, PROBE_SLOT(slot, epoch));
    puppet_strays(c);
    for (unsigned i = 0; i < 20; i++) {
        put(&r, s, 1, i);
        put(&r, r.session, 2, i);
        assert_true(probe_get(&p, 0, PROBE_SLOT(slot, epoch)) == certificate);
        assert_int_equal(client_park(&s->op), FAR_OK);
        assert_true(probe_get(&p, 0, PROBE_SLOT(slot, epoch)) == certificate);
        assert_true(probe_epoch(&p) <= certificate + 1);
    }
    far_session_close(s);
    assert_true(probe_incarnation(&p, slot) == inc);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    struct op op; /* another operation of the client */
    unsigned posts;
    bool began;
} beside;

static int drive_beside_post(struct fab_ep *ep, struct fab_req *req)
{
    if (beside.began) {
        beside.posts++;
    } else {
        beside.began = true;
        assert_int_equal(client_drive_epoch(&beside.op), FAR_OK);
    }
    return hook.real->post(ep, req);
}

/* It waits for the announcement, and posts nothing of its own. */
static void an_epoch_is_driven_by_one_announcement_at_a_time(void **state)
{
    struct store_rig r;

    (void)state;
    store_rig_open(&r, "mem:?size=2m&" HOUR, NULL, NULL, NULL);
    assert_int_equal(op_init(&beside.op, &r.session->client), FAR_OK);
    hook_on(r.session->client.ep);
    hook.ops.post = drive_beside_post;
    assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    hook_off();
    assert_true(beside.began);
    assert_int_equal(beside.posts, 0);
    op_free(&beside.op);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_driven_by_one_announcement_at_a_time),
        cmocka_unit_test(no_stamp_is_given_twice),
        cmocka_unit_test(a_client_certifies_what_it_has_read),
        cmocka_unit_test(readers_leave_the_epoch_alone),
        cmocka_unit_test(an_epoch_is_validated_by_the_next_announcement),
        cmocka_unit_test(announcements_cost_no_round_trip),
        cmocka_unit_test(nothing_is_reused_while_somebody_may_be_led_to_it),
        cmocka_unit_test(the_epoch_goes_on_while_clients_come_and_go),
        cmocka_unit_test(an_idle_client_holds_memory_back_for_a_lease),
        cmocka_unit_test(a_registry_that_grew_is_read_again),
        cmocka_unit_test(a_client_that_is_parked_moves_on_what_all_have_certified),
        cmocka_unit_test(a_cache_filled_between_announcements_is_stale),
        cmocka_unit_test(a_client_with_stray_writes_certifies_nothing_newer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
