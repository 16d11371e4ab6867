/*
 * mem: - memory of this process. Each open makes new memory, which close frees.
 *
 *   MEM-1  Leases do not pass while the whole process is stopped: by SIGSTOP, by a debugger, in a
 *       frozen container. All threads read the clock of leases through one word, which says when
 *       one of them last did. The keeper of a pool reads it several times a second for idle
 *       sessions, and working sessions read it themselves. So if nobody has for a second, nobody
 *       could, and that time does not count. Otherwise the first thread that goes on would take all
 *       others for dead, and one of them may have been stopped in the middle of a WRITE. The clock
 *       never goes back, not even for a thread that was stopped between its look at the machine's
 *       clock and that at the word.
 */
#include "base/clock.h"
#include "base/mapping.h"
#include "fabric/backends.h"
#include "fabric/direct.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NODE_BYTES_DEFAULT (4ull << 30)

/* The word of MEM-1: the tick of the last reading, modulo 2^34, and the ticks that do not count. */
#define TICK_BITS     20u /* a tick is a millisecond */
#define LOST_BITS     30u
#define TICKS_MASK    ((1ull << (64 - LOST_BITS)) - 1)
#define LOST_MAX      ((1ull << LOST_BITS) - 1) /* 13 days */
#define NOTED_TICKS   8u                        /* between two changes of the word */
#define STOPPED_TICKS 1000u

struct mem_fab {
    struct direct_fab direct;
    _Atomic uint64_t readings;
};

static void mem_close(struct fab *fab)
{
    struct mem_fab *mem = (struct mem_fab *)fab;

    for (unsigned i = 0; i < fab->nodes; i++)
        munmap(mem->direct.base[i], fab->size[i]);
    direct_end(&mem->direct);
    free(mem);
}

/* MEM-1. */
static uint64_t mem_coarse(struct fab_ep *ep)
{
    struct mem_fab *mem = (struct mem_fab *)ep->fab;
    uint64_t now = clock_coarse_ns(), tick = now >> TICK_BITS;
    uint64_t word = atomic_load_explicit(&mem->readings, memory_order_relaxed);
    for (;;) {
        uint64_t last = word >> LOST_BITS, lost = word & LOST_MAX;
        uint64_t since = (tick - last) & TICKS_MASK, ahead = (last - tick) & TICKS_MASK;
        if (ahead < since) /* another thread has looked later: that is the time */
            return (tick + ahead - lost) << TICK_BITS;
        if (since <= NOTED_TICKS)
            return now - (lost << TICK_BITS);
        if (since > STOPPED_TICKS) /* what was returned since `last` counts */
            lost += since - 2 * NOTED_TICKS;
        if (lost > LOST_MAX)
            lost = LOST_MAX;
        if (atomic_compare_exchange_weak(&mem->readings, &word, tick << LOST_BITS | lost))
            return now - (lost << TICK_BITS);
    }
}

static int mem_open(struct uri *uri, struct fab **fab);

#define MEM_OPS                                                                                    \
    .scheme = "mem", .open = mem_open, .close = mem_close, .ep_open = direct_ep_open,              \
    .ep_close = direct_ep_close, .coarse = mem_coarse

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
    struct mem_fab *mem;

    if (uri->rest[0])
        return err_fail(FAR_BAD_URI, "'%s' follows mem:, where only options are allowed",
                        uri->rest);
    int rc = direct_options(uri, NODE_BYTES_DEFAULT, 1, &o);
    if (rc != FAR_OK)
        return rc;
    mem = calloc(1, sizeof *mem);
    if (!mem)
        return err_fail(FAR_NO_MEMORY, "no memory for the fabric mem:");
    direct_init(&mem->direct, &o, &mem_fabric, &mem_deferred);
    mem->direct.fab.fresh = true;
    mem->readings = clock_coarse_ns() >> TICK_BITS << LOST_BITS;
    for (unsigned i = 0; i < o.nodes && rc == FAR_OK; i++)
        rc = add_node(&mem->direct, o.size);
    if (rc != FAR_OK) {
        mem_close(&mem->direct.fab);
        return rc;
    }
    *fab = &mem->direct.fab;
    return FAR_OK;
}
