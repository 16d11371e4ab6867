/* Batches on fibers: a flush and a pause go back to the ring and leave the others running. */
#include "base/fiber.h"
#include "fabric/rig.h"

#define FIBERS  8
#define FLUSHES 50
#define AT      gaddr_make(0, 4096)

struct task {
    struct rig *rig;
    struct fiber *fiber;
    unsigned flushes;
    uint64_t woken_at, wake_at;
};

static void count_up(void *arg)
{
    struct task *t = arg;

    for (unsigned i = 0; i < FLUSHES; i++) {
        batch_faa(&t->rig->b, MARK_PUBLISH, AT, 0, 1, t->rig->buf);
        ASSERT(batch_flush(&t->rig->b) == FAR_OK);
        t->flushes++;
    }
}

static struct task *tasks_start(struct fab *fab, fiber_fn *fn)
{
    struct task *task = calloc(FIBERS, sizeof *task);

    assert_non_null(task);
    for (unsigned i = 0; i < FIBERS; i++) {
        task[i].rig = rig_on(fab);
        task[i].rig->b.on_ring = true;
        task[i].fiber = fiber_create(64 << 10, fn, &task[i]);
        assert_non_null(task[i].fiber);
    }
    return task;
}

static void tasks_free(struct task *task)
{
    for (unsigned i = 0; i < FIBERS; i++) {
        assert_true(fiber_finished(task[i].fiber));
        fiber_destroy(task[i].fiber);
        rig_free(task[i].rig);
    }
    free(task);
}

static struct fab *open_uri(const char *uri)
{
    struct fab *fab;

    assert_int_equal(fab_open(uri, &fab), FAR_OK);
    return fab;
}

static void a_flush_lets_other_fibers_run(void **state)
{
    struct fab *fab = open_uri("mem:?size=1m&defer=1");
    struct task *task = tasks_start(fab, count_up);

    (void)state;
    for (unsigned i = 0; i < FIBERS; i++) { /* all have posted before any has completed */
        fiber_resume(task[i].fiber);
        assert_int_equal(task[i].flushes, 0);
        assert_false(task[i].rig->b.req.done);
    }
    for (unsigned i = 0; i < FIBERS; i++) { /* resumed too early, they wait on */
        fiber_resume(task[i].fiber);
        assert_int_equal(task[i].flushes, 0);
    }
    for (unsigned flush = 1; flush <= FLUSHES; flush++) {
        for (unsigned i = 0; i < FIBERS; i++) {
            fab->ops->poll(task[i].rig->ep, false);
            fiber_resume(task[i].fiber);
            assert_int_equal(task[i].flushes, flush);
        }
    }
    task[0].rig->b.on_ring = false;
    assert_int_equal(rig_get(task[0].rig, AT, 0), FIBERS * FLUSHES);
    tasks_free(task);
    fab_close(fab);
}

static void nothing_is_switched_where_nothing_is_waited_for(void **state)
{
    struct fab *fab = open_uri("mem:?size=1m");
    struct task *task = tasks_start(fab, count_up);

    (void)state;
    for (unsigned i = 0; i < FIBERS; i++) {
        fiber_resume(task[i].fiber);
        assert_int_equal(task[i].flushes, FLUSHES);
    }
    tasks_free(task);
    fab_close(fab);
}

static void sleep_a_little(void *arg)
{
    struct task *t = arg;

    t->wake_at = batch_now(&t->rig->b) + 2000000;
    batch_pause(&t->rig->b, 2000000);
    t->woken_at = batch_now(&t->rig->b);
}

static void a_pause_says_when_to_wake_it(void **state)
{
    struct fab *fab = open_uri("mem:?size=1m");
    struct task *task = tasks_start(fab, sleep_a_little);
    unsigned asleep = FIBERS;

    (void)state;
    for (unsigned i = 0; i < FIBERS; i++) {
        fiber_resume(task[i].fiber);
        assert_true(fiber_finished(task[i].fiber) || task[i].rig->b.wake_at >= task[i].wake_at);
    }
    while (asleep) {
        asleep = 0;
        for (unsigned i = 0; i < FIBERS; i++) {
            if (!fiber_finished(task[i].fiber))
                fiber_resume(task[i].fiber);
            asleep += !fiber_finished(task[i].fiber);
        }
    }
    for (unsigned i = 0; i < FIBERS; i++) {
        assert_true(task[i].woken_at >= task[i].wake_at);
        assert_int_equal(task[i].rig->b.wake_at, 0);
    }
    tasks_free(task);
    fab_close(fab);
}

/* ---- rings (RING-2) -------------------------------------------------------------------------- */

static struct task *ring_start(struct fab *fab, fiber_fn *fn, struct batch_ring *ring)
{
    static struct batch *pausing[FIBERS];
    struct task *task = tasks_start(fab, fn);

    *ring = (struct batch_ring){.pausing = pausing};
    for (unsigned i = 0; i < FIBERS; i++)
        task[i].rig->b.ring = ring;
    return task;
}

static void a_ring_continues_with_what_is_done_and_nothing_else(void **state)
{
    struct fab *fab = open_uri("mem:?size=1m&defer=1");
    struct batch_ring ring;
    struct task *task = ring_start(fab, count_up, &ring);
    unsigned order[] = {5, 2, 7};

    (void)state;
    for (unsigned i = 0; i < FIBERS; i++)
        fiber_resume(task[i].fiber);
    assert_null(batch_ring_next(&ring, UINT64_MAX - 1));
    for (unsigned i = 0; i < 3; i++)
        fab->ops->poll(task[order[i]].rig->ep, false);
    for (unsigned i = 0; i < 3; i++)
        assert_ptr_equal(batch_ring_next(&ring, 0), &task[order[i]].rig->b);
    assert_null(batch_ring_next(&ring, UINT64_MAX - 1));
    for (unsigned i = 0; i < FIBERS; i++)
        while (!fiber_finished(task[i].fiber)) {
            fab->ops->poll(task[i].rig->ep, false);
            (void)batch_ring_next(&ring, 0);
            fiber_resume(task[i].fiber);
        }
    tasks_free(task);
    fab_close(fab);
}

static void what_is_done_at_once_is_in_no_queue(void **state)
{
    struct fab *fab = open_uri("mem:?size=1m");
    struct batch_ring ring;
    struct task *task = ring_start(fab, count_up, &ring);

    (void)state;
    for (unsigned i = 0; i < FIBERS; i++) {
        fiber_resume(task[i].fiber);
        assert_int_equal(task[i].flushes, FLUSHES);
        assert_null(batch_ring_next(&ring, UINT64_MAX - 1));
    }
    tasks_free(task);
    fab_close(fab);
}

static void sleep_for_some_minutes(void *arg)
{
    static const unsigned minutes[FIBERS] = {5, 3, 8, 2, 7, 1, 6, 4};
    struct task *t = arg;

    t->wake_at = minutes[t->flushes];
    batch_pause(&t->rig->b, minutes[t->flushes] * 60000000000ull);
}

static void pauses_of_a_ring_end_in_the_order_of_their_times(void **state)
{
    struct fab *fab = open_uri("mem:?size=1m");
    struct batch_ring ring;
    struct task *task = ring_start(fab, sleep_for_some_minutes, &ring);

    (void)state;
    assert_true(batch_ring_wakes(&ring) == UINT64_MAX);
    for (unsigned i = 0; i < FIBERS; i++) {
        task[i].flushes = i;
        fiber_resume(task[i].fiber);
    }
    for (unsigned i = 1; i <= FIBERS; i++) {
        uint64_t at = batch_ring_wakes(&ring);
        assert_null(batch_ring_next(&ring, at - 1));
        const struct batch *b = batch_ring_next(&ring, at);
        for (unsigned j = 0; j < FIBERS; j++)
            if (b == &task[j].rig->b) {
                assert_int_equal(task[j].wake_at, i);
                fiber_resume(task[j].fiber);
            }
    }
    assert_true(batch_ring_wakes(&ring) == UINT64_MAX);
    tasks_free(task);
    fab_close(fab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flush_lets_other_fibers_run),
        cmocka_unit_test(nothing_is_switched_where_nothing_is_waited_for),
        cmocka_unit_test(a_pause_says_when_to_wake_it),
        cmocka_unit_test(a_ring_continues_with_what_is_done_and_nothing_else),
        cmocka_unit_test(what_is_done_at_once_is_in_no_queue),
        cmocka_unit_test(pauses_of_a_ring_end_in_the_order_of_their_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
