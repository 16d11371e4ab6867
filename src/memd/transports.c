/* The transports of this build, and listening by them. */
#include "memd/transports.h"

#include <string.h>

static const struct memd_listener_ops *const transports[] = {
#ifdef FARSIDE_UCX
    &memd_ucx,
#endif
#ifdef FARSIDE_VERBS
    &memd_verbs,
#endif
    NULL,
};

static int find_transport(const struct uri *uri, const struct memd_listener_ops **ops)
{
    for (unsigned i = 0; transports[i]; i++) {
        if (strcmp(transports[i]->scheme, uri->scheme) == 0) {
            *ops = transports[i];
            return FAR_OK;
        }
    }
    return err_fail(FAR_NO_FABRIC, "this build cannot listen at '%s:'", uri->scheme);
}

int memd_listen(struct memd *m, const char *text, unsigned threads)
{
    const struct memd_listener_ops *ops = NULL;
    struct memd_listener *listener;
    struct uri uri;
    int rc = uri_parse(text, &uri);

    if (rc == FAR_OK)
        rc = find_transport(&uri, &ops);
    if (rc != FAR_OK)
        return rc;
    if (m->listeners == MEMD_LISTENERS_MAX)
        return err_fail(FAR_INVALID, "more than %u addresses to listen at", MEMD_LISTENERS_MAX);
    rc = ops->open(m, &uri, threads, &listener);
    if (rc != FAR_OK)
        return rc;
    for (unsigned i = 0; i < m->listeners; i++) {
        if (m->listener[i]->by_nic == listener->by_nic)
            continue;
        rc = err_fail(
            FAR_UNSUPPORTED,
            "%s and %s: the atomics of the network card and those of the processor would not be "
            "atomic against each other",
            m->listener[i]->address, listener->address);
        ops->close(listener);
        return rc;
    }
    m->listener[m->listeners++] = listener;
    return FAR_OK;
}
