/* Looking into a SepHash table of actors. */
#ifndef TESTS_SEPHASH_RIG_H
#define TESTS_SEPHASH_RIG_H

#include "index/sephash/sephash.h"
#include "support/actors.h"

static inline struct sephash_view *view_of(struct actor *a)
{
    return sephash_view(store_known(a->s, a->t)->view);
}
static inline struct sephash_key key_of(uint32_t key)
{
    struct sephash_key k;
    sephash_hash(view_of(&B), (struct slice){&key, sizeof key}, &k);
    return k;
}

#endif
