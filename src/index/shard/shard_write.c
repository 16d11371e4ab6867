/*
 * Changing a key. If the session has written it before, its entry may be changed at once. All other
 * changes start alike: look for the key, first where a hint says, and move its unit if that is
 * behind.
 * index/change.h has the blocks, and when they are written.
 */
#include "index/shard/shard.h"

#include <string.h>

/* How often an operation reads the root again because a unit is ahead of what it knows. Once is
 * enough if nothing is damaged (SHARD-S8). */
#define STRAYS 4

/* How often an operation moves its unit. Mostly once; more often if a READ was torn, or the table
 * was resized meanwhile. */
#define MOVES 64

/* An insert purges a unit when it would have to leave level 1, and this part of level 1 is
 * deleted. */
#define PURGE_PART 8

/* After a unit was found behind, this many operations expect others to be. */
#define BEHIND_OPS 16u

/* How long an insert waits for others to take note of a resize, if it finds no room otherwise. */
#define BARRIER_LEASES 2

/* An insert that has lost its unit's tail this often waits for a barrier that is not over: then
 * more units share the work. It does so this many times. */
#define LOST_BEFORE_WAITING 2u
#define WAITS               8u

/* The pauses of an insert grow with its losses, up to this many: while it pauses, it holds up the
 * barrier that would help it. */
#define LOST_MOST 7u

/* How a session waits for a barrier: it drives the epoch twice between two pauses, which are short
 * at first. One of eight times it also looks for dead clients and the like. */
#define DRIVES         2u
#define DRIVES_ALONE   8u
#define SHORT_PAUSE_NS 4000u
#define SHORT_WAIT_NS  1000000u

/* How often it reports that its unit is full. Once is mostly enough; more often if the table has to
 * be resized several times, or others resize it meanwhile. */
#define REPORTS 4

struct write {
    struct shard_key key;
    struct shard_unit unit;
    unsigned version; /* of the unit */
    bool pending;     /* the barrier of the next version is not over, or it does as if it was not */
    struct index_found found;
    struct index_change change;
    bool done;
    uint64_t met;     /* by the CAS that decides */
    uint64_t now;     /* the key's word as this operation knows it; 0: it has none */
    unsigned place;   /* its slot */
    bool at_once;     /* it must not wait for the barrier, or did so in vain */
    unsigned waits;   /* for the barrier */
    unsigned lost;    /* how often another insert has taken the tail, since it has waited */
    unsigned losses;  /* the same in all */
    bool added;       /* it is an insert */
    unsigned reports; /* because the unit is full */
    uint64_t stale;
    struct shard_seen seen;
    unsigned strays, moves, looks;
};

/* Near which node the key's blocks are: that of its unit. */
static unsigned near_node(const struct shard_view *view, const struct write *w)
{
    uint64_t delta;
    return gaddr_node(shard_unit_at(view, w->key.lane, shard_bucket(view, w->key.hash, 0), &delta));
}

/* Prepares the block of a value that is known. */
static int start(struct op *op, const struct shard_view *view, struct write *w)
{
    return index_change_known(&w->change) ? index_change_prepare(op, &w->change, near_node(view, w))
                                          : FAR_OK;
}

static uint64_t slot_word(const struct write *w)
{
    return slot_make(SHARD_SLOT, &w->change.block, w->key.fingerprint);
}

static uint64_t entry_word(const struct shard_view *view, const struct write *w)
{
    return shard_with_sid(slot_word(w), shard_sid(view, w->key.hash, w->version));
}

/* ---- looking --------------------------------------------------------------------------------- */

/* A move to the next version has touched the unit: so the barrier is over, or what this session
 * knows of the table is old. */
static int strayed(struct op *op, struct shard_view *view, struct write *w)
{
    if (w->pending) {
        if (view->settled == w->version)
            view->settled = view->version;
        return FAR_OK;
    }
    if (view->settled > w->version)
        return FAR_OK;
    if (++w->strays > STRAYS)
        return err_fail(FAR_CORRUPT, "a bucket is ahead of its table");
    return shard_refresh(op, view);
}

/* Does the image show a move to the next version? */
static bool ahead(const struct write *w)
{
    uint64_t seal = shard_seal(w->version) >> SHARD_SEAL_AT, sealed = 0, plan = 0;
    for (unsigned i = 0; i < w->unit.count; i++) {
        sealed |= w->unit.words[i] >> SHARD_SEAL_AT == seal;
        plan |= shard_is(w->unit.words[i], SHARD_PLAN);
    }
    for (unsigned i = 0; i < w->unit.count && plan && !sealed; i++)
        sealed |= shard_is(w->unit.words[i], SHARD_PLAN) &&
                  shard_plan_version(w->unit.words[i]) > w->version;
    return sealed;
}

/* The unit is behind: moves it, with the insert if there is one. `image` is as for shard_move(). */
static int move(struct op *op, struct shard_view *view, struct write *w,
                const struct shard_unit *image)
{
    struct shard_ride ride = {.key = &w->key};
    if (++w->moves > MOVES)
        return err_fail(FAR_CORRUPT, "a bucket was moved, and is not there");
    if (w->change.want->absent == CHANGE_STORE && !w->change.last)
        ride.word = slot_word(w);
    view->behind_ops = BEHIND_OPS;
    int rc = shard_move(op, view, w->key.lane, w->key.hash, w->version, &ride, image);
    w->done = ride.done;
    w->now = 0; /* it is not known where */
    view->unreported += ride.done;
    return rc;
}

/* What is read of a unit and around it. */
struct around {
    /* The unit is older than its version: its last child shows whether it is behind. */
    bool older;
    unsigned sibling, child; /* the READs of that child, and of the next one */
    unsigned resize;         /* the READ of the table's version */
    bool expects_behind;     /* units are expected to be behind: their parents are read, too */
    struct shard_unit parent;
    bool earlier;            /* the parent has a child from before */
    unsigned before, behind; /* the READs of that one, and of the last child behind the unit */
};

/* Adds the READs of what it takes to move the unit, if it is behind by one version. */
static void read_parent(struct op *op, struct shard_view *view, struct write *w, struct around *a)
{
    unsigned u = w->version - 1;
    a->parent = w->unit;
    if (!a->older) {
        shard_unit_set(view, &a->parent, w->key.lane, shard_parent(view, w->unit.bucket));
        a->parent.words = w->unit.words + SHARD_UNIT_MAX;
    }
    a->earlier = u > shard_birth(view, a->parent.bucket);
    if (a->earlier) {
        a->before =
            shard_guard_read(op, view, w->key.lane, shard_child(view, a->parent.bucket, u - 1));
        batch_fence(&op->batch);
    }
    if (!a->older) {
        shard_unit_read(op, view, &a->parent, view->words);
        batch_fence(&op->batch);
    }
}

/* The unit is behind. Was all read that it takes to move it? */
static const struct shard_unit *image_to_move(const struct shard_view *view, struct write *w,
                                              struct around *a, uint64_t before, uint64_t behind)
{
    unsigned u = w->version - 1;
    if (!a->expects_behind || (a->older && behind != 0))
        return NULL;
    if (!a->older && /* it is published, and its image torn */
        shard_guard_says(view, w->unit.bucket, w->unit.words[view->level1 - 1]) == 1)
        return NULL;
    if (a->earlier &&
        shard_guard_says(view, shard_child(view, a->parent.bucket, u - 1), before) != 1)
        return NULL;
    if (a->older)
        a->parent = w->unit;
    else /* moves work on the first half of the buffer */
        memcpy(w->unit.words, a->parent.words, view->words * 8ull);
    a->parent.words = w->unit.words;
    return shard_unit_whole(view, &a->parent) && shard_published(view, &a->parent) ? &a->parent
                                                                                   : NULL;
}

/*
 * A move takes as much time as several changes, and after a resize nearly all changes meet units
 * that are behind. Where a round trip costs nothing, that would slow them down to a fraction. So
 * most of them leave the unit behind, and work in it as before the barrier (SHARD-S8), by the image
 * that was read to move it. Not if that shows a move, and not twice.
 */
static bool put_off(struct op *op, struct shard_view *view, struct write *w,
                    const struct shard_unit *image)
{
    if (!image || w->looks > 1 || view->move_every == 1 || op_random(op, view->move_every) == 0)
        return false;
    w->unit = *image;
    w->version--;
    w->pending = !ahead(w);
    w->version += !w->pending;
    view->behind_ops = BEHIND_OPS;
    return w->pending;
}

/* The unit is behind. *again: it was moved. */
static int move_or_not(struct op *op, struct shard_view *view, struct write *w, struct around *a,
                       bool *again)
{
    const struct shard_unit *image =
        image_to_move(view, w, a, a->earlier ? op_result(op, a->before) : 0,
                      a->older && a->expects_behind ? op_result(op, a->behind) : 0);
    *again = !put_off(op, view, w, image);
    return *again ? move(op, view, w, image) : FAR_OK;
}

/* Reads level 1 and 2 of the key's unit. *again: that was not it. */
static int read_unit(struct op *op, struct shard_view *view, struct write *w, bool *again)
{
    struct around a = {0};
    shard_settle(op, view);
    w->looks++;
    w->seen.once &= w->version == view->settled;
    w->version = view->settled;
    w->pending = view->version > w->version;
    uint64_t bucket = shard_bucket(view, w->key.hash, w->version);
    shard_unit_set(view, &w->unit, w->key.lane, bucket);
    a.older = shard_birth(view, bucket) < w->version;
    a.expects_behind = view->behind_ops > 0 && w->version > 0 && !w->pending;
    view->behind_ops -= view->behind_ops > 0;
    shard_note_add(op, view);
    index_change_write(op, &w->change);
    if (w->lost > 0) /* perhaps the table is too small, and others know of a resize */
        a.resize = op_read(op, view->root, offsetof(struct shard_root, resize));
    if (a.expects_behind)
        read_parent(op, view, w, &a);
    if (a.older) {
        a.sibling =
            shard_guard_read(op, view, w->key.lane, shard_child(view, bucket, w->version - 1));
        batch_fence(&op->batch);
    }
    shard_unit_read(op, view, &w->unit, view->words);
    if (w->pending || (a.expects_behind && a.older))
        batch_fence(&op->batch);
    if (w->pending) /* SHARD-S8 */
        a.child = shard_guard_read(op, view, w->key.lane, shard_child(view, bucket, w->version));
    else if (a.expects_behind && a.older)
        a.behind =
            shard_guard_read(op, view, w->key.lane, shard_child(view, bucket, w->version - 1));
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    w->change.written = true;
    *again = true;
    if (w->lost > 0 && w->pending)
        client_help_epoch(op->client);
    if (w->lost > 0 && shard_resize_version(op_result(op, a.resize)) > view->version)
        return shard_refresh(op, view);
    if (w->pending && op_result(op, a.child) != 0)
        return strayed(op, view, w);
    int says = a.older ? shard_guard_says(view, shard_child(view, bucket, w->version - 1),
                                          op_result(op, a.sibling))
                       : 1;
    if (says < 0) {
        bool published = false;
        rc = shard_look_published(op, view, w->key.lane, shard_child(view, bucket, w->version - 1),
                                  &published);
        return rc == FAR_OK && !published ? move(op, view, w, NULL) : rc;
    }
    if (says == 0 || !shard_published(view, &w->unit))
        return move_or_not(op, view, w, &a, again);
    if (ahead(w))
        return strayed(op, view, w);
    shard_know(view, w->key.lane, bucket);
    if (a.older)
        shard_know(view, w->key.lane, shard_child(view, bucket, w->version - 1));
    *again = false;
    return FAR_OK;
}

/* Looks for the key among the slots from `from` on. */
static int probe(struct op *op, struct shard_view *view, struct write *w, unsigned from)
{
    struct shard_matches matches;
    uint64_t mask = SHARD_LIVE_MASK;
    if (!w->pending) /* a move may give the key its next sid while the unit is read */
        mask |= SHARD_SID;
    uint64_t want = shard_with_sid(slot_fingerprint_word(SHARD_SLOT, w->key.fingerprint),
                                   shard_sid(view, w->key.hash, w->version));
    matches.count = 0;
    mask |= slot_fingerprint_mask(SHARD_SLOT);
    shard_match(&w->unit, from, mask, want & mask, &matches);
    return shard_probe(op, w->key.bytes, &matches, index_change_out(&w->change), &w->found);
}

/* Reads what is missing of the unit. */
static int extend(struct op *op, struct shard_view *view, struct write *w, bool *again)
{
    uint64_t child = 0;
    int rc =
        shard_unit_extend(op, view, &w->unit, w->pending ? w->version : SHARD_NO_CHILD, &child);
    if (rc != FAR_OK)
        return rc;
    *again = child != 0 || ahead(w);
    return *again ? strayed(op, view, w) : FAR_OK;
}

/* The pool is full, and the unit cannot be moved. An entry that no move has sealed can be changed
 * where it is: a child is not published before its entries are sealed. */
static int look_where_it_is(struct op *op, struct shard_view *view, struct write *w, bool *again)
{
    uint64_t bucket = shard_bucket(view, w->key.hash, w->version);
    *again = false;
    w->pending = true; /* the unit may be of any version */
    int rc = shard_find_authority(op, view, w->key.lane, bucket, &w->unit, &w->version, again);
    if (rc == FAR_OK && !*again)
        rc = probe(op, view, w, 0);
    if (rc != FAR_OK || *again || w->found.place >= 0)
        return rc;
    bool moving = false;
    for (unsigned i = 0; i < w->unit.count; i++)
        moving |= shard_sealed_by(w->unit.words[i], w->version);
    return moving || w->found.stale != 0 || w->change.want->absent != CHANGE_NOTHING
               ? err_fail(FAR_POOL_FULL, "no memory for moving a bucket")
               : FAR_OK;
}

/* Looks the key up; *again when the whole attempt must be repeated. */
static int look(struct op *op, struct shard_view *view, struct write *w, bool *again)
{
    int rc = read_unit(op, view, w, again);
    if (rc == FAR_POOL_FULL || rc == FAR_TABLE_FULL)
        return look_where_it_is(op, view, w, again);
    if (rc != FAR_OK || *again)
        return rc;
    rc = probe(op, view, w, 0);
    if (rc == FAR_OK && w->found.place < 0 && !shard_unit_whole(view, &w->unit)) {
        uint64_t stale = w->found.stale;
        rc = extend(op, view, w, again);
        if (rc == FAR_OK && !*again)
            rc = probe(op, view, w, view->words);
        index_found_also(&w->found, stale);
    }
    if (rc != FAR_OK || *again || w->found.place >= 0 || w->found.stale == 0)
        return rc;
    *again = true;
    return index_found_stale(&w->found, &w->stale); /* SHARD-S1 */
}

/* ---- changing -------------------------------------------------------------------------------- */

/* The CAS that decides the operation, and what goes with it. */
static int decide(struct op *op, struct shard_view *view, struct write *w, unsigned slot,
                  uint64_t from, uint64_t to, int grows)
{
    struct shard_sync sync = {.grows = grows};
    unsigned n = shard_cas(op, view, &w->unit, slot, from, to);
    shard_sync_add(op, view, &sync);
    int rc = batch_flush(&op->batch);
    w->done = op_swapped(op, n);
    w->met = op_result(op, n);
    shard_sync_completed(op, view, &sync, rc, w->done);
    return op_decided(op, rc);
}

/* The CAS of the entry that was found has met another word. CHANGE-C1: is this change done? Not if
 * the word names the same block: then a move has given it its next sid, or a repair has corrected
 * it. */
static int lose(struct op *op, struct write *w)
{
    struct index_probe probe = {.key = w->key.bytes, .format = SHARD_SLOT};
    struct index_found winner;
    if (!index_change_may_lose(&w->change) || !shard_live(w->met) ||
        pointer_gaddr(w->met) == pointer_gaddr(w->found.slot))
        return FAR_OK;
    int rc = index_probe(op, &probe, &w->met, 1, &winner);
    if (rc != FAR_OK || winner.place < 0 || !index_change_overwritten(op, &w->change, winner.block))
        return rc;
    index_change_drop(op, &w->change);
    w->now = w->met;
    w->done = true;
    return FAR_OK;
}

/* Replaces the entry that was found, or that is known, by the block or by a tombstone. */
static int swap_entry(struct op *op, struct shard_view *view, struct write *w)
{
    ASSERT(w->found.place >= 0);
    uint64_t old = w->found.slot;
    bool stores = w->change.block.at != 0;
    uint64_t new = stores ? slot_word(w) | (old & SHARD_SID) : shard_tombstone(old);
    index_change_write_first(op, &w->change); /* SHARD-S1 */
    int rc = decide(op, view, w, (unsigned)w->found.place, old, new, stores ? 0 : -1);
    index_change_replaced(op, &w->found, w->done, rc);
    w->now = stores ? new : 0;
    w->place = (unsigned)w->found.place;
    return rc;
}

/* The same after a look. A change that has lost may count as done (CHANGE-C1). */
static int replace(struct op *op, struct shard_view *view, struct write *w)
{
    int rc = swap_entry(op, view, w);
    return rc == FAR_OK && !w->done ? lose(op, w) : rc;
}

/* May a purge free this slot? The last one of a level must go on saying that the next one is
 * used. */
static bool purges(const struct shard_view *view, const struct write *w, unsigned frontier,
                   unsigned slot)
{
    return slot < frontier && slot != view->level1 - 1 && slot != view->words - 1 &&
           shard_purgeable(w->unit.words[slot]);
}

/* Some of the CAS may fail, because another purge was faster. */
static int cas_all(struct op *op, struct shard_view *view, struct write *w, unsigned from,
                   unsigned to,
                   bool (*wanted)(const struct shard_view *view, const struct write *w,
                                  unsigned frontier, unsigned slot),
                   unsigned frontier, enum shard_what what, uint64_t stamp)
{
    unsigned slot = from;
    while (slot < to) {
        unsigned count = 0;
        for (; slot < to && count < BATCH_MAX; slot++) {
            uint64_t word = w->unit.words[slot];
            if (!wanted(view, w, frontier, slot))
                continue;
            shard_cas(op, view, &w->unit, slot, word,
                      shard_control(what, stamp, what == SHARD_OPEN && shard_overflows(word)));
            count++;
        }
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

static bool above_frontier(const struct shard_view *view, const struct write *w, unsigned frontier,
                           unsigned slot)
{
    (void)view;
    return slot > frontier && shard_candidate(w->unit.words[slot], w->version);
}

/* Makes the deleted slots free again (SHARD-S4). The unit is looked at again afterwards. */
static int purge(struct op *op, struct shard_view *view, struct write *w,
                 const struct shard_tail *tail)
{
    uint64_t stamp = client_stamp(op->client);
    uint64_t open = shard_control(SHARD_COMPLETE, stamp, shard_overflows(tail->frontier_word));
    bool grown = false;
    int rc = cas_all(op, view, w, 0, tail->frontier, purges, tail->frontier, SHARD_FILLER, stamp);
    if (rc == FAR_OK)
        rc = cas_all(op, view, w, tail->frontier + 1, w->unit.count, above_frontier, tail->frontier,
                     SHARD_OPEN, stamp);
    if (rc != FAR_OK)
        return rc;
    if (tail->full)
        return shard_chain(op, view, &w->unit, tail, stamp, open, &grown);
    unsigned n = shard_cas(op, view, &w->unit, tail->frontier, tail->frontier_word, open);
    rc = batch_flush(&op->batch);
    w->seen = (struct shard_seen){op_swapped(op, n), tail->frontier, open};
    return rc;
}

static bool worth_purging(const struct shard_view *view, const struct write *w,
                          const struct shard_tail *tail)
{
    unsigned count = 0;
    if (w->pending || tail->slot < view->level1 - 1 || tail->slot != tail->frontier)
        return false;
    if (tail->full && w->unit.chains >= SHARD_CHAIN_FULL)
        return false; /* it would take one more node */
    for (unsigned i = 0; i < tail->frontier; i++)
        count += purges(view, w, tail->frontier, i);
    return count > 0 && count >= view->level1 / PURGE_PART;
}

/* If nothing is left behind level 1 since the last move, readers need not look there. */
static void clear_overflow(struct op *op, struct shard_view *view, struct write *w,
                           const struct shard_tail *tail)
{
    unsigned guard = view->level1 - 1;
    uint64_t word = w->unit.words[guard];
    if (w->pending || tail->slot >= guard || !shard_overflows(word) ||
        !shard_candidate(word, w->version) || shard_tagged(word) ||
        !shard_unit_whole(view, &w->unit))
        return;
    for (unsigned i = guard + 1; i < w->unit.count; i++)
        if (shard_live(w->unit.words[i]))
            return;
    shard_cas(op, view, &w->unit, guard, word, shard_control(SHARD_FREE, 2 * w->version, false));
}

static bool barrier_over(const struct op *op, const struct shard_view *view)
{
    return view->settled == view->version ||
           (view->barrier != 0 && client_epoch_view(op->client).seen >= view->barrier);
}

/* Certifies, and reads the epoch. Now and then it also does what else the epoch may wait for. */
static int drive(struct op *op, unsigned count)
{
    uint64_t epoch;
    if (count % DRIVES_ALONE == DRIVES_ALONE - 1)
        return client_drive_epoch(op);
    client_help_epoch(op->client);
    return client_epoch_now(op, &epoch);
}

/* One operation of a session drives the epoch; others look at what it has seen. */
static int await_barrier(struct op *op, struct shard_view *view)
{
    struct backoff patience = {0};
    for (unsigned drives = 0; !barrier_over(op, view); drives++) {
        uint64_t seen = client_epoch_view(op->client).seen;
        if (!view->driven) {
            view->driven = true;
            int rc = drive(op, drives);
            view->driven = false;
            if (rc != FAR_OK)
                return rc;
        }
        if (view->barrier == 0) /* it is not noted yet, as far as this session knows */
            return FAR_OK;
        if (client_epoch_view(op->client).seen != seen || drives % DRIVES == 0)
            continue;
        if (patience.waited_ns < SHORT_WAIT_NS && patience.pause_ns > SHORT_PAUSE_NS)
            patience.pause_ns = SHORT_PAUSE_NS;
        if (!client_backoff(op, &patience, BARRIER_LEASES))
            return FAR_TIMEOUT;
    }
    return FAR_OK;
}

/* The unit cannot be moved before the barrier is over. Waits for that, at rest. */
static int wait_for_barrier(struct op *op, struct shard_view *view, struct write *w)
{
    index_change_drop(op, &w->change);
    index_rest(op);
    int rc = await_barrier(op, view);
    view->base.cached.stale |= view->barrier == 0;
    int resumed = index_resume(op, &view->base);
    if (rc == FAR_TIMEOUT) {
        rc = FAR_OK; /* then there will be a chain */
        w->at_once = true;
    }
    w->waits++;
    w->lost = 0;
    w->seen.once = false; /* what it means may have changed */
    w->stale = 0;
    if (resumed != FAR_OK || rc != FAR_OK)
        return resumed != FAR_OK ? resumed : rc;
    return start(op, view, w);
}

/* The unit's chain is at its limit. Perhaps the table should have grown, but too few keys were
 * reported. So this client reports its own now, and resizes the table if that is enough. Otherwise
 * it looks how full the table is: others may have reported too few. */
static int report(struct op *op, struct shard_view *view, struct write *w)
{
    struct shard_sync sync = {.grows = 0};
    shard_sync_add_now(op, view, &sync);
    int rc = batch_flush(&op->batch);
    shard_sync_completed(op, view, &sync, rc, true);
    w->reports++;
    if (rc == FAR_OK && !view->due && !w->pending)
        rc = shard_estimate(op, view, w->unit.words);
    if (rc != FAR_OK)
        return rc;
    shard_grow(op, view, true);
    if (w->at_once || (!view->base.cached.stale && !view->resizing && !w->pending))
        return FAR_OK;
    return wait_for_barrier(op, view, w); /* reads again how the table is now */
}

/* Adds the key that the look did not find. */
static int add(struct op *op, struct shard_view *view, struct write *w)
{
    ASSERT(w->found.place < 0);
    struct shard_tail tail;
    bool again = false;
    shard_find_tail(&w->unit, w->version, &tail);
    if (!shard_seen_enough(&w->seen, &tail))
        return FAR_OK;
    if (worth_purging(view, w, &tail)) {
        if (w->unit.count > view->words)
            return purge(op, view, w, &tail);
        int rc = extend(op, view, w, &again);
        return rc == FAR_OK && !again ? purge(op, view, w, &tail) : rc;
    }
    if (w->pending && !w->at_once && w->waits < WAITS &&
        (w->lost >= LOST_BEFORE_WAITING || (tail.full && w->unit.chains > 0)))
        return wait_for_barrier(op, view, w);
    if (tail.full && w->unit.chains >= SHARD_CHAIN_FULL && w->reports < REPORTS)
        return report(op, view, w);
    uint64_t word = entry_word(view, w);
    index_change_write_first(op, &w->change); /* SHARD-S1 */
    if (!tail.full) {
        clear_overflow(op, view, w, &tail);
        int rc = decide(op, view, w, tail.slot, tail.word, word, 1);
        w->added = w->done;
        w->now = word;
        w->place = tail.slot;
        w->lost += rc == FAR_OK && !w->done;
        w->losses += rc == FAR_OK && !w->done;
        return rc;
    }
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        rc = shard_chain(op, view, &w->unit, &tail, client_stamp(op->client), word, &w->done);
    if (w->done)
        view->unreported++;
    return op_all_known(rc) ? rc : op_decided(op, rc);
}

/* The key has been looked for, and nothing is in the way. */
static int act(struct op *op, struct shard_view *view, struct write *w)
{
    enum change_action action = index_change_action(&w->change, &w->found);
    w->now = w->found.place >= 0 ? w->found.slot : 0;
    w->place = w->found.place >= 0 ? (unsigned)w->found.place : 0;
    unsigned node = action == CHANGE_ASK ? near_node(view, w) : 0;
    int rc = index_change_resolve(op, &view->base, &w->change, &w->found, node, &action);
    if (rc != FAR_OK)
        return rc;
    return w->found.place >= 0 ? replace(op, view, w) : add(op, view, w);
}

/* HINT-H2: changes the entry that this session has written before, without a look. */
static int act_at_once(struct op *op, struct shard_view *view, struct write *w)
{
    enum change_action action = w->change.want->present;
    if (!view->owns.own || (action != CHANGE_STORE && action != CHANGE_REMOVE) ||
        !shard_hint_unit(op, view, &w->key, true, &w->unit))
        return FAR_OK;
    struct index_hint own = index_own_of(&view->owns, op, w->key.hash, w->key.bytes);
    if (own.slot == 0)
        return FAR_OK;
    w->found = (struct index_found){.place = (int)own.place, .slot = own.slot};
    int rc = swap_entry(op, view, w);
    if (rc != FAR_OK || w->done)
        return rc;
    index_own_lost(&view->owns, w->key.hash, w->key.bytes);
    if (slot_fingerprint(SHARD_SLOT, w->met) == w->key.fingerprint)
        shard_hint_note(view, &w->key, (struct index_hint){.slot = w->met, .place = own.place});
    return FAR_OK;
}

/* The same for the place that a hint names. */
static int act_on_hint(struct op *op, struct shard_view *view, struct write *w)
{
    struct index_hint hint;
    int rc = shard_peek(op, view, &w->key, index_change_out(&w->change), &w->change, &w->unit,
                        &hint, &w->found);
    return rc == FAR_OK && w->found.place >= 0 ? act(op, view, w) : rc;
}

/* Remembers where the key is now. */
static void note(struct op *op, struct shard_view *view, const struct write *w, int rc)
{
    struct index_hint now = {.slot = w->now, .place = w->place};
    now = shard_hint_note(view, &w->key, now);
    if (w->now != 0 && (rc != FAR_OK || w->change.block.at == 0))
        return; /* the block is another's */
    index_own_note(&view->owns, op, w->key.hash, w->key.bytes, w->found.slot, now);
}

static int change_key(struct op *op, struct index_view *base, struct slice key,
                      struct change *change, bool may_rest)
{
    struct shard_view *view = shard_view(base);
    struct write w = {.change = {.key = key, .want = change}, .at_once = !may_rest};
    w.unit.words = op_buffer(op, BUF_INDEX, 2 * SHARD_UNIT_MAX * 8);
    if (!w.unit.words)
        return FAR_NO_MEMORY;
    shard_hash(view, key, &w.key);
    int rc = start(op, view, &w);
    if (rc != FAR_OK)
        return rc;
    rc = act_at_once(op, view, &w);
    if (rc == FAR_OK && !w.done)
        rc = act_on_hint(op, view, &w);
    for (unsigned attempts = 0;
         rc == FAR_OK && !w.done &&
         index_attempt_after_pause(op, &attempts, attempts < LOST_MOST ? attempts : LOST_MOST);) {
        bool again = false;
        rc = look(op, view, &w, &again);
        if (rc == FAR_OK && !again)
            rc = act(op, view, &w);
    }
    if (rc == FAR_OK && !w.done)
        rc = FAR_CONTENTION;
    if (rc == FAR_OK || status_means(rc, STATUS_ANSWER))
        note(op, view, &w, rc);
    rc = index_change_end(op, &w.change, rc);
    if (w.added)
        shard_note_losses(view, w.losses);
    if (w.done)
        shard_grow(op, view, false);
    return rc;
}

static int change_or_yield(struct op *op, struct index_view *view, struct slice key,
                           struct change *change, bool may_rest)
{
    int rc = change_key(op, view, key, change, may_rest);
    if (rc == FAR_POOL_FULL && op->batch.count == 0)
        shard_draft_yield(op, shard_view(view));
    return rc;
}

int shard_change(struct op *op, struct index_view *view, struct slice key, struct change *change)
{
    return change_or_yield(op, view, key, change, true);
}

int shard_change_at_once(struct op *op, struct index_view *view, struct slice key,
                         struct change *change)
{
    return change_or_yield(op, view, key, change, false);
}
