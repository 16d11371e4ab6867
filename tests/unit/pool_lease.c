/*
 * Leases: a silent client is fenced and its slot used again. An operation that was in flight then
 * fails or is tried again, and the next one registers the client again. The test drives the clock.
 */
#include "support/journal_rig.h"
#include "support/probe.h"
#include "support/puppet.h"
#include "support/store_rig.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define SHORT    "lease=60"
#define LONG     "lease=3600000"
#define LEASE_NS 60000000ull /* of SHORT */

static int put(struct store_rig *r, far_session *s, uint64_t key, uint64_t value)
{
    return far_put(s, r->table, &key, sizeof key, &value, sizeof value);
}

static void key_holds(struct store_rig *r, far_session *s, uint64_t key, uint64_t value)
{
    uint64_t got = 0;
    assert_int_equal(far_get(s, r->table, &key, sizeof key, &got, sizeof got, NULL), FAR_OK);
    assert_true(got == value);
}

static struct store_rig rig(const char *uri, unsigned tick_ops)
{
    struct knobs knobs = pool_knobs_default;
    struct store_rig r;
    struct far_table_options table = {.tuning = "hot=0"}; /* operations take all their batches */
    knobs.tick_ops = tick_ops;
    store_rig_open_driven(&r, uri, &knobs, NULL, &table);
    return r;
}

/* ---- silence --------------------------------------------------------------------------------- */

/* Works, 20 times a lease, until the slot is no longer that incarnation's. That takes a watch of
 * one and a half leases from the first look, and a few operations more. */
static void work_until_gone(struct store_rig *r, struct probe *p, unsigned slot, uint64_t inc)
{
    uint64_t i = 0;
    for (; probe_incarnation(p, slot) == inc; i++) {
        assert_int_equal(put(r, r->session, 2, i), FAR_OK);
        store_rig_pass(r, LEASE_NS / 20);
        assert_true(i < 100);
    }
    assert_true(i > 30);
}

static void the_slot_of_a_dead_client_is_used_again(void **state)
{
    struct store_rig r = rig("mem:?size=1g&clients=2&" SHORT, 1);
    struct probe p;
    far_session *none = NULL;

    (void)state;
    probe_open(&p, r.fab);
    for (unsigned turn = 0; turn < 3; turn++) {
        far_session *s = store_rig_join(&r);
        unsigned slot = s->client.slot;
        uint64_t inc = s->client.incarnation, deaths = probe_get(&p, 0, PROBE_CONTROL(deaths));
        assert_int_equal(put(&r, s, 1, turn), FAR_OK);
        assert_int_equal(far_session_open(r.pool, NULL, &none), FAR_NO_CLIENT_SLOT);
        store_rig_kill(s);
        work_until_gone(&r, &p, slot, inc);
        for (unsigned i = 0; probe_incarnation(&p, slot) != 0; i++) {
            assert_true(i < 100);
            assert_int_equal(put(&r, r.session, 2, i), FAR_OK);
        }
        assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == deaths + 1);
        key_holds(&r, r.session, 1, turn);
    }
    probe_close(&p);
    store_rig_close(&r);
}

/* A client that works keeps its lease, however little it does, though another watches it. */
static void a_heartbeat_keeps_a_client_alive(void **state)
{
    struct store_rig r = rig("mem:?size=64m&" SHORT, UINT32_MAX);
    struct probe p;
    far_session *quiet = store_rig_join(&r);
    uint64_t inc = quiet->client.incarnation, key = 1, got = 0;

    (void)state;
    r.pool->pool.knobs.tick_ops = 1;
    probe_open(&p, r.fab);
    assert_int_equal(put(&r, quiet, 1, 1), FAR_OK);
    r.pool->pool.knobs.tick_ops = UINT32_MAX; /* by time alone */
    for (unsigned i = 0; i < 2000; i++) {     /* a hundred leases */
        if (i % 10 == 0)                      /* twice a lease */
            assert_int_equal(far_get(quiet, r.table, &key, 8, &got, 8, NULL), FAR_OK);
        assert_int_equal(put(&r, r.session, 2, i), FAR_OK);
        puppet_announce(&r.session->client);
        store_rig_pass(&r, LEASE_NS / 20);
    }
    assert_true(quiet->client.incarnation == inc &&
                probe_incarnation(&p, quiet->client.slot) == inc);
    far_session_close(quiet);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- the client's side ----------------------------------------------------------------------- */

/* No other client has noticed: it keeps its slot and its memory, under a new incarnation. */
static void a_lapse_that_nobody_noticed_costs_nothing(void **state)
{
    struct store_rig r = rig("mem:?size=4m&clients=3&" LONG, 1);
    struct probe p;
    far_session *s = store_rig_join(&r);
    struct far_pool_info info;

    (void)state;
    probe_open(&p, r.fab);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(put(&r, s, 1, i), FAR_OK);
        uint64_t inc = s->client.incarnation, held = puppet_held_bytes(&s->client);
        unsigned slot = s->client.slot;
        puppet_lapse(&s->client);
        key_holds(&r, s, 1, i);
        assert_true(s->client.incarnation != inc && s->client.slot == slot);
        assert_true(probe_incarnation(&p, s->client.slot) == s->client.incarnation);
        assert_true(puppet_held_bytes(&s->client) >= held);
    }
    assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
    assert_int_equal(info.clients, 2);
    puppet_lapse(&s->client);
    far_session_close(s); /* even so it leaves nothing behind */
    assert_int_equal(far_pool_info(r.session, &info), FAR_OK);
    assert_int_equal(info.clients, 1);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) <= 1); /* what waited for its epoch */
    probe_close(&p);
    store_rig_close(&r);
}

static void a_fenced_client_registers_again_by_itself(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 1);
    struct probe p;
    far_session *s = store_rig_join(&r);

    (void)state;
    probe_open(&p, r.fab);
    for (unsigned state_of_slot = 0; state_of_slot < 3; state_of_slot++) {
        assert_int_equal(put(&r, s, 1, 7), FAR_OK);
        struct client *c = &s->client;
        unsigned slot = c->slot;
        uint64_t inc = c->incarnation;
        /* Fenced; fenced and freed; another has the slot. */
        uint64_t word = state_of_slot == 0 ? inc | CLIENT_FENCED : state_of_slot == 1 ? 0 : 4711;
        probe_set(&p, 0, PROBE_SLOT(slot, incarnation), word);
        puppet_lapse(&s->client);
        assert_int_equal(put(&r, s, 1, 8), FAR_OK);
        assert_true(c->incarnation != inc && c->incarnation % 2 == 1);
        assert_true(probe_incarnation(&p, c->slot) == c->incarnation);
        if (state_of_slot != 1)
            assert_true(probe_incarnation(&p, slot) == word);
        key_holds(&r, s, 1, 8);
        key_holds(&r, r.session, 1, 8);
        probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
        if (c->slot == slot)
            probe_set(&p, 0, PROBE_SLOT(slot, incarnation), c->incarnation);
    }
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* The announcement itself finds out. What it wrote went to another client's slot, once. */
static void an_announcement_that_comes_too_late_ends_the_lease(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 1);
    struct probe p;
    far_session *s = store_rig_join(&r);
    struct client *c = &s->client;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(put(&r, s, 1, 7), FAR_OK);
    unsigned slot = c->slot;
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 4711); /* fenced, freed, and taken */
    /* It thinks its lease is good, and says so with this operation, which is then tried again. */
    assert_int_equal(put(&r, s, 1, 8), FAR_OK);
    assert_true(puppet_lost_lease(c) || c->slot != slot);
    uint64_t heartbeat = probe_get(&p, 0, PROBE_SLOT(slot, heartbeat));
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(put(&r, s, 1, i), FAR_OK); /* as another client */
    assert_true(c->slot != slot);
    assert_true(probe_get(&p, 0, PROBE_SLOT(slot, heartbeat)) == heartbeat);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

static void a_client_that_comes_back_waits_for_a_free_slot(void **state)
{
    struct store_rig r = rig("mem:?size=4m&clients=2&" LONG, 1);
    struct probe p;
    far_session *s = store_rig_join(&r);

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(put(&r, s, 1, 7), FAR_OK);
    unsigned slot = s->client.slot;
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 4711);
    puppet_lapse(&s->client);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(put(&r, s, 1, 8), FAR_NO_CLIENT_SLOT);
    key_holds(&r, r.session, 1, 7);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
    assert_int_equal(put(&r, s, 1, 8), FAR_OK);
    key_holds(&r, r.session, 1, 8);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- operations in flight -------------------------------------------------------------------- */

static const char in_flight_uri[] = "mem:?size=4m&defer=1&" LONG;

/* What an operation answers if nothing disturbs it. */
static int answer(enum far_op_kind kind, bool present)
{
    if (kind == FAR_OP_PUT)
        return FAR_OK;
    if (kind == FAR_OP_INSERT)
        return present ? FAR_EXISTS : FAR_OK;
    return present ? FAR_OK : FAR_NOT_FOUND;
}

/* The lease lapses at each of the operation's batches. The operation is tried again, and gives
 * the same answer. */
static void an_operation_that_outlives_its_lease_is_tried_again(void **state)
{
    static const enum far_op_kind kinds[] = {FAR_OP_GET,    FAR_OP_EXISTS, FAR_OP_PUT,
                                             FAR_OP_INSERT, FAR_OP_UPDATE, FAR_OP_DELETE};
    unsigned again = 0, done = 0;

    (void)state;
    for (unsigned n = 0; n < 6 * 2 * 8; n++) {
        enum far_op_kind kind = kinds[n % 6];
        bool present = n / 6 % 2;
        unsigned polls = n / 12;
        struct store_rig r = rig(in_flight_uri, 1000);
        uint64_t key = 1, old = 5, new = 6, got = 0;
        struct far_result result;
        if (present)
            assert_int_equal(far_put(r.session, r.table, &key, 8, &old, 8), FAR_OK);
        else /* the view is made */
            assert_int_equal(far_exists(r.session, r.table, &key, 8), FAR_NOT_FOUND);
        struct far_op op = {.kind = kind,
                            .table = r.table,
                            .key = &key,
                            .key_len = 8,
                            .value = &new,
                            .value_len = 8,
                            .buf = &got,
                            .cap = 8};
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        unsigned reaped = 0;
        for (unsigned i = 0; i < polls && reaped == 0; i++)
            reaped = far_reap(r.session, &result, 1, 0);
        uint64_t inc = r.session->client.incarnation;
        puppet_lapse(&r.session->client);
        if (reaped == 0)
            assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        else
            done++;
        again += r.session->client.incarnation != inc;
        assert_int_equal(result.status, answer(kind, present));
        uint64_t expected = present ? old : 0;
        if (kind >= FAR_OP_PUT && result.status == FAR_OK)
            expected = kind == FAR_OP_DELETE ? 0 : new;
        int rc = far_get(r.session, r.table, &key, 8, &got, 8, NULL);
        assert_int_equal(rc, expected ? FAR_OK : FAR_NOT_FOUND);
        if (expected)
            assert_true(got == expected);
        assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
        store_rig_close(&r);
    }
    assert_true(again > 15 && done > 50);
}

/* So are the others of the ring. When none that began before is in flight any more, the first
 * operation registers the session again, and all are tried again under that registration. */
static void a_ring_is_tried_again_as_a_whole(void **state)
{
    struct store_rig r = rig(in_flight_uri, 1000);
    uint64_t key[8];
    struct far_result results[8];
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    for (unsigned i = 0; i < 8; i++) {
        key[i] = i;
        assert_int_equal(far_put(r.session, r.table, &key[i], 8, &key[i], 8), FAR_OK);
    }
    for (unsigned i = 0; i < 7; i++) {
        struct far_op op = {.kind = FAR_OP_DELETE, .table = r.table, .key = &key[i], .key_len = 8};
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
    }
    uint64_t inc = r.session->client.incarnation;
    puppet_lapse(&r.session->client);
    assert_int_equal(far_delete(r.session, r.table, &key[7], 8), FAR_OK);
    uint64_t renewed = r.session->client.incarnation;
    assert_true(renewed != inc && probe_incarnation(&p, r.session->client.slot) == renewed);
    for (unsigned got = 0; got < 7;) {
        unsigned n = far_reap(r.session, results, 8, 1);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(results[i].status, FAR_OK);
        got += n;
    }
    assert_true(r.session->client.incarnation == renewed);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(far_exists(r.session, r.table, &key[i], 8), FAR_NOT_FOUND);
    probe_close(&p);
    store_rig_close(&r);
}

/* A client whose lease has lapsed writes nothing, not even an announcement. */
static void a_lapsed_client_writes_nothing(void **state)
{
    struct store_rig r = rig(in_flight_uri, 1);
    struct probe p;
    uint64_t key = 1, value = 2;
    struct far_result result;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(far_put(r.session, r.table, &key, 8, &value, 8), FAR_OK);
    for (unsigned i = 0; i < 4; i++) {
        struct far_op op = {.kind = FAR_OP_UPDATE,
                            .table = r.table,
                            .key = &key,
                            .key_len = 8,
                            .value = &value,
                            .value_len = 8};
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        for (unsigned k = 0; k < i; k++)
            (void)far_reap(r.session, &result, 0, 0);
        puppet_lapse(&r.session->client);
        uint64_t written = r.session->op.cost.bytes_written;
        uint64_t slot = probe_incarnation(&p, r.session->client.slot);
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_true(r.session->op.cost.bytes_written == written);
        assert_true(probe_incarnation(&p, r.session->client.slot) == slot);
    }
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- the recoverer's side -------------------------------------------------------------------- */

/* Works until the slot is free. */
static void bury(struct store_rig *r, struct probe *p, unsigned slot)
{
    for (uint64_t i = 0; probe_incarnation(p, slot) != 0; i++) {
        assert_int_equal(put(r, r->session, 2, i), FAR_OK);
        store_rig_pass(r, LEASE_NS / 20);
        assert_true(i < 200);
    }
}

/* A client that recovers another dies after each of its steps. The next one goes on from there. */
static void recovery_survives_the_recoverer(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 3; steps++) {
        struct store_rig r = rig("mem:?size=1g&" SHORT, 1);
        struct probe p;
        far_session *s = store_rig_join(&r);
        struct far_pool_check check;
        probe_open(&p, r.fab);
        assert_int_equal(put(&r, s, 1, 7), FAR_OK);
        unsigned slot = s->client.slot;
        uint64_t inc = s->client.incarnation;
        store_rig_kill(s);
        if (steps >= 1) /* it fenced, and died */
            assert_true(probe_cas(&p, 0, PROBE_SLOT(slot, incarnation), inc, inc | CLIENT_FENCED));
        if (steps >= 2) /* it also counted the death */
            probe_set(&p, 0, PROBE_CONTROL(deaths), probe_get(&p, 0, PROBE_CONTROL(deaths)) + 1);
        bury(&r, &p, slot);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) >= 1);
        assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
        assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == 0);
        key_holds(&r, r.session, 1, 7);
        probe_close(&p);
        store_rig_close(&r);
    }
}

/* LEASE-L2: a claim that was given up names nobody, not even a client that had slot 0. */
static void a_claim_that_was_given_up_is_taken_over(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" SHORT, 1);
    struct probe p;
    far_session *first = r.session, *s = store_rig_join(&r);
    unsigned slot = s->client.slot;

    (void)state;
    probe_open(&p, r.fab);
    r.session = store_rig_join(&r);
    far_session_close(first);
    assert_true(probe_incarnation(&p, 0) == 0);
    store_rig_kill(s);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), CLIENT_FENCED | CLIENT_REPAIRED);
    bury(&r, &p, slot);
    probe_close(&p);
    store_rig_close(&r);
}

static struct {
    unsigned calls;
    int rc;
} recoveries;

static int note_recovery(void *arg, struct op *op, const struct journal_entry *entry)
{
    (void)arg;
    (void)op;
    assert_true(entry->subject.what == 1);
    recoveries.calls++;
    return recoveries.rc;
}

/* LEASE-L2: its work is completed, its death counted, its sweep ended; then the slot is free, no
 * sooner. */
static void a_slot_is_free_when_its_client_is_recovered(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 1);
    struct probe p;
    far_session *s = store_rig_join(&r);

    (void)state;
    probe_open(&p, r.fab);
    r.pool->pool.recover = note_recovery;
    recoveries.calls = 0;
    recoveries.rc = FAR_UNREACHABLE;
    unsigned slot = s->client.slot;
    uint64_t inc = s->client.incarnation;
    journal_plant(&p, &r.pool->pool, slot, (struct journal_subject){.what = 1}, 0);
    probe_set(&p, 0, PROBE_CONTROL(sweep), client_owner_word(&s->client) | SWEEP_ANNOUNCED);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(puppet_recover(&r.session->op, slot, inc), FAR_UNREACHABLE);
        assert_int_equal(recoveries.calls, i);
        /* It is shut out, and another client may try. */
        assert_true(probe_incarnation(&p, slot) == (CLIENT_FENCED | CLIENT_REPAIRED));
        inc = CLIENT_FENCED | CLIENT_REPAIRED;
        assert_true(journal_says(&p, &r.pool->pool, slot));
    }
    recoveries.rc = FAR_OK;
    uint64_t deaths = probe_get(&p, 0, PROBE_CONTROL(deaths));
    assert_int_equal(puppet_recover(&r.session->op, slot, inc), FAR_OK);
    assert_int_equal(recoveries.calls, 4);
    assert_true(probe_incarnation(&p, slot) == 0);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == deaths + 1);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
    assert_false(journal_says(&p, &r.pool->pool, slot));
    store_rig_kill(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* A client that is late to recover another must not touch the slot's next owner. */
static void a_late_recoverer_leaves_the_next_client_alone(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 1);
    struct probe p;
    far_session *s = store_rig_join(&r);

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(put(&r, s, 1, 7), FAR_OK);
    unsigned slot = s->client.slot;
    uint64_t dead = 12345, deaths = probe_get(&p, 0, PROBE_CONTROL(deaths));
    r.pool->pool.recover = note_recovery;
    recoveries.calls = 0;
    journal_plant(&p, &r.pool->pool, slot, (struct journal_subject){.what = 1}, 77);
    /* It found `dead` there and took its time. */
    assert_int_equal(puppet_recover(&r.session->op, slot, dead), FAR_OK);
    assert_int_equal(recoveries.calls, 0); /* that is work in progress */
    assert_true(probe_get(&p, 0, PROBE_CONTROL(deaths)) == deaths);
    assert_true(probe_incarnation(&p, s->client.slot) == s->client.incarnation);
    assert_true(journal_says(&p, &r.pool->pool, slot));
    assert_true(probe_get(&p, 0, PROBE_SLOT(slot, epoch)) == puppet_certificate(&s->client));
    journal_blank(&p, &r.pool->pool, slot);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* The suspicion is of a client, not of a slot. */
static void a_suspect_that_was_replaced_is_none(void **state)
{
    struct store_rig r = rig("mem:?size=1g&clients=2&" SHORT, 1);
    struct probe p;
    struct client *c = &r.session->client;
    far_session *s = store_rig_join(&r);

    (void)state;
    probe_open(&p, r.fab);
    unsigned slot = s->client.slot;
    uint64_t inc = s->client.incarnation;
    store_rig_kill(s);
    /* It is found dead, but not recovered yet. Another client does that, and a new one takes the
     * slot. */
    struct client_slot *slots = op_buffer(&r.session->op, BUF_BULK, 2 * sizeof *slots);
    for (unsigned i = 0; puppet_suspected(c) < 0; i++) {
        assert_true(i < 100);
        store_rig_pass(&r, LEASE_NS / 20);
        puppet_mute(&r.session->op);
        uint64_t asked = p.ep->ops->now(p.ep);
        batch_read(&r.session->op.batch, 0, CLIENTS_OFF, slots, 2 * sizeof *slots);
        assert_int_equal(batch_flush(&r.session->op.batch), FAR_OK);
        puppet_unmute(&r.session->op);
        (void)client_watch(c, slots, 2, UINT64_MAX, asked);
    }
    assert_int_equal(puppet_suspected(c), slot);
    assert_true(probe_cas(&p, 0, PROBE_SLOT(slot, incarnation), inc, 0));
    s = store_rig_join(&r);
    assert_int_equal(s->client.slot, slot);
    batch_read(&r.session->op.batch, 0, CLIENTS_OFF, slots, 2 * sizeof *slots);
    assert_int_equal(batch_flush(&r.session->op.batch), FAR_OK);
    (void)client_watch(c, slots, 2, UINT64_MAX, p.ep->ops->now(p.ep));
    assert_int_equal(puppet_suspected(c), -1);
    assert_int_equal(client_drive_epoch(&r.session->op), FAR_OK);
    assert_true(probe_incarnation(&p, s->client.slot) == s->client.incarnation);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* The watcher may be stopped between its look and its judgement, for longer than a lease. What
 * it saw says nothing of the time since. */
static void a_look_at_the_registry_is_as_old_as_its_request(void **state)
{
    struct store_rig r = rig("mem:?size=4m&clients=2&" SHORT, 1000);
    struct client *c = &r.session->client;
    far_session *s = store_rig_join(&r);
    struct client_slot slots[2] = {{.incarnation = 0}};

    (void)state;
    slots[s->client.slot] = (struct client_slot){.incarnation = s->client.incarnation,
                                                 .heartbeat = puppet_heartbeat(&s->client)};
    uint64_t since = c->ep->ops->now(c->ep) - 10 * puppet_lease_ns(c);
    puppet_watch(c, &s->client, since);
    assert_true(
        client_watch(c, slots, 2, NO_EPOCH, since - 1)); /* the request was posted even before */
    assert_int_equal(puppet_suspected(c), -1);
    assert_true(client_watch(c, slots, 2, NO_EPOCH, since + puppet_lease_ns(c)));
    assert_int_equal(puppet_suspected(c), -1);
    assert_true(client_watch(c, slots, 2, NO_EPOCH, since + 2 * puppet_lease_ns(c)));
    assert_int_equal(puppet_suspected(c), s->client.slot);
    puppet_suspect_nobody(c);
    far_session_close(s);
    store_rig_close(&r);
}

/* Of several dead clients, each may be in the way only when the others are not any more. */
static void a_client_is_watched_before_it_is_in_the_way(void **state)
{
    struct store_rig r = rig("mem:?size=4m&clients=2&" SHORT, 1000);
    struct client *c = &r.session->client;
    far_session *s = store_rig_join(&r);
    struct client_slot slots[2] = {{.incarnation = 0}}, *its = &slots[s->client.slot];
    uint64_t since = c->ep->ops->now(c->ep), dead = since + 2 * puppet_lease_ns(c);

    (void)state;
    *its = (struct client_slot){.incarnation = s->client.incarnation, .heartbeat = 7, .epoch = 10};
    assert_false(client_watch(c, slots, 2, 10, since));
    store_rig_pass(&r, 2 * puppet_lease_ns(c));
    assert_false(client_watch(c, slots, 2, 10, dead));
    assert_int_equal(puppet_suspected(c), -1);
    assert_true(client_watch(c, slots, 2, 11, dead));
    assert_int_equal(puppet_suspected(c), s->client.slot);
    puppet_suspect_nobody(c);

    /* It was parked, and begins an operation: the first word of its announcement has arrived. */
    *its = (struct client_slot){
        .incarnation = s->client.incarnation, .heartbeat = 8, .epoch = NO_EPOCH};
    assert_false(client_watch(c, slots, 2, 11, dead));
    store_rig_pass(&r, 2 * puppet_lease_ns(c));
    its->epoch = 10;
    assert_false(client_watch(c, slots, 2, 11, dead + 2 * puppet_lease_ns(c)));
    assert_int_equal(puppet_suspected(c), -1);
    far_session_close(s);
    store_rig_close(&r);
}

/* What an announcement read is judged by when it was posted. */
static void an_announcement_that_took_long_kills_nobody(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 1);
    struct client *c = &r.session->client;
    far_session *s = store_rig_join(&r);

    (void)state;
    for (uint64_t i = 0; i < 10; i++) /* the other holds the epoch up, and is watched */
        assert_int_equal(put(&r, r.session, 1, i), FAR_OK);
    uint64_t posted = puppet_watched_since(
        c, &s->client); /* posted in that instant, by a client that then stopped */
    puppet_set_lease_ns(c, 1);
    for (unsigned late = 0; late < 2; late++) {
        assert_int_equal(puppet_announce_posted_at(&r.session->op, late ? posted : posted + 2),
                         FAR_OK);
        assert_int_equal(puppet_suspected(c), late ? -1 : (int)s->client.slot);
        puppet_suspect_nobody(c);
    }
    puppet_set_lease_ns(c, puppet_lease_ns(&s->client));
    puppet_renew_lease(c);
    far_session_close(s);
    store_rig_close(&r);
}

/* If a heartbeat came again, a client that saw it long ago would take it for silence. */
static void a_heartbeat_does_not_come_again(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 3);
    const struct client *c = &r.session->client;
    struct probe p;

    (void)state;
    probe_open(&p, r.fab);
    uint64_t last = probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat));
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(client_park(&r.session->op), FAR_OK);
        uint64_t parked = probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat));
        assert_true(parked > last);
        for (uint64_t k = 0; k < i % 5 + 1; k++)
            assert_int_equal(put(&r, r.session, k, i), FAR_OK);
        last = probe_get(&p, 0, PROBE_SLOT(c->slot, heartbeat));
        assert_true(last > parked);
    }
    probe_close(&p);
    store_rig_close(&r);
}

/* The announcement that it has nothing in flight may arrive at any time. So the slot cannot
 * serve a client with operations in flight. */
static void a_parking_of_unknown_outcome_costs_the_slot(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 1);
    struct probe p;
    far_session *s = store_rig_join(&r);
    struct client *c = &s->client;

    (void)state;
    probe_open(&p, r.fab);
    assert_int_equal(put(&r, s, 1, 7), FAR_OK);
    unsigned slot = c->slot;
    uint64_t inc = c->incarnation;
    puppet_fail_to_park(c); /* as client_park() leaves it after an error */
    assert_int_equal(put(&r, s, 1, 8), FAR_OK);
    assert_true(c->slot != slot);
    probe_set(&p, 0, PROBE_SLOT(slot, epoch), NO_EPOCH); /* now it has arrived */
    assert_true(probe_incarnation(&p, slot) == inc);
    assert_true(probe_get(&p, 0, PROBE_SLOT(c->slot, epoch)) != NO_EPOCH);
    key_holds(&r, r.session, 1, 8);
    probe_set(&p, 0, PROBE_SLOT(slot, incarnation), 0);
    far_session_close(s);
    probe_close(&p);
    store_rig_close(&r);
}

/* ---- who holds a lock ------------------------------------------------------------------------
 */

static void an_owner_word_names_one_registration(void **state)
{
    struct store_rig r = rig("mem:?size=4m&" LONG, 1000);
    struct probe p;
    far_session *s = store_rig_join(&r);
    struct op *op = &r.session->op;
    bool alive = false;

    (void)state;
    probe_open(&p, r.fab);
    uint64_t mine = client_owner_word(&r.session->client), other = client_owner_word(&s->client);
    assert_true(mine != other && mine != 0 && mine >> 56 == 0);
    for (uint64_t flags = 0; flags < 256; flags += 51) { /* the top bits are the lock's own */
        assert_int_equal(client_owner_alive(op, other | flags << 56, &alive), FAR_OK);
        assert_true(alive);
    }
    assert_int_equal(client_owner_alive(op, other ^ 1ull << 20, &alive), FAR_OK);
    assert_false(alive); /* another incarnation */
    assert_int_equal(client_owner_alive(op, other | 0xffff, &alive), FAR_OK);
    assert_false(alive); /* no such slot */
    probe_set(&p, 0, PROBE_SLOT(s->client.slot, incarnation),
              s->client.incarnation | CLIENT_FENCED);
    assert_int_equal(client_owner_alive(op, other, &alive), FAR_OK);
    assert_false(alive);
    probe_set(&p, 0, PROBE_SLOT(s->client.slot, incarnation), s->client.incarnation);
    puppet_lapse(&s->client);
    assert_int_equal(put(&r, s, 1, 1), FAR_OK);
    assert_int_equal(client_owner_alive(op, other, &alive), FAR_OK);
    assert_false(alive); /* it has registered again */
    assert_int_equal(client_owner_alive(op, client_owner_word(&s->client), &alive), FAR_OK);
    assert_true(alive);
    other = client_owner_word(&s->client);
    far_session_close(s);
    assert_int_equal(client_owner_alive(op, other, &alive), FAR_OK);
    assert_false(alive);
    probe_close(&p);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slot_of_a_dead_client_is_used_again),
        cmocka_unit_test(a_heartbeat_keeps_a_client_alive),
        cmocka_unit_test(a_lapse_that_nobody_noticed_costs_nothing),
        cmocka_unit_test(a_fenced_client_registers_again_by_itself),
        cmocka_unit_test(an_announcement_that_comes_too_late_ends_the_lease),
        cmocka_unit_test(a_client_that_comes_back_waits_for_a_free_slot),
        cmocka_unit_test(an_operation_that_outlives_its_lease_is_tried_again),
        cmocka_unit_test(a_ring_is_tried_again_as_a_whole),
        cmocka_unit_test(a_lapsed_client_writes_nothing),
        cmocka_unit_test(recovery_survives_the_recoverer),
        cmocka_unit_test(a_claim_that_was_given_up_is_taken_over),
        cmocka_unit_test(a_slot_is_free_when_its_client_is_recovered),
        cmocka_unit_test(a_late_recoverer_leaves_the_next_client_alone),
        cmocka_unit_test(a_suspect_that_was_replaced_is_none),
        cmocka_unit_test(a_look_at_the_registry_is_as_old_as_its_request),
        cmocka_unit_test(a_client_is_watched_before_it_is_in_the_way),
        cmocka_unit_test(an_announcement_that_took_long_kills_nobody),
        cmocka_unit_test(a_heartbeat_does_not_come_again),
        cmocka_unit_test(a_parking_of_unknown_outcome_costs_the_slot),
        cmocka_unit_test(an_owner_word_names_one_registration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
