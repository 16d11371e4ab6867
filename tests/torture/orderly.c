/*
 * Threads open sessions, work on a nearly full pool with values of all sizes, and close the
 * sessions. They read what they wrote, and when the last session is closed nothing is lost.
 */
#include "support/store_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define THREADS   3
#define SESSIONS  (SLOWER > 1 ? 4u : 8u)
#define KEYS      60
#define VALUE_MAX 300000

static const size_t sizes[] = {0, 40, 40, 300, 3000, 20000, 70000, 140000, VALUE_MAX - 8};

struct worker {
    far_pool *pool;
    pthread_t thread;
    unsigned who, puts, full;
    uint8_t *value, *got;
    size_t len[KEYS]; /* of the key's value, SIZE_MAX: none */
    uint8_t byte[KEYS];
    char wrong[200];
};

static bool fails(struct worker *w, const char *what, int rc)
{
    if (w->wrong[0] == '\0')
        snprintf(w->wrong, sizeof w->wrong, "thread %u: %s: %s (%s)", w->who, what, far_errname(rc),
                 far_error_detail());
    return false;
}

static bool put(struct worker *w, far_session *s, far_table *t, struct rng *rng, unsigned k)
{
    uint32_t key = w->who * 1000 + k;
    size_t len = sizes[rng_below(rng, sizeof sizes / sizeof *sizes)];
    uint8_t byte = (uint8_t)rng_next(rng);
    memset(w->value, byte, len);
    int rc = far_put(s, t, &key, sizeof key, w->value, len);
    w->full += rc == FAR_POOL_FULL;
    if (rc == FAR_POOL_FULL)
        return true;
    w->puts++;
    w->len[k] = len;
    w->byte[k] = byte;
    return rc == FAR_OK || fails(w, "put", rc);
}

static bool look(struct worker *w, far_session *s, far_table *t, unsigned k)
{
    uint32_t key = w->who * 1000 + k;
    size_t len = 0;
    int rc = far_get(s, t, &key, sizeof key, w->got, VALUE_MAX, &len);
    if (w->len[k] == SIZE_MAX)
        return rc == FAR_NOT_FOUND || fails(w, "get of an absent key", rc);
    bool same = rc == FAR_OK && len == w->len[k];
    for (size_t i = 0; same && i < len; i++)
        same = w->got[i] == w->byte[k];
    return same || fails(w, "get", rc);
}

static bool drop(struct worker *w, far_session *s, far_table *t, unsigned k)
{
    uint32_t key = w->who * 1000 + k;
    int rc = far_delete(s, t, &key, sizeof key),
        want = w->len[k] == SIZE_MAX ? FAR_NOT_FOUND : FAR_OK;
    w->len[k] = SIZE_MAX;
    return rc == want || fails(w, "delete", rc);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct rng rng;
    rng_seed(&rng, w->who + 77);
    for (unsigned n = 0; n < SESSIONS && w->wrong[0] == '\0'; n++) {
        far_session *s = NULL;
        far_table *t = NULL;
        int rc = far_session_open(w->pool, NULL, &s);
        if (rc == FAR_OK)
            rc = far_table_open(s, "t", NULL, &t);
        bool good = rc == FAR_OK || fails(w, "open", rc);
        for (uint64_t i = rng_below(&rng, 300 / SLOWER); good && i > 0; i--) {
            unsigned k = (unsigned)rng_below(&rng, KEYS), what = (unsigned)rng_below(&rng, 5);
            good = what < 2   ? put(w, s, t, &rng, k)
                   : what < 3 ? drop(w, s, t, k)
                              : look(w, s, t, k);
        }
        far_session_close(s);
    }
    return NULL;
}

static void note(void *arg, const char *line)
{
    (void)arg;
    print_message("%s\n", line);
}

static void sessions_that_leave_lose_nothing(void **state)
{
    static struct worker w[THREADS];
    far_pool *pool = NULL;
    far_session *s = NULL;
    far_table *t = NULL;
    struct far_pool_check check;
    unsigned puts = 0, full = 0;

    (void)state;
    assert_int_equal(far_pool_open("mem:?size=7m&nodes=2&lease=20000", &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &s), FAR_OK);
    assert_int_equal(far_table_create(s, "t", "race", NULL, &t), FAR_OK);
    far_session_close(s);
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.pool = pool, .who = i};
        assert_non_null(w[i].value = malloc(2 * VALUE_MAX));
        w[i].got = w[i].value + VALUE_MAX;
        memset(w[i].len, 0xff, sizeof w[i].len);
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        puts += w[i].puts;
        full += w[i].full;
        free(w[i].value);
    }
    for (unsigned i = 0; i < THREADS; i++)
        if (w[i].wrong[0] != '\0')
            fail_msg("%s", w[i].wrong);
    print_message("%u puts, %u found no room\n", puts, full);
    assert_int_equal(far_session_open(pool, NULL, &s), FAR_OK);
    assert_int_equal(far_pool_check(s, false, note, NULL, &check), FAR_OK);
    assert_int_equal(check.dead_clients, 0);
    assert_int_equal(check.stranded, 0);
    assert_int_equal(check.leaked_bytes, 0);
    far_session_close(s);
    far_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_that_leave_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
