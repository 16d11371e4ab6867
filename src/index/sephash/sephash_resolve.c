/*
 * Which entries of a segment count. The entries of a key agree in their tags, but entries that
 * agree may be of different keys: then their blocks are read, and their keys are compared.
 */
#include "index/sephash/sephash.h"

#include <stdlib.h>
#include <string.h>

static bool before(const struct sephash_item *a, const struct sephash_item *b)
{
    return a->group != b->group ? a->group < b->group : a->rank < b->rank;
}

/* Shell's sort: without memory of its own. */
static void sort(struct sephash_item *items, unsigned count)
{
    unsigned gap = 1;
    while (gap < count / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3) {
        for (unsigned i = gap; i < count; i++) {
            struct sephash_item item = items[i];
            unsigned j = i;
            for (; j >= gap && before(&item, &items[j - gap]); j -= gap)
                items[j] = items[j - gap];
            items[j] = item;
        }
    }
}

static unsigned group_end(const struct sephash_item *items, unsigned count, unsigned i)
{
    unsigned end = i + 1;
    while (end < count && items[end].group == items[i].group)
        end++;
    return end;
}

/* Must the keys of a group be compared? Not if all words are the same. */
static bool ambiguous(const struct sephash_item *items, unsigned i, unsigned end)
{
    for (unsigned j = i + 1; j < end; j++)
        if (items[j].word != items[i].word)
            return true;
    return false;
}

/* Says how much is read of each block, and returns the sum. */
static size_t plan_reads(const struct op *op, struct sephash_item *items, unsigned count)
{
    size_t sum = 0;
    for (unsigned i = 0, end; i < count; i = end) {
        end = group_end(items, count, i);
        bool reads = ambiguous(items, i, end);
        for (unsigned j = i; j < end; j++) {
            items[j].fate = SEPHASH_LIVE;
            items[j].image = NULL;
            uint32_t bytes = index_block_key_bytes(items[j].word);
            items[j].bytes =
                reads && index_inside(op->pool, pointer_gaddr(items[j].word), bytes) ? bytes : 0;
            items[j].unreadable = reads && items[j].bytes == 0;
            sum += items[j].bytes;
        }
    }
    return sum;
}

static int flush(struct op *op)
{
    int rc = batch_flush(&op->batch);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a segment leads outside the pool") : rc;
}

static void judge_block(struct sephash_item *item)
{
    struct index_block block = {.slot = item->word, .bytes = item->bytes, .image = item->image};
    const struct block_head *h = item->image;
    item->fits = true;
    if (h && !index_block_whole(&block, SEPHASH_SLOT)) {
        item->image = h = NULL;
        item->unreadable = true;
    }
    /* A damaged class must not make the neighbours of a block part of what is reused. */
    if (h)
        item->fits = size_class_for(block_bytes(h->klen, h->vlen)) == pointer_class(item->word);
}

/* Reads the blocks. All images stay, because keys are compared across batches. */
static int read_blocks(struct op *op, struct sephash_item *items, unsigned count)
{
    size_t sum = plan_reads(op, items, count), posted = 0;
    char *image = sum > 0 ? op_buffer(op, BUF_BLOCK_IN, sum) : NULL;
    if (sum > 0 && !image)
        return FAR_NO_MEMORY;
    for (unsigned i = 0; i < count; i++) {
        struct sephash_item *item = &items[i];
        if (item->bytes == 0)
            continue;
        if (batch_room(&op->batch) == 0 ||
            (posted > 0 && posted + item->bytes > INDEX_BLOCKS_BYTES)) {
            int rc = flush(op);
            if (rc != FAR_OK)
                return rc;
            posted = 0;
        }
        batch_read(&op->batch, pointer_gaddr(item->word), 0, image, item->bytes);
        item->image = image;
        image += item->bytes;
        posted += item->bytes;
    }
    int rc = flush(op);
    for (unsigned i = 0; i < count && rc == FAR_OK; i++)
        judge_block(&items[i]);
    return rc;
}

static bool same_key(const struct sephash_item *a, const struct sephash_item *b)
{
    if (a->word == b->word)
        return pointer_gaddr(a->word) != 0;
    if (!a->image || !b->image) /* one cannot be read: it may be another key, so both are kept */
        return false;
    const struct block_head *x = a->image, *y = b->image;
    return x->klen == y->klen && memcmp(block_key(x), block_key(y), x->klen) == 0;
}

/* The item is the newest of its key. Those below it in the group that have its key are covered. If
 * one of them has the same word, then the item is a delete. */
static void cover_older(struct sephash_item *items, unsigned i, unsigned end)
{
    for (unsigned j = i + 1; j < end; j++) {
        if (items[j].fate != SEPHASH_LIVE || !same_key(&items[i], &items[j]))
            continue;
        items[j].fate = SEPHASH_COVERED;
        if (items[j].word == items[i].word)
            items[i].fate = SEPHASH_GONE;
    }
}

/* A covered word that is there twice was deleted, too: its block is retired once. */
static void retire_once(struct sephash_item *items, unsigned i, unsigned end)
{
    for (unsigned j = i + 1; j < end; j++)
        for (unsigned k = i; k < j && items[j].fate == SEPHASH_COVERED; k++)
            if (items[k].fate == SEPHASH_COVERED && items[k].word == items[j].word)
                items[j].fate = SEPHASH_GONE;
}

/* Does an entry count that is older than the item? */
static bool has_older(const struct sephash_item *items, unsigned i, unsigned end)
{
    for (unsigned j = i + 1; j < end; j++)
        if (items[j].fate == SEPHASH_LIVE && items[j].word != SEPHASH_VOID)
            return true;
    return false;
}

/* Does a damaged entry count that is older than the item? */
static bool has_older_damage(const struct sephash_item *items, unsigned i, unsigned end)
{
    for (unsigned j = i + 1; j < end; j++)
        if (items[j].fate == SEPHASH_LIVE && items[j].unreadable && !sephash_untold(items[j].word))
            return true;
    return false;
}

/* A damaged entry may be of the key that was deleted, and be whole again after a repair. So a
 * delete above one stays, without the block, in the place of what it has deleted (SEPHASH-H9). */
static void keep_delete_above_damage(struct sephash_item *items, unsigned i, unsigned end)
{
    unsigned put = i;
    for (unsigned j = i + 1; j < end; j++)
        if (items[j].fate == SEPHASH_COVERED && items[j].word == items[i].word)
            put = j;
    if (put == i || !has_older_damage(items, put, end))
        return;
    items[i].fate = SEPHASH_COVERED;
    items[put].fate = SEPHASH_LIVE;
    items[put].word = (items[put].word & SEPHASH_TAG) | SEPHASH_UNTOLD;
}

/* A delete whose block is damaged may be of the key of any older entry. It stays as long as there
 * is one, without the block (SEPHASH-H9). */
static void keep_deletes(struct sephash_item *items, unsigned i, unsigned end)
{
    for (unsigned j = end; j-- > i;) {
        struct sephash_item *item = &items[j];
        bool deletes = item->fate == SEPHASH_GONE && item->unreadable;
        if (item->fate == SEPHASH_GONE && !deletes)
            keep_delete_above_damage(items, j, end);
        if (!deletes && !sephash_untold(item->word))
            continue;
        item->fate = has_older(items, j, end) ? SEPHASH_LIVE : SEPHASH_GONE;
        item->word = (item->word & SEPHASH_TAG) | SEPHASH_UNTOLD;
    }
}

int sephash_resolve(struct op *op, struct sephash_item *items, unsigned count)
{
    sort(items, count);
    int rc = read_blocks(op, items, count);
    for (unsigned i = 0, end; i < count && rc == FAR_OK; i = end) {
        end = group_end(items, count, i);
        for (unsigned j = i; j < end; j++)
            if (items[j].fate == SEPHASH_LIVE)
                cover_older(items, j, end);
        keep_deletes(items, i, end);
        retire_once(items, i, end);
    }
    return rc;
}

/* ---- a whole segment ------------------------------------------------------------------------- */

#define NONE UINT16_MAX

/* Slots in lists, by fp: entries of the MainSegment are compared with those of their own fp. Most
 * need no comparison, because none of the slots has their fp and the lowest bits of their fp2. */
#define SHORT_BITS 12u
struct by_fp {
    uint16_t head[SEPHASH_FPS], next[SEPHASH_SLOTS_MAX];
    bool there[1u << SHORT_BITS];
};

static unsigned short_tag(uint64_t word)
{
    return word >> POINTER_OWN_AT(0) & ((1u << SHORT_BITS) - 1);
}

static void list_slots(const struct sephash_shape *shape, const struct sephash_state *state,
                       struct by_fp *lists)
{
    memset(lists->head, 0xff, sizeof lists->head);
    memset(lists->there, 0, sizeof lists->there);
    for (unsigned i = 0; i < shape->slots; i++) {
        uint64_t word = state->look.slots[i];
        if (!sephash_slot_counts(shape, &state->look, i))
            continue;
        lists->next[i] = lists->head[sephash_fp(word)];
        lists->head[sephash_fp(word)] = (uint16_t)i;
        lists->there[short_tag(word)] = true;
    }
}

static bool agrees(const struct sephash_state *state, const struct by_fp *lists, uint64_t word)
{
    if (!lists->there[short_tag(word)])
        return false;
    for (unsigned i = lists->head[sephash_fp(word)]; i != NONE; i = lists->next[i])
        if (((state->look.slots[i] ^ word) & SEPHASH_TAG) == 0)
            return true;
    return false;
}

static void add_item(struct sephash_state *state, uint64_t word, uint32_t rank)
{
    state->items[state->count++] =
        (struct sephash_item){.word = word, .group = sephash_tag_of(word), .rank = rank};
}

/* Makes items of all slots, and of the entries that agree with one. Below M there is nothing, and
 * no key is there twice: other entries need no look. Of
 * the slots of a key, later ones are newer. */
static int make_items(const struct sephash_shape *shape, struct sephash_state *state)
{
    unsigned slots = shape->slots, entries = state->look.segment.entries, matches = 0;
    struct by_fp lists;
    list_slots(shape, state, &lists);
    for (unsigned i = 0; i < entries; i++)
        matches += agrees(state, &lists, state->main[i]);
    state->items = calloc(slots + matches + 1, sizeof *state->items);
    if (!state->items)
        return err_fail(FAR_NO_MEMORY, "no memory for merging a segment");
    state->count = 0;
    for (unsigned i = 0; i < slots; i++)
        if (sephash_slot_counts(shape, &state->look, i))
            add_item(state, state->look.slots[i], slots - 1 - i);
    for (unsigned i = 0; i < entries; i++)
        if (agrees(state, &lists, state->main[i]))
            add_item(state, state->main[i], slots + i);
    return FAR_OK;
}

void sephash_clear_dead(const struct sephash_view *view, struct sephash_state *state)
{
    unsigned slots = view->shape.slots;
    for (unsigned i = 0; i < slots; i++)
        if (!sephash_slot_counts(&view->shape, &state->look, i))
            state->look.slots[i] = 0;
    for (unsigned i = 0; i < state->look.segment.entries; i++)
        if (state->main[i] == SEPHASH_VOID)
            state->main[i] = 0;
    for (unsigned i = 0; i < state->count; i++) {
        const struct sephash_item *item = &state->items[i];
        bool counts = item->fate == SEPHASH_LIVE && item->word != SEPHASH_VOID;
        uint64_t *word = item->rank < slots ? &state->look.slots[slots - 1 - item->rank]
                                            : &state->main[item->rank - slots];
        *word = counts ? item->word : 0;
    }
}

int sephash_read_words(struct op *op, struct sephash_view *view, struct sephash_state *state)
{
    struct sephash_look *l = &state->look;
    unsigned entries = l->segment.entries;
    ASSERT(l->current);
    state->items = NULL;
    state->main = op_buffer(op, BUF_BULK, 8ull * (2 * entries + view->shape.slots + 1));
    if (!state->main) {
        (void)batch_flush(&op->batch); /* what the caller put there leads nowhere now */
        return FAR_NO_MEMORY;
    }
    sephash_read_slots(op, view, l);
    sephash_read_main(op, view, &l->segment, 0, entries, state->main);
    int rc = flush(op);
    if (rc == FAR_OK)
        sephash_count_slots(view, l);
    return rc;
}

int sephash_judge_words(struct op *op, struct sephash_view *view, struct sephash_state *state)
{
    int rc = make_items(&view->shape, state);
    return rc == FAR_OK ? sephash_resolve(op, state->items, state->count) : rc;
}

int sephash_read_state(struct op *op, struct sephash_view *view, struct sephash_state *state)
{
    int rc = sephash_read_words(op, view, state);
    return rc == FAR_OK ? sephash_judge_words(op, view, state) : rc;
}
