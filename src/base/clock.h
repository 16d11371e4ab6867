/* The machine's clock. Code that a simulator may run calls batch_now(), or the endpoint's now(). */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);        /* monotonic nanoseconds                     */
uint64_t clock_coarse_ns(void); /* the same, cheaper, some milliseconds late */
uint64_t clock_boot_ns(void);   /* counts while the machine is suspended, too */
void clock_sleep(uint64_t ns);  /* less if a signal comes                    */

#endif
