/*
 * Watching others: reads the registry, and tells clients that are silent from those that are alive.
 * lease.c handles the silent ones.
 */
#include "pool/pool_internal.h"

/* A client sends a heartbeat every eighth of a lease. After this long it is overdue (LEASE-L4). */
#define OVERDUE_LEASES(ns) ((ns) / 4)

int client_registry(struct op *op, struct client_slot **slots)
{
    ASSERT(op->batch.count == 0);
    uint32_t bytes = op->pool->clients * (uint32_t)sizeof **slots;
    struct client_slot *image = op_buffer(op, BUF_POOL, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, NODE0, CLIENTS_OFF, image, bytes);
    *slots = image;
    return batch_flush(&op->batch);
}

/* Does the owner word name the live client whose slot has this incarnation? (A free slot has 0, and
 * so does an owner word that names nobody.) */
static bool owner_lives(uint64_t incarnation, uint64_t owner_word)
{
    return incarnation != 0 && !(incarnation & CLIENT_FENCED) && owner_is(owner_word, incarnation);
}

uint64_t client_owner_word(const struct client *c)
{
    return owner_word_make(c->incarnation, c->slot);
}

int client_owner_alive(struct op *op, uint64_t owner_word, bool *alive)
{
    unsigned slot = owner_slot(owner_word);
    if (slot >= op->pool->clients) {
        *alive = false;
        return FAR_OK;
    }
    batch_read(&op->batch, NODE0, slot_delta(slot), op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        *alive = owner_lives(op->pool_word[0], owner_word);
    return rc;
}

/* Is the slot being recovered, by another client that is alive or by a sibling of the operation? */
static bool in_repair(const struct client *c, const struct client_slot *slots, unsigned count,
                      unsigned slot)
{
    uint64_t word = slots[slot].incarnation;
    unsigned by = owner_slot(word);
    if (!(word & CLIENT_FENCED) || !(word & CLIENT_REPAIRED))
        return false;
    if (by == c->slot)
        return c->watch.of[slot].repairing;
    return by < count && owner_lives(slots[by].incarnation, word);
}

/* LEASE-L4: asks the fabric whether the client's process lives. It may be a system call, so the
 * answer is kept for a while, unless the caller looks for nothing else. */
static enum fab_life ask_life(struct client *c, const struct client_slot *s, unsigned slot,
                              bool again)
{
    struct watch *w = &c->watch.of[slot];
    uint64_t now = client_now(c);
    if (!c->ep->ops->life)
        return FAB_LIFE_UNKNOWN;
    if (again || now >= w->ask_after) {
        w->life = c->ep->ops->life(c->ep, s->incarnation, s->witness);
        w->ask_after = now + c->lease_ns / 16;
    }
    return w->life;
}

/* Does the client live, as far as a look says that was posted at `asked`? The fabric is asked when
 * a heartbeat is overdue or, if `searches`, at once. */
static enum fab_life judge(struct client *c, const struct client_slot *s, unsigned slot,
                           uint64_t asked, bool searches)
{
    uint64_t since = c->watch.of[slot].since, silent = asked > since ? asked - since : 0;
    enum fab_life life = FAB_LIFE_UNKNOWN;
    if ((s->incarnation & CLIENT_FENCED) || s->heartbeat == client_slot_renounced(s->incarnation))
        return FAB_DEAD;
    if (searches || silent > OVERDUE_LEASES(c->lease_ns))
        life = ask_life(c, s, slot, searches);
    bool waits = c->pool->waits && life == FAB_LIFE_UNKNOWN; /* LEASE-L5 */
    if ((life == FAB_ALIVE || waits) && silent > c->lease_ns) {
        c->watch.still = (int)slot;
        c->watch.still_pid = s->pid;
        c->watch.still_lives = life == FAB_ALIVE;
    }
    if (life == FAB_LIFE_UNKNOWN && silent > WATCH_LEASES(c->lease_ns))
        return waits ? FAB_ALIVE : FAB_DEAD;
    return life;
}

/* Notes what a slot says. False if it says the same as at the last look. */
static bool note(struct client *c, const struct client_slot *s, unsigned slot)
{
    struct watch *w = &c->watch.of[slot];
    if (w->incarnation == s->incarnation && w->heartbeat == s->heartbeat)
        return false;
    if (c->watch.suspect == (int)slot)
        c->watch.suspect = -1; /* another client, or it is alive */
    w->incarnation = s->incarnation;
    w->heartbeat = s->heartbeat;
    w->since = client_now(c);
    w->ask_after = 0;
    return true;
}

bool client_is_dead(struct client *c, const struct client_slot *s, unsigned slot, uint64_t asked)
{
    if (note(c, s, slot) && !c->ep->ops->life)
        return false;
    return judge(c, s, slot, asked, true) == FAB_DEAD;
}

bool client_watch(struct client *c, const struct client_slot *slots, unsigned count, uint64_t epoch,
                  uint64_t asked)
{
    ASSERT(count <= c->pool->clients);
    bool doubtful = false, searches = epoch == NO_EPOCH;
    c->watch.still = -1;
    for (unsigned n = 0; n < count; n++) {
        unsigned i = (c->watch.next + n) % count;
        const struct client_slot *s = &slots[i];
        bool first = s->incarnation != c->watch.of[i].incarnation;
        bool waits = searches || s->epoch < epoch || (s->incarnation & CLIENT_FENCED);
        /* Nobody need keep up the heartbeat of a parked client. It is watched when it is back. */
        bool watched = waits || s->epoch != NO_EPOCH;
        if (s->incarnation == 0 || i == c->slot || !watched)
            continue;
        /* If only the heartbeat moved, it is alive. At the first look only the fabric may know. */
        if (note(c, s, i) && !(first && searches && c->ep->ops->life)) {
            doubtful |= waits && first;
            continue;
        }
        if (!waits)
            continue; /* the watch has begun, in case that it is in the way later */
        if (in_repair(c, slots, count, i) || client_recovery_waits(c, i)) {
            doubtful = true; /* others may be dead as well, and the recovery may wait for them */
            continue;
        }
        enum fab_life life = judge(c, s, i, asked, searches);
        if (life == FAB_DEAD) {
            c->watch.suspect = (int)i;
            c->watch.next = i + 1;
            return true;
        }
        doubtful |= life == FAB_LIFE_UNKNOWN;
    }
    return doubtful;
}

int client_held_up(const struct client *c, int rc)
{
    if (c->watch.still < 0)
        return rc;
    return err_fail(rc == FAR_TIMEOUT ? FAR_POOL_FULL : rc,
                    "the session in slot %d (process %llu) %s for longer than its lease; others "
                    "wait for it",
                    c->watch.still, (unsigned long long)c->watch.still_pid,
                    c->watch.still_lives ? "lives, but has stood still in an operation"
                                         : "is not known to be dead, but has been silent");
}

void client_suspect(struct client *c, int slot)
{
    ASSERT(slot >= -1 && slot < (int)c->pool->clients);
    c->watch.suspect = slot;
}

void client_watch_again(struct client *c)
{
    for (unsigned i = 0; i < c->pool->clients; i++)
        c->watch.of[i].incarnation = 0;
    c->watch.suspect = c->watch.still = -1;
}

int client_bytes(struct op *op, uint64_t *retired, uint64_t *held)
{
    struct client_slot *slots = NULL;
    int rc = client_registry(op, &slots);
    *retired = op->client->stock.retired_bytes;
    *held = op->client->stock.held_bytes;
    for (unsigned i = 0; i < op->pool->clients && rc == FAR_OK; i++) {
        if (slots[i].incarnation == 0 || i == op->client->slot)
            continue;
        *retired += slots[i].retired_bytes;
        *held += slots[i].held_bytes;
    }
    return rc;
}
