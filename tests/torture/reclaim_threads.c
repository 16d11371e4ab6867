/*
 * Threads on a small pool put, update, delete and read keys whose values identify themselves,
 * through sessions that are opened, closed, or end as if their process was killed. In the end every
 * key is as its thread left it, the pool is clean, and no byte of it is lost. The clock waits for
 * the slowest thread (paced_clock.h).
 */
#include "support/audit.h"
#include "support/indexes.h"
#include "support/paced_clock.h"
#include "support/store_rig.h"

#include <pthread.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define THREADS   4
#define KEYS      96 /* of each thread */
#define WORDS_MAX 400

struct setting {
    const char *uri;
    unsigned threads, sessions, ops; /* sessions of each thread, operations of each session */
    unsigned abandon; /* one session in `abandon` ends like a killed process; 0: none */
    bool small;       /* parts of the table */
};

static struct paced_clock paced;

struct worker {
    struct store_rig *rig;
    const struct setting *setting;
    pthread_t thread;
    unsigned who;
    struct rng rng;
    uint64_t version[KEYS]; /* 0: not there */
    uint64_t next_version, value[WORDS_MAX], got[WORDS_MAX];
    unsigned full, fenced;
    char failure[200];
};

static uint64_t key_id(unsigned who, unsigned key)
{
    return (uint64_t)who << 32 | key;
}

/* Every word of a value follows from its key and place; the first is the version. */
static size_t make_value(struct worker *w, uint64_t id, uint64_t version)
{
    static const unsigned words[] = {2, 2, 8, 8, 30, 60, 120, WORDS_MAX};
    unsigned n = words[version % 8];
    for (unsigned i = 0; i < n; i++)
        w->value[i] = id * 0x9e3779b97f4a7c15ull + i;
    w->value[0] = version;
    return n * 8;
}

/* Was a whole value of that key read, of any version? */
static bool is_value(const struct worker *w, uint64_t id, size_t len)
{
    if (len < 16 || len % 8 != 0)
        return false;
    for (unsigned i = 1; i < len / 8; i++)
        if (w->got[i] != id * 0x9e3779b97f4a7c15ull + i)
            return false;
    return true;
}

static bool failed(struct worker *w, const char *what, int rc, uint64_t id)
{
    if (w->failure[0] == '\0')
        snprintf(w->failure, sizeof w->failure, "thread %u: %s of %llx: %s: %s", w->who, what,
                 (unsigned long long)id, far_errname(rc), far_error_detail());
    return false;
}

/* Does the status say that nothing was done, so that it can be tried again? */
static bool once_more(struct worker *w, int rc)
{
    w->full += rc == FAR_POOL_FULL;
    w->fenced += rc == FAR_FENCED;
    return rc == FAR_POOL_FULL || rc == FAR_FENCED;
}

static bool change(struct worker *w, far_session *s, unsigned key)
{
    uint64_t id = key_id(w->who, key), kind = rng_below(&w->rng, 4);
    int rc = FAR_OK;
    if (kind == 0) {
        rc = far_delete(s, w->rig->table, &id, sizeof id);
        if (once_more(w, rc))
            return true;
        if (rc != (w->version[key] ? FAR_OK : FAR_NOT_FOUND))
            return failed(w, "delete", rc, id);
        w->version[key] = 0;
        return true;
    }
    uint64_t version = ++w->next_version;
    size_t len = make_value(w, id, version);
    if (kind == 1)
        rc = far_insert(s, w->rig->table, &id, sizeof id, w->value, len);
    else
        rc = far_put(s, w->rig->table, &id, sizeof id, w->value, len);
    if (once_more(w, rc))
        return true;
    if (rc != (kind == 1 && w->version[key] ? FAR_EXISTS : FAR_OK))
        return failed(w, kind == 1 ? "insert" : "put", rc, id);
    if (rc == FAR_OK)
        w->version[key] = version;
    return true;
}

static bool read_own(struct worker *w, far_session *s, unsigned key)
{
    uint64_t id = key_id(w->who, key);
    size_t len = 0;
    int rc = far_get(s, w->rig->table, &id, sizeof id, w->got, sizeof w->got, &len);
    if (once_more(w, rc))
        return true;
    if (rc != (w->version[key] ? FAR_OK : FAR_NOT_FOUND))
        return failed(w, "get", rc, id);
    if (rc == FAR_OK && (!is_value(w, id, len) || w->got[0] != w->version[key]))
        return failed(w, "the wrong version in a get", FAR_CORRUPT, id);
    return true;
}

static bool read_another(struct worker *w, far_session *s)
{
    uint64_t id = key_id((unsigned)rng_below(&w->rng, w->setting->threads),
                         (unsigned)rng_below(&w->rng, KEYS));
    size_t len = 0;
    int rc = far_get(s, w->rig->table, &id, sizeof id, w->got, sizeof w->got, &len);
    if (once_more(w, rc) || rc == FAR_NOT_FOUND)
        return true;
    if (rc != FAR_OK)
        return failed(w, "get", rc, id);
    return is_value(w, id, len) || failed(w, "a wrong value in a get", FAR_CORRUPT, id);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    paced_self = 1 + w->who;
    for (unsigned n = 0; n < w->setting->sessions && w->failure[0] == '\0'; n++) {
        far_session *s = NULL;
        int rc = far_session_open(w->rig->pool, NULL, &s);
        if (rc != FAR_OK) {
            failed(w, "session", rc, n);
            break;
        }
        bool ok = true;
        for (unsigned i = 0;
             i < (SLOWER == 1 ? w->setting->ops : indexes_share(w->setting->ops)) && ok; i++) {
            unsigned key = (unsigned)rng_below(&w->rng, KEYS);
            uint64_t what = rng_below(&w->rng, 4);
            ok = what == 0   ? read_own(w, s, key)
                 : what == 1 ? read_another(w, s)
                             : change(w, s, key);
        }
        if (w->setting->abandon && rng_below(&w->rng, w->setting->abandon) == 0)
            store_rig_kill(s);
        else
            far_session_close(s);
    }
    paced_clock_leave(&paced);
    return NULL;
}

static void run(const struct setting *setting)
{
    static struct worker w[THREADS];
    struct far_table_options table = {.tuning = setting->small ? indexes_smallest() : NULL};
    struct store_rig r;
    struct far_pool_check check;
    struct audit a;

    memset(&r, 0, sizeof r);
    assert_int_equal(fab_open(setting->uri, &r.fab), FAR_OK);
    paced_clock_set(&paced, r.fab);
    store_rig_start(&r, NULL, NULL, &table);
    far_session_close(r.session); /* an idle session would hold up the others */
    for (unsigned i = 0; i < setting->threads; i++)
        paced_clock_join(&paced, 1 + i);
    paced_clock_leave(&paced);
    memset(w, 0, sizeof w);
    for (unsigned i = 0; i < setting->threads; i++) {
        w[i].rig = &r;
        w[i].setting = setting;
        w[i].who = i;
        rng_seed(&w[i].rng, i + 1);
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (unsigned i = 0; i < setting->threads; i++)
        pthread_join(w[i].thread, NULL);
    paced_clock_join(&paced, 0);
    for (unsigned i = 0; i < setting->threads; i++)
        if (w[i].failure[0])
            fail_msg("%s", w[i].failure);

    assert_int_equal(far_session_open(r.pool, NULL, &r.session), FAR_OK);
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &check), FAR_OK);
    assert_int_equal(check.violations, 0);
    assert_true(check.leaked_bytes == 0);
    for (unsigned i = 0; i < setting->threads; i++)
        for (unsigned key = 0; key < KEYS; key++)
            if (!read_own(&w[i], r.session, key))
                fail_msg("in the end: %s", w[i].failure);
    sim_audit(&a, r.pool, &r.session, 1);
    if (a.wrong > 0)
        fail_msg("%s", a.first);
    assert_true(a.bytes[AUDIT_NOWHERE] == 0);
    for (unsigned i = 0; i < setting->threads; i++)
        assert_true(w[i].full == 0);
    store_rig_close(&r);
}

static void no_byte_is_lost_when_sessions_come_and_go(void **state)
{
    (void)state;
    run(&(struct setting){.uri = "mem:?size=6m&lease=50",
                          .threads = 3,
                          .sessions = 60 / SLOWER,
                          .ops = 10000,
                          .small = true});
}

static void no_byte_is_lost_when_sessions_die(void **state)
{
    (void)state;
    run(&(struct setting){.uri = "mem:?size=8m&lease=50",
                          .threads = 3,
                          .sessions = 40 / SLOWER,
                          .ops = 10000,
                          .abandon = 3,
                          .small = true});
}

static void no_byte_is_lost_on_several_nodes(void **state)
{
    (void)state;
    run(&(struct setting){.uri = "mem:?size=4m&nodes=3&lease=50",
                          .threads = 4,
                          .sessions = 24 / SLOWER,
                          .ops = 10000,
                          .abandon = 5});
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_byte_is_lost_when_sessions_come_and_go),
        cmocka_unit_test(no_byte_is_lost_when_sessions_die),
        cmocka_unit_test(no_byte_is_lost_on_several_nodes),
    };
    return INDEXES_RUN(tests);
}
