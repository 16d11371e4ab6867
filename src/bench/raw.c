#include "bench/raw.h"
#include "base/clock.h"
#include "base/err.h"
#include "bench/crew.h"
#include "bench/keys.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#define LINE         64u
#define SAMPLE_OPS   65536u /* of a longer run, between so many and twice as many are kept */
#define TOUCH_BYTES  65536u
#define REGION_ROUND 4096u

/* ---- recording ------------------------------------------------------------------------------- */

/* Makes room for one more entry; the arrays only ever double. */
static bool reserve(void **array, size_t *max, size_t count, size_t entry)
{
    if (count < *max)
        return true;
    size_t wanted = *max > 0 ? *max * 2 : 1024;
    void *grown = realloc(*array, wanted * entry);
    if (grown == NULL)
        return false;
    *array = grown;
    *max = wanted;
    return true;
}

static void give_up(struct recorder *r)
{
    r->status = fail(FAR_NO_MEMORY, "the sample of %zu batches", r->batches);
    r->on = false;
}

static void posted(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    struct recorder *r = (struct recorder *)tap;
    if (!r->on)
        return;
    for (unsigned i = 0; i < count; i++) {
        const struct fab_verb *v = &verbs[i];
        if (!reserve((void **)&r->verb, &r->verbs_max, r->verbs, sizeof *r->verb)) {
            give_up(r);
            return;
        }
        r->verb[r->verbs++] = (struct shape_verb){
            .kind = v->kind,
            .flags = v->flags & FAB_FENCE,
            .node = (uint8_t)v->node,
            .place = (uint8_t)(v->off % LINE),
            .len = v->len,
        };
    }
    if (!reserve((void **)&r->batch, &r->batches_max, r->batches + 1, sizeof *r->batch)) {
        give_up(r);
        return;
    }
    r->batch[++r->batches] = r->verbs;
    r->op[r->ops] = r->batches; /* the operation under way ends here, so far */
}

int recorder_init(struct recorder *r, uint64_t ops)
{
    *r = (struct recorder){
        .tap = {.posted = posted},
        .stride = ops > SAMPLE_OPS ? ops / SAMPLE_OPS : 1,
    };
    if (!reserve((void **)&r->batch, &r->batches_max, 0, sizeof *r->batch) ||
        !reserve((void **)&r->op, &r->ops_max, 0, sizeof *r->op)) {
        recorder_free(r);
        return fail(FAR_NO_MEMORY, "a recorder");
    }
    r->batch[0] = 0;
    r->op[0] = 0;
    return FAR_OK;
}

void recorder_free(struct recorder *r)
{
    free(r->verb);
    free(r->batch);
    free(r->op);
}

void recorder_attach(struct recorder *r, far_session *session)
{
    session->op.batch.tap = &r->tap;
}

void recorder_detach(struct recorder *r, far_session *session)
{
    session->op.batch.tap = NULL;
    r->on = false;
}

void recorder_next(struct recorder *r)
{
    if (r->status != FAR_OK)
        return;
    r->on = r->seen++ % r->stride == 0;
    if (!r->on)
        return;
    if (!reserve((void **)&r->op, &r->ops_max, r->ops + 1, sizeof *r->op)) {
        give_up(r);
        return;
    }
    r->op[r->ops + 1] = r->batches;
    r->ops++;
}

/* ---- replaying ------------------------------------------------------------------------------- */

struct raw_lane { /* one operation in flight */
    struct fab_req req;
    struct fab_verb verb[BATCH_MAX];
    unsigned char *buf;
    size_t begin, end; /* the operation's batches    */
    size_t batch;      /* of them, the one under way */
    bool active;
    uint64_t started;
};

struct raw_worker {
    const struct raw_load *load;
    const struct recorder *sample;
    struct fab *fab;
    unsigned thread;
    uint64_t lines; /* addresses to choose from, on each node */
    size_t buf_bytes;

    struct fab_ep *ep;
    struct raw_lane *lanes;
    uint64_t random; /* xorshift */
    size_t next;     /* operation of the sample */
    uint64_t left, busy;
    int status;
    struct hist latency;
};

static uint64_t random_line(struct raw_worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (uint64_t)(((unsigned __int128)w->random * w->lines) >> 64);
}

/*
 * What the batch before brought back: zero, but nobody knows before it is there. A batch that
 * builds on the one before it cannot start until that has arrived; where a verb is a plain load, a
 * processor that sees no such need runs ahead, and the yardstick would be longer than any index
 * could be.
 */
static uint64_t arrived(const struct raw_lane *l)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < l->req.count; i++)
        if (l->verb[i].kind != FAB_WRITE)
            seen |= *(const uint64_t *)l->verb[i].buf;
    return seen;
}

/* All memory is zero and stays so: every CAS of 0 for 0 succeeds and writes, as most do in
 * earnest. */
static void post_batch(struct raw_worker *w, struct raw_lane *l)
{
    const struct recorder *s = w->sample;
    if (l->batch == l->end) { /* an operation that needed no verb at all */
        l->req = (struct fab_req){.done = true};
        return;
    }

    size_t first = s->batch[l->batch], end = s->batch[l->batch + 1];
    unsigned char *buf = l->buf;
    uint64_t before = l->batch > l->begin ? arrived(l) : 0;
    for (size_t i = first; i < end; i++) {
        const struct shape_verb *shape = &s->verb[i];
        l->verb[i - first] = (struct fab_verb){
            .kind = shape->kind,
            .flags = shape->flags,
            .node = shape->node,
            .len = shape->len,
            .off = random_line(w) * LINE + shape->place + before,
            .buf = buf,
        };
        buf += (shape->len + LINE - 1) / LINE * LINE;
    }
    l->req = (struct fab_req){.verbs = l->verb, .count = (unsigned)(end - first)};
    int status = w->ep->ops->post(w->ep, &l->req);
    if (status != FAR_OK)
        l->req = (struct fab_req){.done = true, .status = status};
}

static bool stopped(const struct raw_load *load)
{
    return load->stop != NULL && atomic_load_explicit(load->stop, memory_order_relaxed);
}

/* Goes on with the lane's operation, or with another one while there are any to do. */
static void advance(struct raw_worker *w, struct raw_lane *l, uint64_t now)
{
    const struct recorder *s = w->sample;
    if (l->batch < l->end) {
        post_batch(w, l);
        return;
    }
    l->active = w->left > 0 && w->status == FAR_OK && !stopped(w->load);
    if (!l->active)
        return;
    w->left--;
    l->begin = l->batch = s->op[w->next];
    l->end = s->op[w->next + 1];
    l->started = now;
    w->next = w->next + 1 < s->ops ? w->next + 1 : 0;
    post_batch(w, l);
}

static void raw_run(void *arg)
{
    struct raw_worker *w = arg;
    unsigned depth = w->load->depth, active = 0;
    uint64_t start = clock_ns();

    for (unsigned i = 0; i < depth; i++) {
        advance(w, &w->lanes[i], start);
        active += w->lanes[i].active;
    }
    while (active > 0) {
        bool progress = false;
        for (unsigned i = 0; i < depth; i++) {
            struct raw_lane *l = &w->lanes[i];
            if (!l->active || !l->req.done)
                continue;
            progress = true;
            if (l->req.status != FAR_OK)
                w->status = l->req.status;
            if (l->batch < l->end)
                l->batch++;
            uint64_t now = 0;
            if (l->batch == l->end) { /* the clock is looked at as often as by the measured run */
                now = clock_ns();
                hist_record(&w->latency, now - l->started);
            }
            advance(w, l, now);
            active -= !l->active;
        }
        if (!progress)
            w->ep->ops->poll(w->ep, true);
    }
    w->busy = clock_ns() - start;
}

static int raw_open(void *arg)
{
    struct raw_worker *w = arg;
    unsigned depth = w->load->depth;

    hist_clear(&w->latency);
    int status = w->fab->ops->ep_open(w->fab, &w->ep);
    if (status != FAR_OK)
        return status;
    w->lanes = calloc(depth, sizeof *w->lanes);
    if (w->lanes == NULL)
        return fail(FAR_NO_MEMORY, "%u operations in flight", depth);
    for (unsigned i = 0; i < depth; i++) {
        w->lanes[i].buf = w->ep->ops->buf_alloc(w->ep, w->buf_bytes);
        if (w->lanes[i].buf == NULL)
            return fail(FAR_NO_MEMORY, "buffers for %u operations in flight", depth);
    }
    return FAR_OK;
}

static void raw_close(void *arg)
{
    struct raw_worker *w = arg;
    for (unsigned i = 0; w->lanes != NULL && i < w->load->depth; i++)
        if (w->lanes[i].buf != NULL)
            w->ep->ops->buf_free(w->ep, w->lanes[i].buf, w->buf_bytes);
    free(w->lanes);
    if (w->ep != NULL)
        w->ep->ops->ep_close(w->ep);
}

/* The most local bytes that a batch of the sample moves, and the longest of its verbs. */
static void sample_extent(const struct recorder *s, size_t *batch_bytes, uint32_t *verb_bytes)
{
    size_t most = LINE;
    uint32_t longest = LINE;
    for (size_t b = 0; b < s->batches; b++) {
        size_t bytes = 0;
        for (size_t i = s->batch[b]; i < s->batch[b + 1]; i++) {
            uint32_t len = (s->verb[i].len + LINE - 1) / LINE * LINE;
            bytes += len;
            if (len > longest)
                longest = len;
        }
        if (bytes > most)
            most = bytes;
    }
    *batch_bytes = most;
    *verb_bytes = longest;
}

/* Writes the whole region once, so that the measured part meets no page for the first time. */
static int touch(struct fab *fab, uint64_t region)
{
    struct fab_ep *ep = NULL;
    int status = fab->ops->ep_open(fab, &ep);
    if (status != FAR_OK)
        return status;
    void *zeros = ep->ops->buf_alloc(ep, TOUCH_BYTES);
    if (zeros == NULL)
        status = fail(FAR_NO_MEMORY, "a buffer of %u bytes", TOUCH_BYTES);

    for (unsigned node = 0; node < fab->nodes; node++) {
        for (uint64_t off = 0; off < region && status == FAR_OK; off += TOUCH_BYTES) {
            uint64_t len = region - off < TOUCH_BYTES ? region - off : TOUCH_BYTES;
            struct fab_verb verb = {
                .kind = FAB_WRITE,
                .node = (uint16_t)node,
                .len = (uint32_t)len,
                .off = off,
                .buf = zeros,
            };
            struct fab_req req = {.verbs = &verb, .count = 1};
            status = ep->ops->post(ep, &req);
            while (status == FAR_OK && !req.done)
                ep->ops->poll(ep, true);
            if (status == FAR_OK)
                status = req.status;
        }
    }
    if (zeros != NULL)
        ep->ops->buf_free(ep, zeros, TOUCH_BYTES);
    ep->ops->ep_close(ep);
    return status;
}

static int replay_on(struct fab *fab, const struct raw_load *load, const struct recorder *sample,
                     double *ops_per_s)
{
    size_t buf_bytes;
    uint32_t longest;
    sample_extent(sample, &buf_bytes, &longest);

    /* As much as the table takes, and at least room for the longest verb and for more than one
     * address of it. */
    uint64_t region = load->footprint / fab->nodes + 2 * (uint64_t)longest;
    region = (region + REGION_ROUND - 1) / REGION_ROUND * REGION_ROUND;
    for (unsigned node = 0; node < fab->nodes; node++)
        if (region > fab->size[node])
            region = fab->size[node];
    int status = touch(fab, region);
    if (status != FAR_OK)
        return status;

    struct raw_worker *workers = calloc(load->threads, sizeof *workers);
    void **members = calloc(load->threads, sizeof *members);
    if (workers == NULL || members == NULL) {
        status = fail(FAR_NO_MEMORY, "%u threads", load->threads);
        goto free_workers;
    }
    for (unsigned i = 0; i < load->threads; i++) {
        workers[i] = (struct raw_worker){
            .load = load,
            .sample = sample,
            .fab = fab,
            .thread = i,
            .lines = (region - longest) / LINE,
            .buf_bytes = buf_bytes,
            .random = key_mix(load->seed + i) | 1,
            .next = sample->ops * i / load->threads,
            .left = load->ops / load->threads + (i < load->ops % load->threads),
        };
        members[i] = &workers[i];
    }
    struct crew_job job = {.open = raw_open, .run = raw_run, .close = raw_close};
    status = crew_run(&job, members, load->threads);

    uint64_t busy = 1;
    for (unsigned i = 0; i < load->threads && status == FAR_OK; i++) {
        status = workers[i].status;
        if (status == FAR_OK && workers[i].left > 0)
            status = fail(FAR_TIMEOUT, "interrupted");
        if (workers[i].busy > busy)
            busy = workers[i].busy;
    }
    if (status == FAR_OK)
        *ops_per_s = (double)load->ops * 1e9 / (double)busy;

free_workers:
    free(members);
    free(workers);
    return status;
}

int raw_replay(const struct raw_load *load, const struct recorder *sample, double *ops_per_s)
{
    if (sample->ops == 0)
        return fail(FAR_INVALID, "no operation was sampled");

    struct fab *fab = NULL;
    int status = fab_open(load->pool, &fab);
    if (status != FAR_OK)
        return status;
    if (!fab->fresh)
        status = fail(FAR_UNSUPPORTED, "the raw measurement overwrites memory: it needs a pool of "
                                       "its own, such as mem:");
    else
        status = replay_on(fab, load, sample, ops_per_s);
    fab_close(fab);
    return status;
}
