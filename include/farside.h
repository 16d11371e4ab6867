/*
 * farside.h - key-value tables in far memory
 *
 * Farside keeps tables in memory that the calling program does not own: memory of other machines,
 * of a shared device, of another process, or (for tests and embedding) of this process. Programs
 * reach it with one-sided verbs only. No code runs on the memory's side during an operation.
 *
 * The objects, from the outside in:
 *
 *   far_pool      a set of memory nodes, named by a URI. Shared by all threads of a process.
 *   far_table     a named table in a pool, stored by one of the indexes. Shared by all threads.
 *   far_session   one thread's right to work on a pool: its connections, its memory to allocate
 *                 from, its caches, its statistics. NOT thread-safe: one session, one thread.
 *
 * What a program can rely on
 *
 *   - Every operation on a key is linearizable: it takes effect at one instant between its call
 *     and its return, whatever other sessions do, also while the table grows.
 *   - Keys and values are arbitrary bytes. Zero-length values and NUL bytes are ordinary.
 *   - A function that fails leaves its outputs untouched, unless it says otherwise.
 *   - If a pointer that is needed is NULL, the call returns FAR_INVALID and the detail names it.
 *
 * Caveats
 *
 *   - After FAR_NODE_LOST part of the pool is lost for good: close it, and create it again.
 *   - A session must be closed before its pool. Tables that were not closed are closed with their
 *     pool.
 *   - A session takes one call at a time. While one is under way, calls on the session by another
 *     thread or by a callback return FAR_INVALID, and far_session_close() ends the program with a
 *     message. This finds mistakes; it does not make a session safe for threads: two threads that
 *     call at the same instant may not be noticed. (far_table_list() may be called back: its `each`
 *     may use the session.)
 *   - Buffers handed to far_submit() belong to Farside until the operation has been reaped.
 *   - After FAR_UNKNOWN a change may or may not have happened: the connection broke while it was
 *     under way. Read the key to find out.
 *   - A session that stops in the middle of an operation for longer than the pool's lease (5 s, or
 *     lease= in the URI) is taken for dead. So is a session whose submitted operations are not
 *     reaped for that long. When it continues, it registers again and retries those operations
 *     once; an operation that is stopped a second time returns FAR_FENCED. On memory nodes nothing
 *     is ever damaged by this. Idle sessions do not hold up others while their process is alive.
 *   - On shm: a session is not taken for dead while its process lives, stopped or not, because it
 *     may be in the middle of a write. Others wait for it. After one or two leases, operations that
 *     need what it holds return FAR_CONTENTION or FAR_POOL_FULL, and the detail names its process.
 *     Nothing is ever damaged by this. If the process ends, its sessions are taken for dead at
 *     once. Between machines that share a device this cannot be known; see docs/fabric.md.
 *   - An open pool has a thread of its own, which takes care of idle sessions. It receives no
 *     signals and calls no callbacks.
 *   - A child of fork() cannot use its parent's pools: every call on them returns FAR_INVALID. It
 *     may open pools of its own. It may also close its parent's, which frees its copies in local
 *     memory and touches nothing else. (A child made by a bare clone() must do neither.)
 *
 * A first program is in README.md and in tests/e2e/example.c, a server with an event loop in
 * tests/e2e/server.c.
 */
#ifndef FARSIDE_H
#define FARSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__clang__) && !defined(__cplusplus) /* it warns of bool in C89 */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FAR_VERSION_MAJOR 0
#define FAR_VERSION_MINOR 8
#define FAR_VERSION_PATCH 0
#define FAR_VERSION       "0.8.0"

#if defined(__GNUC__)
#define FAR_API __attribute__((visibility("default")))
#else
#define FAR_API
#endif

/* ---------------------------------------------------------------------------------------------
 * Errors
 *
 * Every function that can fail returns 0 (FAR_OK) or one of these, all negative. far_strerror()
 * returns the text below. far_error_detail() returns more about this thread's last call, such as
 * the option that was not understood or the node that did not answer.
 */
#define FAR_ERRORS(X)                                                                              \
    X(NOT_FOUND, -1, "no such key")                                                                \
    X(EXISTS, -2, "the key already exists")                                                        \
    X(TOO_SMALL, -3, "the buffer is too small for the value")                                      \
    X(INVALID, -4, "invalid argument")                                                             \
    X(KEY_SIZE, -5, "the key is empty or longer than the limit")                                   \
    X(VALUE_SIZE, -6, "the value is longer than the limit")                                        \
    X(BAD_URI, -7, "the pool URI is not understood, or does not fit the pool")                     \
    X(NO_FABRIC, -8, "no such fabric in this build")                                               \
    X(NO_INDEX, -9, "no such index in this build")                                                 \
    X(NO_TABLE, -10, "no such table")                                                              \
    X(TABLE_EXISTS, -11, "a table of that name already exists")                                    \
    X(WRONG_INDEX, -12, "the table has another index")                                             \
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
    X(BOUNDS, -25, "the address is outside the pool's memory")                                     \
    X(UNKNOWN, -26, "the connection broke: the outcome is unknown")                                \
    X(NO_MEMORY, -27, "out of local memory")                                                       \
    X(SYSTEM, -28, "a system call failed")                                                         \
    X(RING_FULL, -29, "the ring is full")                                                          \
    X(STOPPED, -30, "stopped by the caller")                                                       \
    X(REFUSED, -31, "the memory node refused this client")                                         \
    X(NODE_LOST, -32, "a memory node came back without its contents")                              \
    X(STARTED, -33, "the operation has already started")                                           \
    X(PARTIAL, -34, "some entries were left out, because they are damaged")

#define FAR_X(name, value, text) , FAR_##name = value
enum far_status { FAR_OK = 0 FAR_ERRORS(FAR_X) };
#undef FAR_X

/* The text of a status; "unknown status" for any other number. Never NULL. */
FAR_API const char *far_strerror(int status);

/* The name of a status, such as "FAR_NOT_FOUND". Never NULL. */
FAR_API const char *far_errname(int status);

/*
 * far_error_detail - why the last call of this thread failed
 *
 * The last call is the last one that returned a status, or far_reap(). The detail is "" if that
 * call returned FAR_OK or has nothing to add, which is always so for FAR_NOT_FOUND, FAR_EXISTS and
 * FAR_TOO_SMALL. After far_reap() it is the detail of the last stored result that has one.
 * Functions that return nothing do not change it. The string stays valid until the thread's next
 * call.
 */
FAR_API const char *far_error_detail(void);

/* The version of the library, such as "0.8.0". */
FAR_API const char *far_version(void);

/* ---------------------------------------------------------------------------------------------
 * Limits
 */
/* An index may have lower limits for keys and values; the detail of FAR_KEY_SIZE or FAR_VALUE_SIZE
 * names them. `race` has none. */
#define FAR_KEY_MAX     4096u      /* bytes; the shortest key has one byte */
#define FAR_VALUE_MAX   (4u << 20) /* bytes; the shortest value has none   */
#define FAR_NAME_MAX    63u        /* bytes of a table's name              */
#define FAR_DEPTH_MAX   1024u      /* operations of one session in flight  */
#define FAR_BACKLOG_MAX 65536u     /* operations that wait to be started   */

#define FAR_TUNING_MAX 255u /* bytes of a table's tuning, as far_table_info() returns it */

/* ---------------------------------------------------------------------------------------------
 * Pools
 */
typedef struct far_pool far_pool;
typedef struct far_table far_table;
typedef struct far_session far_session;

/*
 * far_pool_open - open the pool that a URI names
 *
 * uri     mem:[?size=BYTES&nodes=N&clients=N&lease=MS&voters=N]
 *             memory of this process: a new pool, which far_pool_close() frees.
 *             size (default 4g): bytes of each node; sizes take the suffixes k, m, g and t.
 *             nodes (default 1, at most 64): how many memory nodes the pool has.
 *             clients (default 256): how many sessions may be open at once.
 *             lease (default 5000, 50 to 3600000): milliseconds of silence after which a session
 *             may be taken for dead.
 *             voters (default none; 1, 3 or 5): how many nodes vote about who is a member; see
 *             far_pool_members(). All URIs have it. Like the options above, it is for a new pool.
 *         shm:NAME[?size=BYTES&nodes=N&clients=N&lease=MS&voters=N]
 *             memory that the processes of this machine share: POSIX shared memory
 *             "/farside-NAME". NAME has letters, digits, '.', '_' and '-'. The pool exists until
 *             far_pool_remove() or until the machine restarts, even if all processes end or die.
 *         shm:/PATH[?size=BYTES&nodes=N&clients=N&lease=MS&voters=N&wait=0|1]
 *             the same in a file, or in a device that can be mapped (DAX, CXL). A file keeps its
 *             data when the pool is closed. After a power failure its contents are undefined.
 *             With size, a pool that does not exist yet is created and all of its memory is
 *             reserved; without size, the pool must exist. A new pool can be read and written by
 *             its owner only; change the file's permissions to let others in. A file is used if it
 *             holds a pool, is empty, or holds nothing but zeros; any other file is refused and
 *             left alone. A device always needs size, and counts as unused if its first 8 bytes
 *             are zero. Devices without memory to share (/dev/zero, /dev/null, terminals),
 *             directories, pipes and sockets are refused.
 *             For an existing pool, options may be left out; those given must match it.
 *             wait=1 (default 0), for a device that machines share: a session whose process cannot
 *             be seen from here is not taken for dead when it is silent, but waited for. Then
 *             nothing that it may still write to is used again. An operator who knows that such
 *             sessions are dead opens the pool with wait=0, for far_pool_check() with repair.
 *         ucx://HOST:PORT[,HOST:PORT...][?timeout=MS&secret=FILE&clients=N&lease=MS&voters=N&groups=0|1]
 *             memory of up to 64 memory nodes (`farside memd`), reached over the network by UCX.
 *             Name the same nodes in the same order each time. If several processes open a pool
 *             that does not exist yet, one creates it and the others wait for it.
 *             timeout (default 5000): milliseconds to wait for a node's answer. After that,
 *             operations that need the node fail with FAR_UNREACHABLE, FAR_TIMEOUT or FAR_UNKNOWN
 *             and its name in the detail; other operations are not affected. When the node is back
 *             with its contents, they succeed again; if it has lost its contents, they fail with
 *             FAR_NODE_LOST.
 *             A pool is also opened if nodes other than the first cannot be reached. Then the same
 *             holds for operations that need them, until they are back; far_pool_info() says which
 *             they are. Tables are not created meanwhile, and nothing is repaired.
 *             secret: a file with a secret of 16 to 1024 bytes that nodes and clients prove to
 *             each other. A file that all users of the machine can read or change is refused.
 *             Without this option, the secret is in the file that the environment variable
 *             FARSIDE_SECRET_FILE names, or in the variable FARSIDE_SECRET itself.
 *             groups=0: the sessions of this process do not look at each other. By default, puts
 *             and updates of one key by one process take turns, and one that another overwrites at
 *             once does not go to the network.
 *         verbs://HOST:PORT[,HOST:PORT...][?timeout=MS&secret=FILE&clients=N&lease=MS&groups=0|1]
 *             the same, reached by RDMA: the node's network card does the work. timeout is from
 *             50 to 600000.
 * pool    set to the new handle
 *
 * The shared library opens a module when a URI names a network: farside-ucx.so, farside-verbs.so.
 * Until then the process has nothing of UCX or libibverbs in it. The environment variable
 * FARSIDE_MODULES names a directory where modules are looked for first. The static library contains
 * the networks.
 *
 * FAR_BAD_URI      the URI or one of its options is not understood, or does not fit the pool
 * FAR_NO_FABRIC    there is no such scheme, or the module of its network cannot be used
 * FAR_NOT_A_POOL   there is no pool, or the memory holds something else, or the nodes are not all
 *                  the nodes of one pool, in its order
 * FAR_LAYOUT       the pool was created by a version of Farside with another memory layout
 * FAR_CORRUPT      the superblock fails its checksum, or the file's length differs from what it
 *                  says
 * FAR_POOL_FULL    the memory is too small for a pool
 * FAR_TIMEOUT      another process is creating the pool and does not finish, or a node does not
 *                  answer
 * FAR_UNREACHABLE  a node cannot be reached: the first one, or with verbs: any, or the pool is new
 * FAR_REFUSED      node and client do not have the same secret
 * FAR_UNSUPPORTED  UCX cannot use a node's address, or this machine has no RDMA device for it
 * FAR_NO_MEMORY, FAR_SYSTEM
 */
FAR_API int far_pool_open(const char *uri, far_pool **pool);

/* Closes a pool and all of its table handles. Close its sessions first. If a session is still open,
 * all calls on it return FAR_INVALID from then on, except far_session_close(), and the pool's
 * memory is freed when the last one is closed. NULL is ignored. In a child of fork(), closing a
 * pool of the parent frees local memory only. */
FAR_API void far_pool_close(far_pool *pool);

/*
 * far_pool_remove - remove the name or the file of a pool
 *
 * The URI is one that far_pool_open() takes; its options do not matter. Processes that have the
 * pool open can continue to use it; its memory is freed when the last of them closes it.
 *
 * FAR_NOT_A_POOL   there is nothing, or something that is not a pool; it is left alone
 * FAR_UNSUPPORTED  mem: and devices have nothing to remove
 * FAR_BAD_URI, FAR_NO_FABRIC, FAR_TIMEOUT, FAR_SYSTEM
 */
FAR_API int far_pool_remove(const char *uri);

/* What a pool's memory is used for. Bytes are the sum over all nodes. */
struct far_pool_info {
    unsigned nodes;
    unsigned layout_version;
    unsigned clients;     /* sessions open now, of all processes */
    unsigned clients_max; /* how many may be open at once        */
    unsigned tables;
    uint64_t bytes_total;     /* all of the nodes' memory                       */
    uint64_t bytes_metadata;  /* superblocks, catalog, registry, chunk tables   */
    uint64_t bytes_allocated; /* handed out to sessions in chunks, used or not  */
    uint64_t bytes_free;      /* never handed out: total - metadata - allocated */
    /* Memory nodes that the pool was opened without and that are not back yet: bit i is node i.
     * far_node_info() has their addresses. The bytes above are those of the other nodes. */
    uint64_t nodes_away;
};

/* Fills info from the pool as it is now. FAR_CORRUPT, FAR_UNREACHABLE. */
FAR_API int far_pool_info(far_session *session, struct far_pool_info *info);

/* Where a pool's bytes are. They add up: total = metadata + live + retired + free + unknown. While
 * sessions work, the parts are from slightly different instants. */
struct far_pool_usage {
    uint64_t total;
    uint64_t metadata; /* superblocks, catalog, registry, chunk tables, unused ends of chunks */
    uint64_t live;     /* reachable from the tables                                           */
    uint64_t retired;  /* replaced or deleted; not free until nobody can be reading it        */
    uint64_t free;     /* never handed out, on the shared lists, or held by sessions          */
    /* The rest: what dead sessions held, which far_pool_check() with repair finds; and what other
     * sessions have moved since their last report (every 128 operations). */
    uint64_t unknown;
};

/* Walks the whole pool to fill usage. FAR_CORRUPT, FAR_UNREACHABLE, FAR_NO_MEMORY. */
FAR_API int far_pool_usage(far_session *session, struct far_pool_usage *usage);

/* What a check found. A finding that was repaired is counted in `repaired` only. */
struct far_pool_check {
    unsigned violations;   /* broken links, duplicate keys, damaged structures              */
    unsigned stranded;     /* locks and unfinished work of dead sessions                    */
    unsigned repaired;     /* with repair: violations and stranded work that were fixed     */
    unsigned dead_clients; /* sessions silent for longer than a lease; with repair, removed */
    unsigned salvaged;     /* with repair: damaged entries that were kept,                   */
    unsigned lost;         /* and those that were not: nothing proves that they are right     */
    /* Memory that nobody holds: `unknown` of far_pool_usage, if some of it is certainly lost,
     * because sessions have died since the last repair or no other session is open. */
    uint64_t leaked_bytes;
    uint64_t repaired_bytes; /* with repair: lost memory that is free again */
};

/*
 * Voters. A pool that is made with voters=1, 3 or 5 keeps a log of its members on its nodes, of
 * which the first ones vote. A session registers with a majority of them, and a change of the
 * members is decided by a majority, so clients agree about the members whatever nodes are lost. A
 * node without data can vote, too (`farside memd --witness`). docs/members.md says what it is for.
 */
struct far_member {
    unsigned node;
    char address[264]; /* as in the pool's URI; "" if it has none */
    bool data;         /* it keeps data; else it is a witness     */
    bool votes;
    /* FAR_OK: the node answers. FAR_NODE_LOST: it does, but it was killed since it was taken in, or
     * it has other memory, so it does not count until it is taken in again. Else it does not
     * answer, and `detail` says why. */
    int status;
    char detail[256];
};
struct far_members {
    unsigned nodes;
    unsigned voters;       /* 0: the pool has none, and the fields below are 0    */
    unsigned majority;     /* so many have to answer                              */
    unsigned answering;    /* of the voters                                       */
    unsigned view;         /* counts up with each change; 1 at first              */
    unsigned changes_left; /* for which the log has room                          */
};

/* Fills members and, if it is not NULL, a list with room for FAR_NODES_MAX. Without a majority
 * it says what the last one that this session met had decided. FAR_UNREACHABLE. */
#define FAR_NODES_MAX 64u
FAR_API int far_pool_members(far_session *session, struct far_members *members,
                             struct far_member *list);

/*
 * far_pool_change_members - let a node vote, or not any more
 *
 * A node that was killed, or that has come back from a copy of its memory, is taken in again like a
 * new one. From then on no node executes what sessions post that do not know of the change; they
 * notice, learn of it and go on.
 *
 * FAR_EXISTS       it is so already
 * FAR_INVALID      too few voters would be left, or more than 5; no such node
 * FAR_UNREACHABLE  no majority of the voters answers: it may be decided later
 * FAR_CONTENTION   other sessions change the members all the time
 * FAR_POOL_FULL    the members have changed 4095 times
 * FAR_UNSUPPORTED  the pool has no voters
 */
FAR_API int far_pool_change_members(far_session *session, unsigned node, bool in);

/*
 * far_pool_accept_members - let voters count that were killed, when no majority is left
 *
 * No session can register then, and members cannot change. This takes the voters that answer as
 * they are. Only an operator can know that this is right: that no other program works with the
 * pool, and that none of these nodes has older memory than it had.
 *
 * FAR_EXISTS       a majority counts: there is nothing to accept
 * FAR_UNREACHABLE  most voters do not answer
 * FAR_UNSUPPORTED  the pool has no voters
 */
FAR_API int far_pool_accept_members(far_pool *pool);

/* The counters of a memory node: since its start, over all of its clients. */
struct far_node_info {
    char address[264]; /* as in the pool's URI */
    uint64_t bytes;    /* of its memory        */
    uint64_t uptime_ms;
    uint64_t clients;  /* open connections                  */
    uint64_t connects; /* connections that were ever opened */
    uint64_t refused;  /* connections without the secret    */
    uint64_t batches;  /* messages executed                 */
    uint64_t requests; /* batches of operations in them     */
    uint64_t verbs, bytes_read, bytes_written;
    uint64_t rejected;  /* malformed messages                              */
    uint64_t fences;    /* clients that were declared dead and shut out    */
    uint64_t fenced;    /* messages of such clients that were not executed */
    uint64_t old_views; /* messages of older views that were not executed */
};

/* Asks a node for its counters; nodes are numbered from 0. FAR_INVALID: no such node.
 * FAR_UNSUPPORTED: the pool is not on memory nodes. FAR_UNREACHABLE, FAR_TIMEOUT, FAR_NODE_LOST; if
 * the pool was opened without the node, its address is set nevertheless. */
FAR_API int far_node_info(far_session *session, unsigned node, struct far_node_info *info);

/*
 * far_pool_check - check a pool, and repair it
 *
 * Walks the superblock, the registry, the catalog, every table and every block, the lists of free
 * memory and the chunk tables, while other sessions work. Each finding is passed to `report` (may
 * be NULL) as a line of text. The time grows with the pool; a silent session adds up to two leases.
 * See far_session_watch().
 *
 * With repair,
 *   - sessions that were silent for longer than a lease, or on shm: whose process has ended, are
 *     shut out and their unfinished work is completed (a session that was only stopped registers
 *     again with its next operation);
 *   - a block that fails its checksum is corrected if one flipped bit explains it and it has no
 *     more than 4 KiB. Otherwise its entry is removed: the key was lost before, and can be written
 *     again. So is an entry that leads out of the pool;
 *   - a key in a place where no operation looks for it is moved to the right one, unless it is
 *     there;
 *   - of a duplicate key, the copy stays that far_get() returns;
 *   - a row of `rcuckoo` or a group of `chime` that fails its checksum is made whole again: with
 *     all entries if one flipped bit explains the damage, else with those that their blocks prove.
 *     The head of a node of `chime` is corrected if one flipped bit explains the damage;
 *   - memory that no table reaches and no session holds becomes free.
 * A table whose directory is damaged is not repaired. Then lost memory is not freed either.
 *
 * FAR_OK       no structure is damaged, or all damage was repaired; see also stranded and
 *              leaked_bytes
 * FAR_CORRUPT  something is damaged; `check` is filled
 * FAR_TIMEOUT  a session holds up the repair
 * FAR_STOPPED, FAR_UNREACHABLE, FAR_NO_MEMORY
 */
FAR_API int far_pool_check(far_session *session, bool repair,
                           void (*report)(void *arg, const char *line), void *arg,
                           struct far_pool_check *check);

/* ---------------------------------------------------------------------------------------------
 * Sessions
 */
struct far_session_options {
    unsigned depth; /* operations in flight with far_submit(), at most FAR_DEPTH_MAX; 0 means 32 */
    uint64_t seed;  /* of the session's random choices; 0 takes one from the clock               */
    /* How many operations far_submit() accepts beyond depth, at most FAR_BACKLOG_MAX. They wait,
     * and start in order as results are reaped. */
    unsigned backlog;
};

/*
 * far_session_open - register this thread as a client of the pool
 *
 * options may be NULL.
 *
 * FAR_INVALID         depth over FAR_DEPTH_MAX, backlog over FAR_BACKLOG_MAX, or the pool was
 *                     opened before fork()
 * FAR_NO_CLIENT_SLOT  as many sessions are open as the pool has room for
 * FAR_NO_MEMORY, FAR_UNREACHABLE
 */
FAR_API int far_session_open(far_pool *pool, const struct far_session_options *options,
                             far_session **session);

/*
 * far_session_watch - set a progress callback for long calls
 *
 * far_pool_check(), far_pool_usage(), far_table_check(), far_table_info() and far_table_drop() of
 * this session call `progress` now and then, with the name of the current step and how much of it
 * is done. Returning false cancels the call: it soon returns FAR_STOPPED, and leaves everything in
 * order. progress may be NULL. A NULL session is ignored.
 */
FAR_API void far_session_watch(far_session *session,
                               bool (*progress)(void *arg, const char *what, uint64_t done,
                                                uint64_t total),
                               void *arg);

/* Ends the session. First it finishes the operations in flight and in the backlog, and drops their
 * results. Then it waits until nobody can be reading memory that it has freed. That mostly takes no
 * time; half a second if another session was used just now; two leases if another session stands
 * still in an operation; longer only if memory was lost and a sweep has to find it. NULL is
 * ignored. In a child of fork(), closing a session of the parent frees local memory only. A process
 * that ends without closing its sessions, by a signal for instance, leaves them registered. Other
 * sessions take them for dead after their lease (on shm: sooner), and a sweep finds the memory they
 * held. */
FAR_API void far_session_close(far_session *session);

/* ---------------------------------------------------------------------------------------------
 * Tables
 */
struct far_table_options {
    uint64_t expected_keys; /* initial room; the table grows beyond it. 0: start small  */
    uint64_t hash_seed;     /* 0 takes one from the session's random numbers            */
    const char *tuning;     /* parameters of the index: see below. NULL or "": defaults */
};

/*
 * far_table_create - create a table
 *
 * name    1 to FAR_NAME_MAX bytes, no NUL, no control characters
 * index   "race", "shard", "sephash", "rcuckoo" or "chime", which keeps keys in order:
 *         far_index_name() lists those of this build
 * options may be NULL
 *
 * options->tuning is text such as "groups=85": pairs name=number, joined by '&'. Numbers take the
 * suffixes k, m, g and t, for powers of 1024. A name that is left out has its default. docs/index/
 * and `farside bench --help` list the names of each index; far_table_info() returns a table's
 * tuning.
 *
 * FAR_INVALID       a bad name or option; for a bad tuning, the detail says which part is wrong and
 *                   which names and numbers the index takes
 * FAR_NO_INDEX      no such index in this build
 * FAR_TABLE_EXISTS  the name is taken
 * FAR_UNSUPPORTED   the index needs something that this pool's fabric does not offer
 * FAR_UNKNOWN       the connection broke at the last step: the table may exist, now or later
 * FAR_CATALOG_FULL, FAR_POOL_FULL, FAR_FENCED, FAR_NO_MEMORY, FAR_UNREACHABLE
 */
FAR_API int far_table_create(far_session *session, const char *name, const char *index,
                             const struct far_table_options *options, far_table **table);

/*
 * far_table_open - find a table by name
 *
 * index   the index that the table must have, or NULL for any
 *
 * FAR_NO_TABLE     no table has that name
 * FAR_WRONG_INDEX  the table has another index
 * FAR_NO_INDEX     the table has an index that is not in this build
 * FAR_UNSUPPORTED, FAR_CORRUPT, FAR_FENCED, FAR_NO_MEMORY, FAR_UNREACHABLE
 */
FAR_API int far_table_open(far_session *session, const char *name, const char *index,
                           far_table **table);

/*
 * far_table_close - give a handle back
 *
 * Every far_table_create() and far_table_open() of one table in a process returns the same handle.
 * It is freed when it has been closed as often; do not use it after that. The table itself stays.
 * Handles that are never closed are freed with their pool. A session frees what it keeps of the
 * table when it first uses another table, or when it is closed. Close a handle after the last
 * operation on it has ended or been reaped. NULL is ignored.
 */
FAR_API void far_table_close(far_table *table);

/* The table's name and its index. The strings live as long as the handle. "" for NULL. */
FAR_API const char *far_table_name(const far_table *table);
FAR_API const char *far_table_index(const far_table *table);

/*
 * far_table_drop - remove a table and everything in it
 *
 * The name is free at once, for another far_table_create(). Then the call waits until no session
 * works on the table any more, and frees its memory. The time grows with the table; another session
 * that was used just now adds half a second, and a dead one up to two leases. See
 * far_session_watch().
 *
 * Once the call has returned FAR_OK, every operation of any session on this table returns
 * FAR_NO_TABLE. Operations that run at the same time complete as usual or return FAR_NO_TABLE. The
 * handle stays valid until it is closed, for far_table_name(). A session forgets its statistics of
 * a dropped table when it first uses another table. A new table of the same name has another
 * handle.
 *
 * FAR_NO_TABLE  it was dropped before
 * FAR_UNKNOWN   the connection broke: the table may be dropped, now or later
 * FAR_INVALID, FAR_CORRUPT
 * FAR_TIMEOUT, FAR_STOPPED, FAR_FENCED, FAR_UNREACHABLE, FAR_NO_MEMORY
 *               The table may be dropped: call far_table_open() to find out. If it is, its memory
 *               is freed by the next drop in this pool, when memory is short, or by a repair. The
 *               same holds if a session dies in the middle of a drop.
 */
FAR_API int far_table_drop(far_session *session, far_table *table);

/*
 * far_table_list - call `each` for every table of the pool, in no particular order
 *
 * If `each` returns something other than 0, the call stops and returns that. FAR_CORRUPT,
 * FAR_UNREACHABLE.
 */
FAR_API int far_table_list(far_session *session,
                           int (*each)(void *arg, const char *name, const char *index), void *arg);

/* The name of index i of this build, from 0 on: "race", ... ; NULL after the last. */
FAR_API const char *far_index_name(unsigned i);

/* ---------------------------------------------------------------------------------------------
 * Operations
 *
 * All of them may return, besides what each lists:
 *
 *   FAR_INVALID      session, table or key is NULL, or value is NULL and value_len is not 0; the
 *                    table is not in the session's pool; the session was opened before fork(), or
 *                    another call on it is under way
 *   FAR_NO_TABLE     the table was dropped; nothing was done
 *   FAR_KEY_SIZE     key_len is 0, over FAR_KEY_MAX, or over the index's own limit
 *   FAR_CORRUPT      damaged data was found
 *   FAR_CONTENTION   lost to other clients more often than the bound allows, or one of them does
 *                    not go on; nothing was done
 *   FAR_FENCED       the session stood still for longer than its lease, twice in one operation;
 *                    nothing was done
 *   FAR_UNREACHABLE, FAR_TIMEOUT, FAR_REFUSED, FAR_NODE_LOST
 *                    a memory node cannot be reached, does not answer, refuses the connection, or
 *                    has lost its contents; the detail names it. The operation had no effect: one
 *                    that may have changed something returns FAR_UNKNOWN instead
 *   FAR_NO_MEMORY    out of local memory
 * and those that change something:
 *   FAR_VALUE_SIZE   value_len is over FAR_VALUE_MAX, or over the index's own limit
 *   FAR_POOL_FULL    no memory left for the new value, or a session that does not go on holds up
 *                    what others have freed; nothing was done
 *   FAR_TABLE_FULL   the table cannot grow further; nothing was done
 *   FAR_UNKNOWN      the connection broke in the middle: the change may or may not have happened.
 *                    Operations that only read never return it
 */

/*
 * far_get - read the value of a key
 *
 * buf, cap    where to put the value; buf may be NULL if cap is 0. The key may lie in buf
 * len         set to the value's length with FAR_OK and with FAR_TOO_SMALL; may be NULL
 *
 * FAR_INVALID     buf is NULL and cap is not 0
 * FAR_NOT_FOUND   no such key
 * FAR_TOO_SMALL   the value is longer than cap; buf is unchanged, and *len is the size needed
 */
FAR_API int far_get(far_session *session, far_table *table, const void *key, size_t key_len,
                    void *buf, size_t cap, size_t *len);

/* Is the key there? FAR_OK or FAR_NOT_FOUND. */
FAR_API int far_exists(far_session *session, far_table *table, const void *key, size_t key_len);

/* Sets the value of a key, whether or not the key is in the table. */
FAR_API int far_put(far_session *session, far_table *table, const void *key, size_t key_len,
                    const void *value, size_t value_len);

/* Adds a key. FAR_EXISTS: the key is already there and keeps its value. */
FAR_API int far_insert(far_session *session, far_table *table, const void *key, size_t key_len,
                       const void *value, size_t value_len);

/* Sets the value of an existing key. FAR_NOT_FOUND: there is no such key, and none is added. */
FAR_API int far_update(far_session *session, far_table *table, const void *key, size_t key_len,
                       const void *value, size_t value_len);

/* Removes a key. FAR_NOT_FOUND: there is no such key. */
FAR_API int far_delete(far_session *session, far_table *table, const void *key, size_t key_len);

/* What a callback of far_modify() decides. */
enum far_decision {
    FAR_KEEP,  /* leave the key as it is              */
    FAR_STORE, /* set it to the value of the callback */
    FAR_REMOVE /* remove it, if it exists             */
};

/*
 * The callback gets the old value and decides. If the key does not exist, old is NULL (an empty
 * value is not NULL). With FAR_STORE it sets *value and *value_len. That memory must stay valid
 * until far_modify() returns, or until a submitted operation has been reaped; it may be the old
 * value itself. The callback is called again whenever another session was faster; only what its
 * last call wrote to `arg` counts. It must not call Farside.
 */
typedef enum far_decision far_modify_fn(void *arg, const void *old, size_t old_len,
                                        const void **value, size_t *value_len);

/*
 * far_modify - read, decide and write, as one atomic operation
 *
 * Use it for compare-and-set, counters, append and the like. In indexes without locks it costs as
 * much as far_update() of a key that the session has not written before. In `rcuckoo` every change
 * holds a lock of its rows. There the callback is called while the lock is held, so it should be
 * quick, and a new value that is not kept inline takes two round trips more. In `chime` the
 * callback is called while the key's leaf is locked, at the cost of an update.
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
 * FAR_OK          the decision of the last call was carried out, which may be to do nothing
 * FAR_INVALID     modify is NULL, returned no decision, or returned NULL as a value that is not
 *                 empty; nothing was done
 * FAR_VALUE_SIZE  the new value is longer than FAR_VALUE_MAX, or than the index's own limit;
 *                 nothing was done
 */
FAR_API int far_modify(far_session *session, far_table *table, const void *key, size_t key_len,
                       far_modify_fn *modify, void *arg);

/* An entry in a buffer that far_iterate() or far_scan() has filled. */
struct far_entry {
    const void *key; /* key and value point into the buffer; they are not aligned */
    size_t key_len;
    const void *value; /* NULL with FAR_KEYS_ONLY */
    size_t value_len;  /* also with FAR_KEYS_ONLY */
};

/* Reads the entry at *pos of a buffer with `len` bytes of entries, and moves *pos behind it. Start
 * with *pos = 0. Returns false if no entry is left. */
FAR_API bool far_entry_next(const void *buf, size_t len, size_t *pos, struct far_entry *entry);

#define FAR_KEYS_ONLY 1u /* no values */
#define FAR_AFTER     2u /* far_scan(): begin behind `from`, not with it */
#define FAR_PASS_AWAY 4u /* far_iterate(): leave out what is on memory nodes that are away */

/*
 * far_iterate - the keys of a table, some at a time, in no particular order
 *
 *     uint64_t cursor = 0;
 *     do {
 *         rc = far_iterate(session, table, &cursor, 0, buf, sizeof buf, &len);
 *         for (size_t pos = 0; rc == FAR_OK && far_entry_next(buf, len, &pos, &entry);)
 *             ...
 *     } while (rc == FAR_OK && cursor != 0);
 *
 * cursor    0 to begin with; set to where the next call continues, and to 0 at the end
 * flags     FAR_KEYS_ONLY, FAR_PASS_AWAY, both, or 0. With FAR_PASS_AWAY the call does not fail
 *           with FAR_UNREACHABLE if it comes to a part of the table, or to a value, on a node that
 *           the pool was opened without: it leaves that out. In index `chime` that is all below a
 *           node of the tree; if its highest node is away, the call fails
 * buf, cap  where the entries go. If the call fails, the contents of buf are undefined
 * len       set to the number of bytes of entries. It can be 0 before the end: one call reads a
 *           bounded part of the table. With FAR_TOO_SMALL, the number of bytes that the next entry
 *           needs
 *
 * A key that is in the table from the first call to the last is returned at least once, perhaps
 * more often, also if the table grows meanwhile. A key that is added or removed meanwhile may be
 * returned or not. Each value was the key's at some instant of its call. Nothing is held between
 * calls: a cursor stays valid as long as the table exists, in any session, and holds up nobody.
 *
 * FAR_PARTIAL    as FAR_OK: cursor and len are set, and the iteration can go on. But entries were
 *                left out, because they, or the part of the table that has them, are damaged. The
 *                detail says how many at most, and
 *                far_execute() has the number as `damaged`. `farside pool check --repair` salvages
 *                what can be salvaged
 * FAR_INVALID    cursor, buf or len is NULL, a flag does not exist, or the cursor is not from
 *                far_iterate()
 * FAR_TOO_SMALL  the next entry does not fit; the cursor is unchanged
 */
FAR_API int far_iterate(far_session *session, far_table *table, uint64_t *cursor, unsigned flags,
                        void *buf, size_t cap, size_t *len);

/* Which keys a scan returns. Keys are compared byte by byte, as unsigned numbers. If one key is the
 * beginning of another, the shorter one comes first. */
struct far_range {
    const void *from; /* the lowest key, which need not be in the table; NULL: the table's first */
    size_t from_len;
    const void *to; /* only keys below this one; NULL: up to the table's last */
    size_t to_len;
    unsigned limit; /* at most this many entries; 0: as many as fit */
    unsigned flags; /* FAR_KEYS_ONLY, FAR_AFTER, both, or 0 */
};

/*
 * far_scan - the keys of a range in ascending order, some at a time
 *
 * For tables whose index keeps keys in order: `chime`. To continue, call it again with the last key
 * that it returned and FAR_AFTER:
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
 * buf, cap  where the entries go. If the call fails, the contents of buf are undefined, except that
 *           FAR_TOO_SMALL leaves them unchanged
 * len       set to the number of bytes of entries, for far_entry_next(). With FAR_TOO_SMALL, the
 *           number of bytes that the next entry needs
 * more      set to true if the limit or the end of buf ended the scan, so that the range may have
 *           more keys; then there is at least one entry. Set to false if the scan reached the end
 *           of the range. May be NULL
 *
 * Keys come in strictly ascending order, so none comes twice. A key of the range that is in the
 * table throughout the call is returned, unless the scan ended before it. Each entry was in the
 * table, with that value, at some instant of the call, but not all at the same instant: a scan is
 * not a snapshot. Nothing is held between calls. A range whose end is not above its beginning is
 * empty; this is not an error.
 *
 * FAR_PARTIAL      as FAR_OK: len and more are set. But entries that are damaged were left out, as
 *                  by far_iterate(). Some of them may be outside the range
 * FAR_UNSUPPORTED  the table's index does not keep keys in order; the detail names those that do
 * FAR_INVALID      range, buf or len is NULL, a flag does not exist, or from or to is NULL and its
 *                  length is not 0
 * FAR_KEY_SIZE     from or to is longer than FAR_KEY_MAX
 * FAR_TOO_SMALL    the next entry does not fit
 */
FAR_API int far_scan(far_session *session, far_table *table, const struct far_range *range,
                     void *buf, size_t cap, size_t *len, bool *more);

/* ---------------------------------------------------------------------------------------------
 * The ring: many operations of one thread in flight
 *
 * far_submit() starts an operation and returns; far_reap() collects results, in any order.
 * far_session_fd() is for programs that wait for other things as well. far_cancel() takes back
 * operations that have not started. Operations in flight at the same time are concurrent with each
 * other, also if they have the same key.
 *
 * Operations in flight go on within far_reap(), and while another call on the same session waits.
 * They do not go on within calls on other sessions. A thread with several sessions must therefore
 * reap the results of one before it changes the same keys through another: that call would wait
 * for the ring, for up to several leases, and return FAR_CONTENTION.
 */
/* 0 is no kind: a struct far_op that was only zeroed is FAR_INVALID. */
enum far_op_kind {
    FAR_OP_GET = 1,
    FAR_OP_EXISTS,
    FAR_OP_PUT,
    FAR_OP_INSERT,
    FAR_OP_UPDATE,
    FAR_OP_DELETE,
    FAR_OP_MODIFY,
    FAR_OP_ITERATE,
    FAR_OP_SCAN
};
#define FAR_OP_KINDS 10 /* one more than the highest */
#define FAR_OP_ROOM  16 /* kinds that struct far_stats has room for, now and in later versions */

struct far_op {
    enum far_op_kind kind;
    far_table *table;
    const void *key; /* scan: `from` of the range */
    size_t key_len;
    const void *value; /* put, insert, update */
    size_t value_len;
    void *buf; /* get, iterate, scan: where the value or the entries go */
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
    int status; /* what the function of the same kind would have returned */
    /* With FAR_OK, FAR_PARTIAL and FAR_TOO_SMALL. Get: the value's length. Iterate, scan: bytes of
     * the entries, or of the entry that did not fit. */
    size_t len;
    /* With FAR_OK and FAR_PARTIAL. */
    uint64_t cursor;  /* iterate: where to continue, 0 at the end */
    unsigned count;   /* iterate, scan: number of entries         */
    bool more;        /* scan: as far_scan() sets it              */
    unsigned damaged; /* with FAR_PARTIAL: entries that were left out, at most */
};

/*
 * far_execute - run an operation that is given as data, and wait for it
 *
 * Does what the function of the same kind does, and returns its status. The result is filled in any
 * case. It does not wait for submitted operations.
 *
 * FAR_INVALID   session, op or result is NULL, the kind does not exist, or the table is not in the
 *               session's pool; the result is unchanged
 */
FAR_API int far_execute(far_session *session, const struct far_op *op, struct far_result *result);

/*
 * far_execute_many - run operations in order, and wait for them
 *
 * Does what far_execute() does for each of them, one after the other, and fills in the result of
 * each. On mem: and shm: it also looks ahead, and prefetches what the next lookups will read, with
 * RACE, SHARD and RCuckoo. That pays if the table is larger than the processor's caches. On a
 * network, far_submit_many() is faster: the ring has many operations in flight at once.
 *
 * Returns FAR_OK if each operation ended as FAR_OK, or with an answer: FAR_NOT_FOUND, FAR_EXISTS,
 * FAR_TOO_SMALL. Otherwise the status of the first one that did not, and far_error_detail() is
 * about that one. All of them are executed in any case.
 *
 * FAR_INVALID   session is NULL or cannot be used, or ops or results is NULL and count is not 0:
 *               the results are unchanged. Or the status of an operation
 */
FAR_API int far_execute_many(far_session *session, const struct far_op *ops,
                             struct far_result *results, unsigned count);

/*
 * far_submit - start an operation
 *
 * The struct itself may be reused at once; key, value and buf must stay valid until the operation
 * is reaped. It starts at once if fewer than `depth` operations are in flight or wait to be reaped.
 * Otherwise it waits in the backlog, if the session has one, and starts when enough earlier
 * operations have been reaped.
 *
 * FAR_RING_FULL   `depth` operations are in flight or wait to be reaped, and there is no room in
 *                 the backlog: reap first
 * FAR_INVALID     session or op is NULL, the kind does not exist, the table is not in the session's
 *                 pool, or the session was opened before fork()
 * Later errors are in the result's status.
 */
FAR_API int far_submit(far_session *session, const struct far_op *op);

/*
 * far_submit_many - start several operations
 *
 * Submits them in order, until one cannot be submitted. *started (may be NULL) is set to the number
 * of operations that were submitted, also if the call fails. Reap those as usual.
 *
 * FAR_RING_FULL   there was no room for all: reap, and submit the rest
 * FAR_INVALID     as far_submit(), for the first that was not submitted
 */
FAR_API int far_submit_many(far_session *session, const struct far_op *ops, unsigned count,
                            unsigned *started);

/*
 * far_reap - collect results
 *
 * Waits until there are min_results results, or until no operation is in flight. Stores at most
 * max_results and returns how many it stored, or a negative status. With min_results 0 it does not
 * wait.
 *
 * FAR_INVALID   session is NULL, results is NULL and max_results is not 0, or the session was
 *               opened before fork(); all results stay to be reaped
 */
FAR_API int far_reap(far_session *session, struct far_result *results, unsigned max_results,
                     unsigned min_results);

/* The same, but waits at most timeout_ns nanoseconds. So it may return fewer than min_results. */
FAR_API int far_reap_within(far_session *session, struct far_result *results, unsigned max_results,
                            unsigned min_results, uint64_t timeout_ns);

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
 * The descriptor is readable when far_reap() should be called: there are results, or operations can
 * continue. While operations are in flight it becomes readable in every case, also if a node does
 * not answer or a connection is lost and made again, so waiting needs no time-out. far_reap() with
 * min_results 0 continues the operations and sets the descriptor for what comes next; it may return
 * 0. If no operation is in flight and no result is to be reaped, the descriptor is not readable,
 * except for a single wake-up now and then.
 *
 * The descriptor belongs to the session, never changes, and is closed with the session. Wait on it
 * with epoll, poll or select, level-triggered, in any thread. Do not read it. Call far_reap() in
 * the session's thread, like all other functions. Sessions without a descriptor pay nothing for it;
 * with one, far_submit() and far_reap() may enter the kernel. A child of fork() must not use it.
 *
 * FAR_INVALID      session or fd is NULL, or the session was opened before fork()
 * FAR_SYSTEM       too many descriptors are open
 * FAR_UNSUPPORTED  the pool's fabric can only be polled; no fabric of this version is like that
 * FAR_NO_MEMORY
 */
FAR_API int far_session_fd(far_session *session, int *fd);

/*
 * far_cancel - take back operations that have not started
 *
 * Takes the operations with that user_data out of the backlog; they never run. Each still gives a
 * result, with FAR_STOPPED; its buffers belong to the caller again once that is reaped. An
 * operation that has started is not stopped: its result comes as usual.
 *
 * cancelled    set to the number of operations taken back; may be NULL
 *
 * FAR_STARTED   all operations with that user_data have started, finished, or been cancelled before
 * FAR_INVALID   no operation with that user_data is to be reaped, session is NULL, or the session
 *               was opened before fork()
 */
FAR_API int far_cancel(far_session *session, uint64_t user_data, unsigned *cancelled);

/* ---------------------------------------------------------------------------------------------
 * Statistics
 *
 * Always on. Round trips, verbs and bytes do not depend on the machine, so they can be used to
 * compare indexes.
 */
#define FAR_RTTS_TOLD 32
struct far_op_stats {
    uint64_t count;     /* operations finished, whatever their status         */
    uint64_t not_found; /* of them, FAR_NOT_FOUND                             */
    uint64_t exists;    /* of them, FAR_EXISTS                                */
    uint64_t errors;    /* of them, any other failure                         */
    uint64_t rtts;      /* round trips, also those of growth that they caused */
    uint64_t verbs;     /* READ, WRITE, CAS, masked CAS and FAA               */
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t entries; /* iterate, scan: entries returned */
    uint64_t joined;  /* changes that were done with another one of the process: no round trips */
    /* Operations by the round trips that each took; the last is for those that took more, too. */
    uint64_t took[FAR_RTTS_TOLD];
};

struct far_stats {
    struct far_op_stats op[FAR_OP_ROOM]; /* by enum far_op_kind */
};

/* Statistics of this session's operations on one table, since the session was opened. Never fails:
 * all zeros if session or table is NULL or they are of different pools. Does nothing if stats is
 * NULL. */
FAR_API void far_stats(const far_session *session, const far_table *table, struct far_stats *stats);

/* A figure that only tables of this index have. Its page in docs/index/ says what it means. */
struct far_table_figure {
    const char *name; /* static text; NULL: there is none */
    uint64_t value;
};
#define FAR_TABLE_FIGURES_MAX 4

/* A table as a whole, as this session sees it. */
struct far_table_info {
    uint64_t keys;               /* exact when nobody writes meanwhile               */
    uint64_t slots;              /* places for a key in the index                    */
    uint64_t index_bytes;        /* remote bytes of the live index                   */
    uint64_t block_bytes;        /* remote bytes of the live keys and values         */
    uint64_t client_cache_bytes; /* local bytes of this session's cache of the index */
    double load_factor;          /* keys / slots                                     */
    uint64_t damaged;            /* slots that could not be read; far_pool_check()   */
    uint64_t splits;             /* restructurings this session has done             */
    double split_load_max;       /* highest and mean load factor of what it split;   */
    double split_load_mean;      /* 0 if it has split nothing                        */
    uint64_t split_ns; /* what restructuring took it, with waits and what came to nothing */
    struct far_table_figure figure[FAR_TABLE_FIGURES_MAX];  /* the first ones have names */
    struct far_table_figure session[FAR_TABLE_FIGURES_MAX]; /* of this session's operations */
    /* The table's tuning, with defaults, as text for far_table_create(); "" if the index has
     * none. */
    char tuning[FAR_TUNING_MAX + 1];
};

/* Walks the whole table to fill info.
 * FAR_NO_TABLE, FAR_CORRUPT, FAR_FENCED, FAR_UNREACHABLE, FAR_NO_MEMORY. */
FAR_API int far_table_info(far_session *session, far_table *table, struct far_table_info *info);

/*
 * far_table_check - check the table's structural invariants
 *
 * Walks the whole table, which nobody should change meanwhile. Each violation is passed to `report`
 * (may be NULL) as one line of text.
 *
 * FAR_CORRUPT  there are violations
 * FAR_NO_TABLE, FAR_FENCED, FAR_UNREACHABLE, FAR_NO_MEMORY
 */
FAR_API int far_table_check(far_session *session, far_table *table,
                            void (*report)(void *arg, const char *line), void *arg);

#ifdef __cplusplus
}
#elif defined(__clang__)
#pragma clang diagnostic pop
#endif
#endif
