/*
 * The table as a whole: hashing, the root and a session's view of it, resizing, and when sessions
 * report what they have inserted (AFS).
 *
 * Segments are never replaced, so a view's list of them only grows.
 */
#include "index/refresh.h"
#include "index/shard/shard.h"

#include <stdlib.h>
#include <string.h>

/* Where round trips cost nothing, one change in this many moves a unit that is behind. */
#define MOVE_EVERY 8u

/* Until a barrier is over, one in this many operations drives the epoch. */
#define HURRY_EVERY 8u

void shard_hash(const struct shard_view *view, struct slice bytes, struct shard_key *key)
{
    const struct knobs *knobs = &view->base.table->pool->knobs;
    struct hash128 h = hash_key(bytes.data, bytes.len, view->base.table->desc.hash_seed);
    uint64_t lo = h.lo & knobs->hash_mask;
    key->bytes = bytes;
    key->hash = lo;
    key->fingerprint = (uint8_t)(lo >> 57) & knobs->fingerprint_mask & 0x7f;
    /* By bits that the simulator's masks leave, where a pool has several nodes. */
    key->lane = hash_range((uint32_t)((h.hi & knobs->hash_mask) >> 8), view->lanes);
}

/* ---- the view -------------------------------------------------------------------------------- */

/* Reads the root, and the version before it, of a table that is still there. */
static int read_root(struct op *op, struct shard_view *view, struct shard_root *root,
                     uint64_t *version)
{
    struct shard_root *image = op_buffer(op, BUF_BULK, sizeof *image);
    if (!image)
        return FAR_NO_MEMORY;
    index_confirm(op, &view->base);
    unsigned resize = op_read(op, view->root, offsetof(struct shard_root, resize));
    batch_may_be_freed(&op->batch); /* it may have been dropped */
    batch_fence(&op->batch);        /* the segments of a version are there before it */
    batch_read(&op->batch, view->root, 0, image, sizeof *image);
    batch_may_be_freed(&op->batch);
    int rc = batch_flush(&op->batch);
    uint64_t before = op_result(op, resize);
    if (rc == FAR_OK)
        rc = index_confirmed(op, &view->base, version);
    if (rc == FAR_OK) {
        *root = *image;
        root->resize = before;
    }
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "the table's root is outside the pool") : rc;
}

static bool fits(const struct pool_array *array, const struct shard_view *view, unsigned r,
                 unsigned words)
{
    uint64_t buckets = r == 0 ? shard_buckets(view, 0) : shard_buckets(view, r - 1);
    return array->count == buckets * view->lanes && array->element == words * 8 &&
           array->lanes == (view->lanes > 1 ? view->lanes : 1);
}

/* Opens the arrays of one more segment. */
static int open_segment(struct op *op, struct shard_view *view, const struct shard_root *root)
{
    ASSERT(view->opened < SHARD_SEGMENTS);
    unsigned r = view->opened;
    struct shard_segment s;
    int rc = pool_array_open(op, root->segment[r].units, &s.units);
    if (rc != FAR_OK)
        return rc;
    rc = pool_array_open(op, root->segment[r].tops, &s.tops);
    if (rc == FAR_OK && view->opened > r) { /* another operation was faster */
        pool_array_close(&s.units);
        pool_array_close(&s.tops);
        return FAR_OK;
    }
    if (rc == FAR_OK && (!fits(&s.units, view, r, view->words) || !fits(&s.tops, view, r, 1))) {
        pool_array_close(&s.tops);
        rc = err_fail(FAR_CORRUPT, "segment %u of table '%s' is damaged", r,
                      view->base.table->desc.name);
    }
    struct shard_segment *grown =
        rc == FAR_OK ? realloc(view->segment, (r + 1) * sizeof *grown) : NULL;
    if (rc == FAR_OK && !grown) {
        pool_array_close(&s.tops);
        rc = err_fail(FAR_NO_MEMORY, "no memory for a segment");
    }
    if (rc != FAR_OK) {
        pool_array_close(&s.units);
        return rc;
    }
    s.known = view->hints && r > 0 ? calloc(shard_known_words(view, r), 8) : NULL;
    view->segment = grown;
    view->segment[r] = s;
    view->opened = r + 1;
    return FAR_OK;
}

static int install(struct op *op, struct shard_view *view, const struct shard_root *root)
{
    unsigned version = shard_resize_version(root->resize);
    unsigned steps = shard_resize_steps(root->resize);
    if (version >= SHARD_SEGMENTS || (steps > version && root->resize != 0))
        return err_fail(FAR_CORRUPT, "the table's version is %u of at most %u, after %u steps",
                        version, SHARD_SEGMENTS - 1, steps);
    while (view->opened <= version) {
        int rc = open_segment(op, view, root);
        if (rc != FAR_OK)
            return rc;
    }
    if (version < view->version)
        return FAR_OK; /* another operation has read it since */
    if (version > view->version) {
        view->version = version;
        view->steps = steps;
        view->barrier = 0;
        if (view->settled + steps < version) /* a resize begins when the barrier before is over */
            view->settled = version - steps;
    }
    if (shard_resize_epoch(root->resize) != 0)
        view->barrier = shard_resize_epoch(root->resize);
    view->count = (int64_t)root->count;
    return FAR_OK;
}

/* Segments are never replaced, so the view may have those of a root that has to be read again. */
int shard_refresh(struct op *op, struct shard_view *view)
{
    struct index_refresh r = {0};
    while (index_refresh_again(op, &view->base, &r)) {
        struct shard_root root;
        int rc = read_root(op, view, &root, &r.version);
        if (rc == FAR_OK)
            rc = install(op, view, &root);
        if (rc != FAR_OK)
            return rc;
        if (index_refresh_holds(op, &r)) {
            index_refresh_end(&view->base, &r);
            return FAR_OK;
        }
    }
    return r.rc;
}

/* AFS: the nearer the table is to its next resize, the more often. Sessions that are at work share
 * what is left. */
static unsigned sync_after(const struct shard_view *view)
{
    uint64_t fixed = view->tuning[SHARD_TUNING_SYNC];
    if (fixed != 0)
        return (unsigned)fixed;
    double left = (double)shard_threshold(view) - (double)view->count; /* which may be damaged */
    double after = left * (double)view->tuning[SHARD_TUNING_ALPHA] / 10000 / view->active;
    return after < 1 ? 1 : after > 1e9 ? 1000000000u : (unsigned)after;
}

static bool root_valid(const struct shard_root *root, const struct pool *pool)
{
    return root->checksum == shard_root_sum(root) && root->start_bits < 40 && root->lanes > 0 &&
           root->lanes <= pool->nodes && root->level1 >= SHARD_LEVEL1_MIN &&
           root->level1 <= SHARD_LEVEL1 && root->level2 > 0 && root->level2 <= SHARD_LEVEL1 / 8 &&
           root->hot <= SHARD_HOT_MAX;
}

int shard_attach(struct op *op, struct index_view *base)
{
    struct shard_view *view = shard_view(base);
    const struct index_table *table = base->table;
    struct shard_root root;
    uint64_t version = 0;
    view->root = table->desc.root;
    int rc = read_root(op, view, &root, &version);
    if (rc == FAR_OK && !root_valid(&root, table->pool))
        rc = index_damaged(table, "the root");
    if (rc == FAR_OK) {
        view->start_bits = root.start_bits;
        view->lanes = root.lanes;
        view->level1 = root.level1;
        view->level2 = root.level2;
        view->words = root.level1 + root.level2;
        view->tuning[SHARD_TUNING_BUCKETS] = 1ull << root.start_bits;
        view->tuning[SHARD_TUNING_SLOTS] = root.level1;
        view->tuning[SHARD_TUNING_LOAD] = root.load;
        view->tuning[SHARD_TUNING_ALPHA] = root.alpha;
        view->tuning[SHARD_TUNING_SYNC] = root.sync;
        view->tuning[SHARD_TUNING_COMBINING] = root.combining;
        view->tuning[SHARD_TUNING_HOT] = root.hot;
        view->hints = index_hints_open(op, table, root.hot * 1024);
        if (!(op->pool->fab->caps & FAB_CAP_IMMEDIATE)) /* else a look is no round trip */
            index_owns_open(&view->owns, SHARD_SLOT, root.hot * 1024);
        rc = shard_refresh(op, view);
        /* As if some changes had been made before: see count_assumed(). */
        view->active = 1;
        view->heard = view->count;
        view->sync_after = sync_after(view);
        view->since = view->assumed = (unsigned)op_random(op, view->sync_after);
        view->move_every = op->pool->knobs.move_every;
        if (view->move_every == 0)
            view->move_every = op->pool->fab->caps & FAB_CAP_IMMEDIATE ? MOVE_EVERY : 1;
    }
    return rc;
}

void shard_detach(struct index_view *base)
{
    struct shard_view *view = shard_view(base);
    for (unsigned r = 0; r < view->opened; r++) {
        pool_array_close(&view->segment[r].units);
        pool_array_close(&view->segment[r].tops);
        free(view->segment[r].known);
    }
    free(view->segment);
    shard_draft_forget(&view->draft);
    index_owns_close(&view->owns);
}

/* ---- contention ------------------------------------------------------------------------------ */

/*
 * Inserts of a unit take turns. If many clients insert into a small table, most of them lose their
 * turn, and all units are full before the next barrier is over. So a table whose inserts often lose
 * is resized early, over several versions at once. For that reason it gets no more than
 * CONTENTION_UNITS units, and none if it has less than a part of the keys that it should have.
 */
#define CONTENTION_UNITS 4096.0
#define CONTENTION_PART  16
#define CONTENDED        0.5         /* losses of an insert */
#define INSERTS_COUNTED  2           /* at least, */
#define REMEMBERED       (15.0 / 16) /* and the older they are, the less they count */

void shard_note_losses(struct shard_view *view, unsigned losses)
{
    view->inserts = view->inserts * REMEMBERED + 1;
    view->losses = view->losses * REMEMBERED + losses;
}

static double contention(const struct shard_view *view)
{
    return view->inserts < INSERTS_COUNTED ? 0 : view->losses / view->inserts;
}

static double units(const struct shard_view *view)
{
    return (double)shard_buckets(view, view->version) * view->lanes;
}

static bool contended(const struct shard_view *view)
{
    return contention(view) > CONTENDED && units(view) < CONTENTION_UNITS &&
           view->count >= shard_threshold(view) / CONTENTION_PART;
}

/* Over how many versions should a resize go? An insert that loses L times has met about 1 + L that
 * were awake, and of those in a pause about as many for each of these. There should be four units
 * for each insert. */
static unsigned steps_wanted(const struct shard_view *view)
{
    double share = 1 + contention(view), wanted = 4 * units(view) * share * share;
    unsigned steps = view->base.table->pool->knobs.resize_steps;
    unsigned most = SHARD_SEGMENTS - 1 - view->version;
    if (contended(view))
        for (double have = 2 * units(view); have < wanted && have < CONTENTION_UNITS; have *= 2)
            steps++;
    return steps < most ? steps : most;
}

/* ---- reporting ----------------------------------------------------------------------------- */

/* Many sessions may end before they report once. For these a session's first report counts more
 * changes than it has made: those that it is assumed to have made before, with as many inserts and
 * deletes among them as among its own. */
static int64_t count_assumed(const struct shard_view *view, int64_t grown)
{
    int64_t assumed = view->assumed, made = (int64_t)view->since - assumed;
    if (grown >= made || grown <= -made) /* inserts that rode on moves are not in `since` */
        return grown > 0 ? assumed : grown < 0 ? -assumed : 0;
    return assumed * grown / made;
}

/* How many sessions seem to be at work, with this one: by what all others have reported since its
 * last report, and what it reports itself. The counts may be damaged. */
static double active(double others, double own)
{
    return others * own > 0 ? 1 + others / own : 1;
}

/* A change that adds and removes no key has nothing to report, unless reports are to come after a
 * fixed number of changes. */
void shard_sync_add(struct op *op, struct shard_view *view, struct shard_sync *sync)
{
    sync->added = false;
    sync->assumed = 0;
    if ((sync->grows == 0 && view->tuning[SHARD_TUNING_SYNC] == 0) ||
        ++view->since < view->sync_after)
        return;
    sync->assumed = count_assumed(view, view->unreported + sync->grows);
    view->unreported += sync->assumed;
    view->since = view->assumed = 0;
    shard_sync_add_now(op, view, sync);
}

void shard_sync_add_now(struct op *op, struct shard_view *view, struct shard_sync *sync)
{
    ASSERT(sync->grows >= -1 && sync->grows <= 1);
    sync->added = true;
    sync->reported = view->unreported + sync->grows;
    view->unreported = 0;
    sync->count = op_faa(op, MARK_SUM, view->root, offsetof(struct shard_root, count),
                         (uint64_t)sync->reported);
    sync->resize = op_read(op, view->root, offsetof(struct shard_root, resize));
}

void shard_sync_completed(struct op *op, struct shard_view *view, struct shard_sync *sync, int rc,
                          bool done)
{
    if (sync->added != done) /* not reported yet, or too early */
        view->unreported += done ? sync->grows : -sync->grows;
    if (!sync->added || rc != FAR_OK)
        return;
    double others = (double)(int64_t)op_result(op, sync->count) - (double)view->heard;
    view->active = active(others, (double)(sync->reported - sync->assumed));
    view->count = (int64_t)(op_result(op, sync->count) + (uint64_t)sync->reported);
    view->heard = view->count;
    uint64_t resize = op_result(op, sync->resize);
    if (shard_resize_version(resize) != view->version ||
        (view->barrier == 0 && view->version > 0 && shard_resize_epoch(resize) != 0))
        view->base.cached.stale = true;
    view->sync_after = sync_after(view);
    view->due = view->count >= shard_threshold(view) || (view->version > 0 && view->barrier == 0) ||
                contended(view);
    view->due_at = view->version;
    shard_draft_consider(view);
}

/* Units that an estimate looks at. */
#define SAMPLED 4u

int shard_estimate(struct op *op, struct shard_view *view, uint64_t *words)
{
    ASSERT(words && op->batch.count == 0);
    uint64_t buckets = shard_buckets(view, view->version);
    struct shard_unit unit = {.words = words};
    uint64_t keys = 0;
    for (unsigned i = 0; i < SAMPLED; i++) {
        unsigned lane = (unsigned)op_random(op, view->lanes), u = 0, live = 0;
        bool again = false;
        int rc = shard_find_authority(op, view, lane, op_random(op, buckets), &unit, &u, &again);
        if (rc != FAR_OK)
            return rc;
        for (unsigned n = 0; n < unit.count; n++)
            live += shard_live(unit.words[n]);
        for (; u < view->version; u++) /* it is behind, and has the keys of more units */
            live = (live + 1) / 2;
        keys += live;
    }
    view->due |=
        (double)keys / SAMPLED * (double)buckets * view->lanes >= (double)shard_threshold(view);
    view->due_at = view->version;
    return FAR_OK;
}

/* ---- growing --------------------------------------------------------------------------------- */

void shard_settle(struct op *op, struct shard_view *view)
{
    if (view->settled == view->version)
        return;
    if (view->barrier != 0 && client_epoch_view(op->client).seen >= view->barrier)
        view->settled = view->version; /* SHARD-S8 */
    else if (++view->waited % HURRY_EVERY == 0)
        client_help_epoch(op->client);
}

int shard_make_segment(struct op *op, const struct shard_view *view, unsigned r,
                       struct shard_segment *s)
{
    int rc = shard_alloc_segment(op, view, r, &s->units, &s->tops);
    if (rc != FAR_OK)
        return rc;
    rc = pool_array_clear(op, &s->units);
    if (rc == FAR_OK)
        rc = pool_array_clear(op, &s->tops);
    if (rc != FAR_OK) {
        pool_array_drop(op, &s->units, rc);
        pool_array_drop(op, &s->tops, rc);
        pool_array_close(&s->units);
        pool_array_close(&s->tops);
    }
    return rc;
}

static int publish_segment(struct op *op, struct shard_view *view, unsigned r)
{
    struct shard_segment s;
    int rc = shard_make_segment(op, view, r, &s);
    if (rc != FAR_OK)
        return rc;
    uint64_t at = offsetof(struct shard_root, segment[r]);
    unsigned units = op_cas(op, MARK_PUBLISH, view->root, at, 0, s.units.ref);
    batch_fence(&op->batch); /* if the second is there, so is the first */
    unsigned tops = op_cas(op, MARK_PUBLISH, view->root, at + 8, 0, s.tops.ref);
    rc = batch_flush(&op->batch);
    enum batch_outcome of[2] = {batch_outcome(&op->batch, units), batch_outcome(&op->batch, tops)};
    struct pool_array *array[2] = {&s.units, &s.tops};
    for (unsigned i = 0; i < 2; i++) {
        if (of[i] == BATCH_UNKNOWN)
            pool_array_abandon(op->client, array[i]);
        else if (of[i] != BATCH_DONE)
            pool_array_drop(op, array[i], FAR_OK);
        pool_array_close(array[i]);
    }
    return rc;
}

/* SHARD-S8: from here on every cache that is validated is one of this version. */
static int start_barrier(struct op *op, struct shard_view *view, unsigned version, unsigned steps)
{
    ASSERT(version > 0);
    index_bump_version(op, &view->base);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    uint64_t epoch = client_epoch_view(op->client).validated + 3; /* EPOCH-E3 */
    op_cas(op, MARK_PUBLISH, view->root, 0, shard_resize_over(shard_resize(version, 0), steps),
           shard_resize_over(shard_resize(version, epoch), steps));
    return batch_flush(&op->batch);
}

/* Claims the resize to a version, unless a living client has done so. The claim is for speed: if
 * two clients resize the table at once, one of them has worked in vain. */
static int claim_resize(struct op *op, struct shard_view *view, unsigned version, uint64_t met,
                        bool *claimed)
{
    uint64_t mine = shard_claim(version, client_owner_word(op->client));
    bool alive = false;
    *claimed = met == mine;
    if (*claimed)
        return FAR_OK;
    int rc = shard_claim_version(met) == version
                 ? client_owner_alive(op, shard_claim_owner(met), &alive)
                 : FAR_OK;
    if (rc != FAR_OK || alive)
        return rc;
    unsigned n =
        op_cas(op, MARK_PUBLISH, view->root, offsetof(struct shard_root, claim), met, mine);
    rc = batch_flush(&op->batch);
    *claimed = rc == FAR_OK && op_swapped(op, n);
    return rc;
}

/* Reads the root as it is now. Each word is judged by itself, so it may be torn. */
static int read_now(struct op *op, const struct shard_view *view, struct shard_root *root)
{
    struct shard_root *image = op_buffer(op, BUF_BULK, sizeof *image);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, view->root, 0, image, sizeof *image);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        *root = *image;
    return rc;
}

/* Makes the segments of the next versions, and sets the version. If there is no memory for all of
 * them, those that there are will do. */
static int resize(struct op *op, struct shard_view *view, struct shard_root *root)
{
    unsigned version = shard_resize_version(root->resize), steps = 0;
    int rc = FAR_OK;
    if (root->draft & SHARD_DRAFT_READY) {
        rc = shard_draft_settle(op, view, root->draft);
        rc = rc == FAR_OK ? read_now(op, view, root) : rc;
        if (rc != FAR_OK || shard_resize_version(root->resize) != version)
            return rc;
    }
    do {
        const struct shard_segment_refs *next = &root->segment[version + steps + 1];
        rc = next->tops == 0 ? publish_segment(op, view, version + steps + 1) : FAR_OK;
        steps += rc == FAR_OK;
    } while (rc == FAR_OK && view->version == version && steps < steps_wanted(view));
    if (rc != FAR_OK && (steps == 0 || rc != FAR_POOL_FULL))
        return rc;
    uint64_t next = shard_resize_over(shard_resize(version + steps, 0), steps);
    unsigned n = op_cas(op, MARK_PUBLISH, view->root, 0, root->resize, next);
    rc = batch_flush(&op->batch);
    return rc == FAR_OK && op_swapped(op, n) ? start_barrier(op, view, version + steps, steps) : rc;
}

/* *busy: another client is at it. */
static int grow(struct op *op, struct shard_view *view, bool forced, bool *busy)
{
    struct shard_root root;
    unsigned version = view->version;
    bool claimed = false;
    if (version > 0 && view->barrier == 0) /* its resizer has died, or is not that far */
        return start_barrier(op, view, version, view->steps);
    if (view->settled < version || version + 1 == SHARD_SEGMENTS)
        return FAR_OK;
    int rc = read_now(op, view, &root);
    if (rc != FAR_OK || shard_resize_version(root.resize) != version ||
        shard_resize_epoch(root.resize) != view->barrier)
        return rc; /* another client was faster */
    rc = claim_resize(op, view, version + 1, root.claim, &claimed);
    *busy = !claimed && !forced;
    if (rc != FAR_OK || *busy)
        return rc;
    rc = resize(op, view, &root);
    if (rc != FAR_OK && claimed) { /* another client may have more luck */
        op_cas(op, MARK_PUBLISH, view->root, offsetof(struct shard_root, claim),
               shard_claim(version + 1, client_owner_word(op->client)), 0);
        (void)batch_flush(&op->batch);
    }
    if (root.draft != 0) /* it is of no use any more, or its memory is needed */
        (void)shard_draft_settle(op, view, root.draft);
    return rc;
}

/* While another client resizes the table, a session looks again after this many changes. */
#define BUSY_CHANGES 16

void shard_grow(struct op *op, struct shard_view *view, bool forced)
{
    bool busy = false;
    if (view->resizing || !(view->due || shard_draft_waits(view)))
        return;
    view->due &= view->due_at == view->version; /* or it was of a version before */
    view->resizing = true;
    uint64_t began = batch_now(&op->batch);
    bool begun = view->version == 0 || view->barrier != 0; /* the barrier; else that comes first */
    if (begun)
        shard_draft_go_on(op, view, view->due, forced);
    if (view->due && (view->draft.word == 0 || !begun)) {
        view->due = false;
        int rc = grow(op, view, forced, &busy);
        view->base.cached.stale |= !busy; /* the next operation reads how it is now */
        if (busy)
            view->sync_after = BUSY_CHANGES;
        else if (rc != FAR_OK) /* perhaps the pool is full */
            view->sync_after = (unsigned)(shard_threshold(view) / 16 + 16);
    }
    index_grew_since(op, &view->base, began);
    view->resizing = false;
}
