#include "base/clock.h"

#include <time.h>

static uint64_t time_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_ns(void)
{
    return time_of(CLOCK_MONOTONIC);
}

uint64_t clock_coarse_ns(void)
{
    return time_of(CLOCK_MONOTONIC_COARSE);
}

uint64_t clock_boot_ns(void)
{
    return time_of(CLOCK_BOOTTIME);
}

void clock_sleep(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}
