/*
 * What the files of the simulator share. Each calls only those above it in this list:
 *
 *   sim_memory.c     the nodes' memory, and what verbs do to it
 *   sim_log.c        the time line
 *   sim_queue.c      events by time
 *   sim_adversary.c  how long things take, in what pieces, and whether a fault strikes
 *   sim_client.c     clients: starting, resuming, waiting
 *   sim_tail.c       second images of the nodes, and the loss of one of the two
 *   sim_request.c    requests under way
 *   sim_site.c       what happens at the places in the source that post requests
 *   sim_fault.c      crashes, pauses, errors, and their end
 *   sim_nic.c        posting, executing and completing requests
 *   sim_choice.c     events by choice of the tape: enumeration
 *   sim.c            runs, and the fabric's functions
 */
#ifndef SIM_SIM_INTERNAL_H
#define SIM_SIM_INTERNAL_H

#include "base/fiber.h"
#include "base/event_queue.h"
#include "fabric/batch.h"
#include "sim/sim.h"

#define NOBODY UINT32_MAX

enum event_kind {
    EVENT_START,    /* a client's first step                    */
    EVENT_WAKE,     /* a client has waited long enough          */
    EVENT_VERB,     /* the next piece of a verb                 */
    EVENT_REQUEST,  /* a whole request (without SIM_INTERLEAVE) */
    EVENT_COMPLETE, /* a request's answer reaches its client    */
    EVENT_TAIL,     /* the next piece of a request comes to the tail */
};

enum verb_state {
    VERB_WAITING,  /* for verbs that must go first         */
    VERB_DUE,      /* its next event is in the queue       */
    VERB_DONE,     /* executed whole                       */
    VERB_CANCELLED /* what is not done of it never will be */
};

struct sim_verb {
    struct fab_verb v;
    uint64_t left; /* pieces that are not executed yet, a bit each */
    uint32_t piece_bytes;
    uint16_t waits; /* how many unfinished verbs must go first */
    uint16_t fence; /* the node's last fenced verb so far: those before it go first */
    uint8_t state;
    bool answered; /* counts as done towards the request's completion */
    bool begun;
    bool torn;
    bool late;       /* its request has completed, but it is not done: others wait */
    bool half;       /* an atomic that has read its word and not written it yet    */
    uint64_t result; /* what it will write                                         */
    /* sim_tail.c */
    uint64_t tail_left; /* pieces that are not at the tail                              */
    uint16_t stage;
    bool executed; /* an atomic: at the head                                            */
    bool changed;  /* it has changed a published word there                             */
    bool at_tail;  /* all of it, or it never gets there                                 */
    bool skipped;  /* it releases a lock that was lost with the head: `result` was read */
};

#define SIM_VERBS_MAX (4 * BATCH_MAX) /* of a request: chains add some to a batch's */
struct sim_request {                  /* a request on its way */
    struct fab_req *req;              /* NULL once it has completed */
    uint32_t client;
    uint32_t number;   /* among the client's requests */
    uint64_t identity; /* of its client when it was posted */
    struct fab_ep *ep; /* while there is a req             */
    uint32_t view;     /* that it names                    */
    uint32_t refused;  /* the view of the node that has refused it; 0: none has */
    uint8_t entered;   /* nodes that have begun it, by bits                     */
    uint16_t count, events;
    uint16_t unanswered; /* of its stage */
    uint16_t stage;      /* sim_tail.c */
    bool settled;        /* what of it is at the head is at the tail, too */
    uint16_t own;        /* verbs of its site: the first ones */
    uint32_t site;       /* SITE_NONE: not known */
    uint64_t visit;      /* posts of the site before it, in this run */
    bool in_use;
    bool reported; /* its completion is in the queue */
    bool any_executed;
    bool writes;    /* its site's verbs are not all READs */
    bool stray;     /* it has failed, but its other verbs may still land */
    uint64_t until; /* only until then                                   */
    int status;
    void *late_data; /* copies of the buffers of verbs that outlive their request */
    struct sim_verb verb[SIM_VERBS_MAX];
};

enum client_state {
    CLIENT_IDLE,
    CLIENT_READY,
    CLIENT_RUNNING,
    CLIENT_POLLING,
    CLIENT_PAUSING,
    CLIENT_FINISHED,
    CLIENT_CRASHED
};

struct sim_client {
    struct fiber *fiber;
    void (*fn)(void *arg);
    void *arg;
    struct sim *sim;
    enum client_state state;
    bool unwinding; /* what it posts is refused                  */
    bool completed; /* a request completed since it last polled  */
    bool stuck;     /* its verbs pause with it                   */
    bool fenced;    /* shut out: another client declared it dead */
    uint64_t identity;
    uint32_t in_flight;
    uint32_t requests;
    uint64_t unwound_posts;
    uint64_t frozen_until;
    uint64_t clock_offset;
    int32_t clock_ppm;
    unsigned doom_in;                   /* events until `doom`; 0: it has none                 */
    uint8_t doom;                       /* enum fault                                          */
    unsigned spread;                    /* transits, at most, between pieces of its verbs      */
    uint64_t local_time;                /* by choice: its clock, which no other client affects */
    uint32_t late[SIM_NODES_MAX];       /* WRITEs that completed but are not visible yet       */
    uint64_t late_until[SIM_NODES_MAX]; /* when the last of them is due, at least              */
    uint64_t seen;                      /* by choice: a hash of all answers it has got         */
    uint64_t gathers;                   /* and of what its requests under way have read        */
    unsigned put_off[SIM_NODES_MAX];    /* calls of fence_view() in a row, by the adversary    */
};
_Static_assert(SIM_NODES_MAX <= 8, "sim_request.entered has a bit for each");

struct busy_word {
    uint32_t node;
    uint64_t off;
    uint64_t until; /* when the second half is due */
};

struct visited {
    uint64_t state;
    size_t deviations_left; /* when the search continued from there, plus one; 0: free */
};

/* A lock, or bits of a word of locks. */
struct sim_hold {
    uint32_t client, node;
    uint64_t off, identity, bits;
    bool whole; /* the word is one lock */
};

/* A verb that has changed a published word at the head, and not yet at the tail. */
struct sim_way {
    struct sim_request *request;
    unsigned verb;
};

struct sim_line {
    uint64_t at;
    int client;
    char text[112];
};

#define SIM_PAGE_SHIFT 12

struct sim {
    struct fab fab;
    struct fab_ops ops; /* of this run: with or without a fence */
    struct sim_settings set;
    struct tape *tape;
    uint64_t now;
    uint32_t running;   /* client, or NOBODY */
    uint32_t last;      /* the client of the last event */
    unsigned adversity; /* of the settings, until sim_stop_faults() takes some away */
    bool by_choice;     /* likewise */
    uint64_t trace;
    struct sim_counts counts;
    struct event_queue queue; /* subjects are requests; by choice: in order of arrival */
    struct sim_client client[SIM_CLIENTS_MAX];
    unsigned opens_in; /* the process of endpoints that are opened */
    unsigned alive;    /* clients that have not finished nor crashed */

    struct sim_request **request; /* all that were ever made */
    size_t requests, request_room;

    sim_watcher *watch;
    void *watch_arg;

    struct sites *sites; /* NULL: not counted */

    struct busy_word busy[SIM_CLIENTS_MAX * 4];
    unsigned busy_count;

    /* memory */
    uint8_t *memory[SIM_NODES_MAX];
    uint64_t memory_bytes[SIM_NODES_MAX];
    uint8_t *dirty[SIM_NODES_MAX]; /* a byte per page */
    uint32_t *dirty_page[SIM_NODES_MAX];
    uint32_t dirty_count[SIM_NODES_MAX];

    /* tails */
    uint8_t *tail_memory[SIM_NODES_MAX];
    bool alone[SIM_NODES_MAX]; /* head or tail is lost: `memory` is the other */
    struct sim_hold hold[512];
    unsigned holds;
    struct sim_way way[SIM_CLIENTS_MAX * BATCH_MAX * 4];
    unsigned ways;
    uint64_t lose_half_after;   /* events; UINT64_MAX: never, or not yet known */
    uint32_t lose_half_changes; /* by atomics there; then it is known. 0: not by these */
    unsigned lose_half_of;
    bool lose_tail;

    /* what the adversary is like in this run */
    unsigned tail;                               /* how long the longest delays are        */
    unsigned gap;                                /* nanoseconds between verbs, about       */
    uint32_t slow;                               /* a client far from all nodes, or NOBODY */
    bool stalls;                                 /* a message takes very long now and then */
    unsigned slow_by;                            /* how many times slower                  */
    unsigned tear_in_8;                          /* READs and WRITEs in pieces             */
    unsigned crash_rate, pause_rate, error_rate; /* of 65536 events                        */
    unsigned faults_used;
    uint64_t lose_after; /* requests; UINT64_MAX: never */
    uint64_t lose_for;   /* requests until it is back */
    unsigned lose_node;
    bool lost[SIM_NODES_MAX];

    /* enumeration */
    uint64_t (*harness_hash)(void *arg);
    void *harness_arg;
    uint64_t memory_hash;
    struct visited *visited;
    size_t visited_count, visited_room;

    struct sim_line *line;
    size_t lines, lines_max, lines_lost;
};

/* A hash step: cheap, and good enough to distinguish runs. */
static inline uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

/* ---- sim_memory.c ---------------------------------------------------------------------------- */

/* Zeroes a node for the next run. False when out of memory. */
bool sim_memory_clean(struct sim *sim, unsigned node, uint64_t bytes);
uint64_t *sim_memory_word(struct sim *sim, unsigned node, uint64_t off);

/* To be called before memory is written, of the head or of the tail. */
void sim_memory_touch(struct sim *sim, unsigned node, uint64_t off, uint64_t len);

/* Moves bytes [from, to) of a READ or WRITE. */
void sim_memory_move(struct sim *sim, const struct fab_verb *v, uint64_t from, uint64_t to);
/* Moves some of its pieces and takes them off `left`. Returns a hash of what it read. */
uint64_t sim_memory_move_pieces(struct sim *sim, struct sim_verb *verb, uint64_t pieces);

/* The word that an atomic writes if it finds `old`. */
uint64_t sim_atomic_result(const struct fab_verb *v, uint64_t old);
void sim_atomic_write(struct sim *sim, const struct fab_verb *v, uint64_t new);
void sim_atomic_whole(struct sim *sim, const struct fab_verb *v);

/* Words of atomics that are half done. */
struct busy_word *sim_busy_find(struct sim *sim, const struct fab_verb *v);
void sim_busy_set(struct sim *sim, const struct fab_verb *v);
void sim_busy_clear(struct sim *sim, const struct fab_verb *v);

/* ---- sim_log.c ------------------------------------------------------------------------------- */

void sim_log_line(struct sim *sim, uint32_t client, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_log_post(struct sim *sim, const struct sim_request *r);
enum log_part { LOG_WHOLE, LOG_FIRST_HALF, LOG_SECOND_HALF };
/* For a READ or WRITE before its pieces are moved; for an atomic once its `result` is set. */
void sim_log_verb(struct sim *sim, const struct sim_request *r, unsigned i, enum log_part part,
                  uint64_t pieces);

/* ---- sim_queue.c ----------------------------------------------------------------------------- */

void sim_queue_push(struct sim *sim, enum event_kind kind, uint64_t at, uint32_t client,
                    struct sim_request *r, unsigned verb);
/* Ends the choosing: from here on, events execute when they are due. */
void sim_queue_by_time(struct sim *sim);

/* ---- sim_adversary.c ------------------------------------------------------------------------- */

void sim_adversary_begin(struct sim *sim);
enum fault { FAULT_NONE, FAULT_CRASH, FAULT_PAUSE, FAULT_ERROR };
/* The client begins to recover another. */
void sim_adversary_stalk(struct sim *sim, struct sim_client *c);
/* Does the client stop between the pieces of this WRITE? */
bool sim_adversary_stops(struct sim *sim, uint32_t client, const struct sim_verb *verb);
enum fault sim_adversary_draw_fault(struct sim *sim, uint32_t client);
uint64_t sim_adversary_transit(struct sim *sim, uint32_t client); /* how long its messages take */
uint64_t sim_adversary_gap(struct sim *sim);                      /* between verbs */
uint64_t sim_adversary_rest(struct sim *sim, uint32_t client,
                            const struct sim_verb *verb);     /* between its pieces */
uint64_t sim_adversary_lag(struct sim *sim, uint32_t client); /* until its answered WRITE is done */
/* Which of a verb's pieces execute in this event; whether an atomic executes in two halves. */
uint64_t sim_adversary_pieces(struct sim *sim, uint32_t client, uint64_t left);
bool sim_adversary_halves(struct sim *sim);

/* ---- sim_client.c ---------------------------------------------------------------------------- */

/* The client that is running, or NULL. */
struct sim_client *sim_client_running(struct sim *sim);
void sim_client_resume(struct sim *sim, uint32_t client);
void sim_client_wake(struct sim *sim, const struct event *e);
/* Suspends the running client, until it is resumed or for a time. */
void sim_client_give_way(struct sim_client *c, enum client_state state);
void sim_client_wait(struct sim_client *c, uint64_t ns);

/* ---- sim_tail.c ------------------------------------------------------------------------------ */

/* Cuts a request that is posted into stages. Verbs of earlier stages go first. */
void sim_tail_cut(const struct sim *sim, struct sim_request *r);
/* Must verb i be done before verb j begins? */
bool sim_tail_goes_first(const struct sim *sim, const struct sim_request *r, unsigned i,
                         unsigned j);
/* Does the verb, which is for the head, arrive later than READs of the tail behind it? */
bool sim_tail_lags(const struct sim *sim, const struct sim_request *r, unsigned verb);
/* A verb begins. True: it has been at the tail, and comes to the head in a later event. */
bool sim_tail_begun(struct sim *sim, struct sim_request *r, unsigned verb);
/* At the head, an atomic has found `old`; a part of a verb is done. */
void sim_tail_executed(struct sim *sim, struct sim_request *r, unsigned verb, uint64_t old);
void sim_tail_stepped(struct sim *sim, struct sim_request *r, unsigned verb);
/* All verbs of a stage are done at the head. */
enum tail_step {
    TAIL_UNDER_WAY,  /* an event that brings more of it to the tail is in the queue */
    TAIL_NEXT_STAGE, /* r->stage has begun */
    TAIL_DONE        /* it was the last one */
};
enum tail_step sim_tail_step(struct sim *sim, struct sim_request *r);
void sim_tail_event(struct sim *sim, struct sim_request *r);
/* Until when the verb waits for a word that another one is bringing to the tail; then it asks
 * again. 0: it does not. */
uint64_t sim_tail_waits(struct sim *sim, struct sim_request *r, unsigned verb);
/* What of the request is at the head comes to the tail now, and from here on. */
void sim_tail_settle(struct sim *sim, struct sim_request *r);
/* Nothing stays on its way. */
void sim_tail_settle_all(struct sim *sim);
/* Loses a head or a tail, when it is time. */
void sim_tail_lose(struct sim *sim);
/* A client dies. Perhaps a head that it was writing to does, too. */
void sim_tail_died(struct sim *sim, uint32_t client);
/* Of a verb that a harness posts: what an atomic has changed, or a WRITE. */
void sim_tail_direct(struct sim *sim, const struct fab_verb *v, uint64_t old);

/* ---- sim_request.c --------------------------------------------------------------------------- */

/* A free one; NULL when out of memory. */
struct sim_request *sim_request_take(struct sim *sim);
/* Frees the request if nothing of it is under way. */
void sim_request_release(struct sim_request *r);
/* Queues the answer, once. */
void sim_request_report(struct sim *sim, struct sim_request *r, uint64_t after);
/* What has not executed yet never will. Atomics that have begun are finished. */
void sim_request_cancel(struct sim *sim, struct sim_request *r);
/* Ends the request with an error: the rest is cancelled, and the client gets the status. */
void sim_request_fail(struct sim *sim, struct sim_request *r, int status);
/* Ends the request with FAR_UNKNOWN, but lets its WRITEs and atomics go on. */
void sim_request_stray(struct sim *sim, struct sim_request *r);
/* Ends every request at once with FAR_UNREACHABLE and empties the queue. */
void sim_request_drop_all(struct sim *sim);

/* ---- sim_site.c ------------------------------------------------------------------------------ */

void sim_site_posted(struct sim *sim, struct sim_request *r);
void sim_site_executed(struct sim *sim, const struct sim_request *r, unsigned verb);
void sim_site_torn(struct sim *sim, const struct sim_request *r, unsigned verb);
void sim_site_completed(struct sim *sim, const struct sim_request *r);
/* Its client dies. */
void sim_site_died(struct sim *sim, const struct sim_request *r);
/* A fault strikes at its site. */
void sim_site_note(struct sim *sim, const struct sim_request *r, enum site_fault fault);
/* The fault that is aimed at this moment of the request, if any; `answers`: all its verbs are
 * done. */
enum fault sim_site_fault(struct sim *sim, const struct sim_request *r, bool answers);
/* Is this READ to be torn? */
bool sim_site_tears(struct sim *sim, const struct sim_request *r, unsigned verb);

/* ---- sim_fault.c ----------------------------------------------------------------------------- */

void sim_fault_crash(struct sim *sim, uint32_t client);
/* `outlasts`: for longer than any lease. `within`: and its verbs, too. */
void sim_fault_pause(struct sim *sim, uint32_t client, bool outlasts, bool within);
void sim_fault_error(struct sim *sim, struct sim_request *r);

/* ---- sim_nic.c ------------------------------------------------------------------------------- */

int sim_nic_post(struct sim *sim, uint32_t client, struct fab_ep *ep, struct fab_req *req);
int sim_nic_post_direct(struct sim *sim, struct fab_ep *ep, struct fab_req *req);
void sim_nic_verb(struct sim *sim, const struct event *e);
void sim_nic_request(struct sim *sim, const struct event *e);
void sim_nic_complete(struct sim *sim, const struct event *e);
void sim_nic_tail(struct sim *sim, const struct event *e);
/* When the event may execute, if it must wait for an atomic that is half done or for a late WRITE;
 * 0 if it need not wait. */
uint64_t sim_nic_held(struct sim *sim, const struct event *e);
/* The node's view, and raising it. */
uint32_t sim_nic_view(struct sim *sim, unsigned node);
void sim_nic_raise_view(struct sim *sim, unsigned node, uint32_t view);
/* Has the node begun a request of an older view that is not done there? */
bool sim_nic_executes_older(const struct sim *sim, unsigned node, uint32_t view);
/* Of these requests, what is under way takes effect now, wholly or in part, or never. */
void sim_nic_shut_out(struct sim *sim, struct sim_request *const *requests, size_t count);

/* ---- sim_choice.c ---------------------------------------------------------------------------- */

/* Takes the event that the tape chooses; false when there is none. Faults that the tape chose
 * before it have happened. */
bool sim_choice_pop(struct sim *sim, struct event *e);

#endif
