/*
 * Fibers: stacks that one thread switches between by hand.
 *
 * A fiber belongs to the thread that resumes it. fiber_resume() runs it until it calls
 * fiber_yield() or its function returns; fiber_yield() goes back to its resumer. Fibers may resume
 * other fibers. Every switch is reported to the sanitizers.
 */
#ifndef BASE_FIBER_H
#define BASE_FIBER_H

#include <stdbool.h>
#include <stddef.h>

struct fiber;

typedef void fiber_fn(void *arg);

/* A fiber with its own stack (rounded up to pages, with a guard page below it); NULL when out of
 * memory. It starts with the first fiber_resume(). */
struct fiber *fiber_create(size_t stack_bytes, fiber_fn *fn, void *arg);

/* Makes a finished (or never started) fiber ready to run fn(arg) on the same stack. */
void fiber_reset(struct fiber *f, fiber_fn *fn, void *arg);

/* Frees a fiber that does not run. What is on its stack is abandoned. NULL is ignored. */
void fiber_destroy(struct fiber *f);

void fiber_resume(struct fiber *f);
void fiber_yield(void);

/* Lets the resumer of the running fiber call fn(arg), and goes on. So what the function waits for,
 * the resumer waits for. */
void fiber_outside(fiber_fn *fn, void *arg);

/* The fiber this code runs on, or NULL on the thread's own stack. */
struct fiber *fiber_current(void);

/* Does it run, or has it resumed another fiber that does? In a child of fork(): did it run in a
 * thread of the parent? */
bool fiber_running(const struct fiber *f);

bool fiber_finished(const struct fiber *f);

#endif
