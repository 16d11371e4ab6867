/*
 * Looking at a segment. The first round trip goes by what the session knows, and reads the anchor
 * with it. If the anchor names another CurSegment by now, or was split, that is read in further
 * ones (SEPHASH-H7).
 */
#include "index/sephash/sephash.h"

#include <string.h>

/* Slots of the spill that are read behind those that the session knows to be filled. */
#define SPILL_MORE 4u

/* If the session has not met a segment for more epochs than this, it does not use what it knows of
 * it: the generation of the anchor's word might have come round meanwhile. */
#define TRUST_EPOCHS 1024u

/* How often an anchor that was split leads on, and once from the beginning. */
#define FORKS (SEPHASH_DEPTH_MAX + 2)

/* BUF_INDEX */
struct images {
    struct sephash_anchor anchor;
    uint64_t mark;
    struct sephash_fork fork;
    struct sephash_head head;
    uint16_t table[SEPHASH_FPS];
    uint64_t slots[SEPHASH_SLOTS_MAX];
    uint64_t lane[SEPHASH_SLOTS_MAX]; /* what a key may have of them */
};

static struct images *images_of(struct op *op)
{
    return op_buffer(op, BUF_INDEX, sizeof(struct images));
}

/* Which entries of the MainSegment may be of the key. */
static void set_range(const struct sephash_view *view, const struct sephash_key *key,
                      const uint16_t *table, unsigned wanted, struct sephash_look *l)
{
    const struct sephash_segment *s = &l->segment;
    l->tag = sephash_key_tag(view, key, s->part.depth);
    l->lane = key->lane;
    if (wanted & SEPHASH_RANGE)
        sephash_table_find(view->shape.plain, table, s->points, s->err, s->entries, key->fp,
                           &l->from, &l->to);
    if ((wanted & SEPHASH_RANGE) && view->tuning[SEPHASH_TUNING_POINTS] == SEPHASH_POINTS_UNUSED) {
        l->from = 0;
        l->to = s->entries;
    }
    l->base = l->from;
}

/* Copies what is known: siblings on the ring may change it while this operation waits. */
static void copy_known(const struct op *op, const struct sephash_view *view,
                       const struct sephash_key *key, unsigned wanted, struct sephash_look *l)
{
    const struct sephash_known *k = sephash_known_of(view, key->hash);
    l->segment = k->segment;
    if (op->epoch - k->segment.seen > TRUST_EPOCHS)
        l->segment.state = 0;
    set_range(view, key, k->table, wanted, l);
}

/* ---- READs ----------------------------------------------------------------------------------- */

/* READs go by a guess until the anchor has been read. */
static void guessed(struct op *op, const struct sephash_look *l)
{
    if (!l->current)
        batch_may_be_freed(&op->batch);
}

/* Adds the READ of some of the slots that the key may have: i up to `end`, in the lane or in the
 * spill. */
static void read_some(struct op *op, const struct sephash_view *view, struct sephash_look *l,
                      unsigned i, unsigned end)
{
    l->slots = ((struct images *)op->buf[BUF_INDEX])->lane;
    if (i == end)
        return;
    batch_read(&op->batch, sephash_target(l->segment.state),
               sephash_slot_at(&view->shape, sephash_reached(&view->shape, l->lane, i)),
               l->slots + i, 8 * (end - i));
    guessed(op, l);
}

void sephash_read_lane(struct op *op, const struct sephash_view *view, struct sephash_look *l)
{
    unsigned lane = view->shape.lane, reach = sephash_reach(&view->shape);
    read_some(op, view, l, 0, lane);
    l->room = lane;
    if (!(l->segment.full >> l->lane & 1))
        return;
    l->room += l->segment.spilled + SPILL_MORE;
    if (l->room > reach)
        l->room = reach;
    read_some(op, view, l, lane, l->room);
}

void sephash_read_slots(struct op *op, const struct sephash_view *view, struct sephash_look *l)
{
    l->slots = ((struct images *)op->buf[BUF_INDEX])->slots;
    batch_read(&op->batch, sephash_target(l->segment.state), sephash_slot_at(&view->shape, 0),
               l->slots, 8 * view->shape.slots);
    guessed(op, l);
}

void sephash_read_on(struct op *op, const struct sephash_view *view, struct sephash_look *l)
{
    unsigned lane = view->shape.lane, reach = sephash_reach(&view->shape);
    ASSERT(l->current && l->filled < reach);
    if (l->filled < lane)
        read_some(op, view, l, l->filled, lane);
    read_some(op, view, l, l->filled < lane ? lane : l->filled, reach);
}

/* SEPHASH-H3: up to the first empty slot. *full: there is none, or they are closed. */
static unsigned count(const uint64_t *slots, unsigned room, bool *full)
{
    unsigned i = 0;
    while (i < room && slots[i] != 0 && slots[i] != SEPHASH_CLOSED)
        i++;
    *full = i == room || slots[i] == SEPHASH_CLOSED;
    return i;
}

int sephash_count_lane(struct op *op, struct sephash_view *view, struct sephash_look *l)
{
    unsigned lane = view->shape.lane, reach = sephash_reach(&view->shape);
    int rc = FAR_OK;
    l->has_slots = true;
    l->filled = count(l->slots, l->room, &l->full);
    if (l->filled == l->room && l->room < reach) { /* there are more than it knew */
        read_some(op, view, l, l->room, reach);
        rc = batch_flush(&op->batch);
        l->room = reach;
        l->late = true;
        l->filled = count(l->slots, reach, &l->full);
    }
    if (l->filled >= lane && reach > lane)
        sephash_know_full(view, &l->segment, l->lane, l->filled);
    return rc;
}

void sephash_count_slots(const struct sephash_view *view, struct sephash_look *l)
{
    const struct sephash_shape *shape = &view->shape;
    unsigned at = shape->lanes * shape->lane;
    l->in_spill = (uint16_t)count(l->slots + at, shape->spill, &l->full);
    l->filled = l->in_spill;
    for (unsigned i = 0; i < shape->lanes; i++) {
        bool full = false;
        l->in_lane[i] = (uint16_t)count(l->slots + i * shape->lane, shape->lane, &full);
        l->filled += l->in_lane[i];
        l->full &= full;
    }
    l->has_slots = true;
}

void sephash_read_main(struct op *op, const struct sephash_view *view,
                       const struct sephash_segment *s, unsigned from, unsigned to, uint64_t *image)
{
    ASSERT(from <= to && to <= s->entries);
    unsigned page = view->shape.page;
    while (from < to) {
        unsigned within = from % page, count = to - from;
        if (count > page - within)
            count = page - within;
        batch_read(&op->batch, pointer_gaddr(s->page[from / page]), 8ull * within, image,
                   8 * count);
        from += count;
        image += count;
    }
}

static int read_range(struct op *op, const struct sephash_view *view, struct sephash_look *l)
{
    unsigned count = l->to - l->from, before = op->batch.count;
    l->range = op_buffer(op, BUF_BULK, 8ull * (2 * count + view->shape.slots));
    if (!l->range)
        return FAR_NO_MEMORY;
    l->candidate = l->range + count;
    sephash_read_main(op, view, &l->segment, l->from, l->to, l->range);
    for (unsigned i = before; i < op->batch.count && !l->current; i++)
        op->batch.verb[i].flags |= FAB_MAY_BE_FREED;
    return FAR_OK;
}

/* Adds the READs of what is wanted. */
static int read_wanted(struct op *op, const struct sephash_view *view,
                       const struct sephash_key *key, unsigned wanted, struct sephash_look *l)
{
    struct images *images = op->buf[BUF_INDEX];
    gaddr cur = sephash_target(l->segment.state);
    if (wanted & SEPHASH_SLOTS)
        sephash_read_slots(op, view, l);
    if (wanted & SEPHASH_LANE)
        sephash_read_lane(op, view, l);
    images->mark = 1;
    if (wanted & SEPHASH_MARK) {
        batch_read(&op->batch, cur, sephash_filter_at(key->bucket), &images->mark, 8);
        guessed(op, l);
    }
    return (wanted & SEPHASH_RANGE) ? read_range(op, view, l) : FAR_OK;
}

static int take_wanted(struct op *op, struct sephash_view *view, unsigned wanted,
                       struct sephash_look *l)
{
    l->mark = ((const struct images *)op->buf[BUF_INDEX])->mark;
    if (wanted & SEPHASH_SLOTS)
        sephash_count_slots(view, l);
    return (wanted & SEPHASH_LANE) ? sephash_count_lane(op, view, l) : FAR_OK;
}

/* ---- hints ----------------------------------------------------------------------------------- */

/* Are these on one node? Otherwise reading one behind the other takes two round trips. */
static bool on_one_node(const struct sephash_view *view, const struct sephash_look *l,
                        uint64_t slot)
{
    const struct sephash_segment *s = &l->segment;
    unsigned node = gaddr_node(s->part.anchor), page = view->shape.page;
    bool near =
        gaddr_node(sephash_target(s->state)) == node && gaddr_node(pointer_gaddr(slot)) == node;
    for (unsigned i = l->from / page; i * page < l->to && near; i++)
        near = gaddr_node(pointer_gaddr(s->page[i])) == node;
    return near;
}

/* The look goes by a hint, if it can. If the segment was not merged since, one entry of the
 * MainSegment is enough. The hint may be of another segment that had as many merges: so if a
 * damaged entry may hide the one that it names, all are read (SEPHASH-H9). */
static void expect(const struct op *op, const struct sephash_view *view,
                   const struct index_hint *hint, struct sephash_look *l)
{
    if (!hint || hint->slot == 0)
        return;
    uint32_t bytes = size_class_bytes(pointer_class(hint->slot));
    if (!index_inside(op->pool, pointer_gaddr(hint->slot), bytes) ||
        !on_one_node(view, l, hint->slot))
        return;
    l->hinted = (struct index_block){.slot = sephash_entry(hint->slot, l->tag), .bytes = bytes};
    l->narrow = sephash_hint_recent(hint, l->segment.state) && hint->place < l->to - l->from &&
                l->segment.doubtful == 0;
    if (l->narrow) {
        l->from += hint->place;
        l->to = l->from + 1;
    }
}

/* Adds the READ of the block, behind those of the anchor and of the slots (HINT-H1). */
static int read_hinted(struct op *op, struct sephash_look *l)
{
    if (l->hinted.slot == 0)
        return FAR_OK;
    void *image = op_buffer(op, BUF_BLOCK_IN, l->hinted.bytes);
    if (!image)
        return FAR_NO_MEMORY;
    l->hinted.image = image;
    batch_fence(&op->batch); /* HINT-H1 */
    batch_read(&op->batch, pointer_gaddr(l->hinted.slot), 0, image, l->hinted.bytes);
    batch_may_be_freed(&op->batch);
    return FAR_OK;
}

/* ---- learning -------------------------------------------------------------------------------- */

static int judge_head(const struct sephash_view *view, const struct sephash_segment *s,
                      const struct images *m)
{
    const struct sephash_head *h = &m->head;
    unsigned pages = sephash_pages(&view->shape, h->entries);
    if (h->id != index_part_id(&view->parts, &s->part) ||
        h->points > sephash_points_max(&view->shape) || pages > sephash_pages_held(h->page) ||
        h->checksum != sephash_head_sum(h, m->table))
        return index_damaged(view->base.table, "a segment");
    return FAR_OK;
}

int sephash_learn(struct op *op, struct sephash_view *view, uint64_t state, struct sephash_look *l)
{
    const struct sephash_shape *shape = &view->shape;
    struct sephash_segment *s = &l->segment;
    struct images *m = images_of(op);
    gaddr cur = sephash_target(state);
    if (!m)
        return FAR_NO_MEMORY;
    s->state = state;
    l->current = true;
    batch_read(&op->batch, cur, 0, &m->head, sizeof m->head);
    batch_read(&op->batch, cur, sephash_table_at(shape), m->table, 2 * sephash_points_max(shape));
    sephash_read_slots(op, view, l);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        rc = judge_head(view, s, m);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "an anchor leads outside the pool") : rc;
    sephash_count_slots(view, l);
    l->table = m->table;
    s->entries = m->head.entries;
    s->doubtful = m->head.doubtful;
    s->err = m->head.err;
    s->points = m->head.points;
    s->barren = 0;
    s->full = s->busy = s->spilled = 0;
    s->seen = op->epoch;
    memcpy(s->page, m->head.page, sizeof s->page);
    return sephash_know(view, s, m->table);
}

/* The segment was split: reads where its children are. */
static int follow(struct op *op, struct sephash_view *view, uint64_t state,
                  const struct sephash_segment *s)
{
    struct images *m = images_of(op);
    batch_read(&op->batch, sephash_target(state), 0, &m->fork, sizeof m->fork);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_BOUNDS || (rc == FAR_OK && m->fork.checksum != sephash_fork_sum(&m->fork)))
        return index_damaged(view->base.table, "a fork");
    return rc == FAR_OK ? index_parts_know_split(&view->parts, &s->part, m->fork.child) : rc;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* One look by what the session knows. *state is what the anchor says. */
static int look_once(struct op *op, struct sephash_view *view, const struct sephash_key *key,
                     unsigned wanted, const struct index_hint *hint, struct sephash_look *l,
                     uint64_t *state)
{
    struct images *m = images_of(op);
    if (!m)
        return FAR_NO_MEMORY;
    *l = (struct sephash_look){0};
    copy_known(op, view, key, wanted, l);
    batch_read(&op->batch, l->segment.part.anchor, 0, &m->anchor, sizeof m->anchor);
    bool guess = l->segment.state != 0;
    if (guess)
        expect(op, view, hint, l);
    int rc = guess ? read_wanted(op, view, key, wanted, l) : FAR_OK;
    rc = rc == FAR_OK ? read_hinted(op, l) : rc;
    int flushed = batch_flush(&op->batch);
    rc = rc == FAR_OK ? flushed : rc;
    l->misled = rc == FAR_OK && m->anchor.id != index_part_id(&view->parts, &l->segment.part);
    if (rc == FAR_BOUNDS || l->misled)
        return index_damaged(view->base.table, "an anchor");
    *state = m->anchor.state;
    if (rc != FAR_OK || !guess || *state != l->segment.state)
        return rc;
    l->current = true;
    l->segment.seen = op->epoch;
    sephash_know_seen(view, &l->segment);
    return take_wanted(op, view, wanted, l);
}

/* The session knows the segment by now; reads what else is wanted. */
static int look_further(struct op *op, struct sephash_view *view, const struct sephash_key *key,
                        unsigned wanted, struct sephash_look *l)
{
    struct images *m = op->buf[BUF_INDEX];
    set_range(view, key, m->table, wanted, l);
    l->hinted.slot = 0; /* its block was read before the slots */
    l->narrow = false;
    l->mark = 1;
    if (!(wanted & SEPHASH_SLOTS)) { /* all were read */
        l->slots = m->lane;
        l->room = sephash_reach(&view->shape);
        for (unsigned i = 0; i < sephash_reach(&view->shape); i++)
            m->lane[i] = m->slots[sephash_reached(&view->shape, l->lane, i)];
        (void)sephash_count_lane(op, view, l);
    }
    if (!(wanted & SEPHASH_RANGE))
        return FAR_OK;
    int rc = read_range(op, view, l);
    int flushed = batch_flush(&op->batch);
    rc = rc == FAR_OK ? flushed : rc;
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a segment leads outside the pool") : rc;
}

int sephash_look(struct op *op, struct sephash_view *view, const struct sephash_key *key,
                 unsigned wanted, const struct index_hint *hint, struct sephash_look *l)
{
    bool restarted = false;
    for (unsigned forks = 0; forks < FORKS; forks++) {
        uint64_t state = 0;
        int rc = look_once(op, view, key, wanted, hint, l, &state);
        if (l->misled && !restarted && l->segment.state == 0) { /* the directory has misled it */
            restarted = true;
            rc = index_parts_restart(op, &view->parts, &l->segment.part);
            if (rc == FAR_OK)
                continue;
        }
        if (rc != FAR_OK)
            return rc;
        if (l->current)
            return FAR_OK;
        if (!sephash_is_split(state)) {
            rc = sephash_learn(op, view, state, l);
            return rc == FAR_OK ? look_further(op, view, key, wanted, l) : rc;
        }
        rc = follow(op, view, state, &l->segment);
        if (rc != FAR_OK)
            return rc;
    }
    return err_fail(FAR_CORRUPT, "forks of table '%s' lead on for ever",
                    view->base.table->desc.name);
}

/* ---- candidates ------------------------------------------------------------------------------ */

void sephash_gather(struct sephash_look *l)
{
    l->candidates = 0;
    for (unsigned i = l->has_slots ? l->filled : 0; i > 0; i--)
        if ((l->slots[i - 1] & SEPHASH_TAG) == l->tag && l->slots[i - 1] != SEPHASH_VOID)
            l->candidate[l->candidates++] = l->slots[i - 1];
    l->in_slots = l->candidates;
    for (unsigned i = 0; i < l->to - l->from; i++)
        if ((l->range[i] & SEPHASH_TAG) == l->tag && l->range[i] != SEPHASH_VOID)
            l->candidate[l->candidates++] = l->range[i];
}

/* SEPHASH-H10. With one slot there is hardly more than the entry of M to be read, so both are read
 * at once: that saves a round trip if the slot is another key's. A block that is not whole may be
 * the newest of the key. */
int sephash_probe(struct op *op, const struct sephash_key *key, const struct sephash_look *l,
                  const struct value_out *out, struct index_found *found)
{
    struct index_probe probe = {.key = key->bytes, .format = SEPHASH_SLOT, .out = out};
    unsigned first = l->in_slots > 1 ? 1 : l->candidates;
    int rc = index_probe_all(op, &probe, l->candidate, first, found);
    if (rc != FAR_OK || first == l->candidates || found->place >= 0 || found->stale != 0)
        return rc;
    rc = index_probe_all(op, &probe, l->candidate + first, l->candidates - first, found);
    if (found->place >= 0)
        found->place += (int)first;
    return rc;
}

/* Is the entry that the hint names among those that were read, and its block the key's? */
static bool hint_holds(const struct sephash_key *key, struct sephash_look *l,
                       const struct value_out *out, struct index_found *found)
{
    struct index_probe probe = {.key = key->bytes, .format = SEPHASH_SLOT, .out = out};
    unsigned i = 0;
    while (i < l->candidates && l->candidate[i] != l->hinted.slot)
        i++;
    l->hinted.place = i;
    if (l->narrow && l->range[0] != l->hinted.slot) /* a slot may be a delete of another entry */
        return false;
    if (l->late && i < l->in_slots) /* the block was read before the slot (HINT-H1) */
        return false;
    return i < l->candidates && index_probe_judge(&probe, &l->hinted, found);
}

int sephash_find(struct op *op, const struct sephash_key *key, struct sephash_look *l,
                 const struct value_out *out, struct index_found *found, bool *misled)
{
    *found = (struct index_found){.place = -1};
    sephash_gather(l);
    if (l->hinted.slot != 0) { /* SEPHASH-H11 */
        bool holds = hint_holds(key, l, out, found);
        if (holds && found->place == 0)
            return FAR_OK;
        *misled = l->narrow && !holds;
        if (*misled)
            return FAR_OK;
    }
    return sephash_probe(op, key, l, out, found);
}

bool sephash_deletes(const struct sephash_look *l, unsigned place)
{
    for (unsigned i = place + 1; i < l->candidates; i++)
        if (l->candidate[i] == l->candidate[place])
            return true;
    return false;
}
