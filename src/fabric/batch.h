/*
 * Batches: what protocol code fills and flushes. One flush is one round trip.
 *
 *     batch_write(b, MARK_EARLY, block, 0, kv, n);
 *     batch_read(b, bucket, 0, image, sizeof image);
 *     rc = batch_flush(b);
 *
 * batch_fence() says "what follows must take effect after what precedes"; whether that needs a
 * fence on this fabric, and therefore costs a round trip, is decided here and nowhere else.
 * Builders never fail: the first mistake (an address out of bounds, more verbs than fit) is kept
 * and returned by the flush, and nothing is posted.
 *
 * Builders of verbs that change something are told what it means (enum fab_mark).
 *
 * Builders of atomics return the verb's number in the batch. After the flush batch_swapped() says
 * whether that verb swapped, and batch_outcome() what became of it if the flush failed.
 *
 * The builders are inline because they are most of what a batch costs on a fabric that completes
 * at once: with the verb's kind known, most of its check folds away.
 */
#ifndef FABRIC_BATCH_H
#define FABRIC_BATCH_H

#include "fabric/fabric.h"

#define BATCH_MAX 128

/* A global address: node and 64-byte unit. 40 bits; 0 is "nowhere" (a node's unit 0 is its
 * superblock, which nothing points to). More bits, from damaged words, make a node that is not
 * there. */
typedef uint64_t gaddr;
#define GADDR_UNIT_BITS 34
#define GADDR_NODE_BITS 6
#define GADDR_BITS      (GADDR_UNIT_BITS + GADDR_NODE_BITS)
#define GADDR_MASK      ((1ull << GADDR_BITS) - 1)
_Static_assert(FAB_NODES_MAX <= 1 << GADDR_NODE_BITS, "an address can name every node");

/*
 * A word with all bits above an address set.
 *
 *   WORDS-1  No word that MARK_PUBLISH makes is a reference: while such a change is on its way from
 *       the head to the tail, the head's word is to be a reference to what describes it. It follows
 *       from encodings, or from limits: a pool with voters has at most 63 nodes, so a word with a
 *       bit for each node has a 0 on top; incarnations have a bit that is 0; numbers that count up
 *       skip such words, or never get so far (EPOCH_LAST). The simulator looks at every word that
 *       is published (TAIL-T1), and walkers report one that they find.
 */
static inline bool word_is_reference(uint64_t word)
{
    return word >> GADDR_BITS == UINT64_MAX >> GADDR_BITS;
}

static inline gaddr gaddr_make(unsigned node, uint64_t byte_offset)
{
    return ((uint64_t)node << GADDR_UNIT_BITS) | (byte_offset >> 6);
}
static inline unsigned gaddr_node(gaddr a)
{
    return (unsigned)(a >> GADDR_UNIT_BITS);
}
static inline uint64_t gaddr_offset(gaddr a)
{
    return (a & ((1ull << GADDR_UNIT_BITS) - 1)) << 6;
}

struct batch;

/* What operations cost; counted at every flush into the account that is set. */
struct cost {
    uint64_t rtts, verbs, bytes_read, bytes_written;
};

/* Sees every batch just before it goes out: the benchmark's recorder and the simulator's time
 * line. */
struct batch_tap {
    void (*posted)(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count);
};

/*
 * Piggybacked verbs: when `due`, they are appended to the last post of the next batch and cost no
 * round trip. They have no order with the batch's own verbs. A post that has no room for them goes
 * without, unless they are `urgent`: then it goes out in two.
 * A long operation never comes to the place where `due` is set, so `look` is called every
 * PIGGYBACK_LOOK flushes to set it.
 */
struct batch_piggyback {
    bool due, urgent;
    bool posted;      /* a batch that was posted has them */
    bool withheld;    /* not to be sent, though they are due */
    unsigned flushes; /* since the last look */
    void (*look)(struct batch_piggyback *piggyback);
    void (*add)(struct batch_piggyback *piggyback, struct batch *b);
    void (*completed)(struct batch_piggyback *piggyback, int status);
};
#define PIGGYBACK_VERBS 8
#define PIGGYBACK_LOOK  8
#define BATCH_WORDS     ((BATCH_MAX + PIGGYBACK_VERBS) / 64 + 1)

/* The rules of the layer above for the posts of a batch. */
struct batch_policy {
    /* Asked before every post that writes. If it returns false, nothing is posted, and the flush
     * returns FAR_FENCED with `refusal` as its detail. NULL: every post goes out. */
    bool (*may_write)(const struct batch_policy *policy);
    const char *refusal;
    /* Called when a post that writes has failed and may take effect later (FABRIC-F5). */
    void (*failed)(const struct batch_policy *policy);
    /* Called when nodes have refused a post because its view is old: learns the newest view, and
     * sets that of the endpoint. What did not happen is then posted again. NULL: the flush
     * fails. */
    int (*learn)(const struct batch_policy *policy);
    /* Called while a post waits for the client of that slot, for long, and again if it goes on
     * waiting (fab_req.held_by). It must not use this batch. NULL: the post waits. */
    void (*held_up)(const struct batch_policy *policy, unsigned slot);
    struct batch_piggyback *piggyback; /* NULL: none */
};

/*
 * The batches of a ring, by what their fibers wait for.
 *
 *   RING-2  A fiber that can continue is in a queue or first in the heap. What it waits for puts it
 *       there: its request when it is done, or the one that wakes it. So the ring never looks at
 *       fibers that cannot continue, and what an operation costs does not grow with the depth.
 */
struct batch_ring {
    struct fab_queue ready; /* can continue: their requests are done, or they were woken */
    struct fab_queue turns; /* want to post, in the order of their tickets (SHARE-2)     */
    struct batch **pausing; /* a heap by wake_at; has room for all batches of the ring   */
    unsigned pausing_count;
};

struct batch {
    struct fab_ep *ep;
    struct cost *cost;
    struct batch_tap *tap;             /* NULL, mostly                                          */
    const struct batch_policy *policy; /* NULL: none                                            */
    bool on_ring;                      /* waits by yielding to the ring that resumed this fiber */
    struct batch_ring *ring; /* the batches of that ring; NULL: who resumes the fiber polls      */
    uint64_t wake_at; /* on_ring: do not resume before, while pausing; 0: not pausing             */
    unsigned wants;   /* on_ring: verbs that it will post when others have completed; 0: none     */
    unsigned ticket;  /* and when it is its turn                                                  */
    uint64_t fence[BATCH_WORDS]; /* a bit of each verb: a fence stands before it */
    bool plain;   /* goes out in one post as it is: no fence, nothing to emulate              */
    bool carries; /* has piggybacked verbs                                                    */
    bool acted;   /* the last flush failed after an earlier post with an atomic had completed */
    int error;    /* the first mistake that a builder saw                                     */
    bool refused; /* a flush posted nothing because of such a mistake; the user clears it     */
    bool outside_views; /* its requests name no view; the user sets it */
    int posted;   /* how the last post ended, with the piggybacked verbs in it                */
    unsigned own; /* verbs of the flush that are not piggybacked                              */
    unsigned count, limit;              /* BATCH_MAX, and more only for piggybacked verbs */
    uint64_t bytes_read, bytes_written; /* by the verbs so far */
    /* The last flush: verbs below `completed` have come back. Those from doubt_at to doubt_end may
     * or may not have taken effect (FABRIC-F5). The others were not posted. */
    unsigned completed, doubt_at, doubt_end;
    bool in_doubt; /* its last post failed, and its own verbs may take effect */
    struct fab_req req;
    struct fab_verb verb[BATCH_MAX + PIGGYBACK_VERBS + 1]; /* one to spare, for what does not fit */
};

/* A batch that `wants` to post: may it? A request that is larger than the endpoint's share goes
 * alone (SHARE-1, SHARE-2). */
static inline bool batch_may_post(const struct batch *b)
{
    const struct fab_ep *ep = b->ep;
    return b->ticket == ep->ticket_served &&
           (ep->under_way == 0 || ep->under_way + b->wants <= fab_share(ep->fab));
}

void batch_init(struct batch *b, struct fab_ep *ep, struct cost *cost);

/* Takes note of the verb that does not fit or breaks a rule: for the builders. */
void batch_reject(struct batch *b, const struct fab_verb *verb);

static inline struct fab_verb *batch_add(struct batch *b, enum fab_kind kind, unsigned flags,
                                         gaddr at, uint64_t delta, void *buf, uint32_t len)
{
    struct fab_verb *v = &b->verb[b->count];
    unsigned node = gaddr_node(at);
    uint64_t off;

    /* An offset that wraps around must not come out as a good one: no node reaches so far. Nor
     * must a node's number that is cut off. */
    if (__builtin_add_overflow(gaddr_offset(at), delta, &off))
        off = UINT64_MAX & ~7ull;
    v->kind = (uint8_t)kind;
    v->flags = (uint8_t)flags;
    v->node = node < UINT16_MAX ? (uint16_t)node : UINT16_MAX;
    v->len = len;
    v->off = off;
    v->buf = buf;
    if (__builtin_expect(b->count >= b->limit || !fab_valid(b->ep->fab, v), 0)) {
        batch_reject(b, v);
        return v;
    }
    b->count++;
    if (kind != FAB_WRITE)
        b->bytes_read += len;
    if (kind != FAB_READ)
        b->bytes_written += len;
    return v;
}

/* `delta` is a byte offset from the address; buffers are from the endpoint's buf_alloc(). */
static inline void batch_read(struct batch *b, gaddr at, uint64_t delta, void *buf, uint32_t len)
{
    batch_add(b, FAB_READ, MARK_NONE, at, delta, buf, len);
}

/* The same, of what only the head surely has: locks, hints, and what a lock of the operation
 * protects. */
static inline void batch_read_head(struct batch *b, gaddr at, uint64_t delta, void *buf,
                                   uint32_t len)
{
    batch_add(b, FAB_READ, MARK_HEAD, at, delta, buf, len);
}

static inline void batch_write(struct batch *b, enum fab_mark mark, gaddr at, uint64_t delta,
                               const void *buf, uint32_t len)
{
    batch_add(b, FAB_WRITE, mark, at, delta, (void *)(uintptr_t)buf, len);
}

/* The READ just added may come too late, to memory that is free, and its result is judged with that
 * in mind. The simulator counts any other such READ as a mistake. */
static inline void batch_may_be_freed(struct batch *b)
{
    if (b->count > 0)
        b->verb[b->count - 1].flags |= FAB_MAY_BE_FREED;
}

static inline unsigned batch_number(const struct batch *b, const struct fab_verb *v)
{
    return (unsigned)(v - b->verb);
}

/* *old receives the word as it was: the swap happened if it equals compare. Returns the verb's
 * number in the batch, as the other atomics do. */
static inline unsigned batch_cas(struct batch *b, enum fab_mark mark, gaddr at, uint64_t delta,
                                 uint64_t compare, uint64_t swap, uint64_t *old)
{
    struct fab_verb *v = batch_add(b, FAB_CAS, mark, at, delta, old, 8);

    v->compare = compare;
    v->swap = swap;
    return batch_number(b, v);
}

/* The swap happened if *old equals compare under compare_mask. Without masked CAS in the fabric it
 * is emulated by CAS. The first CAS expects the whole of `compare`, so a caller that knows the word
 * passes all of it, not only the bits that must match. */
static inline unsigned batch_mcas(struct batch *b, enum fab_mark mark, gaddr at, uint64_t delta,
                                  uint64_t compare, uint64_t compare_mask, uint64_t swap,
                                  uint64_t swap_mask, uint64_t *old)
{
    struct fab_verb *v = batch_add(b, FAB_MCAS, mark, at, delta, old, 8);

    v->compare = compare;
    v->compare_mask = compare_mask;
    v->swap = swap;
    v->swap_mask = swap_mask;
    if (!(b->ep->fab->caps & FAB_CAP_MCAS))
        b->plain = false;
    return batch_number(b, v);
}

static inline unsigned batch_faa(struct batch *b, enum fab_mark mark, gaddr at, uint64_t delta,
                                 uint64_t add, uint64_t *old)
{
    struct fab_verb *v = batch_add(b, FAB_FAA, mark, at, delta, old, 8);

    v->swap = add;
    return batch_number(b, v);
}

static inline void batch_fence(struct batch *b)
{
    const struct fab *fab = b->ep->fab;
    if (b->count == 0 || (fab->order == ORDER_ALL && fab->nodes == 1)) /* kept without it */
        return;
    b->fence[b->count / 64] |= 1ull << b->count % 64;
    b->plain = false;
}

static inline unsigned batch_room(const struct batch *b)
{
    return BATCH_MAX - b->count;
}

/* Posts all, waits for all; an empty batch costs nothing. On a fiber, other fibers run meanwhile.
 * The batch is empty again afterwards. A batch of READs does not end with FAR_UNKNOWN. FAR_FENCED:
 * the policy did not let a post go out. If the batch had several posts, earlier ones may have gone
 * out (see `acted`). */
int(batch_flush)(struct batch *b);

/* Is the pool's memory mapped by this process, so that verbs are executed as they are posted? */
bool batch_is_mapped(const struct batch *b);
/* Where it is mapped, for prefetching. NULL: it is not, or not in the pool. */
const void *batch_mapped(const struct batch *b, gaddr at, uint64_t delta, uint32_t bytes);

/* Each call in the source is a site. Its description goes to a section of its own, so that sites
 * that no run reaches are known too. The alignment keeps compilers from leaving gaps between
 * them. */
#define batch_flush(b)                                                                             \
    __extension__({                                                                                \
        static const struct fab_site site_here_                                                    \
            __attribute__((section("fab_sites"), aligned(8))) = {__FILE__, __func__, __LINE__};    \
        struct batch *batch_here_ = (b);                                                           \
        batch_here_->req.site = &site_here_;                                                       \
        (batch_flush)(batch_here_);                                                                \
    })

/*
 * What became of the n-th verb of the last flush, also if that failed. True until the next builder
 * is called, and for CAS and MCAS as long as *old is left as it is.
 */
enum batch_outcome {
    BATCH_DONE,    /* took effect; CAS and MCAS: swapped                               */
    BATCH_MISSED,  /* CAS and MCAS: found another word, changed nothing                */
    BATCH_NOT,     /* was not posted: has no effect, and will have none                */
    BATCH_UNKNOWN, /* its post failed: it took effect, or not, or will yet (FABRIC-F5) */
};
/* Did a CAS that has come back swap? An emulated masked CAS is a CAS by now, and its `compare` is
 * the whole word that it expected last. If it was not repeated when it should, it did not swap. */
static inline bool batch_matched(const struct fab_verb *v)
{
    uint64_t differs = *(const uint64_t *)v->buf ^ v->compare;

    return (v->kind == FAB_MCAS ? differs & v->compare_mask : differs) == 0;
}

static inline enum batch_outcome batch_outcome(const struct batch *b, unsigned n)
{
    const struct fab_verb *v = &b->verb[n];

    if (n < b->doubt_end && n >= b->doubt_at)
        return BATCH_UNKNOWN;
    if (n >= b->completed)
        return BATCH_NOT;
    if (v->kind != FAB_CAS && v->kind != FAB_MCAS)
        return BATCH_DONE;
    return batch_matched(v) ? BATCH_DONE : BATCH_MISSED;
}

/* Did it surely swap? After FAR_OK, false means that it surely did not. */
static inline bool batch_swapped(const struct batch *b, unsigned n)
{
    return batch_outcome(b, n) == BATCH_DONE;
}

/* The batch's request is in a queue. */
static inline struct batch *batch_of(struct fab_req *req)
{
    return (struct batch *)(void *)((char *)req - offsetof(struct batch, req));
}

/* Waits in a queue until batch_wake() takes it out. Only if the batch has a ring. */
void batch_sleep(struct batch *b, struct fab_queue *queue);
/* Lets the first of the queue continue, when its ring is driven next. */
void batch_wake(struct fab_queue *queue);

/* Takes a batch whose fiber can continue out of its queue: a pause that ends by `now` is over.
 * NULL: there is none. */
struct batch *batch_ring_next(struct batch_ring *ring, uint64_t now);
/* When the first pause ends; UINT64_MAX: none pauses. */
static inline uint64_t batch_ring_wakes(const struct batch_ring *ring)
{
    return ring->pausing_count > 0 ? ring->pausing[0]->wake_at : UINT64_MAX;
}

/* Lets time pass, to wait for another client. Operations that are not held up never call it. On a
 * fiber, other fibers run meanwhile. */
void batch_pause(struct batch *b, uint64_t ns);

static inline uint64_t batch_now(const struct batch *b)
{
    return b->ep->ops->now(b->ep);
}

#endif
