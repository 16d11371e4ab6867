/* Errors: a status (enum far_status), and a line of detail for each thread. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/status.h"

#include <stdbool.h>

/* Records the detail and returns the status, so that `return err_fail(FAR_X, "...")` reads well.
 * For cold paths only: it formats text. */
int err_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ /* does not see that the function returns its first argument */
#define err_fail(status, ...) (err_fail(status, __VA_ARGS__), (status))
#endif

/*
 * far_error_detail() is about the last call that returned a status. Many things may fail within a
 * call that succeeds in the end, so each public function brackets its work: err_begin() forgets the
 * last detail, and err_end() shows what was noted since, if it is about the status that the call
 * returns. Both cost a store or two, which operations can afford.
 */
void err_begin(void);
int err_end(int status);

/* The same for calls of the ring. An error that one call has noted may end an operation in a later
 * call (its connection broke while another was submitted), so errors of the fabric are kept. */
void err_begin_ring(void);

/* Copies the detail, which may be empty, and begins again for the next operation of the ring. */
#define ERR_DETAIL_BYTES 256
void err_take(char text[ERR_DETAIL_BYTES]);

/* For functions that return no status: they do not change the detail, whatever happens in them. */
struct err_detail {
    int noted;  /* the status that the text is about */
    bool shown; /* else far_error_detail() is empty  */
    char text[ERR_DETAIL_BYTES];
};
void err_keep(struct err_detail *kept);
void err_restore(const struct err_detail *kept);

/* Asserts stay on in release builds: after a broken invariant nothing may be written to a pool. */
_Noreturn void err_assert_failed(const char *what, const char *file, int line);
#define ASSERT(cond) ((cond) ? (void)0 : err_assert_failed(#cond, __FILE__, __LINE__))

#endif
