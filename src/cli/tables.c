#include "cli/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int each_table(void *arg, const char *name, const char *index)
{
    struct table_list *list = arg;
    struct table_name *grown = realloc(list->item, (list->count + 1) * sizeof *grown);
    if (!grown)
        return FAR_NO_MEMORY;
    list->item = grown;
    struct table_name *item = &list->item[list->count++];
    snprintf(item->name, sizeof item->name, "%s", name);
    snprintf(item->index, sizeof item->index, "%s", index);
    return FAR_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct table_name *)a)->name, ((const struct table_name *)b)->name);
}

int table_list_read(far_session *session, struct table_list *list)
{
    *list = (struct table_list){.count = 0};
    int rc = far_table_list(session, each_table, list);
    if (rc != FAR_OK)
        table_list_free(list);
    else if (list->count > 1)
        qsort(list->item, list->count, sizeof *list->item, by_name);
    return rc;
}

const struct table_name *table_list_find(const struct table_list *list, const char *name)
{
    for (unsigned i = 0; i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0)
            return &list->item[i];
    return NULL;
}

void table_list_free(struct table_list *list)
{
    free(list->item);
    *list = (struct table_list){.count = 0};
}
