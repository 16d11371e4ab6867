/*
 * A modelled network in virtual time: many clients, on several machines, against memory nodes.
 *
 * The pool `model:?nic=cx6&machines=4&threads=24&depth=8` is memory of this process behind NICs
 * that do not exist. Clients are fibers of one thread. They run the real store and the real
 * indexes. Only time is modelled: each post takes client CPU, a doorbell and a place in the NICs'
 * queues, and what it reads or changes is read or changed when it gets to the memory node. So a run
 * is the same each time, and takes as long as its events take to compute, whatever the network.
 *
 * nic.h has the parameters and where each comes from. docs/model.md says what is modelled and how
 * far it is from measurements.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "fabric/fabric.h"

#define MODEL_SCHEME       "model"
#define MODEL_MACHINES_MAX 64u
#define MODEL_CLIENTS_MAX  1024u /* of all machines together */
#define MODEL_NODES_MAX    16u

/* Does the URI name a modelled pool? */
bool model_named(const char *uri);

/* Opens what the URI names: new memory, with the time at 0. FAR_BAD_URI, FAR_NO_MEMORY. */
int model_open(const char *uri, struct fab **fab);

/* What the URI says of the clients. */
struct model_shape {
    unsigned machines, threads; /* threads of each machine: each is one client */
    unsigned depth;
    uint64_t lease_ms;
};
int model_shape(const char *uri, struct model_shape *shape);

/*
 * Runs fn(worker) once for each client, all from the same moment on, until every one has returned
 * or was killed. `first` is an array of as many workers as there are clients, of `size` bytes each.
 * Posts from outside of a client execute at once and take no time. `tick` is called now and then;
 * it may be NULL. FAR_NO_MEMORY: nothing was run.
 */
int model_run(struct fab *fab, void (*fn)(void *worker), void *first, size_t size,
              void (*tick)(void *arg), void *arg);

/*
 * During the next model_run(), clients die: `rate` of them in a second, at random times, wherever
 * they are. What a client has posted lands; its fiber, and all it holds, is abandoned. In its place
 * another one runs fn(worker) from the beginning, with the same worker. rate 0: none die.
 */
void model_let_die(struct fab *fab, unsigned rate, uint64_t seed);

/* ---- within a client ------------------------------------------------------------------------- */

/* The client's time; outside of a client, the time when the last one ended. */
uint64_t model_now(const struct fab *fab);

/* Lets time pass; outside of a client, for all. */
void model_wait(struct fab *fab, uint64_t ns);

/* Charges the client's CPU for an operation that begins. */
void model_operation(struct fab *fab);

/* ---- looking at a run ------------------------------------------------------------------------ */

struct model_counts {
    uint64_t events, verbs;
    uint64_t outstanding_max; /* of one machine's NIC */
    uint64_t deaths;
};
const struct model_counts *model_counts(const struct fab *fab);

/* What verbs occupy: the NICs of memory nodes and of machines with clients, one verb after the
 * other and one byte after the other each way; a node's PCIe; a word that atomics change; and the
 * CPU of the threads. */
enum model_part {
    MODEL_NODE_VERBS,
    MODEL_NODE_RECEIVES,
    MODEL_NODE_SENDS,
    MODEL_NODE_PCIE,
    MODEL_NODE_WORD,
    MODEL_CLIENT_VERBS,
    MODEL_CLIENT_SENDS,
    MODEL_CLIENT_RECEIVES,
    MODEL_CLIENT_THREADS,
    MODEL_PARTS
};
extern const char *const model_part_names[MODEL_PARTS];

/* How long the busiest of each kind was busy, since model_load_begin(). In picoseconds; threads are
 * averaged over a machine. */
struct model_load {
    uint64_t time;
    uint64_t busy[MODEL_PARTS];
};
void model_load_begin(struct fab *fab);
void model_load(const struct fab *fab, struct model_load *load);
/* The part that limits the run, if any does. */
enum model_part model_load_busiest(const struct model_load *load);

#endif
