#include "bench/keys.h"
#include "base/err.h"

#include <string.h>

#define NUMBER_BYTES  sizeof(uint64_t)
#define VERSION_BYTES sizeof(uint64_t)
_Static_assert(NUMBER_BYTES + VERSION_BYTES == BENCH_VALUE_VARIED_MIN,
               "the size of a value follows from its number and its version");

uint64_t bench_mix(uint64_t n)
{
    /* The finalizer of splitmix64. Each step can be undone, so different inputs stay different. */
    n ^= n >> 30;
    n *= 0xbf58476d1ce4e5b9u;
    n ^= n >> 27;
    n *= 0x94d049bb133111ebu;
    return n ^ (n >> 31);
}

/* A size in the range that looks random, but follows from the seed. */
static size_t size_in(struct bench_range range, uint64_t seed)
{
    uint64_t sizes = (uint64_t)range.max - range.min + 1;
    return range.min + (size_t)(((bench_mix(seed) >> 32) * sizes) >> 32);
}

size_t bench_key_size(const struct bench_sizes *sizes, uint64_t number)
{
    return size_in(sizes->key, number ^ 0x2545f4914f6cdd1du);
}

size_t bench_value_size(const struct bench_sizes *sizes, uint64_t number, uint64_t version)
{
    return size_in(sizes->value, bench_mix(number) + version);
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

static uint64_t version_of(const void *value)
{
    uint64_t version;
    memcpy(&version, (const char *)value + NUMBER_BYTES, VERSION_BYTES);
    return version;
}

/* Has the value the size that its version says? */
static bool size_right(const struct bench_sizes *sizes, uint64_t number, const void *value,
                       size_t size)
{
    if (sizes->value.min == sizes->value.max)
        return size == sizes->value.min;
    return size >= NUMBER_BYTES + VERSION_BYTES &&
           size == bench_value_size(sizes, number, version_of(value));
}

bool bench_value_right(const struct bench_sizes *sizes, uint64_t number, const void *value,
                       size_t size)
{
    return size_right(sizes, number, value, size) &&
           memcmp(value, &number, size < NUMBER_BYTES ? size : NUMBER_BYTES) == 0;
}

size_t bench_value_next(const struct bench_sizes *sizes, uint64_t number, const void *old,
                        size_t old_size, void *value)
{
    uint64_t version = old_size >= NUMBER_BYTES + VERSION_BYTES ? version_of(old) + 1 : 0;
    size_t size = bench_value_size(sizes, number, version);
    memcpy(value, old, old_size < size ? old_size : size);
    bench_value_write(number, version, value, size);
    return size;
}

bool bench_entry_right(const struct bench_sizes *sizes, const struct far_entry *e, void *expected)
{
    uint64_t number;
    if (sizes->value.max < NUMBER_BYTES)
        return e->value_len == sizes->value.max && e->key_len >= sizes->key.min &&
               e->key_len <= sizes->key.max;
    if (e->value_len < NUMBER_BYTES)
        return false;
    memcpy(&number, e->value, NUMBER_BYTES);
    if (!size_right(sizes, number, e->value, e->value_len) ||
        e->key_len != bench_key_size(sizes, number))
        return false;
    bench_key_write(number, expected, e->key_len);
    return memcmp(e->key, expected, e->key_len) == 0;
}
