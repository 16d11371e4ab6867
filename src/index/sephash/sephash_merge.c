/*
 * Merging and splitting (SEPHASH-H2).
 *
 *   1  READ the slots, the MainSegment's pages, the root
 *   2  CAS: close the lanes that are not full
 *   3  READ the blocks of entries that agree in all bits of their tags
 *   4  WRITE new pages and CurSegments (split: anchors and a fork, too); CAS the anchor
 *   5  split: CAS the entries of the directory, or WRITE a larger one and CAS the root
 *
 * If the segment is split, and that uses the last of the entries' split bits, then all blocks are
 * read between 3 and 4.
 */
#include "index/sephash/sephash.h"

#include <stdlib.h>
#include <string.h>

#define ALLOCATED_MAX (2 * (SEPHASH_PAGES + 2) + 1)

/* Crowded segments with fewer bits of the hash than this are split while they have few keys. */
#define CROWD_DEPTH 6u

/* One of the segments that are made. */
struct made {
    uint64_t *words; /* sorted by fp */
    uint32_t start[SEPHASH_FPS + 1];
    struct sephash_head head;
    unsigned points;
    uint16_t table[SEPHASH_FPS];
    gaddr cur, anchor;
};

struct merge {
    struct op *op;
    struct sephash_view *view;
    struct sephash_state state;
    bool frees;   /* it gives blocks back, or is to let a key be deleted */
    bool crowded; /* many clients append to the segment */
    bool from_reserve;
    bool splits;
    bool doubtful;            /* a damaged entry remains, ahead of older ones (SEPHASH-H9) */
    unsigned live;            /* entries that remain */
    uint64_t *newest;         /* the slots, from the last one on; 0: does not count */
    struct sephash_root root; /* what changes of it */
    struct made *made;        /* one or two */
    struct allocated {
        gaddr at;
        unsigned size_class;
    } allocated[ALLOCATED_MAX];
    unsigned allocations;
    gaddr fork;
    struct sephash_spares spares;
};

/* ---- what remains ---------------------------------------------------------------------------- */

/* Is the word one of those that go to the half? */
static bool goes_to(const struct merge *m, uint64_t word, unsigned half)
{
    const struct sephash_segment *s = &m->state.look.segment;
    unsigned start = m->view->parts.start;
    return !m->splits || index_split_goes(sephash_dep(word), s->part.depth - start,
                                          index_split_phase(start, s->part.suffix)) == half;
}

/* Counts those of the words that go to the half, by fp, or puts them in their places if there is
 * room for them. Entries of a MainSegment come in runs of one fp. */
static void deal(const struct merge *m, unsigned half, const uint64_t *words, unsigned count,
                 uint32_t *by_fp, uint64_t *room)
{
    unsigned fp = 0;
    uint32_t next = by_fp[0];
    for (unsigned i = 0; i < count; i++) {
        uint64_t word = words[i];
        if (word == 0 || !goes_to(m, word, half))
            continue;
        if (sephash_fp(word) != fp) {
            by_fp[fp] = next;
            fp = sephash_fp(word);
            next = by_fp[fp];
        }
        if (room)
            room[next] = word;
        next++;
    }
    by_fp[fp] = next;
}

/* Sorts what remains by fp, newer entries first. */
static void sort_half(const struct merge *m, struct made *made, unsigned half)
{
    const struct sephash_look *l = &m->state.look;
    uint32_t at[SEPHASH_FPS];
    memset(made->start, 0, sizeof made->start);
    unsigned slots = m->view->shape.slots;
    deal(m, half, m->newest, slots, made->start + 1, NULL);
    deal(m, half, m->state.main, l->segment.entries, made->start + 1, NULL);
    for (unsigned fp = 0; fp < SEPHASH_FPS; fp++)
        made->start[fp + 1] += made->start[fp];
    memcpy(at, made->start, sizeof at);
    deal(m, half, m->newest, slots, at, made->words);
    deal(m, half, m->state.main, l->segment.entries, at, made->words);
}

/* The entry's block cannot be read. It may replace or delete any older entry that had its tag, and
 * has to stay ahead of it for lookups: it gets the split bits of these (SEPHASH-H9). All entries
 * had the same split bits. If there is no older one, the entry keeps them: no lookup finds it. */
static int renew_damaged(struct made *made, unsigned place)
{
    uint64_t *word = &made->words[place], older = 0;
    for (unsigned i = place + 1; i < made->start[sephash_fp(*word) + 1]; i++) {
        if (sephash_fp2(made->words[i]) != sephash_fp2(*word))
            continue;
        if (older != 0 && ((older ^ made->words[i]) & SEPHASH_TAG) != 0)
            return err_fail(FAR_CORRUPT, "a damaged entry may be of one of several keys");
        older = made->words[i];
    }
    if (older != 0)
        *word = sephash_entry(*word, older & SEPHASH_TAG);
    return FAR_OK;
}

static int renew_one(const struct merge *m, struct made *made, unsigned level,
                     const struct index_block *b)
{
    const struct block_head *h = b->image;
    struct sephash_key key;
    if (!index_block_whole(b, SEPHASH_SLOT))
        return renew_damaged(made, b->place);
    sephash_hash(m->view, (struct slice){block_key(h), h->klen}, &key);
    uint64_t bits = index_split_bits(m->view->parts.start, key.hash, level);
    made->words[b->place] =
        sephash_entry(b->slot, sephash_tag(sephash_fp(b->slot), sephash_fp2(b->slot), bits));
    return FAR_OK;
}

/* Gives entries their next split bits, which takes their blocks: from the oldest to the newest of
 * each fp. */
static int renew(struct merge *m, struct made *made, unsigned depth)
{
    for (unsigned i = made->start[SEPHASH_FPS]; i > 0;) {
        struct index_blocks blocks;
        index_blocks_start(&blocks, m->op, INDEX_BLOCKS_BYTES);
        while (i > 0) {
            uint64_t word = made->words[i - 1];
            uint32_t bytes = index_block_inside(m->op, word, index_block_key_bytes(word));
            if (!index_blocks_add(&blocks, word, bytes, i - 1))
                break;
            i--;
        }
        int rc = index_blocks_read(m->op, &blocks, false);
        for (unsigned j = 0; j < blocks.count && rc == FAR_OK; j++)
            rc = renew_one(m, made, depth - m->view->parts.start, &blocks.block[j]);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

/* Segments of one depth are split at different sizes, so that not all are split at the same time.
 * A crowded segment is split early: whatever it holds, one client appends to it in each round trip.
 * A few small segments cost little. Where there are many, each keeps as many keys as its CurSegment
 * has slots, or it would be mostly CurSegment. */
static unsigned limit_of(const struct sephash_view *view, const struct sephash_segment *s,
                         bool crowded)
{
    uint64_t mixed = (s->part.suffix + 1) * 0x9e3779b97f4a7c15ull >> 60;
    unsigned limit = view->shape.limit - (unsigned)(view->shape.limit * mixed / 128);
    unsigned early = s->part.depth < CROWD_DEPTH ? view->shape.slots / 2 : 2 * view->shape.slots;
    return crowded && early < limit ? early : limit;
}

static int fits(const struct merge *m, unsigned entries)
{
    return entries <= sephash_room(&m->view->shape)
               ? FAR_OK
               : err_fail(FAR_TABLE_FULL, "a segment of table '%s' is full",
                          m->view->base.table->desc.name);
}

/* Decides whether the segment is split, and sorts what remains. */
static int arrange(struct merge *m)
{
    struct sephash_view *view = m->view;
    const struct sephash_segment *s = &m->state.look.segment;
    unsigned start = view->parts.start;
    m->live = 0;
    for (unsigned i = 0, slots = view->shape.slots; i < slots; i++) {
        m->newest[i] = m->state.look.slots[slots - 1 - i];
        m->live += m->newest[i] != 0;
    }
    for (unsigned i = 0; i < s->entries; i++)
        m->live += m->state.main[i] != 0;
    m->splits = !m->from_reserve && m->live > limit_of(view, s, m->crowded) &&
                s->part.depth < view->parts.depth_max;
    int rc = m->splits ? FAR_OK : fits(m, m->live);
    if (rc != FAR_OK)
        return rc;
    m->made[0].words = m->state.main + s->entries;
    sort_half(m, &m->made[0], 0);
    m->made[1].words = m->made[0].words + m->made[0].start[SEPHASH_FPS];
    if (!m->splits)
        return FAR_OK;
    sort_half(m, &m->made[1], 1);
    for (unsigned i = 0; i < 2 && rc == FAR_OK; i++) /* a split may be very uneven */
        rc = fits(m, m->made[i].start[SEPHASH_FPS]);
    if (rc != FAR_OK ||
        !index_split_renews(s->part.depth - start, index_split_phase(start, s->part.suffix)))
        return rc;
    rc = renew(m, &m->made[0], s->part.depth + 1u);
    return rc == FAR_OK ? renew(m, &m->made[1], s->part.depth + 1u) : rc;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What comes from the reserve may be of the same size as values, and then counts as the session's
 * spare: the merge may take that, too (SEPHASH-H8, ALLOC-A7). */
static int allocate(struct merge *m, unsigned size_class, gaddr *at)
{
    unsigned node = gaddr_node(m->state.look.segment.part.anchor);
    int rc = m->from_reserve ? pool_alloc_block(m->op, node, size_class, at)
                             : pool_alloc(m->op, node, size_class, at);
    if (rc == FAR_OK)
        m->allocated[m->allocations++] = (struct allocated){*at, size_class};
    return rc;
}

/* A segment gets as many pages as its next merge needs. So if the pool is full by then, that one
 * takes no more from the reserve than it gives back (SEPHASH-H8). */
static unsigned pages_for(const struct merge *m, unsigned entries)
{
    unsigned pages = sephash_pages(&m->view->shape, entries + m->view->shape.slots);
    return m->from_reserve || pages > SEPHASH_PAGES ? sephash_pages(&m->view->shape, entries)
                                                    : pages;
}

/* A page. If pages are smaller than CurSegments, there may be memory that is cut for these. */
static int allocate_page(struct merge *m, uint64_t *page)
{
    unsigned size_class = sephash_page_class(&m->view->shape);
    gaddr at = 0;
    int rc = allocate(m, size_class, &at);
    if (rc == FAR_POOL_FULL && size_class < sephash_cur_class(&m->view->shape)) {
        size_class = sephash_cur_class(&m->view->shape);
        rc = allocate(m, size_class, &at);
    }
    *page = at | (uint64_t)size_class << POINTER_CLASS_AT;
    return rc;
}

static int allocate_made(struct merge *m, struct made *made)
{
    const struct sephash_shape *shape = &m->view->shape;
    unsigned entries = made->start[SEPHASH_FPS], err = 0;
    int rc = FAR_OK;
    memset(&made->head, 0, sizeof made->head);
    made->points = sephash_table_make(shape->plain, made->start, made->table, &err);
    made->head.entries = (uint16_t)entries;
    made->head.doubtful = m->doubtful;
    made->head.err = (uint16_t)err;
    made->head.points = (uint16_t)made->points;
    for (unsigned i = 0; i < pages_for(m, entries) && rc == FAR_OK; i++)
        rc = allocate_page(m, &made->head.page[i]);
    if (rc == FAR_OK)
        rc = allocate(m, sephash_cur_class(shape), &made->cur);
    if (rc == FAR_OK && m->splits)
        rc = allocate(m, SEPHASH_SMALL_CLASS, &made->anchor);
    return rc;
}

/* Gives back what was allocated. `rc`: how the work ended. */
static void give_back(struct merge *m, int rc)
{
    for (unsigned i = 0; i < m->allocations; i++) {
        const struct allocated *a = &m->allocated[i];
        if (op_all_known(rc))
            pool_free_unpublished(m->op->client, a->at, a->size_class);
        else
            pool_abandon(m->op->client, a->size_class);
    }
    m->allocations = 0;
    sephash_reserve_end(m->op, m->view, &m->spares, false, rc);
}

static int allocate_all(struct merge *m)
{
    int rc = allocate_made(m, &m->made[0]);
    if (rc == FAR_OK && m->splits)
        rc = allocate_made(m, &m->made[1]);
    if (rc == FAR_OK && m->splits)
        rc = allocate(m, SEPHASH_SMALL_CLASS, &m->fork);
    if (rc != FAR_OK)
        give_back(m, rc);
    return rc;
}

/* The most pages that a segment has which is made. */
static unsigned pages_most(const struct merge *m)
{
    unsigned first = m->made[0].start[SEPHASH_FPS], second = m->made[1].start[SEPHASH_FPS];
    return pages_for(m, m->splits && second > first ? second : first);
}

/* Memory for all that is made, and for what the reserve lacks. */
static int take_memory(struct merge *m)
{
    int rc = allocate_all(m);
    if (rc == FAR_POOL_FULL && m->frees) {
        rc = sephash_reserve_take(m->op, m->view, &m->root);
        m->from_reserve = true;
        if (rc == FAR_OK)
            rc = arrange(m);
        if (rc == FAR_OK)
            rc = allocate_all(m);
    }
    if (rc != FAR_OK)
        return rc;
    rc = sephash_reserve_fill(m->op, m->view, &m->root, pages_most(m), &m->spares);
    if (rc == FAR_OK || (rc == FAR_POOL_FULL && m->frees))
        return FAR_OK;
    give_back(m, rc);
    return rc;
}

/* ---- publishing ------------------------------------------------------------------------------ */

uint32_t sephash_cur_image(const struct sephash_shape *shape, struct sephash_head *head,
                           const uint16_t *table, void *image)
{
    ASSERT(head->points <= sephash_points_max(shape));
    uint32_t bytes = (uint32_t)sephash_table_at(shape);
    head->checksum = sephash_head_sum(head, table);
    memset(image, 0, bytes);
    memcpy(image, head, sizeof *head);
    uint32_t points = (2u * head->points + 7) & ~7u;
    memset((char *)image + bytes, 0, points);
    memcpy((char *)image + bytes, table, 2ull * head->points);
    return bytes + points;
}

/* BUF_INDEX, from here on. */
struct images {
    struct sephash_anchor anchor[2];
    struct sephash_fork fork;
    uint64_t cur[2]
                [(sizeof(struct sephash_head) + 2 * 8 * SEPHASH_SLOTS_MAX + 2 * SEPHASH_FPS) / 8];
};

static void write_made(struct merge *m, struct images *images, unsigned half)
{
    const struct sephash_view *view = m->view;
    const struct sephash_segment *s = &m->state.look.segment;
    struct made *made = &m->made[half];
    struct op *op = m->op;
    unsigned entries = made->start[SEPHASH_FPS], depth = s->part.depth + (m->splits ? 1u : 0u);
    uint64_t suffix = s->part.suffix | (uint64_t)half << s->part.depth;
    made->head.id = index_anchor_id(view->base.table->desc.hash_seed, depth, suffix);
    for (unsigned i = 0; i < sephash_pages(&view->shape, entries); i++)
        batch_write(&op->batch, MARK_EARLY, pointer_gaddr(made->head.page[i]), 0,
                    made->words + i * view->shape.page,
                    8 * sephash_page_entries(&view->shape, entries, i));
    uint32_t bytes = sephash_cur_image(&view->shape, &made->head, made->table, images->cur[half]);
    batch_write(&op->batch, MARK_EARLY, made->cur, 0, images->cur[half], bytes);
    if (!m->splits)
        return;
    images->anchor[half] =
        (struct sephash_anchor){.state = sephash_live(made->cur, 0), .id = made->head.id};
    batch_write(&op->batch, MARK_EARLY, made->anchor, 0, &images->anchor[half],
                sizeof images->anchor[half]);
}

/* What the anchor's word becomes. */
static uint64_t new_state(const struct merge *m)
{
    uint64_t state = m->state.look.segment.state;
    return m->splits ? sephash_split_to(m->fork)
                     : sephash_live(m->made[0].cur, sephash_generation(state) + 1);
}

/* Does the directory have to be doubled for the children? */
static bool doubles(const struct merge *m)
{
    return m->splits &&
           index_parts_doubles(&m->view->parts, m->root.directory, &m->state.look.segment.part);
}

/* Writes all, and changes the anchor. *swapped: the new segments are the table's. *directory: its
 * entries, if it has to be doubled. */
static int publish(struct merge *m, bool *swapped, uint64_t **directory)
{
    struct op *op = m->op;
    const struct sephash_segment *s = &m->state.look.segment;
    unsigned depth = index_deep_depth(m->root.directory);
    struct images *images = op_buffer(op, BUF_INDEX, sizeof *images);
    *directory = doubles(m) ? op_buffer(op, BUF_BLOCK_IN, 8ull << depth) : NULL;
    if (!images)
        return FAR_NO_MEMORY;
    write_made(m, images, 0);
    if (m->splits) {
        write_made(m, images, 1);
        images->fork.child[0] = m->made[0].anchor;
        images->fork.child[1] = m->made[1].anchor;
        images->fork.checksum = sephash_fork_sum(&images->fork);
        batch_write(&op->batch, MARK_EARLY, m->fork, 0, &images->fork, sizeof images->fork);
    }
    batch_fence(&op->batch);
    unsigned n = op_cas(op, MARK_PUBLISH, s->part.anchor, 0, s->state, new_state(m));
    sephash_reserve_add(op, m->view, &m->spares);
    if (*directory)
        batch_read(&op->batch, index_deep_at(m->root.directory), 0, *directory, 8u << depth);
    int rc = batch_flush(&op->batch);
    *swapped = op_swapped(op, n);
    sephash_reserve_end(op, m->view, &m->spares, true, rc);
    return rc;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

/* The anchor was changed, or it is not known whether it was: then what would be retired may be
 * lost. */
static void give_up(struct merge *m, bool changed, uint64_t pointer)
{
    if (changed)
        pool_retire(m->op->client, pointer_gaddr(pointer), pointer_class(pointer));
    else
        pool_abandon(m->op->client, pointer_class(pointer));
}

/* The old segments and the blocks that are not needed any more go back (SEPHASH-H6). */
static void retire(struct merge *m, bool changed)
{
    const struct sephash_segment *s = &m->state.look.segment;
    for (unsigned i = 0; i < m->state.count; i++)
        if (m->state.items[i].fate == SEPHASH_COVERED)
            give_up(m, changed && m->state.items[i].fits, m->state.items[i].word);
    for (unsigned i = 0; i < sephash_pages_held(s->page); i++)
        give_up(m, changed, s->page[i]);
    give_up(m, changed,
            pointer_with_class(sephash_target(s->state), sephash_cur_class(&m->view->shape)));
}

/* Notes what was made: in the session's directory, and for the simulator. */
static void note(struct merge *m)
{
    struct sephash_view *view = m->view;
    const struct sephash_segment *s = &m->state.look.segment;
    uint64_t child[2] = {m->made[0].anchor, m->made[1].anchor};
    view->merges += !m->splits;
    index_grew(&view->base, s->part.anchor, m->splits ? child : &s->part.anchor, m->splits ? 2 : 1,
               (double)m->live / (view->shape.limit + view->shape.slots));
    if (m->splits && index_parts_know_split(&view->parts, &s->part, child) != FAR_OK)
        return;
    for (unsigned i = 0; i < (m->splits ? 2u : 1u); i++) {
        const struct made *made = &m->made[i];
        struct sephash_segment next = {
            .part = {.anchor = m->splits ? child[i] : s->part.anchor,
                     .suffix = s->part.suffix | (uint64_t)i << s->part.depth,
                     .depth = (uint8_t)(s->part.depth + (m->splits ? 1u : 0u))},
            .state = m->splits ? sephash_live(made->cur, 0) : new_state(m),
            .seen = m->op->epoch,
            .err = made->head.err,
            .points = made->head.points,
            .entries = made->head.entries,
            .doubtful = made->head.doubtful,
        };
        memcpy(next.page, made->head.page, sizeof next.page);
        (void)sephash_know(view, &next, made->table); /* otherwise it is read when it is needed */
    }
}

/* The first empty slot of a lane, or of the spill behind the lanes. False: there is none. */
static bool first_empty(const struct sephash_shape *shape, const struct sephash_look *l,
                        unsigned lane, unsigned *slot)
{
    bool spill = lane == shape->lanes;
    unsigned filled = spill ? l->in_spill : l->in_lane[lane];
    *slot = lane * shape->lane + filled;
    return filled < (spill ? shape->spill : shape->lane) && l->slots[*slot] != SEPHASH_CLOSED;
}

/* Closes the lanes that are not full, and the spill: puts a word into the first empty slot of each.
 * If another client has filled it meanwhile, the next one is tried. After that all slots are
 * constant (SEPHASH-H2). */
static int close_lanes(struct op *op, const struct sephash_view *view, struct sephash_look *l)
{
    const struct sephash_shape *shape = &view->shape;
    for (unsigned round = 0; !l->full && round <= sephash_reach(shape); round++) {
        unsigned n[SEPHASH_LANES_MAX + 1], slot = 0;
        for (unsigned i = 0; i <= shape->lanes; i++)
            n[i] = first_empty(shape, l, i, &slot)
                       ? op_cas(op, MARK_PUBLISH, sephash_target(l->segment.state),
                                sephash_slot_at(shape, slot), 0, SEPHASH_CLOSED)
                       : 0;
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        for (unsigned i = 0; i <= shape->lanes; i++)
            if (first_empty(shape, l, i, &slot))
                l->slots[slot] = op_swapped(op, n[i]) ? SEPHASH_CLOSED : op_result(op, n[i]);
        sephash_count_slots(view, l);
    }
    return l->full ? FAR_OK : FAR_CONTENTION;
}

static int read_all(struct merge *m)
{
    batch_read(&m->op->batch, m->view->root, 0, m->op->word, SEPHASH_ROOT_CHANGES);
    int rc = sephash_read_words(m->op, m->view, &m->state);
    memcpy(&m->root, m->op->word, SEPHASH_ROOT_CHANGES);
    if (rc == FAR_OK)
        rc = close_lanes(m->op, m->view, &m->state.look);
    return rc == FAR_OK ? sephash_judge_words(m->op, m->view, &m->state) : rc;
}

static int merge(struct merge *m)
{
    uint64_t *directory = NULL;
    bool swapped = false;
    int rc = read_all(m);
    if (rc != FAR_OK)
        return rc;
    m->doubtful = m->state.look.segment.doubtful != 0;
    for (unsigned i = 0; i < m->state.count; i++) {
        const struct sephash_item *item = &m->state.items[i];
        m->frees |= item->fate == SEPHASH_COVERED;
        m->doubtful |= item->fate == SEPHASH_LIVE && item->unreadable;
    }
    sephash_clear_dead(m->view, &m->state);
    rc = arrange(m);
    if (rc == FAR_OK)
        rc = take_memory(m);
    if (rc != FAR_OK)
        return rc;
    rc = publish(m, &swapped, &directory);
    if (!op_all_known(rc))
        retire(m, false);
    if (!swapped || rc != FAR_OK) {
        give_back(m, rc);
        return rc;
    }
    retire(m, true);
    note(m);
    if (m->splits) {
        uint64_t child[2] = {m->made[0].anchor, m->made[1].anchor};
        index_parts_advise(m->op, &m->view->parts, &m->state.look.segment.part, child,
                           m->root.directory, directory);
    }
    return FAR_OK;
}

/* ---- a pool that is full --------------------------------------------------------------------- */

/* Bytes that are given back if there are as many: with less, the next change would find the pool
 * full again. */
#define GIVEN_BYTES 65536u

/* Once a session has looked at all segments in vain, and has made nothing that could be given back
 * since, it looks at this many each time: others may have. */
#define LOOKS 64u

/* Adds up the blocks that are not needed any more. */
static uint64_t covered_bytes(const struct sephash_state *state)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < state->count; i++)
        if (state->items[i].fate == SEPHASH_COVERED)
            bytes += size_class_bytes(pointer_class(state->items[i].word));
    return bytes;
}

/* Merges a segment before its time if it has blocks that are not needed any more, and adds their
 * bytes to *given. */
static int compact(struct op *op, struct sephash_view *view, uint64_t hash, uint64_t *given)
{
    struct sephash_key key = {.hash = hash};
    struct sephash_state state = {.count = 0};
    int rc = sephash_look(op, view, &key, SEPHASH_SLOTS, NULL, &state.look);
    if (rc != FAR_OK || state.look.filled == state.look.segment.barren)
        return rc;
    rc = sephash_read_state(op, view, &state);
    uint64_t bytes = rc == FAR_OK ? covered_bytes(&state) : 0;
    free(state.items);
    if (rc == FAR_OK && bytes == 0)
        sephash_know_barren(view, &state.look.segment, state.look.filled);
    if (rc == FAR_OK && bytes > 0)
        rc = sephash_merge(op, view, &state.look.segment, true, false);
    *given += rc == FAR_OK ? bytes : 0;
    return rc;
}

void sephash_make_room(struct op *op, struct sephash_view *view, uint64_t hash)
{
    ASSERT(op->batch.count == 0);
    unsigned wanted = pool_wanted(op->client);
    uint64_t given = 0, enough = size_class_bytes(wanted), all = 1ull << view->parts.depth;
    if (enough < GIVEN_BYTES)
        enough = GIVEN_BYTES;
    uint64_t most = view->fruitless < all ? all : LOOKS, i = 0;
    int rc = compact(op, view, hash, &given);
    for (; i < most && rc == FAR_OK && given < enough; i++) {
        uint64_t suffix = index_suffix(view->compacted++, view->parts.depth);
        if (sephash_known_of(view, suffix)->segment.part.suffix == suffix)
            rc = compact(op, view, suffix, &given);
    }
    view->fruitless = rc == FAR_OK && given == 0 ? view->fruitless + i : 0;
    pool_want(op->client, wanted); /* not what a merge wanted */
}

int sephash_merge(struct op *op, struct sephash_view *view, const struct sephash_segment *segment,
                  bool removes, bool crowded)
{
    ASSERT(op->batch.count == 0);
    struct room {
        struct made made[2];
        uint64_t newest[SEPHASH_SLOTS_MAX];
    } *room = calloc(1, sizeof *room); /* too large for a fiber's stack */
    struct merge m = {.op = op, .view = view, .frees = removes, .crowded = crowded};
    if (!room)
        return err_fail(FAR_NO_MEMORY, "no memory for merging a segment");
    m.made = room->made;
    m.newest = room->newest;
    m.state.look.segment = *segment;
    m.state.look.current = true;
    uint64_t began = batch_now(&op->batch);
    int rc = merge(&m);
    index_grew_since(op, &view->base, began);
    free(m.state.items);
    free(room);
    return rc;
}
