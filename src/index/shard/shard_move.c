/*
 * Moving units (SHARD-S5): the half of a unit's entries whose hash has the next bit set goes to its
 * child. Any number of clients may move one unit at once.
 *
 *   look    READ the unit, and behind it whether the child is published: 1 round trip, mostly that
 *           of the operation
 *   freeze  CAS the tail to a plan, and seal what goes: 1
 *   fill    CAS the child's words from 0, and its mark: 1
 *
 * An insert rides along: a key that goes, in the last batch; one that stays, in one more. If the
 * sid bits run out with this move (split_bits.h), the keys' blocks are read, and every entry gets
 * the next four bits of its hash.
 */
#include "index/shard/shard.h"

#include <string.h>

struct move {
    struct op *op;
    struct shard_view *view;
    struct shard_unit unit;
    unsigned u; /* the version that it moves from */
    /* What is known of the plan since before the unit was read: its slot, that it is there, and
     * that it says that all is sealed. */
    unsigned plan_slot;
    bool planned, sealed;
    struct shard_seen seen;
    /* If sids are renewed: what sealed entries are copied as. */
    uint64_t next[SHARD_UNIT_MAX];
    unsigned cas[BATCH_MAX], count; /* CAS of the batch that have to succeed */
    unsigned flushes;
    bool failed; /* one of them did not */
};

static void start_at(struct move *m, uint64_t bucket, unsigned u)
{
    shard_unit_set(m->view, &m->unit, m->unit.lane, bucket);
    m->u = u;
    m->planned = m->sealed = m->seen.once = false;
}

/* Flushes, and looks whether all CAS have succeeded. */
static int flush(struct move *m)
{
    int rc = batch_flush(&m->op->batch);
    m->flushes++;
    for (unsigned i = 0; i < m->count; i++)
        m->failed |= !op_swapped(m->op, m->cas[i]);
    m->count = 0;
    return rc;
}

/* Adds a CAS of a slot. The image has the new word then. */
static int change(struct move *m, unsigned slot, uint64_t to)
{
    int rc = batch_room(&m->op->batch) == 0 ? flush(m) : FAR_OK;
    if (rc != FAR_OK)
        return rc;
    m->cas[m->count++] = shard_cas(m->op, m->view, &m->unit, slot, m->unit.words[slot], to);
    m->unit.words[slot] = to;
    return FAR_OK;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Reads the unit and its child's guard word, and ahead of them that of the child before. */
static int look(struct move *m, uint64_t *before, uint64_t *child)
{
    bool older = m->u > shard_birth(m->view, m->unit.bucket);
    if (older) {
        unsigned n = shard_guard_read(m->op, m->view, m->unit.lane,
                                      shard_child(m->view, m->unit.bucket, m->u - 1));
        ASSERT(n == 0); /* so its word stays, also if a chain takes more batches */
        batch_fence(&m->op->batch);
    }
    shard_unit_read(m->op, m->view, &m->unit, m->view->words);
    int rc = shard_unit_extend(m->op, m->view, &m->unit, m->u, child);
    *before = older ? m->op->word[0] : 0;
    return rc;
}

/* Does this move use up the sid bits? Then it gives all entries their next ones, and until that is
 * done some have those and some the old ones. So what goes is sealed before, and the plan says
 * so. */
static bool renews(const struct move *m)
{
    return index_split_renews(m->u, shard_phase(m->view, m->unit.bucket));
}

/* Is the child that the move from u makes published, by its guard word? */
static int child_published(struct move *m, unsigned u, uint64_t guard, bool *published)
{
    uint64_t child = shard_child(m->view, m->unit.bucket, u);
    int says = shard_guard_says(m->view, child, guard);
    *published = says == 1;
    return says >= 0 ? FAR_OK
                     : shard_look_published(m->op, m->view, m->unit.lane, child, published);
}

/*
 * Looks at the unit that m is at. If that is not the one to be moved, goes on to the next one on
 * the path of the hash: *again. *done: all of the path is at `version`.
 */
static int find(struct move *m, uint64_t hash, unsigned version, bool *again, bool *done)
{
    struct shard_view *view = m->view;
    uint64_t before = 0, guard = 0;
    bool published = false;
    int rc = look(m, &before, &guard);
    if (rc != FAR_OK)
        return rc;
    unsigned birth = shard_birth(view, m->unit.bucket);
    *again = true;
    if (!shard_published(view, &m->unit)) {
        start_at(m, shard_parent(view, m->unit.bucket), birth - 1);
        return FAR_OK;
    }
    if (m->u > birth) {
        rc = child_published(m, m->u - 1, before, &published);
        if (rc != FAR_OK)
            return rc;
        if (!published) { /* further behind */
            start_at(m, m->unit.bucket, m->u - 1);
            return FAR_OK;
        }
        if (shard_guard_says(view, shard_child(view, m->unit.bucket, m->u - 1), before) < 0) {
            shard_note_add(m->op, view); /* it was not known when the unit was read */
            return batch_flush(&m->op->batch);
        }
    }
    rc = child_published(m, m->u, guard, &published);
    if (rc != FAR_OK)
        return rc;
    *again = published;
    if (!published)
        return FAR_OK;
    *done = m->u + 1 == version;
    if (!*done && shard_goes(view, hash, m->u))
        start_at(m, shard_child(view, m->unit.bucket, m->u), version - 1);
    else if (!*done)
        start_at(m, m->unit.bucket, m->u + 1);
    return FAR_OK;
}

/* ---- freezing -------------------------------------------------------------------------------- */

/* Seals what goes, and frees what the move before has left. Tagged words lose their tag, which is
 * safe once the plan is there: then no insert is under way. */
static int seal_all(struct move *m)
{
    unsigned phase = shard_phase(m->view, m->unit.bucket);
    for (unsigned i = 0; i < m->unit.count; i++) {
        uint64_t word = m->unit.words[i];
        int rc = FAR_OK;
        if (shard_live(word) && shard_entry_goes(word, m->u, phase))
            rc = change(m, i, word | shard_seal(m->u));
        else if (shard_sealed_by(word, m->u + 1) || shard_tagged(word))
            rc = change(m, i, shard_freed(word, m->u));
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

static bool any_tagged(const struct move *m)
{
    for (unsigned i = 0; i < m->unit.count; i++)
        if (shard_tagged(m->unit.words[i]))
            return true;
    return false;
}

/* Is there memory for the child's chain? It is asked for before anything is sealed: if it were
 * missing when the child is filled, the sealed keys could not be changed until there is some. */
static int have_nodes(struct move *m)
{
    const struct shard_view *view = m->view;
    unsigned size_class = size_class_for(SHARD_NODE_WORDS * 8), goes = 0, count = 0;
    unsigned phase = shard_phase(view, m->unit.bucket), fits = view->level1 - 1 + view->level2;
    gaddr node[SHARD_CHAIN_MAX];
    int rc = FAR_OK;
    for (unsigned i = 0; i < m->unit.count; i++)
        goes += shard_live(m->unit.words[i]) && shard_entry_goes(m->unit.words[i], m->u, phase);
    for (; rc == FAR_OK && goes > fits && count < SHARD_CHAIN_MAX; fits += SHARD_NODE_WORDS - 1) {
        rc = pool_alloc(m->op, gaddr_node(m->unit.at), size_class, &node[count]);
        count += rc == FAR_OK;
    }
    while (count > 0) /* it stays with this client */
        pool_free_unpublished(m->op->client, node[--count], size_class);
    return rc;
}

/* Puts the plan into the tail's place, and with it all else, if that is possible. One image is
 * enough for that: all purges of the unit have ended (SHARD-S8). If an insert has used a filler
 * since, then the CAS that frees it fails, and the unit is looked at again. But if another mover
 * has freed the tail, its plan may be there, and the image torn. */
static int plan(struct move *m, bool *frozen)
{
    struct shard_tail tail;
    shard_find_tail(&m->unit, m->u, &tail);
    if (tail.freed && !shard_seen_enough(&m->seen, &tail))
        return FAR_OK;
    int rc = have_nodes(m);
    if (rc != FAR_OK)
        return rc;
    uint64_t word = shard_control(SHARD_PLAN, m->u + 1, shard_overflows(tail.word));
    if (tail.full)
        return shard_chain(m->op, m->view, &m->unit, &tail, client_stamp(m->op->client), word,
                           &m->planned);
    /* What is sealed with the plan may be of a torn image, and the plan fail. That does no harm if
     * it is an entry that goes. But tags are needed until the plan is there, and the image may have
     * entries with their next sid already. */
    bool alone = renews(m) || any_tagged(m) || !m->view->tuning[SHARD_TUNING_COMBINING];
    rc = change(m, tail.slot, word); /* the first of its batch */
    unsigned n = m->cas[0], flushes = m->flushes;
    m->plan_slot = tail.slot;
    if (alone && rc == FAR_OK) {
        rc = flush(m);
        m->planned = rc == FAR_OK && !m->failed;
        if (!m->planned)
            return rc;
    }
    if (rc == FAR_OK)
        rc = seal_all(m);
    int flushed = flush(m);
    if (!alone)
        m->planned = !m->failed || (m->flushes == flushes + 1 && op_swapped(m->op, n));
    *frozen = !m->failed;
    return rc == FAR_OK ? flushed : rc;
}

/* Reads the plan behind the unit: if it still does not say that all is sealed, then every entry of
 * the image has its old sid. */
static int look_at_plan(struct move *m, bool *changed)
{
    uint64_t delta, plan = m->unit.words[m->plan_slot];
    gaddr at = shard_slot_at(m->view, &m->unit, m->plan_slot, &delta);
    unsigned n = op_read(m->op, at, delta);
    int rc = batch_flush(&m->op->batch);
    *changed = rc == FAR_OK && op_result(m->op, n) != plan;
    return rc;
}

/* *frozen: what goes is sealed, and nothing is missing. Otherwise the unit must be looked at
 * again. */
static int freeze(struct move *m, bool *frozen)
{
    bool plans = false, sealed = false, changed = false;
    *frozen = m->failed = false;
    for (unsigned i = 0; i < m->unit.count; i++) {
        uint64_t word = m->unit.words[i];
        bool is = shard_is(word, SHARD_PLAN);
        if (!shard_word_valid(word) || (is && shard_plan_version(word) > m->u + 1))
            return err_fail(FAR_CORRUPT, "a word of a bucket is damaged");
        if (!is || shard_plan_version(word) != m->u + 1)
            continue;
        plans = true;
        sealed = word & SHARD_PLAN_SEALED;
        m->plan_slot = i;
    }
    if (!plans)
        return plan(m, frozen);
    if (!m->planned || (sealed && !m->sealed)) { /* the image may be of before that: once more */
        m->planned = true;
        m->sealed = sealed;
        return FAR_OK;
    }
    *frozen = sealed;
    if (sealed)
        return FAR_OK;
    int rc = renews(m) ? look_at_plan(m, &changed) : FAR_OK;
    if (rc != FAR_OK || changed)
        return rc;
    rc = seal_all(m);
    int flushed = flush(m);
    *frozen = !m->failed;
    return rc == FAR_OK ? flushed : rc;
}

/* ---- the next four bits ---------------------------------------------------------------------- */

/* Gives the entries of a few slots their sid of the next version. */
static int refresh_sids(struct move *m, const struct index_blocks *blocks)
{
    for (unsigned i = 0; i < blocks->count; i++) {
        const struct index_block *b = &blocks->block[i];
        const struct block_head *h = b->image;
        struct shard_key key;
        if (!index_block_whole(b, SHARD_SLOT))
            continue; /* nobody can read its key any more */
        shard_hash(m->view, (struct slice){block_key(h), h->klen}, &key);
        uint64_t word = shard_with_sid(b->slot, shard_sid(m->view, key.hash, m->u + 1));
        if (word == b->slot)
            continue;
        if (!shard_live(b->slot)) { /* frozen: only its copy gets it */
            m->next[b->place] = word;
            continue;
        }
        int rc = change(m, b->place, word);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

/* *refreshed: of all entries. */
static int next_sids(struct move *m, bool *refreshed)
{
    unsigned slot = 0, n = 0;
    uint64_t plan = m->unit.words[m->plan_slot];
    bool says = plan & SHARD_PLAN_SEALED;
    m->failed = false;
    memcpy(m->next, m->unit.words, m->unit.count * 8ull);
    if (!says)
        n = shard_cas(m->op, m->view, &m->unit, m->plan_slot, plan, plan | SHARD_PLAN_SEALED);
    while (slot < m->unit.count) {
        struct index_blocks blocks;
        index_blocks_start(&blocks, m->op, INDEX_BLOCKS_BYTES);
        for (; slot < m->unit.count; slot++) {
            uint64_t word = m->unit.words[slot];
            if ((shard_live(word) || shard_sealed_by(word, m->u)) &&
                !index_blocks_add(&blocks, word, index_block_key_bytes(word), slot))
                break;
        }
        int rc = index_blocks_read(m->op, &blocks, false);
        if (rc == FAR_OK && !says) {
            m->sealed = says = op_swapped(m->op, n);
            if (!says) /* another client was faster */
                return FAR_OK;
            m->unit.words[m->plan_slot] = plan | SHARD_PLAN_SEALED;
        }
        if (rc == FAR_OK)
            rc = refresh_sids(m, &blocks);
        int flushed = flush(m);
        if (rc != FAR_OK || flushed != FAR_OK)
            return rc != FAR_OK ? rc : flushed;
    }
    *refreshed = !m->failed;
    return FAR_OK;
}

/* ---- filling the child ----------------------------------------------------------------------- */

/* Writes the entries that do not even fit into level 2 to chain nodes. The first word that leads
 * to them is returned in *top. */
static int fill_chain(struct move *m, unsigned home, const uint64_t *entry, unsigned count,
                      gaddr *node, unsigned *nodes, uint64_t *top)
{
    unsigned size_class = size_class_for(SHARD_NODE_WORDS * 8);
    *nodes = 0;
    if (count == 1) {
        *top = entry[0];
        return FAR_OK;
    }
    unsigned needed = (count - 2) / (SHARD_NODE_WORDS - 1) + 1;
    if (needed > SHARD_CHAIN_MAX)
        return err_fail(FAR_TABLE_FULL, "a bucket's chain is at its limit");
    for (; *nodes < needed; ++*nodes) {
        int rc = pool_alloc(m->op, home, size_class, &node[*nodes]);
        if (rc != FAR_OK)
            return rc;
    }
    uint64_t *image = op_buffer(m->op, BUF_BULK, needed * SHARD_NODE_WORDS * 8ull);
    if (!image)
        return FAR_NO_MEMORY;
    memset(image, 0, needed * SHARD_NODE_WORDS * 8ull);
    for (unsigned i = 0, k = 0; i < needed; i++) {
        uint64_t *words = image + i * SHARD_NODE_WORDS;
        unsigned room = i + 1 < needed ? SHARD_NODE_WORDS - 1 : SHARD_NODE_WORDS;
        for (unsigned j = 0; j < room && k < count; j++)
            words[j] = entry[k++];
        if (i + 1 < needed)
            words[room] = shard_link(node[i + 1]);
        batch_write(&m->op->batch, MARK_EARLY, node[i], 0, words, SHARD_NODE_WORDS * 8);
    }
    *top = shard_link(node[0]);
    return batch_flush(&m->op->batch);
}

/* Fills level 2 and 3 of the child. */
static int fill_beyond(struct move *m, struct shard_unit *child, const uint64_t *entry,
                       unsigned count)
{
    struct shard_view *view = m->view;
    unsigned second = count < view->level2 ? count : view->level2, nodes = 0, n = 0;
    gaddr node[SHARD_CHAIN_MAX];
    uint64_t top = 0;
    int rc = FAR_OK;
    unsigned home = gaddr_node(child->at);
    if (count > second)
        rc = fill_chain(m, home, entry + second, count - second, node, &nodes, &top);
    enum batch_outcome outcome = op_all_known(rc) ? BATCH_NOT : BATCH_UNKNOWN;
    if (rc == FAR_OK) {
        for (unsigned i = 0; i < second; i++)
            shard_cas(m->op, view, child, view->level1 + i, 0, entry[i]);
        if (top != 0)
            n = shard_cas(m->op, view, child, view->words, 0, top);
        rc = batch_flush(&m->op->batch);
        outcome = top != 0 ? batch_outcome(&m->op->batch, n) : BATCH_NOT;
    }
    for (unsigned i = 0; i < nodes && outcome != BATCH_DONE; i++) {
        if (outcome == BATCH_UNKNOWN)
            pool_abandon(m->op->client, size_class_for(SHARD_NODE_WORDS * 8));
        else
            pool_free_unpublished(m->op->client, node[i], size_class_for(SHARD_NODE_WORDS * 8));
    }
    return rc;
}

static void count_move(struct move *m, unsigned live, const struct shard_unit *child)
{
    struct shard_view *view = m->view;
    gaddr to[2] = {m->unit.at, child->at};
    index_grew(&view->base, m->unit.at, to, 2, (double)live / (view->words + 1));
}

/* May the insert ride on this move, and is its key surely absent? */
static bool may_ride(const struct move *m, const struct shard_ride *ride, unsigned version)
{
    struct shard_view *view = m->view;
    if (!ride || ride->word == 0 || m->u + 1 != version ||
        shard_bucket(view, ride->key->hash, m->u) != m->unit.bucket)
        return false;
    uint64_t mask = slot_fingerprint_mask(SHARD_SLOT) | SHARD_SID, hash = ride->key->hash;
    uint64_t want = slot_fingerprint_word(SHARD_SLOT, ride->key->fingerprint);
    uint64_t now = shard_with_sid(want, shard_sid(view, hash, m->u));
    uint64_t next = shard_with_sid(want, shard_sid(view, hash, m->u + 1));
    for (unsigned i = 0; i < m->unit.count; i++) {
        uint64_t word = m->unit.words[i];
        if ((shard_live(word) || shard_sealed_by(word, m->u)) &&
            ((word & mask) == now || (word & mask) == next))
            return false;
    }
    return true;
}

static int fill(struct move *m, struct shard_ride *ride, unsigned version)
{
    struct op *op = m->op;
    struct shard_view *view = m->view;
    struct shard_unit child = {.chains = 0};
    shard_unit_set(view, &child, m->unit.lane, shard_child(view, m->unit.bucket, m->u));
    uint64_t entry[SHARD_UNIT_MAX];
    unsigned count = 0, live = 0, limit = view->level1 - 1;
    bool rides = may_ride(m, ride, version);
    for (unsigned i = 0; i < m->unit.count; i++) {
        if (shard_sealed_by(m->unit.words[i], m->u))
            entry[count++] = shard_unsealed(renews(m) ? m->next[i] : m->unit.words[i]);
        live += shard_live(m->unit.words[i]);
    }
    unsigned first = count < limit ? count : limit;
    int rc = count > first ? fill_beyond(m, &child, entry + first, count - first) : FAR_OK;
    if (rc != FAR_OK)
        return rc;
    for (unsigned i = 0; i < first; i++)
        shard_cas(op, view, &child, i, 0, entry[i]);
    if (!view->tuning[SHARD_TUNING_COMBINING])
        rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    uint64_t mark = shard_control(SHARD_MARK, first, count > first), own = 0;
    unsigned marked = shard_cas(op, view, &child, limit, 0, mark), n = 0;
    bool goes = rides && shard_goes(view, ride->key->hash, m->u);
    if (rides)
        own = shard_with_sid(ride->word, shard_sid(view, ride->key->hash, version));
    if (goes && count < limit)
        n = shard_cas(op, view, &child, count, 0, own);
    rc = batch_flush(&op->batch);
    if (op_swapped(op, marked))
        count_move(m, live + count, &child);
    if (goes && count < limit) {
        rc = op_decided(op, rc);
        ride->done = rc == FAR_OK && op_swapped(op, n);
    }
    if (rc == FAR_OK && first > 0)
        shard_note(view, child.lane, child.bucket, mark);
    if (rc != FAR_OK || !rides || goes)
        return rc;
    /* The key stays: the unit is at the next version now, and the image shows where its tail is. */
    struct shard_tail tail;
    shard_find_tail(&m->unit, m->u + 1, &tail);
    if (tail.twice)
        return FAR_OK;
    shard_note_add(op, view);
    n = shard_cas(op, view, &m->unit, tail.slot, tail.word, own);
    rc = op_decided(op, batch_flush(&op->batch));
    ride->done = rc == FAR_OK && op_swapped(op, n);
    return rc;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static int move(struct op *op, struct shard_view *view, unsigned lane, uint64_t hash,
                unsigned version, struct shard_ride *ride, const struct shard_unit *image)
{
    struct move m;
    memset(&m, 0, offsetof(struct move, next)); /* the rest is set when it is used */
    m.op = op;
    m.view = view;
    m.unit.lane = lane;
    m.count = m.flushes = 0;
    m.failed = false;
    uint64_t bucket = shard_bucket(view, hash, version);
    bool looked = image != NULL;
    ASSERT(version > 0 && version <= view->settled);
    if (image)
        m.unit = *image;
    m.unit.words = op_buffer(op, BUF_INDEX, 2 * SHARD_UNIT_MAX * 8);
    if (!m.unit.words)
        return FAR_NO_MEMORY;
    start_at(&m, shard_birth(view, bucket) == version ? shard_parent(view, bucket) : bucket,
             version - 1);
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        bool again = false, done = false, frozen = false;
        int rc = looked ? FAR_OK : find(&m, hash, version, &again, &done);
        looked = false;
        if (rc != FAR_OK || done)
            return rc;
        if (again)
            continue;
        index_lags(&view->base, view->version - m.u, view->version > version);
        rc = freeze(&m, &frozen);
        if (rc == FAR_OK && frozen && renews(&m)) {
            frozen = false;
            rc = next_sids(&m, &frozen);
        }
        if (rc == FAR_OK && frozen)
            rc = fill(&m, ride, version);
        if (rc != FAR_OK || (ride && ride->done) || (frozen && m.u + 1 == version))
            return rc;
    }
    return FAR_CONTENTION;
}

int shard_move(struct op *op, struct shard_view *view, unsigned lane, uint64_t hash,
               unsigned version, struct shard_ride *ride, const struct shard_unit *image)
{
    uint64_t began = batch_now(&op->batch);
    int rc = move(op, view, lane, hash, version, ride, image);
    index_grew_since(op, &view->base, began);
    return rc;
}

int shard_chain(struct op *op, struct shard_view *view, const struct shard_unit *unit,
                const struct shard_tail *tail, uint64_t stamp, uint64_t second, bool *grown)
{
    ASSERT(tail->full && unit->chains < SHARD_CHAIN_MAX && second != 0);
    unsigned size_class = size_class_for(SHARD_NODE_WORDS * 8);
    uint64_t delta;
    gaddr node = 0, at = shard_slot_at(view, unit, tail->slot, &delta);
    *grown = false;
    if (unit->chains >= (shard_is(second, SHARD_PLAN) ? SHARD_CHAIN_MAX : SHARD_CHAIN_FULL))
        return err_fail(FAR_TABLE_FULL, "a bucket's chain is at its limit");
    int rc = pool_alloc(op, gaddr_node(at), size_class, &node);
    if (rc != FAR_OK)
        return rc;
    uint64_t *image = op_buffer(op, BUF_BULK, SHARD_NODE_WORDS * 8);
    if (!image) {
        pool_free_unpublished(op->client, node, size_class);
        return FAR_NO_MEMORY;
    }
    image[0] = tail->word;
    image[1] = second;
    for (unsigned i = 2; i < SHARD_NODE_WORDS; i++)
        image[i] = shard_control(SHARD_OPEN, stamp, false);
    batch_write(&op->batch, MARK_EARLY, node, 0, image, SHARD_NODE_WORDS * 8);
    batch_fence(&op->batch);
    unsigned n = op_cas(op, MARK_PUBLISH, at, delta, tail->word, shard_link(node));
    rc = batch_flush(&op->batch);
    *grown = op_swapped(op, n);
    /* The WRITE may have gone out in a post of its own, and land later (FABRIC-F5). */
    if (!*grown && !op_all_known(rc))
        pool_abandon(op->client, size_class);
    else if (!*grown)
        pool_free_unpublished(op->client, node, size_class);
    return rc;
}
