/* What clients do: operations, one at a time or through the ring, and between them whatever else
 * sessions do. */
#include "check/check_internal.h"

#define ERRORS_MAX   6u /* of the fabric, before a client gives up */
#define OPEN_TRIES   3u
#define EPOCH_TURNS  6u    /* round trips: an epoch takes two or three           */
#define BESIDE_WALKS 4u    /* times as many operations as without walks           */
#define IDLE_NS      2000u /* the shortest idle time; it is doubled              */
#define IDLE_STEPS   8u    /* fewer times than this, so that others are at work; */
#define LONG_STEPS   14u   /* seldom, fewer times than this: longer than a lease */

/* ---- choosing -------------------------------------------------------------------------------- */

static enum lin_kind choose_kind(struct check *c)
{
    uint32_t x = tape_choose(c->tape, c->plan.weight_sum, TAPE_WORK);
    unsigned kind = 0;
    while (kind + 1 < LIN_KINDS && x >= c->plan.weight[kind])
        x -= c->plan.weight[kind++];
    return (enum lin_kind)kind;
}

/* The next key to be added. If half of the hashes are to rest, mostly one of the other half. */
static unsigned add_key(struct check *c)
{
    while (c->plan.lags && c->next_cold + 1 < c->keys && check_rests(c, c->next_cold) &&
           tape_choose(c->tape, 8, TAPE_WORK) > 0)
        c->next_cold++;
    return c->next_cold++;
}

/* If tables are to grow, most writes add a key. */
static unsigned choose_key(struct check *c, enum lin_kind kind)
{
    if (c->plan.cold > 0 && tape_choose(c->tape, 8, TAPE_WORK) >= 2) {
        bool adds = kind == LIN_PUT || kind == LIN_INSERT;
        if (adds && c->next_cold < c->keys)
            return add_key(c);
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

int check_open_session(struct check *c, struct check_client *me)
{
    ASSERT(!me->session && !me->cache);
    struct far_session_options options = {.depth = c->plan.ring,
                                          .seed = me->id + 1 + 1000ull * me->opened++};
    sim_open_in(c->sim, c->plan.processes > 0 ? me->id % c->plan.processes : me->id);
    int rc = far_session_open(c->pool, &options, &me->session);
    if (rc == FAR_OK && c->plan.wraps)
        check_wrap_client(me->session);
    return rc;
}

/* Opens a session while others work. False if that fails, or the client is unwinding. */
static bool open_session(struct check *c, struct check_client *me)
{
    for (unsigned i = 0; i < OPEN_TRIES; i++) {
        int rc = check_open_session(c, me);
        if (sim_unwinding(c->sim))
            return false;
        c->result.coverage.opened += rc == FAR_OK;
        if (rc == FAR_OK)
            return true;
        if (rc != FAR_NO_CLIENT_SLOT && !check_is_excused(c, rc)) {
            check_fail_status(c, CHECK_BAD_STATUS, rc, "opening a session");
            return false;
        }
        me->errors++;
        sim_think(c->sim);
    }
    return false;
}

static void close_session(struct check *c, struct check_client *me)
{
    far_session *session = me->session;
    c->result.coverage.closed++;
    c->result.coverage.closed_parked += session->client.attention.parked;
    check_count_session(c, session);
    check_cache_close(me);
    me->session = NULL; /* it is gone even if this client dies now */
    c->handle.closing++;
    sim_note(c->sim, "closes its session");
    far_session_close(session);
    c->handle.closing--;
    sim_note(c->sim, "   closed");
}

static int park(struct check *c, struct check_client *me)
{
    c->result.coverage.parks++;
    sim_note(c->sim, "is parked");
    (void)client_park(&me->session->op); /* as the thread that keeps idle sessions does */
    return FAR_OK;
}

/* At most for longer than a lease. The heartbeat of a parked session goes on. */
static void idle(struct check *c, struct check_client *me)
{
    struct client *client = &me->session->client;
    unsigned steps = happens(c, true, 8) ? LONG_STEPS : IDLE_STEPS;
    uint64_t left = (uint64_t)IDLE_NS << tape_choose(c->tape, steps, TAPE_WORK);
    uint64_t step = client->lease_ns / 16;
    while (left > 0 && !sim_unwinding(c->sim)) {
        uint64_t ns = left < step ? left : step;
        client->ep->ops->pause(client->ep, ns);
        left -= ns;
        if (client->attention.parked && !sim_unwinding(c->sim) && client_heartbeat_due(client))
            (void)client_park(&me->session->op);
    }
}

/* The session is idle, parked or not, or is closed and opened again. */
static int idle_or_reopen(struct check *c, struct check_client *me)
{
    enum { STANDS_STILL, IS_IDLE, CLOSES_PARKED, COMES_AGAIN, WAYS = 8 };
    unsigned way = tape_choose(c->tape, WAYS, TAPE_WORK);
    if (way == IS_IDLE || way == CLOSES_PARKED)
        park(c, me);
    if (way < COMES_AGAIN && !sim_unwinding(c->sim))
        idle(c, me);
    if (way < CLOSES_PARKED || sim_unwinding(c->sim))
        return FAR_OK;
    close_session(c, me);
    if (sim_unwinding(c->sim) || !open_session(c, me))
        return FAR_OK;
    if (tape_choose(c->tape, 2, TAPE_WORK)) { /* a new session that is idle at first */
        park(c, me);
        if (!sim_unwinding(c->sim))
            idle(c, me);
    }
    return FAR_OK;
}

#define SLEEP_NS    20000u
#define SLEEP_STEPS 1500u /* three leases at most */

static bool sleep_is_due(const struct check *c, const struct check_client *me, unsigned done)
{
    return c->plan.sleeps_at > 0 && me->id == 0 && done >= c->plan.sleeps_at;
}

/* Sleeps while others work, which may take many epochs, and then goes on with old caches. */
static void sleep_through(struct check *c, struct check_client *me)
{
    struct client *client = &me->session->client;
    uint64_t until = c->result.operations + c->plan.sleeps_for;
    c->plan.sleeps_at = 0; /* once */
    sim_note(c->sim, "sleeps");
    if (c->plan.sleeps_parked)
        park(c, me);
    for (unsigned i = 0; i < SLEEP_STEPS && c->result.operations < until; i++) {
        if (sim_unwinding(c->sim))
            return;
        client->ep->ops->pause(client->ep, SLEEP_NS);
        if (client->attention.parked && !sim_unwinding(c->sim) && client_heartbeat_due(client))
            (void)client_park(&me->session->op);
    }
    c->result.coverage.slept++;
    sim_note(c->sim, "wakes up");
}

static bool goes_on(const struct check *c, const struct check_client *me)
{
    return !sim_unwinding(c->sim) && me->session && me->errors < ERRORS_MAX;
}

/* After that many operations, does a client go on? Beside a walk it does, for a while. */
static bool has_more(const struct check *c, unsigned done)
{
    return done < c->set->ops ||
           (c->walks > 0 && done < BESIDE_WALKS * c->set->ops && done < CHECK_OPS_MAX);
}

/* Does something once in `of` times, if it is planned. */
static void sometimes(struct check *c, struct check_client *me, bool planned, unsigned of,
                      int (*what)(struct check *c, struct check_client *me))
{
    if (goes_on(c, me) && happens(c, planned, of))
        me->errors += check_fabric_failed(what(c, me));
}

/* With none of its operations in flight. On a ring, several start at once after it, and all of them
 * find their caches in doubt. */
static void between_operations(struct check *c, struct check_client *me)
{
    sometimes(c, me, c->plan.parks, c->plan.ring > 1 ? 2 : 8, park);
    sometimes(c, me, c->plan.upkeep, 8, check_reap_or_sweep);
    sometimes(c, me, c->plan.iterates, 4, check_iterate);
    sometimes(c, me, c->plan.scans, 4, check_scan);
    sometimes(c, me, c->plan.repairs > 0 && me->id + 1 == c->set->clients, 2, check_repair);
    sometimes(c, me, c->plan.votes, 3, check_members_use);
    sometimes(c, me, c->plan.reopens, 8, idle_or_reopen);
}

/* As a client that needs memory does it: what others retire is reused soon. */
static int drive_epochs(struct check *c, struct check_client *me)
{
    return check_drive_epochs(c, &me->session->op, EPOCH_TURNS);
}

/* Operations of its own may be in flight. */
static void after_operation(struct check *c, struct check_client *me)
{
    sometimes(c, me, c->plan.drives_epochs, 2, drive_epochs);
    sometimes(c, me, c->plan.locks, 3, check_lock_try);
    sometimes(c, me, c->plan.locks, 3, check_journal_try);
    sometimes(c, me, c->plan.caches, 2, check_cache_use);
    sometimes(c, me, c->plan.drops, 2, check_drop_use);
    sometimes(c, me, c->plan.closes, 2, check_handle_use);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The first operation of a session on a table attaches it. */
static void count_attaching(struct check *c, const struct check_client *me, unsigned key)
{
    const struct table_view *known = store_known(me->session, check_table_of(c, key));
    c->result.coverage.attached += !known || !known->view;
}

static void do_one(struct check *c, struct check_client *me)
{
    enum lin_kind kind = choose_kind(c);
    unsigned key = choose_key(c, kind);
    count_attaching(c, me, key);
    me->errors += check_fabric_failed(check_execute(c, me->session, me->id, kind, key));
}

/* The client that makes the table of a program grow: by the first cold key that is not there. */
static void run_grower(struct check *c, struct check_client *me)
{
    sim_think(c->sim);
    if (!sim_unwinding(c->sim))
        check_execute(c, me->session, me->id, LIN_PUT, c->next_cold);
}

static void run_in_turn(struct check *c, struct check_client *me)
{
    for (unsigned i = 0; has_more(c, i) && goes_on(c, me); i++) {
        sim_think(c->sim);
        if (sim_unwinding(c->sim))
            return;
        if (c->program) {
            const struct check_step *step = &c->program->step[me->id][i];
            int rc = check_execute(c, me->session, me->id, (enum lin_kind)step->kind, step->key);
            me->errors += check_fabric_failed(rc);
            continue;
        }
        do_one(c, me);
        after_operation(c, me);
        between_operations(c, me);
        if (goes_on(c, me) && sleep_is_due(c, me, i + 1))
            sleep_through(c, me);
    }
}

struct ring {
    struct pending_op pending[RING_MAX];
    unsigned free[RING_MAX], free_count;
};

static void reap(struct check *c, struct check_client *me, struct ring *ring, unsigned at_least)
{
    struct far_result r[RING_MAX];
    unsigned count = far_reap(me->session, r, RING_MAX, at_least);
    for (unsigned i = 0; i < count; i++) {
        struct pending_op *pending = &ring->pending[r[i].user_data];
        if (!sim_unwinding(c->sim))
            check_note_return(c, pending, r[i].status, r[i].len);
        me->errors += check_fabric_failed(r[i].status);
        ring->free[ring->free_count++] = (unsigned)r[i].user_data;
    }
}

static void submit(struct check *c, struct check_client *me, struct ring *ring)
{
    ASSERT(ring->free_count > 0 && ring->free_count <= RING_MAX);
    struct pending_op *pending = &ring->pending[ring->free[--ring->free_count]];
    enum lin_kind kind = choose_kind(c);
    unsigned key = choose_key(c, kind);
    count_attaching(c, me, key);
    check_note_call(c, me->id, kind, key, pending);
    pending->op.user_data = (uint64_t)(pending - ring->pending);
    int rc = far_submit(me->session, &pending->op);
    if (rc == FAR_OK)
        return;
    ring->free[ring->free_count++] = (unsigned)(pending - ring->pending);
    if (!sim_unwinding(c->sim))
        check_note_return(c, pending, rc, 0);
}

/* Several operations of one client in flight. */
static void run_on_ring(struct check *c, struct check_client *me)
{
    struct ring ring = {.free_count = c->plan.ring};
    for (unsigned i = 0; i < c->plan.ring; i++)
        ring.free[i] = i;
    for (unsigned i = 0; has_more(c, i) && goes_on(c, me); i++) {
        sim_think(c->sim);
        if (sim_unwinding(c->sim))
            break;
        submit(c, me, &ring);
        if (ring.free_count == 0)
            reap(c, me, &ring, 1);
        if (goes_on(c, me) && happens(c, true, 16))
            do_one(c, me); /* while others are in flight */
        after_operation(c, me);
        if (goes_on(c, me) && happens(c, c->plan.parks, 4)) {
            reap(c, me, &ring, c->plan.ring - ring.free_count);
            between_operations(c, me);
        }
        if (goes_on(c, me) && sleep_is_due(c, me, i + 1)) {
            reap(c, me, &ring, c->plan.ring - ring.free_count);
            if (goes_on(c, me))
                sleep_through(c, me);
        }
    }
    if (me->session)
        reap(c, me, &ring, c->plan.ring - ring.free_count);
}

void check_client_run(void *arg)
{
    struct check_client *me = arg;
    struct check *c = me->check;
    if (me->late)
        sim_sleep(c->sim, (uint64_t)IDLE_NS << tape_choose(c->tape, LONG_STEPS, TAPE_WORK));
    if (sim_unwinding(c->sim) || (!me->session && !open_session(c, me)))
        return;
    if (c->program && me->id >= c->set->clients)
        run_grower(c, me);
    else if (c->plan.ring > 1)
        run_on_ring(c, me);
    else
        run_in_turn(c, me);
    /* An unused session is parked, or others would wait for it. */
    if (c->plan.parks && me->session && !sim_unwinding(c->sim) &&
        tape_choose(c->tape, 8, TAPE_WORK))
        park(c, me);
    if (me->session && !sim_unwinding(c->sim) && happens(c, c->plan.reopens, 2))
        close_session(c, me);
}
