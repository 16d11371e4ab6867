/*
 * Damaged pools. Every round flips a few bits of a sound pool (superblock, catalog, registry, chunk
 * table, the table's root, its other objects, blocks), or overwrites words with others from
 * elsewhere, or cuts a node short. Then it opens the pool and works on it. The objects are those
 * that the index's mark() reports.
 *
 * Any error and any miss is allowed. A crash is not, nor an operation without end (its round trips
 * are bounded), nor a false answer: a value or a key that was never stored.
 *
 * A round undoes its changes: the flips are known, and every request is inspected before it is
 * posted for what its verbs may change.
 */
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS         330 /* of the sound pool                    */
#define KEYS_MORE    700 /* that rounds may add                  */
#define VERSIONS     2   /* of each of the first keys, over time */
#define OPS_A_ROUND  24
#define RTTS_MOST    20000u
#define BATCHES_MOST 400000u /* of a walk over the whole table */
#define DIRTY_MAX    4096
#define KEY_BYTES    1024
#define VALUE_BYTES  512

#if defined(__SANITIZE_THREAD__) || STORE_RIG_FEATURE(thread_sanitizer)
#define ROUNDS 1000 /* there is but one thread */
#else
#define ROUNDS 20000
#endif

struct range {
    unsigned node;
    uint64_t off, len;
};

enum region {
    SUPERBLOCK,
    COUNTER,
    FREE_LISTS,
    CONTROL,
    CATALOG,
    REGISTRY,
    CHUNK_TABLE,
    ROOT,
    BLOCKS,
    OBJECTS, /* all others of the table: a region for each size class, because large ones are few */
    REGIONS = OBJECTS + CLASS_COUNT
};
static const char *const region_names[OBJECTS + 1] = {
    "superblock", "chunk counter", "free lists", "control", "catalog",
    "registry",   "chunk table",   "root",       "blocks",  "objects"};
/* A flip in a superblock ends the round at once, so they are rare. The classes of objects share
 * theirs. If there are no blocks, then the objects get their part. */
static const unsigned region_weights[OBJECTS + 1] = {2, 4, 4, 4, 3, 2, 1, 4, 20, 56};

struct ranges {
    struct range *range;
    unsigned count;
};

struct testbed {
    struct fab *fab;
    struct fab_ops ops; /* the fabric's, but for pauses, which take no time, and posts, which are
                           noted */
    int (*post)(struct fab_ep *ep, struct fab_req *req);
    struct knobs knobs;
    struct fab_ep *ep;
    struct batch batch;
    struct cost cost;
    uint64_t *line; /* a buffer of a chunk */
    uint8_t *sound[FAB_NODES_MAX];
    struct rng rng;
    struct ranges region[REGIONS];
    unsigned classes; /* of OBJECTS that the table has */
    struct range dirty[DIRTY_MAX];
    unsigned dirty_count;
    unsigned batches;
    uint64_t hits[REGIONS], opened, worked, errors, answers;
};

static struct testbed testbed;

/* ---- keys and values ------------------------------------------------------------------------- */

static size_t key_bytes(uint32_t id, uint8_t *key)
{
    size_t len = id % 32 == 5 ? 1000 : id % 16 == 3 ? 100 : 8;

    memset(key, (int)id, len);
    memcpy(key, &id, 4);
    return len;
}

static size_t value_bytes(uint32_t id, uint32_t version, uint8_t *value)
{
    size_t len = 8 + (id * 7 + version * 3) % (id % 8 ? 40 : VALUE_BYTES - 8);
    uint64_t mix = ((uint64_t)id << 32 | version) * 0x9e3779b97f4a7c15;

    memcpy(value, &id, 4);
    memcpy(value + 4, &version, 4);
    for (size_t i = 8; i < len; i++)
        value[i] = (uint8_t)((mix >> i % 57) + i);
    return len;
}

/* What a round has put. Its versions are higher than those of the sound pool. */
struct history {
    unsigned round_first; /* the lowest version that this round may use */
    uint32_t id[OPS_A_ROUND];
    bool put[OPS_A_ROUND];
};

static bool ever_stored(const struct history *h, uint32_t id)
{
    bool stored = id < KEYS;

    for (unsigned i = 0; i < OPS_A_ROUND; i++)
        stored = stored || (h->put[i] && h->id[i] == id);
    return stored;
}

static bool value_was_stored(const struct history *h, uint32_t id, const uint8_t *value, size_t len)
{
    uint8_t want[VALUE_BYTES];
    uint32_t version = 0;

    if (len < 8)
        return false;
    memcpy(&version, value + 4, 4);
    if (value_bytes(id, version, want) != len || memcmp(want, value, len) != 0)
        return false;
    if (version >= 1 && version <= VERSIONS)
        return id < KEYS;
    unsigned i = version - h->round_first;
    return i < OPS_A_ROUND && h->put[i] && h->id[i] == id;
}

/* ---- raw memory ------------------------------------------------------------------------------ */

static void raw_read(struct testbed *g, unsigned node, uint64_t off, void *to, uint64_t len)
{
    for (uint64_t at = 0; at < len; at += CHUNK_BYTES) {
        uint32_t n = (uint32_t)(len - at < CHUNK_BYTES ? len - at : CHUNK_BYTES);
        batch_read(&g->batch, gaddr_make(node, 0), off + at, g->line, n);
        assert_int_equal(batch_flush(&g->batch), FAR_OK);
        memcpy((char *)to + at, g->line, n);
    }
}

static void raw_restore(struct testbed *g, const struct range *r)
{
    for (uint64_t at = 0; at < r->len; at += CHUNK_BYTES) {
        uint32_t n = (uint32_t)(r->len - at < CHUNK_BYTES ? r->len - at : CHUNK_BYTES);
        memcpy(g->line, g->sound[r->node] + r->off + at, n);
        batch_write(&g->batch, MARK_EARLY, gaddr_make(r->node, 0), r->off + at, g->line, n);
        assert_int_equal(batch_flush(&g->batch), FAR_OK);
    }
}

static void raw_flip(struct testbed *g, unsigned node, uint64_t bit)
{
    uint64_t word = 0;

    raw_read(g, node, bit / 64 * 8, &word, 8);
    g->line[0] = word ^ 1ull << bit % 64;
    batch_write(&g->batch, MARK_EARLY, gaddr_make(node, 0), bit / 64 * 8, g->line, 8);
    assert_int_equal(batch_flush(&g->batch), FAR_OK);
}

static void note_dirty(struct testbed *g, unsigned node, uint64_t off, uint64_t len)
{
    if (g->dirty_count < DIRTY_MAX)
        g->dirty[g->dirty_count] = (struct range){.node = node, .off = off, .len = len};
    g->dirty_count++;
}

static int note_post(struct fab_ep *ep, struct fab_req *req)
{
    struct testbed *g = &testbed;

    g->batches++;
    for (unsigned i = 0; i < req->count && ep != g->ep; i++) {
        const struct fab_verb *v = &req->verbs[i];
        if (v->kind != FAB_READ)
            note_dirty(g, v->node, v->off, v->len);
    }
    return g->post(ep, req);
}

/* Undoes everything that the round changed. */
static void restore(struct testbed *g)
{
    if (g->dirty_count > DIRTY_MAX) {
        for (unsigned i = 0; i < g->fab->nodes; i++)
            raw_restore(g, &(struct range){.node = i, .len = g->fab->size[i]});
    } else {
        for (unsigned i = 0; i < g->dirty_count; i++)
            raw_restore(g, &g->dirty[i]);
    }
    g->dirty_count = 0;
}

/* ---- what can be damaged --------------------------------------------------------------------- */

static void add_range(struct testbed *g, unsigned which, unsigned node, uint64_t off, uint64_t len)
{
    struct ranges *r = &g->region[which];

    r->range = realloc(r->range, (r->count + 1) * sizeof *r->range);
    assert_non_null(r->range);
    r->range[r->count++] = (struct range){.node = node, .off = off, .len = len};
}

struct mapper {
    struct marker marker;
    struct testbed *testbed;
    gaddr root;
};

/* How many bytes from the first on have been written, up to the end of a line, and a line more. */
static uint64_t used_bytes(const uint8_t *image, uint64_t bytes)
{
    uint64_t used = bytes;

    while (used > 0 && image[used - 1] == 0)
        used--;
    used = (used + 63) / 64 * 64 + 64;
    return used < bytes ? used : bytes;
}

static void map_object(struct marker *marker, gaddr at, unsigned size_class)
{
    struct mapper *m = (struct mapper *)marker;
    struct testbed *g = m->testbed;
    uint64_t bytes = size_class_bytes(size_class);
    const uint8_t *image = g->sound[gaddr_node(at)] + gaddr_offset(at);
    unsigned generation = ((const struct block_head *)image)->generation;
    unsigned which = OBJECTS + size_class;

    if (at == m->root)
        which = ROOT;
    else if (block_valid(image, bytes, generation))
        which = BLOCKS;
    if (which != BLOCKS)
        bytes = used_bytes(image, bytes);
    if (which < OBJECTS) {
        add_range(g, which, gaddr_node(at), gaddr_offset(at), bytes);
        return;
    }
    /* Half of the hits are in the first lines, where heads are. */
    add_range(g, which, gaddr_node(at), gaddr_offset(at), 64);
    if (bytes > 64)
        add_range(g, which, gaddr_node(at), gaddr_offset(at) + 64, bytes - 64);
}
_Static_assert(offsetof(struct mapper, marker) == 0, "the marker comes first");

static void map_table(struct testbed *g, struct store_rig *r)
{
    struct index_view *view = store_known(r->session, r->table)->view;
    struct mapper m = {
        .marker = {.mark = map_object}, .testbed = g, .root = view->table->desc.root};
    struct op *op = &r->session->op;

    assert_int_equal(op_begin(op, &view->cached), FAR_OK);
    assert_int_equal(INDEX_CALL(view->table->ops, mark, op, view, &m.marker), FAR_OK);
    op_end(op);
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        g->classes += g->region[OBJECTS + i].count > 0;
    assert_true(g->classes > 0);
    assert_true(g->region[ROOT].count == 1); /* each object is reported, and once */
}

static void map_pool(struct testbed *g, struct store_rig *r)
{
    unsigned tables = 1;

    add_range(g, CATALOG, 0, r->pool->pool.catalog_off,
              (tables + 1) * sizeof(struct catalog_entry));
    add_range(g, CONTROL, 0, CONTROL_OFF, 4 * 8);
    add_range(g, REGISTRY, 0, CLIENTS_OFF, r->pool->pool.clients * sizeof(struct client_slot));
    map_table(g, r);
    for (unsigned node = 0; node < g->fab->nodes; node++) {
        const struct node_head *head = &r->pool->pool.head[node];
        uint64_t taken = 0;
        add_range(g, SUPERBLOCK, node, 0, sizeof *head);
        add_range(g, COUNTER, node, NODE_NEXT_CHUNK_OFF, 8);
        add_range(g, COUNTER, node, NODE_SWEEP_OFF, 8);
        add_range(g, FREE_LISTS, node, NODE_FREE_OFF, CLASS_COUNT * 8);
        memcpy(&taken, g->sound[node] + NODE_NEXT_CHUNK_OFF, 8);
        add_range(g, CHUNK_TABLE, node, head->table_off, taken * 8);
    }
}

/* ---- the sound pool -------------------------------------------------------------------------- */

static void no_pause(struct fab_ep *ep, uint64_t ns)
{
    (void)ep;
    (void)ns;
}

static void build(struct testbed *g, struct store_rig *r)
{
    struct far_session_options session = {.depth = 1, .seed = 1};
    struct far_table_options table = {.tuning = indexes_smallest(), .hash_seed = 5};
    struct far_table_info info;

    assert_int_equal(store_open(g->fab, &g->knobs, &r->pool), FAR_OK);
    assert_int_equal(far_session_open(r->pool, &session, &r->session), FAR_OK);
    assert_int_equal(far_table_create(r->session, "t", index_tested, &table, &r->table), FAR_OK);
    for (uint32_t i = 0; i < KEYS * VERSIONS; i++) {
        uint8_t key[KEY_BYTES], value[VALUE_BYTES];
        uint32_t id = i % KEYS, version = 1 + i / KEYS;
        if (version > 1 && id % 4)
            continue;
        size_t klen = key_bytes(id, key), vlen = value_bytes(id, version, value);
        assert_int_equal(far_put(r->session, r->table, key, klen, value, vlen), FAR_OK);
    }
    assert_int_equal(far_table_check(r->session, r->table, NULL, NULL), FAR_OK);
    assert_int_equal(far_table_info(r->session, r->table, &info), FAR_OK);
    assert_int_equal(info.keys, KEYS);
    assert_true(info.splits >= 2);
}

static void testbed_open(struct testbed *g, const char *uri)
{
    struct store_rig r;

    memset(g, 0, sizeof *g);
    rng_seed(&g->rng, strlen(uri));
    g->knobs = pool_knobs_default;
    g->knobs.patience = 2;
    assert_int_equal(fab_open(uri, &g->fab), FAR_OK);
    g->ops = *g->fab->ops;
    g->ops.pause = no_pause;
    g->post = g->ops.post;
    g->ops.post = note_post;
    g->fab->ops = &g->ops;
    build(g, &r);

    assert_int_equal(g->fab->ops->ep_open(g->fab, &g->ep), FAR_OK);
    assert_non_null(g->line = g->ep->ops->buf_alloc(g->ep, CHUNK_BYTES));
    batch_init(&g->batch, g->ep, &g->cost);
    for (unsigned i = 0; i < g->fab->nodes; i++) {
        assert_non_null(g->sound[i] = malloc(g->fab->size[i]));
        raw_read(g, i, 0, g->sound[i], g->fab->size[i]);
    }
    map_pool(g, &r);
    far_session_close(r.session);
    for (unsigned i = 0; i < g->fab->nodes; i++) /* again, without the session */
        raw_read(g, i, 0, g->sound[i], g->fab->size[i]);
    far_pool_close(r.pool);
}

static void testbed_close(struct testbed *g)
{
    g->ep->ops->buf_free(g->ep, g->line, CHUNK_BYTES);
    g->ep->ops->ep_close(g->ep);
    for (unsigned i = 0; i < g->fab->nodes; i++)
        free(g->sound[i]);
    for (unsigned i = 0; i < REGIONS; i++)
        free(g->region[i].range);
    fab_close(g->fab);
}

/* ---- a round --------------------------------------------------------------------------------- */

/* A random word of the region. */
static struct range pick_word(struct testbed *g, unsigned which)
{
    const struct ranges *r = &g->region[which];
    const struct range *range = &r->range[rng_below(&g->rng, r->count)];

    return (struct range){
        .node = range->node, .off = range->off + rng_below(&g->rng, range->len / 8) * 8, .len = 8};
}

/* A region that has something in it. */
static unsigned pick_region(struct testbed *g)
{
    unsigned at = (unsigned)rng_below(&g->rng, 100), which = 0;

    while (at >= region_weights[which])
        at -= region_weights[which++];
    if (which < BLOCKS || (which == BLOCKS && g->region[BLOCKS].count > 0))
        return which;
    for (unsigned nth = (unsigned)rng_below(&g->rng, g->classes) + 1, i = 0; nth > 0; i++) {
        which = OBJECTS + i;
        nth -= g->region[which].count > 0;
    }
    return which;
}

/* Flips a bit, or overwrites a word or a line with a sound one of the same kind, which looks right
 * but is wrong. */
static void damage_something(struct testbed *g, bool flip)
{
    unsigned which = pick_region(g);
    struct range to = pick_word(g, which);
    if (flip) {
        raw_flip(g, to.node, to.off * 8 + rng_below(&g->rng, 64));
    } else {
        struct range from = pick_word(g, which);
        if (which >= BLOCKS && rng_below(&g->rng, 4) == 0) {
            from.off &= ~63ull;
            to.off &= ~63ull;
            to.len = 64;
        }
        memcpy(g->line, g->sound[from.node] + from.off, to.len);
        batch_write(&g->batch, MARK_EARLY, gaddr_make(to.node, 0), to.off, g->line,
                    (uint32_t)to.len);
        assert_int_equal(batch_flush(&g->batch), FAR_OK);
    }
    note_dirty(g, to.node, to.off, to.len);
    g->hits[which]++;
}

/* Runs one operation, and checks that its answer can be true. */
static void operate(struct testbed *g, far_session *s, far_table *t, struct history *h, unsigned n)
{
    uint8_t key[KEY_BYTES], value[VALUE_BYTES];
    uint32_t id = (uint32_t)rng_below(&g->rng, rng_below(&g->rng, 2) ? KEYS : KEYS_MORE);
    size_t klen = key_bytes(id, key), vlen = value_bytes(id, h->round_first + n, value);
    bool stored = ever_stored(h, id);
    enum far_op_kind kind = (enum far_op_kind)(FAR_OP_GET + rng_below(&g->rng, FAR_OP_DELETE));
    struct far_stats stats;

    far_stats(s, t, &stats);
    uint64_t rtts = stats.op[kind].rtts;
    struct far_op op = {.kind = kind,
                        .table = t,
                        .key = key,
                        .key_len = klen,
                        .value = value,
                        .value_len = vlen,
                        .buf = kind == FAR_OP_GET ? value : NULL,
                        .cap = kind == FAR_OP_GET ? sizeof value : 0};
    struct far_result result;
    int rc = far_execute(s, &op, &result);
    if (kind == FAR_OP_GET && rc == FAR_OK)
        assert_true(value_was_stored(h, id, value, result.len));
    if (kind == FAR_OP_PUT || kind == FAR_OP_INSERT || kind == FAR_OP_UPDATE) {
        h->id[n] = id; /* after an error it may have happened nevertheless */
        h->put[n] = rc != FAR_NOT_FOUND && rc != FAR_EXISTS;
    } else {
        assert_true(rc != FAR_OK || stored);
    }
    assert_true(stored || rc != FAR_EXISTS);
    assert_true(stored || kind != FAR_OP_UPDATE || rc != FAR_OK);
    assert_true(rc <= 0 && rc >= FAR_RING_FULL);
    far_stats(s, t, &stats);
    assert_true(stats.op[kind].rtts - rtts <= RTTS_MOST);
    *(rc == FAR_OK || rc == FAR_NOT_FOUND || rc == FAR_EXISTS ? &g->answers : &g->errors) += 1;
}

/* Iterates over a part of the table from a random place on. It is bounded and returns whole
 * keys. */
static void iterate(struct testbed *g, far_session *s, far_table *t)
{
    uint64_t cursor = rng_below(&g->rng, 2) ? 0 : rng_next(&g->rng) >> 16;
    char buf[4096];
    size_t len = 0, pos = 0;
    struct far_entry e;
    struct far_stats stats;
    int rc = far_iterate(s, t, &cursor, 0, buf, sizeof buf, &len);
    if (rc == FAR_OK)
        while (far_entry_next(buf, len, &pos, &e))
            assert_true(e.key_len > 0 && e.key_len <= FAR_KEY_MAX);
    far_stats(s, t, &stats);
    assert_true(stats.op[FAR_OP_ITERATE].rtts <= stats.op[FAR_OP_ITERATE].count * RTTS_MOST);
    *(rc == FAR_OK ? &g->answers : &g->errors) += 1;
}

/* Opens the pool and the table if that is possible, and works on it. The node loses its last `cut`
 * bytes once the pool is open. */
static void work(struct testbed *g, unsigned round, unsigned cut_node, uint64_t cut)
{
    struct far_session_options options = {.depth = 1, .seed = round + 2};
    struct history h = {.round_first = VERSIONS + 1 + round * OPS_A_ROUND};
    struct far_table_info info;
    far_pool *pool = NULL;
    far_session *s = NULL;
    far_table *t = NULL;

    if (store_open(g->fab, &g->knobs, &pool) != FAR_OK)
        return;
    g->opened++;
    g->fab->size[cut_node] -= cut;
    if (far_session_open(pool, &options, &s) == FAR_OK) {
        if (far_table_open(s, "t", NULL, &t) == FAR_OK) {
            g->worked++;
            for (unsigned n = 0; n < OPS_A_ROUND; n++)
                operate(g, s, t, &h, n);
            iterate(g, s, t);
            g->batches = 0;
            if (round % 8 == 0)
                (void)far_table_check(s, t, NULL, NULL);
            else if (round % 8 == 1)
                (void)far_table_info(s, t, &info);
            assert_true(g->batches <= BATCHES_MOST);
        }
        far_session_close(s);
    }
    g->fab->size[cut_node] += cut;
    far_pool_close(pool);
}

static void run_rounds(const char *uri, unsigned rounds)
{
    struct testbed *g = &testbed;

    testbed_open(g, uri);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned node = (unsigned)rng_below(&g->rng, g->fab->nodes);
        uint64_t whole = g->fab->size[node], cut = rng_below(&g->rng, whole / 64) * 64;
        if (round % 32 == 7) { /* cut short before it is opened */
            g->fab->size[node] = whole - 64 - cut;
            work(g, round, node, 0);
            g->fab->size[node] = whole;
        } else if (round % 32 == 23) { /* or while it is in use */
            work(g, round, node, cut);
        } else {
            for (uint64_t hits = 1 + rng_below(&g->rng, 8); hits > 0; hits--)
                damage_something(g, round % 4 != 1);
            work(g, round, 0, 0);
        }
        restore(g);
    }
    for (unsigned i = 0; i < g->fab->nodes; i++) { /* otherwise rounds affected later ones */
        uint8_t *now = malloc(g->fab->size[i]);
        assert_non_null(now);
        raw_read(g, i, 0, now, g->fab->size[i]);
        assert_memory_equal(now, g->sound[i], g->fab->size[i]);
        free(now);
    }
    print_message("%u rounds: %llu pools and %llu tables opened, %llu answers, %llu errors\n",
                  rounds, (unsigned long long)g->opened, (unsigned long long)g->worked,
                  (unsigned long long)g->answers, (unsigned long long)g->errors);
    for (unsigned i = 0; i < REGIONS; i++)
        if (g->hits[i] > 0)
            print_message("  %-14s %llu hits\n", region_names[i < OBJECTS ? i : OBJECTS],
                          (unsigned long long)g->hits[i]);
    assert_true(g->worked > rounds / 2);
    assert_true(g->errors > 0 && g->answers > g->errors);
    testbed_close(g);
}

static void a_damaged_pool_on_two_nodes_gives_no_false_answer(void **state)
{
    (void)state;
    run_rounds("mem:?size=2m&nodes=2&clients=8", ROUNDS);
}

static void a_damaged_pool_on_one_node_gives_no_false_answer(void **state)
{
    (void)state;
    run_rounds("mem:?size=4m&clients=8", ROUNDS / 4);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_pool_on_two_nodes_gives_no_false_answer),
        cmocka_unit_test(a_damaged_pool_on_one_node_gives_no_false_answer),
    };
    return INDEXES_RUN(tests);
}
