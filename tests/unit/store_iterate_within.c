/* Iterating while the table grows between any two round trips of one call. */
#include "support/hook.h"
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define STAY 300u
#define KEYS 6000u

static unsigned seen[KEYS];
static struct {
    struct store_rig *rig;
    far_session *rival;
    uint64_t next, most; /* the next key; those of one call */
    unsigned each;
} grows;

/* A full bucket of SHARD waits until the operations in flight have ended, which this one would wait
 * for. So its buckets are large, and a call adds an eighth of the keys at most. */
static const char *tuning(void)
{
    return strcmp(index_tested, "shard") == 0 ? "buckets=1&slots=64&load=40" : indexes_smallest();
}

/* All sessions announce themselves: a resize is settled. */
static void settle(struct store_rig *r, far_session *third)
{
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(client_drive_epoch(&r->session->op), FAR_OK);
        assert_int_equal(client_drive_epoch(&third->op), FAR_OK);
        assert_int_equal(client_drive_epoch(&grows.rival->op), FAR_OK);
    }
}

static void put_and_settle(struct store_rig *r, far_session *third, uint64_t key)
{
    assert_int_equal(far_put(r->session, r->table, &key, 8, &key, 8), FAR_OK);
    settle(r, third);
}

static int post_behind_growth(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < grows.each && grows.next < grows.most; i++, grows.next++)
        assert_int_equal(far_put(grows.rival, grows.rig->table, &grows.next, 8, &grows.next, 8),
                         FAR_OK);
    for (uint64_t k = grows.next % STAY, i = 0; i < 3; i++, k = (k + 7) % STAY)
        assert_int_equal(far_put(grows.rival, grows.rig->table, &k, 8, &k, 8), FAR_OK);
    return hook.real->post(ep, req);
}

static void keys_that_stay_are_returned_while_the_table_grows_within_calls(void **state)
{
    (void)state;
    for (unsigned n = 0; n < indexes_share(60 / SLOWER + 3); n++) {
        struct store_rig r;
        struct knobs knobs = pool_knobs_default;
        char buf[60 + 63 * 19];
        size_t cap = n % 3 ? 60 + n * 19 : 40, len = 0;
        uint64_t cursor = 0;
        unsigned calls = 0;
        if (n % 4 == 0)
            knobs.tick_ops = 1;
        store_rig_open(
            &r, n % 2 ? "mem:?size=64m&nodes=3&lease=3600000" : "mem:?size=64m&lease=3600000",
            &knobs, NULL, &(struct far_table_options){.tuning = tuning()});
        assert_int_equal(far_session_open(r.pool, NULL, &grows.rival), FAR_OK);
        far_session *third = NULL;
        assert_int_equal(far_session_open(r.pool, NULL, &third), FAR_OK);
        for (uint64_t k = 0; k < STAY; k++)
            put_and_settle(&r, third, k);
        assert_int_equal(far_exists(third, r.table, "x", 1), FAR_NOT_FOUND); /* a cache of now */
        memset(seen, 0, sizeof seen);
        grows.rig = &r;
        grows.next = STAY;
        grows.each = 1 + n % 40;
        do {
            far_session *s = calls++ % 3 == 2 ? third : r.session;
            settle(&r, third);
            grows.most = grows.next + grows.next / 8 < KEYS ? grows.next + grows.next / 8 : KEYS;
            hook_on(s->client.ep);
            hook.ops.post = post_behind_growth;
            assert_int_equal(far_iterate(s, r.table, &cursor, 0, buf, cap, &len), FAR_OK);
            hook_off();
            struct far_entry e;
            for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);) {
                uint64_t key = 0;
                memcpy(&key, e.key, 8);
                assert_true(key < KEYS && e.value_len == 8 && memcmp(e.value, &key, 8) == 0);
                seen[key]++;
            }
        } while (cursor != 0);
        for (unsigned k = 0; k < STAY; k++)
            if (seen[k] == 0)
                fail_msg("turn %u: key %u was not returned", n, k);
        far_session_close(third);
        far_session_close(grows.rival);
        store_rig_close(&r);
    }
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_stay_are_returned_while_the_table_grows_within_calls),
    };
    return INDEXES_RUN(tests);
}
