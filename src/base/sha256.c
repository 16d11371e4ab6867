#include "base/sha256.h"

#include <string.h>

/* The fractions of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store(uint8_t *p, uint32_t x)
{
    p[0] = (uint8_t)(x >> 24);
    p[1] = (uint8_t)(x >> 16);
    p[2] = (uint8_t)(x >> 8);
    p[3] = (uint8_t)x;
}

static void mix(uint32_t h[8], const uint8_t block[SHA256_BLOCK])
{
    uint32_t w[64], s[8];

    for (unsigned i = 0; i < 16; i++)
        w[i] = load(block + 4 * i);
    for (unsigned i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, h, sizeof s);
    for (unsigned i = 0; i < 64; i++) {
        uint32_t e = s[4], a = s[0];
        uint32_t t1 = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                      ((e & s[5]) ^ (~e & s[6])) + K[i] + w[i];
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                      ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (unsigned i = 0; i < 8; i++)
        h[i] += s[i];
}

void sha256_start(struct sha256 *s)
{
    *s = (struct sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(struct sha256 *s, const void *data, size_t bytes)
{
    const uint8_t *from = data;

    while (bytes > 0) {
        size_t had = s->bytes % SHA256_BLOCK, some = SHA256_BLOCK - had;

        if (some > bytes)
            some = bytes;
        memcpy(s->block + had, from, some);
        s->bytes += some;
        from += some;
        bytes -= some;
        if (s->bytes % SHA256_BLOCK == 0)
            mix(s->h, s->block);
    }
}

void sha256_end(struct sha256 *s, uint8_t sum[SHA256_BYTES])
{
    static const uint8_t padding[SHA256_BLOCK] = {0x80};
    uint64_t bits = s->bytes * 8;
    uint8_t length[8];

    sha256_add(s, padding, 1 + (SHA256_BLOCK + 55 - s->bytes % SHA256_BLOCK) % SHA256_BLOCK);
    store(length, (uint32_t)(bits >> 32));
    store(length + 4, (uint32_t)bits);
    sha256_add(s, length, sizeof length);
    for (unsigned i = 0; i < 8; i++)
        store(sum + 4 * i, s->h[i]);
}

void hmac256_start(struct hmac256 *m, const void *key, size_t key_bytes)
{
    uint8_t pad[SHA256_BLOCK] = {0};

    if (key_bytes > SHA256_BLOCK) {
        sha256_start(&m->inner);
        sha256_add(&m->inner, key, key_bytes);
        sha256_end(&m->inner, pad);
    } else {
        memcpy(pad, key, key_bytes);
    }
    for (unsigned i = 0; i < SHA256_BLOCK; i++)
        pad[i] ^= 0x36;
    sha256_start(&m->inner);
    sha256_add(&m->inner, pad, sizeof pad);
    for (unsigned i = 0; i < SHA256_BLOCK; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    sha256_start(&m->outer);
    sha256_add(&m->outer, pad, sizeof pad);
}

void hmac256_add(struct hmac256 *m, const void *data, size_t bytes)
{
    sha256_add(&m->inner, data, bytes);
}

void hmac256_end(struct hmac256 *m, uint8_t sum[SHA256_BYTES])
{
    uint8_t inner[SHA256_BYTES];

    sha256_end(&m->inner, inner);
    sha256_add(&m->outer, inner, sizeof inner);
    sha256_end(&m->outer, sum);
}
