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
}

static void note(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    struct listener *l = (struct listener *)tap;

    memcpy(&l->verb[l->verbs], verbs, count * sizeof *verbs);
    l->verbs += count;
    l->posts++;
}

/* mem: does READs as they are flushed. They cost and return the same with a tap as without. */
static void reads_that_are_done_at_once_are_heard(void **state)
{
    static struct listener l = {.tap = {note}};
    static struct batch b;
    struct cost cost[2] = {{0}, {0}};
    struct fab *fab;

    (void)state;
    assert_int_equal(fab_open("mem:?size=1m", &fab), FAR_OK);
    struct rig *r = rig_on(fab);
    uint64_t *buf = r->buf;
    for (unsigned i = 0; i < 2; i++) {
        batch_init(&b, r->ep, &cost[i]);
        b.tap = i ? &l.tap : NULL;
        buf[0] = 7;
        batch_write(&b, MARK_EARLY, gaddr_make(0, 64), 8, buf, 8);
        assert_int_equal(batch_flush(&b), FAR_OK);
        memset(buf, 0, 256);
        batch_read(&b, gaddr_make(0, 64), 0, buf, 64);
        batch_read(&b, gaddr_make(0, 64), 8, buf + 8, 72);
        batch_may_be_freed(&b);
        assert_int_equal(batch_flush(&b), FAR_OK);
        assert_int_equal(b.count, 0);
        assert_int_equal(batch_outcome(&b, 1), BATCH_DONE);
        assert_int_equal(batch_outcome(&b, 2), BATCH_NOT);
        assert_int_equal(buf[1], 7);
        assert_int_equal(buf[8], 7);
        assert_int_equal(buf[0] | buf[2] | buf[9], 0);
        assert_int_equal(batch_flush(&b), FAR_OK); /* empty: costs nothing */
        batch_read(&b, gaddr_make(0, 1 << 20), 0, buf, 8);
        assert_int_equal(batch_flush(&b), FAR_BOUNDS);
        assert_int_equal(batch_outcome(&b, 0), BATCH_NOT);
    }
    assert_memory_equal(&cost[0], &cost[1], sizeof cost[0]);
    assert_int_equal(cost[0].rtts, 2);
    assert_int_equal(cost[0].verbs, 3);
    assert_int_equal(cost[0].bytes_read, 136);
    assert_int_equal(cost[0].bytes_written, 8);
    assert_int_equal(l.posts, 2);
    assert_int_equal(l.verbs, 3);
    assert_int_equal(l.verb[1].kind, FAB_READ);
    assert_int_equal(l.verb[2].len, 72);
    rig_free(r);
    fab_close(fab);
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
        cmocka_unit_test(reads_that_are_done_at_once_are_heard),
        cmocka_unit_test(what_is_not_posted_is_not_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
