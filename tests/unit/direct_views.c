/* Views on mapped memory: what a thread is executing is waited for (direct.c), and requests without
 * a view do not look. */
#include "fabric/direct.h"
#include "fabric/rig.h"
#include "fabric/superblock_layout.h"

#include <stdatomic.h>

static struct rig *r, *other;

static int start(void **state)
{
    struct fab *fab = NULL;
    int rc = fab_open("mem:?size=1m&nodes=2", &fab);

    (void)state;
    if (rc == FAR_OK) {
        r = rig_on(fab);
        other = rig_on(fab);
    }
    return rc;
}

static int end(void **state)
{
    struct fab *fab = r->fab;

    (void)state;
    rig_free(r);
    rig_free(other);
    fab_close(fab);
    return 0;
}

static int fence(unsigned node, uint32_t view)
{
    return other->ep->ops->fence_view(other->ep, node, view);
}

/* As if that thread stood still in the middle of a request. */
static void what_is_being_executed_is_waited_for(void **state)
{
    struct direct_seat *seat = ((struct direct_ep *)r->ep)->seat;

    (void)state;
    atomic_store(&seat->view, 1);
    assert_int_equal(fence(0, 1), FAR_OK);
    assert_int_equal(fence(0, 2), FAB_PENDING);
    assert_int_equal(rig_get(other, gaddr_make(0, 0), NODE_VIEW_OFF), 2);
    assert_int_equal(fence(0, 2), FAB_PENDING);
    atomic_store(&seat->view, 2);
    assert_int_equal(fence(0, 2), FAR_OK);
    atomic_store(&seat->view, 0);
    assert_int_equal(fence(0, 3), FAR_OK);
}

static void seats_are_used_again(void **state)
{
    (void)state;
    struct rig *first = rig_on(r->fab);
    struct direct_seat *seat = ((struct direct_ep *)first->ep)->seat;
    assert_true(seat != ((struct direct_ep *)r->ep)->seat);
    rig_free(first);
    struct rig *second = rig_on(r->fab);
    assert_ptr_equal(((struct direct_ep *)second->ep)->seat, seat);
    rig_free(second);
}

/* On these fabrics, nothing of it happens on the other node either. */
static void a_request_is_refused_as_a_whole(void **state)
{
    (void)state;
    assert_int_equal(fence(1, 9), FAR_OK);
    r->ep->view = 8;
    for (unsigned n = 0; n < 2; n++)
        batch_faa(&r->b, MARK_PUBLISH, gaddr_make(n, 4096), 0, 1, &r->buf[n]);
    assert_int_equal(batch_flush(&r->b), FAR_FENCED);
    assert_int_equal(r->ep->view_refused, 9);
    for (unsigned n = 0; n < 2; n++)
        assert_int_equal(rig_get(other, gaddr_make(n, 4096), 0), 0);
    batch_read(&r->b, gaddr_make(1, 4096), 0, r->buf, 8); /* READs alone, too */
    assert_int_equal(batch_flush(&r->b), FAR_FENCED);
    r->ep->view = 0;
}

static void a_damaged_word_refuses_all_views(void **state)
{
    (void)state;
    rig_set(other, gaddr_make(1, 0), NODE_VIEW_OFF, 1ull << 40);
    r->ep->view = UINT32_MAX - 1;
    batch_read(&r->b, gaddr_make(1, 4096), 0, r->buf, 8);
    assert_int_equal(batch_flush(&r->b), FAR_FENCED);
    assert_int_equal(r->ep->view_refused, UINT32_MAX);
    r->ep->view = 0;
    assert_int_equal(rig_get(r, gaddr_make(1, 4096), 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_being_executed_is_waited_for),
        cmocka_unit_test(seats_are_used_again),
        cmocka_unit_test(a_request_is_refused_as_a_whole),
        cmocka_unit_test(a_damaged_word_refuses_all_views),
    };
    return cmocka_run_group_tests(tests, start, end);
}
