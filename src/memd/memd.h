/*
 * The memory node: a region of memory, and listeners through which clients reach it.
 *
 * It knows nothing of indexes. For each client it has a connection (struct memd_client) with the
 * identity of the client's verbs, so that it can shut out a client that others have declared dead.
 * A transport (serve_*.c) moves messages and calls memd_message() and memd_batch(), which do what
 * the messages ask for, in the same way for every transport.
 *
 *   NODE-N1  A batch is executed while its connection is `busy`, and not at all if the connection
 *       was shut before. When a FENCE is answered, the identity is on record, every connection
 *       that has it is shut, and none of those is busy.
 *   NODE-N2  An identity that was fenced is refused while it is on record: for the next
 *       MEMD_FENCED_MAX fences, and across restarts if the region is in a file.
 *   NODE-N3  A batch asks for the node's view while its connection is busy, and before anything of
 *       it is executed. The view is a word of the region (NODE_VIEW_OFF) that only grows. When a
 *       FENCE_VIEW is answered, the word has that view or a newer one, no connection is busy with a
 *       batch of an older one, and one-sided connections of older views are shut.
 */
#ifndef MEMD_MEMD_H
#define MEMD_MEMD_H

#include "fabric/direct.h"
#include "fabric/wire.h"
#include "memd/region_layout.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define MEMD_CLIENTS_MAX   4096u
#define MEMD_LISTENERS_MAX 16u
#define MEMD_CHECKED       256u /* identities that a connection remembers as not fenced */

struct memd;
struct memd_client;
struct memd_listener;

/* ---- the region (region.c) ------------------------------------------------------------------- */

struct memd_region {
    char *base; /* 2 MiB aligned, readable and writable */
    uint64_t size;
    struct memd_keep *keep;
    uint64_t map_bytes;
    int fd; /* -1: not in a file */
};

#define MEMD_WITNESS_BYTES (2ull << 20)
/* Makes the region. With a path it is in that file, which is created or must hold a region of that
 * size (0: of any size). `witness`: a pool that is made with it keeps no data there; a file must
 * agree. FAR_NO_MEMORY, FAR_SYSTEM, FAR_NOT_A_POOL, FAR_CORRUPT, FAR_INVALID. */
int memd_region_open(struct memd_region *region, uint64_t size, const char *path, bool witness);
/* The node ends in order: when this has returned, a file has all that the memory had. */
void memd_region_close(struct memd_region *region);

/* ---- limits of the machine (limits.c) -------------------------------------------------------- */

/* FAR_NO_MEMORY: the machine or this process's control group has less memory. */
int memd_check_memory(uint64_t bytes);
/* Raises the number of file descriptors to the hard limit, as every connection takes some. */
void memd_raise_descriptors(void);
/* FAR_SYSTEM: it is not possible to listen there; the detail says why. */
int memd_check_address(const char *text, const struct sockaddr *at, socklen_t at_bytes);

/* ---- transports ------------------------------------------------------------------------------ */

struct memd_listener_ops {
    const char *scheme;

    /* Starts to listen at the URI, with up to `threads` threads, which serve until close(). Sets
     * address and by_nic. */
    int (*open)(struct memd *memd, struct uri *uri, unsigned threads,
                struct memd_listener **listener);

    /* Stops listening, finishes what has arrived, ends all connections and threads. */
    void (*close)(struct memd_listener *listener);

    /* Once this has returned, no verb of that connection takes effect. Any thread may call it, with
     * memd->lock held, after it has set `shut` and while no batch is being executed. NULL for a
     * transport whose verbs are all executed by memd_batch(), which needs nothing more. */
    void (*shut)(struct memd_client *client);
};

struct memd_listener {
    const struct memd_listener_ops *ops;
    struct memd *memd;
    char address[WIRE_HOST_MAX + 24]; /* as in a client's URI, with the actual port */
    bool by_nic; /* a network card executes the atomics, not atomically against the processor's */
};

/* For open(): sets the listener's address. Its ops must be set. */
void memd_listening(struct memd_listener *listener, const char *host, unsigned port);

/* Opens a listener for the URI (transports.c). FAR_BAD_URI, FAR_NO_FABRIC, FAR_UNSUPPORTED (a
 * network card executes the atomics of one listener, the processor those of another), or the
 * transport's own. */
int memd_listen(struct memd *memd, const char *uri, unsigned threads);

/* ---- clients --------------------------------------------------------------------------------- */

enum memd_state { MEMD_NEW, MEMD_CHALLENGED, MEMD_WELCOMED, MEMD_OVER };

/* A connection. The transport embeds it in its own structure and calls memd_client_init() and
 * _end(). */
struct memd_client {
    struct memd *memd;
    struct memd_listener *listener;
    struct memd_client *next, *prev; /* the list of all, under memd->lock   */
    enum memd_state state;           /* used by the transport's thread only */
    uint32_t slot;                   /* its number with the transport       */
    uint64_t token, link;
    uint8_t client_nonce[WIRE_NONCE], node_nonce[WIRE_NONCE];
    uint64_t address; /* set by one-sided transports before WELCOME, as are the next two */
    uint32_t rkey;
    bool one_sided;
    struct { /* identities that were not on record when there had been that many fences */
        uint64_t identity, fences;
    } checked[MEMD_CHECKED];
    _Atomic uint64_t identity; /* changed under memd->lock                                        */
    _Atomic bool shut;         /* executes nothing until it has another identity                  */
    _Atomic bool void_;        /* executes nothing any more: another of the same link replaced it */
    _Atomic uint64_t busy;     /* a batch is being executed: its view, plus 1; 0: none            */
    uint32_t view;             /* one-sided: that its verbs are of; under memd->lock; 0: none     */
    struct wire_count_set count;
};

struct memd {
    struct memd_region region;
    struct direct_fab direct; /* the region as a fabric of one node */
    struct wire_secret secret;
    void (*proved)(void); /* called while a message is handled that proves a client; or NULL */
    _Atomic uint64_t turned_away; /* clients without the secret that no transport has seen */
    struct memd_listener *listener[MEMD_LISTENERS_MAX];
    unsigned listeners;
    uint64_t started; /* clock_ns() */

    pthread_mutex_t lock; /* for the rest */
    struct memd_client *clients;
    struct memd_client *formatter; /* has the right to make the pool */
    struct wire_count_set count;   /* of connections that have ended */
};

/* The region must be open and the secret set. */
int memd_init(struct memd *memd);
/* Closes all listeners, but not the region. */
void memd_stop(struct memd *memd);
/* The sum of all connections' counters. */
void memd_counts(struct memd *memd, struct wire_count_set *count);

/* FAR_NO_CLIENT_SLOT: there are MEMD_CLIENTS_MAX already. */
int memd_client_init(struct memd *memd, struct memd_listener *listener, uint32_t slot,
                     struct memd_client *client);
void memd_client_end(struct memd_client *client);

/*
 * Handles a message other than BATCH. It may be any bytes, from any sender. Sets `answer` and its
 * length, *answer_bytes; 0: there is no answer. False: send the answer, if any, and end the
 * connection.
 */
bool memd_message(struct memd_client *client, const void *message, size_t bytes,
                  char answer[WIRE_CONTROL_MAX], size_t *answer_bytes);

/* Is it a BATCH, by its head? */
static inline bool memd_is_batch(const void *message, size_t bytes)
{
    return bytes >= sizeof(struct wire_head) &&
           ((const struct wire_head *)message)->type == WIRE_BATCH;
}

/* Handles a BATCH. Behind its head it may be any bytes; it is 8-byte aligned. Calls `room` for an
 * 8-byte aligned buffer for the reply (at most WIRE_MESSAGE_MAX) and sets *reply_bytes; 0: there is
 * no reply. False: end the connection. */
bool memd_batch(struct memd_client *client, void *message, size_t bytes,
                void *(*room)(void *arg, size_t bytes), void *arg, size_t *reply_bytes);

#endif
