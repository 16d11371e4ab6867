/*
 * A lock made of masked CAS, as several indexes have one, for runs of any index: so that the batches'
 * emulation of masked CAS meets rivals, fences and faults.
 *
 *   lock word     tickets 32 | 0 16 | holder 8 | 0 7 | held 1
 *   two counters  equal whenever the lock is free; each critical section adds one to both
 *
 * Every try takes a ticket, by FAA, and so changes the word in bits that no masked CAS looks at. A
 * lock is taken and its counters are read in one batch, and they are written and it is freed in one
 * batch: what orders the verbs of these is the fences. A client that fails in between leaves the
 * lock held, and nobody else gets it.
 *
 * The three words are words of node 0 that the pool has reserved and does not use.
 */
#include "sim/check_internal.h"

#include <inttypes.h>
#include <string.h>

#define LOCK_OFF (CONTROL_OFF + offsetof(struct pool_control, reserved))
#define HELD     1ull
#define HOLDER   0xff00ull
#define TICKET   ((uint64_t)1 << 32)
_Static_assert(sizeof((struct pool_control *)0)->reserved == 24, "three words are reserved");

static int take(struct check *c, struct check_client *me, bool *taken)
{
    struct op *op = &me->session->op;
    uint64_t mine = HELD | (me->id + 1ull) << 8;
    batch_faa(&op->batch, NODE0, LOCK_OFF, TICKET, &op->word[0]);
    batch_fence(&op->batch);
    unsigned lock =
        batch_mcas(&op->batch, NODE0, LOCK_OFF, 0, HELD, mine, HELD | HOLDER, &op->word[1]);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, LOCK_OFF + 8, &op->word[2], 16);
    c->lock.tickets_unsure++;
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    c->lock.tickets_unsure--;
    c->lock.tickets++;
    *taken = batch_swapped(&op->batch, lock);
    if (*taken != ((op->word[1] & HELD) == 0))
        check_fail(c, CHECK_BAD_VALUE, "client %u is told that it %s a lock that said %" PRIx64,
                   me->id, *taken ? "took" : "missed", op->word[1]);
    return FAR_OK;
}

static int leave(struct check *c, struct check_client *me)
{
    struct op *op = &me->session->op;
    uint64_t mine = HELD | (me->id + 1ull) << 8;
    op->word[2]++;
    op->word[3]++;
    batch_write(&op->batch, NODE0, LOCK_OFF + 8, &op->word[2], 16);
    batch_fence(&op->batch);
    unsigned unlock = batch_mcas(&op->batch, NODE0, LOCK_OFF, mine, HELD | HOLDER, 0, HELD | HOLDER,
                                 &op->word[0]);
    c->lock.sections_unsure++;
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    c->lock.sections_unsure--;
    c->lock.sections++;
    if (!batch_swapped(&op->batch, unlock))
        check_fail(c, CHECK_BAD_VALUE, "client %u frees a lock that says %" PRIx64, me->id,
                   op->word[0]);
    return FAR_OK;
}

int check_lock_try(struct check *c, struct check_client *me)
{
    struct op *op = &me->session->op;
    bool taken = false;
    sim_note(c->sim, "tries the lock");
    int rc = take(c, me, &taken);
    if (sim_unwinding(c->sim) || rc != FAR_OK || !taken)
        return rc;
    if (op->word[2] != op->word[3])
        check_fail(c, CHECK_BAD_VALUE,
                   "client %u got a lock that was not free: %" PRIu64 " is not %" PRIu64, me->id,
                   op->word[2], op->word[3]);
    c->result.coverage.locks++;
    return leave(c, me);
}

static uint64_t word_at(const struct check *c, unsigned i)
{
    uint64_t word = 0;
    memcpy(&word, (const char *)sim_memory(c->sim, 0) + LOCK_OFF + 8ull * i, 8);
    return word;
}

/* Counted were those that are sure, and at most all. */
static bool is_within(uint64_t counted, uint64_t sure, uint64_t unsure)
{
    return counted >= sure && counted <= sure + unsure;
}

void check_lock_audit(struct check *c)
{
    const struct lock_account *l = &c->lock;
    uint64_t lock = word_at(c, 0), first = word_at(c, 1), second = word_at(c, 2);
    if (!is_within(lock / TICKET, l->tickets, l->tickets_unsure))
        check_fail(c, CHECK_BAD_VALUE, "%" PRIu64 " tickets were taken, not %" PRIu64,
                   lock / TICKET, l->tickets);
    if (!(lock & HELD) && (first != second || !is_within(first, l->sections, l->sections_unsure)))
        check_fail(c, CHECK_BAD_VALUE,
                   "%" PRIu64 " critical sections were counted %" PRIu64 " and %" PRIu64 " times",
                   l->sections, first, second);
}
