/*
 * What the files of the harness share. Each calls only those above it in this list:
 *
 *   check_verdict.c  how a run failed, and which statuses of operations can be explained
 *   check_ops.c      keys, values and operations: what is called, and what becomes of it
 *   check_scan.c     scans of ordered tables
 *   check_lock.c     a lock made of masked CAS
 *   check_journal.c  locks with journals, several at once
 *   check_drop.c     tables that are dropped while others use them
 *   check_handle.c   handles of a table that are closed while others use it
 *   check_pool.c     memory and dead clients: what clients do about them, and what must be true
 *   check_repair.c   checks and repairs of the pool while others work
 *   check_cache.c    a structure whose clients keep addresses in a cache
 *   check_plan.c     what kind of run it is
 *   check_twist.c    what half of the runs have besides
 *   check_tables.c   makes the tables, in the end of some runs once more
 *   check_client.c   what clients do: operations, parking, closing, opening, sweeping
 *   check_setup.c    a pool and tables, filled until they are about to grow, and clients
 *   check.c          a run from its plan to its verdict
 */
#ifndef CHECK_INTERNAL_H
#define CHECK_INTERNAL_H

#include "pool/pool_internal.h" /* the checks look into clients */
#include "check/check.h"
#include "check/shadow.h"
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
#define KEY_SHAPES      4u
#define TUNINGS         5u
#define NODES_MAX       3u
#define SPLITS_KNOWN    3u
#define RING_MAX        3u
#define PARTS_MAX       128u
#define INDEXES_MAX     8u /* of a build */
#define SHORT_LIVED_MAX 8u
#define CONCURRENT_MAX  10u /* operations in flight on rings: the checker's time grows with it */

/* What kind of run it is: chosen for every run, so that rare things are common. Written by
 * check_plan.c and check_twist.c, except for iterates, scans and repairs, which are numbers of
 * times. */
struct plan {
    struct knobs knobs;
    unsigned hash_mask, hash_seed; /* which of those in check_plan.c */
    unsigned granule, nodes, ring;
    unsigned tables;         /* keys are dealt to them in turn                         */
    const char *other_index; /* of the second table                                    */
    unsigned other;          /* its number, counted from the first table's index       */
    unsigned cold;           /* additional keys, which clients add to make tables grow */
    unsigned growers;        /* additional clients of a program, which add such a key  */
    unsigned latecomers;     /* additional clients, which come when others may be gone */
    bool open_in_client;     /* clients open their sessions while others are at work   */
    bool tight;              /* the pool is so small that its chunks run out           */
    bool wraps;              /* counters that wrap around start just before they do    */
    bool no_fence;           /* clients watch their leases themselves                  */
    bool no_mcas;            /* batches emulate masked CAS                             */
    bool locks;              /* clients take locks, now and then                       */
    bool upkeep;             /* they reap dead clients and sweep, now and then         */
    bool drives_epochs;      /* they drive the epochs on                               */
    bool parks;              /* they are parked now and then, as if they had been idle */
    bool reopens;            /* they are idle, or close their sessions and open others */
    bool iterates;           /* a client iterates over a table, once                   */
    bool scans;              /* a client scans a range of an ordered table, once       */
    bool shrinks;            /* ordered tables have many keys, and clients delete most */
    bool drops;              /* clients use a table that they drop and make again      */
    unsigned repairs;        /* how often a client checks or repairs the pool          */
    bool focus;              /* most operations are on one key                         */
    bool caches;             /* clients use a structure through a cache of addresses   */
    bool versions;           /* that structure has a version word                      */
    /* check_twist.c: */
    unsigned tuning;     /* which of the index's small ones: see tuning_varied() */
    bool crowded;        /* the registry has hardly more slots than there are clients            */
    unsigned key_shape;  /* which bytes keys share: see check_key_bytes() */
    bool alike;          /* all values have the same length, so freed memory suits any of them */
    bool dawdles;        /* iterations and scans take long, and a call reads little            */
    bool stalks;         /* clients that shut out another die or pause soon                    */
    bool aims;           /* a fault strikes at a place in the source                           */
    bool stops;          /* clients stop within WRITEs, for longer than their leases            */
    bool lives;          /* without a fence: it is known which processes live                   */
    bool empties;        /* in the end all tables are emptied and dropped                      */
    unsigned processes;  /* that clients belong to; 0: each is one                             */
    unsigned sleeps_at;  /* client 0 sleeps after that many operations; 0: it does not         */
    unsigned sleeps_for; /* until the others have done that many                           */
    bool votes;          /* all nodes are voters at first                                      */
    bool restarts;       /* voters are killed; else they are put out                           */
    bool sleeps_parked;
    bool stuffed;      /* the pool is full when the clients start */
    bool closes;       /* clients open and close a handle of a table */
    bool lags;         /* tables grow by keys of one half of all hashes: see check_rests() */
    unsigned laggards; /* the first cold keys, which are of both halves */
    unsigned weight[LIN_KINDS], weight_sum;
};

struct check_client {
    struct check *check;
    unsigned id;
    unsigned errors; /* of the fabric, in its operations */
    unsigned opened; /* sessions so far */
    bool late;
    far_session *session;
    struct check_cache *cache; /* of the session; NULL until it is used */
    far_table *handle;         /* of check_handle.c; NULL: it has none open */
};

/* Parts of tables that appeared while clients were at work. */
struct growth {
    struct growth_watch watch;
    unsigned parts;
    struct {
        gaddr at;
        unsigned line; /* restructurings from an original part to this one */
    } part[PARTS_MAX];
    unsigned nodes; /* that got parts, a bit each */
};

/* The lock of check_lock.c, as far as the harness knows. */
struct lock_account {
    uint64_t tickets, tickets_unsure;   /* additions that were made, and that may have been */
    uint64_t sections, sections_unsure; /* likewise, critical sections                      */
};

/* What check_members.c knows of pools with voters. */
#define VIEWS_MAX 64u
struct members_account {
    uint64_t sum[VIEWS_MAX]; /* of what clients knew in each view; 0: none knew it  */
    unsigned newest;
    bool counts[NODES_MAX]; /* in the newest view the node votes, in its present life */
    unsigned lives;
};

#define CHECK_CELLS 4u /* on every node */
/* The cells of check_journal.c, and the functions of the pool that it replaces. */
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

/* A table that clients drop, as far as the harness knows. */
struct short_lived {
    far_table *table;
    bool begun;     /* a client has begun to drop it */
    bool contended; /* another has begun after that  */
    bool dropped;   /* a drop has returned FAR_OK    */
};

/* The handle of check_handle.c, as far as the harness knows. */
struct handle_account {
    unsigned opened;  /* less how often it was closed */
    unsigned closing; /* sessions that clients have begun to close */
};

/* Each part is written by one file, except for what the result counts. */
struct check {
    /* check.c */
    struct sim *sim;
    struct lin_checker *lin;
    const struct check_settings *set;
    const struct check_program *program;
    struct tape *tape;
    struct tape own_tape;
    struct sites *sites;     /* NULL: not counted */
    struct sites *own_sites; /* for aims, if they are not */
    struct lin_result lin_result;
    bool keep_log;
    struct check_result result; /* its verdict: check_verdict.c */

    /* check_ops.c */
    struct lin_history history; /* scans: check_scan.c */
    uint8_t *key_of;            /* by value: the key that it was written to */
    uint32_t values;
    uint32_t called[CHECK_CLIENTS_MAX + 1];
    uint64_t returned; /* a hash of the set of operations that have returned */
    uint64_t interval; /* a hash: which had returned when each was called    */

    /* the files of these names */
    struct plan plan;
    struct lock_account lock;
    struct members_account members;
    struct journal_account journal;
    struct cached_structure cache;
    struct short_lived short_lived[SHORT_LIVED_MAX]; /* of the same name; the newest is the last */
    unsigned short_lived_count;
    struct handle_account handle; /* closing: check_client.c */

    /* check_setup.c */
    struct sim_settings sim_set;
    struct shadow shadow;
    struct growth growth;
    far_pool *pool;
    far_session *session; /* of the harness */
    uint64_t empty_bytes; /* of the pool, before anything is put: check_tables.c */
    far_table *table[CHECK_TABLES_MAX];
    unsigned clients; /* with the latecomers */
    unsigned keys;    /* hot and cold        */
    /* After how many cold keys tables of this kind grow: known from a first filling. */
    const char *grown_index;
    unsigned grown_keys;
    uint8_t grows_at[1 + INDEXES_MAX][NODES_MAX][HASH_MASKS][HASH_SEEDS][KEY_SHAPES][TUNINGS]
                    [SPLITS_KNOWN];
    /* The same of the last program's table. */
    struct {
        const char *index;
        unsigned clients, keys, grow, present, cold;
    } grown_program;

    /* check_client.c, once the run is set up */
    struct check_client client[CHECK_CLIENTS_MAX];
    unsigned next_cold; /* the next cold key that no client has added yet */
    unsigned walks;     /* that clients have begun and not ended: check_repair.c */
};
_Static_assert(KEYS_MAX <= UINT8_MAX, "a key's number is a byte in key_of and grows_at");

/* The run that a pool belongs to. */
static inline struct check *check_of(const struct pool *pool)
{
    return (struct check *)((char *)(uintptr_t)pool->knobs.growth_watch -
                            offsetof(struct check, growth));
}

/* ---- check_verdict.c ------------------------------------------------------------------------- */

/* Fails the run, and says what was found and what was expected. The first failure is the
 * verdict. */
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
/* One of the two: a failure that needs no mistake. */
bool check_is_explained(const struct check *c, int status);
/* The same for an operation that changes nothing: it is never of unknown outcome. */
bool check_read_is_explained(const struct check *c, int status);

/* ---- check_ops.c ----------------------------------------------------------------------------- */

struct pending_op { /* an operation under way           */
    size_t place;   /* in the history                   */
    uint64_t name;  /* does not depend on other clients */
    enum lin_kind kind;
    unsigned key;
    char key_bytes[KEY_BYTES_MAX];
    uint8_t value[VALUE_MAX], got[VALUE_MAX];
    bool removes; /* modify: it removes the key */
    bool saw;     /* modify: it saw a value, of saw_len bytes */
    size_t saw_len;
    struct far_op op;
};

/* The table that a key belongs to, and its bytes there. Keys of two tables have the same bytes. */
far_table *check_table_of(const struct check *c, unsigned key);
size_t check_key_bytes(const struct check *c, unsigned key, char *bytes);
/* Is the key in the half of all hashes that rests while tables grow? By the lowest bit of the hash,
 * by which tables divide their keys first. */
bool check_rests(const struct check *c, unsigned key);
/* The seed of the hash of a table of the run. */
uint64_t check_hash_seed(const struct check *c, unsigned table);
size_t check_value_bytes(const struct check *c, uint32_t number, uint8_t *bytes);

/* Notes the call of an operation and fills in what is submitted. */
void check_note_call(struct check *c, unsigned client, enum lin_kind kind, unsigned key,
                     struct pending_op *d);
/* Notes how it ended. */
void check_note_return(struct check *c, const struct pending_op *d, int status, size_t len);
/* Both, with the operation between them. */
int check_execute(struct check *c, far_session *session, unsigned client, enum lin_kind kind,
                  unsigned key);

/* The number of a value that was read; LIN_ABSENT, and the run fails, if it is a bad value. */
uint32_t check_judge_value(struct check *c, unsigned key, const uint8_t *bytes, size_t len);

/* A whole iteration over one of the tables. */
int check_iterate(struct check *c, struct check_client *me);

/* Between two calls of an iteration or a scan: lets others change the table, if that is planned. */
void check_dawdle(struct check *c);

/* The number of a key of the table; KEYS_MAX or more if there is none such. */
unsigned check_find_key(const struct check *c, unsigned table, const struct far_entry *e);

/* ---- check_scan.c ---------------------------------------------------------------------------- */

/* Is there a table to scan? */
bool check_can_scan(const struct check *c);
/* A scan of a range of one of the ordered tables, to its end. */
int check_scan(struct check *c, struct check_client *me);

/* ---- check_lock.c ---------------------------------------------------------------------------- */

/* A client tries to take the lock. Returns a status only for counting errors of the fabric; so do
 * the others below. */
int check_lock_try(struct check *c, struct check_client *me);
/* With no client at work: was everything counted, once? */
void check_lock_audit(struct check *c);
/* Does a counter say what is sure, and at most also what is unsure? */
bool check_is_counted(uint64_t counted, uint64_t sure, uint64_t unsure);
/* Fail the run if the counters behind a lock differ when it is taken, or if it was not freed. */
void check_counters(struct check *c, const struct check_client *me, uint64_t first,
                    uint64_t second);
void check_freed(struct check *c, const struct check_client *me, bool freed, uint64_t lock);

/* ---- check_journal.c ------------------------------------------------------------------------- */

int check_journal_set_up(struct check *c);
/* A client tries to take the locks of several cells. */
int check_journal_try(struct check *c, struct check_client *me);
/* With all dead clients recovered: is every lock free, and was everything counted, once? */
void check_journal_audit(struct check *c);

/* ---- check_drop.c ---------------------------------------------------------------------------- */

/* Makes the first short-lived table, if the plan has any. */
int check_drop_set_up(struct check *c, far_session *session);
/* A client uses such a table, drops it, or makes it again under the same name. */
int check_drop_use(struct check *c, struct check_client *me);
/* With no client at work: are all drops completed, and are dropped tables gone? */
void check_walk_tables(struct check *c, far_session *fresh);
void check_chain_audit(struct check *c);
void check_chain_alone(struct check *c);
void check_drop_audit(struct check *c, far_session *fresh);

/* ---- check_handle.c -------------------------------------------------------------------------- */

/* Makes the table, if the plan has it. */
int check_handle_set_up(struct check *c, far_session *session);
/* A client opens its handle, closes it, or does an operation by it. */
int check_handle_use(struct check *c, struct check_client *me);
/* With no client at work: closes all. Is the handle gone when no session keeps the table? */
void check_handle_audit(struct check *c);

/* ---- check_pool.c ---------------------------------------------------------------------------- */

/* Set counters to just before they wrap around: the lists' tags of a new pool, and a new session's
 * counters. */
void check_wrap_lists(struct check *c);
void check_wrap_client(far_session *session);
/* Drives the epochs on, and takes what may be reused into the stock. */
int check_drive_epochs(struct check *c, struct op *op, unsigned turns);
/* A client reaps dead clients or sweeps. */
int check_reap_or_sweep(struct check *c, struct check_client *me);
/* How many verbs reaping, sweeping and waiting for memory may take besides operations. */
uint64_t check_pool_verbs(const struct check *c);
/* With no client at work: is no memory in two places, and is every loss known to a client? */
void check_memory_audit(struct check *c, far_session *fresh);
/* Adds what a session has done to the counts of the run. */
void check_count_session(struct check *c, const far_session *session);
/* Reaps all other clients and sweeps. Is every byte accounted for then? */
void check_sweep_audit(struct check *c, far_session *fresh);

/* ---- check_repair.c -------------------------------------------------------------------------- */

/* A client checks a table or the pool, or repairs the pool. */
int check_repair(struct check *c, struct check_client *me);

/* ---- check_members.c ------------------------------------------------------------------------- */

/* A client looks who votes, or changes that, or a voter is killed. */
int check_members_use(struct check *c, struct check_client *me);
void check_members_audit(struct check *c, far_session *session);

/* ---- check_cache.c --------------------------------------------------------------------------- */

/* Makes the structure in a new pool, and has it marked with the tables. */
int check_cache_set_up(struct check *c);
/* A client reads or changes something there. */
int check_cache_use(struct check *c, struct check_client *me);
/* Call it before the session is closed. */
void check_cache_close(struct check_client *me);

/* ---- check_plan.c ---------------------------------------------------------------------------- */

/* Chooses the kind of run. */
void check_plan(struct check *c);

/* ---- check_twist.c --------------------------------------------------------------------------- */

/* Adds to the plan, in half of the runs. `sites`: of the run; NULL: none. */
void check_twist(struct check *c, struct sites *sites);

/* ---- check_tables.c -------------------------------------------------------------------------- */

int check_create_tables(struct check *c, far_session *session);
/* Notes how many bytes a new pool with new tables holds. */
int check_empty_note(struct check *c);
/* Fills the pool with a table that nobody uses. */
int check_stuff(struct check *c, far_session *session);
/* With no client at work, in a small pool: drops that table, and deletes all keys. Is there room
 * then? */
void check_room_audit(struct check *c, far_session *fresh);
/* With no client at work: makes the tables again, and compares. */
void check_empty_audit(struct check *c, far_session *fresh);

/* ---- check_client.c -------------------------------------------------------------------------- */

int check_open_session(struct check *c, struct check_client *me);
/* What a client runs; the argument is its check_client. */
void check_client_run(void *arg);

/* ---- check_setup.c --------------------------------------------------------------------------- */

/* Makes the plan, the pool and the tables, and starts the clients. False if the run has failed. */
bool check_set_up(struct check *c, struct sites *sites);
void check_tear_down(struct check *c);

#endif
