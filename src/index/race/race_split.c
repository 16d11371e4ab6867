/*
 * Splitting a subtable (RACE-R5, RACE-R6, RACE-R7): claim, seal, sort into two children, publish
 * them by one CAS, update the directory.
 *
 * Everything before the publishing CAS can be done by several clients at once, or left undone by
 * one that dies. Everything after it is advice.
 */
#include "index/lock_wait.h"
#include "index/race/race.h"

#include <string.h>

/* What a splitter reads of each block at first: the head and, mostly, the key. */
#define GLANCE_BYTES 64

struct split {
    const struct race_look *look;
    unsigned words; /* of a subtable */
    unsigned size_class;
    unsigned occupied;           /* slots of the parent */
    uint64_t refreshes;          /* of the cache, when it learned of the split */
    uint64_t *parent, *image[2]; /* in BUF_BULK */
    gaddr child[2];
    struct journal journal;
};

static int allocate(struct op *op, struct split *s)
{
    gaddr *child = s->child;
    int rc = pool_alloc(op, gaddr_node(s->look->subtable), s->size_class, &child[0]);
    if (rc != FAR_OK)
        return rc;
    for (unsigned attempt = 0; attempt < op->pool->nodes; attempt++) {
        rc = pool_alloc(op, gaddr_node(child[0]), s->size_class, &child[1]);
        if (rc == FAR_OK && gaddr_node(child[1]) == gaddr_node(child[0]))
            return FAR_OK;
        /* The first child's node had no room for both: try where the second found some. */
        pool_free_unpublished(op->client, child[0], s->size_class);
        if (rc != FAR_OK)
            return rc;
        child[0] = child[1];
    }
    pool_free_unpublished(op->client, child[0], s->size_class);
    return err_fail(FAR_POOL_FULL, "no node has room for two subtables");
}

static void free_children(struct op *op, struct split *s)
{
    for (unsigned i = 0; i < 2; i++)
        pool_free_unpublished(op->client, s->child[i], s->size_class);
}

/* Once slots are sealed, others need memory for the split. If we do not split, ours is left to a
 * sweep. Nor is it free if the children may have been published. */
static void abandon_children(struct op *op, struct split *s)
{
    for (unsigned i = 0; i < 2; i++)
        pool_abandon(op->client, s->size_class);
}

/* Seals what is not sealed yet; *left counts the slots that others have changed meanwhile. */
static int seal_round(struct op *op, struct split *s, unsigned *left)
{
    unsigned place[BATCH_MAX] = {0};
    *left = 0;
    for (unsigned i = RACE_HEAD_WORDS; i < s->words;) {
        for (; i < s->words && batch_room(&op->batch) > 0; i++) {
            uint64_t word = s->parent[i];
            if (!race_is_slot(i) || (word & RACE_SLOT_SEALED))
                continue;
            place[op_cas(op, MARK_PUBLISH, s->look->subtable, i * 8, word,
                         race_slot_sealed(word))] = i;
        }
        unsigned posted = op->batch.count;
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        for (unsigned n = 0; n < posted; n++) {
            uint64_t *word = &s->parent[place[n]];
            uint64_t found = op_result(op, n);
            *word = found == *word ? race_slot_sealed(found) : found;
            *left += !(*word & RACE_SLOT_SEALED);
        }
    }
    return FAR_OK;
}

static int seal(struct op *op, struct split *s)
{
    unsigned left = 0;
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        int rc = seal_round(op, s, &left);
        if (rc != FAR_OK || left == 0)
            return rc;
    }
    return FAR_CONTENTION;
}

static bool within_pool(const struct op *op, gaddr at, uint32_t bytes)
{
    unsigned node = gaddr_node(at);
    return node < op->pool->nodes && bytes <= pool_head(op->pool, node)->size &&
           gaddr_offset(at) <= pool_head(op->pool, node)->size - bytes;
}

/* If it is not known where a slot belongs, it goes to both children: there, as in the parent, its
 * key is damaged, and not absent. */
static void put_in_both(struct split *s, unsigned place)
{
    s->image[0][place] = s->image[1][place] = race_slot_unsealed(s->parent[place]);
}

/* Puts a slot into the child that its key belongs to. `bytes` of the block were read. A damaged
 * pointer may lead anywhere, also to memory that changes between two reads. */
static void put_in_child(struct race_view *view, struct split *s, unsigned place, const void *image,
                         uint32_t bytes)
{
    const struct block_head *h = image;
    struct race_key key = {.hash = 0};
    bool readable = h->klen > 0 && block_key_end(h) <= bytes;
    if (readable)
        race_hash(view, (struct slice){block_key(image), h->klen}, &key);
    if (readable && key.fingerprint == slot_fingerprint(RACE_SLOT, s->parent[place]))
        s->image[(key.hash >> s->look->depth) & 1][place] = race_slot_unsealed(s->parent[place]);
    else
        put_in_both(s, place);
}

/* Puts slots into the children, by the hash of the key that each points to. `glances`: their
 * blocks, GLANCE_BYTES of each. No block is read further than its key: it may be the last of the
 * pool. */
static int sort_some(struct op *op, struct race_view *view, struct split *s,
                     struct index_blocks *glances)
{
    struct index_blocks longer;
    int rc = index_blocks_read(op, glances, false);
    index_blocks_start(&longer, op, SIZE_MAX);
    for (unsigned i = 0; i < glances->count && rc == FAR_OK; i++) {
        const struct index_block *b = &glances->block[i];
        const struct block_head *h = b->image;
        uint32_t bytes = (uint32_t)((block_key_end(h) + 63) & ~63ull);
        if (bytes <= GLANCE_BYTES || h->klen > FAR_KEY_MAX ||
            !within_pool(op, pointer_gaddr(b->slot), bytes))
            put_in_child(view, s, b->place, h, GLANCE_BYTES);
        else
            index_blocks_add(&longer, b->slot, bytes, b->place);
    }
    if (rc == FAR_OK)
        rc = index_blocks_read(op, &longer, false);
    for (unsigned i = 0; i < longer.count && rc == FAR_OK; i++)
        put_in_child(view, s, longer.block[i].place, longer.block[i].image, longer.block[i].bytes);
    index_blocks_start(glances, op, SIZE_MAX);
    return rc;
}

/* Builds both children: every sealed word goes to the same place in one of them. */
static int sort(struct op *op, struct race_view *view, struct split *s, uint64_t suffix)
{
    unsigned depth = s->look->depth;
    struct index_blocks glances;
    int rc = FAR_OK;

    index_blocks_start(&glances, op, SIZE_MAX);

    for (unsigned i = 0; i < 2; i++) {
        uint64_t header = race_header(view->tag, depth + 1, suffix | (uint64_t)i << depth);
        race_subtable_clear(s->image[i], s->words, header);
    }
    for (unsigned i = RACE_HEAD_WORDS; i < s->words && rc == FAR_OK; i++) {
        if (!race_is_slot(i) || race_slot_empty(s->parent[i]))
            continue;
        s->occupied++;
        if (!within_pool(op, pointer_gaddr(s->parent[i]), GLANCE_BYTES))
            put_in_both(s, i);
        else if (index_blocks_add(&glances, s->parent[i], GLANCE_BYTES, i) &&
                 glances.count == glances.room)
            rc = sort_some(op, view, s, &glances);
    }
    return rc == FAR_OK ? sort_some(op, view, s, &glances) : rc;
}

static void count_split(struct race_view *view, const struct split *s)
{
    index_grew(&view->base, s->look->subtable, s->child, 2,
               (double)s->occupied / (view->groups * RACE_GROUP_SLOTS));
}

/* Does the cache lead to the subtable, or to one of its ancestors? */
static bool leads_there(const struct race_view *view, const struct race_key *key,
                        const struct race_look *look)
{
    uint64_t step = 1ull << look->depth;
    for (uint64_t i = race_suffix(key->hash, look->depth); i < 1ull << view->depth; i += step)
        if (race_entry_depth(view->entries[i]) <= look->depth)
            return true;
    return false;
}

/* No directory entry leads to the parent any more; caches may, until they see the version. */
static int retire_parent(struct op *op, struct race_view *view, const struct race_key *key,
                         struct split *s)
{
    struct cached *cached = &view->base.cached;
    unsigned bumped = index_bump_version(op, &view->base);
    batch_fence(&op->batch); /* only then is the split that the journal line names complete */
    journal_end(op, &s->journal);
    int rc = batch_flush(&op->batch);
    journal_give(op, &s->journal, rc == FAR_OK);
    if (rc != FAR_OK)
        return rc;
    /* If ours is the only change, our cache knows it, with two exceptions. Another operation may
     * have read the directory meanwhile, perhaps too early. Or the cache has an ancestor whose
     * split was noted only in the directory: an operation would come to the parent by that. */
    if (op_result(op, bumped) == cached->version && view->base.refreshes == s->refreshes &&
        !leads_there(view, key, s->look))
        cached->version++;
    pool_retire(op->client, s->look->subtable, s->size_class);
    return FAR_OK;
}

/* Another client has done the split. */
static int leave_to_other(struct op *op, struct race_view *view, const struct race_key *key,
                          struct split *s, uint64_t forward)
{
    const struct race_look *look = s->look;
    journal_end(op, &s->journal);
    int rc = batch_flush(&op->batch);
    journal_give(op, &s->journal, rc == FAR_OK);
    return rc == FAR_OK ? race_follow(view, look->entry, key->hash, forward) : rc;
}

static int split(struct op *op, struct race_view *view, const struct race_key *key, struct split *s)
{
    const struct race_look *look = s->look;
    struct batch *b = &op->batch;
    uint32_t bytes = s->words * 8;

    s->parent = op_buffer(op, BUF_BULK, 3 * (size_t)bytes);
    if (!s->parent) {
        free_children(op, s);
        return FAR_NO_MEMORY;
    }
    s->image[0] = s->parent + s->words;
    s->image[1] = s->image[0] + s->words;
    batch_read(b, look->subtable, 0, s->parent, bytes);
    int rc = batch_flush(b);
    if (rc != FAR_OK) {
        free_children(op, s);
        return rc;
    }
    rc = seal(op, s);
    if (rc == FAR_OK)
        rc = sort(op, view, s, race_suffix(key->hash, look->depth));
    if (rc != FAR_OK) {
        abandon_children(op, s);
        return rc;
    }
    uint64_t forward = race_forward(s->child[0], s->child[1]);
    for (unsigned i = 0; i < 2; i++)
        batch_write(b, MARK_EARLY, s->child[i], 0, s->image[i], bytes);
    batch_fence(b); /* the children are whole before any client is sent there, also by FABRIC-F5 */
    unsigned published = op_cas(op, MARK_PUBLISH, look->subtable,
                                offsetof(struct race_subtable_head, forward), 0, forward);
    rc = batch_flush(b);
    if (rc != FAR_OK) { /* perhaps published: the children stay as they are */
        abandon_children(op, s);
        return rc;
    }
    if (!op_swapped(op, published)) {
        free_children(op, s);
        return leave_to_other(op, view, key, s, op_result(op, published));
    }
    count_split(view, s);
    s->refreshes = view->base.refreshes;
    rc = race_follow(view, look->entry, key->hash, forward);
    if (rc == FAR_OK)
        rc = race_update_directory(op, view, look->entry, key->hash, forward);
    if (rc == FAR_OK)
        rc = retire_parent(op, view, key, s);
    if (rc != FAR_OK) /* its entries, or its number, may not have been changed */
        pool_abandon(op->client, s->size_class);
    return rc;
}

/* Reads `forward`, and puts the claim behind it into op->word[1]. */
static int read_forward(struct op *op, const struct race_look *look, uint64_t *forward)
{
    batch_read(&op->batch, look->subtable, offsetof(struct race_subtable_head, forward), op->word,
               16);
    int rc = batch_flush(&op->batch);
    *forward = rc == FAR_OK ? op->word[0] : 0;
    return rc;
}

/* Waits for the client that has claimed the split. *forward stays 0 if that client is dead, or
 * takes too long. */
static int await(struct op *op, const struct race_look *look, uint64_t claim, uint64_t *forward)
{
    struct index_lock_wait wait = {0};
    enum index_lock_state state = INDEX_LOCK_HELD;
    int rc = FAR_OK;
    while (rc == FAR_OK && state == INDEX_LOCK_HELD && *forward == 0) {
        rc = index_lock_wait(op, &wait, claim, &state);
        if (rc == FAR_OK && state == INDEX_LOCK_HELD)
            rc = read_forward(op, look, forward);
    }
    return rc;
}

static int claim_and_split(struct op *op, struct race_view *view, const struct race_key *key,
                           const struct race_look *look)
{
    struct split s = {.look = look,
                      .words = race_subtable_words(view->groups),
                      .size_class = race_subtable_class(view->groups)};
    uint64_t me = client_owner_word(op->client), forward = 0;
    int rc = FAR_OK;
    if (look->sealed) { /* another client's split, done or not: waiting for it needs no memory */
        rc = read_forward(op, look, &forward);
        uint64_t claim = op->word[1];
        if (rc == FAR_OK && forward == 0 && claim != 0 && claim != me)
            rc = await(op, look, claim, &forward);
        if (rc != FAR_OK || forward != 0)
            return rc == FAR_OK ? race_follow(view, look->entry, key->hash, forward) : rc;
    }
    /* Before anything is sealed: a pool without room must not stop writes that need none. */
    rc = allocate(op, &s);
    if (rc != FAR_OK)
        return rc;
    /* Should this client die, the one that recovers it completes the split: writers wait for that.
     * Without room for a line, they take the split over when they find the claim's owner dead. */
    rc = journal_take(op, gaddr_node(look->subtable), &s.journal);
    if (rc != FAR_OK && rc != FAR_POOL_FULL) {
        free_children(op, &s);
        return rc;
    }
    index_intend(op, &view->base, &s.journal, (uint32_t)race_suffix(key->hash, look->depth),
                 &look->entry, 8);
    unsigned claimed =
        op_cas(op, MARK_PUBLISH, look->subtable, offsetof(struct race_subtable_head, claim), 0, me);
    unsigned forwarded = op_read(op, look->subtable, offsetof(struct race_subtable_head, forward));
    rc = batch_flush(&op->batch);
    uint64_t claim = op_result(op, claimed);
    forward = op_result(op, forwarded);
    if (rc == FAR_OK && claim != 0 && claim != me && !look->sealed)
        rc = await(op, look, claim, &forward);
    if (rc == FAR_OK && forward == 0) {
        rc = split(op, view, key, &s);
    } else {
        free_children(op, &s);
        rc = rc == FAR_OK ? leave_to_other(op, view, key, &s, forward) : rc;
    }
    journal_give(op, &s.journal, false); /* if it could not be ended */
    return rc;
}

/* The place of an entry (or, for 0, a free one) among those being split by this session. */
static unsigned find_splitting(const struct race_view *view, uint64_t entry)
{
    unsigned i = 0;
    while (i < RACE_SPLITTING && view->splitting[i] != entry)
        i++;
    return i;
}

/* On a ring, another operation of this session may be splitting it. This one waits without a verb
 * until the cache knows the children; the other's work on the directory may take longer. (Off the
 * ring it does not wait: nothing of the ring moves meanwhile.) */
static bool wait_for_sibling(struct op *op, const struct race_view *view,
                             const struct race_key *key, const struct race_look *look)
{
    uint64_t pause = 0;
    if (!op->batch.on_ring || find_splitting(view, look->entry) == RACE_SPLITTING)
        return false;
    for (unsigned i = 0; i < op->pool->knobs.patience; i++) {
        op_pause(op, &pause);
        if (race_cached_entry(view, key->hash) != look->entry ||
            find_splitting(view, look->entry) == RACE_SPLITTING)
            return true;
    }
    return false;
}

int race_split_or_wait(struct op *op, struct race_view *view, const struct race_key *key,
                       const struct race_look *look)
{
    ASSERT(op->batch.count == 0);
    if (look->depth + 1 > view->dir_bits)
        return err_fail(FAR_TABLE_FULL, "the directory is at its limit of %u bits", view->dir_bits);
    if (wait_for_sibling(op, view, key, look))
        return FAR_OK;
    unsigned at = find_splitting(view, 0);
    uint64_t began = batch_now(&op->batch);
    if (at < RACE_SPLITTING)
        view->splitting[at] = look->entry;
    int rc = claim_and_split(op, view, key, look);
    if (at < RACE_SPLITTING)
        view->splitting[at] = 0;
    index_grew_since(op, &view->base, began);
    return rc;
}

int race_recover(struct op *op, struct index_view *view, const struct journal_entry *e)
{
    uint64_t entry = 0;
    if (e->len != sizeof entry)
        return FAR_OK;
    memcpy(&entry, e->data, sizeof entry);
    return race_complete_split(op, view, e->subject.what, entry);
}

/* Does the directory, as it was read within this operation, lead to the entry? */
static int is_reached(struct op *op, const struct race_view *view, uint64_t suffix, uint64_t entry,
                      bool *reached)
{
    unsigned depth = race_entry_depth(entry);
    uint64_t before = 0, forward = 0;
    *reached = false;
    for (uint64_t i = race_suffix(suffix, view->depth); i < 1ull << view->depth && !*reached;
         i += 1ull << depth) {
        uint64_t at = view->entries[i];
        if (at == before)
            continue;
        before = at;
        while (at != 0 && race_entry_depth(at) < depth) { /* an ancestor */
            unsigned bit = race_entry_depth(at);
            int rc = race_read_forward(op, race_entry_subtable(at), &forward);
            if (rc != FAR_OK)
                return rc;
            at = forward == 0 ? 0 : race_forward_entry(forward, suffix >> bit & 1, bit + 1);
        }
        *reached = at == entry;
    }
    return FAR_OK;
}

/* A journal may be older than this operation: the subtable that it names may have been split since,
 * and be another's memory by now. What is reached now stays as long as this operation. */
int race_complete_split(struct op *op, struct index_view *base, uint32_t suffix, uint64_t entry)
{
    ASSERT(op->batch.count == 0);
    struct race_view *view = race_view(base);
    struct race_key key = {.hash = suffix};
    struct race_look look = {
        .entry = entry, .subtable = race_entry_subtable(entry), .depth = race_entry_depth(entry)};
    struct race_subtable_head *head = op_buffer(op, BUF_BULK, sizeof *head);
    if (!head)
        return FAR_NO_MEMORY;
    if (look.depth > view->dir_bits)
        return FAR_OK; /* no entry of this directory */
    bool reached = false;
    int rc = is_reached(op, view, suffix, entry, &reached);
    if (rc != FAR_OK || !reached)
        return rc == FAR_BOUNDS ? FAR_OK : rc; /* it has been split, and is gone */
    batch_read(&op->batch, look.subtable, 0, head, sizeof *head);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK || head->header != race_header(view->tag, look.depth, suffix))
        return rc == FAR_BOUNDS ? FAR_OK : rc; /* it is damaged */
    if (head->forward != 0) {                  /* published, but perhaps not advised */
        rc = race_update_directory(op, view, entry, suffix, head->forward);
        if (rc == FAR_OK)
            index_bump_version(op, &view->base);
        return rc == FAR_OK ? batch_flush(&op->batch) : rc;
    }
    if (head->claim == 0)
        return FAR_OK;
    rc = race_split_or_wait(op, view, &key, &look);
    /* Without memory it is left to the next writer, which finds the claim's owner dead. It must not
     * hold up the recovery of the dead client's memory. */
    return rc == FAR_POOL_FULL || rc == FAR_TABLE_FULL ? FAR_OK : rc;
}
