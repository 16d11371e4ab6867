/*
 * A session's standing in the pool. Its fields belong to the pool's own files. The store has one in
 * each session, and sets only the hooks at the end.
 *
 * Each state is written by the file that it is named after; the others read it, or call that file.
 */
#ifndef POOL_CLIENT_H
#define POOL_CLIENT_H

#include "pool/op.h"

#include <stdatomic.h>

/*
 * What has to be done before the client's next operation begins. op_begin() asks for `any` and the
 * time; everything else is behind one call (attend.c).
 */
union client_attention {
    struct {
        bool lease_lost;  /* the client has to register again                     */
        bool parked;      /* the certificate says NO_EPOCH                        */
        bool joining;     /* an operation of the ring registers or announces it   */
        bool sweep_unmet; /* a sweep was announced, and is not prepared for yet   */
        bool inherited;   /* the slot was taken with its last owner's work undone */
        uint16_t undone;  /* journal lines that were left and say something       */
    };
    uint64_t any;
};

/* epoch.c: what this client knows of the epoch, and has announced. */
struct client_epoch {
    struct batch_piggyback announcement;
    uint64_t *words;       /* registered: what an announcement writes and reads                */
    uint64_t seen;         /* the newest global epoch read                                     */
    uint64_t validated;    /* caches were found valid after this epoch was read                */
    uint64_t certified;    /* what the last announcement said                                  */
    uint64_t high;         /* client slots to look at                                          */
    uint64_t advance_from; /* all clients have certified this epoch: it may go on; or NO_EPOCH */
    uint64_t heartbeat;
    unsigned ops_since;       /* operations since the last announcement                       */
    uint64_t retired_at;      /* stock.retired_ever at that time                              */
    uint64_t announced;       /* announcements that have landed; who fills a cache compares   */
    bool reads_registry;      /* the announcement under way does                              */
    bool hurried;             /* the epoch should go on, though nothing of ours waits for it  */
    uint64_t posted_as;       /* the incarnation that posted it, which may have changed since */
    uint64_t posted_at;       /* when                                                         */
    struct cached *validates; /* the cache whose version it reads                         */
    struct cached *caches;
    struct op *oldest, *newest; /* operations in flight, by age */
};

/* stock.c: memory that the client holds. */
struct client_stock {
    /* Free objects, by node and class. */
    struct stock {
        gaddr next; /* the next never-used object of the current chunk */
        uint32_t left;
        unsigned kept, room; /* reusable ones */
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
    uint64_t lost_bytes;               /* not 0: there is something for a sweep to find  */
    bool loss_reported;                /* more was lost, and is counted with the deaths  */
    int overfull_node, overfull_class; /* a stock past its limit; class -1: none         */
    bool giving;                       /* an operation passes some of it on              */
    unsigned wanted;                   /* the class that there was no memory for         */
    uint64_t recut_after;              /* not before: memory is cut for other sizes      */
    uint64_t recut_at;                 /* retired_ever when it last was                  */
};

/* sweep_part.c: the sweep that goes on. Chunks below old_chunks[node] are not allocated from, and
 * what is freed in them is left to the sweep. */
struct client_sweep {
    uint64_t met;     /* its word; 0: none          */
    uint64_t mine;    /* the one that this client makes, once it collects: it has met that */
    uint64_t count;   /* of the next one that this client makes */
    uint64_t counted; /* the pool's count when this client last had nothing to fear from a sweep */
    uint64_t *old_chunks;
};

/* watch.c: what the client knows of others whose silence is in its way. */
struct client_watch {
    struct watch {
        uint64_t incarnation, heartbeat, since;
        bool repairing;     /* an operation of this client recovers it */
    } * of;                 /* by slot */
    int suspect;            /* a slot whose lease has lapsed, as watched; -1: none known          */
    uint64_t recover_after; /* time for another attempt at a fenced one, if the last has failed   */
    unsigned recoveries;    /* operations that are recovering something                           */
    unsigned reaped;        /* clients recovered so far                                           */
    uint64_t reap_after;    /* time for another search for dead clients, if memory is short       */
};

/* journal.c: the lines of the client's slot. */
struct lines {
    struct line {
        gaddr at;
        uint32_t next; /* free: the next free line on its node; a place is an index and one more */
        uint32_t walk; /* that came by last */
        uint8_t state;
    } * line;
    unsigned count, room;
    unsigned registration; /* how often the client has taken a slot */
    uint64_t stamps;       /* given so far */
    uint64_t nodes;        /* what the slot says of them: a bit per node, as is: */
    uint64_t loaded, cut;  /* the chain was read; it is damaged, and is to be cut */
    unsigned walks;        /* of chains, so far */
    uint32_t free[FAB_NODES_MAX];
    gaddr next[FAB_NODES_MAX];        /* of the first line, when it was last looked at */
    gaddr broken[FAB_NODES_MAX];      /* the line at which it is to be cut, */
    uint64_t bad_next[FAB_NODES_MAX]; /* and what that says of the next one */
};

/* Rules for the posts of an operation, by what it does. */
enum client_policy {
    POLICY_ANNOUNCING, /* carries announcements, and writes only within the lease  */
    POLICY_SILENT,     /* carries none                                             */
    POLICY_JOINING,    /* registers the client, so it needs no lease to write      */
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
    struct rng rng;
    uint8_t generation; /* of the next block written */

    /* The registration (registry.c). */
    uint64_t lease_deadline; /* by the coarse clock: no writes after that */
    uint64_t lease_ns;
    uint64_t broke_at;       /* a batch that writes failed then; 0: none ever did */
    bool must_leave_slot;    /* a late WRITE may set the certificate to NO_EPOCH: leave the slot */
    bool unannounced;        /* the slot is taken, but its certificate is its last owner's */
    uint64_t taken_at;       /* the slot was not taken earlier than that */
    uint64_t complete_after; /* time for another attempt at work left undone */
    struct client_posts {
        struct batch_policy policy;
        struct client *client;
    } posts[POLICY_COUNT];

    unsigned inside;       /* calls of its session that are under way */
    _Atomic uint64_t turn; /* who may use this: see client_enter() */

    /* Does what `attention` says. Set when the client is opened: the one call upward. */
    int (*attend)(struct op *op);

    /* Hooks of the store. */

    /* Progress callback for long calls; returning false cancels. NULL except during such a call. */
    bool (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *progress_arg;
    /* Lets the session's ring go on while a synchronous call waits for epochs: operations in flight
     * there hold them back. NULL: there is no ring. */
    void (*drive_ring)(struct client *client);
    /* NULL, or called when a call has ended while others, of the ring, are under way. */
    void (*endpoint_used)(struct client *client);
};

#endif
