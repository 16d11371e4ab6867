/* Size classes: size_class.h lists them. */
#include "pool/size_class.h"

#define LINE_CLASSES 8u  /* in steps of 64 bytes                      */
#define STEPS        4u  /* in each doubling from there on              */
#define STEP_CLASSES 48u /* classes up to 512 KiB; run_chunks[] has the rest */

/* Chunks of the classes past 512 KiB. */
static const uint8_t run_chunks[CLASS_COUNT - STEP_CLASSES] = {9,  10, 12, 14, 16, 17, 20, 24,
                                                               28, 32, 33, 40, 48, 56, 64, 65};
_Static_assert(RUN_CHUNKS_MAX == 65, "the last of them");
_Static_assert((RUN_CHUNKS_MAX << CHUNK_SHIFT) >= FAR_VALUE_MAX + FAR_KEY_MAX + 64,
               "the longest key with the longest value is one object");

uint32_t size_class_bytes(unsigned size_class)
{
    ASSERT(size_class < CLASS_COUNT);
    if (size_class < LINE_CLASSES)
        return 64 * (size_class + 1);
    if (size_class >= STEP_CLASSES)
        return (uint32_t)run_chunks[size_class - STEP_CLASSES] << CHUNK_SHIFT;
    unsigned step = size_class - LINE_CLASSES;
    uint32_t base = 64 * LINE_CLASSES << (step / STEPS);
    return base + base / STEPS * (step % STEPS + 1);
}

uint64_t size_class_chunks(unsigned size_class)
{
    uint32_t bytes = size_class_bytes(size_class);
    return bytes > CLASS_SMALL_MAX ? (bytes + CHUNK_BYTES - 1) >> CHUNK_SHIFT : 1;
}

unsigned size_class_for(size_t bytes)
{
    if (bytes <= 64 * LINE_CLASSES)
        return bytes == 0 ? 0 : (unsigned)((bytes - 1) / 64);
    if (bytes > 8 * CHUNK_BYTES) {
        unsigned i = STEP_CLASSES;
        while (i < CLASS_COUNT && size_class_bytes(i) < bytes)
            i++;
        return i;
    }
    uint32_t last = (uint32_t)bytes - 1;
    unsigned top = 31u - (unsigned)__builtin_clz(last);
    return LINE_CLASSES + (top - 9) * STEPS + ((last >> (top - 2)) & 3);
}

unsigned size_class_for_chunks(uint64_t chunks)
{
    unsigned i = CLASS_COUNT - 1;
    ASSERT(chunks > 0);
    while (size_class_chunks(i) > chunks)
        i--;
    return i;
}
