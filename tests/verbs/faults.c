/*
 * Strangers, fenced clients, requests that do not fit the device, and memory nodes that die, hang
 * and come back.
 *
 *   verbs_faults URI        of two memory nodes
 *
 * The nodes of the last cases are started here, with the `farside` that is in the path.
 */
#include "fabric/rig.h"
#include "fabric/superblock_layout.h"
#include "fabric/verbs/verbs_internal.h"

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *uri;

static struct rig *rig_open(const char *text)
{
    struct fab *fab = NULL;
    int rc = fab_open(text, &fab);

    if (rc != FAR_OK)
        print_error("%s: %s: %s\n", text, far_errname(rc), far_error_detail());
    assert_int_equal(rc, FAR_OK);
    return rig_on(fab);
}

static void rig_close(struct rig *r)
{
    struct fab *fab = r->fab;

    rig_free(r);
    fab_close(fab);
}

static struct verbs_conn *conn_of(struct rig *r, unsigned node)
{
    return &((struct verbs_ep *)r->ep)->conn[node];
}

/* ---- strangers ------------------------------------------------------------------------------- */

static void next_event(struct rdma_event_channel *cm, enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event;

    assert_int_equal(rdma_get_cm_event(cm, &event), 0);
    assert_int_equal(event->event, wanted);
    rdma_ack_cm_event(event);
}

/* Connects a queue pair to the node and sends nothing. */
static void connect_silently(struct rig *r, struct rdma_event_channel *cm, struct verbs_qp *qp)
{
    struct verbs_fab *fab = (struct verbs_fab *)r->fab;
    struct rdma_conn_param param = {.initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *id;

    assert_int_equal(rdma_create_id(cm, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&fab->resolved[0], 2000), 0);
    next_event(cm, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    next_event(cm, RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_int_equal(verbs_qp_make(qp, id, fab->pd, NULL, NULL, 16), FAR_OK);
    param.qp_num = qp->ibv->qp_num;
    assert_int_equal(rdma_connect(id, &param), 0);
    next_event(cm, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_int_equal(verbs_qp_ready(qp, 1, 0, 2000), FAR_OK);
    assert_int_equal(rdma_establish(id), 0);
}

static enum ibv_wc_status attempt(struct rig *r, struct verbs_qp *qp, enum ibv_wr_opcode opcode)
{
    const struct verbs_conn *c = conn_of(r, 0); /* the stranger has its key */
    struct ibv_sge sge = {
        .addr = (uintptr_t)r->buf, .length = 8, .lkey = arena_key(&c->ep->arena, r->buf)};
    struct ibv_send_wr *bad,
        wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

    if (opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_RDMA_WRITE) {
        wr.wr.rdma.remote_addr = c->base + 4096;
        wr.wr.rdma.rkey = c->rkey;
    } else {
        wr.wr.atomic.remote_addr = c->base + 4096;
        wr.wr.atomic.rkey = c->rkey;
        wr.wr.atomic.compare_add = 1;
    }
    assert_int_equal(ibv_post_send(qp->ibv, &wr, &bad), 0);
    for (uint64_t until = clock_ns() + 20000000000ull; clock_ns() < until;) {
        if (ibv_poll_cq(qp->cq, 1, &wc) > 0)
            return wc.status;
    }
    print_error("a verb of a stranger does not complete\n");
    return IBV_WC_SUCCESS;
}

/* NODE-M1: the right key at the right place is not enough. */
static void a_connection_without_a_proof_has_no_access(void **state)
{
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD};
    struct rig *r = rig_open(uri);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct rdma_event_channel *cm = rdma_create_event_channel();
        struct verbs_qp qp;

        assert_non_null(cm);
        rig_set(r, gaddr_make(0, 4096), 0, 4711);
        r->buf[0] = 1;
        connect_silently(r, cm, &qp);
        assert_int_not_equal(attempt(r, &qp, opcodes[i]), IBV_WC_SUCCESS);
        verbs_qp_destroy(&qp);
        rdma_destroy_event_channel(cm);
        assert_int_equal(r->buf[0], 1);
        assert_int_equal(rig_get(r, gaddr_make(0, 4096), 0), 4711);
    }
    rig_close(r);
}

/* ---- fences ---------------------------------------------------------------------------------- */

static int try_set(struct rig *r, gaddr at, uint64_t value)
{
    r->buf[0] = value;
    batch_write(&r->b, MARK_EARLY, at, 0, r->buf, 8);
    return batch_flush(&r->b);
}

static void a_fenced_client_has_no_effect(void **state)
{
    struct rig *r = rig_open(uri), *other = rig_on(r->fab);
    unsigned last = r->fab->nodes - 1;

    (void)state;
    r->ep->ops->identify(r->ep, 1001);
    other->ep->ops->identify(other->ep, 1002);
    for (unsigned n = 0; n <= last; n++) {
        rig_set(r, gaddr_make(n, 8192), 0, 5);
        rig_set(other, gaddr_make(n, 8192), 64, 6);
    }
    assert_int_equal(rig_fence(other, 1001), FAR_OK);
    for (unsigned n = 0; n <= last; n++) {
        int rc = try_set(r, gaddr_make(n, 8192), 7);

        assert_int_not_equal(rc, FAR_OK);
        assert_int_equal(rig_get(other, gaddr_make(n, 8192), 0), 5);
        assert_int_equal(try_set(r, gaddr_make(n, 8192), 7), FAR_FENCED);
        assert_int_equal(rig_get(other, gaddr_make(n, 8192), 0), 5);
    }
    r->ep->ops->identify(r->ep, 1003); /* as another it may come back */
    for (unsigned n = 0; n <= last; n++) {
        assert_int_equal(try_set(r, gaddr_make(n, 8192), 8), FAR_OK);
        assert_int_equal(rig_get(other, gaddr_make(n, 8192), 0), 8);
    }
    r->ep->ops->identify(r->ep, 1001); /* but not as the one it was */
    assert_int_equal(try_set(r, gaddr_make(0, 8192), 9), FAR_FENCED);
    rig_free(other);
    rig_close(r);
}

static void *count_until_refused(void *arg)
{
    struct rig *r = arg;
    int rc = FAR_OK;

    while (rc == FAR_OK) {
        for (unsigned i = 0; i < 16; i++)
            batch_faa(&r->b, MARK_PUBLISH, gaddr_make(0, 8192), 0, 1, &r->buf[i]);
        rc = batch_flush(&r->b);
    }
    return NULL;
}

/* Once the fence has returned, nothing of what was under way happens any more. */
static void a_fence_ends_work_under_way(void **state)
{
    struct rig *r = rig_open(uri), *other = rig_on(r->fab);
    gaddr at = gaddr_make(0, 8192);
    pthread_t thread;
    uint64_t counted;

    (void)state;
    r->ep->ops->identify(r->ep, 2001);
    rig_set(r, at, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, count_until_refused, r), 0);
    while (rig_get(other, at, 0) < 200)
        batch_pause(&other->b, 1000000);
    assert_int_equal(rig_fence(other, 2001), FAR_OK);
    counted = rig_get(other, at, 0);
    pthread_join(thread, NULL);
    printf("%llu were counted before the fence\n", (unsigned long long)counted);
    assert_int_equal(rig_get(other, at, 0), counted);
    rig_free(other);
    rig_close(r);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* As if the device took only short messages: long verbs go out in pieces. */
static void long_verbs_are_cut(void **state)
{
    struct rig *r = rig_open(uri);
    uint64_t *out = r->buf, *in = r->buf + (1 << 18) / 8;
    uint32_t len = (1 << 17) + 1000;

    (void)state;
    ((struct verbs_fab *)r->fab)->limits.message_max = 4096;
    for (size_t i = 0; i < len / 8; i++)
        out[i] = i * 0x9e3779b97f4a7c15ull;
    batch_write(&r->b, MARK_EARLY, gaddr_make(1, 65536), 8, out, len);
    batch_read(&r->b, gaddr_make(1, 65536), 8, in, len);
    rig_flush(r);
    assert_memory_equal(in, out, len);
    rig_close(r);
}

#define REQUESTS 24u

/* More than the send queue takes: what has no room waits, and all of it is done. */
static void what_does_not_fit_the_queue_waits(void **state)
{
    static struct fab_verb verb[REQUESTS][BATCH_MAX];
    struct fab_req req[REQUESTS];
    struct rig *r = rig_open(uri);
    unsigned done = 0;

    (void)state;
    rig_set(r, gaddr_make(0, 131072), 0, 0);
    assert_true(REQUESTS * BATCH_MAX > conn_of(r, 0)->qp.send_wrs);
    for (unsigned i = 0; i < REQUESTS; i++) {
        for (unsigned v = 0; v < BATCH_MAX; v++) {
            bool adds = v % 16 == 0;

            verb[i][v] = (struct fab_verb){.kind = adds ? FAB_FAA : FAB_WRITE,
                                           .node = adds ? 0 : (uint16_t)(v % 2),
                                           .len = 8,
                                           .off = adds ? 131072 : 131072 + 64 * (1 + v),
                                           .swap = 1,
                                           .buf = &r->buf[(size_t)i * BATCH_MAX + v]};
        }
        req[i] = (struct fab_req){.verbs = verb[i], .count = BATCH_MAX};
        assert_int_equal(r->ep->ops->post(r->ep, &req[i]), FAR_OK);
    }
    while (done < REQUESTS) {
        r->ep->ops->poll(r->ep, true);
        done = 0;
        for (unsigned i = 0; i < REQUESTS; i++)
            done += req[i].done;
    }
    for (unsigned i = 0; i < REQUESTS; i++)
        assert_int_equal(req[i].status, FAR_OK);
    assert_int_equal(rig_get(r, gaddr_make(0, 131072), 0), REQUESTS * BATCH_MAX / 16);
    rig_close(r);
}

/* ---- nodes that die -------------------------------------------------------------------------- */

static pid_t node_start(const char *port, const char *file)
{
    char address[64], ready[8];
    int pipes[2];
    char first = 0;
    pid_t pid;

    snprintf(address, sizeof address, "verbs://10.77.0.1:%s", port);
    assert_int_equal(pipe(pipes), 0);
    snprintf(ready, sizeof ready, "%d", pipes[1]);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pipes[0]);
        execlp("farside", "farside", "memd", "--listen", address, "--size", "8m", "--ready-fd",
               ready, file ? "--file" : NULL, file, NULL);
        _exit(127);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &first, 1), 1);
    close(pipes[0]);
    return pid;
}

static void node_kill(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Kills the node from elsewhere while verbs go out to it, until one batch fails. */
static int work_until_killed(struct rig *r, pid_t node, uint64_t *longest_ms)
{
    pid_t killer = fork();
    int rc = FAR_OK;

    assert_true(killer >= 0);
    if (killer == 0) {
        usleep(300000);
        _exit(kill(node, SIGKILL) == 0 ? 0 : 1);
    }
    for (unsigned turn = 0; turn < 100000 && rc == FAR_OK; turn++) {
        uint64_t start = clock_ns();

        for (unsigned i = 0; i < 16; i++)
            batch_read(&r->b, gaddr_make(i % 2, 0), 4096, &r->buf[(size_t)i * 8], 64);
        rc = batch_flush(&r->b);
        *longest_ms = (clock_ns() - start) / 1000000;
    }
    assert_int_equal(waitpid(killer, NULL, 0), killer);
    assert_int_equal(waitpid(node, NULL, 0), node);
    return rc;
}

/* One of two nodes dies with work under way, the other goes on; it comes back with its memory. */
static void a_node_that_dies_is_named_and_can_come_back(void **state)
{
    uint64_t took = 0;
    struct rig *r;
    pid_t node;

    (void)state;
    unlink("/tmp/faults.region");
    pid_t other = node_start("7060", NULL);
    node = node_start("7061", "/tmp/faults.region");
    r = rig_open("verbs://10.77.0.1:7060,10.77.0.1:7061?timeout=60000");
    rig_set(r, gaddr_make(0, 4096), 0, 10);
    rig_set(r, gaddr_make(1, 4096), 0, 11);
    int rc = work_until_killed(r, node, &took);
    assert_true(rc == FAR_UNKNOWN || rc == FAR_UNREACHABLE); /* posted, or not any more */
    printf("the batch under way failed after %llu ms: %s\n", (unsigned long long)took,
           far_error_detail());

    assert_int_equal(try_set(r, gaddr_make(1, 4096), 1), FAR_UNREACHABLE);
    assert_non_null(strstr(far_error_detail(), "10.77.0.1:7061"));
    assert_int_equal(rig_get(r, gaddr_make(0, 4096), 0), 10);

    node = node_start("7061", "/tmp/faults.region");
    rc = FAR_UNREACHABLE;
    for (unsigned i = 0; i < 100 && rc == FAR_UNREACHABLE; i++) {
        batch_pause(&r->b, 100000000);
        batch_read(&r->b, gaddr_make(1, 4096), 0, r->buf, 8);
        rc = batch_flush(&r->b);
    }
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(r->buf[0], 11);
    node_kill(node);

    unlink("/tmp/faults.region"); /* and once more, with an empty one */
    node = node_start("7061", "/tmp/faults.region");
    rc = FAR_UNREACHABLE;
    for (unsigned i = 0; i < 100 && rc == FAR_UNREACHABLE; i++) {
        batch_pause(&r->b, 100000000);
        rc = try_set(r, gaddr_make(1, 4096), 1);
    }
    assert_int_equal(rc, FAR_NODE_LOST);
    rig_close(r);
    node_kill(node);
    node_kill(other);
}

/* A client makes a pool beginning with the last node. If it dies half-way, another makes the
 * pool. */
static void a_half_made_pool_is_made_again(void **state)
{
    const char *pool = "verbs://10.77.0.1:7062,10.77.0.1:7063?timeout=60000";
    pid_t node[2] = {node_start("7062", NULL), node_start("7063", NULL)};

    (void)state;
    for (unsigned turn = 0; turn < 2; turn++) {
        struct rig *r = rig_open(pool);

        assert_true(r->fab->fresh);
        rig_set(r, gaddr_make(1, 0), 0, POOL_MAGIC);
        rig_close(r);
    }
    struct rig *r = rig_open(pool);
    rig_set(r, gaddr_make(0, 0), 0, POOL_MAGIC);
    r->fab->ops->formatted(r->fab);
    rig_close(r);
    r = rig_open(pool);
    assert_false(r->fab->fresh);
    rig_close(r);
    node_kill(node[0]);
    node_kill(node[1]);
}

/* ---- silence --------------------------------------------------------------------------------- */

/* Connecting may take long on a busy machine; what comes afterwards is to be given up soon. */
static void shorten(struct rig *r)
{
    ((struct verbs_fab *)r->fab)->wire.timeout_ms = 1000;
}

static uint64_t elapsed_ms(uint64_t since)
{
    return (clock_ns() - since) / 1000000;
}

/* A node that is stopped answers no questions, though its memory can be reached. */
static void a_question_to_a_stopped_node_ends(void **state)
{
    pid_t node = node_start("7070", NULL);
    struct rig *r = rig_open("verbs://10.77.0.1:7070?timeout=60000");

    (void)state;
    rig_set(r, gaddr_make(0, 4096), 0, 1);
    assert_int_equal(kill(node, SIGSTOP), 0);
    assert_int_equal(waitpid(node, NULL, WUNTRACED), node); /* it does not stop at once */
    assert_int_equal(rig_get(r, gaddr_make(0, 4096), 0), 1);
    shorten(r);
    uint64_t start = clock_ns();
    assert_int_equal(rig_fence(r, 3001), FAR_UNREACHABLE);
    printf("the question ended after %llu ms: %s\n", (unsigned long long)elapsed_ms(start),
           far_error_detail());
    assert_int_equal(kill(node, SIGCONT), 0);
    rig_close(r);
    node_kill(node);
}

/* A node that vanishes without a word: as when its machine loses power, the connection manager has
 * nothing to tell. What is under way ends all the same, by the device's time-out or by ours. */
static void a_node_that_vanishes_is_not_waited_for(void **state)
{
    pid_t node = node_start("7071", NULL);
    struct rig *r = rig_open("verbs://10.77.0.1:7071?timeout=60000");
    struct rdma_event_channel *cm = ((struct verbs_ep *)r->ep)->cm;
    int deaf = eventfd(0, EFD_NONBLOCK), real = cm->fd;

    (void)state;
    rig_set(r, gaddr_make(0, 4096), 0, 1);
    cm->fd = deaf;
    node_kill(node);
    shorten(r);
    uint64_t start = clock_ns();
    assert_int_equal(try_set(r, gaddr_make(0, 4096), 2), FAR_UNKNOWN);
    printf("what was under way ended after %llu ms: %s\n", (unsigned long long)elapsed_ms(start),
           far_error_detail());
    cm->fd = real;
    close(deaf);
    assert_int_equal(try_set(r, gaddr_make(0, 4096), 2), FAR_UNREACHABLE);
    rig_close(r);
}

/* A node does not answer connection requests: the first request notices, then none waits for it. */
static void a_node_that_is_away_does_not_hold_up_others(void **state)
{
    pid_t node[2] = {node_start("7072", NULL), node_start("7073", NULL)};
    struct rig *r = rig_open("verbs://10.77.0.1:7072,10.77.0.1:7073?timeout=60000");
    int rc = FAR_UNREACHABLE;

    (void)state;
    rig_set(r, gaddr_make(0, 4096), 0, 1);
    rig_set(r, gaddr_make(1, 4096), 0, 2);
    assert_int_equal(kill(node[1], SIGSTOP), 0);
    assert_int_equal(waitpid(node[1], NULL, WUNTRACED), node[1]);
    verbs_conn_break(conn_of(r, 1));
    shorten(r);
    assert_int_equal(try_set(r, gaddr_make(1, 4096), 3), FAR_UNREACHABLE);
    ((struct verbs_fab *)r->fab)->wire.timeout_ms = 3600000; /* so that a wait would be noticed */
    while (!conn_of(r, 1)->out) {
        assert_int_equal(try_set(r, gaddr_make(1, 4096), 3), FAR_UNREACHABLE);
        usleep(10000);
    }
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(try_set(r, gaddr_make(1, 4096), 3), FAR_UNREACHABLE);
        assert_int_equal(r->ep->ops->fence(r->ep, 4001), FAR_UNREACHABLE);
        rig_set(r, gaddr_make(0, 4096), 0, i);
        assert_int_equal(rig_get(r, gaddr_make(0, 4096), 0), i);
    }
    assert_true(conn_of(r, 1)->out);
    assert_int_equal(kill(node[1], SIGCONT), 0);
    for (unsigned i = 0; i < 1000 && rc == FAR_UNREACHABLE; i++) {
        usleep(10000);
        rc = try_set(r, gaddr_make(1, 4096), 4);
    }
    assert_int_equal(rc, FAR_OK);
    assert_int_equal(rig_fence(r, 4001), FAR_OK);
    rig_close(r);
    node_kill(node[0]);
    node_kill(node[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_without_a_proof_has_no_access),
        cmocka_unit_test(a_fenced_client_has_no_effect),
        cmocka_unit_test(a_fence_ends_work_under_way),
        cmocka_unit_test(long_verbs_are_cut),
        cmocka_unit_test(what_does_not_fit_the_queue_waits),
        cmocka_unit_test(a_node_that_dies_is_named_and_can_come_back),
        cmocka_unit_test(a_half_made_pool_is_made_again),
        cmocka_unit_test(a_question_to_a_stopped_node_ends),
        cmocka_unit_test(a_node_that_vanishes_is_not_waited_for),
        cmocka_unit_test(a_node_that_is_away_does_not_hold_up_others),
    };

    if (argc != 2) {
        fprintf(stderr, "usage: %s URI\n", argv[0]);
        return 2;
    }
    uri = argv[1];
    return cmocka_run_group_tests_name(uri, tests, NULL, NULL);
}
