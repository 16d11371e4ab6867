/* The catalog: which tables there are. catalog.c has the proof. */
#ifndef POOL_CATALOG_H
#define POOL_CATALOG_H

#include "pool/op.h"

struct table_desc {
    char name[FAR_NAME_MAX + 1];
    char index[INDEX_NAME_MAX + 1];
    gaddr root; /* defined by the index */
    uint64_t hash_seed;
    uint32_t id;     /* its place in the catalog */
    uint64_t word;   /* the word of its place, with its state */
    uint64_t serial; /* differs from that of other tables that had or will have the place: CAT-6 */
};
static inline bool table_is_dropped(const struct table_desc *desc)
{
    return catalog_state(desc->word) == CATALOG_DROPPED;
}

/* Adds a table. If two clients add the same name at once, one wins. Sets desc->id, word and serial.
 * FAR_TABLE_EXISTS, FAR_CATALOG_FULL, FAR_POOL_FULL. */
int catalog_add(struct op *op, struct table_desc *desc);
/* Finds a live table. Where tables may be dropped, this and what else reads descriptors must be
 * within an operation. FAR_NO_TABLE, FAR_CORRUPT. */
int catalog_find(struct op *op, const char *name, struct table_desc *desc);
/* The table at a place, live or dropped. FAR_NO_TABLE: the place is free, or does not exist.
 * FAR_CORRUPT. */
int catalog_get(struct op *op, unsigned id, struct table_desc *desc);
/* Finds the first place from *id on that has a table, live or dropped, or is damaged; if `dropped`,
 * the first that has a dropped table. FAR_NO_TABLE: there is none. */
int catalog_next(struct op *op, bool dropped, unsigned *id);
/* How many live tables there are. */
int catalog_count(struct op *op, unsigned *tables);

/* Does the table still exist? The first adds READs to the batch. The second judges them after the
 * flush, and returns the version that the place had. FAR_NO_TABLE: the table was dropped; with
 * `dropped_too`, only if its memory has been given back as well. FAR_CORRUPT. */
void catalog_confirm(struct op *op, const struct table_desc *desc);
int catalog_confirmed(struct op *op, const struct table_desc *desc, bool dropped_too,
                      uint64_t *version);
/* Where the version of a table's caches is. */
void catalog_cached(const struct pool *pool, const struct table_desc *desc, struct cached *cached);

/*
 * Dropping a table: see CAT-4. Each of these is within an operation in which catalog_get() has
 * found the table.
 */
/* Frees the name. FAR_NO_TABLE: another client was faster. FAR_UNKNOWN. */
int catalog_drop(struct op *op, const struct table_desc *desc);
/* Adds to the batch the FAA by which all sessions notice that it was dropped. */
void catalog_bump_version(struct op *op, const struct table_desc *desc);
/* Frees the place of a dropped table, and retires the descriptor. If *released is set, the caller
 * owns what the table reaches. */
int catalog_release(struct op *op, const struct table_desc *desc, bool *released);

/* Marks the descriptors. */
int catalog_mark(struct op *op, struct marker *marker);

#endif
