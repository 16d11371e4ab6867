/*
 * Looking for a key: level 1 of one unit in one round trip, the block in another. Or its word and
 * its block in one, if there is a hint of it.
 *
 * If the unit of the table's version is not published yet, the unit that still has the authority is
 * read, and behind it whether that is still so (SHARD-S6). Then the reader moves it.
 */
#include "index/ahead.h"
#include "index/shard/shard.h"

/* How often a look is repeated because the table was changed meanwhile. Its units are moved a few
 * times only, so more is damage. */
#define LOOKS 256u

struct read {
    struct shard_key key;
    struct shard_unit unit;
    struct index_found found;
    struct value_out *out;
    uint64_t stale;
};

static uint64_t wanted(const struct shard_key *key)
{
    return slot_fingerprint_word(SHARD_SLOT, key->fingerprint);
}

/* Looks among the entries from slot `from` on: those that are live, and those that the move from
 * version u has sealed (u is SHARD_NO_CHILD: none). They are current as long as its child is not
 * published. */
static int probe(struct op *op, struct read *r, unsigned from, unsigned u)
{
    struct shard_matches matches;
    uint64_t mask = SHARD_LIVE_MASK | slot_fingerprint_mask(SHARD_SLOT);
    matches.count = 0;
    shard_match(&r->unit, from, mask, wanted(&r->key), &matches);
    if (u != SHARD_NO_CHILD)
        shard_match(&r->unit, from, mask, wanted(&r->key) | shard_seal(u), &matches);
    return shard_probe(op, r->key.bytes, &matches, r->out, &r->found);
}

/* Level 1 was read. If the key is not there and the unit overflows, looks at the other levels: also
 * past a block that is not whole, because a key has one slot (SHARD-S3, BLOCKS-1). *again: the
 * unit's child has been touched meanwhile. */
static int look_within(struct op *op, struct shard_view *view, struct read *r, unsigned u,
                       bool *again)
{
    uint64_t child = 0;
    int rc = probe(op, r, 0, u);
    if (rc != FAR_OK || r->found.place >= 0 || !shard_overflows(r->unit.words[view->level1 - 1]))
        return rc;
    uint64_t stale = r->found.stale;
    rc = shard_unit_extend(op, view, &r->unit, u, &child);
    *again = child != 0;
    if (rc == FAR_OK && !*again)
        rc = probe(op, r, view->level1, u);
    index_found_also(&r->found, stale);
    return rc;
}

/*
 * Finds the unit on the key's path that has the authority, however far behind it is, and looks
 * there. *again: it has passed the authority on meanwhile.
 */
static int look_far_behind(struct op *op, struct shard_view *view, struct read *r, unsigned version,
                           bool *again)
{
    uint64_t bucket = shard_bucket(view, r->key.hash, version);
    unsigned u = 0;
    int rc = shard_find_authority(op, view, r->key.lane, bucket, &r->unit, &u, again);
    return rc == FAR_OK && !*again ? probe(op, r, 0, u) : rc;
}

/* Looks in the parent of the unit, which is not published. */
static int look_behind(struct op *op, struct shard_view *view, struct read *r, unsigned version,
                       bool *again)
{
    uint64_t child = shard_bucket(view, r->key.hash, version), guard = 0;
    unsigned u = shard_birth(view, child) - 1;
    shard_unit_set(view, &r->unit, r->key.lane, shard_parent(view, child));
    bool older = u > shard_birth(view, r->unit.bucket);
    if (older) {
        uint64_t before = shard_child(view, r->unit.bucket, u - 1);
        unsigned n = shard_guard_read(op, view, r->key.lane, before);
        ASSERT(n == 0); /* so its word stays, also if a chain takes more batches */
        batch_fence(&op->batch);
    }
    shard_unit_read(op, view, &r->unit, view->words);
    int rc = shard_unit_extend(op, view, &r->unit, u, &guard);
    if (rc != FAR_OK)
        return rc;
    bool late =
        older && shard_guard_says(view, shard_child(view, r->unit.bucket, u - 1), op->word[0]) != 1;
    if (guard != 0 || late || !shard_published(view, &r->unit))
        return look_far_behind(op, view, r, version, again);
    /* It is at version u, so an entry that is sealed by the move from u is current. */
    return probe(op, r, 0, u);
}

/* *again: the table was changed meanwhile. *behind: the unit has to be moved. */
static int look(struct op *op, struct shard_view *view, struct read *r, bool *again, bool *behind)
{
    shard_settle(op, view);
    unsigned version = view->settled, n = 0, sibling = 0;
    bool pending = shard_may_go(view, r->key.hash);
    shard_unit_set(view, &r->unit, r->key.lane, shard_bucket(view, r->key.hash, version));
    bool older = pending && shard_birth(view, r->unit.bucket) < version;
    if (older) { /* a unit that is further behind has seals of other moves */
        uint64_t child = shard_child(view, r->unit.bucket, version - 1);
        sibling = shard_guard_read(op, view, r->key.lane, child);
        batch_fence(&op->batch);
    }
    shard_unit_read(op, view, &r->unit, view->level1);
    if (pending) { /* SHARD-S8 */
        batch_fence(&op->batch);
        n = shard_guard_read(op, view, r->key.lane, shard_child(view, r->unit.bucket, version));
    }
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (pending && op_result(op, n) != 0) {
        if (view->settled == version)
            view->settled = view->version;
        *again = true;
        return FAR_OK;
    }
    if (older && shard_guard_says(view, shard_child(view, r->unit.bucket, version - 1),
                                  op_result(op, sibling)) != 1) {
        *behind = true;
        return look_far_behind(op, view, r, version, again);
    }
    *behind = !shard_published(view, &r->unit);
    if (!*behind)
        shard_know(view, r->key.lane, r->unit.bucket);
    return *behind ? look_behind(op, view, r, version, again)
                   : look_within(op, view, r, pending ? version : SHARD_NO_CHILD, again);
}

/* Remembers where the key is. The hint was of no use, or there was none. */
static void note(struct shard_view *view, const struct read *r, const struct index_hint *hint)
{
    struct index_hint now = {.slot = 0, .place = 0, .wrong = hint->slot != 0};
    if (r->found.place >= 0) {
        now.slot = r->found.slot;
        now.place = (unsigned)r->found.place;
    }
    shard_hint_note(view, &r->key, now);
}

int shard_get(struct op *op, struct index_view *base, struct slice bytes, struct value_out *out)
{
    struct shard_view *view = shard_view(base);
    struct read r = {.out = out};
    struct index_hint hint;
    r.unit.words = op_buffer(op, BUF_INDEX, 2 * SHARD_UNIT_MAX * 8);
    if (!r.unit.words)
        return FAR_NO_MEMORY;
    shard_hash(view, bytes, &r.key);
    int rc = shard_peek(op, view, &r.key, out, NULL, &r.unit, &hint, &r.found);
    if (rc != FAR_OK)
        return rc;
    if (r.found.place >= 0) {
        if (r.found.slot != hint.slot)
            note(view, &r, &hint);
        return index_deliver(base, index_block_value(r.found.block), out);
    }
    for (unsigned attempts = 0; attempts < LOOKS; attempts++) {
        bool again = false, behind = false;
        rc = look(op, view, &r, &again, &behind);
        if (rc != FAR_OK)
            return rc;
        if (again)
            continue;
        if (r.found.place >= 0)
            rc = index_deliver(base, index_block_value(r.found.block), out);
        else
            rc = FAR_NOT_FOUND;
        if (r.found.place >= 0 || r.found.stale == 0) {
            if (!behind)
                note(view, &r, &hint);
            if (behind) /* for those who come next; the answer does not depend on it */
                shard_move(op, view, r.key.lane, r.key.hash, view->settled, NULL, NULL);
            return rc;
        }
        rc = index_found_stale(&r.found, &r.stale); /* SHARD-S1 */
        if (rc != FAR_OK)
            return rc;
    }
    return err_fail(FAR_CORRUPT, "a bucket was moved, and is not there");
}

void shard_ahead(const struct op *op, const struct index_view *base, struct slice bytes,
                 struct index_ahead *ahead)
{
    const struct shard_view *view = (const struct shard_view *)base;
    struct shard_key key;
    struct shard_unit unit;
    shard_hash(view, bytes, &key);
    shard_unit_set(view, &unit, key.lane, shard_bucket(view, key.hash, view->settled));
    struct index_hint hint = index_hint_peek(view->hints, SHARD_SLOT, key.hash, key.fingerprint);
    if (hint.slot != 0 && hint.place < view->words) {
        index_ahead_fetch(op, unit.at, unit.delta + 8ull * hint.place, 8);
        index_ahead_block(op, hint.slot);
        return;
    }
    ahead->mask = SHARD_LIVE_MASK | slot_fingerprint_mask(SHARD_SLOT);
    ahead->want = wanted(&key);
    index_ahead_words(op, ahead, unit.at, unit.delta, view->level1);
}
