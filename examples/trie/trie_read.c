/* Looking for a key: node by node, then its block. And iterating. */
#include "trie/trie.h"
#include "index/iterate.h"

void trie_hash(const struct trie_view *view, struct slice bytes, struct trie_key *key)
{
    const struct knobs *knobs = &view->base.table->pool->knobs;
    uint64_t hash = hash_key(bytes.data, bytes.len, view->base.table->desc.hash_seed).lo;
    *key = (struct trie_key){.bytes = bytes,
                             .hash = hash,
                             .fingerprint = (uint8_t)(hash >> 56) & knobs->fingerprint_mask};
    for (unsigned level = 0; level < view->levels; level++) {
        uint64_t mixed = trie_mix(hash, level) & knobs->hash_mask;
        key->position |= mixed % view->words << trie_shift(view, level);
    }
}

/* ---- nodes that the session knows ------------------------------------------------------------ */

static gaddr known_at(const struct trie_view *view, uint64_t id)
{
    const struct trie_known *known = &view->known[id % TRIE_KNOWN];
    return known->id == id ? known->at : 0;
}

static void step(const struct trie_view *view, struct trie_look *look, gaddr node)
{
    look->id = trie_child_id(look->id, trie_look_digit(view, look));
    look->node = node;
    look->level++;
}

void trie_look_step(struct trie_view *view, struct trie_look *look, gaddr node)
{
    step(view, look, node);
    struct trie_known *known = &view->known[look->id % TRIE_KNOWN];
    /* Most paths share the upper levels. If the view was refreshed since, the node may be one that
     * a repair has cut off. */
    if ((known->id == 0 || look->level <= known->level) && look->refreshes == view->base.refreshes)
        *known = (struct trie_known){.id = look->id, .at = node, .level = look->level};
}

int trie_look_start(struct op *op, const struct trie_view *view, uint64_t position,
                    unsigned deepest, struct trie_look *look)
{
    *look = (struct trie_look){.position = position,
                               .node = view->root.first,
                               .id = trie_first_id(view->base.table->desc.hash_seed),
                               .image = op_buffer(op, BUF_INDEX, view->bytes),
                               .refreshes = view->base.refreshes};
    if (!look->image)
        return FAR_NO_MEMORY;
    while (look->level < deepest) {
        gaddr at = known_at(view, trie_child_id(look->id, trie_look_digit(view, look)));
        if (at == 0)
            break;
        step(view, look, at);
    }
    return FAR_OK;
}

/* ---- looking --------------------------------------------------------------------------------- */

int trie_descend(struct op *op, struct trie_view *view, struct trie_look *look)
{
    for (;;) {
        batch_read(&op->batch, look->node, 0, look->image, view->bytes);
        int rc = batch_flush(&op->batch);
        if (rc == FAR_BOUNDS || (rc == FAR_OK && look->image[0] != look->id)) /* TRIE-T6 */
            return err_fail(FAR_CORRUPT, "a word leads to what is no node of the table");
        if (rc != FAR_OK)
            return rc;
        look->word = look->image[1 + trie_look_digit(view, look)];
        if (!trie_is_node(look->word))
            return FAR_OK;
        if (look->level + 1 == view->levels)
            return err_fail(FAR_CORRUPT, "a path is longer than any can be");
        trie_look_step(view, look, trie_node_at(look->word));
    }
}

int trie_find(struct op *op, struct trie_view *view, const struct trie_key *key,
              const struct value_out *out, struct trie_look *look, struct index_found *found)
{
    struct index_probe probe = {.key = key->bytes, .format = TRIE_SLOT, .out = out};
    *found = (struct index_found){.place = -1};
    int rc = trie_descend(op, view, look);
    if (rc != FAR_OK || look->word == 0 ||
        slot_fingerprint(TRIE_SLOT, look->word) != key->fingerprint)
        return rc;
    rc = index_probe(op, &probe, &look->word, 1, found);
    if (rc == FAR_OK && found->stale != 0) /* the word was in use when it was read: PTR-1 */
        rc = err_fail(FAR_CORRUPT, "a key-value block fails its checksum");
    return rc;
}

int trie_peek(struct op *op, struct trie_view *view, const struct trie_key *key,
              const struct value_out *out, struct index_change *change, struct trie_look *look,
              struct index_found *found)
{
    struct index_hint hint = index_hint_of(view->hints, TRIE_SLOT, key->hash, key->fingerprint);
    struct index_probe probe = {.key = key->bytes, .format = TRIE_SLOT, .out = out};
    struct index_block block = {.slot = hint.slot,
                                .bytes = size_class_bytes(pointer_class(hint.slot))};
    *found = (struct index_found){.place = -1};
    if (hint.slot == 0)
        return FAR_OK;
    void *image = op_buffer(op, BUF_BLOCK_IN, block.bytes);
    int rc = image ? trie_look_start(op, view, key->position, hint.place, look) : FAR_NO_MEMORY;
    /* The session may have forgotten the node. And a block on another memory node would cost a
     * round trip more, and that node may be away. */
    if (rc != FAR_OK || look->level != hint.place ||
        gaddr_node(look->node) != gaddr_node(pointer_gaddr(hint.slot)))
        return rc;
    block.image = image;
    batch_read(&op->batch, look->node, 0, look->image, view->bytes);
    if (change)
        index_change_write(op, change);
    batch_fence(&op->batch); /* HINT-H1 */
    batch_read(&op->batch, pointer_gaddr(hint.slot), 0, image, block.bytes);
    batch_may_be_freed(&op->batch);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? FAR_OK : rc; /* nothing was posted */
    if (change)
        change->written = true;
    look->word = look->image[1 + trie_look_digit(view, look)];
    if (look->image[0] == look->id && look->word == hint.slot)
        (void)index_probe_judge(&probe, &block, found);
    return FAR_OK;
}

void trie_note(struct trie_view *view, const struct trie_key *key, uint64_t slot, unsigned level)
{
    index_hint_note(view->hints, TRIE_SLOT, key->hash, key->fingerprint,
                    (struct index_hint){.slot = slot, .place = level});
}

int trie_get(struct op *op, struct index_view *base, struct slice bytes, struct value_out *out)
{
    struct trie_view *view = trie_view(base);
    struct trie_key key;
    struct trie_look look;
    struct index_found found;
    trie_hash(view, bytes, &key);
    int rc = trie_peek(op, view, &key, out, NULL, &look, &found);
    if (rc != FAR_OK || found.place >= 0)
        return rc == FAR_OK ? index_deliver(base, index_block_value(found.block), out) : rc;
    rc = trie_look_start(op, view, key.position, view->levels, &look);
    if (rc == FAR_OK)
        rc = trie_find(op, view, &key, out, &look, &found);
    if (rc != FAR_OK)
        return rc;
    trie_note(view, &key, found.slot, look.level);
    return found.place >= 0 ? index_deliver(base, index_block_value(found.block), out)
                            : FAR_NOT_FOUND;
}

/* ---- iterating ------------------------------------------------------------------------------- */

#define ITERATE_NODES 64 /* that one call reads, at most */

/* The position with another digit at that level, and zeros below. */
static uint64_t with_digit(const struct trie_view *view, uint64_t position, unsigned level,
                           uint64_t digit)
{
    unsigned shift = trie_shift(view, level);
    return (position >> shift >> view->bits << view->bits | digit) << shift;
}

/* Goes on behind a word, with all below it. False: it was the last one of the table. */
static bool go_past(const struct trie_view *view, uint64_t *position, unsigned level)
{
    for (;; level--) {
        unsigned next = trie_digit(view, *position, level) + 1;
        *position = with_digit(view, *position, level, next % view->words);
        if (next < view->words)
            return true;
        if (level == 0)
            return false;
    }
}

static bool is_position(const struct trie_view *view, uint64_t position)
{
    for (unsigned level = 0; level < view->levels; level++)
        if (trie_digit(view, position, level) >= view->words)
            return false;
    return position >> TRIE_POSITION_BITS == 0;
}

/* Adds the entries of a node from the position on, up to the next word that names a node. */
static int add_some(struct op *op, struct trie_view *view, const struct trie_look *look,
                    struct entries_out *out, uint64_t *position, bool *more, bool *full)
{
    struct index_blocks blocks;
    const uint64_t *words = look->image + 1;
    unsigned next = trie_look_digit(view, look);
    index_iterate_start(&blocks, op, out);
    for (; next < view->words && !trie_is_node(words[next]); next++)
        if (words[next] != 0 && !index_iterate_slot(op, &blocks, out, words[next], next))
            break;
    int rc = index_iterate_add(op, &view->base, TRIE_SLOT, &blocks, out, &next, full);
    if (next < view->words)
        *position = with_digit(view, *position, look->level, next);
    else
        *more = look->level > 0 && go_past(view, position, look->level - 1);
    return rc;
}

/* A word that becomes a node keeps its interval of positions. So growth disturbs no cursor: no key
 * that stays is left out, and none is returned twice. */
int trie_iterate(struct op *op, struct index_view *base, struct entries_out *out)
{
    struct trie_view *view = trie_view(base);
    uint64_t position = out->cursor == 0 ? 0 : out->cursor - 1;
    uint64_t turns = index_iterate_parts(op->pool, ITERATE_NODES);
    bool more = true, full = false;
    if (!is_position(view, position))
        return err_fail(FAR_INVALID, "the cursor does not belong to this table");
    for (unsigned turn = 0; turn < turns && more && !full; turn++) {
        struct trie_look look;
        int rc = trie_look_start(op, view, position, view->levels, &look);
        if (rc == FAR_OK)
            rc = trie_descend(op, view, &look);
        if (index_iterate_passes(op, out, rc) && look.level > 0) {
            more = go_past(view, &position, look.level - 1);
            continue;
        }
        if (rc == FAR_OK)
            rc = add_some(op, view, &look, out, &position, &more, &full);
        if (rc != FAR_OK)
            return rc;
    }
    if (full && out->count == 0)
        return FAR_TOO_SMALL;
    out->cursor = more ? position + 1 : 0;
    return FAR_OK;
}
