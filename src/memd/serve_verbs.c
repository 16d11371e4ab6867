/*
 * The memory node's listener for verbs.
 *
 * The network card does the work: the region is registered once, and clients read and change it
 * without any code of ours. What remains is one thread that accepts connections, does the
 * hand-shake, answers questions, and sleeps.
 *
 *   NODE-M1  A queue pair has no remote rights before its client has proved that it knows the
 *       secret, whatever keys and addresses the client sends (verbs_qp.h).
 *   NODE-M2  To shut a client out, its queue pair is destroyed. Once that has returned, the card
 *       executes nothing for it any more.
 *   NODE-M3  One device executes all atomics on the region. The atomics of two network cards are
 *       not atomic against each other, nor against the processor's, unless a card says so
 *       (IBV_ATOMIC_GLOB).
 */
#include "memd/transports.h"

#include "base/clock.h"
#include "fabric/verbs/verbs_qp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BACKLOG         64
#define SEND_WRS        16u /* one answer at a time */
#define HANDSHAKE_NS    (10ull * 1000000000)
#define IDLE_LOOK_MS    1000 /* while there are connections that have not proved themselves */
#define CONN_TIMEOUT_MS 5000
#define RNR_RETRIES     7
#define EVENTS_MAX      256 /* of a kind, before other kinds have their turn */

struct verbs_client {
    struct memd_client client;
    struct verbs_listener *listener;
    pthread_mutex_t lock; /* for the queue pair, which other threads may destroy */
    struct verbs_qp qp;
    uint64_t since;
    bool ending; /* ends once the last answer is sent */
    char *in, *out;
};

struct verbs_listener {
    struct memd_listener listener;
    struct rdma_event_channel *cm;
    struct rdma_cm_id *id;
    struct ibv_context *device;
    struct verbs_qp_limits limits;
    struct ibv_pd *pd;
    struct ibv_mr *region, *messages;
    struct ibv_comp_channel *completions;
    char *message; /* two of WIRE_CONTROL_MAX for each client */
    pthread_t thread;
    int wake;
    _Atomic bool stop;
    struct verbs_client *client[MEMD_CLIENTS_MAX]; /* by slot - 1 */
    unsigned clients;                              /* slots below this have been used */
    unsigned strangers;
};

/* ---- clients --------------------------------------------------------------------------------- */

static void drop(struct verbs_client *c)
{
    struct verbs_listener *l = c->listener;

    if (c->client.state != MEMD_WELCOMED)
        l->strangers--;
    l->client[c->client.slot - 1] = NULL;
    memd_client_end(&c->client); /* now no other thread knows it */
    if (c->qp.id)
        rdma_disconnect(c->qp.id);
    verbs_qp_destroy(&c->qp);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Destroys the queue pair (NODE-M2). The listener's thread cleans up the rest of the connection. */
static void verbs_shut(struct memd_client *client)
{
    struct verbs_client *c = (struct verbs_client *)client;
    uint64_t one = 1;

    pthread_mutex_lock(&c->lock);
    if (c->qp.ibv)
        ibv_destroy_qp(c->qp.ibv);
    c->qp.ibv = NULL;
    pthread_mutex_unlock(&c->lock);
    /* If this fails, the thread is woken already. */
    (void)!write(c->listener->wake, &one, sizeof one);
}

static int expect_message(struct verbs_client *c)
{
    return verbs_qp_receive(&c->qp, c->in, WIRE_CONTROL_MAX, c->listener->messages->lkey);
}

static struct verbs_client *new_client(struct verbs_listener *l)
{
    struct verbs_client *c = calloc(1, sizeof *c);
    unsigned slot = 0;

    while (slot < MEMD_CLIENTS_MAX && l->client[slot])
        slot++;
    if (!c || slot == MEMD_CLIENTS_MAX ||
        memd_client_init(l->listener.memd, &l->listener, slot + 1, &c->client) != FAR_OK) {
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->listener = l;
    c->since = clock_ns();
    c->in = l->message + 2ull * WIRE_CONTROL_MAX * slot;
    c->out = c->in + WIRE_CONTROL_MAX;
    c->client.address = (uintptr_t)l->listener.memd->region.base;
    c->client.rkey = l->region->rkey;
    c->client.one_sided = true;
    l->client[slot] = c;
    l->strangers++;
    if (slot >= l->clients)
        l->clients = slot + 1;
    return c;
}

/* Handles a connection request. Takes over the id, and destroys it if the request is refused. */
static void welcome(struct verbs_listener *l, struct rdma_cm_id *id, unsigned reads_wanted)
{
    struct verbs_client *c = id->verbs == l->device ? new_client(l) : NULL;
    unsigned reads = reads_wanted < l->limits.reads_in ? reads_wanted : l->limits.reads_in;

    if (!c || verbs_qp_make(&c->qp, id, l->pd, l->completions, c, SEND_WRS) != FAR_OK) {
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        if (c)
            drop(c);
        return;
    }
    id->context = c;
    int rc = expect_message(c);
    if (rc == FAR_OK && ibv_req_notify_cq(c->qp.cq, 0) != 0)
        rc = FAR_SYSTEM;
    if (rc == FAR_OK)
        rc = verbs_qp_ready(&c->qp, 0, reads, CONN_TIMEOUT_MS);
    struct rdma_conn_param param = {.responder_resources = (uint8_t)reads,
                                    .rnr_retry_count = RNR_RETRIES,
                                    .qp_num = c->qp.ibv->qp_num};
    if (rc != FAR_OK || rdma_accept(id, &param) != 0)
        drop(c);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* With the lock. False: end the connection. */
static bool reply(struct verbs_client *c, bool granted, size_t bytes)
{
    return c->qp.ibv && (!granted || verbs_qp_grant(&c->qp) == FAR_OK) &&
           (c->ending || expect_message(c) == FAR_OK) &&
           verbs_qp_send(&c->qp, c->out, bytes, c->listener->messages->lkey) == FAR_OK;
}

static bool on_message(struct verbs_client *c, uint32_t bytes)
{
    enum memd_state before = c->client.state;
    size_t answer;

    c->ending = !memd_message(&c->client, c->in, bytes, c->out, &answer);
    bool granted = before != MEMD_WELCOMED && c->client.state == MEMD_WELCOMED;
    if (granted)
        c->listener->strangers--;
    if (answer == 0)
        c->ending = true; /* this harms no other client: each has its own connection */
    pthread_mutex_lock(&c->lock);
    bool alive = answer > 0 && reply(c, granted, answer);
    pthread_mutex_unlock(&c->lock);
    return alive;
}

static void on_completions(struct verbs_client *c)
{
    struct ibv_wc wc;

    if (ibv_req_notify_cq(c->qp.cq, 0) != 0) {
        drop(c);
        return;
    }
    for (unsigned i = 0; i < EVENTS_MAX && ibv_poll_cq(c->qp.cq, 1, &wc) > 0; i++) {
        bool received = (wc.opcode & IBV_WC_RECV) != 0;

        if (wc.status != IBV_WC_SUCCESS || (!received && c->ending) ||
            (received && !on_message(c, wc.byte_len))) {
            drop(c);
            return;
        }
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void take_connection_events(struct verbs_listener *l)
{
    struct rdma_cm_event *event;

    for (unsigned i = 0; i < EVENTS_MAX && rdma_get_cm_event(l->cm, &event) == 0; i++) {
        enum rdma_cm_event_type type = event->event;
        struct rdma_cm_id *id = event->id;
        unsigned reads = event->param.conn.responder_resources;

        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
            welcome(l, id, reads);
        else if (id != l->id && id->context && type != RDMA_CM_EVENT_ESTABLISHED &&
                 type != RDMA_CM_EVENT_TIMEWAIT_EXIT && type != RDMA_CM_EVENT_ADDR_CHANGE)
            drop(id->context);
    }
}

static void take_completion_events(struct verbs_listener *l)
{
    struct ibv_cq *cq;
    void *owner;

    for (unsigned i = 0; i < EVENTS_MAX; i++) {
        if (ibv_get_cq_event(l->completions, &cq, &owner) != 0)
            return;
        ibv_ack_cq_events(cq, 1);
        on_completions(owner);
    }
}

/* Ends connections that were shut, and those that take too long to prove themselves. */
static void tidy(struct verbs_listener *l)
{
    uint64_t now = clock_ns();

    for (unsigned i = 0; i < l->clients; i++) {
        struct verbs_client *c = l->client[i];

        if (!c)
            continue;
        pthread_mutex_lock(&c->lock);
        bool shut = !c->qp.ibv;
        pthread_mutex_unlock(&c->lock);
        if (shut || (c->client.state != MEMD_WELCOMED && now > c->since + HANDSHAKE_NS))
            drop(c);
    }
}

static void *serve(void *arg)
{
    struct verbs_listener *l = arg;
    struct pollfd fd[] = {{.fd = l->cm->fd, .events = POLLIN},
                          {.fd = l->completions->fd, .events = POLLIN},
                          {.fd = l->wake, .events = POLLIN}};
    uint64_t woken;

    while (!atomic_load(&l->stop)) {
        int ready = poll(fd, 3, l->strangers > 0 ? IDLE_LOOK_MS : -1);

        if (ready > 0 && fd[0].revents)
            take_connection_events(l);
        if (ready > 0 && fd[1].revents)
            take_completion_events(l);
        if (ready > 0 && fd[2].revents)
            (void)!read(l->wake, &woken, sizeof woken);
        if (ready <= 0 || fd[2].revents || l->strangers > 0)
            tidy(l);
    }
    for (unsigned i = 0; i < l->clients; i++) {
        if (l->client[i])
            drop(l->client[i]);
    }
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void verbs_release(struct verbs_listener *l)
{
    if (l->id)
        rdma_destroy_id(l->id);
    if (l->cm)
        rdma_destroy_event_channel(l->cm);
    if (l->completions)
        ibv_destroy_comp_channel(l->completions);
    if (l->region)
        ibv_dereg_mr(l->region);
    if (l->messages)
        ibv_dereg_mr(l->messages);
    if (l->pd)
        ibv_dealloc_pd(l->pd);
    if (l->wake >= 0)
        close(l->wake);
    free(l->message);
    free(l);
}

static void verbs_close(struct memd_listener *listener)
{
    struct verbs_listener *l = (struct verbs_listener *)listener;
    uint64_t one = 1;

    atomic_store(&l->stop, true);
    (void)!write(l->wake, &one, sizeof one);
    pthread_join(l->thread, NULL);
    verbs_release(l);
}

/* The device of the address. An address that stands for all devices is allowed if there is only
 * one. */
static int find_device(struct verbs_listener *l)
{
    struct ibv_context **all;
    int count = 0;

    l->device = l->id->verbs;
    if (l->device)
        return FAR_OK;
    all = rdma_get_devices(&count);
    if (all && count == 1)
        l->device = all[0]; /* librdmacm keeps it open */
    if (all)
        rdma_free_devices(all);
    if (l->device)
        return FAR_OK;
    return count == 0
               ? err_fail(FAR_UNSUPPORTED, "this machine has no RDMA device")
               : err_fail(FAR_INVALID,
                          "this machine has %d RDMA devices: listen at the address of one of them",
                          count);
}

/* NODE-M3. */
static int only_device(const struct verbs_listener *l)
{
    const struct memd *memd = l->listener.memd;

    for (unsigned i = 0; i < memd->listeners && !l->limits.atomics_global; i++) {
        const struct verbs_listener *other = (const struct verbs_listener *)memd->listener[i];

        if (memd->listener[i]->ops == &memd_verbs && other->device != l->device)
            return err_fail(FAR_UNSUPPORTED,
                            "%s is on another device, and the atomics of the two would not be "
                            "atomic against each other",
                            other->listener.address);
    }
    return FAR_OK;
}

static int bind_to(struct verbs_listener *l, const struct wire_address *address)
{
    struct addrinfo wish = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int error = getaddrinfo(address->host, address->port, &wish, &found), rc = FAR_OK;

    if (error)
        return err_fail(FAR_BAD_URI, "%s: %s", address->text, gai_strerror(error));
    l->cm = rdma_create_event_channel();
    if (!l->cm)
        rc = err_fail(FAR_UNSUPPORTED, "no RDMA on this machine: %s", strerror(errno));
    else if (rdma_create_id(l->cm, &l->id, NULL, RDMA_PS_TCP) != 0)
        rc = err_fail(FAR_SYSTEM, "cannot make a listener: %s", strerror(errno));
    else if (rdma_bind_addr(l->id, found->ai_addr) != 0)
        rc = err_fail(FAR_SYSTEM, "cannot listen at %s: %s", address->text,
                      errno == ENODEV          ? "no RDMA device has that address"
                      : errno == EADDRINUSE    ? "the port is in use"
                      : errno == EADDRNOTAVAIL ? "this machine does not have that address"
                                               : strerror(errno));
    freeaddrinfo(found);
    if (rc != FAR_OK)
        return rc;
    memd_listening(&l->listener, address->host, ntohs(rdma_get_src_port(l->id)));
    fcntl(l->cm->fd, F_SETFL, fcntl(l->cm->fd, F_GETFL) | O_NONBLOCK);
    return find_device(l);
}

static int register_memory(struct verbs_listener *l)
{
    const struct memd_region *region = &l->listener.memd->region;
    size_t bytes = 2ull * WIRE_CONTROL_MAX * MEMD_CLIENTS_MAX;

    l->pd = ibv_alloc_pd(l->device);
    l->completions = ibv_create_comp_channel(l->device);
    if (!l->pd || !l->completions || posix_memalign((void **)&l->message, 4096, bytes) != 0)
        return err_fail(FAR_SYSTEM, "cannot set up %s: %s", l->listener.address, strerror(errno));
    fcntl(l->completions->fd, F_SETFL, fcntl(l->completions->fd, F_GETFL) | O_NONBLOCK);
    memset(l->message, 0, bytes);
    l->messages = ibv_reg_mr(l->pd, l->message, bytes, IBV_ACCESS_LOCAL_WRITE);
    l->region = ibv_reg_mr(l->pd, region->base, region->size,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                               IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if (!l->messages || !l->region)
        return err_fail(errno == ENOMEM ? FAR_NO_MEMORY : FAR_SYSTEM,
                        "cannot register %llu bytes: %s (ulimit -l is the limit)",
                        (unsigned long long)region->size, strerror(errno));
    return FAR_OK;
}

static int begin(struct verbs_listener *l, struct uri *uri)
{
    struct wire_address address;
    int rc = wire_listener_uri(uri, &address);

    if (rc == FAR_OK)
        rc = bind_to(l, &address);
    if (rc == FAR_OK)
        rc = verbs_qp_limits(l->device, l->id->port_num ? l->id->port_num : 1, &l->limits);
    if (rc == FAR_OK)
        rc = only_device(l);
    if (rc == FAR_OK)
        rc = register_memory(l);
    if (rc != FAR_OK)
        return rc;
    l->listener.by_nic = !l->limits.atomics_global;
    if (rdma_listen(l->id, BACKLOG) != 0)
        return err_fail(FAR_SYSTEM, "cannot listen at %s: %s", l->listener.address,
                        strerror(errno));
    if (pthread_create(&l->thread, NULL, serve, l) != 0)
        return err_fail(FAR_SYSTEM, "cannot start a thread for %s", l->listener.address);
    return FAR_OK;
}

static int verbs_open(struct memd *memd, struct uri *uri, unsigned threads,
                      struct memd_listener **listener)
{
    struct verbs_listener *l = calloc(1, sizeof *l);

    (void)threads; /* one is enough for the little there is to do */
    if (!l)
        return err_fail(FAR_NO_MEMORY, "no memory for a listener");
    l->listener.ops = &memd_verbs;
    l->listener.memd = memd;
    l->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int rc = l->wake < 0
                 ? err_fail(FAR_SYSTEM, "cannot make an event descriptor: %s", strerror(errno))
                 : begin(l, uri);
    if (rc != FAR_OK) {
        verbs_release(l);
        return rc;
    }
    *listener = &l->listener;
    return FAR_OK;
}

const struct memd_listener_ops memd_verbs = {
    .scheme = "verbs", .open = verbs_open, .close = verbs_close, .shut = verbs_shut};
