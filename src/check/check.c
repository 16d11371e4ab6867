/* One run of an index in the simulator, from an empty pool to a verdict. */
#include "check/check_internal.h"

#include <inttypes.h>
#include <string.h>

#define LIN_BUDGET_DEFAULT 1000000u
#define LOG_LINES          20000u
/* Verbs per operation: until the faults stop (if tables grow; in a program, where every retry is
 * enumerated), and after that, until it must be done. */
#define FAULTY_VERBS    60u
#define GROWING_VERBS   160u
#define PROGRAM_VERBS   16u
#define CALM_VERBS      2000u
#define CALM_VERBS_BASE 5000u

struct check *check_new(void)
{
    struct check *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->sim = sim_new();
    c->lin = lin_checker_new();
    c->key_of = malloc(VALUES_MAX);
    bool history = lin_history_init(&c->history, VALUES_MAX + SEEN_MAX + SCANNED_MAX);
    c->own_sites = sites_new();
    if (c->sim && c->lin && c->key_of && history && c->own_sites)
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
    shadow_free(&c->shadow);
    tape_free(&c->own_tape);
    sites_free(c->own_sites);
    free(c->key_of);
    free(c);
}

void check_keep_log(struct check *c, bool keep)
{
    c->keep_log = keep;
}

void check_forget_states(struct check *c)
{
    sim_forget_states(c->sim);
}

void check_count_sites(struct check *c, struct sites *sites)
{
    c->sites = sites;
    if (sites) {
        sites->uses = shadow_uses;
        sites->uses_arg = &c->shadow;
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

/* With no other client at work: is the structure sound, are its contents right, can they change? */
static void inspect(struct check *c)
{
    unsigned inspector = c->clients;
    far_session *fresh = NULL;
    int rc = far_session_open(c->pool, &(struct far_session_options){.seed = 99}, &fresh);
    if (rc != FAR_OK) {
        check_fail_status(c, CHECK_BAD_STATUS, rc, "opening a session for the inspection");
        return;
    }
    check_members_audit(c, fresh);
    check_walk_tables(c, fresh);
    check_memory_audit(c, fresh);
    check_lock_audit(c);
    check_handle_audit(c);
    for (unsigned key = 0; key < c->keys; key++)
        check_execute(c, fresh, inspector, LIN_GET, key);
    for (unsigned key = 0; key < c->set->keys; key++) {
        rc = check_execute(c, fresh, inspector, LIN_PUT, key);
        if (rc != FAR_OK && rc != FAR_TABLE_FULL && !(rc == FAR_POOL_FULL && c->plan.tight))
            check_fail_status(c, CHECK_NOT_LIVE, rc, "with no other client at work, put k%u", key);
        check_execute(c, fresh, inspector, LIN_GET, key);
    }
    check_sweep_audit(c, fresh);
    if (c->result.verdict == CHECK_PASSED)
        check_journal_audit(c);
    check_walk_tables(c, fresh);
    if (c->set->chains)
        check_chain_audit(c);
    check_room_audit(c, fresh);
    check_empty_audit(c, fresh);
    far_session_close(fresh);
    if (c->set->chains && c->result.verdict == CHECK_PASSED)
        check_chain_alone(c);
}

static uint64_t history_hash(void *arg)
{
    const struct check *c = arg;
    return c->interval ^ c->returned;
}

static void judge(struct check *c)
{
    uint64_t budget = c->set->lin_budget ? c->set->lin_budget : LIN_BUDGET_DEFAULT;
    enum lin_verdict v = lin_check(c->lin, &c->history, budget, &c->lin_result);
    c->result.lin_steps = c->lin_result.steps;
    if (v == LIN_LINEARIZABLE)
        return;
    char text[96];
    lin_describe(&c->history.op[c->lin_result.stuck], text, sizeof text);
    check_fail(c, v == LIN_UNDECIDED ? CHECK_UNDECIDED : CHECK_NOT_LINEARIZABLE,
               v == LIN_UNDECIDED ? "k%u: the search ended before it could place \"%s\""
                                  : "k%u: no order of its operations explains \"%s\"",
               c->lin_result.key, text);
}

static void note_plan(struct check *c)
{
    struct check_coverage *v = &c->result.coverage;
    v->nodes = c->plan.nodes;
    v->tables = c->plan.tables;
    v->ring = c->plan.ring;
    v->grown_nodes = (uint64_t)__builtin_popcount(c->growth.nodes);
    v->growing = c->plan.cold > 0;
    v->mcas_emulated = c->plan.no_mcas && v->locks > 0;
    v->no_fence = c->plan.no_fence;
    v->stopped = sim_counts(c->sim)->stopped;
    v->lives = c->plan.lives;
}

void check_run(struct check *c, const struct check_settings *s, const struct check_program *program,
               struct tape *tape, struct check_result *result)
{
    ASSERT(s->clients >= 1 && s->clients <= CHECK_CLIENTS_MAX && s->ops <= CHECK_OPS_MAX);
    ASSERT(s->keys >= 1 && s->keys <= CHECK_KEYS_MAX);
    memset(&c->result, 0, sizeof c->result);
    memset(&c->lin_result, 0, sizeof c->lin_result);
    c->set = s;
    c->program = program;
    c->tape = tape;
    c->values = 1;
    c->returned = c->interval = 0;
    memset(c->called, 0, sizeof c->called);
    lin_history_clear(&c->history);
    sim_keep_log(c->sim, c->keep_log ? LOG_LINES : 0);
    struct sites *sites = c->sites || program ? c->sites : c->own_sites;
    sim_count_sites(c->sim, sites);
    if (sites)
        sites_begin(sites, s->aim);
    sim_prune(c->sim, program ? history_hash : NULL, c);

    if (check_set_up(c, sites)) {
        uint64_t ops = (uint64_t)c->clients * s->ops, calm = ops * CALM_VERBS + CALM_VERBS_BASE;
        uint64_t faulty = ops * (c->plan.cold ? GROWING_VERBS
                                 : program    ? PROGRAM_VERBS
                                              : FAULTY_VERBS);
        calm += check_pool_verbs(c);
        enum sim_end end = sim_run(c->sim, faulty + check_pool_verbs(c) / 8);
        c->result.calmed = end == SIM_LIMIT;
        sim_stop_faults(c->sim);
        if (end == SIM_LIMIT)
            end = sim_run(c->sim, calm);
        c->result.coverage.grew = c->result.coverage.restructured > 0;
        if (end == SIM_LIMIT)
            check_fail(c, CHECK_NOT_LIVE,
                       "clients are still at work %" PRIu64 " verbs after the faults stopped",
                       calm);
        else
            inspect(c);
        judge(c);
        note_plan(c);
        if (c->plan.aims && sites) {
            c->result.coverage.struck = sites->aimed;
            c->result.coverage.struck_again = sites->again;
        }
    }
    c->result.trace = sim_trace(c->sim);
    c->result.reused = c->shadow.reused;
    c->result.counts = *sim_counts(c->sim);
    check_tear_down(c);
    *result = c->result;
}

void check_seed(struct check *c, const struct check_settings *s, uint64_t seed,
                struct check_result *result)
{
    tape_from_seed(&c->own_tape, seed, false);
    check_run(c, s, NULL, &c->own_tape, result);
    if (c->sites && !s->aim)
        sites_end(c->sites, s->index, seed);
}

void check_add_counts(struct sim_counts *sum, const struct sim_counts *one)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)one;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}
_Static_assert(sizeof(struct sim_counts) == (13 + SIM_ADVERSITY_COUNT) * sizeof(uint64_t),
               "nothing but counts");

void check_add_coverage(struct check_totals *sum, const struct check_coverage *one)
{
#define CHECK_X(name, text, of_one) sum->name += of_one;
    CHECK_TOTALS(CHECK_X)
#undef CHECK_X
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_op(const struct check *c, size_t place, FILE *out)
{
    const struct lin_op *op = &c->history.op[place];
    char text[96];
    lin_describe(op, text, sizeof text);
    if (op->client == c->clients)
        fprintf(out, "  harness  %s\n", text);
    else
        fprintf(out, "  c%-7u %s\n", op->client, text);
}

void check_print(const struct check *c, FILE *out)
{
    sim_print_log(c->sim, out);
    if (c->result.verdict != CHECK_NOT_LINEARIZABLE && c->result.verdict != CHECK_UNDECIDED)
        return;
    fprintf(out, "operations on k%u, in the order of their calls:\n", c->lin_result.key);
    for (size_t i = 0; i < c->history.count; i++)
        if (c->history.op[i].key == c->lin_result.key)
            print_op(c, i, out);
    fprintf(out, "the longest order that was found for the first of them:\n");
    for (size_t i = 0; i < c->lin_result.placed; i++)
        print_op(c, c->lin_result.order[i], out);
    fprintf(out, "the operation that fits nowhere after that:\n");
    print_op(c, c->lin_result.stuck, out);
}
