/* Recovering lines: those of a dead client, and those that operations of this client left; and
 * journal_visit(), by which they look at the lines of others. */
#include "pool/clients/journal_internal.h"

#include <stdlib.h>

/* ---- lines that were read -------------------------------------------------------------------- */

struct seen_line {
    unsigned slot;
    gaddr at;
    struct journal_line line;
};

/* Whole lines, in a list that grows. */
struct journal_seen {
    struct seen_line *line;
    unsigned count, room;
};

static struct seen_line *see(struct journal_seen *seen, unsigned slot, gaddr at)
{
    if (seen->count == seen->room) {
        unsigned room = seen->room ? 2 * seen->room : 8;
        struct seen_line *grown = realloc(seen->line, room * sizeof *grown);
        if (!grown) {
            (void)err_fail(FAR_NO_MEMORY, "no memory for journals");
            return NULL;
        }
        seen->line = grown;
        seen->room = room;
    }
    struct seen_line *line = &seen->line[seen->count++];
    *line = (struct seen_line){.slot = slot, .at = at};
    return line;
}

static const struct seen_line *find_seen(const struct journal_seen *seen, gaddr at)
{
    for (unsigned i = 0; seen && i < seen->count; i++)
        if (seen->line[i].at == at)
            return &seen->line[i];
    return NULL;
}

/* Reads the lines of the list from the first on. */
static int read_seen(struct op *op, struct journal_seen *seen, unsigned first)
{
    int rc = FAR_OK;
    while (first < seen->count && rc == FAR_OK) {
        unsigned count = seen->count - first < WALK_MANY ? seen->count - first : WALK_MANY;
        struct journal_line *image = op_buffer(op, BUF_JOURNAL, WALK_MANY * sizeof *image);
        for (unsigned i = 0; i < count && image; i++)
            batch_read_head(&op->batch, seen->line[first + i].at, 0, &image[i], sizeof *image);
        rc = image ? batch_flush(&op->batch) : FAR_NO_MEMORY;
        for (unsigned i = 0; i < count && rc == FAR_OK; i++)
            seen->line[first + i].line = image[i];
        first += count;
    }
    return rc;
}

/* A walk that keeps the lines that say something. */
struct keeping {
    struct walk walk;
    struct journal_seen seen;
    int rc;
};

static void keep_line(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    struct keeping *k = (struct keeping *)w;
    if (line->intent.stamp == 0 || k->rc != FAR_OK)
        return;
    struct seen_line *kept = see(&k->seen, slot, at);
    if (kept)
        kept->line = *line;
    else
        k->rc = FAR_NO_MEMORY;
}

/* ---- recovery -------------------------------------------------------------------------------- */

/* Decodes a line (JOURNAL-J2). False: it says nothing. */
static bool judge(const struct journal_line *line, unsigned slot, gaddr at, struct journal_entry *e)
{
    const struct journal_intent *intent = &line->intent;
    const struct journal_redo *redo = &line->redo;
    if (intent->stamp == 0 || intent->len > sizeof intent->data ||
        intent->sum != intent_sum(intent, intent->len))
        return false;
    *e = (struct journal_entry){
        .owner = owner_word_make(intent->incarnation, slot),
        .at = at,
        .stamp = intent->stamp,
        .subject = {.place = intent->place, .tag = intent->tag, .what = intent->what},
        .data = intent->data,
        .len = intent->len,
        .done = line->done == intent->stamp,
    };
    if (redo->stamp == intent->stamp && redo->len <= sizeof redo->data &&
        redo->sum == redo_sum(redo, redo->len)) {
        e->redo = redo->data;
        e->redo_len = redo->len;
    }
    return true;
}

void journal_entry_done(struct op *op, const struct journal_entry *entry)
{
    struct journal_image *image = op_buffer(op, BUF_JOURNAL, sizeof *image);
    ASSERT(image); /* the line was read into it */
    image->entry_done = entry->stamp;
    batch_write(&op->batch, MARK_PLACE, entry->at, offsetof(struct journal_line, done),
                &image->entry_done, 8);
}

/* Recovers what a line says, and blanks it. */
static int recover_line(struct op *op, struct seen_line *seen)
{
    struct journal_image *image = op_buffer(op, BUF_JOURNAL, sizeof *image);
    struct journal_entry entry;
    int rc = image ? FAR_OK : FAR_NO_MEMORY;
    if (rc != FAR_OK || seen->line.intent.stamp == 0)
        return rc;
    if (op->pool->recover && judge(&seen->line, seen->slot, seen->at, &entry))
        rc = op->pool->recover(op->pool->tables, op, &entry);
    if (rc != FAR_OK)
        return rc;
    image = op_buffer(op, BUF_JOURNAL, sizeof *image); /* again: it may have moved */
    journal_write_blank(op, seen->at, image->blank);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        seen->line.intent.stamp = 0;
    return rc;
}

/* A line that a circle leads to again was read before it was recovered. */
static void keep_once(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    if (find_seen(&((struct keeping *)w)->seen, at))
        journal_break_off(w, &w->cursor[0], at);
    else
        keep_line(w, slot, at, line);
}

static int recover_node(struct op *op, unsigned node, unsigned slot)
{
    struct keeping k = {.walk = {.op = op, .visit = keep_once, .whole = true}, .rc = FAR_OK};
    struct journal_seen *outer = op->journal_seen;
    int rc = journal_walk_one(&k.walk, node, slot);
    if (rc == FAR_OK)
        rc = k.rc;
    unsigned count = rc == FAR_OK ? k.seen.count : 0;
    op->journal_seen = &k.seen;            /* JOURNAL-J7 */
    for (unsigned i = 0; i < count; i++) { /* one may have to wait for another */
        int one = recover_line(op, &k.seen.line[i]);
        rc = rc == FAR_OK ? one : rc;
    }
    op->journal_seen = outer;
    free(k.seen.line);
    return rc;
}

/* A node that is unreachable does not hold up the recovery of lines on the others. */
int journal_recover(struct op *op, unsigned slot)
{
    ASSERT(op->recovers && slot < op->pool->clients);
    uint64_t nodes = 0;
    int rc = journal_used_nodes(op, slot, &nodes);
    if (rc != FAR_OK)
        return rc;
    for (unsigned node = 0; node < op->pool->nodes; node++) {
        int one = nodes >> node & 1 ? recover_node(op, node, slot) : FAR_OK;
        rc = rc == FAR_OK ? one : rc;
    }
    return rc;
}

/* Takes the lines on a node that operations of this client left: siblings then leave them alone. */
static int take_left(struct client *c, unsigned node, struct journal_seen *seen)
{
    struct lines *l = &c->lines;
    for (unsigned i = 0; i < l->count; i++) {
        if (l->line[i].state != LINE_LEFT || gaddr_node(l->line[i].at) != node)
            continue;
        if (client_has_stray_writes(c))
            return FAR_TIMEOUT; /* JOURNAL-J3: a sibling may have left the line since this began */
        if (!see(seen, c->slot, l->line[i].at))
            return FAR_NO_MEMORY;
        l->line[i].state = LINE_TAKEN;
    }
    return FAR_OK;
}

/* Recovers the lines on a node that operations of this client left. */
static int complete_node(struct op *op, unsigned node)
{
    struct client *c = op->client;
    struct journal_seen seen = {0}, *outer = op->journal_seen;
    const unsigned registration = c->lines.registration;
    int rc = take_left(c, node, &seen);
    int read = read_seen(op, &seen, 0);
    rc = rc == FAR_OK ? read : rc;
    op->journal_seen = &seen; /* JOURNAL-J7 */
    for (unsigned i = 0; i < seen.count && registration == c->lines.registration; i++) {
        int one = read;
        if (one == FAR_OK)
            one = client_has_stray_writes(c) ? FAR_TIMEOUT : recover_line(op, &seen.line[i]);
        rc = rc == FAR_OK ? one : rc;
        if (registration == c->lines.registration)
            journal_give_left(c, seen.line[i].at, one == FAR_OK);
    }
    op->journal_seen = outer;
    free(seen.line);
    return rc == FAR_OK && registration != c->lines.registration ? FAR_FENCED : rc;
}

int journal_complete(struct op *op)
{
    struct client *c = op->client;
    struct lines *l = &c->lines;
    const unsigned registration = l->registration;
    uint64_t nodes = 0;
    int rc = journal_used_nodes(op, c->slot, &nodes);
    if (rc != FAR_OK)
        return rc;
    l->nodes |= nodes;
    for (unsigned node = 0; node < op->pool->nodes; node++) {
        bool unread = (nodes & ~l->loaded) >> node & 1;
        int one = unread ? journal_load(op, node) : FAR_OK;
        rc = rc == FAR_OK ? one : rc;
    }
    for (unsigned node = 0; node < op->pool->nodes && registration == l->registration; node++) {
        int one = complete_node(op, node);
        rc = rc == FAR_OK ? one : rc;
    }
    return rc;
}

/* ---- looking at the lines of others ---------------------------------------------------------- */

static bool is_dead(uint64_t incarnation)
{
    return incarnation == 0 || incarnation & CLIENT_FENCED;
}

/* Keeps those of this client's lines on a node that an operation uses: which they are is known. */
static int keep_own(struct keeping *k, unsigned node)
{
    struct op *op = k->walk.op;
    const struct lines *l = &op->client->lines;
    unsigned first = k->seen.count;
    for (unsigned i = 0; i < l->count; i++) {
        const struct line *line = &l->line[i];
        if (line->state == LINE_FREE || gaddr_node(line->at) != node ||
            find_seen(op->journal_seen, line->at))
            continue; /* blank, spent, or read before */
        if (!see(&k->seen, op->client->slot, line->at))
            return FAR_NO_MEMORY;
    }
    return read_seen(op, &k->seen, first);
}

/* JOURNAL-J7: keeps the lines that this operation recovers. */
static int keep_recovered(struct keeping *k, unsigned node)
{
    const struct journal_seen *seen = k->walk.op->journal_seen;
    for (unsigned i = 0; seen && i < seen->count && k->rc == FAR_OK; i++)
        if (gaddr_node(seen->line[i].at) == node)
            keep_line(&k->walk, seen->line[i].slot, seen->line[i].at, &seen->line[i].line);
    return k->rc;
}

static void keep_used(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    struct client *c = w->op->client;
    const struct line *mine = slot == c->slot ? journal_find_line(&c->lines, at) : NULL;
    if (!mine || mine->state != LINE_FREE)
        keep_line(w, slot, at, line);
}

/* Need the slot's chain not be walked, because its lines are known? */
static bool knows_lines(const struct op *op, unsigned node, unsigned slot)
{
    const struct journal_seen *seen = op->journal_seen;
    if (slot == op->client->slot)
        return op->client->lines.loaded >> node & 1;
    return seen && seen->count > 0 && seen->line[0].slot == slot &&
           gaddr_node(seen->line[0].at) == node;
}

/* Reads the lines of all slots on a node. */
static int read_lines(struct keeping *k, unsigned node, const struct client_slot *slots)
{
    struct walk *w = &k->walk;
    const struct op *op = w->op;
    const struct pool *pool = op->pool;
    uint64_t *journals = malloc(pool->clients * sizeof *journals); /* the buffer is used again */
    int rc = journals ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory for journals");
    for (unsigned slot = 0; slot < pool->clients && rc == FAR_OK; slot++)
        journals[slot] = slots[slot].journals;
    if (rc == FAR_OK && knows_lines(op, node, op->client->slot))
        rc = keep_own(k, node);
    for (unsigned slot = 0; slot < pool->clients && rc == FAR_OK; slot++)
        if (journals[slot] >> node & 1 && !knows_lines(op, node, slot))
            rc = journal_walk_add(w, node, slot);
    if (rc == FAR_OK)
        rc = journal_walk(w);
    free(journals);
    return rc == FAR_OK ? keep_recovered(k, node) : rc;
}

int journal_visit(struct op *op, unsigned node,
                  void (*visit)(void *arg, const struct journal_entry *entry, bool alive),
                  void *arg)
{
    struct keeping k = {.walk = {.op = op, .visit = keep_used, .whole = true}, .rc = FAR_OK};
    struct client_slot *slots = NULL;
    uint64_t *before = malloc(op->pool->clients * sizeof *before);
    ASSERT(node < op->pool->nodes);
    int rc =
        before ? client_registry(op, &slots) : err_fail(FAR_NO_MEMORY, "no memory for journals");
    for (unsigned slot = 0; slot < op->pool->clients && rc == FAR_OK; slot++)
        before[slot] = slots[slot].incarnation;
    if (rc == FAR_OK)
        rc = read_lines(&k, node, slots);
    if (rc == FAR_OK && k.seen.count > 0)
        rc = client_registry(op, &slots); /* JOURNAL-J6 */
    for (unsigned i = 0; i < k.seen.count && rc == FAR_OK; i++) {
        const struct seen_line *seen = &k.seen.line[i];
        struct journal_entry entry;
        uint64_t after = slots[seen->slot].incarnation;
        bool alive = !is_dead(after) || before[seen->slot] != after;
        if (judge(&seen->line, seen->slot, seen->at, &entry))
            visit(arg, &entry, alive);
    }
    free(k.seen.line);
    free(before);
    return rc;
}
