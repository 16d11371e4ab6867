/*
 * Changing a key. If the session has written it before, its slot may be changed at once. All other
 * changes start alike: look for the key, first where a hint says, and settle a split that is in the
 * way.
 * index/change.h has the blocks, and when they are written.
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
    struct index_change change;
    uint64_t stale;
    uint64_t met; /* what the last CAS found in its slot */
    uint64_t now; /* the key's slot as this operation knows it; 0: it has none */
    unsigned gave_way, waited;
    unsigned lost;      /* CASes that met another word than was expected */
    bool met_tentative; /* in a place that looked free: looks are to show such slots, too */
};

/* Near which node the key's blocks are: that of its subtable. */
static unsigned near_node(const struct race_view *view, const struct write *w)
{
    return gaddr_node(race_entry_subtable(race_cached_entry(view, w->key.hash)));
}

static int write_start(struct op *op, struct race_view *view, struct slice key, struct change *c,
                       struct write *w)
{
    uint64_t *words = op_buffer(op, BUF_INDEX, 2 * RACE_PLACES * 8);
    if (!words)
        return FAR_NO_MEMORY;
    *w = (struct write){.words = {words, words + RACE_PLACES}, .change = {.key = key, .want = c}};
    race_hash(view, key, &w->key);
    return index_change_known(&w->change) ? index_change_prepare(op, &w->change, near_node(view, w))
                                          : FAR_OK;
}

/* Looks the key up; *again when the whole attempt must be repeated. */
static int write_look(struct op *op, struct race_view *view, struct write *w, bool *again)
{
    int rc = race_find_subtable(view, &w->key, &w->look, w->words[0]);
    if (rc != FAR_OK)
        return rc;
    race_read_buckets(op, &w->key, &w->look, w->met_tentative ? MARK_HEAD : MARK_NONE, w->words[0]);
    index_change_write(op, &w->change);
    rc = race_look_finish(op, view, &w->key, &w->look, again);
    if (rc != FAR_OK || *again)
        return rc;
    w->change.written = true;
    if (w->look.sealed) { /* RACE-R5: only the children may be changed */
        *again = true;
        return race_split_or_wait(op, view, &w->key, &w->look);
    }
    rc = race_probe(op, &w->key, &w->look, index_change_out(&w->change), NULL, &w->found);
    if (rc != FAR_OK || w->found.place >= 0 || w->found.stale == 0)
        return rc;
    *again = true;
    return index_found_stale(&w->found, &w->stale); /* RACE-R1 */
}

/* `mark`: MARK_HINT removes a tentative slot, which nobody counts on. */
static int cas_slot(struct op *op, struct write *w, enum fab_mark mark, unsigned place,
                    uint64_t from, uint64_t to, bool *swapped)
{
    unsigned n = op_cas(op, mark, w->look.subtable, race_place_offset(&w->key, place), from, to);
    int rc = batch_flush(&op->batch);
    *swapped = op_swapped(op, n);
    w->met = op_result(op, n);
    return rc;
}

static uint64_t slot_word(const struct write *w)
{
    return slot_make(RACE_SLOT, &w->change.block, w->key.fingerprint);
}

/* The CAS of the slot that was found has met another word. CHANGE-C1: is this change done? Not if
 * the word names the same block: then it was only sealed (RACE-R5) or repaired (RACE-Q5). */
static int lose(struct op *op, struct write *w, bool *again)
{
    unsigned place = (unsigned)w->found.place;
    struct index_probe probe = {.key = w->key.bytes, .format = RACE_SLOT};
    if (!race_slot_committed(w->met) || pointer_gaddr(w->met) == pointer_gaddr(w->found.slot))
        return FAR_OK;
    w->words[0][place] = w->met;
    int rc = index_probe(op, &probe, w->words[0], 1ull << place, &w->found);
    if (rc != FAR_OK || w->found.place < 0 ||
        !index_change_overwritten(op, &w->change, w->found.block))
        return rc;
    index_change_drop(op, &w->change);
    w->now = w->found.slot;
    *again = false;
    return FAR_OK;
}

/* Replaces the committed slot that was found, or that is known, by the block or by nothing. */
static int swap_slot(struct op *op, struct write *w, bool *again)
{
    ASSERT(w->found.place >= 0);
    uint64_t new = w->change.block.at ? slot_word(w) : 0;
    bool swapped = false;
    index_change_write_first(op, &w->change); /* RACE-R1 */
    int rc = op_decided(
        op, cas_slot(op, w, MARK_PUBLISH, (unsigned)w->found.place, w->found.slot, new, &swapped));
    index_change_replaced(op, &w->found, swapped, rc);
    *again = !swapped;
    w->lost += !swapped;
    w->now = new;
    return rc;
}

/* The same after a look. A change that has lost may count as done (CHANGE-C1). */
static int replace(struct op *op, struct write *w, bool *again)
{
    int rc = swap_slot(op, w, again);
    return rc == FAR_OK && *again && index_change_may_lose(&w->change) ? lose(op, w, again) : rc;
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
    op_wait(op, GIVE_WAY_NS + op_random(op, GIVE_WAY_NS));
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
    return cas_slot(op, w, MARK_HINT, rival, w->look.words[rival], 0, settled);
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
            op_cas(op, MARK_HINT, w->look.subtable, race_place_offset(&w->key, i), words[i], 0);
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
    ASSERT(w->found.place < 0);
    int place = free_place(&w->key, w->words[0]);
    uint64_t word = slot_word(w), tentative = word | RACE_SLOT_TENTATIVE;
    bool clear = false, swapped = false;

    *again = true;
    if (place < 0)
        return make_room(op, view, w);

    index_change_write_first(op, &w->change); /* RACE-R1 */
    unsigned n = op_cas(op, MARK_HINT, w->look.subtable,
                        race_place_offset(&w->key, (unsigned)place), 0, tentative);
    batch_fence(&op->batch); /* RACE-R2: the second look must come after */
    race_read_buckets(op, &w->key, &w->look, MARK_HEAD, w->words[1]);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK || !op_swapped(op, n)) {
        w->met_tentative |= rc == FAR_OK && op_result(op, n) & RACE_SLOT_TENTATIVE;
        return rc;
    }

    rc = second_look(op, w, (unsigned)place, tentative, &clear);
    if (rc == FAR_OK && clear) {
        rc = op_decided(op,
                        cas_slot(op, w, MARK_PUBLISH, (unsigned)place, tentative, word, &swapped));
        *again = !swapped;
        w->now = word;
        w->found.place = place;
        return rc;
    }
    /* Retract. If the CAS fails, another client has done it. If the fabric fails, that is harmless:
     * an uncommitted slot is invisible. But then the block must not be reused (FABRIC-F5). */
    int retracted = cas_slot(op, w, MARK_HINT, (unsigned)place, tentative, 0, &swapped);
    if (w->gave_way > 0)
        give_way(op);
    return retracted != FAR_OK ? retracted : rc;
}

/* The key has been looked for, and nothing is in the way. */
static int act(struct op *op, struct race_view *view, struct write *w, bool *again)
{
    enum change_action action;
    w->now = w->found.place >= 0 ? w->found.slot : 0;
    int rc =
        index_change_resolve(op, &view->base, &w->change, &w->found, near_node(view, w), &action);
    if (rc != FAR_OK)
        return rc;
    return w->found.place >= 0 ? replace(op, w, again) : add(op, view, w, again);
}

/* HINT-H2: changes the slot that this session has written before, without a look. *again if that
 * was not possible. */
static int act_at_once(struct op *op, struct race_view *view, struct write *w, bool *again)
{
    enum change_action action = w->change.want->present;
    if (action != CHANGE_STORE && action != CHANGE_REMOVE)
        return FAR_OK;
    struct index_hint own = index_own_of(&view->owns, op, w->key.hash, w->key.bytes);
    if (own.slot == 0)
        return FAR_OK;
    w->found = (struct index_found){.place = (int)own.place, .slot = own.slot};
    int rc = race_find_subtable(view, &w->key, &w->look, w->words[0]);
    if (rc == FAR_OK)
        rc = swap_slot(op, w, again);
    if (rc == FAR_BOUNDS) { /* the directory may have news: nothing was posted */
        w->change.written = false;
        return FAR_OK;
    }
    if (rc != FAR_OK || !*again)
        return rc;
    w->lost = 0; /* the word that it met may be old: no reason to pause */
    index_own_lost(&view->owns, w->key.hash, w->key.bytes);
    if (race_slot_committed(w->met) && slot_fingerprint(RACE_SLOT, w->met) == w->key.fingerprint)
        race_hint_note(view, &w->key, (struct index_hint){.slot = w->met, .place = own.place});
    return FAR_OK;
}

/* The same for the place that a hint names. *again if the key was not found there. */
static int act_on_hint(struct op *op, struct race_view *view, struct write *w, bool *again)
{
    struct index_hint hint = race_hint(view, &w->key);
    if (hint.slot == 0)
        return FAR_OK;
    int rc = race_peek(op, view, &w->key, &hint, index_change_out(&w->change), &w->change, &w->look,
                       w->words[0], &w->found);
    return rc == FAR_OK && w->found.place >= 0 ? act(op, view, w, again) : rc;
}

/* Remembers where the key is now. */
static void note(struct op *op, struct race_view *view, const struct write *w, int rc)
{
    struct index_hint now = {.slot = w->now, .place = w->now ? (unsigned)w->found.place : 0};
    race_hint_note(view, &w->key, now);
    if (w->now != 0 && (rc != FAR_OK || w->change.block.at == 0))
        return; /* the block is another's */
    index_own_note(&view->owns, op, w->key.hash, w->key.bytes, w->found.slot, now);
}

int race_change(struct op *op, struct index_view *base, struct slice key, struct change *change)
{
    struct race_view *view = race_view(base);
    struct write w;
    int rc = write_start(op, view, key, change, &w);
    if (rc != FAR_OK)
        return rc;
    bool again = true;
    rc = act_at_once(op, view, &w, &again);
    if (rc == FAR_OK && again)
        rc = act_on_hint(op, view, &w, &again);
    for (unsigned attempts = w.lost;
         rc == FAR_OK && again && index_attempt_after_pause(op, &attempts, w.lost);) {
        again = false;
        rc = write_look(op, view, &w, &again);
        if (rc == FAR_OK && !again)
            rc = act(op, view, &w, &again);
    }
    if (rc == FAR_OK && again)
        rc = FAR_CONTENTION;
    if (rc == FAR_OK || status_means(rc, STATUS_ANSWER))
        note(op, view, &w, rc);
    return index_change_end(op, &w.change, rc);
}
