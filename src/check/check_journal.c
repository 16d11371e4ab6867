/*
 * Locks with journals, such as several indexes have. Runs of any index use them, so that clients
 * die with many journal lines in use, the clients that recover them die too, and lines are used
 * again.
 *
 *   cell   lock word | counter | counter      CHECK_CELLS on every node, in an object of the pool
 *
 * A client has several operations under way at once, each at another cell. An operation journals
 * which lock it takes, takes it, and reads both counters. Then it journals what the counters will
 * be, adds one to each by a separate WRITE, journals that this is done, and frees the lock.
 * Whenever a lock is free, its counters are equal. If a recovery misses a line, believes a torn or
 * an old one, or is made by two clients at once, then a lock stays held, counters differ, or a
 * critical section is not counted.
 */
#include "check/check_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS    3u
#define NO_PLACE    0xffffu /* of a subject that is no table */
#define LOCK_OWN    56      /* from this bit on: the number of the owner's journal line */
#define FIRST_DELTA 8ull
#define OTHER_DELTA 16ull

struct attempt {
    struct op op;
    struct journal journal;
    gaddr cell;
    uint64_t lock;
    bool held;
};

struct intent { /* the intent */
    gaddr cell;
    uint64_t lock;
};

static bool has_cells(struct check *c)
{
    return c->plan.locks && c->set->profile != SIM_IB_LOOSE && !c->program;
}

static gaddr cell_at(const struct check *c, unsigned i)
{
    /* A cell is a line of 64 bytes. */
    return c->journal.cells[i % c->plan.nodes] + i / c->plan.nodes;
}

/* ---- recovery -------------------------------------------------------------------------------- */

static int recover(void *arg, struct op *op, const struct journal_entry *entry)
{
    struct check *c = check_of(op->pool);
    struct intent intent;
    uint64_t *word = &op->pool_word[64]; /* those below belong to the operation that recovers */
    if (entry->subject.place != NO_PLACE)
        return c->journal.recover(arg, op, entry);
    memcpy(&intent, entry->data, sizeof intent);
    batch_read_head(&op->batch, intent.cell, 0, word, 8);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK || word[0] != intent.lock)
        return rc; /* it did not take the lock, or has freed it */
    if (!op_in_flight(op) &&
        intent.lock >> LOCK_OWN == 1) /* as a recovery that must know what others hold */
        rc = client_barrier(op, 4);
    if (rc != FAR_OK && rc != FAR_TIMEOUT)
        return rc;
    c->result.coverage.recovered++;
    if (entry->redo && !entry->done) {
        c->result.coverage.redone++;
        memcpy(&word[2], entry->redo, 16);
        batch_write(&op->batch, MARK_PLACE, intent.cell, FIRST_DELTA, &word[2], 8);
        batch_write(&op->batch, MARK_PLACE, intent.cell, OTHER_DELTA, &word[3], 8);
    }
    batch_cas(&op->batch, MARK_LOCK, intent.cell, 0, intent.lock, 0, &word[1]);
    return batch_flush(&op->batch);
}

static int mark(void *arg, struct op *op, struct marker *marker)
{
    struct check *c = check_of(op->pool);
    for (unsigned node = 0; node < c->plan.nodes; node++)
        marker->mark(marker, c->journal.cells[node], size_class_for(64ull * CHECK_CELLS));
    return c->journal.mark(arg, op, marker);
}

int check_journal_set_up(struct check *c)
{
    struct op *op = &c->session->op;
    memset(&c->journal, 0, sizeof c->journal);
    for (unsigned node = 0; has_cells(c) && node < c->plan.nodes; node++) {
        gaddr at = 0;
        int rc = pool_alloc(op, node, size_class_for(64ull * CHECK_CELLS), &at);
        if (rc != FAR_OK)
            return rc;
        sim_fill(c->sim, gaddr_node(at), gaddr_offset(at), 64ull * CHECK_CELLS, 0);
        c->journal.cells[node] = at;
    }
    if (!has_cells(c))
        return FAR_OK;
    c->journal.mark = c->pool->pool.mark;
    c->journal.recover = c->pool->pool.recover;
    c->pool->pool.mark = mark;
    c->pool->pool.recover = recover;
    return FAR_OK;
}

/* ---- at work --------------------------------------------------------------------------------- */

static int take(struct attempt *t)
{
    struct op *op = &t->op;
    int rc = op_begin(op, NULL);
    if (rc == FAR_OK)
        rc = journal_take(op, gaddr_node(t->cell), &t->journal);
    if (rc != FAR_OK)
        return rc;
    t->lock = client_owner_word(op->client) | (uint64_t)t->journal.place << LOCK_OWN;
    struct intent intent = {t->cell, t->lock};
    journal_intend(op, &t->journal, &(struct journal_subject){.place = NO_PLACE}, &intent,
                   sizeof intent);
    batch_cas(&op->batch, MARK_LOCK, t->cell, 0, 0, t->lock, &op->word[0]);
    batch_read_head(&op->batch, t->cell, FIRST_DELTA, &op->word[1], 16);
    rc = batch_flush(&op->batch);
    t->held = rc == FAR_OK && op->word[0] == 0;
    return rc;
}

static int change(struct check *c, struct check_client *me, struct attempt *t)
{
    struct op *op = &t->op;
    struct batch *b = &op->batch;
    if (t->held) {
        check_counters(c, me, op->word[1], op->word[2]);
        op->word[1]++;
        op->word[2]++;
        journal_redo(op, &t->journal, &op->word[1], 16);
        batch_write(b, MARK_PLACE, t->cell, FIRST_DELTA, &op->word[1], 8);
        c->journal.unsure++;
        int rc = t->cell % 2 ? batch_flush(b) : FAR_OK; /* some take two round trips */
        if (rc != FAR_OK)
            return rc;
        batch_write(b, MARK_PLACE, t->cell, OTHER_DELTA, &op->word[2], 8);
        journal_done(op, &t->journal);
        batch_cas(b, MARK_LOCK, t->cell, 0, t->lock, 0, &op->word[0]);
        batch_fence(b);
    }
    journal_end(op, &t->journal);
    int rc = batch_flush(b);
    if (rc == FAR_OK && t->held) {
        c->journal.unsure--;
        c->journal.sections++;
        check_freed(c, me, op->word[0] == t->lock, op->word[0]);
    }
    journal_give(op, &t->journal, rc == FAR_OK);
    return rc;
}

/* Leaves what a failed operation holds to recovery: by this client, or by others if it
 * renounces. */
static void give_up(struct attempt *t, unsigned i)
{
    if (i % 2 == 1 && t->op.client->slot != NO_SLOT)
        client_renounce(&t->op);
    journal_give(&t->op, &t->journal, false);
}

static int attempt_all(struct check *c, struct check_client *me, struct attempt *attempts)
{
    unsigned first = tape_choose(c->tape, CHECK_CELLS * c->plan.nodes, TAPE_WORK), count = 0;
    int rc = FAR_OK;
    for (; count < ATTEMPTS && rc == FAR_OK && !sim_unwinding(c->sim); count++) {
        struct attempt *t = &attempts[count];
        t->cell = cell_at(c, (first + count) % (CHECK_CELLS * c->plan.nodes));
        rc = op_init(&t->op, &me->session->client);
        if (rc != FAR_OK)
            break;
        rc = take(t);
    }
    for (unsigned i = 0; i < count; i++) {
        struct attempt *t = &attempts[i];
        bool failed = rc != FAR_OK && i == count - 1; /* the last one */
        int one = failed || sim_unwinding(c->sim) ? FAR_UNREACHABLE : change(c, me, t);
        if (one != FAR_OK)
            give_up(t, i);
        rc = rc == FAR_OK ? one : rc;
        op_end(&t->op);
    }
    for (unsigned i = 0; i < count; i++)
        op_free(&attempts[i].op);
    return rc;
}

int check_journal_try(struct check *c, struct check_client *me)
{
    struct attempt *attempts = has_cells(c) ? calloc(ATTEMPTS, sizeof *attempts) : NULL;
    if (!attempts)
        return FAR_OK;
    sim_note(c->sim, "takes %u locks with journals", ATTEMPTS);
    int rc = attempt_all(c, me, attempts);
    free(attempts);
    return rc == FAR_POOL_FULL || rc == FAR_CONTENTION ? FAR_OK : rc;
}

/* ---- at the end ------------------------------------------------------------------------------ */

/* May the lock still be held? Yes, by a client that is alive and has not yet recovered what its
 * failed operations left. */
static bool may_be_held(const struct check *c, uint64_t lock)
{
    for (unsigned i = 0; i < c->clients; i++) {
        const far_session *s = c->client[i].session;
        if (s && !sim_crashed(c->sim, i) && s->client.slot == owner_slot(lock) &&
            client_has_undone(&s->client))
            return true;
    }
    return false;
}

void check_journal_audit(struct check *c)
{
    const struct journal_account *j = &c->journal;
    uint64_t sum = 0;
    bool all_free = true;
    if (!has_cells(c))
        return;
    for (unsigned i = 0; i < CHECK_CELLS * c->plan.nodes; i++) {
        gaddr at = cell_at(c, i);
        uint64_t word[3];
        for (unsigned k = 0; k < 3; k++)
            word[k] = sim_word(c->sim, gaddr_node(at), gaddr_offset(at) + 8ull * k);
        if (word[0] != 0 && !may_be_held(c, word[0]))
            check_fail(c, CHECK_BAD_VALUE,
                       "the lock of cell %u is still held (%" PRIx64 ") after recovery", i,
                       word[0]);
        if (word[0] == 0 && word[1] != word[2])
            check_fail(c, CHECK_BAD_VALUE,
                       "cell %u is free, but its counters are %" PRIu64 " and %" PRIu64
                       ", not equal",
                       i, word[1], word[2]);
        all_free = all_free && word[0] == 0;
        sum += word[1];
    }
    if (all_free && !check_is_counted(sum, j->sections, j->unsure))
        check_fail(c, CHECK_BAD_VALUE,
                   "the cells count %" PRIu64 " critical sections, but %" PRIu64
                   " were completed (and perhaps %" PRIu64 " more)",
                   sum, j->sections, j->unsure);
}
