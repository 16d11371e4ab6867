/* The names of a pool's tables. */
#ifndef CLI_TABLES_H
#define CLI_TABLES_H

#include "farside.h"

struct table_list {
    unsigned count;
    struct table_name {
        char name[FAR_NAME_MAX + 1];
        char index[FAR_NAME_MAX + 1];
    } * item;
};

/* Fills the list, sorted by name. Fails as far_table_list() does, or with FAR_NO_MEMORY. */
int table_list_read(far_session *session, struct table_list *list);
/* The table of that name, or NULL. */
const struct table_name *table_list_find(const struct table_list *list, const char *name);
void table_list_free(struct table_list *list);

#endif
