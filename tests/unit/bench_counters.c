/* Counters of a thread. What the processor counts depends on the machine, so events of the kernel,
 * which any machine has, stand in for it; where perf events are refused, the reason is known. */
#include "bench/counters.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 500u

static const struct counters_event kernel_events[COUNTERS_KINDS] = {
    [COUNTERS_CYCLES] = {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    [COUNTERS_INSTRUCTIONS] = {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    [COUNTERS_CACHE_MISSES] = {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES + 1000},
};

#define TIMES 6u /* that the test touches pages */

/* Memory that nobody has touched. */
static char *untouched(size_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    (void)madvise(at, bytes, MADV_NOHUGEPAGE); /* fails if there are no huge pages */
    return at;
}

/* Touches pages at *at, and moves it behind them. The thread sanitizer would touch more. */
__attribute__((no_sanitize("thread"))) static void touch_pages(char **at, size_t page)
{
    for (unsigned i = 0; i < PAGES; i++, *at += page)
        **at = 1;
}

/* Only what happens between resume and pause, and after a reset, is counted. */
static void a_part_of_the_time_is_counted(void **state)
{
    (void)state;
    struct counters c;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = TIMES * PAGES * page;
    counters_open(&c, kernel_events);
    if (!c.sum.known[COUNTERS_INSTRUCTIONS]) { /* refused, for example in a container */
        assert_int_not_equal(c.sum.error, 0);
        counters_close(&c);
        skip();
    }
    assert_false(c.sum.known[COUNTERS_CACHE_MISSES]); /* there is no such event */
    assert_int_not_equal(c.sum.error, 0);

    char *pages = untouched(bytes), *at = pages;
    counters_resume(&c);
    touch_pages(&at, page);
    counters_pause(&c);
    counters_reset(&c);
    for (unsigned i = 0; i < 3; i++) {
        touch_pages(&at, page); /* not counted */
        counters_resume(&c);
        if (i < 2)
            touch_pages(&at, page);
        counters_pause(&c);
    }
    assert_true(at == pages + bytes);
    munmap(pages, bytes);
    counters_close(&c);
    assert_in_range(c.sum.count[COUNTERS_INSTRUCTIONS], 2 * PAGES, 3 * PAGES - 1);
    assert_true(c.sum.count[COUNTERS_CYCLES] > 0);
}

static void context_switches_are_counted_on_any_machine(void **state)
{
    (void)state;
    struct counters c;
    counters_open(&c, counters_events);
    assert_true(c.sum.on);
    for (unsigned i = 0; i < 20; i++) {
        counters_resume(&c);
        usleep(100);
        counters_pause(&c);
    }
    counters_close(&c);
    assert_true(c.sum.switches >= 20);
    for (unsigned k = 0; k < COUNTERS_KINDS; k++)
        assert_true(c.sum.known[k] ? c.sum.count[k] > 0 : c.sum.error != 0);
}

static void counters_that_are_not_open_do_nothing(void **state)
{
    (void)state;
    struct counters c, before;
    memset(&c, 0, sizeof c);
    before = c;
    counters_resume(&c);
    counters_pause(&c);
    counters_reset(&c);
    counters_close(&c);
    assert_memory_equal(&c, &before, sizeof c);
}

static void a_sum_knows_what_all_of_its_parts_know(void **state)
{
    (void)state;
    struct counters_sum sum = {.on = false}, none = {.on = false};
    struct counters_sum one = {
        .on = true, .known = {true, true, true}, .count = {1, 2, 3}, .switches = 4};
    struct counters_sum other = {.on = true,
                                 .known = {true, false, true},
                                 .count = {10, 0, 30},
                                 .switches = 40,
                                 .error = ENOENT,
                                 .user_only = true};
    counters_add(&sum, &none);
    assert_false(sum.on);
    counters_add(&sum, &one);
    counters_add(&sum, &none);
    assert_int_equal(sum.error, 0);
    counters_add(&sum, &other);
    assert_true(sum.on && sum.user_only && sum.known[0] && !sum.known[1] && sum.known[2]);
    assert_int_equal(sum.error, ENOENT);
    assert_int_equal(sum.count[0], 11);
    assert_int_equal(sum.count[2], 33);
    assert_int_equal(sum.switches, 44);
}

static void a_hint_says_what_to_set(void **state)
{
    (void)state;
    assert_non_null(strstr(counters_hint(EACCES, 3), "kernel.perf_event_paranoid=2"));
    assert_non_null(strstr(counters_hint(EPERM, 4), "kernel.perf_event_paranoid=2"));
    assert_non_null(strstr(counters_hint(EPERM, 2), "CAP_PERFMON"));
    assert_non_null(strstr(counters_hint(ENOENT, 2), "virtual machine"));
    assert_non_null(strstr(counters_hint(EMFILE, 2), "ulimit -n"));
    assert_non_null(strstr(counters_hint(ENOSYS, 2), "CONFIG_PERF_EVENTS"));
    assert_non_null(strstr(counters_hint(EBUSY, 2), "nmi_watchdog"));
    assert_non_null(strstr(counters_hint(E2BIG, 2), "perf_event_open(2)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_of_the_time_is_counted),
        cmocka_unit_test(context_switches_are_counted_on_any_machine),
        cmocka_unit_test(counters_that_are_not_open_do_nothing),
        cmocka_unit_test(a_sum_knows_what_all_of_its_parts_know),
        cmocka_unit_test(a_hint_says_what_to_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
