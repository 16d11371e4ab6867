/*
 * Journals: what others must complete or undo if a client dies now.
 *
 * An operation that takes a lock, or begins a change in several steps, first writes down what it is
 * about to do: in a line of its own, on the node of the lock, in the batch that takes the lock and
 * ahead of the CAS. The WRITE takes effect before the CAS, so this costs no round trip. A line
 * belongs to one operation from journal_take() to journal_give(); sibling operations of a ring have
 * others.
 *
 *   JOURNAL-J1  Every registry slot has one line on every node, at a fixed place. If its client has
 *       more operations at once that need a line there, more lines are made. They are objects of
 *       the pool, chained to the first by a CAS of its `next` when they are whole and blank. Lines
 *       are never removed, so anybody may walk a chain at any time. The next client in the slot
 *       uses them again. Before a slot's lines on a node are used for the first time, the slot
 *       notes that there may be something on that node, so a recovery needs no other nodes.
 *   JOURNAL-J2  A line says three things, each at once or not at all: the intent (before the lock),
 *       the redo (before the first change under the lock), and "done" (after the last change,
 *       before the unlock). Intent and redo have checksums, so one that is torn says nothing: its
 *       lock was not taken, or no change was made. All three carry the same stamp, which no other
 *       use of the line has: it is made of the client's incarnation and a count. A redo says that
 *       the locks are held, so it is a WRITE of MARK_PLACE: whoever can read it finds them held.
 *   JOURNAL-J3  An operation that ends with its line blank has left nothing behind. If the batch
 *       that blanks it fails, or the operation gives up before, the line is left. This client
 *       recovers it itself, later, when no verb of the failed batch can arrive any more. It does
 *       not leave its slot before that. If it is idle then, it lets others do it.
 *   JOURNAL-J4  One client at a time recovers a dead client's lines, the one that has claimed the
 *       slot (LEASE-L2). It blanks each line after it has recovered it. If it repeats a change, it
 *       may say "done" in the line before it unlocks, so that no other client repeats the change
 *       after the unlock. When the slot is free, all its lines are blank.
 *   JOURNAL-J5  Blanking a line behind the unlock may need a fence. So an operation that has
 *       released its locks may give its line back as it is: the line is spent. The next operation
 *       overwrites it, and by JOURNAL-J2 the line is then torn, or says only the new intent. If the
 *       client dies first, a recovery reads a line whose locks were released, and others may hold
 *       them. So recover() looks whether the locks are held, and whose they are: journal_visit().
 *       A client blanks its spent lines before it is parked, and before it leaves its slot.
 *       Meanwhile no operation can take them. If the WRITE may still arrive later, the line is left
 *       (JOURNAL-J3). If the node is unreachable, the client is parked all the same, and tries
 *       again with its next heartbeat. But it does not leave its slot before the line is blank.
 *   JOURNAL-J6  journal_visit() reads lines first, and then the registry. If a slot is free or
 *       fenced then, every client that wrote what was read of its lines is fenced or has left. A
 *       client that leaves has no locks. (If the registry were read first, another client could
 *       take the slot and write a line before the lines are read, and would count as dead.) It
 *       reads the registry before the lines, too: what a client wrote that was fenced in between,
 *       or that even joined in between, may be more than what was read. So it counts as alive
 *       unless the registry says the same of its slot both times. If the slot has a client that is
 *       not fenced, the line's writer counts as alive, also if the line names another incarnation:
 *       the client may have renewed its registration, or have taken the slot with the line, and
 *       then recovers the line itself (LEASE-L2). A line is missed only if it was written after the
 *       call began. So if a lock is closed to others before the call, the lines of all clients that
 *       hold it are visited.
 *   JOURNAL-J7  Nobody else writes the lines that an operation recovers: a dead client is shut out,
 *       and siblings leave a line alone that another operation recovers. So these lines are read
 *       once, before the first of them is recovered, and journal_visit() shows them as they were
 *       read. If each visit read them again, a recovery would go by the square of a ring's depth.
 *   JOURNAL-J8  Where each word is on two machines, a lock may be released at one of them behind
 *       the answer. A spent line that names it is not used again before that, nor blanked.
 *
 * A chain that is damaged is cut there, by the slot's next owner: what follows cannot be read.
 */
#include "pool/clients/journal_internal.h"

#include <stdlib.h>
#include <string.h>

static bool lines_grow(struct lines *l)
{
    unsigned room = l->room ? 2 * l->room : 8;
    struct line *line = realloc(l->line, room * sizeof *line);
    if (!line)
        return false;
    l->line = line;
    l->room = room;
    return true;
}

static void set_free(struct lines *l, unsigned i)
{
    ASSERT(i < l->room);
    unsigned node = gaddr_node(l->line[i].at);
    l->line[i].state = LINE_FREE;
    l->line[i].next = l->free[node];
    l->free[node] = i + 1;
}

struct line *journal_find_line(struct lines *l, gaddr at)
{
    for (unsigned i = 0; i < l->count; i++)
        if (l->line[i].at == at)
            return &l->line[i];
    return NULL;
}

/* A line that is known stays as it is: siblings may add lines while one operation walks the
 * chain. */
static int add_line(struct client *c, gaddr at, enum line_state state)
{
    struct lines *l = &c->lines;
    if (journal_find_line(l, at))
        return FAR_OK;
    if (l->count == l->room && !lines_grow(l))
        return err_fail(FAR_NO_MEMORY, "no memory for a journal");
    l->line[l->count] = (struct line){.at = at, .state = (uint8_t)state};
    if (state == LINE_FREE)
        set_free(l, l->count);
    c->attention.undone += state == LINE_LEFT;
    l->count++;
    return FAR_OK;
}

void journal_forget(struct client *c)
{
    struct lines *l = &c->lines;
    memset(l->free, 0, sizeof l->free);
    l->count = 0;
    c->attention.undone = 0;
    l->loaded = l->cut = l->nodes = 0;
    l->registration++;
}

struct loading {
    struct walk walk;
    unsigned number;
    int rc;
};

static void load_line(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    struct loading *loading = (struct loading *)w;
    struct lines *l = &w->op->client->lines;
    if (at == first_line(w->op->pool, gaddr_node(at), slot))
        l->next[gaddr_node(at)] = line->next;
    if (loading->rc == FAR_OK)
        loading->rc = add_line(w->op->client, at, line->intent.stamp == 0 ? LINE_FREE : LINE_LEFT);
    struct line *known = journal_find_line(l, at);
    if (known && known->walk == loading->number)
        journal_break_off(w, &w->cursor[0], at); /* the chain is a circle */
    else if (known)
        known->walk = loading->number;
}

int journal_load(struct op *op, unsigned node)
{
    struct client *c = op->client;
    struct lines *l = &c->lines;
    struct loading loading = {
        .walk = {.op = op, .visit = load_line}, .number = ++l->walks, .rc = FAR_OK};
    const uint64_t bit = 1ull << node;
    int rc = journal_walk_one(&loading.walk, node, c->slot);
    if (rc == FAR_OK)
        rc = loading.rc;
    if (rc != FAR_OK)
        return rc;
    l->cut &= ~bit;
    if (loading.walk.damaged > 0 && loading.walk.broken != 0) {
        l->cut |= bit;
        l->broken[node] = loading.walk.broken;
        l->bad_next[node] = loading.walk.bad_next;
    }
    l->loaded |= bit;
    return FAR_OK;
}

/* Notes in the slot that its lines on the node may be used. By a CAS, not a WRITE: if it lands
 * late, it finds another word. */
static int note_node(struct op *op, unsigned node)
{
    struct client *c = op->client;
    const uint64_t delta = slot_delta(c->slot) + offsetof(struct client_slot, journals);
    uint64_t nodes = c->lines.nodes, noted = nodes | 1ull << node;
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, delta, nodes, noted, op->pool_word);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        c->lines.nodes = op->pool_word[0] == nodes ? noted : op->pool_word[0];
    return rc;
}

/* Cuts the own chain where it is damaged. The lines before that stay in use. */
static int cut_own(struct op *op, unsigned node)
{
    struct lines *l = &op->client->lines;
    gaddr at = l->broken[node];
    uint64_t bad_next = l->bad_next[node];
    batch_cas(&op->batch, MARK_PUBLISH, at, offsetof(struct journal_line, next), bad_next, 0,
              op->pool_word);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (l->next[node] == bad_next && at == first_line(op->pool, node, op->client->slot))
        l->next[node] = 0;
    if (l->broken[node] == at && l->bad_next[node] == bad_next)
        l->cut &= ~(1ull << node);
    return FAR_OK;
}

/* JOURNAL-J1 */
static int make_line(struct op *op, unsigned node)
{
    struct client *c = op->client;
    struct lines *l = &c->lines;
    const uint64_t bit = 1ull << node;
    struct journal_line *image = op_buffer(op, BUF_JOURNAL, sizeof *image);
    gaddr at = 0;
    int rc = image ? FAR_OK : FAR_NO_MEMORY;
    if (rc == FAR_OK && l->cut & bit)
        rc = cut_own(op, node);
    if (rc == FAR_OK) /* a WRITE to another node would not be ordered with the lock's CAS */
        rc = pool_alloc_aside(op, node, JOURNAL_CLASS, &at);
    if (rc != FAR_OK)
        return rc;
    uint64_t next = l->next[node];
    memset(image, 0, sizeof *image);
    image->next = next;
    image->magic = JOURNAL_MAGIC + c->slot;
    batch_write(&op->batch, MARK_EARLY, at, 0, image, sizeof *image);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK) {
        batch_cas(&op->batch, MARK_PUBLISH, first_line(op->pool, node, c->slot),
                  offsetof(struct journal_line, next), next, at, op->pool_word);
        rc = batch_flush(&op->batch);
    }
    if (rc != FAR_OK) {
        pool_abandon(c, JOURNAL_CLASS);
        l->loaded &= ~bit; /* the line may be in the chain */
        return rc;
    }
    if (op->pool_word[0] != next) { /* a sibling was faster, or a line that we gave up is there */
        pool_free_unpublished(c, at, JOURNAL_CLASS);
        if (op->pool_word[0] != l->next[node])
            l->loaded &= ~bit;
        return FAR_OK;
    }
    l->next[node] = at;
    return add_line(c, at, LINE_FREE);
}

bool journal_lacks_line(const struct op *op)
{
    const struct lines *l = &op->client->lines;
    return op->lacks_line != 0 && l->loaded >> (op->lacks_line - 1) & 1 &&
           l->free[op->lacks_line - 1] == 0;
}

/* JOURNAL-J8: the first free line that nobody needs any more. */
static uint32_t *free_line(struct client *c, unsigned node)
{
    uint32_t *from = &c->lines.free[node];
    if (!c->rescue)
        return from;
    while (*from != 0 && c->lines.line[*from - 1].spent &&
           !c->ep->ops->chain->ended(c->ep, c->lines.line[*from - 1].posts))
        from = &c->lines.line[*from - 1].next;
    return from;
}

#define TAKE_TURNS 64

int journal_take(struct op *op, unsigned node, struct journal *j)
{
    struct lines *l = &op->client->lines;

    ASSERT(op->batch.count == 0 && node < op->pool->nodes);
    *j = (struct journal){.registration = l->registration};
    if (!op_buffer(op, BUF_JOURNAL, sizeof(struct journal_image)))
        return FAR_NO_MEMORY;
    uint32_t *from = free_line(op->client, node);
    for (unsigned turn = 0; *from == 0 || !(l->nodes >> node & 1); turn++) {
        int rc = FAR_CONTENTION; /* each time, siblings took the line that was made */
        if (turn < TAKE_TURNS && !(l->nodes >> node & 1))
            rc = note_node(op, node);
        else if (turn < TAKE_TURNS)
            rc = l->loaded >> node & 1 ? make_line(op, node) : journal_load(op, node);
        if (rc == FAR_POOL_FULL)
            op->lacks_line = node + 1;
        if (rc != FAR_OK)
            return rc;
        from = free_line(op->client, node);
    }
    unsigned i = *from - 1;
    *from = l->line[i].next;
    l->line[i].state = LINE_TAKEN;
    j->place = i + 1;
    j->at = l->line[i].at;
    return FAR_OK;
}

/* JOURNAL-J3 */
static void set_left(struct client *c, unsigned i)
{
    c->lines.line[i].state = LINE_LEFT;
    c->attention.undone++;
}

static void give_back(struct op *op, struct journal *j, bool left, bool spent)
{
    struct lines *l = &op->client->lines;
    if (j->place == 0 || j->registration != l->registration)
        return; /* none was taken, or it belongs to an earlier registration */
    ASSERT(j->place <= l->count && l->line[j->place - 1].state == LINE_TAKEN);
    if (j->stamp != 0) /* else the line is as it was taken */
        l->line[j->place - 1].spent = spent;
    if (spent && op->client->rescue)
        l->line[j->place - 1].posts = op->client->ep->ops->chain->posted(op->client->ep);
    if (left && j->stamp != 0)
        set_left(op->client, j->place - 1);
    else
        set_free(l, j->place - 1);
    j->place = 0;
}

void journal_give_left(struct client *c, gaddr at, bool recovered)
{
    struct line *line = journal_find_line(&c->lines, at);
    ASSERT(line && line->state == LINE_TAKEN);
    if (recovered) {
        c->attention.undone--;
        line->spent = false;
        set_free(&c->lines, (unsigned)(line - c->lines.line));
    } else {
        line->state = LINE_LEFT;
    }
}

void journal_give(struct op *op, struct journal *j, bool blank)
{
    give_back(op, j, !blank, false);
}

void journal_spend(struct op *op, struct journal *j)
{
    give_back(op, j, false, true);
}

static struct journal_image *image_of(struct op *op, const struct journal *j)
{
    return j->place == 0 ? NULL : op_buffer(op, BUF_JOURNAL, sizeof(struct journal_image));
}

void journal_intend(struct op *op, struct journal *j, const struct journal_subject *subject,
                    const void *data, size_t len)
{
    struct client *c = op->client;
    struct journal_image *image = image_of(op, j);
    if (!image)
        return;
    struct journal_intent *intent = &image->line.intent;
    ASSERT(len <= sizeof intent->data && len % 8 == 0);
    j->stamp = c->incarnation + 2 * ++c->lines.stamps; /* odd: not 0 */
    *intent = (struct journal_intent){.stamp = j->stamp,
                                      .incarnation = c->incarnation,
                                      .tag = subject->tag,
                                      .what = subject->what,
                                      .place = (uint16_t)subject->place,
                                      .len = (uint16_t)len};
    memcpy(intent->data, data, len);
    intent->sum = intent_sum(intent, len);
    batch_write(&op->batch, MARK_EARLY, j->at, offsetof(struct journal_line, intent), intent,
                (uint32_t)(offsetof(struct journal_intent, data) + len));
}

void journal_redo(struct op *op, struct journal *j, const void *data, size_t len)
{
    struct journal_image *image = image_of(op, j);
    if (!image)
        return;
    struct journal_redo *redo = &image->line.redo;
    ASSERT(len <= sizeof redo->data && len % 8 == 0 && j->stamp != 0);
    redo->stamp = j->stamp;
    redo->len = len;
    memcpy(redo->data, data, len);
    redo->sum = redo_sum(redo, len);
    batch_write(&op->batch, MARK_PLACE, j->at, offsetof(struct journal_line, redo), redo,
                (uint32_t)(offsetof(struct journal_redo, data) + len));
}

void journal_done(struct op *op, struct journal *j)
{
    struct journal_image *image = image_of(op, j);
    if (!image)
        return;
    ASSERT(j->stamp != 0);
    image->line.done = j->stamp;
    batch_write(&op->batch, MARK_PLACE, j->at, offsetof(struct journal_line, done),
                &image->line.done, 8);
}

void journal_write_blank(struct op *op, gaddr at, uint64_t blank[2])
{
    blank[0] = blank[1] = 0; /* sum and stamp */
    batch_write(&op->batch, MARK_EARLY, at, offsetof(struct journal_line, intent), blank, 16);
}

void journal_end(struct op *op, struct journal *j)
{
    struct journal_image *image = image_of(op, j);
    if (op->batch.count == 0)
        client_finish(op->client); /* JOURNAL-J8 */
    if (image)
        journal_write_blank(op, j->at, image->blank);
}

/* Takes spent lines on a node off the free list: as many as fit into a batch. */
static unsigned take_spent(struct lines *l, unsigned node, uint32_t place[BATCH_MAX])
{
    unsigned count = 0;
    for (uint32_t *from = &l->free[node]; *from != 0 && count < BATCH_MAX;) {
        struct line *line = &l->line[*from - 1];
        if (!line->spent) {
            from = &line->next;
            continue;
        }
        line->state = LINE_TAKEN;
        place[count++] = *from;
        *from = line->next;
    }
    return count;
}

/* Blanks spent lines that were taken off the free list, and puts them back. */
static int blank_taken(struct op *op, const uint32_t *place, unsigned count)
{
    struct lines *l = &op->client->lines;
    const unsigned registration = l->registration;
    struct journal_image *image = op_buffer(op, BUF_JOURNAL, sizeof *image);
    for (unsigned i = 0; i < count && image; i++)
        journal_write_blank(op, l->line[place[i] - 1].at, image->blank);
    int rc = image ? batch_flush(&op->batch) : FAR_NO_MEMORY;
    if (registration != l->registration)
        return rc == FAR_OK ? FAR_FENCED : rc;
    bool may_arrive = image && status_in_doubt(rc);
    for (unsigned i = 0; i < count; i++) {
        l->line[place[i] - 1].spent = rc != FAR_OK;
        if (may_arrive)
            set_left(op->client, place[i] - 1);
        else
            set_free(l, place[i] - 1);
    }
    return rc;
}

/* A batch has lines of one node only, so that a node that is unreachable does not hold up the
 * others. */
int journal_blank_spent(struct op *op)
{
    struct lines *l = &op->client->lines;
    const unsigned registration = l->registration;
    uint32_t place[BATCH_MAX];
    int rc = FAR_OK;
    client_finish(op->client); /* JOURNAL-J8 */
    for (unsigned node = 0; node < op->pool->nodes; node++) {
        int one = FAR_OK;
        while (one == FAR_OK && registration == l->registration) {
            unsigned count = take_spent(l, node, place);
            if (count == 0)
                break;
            one = blank_taken(op, place, count);
        }
        rc = rc == FAR_OK ? one : rc;
    }
    return rc;
}
