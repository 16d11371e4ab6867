/*
 * The UCX fabric's inside: endpoints, their connections to the nodes, and what is under way on them.
 *
 *   struct ucx_ep     one thread's endpoint
 *   struct ucx_hub    a UCX worker and a connection to each node. Most endpoints have their own hub;
 *                     where there are many, some share one (ucx_hub.c)
 *   struct ucx_conn   the connection to one node: up, being made, or down. It has a queue of legs,
 *                     and a few messages that are under way
 *   struct flight     a request under way; one leg for each node that it has verbs on
 *   struct message    a BATCH: the parts of as many legs as there were when it was filled
 *
 * A leg whose verbs do not fit one message goes out in several, each after the reply to the one
 * before: UCX keeps no order between messages.
 */
#ifndef UCX_INTERNAL_H
#define UCX_INTERNAL_H

#include "fabric/ucx/ucx_common.h"

#include <pthread.h>

#define CONN_MESSAGES  4u /* under way on one connection; what is posted meanwhile shares the next */
#define MESSAGE_VERBS  4096u /* of one message           */
#define MESSAGE_PARTS  1024u
#define UCX_FENCES     4u
#define CONN_INDEX_MAX 256u /* a question's number has the node's in its low byte */

_Static_assert(CONN_MESSAGES <= WIRE_WINDOW, "a node allows that many");
_Static_assert(FAB_NODES_MAX <= CONN_INDEX_MAX, "a byte");

struct ucx_fab {
    struct fab fab;
    ucp_context_h context;
    struct wire_nodes wire;
    struct fab_ep *opener; /* until there is a pool: holds the right to make it */
    pthread_mutex_t lock;  /* for the next three, which change when endpoints open and close */
    unsigned private_hubs, shared_hubs;
    struct ucx_hub *shared; /* those that endpoints share */
    struct ucx_node {
        struct sockaddr_storage at; /* its address as numbers, asked for once */
        socklen_t at_bytes;
    } node[FAB_NODES_MAX];
};

struct flight {
    struct ucx_ep *ep;
    struct fab_req *req;
    unsigned legs; /* that are not done */
    bool touched;  /* some of it has been executed, or may have been */
    int status;
    struct flight *next;
};

struct leg {
    struct flight *flight;
    struct leg *next;
    uint64_t identity;
    unsigned verb; /* the next to go out     */
    uint32_t from; /* byte of it             */
};

struct message {
    uint64_t seq;
    uint64_t deadline;
    bool waiting; /* for the reply                  */
    bool sending; /* UCX still reads the buffer     */
    char *buf;
    size_t bytes, reply_bytes;
    uint64_t identity;
    unsigned parts, targets;
    struct part {
        struct leg *leg;
        unsigned targets;
        bool more; /* the leg is not at its end */
    } part[MESSAGE_PARTS];
    struct target { /* where results go, in the order of the reply */
        void *buf;
        uint32_t len;
    } target[MESSAGE_VERBS];
};

/* CONN_AGAIN: UCX lost the connection in the making, and it is made again after a moment. */
enum conn_state { CONN_DOWN, CONN_AGAIN, CONN_HELLO, CONN_PROOF, CONN_UP };

/* Something to ask a node beside batches, one at a time. */
struct question {
    enum { QUESTION_NONE, QUESTION_WAITING, QUESTION_SENT, QUESTION_DONE } state;
    bool awaited; /* by an endpoint; else another question may take its place */
    enum wire_type type;
    uint64_t identity;
    uint64_t seq, deadline;
    int status;
    uint32_t value;
    struct wire_counts counts;
};

struct ucx_conn {
    struct ucx_hub *hub;
    unsigned node;
    enum conn_state state;
    ucp_ep_h ucp;
    ucs_status_t broken; /* what UCX said of the connection */
    int refused;         /* or the node                     */
    int refused_last;    /* when it was last tried, or 0    */
    char why[WIRE_TEXT];
    uint64_t link; /* random, for as long as the hub lives (WIRE-W4) */
    uint64_t hello_seq, deadline;
    uint64_t again_at; /* CONN_AGAIN */
    uint64_t retry_at, backoff;
    unsigned tries; /* of connecting that UCX lost on the way */
    uint32_t slot;
    uint64_t token;
    uint64_t clock_ahead; /* of the node's clock before ours, modulo 2^64 */
    uint8_t nonce[WIRE_NONCE], expected[WIRE_PROOF];
    char out[WIRE_CONTROL_MAX]; /* what is being said in the hand-shake */
    struct leg *first, *last;   /* the queue                            */
    struct question question;
    char asked[WIRE_CONTROL_MAX];
    unsigned under_way;
    struct message *message[CONN_MESSAGES]; /* NULL until used */
};

struct ucx_hub {
    struct ucx_fab *fab;
    ucp_worker_h worker;
    int fd;
    uint64_t seq;    /* of the last question               */
    uint64_t looked; /* when it was last asked who is late */
    struct flight *free_flights;
    struct leg *free_legs;
    unsigned free_leg_count;
    struct block {
        struct block *next;
    } * blocks;

    bool shared;              /* the rest is for those that endpoints share */
    struct ucx_hub *next;     /* fab->shared; under fab->lock, as is users  */
    unsigned users;           /* endpoints                                  */
    pthread_mutex_t lock;     /* for all but these two, and what the endpoints have under way */
    struct ucx_ep *driver;    /* the endpoint whose thread makes progress for all that wait   */
    bool asleep;              /* ... and sleeps on fd                                         */
    struct ucx_ep *followers; /* whose threads wait for it                                 */
    struct ucx_ep *sleepers;  /* that wait by descriptors                                  */
    bool stirred;             /* progress was made since the worker was last armed         */
    struct ucx_conn conn[];
};

struct ucx_ep {
    struct fab_ep ep;
    struct ucx_hub *hub;
    uint64_t identity;
    uint64_t pending; /* requests under way   */
    uint64_t completed;
    struct { /* clients that are being shut out, and the nodes that have done so */
        uint64_t client, nodes;
    } fence[UCX_FENCES];
    unsigned fences; /* the newest of them */

    /* On a shared hub: */
    struct flight *landed; /* requests that are over, for its own thread to take */
    pthread_cond_t bell;
    bool following;
    struct ucx_ep *next, *prev; /* followers */
    bool sleeping;              /* waits by descriptors */
    bool rung;                  /* alarm is readable    */
    int alarm;                  /* an eventfd, if has_alarm */
    bool has_alarm;
    struct ucx_ep *next_sleeper;
    int failed; /* what a request ended with, and the detail: for its own thread */
    char why[256];
};

static inline struct ucx_hub *ucx_hub_of(const struct fab_ep *ep)
{
    return ((const struct ucx_ep *)ep)->hub;
}

static inline const char *conn_name(const struct ucx_conn *c)
{
    return c->hub->fab->wire.address[c->node].text;
}

static inline uint64_t ucx_timeout_ns(const struct ucx_fab *u)
{
    return u->wire.timeout_ms * 1000000;
}

static inline uint64_t next_seq(struct ucx_conn *c)
{
    return ++c->hub->seq << 8 | c->node;
}

/* ---- hubs (ucx_hub.c) ------------------------------------------------------------------------ */

/* Gives the endpoint a hub of its own, or a part of one. */
int ucx_hub_join(struct ucx_fab *u, struct ucx_ep *e);
/* The endpoint has nothing under way. */
void ucx_hub_leave(struct ucx_ep *e);

/* A thread is within a hub while it touches it or calls UCX for it. */
static inline void ucx_hub_enter(struct ucx_hub *h)
{
    if (h->shared)
        pthread_mutex_lock(&h->lock);
}

static inline void ucx_hub_exit(struct ucx_hub *h)
{
    if (h->shared)
        pthread_mutex_unlock(&h->lock);
}

/* Within the hub: sends what waits, connects where that is needed, and handles what has gone wrong.
 * With a time other than 0, looks for those that are late as well. */
void ucx_hub_tend(struct ucx_hub *h, uint64_t now);

/* Within the hub, which is left meanwhile: waits a little for something to happen. `idle` and
 * `since` are 0 at first, and the waiter's. */
struct ucx_spin {
    unsigned idle;
    uint64_t since;
};
void ucx_hub_wait(struct ucx_ep *e, struct ucx_spin *p);
/* Within the hub: this endpoint waits no more. */
void ucx_hub_waited(struct ucx_ep *e);

/* The endpoint's descriptors, as fab_ops has them. */
int ucx_hub_wait_fds(struct ucx_ep *e, int fds[FAB_WAIT_FDS], unsigned *count);
/* Within the hub: arms the descriptors, and sets when the hub has to be looked at. False: poll first. */
bool ucx_hub_arm(struct ucx_ep *e, uint64_t *until);
/* Within the hub: the endpoint is looked at, and does not wait by descriptors any more. */
void ucx_hub_rise(struct ucx_ep *e);
/* Within the hub, last of all: what those who wait by descriptors would have been woken by may have
 * been used up. */
void ucx_hub_settle(struct ucx_hub *h);

/* Something of this endpoint, or of any, is over. */
void ucx_hub_wake(struct ucx_ep *e);
void ucx_hub_wake_all(struct ucx_hub *h);

/* ---- connections (ucx_conn.c) ---------------------------------------------------------------- */

/* Begins to connect, if it is time to: else it fails all that waits for it. */
void ucx_conn_connect(struct ucx_conn *c);
/* Takes the connection down: all that is under way on it, and waits for it, ends with the status,
 * of which the detail has been set. */
void ucx_conn_break(struct ucx_conn *c, int status);
/* Sees whether the connection has been reported broken, or somebody has waited for too long. */
void ucx_conn_look(struct ucx_conn *c, uint64_t now);
/* A message of the hand-shake, or an answer to the question. */
void ucx_conn_heard(struct ucx_conn *c, const void *message, size_t bytes);
/* Sends the question that waits. */
void ucx_conn_ask(struct ucx_conn *c);
/* The last try to connect has failed, and it is not there again. */
bool ucx_conn_is_away(const struct ucx_conn *c);
/* When the connection has to be looked at, at the latest. */
uint64_t ucx_conn_deadline(const struct ucx_conn *c);

/* ---- requests (ucx_am.c) --------------------------------------------------------------------- */

int ucx_post(struct fab_ep *ep, struct fab_req *req);
/* Fills messages from the queue and sends them, as far as there are messages to fill. */
void ucx_conn_send(struct ucx_conn *c);
/* A REPLY, or an ANSWER instead of one. */
void ucx_conn_replied(struct ucx_conn *c, const void *message, size_t bytes);
/* All that is under way on the connection and in its queue is over. */
void ucx_conn_fail_all(struct ucx_conn *c, int status);
/* Within the hub, by the endpoint's own thread: completes the requests that are over. The poster
 * looks at them without the hub's lock. */
void ucx_take_landed(struct ucx_ep *e);
void ucx_free_flights(struct ucx_hub *h);

#endif
