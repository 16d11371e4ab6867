#include "fabric/ucx_tools.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/config/global_opts.h>

/* UCX writes of lost connections to the standard output, which are ours to report. */
static void be_quiet(void)
{
    if (!getenv("UCX_LOG_LEVEL"))
        ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

int ucx_context_open(const char *name, ucp_context_h *context)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                           .mt_workers_shared = 1,
                           .name = name};
    ucp_config_t *config;
    ucs_status_t status;

    be_quiet();
    status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return fail(FAR_SYSTEM, "UCX's settings: %s", ucs_status_string(status));
    if (!getenv("UCX_TLS"))
        status = ucp_config_modify(config, "TLS", "^sm");
    if (status == UCS_OK)
        status = ucp_init(&params, config, context);
    ucp_config_release(config);
    return status == UCS_OK ? FAR_OK : fail(FAR_SYSTEM, "UCX: %s", ucs_status_string(status));
}

int ucx_worker_open(ucp_context_h context, ucp_am_recv_callback_t receive, void *arg,
                    ucp_worker_h *worker, int *fd)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                                UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT |
                                                UCP_WORKER_PARAM_FIELD_EVENTS,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED,
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
        return fail(FAR_SYSTEM, "a UCX worker: %s", ucs_status_string(status));
    status = ucp_worker_set_am_recv_handler(*worker, &handler);
    if (status == UCS_OK)
        status = ucp_worker_get_efd(*worker, fd);
    if (status != UCS_OK) {
        ucp_worker_destroy(*worker);
        return fail(FAR_SYSTEM, "a UCX worker's events: %s", ucs_status_string(status));
    }
    return FAR_OK;
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

int ucx_resolve(const struct wire_address *address, bool passive, struct sockaddr_storage *to,
                socklen_t *to_bytes)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0)};
    struct addrinfo *found;
    int error = getaddrinfo(address->host, address->port, &hints, &found);

    if (error)
        return fail(FAR_UNREACHABLE, "%s: %s", address->text, gai_strerror(error));
    memcpy(to, found->ai_addr, found->ai_addrlen);
    *to_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return FAR_OK;
}
