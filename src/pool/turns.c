#include "pool/turns.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Tickets are numbered one after the other, and come round. It is a ticket's turn if `serving` is
 * its number or a later one. Two queues never share a cache line. */
struct turn_queue {
    _Atomic uint32_t next; /* the ticket of the next one that comes */
    _Atomic uint32_t serving;
} __attribute__((aligned(64)));

/* How long a queue may stand still, in times that a turn usually lasts; and how often one looks. */
#define PATIENCE      32u
#define LOOKS         8u
#define TYPICAL_NS    4000u
#define LOOK_NS_MOST  50000u
#define TYPICAL_LEAST 1000u
#define IN_A_ROW      16u /* turns of a queue until it lets others go */
#define PAUSE_TURNS   3u  /* and for how long, in times that a turn usually lasts */
#define EXCEPTION     4u  /* a turn that lasts longer than this many others counts as this many */

struct turns {
    _Atomic uint64_t typical; /* nanoseconds that turns last, on average */
    uint64_t mask;
    struct turn_queue queue[];
};

struct turns *turns_open(unsigned processes, unsigned queues)
{
    ASSERT(processes > 0 && queues > 0 && (queues & (queues - 1)) == 0);
    size_t bytes = sizeof(struct turns) + (size_t)processes * queues * sizeof(struct turn_queue);
    struct turns *t = aligned_alloc(_Alignof(struct turns), bytes);
    if (!t)
        return NULL;
    memset(t, 0, bytes);
    t->mask = queues - 1;
    atomic_init(&t->typical, TYPICAL_NS);
    return t;
}

void turns_close(struct turns *t)
{
    free(t);
}

static bool is_served(uint32_t serving, uint32_t ticket)
{
    return (int32_t)(serving - ticket) >= 0;
}

/* TURN-1: the queue stands still at `serving`. Those who are served next are not waited for any
 * more, but not more of them than `most`. If they stand still as well, more of them are skipped the
 * next time: so a few losses of patience pass any number of them, and those that go on do not all
 * come to far memory at once. */
static void skip(struct turn_queue *q, uint32_t serving, uint32_t ticket, uint32_t most)
{
    uint32_t to = ticket - serving < most ? ticket : serving + most;
    (void)atomic_compare_exchange_strong_explicit(&q->serving, &serving, to, memory_order_relaxed,
                                                  memory_order_relaxed);
}

/* How long to wait until the next look: the fewer are in front, the shorter. */
static uint64_t look_ns(uint64_t typical, uint32_t in_front)
{
    uint64_t look = typical / LOOKS + (in_front - 1) * (typical / 2);
    return look < LOOK_NS_MOST ? look : LOOK_NS_MOST;
}

/* TURN-3: those of other processes look at the lock only now and then, and would hardly ever find
 * it free. */
static void let_others_go(const struct turns *t, struct op *op, uint32_t ticket)
{
    uint64_t pause = PAUSE_TURNS * atomic_load_explicit(&t->typical, memory_order_relaxed);
    uint64_t most = client_lease_ns(op->client) / 16; /* so that the next heartbeat is in time */
    if (ticket % IN_A_ROW == 0)
        op_wait(op, pause < most ? pause : most);
}

static void wait_for_turn(const struct turns *t, struct op *op, struct turn_queue *q,
                          uint32_t ticket)
{
    uint64_t typical = atomic_load_explicit(&t->typical, memory_order_relaxed);
    uint64_t most = op->pool->knobs.turn_patience;
    uint64_t patience = most > 0 ? op_random(op, most) : PATIENCE * typical;
    uint64_t moved = batch_now(&op->batch);
    uint32_t last = atomic_load_explicit(&q->serving, memory_order_relaxed), skips = 1;
    if (is_served(last, ticket))
        return;
    for (unsigned looks = 0; !is_served(last, ticket); looks++) {
        if (looks >= PATIENCE * LOOKS || batch_now(&op->batch) - moved > patience) {
            skip(q, last, ticket, skips);
            skips *= 2;
        } else {
            op_wait(op, look_ns(typical, ticket - last));
        }
        uint32_t serving = atomic_load_explicit(&q->serving, memory_order_relaxed);
        if (serving != last) {
            moved = batch_now(&op->batch);
            looks = 0;
        }
        last = serving;
    }
    let_others_go(t, op, ticket);
}

void turn_take(struct op *op, gaddr at, struct turn *turn)
{
    struct turns *t = op->pool->turns;
    turn->queue = NULL;
    if (!t)
        return;
    ASSERT(op->batch.count == 0);
    uint64_t process = op->batch.ep->process, hash = at * 0x9e3779b97f4a7c15u >> 32;
    struct turn_queue *q = &t->queue[process * (t->mask + 1) + (hash & t->mask)];
    uint32_t ticket = atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed);
    wait_for_turn(t, op, q, ticket);
    *turn = (struct turn){.queue = q, .ticket = ticket, .since = batch_now(&op->batch)};
}

void turn_give(struct op *op, struct turn *turn)
{
    struct turns *t = op->pool->turns;
    uint32_t mine = turn->ticket;
    if (!turn->queue)
        return;
    (void)atomic_compare_exchange_strong_explicit(&turn->queue->serving, &mine, mine + 1,
                                                  memory_order_relaxed, memory_order_relaxed);
    turn->queue = NULL;
    uint64_t lasted = batch_now(&op->batch) - turn->since;
    uint64_t typical = atomic_load_explicit(&t->typical, memory_order_relaxed);
    if (lasted > EXCEPTION * typical) /* one that stood still says nothing about the others */
        lasted = EXCEPTION * typical;
    typical = typical - typical / 16 + lasted / 16;
    atomic_store_explicit(&t->typical, typical > TYPICAL_LEAST ? typical : TYPICAL_LEAST,
                          memory_order_relaxed);
}
