/*
 * What the files of the model share. Each calls only those above it in this list:
 *
 *   nic.c           parameters
 *   model_client.c  clients: fibers with a clock of their own
 *   model_verb.c    the life of a verb, from the doorbell to the completion
 *   model.c         opening and running, and the fabric's functions
 */
#ifndef MODEL_MODEL_INTERNAL_H
#define MODEL_MODEL_INTERNAL_H

#include "base/event_queue.h"
#include "base/fiber.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/nic.h"

enum event_kind {
    EVENT_CLIENT,   /* a client goes on                                */
    EVENT_SEND,     /* a verb is in the queue of its connection        */
    EVENT_ARRIVE,   /* it reaches the memory node                      */
    EVENT_EXECUTE,  /* it takes effect                                 */
    EVENT_COMPLETE, /* its completion is in the client's memory        */
    EVENT_DEATH,    /* a client dies                                   */
};

/* A verb under way. */
struct model_verb {
    const struct fab_verb *verb;
    struct fab_req *req;
    struct pair *pair;
    struct model_verb *next; /* in the connection's queue, or in the list of free ones */
    unsigned life;           /* of the client that posted it */
    bool rings;              /* the first behind its doorbell */
    bool fetched;            /* the NIC has to fetch the verb from the client's memory */
};

/* A connection: a queue pair of a client and a memory node. */
struct pair {
    struct model_client *client;
    struct node *node;
    struct model_verb *first, *last; /* verbs that the NIC has not sent yet */
    unsigned posted;                 /* verbs that have not completed */
    unsigned answers;                /* READs and atomics that were sent and have not completed */
    uint64_t arrived, executed; /* when the last verb sent does: a connection keeps the order */
    bool used;
};

/* A client that died while requests of it were under way. They and their buffers may be on its
 * stack, so that is kept until the last one has completed. */
struct remains {
    struct remains *next;
    struct fiber *fiber;
    unsigned life, in_flight;
};

enum client_state { CLIENT_IDLE, CLIENT_RUNNING, CLIENT_POLLING, CLIENT_PAUSING, CLIENT_FINISHED };

struct model_client {
    struct model *model;
    struct machine *machine;
    struct fiber *fiber;
    void (*fn)(void *worker);
    void *worker;
    enum client_state state;
    unsigned life;             /* counts the clients that were in this place */
    uint64_t clock;            /* when its CPU has done what it has to do so far */
    uint64_t owed;             /* CPU for completions, when it polls the next time */
    bool completed;            /* a request completed since it last polled */
    bool woken;                /* the event that lets it go on is in the queue */
    uint32_t event;            /* the number of that event: others are of clients that died */
    unsigned in_flight;        /* requests */
    struct remains *remains;   /* of those that were in this place before */
    struct doorbell *doorbell; /* NULL: the client has its own */
    struct pair pair[MODEL_NODES_MAX];
};

/* Something that serves one after the other. */
struct line {
    uint64_t free; /* when it is */
    uint64_t busy; /* how long it was, since model_load_begin() */
};

struct doorbell {
    uint64_t free; /* when it is */
    unsigned threads;
};

/* A machine with clients, and its NIC. */
struct machine {
    struct line message, send, receive;
    struct doorbell doorbell[NIC_DOORBELLS];
    uint64_t cpu;         /* how long its threads had something to do, since model_load_begin() */
    unsigned outstanding; /* verbs that its NIC has sent */
    unsigned pairs;       /* connections in use */
};

/* Atomics on the same word go one after the other. Words that share an entry do, too. */
#define BUSY_WORDS 65536u

/* A memory node, and its NIC. */
struct node {
    unsigned number;
    struct line message, send, receive, pcie;
    struct line *word; /* BUSY_WORDS */
};

struct model {
    struct fab fab;
    struct fab *memory; /* what clients see of the nodes' memory: mem: */
    struct fab_ep *memory_ep;
    const struct nic *nic;
    struct nic other; /* instead of one of the table */
    struct model_shape shape;
    bool shared_doorbells;
    bool locks_in_nic;
    unsigned clients;
    uint64_t now;  /* of the event at hand */
    uint64_t from; /* when model_load_begin() was called */
    struct model_client *running;
    unsigned alive;           /* clients that have not returned */
    unsigned deaths_per_s;    /* in this run */
    struct rng rng;           /* of deaths */
    struct event_queue queue; /* in picoseconds; subjects are clients, and verbs under way */
    struct model_verb *idle;  /* those that are free */
    struct model_counts counts;
    struct model_client *client;
    struct machine machine[MODEL_MACHINES_MAX];
    struct node node[MODEL_NODES_MAX];
};

/* Returns the event's number. */
static inline uint32_t model_push(struct model *m, enum event_kind kind, uint64_t at, void *subject)
{
    return event_queue_push(&m->queue,
                            (struct event){.at = at, .kind = (uint8_t)kind, .subject = subject});
}

/* The client's CPU has something to do. */
static inline void model_work(struct model_client *c, uint64_t ps)
{
    c->clock += ps;
    c->machine->cpu += ps;
}

/* ---- model_client.c -------------------------------------------------------------------------- */

/* FAR_NO_MEMORY */
int model_client_start(struct model_client *c, void (*fn)(void *worker), void *worker);
/* Runs the client until it waits. */
void model_client_resume(struct model_client *c);
/* Lets it go on when its clock says so. */
void model_client_wake(struct model_client *c);
/* The client never runs again; another one takes its place, and begins now. FAR_NO_MEMORY: it
 * lives. */
int model_client_replace(struct model_client *c);
/* A request of the client has completed. */
void model_client_completed(struct model_client *c);
/* A request of one that died in this place has completed. */
void model_client_drop(struct model_client *c, unsigned life);
/* The running client waits: for a completion; for some time. */
void model_client_poll(struct model_client *c);
void model_client_pause(struct model_client *c, uint64_t ps);

/* ---- model_verb.c ---------------------------------------------------------------------------- */

/* FAR_NO_MEMORY: nothing was posted. */
int model_verb_post(struct model_client *c, struct fab_req *req);
void model_verb_send(struct model *m, struct model_verb *f);
void model_verb_arrive(struct model *m, struct model_verb *f);
void model_verb_execute(struct model *m, struct model_verb *f);
void model_verb_complete(struct model *m, struct model_verb *f);

#endif
