/*
 * Changes. One round trip takes the locks and reads the rows, the next one writes and unlocks.
 *
 * An operation never waits while it holds a lock. If it needs anything that may take time (a block,
 * a wider set of locks, a split), it unlocks first, and starts over when it has it. A modify that
 * is likely to need a block takes memory for it before it locks.
 */
#include "index/rcuckoo/rcuckoo.h"

#define BUSY_LOOKS    16u /* attempts at locks that others hold, before the epoch is let go on */
#define BUSY_PAUSE_NS 500u
/* If both rows of a new key are full, and no other row is locked, it takes two round trips more. So
 * if that is likely, groups of rows are locked and read. Others may want their locks, and their
 * bytes are in vain if there is room, so it must have been so lately in that part of the operations
 * that might insert. */
#define GROUP_ROWS    16u
#define CROWDED_ALL   65536u
#define CROWDED_FROM  (CROWDED_ALL * 3 / 32)
#define CROWDED_AMONG 64u /* operations, about */
/* Attempts to find a path with more locks, before the table counts as full, or is split. */
#define WIDENINGS         32u
#define WIDENINGS_GROWING 1u

/* What a modify was asked about, and what the user said. */
struct asked {
    bool valid, present;
    uint8_t tag;
    uint64_t entry[RCUCKOO_ENTRY_MAX / 8];
    enum change_action action;
};

struct write {
    struct rcuckoo_key key;
    struct rcuckoo_sub sub;
    struct index_change change;
    struct journal line;
    struct rcuckoo_locks locks;
    struct rcuckoo_ranges ranges;
    struct rcuckoo_path guess; /* rows to be locked besides the key's; count 0: none */
    uint64_t *row[2];          /* the key's, in the ranges */
    struct index_found found;
    unsigned in, slot; /* if it was found: in which of the two, and where */
    struct rcuckoo_entry entry;
    struct index_hint hint;   /* of the key; slot 0: none */
    struct index_block ahead; /* the block that it names, as it was read behind the rows; slot 0:
                                  it was not */
    struct asked asked;
    gaddr reserve; /* memory for the block of a modify's answer, of this class; 0: none */
    unsigned reserve_class;
    unsigned busy, widened, closings;
    bool fresh;  /* the cache has only rows that this operation has read */
    bool rested; /* it has waited for others, which index_lock_rest() bounds */
    struct index_lock_wait wait;
};

/* ---- locking --------------------------------------------------------------------------------- */

static bool may_insert(const struct write *w)
{
    return w->change.want->absent != CHANGE_NOTHING;
}

static unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Adds a row to what is locked and read, or the group around it. A group has one lock word, and it
 * is the same whatever number of rows a lock has. */
static bool add_range(const struct rcuckoo_shape *s, struct write *w, unsigned row, bool groups)
{
    struct rcuckoo_ranges *r = &w->ranges;
    unsigned rows = groups ? GROUP_ROWS : 1, block = row / s->block * s->block;
    unsigned first = block + (row - block) / rows * rows;
    unsigned end = smaller(smaller(first + rows, block + s->block), s->rows);
    for (unsigned i = first; i < end; i = (i / s->lock_rows + 1) * s->lock_rows)
        if (!rcuckoo_locks_add(s, &w->locks, i))
            return false;
    for (unsigned i = 0; i < r->count; i++)
        if (r->range[i].first == first)
            return true;
    if (r->count == RCUCKOO_RANGES)
        return false;
    r->range[r->count].first = first;
    r->range[r->count++].count = end - first;
    return true;
}

/* Which locks, and which rows: the key's two, and those of the path that was guessed. A guess that
 * would take too many is dropped. */
static void choose_locks(const struct rcuckoo_view *view, struct write *w)
{
    const struct rcuckoo_shape *s = &view->shape;
    bool crowded = view->crowded >= CROWDED_FROM && w->busy == 0;
    bool groups = may_insert(w) && (crowded || w->guess.count > 0);
    bool fits = false;
    while (!fits) {
        w->locks.count = w->ranges.count = 0;
        fits = true;
        for (unsigned i = 0; i < 2; i++)
            (void)add_range(s, w, w->key.row[i], groups);
        for (unsigned i = 0; i < w->guess.count && fits; i++)
            fits = add_range(s, w, w->guess.row[i], groups);
        if (!fits)
            w->guess.count = 0;
    }
}

/* Makes room for what is read. */
static int place_images(struct op *op, const struct rcuckoo_shape *s, struct write *w)
{
    struct rcuckoo_ranges *r = &w->ranges;
    size_t rows = 0;
    for (unsigned i = 0; i < r->count; i++)
        rows += r->range[i].count;
    uint64_t *image = op_buffer(op, BUF_INDEX, rows * rcuckoo_row_bytes(s));
    if (!image)
        return FAR_NO_MEMORY;
    for (unsigned i = 0; i < r->count; i++) {
        r->range[i].image = image;
        image += (size_t)r->range[i].count * s->row;
    }
    return FAR_OK;
}

/* Gives back the line. It stays as it was written (RCUCKOO-C5): the locks that it names are
 * released. */
static void give_line(struct op *op, struct write *w)
{
    journal_spend(op, &w->line);
    w->line.place = 0;
}

/* The outcome of a batch is not known, so the locks may be held. The line stays for a recovery. */
static void leave_line(struct op *op, struct write *w)
{
    journal_give(op, &w->line, false);
    w->line.place = 0;
}

/* Releases what is held. */
static int release(struct op *op, struct write *w)
{
    if (w->locks.count == 0)
        return FAR_OK;
    rcuckoo_unlock(op, &w->sub, &w->locks);
    int rc = batch_flush(&op->batch);
    w->locks.count = 0;
    if (rc != FAR_OK)
        leave_line(op, w);
    return rc;
}

static void drop_reserve(struct op *op, struct write *w)
{
    if (w->reserve != 0)
        pool_free_unpublished(op->client, w->reserve, w->reserve_class);
    w->reserve = 0;
}

/* Waits for others, without anything that the epoch would wait for. The line is blank meanwhile: if
 * it named the locks, the recovery of their dead holder would wait for this client (RCUCKOO-C9). */
static int rest(struct op *op, struct rcuckoo_view *view, struct write *w)
{
    int rc = FAR_OK;
    if (w->line.place != 0) {
        journal_end(op, &w->line);
        rc = batch_flush(&op->batch);
        journal_give(op, &w->line, rc == FAR_OK);
        w->line.place = 0;
    }
    index_change_drop(op, &w->change);
    drop_reserve(op, w);
    w->asked.valid = false;
    w->rested = true;
    return rc == FAR_OK ? index_lock_rest(op, &view->base, &w->wait) : rc;
}

/* The locks are held by others. */
static int back_off(struct op *op, struct rcuckoo_view *view, struct write *w)
{
    int rc = release(op, w);
    if (rc != FAR_OK)
        return rc;
    if (++w->busy % BUSY_LOOKS == 0)
        return rest(op, view, w);
    op_wait(op, op_random(op, (uint64_t)BUSY_PAUSE_NS << w->busy % BUSY_LOOKS / 2));
    return FAR_OK;
}

/* The user will be asked, and the session's last answer needed a block: so will this one, likely of
 * the same size. If there is no memory for it, that is found out when the answer is known. */
static int take_reserve(struct op *op, const struct rcuckoo_view *view, struct write *w,
                        unsigned node)
{
    if (w->change.want->present != CHANGE_ASK || !view->answers || w->reserve != 0 ||
        w->asked.valid || w->change.block.at != 0)
        return FAR_OK;
    unsigned wanted = pool_wanted(op->client);
    w->reserve_class = view->answer_class;
    int rc = pool_alloc_on(op, node, w->reserve_class, &w->reserve);
    if (rc != FAR_POOL_FULL)
        return rc;
    w->reserve = 0;
    pool_want(op->client, wanted);
    return FAR_OK;
}

/* Takes what the operation needs before it locks: a line on the subtable's node, and a block if the
 * value is known and too long to be inline. */
static int prepare(struct op *op, const struct rcuckoo_view *view, struct write *w)
{
    unsigned node = gaddr_node(w->sub.part.anchor);
    int rc = FAR_OK;
    bool known = index_change_known(&w->change) || w->asked.valid;
    if (w->line.place != 0 && gaddr_node(w->line.at) != node)
        give_line(op, w);
    if (known && w->change.block.at == 0 &&
        !rcuckoo_fits(&view->shape, &w->key, w->change.want->value.len))
        rc = index_change_prepare(op, &w->change, node);
    if (rc == FAR_OK)
        rc = take_reserve(op, view, w, node);
    if (rc == FAR_OK && w->line.place == 0)
        rc = journal_take(op, node, &w->line);
    return rc;
}

/* Adds the READ of the block that a hint names, if the key or the value in it will be needed. */
static void read_ahead(struct op *op, const struct rcuckoo_view *view, struct write *w)
{
    w->ahead.slot = 0;
    w->hint = rcuckoo_hint(op, view, &w->sub, &w->key);
    bool needs = !w->key.inside || w->change.want->present == CHANGE_ASK;
    if (needs && w->hint.slot != 0)
        rcuckoo_hint_read(op, &w->hint, &w->ahead);
}

/* Locks, and reads the rows. *held: all locks are. */
static int lock(struct op *op, struct rcuckoo_view *view, struct write *w, bool *held)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct rcuckoo_ranges *r = &w->ranges;
    bool closed = false, rests = false;
    choose_locks(view, w);
    int rc = place_images(op, s, w);
    if (rc != FAR_OK)
        return rc;
    unsigned words = w->locks.count;
    index_change_write(op, &w->change);
    rcuckoo_lock(op, view, &w->sub, &w->line, &w->locks);
    for (unsigned i = 0; i < r->count; i++) {
        batch_read_head(&op->batch, w->sub.rows, rcuckoo_row_at(s, r->range[i].first),
                        r->range[i].image, r->range[i].count * rcuckoo_row_bytes(s));
        batch_may_be_freed(&op->batch); /* the locks may be those of a subtable that was split */
    }
    read_ahead(op, view, w);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK) {
        leave_line(op, w);
        return rc;
    }
    w->change.written = true;
    *held = rcuckoo_locked(op, &w->locks, &closed);
    if (*held && may_insert(w)) {
        view->lockings++;
        view->lockings_one += words == 1;
    }
    if (*held || !closed)
        return *held ? FAR_OK : back_off(op, view, w);
    rc = release(op, w);
    if (rc == FAR_OK)
        rc = rcuckoo_wait_open(op, view, &w->sub, &w->wait, &rests);
    return rc == FAR_OK && rests ? rest(op, view, w) : rc;
}

/* ---- under the locks ------------------------------------------------------------------------- */

/* Under its lock a row is whole. */
static int judge_rows(struct rcuckoo_view *view, struct write *w)
{
    const struct rcuckoo_shape *s = &view->shape;
    for (unsigned i = 0; i < 2; i++) {
        w->row[i] = rcuckoo_ranges_row(s, &w->ranges, w->key.row[i]);
        if (!rcuckoo_row_whole(s, rcuckoo_sub_id(view, &w->sub), w->key.row[i], w->row[i]))
            return rcuckoo_row_damaged(view, w->key.row[i]);
    }
    return FAR_OK;
}

/* Is the key as it was when the user was asked? Then the answer counts. */
static bool as_asked(const struct rcuckoo_shape *s, const struct write *w)
{
    const struct asked *a = &w->asked;
    bool present = w->found.place >= 0;
    if (!a->valid || a->present != present)
        return false;
    return !present ||
           (a->tag == rcuckoo_tags(s, w->row[w->in])[w->slot] &&
            memcmp(a->entry, rcuckoo_slot(s, w->row[w->in], w->slot), 8 * (size_t)s->entry) == 0);
}

static void found_at(struct write *w, int place)
{
    w->found.place = place;
    if (place >= 0) {
        w->in = (unsigned)place / RCUCKOO_SLOTS;
        w->slot = (unsigned)place % RCUCKOO_SLOTS;
    }
}

/* Reads the blocks of the candidates, and looks for the key there. */
static int look_in_blocks(struct op *op, const struct rcuckoo_shape *s, struct write *w,
                          uint64_t candidates)
{
    uint64_t words[2 * RCUCKOO_SLOTS];
    struct index_probe probe = {
        .key = w->key.bytes, .format = RCUCKOO_POINTER, .out = index_change_out(&w->change)};
    for (unsigned i = 0; i < 2 * RCUCKOO_SLOTS; i++)
        words[i] = rcuckoo_slot_pointer(s, w->row[i / RCUCKOO_SLOTS], i % RCUCKOO_SLOTS);
    int rc = index_probe(op, &probe, words, candidates, &w->found);
    if (rc == FAR_OK && w->found.place < 0 && w->found.stale != 0)
        rc = err_fail(FAR_CORRUPT, "a key-value block fails its checksum");
    found_at(w, w->found.place);
    return rc;
}

/* Is it the key's block that was read behind the rows? By HINT-H1, if its slot names it. */
static bool look_ahead(const struct rcuckoo_shape *s, struct write *w, uint64_t candidates)
{
    unsigned place = w->ahead.place;
    struct index_probe probe = {
        .key = w->key.bytes, .format = RCUCKOO_POINTER, .out = index_change_out(&w->change)};
    if (w->ahead.slot == 0 || !(candidates >> place & 1) ||
        !rcuckoo_slot_names(s, w->row[place / RCUCKOO_SLOTS], place % RCUCKOO_SLOTS, w->ahead.slot))
        return false;
    w->found = (struct index_found){.place = -1};
    bool mine = index_probe_judge(&probe, &w->ahead, &w->found);
    if (mine)
        found_at(w, w->found.place);
    return mine;
}

/* Looks for the key. Blocks are read if the key is in one, or if the user is to be asked about the
 * value. */
static int look(struct op *op, struct rcuckoo_view *view, struct write *w)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t candidates = rcuckoo_candidates(s, &w->key, w->row[0]) |
                          (uint64_t)rcuckoo_candidates(s, &w->key, w->row[1]) << RCUCKOO_SLOTS;
    w->found = (struct index_found){.place = -1};
    if (candidates == 0)
        return FAR_OK;
    found_at(w, __builtin_ctzll(candidates));
    int rc = rcuckoo_slot_entry(view, w->row[w->in], w->slot, &w->entry);
    bool asks = w->change.want->present == CHANGE_ASK && !as_asked(s, w);
    if (rc == FAR_OK &&
        (w->entry.kind == RCUCKOO_KEY_OUT || (asks && w->entry.kind == RCUCKOO_VALUE_OUT)) &&
        !look_ahead(s, w, candidates))
        rc = look_in_blocks(op, s, w, candidates);
    return rc;
}

/* The answer needs a block. If memory of its size is at hand, on the subtable's node, then
 * preparing it takes no round trip, and the block is written ahead of the redo. Otherwise the
 * answer is noted (w->asked), and the operation starts over without locks. */
static int prepare_answer(struct rcuckoo_view *view, struct op *op, struct write *w, gaddr earlier,
                          unsigned earlier_class)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct asked *a = &w->asked;
    unsigned node = gaddr_node(w->sub.part.anchor);
    unsigned size_class = size_class_for(block_bytes(w->key.bytes.len, w->change.want->value.len));
    bool reserved = w->reserve != 0 && w->reserve_class == size_class;
    bool kept = earlier != 0 && earlier_class == size_class && gaddr_node(earlier) == node;
    drop_reserve(op, w);
    view->answer_class = size_class;
    if (reserved || kept)
        return index_change_prepare(op, &w->change, node);
    a->valid = true;
    if (a->present) {
        a->tag = rcuckoo_tags(s, w->row[w->in])[w->slot];
        memcpy(a->entry, rcuckoo_slot(s, w->row[w->in], w->slot), 8 * (size_t)s->entry);
    }
    return FAR_OK;
}

/* Asks the user, unless the key is as it was when the user was asked last. */
static int ask(struct rcuckoo_view *view, struct op *op, struct write *w,
               enum change_action *action)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct asked *a = &w->asked;
    struct slice old = {NULL, 0};
    if (as_asked(s, w)) {
        *action = a->action;
        return FAR_OK;
    }
    a->present = w->found.place >= 0;
    if (a->present && w->entry.kind == RCUCKOO_INLINE)
        old = rcuckoo_slot_value(s, w->row[w->in], w->slot, w->entry);
    else if (a->present)
        old = index_block_value(w->found.block);
    int rc = index_decide(&view->base, w->change.want, old, action);
    gaddr earlier = w->change.block.at;
    unsigned earlier_class = w->change.block.size_class;
    index_change_drop(op, &w->change); /* of an earlier answer */
    w->change.written = false;
    a->action = *action;
    a->valid = false;
    view->answers = rc == FAR_OK && *action == CHANGE_STORE &&
                    !rcuckoo_fits(s, &w->key, w->change.want->value.len);
    if (!view->answers)
        return rc;
    return prepare_answer(view, op, w, earlier, earlier_class);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* What becomes of the rows of a path, the end first (RCUCKOO-C2). The first row gets the entry,
 * each other one that of the row before it. Returns the words. */
static unsigned make_redo(const struct rcuckoo_shape *s, const struct write *w,
                          const struct rcuckoo_path *path, const uint64_t *entry, unsigned tag,
                          uint64_t *redo)
{
    uint64_t *item = redo;
    unsigned i = path->count;
    ASSERT(i > 0 && i <= s->path);
    do {
        i--;
        uint64_t *row = rcuckoo_ranges_row(s, &w->ranges, path->row[i]);
        unsigned version = (rcuckoo_version(*rcuckoo_meta(s, row)) + 1) & RCUCKOO_VERSION_MASK;
        const uint64_t *from = entry;
        unsigned of = tag;
        if (i > 0) {
            row = rcuckoo_ranges_row(s, &w->ranges, path->row[i - 1]);
            from = rcuckoo_slot(s, row, path->slot[i - 1]);
            of = rcuckoo_tags(s, row)[path->slot[i - 1]];
        }
        item[0] = rcuckoo_redo_word(path->row[i], path->slot[i], of, version);
        memcpy(item + 1, from, 8 * (size_t)s->entry);
        item += 1 + s->entry;
    } while (i > 0);
    return (unsigned)(item - redo);
}

/* The second round trip. */
static int write_path(struct op *op, struct rcuckoo_view *view, struct write *w,
                      const struct rcuckoo_path *path, const uint64_t *entry, unsigned tag)
{
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t redo[RCUCKOO_REDO_BYTES / 8];
    unsigned words = make_redo(s, w, path, entry, tag, redo);
    index_change_write_first(op, &w->change); /* ahead of the redo that names it */
    journal_redo(op, &w->line, redo, 8 * (size_t)words);
    for (const uint64_t *item = redo; item < redo + words; item += 1 + s->entry) {
        unsigned row = rcuckoo_redo_row(item[0]);
        uint64_t *image = rcuckoo_ranges_row(s, &w->ranges, row);
        rcuckoo_row_redo(s, rcuckoo_sub_id(view, &w->sub), image, item);
        batch_fence(&op->batch); /* RCUCKOO-C6, RCUCKOO-C2 */
        batch_write(&op->batch, MARK_PLACE, w->sub.rows, rcuckoo_row_at(s, row), image,
                    rcuckoo_row_bytes(s));
    }
    batch_fence(&op->batch); /* RCUCKOO-C6 */
    journal_done(op, &w->line);
    rcuckoo_unlock(op, &w->sub, &w->locks);
    int rc = batch_flush(&op->batch);
    w->locks.count = 0;
    if (rc == FAR_OK)
        return rc;
    rc = op_decided(op, rc);
    leave_line(op, w);
    return rc;
}

/* Gives back the block of the entry that was replaced (RCUCKOO-C12). */
static void drop_old(struct op *op, const struct write *w, uint64_t pointer, int rc)
{
    if (w->entry.kind == RCUCKOO_INLINE)
        return;
    if (rc == FAR_OK)
        pool_retire(op->client, pointer_gaddr(pointer), pointer_class(pointer));
    else if (rc == FAR_UNKNOWN)
        pool_abandon(op->client, pointer_class(pointer));
}

/* The change took effect: the key has this entry now, and had the block `old`, or none. Remembers
 * where its block is, if it has one. */
static void note(struct rcuckoo_view *view, const struct write *w, const struct rcuckoo_path *path,
                 const uint64_t *entry, unsigned tag, uint64_t old)
{
    const struct rcuckoo_shape *s = &view->shape;
    struct index_hint now = {.slot = 0, .wrong = w->hint.slot != 0 && w->hint.slot != old};
    struct rcuckoo_entry e;
    if (rcuckoo_entry_of(s, tag, entry, &e) && e.kind > RCUCKOO_INLINE) {
        now.slot = entry[s->value_at];
        now.place = (path->row[0] == w->key.row[0] ? 0 : RCUCKOO_SLOTS) + path->slot[0];
    }
    if (now.slot != 0 || w->hint.slot != 0)
        rcuckoo_hint_note(view, &w->key, now);
}

/* The key is there: its entry is replaced, or removed. */
static int replace(struct op *op, struct rcuckoo_view *view, struct write *w, bool remove)
{
    ASSERT(w->found.place >= 0);
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t entry[RCUCKOO_ENTRY_MAX / 8] = {0};
    uint64_t old = rcuckoo_slot_pointer(s, w->row[w->in], w->slot);
    struct rcuckoo_path path = {1, {w->key.row[w->in]}, {w->slot}};
    unsigned tag =
        remove ? RCUCKOO_EMPTY
               : rcuckoo_encode(s, &w->key, w->change.want->value,
                                pointer_make(&w->change.block, RCUCKOO_POINTER.generation), entry);
    int rc = write_path(op, view, w, &path, entry, tag);
    drop_old(op, w, old, rc);
    if (rc == FAR_OK)
        note(view, w, &path, entry, tag, old);
    return rc;
}

/* ---- making room ----------------------------------------------------------------------------- */

/* Do all entries of both rows have the key's hash? Then no split makes room. */
static bool hopeless(const struct rcuckoo_view *view, const struct write *w)
{
    for (unsigned i = 0; i < 2 * RCUCKOO_SLOTS; i++) {
        uint64_t hash = 0;
        if (!rcuckoo_slot_hash(view, w->row[i / RCUCKOO_SLOTS], i % RCUCKOO_SLOTS, &hash) ||
            ((hash ^ w->key.hash) & rcuckoo_hash_mask(view)) != 0)
            return false;
    }
    return true;
}

/* Both rows are full, and no path was found within the rows that are locked. Locks more of them. If
 * that does not help, the subtable is split, or the table is full. */
static int make_room(struct op *op, struct rcuckoo_view *view, struct write *w)
{
    bool never = hopeless(view, w) || w->sub.part.depth >= view->parts.depth_max;
    bool grows = view->tuning[RCUCKOO_TUNING_GROWS] != 0, rests = false;
    int rc = release(op, w);
    if (rc != FAR_OK)
        return rc;
    if (++w->widened <= (grows ? WIDENINGS_GROWING : WIDENINGS) &&
        rcuckoo_path_guess(view, &w->sub, &w->key, &w->guess))
        return FAR_OK;
    w->guess.count = 0;
    if (!w->fresh && !grows) { /* by what it has read itself */
        rcuckoo_cache_forget(view->cache);
        w->fresh = true;
        w->widened = 0;
        return FAR_OK;
    }
    if (never || !grows)
        return err_fail(FAR_TABLE_FULL, "table '%s' has no room for the key",
                        view->base.table->desc.name);
    if (w->closings++ == RCUCKOO_CLOSINGS)
        return FAR_CONTENTION;
    give_line(op, w);
    w->widened = 0;
    uint64_t began = batch_now(&op->batch);
    rc = rcuckoo_split(op, view, &w->sub, &w->wait, &rests);
    index_grew_since(op, &view->base, began);
    return rc == FAR_OK && rests ? rest(op, view, w) : rc;
}

static void count_path(struct rcuckoo_view *view, const struct rcuckoo_path *path)
{
    unsigned first = path->row[0], last = first;
    for (unsigned i = 1; i < path->count; i++) {
        first = path->row[i] < first ? path->row[i] : first;
        last = path->row[i] > last ? path->row[i] : last;
    }
    view->paths++;
    view->paths_unmoved += path->count == 1;
    view->paths_short += last - first <= RCUCKOO_SHORT_SPAN;
}

/* The key is not there. */
static int insert(struct op *op, struct rcuckoo_view *view, struct write *w, bool *again)
{
    ASSERT(w->found.place < 0);
    const struct rcuckoo_shape *s = &view->shape;
    uint64_t entry[RCUCKOO_ENTRY_MAX / 8];
    struct rcuckoo_path path;
    if (!rcuckoo_path_find(view, &w->sub, &w->key, &w->ranges, &path)) {
        *again = true;
        return make_room(op, view, w);
    }
    unsigned tag =
        rcuckoo_encode(s, &w->key, w->change.want->value,
                       pointer_make(&w->change.block, RCUCKOO_POINTER.generation), entry);
    int rc = write_path(op, view, w, &path, entry, tag);
    if (rc == FAR_OK) {
        count_path(view, &path);
        note(view, w, &path, entry, tag, 0);
    }
    return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Takes note whether the operation inserts, and both rows of its key are full. */
static void note_crowd(struct rcuckoo_view *view, const struct write *w)
{
    const struct rcuckoo_shape *s = &view->shape;
    bool full = w->found.place < 0 && rcuckoo_row_used(s, w->row[0]) == RCUCKOO_SLOTS &&
                rcuckoo_row_used(s, w->row[1]) == RCUCKOO_SLOTS;
    view->crowded += full ? CROWDED_ALL / CROWDED_AMONG : 0;
    view->crowded -= view->crowded / CROWDED_AMONG;
}

/* The locks are held. What ends without a change unlocks. */
static int act(struct op *op, struct rcuckoo_view *view, struct write *w, bool *again)
{
    enum change_action action = CHANGE_NOTHING;
    int rc = judge_rows(view, w);
    if (rc == FAR_OK)
        rc = look(op, view, w);
    if (rc == FAR_OK)
        action = index_change_action(&w->change, &w->found);
    if (rc == FAR_OK && action == CHANGE_ASK)
        rc = ask(view, op, w, &action);
    if (rc == FAR_OK)
        rc = index_change_judge(&w->change, &w->found, action);
    if (rc == FAR_OK && may_insert(w))
        note_crowd(view, w);
    if (rc == FAR_NOT_FOUND && w->hint.slot != 0)
        rcuckoo_hint_note(view, &w->key, (struct index_hint){.slot = 0, .wrong = true});
    bool lacks_block = w->asked.valid && w->change.block.at == 0;
    if (rc == FAR_OK && !lacks_block && w->found.place >= 0)
        return replace(op, view, w, action == CHANGE_REMOVE);
    if (rc == FAR_OK && !lacks_block)
        return insert(op, view, w, again);
    *again = rc == FAR_OK;
    int released = release(op, w);
    return released != FAR_OK && rc == FAR_OK ? released : rc;
}

static int attempt(struct op *op, struct rcuckoo_view *view, struct write *w, bool *again)
{
    bool held = false;
    *again = false;
    int rc = rcuckoo_find(op, view, w->key.hash, &w->sub);
    if (rc == FAR_OK && may_insert(w) && w->guess.count == 0 &&
        (!rcuckoo_path_guess(view, &w->sub, &w->key, &w->guess) || w->guess.count == 1))
        w->guess.count = 0; /* there may be room in the key's rows, or nothing is known */
    if (rc == FAR_OK)
        rc = prepare(op, view, w);
    if (rc == FAR_OK)
        rc = lock(op, view, w, &held);
    if (rc == FAR_OK && held)
        return act(op, view, w, again);
    *again = rc == FAR_OK;
    return rc;
}

int rcuckoo_change(struct op *op, struct index_view *base, struct slice key, struct change *change)
{
    struct rcuckoo_view *view = rcuckoo_view(base);
    struct write w;
    w.change = (struct index_change){.key = key, .want = change};
    w.line = (struct journal){0};
    w.guess.count = w.busy = w.widened = w.closings = 0;
    w.asked.valid = w.fresh = w.rested = false;
    w.reserve = 0;
    w.wait = (struct index_lock_wait){0};
    rcuckoo_key_set(view, key, &w.key);
    int rc = FAR_CONTENTION;
    for (unsigned attempts = 0; index_attempt(&attempts);) {
        bool again = false;
        rc = attempt(op, view, &w, &again);
        if (rc != FAR_OK || !again)
            break;
        rc = FAR_CONTENTION;
        if (w.rested)
            attempts = 0;
        w.rested = false;
    }
    if (w.line.place != 0)
        give_line(op, &w);
    drop_reserve(op, &w);
    return index_change_end(op, &w.change, rc);
}
