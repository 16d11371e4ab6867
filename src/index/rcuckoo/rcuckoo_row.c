/*
 * Hashes, entries and rows.
 *
 * A key's second row lies `off` rows behind the first one, as in the paper: off is below a modulus
 * that grows with the zeros at the end of a hash, so that most keys have both rows near each other
 * and few have them far apart. All of it is integers (docs/index/rcuckoo.md).
 */
#include "index/iterate.h"
#include "index/rcuckoo/rcuckoo.h"

static unsigned words_for(unsigned bytes)
{
    return bytes <= 8 ? 1 : (bytes + 7) / 8;
}

/* With few rows of a lock, clients meet less often, and dead ones hold up fewer rows. A table that
 * does not grow gets fuller with more, because then a lock word has more rows. */
#define LOCK_ROWS       4u
#define LOCK_ROWS_FIXED 16u

bool rcuckoo_shape_set(struct rcuckoo_shape *s, const uint64_t *tuning)
{
    s->key = (unsigned)tuning[RCUCKOO_TUNING_KEY];
    s->value = (unsigned)tuning[RCUCKOO_TUNING_VALUE];
    s->wide = s->key * (s->value + 1) + s->key + 1 > UINT8_MAX;
    s->key_at = s->wide ? 1 : 0;
    s->value_at = s->key_at + words_for(s->key);
    s->entry = s->value_at + words_for(s->value);
    s->row = RCUCKOO_SLOTS * s->entry + 2;
    s->rows = (unsigned)tuning[RCUCKOO_TUNING_ROWS];
    if (s->rows == 0)
        s->rows = 2 * (uint32_t)CHUNK_BYTES / rcuckoo_row_bytes(s);
    s->lock_rows = (unsigned)tuning[RCUCKOO_TUNING_LOCK_ROWS];
    if (s->lock_rows == 0)
        s->lock_rows = tuning[RCUCKOO_TUNING_GROWS] != 0 ? LOCK_ROWS : LOCK_ROWS_FIXED;
    s->locks = (unsigned)tuning[RCUCKOO_TUNING_LOCKS];
    s->block = s->lock_rows * s->locks;
    s->words = (s->rows + s->block - 1) / s->block;
    if (s->words > tuning[RCUCKOO_TUNING_WORDS])
        s->words = (unsigned)tuning[RCUCKOO_TUNING_WORDS];
    s->path = RCUCKOO_REDO_BYTES / (8 + 8 * s->entry);
    if (s->path > RCUCKOO_PATH_MAX)
        s->path = RCUCKOO_PATH_MAX;
    return 8 * s->entry <= RCUCKOO_ENTRY_MAX && rcuckoo_rows_class(s) < CLASS_COUNT;
}

/* From the fourth one on, moduli that are smaller than a block are made as large as one: the locks
 * are in one word anyway, and rows fill more evenly. */
#define MODULI_OF_THE_PAPER 3

static double power(double x, uint64_t n)
{
    double y = 1;
    while (n-- > 0)
        y *= x;
    return y;
}

/* The hundredth root of a number above 1, by halving the interval. */
static double hundredth_root(double x)
{
    double low = 1, high = x;
    for (unsigned i = 0; i < 64; i++) {
        double middle = (low + high) / 2;
        if (power(middle, 100) < x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void rcuckoo_moduli(struct rcuckoo_shape *s, uint64_t f)
{
    double base = (double)f / 100, first = power(hundredth_root(base), f); /* f^f */
    for (unsigned z = 0; z < RCUCKOO_MODULI; z++) {
        double m = first * power(base, z);
        s->modulus[z] = m < 2 ? 2 : m > RCUCKOO_ROWS_MAX ? RCUCKOO_ROWS_MAX : (uint32_t)m;
        if (z >= MODULI_OF_THE_PAPER && s->modulus[z] < s->block)
            s->modulus[z] = s->block;
    }
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static uint64_t full_hash(const struct rcuckoo_view *view, const void *key, size_t len)
{
    return hash_key(key, len, view->base.table->desc.hash_seed).lo;
}

uint64_t rcuckoo_position(const struct rcuckoo_view *view, uint64_t hash)
{
    return index_reverse_bits(hash & rcuckoo_hash_mask(view), 32) << 32 | hash >> 32;
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void rcuckoo_rows_of(const struct rcuckoo_shape *s, uint64_t hash, unsigned row[2])
{
    uint64_t g = mix(hash);
    unsigned a = hash_range((uint32_t)(mix(g) >> 32), s->rows);
    unsigned base = a / s->block * s->block;
    unsigned length = s->rows - base < s->block ? s->rows - base : s->block;
    uint32_t m = s->modulus[__builtin_ctzll((g & 0xffffff) | 1 << (RCUCKOO_MODULI - 1))];
    bool within = m <= s->block && length > 1; /* a lock word's rows */
    uint32_t most = within ? length : s->rows;
    m = m < most ? m : most;
    unsigned off = 1 + hash_range((uint32_t)(g >> 32), m - 1);
    row[0] = a;
    row[1] = within ? base + (a - base + off) % length : (a + off) % s->rows;
}

void rcuckoo_key_set(const struct rcuckoo_view *view, struct slice bytes, struct rcuckoo_key *key)
{
    key->bytes = bytes;
    key->first = full_hash(view, bytes.data, bytes.len);
    key->mask = rcuckoo_hash_mask(view);
    key->hash = key->first & key->mask;
    key->inside = bytes.len <= view->shape.key;
    if (key->inside) {
        key->first = 0;
        key->mask = UINT64_MAX;
        memcpy(&key->first, bytes.data, bytes.len < 8 ? bytes.len : 8);
    }
    rcuckoo_rows_of(&view->shape, key->hash, key->row);
}

bool rcuckoo_slot_hash(const struct rcuckoo_view *view, uint64_t *row, unsigned slot,
                       uint64_t *hash)
{
    const struct rcuckoo_shape *s = &view->shape;
    const uint64_t *words = rcuckoo_slot(s, row, slot);
    struct rcuckoo_entry e;
    if (!rcuckoo_entry_of(s, rcuckoo_tags(s, row)[slot], words, &e) || e.kind == RCUCKOO_EMPTY)
        return false;
    *hash =
        e.kind == RCUCKOO_KEY_OUT ? words[s->key_at] : full_hash(view, words + s->key_at, e.klen);
    return true;
}

unsigned rcuckoo_other_row(const struct rcuckoo_view *view, uint64_t *row, unsigned number,
                           unsigned slot)
{
    ASSERT(number < view->shape.rows && slot < RCUCKOO_SLOTS);
    uint64_t hash = 0;
    unsigned of[2];
    if (!rcuckoo_slot_hash(view, row, slot, &hash))
        return RCUCKOO_ROWS_MAX;
    rcuckoo_rows_of(&view->shape, hash & rcuckoo_hash_mask(view), of);
    if (of[0] == number)
        return of[1];
    return of[1] == number ? of[0] : RCUCKOO_ROWS_MAX;
}

/* ---- entries --------------------------------------------------------------------------------- */

bool rcuckoo_fits(const struct rcuckoo_shape *s, const struct rcuckoo_key *key, size_t vlen)
{
    return key->inside && vlen <= s->value;
}

uint8_t rcuckoo_encode(const struct rcuckoo_shape *s, const struct rcuckoo_key *key,
                       struct slice value, uint64_t pointer, uint64_t *entry)
{
    ASSERT(pointer != 0 || rcuckoo_fits(s, key, value.len));
    struct rcuckoo_entry e = {.kind = RCUCKOO_KEY_OUT};
    memset(entry, 0, 8 * (size_t)s->entry);
    entry[s->key_at] = key->first;
    entry[s->value_at] = pointer;
    if (key->inside) {
        e = (struct rcuckoo_entry){RCUCKOO_VALUE_OUT, (unsigned)key->bytes.len, 0};
        entry[s->key_at] = 0;
        memcpy(entry + s->key_at, key->bytes.data, key->bytes.len);
    }
    if (rcuckoo_fits(s, key, value.len)) {
        e.kind = RCUCKOO_INLINE;
        e.vlen = (unsigned)value.len;
        entry[s->value_at] = 0;
        if (value.len > 0)
            memcpy(entry + s->value_at, value.data, value.len);
    }
    if (s->wide)
        entry[0] = rcuckoo_lengths(e);
    return rcuckoo_tag(s, e);
}

unsigned rcuckoo_candidates(const struct rcuckoo_shape *s, const struct rcuckoo_key *key,
                            uint64_t *row)
{
    unsigned found = 0;
    for (unsigned slot = 0; slot < RCUCKOO_SLOTS; slot++) {
        const uint64_t *words = rcuckoo_slot(s, row, slot);
        unsigned tag = rcuckoo_tags(s, row)[slot];
        struct rcuckoo_entry e;
        if (((words[s->key_at] ^ key->first) & key->mask) != 0 || tag == 0 ||
            !rcuckoo_entry_of(s, tag, words, &e))
            continue;
        if (key->inside ? e.klen == key->bytes.len &&
                              memcmp(words + s->key_at, key->bytes.data, e.klen) == 0
                        : e.kind == RCUCKOO_KEY_OUT)
            found |= 1u << slot;
    }
    return found;
}

bool rcuckoo_slot_names(const struct rcuckoo_shape *s, uint64_t *row, unsigned slot,
                        uint64_t pointer)
{
    struct rcuckoo_entry e;
    unsigned tag = rcuckoo_tags(s, row)[slot];
    return tag != 0 && rcuckoo_entry_of(s, tag, rcuckoo_slot(s, row, slot), &e) &&
           e.kind != RCUCKOO_INLINE && rcuckoo_slot_pointer(s, row, slot) == pointer;
}

int rcuckoo_slot_entry(const struct rcuckoo_view *view, uint64_t *row, unsigned slot,
                       struct rcuckoo_entry *e)
{
    const struct rcuckoo_shape *s = &view->shape;
    if (rcuckoo_entry_of(s, rcuckoo_tags(s, row)[slot], rcuckoo_slot(s, row, slot), e))
        return FAR_OK;
    return index_damaged(view->base.table, "an entry");
}

struct slice rcuckoo_slot_value(const struct rcuckoo_shape *s, uint64_t *row, unsigned slot,
                                struct rcuckoo_entry e)
{
    return (struct slice){rcuckoo_slot(s, row, slot) + s->value_at, e.vlen};
}

/* ---- rows ------------------------------------------------------------------------------------ */

int rcuckoo_row_damaged(const struct rcuckoo_view *view, unsigned row)
{
    return err_fail(FAR_CORRUPT, "row %u of a subtable of table '%s' is damaged", row,
                    view->base.table->desc.name);
}

struct place {
    const struct rcuckoo_shape *shape;
    uint64_t id;
    unsigned number;
};

static bool whole_there(const uint64_t *row, const void *arg)
{
    const struct place *p = arg;
    return rcuckoo_row_whole(p->shape, p->id, p->number, row);
}

unsigned rcuckoo_row_flipped(const struct rcuckoo_shape *s, uint64_t id, unsigned number,
                             uint64_t *row)
{
    struct place place = {s, id, number};
    return index_flipped(row, s->row, whole_there, &place);
}

void rcuckoo_row_init(const struct rcuckoo_shape *s, uint64_t id, unsigned number, uint64_t *row)
{
    ASSERT(number < s->rows);
    memset(row, 0, rcuckoo_row_bytes(s));
    *rcuckoo_meta(s, row) = rcuckoo_meta_of(s, id, number, row, 0);
}

void rcuckoo_row_redo(const struct rcuckoo_shape *s, uint64_t id, uint64_t *row,
                      const uint64_t *item)
{
    unsigned slot = rcuckoo_redo_slot(item[0]), version = rcuckoo_redo_version(item[0]);
    memcpy(rcuckoo_slot(s, row, slot), item + 1, 8 * (size_t)s->entry);
    rcuckoo_tags(s, row)[slot] = (uint8_t)rcuckoo_redo_tag(item[0]);
    *rcuckoo_meta(s, row) = rcuckoo_meta_of(s, id, rcuckoo_redo_row(item[0]), row, version);
}
