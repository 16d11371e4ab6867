/* A slot's first line on node 0, written and read without a client. */
#ifndef TESTS_JOURNAL_RIG_H
#define TESTS_JOURNAL_RIG_H

#include "base/hash.h"
#include "support/probe.h"

#define JOURNAL_AT(pool, slot, field)                                                              \
    (journal_off((pool)->clients) + (slot) * (uint64_t)JOURNAL_BYTES +                             \
     offsetof(struct journal_line, field))

/* As an operation that has taken its lock leaves it: `data` is what index_intend() was given. */
static inline void journal_plant(struct probe *p, const struct pool *pool, unsigned slot,
                                 struct journal_subject subject, uint64_t data)
{
    struct journal_intent intent = {.stamp = 4711,
                                    .incarnation = 4711,
                                    .tag = subject.tag,
                                    .what = subject.what,
                                    .place = (uint16_t)subject.place,
                                    .len = 8};
    size_t bytes = offsetof(struct journal_intent, data) + 8;
    memcpy(intent.data, &data, 8);
    intent.sum = hash_sum((const char *)&intent + 8, bytes - 8, JOURNAL_MAGIC) | 1;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word;
        memcpy(&word, (const char *)&intent + at, 8);
        probe_set(p, 0, JOURNAL_AT(pool, slot, intent) + at, word);
    }
    probe_set(p, 0, PROBE_SLOT(slot, journals), 1);
}

/* Does the line say something? */
static inline bool journal_says(struct probe *p, const struct pool *pool, unsigned slot)
{
    return probe_get(p, 0, JOURNAL_AT(pool, slot, intent.stamp)) != 0;
}

static inline void journal_blank(struct probe *p, const struct pool *pool, unsigned slot)
{
    probe_set(p, 0, JOURNAL_AT(pool, slot, intent.stamp), 0);
}

#endif
