/*
 * The catalog: which tables there are.
 *
 * It is an array of places on node 0 (struct catalog_entry). The word of a place is 0, or it points
 * to a descriptor: a block whose key is the table's name. The life of a place's word:
 *
 *            CAS               CAS           CAS                CAS
 *   free ---------> tentative ------> live ---------> dropped ---------> free
 *    ^                  |
 *    +------------------+  withdrawn by its owner, or killed by anybody
 *
 *   CAT-1  A name has at most one live place. A client that adds a table CASes a free place to
 *          tentative, and then reads all places. If a live one has the name, it withdraws. It kills
 *          every other tentative place whose name may be the same (CAS to free), and only then
 *          CASes its own from tentative to live. Let A and B add the same name, and let A's place
 *          become tentative first. B reads the places after that. If B finds A's place live, B
 *          withdraws. If B finds it tentative, B becomes live only after it has killed it, and then
 *          A's last CAS fails. Otherwise A has withdrawn, was killed, or its table was dropped
 *          before B looked. Anybody may kill a tentative place at any time, so a client that dies
 *          here blocks nobody: the memory of its table is lost, and a sweep finds it.
 *   CAT-2  A name that is live throughout a search is found: it has one place throughout, and all
 *          places are read. A search that misses a name proves that it was free at some instant.
 *   CAT-3  The CAS from live to dropped frees the name. From then on no operation can attach to the
 *          table: an index reads the place in the same batch as its root, and again whenever it
 *          reads again what it has cached (catalog_confirm()). Views that were attached before are
 *          valid until their client validates their version, which the drop changes behind that
 *          CAS. So a view reads the version before the word: if it finds the table live, its
 *          version is not yet the one that the drop has made.
 *   CAT-4  A dropped table becomes free in three steps. First its version is changed. Then comes a
 *          barrier (client_barrier()): G was at g when it began, and when it ends each client has
 *          certified g+1. So each has read g+1 after the version was changed, and by EPOCH-E2
 *          whatever it has in flight began after it validated its caches later still. Such an
 *          operation found the cache stale, read the place, and ended with FAR_NO_TABLE. Parked
 *          clients have nothing in flight, and all of their caches are stale (EPOCH-E5); stray
 *          verbs are waited for (EPOCH-E6). So nobody changes the table any more, but for the
 *          recovery of clients that died at work there: what that adds, a sweep finds. Third,
 *          within one operation, a client walks the table, CASes the place from dropped to free,
 *          and retires all that the walk has found. That CAS succeeds for one client only, which
 *          alone owns the memory. A walk may rest while it waits for a lock, and another client may
 *          complete the drop meanwhile. So its view is one of the client's caches: if an
 *          announcement was sent, it is stale, and is confirmed before the walk goes on. It ends
 *          with FAR_NO_TABLE then. Any number of clients may do this at once, or die in the middle
 *          of it: a dropped place stays until a client completes the drop. All three steps may be
 *          repeated.
 *   CAT-5  Sweeps mark live and dropped tables, so the memory of a dropped table is its own until
 *          the last CAS. After that one client holds it, within an operation that began before. If
 *          that client has not met a sweep, the sweep waits for it; if it has, it leaves the memory
 *          to the sweep (SWEEP-P1, SWEEP-P2). Other clients that walk the table at that moment are
 *          protected because its memory is retired, not free (EPOCH-E3).
 *   CAT-6  A view is of one table for good. When it is confirmed, the word of its place must be
 *          what it was when the table was opened, and the descriptor, read behind it, must have the
 *          same serial number. If another table has got the same place, and by chance a descriptor
 *          at the same address and of the same generation, then its serial number differs. The
 *          version only counts up, so a view is never taken for valid because its place was used
 *          again.
 *
 * Descriptors of live and dropped tables are retired (EPOCH-E3): to read one, a client must be in
 * an operation.
 */
#include "pool/pool_internal.h"

#include <string.h>

#define DESC_BYTES_MAX 192u /* of the longest descriptor: see desc_class_max() */
#define DESCS_AT_ONCE  32u
#define ADD_ATTEMPTS   4096u
#define GIVE_WAY_NS    1000u

static unsigned desc_class_max(void)
{
    unsigned most = size_class_for(block_bytes(FAR_NAME_MAX, sizeof(struct catalog_desc)));
    ASSERT(size_class_bytes(most) <= DESC_BYTES_MAX && most < 8);
    return most;
}

static uint64_t entry_delta(const struct pool *pool, unsigned id)
{
    return pool->catalog_off + id * sizeof(struct catalog_entry);
}

/* ---- words ----------------------------------------------------------------------------------- */

static unsigned hash_name(const char *name)
{
    return hash_sum(name, strlen(name), 0) & 0xff;
}

static int damaged_entry(unsigned id)
{
    return err_fail(FAR_CORRUPT, "catalog entry %u is damaged", id);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads places into the op's BUF_POOL. */
static int read_entries(struct op *op, unsigned first, unsigned count,
                        const struct catalog_entry **entries)
{
    ASSERT(op->batch.count == 0 && first + count <= op->pool->places);
    uint32_t bytes = count * (uint32_t)sizeof **entries;
    void *image = op_buffer(op, BUF_POOL, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, NODE0, entry_delta(op->pool, first), image, bytes);
    *entries = image;
    return batch_flush(&op->batch);
}

static int read_all(struct op *op, const struct catalog_entry **entries)
{
    return read_entries(op, 0, op->pool->places, entries);
}

/* Judges a descriptor that was read through that word. */
static int judge_desc(unsigned id, uint64_t word, const void *image, struct table_desc *desc)
{
    const struct block_head *h = image;
    struct catalog_desc value;
    if (!block_valid(image, size_class_bytes(catalog_class(word)), catalog_generation(word)) ||
        h->klen > FAR_NAME_MAX || h->vlen != sizeof value)
        return err_fail(FAR_CORRUPT, "the descriptor of table %u is damaged", id);
    memset(desc, 0, sizeof *desc);
    memcpy(desc->name, block_key(image), h->klen);
    memcpy(&value, block_value(image), sizeof value);
    memcpy(desc->index, value.index, sizeof desc->index - 1);
    desc->root = value.root;
    desc->hash_seed = value.hash_seed;
    desc->serial = value.serial;
    desc->id = id;
    desc->word = word;
    return hash_name(desc->name) == catalog_hash(word) ? FAR_OK : damaged_entry(id);
}

/* Places whose descriptors are read together. */
struct desc_reads {
    unsigned count;
    unsigned id[DESCS_AT_ONCE];
    uint64_t word[DESCS_AT_ONCE];
    char *image;
};

static int read_descs(struct op *op, struct desc_reads *r)
{
    r->image = op_buffer(op, BUF_POOL_BLOCK, (size_t)DESCS_AT_ONCE * DESC_BYTES_MAX);
    if (!r->image)
        return FAR_NO_MEMORY;
    for (unsigned i = 0; i < r->count; i++)
        if (catalog_class(r->word[i]) > desc_class_max())
            return damaged_entry(r->id[i]);
    for (unsigned i = 0; i < r->count; i++) {
        batch_read(&op->batch, catalog_gaddr(r->word[i]), 0, r->image + (size_t)i * DESC_BYTES_MAX,
                   size_class_bytes(catalog_class(r->word[i])));
    }
    int rc = batch_flush(&op->batch);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a catalog entry points outside the pool") : rc;
}

/* Looks for the name among these places, and empties the list. FAR_NO_TABLE. A damaged descriptor
 * does not hide others: *damaged is its place. */
static int find_among(struct op *op, struct desc_reads *r, const char *name,
                      struct table_desc *desc, unsigned *damaged)
{
    int rc = read_descs(op, r);
    for (unsigned i = 0; i < r->count && rc == FAR_OK; i++) {
        if (judge_desc(r->id[i], r->word[i], r->image + (size_t)i * DESC_BYTES_MAX, desc) != FAR_OK)
            *damaged = r->id[i];
        else if (strcmp(desc->name, name) == 0)
            return FAR_OK;
    }
    r->count = 0;
    return rc == FAR_OK ? FAR_NO_TABLE : rc;
}

/* Finds a live table by name among the places that were read: CAT-2. FAR_NO_TABLE. */
static int find_live(struct op *op, const struct catalog_entry *entries, const char *name,
                     struct table_desc *desc)
{
    struct desc_reads r = {.count = 0};
    unsigned hash = hash_name(name), places = op->pool->places, damaged = places;
    int rc = FAR_NO_TABLE;
    for (unsigned id = 0; id < places && rc == FAR_NO_TABLE; id++) {
        uint64_t word = entries[id].word;
        if (catalog_damaged(word)) {
            damaged = id;
        } else if (catalog_state(word) == CATALOG_LIVE && catalog_hash(word) == hash) {
            r.id[r.count] = id;
            r.word[r.count++] = word;
        }
        if (r.count == DESCS_AT_ONCE)
            rc = find_among(op, &r, name, desc, &damaged);
    }
    if (rc == FAR_NO_TABLE && r.count > 0)
        rc = find_among(op, &r, name, desc, &damaged);
    return rc == FAR_NO_TABLE && damaged < places ? damaged_entry(damaged) : rc;
}

int catalog_find(struct op *op, const char *name, struct table_desc *desc)
{
    const struct catalog_entry *entries = NULL;
    struct table_desc found;
    int rc = read_all(op, &entries);
    if (rc == FAR_OK)
        rc = find_live(op, entries, name, &found);
    if (rc == FAR_OK)
        *desc = found;
    return rc == FAR_NO_TABLE ? err_fail(FAR_NO_TABLE, "no table '%s'", name) : rc;
}

int catalog_get(struct op *op, unsigned id, struct table_desc *desc)
{
    const struct catalog_entry *entry = NULL;
    struct table_desc found;
    if (id >= op->pool->places)
        return FAR_NO_TABLE;
    int rc = read_entries(op, id, 1, &entry);
    if (rc != FAR_OK)
        return rc;
    uint64_t word = entry->word;
    if (catalog_damaged(word))
        return damaged_entry(id);
    if (catalog_state(word) != CATALOG_LIVE && catalog_state(word) != CATALOG_DROPPED)
        return FAR_NO_TABLE;
    struct desc_reads r = {.count = 1, .id = {id}, .word = {word}};
    rc = read_descs(op, &r);
    if (rc == FAR_OK)
        rc = judge_desc(id, word, r.image, &found);
    if (rc == FAR_OK)
        *desc = found;
    return rc;
}

#define PLACES_AT_ONCE 256u

static bool is_wanted(uint64_t word, bool dropped)
{
    if (dropped)
        return catalog_state(word) == CATALOG_DROPPED && !catalog_damaged(word);
    return word != 0 && (catalog_state(word) != CATALOG_TENTATIVE || catalog_damaged(word));
}

int catalog_next(struct op *op, bool dropped, unsigned *id)
{
    unsigned places = op->pool->places;
    for (unsigned first = *id; first < places; first += PLACES_AT_ONCE) {
        const struct catalog_entry *entries = NULL;
        unsigned count = places - first < PLACES_AT_ONCE ? places - first : PLACES_AT_ONCE;
        int rc = read_entries(op, first, count, &entries);
        if (rc != FAR_OK)
            return rc;
        for (unsigned i = 0; i < count; i++)
            if (is_wanted(entries[i].word, dropped)) {
                *id = first + i;
                return FAR_OK;
            }
    }
    return FAR_NO_TABLE;
}

int catalog_count(struct op *op, unsigned *tables)
{
    const struct catalog_entry *entries = NULL;
    unsigned count = 0;
    int rc = read_all(op, &entries);
    for (unsigned id = 0; id < op->pool->places && rc == FAR_OK; id++)
        count += catalog_state(entries[id].word) == CATALOG_LIVE;
    if (rc == FAR_OK)
        *tables = count;
    return rc;
}

/* ---- confirming ------------------------------------------------------------------------------ */

/* The op's pool words hold the place, then the descriptor. */
enum { C_VERSION, C_WORD, C_DESC, C_END = C_DESC + DESC_BYTES_MAX / 8 };
_Static_assert(C_END <= OP_POOL_WORDS, "they fit");

void catalog_confirm(struct op *op, const struct table_desc *desc)
{
    uint64_t entry = entry_delta(op->pool, desc->id);
    /* CAT-3: a drop changes the word, and then the version. One READ of both might return the word
     * from before and the version from after the drop (FABRIC-F1). */
    batch_read(&op->batch, NODE0, entry + offsetof(struct catalog_entry, version),
               &op->pool_word[C_VERSION], 8);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, entry + offsetof(struct catalog_entry, word),
               &op->pool_word[C_WORD], 8);
    batch_fence(&op->batch); /* CAT-6: the descriptor of the table that the word names */
    batch_read(&op->batch, catalog_gaddr(desc->word), 0, &op->pool_word[C_DESC],
               size_class_bytes(catalog_class(desc->word)));
    batch_may_be_freed(&op->batch);
}

int catalog_confirmed(struct op *op, const struct table_desc *desc, bool dropped_too,
                      uint64_t *version)
{
    uint64_t word = op->pool_word[C_WORD];
    struct table_desc now;
    bool same = word == catalog_with_state(desc->word, CATALOG_LIVE) ||
                (dropped_too && word == catalog_with_state(desc->word, CATALOG_DROPPED));
    if (same) {
        int rc = judge_desc(desc->id, word, &op->pool_word[C_DESC], &now);
        if (rc != FAR_OK)
            return rc;
        same = now.serial == desc->serial;
    } else if (catalog_damaged(word)) {
        return damaged_entry(desc->id);
    }
    if (!same)
        return err_fail(FAR_NO_TABLE, "table '%s' was dropped", desc->name);
    *version = op->pool_word[C_VERSION];
    return FAR_OK;
}

void catalog_cached(const struct pool *pool, const struct table_desc *desc, struct cached *cached)
{
    cached->version_at = NODE0;
    cached->version_delta =
        (uint32_t)(entry_delta(pool, desc->id) + offsetof(struct catalog_entry, version));
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* CASes the word of a place. *was is the word before. */
static int cas_word(struct op *op, unsigned id, uint64_t from, uint64_t to, uint64_t *was)
{
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, entry_delta(op->pool, id), from, to,
              &op->pool_word[0]);
    int rc = op_decided(op, batch_flush(&op->batch));
    *was = op->pool_word[0];
    return rc;
}

/* Finds a free place. If there is none, kills a tentative one and sets *again. FAR_CATALOG_FULL. */
static int choose_place(struct op *op, const struct catalog_entry *entries, unsigned *id,
                        bool *again)
{
    unsigned places = op->pool->places, tentative = places;
    for (*id = 0; *id < places && entries[*id].word != 0; (*id)++)
        if (catalog_state(entries[*id].word) == CATALOG_TENTATIVE)
            tentative = *id;
    if (*id < places)
        return FAR_OK;
    if (tentative == places)
        return err_fail(FAR_CATALOG_FULL, "the catalog is full: this pool can have %u tables",
                        places);
    uint64_t was = 0;
    *again = true;
    return cas_word(op, tentative, entries[tentative].word, 0, &was);
}

/* Kills tentative places of the same hash, except our own. *again: one of them has become live. */
static int kill_others(struct op *op, const struct catalog_entry *entries, unsigned id, bool *again)
{
    unsigned hash = catalog_hash(entries[id].word);
    for (unsigned i = 0; i < op->pool->places; i++) {
        uint64_t word = entries[i].word, was = 0;
        if (i == id || catalog_state(word) != CATALOG_TENTATIVE || catalog_hash(word) != hash)
            continue;
        int rc = cas_word(op, i, word, 0, &was);
        if (rc != FAR_OK)
            return rc;
        *again |= was != word && was != 0;
    }
    return FAR_OK;
}

static int exists(const struct table_desc *other)
{
    return err_fail(FAR_TABLE_EXISTS, "table '%s' already exists (index %s)", other->name,
                    other->index);
}

/* CAT-1, from the tentative place on. *again: it was killed. */
static int commit(struct op *op, const char *name, unsigned id, uint64_t word, bool *again)
{
    const struct catalog_entry *entries = NULL;
    struct table_desc other;
    uint64_t was = 0;
    bool look_again = true;
    int rc = FAR_OK;
    while (look_again && rc == FAR_OK) { /* ends, because each time another table became live */
        look_again = false;
        rc = read_all(op, &entries);
        if (rc != FAR_OK)
            return rc;
        if (entries[id].word != word) {
            *again = true;
            return FAR_OK;
        }
        rc = find_live(op, entries, name, &other);
        if (rc == FAR_OK)
            rc = exists(&other);
        else if (rc == FAR_NO_TABLE)
            rc = kill_others(op, entries, id, &look_again);
    }
    if (rc == FAR_OK) {
        rc = cas_word(op, id, word, catalog_with_state(word, CATALOG_LIVE), &was);
        *again = rc == FAR_OK && was != word;
        return rc;
    }
    int withdrawn = op_all_known(rc) ? cas_word(op, id, word, 0, &was) : rc;
    return withdrawn == FAR_OK ? rc : withdrawn;
}

/* One attempt: finds a place, and makes it live. *again: another client was faster. */
static int add_once(struct op *op, const char *name, uint64_t word, unsigned *id, bool *again)
{
    const struct catalog_entry *entries = NULL;
    struct table_desc other;
    uint64_t was = 0;
    int rc = read_all(op, &entries);
    if (rc == FAR_OK) {
        rc = find_live(op, entries, name, &other);
        rc = rc == FAR_OK ? exists(&other) : rc == FAR_NO_TABLE ? FAR_OK : rc;
    }
    if (rc == FAR_OK)
        rc = choose_place(op, entries, id, again);
    if (rc != FAR_OK || *again)
        return rc;
    rc = cas_word(op, *id, 0, word, &was);
    if (rc != FAR_OK || was != 0) {
        *again = rc == FAR_OK;
        return rc;
    }
    return commit(op, name, *id, word, again);
}

int catalog_add(struct op *op, struct table_desc *desc)
{
    struct catalog_desc value = {
        .root = desc->root, .hash_seed = desc->hash_seed, .serial = client_unique(op->client)};
    struct block_ref block;
    unsigned id = 0;

    memcpy(value.index, desc->index, sizeof value.index);
    int rc = block_prepare(op, 0, desc->name, strlen(desc->name), &value, sizeof value, 0, &block);
    if (rc != FAR_OK)
        return rc;
    uint64_t word =
        catalog_word(block.at, block.size_class, block.generation, hash_name(desc->name));
    block_write(op, &block);
    rc = batch_flush(&op->batch);

    bool again = true;
    for (unsigned i = 0; rc == FAR_OK && again && i < ADD_ATTEMPTS; i++) {
        if (i > 0)
            batch_pause(&op->batch, rng_below(&op->client->rng, GIVE_WAY_NS << (i < 8 ? i : 8)));
        again = false;
        rc = add_once(op, desc->name, word, &id, &again);
    }
    if (rc == FAR_OK && !again) {
        desc->id = id;
        desc->serial = value.serial;
        desc->word = catalog_with_state(word, CATALOG_LIVE);
        return FAR_OK;
    }
    rc = rc == FAR_OK ? FAR_CONTENTION : rc;
    /* Nobody follows a tentative word, so the block is free. But after an error of the fabric the
     * word may become live, and the block is in use then. */
    if (op_all_known(rc))
        pool_free_unpublished(op->client, block.at, block.size_class);
    else
        pool_abandon(op->client, block.size_class);
    return rc;
}

/* ---- dropping -------------------------------------------------------------------------------- */

int catalog_drop(struct op *op, const struct table_desc *desc)
{
    uint64_t live = catalog_with_state(desc->word, CATALOG_LIVE), was = 0;
    ASSERT(op_in_flight(op));
    int rc = cas_word(op, desc->id, live, catalog_with_state(live, CATALOG_DROPPED), &was);
    return rc == FAR_OK && was != live
               ? err_fail(FAR_NO_TABLE, "table '%s' was dropped by another session", desc->name)
               : rc;
}

void catalog_bump_version(struct op *op, const struct table_desc *desc)
{
    batch_faa(&op->batch, MARK_PUBLISH, NODE0,
              entry_delta(op->pool, desc->id) + offsetof(struct catalog_entry, version), 1,
              &op->pool_word[0]);
}

int catalog_release(struct op *op, const struct table_desc *desc, bool *released)
{
    uint64_t word = catalog_with_state(desc->word, CATALOG_DROPPED), was = 0;
    ASSERT(op_in_flight(op));
    int rc = cas_word(op, desc->id, word, 0, &was);
    *released = rc == FAR_OK && was == word;
    if (*released)
        pool_retire(op->client, catalog_gaddr(word), catalog_class(word));
    else if (rc == FAR_UNKNOWN)
        pool_abandon(op->client, catalog_class(word));
    return rc;
}

int catalog_mark(struct op *op, struct marker *marker)
{
    const struct catalog_entry *entries = NULL;
    int rc = read_all(op, &entries);
    for (unsigned id = 0; id < op->pool->places && rc == FAR_OK; id++) {
        uint64_t word = entries[id].word;
        bool reaches =
            catalog_state(word) == CATALOG_LIVE || catalog_state(word) == CATALOG_DROPPED;
        if (reaches && !catalog_damaged(word))
            marker->mark(marker, catalog_gaddr(word), catalog_class(word));
    }
    return rc;
}
