/*
 * The memory node: a region of memory, and listeners through which clients reach it.
 *
 * It touches no index. What it knows of its clients is a connection each (struct memd_client), with
 * the identity by which their verbs are known, so that a client that others have declared dead can
 * be shut out. A transport (serve_*.c) moves messages and calls memd_message() and memd_batch();
 * all that they mean is here, and the same for every transport.
 *
 *   NODE-N1  A batch is executed while its connection is `busy`, and not at all if that was shut
 *       before. memd_fence() returns when the identity is on record, every connection that has it
 *       is shut, and none of them is busy.
 *   NODE-N2  An identity that was fenced is refused for as long as it is on record: for the next
 *       MEMD_FENCED_MAX fences, over restarts too if the region is in a file.
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
#define MEMD_CHECKED       256u /* identities that a connection keeps in mind */

struct memd;
struct memd_client;
struct memd_listener;

/* ---- the region (region.c) ------------------------------------------------------------------- */

struct memd_region {
    char *base; /* 2 MiB aligned; all of it is readable and writable */
    uint64_t size;
    struct memd_keep *keep;
    uint64_t map_bytes;
    int fd; /* -1: not in a file */
};

/* Makes the region; with a path, in that file, which is created or must hold a region of that size
 * (0: of any). FAR_NO_MEMORY, FAR_SYSTEM, FAR_NOT_A_POOL, FAR_INVALID. */
int memd_region_open(struct memd_region *region, uint64_t size, const char *path);
void memd_region_close(struct memd_region *region);

/* ---- what the machine has (limits.c) --------------------------------------------------------- */

/* FAR_NO_MEMORY: the machine, or this process's control group, has less memory than that. */
int memd_check_memory(uint64_t bytes);
/* As many file descriptors as this process may have: every connection takes some. */
void memd_raise_descriptors(void);
/* FAR_SYSTEM: one cannot listen there, and why. */
int memd_check_address(const char *text, const struct sockaddr *at, socklen_t at_bytes);

/* ---- transports ------------------------------------------------------------------------------ */

struct memd_listener_ops {
    const char *scheme;

    /* Begins to listen at what the URI names, with up to `threads` threads of its own, which serve
     * until close(). Sets address and by_nic. */
    int (*open)(struct memd *memd, struct uri *uri, unsigned threads,
                struct memd_listener **listener);

    /* Takes no new connections, finishes what has arrived, ends all connections and threads. */
    void (*close)(struct memd_listener *listener);

    /* No verb of that connection takes effect once this has returned. It is called with
     * memd->lock held, by any thread, after `shut` was set and with no batch being executed:
     * a transport whose verbs are all executed by memd_batch() needs nothing more (NULL). */
    void (*shut)(struct memd_client *client);
};

struct memd_listener {
    const struct memd_listener_ops *ops;
    struct memd *memd;
    char address[WIRE_HOST_MAX + 24]; /* as clients would write it, with the port that was taken */
    bool by_nic; /* a network card executes the atomics, and not atomically with processors */
};

/* For open(): sets the listener's address, whose ops are set. */
void memd_listening(struct memd_listener *listener, const char *host, unsigned port);

/* Those of this build, NULL at the end. */
extern const struct memd_listener_ops *const memd_transports[];

/* ---- clients --------------------------------------------------------------------------------- */

enum memd_state { MEMD_NEW, MEMD_CHALLENGED, MEMD_WELCOMED, MEMD_OVER };

/* One connection. The transport makes it part of its own and calls memd_client_init() and _end().
 */
struct memd_client {
    struct memd *memd;
    struct memd_listener *listener;
    struct memd_client *next, *prev; /* all of the node's, under memd->lock */
    enum memd_state state;           /* the transport's thread only         */
    uint32_t slot;                   /* what the transport finds it by      */
    uint64_t token, link;
    uint8_t client_nonce[WIRE_NONCE], node_nonce[WIRE_NONCE];
    uint64_t address; /* one-sided transports set these two before WELCOME */
    uint32_t rkey;
    bool one_sided;
    struct { /* identities that were not on record, when there were that many */
        uint64_t identity, fences;
    } checked[MEMD_CHECKED];
    _Atomic uint64_t identity; /* changed under memd->lock      */
    _Atomic bool shut;         /* nothing more is to be executed, until it has another identity */
    _Atomic bool void_;        /* nothing more at all: replaced by another of the same link     */
    _Atomic bool busy;         /* executing a batch */
    struct wire_count_set count;
};

struct memd {
    struct memd_region region;
    struct direct_fab direct; /* the region as a fabric of one node */
    struct wire_secret secret;
    struct memd_listener *listener[MEMD_LISTENERS_MAX];
    unsigned listeners;
    uint64_t started; /* clock_ns() */

    pthread_mutex_t lock; /* for all below */
    struct memd_client *clients;
    struct memd_client *formatter; /* who was told to make the pool */
    struct wire_count_set count;   /* of connections that are over  */
};

/* The region must be open and the secret set. */
int memd_init(struct memd *memd);
/* Opens a listener for the URI. FAR_BAD_URI, FAR_NO_FABRIC, FAR_UNSUPPORTED (one listener executes
 * atomics by network card and another by processor), or the transport's. */
int memd_listen(struct memd *memd, const char *uri, unsigned threads);
/* Closes all listeners. The region stays. */
void memd_stop(struct memd *memd);
/* The counters as they are now, added up. */
void memd_counts(struct memd *memd, struct wire_count_set *count);

/* FAR_NO_CLIENT_SLOT: there are as many as there may be. */
int memd_client_init(struct memd *memd, struct memd_listener *listener, uint32_t slot,
                     struct memd_client *client);
void memd_client_end(struct memd_client *client);

/*
 * Does what a message other than BATCH asks for, whoever sent it: any bytes are fine. The answer is
 * left in `answer`, its length in *answer_bytes; 0: there is none. False: send the answer, if any,
 * and end the connection.
 */
bool memd_message(struct memd_client *client, const void *message, size_t bytes,
                  char answer[WIRE_CONTROL_MAX], size_t *answer_bytes);

/* Whether it is a BATCH, by its head. */
static inline bool memd_is_batch(const void *message, size_t bytes)
{
    return bytes >= sizeof(struct wire_head) &&
           ((const struct wire_head *)message)->type == WIRE_BATCH;
}

/* A BATCH of any bytes from the head on, 8-byte aligned. Asks `room` for an 8-byte aligned buffer
 * of as many bytes as the reply has (at most WIRE_MESSAGE_MAX), and returns those, or 0 with false:
 * end the connection. */
bool memd_batch(struct memd_client *client, void *message, size_t bytes,
                void *(*room)(void *arg, size_t bytes), void *arg, size_t *reply_bytes);

/* For one-sided transports: does the message belong to this connection (WIRE-W1)? */
bool memd_owns(const struct memd_client *client, const struct wire_head *head);

/* Shuts an identity out (NODE-N1). */
void memd_fence(struct memd *memd, uint64_t identity);

#endif
