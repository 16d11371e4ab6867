/*
 * The queue pair of a reliable connection: what the fabric and the memory node share.
 *
 * librdmacm resolves addresses and exchanges numbers; the queue pair is made and moved through its
 * states here. Left to librdmacm it would be open to remote WRITEs as soon as it is connected. This
 * way it starts without any remote rights and carries the hand-shake as messages. The memory node
 * grants rights once the client has proved itself (verbs_qp_grant()).
 */
#ifndef VERBS_QP_H
#define VERBS_QP_H

#include "base/err.h"

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The limits of a device that matter here. */
struct verbs_qp_limits {
    unsigned send_wrs;    /* the longest useful send queue                   */
    unsigned reads_out;   /* READs and atomics under way, as the requester   */
    unsigned reads_in;    /* the same, as the responder                      */
    uint64_t message_max; /* bytes of one READ or WRITE                      */
    bool atomics_global;  /* atomics are atomic against the processor's, too */
};

/* FAR_UNSUPPORTED: the device cannot do what the fabric needs. */
int verbs_qp_limits(struct ibv_context *device, uint8_t port, struct verbs_qp_limits *limits);

struct verbs_qp {
    struct rdma_cm_id *id;
    struct ibv_cq *cq; /* for both queues */
    struct ibv_qp *ibv;
    unsigned send_wrs, inline_max;
};

#define QP_RECVS 2u /* receive buffers posted at once, at most */

/* Makes a queue pair for a resolved id, with room for `send_wrs` work requests or fewer. If it
 * succeeds, the queue pair owns the id. Its completions are reported to the channel, with
 * `owner`. */
int verbs_qp_make(struct verbs_qp *qp, struct rdma_cm_id *id, struct ibv_pd *pd,
                  struct ibv_comp_channel *channel, void *owner, unsigned send_wrs);

/* Makes it ready to send and receive: once the other end's numbers are known, before ours are
 * sent. */
int verbs_qp_ready(struct verbs_qp *qp, unsigned reads_out, unsigned reads_in, uint64_t timeout_ms);

/* Lets the other end reach the memory that is registered for remote access. */
int verbs_qp_grant(struct verbs_qp *qp);

/* Once this has returned, nothing of the queue pair takes effect any more: neither what the other
 * end sends nor what is still on its way into local buffers. */
void verbs_qp_destroy(struct verbs_qp *qp);

/* Messages, one at a time in each direction. The buffers are registered with `lkey`. */
int verbs_qp_send(struct verbs_qp *qp, const void *buf, size_t bytes, uint32_t lkey);
int verbs_qp_receive(struct verbs_qp *qp, void *buf, size_t bytes, uint32_t lkey);

#endif
