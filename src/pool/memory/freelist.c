/*
 * Shared free lists. A client puts objects there that it has too many of, and looks there before it
 * takes a new chunk. There is one list per node and class, a stack of bundles. A bundle is a page
 * with the addresses of up to 62 objects. The page is the first of them if they have 512 bytes or
 * more; else it is an object of 512 bytes, which changes its owner together with them.
 *
 *   FREELIST-S1  The head word holds the top bundle's address and a tag that every change counts
 *       up. So a CAS that succeeds proves that the stack had not changed since the head was read,
 *       and that what was read of the top bundle in between is true.
 *   FREELIST-S2  A bundle has a checksum, over its own address and class too. So a damaged one, or
 *       another list's page, hands out nothing. The list is cut off there, and what was on it is
 *       left to a sweep.
 *   FREELIST-S3  Giving needs no memory. If no page of 512 bytes can be had, a smaller object of
 *       the bundle is its page, with room for fewer addresses. So a client that leaves can give
 *       back everything, even on a full pool.
 *   FREELIST-S4  Walks end. A damaged list may be a circle, and one that changes while it is walked
 *       may lead in one. A walk remembers the page that it came to after 1, 2, 4, 8, ... steps, so
 *       it notices a circle after at most three times as many steps as there are pages.
 */
#include "pool/pool_internal.h"

#include <string.h>

/* Bytes of one bundle at most, unless it has just one object: a client takes all of a bundle. */
#define BUNDLE_BYTES (256u << 10)

static unsigned page_class(const struct bundle *bundle, unsigned size_class)
{
    return bundle->next & BUNDLE_OWN ? size_class : BUNDLE_CLASS;
}

/* How many addresses fit on a page. */
static uint64_t page_room(unsigned size_class)
{
    uint64_t words = size_class_bytes(size_class) / 8 - offsetof(struct bundle, object) / 8;
    return words < BUNDLE_MAX ? words : BUNDLE_MAX;
}

/* FREELIST-S2 */
static bool bundle_valid(const struct bundle *bundle, gaddr page, unsigned size_class)
{
    return bundle_count(bundle) <= page_room(page_class(bundle, size_class)) &&
           bundle->checksum == bundle_sum(bundle, page, size_class);
}

/* Lost races for a head; each is another client's success. */
#define TRIES 64

static void head_at(unsigned node, unsigned size_class, gaddr *at, uint64_t *delta)
{
    ASSERT(size_class < CLASS_COUNT);
    *at = gaddr_make(node, 0);
    *delta = NODE_FREE_OFF + size_class * 8;
}

/* Bytes of a bundle with its page. */
static uint64_t bundle_bytes(const struct bundle *bundle, unsigned size_class)
{
    return size_class_bytes(page_class(bundle, size_class)) +
           bundle_count(bundle) * size_class_bytes(size_class);
}

/* After an error, the objects may be on the list or not: only a sweep can tell. */
static int abandon_bundle(struct client *c, uint64_t bytes, int rc)
{
    pool_abandon_bytes(c, bytes);
    return rc;
}

unsigned freelist_bundle(unsigned size_class)
{
    uint32_t most = BUNDLE_BYTES / size_class_bytes(size_class);
    return most < 1 ? 1 : most > BUNDLE_MAX ? BUNDLE_MAX : most;
}

/* Moves objects from the stock to the bundle, whose page is of class `of`. */
static void fill_bundle(struct client *c, unsigned node, unsigned size_class, unsigned of,
                        struct bundle *bundle)
{
    uint64_t most = freelist_bundle(size_class), knob = c->pool->knobs.bundle_max;
    uint64_t room = page_room(of);
    most = (most < knob ? most : knob) - (of == size_class); /* the page is one of them */
    uint64_t count =
        stock_take_many(c, node, size_class, room < most ? room : most, bundle->object);
    ASSERT(count <= BUNDLE_MAX);
    bundle->next = bundle_next(0, count, of == size_class);
}

int freelist_give(struct op *op, unsigned node, unsigned size_class, gaddr page, unsigned of)
{
    struct client *c = op->client;
    gaddr head = 0;
    uint64_t delta = 0;

    ASSERT(op->batch.count == 0 && (of == size_class || of == BUNDLE_CLASS));
    struct bundle *bundle = op_buffer(op, BUF_POOL, sizeof *bundle);
    if (!bundle) {
        pool_free_unpublished(c, page, of);
        return FAR_NO_MEMORY;
    }
    fill_bundle(c, node, size_class, of, bundle);
    uint64_t count = bundle_count(bundle), rest = bundle->next;
    uint32_t bytes = (uint32_t)(offsetof(struct bundle, object) + count * 8);

    head_at(node, size_class, &head, &delta);
    batch_read(&op->batch, head, delta, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < TRIES && rc == FAR_OK; i++) {
        uint64_t seen = op->pool_word[0];
        bundle->next = rest | freelist_top(seen);
        bundle->checksum = bundle_sum(bundle, page, size_class);
        batch_write(&op->batch, MARK_EARLY, page, 0, bundle, bytes);
        batch_fence(&op->batch);
        batch_cas(&op->batch, MARK_PUBLISH, head, delta, seen, freelist_head(seen, page),
                  op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc == FAR_OK && op->pool_word[0] == seen)
            return FAR_OK;
    }
    if (rc != FAR_OK)
        return abandon_bundle(c, count * size_class_bytes(size_class) + size_class_bytes(of), rc);
    for (uint64_t n = 0; n < count; n++) /* we lost every race: nothing points to the bundle */
        pool_free_unpublished(c, bundle->object[n], size_class);
    pool_free_unpublished(c, page, of);
    return FAR_CONTENTION;
}

/* Reads the bundle at the top. *valid: it can be one. */
static int read_bundle(struct op *op, gaddr page, unsigned size_class, struct bundle *bundle,
                       bool *valid)
{
    unsigned node = gaddr_node(page);
    uint64_t bytes = sizeof *bundle,
             size = node < op->pool->nodes ? pool_head(op->pool, node)->size : 0;
    if (gaddr_offset(page) < size && size - gaddr_offset(page) < bytes)
        bytes = size - gaddr_offset(page); /* a page may be shorter, and the last of its node */
    batch_read(&op->batch, page, 0, bundle, (uint32_t)(bytes & ~7ull));
    batch_may_be_freed(&op->batch); /* another may have taken it: FREELIST-S1, FREELIST-S2 */
    int rc = batch_flush(&op->batch);
    *valid = rc == FAR_OK && bundle_valid(bundle, page, size_class);
    return rc == FAR_BOUNDS ? FAR_OK : rc;
}

int freelist_take(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    struct bundle *bundle = op_buffer(op, BUF_POOL, sizeof *bundle);
    gaddr head = 0;
    uint64_t delta = 0;

    if (!bundle)
        return FAR_NO_MEMORY;
    head_at(node, size_class, &head, &delta);
    batch_read(&op->batch, head, delta, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < TRIES && rc == FAR_OK; i++) {
        uint64_t seen = op->pool_word[0];
        gaddr page = freelist_top(seen);
        bool valid = false;
        if (page == 0)
            return FAR_POOL_FULL;
        rc = read_bundle(op, page, size_class, bundle, &valid);
        if (rc != FAR_OK)
            break;
        gaddr below = valid ? bundle_below(bundle) : 0;
        batch_cas(&op->batch, MARK_PUBLISH, head, delta, seen, freelist_head(seen, below),
                  op->pool_word);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return abandon_bundle(c, valid ? bundle_bytes(bundle, size_class) : sizeof *bundle, rc);
        if (op->pool_word[0] != seen)
            continue;
        if (!valid)
            return abandon_bundle(c, size_class_bytes(BUNDLE_CLASS),
                                  err_fail(FAR_CORRUPT, "a shared free list is damaged"));
        for (uint64_t n = 0; n < bundle_count(bundle); n++)
            pool_free_unpublished(c, bundle->object[n], size_class);
        pool_free_unpublished(c, page, page_class(bundle, size_class));
        return FAR_OK;
    }
    return rc == FAR_OK ? FAR_CONTENTION : rc;
}

int freelist_run_class(struct op *op, unsigned node, uint64_t chunks, unsigned *size_class)
{
    gaddr at = 0;
    uint64_t delta = 0;

    *size_class = 0;
    head_at(node, RUN_CLASS, &at, &delta);
    batch_read(&op->batch, at, delta, op->pool_word, (CLASS_COUNT - RUN_CLASS) * 8);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    for (unsigned i = RUN_CLASS; i < CLASS_COUNT; i++) {
        if (size_class_chunks(i) >= chunks && freelist_top(op->pool_word[i - RUN_CLASS]) != 0) {
            *size_class = i;
            return FAR_OK;
        }
    }
    return FAR_POOL_FULL;
}

/* FREELIST-S4 */
struct circle {
    gaddr met;
    uint64_t steps;
};

static bool comes_again(struct circle *c, gaddr page)
{
    if (page == c->met)
        return true;
    c->steps++;
    if ((c->steps & (c->steps - 1)) == 0)
        c->met = page;
    return false;
}

/* Walks a list from its head. Sets *at to the first page that is no bundle or comes again, or to
 * 0. */
static int walk_list(struct op *op, uint64_t head, unsigned size_class, gaddr *at)
{
    struct bundle *bundle = op_buffer(op, BUF_POOL, sizeof *bundle);
    if (!bundle)
        return FAR_NO_MEMORY;
    *at = freelist_top(head);
    struct circle circle = {0};
    while (*at != 0 && !comes_again(&circle, *at)) {
        bool valid = false;
        int rc = read_bundle(op, *at, size_class, bundle, &valid);
        if (rc != FAR_OK || !valid)
            return rc;
        *at = bundle_below(bundle);
    }
    return FAR_OK;
}

int freelist_whole(struct op *op, unsigned node, unsigned size_class, bool *whole)
{
    gaddr head = 0, bad = 0;
    uint64_t delta = 0;

    head_at(node, size_class, &head, &delta);
    batch_read(&op->batch, head, delta, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    uint64_t seen = op->pool_word[0];
    if (rc == FAR_OK)
        rc = walk_list(op, seen, size_class, &bad);
    if (word_is_reference(seen)) /* WORDS-1 */
        bad = GADDR_MASK;
    if (rc == FAR_OK && bad != 0) {
        batch_read(&op->batch, head, delta, op->pool_word, 8);
        rc = batch_flush(&op->batch);
    }
    /* FREELIST-S1: if the head has not changed, what we read is true. */
    if (rc == FAR_OK)
        *whole = bad == 0 || op->pool_word[0] != seen;
    return rc;
}

int freelist_bytes(struct op *op, uint64_t enough, uint64_t *bytes)
{
    struct bundle *bundle = op_buffer(op, BUF_POOL, sizeof *bundle);
    if (!bundle)
        return FAR_NO_MEMORY;
    *bytes = 0;
    for (unsigned node = 0; node < op->pool->nodes; node++) {
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            gaddr at = 0;
            uint64_t delta = 0;
            head_at(node, i, &at, &delta);
            batch_read(&op->batch, at, delta, op->pool_word, 8);
            int rc = batch_flush(&op->batch);
            gaddr page = rc == FAR_OK ? freelist_top(op->pool_word[0]) : 0;
            struct circle circle = {0};
            while (page != 0 && *bytes < enough && !comes_again(&circle, page)) {
                bool valid = false;
                rc = read_bundle(op, page, i, bundle, &valid);
                if (rc != FAR_OK || !valid)
                    break;
                *bytes += bundle_bytes(bundle, i);
                page = bundle_below(bundle);
            }
            if (rc != FAR_OK)
                return rc;
        }
    }
    return FAR_OK;
}
