/* memcached's binary protocol: a header of 24 bytes, then extras, key and value. */
#include "base/err.h"
#include "compare/protocol.h"

#include <string.h>

#define HEADER        24u
#define REQUEST       0x80
#define RESPONSE      0x81
#define OP_GET        0x00
#define OP_SET        0x01
#define SET_EXTRAS    8u /* flags, expiry: both 0 */
#define GET_EXTRAS    4u /* flags, in the reply */
#define KEY_NOT_FOUND 0x0001
#define OVERHEAD      512 /* header and extras, or the text of an error */

static void put16(unsigned char *out, uint32_t n)
{
    out[0] = (unsigned char)(n >> 8);
    out[1] = (unsigned char)n;
}

static uint32_t get16(const unsigned char *in)
{
    return (uint32_t)in[0] << 8 | in[1];
}

static uint32_t get32(const unsigned char *in)
{
    return get16(in) << 16 | get16(in + 2);
}

static size_t memcached_encode(const struct rival_op *op, unsigned char *out)
{
    uint32_t extras = op->put ? SET_EXTRAS : 0, value = op->put ? op->value_len : 0;
    uint32_t body = extras + op->key_len + value;
    memset(out, 0, HEADER + extras);
    out[0] = REQUEST;
    out[1] = op->put ? OP_SET : OP_GET;
    put16(out + 2, op->key_len);
    out[4] = (unsigned char)extras;
    put16(out + 8, body >> 16);
    put16(out + 10, body);
    memcpy(out + HEADER + extras, op->key, op->key_len);
    if (value > 0)
        memcpy(out + HEADER + extras + op->key_len, op->value, value);
    return HEADER + body;
}

/* The value of a get, in a body that is complete. */
static int take_value(const unsigned char *body, uint32_t len, uint32_t extras, struct rival_op *op,
                      uint32_t value_max)
{
    if (extras != GET_EXTRAS || len < extras || len - extras > value_max)
        return err_fail(FAR_CORRUPT, "memcached sent %u bytes for a value of up to %u", len,
                        value_max);
    op->found = true;
    op->got_len = len - extras;
    memcpy(op->buf, body + extras, op->got_len);
    return FAR_OK;
}

static int memcached_parse(const unsigned char *in, size_t len, struct rival_op *op,
                           uint32_t value_max, size_t *used)
{
    *used = 0;
    if (len < HEADER)
        return FAR_OK;
    uint32_t status = get16(in + 6), body = get32(in + 8);
    if (in[0] != RESPONSE || in[1] != (op->put ? OP_SET : OP_GET) || get16(in + 2) != 0 ||
        body > value_max + OVERHEAD - HEADER)
        return err_fail(FAR_CORRUPT,
                        "memcached answered a %s with a reply of type %u to command %u, %u bytes",
                        op->put ? "set" : "get", in[0], in[1], body);
    if (len < HEADER + (size_t)body)
        return FAR_OK;
    *used = HEADER + (size_t)body;
    if (status == 0)
        return op->put ? FAR_OK : take_value(in + HEADER, body, in[4], op, value_max);
    op->found = false;
    if (status == KEY_NOT_FOUND && !op->put)
        return FAR_OK;
    return err_fail(FAR_SYSTEM, "memcached reports error %u: %.*s", status,
                    (int)(body < 128 ? body : 128), (const char *)in + HEADER);
}

const struct protocol protocol_memcached = {
    .overhead = OVERHEAD, .encode = memcached_encode, .parse = memcached_parse};
