/*
 * What the store uses of the pool, in addition to op.h: opening pools, clients and their turns,
 * operations, upkeep, sweeps and checks.
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include "pool/catalog.h"
#include "pool/client.h"

/* Lays out a pool on fresh memory, or reads the existing one. The fabric stays the caller's.
 * FAR_NOT_A_POOL, FAR_LAYOUT, FAR_CORRUPT, FAR_POOL_FULL (too small to hold a pool) or the
 * fabric's. */
int pool_open(struct fab *fab, const struct knobs *knobs, struct pool *pool);
/* Looks for nodes that the pool was opened without, if that is due. FAR_OK: none is away any more.
 * FAR_NODE_LOST: one is back as another; FAR_UNREACHABLE, FAR_TIMEOUT. Not within an operation. */
int pool_meet(struct op *op);
/* The same for one node, due or not. */
int pool_meet_node(struct op *op, unsigned node);
int pool_info(struct op *op, struct far_pool_info *info);
/* far_pool_members(), far_pool_change_members(). Not within an operation. */
int pool_members(struct op *op, struct far_members *members, struct far_member *list);
int pool_change_members(struct op *op, unsigned node, bool in);
int pool_accept_members(struct pool *pool);

/* ---- clients --------------------------------------------------------------------------------- */

/* Takes a slot of the registry. FAR_NO_CLIENT_SLOT. */
int client_open(struct pool *pool, struct fab_ep *ep, uint64_t seed, struct client *client);
void client_close(struct client *client);
/* In a child of fork(): frees the copy, and leaves the pool alone. */
void client_free_in_child(struct client *client);

/*
 * Idle clients. A session's thread has its client between client_enter() and client_leave(), which
 * may be nested. The keeper has it between client_borrow() and client_return(), and only while no
 * other thread does. The lower bits of `turn` say who has it. The upper ones count how often it was
 * entered, so a second look can tell that it was idle all the time.
 */
#define CLIENT_TURN_FREE  0ull
#define CLIENT_TURN_OWN   1ull
#define CLIENT_TURN_LENT  2ull
#define CLIENT_TURN_WHO   3ull
#define CLIENT_TURN_COUNT 4ull
void client_await_turn(struct client *client);
static inline void client_enter(struct client *c)
{
    if (c->inside++ > 0)
        return;
    uint64_t turn = atomic_load_explicit(&c->turn, memory_order_relaxed) & ~CLIENT_TURN_WHO;
    if (!atomic_compare_exchange_strong_explicit(&c->turn, &turn,
                                                 turn + CLIENT_TURN_COUNT + CLIENT_TURN_OWN,
                                                 memory_order_acquire, memory_order_relaxed))
        client_await_turn(c);
}
static inline void client_leave(struct client *c)
{
    ASSERT(c->inside > 0);
    if (--c->inside == 0)
        atomic_store_explicit(
            &c->turn, atomic_load_explicit(&c->turn, memory_order_relaxed) & ~CLIENT_TURN_WHO,
            memory_order_release);
    else if (__builtin_expect(c->endpoint_used != NULL, 0))
        c->endpoint_used(c);
}
/* Takes the client if nobody has it, and nobody has entered it since `turn` was read. */
static inline bool client_borrow(struct client *c, uint64_t turn)
{
    return (turn & CLIENT_TURN_WHO) == CLIENT_TURN_FREE &&
           atomic_compare_exchange_strong_explicit(&c->turn, &turn, turn | CLIENT_TURN_LENT,
                                                   memory_order_acquire, memory_order_relaxed);
}
static inline void client_return(struct client *c, uint64_t turn)
{
    atomic_store_explicit(&c->turn, turn, memory_order_release);
}
/* Parks the client: announces that it has nothing in flight, so that nobody waits for it, and that
 * it is alive. Its next operation announces it again. Costs a round trip, and one more for each
 * node on which it has spent lines (JOURNAL-J5). */
int client_park(struct op *op);
static inline bool client_is_parked(const struct client *c)
{
    return c->attention.parked;
}
/* Has an eighth of the lease passed since the last heartbeat? */
bool client_heartbeat_due(const struct client *client);
/* Is there something that the client must do in far memory? */
static inline bool client_is_due(const struct client *c)
{
    return c->attention.any != 0 || client_heartbeat_due(c);
}
/* The next batch carries a heartbeat. */
void client_send_heartbeat(struct client *client);

/* ---- operations ------------------------------------------------------------------------------ */

int op_init(struct op *op, struct client *client);
void op_free(struct op *op);

/*
 * For other work on the same op, in the middle of an index's work: completing a dead client's work
 * calls an index again. op_set_aside() takes the index's buffers and words out of reach, and
 * op_take_back() puts them back as they were. The batch must be empty at both. FAR_NO_MEMORY.
 */
struct op_aside {
    uint64_t *word;
    void *buf[BUF_POOL];
    size_t buf_bytes[BUF_POOL];
};
int op_set_aside(struct op *op, struct op_aside *aside);
void op_take_back(struct op *op, const struct op_aside *aside);

/* Adds a cache to those that are validated with every epoch. It starts out stale. */
void client_cache(struct client *client, struct cached *cached);
void client_uncache(struct client *client, struct cached *cached);

/* ---- upkeep ---------------------------------------------------------------------------------- */

/* Does what is not urgent: reuses what may be reused, recovers a client found dead, gives surplus
 * objects to the shared lists. A round trip or two now and then. */
int client_upkeep(struct op *op);

/* After FAR_POOL_FULL, between operations: gets back memory that waits for its epoch or was lost.
 * FAR_OK: it is worth trying again. FAR_POOL_FULL: there is none. `again`: for the same operation
 * as the last call. */
int pool_make_room(struct op *op, bool again);
/* What the sessions of a process share for that. NULL: no memory. */
struct relief *pool_relief_open(unsigned processes);
void pool_relief_close(struct relief *relief);

/* An operation has failed with FAR_CONTENTION, FAR_POOL_FULL or, while it made room, FAR_TIMEOUT.
 * If it was held up by a client that stands still and whose process lives (LEASE-L4), the detail
 * says which, and the third becomes FAR_POOL_FULL. Returns the status. */
int client_held_up(const struct client *client, int rc);

/* Finds and recovers all dead clients. Takes a lease and a half if there is any doubt. */
int client_reap_dead(struct op *op, unsigned *dead);

/* Finds the clients that are silent for WATCH_LEASES, and leaves them alone. Takes that long if
 * there is any doubt. `dead`: they count as dead; else the pool waits for them (LEASE-L5). */
int client_find_silent(struct op *op,
                       void (*each)(void *arg, unsigned slot, const struct client_slot *s,
                                    bool dead),
                       void *arg);

/* How many lines of a slot's journal say something? Needs no registration. */
int journal_pending(struct op *op, unsigned slot, unsigned *lines);
/* Cuts damaged chains of free slots. */
int journal_repair(struct op *op);

/* ---- sweeps and checks ----------------------------------------------------------------------- */

struct sweep_result {
    uint64_t objects, bytes; /* found, and free again */
    bool spilled; /* objects above the mark may have been on the lists, and are lost then */
};
/* Finds all memory that nothing reaches and no client holds, and puts it on the shared lists.
 * Others may work meanwhile. FAR_CONTENTION: another client is sweeping. */
int pool_sweep(struct op *op, struct sweep_result *result);

/* Adds up what the pool's memory is used for. Others may work meanwhile; then the parts are of
 * different instants. */
int pool_usage(struct op *op, struct far_pool_usage *usage);

/* What is wrong with the pool itself, besides its tables; each finding is also reported as text. */
struct pool_findings {
    void (*report)(void *arg, const char *text); /* may be NULL */
    void *arg;
    unsigned violations, stranded;
    uint64_t deaths; /* clients that died since the last sweep: memory was lost */
};
int pool_check(struct op *op, struct pool_findings *findings);

#endif
