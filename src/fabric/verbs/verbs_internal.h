/*
 * The verbs fabric from the inside: verbs.c posts and polls, verbs_conn.c connects and talks to
 * memory nodes, verbs_buf.c has the memory that the device may touch.
 */
#ifndef VERBS_INTERNAL_H
#define VERBS_INTERNAL_H

#include "base/fiber.h"
#include "fabric/fabric.h"
#include "fabric/verbs/verbs_qp.h"
#include "fabric/wire.h"

#include <sys/socket.h>

struct verbs_ep;

/* ---- registered memory (verbs_buf.c) --------------------------------------------------------- */

/* Addresses are reserved once, and used in slabs: one registration each. What a buffer's key is
 * can be told from its address alone. */
#define ARENA_BYTES  (64ull << 30)
#define SLAB_SHIFT   21
#define ARENA_SLABS  (ARENA_BYTES >> SLAB_SHIFT)
#define BUF_MIN      64u
#define BUF_CLASSES  15 /* 64 bytes to 1 MiB */
#define BUF_SMALLEST 6  /* log2(BUF_MIN)     */

struct arena {
    struct ibv_pd *pd;
    char *base;
    uint32_t *key;               /* by slab                                                   */
    struct ibv_mr **mr;          /* by slab; of a buffer of several slabs only at the first   */
    bool *used;                  /* by slab                                                   */
    char *cut, *cut_end;         /* what is left of the slab that small buffers are cut from  */
    void *free_buf[BUF_CLASSES]; /* each begins with a pointer to the next                    */
};

int verbs_arena_open(struct arena *arena);
void verbs_arena_close(struct arena *arena);
void *verbs_arena_alloc(struct arena *arena, size_t bytes);
void verbs_arena_free(struct arena *arena, void *buf, size_t bytes);

static inline uint32_t arena_key(const struct arena *arena, const void *buf)
{
    size_t slab = (size_t)((const char *)buf - arena->base) >> SLAB_SHIFT;

    ASSERT(slab < ARENA_SLABS); /* else it is not from verbs_arena_alloc() */
    return arena->key[slab];
}

/* ---- connections (verbs_conn.c) -------------------------------------------------------------- */

struct verbs_fab {
    struct fab fab;
    struct wire_nodes wire;
    struct sockaddr_storage resolved[FAB_NODES_MAX];
    _Atomic bool away[FAB_NODES_MAX]; /* the last attempt to connect, of any endpoint, has failed */

    /* Of the one device that leads to all nodes; set by the first connection. */
    struct ibv_pd *pd;
    struct verbs_qp_limits limits;

    struct verbs_ep
        *opener; /* from open() to formatted(): the node knows by it who makes the pool */
};

/* Work requests whose last one is signalled. They complete in the order of their posting. */
struct run {
    struct fab_req *req; /* NULL: a message */
    unsigned wrs;
};

struct verbs_conn {
    struct verbs_ep *ep;
    unsigned node;
    bool up;
    struct verbs_qp qp;
    uint64_t base; /* the node's memory */
    uint32_t rkey;

    struct run *run; /* a ring */
    unsigned run_size, run_first, run_count, wrs_free;
    uint64_t progress_at; /* when something completed, or began after nothing was under way */
    bool was_up;
    uint64_t not_before; /* down: no new attempt until then, for this reason */
    int down_status;
    char down_why[160];

    /* The errand, see below. */
    struct fiber *errand;   /* NULL until it is first needed */
    bool out;               /* it is on its way              */
    uint64_t fenced;        /* the client that it has told the node to shut out */
    int fence_status;       /* and what the node has answered                   */
    struct rdma_cm_id *way; /* without a queue pair yet                                   */
    const struct rdma_cm_id *awaited; /* whose next event is kept for it                  */
    bool has_event;
    struct rdma_cm_event event;
    struct ibv_send_wr *list, *list_last; /* being built */
    unsigned list_wrs;

    /* Messages, one question at a time. */
    uint64_t link, token, seq;
    uint32_t slot;
    char *in, *said;
    uint32_t in_bytes; /* 0: nothing has come */
};

#define PASS_WRS 256u

struct verbs_ep {
    struct fab_ep ep;
    struct rdma_event_channel *cm;
    struct ibv_comp_channel *completions; /* made by the first connection */
    struct arena arena;
    uint64_t identity;
    uint64_t busy;   /* by node: has runs under way     */
    uint64_t asking; /* by node: waits for an answer    */
    unsigned idle_polls;
    uint64_t errands; /* by node: its errand is out */
    uint64_t fenced;  /* by node: has shut out that client */
    uint64_t fenced_client;

    /* Requests that are not posted whole, oldest first, and how far the first one is. */
    struct fab_req *first, *last;
    unsigned verb;
    uint32_t verb_bytes;

    struct ibv_send_wr wr[PASS_WRS];
    struct ibv_sge sge[PASS_WRS];
    struct verbs_conn conn[];
};

static inline struct verbs_fab *fab_of(const struct verbs_ep *e)
{
    return (struct verbs_fab *)e->ep.fab;
}

/* Makes sure that there is a connection. FAR_UNREACHABLE and whatever the node says, naming it. A
 * node that is known to be away is not waited for. */
int verbs_conn_need(struct verbs_conn *c);

/* Connects now: the body of an errand. */
int verbs_conn_connect(struct verbs_conn *c);

/* Ends the connection. What was under way ends with FAR_UNKNOWN. */
void verbs_conn_break(struct verbs_conn *c);

/* The same, with the reason as the error's detail. */
void verbs_conn_lose(struct verbs_conn *c, const char *why);

/* Puts a question that begins with its struct wire_head, whose fields are filled in here, and waits
 * for its answer: a message that passes wire_check(), or else the connection is ended. */
int verbs_conn_ask(struct verbs_conn *c, enum wire_type type, void *question, size_t bytes,
                   const struct wire_head **answer);

/* The same, for questions whose answer is a status. */
int verbs_conn_order(struct verbs_conn *c, enum wire_type type, void *question, size_t bytes,
                     uint32_t *value);

/* IDENTIFY or FENCE. */
int verbs_conn_client(struct verbs_conn *c, enum wire_type type, uint64_t identity);

/* ---- errands (verbs_errand.c) ---------------------------------------------------------------- */

/*
 * Connecting takes many round trips, and a node that is away answers none. So it is done by an
 * errand: a fiber of the connection that yields wherever it would wait, and is resumed when the
 * endpoint is polled or the connection is needed. So is telling a node to shut a client out.
 */

/* Starts to connect. */
void verbs_errand_connect(struct verbs_conn *c);
/* Starts to tell the node to shut a client out. The connection is up. */
void verbs_errand_fence(struct verbs_conn *c, uint64_t client);
/* Whether this code runs as the errand of the connection. */
bool verbs_errand_here(const struct verbs_conn *c);
/* Lets time pass until something may have come, or until then (clock_ns()): an errand yields, others
 * sleep. */
void verbs_errand_rest(struct verbs_conn *c, uint64_t until);
/* Resumes all errands that are out. */
void verbs_errands_resume(struct verbs_ep *e);
/* Resumes them until that of this connection is back, or until then (clock_ns()). */
void verbs_errand_await(struct verbs_conn *c, uint64_t until);
/* Ends the errand where it is. */
void verbs_errand_drop(struct verbs_conn *c);

/* Reads what the connection manager has to say about all connections, without waiting. */
void verbs_ep_events(struct verbs_ep *e);

/* ---- progress (verbs.c) ---------------------------------------------------------------------- */

/* Takes what has completed; true: there was something. */
bool verbs_ep_drain(struct verbs_ep *e);

/* Sleeps until something completes or until then (clock_coarse_ns()), and takes it. Connections
 * that have not moved for the time-out are ended, which counts as something. */
bool verbs_ep_sleep(struct verbs_ep *e, uint64_t until);

/* Notes that work requests were posted, the last of them signalled. */
void verbs_conn_push_run(struct verbs_conn *c, struct fab_req *req, unsigned wrs);

/* A part of the request is over. */
static inline void req_part_done(struct fab_req *req, int status)
{
    ASSERT(req->parts > 0 && !req->done);
    if (status != FAR_OK && req->status == FAR_OK)
        req->status = status;
    if (--req->parts == 0)
        req->done = true;
}

#endif
