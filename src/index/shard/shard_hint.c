/*
 * What a session remembers: where keys are (index/hints.h, index/own.h), and which units are
 * published.
 *
 * A get that has a hint reads the word of its slot and, behind it, the block that the hint names. A
 * word that is live is current, whatever else has become of the unit since (SHARD-S9). So nothing
 * else is read.
 */
#include "index/shard/shard.h"

/* ---- units ----------------------------------------------------------------------------------- */

/* Where it is noted whether the unit is known to be published, or NULL. Not for segment 0. */
static uint64_t *known_word(const struct shard_view *view, unsigned lane, uint64_t bucket,
                            unsigned *bit)
{
    unsigned r = shard_birth(view, bucket);
    ASSERT(r > 0 && r < view->opened);
    uint64_t i = (bucket - shard_buckets(view, r - 1)) * view->lanes + lane;
    *bit = i % 64;
    return view->segment[r].known ? &view->segment[r].known[i / 64] : NULL;
}

static bool known(const struct shard_view *view, unsigned lane, uint64_t bucket)
{
    unsigned bit;
    if (shard_birth(view, bucket) == 0)
        return true;
    const uint64_t *word = known_word(view, lane, bucket, &bit);
    return word && *word >> bit & 1;
}

void shard_know(struct shard_view *view, unsigned lane, uint64_t bucket)
{
    unsigned bit;
    if (shard_birth(view, bucket) == 0)
        return;
    uint64_t *word = known_word(view, lane, bucket, &bit);
    if (word)
        *word |= 1ull << bit;
}

uint64_t shard_hint_bytes(const struct shard_view *view)
{
    uint64_t bytes = index_hints_bytes(view->hints) + index_owns_bytes(&view->owns);
    for (unsigned r = 0; r < view->opened; r++)
        bytes += view->segment[r].known ? shard_known_words(view, r) * 8 : 0;
    return bytes;
}

bool shard_hint_unit(struct op *op, struct shard_view *view, const struct shard_key *key,
                     bool changes, struct shard_unit *unit)
{
    shard_settle(op, view);
    unsigned version = view->settled;
    uint64_t bucket = shard_bucket(view, key->hash, version);
    bool older = shard_birth(view, bucket) < version;
    if (!known(view, key->lane, bucket)) /* SHARD-S9 */
        return false;
    if (changes && (version != view->version || /* SHARD-S10 */
                    (older && !known(view, key->lane, shard_child(view, bucket, version - 1)))))
        return false;
    shard_unit_set(view, unit, key->lane, bucket);
    unit->count = unit->chains = 0;
    return true;
}

/* ---- hints ----------------------------------------------------------------------------------- */

struct index_hint shard_hint(const struct shard_view *view, const struct shard_key *key)
{
    return index_hint_of(view->hints, SHARD_SLOT, key->hash, key->fingerprint);
}

struct index_hint shard_hint_note(struct shard_view *view, const struct shard_key *key,
                                  struct index_hint hint)
{
    if (!shard_live(hint.slot) || hint.place > view->words)
        hint.slot = hint.place = 0;
    index_hint_note(view->hints, SHARD_SLOT, key->hash, key->fingerprint, hint);
    return hint;
}

/* Are all of these on one node? Otherwise reading one behind the other takes two round trips. */
static bool on_one_node(gaddr at, uint64_t slot, const struct index_change *change)
{
    bool writes = change && change->block.at != 0 && !change->written;
    return gaddr_node(pointer_gaddr(slot)) == gaddr_node(at) &&
           (!writes || gaddr_node(change->block.at) == gaddr_node(at));
}

int shard_peek(struct op *op, struct shard_view *view, const struct shard_key *key,
               const struct value_out *out, struct index_change *change, struct shard_unit *unit,
               struct index_hint *hint, struct index_found *found)
{
    ASSERT(op->batch.count == 0);
    struct index_probe probe = {.key = key->bytes, .format = SHARD_SLOT, .out = out};
    uint64_t delta = 0;

    *found = (struct index_found){.place = -1};
    struct index_hint known = shard_hint(view, key);
    *hint = (struct index_hint){.slot = 0};
    if (known.slot == 0 || known.place > view->words ||
        !shard_hint_unit(op, view, key, change != NULL, unit))
        return FAR_OK;
    gaddr at = shard_slot_at(view, unit, known.place, &delta);
    struct index_block block = {.slot = known.slot,
                                .bytes = size_class_bytes(pointer_class(known.slot)),
                                .place = known.place};
    void *image = op_buffer(op, BUF_BLOCK_IN, block.bytes);
    if (!image || !on_one_node(at, known.slot, change))
        return FAR_OK;
    block.image = image;
    *hint = known;
    unsigned n = op_read(op, at, delta);
    if (change)
        index_change_write(op, change);
    batch_fence(&op->batch); /* HINT-H1 */
    batch_read(&op->batch, pointer_gaddr(hint->slot), 0, image, block.bytes);
    batch_may_be_freed(&op->batch);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? FAR_OK : rc; /* by HINT-H4: nothing was posted */
    if (change)
        change->written = true;
    uint64_t word = op_result(op, n);
    if (!shard_live(word)) /* SHARD-S9 */
        return FAR_OK;
    if (word == hint->slot) {
        (void)index_probe_judge(&probe, &block, found);
        return FAR_OK;
    }
    /* By SHARD-S3, the key is still here if it was only updated. */
    if (slot_fingerprint(SHARD_SLOT, word) != key->fingerprint)
        return FAR_OK;
    rc = index_probe(op, &probe, &word, 1, found);
    if (found->place >= 0)
        found->place = (int)hint->place;
    return rc;
}
