#include <farside.h>
#include <stdio.h>

int main(void)
{
    far_pool *pool;
    far_session *session;
    far_table *table;
    char value[64];
    size_t len;

    if (far_pool_open("mem:?size=64m", &pool) != FAR_OK ||
        far_session_open(pool, NULL, &session) != FAR_OK ||
        far_table_create(session, "greetings", "race", NULL, &table) != FAR_OK ||
        far_put(session, table, "hello", 5, "far world", 9) != FAR_OK ||
        far_get(session, table, "hello", 5, value, sizeof value, &len) != FAR_OK) {
        fprintf(stderr, "%s\n", far_error_detail());
        return 1;
    }
    printf("hello -> %.*s\n", (int)len, value);
    far_session_close(session);
    far_pool_close(pool);
    return 0;
}
