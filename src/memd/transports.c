/* Transports by URI scheme, and listening by them. */
#include "memd/transports.h"

#include "fabric/module.h"

#include <string.h>

static const struct {
    const char *scheme;
    const struct memd_listener_ops *linked;
} transports[] = {
    {"ucx", &memd_ucx},
    {"verbs", &memd_verbs},
};

static int find_in_module(const char *scheme, const struct memd_listener_ops **ops)
{
    const struct module *module;
    int rc = module_find(scheme, &module);

    if (rc == FAR_OK)
        *ops = module->listener;
    return rc;
}

static int find(const char *scheme, const struct memd_listener_ops **ops)
{
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        if (strcmp(transports[i].scheme, scheme) != 0)
            continue;
        if (!transports[i].linked->open)
            return find_in_module(scheme, ops);
        *ops = transports[i].linked;
        return FAR_OK;
    }
    return err_fail(FAR_NO_FABRIC,
                    "a memory node cannot listen at '%s:', only at ucx: and verbs:", scheme);
}

int memd_listen(struct memd *m, const char *text, unsigned threads)
{
    const struct memd_listener_ops *ops = NULL;
    struct memd_listener *listener;
    struct uri uri;
    int rc = uri_parse(text, &uri);

    if (rc == FAR_OK)
        rc = find(uri.scheme, &ops);
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
