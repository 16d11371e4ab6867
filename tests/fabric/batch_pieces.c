/*
 * Where a client that stands still cannot be shut out, what it posts goes out in pieces, and each
 * asks whether it may still write. What was not posted by then is not.
 */
#include "fabric/rig.h"

#define BYTES (100u << 10)
#define FROM  gaddr_make(0, 1 << 20)
#define WORD  gaddr_make(0, 4 << 20)

static struct {
    unsigned asked, allowed; /* how often it may write */
    unsigned failed;
} lease;

static bool may_write(const struct batch_policy *policy)
{
    (void)policy;
    return lease.asked++ < lease.allowed;
}

static void failed(const struct batch_policy *policy)
{
    (void)policy;
    lease.failed++;
}

static const struct batch_policy policy = {
    .may_write = may_write, .refusal = "no", .failed = failed};

static struct rig *open_rig(bool pieces)
{
    struct fab *fab = NULL;

    assert_int_equal(fab_open("mem:?size=8m", &fab), FAR_OK);
    if (pieces)
        fab->caps |= FAB_CAP_PIECES;
    struct rig *r = rig_on(fab);
    for (unsigned i = 0; i < BYTES / 8; i++)
        r->buf[i] = i + 1;
    return r;
}

static void close_rig(struct rig *r)
{
    struct fab *fab = r->fab;

    rig_free(r);
    fab_close(fab);
}

/* A long WRITE and an atomic, while the lease lasts for that many questions. */
static int post(struct rig *r, unsigned allowed)
{
    lease = (typeof(lease)){.allowed = allowed};
    r->b.policy = &policy;
    batch_write(&r->b, MARK_EARLY, FROM, 0, r->buf, BYTES);
    batch_faa(&r->b, MARK_PUBLISH, WORD, 0, 1, r->buf + BYTES / 8);
    int rc = batch_flush(&r->b);
    r->b.policy = NULL;
    return rc;
}

/* How many words were written, and what the atomic's word is. */
static unsigned written(struct rig *r, uint64_t *word)
{
    uint64_t *got = r->buf + 2 * (BYTES / 8);
    unsigned count = 0;

    batch_read(&r->b, FROM, 0, got, BYTES);
    batch_read(&r->b, WORD, 0, got + BYTES / 8, 8);
    assert_int_equal(batch_flush(&r->b), FAR_OK);
    while (count < BYTES / 8 && got[count] == count + 1)
        count++;
    for (unsigned i = count; i < BYTES / 8; i++)
        assert_true(got[i] == 0);
    *word = got[BYTES / 8];
    return count;
}

static void a_long_write_stops_when_the_lease_has_passed(void **state)
{
    uint64_t word = 0;
    unsigned before = 0;

    (void)state;
    struct rig *r = open_rig(true);
    /* The first question is that for the whole post, the second that for its first piece. */
    assert_int_equal(post(r, 0), FAR_FENCED);
    assert_int_equal(post(r, 1), FAR_FENCED);
    assert_int_equal(written(r, &word), 0);
    assert_int_equal(lease.failed, 0);
    for (unsigned i = 2; i < 8; i++) {
        assert_int_equal(post(r, i), FAR_UNKNOWN);
        assert_int_equal(lease.failed, 1);
        assert_int_equal(batch_outcome(&r->b, 1), BATCH_UNKNOWN);
        unsigned now = written(r, &word);
        assert_in_range((now - before) * 8, 8, 16 << 10);
        assert_int_equal(word, 0);
        before = now;
    }
    assert_int_equal(post(r, 8), FAR_UNKNOWN); /* all but the atomic */
    assert_int_equal(written(r, &word), BYTES / 8);
    assert_int_equal(word, 0);
    assert_int_equal(post(r, 9), FAR_OK);
    assert_int_equal(written(r, &word), BYTES / 8);
    assert_int_equal(word, 1);
    close_rig(r);
}

static struct fab_ep *fencer, *learner;
static unsigned fence_at;

/* The node's view is raised just before that piece. */
static bool may_write_and_fence(const struct batch_policy *p)
{
    (void)p;
    if (++lease.asked == fence_at)
        ASSERT(fencer->ops->fence_view(fencer, 0, 2) == FAR_OK);
    return true;
}

/* On shm: a post that names a view asks the node for its view before each piece. */
static void a_long_write_stops_when_its_view_is_refused(void **state)
{
    static const struct batch_policy views = {
        .may_write = may_write_and_fence, .refusal = "no", .failed = failed};

    (void)state;
    for (fence_at = 1; fence_at < 11; fence_at++) {
        struct rig *r = open_rig(false), *other = rig_on(r->fab);
        uint64_t word = 0;

        r->fab->caps |= FAB_CAP_VIEW_PIECES;
        fencer = other->ep;
        lease = (typeof(lease)){0};
        r->ep->view = 1;
        r->b.policy = &views;
        batch_write(&r->b, MARK_EARLY, FROM, 0, r->buf, BYTES);
        batch_faa(&r->b, MARK_PUBLISH, WORD, 0, 1, r->buf + BYTES / 8);
        int rc = batch_flush(&r->b);
        assert_int_equal(lease.asked, fence_at < 2 ? 2 : fence_at < 9 ? fence_at : 9);
        r->b.policy = NULL;
        r->ep->view = 0;
        unsigned now = written(r, &word);
        assert_int_equal(rc, fence_at < 3 ? FAR_FENCED : fence_at < 10 ? FAR_UNKNOWN : FAR_OK);
        assert_int_equal(lease.failed, rc == FAR_UNKNOWN);
        assert_int_equal(word, rc == FAR_OK);
        assert_int_equal(now == 0, rc == FAR_FENCED);
        assert_int_equal(now == BYTES / 8, fence_at >= 9);
        rig_free(other);
        close_rig(r);
    }
}

static int learn(const struct batch_policy *p)
{
    (void)p;
    learner->view = learner->view_refused;
    return FAR_OK;
}

/* If it can learn the new view, it goes on with the piece that was refused. */
static void a_long_write_goes_on_in_a_new_view(void **state)
{
    static const struct batch_policy views = {
        .may_write = may_write_and_fence, .refusal = "no", .failed = failed, .learn = learn};

    (void)state;
    for (fence_at = 1; fence_at < 11; fence_at++) {
        struct rig *r = open_rig(false), *other = rig_on(r->fab);
        uint64_t word = 0;

        r->fab->caps |= FAB_CAP_VIEW_PIECES;
        fencer = other->ep;
        learner = r->ep;
        lease = (typeof(lease)){0};
        r->ep->view = 1;
        r->b.policy = &views;
        batch_write(&r->b, MARK_EARLY, FROM, 0, r->buf, BYTES);
        batch_faa(&r->b, MARK_PUBLISH, WORD, 0, 1, r->buf + BYTES / 8);
        assert_int_equal(batch_flush(&r->b), FAR_OK);
        r->b.policy = NULL;
        r->ep->view = 0;
        assert_int_equal(lease.failed, 0);
        assert_int_equal(written(r, &word), BYTES / 8);
        assert_int_equal(word, 1);
        rig_free(other);
        close_rig(r);
    }
}

/* Here a post is one piece, and asks again before it is posted again. */
static void behind_learning_a_view_the_lease_may_have_passed(void **state)
{
    static const struct batch_policy views = {
        .may_write = may_write, .refusal = "no", .failed = failed, .learn = learn};
    struct rig *r = open_rig(false);
    uint64_t word = 0;

    (void)state;
    for (unsigned allowed = 1; allowed < 3; allowed++) {
        r->ep->view = 2 * allowed - 1;
        assert_int_equal(rig_fence_view(r, 0, 2 * allowed), FAR_OK);
        learner = r->ep;
        lease = (typeof(lease)){.allowed = allowed};
        r->b.policy = &views;
        batch_faa(&r->b, MARK_PUBLISH, WORD, 0, 1, r->buf + BYTES / 8);
        assert_int_equal(batch_flush(&r->b), allowed == 1 ? FAR_FENCED : FAR_OK);
        r->b.policy = NULL;
        (void)written(r, &word);
        assert_int_equal(word, allowed - 1);
    }
    r->ep->view = 0;
    close_rig(r);
}

static void other_fabrics_ask_once(void **state)
{
    uint64_t word = 0;

    (void)state;
    struct rig *r = open_rig(false);
    assert_int_equal(post(r, 1), FAR_OK);
    assert_int_equal(lease.asked, 1);
    assert_int_equal(r->cost.rtts, 1);
    assert_int_equal(written(r, &word), BYTES / 8);
    assert_int_equal(word, 1);
    close_rig(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_write_stops_when_the_lease_has_passed),
        cmocka_unit_test(a_long_write_stops_when_its_view_is_refused),
        cmocka_unit_test(a_long_write_goes_on_in_a_new_view),
        cmocka_unit_test(behind_learning_a_view_the_lease_may_have_passed),
        cmocka_unit_test(other_fabrics_ask_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
