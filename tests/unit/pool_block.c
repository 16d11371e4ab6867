/* Key-value blocks: a block is found as it was written, and nothing else is taken for it. */
#include "support/pool_rig.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

struct made {
    struct block_ref ref;
    size_t bytes; /* those that the checksum vouches for */
    uint64_t *image;
};

/* Encodes a block and keeps a copy of its image, padded to its class as a reader would get it. */
static struct made make_by(struct pool_rig *r, const void *key, size_t klen, const void *value,
                           size_t vlen, unsigned written_by)
{
    struct made m = {.bytes = block_bytes(klen, vlen)};

    assert_int_equal(block_prepare(&r->op, 0, key, klen, value, vlen, written_by, &m.ref), FAR_OK);
    uint32_t whole = size_class_bytes(m.ref.size_class);
    assert_true(m.ref.bytes >= m.bytes && m.ref.bytes <= whole && m.ref.bytes % 64 == 0);
    assert_non_null(m.image = calloc(1, whole));
    memcpy(m.image, m.ref.image, m.ref.bytes);
    return m;
}

static struct made make(struct pool_rig *r, const void *key, size_t klen, const void *value,
                        size_t vlen)
{
    return make_by(r, key, klen, value, vlen, 0);
}

static enum block_verdict judge(const struct made *m, const void *key, size_t klen)
{
    return block_judge(m->image, size_class_bytes(m->ref.size_class), m->ref.generation, key, klen);
}

static void what_was_encoded_is_found(void **state)
{
    static const size_t klens[] = {1, 2, 7, 8, 9, 15, 16, 17, 47, 48, 49, 255, 1000, 4095, 4096};
    static const size_t vlens[] = {0,  1,  7,  8,   31,   32,    33,
                                   63, 64, 65, 500, 4096, 65536, FAR_VALUE_MAX};
    static uint8_t key[FAR_KEY_MAX], value[FAR_VALUE_MAX];
    struct pool_rig r;
    struct rng rng;

    (void)state;
    pool_rig_open(&r, "mem:?size=256m");
    rng_seed(&rng, 3);
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)rng_next(&rng);
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (uint8_t)rng_next(&rng);
    for (size_t k = 0; k < sizeof klens / sizeof *klens; k++) {
        for (size_t v = 0; v < sizeof vlens / sizeof *vlens; v++) {
            struct made m = make(&r, key, klens[k], value, vlens[v]);
            const struct block_head *h = (const struct block_head *)m.image;
            assert_int_equal(judge(&m, key, klens[k]), BLOCK_MATCH);
            assert_int_equal(h->klen, klens[k]);
            assert_int_equal(h->vlen, vlens[v]);
            assert_int_equal(h->flags, block_class_long(m.ref.size_class) ? BLOCK_LONG : 0);
            assert_memory_equal(block_key(m.image), key, klens[k]);
            assert_memory_equal(block_value(m.image), value, vlens[v]);
            assert_int_equal(m.ref.size_class, size_class_for(block_bytes(klens[k], vlens[v])));
            free(m.image);
        }
    }
    pool_rig_close(&r);
}

/* The checksum covers the flags, and is right here: each block was encoded with them. */
static void only_known_flags_are_accepted(void **state)
{
    static uint8_t value[2 * BLOCK_SHORT_MAX];
    static const size_t vlens[] = {5, sizeof value};
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=64m");
    for (unsigned v = 0; v < 2; v++) {
        unsigned length = v == 0 ? 0 : BLOCK_LONG;
        for (unsigned flags = 0; flags < 256; flags++) {
            struct made m = make_by(&r, "key", 3, value, vlens[v], flags);
            uint32_t bytes = size_class_bytes(m.ref.size_class);
            unsigned others = (flags | length) & ~(BLOCK_UPDATE | BLOCK_PUT);
            bool known = others == length;
            assert_int_equal(((struct block_head *)m.image)->flags, flags | length);
            assert_int_equal(judge(&m, "key", 3), known ? BLOCK_MATCH : BLOCK_STALE);
            assert_int_equal(block_judge_head(m.image, bytes, m.ref.generation, "key", 3),
                             known && length ? BLOCK_MATCH : BLOCK_STALE);
            free(m.image);
        }
    }
    pool_rig_close(&r);
}

static void keys_are_compared_whole(void **state)
{
    static const struct {
        const char *stored, *asked;
        size_t stored_len, asked_len;
        enum block_verdict verdict;
    } cases[] = {
        {"abc", "abc", 3, 3, BLOCK_MATCH},       {"abc", "ab", 3, 2, BLOCK_OTHER},
        {"abc", "abcd", 3, 4, BLOCK_OTHER},      {"abc", "abd", 3, 3, BLOCK_OTHER},
        {"abc\0", "abc", 4, 3, BLOCK_OTHER},     {"abc", "abc\0", 3, 4, BLOCK_OTHER},
        {"\0\0\0", "\0\0\0", 3, 3, BLOCK_MATCH}, {"\0\0\0", "\0\0", 3, 2, BLOCK_OTHER},
        {"\0", "\0", 1, 1, BLOCK_MATCH},         {"\0", "\0\0", 1, 2, BLOCK_OTHER},
        {"a\0b", "a\0c", 3, 3, BLOCK_OTHER},     {"a\0b", "a\0b", 3, 3, BLOCK_MATCH},
    };
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* The value begins with the bytes that would make the longer key match. */
        struct made m = make(&r, cases[i].stored, cases[i].stored_len, "d\0\0\0", 4);
        assert_int_equal(judge(&m, cases[i].asked, cases[i].asked_len), cases[i].verdict);
        free(m.image);
    }
    pool_rig_close(&r);
}

static void an_all_zero_key_without_a_value_is_found(void **state)
{
    static const uint8_t zero[FAR_KEY_MAX];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    for (size_t klen = 1; klen <= FAR_KEY_MAX; klen += 63) {
        struct made m = make(&r, zero, klen, NULL, 0);
        assert_int_equal(judge(&m, zero, klen), BLOCK_MATCH);
        if (klen > 1)
            assert_int_equal(judge(&m, zero, klen - 1), BLOCK_OTHER);
        free(m.image);
    }
    pool_rig_close(&r);
}

static void empty_memory_is_no_block(void **state)
{
    static const uint64_t zero[512];

    (void)state;
    for (unsigned generation = 0; generation < BLOCK_GENERATIONS; generation++) {
        assert_false(block_valid(zero, sizeof zero, (uint8_t)generation));
        assert_int_equal(block_judge(zero, sizeof zero, (uint8_t)generation, "\0", 1), BLOCK_STALE);
    }
}

static void another_generation_is_stale(void **state)
{
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    struct made m = make(&r, "key", 3, "value", 5);
    for (unsigned i = 0; i < 256; i++) {
        bool same = i == m.ref.generation;
        assert_int_equal(block_judge(m.image, 64, (uint8_t)i, "key", 3),
                         same ? BLOCK_MATCH : BLOCK_STALE);
        assert_int_equal(block_valid(m.image, 64, (uint8_t)i), same);
    }
    free(m.image);
    pool_rig_close(&r);
}

/* A block again, at the same address, in the epoch of the operation. */
static void remake(struct pool_rig *r, struct made *m, const void *value, size_t vlen)
{
    gaddr at = m->ref.at;
    pool_free_unpublished(r->op.client, at, m->ref.size_class);
    free(m->image);
    *m = make(r, "key", 3, value, vlen);
    assert_true(m->ref.at == at);
}

static void generations_follow_the_epochs_and_wrap(void **state)
{
    struct pool_rig r;
    unsigned alike = 0;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    struct made m = make(&r, "key", 3, "value", 5);
    for (unsigned i = 0; i < 3 * BLOCK_GENERATIONS; i++) {
        unsigned last = m.ref.generation;
        r.op.epoch++;
        remake(&r, &m, "value", 5);
        assert_int_equal(m.ref.generation, (last + 1) % BLOCK_GENERATIONS);
    }
    for (unsigned i = 0; i < BLOCK_GENERATIONS; i++) { /* in one epoch, by address */
        struct made other = make(&r, "key", 3, "value", 5);
        alike += other.ref.generation == m.ref.generation;
        free(other.image);
    }
    assert_true(alike < 4);
    free(m.image);
    pool_rig_close(&r);
}

/* A length that reaches past what was read must not be followed, whatever it says. */
static void lengths_past_the_image_are_stale(void **state)
{
    struct pool_rig r;
    static uint8_t value[200];

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    struct made m = make(&r, "key", 3, value, sizeof value);
    struct block_head *h = (struct block_head *)m.image;
    for (size_t bytes = sizeof *h; bytes < m.bytes; bytes++)
        assert_int_equal(block_judge(m.image, bytes, m.ref.generation, "key", 3), BLOCK_STALE);
    assert_int_equal(block_judge(m.image, m.bytes, m.ref.generation, "key", 3), BLOCK_MATCH);
    h->vlen = UINT32_MAX;
    assert_int_equal(judge(&m, "key", 3), BLOCK_STALE);
    h->vlen = UINT32_MAX - 2; /* with the key's length and the head, past 32 bits */
    h->klen = UINT16_MAX;
    assert_int_equal(judge(&m, "key", 3), BLOCK_STALE);
    free(m.image);
    pool_rig_close(&r);
}

static void every_single_flipped_bit_is_noticed(void **state)
{
    static const size_t lens[][2] = {{1, 0}, {16, 32}, {5, 100}, {300, 700}, {300, 4000}};
    static uint8_t key[300], value[4000];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    memset(key, 'k', sizeof key);
    memset(value, 0, sizeof value);
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        struct made m = make(&r, key, lens[i][0], value, lens[i][1]);
        uint8_t *bytes = (uint8_t *)m.image;
        for (size_t bit = 0; bit < m.bytes * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (judge(&m, key, lens[i][0]) != BLOCK_STALE)
                fail_msg("bit %zu of a block of %zu bytes", bit, m.bytes);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(judge(&m, key, lens[i][0]), BLOCK_MATCH);
        free(m.image);
    }
    pool_rig_close(&r);
}

/* ---- long blocks ----------------------------------------------------------------------------- */

static enum block_verdict judge_head(const struct made *m, const void *key, size_t klen)
{
    return block_judge_head(m->image, size_class_bytes(m->ref.size_class), m->ref.generation, key,
                            klen);
}

/* The head gives the key away, and damage to anything before the key's end. The value is not
 * looked at. */
static void the_head_of_a_long_block_tells_its_key(void **state)
{
    static uint8_t value[70000];
    uint8_t key[100];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    memset(key, 'k', sizeof key);
    for (size_t klen = 1; klen < sizeof key; klen += 7) {
        struct made m = make(&r, key, klen, value, sizeof value);
        uint8_t *bytes = (uint8_t *)m.image;
        size_t head = block_key_at(true) + klen;
        memset(bytes + head, 0xff, m.bytes - head); /* that part was not read */
        assert_int_equal(judge(&m, key, klen), BLOCK_STALE);
        assert_int_equal(judge_head(&m, key, klen), BLOCK_MATCH);
        assert_int_equal(judge_head(&m, key, klen + 1), BLOCK_OTHER);
        assert_int_equal(judge_head(&m, "x", 1), BLOCK_OTHER);
        for (size_t bit = 0; bit < head * 8; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (judge_head(&m, key, klen) != BLOCK_STALE)
                fail_msg("bit %zu of a head of %zu bytes", bit, head);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        m.ref.generation ^= 1;
        assert_int_equal(judge_head(&m, key, klen), BLOCK_STALE);
        free(m.image);
    }
    pool_rig_close(&r);
}

/* A short one has no head that could be judged by itself; nor has one that is longer than its
 * class. */
static void the_head_of_another_block_tells_nothing(void **state)
{
    static uint8_t value[70000];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    struct made brief = make(&r, "key", 3, value, 4096 - 16 - 3),
                longer = make(&r, "key", 3, value, 4096 - 16 - 2);
    assert_int_equal(brief.ref.size_class, size_class_for(4096));
    assert_int_equal(judge_head(&brief, "key", 3), BLOCK_STALE);
    assert_int_equal(judge_head(&longer, "key", 3), BLOCK_MATCH);
    assert_int_equal(
        block_judge_head(longer.image, longer.bytes - 1, longer.ref.generation, "key", 3),
        BLOCK_STALE);
    free(brief.image);
    free(longer.image);
    pool_rig_close(&r);
}

static void the_padding_is_not_judged(void **state)
{
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    struct made m = make(&r, "key", 3, "value", 5);
    for (size_t i = m.bytes; i < m.ref.bytes; i++)
        assert_int_equal(((uint8_t *)m.image)[i], 0);
    memset((uint8_t *)m.image + m.bytes, 0xff, m.ref.bytes - m.bytes);
    assert_int_equal(judge(&m, "key", 3), BLOCK_MATCH);
    free(m.image);
    pool_rig_close(&r);
}

/* A READ that another block's WRITE overtook: any one word, or any run of words at either end, is
 * of the other block. Words are all that tears (FABRIC-F1). */
static void a_torn_image_is_stale(void **state)
{
    uint8_t value[2][450];
    struct pool_rig r;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    memset(value[0], 'x', sizeof value[0]);
    memset(value[1], 'y', sizeof value[1]);
    for (unsigned round = 0; round < BLOCK_GENERATIONS; round++) {
        struct made m[2];
        m[0] = make(&r, "key", 3, value[0], sizeof value[0]);
        m[1] = make(&r, "key", 3, value[1], sizeof value[1]);
        /* The second has the first's generation in half of the rounds. */
        r.op.epoch +=
            (uint8_t)(m[0].ref.generation - m[1].ref.generation + (round % 2 ? 0 : round));
        remake(&r, &m[1], value[1], sizeof value[1]);
        size_t words = (m[0].bytes + 7) / 8;
        for (size_t i = 0; i < words; i++) {
            uint64_t kept = m[0].image[i];
            m[0].image[i] = m[1].image[i];
            assert_int_equal(judge(&m[0], "key", 3),
                             m[0].image[i] == kept ? BLOCK_MATCH : BLOCK_STALE);
            m[0].image[i] = kept;
        }
        for (size_t i = 1; i < words; i++) { /* the first i words are the later block's */
            struct made torn = m[0];
            assert_non_null(torn.image = malloc(size_class_bytes(m[0].ref.size_class)));
            memcpy(torn.image, m[0].image, size_class_bytes(m[0].ref.size_class));
            memcpy(torn.image, m[1].image, i * 8);
            assert_int_equal(judge(&torn, "key", 3), BLOCK_STALE);
            torn.ref.generation = m[1].ref.generation;
            assert_int_equal(judge(&torn, "key", 3), BLOCK_STALE);
            free(torn.image);
        }
        free(m[0].image);
        free(m[1].image);
    }
    pool_rig_close(&r);
}

static void a_full_pool_is_an_error_of_prepare(void **state)
{
    static uint8_t value[FAR_VALUE_MAX];
    struct pool_rig r;
    struct block_ref block = {.at = 42};
    int rc = FAR_OK;

    (void)state;
    pool_rig_open(&r, "mem:?size=8m");
    for (unsigned i = 0; i < 100 && rc == FAR_OK; i++) {
        block.at = 42;
        rc = block_prepare(&r.op, 0, "key", 3, value, sizeof value, 0, &block);
    }
    assert_int_equal(rc, FAR_POOL_FULL);
    assert_true(block.at == 42);
    pool_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_encoded_is_found),
        cmocka_unit_test(only_known_flags_are_accepted),
        cmocka_unit_test(keys_are_compared_whole),
        cmocka_unit_test(an_all_zero_key_without_a_value_is_found),
        cmocka_unit_test(empty_memory_is_no_block),
        cmocka_unit_test(another_generation_is_stale),
        cmocka_unit_test(generations_follow_the_epochs_and_wrap),
        cmocka_unit_test(lengths_past_the_image_are_stale),
        cmocka_unit_test(every_single_flipped_bit_is_noticed),
        cmocka_unit_test(the_head_of_a_long_block_tells_its_key),
        cmocka_unit_test(the_head_of_another_block_tells_nothing),
        cmocka_unit_test(the_padding_is_not_judged),
        cmocka_unit_test(a_torn_image_is_stale),
        cmocka_unit_test(a_full_pool_is_an_error_of_prepare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
