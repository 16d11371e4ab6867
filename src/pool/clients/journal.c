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
 *       use of the line has: it is made of the client's incarnation and a count.
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
 *
 * A chain that is damaged is cut there, by the slot's next owner: what follows cannot be read.
 */
#include "pool/pool_internal.h"

#include <stdlib.h>
#include <string.h>

#define LINES_MAX 65536u /* of a chain: a longer one goes in a circle */

enum line_state { LINE_FREE, LINE_TAKEN, LINE_LEFT };

static uint64_t intent_sum(const struct journal_intent *intent, size_t len)
{
    return hash_sum((const char *)intent + 8, offsetof(struct journal_intent, data) - 8 + len,
                    JOURNAL_MAGIC) |
           1; /* a blank line has sum 0 */
}

static uint64_t redo_sum(const struct journal_redo *redo, size_t len)
{
    return hash_sum((const char *)redo + 8, offsetof(struct journal_redo, data) - 8 + len,
                    JOURNAL_MAGIC) |
           1;
}

static gaddr first_line(const struct pool *pool, unsigned node, unsigned slot)
{
    return gaddr_make(node, journal_off(pool->clients) + (uint64_t)slot * JOURNAL_BYTES);
}

/* ---- walking chains -------------------------------------------------------------------------- */

#define WALK_BYTES 64 /* read of each line: up to the intent's stamp */
#define WALK_MANY  (BATCH_MAX / 2)

struct walk {
    struct op *op;
    /* Called for each line, with its first WALK_BYTES, or all of it. */
    void (*visit)(struct walk *walk, unsigned slot, gaddr at, const struct journal_line *line);
    bool whole;        /* reads whole lines */
    unsigned damaged;  /* chains that do not end as they should */
    unsigned last;     /* the slot of one of them */
    gaddr broken;      /* its last line before the damage */
    uint64_t bad_next; /* that line's `next` */
    unsigned count;
    struct cursor {
        unsigned slot;
        gaddr at, before;
    } cursor[WALK_MANY];
};

static void break_off(struct walk *w, struct cursor *c, gaddr at)
{
    c->at = 0;
    w->damaged++;
    w->last = c->slot;
    w->broken = c->before;
    w->bad_next = at;
}

/* Reads one line of each chain, and moves the cursors on to the next ones. */
static int walk_step(struct walk *w)
{
    struct op *op = w->op;
    const struct pool *pool = op->pool;
    const uint32_t bytes = w->whole ? JOURNAL_BYTES : WALK_BYTES;
    char *image = op_buffer(op, BUF_JOURNAL, (size_t)WALK_MANY * bytes);
    if (!image)
        return FAR_NO_MEMORY;
    for (unsigned i = 0; i < w->count; i++) {
        struct cursor *c = &w->cursor[i];
        struct fab_verb v = {.kind = FAB_READ,
                             .node = (uint16_t)gaddr_node(c->at),
                             .len = JOURNAL_BYTES,
                             .off = gaddr_offset(c->at),
                             .buf = image};
        bool away =
            v.node < pool->nodes && fab_away(pool->fab) >> v.node & 1; /* so the walk fails */
        if (c->at >> GADDR_BITS != 0 || (!away && !fab_valid(pool->fab, &v)))
            break_off(w, c, c->at); /* the others go on */
        else if (c->at != 0)
            batch_read(&op->batch, c->at, 0, image + (size_t)i * bytes, bytes);
    }
    int rc = batch_flush(&op->batch);
    for (unsigned i = 0; i < w->count && rc == FAR_OK; i++) {
        const struct journal_line *line = (const void *)(image + (size_t)i * bytes);
        struct cursor *c = &w->cursor[i];
        gaddr at = c->at;
        if (at == 0)
            continue;
        if (at != first_line(pool, gaddr_node(at), c->slot) &&
            line->magic != JOURNAL_MAGIC + c->slot) {
            break_off(w, c, at);
            continue;
        }
        c->at = line->next;
        w->visit(w, c->slot, at, line);
        c->before = at;
    }
    return rc;
}

/* Walks the chains. Each cursor stands at the beginning of one. */
static int walk(struct walk *w)
{
    ASSERT(w->count <= WALK_MANY && w->op->batch.count == 0);
    for (unsigned n = 0; n < LINES_MAX; n++) {
        bool more = false;
        for (unsigned i = 0; i < w->count; i++)
            more |= w->cursor[i].at != 0;
        int rc = more ? walk_step(w) : FAR_OK;
        if (!more || rc != FAR_OK) {
            w->count = 0;
            return rc;
        }
    }
    w->count = 0;
    w->damaged++; /* the chain is a circle */
    return FAR_OK;
}

static int walk_one(struct walk *w, unsigned node, unsigned slot)
{
    w->cursor[0] = (struct cursor){slot, first_line(w->op->pool, node, slot), 0};
    w->count = 1;
    return walk(w);
}

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
            batch_read(&op->batch, seen->line[first + i].at, 0, &image[i], sizeof *image);
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

/* ---- what slots say -------------------------------------------------------------------------- */

/* The nodes on which a slot's lines may say something: one bit each. */
static int used_nodes(struct op *op, unsigned slot, uint64_t *nodes)
{
    const unsigned count = op->pool->nodes;
    batch_read(&op->batch, NODE0, slot_delta(slot) + offsetof(struct client_slot, journals),
               op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    *nodes = op->pool_word[0] & (count == 64 ? UINT64_MAX : (1ull << count) - 1);
    return rc;
}

struct pending {
    struct walk walk;
    unsigned lines;
};

static void count_pending(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    (void)slot, (void)at;
    ((struct pending *)w)->lines += line->intent.stamp != 0;
}

int journal_pending(struct op *op, unsigned slot, unsigned *lines)
{
    struct pending p = {.walk = {.op = op, .visit = count_pending}};
    uint64_t nodes = 0;
    int rc = used_nodes(op, slot, &nodes);
    for (unsigned node = 0; node < op->pool->nodes && rc == FAR_OK; node++)
        if (nodes >> node & 1)
            rc = walk_one(&p.walk, node, slot);
    *lines = p.lines;
    return rc;
}

struct marking {
    struct walk walk;
    struct marker *marker;
};

static void mark_line(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    struct marker *marker = ((struct marking *)w)->marker;
    (void)line;
    if (marker && at != first_line(w->op->pool, gaddr_node(at), slot))
        marker->mark(marker, at, JOURNAL_CLASS);
}

int journal_mark(struct op *op, struct marker *marker, unsigned *damaged, unsigned *slot)
{
    struct marking m = {.walk = {.op = op, .visit = mark_line}, .marker = marker};
    struct walk *w = &m.walk;
    struct pool *pool = op->pool;
    uint64_t *nodes = malloc(pool->clients * sizeof *nodes);
    struct client_slot *slots = NULL;
    int rc =
        nodes ? client_registry(op, &slots) : err_fail(FAR_NO_MEMORY, "no memory for journals");

    for (unsigned i = 0; i < pool->clients && rc == FAR_OK; i++)
        nodes[i] = slots[i].journals;
    for (unsigned i = 0; i < pool->clients * pool->nodes && rc == FAR_OK; i++) {
        unsigned of = i / pool->nodes, node = i % pool->nodes;
        if (nodes[of] >> node & 1)
            w->cursor[w->count++] = (struct cursor){of, first_line(pool, node, of), 0};
        if (w->count == WALK_MANY)
            rc = walk(w);
    }
    if (rc == FAR_OK)
        rc = walk(w);
    free(nodes);
    if (damaged)
        *damaged = w->damaged;
    if (slot)
        *slot = w->last;
    return rc;
}

static void visit_not(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    (void)w, (void)slot, (void)at, (void)line;
}

/* Cuts the chain of a free slot behind its first line. Meanwhile the slot is claimed, as if its
 * client were being recovered (LEASE-L2). */
static int cut_chain(struct op *op, unsigned node, unsigned slot)
{
    uint64_t mine = CLIENT_FENCED | CLIENT_REPAIRED | client_owner_word(op->client);
    uint64_t *word = op->pool_word;
    gaddr first = first_line(op->pool, node, slot);
    batch_cas(&op->batch, NODE0, slot_delta(slot), 0, mine, &word[0]);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_UNREACHABLE || (rc == FAR_OK && word[0] != 0))
        return rc; /* it is in use by now */
    if (rc == FAR_OK) {
        batch_read(&op->batch, first, offsetof(struct journal_line, next), &word[0], 8);
        rc = batch_flush(&op->batch);
    }
    if (rc == FAR_OK) {
        batch_cas(&op->batch, first, offsetof(struct journal_line, next), word[0], 0, &word[1]);
        rc = batch_flush(&op->batch);
    }
    if (rc == FAR_OK) {
        batch_cas(&op->batch, NODE0, slot_delta(slot), mine, 0, &word[0]);
        rc = batch_flush(&op->batch);
    }
    if (rc != FAR_OK)
        client_renounce(op); /* others recover the claim, also if its CAS lands late */
    return rc;
}

int journal_repair(struct op *op)
{
    int rc = FAR_OK;
    for (unsigned slot = 0; slot < op->pool->clients && rc == FAR_OK; slot++) {
        uint64_t nodes = 0;
        rc = used_nodes(op, slot, &nodes);
        for (unsigned node = 0; node < op->pool->nodes && rc == FAR_OK; node++) {
            struct walk w = {.op = op, .visit = visit_not};
            if (nodes >> node & 1)
                rc = walk_one(&w, node, slot);
            if (rc == FAR_OK && w.damaged > 0)
                rc = cut_chain(op, node, slot);
        }
    }
    return rc;
}

/* ---- a client's own lines -------------------------------------------------------------------- */

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

static struct line *find_line(struct lines *l, gaddr at)
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
    if (find_line(l, at))
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
    struct line *known = find_line(l, at);
    if (known && known->walk == loading->number)
        break_off(w, &w->cursor[0], at); /* the chain is a circle */
    else if (known)
        known->walk = loading->number;
}

/* Reads which lines the slot has on a node: its previous owners made them. */
static int load(struct op *op, unsigned node)
{
    struct client *c = op->client;
    struct lines *l = &c->lines;
    struct loading loading = {
        .walk = {.op = op, .visit = load_line}, .number = ++l->walks, .rc = FAR_OK};
    const uint64_t bit = 1ull << node;
    int rc = walk_one(&loading.walk, node, c->slot);
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
    batch_cas(&op->batch, NODE0, delta, nodes, noted, op->pool_word);
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
    batch_cas(&op->batch, at, offsetof(struct journal_line, next), bad_next, 0, op->pool_word);
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
    batch_write(&op->batch, at, 0, image, sizeof *image);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK) {
        batch_cas(&op->batch, first_line(op->pool, node, c->slot),
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

#define TAKE_TURNS 64

int journal_take(struct op *op, unsigned node, struct journal *j)
{
    struct lines *l = &op->client->lines;

    ASSERT(op->batch.count == 0 && node < op->pool->nodes);
    *j = (struct journal){.registration = l->registration};
    if (!op_buffer(op, BUF_JOURNAL, sizeof(struct journal_image)))
        return FAR_NO_MEMORY;
    for (unsigned turn = 0; l->free[node] == 0 || !(l->nodes >> node & 1); turn++) {
        int rc = FAR_CONTENTION; /* each time, siblings took the line that was made */
        if (turn < TAKE_TURNS && !(l->nodes >> node & 1))
            rc = note_node(op, node);
        else if (turn < TAKE_TURNS)
            rc = l->loaded >> node & 1 ? make_line(op, node) : load(op, node);
        if (rc != FAR_OK)
            return rc;
    }
    unsigned i = l->free[node] - 1;
    l->free[node] = l->line[i].next;
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
    if (left && j->stamp != 0)
        set_left(op->client, j->place - 1);
    else
        set_free(l, j->place - 1);
    j->place = 0;
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
    batch_write(&op->batch, j->at, offsetof(struct journal_line, intent), intent,
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
    batch_write(&op->batch, j->at, offsetof(struct journal_line, redo), redo,
                (uint32_t)(offsetof(struct journal_redo, data) + len));
}

void journal_done(struct op *op, struct journal *j)
{
    struct journal_image *image = image_of(op, j);
    if (!image)
        return;
    ASSERT(j->stamp != 0);
    image->line.done = j->stamp;
    batch_write(&op->batch, j->at, offsetof(struct journal_line, done), &image->line.done, 8);
}

static void write_blank(struct op *op, gaddr at, uint64_t blank[2])
{
    blank[0] = blank[1] = 0; /* sum and stamp */
    batch_write(&op->batch, at, offsetof(struct journal_line, intent), blank, 16);
}

void journal_end(struct op *op, struct journal *j)
{
    struct journal_image *image = image_of(op, j);
    if (image)
        write_blank(op, j->at, image->blank);
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
        write_blank(op, l->line[place[i] - 1].at, image->blank);
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
    batch_write(&op->batch, entry->at, offsetof(struct journal_line, done), &image->entry_done, 8);
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
    write_blank(op, seen->at, image->blank);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        seen->line.intent.stamp = 0;
    return rc;
}

/* A line that a circle leads to again was read before it was recovered. */
static void keep_once(struct walk *w, unsigned slot, gaddr at, const struct journal_line *line)
{
    if (find_seen(&((struct keeping *)w)->seen, at))
        break_off(w, &w->cursor[0], at);
    else
        keep_line(w, slot, at, line);
}

static int recover_node(struct op *op, unsigned node, unsigned slot)
{
    struct keeping k = {.walk = {.op = op, .visit = keep_once, .whole = true}, .rc = FAR_OK};
    struct journal_seen *outer = op->journal_seen;
    int rc = walk_one(&k.walk, node, slot);
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
    int rc = used_nodes(op, slot, &nodes);
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

/* Gives back a line that was to be recovered. */
static void give_left(struct client *c, gaddr at, bool recovered)
{
    struct line *line = find_line(&c->lines, at);
    ASSERT(line && line->state == LINE_TAKEN);
    if (recovered) {
        c->attention.undone--;
        line->spent = false;
        set_free(&c->lines, (unsigned)(line - c->lines.line));
    } else {
        line->state = LINE_LEFT;
    }
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
            give_left(c, seen.line[i].at, one == FAR_OK);
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
    int rc = used_nodes(op, c->slot, &nodes);
    if (rc != FAR_OK)
        return rc;
    l->nodes |= nodes;
    for (unsigned node = 0; node < op->pool->nodes; node++) {
        bool unread = (nodes & ~l->loaded) >> node & 1;
        int one = unread ? load(op, node) : FAR_OK;
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
    const struct line *mine = slot == c->slot ? find_line(&c->lines, at) : NULL;
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
    for (unsigned slot = 0; slot < pool->clients && rc == FAR_OK; slot++) {
        if (journals[slot] >> node & 1 && !knows_lines(op, node, slot))
            w->cursor[w->count++] = (struct cursor){slot, first_line(pool, node, slot), 0};
        if (w->count == WALK_MANY)
            rc = walk(w);
    }
    if (rc == FAR_OK)
        rc = walk(w);
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
