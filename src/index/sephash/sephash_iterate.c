/*
 * Iterating: the segments in an order that growth does not disturb, and within a segment by
 * fingerprints.
 *
 * Take the lowest 26 bits of a key's hash, reversed, as its position. A segment holds the keys of
 * one interval of positions, and a split cuts it in two. Within a segment keys are ordered by fp,
 * fp2, and 23 more bits of the hash. None of this changes when a key is updated, or its segment
 * merged. So a cursor is the position where a segment's interval begins, and such a place: all keys
 * before it have been returned. The 23 bits take the key itself. They are known only if its block
 * was read because its group (fp and fp2) has other entries, and count as 0 otherwise.
 *
 *   SEPHASH-I1  What is returned of a key was true at one instant: a call takes its entries from
 *       one state (SEPHASH-H3). Keys of different lanes may have different instants.
 *   SEPHASH-I2  A call goes on to the end of what it has read, or to the first entry that does not
 *       fit. If a split has moved the rest of a segment to its second half, whose interval begins
 *       later, then what was returned of that half is returned again: keys may come twice, but none
 *       is left out. So does a key that is alone in its group by now, if the cursor is in the
 *       middle of that group.
 *   SEPHASH-I3  An entry whose block is damaged may be of the key of any older entry of its group,
 *       and may replace or delete it. So these count as damaged, too: no value is returned that was
 *       overwritten.
 */
#include "index/iterate.h"
#include "index/sephash/sephash.h"

#include <stdlib.h>

/* One call reads at most ITERATE_PARTS parts of segments. A part has PART_ENTRIES entries of the
 * MainSegment, or more if they all have one fp. */
#define ITERATE_PARTS 8u
#define PART_ENTRIES  1024u

#define POSITION_BITS 26
#define MORE_BITS     23
#define GROUP_BITS    (SEPHASH_FP_BITS + SEPHASH_FP2_BITS)
#define PLACE_BITS    (GROUP_BITS + MORE_BITS)
_Static_assert(POSITION_BITS + PLACE_BITS == 63, "a cursor is such a number, plus one");
_Static_assert(SEPHASH_DEPTH_MAX <= POSITION_BITS, "every segment has an interval");

struct iteration {
    uint64_t position;
    uint64_t place; /* within the segment: group and more bits */
    struct sephash_key key;
    struct sephash_look look;
    uint64_t *main; /* the entries of this part */
    unsigned from, to;
    unsigned end_fp; /* all entries of the fps below it have been read */
    struct sephash_item *items;
    unsigned count;
    struct listed {
        uint64_t place, word;
        bool alone;  /* in its group: only that is known of its place */
        bool hidden; /* a newer entry of its group cannot be read */
    } * list;        /* those that count */
    unsigned listed;
};

/* ---- reading a part of a segment ------------------------------------------------------------- */

static unsigned first_fp(const struct iteration *it)
{
    return (unsigned)(it->place >> (PLACE_BITS - SEPHASH_FP_BITS));
}

/* Reads the slots, and `count` entries from the cursor's fp on. */
static int read_part(struct op *op, struct sephash_view *view, struct iteration *it, unsigned count)
{
    it->key = (struct sephash_key){.hash = index_reverse_bits(it->position, POSITION_BITS),
                                   .fp = first_fp(it)};
    int rc = sephash_look(op, view, &it->key, SEPHASH_SLOTS | SEPHASH_RANGE, NULL, &it->look);
    if (rc != FAR_OK)
        return rc;
    unsigned entries = it->look.segment.entries;
    it->from = it->look.from;
    it->to = entries - it->from < count ? entries : it->from + count;
    it->main = op_buffer(op, BUF_BULK, 8ull * (it->to - it->from) + 8);
    if (!it->main)
        return FAR_NO_MEMORY;
    sephash_read_main(op, view, &it->look.segment, it->from, it->to, it->main);
    rc = batch_flush(&op->batch);
    it->end_fp = it->to == entries ? SEPHASH_FPS : sephash_fp(it->main[it->to - it->from - 1]);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a segment leads outside the pool") : rc;
}

static void add_item(struct iteration *it, uint64_t word, uint32_t rank)
{
    unsigned fp = sephash_fp(word);
    if (word == SEPHASH_VOID || fp < first_fp(it) || fp >= it->end_fp)
        return;
    it->items[it->count++] = (struct sephash_item){
        .word = word, .group = fp << SEPHASH_FP2_BITS | sephash_fp2(word), .rank = rank};
}

static uint64_t place_of(const struct sephash_view *view, const struct sephash_item *item)
{
    uint64_t more = 0;
    if (item->image) { /* it shares its group with others */
        const struct block_head *h = item->image;
        more = hash_key(block_key(h), h->klen, view->base.table->desc.hash_seed).hi >>
               (64 - MORE_BITS);
    }
    return (uint64_t)item->group << MORE_BITS | more;
}

/* Lists the entries that count, in order. Groups have few, so they are inserted. */
static void list_items(const struct sephash_view *view, struct iteration *it)
{
    bool hidden = false;
    it->listed = 0;
    for (unsigned i = 0; i < it->count; i++) {
        const struct sephash_item *item = &it->items[i];
        hidden = hidden && item->group == item[-1].group;
        struct listed new = {place_of(view, item), item->word, item->image == NULL, hidden};
        hidden |= item->unreadable; /* SEPHASH-I3 */
        if (item->fate != SEPHASH_LIVE || sephash_untold(item->word))
            continue;
        unsigned at = it->listed++;
        for (; at > 0 && it->list[at - 1].place > new.place; at--)
            it->list[at] = it->list[at - 1];
        it->list[at] = new;
    }
}

/* Reads a part, and lists what counts there. The caller frees it. */
static int list_part(struct op *op, struct sephash_view *view, struct iteration *it)
{
    int rc = FAR_OK;
    unsigned count = PART_ENTRIES;
    do {
        rc = read_part(op, view, it, count);
        count *= 2;
    } while (rc == FAR_OK && it->end_fp <= first_fp(it));
    if (rc != FAR_OK)
        return rc;
    unsigned entries = it->to - it->from, slots = view->shape.slots;
    it->items = calloc(entries + slots + 1, sizeof *it->items);
    it->list = calloc(entries + slots + 1, sizeof *it->list);
    if (!it->items || !it->list)
        return err_fail(FAR_NO_MEMORY, "no memory for a part of a segment");
    it->count = 0;
    for (unsigned i = 0; i < slots; i++)
        if (sephash_slot_counts(&view->shape, &it->look, i))
            add_item(it, it->look.slots[i], slots - 1 - i);
    for (unsigned i = 0; i < entries; i++)
        add_item(it, it->main[i], slots + i);
    rc = sephash_resolve(op, it->items, it->count);
    if (rc == FAR_OK)
        list_items(view, it);
    return rc;
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Has the key been returned? */
static bool is_before(const struct listed *l, uint64_t place)
{
    return l->place < place && !(l->alone && l->place >> MORE_BITS == place >> MORE_BITS);
}

/* False: it does not fit with the others. */
static bool add_slot(const struct op *op, struct index_blocks *blocks,
                     const struct entries_out *out, const struct listed *l, unsigned place)
{
    if (l->hidden && !index_iterate_is_away(out, l->word))
        return index_blocks_add(blocks, l->word, 0, place);
    return index_iterate_slot(op, blocks, out, l->word, place);
}

/* Adds what was listed, from the cursor's place on. *full: an entry did not fit, and the place is
 * its. */
static int add_listed(struct op *op, struct sephash_view *view, struct iteration *it,
                      struct entries_out *out, bool *full)
{
    unsigned next = 0;
    int rc = FAR_OK;
    while (next < it->listed && is_before(&it->list[next], it->place))
        next++;
    while (rc == FAR_OK && !*full && next < it->listed) {
        struct index_blocks blocks;
        index_iterate_start(&blocks, op, out);
        while (next < it->listed && add_slot(op, &blocks, out, &it->list[next], next))
            next++;
        rc = index_iterate_add(op, &view->base, SEPHASH_SLOT, &blocks, out, &next, full);
    }
    if (*full)
        it->place = it->list[next].place;
    return rc;
}

/* Goes on behind what was read. False: that was the last segment. */
static bool advance(struct iteration *it)
{
    uint64_t size = 1ull << (POSITION_BITS - it->look.segment.part.depth);
    it->place = (uint64_t)it->end_fp << (PLACE_BITS - SEPHASH_FP_BITS);
    if (it->end_fp < SEPHASH_FPS)
        return true;
    it->place = 0;
    it->position = (it->position / size + 1) * size;
    return it->position >> POSITION_BITS == 0;
}

int sephash_iterate(struct op *op, struct index_view *base, struct entries_out *out)
{
    struct sephash_view *view = sephash_view(base);
    uint64_t at = out->cursor == 0 ? 0 : out->cursor - 1;
    struct iteration it = {.position = at >> PLACE_BITS, .place = at & ((1ull << PLACE_BITS) - 1)};
    const struct iteration began = it;
    bool full = false;
    if (at >> (POSITION_BITS + PLACE_BITS) != 0)
        return err_fail(FAR_INVALID, "the cursor does not belong to this table");
    uint64_t turns = index_iterate_parts(op->pool, ITERATE_PARTS);
    for (unsigned turn = 0; turn < turns && !full; turn++) {
        it.items = NULL;
        it.list = NULL;
        int rc = list_part(op, view, &it);
        bool passes = index_iterate_passes(op, out, rc);
        if (passes) {
            rc = FAR_OK;
            it.end_fp = SEPHASH_FPS;
        } else if (rc == FAR_OK)
            rc = add_listed(op, view, &it, out, &full);
        free(it.items);
        free(it.list);
        if (rc != FAR_OK)
            return rc;
        if (!full && !advance(&it)) {
            out->cursor = 0;
            return FAR_OK;
        }
    }
    /* Keys that have the same place are returned together. */
    bool stuck = it.position == began.position && it.place == began.place;
    if (full && (out->count == 0 || stuck)) {
        out->needed += out->len;
        return FAR_TOO_SMALL;
    }
    out->cursor = (it.position << PLACE_BITS | it.place) + 1;
    return FAR_OK;
}
