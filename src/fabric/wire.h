/* What both ends of the wire use beside its messages: the secret and its proofs, and addresses. */
#ifndef FABRIC_WIRE_H
#define FABRIC_WIRE_H

#include "fabric/wire_layout.h"

/* ---- the secret ------------------------------------------------------------------------------ */
#define WIRE_SECRET_MAX 1024u

struct wire_secret {
    size_t bytes; /* 0: there is none */
    uint8_t key[WIRE_SECRET_MAX];
};

/* From the file if it is named, else from the environment: FARSIDE_SECRET_FILE names a file,
 * FARSIDE_SECRET is the secret. A newline at the end does not count. FAR_SYSTEM, FAR_INVALID. */
int wire_secret_load(const char *file, struct wire_secret *secret);

enum wire_role { WIRE_CLIENT, WIRE_NODE };

/* The proof of one side, over both nonces and the link. */
void wire_prove(const struct wire_secret *secret, enum wire_role role,
                const uint8_t client_nonce[WIRE_NONCE], const uint8_t node_nonce[WIRE_NONCE],
                uint64_t link, uint8_t proof[WIRE_PROOF]);
/* Takes the same time whatever they hold. */
bool wire_proof_equal(const uint8_t a[WIRE_PROOF], const uint8_t b[WIRE_PROOF]);

/* Random bytes that cannot be guessed. FAR_SYSTEM. */
int wire_random(void *bytes, size_t count);

/* ---- addresses ------------------------------------------------------------------------------- */

/* "//host:port,host:port" of a URI. [::1]:port for IPv6 numbers. FAR_BAD_URI. */
#define WIRE_HOST_MAX 255u
struct wire_address {
    char text[WIRE_HOST_MAX + 8]; /* host:port, as it was written */
    char host[WIRE_HOST_MAX + 1];
    char port[6];
};
/* Reads the next one and moves *rest behind it and its comma; "" at the end. */
int wire_address_next(const char **rest, struct wire_address *address);

/* What COUNTS of the node at that address says, as users see it. */
void wire_node_info(const struct wire_counts *counts, const struct wire_address *address,
                    struct far_node_info *info);

#endif
