/*
 * One reliable connection of the verbs: what its two ends, the fabric and the memory node, share.
 *
 * librdmacm finds the way and exchanges numbers; the queue pair is made and moved through its
 * states here. Left to librdmacm it would be open to remote WRITEs as soon as it is connected. This
 * way it starts without remote rights of any kind, carries the hand-shake as messages, and the
 * memory node grants rights when it knows whom to (verbs_qp_grant()).
 */
#ifndef VERBS_QP_H
#define VERBS_QP_H

#include "base/err.h"

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a device can do, as far as it matters here. */
struct verbs_qp_limits {
    unsigned send_wrs;    /* the longest send queue, up to what is of use */
    unsigned reads_out;   /* READs and atomics under way, as the one who asks */
    unsigned reads_in;    /* ... and as the one who answers                  */
    uint64_t message_max; /* bytes of one READ or WRITE                      */
    bool atomics_global;  /* atomic against the processor too                */
};

/* FAR_UNSUPPORTED: the device cannot do what the fabric needs. */
int verbs_qp_limits(struct ibv_context *device, uint8_t port, struct verbs_qp_limits *limits);

struct verbs_qp {
    struct rdma_cm_id *id;
    struct ibv_cq *cq; /* of both queues */
    struct ibv_qp *ibv;
    unsigned send_wrs, inline_max;
};

#define QP_RECVS 2u /* receive buffers posted at once, at most */

/* A queue pair for a connection whose way is known, with room for that many work requests, or
 * fewer. It takes the id over with success. Its completions are told to the channel, with `owner`.
 */
int verbs_qp_make(struct verbs_qp *qp, struct rdma_cm_id *id, struct ibv_pd *pd,
                  struct ibv_comp_channel *channel, void *owner, unsigned send_wrs);

/* Ready to send and receive: once the other end's numbers are known, before it hears of ours. */
int verbs_qp_ready(struct verbs_qp *qp, unsigned reads_out, unsigned reads_in, uint64_t timeout_ms);

/* Lets the other end read and write the memory that is registered for it. */
int verbs_qp_grant(struct verbs_qp *qp);

/* Nothing of the queue pair takes effect any more once this has returned: neither what the other
 * end sends, nor what is still on its way into local buffers. */
void verbs_qp_destroy(struct verbs_qp *qp);

/* Messages, up to one at a time in either direction. The buffers are registered with the key. */
int verbs_qp_send(struct verbs_qp *qp, const void *buf, size_t bytes, uint32_t lkey);
int verbs_qp_receive(struct verbs_qp *qp, void *buf, size_t bytes, uint32_t lkey);

#endif
