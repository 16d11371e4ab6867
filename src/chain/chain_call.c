/*
 * Calls: what becomes of a request, step by step.
 *
 *   CALL_LINES_WANTED  takes lines for all that it will decide or place
 *   CALL_HEAD          opens the lines of a part, and executes its verbs at the heads; what goes to
 *                      both goes to both. What met a reference is executed again later.
 *   CALL_TAIL          brings to the tails what the heads have: new words, ranges, and behind these
 *                      the releases of locks that stand there. Then the next part, or the answer.
 *   CALL_BEHIND        behind the answer: words instead of references, releases at the heads, and
 *                      the lines are closed
 */
#include "chain/chain_internal.h"

#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN_NS 2000u
#define PAUSE_MAX_NS 200000u
#define HELD_NS      1000000u
#define BROKEN       "a request of this client has failed between head and tail"

static enum fab_mark mark_of(const struct fab_verb *v)
{
    return (enum fab_mark)(v->flags & FAB_MARK);
}

/* ---- locks ----------------------------------------------------------------------------------- */

static struct chain_hold *find_hold(struct chain_ep *e, const struct chain_call *call,
                                    const struct fab_verb *v)
{
    for (unsigned i = 0; i < e->holds; i++)
        if (e->hold[i].node == v->node && e->hold[i].off == v->off && e->hold[i].by == call->outer)
            return &e->hold[i];
    return NULL;
}

/* Does it release a lock, or put another word in place of one? */
static bool is_release(const struct fab_verb *v)
{
    if (mark_of(v) != MARK_LOCK)
        return false;
    return v->kind == FAB_CAS ? v->swap == 0 || v->compare != 0
                              : v->kind == FAB_FAA || !(v->swap & v->swap_mask);
}

/* A lock's word has changed at the head. */
static void note_lock(struct chain_ep *e, const struct chain_call *call, const struct fab_verb *v,
                      uint64_t old, uint64_t new)
{
    bool whole = v->kind == FAB_CAS;
    uint64_t set = whole ? new : new & ~old, cleared = whole ? UINT64_MAX : old & ~new;
    for (unsigned i = e->holds; i-- > 0;) { /* whoever of this client's operations had it */
        struct chain_hold *h = &e->hold[i];
        if (h->node == v->node && h->off == v->off && (h->bits &= ~cleared) == 0)
            *h = e->hold[--e->holds];
    }
    if (set == 0 || (whole && new >> 63 != 0)) /* such a word is nobody's lock */
        return;
    struct chain_hold *h = find_hold(e, call, v);
    if (!h) {
        ASSERT(e->holds < HOLDS_MAX);
        h = &e->hold[e->holds++];
        *h = (struct chain_hold){.by = call->outer, .node = v->node, .off = v->off, .whole = whole};
        h->taken = whole && old != 0;
    }
    h->bits |= set;
    h->at_tail = false;
}

/* ---- inner requests -------------------------------------------------------------------------- */

/* Adds a verb for the head or the tail of the node. */
static struct fab_verb *add(struct chain_ep *e, struct chain_call *call,
                            const struct fab_verb *like, bool tail)
{
    const struct chain *c = chain_of(e);
    unsigned machine = tail ? chain_tail(c, like->node) : like->node;
    struct fab_verb *v = &call->verb[call->inner.count++];
    ASSERT(call->inner.count <= sizeof call->verb / sizeof *call->verb);
    *v = *like;
    v->flags &= FAB_MAY_BE_FREED;
    if (call->fenced & call->begun & 1ull << machine)
        v->flags |= FAB_FENCE;
    call->fenced &= ~(1ull << machine);
    call->begun |= 1ull << machine;
    v->node = (uint16_t)machine;
    if (tail)
        v->off += c->tail_at[like->node];
    return v;
}

static void begin_request(struct chain_call *call)
{
    call->inner =
        (struct fab_req){.verbs = call->verb, .view = call->outer ? call->outer->view : 0};
    call->fenced = call->begun = 0;
}

static struct fab_verb write_of(unsigned node, uint64_t off, void *buf, size_t len)
{
    return (struct fab_verb){
        .kind = FAB_WRITE, .node = (uint16_t)node, .len = (uint32_t)len, .off = off, .buf = buf};
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void entry_add(struct chain_line *line, enum chain_what what, uint64_t off, uint64_t a,
                      uint64_t b)
{
    line->entry[line->entries++] = (struct chain_entry){(uint64_t)what << 56 | off, a, b};
}

/* Opens the line, at the head, and at the tail if something is placed. Locks go there behind it. */
static void open_line(struct chain_ep *e, struct chain_call *call, unsigned number)
{
    struct call_line *l = &call->line[number];
    struct chain_line *line = chain_line_image(e, l);
    uint64_t off = chain_line_at(e, l);
    l->stamp = ++e->stamp;
    l->open = true;
    l->at_tail = false;
    line->stamp = l->stamp;
    line->owner = e->incarnation;
    line->entries = 0;
    for (unsigned i = 0; i < call->count; i++) {
        const struct fab_verb *v = &call->outer->verbs[i];
        if (call->v[i].line != number)
            continue;
        if (mark_of(v) == MARK_EARLY)
            entry_add(line, CHAIN_EARLY, v->off, v->len, 0);
        else if (v->kind == FAB_WRITE)
            entry_add(line, CHAIN_RANGE, v->off, v->len, 0);
        else
            entry_add(line, CHAIN_WORD, v->off, call->v[i].old, call->v[i].new);
        l->at_tail |= mark_of(v) == MARK_PLACE;
    }
    line->checksum = chain_line_sum(line, gaddr_make(l->node, off));
    struct fab_verb v = write_of(l->node, off, line, chain_line_bytes(line->entries));
    (void)add(e, call, &v, false);
    if (!l->at_tail)
        return;
    (void)add(e, call, &v, true);
    for (unsigned i = 0; i < e->holds; i++) {
        struct chain_hold *h = &e->hold[i];
        if (h->by != call->outer || h->node != l->node || h->at_tail)
            continue;
        struct fab_verb copy = {.kind = FAB_MCAS,
                                .node = h->node,
                                .len = 8,
                                .off = h->off,
                                .buf = e->zero + 1,
                                .swap = h->bits,
                                .swap_mask = h->whole ? UINT64_MAX : h->bits};
        (void)add(e, call, &copy, true);
        h->at_tail = true;
    }
}

/* ---- cutting --------------------------------------------------------------------------------- */

static bool wants_line(const struct fab_verb *v)
{
    return mark_of(v) == MARK_PUBLISH || mark_of(v) == MARK_PLACE;
}

/* The word that an atomic makes of another. */
static uint64_t result_of(const struct fab_verb *v, uint64_t old)
{
    if (v->kind == FAB_FAA)
        return old + v->swap;
    return (old & ~v->swap_mask) | (v->swap & v->swap_mask);
}

/* FAA and MCAS that publish have a line each: their new word is not known before. */
static uint8_t line_for(struct chain_call *call, const struct fab_verb *v, unsigned part)
{
    bool own = v->kind > FAB_CAS;
    for (unsigned i = 0; i < call->lines && !own; i++)
        if (call->line[i].node == v->node && call->line[i].part == part)
            return (uint8_t)i;
    ASSERT(call->lines < CALL_LINES);
    call->line[call->lines] =
        (struct call_line){.node = v->node, .part = own ? UINT16_MAX : (uint16_t)part};
    return (uint8_t)call->lines++;
}

/* What is written early goes into the line of what leads to it: then it need not be at the tail
 * before that is decided at the head. */
static void name_early(struct chain_call *call)
{
    for (unsigned i = 0; i < call->count; i++) {
        const struct fab_verb *v = &call->outer->verbs[i];
        if (mark_of(v) != MARK_EARLY)
            continue;
        for (unsigned k = i + 1; k < call->count && call->v[i].line == NO_LINE; k++)
            if (call->v[k].line != NO_LINE && call->outer->verbs[k].node == v->node &&
                call->v[k].part == call->v[i].part)
                call->v[i].line = call->v[k].line;
    }
}

static void cut(struct chain_ep *e, struct chain_call *call)
{
    unsigned part = 0;
    bool ends = false;
    for (unsigned i = 0; i < call->count; i++) {
        const struct fab_verb *v = &call->outer->verbs[i];
        struct call_verb *cv = &call->v[i];
        if ((v->flags & FAB_PART) && ends) {
            part++;
            ends = false;
        }
        bool releases = is_release(v);
        ends |= mark_of(v) == MARK_PUBLISH || releases;
        *cv = (struct call_verb){.part = (uint16_t)part, .line = NO_LINE, .releases = releases};
        if (wants_line(v) && e->has_client)
            cv->line = line_for(call, v, part);
        if (v->kind == FAB_CAS) {
            cv->old = v->compare;
            cv->new = v->swap;
        }
    }
    call->parts = part + 1;
    name_early(call);
}

/* ---- at the head ----------------------------------------------------------------------------- */

static void add_publish(struct chain_ep *e, struct chain_call *call, unsigned i)
{
    const struct fab_verb *v = &call->outer->verbs[i];
    struct call_verb *cv = &call->v[i];
    struct fab_verb cas = {.kind = FAB_CAS,
                           .node = v->node,
                           .len = 8,
                           .off = v->off,
                           .buf = WORD_FOUND(call, i),
                           .compare = cv->old,
                           .swap = cv->new};
    if (!e->has_client) { /* nobody else is there: the pool is being made */
        ASSERT(e->identity == 0);
        cas = *v;
        (void)add(e, call, &cas, false);
        cas.buf = e->zero + 1;
        (void)add(e, call, &cas, true);
        return;
    }
    if (v->kind != FAB_CAS && cv->state == VERB_NEW) {
        cas.kind = FAB_READ;
        (void)add(e, call, &cas, false);
        return;
    }
    const struct call_line *l = &call->line[cv->line];
    cas.swap = chain_reference(e->slot, l->line, l->stamp);
    (void)add(e, call, &cas, false);
}

/* A READ of the head has met what looks like a reference: is it one? */
static void add_inquiry(struct chain_ep *e, struct chain_call *call, unsigned i)
{
    const struct fab_verb *v = &call->outer->verbs[i];
    const struct chain *c = chain_of(e);
    uint64_t reference = call->v[i].reference;
    call->asks = i;
    unsigned slot = chain_reference_slot(reference), line = chain_reference_line(reference);
    uint64_t off = chain_line_off(c->fab.size[v->node], slot, line);
    struct fab_verb read = {.kind = FAB_READ,
                            .node = v->node,
                            .off = off,
                            .buf = OTHER_LINE(call),
                            .len = line < CHAIN_SHORTS ? CHAIN_SHORT_BYTES : CHAIN_LONG_BYTES};
    (void)add(e, call, &read, false);
}

static void add_at_head(struct chain_ep *e, struct chain_call *call, unsigned i)
{
    const struct fab_verb *v = &call->outer->verbs[i];
    struct call_verb *cv = &call->v[i];
    struct fab_verb copy = *v;
    if (v->flags & FAB_FENCE)
        call->fenced = UINT64_MAX;
    cv->inner = (uint16_t)call->inner.count;
    switch (mark_of(v)) {
    case MARK_NONE:
        (void)add(e, call, v, !chain_of(e)->heads);
        return;
    case MARK_HEAD:
        if (cv->state == VERB_MET && call->asks == CALL_VERBS)
            add_inquiry(e, call, i);
        cv->inner = (uint16_t)call->inner.count;
        (void)add(e, call, v, false);
        return;
    case MARK_EARLY:
    case MARK_SUM:
        (void)add(e, call, v, false);
        if (v->kind != FAB_WRITE)
            copy.buf = e->zero + 1;
        (void)add(e, call, &copy, true);
        return;
    case MARK_PLACE:
        (void)add(e, call, v, false);
        if (!e->has_client)
            (void)add(e, call, v, true);
        return;
    case MARK_LOCK:
    case MARK_HINT:
        (void)add(e, call, v, false);
        return;
    case MARK_PUBLISH:
        add_publish(e, call, i);
        return;
    }
}

/* Is the verb to be executed at the head now? */
static bool is_due(const struct chain_call *call, unsigned i)
{
    const struct call_verb *cv = &call->v[i];
    return cv->part == call->part && !cv->behind && cv->state < VERB_WON;
}

static void add_heads(struct chain_ep *e, struct chain_call *call)
{
    call->asks = CALL_VERBS;
    for (unsigned l = 0; l < call->lines; l++) {
        bool wanted = false, only = call->line[l].part == UINT16_MAX;
        for (unsigned i = 0; i < call->count; i++)
            wanted |= call->v[i].line == l && is_due(call, i) &&
                      (only ? call->v[i].state == VERB_KNOWN : !call->line[l].open);
        if (wanted)
            open_line(e, call, l);
    }
    for (unsigned i = 0; i < call->count; i++)
        if (is_due(call, i))
            add_at_head(e, call, i);
}

/* Which word of a range that was read looks like a reference? 0: none. */
static uint64_t met_in(const struct chain *c, const struct fab_verb *v, uint64_t *off,
                       uint64_t known)
{
    const uint64_t *word = v->buf;
    for (unsigned k = 0; k < v->len / 8; k++)
        if (word_is_reference(word[k]) && word[k] != known &&
            chain_reference_slot(word[k]) < c->slots) {
            *off = v->off + 8 * k;
            return word[k];
        }
    return 0;
}

static void judge_read(struct chain_ep *e, struct chain_call *call, unsigned i)
{
    const struct fab_verb *v = &call->outer->verbs[i];
    struct call_verb *cv = &call->v[i];
    uint64_t off = 0, reference = met_in(chain_of(e), v, &off, 0), data = 0;
    if (cv->state == VERB_MET && reference == cv->reference && call->asks == i) {
        unsigned slot = chain_reference_slot(reference), line = chain_reference_line(reference);
        gaddr at = gaddr_make(v->node, chain_line_off(e->ep.fab->size[v->node], slot, line));
        /* It stood there before the line was read, and behind that. */
        if (!chain_line_names((const void *)OTHER_LINE(call), at, reference, off))
            data = reference;
    }
    reference = met_in(chain_of(e), v, &off, data);
    cv->state = reference ? VERB_MET : VERB_DONE;
    cv->reference = reference;
}

static void judge_publish(struct chain_ep *e, struct chain_call *call, unsigned i)
{
    const struct fab_verb *v = &call->outer->verbs[i];
    struct call_verb *cv = &call->v[i];
    uint64_t found = *WORD_FOUND(call, i);
    if (!e->has_client) {
        cv->state = VERB_DONE;
        return;
    }
    if (word_is_reference(found)) {
        cv->state = v->kind == FAB_CAS ? VERB_MET : VERB_NEW;
        cv->reference = found;
        return;
    }
    if (v->kind != FAB_CAS && (cv->state == VERB_NEW || found != cv->old)) {
        bool misses = v->kind == FAB_MCAS && ((found ^ v->compare) & v->compare_mask) != 0;
        cv->old = found;
        cv->new = result_of(v, found);
        cv->reference = 0;
        cv->state = misses || cv->new == found ? VERB_DONE : VERB_KNOWN;
        memcpy(v->buf, &found, 8);
        return;
    }
    memcpy(v->buf, &found, 8);
    cv->won = cv->acted = found == cv->old;
    cv->state = cv->won ? VERB_WON : VERB_DONE;
}

static void judge(struct chain_ep *e, struct chain_call *call, unsigned i)
{
    const struct fab_verb *v = &call->outer->verbs[i];
    struct call_verb *cv = &call->v[i];
    uint64_t old;
    switch (mark_of(v)) {
    case MARK_HEAD:
        judge_read(e, call, i);
        return;
    case MARK_PUBLISH:
        judge_publish(e, call, i);
        return;
    case MARK_PLACE:
        cv->acted = true;
        cv->state = e->has_client ? VERB_WON : VERB_DONE;
        return;
    case MARK_SUM:
    case MARK_HINT:
        cv->acted = true;
        cv->state = VERB_DONE;
        return;
    case MARK_LOCK:
        cv->acted = true;
        memcpy(&old, v->buf, 8);
        if (v->kind == FAB_FAA || batch_matched(v))
            note_lock(e, call, v, old, v->kind == FAB_CAS ? v->swap : result_of(v, old));
        cv->state = VERB_DONE;
        return;
    default:
        cv->state = VERB_DONE;
        return;
    }
}

/* ---- at the tail, and behind the answer ------------------------------------------------------ */

static bool some(const struct chain_call *call, enum verb_state state)
{
    for (unsigned i = 0; i < call->count; i++)
        if (call->v[i].part == call->part && !call->v[i].behind && call->v[i].state == state)
            return true;
    return false;
}

/* What met a reference, or lost a race for a word that it had read, is executed again. */
static bool goes_again(const struct chain_call *call)
{
    return some(call, VERB_MET) || some(call, VERB_KNOWN) || some(call, VERB_NEW);
}

/* The bits that a release clears. */
static uint64_t released_by(const struct fab_verb *v)
{
    return v->kind == FAB_FAA ? 0 - v->swap : v->kind == FAB_MCAS ? v->swap_mask : 0;
}

static void add_release(struct chain_ep *e, struct chain_call *call, unsigned i)
{
    const struct fab_verb *v = &call->outer->verbs[i];
    struct fab_verb copy = *v;
    const struct chain_hold *h = find_hold(e, call, v);
    copy.buf = e->zero + 1;
    if (v->kind == FAB_FAA) {
        copy.kind = FAB_MCAS;
        copy.compare = copy.compare_mask = copy.swap = 0;
        copy.swap_mask = released_by(v);
    } else if (v->kind == FAB_MCAS) {
        copy.compare_mask = 0;
    } else if (h) {
        copy.kind = FAB_MCAS;
        copy.swap_mask = UINT64_MAX;
    }
    (void)add(e, call, &copy, true);
}

/* CHAIN-5: which locks does the part release at the head behind the tail, and which of others? */
static void order_releases(struct chain_ep *e, struct chain_call *call)
{
    for (unsigned i = 0; i < call->count; i++) {
        const struct fab_verb *v = &call->outer->verbs[i];
        struct call_verb *cv = &call->v[i];
        if (!cv->releases || cv->part != call->part || !e->has_client)
            continue;
        const struct chain_hold *h = find_hold(e, call, v);
        bool places = false;
        for (unsigned k = 0; k < call->count; k++)
            places |= call->v[k].part == call->part && call->outer->verbs[k].node == v->node &&
                      mark_of(&call->outer->verbs[k]) == MARK_PLACE;
        bool others = !h || (released_by(v) & ~h->bits) != 0;
        cv->behind = places || (h && (h->at_tail || h->taken));
        cv->others = others && !cv->behind;
        cv->waited = others;
    }
}

/* Locks of others are released at the tail first, where they may stand. */
static bool add_clearing(struct chain_ep *e, struct chain_call *call)
{
    unsigned before = call->inner.count;
    for (unsigned i = 0; i < call->count; i++)
        if (call->v[i].part == call->part && call->v[i].others)
            add_release(e, call, i);
    return call->inner.count > before;
}

/* What the heads have goes to the tails, and behind that the releases. */
static void begin_tail(struct chain_ep *e, struct chain_call *call)
{
    bool last = !goes_again(call);
    begin_request(call);
    for (unsigned i = 0; i < call->count; i++) {
        const struct fab_verb *v = &call->outer->verbs[i];
        struct call_verb *cv = &call->v[i];
        if (cv->part != call->part || cv->state != VERB_WON)
            continue;
        *WORD_NEW(call, i) = cv->new;
        struct fab_verb write =
            v->kind == FAB_WRITE ? *v : write_of(v->node, v->off, WORD_NEW(call, i), 8);
        (void)add(e, call, &write, true);
    }
    for (unsigned i = 0; i < call->count; i++)
        if (call->v[i].part == call->part && call->v[i].behind && last)
            add_release(e, call, i);
}

/* The answer to a release that happens at the head behind it. */
static void answer_release(const struct fab_verb *v)
{
    uint64_t old = v->kind == FAB_CAS ? v->compare
                   : v->kind == FAB_FAA
                       ? released_by(v)
                       : (v->compare & v->compare_mask) | (released_by(v) & ~v->compare_mask);
    memcpy(v->buf, &old, 8);
}

static void end_tail(struct chain_call *call)
{
    bool last = !goes_again(call);
    for (unsigned i = 0; i < call->count; i++) {
        struct call_verb *cv = &call->v[i];
        if (cv->part != call->part)
            continue;
        if (cv->state == VERB_WON)
            cv->state = VERB_DONE;
        if (cv->behind && last) {
            answer_release(&call->outer->verbs[i]);
            cv->state = VERB_DONE;
        }
    }
}

/* Puts the new words in place of references to them, which are at the tail. */
static void add_words(struct chain_ep *e, struct chain_call *call)
{
    for (unsigned i = 0; i < call->count; i++) {
        const struct fab_verb *v = &call->outer->verbs[i];
        struct call_verb *cv = &call->v[i];
        if (!cv->won)
            continue;
        cv->won = false;
        const struct call_line *l = &call->line[cv->line];
        struct fab_verb cas = {.kind = FAB_CAS,
                               .node = v->node,
                               .len = 8,
                               .off = v->off,
                               .buf = WORD_FOUND(call, i),
                               .compare = chain_reference(e->slot, l->line, l->stamp),
                               .swap = cv->new};
        (void)add(e, call, &cas, false);
    }
}

/* What is left to do at the heads when all of a part is at the tails. */
static void add_behind(struct chain_ep *e, struct chain_call *call)
{
    add_words(e, call);
    for (unsigned l = 0; l < call->lines; l++) {
        struct call_line *line = &call->line[l];
        struct fab_verb blank = write_of(line->node, chain_line_at(e, line), e->zero, 8);
        if (!line->open)
            continue;
        line->open = false;
        call->fenced = UINT64_MAX; /* not before the references are gone */
        (void)add(e, call, &blank, false);
        if (line->at_tail)
            (void)add(e, call, &blank, true);
    }
    for (unsigned i = 0; i < call->count; i++) {
        struct call_verb *cv = &call->v[i];
        if (!cv->behind || cv->state != VERB_DONE)
            continue;
        const struct fab_verb *v = &call->outer->verbs[i];
        struct fab_verb release = *v;
        uint64_t old;
        cv->behind = false;
        release.buf = WORD_FOUND(call, i);
        (void)add(e, call, &release, false);
        memcpy(&old, v->buf, 8);
        note_lock(e, call, v, old, v->kind == FAB_CAS ? v->swap : old & ~released_by(v));
    }
    if (call->inner.count > 0)
        call->fenced = UINT64_MAX;
}

/* ---- driving --------------------------------------------------------------------------------- */

static void answer(struct chain_call *call, int status);

static struct chain_call *call_take(struct chain_ep *e)
{
    struct chain_call *call = e->idle;
    if (call) {
        e->idle = call->next;
        return call;
    }
    call = calloc(1, sizeof *call);
    if (call)
        call->word = e->machines->ops->buf_alloc(e->machines, CALL_WORDS_BYTES);
    if (call && !call->word) {
        free(call);
        return NULL;
    }
    if (call) {
        call->made = e->made;
        e->made = call;
    }
    return call;
}

static void call_end(struct chain_ep *e, struct chain_call *call)
{
    chain_lines_give(e, call);
    call->busy = false;
    call->next = e->idle;
    e->idle = call;
}

/* A request has failed. What its lines say stays for others, who will take this client for dead.
 * What was under way at the head may have been decided there. */
static void call_fail(struct chain_ep *e, struct chain_call *call, int status)
{
    bool acted = call->phase > CALL_HEAD;
    for (unsigned i = 0; i < call->count; i++)
        acted |= call->v[i].acted;
    e->broken |= call->lines > 0 || call->phase == CALL_BEHIND;
    call->lines = 0;
    if (call->outer)
        answer(call, acted ? FAR_UNKNOWN : status);
    call_end(e, call);
}

static void wait_for(struct chain_ep *e, struct chain_call *call)
{
    uint64_t pause = (uint64_t)PAUSE_MIN_NS << (call->tries < 7 ? call->tries : 7);
    uint64_t now = e->machines->ops->now(e->machines);
    call->tries++;
    call->inner.count = 0;
    call->wake_at = now + (pause < PAUSE_MAX_NS ? pause : PAUSE_MAX_NS);
    call->next = e->waiting;
    e->waiting = call;
}

/* A word that the call wants has been on its way for long: whoever waits for the call looks after
 * the client that has it. */
static void tell_holder(struct chain_ep *e, struct chain_call *call)
{
    uint64_t now = e->machines->ops->now(e->machines);
    unsigned i = 0;
    if (call->met_at == 0)
        call->met_at = now;
    if (now - call->met_at < HELD_NS)
        return;
    call->met_at = now;
    while (i < call->count && (call->v[i].part != call->part || call->v[i].reference == 0 ||
                               call->v[i].state >= VERB_WON))
        i++;
    if (i < call->count)
        fab_hold(call->outer, chain_reference_slot(call->v[i].reference));
}

static void count(struct chain_call *call)
{
    call->rtts++;
    call->verbs += call->inner.count;
    for (unsigned i = 0; i < call->inner.count; i++) {
        const struct fab_verb *v = &call->verb[i];
        call->rtts += (v->flags & FAB_FENCE) != 0;
        call->read += v->kind == FAB_WRITE ? 0 : v->len;
        call->written += v->kind == FAB_READ ? 0 : v->len;
    }
}

/* The request behind the answer counts, too, but nobody waits for its round trip. */
static void answer(struct chain_call *call, int status)
{
    uint32_t rtts = call->rtts;
    if (!call->inner.done)
        count(call);
    struct fab_req *r = call->outer;
    uint64_t read = 0, written = 0;
    unsigned fences = 0;
    for (unsigned i = 0; i < r->count; i++) {
        read += r->verbs[i].kind == FAB_WRITE ? 0 : r->verbs[i].len;
        written += r->verbs[i].kind == FAB_READ ? 0 : r->verbs[i].len;
        fences += (r->verbs[i].flags & FAB_FENCE) != 0;
    }
    r->more.rtts = rtts - 1 - fences;
    r->more.verbs = call->verbs - r->count;
    r->more.read = call->read - read;
    r->more.written = call->written - written;
    fab_complete(call->outer, status);
}

/* All verbs as they are, at tails that are alone. */
static void begin_tails(struct chain_ep *e, struct chain_call *call)
{
    begin_request(call);
    for (unsigned i = 0; i < call->count; i++) {
        if (call->outer->verbs[i].flags & FAB_FENCE)
            call->fenced = UINT64_MAX;
        (void)add(e, call, &call->outer->verbs[i], true);
    }
}

static bool begin_part(struct chain_ep *e, struct chain_call *call)
{
    begin_request(call);
    add_behind(e, call); /* of the part before */
    order_releases(e, call);
    call->phase = CALL_CLEAR;
    if (add_clearing(e, call))
        return true;
    call->phase = CALL_HEAD;
    add_heads(e, call);
    return true;
}

static void begin_head(struct chain_ep *e, struct chain_call *call)
{
    begin_request(call);
    add_heads(e, call);
}

/* Is a lock of another client released behind the rest? If this client died, nobody would. */
static bool some_waited(const struct chain_call *call)
{
    for (unsigned i = 0; i < call->count; i++)
        if (call->v[i].behind && call->v[i].waited)
            return true;
    return false;
}

/* Has a FAA or MCAS found a reference where it looked for the word? */
static bool met_while_reading(const struct chain_call *call)
{
    for (unsigned i = 0; i < call->count; i++)
        if (call->v[i].part == call->part && call->v[i].state == VERB_NEW && call->v[i].reference)
            return true;
    return false;
}

/* What follows when the inner request is done. Returns true if there is a next one to post. */
static bool step(struct chain_ep *e, struct chain_call *call)
{
    switch (call->phase) {
    case CALL_LINES_WANTED:
        if (chain_of(e)->tails) {
            call->phase = CALL_BEHIND;
            begin_tails(e, call);
            return true;
        }
        if (!chain_lines_take(e, call)) {
            wait_for(e, call);
            return false;
        }
        return begin_part(e, call);
    case CALL_CLEAR:
        call->phase = CALL_HEAD;
        begin_head(e, call);
        return true;
    case CALL_HEAD:
        for (unsigned i = 0; i < call->count; i++)
            if (is_due(call, i))
                judge(e, call, i);
        call->phase = CALL_TAIL;
        begin_tail(e, call);
        return true;
    case CALL_TAIL:
        end_tail(call);
        if (goes_again(call)) { /* CHAIN-7 */
            call->phase = CALL_AGAIN;
            begin_request(call);
            add_words(e, call);
            return true;
        }
        call->met_at = 0;
        if (++call->part < call->parts)
            return begin_part(e, call);
        call->phase = CALL_BEHIND;
        bool waited = some_waited(call);
        begin_request(call);
        add_behind(e, call);
        if (!waited) {
            answer(call, FAR_OK);
            call->outer = NULL;
        }
        return true;
    case CALL_AGAIN:
        call->phase = CALL_HEAD;
        if (some(call, VERB_MET) || met_while_reading(call)) {
            wait_for(e, call);
            tell_holder(e, call);
            return false;
        }
        begin_head(e, call);
        return true;
    case CALL_BEHIND:
        if (call->outer)
            answer(call, FAR_OK);
        call_end(e, call);
        return false;
    }
    return false;
}

/* Posts what there is to post, and goes on while that is done at once. */
static void drive(struct chain_ep *e, struct chain_call *call)
{
    while (call->inner.count == 0 || call->inner.done) {
        if (call->inner.count > 0 && call->inner.status != FAR_OK) {
            call_fail(e, call, call->inner.status);
            return;
        }
        if (!step(e, call))
            return;
        if (call->inner.count == 0)
            continue;
        if (call->outer)
            count(call);
        int rc = e->machines->ops->post(e->machines, &call->inner);
        if (rc != FAR_OK) {
            call_fail(e, call, rc);
            return;
        }
    }
    call->inner.tell = &e->done;
}

static bool changes_something(const struct fab_req *req)
{
    unsigned i = 0;
    while (i < req->count && req->verbs[i].kind == FAB_READ)
        i++;
    return i < req->count;
}

int chain_post(struct fab_ep *ep, struct fab_req *req)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    if (e->broken && changes_something(req))
        return err_fail(FAR_FENCED, "%s", BROKEN);
    struct chain_call *call = call_take(e);
    if (!call)
        return err_fail(FAR_NO_MEMORY, "no memory for a request");
    call->outer = req;
    call->count = req->count;
    call->phase = CALL_LINES_WANTED;
    call->part = call->lines = call->tries = 0;
    call->busy = true;
    call->number = ++e->calls;
    call->epoch = e->epoch;
    call->met_at = 0;
    call->rtts = call->verbs = 0;
    call->read = call->written = 0;
    call->inner.count = 0;
    ASSERT(req->count <= CALL_VERBS);
    cut(e, call);
    drive(e, call);
    return FAR_OK;
}

/* Lets those go on that have waited long enough. Returns when the next one has. */
static uint64_t wake(struct chain_ep *e)
{
    uint64_t now = e->waiting ? e->machines->ops->now(e->machines) : 0, next = UINT64_MAX;
    struct chain_call *call = e->waiting;
    e->waiting = NULL;
    while (call) {
        struct chain_call *following = call->next;
        if (e->broken && call->lines > 0) { /* it may wait for this client's own reference */
            (void)err_fail(FAR_FENCED, "%s", BROKEN);
            call_fail(e, call, FAR_FENCED);
        } else if (call->wake_at <= now) {
            if (call->phase == CALL_HEAD) {
                begin_head(e, call);
                count(call);
                int rc = e->machines->ops->post(e->machines, &call->inner);
                if (rc != FAR_OK) {
                    call_fail(e, call, rc);
                    call = following;
                    continue;
                }
            }
            if (call->phase == CALL_LINES_WANTED || call->inner.done)
                drive(e, call);
            else
                call->inner.tell = &e->done;
        } else {
            next = call->wake_at < next ? call->wake_at : next;
            call->next = e->waiting;
            e->waiting = call;
        }
        call = following;
    }
    return next;
}

static bool some_busy(const struct chain_ep *e)
{
    for (const struct chain_call *call = e->made; call; call = call->made)
        if (call->busy && call->phase == CALL_BEHIND)
            return true;
    return false;
}

void chain_finish(struct chain_ep *e)
{
    while (some_busy(e))
        chain_poll(&e->ep, true);
}

/* Is nothing under way, because all calls wait? */
static bool all_wait(const struct chain_ep *e)
{
    for (const struct chain_call *call = e->made; call; call = call->made)
        if (call->busy && call->inner.count > 0 && !call->inner.done)
            return false;
    return true;
}

void chain_poll(struct fab_ep *ep, bool wait)
{
    struct chain_ep *e = (struct chain_ep *)ep;
    const struct fab_ops *ops = e->machines->ops;
    uint64_t next = wake(e);
    if (wait && next != UINT64_MAX && !e->done.first && all_wait(e)) {
        uint64_t now = ops->now(e->machines);
        ops->pause(e->machines, next > now ? next - now : 0);
    }
    ops->poll(e->machines, wait && next == UINT64_MAX && !e->done.first);
    while (e->done.first)
        drive(e, (struct chain_call *)(void *)fab_queue_take(&e->done));
}
