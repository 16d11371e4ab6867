/* A child of fork() has copies of its parent's handles. Calls refuse them, closing frees the
 * copies, and the parent, its pool and its keeper notice nothing. */
#include "support/forked.h"
#include "support/store_rig.h"

#include <pthread.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

struct handles {
    far_pool *pool;
    far_session *session, *idle;
    far_table *table;
    bool stop; /* the thread that works with them */
};

/* A pool as users have it, with a keeper; or, where that cannot be, without. */
static void open_pool(struct handles *h, const char *uri, bool keeper)
{
    struct fab *fab = NULL;
    if (keeper) {
        ASSERT(far_pool_open(uri, &h->pool) == FAR_OK);
        return;
    }
    ASSERT(fab_open(uri, &fab) == FAR_OK && store_open(fab, NULL, &h->pool) == FAR_OK);
    h->pool->owns_fab = true;
}

static void open_all(struct handles *h, const char *uri, bool keeper)
{
    memset(h, 0, sizeof *h);
    open_pool(h, uri, keeper);
    ASSERT(far_session_open(h->pool, NULL, &h->session) == FAR_OK);
    ASSERT(far_session_open(h->pool, NULL, &h->idle) == FAR_OK);
    ASSERT(far_table_create(h->session, "t", "race", NULL, &h->table) == FAR_OK);
    ASSERT(far_put(h->session, h->table, "k", 1, "parent", 6) == FAR_OK);
}

static void close_all(struct handles *h)
{
    far_session_close(h->session);
    far_session_close(h->idle);
    far_pool_close(h->pool);
}

static void use_and_close(void *arg)
{
    struct handles *h = arg;
    forked_use(h->pool, h->session, h->table);
    forked_use(h->pool, h->idle, h->table);
    far_session_watch(h->session, NULL, NULL);
    close_all(h);
    /* What the child opens itself, it can use. */
    struct handles own;
    open_all(&own, "mem:?size=16m", FORKED_HAVE_THREADS);
    ASSERT(far_exists(own.session, own.table, "k", 1) == FAR_OK);
    close_all(&own);
}

static void parent_goes_on(struct handles *h)
{
    char buf[8];
    size_t len = 0;

    assert_int_equal(far_get(h->session, h->table, "k", 1, buf, 8, &len), FAR_OK);
    assert_int_equal(len, 6);
    assert_memory_equal(buf, "parent", 6);
    assert_int_equal(far_put(h->idle, h->table, "l", 1, "more", 4), FAR_OK);
    assert_int_equal(far_table_check(h->session, h->table, NULL, NULL), FAR_OK);
}

/* The last session of the parent: nothing else may be in the pool. */
static void parent_ends(struct handles *h)
{
    struct far_pool_check check;

    parent_goes_on(h);
    far_session_close(h->idle);
    h->idle = NULL;
    assert_int_equal(far_pool_check(h->session, false, NULL, NULL, &check), FAR_OK);
    assert_int_equal(check.violations + check.stranded + check.dead_clients, 0);
    close_all(h);
}

static void a_child_closes_what_it_inherits(void **state)
{
    char shm[64];
    snprintf(shm, sizeof shm, "shm:fork-%d?size=16m", (int)getpid());
    const char *const uris[] = {"mem:?size=16m", "mem:?size=16m&defer=1", shm};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct handles h;
        open_all(&h, uris[i], true);
        forked(use_and_close, &h);
        parent_goes_on(&h);
        forked(use_and_close, &h);
        parent_ends(&h);
    }
    assert_int_equal(far_pool_remove(shm), FAR_OK);
}

/* Operations in flight are the parent's to finish. */
static void a_child_closes_a_ring_that_it_inherits(void **state)
{
    static const char *const uris[] = {"mem:?size=16m", "mem:?size=16m&defer=1"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct handles h;
        struct far_result result[4];
        open_all(&h, uris[i], true);
        struct far_op op = {.kind = FAR_OP_UPDATE,
                            .table = h.table,
                            .key = "k",
                            .key_len = 1,
                            .value = "parent",
                            .value_len = 6};
        for (unsigned n = 0; n < 4; n++)
            assert_int_equal(far_submit(h.session, &op), FAR_OK);
        forked(use_and_close, &h);
        unsigned reaped = 0;
        while (reaped < 4) {
            unsigned got = far_reap(h.session, result, 4, 1);
            for (unsigned n = 0; n < got; n++)
                assert_int_equal(result[n].status, FAR_OK);
            reaped += got;
        }
        parent_ends(&h);
    }
}

static void a_grandchild_is_no_parent(void *arg)
{
    struct handles *h = arg, own;
    open_all(&own, "mem:?size=16m", FORKED_HAVE_THREADS);
    forked(use_and_close, h);
    forked(use_and_close, &own);
    ASSERT(far_exists(own.session, own.table, "k", 1) == FAR_OK);
    close_all(&own);
    close_all(h);
}

static void grandchildren_cannot_use_what_they_inherit(void **state)
{
    struct handles h;
    (void)state;
    open_all(&h, "mem:?size=16m", true);
    forked(a_grandchild_is_no_parent, &h);
    parent_ends(&h);
}

/* A thread that works while another forks: its session may be half changed in the child. */
static void *work(void *arg)
{
    struct handles *h = arg;
    while (!__atomic_load_n(&h->stop, __ATOMIC_RELAXED)) {
        ASSERT(far_put(h->session, h->table, "k", 1, "parent", 6) == FAR_OK);
        ASSERT(far_exists(h->session, h->table, "k", 1) == FAR_OK);
    }
    return NULL;
}

static void close_only(void *arg)
{
    close_all(arg);
}

static void a_child_closes_what_another_thread_was_using(void **state)
{
    struct handles h;
    pthread_t thread;

    (void)state;
    open_all(&h, "mem:?size=16m", true);
    assert_int_equal(pthread_create(&thread, NULL, work, &h), 0);
    for (unsigned i = 0; i < 20; i++)
        forked(close_only, &h);
    __atomic_store_n(&h.stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    parent_ends(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_closes_what_it_inherits),
        cmocka_unit_test(a_child_closes_a_ring_that_it_inherits),
        cmocka_unit_test(grandchildren_cannot_use_what_they_inherit),
        cmocka_unit_test(a_child_closes_what_another_thread_was_using),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
