#include "bench/keys.h"
#include "base/err.h"

#include <string.h>

#define NUMBER_BYTES  sizeof(uint64_t)
#define VERSION_BYTES sizeof(uint64_t)

uint64_t bench_mix(uint64_t n)
{
    /* The finalizer of splitmix64. Each step can be undone, so different inputs stay different. */
    n ^= n >> 30;
    n *= 0xbf58476d1ce4e5b9u;
    n ^= n >> 27;
    n *= 0x94d049bb133111ebu;
    return n ^ (n >> 31);
}

void bench_key_write(uint64_t number, void *key, size_t size)
{
    ASSERT(size >= BENCH_KEY_MIN);
    unsigned char *at = key;
    /* Without the constant, key 0 would be all zeros: 0 is the fixed point of the mix. */
    uint64_t word = bench_mix(number + 0x9e3779b97f4a7c15u);

    while (size >= sizeof word) {
        memcpy(at, &word, sizeof word);
        at += sizeof word;
        size -= sizeof word;
        word = word * 0xd1342543de82ef95u + 1;
    }
    memcpy(at, &word, size);
}

void bench_value_init(void *value, size_t size)
{
    memset(value, 'v', size);
}

void bench_value_write(uint64_t number, uint64_t version, void *value, size_t size)
{
    if (size >= NUMBER_BYTES + VERSION_BYTES)
        memcpy((char *)value + NUMBER_BYTES, &version, VERSION_BYTES);
    memcpy(value, &number, size < NUMBER_BYTES ? size : NUMBER_BYTES);
}

bool bench_value_belongs(uint64_t number, const void *value, size_t size)
{
    return memcmp(value, &number, size < NUMBER_BYTES ? size : NUMBER_BYTES) == 0;
}

void bench_value_increment(void *value, size_t size)
{
    uint64_t version;
    if (size < NUMBER_BYTES + VERSION_BYTES)
        return;
    memcpy(&version, (char *)value + NUMBER_BYTES, VERSION_BYTES);
    version++;
    memcpy((char *)value + NUMBER_BYTES, &version, VERSION_BYTES);
}

bool bench_value_fits_key(const void *value, size_t value_size, const void *key, size_t key_size,
                          void *expected)
{
    uint64_t number;
    if (value_size < NUMBER_BYTES)
        return true;
    memcpy(&number, value, NUMBER_BYTES);
    bench_key_write(number, expected, key_size);
    return memcmp(key, expected, key_size) == 0;
}
