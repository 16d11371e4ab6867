/* Puts a key into each pool that an argument names and gets it again. Then prints which networks
 * the process has loaded, and whether it still has its own handler of SIGSEGV. */
#include <farside.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int use(const char *uri)
{
    far_pool *pool;
    far_session *session;
    far_table *table;
    char value[16];
    size_t len;

    if (far_pool_open(uri, &pool) != FAR_OK || far_session_open(pool, NULL, &session) != FAR_OK ||
        far_table_create(session, "greetings", "race", NULL, &table) != FAR_OK ||
        far_put(session, table, "hello", 5, "world", 5) != FAR_OK ||
        far_get(session, table, "hello", 5, value, sizeof value, &len) != FAR_OK) {
        fprintf(stderr, "%s: %s\n", uri, far_error_detail());
        return 1;
    }
    printf("%s: hello %.*s\n", uri, (int)len, value);
    far_session_close(session);
    far_pool_close(pool);
    return 0;
}

static void print_if_mapped(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];

    while (maps && fgets(line, sizeof line, maps)) {
        if (strstr(line, name)) {
            printf("has %s\n", name);
            break;
        }
    }
    if (maps)
        fclose(maps);
}

int main(int argc, char **argv)
{
    struct sigaction before, after;
    int i;

    sigaction(SIGSEGV, NULL, &before);
    for (i = 1; i < argc; i++) {
        if (use(argv[i]) != 0)
            return 1;
    }
    sigaction(SIGSEGV, NULL, &after);
    print_if_mapped("/libfarside.so");
    print_if_mapped("/farside-ucx.so");
    print_if_mapped("/farside-verbs.so");
    print_if_mapped("/libucp.so");
    print_if_mapped("/libucm.so");
    print_if_mapped("/libibverbs.so");
    print_if_mapped("/libsodium.so");
    printf("SIGSEGV: %s\n", before.sa_handler == after.sa_handler ? "as before" : "changed");
    return 0;
}
