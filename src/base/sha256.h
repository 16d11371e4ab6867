/* SHA-256 (FIPS 180-4) and HMAC (RFC 2104) with it: for proving that one knows a secret. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_BLOCK 64

struct sha256 {
    uint32_t h[8];
    uint64_t bytes; /* so far */
    uint8_t block[SHA256_BLOCK];
};

void sha256_start(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t bytes);
void sha256_end(struct sha256 *s, uint8_t sum[SHA256_BYTES]);

struct hmac256 {
    struct sha256 inner, outer;
};

void hmac256_start(struct hmac256 *m, const void *key, size_t key_bytes);
void hmac256_add(struct hmac256 *m, const void *data, size_t bytes);
void hmac256_end(struct hmac256 *m, uint8_t sum[SHA256_BYTES]);

#endif
