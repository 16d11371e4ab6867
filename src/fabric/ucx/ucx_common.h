/* What the two ends of a UCX connection have in common. */
#ifndef UCX_COMMON_H
#define UCX_COMMON_H

#include "fabric/wire.h"

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#define UCX_AM_ID 0 /* of every message: what it is, its head says */

/*
 * A context for active messages alone. Nobody who connects can reach memory by UCX's own means: its
 * emulation of put and get, which believes any address that it is told, is not in such a context.
 *
 * Unless UCX_TLS says otherwise, UCX's shared memory is left out: in the version that this is made
 * for it loses the order of messages on processors that reorder stores.
 *
 * All connections of a context must be of one address family. FAR_SYSTEM.
 */
int ucx_context_open(const char *name, sa_family_t family, ucp_context_h *context);
/* The same error, or that too few file descriptors are left, if they are: UCX only says that
 * something went wrong. */
int ucx_failed(int rc);
/* A worker that one thread at a time uses, and that can be waited for. *fd is not the caller's. */
int ucx_worker_open(ucp_context_h context, ucp_am_recv_callback_t receive, void *arg,
                    ucp_worker_h *worker, int *fd);

/* A message, of which `flags` (UCP_AM_SEND_FLAG_*) are the extra ones. As ucp_am_send_nbx(). */
ucs_status_ptr_t ucx_send(ucp_ep_h ep, const void *message, size_t bytes, unsigned flags,
                          ucp_send_nbx_callback_t done, void *arg);

/* The first address of the host that UCX can serve; `passive` for listening. FAR_UNREACHABLE;
 * FAR_UNSUPPORTED: it has none. */
int ucx_resolve(const struct wire_address *address, bool passive, struct sockaddr_storage *to,
                socklen_t *to_bytes);

#endif
