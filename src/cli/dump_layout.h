/*
 * The file of a dump; docs/dump.md describes it for others.
 *
 *     16 bytes     DUMP_MAGIC, with the version
 *     records      struct dump_head, then `len` bytes: a table, pairs, ..., the end
 *
 * Numbers are little-endian, as on every machine that Farside runs on.
 *
 * DUMP-1  The sum of a head covers the head, which has the sum of its payload, and is seeded with
 *         the sum of the head before it. So a record is accepted only if every byte up to its end
 *         is as it was written: nothing was altered, left out, added or moved. The sum of the last
 *         head is one over everything.
 * DUMP-2  A whole dump ends with an end record, and nothing follows. So one that was cut off
 *         anywhere is noticed.
 */
#ifndef CLI_DUMP_LAYOUT_H
#define CLI_DUMP_LAYOUT_H

#include "base/hash.h"
#include "farside.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DUMP_MAGIC_BYTES 16u
#define DUMP_MAGIC       "farside dump 1\n" /* and a NUL */
_Static_assert(sizeof DUMP_MAGIC == DUMP_MAGIC_BYTES, "the NUL is the last byte");

enum dump_kind { DUMP_TABLE = 1, DUMP_PAIRS = 2, DUMP_END = 3 };

struct dump_head {
    uint32_t kind;     /* enum dump_kind                    */
    uint32_t count;    /* pairs in the payload; otherwise 0 */
    uint64_t number;   /* of the record, from 0 on          */
    uint32_t len;      /* bytes of the payload              */
    uint32_t zero;     /* 0                                 */
    uint64_t payload;  /* sum of the payload                */
    uint64_t head_sum; /* DUMP-1                            */
};
_Static_assert(sizeof(struct dump_head) == 40, "dump_head has no padding");

/* Payload of DUMP_TABLE: this, then the name, the index and the tuning, without NULs. The pairs
 * that follow are this table's. */
struct dump_table_head {
    uint8_t name_len, index_len;
    uint16_t tuning_len;
};
_Static_assert(sizeof(struct dump_table_head) == 4, "dump_table_head has no padding");

/* Payload of DUMP_PAIRS: for each pair this, then the key and the value. */
struct dump_pair_head {
    uint16_t key_len;
    uint16_t zero;
    uint32_t value_len;
};
_Static_assert(sizeof(struct dump_pair_head) == 8, "dump_pair_head has no padding");

/* Payload of DUMP_END. */
struct dump_totals {
    uint64_t tables, pairs;
    uint64_t bytes; /* of all keys and values */
};
_Static_assert(sizeof(struct dump_totals) == 24, "dump_totals has no padding");

#define DUMP_PAIR_MAX    (sizeof(struct dump_pair_head) + FAR_KEY_MAX + FAR_VALUE_MAX)
#define DUMP_BLOCK_BYTES (256u << 10) /* a block of pairs is written when it has that many bytes */
#define DUMP_PAYLOAD_MAX (DUMP_BLOCK_BYTES + DUMP_PAIR_MAX)

/* The sum that the first head is seeded with. */
static inline uint64_t dump_first_sum(void)
{
    return hash_sum(DUMP_MAGIC, DUMP_MAGIC_BYTES, 0);
}

static inline uint64_t dump_head_sum(const struct dump_head *head, uint64_t before)
{
    return hash_sum(head, offsetof(struct dump_head, head_sum), before);
}

static inline uint64_t dump_payload_sum(const void *payload, size_t len)
{
    return hash_sum(payload, len, 0);
}

#endif
