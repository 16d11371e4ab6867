/* Two threads on one table. It is compiled with the thread sanitizer, which must find nothing. */
#include <farside.h>
#include <pthread.h>
#include <stdio.h>

#define KEYS 2000

static far_pool *pool;
static far_table *table;

static void *work(void *failed)
{
    far_session *session;
    char value[16];
    size_t len;
    int i;

    if (far_session_open(pool, NULL, &session) != FAR_OK)
        *(int *)failed = 1;
    for (i = 0; i < KEYS && !*(int *)failed; i++) {
        if (far_put(session, table, &i, sizeof i, "value", 5) != FAR_OK ||
            far_get(session, table, &i, sizeof i, value, sizeof value, &len) != FAR_OK)
            *(int *)failed = 1;
    }
    if (*(int *)failed)
        fprintf(stderr, "%s\n", far_error_detail());
    far_session_close(session);
    return NULL;
}

int main(void)
{
    pthread_t thread[2];
    int failed[2] = {0, 0}, i;
    far_session *session;

    if (far_pool_open("mem:?size=64m", &pool) != FAR_OK ||
        far_session_open(pool, NULL, &session) != FAR_OK ||
        far_table_create(session, "shared", "race", NULL, &table) != FAR_OK) {
        fprintf(stderr, "%s\n", far_error_detail());
        return 1;
    }
    for (i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, work, &failed[i]);
    for (i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    far_session_close(session);
    far_pool_close(pool);
    printf("done\n");
    return failed[0] || failed[1];
}
