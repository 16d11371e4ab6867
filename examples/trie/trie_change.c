/* Changing a key, and growing. index/change.h has the blocks: when they are written and given
 * back. */
#include "trie/trie.h"

struct work {
    struct trie_key key;
    struct trie_look look;
    struct index_found found;
    struct index_change change;
    uint64_t now;  /* the key's slot as this operation knows it; 0: it has none */
    unsigned lost; /* CASes that met another word than was expected */
};

static unsigned near_node(const struct work *w)
{
    return gaddr_node(w->look.node);
}

static uint64_t slot_word(const struct work *w)
{
    return slot_make(TRIE_SLOT, &w->change.block, w->key.fingerprint);
}

/* Puts the new block, or nothing, in the place of what was found. TRIE-T5 */
static int replace(struct op *op, const struct trie_view *view, struct work *w, bool *done)
{
    uint64_t new = w->change.block.at ? slot_word(w) : 0;
    index_change_write_first(op, &w->change); /* TRIE-T1 */
    unsigned n = op_cas(op, MARK_PUBLISH, w->look.node,
                        trie_word_offset(trie_look_digit(view, &w->look)), w->found.slot, new);
    int rc = op_decided(op, batch_flush(&op->batch));
    *done = op_swapped(op, n);
    if (w->found.slot != 0)
        index_change_replaced(op, &w->found, *done, rc);
    w->now = new;
    w->lost += !*done;
    return rc;
}

/* Reads the key of the block that the word names: it is another one than ours. */
static int read_other(struct op *op, const struct trie_view *view, uint64_t word,
                      struct trie_key *key)
{
    struct index_blocks blocks;
    index_blocks_start(&blocks, op, INDEX_BLOCKS_BYTES);
    index_blocks_add(&blocks, word, index_block_key_bytes(word), 0);
    int rc = index_blocks_read(op, &blocks, false);
    if (rc == FAR_BOUNDS || (rc == FAR_OK && !index_block_whole(&blocks.block[0], TRIE_SLOT)))
        return err_fail(FAR_CORRUPT, "a word leads to no key-value block");
    if (rc != FAR_OK)
        return rc;
    const struct block_head *h = blocks.block[0].image;
    trie_hash(view, (struct slice){block_key(h), h->klen}, key);
    return FAR_OK;
}

/* Fills the image of the node that is to take the place of the word. *both: it has our key, too. */
static void fill_node(const struct trie_view *view, const struct work *w, uint64_t other,
                      uint64_t *image, bool *both)
{
    unsigned level = w->look.level + 1;
    uint64_t *words = image + 1, *mine = &words[trie_digit(view, w->key.position, level)];
    memset(image, 0, view->bytes);
    image[0] = trie_child_id(w->look.id, trie_look_digit(view, &w->look));
    words[trie_digit(view, other, level)] = w->look.word;
    *both = *mine == 0;
    if (*both)
        *mine = slot_word(w);
}

/* Writes the node, and puts it in the place of the word. */
static int publish_node(struct op *op, const struct trie_view *view, struct work *w, gaddr at,
                        const uint64_t *image, bool *swapped)
{
    const struct trie_look *look = &w->look;
    batch_write(&op->batch, MARK_EARLY, at, 0, image, view->bytes);
    /* This comes back behind the WRITE. So others see the node even if FABRIC-F4 does not hold. */
    op_read(op, at, 0);
    index_change_write_first(op, &w->change);
    batch_fence(&op->batch); /* TRIE-T1 */
    unsigned n = op_cas(op, MARK_PUBLISH, look->node, trie_word_offset(trie_look_digit(view, look)),
                        look->word, trie_node_word(at));
    int rc = op_decided(op, batch_flush(&op->batch));
    *swapped = rc == FAR_OK && op_swapped(op, n);
    if (rc != FAR_OK && !status_means(rc, STATUS_SETTLED))
        pool_abandon(op->client, view->size_class); /* a word may name it, or will */
    else if (!*swapped)
        pool_free_unpublished(op->client, at, view->size_class);
    return rc;
}

/* TRIE-T4. *done if the new node has our key as well. */
static int grow(struct op *op, struct trie_view *view, struct work *w, bool *done)
{
    bool both = false, swapped = false;
    struct trie_key other;
    gaddr at = 0;
    if (w->look.level + 1 == view->levels)
        return err_fail(FAR_TABLE_FULL, "two keys have one place at all %u levels", view->levels);
    uint64_t *image = op_buffer(op, BUF_BULK, view->bytes);
    int rc = image ? read_other(op, view, w->look.word, &other) : FAR_NO_MEMORY;
    if (rc != FAR_OK)
        return rc;
    fill_node(view, w, other.position, image, &both);
    rc = pool_alloc(op, (unsigned)(image[0] % op->pool->nodes), view->size_class, &at);
    if (rc == FAR_OK)
        rc = publish_node(op, view, w, at, image, &swapped);
    w->lost += !swapped;
    if (rc != FAR_OK || !swapped)
        return rc;
    index_grew(&view->base, w->look.node, &at, 1, 0); /* nodes need not be full */
    trie_look_step(view, &w->look, at);
    w->now = slot_word(w);
    *done = both;
    return FAR_OK;
}

/* The key has been looked for. */
static int act(struct op *op, struct trie_view *view, struct work *w, bool *done)
{
    enum change_action action;
    w->now = w->found.slot;
    int rc = index_change_resolve(op, &view->base, &w->change, &w->found, near_node(w), &action);
    if (rc != FAR_OK)
        return rc;
    bool taken = w->found.place < 0 && w->look.word != 0; /* by another key */
    return taken ? grow(op, view, w, done) : replace(op, view, w, done);
}

static int attempt(struct op *op, struct trie_view *view, struct work *w, bool *done)
{
    int rc = trie_look_start(op, view, w->key.position, view->levels, &w->look);
    if (rc != FAR_OK)
        return rc;
    index_change_write(op, &w->change);
    rc = trie_find(op, view, &w->key, index_change_out(&w->change), &w->look, &w->found);
    if (rc != FAR_OK)
        return rc;
    w->change.written = true;
    return act(op, view, w, done);
}

/* HINT-H2: changes the word that this session has written itself, without a look. */
static int act_at_once(struct op *op, struct trie_view *view, struct work *w, bool *done)
{
    enum change_action action = w->change.want->present;
    if (action != CHANGE_STORE && action != CHANGE_REMOVE)
        return FAR_OK;
    struct index_hint own = index_own_of(&view->owns, op, w->key.hash, w->key.bytes);
    if (own.slot == 0)
        return FAR_OK;
    int rc = trie_look_start(op, view, w->key.position, own.place, &w->look);
    if (rc != FAR_OK || w->look.level != own.place)
        return rc; /* the session has forgotten the node */
    w->found = (struct index_found){.place = 0, .slot = own.slot};
    rc = replace(op, view, w, done);
    if (rc == FAR_OK && !*done)
        index_own_lost(&view->owns, w->key.hash, w->key.bytes);
    w->lost = 0; /* the word that it met may be old: no reason to pause */
    return rc;
}

/* Remembers where the key is now, and the word if it is ours. */
static void note(struct op *op, struct trie_view *view, const struct work *w, int rc)
{
    trie_note(view, &w->key, w->now, w->look.level);
    if (rc == FAR_OK || w->now == 0)
        index_own_note(&view->owns, op, w->key.hash, w->key.bytes, w->found.slot,
                       (struct index_hint){.slot = w->now, .place = w->look.level});
}

int trie_change(struct op *op, struct index_view *base, struct slice key, struct change *change)
{
    struct trie_view *view = trie_view(base);
    struct work w = {.change = {.key = key, .want = change}};
    bool done = false;
    trie_hash(view, key, &w.key);
    int rc = trie_look_start(op, view, w.key.position, view->levels, &w.look);
    if (rc == FAR_OK && index_change_known(&w.change))
        rc = index_change_prepare(op, &w.change, near_node(&w));
    if (rc != FAR_OK)
        return rc;
    rc = act_at_once(op, view, &w, &done);
    if (rc == FAR_OK && !done)
        rc = trie_peek(op, view, &w.key, index_change_out(&w.change), &w.change, &w.look, &w.found);
    if (rc == FAR_OK && !done && w.found.place >= 0)
        rc = act(op, view, &w, &done);
    for (unsigned attempts = w.lost;
         rc == FAR_OK && !done && index_attempt_after_pause(op, &attempts, w.lost);)
        rc = attempt(op, view, &w, &done);
    if (rc == FAR_OK && !done)
        rc = FAR_CONTENTION;
    if (rc == FAR_OK || status_means(rc, STATUS_ANSWER))
        note(op, view, &w, rc);
    return index_change_end(op, &w.change, rc);
}
