/*
 * Shared free lists: where a client puts objects that it has too many of, and looks for some before
 * it takes a new chunk. One list per node and class, a stack of bundles. A bundle is a page of 512
 * bytes with up to 62 objects; the page itself is an object of class 512 and changes hands with
 * them.
 *
 *   S1  The head word holds the top bundle's address and a tag that every change counts up, so a
 *       CAS that succeeds proves that the stack had not changed since the head was read: what was
 *       read of the top bundle in between is true.
 *   S2  A bundle has a checksum, over its own address and class too: a damaged one, or another's
 *       page, hands out nothing. The list is cut off there, and what was on it is left to a sweep.
 */
#include "pool/pool.h"

#include <string.h>

#define BUNDLE_MAX 62

struct bundle {
    uint64_t checksum; /* of what follows */
    uint64_t next;     /* gaddr of the bundle below, the number of objects above it */
    uint64_t object[BUNDLE_MAX];
};
_Static_assert(sizeof(struct bundle) == 512, "a bundle fills an object of its class");

#define HEAD_GADDR ((1ull << GADDR_BITS) - 1)
#define HEAD_TAG   (1ull << GADDR_BITS)

static uint64_t bundle_sum(const struct bundle *bundle, gaddr page, unsigned size_class)
{
    return hash_sum(&bundle->next, sizeof *bundle - offsetof(struct bundle, next),
                    page | (uint64_t)size_class << GADDR_BITS);
}

static uint64_t bundle_count(const struct bundle *bundle)
{
    return bundle->next >> GADDR_BITS;
}

/* S2 */
static bool bundle_valid(const struct bundle *bundle, gaddr page, unsigned size_class)
{
    return bundle_count(bundle) <= BUNDLE_MAX &&
           bundle->checksum == bundle_sum(bundle, page, size_class);
}

/* Lost races on a head; each is another client's success. */
#define TRIES 64

uint64_t shared_head(uint64_t head, gaddr top)
{
    return (((head & ~HEAD_GADDR) + HEAD_TAG) & ~HEAD_GADDR) | top;
}

static void head_at(unsigned node, unsigned size_class, gaddr *at, uint64_t *delta)
{
    *at = gaddr_make(node, 0);
    *delta = NODE_FREE_OFF + size_class * 8;
}

/* A page for the bundle: of the objects given away itself when they are of that class. */
static bool take_page(struct client *c, unsigned node, gaddr *page)
{
    struct stock *pages = &c->stock[node][BUNDLE_CLASS];
    if (pages->kept == 0)
        return false;
    *page = pages->keep[--pages->kept];
    pool_taken(c, *page, BUNDLE_CLASS);
    c->held_bytes -= sizeof(struct bundle);
    return true;
}

/* After an error nobody knows whether they are on the list. */
static int lose_bundle(struct client *c, uint64_t bytes, int rc)
{
    c->lost_bytes += bytes + sizeof(struct bundle);
    return rc;
}

int shared_give(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    struct stock *stock = &c->stock[node][size_class];
    struct bundle *bundle = op_buffer(op, BUF_BULK, sizeof *bundle);
    gaddr page = 0, head = 0;
    uint64_t delta = 0, count = 0;

    if (!bundle)
        return FAR_NO_MEMORY;
    if (!take_page(c, node, &page)) {
        int rc = pool_alloc(op, node, BUNDLE_CLASS, &page);
        if (rc != FAR_OK)
            return rc;
    }
    while (count < BUNDLE_MAX && stock->kept > 0)
        bundle->object[count++] = stock->keep[--stock->kept];
    memset(&bundle->object[count], 0, (BUNDLE_MAX - count) * sizeof *bundle->object);
    uint64_t bytes = count * class_bytes(size_class);
    c->held_bytes -= bytes;

    head_at(node, size_class, &head, &delta);
    batch_read(&op->batch, head, delta, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < TRIES && rc == FAR_OK; i++) {
        uint64_t seen = op->pool_word[0];
        bundle->next = (seen & HEAD_GADDR) | count << GADDR_BITS;
        bundle->checksum = bundle_sum(bundle, page, size_class);
        batch_write(&op->batch, page, 0, bundle, sizeof *bundle);
        batch_fence(&op->batch);
        batch_cas(&op->batch, head, delta, seen, shared_head(seen, page), op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc == FAR_OK && op->pool_word[0] == seen)
            return FAR_OK;
    }
    if (rc != FAR_OK)
        return lose_bundle(c, bytes, rc);
    for (uint64_t n = 0; n < count; n++) /* lost every race: nothing points to the bundle */
        pool_unalloc(c, bundle->object[n], size_class);
    pool_unalloc(c, page, BUNDLE_CLASS);
    return FAR_CONTENTION;
}

/* Reads the bundle at the top; *valid says whether it can be one. */
static int read_bundle(struct op *op, gaddr page, unsigned size_class, struct bundle *bundle,
                       bool *valid)
{
    batch_read(&op->batch, page, 0, bundle, sizeof *bundle);
    batch_unsure(&op->batch); /* another may have taken it: S1, S2 */
    int rc = batch_flush(&op->batch);
    *valid = rc == FAR_OK && bundle_valid(bundle, page, size_class);
    return rc == FAR_BOUNDS ? FAR_OK : rc;
}

int shared_take(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    struct bundle *bundle = op_buffer(op, BUF_BULK, sizeof *bundle);
    gaddr head = 0;
    uint64_t delta = 0;

    if (!bundle)
        return FAR_NO_MEMORY;
    head_at(node, size_class, &head, &delta);
    batch_read(&op->batch, head, delta, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < TRIES && rc == FAR_OK; i++) {
        uint64_t seen = op->pool_word[0];
        gaddr page = seen & HEAD_GADDR;
        bool valid = false;
        if (page == 0)
            return FAR_POOL_FULL;
        rc = read_bundle(op, page, size_class, bundle, &valid);
        if (rc != FAR_OK)
            break;
        gaddr below = valid ? bundle->next & HEAD_GADDR : 0;
        batch_cas(&op->batch, head, delta, seen, shared_head(seen, below), op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return lose_bundle(c, 0, rc);
        if (op->pool_word[0] != seen)
            continue;
        if (!valid)
            return lose_bundle(c, 0, fail(FAR_CORRUPT, "a list of free memory is damaged"));
        for (uint64_t n = 0; n < bundle_count(bundle); n++)
            pool_unalloc(c, bundle->object[n], size_class);
        pool_unalloc(c, page, BUNDLE_CLASS);
        return FAR_OK;
    }
    return rc == FAR_OK ? FAR_CONTENTION : rc;
}

/* Walks a list from its head; *at is the page that is no bundle, 0: there is none. */
static int walk_list(struct op *op, uint64_t head, unsigned size_class, gaddr *at)
{
    struct bundle *bundle = op_buffer(op, BUF_BULK, sizeof *bundle);
    if (!bundle)
        return FAR_NO_MEMORY;
    *at = head & HEAD_GADDR;
    uint64_t most = 0;
    for (unsigned node = 0; node < op->pool->nodes; node++)
        most += op->pool->head[node].size / sizeof *bundle;
    for (uint64_t n = 0; *at != 0 && n < most; n++) { /* longer than that: it goes in circles */
        bool valid = false;
        int rc = read_bundle(op, *at, size_class, bundle, &valid);
        if (rc != FAR_OK || !valid)
            return rc;
        *at = bundle->next & HEAD_GADDR;
    }
    return FAR_OK;
}

int shared_whole(struct op *op, unsigned node, unsigned size_class, bool *whole)
{
    gaddr head = 0, bad = 0;
    uint64_t delta = 0;

    head_at(node, size_class, &head, &delta);
    batch_read(&op->batch, head, delta, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    uint64_t seen = op->pool_word[0];
    if (rc == FAR_OK)
        rc = walk_list(op, seen, size_class, &bad);
    if (rc == FAR_OK && bad != 0) {
        batch_read(&op->batch, head, delta, op->pool_word, 8);
        rc = batch_flush(&op->batch);
    }
    if (rc == FAR_OK)
        *whole = bad == 0 || op->pool_word[0] != seen; /* S1: what we saw was true if it stayed */
    return rc;
}

int shared_bytes(struct op *op, uint64_t enough, uint64_t *bytes)
{
    struct bundle *bundle = op_buffer(op, BUF_BULK, sizeof *bundle);
    if (!bundle)
        return FAR_NO_MEMORY;
    *bytes = 0;
    for (unsigned node = 0; node < op->pool->nodes; node++) {
        /* A list that changes under our eyes leads anywhere: it has no more bundles than this. */
        uint64_t most = op->pool->head[node].size / sizeof *bundle;
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            gaddr at = 0;
            uint64_t delta = 0;
            head_at(node, i, &at, &delta);
            batch_read(&op->batch, at, delta, op->pool_word, 8);
            int rc = batch_flush(&op->batch);
            gaddr page = rc == FAR_OK ? op->pool_word[0] & HEAD_GADDR : 0;
            for (uint64_t n = 0; page != 0 && n < most && *bytes < enough; n++) {
                bool valid = false;
                rc = read_bundle(op, page, i, bundle, &valid);
                if (rc != FAR_OK || !valid)
                    break;
                *bytes += sizeof *bundle + bundle_count(bundle) * class_bytes(i);
                page = bundle->next & HEAD_GADDR;
            }
            if (rc != FAR_OK)
                return rc;
        }
    }
    return FAR_OK;
}
