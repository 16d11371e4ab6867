/* Stand-ins for what a program may be linked without: the networks, and module.c. They are weak, so
 * the real ones take their place where they are linked. */
#include "fabric/backends.h"
#include "fabric/module.h"

__attribute__((weak)) const struct fab_ops ucx_fabric = {.open = NULL};
__attribute__((weak)) const struct fab_ops verbs_fabric = {.open = NULL};

__attribute__((weak)) int module_find(const char *scheme, const struct module **module)
{
    (void)module;
    return err_fail(FAR_NO_FABRIC, "this program is linked without %s:", scheme);
}

__attribute__((weak)) int module_open(const char *name, const char *needs, const void **entry)
{
    (void)needs;
    (void)entry;
    return err_fail(FAR_NO_FABRIC, "this program cannot open farside-%s.so", name);
}
