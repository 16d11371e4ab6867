/* Views: what a session keeps of each table that it uses. */
#include "store/store_internal.h"

#include <stdlib.h>
#include <string.h>

static void close_view(far_session *s, struct table_view *v)
{
    if (!v->view)
        return;
    client_uncache(&s->client, &v->view->cached);
    index_detach(v->view);
    v->view = NULL;
}

static void free_view(far_session *s, unsigned i)
{
    struct table_view *v = s->table[i];
    close_view(s, v);
    s->table[i] = NULL;
    store_handle_drop_view(v->table);
    free(v);
}

void store_view_close_all(far_session *s)
{
    for (unsigned i = 0; i < s->tables; i++)
        if (s->table[i])
            free_view(s, i);
    free(s->table);
    s->table = NULL;
    s->tables = 0;
}

/* Frees the views that are not needed any more (HANDLE-1). */
static void free_unused(far_session *s)
{
    for (unsigned i = 0; i < s->tables; i++) {
        const struct table_view *v = s->table[i];
        if (v && v->users == 0 && (v->gone || store_handle_closed(v->table)))
            free_view(s, i);
    }
}

static struct table_view *make_place(far_session *s, far_table *table)
{
    unsigned room = s->tables ? s->tables : 8;
    while (room <= table->number)
        room *= 2;
    if (room > s->tables) {
        struct table_view **grown = realloc(s->table, room * sizeof(struct table_view *));
        if (!grown)
            return NULL;
        memset(grown + s->tables, 0, (room - s->tables) * sizeof(struct table_view *));
        s->table = grown;
        s->tables = room;
    }
    struct table_view *v = s->table[table->number] = calloc(1, sizeof *v);
    if (v) {
        v->table = table;
        store_handle_add_view(table);
    }
    return v;
}

struct table_view *store_view_make(far_session *s, far_table *table)
{
    free_unused(s);
    return make_place(s, table);
}

void store_view_close(far_session *s, struct table_view *v)
{
    if (v->users == 0)
        close_view(s, v);
}

void store_view_forget(far_session *s, const far_table *table)
{
    struct table_view *v = store_known(s, table);
    if (!v)
        return;
    v->users++;
    store_view_release(s, v, FAR_NO_TABLE);
}

/* From now on, announcements make the view stale, unless they validate it (EPOCH-E2). */
static void cache(struct client *c, struct index_view *view)
{
    bool stale = view->cached.stale;
    client_cache(c, &view->cached);
    view->cached.stale = stale;
}

/* Makes the session's view of a table, at the first operation on it. Within an epoch, because the
 * view keeps addresses. */
static int attach(far_session *s, struct op *op, const far_table *table, struct table_view *view)
{
    if (!view->view) {
        struct index_view *made = NULL;
        int rc = index_attach(op, &table->index, &made);
        if (rc != FAR_OK)
            return rc;
        if (view->view) { /* another operation of this session was faster */
            index_detach(made);
        } else {
            view->view = made;
            cache(&s->client, made);
        }
    }
    return FAR_OK;
}

int store_view_update(far_session *s, struct op *op, struct table_view *v)
{
    const far_table *table = v->table;
    int rc = FAR_OK;
    if (!v->view) {
        rc = attach(s, op, table, v);
        op->cost = (struct cost){0}; /* attaching counts for no operation */
    }
    if (rc == FAR_OK && v->view->cached.stale)
        rc = INDEX_CALL(table->index.ops, refresh, op, v->view);
    if (rc != FAR_OK) {
        rc = store_judge(op, rc);
        op_end(op);
    }
    return rc;
}

int store_view_gone(const struct table_view *v)
{
    return err_fail(FAR_NO_TABLE, "table '%s' was dropped", v->table->index.desc.name);
}

int store_view_begin(far_session *s, struct op *op, far_table *table, struct table_view **out)
{
    struct table_view *v = store_view_use(s, table);
    if (!v)
        return err_fail(FAR_NO_MEMORY, "no memory for a view");
    int rc = store_view_enter(s, op, v);
    if (rc == FAR_OK)
        *out = v;
    else
        store_view_release(s, v, rc);
    return rc;
}

void store_view_end(far_session *s, struct op *op, struct table_view *v, int rc)
{
    op_end(op);
    store_view_release(s, v, rc);
}

int store_view_work(far_pool *pool, struct op *op, const struct table_desc *desc, bool dropped_too,
                    int (*work)(struct op *op, struct index_view *view, void *arg), void *arg)
{
    struct index_table table = {.ops = index_find(desc->index),
                                .pool = &pool->pool,
                                .desc = *desc,
                                .dropped_too = dropped_too};
    struct index_view *view = NULL;
    if (!table.ops)
        return err_fail(FAR_NO_INDEX, "table '%s' has index %s, which is not in this build",
                        desc->name, desc->index);
    int rc = index_attach(op, &table, &view);
    if (rc == FAR_OK) {
        cache(op->client, view); /* CAT-4 */
        rc = work(op, view, arg);
        client_uncache(op->client, &view->cached);
        index_detach(view);
    }
    return rc;
}
