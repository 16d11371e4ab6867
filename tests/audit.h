/*
 * An account of a quiet pool's memory, made from outside: every object of every chunk is reachable,
 * on a shared list, in a client's stock or waiting in its limbo; in one of these, once, or lost.
 */
#ifndef TESTS_AUDIT_H
#define TESTS_AUDIT_H

#include "probe.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>

enum audit_place {
    AUDIT_NOWHERE,
    AUDIT_LIVE,
    AUDIT_LISTED,
    AUDIT_HELD,
    AUDIT_RETIRED,
    AUDIT_PLACES
};

struct audit {
    struct marker marker;
    far_pool *pool;
    uint8_t *place[FAB_NODES_MAX]; /* of each 64-byte unit of a node */
    uint64_t bytes[AUDIT_PLACES];  /* AUDIT_NOWHERE: lost */
    unsigned wrong;                /* objects in two places, or outside the chunks */
    char first[160];               /* the first of them */
};

static inline void audit_note(struct audit *a, gaddr at, unsigned size_class,
                              enum audit_place place)
{
    unsigned node = gaddr_node(at);
    uint64_t from = gaddr_offset(at) / 64, bytes = class_bytes(size_class);
    bool inside =
        node < a->pool->pool.nodes && gaddr_offset(at) + bytes <= a->pool->fab->size[node];
    for (uint64_t i = from; i < from + bytes / 64; i++) {
        if (!inside || a->place[node][i] != AUDIT_NOWHERE) {
            if (a->wrong++ == 0)
                snprintf(a->first, sizeof a->first, "node %u offset %llx class %u: %u and %u", node,
                         (unsigned long long)gaddr_offset(at), size_class,
                         inside ? a->place[node][i] : 0u, place);
            return;
        }
        a->place[node][i] = (uint8_t)place;
    }
    a->bytes[place] += bytes;
}

/* Several paths may lead to an object that is reachable: it is noted once. */
static inline void audit_mark(struct marker *marker, gaddr at, unsigned size_class)
{
    struct audit *a = (struct audit *)marker;
    unsigned node = gaddr_node(at);
    if (node >= a->pool->pool.nodes || gaddr_offset(at) >= a->pool->fab->size[node] ||
        a->place[node][gaddr_offset(at) / 64] != AUDIT_LIVE)
        audit_note(a, at, size_class, AUDIT_LIVE);
}

static inline void audit_lists(struct audit *a, struct probe *p)
{
    const gaddr gaddr_mask = (1ull << GADDR_BITS) - 1;
    for (unsigned node = 0; node < a->pool->pool.nodes; node++) {
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            gaddr page = probe_get(p, gaddr_make(node, 0), NODE_FREE_OFF + i * 8ull) & gaddr_mask;
            for (unsigned n = 0; page != 0 && n < 1u << 20; n++) {
                uint64_t next = probe_get(p, page, 8), count = next >> GADDR_BITS;
                for (uint64_t k = 0; k < count && k < 62; k++)
                    audit_note(a, probe_get(p, page, 16 + 8 * k) & gaddr_mask, i, AUDIT_LISTED);
                audit_note(a, page, BUNDLE_CLASS, AUDIT_LISTED);
                page = next & gaddr_mask;
            }
        }
    }
}

static inline void audit_client(struct audit *a, const struct client *c)
{
    const gaddr gaddr_mask = (1ull << GADDR_BITS) - 1;
    uint64_t held = a->bytes[AUDIT_HELD], retired = a->bytes[AUDIT_RETIRED];
    for (unsigned node = 0; node < a->pool->pool.nodes; node++) {
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            const struct stock *s = &c->stock[node][i];
            for (unsigned n = 0; n < s->kept; n++)
                audit_note(a, s->keep[n], i, AUDIT_HELD);
            for (unsigned n = 0; n < s->left; n++)
                audit_note(a, s->next + (uint64_t)n * class_bytes(i) / 64, i, AUDIT_HELD);
        }
    }
    for (size_t n = 0; n < c->limbo.count; n++) {
        uint64_t object = c->limbo.ring[(c->limbo.head + n) & (c->limbo.room - 1)].object;
        audit_note(a, object & gaddr_mask, (unsigned)(object >> GADDR_BITS), AUDIT_RETIRED);
    }
    /* What it says of itself is right. */
    if (a->wrong == 0 && (a->bytes[AUDIT_HELD] - held != c->held_bytes ||
                          a->bytes[AUDIT_RETIRED] - retired != c->retired_bytes)) {
        a->wrong++;
        snprintf(a->first, sizeof a->first, "client %u has %llu and %llu, and says %llu and %llu",
                 c->slot, (unsigned long long)(a->bytes[AUDIT_HELD] - held),
                 (unsigned long long)(a->bytes[AUDIT_RETIRED] - retired),
                 (unsigned long long)c->held_bytes, (unsigned long long)c->retired_bytes);
    }
}

/* Counts what is in no place: objects of chunks that were handed out. */
static inline void audit_rest(struct audit *a, struct probe *p)
{
    for (unsigned node = 0; node < a->pool->pool.nodes; node++) {
        const struct node_head *head = &a->pool->pool.head[node];
        uint64_t chunks = probe_get(p, gaddr_make(node, 0), NODE_NEXT_CHUNK_OFF), run = 1;
        chunks = chunks < head->chunks ? chunks : head->chunks;
        for (uint64_t chunk = 0; chunk < chunks; chunk += run) {
            uint64_t entry = probe_get(p, gaddr_make(node, 0), head->table_off + chunk * 8);
            unsigned kind = entry & 0xff, size_class = entry >> 8 & 0xff;
            uint64_t start = (head->chunks_off64 * 64ull + (chunk << CHUNK_SHIFT)) / 64;
            run = kind == CHUNK_LARGE ? class_chunks(size_class) : 1;
            if (kind != CHUNK_SLAB && kind != CHUNK_LARGE) {
                a->bytes[AUDIT_NOWHERE] += CHUNK_BYTES;
                continue;
            }
            uint64_t bytes = class_bytes(size_class);
            uint64_t objects = kind == CHUNK_LARGE ? 1 : CHUNK_BYTES / bytes;
            for (uint64_t i = 0; i < objects; i++)
                if (a->place[node][start + i * bytes / 64] == AUDIT_NOWHERE)
                    a->bytes[AUDIT_NOWHERE] += bytes;
        }
    }
}

/* No operation is in flight. Sessions may be NULL; the first is used for looking. */
static inline void audit_run(struct audit *a, far_pool *pool, far_session *const *sessions,
                             unsigned count)
{
    struct probe p;
    memset(a, 0, sizeof *a);
    a->marker.mark = audit_mark;
    a->pool = pool;
    probe_open(&p, pool->fab);
    for (unsigned node = 0; node < pool->pool.nodes; node++)
        ASSERT((a->place[node] = calloc(1, pool->fab->size[node] / 64)) != NULL);
    ASSERT(catalog_mark(&sessions[0]->op, &a->marker) == FAR_OK);
    ASSERT(pool->pool.mark(pool->pool.tables, &sessions[0]->op, &a->marker) == FAR_OK);
    for (unsigned i = 0; i < count; i++)
        if (sessions[i])
            audit_client(a, &sessions[i]->client);
    audit_lists(a, &p);
    audit_rest(a, &p);
    for (unsigned node = 0; node < pool->pool.nodes; node++)
        free(a->place[node]);
    probe_close(&p);
}

#endif
