/* The UCX fabric: waking threads that wait for a hub (HUB-3 and HUB-6 in ucx_hub.c). */
#include "fabric/ucx/ucx_internal.h"

#include <unistd.h>

void ucx_hub_alarm(struct ucx_ep *e)
{
    uint64_t one = 1;

    if (e->sleeping && !e->rung)
        e->rung = write(e->alarm, &one, sizeof one) == sizeof one;
}

void ucx_hub_wake(struct ucx_ep *e)
{
    struct ucx_hub *h = e->hub;

    ucx_hub_alarm(e);
    if (e->following)
        pthread_cond_signal(&e->wakeup);
    else if (h->asleep && h->driver == e)
        ucp_worker_signal(h->worker);
}

void ucx_hub_wake_all(struct ucx_hub *h)
{
    for (struct ucx_ep *e = h->followers; e; e = e->next)
        pthread_cond_signal(&e->wakeup);
    if (h->asleep)
        ucp_worker_signal(h->worker);
}
