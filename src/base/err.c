#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char detail[256];

#undef fail /* the analyzer's */
int fail(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    return status;
}

_Noreturn void assert_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "farside: broken invariant: %s (%s:%d)\n", what, file, line);
    abort();
}

const char *far_error_detail(void)
{
    return detail;
}

const char *far_strerror(int status)
{
    switch (status) {
    case FAR_OK:
        return "success";
#define FAR_X(name, value, text)                                                                   \
    case FAR_##name:                                                                               \
        return text;
        FAR_ERRORS(FAR_X)
#undef FAR_X
    }
    return "unknown status";
}

const char *far_errname(int status)
{
    switch (status) {
    case FAR_OK:
        return "FAR_OK";
#define FAR_X(name, value, text)                                                                   \
    case FAR_##name:                                                                               \
        return "FAR_" #name;
        FAR_ERRORS(FAR_X)
#undef FAR_X
    }
    return "FAR_?";
}

const char *far_version(void)
{
    return FAR_VERSION;
}
