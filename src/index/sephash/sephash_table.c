/*
 * The FPTable: where in a MainSegment the entries of an fp begin.
 *
 * Plain: a number for each of the 256 fps. With record points (section 4.4.2 of the paper): the
 * entries are spread evenly, so those of fp i begin near entries * i / 256. A point (fp, delta)
 * says that from this fp on delta * unit is to be added. Points are made until no start is further
 * than `err` from what they say. So one READ from the lowest possible start to the highest possible
 * end has all entries of an fp, and it is never necessary to read on.
 *
 *   point   delta 8, signed | fp 8
 */
#include "index/sephash/sephash.h"

#define ERR_LEAST  8u
#define ERR_UNITS  8u /* a unit of delta is so small a part of err */
#define DELTA_MOST 127

static unsigned unit_of(unsigned err)
{
    return err / ERR_UNITS;
}

static int64_t even(unsigned entries, unsigned fp)
{
    return (int64_t)((uint64_t)entries * fp / SEPHASH_FPS);
}

/* Half of what an fp has on average, or more if the deltas would be too large for a point. */
static unsigned err_for(const uint32_t *start)
{
    unsigned entries = start[SEPHASH_FPS], err = entries / (2 * SEPHASH_FPS);
    int64_t most = 0;
    for (unsigned i = 0; i < SEPHASH_FPS; i++) {
        int64_t off = (int64_t)start[i] - even(entries, i);
        off = off < 0 ? -off : off;
        most = off > most ? off : most;
    }
    err = err < ERR_LEAST ? ERR_LEAST : err;
    while ((int64_t)unit_of(err) * DELTA_MOST < most)
        err *= 2;
    return err;
}

/* Makes the points, up to what there is room for. Returns how many there would be. */
static unsigned make_points(const uint32_t *start, unsigned err, uint16_t *table)
{
    unsigned points = 0;
    int64_t delta = 0, unit = unit_of(err);
    for (unsigned i = 0; i < SEPHASH_FPS; i++) {
        int64_t off = (int64_t)start[i] - even(start[SEPHASH_FPS], i);
        int64_t wrong = off - delta * unit;
        if (wrong <= (int64_t)err && -wrong <= (int64_t)err)
            continue;
        delta = (off + (off < 0 ? -unit : unit) / 2) / unit;
        if (points < SEPHASH_POINTS_MAX)
            table[points] = sephash_point(i, (int8_t)delta);
        points++;
    }
    return points;
}

unsigned sephash_table_make(bool plain, const uint32_t start[SEPHASH_FPS + 1], uint16_t *table,
                            unsigned *err)
{
    *err = 0;
    for (unsigned i = 0; i < SEPHASH_FPS && plain; i++)
        table[i] = (uint16_t)start[i];
    if (plain)
        return SEPHASH_FPS;
    unsigned points = 0;
    for (*err = err_for(start); (points = make_points(start, *err, table)) > SEPHASH_POINTS_MAX;)
        *err *= 2;
    return points;
}

/* The start that the points say. */
static int64_t predict(const uint16_t *table, unsigned points, unsigned err, unsigned entries,
                       unsigned fp)
{
    int64_t delta = 0;
    for (unsigned i = 0; i < points && sephash_point_fp(table[i]) <= fp; i++)
        delta = sephash_point_delta(table[i]);
    return even(entries, fp) + delta * unit_of(err);
}

void sephash_table_find(bool plain, const uint16_t *table, unsigned points, unsigned err,
                        unsigned entries, unsigned fp, unsigned *from, unsigned *to)
{
    ASSERT(fp < SEPHASH_FPS);
    bool last = fp == SEPHASH_FPS - 1;
    int64_t begin = 0, end = entries;
    if (plain && points == SEPHASH_FPS) {
        begin = table[fp];
        end = last ? end : table[fp + 1];
    } else if (!plain) {
        begin = predict(table, points, err, entries, fp) - err;
        end = last ? end : predict(table, points, err, entries, fp + 1) + err;
    }
    *from = begin < 0 ? 0 : begin > entries ? entries : (unsigned)begin;
    *to = end > entries ? entries : end < *from ? *from : (unsigned)end;
}
