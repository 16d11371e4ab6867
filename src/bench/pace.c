#include "bench/pace.h"

#include "base/err.h"

#define NS_PER_S 1000000000u

void pace_begin(struct pace *p, uint64_t rate, unsigned workers, unsigned worker, uint64_t start)
{
    ASSERT(rate <= PACE_RATE_MAX && worker < workers);
    *p = (struct pace){.rate = rate, .workers = workers, .worker = worker, .start = start};
}

uint64_t pace_due(const struct pace *p)
{
    return p->start + (p->next * p->workers + p->worker) * NS_PER_S / p->rate;
}

uint64_t pace_take(struct pace *p, uint64_t now)
{
    uint64_t due = pace_due(p);
    ASSERT(now >= due);
    p->next++;
    p->late = now - due;
    if (p->late > p->late_max)
        p->late_max = p->late;
    return due;
}
