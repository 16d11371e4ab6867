#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct err_detail detail;

#undef err_fail /* the analyzer's */
int err_fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(detail.text, sizeof detail.text, format, args);
    va_end(args);
    detail.noted = status;
    detail.shown = true;
    return status;
}

void err_begin(void)
{
    detail.noted = FAR_OK;
    detail.shown = false;
}

void err_begin_ring(void)
{
    if (!status_means(detail.noted, STATUS_FABRIC))
        detail.noted = FAR_OK;
    detail.shown = false;
}

int err_end(int status)
{
    if (status == FAR_OK) {
        detail.shown = false;
        return status;
    }
    bool both_of_fabric =
        status_means(status, STATUS_FABRIC) && status_means(detail.noted, STATUS_FABRIC);
    detail.shown = status == detail.noted || both_of_fabric;
    return status;
}

void err_take(char text[ERR_DETAIL_BYTES])
{
    strcpy(text, far_error_detail());
    err_begin_ring();
}

void err_keep(struct err_detail *kept)
{
    *kept = detail;
}

void err_restore(const struct err_detail *kept)
{
    detail = *kept;
}

_Noreturn void err_assert_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "farside: broken invariant: %s (%s:%d)\n", what, file, line);
    abort();
}

const char *far_error_detail(void)
{
    return detail.shown ? detail.text : "";
}
