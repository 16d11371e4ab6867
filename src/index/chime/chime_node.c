/* Images of nodes: names, checksums, where keys may be, and how an entry gets a place. Nothing here
 * waits. */
#include "index/chime/chime.h"

#define NAME_SALT 0x6368696d656e616dull
#define HEAD_SALT 0x6368696d65686561ull
#define STEM_SALT 0x6368696d65737465ull

/* ---- keys ------------------------------------------------------------------------------------ */

uint64_t chime_prefix(struct slice key)
{
    uint64_t k = 0;
    memcpy(&k, key.data, key.len < 8 ? key.len : 8);
    return __builtin_bswap64(k);
}

struct slice chime_bound_bytes(const struct chime_bound *bound, char text[8])
{
    uint64_t k = __builtin_bswap64(bound->k);
    if (bound->bytes.data)
        return bound->bytes;
    memcpy(text, &k, 8);
    return (struct slice){text, k == 0 ? 0 : 8 - (size_t)__builtin_clzll(k) / 8};
}

struct chime_stem chime_stem(const struct chime_view *view, const void *bytes, unsigned len)
{
    return (struct chime_stem){len, len > 0 ? hash_sum(bytes, len, view->seed ^ STEM_SALT) : 0};
}

bool chime_has_stem(const struct chime_view *view, const struct chime_stem *stem, struct slice key)
{
    return key.len >= stem->len && chime_stem(view, key.data, stem->len).hash == stem->hash;
}

uint64_t chime_k(const struct chime_view *view, const struct chime_stem *stem, struct slice key)
{
    if (stem->len == 0)
        return chime_prefix(key);
    if (!chime_has_stem(view, stem, key))
        return UINT64_MAX; /* it is above all keys with the stem (CHIME-C14) */
    return chime_prefix((struct slice){(const char *)key.data + stem->len, key.len - stem->len});
}

/* The hash says where a key belongs, as far as the test hooks let it. */
static unsigned fingerprint_of(const struct chime_view *view, struct hash128 hash)
{
    const struct knobs *knobs = &view->base.table->pool->knobs;
    unsigned home = (unsigned)(hash.lo & knobs->hash_mask) & (view->shape.span - 1);
    unsigned rest = (unsigned)(hash.hi >> 32) & knobs->fingerprint_mask;
    return home | (rest << CHIME_HOME_BITS & ((1u << CHIME_SLOT.fingerprint) - 1));
}

void chime_key_set(const struct chime_view *view, struct slice bytes, struct chime_key *key)
{
    struct hash128 hash = hash_key(bytes.data, bytes.len, view->seed);
    key->bound = chime_key_bound(bytes);
    key->fingerprint = fingerprint_of(view, hash);
    key->home = key->fingerprint & (view->shape.span - 1);
    key->inside = bytes.len == 8;
    key->hash = hash.hi;
}

unsigned chime_entry_home(const struct chime_view *view, uint64_t *node, unsigned place)
{
    ASSERT(place < view->shape.span);
    const uint64_t *entry = chime_entry(node, place);
    if (chime_kind_at(node, place) == CHIME_BLOCK)
        return slot_fingerprint(CHIME_SLOT, entry[1]) & (view->shape.span - 1);
    uint64_t key = __builtin_bswap64(entry[0]);
    return fingerprint_of(view, hash_key(&key, 8, view->seed)) & (view->shape.span - 1);
}

/* ---- names and checksums --------------------------------------------------------------------- */

struct chime_seal chime_name_seal(const struct chime_view *view, const struct chime_name *name)
{
    uint64_t seed = hash_sum(name, sizeof *name, view->seed ^ NAME_SALT);
    return (struct chime_seal){.seed = seed, .tag = (unsigned)(seed >> 56)};
}

struct chime_name chime_head_name(gaddr at, const struct chime_head *head)
{
    return (struct chime_name){
        .at = at, .low = head->low, .next = chime_next_at(head->next), .high = head->high};
}

struct chime_name chime_dead_name(gaddr at, const struct chime_head *head)
{
    return (struct chime_name){.at = at, .low = head->low, .next = CHIME_NOWHERE};
}

uint64_t chime_head_sum(const struct chime_view *view, gaddr at, const struct chime_head *head)
{
    uint64_t words[] = {at, head->low.k, head->low.lng, head->low.sum, head->level, head->stem};
    return hash_sum(words, sizeof words, view->seed ^ HEAD_SALT);
}

uint64_t chime_text_sum(const struct chime_view *view, struct slice bytes, unsigned stem)
{
    ASSERT(stem <= CHIME_STEM_MAX);
    return bytes.data
               ? (hash_sum(bytes.data, bytes.len, view->seed) & ~(uint64_t)CHIME_STEM_MAX) | stem
               : 0;
}

/* What G must be, for these kinds and era. */
static uint64_t sealed(struct chime_seal seal, unsigned group, const uint64_t *words)
{
    uint64_t covered[1 + 2 * CHIME_GROUP];
    uint64_t said = chime_said(words[0]);
    covered[0] = chime_with_seal(said, group, 0);
    for (unsigned i = 0; i < CHIME_GROUP; i++) {
        bool used = chime_kind(words[0], i) != CHIME_EMPTY;
        covered[1 + 2 * i] = used ? words[1 + 2 * i] : 0;
        covered[2 + 2 * i] = used ? words[2 + 2 * i] : 0;
    }
    return chime_with_seal(said, seal.tag, hash_sum(covered, sizeof covered, seal.seed));
}

bool chime_group_whole(struct chime_seal seal, unsigned group, const uint64_t *words)
{
    return sealed(seal, group, words) == words[0];
}

void chime_group_seal(struct chime_seal seal, unsigned group, uint64_t *words)
{
    ASSERT(group < CHIME_GROUPS_MAX);
    words[0] = sealed(seal, group, words);
}

void chime_renew(const struct chime_view *view, uint64_t *node, const struct chime_name *name,
                 unsigned era)
{
    struct chime_seal seal = chime_name_seal(view, name);
    for (unsigned g = 0; g < view->shape.groups; g++) {
        uint64_t *words = chime_group(node, g);
        words[0] = chime_with_era(words[0], era);
        chime_group_seal(seal, g, words);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

struct chime_window chime_window(const struct chime_shape *s, unsigned home)
{
    ASSERT(home < s->span);
    struct chime_window w = {.first = home / CHIME_GROUP};
    w.count = (home % CHIME_GROUP + s->hood + CHIME_GROUP - 1) / CHIME_GROUP;
    return w.count < s->groups ? w : chime_all(s);
}

void chime_read_window(struct op *op, const struct chime_shape *s, gaddr at, struct chime_window w,
                       uint64_t *node, unsigned flags)
{
    ASSERT(w.first < s->groups && w.count > 0 && w.count <= s->groups);
    unsigned end = w.first + w.count, before = end < s->groups ? end : s->groups;
    batch_add(&op->batch, FAB_READ, flags, at, chime_group_at(w.first), chime_group(node, w.first),
              8 * CHIME_GROUP_WORDS * (before - w.first));
    if (end > s->groups)
        batch_add(&op->batch, FAB_READ, flags, at, chime_group_at(0), chime_group(node, 0),
                  8 * CHIME_GROUP_WORDS * (end - s->groups));
}

enum chime_fit chime_judge(const struct chime_view *view, uint64_t *node, struct chime_window w,
                           const struct chime_name *name)
{
    struct chime_seal seal = chime_name_seal(view, name);
    enum chime_fit fit = CHIME_FITS;
    unsigned era = chime_era(*chime_group(node, w.first));
    for (unsigned i = 0; i < w.count; i++) {
        unsigned g = (w.first + i) % view->shape.groups;
        const uint64_t *words = chime_group(node, g);
        if (chime_tag(words[0]) != seal.tag)
            return CHIME_MISFIT;
        if (chime_era(words[0]) != era || !chime_group_whole(seal, g, words))
            fit = CHIME_TORN; /* CHIME-C6 */
    }
    return fit;
}

/* ---- keys in a leaf -------------------------------------------------------------------------- */

uint64_t chime_candidates(const struct chime_view *view, uint64_t *node,
                          const struct chime_key *key, struct chime_window w,
                          const struct chime_name *name, const struct chime_stem *stem, int *exact)
{
    const struct chime_shape *s = &view->shape;
    struct chime_seal seal = chime_name_seal(view, name);
    uint64_t candidates = 0, k = chime_k(view, stem, key->bound.bytes);
    *exact = -1;
    for (unsigned i = 0; i < w.count; i++) {
        unsigned g = (w.first + i) % s->groups;
        const uint64_t *words = chime_group(node, g);
        if (!chime_group_whole(seal, g, words))
            continue;
        for (unsigned j = 0; j < CHIME_GROUP; j++) {
            unsigned kind = chime_kind(words[0], j), place = CHIME_GROUP * g + j;
            if (kind == CHIME_INLINE && key->inside && words[1 + 2 * j] == key->bound.k)
                *exact = (int)place;
            else if (kind == CHIME_BLOCK && words[1 + 2 * j] == k &&
                     slot_fingerprint(CHIME_SLOT, words[2 + 2 * j]) == key->fingerprint)
                candidates |= 1ull << place;
        }
    }
    return candidates;
}

uint64_t chime_vacancy(const struct chime_shape *s, uint64_t *node)
{
    uint64_t vacancy = 0;
    for (unsigned p = 0; p < s->span; p++)
        vacancy |= (uint64_t)(chime_kind_at(node, p) == CHIME_EMPTY) << p;
    return vacancy;
}

/* ---- places ---------------------------------------------------------------------------------- */

unsigned chime_free_place(const struct chime_shape *s, uint64_t vacancy, unsigned home)
{
    ASSERT(home < s->span);
    for (unsigned i = 0; i < s->hood; i++) {
        unsigned place = (home + i) & (s->span - 1);
        if (chime_is_free(vacancy, place))
            return place;
    }
    return s->span;
}

/* A search for a free place, by the fewest moves: an entry may go to any place of its own
 * neighbourhood. */
struct search {
    uint64_t seen;
    uint8_t queue[CHIME_SPAN_MAX];
    uint8_t
        from[CHIME_SPAN_MAX]; /* whose entry may go to this place; CHIME_SPAN_MAX: the new one */
    unsigned head, tail;
};

static void reach(const struct chime_shape *s, struct search *b, unsigned home, unsigned from)
{
    for (unsigned i = 0; i < s->hood; i++) {
        unsigned place = (home + i) & (s->span - 1);
        if (b->seen >> place & 1)
            continue;
        b->seen |= 1ull << place;
        b->from[place] = (uint8_t)from;
        b->queue[b->tail++] = (uint8_t)place;
    }
}

bool chime_plan(const struct chime_view *view, uint64_t *node, unsigned home,
                struct chime_plan *plan)
{
    ASSERT(home < view->shape.span);
    const struct chime_shape *s = &view->shape;
    uint64_t vacancy = chime_vacancy(s, node);
    struct search b = {0};
    reach(s, &b, home, CHIME_SPAN_MAX);
    while (b.head < b.tail && !chime_is_free(vacancy, b.queue[b.head])) {
        unsigned place = b.queue[b.head++];
        reach(s, &b, chime_entry_home(view, node, place), place);
    }
    if (b.head == b.tail)
        return false;
    unsigned hole = b.queue[b.head];
    for (plan->moves = 0; b.from[hole] != CHIME_SPAN_MAX; hole = b.from[hole]) {
        if (plan->moves == CHIME_MOVES)
            return false;
        plan->move[plan->moves].from = b.from[hole];
        plan->move[plan->moves++].to = (uint8_t)hole;
    }
    plan->place = hole;
    return true;
}

int chime_damaged(const struct chime_view *view, gaddr at)
{
    return err_fail(FAR_CORRUPT, "node %u:0x%llx of table '%s' is damaged", gaddr_node(at),
                    (unsigned long long)gaddr_offset(at), view->base.table->desc.name);
}
