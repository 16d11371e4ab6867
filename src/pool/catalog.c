/*
 * The catalog: 64 words on node 0, each 0 or a pointer to a descriptor block (key: the table's
 * name). A descriptor is written before a CAS makes its word point to it.
 *
 *   C1  Words fill in order and are never cleared, so everybody who adds a table competes for the
 *       same first free word. Who loses reads the winner's name before trying the next: a name
 *       cannot be added twice.
 */
#include "pool/pointer.h"

#include <stdio.h>
#include <string.h>

struct desc_value {
    char index[INDEX_NAME_MAX + 1];
    uint64_t root;
    uint64_t hash_seed;
};

/* A catalog word is a pointer; the bits above it are 0. */
#define DESC_GENERATION 6

static int read_words(struct op *op, uint64_t **words)
{
    *words = op_buffer(op, BUF_POOL, CATALOG_SLOTS * 8);
    if (!*words)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, gaddr_make(0, 0), CATALOG_OFF, *words, CATALOG_SLOTS * 8);
    return batch_flush(&op->batch);
}

static int read_desc(struct op *op, unsigned id, uint64_t word, struct table_desc *desc)
{
    gaddr at = pointer_gaddr(word);
    unsigned size_class = pointer_class(word);
    unsigned generation = pointer_generation(word, DESC_GENERATION);
    struct desc_value value;

    if (word >> POINTER_OWN_AT(DESC_GENERATION) != 0 ||
        size_class > class_for(block_bytes(FAR_NAME_MAX, sizeof value)))
        return fail(FAR_CORRUPT, "catalog entry %u is damaged", id);
    uint32_t bytes = class_bytes(size_class);
    void *image = op_buffer(op, BUF_POOL_BLOCK, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, at, 0, image, bytes);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_BOUNDS)
        return fail(FAR_CORRUPT, "catalog entry %u points outside the pool", id);
    if (rc != FAR_OK)
        return rc;
    const struct block_head *h = image;
    if (!block_valid(image, bytes, generation) || h->klen > FAR_NAME_MAX || h->vlen != sizeof value)
        return fail(FAR_CORRUPT, "the descriptor of table %u is damaged", id);

    memset(desc, 0, sizeof *desc);
    memcpy(desc->name, block_key(image), h->klen);
    memcpy(&value, block_value(image), sizeof value);
    memcpy(desc->index, value.index, sizeof desc->index - 1);
    desc->root = value.root;
    desc->hash_seed = value.hash_seed;
    desc->id = id;
    return FAR_OK;
}

int catalog_get(struct op *op, unsigned id, struct table_desc *desc)
{
    uint64_t *words = NULL;
    if (id >= CATALOG_SLOTS)
        return FAR_NO_TABLE;
    int rc = read_words(op, &words);
    if (rc != FAR_OK)
        return rc;
    return words[id] == 0 ? FAR_NO_TABLE : read_desc(op, id, words[id], desc);
}

/* Finds the name from entry *id on; when it is not there, *id is the first free entry. */
static int find_from(struct op *op, const char *name, unsigned *id, struct table_desc *desc)
{
    uint64_t *words = NULL;
    int rc = read_words(op, &words);
    for (; rc == FAR_OK && *id < CATALOG_SLOTS && words[*id] != 0; (*id)++) {
        rc = read_desc(op, *id, words[*id], desc);
        if (rc == FAR_OK && strcmp(desc->name, name) == 0)
            return FAR_OK;
    }
    return rc != FAR_OK ? rc : FAR_NO_TABLE;
}

int catalog_find(struct op *op, const char *name, struct table_desc *desc)
{
    unsigned id = 0;
    struct table_desc found;
    int rc = find_from(op, name, &id, &found);
    if (rc == FAR_OK)
        *desc = found;
    return rc == FAR_NO_TABLE ? fail(FAR_NO_TABLE, "no table '%s'", name) : rc;
}

int catalog_add(struct op *op, struct table_desc *desc)
{
    struct desc_value value = {.root = desc->root, .hash_seed = desc->hash_seed};
    struct block_ref block;
    struct table_desc other;
    unsigned id = 0;

    memcpy(value.index, desc->index, sizeof value.index);
    int rc = block_prepare(op, 0, desc->name, strlen(desc->name), &value, sizeof value, &block);
    if (rc != FAR_OK)
        return rc;
    block_write(op, &block);
    rc = batch_flush(&op->batch);

    for (unsigned attempt = 0; rc == FAR_OK && attempt <= CATALOG_SLOTS; attempt++) {
        rc = find_from(op, desc->name, &id, &other);
        if (rc == FAR_OK)
            rc = fail(FAR_TABLE_EXISTS, "table '%s' exists already, kept by %s", other.name,
                      other.index);
        else if (rc == FAR_NO_TABLE)
            rc = id < CATALOG_SLOTS
                     ? FAR_OK
                     : fail(FAR_CATALOG_FULL, "a pool holds %d tables", CATALOG_SLOTS);
        if (rc != FAR_OK)
            break;
        batch_cas(&op->batch, gaddr_make(0, 0), CATALOG_OFF + id * 8, 0,
                  pointer_make(&block, DESC_GENERATION), op->pool_word);
        rc = op_decided(op, batch_flush(&op->batch));
        if (rc == FAR_OK && op->pool_word[0] == 0) {
            desc->id = id;
            return FAR_OK;
        }
    }
    rc = rc == FAR_OK ? FAR_CONTENTION : rc;
    /* After an error of the fabric the CAS may have happened: then the block is in use. */
    if (op_all_known(rc))
        pool_unalloc(op->client, block.at, block.size_class);
    else
        pool_lose(op->client, block.size_class);
    return rc;
}

int catalog_mark(struct op *op, struct marker *marker)
{
    uint64_t *words = NULL;
    int rc = read_words(op, &words);
    for (unsigned id = 0; id < CATALOG_SLOTS && rc == FAR_OK && words[id] != 0; id++)
        marker->mark(marker, pointer_gaddr(words[id]), pointer_class(words[id]));
    return rc;
}
