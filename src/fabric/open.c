/* Fabrics by URI scheme. */
#include "fabric/backends.h"
#include "fabric/module.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *scheme;
    const struct fab_ops *linked;
} fabrics[] = {
    {"mem", &mem_fabric},
    {"shm", &shm_fabric},
    {"ucx", &ucx_fabric},
    {"verbs", &verbs_fabric},
};
#define FABRICS (sizeof fabrics / sizeof fabrics[0])

static int find_in_module(const char *scheme, const struct fab_ops **fabric)
{
    const struct module *module;
    int rc = module_find(scheme, &module);

    if (rc == FAR_OK)
        *fabric = module->fabric;
    return rc;
}

static int find(const char *text, struct uri *uri, const struct fab_ops **fabric)
{
    char known[256] = "";
    size_t used = 0;
    int rc = uri_parse(text, uri);

    if (rc != FAR_OK)
        return rc;
    for (size_t i = 0; i < FABRICS; i++) {
        if (strcmp(fabrics[i].scheme, uri->scheme) != 0)
            continue;
        if (!fabrics[i].linked->open)
            return find_in_module(uri->scheme, fabric);
        *fabric = fabrics[i].linked;
        return FAR_OK;
    }
    if (strcmp(uri->scheme, "model") == 0)
        return err_fail(FAR_NO_FABRIC, "model: is a modelled network, which only farside bench and "
                                       "farside reproduce have");
    if (strcmp(uri->scheme, "sim") == 0)
        return err_fail(FAR_NO_FABRIC, "sim: is called model: now");
    for (size_t i = 0; i < FABRICS && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s:", i ? ", " : "",
                                 fabrics[i].scheme);
    return err_fail(FAR_NO_FABRIC, "'%s:' is not one of %s", uri->scheme, known);
}

int fab_open(const char *text, struct fab **fab)
{
    const struct fab_ops *fabric;
    struct uri uri;
    int rc = find(text, &uri, &fabric);

    return rc == FAR_OK ? fabric->open(&uri, fab) : rc;
}

int fab_remove(const char *text)
{
    const struct fab_ops *fabric;
    struct uri uri;
    int rc = find(text, &uri, &fabric);

    if (rc != FAR_OK)
        return rc;
    if (!fabric->remove)
        return err_fail(FAR_UNSUPPORTED, "%s: has nothing to remove", uri.scheme);
    return fabric->remove(&uri);
}
