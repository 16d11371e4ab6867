/* Enumeration: every schedule of every small program. */
#include "check/check.h"

#include <string.h>

struct exhausting {
    struct check *check;
    const struct check_settings *set;
    size_t deviations;
    uint64_t runs_max;
    struct tape tape;
    struct check_exhausted *out;
};

/* Runs the last schedule again, with a time line. */
static void replay(struct exhausting *x, const struct check_program *program)
{
    struct tape tape;
    struct check_result r;
    tape_init(&tape);
    if (tape_from_record(&tape, x->tape.mark, x->tape.at)) {
        check_keep_log(x->check, true);
        check_run(x->check, x->set, program, &tape, &r);
        check_keep_log(x->check, false);
    }
    tape_free(&tape);
}

/* All schedules of one program. */
static void exhaust_program(struct exhausting *x, const struct check_program *program)
{
    struct check_exhausted *out = x->out;
    struct check_result r;
    uint64_t runs = 0, grew = out->totals.grew;
    check_forget_states(x->check);
    tape_enumerate(&x->tape, SIZE_MAX, x->deviations);
    do {
        check_run(x->check, x->set, program, &x->tape, &r);
        runs++;
        out->operations += r.operations;
        out->calmed += r.calmed;
        check_add_counts(&out->counts, &r.counts);
        check_add_coverage(&out->totals, &r.coverage);
        out->undecided += r.verdict == CHECK_UNDECIDED;
        if (r.verdict != CHECK_PASSED && r.verdict != CHECK_UNDECIDED)
            out->failed++;
        if (r.verdict != CHECK_PASSED && out->first.verdict == CHECK_PASSED) {
            out->first = r;
            out->program = *program;
        }
        if (out->failed > 0) {
            replay(x, program);
            break;
        }
        if (runs == x->runs_max) {
            out->complete = false;
            break;
        }
    } while (tape_next(&x->tape));
    out->complete &= !x->tape.cut && !x->tape.out_of_memory;
    out->programs++;
    out->grown += out->totals.grew > grew;
    out->runs += runs;
}

uint64_t check_programs(const struct check_settings *s)
{
    double of_client = 1, all = 1u << s->keys;
    for (unsigned i = 0; i < s->ops; i++)
        of_client *= CHECK_PROGRAM_KINDS * s->keys;
    for (unsigned i = 0; i < s->clients; i++) /* multisets: n over k, with repetition */
        all = all * (of_client + i) / (i + 1);
    return all < 1e15 ? (uint64_t)(all + 0.5) : UINT64_MAX;
}

/* The n-th program of one client. */
static void write_steps(const struct check_settings *s, struct check_step *steps, uint64_t n)
{
    for (unsigned i = 0; i < s->ops; i++) {
        unsigned one = (unsigned)(n % (CHECK_PROGRAM_KINDS * s->keys));
        n /= CHECK_PROGRAM_KINDS * s->keys;
        steps[i].kind = (uint8_t)(one % CHECK_PROGRAM_KINDS);
        steps[i].key = (uint8_t)(one / CHECK_PROGRAM_KINDS);
    }
}

void check_exhaust(struct check *c, const struct check_settings *s, size_t deviations,
                   uint64_t runs_max, bool (*go_on)(void *arg, const struct check_exhausted *x),
                   void *arg, struct check_exhausted *out)
{
    struct exhausting x = {
        .check = c, .set = s, .deviations = deviations, .runs_max = runs_max, .out = out};
    uint64_t of_client = 1, number[CHECK_CLIENTS_MAX] = {0};
    memset(out, 0, sizeof *out);
    out->complete = true;
    tape_init(&x.tape);
    for (unsigned i = 0; i < s->ops; i++)
        of_client *= CHECK_PROGRAM_KINDS * s->keys;

    /* Clients are interchangeable, so only programs in ascending order are needed. number[] counts
     * through those, the last client fastest. */
    for (bool more = true; more && out->failed == 0;) {
        struct check_program program;
        for (unsigned i = 0; i < s->clients; i++)
            write_steps(s, program.step[i], number[i]);
        for (unsigned present = 0; present < 1u << s->keys && out->failed == 0; present++) {
            program.present = present;
            exhaust_program(&x, &program);
        }
        bool stopped = go_on && !go_on(arg, out);
        unsigned i = s->clients;
        while (i > 0 && number[i - 1] + 1 == of_client)
            i--;
        more = i > 0 && !stopped;
        out->complete &= !stopped;
        if (more) {
            number[i - 1]++;
            for (; i < s->clients; i++)
                number[i] = number[i - 1];
        }
    }
    tape_free(&x.tape);
}
