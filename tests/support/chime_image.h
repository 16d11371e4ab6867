/* Nodes of CHIME as they are in memory, for tests that look into them or damage them. */
#ifndef TESTS_CHIME_IMAGE_H
#define TESTS_CHIME_IMAGE_H

#include "index/chime/chime.h"
#include "support/store_rig.h"

struct image {
    gaddr at;
    uint64_t node[CHIME_HEAD_WORDS + CHIME_GROUP_WORDS * CHIME_GROUPS_MAX];
};

static inline void image_read(struct store_rig *r, const struct chime_view *view, gaddr at,
                              struct image *i)
{
    i->at = at;
    for (unsigned w = 0; w < view->shape.bytes / 8; w++)
        i->node[w] = store_rig_get(r, at, 8 * (uint64_t)w);
}

/* The highest node. While there are few keys, it is a leaf. */
static inline void image_read_top(struct store_rig *r, const struct chime_view *view,
                                  struct image *i)
{
    uint64_t top = store_rig_get(r, view->root, offsetof(struct chime_root, top));
    image_read(r, view, chime_top_at(top), i);
}

/* Writes it back. Its groups are sealed by the name in its head. */
static inline void image_write(struct store_rig *r, const struct chime_view *view, struct image *i)
{
    struct chime_name name = chime_head_name(i->at, chime_head(i->node));
    for (unsigned group = 0; group < view->shape.groups; group++)
        chime_group_seal(chime_name_seal(view, &name), group, chime_group(i->node, group));
    for (unsigned w = 0; w < view->shape.bytes / 8; w++)
        store_rig_set(r, i->at, 8 * (uint64_t)w, i->node[w]);
}

/* The nth place that is not empty. */
static inline unsigned image_used(struct image *i, unsigned nth)
{
    unsigned place = 0;
    while (chime_kind_at(i->node, place) == CHIME_EMPTY || nth-- > 0)
        place++;
    return place;
}

#endif
