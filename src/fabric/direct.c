/*
 * Verbs on mapped memory.
 *
 * The thread that posts them executes them, at once or, with the option defer=1, in a later poll.
 * Threads of one process and of several see the same coherent memory, so this code need not know
 * whether the memory is shared.
 *
 * Order. Pool memory is touched by atomic 8-byte accesses only: relaxed ones for READ and WRITE,
 * sequentially consistent ones for CAS, MCAS and FAA. The fabric promises more: every verb in
 * posting order (ORDER_ALL), and completed requests visible to all later ones (FABRIC-F4). It uses
 * the weakest fence that achieves this:
 *
 *   READ, then anything            acquire fence after the READ
 *   WRITE or atomic, then WRITE    release fence before the second
 *   WRITE, then atomic             the atomic is a release itself
 *   atomic, then atomic            both are sequentially consistent
 *   WRITE or atomic, then READ     full fence before the READ: an acquire-release atomic is not
 *                                  enough, its store may not be visible yet when the READ loads
 *   WRITE or atomic, at the end    full fence, for READs that are posted next, on any endpoint
 *
 * A request of READs alone, the common one, never pays for a full fence.
 *
 * Views (FABRIC-F6). A request that names a view is executed between two notes in its endpoint's
 * seat: the view, and that it is done. It asks the nodes for their views after the first note, and
 * fence_view() looks at all seats after it has raised the word. All four accesses are sequentially
 * consistent. So either the request finds the word raised and executes nothing, or fence_view()
 * finds it in its seat and answers FAB_PENDING. Processes do not see each other's seats. There,
 * what remains is a process that stands still between asking and the end of what it asked for: on
 * shm: batches ask again for every verb, and every 16 KiB of a WRITE (FAB_CAP_VIEW_PIECES).
 */
#include "fabric/direct.h"
#include "base/clock.h"
#include "fabric/superblock_layout.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* After this many lost races on one word the request fails with FAR_CONTENTION. Each loss is
 * another thread's success, so only a stuck machine gets there. */
#define MCAS_TRIES (1u << 24)

/* Shorter pauses only yield: a sleep would overshoot them by far. */
#define SLEEP_MIN_NS 50000

#if defined(__x86_64__)
#define ATOMICS_ARE_FENCES true /* a locked instruction is a full fence */
#else
#define ATOMICS_ARE_FENCES false
#endif

/* Only the beginning of a long READ is prefetched; the processor prefetches the rest itself. */
#define PREFETCH_MAX 512

/* Words are moved a line at a time, since compilers do not unroll loops of atomic accesses. */
#define LINE_WORDS 8

static inline uint64_t word_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void word_store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void words_load(uint64_t *to, const uint64_t *from, size_t words)
{
    for (; words >= LINE_WORDS; words -= LINE_WORDS, to += LINE_WORDS, from += LINE_WORDS) {
        uint64_t a = word_load(&from[0]), b = word_load(&from[1]);
        uint64_t c = word_load(&from[2]), d = word_load(&from[3]);
        uint64_t e = word_load(&from[4]), f = word_load(&from[5]);
        uint64_t g = word_load(&from[6]), h = word_load(&from[7]);

        to[0] = a, to[1] = b, to[2] = c, to[3] = d;
        to[4] = e, to[5] = f, to[6] = g, to[7] = h;
    }
    for (; words > 0; words--)
        *to++ = word_load(from++);
}

static inline void words_store(uint64_t *to, const uint64_t *from, size_t words)
{
    for (; words >= LINE_WORDS; words -= LINE_WORDS, to += LINE_WORDS, from += LINE_WORDS) {
        uint64_t a = from[0], b = from[1], c = from[2], d = from[3];
        uint64_t e = from[4], f = from[5], g = from[6], h = from[7];

        word_store(&to[0], a), word_store(&to[1], b);
        word_store(&to[2], c), word_store(&to[3], d);
        word_store(&to[4], e), word_store(&to[5], f);
        word_store(&to[6], g), word_store(&to[7], h);
    }
    for (; words > 0; words--)
        word_store(to++, *from++);
}

static int masked_cas(const struct fab_verb *v, uint64_t *word)
{
    uint64_t old = __atomic_load_n(word, __ATOMIC_SEQ_CST);

    for (unsigned i = 0; i < MCAS_TRIES; i++) {
        uint64_t new = (old & ~v->swap_mask) | (v->swap & v->swap_mask);

        if (((old ^ v->compare) & v->compare_mask) != 0 ||
            __atomic_compare_exchange_n(word, &old, new, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            *(uint64_t *)v->buf = old;
            return FAR_OK;
        }
    }
    return err_fail(FAR_CONTENTION, "a masked CAS lost %u races in a row", MCAS_TRIES);
}

static int execute_atomic(const struct fab_verb *v, uint64_t *word)
{
    uint64_t old;

    switch (v->kind) {
    case FAB_CAS:
        old = v->compare;
        __atomic_compare_exchange_n(word, &old, v->swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        *(uint64_t *)v->buf = old;
        return FAR_OK;
    case FAB_FAA:
        *(uint64_t *)v->buf = __atomic_fetch_add(word, v->swap, __ATOMIC_SEQ_CST);
        return FAR_OK;
    default:
        return masked_cas(v, word);
    }
}

/* Prefetches the memory of the READs behind the first verb; otherwise the fences between verbs
 * would serialize their cache misses. Forced inline, since gcc 12 drops calls of a function that
 * only prefetches as calls without effect. */
__attribute__((always_inline)) static inline void
prefetch(const struct direct_fab *d, const struct fab_verb *verbs, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        const struct fab_verb *v = &verbs[i];
        const char *at = d->base[v->node] + v->off;
        uint32_t len = v->len < PREFETCH_MAX ? v->len : PREFETCH_MAX;

        if (v->kind == FAB_READ) {
            for (uint32_t line = 0; line < len; line += 64)
                __builtin_prefetch(at + line);
        }
    }
}

static int execute(const struct direct_fab *d, const struct fab_verb *verbs, unsigned count)
{
    bool unfenced = false; /* there may be a store that a READ must not overtake */
    int rc = FAR_OK;

    prefetch(d, verbs, count);
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        const struct fab_verb *v = &verbs[i];
        uint64_t *word = (uint64_t *)(d->base[v->node] + v->off);

        if (v->kind == FAB_READ) {
            if (unfenced)
                __atomic_thread_fence(__ATOMIC_SEQ_CST);
            unfenced = false;
            words_load(v->buf, word, v->len / 8);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
        } else if (v->kind == FAB_WRITE) {
            if (unfenced)
                __atomic_thread_fence(__ATOMIC_RELEASE);
            words_store(word, v->buf, v->len / 8);
            unfenced = true;
        } else {
            rc = execute_atomic(v, word);
            unfenced = unfenced || !ATOMICS_ARE_FENCES;
        }
    }
    if (unfenced)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return rc;
}

void direct_read(const struct fab_ep *ep, const struct fab_verb *verbs, unsigned count)
{
    const struct direct_fab *d = (const struct direct_fab *)ep->fab;

    prefetch(d, verbs, count);
    for (const struct fab_verb *v = verbs; v < verbs + count; v++) {
        words_load(v->buf, (const uint64_t *)(d->base[v->node] + v->off), v->len / 8);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    }
}

const void *direct_at(const struct fab_ep *ep, unsigned node, uint64_t off, uint32_t bytes)
{
    const struct direct_fab *d = (const struct direct_fab *)ep->fab;
    bool inside =
        node < ep->fab->nodes && off <= ep->fab->size[node] && bytes <= ep->fab->size[node] - off;

    return inside ? d->base[node] + off : NULL;
}

/* ---- views ----------------------------------------------------------------------------------- */

static uint64_t *view_word(const struct direct_fab *d, unsigned node)
{
    return (uint64_t *)(void *)(d->base[node] + NODE_VIEW_OFF);
}

/* A damaged word may hold more: then every view is old. */
uint32_t direct_view(const struct direct_fab *d, unsigned node)
{
    uint64_t view = __atomic_load_n(view_word(d, node), __ATOMIC_SEQ_CST);

    return view < UINT32_MAX ? (uint32_t)view : UINT32_MAX;
}

void direct_raise_view(struct direct_fab *d, unsigned node, uint32_t view)
{
    uint64_t was = __atomic_load_n(view_word(d, node), __ATOMIC_SEQ_CST);

    while (was < view && !__atomic_compare_exchange_n(view_word(d, node), &was, view, false,
                                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue; /* ends: the word only grows */
}

int direct_fence_view(struct fab_ep *ep, unsigned node, uint32_t view)
{
    struct direct_fab *d = (struct direct_fab *)ep->fab;

    direct_raise_view(d, node, view);
    for (struct direct_seat *s = atomic_load(&d->seats); s; s = s->next)
        if (fab_view_is_old(atomic_load(&s->view), view))
            return FAB_PENDING;
    return FAR_OK;
}

/* The nodes that refuse it, as bits. Sets the detail to the first of them. */
static uint64_t refusing(struct fab_ep *ep, const struct fab_req *req)
{
    const struct direct_fab *d = (const struct direct_fab *)ep->fab;
    uint64_t nodes = 0;

    for (unsigned i = 0; i < req->count; i++) {
        unsigned node = req->verbs[i].node;
        uint32_t view = nodes >> node & 1 ? 0 : direct_view(d, node);

        if (!fab_view_is_old(req->view, view))
            continue;
        (void)fab_view_refused(ep, node, req->view, view);
        nodes |= 1ull << node;
    }
    return nodes;
}

/* If one of several nodes refuses the request, nothing of it is executed on the others either. Not
 * inlined: requests of no view must not save registers for it. */
static __attribute__((noinline)) int post_in_view(struct fab_ep *ep, struct fab_req *req)
{
    struct direct_seat *seat = ((struct direct_ep *)ep)->seat;

    atomic_store(&seat->view, req->view);
    int rc = refusing(ep, req) != 0
                 ? FAR_FENCED
                 : execute((const struct direct_fab *)ep->fab, req->verbs, req->count);
    atomic_store(&seat->view, 0);
    fab_complete(req, rc);
    return FAR_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

int direct_post(struct fab_ep *ep, struct fab_req *req)
{
    if (__builtin_expect(req->view != 0, 0))
        return post_in_view(ep, req);
    fab_complete(req, execute((const struct direct_fab *)ep->fab, req->verbs, req->count));
    return FAR_OK;
}

void direct_poll(struct fab_ep *ep, bool wait)
{
    (void)ep;
    (void)wait;
}

int direct_post_deferred(struct fab_ep *ep, struct fab_req *req)
{
    struct direct_ep *d = (struct direct_ep *)ep;

    req->done = false;
    req->next = NULL;
    ASSERT(!d->first || d->last != req); /* posted twice */
    if (d->first)
        d->last->next = req;
    else
        d->first = req;
    d->last = req;
    return FAR_OK;
}

void direct_poll_deferred(struct fab_ep *ep, bool wait)
{
    struct direct_ep *d = (struct direct_ep *)ep;
    struct fab_req *req = d->first;

    (void)wait;
    if (req) {
        d->first = req->next;
        direct_post(ep, req);
    }
}

int direct_wait_fds(struct fab_ep *ep, int fds[FAB_WAIT_FDS], unsigned *count)
{
    (void)ep;
    (void)fds;
    *count = 0;
    return FAR_OK;
}

bool direct_arm_deferred(struct fab_ep *ep, uint64_t *until)
{
    *until = UINT64_MAX;
    return !((struct direct_ep *)ep)->first;
}

void *direct_buf_alloc(struct fab_ep *ep, size_t bytes)
{
    void *buf;

    (void)ep;
    if (posix_memalign(&buf, 64, bytes))
        return NULL;
    return memset(buf, 0, bytes);
}

void direct_buf_free(struct fab_ep *ep, void *buf, size_t bytes)
{
    (void)ep;
    (void)bytes;
    free(buf);
}

uint64_t direct_now(struct fab_ep *ep)
{
    (void)ep;
    return clock_ns();
}

uint64_t direct_coarse(struct fab_ep *ep)
{
    (void)ep;
    return clock_coarse_ns();
}

void direct_pause(struct fab_ep *ep, uint64_t ns)
{
    (void)ep;
    if (ns < SLEEP_MIN_NS)
        sched_yield();
    else
        clock_sleep(ns);
}

static struct direct_seat *new_seat(struct direct_fab *d)
{
    struct direct_seat *seat = aligned_alloc(64, sizeof *seat);

    if (!seat)
        return NULL;
    *seat = (struct direct_seat){.taken = true, .next = atomic_load(&d->seats)};
    while (!atomic_compare_exchange_weak(&d->seats, &seat->next, seat))
        continue;
    return seat;
}

int direct_sit(struct direct_fab *d, struct direct_ep *ep)
{
    struct direct_seat *seat = atomic_load(&d->seats);

    while (seat && atomic_exchange(&seat->taken, true))
        seat = seat->next;
    ep->seat = seat ? seat : new_seat(d);
    return ep->seat
               ? FAR_OK
               : err_fail(FAR_NO_MEMORY, "no memory for an endpoint of %s:", d->fab.ops->scheme);
}

void direct_leave(struct direct_ep *ep)
{
    atomic_store(&ep->seat->taken, false);
}

void direct_end(struct direct_fab *d)
{
    struct direct_seat *seat = atomic_load(&d->seats), *next;

    for (; seat; seat = next) {
        next = seat->next;
        free(seat);
    }
}

int direct_ep_open(struct fab *fab, struct fab_ep **ep)
{
    struct direct_ep *d = calloc(1, sizeof *d);

    if (!d)
        return err_fail(FAR_NO_MEMORY, "no memory for an endpoint of %s:", fab->ops->scheme);
    d->ep.fab = fab;
    d->ep.ops = fab->ops;
    int rc = direct_sit((struct direct_fab *)fab, d);
    if (rc != FAR_OK) {
        free(d);
        return rc;
    }
    *ep = &d->ep;
    return FAR_OK;
}

void direct_ep_close(struct fab_ep *ep)
{
    direct_leave((struct direct_ep *)ep);
    free(ep);
}

/* ---- opening --------------------------------------------------------------------------------- */

int direct_options(struct uri *uri, uint64_t size_default, uint64_t nodes_default,
                   struct direct_options *options)
{
    struct direct_options o;
    int rc =
        uri_size(uri, "size", size_default, DIRECT_NODE_BYTES_MIN, DIRECT_NODE_BYTES_MAX, &o.size);

    if (rc == FAR_OK)
        rc = uri_number(uri, "nodes", nodes_default, 1, FAB_NODES_MAX, &o.nodes);
    if (rc == FAR_OK)
        rc = fab_pool_options(uri, &o.pool);
    if (rc == FAR_OK)
        rc = uri_number(uri, "defer", 0, 0, 1, &o.defer);
    if (rc == FAR_OK)
        rc = uri_number(uri, "groups", 0, 0, 1, &o.groups);
    if (rc == FAR_OK)
        rc = uri_number(uri, "wait", FAB_WAIT_AS_MADE, FAB_WAIT_NOT, FAB_WAIT, &o.wait);
    if (rc == FAR_OK)
        rc = uri_finish(uri);
    if (rc != FAR_OK)
        return rc;
    o.size &= ~63ull;
    *options = o;
    return FAR_OK;
}

void direct_init(struct direct_fab *d, const struct direct_options *options,
                 const struct fab_ops *ops, const struct fab_ops *deferred_ops)
{
    d->fab.ops = options->defer ? deferred_ops : ops;
    d->fab.caps = FAB_CAP_MCAS | FAB_CAP_LOCAL | (options->defer ? 0 : FAB_CAP_IMMEDIATE);
    d->fab.order = ORDER_ALL;
    fab_set_options(&d->fab, &options->pool);
    d->fab.wait = (enum fab_wait)options->wait;
    d->fab.groups = options->defer ? options->groups : 0;
}
