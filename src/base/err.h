/* Errors: a status (enum far_status) plus a line of detail kept per thread. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/status.h"

#include <stdbool.h>

/* Records the detail and returns the status, so that `return err_fail(FAR_X, "...")` reads well.
 * For cold paths only: it formats text. */
int err_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* does not see that what comes out is what went in */
#define err_fail(status, ...) (err_fail(status, __VA_ARGS__), (status))
#endif

/*
 * What far_error_detail() returns belongs to the last call that returned a status. Within a call
 * many things may fail and be got over, so each public function brackets its work: err_begin()
 * forgets what was noted before, err_end() shows what was noted since if it is about the status
 * that the call returns. Both are a store or two: calls on the path of an operation can afford
 * them.
 */
void err_begin(void);
int err_end(int status);

/* An operation of the ring may learn in one call what another call has noted (a connection broke
 * while a later operation was submitted): errors of the fabric are kept for it. */
void err_begin_ring(void);

/* Copies the detail, which may be empty, and begins anew: for the next operation of the ring. */
#define ERR_DETAIL_BYTES 256
void err_take(char text[ERR_DETAIL_BYTES]);

/* Functions that return no status leave the detail as it was, whatever goes wrong in them. */
struct err_detail {
    int noted;  /* the status that the text is about */
    bool shown; /* else far_error_detail() is empty  */
    char text[ERR_DETAIL_BYTES];
};
void err_keep(struct err_detail *kept);
void err_restore(const struct err_detail *kept);

/* Asserts stay on in release builds: a broken invariant must not go on writing to a pool. */
_Noreturn void err_assert_failed(const char *what, const char *file, int line);
#define ASSERT(cond) ((cond) ? (void)0 : err_assert_failed(#cond, __FILE__, __LINE__))

#endif
