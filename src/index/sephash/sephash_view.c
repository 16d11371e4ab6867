/*
 * A session's view of a table: its sizes, and what the session knows of the segments.
 */
#include "index/refresh.h"
#include "index/sephash/sephash.h"

#include <stdlib.h>
#include <string.h>

#define POINTS_AT_FIRST 40u /* what is known of a segment has room for as many */

void sephash_hash(const struct sephash_view *view, struct slice bytes, struct sephash_key *key)
{
    const struct knobs *knobs = &view->base.table->pool->knobs;
    struct hash128 h = hash_key(bytes.data, bytes.len, view->base.table->desc.hash_seed);
    uint64_t lo = h.lo & knobs->hash_mask, hi = h.hi & knobs->hash_mask;

    key->bytes = bytes;
    key->hash = lo;
    key->fp = (lo >> 56) & knobs->fingerprint_mask;
    key->fp2 = hi & SEPHASH_FP2_LAST & knobs->fingerprint_mask;
    key->fp2 -= key->fp2 == SEPHASH_FP2_LAST && key->fp == SEPHASH_FPS - 1; /* WORDS-1 */
    key->bucket = hash_range((uint32_t)(hi >> 32), view->shape.buckets);
    key->lane = hash_range((uint32_t)(hi >> 32), view->shape.lanes);
}

/* ---- what is known --------------------------------------------------------------------------- */

static uint32_t known_bytes(unsigned points)
{
    return (uint32_t)(sizeof(struct sephash_known) + points * sizeof(uint16_t));
}

int sephash_know(struct sephash_view *view, const struct sephash_segment *segment,
                 const uint16_t *table)
{
    struct index_part *part = index_part_known(&view->parts, &segment->part);
    if (!part)
        return FAR_OK;
    if (part->bytes < known_bytes(segment->points))
        part = index_part_grow(&view->parts, part, known_bytes(segment->points));
    if (!part)
        return FAR_NO_MEMORY;
    struct sephash_known *k = (struct sephash_known *)part;
    uint32_t bytes = part->bytes;
    k->segment = *segment;
    k->segment.part.bytes = bytes;
    memcpy(k->table, table, segment->points * sizeof *table);
    return FAR_OK;
}

void sephash_know_seen(struct sephash_view *view, const struct sephash_segment *segment)
{
    struct sephash_segment *s =
        (struct sephash_segment *)index_part_known(&view->parts, &segment->part);
    if (s && s->state == segment->state && segment->seen > s->seen)
        s->seen = segment->seen;
}

void sephash_know_full(struct sephash_view *view, const struct sephash_segment *segment,
                       unsigned lane, unsigned filled)
{
    struct sephash_segment *s =
        (struct sephash_segment *)index_part_known(&view->parts, &segment->part);
    ASSERT(filled >= view->shape.lane);
    if (!s || s->state != segment->state)
        return;
    s->full |= 1ull << lane;
    if (filled - view->shape.lane > s->spilled)
        s->spilled = (uint16_t)(filled - view->shape.lane);
}

void sephash_know_barren(struct sephash_view *view, const struct sephash_segment *segment,
                         unsigned filled)
{
    ASSERT(filled <= view->shape.slots);
    struct sephash_segment *s =
        (struct sephash_segment *)index_part_known(&view->parts, &segment->part);
    if (s && s->state == segment->state)
        s->barren = (uint16_t)filled;
}

/* ---- attaching ------------------------------------------------------------------------------- */

static int judge_root(struct sephash_view *view, const struct sephash_root *root)
{
    if (root->checksum != sephash_root_sum(root))
        return index_damaged(view->base.table, "the root");
    view->parts = (struct index_parts){
        .table = view->base.table,
        .first = root->first,
        .start = root->start,
        .depth_max = root->depth_max,
        .bytes = known_bytes(POINTS_AT_FIRST),
        .word_at = offsetof(struct sephash_root, directory),
        .anchor_bytes = sizeof(struct sephash_anchor),
        .id_at = offsetof(struct sephash_anchor, id),
    };
    sephash_shape_set(&view->shape, root->slots, root->ratio, root->filter, root->points,
                      root->lane);
    view->tuning[SEPHASH_TUNING_SLOTS] = root->slots;
    view->tuning[SEPHASH_TUNING_RATIO] = root->ratio;
    view->tuning[SEPHASH_TUNING_FILTER] = root->filter;
    view->tuning[SEPHASH_TUNING_POINTS] = root->points;
    view->tuning[SEPHASH_TUNING_DEPTH] = root->depth;
    view->tuning[SEPHASH_TUNING_LANE] = root->lane;
    view->tuning[SEPHASH_TUNING_HOT] = root->hot;
    return FAR_OK;
}

int sephash_attach(struct op *op, struct index_view *base)
{
    struct sephash_view *view = sephash_view(base);
    const struct index_table *table = base->table;
    struct sephash_root root;
    uint64_t version = 0;
    view->root = table->desc.root;
    int rc = index_read_confirmed(op, &view->base, &root, sizeof root, &version);
    if (rc == FAR_OK)
        rc = judge_root(view, &root);
    if (rc == FAR_OK)
        rc = index_parts_attach(op, &view->parts, root.directory);
    if (rc == FAR_OK && !root.filter) /* with one, gets do not read what a hint is compared with */
        view->hints = index_hints_open(op, table, root.hot * 1024);
    if (rc == FAR_OK)
        rc = sephash_refresh(op, &view->base);
    return rc;
}

void sephash_detach(struct index_view *base)
{
    struct sephash_view *view = sephash_view(base);
    index_parts_detach(&view->parts);
}

/* Nothing of what a session knows becomes invalid as long as the table is there (PARTS-1). */
int sephash_refresh(struct op *op, struct index_view *base)
{
    return index_refresh_root(op, base, sizeof(struct sephash_root));
}
