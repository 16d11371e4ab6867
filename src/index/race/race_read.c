/* Looking for a key: two combined buckets in one round trip, the candidate's block in another. Or
 * its bucket and block in one, if there is a hint of it. */
#include "index/ahead.h"
#include "index/race/race.h"

int race_find_subtable(const struct race_view *view, const struct race_key *key,
                       struct race_look *look, uint64_t *words)
{
    look->entry = race_cached_entry(view, key->hash);
    look->subtable = race_entry_subtable(look->entry);
    look->depth = race_entry_depth(look->entry);
    look->words = words;
    look->sealed = false;
    if (look->entry == 0 || look->depth > view->dir_bits)
        return err_fail(FAR_CORRUPT, "a directory entry is damaged");
    return FAR_OK;
}

int race_look_start(struct op *op, struct race_view *view, const struct race_key *key,
                    struct race_look *look, uint64_t *words)
{
    int rc = race_find_subtable(view, key, look, words);
    if (rc != FAR_OK)
        return rc;
    race_read_buckets(op, key, look, MARK_NONE, words);
    return FAR_OK;
}

int race_look_finish(struct op *op, struct race_view *view, const struct race_key *key,
                     struct race_look *look, bool *again)
{
    uint64_t header = race_header_of(view, key->hash, look->depth), wrong = 0, sealed = 0;
    int rc = batch_flush(&op->batch);

    *again = false;
    if (rc == FAR_OK) {
        for (unsigned i = 0; i < RACE_PLACES; i += RACE_BUCKET_WORDS) {
            wrong |= look->words[i] ^ header;
            for (unsigned j = 1; j <= RACE_BUCKET_SLOTS; j++)
                sealed |= look->words[i + j];
        }
        look->sealed = (sealed & RACE_SLOT_SEALED) != 0;
        if (wrong == 0)
            return FAR_OK;
    } else if (rc != FAR_BOUNDS) {
        return rc;
    }
    /* Not a part of this table. Unless the directory has news, it is damaged. */
    rc = race_refresh(op, view);
    if (rc != FAR_OK)
        return rc;
    if (race_cached_entry(view, key->hash) == look->entry)
        return err_fail(FAR_CORRUPT, "a bucket's header is not that of its subtable");
    if (++look->strayed > RACE_REFRESHES)
        return err_fail(FAR_CORRUPT, "a subtable's children are not part of the table");
    *again = true;
    return FAR_OK;
}

/* The places, as bits, of slots that have the fingerprint and are not tentative. */
static uint64_t candidates(const uint64_t *words, uint8_t fingerprint)
{
    uint64_t bits =
        slot_candidates(words, RACE_PLACES, RACE_SLOT_TENTATIVE | slot_fingerprint_mask(RACE_SLOT),
                        slot_fingerprint_word(RACE_SLOT, fingerprint));
    return bits & RACE_SLOT_PLACES;
}

int race_probe(struct op *op, const struct race_key *key, struct race_look *look,
               const struct value_out *out, const uint64_t *known, struct index_found *found)
{
    struct index_probe probe = {
        .key = key->bytes, .format = RACE_SLOT, .out = out, .may_be_freed = look->sealed};
    unsigned forward = 0;

    look->forward = 0;
    uint64_t left = candidates(look->words, key->fingerprint);
    for (uint64_t bits = left; bits; bits &= bits - 1) {
        unsigned i = (unsigned)__builtin_ctzll(bits);
        if (race_slot_empty(look->words[i]) || (known && known[i] == look->words[i]))
            left &= ~(1ull << i);
    }
    if (look->sealed) /* RACE-R5: read along, it tells whether the slots were read too late */
        forward = op_read(op, look->subtable, offsetof(struct race_subtable_head, forward));
    int rc = index_probe(op, &probe, look->words, left, found);
    look->forward = rc == FAR_OK && look->sealed ? op_result(op, forward) : 0;
    return rc;
}

/* ---- hints ----------------------------------------------------------------------------------- */

struct index_hint race_hint(const struct race_view *view, const struct race_key *key)
{
    struct index_hint hint = index_hint_of(view->hints, RACE_SLOT, key->hash, key->fingerprint);
    if (!race_is_slot(hint.place)) /* HINT-H4: the place is of another note */
        hint.slot = 0;
    return hint;
}

void race_hint_note(struct race_view *view, const struct race_key *key, struct index_hint hint)
{
    ASSERT(hint.slot == 0 || hint.place < RACE_PLACES);
    /* Without the seal, as it will be in the child. So no hint is equal to a slot that was sealed
     * when it was read: by RACE-R5, such a slot may not be in use any more. */
    hint.slot = race_slot_unsealed(hint.slot);
    index_hint_note(view->hints, RACE_SLOT, key->hash, key->fingerprint, hint);
}

/* Are all of these on one node? Otherwise reading one behind the other takes two round trips. */
static bool on_one_node(const struct race_look *look, uint64_t slot,
                        const struct index_change *change)
{
    unsigned node = gaddr_node(look->subtable);
    bool writes = change && change->block.at != 0 && !change->written;
    return gaddr_node(pointer_gaddr(slot)) == node &&
           (!writes || gaddr_node(change->block.at) == node);
}

static bool some_sealed(const uint64_t *bucket)
{
    uint64_t all = 0;
    for (unsigned i = 1; i <= RACE_BUCKET_SLOTS; i++)
        all |= bucket[i];
    return (all & RACE_SLOT_SEALED) != 0;
}

/* Judges the bucket and the block that a peek has read. */
static int judge_peek(struct op *op, const struct race_view *view, const struct race_key *key,
                      const struct race_look *look, const struct index_probe *probe,
                      const struct index_block *block, bool changes, struct index_found *found)
{
    unsigned place = block->place;
    const uint64_t *bucket = look->words + (place & ~(RACE_BUCKET_WORDS - 1u));
    uint64_t word = look->words[place];
    if (bucket[0] != race_header_of(view, key->hash, look->depth))
        return FAR_OK;
    if (changes && some_sealed(bucket)) /* let the splitter have the rest of them */
        return FAR_OK;
    if (word == block->slot) {
        (void)index_probe_judge(probe, block, found);
        return FAR_OK;
    }
    /* By RACE-R3, the key is still here if it was only updated. */
    if (!race_slot_committed(word) || (word & RACE_SLOT_SEALED) ||
        slot_fingerprint(RACE_SLOT, word) != key->fingerprint)
        return FAR_OK;
    return index_probe(op, probe, look->words, 1ull << place, found);
}

int race_peek(struct op *op, struct race_view *view, const struct race_key *key,
              const struct index_hint *hint, const struct value_out *out,
              struct index_change *change, struct race_look *look, uint64_t *words,
              struct index_found *found)
{
    ASSERT(hint->slot != 0 && op->batch.count == 0);
    uint32_t bytes = size_class_bytes(pointer_class(hint->slot));
    struct index_probe probe = {.key = key->bytes, .format = RACE_SLOT, .out = out};
    struct index_block block = {.slot = hint->slot, .bytes = bytes, .place = hint->place};
    unsigned bucket = hint->place & ~(RACE_BUCKET_WORDS - 1u);

    *found = (struct index_found){.place = -1};
    int rc = race_find_subtable(view, key, look, words);
    void *image = op_buffer(op, BUF_BLOCK_IN, bytes);
    if (rc != FAR_OK || !image || !on_one_node(look, hint->slot, change))
        return rc;
    block.image = image;
    batch_read(&op->batch, look->subtable, race_place_offset(key, bucket), words + bucket,
               RACE_BUCKET_WORDS * 8);
    if (change)
        index_change_write(op, change);
    batch_fence(&op->batch); /* HINT-H1 */
    batch_read(&op->batch, pointer_gaddr(hint->slot), 0, image, bytes);
    batch_may_be_freed(&op->batch);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? FAR_OK : rc; /* the directory may have news: nothing was posted */
    if (change)
        change->written = true;
    return judge_peek(op, view, key, look, &probe, &block, change != NULL, found);
}

int race_get(struct op *op, struct index_view *base, struct slice bytes, struct value_out *out)
{
    struct race_view *view = race_view(base);
    struct race_key key;
    struct race_look look = {.strayed = 0};
    struct index_found found = {.place = -1};
    uint64_t stale = 0;
    uint64_t *words = op_buffer(op, BUF_INDEX, RACE_PLACES * 8);
    if (!words)
        return FAR_NO_MEMORY;
    race_hash(view, bytes, &key);

    struct index_hint hint = race_hint(view, &key);
    int rc = hint.slot ? race_peek(op, view, &key, &hint, out, NULL, &look, words, &found) : FAR_OK;
    if (rc != FAR_OK)
        return rc;
    for (unsigned attempts = 0; found.place < 0 && index_attempt(&attempts);) {
        bool again = false;
        rc = race_look_start(op, view, &key, &look, words);
        if (rc != FAR_OK)
            return rc;
        rc = race_look_finish(op, view, &key, &look, &again);
        if (rc != FAR_OK)
            return rc;
        if (again)
            continue;
        rc = race_probe(op, &key, &look, out, NULL, &found);
        if (rc != FAR_OK)
            return rc;
        if (look.forward != 0) { /* RACE-R5: what we saw may have been overtaken */
            rc = race_follow(view, look.entry, key.hash, look.forward);
            if (rc != FAR_OK)
                return rc;
            found.place = -1;
            continue;
        }
        if (found.place >= 0)
            break;
        if (found.stale == 0) {
            race_hint_note(view, &key, (struct index_hint){.slot = 0});
            return FAR_NOT_FOUND;
        }
        rc = index_found_stale(&found, &stale); /* RACE-R1 */
        if (rc != FAR_OK)
            return rc;
    }
    if (found.place < 0)
        return FAR_CONTENTION;
    if (found.slot != hint.slot || found.place != (int)hint.place)
        race_hint_note(view, &key,
                       (struct index_hint){.slot = found.slot,
                                           .place = (unsigned)found.place,
                                           .wrong = hint.slot != 0});
    return index_deliver(base, index_block_value(found.block), out);
}

void race_ahead(const struct op *op, const struct index_view *base, struct slice bytes,
                struct index_ahead *ahead)
{
    const struct race_view *view = (const struct race_view *)base;
    struct race_key key;
    race_hash(view, bytes, &key);
    gaddr subtable = race_entry_subtable(race_cached_entry(view, key.hash));
    struct index_hint hint = index_hint_peek(view->hints, RACE_SLOT, key.hash, key.fingerprint);
    if (hint.slot != 0 && race_is_slot(hint.place)) {
        unsigned bucket = hint.place & ~(RACE_BUCKET_WORDS - 1u);
        index_ahead_fetch(op, subtable, race_place_offset(&key, bucket), RACE_BUCKET_WORDS * 8);
        index_ahead_block(op, hint.slot);
        return;
    }
    ahead->mask = RACE_SLOT_TENTATIVE | slot_fingerprint_mask(RACE_SLOT);
    ahead->want = slot_fingerprint_word(RACE_SLOT, key.fingerprint);
    for (unsigned i = 0; i < 2; i++)
        index_ahead_words(op, ahead, subtable, key.combined[i], RACE_COMBINED_WORDS);
}
