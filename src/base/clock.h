/* The machine's clock. Code that a simulator may run calls batch_now(), or the endpoint's now(). */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/*
 * clock_ns() stands still while the machine is suspended. That is right for pauses and time-outs of
 * this process, because nothing of it runs meanwhile, and for the silence of others, which then
 * counts for less than it lasted. clock_boot_ns() is for what must pass here as it passes for
 * others: the own lease where no fabric drops a client's verbs (shm: on a device), and the age of
 * messages (wire.h).
 */

uint64_t clock_ns(void);        /* monotonic nanoseconds                     */
uint64_t clock_coarse_ns(void); /* the same, cheaper, some milliseconds late */
uint64_t clock_boot_ns(void);   /* counts while the machine is suspended, too */
void clock_sleep(uint64_t ns);  /* less if a signal comes                    */

#endif
