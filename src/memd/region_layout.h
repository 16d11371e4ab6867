/* What a memory node keeps beside its memory: at the end of the file, if the memory is in one. */
#ifndef MEMD_REGION_LAYOUT_H
#define MEMD_REGION_LAYOUT_H

#include <stdint.h>

#define MEMD_KEEP_MAGIC 0x3165646f6e726166ull /* "farnode1" */
#define MEMD_FENCED_MAX 4096u

struct memd_keep {
    uint64_t magic;     /* written last                                          */
    uint64_t size;      /* of the memory                                         */
    uint64_t instance;  /* random: another one means other contents              */
    uint64_t formatted; /* a client said that there is a pool                    */
    uint64_t fences;    /* so far; the last MEMD_FENCED_MAX identities are below */
    uint64_t fenced[MEMD_FENCED_MAX];
    uint64_t
        ended; /* which file this is, if the node has ended in order, and while none runs; else 0 */
};
_Static_assert(sizeof(struct memd_keep) == 48 + 8 * MEMD_FENCED_MAX, "no padding");

/* Bytes that it takes: whole pages, whatever the size of a page is. */
static inline uint64_t memd_keep_bytes(void)
{
    return (sizeof(struct memd_keep) + 65535) & ~65535ull;
}

#endif
