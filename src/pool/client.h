/*
 * A client: a session as the pool knows it. The store has one in each session, and sets only the
 * hooks at the end. All other fields belong to the pool's own files.
 *
 * Each state below belongs to the file that its comment names. Other files read it, or call that
 * file; client.c sets it up. A few fields are written by a file above it: epoch.high by registry.c,
 * stock.wanted by alloc.c, sweep.met by epoch.c and sweep.c, watch by lease.c (tests/e2e/rooms.sh).
 */
#ifndef POOL_CLIENT_H
#define POOL_CLIENT_H

#include "members/members.h"
#include "pool/op.h"

#include <stdatomic.h>

/*
 * What has to be done before the client's next operation begins. op_begin() checks `any` and the
 * time; everything else is behind one call (attend.c).
 */
union client_attention {
    struct {
        bool lease_lost : 1;  /* the client has to register again                     */
        bool parked : 1;      /* the certificate says NO_EPOCH                        */
        bool joining : 1;     /* an operation of the ring registers or announces it   */
        bool sweep_unmet : 1; /* a sweep was announced that the client has not met    */
        bool inherited : 1;   /* the slot was taken with its last owner's work undone */
        uint32_t undone;      /* journal lines that were left, to be recovered        */
    };
    uint64_t any;
};
_Static_assert(sizeof(union client_attention) == 8, "`any` sees all of it");

/* epoch.c: what this client knows of the epoch, and has announced. */
struct client_epoch {
    struct batch_piggyback announcement;
    uint64_t *words;       /* registered: what an announcement writes and reads                */
    uint64_t seen;         /* the newest global epoch read                                     */
    uint64_t validated;    /* caches were found valid after this epoch was read                */
    uint64_t certified;    /* what the last announcement said                                  */
    uint64_t high;         /* client slots to read                                             */
    uint64_t advance_from; /* all clients have certified this epoch: it may go on. Or NO_EPOCH */
    uint64_t heartbeat;
    unsigned ops_since;       /* operations since the last announcement, or batches of long ones */
    uint64_t retired_at;      /* stock.retired_ever at that time                              */
    uint64_t announced;       /* announcements that have completed                               */
    bool reads_registry;      /* the announcement under way reads the registry                */
    bool hurried;             /* the next one drives the epoch, though nothing of ours waits  */
    uint64_t posted_as;       /* the incarnation that posted it, which may have changed since */
    uint64_t posted_at;       /* when it was posted                                           */
    struct cached *validates; /* the cache whose version it reads                             */
    struct cached *used;      /* the cache of the operation that began last; NULL: none       */
    struct cached *caches;
    unsigned unmet; /* operations in flight that began before the client had met a sweep */
    struct op *oldest, *newest; /* operations in flight, by age */
};

/* stock.c: memory that the client holds. */
struct client_stock {
    /* Free objects, by node and class. */
    struct stock {
        gaddr next; /* the next never-used object of the current chunk */
        uint32_t left;
        unsigned kept, room;      /* reusable ones */
        unsigned fetching;        /* operations that fetch more; others on the ring wait for one */
        unsigned fetched;         /* fetches that have ended */
        struct fab_queue waiting; /* those that the end of a fetch wakes */
        gaddr *keep;
    } (*of)[CLASS_COUNT];
    /* Retired objects, oldest first, each with the epoch at which it may be reused. */
    struct limbo {
        struct limbo_entry {
            uint64_t object; /* gaddr, size class above it */
            uint64_t reuse_at;
        } * ring;
        size_t head, count, room; /* room is a power of two */
    } limbo;
    uint64_t retired_bytes, held_bytes;
    uint64_t retired_ever, taken_ever;
    uint64_t lost_bytes;              /* not 0: there is something for a sweep to find  */
    bool loss_reported;               /* more was lost, and is in the count of deaths   */
    uint64_t overfull[FAB_NODES_MAX]; /* of each node, the classes past their limit     */
    uint64_t overfull_nodes;          /* the nodes that have any                        */
    unsigned gives_node, gives_class; /* what the last operation that gave passed on    */
    bool giving;                      /* an operation passes some of it on              */
    uint64_t spares;                  /* classes whose last object is a spare (ALLOC-A7) */
    unsigned wanted;                  /* the class that alloc.c had no memory for       */
    uint64_t recut_at;                /* retired_ever at the last sweep for recutting   */
    unsigned scattered;               /* objects dealt to nodes in turn: a knob         */
};

/* sweep_part.c, sweep.c: the sweep under way. The client does not allocate from chunks below
 * old_chunks[node], and leaves what is freed in them to the sweep. */
struct client_sweep {
    uint64_t met;     /* the word of the sweep that the client has met; 0: none */
    uint64_t mine;    /* the word of its own sweep, once that collects: it need not meet it */
    uint64_t count;   /* of its own sweeps: the next one's number */
    uint64_t counted; /* the pool's count of sweeps when it last met one, or was announced */
    uint64_t *old_chunks;
};

/* watch.c, lease.c: what the client knows of others whose silence holds it up. */
struct client_watch {
    struct watch {
        uint64_t incarnation, heartbeat, since;
        uint64_t ask_after;     /* time to ask the fabric again whether its process lives */
        enum fab_life life;     /* what it said */
        bool repairing;         /* an operation of this client recovers it */
        uint64_t recover_after; /* time for the next attempt, if its recovery has failed, */
        uint64_t recover_pause; /* and how long that is after it */
    } * of;                     /* by slot */
    int suspect;         /* the slot of a client that was silent for too long; -1: none      */
    int still;           /* the slot of one that lives, but is silent and holds us up; -1: none */
    uint64_t still_pid;  /* its process                                                      */
    bool still_lives;    /* that is known, else it is only not known to be dead              */
    unsigned next;       /* the slot to begin with: the recovery of one may wait for another */
    unsigned recoveries; /* operations that are recovering something                         */
    unsigned reaped;     /* clients recovered so far                                         */
};

/* journal.c, journal_recover.c: the lines of the client's slot. */
struct lines {
    struct line {
        gaddr at;
        uint32_t next; /* the next free line on its node: its index plus one; 0: none */
        uint32_t walk; /* the last walk that visited it */
        uint8_t state;
        bool spent;     /* it may say something, though no operation needs that any more */
        uint64_t posts; /* spent: but others may, until these have ended (fab_chain_ops.ended) */
    } * line;
    unsigned count, room;
    unsigned registration; /* how often the client has taken a slot */
    uint64_t stamps;       /* stamps given so far */
    uint64_t nodes;        /* a bit per node: the slot says that its lines there may be used */
    uint64_t loaded, cut;  /* a bit per node: the chain was read; it is damaged and must be cut */
    unsigned walks;        /* walks of chains so far */
    uint32_t free[FAB_NODES_MAX];
    gaddr next[FAB_NODES_MAX];        /* `next` of the first line, as last read */
    gaddr broken[FAB_NODES_MAX];      /* the line behind which the chain must be cut, */
    uint64_t bad_next[FAB_NODES_MAX]; /* and its `next` */
};

/* Rules for the posts of an operation, by what it does. */
enum client_policy {
    POLICY_ANNOUNCING, /* carries announcements, and writes only within the lease  */
    POLICY_SILENT,     /* carries no announcements                                 */
    POLICY_JOINING,    /* registers the client: carries none, needs no lease       */
    POLICY_COUNT
};

#define NO_SLOT UINT32_MAX /* a client that is not registered yet */
struct client {
    struct pool *pool;
    struct fab_ep *ep;
    unsigned slot;
    uint64_t incarnation;
    union client_attention attention;
    struct client_epoch epoch;
    struct client_stock stock;
    struct client_sweep sweep;
    struct client_watch watch;
    struct lines lines;
    struct members members;  /* if the pool has voters: what is known of them, */
    struct batch *to_voters; /* and the batch by which they are asked. It does not yield to the
                                ring: so operations of the client ask one after the other */
    struct cost voters_cost;
    struct rescue *rescue; /* rescue.c; NULL: words are not kept twice */
    struct rng rng;
    uint64_t nonce;  /* for client_unique() */
    uint64_t stamps; /* given so far */

    /* The registration: registry.c, and those that give it up (epoch.c, lease.c, attend.c). */
    uint64_t lease_deadline; /* by the coarse clock: no writes after this */
    uint64_t lease_ns;
    uint64_t broke_at;       /* when a batch that writes last failed; 0: never */
    bool must_leave_slot;    /* a late WRITE may set the certificate to NO_EPOCH: leave the slot */
    bool unannounced;        /* the slot is taken, but still has its last owner's certificate */
    uint64_t taken_at;       /* the slot was not taken before this */
    uint64_t complete_after; /* time for the next attempt at work left undone, */
    uint64_t complete_pause; /* and how long that is after the last one, if it waits for others */
    struct client_posts {
        struct batch_policy policy;
        struct client *client;
    } posts[POLICY_COUNT];

    unsigned inside;       /* calls of its session that are under way */
    _Atomic uint64_t turn; /* which thread may use the client: see client_enter() */

    /* Does what `attention` says. Set when the client is opened: the pool's only call from a
     * lower file to a higher one. */
    int (*attend)(struct op *op);

    /* Hooks of the store. */

    /* Progress callback for long calls; returning false cancels. NULL except during such a call. */
    bool (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;
    /* RING-1: drives the session's ring while a synchronous call waits. Operations in flight there
     * hold back epochs, and may hold what the call waits for. NULL: there is no ring. */
    void (*drive_ring)(struct client *client);
    /* NULL, or called when a call has ended while others, of the ring, are under way. */
    void (*endpoint_used)(struct client *client);
};

/* A number that no other client draws, even one of the same seed: clients and tables are told apart
 * by such numbers. In the simulator, where the seeds differ, it depends on the seed alone. */
static inline uint64_t client_unique(struct client *c)
{
    return rng_next(&c->rng) ^ c->nonce;
}

#endif
