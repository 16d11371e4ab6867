/* Groups of operations on one key: see groups.h. */
#include "store/groups.h"

#include "store/store.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * A word, 0 if there is no group: the phase, what the leader does, the record's number, and the
 * record's generation, which never comes round.
 *
 *     63          20  19        4  3    2  1     0
 *     generation      record       kind    phase
 */
enum phase { PHASE_OPEN = 1, PHASE_CLOSED = 2 };
#define PHASE_MASK       3u
#define KIND_SHIFT       2
#define RECORD_SHIFT     4
#define RECORD_MASK      0xffffu
#define GENERATION_SHIFT 20

/* A record's state: how the group ended, and the generation above that. */
enum outcome {
    OUTCOME_NONE,    /* it has not ended */
    OUTCOME_DONE,    /* a put or update took effect */
    OUTCOME_MISSING, /* an update has found nothing */
    OUTCOME_OTHER    /* nothing follows for others */
};
#define OUTCOME_BITS 2
#define OUTCOME_MASK 3u

#define CHUNK_RECORDS 256u
#define CHUNKS        256u /* RECORD_MASK + 1 records; number 0 is not used */

/* How long an operation waits, in times that a leader usually takes; and how often it looks. */
#define PATIENCE      32u
#define LOOKS         8u
#define TURN_LOOKS    32u /* of one that waits for its turn: nobody else uses the time */
#define EXCEPTION     4u  /* a leader that takes longer than this many others counts as this many */
#define TYPICAL_NS    4000u
#define TYPICAL_LEAST 1000u
#define LOOK_NS_MOST  50000u
#define TRIES         8u /* to change the word, which others change at the same time */

struct groups {
    _Atomic uint64_t typical; /* nanoseconds that leaders take, on average */
    struct group_record *chunk[CHUNKS];
    pthread_mutex_t lock; /* of the free records, which only sessions that open or close take */
    uint32_t *free;
    unsigned free_count, made;
    uint64_t mask;
    _Atomic uint64_t word[];
};

static struct group_record *record_of(const struct groups *g, uint64_t word)
{
    uint64_t number = word >> RECORD_SHIFT & RECORD_MASK;
    return &g->chunk[number / CHUNK_RECORDS][number % CHUNK_RECORDS];
}

static enum group_kind kind_of(uint64_t word)
{
    return (enum group_kind)(word >> KIND_SHIFT & 3);
}

static bool same_group(uint64_t word, uint64_t other)
{
    return word >> RECORD_SHIFT == other >> RECORD_SHIFT;
}

static uint64_t closed(uint64_t word)
{
    return (word & ~(uint64_t)PHASE_MASK) | PHASE_CLOSED;
}

/* ---- room for groups ------------------------------------------------------------------------- */

struct groups *store_groups_open(unsigned processes, unsigned words)
{
    ASSERT(processes > 0 && words > 0 && (words & (words - 1)) == 0);
    struct groups *g = calloc(1, sizeof *g + (size_t)processes * words * sizeof *g->word);
    if (!g)
        return NULL;
    g->mask = words - 1;
    g->made = 1; /* number 0 is none */
    atomic_init(&g->typical, TYPICAL_NS);
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void store_groups_close(struct groups *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < CHUNKS; i++)
        free(g->chunk[i]);
    free(g->free);
    free(g);
}

/* Under the lock: takes a record, or makes some. 0: there are none. */
static uint32_t take_record(struct groups *g)
{
    if (g->free_count > 0)
        return g->free[--g->free_count];
    if (g->made > RECORD_MASK)
        return 0;
    struct group_record **chunk = &g->chunk[g->made / CHUNK_RECORDS];
    if (!*chunk) {
        size_t bytes = CHUNK_RECORDS * sizeof **chunk;
        struct group_record *made = aligned_alloc(_Alignof(struct group_record), bytes);
        if (!made)
            return 0;
        memset(made, 0, bytes);
        *chunk = made;
    }
    return g->made++;
}

void store_groups_join(struct groups *g, unsigned process, unsigned operations,
                       struct group_session *s)
{
    *s = (struct group_session){0};
    if (!g)
        return;
    s->record_room = operations;
    s->record = calloc(operations, sizeof *s->record);
    if (!s->record)
        return;
    pthread_mutex_lock(&g->lock);
    while (s->record_count < operations) {
        uint32_t number = take_record(g);
        if (number == 0)
            break;
        s->record[s->record_count++] = number;
    }
    pthread_mutex_unlock(&g->lock);
    s->groups = g;
    s->words = &g->word[process * (g->mask + 1)];
    s->mask = g->mask;
}

void store_groups_leave(struct group_session *s)
{
    struct groups *g = s->groups;
    if (g) {
        pthread_mutex_lock(&g->lock);
        uint32_t *more = realloc(g->free, (g->free_count + s->record_count) * sizeof *more);
        if (more || s->record_count == 0) { /* else they are lost until the pool is closed */
            g->free = more;
            for (unsigned i = 0; i < s->record_count; i++)
                g->free[g->free_count++] = s->record[(s->record_first + i) % s->record_room];
        }
        pthread_mutex_unlock(&g->lock);
    }
    free(s->record);
    *s = (struct group_session){0};
}

/* ---- records --------------------------------------------------------------------------------- */

/* Makes a group. No word has it yet. 0: the session has no record left. */
static uint64_t make_group(struct group_session *s, const struct far_op *request)
{
    if (s->record_count == 0)
        return 0;
    uint64_t number = s->record[s->record_first], words[GROUP_KEY_WORDS] = {0};
    struct group_record *r = record_of(s->groups, number << RECORD_SHIFT);
    s->record_first = (s->record_first + 1) % s->record_room;
    s->record_count--;
    uint64_t generation =
        (atomic_load_explicit(&r->state, memory_order_relaxed) >> OUTCOME_BITS) + 1;
    atomic_store_explicit(&r->state, generation << OUTCOME_BITS, memory_order_relaxed);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* GROUP-G6 */
    memcpy(words, request->key, request->key_len);
    atomic_store_explicit(&r->table, request->table->number, memory_order_relaxed);
    atomic_store_explicit(&r->key_len, request->key_len, memory_order_relaxed);
    for (unsigned i = 0; i < GROUP_KEY_WORDS; i++)
        atomic_store_explicit(&r->key[i], words[i], memory_order_relaxed);
    return generation << GENERATION_SHIFT | number << RECORD_SHIFT |
           (uint64_t)group_kind(request) << KIND_SHIFT | PHASE_OPEN;
}

static void give_record(struct group_session *s, uint64_t word)
{
    ASSERT(s->record_count < s->record_room);
    unsigned at = (s->record_first + s->record_count++) % s->record_room;
    s->record[at] = (uint32_t)(word >> RECORD_SHIFT & RECORD_MASK);
}

/* How the group has ended; OUTCOME_OTHER if its record is used again. */
static enum outcome outcome_of(const struct groups *g, uint64_t word)
{
    uint64_t state = atomic_load_explicit(&record_of(g, word)->state, memory_order_acquire);
    return state >> OUTCOME_BITS == word >> GENERATION_SHIFT ? (enum outcome)(state & OUTCOME_MASK)
                                                             : OUTCOME_OTHER;
}

/* Is it a group of this key? */
static bool is_of_key(const struct groups *g, uint64_t word, const struct far_op *request)
{
    const struct group_record *r = record_of(g, word);
    uint64_t words[GROUP_KEY_WORDS] = {0};
    memcpy(words, request->key, request->key_len);
    bool same = atomic_load_explicit(&r->table, memory_order_relaxed) == request->table->number &&
                atomic_load_explicit(&r->key_len, memory_order_relaxed) == request->key_len;
    for (unsigned i = 0; i < GROUP_KEY_WORDS; i++)
        same &= atomic_load_explicit(&r->key[i], memory_order_relaxed) == words[i];
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* GROUP-G6 */
    return same;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* How long it takes until the next look whether another operation has ended. */
static uint64_t look_ns(const struct groups *g, unsigned looks)
{
    uint64_t ns = atomic_load_explicit(&g->typical, memory_order_relaxed) / looks;
    return ns < LOOK_NS_MOST ? ns : LOOK_NS_MOST;
}

/* Waits for the end of a group, or until patience is lost: OUTCOME_NONE. */
static enum outcome await_end(const struct groups *g, struct op *op, uint64_t word, unsigned looks)
{
    uint64_t typical = atomic_load_explicit(&g->typical, memory_order_relaxed);
    uint64_t look = look_ns(g, looks);
    uint64_t most = op->pool->knobs.group_patience, began = batch_now(&op->batch);
    uint64_t patience = most > 0 ? op_random(op, most) : PATIENCE * typical;
    enum outcome outcome = outcome_of(g, word);
    for (unsigned i = 0; i < PATIENCE * looks && outcome == OUTCOME_NONE; i++) {
        if (batch_now(&op->batch) - began > patience)
            break;
        op_wait(op, look);
        outcome = outcome_of(g, word);
    }
    return outcome;
}

/* GROUP-G3. Is a follower done? */
static bool is_done(enum group_kind kind, enum outcome leader, int *rc)
{
    *rc = leader == OUTCOME_MISSING ? FAR_NOT_FOUND : FAR_OK;
    return leader == OUTCOME_DONE || (leader == OUTCOME_MISSING && kind == GROUP_UPDATE);
}

/* GROUP-G2, GROUP-G4. May it join that group? */
static bool may_join(enum group_kind kind, uint64_t word)
{
    enum group_kind leader = kind_of(word);
    return (word & PHASE_MASK) == PHASE_OPEN && kind != GROUP_OTHER && leader != GROUP_OTHER &&
           (leader == kind || leader == GROUP_UPDATE);
}

/* ---- rides ----------------------------------------------------------------------------------- */

/* GROUP-G7. An operation that waits for its turn, and takes others of its session with it. */
struct waiting {
    const struct far_op *request;
    struct rider *riders, **last;
    struct waiting *next;
};

static struct waiting *driver_of(const struct group_session *s, const struct far_op *request)
{
    struct waiting *w = s->waiting;
    while (w && (w->request->table != request->table || w->request->key_len != request->key_len ||
                 memcmp(w->request->key, request->key, request->key_len) != 0))
        w = w->next;
    return w;
}

/* The callback of a call that is not on the ring may need more stack than a fiber has. */
static bool may_ride(const struct op *op, const struct far_op *request)
{
    return op->batch.on_ring || request->kind != FAR_OP_MODIFY;
}

/* GROUP-G5. Waits for the end of the group before its own. Returns those that ride with it. */
static struct rider *await_turn(struct group_session *s, struct op *op, uint64_t theirs,
                                const struct far_op *request)
{
    struct waiting me = {.request = request, .last = &me.riders, .next = s->waiting}, **at;
    s->waiting = &me;
    (void)await_end(s->groups, op, theirs, TURN_LOOKS);
    for (at = &s->waiting; *at != &me; at = &(*at)->next)
        ;
    *at = me.next;
    return me.riders;
}

/* Rides with `driver`. False: it has to execute itself. */
static bool ride(struct group_session *s, struct op *op, struct waiting *driver,
                 const struct far_op *request, int *rc)
{
    struct rider me = {.request = request, .state = RIDER_WAITS};
    *driver->last = &me;
    driver->last = &me.next;
    while (me.state == RIDER_WAITS)
        op_wait(op, look_ns(s->groups, LOOKS));
    *rc = me.rc;
    s->rode += me.state == RIDER_DONE;
    return me.state == RIDER_DONE;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Puts a new group into a word that has `before`. False: it has another one, which is in *before
 * now. */
static bool publish(_Atomic uint64_t *word, uint64_t *before, uint64_t mine)
{
    return atomic_compare_exchange_strong_explicit(word, before, mine, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* Goes to far memory. GROUP-G2: the group is closed, and no later verb is posted before that, not
 * even by a processor that executes it. */
static void lead(struct group_session *s, struct op *op, uint64_t mine, struct grouped *grouped)
{
    uint64_t open = mine;
    if (mine != closed(mine))
        (void)publish(&s->words[grouped->at], &open, closed(mine)); /* else nobody can join it */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    grouped->word = closed(mine);
    grouped->closed_at = batch_now(&op->batch);
}

/* GROUP-G1: takes the place of the group that it has lost patience with. */
static void replace(struct group_session *s, struct op *op, const struct far_op *request,
                    uint64_t theirs, struct grouped *grouped)
{
    _Atomic uint64_t *word = &s->words[grouped->at];
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);
    uint64_t mine = same_group(now, theirs) ? make_group(s, request) : 0;
    if (mine == 0)
        return;
    if (publish(word, &now, closed(mine)))
        lead(s, op, closed(mine), grouped);
    else
        give_record(s, mine);
}

bool store_group_begin(struct group_session *s, struct op *op, const struct far_op *request,
                       uint64_t hash, bool waits, struct grouped *grouped, int *rc)
{
    struct groups *g = s->groups;
    struct waiting *driver;
    enum group_kind kind = group_kind(request);
    grouped->at = (uint32_t)(hash & s->mask);
    _Atomic uint64_t *word = &s->words[grouped->at];
    uint64_t theirs = atomic_load_explicit(word, memory_order_acquire), mine = 0;
    if (request->key_len > GROUP_KEY_BYTES)
        return false;
    for (unsigned i = 0; i < TRIES; i++) {
        if (theirs != 0 && (!waits || !is_of_key(g, theirs, request)))
            break;
        if (theirs != 0 && may_join(kind, theirs)) {
            if (mine != 0)
                give_record(s, mine);
            enum outcome leader = await_end(g, op, theirs, LOOKS);
            if (leader == OUTCOME_NONE)
                replace(s, op, request, theirs, grouped);
            bool done = is_done(kind, leader, rc);
            s->joined += done;
            s->left += leader == OUTCOME_NONE;
            return done;
        }
        if (theirs != 0 && mine == 0 && may_ride(op, request) && (driver = driver_of(s, request)))
            return ride(s, op, driver, request, rc);
        if (mine == 0)
            mine = make_group(s, request);
        if (mine == 0)
            return false;
        if (publish(word, &theirs, mine)) {
            if (theirs != 0)
                grouped->riders = await_turn(s, op, theirs, request);
            lead(s, op, mine, grouped);
            return false;
        }
    }
    if (mine != 0)
        give_record(s, mine);
    return false;
}

static enum outcome outcome_for(enum group_kind kind, int rc)
{
    if (rc == FAR_OK && kind != GROUP_OTHER)
        return OUTCOME_DONE;
    return rc == FAR_NOT_FOUND && kind == GROUP_UPDATE ? OUTCOME_MISSING : OUTCOME_OTHER;
}

void store_group_end(struct group_session *s, struct op *op, enum group_kind kind,
                     const struct grouped *grouped, int rc)
{
    struct groups *g = s->groups;
    uint64_t word = grouped->word, generation = word >> GENERATION_SHIFT;
    atomic_store_explicit(&record_of(g, word)->state,
                          generation << OUTCOME_BITS | outcome_for(kind, rc), memory_order_release);
    (void)publish(&s->words[grouped->at], &word, 0); /* else another group is there by now */
    give_record(s, grouped->word);
    uint64_t took = batch_now(&op->batch) - grouped->closed_at;
    uint64_t typical = atomic_load_explicit(&g->typical, memory_order_relaxed);
    if (took > EXCEPTION * typical)
        took = EXCEPTION * typical;
    typical = typical - typical / 16 + took / 16;
    atomic_store_explicit(&g->typical, typical > TYPICAL_LEAST ? typical : TYPICAL_LEAST,
                          memory_order_relaxed);
}
