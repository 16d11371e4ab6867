/*
 * The verbs fabric's inside. Each file calls only files after it:
 *
 *   verbs.c           the fabric and its endpoints
 *   verbs_conn.c      connects and talks to memory nodes
 *   verbs_job.c       runs tasks of a connection beside other work
 *   verbs_progress.c  posts, takes completions, and ends connections
 *   verbs_qp.c        queue pairs
 *   verbs_buf.c       the memory that the device may touch
 */
#ifndef VERBS_INTERNAL_H
#define VERBS_INTERNAL_H

#include "base/fiber.h"
#include "fabric/fabric.h"
#include "fabric/verbs/verbs_qp.h"
#include "fabric/wire.h"

#include <stdio.h>
#include <sys/socket.h>

struct verbs_ep;

/* ---- registered memory (verbs_buf.c) --------------------------------------------------------- */

/* Addresses are reserved once and used in slabs, each with one registration. So the key of a buffer
 * follows from its address. */
#define ARENA_BYTES  (64ull << 30)
#define SLAB_SHIFT   21
#define ARENA_SLABS  (ARENA_BYTES >> SLAB_SHIFT)
#define BUF_MIN      64u
#define BUF_CLASSES  15 /* 64 bytes to 1 MiB */
#define BUF_SMALLEST 6  /* log2(BUF_MIN)     */

struct arena {
    struct ibv_pd *pd;
    char *base;
    uint32_t *key;               /* by slab                                                */
    struct ibv_mr **mr;          /* by slab; a buffer of several slabs has it at the first */
    bool *used;                  /* by slab                                                */
    char *cut, *cut_end;         /* the rest of the slab that small buffers are cut from   */
    void *free_buf[BUF_CLASSES]; /* each begins with a pointer to the next                 */
};

int verbs_arena_open(struct arena *arena);
void verbs_arena_close(struct arena *arena);
void *verbs_arena_alloc(struct arena *arena, size_t bytes);
void verbs_arena_free(struct arena *arena, void *buf, size_t bytes);

static inline uint32_t arena_key(const struct arena *arena, const void *buf)
{
    size_t slab = (size_t)((const char *)buf - arena->base) >> SLAB_SHIFT;

    ASSERT(slab < ARENA_SLABS); /* the buffer is from verbs_arena_alloc() */
    return arena->key[slab];
}

/* ---- connections (verbs_conn.c) -------------------------------------------------------------- */

struct verbs_fab {
    struct fab fab;
    struct wire_nodes wire;
    struct sockaddr_storage resolved[FAB_NODES_MAX];
    _Atomic bool away[FAB_NODES_MAX]; /* the last attempt of any endpoint to connect has failed */

    /* The one device that leads to all nodes; set by the first connection. */
    struct ibv_pd *pd;
    struct verbs_qp_limits limits;

    struct verbs_ep *opener; /* from open() to formatted(): has the right to make the pool */
};

/* A run of work requests; the last one is signalled. Runs complete in posting order. */
struct run {
    struct fab_req *req; /* NULL: a message */
    unsigned wrs;
};

/* FENCE of a client or FENCE_VIEW: what is shut out. */
struct verbs_fence {
    enum wire_type type;
    uint64_t what;
};

struct verbs_conn;
typedef void verbs_job_task(struct verbs_conn *c);

struct verbs_conn {
    struct verbs_ep *ep;
    unsigned node;
    bool up;
    struct verbs_qp qp;
    uint64_t base; /* where the node's memory is */
    uint32_t rkey;
    uint32_t view; /* that the node was told; 0: none (VERBS-V3) */

    struct run *run; /* a ring */
    unsigned run_size, run_first, run_count, wrs_free;
    uint64_t progress_at; /* when something last completed, or the first run began */
    bool was_up;
    uint64_t not_before; /* down: no new attempt before that, for this reason */
    int down_status;
    char down_why[160];

    /* The job, see below. */
    struct fiber *job;                /* NULL until it is first needed */
    verbs_job_task *task;             /* what it does                  */
    bool out;                         /* it is under way               */
    struct verbs_fence fence;         /* that the node is asked, or has answered           */
    bool fenced;                      /* it has answered                                   */
    int fence_status;                 /* and how                                           */
    struct rdma_cm_id *way;           /* being resolved: has no queue pair yet          */
    const struct rdma_cm_id *awaited; /* the next event of this id is kept for the job */
    bool has_event;
    struct rdma_cm_event event;
    struct ibv_send_wr *list, *list_last; /* being built */
    unsigned list_wrs;

    /* Messages: one question at a time. */
    uint64_t link, token, seq;
    uint32_t slot;
    char *in, *said;
    uint32_t in_bytes; /* 0: nothing has arrived */
};

#define PASS_WRS 256u

struct verbs_ep {
    struct fab_ep ep;
    struct rdma_event_channel *cm;
    struct ibv_comp_channel *completions; /* made by the first connection */
    struct arena arena;
    uint64_t identity;
    uint64_t busy;   /* by node: has runs under way  */
    uint64_t asking; /* by node: waits for an answer */
    unsigned idle_polls;
    uint64_t jobs;   /* by node: has a job under way */
    uint64_t fenced; /* by node: has shut out fenced_client */
    uint64_t fenced_client;

    /* Requests that are not posted completely, oldest first, and how far the first one is. */
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

/* Fails with a detail that names this node. */
static inline int node_fail(const struct verbs_conn *c, int status, const char *what)
{
    char text[160]; /* `what` may be the current detail, which err_fail() overwrites */

    snprintf(text, sizeof text, "%s", what);
    return err_fail(status, "node %u (%s): %s", c->node, fab_of(c->ep)->wire.address[c->node].text,
                    text);
}

/* Makes sure that there is a connection. Does not wait for a node that is known to be away.
 * FAR_UNREACHABLE, or the node's own status, with a detail that names the node. */
int verbs_conn_need(struct verbs_conn *c);

/* Connects; the result is in the connection. This is a job. */
void verbs_conn_connect(struct verbs_conn *c);

/* Sends a question and waits for its answer. The question begins with a struct wire_head, which is
 * filled in here. The answer passes wire_check(); if it does not, the connection is ended. */
int verbs_conn_ask(struct verbs_conn *c, enum wire_type type, void *question, size_t bytes,
                   const struct wire_head **answer);

/* The same, for questions that are answered by a status. */
int verbs_conn_order(struct verbs_conn *c, enum wire_type type, void *question, size_t bytes,
                     uint32_t *value);

/* IDENTIFY, with the endpoint's identity: the connection's verbs are of this view from here on. If
 * that is too old for the node, sets *node_view. FAR_FENCED. */
int verbs_conn_identify(struct verbs_conn *c, uint32_t view, uint32_t *node_view);
/* FENCE or FENCE_VIEW. */
int verbs_conn_fence(struct verbs_conn *c, struct verbs_fence fence);
/* May verbs of the request go out on the connection (VERBS-V3)? */
static inline bool verbs_conn_fits(const struct verbs_conn *c, const struct fab_req *req)
{
    return c->up && (req->view == 0 || req->view == c->view);
}
/* Makes sure of it, too: the node is told another view when all earlier requests have ended.
 * FAR_FENCED: the node refuses the view. Else as verbs_conn_need(). */
int verbs_conn_need_view(struct verbs_conn *c, uint32_t view);

/* ---- jobs (verbs_job.c) ---------------------------------------------------------------- */

/*
 * A job is a task of a connection that runs beside other work: on a fiber that yields wherever
 * it would wait, and is resumed when the endpoint is polled or the connection is needed. Connecting
 * is one, since it takes many round trips and a node that is away answers none; asking a node to
 * shut a client out is another. A connection has one job at a time.
 */

/* Starts a job. */
void verbs_job_start(struct verbs_conn *c, verbs_job_task *task);
/* Does the caller run on the connection's job? */
bool verbs_job_here(const struct verbs_conn *c);
/* Waits until something may have arrived, or until the given time (clock_ns()). A job yields,
 * other callers sleep. */
void verbs_job_rest(struct verbs_conn *c, uint64_t until);
/* Resumes all jobs under way. */
void verbs_jobs_resume(struct verbs_ep *e);
/* Resumes them until that of this connection has ended, or until the given time (clock_ns()). */
void verbs_job_await(struct verbs_conn *c, uint64_t until);
/* Abandons the job. */
void verbs_job_drop(struct verbs_conn *c);

/* ---- progress (verbs_progress.c) ------------------------------------------------------------- */

/* Posts waiting requests, as far as there is room. */
void verbs_ep_advance(struct verbs_ep *e);

/* Takes completions. True: there were some. */
bool verbs_ep_drain(struct verbs_ep *e);

/* Sleeps until something completes, or until the given time (clock_ns()), and takes completions.
 * Ends connections without progress for the time-out. True: something completed or was ended. */
bool verbs_ep_sleep(struct verbs_ep *e, uint64_t until);

/* Takes the connection manager's events for all connections, without waiting. */
void verbs_ep_events(struct verbs_ep *e);

/* Finds lost connections, which polling for completions does not. True: there was one. */
bool verbs_ep_look_around(struct verbs_ep *e);

/* As in fab_ops. */
bool verbs_arm(struct fab_ep *ep, uint64_t *until);

/* Records that a run of work requests is posted. */
void verbs_conn_push_run(struct verbs_conn *c, struct fab_req *req, unsigned wrs);

/* Ends the connection. Everything under way on it ends with FAR_UNKNOWN. */
void verbs_conn_break(struct verbs_conn *c);

#endif
