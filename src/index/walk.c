#include "index/walk.h"

#include "index/flip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int index_walk_progress(struct op *op, const struct index_view *view, uint64_t done, uint64_t total)
{
    ASSERT(done <= total);
    char what[FAR_NAME_MAX + 16];
    snprintf(what, sizeof what, "walking table %s", view->table->desc.name);
    return client_progress(op->client, what, done, total);
}

int index_walk_no_memory(void)
{
    return err_fail(FAR_NO_MEMORY, "no memory for walking a table");
}

static int run(const struct index_walker *walker, const struct index_walk *like,
               struct far_table_info *info)
{
    ASSERT(walker->bytes >= sizeof(struct index_walk));
    struct index_walk *w = calloc(1, walker->bytes); /* too large for a fiber's stack */
    if (!w)
        return index_walk_no_memory();
    *w = *like;
    int rc = walker->walk(w);
    if (rc == FAR_OK && info)
        *info = w->info;
    struct fab_ep *ep = w->op->batch.ep;
    if (w->image)
        ep->ops->buf_free(ep, w->image, w->image_bytes);
    free(w->seen);
    index_findings_free(&w->findings);
    free(w);
    return rc;
}

int index_walk_check(const struct index_walker *walker, struct op *op, struct index_view *view,
                     struct index_report *report)
{
    return run(walker, &(struct index_walk){.op = op, .view = view, .report = report}, NULL);
}

int index_walk_mark(const struct index_walker *walker, struct op *op, struct index_view *view,
                    struct marker *marker)
{
    return run(walker, &(struct index_walk){.op = op, .view = view, .marker = marker}, NULL);
}

int index_walk_info(const struct index_walker *walker, struct op *op, struct index_view *view,
                    const uint64_t *tuning, struct far_table_info *info)
{
    int rc = run(walker, &(struct index_walk){.op = op, .view = view}, info);
    if (rc != FAR_OK)
        return rc;
    info->load_factor = info->slots ? (double)info->keys / (double)info->slots : 0;
    info->splits = view->grown;
    info->split_load_max = view->load_max;
    info->split_load_mean = view->grown ? view->load_sum / (double)view->grown : 0;
    info->split_ns = view->grow_ns;
    tuning_text(view->table->ops->tuning, tuning, info->tuning);
    return FAR_OK;
}

int index_walk_room(struct index_walk *w, unsigned keys, unsigned findings)
{
    free(w->seen);
    w->seen = malloc(keys * sizeof *w->seen);
    return w->seen ? index_findings_make(&w->findings, findings) : index_walk_no_memory();
}

void *index_walk_image(struct index_walk *w, size_t bytes)
{
    struct fab_ep *ep = w->op->batch.ep;
    ASSERT(!w->image);
    w->image = ep->ops->buf_alloc(ep, bytes);
    w->image_bytes = bytes;
    if (!w->image)
        (void)index_walk_no_memory();
    return w->image;
}

int index_findings_make(struct index_findings *f, unsigned room)
{
    index_findings_free(f);
    f->now = malloc((room + 1ull) * sizeof *f->now); /* the last one is never counted */
    f->before = malloc((room + 1ull) * sizeof *f->before);
    f->room = room;
    return f->now && f->before ? FAR_OK : index_walk_no_memory();
}

void index_findings_free(struct index_findings *f)
{
    free(f->now);
    free(f->before);
    *f = (struct index_findings){.now = NULL};
}

struct index_finding *index_found(struct index_findings *f, unsigned fault, unsigned place,
                                  uint64_t found)
{
    ASSERT(f->now);
    struct index_finding *one = &f->now[f->count];
    f->count += f->count < f->room;
    *one = (struct index_finding){.fault = fault, .place = place, .found = found};
    return one;
}

static bool same(const struct index_finding *a, const struct index_finding *b)
{
    return a->fault == b->fault && a->place == b->place && a->found == b->found &&
           a->right == b->right && a->first == b->first && a->first_found == b->first_found;
}

/* Drops what the look before has not found. */
static void keep_lasting(struct index_findings *f)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < f->count; i++) {
        unsigned j = 0;
        while (j < f->count_before && !same(&f->now[i], &f->before[j]))
            j++;
        if (j < f->count_before)
            f->now[kept++] = f->now[i];
    }
    f->count = kept;
}

int index_walk_prove(struct index_findings *f, int (*look)(void *arg, unsigned number), void *arg)
{
    ASSERT(f->now && f->before);
    for (unsigned i = 0; i < INDEX_WALK_LOOKS; i++) {
        f->count = 0;
        int rc = look(arg, i);
        if (rc == FAR_OK && i > 0)
            keep_lasting(f);
        if (rc != FAR_OK || f->count == 0)
            return rc;
        memcpy(f->before, f->now, f->count * sizeof *f->now);
        f->count_before = f->count;
    }
    return FAR_OK;
}

int index_walk_block(struct op *op, struct slot_format format, uint64_t slot, const void **block)
{
    ASSERT(op->batch.count == 0);
    uint32_t bytes = size_class_bytes(pointer_class(slot));
    void *image = op_buffer(op, BUF_BLOCK_IN, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, pointer_gaddr(slot), 0, image, bytes);
    int rc = batch_flush(&op->batch);
    bool whole = rc == FAR_OK && block_valid(image, bytes, slot_generation(format, slot));
    *block = whole ? image : NULL;
    return rc == FAR_BOUNDS ? FAR_OK : rc;
}

struct judged {
    uint32_t bytes;
    unsigned generation;
};

static bool is_whole(const uint64_t *words, const void *arg)
{
    const struct judged *j = arg;
    return block_valid(words, j->bytes, j->generation);
}

int index_walk_mend(struct op *op, struct slot_format format, uint64_t slot,
                    struct index_report *report, bool *mended)
{
    ASSERT(op->batch.count == 0);
    gaddr at = pointer_gaddr(slot);
    struct judged judged = {size_class_bytes(pointer_class(slot)), slot_generation(format, slot)};
    *mended = false;
    if (block_class_long(pointer_class(slot)) || !index_inside(op->pool, at, judged.bytes))
        return FAR_OK;
    uint64_t *words = op_buffer(op, BUF_BLOCK_IN, judged.bytes);
    if (!words)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, at, 0, words, judged.bytes);
    int rc = batch_flush(&op->batch);
    unsigned bit =
        rc == FAR_OK ? index_flipped(words, judged.bytes / 8, is_whole, &judged) : INDEX_NO_BIT;
    if (bit == INDEX_NO_BIT)
        return rc;
    uint64_t found = words[bit / 64];
    unsigned n = op_cas(op, MARK_PUBLISH, at, bit / 64 * 8ull, found, found ^ 1ull << bit % 64);
    rc = batch_flush(&op->batch);
    *mended = rc == FAR_OK && op_swapped(op, n);
    if (*mended)
        index_salvaged(report, 1, 0);
    return rc;
}

void index_walk_removed(struct index_report *report, const char *how)
{
    report->lost++;
    index_repaired(report, &report->violations, how);
}

static int handle(struct index_walk *w, const struct index_walk_faults *faults,
                  const struct index_finding *f)
{
    const struct index_fault *fault = &faults->fault[f->fault];
    bool unreadable = f->fault == faults->unreadable, done = false, mended = false;
    uint64_t delta;
    gaddr at = faults->word_at(w, f->place, &delta);
    int rc = FAR_OK;
    if (fault->no_slot)
        index_violation(w->report, "%s at %u:0x%llx", fault->what, gaddr_node(at),
                        (unsigned long long)(gaddr_offset(at) + delta));
    else
        index_walk_report(w->report, fault->what, at, delta, f->found);
    if (!w->report->repair)
        return FAR_OK;
    if (unreadable)
        rc = index_walk_mend(w->op, faults->format, f->found, w->report, &mended);
    if (rc == FAR_OK && !mended)
        rc = faults->repair(w, f, &done);
    if (done && unreadable)
        index_walk_removed(w->report, fault->repaired);
    else if (done)
        index_repaired(w->report, &w->report->violations, fault->repaired);
    return rc;
}

int index_walk_handle(struct index_walk *w, const struct index_walk_faults *faults)
{
    ASSERT(w->report);
    int rc = FAR_OK;
    for (unsigned i = 0; i < w->findings.count && rc == FAR_OK; i++)
        rc = handle(w, faults, &w->findings.now[i]);
    return rc;
}

int index_walk_part(struct index_walk *w, int (*look)(void *walk, unsigned number),
                    const struct index_walk_faults *faults)
{
    int rc = index_walk_prove(&w->findings, look, w);
    return rc == FAR_OK ? index_walk_handle(w, faults) : rc;
}

/* Adds pointers from *place on to what is read next, until it is full. One that leads out of the
 * pool is not read. */
static int add_blocks(const struct op *op, const struct index_walk_blocks *w, unsigned *place,
                      struct index_blocks *blocks)
{
    for (; *place < w->count; ++*place) {
        uint64_t slot = 0;
        if (!w->has(w->arg, *place, &slot))
            continue;
        uint32_t bytes = size_class_bytes(pointer_class(slot));
        if (!index_inside(op->pool, pointer_gaddr(slot), bytes)) {
            int rc = w->each(w->arg, *place, NULL);
            if (rc != FAR_OK)
                return rc;
        } else if (!index_blocks_add(blocks, slot, bytes, *place)) {
            break;
        }
    }
    return FAR_OK;
}

int index_walk_blocks(struct op *op, const struct index_walk_blocks *w)
{
    int rc = FAR_OK;
    for (unsigned place = 0; place < w->count && rc == FAR_OK;) {
        struct index_blocks blocks;
        index_blocks_start(&blocks, op, INDEX_BLOCKS_BYTES);
        rc = add_blocks(op, w, &place, &blocks);
        if (rc == FAR_OK && op->batch.count + blocks.count > 0)
            rc = index_blocks_read(op, &blocks, false);
        for (unsigned i = 0; i < blocks.count && rc == FAR_OK; i++) {
            const struct index_block *b = &blocks.block[i];
            rc = w->each(w->arg, b->place, index_block_whole(b, w->format) ? b->image : NULL);
        }
    }
    return rc;
}

struct index_walk_key index_walk_key(const struct index_view *view, const void *block,
                                     unsigned slot, unsigned order)
{
    const struct block_head *h = block;
    return (struct index_walk_key){
        .hash = hash_key(block_key(block), h->klen, view->table->desc.hash_seed),
        .slot = slot,
        .order = order};
}

static int compare(const void *a, const void *b)
{
    const struct index_walk_key *x = a, *y = b;
    if (x->hash.lo != y->hash.lo)
        return x->hash.lo < y->hash.lo ? -1 : 1;
    if (x->hash.hi != y->hash.hi)
        return x->hash.hi < y->hash.hi ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

void index_walk_match(struct index_walk_key *keys, unsigned count)
{
    qsort(keys, count, sizeof *keys, compare);
    for (unsigned i = 0; i < count; i++) {
        bool same = i > 0 && keys[i].hash.lo == keys[i - 1].hash.lo &&
                    keys[i].hash.hi == keys[i - 1].hash.hi;
        keys[i].first = same ? keys[i - 1].first : keys[i].slot;
    }
}

void index_walk_twice(struct index_walk *w, unsigned fault, const uint64_t *words)
{
    ASSERT(w->seen && w->report);
    index_walk_match(w->seen, w->seen_count);
    for (unsigned i = 0; i < w->seen_count; i++) {
        const struct index_walk_key *key = &w->seen[i];
        if (key->first == key->slot)
            continue;
        struct index_finding *f = index_found(&w->findings, fault, key->slot, words[key->slot]);
        f->first = key->first;
        f->first_found = words[key->first];
    }
}

void index_walk_report(struct index_report *report, const char *what, gaddr at, uint64_t delta,
                       uint64_t slot)
{
    gaddr block = pointer_gaddr(slot);
    index_violation(report, "%s: slot %u:0x%llx to %u:0x%llx, %u bytes", what, gaddr_node(at),
                    (unsigned long long)(gaddr_offset(at) + delta), gaddr_node(block),
                    (unsigned long long)gaddr_offset(block), size_class_bytes(pointer_class(slot)));
}

int index_walk_insert(struct op *op, struct index_view *view, struct slot_format format,
                      uint64_t slot,
                      int (*change)(struct op *op, struct index_view *view, struct slice key,
                                    struct change *change),
                      bool *there)
{
    ASSERT(op->batch.count == 0);
    const void *block = NULL;
    *there = false;
    int rc = index_walk_block(op, format, slot, &block);
    if (rc != FAR_OK || !block)
        return rc; /* damaged since it was judged: for the next walk */
    uint32_t bytes = size_class_bytes(pointer_class(slot));
    void *copy = malloc(bytes); /* what is inserted uses the buffer itself */
    if (!copy)
        return err_fail(FAR_NO_MEMORY, "no memory for a block");
    memcpy(copy, block, bytes);
    const struct block_head *h = copy;
    uint64_t epoch = op->epoch;
    struct change insert = {.absent = CHANGE_STORE, .value = index_block_value(copy)};
    rc = change(op, view, (struct slice){block_key(copy), h->klen}, &insert);
    ASSERT(op->epoch == epoch); /* it has not rested */
    free(copy);
    *there = rc == FAR_OK || rc == FAR_EXISTS;
    bool stays = rc == FAR_POOL_FULL || rc == FAR_TABLE_FULL || rc == FAR_CORRUPT;
    return *there || stays ? FAR_OK : rc;
}
