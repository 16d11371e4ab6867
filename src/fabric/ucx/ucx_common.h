/* What the two ends of a UCX connection have in common. */
#ifndef UCX_COMMON_H
#define UCX_COMMON_H

#include "fabric/wire.h"

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#define UCX_AM_ID 0 /* of every message; its type is in its head */

/*
 * A context for active messages alone. So no peer can reach memory by UCX's own means: UCX's
 * emulation of put and get, which accepts any address, is not in such a context.
 *
 * Unless UCX_TLS says otherwise, UCX's shared memory is left out: in version 1.13 it loses the
 * order of messages on processors that reorder stores (openucx/ucx#9420).
 *
 * A connection has one network device, that of its request, and so one socket for data: UCX would
 * otherwise exchange the addresses of all devices by messages, before the hand-shake (STRANGER-1).
 *
 * All connections of a context must be of one address family. FAR_SYSTEM.
 */
int ucx_context_open(const char *name, sa_family_t family, ucp_context_h *context);
/* Returns FAR_SYSTEM if too few file descriptors are left, otherwise `rc`: UCX itself reports only
 * that something went wrong. */
int ucx_failed(int rc);
/* A worker for one thread at a time. Its events make *fd readable, which stays the worker's.
 * Endpoints with UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID send the knock with their request for a
 * connection (wire_knock()). */
int ucx_worker_open(ucp_context_h context, ucp_am_recv_callback_t receive, void *arg,
                    uint64_t knock, ucp_worker_h *worker, int *fd);
/*
 * Call this right after closing an endpoint. Returns whether the worker had something to do.
 *
 * UCX keeps a list of sockets that had events while the worker was busy, and looks through it with
 * the worker's next progress. A socket that is closed stays in the list. If another worker of the
 * process gets a socket with that number first, UCX ends the process by an assertion. A worker may
 * sleep for long, so it does not leave such a list behind.
 */
bool ucx_forget_events(ucp_worker_h worker);

/* Sends a message, with further UCP_AM_SEND_FLAG_* in `flags`. Returns what ucp_am_send_nbx()
 * does. */
ucs_status_ptr_t ucx_send(ucp_ep_h ep, const void *message, size_t bytes, unsigned flags,
                          ucp_send_nbx_callback_t done, void *arg);

/* The first address of the host that UCX can serve; `passive` for listening. FAR_UNREACHABLE,
 * FAR_UNSUPPORTED (the host has no such address). */
int ucx_resolve(const struct wire_address *address, bool passive, struct sockaddr_storage *to,
                socklen_t *to_bytes);

#endif
