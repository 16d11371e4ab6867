/*
 * Tape: where every nondeterministic choice of a simulation comes from.
 *
 * A run is a function of its tape: tape_choose() is the only source of chance, so the same tape
 * gives the same run, event for event. The choices can come from
 *
 *   a seed           pseudo-random numbers
 *   a recording      the choices of an earlier run, or an edited copy of them
 *   enumeration      run after run, every sequence of choices there is, depth first
 *   bytes            of a fuzzer
 *
 * By convention the choice 0 is the uneventful one: no delay, no fault, the same client again. So a
 * recording gets simpler when choices are set to 0, and one that ends early continues uneventfully.
 */
#ifndef SIM_TAPE_H
#define SIM_TAPE_H

#include "base/err.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>

/* What a choice is about: for people who read a recording. */
#define TAPE_LABELS(X)                                                                             \
    X(SETUP, "setup")                                                                              \
    X(WORK, "work")                                                                                \
    X(EVENT, "event")                                                                              \
    X(DELAY, "delay")                                                                              \
    X(ORDER, "order")                                                                              \
    X(TEAR, "tear")                                                                                \
    X(FAULT, "fault")                                                                              \
    X(CLOCK, "clock")

enum tape_label {
#define TAPE_X(name, text) TAPE_##name,
    TAPE_LABELS(TAPE_X)
#undef TAPE_X
        TAPE_LABEL_COUNT
};
const char *tape_label_name(enum tape_label label);

struct tape_mark {
    uint32_t choice, of;
    uint8_t label;
};

struct tape {
    enum { TAPE_FROM_SEED, TAPE_FROM_RECORD, TAPE_FROM_ENUM, TAPE_FROM_BYTES } source;
    bool recording;     /* keeps the choices in `mark`                 */
    bool out_of_memory; /* a recording or an enumeration is incomplete */
    struct rng rng, aside;
    const uint8_t *bytes;
    size_t bytes_left;
    struct tape_mark *mark;
    size_t count, room; /* choices kept                                                */
    size_t given;       /* record, enumeration: how many of them were fixed beforehand */
    size_t at;          /* the next one                                                */
    /* enumeration only */
    size_t depth_max;      /* choices past this many are 0            */
    size_t deviations_max; /* choices other than 0 in one run         */
    size_t deviations;     /* so far in this run                      */
    bool cut;              /* a bound left some sequence out          */
    bool narrow;           /* do not branch from the rest of this run */
};

void tape_init(struct tape *t);
void tape_free(struct tape *t);

/* Each starts a run from its beginning. */
void tape_from_seed(struct tape *t, uint64_t seed, bool record);
void tape_from_bytes(struct tape *t, const uint8_t *bytes, size_t count, bool record);
/* Plays `count` choices, then zeroes. `marks` is copied unless it is the tape's own recording. */
bool tape_from_record(struct tape *t, const struct tape_mark *marks, size_t count);

/*
 * Enumeration:
 *
 *     tape_enumerate(t, depth_max, deviations_max);
 *     do { run } while (tape_next(t));
 *
 * tries every sequence of choices whose first depth_max choices have at most deviations_max that
 * are not 0. Afterwards t->cut says whether these bounds left anything out.
 */
void tape_enumerate(struct tape *t, size_t depth_max, size_t deviations_max);
bool tape_next(struct tape *t);
/* Another run covers what follows in this one: choose 0 from here on, and do not branch. */
static inline void tape_narrow(struct tape *t)
{
    t->narrow = true;
}
/* Is the run past the choices that were fixed for it, where no run has been before? */
static inline bool tape_exploring(const struct tape *t)
{
    return t->at >= t->given;
}

uint32_t tape_choose_slowly(struct tape *t, uint32_t n, enum tape_label label);

/* The same from a stream of its own, if the choices come from a seed. So runs that have what is
 * chosen this way differ, and all other runs stay as they were. */
uint32_t tape_choose_aside(struct tape *t, uint32_t n, enum tape_label label);

/* A number in [0, n), n > 0. */
static inline uint32_t tape_choose(struct tape *t, uint32_t n, enum tape_label label)
{
    if (t->source == TAPE_FROM_SEED && !t->recording)
        return (uint32_t)rng_below(&t->rng, n);
    return tape_choose_slowly(t, n, label);
}

/* True in `part` of `of` cases. 0 < part < of; the uneventful answer is false. */
static inline bool tape_chance(struct tape *t, uint32_t part, uint32_t of, enum tape_label label)
{
    ASSERT(part > 0 && part < of);
    return tape_choose(t, of, label) >= of - part;
}

#endif
