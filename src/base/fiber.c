/*
 * Fibers on Boost.Context's two assembly routines.
 *
 * A fiber's stack holds one call of fiber_main(), which runs one function after the other: when
 * a function returns, the fiber is finished and fiber_main() waits, suspended like any fiber in
 * fiber_yield(), for the function that fiber_reset() gives it. So a reset costs two stores, and a
 * sanitizer's view of the stack stays balanced however often the fiber is used again.
 *
 * Only fiber_resume() writes `current`: between its two writes the thread is the same, because
 * the fiber it runs can only come back to it. fiber_yield() touches no thread-local variable after
 * its switch, so a suspended fiber may be resumed by another thread. Functions that read `current`
 * are never inlined: a caller could keep its address across a switch, into another thread.
 */
#include "base/fiber.h"

#include "base/err.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define FIBER_ASAN
#elif __has_feature(thread_sanitizer)
#define FIBER_TSAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN
#elif defined(__SANITIZE_THREAD__)
#define FIBER_TSAN
#endif

#if defined(FIBER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

typedef void *fcontext_t;

struct transfer {
    fcontext_t from; /* where the code that jumped here can be continued */
    void *data;
};

/* From libboost_context; its only C header is a C++ one. */
struct transfer jump_fcontext(fcontext_t to, void *data);
fcontext_t make_fcontext(void *stack_top, size_t bytes, void (*fn)(struct transfer));

enum fiber_state {
    FIBER_READY,     /* its function has not begun               */
    FIBER_RUNNING,   /* on it, or on a fiber that it has resumed */
    FIBER_SUSPENDED, /* in fiber_yield()                         */
    FIBER_FINISHED   /* its function has returned                */
};

struct fiber {
    fcontext_t context; /* the fiber's own, while it does not run */
    fcontext_t resumer; /* where to go back to, while it runs     */
    enum fiber_state state;
    fiber_fn *fn;
    void *arg;
    fiber_fn *outside; /* what its resumer is to call; NULL: nothing */
    void *outside_arg;
    char *map; /* the guard page, then the stack */
    char *stack;
    size_t stack_bytes;
#if defined(FIBER_ASAN)
    void *fake_stack;         /* ASan's heap copy of this stack's frames, if it keeps one */
    void *resumer_fake_stack; /* the same of the resumer's                                */
    const void *resumer_stack;
    size_t resumer_stack_bytes;
#elif defined(FIBER_TSAN)
    void *tsan, *resumer_tsan;
#endif
};

static _Thread_local struct fiber *current;

/*
 * Reports to the sanitizers. The side that is left calls to_...() just before a switch, and the
 * side that is reached calls at_...() just after it.
 */
#if defined(FIBER_ASAN)

#define STACK_FACTOR 4 /* red zones and unshared slots make frames this much larger, or less */

static inline void to_fiber(struct fiber *f)
{
    __sanitizer_start_switch_fiber(&f->resumer_fake_stack, f->stack, f->stack_bytes);
}

static inline void at_fiber(struct fiber *f)
{
    __sanitizer_finish_switch_fiber(f->fake_stack, &f->resumer_stack, &f->resumer_stack_bytes);
}

static inline void to_resumer(struct fiber *f)
{
    __sanitizer_start_switch_fiber(&f->fake_stack, f->resumer_stack, f->resumer_stack_bytes);
}

static inline void at_resumer(struct fiber *f)
{
    __sanitizer_finish_switch_fiber(f->resumer_fake_stack, NULL, NULL);
}

/* ASan frees a fake stack only when its fiber says that it leaves for good. A fiber that is
 * destroyed cannot say so, so pretend to switch to it, and to leave it for good. */
static void sanitizer_destroy(struct fiber *f)
{
    void *own;
    const void *stack;
    size_t bytes;
    __sanitizer_start_switch_fiber(&own, f->stack, f->stack_bytes);
    __sanitizer_finish_switch_fiber(f->fake_stack, &stack, &bytes);
    __sanitizer_start_switch_fiber(NULL, stack, bytes);
    __sanitizer_finish_switch_fiber(own, NULL, NULL);
    /* The next mapping at this address must not inherit the red zones of abandoned frames. */
    __asan_unpoison_memory_region(f->stack, f->stack_bytes);
}

#elif defined(FIBER_TSAN)

#define STACK_FACTOR 4

/* TSan takes a megabyte for a fiber, and has room for some 500 threads and fibers in all: only
 * those that run get one. */
static inline void to_fiber(struct fiber *f)
{
    if (!f->tsan)
        f->tsan = __tsan_create_fiber(0);
    f->resumer_tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan, 0);
}

static inline void to_resumer(struct fiber *f)
{
    __tsan_switch_to_fiber(f->resumer_tsan, 0);
}

static inline void at_fiber(struct fiber *f)
{
    (void)f;
}

static inline void at_resumer(struct fiber *f)
{
    (void)f;
}

static void sanitizer_destroy(struct fiber *f)
{
    if (f->tsan)
        __tsan_destroy_fiber(f->tsan);
}

#else

#define STACK_FACTOR 1
#define to_fiber(f)
#define at_fiber(f)
#define to_resumer(f)
#define at_resumer(f)
#define sanitizer_destroy(f)

#endif

/* Leaves the running fiber for its resumer; returns when it is resumed. */
static void suspend(struct fiber *f)
{
    to_resumer(f);
    f->resumer = jump_fcontext(f->resumer, NULL).from;
    at_fiber(f);
}

/* The bottom frame of every fiber. It lives as long as the fiber, so its loop has no end. */
static void fiber_main(struct transfer first)
{
    struct fiber *f = first.data;
    f->resumer = first.from;
    at_fiber(f);
    for (;;) {
        f->fn(f->arg);
        f->state = FIBER_FINISHED;
        suspend(f);
    }
}

struct fiber *fiber_create(size_t stack_bytes, fiber_fn *fn, void *arg)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ASSERT(stack_bytes > 0 && stack_bytes <= SIZE_MAX / (2 * STACK_FACTOR) - page);
    stack_bytes = (stack_bytes * STACK_FACTOR + page - 1) / page * page;

    struct fiber *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    char *map = mmap(NULL, page + stack_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED)
        goto free_fiber;
    if (mprotect(map, page, PROT_NONE) != 0)
        goto unmap;

    f->map = map;
    f->stack = map + page;
    f->stack_bytes = stack_bytes;
    f->context = make_fcontext(f->stack + stack_bytes, stack_bytes, fiber_main);
    f->state = FIBER_READY;
    f->fn = fn;
    f->arg = arg;
    return f;

unmap:
    munmap(map, page + stack_bytes);
free_fiber:
    free(f);
    return NULL;
}

void fiber_reset(struct fiber *f, fiber_fn *fn, void *arg)
{
    ASSERT(f->state == FIBER_READY || f->state == FIBER_FINISHED);
    f->state = FIBER_READY;
    f->fn = fn;
    f->arg = arg;
}

void fiber_destroy(struct fiber *f)
{
    if (!f)
        return;
    ASSERT(f->state != FIBER_RUNNING);
    sanitizer_destroy(f);
    munmap(f->map, (size_t)(f->stack - f->map) + f->stack_bytes);
    free(f);
}

__attribute__((noinline)) void fiber_resume(struct fiber *f)
{
    ASSERT(f->state == FIBER_READY || f->state == FIBER_SUSPENDED);
    struct fiber *resumer = current;
    f->state = FIBER_RUNNING;
    for (;;) {
        current = f;
        to_fiber(f);
        f->context = jump_fcontext(f->context, f).from;
        at_resumer(f);
        current = resumer;
        if (__builtin_expect(!f->outside, 1))
            return;
        f->outside(f->outside_arg);
        f->outside = NULL;
    }
}

__attribute__((noinline)) void fiber_yield(void)
{
    struct fiber *f = current;
    ASSERT(f);
    f->state = FIBER_SUSPENDED;
    suspend(f);
}

__attribute__((noinline)) void fiber_outside(fiber_fn *fn, void *arg)
{
    struct fiber *f = current;
    ASSERT(f);
    f->outside = fn;
    f->outside_arg = arg;
    suspend(f);
}

__attribute__((noinline)) struct fiber *fiber_current(void)
{
    return current;
}

bool fiber_finished(const struct fiber *f)
{
    return f->state == FIBER_FINISHED;
}

bool fiber_running(const struct fiber *f)
{
    return f->state == FIBER_RUNNING;
}
