/*
 * Changes. One round trip locks the leaf and reads the key's neighbourhood, the next one writes and
 * unlocks. If the key's block is not the one that a hint names, or there is no hint, a round trip
 * in between reads it. If an insert finds no place, one reads the rest of the leaf.
 */
#include "index/chime/chime.h"
#include "pool/turns.h"

#define MOVES 8u /* to the right, between two looks at the parent */

struct write {
    struct chime_key key;
    struct chime_spot spot;
    struct index_change change;
    struct index_found found;
    struct chime_wait wait;
    struct chime_held held;
    uint64_t vacancy; /* as the head says; for inserts and deletes */
    unsigned stale;   /* how often the parent did not know the leaf's name */
    gaddr right;      /* go on here, without a descent: the leaf to the right of the last one */
    struct turn turn; /* at the leaf turn_at */
    gaddr turn_at;
    bool paused;               /* the attempt has met a lock, and has paused */
    enum chime_kind old_kind;  /* of the key's entry, if it was found */
    struct index_hint hint;    /* of the key; its slot is 0: none */
    struct index_block peeked; /* the block that it names, if that was read along */
    struct chime_seen now;     /* the key's entry */
};

static bool may_insert(const struct write *w)
{
    return w->change.want->absent != CHANGE_NOTHING;
}

/* Can it only replace an entry? Then it does not matter what is free. */
static bool only_updates(const struct write *w)
{
    return w->change.want->present == CHANGE_STORE && !may_insert(w);
}

/* Does the pair need no block, in a leaf with that stem? */
static bool fits(const struct write *w, const struct chime_stem *stem)
{
    return w->key.inside && w->change.want->value.len == 8 && stem->len == 0; /* CHIME-C14 */
}

/* ---- locking --------------------------------------------------------------------------------- */

/* Waits for the turn of this process at the leaf (TURN-2: nothing is held yet). A turn outlasts
 * attempts that find the lock held by another client: the next of the queue wants the same lock,
 * and would only look at it as well. */
static void take_turn(struct op *op, struct write *w, gaddr at)
{
    if (w->turn.queue && w->turn_at == at)
        return;
    turn_give(op, &w->turn);
    turn_take(op, at, &w->turn);
    w->turn_at = at;
}

/* Nothing is held any more. The next one may go, whatever else is to be done. */
static void let_leaf_go(struct op *op, struct write *w)
{
    w->held.at = 0;
    turn_give(op, &w->turn);
}

/* Unlocks; the operation ends with rc, or with what went wrong here. */
static int release(struct op *op, struct write *w, int rc)
{
    int released = w->held.at != 0 ? chime_release(op, w->held.at) : FAR_OK;
    let_leaf_go(op, w);
    return released != FAR_OK && rc == FAR_OK ? released : rc;
}

/* Gives back the block that is not published: the operation may rest, and a sweep would find it. */
static void let_go(struct op *op, struct write *w)
{
    index_change_drop(op, &w->change);
    w->change.written = false;
}

/* All of the leaf was read: what is free, as its groups say. Of damaged ones the head goes on to
 * say what it said (CHIME-C12); none of them is in the neighbourhood. */
static uint64_t free_places(const struct chime_view *view, const struct write *w)
{
    uint64_t vacancy = chime_vacancy(&view->shape, w->held.node), said = 0;
    for (unsigned left = w->held.harm.groups; left; left &= left - 1)
        said |= 0xfull << CHIME_GROUP * (unsigned)__builtin_ctz(left);
    return (vacancy & ~said) | (chime_head(w->held.node)->vacancy & said);
}

/* All of the leaf was read, because its name is not what the parent said. If the key belongs to the
 * right of it, goes there. */
static int look_at_range(struct op *op, struct chime_view *view, struct write *w)
{
    const struct chime_head *head = chime_head(w->held.node);
    bool below = false;
    int rc = chime_below_high(op, view, head, &w->key.bound, &below);
    struct chime_child_ref next = {chime_next_at(head->next), head->high.k, head->high.lng, 0};
    w->vacancy = free_places(view, w);
    if (rc == FAR_OK && below)
        return FAR_OK;
    rc = release(op, w, rc);
    let_go(op, w);
    if (rc != FAR_OK)
        return rc;
    /* At first the parent is read again. If it still does not know the sibling, a split was not
     * completed. After some moves to the right the parent is read once more: it may know much
     * better by then. */
    if (w->stale++ % MOVES == 0)
        return chime_forget(op, view, w->spot.parent);
    w->right = next.at;
    return chime_enter(op, view, &next, &w->wait);
}

/* The lock was not taken, because of this word. */
static int wait_for_lock(struct op *op, struct chime_view *view, struct write *w, gaddr at,
                         uint64_t word)
{
    enum chime_verdict verdict = CHIME_GOOD;
    let_go(op, w);
    int rc = chime_wait(op, view, at, word, &w->wait, &verdict);
    w->paused = w->wait.paused;
    if (verdict != CHIME_GOOD)
        w->right = 0;
    return rc == FAR_OK && verdict == CHIME_GONE ? chime_settle(op, view, w->spot.parent, &w->wait)
                                                 : rc;
}

/* What has to be read of the leaf at first. */
static struct chime_window first_window(const struct chime_view *view, const struct write *w)
{
    bool all = view->tuning[CHIME_TUNING_WHOLE] != 0 ||
               (may_insert(w) && view->tuning[CHIME_TUNING_VACANCY] == 0);
    return all ? chime_all(&view->shape) : chime_window(&view->shape, w->key.home);
}

/* Adds the READs of what is needed of the leaf. */
static void read_first(struct op *op, const struct chime_view *view, struct write *w, gaddr at)
{
    struct chime_held *h = &w->held;
    h->have = first_window(view, w);
    h->whole = w->right != 0 || h->have.count == view->shape.groups;
    if (h->whole)
        batch_read_head(&op->batch, at, 0, h->node, view->shape.bytes);
    else
        chime_read_window(op, &view->shape, at, h->have, h->node, MARK_HEAD);
}

/* The leaf is held. If its name is not what the parent said, all of it is read. */
static int judge(struct op *op, struct chime_view *view, struct write *w)
{
    struct chime_held *h = &w->held;
    bool led = w->right == 0;
    w->right = 0;
    bool fits = led && chime_judge(view, h->node, h->have, &h->name) == CHIME_FITS;
    if (fits && !h->whole)
        return FAR_OK;
    if (!fits)
        w->peeked.slot = 0; /* a separator may be read into its buffer */
    int rc = h->whole ? chime_judge_held(op, view, h, 0) : chime_read_rest(op, view, h);
    return rc == FAR_OK && !fits ? look_at_range(op, view, w) : rc;
}

/* Locks the leaf and reads what is needed of it. If w->held.at is 0 after FAR_OK, the operation
 * tries again. */
static int lock(struct op *op, struct chime_view *view, struct write *w)
{
    struct chime_held *h = &w->held;
    bool held = false;
    gaddr at = w->right != 0 ? w->right : w->spot.name.at;
    *h = (struct chime_held){.node = op_buffer(op, BUF_INDEX, view->shape.bytes)};
    if (!h->node)
        return FAR_NO_MEMORY;
    take_turn(op, w, at);
    h->name = w->spot.name;
    h->stem = w->spot.stem;
    h->need = chime_window(&view->shape, w->key.home);
    index_change_write(op, &w->change);
    unsigned n = chime_lock(op, at), vacancy = 0;
    if (!only_updates(w))
        vacancy = op_read_head(op, at, offsetof(struct chime_head, vacancy));
    read_first(op, view, w, at);
    w->hint = chime_hint(view, &w->key);
    w->peeked.slot = 0;
    if (w->wait.lock.owners == 0) /* else others change this leaf, and perhaps this key */
        chime_peek(op, &w->hint, at, &w->peeked);
    int rc = chime_locked(op, at, n, batch_flush(&op->batch), &held);
    if (rc != FAR_OK)
        return rc;
    w->change.written = true;
    if (!held)
        return wait_for_lock(op, view, w, at, op_result(op, n));
    h->at = at;
    w->vacancy = vacancy != 0 ? op_result(op, vacancy) : 0;
    return judge(op, view, w);
}

/* ---- looking for the key --------------------------------------------------------------------- */

static int look(struct op *op, struct chime_view *view, struct write *w)
{
    struct chime_held *h = &w->held;
    uint64_t words[CHIME_SPAN_MAX];
    int exact = -1;
    uint64_t candidates =
        chime_candidates(view, h->node, &w->key, h->have, &h->name, &h->stem, &exact);
    w->found = (struct index_found){.place = exact};
    w->now = (struct chime_seen){.kind = CHIME_EMPTY};
    w->old_kind = CHIME_INLINE;
    if (exact < 0 && candidates != 0) {
        for (uint64_t left = candidates; left; left &= left - 1) {
            unsigned place = (unsigned)__builtin_ctzll(left);
            words[place] = chime_entry(h->node, place)[1];
        }
        struct index_probe probe = {
            .key = w->key.bound.bytes, .format = CHIME_SLOT, .out = index_change_out(&w->change)};
        int rc = FAR_OK;
        if (!chime_peeked(&probe, &w->peeked, words, candidates, &w->found))
            rc = index_probe(op, &probe, words, candidates, &w->found);
        if (rc == FAR_OK && w->found.place < 0 && w->found.stale != 0)
            rc = err_fail(FAR_CORRUPT, "a key-value block fails its checksum");
        if (rc != FAR_OK)
            return rc;
        w->old_kind = CHIME_BLOCK;
    }
    if (w->found.place >= 0)
        w->now = (struct chime_seen){w->old_kind, w->found.slot, (unsigned)w->found.place, false};
    return FAR_OK;
}

/* Asks the user, and prepares the block for the answer. */
static int ask(struct op *op, struct chime_view *view, struct write *w, enum change_action *action)
{
    struct slice old = {NULL, 0};
    if (w->found.place >= 0)
        old = w->old_kind == CHIME_INLINE
                  ? (struct slice){chime_entry(w->held.node, (unsigned)w->found.place) + 1, 8}
                  : index_block_value(w->found.block);
    int rc = index_decide(&view->base, w->change.want, old, action);
    if (rc != FAR_OK)
        return rc;
    index_change_drop(op, &w->change); /* of an earlier attempt */
    return FAR_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The new entry of the key, in the leaf that is held. */
static struct chime_new new_entry(const struct chime_view *view, const struct write *w)
{
    struct chime_new x = {.k = w->key.bound.k, .home = w->key.home, .bound = w->key.bound};
    if (w->change.block.at == 0) {
        x.kind = CHIME_INLINE;
        memcpy(&x.v, w->change.want->value.data, 8);
    } else {
        x.kind = CHIME_BLOCK;
        x.k = chime_k(view, &w->held.stem, w->key.bound.bytes);
        x.v = slot_make(CHIME_SLOT, &w->change.block, w->key.fingerprint);
    }
    return x;
}

/* The key is there, and gets another value in its place. */
static int update(struct op *op, struct chime_view *view, struct write *w,
                  struct chime_staging *staging)
{
    struct chime_held *h = &w->held;
    struct chime_new x = new_entry(view, w);
    unsigned place = (unsigned)w->found.place, group = place / CHIME_GROUP;
    uint64_t *words = chime_group(h->node, group);
    chime_entry(h->node, place)[1] = x.v;
    words[0] = chime_with_kind(words[0], place % CHIME_GROUP, x.kind);
    chime_group_seal(chime_name_seal(view, &h->name), group, words);
    chime_staging_word(op, staging, h->at, offsetof(struct chime_head, intent), words[0]);
    batch_fence(&op->batch); /* CHIME-C3 */
    chime_staging_word(op, staging, h->at, chime_entry_at(place) + 8, x.v);
    batch_fence(&op->batch);
    chime_staging_word(op, staging, h->at, chime_group_at(group), words[0]);
    chime_unlock(op, h->at);
    w->now = (struct chime_seen){x.kind, x.v, place, true};
    return chime_finish(op);
}

static int erase(struct op *op, struct chime_view *view, struct write *w,
                 struct chime_staging *staging)
{
    struct chime_held *h = &w->held;
    unsigned place = (unsigned)w->found.place, group = place / CHIME_GROUP;
    uint64_t *words = chime_group(h->node, group);
    words[0] = chime_with_kind(words[0], place % CHIME_GROUP, CHIME_EMPTY);
    chime_group_seal(chime_name_seal(view, &h->name), group, words);
    chime_staging_word(op, staging, h->at, chime_group_at(group), words[0]);
    chime_staging_word(op, staging, h->at, offsetof(struct chime_head, vacancy),
                       w->vacancy | 1ull << place);
    chime_unlock(op, h->at);
    return chime_finish(op);
}

/* The key is there: its entry is replaced, or removed. */
static int replace(struct op *op, struct chime_view *view, struct write *w, bool remove)
{
    ASSERT(w->held.at != 0 && w->found.place >= 0);
    struct chime_staging staging;
    int rc = chime_staging_start(op, &staging);
    if (rc != FAR_OK)
        return release(op, w, rc);
    if (!remove)
        index_change_write_first(op, &w->change);
    rc = remove ? erase(op, view, w, &staging) : update(op, view, w, &staging);
    if (remove)
        w->now.kind = CHIME_EMPTY;
    let_leaf_go(op, w);
    if (w->old_kind == CHIME_BLOCK)
        index_change_replaced(op, &w->found, rc == FAR_OK, rc);
    unsigned left = chime_used(&view->shape, w->vacancy) - 1;
    if (rc == FAR_OK && remove && (left == 0 || left == view->shape.span / 8))
        chime_shrink(op, view, &w->key.bound, 0);
    return rc;
}

/* ---- inserting ------------------------------------------------------------------------------- */

/* Moves an entry to a free place: first it is there twice, then all groups get a new era, and it is
 * gone from the old place (CHIME-C6). Within a group one word does both. */
static void write_move(struct op *op, const struct chime_view *view, struct write *w,
                       struct chime_staging *staging, unsigned from, unsigned to)
{
    struct chime_held *h = &w->held;
    uint64_t *group = chime_group(h->node, to / CHIME_GROUP), *entry = chime_entry(h->node, from);
    unsigned era = chime_era(*group) + 1;
    struct chime_new x = {.k = entry[0], .v = entry[1], .kind = chime_kind_at(h->node, from)};
    group[0] = chime_with_era(group[0], era);
    if (from / CHIME_GROUP == to / CHIME_GROUP) /* else it has the new era, and the entry twice */
        group[0] = chime_with_kind(group[0], from % CHIME_GROUP, CHIME_EMPTY);
    chime_write_entry(op, view, staging, h, to, &x);
    group = chime_group(h->node, from / CHIME_GROUP);
    group[0] = chime_with_kind(group[0], from % CHIME_GROUP, CHIME_EMPTY);
    chime_renew(view, h->node, &h->name, era);
    batch_fence(&op->batch);
    chime_staging_groups(op, staging, &view->shape, h->at, h->node);
    batch_fence(&op->batch);
    chime_staging_next(op, staging, &h->name, era);
    batch_fence(&op->batch);
}

/* There is a place, perhaps after some moves. */
static int insert_at(struct op *op, struct chime_view *view, struct write *w,
                     const struct chime_plan *plan)
{
    struct chime_held *h = &w->held;
    struct chime_new x = new_entry(view, w);
    struct chime_staging staging;
    int rc = chime_staging_start(op, &staging);
    if (rc != FAR_OK)
        return release(op, w, rc);
    index_change_write_first(op, &w->change);
    for (unsigned i = 0; i < plan->moves; i++)
        write_move(op, view, w, &staging, plan->move[i].from, plan->move[i].to);
    chime_write_entry(op, view, &staging, h, plan->place, &x);
    unsigned taken = plan->moves > 0 ? plan->move[0].to : plan->place;
    chime_staging_word(op, &staging, h->at, offsetof(struct chime_head, vacancy),
                       chime_taken(w->vacancy, taken));
    chime_unlock(op, h->at);
    rc = chime_finish(op);
    let_leaf_go(op, w);
    w->now = (struct chime_seen){x.kind, x.v, plan->place, true};
    return rc;
}

/* The leaf is full: splits it. What is missing in the parent then, others can complete. */
static int split(struct op *op, struct chime_view *view, struct write *w)
{
    struct chime_new x = new_entry(view, w);
    struct chime_child_ref born = {0};
    int rc = FAR_OK;
    if (!w->change.written) { /* the separator may need the buffer */
        index_change_write(op, &w->change);
        rc = batch_flush(&op->batch);
        w->change.written = true;
    }
    if (rc != FAR_OK)
        return release(op, w, rc);
    uint64_t began = batch_now(&op->batch);
    rc = chime_split(op, view, &w->held, &x, &born);
    let_leaf_go(op, w);
    if (rc == FAR_OK)
        (void)chime_enter(op, view, &born, &w->wait);
    index_grew_since(op, &view->base, began);
    return rc;
}

/* The key is not there. */
static int insert(struct op *op, struct chime_view *view, struct write *w)
{
    ASSERT(w->held.at != 0 && w->found.place < 0);
    const struct chime_shape *s = &view->shape;
    struct chime_plan plan = {.place = chime_free_place(s, w->vacancy, w->key.home)};
    if (plan.place < s->span && chime_kind_at(w->held.node, plan.place) == CHIME_EMPTY)
        return insert_at(op, view, w, &plan);
    int rc = chime_read_rest(op, view, &w->held);
    if (rc != FAR_OK) {
        w->held.at = 0;
        return rc;
    }
    w->vacancy = free_places(view, w);
    bool moves = w->held.harm.groups == 0; /* they write all groups */
    return moves && chime_plan(view, w->held.node, w->key.home, &plan)
               ? insert_at(op, view, w, &plan)
               : split(op, view, w);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The leaf is held. What ends without a change unlocks. */
static int act(struct op *op, struct chime_view *view, struct write *w)
{
    enum change_action action = CHANGE_NOTHING;
    int rc = look(op, view, w);
    if (rc == FAR_OK)
        action = index_change_action(&w->change, &w->found);
    if (rc == FAR_OK && action == CHANGE_ASK)
        rc = ask(op, view, w, &action);
    if (rc == FAR_OK)
        rc = index_change_judge(&w->change, &w->found, action);
    if (rc == FAR_OK && action == CHANGE_STORE && w->change.block.at == 0 &&
        !fits(w, &w->held.stem))
        rc = index_change_prepare(op, &w->change, gaddr_node(w->held.at));
    if (rc != FAR_OK)
        return release(op, w, rc);
    return w->found.place >= 0 ? replace(op, view, w, action == CHANGE_REMOVE)
                               : insert(op, view, w);
}

static int attempt(struct op *op, struct chime_view *view, struct write *w, bool *again)
{
    int rc = w->right == 0 ? chime_descend(op, view, &w->key.bound, 0, true, &w->wait, &w->spot)
                           : FAR_OK;
    *again = rc == FAR_OK && w->spot.lost;
    if (*again)
        return FAR_OK;
    if (rc == FAR_OK && index_change_known(&w->change) && w->change.block.at == 0 &&
        !fits(w, &w->spot.stem))
        rc = index_change_prepare(op, &w->change, gaddr_node(w->spot.name.at));
    if (rc == FAR_OK)
        rc = lock(op, view, w);
    *again = rc == FAR_OK && w->held.at == 0;
    return rc != FAR_OK || *again ? rc : act(op, view, w);
}

int chime_change(struct op *op, struct index_view *base, struct slice key, struct change *change)
{
    struct chime_view *view = chime_view(base);
    struct write w;
    w.change = (struct index_change){.key = key, .want = change};
    w.wait = (struct chime_wait){0};
    w.held.at = w.right = w.turn_at = 0;
    w.turn = (struct turn){0};
    w.hint = (struct index_hint){.slot = 0};
    w.now = (struct chime_seen){.kind = CHIME_EMPTY};
    w.stale = 0;
    chime_key_set(view, key, &w.key);
    int rc = FAR_CONTENTION;
    unsigned lost = 0; /* attempts, other than moves to the right */
    for (unsigned attempts = 0; index_attempt_after_pause(op, &attempts, lost);) {
        bool again = false;
        w.paused = false;
        rc = attempt(op, view, &w, &again);
        if (w.wait.rests)
            w.right = 0;
        if (!again || !w.paused || w.wait.rests)
            turn_give(op, &w.turn);
        if (rc == FAR_OK && again)
            rc = chime_rest(op, view, &w.wait, &attempts);
        if (rc != FAR_OK || !again)
            break;
        if (w.paused && attempts > 0)
            attempts--; /* index_lock_wait() has pauses and bounds of its own */
        else
            lost = attempts == 0 ? 0 : lost + (w.right == 0);
        rc = FAR_CONTENTION;
    }
    if (rc == FAR_OK || status_means(rc, STATUS_ANSWER))
        chime_hint_note(view, &w.key, &w.now, &w.hint);
    return index_change_end(op, &w.change, rc);
}
