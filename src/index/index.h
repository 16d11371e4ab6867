/*
 * Index: one way of keeping keys in a pool. Each index is a const table of functions.
 *
 * Every function runs as part of an op and may wait in batch_flush(). The op's batch is empty on
 * entry and on return. Functions return statuses of farside.h. Operations are linearizable per key.
 *
 * What indexes share: ahead.h (prefetching), attempt.h (starting over), lock_wait.h (waiting for a
 * lock's owner), slot.h (slot words), blocks.h (reading blocks), change.h (changing a key),
 * iterate.h, walk.h, flip.h (damage by one bit), refresh.h, split_bits.h, parts.h (tables that grow
 * part by part), cache.h (caches), tuning.h. See docs/writing-an-index.md.
 */
#ifndef INDEX_INDEX_H
#define INDEX_INDEX_H

#include "index/tuning.h"
#include "pool/catalog.h"

#include <string.h>

/* What all sessions share of an open table, and what one session keeps for it. */
struct index_hints;
struct index_table {
    const struct index_ops *ops;
    struct pool *pool;
    struct table_desc desc;
    bool dropped_too; /* its views are for walking only, also after it was dropped */
    _Atomic(struct index_hints *) *hints; /* of each process (hints.h); NULL: none */
};

/* What every index's view begins with. */
struct index_view {
    const struct index_table *table;
    struct cached cached; /* remote addresses that the view keeps between operations */
    uint64_t refreshes;   /* how often they were read again (refresh.h) */
    /* Parts of the table that the session has split, merged or moved, and how full they were. */
    uint64_t grown;
    double load_sum, load_max;
    uint64_t grow_ns; /* what that took, with waits for others, and with what came to nothing */
};

struct slice {
    const void *data;
    size_t len;
};

/* Where a get puts the value, by index_deliver() and at its end: `len` is set with FAR_OK and
 * FAR_TOO_SMALL. */
struct value_out {
    void *buf;
    size_t cap;
    size_t len;
    bool skip;                   /* only existence is asked for */
    const struct client *client; /* whose lease counts, or NULL */
};

/* Where an iteration puts what it finds. `cursor` is the index's own, and 0 at both ends. */
struct entries_out {
    void *buf;
    size_t cap, len;
    size_t needed; /* by the entry that did not fit */
    unsigned count;
    bool keys_only;
    uint64_t away; /* iterate: what is on these nodes is left out (FAR_PASS_AWAY) */
    uint64_t cursor;
    bool more; /* scan: it ended before the range did */
    /* Entries that were left out, at most: those of damaged parts that the call has passed. Such a
     * part is counted by the call that moves the cursor beyond it. */
    unsigned damaged;
};
/* False if it does not fit. */
bool index_entries_add(struct entries_out *out, struct slice key, struct slice value);

/* The order of keys: bytes as unsigned numbers, shorter first. Below, at or above 0. */
int index_key_compare(struct slice a, struct slice b);

/* What a scan is to return. */
struct scan_range {
    struct slice from; /* may be empty, which is below every key */
    bool after;        /* begins behind `from`                   */
    struct slice to;   /* data is NULL: no end                   */
    unsigned limit;    /* not 0                                  */
};
enum scan_place { SCAN_BELOW, SCAN_WITHIN, SCAN_ABOVE };
enum scan_place index_scan_place(const struct scan_range *range, struct slice key);

/*
 * A change of a key: what is to be done if it is absent, and if it is present. All changes that
 * users know are cases of this, so an index has one function for them.
 *
 *   put     CHANGE_STORE, CHANGE_STORE      update  CHANGE_NOTHING, CHANGE_STORE
 *   insert  CHANGE_STORE, CHANGE_NOTHING    delete  CHANGE_NOTHING, CHANGE_REMOVE
 *   modify  CHANGE_ASK, CHANGE_ASK
 *
 * An index may use what it knows from this: a put needs to know nothing of the old state, an insert
 * or a delete only whether the key is there, and only CHANGE_ASK needs the old value.
 */
enum change_action { CHANGE_NOTHING, CHANGE_STORE, CHANGE_REMOVE, CHANGE_ASK };
struct change {
    enum change_action absent, present;
    struct slice value; /* to be stored; if asked, decide() sets it */
    /* Called at every attempt with the old value; data is NULL if the key is absent. The answer to
     * the last call counts. Does not return CHANGE_ASK. */
    enum change_action (*decide)(struct change *change, struct slice old);
};

struct index_report {
    void (*line)(void *arg, const char *text); /* may be NULL */
    void *arg;
    bool repair; /* repair what is found, if no good data is lost by that */
    unsigned violations;
    unsigned stranded;       /* locks of dead clients: legal, but others wait for them */
    unsigned repaired;       /* of both; those are not counted above any more */
    unsigned salvaged, lost; /* entries of damaged parts that were repaired */
};
void index_violation(struct index_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void index_stranded(struct index_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What was just reported has been repaired: takes it off `*count`. */
void index_repaired(struct index_report *report, unsigned *count, const char *how);
/* The same for a violation that was damage to entries: says how many were kept and how many were
 * lost. */
void index_salvaged(struct index_report *report, unsigned salvaged, unsigned lost);

/* What a table is made with. */
struct index_options {
    uint64_t expected_keys;
    uint64_t tuning[TUNING_MAX]; /* by position in the index's table of them, within their ranges */
};

struct index_ahead;
struct index_ops {
    const char *name;
    unsigned order_needed; /* ORDER() bits the protocol relies on even where it sets no fence */
    bool ordered;          /* keeps keys in order */
    const struct tuning_param *tuning; /* ends with one without a name; NULL: none */
    const char *smallest; /* the tuning of tables that grow soonest: what the simulator makes */
    const char *const
        *varied; /* other small ones, with other options, for it; NULL at the end, or no list */
    uint32_t key_max, value_max; /* bytes; 0: FAR_KEY_MAX, FAR_VALUE_MAX */

    /* Builds an empty table; nothing points to it yet. If it fails, what it took is given back, or
     * counted as lost. FAR_INVALID: numbers of the tuning that do not go together. */
    int (*create)(struct op *op, const struct index_options *options, uint64_t hash_seed,
                  gaddr *root);
    /* Gives back the memory of a table that was created and that nothing points to. */
    int (*discard)(struct op *op, gaddr root);
    /* A session's view: its caches. All but its beginning is 0 before. Like refresh(), attach()
     * confirms that the table is there before it uses anything that it has read: see
     * index_confirm(). After an error, too, detach() is called. It frees what the view names. */
    uint32_t view_bytes;
    int (*attach)(struct op *op, struct index_view *view);
    void (*detach)(struct index_view *view);
    /* Reads the cached addresses again, their version first. FAR_NO_TABLE: it was dropped. */
    int (*refresh)(struct op *op, struct index_view *view);

    int (*get)(struct op *op, struct index_view *view, struct slice key, struct value_out *out);
    /* An operation on this key comes soon: prefetches what it will read first (ahead.h). It posts
     * no verb and changes nothing; *ahead is empty before. NULL: it does not pay. */
    void (*ahead)(const struct op *op, const struct index_view *view, struct slice key,
                  struct index_ahead *ahead);
    /* FAR_EXISTS: the key is present, and nothing was to be done; FAR_NOT_FOUND: it is absent, and
     * nothing was to be done. */
    int (*change)(struct op *op, struct index_view *view, struct slice key, struct change *change);

    /* Adds entries from out->cursor on, until the buffer is full or a bounded part of the table has
     * been read, and moves the cursor. Goes past entries that are damaged, and counts them.
     * FAR_TOO_SMALL: not even the first fits. FAR_INVALID: that is no cursor of this index. */
    int (*iterate)(struct op *op, struct index_view *view, struct entries_out *out);

    /* Adds the entries of the range in ascending order: each was there at some instant, and a key
     * that is left out, and is not above the last one added, was absent at some instant. It goes on
     * to the range's end, but may stop once it has an entry, at the latest at the limit or when one
     * does not fit; then it sets out->more. FAR_TOO_SMALL: not even the first fits. NULL if the
     * index is not `ordered`. */
    int (*scan)(struct op *op, struct index_view *view, const struct scan_range *range,
                struct entries_out *out);

    /* Passes every object that the table reaches to the marker, while others change the table. What
     * a damaged part may reach is passed, too, and marker->damaged is set. If the marker sweeps,
     * then changes the version of caches: they may still name objects that have long been out of
     * reach. */
    int (*mark)(struct op *op, struct index_view *view, struct marker *marker);
    /* Completes or undoes what an operation was doing when its client died, as its journal line
     * says (index_intend()). One client does this at a time. It may die in the middle, and then
     * another one does it again. NULL: no need. */
    int (*recover)(struct op *op, struct index_view *view, const struct journal_entry *entry);

    /* info->tuning is made by tuning_text(), of what remote memory says. */
    int (*info)(struct op *op, struct index_view *view, struct far_table_info *info);
    /* Walks a table, and reports broken invariants and locks of dead clients. Repairs them if
     * report->repair is set. Others may change the table meanwhile. */
    int (*check)(struct op *op, struct index_view *view, struct index_report *report);
};

/*
 * How the store calls an index: INDEX_CALL(ops, get, op, view, key, &out). The contract of all its
 * functions is asserted here: the batch is empty when they are entered and when they are left.
 */
#define INDEX_CALL(ops, function, op, ...)                                                         \
    (ASSERT((op)->batch.count == 0), index_left(op, (ops)->function(op, __VA_ARGS__)))
static inline int index_left(const struct op *op, int rc)
{
    ASSERT(op->batch.count == 0);
    return rc;
}

/* The longest key and value that a table of the index may hold. The store refuses longer ones. */
static inline size_t index_key_max(const struct index_ops *ops)
{
    return ops->key_max ? ops->key_max : FAR_KEY_MAX;
}
static inline size_t index_value_max(const struct index_ops *ops)
{
    return ops->value_max ? ops->value_max : FAR_VALUE_MAX;
}

/*
 * Values, wherever an index keeps them: in a block, or inline in its own memory. Both become a
 * slice, and go through the same functions from there on, with the same limits. A length that
 * cannot be, of a value that is longer than its place or than any that the store lets in, is
 * damage: FAR_CORRUPT.
 */
int index_value_damaged(const struct index_view *view, size_t len); /* FAR_CORRUPT */
static inline int index_judge_value(const struct index_view *view, struct slice value)
{
    bool fits = value.len <= index_value_max(view->table->ops);
    return __builtin_expect(fits, 1) ? FAR_OK : index_value_damaged(view, value.len);
}
static inline struct slice index_block_value(const void *image) /* of a block that was judged */
{
    return (struct slice){block_value(image), ((const struct block_head *)image)->vlen};
}
/* Of `len` bytes, as the index's memory says, in a place that has `room`. */
int index_inline_value(const struct index_view *view, const void *at, size_t room, size_t len,
                       struct slice *value);
/* Hands the value to a get. FAR_TOO_SMALL, with out->len set: the value's bytes are not looked at
 * then, nor if only existence was asked for, so they need not have been read. FAR_FENCED: the lease
 * has lapsed, and nothing was written. The get is tried again, and its key may lie in the
 * buffer. */
static inline int index_deliver(const struct index_view *view, struct slice value,
                                struct value_out *out)
{
    if (out->skip)
        return FAR_OK;
    int rc = index_judge_value(view, value);
    if (rc != FAR_OK)
        return rc;
    out->len = value.len;
    if (value.len > out->cap)
        return FAR_TOO_SMALL;
    if (out->client && client_lapsed(out->client))
        return FAR_FENCED;
    if (value.len > 0)
        memcpy(out->buf, value.data, value.len);
    return FAR_OK;
}
/* Asks what is to be done with a key (CHANGE_ASK). `old` is its value; data is NULL if the key is
 * absent. */
int index_decide(const struct index_view *view, struct change *change, struct slice old,
                 enum change_action *action);
/* Adds an entry to what an iteration returns. *full: it does not fit. */
int index_add_entry(const struct index_view *view, struct entries_out *out, struct slice key,
                    struct slice value, bool *full);

/* The bits that tell n things apart. */
static inline unsigned index_bits_for(uint64_t n)
{
    return n <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(n - 1);
}

/* Can there be an object of that many bytes? A damaged word may name what is not in the pool. */
static inline bool index_inside(const struct pool *pool, gaddr at, uint64_t bytes)
{
    return at != 0 && gaddr_node(at) < pool->nodes &&
           gaddr_offset(at) + bytes <= pool_head(pool, gaddr_node(at))->size;
}

/* The session has made parts at `to` of the one at `from`, of whose slots the part `load` was in
 * use. */
void index_grew(struct index_view *view, gaddr from, const gaddr *to, unsigned count, double load);

/* The session has restructured the table, or tried to, from that time on until now. */
static inline void index_grew_since(const struct op *op, struct index_view *view, uint64_t began)
{
    view->grow_ns += batch_now(&op->batch) - began;
}

/* The session has met a part of the table that is behind the table's version, by `versions`.
 * `pending`: the part must not be brought to the last of them yet. */
void index_lags(const struct index_view *view, unsigned versions, bool pending);

/* FAR_CORRUPT: what is named, like "the root" or "an anchor", is damaged. */
int index_damaged(const struct index_table *table, const char *what);

/* For discard(), with the outcome of a READ: FAR_FENCED if the client's lease has lapsed since.
 * Nothing points to the table, so others may have swept its memory then, and what was read may be
 * anything (LEASE-L3). */
int index_held(struct op *op, int rc);

/* Reads and writes a table's root, or what is as small, in a round trip of its own. Uses
 * BUF_BULK. */
int index_read_root(struct op *op, gaddr at, void *root, uint32_t bytes);
int index_write_root(struct op *op, gaddr at, const void *root, uint32_t bytes);

/* How the store makes a session's view of a table, and frees it. */
int index_attach(struct op *op, const struct index_table *table, struct index_view **view);
void index_detach(struct index_view *view);

/*
 * Every attach() and refresh() asks whether the table is still there. If a view was not used for a
 * while, its table may have been dropped, and the memory may be in use for something else.
 *
 *   index_confirm(op, view);                              adds READs to the batch
 *   batch_read(..., root, ...); batch_may_be_freed(...);  more, if that saves a round trip
 *   rc = batch_flush(...);
 *   rc = index_confirmed(op, view, &version);             before anything that was read is used
 *
 * With FAR_OK, all that the table reaches stays as long as the operation is in flight, and what is
 * read from here on is of that version or a later one. FAR_NO_TABLE: the table was dropped. The
 * operation ends with that.
 */
void index_confirm(struct op *op, const struct index_view *view);
int index_confirmed(struct op *op, const struct index_view *view, uint64_t *version);

/* All of that for the root: reads it, and the version before it. Uses BUF_BULK. FAR_NO_TABLE. */
int index_read_confirmed(struct op *op, const struct index_view *view, void *root, uint32_t bytes,
                         uint64_t *version);

/* Adds the verb that makes all sessions read again what they have cached of the table: something
 * that they may know is about to be retired. Returns its number: op_result() is the old version. */
static inline unsigned index_bump_version(struct op *op, const struct index_view *view)
{
    return op_faa(op, MARK_PUBLISH, view->cached.version_at, view->cached.version_delta, 1);
}

/*
 * Lets the epoch go on while an operation waits for others. Between the two it must hold no
 * address, and no memory that it has allocated: a sweep that begins meanwhile does not wait for it,
 * and would find that memory (SWEEP-P1). What it knew before is void: index_resume() brings its
 * view up to date, and it starts over.
 */
void index_rest(struct op *op);
int index_resume(struct op *op, struct index_view *view);

/* journal_intend() for a view's table: should this client die, the index's recover() is called with
 * `what` and `data` for this table. */
void index_intend(struct op *op, const struct index_view *view, struct journal *journal,
                  uint32_t what, const void *data, size_t len);

const struct index_ops *index_find(const char *name);
const struct index_ops *index_at(unsigned i); /* NULL past the last */
/* The names of those that keep keys in order, for messages: "none" if there is none. */
#define INDEX_NAMES_BYTES 128
const char *index_ordered_names(char names[INDEX_NAMES_BYTES]);
/* Test hook: index_find() finds this one, too, but index_at() does not list it. Before there are
 * threads. */
void index_add_unlisted(const struct index_ops *ops);

#endif
