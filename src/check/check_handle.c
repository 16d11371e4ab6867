/*
 * A table whose handle clients open by its name, use and close, while others use it.
 *
 * Operations on it are not part of the history. What counts is the handle: it is there as long as
 * it was opened more often than closed, or a session keeps something of the table, and no longer
 * (HANDLE-1). A value that is found must belong to its key.
 */
#include "check/check_internal.h"

#include "index/tuning.h"

#include <string.h>

#define HANDLE_NAME "h"
#define HANDLE_KEYS 8u

int check_handle_set_up(struct check *c, far_session *session)
{
    struct far_table_options options = {.tuning = tuning_varied(c->set->index, c->plan.tuning),
                                        .hash_seed = 9};
    far_table *table = NULL;
    c->handle = (struct handle_account){.opened = 0};
    if (!c->plan.closes)
        return FAR_OK;
    int rc = far_table_create(session, HANDLE_NAME, c->set->index, &options, &table);
    far_table_close(table);
    return rc;
}

/* How many clients' sessions keep something of the table with that handle? */
static unsigned count_views(const struct check *c, const far_table *table, unsigned number)
{
    unsigned views = 0;
    for (unsigned i = 0; i < c->clients; i++) {
        const far_session *s = c->client[i].session;
        views += s && number < s->tables && s->table[number] && s->table[number]->table == table;
    }
    return views;
}

/* `table` may have been freed. */
static void judge(struct check *c, const far_table *table, unsigned number)
{
    unsigned views = count_views(c, table, number);
    bool there = number < c->pool->tables && c->pool->table[number] == table;
    if (c->handle.closing > 0) /* a session that is being closed has views that are not counted */
        return;
    if (there != (c->handle.opened > 0 || views > 0))
        check_fail(c, CHECK_BAD_MEMORY,
                   "a handle that is opened %u times, of a table that %u sessions keep, is%s there",
                   c->handle.opened, views, there ? "" : " not");
    else if (there && (table->opened != c->handle.opened || table->views != views))
        check_fail(c, CHECK_BAD_MEMORY,
                   "a handle is opened %u times and has %u views, not %u and %u", table->opened,
                   table->views, c->handle.opened, views);
    c->result.coverage.handles_freed += !there;
}

static int open_handle(struct check *c, struct check_client *me)
{
    sim_note(c->sim, "opens a handle");
    int rc = far_table_open(me->session, HANDLE_NAME, c->set->index, &me->handle);
    c->handle.opened += rc == FAR_OK;
    if (!sim_unwinding(c->sim) && rc != FAR_OK && !check_is_explained(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, "opening a handle");
    return rc;
}

static void close_handle(struct check *c, struct check_client *me)
{
    far_table *table = me->handle;
    unsigned number = table->number;
    sim_note(c->sim, "closes a handle");
    me->handle = NULL;
    c->handle.opened--;
    c->result.coverage.handles_closed++;
    far_table_close(table);
    judge(c, table, number);
}

static size_t value_of(unsigned key, uint8_t *value)
{
    size_t len = 1 + key * 9;
    memset(value, (int)(key + 1), len);
    return len;
}

static int use(struct check *c, struct check_client *me, unsigned way)
{
    uint8_t key = (uint8_t)tape_choose(c->tape, HANDLE_KEYS, TAPE_WORK);
    uint8_t value[1 + HANDLE_KEYS * 9], got[2048];
    size_t len = value_of(key, value), got_len = 0;
    uint64_t cursor = 0;
    if (way == 0)
        return far_iterate(me->session, me->handle, &cursor, 0, got, sizeof got, &got_len);
    if (way <= 2)
        return far_put(me->session, me->handle, &key, 1, value, len);
    if (way == 3)
        return far_delete(me->session, me->handle, &key, 1);
    int rc = far_get(me->session, me->handle, &key, 1, got, sizeof got, &got_len);
    if (rc == FAR_OK && (got_len != len || memcmp(got, value, len) != 0))
        check_fail(c, CHECK_BAD_VALUE, "by a handle, key %u has the value of another key", key);
    return rc;
}

int check_handle_use(struct check *c, struct check_client *me)
{
    unsigned way = tape_choose(c->tape, 8, TAPE_WORK);
    if (!me->handle)
        return open_handle(c, me);
    if (way >= 6) {
        close_handle(c, me);
        return FAR_OK;
    }
    sim_note(c->sim, "uses a handle");
    int rc = use(c, me, way);
    if (!sim_unwinding(c->sim) && rc != FAR_OK && rc != FAR_NOT_FOUND && !check_is_explained(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, "an operation by a handle");
    return rc;
}

void check_handle_audit(struct check *c)
{
    for (unsigned i = 0; i < c->clients; i++)
        if (c->client[i].handle)
            close_handle(c, &c->client[i]);
}
