/* What a batch says of each of its verbs after a flush: which swapped, and, if the flush failed,
 * which did, which did not, and for which that is unknown. */
#include "fabric/recorder.h"

#include "base/rng.h"

static struct recorder rec;
#define AT(node, word) gaddr_make(node, 0), 8ull * (word)
#define LOW            0xffffull /* bits that count in a masked CAS here; others change the rest */

/* Others change bits outside the mask, before each post. */
static void change_the_rest(struct recorder *r)
{
    for (unsigned node = 0; node < RECORDER_NODES; node++)
        for (unsigned i = 0; i < BATCH_MAX; i++)
            r->word[node][i] += r->posts < 3 ? 1ull << 32 : 0;
}

static void each_masked_cas_has_its_own_result(void **state)
{
    (void)state;
    for (unsigned caps = 0; caps <= FAB_CAP_MCAS; caps += FAB_CAP_MCAS) {
        for (unsigned interfere = 0; interfere < 2; interfere++) {
            recorder_reset(&rec, ORDER_IB, caps);
            rec.interfere = interfere ? change_the_rest : NULL;
            unsigned n[BATCH_MAX];
            for (unsigned i = 0; i < BATCH_MAX; i++) {
                rec.word[i % 2][i] = i % 3 == 0; /* held already */
                n[i] = batch_mcas(&rec.b, MARK_PUBLISH, AT(i % 2, i), 0, LOW, 7, LOW, &rec.buf[i]);
                assert_int_equal(n[i], i);
                if (i % 40 == 39)
                    batch_fence(&rec.b); /* to another node: the batch goes out in several posts */
            }
            assert_int_equal(batch_flush(&rec.b), FAR_OK);
            for (unsigned i = 0; i < BATCH_MAX; i++) {
                assert_int_equal(batch_swapped(&rec.b, n[i]), i % 3 != 0);
                assert_int_equal(batch_outcome(&rec.b, n[i]),
                                 i % 3 != 0 ? BATCH_DONE : BATCH_MISSED);
                assert_int_equal(rec.word[i % 2][i] & LOW, i % 3 != 0 ? 7 : 1);
            }
        }
    }
}

static void numbers_count_all_verbs(void **state)
{
    (void)state;
    recorder_reset(&rec, ORDER_IB, 0);
    rec.word[0][3] = 4;
    batch_read(&rec.b, AT(0, 0), &rec.buf[0], 8);
    assert_int_equal(batch_cas(&rec.b, MARK_PUBLISH, AT(0, 1), 0, 1, &rec.buf[1]), 1);
    batch_write(&rec.b, MARK_EARLY, AT(0, 2), &rec.buf[2], 8);
    assert_int_equal(batch_cas(&rec.b, MARK_PUBLISH, AT(0, 3), 0, 1, &rec.buf[3]), 3);
    assert_int_equal(batch_faa(&rec.b, MARK_PUBLISH, AT(0, 4), 1, &rec.buf[4]), 4);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_DONE);
    assert_true(batch_swapped(&rec.b, 1));
    assert_int_equal(batch_outcome(&rec.b, 2), BATCH_DONE);
    assert_int_equal(batch_outcome(&rec.b, 3), BATCH_MISSED);
    assert_int_equal(batch_outcome(&rec.b, 4), BATCH_DONE);
}

/* A damaged word may have any bit. */
static void an_address_of_too_many_bits_names_no_node(void **state)
{
    (void)state;
    for (unsigned bit = GADDR_BITS; bit < 64; bit++) {
        recorder_reset(&rec, ORDER_IB, 0);
        batch_read(&rec.b, gaddr_make(0, 64) | 1ull << bit, 0, &rec.buf[0], 8);
        assert_int_equal(batch_flush(&rec.b), FAR_BOUNDS);
    }
}

static void a_batch_that_was_not_posted_did_nothing(void **state)
{
    (void)state;
    recorder_reset(&rec, ORDER_IB, 0);
    unsigned good = batch_cas(&rec.b, MARK_PUBLISH, AT(0, 1), 0, 1, &rec.buf[1]);
    unsigned bad = batch_cas(&rec.b, MARK_PUBLISH, AT(0, RECORDER_WORDS), 0, 1, &rec.buf[2]);
    assert_int_equal(batch_flush(&rec.b), FAR_BOUNDS);
    assert_int_equal(batch_outcome(&rec.b, good), BATCH_NOT);
    assert_int_equal(batch_outcome(&rec.b, bad), BATCH_NOT);
    assert_false(batch_swapped(&rec.b, good));

    /* More than fit: the last one's number is past the end. */
    recorder_reset(&rec, ORDER_IB, 0);
    for (unsigned i = 0; i <= BATCH_MAX; i++)
        bad = batch_cas(&rec.b, MARK_PUBLISH, AT(0, 1), 0, 1, &rec.buf[1]);
    assert_int_equal(batch_flush(&rec.b), FAR_INVALID);
    assert_int_equal(batch_outcome(&rec.b, bad), BATCH_NOT);

    /* The batch before succeeded: that says nothing of this one. */
    recorder_fill(&rec, "C0C0");
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_true(batch_swapped(&rec.b, 1));
    rec.fail_at = 1;
    rec.refuse = FAR_UNREACHABLE;
    recorder_fill(&rec, "C0C0");
    assert_int_equal(batch_flush(&rec.b), FAR_UNREACHABLE);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_NOT);
    assert_int_equal(batch_outcome(&rec.b, 1), BATCH_NOT);
}

static void posts_before_the_failed_one_stand(void **state)
{
    (void)state;
    recorder_reset(&rec, ORDER_IB, 0);
    rec.fail_at = 2;
    rec.status = FAR_UNKNOWN;
    rec.word[0][1] = 5;
    recorder_fill(&rec, "C0C0|C1C1|C2");
    assert_int_equal(batch_flush(&rec.b), FAR_UNKNOWN);
    assert_int_equal(batch_outcome(&rec.b, 0), BATCH_DONE);
    assert_int_equal(batch_outcome(&rec.b, 1), BATCH_MISSED);
    assert_int_equal(batch_outcome(&rec.b, 2), BATCH_UNKNOWN);
    assert_int_equal(batch_outcome(&rec.b, 3), BATCH_UNKNOWN);
    assert_int_equal(batch_outcome(&rec.b, 4), BATCH_NOT);
    assert_false(batch_swapped(&rec.b, 2));
}

/* The first of two has to be repeated, and the repetition fails. */
static void an_emulated_one_that_was_not_repeated_did_not_swap(void **state)
{
    (void)state;
    for (unsigned posted = 0; posted < 2; posted++) {
        recorder_reset(&rec, ORDER_IB, 0);
        rec.fail_at = 2;
        rec.refuse = posted ? FAR_OK : FAR_UNREACHABLE;
        rec.status = FAR_UNKNOWN;
        rec.word[0][0] = rec.word[0][1] = 1ull << 32;
        for (unsigned i = 0; i < 3; i++)
            batch_mcas(&rec.b, MARK_PUBLISH, AT(0, i), 0, LOW, 7, LOW, &rec.buf[i]);
        assert_int_equal(batch_flush(&rec.b), posted ? FAR_UNKNOWN : FAR_UNREACHABLE);
        assert_int_equal(batch_outcome(&rec.b, 0), posted ? BATCH_UNKNOWN : BATCH_MISSED);
        assert_int_equal(batch_outcome(&rec.b, 1), BATCH_MISSED);
        assert_int_equal(batch_outcome(&rec.b, 2), BATCH_DONE);
    }
}

/* ---- any batch, failing anywhere ------------------------------------------------------------- */

struct made {
    unsigned kind, node;
    uint64_t before; /* low bits */
};

static unsigned make(struct rng *rng, struct made *made)
{
    unsigned count = 1 + (unsigned)rng_below(rng, 12);
    for (unsigned i = 0; i < count; i++) {
        struct made *m = &made[i];
        unsigned n = i;
        m->kind = (unsigned)rng_below(rng, 5);
        m->node = (unsigned)rng_below(rng, 2);
        m->before = rng_below(rng, 2);
        rec.word[m->node][i] = m->before | rng_below(rng, 2) << 32;
        rec.buf[i] = 9;
        if (m->kind == FAB_READ)
            batch_read(&rec.b, AT(m->node, i), &rec.buf[i], 8);
        else if (m->kind == FAB_WRITE)
            batch_write(&rec.b, MARK_EARLY, AT(m->node, i), &rec.buf[i], 8);
        else if (m->kind == FAB_CAS)
            n = batch_cas(&rec.b, MARK_PUBLISH, AT(m->node, i), 0, 7, &rec.buf[i]);
        else if (m->kind == FAB_MCAS)
            n = batch_mcas(&rec.b, MARK_PUBLISH, AT(m->node, i), 0, LOW, 7, LOW, &rec.buf[i]);
        else
            n = batch_faa(&rec.b, MARK_PUBLISH, AT(m->node, i), 4, &rec.buf[i]);
        assert_int_equal(n, i);
        if (rng_below(rng, 3) == 0)
            batch_fence(&rec.b);
    }
    return count;
}

/* Is there an effect? A READ's is in its buffer. */
static bool happened(const struct made *m, unsigned i)
{
    return m->kind == FAB_READ ? rec.buf[i] != 9 : (rec.word[m->node][i] & LOW) != m->before;
}

static void what_a_batch_says_is_what_happened(void **state)
{
    static const unsigned orders[] = {0, ORDER_IB, ORDER_ALL};
    struct made made[BATCH_MAX];
    unsigned seen[4] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= 200000 / RIG_SLOW; seed++) {
        struct rng rng;
        rng_seed(&rng, seed);
        recorder_reset(&rec, orders[seed % 3], seed & 8 ? FAB_CAP_MCAS : 0);
        rec.interfere = rng_below(&rng, 2) ? change_the_rest : NULL;
        rec.fail_at = (unsigned)rng_below(&rng, 6);
        rec.refuse = rng_below(&rng, 2) ? FAR_UNREACHABLE : FAR_OK;
        rec.status = FAR_TIMEOUT;
        unsigned count = make(&rng, made);
        int rc = batch_flush(&rec.b);
        for (unsigned i = 0; i < count; i++) {
            enum batch_outcome out = batch_outcome(&rec.b, i);
            seen[out]++;
            if (out == BATCH_UNKNOWN)
                assert_int_equal(rc, FAR_TIMEOUT);
            else if (out == BATCH_NOT)
                assert_int_not_equal(rc, FAR_OK);
            if (out != BATCH_UNKNOWN && happened(&made[i], i) != (out == BATCH_DONE))
                fail_msg("seed %llu: verb %u is said to be %d", (unsigned long long)seed, i, out);
        }
    }
    for (unsigned i = 0; i < 4; i++)
        assert_true(seen[i] > 10000 / RIG_SLOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_masked_cas_has_its_own_result),
        cmocka_unit_test(numbers_count_all_verbs),
        cmocka_unit_test(an_address_of_too_many_bits_names_no_node),
        cmocka_unit_test(a_batch_that_was_not_posted_did_nothing),
        cmocka_unit_test(posts_before_the_failed_one_stand),
        cmocka_unit_test(an_emulated_one_that_was_not_repeated_did_not_swap),
        cmocka_unit_test(what_a_batch_says_is_what_happened),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
