/* Tapes: choices from a seed, a recording, an enumeration or bytes. */
#include "sim/tape.h"

#include <stdlib.h>
#include <string.h>

const char *tape_label_name(enum tape_label label)
{
    static const char *const name[TAPE_LABEL_COUNT] = {
#define TAPE_X(name, text) text,
        TAPE_LABELS(TAPE_X)
#undef TAPE_X
    };
    return name[label];
}

void tape_init(struct tape *t)
{
    memset(t, 0, sizeof *t);
}

void tape_free(struct tape *t)
{
    free(t->mark);
    memset(t, 0, sizeof *t);
}

static void start(struct tape *t, int source, bool record)
{
    t->source = source;
    t->recording = record;
    t->out_of_memory = false;
    t->count = t->given = t->at = t->deviations = 0;
    t->cut = t->narrow = false;
}

void tape_from_seed(struct tape *t, uint64_t seed, bool record)
{
    start(t, TAPE_FROM_SEED, record);
    rng_seed(&t->rng, seed);
    rng_seed(&t->aside, ~seed);
}

void tape_from_bytes(struct tape *t, const uint8_t *bytes, size_t count, bool record)
{
    start(t, TAPE_FROM_BYTES, record);
    t->bytes = bytes;
    t->bytes_left = count;
}

static bool reserve(struct tape *t, size_t count)
{
    if (count <= t->room)
        return true;
    size_t room = t->room ? t->room : 1024;
    while (room < count)
        room *= 2;
    struct tape_mark *bigger = realloc(t->mark, room * sizeof *bigger);
    if (!bigger)
        return false;
    t->mark = bigger;
    t->room = room;
    return true;
}

bool tape_from_record(struct tape *t, const struct tape_mark *marks, size_t count)
{
    if (marks != t->mark) {
        if (!reserve(t, count))
            return false;
        if (count > 0)
            memcpy(t->mark, marks, count * sizeof *marks);
    }
    start(t, TAPE_FROM_RECORD, true);
    t->count = t->given = count;
    return true;
}

void tape_enumerate(struct tape *t, size_t depth_max, size_t deviations_max)
{
    start(t, TAPE_FROM_ENUM, true);
    t->depth_max = depth_max;
    t->deviations_max = deviations_max;
}

bool tape_next(struct tape *t)
{
    ASSERT(t->source == TAPE_FROM_ENUM);
    while (t->count > 0 && t->mark[t->count - 1].choice + 1 >= t->mark[t->count - 1].of)
        t->count--;
    if (t->count == 0 || t->out_of_memory)
        return false;
    t->mark[t->count - 1].choice++;
    t->given = t->count;
    t->at = t->deviations = 0;
    t->narrow = false;
    return true;
}

static uint32_t from_bytes(struct tape *t, uint32_t n)
{
    uint64_t x = 0;
    for (uint64_t reach = 1; reach < n && t->bytes_left > 0; reach <<= 8) {
        x = x << 8 | *t->bytes++;
        t->bytes_left--;
    }
    return (uint32_t)(x % n);
}

/* A new choice of an enumeration is 0. It is kept with the number of alternatives, so that
 * tape_next() returns to try the others, unless a bound forbids that. */
static uint32_t ways_open(struct tape *t, uint32_t n)
{
    if (n == 1 || t->narrow)
        return 1;
    if (t->at >= t->depth_max || t->deviations >= t->deviations_max) {
        t->cut = true;
        return 1;
    }
    return n;
}

uint32_t tape_choose_slowly(struct tape *t, uint32_t n, enum tape_label label)
{
    ASSERT(n > 0);
    struct tape_mark m = {.of = n, .label = (uint8_t)label};
    switch (t->source) {
    case TAPE_FROM_SEED:
        m.choice = (uint32_t)rng_below(&t->rng, n);
        break;
    case TAPE_FROM_BYTES:
        m.choice = from_bytes(t, n);
        break;
    case TAPE_FROM_RECORD:
        if (t->at < t->given)
            m.choice = t->mark[t->at].choice % n;
        break;
    case TAPE_FROM_ENUM:
        if (t->at < t->given) {
            m = t->mark[t->at]; /* with the alternatives that were open at first */
            ASSERT(m.choice < n && m.of <= n);
        } else {
            m.of = ways_open(t, n);
        }
        t->deviations += m.choice != 0;
        break;
    }
    if (!t->recording)
        return m.choice;
    if (!reserve(t, t->at + 1)) {
        t->out_of_memory = true;
        return m.choice;
    }
    t->mark[t->at++] = m;
    if (t->count < t->at)
        t->count = t->at;
    return m.choice;
}

uint32_t tape_choose_aside(struct tape *t, uint32_t n, enum tape_label label)
{
    struct rng usual = t->rng;
    t->rng = t->aside;
    uint32_t choice = tape_choose_slowly(t, n, label);
    t->aside = t->rng;
    t->rng = usual;
    return choice;
}
