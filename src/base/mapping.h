/* Mapping memory: of a file, or new. It is unmapped by munmap(). */
#ifndef BASE_MAPPING_H
#define BASE_MAPPING_H

#include <stdbool.h>
#include <stdint.h>

/* The usual huge page. The kernel maps memory by huge pages only where it is aligned to them. */
#define MAPPING_HUGE_BYTES (2ull << 20)

/* Maps the first `bytes` of a file, shared; or with fd -1 as much new private memory, which is
 * zeroed and not reserved. The address is a multiple of `align`, a power of two that is at least a
 * page; with 0 the kernel chooses it. Asks for huge pages. NULL: errno says why. */
void *mapping_make(int fd, uint64_t bytes, uint64_t align);

/* Reserves the memory of a file, where its file system can. False: errno says why. */
bool mapping_reserve(int fd, uint64_t bytes);

#endif
