/*
 * Drafts: the segment of the next resize is cleared before it is needed, a part with each change,
 * so that no change has to clear all of it (SHARD-S11).
 *
 * A draft is for speed alone. Any client may take it away if it needs the memory. A client that is
 * due to resize the table does not wait for another's draft: it makes the segment at once.
 */
#include "index/shard/shard.h"

#include <string.h>

/* A draft is begun when the table has this part of the keys at which it is resized. It is to be
 * clear when 1 / HASTE of the rest has come. */
#define BEGIN_PERCENT 75
#define HASTE         2.0

/* A session that has changed less than this part of what is left may not be there until then. */
#define CHANGED_PART 16

/* It is made only if the pool has room for as much again: values may need the memory first. */
#define ROOM 2u

static uint64_t bytes_of(const struct shard_view *view, unsigned r)
{
    return (view->words + 1) * 8ull * view->lanes * shard_buckets(view, r - 1);
}

static uint64_t part(const struct shard_view *view)
{
    return view->base.table->pool->knobs.clear_part;
}

/* Keys until the resize. */
static double left(const struct shard_view *view)
{
    double keys = (double)shard_threshold(view) - (double)view->count; /* which may be damaged */
    return keys > 1 ? keys : 1;
}

void shard_draft_consider(struct shard_view *view)
{
    struct shard_draft *d = &view->draft;
    unsigned next = view->version + 1;
    d->due = d->word == 0 && d->over < next && next < SHARD_SEGMENTS &&
             bytes_of(view, next) > part(view) &&
             view->count >= shard_threshold(view) * BEGIN_PERCENT / 100 &&
             (double)d->changes + 1 >= left(view) / CHANGED_PART; /* with this one */
}

void shard_draft_forget(struct shard_draft *d)
{
    for (unsigned i = 0; i < 2; i++)
        pool_array_close(&d->array[i]);
    *d = (struct shard_draft){.over = d->over, .changes = d->changes};
}

/* ---- what the root leads to ------------------------------------------------------------------ */

static unsigned cas_word(struct op *op, const struct shard_view *view, uint64_t from, uint64_t to)
{
    return op_cas(op, MARK_PUBLISH, view->root, offsetof(struct shard_root, draft), from, to);
}

static uint64_t sum_of(const struct shard_draft_head *head)
{
    return hash_sum(head, offsetof(struct shard_draft_head, checksum), 0);
}

/* Reads the word, and behind it the head to which `word` leads. */
static int read_head(struct op *op, const struct shard_view *view, uint64_t word, uint64_t *now,
                     struct shard_draft_head *head)
{
    struct shard_draft_head *image = op_buffer(op, BUF_BULK, sizeof *image);
    if (!image)
        return FAR_NO_MEMORY;
    unsigned n = op_read(op, view->root, offsetof(struct shard_root, draft));
    batch_fence(&op->batch);
    batch_read(&op->batch, pointer_gaddr(word), 0, image, sizeof *image);
    batch_may_be_freed(&op->batch); /* its maker knows the word from an operation before */
    int rc = batch_flush(&op->batch);
    *now = rc == FAR_BOUNDS ? word : op_result(op, n);
    if (rc == FAR_OK)
        *head = *image;
    return rc == FAR_BOUNDS || (rc == FAR_OK && *now == word && head->checksum != sum_of(head))
               ? index_damaged(view->base.table, "its draft")
               : rc;
}

/* A draft that a word leads to. */
struct opened {
    uint64_t word;
    bool there; /* the root still has the word */
    struct shard_draft_head head;
    struct pool_array array[2];
};

/* FAR_CORRUPT: its head or an array cannot be read. close_draft() in any case. */
static int open_draft(struct op *op, const struct shard_view *view, uint64_t word, struct opened *o)
{
    uint64_t now;
    *o = (struct opened){.word = word};
    int rc = read_head(op, view, word, &now, &o->head);
    o->there = rc == FAR_OK && now == word;
    if (o->there)
        rc = pool_array_open(op, o->head.segment.units, &o->array[0]);
    if (o->there && rc == FAR_OK)
        rc = pool_array_open(op, o->head.segment.tops, &o->array[1]);
    return rc;
}

static void close_draft(struct opened *o)
{
    pool_array_close(&o->array[0]);
    pool_array_close(&o->array[1]);
}

/* The word was to be taken away, with this outcome. If it was, nothing leads to the head any more,
 * nor to the arrays that are unused. */
static void give_back(struct op *op, const struct opened *o, enum batch_outcome of,
                      const bool unused[2])
{
    for (unsigned i = 0; i < 2; i++)
        if (unused[i] && of == BATCH_DONE)
            pool_array_retire(op->client, &o->array[i]);
        else if (unused[i] && of == BATCH_UNKNOWN)
            pool_array_abandon(op->client, &o->array[i]);
    if (of == BATCH_DONE)
        pool_retire(op->client, pointer_gaddr(o->word), pointer_class(o->word));
    else if (of == BATCH_UNKNOWN)
        pool_abandon(op->client, pointer_class(o->word));
}

/* A draft whose head or arrays cannot be read. */
static int drop_damaged(struct op *op, const struct shard_view *view, uint64_t word)
{
    unsigned n = cas_word(op, view, word, 0);
    int rc = batch_flush(&op->batch);
    enum batch_outcome of = batch_outcome(&op->batch, n);
    if (of == BATCH_DONE || of == BATCH_UNKNOWN)
        pool_abandon_bytes(op->client, 2 * bytes_of(view, view->version + 1)); /* or less */
    return rc;
}

/* Takes a draft away that is not ready. */
static int discard(struct op *op, const struct shard_view *view, struct opened *o)
{
    static const bool both[2] = {true, true};
    unsigned n = cas_word(op, view, o->word, 0);
    int rc = batch_flush(&op->batch);
    give_back(op, o, batch_outcome(&op->batch, n), both);
    return rc;
}

/* The draft is ready: makes it the table's segment, unless that has another, and takes the word
 * away. Any client does so. */
static int use(struct op *op, const struct shard_view *view, struct opened *o)
{
    uint64_t ref[2] = {o->head.segment.units, o->head.segment.tops};
    uint64_t at = offsetof(struct shard_root, segment[o->head.version]);
    unsigned segment[2];
    bool unused[2];
    for (unsigned i = 0; i < 2; i++) {
        segment[i] = op_cas(op, MARK_PUBLISH, view->root, at + 8 * i, 0, ref[i]);
        batch_fence(&op->batch); /* if the second is there, so is the first */
    }
    unsigned n = cas_word(op, view, o->word, 0);
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < 2; i++) {
        enum batch_outcome of = batch_outcome(&op->batch, segment[i]);
        unused[i] = of != BATCH_DONE && op_result(op, segment[i]) != ref[i];
    }
    give_back(op, o, batch_outcome(&op->batch, n), unused);
    return rc;
}

int shard_draft_settle(struct op *op, const struct shard_view *view, uint64_t word)
{
    struct opened o;
    if (word == 0)
        return FAR_OK;
    int rc = open_draft(op, view, word, &o);
    bool readable = o.there && rc == FAR_OK;
    if (rc == FAR_CORRUPT || (readable && o.head.version >= SHARD_SEGMENTS))
        rc = drop_damaged(op, view, word);
    else if (readable)
        rc = word & SHARD_DRAFT_READY ? use(op, view, &o) : discard(op, view, &o);
    close_draft(&o);
    return rc;
}

int shard_mark_array(struct op *op, uint64_t ref, struct marker *marker)
{
    struct pool_array array;
    int rc = pool_array_open(op, ref, &array);
    if (rc == FAR_OK) {
        pool_array_mark(&array, marker);
        pool_array_close(&array);
    }
    return rc;
}

/* A sweep uses a draft that is ready, and takes any other away. */
int shard_draft_mark(struct op *op, const struct shard_view *view, struct marker *marker)
{
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        struct shard_draft_head head;
        unsigned n = op_read(op, view->root, offsetof(struct shard_root, draft));
        int rc = batch_flush(&op->batch);
        uint64_t word = op_result(op, n), now;
        if (rc != FAR_OK || word == 0)
            return rc;
        if (marker->sweeps) {
            rc = shard_draft_settle(op, view, word);
            if (rc != FAR_OK)
                return rc;
            continue;
        }
        rc = read_head(op, view, word, &now, &head);
        if (rc == FAR_CORRUPT) {
            marker->damaged = true;
            return FAR_OK;
        }
        if (rc != FAR_OK)
            return rc;
        if (now != word)
            continue;
        rc = shard_mark_array(op, head.segment.units, marker);
        if (rc == FAR_OK)
            rc = shard_mark_array(op, head.segment.tops, marker);
        marker->mark(marker, pointer_gaddr(word), pointer_class(word));
        return rc;
    }
    return FAR_CONTENTION;
}

/* The pool is full. The draft's memory is needed more elsewhere. */
void shard_draft_yield(struct op *op, struct shard_view *view)
{
    unsigned n = op_read(op, view->root, offsetof(struct shard_root, draft));
    if (batch_flush(&op->batch) == FAR_OK && op_result(op, n) != 0)
        (void)shard_draft_settle(op, view, op_result(op, n));
}

/* ---- making it ------------------------------------------------------------------------------- */

int shard_alloc_segment(struct op *op, const struct shard_view *view, unsigned r,
                        struct pool_array *units, struct pool_array *tops)
{
    ASSERT(r < SHARD_SEGMENTS && op->batch.count == 0);
    uint64_t buckets = r == 0 ? shard_buckets(view, 0) : shard_buckets(view, r - 1);
    struct array_shape shape = {.count = buckets * view->lanes,
                                .element = view->words * 8,
                                .stripe = view->lanes > 1 ? 1 : 0};
    int rc = pool_array_alloc(op, &shape, units);
    if (rc != FAR_OK)
        return rc;
    shape.element = 8;
    rc = pool_array_alloc(op, &shape, tops);
    if (rc != FAR_OK) {
        pool_array_drop(op, units, FAR_OK);
        pool_array_close(units);
    }
    return rc;
}

/* Writes the head, and lets the root lead to it. Gives all back if that failed. */
static void publish(struct op *op, struct shard_view *view)
{
    struct shard_draft *d = &view->draft;
    struct block_ref at = {.size_class = (uint8_t)size_class_for(sizeof(struct shard_draft_head))};
    enum batch_outcome of = BATCH_NOT;
    struct shard_draft_head *head = op_buffer(op, BUF_BULK, sizeof *head);
    int rc = head ? pool_alloc(op, gaddr_node(view->root), at.size_class, &at.at) : FAR_NO_MEMORY;
    if (rc == FAR_OK) {
        d->stamp = client_stamp(op->client);
        *head = (struct shard_draft_head){.stamp = d->stamp,
                                          .version = d->version,
                                          .segment = {d->array[0].ref, d->array[1].ref}};
        head->checksum = sum_of(head);
        batch_write(&op->batch, MARK_EARLY, at.at, 0, head, sizeof *head);
        batch_fence(&op->batch);
        unsigned n = cas_word(op, view, 0, pointer_make(&at, 0));
        rc = batch_flush(&op->batch);
        of = batch_outcome(&op->batch, n);
        if (of == BATCH_DONE)
            d->word = pointer_make(&at, 0);
        else if (rc == FAR_OK)
            pool_free_unpublished(op->client, at.at, at.size_class);
        else
            pool_abandon(op->client, at.size_class);
    }
    for (unsigned i = 0; i < 2 && of != BATCH_DONE; i++)
        if (of == BATCH_UNKNOWN)
            pool_array_abandon(op->client, &d->array[i]);
        else
            pool_array_drop(op, &d->array[i], FAR_OK);
}

/* One client makes a draft, and only if nobody else does: each looks once for each version. */
static void begin(struct op *op, struct shard_view *view)
{
    struct shard_draft *d = &view->draft;
    struct shard_root root;
    unsigned next = view->version + 1, wanted = pool_wanted(op->client);
    d->over = next;
    int rc = index_read_root(op, view->root, &root, sizeof root);
    if (rc != FAR_OK || root.draft != 0 || shard_resize_version(root.resize) >= next ||
        root.segment[next].units != 0)
        return;
    rc = pool_check_room(op, ROOM * bytes_of(view, next));
    if (rc == FAR_OK)
        rc = shard_alloc_segment(op, view, next, &d->array[0], &d->array[1]);
    d->version = next;
    d->pace = (double)bytes_of(view, next) * HASTE * view->active / left(view);
    if (rc == FAR_OK)
        publish(op, view);
    if (d->word == 0) {
        pool_want(op->client, wanted);
        shard_draft_forget(d);
    }
}

static bool is_clear(const struct shard_draft *d)
{
    return pool_array_is_clear(&d->array[0], d->cleared[0]) &&
           pool_array_is_clear(&d->array[1], d->cleared[1]);
}

static int clear_part(struct op *op, struct shard_view *view)
{
    struct shard_draft *d = &view->draft;
    unsigned i = pool_array_is_clear(&d->array[0], d->cleared[0]) ? 1 : 0;
    d->credit = d->credit > (double)part(view) ? d->credit - (double)part(view) : 0;
    return pool_array_clear_part(op, &d->array[i], &d->cleared[i], part(view));
}

/* All is clear. If nobody has taken the draft away by now, nobody does any more. */
static void make_ready(struct op *op, struct shard_view *view)
{
    uint64_t word = view->draft.word, ready = word | SHARD_DRAFT_READY;
    unsigned n = cas_word(op, view, word, ready);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op_swapped(op, n))
        (void)shard_draft_settle(op, view, ready); /* if this fails, others do it */
}

void shard_draft_go_on(struct op *op, struct shard_view *view, bool hurry, bool whole)
{
    struct shard_draft *d = &view->draft;
    struct shard_draft_head head;
    uint64_t now;
    if (d->due)
        begin(op, view);
    d->due = false;
    if (d->word == 0)
        return;
    bool clears = hurry || d->credit >= (double)part(view);
    int rc = read_head(op, view, d->word, &now, &head); /* is it still this session's? */
    if (rc != FAR_OK || now != d->word || head.stamp != d->stamp) {
        shard_draft_forget(d);
        return;
    }
    bool needed = view->version < d->version;
    for (; needed && clears && rc == FAR_OK && !is_clear(d); clears = whole)
        rc = clear_part(op, view);
    if (!needed || rc != FAR_OK) /* a WRITE that failed may land late */
        (void)shard_draft_settle(op, view, d->word);
    else if (is_clear(d))
        make_ready(op, view);
    if (!needed || rc != FAR_OK || is_clear(d))
        shard_draft_forget(d);
}
