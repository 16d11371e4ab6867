/*
 * Which process this is. A child of fork() has copies of all handles of its parent, but not its
 * threads, and its connections are the parent's: it must not use them. Asking costs a load.
 */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>

/* Different in a child of fork() from all that its ancestors had. For process_same() only. */
extern unsigned process_number_now;

/* The number of this process, to be kept and compared later. FAR_NO_MEMORY. */
int process_number(unsigned *number);

/* Is this still the process that has that number? */
static inline bool process_same(unsigned number)
{
    return __atomic_load_n(&process_number_now, __ATOMIC_RELAXED) == number;
}

#endif
