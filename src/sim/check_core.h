/* What the files of the harness share: check.c (a run from an empty pool to a verdict),
 * check_pool.c (memory and dead clients: what clients do about them, and what must be true of
 * them). */
#ifndef SIM_CHECK_CORE_H
#define SIM_CHECK_CORE_H

#include "sim/check.h"
#include "sim/freemap.h"
#include "store/store.h"

#define COLD_KEYS_MAX 96u
#define KEYS_MAX      (CHECK_KEYS_MAX + COLD_KEYS_MAX)
#define HASH_SEEDS    8u
#define HASH_MASKS    4u
#define SPLITS_KNOWN  3u

/* What makes rare things common, chosen anew for every run. */
struct plan {
    struct knobs knobs;
    unsigned hash_mask, hash_seed; /* which of those below */
    unsigned granule, nodes, ring;
    unsigned cold; /* keys besides those asked for, which clients add to make the table grow */
    bool open_in_client;
    bool tight;    /* so small a pool that its chunks run out                               */
    bool wraps;    /* counters that come round start just before they do                    */
    bool no_fence; /* clients see to their leases themselves                                */
    bool upkeep;   /* clients bury dead ones and sweep, now and then                        */
    bool parks;    /* a client is parked now and then, as if it had been idle */
    bool focus;    /* most operations are on one key */
    unsigned weight[LIN_KINDS], weight_sum;
};

struct worker {
    struct check *check;
    unsigned id;
    unsigned errors; /* of the fabric, that its operations ended with */
    far_session *session;
};

struct check {
    struct sim *sim;
    struct lin_checker *lin;
    struct lin_history history;
    const struct check_settings *set;
    const struct check_program *program;
    struct tape *tape;
    struct tape own_tape;
    struct plan plan;
    struct sim_settings sim_set;
    struct freemap free;
    struct worker worker[CHECK_CLIENTS_MAX];
    far_pool *pool;
    far_session *session; /* the harness's own */
    far_table *table;
    struct check_result result;
    struct lin_report report;
    uint8_t *key_of; /* by value: the key that it was written to */
    uint32_t values;
    unsigned keys;  /* hot and cold                                 */
    unsigned fresh; /* the next cold key that nobody has added yet  */
    bool keep_log;
    /* After how many cold keys the table grows: what it does is known from a first filling. */
    const char *grown_index;
    unsigned grown_keys;
    uint8_t grows_at[HASH_MASKS][HASH_SEEDS][SPLITS_KNOWN];
    uint32_t called[CHECK_CLIENTS_MAX + 1];
    uint64_t returned; /* a hash of the set of operations that have returned */
    uint64_t interval; /* a hash of which had returned when each was called  */
};

/* check.c */

/* The first thing that goes wrong is the verdict. */
void check_condemn(struct check *c, enum check_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* May the fabric have failed? */
bool check_excused(const struct check *c, int status);

/* check_pool.c */

/* Chooses what a run does to the pool. */
void check_plan_pool(struct check *c);
/* Of a pool that has just been laid out: the lists' tags. Of a session that has just been opened:
 * its own counters. */
void check_wrap_lists(struct check *c);
void check_wrap_client(const struct check *c, far_session *session);
/* A client's turn at burying and sweeping. */
int check_upkeep(struct check *c, struct worker *w);
/* How many verbs that, and waiting for memory, may take beyond those of operations. */
uint64_t check_pool_verbs(const struct check *c);
/* With nobody at work: is no memory in two places? */
void check_audit(struct check *c, far_session *fresh);
/* Buries everybody else and sweeps: is then every byte accounted for? */
void check_settle(struct check *c, far_session *fresh);

#endif
