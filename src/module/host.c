/* The functions with a state for each thread: a module calls those of the code that opened it
 * (MODULE-1). They have the names of err.h and fiber.h, so that networks need not know whether they
 * are in a module. */
#include "module/entry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const struct module_host *module_host;

#undef err_fail /* the analyzer's */
int err_fail(int status, const char *format, ...)
{
    char text[ERR_DETAIL_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return module_host->err_fail(status, "%s", text);
}

const char *far_error_detail(void)
{
    return module_host->error_detail();
}

_Noreturn void err_assert_failed(const char *what, const char *file, int line)
{
    module_host->assert_failed(what, file, line);
    abort();
}

struct fiber *fiber_create(size_t stack_bytes, fiber_fn *fn, void *arg)
{
    return module_host->fiber_create(stack_bytes, fn, arg);
}

void fiber_reset(struct fiber *f, fiber_fn *fn, void *arg)
{
    module_host->fiber_reset(f, fn, arg);
}

void fiber_destroy(struct fiber *f)
{
    module_host->fiber_destroy(f);
}

void fiber_resume(struct fiber *f)
{
    module_host->fiber_resume(f);
}

void fiber_yield(void)
{
    module_host->fiber_yield();
}

struct fiber *fiber_current(void)
{
    return module_host->fiber_current();
}
