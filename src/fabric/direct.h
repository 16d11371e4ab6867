/*
 * Direct: verbs on memory that this process has mapped, executed by the thread that posts them.
 *
 * This is all of a fabric but where its memory comes from: mem: and shm: set base pointers and
 * sizes, and use these functions.
 */
#ifndef FABRIC_DIRECT_H
#define FABRIC_DIRECT_H

#include "fabric/batch.h"

#include <stdatomic.h>

#define DIRECT_NODE_BYTES_MIN (1ull << 20)
#define DIRECT_NODE_BYTES_MAX (64ull << GADDR_UNIT_BITS)

struct direct_fab {
    struct fab fab;
    char *base[FAB_NODES_MAX]; /* 64-byte aligned */
    _Atomic(struct direct_seat *) seats;
};

/* What an endpoint executes, for fence_view(). Seats stay until the fabric is closed, and are used
 * again: so there is no lock, which a child of fork() might find held. */
struct direct_seat {
    struct direct_seat *next;
    _Atomic bool taken;
    _Atomic uint32_t view; /* of the request that is being executed; 0: none that names one */
} __attribute__((aligned(64)));

struct direct_ep {
    struct fab_ep ep;
    struct direct_seat *seat;
    struct fab_req *first, *last; /* deferred requests, oldest first */
};

struct direct_options {
    struct fab_options pool;
    uint64_t size, nodes, defer, groups;
    uint64_t wait; /* enum fab_wait */
};

/* Reads the options of direct fabrics and refuses any other. size becomes a multiple of 64.
 * FAR_BAD_URI. */
int direct_options(struct uri *uri, uint64_t size_default, uint64_t nodes_default,
                   struct direct_options *options);

/* Sets all of the fabric but its nodes. `deferred_ops` is used with the option defer=1, else
 * `ops`. */
void direct_init(struct direct_fab *d, const struct direct_options *options,
                 const struct fab_ops *ops, const struct fab_ops *deferred_ops);

/* Frees the seats. */
void direct_end(struct direct_fab *d);

int direct_ep_open(struct fab *fab, struct fab_ep **ep);
void direct_ep_close(struct fab_ep *ep);
/* Gives an endpoint a seat, and takes it back. FAR_NO_MEMORY. */
int direct_sit(struct direct_fab *d, struct direct_ep *ep);
void direct_leave(struct direct_ep *ep);
void *direct_buf_alloc(struct fab_ep *ep, size_t bytes);
void direct_buf_free(struct fab_ep *ep, void *buf, size_t bytes);
int direct_post(struct fab_ep *ep, struct fab_req *req);
/* Where this process has that memory mapped. NULL: it is not in the pool. */
const void *direct_at(const struct fab_ep *ep, unsigned node, uint64_t off, uint32_t bytes);
/* What direct_post() does with READs alone. */
void direct_read(const struct fab_ep *ep, const struct fab_verb *verbs, unsigned count);
int direct_fence_view(struct fab_ep *ep, unsigned node, uint32_t view);
/* The node's view, and raising it. */
uint32_t direct_view(const struct direct_fab *d, unsigned node);
void direct_raise_view(struct direct_fab *d, unsigned node, uint32_t view);
void direct_poll(struct fab_ep *ep, bool wait);
int direct_post_deferred(struct fab_ep *ep, struct fab_req *req);
void direct_poll_deferred(struct fab_ep *ep, bool wait);
int direct_wait_fds(struct fab_ep *ep, int fds[FAB_WAIT_FDS], unsigned *count);
bool direct_arm_deferred(struct fab_ep *ep, uint64_t *until);
uint64_t direct_now(struct fab_ep *ep);
uint64_t direct_coarse(struct fab_ep *ep);
void direct_pause(struct fab_ep *ep, uint64_t ns);

/* Entries for a table of functions, all but coarse(). With the deferred ones, requests complete in
 * a later poll, to test code that waits for completions without a network. */
#define DIRECT_OPS DIRECT_OPS_ALL, .post = direct_post, .poll = direct_poll
#define DIRECT_OPS_DEFERRED                                                                        \
    DIRECT_OPS_ALL, .post = direct_post_deferred, .poll = direct_poll_deferred,                    \
                    .wait_fds = direct_wait_fds, .arm = direct_arm_deferred
#define DIRECT_OPS_ALL                                                                             \
    .buf_alloc = direct_buf_alloc, .buf_free = direct_buf_free, .now = direct_now,                 \
    .pause = direct_pause, .fence_view = direct_fence_view

#endif
