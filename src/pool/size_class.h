/*
 * Size classes: the sizes that objects have.
 *
 * Steps of 64 bytes up to 512, four steps in each doubling up to 512 KiB, then runs of 9, 10, 12,
 * 14, 16, 17, 20, ... 65 chunks: four in each doubling, and one more for a value of 512 KiB, 1, 2
 * or 4 MiB together with its key.
 */
#ifndef POOL_SIZE_CLASS_H
#define POOL_SIZE_CLASS_H

#include "pool/pool_layout.h"

#include <stddef.h>

#define CLASS_COUNT     64
#define CLASS_SMALL_MAX 32768u /* larger objects have chunks of their own: a run */

#define RUN_CLASS      32u /* the smallest class whose objects are runs      */
#define CHUNK_CLASS    35u /* the class whose objects are one whole chunk    */
#define RUN_CHUNKS_MAX 65ull

uint32_t size_class_bytes(unsigned size_class);
/* The smallest class that holds that many bytes, or CLASS_COUNT when none does. */
unsigned size_class_for(size_t bytes);
/* How many chunks an object of a class has; 1 if it shares a chunk with others. */
uint64_t size_class_chunks(unsigned size_class);
/* The largest class whose objects have at most that many chunks, and at least one. Its objects fill
 * their chunks. */
unsigned size_class_for_chunks(uint64_t chunks);

/* Can this be the chunk table's entry of the first of `chunks` chunks, or is it damaged?
 * CHUNK_UNUSED and CHUNK_LARGE_TAIL are legal, too. */
static inline bool chunk_fits(uint64_t entry, uint64_t chunks)
{
    unsigned kind = chunk_kind(entry), size_class = chunk_class(entry);
    if (kind > CHUNK_LARGE_TAIL || size_class >= CLASS_COUNT)
        return false;
    if (kind == CHUNK_SLAB)
        return size_class_bytes(size_class) <= CLASS_SMALL_MAX;
    return kind != CHUNK_LARGE || (size_class_bytes(size_class) > CLASS_SMALL_MAX &&
                                   size_class_chunks(size_class) <= chunks);
}

#endif
