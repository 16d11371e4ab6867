/* SHA-256 and HMAC-SHA-256 give what FIPS 180-4 and RFC 4231 say. */
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void assert_sum(const uint8_t sum[SHA256_BYTES], const char *hex)
{
    char text[2 * SHA256_BYTES + 1];

    for (unsigned i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", sum[i]);
    assert_string_equal(text, hex);
}

static void sums_of_known_messages(void **state)
{
    static const struct {
        const char *message, *sum;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
         "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    struct sha256 s;
    uint8_t sum[SHA256_BYTES];

    (void)state;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        sha256_start(&s);
        sha256_add(&s, known[i].message, strlen(known[i].message));
        sha256_end(&s, sum);
        assert_sum(sum, known[i].sum);
    }
}

/* A million times the letter a, in pieces of every length. */
static void pieces_do_not_matter(void **state)
{
    static char letters[1000];
    struct sha256 s;
    uint8_t sum[SHA256_BYTES];
    size_t left = 1000000, piece = 1;

    (void)state;
    memset(letters, 'a', sizeof letters);
    sha256_start(&s);
    while (left > 0) {
        size_t some = piece < left ? piece : left;

        sha256_add(&s, letters, some);
        left -= some;
        piece = piece % 997 + 1;
    }
    sha256_end(&s, sum);
    assert_sum(sum, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

struct rfc4231 {
    const char *key, *data;
    size_t key_bytes;
    const char *sum;
};

static void hmac_of_rfc_4231(void **state)
{
    static char aa[131], b0b[20], dd[51], cd[51], counted[26];
    static const char *const long_data =
        "This is a test using a larger than block-size key and a larger than block-size data. The "
        "key needs to be hashed before being used by the HMAC algorithm.";
    const struct rfc4231 known[] = {
        {b0b, "Hi There", 20, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", "what do ya want for nothing?", 4,
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {aa, dd, 20, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {counted, cd, 25, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {aa, "Test Using Larger Than Block-Size Key - Hash Key First", 131,
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {aa, long_data, 131, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };

    (void)state;
    memset(aa, 0xaa, sizeof aa);
    memset(b0b, 0x0b, sizeof b0b);
    memset(dd, 0xdd, sizeof dd - 1);
    memset(cd, 0xcd, sizeof cd - 1);
    for (unsigned i = 0; i < 25; i++)
        counted[i] = (char)(i + 1);
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        struct hmac256 m;
        uint8_t sum[SHA256_BYTES];

        hmac256_start(&m, known[i].key, known[i].key_bytes);
        hmac256_add(&m, known[i].data, strlen(known[i].data));
        hmac256_end(&m, sum);
        assert_sum(sum, known[i].sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_known_messages),
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(hmac_of_rfc_4231),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
