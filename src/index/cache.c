/* CACHE-K1 to CACHE-K6: see cache.h. */
#include "index/cache.h"
#include "index/index.h"

#include <stdlib.h>
#include <string.h>

#define UNIT 8u /* bytes: positions in the ring are counted in these */
#define NONE UINT32_MAX

/* Entries that may be moved to the head for one that is put: a bound on its work. */
#define CHANCES 16u

/* The largest entry is an eighth of the budget: one must not drive all others out. */
#define SHARE_MAX 8u

/* CACHE-K6: the list of retired objects is a hash table. It has a 64th of the budget, and at most
 * RETIRED_MAX places; an object has PROBES of them. */
#define RETIRED_MAX 4096u
#define PROBES      8u

struct entry {
    uint64_t key;
    struct index_cache_stamp stamp;
    uint32_t next; /* with the same bucket, or NONE */
    uint32_t bytes_flags;
    /* the content follows */
};
#define ENTRY_USED  (1u << 31) /* found since it was put, or last moved */
#define ENTRY_DEAD  (1u << 30) /* replaced or dropped: in no bucket     */
#define ENTRY_BYTES (ENTRY_DEAD - 1)
_Static_assert(sizeof(struct entry) == 32, "an entry's head has four words");

/*
 * Entries lie in [tail, head), or, when the head has wrapped around, in [tail, end) and [0, head).
 */
struct index_cache {
    struct cached *cached;
    uint64_t verified; /* the version was read as it is when the epoch was at least that */
    /* CACHE-K6: from version `since` to `own` nobody else has changed it */
    uint64_t since, own, *retired;
    uint32_t places, retireds; /* places: a power of two */
    uint64_t *ring;
    uint32_t *bucket;
    uint32_t buckets; /* a power of two */
    uint32_t units, head, tail, end;
    bool wrapped;
    struct index_cache_stats stats;
};

static struct entry *entry_at(const struct index_cache *c, uint32_t at)
{
    return (struct entry *)(c->ring + at);
}

static uint32_t units_for(size_t bytes)
{
    return (uint32_t)((sizeof(struct entry) + bytes + UNIT - 1) / UNIT);
}

static uint32_t entry_units(const struct entry *e)
{
    return units_for(e->bytes_flags & ENTRY_BYTES);
}

int index_cache_new(size_t budget, size_t entry_bytes, struct cached *cached,
                    struct index_cache **out)
{
    if (budget < INDEX_CACHE_BUDGET_MIN || budget > INDEX_CACHE_BUDGET_MAX)
        return err_fail(FAR_INVALID, "a cache has %u to %llu bytes, not %zu",
                        INDEX_CACHE_BUDGET_MIN, INDEX_CACHE_BUDGET_MAX, budget);
    uint32_t buckets = 16;
    while (2ull * buckets * (sizeof(struct entry) + entry_bytes) <= budget)
        buckets *= 2;
    uint32_t places = PROBES;
    while (places < RETIRED_MAX && 2ull * places * sizeof(uint64_t) <= budget / 64)
        places *= 2;
    size_t before =
        sizeof(struct index_cache) + places * sizeof(uint64_t) + buckets * sizeof(uint32_t);
    if (before + SHARE_MAX * (sizeof(struct entry) + entry_bytes) > budget)
        return err_fail(FAR_INVALID, "a cache of %zu bytes is too small for entries of %zu", budget,
                        entry_bytes);
    struct index_cache *c = malloc(budget);
    if (!c)
        return err_fail(FAR_NO_MEMORY, "no memory for a cache of %zu bytes", budget);
    *c = (struct index_cache){
        .cached = cached, .places = places, .buckets = buckets, .stats = {.budget = budget}};
    c->retired = (uint64_t *)(c + 1);
    memset(c->retired, 0, places * sizeof *c->retired);
    c->bucket = (uint32_t *)(c->retired + places);
    c->ring = (uint64_t *)((char *)c + before);
    c->units = (uint32_t)((budget - before) / UNIT);
    memset(c->bucket, 0xff, buckets * sizeof *c->bucket);
    *out = c;
    return FAR_OK;
}

void index_cache_free(struct index_cache *c)
{
    free(c);
}

void index_cache_stats(const struct index_cache *c, struct index_cache_stats *stats)
{
    *stats = c->stats;
}

/* ---- entries by key -------------------------------------------------------------------------- */

static uint32_t *bucket_of(struct index_cache *c, uint64_t key)
{
    return &c->bucket[(key * 0x9e3779b97f4a7c15u) >> 32 & (c->buckets - 1)];
}

/* The link that leads to the key's entry, or the NONE at the end of its bucket. */
static uint32_t *link_of_key(struct index_cache *c, uint64_t key)
{
    uint32_t *link = bucket_of(c, key);
    while (*link != NONE && entry_at(c, *link)->key != key)
        link = &entry_at(c, *link)->next;
    return link;
}

static void unlink_entry(struct index_cache *c, uint32_t *link)
{
    struct entry *e = entry_at(c, *link);
    *link = e->next;
    c->stats.entries--;
    c->stats.bytes -= (uint64_t)UNIT * entry_units(e);
    e->bytes_flags |= ENTRY_DEAD;
}

/* ---- the ring -------------------------------------------------------------------------------- */

/* Moves an entry from the tail to the head: its place there ends at or before its own end. */
static void move_to_head(struct index_cache *c)
{
    struct entry *e = entry_at(c, c->tail);
    uint32_t units = entry_units(e), *link = link_of_key(c, e->key);
    e->bytes_flags &= ~ENTRY_USED;
    *link = c->head;
    memmove(c->ring + c->head, e, (size_t)UNIT * units);
    c->head += units;
}

/* Takes the entry at the tail away, or to the head. Returns the chances that are left. */
static unsigned free_tail(struct index_cache *c, unsigned chances)
{
    struct entry *e = entry_at(c, c->tail);
    uint32_t after = c->tail + entry_units(e);
    if (e->bytes_flags & ENTRY_DEAD) {
        /* its place is free */
    } else if ((e->bytes_flags & ENTRY_USED) && chances > 0) {
        move_to_head(c);
        chances--;
    } else {
        unlink_entry(c, link_of_key(c, e->key));
        c->stats.evictions++;
    }
    c->tail = after;
    if (c->tail == c->end) {
        c->tail = 0;
        c->wrapped = false;
    }
    return chances;
}

/* Room at the head, an eighth of the ring at most. Each turn takes something off the tail or wraps
 * the head around, and after CHANCES of them nothing comes back. */
static uint32_t make_room(struct index_cache *c, uint32_t units)
{
    unsigned chances = CHANCES;
    for (;;) {
        if (!c->wrapped && c->head == c->tail)
            c->head = c->tail = 0;
        if ((c->wrapped ? c->tail : c->units) - c->head >= units)
            break;
        if (c->wrapped) {
            chances = free_tail(c, chances);
        } else {
            c->end = c->head;
            c->head = 0;
            c->wrapped = true;
        }
    }
    uint32_t at = c->head;
    c->head += units;
    return at;
}

/* ---- time ------------------------------------------------------------------------------------ */

struct index_cache_stamp index_cache_stamp(const struct index_cache *c, const struct op *op)
{
    return (struct index_cache_stamp){.epoch = op->epoch,
                                      .version = c->cached ? c->cached->version : 0};
}

static bool is_fresh(const struct index_cache *c, const struct op *op,
                     const struct index_cache_stamp *stamp)
{
    if (stamp->epoch >= op->epoch) /* CACHE-K1 */
        return true;
    if (!c->cached || (c->cached->stale && c->verified < op->epoch))
        return false;
    uint64_t version = c->cached->version;
    return stamp->version == version || /* CACHE-K2 */
           (c->own == version && stamp->version >= c->since && stamp->version < version);
}

static void forget_retired(struct index_cache *c, uint64_t version)
{
    c->since = c->own = version;
    if (c->retireds > 0)
        memset(c->retired, 0, c->places * sizeof *c->retired);
    c->retireds = 0;
}

/* The place of an address, or the one where it can be put. NULL: neither. */
static uint64_t *retired_place(const struct index_cache *c, uint64_t at)
{
    uint64_t hash = (at * 0x9e3779b97f4a7c15u) >> 32;
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t *place = &c->retired[(hash + i) & (c->places - 1)];
        if (*place == at || *place == 0)
            return place;
    }
    return NULL;
}

void index_cache_changed(struct index_cache *c, uint64_t old, uint64_t retired)
{
    if (c->cached->version != old)
        return; /* others have changed it, too */
    if (c->own != old)
        forget_retired(c, old);
    c->cached->version = ++c->own;
    uint64_t *place = retired_place(c, retired);
    if (!place) {
        forget_retired(c, c->own);
        return;
    }
    *place = retired;
    c->retireds++;
}

bool index_cache_retired(struct index_cache *c, uint64_t at)
{
    if (c->retireds == 0)
        return false;
    const uint64_t *place = retired_place(c, at);
    if (!place || *place != at)
        return false;
    forget_retired(c, c->own);
    return true;
}

/* `stale` says that the version may not have been found unchanged in the epoch that the client has
 * validated (EPOCH-E2). An announcement that completed meanwhile may have raised that epoch. */
int index_cache_refresh(struct op *op, const struct index_view *view, struct index_cache *c)
{
    struct cached *cached = c->cached;

    ASSERT(cached && (!view || cached == &view->cached) && op->batch.count == 0);
    struct epoch_view before = client_epoch_view(op->client);
    if (view)
        index_confirm(op, view);
    else
        batch_read(&op->batch, cached->version_at, cached->version_delta, op->word, 8);
    int rc = batch_flush(&op->batch);
    uint64_t version = op->word[0];
    if (rc == FAR_OK && view)
        rc = index_confirmed(op, view, &version);
    if (rc != FAR_OK)
        return rc;
    cached->version = version;
    cached->stale = client_epoch_view(op->client).announced != before.announced;
    c->verified = before.seen;
    return FAR_OK;
}

/* ---- looking up, putting --------------------------------------------------------------------- */

enum index_cache_state index_cache_find(struct index_cache *c, const struct op *op, uint64_t key,
                                        struct index_cache_stamp *stamp,
                                        struct index_cache_hit *hit)
{
    uint32_t at = *link_of_key(c, key);
    if (at == NONE) {
        c->stats.misses++;
        return INDEX_CACHE_MISS;
    }
    struct entry *e = entry_at(c, at);
    e->bytes_flags |= ENTRY_USED;
    *hit = (struct index_cache_hit){.data = e + 1, .bytes = e->bytes_flags & ENTRY_BYTES};
    if (!is_fresh(c, op, &e->stamp)) {
        c->stats.doubted++;
        return INDEX_CACHE_DOUBTED;
    }
    c->stats.fresh++;
    if (e->stamp.version < stamp->version)
        stamp->version = e->stamp.version;
    return INDEX_CACHE_FRESH;
}

static bool is_newer(const struct index_cache_stamp *a, const struct index_cache_stamp *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->version > b->version;
}

bool index_cache_put(struct index_cache *c, uint64_t key, struct index_cache_stamp stamp,
                     const void *data, size_t bytes)
{
    if (bytes > ENTRY_BYTES || units_for(bytes) > c->units / SHARE_MAX)
        return false;
    uint32_t *link = link_of_key(c, key), flags = 0;
    if (*link != NONE) {
        struct entry *old = entry_at(c, *link);
        if (is_newer(&old->stamp, &stamp))
            return true;
        if ((old->bytes_flags & ENTRY_BYTES) == bytes) {
            memcpy(old + 1, data, bytes);
            old->stamp = stamp;
            return true;
        }
        flags = old->bytes_flags & ENTRY_USED;
        unlink_entry(c, link);
    }
    uint32_t at = make_room(c, units_for(bytes));
    struct entry *e = entry_at(c, at);
    link = bucket_of(c, key);
    *e = (struct entry){
        .key = key, .stamp = stamp, .next = *link, .bytes_flags = (uint32_t)bytes | flags};
    memcpy(e + 1, data, bytes);
    *link = at;
    c->stats.entries++;
    c->stats.bytes += (uint64_t)UNIT * entry_units(e);
    return true;
}

void index_cache_confirm(struct index_cache *c, uint64_t key, struct index_cache_stamp stamp,
                         const void *beginning, size_t bytes)
{
    uint32_t at = *link_of_key(c, key);
    if (at == NONE)
        return;
    struct entry *e = entry_at(c, at);
    if (bytes > (e->bytes_flags & ENTRY_BYTES) || memcmp(e + 1, beginning, bytes) != 0)
        return; /* another operation has put something else */
    if (stamp.epoch > e->stamp.epoch)
        e->stamp.epoch = stamp.epoch;
    if (stamp.version > e->stamp.version)
        e->stamp.version = stamp.version;
}

void index_cache_drop(struct index_cache *c, uint64_t key)
{
    uint32_t *link = link_of_key(c, key);
    if (*link != NONE)
        unlink_entry(c, link);
}
