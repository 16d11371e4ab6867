#include "index/hints.h"

#include <stdatomic.h>
#include <stdlib.h>

#define WAYS       6u
#define USES_MAX   15u
#define LEFT_OUT   INDEX_HINT_PLACES /* the place of a key whose hints were wrong */
#define LEFT_FOR   8u                /* looks for such a key until it gets a hint again */
#define BITS_FIRST 10u               /* 64 KiB */
#define BITS_GROWN 18u               /* 16 MiB: to double more in one operation takes too long */

/* All accesses are relaxed: a hint that is torn is a wrong one (HINT-H4). */
struct hint_set {
    _Atomic uint64_t slot[WAYS];  /* 0: free */
    _Atomic uint16_t about[WAYS]; /* the place, and above it some bits of the key's hash */
    _Atomic uint32_t uses;        /* four bits for each way, then the way whose turn it is to lose
                                     one */
};
_Static_assert(sizeof(struct hint_set) == INDEX_LINE, "a set is a cache line");

/* There are few sets at first, and twice as many whenever keys have found no room often. */
struct index_hints {
    struct hint_set *set; /* by a part of the key's hash */
    void *memory;         /* of the sets */
    unsigned bits_max;    /* there are 2^bits sets, and memory for 2^bits_max */
    _Atomic unsigned bits;
    _Atomic unsigned displaced; /* keys that met a full set since the last growth */
    atomic_flag grows;
};

#define LOAD(word)         atomic_load_explicit(&(word), memory_order_relaxed)
#define STORE(word, value) atomic_store_explicit(&(word), value, memory_order_relaxed)

void *index_lines(uint64_t count, void **memory)
{
    *memory = calloc(count + 1, INDEX_LINE);
    uintptr_t at = ((uintptr_t)*memory + INDEX_LINE - 1) & ~(uintptr_t)(INDEX_LINE - 1);
    return *memory ? (void *)at : NULL;
}

static void free_hints(struct index_hints *hints)
{
    if (hints)
        free(hints->memory);
    free(hints);
}

static struct index_hints *make_hints(uint64_t bytes)
{
    struct index_hints *hints = calloc(1, sizeof *hints);
    if (!hints)
        return NULL;
    hints->bits_max = 1;
    while (bytes >> hints->bits_max >= 2 * INDEX_LINE)
        hints->bits_max++;
    bool grows = hints->bits_max > BITS_FIRST && hints->bits_max <= BITS_GROWN;
    atomic_init(&hints->bits, grows ? BITS_FIRST : hints->bits_max);
    hints->set = index_lines(1ull << hints->bits_max, &hints->memory);
    if (hints->set)
        return hints;
    free_hints(hints);
    return NULL;
}

struct index_hints *index_hints_open(const struct op *op, const struct index_table *table,
                                     uint64_t bytes)
{
    if (bytes == 0 || !table->hints) /* a view for a walk needs none */
        return NULL;
    _Atomic(struct index_hints *) *at = &table->hints[op->batch.ep->process];
    struct index_hints *hints = atomic_load_explicit(at, memory_order_acquire);
    if (hints)
        return hints;
    struct index_hints *made = make_hints(bytes);
    if (!made || atomic_compare_exchange_strong_explicit(at, &hints, made, memory_order_acq_rel,
                                                         memory_order_acquire))
        return made;
    free_hints(made);
    return hints;
}

void index_hints_free(struct index_table *table)
{
    unsigned processes = fab_processes(table->pool->fab);
    for (unsigned i = 0; table->hints && i < processes; i++)
        free_hints(LOAD(table->hints[i]));
    free(table->hints);
    table->hints = NULL;
}

uint64_t index_hints_bytes(const struct index_hints *hints)
{
    return hints ? sizeof *hints->set << LOAD(hints->bits) : 0;
}

static uint64_t mixed(uint64_t hash)
{
    return hash * 0x9e3779b97f4a7c15ull;
}

static struct hint_set *set_of(const struct index_hints *hints, uint64_t hash)
{
    return &hints->set[mixed(hash) >> (64 - LOAD(hints->bits))];
}

/* Bits of the hash that most other keys of the set do not have. */
static unsigned tag_of(uint64_t hash)
{
    return (unsigned)(mixed(hash) >> 24) & 0xff00u;
}

/* The way of the set whose slot has the fingerprint, and the tag, or WAYS. */
static unsigned way_of(const struct hint_set *set, struct slot_format format, uint64_t hash,
                       uint64_t fingerprint, struct index_hint *hint)
{
    uint64_t mask = slot_fingerprint_mask(format), want = fingerprint << format.fingerprint_at;
    for (unsigned i = 0; i < WAYS; i++) {
        uint64_t slot = LOAD(set->slot[i]);
        unsigned about = LOAD(set->about[i]);
        if (slot == 0 || (slot & mask) != want || (about ^ tag_of(hash)) > UINT8_MAX)
            continue;
        *hint = (struct index_hint){.slot = slot, .place = about & UINT8_MAX};
        return i;
    }
    return WAYS;
}

/* ---- which keys stay ------------------------------------------------------------------------- */

static unsigned uses_of(const struct hint_set *set, unsigned way)
{
    return LOAD(set->uses) >> 4 * way & USES_MAX;
}

static void set_uses(struct hint_set *set, unsigned way, unsigned uses)
{
    uint32_t others = LOAD(set->uses) & ~(USES_MAX << 4 * way);
    STORE(set->uses, others | uses << 4 * way);
}

/* A use of one of the ways, in turns, does not count any more. */
static void lose_one(struct hint_set *set)
{
    uint32_t all = LOAD(set->uses);
    unsigned way = (all >> 4 * WAYS) % WAYS, uses = uses_of(set, way);
    STORE(set->uses, all + (1u << 4 * WAYS));
    if (uses > 0)
        set_uses(set, way, uses - 1);
}

/* The way for a new key, or WAYS. */
static unsigned room(struct index_hints *hints, struct hint_set *set)
{
    for (unsigned i = 0; i < WAYS; i++)
        if (LOAD(set->slot[i]) == 0)
            return i;
    atomic_fetch_add_explicit(&hints->displaced, 1, memory_order_relaxed);
    for (unsigned i = 0; i < WAYS; i++)
        if (uses_of(set, i) == 0)
            return i;
    lose_one(set);
    return WAYS;
}

/* A key that was seen has this way already. Is it to have a hint? */
static bool is_hinted(struct hint_set *set, unsigned way, const struct index_hint *old, bool wrong)
{
    unsigned uses = uses_of(set, way);
    if (old->place == LEFT_OUT) {
        if (uses >= LEFT_FOR)
            set_uses(set, way, 1);
        return uses >= LEFT_FOR;
    }
    if (wrong)
        set_uses(set, way, uses < 2 ? 0 : uses - 2);
    return !wrong || uses >= 2;
}

/* ---- growing --------------------------------------------------------------------------------- */

static void copy(struct hint_set *to, const struct hint_set *from)
{
    for (unsigned i = 0; i < WAYS; i++) {
        STORE(to->slot[i], LOAD(from->slot[i]));
        STORE(to->about[i], LOAD(from->about[i]));
    }
    STORE(to->uses, 0);
}

/* Doubles the sets: each one is copied. A key looks in only one of the two copies, so half of the
 * hints are never used again. Uses are counted from zero, so those give way first. While this runs,
 * other sessions may look in the wrong sets, and find nothing. */
static void grow(struct index_hints *hints)
{
    if (atomic_flag_test_and_set_explicit(&hints->grows, memory_order_acquire))
        return;
    unsigned bits = LOAD(hints->bits);
    for (size_t i = (size_t)1 << bits; bits < hints->bits_max && i-- > 0;) {
        copy(&hints->set[2 * i + 1], &hints->set[i]);
        copy(&hints->set[2 * i], &hints->set[i]);
    }
    STORE(hints->bits, bits < hints->bits_max ? bits + 1 : bits);
    STORE(hints->displaced, 0);
    atomic_flag_clear_explicit(&hints->grows, memory_order_release);
}

/* After it has grown, half of the hints are of no use, and giving way means nothing. */
static bool too_small(const struct index_hints *hints)
{
    unsigned bits = LOAD(hints->bits);
    return LOAD(hints->displaced) >> bits >= WAYS / 2 + 1 && bits < hints->bits_max;
}

/* ---- hints ----------------------------------------------------------------------------------- */

void index_hint_note(struct index_hints *hints, struct slot_format format, uint64_t hash,
                     uint64_t fingerprint, struct index_hint hint)
{
    ASSERT(hint.place < INDEX_HINT_PLACES);
    if (!hints)
        return;
    if (too_small(hints))
        grow(hints);
    struct hint_set *set = set_of(hints, hash);
    struct index_hint old;
    unsigned way = way_of(set, format, hash, fingerprint, &old);
    if (block_class_long(pointer_class(hint.slot)))
        hint.slot = 0;
    if (way < WAYS && !is_hinted(set, way, &old, hint.wrong))
        hint.place = LEFT_OUT;
    if (way == WAYS && hint.slot != 0) {
        way = room(hints, set);
        if (way < WAYS)
            set_uses(set, way, 1);
    }
    if (way == WAYS)
        return;
    STORE(set->slot[way], hint.slot);
    STORE(set->about[way], (uint16_t)(tag_of(hash) | hint.place));
}

struct index_hint index_hint_peek(const struct index_hints *hints, struct slot_format format,
                                  uint64_t hash, uint64_t fingerprint)
{
    struct index_hint hint = {.slot = 0};
    if (hints)
        (void)way_of(set_of(hints, hash), format, hash, fingerprint, &hint);
    if (hint.place == LEFT_OUT)
        hint.slot = 0;
    return hint;
}

struct index_hint index_hint_of(struct index_hints *hints, struct slot_format format, uint64_t hash,
                                uint64_t fingerprint)
{
    struct index_hint hint = {.slot = 0};
    if (!hints)
        return hint;
    struct hint_set *set = set_of(hints, hash);
    unsigned way = way_of(set, format, hash, fingerprint, &hint);
    if (way < WAYS && uses_of(set, way) < USES_MAX)
        set_uses(set, way, uses_of(set, way) + 1);
    if (hint.place == LEFT_OUT)
        hint.slot = 0;
    return hint;
}
