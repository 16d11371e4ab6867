/* Opening and closing a client; taking turns between its session's thread and the keeper. */
#include "pool/pool_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Pause between two looks whether the keeper has returned the client. */
#define TURN_NS 2000

/* Announcements: each epoch takes up to three, and what was retired last waits for three epochs. */
#define SETTLE_EPOCH         3
#define SETTLE_ANNOUNCEMENTS (4 * SETTLE_EPOCH)

/* How long a client that closes waits for its epochs. Idle clients are parked much sooner, and dead
 * ones are found within one and a half. */
#define SETTLE_LEASES 2

/* How often it sweeps at most: others may be sweeping, too. */
#define SETTLE_SWEEPS 3

/* The keeper has the client for a round trip, and one more for each node with spent lines. They end
 * by the fabric's time-out at the latest. */
void client_await_turn(struct client *c)
{
    for (;;) {
        uint64_t turn = atomic_load_explicit(&c->turn, memory_order_relaxed) & ~CLIENT_TURN_WHO;
        if (atomic_compare_exchange_weak_explicit(&c->turn, &turn,
                                                  turn + CLIENT_TURN_COUNT + CLIENT_TURN_OWN,
                                                  memory_order_acquire, memory_order_relaxed))
            return;
        clock_sleep(TURN_NS);
    }
}

static void free_client(struct client *c)
{
    for (unsigned node = 0; c->stock.of && node < c->pool->nodes; node++)
        for (unsigned i = 0; i < CLASS_COUNT; i++)
            free(c->stock.of[node][i].keep);
    free(c->stock.of);
    free(c->watch.of);
    free(c->sweep.old_chunks);
    free(c->stock.limbo.ring);
    free(c->lines.line);
    if (c->epoch.words)
        c->ep->ops->buf_free(c->ep, c->epoch.words, client_words_bytes(c->pool));
    if (c->members.word)
        c->ep->ops->buf_free(c->ep, c->members.word, MEMBERS_WORDS * 8);
    members_end(&c->members);
    free(c->to_voters);
    client_rescue_free(c);
}

void client_free_in_child(struct client *c)
{
    free_client(c);
}

static uint64_t new_nonce(const struct client *c)
{
    uint64_t part[4] = {clock_ns(), (uint64_t)getpid(), (uintptr_t)c};
    (void)getentropy(&part[3], sizeof part[3]); /* if it fails, the others must do */
    return hash_sum(part, sizeof part, 0);
}

static int learn_view(const struct batch_policy *policy)
{
    return client_learn_view(((const struct client_posts *)policy)->client);
}

static int open_to_voters(struct client *c)
{
    struct pool *pool = c->pool;
    c->to_voters = malloc(sizeof *c->to_voters);
    if (!c->to_voters)
        return err_fail(FAR_NO_MEMORY, "no memory for a client");
    batch_init(c->to_voters, c->ep, &c->voters_cost);
    c->to_voters->policy = &c->posts[POLICY_JOINING].policy;
    c->to_voters->outside_views = true;
    for (unsigned i = 0; i < POLICY_COUNT; i++)
        c->posts[i].policy.learn = learn_view;
    return members_begin(&c->members, &pool->members, pool->fab->nodes, members_off(pool->clients),
                         c->ep->ops->buf_alloc(c->ep, MEMBERS_WORDS * 8));
}

int client_open(struct pool *pool, struct fab_ep *ep, uint64_t seed, struct client *c)
{
    memset(c, 0, sizeof *c);
    c->pool = pool;
    c->ep = ep;
    c->watch.suspect = c->watch.still = -1;
    c->lease_ns = pool->head[0].lease_ms * 1000000ull;
    rng_seed(&c->rng, seed);
    c->nonce = pool->kept ? new_nonce(c) : 0;
    c->stock.of = calloc(pool->nodes, sizeof *c->stock.of);
    c->watch.of = calloc(pool->clients, sizeof *c->watch.of);
    c->sweep.old_chunks = calloc(pool->nodes, sizeof *c->sweep.old_chunks);
    c->attend = client_attend;
    client_epoch_init(c, ep->ops->buf_alloc(ep, client_words_bytes(pool)));
    int rc = FAR_OK;
    if (pool->voters > 0)
        rc = open_to_voters(c);
    if (rc == FAR_OK && ep->ops->chain)
        rc = client_rescue_init(c);
    if (rc == FAR_OK)
        rc = c->stock.of && c->watch.of && c->sweep.old_chunks && c->epoch.words
                 ? client_join(c)
                 : err_fail(FAR_NO_MEMORY, "no memory for a client");
    if (rc != FAR_OK)
        free_client(c);
    return rc;
}

/* Does a client that closes still have something that it cannot give back: memory that waits for
 * its epoch, or for the end of a sweep? */
static bool unsettled(const struct client *c)
{
    return c->stock.limbo.count > 0 || c->sweep.met != 0 || c->attention.sweep_unmet;
}

/* Drives the epochs until nothing waits for them. In a pool whose idle sessions are parked, it
 * waits until a session that holds the epoch up is parked or found dead. */
static int settle_epochs(struct client *c, struct op *op)
{
    struct backoff patience = {0};
    unsigned announcements = SETTLE_ANNOUNCEMENTS;
    int rc = FAR_OK;
    do {
        for (unsigned i = 0; i < announcements && unsettled(c) && rc == FAR_OK; i++) {
            rc = client_drive_epoch(op);
            while (client_reclaim(c)) {
            }
        }
        announcements = SETTLE_EPOCH;
    } while (rc == FAR_OK && unsettled(c) && c->pool->kept &&
             client_backoff(op, &patience, SETTLE_LEASES));
    return rc;
}

/* A client that closes leaves nothing behind for a sweep: it waits for memory that waits for its
 * epoch, and it finds what it has lost, by freeing it while another client swept, by a sweep of its
 * own. */
static void settle(struct client *c, struct op *op)
{
    struct sweep_result swept;

    client_forget_caches(c); /* their views are closed */
    (void)client_set_policy(op, POLICY_ANNOUNCING);
    int rc = settle_epochs(c, op);
    for (unsigned i = 0;
         i < SETTLE_SWEEPS && c->pool->kept && rc == FAR_OK &&
         (c->stock.lost_bytes > 0 || c->stock.loss_reported) && !client_has_stray_writes(c);
         i++) {
        rc = pool_sweep(op, &swept);
        if (rc == FAR_OK)
            client_loss_found(c, c->stock.lost_bytes);
        if (rc == FAR_OK || rc == FAR_CONTENTION) /* another client's sweep has to end first */
            rc = settle_epochs(c, op);
    }
    (void)client_set_policy(op, POLICY_SILENT);
}

/* Gives back what is free. What still waits for its epoch is left to a sweep. */
static void leave(struct client *c, struct op *op)
{
    uint64_t *word = op->pool_word;
    bool left_some = c->stock.limbo.count > 0 || c->stock.lost_bytes > 0 || c->sweep.met != 0;
    /* This may take longer than the lease, so it sends heartbeats. Twice: pages for objects on a
     * full node come from other nodes, together with more objects. */
    (void)client_set_policy(op, POLICY_ANNOUNCING);
    for (unsigned i = 0; i < 2 * c->pool->nodes; i++)
        left_some |= client_give_all(op, i % c->pool->nodes) != FAR_OK;
    (void)client_set_policy(op, POLICY_SILENT);
    if (journal_blank_spent(op) != FAR_OK)
        return; /* JOURNAL-J4 */
    if (client_has_stray_writes(c))
        return; /* EPOCH-E6: stray verbs may still land, and must not hit another client's memory */
    if (left_some)
        batch_faa(&op->batch, MARK_PUBLISH, NODE0, DEATHS_DELTA, 1, &word[0]);
    const uint32_t bytes = offsetof(struct client_slot, journals) - 8; /* `journals` stays */
    memset(&word[2], 0, bytes);
    batch_write(&op->batch, MARK_EARLY, NODE0, slot_delta(c->slot) + 8, &word[2], bytes);
    batch_fence(&op->batch);
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, slot_delta(c->slot), c->incarnation, 0, &word[1]);
    int rc = batch_flush(&op->batch); /* if this fails, the slot stays, and its lease lapses */
    if (rc == FAR_OK)
        client_vanish(c, c->slot, c->incarnation);
}

void client_close(struct client *c)
{
    struct op op;
    if (op_init(&op, c) == FAR_OK) {
        (void)client_set_policy(&op, POLICY_JOINING);
        bool registered = !client_lapsed(c) || (!c->must_leave_slot && client_renew(&op) == FAR_OK);
        (void)client_set_policy(&op, POLICY_SILENT);
        if (registered && c->attention.parked) /* it must not give away what a sweep has found */
            registered = client_unpark(&op) == FAR_OK;
        (void)client_set_policy(&op, POLICY_ANNOUNCING);
        if (registered && client_must_complete(c))
            (void)client_complete(&op);
        (void)client_set_policy(&op, POLICY_SILENT);
        if (registered && c->attention.sweep_unmet) /* SWEEP-P1: the lists must not be touched */
            registered = client_meet_sweep(&op) == FAR_OK;
        if (registered)
            settle(c, &op);
        /* Otherwise its lease lapses, and others complete what is left (JOURNAL-J3, EPOCH-E6). */
        if (registered && !c->attention.lease_lost && !client_has_stray_writes(c) &&
            !client_has_undone(c))
            leave(c, &op);
        op_free(&op);
    }
    free_client(c);
}
