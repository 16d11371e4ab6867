/*
 * Iterating: the subtables in an order that growth does not disturb.
 *
 * Take a key's hash with its bits reversed as its position. A subtable of depth d holds the keys
 * with one suffix of d bits, which is one interval of positions, of the 2^d that there are. A split
 * cuts its interval in two. So a cursor is a position where an interval begins, and stays one; all
 * keys before it have been returned. Within a subtable the cursor counts words. A split leaves keys
 * in their places (RACE-R7). So if the interval was cut, the first half goes on where the whole was
 * left. The second half is returned again from its beginning, which is allowed.
 *
 *   RACE-I1  What is returned was true when its slot was read. A slot that is not sealed was read
 *       before the children were published, while the subtable was authoritative. If one is sealed,
 *       `forward` is read behind it: if that is 0, the same holds (RACE-R5).
 *   RACE-I2  A block named by such a slot was not retired before this operation began. So it is
 *       whole (EPOCH-E3), or damaged (ITERATE-1).
 */
#include "index/iterate.h"
#include "index/race/race.h"

/* One call reads at most this many subtables. */
#define ITERATE_SUBTABLES 16

/* A cursor: position 32 | word 16, plus one, because 0 means "begin". */
#define CURSOR_WORD_BITS 16
#define POSITION_BITS    32

struct iteration {
    uint64_t position;
    unsigned word;   /* in the subtable: those before it have been returned */
    uint64_t suffix; /* of the subtable's keys, and perhaps more bits */
    uint64_t entry;
    uint64_t *image; /* the subtable, in BUF_BULK */
};

/* Reads the subtable that the position lies in. *again: it has been split. */
static int read_subtable(struct op *op, struct race_view *view, struct iteration *it, bool *again)
{
    uint32_t bytes = race_subtable_bytes(view->groups);
    uint64_t sealed = 0, forward = 0;

    it->suffix = index_reverse_bits(it->position, POSITION_BITS);
    it->entry = race_cached_entry(view, it->suffix);
    unsigned depth = race_entry_depth(it->entry);
    gaddr subtable = race_entry_subtable(it->entry);
    it->image = op_buffer(op, BUF_BULK, bytes);
    if (!it->image)
        return FAR_NO_MEMORY;
    if (it->entry == 0 || depth > view->dir_bits)
        return err_fail(FAR_CORRUPT, "a directory entry is damaged");
    batch_read(&op->batch, subtable, 0, it->image, bytes);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    const struct race_subtable_head *head = (const struct race_subtable_head *)it->image;
    if (head->header != race_header_of(view, it->suffix, depth))
        return err_fail(FAR_CORRUPT, "a subtable's header is damaged");
    for (unsigned i = RACE_HEAD_WORDS; i < bytes / 8; i++)
        sealed |= race_is_slot(i) ? it->image[i] : 0;
    if (!(sealed & RACE_SLOT_SEALED))
        return FAR_OK;
    rc = race_read_forward(op, subtable, &forward); /* RACE-I1 */
    *again = forward != 0;
    return *again ? race_follow(view, it->entry, it->suffix, forward) : rc;
}

/* Adds entries of the subtable from it->word on. *full: one did not fit. */
static int add_some(struct op *op, struct race_view *view, struct iteration *it,
                    struct entries_out *out, bool *full)
{
    struct index_blocks blocks;
    unsigned end = race_subtable_words(view->groups);
    index_iterate_start(&blocks, op, out);
    for (; it->word < end; it->word++) {
        uint64_t slot = it->image[it->word];
        if (race_is_slot(it->word) && race_slot_committed(slot) &&
            !index_iterate_slot(op, &blocks, out, slot, it->word))
            break;
    }
    /* RACE-I2 */
    return index_iterate_add(op, &view->base, RACE_SLOT, &blocks, out, &it->word, full);
}

static uint64_t cursor_of(const struct iteration *it)
{
    return (it->position << CURSOR_WORD_BITS | it->word) + 1;
}

int race_iterate(struct op *op, struct index_view *base, struct entries_out *out)
{
    struct race_view *view = race_view(base);
    uint64_t at = out->cursor == 0 ? 0 : out->cursor - 1;
    struct iteration it = {.position = at >> CURSOR_WORD_BITS,
                           .word = at & ((1u << CURSOR_WORD_BITS) - 1)};
    unsigned end = race_subtable_words(view->groups);
    bool full = false;

    if (it.position >> POSITION_BITS != 0 || it.word > end)
        return err_fail(FAR_INVALID, "the cursor does not belong to this table");
    uint64_t turns = index_iterate_parts(op->pool, ITERATE_SUBTABLES);
    for (unsigned turn = 0; turn < turns && !full; turn++) {
        bool again = false;
        int rc = read_subtable(op, view, &it, &again);
        if (index_iterate_passes(op, out, rc)) {
            rc = FAR_OK;
            it.word = end;
        }
        if (it.word < RACE_HEAD_WORDS)
            it.word = RACE_HEAD_WORDS;
        while (rc == FAR_OK && !again && !full && it.word < end)
            rc = add_some(op, view, &it, out, &full);
        if (rc != FAR_OK)
            return rc;
        if (again || full)
            continue;
        uint64_t size = 1ull << (POSITION_BITS - race_entry_depth(it.entry));
        it = (struct iteration){.position = (it.position / size + 1) * size};
        if (it.position >> POSITION_BITS != 0) {
            out->cursor = 0;
            return FAR_OK;
        }
    }
    if (full && out->count == 0)
        return FAR_TOO_SMALL;
    out->cursor = cursor_of(&it);
    return FAR_OK;
}
