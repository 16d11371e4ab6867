/*
 * Simulated fabric: one thread, virtual time, and an adversary.
 *
 * Clients are fibers that run the real store on an ordinary struct fab. The simulator cuts what a
 * client posts into events and executes one event at a time. Between two events of one client, any
 * other client may run. Every choice comes from a tape (tape.h), so a run is a function of its tape
 * and its settings, event for event.
 *
 * The life of a request:
 *
 *     post     the client fills a batch and flushes it; its fiber waits in ops->poll
 *     execute  each verb runs once the verbs that must go before it are done, in one or several
 *              events: a READ or WRITE in pieces of whole granules, an atomic at once or in two
 *              halves
 *     respond  when its verbs are done (see SIM_IB_LOOSE), the request is on its way back
 *     complete the request is marked done, and the client's fiber goes on
 *
 * Posts from outside of any client (a harness that sets up or inspects) execute at once.
 *
 * The queue of events (base/event_queue.h) is also that of the model of a real network (src/model).
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "fabric/fabric.h"
#include "sim/sites.h"
#include "sim/tape.h"

#include <stdio.h>

#define SIM_CLIENTS_MAX 16u
#define SIM_NODES_MAX   4u

/* What the fabric promises about the order of verbs. docs/testing.md has the table. */
enum sim_profile {
    SIM_SC, /* verbs are whole and in order; completion is immediate */
    SIM_IB, /* the reliable connection as the specification has it   */
    /* Only WRITE holds back what follows it; a WRITE may be visible to others only after its
     * completion. */
    SIM_IB_LOOSE
};
#define SIM_PROFILES 3u
const char *sim_profile_name(enum sim_profile profile);

/* What the adversary may do. The first four and the last are within the fabric's contract; the
 * others are faults. */
#define SIM_ADVERSITIES(X)                                                                         \
    X(DELAY, "delay")           /* verbs and completions take long, sometimes very long      */    \
    X(REORDER, "reorder")       /* verbs in any order that the profile allows                */    \
    X(TORN, "torn")             /* READs and WRITEs in pieces, atomics in halves             */    \
    X(INTERLEAVE, "interleave") /* other clients between the verbs of a request              */    \
    X(CRASH, "crash")           /* a client never runs again; its verbs are done in any part */    \
    X(PAUSE, "pause")           /* a client pauses; its verbs land meanwhile or afterwards   */    \
    X(ERROR, "error")           /* a request ends with FAR_UNKNOWN, done in any part         */    \
    X(NODE, "node")             /* a memory node cannot be reached any more                  */    \
    X(DRIFT, "drift")           /* clients' clocks differ and run at different rates */

enum sim_adversity {
#define SIM_X(name, text) SIM_NUMBER_##name,
    SIM_ADVERSITIES(SIM_X)
#undef SIM_X
        SIM_ADVERSITY_COUNT
};
enum {
#define SIM_X(name, text) SIM_##name = 1u << SIM_NUMBER_##name,
    SIM_ADVERSITIES(SIM_X)
#undef SIM_X
        SIM_ALL = (1u << SIM_ADVERSITY_COUNT) - 1,
    SIM_FAULTS = SIM_CRASH | SIM_PAUSE | SIM_ERROR | SIM_NODE
};
const char *sim_adversity_name(enum sim_adversity which);

/* Longer than any lease, and the bound that clocks drift within. */
#define SIM_PAUSE_NS  (60ull * 1000000000u)
#define SIM_DRIFT_PPM 500u

struct sim_settings {
    enum sim_profile profile;
    unsigned adversity; /* SIM_* bits */
    unsigned clients;
    unsigned nodes;
    uint64_t node_bytes; /* a multiple of 64                      */
    unsigned granule;    /* 8 or 64: bytes that never tear        */
    unsigned faults_max; /* crashes, pauses and errors in one run */
    /* For enumeration: the tape picks the next event among all that may happen. Otherwise the tape
     * gives delays, and those order the events. */
    bool by_choice;
    /* As on shared memory: no client can be shut out, and what a client posted lands while it
     * pauses. */
    bool no_fence;
    /* Without a fence: whether a client's process lives is known, as on one machine. Then a client
     * may stop in the middle of a verb, and go on with it after any time. */
    bool lives;
    bool stops; /* clients stop within torn WRITEs, for longer than a lease, if pauses may happen */
    bool no_mcas; /* no masked CAS: batches emulate it */
    /* Each node has a second image that lags as the marks of verbs allow, and one of the two is
     * lost if faults may happen (sim_tail.c). Neither by_choice nor no_fence. */
    bool tails;
    bool
        stalks; /* a client that shuts out another dies or pauses some events later, if faults may happen */
    /* How many verbs may be posted from outside of any client: a harness that posts more is in an
     * endless loop. 0: a number that is enough for small tables. */
    uint64_t direct_verbs_max;
};

/* What happened in a run. */
struct sim_counts {
    uint64_t verbs, requests, events;
    uint64_t direct_verbs; /* posted from outside of any client                                */
    uint64_t torn;         /* READs and WRITEs that took more than one event                   */
    uint64_t halved;       /* atomics whose read and write were separate events                */
    uint64_t reordered;    /* verbs that began before an earlier one of their request was done */
    uint64_t shut_out;     /* clients that others declared dead                                */
    uint64_t stopped;      /* clients that stopped within a WRITE for longer than a lease      */
    uint64_t late;         /* WRITEs completed before they were visible                        */
    uint64_t heads_lost, tails_lost;
    uint64_t waited;                        /* verbs that met a word on its way to the tail */
    uint64_t happened[SIM_ADVERSITY_COUNT]; /* crash, pause, error, node: how often */
};

struct sim;

/* NULL when out of memory. One simulator serves many runs: it keeps memory, stacks and queues. */
struct sim *sim_new(void);
void sim_free(struct sim *sim);

/* Starts a run: zeroed memory, no clients at work, clocks at their start. The tape must outlive
 * it. FAR_INVALID, FAR_NO_MEMORY. */
int sim_begin(struct sim *sim, const struct sim_settings *settings, struct tape *tape);

/* The fabric of the run. Close what you open on it before the next sim_begin(). */
struct fab *sim_fab(struct sim *sim);
/* Endpoints that are opened from here on belong to that process. */
void sim_open_in(struct sim *sim, unsigned process);

/* Starts a client, which runs fn. */
int sim_start(struct sim *sim, unsigned client, void (*fn)(void *arg), void *arg);

/* Sets the client's identity for fence(), if it was registered from outside. */
void sim_identify_client(struct sim *sim, unsigned client, uint64_t identity);

enum sim_end {
    SIM_FINISHED, /* every client has finished or crashed, and no verb is in flight */
    SIM_LIMIT     /* the verbs allowed are used up                                  */
};

/* Runs events until all is done or `verbs` more have been posted. Can be called again. */
enum sim_end sim_run(struct sim *sim, uint64_t verbs);

/* With tails: the node loses its head, or its tail, before the next event. */
void sim_lose_half(struct sim *sim, unsigned node, bool tail);

/* Ends the faults: lost nodes are back, with their memory as it was. Delays, and all else that the
 * contract allows, go on. An enumeration stops choosing here: a scheduler that may delay a client
 * for ever can keep any code that is not wait-free from progress. */
void sim_stop_faults(struct sim *sim);

/* Ends the run: clients that crashed or are still at work get FAR_UNREACHABLE for everything from
 * here on, so that their functions unwind and free what they hold. Nothing reaches memory. */
void sim_end(struct sim *sim);

/* ---- within a client ------------------------------------------------------------------------- */

/* Lets others run: for as long as a message takes, or for a time. */
void sim_think(struct sim *sim);
void sim_sleep(struct sim *sim, uint64_t ns);
/* Other clients get much done between the pieces of this client's torn verbs: up to `transits` pass
 * between two pieces (0: as for others). */
void sim_spread(struct sim *sim, unsigned client, unsigned transits);
/* Is this client only unwinding? Then it should start nothing more. */
bool sim_unwinding(const struct sim *sim);
/* The identity of the running client for fence(), or 0. */
uint64_t sim_identity(const struct sim *sim);

/* ---- looking at a run ------------------------------------------------------------------------ */

const struct sim_counts *sim_counts(const struct sim *sim);
/* A hash over every event so far. */
uint64_t sim_trace(const struct sim *sim);
uint64_t sim_now(const struct sim *sim);

/* The memory of a node, and a word of it. */
const void *sim_memory(const struct sim *sim, unsigned node);
uint64_t sim_word(const struct sim *sim, unsigned node, uint64_t off);

/* Fills memory with a byte, without a verb. */
void sim_fill(struct sim *sim, unsigned node, uint64_t off, uint64_t bytes, uint8_t byte);

/* Called whenever a client's verb, or a part of it, takes effect. `identity` is what the client had
 * when it posted the verb. NULL: no watcher. */
typedef void sim_watcher(void *arg, unsigned client, uint64_t identity,
                         const struct fab_verb *verb);
void sim_watch(struct sim *sim, sim_watcher *verb, void *arg);

/* Counts in all runs from here on what happens at each site, and lets the aimed fault strike. NULL:
 * not. */
void sim_count_sites(struct sim *sim, struct sites *sites);

/* Has the client crashed? */
bool sim_crashed(const struct sim *sim, unsigned client);

/* Keeps a time line from here on, of at most `lines` lines (0: none). False when out of memory. */
bool sim_keep_log(struct sim *sim, size_t lines);
void sim_print_log(const struct sim *sim, FILE *out);
/* Adds a line of the running client to it. */
void sim_note(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * An enumeration (by_choice) need not continue from a state that an earlier run continued from. The
 * harness adds to a state what it knows itself, by a hash: the history so far, as far as a verdict
 * depends on it. States are remembered until sim_forget_states().
 */
void sim_prune(struct sim *sim, uint64_t (*harness_hash)(void *arg), void *arg);
void sim_forget_states(struct sim *sim);

#endif
