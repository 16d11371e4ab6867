/* For tests of the simulated fabric itself: clients that post requests of their own. */
#ifndef TESTS_SIM_RIG_H
#define TESTS_SIM_RIG_H

#include "check/check.h"
#include "sim/sim.h"

#include <string.h>

/* Last, because it has a macro by the name of our fail(). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#if defined(__has_feature)
#define RIG_FEATURE(x) __has_feature(x)
#else
#define RIG_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||                               \
    RIG_FEATURE(thread_sanitizer) || RIG_FEATURE(address_sanitizer)
#define RIG_SLOW 10 /* sanitizers: fewer repetitions, by this factor */
#else
#define RIG_SLOW 1
#endif

#define RIG_NODE_BYTES 65536u

struct rig {
    struct sim *sim;
    struct tape tape;
};

static struct rig rig;

static inline __attribute__((unused)) int rig_set_up(void **state)
{
    (void)state;
    rig.sim = sim_new();
    tape_init(&rig.tape);
    return rig.sim ? 0 : -1;
}

static inline int rig_tear_down(void **state)
{
    (void)state;
    sim_free(rig.sim);
    tape_free(&rig.tape);
    return 0;
}

static inline struct sim_settings rig_settings(enum sim_profile profile, unsigned adversity,
                                               unsigned clients)
{
    return (struct sim_settings){.profile = profile,
                                 .adversity = adversity,
                                 .clients = clients,
                                 .nodes = 2,
                                 .node_bytes = RIG_NODE_BYTES,
                                 .granule = 8,
                                 .faults_max = 8};
}

/* Runs a seed of an index, which must pass. */
static inline void rig_expect_passed(struct check *c, const struct check_settings *s, uint64_t seed,
                                     struct check_result *r)
{
    check_seed(c, s, seed, r);
    if (r->verdict != CHECK_PASSED)
        fail_msg("seed %llu: %s: %s", (unsigned long long)seed, check_verdict_name(r->verdict),
                 r->what);
}

static inline struct fab_ep *rig_ep(void)
{
    struct fab_ep *ep = NULL;
    struct fab *fab = sim_fab(rig.sim);
    assert_int_equal(fab->ops->ep_open(fab, &ep), FAR_OK);
    return ep;
}

/* Posts and waits. */
static inline int rig_flush(struct fab_ep *ep, struct fab_verb *verbs, unsigned count)
{
    struct fab_req req = {.verbs = verbs, .count = count, .view = fab_view(ep)};
    int rc = ep->ops->post(ep, &req);
    if (rc != FAR_OK)
        return rc;
    while (!req.done)
        ep->ops->poll(ep, true);
    return req.status;
}

static inline struct fab_verb rig_read(unsigned node, uint64_t off, void *buf, uint32_t len)
{
    return (struct fab_verb){
        .kind = FAB_READ, .node = (uint16_t)node, .off = off, .buf = buf, .len = len};
}

static inline struct fab_verb rig_write(unsigned node, uint64_t off, void *buf, uint32_t len)
{
    return (struct fab_verb){
        .kind = FAB_WRITE, .node = (uint16_t)node, .off = off, .buf = buf, .len = len};
}

static inline struct fab_verb rig_faa(unsigned node, uint64_t off, uint64_t add, uint64_t *old)
{
    return (struct fab_verb){
        .kind = FAB_FAA, .node = (uint16_t)node, .off = off, .buf = old, .len = 8, .swap = add};
}

static inline struct fab_verb rig_cas(unsigned node, uint64_t off, uint64_t compare, uint64_t swap,
                                      uint64_t *old)
{
    return (struct fab_verb){.kind = FAB_CAS,
                             .node = (uint16_t)node,
                             .off = off,
                             .buf = old,
                             .len = 8,
                             .compare = compare,
                             .swap = swap};
}

static inline struct fab_verb rig_fenced(struct fab_verb verb)
{
    verb.flags |= FAB_FENCE;
    return verb;
}

static inline uint64_t rig_word(unsigned node, uint64_t off)
{
    return sim_word(rig.sim, node, off);
}

#endif
