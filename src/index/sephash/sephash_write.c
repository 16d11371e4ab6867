/*
 * Changing a key: appending to its CurSegment.
 *
 * A put needs to know nothing of the key, so it reads its lane of the slots only. All other changes
 * read the range of the MainSegment, too, and judge the key by that (SEPHASH-H4).
 * index/change.h has the blocks, and when they are written.
 */
#include "index/sephash/sephash.h"
#include "pool/turns.h"

/* Pauses between two looks at the anchor of a segment that another client merges: they are shorter
 * than a merge takes. A client looks as often as its patience lasts, and then merges by itself.
 * Both may, but a merge of many entries takes a millisecond, and dozens of them longer. */
#define MERGE_PAUSE_NS      1000u
#define MERGE_PAUSE_NS_MOST 16000u

/* A session that finds the pool full compacts segments, but not each time: a merge takes memory
 * before it gives some back, and what it has given back must come through its epochs first. Of
 * COMPACTIONS_EVERY changes in a row that find no memory, the first COMPACTIONS do. */
#define COMPACTIONS       2u
#define COMPACTIONS_EVERY 8u

/* A change that has lost this many slots to others, or has waited for its turn for the time of this
 * many looks, has met a crowd. */
#define CROWD 4u

struct write {
    struct sephash_key key;
    struct sephash_look look;
    struct index_found found;
    struct index_change change;
    struct index_hint hint;
    uint64_t word; /* that it has appended */
    bool blind;    /* a put */
    bool done;
    bool lost;       /* and it is done all the same */
    unsigned beaten; /* slots that it has lost */
    struct turn turn;
    uint64_t queued_ns, look_ns; /* it has waited for its turn; a look that it made then took */
    uint64_t waited;             /* the state of an anchor: for its merge it has waited in vain */
    uint64_t stale;
};

/* ---- turns ----------------------------------------------------------------------------------- */

/* One of those that append to a lane succeeds in each round trip. So the changes of a process that
 * meet others there take turns, each until it ends (TURN-1). Lanes have no addresses that last. */
static void queue_up(struct op *op, struct write *w, gaddr anchor)
{
    if (w->turn.queue || !op->pool->turns)
        return;
    uint64_t since = batch_now(&op->batch);
    turn_take(op, anchor | (uint64_t)w->key.lane << GADDR_BITS, &w->turn);
    w->queued_ns = batch_now(&op->batch) - since;
}

/* A put whose session has met others here before takes its turn first: it needs two round trips
 * then, as if it was alone. Other changes look at the key first, for two round trips of theirs
 * disturb nobody. */
static void expect_others(struct op *op, const struct sephash_view *view, struct write *w)
{
    const struct sephash_segment *s = &sephash_known_of(view, w->key.hash)->segment;
    if (w->blind && (s->busy >> w->key.lane & 1))
        queue_up(op, w, s->part.anchor);
}

static void end_turn(struct op *op, const struct sephash_view *view, struct write *w)
{
    struct sephash_segment *s = &sephash_known_of(view, w->key.hash)->segment;
    uint64_t bit = 1ull << w->key.lane;
    turn_give(op, &w->turn);
    s->busy = w->beaten > 0 || w->queued_ns > 0 ? s->busy | bit : s->busy & ~bit;
}

static bool met_a_crowd(const struct write *w)
{
    return w->beaten >= CROWD || (w->look_ns > 0 && w->queued_ns / CROWD > w->look_ns);
}

/* ---- a CurSegment that is full --------------------------------------------------------------- */

static int merge(struct op *op, struct sephash_view *view, const struct write *w, bool removes)
{
    return sephash_merge(op, view, &w->look.segment, removes, met_a_crowd(w));
}

/* Another client has filled it, and merges it now if it lives. Waits a little, then does it. Until
 * the merge, nothing of the segment changes but the anchor's first word, so that is all that is
 * read. */
static int merge_or_wait(struct op *op, struct sephash_view *view, struct write *w, bool removes)
{
    const struct sephash_segment *s = &w->look.segment;
    unsigned waits = w->waited == s->state ? 0 : op->pool->knobs.patience;
    uint64_t pause_ns = MERGE_PAUSE_NS;
    queue_up(op, w, s->part.anchor);
    for (unsigned i = 0; i < waits; i++) {
        op_wait(op, pause_ns);
        pause_ns = 2 * pause_ns < MERGE_PAUSE_NS_MOST ? 2 * pause_ns : MERGE_PAUSE_NS_MOST;
        unsigned n = op_read(op, s->part.anchor, offsetof(struct sephash_anchor, state));
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK || op_result(op, n) != s->state)
            return rc;
    }
    w->waited = s->state;
    return merge(op, view, w, removes);
}

/* ---- appending ------------------------------------------------------------------------------- */

/* The mark of the filter goes ahead of the CAS (SEPHASH-H5). */
static unsigned add_cas(struct op *op, const struct sephash_view *view, const struct write *w,
                        uint64_t word)
{
    gaddr cur = sephash_target(w->look.segment.state);
    if (view->shape.buckets) {
        uint64_t *mark = op_next_word(op);
        *mark = 1;
        batch_write(&op->batch, MARK_EARLY, cur, sephash_filter_at(w->key.bucket), mark, 8);
        batch_fence(&op->batch);
    }
    unsigned slot = sephash_reached(&view->shape, w->key.lane, w->look.filled);
    return op_cas(op, MARK_PUBLISH, cur, sephash_slot_at(&view->shape, slot), 0, word);
}

/* Another client was faster with the slot, and the word that it has put there may be of the key.
 * CHANGE-C1: is this change done? Not if the word deletes what was found: a modify that removes the
 * key has seen its value. A blind put has not looked, and cannot tell. It goes on behind the
 * word. */
static int lose(struct op *op, struct write *w, uint64_t met)
{
    struct index_probe probe = {.key = w->key.bytes, .format = SEPHASH_SLOT};
    struct index_found winner;
    bool deletes = w->found.place >= 0 && met == w->found.slot;
    if (w->blind || deletes || !index_change_may_lose(&w->change))
        return FAR_OK;
    int rc = index_probe(op, &probe, &met, 1, &winner);
    if (rc != FAR_OK || winner.place < 0 || !index_change_overwritten(op, &w->change, winner.block))
        return rc;
    index_change_drop(op, &w->change);
    w->done = w->lost = true;
    return FAR_OK;
}

/* Another client was faster with the slot. *again: its word may be of the key, so what was judged
 * may not hold any more (SEPHASH-H4), or the lane was closed. */
static int pass(struct op *op, struct write *w, uint64_t word, bool *again)
{
    if (word == SEPHASH_CLOSED) {
        *again = true;
        return FAR_OK;
    }
    w->look.filled++;
    w->beaten++;
    if ((word & SEPHASH_TAG) != w->look.tag)
        return FAR_OK;
    int rc = lose(op, w, word);
    *again = !w->blind;
    return rc;
}

/* After the first slot that it has lost: waits for its turn. What others have appended meanwhile it
 * reads at once, and passes word by word, as if it had lost each of these slots (SEPHASH-H4). */
static int catch_up(struct op *op, const struct sephash_view *view, struct write *w, bool *again)
{
    struct sephash_look *l = &w->look;
    if (w->turn.queue || l->filled == sephash_reach(&view->shape))
        return FAR_OK;
    queue_up(op, w, l->segment.part.anchor);
    if (w->queued_ns == 0)
        return FAR_OK;
    sephash_read_on(op, view, l);
    int rc = batch_flush(&op->batch);
    while (rc == FAR_OK && !w->done && !*again && l->filled < sephash_reach(&view->shape) &&
           l->slots[l->filled] != 0)
        rc = pass(op, w, l->slots[l->filled], again);
    return rc;
}

/* Appends the word: as long as others are faster, behind theirs. *again: one of theirs may be of
 * the key, or the CurSegment is full. */
static int append(struct op *op, struct sephash_view *view, struct write *w, uint64_t word,
                  bool *again)
{
    while (w->look.filled < sephash_reach(&view->shape)) {
        unsigned n = add_cas(op, view, w, word);
        int rc = batch_flush(&op->batch);
        w->done = op_swapped(op, n);
        w->word = word;
        if (rc != FAR_OK || w->done)
            return op_decided(op, rc);
        rc = pass(op, w, op_result(op, n), again);
        if (rc == FAR_OK && !w->done && !*again)
            rc = catch_up(op, view, w, again);
        if (rc != FAR_OK || w->done || *again)
            return rc;
    }
    *again = true;
    return FAR_OK;
}

/* If this operation has filled the last slot, it merges. What it was to do is done: it does not
 * matter to it whether that succeeds. One that has lost has filled none. */
static void after_append(struct op *op, struct sephash_view *view, struct write *w)
{
    if (!w->lost && w->look.filled + 1 >= view->shape.lane)
        sephash_know_full(view, &w->look.segment, w->key.lane, w->look.filled + 1);
    if (!w->lost && w->look.filled + 1 == sephash_reach(&view->shape))
        (void)merge(op, view, w, false);
}

/* ---- the change ------------------------------------------------------------------------------ */

/* hinted: goes by the hint of the key. */
static int look(struct op *op, struct sephash_view *view, struct write *w, bool hinted, bool *again)
{
    uint64_t since = w->turn.queue ? batch_now(&op->batch) : 0;
    bool misled = false;
    index_change_write(op, &w->change);
    int rc = sephash_look(op, view, &w->key, w->blind ? SEPHASH_LANE : SEPHASH_LANE | SEPHASH_RANGE,
                          w->blind || !hinted ? NULL : &w->hint, &w->look);
    w->look_ns = w->turn.queue ? batch_now(&op->batch) - since : 0;
    if (rc != FAR_OK)
        return rc;
    w->change.written |= w->change.block.at != 0;
    w->found = (struct index_found){.place = -1};
    if (w->blind)
        return FAR_OK;
    rc = sephash_find(op, &w->key, &w->look, index_change_out(&w->change), &w->found, &misled);
    if (rc == FAR_OK && misled)
        return look(op, view, w, false, again);
    if (rc != FAR_OK)
        return rc;
    if (w->found.stale != 0) { /* it may be the newest of the key */
        *again = true;
        return index_found_stale(&w->found, &w->stale);
    }
    if (w->found.place >= 0 && sephash_deletes(&w->look, (unsigned)w->found.place))
        w->found.place = -1;
    return FAR_OK;
}

static unsigned near_node(const struct sephash_view *view, const struct write *w)
{
    return gaddr_node(sephash_known_of(view, w->key.hash)->segment.part.anchor);
}

/* Is the new block written to the node of the segment? Otherwise reading behind that takes
 * longer. */
static bool writes_near(const struct sephash_view *view, const struct write *w)
{
    return w->change.block.at == 0 || w->change.written ||
           gaddr_node(w->change.block.at) == near_node(view, w);
}

/* What the key has now, if this change has filled a slot. */
static void note(struct sephash_view *view, const struct write *w)
{
    bool removes = w->word == w->found.slot;
    if (w->done && !w->lost)
        sephash_hint_note(view, &w->key, w->look.segment.state, removes ? 0 : w->word,
                          removes ? 0 : SEPHASH_ANYWHERE, NULL);
}

/* Prepares the block of a value that is known. While the reserve is incomplete, nothing is
 * stored. */
static int start(struct op *op, struct sephash_view *view, struct write *w)
{
    bool removes = w->change.want->present == CHANGE_REMOVE;
    int rc = view->owes && !removes ? sephash_reserve_restore(op, view) : FAR_OK;
    if (rc == FAR_OK && index_change_known(&w->change))
        rc = index_change_prepare(op, &w->change, near_node(view, w));
    w->blind &= !w->change.last; /* it must know whether it replaces */
    return rc;
}

/* Appends what the change is to do with the key, as it was found. */
static int act(struct op *op, struct sephash_view *view, struct write *w, bool *again)
{
    enum change_action action = CHANGE_STORE;
    int rc = w->blind ? FAR_OK
                      : index_change_resolve(op, &view->base, &w->change, &w->found,
                                             near_node(view, w), &action);
    if (rc != FAR_OK)
        return rc;
    bool removes = action == CHANGE_REMOVE;
    if (w->look.full) {
        *again = true;
        return merge_or_wait(op, view, w, w->found.place >= 0);
    }
    if (removes)
        return append(op, view, w, w->found.slot, again);
    index_change_write_first(op, &w->change);
    return append(op, view, w, sephash_entry(pointer_make(&w->change.block, 0), w->look.tag),
                  again);
}

int sephash_change(struct op *op, struct index_view *base, struct slice bytes,
                   struct change *change)
{
    struct sephash_view *view = sephash_view(base);
    struct write w = {.change = {.want = change}};
    sephash_hash(view, bytes, &w.key);
    w.change.key = bytes;
    w.blind = change->absent == CHANGE_STORE && change->present == CHANGE_STORE;
    int rc = start(op, view, &w);
    if (rc == FAR_OK)
        expect_others(op, view, &w);
    w.hint = sephash_hint(view, &w.key);
    for (unsigned attempts = 0; /* others wait while it has a turn */
         rc == FAR_OK && index_attempt_after_pause(op, &attempts, w.turn.queue ? 0 : attempts);) {
        bool again = false;
        rc = look(op, view, &w, attempts == 1 && writes_near(view, &w), &again);
        if (rc == FAR_OK && !again)
            rc = act(op, view, &w, &again);
        if (rc == FAR_POOL_FULL && w.blind) { /* if it replaces, a merge may use the reserve */
            w.blind = false;
            rc = FAR_OK;
            continue;
        }
        if (rc != FAR_OK || w.done)
            break;
    }
    if (rc == FAR_OK && !w.done)
        rc = FAR_CONTENTION;
    rc = index_change_end(op, &w.change, rc);
    if (rc != FAR_POOL_FULL)
        view->refused = 0;
    else if (view->refused++ % COMPACTIONS_EVERY < COMPACTIONS)
        sephash_make_room(op, view, w.key.hash);
    if (w.done && w.found.place >= 0)
        view->fruitless = 0;
    note(view, &w);
    if (w.done)
        after_append(op, view, &w);
    end_turn(op, view, &w);
    return rc;
}
