/*
 * What each node of a pool with voters keeps of who is a member. It is behind the journals, and on
 * node 0 behind the catalog.
 *
 *   0                   struct members_head, which never changes
 *   MEMBERS_ENTRY_OFF   a word for each entry of the log: an acceptor of Paxos (paxos.h)
 *   presence_off()      a line for each client slot (struct presence_line)
 */
#ifndef MEMBERS_MEMBERS_LAYOUT_H
#define MEMBERS_MEMBERS_LAYOUT_H

#include "base/hash.h"
#include "fabric/fabric.h"
#include "fabric/superblock_layout.h"

#include <stdbool.h>

#define MEMBERS_ENTRIES   4096u /* of the log, that of the pool's beginning included */
#define MEMBERS_ENTRY_OFF 64u
#define VOTERS_MAX        FAB_VOTERS_MAX

/* The part of a node's life that is kept: another life has another one, almost certainly. */
#define LIFE_BITS 22
static inline uint32_t life_part(uint64_t life)
{
    return (uint32_t)(life & ((1u << LIFE_BITS) - 1));
}

struct members_head {
    uint64_t checksum; /* of what follows */
    uint64_t pool_id;
    uint64_t witnesses;        /* nodes that keep no data, as bits */
    uint32_t voters;           /* the first ones, which are nodes 0 and up */
    uint32_t life[VOTERS_MAX]; /* life_part() of each */
    uint64_t reserved[2];
};
_Static_assert(sizeof(struct members_head) == MEMBERS_ENTRY_OFF, "entries follow the head");

static inline uint64_t members_head_sum(const struct members_head *head)
{
    return hash_sum(&head->pool_id, sizeof *head - 8, 0x6d656d62657273ull);
}

/*
 * A word of the log: what this node has promised and accepted for one entry.
 *   bits 0..31 the value accepted, 32..47 the ballot in which it was, 48..63 the ballot promised
 * A node that has LOG_DECIDED for both knows the value: nothing else was or will be decided.
 */
#define LOG_DECIDED     0xfffeu
#define LOG_BALLOTS_MAX 0xfff0u
static inline uint64_t log_word(unsigned promised, unsigned accepted, uint32_t value)
{
    return (uint64_t)promised << 48 | (uint64_t)accepted << 32 | value;
}
static inline unsigned log_promised(uint64_t word)
{
    return (unsigned)(word >> 48);
}
static inline unsigned log_accepted(uint64_t word)
{
    return word >> 32 & 0xffff;
}
static inline uint32_t log_value(uint64_t word)
{
    return (uint32_t)word;
}
static inline uint64_t log_decided(uint32_t value)
{
    return log_word(LOG_DECIDED, LOG_DECIDED, value);
}

static inline uint64_t log_off(unsigned entry)
{
    return MEMBERS_ENTRY_OFF + entry * 8ull;
}

/*
 * The value of an entry: what changes.
 *   bits 0..21 part of the node's life, 22..27 the node, 28..31 enum members_change
 */
enum members_change { MEMBERS_NOTHING, MEMBERS_OUT, MEMBERS_IN };
static inline uint32_t members_value(enum members_change change, unsigned node, uint64_t life)
{
    return (uint32_t)change << 28 | node << LIFE_BITS | life_part(life);
}
static inline enum members_change value_change(uint32_t value)
{
    return (enum members_change)(value >> 28);
}
static inline unsigned value_node(uint32_t value)
{
    return value >> LIFE_BITS & (FAB_NODES_MAX - 1);
}
_Static_assert(FAB_NODES_MAX == 64, "a node takes six bits");

/* Who has a client slot, as far as this node knows. */
struct presence_line {
    uint64_t incarnation; /* 0: nobody */
    uint64_t view;        /* the newest view that it works in */
};
_Static_assert(sizeof(struct presence_line) == 16, "four to a line of the cache");
static inline uint64_t presence_off(unsigned slot)
{
    return log_off(MEMBERS_ENTRIES) + slot * sizeof(struct presence_line);
}
static inline uint64_t members_bytes(uint64_t clients)
{
    return (presence_off((unsigned)clients) + 63) & ~63ull;
}

#endif
