/*
 * A small structure whose clients keep addresses in an index_cache, so that the cache's rules meet
 * parking, lapsed leases, crashes, sweeps and memory that is reused at once.
 *
 *   root (never freed)   version | word of slot 0 | word of slot 1
 *   slot word            address of a node 42 | serial 22
 *   node                 sum | slot | serial | addresses of leaves
 *   leaf                 sum | slot | place
 *
 * Nodes and leaves are immutable. To change a leaf, a client writes a new leaf and a new node that
 * names it, swaps the slot's word, and retires the old node and the old leaf. The other leaves stay
 * in use under the new node, so what an old node says becomes wrong later. Slot words and nodes are
 * cached, nodes by their addresses and by their slots.
 *
 * A client reads a leaf that a fresh entry names without further checks. If the leaf is free, the
 * shadow of free memory notices; if its memory has become something else, its sum does not match.
 */
#include "check/check_internal.h"

#include "base/hash.h"
#include "index/cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS        2u
#define LEAVES       3u
#define CLASS        0u /* of every object, and of small key-value blocks */
#define SERIAL       ((uint64_t)1 << GADDR_BITS)
#define NODE_KEY     ((uint64_t)1 << 63) /* of nodes by their addresses              */
#define SHORT_KEY    ((uint64_t)1 << 62) /* of the last node of a slot               */
#define EPOCH_TURNS  4u                  /* round trips: an epoch takes two or three */
#define USES         3u                  /* operations in a row, at most             */
#define LINGER_NS    2000u               /* the shortest pause within an operation,  */
#define LINGER_STEPS 6u                  /* doubled fewer times than this            */

struct root {
    uint64_t version, slot[SLOTS];
};
struct node {
    uint64_t sum, slot, serial, leaf[LEAVES];
};
struct leaf {
    uint64_t sum, slot, place;
};
struct known { /* a cache entry: what a node says */
    uint64_t word, leaf[LEAVES];
};

/* The cache of a session. */
struct check_cache {
    struct index_cache *cache;
    struct cached cached;
};

static gaddr word_node(uint64_t word)
{
    return word & (SERIAL - 1);
}

static uint64_t sum_of(const void *object, size_t bytes)
{
    return hash_sum((const char *)object + 8, bytes - 8, 0xcac4e);
}

static struct cached *version_of(const struct check *c, struct check_cache *mine)
{
    return c->plan.versions ? &mine->cached : NULL;
}

/* A client whose lease has lapsed may read anything: what it does then does not count. */
static void fail_if_alive(struct check *c, const struct op *op, const char *what, gaddr at)
{
    if (!client_lapsed(op->client) && !sim_unwinding(c->sim))
        check_fail(c, CHECK_BAD_VALUE, "%s at node %u, offset 0x%" PRIx64, what, gaddr_node(at),
                   gaddr_offset(at));
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_leaf(const struct leaf *leaf, unsigned slot, unsigned place)
{
    return leaf->sum == sum_of(leaf, sizeof *leaf) && leaf->slot == slot && leaf->place == place;
}

static int read_leaf(struct check *c, struct op *op, gaddr at, unsigned slot, unsigned place)
{
    struct leaf *leaf = (struct leaf *)op->word;
    batch_read(&op->batch, at, 0, leaf, sizeof *leaf);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK && !is_leaf(leaf, slot, place))
        fail_if_alive(c, op, "a cached address leads to something else than its leaf", at);
    return rc;
}

/* Reads a node, and with it a leaf unless that is 0. The leaf may have been freed. */
static int read_node(struct check *c, struct op *op, unsigned slot, gaddr leaf, struct known *known)
{
    struct node *node = (struct node *)op->word;
    batch_read(&op->batch, word_node(known->word), 0, node, sizeof *node);
    if (leaf != 0) {
        batch_read(&op->batch, leaf, 0, node + 1, sizeof(struct leaf));
        batch_may_be_freed(&op->batch);
    }
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (node->sum != sum_of(node, sizeof *node) || node->slot != slot ||
        node->serial != known->word / SERIAL)
        fail_if_alive(c, op, "the word of a slot leads to something else than its node",
                      word_node(known->word));
    memcpy(known->leaf, node->leaf, sizeof known->leaf);
    return FAR_OK;
}

static int read_slot(struct check *c, struct op *op, unsigned slot, uint64_t *word)
{
    batch_read(&op->batch, c->cache.root, offsetof(struct root, slot[slot]), op->word, 8);
    int rc = batch_flush(&op->batch);
    *word = op->word[0];
    return rc;
}

/* Reads a slot and its node, as if nothing were cached. */
static int load(struct check *c, struct op *op, unsigned slot, struct known *known)
{
    int rc = read_slot(c, op, slot, &known->word);
    return rc == FAR_OK ? read_node(c, op, slot, 0, known) : rc;
}

static int use_sibling(struct check *c, struct check_client *me);

/* Gives others time to replace, retire and reuse what this operation has just learned of. */
static int linger(struct check *c, struct check_client *me, struct op *op)
{
    unsigned steps = tape_choose(c->tape, 2 * LINGER_STEPS, TAPE_WORK);
    if (steps >= LINGER_STEPS)
        batch_pause(&op->batch, (uint64_t)LINGER_NS << (steps - LINGER_STEPS));
    return op == &me->session->op && !sim_unwinding(c->sim) ? use_sibling(c, me) : FAR_OK;
}

static void count(struct check *c, enum index_cache_state state)
{
    c->result.coverage.cached_fresh += state == INDEX_CACHE_FRESH;
    c->result.coverage.cached_doubted += state == INDEX_CACHE_DOUBTED;
}

/* The slot's word, from the cache if it is fresh there. */
static int find_slot(struct check *c, struct check_client *me, struct op *op, unsigned slot,
                     struct index_cache_stamp *stamp, uint64_t *word)
{
    struct index_cache *cache = me->cache->cache;
    struct index_cache_hit hit;
    enum index_cache_state state = index_cache_find(cache, op, slot, stamp, &hit);
    count(c, state);
    if (state != INDEX_CACHE_MISS)
        memcpy(word, hit.data, sizeof *word); /* CACHE-K5 */
    if (state == INDEX_CACHE_FRESH)
        return linger(c, me, op);
    uint64_t doubted = *word;
    int rc = read_slot(c, op, slot, word);
    if (rc == FAR_OK)
        rc = linger(c, me, op);
    if (rc != FAR_OK)
        return rc;
    if (state == INDEX_CACHE_DOUBTED && *word == doubted)
        index_cache_confirm(cache, slot, *stamp, word, sizeof *word);
    else
        index_cache_put(cache, slot, *stamp, word, sizeof *word);
    return FAR_OK;
}

/* Finds the node that the word names, perhaps in the cache by its address, and reads one of its
 * leaves. A leaf that a doubted entry names is read in the batch that shows whether the entry is
 * right. */
static int find_leaf(struct check *c, struct check_client *me, struct op *op, unsigned slot,
                     unsigned place, struct index_cache_stamp *stamp, uint64_t word)
{
    struct index_cache *cache = me->cache->cache;
    struct index_cache_hit hit;
    struct known known = {.word = word}, cached = {0};
    uint64_t key = NODE_KEY | word_node(word);

    enum index_cache_state state = index_cache_find(cache, op, key, stamp, &hit);
    count(c, state);
    if (state != INDEX_CACHE_MISS)
        memcpy(&cached, hit.data, sizeof cached); /* CACHE-K5 */
    if (state == INDEX_CACHE_FRESH) {
        if (cached.word != word)
            fail_if_alive(c, op, "a fresh cache entry is of another node", word_node(word));
        index_cache_put(cache, SHORT_KEY | slot, *stamp, &cached, sizeof cached);
        int rc = linger(c, me, op);
        return rc == FAR_OK ? read_leaf(c, op, cached.leaf[place], slot, place) : rc;
    }
    int rc = read_node(c, op, slot, cached.leaf[place], &known);
    bool right =
        rc == FAR_OK && state == INDEX_CACHE_DOUBTED && memcmp(&known, &cached, sizeof known) == 0;
    bool whole = right && is_leaf((struct leaf *)((struct node *)op->word + 1), slot, place);
    if (rc == FAR_OK)
        rc = linger(c, me, op);
    if (rc != FAR_OK)
        return rc;
    if (right)
        index_cache_confirm(cache, key, *stamp, &known, sizeof known);
    else
        index_cache_put(cache, key, *stamp, &known, sizeof known);
    index_cache_put(cache, SHORT_KEY | slot, *stamp, &known, sizeof known);
    /* A leaf that is not whole was read before it was written. */
    return whole ? FAR_OK : read_leaf(c, op, known.leaf[place], slot, place);
}

/* Takes the last node of the slot, if its entry is fresh, without reading the slot. */
static bool take_short_cut(struct check *c, struct check_client *me, struct op *op, unsigned slot,
                           struct known *known)
{
    struct index_cache_hit hit;
    struct index_cache_stamp stamp = index_cache_stamp(me->cache->cache, op);
    enum index_cache_state state =
        index_cache_find(me->cache->cache, op, SHORT_KEY | slot, &stamp, &hit);
    count(c, state);
    if (state == INDEX_CACHE_FRESH)
        memcpy(known, hit.data, sizeof *known); /* CACHE-K5 */
    return state == INDEX_CACHE_FRESH;
}

static int read_cached(struct check *c, struct check_client *me, struct op *op, unsigned slot,
                       unsigned place)
{
    struct index_cache_stamp stamp = index_cache_stamp(me->cache->cache, op);
    struct known known;
    uint64_t word = 0;
    int rc = FAR_OK;
    if (tape_choose(c->tape, 2, TAPE_WORK) && take_short_cut(c, me, op, slot, &known)) {
        rc = linger(c, me, op);
        return rc == FAR_OK ? read_leaf(c, op, known.leaf[place], slot, place) : rc;
    }
    rc = find_slot(c, me, op, slot, &stamp, &word);
    return rc == FAR_OK ? find_leaf(c, me, op, slot, place, &stamp, word) : rc;
}

/* ---- changing -------------------------------------------------------------------------------- */

static void build_leaf(struct leaf *leaf, unsigned slot, unsigned place)
{
    *leaf = (struct leaf){.slot = slot, .place = place};
    leaf->sum = sum_of(leaf, sizeof *leaf);
}

static void build_node(struct node *node, unsigned slot, const struct known *known)
{
    *node = (struct node){.slot = slot, .serial = known->word / SERIAL};
    memcpy(node->leaf, known->leaf, sizeof node->leaf);
    node->sum = sum_of(node, sizeof *node);
}

/* Two objects, or none. */
static int alloc_two(struct op *op, unsigned on, gaddr at[2])
{
    int rc = pool_alloc(op, on, CLASS, &at[0]);
    if (rc != FAR_OK)
        return rc;
    rc = pool_alloc(op, on, CLASS, &at[1]);
    if (rc != FAR_OK)
        pool_free_unpublished(op->client, at[0], CLASS);
    return rc;
}

static void abandon_two(struct op *op)
{
    pool_abandon(op->client, CLASS);
    pool_abandon(op->client, CLASS);
}

/* Writes a leaf and the node that names it. If that fails, both are lost. */
static int write_two(struct op *op, const gaddr at[2], unsigned slot, unsigned place,
                     const struct known *known)
{
    struct leaf *leaf = (struct leaf *)op->word;
    struct node *node = (struct node *)(op->word + 8);
    build_leaf(leaf, slot, place);
    build_node(node, slot, known);
    batch_write(&op->batch, MARK_EARLY, at[0], 0, leaf, sizeof *leaf);
    batch_write(&op->batch, MARK_EARLY, at[1], 0, node, sizeof *node);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        abandon_two(op);
    return rc;
}

/* CACHE-K2 */
static int change_version(struct check *c, struct op *op)
{
    if (!c->plan.versions)
        return FAR_OK;
    batch_faa(&op->batch, MARK_PUBLISH, c->cache.root, offsetof(struct root, version), 1, op->word);
    return batch_flush(&op->batch);
}

static int change_leaf(struct check *c, struct check_client *me, struct op *op, unsigned slot,
                       unsigned place)
{
    struct index_cache *cache = me->cache->cache;
    struct index_cache_stamp stamp = index_cache_stamp(cache, op);
    struct known old, new;
    gaddr at[2];

    int rc = load(c, op, slot, &old);
    if (rc == FAR_OK)
        rc = alloc_two(op, tape_choose(c->tape, c->plan.nodes, TAPE_WORK), at);
    if (rc != FAR_OK)
        return rc;
    new = old;
    new.leaf[place] = at[0];
    new.word = at[1] | (old.word / SERIAL + 1) * SERIAL;
    rc = write_two(op, at, slot, place, &new);
    if (rc != FAR_OK)
        return rc;
    batch_cas(&op->batch, MARK_PUBLISH, c->cache.root, offsetof(struct root, slot[slot]), old.word,
              new.word, op->word);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK) { /* EPOCH-E4: it is unknown which two are reachable */
        abandon_two(op);
        if (op_decided(op, rc) == FAR_UNKNOWN)
            abandon_two(op);
        return rc;
    }
    if (op->word[0] != old.word) { /* another client was faster */
        pool_free_unpublished(op->client, at[0], CLASS);
        pool_free_unpublished(op->client, at[1], CLASS);
        return FAR_OK;
    }
    c->result.coverage.cached_changes++;
    index_cache_put(cache, slot, stamp, &new.word, sizeof new.word);
    index_cache_put(cache, NODE_KEY | word_node(new.word), stamp, &new, sizeof new);
    bool leaves = tape_choose(c->tape, 4, TAPE_WORK) == 3; /* like a client that dies here */
    rc = leaves ? FAR_OK : change_version(c, op);
    if (leaves || rc != FAR_OK) { /* CACHE-K4: caches may not know */
        abandon_two(op);
        return rc;
    }
    pool_retire(op->client, old.leaf[place], CLASS);
    pool_retire(op->client, word_node(old.word), CLASS);
    return FAR_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

static int attach(struct check *c, struct check_client *me)
{
    struct check_cache *mine = calloc(1, sizeof *mine);
    if (!mine)
        return FAR_NO_MEMORY;
    int rc = index_cache_new(INDEX_CACHE_BUDGET_MIN, sizeof(struct known), version_of(c, mine),
                             &mine->cache);
    if (rc != FAR_OK) {
        free(mine);
        return rc;
    }
    mine->cached.version_at = c->cache.root;
    mine->cached.version_delta = offsetof(struct root, version);
    if (c->plan.versions)
        client_cache(&me->session->client, &mine->cached);
    me->cache = mine;
    return FAR_OK;
}

void check_cache_close(struct check_client *me)
{
    if (!me->cache)
        return;
    client_uncache(&me->session->client, &me->cache->cached);
    index_cache_free(me->cache->cache);
    free(me->cache);
    me->cache = NULL;
}

static int operate(struct check *c, struct check_client *me, struct op *op)
{
    unsigned slot = tape_choose(c->tape, SLOTS, TAPE_WORK);
    unsigned place = tape_choose(c->tape, LEAVES, TAPE_WORK);
    bool changes = tape_chance(c->tape, 1, 3, TAPE_WORK);
    int rc = op_begin(op, version_of(c, me->cache));
    if (rc != FAR_OK)
        return rc;
    if (c->plan.versions && me->cache->cached.stale)
        rc = index_cache_refresh(op, NULL, me->cache->cache);
    if (rc == FAR_OK)
        rc = changes ? change_leaf(c, me, op, slot, place) : read_cached(c, me, op, slot, place);
    op_end(op);
    return rc;
}

/* Between two steps of an operation, runs another one of the session, perhaps in a later epoch: as
 * on a ring. */
static int use_sibling(struct check *c, struct check_client *me)
{
    struct op op;
    unsigned turns = tape_choose(c->tape, 4, TAPE_WORK);
    if (turns == 0)
        return FAR_OK;
    int rc = op_init(&op, &me->session->client);
    if (rc != FAR_OK)
        return rc;
    rc = check_drive_epochs(c, &op, (turns - 1) * EPOCH_TURNS);
    if (rc == FAR_OK && !sim_unwinding(c->sim))
        rc = operate(c, me, &op);
    op_free(&op);
    return rc == FAR_POOL_FULL ? FAR_OK : rc;
}

int check_cache_use(struct check *c, struct check_client *me)
{
    sim_note(c->sim, "uses its cache");
    int rc = me->cache ? FAR_OK : attach(c, me);
    for (unsigned i = 1 + tape_choose(c->tape, USES, TAPE_WORK); i > 0; i--) {
        if (rc == FAR_OK && !sim_unwinding(c->sim))
            rc = operate(c, me, &me->session->op);
        if (rc == FAR_OK)
            rc = check_drive_epochs(c, &me->session->op,
                                    tape_choose(c->tape, EPOCH_TURNS, TAPE_WORK));
    }
    if (!sim_unwinding(c->sim))
        sim_note(c->sim, "   %s", far_errname(rc));
    return rc;
}

/* ---- the structure as a whole ---------------------------------------------------------------- */

static int mark_slots(struct check *c, struct op *op, struct marker *marker)
{
    int rc = FAR_OK;
    marker->mark(marker, c->cache.root, CLASS);
    for (unsigned slot = 0; slot < SLOTS && rc == FAR_OK; slot++) {
        struct known known = {0};
        rc = load(c, op, slot, &known);
        if (rc != FAR_OK)
            break;
        marker->mark(marker, word_node(known.word), CLASS);
        for (unsigned i = 0; i < LEAVES; i++)
            marker->mark(marker, known.leaf[i], CLASS);
    }
    return rc == FAR_OK && marker->sweeps ? change_version(c, op) : rc;
}

/* Marks as a table does. What others add meanwhile is above the sweep's mark (SWEEP-P2). */
static int mark(void *arg, struct op *op, struct marker *marker)
{
    struct check *c = check_of(op->pool);
    int rc = c->cache.mark(arg, op, marker);
    if (rc == FAR_OK)
        rc = op_begin(op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = mark_slots(c, op, marker);
    op_end(op);
    return rc;
}

static int make_slot(struct check *c, struct op *op, unsigned slot, struct root *root)
{
    struct known known = {.word = SERIAL};
    gaddr node = 0;
    int rc = FAR_OK;
    for (unsigned i = 0; i < LEAVES && rc == FAR_OK; i++) {
        rc = pool_alloc(op, i % c->plan.nodes, CLASS, &known.leaf[i]);
        if (rc == FAR_OK) {
            build_leaf((struct leaf *)op->word, slot, i);
            batch_write(&op->batch, MARK_EARLY, known.leaf[i], 0, op->word, sizeof(struct leaf));
            rc = batch_flush(&op->batch);
        }
    }
    if (rc == FAR_OK)
        rc = pool_alloc(op, slot % c->plan.nodes, CLASS, &node);
    if (rc != FAR_OK)
        return rc;
    known.word |= node;
    root->slot[slot] = known.word;
    build_node((struct node *)op->word, slot, &known);
    batch_write(&op->batch, MARK_EARLY, node, 0, op->word, sizeof(struct node));
    return batch_flush(&op->batch);
}

int check_cache_set_up(struct check *c)
{
    struct op *op = &c->session->op;
    struct root root = {0};
    int rc = pool_alloc(op, 0, CLASS, &c->cache.root);
    for (unsigned slot = 0; slot < SLOTS && rc == FAR_OK; slot++)
        rc = make_slot(c, op, slot, &root);
    if (rc != FAR_OK)
        return rc;
    memcpy(op->word, &root, sizeof root);
    batch_write(&op->batch, MARK_EARLY, c->cache.root, 0, op->word, sizeof root);
    rc = batch_flush(&op->batch);
    c->cache.mark = c->pool->pool.mark;
    c->pool->pool.mark = mark;
    return rc;
}
