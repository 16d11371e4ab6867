/*
 * Views between processes: one works in a view until a node refuses it, another has that view
 * refused. The test's own process opens nothing: it starts the two, and stops and continues the
 * worker.
 */
#ifndef TESTS_FABRIC_VIEW_PROCESSES_H
#define TESTS_FABRIC_VIEW_PROCESSES_H

#include "fabric/superblock_layout.h"
#include "support/shm_scratch.h"

#include "base/clock.h"

#include <stdatomic.h>

#define VIEW_WORD  gaddr_make(0, 3 << 20)
#define VIEW_BLOCK gaddr_make(0, 4 << 20)
#define WAIT_NS    (60ull * 1000000000)

/* Besides the pool: what the processes tell each other. */
struct views {
    char uri[1024];
    uint32_t view;            /* that the worker works in; the other has it refused */
    _Atomic uint64_t added;   /* by the worker, acknowledged                        */
    _Atomic bool go;          /* the other may begin                                */
    _Atomic bool fenced;      /* fence_view() has returned FAR_OK                   */
    _Atomic bool over;        /* the worker has ended                               */
    int status;               /* of its last request                                */
    uint32_t named;           /* the view that the node named then                  */
    uint64_t at_fence, after; /* the word, when the worker was stopped, and at last */
};

static struct views *views;

static void view_await(_Atomic bool *flag)
{
    uint64_t until = clock_ns() + WAIT_NS;

    while (!atomic_load(flag)) {
        ASSERT(clock_ns() < until);
        usleep(1000);
    }
}

static struct rig *view_open(void)
{
    struct fab *fab = NULL;
    int rc = fab_open(views->uri, &fab);

    if (rc != FAR_OK)
        fprintf(stderr, "%s: %s\n", far_errname(rc), far_error_detail());
    ASSERT(rc == FAR_OK);
    fab->ops->formatted(fab);
    return rig_on(fab);
}

static void view_close(struct rig *r)
{
    struct fab *fab = r->fab;

    rig_free(r);
    fab_close(fab);
}

/* Goes on after other errors: a node may come back. */
static void view_work(void *arg)
{
    struct rig *r = view_open();
    uint64_t until = clock_ns() + WAIT_NS;
    int rc = FAR_OK;

    (void)arg;
    r->ep->view = views->view;
    while (rc != FAR_FENCED && clock_ns() < until) {
        batch_write(&r->b, MARK_EARLY, VIEW_BLOCK, 0, r->buf, 100000);
        batch_faa(&r->b, MARK_PUBLISH, VIEW_WORD, 0, 1, r->buf + 100000 / 8);
        rc = batch_flush(&r->b);
        atomic_fetch_add(&views->added, rc == FAR_OK);
        if (rc != FAR_OK && rc != FAR_FENCED)
            usleep(10000);
    }
    views->status = rc;
    views->named = r->ep->view_refused;
    view_close(r);
}

static void view_fence(void *arg)
{
    struct rig *r = view_open();

    (void)arg;
    view_await(&views->go);
    ASSERT(rig_fence_view(r, 0, views->view + 1) == FAR_OK);
    views->at_fence = rig_get(r, VIEW_WORD, 0);
    atomic_store(&views->fenced, true);
    view_await(&views->over);
    view_close(r);
    r = view_open(); /* the node may be another process by now */
    views->after = rig_get(r, VIEW_WORD, 0);
    ASSERT(rig_get(r, gaddr_make(0, 0), NODE_VIEW_OFF) == views->view + 1);
    view_close(r);
}

/* Runs both. The worker is stopped while its view is refused, if `stopped` is set; `meanwhile` is
 * called then. */
static void view_run(uint32_t view, bool stopped, void (*meanwhile)(void))
{
    char uri[sizeof views->uri];

    memcpy(uri, views->uri, sizeof uri);
    *views = (struct views){.view = view};
    memcpy(views->uri, uri, sizeof uri);
    pid_t fencer = child_start(view_fence, NULL), worker = child_start(view_work, NULL);
    for (uint64_t until = clock_ns() + WAIT_NS; atomic_load(&views->added) < 20;) {
        assert_true(clock_ns() < until);
        usleep(100);
    }
    if (stopped) {
        assert_int_equal(kill(worker, SIGSTOP), 0);
        assert_int_equal(waitpid(worker, NULL, WUNTRACED), worker);
    }
    atomic_store(&views->go, true);
    view_await(&views->fenced);
    if (meanwhile)
        meanwhile();
    if (stopped)
        assert_int_equal(kill(worker, SIGCONT), 0);
    assert_int_equal(child_end(worker), 0);
    atomic_store(&views->over, true);
    assert_int_equal(child_end(fencer), 0);
    assert_int_equal(views->status, FAR_FENCED);
    assert_int_equal(views->named, view + 1);
}

#endif
