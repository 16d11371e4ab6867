/* Checks of UCX: its version, its transports, and which fabrics this build has. */
#include "cli/doctor.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UCX_MAJOR 1u /* the oldest version that is tested */
#define UCX_MINOR 13u

/* Loads UCX as the fabric does: it need not be linked with this program. NULL: there is none. */
static void *open_ucx(const struct doctor *d)
{
    char path[DOCTOR_PATH];
    return dlopen(*d->root ? doctor_path(d, path, "/usr/lib/libucp.so.0") : "libucp.so.0",
                  RTLD_LAZY | RTLD_LOCAL);
}

/* The modules beside the library, each a group of transports, such as "ib, rdmacm". Others are part
 * of the library: TCP and shared memory. */
static void list_modules(const void *symbol, char list[DOCTOR_LINE])
{
    char pattern[DOCTOR_PATH];
    glob_t found = {.gl_pathc = 0};
    Dl_info info = {.dli_fname = NULL};
    size_t len = 0;
    list[0] = '\0';
    if (dladdr(symbol, &info) == 0 || !info.dli_fname)
        return;
    const char *name = strrchr(info.dli_fname, '/');
    snprintf(pattern, sizeof pattern, "%.*s/ucx/libuct_*.so.0",
             name ? (int)(name - info.dli_fname) : 0, info.dli_fname);
    if (glob(pattern, 0, NULL, &found) != 0)
        found.gl_pathc = 0;
    for (size_t i = 0; i < found.gl_pathc && len < DOCTOR_LINE; i++) {
        const char *module = strrchr(found.gl_pathv[i], '/') + strlen("/libuct_");
        len += (size_t)snprintf(list + len, DOCTOR_LINE - len, "%s%.*s", len > 0 ? ", " : "",
                                (int)strcspn(module, "."), module);
    }
    globfree(&found);
}

static void check_version(struct doctor *d, const char *version)
{
    unsigned major = 0, minor = 0;
    bool old = sscanf(version, "%u.%u", &major, &minor) != 2 || major < UCX_MAJOR ||
               (major == UCX_MAJOR && minor < UCX_MINOR);
    doctor_say(d, old ? DOCTOR_WARNING : DOCTOR_OK, "UCX", old ? "install a later version" : NULL,
               old ? "version %.64s; the oldest that is tested is %u.%u" : "version %.64s", version,
               UCX_MAJOR, UCX_MINOR);
}

static void check_transports(struct doctor *d, const void *symbol)
{
    char modules[DOCTOR_LINE];
    const char *chosen = getenv("UCX_TLS");
    list_modules(symbol, modules);
    if (d->rdma_devices > 0 && !strstr(modules, "ib"))
        doctor_say(d, DOCTOR_WARNING, "UCX transports", "install UCX with its module for verbs",
                   "none for RDMA, so ucx: goes by TCP");
    else
        doctor_say(d, DOCTOR_OK, "UCX transports", NULL, "tcp, shared memory%s%s",
                   *modules ? ", " : "", modules);
    if (chosen && strcmp(chosen, "all") != 0)
        doctor_say(d, DOCTOR_WARNING, "UCX_TLS",
                   "unset it, unless you know that these reach the nodes",
                   "the environment limits UCX to %.256s", chosen);
}

void doctor_ucx(struct doctor *d)
{
    void *library = open_ucx(d);
    const char *(*version)(void) = NULL;
    if (library)
        *(void **)&version = dlsym(library, "ucp_get_version_string");
    if (version) {
        check_version(d, version());
        check_transports(d, *(void **)&version);
    } else {
        doctor_say(d, doctor_needed_by(d, "ucx"), "UCX", "install it: apt install libucx0",
                   "is not installed, so ucx: does not work");
    }
    if (library)
        dlclose(library);
}

void doctor_fabrics(struct doctor *d)
{
    static const char *const networks[] = {"ucx", "verbs"};
    for (unsigned i = 0; i < sizeof networks / sizeof *networks; i++) {
        char uri[16];
        far_pool *pool = NULL;
        snprintf(uri, sizeof uri, "%s:", networks[i]); /* no node: it is refused anyway */
        int rc = far_pool_open(uri, &pool);
        far_pool_close(pool);
        if (rc == FAR_NO_FABRIC)
            doctor_say(d, doctor_needed_by(d, networks[i]), "fabrics",
                       "build Farside where its library is installed; see docs/using.md",
                       "%s: is not in this build (%s)", networks[i], far_error_detail());
        else
            doctor_say(d, DOCTOR_OK, "fabrics", NULL, "%s: is in this build", networks[i]);
    }
}
