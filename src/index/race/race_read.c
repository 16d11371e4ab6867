/* Looking for a key: two combined buckets in one round trip, the candidate's block in another. */
#include "index/race/race.h"

#include <string.h>

/* Blocks of one probe are read together up to this many bytes, the rest in further batches. */
#define PROBE_BYTES (256u * 1024)

int race_look_start(struct op *op, struct race_view *view, const struct race_key *key,
                    struct race_look *look, uint64_t *words)
{
    look->entry = view->entries[key->hash & ((1ull << view->depth) - 1)];
    look->subtable = race_entry_subtable(look->entry);
    look->depth = race_entry_depth(look->entry);
    look->words = words;
    look->sealed = false;
    if (look->entry == 0 || look->depth > view->dir_bits)
        return err_fail(FAR_CORRUPT, "a directory entry is damaged");
    for (unsigned i = 0; i < 2; i++)
        batch_read(&op->batch, look->subtable, key->combined[i], words + i * RACE_COMBINED_WORDS,
                   RACE_COMBINED_BYTES);
    return FAR_OK;
}

int race_look_finish(struct op *op, struct race_view *view, const struct race_key *key,
                     struct race_look *look, bool *again)
{
    uint64_t suffix = key->hash & ((1ull << look->depth) - 1);
    uint64_t header = race_header(view->tag, look->depth, suffix), wrong = 0, sealed = 0;
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
    if (view->entries[key->hash & ((1ull << view->depth) - 1)] == look->entry)
        return err_fail(FAR_CORRUPT, "a bucket's header is not that of its subtable");
    if (++look->astray > RACE_REFRESHES)
        return err_fail(FAR_CORRUPT, "a subtable forwards to what is no part of the table");
    *again = true;
    return FAR_OK;
}

/* How much of a slot's block is read: all of it if it is short, or if its value may be wanted and may
 * fit, else what tells its key (BLOCK-B1). */
static uint32_t probe_bytes(uint64_t word, const struct race_key *key, const struct value_out *out)
{
    unsigned size_class = race_slot_class(word);
    uint32_t bytes = size_class_bytes(size_class);
    if (!block_class_long(size_class))
        return bytes;
    size_t head = block_key_at(true) + key->bytes.len;
    /* A block of this class has more bytes than one of the class below. */
    if (out && !out->skip &&
        (out->cap >= bytes || size_class_bytes(size_class - 1) < head + out->cap))
        return bytes;
    return (uint32_t)((head + 63) & ~(size_t)63);
}

static enum block_verdict probe_judge(uint64_t word, const struct race_key *key, const void *image,
                                      uint32_t read, const struct value_out *out)
{
    uint32_t bytes = size_class_bytes(race_slot_class(word));
    const struct slice *k = &key->bytes;
    if (read == bytes)
        return block_judge(image, bytes, race_slot_generation(word), k->data, k->len);
    enum block_verdict verdict =
        block_judge_head(image, bytes, race_slot_generation(word), k->data, k->len);
    /* A value that is wanted, fits and was not read: the slot's class is not that of the block. */
    if (verdict == BLOCK_MATCH && out && !out->skip &&
        ((const struct block_head *)image)->vlen <= out->cap)
        return BLOCK_STALE;
    return verdict;
}

/* Reads the blocks of the candidates from *next on, as many as fit, and judges them. */
static int probe_some(struct op *op, const struct race_key *key, const struct race_look *look,
                      const struct value_out *out, const uint8_t *place, unsigned count,
                      unsigned *next, struct race_found *found)
{
    unsigned first = *next, end = first;
    size_t bytes = 0, at = 0;

    for (; end < count; end++) {
        size_t more = probe_bytes(look->words[place[end]], key, out);
        if (end > first && bytes + more > PROBE_BYTES)
            break;
        bytes += more;
    }
    char *image = op_buffer(op, BUF_BLOCK_IN, bytes);
    if (!image) {
        (void)batch_flush(&op->batch); /* the READ of `forward` may be in it, for nothing now */
        return FAR_NO_MEMORY;
    }
    for (unsigned i = first; i < end; i++) {
        uint64_t word = look->words[place[i]];
        uint32_t size = probe_bytes(word, key, out);
        batch_read(&op->batch, race_slot_gaddr(word), 0, image + at, size);
        if (look->sealed) /* RACE-R5: `forward`, read along, tells whether it was too late */
            batch_may_be_freed(&op->batch);
        at += size;
    }
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "a slot points outside the pool") : rc;

    for (unsigned i = first; i < end; i++) {
        uint64_t word = look->words[place[i]];
        uint32_t size = probe_bytes(word, key, out);
        switch (probe_judge(word, key, image, size, out)) {
        case BLOCK_MATCH:
            found->place = place[i];
            found->word = word;
            found->block = image;
            *next = count;
            return FAR_OK;
        case BLOCK_STALE:
            found->stale = word;
            break;
        case BLOCK_OTHER:
            break;
        }
        image += size;
    }
    *next = end;
    return FAR_OK;
}

/* The places, as bits, of slots that have the fingerprint and are not tentative. */
static uint32_t candidates(const uint64_t *words, uint8_t fingerprint)
{
    const uint64_t mask = RACE_SLOT_TENTATIVE | 0xffull << RACE_SLOT_FINGERPRINT;
    const uint64_t want = (uint64_t)fingerprint << RACE_SLOT_FINGERPRINT;
    uint32_t bits = 0;
    for (unsigned i = 0; i < RACE_PLACES; i++)
        bits |= (uint32_t)(((words[i] ^ want) & mask) == 0) << i;
    return bits & 0xfefefefeu; /* every eighth is a header */
}

int race_probe(struct op *op, const struct race_key *key, const struct race_look *look,
               const struct value_out *out, const uint64_t *known, struct race_found *found)
{
    uint8_t place[RACE_PLACES];
    unsigned count = 0, next = 0;
    int rc = FAR_OK;

    *found = (struct race_found){.place = -1};
    for (uint32_t left = candidates(look->words, key->fingerprint); left; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        uint64_t word = look->words[i];
        if (race_slot_empty(word) || (known && known[i] == word))
            continue;
        if (race_slot_gaddr(word) == 0)
            found->stale = word; /* as damaged as if it led to nothing whole */
        else
            place[count++] = (uint8_t)i;
    }
    if (look->sealed)
        batch_read(&op->batch, look->subtable, offsetof(struct race_subtable_head, forward),
                   op->word, 8);
    if (count == 0)
        rc = batch_flush(&op->batch);
    while (next < count && rc == FAR_OK)
        rc = probe_some(op, key, look, out, place, count, &next, found);
    if (rc == FAR_OK && look->sealed)
        found->forward = op->word[0];
    return rc;
}

int race_get(struct op *op, struct index_view *base, struct slice bytes, struct value_out *out)
{
    struct race_view *view = race_view(base);
    struct race_key key;
    struct race_look look = {.astray = 0};
    struct race_found found;
    uint64_t stale = 0;
    uint64_t *words = op_buffer(op, BUF_INDEX, RACE_PLACES * 8);
    if (!words)
        return FAR_NO_MEMORY;
    race_hash(view, bytes, &key);

    for (unsigned attempts = 0; index_attempt(&attempts);) {
        bool again = false;
        int rc = race_look_start(op, view, &key, &look, words);
        if (rc == FAR_OK)
            rc = race_look_finish(op, view, &key, &look, &again);
        if (rc != FAR_OK)
            return rc;
        if (again)
            continue;
        rc = race_probe(op, &key, &look, out, NULL, &found);
        if (rc != FAR_OK)
            return rc;
        if (found.forward != 0) { /* RACE-R5: what we saw may have been overtaken */
            rc = race_follow(view, look.entry, key.hash, found.forward);
            if (rc != FAR_OK)
                return rc;
            continue;
        }
        if (found.place >= 0)
            return index_deliver(base, index_block_value(found.block), out);
        if (found.stale == 0)
            return FAR_NOT_FOUND;
        /* RACE-R1: while a slot names a block, the block is whole. */
        if (found.stale == stale)
            return err_fail(FAR_CORRUPT, "a key-value block fails its checksum");
        stale = found.stale;
    }
    return FAR_CONTENTION;
}
