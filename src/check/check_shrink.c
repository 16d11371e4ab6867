/*
 * Shrinking a failure.
 *
 * First the settings: fewer clients, operations, keys, kinds of adversity. A smaller run meets the
 * same failure under another schedule, so each candidate gets a number of seeds. The result can be
 * run again from its settings and seed alone.
 *
 * Then the choices: the run's tape is recorded, and stretches of it are cut out or set to 0 (the
 * uneventful choice), long stretches first, as long as the verdict stays the same.
 */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS_TRIED 200u

struct shrinking {
    struct check *check;
    const struct check_result *failed;
    unsigned runs, runs_max;
    struct check_shrunk *best;
};

/* Mistakes with memory are of several kinds, which the first letters of the message distinguish. */
static bool is_alike(const struct shrinking *x, const struct check_result *r)
{
    return r->verdict == x->failed->verdict &&
           (r->verdict != CHECK_BAD_MEMORY || strncmp(r->what, x->failed->what, 6) == 0);
}

static bool fails_alike(struct shrinking *x, const struct check_settings *s, uint64_t seed)
{
    struct check_result r;
    if (x->runs >= x->runs_max)
        return false;
    x->runs++;
    check_seed(x->check, s, seed, &r);
    return is_alike(x, &r);
}

static bool try_settings(struct shrinking *x, const struct check_settings *s)
{
    for (unsigned i = 0; i < SEEDS_TRIED; i++) {
        uint64_t seed = i == 0 ? x->best->seed : i;
        if (!fails_alike(x, s, seed))
            continue;
        x->best->settings = *s;
        x->best->seed = seed;
        return true;
    }
    return false;
}

static bool try_less(struct shrinking *x, size_t field, unsigned to)
{
    struct check_settings s = x->best->settings;
    unsigned *value = (unsigned *)(void *)((char *)&s + field);
    if (to < 1 || to >= *value)
        return false;
    *value = to;
    return try_settings(x, &s);
}

static bool shrink_number(struct shrinking *x, size_t field)
{
    bool any = false;
    for (unsigned turn = 0; turn < 32; turn++) { /* each turn makes the number smaller */
        unsigned now = *(unsigned *)(void *)((char *)&x->best->settings + field);
        if (!try_less(x, field, now / 2) && !try_less(x, field, now - 1))
            break;
        any = true;
    }
    return any;
}

static void shrink_settings(struct shrinking *x)
{
    bool any = true;
    for (unsigned round = 0; any && round < 8; round++) {
        any = shrink_number(x, offsetof(struct check_settings, clients));
        any |= shrink_number(x, offsetof(struct check_settings, ops));
        any |= shrink_number(x, offsetof(struct check_settings, keys));
        for (unsigned i = SIM_ADVERSITY_COUNT; i-- > 0;) {
            struct check_settings s = x->best->settings;
            if (!(s.adversity & 1u << i))
                continue;
            s.adversity &= ~(1u << i);
            any |= try_settings(x, &s);
        }
    }
}

/* ---- by choices ------------------------------------------------------------------------------ */

struct choices {
    struct tape tape;       /* the candidate that runs          */
    struct tape_mark *best; /* what is left, and how much of it */
    size_t count;
    struct tape_mark *next; /* room for a candidate */
};

static bool run_choices(struct shrinking *x, struct choices *h, const struct tape_mark *marks,
                        size_t count)
{
    struct check_result r;
    if (x->runs >= x->runs_max || !tape_from_record(&h->tape, marks, count))
        return false;
    x->runs++;
    check_run(x->check, &x->best->settings, NULL, &h->tape, &r);
    return is_alike(x, &r);
}

/* Cuts out or zeroes stretches of that length, one after the other. */
static bool pass(struct shrinking *x, struct choices *h, size_t length, bool cut)
{
    bool any = false;
    for (size_t at = 0; at + length <= h->count && x->runs < x->runs_max;) {
        size_t count = h->count, changed = 0;
        struct tape_mark *next = h->next;
        memcpy(next, h->best, count * sizeof *next);
        if (cut) {
            memmove(next + at, next + at + length, (count - at - length) * sizeof *next);
            count -= length;
            changed = length;
        } else {
            for (size_t i = at; i < at + length; i++) {
                changed += next[i].choice != 0;
                next[i].choice = 0;
            }
        }
        if (changed > 0 && run_choices(x, h, next, count)) {
            memcpy(h->best, next, count * sizeof *next);
            h->count = count;
            any = true;
            at += cut ? 0 : length;
        } else {
            at += length;
        }
    }
    return any;
}

static void shrink_passes(struct shrinking *x, struct choices *h)
{
    bool any = true;
    for (unsigned round = 0; round < 3 && any; round++) {
        any = false;
        for (size_t length = h->count / 2; length > 0; length /= 2) {
            any |= pass(x, h, length, true);
            any |= pass(x, h, length, false);
        }
    }
    x->best->choices = 0;
    for (size_t i = 0; i < h->count; i++)
        x->best->choices += h->best[i].choice != 0;
    x->runs_max = x->runs + 1; /* one more, with a time line to print */
    check_keep_log(x->check, true);
    run_choices(x, h, h->best, h->count);
    check_keep_log(x->check, false);
}

static void shrink_choices(struct shrinking *x)
{
    struct choices h = {0};
    struct check_result r;
    tape_init(&h.tape);
    tape_from_seed(&h.tape, x->best->seed, true);
    check_run(x->check, &x->best->settings, NULL, &h.tape, &r);
    h.count = h.tape.count;
    struct tape_mark *marks = calloc(2 * (h.count + 1), sizeof *marks);
    if (marks && !h.tape.out_of_memory && is_alike(x, &r)) {
        h.best = marks;
        h.next = marks + h.count + 1;
        memcpy(h.best, h.tape.mark, h.count * sizeof *marks);
        shrink_passes(x, &h);
    }
    free(marks);
    tape_free(&h.tape);
}

void check_shrink(struct check *c, const struct check_settings *s, uint64_t seed,
                  const struct check_result *failed, unsigned runs_max, struct check_shrunk *out)
{
    *out = (struct check_shrunk){.settings = *s, .seed = seed};
    struct shrinking x = {.check = c, .failed = failed, .runs_max = runs_max / 2, .best = out};
    shrink_settings(&x);
    x.runs_max = runs_max;
    shrink_choices(&x);
    out->runs = x.runs;
}
