/*
 * What processes see of each other's verbs: order and atomics hold between them as they do between
 * threads. Every process opens the pool for itself, and has it at an address of its own.
 */
#include "support/shm_scratch.h"
#include "pool/pool_internal.h"

#include <sched.h>

#define CROWD  3
#define ROUNDS (60000 / RIG_SLOW)
#define LOOKS  (1ull << 32) /* at what another process is about to do */

/* Places in unallocated memory, on the first and the last node. */
#define DATA gaddr_make(0, 2 << 20)
#define FLAG gaddr_make(0, 3 << 20)
#define WORD gaddr_make(2, 4 << 20)

/* Besides the pool: what the processes have seen, for the parent to judge. */
struct record {
    char uri[256];
    unsigned begun[2]; /* rounds, for a rendezvous */
    uint64_t seen[CROWD][ROUNDS];
};

struct member {
    struct record *record;
    unsigned self;
    void (*fn)(struct rig *r, struct record *record, unsigned self);
};

/* A processor of its own for each, as far as there are: what one sees of another is of interest
 * only while both are running. */
static void own_processor(unsigned self)
{
    cpu_set_t allowed, own;
    int cpu = -1;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (unsigned i = 0; i <= self % (unsigned)CPU_COUNT(&allowed); i++) {
        do
            cpu++;
        while (!CPU_ISSET(cpu, &allowed));
    }
    CPU_ZERO(&own);
    CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof own, &own);
}

static void member_run(void *arg)
{
    struct member *m = arg;
    struct fab *fab;
    struct rig *r;

    own_processor(m->self);
    ASSERT(fab_open(m->record->uri, &fab) == FAR_OK);
    ASSERT(!fab->fresh);
    fab->ops->formatted(fab);
    r = rig_on(fab);
    m->fn(r, m->record, m->self);
    rig_free(r);
    fab_close(fab);
}

/* Runs fn in that many processes on one new pool, and returns what they recorded. */
static struct record *together(unsigned processes,
                               void (*fn)(struct rig *r, struct record *record, unsigned self))
{
    struct record *record = scratch_shared(sizeof *record);
    const char *name = scratch_name(false);
    struct member member[CROWD];
    pid_t child[CROWD];
    struct pool pool;
    struct fab *fab;

    assert_int_equal(fab_open(scratch_uri(name, "?size=8m&nodes=3"), &fab), FAR_OK);
    assert_int_equal(pool_open(fab, NULL, &pool), FAR_OK);
    strcpy(record->uri, scratch_uri(name, ""));
    for (unsigned i = 0; i < processes; i++) {
        member[i] = (struct member){record, i, fn};
        child[i] = child_start(member_run, &member[i]);
    }
    for (unsigned i = 0; i < processes; i++)
        assert_int_equal(child_end(child[i]), 0);
    fab_close(fab);
    return record;
}

/* ---- order ----------------------------------------------------------------------------------- */

static void rendezvous(struct record *record, unsigned self, unsigned round)
{
    __atomic_store_n(&record->begun[self], round, __ATOMIC_RELEASE);
    for (uint64_t looks = 1; __atomic_load_n(&record->begun[!self], __ATOMIC_ACQUIRE) < round;
         looks++) {
        ASSERT(looks < LOOKS);
        if (looks % 1024 == 0)
            sched_yield();
    }
}

/* One writes data and then a flag, by either kind of verb; the other reads flag and data. */
static void pass_messages(struct rig *r, struct record *record, unsigned self)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t delta = i * 16, *flag = &r->buf[0], *data = &r->buf[8];

        rendezvous(record, self, i + 1);
        if (self == 0) {
            *flag = *data = 1;
            batch_write(&r->b, MARK_EARLY, DATA, delta, data, 8);
            if (i % 2)
                batch_write(&r->b, MARK_EARLY, FLAG, delta, flag, 8);
            else
                batch_cas(&r->b, MARK_PUBLISH, FLAG, delta, 0, 1, flag);
            rig_flush(r);
        } else {
            batch_read(&r->b, FLAG, delta, flag, 8);
            batch_read(&r->b, DATA, delta, data, 8);
            rig_flush(r);
            record->seen[0][i] = *flag;
            record->seen[1][i] = *data;
        }
    }
}

static void a_message_is_not_seen_before_its_data(void **state)
{
    struct record *record = together(2, pass_messages);
    unsigned violations = 0;

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        violations += record->seen[0][i] == 1 && record->seen[1][i] == 0;
    assert_int_equal(violations, 0);
    munmap(record, sizeof *record);
}

/* Each sets its own word and then reads the other's: one of the two comes second, and sees it. */
static void set_own_read_other(struct rig *r, struct record *record, unsigned self)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        gaddr own = self ? FLAG : DATA, other = self ? DATA : FLAG;
        uint64_t delta = i * 16;

        r->buf[0] = 1;
        rendezvous(record, self, i + 1);
        if (i % 2)
            batch_write(&r->b, MARK_EARLY, own, delta, &r->buf[0], 8);
        else
            batch_cas(&r->b, MARK_PUBLISH, own, delta, 0, 1, &r->buf[0]);
        if (i % 4 < 2)
            rig_flush(r); /* in two requests, else in one */
        batch_read(&r->b, other, delta, &r->buf[1], 8);
        rig_flush(r);
        record->seen[self][i] = r->buf[1];
    }
}

static void of_two_processes_that_write_and_read_one_is_second(void **state)
{
    struct record *record = together(2, set_own_read_other);
    unsigned violations = 0;

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++)
        violations += record->seen[0][i] == 0 && record->seen[1][i] == 0;
    assert_int_equal(violations, 0);
    munmap(record, sizeof *record);
}

/* ---- atomics --------------------------------------------------------------------------------- */

static void draw_tickets(struct rig *r, struct record *record, unsigned self)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        batch_faa(&r->b, MARK_PUBLISH, WORD, 0, 1, &r->buf[0]);
        rig_flush(r);
        record->seen[self][i] = r->buf[0];
    }
}

static void tickets_of_all_processes_are_unique(void **state)
{
    struct record *record = together(CROWD, draw_tickets);
    uint8_t *drawn = calloc(CROWD, ROUNDS);

    (void)state;
    assert_non_null(drawn);
    for (unsigned self = 0; self < CROWD; self++) {
        for (unsigned i = 0; i < ROUNDS; i++) {
            assert_in_range(record->seen[self][i], 0, CROWD * ROUNDS - 1);
            assert_int_equal(drawn[record->seen[self][i]]++, 0);
        }
    }
    free(drawn);
    munmap(record, sizeof *record);
}

/* Each counts in 16 bits of its own by masked CAS, which therefore never fails, and all count in
 * another word by CAS, which must be tried until it succeeds. */
static void count_by_cas(struct rig *r, struct record *record, unsigned self)
{
    unsigned shift = 16 * self;
    uint64_t mask = 0xffffull << shift, expected = 0;

    for (uint64_t i = 0; i < ROUNDS; i++) {
        batch_mcas(&r->b, MARK_PUBLISH, WORD, 64, (i & 0xffff) << shift, mask,
                   ((i + 1) & 0xffff) << shift, mask, &r->buf[0]);
        rig_flush(r);
        ASSERT((r->buf[0] & mask) >> shift == (i & 0xffff));
        for (uint64_t tries = 0;; tries++) {
            ASSERT(tries < LOOKS);
            batch_cas(&r->b, MARK_PUBLISH, WORD, 128, expected, expected + 1, &r->buf[0]);
            rig_flush(r);
            if (r->buf[0] == expected)
                break;
            expected = r->buf[0];
        }
        record->seen[self][i] = expected++;
    }
}

static void counters_of_all_processes_are_exact(void **state)
{
    struct record *record = together(CROWD, count_by_cas);
    uint64_t highest = 0, sum = 0, total = CROWD * ROUNDS;

    (void)state;
    for (unsigned self = 0; self < CROWD; self++) {
        for (unsigned i = 0; i < ROUNDS; i++) {
            sum += record->seen[self][i];
            if (record->seen[self][i] > highest)
                highest = record->seen[self][i];
        }
    }
    assert_true(highest == total - 1);
    assert_true(sum == total * (total - 1) / 2);
    munmap(record, sizeof *record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(a_message_is_not_seen_before_its_data),
        SCRATCH_CASE(of_two_processes_that_write_and_read_one_is_second),
        SCRATCH_CASE(tickets_of_all_processes_are_unique),
        SCRATCH_CASE(counters_of_all_processes_are_exact),
    };

    return scratch_run(tests);
}
