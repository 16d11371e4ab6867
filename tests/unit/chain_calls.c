/* Chains whose machines all work: words, ranges and locks of several clients at head and tail. */
#include "base/rng.h"
#include "chain/chain_internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define CLIENTS     4u
#define DEPTH       3u
#define WORDS       3u
#define ROUNDS      20000u
#define AT_WORD(i)  (4096 + 8 * (i))
#define AT_SUM      (4096 + 512)
#define AT_COUNTER  (4096 + 520)
#define AT_LOCK     (4096 + 1024)
#define AT_RANGE    (4096 + 1088)
#define RANGE_WORDS 6u
#define NODE(i)     ((i) % 2)

static struct fab *machines, *fab;

/* A request of a client, and what it is about. */
struct job {
    struct fab_req req;
    struct fab_verb verb[4];
    uint64_t *buf;
    bool busy;
    unsigned kind, step, node;
    uint64_t seen;
};

struct client {
    struct fab_ep *ep;
    struct job job[DEPTH];
    uint64_t last[2][WORDS + 2]; /* what it has seen: words only grow */
    bool locking;
};

static struct client client[CLIENTS];
static uint64_t changed[2][WORDS], counted[2], summed[2], placed[2];

static void set_up(unsigned nodes)
{
    char uri[64];
    snprintf(uri, sizeof uri, "mem:?nodes=%u&size=4m&defer=1", nodes);
    assert_int_equal(fab_open(uri, &machines), FAR_OK);
    assert_int_equal(chain_open(machines, CLIENTS, &fab), FAR_OK);
    memset(client, 0, sizeof client);
    memset(changed, 0, sizeof changed);
    memset(counted, 0, sizeof counted);
    memset(summed, 0, sizeof summed);
    memset(placed, 0, sizeof placed);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(fab->ops->ep_open(fab, &client[i].ep), FAR_OK);
        uint64_t holder;
        assert_int_equal(client[i].ep->ops->chain->seat(client[i].ep, i, 0, 1001 + 2 * i, &holder),
                         FAR_OK);
        for (unsigned k = 0; k < DEPTH; k++)
            client[i].job[k].buf = client[i].ep->ops->buf_alloc(client[i].ep, 256);
    }
}

static void tear_down(void)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        for (unsigned k = 0; k < DEPTH; k++)
            client[i].ep->ops->buf_free(client[i].ep, client[i].job[k].buf, 256);
        client[i].ep->ops->ep_close(client[i].ep);
    }
    fab_close(fab);
}

static struct fab_verb *verb(struct job *j, enum fab_kind kind, unsigned flags, uint64_t off,
                             uint32_t len, uint64_t *buf)
{
    struct fab_verb *v = &j->verb[j->req.count++];
    *v = (struct fab_verb){.kind = (uint8_t)kind,
                           .flags = (uint8_t)flags,
                           .off = off,
                           .len = len,
                           .node = (uint16_t)j->node,
                           .buf = buf};
    return v;
}

static void post(struct client *c, struct job *j)
{
    j->req.verbs = j->verb;
    j->req.done = false;
    assert_int_equal(c->ep->ops->post(c->ep, &j->req), FAR_OK);
}

enum { CHANGE, COUNT, SUM, PLACE, LOOK, KINDS };

static void begin(struct client *c, struct job *j, struct rng *rng)
{
    *j = (struct job){.buf = j->buf, .busy = true};
    j->kind = (unsigned)rng_below(rng, KINDS);
    j->node = (unsigned)rng_below(rng, 2);
    if (j->kind == PLACE && c->locking)
        j->kind = LOOK;
    unsigned word = (unsigned)rng_below(rng, WORDS);
    switch (j->kind) {
    case CHANGE: { /* a block, and the word that leads to it */
        uint64_t old = c->last[j->node][word];
        j->seen = word;
        (void)verb(j, FAB_WRITE, MARK_EARLY, AT_RANGE + 512, 8, &j->buf[4]);
        struct fab_verb *v = verb(j, FAB_CAS, MARK_PUBLISH | FAB_PART, AT_WORD(word), 8, j->buf);
        v->compare = old;
        v->swap = old + 1;
        break;
    }
    case COUNT:
        verb(j, FAB_FAA, MARK_PUBLISH, AT_COUNTER, 8, j->buf)->swap = 1;
        break;
    case SUM:
        verb(j, FAB_FAA, MARK_SUM, AT_SUM, 8, j->buf)->swap = 3;
        break;
    case PLACE: { /* a bit of a lock, and what it protects */
        struct fab_verb *v = verb(j, FAB_MCAS, MARK_LOCK, AT_LOCK, 8, j->buf);
        c->locking = true;
        v->compare_mask = v->swap_mask = 1;
        v->swap = 1;
        (void)verb(j, FAB_READ, MARK_HEAD, AT_RANGE, 8 * RANGE_WORDS, j->buf + 1);
        break;
    }
    default:
        j->seen = c->last[j->node][WORDS];
        (void)verb(j, FAB_READ, MARK_NONE, AT_WORD(0), 8 * WORDS, j->buf);
        (void)verb(j, FAB_READ, MARK_NONE, AT_COUNTER, 8, j->buf + WORDS);
        (void)verb(j, FAB_READ, MARK_HEAD, AT_WORD(0), 8 * WORDS, j->buf + 8);
    }
    post(c, j);
}

/* What was read is not older than what was known when the request was posted. */
static void went_on(uint64_t before, uint64_t *last, uint64_t now)
{
    assert_false(word_is_reference(now));
    assert_true(now >= before);
    if (now > *last)
        *last = now;
}

static void end(struct client *c, struct job *j)
{
    assert_int_equal(j->req.status, FAR_OK);
    unsigned n = j->node;
    j->busy = false;
    switch (j->kind) {
    case CHANGE:
        assert_false(word_is_reference(j->buf[0]));
        if (j->buf[0] == j->verb[1].compare)
            changed[n][j->seen]++;
        if (c->last[n][j->seen] < j->buf[0])
            c->last[n][j->seen] = j->buf[0];
        break;
    case COUNT:
        counted[n]++;
        break;
    case SUM:
        summed[n] += 3;
        break;
    case PLACE:
        if (j->step == 0 && (j->buf[0] & 1)) { /* another one has the lock */
            c->locking = false;
            break;
        }
        j->busy = true;
        if (j->step++ == 0) {
            for (unsigned i = 1; i < RANGE_WORDS; i++)
                assert_int_equal(j->buf[1 + i], j->buf[1]);
            for (unsigned i = 0; i < RANGE_WORDS; i++)
                j->buf[1 + i]++;
            j->req.count = 0;
            (void)verb(j, FAB_WRITE, MARK_PLACE, AT_RANGE, 8 * RANGE_WORDS, j->buf + 1);
            struct fab_verb *v = verb(j, FAB_MCAS, MARK_LOCK | FAB_PART, AT_LOCK, 8, j->buf);
            v->compare = v->compare_mask = v->swap_mask = 1;
            post(c, j);
            break;
        }
        assert_int_equal(j->buf[0] & 1, 1);
        placed[n]++;
        j->busy = c->locking = false;
        break;
    default:
        for (unsigned i = 0; i < WORDS; i++) {
            assert_true(c->last[n][i] <= j->buf[i] || c->last[n][i] <= changed[n][i]);
            assert_false(word_is_reference(j->buf[i]) || word_is_reference(j->buf[8 + i]));
        }
        went_on(j->seen, &c->last[n][WORDS], j->buf[WORDS]);
    }
}

static void drive(struct rng *rng, bool beginning)
{
    struct client *c = &client[rng_below(rng, CLIENTS)];
    struct job *j = &c->job[rng_below(rng, DEPTH)];
    if (beginning && !j->busy)
        begin(c, j, rng);
    if (rng_below(rng, 2))
        c->ep->ops->poll(c->ep, false);
    for (unsigned k = 0; k < DEPTH; k++)
        if (c->job[k].busy && c->job[k].req.done)
            end(c, &c->job[k]);
}

static bool busy(void)
{
    for (unsigned i = 0; i < CLIENTS; i++)
        for (unsigned k = 0; k < DEPTH; k++)
            if (client[i].job[k].busy)
                return true;
    return false;
}

static uint64_t word_at(unsigned machine, uint64_t off)
{
    struct fab_ep *ep = NULL;
    assert_int_equal(machines->ops->ep_open(machines, &ep), FAR_OK);
    uint64_t *buf = ep->ops->buf_alloc(ep, 8), word;
    struct fab_verb v = {
        .kind = FAB_READ, .node = (uint16_t)machine, .off = off, .len = 8, .buf = buf};
    struct fab_req req = {.verbs = &v, .count = 1};
    assert_int_equal(ep->ops->post(ep, &req), FAR_OK);
    while (!req.done)
        ep->ops->poll(ep, true);
    word = *buf;
    ep->ops->buf_free(ep, buf, 8);
    ep->ops->ep_close(ep);
    return word;
}

static void both_are(unsigned node, uint64_t off, uint64_t expected)
{
    const struct chain *c = (const struct chain *)fab;
    assert_int_equal(word_at(node, off), expected);
    assert_int_equal(word_at(chain_tail(c, node), c->tail_at[node] + off), expected);
}

static void head_and_tail_agree_in_the_end(void **state)
{
    (void)state;
    for (unsigned nodes = 2; nodes <= 3; nodes++) {
        struct rng rng;
        rng_seed(&rng, nodes);
        set_up(nodes);
        for (unsigned i = 0; i < ROUNDS; i++)
            drive(&rng, true);
        for (unsigned i = 0; i < 1000000 && busy(); i++)
            drive(&rng, false);
        assert_false(busy());
        for (unsigned i = 0; i < 200; i++) /* what is behind the answers */
            for (unsigned k = 0; k < CLIENTS; k++)
                client[k].ep->ops->poll(client[k].ep, false);
        for (unsigned n = 0; n < 2; n++) {
            for (unsigned i = 0; i < WORDS; i++)
                both_are(n, AT_WORD(i), changed[n][i]);
            both_are(n, AT_COUNTER, counted[n]);
            both_are(n, AT_SUM, summed[n]);
            both_are(n, AT_LOCK, 0);
            for (unsigned i = 0; i < RANGE_WORDS; i++)
                both_are(n, AT_RANGE + 8 * i, placed[n]);
            assert_true(counted[n] > 0 && summed[n] > 0 && placed[n] > 0 && changed[n][0] > 0);
            for (unsigned k = 0; k < CLIENTS; k++)
                for (unsigned l = 0; l < CHAIN_LINES; l++)
                    both_are(n, chain_line_off(fab->size[n], k, l), 0);
        }
        print_message("%u nodes: %lu changes, %lu counted, %lu placed\n", nodes,
                      (unsigned long)(changed[0][0] + changed[0][1]), (unsigned long)counted[0],
                      (unsigned long)placed[0]);
        tear_down();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_and_tail_agree_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
