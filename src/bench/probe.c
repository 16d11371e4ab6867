#include "bench/probe.h"
#include "base/clock.h"
#include "base/hist.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READS  1000u
#define SECOND 1000000000ull
_Static_assert(PROBE_NODES_MAX == FAB_NODES_MAX, "a probe has room for all nodes");

/* One READ of the first word of the node. */
static int read_word(struct fab_ep *ep, unsigned node, void *buf)
{
    struct fab_verb verb = {.kind = FAB_READ, .node = (uint16_t)node, .len = 8, .buf = buf};
    struct fab_req req = {.verbs = &verb, .count = 1};
    int rc = ep->ops->post(ep, &req);
    while (rc == FAR_OK && !req.done)
        ep->ops->poll(ep, true);
    return rc == FAR_OK ? req.status : rc;
}

static void measure(struct fab_ep *ep, unsigned node, void *buf, const atomic_bool *stop,
                    struct hist *hist, struct probe_node *n)
{
    uint64_t began = clock_ns();
    hist_clear(hist);
    err_begin();
    n->status = read_word(ep, node, buf); /* makes the connection, so it is not measured */
    for (n->reads = 0; n->reads < READS && n->status == FAR_OK; n->reads++) {
        uint64_t before = clock_ns();
        if (n->reads > 0 && (before - began > SECOND || (stop && atomic_load(stop))))
            break;
        n->status = read_word(ep, node, buf);
        hist_record(hist, clock_ns() - before);
    }
    if (err_end(n->status) != FAR_OK)
        snprintf(n->detail, sizeof n->detail, "%s", far_error_detail());
    n->least_ns = hist->min;
    n->median_ns = hist_quantile(hist, 0.5);
    n->p99_ns = hist_quantile(hist, 0.99);
}

static int probe_nodes(struct fab *fab, struct fab_ep *ep, const atomic_bool *stop,
                       struct probe *probe)
{
    struct hist *hist = calloc(1, sizeof *hist);
    void *buf = ep->ops->buf_alloc(ep, 64);
    int rc = hist && buf ? FAR_OK : err_fail(FAR_NO_MEMORY, "no memory to probe the nodes");
    for (unsigned i = 0; i < probe->nodes && rc == FAR_OK; i++) {
        probe->node[i].bytes = fab->size[i];
        measure(ep, i, buf, stop, hist, &probe->node[i]);
    }
    if (buf)
        ep->ops->buf_free(ep, buf, 64);
    free(hist);
    return rc;
}

int probe_run(const char *uri, const atomic_bool *stop, struct probe *probe)
{
    struct fab *fab = NULL;
    struct fab_ep *ep = NULL;
    memset(probe, 0, sizeof *probe);
    err_begin();
    int rc = fab_open(uri, &fab);
    if (rc != FAR_OK)
        return err_end(rc);
    probe->nodes = fab->nodes;
    probe->empty = fab->fresh;
    rc = fab->ops->ep_open(fab, &ep);
    if (rc == FAR_OK) {
        rc = probe_nodes(fab, ep, stop, probe);
        ep->ops->ep_close(ep);
    }
    fab_close(fab);
    return err_end(rc);
}

static void count_dead(void *arg, unsigned slot, const struct client_slot *s, bool dead)
{
    (void)slot;
    (void)s;
    *(unsigned *)arg += dead;
}

int probe_dead(far_session *session, unsigned *dead)
{
    *dead = 0;
    err_begin();
    client_enter(&session->client);
    int rc = client_find_silent(&session->op, count_dead, dead);
    client_leave(&session->client);
    return err_end(rc);
}

uint64_t probe_lease_ms(const far_session *session)
{
    return session->client.lease_ns / 1000000;
}
