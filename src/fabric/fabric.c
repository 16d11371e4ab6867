/* What all fabrics share: options of their URIs, and the rules that a verb must keep. */
#include "fabric/fabric.h"

#include <stdio.h>
#include <string.h>

#define CLIENTS_MAX  (1u << 16)
#define LEASE_MS_MIN 50
#define LEASE_MS_MAX 3600000

void fab_close(struct fab *fab)
{
    if (fab)
        fab->ops->close(fab);
}

static void leave_buffer(struct fab_ep *ep, void *buf, size_t bytes)
{
    (void)ep;
    (void)buf;
    (void)bytes;
}

static void leave_endpoint(struct fab_ep *ep)
{
    (void)ep;
}

void fab_ep_free_in_child(struct fab_ep *ep)
{
    static const struct fab_ops harmless = {.buf_free = leave_buffer, .ep_close = leave_endpoint};

    if (!(ep->fab->caps & FAB_CAP_LOCAL))
        ep->ops = &harmless;
}

int fab_pool_options(struct uri *uri, struct fab_options *options)
{
    int rc = uri_number(uri, "clients", 0, 1, CLIENTS_MAX, &options->clients);
    if (rc == FAR_OK)
        rc = uri_number(uri, "lease", 0, LEASE_MS_MIN, LEASE_MS_MAX, &options->lease_ms);
    if (rc == FAR_OK)
        rc = uri_number(uri, "replicas", 1, 1, FAB_NODES_MAX, &options->replicas);
    if (rc == FAR_OK && options->replicas > 2)
        rc = err_fail(FAR_UNSUPPORTED, "replicas=%u: more than two are not kept yet",
                      (unsigned)options->replicas);
    if (rc == FAR_OK && options->replicas > 1 && strcmp(uri->scheme, "mem") != 0)
        rc = err_fail(FAR_UNSUPPORTED, "replicas=2: so far only mem: keeps each word twice");
    if (rc == FAR_OK)
        rc = uri_number(uri, "voters", 0, 1, FAB_VOTERS_MAX, &options->voters);
    if (rc == FAR_OK && options->voters > 0 && options->voters % 2 == 0)
        return err_fail(FAR_BAD_URI, "voters=%u: give 1, 3 or 5, so that there is a majority",
                        (unsigned)options->voters);
    return rc;
}

static const char *kind_name(uint8_t kind)
{
    static const char *const names[] = {"READ", "WRITE", "CAS", "MCAS", "FAA"};

    return kind < sizeof names / sizeof names[0] ? names[kind] : "unknown verb";
}

const char *fab_node_name(const struct fab *fab, unsigned node, char text[16])
{
    if (fab->ops->node_name)
        return fab->ops->node_name(fab, node);
    snprintf(text, 16, "node %u", node);
    return text;
}

int fab_away_failed(const struct fab *fab, uint64_t away)
{
    char text[16];
    ASSERT(away != 0);
    return err_fail(FAR_UNREACHABLE, "%s was away when the pool was opened, and is not back yet",
                    fab_node_name(fab, (unsigned)__builtin_ctzll(away), text));
}

int fab_view_refused(struct fab_ep *ep, unsigned node, uint32_t view, uint32_t node_view)
{
    char text[16];

    if (node_view > __atomic_load_n(&ep->view_refused, __ATOMIC_RELAXED))
        __atomic_store_n(&ep->view_refused, node_view, __ATOMIC_RELAXED);
    return err_fail(FAR_FENCED, "%s is in view %u, and refused a request of view %u",
                    fab_node_name(ep->fab, node, text), node_view, view);
}

int fab_check(const struct fab *fab, const struct fab_verb *v)
{
    const char *name = kind_name(v->kind);

    if (fab_valid(fab, v))
        return FAR_OK;
    if (v->kind > FAB_FAA)
        return err_fail(FAR_INVALID, "verb kind %u", v->kind);
    if (v->node >= fab->nodes)
        return err_fail(FAR_BOUNDS, "%s on node %u of %u", name, v->node, fab->nodes);
    if (v->kind > FAB_WRITE && v->len != 8)
        return err_fail(FAR_INVALID, "%s of %u bytes, not 8", name, v->len);
    if (v->len == 0 || v->len % 8)
        return err_fail(FAR_INVALID, "%s of %u bytes: not a whole number of words", name, v->len);
    if (v->off % 8)
        return err_fail(FAR_INVALID, "%s at offset 0x%llx: not aligned to 8", name,
                        (unsigned long long)v->off);
    if (!v->buf || (uintptr_t)v->buf % 8)
        return err_fail(FAR_INVALID, "%s with a local buffer at %p", name, v->buf);
    uint64_t size = __atomic_load_n(&fab->size[v->node], __ATOMIC_RELAXED);
    if (size == FAB_AWAY_BYTES) /* AWAY-1 */
        return fab_away_failed(fab, 1ull << v->node);
    return err_fail(FAR_BOUNDS, "%s of %u bytes at offset 0x%llx of node %u, which has 0x%llx",
                    name, v->len, (unsigned long long)v->off, v->node, (unsigned long long)size);
}
