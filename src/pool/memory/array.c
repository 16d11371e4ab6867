/* Arrays of any size, made of pieces, as array.h describes. */
#include "pool/array.h"
#include "pool/pool_internal.h"

#include <stdlib.h>
#include <string.h>

/* Pieces have at most 1 MiB, because longer runs are rare in a pool that has been used. If an array
 * would have more than PIECES_WORTH of them, they are larger. */
#define PIECE_BYTES  (1ull << 20)
#define PIECES_WORTH (1u << 16)

/* An array is cleared by WRITEs of CLEAR_BYTES, CLEAR_VERBS in a batch. */
#define CLEAR_BYTES CHUNK_BYTES
#define CLEAR_VERBS 16u

/* Objects that stay in the client's stock when an array does not fit; the rest is passed on. */
#define STOCK_LEFT 4u

static uint64_t class_room(unsigned size_class)
{
    return size_class < RUN_CLASS ? size_class_bytes(size_class)
                                  : size_class_chunks(size_class) << CHUNK_SHIFT;
}

static unsigned log2_of(uint64_t power)
{
    return 63u - (unsigned)__builtin_clzll(power);
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* How many elements, as a power of two, make a piece of at most `most` bytes, and not much less:
 * those that waste least of their class; of several, the largest. 2^least elements belong
 * together. */
static unsigned best_shift(uint32_t element, unsigned least, uint64_t most)
{
    uint64_t enough = most / (most > PIECE_BYTES ? 4 : 16);
    while ((uint64_t)element << least <= enough)
        least++;
    unsigned best = least;
    uint64_t best_waste = UINT64_MAX; /* in 1/1024 of the piece */
    for (unsigned shift = least; (uint64_t)element << shift <= most; shift++) {
        uint64_t bytes = (uint64_t)element << shift, room = class_room(size_class_for(bytes));
        uint64_t waste = (room - bytes) * 1024 / bytes;
        if (waste <= best_waste) {
            best = shift;
            best_waste = waste;
        }
    }
    return best;
}

/* Computes the rest from count, element, lanes and the shifts. False: this is no valid array. */
static bool set_geometry(struct pool_array *a)
{
    unsigned shift = a->stripe_shift + a->piece_shift;
    if (a->count == 0 || a->count > 1ull << 48 || a->element == 0 || a->element % 8 != 0 ||
        a->element > ARRAY_ELEMENT_MAX || a->lanes == 0 || shift > 32 ||
        size_class_for((uint64_t)a->element << shift) == CLASS_COUNT)
        return false;
    uint64_t in_lane = a->count, piece = 1ull << shift;
    if (a->lanes > 1) {
        uint64_t stripes = (a->count - 1) / (1ull << a->stripe_shift) + 1;
        in_lane = ((stripes - 1) / a->lanes + 1) << a->stripe_shift;
    }
    uint64_t rows = (in_lane - 1) / piece + 1;
    if (rows > UINT32_MAX / a->lanes)
        return false;
    a->pieces = (unsigned)rows * a->lanes;
    a->piece_class = (uint8_t)size_class_for(piece * a->element);
    a->last_class = (uint8_t)size_class_for((in_lane - (rows - 1) * piece) * a->element);
    return size_class_for(sizeof(struct array_head) + a->pieces * 8ull) < CLASS_COUNT;
}

static unsigned class_of(const struct pool_array *a, unsigned piece)
{
    ASSERT(piece < a->pieces);
    return piece + a->lanes >= a->pieces ? a->last_class : a->piece_class;
}

static int shape_array(const struct pool *pool, const struct array_shape *shape,
                       struct pool_array *a)
{
    uint64_t limit = RUN_CHUNKS_MAX << CHUNK_SHIFT, most = PIECE_BYTES;
    *a = (struct pool_array){.count = shape->count, .element = shape->element, .lanes = 1};
    if (shape->count == 0 || shape->element == 0 || shape->element % 8 != 0 ||
        shape->element > ARRAY_ELEMENT_MAX)
        return err_fail(FAR_INVALID, "invalid array: %llu elements of %u bytes",
                        (unsigned long long)shape->count, shape->element);
    if ((shape->stripe & (shape->stripe - 1)) != 0 || shape->stripe > limit / shape->element)
        return err_fail(FAR_INVALID, "invalid stripe: %llu elements of %u bytes",
                        (unsigned long long)shape->stripe, shape->element);
    ASSERT(shape->node < pool->nodes);
    if (shape->stripe != 0 && pool->nodes > 1) {
        a->lanes = pool->nodes;
        a->stripe_shift = log2_of(shape->stripe);
    }
    uint64_t stripe = (uint64_t)shape->element << a->stripe_shift;
    while (most < limit / 2 && shape->count / PIECES_WORTH > most / shape->element)
        most *= 2;
    unsigned shift = best_shift(shape->element, a->stripe_shift, stripe > most ? stripe : most) -
                     a->stripe_shift;
    if (a->lanes > 1)
        a->piece_shift = shift;
    else
        a->stripe_shift = shift;
    return set_geometry(a)
               ? FAR_OK
               : err_fail(FAR_POOL_FULL, "too large for an array: %llu elements of %u bytes",
                          (unsigned long long)shape->count, shape->element);
}

uint64_t pool_array_bytes(const struct pool_array *a)
{
    uint64_t bytes = size_class_bytes(pointer_class(a->ref));
    for (unsigned i = 0; i < a->pieces; i++)
        bytes += size_class_bytes(class_of(a, i));
    return bytes;
}

/* ---- taking and giving back ------------------------------------------------------------------ */

/* Gives to the shared lists what this client cannot use: others may wait for it. */
static void pass_on(struct op *op, unsigned node, unsigned size_class)
{
    struct client *c = op->client;
    while (c->stock.of[node][size_class].kept > STOCK_LEFT && c->sweep.met == 0)
        if (client_give(op, node, size_class) != FAR_OK)
            return;
}

static void give_back(struct op *op, const struct pool_array *a, unsigned taken)
{
    for (unsigned i = 0; i < taken; i++)
        pool_free_unpublished(op->client, a->piece[i], class_of(a, i));
    for (unsigned lane = 0; lane < a->lanes && lane < taken; lane++)
        pass_on(op, gaddr_node(a->piece[lane]), a->piece_class);
}

/* Could the nodes hold the array if they were empty? If not, it must not first take all that there
 * is. */
static bool can_fit(const struct pool *pool, const struct pool_array *a, unsigned first)
{
    for (unsigned lane = 0; lane < a->lanes; lane++) {
        uint64_t rows = a->pieces / a->lanes, chunks = size_class_chunks(a->piece_class);
        unsigned node = (first + lane) % pool->nodes;
        if (a->piece_class >= RUN_CLASS && (rows - 1) * chunks > pool_head(pool, node)->chunks)
            return false;
    }
    return true;
}

/* Takes the pieces; those of the first lane are on node `first`. */
static int take_pieces(struct op *op, const struct pool_array *a, unsigned first)
{
    int rc = can_fit(op->pool, a, first) ? FAR_OK : FAR_POOL_FULL;
    unsigned taken = 0;
    while (rc == FAR_OK && taken < a->pieces) {
        unsigned node = (first + taken % a->lanes) % op->pool->nodes;
        rc = pool_alloc_on(op, node, class_of(a, taken), &a->piece[taken]);
        taken += rc == FAR_OK;
    }
    if (rc != FAR_OK)
        give_back(op, a, taken);
    return rc;
}

static uint64_t sum_of(const struct array_head *h, unsigned pieces)
{
    return hash_sum(&h->count, sizeof *h - offsetof(struct array_head, count) + pieces * 8ull,
                    ARRAY_SEED);
}

/* Writes the descriptor; only then can `ref` be published. */
static int write_descriptor(struct op *op, struct pool_array *a)
{
    uint32_t bytes = (uint32_t)(sizeof(struct array_head) + a->pieces * 8ull);
    struct block_ref at = {.size_class = (uint8_t)size_class_for(bytes)};
    int rc = pool_alloc(op, gaddr_node(a->piece[0]), at.size_class, &at.at);
    if (rc != FAR_OK)
        return rc;
    struct array_head *h = op_buffer(op, BUF_POOL, bytes);
    if (!h) {
        pool_free_unpublished(op->client, at.at, at.size_class);
        return FAR_NO_MEMORY;
    }
    *h = (struct array_head){.count = a->count,
                             .element = a->element,
                             .lanes = (uint16_t)a->lanes,
                             .stripe_shift = (uint8_t)a->stripe_shift,
                             .piece_shift = (uint8_t)a->piece_shift};
    memcpy(h + 1, a->piece, a->pieces * 8ull);
    h->checksum = sum_of(h, a->pieces);
    batch_write(&op->batch, MARK_EARLY, at.at, 0, h, bytes);
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        pool_abandon(op->client, at.size_class); /* the WRITE may still land */
    else
        a->ref = pointer_make(&at, 0);
    return rc;
}

int pool_array_alloc(struct op *op, const struct array_shape *shape, struct pool_array *out)
{
    struct pool_array a;

    ASSERT(op->batch.count == 0);
    int rc = shape_array(op->pool, shape, &a);
    if (rc != FAR_OK)
        return rc;
    a.piece = calloc(a.pieces, sizeof *a.piece);
    if (!a.piece)
        return err_fail(FAR_NO_MEMORY, "no memory for the addresses of %u pieces", a.pieces);
    rc = FAR_POOL_FULL;
    for (unsigned i = 0; i < (a.lanes > 1 ? 1 : op->pool->nodes) && rc == FAR_POOL_FULL; i++)
        rc = take_pieces(op, &a, (shape->node + i) % op->pool->nodes);
    if (rc == FAR_POOL_FULL)
        rc = err_fail(rc, "no room for an array of %llu elements of %u bytes",
                      (unsigned long long)a.count, a.element);
    if (rc == FAR_OK) {
        rc = write_descriptor(op, &a);
        if (rc != FAR_OK)
            give_back(op, &a, a.pieces);
    }
    if (rc == FAR_OK)
        *out = a;
    else
        free(a.piece);
    return rc;
}

/* Calls `give` for each piece and the descriptor. */
static void for_all(struct client *c, const struct pool_array *a,
                    void (*give)(struct client *client, gaddr at, unsigned size_class))
{
    for (unsigned i = 0; i < a->pieces; i++)
        give(c, a->piece[i], class_of(a, i));
    give(c, pointer_gaddr(a->ref), pointer_class(a->ref));
}

static void abandon(struct client *c, gaddr at, unsigned size_class)
{
    (void)at;
    pool_abandon(c, size_class);
}

void pool_array_drop(struct op *op, const struct pool_array *a, int rc)
{
    if (rc == FAR_STOPPED || op_all_known(rc))
        for_all(op->client, a, pool_free_unpublished);
    else
        for_all(op->client, a, abandon);
}

void pool_array_retire(struct client *c, const struct pool_array *a)
{
    for_all(c, a, pool_retire);
}

void pool_array_abandon(struct client *c, const struct pool_array *a)
{
    for_all(c, a, abandon);
}

void pool_array_mark(const struct pool_array *a, struct marker *marker)
{
    for (unsigned i = 0; i < a->pieces; i++)
        marker->mark(marker, a->piece[i], class_of(a, i));
    marker->mark(marker, pointer_gaddr(a->ref), pointer_class(a->ref));
}

/* ---- clearing -------------------------------------------------------------------------------- */

static uint64_t bytes_of_pieces(const struct pool_array *a)
{
    return pool_array_bytes(a) - size_class_bytes(pointer_class(a->ref));
}

/* The piece in which that byte of all pieces lies; *at becomes its place there. */
static unsigned piece_at(const struct pool_array *a, uint64_t *at)
{
    uint64_t full = size_class_bytes(a->piece_class), last = size_class_bytes(a->last_class);
    unsigned rows = a->pieces - a->lanes; /* pieces of whole rows */
    uint64_t passed = *at / full < rows ? *at / full : rows;
    *at -= passed * full;
    if (passed == rows) {
        passed += *at / last;
        *at %= last;
    }
    return (unsigned)passed;
}

int pool_array_clear_part(struct op *op, const struct pool_array *a, uint64_t *done, uint64_t most)
{
    uint64_t at = *done, added = 0;
    uint32_t bytes = most < CLEAR_BYTES ? (uint32_t)most : CLEAR_BYTES;

    ASSERT(op->batch.count == 0 && most > 0);
    void *zero = op_buffer(op, BUF_POOL, bytes);
    if (!zero)
        return FAR_NO_MEMORY;
    memset(zero, 0, bytes);
    unsigned i = piece_at(a, &at);
    while (i < a->pieces && added < most && op->batch.count < CLEAR_VERBS) {
        uint64_t left = size_class_bytes(class_of(a, i)) - at, part = left < bytes ? left : bytes;
        part = part < most - added ? part : most - added;
        batch_write(&op->batch, MARK_EARLY, a->piece[i], at, zero, (uint32_t)part);
        added += part;
        at = part == left ? 0 : at + part;
        i += part == left;
    }
    int rc = batch_flush(&op->batch);
    *done += rc == FAR_OK ? added : 0;
    return rc;
}

bool pool_array_is_clear(const struct pool_array *a, uint64_t done)
{
    return done == bytes_of_pieces(a);
}

int pool_array_clear(struct op *op, const struct pool_array *a)
{
    uint64_t total = bytes_of_pieces(a), done = 0;
    int rc = FAR_OK;
    while (rc == FAR_OK && done < total) {
        rc = pool_array_clear_part(op, a, &done, total);
        if (rc == FAR_OK)
            rc = client_progress(op->client, "clearing memory", done, total);
    }
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool within(const struct pool *pool, gaddr at, uint64_t bytes)
{
    unsigned node = gaddr_node(at);
    return at != 0 && node < pool->nodes && bytes <= pool_head(pool, node)->size &&
           gaddr_offset(at) <= pool_head(pool, node)->size - bytes;
}

static bool judge(const struct pool *pool, const struct array_head *h, uint64_t room,
                  struct pool_array *a)
{
    a->count = h->count;
    a->element = h->element;
    a->lanes = h->lanes;
    a->stripe_shift = h->stripe_shift;
    a->piece_shift = h->piece_shift;
    if (h->stripe_shift > 32 || h->piece_shift > 32 || !set_geometry(a) ||
        sizeof *h + a->pieces * 8ull > room || h->checksum != sum_of(h, a->pieces))
        return false;
    const gaddr *piece = (const gaddr *)(h + 1);
    for (unsigned i = 0; i < a->pieces; i++)
        if (!within(pool, piece[i], size_class_bytes(class_of(a, i))) ||
            gaddr_node(piece[i]) != gaddr_node(piece[i % a->lanes]))
            return false;
    return true;
}

int pool_array_open(struct op *op, uint64_t ref, struct pool_array *out)
{
    struct pool_array a = {.ref = ref & ((1ull << POINTER_OWN_AT(0)) - 1)};
    uint32_t bytes = size_class_bytes(pointer_class(ref));

    ASSERT(op->batch.count == 0);
    struct array_head *h = op_buffer(op, BUF_POOL, bytes);
    if (!h)
        return FAR_NO_MEMORY;
    if (!within(op->pool, pointer_gaddr(ref), bytes))
        return err_fail(FAR_CORRUPT, "the descriptor of an array is outside the pool");
    batch_read(&op->batch, pointer_gaddr(ref), 0, h, bytes);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    if (!judge(op->pool, h, bytes, &a))
        return err_fail(FAR_CORRUPT, "the descriptor of an array is damaged");
    a.piece = malloc(a.pieces * sizeof *a.piece);
    if (!a.piece)
        return err_fail(FAR_NO_MEMORY, "no memory for the addresses of %u pieces", a.pieces);
    memcpy(a.piece, h + 1, a.pieces * sizeof *a.piece);
    *out = a;
    return FAR_OK;
}

void pool_array_close(struct pool_array *a)
{
    free(a->piece);
    a->piece = NULL;
}
