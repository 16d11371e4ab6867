/*
 * A small ordered index, for tests of what all ordered indexes share: scans through the store, the
 * ring, the benchmark, the simulator and the command line. Not for users: programs that call
 * ordered_index_add() find it by name, others do not.
 *
 * The whole table is one sorted page, which the root points to. A page is never changed: a change
 * writes a new page and replaces the pointer by CAS, which is its linearization point; the old page
 * is retired. A client that dies leaves at most a page that nothing points to. A scan reads the
 * page again after every few entries, so that, like that of a tree, it is no snapshot.
 */
#ifndef TESTS_ORDERED_INDEX_H
#define TESTS_ORDERED_INDEX_H

#include "index/index.h"

#include <stdlib.h>
#include <string.h>

#define ORDERED_NAME     "ordered"
#define ORDERED_ATTEMPTS 256u
#define ORDERED_FEW      10u
#define ORDERED_STEP     8u /* entries of a scan between two looks at the page */

/* Faults of its scans and changes, to see whether tests notice them. */
enum ordered_fault {
    ORDERED_SOUND,
    ORDERED_SKIPS,    /* leaves the second entry of each look out               */
    ORDERED_TWICE,    /* begins each look with the last entry of the one before */
    ORDERED_BACKWARD, /* gives keys in descending order                         */
    ORDERED_PAST,     /* goes on past the range's end                           */
    ORDERED_STALE,    /* keeps the page that its first scan has read            */
    ORDERED_BLIND,    /* finds nothing, and says that there is no more          */
    ORDERED_REFUSES   /* a table with ORDERED_FEW keys is damaged for a change  */
};
static enum ordered_fault ordered_fault;

/* Remote: the root, and a page's head, which entries follow. */
struct ordered_root {
    uint64_t version; /* constant: nothing is cached */
    uint64_t page;    /* gaddr, size class above it; 0: no keys */
    uint64_t unused[6];
};
#define ORDERED_CLASS_SHIFT 48
struct ordered_head {
    uint64_t count, bytes; /* of entries */
};
struct ordered_entry {
    uint32_t key_len, value_len; /* the key, the value, up to a multiple of eight bytes */
};

struct ordered_view {
    struct index_view base;
    void *kept; /* with ORDERED_STALE: a page */
};

static inline gaddr ordered_page_at(uint64_t page)
{
    return page & ((1ull << GADDR_BITS) - 1);
}

static inline unsigned ordered_page_class(uint64_t page)
{
    return (unsigned)(page >> ORDERED_CLASS_SHIFT);
}

static inline size_t ordered_entry_bytes(size_t key_len, size_t value_len)
{
    return (sizeof(struct ordered_entry) + key_len + value_len + 7) & ~(size_t)7;
}

/* Reads the pointer and the page, into BUF_INDEX; *head is NULL if there is none. */
static int ordered_read(struct op *op, const struct index_view *view, uint64_t *page,
                        const struct ordered_head **head)
{
    batch_read(&op->batch, view->table->desc.root, offsetof(struct ordered_root, page), op->word,
               8);
    int rc = batch_flush(&op->batch);
    *head = NULL;
    *page = op->word[0];
    if (rc != FAR_OK || *page == 0)
        return rc;
    if (ordered_page_class(*page) >= CLASS_COUNT)
        return err_fail(FAR_CORRUPT, "the pointer to the page is damaged");
    uint32_t bytes = size_class_bytes(ordered_page_class(*page));
    struct ordered_head *image = op_buffer(op, BUF_INDEX, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, ordered_page_at(*page), 0, image, bytes);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK && image->bytes > bytes - sizeof *image)
        return err_fail(FAR_CORRUPT, "the page is damaged");
    *head = image;
    return rc;
}

/* The entry at *pos, which moves behind it. False past the last. */
static bool ordered_next(const struct ordered_head *head, size_t *pos, struct slice *key,
                         struct slice *value)
{
    struct ordered_entry e;
    if (!head || *pos >= head->bytes)
        return false;
    const char *at = (const char *)(head + 1) + *pos;
    memcpy(&e, at, sizeof e);
    *key = (struct slice){at + sizeof e, e.key_len};
    *value = (struct slice){at + sizeof e + e.key_len, e.value_len};
    *pos += ordered_entry_bytes(e.key_len, e.value_len);
    return true;
}

static void ordered_append(struct ordered_head *head, struct slice key, struct slice value)
{
    struct ordered_entry e = {(uint32_t)key.len, (uint32_t)value.len};
    char *at = (char *)(head + 1) + head->bytes;
    memcpy(at, &e, sizeof e);
    memcpy(at + sizeof e, key.data, key.len);
    if (value.len > 0)
        memcpy(at + sizeof e + key.len, value.data, value.len);
    head->bytes += ordered_entry_bytes(key.len, value.len);
    head->count++;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int ordered_create(struct op *op, const struct index_options *options, uint64_t hash_seed,
                          gaddr *out)
{
    gaddr at = 0;
    (void)options;
    (void)hash_seed;
    int rc = pool_alloc(op, 0, size_class_for(sizeof(struct ordered_root)), &at);
    struct ordered_root *image = op_buffer(op, BUF_INDEX, sizeof *image);
    if (rc != FAR_OK || !image)
        return rc != FAR_OK ? rc : FAR_NO_MEMORY;
    memset(image, 0, sizeof *image);
    batch_write(&op->batch, MARK_EARLY, at, 0, image, sizeof *image);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        *out = at;
    else
        pool_abandon(op->client, size_class_for(sizeof(struct ordered_root)));
    return rc;
}

static int ordered_discard(struct op *op, gaddr root)
{
    pool_free_unpublished(op->client, root, size_class_for(sizeof(struct ordered_root)));
    return FAR_OK;
}

/* It caches nothing but the root's address, which is good while the table is there. */
static int ordered_refresh(struct op *op, struct index_view *view)
{
    uint64_t version = 0, announced = client_epoch_view(op->client).announced;
    index_confirm(op, view);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        rc = index_confirmed(op, view, &version);
    if (rc == FAR_OK) {
        view->cached.version = version;
        view->cached.stale = client_epoch_view(op->client).announced != announced; /* EPOCH-E2 */
    }
    return rc;
}

static void ordered_detach(struct index_view *base)
{
    struct ordered_view *view = (struct ordered_view *)base;
    free(view->kept);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int ordered_get(struct op *op, struct index_view *view, struct slice key,
                       struct value_out *out)
{
    const struct ordered_head *head = NULL;
    struct slice k, v;
    uint64_t page = 0;
    int rc = ordered_read(op, view, &page, &head);
    for (size_t pos = 0; rc == FAR_OK && ordered_next(head, &pos, &k, &v);) {
        if (index_key_compare(k, key) == 0)
            return index_deliver(view, v, out);
    }
    return rc == FAR_OK ? FAR_NOT_FOUND : rc;
}

/* In the order of their hashes, which does not depend on what else is there. */
static int ordered_iterate(struct op *op, struct index_view *view, struct entries_out *out)
{
    const struct ordered_head *head = NULL;
    uint64_t page = 0;
    int rc = ordered_read(op, view, &page, &head);
    while (rc == FAR_OK) {
        struct slice k, v, key = {NULL, 0}, value = {NULL, 0};
        uint64_t least = UINT64_MAX;
        for (size_t pos = 0; ordered_next(head, &pos, &k, &v);) {
            uint64_t hash = hash_sum(k.data, k.len, 0) >> 1;
            if (hash < out->cursor || hash >= least)
                continue;
            least = hash;
            key = k;
            value = v;
        }
        if (!key.data) {
            out->cursor = 0;
            return FAR_OK;
        }
        if (!index_entries_add(out, key, value))
            return out->count == 0 ? FAR_TOO_SMALL : FAR_OK;
        out->cursor = least + 1;
    }
    return rc;
}

/* A page that was kept, or is from now on. */
static const struct ordered_head *ordered_stale(struct ordered_view *view,
                                                const struct ordered_head *head)
{
    if (!view->kept && head) {
        view->kept = malloc(sizeof *head + head->bytes);
        ASSERT(view->kept != NULL);
        memcpy(view->kept, head, sizeof *head + head->bytes);
    }
    return view->kept;
}

static int ordered_scan(struct op *op, struct index_view *view, const struct scan_range *range,
                        struct entries_out *out)
{
    char last[FAR_KEY_MAX];
    struct scan_range rest = *range;
    bool ended = false;
    if (ordered_fault == ORDERED_PAST)
        rest.to.data = NULL;
    while (!ended && ordered_fault != ORDERED_BLIND) {
        const struct ordered_head *head = NULL;
        struct slice k, v, found[ORDERED_STEP][2];
        unsigned count = 0;
        uint64_t page = 0;
        int rc = ordered_read(op, view, &page, &head);
        if (rc != FAR_OK)
            return rc;
        if (ordered_fault == ORDERED_STALE)
            head = ordered_stale((struct ordered_view *)view, head);
        ended = true;
        for (size_t pos = 0; ended && ordered_next(head, &pos, &k, &v);) {
            if (index_scan_place(&rest, k) != SCAN_WITHIN ||
                index_scan_place(range, k) == SCAN_BELOW)
                continue;
            ended = count < ORDERED_STEP;
            if (!ended)
                break;
            found[count][0] = k;
            found[count++][1] = v;
        }
        for (unsigned i = 0; i < count; i++) {
            unsigned n = ordered_fault == ORDERED_BACKWARD ? count - 1 - i : i;
            if (ordered_fault == ORDERED_SKIPS && i == 1 && count > 2)
                continue;
            if (out->count == range->limit || !index_entries_add(out, found[n][0], found[n][1])) {
                out->more = out->count > 0;
                return out->more ? FAR_OK : FAR_TOO_SMALL;
            }
        }
        if (count > 0) { /* what was read is gone with the next look */
            k = found[count - 1][0];
            rest.from = (struct slice){memcpy(last, k.data, k.len), k.len};
            rest.after = ordered_fault != ORDERED_TWICE || count == 1;
        }
    }
    return FAR_OK;
}

/* ---- changing -------------------------------------------------------------------------------- */

struct ordered_change {
    struct slice key;
    struct change *change;
    uint64_t page; /* before */
    const struct ordered_head *head;
    gaddr at; /* after; 0: no keys are left */
    unsigned size_class;
    struct ordered_head *image;
};

static bool ordered_find(const struct ordered_change *c, struct slice *value)
{
    struct slice k;
    for (size_t pos = 0; ordered_next(c->head, &pos, &k, value);)
        if (index_key_compare(k, c->key) == 0)
            return true;
    *value = (struct slice){NULL, 0};
    return false;
}

/* Makes the page as it is to be, and allocates it. */
static int ordered_prepare(struct op *op, struct ordered_change *c, bool store)
{
    size_t old = c->head ? c->head->bytes : 0, pos = 0;
    size_t most = sizeof *c->image + old + ordered_entry_bytes(c->key.len, c->change->value.len);
    struct slice k, v;
    c->image = op_buffer(op, BUF_BLOCK_OUT, most + 64);
    if (!c->image)
        return FAR_NO_MEMORY;
    *c->image = (struct ordered_head){0};
    while (ordered_next(c->head, &pos, &k, &v)) {
        int order = index_key_compare(c->key, k);
        if (store && order <= 0)
            ordered_append(c->image, c->key, c->change->value);
        store = store && order > 0;
        if (order != 0)
            ordered_append(c->image, k, v);
    }
    if (store)
        ordered_append(c->image, c->key, c->change->value);
    c->at = 0;
    if (c->image->count == 0)
        return FAR_OK;
    c->size_class = size_class_for(sizeof *c->image + c->image->bytes);
    if (c->size_class >= CLASS_COUNT)
        return err_fail(FAR_TABLE_FULL, "the page is as long as one can be");
    return pool_alloc(op, 0, c->size_class, &c->at);
}

static int ordered_publish(struct op *op, const struct index_view *view, struct ordered_change *c,
                           bool *swapped)
{
    uint64_t page = c->at ? (uint64_t)c->size_class << ORDERED_CLASS_SHIFT | c->at : 0;
    if (c->at) {
        batch_write(&op->batch, MARK_EARLY, c->at, 0, c->image,
                    (uint32_t)(sizeof *c->image + c->image->bytes + 7) & ~7u);
        batch_fence(&op->batch);
    }
    batch_cas(&op->batch, MARK_PUBLISH, view->table->desc.root, offsetof(struct ordered_root, page),
              c->page, page, op->word);
    int rc = op_decided(op, batch_flush(&op->batch));
    *swapped = rc == FAR_OK && op->word[0] == c->page;
    if (*swapped && c->page)
        pool_retire(op->client, ordered_page_at(c->page), ordered_page_class(c->page));
    if (rc == FAR_OK && !*swapped && c->at)
        pool_free_unpublished(op->client, c->at, c->size_class);
    if (rc != FAR_OK && c->at)
        pool_abandon(op->client, c->size_class);
    if (rc == FAR_UNKNOWN && c->page)
        pool_abandon(op->client, ordered_page_class(c->page));
    return rc;
}

static int ordered_change(struct op *op, struct index_view *view, struct slice key,
                          struct change *change)
{
    struct ordered_change c = {.key = key, .change = change};
    for (unsigned i = 0; i < ORDERED_ATTEMPTS; i++) {
        bool swapped = false;
        struct slice old;
        int rc = ordered_read(op, view, &c.page, &c.head);
        if (rc != FAR_OK)
            return rc;
        if (ordered_fault == ORDERED_REFUSES && c.head && c.head->count >= ORDERED_FEW)
            return err_fail(FAR_CORRUPT, "this test refuses the change");
        bool present = ordered_find(&c, &old);
        enum change_action action = present ? change->present : change->absent;
        if (action == CHANGE_ASK)
            action = change->decide(change, old);
        if (action == CHANGE_NOTHING || (action == CHANGE_REMOVE && !present))
            return present ? FAR_EXISTS : FAR_NOT_FOUND;
        rc = ordered_prepare(op, &c, action == CHANGE_STORE);
        if (rc == FAR_OK)
            rc = ordered_publish(op, view, &c, &swapped);
        if (rc != FAR_OK || swapped)
            return rc;
        batch_pause(&op->batch, 200 + op_random(op, 200ull << (i < 8 ? i : 8)));
    }
    return FAR_CONTENTION;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int ordered_mark(struct op *op, struct index_view *view, struct marker *marker)
{
    marker->mark(marker, view->table->desc.root, size_class_for(sizeof(struct ordered_root)));
    batch_read(&op->batch, view->table->desc.root, offsetof(struct ordered_root, page), op->word,
               8);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op->word[0] != 0)
        marker->mark(marker, ordered_page_at(op->word[0]), ordered_page_class(op->word[0]));
    return rc;
}

static int ordered_info(struct op *op, struct index_view *view, struct far_table_info *info)
{
    const struct ordered_head *head = NULL;
    uint64_t page = 0;
    int rc = ordered_read(op, view, &page, &head);
    if (rc != FAR_OK)
        return rc;
    *info = (struct far_table_info){.index_bytes = sizeof(struct ordered_root)};
    if (head) {
        info->keys = info->slots = head->count;
        info->block_bytes = size_class_bytes(ordered_page_class(page));
        info->load_factor = 1;
    }
    return FAR_OK;
}

static int ordered_check(struct op *op, struct index_view *view, struct index_report *report)
{
    const struct ordered_head *head = NULL;
    struct slice key, value, before = {NULL, 0};
    uint64_t page = 0, count = 0;
    int rc = ordered_read(op, view, &page, &head);
    for (size_t pos = 0; rc == FAR_OK && ordered_next(head, &pos, &key, &value); count++) {
        if (count > 0 && index_key_compare(before, key) >= 0)
            index_violation(report, "entry %llu is out of order", (unsigned long long)count);
        before = key;
    }
    if (rc == FAR_OK && head && count != head->count)
        index_violation(report, "the page has another number of entries than it says");
    return rc;
}

static const struct index_ops ordered_index = {
    .name = ORDERED_NAME,
    .ordered = true,
    .create = ordered_create,
    .discard = ordered_discard,
    .view_bytes = sizeof(struct ordered_view),
    .attach = ordered_refresh,
    .detach = ordered_detach,
    .refresh = ordered_refresh,
    .get = ordered_get,
    .change = ordered_change,
    .iterate = ordered_iterate,
    .scan = ordered_scan,
    .mark = ordered_mark,
    .info = ordered_info,
    .check = ordered_check,
};

static inline void ordered_index_add(void)
{
    index_add_unlisted(&ordered_index);
}

#endif
