/* Reads and writes a pool's memory without a client: it sends no announcements. */
#ifndef TESTS_PROBE_H
#define TESTS_PROBE_H

#include "pool/pool_internal.h"

#include <string.h>

struct probe {
    struct fab_ep *ep;
    struct cost cost;
    struct batch batch;
    uint64_t *word;
};

static inline void probe_open(struct probe *p, struct fab *fab)
{
    memset(p, 0, sizeof *p);
    ASSERT(fab->ops->ep_open(fab, &p->ep) == FAR_OK);
    batch_init(&p->batch, p->ep, &p->cost);
    p->word = p->ep->ops->buf_alloc(p->ep, 64);
    ASSERT(p->word != NULL);
}

static inline void probe_close(struct probe *p)
{
    p->ep->ops->buf_free(p->ep, p->word, 64);
    p->ep->ops->ep_close(p->ep);
}

static inline uint64_t probe_get(struct probe *p, gaddr at, uint64_t delta)
{
    batch_read(&p->batch, at, delta, p->word, 8);
    ASSERT(batch_flush(&p->batch) == FAR_OK);
    return p->word[0];
}

static inline void probe_set(struct probe *p, gaddr at, uint64_t delta, uint64_t value)
{
    p->word[0] = value;
    batch_write(&p->batch, MARK_EARLY, at, delta, p->word, 8);
    ASSERT(batch_flush(&p->batch) == FAR_OK);
}

static inline bool probe_cas(struct probe *p, gaddr at, uint64_t delta, uint64_t from, uint64_t to)
{
    batch_cas(&p->batch, MARK_PUBLISH, at, delta, from, to, p->word);
    ASSERT(batch_flush(&p->batch) == FAR_OK);
    return p->word[0] == from;
}

/* Words of node 0 by name. */
#define PROBE_CONTROL(field) (CONTROL_OFF + offsetof(struct pool_control, field))
#define PROBE_SLOT(slot, field)                                                                    \
    (CLIENTS_OFF + (slot) * sizeof(struct client_slot) + offsetof(struct client_slot, field))

static inline uint64_t probe_epoch(struct probe *p)
{
    return probe_get(p, 0, PROBE_CONTROL(epoch));
}

/* The slot's first word: whose it is, and whether that client is fenced or recovered; 0: free. */
static inline uint64_t probe_incarnation(struct probe *p, unsigned slot)
{
    return probe_get(p, 0, PROBE_SLOT(slot, incarnation));
}

#endif
