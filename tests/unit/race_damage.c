/* Damage to the words of a RACE table, one by one: it is reported, and never taken for something
 * else. */
#include "check/audit.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 25u /* of 42 places: no split is near */

static void rig_tuned(struct store_rig *r, const char *tuning)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};

    store_rig_open(r, "mem:?size=4m", NULL, NULL, &options);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_insert(r->session, r->table, &i, sizeof i, &i, sizeof i), FAR_OK);
}

static void rig(struct store_rig *r)
{
    rig_tuned(r, "groups=2");
}

/* The key's value, its absence where that is allowed, or that there is damage. Nothing else. */
static int get(struct store_rig *r, far_session *s, uint32_t key)
{
    uint32_t got = 0;
    size_t len = 0;
    int rc = far_get(s, r->table, &key, sizeof key, &got, sizeof got, &len);

    if (rc == FAR_OK)
        assert_true(len == sizeof got && got == key);
    return rc;
}

static void every_bit_of_a_slot(void **state)
{
    struct store_rig r;

    (void)state;
    rig(&r);
    for (uint32_t key = 0; key < KEYS; key += 5) {
        struct race_spot spot;
        race_rig_find(&r, &key, sizeof key, &spot);
        assert_true(spot.found.place >= 0);
        uint64_t off = race_place_offset(&spot.key, (unsigned)spot.found.place);
        uint64_t word = spot.found.slot;
        for (unsigned bit = 0; bit < 64; bit++) {
            store_rig_set(&r, spot.look.subtable, off, word ^ 1ull << bit);
            int rc = get(&r, r.session, key);
            bool generation =
                bit >= POINTER_GENERATION_AT && bit < POINTER_OWN_AT(RACE_SLOT.generation);
            if (bit < GADDR_BITS || generation) /* another block, or none, is there */
                assert_int_equal(rc, FAR_CORRUPT);
            else if (bit >= RACE_SLOT.fingerprint_at &&
                     bit < 63) /* fingerprint, tentative: another key's, nobody's */
                assert_int_equal(rc, FAR_NOT_FOUND);
            else if (bit >= POINTER_OWN_AT(RACE_SLOT.generation) &&
                     bit < RACE_SLOT.fingerprint_at) /* unused */
                assert_int_equal(rc, FAR_OK);
            else /* the class says how much is read; a seal does not change what is true */
                assert_true(rc == FAR_OK || rc == FAR_CORRUPT);
        }
        for (uint64_t size_class = 0; size_class < 64;
             size_class++) { /* also those there are not */
            store_rig_set(&r, spot.look.subtable, off,
                          pointer_with_class(word, (unsigned)size_class));
            int rc = get(&r, r.session, key);
            assert_true(rc == FAR_CORRUPT || (rc == FAR_OK && size_class < CLASS_COUNT));
        }
        store_rig_set(&r, spot.look.subtable, off, word);
        assert_int_equal(get(&r, r.session, key), FAR_OK);
    }
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

static void every_bit_of_a_bucket_header(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    uint32_t key = 7, absent = 7777;

    (void)state;
    rig_tuned(&r, "groups=2&hot=0"); /* a hint leads to one of the buckets alone */
    race_rig_find(&r, &key, sizeof key, &spot);
    for (unsigned bucket = 0; bucket < 4; bucket++) {
        uint64_t off = race_place_offset(&spot.key, bucket * RACE_BUCKET_WORDS);
        uint64_t header = store_rig_get(&r, spot.look.subtable, off);
        for (unsigned bit = 0; bit < 64; bit++) {
            store_rig_set(&r, spot.look.subtable, off, header ^ 1ull << bit);
            assert_int_equal(get(&r, r.session, key), FAR_CORRUPT);
            assert_int_equal(far_put(r.session, r.table, &key, sizeof key, "v", 1), FAR_CORRUPT);
            assert_int_equal(far_delete(r.session, r.table, &key, sizeof key), FAR_CORRUPT);
            assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_CORRUPT);
        }
        store_rig_set(&r, spot.look.subtable, off, header);
    }
    assert_int_equal(get(&r, r.session, key), FAR_OK);
    assert_int_equal(far_exists(r.session, r.table, &absent, sizeof absent), FAR_NOT_FOUND);
    store_rig_close(&r);
}

/* A session that comes to a damaged directory; one that has a cache does not need it. */
static void every_bit_of_a_directory_entry(void **state)
{
    struct store_rig r;

    (void)state;
    rig(&r);
    assert_int_equal(get(&r, r.session, 1), FAR_OK);
    gaddr directory = race_rig_view(&r)->directory;
    uint64_t entry = store_rig_get(&r, directory, 0);
    for (unsigned bit = 0; bit < 64; bit++) {
        far_session *fresh = NULL;
        store_rig_set(&r, directory, 0, entry ^ 1ull << bit);
        assert_int_equal(far_session_open(r.pool, NULL, &fresh), FAR_OK);
        bool unused = bit >= 28 && bit < 48;
        assert_int_equal(get(&r, fresh, 1), unused ? FAR_OK : FAR_CORRUPT);
        if (!unused)
            assert_int_equal(far_insert(fresh, r.table, "new", 3, "v", 1), FAR_CORRUPT);
        far_session_close(fresh);
        assert_int_equal(get(&r, r.session, 1), FAR_OK);
    }
    store_rig_set(&r, directory, 0, 0);
    far_session *fresh = NULL;
    assert_int_equal(far_session_open(r.pool, NULL, &fresh), FAR_OK);
    assert_int_equal(get(&r, fresh, 1), FAR_CORRUPT);
    far_session_close(fresh);
    store_rig_set(&r, directory, 0, entry);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

static void every_bit_of_the_root(void **state)
{
    struct store_rig r;

    (void)state;
    rig(&r);
    gaddr root = r.table->index.desc.root;
    for (unsigned bit = 0; bit < sizeof(struct race_root) * 8; bit++) {
        far_session *fresh = NULL;
        uint64_t off = bit / 64 * 8, word = store_rig_get(&r, root, off);
        store_rig_set(&r, root, off, word ^ 1ull << bit % 64);
        assert_int_equal(far_session_open(r.pool, NULL, &fresh), FAR_OK);
        int rc = get(&r, fresh, 1);
        if (off >= offsetof(struct race_root, groups))
            assert_int_equal(rc, FAR_CORRUPT);
        else /* the depth, and what is reserved beside it */
            assert_true(rc == FAR_OK || rc == FAR_CORRUPT);
        far_session_close(fresh);
        store_rig_set(&r, root, off, word);
    }
    assert_int_equal(get(&r, r.session, 1), FAR_OK);
    store_rig_close(&r);
}

/* A `forward` that no splitter wrote. While nothing is sealed it does not matter; then it leads
 * nowhere, and operations give up instead of going round in circles. */
static void a_forward_to_nowhere(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    uint32_t key = 3;

    (void)state;
    rig(&r);
    race_rig_find(&r, &key, sizeof key, &spot);
    uint64_t off = race_place_offset(&spot.key, (unsigned)spot.found.place);
    static const uint64_t forwards[] = {1, 0x7000000000000001, UINT64_MAX, 5ull << 28 | 6};
    for (unsigned i = 0; i < 4; i++) {
        store_rig_set(&r, spot.look.subtable, 0, forwards[i]);
        assert_int_equal(get(&r, r.session, key), FAR_OK);
        store_rig_set(&r, spot.look.subtable, off, spot.found.slot | RACE_SLOT_SEALED);
        assert_int_equal(get(&r, r.session, key), FAR_CORRUPT);
        assert_int_equal(far_put(r.session, r.table, &key, sizeof key, "v", 1), FAR_CORRUPT);
        store_rig_set(&r, spot.look.subtable, off, spot.found.slot);
        store_rig_set(&r, spot.look.subtable, 0, 0);
        assert_int_equal(get(&r, r.session, key), FAR_OK);
    }
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    store_rig_close(&r);
}

/* No block is there to be read. The entry is left out, as any other that is damaged. */
static void an_iteration_goes_past_a_slot_that_leads_nowhere(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    char buf[4096];
    uint32_t key = 3;
    struct far_result result;

    (void)state;
    rig(&r);
    race_rig_find(&r, &key, sizeof key, &spot);
    uint64_t off = race_place_offset(&spot.key, (unsigned)spot.found.place);
    store_rig_set(&r, spot.look.subtable, off, spot.found.slot | GADDR_MASK);
    struct far_op op = {.kind = FAR_OP_ITERATE, .table = r.table, .buf = buf, .cap = sizeof buf};
    unsigned count = 0, damaged = 0;
    do {
        int rc = far_execute(r.session, &op, &result);
        assert_true(rc == FAR_OK || rc == FAR_PARTIAL);
        count += result.count;
        damaged += result.damaged;
        op.cursor = result.cursor;
    } while (op.cursor != 0);
    assert_int_equal(count, KEYS - 1);
    assert_int_equal(damaged, 1);
    store_rig_close(&r);
}

/* ---- a block that changes while a split looks at it ------------------------------------------ */

struct meddler {
    struct batch_tap tap;
    struct fab_ep *ep;
    struct batch batch;
    struct cost cost;
    uint64_t *word;
    gaddr block;
    unsigned reads;
};

/* Just before the block is read for the second time, its key becomes as long as can be. */
static void lengthen(struct batch_tap *tap, const struct fab_verb *verbs, unsigned count)
{
    struct meddler *m = (struct meddler *)tap;

    for (unsigned i = 0; i < count; i++) {
        if (verbs[i].kind != FAB_READ || verbs[i].node != gaddr_node(m->block) ||
            verbs[i].off != gaddr_offset(m->block) || ++m->reads != 2)
            continue;
        *m->word |= 0xffffull << 32;
        batch_write(&m->batch, MARK_EARLY, m->block, 8, m->word, 8);
        assert_int_equal(batch_flush(&m->batch), FAR_OK);
    }
}

static void a_key_that_grows_while_a_split_reads_it(void **state)
{
    uint8_t key[200] = {1};
    struct store_rig r;
    struct race_spot spot;
    struct meddler m = {.tap = {.posted = lengthen}};

    (void)state;
    rig(&r);
    assert_int_equal(far_put(r.session, r.table, key, sizeof key, "v", 1), FAR_OK);
    race_rig_find(&r, key, sizeof key, &spot);
    m.block = pointer_gaddr(spot.found.slot);
    assert_int_equal(r.fab->ops->ep_open(r.fab, &m.ep), FAR_OK);
    assert_non_null(m.word = m.ep->ops->buf_alloc(m.ep, 8));
    *m.word = store_rig_get(&r, m.block, 8); /* lengths, generation and flags */
    batch_init(&m.batch, m.ep, &m.cost);
    r.session->op.batch.tap = &m.tap;
    for (uint32_t i = KEYS; m.reads < 2; i++) {
        assert_true(i < 200);
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    }
    r.session->op.batch.tap = NULL;
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(get(&r, r.session, i), FAR_OK);
    assert_int_equal(far_exists(r.session, r.table, key, sizeof key), FAR_CORRUPT);
    m.ep->ops->buf_free(m.ep, m.word, 8);
    m.ep->ops->ep_close(m.ep);
    store_rig_close(&r);
}

/* The block has 64 bytes, and its slot says 128. */
static void a_replaced_block_takes_no_neighbours_with_it(void **state)
{
    struct store_rig r;
    struct race_spot spot;
    struct audit audit;
    uint32_t key = 5;
    (void)state;
    rig(&r);
    race_rig_find(&r, &key, sizeof key, &spot);
    assert_true(spot.found.place >= 0 && pointer_class(spot.found.slot) == 0);
    store_rig_set(&r, spot.look.subtable, race_place_offset(&spot.key, (unsigned)spot.found.place),
                  pointer_with_class(spot.found.slot, 1));
    assert_int_equal(far_update(r.session, r.table, &key, sizeof key, &key, sizeof key), FAR_OK);
    assert_int_equal(sim_audit(&audit, r.pool, &r.session, 1), FAR_OK);
    assert_int_equal(audit.wrong, 0);
    assert_int_equal(get(&r, r.session, key), FAR_OK);
    store_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_of_a_slot),
        cmocka_unit_test(every_bit_of_a_bucket_header),
        cmocka_unit_test(every_bit_of_a_directory_entry),
        cmocka_unit_test(every_bit_of_the_root),
        cmocka_unit_test(a_forward_to_nowhere),
        cmocka_unit_test(an_iteration_goes_past_a_slot_that_leads_nowhere),
        cmocka_unit_test(a_key_that_grows_while_a_split_reads_it),
        cmocka_unit_test(a_replaced_block_takes_no_neighbours_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
