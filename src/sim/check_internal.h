/*
 * What the files of the harness share. Each calls only those above it in this list:
 *
 *   check_verdict.c  how a run failed, and which statuses of operations can be explained
 *   check_ops.c      keys, values and operations: what is called, and what becomes of it
 *   check_scan.c     scans of ordered tables
 *   check_lock.c     a lock made of masked CAS
 *   check_journal.c  locks with journals, several at once
 *   check_drop.c     tables that are dropped while others use them
 *   check_pool.c     memory and dead clients: what clients do about them, and what must be true
 *   check_cache.c    a structure whose clients keep addresses in a cache
 *   check_plan.c     what kind of run it is
 *   check_client.c     what clients do: operations, and between them parking, closing, opening, sweeping
 *   check_setup.c    a pool and tables, filled until they are about to grow, and clients
 *   check.c          a run from its plan to its verdict
 */
#ifndef SIM_CHECK_INTERNAL_H
#define SIM_CHECK_INTERNAL_H

#include "pool/pool_internal.h" /* the checks look into clients */
#include "sim/check.h"
#include "sim/shadow.h"
#include "store/store.h"

#define COLD_KEYS_MAX   160u
#define KEYS_MAX        (CHECK_KEYS_MAX + COLD_KEYS_MAX)
#define KEY_BYTES_MAX   (72 + KEYS_MAX / 6 + 1)
#define VALUE_MAX       416u
#define VALUES_MAX      (KEYS_MAX * 3 + 2 * CHECK_CLIENTS_MAX * CHECK_OPS_MAX + 1)
#define SEEN_MAX        (3 * KEYS_MAX) /* by the iteration of a run */
#define SCANNED_MAX     KEYS_MAX       /* by its scan: each key once */
#define HASH_SEEDS      4u
#define HASH_MASKS      7u
#define NODES_MAX       3u
#define SPLITS_KNOWN    3u
#define RING_MAX        3u
#define PARTS_MAX       128u
#define SHORT_LIVED_MAX 8u

/* What makes rare things common, chosen again for every run. */
struct plan {
    struct knobs knobs;
    unsigned hash_mask, hash_seed; /* which of those in check_plan.c */
    unsigned granule, nodes, ring;
    unsigned tables;         /* keys are dealt out to them in turn                          */
    const char *other_index; /* of the second table                                         */
    unsigned cold;       /* keys besides those asked for, which clients add to make tables grow   */
    unsigned latecomers; /* clients besides those asked for, which come when others may be gone   */
    bool open_in_client;
    bool tight;         /* so small a pool that its chunks run out                               */
    bool wraps;         /* counters that wrap around start just before they do                   */
    bool no_fence;      /* clients watch their leases themselves                                 */
    bool no_mcas;       /* masked CAS is emulated by the batches                                 */
    bool locks;         /* clients take a lock made of masked CAS now and then                   */
    bool upkeep;        /* clients reap dead ones and sweep, now and then                        */
    bool drives_epochs; /* clients drive the epochs on                                           */
    bool parks;         /* a client is parked now and then, as if it had been idle               */
    bool reopens;       /* clients are idle now and then, or close their sessions and open others */
    bool iterates;      /* a client walks through a table, once                                   */
    bool scans;    /* a client scans a range of an ordered table, once                        */
    bool drops;    /* clients use a table more that they drop, and make again                */
    bool focus;    /* most operations are on one key                                        */
    bool caches;   /* clients use a structure through a cache of addresses, now and then    */
    bool versions; /* and that structure has a version word                                 */
    unsigned weight[LIN_KINDS], weight_sum;
};

struct check_client {
    struct check *check;
    unsigned id;
    unsigned errors; /* of the fabric, that its operations ended with */
    unsigned opened; /* sessions so far */
    bool late;
    far_session *session;
    struct check_cache *cache; /* the session's; NULL until it is used */
};

/* Parts of tables that appeared while clients were at work. */
struct growth {
    struct growth_watch watch;
    unsigned parts;
    struct {
        gaddr at;
        unsigned line; /* restructurings from a part of before to this one */
    } part[PARTS_MAX];
    unsigned nodes; /* that got parts, a bit each */
};

/* The lock of check_lock.c, as far as the harness knows. */
struct lock_account {
    uint64_t tickets, tickets_unsure;   /* additions that were made, and that may have been */
    uint64_t sections, sections_unsure; /* likewise, critical sections                      */
};

#define CHECK_CELLS 4u /* on every node */
/* The cells of check_journal.c, and what stands behind it. */
struct journal_account {
    gaddr cells[NODES_MAX];
    uint64_t sections, unsure; /* critical sections that were finished, and that may have been */
    int (*recover)(void *arg, struct op *op, const struct journal_entry *entry);
    int (*mark)(void *arg, struct op *op, struct marker *marker);
};

/* The structure of check_cache.c. */
struct cached_structure {
    gaddr root;
    int (*mark)(void *arg, struct op *op, struct marker *marker); /* of the tables */
};

/* A table that is to be dropped, as far as the harness knows. */
struct short_lived {
    far_table *table;
    bool begun;     /* somebody has begun to drop it */
    bool contended; /* and then another              */
    bool dropped;   /* a drop has returned FAR_OK    */
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
    struct shadow free;
    struct growth growth;
    struct lock_account lock;
    struct journal_account journal;
    struct cached_structure cache;
    struct short_lived short_lived[SHORT_LIVED_MAX]; /* of the same name; the newest is the last */
    unsigned short_lived_count;
    struct check_client client[CHECK_CLIENTS_MAX];
    far_pool *pool;
    far_session *session; /* the harness's own */
    far_table *table[CHECK_TABLES_MAX];
    struct check_result result;
    struct lin_report report;
    uint8_t *key_of; /* by value: the key that it was written to */
    uint32_t values;
    unsigned clients;   /* late ones, too                             */
    unsigned keys;      /* hot and cold                               */
    unsigned next_cold; /* the next cold key that nobody has added yet  */
    bool keep_log;
    /* After how many cold keys the tables grow: known from a first filling of their like. */
    const char *grown_index;
    unsigned grown_keys;
    uint8_t grows_at[CHECK_TABLES_MAX][NODES_MAX][HASH_MASKS][HASH_SEEDS][SPLITS_KNOWN];
    uint32_t called[CHECK_CLIENTS_MAX + 1];
    uint64_t returned; /* a hash of the set of operations that have returned */
    uint64_t interval; /* a hash of which had returned when each was called  */
};

/* The run that a pool belongs to. */
static inline struct check *check_of(const struct pool *pool)
{
    return (struct check *)((char *)(uintptr_t)pool->knobs.growth_watch -
                            offsetof(struct check, growth));
}

/* ---- check_verdict.c ------------------------------------------------------------------------- */

/* Fails the run, and says what was found and what was expected. The first failure is the verdict. */
void check_fail(struct check *c, enum check_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, for a call that returned a status it must not return. */
void check_fail_status(struct check *c, enum check_verdict verdict, int status, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));

/* Is it an error of the fabric? */
bool check_fabric_failed(int status);
/* Is it one that this run's faults or delays can cause? */
bool check_is_excused(const struct check *c, int status);
/* Does it say that the operation had no effect, as farside.h has it? */
bool check_had_no_effect(const struct check *c, int status);
/* One of the two: a failure that is nobody's mistake. */
bool check_is_explained(const struct check *c, int status);

/* ---- check_ops.c ----------------------------------------------------------------------------- */

struct pending_op { /* an operation under way */
    size_t place;   /* in the history                    */
    uint64_t name;  /* the same whatever others do       */
    enum lin_kind kind;
    unsigned key;
    char key_bytes[KEY_BYTES_MAX];
    uint8_t value[VALUE_MAX], got[VALUE_MAX];
    bool saw; /* modify: a value, of so many bytes */
    size_t saw_len;
    struct far_op op;
};

/* The table that a key belongs to, and its bytes there: keys of two tables have the same. */
far_table *check_table_of(const struct check *c, unsigned key);
size_t check_key_bytes(const struct check *c, unsigned key, char *bytes);
size_t check_value_bytes(uint32_t number, uint8_t *bytes);

/* Notes the call of an operation and fills in what is submitted. */
void check_note_call(struct check *c, unsigned client, enum lin_kind kind, unsigned key,
                     struct pending_op *d);
/* Notes how it ended. */
void check_note_return(struct check *c, const struct pending_op *d, int status, size_t len);
/* Both, with the operation between them. */
int check_execute(struct check *c, far_session *session, unsigned client, enum lin_kind kind,
                  unsigned key);

/* The number of a value that was read, or LIN_ABSENT after condemning it. */
uint32_t check_judge_value(struct check *c, unsigned key, const uint8_t *bytes, size_t len);

/* A whole iteration over one of the tables. */
int check_iterate(struct check *c, struct check_client *me);

/* Which key of the table that is; KEYS_MAX or more if it is none. */
unsigned check_find_key(const struct check *c, unsigned table, const struct far_entry *e);

/* ---- check_scan.c ---------------------------------------------------------------------------- */

/* Is there a table to scan? */
bool check_can_scan(const struct check *c);
/* A scan of a range of one of the ordered tables, to its end. */
int check_scan(struct check *c, struct check_client *me);

/* ---- check_lock.c ---------------------------------------------------------------------------- */

/* A client's try at the lock. Its status is of no matter but to a client that counts errors. */
int check_lock_try(struct check *c, struct check_client *me);
/* With nobody at work: was everything counted, once? */
void check_lock_audit(struct check *c);
/* Does a counter say what is sure, and at most also what is unsure? */
bool check_is_counted(uint64_t counted, uint64_t sure, uint64_t unsure);
/* Fail the run if the counters behind a lock differ when it is taken, or if it was not freed. */
void check_counters(struct check *c, const struct check_client *me, uint64_t first,
                    uint64_t second);
void check_freed(struct check *c, const struct check_client *me, bool freed, uint64_t lock);

/* ---- check_journal.c ------------------------------------------------------------------------- */

int check_journal_set_up(struct check *c);
/* A client's try at several cells. Its status is of no matter but to a client that counts errors. */
int check_journal_try(struct check *c, struct check_client *me);
/* With all dead clients recovered: is no lock left, and was everything counted, once? */
void check_journal_audit(struct check *c);

/* ---- check_drop.c ---------------------------------------------------------------------------- */

/* Makes the first table that is to be dropped, if the plan has any. */
int check_drop_set_up(struct check *c);
/* A client's operation on such a table, or a drop, or a new one of the name. */
int check_drop_use(struct check *c, struct check_client *me);
/* With nobody at work: are drops that were left undone completed, and is what was dropped gone? */
void check_drop_audit(struct check *c, far_session *fresh);

/* ---- check_pool.c ---------------------------------------------------------------------------- */

/* Of a pool that has just been laid out: the lists' tags. Of a session that has just been opened:
 * its own counters. */
void check_wrap_lists(struct check *c);
void check_wrap_client(far_session *session);
/* Takes the epochs on, and what may be reused into the stock. */
int check_drive_epochs(struct check *c, struct op *op, unsigned turns);
/* A client's turn at reaping and sweeping. */
int check_reap_or_sweep(struct check *c, struct check_client *me);
/* How many verbs that, and waiting for memory, may take beyond those of operations. */
uint64_t check_pool_verbs(const struct check *c);
/* With nobody at work: is no memory in two places, and is what is lost known to be? */
void check_memory_audit(struct check *c, far_session *fresh);
/* Reaps everybody else and sweeps: is then every byte accounted for? */
void check_sweep_audit(struct check *c, far_session *fresh);

/* ---- check_cache.c --------------------------------------------------------------------------- */

/* Makes the structure in a new pool, by the harness's session, and has it marked with the tables. */
int check_cache_set_up(struct check *c);
/* A client reads or changes something there. Its status is of no matter but to a client that counts
 * errors. */
int check_cache_use(struct check *c, struct check_client *me);
/* Before the session is closed. */
void check_cache_close(struct check_client *me);

/* ---- check_plan.c ---------------------------------------------------------------------------- */

/* Chooses the kind of run. */
void check_plan(struct check *c);

/* ---- check_client.c ---------------------------------------------------------------------------- */

int check_open_session(struct check *c, struct check_client *me);
/* What a client runs; the argument is its worker. */
void check_client_run(void *arg);

/* ---- check_setup.c --------------------------------------------------------------------------- */

/* Makes the plan and the pool, with clients that are ready to start. False after
 * condemning. */
bool check_set_up(struct check *c);
void check_tear_down(struct check *c);

#endif
