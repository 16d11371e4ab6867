/* What the journal's files share. They are layered in the order of this header, as the pool's are
 * in the order of pool_internal.h. journal.c says what holds. */
#ifndef POOL_JOURNAL_INTERNAL_H
#define POOL_JOURNAL_INTERNAL_H

#include "pool/pool_internal.h"

#define JOURNAL_CLASS 7 /* 512 bytes: as BUNDLE_CLASS, so that they share chunks */
struct journal_image {  /* in an op's BUF_JOURNAL */
    struct journal_line line;
    uint64_t blank[2];
    uint64_t entry_done;
};

static inline uint64_t intent_sum(const struct journal_intent *intent, size_t len)
{
    return hash_sum((const char *)intent + 8, offsetof(struct journal_intent, data) - 8 + len,
                    JOURNAL_MAGIC) |
           1; /* a blank line has sum 0 */
}

static inline uint64_t redo_sum(const struct journal_redo *redo, size_t len)
{
    return hash_sum((const char *)redo + 8, offsetof(struct journal_redo, data) - 8 + len,
                    JOURNAL_MAGIC) |
           1;
}

static inline gaddr first_line(const struct pool *pool, unsigned node, unsigned slot)
{
    return gaddr_make(node, journal_off(pool->clients) + (uint64_t)slot * JOURNAL_BYTES);
}

/* ---- clients/journal_walk.c ------------------------------------------------------------------ */

#define WALK_BYTES 64 /* read of each line: up to the intent's stamp */
#define WALK_MANY  (BATCH_MAX / 2)

struct walk {
    struct op *op;
    /* Called for each line, with its first WALK_BYTES, or all of it. */
    void (*visit)(struct walk *walk, unsigned slot, gaddr at, const struct journal_line *line);
    bool whole;        /* reads whole lines */
    unsigned damaged;  /* chains that do not end as they should */
    unsigned last;     /* the slot of one of them */
    gaddr broken;      /* its last line before the damage */
    uint64_t bad_next; /* that line's `next` */
    unsigned count;
    struct cursor {
        unsigned slot;
        gaddr at, before;
    } cursor[WALK_MANY];
};

/* Adds a chain. If as many were added as a batch can read, walks them. */
int journal_walk_add(struct walk *walk, unsigned node, unsigned slot);
/* Walks the chains that were added. */
int journal_walk(struct walk *walk);
/* Walks one chain. */
int journal_walk_one(struct walk *walk, unsigned node, unsigned slot);
/* Ends a cursor's chain, as damaged: `at` is what follows the last line that is good. */
void journal_break_off(struct walk *walk, struct cursor *cursor, gaddr at);

/* ---- clients/journal_slots.c ----------------------------------------------------------------- */

/* The nodes on which a slot's lines may say something: one bit each. */
int journal_used_nodes(struct op *op, unsigned slot, uint64_t *nodes);

/* ---- clients/journal.c ----------------------------------------------------------------------- */

enum line_state { LINE_FREE, LINE_TAKEN, LINE_LEFT };

/* NULL: the client knows no such line of its own. */
struct line *journal_find_line(struct lines *lines, gaddr at);
/* Reads which lines the own slot has on a node: its previous owners made them. */
int journal_load(struct op *op, unsigned node);
/* Gives back a line that was taken to be recovered. */
void journal_give_left(struct client *client, gaddr at, bool recovered);
/* Adds a WRITE that blanks the line. */
void journal_write_blank(struct op *op, gaddr at, uint64_t blank[2]);

#endif
