/* Redis and memcached: server programs, over TCP on the loopback interface. */
#include "base/err.h"
#include "compare/pipeline.h"
#include "compare/server.h"
#include "compare/stores.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBER_BYTES 24

/* A kind of server: how it is started, and what to ask it. */
struct kind {
    const char *name, *program, *package;
    const struct protocol *protocol;
    /* A question, the end of its answer, and names of fields in it. */
    const char *ask, *end, *pid, *version;
    unsigned key_max; /* bytes */
    void (*args)(const struct rival_setup *setup, const char *port, const char **argv);
    const char *settings;
};

struct server_store {
    const struct kind *kind;
    const struct rival_setup *setup;
    struct server server;
    char version[SERVER_FIELD_MAX];
};

/* Starts the server at a port that is free. Another program may be faster and take the port. */
static int start_at_port(struct server_store *s, const char *path)
{
    const char *argv[SERVER_ARGS_MAX] = {path};
    char port[NUMBER_BYTES], reply[SERVER_REPLY_MAX], pid[SERVER_FIELD_MAX];
    unsigned number = 0;
    int rc = server_free_port(&number);
    if (rc != FAR_OK)
        return rc;
    snprintf(port, sizeof port, "%u", number);
    s->kind->args(s->setup, port, argv + 1);
    rc = server_spawn(argv, NULL, &s->server);
    if (rc != FAR_OK)
        return rc;
    s->server.port = number;
    rc = server_ask(&s->server, s->kind->ask, s->kind->end, reply);
    if (rc != FAR_OK)
        return server_failed(s->kind->program, &s->server);
    server_field(reply, s->kind->pid, pid);
    server_field(reply, s->kind->version, s->version);
    if (atoi(pid) == (int)s->server.pid)
        return FAR_OK;
    server_end(&s->server);
    return err_fail(FAR_EXISTS, "port %u belongs to another %s", number, s->kind->program);
}

static void store_close(void *store)
{
    struct server_store *s = store;
    server_end(&s->server);
    free(s);
}

static int store_open(const struct kind *kind, const struct rival_setup *setup, void **store)
{
    char path[PATH_MAX];
    int rc = server_find(kind->program, kind->package, path);
    if (rc != FAR_OK)
        return rc;
    if (setup->key_max > kind->key_max)
        return err_fail(FAR_UNSUPPORTED, "%s has keys of up to %u bytes", kind->name,
                        kind->key_max);
    struct server_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_fail(FAR_NO_MEMORY, "no memory for %s", kind->name);
    s->kind = kind;
    s->setup = setup;
    rc = start_at_port(s, path);
    for (unsigned i = 1; i < SERVER_PORT_TRIES && rc != FAR_OK; i++)
        rc = start_at_port(s, path);
    if (rc == FAR_OK)
        *store = s;
    else
        store_close(s);
    return rc;
}

static void store_describe(void *store, char text[RIVAL_TEXT_BYTES])
{
    const struct server_store *s = store;
    snprintf(text, RIVAL_TEXT_BYTES, "%s %s over TCP on 127.0.0.1, %s", s->kind->name, s->version,
             s->kind->settings);
}

static int client_open(void *store, void **client)
{
    const struct server_store *s = store;
    struct pipeline *p = NULL;
    int rc = pipeline_open(s->kind->protocol, s->setup, s->server.port, &p);
    *client = p;
    return rc;
}

static void client_close(void *client)
{
    pipeline_close(client);
}

static int run(void *client, struct rival_op *ops, unsigned count)
{
    return pipeline_run(client, ops, count);
}

/* ---- Redis ----------------------------------------------------------------------------------- */

static void redis_args(const struct rival_setup *setup, const char *port, const char **argv)
{
    const char *const args[] = {"--port",       port, "--bind",       "127.0.0.1", "--save", "",
                                "--appendonly", "no", "--io-threads", "1",         NULL};
    (void)setup;
    memcpy(argv, args, sizeof args);
}

static const struct kind redis = {
    .name = "Redis",
    .program = "redis-server",
    .package = "redis-server",
    .protocol = &protocol_resp,
    .ask = "INFO server\r\nPING\r\n",
    .end = "+PONG",
    .pid = "process_id:",
    .version = "redis_version:",
    .key_max = FAR_KEY_MAX,
    .args = redis_args,
    .settings = "no persistence, one thread; GET and SET in RESP2, pipelined by a client of the "
                "benchmark's own",
};

static int redis_open(const struct rival_setup *setup, void **store)
{
    return store_open(&redis, setup, store);
}

const struct rival_ops store_redis = {.open = redis_open,
                                      .close = store_close,
                                      .describe = store_describe,
                                      .client_open = client_open,
                                      .client_close = client_close,
                                      .run = run};

/* ---- memcached ------------------------------------------------------------------------------- */

#define MEMCACHED_KEY_MAX 250
#define MEMCACHED_ROUNDS                                                                           \
    20u /* its default for the requests that it takes from a connection in turn */

/* Enough memory that nothing is evicted, and requests of a whole pipeline in one turn. */
static void memcached_args(const struct rival_setup *setup, const char *port, const char **argv)
{
    static char megabytes[NUMBER_BYTES], requests[NUMBER_BYTES];
    uint64_t bytes = 2 * setup->keys * (setup->key_max + setup->value_max + 128ull);
    const struct passwd *user = getpwuid(geteuid());
    const char *const args[] = {"-l",
                                "127.0.0.1",
                                "-p",
                                port,
                                "-U",
                                "0",
                                "-t",
                                "1",
                                "-m",
                                megabytes,
                                "-R",
                                requests,
                                "-I",
                                "8m",
                                user ? "-u" : NULL,
                                user ? user->pw_name : NULL,
                                NULL};
    snprintf(megabytes, sizeof megabytes, "%llu", (unsigned long long)(bytes >> 20) + 256);
    snprintf(requests, sizeof requests, "%u",
             setup->depth > MEMCACHED_ROUNDS ? setup->depth : MEMCACHED_ROUNDS);
    memcpy(argv, args, sizeof args);
}

static const struct kind memcached = {
    .name = "memcached",
    .program = "memcached",
    .package = "memcached",
    .protocol = &protocol_memcached,
    .ask = "stats\r\n",
    .end = "END\r\n",
    .pid = "STAT pid ",
    .version = "STAT version ",
    .key_max = MEMCACHED_KEY_MAX,
    .args = memcached_args,
    .settings = "one thread (-t 1), room for all keys (-m), a whole pipeline in one turn (-R); get "
                "and set in its binary protocol, pipelined by a client of the benchmark's own",
};

static int memcached_open(const struct rival_setup *setup, void **store)
{
    return store_open(&memcached, setup, store);
}

const struct rival_ops store_memcached = {.open = memcached_open,
                                          .close = store_close,
                                          .describe = store_describe,
                                          .client_open = client_open,
                                          .client_close = client_close,
                                          .run = run};
