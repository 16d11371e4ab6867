/*
 * NICs, and the machines they are in: what a model needs to know of them.
 *
 * Times are whole picoseconds, so that a run is the same on every machine.
 */
#ifndef MODEL_NIC_H
#define MODEL_NIC_H

#include "fabric/fabric.h"

/* Shared doorbells: the driver's default gives so many to all threads of a process. */
#define NIC_DOORBELLS 12u

/* Nanoseconds in picoseconds, for constants. */
#define NIC_NS(ns) ((uint64_t)((ns)*1000.0 + 0.5))

struct nic {
    const char *name;
    const char *summary;

    /* The client's CPU */
    uint64_t operation;        /* an operation, without its verbs                              */
    uint64_t post;             /* a verb: writing it, and the doorbell                         */
    uint64_t completion;       /* a doorbell's verbs: noticing that they have completed        */
    uint64_t crowd_completion; /* more for that, for each thread past `crowd_from`             */
    uint64_t crowd_latency[3]; /* and more latency, by enum fab_class                          */
    unsigned crowd_from;
    uint64_t doorbell_shared; /* more for a post, if other threads have the same doorbell */
    uint64_t doorbell_others; /* and more for each of them                                */

    /* Latency without any load */
    uint64_t latency[3]; /* by enum fab_class: from the end of the post until the completion */
    uint64_t fetch[3];   /* more, if the queue pair is not idle: the NIC fetches the verb itself */

    /* Rates: how long each verb occupies a NIC */
    uint64_t message[3]; /* at the client, by enum fab_class */
    uint64_t served[3];  /* at the memory node */
    uint64_t same_word;  /* an atomic: how long its word is busy */
    uint64_t nic_word;   /* the same, of a word in the NIC's own memory */
    uint64_t byte;       /* of the network, each way */
    uint64_t pcie_byte;  /* at the memory node */
    unsigned header;     /* bytes of a message besides its data */
    unsigned pcie_payload, pcie_header;

    /* The client NIC's cache of verbs and connections */
    uint64_t cache_room[3]; /* how many entries fit, by class of the verb that looks */
    uint64_t cache_miss[3]; /* more for a verb, for each entry that does not fit */
    uint64_t cache_most[3]; /* but not more than this */
    uint64_t cache_pair;    /* a connection takes as many entries; a verb takes one */

    unsigned
        outstanding; /* verbs of a machine at most, so that the cache suffices: what the product does */
    unsigned in_flight; /* READs and atomics of a connection; the others wait */
};

/* NULL: no such NIC. */
const struct nic *nic_find(const char *name);
const struct nic *nic_at(unsigned i);

#endif
