/*
 * The checker of Wing and Gong, with Lowe's memo of visited states.
 *
 *   J. Wing, C. Gong: Testing and verifying concurrent objects (1993)
 *   G. Lowe: Testing for linearizability (2017)
 *
 * The calls and returns of one key's operations are in a list, ordered by their stamps. An
 * operation can be the next to take effect if its call is before the first return. The search picks
 * such an operation whose answer fits the state, lifts its call and return out of the list, and
 * continues from the head. If it meets a return first, the last choice was wrong and is put back.
 * The search remembers which operations were lifted and which state that led to: it does not search
 * the same set with the same state again.
 *
 * An operation that fits the state and changes nothing in any place (a get, an update that found no
 * key) is taken at once, without alternatives: if there is an order with it further on, there is
 * one with it here.
 *
 * An operation of unknown outcome has no return, so nothing forces the search to choose it.
 * Choosing it where it would change nothing is never needed. The search ends when only such
 * operations are left. Two rules keep many of them from costing exponential time. First, values
 * that no get returned cannot be distinguished, so they count as one value. Second, operations of
 * unknown outcome and of one kind that write such a value, or delete, are interchangeable except
 * for their calls: an earlier one can do whatever a later one can. So the search tries only the one
 * that was called first.
 *
 * Lifting and putting back are nested, so a lifted entry's links still name its old neighbours, and
 * putting it back needs no search (as in Knuth's dancing links).
 */
#include "check/lin.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

struct entry { /* a call or a return in the list */
    uint64_t stamp;
    uint32_t key;
    uint32_t op;   /* place in the history                            */
    uint32_t mate; /* a call's return, or NONE if it has none         */
    uint32_t twin; /* the call that must be chosen before it, or NONE */
    uint32_t prev, next;
    uint32_t bit;   /* a call's number within its key           */
    uint32_t value; /* what it writes; UNREAD if no get read it */
    bool is_return;
};

#define NONE   UINT32_MAX
#define UNREAD UINT32_MAX

struct choice { /* a call that was lifted, and the state before */
    uint32_t entry, state;
    bool forced; /* there is no alternative to try */
};

/* Sets of lifted operations with the state they led to. A record is the state, then the bits. */
struct memo {
    uint32_t *slot; /* record number + 1; 0 is free */
    size_t slots, slots_room;
    uint64_t *record;
    size_t records, words_room;
    size_t record_words;
};

struct lin_checker {
    struct entry *entry; /* [0] is the list's head, the rest the key's events by stamp */
    struct choice *stack;
    uint32_t *call_of; /* an operation's call entry                              */
    size_t *order;     /* the result's, and                                      */
    size_t *draft;     /* that of the present key, which may become the result's */
    uint64_t *bits;
    size_t room; /* operations that the arrays above hold */
    struct memo memo;
};

struct lin_checker *lin_checker_new(void)
{
    return calloc(1, sizeof(struct lin_checker));
}

void lin_checker_free(struct lin_checker *c)
{
    if (!c)
        return;
    free(c->entry);
    free(c->stack);
    free(c->call_of);
    free(c->order);
    free(c->draft);
    free(c->bits);
    free(c->memo.slot);
    free(c->memo.record);
    free(c);
}

static bool grow(void *array, size_t bytes)
{
    void **p = array;
    void *bigger = realloc(*p, bytes);
    if (bigger)
        *p = bigger;
    return bigger != NULL;
}

static bool reserve(struct lin_checker *c, size_t ops)
{
    if (ops <= c->room)
        return true;
    if (!grow(&c->entry, (2 * ops + 1) * sizeof *c->entry) ||
        !grow(&c->stack, ops * sizeof *c->stack) || !grow(&c->call_of, ops * sizeof *c->call_of) ||
        !grow(&c->order, ops * sizeof *c->order) || !grow(&c->draft, ops * sizeof *c->draft) ||
        !grow(&c->bits, (ops / 64 + 1) * sizeof *c->bits))
        return false;
    c->room = ops;
    return true;
}

/* ---- visited states -------------------------------------------------------------------------- */
#define MEMO_START 256u

static bool memo_empty_slots(struct memo *m, size_t slots)
{
    if (slots > m->slots_room) {
        if (!grow(&m->slot, slots * sizeof *m->slot))
            return false;
        m->slots_room = slots;
    }
    m->slots = slots;
    memset(m->slot, 0, slots * sizeof *m->slot);
    return true;
}

static bool memo_clear(struct memo *m, size_t ops)
{
    m->records = 0;
    m->record_words = 1 + (ops + 63) / 64;
    return memo_empty_slots(m, MEMO_START);
}

static uint64_t memo_hash(const uint64_t *record, size_t words)
{
    uint64_t h = 0;
    for (size_t i = 0; i < words; i++) {
        h = (h ^ record[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

static void memo_place(struct memo *m, size_t number)
{
    size_t i = memo_hash(m->record + number * m->record_words, m->record_words) & (m->slots - 1);
    while (m->slot[i] != 0) /* ends: at most half of the slots are taken */
        i = (i + 1) & (m->slots - 1);
    m->slot[i] = (uint32_t)number + 1;
}

static bool memo_double(struct memo *m)
{
    if (!memo_empty_slots(m, m->slots * 2))
        return false;
    for (size_t i = 0; i < m->records; i++)
        memo_place(m, i);
    return true;
}

enum memo_answer { MEMO_NEW, MEMO_SEEN, MEMO_NO_MEMORY };

/* Adds the set and the state unless they are known. */
static enum memo_answer memo_add(struct memo *m, const uint64_t *bits, uint32_t state)
{
    size_t words = m->record_words;
    if ((m->records + 1) * words > m->words_room) {
        size_t room = m->words_room ? 2 * m->words_room : 4096;
        while (room < (m->records + 1) * words)
            room *= 2;
        if (!grow(&m->record, room * sizeof *m->record))
            return MEMO_NO_MEMORY;
        m->words_room = room;
    }
    if (2 * (m->records + 1) > m->slots && !memo_double(m))
        return MEMO_NO_MEMORY;

    uint64_t *record = m->record + m->records * words;
    record[0] = state;
    memcpy(record + 1, bits, (words - 1) * sizeof *bits);
    size_t i = memo_hash(record, words) & (m->slots - 1);
    for (; m->slot[i] != 0; i = (i + 1) & (m->slots - 1)) {
        const uint64_t *other = m->record + (m->slot[i] - 1) * words;
        if (memcmp(other, record, words * sizeof *record) == 0)
            return MEMO_SEEN;
    }
    m->slot[i] = (uint32_t)++m->records;
    return MEMO_NEW;
}

/* ---- the list -------------------------------------------------------------------------------- */

static int by_key_and_stamp(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->stamp != y->stamp)
        return x->stamp < y->stamp ? -1 : 1;
    /* Equal stamps mean that neither came first: the operations overlap. */
    if (x->is_return != y->is_return)
        return x->is_return ? 1 : -1;
    return x->op < y->op ? -1 : x->op > y->op;
}

static bool only_looks(const struct lin_op *op)
{
    return op->kind == LIN_GET || op->kind == LIN_EXISTS;
}

static size_t collect(struct lin_checker *c, const struct lin_history *h)
{
    size_t n = 1; /* 0 is the head */
    for (size_t i = 0; i < h->count; i++) {
        const struct lin_op *op = &h->op[i];
        if (op->outcome == LIN_FAILED || (op->outcome == LIN_UNKNOWN && only_looks(op)))
            continue;
        struct entry e = {
            .stamp = op->call, .key = op->key, .op = (uint32_t)i, .mate = NONE, .twin = NONE};
        c->entry[n++] = e;
        if (op->outcome == LIN_DONE) {
            e.stamp = op->ret;
            e.is_return = true;
            c->entry[n++] = e;
        }
    }
    qsort(c->entry + 1, n - 1, sizeof *c->entry, by_key_and_stamp);
    return n;
}

/* Links entries [first, end), all of one key, behind the head. Returns how many operations have to
 * be placed. */
static size_t link_key(struct lin_checker *c, size_t first, size_t end, uint32_t *calls)
{
    struct entry *e = c->entry;
    size_t must = 0;
    uint32_t count = 0;
    e[0].next = (uint32_t)first;
    for (size_t i = first; i < end; i++) {
        e[i].prev = i == first ? 0 : (uint32_t)i - 1;
        e[i].next = i + 1 == end ? NONE : (uint32_t)i + 1;
        if (!e[i].is_return) {
            e[i].bit = count++;
            c->call_of[e[i].op] = (uint32_t)i;
        } else {
            ASSERT(c->call_of[e[i].op] >= first &&
                   c->call_of[e[i].op] < i); /* its call is earlier */
            e[c->call_of[e[i].op]].mate = (uint32_t)i;
            must++;
        }
    }
    *calls = count;
    return must;
}

/* Merges values that no get returned, and chains interchangeable operations. */
static void find_twins(struct lin_checker *c, const struct lin_history *h, size_t first, size_t end)
{
    uint32_t last[LIN_KINDS];
    for (unsigned i = 0; i < LIN_KINDS; i++)
        last[i] = NONE;
    size_t reads = 0; /* their results, in `draft` for now */
    for (size_t i = first; i < end; i++) {
        const struct lin_op *op = &h->op[c->entry[i].op];
        if ((op->kind == LIN_GET || op->kind == LIN_MODIFY) && c->entry[i].is_return)
            c->draft[reads++] = op->result;
    }
    for (size_t i = first; i < end; i++) {
        struct entry *e = &c->entry[i];
        const struct lin_op *op = &h->op[e->op];
        if (e->is_return || only_looks(op))
            continue;
        e->value = op->value;
        if (op->kind == LIN_MODIFY && op->value == LIN_ABSENT) /* it removes the key */
            continue;
        bool is_read = false;
        for (size_t j = 0; j < reads && !is_read; j++)
            is_read = c->draft[j] == op->value;
        if (!is_read)
            e->value = UNREAD;
        if (op->outcome == LIN_UNKNOWN && (op->kind == LIN_DELETE || !is_read)) {
            e->twin = last[op->kind];
            last[op->kind] = (uint32_t)i;
        }
    }
}

static void unlink_entry(struct entry *e, uint32_t i)
{
    e[e[i].prev].next = e[i].next;
    if (e[i].next != NONE)
        e[e[i].next].prev = e[i].prev;
}

static void relink_entry(struct entry *e, uint32_t i)
{
    e[e[i].prev].next = i;
    if (e[i].next != NONE)
        e[e[i].next].prev = i;
}

static void lift(struct lin_checker *c, uint32_t call)
{
    struct entry *e = c->entry;
    unlink_entry(e, call);
    if (e[call].mate != NONE)
        unlink_entry(e, e[call].mate);
    c->bits[e[call].bit / 64] |= 1ull << (e[call].bit % 64);
}

static bool is_lifted(const struct lin_checker *c, uint32_t call)
{
    uint32_t bit = c->entry[call].bit;
    return c->bits[bit / 64] >> (bit % 64) & 1;
}

static void put_back(struct lin_checker *c, uint32_t call)
{
    struct entry *e = c->entry;
    if (e[call].mate != NONE)
        relink_entry(e, e[call].mate);
    relink_entry(e, call);
    c->bits[e[call].bit / 64] &= ~(1ull << (e[call].bit % 64));
}

/* ---- the search ------------------------------------------------------------------------------ */

struct search {
    const struct lin_history *h;
    size_t depth;   /* of the stack                           */
    size_t must;    /* operations that are still to be placed */
    uint32_t state; /* after those on the stack               */
    bool has_order; /* of the result                          */
    struct lin_result *result;
};

/* Can the operation be the next to take effect? Sets the state after it. */
static bool fits(const struct lin_checker *c, const struct search *s, uint32_t call,
                 uint32_t *after)
{
    const struct entry *e = &c->entry[call];
    struct lin_op op = s->h->op[e->op];
    if (e->twin != NONE && !is_lifted(c, e->twin))
        return false;
    op.value = e->value;
    return lin_apply(&op, s->state, after) && !(op.outcome == LIN_UNKNOWN && *after == s->state);
}

static void choose(struct lin_checker *c, struct search *s, uint32_t call, uint32_t after,
                   bool forced)
{
    lift(c, call);
    c->stack[s->depth++] = (struct choice){.entry = call, .state = s->state, .forced = forced};
    s->state = after;
    s->must -= s->h->op[c->entry[call].op].outcome == LIN_DONE;
}

/* Undoes choices up to the last that had an alternative, and returns that; NONE if there is
 * none. */
static uint32_t take_back(struct lin_checker *c, struct search *s)
{
    while (s->depth > 0) {
        struct choice last = c->stack[--s->depth];
        put_back(c, last.entry);
        s->state = last.state;
        s->must += s->h->op[c->entry[last.entry].op].outcome == LIN_DONE;
        if (!last.forced)
            return last.entry;
    }
    return NONE;
}

/* Does it change nothing in any place? */
static bool is_idle(const struct lin_op *op)
{
    bool refused = op->result == 0 && op->kind != LIN_MODIFY; /* its result is what it saw */
    return op->outcome == LIN_DONE && (only_looks(op) || refused);
}

/* Chooses all operations that change nothing and can be next. */
static void settle(struct lin_checker *c, struct search *s)
{
    uint32_t at = c->entry[0].next, after = 0;
    while (at != NONE && !c->entry[at].is_return) {
        uint32_t next = c->entry[at].next;
        if (!is_idle(&s->h->op[c->entry[at].op]) || !fits(c, s, at, &after)) {
            at = next;
            continue;
        }
        choose(c, s, at, after, true);
        at = c->entry[0].next; /* the first return may be another now */
    }
}

/* Chooses the call if that leads to a state that was not visited. */
static enum memo_answer try_call(struct lin_checker *c, struct search *s, uint32_t call)
{
    uint32_t after = 0;
    if (!fits(c, s, call, &after))
        return MEMO_SEEN;
    choose(c, s, call, after, false);
    settle(c, s);
    enum memo_answer answer = memo_add(&c->memo, c->bits, s->state);
    if (answer != MEMO_NEW)
        take_back(c, s);
    return answer;
}

/* Keeps the longest order for the result. */
static void keep_longest(const struct lin_checker *c, struct search *s, uint32_t blocked)
{
    if (s->has_order && s->depth <= s->result->placed)
        return;
    s->has_order = true;
    s->result->placed = s->depth;
    s->result->stuck = c->entry[blocked].op;
    for (size_t i = 0; i < s->depth; i++)
        s->result->order[i] = c->entry[c->stack[i].entry].op;
}

static enum lin_verdict search_key(struct lin_checker *c, struct search *s, uint64_t budget)
{
    settle(c, s);
    uint32_t at = c->entry[0].next;
    for (uint64_t step = 0; s->must > 0; step++) {
        if (step == budget)
            return LIN_UNDECIDED;
        s->result->steps++;
        /* While an operation has to be placed, its return is in the list: `at` is not NONE. */
        if (!c->entry[at].is_return) {
            enum memo_answer answer = try_call(c, s, at);
            if (answer == MEMO_NO_MEMORY)
                return LIN_UNDECIDED;
            at = answer == MEMO_NEW ? c->entry[0].next : c->entry[at].next;
            continue;
        }
        keep_longest(c, s, at);
        uint32_t last = take_back(c, s);
        if (last == NONE)
            return LIN_NOT_LINEARIZABLE;
        at = c->entry[last].next;
    }
    return LIN_LINEARIZABLE;
}

enum lin_verdict lin_check(struct lin_checker *c, const struct lin_history *h, uint64_t budget,
                           struct lin_result *result)
{
    memset(result, 0, sizeof *result);
    if (h->count == 0)
        return LIN_LINEARIZABLE;
    if (h->count >= NONE / 2 || !reserve(c, h->count))
        return LIN_UNDECIDED;

    enum lin_verdict verdict = LIN_LINEARIZABLE;
    size_t end = collect(c, h), next = 0;
    for (size_t first = 1; first < end; first = next) {
        for (next = first; next < end && c->entry[next].key == c->entry[first].key;)
            next++;
        uint32_t calls = 0;
        struct lin_result found = {.key = c->entry[first].key, .order = c->draft};
        struct search s = {.h = h, .result = &found, .must = link_key(c, first, next, &calls)};
        find_twins(c, h, first, next);
        memset(c->bits, 0, (calls / 64 + 1) * sizeof *c->bits);
        enum lin_verdict one =
            memo_clear(&c->memo, calls) ? search_key(c, &s, budget) : LIN_UNDECIDED;
        found.steps += result->steps;
        result->steps = found.steps;
        if (one == LIN_LINEARIZABLE)
            continue;
        *result = found;
        c->draft = c->order;
        c->order = found.order;
        verdict = one;
        if (one == LIN_NOT_LINEARIZABLE)
            break;
    }
    return verdict;
}
