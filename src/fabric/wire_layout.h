/*
 * The messages between clients and memory nodes. docs/wire.md has the protocol.
 *
 * Every message begins with struct wire_head and is a little-endian image. Whatever arrives may be
 * hostile: wire_check() and wire_batch_check() check every length, count, offset and alignment
 * before anything is done, and nothing is allocated by a size from the network.
 *
 *   WIRE-W1  Before WELCOME a node does nothing for a connection but the hand-shake. After it,
 *       every message carries the connection's number and token, which only CHALLENGE reveals. A
 *       message counts only if both match, whatever connection the transport attributes it to.
 *   WIRE-W2  The verbs of a part are executed in order, and so are the parts of a batch. A batch
 *       that is refused (ANSWER instead of REPLY) has not been executed at all.
 *   WIRE-W3  When the REPLY arrives, the batch has been executed. What it did is visible to every
 *       batch that is executed later, from any client.
 *   WIRE-W4  When a connection is welcomed, it voids any other with the same link number: what
 *       still arrives by the other one is not executed.
 *   WIRE-W5  A batch says when it was sent, by the node's clock, and for how long it is valid. The
 *       node executes it only within that time. So a node that stood still does not execute what
 *       its clients have given up.
 *   WIRE-W6  Once FENCE_VIEW is answered, the node executes no batch of an older view, and is not
 *       executing one. It answers such a batch by FAR_FENCED and its view. 0 is no view.
 *
 * Why WIRE-W5 is enough for FABRIC-F5, which has half a lease by the client's clock, if the rates
 * of the two clocks differ by less than an eighth: The client has the node's clock from an answer,
 * and adds 7/8 of the time that has passed since it took the answer. So `sent` is no later than the
 * batch was sent. The batch is valid for 3/8 of a lease by the node's clock, which is 3/7 by the
 * client's. If a clock was set, or the client took the answer late, `sent` is too late or too
 * early. Then the node does not execute the batch, and its ANSWER has its clock: the client sends
 * the batch again.
 */
#ifndef FABRIC_WIRE_LAYOUT_H
#define FABRIC_WIRE_LAYOUT_H

#include "fabric/fabric.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "messages are little-endian images; a big-endian host needs accessors"
#endif

#define WIRE_MAGIC   0x57726146u /* "FarW" */
#define WIRE_VERSION 4u

#define WIRE_MESSAGE_MAX (256u << 10) /* bytes of any message                            */
#define WIRE_CONTROL_MAX 256u         /* bytes of any message but BATCH and REPLY        */
#define WIRE_WINDOW      8u           /* batches of one connection that may be under way */
#define WIRE_PART_VERBS  128u
#define WIRE_NONCE       32u
#define WIRE_PROOF       32u
#define WIRE_TEXT        120u

/* The status of UCX with which a node refuses a request without the knock: one that UCX itself does
 * not send. */
#define WIRE_NOT_LET_IN (-13)

enum wire_type {
    WIRE_HELLO = 1, /* client: a nonce                                                   */
    WIRE_CHALLENGE, /* node: a nonce, a token, whether a secret is needed                */
    WIRE_PROOF_IS,  /* client: proof that it knows the secret                            */
    WIRE_WELCOME,   /* node: proof that it knows the secret, and what memory it has      */
    WIRE_REFUSED,   /* node: connection refused                                          */
    WIRE_BATCH,     /* client: verbs to execute                                          */
    WIRE_REPLY,     /* node: results of a batch                                          */
    WIRE_IDENTIFY,  /* client: the identity of its one-sided verbs; batches carry theirs */
    WIRE_FENCE,     /* client: request to shut an identity out                           */
    WIRE_CLAIM,     /* client: request to make the pool if there is none                 */
    WIRE_FORMATTED, /* client: there is a pool                                           */
    WIRE_STAT,      /* client: request for counters                                      */
    WIRE_COUNTS,    /* node: counters                                                    */
    WIRE_ANSWER,    /* node: a status, for requests without another answer               */
    /* client: request to refuse what is of older views */
    WIRE_FENCE_VIEW
};

struct wire_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t slot; /* the connection's number at the node; 0 in HELLO */
    /* BATCH: that its requests name; IDENTIFY: that the connection's verbs are of; FENCE_VIEW: the
     * oldest that is not refused; ANSWER to the first two, FAR_FENCED: the node's, if it is newer.
     * Else 0: none. */
    uint32_t view;
    uint64_t seq;   /* the client's number of the question, repeated in the answer */
    uint64_t token; /* 0 in HELLO, then the one of CHALLENGE                       */
};
_Static_assert(sizeof(struct wire_head) == 32, "part of the protocol");

struct wire_hello {
    struct wire_head head;
    uint8_t nonce[WIRE_NONCE];
    uint64_t link; /* a client's number for its way to this node, the same when it reconnects */
    uint64_t reserved;
};
_Static_assert(sizeof(struct wire_hello) == 80, "part of the protocol");

struct wire_challenge {
    struct wire_head head;
    uint8_t nonce[WIRE_NONCE];
    uint32_t secret_needed;
    uint32_t reserved;
};
_Static_assert(sizeof(struct wire_challenge) == 72, "part of the protocol");

struct wire_proof {
    struct wire_head head;
    uint8_t proof[WIRE_PROOF]; /* zeros if no secret is needed */
};
_Static_assert(sizeof(struct wire_proof) == 64, "part of the protocol");

#define WIRE_FLAG_FORMATTED 1u /* a client has sent FORMATTED                    */
#define WIRE_FLAG_ONE_SIDED 2u /* address and rkey are valid for one-sided verbs */

struct wire_welcome {
    struct wire_head head;
    uint8_t proof[WIRE_PROOF];
    uint64_t size;
    uint64_t instance; /* of the memory: another number means other contents */
    uint64_t address;  /* one-sided transports: where the memory is          */
    uint64_t clock;    /* of the node: clock_boot_ns()                       */
    uint32_t rkey;
    uint32_t flags;
};
_Static_assert(sizeof(struct wire_welcome) == 104, "part of the protocol");

struct wire_refused {
    struct wire_head head;
    int32_t status;
    uint32_t reserved;
    char text[WIRE_TEXT]; /* ends with a NUL */
};
_Static_assert(sizeof(struct wire_refused) == 160, "part of the protocol");

struct wire_client { /* IDENTIFY, FENCE */
    struct wire_head head;
    uint64_t identity;
};
_Static_assert(sizeof(struct wire_client) == 40, "part of the protocol");

enum wire_claim { WIRE_CLAIM_THERE, WIRE_CLAIM_YOURS, WIRE_CLAIM_WAIT };

struct wire_answer {
    struct wire_head head;
    int32_t status;
    uint32_t value; /* CLAIM: enum wire_claim */
    uint64_t clock; /* of the node            */
};
_Static_assert(sizeof(struct wire_answer) == 48, "part of the protocol");

#define WIRE_COUNTS_X(X)                                                                           \
    X(clients)  /* connected now                                */                                 \
    X(connects) /* since the start                              */                                 \
    X(refused)  /* connections without the secret, or malformed */                                 \
    X(batches)  /* messages executed                            */                                 \
    X(requests) /* parts of these messages                      */                                 \
    X(verbs)                                                                                       \
    X(bytes_read)                                                                                  \
    X(bytes_written)                                                                               \
    X(rejected)  /* messages that broke the protocol             */                                \
    X(fences)    /* identities shut out                          */                                \
    X(fenced)    /* batches of such identities, not executed     */                                \
    X(old_views) /* batches of older views, not executed, and connections */
struct wire_count_set {
#define WIRE_X(name) uint64_t name;
    WIRE_COUNTS_X(WIRE_X)
#undef WIRE_X
};

struct wire_counts {
    struct wire_head head;
    uint64_t size, uptime_ms;
    struct wire_count_set count;
};
_Static_assert(sizeof(struct wire_counts) == 144, "part of the protocol");

/* BATCH: a wire_batch, then parts, each a wire_part and its verbs. A verb is a wire_verb, then its
 * data (WRITE), compare and swap (CAS), compare, swap and both masks (MCAS), or the addend
 * (FAA). */
struct wire_batch {
    struct wire_head head;
    uint64_t identity; /* 0: none                                             */
    uint64_t sent;     /* when it was sent: by the node's clock, at the least */
    uint32_t valid_us; /* for how long it may be executed (WIRE-W5)           */
    uint32_t parts;
};
_Static_assert(sizeof(struct wire_batch) == 56, "part of the protocol");

struct wire_part {
    uint32_t verbs;
    uint32_t reserved;
};
struct wire_verb {
    uint8_t kind;
    uint8_t reserved[3];
    uint32_t len;
    uint64_t off;
};
_Static_assert(sizeof(struct wire_part) == 8 && sizeof(struct wire_verb) == 16, "no padding");

/* REPLY: a wire_reply, then for each part a wire_result, the bytes of its READs and the old words
 * of its atomics. They are there whatever the status, so the length depends on the BATCH alone. */
struct wire_reply {
    struct wire_head head;
    uint32_t parts;
    uint32_t reserved;
    uint64_t clock; /* of the node, before it executed the batch */
};
struct wire_result {
    int32_t status;
    uint32_t reserved;
};
_Static_assert(sizeof(struct wire_reply) == 48 && sizeof(struct wire_result) == 8, "no padding");

/* Bytes that a verb takes in a BATCH, and in its REPLY. */
static inline uint32_t wire_verb_bytes(uint8_t kind, uint32_t len)
{
    static const uint8_t words[] = {[FAB_CAS] = 2, [FAB_MCAS] = 4, [FAB_FAA] = 1};

    return (uint32_t)sizeof(struct wire_verb) + 8u * words[kind] + (kind == FAB_WRITE ? len : 0);
}
static inline uint32_t wire_result_bytes(uint8_t kind, uint32_t len)
{
    return kind == FAB_WRITE ? 0 : len;
}

/* Encodes a verb at an 8-byte aligned place and returns the place behind it. `from` and `len` say
 * which piece of the verb is sent. */
char *wire_put_verb(char *at, const struct fab_verb *verb, uint32_t from, uint32_t len);

static inline struct wire_head wire_head_of(enum wire_type type, uint32_t slot, uint64_t token,
                                            uint64_t seq)
{
    return (struct wire_head){.magic = WIRE_MAGIC,
                              .version = WIRE_VERSION,
                              .type = (uint16_t)type,
                              .slot = slot,
                              .seq = seq,
                              .token = token};
}

/* Is it a message of this version, of a known type and of that type's length? Of BATCH and REPLY
 * only the fixed part is checked. FAR_INVALID, FAR_LAYOUT (another version). */
int wire_check(const void *message, size_t bytes);

/* A batch that has been checked and is being decoded. */
struct wire_reader {
    char *at;
    unsigned parts;     /* that are left      */
    size_t reply_bytes; /* of the whole reply */
    uint64_t verbs, bytes_read, bytes_written;
};

/* Checks all of a BATCH, for a node of `size` bytes. The message is 8-byte aligned and has passed
 * wire_check(). FAR_INVALID, FAR_BOUNDS. */
int wire_batch_check(void *message, size_t bytes, uint64_t size, struct wire_reader *reader);

/* Decodes the next part, as verbs on node 0. WRITEs take their data from the message; all others
 * put their result at *result, which is advanced. Returns the number of verbs. */
unsigned wire_batch_next(struct wire_reader *reader, struct fab_verb verb[WIRE_PART_VERBS],
                         char **result);

#endif
