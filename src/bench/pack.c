#include "bench/pack.h"
#include "base/err.h"

#include <stdint.h>
#include <string.h>

#define NUMBER_BYTES_MAX 10

static unsigned char *put_number(unsigned char *at, uint64_t n)
{
    for (; n >= 0x80; n >>= 7)
        *at++ = (unsigned char)(n | 0x80);
    *at++ = (unsigned char)n;
    return at;
}

/* Returns what follows the number; NULL: it has no end. */
static const unsigned char *get_number(const unsigned char *at, const unsigned char *end,
                                       uint64_t *n)
{
    *n = 0;
    for (unsigned i = 0; i < NUMBER_BYTES_MAX && at < end; i++, at++) {
        *n |= (uint64_t)(*at & 0x7f) << (7 * i);
        if (!(*at & 0x80))
            return at + 1;
    }
    return NULL;
}

size_t pack(const void *from, size_t bytes, void *to)
{
    ASSERT(bytes % 8 == 0);
    const char *word = from;
    unsigned char *at = to;
    uint64_t zeros = 0, value;
    for (size_t i = 0; i < bytes; i += 8) {
        memcpy(&value, word + i, 8);
        zeros++;
        if (value == 0)
            continue;
        at = put_number(put_number(at, zeros - 1), value);
        zeros = 0;
    }
    return (size_t)(at - (unsigned char *)to);
}

int unpack(const void *from, size_t len, void *to, size_t bytes)
{
    ASSERT(bytes % 8 == 0);
    const unsigned char *at = from, *end = at + len;
    char *word = to;
    uint64_t zeros, value, left = bytes / 8;
    memset(to, 0, bytes);
    while (at < end) {
        at = get_number(at, end, &zeros);
        if (at)
            at = get_number(at, end, &value);
        if (!at || zeros >= left)
            return err_fail(FAR_CORRUPT, "the results of another machine cannot be read");
        word += zeros * 8;
        memcpy(word, &value, 8);
        word += 8;
        left -= zeros + 1;
    }
    return FAR_OK;
}
