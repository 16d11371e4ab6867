#include "index/own.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (4u << 20) /* about what a busy session writes while PTR-5 lasts */
#define OWN_TURNS 16
_Static_assert(sizeof(struct index_own) == INDEX_LINE, "an entry is a cache line");

void index_owns_open(struct index_owns *owns, struct slot_format format, uint64_t bytes)
{
    *owns = (struct index_owns){.bits = 1, .generation = format.generation};
    if (bytes == 0)
        return;
    if (bytes > BYTES_MAX)
        bytes = BYTES_MAX;
    while (2ull * INDEX_LINE << owns->bits <= bytes)
        owns->bits++;
    owns->own = index_lines(1ull << owns->bits, &owns->memory);
}

void index_owns_close(struct index_owns *owns)
{
    free(owns->memory);
    *owns = (struct index_owns){.own = NULL};
}

/* A key is in one of two entries, side by side. */
static struct index_own *pair_of(const struct index_owns *owns, uint64_t hash)
{
    return &owns->own[hash * 0x9e3779b97f4a7c15ull >> (64 - owns->bits) & ~1ull];
}

static struct index_own *own_of(const struct index_owns *owns, uint64_t hash, struct slice key)
{
    struct index_own *own = pair_of(owns, hash);
    for (unsigned i = 0; i < 2; i++, own++)
        if (own->slot != 0 && own->key_len == key.len && memcmp(own->key, key.data, key.len) == 0)
            return own;
    return NULL;
}

/* The entry of the pair that was written longer ago. */
static struct index_own *older_of(const struct index_owns *owns, uint64_t hash)
{
    struct index_own *own = pair_of(owns, hash);
    return own[0].slot == 0 || (own[1].slot != 0 && own[0].epoch <= own[1].epoch) ? own : own + 1;
}

struct index_hint index_own_of(struct index_owns *owns, const struct op *op, uint64_t hash,
                               struct slice key)
{
    struct index_own *own = owns->own ? own_of(owns, hash, key) : NULL;
    if (!own || own->shared || !pointer_still_means(op, own->epoch, owns->generation) ||
        own->turns++ >= OWN_TURNS)
        return (struct index_hint){.slot = 0};
    return (struct index_hint){.slot = own->slot, .place = own->place};
}

void index_own_lost(struct index_owns *owns, uint64_t hash, struct slice key)
{
    struct index_own *own = own_of(owns, hash, key);
    if (own)
        own->shared = true;
}

void index_own_note(struct index_owns *owns, const struct op *op, uint64_t hash, struct slice key,
                    uint64_t old, struct index_hint hint)
{
    if (!owns->own || key.len > INDEX_OWN_KEY)
        return;
    struct index_own *own = own_of(owns, hash, key);
    if (!own && hint.slot == 0)
        return;
    if (!own) {
        own = older_of(owns, hash);
        owns->used += own->key_len == 0;
        *own = (struct index_own){.key_len = (uint8_t)key.len};
        memcpy(own->key, key.data, key.len);
    }
    own->shared = own->shared && own->slot != old;
    if (own->slot != old || own->turns > OWN_TURNS)
        own->turns = 0;
    own->slot = hint.slot;
    own->epoch = op->epoch;
    own->place = (uint8_t)hint.place;
}
