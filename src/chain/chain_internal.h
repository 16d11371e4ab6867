/* Inside chains: endpoints, and calls, which are requests under way. */
#ifndef CHAIN_CHAIN_INTERNAL_H
#define CHAIN_CHAIN_INTERNAL_H

#include "chain/chain.h"
#include "chain/chain_layout.h"

#define CALL_VERBS (BATCH_MAX + PIGGYBACK_VERBS + 1)
#define CALL_LINES 64u
#define HOLDS_MAX  256u
#define NO_LINE    UINT8_MAX

struct chain {
    struct fab fab;
    struct fab_ops ops;
    struct fab *machines;
    bool heads, tails;               /* chain_read_heads(), chain_lose_heads() */
    unsigned clients, slots;         /* slots: those of clients and of guests */
    uint64_t tail_at[FAB_NODES_MAX]; /* where the node's tail begins, on the next machine */
};

/* A lock that the client has, by an atomic that was answered. Each operation has a request of its
 * own, one at a time, so that tells whose lock it is. */
struct chain_hold {
    const struct fab_req *by;
    uint16_t node;
    bool whole;   /* the word as a whole, else bits of it */
    bool at_tail; /* stands there, too (CHAIN-4) */
    bool taken;   /* from another client, whose lock may stand there */
    uint64_t off, bits;
};

enum verb_state {
    VERB_NEW,   /* not at the head yet */
    VERB_KNOWN, /* FAA, MCAS of `publish`: the word at the head is known */
    VERB_MET,   /* met a reference */
    VERB_WON,   /* the head has our reference, or the range, and the tail has not */
    VERB_DONE
};

struct call_verb {
    uint8_t state;
    uint8_t line;          /* place in call.line */
    bool releases, behind; /* a lock; at the head behind the answer */
    bool others;           /* releases a lock of another client, at the tail first */
    bool waited;           /* `behind`, but before the answer: nobody else would do it */
    bool won;              /* `publish`: the head has our reference */
    bool acted;            /* it has changed what others see, or shut them out */
    uint16_t part;
    uint16_t inner;     /* its verb in the request under way */
    uint64_t old, new;  /* `publish`: what it replaces */
    uint64_t reference; /* that it met, or the data that looks like one */
};

struct call_line {
    uint16_t node, part;
    uint8_t line; /* its number */
    bool open, at_tail;
    uint64_t stamp;
};

enum call_phase { CALL_LINES_WANTED, CALL_CLEAR, CALL_HEAD, CALL_TAIL, CALL_AGAIN, CALL_BEHIND };

struct chain_call {
    struct fab_req inner; /* first: the queue leads to it */
    struct fab_req *outer;
    struct chain_call *next; /* idle, or waiting */
    struct chain_call *made; /* all of the endpoint */
    bool busy;
    uint64_t epoch;  /* in which it was posted */
    uint64_t number; /* among the calls of the endpoint */
    uint64_t met_at; /* since when it waits for a word; 0: it does not */
    enum call_phase phase;
    unsigned part, parts, count, lines;
    uint64_t wake_at;
    unsigned tries;
    uint32_t rtts, verbs; /* posted so far */
    uint64_t read, written;
    uint64_t fenced, begun; /* machines, as bits: a fence is due; they have verbs */
    struct call_verb v[CALL_VERBS];
    struct call_line line[CALL_LINES];
    struct fab_verb verb[3 * CALL_VERBS + 2 * CALL_LINES + HOLDS_MAX];
    unsigned asks;  /* for which verb it reads a line of another client; CALL_VERBS: for none */
    uint64_t *word; /* for verbs: what inner verbs return, and what they write; then that line */
};
#define WORD_FOUND(call, i) (&(call)->word[2 * (i)])
#define WORD_NEW(call, i)   (&(call)->word[2 * (i) + 1])
#define OTHER_LINE(call)    ((char *)&(call)->word[2 * CALL_VERBS])
#define CALL_WORDS_BYTES    (16 * CALL_VERBS + CHAIN_LONG_BYTES)

struct chain_ep {
    struct fab_ep ep;
    struct fab_ep *machines;
    uint64_t identity; /* of its verbs: that of the client, also while it has no slot */
    bool has_client;
    bool broken; /* a call has failed: what its lines say is for others to settle */
    unsigned slot;
    uint64_t incarnation, stamp, epoch, calls;
    struct fab_queue done; /* calls whose inner request is done */
    struct chain_call *idle, *waiting, *made;
    unsigned holds;
    struct chain_hold hold[HOLDS_MAX];
    uint32_t used[FAB_NODES_MAX]; /* lines of each node, as bits */
    char *image[FAB_NODES_MAX];   /* of the client's lines there */
    uint64_t *zero; /* a word that is 0, one that nobody reads, one for chain_execute() */
};

static inline struct chain *chain_of(const struct chain_ep *e)
{
    return (struct chain *)(void *)e->ep.fab;
}
static inline unsigned chain_tail(const struct chain *c, unsigned node)
{
    return (node + 1) % c->machines->nodes;
}

/* chain_line.c */
/* Takes the lines that the call needs, all or none. */
bool chain_lines_take(struct chain_ep *e, struct chain_call *call);
void chain_lines_give(struct chain_ep *e, struct chain_call *call);
struct chain_line *chain_line_image(struct chain_ep *e, const struct call_line *l);
uint64_t chain_line_at(const struct chain_ep *e, const struct call_line *l);

/* The address of the word that says who has the slot's lines. */
static inline uint64_t chain_seat(const struct chain *c, unsigned slot)
{
    return chain_seat_off(c->fab.size[0], c->slots, slot);
}

/* chain_settle.c */
/* Posts verbs to machines, and waits for them. */
int chain_execute(struct chain_ep *e, struct fab_verb *verbs, unsigned count);
int chain_settle(struct fab_ep *ep, unsigned slot, uint64_t client, uint64_t *holder);

/* chain_call.c */
/* Waits until no call is under way. */
void chain_finish(struct chain_ep *e);
int chain_post(struct fab_ep *ep, struct fab_req *req);
void chain_poll(struct fab_ep *ep, bool wait);

#endif
