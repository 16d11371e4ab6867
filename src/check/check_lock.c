/*
 * A lock made of masked CAS, such as several indexes have. Runs of any index use it, so that the
 * batches' emulation of masked CAS meets contention, fences and faults.
 *
 *   lock word     tickets 32 | 0 16 | holder 8 | 0 7 | held 1
 *   two counters  equal whenever the lock is free; each critical section adds one to both
 *
 * Every attempt takes a ticket by FAA, and so changes bits of the word that no masked CAS compares.
 * One batch takes the lock and reads the counters; another writes them and frees the lock. Fences
 * order the verbs of both. A client that fails in between leaves the lock held for ever.
 *
 * The three words are in node 0, where the pool has reserved them and does not use them.
 */
#include "check/check_internal.h"

#include <inttypes.h>
#include <string.h>

#define LOCK_OFF (CONTROL_OFF + offsetof(struct pool_control, reserved))
#define HELD     1ull
#define HOLDER   0xff00ull
#define TICKET   ((uint64_t)1 << 32)
_Static_assert(sizeof((struct pool_control *)0)->reserved == 24, "three words are reserved");

bool check_is_counted(uint64_t counted, uint64_t sure, uint64_t unsure)
{
    return counted >= sure && counted <= sure + unsure;
}

void check_counters(struct check *c, const struct check_client *me, uint64_t first, uint64_t second)
{
    if (first != second)
        check_fail(c, CHECK_BAD_VALUE,
                   "client %u took a lock within a critical section of another: the counters are "
                   "%" PRIu64 " and %" PRIu64 ", not equal",
                   me->id, first, second);
}

void check_freed(struct check *c, const struct check_client *me, bool freed, uint64_t lock)
{
    if (!freed)
        check_fail(c, CHECK_BAD_VALUE,
                   "client %u could not free its lock: another changed the word to %" PRIx64,
                   me->id, lock);
}

static int take(struct check *c, struct check_client *me, bool *taken)
{
    struct op *op = &me->session->op;
    uint64_t mine = HELD | (me->id + 1ull) << 8;
    batch_faa(&op->batch, MARK_SUM, NODE0, LOCK_OFF, TICKET, &op->word[0]);
    batch_fence(&op->batch);
    unsigned lock = batch_mcas(&op->batch, MARK_LOCK, NODE0, LOCK_OFF, 0, HELD, mine, HELD | HOLDER,
                               &op->word[1]);
    batch_fence(&op->batch);
    batch_read_head(&op->batch, NODE0, LOCK_OFF + 8, &op->word[2], 16);
    c->lock.tickets_unsure++;
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    c->lock.tickets_unsure--;
    c->lock.tickets++;
    *taken = batch_swapped(&op->batch, lock);
    if (*taken != ((op->word[1] & HELD) == 0))
        check_fail(c, CHECK_BAD_VALUE,
                   "client %u: a masked CAS reports that it %s, but the lock word was %" PRIx64,
                   me->id, *taken ? "swapped" : "did not swap", op->word[1]);
    return FAR_OK;
}

static int leave(struct check *c, struct check_client *me)
{
    struct op *op = &me->session->op;
    uint64_t mine = HELD | (me->id + 1ull) << 8;
    op->word[2]++;
    op->word[3]++;
    batch_write(&op->batch, MARK_PLACE, NODE0, LOCK_OFF + 8, &op->word[2], 16);
    batch_fence(&op->batch);
    unsigned unlock = batch_mcas(&op->batch, MARK_LOCK, NODE0, LOCK_OFF, mine, HELD | HOLDER, 0,
                                 HELD | HOLDER, &op->word[0]);
    c->lock.sections_unsure++;
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    c->lock.sections_unsure--;
    c->lock.sections++;
    check_freed(c, me, batch_swapped(&op->batch, unlock), op->word[0]);
    return FAR_OK;
}

int check_lock_try(struct check *c, struct check_client *me)
{
    struct op *op = &me->session->op;
    ASSERT(op->batch.count == 0);
    bool taken = false;
    sim_note(c->sim, "tries the lock");
    int rc = take(c, me, &taken);
    if (sim_unwinding(c->sim) || rc != FAR_OK || !taken)
        return rc;
    check_counters(c, me, op->word[2], op->word[3]);
    c->result.coverage.locks++;
    return leave(c, me);
}

void check_lock_audit(struct check *c)
{
    const struct lock_account *l = &c->lock;
    uint64_t lock = sim_word(c->sim, 0, LOCK_OFF);
    uint64_t first = sim_word(c->sim, 0, LOCK_OFF + 8), second = sim_word(c->sim, 0, LOCK_OFF + 16);
    if (!check_is_counted(lock / TICKET, l->tickets, l->tickets_unsure))
        check_fail(c, CHECK_BAD_VALUE,
                   "the lock word counts %" PRIu64 " tickets, but clients took %" PRIu64
                   " (and perhaps %" PRIu64 " more)",
                   lock / TICKET, l->tickets, l->tickets_unsure);
    if (!(lock & HELD) &&
        (first != second || !check_is_counted(first, l->sections, l->sections_unsure)))
        check_fail(c, CHECK_BAD_VALUE,
                   "the counters say %" PRIu64 " and %" PRIu64 ", but %" PRIu64
                   " critical sections were completed (and perhaps %" PRIu64 " more)",
                   first, second, l->sections, l->sections_unsure);
}
