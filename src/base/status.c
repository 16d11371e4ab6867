/* The names and texts of statuses. */
#include "base/status.h"

/* By the number of the status, negated. */
static const struct {
    const char *name, *text;
} words[] = {{"FAR_OK", "success"},
#define FAR_X(name, value, text) [-(value)] = {"FAR_" #name, text},
             FAR_ERRORS(FAR_X)
#undef FAR_X
};
#define FAR_X(name, value, text) +1
_Static_assert(sizeof words / sizeof words[0] == 1 FAR_ERRORS(FAR_X), "no number is left out");
#undef FAR_X

static bool is_status(int status)
{
    return status <= 0 && status > -(int)(sizeof words / sizeof words[0]);
}

const char *far_strerror(int status)
{
    return is_status(status) ? words[-status].text : "unknown status";
}

const char *far_errname(int status)
{
    return is_status(status) ? words[-status].name : "FAR_?";
}

const char *far_version(void)
{
    return FAR_VERSION;
}
