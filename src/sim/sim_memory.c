/* The memory of the simulated nodes, and what verbs do to it. */
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- pages ----------------------------------------------------------------------------------- */

void sim_memory_touch(struct sim *sim, unsigned node, uint64_t off, uint64_t len)
{
    if (len == 0)
        return;
    uint64_t last = (off + len - 1) >> SIM_PAGE_SHIFT;
    for (uint64_t page = off >> SIM_PAGE_SHIFT; page <= last; page++) {
        if (sim->dirty[node][page])
            continue;
        sim->dirty[node][page] = 1;
        sim->dirty_page[node][sim->dirty_count[node]++] = (uint32_t)page;
    }
}

/* Zeroes only what earlier runs wrote: most of a node is never touched. */
bool sim_memory_clean(struct sim *sim, unsigned node, uint64_t bytes)
{
    if (sim->memory_bytes[node] == bytes) {
        for (uint32_t i = 0; i < sim->dirty_count[node]; i++) {
            uint32_t page = sim->dirty_page[node][i];
            memset(sim->memory[node] + ((uint64_t)page << SIM_PAGE_SHIFT), 0, 1u << SIM_PAGE_SHIFT);
            memset(sim->tail_memory[node] + ((uint64_t)page << SIM_PAGE_SHIFT), 0,
                   1u << SIM_PAGE_SHIFT);
            sim->dirty[node][page] = 0;
        }
        sim->dirty_count[node] = 0;
        return true;
    }
    free(sim->memory[node]);
    free(sim->tail_memory[node]);
    free(sim->dirty[node]);
    free(sim->dirty_page[node]);
    uint64_t pages = (bytes >> SIM_PAGE_SHIFT) + 1;
    sim->memory[node] = calloc(pages, 1u << SIM_PAGE_SHIFT);
    sim->tail_memory[node] = calloc(pages, 1u << SIM_PAGE_SHIFT);
    sim->dirty[node] = calloc(pages, 1);
    sim->dirty_page[node] = calloc(pages, sizeof *sim->dirty_page[node]);
    sim->dirty_count[node] = 0;
    bool all =
        sim->memory[node] && sim->tail_memory[node] && sim->dirty[node] && sim->dirty_page[node];
    sim->memory_bytes[node] = all ? bytes : 0;
    return all;
}

const void *sim_memory(const struct sim *sim, unsigned node)
{
    ASSERT(node < sim->set.nodes);
    return sim->memory[node];
}

uint64_t sim_word(const struct sim *sim, unsigned node, uint64_t off)
{
    ASSERT(node < sim->set.nodes && off + 8 <= sim->set.node_bytes);
    uint64_t word = 0;
    memcpy(&word, sim->memory[node] + off, sizeof word);
    return word;
}

void sim_fill(struct sim *sim, unsigned node, uint64_t off, uint64_t bytes, uint8_t byte)
{
    ASSERT(node < sim->set.nodes && off + bytes <= sim->set.node_bytes);
    sim_memory_touch(sim, node, off, bytes);
    memset(sim->memory[node] + off, byte, bytes);
    memset(sim->tail_memory[node] + off, byte, bytes);
    for (unsigned i = sim->holds; i-- > 0;) /* memory that is freed with locks set: they end */
        if (sim->hold[i].node == node && sim->hold[i].off - off < bytes)
            sim->hold[i] = sim->hold[--sim->holds];
}

/* ---- READ and WRITE -------------------------------------------------------------------------- */

uint64_t *sim_memory_word(struct sim *sim, unsigned node, uint64_t off)
{
    return (uint64_t *)(void *)(sim->memory[node] + off);
}

static uint64_t hash_word(unsigned node, uint64_t off, uint64_t word)
{
    return word ? mix(mix(0x5bd1e995u + node, off), word) : 0;
}

void sim_memory_move(struct sim *sim, const struct fab_verb *v, uint64_t from, uint64_t to)
{
    ASSERT(from >= v->off && from <= to && to <= v->off + v->len);
    uint8_t *far = sim->memory[v->node] + from;
    uint8_t *near = (uint8_t *)v->buf + (from - v->off);
    bool tail = sim->set.tails && !sim->alone[v->node] && (v->flags & FAB_MARK) != MARK_HEAD;
    if (v->kind == FAB_READ) {
        memcpy(near, tail ? sim->tail_memory[v->node] + from : far, to - from);
    } else {
        sim_memory_touch(sim, v->node, from, to - from);
        memcpy(far, near, to - from);
    }
}

/* For an enumeration: a hash of what a READ reads; updates the hash of memory for a WRITE. Call it
 * before the bytes move. */
static uint64_t hash_move(struct sim *sim, const struct fab_verb *v, uint64_t from, uint64_t to)
{
    uint64_t h = 0;
    const uint64_t *far = sim_memory_word(sim, v->node, from);
    const uint64_t *near = (const uint64_t *)(const void *)((char *)v->buf + (from - v->off));
    for (size_t i = 0; i < (to - from) / 8; i++) {
        uint64_t off = from + 8 * i;
        if (v->kind == FAB_READ)
            h = mix(h, far[i]);
        else
            sim->memory_hash ^= hash_word(v->node, off, far[i]) ^ hash_word(v->node, off, near[i]);
    }
    return h;
}

uint64_t sim_memory_move_pieces(struct sim *sim, struct sim_verb *verb, uint64_t pieces)
{
    const struct fab_verb *v = &verb->v;
    uint64_t bytes = verb->piece_bytes, base = v->off / bytes * bytes, end = v->off + v->len;
    uint64_t h = pieces;
    ASSERT(pieces != 0 && (pieces & ~verb->left) == 0);
    verb->left &= ~pieces;
    while (pieces) {
        unsigned first = (unsigned)__builtin_ctzll(pieces);
        uint64_t rest = ~(pieces >> first);
        unsigned run = rest ? (unsigned)__builtin_ctzll(rest) : 64;
        uint64_t from = base + first * bytes, to = from + run * bytes;
        if (from < v->off)
            from = v->off;
        if (to > end)
            to = end;
        if (sim->harness_hash)
            h = mix(h, hash_move(sim, v, from, to));
        sim_memory_move(sim, v, from, to);
        pieces &= run + first >= 64 ? 0 : UINT64_MAX << (run + first);
    }
    return h;
}

/* ---- atomics --------------------------------------------------------------------------------- */

uint64_t sim_atomic_result(const struct fab_verb *v, uint64_t old)
{
    switch (v->kind) {
    case FAB_CAS:
        return old == v->compare ? v->swap : old;
    case FAB_MCAS:
        if (((old ^ v->compare) & v->compare_mask) != 0)
            return old;
        return (old & ~v->swap_mask) | (v->swap & v->swap_mask);
    default:
        return old + v->swap;
    }
}

void sim_atomic_write(struct sim *sim, const struct fab_verb *v, uint64_t new)
{
    uint64_t *word = sim_memory_word(sim, v->node, v->off);
    sim_memory_touch(sim, v->node, v->off, 8);
    if (sim->harness_hash)
        sim->memory_hash ^= hash_word(v->node, v->off, *word) ^ hash_word(v->node, v->off, new);
    *word = new;
}

void sim_atomic_whole(struct sim *sim, const struct fab_verb *v)
{
    uint64_t old = *sim_memory_word(sim, v->node, v->off), new = sim_atomic_result(v, old);
    if (new != old) /* a failed comparison writes nothing */
        sim_atomic_write(sim, v, new);
    memcpy(v->buf, &old, 8);
}

struct busy_word *sim_busy_find(struct sim *sim, const struct fab_verb *v)
{
    for (unsigned i = 0; i < sim->busy_count; i++)
        if (sim->busy[i].node == v->node && sim->busy[i].off == v->off)
            return &sim->busy[i];
    return NULL;
}

void sim_busy_set(struct sim *sim, const struct fab_verb *v)
{
    ASSERT(!sim_busy_find(sim, v)); /* NIC-N3 */
    ASSERT(sim->busy_count < sizeof sim->busy / sizeof *sim->busy);
    sim->busy[sim->busy_count++] = (struct busy_word){.node = v->node, .off = v->off};
}

void sim_busy_clear(struct sim *sim, const struct fab_verb *v)
{
    struct busy_word *busy = sim_busy_find(sim, v);
    ASSERT(busy);
    *busy = sim->busy[--sim->busy_count];
}
