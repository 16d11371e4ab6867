/*
 * Sites: the places in the source that post verbs (batch_flush() in fabric/batch.h), and which
 * faults have struck at each.
 *
 * A fault strikes at a site if the client has a request under way that this site has posted. Not
 * every fault applies to every site: only what a site has posted so far says which do.
 */
#ifndef SIM_SITES_H
#define SIM_SITES_H

#include "fabric/fabric.h"

#define SITE_FAULTS(X)                                                                             \
    X(BEFORE, "before")   /* a client died when none of the verbs had begun                */      \
    X(BETWEEN, "between") /* some had taken effect, or a part of one                       */      \
    X(BEHIND, "behind")   /* all had, but the client did not get the answer                */      \
    X(STOPPED, "stopped") /* a client stopped for longer than its lease                    */      \
    X(TORN, "torn")       /* other clients ran between the pieces of a READ                */      \
    X(REUSED, "reused")   /* a verb took effect in memory that had been in use before      */      \
    X(UNKNOWN, "unknown") /* the request failed with an unknown outcome                    */

enum site_fault {
#define SITE_X(name, text) SITE_##name,
    SITE_FAULTS(SITE_X)
#undef SITE_X
        SITE_FAULT_COUNT
};
const char *site_fault_name(enum site_fault fault);

#define SITE_NONE      UINT32_MAX
#define SITE_WITNESSES 12u
#define SITE_OTHERS    3u

struct site {
    char name[96];    /* file:function, with a number if the function has several */
    const char *file; /* below src                                                */
    const char *function;
    unsigned line;
    uint64_t posts, met[SITE_FAULT_COUNT];
    unsigned applies; /* faults that apply, a bit each */
    /* Runs that have reached it: the first ones. */
    unsigned witnesses;
    struct site_witness {
        const char *index;
        uint64_t seed;
    } witness[SITE_WITNESSES];
};

/* A fault that a run is to meet: at the n-th post of a site, or a later one if it cannot strike
 * there. */
struct site_aim {
    uint32_t site; /* SITE_NONE: no aim */
    enum site_fault fault;
    unsigned skip;
};

struct sites {
    struct site *site; /* of the library, by name of the file and line */
    uint32_t count;
    /* How often has the memory that a verb names been in use: 0 if no client has ever allocated it.
     * NULL: not known. */
    unsigned (*uses)(void *arg, const struct fab_verb *verb);
    void *uses_arg;

    /* of the run */
    struct site_aim aim;
    bool aimed;           /* the fault has struck */
    struct site_aim then; /* another one, after that */
    bool again;           /* that one has struck */
    /* Sites that each of the two faults may strike at instead; SITE_NONE: none. */
    uint32_t others[2][SITE_OTHERS];
    uint64_t *posts_before;

    uint32_t *number; /* of each description in the program */
    uint32_t numbers;
};

/* All sites of the library that the program has. NULL when out of memory. */
struct sites *sites_new(void);
void sites_free(struct sites *s);

/* The number of a site; SITE_NONE if it is not the library's. */
uint32_t sites_number(const struct sites *s, const struct fab_site *site);
uint32_t sites_find(const struct sites *s, const char *name);

/* Brackets a run. aim may be NULL. */
void sites_begin(struct sites *s, const struct site_aim *aim);
void sites_end(struct sites *s, const char *index, uint64_t seed);
/* How often has this run posted at the site? */
uint64_t sites_posted(const struct sites *s, uint32_t site);

/* Is it a fault that a run can be aimed at? Whether memory is used again is for others to
 * decide. */
static inline bool site_fault_aimable(enum site_fault fault)
{
    return fault != SITE_REUSED;
}
/* Does the fault apply to the site, and how often was it met? */
static inline bool site_applies(const struct site *site, enum site_fault fault)
{
    return site->applies >> fault & 1;
}

#endif
