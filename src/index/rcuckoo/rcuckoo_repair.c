/*
 * Recovering what a dead client was doing, by one line of its journal.
 *
 *   the line has            means                                     and is recovered by
 *   intent                  locks perhaps held, no row touched        releasing them
 *   intent, redo            locks held, rows perhaps half written     completing the redo,
 *   unlocking intent, redo, done      rows whole, locks perhaps held            releasing them
 *
 * A lock bit does not say who holds it. So to release one that is perhaps held takes proof that no
 * living client does (RCUCKOO-C9).
 */
#include "index/rcuckoo/rcuckoo.h"
#include "index/walk.h"

/* Looks at the locks before anything is closed. */
#define OPEN_LOOKS    4u
#define LOOK_PAUSE_NS 4000u /* before the second look; then twice as long each time */

/* Lines of living clients that name the locks. */
#define LIVING_MAX   32u /* if there are more, the recovery waits for the epoch, */
#define LIVING_LOOKS 6u  /* and also if one is still the same after that many looks */
struct living {
    gaddr at;
    uint64_t stamp;
};

struct repair {
    struct op *op;
    struct rcuckoo_view *view;
    const struct journal_entry *entry;
    struct rcuckoo_sub sub;
    struct rcuckoo_anchor anchor;
    struct rcuckoo_locks locks;
    bool refused;      /* another line's stamp is in the anchor */
    bool found_closed; /* R was set in all words before this recovery, */
    bool closed;       /* by an earlier attempt at it */
    bool open;         /* R was clear in a word at a look */
    bool living;       /* a living client's line names one of the locks */
    bool again;        /* the lines are being read again */
    unsigned count;    /* lines of living clients that named a lock at the first look */
    unsigned same;     /* how many of them have the same stamp at this look */
    struct living line[LIVING_MAX];
    uint64_t held[RCUCKOO_LOCK_WORDS]; /* locks that the line perhaps holds */
    uint64_t free[RCUCKOO_LOCK_WORDS]; /* those that were free at a look, so they are not its own */
    uint64_t kept[RCUCKOO_LOCK_WORDS]; /* those that another line surely holds: RCUCKOO-C10 */
};

/* ---- lines ----------------------------------------------------------------------------------- */

/* What the intent names. False: it is not one of ours. */
static bool decode(const struct rcuckoo_view *view, const struct journal_entry *entry,
                   gaddr *anchor, struct rcuckoo_locks *locks)
{
    struct rcuckoo_intent intent;
    if (entry->len < 8 || entry->len > sizeof intent)
        return false;
    memcpy(&intent, entry->data, entry->len);
    *anchor = rcuckoo_intent_at(intent.anchor);
    locks->count = rcuckoo_intent_count(intent.anchor);
    if (locks->count > RCUCKOO_LOCK_WORDS || entry->len != rcuckoo_intent_bytes(locks->count))
        return false;
    memcpy(locks->lock, intent.lock, locks->count * sizeof *intent.lock);
    for (unsigned i = 0; i < locks->count; i++)
        if (locks->lock[i].word >= view->shape.words)
            return false;
    return true;
}

/* A living client's line names one of the locks. */
static void note_living(struct repair *r, const struct journal_entry *other)
{
    r->living = true;
    if (!r->again && r->count < LIVING_MAX)
        r->line[r->count] = (struct living){other->at, other->stamp};
    if (!r->again) {
        r->count++;
        return;
    }
    for (unsigned i = 0; i < r->count; i++)
        r->same += r->line[i].at == other->at && r->line[i].stamp == other->stamp;
}

/* Looks at another client's line. */
static void visit(void *arg, const struct journal_entry *other, bool alive)
{
    struct repair *r = arg;
    struct rcuckoo_locks locks;
    gaddr anchor = 0;
    if (other->at == r->entry->at || other->subject.place != r->entry->subject.place ||
        other->subject.tag != r->entry->subject.tag || !decode(r->view, other, &anchor, &locks) ||
        anchor != r->sub.part.anchor)
        return;
    uint64_t any = 0;
    for (unsigned i = 0; i < locks.count; i++)
        for (unsigned k = 0; k < r->locks.count; k++) {
            bool same = locks.lock[i].word == r->locks.lock[k].word;
            uint64_t common = same ? locks.lock[i].mask & r->locks.lock[k].mask : 0;
            any |= common;
            if (other->redo && !other->done)
                r->kept[k] |= common; /* also if its client is alive, and has left the line */
        }
    if (alive && any != 0)
        note_living(r, other);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* RCUCKOO-C8: puts the line's stamp into the anchor. */
static int claim(struct repair *r)
{
    struct op *op = r->op;
    uint64_t stamp = r->entry->stamp;
    unsigned n = op_cas(op, MARK_HINT, r->sub.part.anchor, offsetof(struct rcuckoo_anchor, repair),
                        0, stamp);
    int rc = batch_flush(&op->batch);
    r->refused = rc == FAR_OK && !op_swapped(op, n) && op_result(op, n) != stamp;
    return r->refused ? err_fail(FAR_TIMEOUT, "locks of another line are being released") : rc;
}

/* Adds the verb that takes it out again. */
static void add_disclaim(struct repair *r)
{
    batch_fence(&r->op->batch);
    op_cas(r->op, MARK_HINT, r->sub.part.anchor, offsetof(struct rcuckoo_anchor, repair),
           r->entry->stamp, 0);
}

/* ---- redo ------------------------------------------------------------------------------------ */

/* Does it name rows and slots that there are? Clients write no others. */
static bool judge_redo(const struct rcuckoo_shape *s, const struct journal_entry *entry,
                       unsigned *count)
{
    const uint64_t *items = entry->redo;
    unsigned step = 1 + s->entry;
    *count = (unsigned)(entry->redo_len / 8 / step);
    bool good = *count <= RCUCKOO_PATH_MAX && entry->redo_len == 8ull * step * *count;
    for (unsigned i = 0; i < *count && good; i++)
        good = rcuckoo_redo_row(items[i * step]) < s->rows &&
               rcuckoo_redo_slot(items[i * step]) < RCUCKOO_SLOTS;
    return good;
}

/* RCUCKOO-C6: the rows are the dead client's. The stamp keeps other recoveries from releasing the
 * locks between `done` and the unlock. */
static int redo(struct repair *r)
{
    struct op *op = r->op;
    const struct rcuckoo_shape *s = &r->view->shape;
    const uint32_t bytes = rcuckoo_row_bytes(s);
    unsigned count = 0;
    uint64_t *image = op_buffer(op, BUF_BULK, RCUCKOO_PATH_MAX * (size_t)bytes);
    if (!image)
        return FAR_NO_MEMORY;
    if (!judge_redo(s, r->entry, &count))
        return FAR_OK;
    int rc = claim(r);
    if (rc != FAR_OK)
        return rc;
    const uint64_t *item = r->entry->redo;
    for (unsigned i = 0; i < count; i++, item += 1 + s->entry)
        batch_read_head(&op->batch, r->sub.rows, rcuckoo_row_at(s, rcuckoo_redo_row(*item)),
                        image + (size_t)i * s->row, bytes);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    item = r->entry->redo;
    for (unsigned i = 0; i < count; i++, item += 1 + s->entry) {
        uint64_t *row = image + (size_t)i * s->row;
        rcuckoo_row_redo(s, rcuckoo_sub_id(r->view, &r->sub), row, item);
        batch_write(&op->batch, MARK_PLACE, r->sub.rows, rcuckoo_row_at(s, rcuckoo_redo_row(*item)),
                    row, bytes);
        batch_fence(&op->batch); /* RCUCKOO-C2 */
    }
    journal_entry_done(op, r->entry); /* RCUCKOO-C7 */
    rcuckoo_unlock(op, &r->sub, &r->locks);
    add_disclaim(r);
    return batch_flush(&op->batch);
}

/* ---- release --------------------------------------------------------------------------------- */

static uint64_t word_at(const struct repair *r, unsigned i)
{
    return rcuckoo_word_at((unsigned)r->locks.lock[i].word);
}

/* Which of the locks are held, perhaps by the line? RCUCKOO-C9: not those that were free at this
 * look or an earlier one. (Not all of a word's have to be held, though a client takes them at once:
 * the recovery of another line may have released some.) */
static int look(struct repair *r, bool *some)
{
    struct op *op = r->op;
    unsigned n[RCUCKOO_LOCK_WORDS];
    for (unsigned i = 0; i < r->locks.count; i++)
        n[i] = op_read_head(op, r->sub.part.anchor, word_at(r, i));
    int rc = batch_flush(&op->batch);
    *some = false;
    for (unsigned i = 0; i < r->locks.count && rc == FAR_OK; i++) {
        r->open |= !(op_result(op, n[i]) & RCUCKOO_REPAIR);
        r->free[i] |= ~op_result(op, n[i]);
        r->held[i] = r->locks.lock[i].mask & ~r->free[i];
        *some |= r->held[i] != 0;
    }
    return rc;
}

/* The simulator has little patience, so that it often tests what comes after the looks. */
static uint64_t looks_at_most(struct op *op, unsigned looks)
{
    uint64_t patience = op->pool->knobs.patience;
    return patience < LIVING_LOOKS ? op_random(op, patience + 1) : looks;
}

/* RCUCKOO-C9: clients at work release their locks soon. So a lock that a dead client has only named
 * is soon seen free, and nothing has to be closed. */
static int look_for_a_while(struct repair *r, bool *some)
{
    uint64_t pause = LOOK_PAUSE_NS, looks = looks_at_most(r->op, OPEN_LOOKS - 1);
    int rc = look(r, some);
    for (unsigned i = 0; i < looks && rc == FAR_OK && *some; i++) {
        op_wait(r->op, pause);
        pause *= 2;
        rc = look(r, some);
    }
    return rc;
}

static void set_since(struct repair *r, uint64_t epoch)
{
    uint64_t *word = op_next_word(r->op);
    *word = epoch;
    batch_write(&r->op->batch, MARK_EARLY, r->sub.part.anchor,
                offsetof(struct rcuckoo_anchor, since), word, 8);
}

/* RCUCKOO-C9: sets R. What an earlier closing has noted in `since` goes first: others may have
 * taken locks since then. */
static int close_words(struct repair *r)
{
    struct op *op = r->op;
    unsigned n[RCUCKOO_LOCK_WORDS];
    uint64_t stamp = r->entry->stamp;
    int rc = claim(r);
    if (rc != FAR_OK)
        return rc;
    bool begins = r->open || r->anchor.repair != stamp;
    if (begins) {
        set_since(r, 0);
        batch_fence(&op->batch);
    }
    for (unsigned i = 0; i < r->locks.count; i++)
        n[i] = op_mcas(op, MARK_HINT, r->sub.part.anchor, word_at(r, i), 0, 0, RCUCKOO_REPAIR,
                       RCUCKOO_REPAIR);
    rc = batch_flush(&op->batch);
    r->found_closed = rc == FAR_OK;
    for (unsigned i = 0; i < r->locks.count && r->found_closed; i++)
        r->found_closed = op_result(op, n[i]) & RCUCKOO_REPAIR;
    r->closed = r->found_closed && !begins;
    return rc;
}

/* RCUCKOO-C9: have all operations ended that were in flight when R was set? Asked before lines are
 * read: a client that was shut out meanwhile may have written more of its line. */
static int epoch_passed(struct repair *r, bool *passed)
{
    uint64_t now = 0, since = r->closed ? r->anchor.since : 0;
    *passed = false;
    if (since == 0)
        return FAR_OK;
    int rc = client_epoch_now(r->op, &now);
    *passed = rc == FAR_OK && now >= since + 2;
    return rc;
}

/* A line of a client that is idle, or slow: this waits, not here, but by trying again later. */
static int wait_for_epoch(struct repair *r)
{
    uint64_t now = 0;
    int rc = FAR_OK;
    if (!r->closed || r->anchor.since == 0) {
        rc = client_epoch_now(r->op, &now);
        if (rc == FAR_OK) {
            set_since(r, now);
            rc = batch_flush(&r->op->batch);
        }
    }
    return rc != FAR_OK ? rc : err_fail(FAR_TIMEOUT, "locks may be held by a client that is alive");
}

/* RCUCKOO-C9: a living client may hold the locks. Waits a little until they have been free, or all
 * lines that name them have been written again, as those of clients at work soon are. *free: none
 * of these clients holds a lock of `held`. */
static int await_lines(struct repair *r, bool *free)
{
    uint64_t pause = LOOK_PAUSE_NS, looks = looks_at_most(r->op, LIVING_LOOKS);
    int rc = FAR_OK;
    *free = false;
    r->again = true;
    for (unsigned i = 0; i < looks && rc == FAR_OK && !*free; i++) {
        bool some = true;
        op_wait(r->op, pause);
        pause *= 2;
        r->same = 0;
        rc = look(r, &some);
        if (rc == FAR_OK && some && r->count <= LIVING_MAX)
            rc = journal_visit(r->op, gaddr_node(r->sub.part.anchor), visit, r);
        *free = rc == FAR_OK && (!some || (r->count <= LIVING_MAX && r->same == 0));
    }
    return rc;
}

/* Clears the locks, R, and the stamp. */
static int finish(struct repair *r)
{
    struct op *op = r->op;
    for (unsigned i = 0; i < r->locks.count; i++)
        op_mcas(op, MARK_LOCK, r->sub.part.anchor, word_at(r, i), 0, 0, 0,
                RCUCKOO_REPAIR | (r->held[i] & ~r->kept[i])); /* RCUCKOO-C10 */
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    set_since(r, 0);
    add_disclaim(r);
    return batch_flush(&op->batch);
}

static int release(struct repair *r)
{
    bool some = false, passed = false, free = true;
    bool begun = r->anchor.repair == r->entry->stamp; /* by an earlier attempt */
    int rc = begun ? look(r, &some) : look_for_a_while(r, &some);
    if (rc != FAR_OK || (!some && !begun))
        return rc;
    rc = close_words(r);
    if (rc == FAR_OK)
        rc = epoch_passed(r, &passed);
    if (rc == FAR_OK)
        rc = journal_visit(r->op, gaddr_node(r->sub.part.anchor), visit, r);
    if (rc == FAR_OK)
        rc = look(r, &some);
    if (rc == FAR_OK && some && r->living && !passed)
        rc = await_lines(r, &free);
    if (rc == FAR_OK && !free)
        rc = wait_for_epoch(r);
    return rc == FAR_OK ? finish(r) : rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Reads the anchor that the line names. False in *known: it is none of this table. */
static int read_anchor(struct repair *r, bool *known)
{
    struct op *op = r->op;
    struct rcuckoo_anchor *image = op_buffer(op, BUF_INDEX, sizeof *image);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read_head(&op->batch, r->sub.part.anchor, 0, image, sizeof *image);
    int rc = batch_flush(&op->batch);
    *known = rc == FAR_OK;
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? FAR_OK : rc;
    r->anchor = *image;
    r->sub.part.depth = index_anchor_depth(image->id);
    r->sub.part.suffix = index_anchor_suffix(image->id);
    r->sub.rows = pointer_gaddr(image->rows);
    *known = rcuckoo_judge_anchor(r->view, &r->sub, image) == FAR_OK;
    return FAR_OK;
}

int rcuckoo_recover(struct op *op, struct index_view *base, const struct journal_entry *entry)
{
    struct repair r = {.op = op, .view = rcuckoo_view(base), .entry = entry};
    bool known = false;
    if (!decode(r.view, entry, &r.sub.part.anchor, &r.locks) || r.locks.count == 0)
        return FAR_OK;
    int rc = read_anchor(&r, &known);
    if (rc != FAR_OK || !known)
        return rc;
    return entry->redo && !entry->done ? redo(&r) : release(&r);
}

/* ---- locks that nobody holds ----------------------------------------------------------------- */

/* Looks for bits of a lock word that no client holds, though they are set: a dead client left them,
 * or they were flipped. Which they are is known only while the word is closed (RCUCKOO-C9): others
 * take and release locks all the time, faster than lines can be read. The line is this operation's
 * own, and names the locks, so that others go on if this client dies. Releases the bits if that is
 * wanted. */
static int judge_word(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                      unsigned word, uint64_t mask, bool release, uint64_t *stray)
{
    struct journal line;
    struct rcuckoo_locks locks = {1, {{word, mask}}, {0}};
    struct repair r = {.op = op, .view = view, .sub = *sub, .locks = locks};
    const struct table_desc *desc = &view->base.table->desc;
    struct journal_entry entry = {.subject = {.place = desc->id, .tag = desc->serial}};
    r.entry = &entry;
    int rc = journal_take(op, gaddr_node(sub->part.anchor), &line);
    if (rc != FAR_OK)
        return rc;
    rcuckoo_intend(op, view, sub, &line, &locks);
    entry.at = line.at;
    entry.stamp = line.stamp;
    rc = batch_flush(&op->batch);
    bool some = false, free = true;
    if (rc == FAR_OK)
        rc = close_words(&r);
    if (rc == FAR_OK)
        rc = journal_visit(op, gaddr_node(sub->part.anchor), visit, &r);
    if (rc == FAR_OK)
        rc = look(&r, &some);
    if (rc == FAR_OK && some && r.living)
        rc = await_lines(&r, &free);
    if (rc == FAR_OK && r.living)
        rc = look(&r, &some); /* what these clients held, they have released */
    if (!free)
        r.held[0] = 0; /* they may be theirs */
    *stray = (r.held[0] & ~r.kept[0]) | (r.found_closed ? RCUCKOO_REPAIR : 0);
    if (!release)
        r.held[0] = 0;
    if (rc == FAR_OK)
        rc = finish(&r);
    if (rc == FAR_OK || r.refused) /* then nothing was changed */
        journal_spend(op, &line);
    else
        journal_give(op, &line, false);
    return r.refused ? FAR_OK : rc; /* a recovery is under way */
}

/* Is there a line with the stamp? */
struct stamp_search {
    uint64_t stamp;
    bool found;
};
static void visit_stamp(void *arg, const struct journal_entry *entry, bool alive)
{
    struct stamp_search *search = arg;
    (void)alive;
    search->found |= entry->stamp == search->stamp;
}

/* A stamp in the anchor that no line has keeps recoveries waiting for ever. (A recovery takes its
 * stamp out before the line is blank.) */
static int check_stamp(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                       struct index_report *report)
{
    const uint64_t delta = offsetof(struct rcuckoo_anchor, repair);
    struct rcuckoo_anchor anchor;
    int rc = rcuckoo_read_anchor(op, view, sub, &anchor);
    struct stamp_search search = {.stamp = anchor.repair};
    if (rc != FAR_OK || search.stamp == 0)
        return rc;
    rc = journal_visit(op, gaddr_node(sub->part.anchor), visit_stamp, &search);
    if (rc != FAR_OK || search.found)
        return rc;
    unsigned n = op_read_head(op, sub->part.anchor, delta);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK || op_result(op, n) != search.stamp)
        return rc;
    index_stranded(report, "RCUCKOO-W7: a recovery that nobody does (depth %u, suffix %llu)",
                   sub->part.depth, (unsigned long long)sub->part.suffix);
    if (!report->repair)
        return FAR_OK;
    n = op_cas(op, MARK_HINT, sub->part.anchor, delta, search.stamp, 0);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op_swapped(op, n))
        index_repaired(report, &report->stranded, "  repaired: its stamp was removed");
    return rc;
}

#define WALK_PAUSE_NS 1000000u

/* RCUCKOO-W7, of a lock word whose bits were set at several looks. */
static int check_word(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                      unsigned word, uint64_t bits, struct index_report *report)
{
    uint64_t stray = 0;
    int rc = judge_word(op, view, sub, word, bits & ~RCUCKOO_REPAIR, report->repair, &stray);
    if (rc != FAR_OK || stray == 0)
        return rc;
    index_stranded(report, "RCUCKOO-W7: locks 0x%llx of word %u are held (depth %u, suffix %llu)",
                   (unsigned long long)stray, word, sub->part.depth,
                   (unsigned long long)sub->part.suffix);
    if (report->repair || stray == RCUCKOO_REPAIR) /* R does not survive a look */
        index_repaired(report, &report->stranded, "  repaired: released");
    return FAR_OK;
}

/* RCUCKOO-W7. What is set at several looks, with pauses in between, is perhaps set for good. */
int rcuckoo_check_locks(struct op *op, struct rcuckoo_view *view, const struct rcuckoo_sub *sub,
                        struct index_report *report)
{
    const unsigned words = view->shape.words;
    uint64_t stuck[RCUCKOO_WORDS_MAX], any = 1;
    int rc = check_stamp(op, view, sub, report);
    uint64_t *image = op_buffer(op, BUF_INDEX, 8ull * words);
    if (!image)
        return FAR_NO_MEMORY;
    memset(stuck, 0xff, sizeof stuck);
    for (unsigned i = 0; i < INDEX_WALK_LOOKS && rc == FAR_OK && any != 0; i++) {
        if (i > 0)
            batch_pause(&op->batch, WALK_PAUSE_NS);
        batch_read_head(&op->batch, sub->part.anchor, rcuckoo_word_at(0), image, 8 * words);
        rc = batch_flush(&op->batch);
        any = 0;
        for (unsigned k = 0; k < words && rc == FAR_OK; k++)
            any |= stuck[k] &= image[k];
    }
    for (unsigned k = 0; k < words && rc == FAR_OK && any != 0; k++) {
        uint64_t bits = stuck[k] & ~RCUCKOO_CLOSED;
        if (bits != 0)
            rc = check_word(op, view, sub, k, bits, report);
    }
    if (rc == FAR_OK && any & RCUCKOO_CLOSED)
        rc = rcuckoo_check_closed(op, view, sub, report);
    return rc;
}
