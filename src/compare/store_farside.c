/* Farside itself: a table in a pool of its own. */
#include "base/err.h"
#include "bench/keys.h"
#include "compare/server.h"
#include "compare/stores.h"
#include "fabric/module.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_BYTES     (4ull << 30) /* at least, as mem: has by default; pages are taken when used */
#define POOL_BYTES_MAX (1ull << 40)
#define ADDRESS_BYTES  128

struct farside {
    const struct rival_setup *setup;
    struct server memd; /* of ucx: */
    char uri[ADDRESS_BYTES];
    far_pool *pool;
    far_table *table;
};

struct farside_client {
    const struct rival_setup *setup;
    far_table *table;
    far_session *session;
    struct far_result *results;
};

static uint64_t pool_bytes(const struct rival_setup *s)
{
    uint64_t bytes = 8 * s->keys * (s->key_max + s->value_max + 64ull);
    if (bytes > POOL_BYTES_MAX)
        return POOL_BYTES_MAX;
    return bytes > POOL_BYTES ? bytes : POOL_BYTES;
}

static int open_table(struct farside *f)
{
    far_session *session = NULL;
    struct far_session_options options = {.depth = 1, .seed = bench_mix(f->setup->seed) | 1};
    struct far_table_options table = {.hash_seed = bench_mix(f->setup->seed + 1) | 1,
                                      .tuning = f->setup->tuning};
    int rc = far_pool_open(f->uri, &f->pool);
    if (rc != FAR_OK)
        return rc;
    rc = far_session_open(f->pool, &options, &session);
    if (rc == FAR_OK)
        rc = far_table_create(session, "compare", f->setup->index, &table, &f->table);
    far_session_close(session);
    return rc;
}

static void farside_close(void *store)
{
    struct farside *f = store;
    struct err_detail kept; /* of what failed, if something did */
    err_keep(&kept);
    far_pool_close(f->pool);
    server_end(&f->memd);
    free(f);
    err_restore(&kept);
}

static int farside_open(const struct rival_setup *setup, int (*prepare)(struct farside *f),
                        void **store)
{
    struct farside *f = calloc(1, sizeof *f);
    if (!f)
        return err_fail(FAR_NO_MEMORY, "no memory for a pool");
    f->setup = setup;
    int rc = prepare(f);
    if (rc == FAR_OK)
        rc = open_table(f);
    if (rc == FAR_OK)
        *store = f;
    else
        farside_close(f);
    return rc;
}

/* ---- where the pool is ----------------------------------------------------------------------- */

static int prepare_mem(struct farside *f)
{
    snprintf(f->uri, sizeof f->uri, "mem:?size=%llu", (unsigned long long)pool_bytes(f->setup));
    return FAR_OK;
}

static int open_mem(const struct rival_setup *setup, void **store)
{
    return farside_open(setup, prepare_mem, store);
}

/* Reads the address that the memory node writes once it is ready. */
static bool read_address(int ready, char uri[ADDRESS_BYTES])
{
    struct pollfd wait = {.fd = ready, .events = POLLIN};
    size_t len = 0;
    ssize_t n = 1;
    while (n > 0 && len < ADDRESS_BYTES - 1 && !memchr(uri, '\n', len)) {
        if (poll(&wait, 1, SERVER_READY_MS) == 0)
            return false;
        n = read(ready, uri + len, ADDRESS_BYTES - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    uri[len] = '\0';
    uri[strcspn(uri, "\n")] = '\0';
    return len > 0;
}

static int prepare_ucx(struct farside *f)
{
    char size[32];
    const char *argv[] = {
        f->setup->program, "memd", "--listen",   "ucx://127.0.0.1:0",       "--size", size,
        "--threads",       "1",    "--ready-fd", "3" /* SERVER_READY_FD */, NULL};
    const struct module *network = NULL;
    int ready = -1, rc = module_find("ucx", &network);
    if (rc != FAR_OK)
        return rc;
    snprintf(size, sizeof size, "%llu", (unsigned long long)pool_bytes(f->setup));
    rc = server_spawn(argv, &ready, &f->memd);
    if (rc != FAR_OK)
        return rc;
    bool good = read_address(ready, f->uri);
    close(ready);
    return good ? FAR_OK : server_failed("farside memd", &f->memd);
}

static int open_ucx(const struct rival_setup *setup, void **store)
{
    setenv("UCX_TLS", "tcp", 0); /* the others use TCP; no other thread runs yet */
    return farside_open(setup, prepare_ucx, store);
}

static void describe(void *store, char text[RIVAL_TEXT_BYTES])
{
    const struct farside *f = store;
    const char *tuning = f->setup->tuning;
    char where[192] = "in the memory of this process (mem:)";
    if (f->memd.pid > 0)
        snprintf(where, sizeof where,
                 "on one farside memd with one thread over ucx: on 127.0.0.1, UCX_TLS=%s",
                 getenv("UCX_TLS"));
    snprintf(text, RIVAL_TEXT_BYTES, "Farside %s %s, index %s%s%s, no size given for the table",
             far_version(), where, f->setup->index, tuning ? ", tuning " : "",
             tuning ? tuning : "");
}

/* ---- clients --------------------------------------------------------------------------------- */

static void client_close(void *client)
{
    struct farside_client *c = client;
    far_session_close(c->session);
    free(c->results);
    free(c);
}

static struct far_op op_of(const struct farside_client *c, const struct rival_op *op, uint64_t tag)
{
    return (struct far_op){.kind = op->put ? FAR_OP_PUT : FAR_OP_GET,
                           .table = c->table,
                           .key = op->key,
                           .key_len = op->key_len,
                           .value = op->value,
                           .value_len = op->value_len,
                           .buf = op->buf,
                           .cap = op->buf ? c->setup->value_max : 0,
                           .user_data = tag};
}

/* Notes what an operation returned. The status, unless it is an answer. */
static int note(struct rival_op *op, const struct far_result *r)
{
    op->found = r->status == FAR_OK;
    op->got_len = (uint32_t)r->len;
    return r->status == FAR_NOT_FOUND ? FAR_OK : r->status;
}

static int run_sync(struct farside_client *c, struct rival_op *ops, unsigned count)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < count && rc == FAR_OK; i++) {
        struct far_op op = op_of(c, &ops[i], i);
        struct far_result result;
        (void)far_execute(c->session, &op, &result);
        rc = note(&ops[i], &result);
    }
    return rc;
}

static int run_ring(struct farside_client *c, struct rival_op *ops, unsigned count)
{
    unsigned depth = c->setup->depth, sent = 0, done = 0;
    int rc = FAR_OK;
    while (done < sent || (sent < count && rc == FAR_OK)) {
        for (; sent < count && sent - done < depth && rc == FAR_OK; sent++) {
            struct far_op op = op_of(c, &ops[sent], sent);
            int submitted = far_submit(c->session, &op);
            ASSERT(submitted == FAR_OK); /* the ring is as deep as that */
        }
        unsigned n = far_reap(c->session, c->results, depth, 1);
        for (unsigned i = 0; i < n; i++) {
            int status = note(&ops[c->results[i].user_data], &c->results[i]);
            rc = rc == FAR_OK ? status : rc;
        }
        done += n;
    }
    return rc;
}

static int run(void *client, struct rival_op *ops, unsigned count)
{
    struct farside_client *c = client;
    return c->setup->depth == 1 ? run_sync(c, ops, count) : run_ring(c, ops, count);
}

/* The first operation makes the session's ring and fills its caches, which is not measured. */
static int warm_up(struct farside_client *c)
{
    struct rival_op op = {.key = "", .key_len = 1};
    return run(c, &op, 1);
}

static int client_open(void *store, void **client)
{
    struct farside *f = store;
    struct far_session_options options = {.depth = f->setup->depth};
    struct farside_client *c = calloc(1, sizeof *c);
    if (!c)
        return err_fail(FAR_NO_MEMORY, "no memory for a client");
    *c = (struct farside_client){.setup = f->setup,
                                 .table = f->table,
                                 .results = calloc(f->setup->depth, sizeof *c->results)};
    int rc = c->results ? far_session_open(f->pool, &options, &c->session)
                        : err_fail(FAR_NO_MEMORY, "no memory for %u results", options.depth);
    if (rc == FAR_OK)
        rc = warm_up(c);
    if (rc == FAR_OK)
        *client = c;
    else
        client_close(c);
    return rc;
}

const struct rival_ops store_farside_mem = {.open = open_mem,
                                            .close = farside_close,
                                            .describe = describe,
                                            .client_open = client_open,
                                            .client_close = client_close,
                                            .run = run};
const struct rival_ops store_farside_ucx = {.open = open_ucx,
                                            .close = farside_close,
                                            .describe = describe,
                                            .client_open = client_open,
                                            .client_close = client_close,
                                            .run = run};
