/* Errors: a status (enum far_status) plus a line of detail kept per thread. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "farside.h"

/* Records the detail and returns the status, so that `return fail(FAR_X, "...")` reads well.
 * For cold paths only: it formats text. */
int fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* does not see that what comes out is what went in */
#define fail(status, ...) (fail(status, __VA_ARGS__), (status))
#endif

/* Asserts stay on in release builds: a broken invariant must not go on writing to a pool. */
_Noreturn void assert_failed(const char *what, const char *file, int line);
#define ASSERT(cond) ((cond) ? (void)0 : assert_failed(#cond, __FILE__, __LINE__))

#endif
