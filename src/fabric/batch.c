/*
 * Batches: deciding what a fence costs, posting, waiting, counting.
 *
 * A builder checks its verb and writes it down; a fence is only marked on the verb that follows
 * it. The flush turns the marks into what this fabric needs (plan()): nothing, FAB_FENCE, or a
 * second post. A batch without fences and without emulated verbs, which is nearly every one, goes
 * out as it stands.
 *
 * Pieces. Where a client that stands still cannot be shut out, and others may not know that its
 * process lives (FAB_CAP_PIECES), a post that writes goes out in pieces, one after another: long
 * WRITEs are cut, and every verb is by itself. Each piece asks again whether it may write. So what
 * a client does after it has stood still is one piece at most. On shm: so does a post that names a
 * view, and each piece asks the node for its view (FAB_CAP_VIEW_PIECES).
 *
 * Masked CAS on a fabric that has none: the verb goes out as a CAS that expects the whole of
 * `compare`, and is repeated from the word it found for as long as only bits outside the compare
 * mask were in the way. Verbs that the fabric would have ordered after it wait for its outcome.
 */
#include "fabric/batch.h"
#include "base/fiber.h"
#include "fabric/direct.h"

#include <string.h>

/* Bits of a verb's flags that mean something to the flush only. */
#define STARTS_POST   0x40u /* all verbs before this one complete before it is posted */
#define EMULATED_MCAS 0x80u /* a CAS that stands for a masked one                     */

/* Attempts at one emulated masked CAS; each failure is another client's success. */
#define MCAS_TRIES 1024

static void empty(struct batch *b)
{
    if (!b->plain)
        memset(b->fence, 0, sizeof b->fence);
    b->plain = true;
    b->error = FAR_OK;
    b->count = 0;
    b->limit = BATCH_MAX;
    b->bytes_read = 0;
    b->bytes_written = 0;
}

void batch_init(struct batch *b, struct fab_ep *ep, struct cost *cost)
{
    b->ep = ep;
    b->cost = cost;
    b->tap = NULL;
    b->policy = NULL;
    b->on_ring = false;
    b->ring = NULL;
    b->acted = b->carries = b->in_doubt = b->refused = b->outside_views = false;
    b->completed = b->doubt_at = b->doubt_end = 0;
    b->wake_at = 0;
    b->plain = false;
    empty(b);
}

void batch_reject(struct batch *b, const struct fab_verb *verb)
{
    if (b->error)
        return;
    if (b->count == BATCH_MAX)
        b->error = err_fail(FAR_INVALID, "more than %d verbs in a batch", BATCH_MAX);
    else
        b->error = fab_check(b->ep->fab, verb);
}

/* ---- planning -------------------------------------------------------------------------------- */

/* Is there a class in the set (by bits) whose verbs the fabric does not keep before `second`? */
static bool some_unordered(unsigned order, unsigned classes, enum fab_class second)
{
    for (unsigned first = FAB_R; first <= FAB_A; first++) {
        if ((classes & (1u << first)) && !(order & ORDER(first, second)))
            return true;
    }
    return false;
}

/*
 * Decides what becomes of every fence that was asked for, and marks masked CAS to be emulated.
 *
 * A fence holds for every verb behind it, so the classes before it are compared with each of
 * those, until a FAB_FENCE settles the matter for their node. Between nodes there is no fence
 * but to wait: a verb that must come after one on another node starts a new post.
 *
 * `since` and `since_nodes` gather what this post holds so far, since its last FAB_FENCE and at
 * all; `before` and `before_nodes` are what they were at the last fence that was asked for. When
 * classes are compared, all that came before the fence went to the verb's own node.
 */
static void plan(struct batch *b)
{
    const struct fab *fab = b->ep->fab;
    bool emulate = !(fab->caps & FAB_CAP_MCAS);
    unsigned since = 0, before = 0;
    uint64_t since_nodes = 0, before_nodes = 0, mcas_nodes = 0;

    for (unsigned i = 0; i < b->count; i++) {
        struct fab_verb *v = &b->verb[i];
        enum fab_class class = fab_class_of(v->kind);
        uint64_t node = 1ull << v->node;
        bool split, unordered, fenced = b->fence[i / 64] >> i % 64 & 1;
        if (fenced) {
            before = since;
            before_nodes = since_nodes;
        }
        unordered = some_unordered(fab->order, before, class);
        split = (before_nodes & ~node) != 0 ||
                ((mcas_nodes & node) && (unordered || (fab->order & ORDER(FAB_A, class))));
        v->flags &= FAB_MAY_BE_FREED | FAB_MARK;
        v->flags |= (split ? STARTS_POST : unordered ? FAB_FENCE : 0) | (fenced ? FAB_PART : 0);
        if (split)
            since_nodes = before_nodes = mcas_nodes = 0;
        if (split || unordered)
            since = before = 0;
        since |= 1u << class;
        since_nodes |= node;
        if (v->kind == FAB_MCAS && emulate) {
            v->kind = FAB_CAS;
            v->flags |= EMULATED_MCAS;
            v->swap = (v->compare & ~v->swap_mask) | (v->swap & v->swap_mask);
            mcas_nodes |= node;
        }
    }
}

/* ---- rings ----------------------------------------------------------------------------------- */

void batch_sleep(struct batch *b, struct fab_queue *queue)
{
    ASSERT(b->ring);
    fab_queue_add(queue, &b->req);
    fiber_yield();
}

void batch_wake(struct fab_queue *queue)
{
    struct fab_req *req = fab_queue_take(queue);
    if (req)
        fab_queue_add(&batch_of(req)->ring->ready, req);
}

/* Adds to the heap. */
static void pausing_add(struct batch_ring *ring, struct batch *b)
{
    unsigned i = ring->pausing_count++;
    for (unsigned up; i > 0 && ring->pausing[up = (i - 1) / 2]->wake_at > b->wake_at; i = up)
        ring->pausing[i] = ring->pausing[up];
    ring->pausing[i] = b;
}

/* Takes the first of the heap. */
static struct batch *pausing_take(struct batch_ring *ring)
{
    struct batch *first = ring->pausing[0], *moved = ring->pausing[--ring->pausing_count];
    unsigned count = ring->pausing_count, i = 0;
    for (unsigned down; (down = 2 * i + 1) < count; i = down) {
        if (down + 1 < count && ring->pausing[down + 1]->wake_at < ring->pausing[down]->wake_at)
            down++;
        if (ring->pausing[down]->wake_at >= moved->wake_at)
            break;
        ring->pausing[i] = ring->pausing[down];
    }
    ring->pausing[i] = moved;
    return first;
}

struct batch *batch_ring_next(struct batch_ring *ring, uint64_t now)
{
    if (ring->ready.first)
        return batch_of(fab_queue_take(&ring->ready));
    if (ring->turns.first && batch_may_post(batch_of(ring->turns.first)))
        return batch_of(fab_queue_take(&ring->turns));
    return batch_ring_wakes(ring) <= now ? pausing_take(ring) : NULL;
}

/* ---- posting --------------------------------------------------------------------------------- */

static bool may_write(const struct batch *b)
{
    const struct batch_policy *policy = b->policy;

    return !policy || !policy->may_write || policy->may_write(policy);
}

/* On a ring, waits while the endpoint has as many verbs under way as its NIC bears. A call that is
 * not on the ring does not wait: nothing drives the ring meanwhile. */
static void await_turn(struct batch *b, unsigned count)
{
    struct fab_ep *ep = b->ep;

    if (ep->fab->outstanding == 0 || !b->on_ring)
        return;
    b->wants = count;
    b->ticket = ep->ticket_next++;
    while (!batch_may_post(b)) {
        if (b->ring)
            fab_queue_add(&b->ring->turns, &b->req);
        fiber_yield();
    }
    ep->ticket_served++;
    b->wants = 0;
}

/* The view that its requests name. */
static uint32_t view_of(const struct batch *b)
{
    return b->outside_views ? 0 : fab_view(b->ep);
}

/* The post waits for another client. */
static __attribute__((noinline)) void held_up(struct batch *b)
{
    if (!b->req.done && b->policy && b->policy->held_up)
        b->policy->held_up(b->policy, b->req.held_by - 1);
    b->req.held_by = 0; /* not before: if it is done meanwhile, nobody need resume this fiber */
}

static int post_one(struct batch *b, struct fab_verb *verbs, unsigned count)
{
    struct fab_ep *ep = b->ep;

    b->req.view = view_of(b);
    b->req.verbs = verbs;
    b->req.count = count;
    b->req.done = false;
    b->req.away = 0;
    b->req.rest_done = false;
    memset(&b->req.more, 0, sizeof b->req.more);
    b->req.held_by = 0;
    b->req.tell = NULL; /* what is done at once is not waited for */
    int rc = ep->ops->post(ep, &b->req);
    if (rc != FAR_OK)
        return rc;
    b->req.tell = b->ring ? &b->ring->ready : NULL;
    while (!b->req.done) { /* by FABRIC-F5 every request completes */
        if (b->on_ring)
            fiber_yield();
        else
            ep->ops->poll(ep, true);
        if (__builtin_expect(b->req.held_by != 0, 0))
            held_up(b);
    }
    b->in_doubt = status_in_doubt(b->req.status);
    if (b->req.more.verbs > 0) {
        b->cost->rtts += b->req.more.rtts;
        b->cost->verbs += b->req.more.verbs;
        b->cost->bytes_read += b->req.more.read;
        b->cost->bytes_written += b->req.more.written;
    }
    return b->req.status;
}

#define VIEW_TURNS 16

/* Did nodes refuse the post because of its view, and did all others execute it? */
static bool is_of_old_view(const struct batch *b, int rc)
{
    return (rc == FAR_FENCED || (rc == FAR_UNKNOWN && b->req.rest_done)) && b->policy &&
           b->policy->learn && !b->outside_views &&
           __atomic_load_n(&b->ep->view_refused, __ATOMIC_RELAXED) > b->req.view;
}

/* Learns the newest view, unless another batch has since, and may still write then. */
static int learn_view(struct batch *b, bool writes)
{
    int rc = FAR_OK;

    if (fab_view(b->ep) <= b->req.view)
        rc = b->policy->learn(b->policy);
    if (rc == FAR_OK && writes && !may_write(b))
        rc = err_fail(FAR_FENCED, "%s", b->policy->refusal);
    return rc;
}

/* Posts again what did not happen, in the newest view. So whoever flushes does not notice that a
 * view has begun. Once a part of the post was executed, a failure leaves the whole in doubt. */
static __attribute__((noinline)) int post_in_new_view(struct batch *b, const struct fab_verb *verbs,
                                                      unsigned count, bool writes, int rc)
{
    struct fab_verb again[BATCH_MAX + PIGGYBACK_VERBS];
    bool executed = false;

    ASSERT(count <= sizeof again / sizeof *again);
    memcpy(again, verbs, count * sizeof *again);
    for (unsigned turn = 0; turn < VIEW_TURNS && is_of_old_view(b, rc); turn++) {
        uint64_t nodes = rc == FAR_FENCED ? UINT64_MAX : b->req.away;
        unsigned left = 0;

        executed |= rc != FAR_FENCED;
        for (unsigned i = 0; i < count; i++)
            if (nodes >> again[i].node & 1)
                again[left++] = again[i];
        count = left;
        b->in_doubt = false;
        rc = learn_view(b, writes);
        if (rc != FAR_OK)
            break;
        rc = post_one(b, again, count);
    }
    if (rc == FAR_OK || !executed)
        return rc;
    b->req.away = 0;
    b->in_doubt = true;
    return FAR_UNKNOWN;
}

static int post_in_view(struct batch *b, struct fab_verb *verbs, unsigned count, bool writes)
{
    int rc = post_one(b, verbs, count);

    return __builtin_expect(rc != FAR_OK, 0) && is_of_old_view(b, rc)
               ? post_in_new_view(b, verbs, count, writes, rc)
               : rc;
}

/* Posts a part of a verb, if it may still write. Once something was written, a failure leaves the
 * outcome of the whole in doubt, though that of the piece may be known. */
static int post_piece(struct batch *b, struct fab_verb *piece, bool *written)
{
    bool writes = piece->kind != FAB_READ;
    int rc = FAR_FENCED;

    if (!writes || may_write(b))
        rc = post_in_view(b, piece, 1, writes);
    else
        (void)err_fail(FAR_FENCED, "%s", b->policy->refusal);
    if (rc != FAR_OK && *written) {
        b->in_doubt = true;
        return FAR_UNKNOWN;
    }
    *written |= writes;
    return rc;
}

#define PIECE_BYTES (16u << 10)

static int post_in_pieces(struct batch *b, struct fab_verb *verbs, unsigned count)
{
    bool written = false;
    int rc = FAR_OK;

    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        struct fab_verb piece = verbs[i];
        uint32_t left = piece.len, most = piece.kind == FAB_WRITE ? PIECE_BYTES : left;

        for (; left > 0 && rc == FAR_OK; left -= piece.len) {
            piece.len = left < most ? left : most;
            rc = post_piece(b, &piece, &written);
            piece.off += piece.len;
            piece.buf = (char *)piece.buf + piece.len;
        }
    }
    return rc;
}

static bool goes_in_pieces(const struct batch *b)
{
    unsigned caps = b->ep->fab->caps;

    return (caps & FAB_CAP_PIECES) || ((caps & FAB_CAP_VIEW_PIECES) && view_of(b) != 0);
}

static int post_and_wait(struct batch *b, struct fab_verb *verbs, unsigned count, bool writes)
{
    struct fab_ep *ep = b->ep;

    await_turn(b, count);

    if (writes && !may_write(b))
        return err_fail(FAR_FENCED, "%s", b->policy->refusal);
    if (b->tap)
        b->tap->posted(b->tap, verbs, count);
    ep->under_way += count;
    bool pieces = writes && goes_in_pieces(b);
    int rc = pieces ? post_in_pieces(b, verbs, count) : post_in_view(b, verbs, count, writes);
    ep->under_way -= count;
    if (pieces && rc == FAR_FENCED) /* the first piece that writes was refused */
        return rc;
    b->posted = rc;
    if (status_in_doubt(rc) && writes && b->policy)
        b->policy->failed(b->policy);
    return rc;
}

/* One of several posts of a batch. */
static int post_part(struct batch *b, struct fab_verb *verbs, unsigned count)
{
    struct cost *cost = b->cost;
    bool writes = false, acts = false;

    cost->rtts++;
    cost->verbs += count;
    for (unsigned i = 0; i < count; i++) {
        const struct fab_verb *v = &verbs[i];

        cost->rtts += (v->flags & FAB_FENCE) != 0;
        cost->bytes_read += v->kind == FAB_WRITE ? 0 : v->len;
        cost->bytes_written += v->kind == FAB_READ ? 0 : v->len;
        writes |= v->kind != FAB_READ;
        acts |= v->kind > FAB_WRITE;
    }
    int rc = post_and_wait(b, verbs, count, writes);
    b->acted |= acts && rc == FAR_OK;
    return rc;
}

/* Repeats a CAS that stands for a masked one until the mask decides. Every word that is tried
 * agrees with the first under the compare mask, and every swap with the first under the swap
 * mask, so nothing of the original verb is lost by overwriting it. */
static int finish_mcas(struct batch *b, struct fab_verb *v)
{
    for (unsigned i = 1;; i++) {
        uint64_t old = *(uint64_t *)v->buf, before = v->compare;

        if (old == v->compare || ((old ^ v->compare) & v->compare_mask) != 0)
            return FAR_OK;
        if (i == MCAS_TRIES)
            return err_fail(FAR_CONTENTION, "an emulated masked CAS lost %u races in a row",
                            MCAS_TRIES);
        v->flags &= FAB_MARK;
        v->compare = old;
        v->swap = (old & ~v->swap_mask) | (v->swap & v->swap_mask);
        int rc = post_part(b, v, 1);
        if (rc != FAR_OK) {
            v->compare = before; /* does not match the word: no swap is known */
            return rc;
        }
    }
}

/* ---- piggybacked verbs ----------------------------------------------------------------------- */

static struct batch_piggyback *piggyback_of(const struct batch *b)
{
    return b->policy ? b->policy->piggyback : NULL;
}

static bool may_append(const struct batch_piggyback *piggyback)
{
    return piggyback->due && !piggyback->posted && !piggyback->withheld;
}

static bool is_due(struct batch_piggyback *piggyback)
{
    if (!piggyback)
        return false;
    if (++piggyback->flushes >= PIGGYBACK_LOOK)
        piggyback->look(piggyback);
    return may_append(piggyback);
}

/* Adds them to a post that starts at `first` and ends the batch, if it has room. If it has none and
 * they are urgent, the post becomes two. Returns where the post ends now. */
static unsigned append_piggyback(struct batch *b, unsigned first)
{
    struct batch_piggyback *piggyback = piggyback_of(b);
    unsigned end = b->count;
    bool fits = end - first + PIGGYBACK_VERBS <= BATCH_MAX;

    if (!piggyback || !may_append(piggyback) || !may_write(b) || (!fits && !piggyback->urgent))
        return end;
    piggyback->due = piggyback->urgent = false;
    piggyback->posted = b->carries = true;
    b->limit = end + PIGGYBACK_VERBS;
    b->fence[end / 64] &= ~(1ull << end % 64);
    piggyback->add(piggyback, b);
    ASSERT(b->count <= b->limit);
    return fits ? b->count : end - PIGGYBACK_VERBS;
}

/* A post has failed: what that means for the batch's own verbs in it. Their outcome is known if
 * they are READs or go to nodes that nothing was sent to, whatever became of piggybacked verbs. */
static int own_status(struct batch *b, unsigned first, unsigned next, int rc)
{
    uint64_t nodes = 0;
    bool writes = false;

    for (unsigned i = first; i < next && i < b->own; i++) {
        nodes |= 1ull << b->verb[i].node;
        writes |= b->verb[i].kind != FAB_READ;
    }
    if (nodes == 0) /* piggybacked verbs alone: its own have completed before */
        return rc;
    if (b->in_doubt && (nodes & ~b->req.away) == 0)
        b->in_doubt = false;
    else if (writes || rc != FAR_UNKNOWN)
        return rc;
    return b->req.away ? b->req.away_status : FAR_UNREACHABLE;
}

/* For batch_outcome(): what is known of the verbs of a post that has come back. Returns their
 * status. */
static int note_post(struct batch *b, unsigned first, unsigned next, int rc)
{
    if (rc == FAR_OK) {
        b->completed = next;
        return rc;
    }
    rc = own_status(b, first, next, rc);
    if (b->in_doubt) {
        b->doubt_at = first;
        b->doubt_end = next;
    }
    return rc;
}

/* A batch that takes several posts: one after another. */
static int flush_planned(struct batch *b)
{
    unsigned next;

    plan(b);
    for (unsigned first = 0; first < b->count; first = next) {
        next = first + 1;
        while (next < b->count && !(b->verb[next].flags & STARTS_POST))
            next++;
        if (next == b->count)
            next = append_piggyback(b, first);
        int rc = note_post(b, first, next, post_part(b, &b->verb[first], next - first));
        for (unsigned i = first; i < next && rc == FAR_OK; i++) {
            if (b->verb[i].flags & EMULATED_MCAS) {
                rc = finish_mcas(b, &b->verb[i]);
                if (b->in_doubt)
                    rc = note_post(b, i, i + 1, rc);
            }
        }
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

static int flush_plain(struct batch *b)
{
    b->cost->rtts++;
    b->cost->verbs += b->count;
    b->cost->bytes_read += b->bytes_read;
    b->cost->bytes_written += b->bytes_written;
    return note_post(b, 0, b->count, post_and_wait(b, b->verb, b->count, b->bytes_written > 0));
}

/* All but READs that are done at once. */
static __attribute__((noinline)) int flush_any(struct batch *b, bool due)
{
    struct batch_piggyback *piggyback = piggyback_of(b);
    int rc = b->error;

    b->carries = false;
    b->posted = FAR_OK;
    b->own = b->count;
    if (rc != FAR_OK || b->count == 0) {
        b->refused |= rc != FAR_OK;
        empty(b);
        return rc;
    }
    if (b->plain && !(due && piggyback->urgent && batch_room(b) < PIGGYBACK_VERBS)) {
        if (due)
            (void)append_piggyback(b, 0);
        rc = flush_plain(b);
    } else {
        rc = flush_planned(b);
    }
    bool carries = b->carries;
    empty(b);
    if (carries) {
        piggyback->posted = false;
        piggyback->completed(piggyback, b->posted != FAR_OK ? b->posted : rc);
    }
    return rc;
}

int(batch_flush)(struct batch *b)
{
    struct fab_ep *ep = b->ep;
    bool due = b->error == FAR_OK && b->count > 0 && is_due(piggyback_of(b));

    b->acted = b->in_doubt = false;
    b->completed = b->doubt_end = 0;
    /* READs that are done at once, and that nobody watches, need no turn, no policy, no view and no
     * request. */
    if (ep->ops->post != direct_post || !b->plain || due || b->error || b->bytes_written ||
        b->tap || fab_view(ep) != 0)
        return flush_any(b, due);
    if (b->count > 0) {
        b->cost->rtts++;
        b->cost->verbs += b->count;
        b->cost->bytes_read += b->bytes_read;
        direct_read(ep, b->verb, b->count);
        b->completed = b->count;
        empty(b);
    }
    return FAR_OK;
}

bool batch_is_mapped(const struct batch *b)
{
    return b->ep->ops->post == direct_post;
}

const void *batch_mapped(const struct batch *b, gaddr at, uint64_t delta, uint32_t bytes)
{
    return batch_is_mapped(b) ? direct_at(b->ep, gaddr_node(at), gaddr_offset(at) + delta, bytes)
                              : NULL;
}

void batch_pause(struct batch *b, uint64_t ns)
{
    struct batch_piggyback *piggyback = piggyback_of(b);
    if (piggyback) /* much time may have passed when the next flush comes */
        piggyback->flushes = PIGGYBACK_LOOK;
    if (!b->on_ring) {
        b->ep->ops->pause(b->ep, ns);
        return;
    }
    b->wake_at = batch_now(b) + ns;
    if (b->ring)
        pausing_add(b->ring, b);
    do /* once in any case: if it takes longer to read the clock, others would never run */
        fiber_yield();
    while (!b->ring && batch_now(b) < b->wake_at);
    b->wake_at = 0;
}
