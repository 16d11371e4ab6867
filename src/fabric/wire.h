/* What both ends of the wire use beside its messages: the secret and its proofs, addresses, and
 * what a client knows of its memory nodes. */
#ifndef FABRIC_WIRE_H
#define FABRIC_WIRE_H

#include "fabric/wire_layout.h"

/* ---- the secret ------------------------------------------------------------------------------ */
#define WIRE_SECRET_MIN 16u
#define WIRE_SECRET_MAX 1024u

struct wire_secret {
    size_t bytes; /* 0: no secret */
    uint8_t key[WIRE_SECRET_MAX];
};

/* Reads the secret from the file; if that is NULL, from the file that FARSIDE_SECRET_FILE names;
 * else it is FARSIDE_SECRET. A newline at the end does not count. FAR_SYSTEM, FAR_INVALID. */
int wire_secret_load(const char *file, struct wire_secret *secret);
/* Overwrites it. */
void wire_secret_forget(struct wire_secret *secret);

enum wire_role { WIRE_CLIENT, WIRE_NODE };

/* The proof of one side, over both nonces and the link. */
void wire_prove(const struct wire_secret *secret, enum wire_role role,
                const uint8_t client_nonce[WIRE_NONCE], const uint8_t node_nonce[WIRE_NONCE],
                uint64_t link, uint8_t proof[WIRE_PROOF]);
/* 64 bits of the secret that a client sends with its request for a connection, so that the node can
 * turn others away before UCX looks at what they send. 0: there is no secret. It is the same each
 * time, and opens nothing but that door: the proof follows. */
uint64_t wire_knock(const struct wire_secret *secret);
/* Compares in constant time. */
bool wire_proof_equal(const uint8_t a[WIRE_PROOF], const uint8_t b[WIRE_PROOF]);

/* Random bytes for nonces, tokens and names. FAR_SYSTEM. */
int wire_random(void *bytes, size_t count);

/* ---- addresses ------------------------------------------------------------------------------- */

/* One of "//host:port,host:port" in a URI; IPv6 addresses are written [::1]:port. */
#define WIRE_HOST_MAX 255u
struct wire_address {
    char text[WIRE_HOST_MAX + 8]; /* host:port, as it was written */
    char host[WIRE_HOST_MAX + 1];
    char port[6];
};

/* What a node listens at: one address, and no options. FAR_BAD_URI. */
int wire_listener_uri(const struct uri *uri, struct wire_address *address);

/* ---- a client's memory nodes ----------------------------------------------------------------- */

enum { WIRE_NODE_NEW, WIRE_NODE_LEARNT, WIRE_NODE_KNOWN };
struct wire_nodes {
    struct wire_secret secret;
    uint64_t timeout_ms;
    struct wire_address address[FAB_NODES_MAX];

    /* What the first WELCOME of each node said. Threads may hear it at the same time. */
    unsigned known[FAB_NODES_MAX]; /* WIRE_NODE_NEW, then WIRE_NODE_LEARNT, then WIRE_NODE_KNOWN */
    uint64_t instance[FAB_NODES_MAX];
    bool formatted[FAB_NODES_MAX];
};

/* Reads addresses and options; sets the fabric's number of nodes and what it wants of a new pool.
 * FAR_BAD_URI, FAR_SYSTEM, FAR_INVALID. */
int wire_nodes_read(struct uri *uri, uint64_t timeout_ms_min, uint64_t timeout_ms_max,
                    struct wire_nodes *nodes, struct fab *fab);

/* Does the node need a secret exactly if there is one? FAR_REFUSED, with the reason in *why. */
int wire_nodes_challenged(const struct wire_nodes *nodes, const struct wire_challenge *challenge,
                          const char **why);

/* Is it the memory that this client knows? The first WELCOME of a node is believed, and its size
 * goes to the fabric: to found[], and to size[] unless the node is away (AWAY-1). FAR_CORRUPT,
 * FAR_NODE_LOST, FAR_UNREACHABLE, with the reason in *why. */
int wire_nodes_welcomed(struct wire_nodes *nodes, unsigned node, const struct wire_welcome *welcome,
                        struct fab *fab, const char **why);

/* Connects to all nodes. One that cannot be reached is away (AWAY-1), but node 0 must be there.
 * FAR_UNREACHABLE, FAR_TIMEOUT, and what else `connect` returns. */
int wire_nodes_connect(struct fab *fab, int (*connect)(struct fab *fab, unsigned node));

/* Finds out whether this client is to make the pool (fab->fresh). If another is making it, waits.
 * `claim` sends CLAIM to node 0. Making a pool needs all of its nodes. FAR_BAD_URI: a node is
 * listed twice. FAR_TIMEOUT, FAR_NOT_A_POOL, FAR_UNREACHABLE, and what `claim` returns. */
int wire_nodes_claim(const struct wire_nodes *nodes, struct fab *fab,
                     int (*claim)(struct fab *fab, uint32_t *value));

/* What a client knows of a node's clock: what the node's last answer said, and when, by its own. */
struct wire_clock {
    uint64_t node, here;
};

/* A lower bound for the node's clock now, if the two clocks differ by less than an eighth in their
 * rates, and none was set since (WIRE-W5). */
uint64_t wire_clock_least(const struct wire_clock *clock, uint64_t here);
/* For how long the node may execute a batch, in microseconds, so that nothing of it happens later
 * than half a lease after it was sent, by this client's clock (FABRIC-F5). */
uint32_t wire_valid_us(uint64_t lease_ms, uint64_t timeout_ms);

/* The COUNTS of the node at that address, as users see them. */
void wire_node_info(const struct wire_counts *counts, const struct wire_address *address,
                    struct far_node_info *info);

#endif
