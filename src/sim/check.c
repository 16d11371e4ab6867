/* One run of an index in the simulator, from an empty pool to a verdict. */
#include "sim/check_core.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LIN_BUDGET_DEFAULT 1000000u
#define NODE_BYTES_BASE    (4ull << 20)
#define NODE_BYTES_CLIENT  (512ull << 10) /* more for each client */
#define VALUE_MAX          416u
#define LEASE_MS           10u /* far more than a verb takes, far less than most pauses */
#define LEASE_MS_NO_FENCE  20u /* and more than a request takes, with all its delays */
#define RING_MAX           3u
#define CONCURRENT_MAX     10u /* operations in flight on rings: the checker's time grows with it */
#define ERRORS_MAX         3u /* of the fabric, after which a client gives up                     */
#define LOG_LINES          20000u
#define FAULTY_VERBS       60u /* of an operation, before the faults stop                   */
#define PROGRAM_VERBS      16u /* the same of a program's, where every retry has to be tried */
#define SMALL_NODE_BYTES   (1ull << 20)
#define CALM_VERBS         500u /* of an operation, within which it must be done after that  */
#define CALM_VERBS_BASE    5000u
#define VALUES_MAX         (KEYS_MAX * 3 + CHECK_CLIENTS_MAX * CHECK_OPS_MAX + 1)

const char *check_verdict_name(enum check_verdict verdict)
{
    static const char *const name[CHECK_VERDICT_COUNT] = {
#define CHECK_X(name, text) text,
        CHECK_VERDICTS(CHECK_X)
#undef CHECK_X
    };
    return name[verdict];
}

struct check *check_new(void)
{
    struct check *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->sim = sim_new();
    c->lin = lin_checker_new();
    c->key_of = malloc(VALUES_MAX);
    bool history = lin_history_init(&c->history, VALUES_MAX);
    if (c->sim && c->lin && c->key_of && history)
        return c;
    check_free(c);
    return NULL;
}

void check_free(struct check *c)
{
    if (!c)
        return;
    sim_free(c->sim);
    lin_checker_free(c->lin);
    lin_history_free(&c->history);
    freemap_free(&c->free);
    tape_free(&c->own_tape);
    free(c->key_of);
    free(c);
}

void check_keep_log(struct check *c, bool keep)
{
    c->keep_log = keep;
}

void check_forget(struct check *c)
{
    sim_forget(c->sim);
}

void check_condemn(struct check *c, enum check_verdict verdict, const char *format, ...)
{
    if (c->result.verdict != CHECK_PASSED)
        return;
    c->result.verdict = verdict;
    va_list args;
    va_start(args, format);
    vsnprintf(c->result.what, sizeof c->result.what, format, args);
    va_end(args);
    sim_note(c->sim, "!! %s: %s", check_verdict_name(verdict), c->result.what);
}

/* ---- keys and values ------------------------------------------------------------------------- */

/* Keys are prefixes of each other, some contain NULs: whoever compares only a part, or only up to
 * a NUL, takes one for another. */
static size_t make_key(unsigned key, char *bytes)
{
    static const char stem[] = "k\0kk\0k";
    size_t len = 1 + key % (sizeof stem - 1);
    memcpy(bytes, stem, len);
    for (unsigned n = key / (sizeof stem - 1); n > 0; n--)
        bytes[len++] = 'q';
    return len;
}
#define KEY_BYTES_MAX (8 + KEYS_MAX / 6 + 1)

/* A value is its number, then bytes that follow from it; its length, too. */
static size_t make_value(uint32_t number, uint8_t *bytes)
{
    uint64_t x = (number + 1ull) * 0x9e3779b97f4a7c15u;
    size_t len = 8 + (x >> 59); /* mostly within a line of the pool */
    if ((x >> 56 & 7) == 0)
        len = 8 + (x >> 40) % (VALUE_MAX - 8);
    memcpy(bytes, &number, sizeof number);
    for (size_t i = sizeof number; i < len; i++)
        bytes[i] = (uint8_t)((x >> (i % 8 * 7)) + i);
    return len;
}

/* The number of a value that was read, or LIN_ABSENT after condemning it. */
static uint32_t judge_value(struct check *c, unsigned key, const uint8_t *bytes, size_t len)
{
    uint8_t right[VALUE_MAX];
    uint32_t number = 0;
    if (len >= sizeof number)
        memcpy(&number, bytes, sizeof number);
    if (number == 0 || number >= c->values)
        check_condemn(c, CHECK_BAD_VALUE, "k%u holds %zu bytes that nobody wrote", key, len);
    else if (make_value(number, right) != len || memcmp(right, bytes, len) != 0)
        check_condemn(c, CHECK_BAD_VALUE, "k%u holds a torn v%u", key, number);
    else if (c->key_of[number] != key)
        check_condemn(c, CHECK_BAD_VALUE, "k%u holds v%u, which was written to k%u", key, number,
                      c->key_of[number]);
    else
        return number;
    return LIN_ABSENT;
}

static uint32_t new_value(struct check *c, unsigned key)
{
    ASSERT(c->values < VALUES_MAX);
    c->key_of[c->values] = (uint8_t)key;
    return c->values++;
}

/* ---- operations ------------------------------------------------------------------------------ */

struct doing {     /* an operation under way */
    size_t place;  /* in the history                    */
    uint64_t name; /* the same whatever others do       */
    enum lin_kind kind;
    unsigned key;
    char key_bytes[KEY_BYTES_MAX];
    uint8_t value[VALUE_MAX], got[VALUE_MAX];
    struct far_op op;
};

static const enum far_op_kind op_kind[LIN_KINDS] = {
    [LIN_GET] = FAR_OP_GET,       [LIN_PUT] = FAR_OP_PUT,       [LIN_INSERT] = FAR_OP_INSERT,
    [LIN_UPDATE] = FAR_OP_UPDATE, [LIN_DELETE] = FAR_OP_DELETE,
};

static void call(struct check *c, unsigned client, enum lin_kind kind, unsigned key,
                 struct doing *d)
{
    bool writes = kind == LIN_PUT || kind == LIN_INSERT || kind == LIN_UPDATE;
    uint32_t number = writes ? new_value(c, key) : LIN_ABSENT;
    d->kind = kind;
    d->key = key;
    d->op = (struct far_op){.kind = op_kind[kind],
                            .table = c->table,
                            .key = d->key_bytes,
                            .key_len = make_key(key, d->key_bytes),
                            .value = d->value,
                            .value_len = writes ? make_value(number, d->value) : 0,
                            .buf = d->got,
                            .cap = sizeof d->got};
    d->place = lin_call(&c->history, client, kind, key, number);
    d->name = (uint64_t)client << 32 | c->called[client]++;
    c->interval ^= hash_sum(&(uint64_t[2]){d->name, c->returned}, 16, 1);
    if (writes)
        sim_note(c->sim, "%s k%u = v%u (%zu bytes)", lin_kind_name(kind), key, number,
                 d->op.value_len);
    else
        sim_note(c->sim, "%s k%u", lin_kind_name(kind), key);
}

/* Nothing was done, says farside.h. */
static bool is_without_effect(int status)
{
    return status == FAR_CONTENTION || status == FAR_POOL_FULL || status == FAR_TABLE_FULL ||
           status == FAR_FENCED;
}

static bool is_of_the_fabric(int status)
{
    return status == FAR_UNKNOWN || status == FAR_UNREACHABLE || status == FAR_TIMEOUT;
}

/* Also without any fault: delays alone can make a client silent for
 * longer than its lease, and what it had in flight when it was shut out ends like that. */
bool check_excused(const struct check *c, int status)
{
    if (!is_of_the_fabric(status))
        return false;
    return (c->set->adversity & SIM_FAULTS) ||
           (status == FAR_UNKNOWN && sim_counts(c->sim)->shut_out > 0);
}

static void returned(struct check *c, const struct doing *d, int status, size_t len)
{
    enum lin_outcome outcome = LIN_DONE;
    uint32_t result = status == FAR_OK;
    char text[96];

    c->result.operations++;
    if (d->kind == LIN_GET && status == FAR_OK) {
        result = judge_value(c, d->key, d->got, len);
    } else if (is_without_effect(status)) {
        outcome = LIN_FAILED;
        c->result.gave_up++;
    } else if (check_excused(c, status)) {
        outcome = LIN_UNKNOWN;
        c->result.unknown++;
    } else if (!(status == FAR_OK || (status == FAR_EXISTS && d->kind == LIN_INSERT) ||
                 (status == FAR_NOT_FOUND && d->kind != LIN_PUT && d->kind != LIN_INSERT))) {
        outcome = LIN_UNKNOWN;
        check_condemn(c, CHECK_BAD_STATUS, "%s k%u gave %s (%s)", lin_kind_name(d->kind), d->key,
                      far_errname(status), far_error_detail());
    }
    lin_return(&c->history, d->place, outcome, result);
    c->returned ^= hash_sum(&(uint64_t[2]){d->name, result}, 16, 2 + outcome);
    lin_describe(&c->history.op[d->place], text, sizeof text);
    sim_note(c->sim, "   %s", text);
}

static int do_now(struct check *c, far_session *session, unsigned client, enum lin_kind kind,
                  unsigned key)
{
    struct doing d;
    struct far_result r;
    call(c, client, kind, key, &d);
    int status = store_run(session, &session->op, &d.op, &r);
    if (!sim_dead(c->sim))
        returned(c, &d, status, r.len);
    return status;
}

/* ---- clients --------------------------------------------------------------------------------- */

static enum lin_kind choose_kind(struct check *c)
{
    uint32_t x = tape_choose(c->tape, c->plan.weight_sum, TAPE_WORK);
    unsigned kind = 0;
    while (kind + 1 < LIN_KINDS && x >= c->plan.weight[kind])
        x -= c->plan.weight[kind++];
    return (enum lin_kind)kind;
}

/* Of a table that is to grow, half of the writes add a key. */
static unsigned choose_key(struct check *c, enum lin_kind kind)
{
    if (c->plan.cold > 0 && tape_choose(c->tape, 2, TAPE_WORK) == 1) {
        bool adds = kind == LIN_PUT || kind == LIN_INSERT;
        if (adds && c->fresh < c->keys)
            return c->fresh++;
        return c->set->keys + tape_choose(c->tape, c->plan.cold, TAPE_WORK);
    }
    if (c->plan.focus && tape_choose(c->tape, 8, TAPE_WORK) < 7)
        return 0;
    return tape_choose(c->tape, c->set->keys, TAPE_WORK);
}

static void reap(struct check *c, struct worker *w, struct doing *doing, unsigned *idle,
                 unsigned *idle_count, unsigned at_least)
{
    struct far_result r[RING_MAX];
    unsigned count = far_reap(w->session, r, RING_MAX, at_least);
    for (unsigned i = 0; i < count; i++) {
        struct doing *d = &doing[r[i].user_data];
        if (!sim_dead(c->sim))
            returned(c, d, r[i].status, r[i].len);
        w->errors += is_of_the_fabric(r[i].status);
        idle[(*idle_count)++] = (unsigned)r[i].user_data;
    }
}

/* Several operations of one client in flight. */
static void work_on_ring(struct check *c, struct worker *w)
{
    struct doing doing[RING_MAX];
    unsigned idle[RING_MAX], idle_count = c->plan.ring;
    for (unsigned i = 0; i < idle_count; i++)
        idle[i] = i;
    for (unsigned i = 0; i < c->set->ops && w->errors < ERRORS_MAX; i++) {
        sim_think(c->sim);
        if (sim_dead(c->sim))
            break;
        ASSERT(idle_count > 0 && idle_count <= RING_MAX);
        struct doing *d = &doing[idle[--idle_count]];
        enum lin_kind kind = choose_kind(c);
        call(c, w->id, kind, choose_key(c, kind), d);
        d->op.user_data = (uint64_t)(d - doing);
        int rc = far_submit(w->session, &d->op);
        if (rc != FAR_OK) {
            idle[idle_count++] = (unsigned)(d - doing);
            if (!sim_dead(c->sim))
                returned(c, d, rc, 0);
        }
        if (idle_count == 0)
            reap(c, w, doing, idle, &idle_count, 1);
    }
    reap(c, w, doing, idle, &idle_count, c->plan.ring - idle_count);
}

static void work_in_turn(struct check *c, struct worker *w)
{
    for (unsigned i = 0; i < c->set->ops && w->errors < ERRORS_MAX; i++) {
        int rc = FAR_OK;
        sim_think(c->sim);
        if (sim_dead(c->sim))
            return;
        if (c->program) {
            const struct check_step *step = &c->program->step[w->id][i];
            rc = do_now(c, w->session, w->id, (enum lin_kind)step->kind, step->key);
        } else {
            enum lin_kind kind = choose_kind(c);
            rc = do_now(c, w->session, w->id, kind, choose_key(c, kind));
        }
        w->errors += is_of_the_fabric(rc);
        if (c->plan.parks && !sim_dead(c->sim) && tape_chance(c->tape, 1, 8, TAPE_WORK))
            (void)client_park(&w->session->op); /* as the keeper of sessions does */
        if (c->plan.upkeep && !sim_dead(c->sim) && tape_chance(c->tape, 1, 8, TAPE_WORK))
            w->errors += is_of_the_fabric(check_upkeep(c, w));
    }
}

static int open_session(struct check *c, struct worker *w)
{
    struct far_session_options options = {.depth = c->plan.ring, .seed = w->id + 1};
    int rc = far_session_open(c->pool, &options, &w->session);
    if (rc == FAR_OK && c->plan.wraps)
        check_wrap_client(c, w->session);
    return rc;
}

static void work(void *arg)
{
    struct worker *w = arg;
    struct check *c = w->check;
    if (!w->session) {
        int rc = open_session(c, w);
        if (sim_dead(c->sim))
            return;
        if (rc != FAR_OK && !check_excused(c, rc))
            check_condemn(c, CHECK_BAD_STATUS, "opening a session gave %s (%s)", far_errname(rc),
                          far_error_detail());
        if (rc != FAR_OK)
            return;
    }
    if (c->plan.ring > 1)
        work_on_ring(c, w);
    else
        work_in_turn(c, w);
}

/* ---- setting up ------------------------------------------------------------------------------ */

static const uint64_t hash_masks[HASH_MASKS] = {UINT64_MAX, 0x00ffffffffffffffu,
                                                0x000000ff000000ffu, 0xff0001000000000fu};

static void make_plan(struct check *c)
{
    static const uint8_t fingerprint_mask[] = {0xff, 0x00, 0x01};
    /* get, put, insert, update, delete; of a table that is to grow, one of the first three */
    static const uint8_t weights[][LIN_KINDS] = {{2, 2, 6, 1, 1}, {4, 2, 4, 2, 2}, {2, 4, 2, 2, 4},
                                                 {2, 1, 4, 0, 4}, {4, 0, 4, 1, 3}, {2, 1, 1, 4, 1},
                                                 {4, 2, 2, 2, 2}};
    struct plan *p = &c->plan;
    struct tape *t = c->tape;
    *p = (struct plan){.knobs = knobs_default, .granule = 8, .nodes = 1, .ring = 1};
    p->knobs.patience = 3;
    if (c->program)
        return;
    p->granule = tape_choose(t, 2, TAPE_SETUP) ? 64 : 8;
    p->hash_mask = tape_choose(t, HASH_MASKS, TAPE_SETUP);
    p->hash_seed = tape_choose(t, HASH_SEEDS, TAPE_SETUP);
    p->knobs.hash_mask = hash_masks[p->hash_mask];
    p->knobs.fingerprint_mask = fingerprint_mask[tape_choose(t, 3, TAPE_SETUP)];
    p->knobs.tick_ops = 1 + tape_choose(t, 3, TAPE_SETUP);
    p->cold = tape_chance(t, 1, 2, TAPE_SETUP) ? COLD_KEYS_MAX : 0;
    if (p->cold == 0) /* a table on several nodes starts too large to grow soon */
        p->nodes = 1 + tape_chance(t, 1, 4, TAPE_SETUP);
    if (2 * c->set->clients <= CONCURRENT_MAX && tape_chance(t, 1, 4, TAPE_SETUP))
        p->ring = 2 + (3 * c->set->clients <= CONCURRENT_MAX && tape_choose(t, 2, TAPE_SETUP));
    p->open_in_client = tape_chance(t, 1, 4, TAPE_SETUP);
    p->focus = tape_chance(t, 1, 2, TAPE_SETUP);
    check_plan_pool(c);
    unsigned w = tape_choose(t, p->cold ? 3 : sizeof weights / sizeof *weights, TAPE_SETUP);
    for (unsigned i = 0; i < LIN_KINDS; i++)
        p->weight_sum += p->weight[i] = weights[w][i];
}

static void on_mistake(void *arg, const char *what)
{
    check_condemn(arg, CHECK_BAD_MEMORY, "%s", what);
}

/* An empty table on an empty pool. */
static int open_pool(struct check *c)
{
    const struct check_settings *s = c->set;
    bool small = c->program || c->plan.tight;
    c->sim_set = (struct sim_settings){
        .profile = s->profile,
        /* Where nobody can be shut out, nothing breaks and lands later. */
        .adversity = s->adversity & ~(c->plan.no_fence ? (unsigned)SIM_ERROR : 0),
        .clients = s->clients,
        .nodes = c->plan.nodes,
        .node_bytes = small ? SMALL_NODE_BYTES : NODE_BYTES_BASE + s->clients * NODE_BYTES_CLIENT,
        .granule = c->plan.granule,
        .by_choice = c->program != NULL,
        .faults_max = c->program ? 1 : 2 * s->clients,
        .no_fence = c->plan.no_fence,
    };
    sim_watch(c->sim, NULL, NULL);
    int rc = sim_begin(c->sim, &c->sim_set, c->tape);
    if (rc != FAR_OK)
        return rc;
    if (!c->program && !freemap_begin(&c->free, c->sim, &c->sim_set, on_mistake, c))
        return FAR_NO_MEMORY;
    c->plan.knobs.free_watch = c->program ? NULL : &c->free.watch;
    sim_fab(c->sim)->clients_wanted = 2 * CHECK_CLIENTS_MAX;
    sim_fab(c->sim)->lease_ms = c->plan.no_fence ? LEASE_MS_NO_FENCE : LEASE_MS;
    rc = store_open(sim_fab(c->sim), &c->plan.knobs, &c->pool);
    if (rc == FAR_OK)
        rc = far_session_open(c->pool, &(struct far_session_options){.seed = 77}, &c->session);
    if (rc == FAR_OK)
        rc = far_table_create(
            c->session, "t", s->index,
            &(struct far_table_options){.bucket_groups = 2, .hash_seed = 1 + c->plan.hash_seed},
            &c->table);
    if (rc == FAR_OK && c->plan.wraps)
        check_wrap_lists(c);
    return rc;
}

static void close_pool(struct check *c)
{
    far_session_close(c->session);
    far_pool_close(c->pool);
    c->session = NULL;
    c->pool = NULL;
    c->table = NULL;
}

/* Fills a table, hot keys first, and takes down after how many cold ones it grew. */
static int learn_growth(struct check *c, uint8_t *grows_at)
{
    struct tape *tape = c->tape;
    struct tape quiet;
    struct far_table_info info = {.splits = 0};
    unsigned known = 0;
    tape_init(&quiet);
    tape_from_record(&quiet, NULL, 0);
    c->tape = &quiet;
    int rc = open_pool(c);
    for (unsigned i = 0; i < c->keys && known < SPLITS_KNOWN && rc == FAR_OK; i++) {
        char key[KEY_BYTES_MAX];
        size_t len = make_key(i, key);
        rc = far_put(c->session, c->table, key, len, "", 0);
        if (rc == FAR_OK)
            rc = far_table_info(c->session, c->table, &info);
        while (known < info.splits && known < SPLITS_KNOWN)
            grows_at[known++] = (uint8_t)(i < c->set->keys ? 1 : i + 1 - c->set->keys);
    }
    while (known < SPLITS_KNOWN)
        grows_at[known++] = COLD_KEYS_MAX;
    close_pool(c);
    tape_free(&quiet);
    c->tape = tape;
    return rc;
}

/* How many cold keys there are at first: a few less than would make the table grow. */
static int choose_fresh(struct check *c)
{
    struct plan *p = &c->plan;
    if (c->grown_index != c->set->index || c->grown_keys != c->set->keys)
        memset(c->grows_at, 0, sizeof c->grows_at);
    c->grown_index = c->set->index;
    c->grown_keys = c->set->keys;
    uint8_t *grows_at = c->grows_at[p->hash_mask][p->hash_seed];
    int rc = grows_at[0] == 0 ? learn_growth(c, grows_at) : FAR_OK;
    unsigned below = tape_choose(c->tape, 4, TAPE_SETUP);
    unsigned count = grows_at[tape_choose(c->tape, SPLITS_KNOWN, TAPE_SETUP)];
    c->fresh = c->set->keys + (count > below ? count - below - 1 : 0);
    return rc;
}

/* Which keys are there when the clients start, and which are not. */
static void fill(struct check *c)
{
    for (unsigned key = 0; key < c->keys && c->result.verdict == CHECK_PASSED; key++) {
        bool there = false;
        if (c->program)
            there = c->program->present >> key & 1;
        else if (key < c->set->keys)
            there = tape_choose(c->tape, 2, TAPE_SETUP);
        else
            there = key < c->fresh;
        if (there)
            do_now(c, c->session, c->set->clients, LIN_PUT, key);
    }
}

/* In a program every verb counts: what a session does once has been done before. */
static int warm_up(struct check *c, far_session *session)
{
    char key[KEY_BYTES_MAX];
    size_t len = make_key(c->keys, key);
    uint8_t value[VALUE_MAX];
    int rc = far_put(session, c->table, key, len, value, make_value(1, value));
    return rc == FAR_OK ? far_delete(session, c->table, key, len) : rc;
}

static bool set_up(struct check *c)
{
    const struct check_settings *s = c->set;
    int rc = FAR_OK;
    make_plan(c);
    c->keys = s->keys + c->plan.cold;
    c->fresh = s->keys;
    if (c->plan.cold > 0)
        rc = choose_fresh(c);
    if (rc == FAR_OK)
        rc = open_pool(c);
    if (rc == FAR_OK)
        fill(c);
    far_session_close(c->session); /* an idle client holds the epoch up until its lease lapses */
    c->session = NULL;
    for (unsigned i = 0; i < s->clients && rc == FAR_OK; i++) {
        c->worker[i] = (struct worker){.check = c, .id = i};
        if (!c->plan.open_in_client)
            rc = open_session(c, &c->worker[i]);
        if (rc == FAR_OK && c->worker[i].session)
            sim_identify_client(c->sim, i, c->worker[i].session->client.incarnation);
        if (rc == FAR_OK && c->program)
            rc = warm_up(c, c->worker[i].session);
        if (rc == FAR_OK)
            rc = sim_start(c->sim, i, work, &c->worker[i]);
    }
    if (rc != FAR_OK)
        check_condemn(c, CHECK_NO_SETUP, "%s (%s)", far_errname(rc), far_error_detail());
    return c->result.verdict == CHECK_PASSED;
}

static void tear_down(struct check *c)
{
    /* What unwinds, or is closed from outside and by another clock than it went by, does not know
     * that it was declared dead. */
    if (c->pool)
        c->pool->pool.knobs.free_watch = NULL;
    sim_end(c->sim);
    for (unsigned i = 0; i < c->set->clients; i++) {
        far_session_close(c->worker[i].session);
        c->worker[i].session = NULL;
    }
    close_pool(c);
}

/* ---- judging --------------------------------------------------------------------------------- */

#define FINDING_MAX 160

static void on_finding(void *arg, const char *line)
{
    char *first = arg;
    if (first[0] == '\0')
        snprintf(first, FINDING_MAX, "%s", line);
}

/* What the dead have left locked is legal, and found; damage is not. */
static void walk_table(struct check *c, far_session *session)
{
    char finding[FINDING_MAX] = "";
    int rc = far_table_check(session, c->table, on_finding, finding);
    if (rc != FAR_OK)
        check_condemn(c, CHECK_BAD_STRUCTURE, "the walker gave %s (%s): %s", far_errname(rc),
                      far_error_detail(), finding);
}

/* With nobody else at work: is the structure sound, is what is there right, can it be changed? */
static void inspect(struct check *c)
{
    unsigned inspector = c->set->clients;
    far_session *fresh = NULL;
    int rc = far_session_open(c->pool, &(struct far_session_options){.seed = 99}, &fresh);
    if (rc != FAR_OK) {
        check_condemn(c, CHECK_BAD_STATUS, "opening a session afterwards gave %s (%s)",
                      far_errname(rc), far_error_detail());
        return;
    }
    walk_table(c, fresh);
    check_audit(c, fresh);
    for (unsigned key = 0; key < c->keys; key++)
        do_now(c, fresh, inspector, LIN_GET, key);
    for (unsigned key = 0; key < c->set->keys; key++) {
        rc = do_now(c, fresh, inspector, LIN_PUT, key);
        if (rc != FAR_OK && rc != FAR_TABLE_FULL && !(rc == FAR_POOL_FULL && c->plan.tight))
            check_condemn(c, CHECK_NOT_LIVE, "with nobody else there, put k%u gives %s (%s)", key,
                          far_errname(rc), far_error_detail());
        do_now(c, fresh, inspector, LIN_GET, key);
    }
    check_settle(c, fresh);
    walk_table(c, fresh);
    far_session_close(fresh);
}

static void count_splits(struct check *c)
{
    for (unsigned i = 0; i < c->set->clients; i++) {
        struct far_table_info info;
        far_session *session = c->worker[i].session;
        if (session && far_table_info(session, c->table, &info) == FAR_OK)
            c->result.splits += info.splits;
    }
}

static uint64_t history_hash(void *arg)
{
    const struct check *c = arg;
    return c->interval ^ c->returned;
}

static void judge(struct check *c)
{
    uint64_t budget = c->set->lin_budget ? c->set->lin_budget : LIN_BUDGET_DEFAULT;
    enum lin_verdict v = lin_check(c->lin, &c->history, budget, &c->report);
    c->result.lin_steps = c->report.steps;
    if (v == LIN_LINEARIZABLE)
        return;
    char text[96];
    lin_describe(&c->history.op[c->report.stuck], text, sizeof text);
    check_condemn(c, v == LIN_UNDECIDED ? CHECK_UNDECIDED : CHECK_NOT_LINEARIZABLE,
                  "k%u: no place for \"%s\"", c->report.key, text);
}

void check_run(struct check *c, const struct check_settings *s, const struct check_program *program,
               struct tape *tape, struct check_result *result)
{
    ASSERT(s->clients >= 1 && s->clients <= CHECK_CLIENTS_MAX && s->ops <= CHECK_OPS_MAX);
    ASSERT(s->keys >= 1 && s->keys <= CHECK_KEYS_MAX);
    memset(&c->result, 0, sizeof c->result);
    memset(&c->report, 0, sizeof c->report);
    c->set = s;
    c->program = program;
    c->tape = tape;
    c->values = 1;
    c->returned = c->interval = 0;
    memset(c->called, 0, sizeof c->called);
    lin_history_clear(&c->history);
    sim_keep_log(c->sim, c->keep_log ? LOG_LINES : 0);
    sim_prune(c->sim, program ? history_hash : NULL, c);

    if (set_up(c)) {
        uint64_t ops = (uint64_t)s->clients * s->ops, calm = ops * CALM_VERBS + CALM_VERBS_BASE;
        uint64_t faulty = ops * (program ? PROGRAM_VERBS : FAULTY_VERBS);
        calm += check_pool_verbs(c);
        enum sim_end end = sim_run(c->sim, faulty + check_pool_verbs(c) / 8);
        c->result.calmed = end == SIM_LIMIT;
        sim_calm(c->sim);
        if (end == SIM_LIMIT)
            end = sim_run(c->sim, calm);
        if (end == SIM_LIMIT)
            check_condemn(c, CHECK_NOT_LIVE,
                          "not done %" PRIu64 " verbs after the faults had stopped", calm);
        else
            inspect(c);
        judge(c);
        count_splits(c);
    }
    c->result.trace = sim_trace(c->sim);
    c->result.reused = c->free.reused;
    c->result.counts = *sim_counts(c->sim);
    tear_down(c);
    *result = c->result;
}

void check_seed(struct check *c, const struct check_settings *s, uint64_t seed,
                struct check_result *result)
{
    tape_from_seed(&c->own_tape, seed, false);
    check_run(c, s, NULL, &c->own_tape, result);
}

void check_add_counts(struct sim_counts *sum, const struct sim_counts *one)
{
    sum->verbs += one->verbs;
    sum->requests += one->requests;
    sum->events += one->events;
    sum->direct_verbs += one->direct_verbs;
    sum->torn += one->torn;
    sum->halved += one->halved;
    sum->reordered += one->reordered;
    sum->shut_out += one->shut_out;
    sum->late += one->late;
    for (unsigned i = 0; i < SIM_ADVERSITY_COUNT; i++)
        sum->happened[i] += one->happened[i];
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_op(const struct check *c, size_t place, FILE *out)
{
    const struct lin_op *op = &c->history.op[place];
    char text[96];
    lin_describe(op, text, sizeof text);
    if (op->client == c->set->clients)
        fprintf(out, "  harness  %s\n", text);
    else
        fprintf(out, "  c%-7u %s\n", op->client, text);
}

void check_print(const struct check *c, FILE *out)
{
    sim_print_log(c->sim, out);
    if (c->result.verdict != CHECK_NOT_LINEARIZABLE && c->result.verdict != CHECK_UNDECIDED)
        return;
    fprintf(out, "k%u in the order of calls:\n", c->report.key);
    for (size_t i = 0; i < c->history.count; i++)
        if (c->history.op[i].key == c->report.key)
            print_op(c, i, out);
    fprintf(out, "the longest order found for its beginning:\n");
    for (size_t i = 0; i < c->report.placed; i++)
        print_op(c, c->report.order[i], out);
    fprintf(out, "which leaves no place for:\n");
    print_op(c, c->report.stuck, out);
}
