/* mem: - memory of this process. Each open makes new memory, which close frees. */
#include "base/mapping.h"
#include "fabric/backends.h"
#include "fabric/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NODE_BYTES_DEFAULT (4ull << 30)

static void mem_close(struct fab *fab)
{
    struct direct_fab *mem = (struct direct_fab *)fab;

    for (unsigned i = 0; i < fab->nodes; i++)
        munmap(mem->base[i], fab->size[i]);
    free(mem);
}

static int mem_open(struct uri *uri, struct fab **fab);

#define MEM_OPS                                                                                    \
    .scheme = "mem", .open = mem_open, .close = mem_close, .ep_open = direct_ep_open,              \
    .ep_close = direct_ep_close

const struct fab_ops mem_fabric = {MEM_OPS, DIRECT_OPS};
static const struct fab_ops mem_deferred = {MEM_OPS, DIRECT_OPS_DEFERRED};

static int add_node(struct direct_fab *mem, uint64_t bytes)
{
    void *base = mapping_make(-1, bytes, 0);

    if (!base)
        return err_fail(errno == ENOMEM ? FAR_NO_MEMORY : FAR_SYSTEM, "node %u of mem:: %s",
                        mem->fab.nodes, strerror(errno));
    mem->base[mem->fab.nodes] = base;
    mem->fab.size[mem->fab.nodes++] = bytes;
    return FAR_OK;
}

static int mem_open(struct uri *uri, struct fab **fab)
{
    struct direct_options o;
    struct direct_fab *mem;

    if (uri->rest[0])
        return err_fail(FAR_BAD_URI, "'%s' follows mem:, where only options are allowed",
                        uri->rest);
    int rc = direct_options(uri, NODE_BYTES_DEFAULT, 1, &o);
    if (rc != FAR_OK)
        return rc;
    mem = calloc(1, sizeof *mem);
    if (!mem)
        return err_fail(FAR_NO_MEMORY, "no memory for the fabric mem:");
    direct_init(mem, &o, &mem_fabric, &mem_deferred);
    mem->fab.fresh = true;
    for (unsigned i = 0; i < o.nodes && rc == FAR_OK; i++)
        rc = add_node(mem, o.size);
    if (rc != FAR_OK) {
        mem_close(&mem->fab);
        return rc;
    }
    *fab = &mem->fab;
    return FAR_OK;
}
