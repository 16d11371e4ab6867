/*
 * The UCX fabric's inside: endpoints, their connections to the nodes, and what is under way on
 * them.
 *
 *   struct ucx_ep     an endpoint, used by one thread
 *   struct ucx_hub    a UCX worker and a connection to each node. Most endpoints have their own
 *                     hub; if there are many endpoints, some share a hub (ucx_hub.c)
 *   struct ucx_conn   the connection to one node: up, being made, or down. It has a queue of legs,
 *                     and a few messages that are under way
 *   struct flight     a request under way; one leg for each node that it has verbs on
 *   struct message    a BATCH, with parts of all legs that were queued when it was filled
 *
 * A leg whose verbs do not fit one message goes out in several. Each waits for the reply to the one
 * before, since UCX keeps no order between messages.
 *
 * Each file calls only files after it: ucx.c, ucx_hub.c, ucx_conn.c, ucx_am.c, ucx_wake.c,
 * ucx_common.c.
 */
#ifndef UCX_INTERNAL_H
#define UCX_INTERNAL_H

#include "base/crowd.h"
#include "fabric/ucx/ucx_common.h"

#include <pthread.h>

#define CONN_MESSAGES  4u    /* under way on one connection; later requests share the next one */
#define SENT_AT_ONCE   64u   /* post() sends this many queued requests itself */
#define MESSAGE_VERBS  4096u /* in one message */
#define MESSAGE_PARTS  1024u
#define UCX_FENCES     4u
#define CONN_INDEX_MAX 256u /* a question's number has the node's in its low byte */

_Static_assert(CONN_MESSAGES <= WIRE_WINDOW, "a node allows WIRE_WINDOW batches under way");
_Static_assert(FAB_NODES_MAX <= CONN_INDEX_MAX, "a node number fits the low byte");

struct ucx_fab {
    struct fab fab;
    ucp_context_h context;
    struct wire_nodes wire;
    struct fab_ep *opener; /* from open() to formatted(): has the right to make the pool */
    pthread_mutex_t lock;  /* for the next three, which change when endpoints open and close */
    unsigned private_hubs, shared_hubs;
    struct ucx_hub *shared; /* a list of the shared hubs */
    struct ucx_node {
        struct sockaddr_storage at; /* the resolved address; names are looked up once */
        socklen_t at_bytes;
    } node[FAB_NODES_MAX];
};

struct flight {
    struct ucx_ep *ep;
    struct fab_req *req;
    unsigned legs; /* not done yet */
    bool touched;  /* one of its legs is */
    bool failed;   /* one of its legs has, other than for its view */
    int status;
    struct flight *next;
};

struct leg {
    struct flight *flight;
    struct leg *next;
    uint64_t identity;
    uint32_t view;
    uint8_t node;
    bool touched;  /* some of it has been executed, or may have been */
    unsigned verb; /* the next to send           */
    uint32_t from; /* the next byte of that verb */
};

struct message {
    uint64_t seq;
    uint64_t deadline;
    bool waiting; /* for the reply              */
    bool sending; /* UCX still reads the buffer */
    bool late;    /* to be sent again: the node found that it was not valid any more, or not yet */
    char *buf;
    size_t bytes, reply_bytes;
    uint64_t identity;
    uint32_t view;
    unsigned parts, targets;
    struct part {
        struct leg *leg;
        unsigned targets;
        bool more; /* the leg has more to send */
    } part[MESSAGE_PARTS];
    struct target { /* where results go, in the order of the reply */
        void *buf;
        uint32_t len;
    } target[MESSAGE_VERBS];
};

/* CONN_AGAIN: UCX lost the connection while it was being made; another try follows in a moment. */
enum conn_state { CONN_DOWN, CONN_AGAIN, CONN_HELLO, CONN_PROOF, CONN_UP };

/* A question to a node other than a batch. A connection has one at a time. */
struct question {
    enum { QUESTION_NONE, QUESTION_WAITING, QUESTION_SENT, QUESTION_DONE } state;
    bool awaited; /* an endpoint waits for it; otherwise another question may replace it */
    enum wire_type type;
    uint64_t identity; /* FENCE_VIEW: the view */
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
    ucs_status_t broken; /* the error that UCX reported for the connection */
    int refused;         /* the status with which the node refused it      */
    int refused_last;    /* the same, of the last attempt; or 0            */
    char why[WIRE_TEXT];
    uint64_t link; /* random, the same for the hub's lifetime (WIRE-W4) */
    uint64_t hello_seq, deadline;
    uint64_t again_at; /* CONN_AGAIN */
    uint64_t retry_at, backoff;
    unsigned tries; /* attempts to connect that UCX lost */
    uint32_t slot;
    uint64_t token;
    struct wire_clock clock; /* the node's, as its last answer said it */
    uint8_t nonce[WIRE_NONCE], expected[WIRE_PROOF];
    char out[WIRE_CONTROL_MAX]; /* the message of the hand-shake that is being sent */
    struct leg *first, *last;   /* the queue of legs */
    unsigned posted;            /* legs that were queued since the last attempt to send them */
    struct question question;
    char asked[WIRE_CONTROL_MAX];
    unsigned under_way, late;               /* messages; late ones are under way, too */
    struct message *message[CONN_MESSAGES]; /* NULL until used */
};

struct ucx_hub {
    struct ucx_fab *fab;
    ucp_worker_h worker;
    int fd;
    uint64_t seq;    /* of the last question or batch    */
    uint64_t looked; /* when deadlines were last checked */
    struct crowd crowd;
    struct flight *free_flights;
    struct leg *free_legs;
    unsigned free_leg_count;
    struct block {
        struct block *next;
    } * blocks;

    bool shared;              /* the rest is for shared hubs                            */
    struct ucx_hub *next;     /* in fab->shared; under fab->lock, as is users           */
    unsigned users;           /* the number of endpoints                                */
    pthread_mutex_t lock;     /* for all but next and users, and for requests under way */
    struct ucx_ep *driver;    /* its thread makes progress for all waiting endpoints    */
    bool asleep;              /* the driver sleeps on fd                                */
    struct ucx_ep *followers; /* endpoints whose threads wait for the driver            */
    struct ucx_ep *sleepers;  /* endpoints that wait by descriptors                     */
    bool stirred;             /* progress was made since the worker was last armed      */
    struct ucx_conn conn[];
};

struct ucx_ep {
    struct fab_ep ep;
    struct ucx_hub *hub;
    uint64_t identity;
    uint64_t pending; /* requests under way */
    uint64_t completed;
    struct { /* clients that are being shut out, and which nodes have confirmed it */
        uint64_t client, nodes;
    } fence[UCX_FENCES];
    unsigned fences; /* the newest of them */

    /* On a shared hub: */
    struct flight *answered; /* completed requests, for the endpoint's own thread to take */
    pthread_cond_t wakeup;
    bool following;
    struct ucx_ep *next, *prev; /* followers                       */
    bool sleeping;              /* waits by descriptors            */
    bool rung;                  /* alarm is readable               */
    int alarm;                  /* an eventfd, if has_alarm is set */
    bool has_alarm;
    struct ucx_ep *next_sleeper;
    int failed; /* a request's error and its detail, for the endpoint's own thread */
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

/* Gives the endpoint a hub, private or shared. */
int ucx_hub_join(struct ucx_fab *u, struct ucx_ep *e);
/* The endpoint must have nothing under way. */
void ucx_hub_leave(struct ucx_ep *e);

/* A thread must be within the hub while it uses it or calls UCX for it. */
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

/* Within the hub: sends what waits, connects if need be, and handles errors. If `now` is not 0, it
 * checks deadlines as well. */
void ucx_hub_tend(struct ucx_hub *h, uint64_t now);

/* Within the hub, which it leaves while it sleeps: waits a little for something to happen. The
 * caller keeps the ucx_spin, zeroed at first, until its wait is over. */
struct ucx_spin {
    unsigned idle;
    uint64_t since;
};
void ucx_hub_wait(struct ucx_ep *e, struct ucx_spin *p);
/* Within the hub: the endpoint has stopped waiting. */
void ucx_hub_waited(struct ucx_ep *e);

/* The endpoint's descriptors, as in fab_ops. */
int ucx_hub_wait_fds(struct ucx_ep *e, int fds[FAB_WAIT_FDS], unsigned *count);
/* Within the hub: arms the descriptors and sets when to poll at the latest. False: poll first. */
bool ucx_hub_arm(struct ucx_ep *e, uint64_t *until);
/* Within the hub: the endpoint is being polled, so it no longer waits by descriptors. */
void ucx_hub_rise(struct ucx_ep *e);
/* Within the hub, last of all: progress may have used up the event that endpoints waiting by
 * descriptors rely on; this arms the worker again or wakes them (HUB-6). */
void ucx_hub_settle(struct ucx_hub *h);

/* ---- connections (ucx_conn.c) ---------------------------------------------------------------- */

/* Begins to connect. If the next attempt is not due yet, fails everything that waits for it. */
void ucx_conn_connect(struct ucx_conn *c);
/* Ends the connection. Everything that is under way on it or waits for it ends with the status,
 * whose detail has been set. */
void ucx_conn_break(struct ucx_conn *c, int status);
/* Handles a broken or refused connection, and deadlines that have passed. */
void ucx_conn_look(struct ucx_conn *c, uint64_t now);
/* Takes a message from the node. */
void ucx_conn_heard(struct ucx_conn *c, const void *message, size_t bytes);
/* Sends the waiting question. */
void ucx_conn_ask(struct ucx_conn *c);
/* The last attempt to connect has failed, and there is no connection yet. */
bool ucx_conn_is_away(const struct ucx_conn *c);
/* When ucx_conn_look() is due at the latest. */
uint64_t ucx_conn_deadline(const struct ucx_conn *c);

/* ---- requests (ucx_am.c) --------------------------------------------------------------------- */

int ucx_post(struct fab_ep *ep, struct fab_req *req);
/* Fills messages from the queue and sends them, while there are free messages. */
void ucx_conn_send(struct ucx_conn *c);
/* Takes a REPLY, or an ANSWER in its place. */
void ucx_conn_replied(struct ucx_conn *c, const void *message, size_t bytes);
/* Ends everything that is under way on the connection or queued for it. */
void ucx_conn_fail_all(struct ucx_conn *c, int status);
/* Within the hub, by the endpoint's own thread: marks the answered requests done. Only that thread
 * may, since the poster looks at them without the hub's lock. */
void ucx_take_answered(struct ucx_ep *e);
void ucx_free_flights(struct ucx_hub *h);

/* ---- waking (ucx_wake.c) --------------------------------------------------------------------- */

/* Wakes the endpoint, or all endpoints, as something of theirs is over. */
void ucx_hub_wake(struct ucx_ep *e);
void ucx_hub_wake_all(struct ucx_hub *h);
/* Wakes the endpoint if it waits by descriptors. */
void ucx_hub_alarm(struct ucx_ep *e);

#endif
