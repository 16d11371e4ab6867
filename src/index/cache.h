/*
 * A session's cache of what an index read from the pool: entries of any size, each with a stamp
 * that says when it was true. It is for indexes that keep thousands of nodes or segments. If one of
 * these is replaced, the entries of the others stay good. RACE needs none: its directory is one
 * array under one version word.
 *
 * An entry is a copy of remote content that names remote objects. Once such an object is retired,
 * its memory may be reused for something else. So an entry is *fresh* for an
 * operation, which may follow its addresses, or it is *doubted*.
 *
 *   CACHE-K1  An operation stamps what it reads with its own epoch (op->epoch). An entry is fresh
 *       for an operation whose epoch is not later than the entry's stamp. Proof. Claim: if an
 *       object can be found from an entry, through others if need be, and is retired at t, then
 *       G(t) is the entry's stamp or more. An operation of epoch e that sets out from the root
 *       finds only what was reachable after it began, when G was e or more; an object that is
 *       unlinked meanwhile names only what was reachable at that time. If the operation sets out
 *       from an entry that is fresh for it, it finds only what that entry leads to. So the claim
 *       holds for what it stamps. Now let an operation of epoch e follow a fresh entry, and let the
 *       client that retires the object have validated v. Then e <= G(t) <= v+1 (EPOCH-E1). The
 *       object is reused when G is v+3 or more (EPOCH-E3), and G is at most e+1 while the operation
 *       is in flight.
 *   CACHE-K2  The epoch stands still while nobody retires anything. Where others write all the time
 *       it goes on after a few hundred operations, and then CACHE-K1 doubts all entries. So an
 *       index whose cached objects are retired seldom has a version word as in EPOCH-E2, which is
 *       changed before such an object is retired. Entries then also carry a version: the one that
 *       the client knew before the operation read anything, or that of an entry on the way, if that
 *       is older. An entry is fresh, whatever its epoch, if its version was found unchanged at a
 *       time when G was the operation's epoch or more. Proof. Claim: if an object can be found from
 *       an entry, it is retired after the version was changed from what the entry carries. From the
 *       root this holds because the version was read first; from another entry, because what is
 *       read gets no later version than that. Now let the version have been found unchanged at r.
 *       Then the object is retired at t > r, so G(t) is the operation's epoch or more. The rest is
 *       as in CACHE-K1, whose claim also holds for what is stamped on such a path.
 *   CACHE-K3  Nothing is to be done when a client is parked, lapses or registers again. A stamp
 *       says when something was true, under whatever registration. If memory was reused under an
 *       operation of a client that was fenced, then G was two more than the operation's epoch, and
 *       whatever that operation put in the cache is doubted by the client's later operations.
 *       Versions are read again, because such a client's caches are stale.
 *   CACHE-K4  A sweep frees what it did not find when the epoch has gone on by three since it
 *       looked, so CACHE-K1 holds for that, too. The version is changed by the index's mark()
 *       (SWEEP-P3), because a client may have died between unlinking an object and changing the
 *       version.
 *   CACHE-K5  Operations of a session share its cache, and interleave in a flush or a pause. A
 *       pointer into the cache is good until the operation next waits or puts something; what it
 *       needs for longer it copies. What it has copied from a fresh entry it may follow until it
 *       ends. Nothing is pinned. Answers may come in any order: an older one does not replace a
 *       newer one, and an entry is confirmed only if it still is what was found true.
 *   CACHE-K6  A session that changes the version itself, to retire an object, need not doubt all
 *       that it has cached, if nobody else has changed the version since it was last read. Until
 *       then the claim of CACHE-K2 holds for all objects but those that the session has retired
 *       itself. The cache has a list of these, and an address from an entry is followed only if it
 *       is not in it. If it is, or if the list is full, then all entries are doubted, and the list
 *       is emptied.
 *
 * A doubted entry is a hint of what to read again. It becomes fresh when an operation finds its
 * content true: by index_cache_confirm() if a part of the content shows that, by index_cache_put()
 * if all of it was read again. A READ through a doubted entry may hit free memory. So it is marked
 * by batch_may_be_freed(), and counts only if another READ shows that the entry was right. That an
 * object looks whole shows nothing: it may have been unlinked. It is enough only if objects are
 * marked before they are unlinked.
 *
 *     stamp = index_cache_stamp(cache, op);
 *     if (index_cache_find(cache, op, at, &stamp, &hit) == INDEX_CACHE_FRESH)
 *         return child_of(hit.data, key);
 *     batch_read(&op->batch, at, 0, image, NODE_BYTES);
 *     if ((rc = batch_flush(&op->batch)) == FAR_OK)
 *         index_cache_put(cache, at, stamp, image, NODE_BYTES);
 *
 * Memory is a ring that is taken once. New entries go to its head. When room is needed, entries at
 * its tail are dropped; one that was used since it was put gets a second chance, and moves to the
 * head.
 */
#ifndef INDEX_CACHE_H
#define INDEX_CACHE_H

#include "pool/op.h"

struct index_cache;
struct index_view;

/* What is known of the time at which something was true: CACHE-K1, CACHE-K2. */
struct index_cache_stamp {
    uint64_t epoch, version;
};

enum index_cache_state { INDEX_CACHE_MISS, INDEX_CACHE_DOUBTED, INDEX_CACHE_FRESH };

struct index_cache_hit {
    const void *data; /* 8-byte aligned; see CACHE-K5 */
    size_t bytes;
};

struct index_cache_stats {
    uint64_t budget;                 /* bytes that were taken when it was made */
    uint64_t bytes, entries;         /* of entries, with their heads           */
    uint64_t fresh, doubted, misses; /* lookups so far                         */
    uint64_t evictions;              /* entries that were dropped to make room */
};

#define INDEX_CACHE_BUDGET_MIN 4096u
#define INDEX_CACHE_BUDGET_MAX (32ull << 30)

/*
 * Takes `budget` bytes, once, for everything. `entry_bytes` is the size that most entries have.
 * `cached` is the view's version word (CACHE-K2), or NULL if it does not change whenever a cached
 * object is retired: then only CACHE-K1 counts. FAR_INVALID, FAR_NO_MEMORY.
 */
int index_cache_new(size_t budget, size_t entry_bytes, struct cached *cached,
                    struct index_cache **cache);
void index_cache_free(struct index_cache *cache);

/* The stamp of a path from the root to what is read on it: taken when an operation sets out, before
 * it reads anything, and again after index_resume(). The operation is in flight. */
struct index_cache_stamp index_cache_stamp(const struct index_cache *cache, const struct op *op);

/* Keys are the index's: an address, or a hash, if the entry says of what. `*hit` is set unless it
 * is a miss. `*stamp` is that of the path on which the key was found. It goes on through a fresh
 * entry, and so gets that one's version if it is older (CACHE-K2). */
enum index_cache_state index_cache_find(struct index_cache *cache, const struct op *op,
                                        uint64_t key, struct index_cache_stamp *stamp,
                                        struct index_cache_hit *hit);

/* What was read on a path with that stamp. It replaces what the key had, unless that is newer. The
 * data are the caller's, not a pointer into the cache. False: they are more than an eighth of the
 * budget, and were not taken. */
bool index_cache_put(struct index_cache *cache, uint64_t key, struct index_cache_stamp stamp,
                     const void *data, size_t bytes);

/* The content that begins with these bytes was found true on a path with that stamp. If the key
 * still has it, the entry gets the stamp. */
void index_cache_confirm(struct index_cache *cache, uint64_t key, struct index_cache_stamp stamp,
                         const void *beginning, size_t bytes);

/* The entry turned out to be of no use. */
void index_cache_drop(struct index_cache *cache, uint64_t key);

/* Reads the version word (CACHE-K2): what an index's refresh() does, in a round trip. It also asks
 * whether the view's table is still there: while the table stands, its root may be followed.
 * FAR_NO_TABLE. In tests `view` may be NULL: then the version is no table's. */
int index_cache_refresh(struct op *op, const struct index_view *view, struct index_cache *cache);

/* The session has changed the version, which was `old`, and is about to retire an object that
 * entries may name (CACHE-K6). */
void index_cache_changed(struct index_cache *cache, uint64_t old, uint64_t retired);

/* Is an address that an entry has that of an object which the session has retired since? Then the
 * operation starts over, and finds all entries doubted. */
bool index_cache_retired(struct index_cache *cache, uint64_t at);

void index_cache_stats(const struct index_cache *cache, struct index_cache_stats *stats);

#endif
