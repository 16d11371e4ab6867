/* Images of units: reading them, and judging their words. */
#include "index/shard/shard.h"

gaddr shard_unit_at(const struct shard_view *view, unsigned lane, uint64_t bucket, uint64_t *delta)
{
    unsigned r = shard_birth(view, bucket);
    uint64_t i = r == 0 ? bucket : bucket - shard_buckets(view, r - 1);
    ASSERT(r < view->opened);
    return pool_array_at(&view->segment[r].units, i * view->lanes + lane, delta);
}

static gaddr top_at(const struct shard_view *view, unsigned lane, uint64_t bucket, uint64_t *delta)
{
    unsigned r = shard_birth(view, bucket);
    uint64_t i = r == 0 ? bucket : bucket - shard_buckets(view, r - 1);
    return pool_array_at(&view->segment[r].tops, i * view->lanes + lane, delta);
}

gaddr shard_slot_at(const struct shard_view *view, const struct shard_unit *unit, unsigned slot,
                    uint64_t *delta)
{
    if (slot < view->words) {
        *delta = unit->delta + slot * 8ull;
        return unit->at;
    }
    if (slot == view->words)
        return top_at(view, unit->lane, unit->bucket, delta);
    slot -= view->words + 1;
    ASSERT(slot / SHARD_NODE_WORDS < unit->chains);
    *delta = slot % SHARD_NODE_WORDS * 8ull;
    return unit->chain[slot / SHARD_NODE_WORDS];
}

void shard_unit_read(struct op *op, const struct shard_view *view, struct shard_unit *unit,
                     unsigned count)
{
    ASSERT(count == view->level1 || count == view->words);
    unsigned first = count < view->level1 ? count : view->level1;
    batch_read(&op->batch, unit->at, unit->delta, unit->words, first * 8);
    if (count > first) { /* SHARD-S6: what level 1 shows to be published is there in level 2 */
        batch_fence(&op->batch);
        batch_read(&op->batch, unit->at, unit->delta + first * 8ull, unit->words + first,
                   (count - first) * 8);
    }
    unit->count = count;
    unit->chains = 0;
}

unsigned shard_guard_read(struct op *op, const struct shard_view *view, unsigned lane,
                          uint64_t bucket)
{
    uint64_t delta;
    gaddr at = shard_unit_at(view, lane, bucket, &delta);
    return op_read(op, at, delta + (view->level1 - 1) * 8ull);
}

int shard_unit_extend(struct op *op, const struct shard_view *view, struct shard_unit *unit,
                      unsigned u, uint64_t *child)
{
    uint64_t delta;
    unsigned n = 0;
    batch_fence(&op->batch);
    if (unit->count < view->words) {
        batch_read(&op->batch, unit->at, unit->delta + unit->count * 8ull,
                   unit->words + unit->count, (view->words - unit->count) * 8);
        unit->count = view->words;
    }
    gaddr top = top_at(view, unit->lane, unit->bucket, &delta);
    batch_read(&op->batch, top, delta, unit->words + unit->count, 8);
    unit->count++;
    for (;;) {
        if (u != SHARD_NO_CHILD) {
            batch_fence(&op->batch);
            n = shard_guard_read(op, view, unit->lane, shard_child(view, unit->bucket, u));
        }
        int rc = batch_flush(&op->batch);
        if (rc == FAR_OK && u != SHARD_NO_CHILD)
            *child = op_result(op, n);
        if (rc != FAR_OK)
            return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a chain leads out of the pool") : rc;
        uint64_t last = unit->words[unit->count - 1];
        if (!shard_is_link(last))
            return FAR_OK;
        if (unit->chains == SHARD_CHAIN_MAX)
            return err_fail(FAR_CORRUPT, "a chain has no end");
        gaddr node = unit->chain[unit->chains++] = pointer_gaddr(last);
        batch_read(&op->batch, node, 0, unit->words + unit->count, SHARD_NODE_WORDS * 8);
        unit->count += SHARD_NODE_WORDS;
    }
}

bool shard_published(const struct shard_view *view, const struct shard_unit *unit)
{
    ASSERT(unit->count >= view->level1);
    uint64_t guard = unit->words[view->level1 - 1], zeros = 0;
    unsigned filled = view->level1 - 1;
    if (shard_birth(view, unit->bucket) == 0)
        return true;
    if (shard_is(guard, SHARD_MARK) && shard_mark_entries(guard) < filled)
        filled = shard_mark_entries(guard);
    /* The words of one READ may be of different times. So the mark is not believed, even if it says
     * that all is there; and if the last slot has been used, all before it have been, too. */
    for (unsigned i = 0; i < filled; i++)
        zeros |= unit->words[i] == 0;
    return guard != 0 && !zeros;
}

int shard_guard_says(const struct shard_view *view, uint64_t bucket, uint64_t guard)
{
    if (shard_birth(view, bucket) == 0)
        return 1;
    if (shard_is(guard, SHARD_MARK) && !(guard & SHARD_MARK_DONE) && shard_mark_entries(guard) > 0)
        return -1;
    return guard != 0;
}

int shard_look_published(struct op *op, struct shard_view *view, unsigned lane, uint64_t bucket,
                         bool *published)
{
    struct shard_unit unit;
    unsigned guard = view->level1 - 1;
    shard_unit_set(view, &unit, lane, bucket);
    unit.words = op_buffer(op, BUF_BULK, view->level1 * 8ull);
    if (!unit.words)
        return FAR_NO_MEMORY;
    shard_unit_read(op, view, &unit, view->level1);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    *published = shard_published(view, &unit);
    if (*published && shard_guard_says(view, bucket, unit.words[guard]) < 0)
        shard_note(view, lane, bucket, unit.words[guard]);
    return FAR_OK;
}

void shard_note(struct shard_view *view, unsigned lane, uint64_t bucket, uint64_t mark)
{
    view->note.lane = lane;
    view->note.bucket = bucket;
    view->note.mark = mark;
}

void shard_note_add(struct op *op, struct shard_view *view)
{
    uint64_t delta, mark = view->note.mark;
    if (mark == 0)
        return;
    gaddr at = shard_unit_at(view, view->note.lane, view->note.bucket, &delta);
    op_cas(op, MARK_PUBLISH, at, delta + (view->level1 - 1) * 8ull, mark, mark | SHARD_MARK_DONE);
    /* Only for speed: if a READ of the guard comes first, that takes a look at level 1, which says
     * the same. */
    batch_fence(&op->batch);
    view->note.mark = 0;
}

/* Adds the READs of the guard words of all children. */
static void read_children(struct op *op, const struct shard_view *view,
                          const struct shard_unit *unit, unsigned version)
{
    for (unsigned v = shard_birth(view, unit->bucket); v < version; v++)
        shard_guard_read(op, view, unit->lane, shard_child(view, unit->bucket, v));
}

/* Which version do they show, the first of the batch that was flushed? *again: one of them had to
 * be looked at, and is published now. */
static int find_version(struct op *op, struct shard_view *view, const struct shard_unit *unit,
                        unsigned version, unsigned *u, bool *again)
{
    uint64_t guard[SHARD_SEGMENTS];
    unsigned birth = shard_birth(view, unit->bucket);
    bool published = true;
    for (unsigned v = birth; v < version; v++)
        guard[v] = op->word[v - birth];
    for (*u = birth; *u < version && published; *u += published) {
        uint64_t child = shard_child(view, unit->bucket, *u);
        int says = shard_guard_says(view, child, guard[*u]);
        published = says == 1;
        if (says < 0) {
            int rc = shard_look_published(op, view, unit->lane, child, &published);
            if (rc == FAR_OK && published) {
                shard_note_add(op, view);
                rc = batch_flush(&op->batch);
            }
            if (rc != FAR_OK)
                return rc;
            *again |= published;
        }
    }
    return FAR_OK;
}

int shard_unit_look(struct op *op, struct shard_view *view, struct shard_unit *unit, unsigned *u)
{
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        unsigned before = 0, version = view->version;
        bool again = false;
        read_children(op, view, unit, version);
        batch_fence(&op->batch);
        shard_unit_read(op, view, unit, view->words);
        int rc = shard_unit_extend(op, view, unit, SHARD_NO_CHILD, NULL);
        if (rc == FAR_OK)
            rc = find_version(op, view, unit, version, &before, &again);
        if (rc == FAR_OK && !again) {
            read_children(op, view, unit, version);
            rc = batch_flush(&op->batch);
        }
        if (rc == FAR_OK && !again)
            rc = find_version(op, view, unit, version, u, &again);
        if (rc != FAR_OK || (!again && *u == before))
            return rc;
    }
    return FAR_CONTENTION;
}

int shard_find_authority(struct op *op, struct shard_view *view, unsigned lane, uint64_t bucket,
                         struct shard_unit *unit, unsigned *u, bool *again)
{
    for (unsigned next = view->version;; bucket = shard_parent(view, bucket)) {
        shard_unit_set(view, unit, lane, bucket);
        int rc = shard_unit_look(op, view, unit, u);
        if (rc != FAR_OK)
            return rc;
        /* The path goes on from this unit by the move from version `next`. */
        *again = next < *u;
        if (*again || shard_published(view, unit))
            return FAR_OK;
        next = shard_birth(view, bucket) - 1;
    }
}

/* ---- the tail -------------------------------------------------------------------------------- */

void shard_find_tail(const struct shard_unit *unit, unsigned u, struct shard_tail *tail)
{
    ASSERT(unit->count > 0);
    const uint64_t *words = unit->words;
    unsigned slot = 0;
    while (slot < unit->count && (shard_live(words[slot]) || !shard_candidate(words[slot], u)))
        slot++;
    *tail = (struct shard_tail){.full = slot == unit->count};
    tail->frontier = tail->slot = tail->full ? slot - 1 : slot;
    tail->frontier_word = tail->word = words[tail->slot];
    bool complete = shard_is(tail->word, SHARD_COMPLETE);
    tail->freed = !tail->full && shard_freed_by(tail->word, u);
    tail->twice = tail->full || complete || shard_is(tail->word, SHARD_OPEN) || tail->freed;
    if (tail->full || !complete)
        return;
    uint64_t filler = shard_control(SHARD_FILLER, shard_number(tail->word), false);
    for (slot = 0; slot < tail->frontier; slot++) {
        if (words[slot] == filler) {
            tail->slot = slot;
            tail->word = filler;
            return;
        }
    }
}

void shard_match(const struct shard_unit *unit, unsigned from, uint64_t mask, uint64_t want,
                 struct shard_matches *matches)
{
    ASSERT(from <= unit->count);
    for (unsigned base = from; base < unit->count; base += 64) {
        unsigned count = unit->count - base < 64 ? unit->count - base : 64;
        uint64_t bits = slot_candidates(unit->words + base, count, mask, want);
        for (; bits; bits &= bits - 1) {
            unsigned slot = base + (unsigned)__builtin_ctzll(bits);
            if (unit->words[slot] == 0)
                continue;
            matches->word[matches->count] = unit->words[slot];
            matches->slot[matches->count++] = (uint16_t)slot;
        }
    }
}

int shard_probe(struct op *op, struct slice key, const struct shard_matches *matches,
                const struct value_out *out, struct index_found *found)
{
    struct index_probe probe = {.key = key, .format = SHARD_SLOT, .out = out};
    int rc = index_probe_all(op, &probe, matches->word, matches->count, found);
    if (rc == FAR_OK && found->place >= 0)
        found->place = matches->slot[found->place];
    return rc;
}
