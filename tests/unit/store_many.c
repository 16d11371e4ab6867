/* far_execute_many(): operations in order, and prefetching what they will read. */
#include "index/ahead.h"
#include "index/blocks.h"
#include "support/indexes.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define MANY 24u

static struct far_op op_on(struct store_rig *r, enum far_op_kind kind, const char *key)
{
    return (struct far_op){.kind = kind, .table = r->table, .key = key, .key_len = strlen(key)};
}

static void the_order_is_that_of_the_array(void **state)
{
    char buf[4][8];
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    struct far_op ops[] = {
        op_on(&r, FAR_OP_GET, "a"),    op_on(&r, FAR_OP_PUT, "a"),    op_on(&r, FAR_OP_GET, "a"),
        op_on(&r, FAR_OP_UPDATE, "a"), op_on(&r, FAR_OP_GET, "a"),    op_on(&r, FAR_OP_INSERT, "a"),
        op_on(&r, FAR_OP_DELETE, "a"), op_on(&r, FAR_OP_EXISTS, "a"), op_on(&r, FAR_OP_INSERT, "a"),
        op_on(&r, FAR_OP_GET, "a"),
    };
    const int want[] = {FAR_NOT_FOUND, FAR_OK, FAR_OK,        FAR_OK, FAR_OK,
                        FAR_EXISTS,    FAR_OK, FAR_NOT_FOUND, FAR_OK, FAR_OK};
    enum { COUNT = sizeof ops / sizeof *ops };
    struct far_result results[COUNT];
    unsigned gets = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        ops[i].user_data = 100 + i;
        ops[i].value = &"123456789"[i];
        ops[i].value_len = i < 9 ? 1 : 0;
        if (ops[i].kind == FAR_OP_GET) {
            ops[i].buf = buf[gets++];
            ops[i].cap = 8;
        }
    }
    assert_int_equal(far_execute_many(r.session, ops, results, COUNT), FAR_OK);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(results[i].status, want[i]);
        assert_int_equal(results[i].user_data, 100 + i);
    }
    assert_int_equal(buf[1][0], '2');
    assert_int_equal(buf[2][0], '4');
    assert_int_equal(buf[3][0], '9');
    store_rig_close(&r);
}

/* ---- the same as one by one ------------------------------------------------------------------ */

struct batch_of {
    char key[MANY][24], value[MANY][40], buf[MANY][40];
    struct far_op op[MANY];
    struct far_result result[MANY];
};

static void draw(struct batch_of *b, struct rng *rng, far_table *table)
{
    static const enum far_op_kind kinds[] = {FAR_OP_GET,    FAR_OP_GET,    FAR_OP_EXISTS,
                                             FAR_OP_PUT,    FAR_OP_UPDATE, FAR_OP_INSERT,
                                             FAR_OP_DELETE, FAR_OP_PUT};
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(b->key[i], sizeof b->key[i], "key%u", (unsigned)rng_below(rng, 300));
        snprintf(b->value[i], sizeof b->value[i], "value%llu", (unsigned long long)rng_next(rng));
        memset(b->buf[i], 0, sizeof b->buf[i]);
        b->op[i] = (struct far_op){.kind = kinds[rng_below(rng, 8)],
                                   .table = table,
                                   .key = b->key[i],
                                   .key_len = strlen(b->key[i]),
                                   .value = b->value[i],
                                   .value_len = strlen(b->value[i]),
                                   .buf = b->buf[i],
                                   .cap = rng_below(rng, 16) ? sizeof b->buf[i] : 3,
                                   .user_data = i};
    }
}

/* Two tables get the same operations. */
static void same_as_one_by_one(const char *uri)
{
    struct far_table_options small = {.tuning = indexes_smallest()};
    static struct batch_of many, one;
    struct store_rig r;
    far_table *other;
    store_rig_open(&r, uri, NULL, NULL, &small);
    assert_int_equal(far_table_create(r.session, "u", index_tested, &small, &other), FAR_OK);
    struct rng rng;
    for (unsigned round = 0; round < 150 / SLOWER; round++) {
        unsigned count = round % (MANY + 1);
        rng_seed(&rng, round);
        draw(&many, &rng, r.table);
        rng_seed(&rng, round);
        draw(&one, &rng, other);
        assert_int_equal(far_execute_many(r.session, many.op, many.result, count), FAR_OK);
        for (unsigned i = 0; i < count; i++) {
            (void)far_execute(r.session, &one.op[i], &one.result[i]);
            assert_int_equal(many.result[i].status, one.result[i].status);
            assert_int_equal(many.result[i].user_data, i);
            assert_int_equal(many.result[i].len, one.result[i].len);
            assert_memory_equal(many.buf[i], one.buf[i], sizeof one.buf[i]);
        }
    }
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

static void results_are_those_of_single_calls(void **state)
{
    (void)state;
    same_as_one_by_one("mem:?size=64m&nodes=2");
}

static void they_are_where_nothing_is_mapped(void **state)
{
    (void)state;
    same_as_one_by_one("mem:?size=64m&nodes=2&defer=1");
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void one_that_is_refused_does_not_hold_up_the_others(void **state)
{
    struct far_result results[6];
    char small[1];
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    struct far_op ops[6] = {op_on(&r, FAR_OP_PUT, "a"),    op_on(&r, FAR_OP_GET, "a"),
                            op_on(&r, FAR_OP_EXISTS, "b"), op_on(&r, FAR_OP_EXISTS, "a"),
                            op_on(&r, FAR_OP_GET, "a"),    op_on(&r, FAR_OP_EXISTS, "a")};
    ops[0].value = "value";
    ops[0].value_len = 5;
    ops[1].buf = small;
    ops[1].cap = 1;
    assert_int_equal(far_execute_many(r.session, ops, results, 3), FAR_OK);
    assert_int_equal(results[1].status, FAR_TOO_SMALL);
    assert_int_equal(results[1].len, 5);
    ops[2].key_len = 0;
    ops[3].kind = (enum far_op_kind)77;
    ops[4].table = NULL;
    ops[3].user_data = 3;
    assert_int_equal(far_execute_many(r.session, ops, results, 6), FAR_KEY_SIZE);
    assert_non_null(strstr(far_error_detail(), "a key has 1 to"));
    assert_int_equal(results[2].status, FAR_KEY_SIZE);
    assert_int_equal(results[3].status, FAR_INVALID);
    assert_int_equal(results[3].user_data, 3);
    assert_int_equal(results[4].status, FAR_INVALID);
    assert_int_equal(results[5].status, FAR_OK);
    ops[2] = ops[5];
    assert_int_equal(far_execute_many(r.session, ops, results, 6), FAR_INVALID);
    assert_non_null(strstr(far_error_detail(), "there is no operation of kind 77"));
    assert_int_equal(far_execute_many(r.session, ops, results, 1), FAR_OK);
    assert_string_equal(far_error_detail(), "");
    store_rig_close(&r);
}

static void arguments_are_judged(void **state)
{
    struct far_result result = {.status = 5};
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    struct far_op op = op_on(&r, FAR_OP_EXISTS, "a");
    assert_int_equal(far_execute_many(NULL, &op, &result, 1), FAR_INVALID);
    assert_string_equal(far_error_detail(), "session must not be NULL");
    assert_int_equal(far_execute_many(r.session, NULL, &result, 1), FAR_INVALID);
    assert_string_equal(far_error_detail(), "ops must not be NULL");
    assert_int_equal(far_execute_many(r.session, &op, NULL, 1), FAR_INVALID);
    assert_string_equal(far_error_detail(), "results must not be NULL");
    assert_int_equal(far_execute_many(r.session, NULL, NULL, 0), FAR_OK);
    assert_int_equal(result.status, 5);
    store_rig_close(&r);
}

/* ---- looking ahead --------------------------------------------------------------------------- */

static void only_what_is_in_the_pool_is_mapped(void **state)
{
    struct store_rig r;
    (void)state;
    store_rig_open(&r, "mem:?size=8m&nodes=2", NULL, NULL, NULL);
    const struct batch *b = &r.session->op.batch;
    uint64_t size = r.fab->size[1];
    gaddr begin = gaddr_make(1, 0);
    assert_non_null(batch_mapped(b, begin, 0, 64));
    assert_non_null(batch_mapped(b, begin, size - 64, 64));
    assert_null(batch_mapped(b, begin, size - 64, 72));
    assert_null(batch_mapped(b, begin, size + 64, 8));
    assert_null(batch_mapped(b, gaddr_make(2, 0), 0, 8));
    store_rig_close(&r);
    store_rig_open(&r, "mem:?size=8m&defer=1", NULL, NULL, NULL);
    assert_false(batch_is_mapped(&r.session->op.batch));
    assert_null(batch_mapped(&r.session->op.batch, begin, 0, 64));
    store_rig_close(&r);
}

/* How many of the words name a block of that key? */
static unsigned blocks_of(const struct op *op, const struct index_ahead *ahead, struct slice key)
{
    unsigned count = 0;
    for (unsigned r = 0; r < ahead->ranges; r++)
        for (unsigned i = 0; i < ahead->range[r].count; i++) {
            uint64_t word = ahead->range[r].words[i];
            if ((word & ahead->mask) != ahead->want || pointer_gaddr(word) == 0)
                continue;
            const void *block = batch_mapped(&op->batch, pointer_gaddr(word), 0, 128);
            assert_non_null(block);
            const struct block_head *head = block;
            count += head->klen == key.len &&
                     memcmp((const char *)block + block_key_at(head->flags & BLOCK_LONG), key.data,
                            key.len) == 0;
        }
    return count;
}

/* What is looked at ahead leads to the block, of each key that is in no overflow. */
static void the_words_ahead_name_the_block(void **state)
{
    enum { KEYS = 100 };
    struct far_table_options table = {.tuning = "hot=0", .hash_seed = 17};
    struct store_rig r;
    unsigned found = 0;
    (void)state;
    if (strcmp(index_tested, "race") != 0 && strcmp(index_tested, "shard") != 0)
        return; /* the others look at no words */
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, &table);
    struct op *op = &r.session->op;
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(far_put(r.session, r.table, &i, sizeof i, "value", 5), FAR_OK);
    const struct index_view *view = store_known(r.session, r.table)->view;
    for (unsigned i = 0; i < KEYS; i++) {
        struct index_ahead ahead = {.ranges = 0};
        struct slice key = {&i, sizeof i};
        r.table->index.ops->ahead(op, view, key, &ahead);
        assert_true(ahead.ranges > 0);
        index_ahead_blocks(op, &ahead);
        unsigned count = blocks_of(op, &ahead, key);
        assert_true(count <= 1);
        found += count;
    }
    assert_true(found >= KEYS * 9 / 10);
    store_rig_close(&r);
}

/* A hint says which block it is, so no words are looked at; and the use does not count. */
static void a_hint_spares_the_words(void **state)
{
    struct index_ahead ahead = {.ranges = 0};
    struct slice key = {"key", 3};
    struct store_rig r;
    size_t len;
    (void)state;
    if (strcmp(index_tested, "race") != 0 && strcmp(index_tested, "shard") != 0)
        return; /* as above */
    store_rig_open(&r, "mem:?size=64m", NULL, NULL, NULL);
    assert_int_equal(far_put(r.session, r.table, "key", 3, "value", 5), FAR_OK);
    assert_int_equal(far_get(r.session, r.table, "key", 3, NULL, 0, &len), FAR_TOO_SMALL);
    r.table->index.ops->ahead(&r.session->op, store_known(r.session, r.table)->view, key, &ahead);
    assert_int_equal(ahead.ranges, 0);
    store_rig_close(&r);
}

int main(int argc, char **argv)
{
    indexes_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_that_of_the_array),
        cmocka_unit_test(results_are_those_of_single_calls),
        cmocka_unit_test(they_are_where_nothing_is_mapped),
        cmocka_unit_test(one_that_is_refused_does_not_hold_up_the_others),
        cmocka_unit_test(arguments_are_judged),
        cmocka_unit_test(the_words_ahead_name_the_block),
        cmocka_unit_test(a_hint_spares_the_words),
    };
    const struct CMUnitTest of_no_index[] = {
        cmocka_unit_test(only_what_is_in_the_pool_is_mapped),
    };
    int failed = INDEXES_RUN(tests);
    return failed + cmocka_run_group_tests(of_no_index, NULL, NULL);
}
