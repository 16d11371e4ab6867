/* What the two ends of a UCX connection have in common. */
#ifndef FABRIC_UCX_TOOLS_H
#define FABRIC_UCX_TOOLS_H

#include "fabric/wire.h"

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#define UCX_AM_ID 0 /* of every message: what it is, its head says */

/*
 * A context for active messages alone. Nobody who connects can reach memory by UCX's own means: its
 * emulation of put and get, which believes any address that it is told, is not in such a context.
 * With `rma` it is, beside the real ones: who can connect can reach all memory of the process.
 *
 * Unless UCX_TLS says otherwise, UCX's shared memory is left out: in the version that this is made
 * for it loses the order of messages on processors that reorder stores.
 *
 * All connections of a context must be of one address family. FAR_SYSTEM.
 */
int ucx_context_open(const char *name, bool rma, sa_family_t family, ucp_context_h *context);
/* The same error, or that too few file descriptors are left, if they are: UCX only says that
 * something went wrong. */
int ucx_failed(int rc);
/* A worker that one thread at a time uses, and that can be waited for. *fd is not the caller's. */
int ucx_worker_open(ucp_context_h context, ucp_am_recv_callback_t receive, void *arg,
                    ucp_worker_h *worker, int *fd);

/* By what a connection does put, get and atomics: by a transport's own, or by UCX's emulation in
 * messages to the other side's worker. */
struct ucx_lanes {
    bool rma;    /* put and get are the transport's        */
    bool amo;    /* so are 64-bit atomics                  */
    bool by_nic; /* and a network card executes the latter */
};

/* Of a connection that has been made. UCX has no other way of asking, before version 1.14, than to
 * read what it prints of an endpoint. FAR_NO_MEMORY. */
int ucx_ep_lanes(ucp_ep_h ep, struct ucx_lanes *lanes);
/* Whether atomics on this worker's memory are a network card's, for those who have the choice. */
int ucx_worker_by_nic(ucp_worker_h worker, bool *by_nic);

/* A message, of which `flags` (UCP_AM_SEND_FLAG_*) are the extra ones. As ucp_am_send_nbx(). */
ucs_status_ptr_t ucx_send(ucp_ep_h ep, const void *message, size_t bytes, unsigned flags,
                          ucp_send_nbx_callback_t done, void *arg);

/* The first address of the host that UCX can serve; `passive` for listening. FAR_UNREACHABLE;
 * FAR_UNSUPPORTED: it has none. */
int ucx_resolve(const struct wire_address *address, bool passive, struct sockaddr_storage *to,
                socklen_t *to_bytes);

#endif
