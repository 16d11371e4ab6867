/*
 * Measures what batches gain on a network that emulates one-sided verbs. READs of the sizes that a
 * get of RACE has are done in two ways: with one ucp_get for each, as a program that uses UCX
 * directly would do, and through the ucx: fabric, where batches of many operations share messages.
 * Both go over TCP on the loopback interface to a process that serves, with the same number of
 * READs in flight. They take turns, so that other load on the machine affects both.
 *
 *     ucx_raw [DEPTH [ROUNDS [GETS]]]     operations in flight, rounds, gets of each round
 */
#include "base/clock.h"
#include "fabric/fabric.h"
#include "support/memd_child.h"

#include <poll.h>
#include <sched.h>
#include <ucp/api/ucp.h>

#define DEPTH_MAX  1024u
#define ROUNDS_MAX 1000u
#define MEMORY     (64u << 20)
#define SPINS      64u /* polls before it sleeps or yields, as in the fabric */

/* A get: two buckets at once, then the block. */
static const uint32_t bucket_bytes = 128, block_bytes = 64;
#define BATCHES 2u
#define VERBS   3u

static uint64_t random_offset(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % (MEMORY / 128) * 128;
}

static void require(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "ucx_raw: %s\n", what);
        exit(1);
    }
}

/* ---- one ucp_get for each READ --------------------------------------------------------------- */

static void worker_open(ucp_context_h *context, ucp_worker_h *worker)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;

    require(ucp_config_read(NULL, NULL, &config) == UCS_OK, "UCX's settings");
    require(ucp_config_modify(config, "TLS", "tcp") == UCS_OK, "UCX's transports");
    require(ucp_init(&params, config, context) == UCS_OK, "UCX");
    ucp_config_release(config);
    require(ucp_worker_create(*context, &worker_params, worker) == UCS_OK, "a UCX worker");
}

/* What the server sends the client through a pipe. */
struct invitation {
    uint64_t memory;
    size_t address_bytes, rkey_bytes;
    char address[4096], rkey[4096];
};

static void invite(ucp_context_h context, ucp_worker_h worker, int to)
{
    ucp_mem_map_params_t map = {.field_mask =
                                    UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                .length = MEMORY,
                                .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    struct invitation in = {0};
    ucp_address_t *address;
    ucp_mem_h mem;
    void *rkey;

    require(ucp_mem_map(context, &map, &mem) == UCS_OK, "memory");
    require(ucp_mem_query(mem, &attr) == UCS_OK, "memory");
    require(ucp_rkey_pack(context, mem, &rkey, &in.rkey_bytes) == UCS_OK, "a key");
    require(ucp_worker_get_address(worker, &address, &in.address_bytes) == UCS_OK, "an address");
    require(in.rkey_bytes <= sizeof in.rkey && in.address_bytes <= sizeof in.address, "too long");
    memset(attr.address, 0, MEMORY);
    in.memory = (uintptr_t)attr.address;
    memcpy(in.address, address, in.address_bytes);
    memcpy(in.rkey, rkey, in.rkey_bytes);
    require(write(to, &in, sizeof in) == (ssize_t)sizeof in, "a pipe");
}

/* Serves until it is killed; sleeps when idle. */
static _Noreturn void serve(int to)
{
    ucp_context_h context;
    ucp_worker_h worker;
    struct pollfd event = {.events = POLLIN};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    worker_open(&context, &worker);
    require(ucp_worker_get_efd(worker, &event.fd) == UCS_OK, "events");
    invite(context, worker, to);
    for (unsigned idle = 0;; idle++) {
        if (ucp_worker_progress(worker)) {
            idle = 0;
        } else if (idle > SPINS && ucp_worker_arm(worker) == UCS_OK) {
            poll(&event, 1, -1);
            idle = 0;
        }
    }
}

struct getter {
    pid_t server;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t memory;
    char (*buf)[128];
    unsigned *idle, idle_count;
    uint64_t done;
};

static void getter_open(struct getter *g, unsigned window)
{
    struct invitation in;
    int fds[2];

    require(pipe(fds) == 0, "a pipe");
    g->server = fork(); /* before this process uses UCX */
    require(g->server >= 0, "a process");
    if (g->server == 0)
        serve(fds[1]);
    close(fds[1]);
    require(read(fds[0], &in, sizeof in) == (ssize_t)sizeof in, "the server does not come up");
    close(fds[0]);

    worker_open(&g->context, &g->worker);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (const ucp_address_t *)(const void *)in.address};
    require(ucp_ep_create(g->worker, &params, &g->ep) == UCS_OK, "a connection");
    require(ucp_ep_rkey_unpack(g->ep, in.rkey, &g->rkey) == UCS_OK, "a key");
    g->memory = in.memory;
    g->buf = aligned_alloc(128, window * sizeof *g->buf);
    g->idle = calloc(window, sizeof *g->idle);
    require(g->buf && g->idle, "memory");
    while (g->idle_count < window) {
        g->idle[g->idle_count] = g->idle_count;
        g->idle_count++;
    }
}

static void getter_close(struct getter *g)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_rkey_destroy(g->rkey);
    ucs_status_ptr_t closing = ucp_ep_close_nbx(g->ep, &force);
    if (UCS_PTR_IS_PTR(closing)) {
        while (ucp_request_check_status(closing) == UCS_INPROGRESS)
            ucp_worker_progress(g->worker);
        ucp_request_free(closing);
    }
    ucp_worker_destroy(g->worker);
    ucp_cleanup(g->context);
    kill(g->server, SIGKILL);
    waitpid(g->server, NULL, 0);
    free(g->idle);
    free(g->buf);
}

static struct getter getter;

static void got(void *request, ucs_status_t status, void *arg)
{
    require(status == UCS_OK, "a ucp_get failed");
    getter.idle[getter.idle_count++] = (unsigned)(uintptr_t)arg;
    getter.done++;
    ucp_request_free(request);
}

static void post_get(struct getter *g, uint64_t number)
{
    unsigned slot = g->idle[--g->idle_count];
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = got,
                                 .user_data = (void *)(uintptr_t)slot};
    ucs_status_ptr_t sent =
        ucp_get_nbx(g->ep, g->buf[slot], number % VERBS < VERBS - 1 ? bucket_bytes : block_bytes,
                    g->memory + random_offset(), g->rkey, &param);

    require(!UCS_PTR_IS_ERR(sent), "a ucp_get failed");
    if (sent == NULL) { /* done already */
        g->idle[g->idle_count++] = slot;
        g->done++;
    }
}

/* READs per second. */
static double measure_gets(struct getter *g, uint64_t verbs)
{
    uint64_t start = clock_ns(), posted = 0;

    g->done = 0;
    for (unsigned idle = 0; g->done < verbs; idle++) {
        for (; g->idle_count > 0 && posted < verbs; posted++)
            post_get(g, posted);
        if (ucp_worker_progress(g->worker))
            idle = 0;
        else if (idle > SPINS)
            sched_yield();
    }
    return (double)verbs * 1e9 / (double)(clock_ns() - start);
}

/* ---- the same through the fabric ------------------------------------------------------------- */

struct lane {
    struct fab_req req;
    struct fab_verb verb[VERBS];
    char *buf;
    uint64_t batch; /* even: buckets, odd: the block */
};

struct batched {
    struct memd_child node;
    struct fab *fab;
    struct fab_ep *ep;
    unsigned depth;
    struct lane lane[DEPTH_MAX];
};

static void batched_open(struct batched *b, unsigned depth)
{
    static const char *const more[] = {"--size", "64m", NULL};

    memd_start(&b->node, 0, more);
    require(fab_open(memd_uri(&b->node, 1, ""), &b->fab) == FAR_OK, far_error_detail());
    require(b->fab->ops->ep_open(b->fab, &b->ep) == FAR_OK, far_error_detail());
    b->depth = depth;
    for (unsigned i = 0; i < depth; i++) {
        b->lane[i].buf = b->ep->ops->buf_alloc(b->ep, VERBS * 128);
        require(b->lane[i].buf != NULL, "memory");
    }
}

static void batched_close(struct batched *b)
{
    for (unsigned i = 0; i < b->depth; i++)
        b->ep->ops->buf_free(b->ep, b->lane[i].buf, VERBS * 128);
    b->ep->ops->ep_close(b->ep);
    fab_close(b->fab);
    require(memd_end(&b->node, SIGTERM) == 0, "the memory node did not end well");
}

static void post_batch(struct batched *b, struct lane *l)
{
    bool block = l->batch % BATCHES != 0;
    unsigned count = block ? 1 : VERBS - 1;

    for (unsigned i = 0; i < count; i++)
        l->verb[i] = (struct fab_verb){.kind = FAB_READ,
                                       .len = block ? block_bytes : bucket_bytes,
                                       .off = random_offset(),
                                       .buf = l->buf + i * 128};
    l->req = (struct fab_req){.verbs = l->verb, .count = count};
    require(b->ep->ops->post(b->ep, &l->req) == FAR_OK, far_error_detail());
}

static double measure_batched(struct batched *b, uint64_t gets)
{
    uint64_t start = clock_ns(), begun = 0, done = 0;

    for (unsigned i = 0; i < b->depth; i++)
        b->lane[i].req = (struct fab_req){.done = false};
    for (; begun < b->depth && begun < gets; begun++) {
        b->lane[begun].batch = 0;
        post_batch(b, &b->lane[begun]);
    }
    while (done < gets) {
        b->ep->ops->poll(b->ep, true);
        for (unsigned i = 0; i < b->depth; i++) {
            struct lane *l = &b->lane[i];
            if (!l->req.done)
                continue;
            require(l->req.status == FAR_OK, "a batch failed");
            l->req.done = false;
            bool over = ++l->batch % BATCHES == 0;
            done += over;
            if (!over || begun < gets)
                post_batch(b, l);
            begun += over && begun < gets;
        }
    }
    return (double)(gets * VERBS) * 1e9 / (double)(clock_ns() - start);
}

/* ---- both ------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *value, unsigned count)
{
    qsort(value, count, sizeof *value, by_size);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

static unsigned argument(int argc, char **argv, int which, unsigned usual, unsigned most)
{
    uint64_t value = usual;
    require(argc <= which || text_number(argv[which], 1, most, &value),
            "usage: ucx_raw [DEPTH [ROUNDS [GETS]]]");
    return (unsigned)value;
}

int main(int argc, char **argv)
{
    static struct batched batched;
    double single[ROUNDS_MAX], shared[ROUNDS_MAX], ratio[ROUNDS_MAX];
    unsigned depth = argument(argc, argv, 1, 32, DEPTH_MAX);
    unsigned rounds = argument(argc, argv, 2, 15, ROUNDS_MAX);
    unsigned gets = argument(argc, argv, 3, 20000, 100000000);

    /* A get has three READs in two round trips: this many are in flight on average. */
    getter_open(&getter, (depth * VERBS + 1) / BATCHES);
    batched_open(&batched, depth);
    measure_gets(&getter, gets); /* both warm up */
    measure_batched(&batched, gets);
    for (unsigned i = 0; i < rounds; i++) {
        single[i] = measure_gets(&getter, (uint64_t)gets * VERBS);
        shared[i] = measure_batched(&batched, gets);
        ratio[i] = shared[i] / single[i];
    }
    batched_close(&batched);
    getter_close(&getter);
    printf("READs a second over TCP, %u operations in flight, medians of %u rounds in turns\n"
           "  one ucp_get each   %10.0f\n"
           "  batches, ucx:      %10.0f\n"
           "  ratio              %10.2f (from %.2f to %.2f)\n",
           depth, rounds, median(single, rounds), median(shared, rounds), median(ratio, rounds),
           ratio[0], ratio[rounds - 1]);
    return 0;
}
