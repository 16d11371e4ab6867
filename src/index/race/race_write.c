/*
 * Changing a key. All changes start alike: look for the key, and settle a split that is in the way.
 * The block of a new value is written in the round trip that reads the buckets, if the value is
 * known by then; one that depends on the old value is written in the round trip that publishes it,
 * ahead of the CAS.
 */
#include "index/race/race.h"

/* Two clients that insert one key at once see each other's tentative slots. The one at the higher
 * place gives way this many times, with a pause each. Then it kills the other's slot: that client
 * may be dead. */
#define GIVE_WAY_TURNS 4
#define GIVE_WAY_NS    2000

struct write {
    struct race_key key;
    struct race_look look;
    uint64_t *words[2]; /* the look, and the second look of an insert */
    struct index_found found;
    struct change *change;
    struct block_ref block; /* of the new value; at is 0 while there is none */
    bool written;
    uint64_t stale;
    unsigned gave_way, waited;
};

static bool stores_known_value(const struct change *c)
{
    return c->absent == CHANGE_STORE || c->present == CHANGE_STORE;
}

/* Allocates and encodes the block of the new value, near the key's subtable. */
static int prepare_block(struct op *op, const struct race_view *view, struct write *w)
{
    const struct slice *key = &w->key.bytes, *value = &w->change->value;
    uint64_t entry = race_cached_entry(view, w->key.hash);
    unsigned node = gaddr_node(race_entry_subtable(entry));
    if (node >= op->pool->nodes)
        return err_fail(FAR_CORRUPT, "a directory entry names node %u", node);
    w->written = false;
    return block_prepare(op, node, key->data, key->len, value->data, value->len, &w->block);
}

static int write_start(struct op *op, struct race_view *view, struct slice key, struct change *c,
                       struct write *w)
{
    uint64_t *words = op_buffer(op, BUF_INDEX, 2 * RACE_PLACES * 8);
    if (!words)
        return FAR_NO_MEMORY;
    *w = (struct write){.words = {words, words + RACE_PLACES}, .change = c};
    race_hash(view, key, &w->key);
    return stores_known_value(c) ? prepare_block(op, view, w) : FAR_OK;
}

/* A block that no committed slot names is given back at once. If the fabric failed, a slot may name
 * it for ever (RACE-R1), and its own WRITE may still be on the way: then no epoch makes it free. */
static int write_end(struct op *op, struct write *w, int rc)
{
    if (w->block.at == 0 || rc == FAR_OK)
        return rc;
    if (status_means(rc, STATUS_SETTLED))
        pool_free_unpublished(op->client, w->block.at, w->block.size_class);
    else
        pool_abandon(op->client, w->block.size_class);
    return rc;
}

/* Looks the key up; *again when the whole attempt must be repeated. */
static int write_look(struct op *op, struct race_view *view, struct write *w, bool *again)
{
    int rc = race_look_start(op, view, &w->key, &w->look, w->words[0]);
    if (rc != FAR_OK)
        return rc;
    if (w->block.at != 0 && !w->written)
        block_write(op, &w->block);
    rc = race_look_finish(op, view, &w->key, &w->look, again);
    if (rc != FAR_OK || *again)
        return rc;
    w->written = true;
    if (w->look.sealed) { /* RACE-R5: only the children may be changed */
        *again = true;
        return race_split_or_wait(op, view, &w->key, &w->look);
    }
    struct value_out all = {.cap = SIZE_MAX};
    rc = race_probe(op, &w->key, &w->look, w->change->present == CHANGE_ASK ? &all : NULL, NULL,
                    &w->found);
    if (rc != FAR_OK || w->found.place >= 0 || w->found.stale == 0)
        return rc;
    if (w->found.stale == w->stale) /* RACE-R1 */
        return err_fail(FAR_CORRUPT, "a key-value block fails its checksum");
    w->stale = w->found.stale;
    *again = true;
    return FAR_OK;
}

static int cas_slot(struct op *op, struct write *w, unsigned place, uint64_t from, uint64_t to,
                    bool *swapped)
{
    unsigned n = op_cas(op, w->look.subtable, race_place_offset(&w->key, place), from, to);
    int rc = batch_flush(&op->batch);
    *swapped = op_swapped(op, n);
    return rc;
}

/* Adds the WRITE of a block that is not written yet, ahead of the publishing CAS (RACE-R1). */
static void write_block_first(struct op *op, struct write *w)
{
    if (w->block.at == 0 || w->written)
        return;
    block_write(op, &w->block);
    batch_fence(&op->batch);
    w->written = true; /* if the flush fails, so does the operation */
}

/* Replaces the committed slot that was found by the block, or by nothing. */
static int replace(struct op *op, struct write *w, bool *again)
{
    uint64_t old = w->found.slot;
    uint64_t new = w->block.at ? slot_make(RACE_SLOT, &w->block, w->key.fingerprint) : 0;
    const struct block_head *h = w->found.block;
    bool swapped = false,
         fits = size_class_for(block_bytes(h->klen, h->vlen)) == pointer_class(old);
    write_block_first(op, w);
    int rc = op_decided(op, cas_slot(op, w, (unsigned)w->found.place, old, new, &swapped));
    /* A damaged class must not make the neighbours part of what is reused. */
    if (swapped && fits)
        pool_retire(op->client, pointer_gaddr(old), pointer_class(old));
    else if (swapped || rc == FAR_UNKNOWN)
        pool_abandon(op->client, pointer_class(old));
    *again = !swapped;
    return rc;
}

/* The place for a new key: in the emptier of its combined buckets, main before overflow. */
static int free_place(const struct race_key *key, const uint64_t *words)
{
    int best = -1;
    unsigned least = 2 * RACE_BUCKET_SLOTS;
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t *bucket = words + i * RACE_COMBINED_WORDS;
        unsigned main_at = race_main_comes_first(key->combined[i]) ? 0 : RACE_BUCKET_WORDS;
        unsigned used = 0;
        int place = -1;
        for (unsigned j = 0; j < RACE_COMBINED_WORDS; j++) {
            unsigned at = (main_at + j) % RACE_COMBINED_WORDS;
            if (!race_is_slot(at))
                continue;
            if (bucket[at] != 0)
                used++;
            else if (place < 0)
                place = (int)(i * RACE_COMBINED_WORDS + at);
        }
        if (place >= 0 && used < least) {
            least = used;
            best = place;
        }
    }
    return best;
}

static void give_way(struct op *op)
{
    batch_pause(&op->batch, GIVE_WAY_NS + op_random(op, GIVE_WAY_NS));
}

/* Another tentative slot of the same fingerprint: one of the two must go (RACE-R2). */
static int settle_rival(struct op *op, struct write *w, unsigned mine, unsigned rival,
                        bool *settled)
{
    *settled = false;
    if (rival < mine && w->gave_way < GIVE_WAY_TURNS) {
        w->gave_way++;
        return FAR_OK;
    }
    return cas_slot(op, w, rival, w->look.words[rival], 0, settled);
}

/*
 * Judges the second look of an insert, the tentative slot `word` standing at `place`.
 * *clear: it may be committed. Otherwise it must be retracted, and the attempt repeated.
 */
static int second_look(struct op *op, struct write *w, unsigned place, uint64_t word, bool *clear)
{
    const uint64_t *first = w->words[0];
    int rc = FAR_OK;

    *clear = false;
    w->look.words = w->words[1];
    w->look.sealed = false; /* a seal on our slot makes the commit fail; others do not matter */
    if (w->words[1][place] != word)
        return FAR_OK; /* killed */
    rc = race_probe(op, &w->key, &w->look, NULL, first, &w->found);
    if (rc != FAR_OK || w->found.place >= 0 || w->found.stale != 0)
        return rc;
    for (unsigned i = 0; i < RACE_PLACES; i++) {
        uint64_t other = w->words[1][i];
        bool settled = false;
        if (!race_is_slot(i) || i == place || !(other & RACE_SLOT_TENTATIVE) ||
            slot_fingerprint(RACE_SLOT, other) != w->key.fingerprint)
            continue;
        rc = settle_rival(op, w, place, i, &settled);
        if (rc != FAR_OK || !settled)
            return rc;
    }
    *clear = true;
    return FAR_OK;
}

/*
 * All places of the key are taken. Tentative slots among them are given a few turns and then killed
 * (RACE-R2): their owners may be dead. Only committed slots are a reason to split.
 */
static int make_room(struct op *op, struct race_view *view, struct write *w)
{
    const uint64_t *words = w->words[0];
    bool last = w->waited == GIVE_WAY_TURNS;
    unsigned tentative = 0;
    for (unsigned i = 0; i < RACE_PLACES; i++) {
        if (!race_is_slot(i) || !(words[i] & RACE_SLOT_TENTATIVE))
            continue;
        if (last)
            op_cas(op, w->look.subtable, race_place_offset(&w->key, i), words[i], 0);
        tentative++;
    }
    if (tentative == 0)
        return race_split_or_wait(op, view, &w->key, &w->look);
    w->waited = last ? 0 : w->waited + 1;
    if (last)
        return batch_flush(&op->batch);
    give_way(op);
    return FAR_OK;
}

/* Adds the key that the look did not find: tentative, second look, commit. */
static int add(struct op *op, struct race_view *view, struct write *w, bool *again)
{
    int place = free_place(&w->key, w->words[0]);
    uint64_t word = slot_make(RACE_SLOT, &w->block, w->key.fingerprint),
             tentative = word | RACE_SLOT_TENTATIVE;
    bool clear = false, swapped = false;

    *again = true;
    if (place < 0)
        return make_room(op, view, w);

    write_block_first(op, w);
    unsigned n =
        op_cas(op, w->look.subtable, race_place_offset(&w->key, (unsigned)place), 0, tentative);
    batch_fence(&op->batch); /* RACE-R2: the second look must come after */
    for (unsigned i = 0; i < 2; i++)
        batch_read(&op->batch, w->look.subtable, w->key.combined[i],
                   w->words[1] + i * RACE_COMBINED_WORDS, RACE_COMBINED_BYTES);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK || !op_swapped(op, n))
        return rc;

    rc = second_look(op, w, (unsigned)place, tentative, &clear);
    if (rc == FAR_OK && clear) {
        rc = op_decided(op, cas_slot(op, w, (unsigned)place, tentative, word, &swapped));
        *again = !swapped;
        return rc;
    }
    /* Retract. If the CAS fails, another client has done it. If the fabric fails, that is harmless:
     * an uncommitted slot is invisible. But then the block must not be reused (FABRIC-F5). */
    int retracted = cas_slot(op, w, (unsigned)place, tentative, 0, &swapped);
    if (w->gave_way > 0)
        give_way(op);
    return retracted != FAR_OK ? retracted : rc;
}

/* Gives back a block that was prepared for an earlier attempt; no slot names it. */
static void drop_block(struct op *op, struct write *w)
{
    if (w->block.at != 0)
        pool_free_unpublished(op->client, w->block.at, w->block.size_class);
    w->block.at = 0;
}

/* Asks what is to be done, now that the old state is known, and prepares it. */
static int ask(struct op *op, const struct race_view *view, struct write *w,
               enum change_action *action)
{
    struct slice old = {NULL, 0};
    if (w->found.place >= 0)
        old = index_block_value(w->found.block);
    int rc = index_decide(&view->base, w->change, old, action);
    if (rc != FAR_OK)
        return rc;
    drop_block(op, w);
    return *action == CHANGE_STORE ? prepare_block(op, view, w) : FAR_OK;
}

/* The key has been looked for, and nothing is in the way. */
static int act(struct op *op, struct race_view *view, struct write *w, bool *again)
{
    bool present = w->found.place >= 0;
    enum change_action action = present ? w->change->present : w->change->absent;
    int rc = action == CHANGE_ASK ? ask(op, view, w, &action) : FAR_OK;
    if (rc != FAR_OK)
        return rc;
    if (action == CHANGE_NOTHING || (action == CHANGE_REMOVE && !present))
        return present ? FAR_EXISTS : FAR_NOT_FOUND;
    return present ? replace(op, w, again) : add(op, view, w, again);
}

int race_change(struct op *op, struct index_view *base, struct slice key, struct change *change)
{
    struct race_view *view = race_view(base);
    struct write w;
    int rc = write_start(op, view, key, change, &w);
    if (rc != FAR_OK)
        return rc;
    for (unsigned attempts = 0; index_attempt_after_pause(op, &attempts);) {
        bool again = false;
        rc = write_look(op, view, &w, &again);
        if (rc == FAR_OK && !again)
            rc = act(op, view, &w, &again);
        if (rc != FAR_OK || !again)
            return write_end(op, &w, rc);
    }
    return write_end(op, &w, FAR_CONTENTION);
}
