/* How a run failed, and which statuses of operations can be explained. */
#include "check/check_internal.h"

#include <stdarg.h>

const char *check_verdict_name(enum check_verdict verdict)
{
    static const char *const name[CHECK_VERDICT_COUNT] = {
#define CHECK_X(name, text) text,
        CHECK_VERDICTS(CHECK_X)
#undef CHECK_X
    };
    return name[verdict];
}

void check_fail(struct check *c, enum check_verdict verdict, const char *format, ...)
{
    ASSERT(verdict != CHECK_PASSED);
    if (c->result.verdict != CHECK_PASSED)
        return;
    c->result.verdict = verdict;
    va_list args;
    va_start(args, format);
    vsnprintf(c->result.what, sizeof c->result.what, format, args);
    va_end(args);
    sim_note(c->sim, "!! %s: %s", check_verdict_name(verdict), c->result.what);
}

void check_fail_status(struct check *c, enum check_verdict verdict, int status, const char *format,
                       ...)
{
    char what[128];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    check_fail(c, verdict, "%s returned %s (%s)", what, far_errname(status), far_error_detail());
}

bool check_fabric_failed(int status)
{
    return status_means(status, STATUS_FABRIC);
}

/* These errors need no fault. Delays alone can keep a client silent for longer than its lease: then
 * it is shut out, and what it had under way fails with FAR_UNKNOWN, or with FAR_UNREACHABLE if it
 * only read. Delays can also make an operation of a ring wait for another until it times out. */
bool check_is_excused(const struct check *c, int status)
{
    if (status == FAR_NO_CLIENT_SLOT) /* of one that was shut out and registers again */
        return c->plan.crowded;
    if (!check_fabric_failed(status))
        return false;
    return (c->set->adversity & SIM_FAULTS) ||
           (status == FAR_TIMEOUT && (c->set->adversity & SIM_DELAY)) ||
           ((status == FAR_UNKNOWN || status == FAR_UNREACHABLE) &&
            sim_counts(c->sim)->shut_out > 0);
}

bool check_had_no_effect(const struct check *c, int status)
{
    return status_means(status, STATUS_NO_EFFECT) ||
           (status != FAR_UNKNOWN && check_is_excused(c, status));
}

bool check_is_explained(const struct check *c, int status)
{
    return check_had_no_effect(c, status) || check_is_excused(c, status);
}

bool check_read_is_explained(const struct check *c, int status)
{
    return status != FAR_UNKNOWN && check_is_explained(c, status);
}
