#include "fabric/ucx/ucx_common.h"

#include "base/fds.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/config/global_opts.h>

#define WORKER_FDS 16u /* file descriptors that a worker needs on a machine with a few devices */

/* UCX prints lost connections to the standard output. They are ours to report. */
static void be_quiet(void)
{
    if (!getenv("UCX_LOG_LEVEL"))
        ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

/* Sets an option of TCP by its own name, as UCX 1.13 wants it, and by its full name, as later
 * versions do. UCX ignores names that it does not know. */
static ucs_status_t set_tcp(ucp_config_t *config, const char *own, const char *full,
                            const char *value)
{
    ucs_status_t status = ucp_config_modify(config, own, value);

    return status == UCS_OK ? ucp_config_modify(config, full, value) : status;
}

/*
 * UCX gives each network device one address and sizes its connections for that. With UCX 1.13, a
 * peer that connects by IPv6 to a device whose address is IPv4 writes past the end of such a
 * connection. So for IPv6 there are only devices with IPv6 addresses. The other way round is safe:
 * IPv4 addresses are shorter.
 *
 * While a connection is made, both sides connect to each other. By default UCX waits for that, so a
 * peer that cannot be reached would stop the thread, and all that it serves, for minutes.
 */
static ucs_status_t adapt_tcp(ucp_config_t *config, sa_family_t family)
{
    ucs_status_t status = set_tcp(config, "CONN_NB", "TCP_CONN_NB", "y");

    return status == UCS_OK && family == AF_INET6
               ? set_tcp(config, "AF_PRIO", "TCP_AF_PRIO", "inet6")
               : status;
}

int ucx_context_open(const char *name, sa_family_t family, ucp_context_h *context)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .mt_workers_shared = 1,
                           .name = name};
    ucp_config_t *config;

    be_quiet();
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return err_fail(FAR_SYSTEM, "UCX's settings: %s", ucs_status_string(status));
    status = adapt_tcp(config, family);
    if (status == UCS_OK)
        status = ucp_config_modify(config, "CM_USE_ALL_DEVICES", "n");
    if (status == UCS_OK && !getenv("UCX_TLS"))
        status = ucp_config_modify(config, "TLS", "^sm");
    if (status == UCS_OK)
        status = ucp_init(&params, config, context);
    ucp_config_release(config);
    return status == UCS_OK ? FAR_OK : err_fail(FAR_SYSTEM, "UCX: %s", ucs_status_string(status));
}

int ucx_failed(int rc)
{
    return fds_check(WORKER_FDS) == FAR_OK ? rc : FAR_SYSTEM;
}

int ucx_worker_open(ucp_context_h context, ucp_am_recv_callback_t receive, void *arg,
                    uint64_t knock, ucp_worker_h *worker, int *fd)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT |
                      UCP_WORKER_PARAM_FIELD_EVENTS | UCP_WORKER_PARAM_FIELD_CLIENT_ID,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .client_id = knock,
        .am_alignment = 64,
        .events = UCP_WAKEUP_RX | UCP_WAKEUP_TX};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = receive,
        .arg = arg};
    ucs_status_t status = ucp_worker_create(context, &params, worker);

    if (status != UCS_OK)
        return ucx_failed(err_fail(FAR_SYSTEM, "a UCX worker: %s", ucs_status_string(status)));
    status = ucp_worker_set_am_recv_handler(*worker, &handler);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(*worker, fd);
    if (status != UCS_OK) {
        ucp_worker_destroy(*worker);
        return ucx_failed(
            err_fail(FAR_SYSTEM, "a UCX worker's events: %s", ucs_status_string(status)));
    }
    return FAR_OK;
}

bool ucx_forget_events(ucp_worker_h worker)
{
    return ucp_worker_progress(worker) != 0;
}

ucs_status_ptr_t ucx_send(ucp_ep_h ep, const void *message, size_t bytes, unsigned flags,
                          ucp_send_nbx_callback_t done, void *arg)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER | flags,
                                 .cb.send = done,
                                 .user_data = arg};

    return ucp_am_send_nbx(ep, UCX_AM_ID, NULL, 0, message, bytes, &param);
}

/* UCX gives devices no loopback or link-local addresses of IPv6, so those cannot be reached. */
static bool can_serve(const struct sockaddr *address)
{
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;

    return address->sa_family == AF_INET ||
           (address->sa_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(in6) &&
            !IN6_IS_ADDR_LINKLOCAL(in6) && !IN6_IS_ADDR_V4MAPPED(in6));
}

int ucx_resolve(const struct wire_address *address, bool passive, struct sockaddr_storage *to,
                socklen_t *to_bytes)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0)};
    struct addrinfo *found, *use;
    int error = getaddrinfo(address->host, address->port, &hints, &found);

    if (error)
        return err_fail(FAR_UNREACHABLE, "%s: %s", address->text, gai_strerror(error));
    use = found;
    while (use && !can_serve(use->ai_addr))
        use = use->ai_next;
    if (use) {
        memcpy(to, use->ai_addr, use->ai_addrlen);
        *to_bytes = use->ai_addrlen;
    }
    freeaddrinfo(found);
    return use ? FAR_OK
               : err_fail(
                     FAR_UNSUPPORTED,
                     "%s: UCX does not serve loopback, link-local and IPv4-mapped addresses of "
                     "IPv6",
                     address->text);
}
