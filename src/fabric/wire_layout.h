/*
 * What a client and a memory node say to each other. docs/wire.md has the protocol.
 *
 * Every message begins with struct wire_head and is a little-endian image. What arrives is believed
 * to be hostile: wire_check() and wire_batch_check() look at every length, count, offset and
 * alignment before anything is done, and nothing is allocated by a size that the network names.
 *
 *   WIRE-W1  Before WELCOME a node does nothing for a connection but the hand-shake. After it,
 *       every message carries the connection's number and token, which only CHALLENGE told: a
 *       message counts only if both fit, whatever connection the transport says that it came by.
 *   WIRE-W2  The verbs of a part are executed in order, the parts of a batch too. A batch that is
 *       refused (ANSWER instead of REPLY) has not been executed at all.
 *   WIRE-W3  A batch has been executed when its REPLY comes. What it did is visible to every batch
 *       that is executed later, from anybody.
 *   WIRE-W4  A connection that is made with the same link number as another, by WELCOME, voids it:
 *       what still comes by the other is not executed.
 *   WIRE-W5  A batch is not executed after the instant that it names by the node's clock: a node
 *       that stood still does not do what its clients have long given up.
 */
#ifndef FABRIC_WIRE_LAYOUT_H
#define FABRIC_WIRE_LAYOUT_H

#include "fabric/fabric.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "messages are little-endian images; a big-endian host needs accessors"
#endif

#define WIRE_MAGIC   0x57726146u /* "FarW" */
#define WIRE_VERSION 2u

#define WIRE_MESSAGE_MAX (256u << 10) /* bytes of any message                           */
#define WIRE_CONTROL_MAX 256u         /* bytes of any message but BATCH and REPLY       */
#define WIRE_WINDOW      8u           /* batches of one connection that may be under way */
#define WIRE_PART_VERBS  128u
#define WIRE_NONCE       32u
#define WIRE_PROOF       32u
#define WIRE_TEXT        120u

enum wire_type {
    WIRE_HELLO = 1, /* client: my nonce                                               */
    WIRE_CHALLENGE, /* node: mine, and whether a secret is needed                     */
    WIRE_PROOF_IS,  /* client: that I know the secret                                 */
    WIRE_WELCOME,   /* node: that I know it too, your token, what there is            */
    WIRE_REFUSED,   /* node: go away                                                  */
    WIRE_BATCH,     /* client: execute this                                           */
    WIRE_REPLY,     /* node: done                                                     */
    WIRE_IDENTIFY,  /* client: my verbs are to be known by this; batches say it themselves */
    WIRE_FENCE,     /* client: shut this identity out                                 */
    WIRE_CLAIM,     /* client: is there a pool, and if not, shall I make it?          */
    WIRE_FORMATTED, /* client: there is a pool                                        */
    WIRE_STAT,      /* client: how are you?                                           */
    WIRE_COUNTS,    /* node: like this                                                */
    WIRE_ANSWER     /* node: a status, for all that has nothing else to return        */
};

struct wire_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t slot; /* the connection's number at the node; 0 in HELLO             */
    uint32_t reserved;
    uint64_t seq;   /* the client's number of the question, repeated by the answer */
    uint64_t token; /* 0 in HELLO, after that what CHALLENGE said                    */
};
_Static_assert(sizeof(struct wire_head) == 32, "part of the protocol");

struct wire_hello {
    struct wire_head head;
    uint8_t nonce[WIRE_NONCE];
    uint64_t link; /* of one endpoint to one node, the same when it connects again */
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
    uint8_t proof[WIRE_PROOF]; /* zeros where no secret is needed */
};
_Static_assert(sizeof(struct wire_proof) == 64, "part of the protocol");

#define WIRE_FLAG_FORMATTED 1u /* a client said that there is a pool                       */
#define WIRE_FLAG_ONE_SIDED 2u /* address and rkey are good for one-sided verbs            */

struct wire_welcome {
    struct wire_head head;
    uint8_t proof[WIRE_PROOF];
    uint64_t size;
    uint64_t instance; /* of the memory: another number, other contents */
    uint64_t address;  /* one-sided transports: where the memory is     */
    uint64_t clock;    /* of the node, in nanoseconds                   */
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
};
_Static_assert(sizeof(struct wire_answer) == 40, "part of the protocol");

#define WIRE_COUNTS_X(X)                                                                           \
    X(clients)  /* connected now                                */                                 \
    X(connects) /* since the start                              */                                 \
    X(refused)  /* connections without the secret, or malformed */                                 \
    X(batches)  /* messages executed                            */                                 \
    X(requests) /* parts of them                                */                                 \
    X(verbs)                                                                                       \
    X(bytes_read)                                                                                  \
    X(bytes_written)                                                                               \
    X(rejected) /* messages that broke the protocol             */                                 \
    X(fences)   /* identities shut out                          */                                 \
    X(fenced)   /* batches of such that were not executed       */
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
_Static_assert(sizeof(struct wire_counts) == 136, "part of the protocol");

/* BATCH: this, then parts, each a wire_part and its verbs. A verb is followed by its data (WRITE),
 * its compare and swap (CAS), those and the masks (MCAS), or what it adds (FAA). */
struct wire_batch {
    struct wire_head head;
    uint64_t identity;    /* 0: none                                                     */
    uint64_t valid_until; /* by the node's clock: not to be begun later (WIRE-W5)             */
    uint32_t parts;
    uint32_t reserved;
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

/* REPLY: this, then for each part a wire_result, and of its verbs what READ read and the old words
 * of atomics. They are there whatever the status: the length depends on the BATCH alone. */
struct wire_reply {
    struct wire_head head;
    uint32_t parts;
    uint32_t reserved;
};
struct wire_result {
    int32_t status;
    uint32_t reserved;
};
_Static_assert(sizeof(struct wire_reply) == 40 && sizeof(struct wire_result) == 8, "no padding");

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

/* Writes the verb's message form, 8-byte aligned, and returns what is behind it. `from` and `len`
 * are those of the piece of it that goes out. */
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

/* Is it a message of this version, of a known type and of that type's length? BATCH and REPLY are
 * only looked at as far as their fixed part goes. FAR_INVALID, FAR_LAYOUT (another version). */
int wire_check(const void *message, size_t bytes);

/* A batch that has been looked at, and is being taken apart. */
struct wire_reader {
    char *at;
    unsigned parts;     /* that are left                        */
    size_t reply_bytes; /* of the whole reply                   */
    uint64_t verbs, bytes_read, bytes_written;
};

/* Looks at all of a BATCH that passed wire_check(), which is 8-byte aligned, for a node of `size`
 * bytes. FAR_INVALID, FAR_BOUNDS. */
int wire_batch_check(void *message, size_t bytes, uint64_t size, struct wire_reader *reader);

/* The next part of it, as verbs on node 0: WRITE from the message, all else into *result, which
 * moves on. Returns the number of verbs. */
unsigned wire_batch_next(struct wire_reader *reader, struct fab_verb verb[WIRE_PART_VERBS],
                         char **result);

#endif
