/* The shadow of a simulated pool's memory. */
#include "check/shadow.h"
#include "pool/pool_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN 0xddu
enum { IN_USE, FREE };

static void mistake(struct shadow *map, unsigned node, uint64_t off, const char *what)
{
    char text[128];
    snprintf(text, sizeof text, "%s at node %u, offset 0x%llx", what, node,
             (unsigned long long)off);
    map->mistake(map->arg, text);
}

/* Under SIM_IB_LOOSE a WRITE may land after it was answered, and clients may act on what they read
 * before that. So verbs in free memory are no mistakes there. */
static bool lands_late(const struct shadow *map)
{
    return map->set->profile == SIM_IB_LOOSE;
}

static void verify(struct shadow *map, gaddr at, uint64_t bytes)
{
    unsigned node = gaddr_node(at);
    uint64_t off = gaddr_offset(at);
    const uint8_t *memory = (const uint8_t *)sim_memory(map->sim, node) + off;
    for (uint64_t i = 0; i < bytes && !lands_late(map); i++)
        if (memory[i] != PATTERN) {
            mistake(map, node, off + i, "free memory was written to");
            return;
        }
}

/* What a client that was declared dead does with the memory it thinks it holds does not matter: it
 * cannot write any more. A client that registers again under a new identity is already registered
 * while its own fields still say otherwise. */
static bool is_registered(const struct shadow *map, const struct client *c)
{
    if (c->slot == NO_SLOT)
        return false;
    uint64_t incarnation = sim_word(map->sim, 0, slot_delta(c->slot));
    return incarnation == c->incarnation ||
           (incarnation != 0 && incarnation == sim_identity(map->sim));
}

static uint8_t *units_of(struct shadow *map, gaddr at, uint64_t bytes)
{
    unsigned node = gaddr_node(at);
    uint64_t first = gaddr_offset(at) / 64;
    ASSERT(node < map->set->nodes && first + bytes / 64 <= map->units);
    return map->free[node] + first;
}

static void freed(const struct free_watch *watch, const struct client *by, gaddr at,
                  unsigned size_class)
{
    struct shadow *map = (struct shadow *)(uintptr_t)watch; /* the watch comes first */
    uint64_t bytes = size_class_bytes(size_class);
    uint8_t *units = units_of(map, at, bytes);
    if (!is_registered(map, by))
        return;
    if (!memchr(units, IN_USE, bytes / 64)) { /* free before: another passes it on */
        verify(map, at, bytes);
        return;
    }
    memset(units, FREE, bytes / 64);
    sim_fill(map->sim, gaddr_node(at), gaddr_offset(at), bytes, PATTERN);
}

static void taken(const struct free_watch *watch, const struct client *by, gaddr at,
                  unsigned size_class)
{
    struct shadow *map = (struct shadow *)(uintptr_t)watch;
    uint64_t bytes = size_class_bytes(size_class);
    uint8_t *units = units_of(map, at, bytes);
    if (!is_registered(map, by))
        return;
    if (memchr(units, IN_USE, bytes / 64))
        mistake(map, gaddr_node(at), gaddr_offset(at), "memory in use was handed out");
    else
        verify(map, at, bytes);
    memset(units, IN_USE, bytes / 64);
    for (uint8_t *uses = units + map->units, *end = uses + bytes / 64; uses < end; uses++)
        *uses += *uses < 2;
    map->reused++;
}

/* Without a fence, a client that was declared dead may still read. */
static bool may_read(const struct shadow *map, uint64_t identity)
{
    if (!map->set->no_fence)
        return false;
    uint64_t high = sim_word(map->sim, 0, CONTROL_OFF + offsetof(struct pool_control, high));
    for (unsigned i = 0; i < high; i++)
        if (sim_word(map->sim, 0, slot_delta(i)) == identity)
            return false;
    return true;
}

static void touched(void *arg, unsigned client, uint64_t identity, const struct fab_verb *v)
{
    struct shadow *map = arg;
    char what[64];
    bool reads = v->kind == FAB_READ;
    if (lands_late(map) || (reads && (v->flags & FAB_MAY_BE_FREED)))
        return;
    uint64_t first = v->off / 64, last = (v->off + v->len - 1) / 64;
    if (!memchr(map->free[v->node] + first, FREE, last - first + 1) ||
        (reads && may_read(map, identity)))
        return;
    snprintf(what, sizeof what, "client %u %s free memory", client,
             reads                  ? "reads"
             : v->kind == FAB_WRITE ? "writes to"
                                    : "has an atomic in");
    mistake(map, v->node, v->off, what);
}

unsigned shadow_uses(void *arg, const struct fab_verb *v)
{
    const struct shadow *map = arg;
    unsigned most = 0;
    for (uint64_t i = v->off / 64; i <= (v->off + v->len - 1) / 64 && most < 2; i++)
        if (map->uses[v->node][i] > most)
            most = map->uses[v->node][i];
    return most;
}

bool shadow_begin(struct shadow *map, struct sim *sim, const struct sim_settings *set,
                  void (*on_mistake)(void *arg, const char *what), void *arg)
{
    uint64_t units = set->node_bytes / 64;
    map->watch = (struct free_watch){.freed = freed, .taken = taken};
    map->sim = sim;
    map->set = set;
    map->reused = 0;
    map->mistake = on_mistake;
    map->arg = arg;
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        if (map->units != units) {
            free(map->free[i]);
            map->free[i] = NULL;
        }
        if (i < set->nodes && !map->free[i] && !(map->free[i] = malloc(2 * units)))
            return false;
        if (i >= set->nodes)
            continue;
        map->uses[i] = map->free[i] + units;
        memset(map->free[i], IN_USE, units);
        memset(map->uses[i], 0, units);
    }
    map->units = units;
    sim_watch(sim, touched, map);
    return true;
}

void shadow_free(struct shadow *map)
{
    for (unsigned i = 0; i < SIM_NODES_MAX; i++)
        free(map->free[i]);
    memset(map, 0, sizeof *map);
}
