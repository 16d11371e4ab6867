/*
 * Which process this is. A child of fork() has copies of its parent's handles, but not its threads,
 * and the connections belong to the parent: the child must not use them. Asking costs a load.
 */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>

/* A child of fork() has a number that none of its ancestors had. None has 0. For process_same()
 * only. */
extern unsigned process_number_now;

/* The number of this process, to be kept and compared later. FAR_NO_MEMORY. */
int process_number(unsigned *number);

/* Does this process have that number? */
static inline bool process_same(unsigned number)
{
    return __atomic_load_n(&process_number_now, __ATOMIC_RELAXED) == number;
}

#endif
