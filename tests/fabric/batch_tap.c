/* The tap sees every post just before it goes out, as the fabric will see it. */
#include "fabric/recorder.h"

static struct recorder rec;

struct listener {
    struct batch_tap tap;
    unsigned posts, verbs;
    struct fab_verb verb[RECORDER_VERBS];
};

static void listen(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    struct listener *l = (struct listener *)tap;

    assert_int_equal(rec.posts, l->posts); /* not posted yet */
    memcpy(&l->verb[l->verbs], verbs, count * sizeof *verbs);
    l->verbs += count;
    l->posts++;
}

static void hears(const char *batch, unsigned order, unsigned caps)
{
    static struct listener l;

    recorder_reset(&rec, order, caps);
    l = (struct listener){.tap = {listen}};
    rec.b.tap = &l.tap;
    recorder_fill(&rec, batch);
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    assert_true(l.posts > 0);
    assert_int_equal(l.posts, rec.posts);
    assert_int_equal(l.verbs, rec.verbs);
    for (unsigned i = 0; i < l.verbs; i++) {
        assert_int_equal(l.verb[i].kind, rec.verb[i].kind);
        assert_int_equal(l.verb[i].flags, rec.verb[i].flags);
        assert_int_equal(l.verb[i].node, rec.verb[i].node);
        assert_int_equal(l.verb[i].len, rec.verb[i].len);
        assert_int_equal(l.verb[i].off, rec.verb[i].off);
        assert_ptr_equal(l.verb[i].buf, rec.verb[i].buf);
    }
}

static void every_post_is_heard(void **state)
{
    (void)state;
    hears("R0", ORDER_IB, FAB_CAP_MCAS);
    hears("R0W1C2M3F0", ORDER_IB, FAB_CAP_MCAS);
    hears("C0|W0|W1", ORDER_IB, FAB_CAP_MCAS);
    hears("M0R0", ORDER_IB, 0);
    hears("R0R1", ORDER_ALL, FAB_CAP_MCAS | FAB_CAP_IMMEDIATE);
    hears("R0W1", ORDER_ALL, FAB_CAP_MCAS | FAB_CAP_IMMEDIATE);
}

static void what_is_not_posted_is_not_heard(void **state)
{
    struct listener l = {.tap = {listen}};

    (void)state;
    recorder_reset(&rec, ORDER_IB, FAB_CAP_MCAS);
    rec.b.tap = &l.tap;
    assert_int_equal(batch_flush(&rec.b), FAR_OK);
    batch_read(&rec.b, gaddr_make(0, 0), 4, rec.buf, 8);
    assert_int_equal(batch_flush(&rec.b), FAR_INVALID);
    assert_int_equal(l.posts, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_post_is_heard),
        cmocka_unit_test(what_is_not_posted_is_not_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
