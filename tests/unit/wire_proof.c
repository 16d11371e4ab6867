/* Proofs are HMAC-SHA-256 over what docs/wire.md says. The expected ones were computed by another
 * implementation (Python's hmac), so that nodes and clients of all builds agree. */
#include "fabric/wire.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define LINK 0x1122334455667788ull

static struct wire_secret secret_of(const void *key, size_t bytes)
{
    struct wire_secret secret = {.bytes = bytes};

    memcpy(secret.key, key, bytes);
    return secret;
}

/* The proof, with the nonces 00 01 02 ... and 80 81 82 ... */
static void prove(const struct wire_secret *secret, enum wire_role role, uint64_t link,
                  uint8_t proof[WIRE_PROOF])
{
    uint8_t client[WIRE_NONCE], node[WIRE_NONCE];

    for (unsigned i = 0; i < WIRE_NONCE; i++) {
        client[i] = (uint8_t)i;
        node[i] = (uint8_t)(0x80 + i);
    }
    wire_prove(secret, role, client, node, link, proof);
}

static void assert_proof(const struct wire_secret *secret, enum wire_role role, const char *hex)
{
    uint8_t proof[WIRE_PROOF];
    char text[2 * WIRE_PROOF + 1];

    prove(secret, role, LINK, proof);
    for (unsigned i = 0; i < WIRE_PROOF; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", proof[i]);
    assert_string_equal(text, hex);
}

static void proofs_are_what_other_builds_expect(void **state)
{
    struct wire_secret secret = secret_of("swordfish", 9);

    (void)state;
    assert_proof(&secret, WIRE_CLIENT,
                 "d7b669bd5d1701560c69d60ef9d7636abb143e12ead292a207f7c9ef3217e525");
    assert_proof(&secret, WIRE_NODE,
                 "fb0b2f8f7ddf890ae1a51801e5c37c524555c150d70e892c34a5d4e3d8908dfa");
}

/* SHA-256 has blocks of 64 bytes, and HMAC hashes keys that are longer. */
static void a_secret_may_be_longer_than_a_block(void **state)
{
    char key[131];
    struct wire_secret secret;

    (void)state;
    memset(key, 0xaa, sizeof key);
    secret = secret_of(key, sizeof key);
    assert_proof(&secret, WIRE_CLIENT,
                 "016a2fd2419891e45dcec32f4840f0e2c34e2d9c25c8a82ebecb5110195e3e2b");
    assert_proof(&secret, WIRE_NODE,
                 "4d155468adf5904ea1ee3aaf326cad1556014e7b571641b13619ee756e98935e");
}

static void proofs_of_other_links_differ(void **state)
{
    struct wire_secret secret = secret_of("swordfish", 9);
    uint8_t one[WIRE_PROOF], again[WIRE_PROOF], other[WIRE_PROOF];

    (void)state;
    prove(&secret, WIRE_CLIENT, LINK, one);
    prove(&secret, WIRE_CLIENT, LINK, again);
    prove(&secret, WIRE_CLIENT, LINK + 1, other);
    assert_true(wire_proof_equal(one, again));
    assert_false(wire_proof_equal(one, other));
    again[WIRE_PROOF - 1] ^= 1;
    assert_false(wire_proof_equal(one, again));
}

static void without_a_secret_proofs_are_zeros(void **state)
{
    static const struct wire_secret none;
    static const uint8_t zeros[WIRE_PROOF];
    uint8_t proof[WIRE_PROOF];

    (void)state;
    prove(&none, WIRE_NODE, LINK, proof);
    assert_memory_equal(proof, zeros, sizeof zeros);
}

static void a_forgotten_secret_is_overwritten(void **state)
{
    static const struct wire_secret none;
    struct wire_secret secret = secret_of("swordfish", 9);

    (void)state;
    wire_secret_forget(&secret);
    assert_memory_equal(&secret, &none, sizeof none);
}

static void random_bytes_are_not_repeated(void **state)
{
    uint8_t one[WIRE_NONCE], other[WIRE_NONCE];

    (void)state;
    assert_int_equal(wire_random(one, sizeof one), FAR_OK);
    assert_int_equal(wire_random(other, sizeof other), FAR_OK);
    assert_memory_not_equal(one, other, sizeof one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proofs_are_what_other_builds_expect),
        cmocka_unit_test(a_secret_may_be_longer_than_a_block),
        cmocka_unit_test(proofs_of_other_links_differ),
        cmocka_unit_test(without_a_secret_proofs_are_zeros),
        cmocka_unit_test(a_forgotten_secret_is_overwritten),
        cmocka_unit_test(random_bytes_are_not_repeated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
