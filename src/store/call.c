/* What public functions do first and last: judge their arguments, and what they return. */
#include "store/store_internal.h"

int store_null(const char *what)
{
    return err_fail(FAR_INVALID, "%s must not be NULL", what);
}

int store_refuse(const far_session *s)
{
    if (!s)
        return store_null("session");
    if (process_same(s->pool->process))
        return err_fail(FAR_INVALID,
                        "the session is in use: by another thread, or by the call whose callback "
                        "calls it");
    if (s->pool->process == 0)
        return err_fail(FAR_INVALID, "the session's pool was closed");
    return err_fail(FAR_INVALID,
                    "the pool was opened before fork(), by the parent of this process; "
                    "open it again here");
}

int store_refuse_table(const far_session *s, const far_table *table)
{
    if (!store_usable(s))
        return store_refuse(s);
    if (!table)
        return store_null("table");
    return err_fail(FAR_INVALID, "table '%s' belongs to another pool than the session",
                    table->index.desc.name);
}

int store_begin(const far_session *s, bool given, const char *argument)
{
    err_begin();
    int rc = store_check(s);
    return rc == FAR_OK && !given ? store_null(argument) : rc;
}

int store_begin_table(const far_session *s, const far_table *table, bool given,
                      const char *argument)
{
    err_begin();
    int rc = store_check_table(s, table);
    return rc == FAR_OK && !given ? store_null(argument) : rc;
}

int store_silent(void)
{
    return err_fail(FAR_FENCED, "this client was silent for longer than its lease");
}

int store_judge(const struct op *op, int rc)
{
    return status_means(rc, STATUS_DAMAGE) && client_lapsed(op->client) ? store_silent() : rc;
}

void store_take(far_session *s)
{
    store_hold(s);
    client_enter(&s->client);
}

void store_give(far_session *s)
{
    client_leave(&s->client);
    store_unhold(s);
}

void store_enter(far_session *s)
{
    store_take(s);
    s->client.progress = s->progress;
    s->client.progress_arg = s->progress_arg;
}

void store_leave(far_session *s)
{
    s->client.progress = NULL;
    store_give(s);
}
