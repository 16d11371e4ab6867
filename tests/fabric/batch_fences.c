/* What batches make of the fences that are asked for: nothing, FAB_FENCE, or another post. */
#include "base/rng.h"
#include "fabric/recorder.h"

static struct recorder rec;

static void fences_are_set_where_the_order_needs_them(void **state)
{
    static const struct recorder_case cases[] = {
        /* without a fence nothing is done, ordered or not */
        {ORDER_IB, "C0C0R0W0", "C0C0R0W0"},
        {0, "W0W1C2R3", "W0W1C2R3"},
        /* each pair of classes, as InfiniBand has it */
        {ORDER_IB, "R0|R0", "R0R0"},
        {ORDER_IB, "R0|W0", "R0!W0"},
        {ORDER_IB, "R0|C0", "R0!C0"},
        {ORDER_IB, "W0|R0", "W0R0"},
        {ORDER_IB, "W0|W0", "W0W0"},
        {ORDER_IB, "W0|C0", "W0C0"},
        {ORDER_IB, "C0|R0", "C0R0"},
        {ORDER_IB, "C0|W0", "C0!W0"},
        {ORDER_IB, "C0|C0", "C0!C0"},
        {ORDER_IB, "F0|M0", "F0!M0"},
        {ORDER_IB, "M0|F0", "M0!F0"},
        {ORDER_ALL, "C0|W0|C0|R0|W0", "C0W0C0R0W0"},
        {0, "W0|R0", "W0!R0"},
        {0, "R0|R0", "R0!R0"},
        {0, "W0|C0|R0|W0", "W0!C0!R0!W0"},
        /* any verb before the fence counts, not the last alone */
        {ORDER_IB, "C0W0|C0", "C0W0!C0"},
        {ORDER_IB, "W0R0W0|W0", "W0R0W0!W0"},
        /* any verb behind the fence counts, not the first alone */
        {ORDER_IB, "C0|R0C0", "C0R0!C0"},
        {ORDER_IB, "R0|R0R0R0W0", "R0R0R0R0!W0"},
        /* one fence is enough for all that follow it */
        {ORDER_IB, "C0|C0C0W0", "C0!C0C0W0"},
        {ORDER_IB, "C0|R0|C0", "C0R0!C0"},
        {ORDER_IB, "C0|C0|R0", "C0!C0R0"},
        {ORDER_IB, "C0|C0|C0", "C0!C0!C0"},
        {ORDER_IB, "C0|R0C0R0|C0", "C0R0!C0R0!C0"},
        /* a fence that never applies to what comes first stays in force */
        {ORDER_IB, "R0|R0|R0|R0C0", "R0R0R0R0!C0"},
        /* fences with nothing before or behind them */
        {ORDER_IB, "|C0|", "C0"},
        {ORDER_IB, "||C0||W0", "C0!W0"},
        /* between nodes a fence is another post, whatever the fabric orders */
        {ORDER_ALL, "W0|W1", "W0/W1"},
        {ORDER_ALL, "W0W1|C0", "W0W1/C0"},
        {ORDER_ALL, "W0W1|C0C1", "W0W1/C0C1"},
        {ORDER_ALL, "W0|C0C1", "W0C0/C1"},
        {ORDER_ALL, "W0|C0|C1", "W0C0/C1"},
        {ORDER_ALL, "W0|W1|W0|W1", "W0/W1/W0/W1"},
        {ORDER_IB, "W0W1|C2|R3", "W0W1/C2/R3"},
        /* FAB_FENCE on one node says nothing to the other */
        {ORDER_IB, "C0|C0C1", "C0!C0/C1"},
        {ORDER_IB, "C0|C0|C0W0R1", "C0!C0!C0W0/R1"},
        /* what another post has settled is not fenced again */
        {ORDER_IB, "C0C1|C0C1|R0", "C0C1/C0C1/R0"},
        {ORDER_IB, "C0|W1C0", "C0/W1C0"},
        {ORDER_IB, "C0|W1C0|C1", "C0/W1C0/C1"},
        /* verbs on two nodes without a fence between them go out together */
        {ORDER_IB, "C0|C0R0|R0", "C0!C0R0R0"},
        {ORDER_IB, "C0W1C2F3", "C0W1C2F3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        recorder_expect(&rec, &cases[i], FAB_CAP_MCAS);
}

/* ---- random batches against the contract ----------------------------------------------------- */

#define RANDOM_VERBS 12

/* Does the fabric keep verb i before verb j of what was posted, by FABRIC-F3 and FABRIC-F4
 * alone? */
static bool kept_before(const struct recorder *r, unsigned i, unsigned j)
{
    const struct fab_verb *v = r->verb;

    if (r->post_of[i] != r->post_of[j])
        return r->post_of[i] < r->post_of[j];
    if (v[i].node != v[j].node)
        return false;
    if (r->fab.order & ORDER(fab_class_of(v[i].kind), fab_class_of(v[j].kind)))
        return true;
    for (unsigned k = i + 1; k <= j; k++) {
        if (v[k].node == v[j].node && (v[k].flags & FAB_FENCE))
            return true;
    }
    return false;
}

/* Every verb before a fence is kept before every verb behind it; fence[k] stands before verb k. */
static bool fences_hold(const struct recorder *r, const bool fence[RANDOM_VERBS])
{
    for (unsigned k = 1; k < r->verbs; k++) {
        for (unsigned i = 0; fence[k] && i < k; i++) {
            for (unsigned j = k; j < r->verbs; j++) {
                if (!kept_before(r, i, j))
                    return false;
            }
        }
    }
    return true;
}

/* Would the fences still hold without the FAB_FENCE, or without the new post, at verb k? */
static bool needless(struct recorder *r, const bool fence[RANDOM_VERBS], unsigned k)
{
    bool holds;

    if (r->verb[k].flags & FAB_FENCE) {
        r->verb[k].flags &= (uint8_t)~FAB_FENCE;
        holds = fences_hold(r, fence);
        r->verb[k].flags |= FAB_FENCE;
        return holds;
    }
    if (r->post_of[k] == r->post_of[k - 1])
        return false;
    for (unsigned i = k; i < r->verbs; i++)
        r->post_of[i]--;
    holds = fences_hold(r, fence);
    for (unsigned i = k; i < r->verbs; i++)
        r->post_of[i]++;
    return holds;
}

static void random_batches_keep_the_contract_at_no_needless_cost(void **state)
{
    struct rng rng;

    (void)state;
    rng_seed(&rng, 20240701);
    for (unsigned run = 0; run < 100000 / RIG_SLOW; run++) {
        static const unsigned orders[] = {ORDER_IB, ORDER_ALL, 0};
        unsigned pick = (unsigned)rng_below(&rng, 4);
        unsigned order = pick < 3 ? orders[pick] : (unsigned)rng_below(&rng, ORDER_ALL + 1);
        unsigned nodes = 1 + (unsigned)rng_below(&rng, 3);
        char text[3 * RANDOM_VERBS + 1], posted[RECORDER_TEXT], *p = text;
        bool fence[RANDOM_VERBS];

        for (unsigned i = 0; i < RANDOM_VERBS; i++) {
            fence[i] = rng_below(&rng, 4) == 0;
            if (fence[i])
                *p++ = '|';
            *p++ = "RWCMF"[rng_below(&rng, 5)];
            *p++ = (char)('0' + rng_below(&rng, nodes));
        }
        *p = 0;
        recorder_reset(&rec, order, FAB_CAP_MCAS);
        recorder_fill(&rec, text);
        assert_int_equal(batch_flush(&rec.b), FAR_OK);
        assert_int_equal(rec.verbs, RANDOM_VERBS);
        recorder_text(&rec, posted);
        if (!fences_hold(&rec, fence))
            fail_msg("order 0x%x: %s became %s", order, text, posted);
        for (unsigned k = 1; k < RANDOM_VERBS; k++) {
            if (needless(&rec, fence, k))
                fail_msg("order 0x%x: %s became %s: verb %u", order, text, posted, k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fences_are_set_where_the_order_needs_them),
        cmocka_unit_test(random_batches_keep_the_contract_at_no_needless_cost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
