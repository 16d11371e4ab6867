/*
 * Where hot keys are in their leaves, so that a get reads one group only (the paper's speculative
 * reads).
 *
 * A bounded table of sets. A key is known by a part of its hash. In a set the key that was used
 * least gives way, and counts are halved when one is at its limit, so that keys which were hot once
 * do not stay for ever.
 */
#include "index/chime/chime.h"

#include <stdlib.h>

#define WAYS      8u
#define COUNT_MAX 255u

struct hot_key {
    uint32_t tag; /* of the hash; 0: free */
    uint8_t place;
    uint8_t count;
    uint16_t unused;
};
struct chime_hot {
    uint64_t sets; /* a power of two */
    struct hot_key key[];
};

int chime_hot_new(uint64_t bytes, struct chime_hot **hot)
{
    uint64_t sets = 1;
    *hot = NULL;
    if (bytes == 0)
        return FAR_OK;
    while (2 * sets * WAYS * sizeof(struct hot_key) <= bytes)
        sets *= 2;
    struct chime_hot *h = calloc(1, sizeof *h + sets * WAYS * sizeof(struct hot_key));
    if (!h)
        return err_fail(FAR_NO_MEMORY, "no memory for a buffer of hot keys");
    h->sets = sets;
    *hot = h;
    return FAR_OK;
}

void chime_hot_free(struct chime_hot *hot)
{
    free(hot);
}

static struct hot_key *set_of(struct chime_hot *hot, uint64_t hash)
{
    return &hot->key[(hash & (hot->sets - 1)) * WAYS];
}

static struct hot_key *find(struct chime_hot *hot, uint64_t hash)
{
    struct hot_key *set = set_of(hot, hash);
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].tag == (uint32_t)(hash >> 32 | 1))
            return &set[i];
    return NULL;
}

int chime_hot_find(struct chime_hot *hot, uint64_t hash)
{
    const struct hot_key *key = hot ? find(hot, hash) : NULL;
    return key ? key->place : -1;
}

void chime_hot_seen(struct chime_hot *hot, uint64_t hash, unsigned place)
{
    ASSERT(place < CHIME_SPAN_MAX);
    if (!hot)
        return;
    struct hot_key *set = set_of(hot, hash), *key = find(hot, hash);
    if (!key) {
        key = set;
        for (unsigned i = 1; i < WAYS; i++)
            if (set[i].count < key->count)
                key = &set[i];
        if (key->count > 0) { /* it stays, but not for ever */
            key->count--;
            return;
        }
        key->tag = (uint32_t)(hash >> 32 | 1);
    }
    key->place = (uint8_t)place;
    if (key->count == COUNT_MAX)
        for (unsigned i = 0; i < WAYS; i++)
            set[i].count /= 2;
    key->count++;
}

void chime_hot_forget(struct chime_hot *hot, uint64_t hash)
{
    struct hot_key *key = hot ? find(hot, hash) : NULL;
    if (key)
        *key = (struct hot_key){0};
}
