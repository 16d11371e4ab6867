/* Fibers: switching, nesting, reuse, destruction in mid-run, registers, threads, misuse. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fiber.h"
#include "support/death.h"

#define STACK (32 * 1024)

/* Under ASan, keep frames on fake stacks too: the harder case for a switch. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=1";
}

/* Yields `left` times, noting each turn. */
struct counter {
    unsigned left, turns;
};

static void count_down(void *arg)
{
    struct counter *c = arg;
    for (; c->left > 0; c->left--) {
        c->turns++;
        fiber_yield();
    }
    c->turns++;
}

static void a_fiber_runs_only_when_resumed(void **state)
{
    (void)state;
    struct counter c = {.left = 2};
    struct fiber *f = fiber_create(STACK, count_down, &c);
    assert_non_null(f);
    assert_int_equal(c.turns, 0);
    for (unsigned turn = 1; turn <= 3; turn++) {
        assert_false(fiber_finished(f));
        fiber_resume(f);
        assert_int_equal(c.turns, turn);
    }
    assert_true(fiber_finished(f));
    fiber_destroy(f);
    fiber_destroy(NULL);
}

/* The size of the address space. */
static long address_space(void)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%ld", &pages), 1);
    fclose(statm);
    return pages * sysconf(_SC_PAGESIZE);
}

/* A frame with an array is one that ASan keeps on a fake stack; here, a new one every turn. */
__attribute__((noinline)) static void take_turn(struct counter *c)
{
    volatile unsigned turns[2] = {c->turns, c->turns};
    turns[c->left % 2]++;
    fiber_yield();
    c->turns = turns[c->left % 2];
}

static void count_down_in_frames(void *arg)
{
    struct counter *c = arg;
    for (; c->left > 0; c->left--)
        take_turn(c);
}

static void a_fiber_can_be_switched_many_times(void **state)
{
    (void)state;
    enum { SWITCHES = 300000 };
    struct counter c = {.left = SWITCHES};
    struct fiber *f = fiber_create(STACK, count_down_in_frames, &c);
    fiber_resume(f);
    long before = address_space();
    for (unsigned i = 1; i < SWITCHES; i++)
        fiber_resume(f);
    assert_true(address_space() - before < 16 << 20);
    assert_false(fiber_finished(f));
    fiber_resume(f);
    assert_true(fiber_finished(f));
    assert_int_equal(c.turns, SWITCHES);
    fiber_destroy(f);
}

static void many_fibers_take_turns(void **state)
{
    (void)state;
    enum { FIBERS = 300, ROUNDS = 100 }; /* the thread sanitizer has room for no more than 500 */
    static struct fiber *fibers[FIBERS];
    static struct counter counters[FIBERS];
    memset(counters, 0, sizeof counters);
    for (unsigned i = 0; i < FIBERS; i++) {
        counters[i].left = ROUNDS - 1;
        fibers[i] = fiber_create(STACK, count_down, &counters[i]);
        assert_non_null(fibers[i]);
    }
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (unsigned i = 0; i < FIBERS; i++) {
            fiber_resume(fibers[i]);
            assert_int_equal(counters[i].turns, round);
        }
    }
    for (unsigned i = 0; i < FIBERS; i++) {
        assert_true(fiber_finished(fibers[i]));
        fiber_destroy(fibers[i]);
    }
}

/* Each level makes and resumes the next, which yields to it, and knows where it is. */
struct level {
    unsigned depth;
    struct fiber *self;
    unsigned *reached;
};

enum { NESTING = 200, TURNS = 3 };

static void nest(void *arg)
{
    struct level *level = arg;
    ++*level->reached;
    if (level->depth < NESTING) {
        struct level next = {.depth = level->depth + 1, .reached = level->reached};
        next.self = fiber_create(STACK, nest, &next);
        for (unsigned turn = 0; turn <= TURNS; turn++) {
            fiber_resume(next.self);
            if (fiber_current() != level->self)
                abort();
            if (turn < TURNS)
                fiber_yield();
        }
        if (!fiber_finished(next.self))
            abort();
        fiber_destroy(next.self);
    } else {
        for (unsigned turn = 0; turn < TURNS; turn++)
            fiber_yield();
    }
    if (fiber_current() != level->self)
        abort();
}

static void fibers_resume_fibers(void **state)
{
    (void)state;
    unsigned reached = 0;
    struct level first = {.depth = 1, .reached = &reached};
    assert_null(fiber_current());
    first.self = fiber_create(STACK, nest, &first);
    for (unsigned turn = 0; turn <= TURNS; turn++) {
        assert_false(fiber_finished(first.self));
        fiber_resume(first.self);
        assert_null(fiber_current());
        assert_int_equal(reached, NESTING);
    }
    assert_true(fiber_finished(first.self));
    fiber_destroy(first.self);
}

static void resume_argument(void *arg)
{
    fiber_resume(arg);
}

static void a_yield_goes_to_the_last_resumer(void **state)
{
    (void)state;
    struct counter c = {.left = 10};
    struct fiber *shared = fiber_create(STACK, count_down, &c);
    for (unsigned i = 0; i < 5; i++) {
        struct fiber *resumer = fiber_create(STACK, resume_argument, shared);
        fiber_resume(resumer);
        assert_true(fiber_finished(resumer));
        assert_int_equal(c.turns, 2 * i + 1);
        fiber_destroy(resumer);
        fiber_resume(shared);
        assert_int_equal(c.turns, 2 * i + 2);
    }
    fiber_resume(shared);
    assert_true(fiber_finished(shared));
    fiber_destroy(shared);
}

static void note_stack(void *arg)
{
    *(uintptr_t *)arg = (uintptr_t)__builtin_frame_address(0);
}

static void a_reset_fiber_runs_again_on_the_same_stack(void **state)
{
    (void)state;
    uintptr_t stack = 0, again = 0;
    struct counter c = {.left = 0};
    struct fiber *f = fiber_create(STACK, count_down, &c);
    fiber_reset(f, note_stack, &stack); /* it had not begun: count_down is never called */
    fiber_resume(f);
    assert_true(fiber_finished(f));
    assert_int_equal(c.turns, 0);
    for (unsigned i = 1; i <= 20000; i++) {
        c.left = 1;
        fiber_reset(f, count_down, &c);
        assert_false(fiber_finished(f));
        fiber_resume(f);
        assert_false(fiber_finished(f));
        fiber_resume(f);
        assert_true(fiber_finished(f));
        assert_int_equal(c.turns, 2 * i);
    }
    fiber_reset(f, note_stack, &again);
    fiber_resume(f);
    assert_true(stack != 0 && again == stack);
    fiber_destroy(f);
}

static void below_the_stack_is_a_guard_page(void **state)
{
    (void)state;
    uintptr_t stack = 0, start, end, end_below = 0;
    char access[5], access_below[5] = "", line[512];
    bool found = false;
    struct fiber *f = fiber_create(STACK, note_stack, &stack);
    fiber_resume(f);
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (!found && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &start, &end, access) != 3)
            continue; /* the tail of a long line */
        found = stack >= start && stack < end;
        if (!found) {
            end_below = end;
            memcpy(access_below, access, sizeof access);
        }
    }
    fclose(maps);
    assert_true(found);
    assert_true(end_below == start);
    assert_string_equal(access_below, "---p");
    assert_true(stack - start <= 4 * STACK + 65536);
    fiber_destroy(f);
}

/* Leaves frames with arrays behind: what a sanitizer marks on a stack. */
static void yield_from_deep(void *arg)
{
    volatile char array[100];
    volatile unsigned left = *(unsigned *)arg;
    for (size_t i = 0; i < sizeof array; i++)
        array[i] = (char)i;
    unsigned next = left - 1;
    if (left > 0)
        yield_from_deep(&next);
    else
        fiber_yield();
    if (array[left] != (char)left)
        abort();
}

static void destroying_in_mid_run_gives_everything_back(void **state)
{
    (void)state;
    enum { WARM_UP = 100, FIBERS = 2000 };
    long before = 0;
    unsigned depth = 20;
    for (unsigned i = 0; i < WARM_UP + FIBERS; i++) {
        if (i == WARM_UP)
            before = address_space();
        struct fiber *f = fiber_create(STACK, yield_from_deep, &depth);
        assert_non_null(f);
        if (i % 4 != 0)
            fiber_resume(f);
        assert_false(fiber_finished(f));
        fiber_destroy(f);
    }
    /* Were the stacks lost, it would have grown by more than FIBERS * STACK. */
    assert_true(address_space() - before < FIBERS * STACK / 2);
}

static void yield_from_alloca(void *arg)
{
    /* Not on a fake stack, whatever ASan's options: the red zones are on this one. */
    volatile char *array = __builtin_alloca(*(size_t *)arg);
    array[0] = 1;
    *(uintptr_t *)arg = (uintptr_t)array;
    fiber_yield();
}

static void memory_of_an_abandoned_stack_can_be_used_again(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t size_then_place = 100;
    struct fiber *f = fiber_create(STACK, yield_from_alloca, &size_then_place);
    fiber_resume(f);
    fiber_destroy(f);
    void *place = (void *)(size_then_place / page * page);
    char *again = mmap(place, page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_true(again == place);
    memset(again, 1, page);
    munmap(again, page);
}

static void destroy_argument(void *arg)
{
    fiber_destroy(arg);
}

static void a_fiber_may_be_destroyed_from_another(void **state)
{
    (void)state;
    unsigned depth = 10;
    for (unsigned i = 0; i < 10; i++) {
        struct fiber *victim = fiber_create(STACK, yield_from_deep, &depth);
        fiber_resume(victim);
        struct fiber *killer = fiber_create(STACK, destroy_argument, victim);
        fiber_resume(killer);
        assert_true(fiber_finished(killer));
        fiber_destroy(killer);
    }
}

/* Keeps more values alive across between() than there are registers for a callee to save. */
struct churn {
    uint64_t seed;
    void (*between)(void *arg);
    void *arg;
    uint64_t bits;
    double real;
};

static void churn(void *arg)
{
    struct churn *c = arg;
    uint64_t a = c->seed, b = a + 1, d = a + 2, e = a + 3, f = a + 4, g = a + 5, h = a + 6;
    uint64_t i = a + 7, j = a + 8, k = a + 9, l = a + 10;
    double p = (double)c->seed, q = p + 1, r = p + 2, s = p + 3, t = p + 4, u = p + 5;
    double v = p + 6, w = p + 7, x = p + 8;
    for (int round = 0; round < 1000; round++) {
        c->between(c->arg);
        a = a * 3 + b, b ^= d, d += e, e = e * 5 + f, f ^= g, g += h;
        h = h * 7 + i, i ^= j, j += k, k = k * 9 + l, l ^= a;
        p = p * 0.5 + q, q = q * 0.25 + r, r = r * 0.125 + s, s = s * 0.5 + t, t = t * 0.25 + u;
        u = u * 0.125 + v, v = v * 0.5 + w, w = w * 0.25 + x, x = x * 0.125 + (double)(round % 7);
    }
    c->bits = a ^ b ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l;
    c->real = p + q + r + s + t + u + v + w + x;
}

static void do_nothing(void *arg)
{
    (void)arg;
}

static void yield_between(void *arg)
{
    (void)arg;
    fiber_yield();
}

enum { CHURNERS = 8 };

static void resume_churners(void *arg)
{
    struct fiber **fibers = arg;
    for (unsigned i = 0; i < CHURNERS; i++)
        fiber_resume(fibers[i]);
}

static void assert_same_as_alone(const struct churn *c)
{
    struct churn alone = {.seed = c->seed, .between = do_nothing};
    churn(&alone);
    assert_true(c->bits == alone.bits);
    assert_memory_equal(&c->real, &alone.real, sizeof alone.real);
}

static void registers_survive_switches(void **state)
{
    (void)state;
    struct fiber *fibers[CHURNERS];
    struct churn on_fiber[CHURNERS];
    for (unsigned i = 0; i < CHURNERS; i++) {
        on_fiber[i] = (struct churn){.seed = 1000 + 77 * i, .between = yield_between};
        fibers[i] = fiber_create(STACK, churn, &on_fiber[i]);
    }
    struct churn on_thread = {.seed = 5, .between = resume_churners, .arg = fibers};
    churn(&on_thread);
    resume_churners(fibers);
    for (unsigned i = 0; i < CHURNERS; i++) {
        assert_true(fiber_finished(fibers[i]));
        assert_same_as_alone(&on_fiber[i]);
        fiber_destroy(fibers[i]);
    }
    assert_same_as_alone(&on_thread);
}

/* A thread's own fibers, while another thread does the same. */
static void *run_fibers(void *arg)
{
    enum { FIBERS = 16, ROUNDS = 2000 };
    struct fiber *fibers[FIBERS];
    struct counter counters[FIBERS] = {{0}};
    size_t *wrong = arg;
    for (unsigned i = 0; i < FIBERS; i++) {
        counters[i].left = ROUNDS;
        fibers[i] = fiber_create(STACK, count_down, &counters[i]);
    }
    for (unsigned round = 0; round <= ROUNDS; round++) {
        for (unsigned i = 0; i < FIBERS; i++) {
            fiber_resume(fibers[i]);
            *wrong += fiber_current() != NULL || counters[i].turns != round + 1;
        }
    }
    for (unsigned i = 0; i < FIBERS; i++) {
        *wrong += !fiber_finished(fibers[i]);
        fiber_destroy(fibers[i]);
    }
    return NULL;
}

static void threads_have_fibers_of_their_own(void **state)
{
    (void)state;
    pthread_t threads[2];
    size_t wrong[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_fibers, &wrong[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(wrong[0] + wrong[1], 0);
}

static void *resume_once(void *arg)
{
    fiber_resume(arg);
    return fiber_current();
}

static void a_suspended_fiber_may_move_to_another_thread(void **state)
{
    (void)state;
    struct counter c = {.left = 20};
    struct fiber *f = fiber_create(STACK, count_down, &c);
    for (unsigned i = 0; i < 10; i++) {
        pthread_t thread;
        void *current = f;
        fiber_resume(f);
        assert_int_equal(pthread_create(&thread, NULL, resume_once, f), 0);
        assert_int_equal(pthread_join(thread, &current), 0);
        assert_null(current);
        assert_int_equal(c.turns, 2 * i + 2);
    }
    fiber_resume(f);
    assert_true(fiber_finished(f));
    fiber_destroy(f);
}

static void a_stack_that_cannot_be_had_is_no_fiber(void **state)
{
    (void)state;
    assert_null(fiber_create(SIZE_MAX / 64, do_nothing, NULL));
}

static void resume_finished(void *arg)
{
    struct fiber *f = fiber_create(STACK, do_nothing, arg);
    fiber_resume(f);
    fiber_resume(f);
}

static void resume_current(void *arg)
{
    (void)arg;
    fiber_resume(fiber_current());
}

static void destroy_current(void *arg)
{
    (void)arg;
    fiber_destroy(fiber_current());
}

static void reset_current(void *arg)
{
    (void)arg;
    fiber_reset(fiber_current(), do_nothing, NULL);
}

static void reset_suspended(void *arg)
{
    struct fiber *f = fiber_create(STACK, yield_between, arg);
    fiber_resume(f);
    fiber_reset(f, do_nothing, NULL);
}

static void on_a_fiber(void *arg)
{
    fiber_fn *fn;
    memcpy(&fn, arg, sizeof fn);
    fiber_resume(fiber_create(STACK, fn, NULL));
}

static bool fails_on_a_fiber(fiber_fn *fn, const char *text)
{
    return fails_assert(on_a_fiber, &fn, text);
}

static void misuse_is_caught(void **state)
{
    (void)state;
    static const char resumable[] = "f->state == FIBER_READY || f->state == FIBER_SUSPENDED";
    static const char resettable[] = "f->state == FIBER_READY || f->state == FIBER_FINISHED";
    assert_true(fails_assert(yield_between, NULL, "broken invariant: f "));
    assert_true(fails_assert(resume_finished, NULL, resumable));
    assert_true(fails_on_a_fiber(resume_current, resumable));
    assert_true(fails_on_a_fiber(destroy_current, "f->state != FIBER_RUNNING"));
    assert_true(fails_on_a_fiber(reset_current, resettable));
    assert_true(fails_assert(reset_suspended, NULL, resettable));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fiber_runs_only_when_resumed),
        cmocka_unit_test(a_fiber_can_be_switched_many_times),
        cmocka_unit_test(many_fibers_take_turns),
        cmocka_unit_test(fibers_resume_fibers),
        cmocka_unit_test(a_yield_goes_to_the_last_resumer),
        cmocka_unit_test(a_reset_fiber_runs_again_on_the_same_stack),
        cmocka_unit_test(below_the_stack_is_a_guard_page),
        cmocka_unit_test(destroying_in_mid_run_gives_everything_back),
        cmocka_unit_test(memory_of_an_abandoned_stack_can_be_used_again),
        cmocka_unit_test(a_fiber_may_be_destroyed_from_another),
        cmocka_unit_test(registers_survive_switches),
        cmocka_unit_test(threads_have_fibers_of_their_own),
        cmocka_unit_test(a_suspended_fiber_may_move_to_another_thread),
        cmocka_unit_test(a_stack_that_cannot_be_had_is_no_fiber),
        cmocka_unit_test(misuse_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
