/* Opening a pool: laying it out on fresh memory, or reading and judging an existing one. */
#include "pool/pool_internal.h"

#include "base/clock.h"

#include <string.h>
#include <unistd.h>

const struct knobs pool_knobs_default = {
    .hash_mask = UINT64_MAX,
    .fingerprint_mask = 0xff,
    .generation_mask = 0xff,
    .patience = 200,
    .tick_ops = 128,
    .stock_max = 1024,
    .run_chunks = 1,
    .bundle_max = BUNDLE_MAX,
    .hits = 64,
    .iterate_parts = UINT32_MAX,
    .stem_slack = 4,
    .resize_steps = 1,
    .clear_part = 256u << 10,
    .group_words = 4096,
    .group_spares = 3,
    .turn_queues = 1024,
};

#define CLIENTS_DEFAULT 256
#define LEASE_MS        5000
#define NODE_BYTES_MAX  (1ull << (GADDR_UNIT_BITS + 6))

static int plan_node(const struct fab *fab, unsigned node, bool witness, uint64_t pool_id,
                     struct node_head *head)
{
    uint64_t size = fab->size[node];
    uint64_t clients = fab->clients_wanted ? fab->clients_wanted : CLIENTS_DEFAULT;
    uint64_t catalog_bytes = node == 0 ? catalog_places(size) * sizeof(struct catalog_entry) : 0;
    uint64_t table_off = catalog_off(clients, fab->voters > 0) + catalog_bytes;

    if (size > NODE_BYTES_MAX)
        return err_fail(FAR_INVALID, "node %u has %llu bytes: at most 1 TiB can be addressed", node,
                        (unsigned long long)size);
    uint64_t chunks = witness ? 0 : size / (CHUNK_BYTES + 8), chunks_off = 0;
    for (; chunks > 0; chunks--) {
        chunks_off = (table_off + chunks * 8 + CHUNK_BYTES - 1) & ~(CHUNK_BYTES - 1);
        if (chunks_off + chunks * CHUNK_BYTES <= size)
            break;
    }
    if (witness && (fab->voters == 0 || table_off > size))
        return err_fail(FAR_INVALID, "node %u is a witness: %s", node,
                        fab->voters == 0 ? "the pool has no voters; give voters=3"
                                         : "it is too small for so many clients");
    if (chunks == 0 && !witness)
        return err_fail(FAR_POOL_FULL, "node %u has %llu bytes: too few to hold a pool", node,
                        (unsigned long long)size);
    *head = (struct node_head){
        .magic = POOL_MAGIC,
        .layout_version = POOL_LAYOUT_VERSION,
        .node = (uint16_t)node,
        .nodes = (uint16_t)fab->nodes,
        .pool_id = pool_id,
        .size = size,
        .clients = (uint32_t)clients,
        .table_off = (uint32_t)table_off,
        .chunks = (uint32_t)chunks,
        .chunks_off64 = (uint32_t)(chunks_off / 64),
        .lease_ms = (uint32_t)(fab->lease_ms ? fab->lease_ms : LEASE_MS),
        .flags = node_head_flags(fab->wait == FAB_WAIT, witness, (unsigned)fab->voters)};
    head->checksum = superblock_sum(head);
    return FAR_OK;
}

/* For verbs: what is written to a node, or read from it. */
struct image {
    struct node_head head;
    struct members_head members;
    uint64_t life, kind;
};
_Static_assert(offsetof(struct image, kind) - offsetof(struct image, life) ==
                   NODE_KIND_OFF - NODE_LIFE_OFF,
               "they are read together");

/* Asks the nodes what they are. *witnesses: those that are to have no data, as bits. */
static int ask_nodes(struct batch *b, const struct fab *fab, struct image *image, uint64_t *life,
                     uint64_t *witnesses)
{
    *witnesses = 0;
    for (unsigned i = 0; i < fab->nodes; i++) {
        batch_read(b, gaddr_make(i, 0), NODE_LIFE_OFF, &image->life, 16);
        int rc = batch_flush(b);
        if (rc != FAR_OK)
            return rc;
        bool witness = image->kind == NODE_KIND_WITNESS;
        if (witness ? i == 0 : *witnesses != 0)
            return err_fail(FAR_INVALID, "node %u is a witness: witnesses come last in the URI",
                            witness ? i : i - 1);
        life[i] = image->life;
        *witnesses |= (uint64_t)witness << i;
    }
    return FAR_OK;
}

/* Can the pool be made? Before anything is written, because what a failure leaves behind would be
 * damage in the next pool there. */
static int check_plan(const struct fab *fab, uint64_t witnesses, struct node_head *head)
{
    unsigned voters = (unsigned)fab->voters;
    if (voters > fab->nodes)
        return err_fail(FAR_INVALID, "the pool has %u nodes: too few for %u voters", fab->nodes,
                        voters);
    if (voters > 0 && fab->nodes == FAB_NODES_MAX) /* WORDS-1 */
        return err_fail(FAR_INVALID, "a pool with voters has %u nodes at most", FAB_NODES_MAX - 1);
    for (unsigned i = 0; i < fab->nodes; i++) {
        int rc = plan_node(fab, i, witnesses >> i & 1, 0, head);
        if (rc != FAR_OK)
            return rc;
    }
    return FAR_OK;
}

/* All nodes of a pool with voters have the head of the log of members. */
static int format_members(struct batch *b, const struct fab *fab, struct image *image)
{
    uint64_t clients = fab->clients_wanted ? fab->clients_wanted : CLIENTS_DEFAULT;
    int rc = FAR_OK;
    for (unsigned i = 0; i < fab->nodes && fab->voters > 0 && rc == FAR_OK; i++) {
        batch_write(b, MARK_EARLY, gaddr_make(i, 0), members_off(clients), &image->members,
                    sizeof image->members);
        rc = batch_flush(b);
    }
    return rc;
}

static int format(struct batch *b, struct fab *fab, struct image *image)
{
    uint64_t seed[3] = {clock_ns(), (uint64_t)getpid(), (uintptr_t)fab};
    uint64_t pool_id = hash_sum(seed, sizeof seed, 0), witnesses = 0, life[FAB_NODES_MAX] = {0};
    struct node_head *head = &image->head;

    int rc = ask_nodes(b, fab, image, life, &witnesses);
    if (rc == FAR_OK)
        rc = check_plan(fab, witnesses, head);
    if (rc != FAR_OK)
        return rc;
    image->members = members_first(pool_id, (unsigned)fab->voters, witnesses, life);
    rc = format_members(b, fab, image);
    /* Everything else begins as zeros. Node 0 comes last, and on each node the magic: the pool
     * exists once node 0 has its magic (SUPERBLOCK-S1). */
    for (unsigned i = fab->nodes; i-- > 0 && rc == FAR_OK;) {
        rc = plan_node(fab, i, witnesses >> i & 1, pool_id, head);
        if (rc != FAR_OK)
            return rc;
        batch_write(b, MARK_EARLY, gaddr_make(i, 0), 8, (char *)head + 8, sizeof *head - 8);
        batch_fence(b);
        batch_write(b, MARK_PLACE, gaddr_make(i, 0), 0, &head->magic, 8);
        rc = batch_flush(b);
    }
    return rc;
}

/* `size`: bytes that the node has. */
static int judge(const struct fab *fab, unsigned node, uint64_t size, const struct node_head *head,
                 const struct node_head *first)
{
    struct node_head plan;
    int rc = superblock_check(head, node);
    if (rc != FAR_OK)
        return rc;
    if (head->pool_id != first->pool_id || head->clients != first->clients ||
        node_head_voters(head) != node_head_voters(first))
        return err_fail(FAR_NOT_A_POOL, "node %u belongs to another pool than node 0", node);
    if (head->nodes != fab->nodes)
        return err_fail(FAR_NOT_A_POOL, "node %u belongs to a pool of %u nodes, but %u are given",
                        node, head->nodes, fab->nodes);
    if (head->node != node)
        return err_fail(FAR_NOT_A_POOL,
                        "the memory given as node %u is node %u of its pool: wrong order", node,
                        head->node);
    /* A valid checksum does not make a geometry valid: it must be what plan_node() makes of this
     * memory. */
    struct fab as_made = *fab;
    as_made.clients_wanted = head->clients;
    as_made.lease_ms = head->lease_ms;
    as_made.wait = head->flags & NODE_HEAD_WAITS ? FAB_WAIT : FAB_WAIT_NOT;
    as_made.voters = node_head_voters(head);
    as_made.size[node] = size;
    if (head->size > size || head->clients == 0 ||
        plan_node(&as_made, node, head->flags & NODE_HEAD_WITNESS, head->pool_id, &plan) !=
            FAR_OK ||
        memcmp(&plan, head, sizeof plan) != 0)
        return err_fail(FAR_CORRUPT, "the superblock of node %u does not match its memory", node);
    return FAR_OK;
}

/* ---- nodes that are away --------------------------------------------------------------------- */

/*
 * A pool is opened without nodes that cannot be reached, unless node 0 is one of them. AWAY-1
 * (fabric.h) says what becomes of verbs to such a node.
 *
 *   AWAY-2  Nothing is known of it. Every address on it counts as inside the pool, so what needs it
 *       is tried, and fails; it is not taken for damage. No chunk of it is handed out.
 *   AWAY-3  When it is back, it is used only if its superblock says that it is this node of this
 *           pool.
 *   AWAY-4  Until then nothing is decided that needs all nodes. A walk that comes to it fails. A
 *       sweep does not begin, because what is there may lead to any object. No dead client is
 *       recovered whose journal may have lines there, or that the node cannot be asked to shut out.
 *       No table is made or repaired.
 */

/* How often a pool that was opened without a node looks for it, at most. */
#define MEET_NS 1000000000ull

/* AWAY-2 */
static struct node_head head_of_away(const struct node_head *first)
{
    struct node_head head = *first;
    head.size = NODE_BYTES_MAX;
    head.table_off = (uint32_t)catalog_off(first->clients, node_head_voters(first) > 0);
    head.chunks = head.chunks_off64 = 0;
    return head;
}

/* AWAY-3 */
static int meet(struct pool *pool, unsigned node, const struct node_head *head)
{
    struct fab *fab = pool->fab;
    uint64_t found = __atomic_load_n(&fab->found[node], __ATOMIC_ACQUIRE);
    if (found == 0)
        return fab_away_failed(fab, 1ull << node);
    if (judge(fab, node, found, head, &pool->head[0]) != FAR_OK) {
        struct err_detail why;
        char text[16];
        err_keep(&why);
        return err_fail(FAR_NODE_LOST, "%s has come back as another: %s",
                        fab_node_name(fab, node, text), why.text);
    }
    /* In this order: once verbs to the node are posted, pool_head() has its head. */
    pool->head[node] = *head;
    __atomic_fetch_and(&fab->away, ~(1ull << node), __ATOMIC_RELEASE);
    __atomic_store_n(&fab->size[node], found, __ATOMIC_RELEASE);
    return FAR_OK;
}

static int look_at_node(struct op *op, unsigned node)
{
    struct node_head *image = op_buffer(op, BUF_POOL, sizeof *image);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, gaddr_make(node, 0), 0, image, sizeof *image);
    int rc = batch_flush(&op->batch);
    return rc == FAR_OK ? meet(op->pool, node, image) : rc;
}

static int meet_all(struct op *op, uint64_t away)
{
    struct pool *pool = op->pool;
    int first = FAR_OK;
    for (unsigned i = 0; i < pool->fab->nodes; i++) {
        if (!(away >> i & 1))
            continue;
        int rc = look_at_node(op, i);
        if (i < pool->nodes) /* nobody needs a witness */
            first = first == FAR_OK ? rc : first;
    }
    return first == FAR_UNKNOWN ? FAR_UNREACHABLE : first;
}

int pool_meet(struct op *op)
{
    struct pool *pool = op->pool;
    uint64_t away = fab_away(pool->fab), now = client_now(op->client);
    if (away == 0)
        return FAR_OK;
    if (now < __atomic_load_n(&pool->meet_after, __ATOMIC_RELAXED) ||
        __atomic_test_and_set(&pool->meeting, __ATOMIC_ACQUIRE))
        return pool_away(pool) ? fab_away_failed(pool->fab, pool_away(pool)) : FAR_OK;
    away = fab_away(pool->fab); /* another thread may have met some */
    int rc = meet_all(op, away);
    __atomic_store_n(&pool->meet_after, client_now(op->client) + MEET_NS, __ATOMIC_RELAXED);
    __atomic_clear(&pool->meeting, __ATOMIC_RELEASE);
    return rc;
}

int pool_meet_node(struct op *op, unsigned node)
{
    struct pool *pool = op->pool;
    if (!(fab_away(pool->fab) >> node & 1))
        return FAR_OK;
    if (__atomic_test_and_set(&pool->meeting, __ATOMIC_ACQUIRE))
        return fab_away_failed(pool->fab, 1ull << node);
    int rc = look_at_node(op, node);
    __atomic_clear(&pool->meeting, __ATOMIC_RELEASE);
    return rc;
}

/* All nodes have the same head of the log, so one of them is enough. */
static int read_members(struct batch *b, struct pool *pool, struct image *image)
{
    int rc = FAR_OK;
    for (unsigned i = 0; i < pool->fab->nodes && pool->voters > 0; i++) {
        if (pool->fab->away >> i & 1)
            continue;
        batch_read(b, gaddr_make(i, 0), members_off(pool->clients), &image->members,
                   sizeof image->members);
        rc = batch_flush(b);
        if (rc == FAR_OK)
            rc = members_judge(&image->members, pool->pool_id, i);
        pool->members = image->members;
        if (rc == FAR_OK)
            break;
    }
    pool->nodes = pool->fab->nodes - (unsigned)__builtin_popcountll(pool->members.witnesses);
    if (pool->fab->witnesses != pool->members.witnesses) /* written once: others have it open */
        pool->fab->witnesses = pool->members.witnesses;
    return rc;
}

static int read_head(struct batch *b, struct pool *pool, unsigned node, struct image *image)
{
    batch_read(b, gaddr_make(node, 0), 0, &image->head, sizeof image->head);
    int rc = batch_flush(b);
    pool->head[node] = image->head;
    return rc == FAR_OK
               ? judge(pool->fab, node, pool->fab->size[node], &image->head, &pool->head[0])
               : rc;
}

/* A node that is not this node of this pool counts as one that is away, if the pool can do without
 * it: a witness, and a node of a pool with voters that has come back empty. */
static bool can_do_without(const struct pool *pool, unsigned node, int rc,
                           const struct node_head *head)
{
    return pool->fab->witnesses >> node & 1 ||
           (pool->voters > 0 && rc == FAR_NOT_A_POOL && head->magic == 0);
}

/* The first node's head comes first: it says what the others are. */
static int read_heads(struct batch *b, struct pool *pool, struct image *image)
{
    struct fab *fab = pool->fab;
    int rc = read_head(b, pool, 0, image);
    if (rc != FAR_OK)
        return rc;
    pool->pool_id = pool->head[0].pool_id;
    pool->clients = pool->head[0].clients;
    pool->voters = node_head_voters(&pool->head[0]);
    rc = read_members(b, pool, image);
    for (unsigned i = 1; i < fab->nodes && rc == FAR_OK; i++) {
        if (fab->away >> i & 1)
            continue;
        rc = read_head(b, pool, i, image);
        if (rc != FAR_OK && can_do_without(pool, i, rc, &image->head)) {
            fab->found[i] = fab->size[i];
            fab->size[i] = FAB_AWAY_BYTES;
            fab->away |= 1ull << i;
            rc = FAR_OK;
        }
    }
    return rc;
}

int pool_open(struct fab *fab, const struct knobs *knobs, struct pool *pool)
{
    struct fab_ep *ep = NULL;
    struct batch b;
    struct cost cost = {0};

    int rc = fab->ops->ep_open(fab, &ep);
    if (rc != FAR_OK)
        return rc;
    batch_init(&b, ep, &cost);
    memset(pool, 0, sizeof *pool);
    pool->fab = fab;
    pool->nodes = fab->nodes;
    pool->knobs = knobs ? *knobs : pool_knobs_default;

    struct image *image = ep->ops->buf_alloc(ep, sizeof *image);
    if (!image) {
        rc = FAR_NO_MEMORY;
        goto close_ep;
    }
    if (fab->fresh) {
        rc = format(&b, fab, image);
        if (rc != FAR_OK)
            goto free_image;
        fab->fresh = false;
    }
    rc = read_heads(&b, pool, image);
    if (rc != FAR_OK)
        goto free_image;
    pool->absent = head_of_away(&pool->head[0]);
    pool->meet_after = ep->ops->now(ep) + MEET_NS;
    if (fab->lease_ms != pool->head[0].lease_ms) /* written only once: others may have it open */
        fab->lease_ms = pool->head[0].lease_ms;
    pool->waits = pool->head[0].flags & NODE_HEAD_WAITS && fab->wait != FAB_WAIT_NOT;
    pool->places = catalog_places(pool->head[0].size);
    pool->catalog_off = catalog_off(pool->clients, pool->voters > 0);
    if (fab->ops->formatted)
        fab->ops->formatted(fab);
free_image:
    ep->ops->buf_free(ep, image, sizeof *image);
close_ep:
    ep->ops->ep_close(ep);
    return rc;
}
