/*
 * Fabric: verbs on the memory of passive nodes.
 *
 * A fabric is a set of memory nodes, numbered from 0, each a region of bytes reached by offset.
 * An endpoint is one thread's access to all of them. Work is posted in requests: arrays of verbs
 * that go out together. docs/fabric.md is the contract in full; in short:
 *
 *   FABRIC-F1  READ and WRITE move naturally aligned 8-byte words; a word is never torn. Words of
 *       one READ or WRITE have no order among themselves.
 *   FABRIC-F2  CAS, MCAS and FAA act on one aligned 8-byte word, atomically against each other.
 *   FABRIC-F3  Verbs of one request to one node take effect in posting order as far as fab.order
 *       says (ORDER(first, second)). A verb with FAB_FENCE, and every verb after it to that node,
 *       takes effect after all verbs of the request before it to that node.
 *   FABRIC-F4  There is no order between nodes nor between requests, with one exception: once a
 *       request was seen to complete, what it did is visible to every request posted afterwards, by
 *       any client.
 *   FABRIC-F5  A request completes once, with one status. After an error each of its verbs has
 *       happened, or has not, or will yet, within half a lease. A verb that FABRIC-F3 orders behind
 *       another happens only if that one has, and after it. After FAR_UNREACHABLE none has happened
 *       and none will; nor has any on a node of fab_req.away.
 *   FABRIC-F6  A request may name a view. Once fence_view() has returned FAR_OK for a node and a
 *       view, nothing of a request that names an older one happens on that node any more.
 *
 * Protocol code does not call this: it fills batches (batch.h), which set fences and count costs.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include "base/err.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAB_NODES_MAX  64
#define FAB_VOTERS_MAX 5

enum fab_kind { FAB_READ, FAB_WRITE, FAB_CAS, FAB_MCAS, FAB_FAA };

/* Verb flags. Fabrics use FAB_FENCE; the other bits are for the poster. */
#define FAB_FENCE        1u
#define FAB_MAY_BE_FREED 2u /* a READ of memory that may have been freed: its poster will notice */
#define FAB_MARK         0x1cu /* enum fab_mark */
#define FAB_PART         0x20u /* a fence stands before it, if only one that the order makes needless */

/*
 * What a verb means to a pool that keeps each word on two nodes, a head and a tail: what it needs
 * before it may be acknowledged, and what may get lost with the head. Every verb that changes
 * something says it. With one node for each word nothing depends on it. docs/fabric.md explains
 * marks to authors of indexes.
 */
enum fab_mark {
    MARK_NONE = 0,
    MARK_EARLY = 1 << 2,   /* WRITE: nobody acts on it yet, or repeating it does no harm     */
    MARK_SUM = 2 << 2,     /* FAA: an estimate                                               */
    MARK_PLACE = 3 << 2,   /* WRITE: visible at once; under a lock, or of a sole owner       */
    MARK_LOCK = 4 << 2,    /* atomic: shuts others out, or lets them in again                */
    MARK_HINT = 5 << 2,    /* atomic: may get lost with the head                             */
    MARK_PUBLISH = 6 << 2, /* atomic: what others act on from then on, and must not get lost */
    MARK_HEAD = 7 << 2     /* READ: of what only the head surely has                         */
};

struct fab_verb {
    uint8_t kind;
    uint8_t flags;
    uint16_t node;
    uint32_t len; /* READ, WRITE: a multiple of 8; atomics: 8 */
    uint64_t off; /* a multiple of 8                          */
    /* READ: target; WRITE: source; atomics: receives the old word. 8-byte aligned, in memory from
     * the endpoint's buf_alloc(). */
    void *buf;
    uint64_t compare, swap; /* CAS, MCAS; FAA adds swap */
    /* MCAS: if the word equals compare under compare_mask, it takes the bits of swap_mask from
     * swap. */
    uint64_t compare_mask, swap_mask;
};

/* A place in the source that posts verbs: for the simulator, which counts what happens at each. */
struct fab_site {
    const char *file, *function;
    unsigned line;
};

/* Requests in the order in which they were added. */
struct fab_queue {
    struct fab_req *first, *last; /* `last` counts only if there is a first */
};

struct fab_req {
    struct fab_verb *verbs;
    unsigned count;
    bool done;
    int status;             /* valid once done                                 */
    uint32_t view;          /* that it was made in; 0: none, it is never refused for that */
    void *owner;            /* for the poster                                  */
    struct fab_req *next;   /* for the fabric, until done; then for a queue    */
    struct fab_queue *tell; /* set after post(): it is added to it when done; NULL: to none */
    unsigned parts;         /* for the fabric, until done */
    /* The poster sets it to 0. With an error, a fabric may name nodes that nothing of the request
     * was sent to, by bits, and the status of these. None of their verbs has happened, and none
     * will. */
    uint64_t away;
    int away_status;
    /* Set to false by the poster. With FAR_UNKNOWN: the nodes of `away` have refused it for its
     * view, and all other nodes have executed their verbs (FABRIC-F6). */
    bool rest_done;
    const struct fab_site *site; /* that posts it; NULL: none */
    /* Set to 0 by the poster. What the request costs more than its verbs in one round trip. */
    struct {
        uint32_t rtts, verbs;
        uint64_t read, written;
    } more;
    /* Set to 0 by the poster. The request is not done yet, because for long the client of the slot
     * held_by - 1 has had a word that it wants (fab_chain_ops). Its poster is told once, looks
     * after that client, and sets this to 0 again. */
    unsigned held_by;
};

static inline void fab_queue_add(struct fab_queue *queue, struct fab_req *req)
{
    req->next = NULL;
    if (queue->first)
        queue->last->next = req;
    else
        queue->first = req;
    queue->last = req;
}

static inline struct fab_req *fab_queue_take(struct fab_queue *queue)
{
    struct fab_req *req = queue->first;
    if (req)
        queue->first = req->next;
    return req;
}

/* For fabrics: the request is done. Called by the thread that uses the endpoint, in any call. */
static inline void fab_complete(struct fab_req *req, int status)
{
    req->status = status;
    req->done = true;
    if (req->tell && req->held_by == 0)
        fab_queue_add(req->tell, req);
}

/* For fabrics: the request waits for the client of that slot. */
static inline void fab_hold(struct fab_req *req, unsigned slot)
{
    if (req->held_by != 0)
        return;
    req->held_by = slot + 1;
    if (req->tell)
        fab_queue_add(req->tell, req);
}

/* The order that is kept without a fence, by class of the first and of the second verb. */
enum fab_class { FAB_R, FAB_W, FAB_A };
#define ORDER(first, second) (1u << ((first)*3 + (second)))
#define ORDER_ALL            0x1ffu
/* The reliable connection of InfiniBand and RoCE, by the specification. */
#define ORDER_IB                                                                                   \
    (ORDER(FAB_W, FAB_W) | ORDER(FAB_W, FAB_R) | ORDER(FAB_W, FAB_A) | ORDER(FAB_R, FAB_R) |       \
     ORDER(FAB_A, FAB_R))

/* Capabilities. */
#define FAB_CAP_MCAS      1u /* masked CAS in one verb                                         */
#define FAB_CAP_IMMEDIATE 2u /* post() completes before it returns: nothing is ever waited for */
#define FAB_CAP_LOCAL     4u /* only memory of the process: a child of fork() may close it     */
#define FAB_CAP_PIECES    8u /* not a capability: posts that write go out in pieces (batch.c)  */
/* The same, for posts that name a view. */
#define FAB_CAP_VIEW_PIECES 16u

/* Returned by fence() and fence_view() only. Neither a status nor an error. */
#define FAB_PENDING 1

/* Are clients waited for that are silent and not known to be dead (LEASE-L5)? */
enum fab_wait {
    FAB_WAIT_NOT, /* not by those who open the pool with this URI; nor by anybody, if they make it */
    FAB_WAIT,     /* by all, in a pool that is made with it */
    FAB_WAIT_AS_MADE /* the URI does not say it */
};

/* What a fabric knows of a client's process. */
enum fab_life { FAB_LIFE_UNKNOWN, FAB_ALIVE, FAB_DEAD };

/* The most descriptors of an endpoint. */
#define FAB_WAIT_FDS 2

struct fab_ep;
struct fab;

/*
 * What only a fabric has that keeps each word on two machines (src/chain). What a client has begun
 * on one of them and not ended on the other stands in lines, which belong to a slot of the
 * registry.
 */
struct fab_chain_ops {
    /* Takes lines that no slot has, for a client that has none. It gives them back when it takes
     * those of a slot. FAR_CONTENTION: all are taken, those of *slot by *holder. */
    int (*visit)(struct fab_ep *ep, uint64_t client, unsigned *slot, uint64_t *holder);
    /* Takes the lines of a slot, from the client `from` (0: from nobody), before the client takes
     * the slot. Waits for all that is under way on this endpoint. FAR_CONTENTION: *holder has
     * them. */
    int (*seat)(struct fab_ep *ep, unsigned slot, uint64_t from, uint64_t client, uint64_t *holder);
    /* Gives them back, when all that is under way has ended. The slot is free already. */
    void (*leave)(struct fab_ep *ep);
    /* Who has the lines of the slot? 0: nobody. */
    int (*holder)(struct fab_ep *ep, unsigned slot, uint64_t *client);
    /* Ends what a client has begun that is shut out, and gives its lines back. FAR_CONTENTION:
     * *holder has them by now. */
    int (*settle)(struct fab_ep *ep, unsigned slot, uint64_t client, uint64_t *holder);
    /* Waits until all that is done has ended, too. */
    void (*finish)(struct fab_ep *ep);
    /* How many requests have been posted; and have that many ended, too, the first ones? */
    uint64_t (*posted)(struct fab_ep *ep);
    bool (*ended)(struct fab_ep *ep, uint64_t count);
    /* The operation that has posted that request has ended: the locks that it has not released are
     * not its own any more. */
    void (*forget)(struct fab_ep *ep, const struct fab_req *req);
    /* Notes the epoch in which requests are made from now on (0: as before). Returns the oldest one
     * in which one was made that has not ended, though it may be done; UINT64_MAX: all have. */
    uint64_t (*oldest)(struct fab_ep *ep, uint64_t epoch);
};

struct fab_ops {
    const char *scheme;

    /* Opens what the URI names. Sets fab->fresh if the memory is new and zeroed. */
    int (*open)(struct uri *uri, struct fab **fab);
    void (*close)(struct fab *fab);

    /* Optional. The pool on the fabric has been made, or checked: others that open it may be let
     * in. Called once by each client that opens the pool. */
    void (*formatted)(struct fab *fab);

    /* Optional. Removes what the URI names, if it is a pool. */
    int (*remove)(struct uri *uri);

    int (*ep_open)(struct fab *fab, struct fab_ep **ep);
    void (*ep_close)(struct fab_ep *ep);

    /* Local memory for the buffers of verbs, 64-byte aligned, zeroed. NULL: there is no memory. */
    void *(*buf_alloc)(struct fab_ep *ep, size_t bytes);
    void (*buf_free)(struct fab_ep *ep, void *buf, size_t bytes);

    /* Starts a request. After an error return, nothing was posted. The verbs are valid
     * (fab_valid()). The request and its verbs must stay until done. */
    int (*post)(struct fab_ep *ep, struct fab_req *req);

    /* Makes progress; with wait, blocks until something completed (at once if nothing is under
     * way). Completed requests have `done` set. */
    void (*poll)(struct fab_ep *ep, bool wait);

    /* Optional: to wait for the endpoint together with other things. wait_fds() sets *count
     * descriptors, which stay the same until the endpoint is closed. arm() makes sure that one of
     * them becomes readable when poll() has something to do, and sets *until to the time when
     * poll() must be called at the latest (by now(); UINT64_MAX: never). False: nothing was armed,
     * as there may be something to do already; call poll() first. Any later call but arm() may undo
     * the arming. */
    int (*wait_fds)(struct fab_ep *ep, int fds[FAB_WAIT_FDS], unsigned *count);
    bool (*arm)(struct fab_ep *ep, uint64_t *until);

    /* Monotonic nanoseconds of this endpoint: exactly; cheaply, some milliseconds late; and letting
     * time pass. */
    uint64_t (*now)(struct fab_ep *ep);
    uint64_t (*coarse)(struct fab_ep *ep);
    void (*pause)(struct fab_ep *ep, uint64_t ns);

    /* Sets the identity of the endpoint's verbs for fence() and life(): the client's registration.
     * The endpoint's last identity counts as dead. NULL if both are. */
    void (*identify)(struct fab_ep *ep, uint64_t client);
    const struct fab_chain_ops *chain; /* NULL: it has no chains */
    /* Shuts a client out: no verb of an endpoint with that identity takes effect once this has
     * returned FAR_OK. It does not wait for nodes. FAB_PENDING: some have not answered yet; call
     * again with the same client. They answer or fail within the fabric's time-out. An error: a
     * node cannot be asked, or is known to be away. NULL if the fabric cannot shut clients out:
     * then each client checks its own lease before it writes. */
    int (*fence)(struct fab_ep *ep, uint64_t client);

    /* Raises the node's view: once this has returned FAR_OK, the node executes nothing of a request
     * that names an older view, and nothing of one is under way there (FABRIC-F6). If the node's
     * view is the same or newer, it stays. It does not wait. FAB_PENDING: call again with the same
     * node and view; the node may refuse older requests already. An error: the node cannot be
     * asked. NULL if the fabric cannot. */
    int (*fence_view)(struct fab_ep *ep, unsigned node, uint32_t view);

    /* Optional: does the process live whose endpoint has that identity? FAB_ALIVE: it does, even if
     * it is stopped. FAB_DEAD: no verb of that identity takes effect any more. `witness` is what
     * witness() returned to that client, by which others know that they could tell; 0: nothing. May
     * be a system call. NULL if the fabric never knows. */
    enum fab_life (*life)(struct fab_ep *ep, uint64_t client, uint64_t witness);
    uint64_t (*witness)(struct fab_ep *ep, uint64_t client);

    /* Optional. What a memory node reports of itself. The other nodes need not be reachable. */
    int (*node_stat)(struct fab_ep *ep, unsigned node, struct far_node_info *info);

    /* Optional. The node's address, as the URI has it. */
    const char *(*node_name)(const struct fab *fab, unsigned node);
};

struct fab {
    const struct fab_ops *ops;
    unsigned caps;
    unsigned order;
    unsigned nodes;
    bool fresh;
    uint64_t clients_wanted; /* from the URI, for a new pool; 0: the default */
    uint64_t lease_ms;       /* from the URI, for a new pool; 0: the default */
    uint64_t voters;         /* from the URI, for a new pool; 0: none        */
    uint64_t replicas;       /* from the URI: of each word; 1 or 2           */
    enum fab_wait wait;      /* from the URI                                 */
    uint64_t size[FAB_NODES_MAX];
    /* AWAY-1  A node that could not be reached when the pool was opened is a bit of `away`, and its
     * size[] is FAB_AWAY_BYTES: only its superblock can be read. Verbs to the rest of it fail with
     * FAR_UNREACHABLE and are not posted. When the superblock has been read and judged
     * (pool_meet()), the bit is cleared, and then the node gets the size that it says it has.
     * found[]: that size; 0: it has not been reached yet. Threads read all of these meanwhile. */
    uint64_t away, found[FAB_NODES_MAX];
    uint64_t witnesses; /* nodes without data, as bits: fence() does not need them */
    /* How many verbs under way the NIC bears before it gets slower, from all endpoints together,
     * and how many endpoints share it (by atomic accesses). 0: any number. */
    unsigned outstanding, sharers;
    /* How many processes its endpoints belong to; 0: one. Only a modelled network has several. */
    unsigned processes;
    uint64_t groups; /* from the URI: 0 if changes of a key do not wait for each other (groups.h) */
};

struct fab_ep {
    struct fab *fab;
    const struct fab_ops *ops; /* fab->ops, without a second load */
    /* SHARE-2  Requests that wait for others to complete take tickets, and are posted in that
     * order. Batches keep these. */
    unsigned under_way; /* verbs */
    unsigned ticket_next, ticket_served;
    unsigned process; /* that it belongs to, below fab_processes() */
    /* The view that batches name in their requests (0: none), and the newest one that a node named
     * when it refused a request (0: none has). By atomic accesses: other threads may look. */
    uint32_t view, view_refused;
};

static inline uint32_t fab_view(const struct fab_ep *ep)
{
    return __atomic_load_n(&ep->view, __ATOMIC_RELAXED);
}
/* For fabrics: is the request refused by a node that has this view? */
static inline bool fab_view_is_old(uint32_t view, uint32_t node_view)
{
    return view != 0 && view < node_view;
}
/* For fabrics: the node has refused a request of that endpoint. Notes the node's view, and sets the
 * detail. FAR_FENCED. */
int fab_view_refused(struct fab_ep *ep, unsigned node, uint32_t view, uint32_t node_view);

static inline unsigned fab_processes(const struct fab *fab)
{
    return fab->processes ? fab->processes : 1;
}

#define FAB_AWAY_BYTES 64u

/* The nodes that the pool was opened without, as bits. */
static inline uint64_t fab_away(const struct fab *fab)
{
    return __atomic_load_n(&fab->away, __ATOMIC_ACQUIRE);
}
/* Sets the detail to which of them it is: the first. FAR_UNREACHABLE. */
int fab_away_failed(const struct fab *fab, uint64_t away);
/* The node's address, or its number, in `text`. */
const char *fab_node_name(const struct fab *fab, unsigned node, char text[16]);

/* What a NIC bears: a ConnectX-6 has its best rate with about as many (docs/model.md). */
#define FAB_OUTSTANDING 768u

/* SHARE-1  The verbs that an endpoint should have under way at most: its share, but some in any
 * case. */
#define FAB_SHARE_LEAST 4u
static inline unsigned fab_share(const struct fab *fab)
{
    unsigned sharers = __atomic_load_n(&fab->sharers, __ATOMIC_RELAXED);
    if (fab->outstanding == 0 || sharers == 0)
        return UINT32_MAX;
    unsigned share = fab->outstanding / sharers;
    return share > FAB_SHARE_LEAST ? share : FAB_SHARE_LEAST;
}

/* Opens the fabric that the URI's scheme names. FAR_BAD_URI, FAR_NO_FABRIC, or the fabric's own. */
int fab_open(const char *uri, struct fab **fab);
void fab_close(struct fab *fab);

/* In a child of fork(): makes the child's copy of an endpoint harmless, so that its owner can be
 * freed as usual. If the fabric is not FAB_CAP_LOCAL, freeing its buffers and closing it then do
 * nothing, since connections and registered memory are shared with the parent. */
void fab_ep_free_in_child(struct fab_ep *ep);

/* The options that every fabric has for a new pool, 0 if they are not given. */
struct fab_options {
    uint64_t clients, lease_ms, voters, replicas;
};
/* FAR_BAD_URI. */
int fab_pool_options(struct uri *uri, struct fab_options *options);
/* What a new pool is made with. */
static inline void fab_set_options(struct fab *fab, const struct fab_options *options)
{
    fab->clients_wanted = options->clients;
    fab->lease_ms = options->lease_ms;
    fab->voters = options->voters;
    fab->replicas = options->replicas;
}

/* FAR_UNSUPPORTED if the fabric's pools do not outlive their users, or the fabric's own. */
int fab_remove(const char *uri);

/* Does the verb keep the rules (kind, node, alignment, lengths) and stay within its node? */
static inline bool fab_valid(const struct fab *fab, const struct fab_verb *v)
{
    uint64_t len_max = v->kind > FAB_WRITE ? 8 : UINT32_MAX;

    if (v->kind > FAB_FAA || v->node >= fab->nodes || !v->buf)
        return false;
    if (((v->off | v->len | (uintptr_t)v->buf) & 7) != 0 || v->len == 0 || v->len > len_max)
        return false;
    /* The subtraction cannot wrap: the length is compared first. */
    uint64_t size = __atomic_load_n(&fab->size[v->node], __ATOMIC_RELAXED); /* AWAY-1 */
    return v->len <= size && v->off <= size - v->len;
}

/* The same, with a detail that says what is wrong. FAR_BOUNDS, FAR_INVALID. */
int fab_check(const struct fab *fab, const struct fab_verb *verb);

static inline enum fab_class fab_class_of(uint8_t kind)
{
    return kind == FAB_READ ? FAB_R : kind == FAB_WRITE ? FAB_W : FAB_A;
}

#endif
