/*
 * Checking an index: run it in the simulator, record what its clients saw, and judge that.
 *
 * One run sets up a small pool with small tables, lets several clients work on a few keys under the
 * adversary, stops the faults, lets the clients finish, and then asks:
 *
 *   - did every operation end, within a bound of verbs, once the faults had stopped?
 *   - was every value whole, and one that was written to that key?
 *   - can every status be explained?
 *   - did no client touch free memory, and is no memory in two places or lost?
 *   - does the index's own walker find its structure sound?
 *   - is the history, with the contents at the end, linearizable?
 *
 * A run is a function of its settings and its tape.
 */
#ifndef CHECK_H
#define CHECK_H

#include "check/lin.h"
#include "sim/sim.h"

#include <stdio.h>

#define CHECK_KEYS_MAX    64u
#define CHECK_OPS_MAX     256u /* of one client */
#define CHECK_CLIENTS_MAX SIM_CLIENTS_MAX
#define CHECK_STEPS_MAX   4u /* of one client in a program */
#define CHECK_TABLES_MAX  2u
#define CHECK_GROW_MAX    8u
/* Kinds of operations in programs: without exists, whose steps are a get's, and modify, whose steps
 * are an update's. */
#define CHECK_PROGRAM_KINDS LIN_EXISTS

struct check_settings {
    const char *index;
    unsigned clients, keys, ops; /* ops: of each client */
    unsigned adversity;
    enum sim_profile profile;
    uint64_t lin_budget;        /* steps per key; 0: a million */
    const struct site_aim *aim; /* NULL: none. Needs check_count_sites() */
    unsigned grow; /* programs: the table is about to be restructured for the n-th time */
    bool deletes_take_memory; /* so a full pool may stay full */
    bool tails;  /* nodes have second images that lag as marks allow, and lose one of the two */
    bool chains; /* each word is kept on two nodes (src/chain) */
};

/* A fixed program instead of a random workload: for enumeration. */
struct check_step {
    uint8_t kind; /* enum lin_kind */
    uint8_t key;
};
struct check_program {
    unsigned present; /* keys that the table has at first, a bit each */
    struct check_step step[CHECK_CLIENTS_MAX][CHECK_STEPS_MAX];
};

#define CHECK_VERDICTS(X)                                                                          \
    X(PASSED, "passed")                                                                            \
    X(UNDECIDED, "undecided")                                                                      \
    X(NOT_LINEARIZABLE, "not linearizable")                                                        \
    X(BAD_VALUE, "bad value")                                                                      \
    X(BAD_STATUS, "bad status")                                                                    \
    X(NOT_LIVE, "not live")                                                                        \
    X(BAD_MEMORY, "bad memory")                                                                    \
    X(BAD_STRUCTURE, "bad structure")                                                              \
    X(NO_SETUP, "set-up failed")

enum check_verdict {
#define CHECK_X(name, text) CHECK_##name,
    CHECK_VERDICTS(CHECK_X)
#undef CHECK_X
        CHECK_VERDICT_COUNT
};
const char *check_verdict_name(enum check_verdict verdict);

/* What a run was like, and what happened in it besides faults. */
struct check_coverage {
    uint64_t restructured;         /* parts of tables that clients replaced by others            */
    uint64_t longest_line;         /* of restructurings, each of a part that the one before made */
    uint64_t nodes, grown_nodes;   /* of the pool; those that got new parts of tables            */
    uint64_t tables, ring;         /* how many tables, and operations of a client in flight      */
    uint64_t opened, closed;       /* sessions, by clients at work                               */
    uint64_t closed_parked, parks; /* sessions closed while parked; all parkings                 */
    uint64_t attached;             /* tables, by a session's first operation on them             */
    uint64_t exists, modified;     /* operations of these kinds                                  */
    uint64_t iterated;             /* tables, completely                                         */
    uint64_t scanned;              /* ranges of ordered tables, completely                       */
    uint64_t locks;                /* taken by masked CAS                                        */
    uint64_t recovered, redone;    /* locks freed by dead clients' journals; changes made        */
    uint64_t cached_fresh, cached_doubted; /* entries of a cache of addresses that were found */
    uint64_t cached_changes;               /* objects replaced that such entries name         */
    uint64_t dropped, found_gone;          /* tables; operations that found theirs dropped    */
    uint64_t checked, repaired;            /* tables or pools, by clients at work             */
    uint64_t found_full; /* operations that found the pool full                                  */
    bool room_made;      /* a pool that was full had room when all keys had been deleted          */
    uint64_t lagged, lagged_pending; /* parts met three or more versions behind; with one pending */
    uint64_t handles_closed, handles_freed; /* handles of tables, by clients at work          */
    uint64_t slept;        /* clients that slept while others worked, and went on              */
    uint64_t emptied;      /* pools whose tables were all dropped and made again               */
    uint64_t joined, rode; /* changes that others made needless; that others carried out  */
    uint64_t left;         /* that have lost patience with others                         */
    uint64_t members_changed, voters_killed; /* in pools with voters */
    uint64_t stopped; /* clients that stopped within a WRITE for longer than a lease      */
    bool struck, struck_again; /* a fault at a chosen place, and one in a recovery after it */
    bool growing, mcas_emulated, no_fence;
    bool lives;     /* without a fence, and it is known which processes live */
    bool grew;      /* a part was replaced before the inspection */
    bool accounted; /* every byte was accounted for before the sweep */
};

struct check_result {
    enum check_verdict verdict;
    char what[512]; /* the failure in words; empty when passed                */
    uint64_t trace; /* hash of the run                                        */
    bool calmed;    /* the adversary was stopped before the clients were done */
    uint64_t operations, gave_up, unknown, lin_steps;
    uint64_t reused, sweeps, reaped; /* objects, sweeps completed, dead clients recovered */
    struct check_coverage coverage;
    struct sim_counts counts;
};

/* The index of the runs of a seed when all indexes share the seeds. */
const char *check_index_of(uint64_t seed);

struct check; /* a harness, for many runs */

struct check *check_new(void); /* NULL when out of memory */
void check_free(struct check *c);

/* Counts in all runs from here on what happens at each site. NULL: not. */
void check_count_sites(struct check *c, struct sites *sites);

/* One run: of a program, by_choice, or of a random workload from the tape if `program` is NULL. */
void check_run(struct check *c, const struct check_settings *s, const struct check_program *program,
               struct tape *tape, struct check_result *result);
/* The same from a seed. */
void check_seed(struct check *c, const struct check_settings *s, uint64_t seed,
                struct check_result *result);

/* Prints the last run: its time line if one was kept, and for a history that is not linearizable
 * the operations of the key. */
void check_keep_log(struct check *c, bool keep);
void check_print(const struct check *c, FILE *out);

void check_add_counts(struct sim_counts *sum, const struct sim_counts *one);

/* Totals over many runs. Of each: its name, its name in JSON, and what one run adds to it. */
#define CHECK_TOTALS(X)                                                                            \
    X(runs, "runs", 1)                                                                             \
    X(restructured, "restructurings", one->restructured)                                           \
    X(grew, "runs_with_growth", one->grew) /* before the inspection */                             \
    X(cascades, "runs_with_cascades",                                                              \
      one->longest_line > 1) /* a restructured part is restructured again */                       \
    X(rings, "runs_with_growth_and_ring",                                                          \
      one->ring > 1 && one->restructured > 0) /* several operations of a client in flight */       \
    X(nodes, "runs_with_growth_on_nodes", one->grown_nodes > 1) /* on several of them */           \
    X(tables, "runs_with_two_tables", one->tables > 1)                                             \
    X(emulated, "runs_with_emulated_mcas", one->mcas_emulated)                                     \
    X(unfenced, "runs_without_fence", one->no_fence)                                               \
    X(accounted, "runs_accounted_for", one->accounted) /* every byte, before the sweep */          \
    X(opened, "sessions_opened", one->opened)                                                      \
    X(closed, "sessions_closed", one->closed)                                                      \
    X(closed_parked, "sessions_closed_parked", one->closed_parked)                                 \
    X(parks, "parkings", one->parks)                                                               \
    X(attached, "tables_attached", one->attached)                                                  \
    X(exists, "exists", one->exists)                                                               \
    X(modified, "modified", one->modified)                                                         \
    X(iterated, "iterated", one->iterated)                                                         \
    X(locks, "locks_taken", one->locks)                                                            \
    X(recovered, "locks_recovered", one->recovered) /* by journal lines */                         \
    X(redone, "changes_redone", one->redone)                                                       \
    X(cached_fresh, "cache_entries_fresh", one->cached_fresh)                                      \
    X(cached_doubted, "cache_entries_doubted", one->cached_doubted)                                \
    X(cached_changes, "cached_objects_replaced", one->cached_changes)                              \
    X(scanned, "scanned", one->scanned)                                                            \
    X(dropped, "tables_dropped", one->dropped)                                                     \
    X(found_gone, "operations_on_dropped_tables", one->found_gone)                                 \
    X(checked, "checks", one->checked) /* of tables or the pool, beside others */                  \
    X(repaired, "repairs", one->repaired)                                                          \
    X(slept, "sleepers", one->slept)                                                               \
    X(emptied, "pools_emptied", one->emptied)                                                      \
    X(stopped, "stopped_within_a_write", one->stopped)                                             \
    X(members_changed, "members_changed", one->members_changed)                                    \
    X(voters_killed, "voters_killed", one->voters_killed)                                          \
    X(joined, "changes_joined", one->joined)                                                       \
    X(rode, "changes_that_rode", one->rode)                                                        \
    X(left, "changes_that_left_a_group", one->left)                                                \
    X(lives, "runs_with_known_processes", one->lives)                                              \
    X(found_full, "operations_in_a_full_pool", one->found_full)                                    \
    X(room_made, "full_pools_with_room_again", one->room_made)                                     \
    X(lagged, "parts_three_versions_behind", one->lagged)                                          \
    X(lagged_pending, "parts_three_versions_behind_one_pending", one->lagged_pending)              \
    X(handles_closed, "handles_closed", one->handles_closed)                                       \
    X(handles_freed, "handles_freed", one->handles_freed)                                          \
    X(struck, "faults_at_chosen_places", one->struck)                                              \
    X(struck_again, "faults_in_recoveries_after_them", one->struck_again)

struct check_totals {
#define CHECK_X(name, text, of_one) uint64_t name;
    CHECK_TOTALS(CHECK_X)
#undef CHECK_X
};
void check_add_coverage(struct check_totals *sum, const struct check_coverage *one);

/* Forgets the states that an enumeration has visited, before the next program. */
void check_forget_states(struct check *c);

/* ---- shrinking ------------------------------------------------------------------------------- */

struct check_shrunk {
    struct check_settings settings;
    uint64_t seed;  /* with these settings it fails alike: the two are enough to run it again */
    size_t choices; /* of its shrunk tape that are not 0 */
    unsigned runs;  /* that shrinking took */
};

/*
 * Looks for a smaller run with the same verdict: fewer clients, operations, keys and kinds of
 * adversity, then fewer eventful choices. check_print() then shows the smallest run. Takes at most
 * `runs_max` runs.
 */
void check_shrink(struct check *c, const struct check_settings *s, uint64_t seed,
                  const struct check_result *failed, unsigned runs_max, struct check_shrunk *out);

/* ---- enumeration ----------------------------------------------------------------------------- */

struct check_exhausted {
    uint64_t programs, runs, states;
    uint64_t grown;            /* programs that restructured in some run       */
    uint64_t calmed;           /* runs whose retries were cut short            */
    bool complete;             /* except for those, no bound left anything out */
    struct check_result first; /* that did not pass, if any                    */
    struct check_program program;
    uint64_t failed, undecided;
    struct sim_counts counts; /* summed */
    struct check_totals totals;
    uint64_t operations;
};

/* How many programs an enumeration with these settings has; UINT64_MAX: too many. */
uint64_t check_programs(const struct check_settings *s);

/*
 * Runs every program of `ops` operations for each of `clients` on `keys` keys, with each key
 * present or absent at first, under every schedule with at most `deviations` switches (SIZE_MAX:
 * all). Programs that differ only in the order of clients count as one. With `grow`, the table is
 * filled until the next key restructures it for the grow-th time, and one client more puts that
 * key. Stops a program after runs_max runs, and everything when go_on() returns false; then it is
 * not complete. go_on may be NULL.
 */
void check_exhaust(struct check *c, const struct check_settings *s, size_t deviations,
                   uint64_t runs_max, bool (*go_on)(void *arg, const struct check_exhausted *x),
                   void *arg, struct check_exhausted *out);

#endif
