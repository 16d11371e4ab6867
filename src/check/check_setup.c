/* Sets up a run: a pool, one or two tables that are about to grow, and clients. */
#include "chain/chain_layout.h"
#include "check/check_internal.h"

#include <string.h>

#define NODE_BYTES_BASE   (2ull << 20)
#define NODE_BYTES_CLIENT (512ull << 10) /* more for each client */
#define SMALL_NODE_BYTES  (1ull << 20)
#define LEASE_MS          10u /* far longer than a verb, far shorter than most pauses */
#define LEASE_MS_NO_FENCE 20u /* and longer than a request with all its delays */
#define REGISTRY_SLOTS    (4 * CHECK_CLIENTS_MAX)
#define SLOTS_LEFT        2u /* of a crowded registry */
#define LAGGARDS          12u
#define AHEAD             120u /* keys at most; those of the half that rests are not put */
_Static_assert(LAGGARDS + AHEAD < COLD_KEYS_MAX, "some are left for clients to add");

/* ---- growth ---------------------------------------------------------------------------------- */

static unsigned find_part(const struct growth *g, gaddr at)
{
    unsigned i = 0;
    while (i < g->parts && g->part[i].at != at)
        i++;
    return i;
}

static void on_growth(const struct growth_watch *watch, gaddr from, const gaddr *to, unsigned count)
{
    struct check *c =
        (struct check *)(uintptr_t)((const char *)watch - offsetof(struct check, growth));
    struct growth *g = &c->growth;
    unsigned parent = find_part(g, from);
    unsigned line = 1 + (parent < g->parts ? g->part[parent].line : 0);
    c->result.coverage.restructured++;
    if (line > c->result.coverage.longest_line)
        c->result.coverage.longest_line = line;
    for (unsigned i = 0; i < count; i++) {
        unsigned at = find_part(g, to[i]); /* known if its memory was reused */
        if (at == PARTS_MAX)
            break;
        g->parts += at == g->parts;
        g->part[at].at = to[i];
        g->part[at].line = line;
        g->nodes |= 1u << gaddr_node(to[i]);
    }
}
static void on_lag(const struct growth_watch *watch, unsigned versions, bool pending)
{
    struct check *c =
        (struct check *)(uintptr_t)((const char *)watch - offsetof(struct check, growth));
    c->result.coverage.lagged += versions > 2;
    c->result.coverage.lagged_pending += versions > 2 && pending;
}
_Static_assert(offsetof(struct growth, watch) == 0, "the watch comes first");

/* ---- the pool -------------------------------------------------------------------------------- */

static void on_mistake(void *arg, const char *what)
{
    check_fail(arg, CHECK_BAD_MEMORY, "%s", what);
}

/* Empty tables on an empty pool. */
static int open_pool(struct check *c)
{
    const struct check_settings *s = c->set;
    bool small = c->program || c->plan.tight;
    c->sim_set = (struct sim_settings){
        .profile = s->profile,
        /* Without a fence, no verb may land after its request has failed. */
        .adversity = s->adversity & ~(c->plan.no_fence ? (unsigned)SIM_ERROR : 0),
        .clients = c->clients,
        .nodes = c->plan.nodes,
        .node_bytes = small ? SMALL_NODE_BYTES : NODE_BYTES_BASE + s->clients * NODE_BYTES_CLIENT,
        .granule = c->plan.granule,
        .by_choice = c->program != NULL,
        .faults_max = c->program ? 1 : 2 * s->clients,
        .no_fence = c->plan.no_fence,
        .tails = s->tails,
        .no_mcas = c->plan.no_mcas,
        .stalks = c->plan.stalks,
        .stops = c->plan.stops,
        .lives = c->plan.lives,
    };
    bool chain = c->set->chains;
    if (chain) { /* a machine has the halves of two nodes, and lines */
        unsigned slots = c->plan.crowded ? c->clients + SLOTS_LEFT : REGISTRY_SLOTS;
        uint64_t lines = chain_bytes(slots + CHAIN_GUESTS);
        c->sim_set.node_bytes = 2 * (c->sim_set.node_bytes + lines / 4096 * 4096 + 8192);
    }
    sim_watch(c->sim, NULL, NULL);
    int rc = sim_begin(c->sim, &c->sim_set, c->tape);
    if (rc != FAR_OK)
        return rc;
    if (!chain && !c->program && !shadow_begin(&c->shadow, c->sim, &c->sim_set, on_mistake, c))
        return FAR_NO_MEMORY;
    c->growth = (struct growth){.watch = {.grew = on_growth, .lags = on_lag}};
    c->plan.knobs.free_watch = chain || c->program ? NULL : &c->shadow.watch;
    c->plan.knobs.growth_watch = &c->growth.watch;
    sim_fab(c->sim)->clients_wanted = c->plan.crowded ? c->clients + SLOTS_LEFT : REGISTRY_SLOTS;
    sim_fab(c->sim)->lease_ms = c->plan.no_fence ? LEASE_MS_NO_FENCE : LEASE_MS;
    sim_fab(c->sim)->groups = 1;
    sim_fab(c->sim)->voters = c->plan.votes ? c->plan.nodes : 0;
    sim_fab(c->sim)->processes = CHECK_CLIENTS_MAX + 1;
    sim_open_in(c->sim, CHECK_CLIENTS_MAX); /* the harness is a process of its own */
    sim_fab(c->sim)->replicas = c->set->chains ? 2 : 1;
    rc = store_open(sim_fab(c->sim), &c->plan.knobs, &c->pool);
    if (rc == FAR_OK)
        c->pool->pool.evicts = c->plan.crowded;
    if (rc == FAR_OK)
        rc = far_session_open(c->pool, &(struct far_session_options){.seed = 77}, &c->session);
    if (rc == FAR_OK)
        rc = check_create_tables(c, c->session);
    if (rc == FAR_OK)
        rc = check_journal_set_up(c);
    if (rc == FAR_OK && c->plan.caches)
        rc = check_cache_set_up(c);
    if (rc == FAR_OK && c->plan.wraps)
        check_wrap_lists(c);
    if (rc == FAR_OK && c->plan.empties)
        rc = check_empty_note(c);
    return rc;
}

static void close_pool(struct check *c)
{
    far_session_close(c->session);
    far_pool_close(c->pool);
    c->session = NULL;
    c->pool = NULL;
    memset(c->table, 0, sizeof c->table);
}

/* What is learned is remembered for all runs whose tables are alike. So it must depend on nothing
 * else of this run: a seed has the same history whatever ran before. */
static struct plan plain_plan(const struct plan *p)
{
    struct plan plain = {.knobs = pool_knobs_default,
                         .granule = 8,
                         .nodes = p->nodes,
                         .ring = 1,
                         .tables = p->tables,
                         .other = p->other,
                         .other_index = p->other_index,
                         .hash_mask = p->hash_mask,
                         .hash_seed = p->hash_seed,
                         .key_shape = p->key_shape,
                         .tuning = p->tuning};
    plain.knobs.hash_mask = p->knobs.hash_mask;
    return plain;
}

/* Fills the tables, hot keys first, and notes after how many cold keys they grew. */
static int learn_growth(struct check *c, uint8_t *grows_at)
{
    struct tape *tape = c->tape;
    struct plan plan = c->plan;
    struct tape quiet;
    unsigned known = 0;
    uint64_t before = 0;
    const uint64_t *grown = &c->result.coverage.restructured;
    tape_init(&quiet);
    tape_from_record(&quiet, NULL, 0);
    c->tape = &quiet;
    c->plan = plain_plan(&plan);
    int rc = open_pool(c);
    for (unsigned i = 0; i < c->keys && known < SPLITS_KNOWN && rc == FAR_OK; i++) {
        char key[KEY_BYTES_MAX];
        size_t len = check_key_bytes(c, i, key);
        rc = far_put(c->session, check_table_of(c, i), key, len, "", 0);
        if (*grown > before)
            grows_at[known++] = (uint8_t)(i < c->set->keys ? 1 : i + 1 - c->set->keys);
        before = *grown;
    }
    while (known < SPLITS_KNOWN)
        grows_at[known++] = COLD_KEYS_MAX;
    if (rc == FAR_POOL_FULL)
        rc = FAR_OK;
    if (rc != FAR_OK)
        memset(grows_at, 0, SPLITS_KNOWN); /* not learned */
    close_pool(c);
    tape_free(&quiet);
    c->plan = plan;
    c->tape = tape;
    memset(&c->result.coverage, 0, sizeof c->result.coverage);
    return rc;
}

/* Chooses how many cold keys the tables have at first: a few less than make one grow. */
static int choose_cold_keys(struct check *c)
{
    struct plan *p = &c->plan;
    if (c->grown_index != c->set->index || c->grown_keys != c->set->keys)
        memset(c->grows_at, 0, sizeof c->grows_at);
    c->grown_index = c->set->index;
    c->grown_keys = c->set->keys;
    unsigned kind = p->tables == 1 ? 0 : 1 + p->other;
    uint8_t *grows_at =
        c->grows_at[kind][p->nodes - 1][p->hash_mask][p->hash_seed][p->key_shape][p->tuning];
    int rc = grows_at[0] == 0 ? learn_growth(c, grows_at) : FAR_OK;
    unsigned below = tape_choose(c->tape, tape_choose(c->tape, 2, TAPE_SETUP) ? 16 : 4, TAPE_SETUP);
    unsigned count = grows_at[tape_choose(c->tape, SPLITS_KNOWN, TAPE_SETUP)];
    c->next_cold = c->set->keys + (count > below ? count - below - 1 : 0);
    return rc;
}

/* The table grows by many keys of one half of all hashes, and will do so while clients are at work.
 * Parts with keys of the other half, which are all keys of the first fillings, are left behind. */
static void choose_lag(struct check *c)
{
    struct plan *p = &c->plan;
    p->laggards = tape_choose_aside(c->tape, LAGGARDS, TAPE_SETUP);
    c->next_cold = c->set->keys + p->laggards + tape_choose_aside(c->tape, AHEAD, TAPE_SETUP);
}

/* ---- clients --------------------------------------------------------------------------------- */

/* An enumeration covers every verb, so a session does beforehand what it does only once. */
static int warm_up(struct check *c, far_session *session)
{
    char key[KEY_BYTES_MAX];
    size_t len = check_key_bytes(c, c->plan.growers > 0 ? KEYS_MAX : c->keys, key);
    uint8_t value[VALUE_MAX];
    int rc = far_put(session, c->table[0], key, len, value, check_value_bytes(c, 1, value));
    return rc == FAR_OK ? far_delete(session, c->table[0], key, len) : rc;
}

static int open_client(struct check *c, unsigned i)
{
    int rc = FAR_OK;
    c->client[i] =
        (struct check_client){.check = c, .id = i, .late = i >= c->set->clients + c->plan.growers};
    if (!c->plan.open_in_client && !c->client[i].late)
        rc = check_open_session(c, &c->client[i]);
    if (rc == FAR_OK && c->client[i].session)
        sim_identify_client(c->sim, i, c->client[i].session->client.incarnation);
    if (rc == FAR_OK && c->program)
        rc = warm_up(c, c->client[i].session);
    return rc;
}

static void close_clients(struct check *c)
{
    for (unsigned i = 0; i < c->clients; i++) {
        check_cache_close(&c->client[i]);
        far_session_close(c->client[i].session);
        c->client[i].session = NULL;
    }
}

/* ---- programs whose table is about to grow --------------------------------------------------- */

/* Every session drives the epoch on, the grower's last. So an index that waits for epochs before it
 * restructures gets there, and the grower is the first client that may begin. */
static int pass_epoch(struct check *c)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < c->clients && rc == FAR_OK; i++)
        rc = check_drive_epochs(c, &c->client[i].session->op, 1);
    return rc;
}

/* Opens the sessions before the table is filled, because warming up could make it grow. The
 * grower's session fills it: then it knows as much when the run begins as when the growth was
 * learned. */
static int open_early(struct check *c)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < c->clients && rc == FAR_OK; i++)
        rc = open_client(c, i);
    far_session_close(c->session);
    c->session = NULL;
    return rc;
}

/* The session that fills the table. */
static far_session *filler(const struct check *c)
{
    return c->plan.growers > 0 ? c->client[c->clients - 1].session : c->session;
}

/* Fills the table of a program as fill() does, and notes after how many cold keys it grew. */
static int learn_program(struct check *c, unsigned *cold)
{
    struct tape *tape = c->tape;
    struct tape quiet;
    uint64_t before = 0;
    tape_init(&quiet);
    tape_from_record(&quiet, NULL, 0);
    c->tape = &quiet;
    int rc = open_pool(c);
    if (rc == FAR_OK)
        rc = open_early(c);
    for (unsigned i = 0; i < c->keys && *cold == 0 && rc == FAR_OK; i++) {
        char key[KEY_BYTES_MAX];
        size_t len = check_key_bytes(c, i, key);
        if (i < c->set->keys && !(c->program->present >> i & 1))
            continue;
        before = c->result.coverage.restructured;
        rc = far_put(filler(c), c->table[0], key, len, "", 0);
        uint64_t now = c->result.coverage.restructured;
        if (i >= c->set->keys && now > before && now >= c->set->grow)
            *cold = i + 1 - c->set->keys;
        if (rc == FAR_OK)
            rc = pass_epoch(c);
    }
    close_clients(c);
    close_pool(c);
    tape_free(&quiet);
    c->tape = tape;
    memset(&c->result.coverage, 0, sizeof c->result.coverage);
    if (rc == FAR_OK && *cold == 0)
        rc = err_fail(FAR_TABLE_FULL, "%u keys do not restructure the table %u times",
                      COLD_KEYS_MAX, c->set->grow);
    return rc;
}

/* Chooses how many cold keys the table of a program has: one less than make it grow. */
static int choose_program_keys(struct check *c)
{
    const struct check_settings *s = c->set;
    unsigned present = c->program->present;
    int rc = FAR_OK;
    if (c->grown_program.index != s->index || c->grown_program.clients != s->clients ||
        c->grown_program.keys != s->keys || c->grown_program.grow != s->grow ||
        c->grown_program.present != present) {
        unsigned cold = 0;
        rc = learn_program(c, &cold);
        c->grown_program.index = rc == FAR_OK ? s->index : NULL;
        c->grown_program.clients = s->clients;
        c->grown_program.keys = s->keys;
        c->grown_program.grow = s->grow;
        c->grown_program.present = present;
        c->grown_program.cold = cold;
    }
    if (rc != FAR_OK)
        return rc;
    c->plan.cold = c->grown_program.cold;
    c->keys = s->keys + c->plan.cold;
    c->next_cold = c->keys - 1;
    return FAR_OK;
}

/* Puts the keys that are present when the clients start. */
static void fill(struct check *c)
{
    for (unsigned key = 0; key < c->keys && c->result.verdict == CHECK_PASSED; key++) {
        bool there = false;
        if (key >= c->set->keys)
            there = key < c->next_cold && !(c->plan.lags && check_rests(c, key) &&
                                            key >= c->set->keys + c->plan.laggards);
        else if (c->program)
            there = c->program->present >> key & 1;
        else
            there = tape_choose(c->tape, 2, TAPE_SETUP);
        if (there)
            check_execute(c, filler(c), c->clients, LIN_PUT, key);
        int rc = there && c->plan.growers > 0 ? pass_epoch(c) : FAR_OK;
        if (rc != FAR_OK)
            check_fail_status(c, CHECK_NO_SETUP, rc, "driving the epochs on");
    }
}

/* Deletes most of the cold keys, so that what is left is merged soon. */
static void thin_out(struct check *c)
{
    for (unsigned key = c->set->keys; key < c->keys && c->result.verdict == CHECK_PASSED; key++)
        if (tape_chance(c->tape, 5, 8, TAPE_SETUP))
            check_execute(c, c->session, c->clients, LIN_DELETE, key);
}

static int start_clients(struct check *c)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < c->clients && rc == FAR_OK; i++) {
        if (c->plan.growers == 0)
            rc = open_client(c, i);
        if (rc == FAR_OK)
            rc = sim_start(c->sim, i, check_client_run, &c->client[i]);
    }
    return rc;
}

bool check_set_up(struct check *c, struct sites *sites)
{
    int rc = FAR_OK;
    check_plan(c);
    check_twist(c, sites);
    if (c->set->tails || c->set->chains) /* clients of replicated pools can be shut out */
        c->plan.no_fence = c->plan.no_mcas = c->plan.stops = c->plan.lives = false;
    if (c->set->chains) {
        c->plan.wraps = c->plan.votes = false; /* these write words past the chains */
        c->plan.nodes += c->plan.nodes == 1;
    }
    c->clients = c->set->clients + c->plan.growers + c->plan.latecomers;
    c->keys = c->set->keys + c->plan.cold;
    c->next_cold = c->set->keys;
    c->walks = 0;
    c->lock = (struct lock_account){0};
    c->members = (struct members_account){.newest = 0};
    if (c->plan.cold > 0)
        rc = c->program ? choose_program_keys(c) : choose_cold_keys(c);
    if (c->plan.lags)
        choose_lag(c);
    if (rc == FAR_OK)
        rc = open_pool(c);
    if (rc == FAR_OK && c->plan.growers > 0)
        rc = open_early(c);
    if (c->plan.shrinks)
        c->next_cold = c->keys;
    if (rc == FAR_OK)
        fill(c);
    if (rc == FAR_OK && c->plan.shrinks)
        thin_out(c);
    if (rc == FAR_OK && c->plan.stuffed)
        rc = check_stuff(c, c->session);
    far_session_close(c->session); /* if idle, it would hold up the epoch until its lease lapses */
    c->session = NULL;
    /* From here on, growth counts as growth while clients are at work. */
    c->growth = (struct growth){.watch = {.grew = on_growth, .lags = on_lag}};
    memset(&c->result.coverage, 0, sizeof c->result.coverage);
    if (rc == FAR_OK)
        rc = start_clients(c);
    if (rc != FAR_OK)
        check_fail_status(c, CHECK_NO_SETUP, rc, "setting the run up");
    return c->result.verdict == CHECK_PASSED;
}

void check_tear_down(struct check *c)
{
    /* Sessions that unwind, or are closed from outside of their client and by another clock, do not
     * know whether they were declared dead: the shadow must not watch them. */
    if (c->pool)
        c->pool->pool.knobs.free_watch = NULL;
    sim_end(c->sim);
    close_clients(c);
    close_pool(c);
}
