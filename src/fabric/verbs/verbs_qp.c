/* Queue pairs: limits, making, states. verbs_qp.h says why librdmacm does not do this. */
#include "fabric/verbs/verbs_qp.h"

#include <errno.h>
#include <string.h>

/* Longer queues gain nothing: a request is at most BATCH_MAX verbs, and what does not fit waits. */
#define SEND_WRS_MAX   1024u
#define SEND_WRS_MIN   16u
#define INLINE_WISH    256u
#define READS_MAX      255u /* a byte in the messages of the connection manager */
#define PIECE_BYTES    (1u << 30)
#define RETRIES        7u
#define RNR_FOREVER    7u
#define RNR_TIMER_CODE 12 /* 0.64 ms */
#define TIMEOUT_CODES  31

static unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

int verbs_qp_limits(struct ibv_context *context, uint8_t port_num, struct verbs_qp_limits *limits)
{
    const char *name = ibv_get_device_name(context->device);
    struct ibv_device_attr device;
    struct ibv_port_attr port;

    if (ibv_query_device(context, &device) || ibv_query_port(context, port_num, &port))
        return err_fail(FAR_SYSTEM, "cannot query the limits of %s: %s", name, strerror(errno));
    if (device.atomic_cap == IBV_ATOMIC_NONE)
        return err_fail(FAR_UNSUPPORTED, "%s has no atomics, which a pool needs", name);
    if (device.max_qp_rd_atom < 1 || device.max_qp_init_rd_atom < 1 || device.max_sge < 1 ||
        device.max_qp_wr < (int)SEND_WRS_MIN || port.max_msg_sz < 4096)
        return err_fail(FAR_UNSUPPORTED,
                        "%s allows %d work requests in a queue, %d READs and atomics at once (%d "
                        "served), and messages of %u bytes",
                        name, device.max_qp_wr, device.max_qp_init_rd_atom, device.max_qp_rd_atom,
                        port.max_msg_sz);
    *limits = (struct verbs_qp_limits){
        .send_wrs = smaller((unsigned)device.max_qp_wr, SEND_WRS_MAX),
        .reads_out = smaller((unsigned)device.max_qp_init_rd_atom, READS_MAX),
        .reads_in = smaller((unsigned)device.max_qp_rd_atom, READS_MAX),
        .message_max = smaller(port.max_msg_sz, PIECE_BYTES) & ~63u,
        .atomics_global = device.atomic_cap == IBV_ATOMIC_GLOB,
    };
    return FAR_OK;
}

/* Devices do not report how many bytes they take inline, and may not support those together with
 * their longest queue. So this asks for less until the device agrees. */
static struct ibv_qp *make_qp(struct verbs_qp *qp, struct ibv_pd *pd, unsigned send_wrs)
{
    struct ibv_qp *ibv = NULL;

    for (unsigned bytes = INLINE_WISH; !ibv && send_wrs >= SEND_WRS_MIN;) {
        struct ibv_qp_init_attr attr = {.send_cq = qp->cq,
                                        .recv_cq = qp->cq,
                                        .cap = {.max_send_wr = send_wrs,
                                                .max_recv_wr = QP_RECVS,
                                                .max_send_sge = 1,
                                                .max_recv_sge = 1,
                                                .max_inline_data = bytes},
                                        .qp_type = IBV_QPT_RC};

        ibv = ibv_create_qp(pd, &attr);
        if (ibv) {
            qp->send_wrs = send_wrs;
            qp->inline_max = attr.cap.max_inline_data;
        } else if (bytes > 0) {
            bytes = bytes > 16 ? bytes / 2 : 0;
        } else {
            bytes = INLINE_WISH;
            send_wrs /= 2;
        }
    }
    return ibv;
}

/* Moves the queue pair to a state, with the connection manager's attributes as corrected by
 * `change`. */
static int enter(struct verbs_qp *qp, enum ibv_qp_state state, const struct ibv_qp_attr *change)
{
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;

    if (rdma_init_qp_attr(qp->id, &attr, &mask))
        return err_fail(FAR_SYSTEM, "cannot get the attributes of a queue pair: %s",
                        strerror(errno));
    attr.qp_access_flags = 0;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
        attr.max_dest_rd_atomic = change->max_dest_rd_atomic;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
        attr.max_rd_atomic = change->max_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER)
        attr.min_rnr_timer = RNR_TIMER_CODE;
    if (mask & IBV_QP_TIMEOUT)
        attr.timeout = change->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        attr.retry_cnt = RETRIES;
    if (mask & IBV_QP_RNR_RETRY)
        attr.rnr_retry = RNR_FOREVER;
    int error = ibv_modify_qp(qp->ibv, &attr, mask);
    if (error)
        return err_fail(FAR_SYSTEM, "cannot move a queue pair to state %d: %s", (int)state,
                        strerror(error));
    return FAR_OK;
}

int verbs_qp_make(struct verbs_qp *qp, struct rdma_cm_id *id, struct ibv_pd *pd,
                  struct ibv_comp_channel *channel, void *owner, unsigned send_wrs)
{
    struct verbs_qp made = {.id = id};

    made.cq = ibv_create_cq(id->verbs, (int)(send_wrs + QP_RECVS), owner, channel, 0);
    if (!made.cq)
        return err_fail(FAR_SYSTEM, "cannot make a completion queue of %u: %s", send_wrs,
                        strerror(errno));
    made.ibv = make_qp(&made, pd, send_wrs);
    int rc = FAR_OK;
    if (!made.ibv)
        rc = err_fail(FAR_SYSTEM, "cannot make a queue pair: %s", strerror(errno));
    if (rc == FAR_OK)
        rc = enter(&made, IBV_QPS_INIT, &(struct ibv_qp_attr){0});
    if (rc != FAR_OK) {
        made.id = NULL; /* the caller keeps it */
        verbs_qp_destroy(&made);
        return rc;
    }
    *qp = made;
    return FAR_OK;
}

/* The longest time-out of the device (4.096 us * 2^code) that, RETRIES + 1 times, is not longer
 * than the wanted one. */
static uint8_t timeout_code(uint64_t timeout_ms)
{
    uint8_t code = 1;

    while (code < TIMEOUT_CODES && (4096ull << (code + 1)) * (RETRIES + 1) <= timeout_ms * 1000000)
        code++;
    return code;
}

int verbs_qp_ready(struct verbs_qp *qp, unsigned reads_out, unsigned reads_in, uint64_t timeout_ms)
{
    const struct ibv_qp_attr change = {.max_rd_atomic = (uint8_t)reads_out,
                                       .max_dest_rd_atomic = (uint8_t)reads_in,
                                       .timeout = timeout_code(timeout_ms)};
    int rc = enter(qp, IBV_QPS_RTR, &change);

    return rc == FAR_OK ? enter(qp, IBV_QPS_RTS, &change) : rc;
}

int verbs_qp_grant(struct verbs_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                                  IBV_ACCESS_REMOTE_ATOMIC};
    int error = ibv_modify_qp(qp->ibv, &attr, IBV_QP_ACCESS_FLAGS);

    return error ? err_fail(FAR_SYSTEM, "cannot grant remote access: %s", strerror(error)) : FAR_OK;
}

void verbs_qp_destroy(struct verbs_qp *qp)
{
    if (qp->ibv)
        ibv_destroy_qp(qp->ibv);
    if (qp->cq)
        ibv_destroy_cq(qp->cq);
    if (qp->id)
        rdma_destroy_id(qp->id);
    *qp = (struct verbs_qp){0};
}

int verbs_qp_send(struct verbs_qp *qp, const void *buf, size_t bytes, uint32_t lkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = (uint32_t)bytes, .lkey = lkey};
    struct ibv_send_wr *bad,
        wr = {
            .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    int error = ibv_post_send(qp->ibv, &wr, &bad);

    return error ? err_fail(FAR_UNREACHABLE, "cannot send a message: %s", strerror(error)) : FAR_OK;
}

int verbs_qp_receive(struct verbs_qp *qp, void *buf, size_t bytes, uint32_t lkey)
{
    struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = (uint32_t)bytes, .lkey = lkey};
    struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
    int error = ibv_post_recv(qp->ibv, &wr, &bad);

    return error ? err_fail(FAR_UNREACHABLE, "cannot post a receive buffer: %s", strerror(error))
                 : FAR_OK;
}
