/*
 * Every index on the pool of a URI: random operations of two sessions against a model, then many at
 * once through the ring, with tables that start small and have to grow on the way.
 *
 *   verbs_store URI
 */
#include "base/rng.h"
#include "farside.h"
#include "index/tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS     96u
#define OPS      700u
#define RING_OPS 400u
#define DEPTH    16u
#define SESSIONS 2u

static const char *uri;

struct rig {
    far_pool *pool;
    far_session *session[SESSIONS];
    far_table *table;
    struct rng rng;
    uint32_t version[KEYS]; /* 0: absent */
};

/* A value names its session and its number. */
struct value {
    uint32_t key, version;
    uint8_t rest[120];
};

static size_t value_of(uint32_t key, uint32_t version, struct value *value)
{
    size_t rest = (key * 7 + version * 13) % sizeof value->rest;

    *value = (struct value){.key = key, .version = version};
    memset(value->rest, (int)(key + version), rest);
    return offsetof(struct value, rest) + rest;
}

static void print_line(void *arg, const char *line)
{
    (void)arg;
    print_error("%s\n", line);
}

static void open_rig(struct rig *r, const char *index)
{
    const struct far_table_options small = {.tuning = tuning_smallest(index)};
    const struct far_session_options options = {.depth = DEPTH};
    int rc;

    *r = (struct rig){0};
    rng_seed(&r->rng, 7);
    rc = far_pool_open(uri, &r->pool);
    if (rc != FAR_OK)
        print_error("%s: %s\n", far_errname(rc), far_error_detail());
    assert_int_equal(rc, FAR_OK);
    for (unsigned i = 0; i < SESSIONS; i++)
        assert_int_equal(far_session_open(r->pool, &options, &r->session[i]), FAR_OK);
    assert_int_equal(far_table_create(r->session[0], index, index, &small, &r->table), FAR_OK);
}

static void close_rig(struct rig *r)
{
    for (unsigned i = 0; i < SESSIONS; i++)
        far_session_close(r->session[i]);
    far_pool_close(r->pool);
}

static void step(struct rig *r)
{
    far_session *s = r->session[rng_below(&r->rng, SESSIONS)];
    uint32_t key = (uint32_t)rng_below(&r->rng, KEYS), *version = &r->version[key];
    struct value value, got;
    size_t len = value_of(key, *version + 1, &value), got_len = 0;
    bool there = *version != 0;

    switch (rng_below(&r->rng, 5)) {
    case 0:
        assert_int_equal(far_put(s, r->table, &key, 4, &value, len), FAR_OK);
        ++*version;
        break;
    case 1:
        assert_int_equal(far_insert(s, r->table, &key, 4, &value, len),
                         there ? FAR_EXISTS : FAR_OK);
        *version += !there;
        break;
    case 2:
        assert_int_equal(far_update(s, r->table, &key, 4, &value, len),
                         there ? FAR_OK : FAR_NOT_FOUND);
        *version += there;
        break;
    case 3:
        if (rng_below(&r->rng, 3) > 0) /* more comes than goes */
            break;
        assert_int_equal(far_delete(s, r->table, &key, 4), there ? FAR_OK : FAR_NOT_FOUND);
        *version = 0;
        break;
    default:
        assert_int_equal(far_get(s, r->table, &key, 4, &got, sizeof got, &got_len),
                         there ? FAR_OK : FAR_NOT_FOUND);
        if (there) {
            len = value_of(key, *version, &value);
            assert_int_equal(got_len, len);
            assert_memory_equal(&got, &value, len);
        }
    }
}

/* Puts of new keys, then gets of them, as many at once as the ring takes. */
static void ring(struct rig *r, enum far_op_kind kind)
{
    static struct value value[RING_OPS], got[RING_OPS];
    static uint32_t key[RING_OPS];
    far_session *s = r->session[0];
    unsigned sent = 0, done = 0;

    while (done < RING_OPS) {
        struct far_result result[DEPTH];
        unsigned count = 0;

        for (; sent < RING_OPS && sent - done < DEPTH; sent++) {
            struct far_op op = {.kind = kind, .table = r->table, .key_len = 4, .user_data = sent};

            key[sent] = 1000 + sent;
            op.key = &key[sent];
            op.value = &value[sent];
            op.value_len = value_of(key[sent], 1, &value[sent]);
            op.buf = &got[sent];
            op.cap = sizeof got[sent];
            assert_int_equal(far_submit(s, &op), FAR_OK);
        }
        count = far_reap(s, result, DEPTH, 1);
        for (unsigned i = 0; i < count; i++) {
            assert_int_equal(result[i].status, FAR_OK);
            if (kind == FAR_OP_GET)
                assert_memory_equal(&got[result[i].user_data], &value[result[i].user_data],
                                    result[i].len);
        }
        done += count;
    }
}

static void print_costs(struct rig *r, const char *index)
{
    static const char *const name[FAR_OP_KINDS] = {"none",   "get",    "exists", "put",
                                                   "insert", "update", "delete"};
    struct far_stats stats;

    far_stats(r->session[0], r->table, &stats);
    for (unsigned i = 0; i < FAR_OP_KINDS; i++) {
        const struct far_op_stats *o = &stats.op[i];

        if (o->count > 0)
            printf("%s %s: %" PRIu64 " operations, %.2f round trips, %.2f verbs\n", index, name[i],
                   o->count, (double)o->rtts / (double)o->count,
                   (double)o->verbs / (double)o->count);
    }
}

static void every_index_agrees_with_the_model(void **state)
{
    (void)state;
    for (unsigned i = 0; far_index_name(i); i++) {
        const char *index = far_index_name(i);
        struct far_table_info info;
        struct rig r;

        open_rig(&r, index);
        for (unsigned op = 0; op < OPS; op++)
            step(&r);
        ring(&r, FAR_OP_PUT);
        ring(&r, FAR_OP_GET);
        assert_int_equal(far_table_check(r.session[0], r.table, print_line, NULL), FAR_OK);
        assert_int_equal(far_table_info(r.session[0], r.table, &info), FAR_OK);
        print_costs(&r, index);
        printf("%s: %" PRIu64 " keys in %" PRIu64 " slots, %" PRIu64 " restructurings\n", index,
               info.keys, info.slots, info.splits);
        close_rig(&r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_index_agrees_with_the_model)};

    if (argc != 2) {
        fprintf(stderr, "usage: %s URI\n", argv[0]);
        return 2;
    }
    uri = argv[1];
    return cmocka_run_group_tests_name(uri, tests, NULL, NULL);
}
