/* The account of a pool's memory. */
#include "check/audit.h"
#include "pool/pool_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const place_name[AUDIT_PLACES] = {
    [AUDIT_NOWHERE] = "nowhere",
    [AUDIT_LIVE] = "reachable",
    [AUDIT_LISTED] = "on a shared list",
    [AUDIT_HELD] = "in a client's stock",
    [AUDIT_RETIRED] = "in a client's limbo",
};

static void audit_note(struct audit *a, gaddr at, unsigned size_class, enum audit_place place)
{
    unsigned node = gaddr_node(at);
    uint64_t from = gaddr_offset(at) / 64, bytes = size_class_bytes(size_class);
    bool inside =
        node < a->pool->pool.nodes && gaddr_offset(at) + bytes <= a->pool->fab->size[node];
    for (uint64_t i = from; i < from + bytes / 64; i++) {
        if (!inside || a->place[node][i] != AUDIT_NOWHERE) {
            if (a->wrong++ == 0)
                snprintf(a->first, sizeof a->first,
                         "at node %u, offset 0x%llx, class %u: %s and %s", node,
                         (unsigned long long)gaddr_offset(at), size_class, place_name[place],
                         inside ? place_name[a->place[node][i]] : "outside of the node");
            return;
        }
        a->place[node][i] = (uint8_t)place;
    }
    a->bytes[place] += bytes;
}

/* Several paths may lead to a reachable object; it is noted once. */
static void audit_mark(struct marker *marker, gaddr at, unsigned size_class)
{
    struct audit *a = (struct audit *)marker;
    unsigned node = gaddr_node(at);
    if (node >= a->pool->pool.nodes || gaddr_offset(at) >= a->pool->fab->size[node] ||
        a->place[node][gaddr_offset(at) / 64] != AUDIT_LIVE)
        audit_note(a, at, size_class, AUDIT_LIVE);
}

/* A word of the pool; 0 if it cannot be read. */
static uint64_t get(struct audit *a, gaddr at, uint64_t delta)
{
    struct batch *b = &a->op->batch;
    batch_read(b, at, delta, a->op->pool_word, 8);
    return batch_flush(b) == FAR_OK ? a->op->pool_word[0] : 0;
}

static void audit_lists(struct audit *a)
{
    const gaddr gaddr_mask = (1ull << GADDR_BITS) - 1;
    for (unsigned node = 0; node < a->pool->pool.nodes; node++) {
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            gaddr page = get(a, gaddr_make(node, 0), NODE_FREE_OFF + i * 8ull) & gaddr_mask;
            for (unsigned n = 0; page != 0 && n < 1u << 20; n++) {
                /* The top bit says that the page is an object of the list's class. */
                uint64_t next = get(a, page, 8), own = next >> 63;
                uint64_t count = (next & ~(1ull << 63)) >> GADDR_BITS;
                for (uint64_t k = 0; k < count && k < 62; k++)
                    audit_note(a, get(a, page, 16 + 8 * k) & gaddr_mask, i, AUDIT_LISTED);
                audit_note(a, page, own ? i : BUNDLE_CLASS, AUDIT_LISTED);
                page = next & gaddr_mask;
            }
        }
    }
}

static void audit_client(struct audit *a, const struct client *c)
{
    const gaddr gaddr_mask = (1ull << GADDR_BITS) - 1;
    uint64_t held = a->bytes[AUDIT_HELD], retired = a->bytes[AUDIT_RETIRED];
    for (unsigned node = 0; node < a->pool->pool.nodes; node++) {
        for (unsigned i = 0; i < CLASS_COUNT; i++) {
            const struct stock *s = &c->stock.of[node][i];
            for (unsigned n = 0; n < s->kept; n++)
                audit_note(a, s->keep[n], i, AUDIT_HELD);
            for (unsigned n = 0; n < s->left; n++)
                audit_note(a, s->next + (uint64_t)n * size_class_bytes(i) / 64, i, AUDIT_HELD);
        }
    }
    for (size_t n = 0; n < c->stock.limbo.count; n++) {
        uint64_t object =
            c->stock.limbo.ring[(c->stock.limbo.head + n) & (c->stock.limbo.room - 1)].object;
        audit_note(a, object & gaddr_mask, (unsigned)(object >> GADDR_BITS), AUDIT_RETIRED);
    }
    /* Its own counts must agree. */
    if (a->wrong == 0 && (a->bytes[AUDIT_HELD] - held != c->stock.held_bytes ||
                          a->bytes[AUDIT_RETIRED] - retired != c->stock.retired_bytes)) {
        a->wrong++;
        snprintf(a->first, sizeof a->first,
                 "client %u: it holds %llu and has retired %llu bytes, but counts %llu and %llu",
                 c->slot, (unsigned long long)(a->bytes[AUDIT_HELD] - held),
                 (unsigned long long)(a->bytes[AUDIT_RETIRED] - retired),
                 (unsigned long long)c->stock.held_bytes,
                 (unsigned long long)c->stock.retired_bytes);
    }
}

/* Counts what is in no place, in chunks that were handed out. */
static void audit_rest(struct audit *a)
{
    for (unsigned node = 0; node < a->pool->pool.nodes; node++) {
        const struct node_head *head = &a->pool->pool.head[node];
        uint64_t chunks = get(a, gaddr_make(node, 0), NODE_NEXT_CHUNK_OFF), run = 1;
        chunks = chunks < head->chunks ? chunks : head->chunks;
        for (uint64_t chunk = 0; chunk < chunks; chunk += run) {
            uint64_t entry = get(a, gaddr_make(node, 0), head->table_off + chunk * 8);
            unsigned kind = chunk_kind(entry), size_class = chunk_class(entry);
            uint64_t start = (head->chunks_off64 * 64ull + (chunk << CHUNK_SHIFT)) / 64;
            run = kind == CHUNK_LARGE ? size_class_chunks(size_class) : 1;
            if (kind != CHUNK_SLAB && kind != CHUNK_LARGE) {
                a->bytes[AUDIT_NOWHERE] += CHUNK_BYTES;
                continue;
            }
            uint64_t bytes = size_class_bytes(size_class);
            uint64_t objects = kind == CHUNK_LARGE ? 1 : CHUNK_BYTES / bytes;
            for (uint64_t i = 0; i < objects; i++)
                if (a->place[node][start + i * bytes / 64] == AUDIT_NOWHERE)
                    a->bytes[AUDIT_NOWHERE] += bytes;
        }
    }
}

/* Does what a client holds belong to it? Not if it was declared dead, nor (EPOCH-E5) if it was
 * parked during a sweep. */
static bool owns_memory(struct audit *a, const struct client *c)
{
    gaddr node0 = gaddr_make(0, 0);
    if (c->slot == NO_SLOT ||
        get(a, node0, CLIENTS_OFF + c->slot * sizeof(struct client_slot)) != c->incarnation)
        return false;
    return !c->attention.parked ||
           get(a, node0, CONTROL_OFF + offsetof(struct pool_control, sweeps)) == c->sweep.counted;
}

int sim_audit(struct audit *a, far_pool *pool, far_session *const *sessions, unsigned count)
{
    ASSERT(count > 0 && sessions[0]);
    unsigned damaged = 0, slot = 0;
    int rc = FAR_OK;
    memset(a, 0, sizeof *a);
    a->marker.mark = audit_mark;
    a->pool = pool;
    a->op = &sessions[0]->op;
    for (unsigned node = 0; node < pool->pool.nodes; node++)
        if (!(a->place[node] = calloc(1, pool->fab->size[node] / 64)))
            rc = err_fail(FAR_NO_MEMORY, "no memory for an audit");
    if (rc == FAR_OK)
        rc = catalog_mark(a->op, &a->marker);
    if (rc == FAR_OK)
        rc = journal_mark(a->op, &a->marker, &damaged, &slot);
    if (damaged > 0) {
        a->wrong++;
        snprintf(a->first, sizeof a->first, "the journal of client slot %u is damaged", slot);
    }
    if (rc == FAR_OK)
        rc = pool->pool.mark(pool->pool.tables, a->op, &a->marker);
    const struct batch_policy *policy = client_set_policy(a->op, POLICY_SILENT);
    for (unsigned i = 0; i < count && rc == FAR_OK; i++)
        if (sessions[i] && owns_memory(a, &sessions[i]->client))
            audit_client(a, &sessions[i]->client);
    if (rc == FAR_OK) {
        audit_lists(a);
        audit_rest(a);
    }
    a->op->batch.policy = policy;
    for (unsigned node = 0; node < pool->pool.nodes; node++)
        free(a->place[node]);
    return rc;
}
