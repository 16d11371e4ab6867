/* The handles of tables, which all threads of a process share (HANDLE-1 in store.h). */
#include "index/hints.h"
#include "store/store_internal.h"

#include <stdlib.h>

static far_table *find(const far_pool *pool, const struct table_desc *desc)
{
    for (unsigned i = pool->tables; i-- > 0;) {
        const far_table *t = pool->table[i];
        if (t && t->index.desc.id == desc->id && t->index.desc.serial == desc->serial)
            return pool->table[i];
    }
    return NULL;
}

/* A number that no handle has: the lowest, so that sessions' lists stay short. */
static bool free_number(far_pool *pool, unsigned *number)
{
    for (*number = 0; *number < pool->tables; ++*number)
        if (!pool->table[*number])
            return true;
    if (pool->tables == pool->tables_room) {
        unsigned room = pool->tables_room ? 2 * pool->tables_room : 16;
        far_table **grown = realloc(pool->table, room * sizeof(far_table *));
        if (!grown)
            return false;
        pool->table = grown;
        pool->tables_room = room;
    }
    pool->table[pool->tables++] = NULL;
    return true;
}

static far_table *make(far_pool *pool, const struct index_ops *ops, const struct table_desc *desc)
{
    unsigned number = 0;
    if (!free_number(pool, &number))
        return NULL;
    far_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    table->pool = pool;
    table->index = (struct index_table){.ops = ops, .pool = &pool->pool, .desc = *desc};
    table->index.hints = calloc(fab_processes(pool->fab), sizeof *table->index.hints);
    table->number = number;
    return pool->table[number] = table;
}

far_table *store_handle_open(far_pool *pool, const struct index_ops *ops,
                             const struct table_desc *desc)
{
    pthread_mutex_lock(&pool->lock);
    far_table *table = find(pool, desc);
    if (!table)
        table = make(pool, ops, desc);
    if (table)
        table->opened++;
    pthread_mutex_unlock(&pool->lock);
    return table;
}

void store_handle_free(far_table *table)
{
    if (table)
        index_hints_free(&table->index);
    free(table);
}

/* Under the lock: frees it if it is not needed any more. */
static void free_unused(far_table *table)
{
    if (table->opened > 0 || table->views > 0)
        return;
    table->pool->table[table->number] = NULL;
    store_handle_free(table);
}

void store_handle_add_view(far_table *table)
{
    pthread_mutex_lock(&table->pool->lock);
    table->views++;
    pthread_mutex_unlock(&table->pool->lock);
}

void store_handle_drop_view(far_table *table)
{
    far_pool *pool = table->pool;
    if (!process_same(pool->opener)) /* in a child of fork(), the copy is freed with its pool */
        return;
    pthread_mutex_lock(&pool->lock);
    table->views--;
    free_unused(table);
    pthread_mutex_unlock(&pool->lock);
}

bool store_handle_closed(far_table *table)
{
    pthread_mutex_lock(&table->pool->lock);
    bool closed = table->opened == 0;
    pthread_mutex_unlock(&table->pool->lock);
    return closed;
}

void far_table_close(far_table *table)
{
    if (!table || !process_same(table->pool->opener))
        return;
    far_pool *pool = table->pool;
    pthread_mutex_lock(&pool->lock);
    if (table->opened > 0)
        table->opened--;
    free_unused(table);
    pthread_mutex_unlock(&pool->lock);
}

const char *far_table_name(const far_table *table)
{
    return table ? table->index.desc.name : "";
}

const char *far_table_index(const far_table *table)
{
    return table ? table->index.desc.index : "";
}
