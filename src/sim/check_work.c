/* What clients do: operations one at a time or through the ring, and between them what else a
 * session's life has. */
#include "sim/check_internal.h"

#define ERRORS_MAX 6u /* of the fabric, after which a client gives up */
#define OPEN_TRIES 3u
#define HASTE      6u    /* round trips: an epoch takes two or three */
#define IDLE_NS    2000u /* the shortest idle time, which is doubled     */
#define IDLE_STEPS 8u    /* up to so many times: others are still at it; */
#define LONG_STEPS 14u   /* seldom, until a lease and more has passed    */

/* ---- choosing -------------------------------------------------------------------------------- */

static enum lin_kind choose_kind(struct check *c)
{
    uint32_t x = tape_choose(c->tape, c->plan.weight_sum, TAPE_WORK);
    unsigned kind = 0;
    while (kind + 1 < LIN_KINDS && x >= c->plan.weight[kind])
        x -= c->plan.weight[kind++];
    return (enum lin_kind)kind;
}

/* Of tables that are to grow, most writes add a key. */
static unsigned choose_key(struct check *c, enum lin_kind kind)
{
    if (c->plan.cold > 0 && tape_choose(c->tape, 8, TAPE_WORK) >= 2) {
        bool adds = kind == LIN_PUT || kind == LIN_INSERT;
        if (adds && c->fresh < c->keys)
            return c->fresh++;
        return c->set->keys + tape_choose(c->tape, c->plan.cold, TAPE_WORK);
    }
    if (c->plan.focus && tape_choose(c->tape, 8, TAPE_WORK) < 7)
        return 0;
    return tape_choose(c->tape, c->set->keys, TAPE_WORK);
}

static bool happens(struct check *c, bool planned, unsigned of)
{
    return planned && tape_chance(c->tape, 1, of, TAPE_WORK);
}

/* ---- sessions -------------------------------------------------------------------------------- */

int check_open_session(struct check *c, struct worker *w)
{
    struct far_session_options options = {.depth = c->plan.ring,
                                          .seed = w->id + 1 + 1000ull * w->opened++};
    int rc = far_session_open(c->pool, &options, &w->session);
    if (rc == FAR_OK && c->plan.wraps)
        check_wrap_client(w->session);
    return rc;
}

/* Opens a session while others work. False when there is none, or its client is no more. */
static bool open_at_work(struct check *c, struct worker *w)
{
    for (unsigned i = 0; i < OPEN_TRIES; i++) {
        int rc = check_open_session(c, w);
        if (sim_unwinding(c->sim))
            return false;
        c->result.coverage.opened += rc == FAR_OK;
        if (rc == FAR_OK)
            return true;
        if (rc != FAR_NO_CLIENT_SLOT && !check_excused(c, rc)) {
            check_condemn(c, CHECK_BAD_STATUS, "opening a session gave %s (%s)", far_errname(rc),
                          far_error_detail());
            return false;
        }
        w->errors++;
        sim_think(c->sim);
    }
    return false;
}

static void close_at_work(struct check *c, struct worker *w)
{
    far_session *session = w->session;
    c->result.coverage.closed++;
    c->result.coverage.closed_parked += session->client.attention.parked;
    c->result.reaped += session->client.watch.reaped;
    check_cache_close(w);
    w->session = NULL; /* whatever becomes of this client, the session is gone */
    sim_note(c->sim, "closes");
    far_session_close(session);
    sim_note(c->sim, "   closed");
}

static void park(struct check *c, struct worker *w)
{
    c->result.coverage.parks++;
    sim_note(c->sim, "is parked");
    (void)client_park(&w->session->op); /* as the keeper of sessions does */
}

/* For longer than a lease, at most. A parked session's heartbeat is kept up. */
static void idle(struct check *c, struct worker *w)
{
    struct client *client = &w->session->client;
    unsigned steps = happens(c, true, 8) ? LONG_STEPS : IDLE_STEPS;
    uint64_t left = (uint64_t)IDLE_NS << tape_choose(c->tape, steps, TAPE_WORK);
    uint64_t step = client->lease_ns / 16;
    while (left > 0 && !sim_unwinding(c->sim)) {
        uint64_t ns = left < step ? left : step;
        client->ep->ops->pause(client->ep, ns);
        left -= ns;
        if (client->attention.parked && !sim_unwinding(c->sim) && client_heartbeat_due(client))
            (void)client_park(&w->session->op);
    }
}

/* Something that a session does, or that happens to it, besides its operations. */
static void be_restless(struct check *c, struct worker *w)
{
    enum { STANDS_STILL, IS_IDLE, CLOSES_PARKED, COMES_AGAIN, WAYS = 8 };
    unsigned way = tape_choose(c->tape, WAYS, TAPE_WORK);
    if (way == IS_IDLE || way == CLOSES_PARKED)
        park(c, w);
    if (way < COMES_AGAIN && !sim_unwinding(c->sim))
        idle(c, w);
    if (way < CLOSES_PARKED || sim_unwinding(c->sim))
        return;
    close_at_work(c, w);
    if (sim_unwinding(c->sim) || !open_at_work(c, w))
        return;
    if (tape_choose(c->tape, 2, TAPE_WORK)) { /* its first operation comes much later */
        park(c, w);
        if (!sim_unwinding(c->sim))
            idle(c, w);
    }
}

static bool goes_on(const struct check *c, const struct worker *w)
{
    return !sim_unwinding(c->sim) && w->session && w->errors < ERRORS_MAX;
}

/* Drives the epochs on, as a client does that needs memory: what others retire is reused soon. */
static void hasten(struct check *c, struct worker *w)
{
    unsigned turns = goes_on(c, w) && happens(c, c->plan.hasty, 2) ? HASTE : 0;
    int rc = FAR_OK;
    for (unsigned i = 0; i < turns && rc == FAR_OK && !sim_unwinding(c->sim); i++) {
        rc = client_drive_epoch(&w->session->op);
        client_reclaim(&w->session->client);
    }
    w->errors += check_is_of_the_fabric(rc);
}

/* With none of its operations in flight. On a ring, several come after it at once, and find all
 * that they had cached doubtful. */
static void between_operations(struct check *c, struct worker *w)
{
    if (goes_on(c, w) && happens(c, c->plan.parks, c->plan.ring > 1 ? 2 : 8))
        park(c, w);
    if (goes_on(c, w) && happens(c, c->plan.upkeep, 8))
        w->errors += check_is_of_the_fabric(check_upkeep(c, w));
    if (goes_on(c, w) && happens(c, c->plan.iterates, 4))
        w->errors += check_is_of_the_fabric(check_iterate(c, w));
    if (goes_on(c, w) && happens(c, c->plan.scans, 4))
        w->errors += check_is_of_the_fabric(check_scan(c, w));
    if (goes_on(c, w) && happens(c, c->plan.restless, 8))
        be_restless(c, w);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The first operation of a session on a table attaches it. */
static void count_attaching(struct check *c, const struct worker *w, unsigned key)
{
    const struct table_view *known = store_known(w->session, check_table_of(c, key));
    c->result.coverage.attached += !known || !known->view;
}

static void do_one(struct check *c, struct worker *w)
{
    enum lin_kind kind = choose_kind(c);
    unsigned key = choose_key(c, kind);
    count_attaching(c, w, key);
    w->errors += check_is_of_the_fabric(check_do(c, w->session, w->id, kind, key));
}

static void try_lock(struct check *c, struct worker *w)
{
    if (goes_on(c, w) && happens(c, c->plan.locks, 3))
        w->errors += check_is_of_the_fabric(check_lock_try(c, w));
    if (goes_on(c, w) && happens(c, c->plan.locks, 3))
        w->errors += check_is_of_the_fabric(check_journal_try(c, w));
}

static void use_cache(struct check *c, struct worker *w)
{
    if (goes_on(c, w) && happens(c, c->plan.caches, 2))
        w->errors += check_is_of_the_fabric(check_cache_use(c, w));
}

static void use_doomed_tables(struct check *c, struct worker *w)
{
    if (goes_on(c, w) && happens(c, c->plan.drops, 2))
        w->errors += check_is_of_the_fabric(check_drop(c, w));
}

static void work_in_turn(struct check *c, struct worker *w)
{
    for (unsigned i = 0; i < c->set->ops && goes_on(c, w); i++) {
        sim_think(c->sim);
        if (sim_unwinding(c->sim))
            return;
        if (c->program) {
            const struct check_step *step = &c->program->step[w->id][i];
            int rc = check_do(c, w->session, w->id, (enum lin_kind)step->kind, step->key);
            w->errors += check_is_of_the_fabric(rc);
            continue;
        }
        do_one(c, w);
        hasten(c, w);
        try_lock(c, w);
        use_cache(c, w);
        use_doomed_tables(c, w);
        between_operations(c, w);
    }
}

struct ring_work {
    struct doing doing[RING_MAX];
    unsigned idle[RING_MAX], idle_count;
};

static void reap(struct check *c, struct worker *w, struct ring_work *ring, unsigned at_least)
{
    struct far_result r[RING_MAX];
    unsigned count = far_reap(w->session, r, RING_MAX, at_least);
    for (unsigned i = 0; i < count; i++) {
        struct doing *d = &ring->doing[r[i].user_data];
        if (!sim_unwinding(c->sim))
            check_returned(c, d, r[i].status, r[i].len);
        w->errors += check_is_of_the_fabric(r[i].status);
        ring->idle[ring->idle_count++] = (unsigned)r[i].user_data;
    }
}

static void submit(struct check *c, struct worker *w, struct ring_work *ring)
{
    ASSERT(ring->idle_count > 0 && ring->idle_count <= RING_MAX);
    struct doing *d = &ring->doing[ring->idle[--ring->idle_count]];
    enum lin_kind kind = choose_kind(c);
    unsigned key = choose_key(c, kind);
    count_attaching(c, w, key);
    check_call(c, w->id, kind, key, d);
    d->op.user_data = (uint64_t)(d - ring->doing);
    int rc = far_submit(w->session, &d->op);
    if (rc == FAR_OK)
        return;
    ring->idle[ring->idle_count++] = (unsigned)(d - ring->doing);
    if (!sim_unwinding(c->sim))
        check_returned(c, d, rc, 0);
}

/* Several operations of one client in flight. */
static void work_on_ring(struct check *c, struct worker *w)
{
    struct ring_work ring = {.idle_count = c->plan.ring};
    for (unsigned i = 0; i < c->plan.ring; i++)
        ring.idle[i] = i;
    for (unsigned i = 0; i < c->set->ops && goes_on(c, w); i++) {
        sim_think(c->sim);
        if (sim_unwinding(c->sim))
            break;
        submit(c, w, &ring);
        if (ring.idle_count == 0)
            reap(c, w, &ring, 1);
        if (goes_on(c, w) && happens(c, true, 16))
            do_one(c, w); /* while others are in flight */
        hasten(c, w);
        try_lock(c, w);
        use_cache(c, w);
        use_doomed_tables(c, w);
        if (goes_on(c, w) && happens(c, c->plan.parks, 4)) {
            reap(c, w, &ring, c->plan.ring - ring.idle_count);
            between_operations(c, w);
        }
    }
    if (w->session)
        reap(c, w, &ring, c->plan.ring - ring.idle_count);
}

void check_work(void *arg)
{
    struct worker *w = arg;
    struct check *c = w->check;
    if (w->late)
        sim_sleep(c->sim, (uint64_t)IDLE_NS << tape_choose(c->tape, LONG_STEPS, TAPE_WORK));
    if (sim_unwinding(c->sim) || (!w->session && !open_at_work(c, w)))
        return;
    if (c->plan.ring > 1)
        work_on_ring(c, w);
    else
        work_in_turn(c, w);
    /* A session that nobody uses any more is parked, else others would wait for it. */
    if (c->plan.parks && w->session && !sim_unwinding(c->sim) && tape_choose(c->tape, 8, TAPE_WORK))
        park(c, w);
    if (w->session && !sim_unwinding(c->sim) && happens(c, c->plan.restless, 2))
        close_at_work(c, w);
}
