/* Checks of RDMA: devices with their ports and GIDs, what libibverbs needs, locked memory. */
#include "cli/doctor.h"

#include <dirent.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCKED_ENOUGH (64ull << 20)
#define NO_GID        "0000:0000:0000:0000:0000:0000:0000:0000"

/* ---- devices --------------------------------------------------------------------------------- */

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void free_names(struct dirent **name, int count)
{
    for (int i = 0; i < count; i++)
        free(name[i]);
    free(name);
}

struct gids {
    unsigned count; /* that are set */
    int roce2;      /* index of the first one for RoCE v2; -1: none */
};

static struct gids find_gids(const struct doctor *d, const char *port)
{
    char path[DOCTOR_PATH], line[DOCTOR_LINE];
    struct gids gids = {.roce2 = -1};
    struct dirent **name = NULL;
    int count = scandir(doctor_path(d, path, "%s/gids", port), &name, not_hidden, versionsort);
    for (int i = 0; i < count; i++) {
        if (!doctor_read(doctor_path(d, path, "%s/gids/%s", port, name[i]->d_name), line) ||
            strcmp(line, NO_GID) == 0)
            continue;
        gids.count++;
        if (gids.roce2 < 0 &&
            doctor_read(doctor_path(d, path, "%s/gid_attrs/types/%s", port, name[i]->d_name),
                        line) &&
            strcmp(line, "RoCE v2") == 0)
            gids.roce2 = atoi(name[i]->d_name);
    }
    free_names(name, count);
    return gids;
}

/* Returns whether the port can be used. */
static bool check_port(struct doctor *d, const char *device, const char *number)
{
    char path[DOCTOR_PATH], port[DOCTOR_PATH], state[DOCTOR_LINE], layer[DOCTOR_LINE],
        roce[64] = "";
    snprintf(port, sizeof port, "/sys/class/infiniband/%s/ports/%s", device, number);
    doctor_read(doctor_path(d, path, "%s/state", port), state);
    doctor_read(doctor_path(d, path, "%s/link_layer", port), layer);
    struct gids gids = find_gids(d, port);
    bool active = strstr(state, "ACTIVE") != NULL, ethernet = strcmp(layer, "Ethernet") == 0;
    if (gids.roce2 >= 0)
        snprintf(roce, sizeof roce, ", RoCE v2 at index %d", gids.roce2);
    const char *advice = NULL;
    if (!active)
        advice = ethernet ? "bring its network interface up: ip link set DEV up"
                          : "see the cable and the subnet manager (opensm)";
    else if (gids.count == 0)
        advice = "give its network interface an address: ip address add ADDRESS/LENGTH dev DEV";
    doctor_say(d, advice ? DOCTOR_WARNING : DOCTOR_OK, "RDMA port", advice,
               "%s/%s: %s, %s, %u GID%s%s", device, number, *state ? state : "state unknown",
               *layer ? layer : "link layer unknown", gids.count, gids.count == 1 ? "" : "s", roce);
    return !advice;
}

static void check_devices(struct doctor *d)
{
    char path[DOCTOR_PATH];
    struct dirent **device = NULL, **port = NULL;
    unsigned usable = 0;
    int devices =
        scandir(doctor_path(d, path, "/sys/class/infiniband"), &device, not_hidden, versionsort);
    d->rdma_devices = devices > 0 ? (unsigned)devices : 0;
    for (int i = 0; i < devices; i++) {
        int ports =
            scandir(doctor_path(d, path, "/sys/class/infiniband/%s/ports", device[i]->d_name),
                    &port, not_hidden, versionsort);
        for (int k = 0; k < ports; k++)
            usable += check_port(d, device[i]->d_name, port[k]->d_name);
        free_names(port, ports);
        port = NULL;
    }
    free_names(device, devices);
    if (usable == 0 && (d->rdma_devices > 0 || doctor_needed_by(d, "verbs") == DOCTOR_PROBLEM))
        doctor_say(d, doctor_needed_by(d, "verbs"), "RDMA devices",
                   "without a card, Soft-RoCE does: modprobe rdma_rxe; rdma link add rxe0 type "
                   "rxe netdev DEV",
                   "none has a port that can be used, so verbs: does not work");
    else if (usable == 0)
        doctor_say(d, DOCTOR_OK, "RDMA devices", NULL, "none (only verbs: needs one)");
}

/* ---- what libibverbs needs ------------------------------------------------------------------- */

/* How many files match the pattern. */
static size_t matches(const char *pattern)
{
    glob_t found = {.gl_pathc = 0};
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

/* The files by which programs reach the kernel's part of RDMA. */
static void check_kernel_files(struct doctor *d)
{
    char path[DOCTOR_PATH];
    if (matches(doctor_path(d, path, "/dev/infiniband/uverbs*")) == 0)
        doctor_say(d, doctor_needed_by(d, "verbs"), "RDMA files", "modprobe ib_uverbs",
                   "there is no /dev/infiniband/uverbs0");
    if (matches(doctor_path(d, path, "/dev/infiniband/rdma_cm")) == 0)
        doctor_say(d, doctor_needed_by(d, "verbs"), "RDMA files", "modprobe rdma_ucm",
                   "there is no /dev/infiniband/rdma_cm");
}

static bool has_library(const struct doctor *d, const char *driver)
{
    static const char *const folders[] = {"/usr/lib/*/libibverbs", "/usr/lib64/libibverbs",
                                          "/usr/lib/libibverbs", "/usr/local/lib*/libibverbs"};
    char path[DOCTOR_PATH];
    bool found = false;
    for (unsigned i = 0; i < sizeof folders / sizeof *folders && !found; i++)
        found = matches(doctor_path(d, path, "%s/lib%s-rdmav*.so", folders[i], driver)) > 0;
    return found;
}

/* The providers: the parts of libibverbs for each kind of card. */
static void check_providers(struct doctor *d)
{
    char path[DOCTOR_PATH], line[DOCTOR_LINE], driver[DOCTOR_LINE], missing[64] = "";
    unsigned whole = 0;
    glob_t found = {.gl_pathc = 0};
    if (glob(doctor_path(d, path, "/etc/libibverbs.d/*.driver"), 0, NULL, &found) != 0)
        found.gl_pathc = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (!doctor_read(found.gl_pathv[i], line) || sscanf(line, "driver %511s", driver) != 1)
            continue;
        if (has_library(d, driver))
            whole++;
        else
            snprintf(missing, sizeof missing, "%.60s", driver);
    }
    globfree(&found);
    static const char advice[] = "install them: apt install ibverbs-providers (or rdma-core)";
    if (whole == 0 && (d->rdma_devices > 0 || doctor_needed_by(d, "verbs") == DOCTOR_PROBLEM))
        doctor_say(d, doctor_needed_by(d, "verbs"), "ibverbs providers", advice,
                   "none, so libibverbs finds no device");
    else if (*missing)
        doctor_say(d, DOCTOR_WARNING, "ibverbs providers", advice,
                   "%s is listed in /etc/libibverbs.d, but its library is not there", missing);
    else
        doctor_say(d, DOCTOR_OK, "ibverbs providers", NULL, "%u", whole);
}

static void check_locked_memory(struct doctor *d)
{
    char text[DOCTOR_BYTES];
    uint64_t soft = 0, hard = 0;
    if (!doctor_limit(d, "Max locked memory", &soft, &hard))
        return;
    bool needed = d->rdma_devices > 0 || doctor_needed_by(d, "verbs") == DOCTOR_PROBLEM;
    doctor_bytes(soft, text);
    if (needed && soft < LOCKED_ENOUGH)
        doctor_say(d, doctor_needed_by(d, "verbs"), "locked memory",
                   hard == UINT64_MAX ? "raise the limit: ulimit -l unlimited"
                                      : "raise the limit: memlock in /etc/security/limits.conf, "
                                        "or LimitMEMLOCK= of the service",
                   "at most %s; with verbs:, the buffers of sessions and the memory of nodes are "
                   "locked",
                   text);
    else
        doctor_say(d, DOCTOR_OK, "locked memory", NULL, "%s%s%s",
                   soft == UINT64_MAX ? "unlimited" : "at most ", soft == UINT64_MAX ? "" : text,
                   needed ? "" : " (only verbs: needs it)");
}

void doctor_rdma(struct doctor *d)
{
    check_devices(d);
    if (d->rdma_devices > 0)
        check_kernel_files(d);
    check_providers(d);
    check_locked_memory(d);
}
