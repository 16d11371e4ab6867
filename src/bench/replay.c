#include "bench/replay.h"
#include "base/clock.h"
#include "base/err.h"
#include "bench/scratch.h"
#include "bench/keys.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#define LINE        64u
#define SAMPLE_OPS  65536u         /* of a longer run, this many to twice as many are kept */
#define SHARED_ROOM (512ull << 20) /* for a sample that processes share */

/* ---- recording ------------------------------------------------------------------------------- */

/* Makes room for one more entry, by doubling the array. */
static bool reserve(void **array, size_t *max, size_t count, size_t entry)
{
    if (count < *max)
        return true;
    size_t wanted = *max > 0 ? *max * 2 : 1024;
    void *grown = realloc(*array, wanted * entry);
    if (!grown)
        return false;
    *array = grown;
    *max = wanted;
    return true;
}

static void give_up(struct replay_recorder *r)
{
    r->status = err_fail(FAR_NO_MEMORY, "no memory for the sample of %zu batches", r->batches);
    r->on = false;
}

static void posted(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    struct replay_recorder *r = (struct replay_recorder *)tap;
    if (!r->on)
        return;
    for (unsigned i = 0; i < count; i++) {
        const struct fab_verb *v = &verbs[i];
        if (!reserve((void **)&r->verb, &r->verbs_max, r->verbs, sizeof *r->verb)) {
            give_up(r);
            return;
        }
        r->verb[r->verbs++] = (struct replay_verb){
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
    r->op[r->ops] = r->batches; /* so far, the current operation ends here */
}

int replay_recorder_init(struct replay_recorder *r, uint64_t ops)
{
    *r = (struct replay_recorder){
        .tap = {.posted = posted},
        .stride = ops > SAMPLE_OPS ? ops / SAMPLE_OPS : 1,
    };
    if (!reserve((void **)&r->batch, &r->batches_max, 0, sizeof *r->batch) ||
        !reserve((void **)&r->op, &r->ops_max, 0, sizeof *r->op)) {
        replay_recorder_free(r);
        return err_fail(FAR_NO_MEMORY, "no memory for a recorder");
    }
    r->batch[0] = 0;
    r->op[0] = 0;
    return FAR_OK;
}

void replay_recorder_free(struct replay_recorder *r)
{
    free(r->verb);
    free(r->batch);
    free(r->op);
}

void replay_recorder_attach(struct replay_recorder *r, far_session *session)
{
    session->op.batch.tap = &r->tap;
}

void replay_recorder_detach(struct replay_recorder *r, far_session *session)
{
    session->op.batch.tap = NULL;
    r->on = false;
}

void replay_recorder_next(struct replay_recorder *r)
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

struct replay_lane { /* one operation in flight */
    struct fab_req req;
    struct fab_verb verb[BATCH_MAX];
    unsigned char *buf;
    size_t begin, end; /* the operation's batches */
    size_t batch;      /* the current one of them */
    bool active;
    uint64_t started;
};

/* What the workers have in common. Processes share it, and what it points to. */
struct replay {
    enum bench_order order;
    struct replay_load load;
    struct replay_recorder sample;
    struct scratch scratch;
    uint64_t lines; /* of a piece of scratch memory, at which the longest verb can begin */
    size_t buf_bytes;
    unsigned count;
    struct replay_worker *workers;
};

struct replay_worker {
    const struct replay *replay;
    struct fab *fab;
    const atomic_bool *stop;

    struct fab_ep *ep;
    struct replay_lane *lanes;
    uint64_t random; /* xorshift */
    size_t next;     /* operation of the sample */
    uint64_t left, busy;
    int status;
    struct hist latency;
};

/* The offset of a random line in the node's scratch memory. */
static uint64_t random_line(struct replay_worker *w, unsigned node)
{
    const struct replay *r = w->replay;
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    /* The upper half of the product is the piece; the lower half is still random. */
    unsigned __int128 pick = (unsigned __int128)w->random * r->scratch.pieces;
    uint64_t piece = r->scratch.piece[node * r->scratch.pieces + (unsigned)(pick >> 64)];
    return piece + (uint64_t)(((unsigned __int128)(uint64_t)pick * r->lines) >> 64) * LINE;
}

/*
 * What the previous batch read: always zero, but the processor cannot know that before the data is
 * there. In an index, a batch uses the results of the previous one and cannot start earlier. Where
 * a verb is a plain load, a processor without this dependency would run ahead, and the replay would
 * reach a throughput that no index can.
 */
static uint64_t arrived(const struct replay_lane *l)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < l->req.count; i++)
        if (l->verb[i].kind != FAB_WRITE)
            seen |= *(const uint64_t *)l->verb[i].buf;
    return seen;
}

/* All scratch memory is and stays zero, so every CAS from 0 to 0 succeeds and writes, as most do in
 * a real run. */
static void post_batch(struct replay_worker *w, struct replay_lane *l)
{
    const struct replay_recorder *s = &w->replay->sample;
    if (l->batch == l->end) { /* an operation without verbs */
        l->req = (struct fab_req){.done = true};
        return;
    }

    size_t first = s->batch[l->batch], end = s->batch[l->batch + 1];
    unsigned char *buf = l->buf;
    uint64_t before = l->batch > l->begin ? arrived(l) : 0;
    for (size_t i = first; i < end; i++) {
        const struct replay_verb *shape = &s->verb[i];
        l->verb[i - first] = (struct fab_verb){
            .kind = shape->kind,
            .flags = shape->flags,
            .node = shape->node,
            .len = shape->len,
            .off = random_line(w, shape->node) + shape->place + before,
            .buf = buf,
        };
        buf += (shape->len + LINE - 1) / LINE * LINE;
    }
    ASSERT(end - first <= BATCH_MAX && buf <= l->buf + w->replay->buf_bytes);
    l->req = (struct fab_req){.verbs = l->verb, .count = (unsigned)(end - first)};
    int rc = w->ep->ops->post(w->ep, &l->req);
    if (rc != FAR_OK)
        l->req = (struct fab_req){.done = true, .status = rc};
}

static bool stopped(const struct replay_worker *w)
{
    return w->stop && atomic_load_explicit(w->stop, memory_order_relaxed);
}

/* Continues the lane's operation, or starts another one if there are any left. */
static void advance(struct replay_worker *w, struct replay_lane *l, uint64_t now)
{
    const struct replay_recorder *s = &w->replay->sample;
    if (l->batch < l->end) {
        post_batch(w, l);
        return;
    }
    l->active = w->left > 0 && w->status == FAR_OK && !stopped(w);
    if (!l->active)
        return;
    w->left--;
    l->begin = l->batch = s->op[w->next];
    l->end = s->op[w->next + 1];
    l->started = now;
    w->next = w->next + 1 < s->ops ? w->next + 1 : 0;
    post_batch(w, l);
}

static void worker_run(void *arg)
{
    struct replay_worker *w = arg;
    unsigned depth = w->replay->load.depth, active = 0;
    uint64_t start = clock_ns();

    for (unsigned i = 0; i < depth; i++) {
        advance(w, &w->lanes[i], start);
        active += w->lanes[i].active;
    }
    while (active > 0) {
        bool progress = false;
        for (unsigned i = 0; i < depth; i++) {
            struct replay_lane *l = &w->lanes[i];
            if (!l->active || !l->req.done)
                continue;
            progress = true;
            if (l->req.status != FAR_OK)
                w->status = l->req.status;
            if (l->batch < l->end)
                l->batch++;
            uint64_t now = 0;
            if (l->batch == l->end) { /* reads the clock as often as the measured run does */
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

static int worker_open(void *arg)
{
    struct replay_worker *w = arg;
    unsigned depth = w->replay->load.depth;

    hist_clear(&w->latency);
    int rc = w->fab->ops->ep_open(w->fab, &w->ep);
    if (rc != FAR_OK)
        return rc;
    w->lanes = calloc(depth, sizeof *w->lanes);
    if (!w->lanes)
        return err_fail(FAR_NO_MEMORY, "no memory for %u operations in flight", depth);
    for (unsigned i = 0; i < depth; i++) {
        w->lanes[i].buf = w->ep->ops->buf_alloc(w->ep, w->replay->buf_bytes);
        if (!w->lanes[i].buf)
            return err_fail(FAR_NO_MEMORY, "no memory for the buffers of %u operations", depth);
    }
    return FAR_OK;
}

static void worker_close(void *arg)
{
    struct replay_worker *w = arg;
    for (unsigned i = 0; w->lanes && i < w->replay->load.depth; i++)
        if (w->lanes[i].buf)
            w->ep->ops->buf_free(w->ep, w->lanes[i].buf, w->replay->buf_bytes);
    free(w->lanes);
    if (w->ep)
        w->ep->ops->ep_close(w->ep);
}

/* The largest number of local bytes of a batch, and the longest verb, including the bytes before it
 * in its line. */
static void sample_extent(const struct replay_recorder *s, size_t *batch_bytes,
                          uint32_t *verb_bytes)
{
    size_t most = LINE;
    uint32_t longest = LINE;
    for (size_t b = 0; b < s->batches; b++) {
        size_t bytes = 0;
        for (size_t i = s->batch[b]; i < s->batch[b + 1]; i++) {
            uint32_t len = (s->verb[i].place + s->verb[i].len + LINE - 1) / LINE * LINE;
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

/* ---- one replay, by threads or processes ----------------------------------------------------- */

size_t replay_shared_bytes(unsigned workers)
{
    return sizeof(struct replay) + workers * sizeof(struct replay_worker) + SHARED_ROOM;
}

/* Takes `bytes` of a team's memory, whose first *used are taken; copies `from` there unless it is
 * NULL. */
static void *put(const struct workers_team *t, size_t *used, const void *from, size_t bytes)
{
    size_t at = (*used + LINE - 1) / LINE * LINE;
    void *to = (char *)workers_team_memory(t) + at;
    *used = at + bytes;
    if (from)
        memcpy(to, from, bytes);
    return to;
}

/* Copies what the other processes need into shared memory. */
static int share(const struct workers_team *t, struct replay **replay)
{
    const struct replay_recorder *s = &(*replay)->sample;
    const struct scratch *scratch = &(*replay)->scratch;
    unsigned count = (*replay)->count;
    size_t batches = (s->batches + 1) * sizeof *s->batch, ops = (s->ops + 1) * sizeof *s->op;
    size_t verbs = s->verbs * sizeof *s->verb;
    size_t pieces = (size_t)scratch->nodes * scratch->pieces * sizeof *scratch->piece;
    if (batches + ops + verbs + pieces + 4 * LINE > SHARED_ROOM)
        return err_fail(FAR_NO_MEMORY,
                        "a sample of %zu verbs is too large to share among processes", s->verbs);

    size_t used = 0;
    struct replay *r = put(t, &used, *replay, sizeof *r);
    r->workers = put(t, &used, NULL, count * sizeof *r->workers);
    r->sample.batch = put(t, &used, s->batch, batches);
    r->sample.op = put(t, &used, s->op, ops);
    r->sample.verb = put(t, &used, s->verb, verbs);
    r->scratch.piece = put(t, &used, scratch->piece, pieces);
    *replay = r;
    return FAR_OK;
}

static void deal_out(struct replay *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        r->workers[i] = (struct replay_worker){
            .replay = r,
            .random = bench_mix(r->load.seed + i) | 1,
            .next = r->sample.ops * i / r->count,
            .left = r->load.ops / r->count + (i < r->load.ops % r->count),
        };
    }
}

struct upkeep {
    struct scratch *scratch;
    int status;
};

static void keep_scratch(void *arg)
{
    struct upkeep *upkeep = arg;
    int rc = scratch_keep_alive(upkeep->scratch);
    if (upkeep->status == FAR_OK)
        upkeep->status = rc;
}

/* Runs the workers of one process, with its own handle of the pool. */
static int run_workers(struct replay_worker *workers, unsigned count, struct fab *fab,
                       const atomic_bool *stop, struct upkeep *upkeep,
                       struct workers_process *process)
{
    struct workers_job job = {
        .open = worker_open,
        .run = worker_run,
        .close = worker_close,
        .tick = upkeep ? keep_scratch : NULL,
        .arg = upkeep,
        .first = workers,
        .size = sizeof *workers,
        .count = count,
    };
    for (unsigned i = 0; i < count; i++) {
        workers[i].fab = fab;
        workers[i].stop = stop;
    }
    return workers_run(&job, process);
}

int replay_serve(struct workers_process *process, far_pool *pool)
{
    const struct replay *r = process->memory;
    unsigned threads = r->load.threads;
    return run_workers(r->workers + process->number * threads, threads, pool->fab, process->stop,
                       NULL, process);
}

static int replay_with(struct replay *r, double *ops_per_s)
{
    const struct replay_load *load = &r->load;
    struct upkeep upkeep = {.scratch = &r->scratch};

    deal_out(r);
    int rc = load->team ? workers_team_run(load->team, keep_scratch, &upkeep)
                        : run_workers(r->workers, r->count, load->session->pool->fab, load->stop,
                                      &upkeep, NULL);
    uint64_t busy = 1;
    for (unsigned i = 0; i < r->count && rc == FAR_OK; i++) {
        const struct replay_worker *w = &r->workers[i];
        rc = w->status;
        if (rc == FAR_OK && w->left > 0)
            rc = err_fail(FAR_TIMEOUT, "interrupted");
        if (w->busy > busy)
            busy = w->busy;
    }
    if (rc == FAR_OK)
        rc = upkeep.status;
    if (rc == FAR_OK)
        *ops_per_s = (double)load->ops * 1e9 / (double)busy;
    return rc;
}

int replay_run(const struct replay_load *load, const struct replay_recorder *sample,
               double *ops_per_s)
{
    struct replay mine = {
        .order = BENCH_REPLAY,
        .load = *load,
        .sample = *sample,
        .count = load->processes * load->threads,
    };
    struct replay *replay = &mine;
    uint32_t longest;
    if (sample->ops == 0)
        return err_fail(FAR_INVALID, "no operation was sampled");
    ASSERT(mine.count <= BENCH_THREADS_MAX);

    /* As much as the table takes, and room for more than one address of the longest verb. */
    sample_extent(sample, &mine.buf_bytes, &longest);
    int rc = scratch_open(load->session, load->footprint / load->session->pool->pool.nodes,
                          longest + LINE, &mine.scratch);
    if (rc != FAR_OK)
        return rc;
    mine.lines = (mine.scratch.piece_bytes - longest) / LINE + 1;
    if (load->team) {
        rc = share(load->team, &replay);
    } else {
        mine.workers = calloc(mine.count, sizeof *mine.workers);
        if (!mine.workers)
            rc = err_fail(FAR_NO_MEMORY, "no memory for %u threads", mine.count);
    }
    if (rc == FAR_OK)
        rc = replay_with(replay, ops_per_s);
    free(mine.workers); /* those of a team are not here */
    scratch_close(&mine.scratch);
    return rc;
}
