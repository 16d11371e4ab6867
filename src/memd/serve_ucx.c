/*
 * The memory node's listener for UCX.
 *
 * Each thread has its own worker. Connections are given to the threads in turn, so batches share
 * nothing but the region. An idle thread sleeps until its worker has an event.
 *
 * Messages are executed as they arrive, within UCX's callback. Connections are ended outside of it:
 * the callback only marks them.
 */
#include "memd/transports.h"

#include "base/clock.h"
#include "base/crowd.h"
#include "base/fds.h"
#include "fabric/ucx/ucx_common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SLOTS_MAX       MEMD_CLIENTS_MAX
#define REPLY_SMALL     (16u << 10) /* most replies are shorter; longer ones get WIRE_MESSAGE_MAX */
#define REPLIES_KEPT    64u         /* free buffers of each size that a thread keeps              */
#define REPLIES_MAX     (2 * WIRE_WINDOW) /* of one connection */
#define SPINS           64u               /* polls of an idle worker before it is armed */
#define HANDSHAKE_LOOKS 10u
#define DRAIN_NS        (1ull * 1000000000)
#define ARRIVALS_MAX    256u
#define IDLE_LOOK_MS    1000 /* between two looks at connections that have not proved themselves */
#define CLOSING_LOOK_MS 10
#define LISTENER_FDS    32u /* file descriptors of a context and a listener, with some to spare */
#define THREAD_FDS      16u /* of a worker                                                      */
#define SPARE_FDS       16u /* that must be free when a client is accepted, which takes three   */
#define COMPLAIN_NS     (60ull * 1000000000)

struct reply {
    struct ucx_client *client;
    struct reply *next;
    uint32_t room;
    char bytes[] __attribute__((aligned(64)));
};

struct ucx_client {
    struct memd_client client;
    struct ucx_thread *thread;
    ucp_ep_h ep;
    unsigned replies; /* being sent */
    unsigned looks;   /* at it, before it had proved itself or while it was closing */
    bool over;        /* to be closed                     */
    bool gently;      /* once it has read our last answer */
    bool closing;     /* the endpoint is being closed     */
    bool closed;
    void *close_request; /* meanwhile */
};

struct ucx_thread {
    struct ucx_listener *listener;
    ucp_worker_h worker;
    int fd, wake; /* wake: an eventfd with which other threads wake this one */
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    struct ucx_client *client[SLOTS_MAX]; /* by slot - 1 */
    unsigned clients, strangers, ending;
    struct crowd crowd;
    uint64_t idle_since;   /* when it found nothing to do for the first time */
    uint64_t look_at;      /* when strangers are to be looked at again, by the coarse clock */
    struct reply *kept[2]; /* free buffers, small and large */
    unsigned kept_count[2];
    struct reply *reply;                 /* of the current batch */
    void *scratch;                       /* for a message that did not arrive aligned */
    pthread_mutex_t lock;                /* for `accepted` */
    pthread_cond_t accepted;             /* `arrival` is NULL again */
    _Atomic(ucp_conn_request_h) arrival; /* to be accepted by this thread */
};

struct ucx_listener {
    struct memd_listener listener;
    ucp_context_h context;
    ucp_listener_h ucp;
    struct sockaddr_storage at;
    socklen_t at_bytes;
    unsigned threads, next;
    struct ucx_thread *thread;
    ucp_conn_request_h arrival[ARRIVALS_MAX]; /* of the first thread, as are the next two */
    unsigned arrivals;
    uint64_t complain_at;
};

/* ---- replies --------------------------------------------------------------------------------- */

static struct reply *reply_new(struct ucx_client *c, size_t bytes)
{
    struct ucx_thread *t = c->thread;
    bool large = bytes > REPLY_SMALL;
    struct reply *r = t->kept[large];

    if (r) {
        t->kept[large] = r->next;
        t->kept_count[large]--;
    } else {
        uint32_t room = large ? WIRE_MESSAGE_MAX : REPLY_SMALL;

        r = aligned_alloc(64, sizeof *r + room);
        if (!r)
            return NULL;
        r->room = room;
    }
    r->client = c;
    return r;
}

static void reply_free(struct reply *r)
{
    struct ucx_thread *t = r->client->thread;
    bool large = r->room > REPLY_SMALL;

    ASSERT(r->client->replies > 0);
    r->client->replies--;
    if (t->kept_count[large] == REPLIES_KEPT) {
        free(r);
        return;
    }
    r->next = t->kept[large];
    t->kept[large] = r;
    t->kept_count[large]++;
}

static void client_over(struct ucx_client *c)
{
    if (!c->over) {
        c->over = true;
        c->thread->ending++;
    }
}

static void reply_sent(void *request, ucs_status_t status, void *arg)
{
    (void)status; /* if it failed, the connection is reported broken as well */
    reply_free(arg);
    ucp_request_free(request);
}

static void reply_send(struct reply *r, size_t bytes)
{
    struct ucx_client *c = r->client;
    ucs_status_ptr_t sent;

    c->replies++;
    sent = ucx_send(c->ep, r->bytes, bytes, 0, reply_sent, r);
    if (UCS_PTR_IS_PTR(sent))
        return;
    if (UCS_PTR_IS_ERR(sent))
        client_over(c);
    reply_free(r);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void *room_for_reply(void *arg, size_t bytes)
{
    struct ucx_client *c = arg;

    c->thread->reply = reply_new(c, bytes);
    return c->thread->reply ? c->thread->reply->bytes : NULL;
}

static void on_batch(struct ucx_client *c, void *message, size_t bytes)
{
    struct ucx_thread *t = c->thread;
    size_t reply_bytes;

    t->reply = NULL;
    /* A client that sends batches but reads no replies would make us keep any number of them. */
    if (c->replies >= REPLIES_MAX ||
        !memd_batch(&c->client, message, bytes, room_for_reply, c, &reply_bytes)) {
        client_over(c);
        return;
    }
    if (reply_bytes > 0)
        reply_send(t->reply, reply_bytes);
}

static void on_control(struct ucx_client *c, const void *message, size_t bytes)
{
    char answer[WIRE_CONTROL_MAX];
    size_t answer_bytes;
    bool stranger = c->client.state != MEMD_WELCOMED;
    bool goes_on = memd_message(&c->client, message, bytes, answer, &answer_bytes);

    if (stranger && c->client.state == MEMD_WELCOMED)
        c->thread->strangers--;
    if (answer_bytes > 0 && c->replies < REPLIES_MAX) {
        struct reply *r = reply_new(c, answer_bytes);

        if (r) {
            memcpy(r->bytes, answer, answer_bytes);
            reply_send(r, answer_bytes);
        }
    }
    if (!goes_on) {
        c->gently = true;
        client_over(c);
    }
}

/* The connection that a message belongs to: by its number if it has one (its token is checked
 * later); else, before CHALLENGE, by the endpoint that it came from. */
static struct ucx_client *find_client(struct ucx_thread *t, const void *message, size_t bytes,
                                      const ucp_am_recv_param_t *param)
{
    struct wire_head head;

    if (bytes < sizeof head)
        return NULL;
    memcpy(&head, message, sizeof head);
    if (head.slot >= 1 && head.slot <= SLOTS_MAX)
        return t->client[head.slot - 1];
    if (head.slot != 0 || !(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
        return NULL;
    for (unsigned i = 0; i < SLOTS_MAX; i++) {
        if (t->client[i] && t->client[i]->ep == param->reply_ep)
            return t->client[i];
    }
    return NULL;
}

static ucs_status_t receive(void *arg, const void *header, size_t header_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ucx_thread *t = arg;
    struct ucx_client *c;

    (void)header;
    if (header_bytes != 0 || bytes > WIRE_MESSAGE_MAX ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        return UCS_OK;
    c = find_client(t, data, bytes, param);
    if (!c || c->over)
        return UCS_OK;
    if ((uintptr_t)data % 8 != 0)
        data = memcpy(t->scratch, data, bytes);
    if (memd_is_batch(data, bytes))
        on_batch(c, data, bytes);
    else
        on_control(c, data, bytes);
    return UCS_OK;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void broken(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    client_over(arg);
}

/* On the first thread. If descriptors run out while UCX makes a connection, it loses its way: the
 * connection never ends, and is found by an assertion when the node does. */
static bool may_accept(struct ucx_listener *l)
{
    uint64_t now = clock_ns();

    if (fds_check(SPARE_FDS) == FAR_OK)
        return true;
    if (now >= l->complain_at) {
        l->complain_at = now + COMPLAIN_NS;
        fprintf(stderr, "farside memd: refusing clients: %s\n", far_error_detail());
    }
    return false;
}

static void accept_one(struct ucx_thread *t, ucp_conn_request_h request)
{
    struct ucx_client *c = calloc(1, sizeof *c);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .conn_request = request,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = broken, .arg = c}};
    uint32_t slot = 0;

    while (slot < SLOTS_MAX && t->client[slot])
        slot++;
    if (!c || slot == SLOTS_MAX ||
        memd_client_init(t->listener->listener.memd, &t->listener->listener, slot + 1,
                         &c->client) != FAR_OK) {
        ucp_listener_reject(t->listener->ucp, request);
        free(c);
        return;
    }
    c->thread = t;
    if (ucp_ep_create(t->worker, &params, &c->ep) != UCS_OK) {
        memd_client_end(&c->client);
        free(c);
        return;
    }
    t->client[slot] = c;
    t->clients++;
    t->strangers++;
}

/* Called on the first thread, within its progress. */
static void arrived(ucp_conn_request_h request, void *arg)
{
    struct ucx_listener *l = arg;

    if (l->arrivals < ARRIVALS_MAX)
        l->arrival[l->arrivals++] = request;
    else
        ucp_listener_reject(l->ucp, request);
}

/*
 * The first thread gives new connections to all threads in turn.
 *
 * A connection's socket is the first worker's until it is accepted by another one. UCX 1.13 ends
 * the process if the first worker then finds the socket in its list of sockets that had events
 * while it was busy. So the first thread gives connections away after its progress, which has
 * looked through that list, and does nothing until they are accepted: then it is not busy.
 */
static void hand_out_arrivals(struct ucx_listener *l)
{
    for (unsigned i = 0; i < l->arrivals; i++) {
        struct ucx_thread *t = &l->thread[l->next++ % l->threads];

        if (!may_accept(l)) {
            ucp_listener_reject(l->ucp, l->arrival[i]);
            continue;
        }
        if (t == l->thread) {
            accept_one(t, l->arrival[i]);
            continue;
        }
        pthread_mutex_lock(&t->lock);
        if (atomic_load(&t->stop))
            ucp_listener_reject(l->ucp, l->arrival[i]);
        else
            atomic_store(&t->arrival, l->arrival[i]);
        eventfd_write(t->wake, 1);
        while (atomic_load(&t->arrival) && !atomic_load(&t->stop))
            pthread_cond_wait(&t->accepted, &t->lock);
        pthread_mutex_unlock(&t->lock);
    }
    l->arrivals = 0;
}

static void accept_arrival(struct ucx_thread *t)
{
    accept_one(t, atomic_load(&t->arrival));
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->arrival, NULL);
    pthread_cond_signal(&t->accepted);
    pthread_mutex_unlock(&t->lock);
}

static void client_closed(void *request, ucs_status_t status, void *arg)
{
    struct ucx_client *c = arg;

    (void)status;
    c->closed = true;
    c->close_request = NULL;
    ucp_request_free(request);
}

static void client_close(struct ucx_client *c, bool force)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0,
                                 .cb.send = client_closed,
                                 .user_data = c};
    ucs_status_ptr_t request = ucp_ep_close_nbx(c->ep, &param);

    c->closing = true;
    c->closed = !UCS_PTR_IS_PTR(request);
    c->close_request = c->closed ? NULL : request;
}

static void client_free(struct ucx_thread *t, uint32_t i)
{
    struct ucx_client *c = t->client[i];

    ASSERT(c->over && c->replies == 0 && t->clients > 0 && t->ending > 0);
    t->strangers -= c->client.state != MEMD_WELCOMED;
    t->clients--;
    t->ending--;
    t->client[i] = NULL;
    memd_client_end(&c->client);
    free(c);
}

/* Ends connections that are over, and those that take too long to prove themselves. That is counted
 * in looks, a second apart, not by the clock: if this thread stood still, what they have sent
 * meanwhile may wait to be received. */
static void end_clients(struct ucx_thread *t)
{
    uint64_t now = clock_coarse_ns();
    bool looks = now >= t->look_at;

    if (looks)
        t->look_at = now + IDLE_LOOK_MS * 1000000ull;
    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        struct ucx_client *c = t->client[i];

        if (!c)
            continue;
        c->looks += looks && (c->client.state != MEMD_WELCOMED || c->over);
        if (c->client.state != MEMD_WELCOMED && c->looks > HANDSHAKE_LOOKS)
            client_over(c);
        if (c->over && (!c->closing || (c->gently && c->looks > HANDSHAKE_LOOKS))) {
            client_close(c, !c->gently);
            c->gently = false;
            (void)ucx_forget_events(t->worker);
        }
        if (c->closed && c->replies == 0)
            client_free(t, i);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static void sleep_until_event(struct ucx_thread *t)
{
    struct pollfd fds[2] = {{.fd = t->fd, .events = POLLIN}, {.fd = t->wake, .events = POLLIN}};
    int wait = t->ending > 0 ? CLOSING_LOOK_MS : t->strangers > 0 ? IDLE_LOOK_MS : -1;
    eventfd_t woken;

    if (ucp_worker_arm(t->worker) != UCS_OK)
        return;
    if (poll(fds, 2, wait) > 0 && fds[1].revents)
        eventfd_read(t->wake, &woken);
}

/* Has an idle thread polled long enough that it should sleep? */
static bool is_sleepy(struct ucx_thread *t, unsigned idle)
{
    if (idle == 1)
        t->idle_since = clock_ns();
    if (idle >= CROWD_POLLS && crowd_lasts(&t->crowd, t->idle_since))
        return true;
    if (idle == SPINS)
        crowd_note(&t->crowd, t->idle_since, clock_ns());
    return idle > SPINS;
}

static void drain(struct ucx_thread *t)
{
    uint64_t start = clock_ns();
    unsigned idle = 0;

    /* Execute and answer what has arrived. */
    while (idle < SPINS && clock_ns() - start < DRAIN_NS)
        idle = ucp_worker_progress(t->worker) ? 0 : idle + 1;
    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        if (t->client[i] && !t->client[i]->over) {
            client_over(t->client[i]);
            client_close(t->client[i], false);
            (void)ucx_forget_events(t->worker);
        }
    }
    while (t->clients > 0 && clock_ns() - start < 2 * DRAIN_NS) {
        ucp_worker_progress(t->worker);
        end_clients(t);
    }
    /* Do not wait for clients that do not answer: their connections end with the worker. UCX needs
     * to know that nothing waits for these requests. */
    for (uint32_t i = 0; i < SLOTS_MAX && t->clients > 0; i++) {
        if (t->client[i] && t->client[i]->close_request)
            ucp_request_free(t->client[i]->close_request);
    }
}

static void *serve(void *arg)
{
    struct ucx_thread *t = arg;
    unsigned idle = 0;

    while (!atomic_load(&t->stop)) {
        bool busy = ucp_worker_progress(t->worker) != 0;

        if (t == t->listener->thread && t->listener->arrivals > 0)
            hand_out_arrivals(t->listener);
        if (atomic_load_explicit(&t->arrival, memory_order_relaxed))
            accept_arrival(t);
        if (busy)
            idle = 0;
        if (t->ending > 0 || (t->strangers > 0 && clock_coarse_ns() >= t->look_at))
            end_clients(t);
        if (!busy && is_sleepy(t, ++idle))
            sleep_until_event(t);
    }
    drain(t);
    return NULL;
}

/* ---- the listener ---------------------------------------------------------------------------- */

static void thread_close(struct ucx_thread *t)
{
    struct ucx_listener *l = t->listener;

    if (atomic_load(&t->arrival))
        ucp_listener_reject(l->ucp, atomic_load(&t->arrival));
    if (t->worker && l->ucp && t == l->thread) {
        for (unsigned i = 0; i < l->arrivals; i++)
            ucp_listener_reject(l->ucp, l->arrival[i]);
        ucp_listener_destroy(l->ucp);
        l->ucp = NULL;
    }
    if (t->worker)
        ucp_worker_destroy(t->worker);
    for (uint32_t i = 0; i < SLOTS_MAX; i++) { /* those that did not end in time */
        if (t->client[i]) {
            memd_client_end(&t->client[i]->client);
            free(t->client[i]);
        }
    }
    for (unsigned kind = 0; kind < 2; kind++) {
        while (t->kept[kind]) {
            struct reply *r = t->kept[kind];

            t->kept[kind] = r->next;
            free(r);
        }
    }
    if (t->wake >= 0)
        close(t->wake);
    free(t->scratch);
    pthread_cond_destroy(&t->accepted);
    pthread_mutex_destroy(&t->lock);
}

static void ucx_close(struct memd_listener *listener)
{
    struct ucx_listener *l = (struct ucx_listener *)listener;

    for (unsigned i = 0; i < l->threads; i++) {
        struct ucx_thread *t = &l->thread[i];

        pthread_mutex_lock(&t->lock);
        atomic_store(&t->stop, true);
        pthread_cond_signal(&t->accepted);
        pthread_mutex_unlock(&t->lock);
        eventfd_write(t->wake, 1);
    }
    for (unsigned i = 0; i < l->threads; i++) {
        if (l->thread[i].started)
            pthread_join(l->thread[i].thread, NULL);
    }
    for (unsigned i = l->threads; i-- > 0;) /* the first one last, as it has the listener */
        thread_close(&l->thread[i]);
    if (l->context)
        ucp_cleanup(l->context);
    free(l->thread);
    free(l);
}

static int thread_open(struct ucx_listener *l, struct ucx_thread *t)
{
    t->listener = l;
    t->wake = -1;
    if (pthread_mutex_init(&t->lock, NULL) != 0)
        return err_fail(FAR_SYSTEM, "cannot make a lock");
    if (pthread_cond_init(&t->accepted, NULL) != 0) {
        pthread_mutex_destroy(&t->lock);
        return err_fail(FAR_SYSTEM, "cannot make a condition variable");
    }
    l->threads++;
    t->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake < 0)
        return err_fail(FAR_SYSTEM, "cannot make an event descriptor: %s", strerror(errno));
    t->scratch = aligned_alloc(64, WIRE_MESSAGE_MAX);
    if (!t->scratch)
        return err_fail(FAR_NO_MEMORY, "no memory for a thread's buffer");
    int rc = ucx_worker_open(l->context, receive, t, 0, &t->worker, &t->fd);
    if (rc != FAR_OK)
        t->worker = NULL;
    return rc;
}

/* With the actual port, if port 0 was asked for. */
static void say_address(struct ucx_listener *l, const struct wire_address *address)
{
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    unsigned port = (unsigned)atoi(address->port);

    if (ucp_listener_query(l->ucp, &attr) == UCS_OK)
        port = ntohs(attr.sockaddr.ss_family == AF_INET6
                         ? ((struct sockaddr_in6 *)&attr.sockaddr)->sin6_port
                         : ((struct sockaddr_in *)&attr.sockaddr)->sin_port);
    memd_listening(&l->listener, address->host, port);
}

static int listen_at(struct ucx_listener *l, const struct wire_address *address)
{
    ucp_listener_params_t params = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {.addr = (const struct sockaddr *)&l->at, .addrlen = l->at_bytes},
        .conn_handler = {.cb = arrived, .arg = l}};
    ucs_status_t status = ucp_listener_create(l->thread[0].worker, &params, &l->ucp);

    if (status != UCS_OK) {
        l->ucp = NULL;
        return err_fail(FAR_SYSTEM, "cannot listen at %s: %s", address->text,
                        ucs_status_string(status));
    }
    say_address(l, address);
    return FAR_OK;
}

static int ucx_open(struct memd *memd, struct uri *uri, unsigned threads,
                    struct memd_listener **listener);

const struct memd_listener_ops memd_ucx = {.scheme = "ucx", .open = ucx_open, .close = ucx_close};

/* For these UCX itself would only report an input/output error. */
static int check_machine(struct ucx_listener *l, const struct wire_address *address,
                         unsigned threads)
{
    int rc = ucx_resolve(address, true, &l->at, &l->at_bytes);

    memd_raise_descriptors();
    if (rc == FAR_OK)
        rc = fds_check(LISTENER_FDS + threads * THREAD_FDS);
    if (rc == FAR_OK)
        rc = memd_check_address(address->text, (const struct sockaddr *)&l->at, l->at_bytes);
    return rc;
}

static int start_threads(struct ucx_listener *l)
{
    for (unsigned i = 0; i < l->threads; i++) {
        struct ucx_thread *t = &l->thread[i];

        t->started = pthread_create(&t->thread, NULL, serve, t) == 0;
        if (!t->started)
            return err_fail(FAR_SYSTEM, "cannot start a thread");
    }
    return FAR_OK;
}

static int ucx_open(struct memd *memd, struct uri *uri, unsigned threads,
                    struct memd_listener **listener)
{
    struct wire_address address;
    struct ucx_listener *l;
    int rc = wire_listener_uri(uri, &address);

    if (rc != FAR_OK)
        return rc;
    l = calloc(1, sizeof *l);
    if (!l)
        return err_fail(FAR_NO_MEMORY, "no memory for a listener");
    /* Lets a node that is restarted have its port again. UCX reads this from the environment only.
     * It is set when the first listener is made, while there are no other threads. */
    if (!getenv("UCX_TCP_CM_REUSEADDR"))
        setenv("UCX_TCP_CM_REUSEADDR", "y", 0);
    l->listener = (struct memd_listener){.ops = &memd_ucx, .memd = memd};
    l->thread = calloc(threads, sizeof *l->thread);
    rc = l->thread ? check_machine(l, &address, threads)
                   : err_fail(FAR_NO_MEMORY, "no memory for %u threads", threads);
    if (rc == FAR_OK)
        rc = ucx_context_open("farside-memd", l->at.ss_family, &l->context);
    if (rc != FAR_OK)
        l->context = NULL;
    for (unsigned i = 0; i < threads && rc == FAR_OK; i++)
        rc = thread_open(l, &l->thread[i]);
    if (rc == FAR_OK)
        rc = listen_at(l, &address);
    if (rc == FAR_OK)
        rc = start_threads(l);
    if (rc != FAR_OK) {
        ucx_close(&l->listener);
        return rc;
    }
    *listener = &l->listener;
    return FAR_OK;
}
