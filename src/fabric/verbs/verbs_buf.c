/*
 * Buffers that the device may touch.
 *
 * Registering memory takes a system call and a place in the device's tables. So slabs of 2 MiB are
 * registered, and buffers of powers of two are cut from them. A longer buffer gets whole slabs and
 * its own registration. The slabs lie in one reserved range of addresses, so a shift and a load
 * find the key of a buffer. They are registered for local use only: other machines cannot reach
 * them.
 */
#include "fabric/verbs/verbs_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES (1ull << SLAB_SHIFT)

int verbs_arena_open(struct arena *arena)
{
    struct arena a = {.key = calloc(ARENA_SLABS, sizeof *a.key),
                      .mr = calloc(ARENA_SLABS, sizeof(struct ibv_mr *)),
                      .used = calloc(ARENA_SLABS, sizeof *a.used)};

    a.base = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a.base == MAP_FAILED)
        a.base = NULL;
    *arena = a;
    if (!a.key || !a.mr || !a.used || !a.base) {
        verbs_arena_close(arena);
        return err_fail(FAR_NO_MEMORY, "no address space for the buffers of verbs:");
    }
    return FAR_OK;
}

void verbs_arena_close(struct arena *arena)
{
    for (size_t i = 0; arena->mr && i < ARENA_SLABS; i++) {
        if (arena->mr[i])
            ibv_dereg_mr(arena->mr[i]);
    }
    if (arena->base)
        munmap(arena->base, ARENA_BYTES);
    free(arena->key);
    free(arena->mr);
    free(arena->used);
    *arena = (struct arena){0};
}

/* The first of `count` free slabs in a row; ARENA_SLABS if there are none. */
static size_t find_slabs(const struct arena *arena, size_t count)
{
    size_t free_slabs = 0;

    for (size_t i = 0; i < ARENA_SLABS; i++) {
        free_slabs = arena->used[i] ? 0 : free_slabs + 1;
        if (free_slabs == count)
            return i + 1 - count;
    }
    return ARENA_SLABS;
}

static char *take_slabs(struct arena *arena, size_t count)
{
    size_t first = find_slabs(arena, count);
    char *at = arena->base + (first << SLAB_SHIFT);
    struct ibv_mr *mr = NULL;

    if (first == ARENA_SLABS || mprotect(at, count << SLAB_SHIFT, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    mr = ibv_reg_mr(arena->pd, at, count << SLAB_SHIFT, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) {
        mprotect(at, count << SLAB_SHIFT, PROT_NONE);
        return NULL;
    }
    arena->mr[first] = mr;
    for (size_t i = first; i < first + count; i++) {
        arena->used[i] = true;
        arena->key[i] = mr->lkey;
    }
    return at;
}

static void give_back_slabs(struct arena *arena, char *at, size_t count)
{
    size_t first = (size_t)(at - arena->base) >> SLAB_SHIFT;

    ASSERT(first + count <= ARENA_SLABS && arena->mr[first]);
    ibv_dereg_mr(arena->mr[first]);
    arena->mr[first] = NULL;
    /* New pages replace the old ones, so they are zeroed when they are used again. If the kernel
     * refuses, the addresses are never used again. */
    if (mmap(at, count << SLAB_SHIFT, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED)
        memset(&arena->used[first], 0, count * sizeof *arena->used);
}

static size_t slabs_for(size_t bytes)
{
    return (bytes + SLAB_BYTES - 1) >> SLAB_SHIFT;
}

static unsigned class_of(size_t bytes)
{
    return bytes <= BUF_MIN ? 0 : (unsigned)(64 - __builtin_clzll(bytes - 1)) - BUF_SMALLEST;
}

void *verbs_arena_alloc(struct arena *arena, size_t bytes)
{
    unsigned class = class_of(bytes);
    char *buf;

    if (bytes > ARENA_BYTES)
        return NULL;
    if (class >= BUF_CLASSES) /* the pages are new, so they are zeroed */
        return take_slabs(arena, slabs_for(bytes));
    buf = arena->free_buf[class];
    if (buf) {
        memcpy(&arena->free_buf[class], buf, sizeof(void *));
        return memset(buf, 0, bytes);
    }
    size_t room = (size_t)BUF_MIN << class;
    if ((size_t)(arena->cut_end - arena->cut) < room) {
        buf = take_slabs(arena, 1);
        if (!buf)
            return NULL;
        arena->cut = buf;
        arena->cut_end = buf + SLAB_BYTES;
    }
    buf = arena->cut;
    arena->cut += room;
    return buf;
}

void verbs_arena_free(struct arena *arena, void *buf, size_t bytes)
{
    unsigned class = class_of(bytes);

    if (!buf)
        return;
    if (class >= BUF_CLASSES) {
        give_back_slabs(arena, buf, slabs_for(bytes));
        return;
    }
    memcpy(buf, &arena->free_buf[class], sizeof(void *));
    arena->free_buf[class] = buf;
}
