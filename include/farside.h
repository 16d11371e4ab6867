/*
 * farside.h - key-value tables in far memory
 *
 * Farside keeps tables in memory that the calling program does not own: memory of other machines,
 * of a shared device, of another process, or (for tests and embedding) of this process. Programs
 * reach it with one-sided verbs only; nothing runs at the memory's side on the path of an
 * operation.
 *
 * The objects, from the outside in:
 *
 *   far_pool      a set of memory nodes, named by a URI. Shared by all threads of a process.
 *   far_table     a named table in a pool, kept by one of the index designs. Shared by all threads.
 *   far_session   one thread's right to work on a pool: its connections, its memory to allocate
 *                 from, its caches, its statistics. NOT thread-safe: one session, one thread.
 *
 * What a program can rely on
 *
 *   - Every operation on a key is linearizable: it takes effect at one instant between its call
 *     and its return, whatever other sessions do and however the table is growing meanwhile.
 *   - Keys and values are arbitrary bytes. Zero-length values and NUL bytes are ordinary.
 *   - A function that fails leaves its outputs untouched, unless it says otherwise.
 *   - A pointer that is NULL where something is needed gives FAR_INVALID, and the detail names it.
 *
 * Caveats
 *
 *   - After FAR_NODE_LOST part of the pool is gone for good: close it, and make it anew.
 *   - A session must be closed before its pool. Tables are closed with their pool.
 *   - Buffers handed to far_submit() belong to Farside until the operation has been reaped.
 *   - FAR_UNKNOWN means what it says: the connection broke while a change was under way, and the
 *     change may or may not have happened. Read the key to find out.
 *   - A session that is stopped in the middle of an operation for longer than the pool's lease (5
 *     s, or lease= in the URI) is taken for dead: so is one with submitted operations that nobody
 *     reaps. When it goes on, it registers again, and those operations are tried once more; one
 *     that is stopped again returns FAR_FENCED. It never damages anything. Idle sessions do not
 *     hold up others while their process is alive.
 *   - A pool that is open has a thread of its own, which sees to idle sessions. It receives no
 *     signals and calls nobody back.
 *   - A child of fork() cannot use its parent's pools: every call on them returns FAR_INVALID. It
 *     may close them, which frees its copies in local memory and touches nothing else, or leave
 *     them alone, and open pools of its own. (A child made by a bare clone() must do neither.)
 *
 * A first program is in README.md and in tests/e2e/example.c, a server with an event loop in
 * tests/e2e/server.c.
 */
#ifndef FARSIDE_H
#define FARSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAR_VERSION_MAJOR 0
#define FAR_VERSION_MINOR 1
#define FAR_VERSION_PATCH 0
#define FAR_VERSION       "0.1.0"

#if defined(__GNUC__)
#define FAR_API __attribute__((visibility("default")))
#else
#define FAR_API
#endif

/* ---------------------------------------------------------------------------------------------
 * Errors
 *
 * Every function that can fail returns 0 (FAR_OK) or one of these, all negative. far_strerror()
 * gives the text below; far_error_detail() gives what this thread's last call had to add (the
 * option that was not understood, the node that did not answer).
 */
#define FAR_ERRORS(X)                                                                              \
    X(NOT_FOUND, -1, "no such key")                                                                \
    X(EXISTS, -2, "the key is already there")                                                      \
    X(TOO_SMALL, -3, "the buffer is too small for the value")                                      \
    X(INVALID, -4, "invalid argument")                                                             \
    X(KEY_SIZE, -5, "the key is empty or longer than the limit")                                   \
    X(VALUE_SIZE, -6, "the value is longer than the limit")                                        \
    X(BAD_URI, -7, "the pool URI is not understood, or does not fit the pool")                     \
    X(NO_FABRIC, -8, "no such fabric in this build")                                               \
    X(NO_INDEX, -9, "no such index in this build")                                                 \
    X(NO_TABLE, -10, "no such table")                                                              \
    X(TABLE_EXISTS, -11, "a table of that name exists already")                                    \
    X(WRONG_INDEX, -12, "the table is kept by another index")                                      \
    X(NOT_A_POOL, -13, "there is no Farside pool there")                                           \
    X(LAYOUT, -14, "the pool has another layout version")                                          \
    X(CORRUPT, -15, "the pool's contents are damaged")                                             \
    X(POOL_FULL, -16, "the pool has no memory left")                                               \
    X(TABLE_FULL, -17, "the table cannot grow further")                                            \
    X(CATALOG_FULL, -18, "the pool has no room for another table")                                 \
    X(NO_CLIENT_SLOT, -19, "the pool has no room for another client")                              \
    X(FENCED, -20, "this client was declared dead and shut out")                                   \
    X(UNREACHABLE, -21, "a memory node cannot be reached")                                         \
    X(TIMEOUT, -22, "gave up waiting")                                                             \
    X(CONTENTION, -23, "gave up after losing to other clients too often")                          \
    X(UNSUPPORTED, -24, "not supported here")                                                      \
    X(BOUNDS, -25, "an address outside the pool's memory")                                         \
    X(UNKNOWN, -26, "the connection broke: the outcome is unknown")                                \
    X(NO_MEMORY, -27, "out of local memory")                                                       \
    X(SYSTEM, -28, "a system call failed")                                                         \
    X(RING_FULL, -29, "the ring has as many operations as its depth allows")                       \
    X(STOPPED, -30, "stopped by the caller")                                                       \
    X(REFUSED, -31, "the memory node does not let this client in")                                 \
    X(NODE_LOST, -32, "a memory node came back without its contents")                              \
    X(STARTED, -33, "the operation has started and goes on")

enum far_status {
    FAR_OK = 0,
#define FAR_X(name, value, text) FAR_##name = value,
    FAR_ERRORS(FAR_X)
#undef FAR_X
};

/* The text of a status; "unknown status" for a number that is none. Never NULL. */
FAR_API const char *far_strerror(int status);

/* The name of a status, such as "FAR_NOT_FOUND". Never NULL. */
FAR_API const char *far_errname(int status);

/*
 * far_error_detail - what the last call of this thread had to add to its status
 *
 * The last call is the last one that returned a status, or far_reap(). Its detail is "" if it
 * returned FAR_OK, and whenever there is nothing to add: always with FAR_NOT_FOUND, FAR_EXISTS and
 * FAR_TOO_SMALL. After far_reap() it is that of the last stored result that has one. Functions that
 * return nothing leave it as it is. The string stays valid until the thread's next call.
 */
FAR_API const char *far_error_detail(void);

/* The version of the library, such as "0.1.0". */
FAR_API const char *far_version(void);

/* ---------------------------------------------------------------------------------------------
 * Limits
 */
/* An index may hold less than FAR_KEY_MAX and FAR_VALUE_MAX say; then the detail of FAR_KEY_SIZE or
 * FAR_VALUE_SIZE says how much. `race` holds all of it. */
#define FAR_KEY_MAX     4096u      /* bytes; the shortest key has one byte */
#define FAR_VALUE_MAX   (4u << 20) /* bytes; the shortest value has none   */
#define FAR_NAME_MAX    63u        /* bytes of a table's name              */
#define FAR_DEPTH_MAX   1024u      /* operations of one session in flight  */
#define FAR_BACKLOG_MAX 65536u     /* and such as wait to be started       */

#define FAR_TUNING_MAX 255u /* bytes of a table's tuning, as far_table_info() has it */

/* ---------------------------------------------------------------------------------------------
 * Pools
 */
typedef struct far_pool far_pool;
typedef struct far_table far_table;
typedef struct far_session far_session;

/*
 * far_pool_open - open the pool that a URI names
 *
 * uri     mem:[?size=BYTES&nodes=N&clients=N&lease=MS]
 *             memory of this process, made anew by this call and gone with far_pool_close().
 *             size (default 4g) is that of each node; sizes take the suffixes k, m, g and t.
 *             nodes (default 1, at most 64), clients (default 256): how many memory nodes the
 *             pool has, and how many sessions may be open at once.
 *             lease (default 5000, 50 to 3600000): milliseconds of silence after which a session
 *             may be taken for dead.
 *         shm:NAME[?size=BYTES&nodes=N&clients=N&lease=MS]
 *             memory that the processes of this machine share, under a name of letters, digits,
 *             '.', '_' and '-': POSIX shared memory "/farside-NAME". It lives until it is removed
 *             (far_pool_remove()) or the machine restarts, whichever processes end or die.
 *         shm:/PATH[?size=BYTES&nodes=N&clients=N&lease=MS]
 *             the same in a file, or in a device that can be mapped (DAX, CXL). The pool in a
 *             file can be closed and opened again with its data. What a power failure leaves of
 *             it is not defined.
 *             With size, a pool that does not exist yet is made, and all of its memory is
 *             reserved; without, it must exist. What is made can be read and written by its
 *             owner only; who else may is set on the file. A file is used if it holds a pool, is
 *             empty, or holds nothing but zeros; anything else is refused and left alone. A
 *             device always needs size, and counts as unused if its first 8 bytes are zero. Devices
 *             without memory to share (/dev/zero, /dev/null, terminals), directories, pipes and
 *             sockets are refused.
 *             For a pool that exists, options can be left out, and must fit it if given.
 *         ucx://HOST:PORT[,HOST:PORT...][?timeout=MS&secret=FILE&mode=MODE&clients=N&lease=MS]
 *             memory of memory nodes (`farside memd`), reached over the network by UCX: up to 64,
 *             the same ones in the same order each time. Of those who open a pool that is not
 *             there yet, one makes it, and the others wait for it.
 *             timeout (default 5000): milliseconds after which a node that does not answer is given
 *             up. Operations that need it fail, with FAR_UNREACHABLE, FAR_TIMEOUT or FAR_UNKNOWN
 *             and its name in the detail; others go on. When it is there again with its contents,
 *             they succeed again; without, they fail with FAR_NODE_LOST.
 *             secret: a file with what the nodes want to be known, up to 1024 bytes; if it is not
 *             given, the file that the environment variable FARSIDE_SECRET_FILE names, or what
 *             FARSIDE_SECRET says. Nodes and clients prove to each other that they know it.
 *             mode: am sends batches in messages; rma uses UCX's put, get and atomics, which nodes
 *             offer only if they are told to (farside-memd(1)), even where UCX emulates them, which
 *             is for tests; auto, the default, uses those where all nodes offer them and UCX's
 *             transports do them by themselves.
 *         verbs://HOST:PORT[,HOST:PORT...][?timeout=MS&secret=FILE&clients=N&lease=MS]
 *             the same, reached by RDMA: the node's network card does the work. timeout is 50 to
 *             600000.
 * pool    set to the new handle
 *
 * FAR_BAD_URI      the URI or one of its options is not understood, or does not fit the pool
 * FAR_NO_FABRIC    the URI's scheme is not in this build
 * FAR_NOT_A_POOL   there is nothing, or the memory holds something else, or the nodes are not those
 *                  of one pool, all of them, in its order
 * FAR_LAYOUT       the pool was made by a version of Farside that lays memory out differently
 * FAR_CORRUPT      the superblock fails its checksum, or the file is not as long as it says
 * FAR_POOL_FULL    the memory is too small for a pool
 * FAR_TIMEOUT      another process is making the pool and does not finish, or a node does not
 *                  answer
 * FAR_UNREACHABLE  a node is not there; all of them have to be when a pool is opened
 * FAR_REFUSED      a node wants a secret and this one is not it, or the other way round
 * FAR_UNSUPPORTED  mode=rma and a node does not offer it; or a node leaves atomics to its network
 *                  card, and UCX has no way there
 * FAR_NO_MEMORY, FAR_SYSTEM
 */
FAR_API int far_pool_open(const char *uri, far_pool **pool);

/* Closes a pool and every table handle of it. All of its sessions must be closed. NULL is fine. In
 * a child of fork(), a pool of the parent: only local memory is freed. */
FAR_API void far_pool_close(far_pool *pool);

/*
 * far_pool_remove - remove the name or the file of a pool
 *
 * The URI is one that far_pool_open() takes; its options do not matter. Processes that have the
 * pool open can go on using it; its memory is freed when the last of them has closed it.
 *
 * FAR_NOT_A_POOL   there is nothing, or something that is not a pool; it is left alone
 * FAR_UNSUPPORTED  on mem:, and on devices: there is nothing to remove
 * FAR_BAD_URI, FAR_NO_FABRIC, FAR_TIMEOUT, FAR_SYSTEM
 */
FAR_API int far_pool_remove(const char *uri);

/* What a pool's memory is used for. Bytes of all nodes together. */
struct far_pool_info {
    unsigned nodes;
    unsigned layout_version;
    unsigned clients;     /* sessions open now, of all processes */
    unsigned clients_max; /* how many may be open at once        */
    unsigned tables;
    uint64_t bytes_total;     /* all of the nodes' memory                           */
    uint64_t bytes_metadata;  /* superblocks, catalog, registry, chunk tables       */
    uint64_t bytes_allocated; /* handed out to sessions in chunks, used or not      */
    uint64_t bytes_free;      /* never handed out: total - metadata - allocated     */
};

/* Fills info from the pool as it is now. FAR_CORRUPT, FAR_UNREACHABLE. */
FAR_API int far_pool_info(far_session *session, struct far_pool_info *info);

/* Where a pool's bytes are. They add up: total = metadata + live + retired + free + unknown. On a
 * pool that is being worked on the parts are of slightly different instants. */
struct far_pool_usage {
    uint64_t total;
    uint64_t metadata; /* superblocks, catalog, registry, chunk tables, unused ends of chunks */
    uint64_t live;     /* reached by the tables                                               */
    uint64_t retired;  /* replaced or deleted, waiting until nobody can be reading it         */
    uint64_t free;     /* never handed out, on the shared lists, or in sessions' hands        */
    uint64_t unknown;  /* the rest: what sessions that died had in hand, which
                          far_pool_check() with repair finds; and what other sessions have
                          moved since they last told (every 128 operations)                   */
};

/* Walks the pool to fill usage; takes time in proportion to it. FAR_CORRUPT, FAR_UNREACHABLE,
 * FAR_NO_MEMORY. */
FAR_API int far_pool_usage(far_session *session, struct far_pool_usage *usage);

/* What a check found. What a repair has put right is counted as repaired, not where it was found.
 */
struct far_pool_check {
    unsigned violations;   /* broken links, keys that are there twice, damaged structures        */
    unsigned stranded;     /* locks and unfinished work of sessions that are dead                */
    unsigned repaired;     /* with repair: of the two above, what was put right                  */
    unsigned dead_clients; /* sessions that were silent for longer than a lease; with repair, they
                              were cleared away                                                  */
    uint64_t leaked_bytes; /* memory that nobody has. What is unknown in far_pool_usage, if it is
                              certain that some is lost: sessions have died since the last repair,
                              or no other session is open                                        */
    uint64_t repaired_bytes; /* with repair: lost memory that is free again */
};

/* What a memory node says of itself: since its start, for all of its clients. */
struct far_node_info {
    char address[264]; /* as the pool's URI has it                        */
    uint64_t bytes;    /* of its memory                                   */
    uint64_t uptime_ms;
    uint64_t clients;  /* connections that are open now                   */
    uint64_t connects; /* that there ever were                            */
    uint64_t refused;  /* without the secret                              */
    uint64_t batches;  /* messages executed                               */
    uint64_t requests; /* batches of operations in them                   */
    uint64_t verbs, bytes_read, bytes_written;
    uint64_t rejected; /* messages that made no sense                     */
    uint64_t fences;   /* clients that were declared dead and shut out    */
    uint64_t fenced;   /* messages of such clients that were not executed */
};

/* Asks the node, from 0 on. FAR_INVALID: no such node. FAR_UNSUPPORTED: the pool's memory is not
 * kept by memory nodes that could be asked. FAR_UNREACHABLE, FAR_TIMEOUT. */
FAR_API int far_node_info(far_session *session, unsigned node, struct far_node_info *info);

/*
 * far_pool_check - check a pool, and repair it
 *
 * Walks superblock, registry, catalog, every table and every block, lists of free memory and chunk
 * tables, while others go on working. Each finding is handed to `report` (may be NULL) as a line of
 * text. Takes time in proportion to the pool, and up to two leases if a session is silent; see
 * far_session_watch().
 *
 * With repair,
 *   - sessions that were silent for longer than a lease are shut out and their unfinished work is
 *     completed (one that was only stopped registers anew with its next operation);
 *   - a slot whose block cannot be read (an address outside of the pool, a checksum that fails) is
 *     emptied: the key was lost before, and can be written again;
 *   - a key in a place where it is not looked for is put where it belongs, unless it is there;
 *   - of a key that is there twice, the one stays that far_get() returns;
 *   - memory that nothing reaches and nobody has becomes free.
 * A table whose directory is damaged is left as it is, and so is all lost memory then.
 *
 * FAR_OK: no structure is damaged (or not any more); stranded and leaked_bytes say what else there
 * is. FAR_CORRUPT: something is damaged; `check` is filled.
 * FAR_TIMEOUT: a session holds up the repair. FAR_STOPPED, FAR_UNREACHABLE, FAR_NO_MEMORY.
 */
FAR_API int far_pool_check(far_session *session, bool repair,
                           void (*report)(void *arg, const char *line), void *arg,
                           struct far_pool_check *check);

/* ---------------------------------------------------------------------------------------------
 * Sessions
 */
struct far_session_options {
    unsigned depth; /* operations in flight with far_submit(); 0 means 32, at most FAR_DEPTH_MAX */
    uint64_t seed;  /* of the session's random choices; 0 takes one from the clock             */
    /* How many operations far_submit() takes beyond depth, at most FAR_BACKLOG_MAX; 0: none. They wait,
     * and start in their order as results are reaped. */
    unsigned backlog;
};

/*
 * far_session_open - register this thread as a client of the pool
 *
 * options may be NULL.
 *
 * FAR_INVALID         depth over FAR_DEPTH_MAX, backlog over FAR_BACKLOG_MAX, or the pool was opened
 *                     before fork()
 * FAR_NO_CLIENT_SLOT  the pool has as many clients as it has room for
 * FAR_NO_MEMORY, FAR_UNREACHABLE
 */
FAR_API int far_session_open(far_pool *pool, const struct far_session_options *options,
                             far_session **session);

/*
 * far_session_watch - follow calls that take long
 *
 * far_pool_check(), far_pool_usage(), far_table_check(), far_table_info() and far_table_drop() of this
 * session call `progress` now and then, with what they are at and how much of it is done. If it returns false,
 * the call ends soon, with FAR_STOPPED, and leaves everything in order. NULL: nobody is told. A
 * NULL session is ignored.
 */
FAR_API void far_session_watch(far_session *session,
                               bool (*progress)(void *arg, const char *what, uint64_t done,
                                                uint64_t total),
                               void *arg);

/* Ends the session. Operations still in flight are finished first, as are those of the backlog, and
 * their results dropped. Memory that it has freed and that others may still be reading is waited for:
 * mostly not at all, for half a second if another session was used just now, for two leases if one
 * stands still in an operation, and longer only if memory was lost and has to be looked for. NULL is
 * fine.
 * In a child of fork(), a session of the parent: only local memory is freed.
 * A process that ends without this, by a signal for instance, leaves its sessions behind: others take
 * them for dead after their lease, and what they had is found by a sweep. */
FAR_API void far_session_close(far_session *session);

/* ---------------------------------------------------------------------------------------------
 * Tables
 */
struct far_table_options {
    uint64_t expected_keys; /* room to start with; the table grows past it. 0: start small */
    uint64_t hash_seed;     /* 0 takes one from the session's random numbers               */
    const char *tuning;     /* numbers of the index's own: see below. NULL, "": as usual   */
};

/*
 * far_table_create - make a new table
 *
 * name    1 to FAR_NAME_MAX bytes, no NUL, no control characters
 * index   "race"
 * options may be NULL
 *
 * options->tuning is text, such as "groups=85": name=number, joined by '&'. Numbers take the
 * suffixes k, m, g and t, for powers of 1024. A name that is left out has its default. docs/index/
 * and `farside bench --help` list the names that each index knows; far_table_info() shows what a
 * table was made with.
 *
 * FAR_INVALID       a bad name or option; of a tuning, the detail says which part of it is wrong,
 *                   and which names and numbers the index takes
 * FAR_NO_INDEX      no such index in this build
 * FAR_TABLE_EXISTS  the name is taken
 * FAR_UNSUPPORTED   the index needs something that this pool's fabric does not offer
 * FAR_UNKNOWN       the connection broke at the last step: the table may exist, or come to
 * FAR_CATALOG_FULL, FAR_POOL_FULL, FAR_FENCED, FAR_NO_MEMORY, FAR_UNREACHABLE
 */
FAR_API int far_table_create(far_session *session, const char *name, const char *index,
                             const struct far_table_options *options, far_table **table);

/*
 * far_table_open - find a table by name
 *
 * index   the index the caller counts on, or NULL for any
 *
 * FAR_NO_TABLE     no table of that name
 * FAR_WRONG_INDEX  it is there, kept by another index
 * FAR_NO_INDEX     it is kept by an index that is not in this build
 * FAR_UNSUPPORTED, FAR_CORRUPT, FAR_FENCED, FAR_NO_MEMORY, FAR_UNREACHABLE
 */
FAR_API int far_table_open(far_session *session, const char *name, const char *index,
                           far_table **table);

/* Of the handle, for as long as that; "" for NULL. */
FAR_API const char *far_table_name(const far_table *table);
FAR_API const char *far_table_index(const far_table *table);

/*
 * far_table_drop - remove a table with all that is in it
 *
 * The name is free at once, for another far_table_create(). Then the call waits until nobody is at work
 * on the table any more, and gives its memory back. This takes time in proportion to the table, half a
 * second if another session was used just now, and up to two leases if one has died; see
 * far_session_watch().
 *
 * When it has returned FAR_OK, every operation of any session on this table gives FAR_NO_TABLE, for
 * good. Operations that run meanwhile do what they are to do, or give FAR_NO_TABLE. The handle stays
 * valid until the pool is closed, for far_table_name() and far_stats(); a new table of the same name has
 * another.
 *
 * FAR_NO_TABLE  it was dropped before
 * FAR_UNKNOWN   the connection broke: the table may be dropped, or become so
 * FAR_INVALID, FAR_CORRUPT
 * FAR_TIMEOUT, FAR_STOPPED, FAR_FENCED, FAR_UNREACHABLE, FAR_NO_MEMORY
 *               The table may be dropped: far_table_open() tells. Then its memory comes back with the next
 *               drop in this pool, when memory is short, or with a repair. If a session dies in the
 *               middle of a drop, the same is true.
 */
FAR_API int far_table_drop(far_session *session, far_table *table);

/*
 * far_table_list - call back for every table of the pool, in no particular order
 *
 * Stops when the callback returns other than 0 and returns that. FAR_CORRUPT, FAR_UNREACHABLE.
 */
FAR_API int far_table_list(far_session *session,
                           int (*each)(void *arg, const char *name, const char *index), void *arg);

/* The names of the indexes of this build: "race", ... ; NULL past the last. */
FAR_API const char *far_index_name(unsigned i);

/* ---------------------------------------------------------------------------------------------
 * Operations
 *
 * All of them may return, beside what each lists:
 *
 *   FAR_INVALID      session, table or key is NULL, or value is NULL and value_len is not 0; the
 *                    table is not of the session's pool; the session was opened before fork()
 *   FAR_NO_TABLE     the table was dropped; nothing was done
 *   FAR_KEY_SIZE     key_len is 0 or over FAR_KEY_MAX, or over the index's own limit
 *   FAR_CORRUPT      what was found is damaged
 *   FAR_CONTENTION   lost to other clients more often than the bound allows; nothing was done
 *   FAR_FENCED       the session stood still for longer than its lease, twice in one operation;
 *                    nothing was done
 *   FAR_UNREACHABLE, FAR_TIMEOUT, FAR_REFUSED, FAR_NODE_LOST
 *                    a memory node cannot be reached, does not answer, does not let us in, or has
 *                    come back without its memory; the detail names it. A change that may have been
 *                    made all the same says FAR_UNKNOWN instead
 *   FAR_NO_MEMORY    out of local memory
 * and those that change something:
 *   FAR_VALUE_SIZE   value_len is over FAR_VALUE_MAX, or over the index's own limit
 *   FAR_POOL_FULL    no memory left for the new value; nothing was done
 *   FAR_TABLE_FULL   the table cannot grow further; nothing was done
 *   FAR_UNKNOWN      the connection broke in the middle: it may or may not have happened
 */

/*
 * far_get - read the value of a key
 *
 * buf, cap    where to put the value; buf may be NULL when cap is 0, and the key may lie in it
 * len         set to the value's length with FAR_OK and with FAR_TOO_SMALL; may be NULL
 *
 * FAR_INVALID     no buf, and cap is not 0
 * FAR_NOT_FOUND   no such key
 * FAR_TOO_SMALL   the value is longer than cap; buf is untouched, *len says how much is needed
 */
FAR_API int far_get(far_session *session, far_table *table, const void *key, size_t key_len,
                    void *buf, size_t cap, size_t *len);

/* Is the key there? FAR_OK or FAR_NOT_FOUND. */
FAR_API int far_exists(far_session *session, far_table *table, const void *key, size_t key_len);

/* Sets the value, whether or not the key was there. */
FAR_API int far_put(far_session *session, far_table *table, const void *key, size_t key_len,
                    const void *value, size_t value_len);

/* Adds a key. FAR_EXISTS: it was there, and keeps its value. */
FAR_API int far_insert(far_session *session, far_table *table, const void *key, size_t key_len,
                       const void *value, size_t value_len);

/* Sets the value of a key that is there. FAR_NOT_FOUND: it was not, and is not now. */
FAR_API int far_update(far_session *session, far_table *table, const void *key, size_t key_len,
                       const void *value, size_t value_len);

/* Removes a key. FAR_NOT_FOUND: it was not there. */
FAR_API int far_delete(far_session *session, far_table *table, const void *key, size_t key_len);

/* What a callback of far_modify() decides. */
enum far_decision {
    FAR_KEEP,  /* leave the key as it is                              */
    FAR_STORE, /* set it to the value that the callback hands over    */
    FAR_REMOVE /* remove it, if it is there                           */
};

/*
 * Sees the old value, or its absence (old is NULL; an empty value is not), and decides. With FAR_STORE
 * it sets *value and *value_len, to memory that stays until far_modify() returns, or until a submitted
 * operation has been reaped; the old value itself will do. It is called again whenever another session
 * was faster, and whatever it notes down in `arg` is true of the last call. It must not call Farside.
 */
typedef enum far_decision far_modify_fn(void *arg, const void *old, size_t old_len,
                                        const void **value, size_t *value_len);

/*
 * far_modify - read, decide and write, as one atomic operation
 *
 * Compare-and-set, counters, append and the like, and all other changes, are cases of this. It costs
 * what far_update() costs: no lock, and no round trip more.
 *
 *     static enum far_decision add_one(void *arg, const void *old, size_t len, const void **value,
 *                                      size_t *value_len)
 *     {
 *         uint64_t *count = arg;
 *         if (old && len != sizeof *count)
 *             return FAR_KEEP;
 *         *count = 0;
 *         if (old)
 *             memcpy(count, old, len);
 *         ++*count;
 *         *value = count;
 *         *value_len = sizeof *count;
 *         return FAR_STORE;
 *     }
 *
 * FAR_OK: what the last call decided is done; also if that was to do nothing.
 *
 * FAR_INVALID     modify is NULL, or returned something else, or a value that is NULL and not empty
 * FAR_VALUE_SIZE  the new value is longer than FAR_VALUE_MAX, or than the index's own limit
 * With either, nothing was done.
 */
FAR_API int far_modify(far_session *session, far_table *table, const void *key, size_t key_len,
                       far_modify_fn *modify, void *arg);

/* A key, and its value if it was asked for, in a buffer that far_iterate() or far_scan() has filled. */
struct far_entry {
    const void *key; /* these point into the buffer, and are aligned to nothing */
    size_t key_len;
    const void *value; /* NULL with FAR_KEYS_ONLY */
    size_t value_len;  /* the value's length all the same */
};

/* Reads the entry at *pos of a buffer with `len` bytes of entries, and moves *pos behind it; *pos is
 * 0 at first. False when there is none left. */
FAR_API bool far_entry_next(const void *buf, size_t len, size_t *pos, struct far_entry *entry);

#define FAR_KEYS_ONLY 1u /* no values */
#define FAR_AFTER     2u /* far_scan(): begin behind `from`, not with it */

/*
 * far_iterate - the keys of a table, some at a time, in an order of the index's own
 *
 *     uint64_t cursor = 0;
 *     do {
 *         rc = far_iterate(session, table, &cursor, 0, buf, sizeof buf, &len);
 *         for (size_t pos = 0; rc == FAR_OK && far_entry_next(buf, len, &pos, &entry);)
 *             ...
 *     } while (rc == FAR_OK && cursor != 0);
 *
 * cursor    0 to begin with; set to where the next call goes on, and to 0 when there is no more
 * flags     0, or FAR_KEYS_ONLY
 * buf, cap  where the entries go. If the call fails, what buf holds is undefined
 * len       set to how many bytes of entries there are. That can be 0 before the end: one call reads
 *           a bounded part of the table. With FAR_TOO_SMALL, how many bytes the next entry takes
 *
 * A key that is there from the first call to the last is returned at least once, and perhaps more
 * often, also if the table grows meanwhile; one that comes or goes may be returned or not. Each value
 * was the key's at some instant of its call. Between calls nothing is held: a cursor stays good for
 * as long as the table exists, in any session, and holds nobody up.
 *
 * FAR_INVALID    no cursor, no buf, no len, a flag that does not exist, or a cursor from elsewhere
 * FAR_TOO_SMALL  the next entry does not fit; the cursor stays as it is
 */
FAR_API int far_iterate(far_session *session, far_table *table, uint64_t *cursor, unsigned flags,
                        void *buf, size_t cap, size_t *len);

/* Which keys a scan returns. Keys are compared byte by byte, as unsigned numbers. If one key is the
 * beginning of another, the shorter one comes first. */
struct far_range {
    const void *from; /* the first key, which need not be in the table; NULL: the table's first */
    size_t from_len;
    const void *to; /* keys below this one; NULL: up to the table's last */
    size_t to_len;
    unsigned limit; /* at most this many entries; 0: as many as fit */
    unsigned flags; /* FAR_KEYS_ONLY, FAR_AFTER, or both, or 0 */
};

/*
 * far_scan - the keys of a range in ascending order, some at a time
 *
 * For tables whose index keeps keys in order. To go on, call it again with the last key that it
 * returned, and FAR_AFTER:
 *
 *     struct far_range range = {.from = "a", .from_len = 1, .to = "b", .to_len = 1};
 *     do {
 *         rc = far_scan(session, table, &range, buf, sizeof buf, &len, &more);
 *         for (size_t pos = 0; rc == FAR_OK && far_entry_next(buf, len, &pos, &entry);) {
 *             ...
 *             range.from = entry.key;
 *             range.from_len = entry.key_len;
 *         }
 *         range.flags |= FAR_AFTER;
 *     } while (rc == FAR_OK && more);
 *
 * range     `from` may lie in buf, as here: it is read before buf is written. `to` may not
 * buf, cap  where the entries go. If the call fails, what buf holds is undefined, but for
 *           FAR_TOO_SMALL, which leaves it as it was
 * len       set to how many bytes of entries there are, as far_entry_next() takes them. With
 *           FAR_TOO_SMALL, how many bytes the next entry takes
 * more      set to true if the limit, or the end of buf, ended the scan, so that there may be more in
 *           the range; then there is at least one entry. False if the range has been scanned to its
 *           end. May be NULL
 *
 * Keys come in strictly ascending order, so none comes twice. A key of the range that is there
 * throughout the call is returned, unless the scan ended before it. Each entry was in the table, with
 * that value, at some instant of the call; but not all of them at the same one: a scan is no snapshot.
 * Between calls nothing is held. A range whose end is not above its beginning is empty, which is no
 * error.
 *
 * FAR_UNSUPPORTED  the table's index keeps keys in no order; the detail names it, and those that do
 * FAR_INVALID      no range, no buf, no len, a flag that does not exist, or from or to is NULL and its
 *                  length is not 0
 * FAR_KEY_SIZE     from or to is longer than FAR_KEY_MAX
 * FAR_TOO_SMALL    the next entry does not fit
 */
FAR_API int far_scan(far_session *session, far_table *table, const struct far_range *range,
                     void *buf, size_t cap, size_t *len, bool *more);

/* ---------------------------------------------------------------------------------------------
 * The ring: many operations of one thread in flight
 *
 * far_submit() hands an operation over and returns; far_reap() collects what has finished, in
 * any order. far_session_fd() is for programs that wait for other things as well. far_cancel() takes
 * back what waits to be started. Operations in flight at the same time are concurrent with each
 * other, also when they name the same key.
 */
enum far_op_kind {
    FAR_OP_GET,
    FAR_OP_EXISTS,
    FAR_OP_PUT,
    FAR_OP_INSERT,
    FAR_OP_UPDATE,
    FAR_OP_DELETE,
    FAR_OP_MODIFY,
    FAR_OP_ITERATE,
    FAR_OP_SCAN
};
#define FAR_OP_KINDS 9
#define FAR_OP_ROOM  16 /* kinds that statistics have room for: later versions have more */

struct far_op {
    enum far_op_kind kind;
    far_table *table;
    const void *key; /* scan: `from` of the range */
    size_t key_len;
    const void *value; /* put, insert, update */
    size_t value_len;
    void *buf; /* get, iterate, scan: where the value or the entries go, and how much fits */
    size_t cap;
    far_modify_fn *modify; /* modify */
    void *modify_arg;
    uint64_t cursor;    /* iterate */
    unsigned flags;     /* iterate, scan */
    uint64_t user_data; /* handed back with the result */
    const void *to;     /* scan */
    size_t to_len;
    unsigned limit; /* scan */
};

struct far_result {
    uint64_t user_data;
    int status;      /* as the function of the same kind would have returned       */
    size_t len;      /* get: the value's length, iterate and scan: bytes of entries, or of the next
                   one; with FAR_OK and FAR_TOO_SMALL */
    uint64_t cursor; /* iterate: where to go on, 0 at the end; with FAR_OK */
    unsigned count;  /* iterate, scan: entries; with FAR_OK                */
    bool more;       /* scan: as far_scan() sets it; with FAR_OK           */
};

/*
 * far_execute - run an operation that is given as data, and wait for it
 *
 * Does what the function of the same kind does, and returns its status. The result is filled
 * whatever that is. Operations that were submitted are not waited for.
 *
 * FAR_INVALID   no session, no op, no result, no such kind, or no table of the session's pool; the
 *               result is untouched
 */
FAR_API int far_execute(far_session *session, const struct far_op *op, struct far_result *result);

/*
 * far_submit - start an operation
 *
 * The struct itself may be reused at once; key, value and buf must stay until it is reaped. It starts
 * at once if fewer than `depth` operations are in flight or wait to be reaped. Otherwise, if the
 * session has a backlog, it starts when enough of those before it have been reaped.
 *
 * FAR_RING_FULL   `depth` operations are in flight or wait to be reaped, and the backlog is full, if
 *                 there is one: reap first
 * FAR_INVALID     session or op is NULL, no such kind, no table of the session's pool, or the
 *                 session was opened before fork()
 * Anything that goes wrong later is the result's status.
 */
FAR_API int far_submit(far_session *session, const struct far_op *op);

/*
 * far_submit_many - start several operations
 *
 * Starts them in their order, until one cannot be started. *started (may be NULL) is set to how many
 * were, also when it fails; those are to be reaped as usual.
 *
 * FAR_RING_FULL   not all found room: reap, and submit the rest
 * FAR_INVALID     as far_submit(), for the first that was not started
 */
FAR_API int far_submit_many(far_session *session, const struct far_op *ops, unsigned count,
                            unsigned *started);

/*
 * far_reap - collect results
 *
 * Waits until at least min_results are there (fewer, if fewer are in flight), and returns how
 * many were stored, at most max_results. min_results 0 never waits. 0 if session or results is
 * NULL, and if the session was opened before fork().
 */
FAR_API unsigned far_reap(far_session *session, struct far_result *results, unsigned max_results,
                          unsigned min_results);

/* The same, but does not wait longer than timeout_ns nanoseconds: then it returns what there is, which
 * may be fewer than min_results. */
FAR_API unsigned far_reap_within(far_session *session, struct far_result *results,
                                 unsigned max_results, unsigned min_results, uint64_t timeout_ns);

/*
 * far_session_fd - a file descriptor to wait on for the ring
 *
 * For a server that waits for its sockets and for the ring in one place:
 *
 *     far_session_fd(session, &fd);
 *     epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, ...});
 *     for (;;) {
 *         n = epoll_wait(epoll, events, MAX, -1);
 *         for each event:
 *             of fd:      count = far_reap(session, results, MAX_RESULTS, 0); handle the results
 *             of others:  read requests; far_submit(session, &op)
 *     }
 *
 * It is readable when far_reap() should be called: results are there, or operations can go on. While
 * operations are in flight it becomes readable whatever happens, also if a node does not answer or a
 * connection is lost and made again; it need not be waited on with a time-out. far_reap() with
 * min_results 0 goes on with them, and sets the descriptor for what comes next; it may return 0. If no
 * operation is in flight and no result is to be reaped, it is not readable, but for once now and then.
 *
 * The descriptor stays the same, is the session's, and is closed with it. It can be waited on by
 * epoll, poll and select, level-triggered, in any thread; it is not to be read, and far_reap() is for
 * the session's thread, as all other calls. Sessions without one pay nothing for it; with one,
 * far_submit() and far_reap() may enter the kernel. It is not for a child of fork().
 *
 * FAR_INVALID      session or fd is NULL, or the session was opened before fork()
 * FAR_SYSTEM       there is no descriptor to be had: too many are open
 * FAR_UNSUPPORTED  the pool's fabric can only be polled; those of this version can be waited for
 * FAR_NO_MEMORY
 */
FAR_API int far_session_fd(far_session *session, int *fd);

/*
 * far_cancel - take back operations that have not started
 *
 * Those with that user_data that wait in the backlog are not run. Each gives a result all the same,
 * with FAR_STOPPED, and its buffers are the caller's again when it has been reaped. An operation that
 * has started is not stopped: its result comes as usual.
 *
 * cancelled    set to how many were taken back; may be NULL
 *
 * FAR_STARTED   none waits: those with that user_data have started, finished, or been cancelled before
 * FAR_INVALID   none with that user_data is to be reaped, session is NULL, or the session was opened
 *               before fork()
 */
FAR_API int far_cancel(far_session *session, uint64_t user_data, unsigned *cancelled);

/* ---------------------------------------------------------------------------------------------
 * Statistics
 *
 * Always on. Round trips, verbs and bytes do not depend on the machine: they are what designs
 * are compared by.
 */
struct far_op_stats {
    uint64_t count;     /* operations finished, whatever their status             */
    uint64_t not_found; /* of them, FAR_NOT_FOUND                                 */
    uint64_t exists;    /* of them, FAR_EXISTS                                    */
    uint64_t errors;    /* of them, any other failure                             */
    uint64_t rtts;      /* round trips, with those of growth that it caused       */
    uint64_t verbs;     /* READ, WRITE, CAS, masked CAS and FAA                   */
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t entries; /* iterate, scan: returned                                  */
};

struct far_stats {
    struct far_op_stats op[FAR_OP_ROOM]; /* by enum far_op_kind */
};

/* This session's operations on one table since the session opened. Never fails: zeros if session or
 * table is NULL or they are of different pools, and nothing if stats is NULL. */
FAR_API void far_stats(const far_session *session, const far_table *table, struct far_stats *stats);

/* A table as a whole, as this session sees it. */
struct far_table_info {
    uint64_t keys;               /* exact when nobody writes meanwhile                       */
    uint64_t slots;              /* places for a key in the index                            */
    uint64_t index_bytes;        /* remote bytes of the live index                           */
    uint64_t block_bytes;        /* remote bytes of the live keys and values                 */
    uint64_t client_cache_bytes; /* local bytes this session keeps to find its way           */
    double load_factor;          /* keys / slots                                             */
    uint64_t splits;             /* restructurings this session has done                     */
    double split_load_max;       /* the fullest and the mean load factor of what it split, */
    double split_load_mean;      /* 0 while it has split nothing                             */
    /* All numbers of the index's own that the table was made with, defaults too, as text that
     * far_table_create() takes; "" if the index has none. */
    char tuning[FAR_TUNING_MAX + 1];
};

/* Walks the table to fill info; takes time in proportion to the table.
 * FAR_NO_TABLE, FAR_CORRUPT, FAR_FENCED, FAR_UNREACHABLE, FAR_NO_MEMORY. */
FAR_API int far_table_info(far_session *session, far_table *table, struct far_table_info *info);

/*
 * far_table_check - prove the table's structural invariants
 *
 * Walks everything; meant for a table that nobody changes meanwhile. Each violation is handed to
 * `report` (may be NULL) as one line of text. Returns FAR_OK when there is none, FAR_CORRUPT when
 * there is. FAR_NO_TABLE, FAR_FENCED, FAR_UNREACHABLE, FAR_NO_MEMORY.
 */
FAR_API int far_table_check(far_session *session, far_table *table,
                            void (*report)(void *arg, const char *line), void *arg);

#ifdef __cplusplus
}
#endif
#endif
