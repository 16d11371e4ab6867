/* Finds and opens modules. */
#include "fabric/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIED_BYTES 1024

static const struct module_host host = {
    .err_fail = err_fail,
    .error_detail = far_error_detail,
    .assert_failed = err_assert_failed,
    .fiber_create = fiber_create,
    .fiber_reset = fiber_reset,
    .fiber_destroy = fiber_destroy,
    .fiber_resume = fiber_resume,
    .fiber_yield = fiber_yield,
    .fiber_current = fiber_current,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct network {
    const char *scheme, *needs;
    const struct module *module; /* NULL until it is open; under the lock */
} networks[] = {
    {.scheme = "ucx", .needs = "libucx-dev"},
    {.scheme = "verbs", .needs = "libibverbs-dev and librdmacm-dev"},
};

/* Sets the folder of the program or library that contains this code. False: it is not known. */
static bool own_folder(char folder[PATH_MAX], bool *is_program)
{
    struct link_map *map = NULL;
    ssize_t bytes;
    Dl_info info;
    char *slash;

    if (!dladdr1(&host, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    *is_program = map->l_name[0] == '\0';
    if (*is_program) {
        bytes = readlink("/proc/self/exe", folder, PATH_MAX - 1);
        if (bytes < 0)
            return false;
        folder[bytes] = '\0';
    } else {
        snprintf(folder, PATH_MAX, "%s", map->l_name);
    }
    slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

static int load(const char *name, const char *path, const void **entry)
{
    /* Threads and fibers may be running its code until the process ends, so it is never closed. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *build;

    if (!handle)
        return err_fail(FAR_NO_FABRIC, "cannot open the module of %s: %s", name, dlerror());
    build = dlsym(handle, "farside_module");
    if (!build)
        return err_fail(FAR_NO_FABRIC, "%s is not a module of Farside", path);
    if (strncmp(build, MODULE_BUILD, MODULE_BUILD_BYTES) != 0)
        return err_fail(FAR_NO_FABRIC, "%s is of another build of Farside: %.*s, not %s", path,
                        MODULE_BUILD_BYTES, build, MODULE_BUILD);
    *entry = build;
    return FAR_OK;
}

/* Is the module in that folder? If not, the folder is added to the list of those tried. */
static bool is_in(const char *folder, const char *name, char path[PATH_MAX],
                  char tried[TRIED_BYTES])
{
    size_t used = strlen(tried);
    int bytes = snprintf(path, PATH_MAX, "%s/farside-%s.so", folder, name);

    if (bytes > 0 && bytes < PATH_MAX && access(path, F_OK) == 0)
        return true;
    snprintf(tried + used, TRIED_BYTES - used, "%s%s", used > 0 ? ", " : "", folder);
    return false;
}

/* Next to the code that asks, as in the build folder; where it lies if all that is installed was
 * moved together; where it was installed. */
int module_open(const char *name, const char *needs, const void **entry)
{
    const char *set = secure_getenv("FARSIDE_MODULES");
    char own[PATH_MAX], moved[PATH_MAX + 64], path[PATH_MAX], tried[TRIED_BYTES] = "";
    bool is_program = false;

    if (set && set[0] && is_in(set, name, path, tried))
        return load(name, path, entry);
    if (own_folder(own, &is_program)) {
        snprintf(moved, sizeof moved, "%s/%s", own, is_program ? MODULE_FROM_BIN : "farside");
        if (is_in(own, name, path, tried) || is_in(moved, name, path, tried))
            return load(name, path, entry);
    }
    if (is_in(MODULE_DIR, name, path, tried))
        return load(name, path, entry);
    return err_fail(FAR_NO_FABRIC,
                    "no farside-%s.so, which is built where %s is installed, in any of: %s", name,
                    needs, tried);
}

static int open_network(struct network *n)
{
    const void *entry = NULL;
    int rc = module_open(n->scheme, n->needs, &entry);
    if (rc != FAR_OK)
        return rc;
    n->module = entry;
    *n->module->host = &host;
    return FAR_OK;
}

int module_find(const char *scheme, const struct module **module)
{
    int rc = FAR_OK;

    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        struct network *n = &networks[i];

        if (strcmp(n->scheme, scheme) != 0)
            continue;
        pthread_mutex_lock(&lock);
        if (!n->module)
            rc = open_network(n);
        *module = n->module;
        pthread_mutex_unlock(&lock);
        return rc;
    }
    return err_fail(FAR_NO_FABRIC, "there is no network '%s:'", scheme);
}
