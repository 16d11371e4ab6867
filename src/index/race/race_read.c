/* Looking for a key: two combined buckets in one round trip, the candidate's block in another, or in
 * the same one if there is a hint of it. */
#include "index/race/race.h"

int race_look_start(struct op *op, struct race_view *view, const struct race_key *key,
                    struct race_look *look, uint64_t *words)
{
    look->entry = race_cached_entry(view, key->hash);
    look->subtable = race_entry_subtable(look->entry);
    look->depth = race_entry_depth(look->entry);
    look->words = words;
    look->sealed = false;
    look->ahead.slot = 0;
    if (look->entry == 0 || look->depth > view->dir_bits)
        return err_fail(FAR_CORRUPT, "a directory entry is damaged");
    for (unsigned i = 0; i < 2; i++)
        batch_read(&op->batch, look->subtable, key->combined[i], words + i * RACE_COMBINED_WORDS,
                   RACE_COMBINED_BYTES);
    return FAR_OK;
}

void race_look_ahead(struct op *op, const struct race_view *view, const struct race_key *key,
                     struct race_look *look)
{
    index_hint_read(op, &view->hints, RACE_SLOT, key->hash, key->fingerprint, &look->ahead);
}

void race_look_note(struct race_view *view, const struct race_key *key, uint64_t slot)
{
    /* Without the seal, as it will be in the child. So no hint is equal to a slot that was sealed
     * when it was read: by RACE-R5, such a slot may not be in use any more. */
    index_hint_note(&view->hints, RACE_SLOT, key->hash, key->fingerprint, slot & ~RACE_SLOT_SEALED);
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
                        (uint64_t)fingerprint << RACE_SLOT.fingerprint_at);
    return bits & RACE_SLOT_PLACES;
}

int race_probe(struct op *op, const struct race_key *key, struct race_look *look,
               const struct value_out *out, const uint64_t *known, struct index_found *found)
{
    struct index_probe probe = {
        .key = key->bytes, .format = RACE_SLOT, .out = out, .may_be_freed = look->sealed};
    unsigned forward = 0;
    uint64_t judged = 0;

    look->forward = 0;
    /* Not in a second look, whose words were read after the block (HINT-H1). */
    if (!known && look->ahead.slot != 0 &&
        index_hint_holds(&probe, &look->ahead, look->words, RACE_SLOT_PLACES, found, &judged))
        return FAR_OK;
    uint64_t left = candidates(look->words, key->fingerprint) & ~judged;
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

int race_get(struct op *op, struct index_view *base, struct slice bytes, struct value_out *out)
{
    struct race_view *view = race_view(base);
    struct race_key key;
    struct race_look look = {.strayed = 0};
    struct index_found found;
    uint64_t stale = 0;
    uint64_t *words = op_buffer(op, BUF_INDEX, RACE_PLACES * 8);
    if (!words)
        return FAR_NO_MEMORY;
    race_hash(view, bytes, &key);

    for (unsigned attempts = 0; index_attempt(&attempts);) {
        bool again = false;
        int rc = race_look_start(op, view, &key, &look, words);
        if (rc != FAR_OK)
            return rc;
        race_look_ahead(op, view, &key, &look);
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
            continue;
        }
        if (found.place >= 0) {
            race_look_note(view, &key, found.slot);
            return index_deliver(base, index_block_value(found.block), out);
        }
        if (found.stale == 0) {
            race_look_note(view, &key, 0);
            return FAR_NOT_FOUND;
        }
        rc = index_found_stale(&found, &stale); /* RACE-R1 */
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_CONTENTION;
}
