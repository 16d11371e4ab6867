/* RESP2: arrays of bulk strings to the server; bulk strings, simple strings and errors back. */
#include "base/err.h"
#include "compare/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 256 /* of a line that is not a value; errors are no longer */
#define OVERHEAD       512 /* lengths and the command of a request; a line of a reply */

static size_t put_bytes(unsigned char *out, const void *bytes, size_t len)
{
    memcpy(out, bytes, len);
    return len;
}

/* "$LEN\r\n" and the bytes, as requests and replies have them. */
static size_t put_bulk(unsigned char *out, const void *bytes, uint32_t len)
{
    char digits[12];
    unsigned n = sizeof digits;
    size_t at = 0;
    uint32_t rest = len;
    do
        digits[--n] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    out[at++] = '$';
    at += put_bytes(out + at, digits + n, sizeof digits - n);
    at += put_bytes(out + at, "\r\n", 2);
    at += put_bytes(out + at, bytes, len);
    return at + put_bytes(out + at, "\r\n", 2);
}

static size_t resp_encode(const struct rival_op *op, unsigned char *out)
{
    size_t at = put_bytes(out, op->put ? "*3\r\n$3\r\nSET\r\n" : "*2\r\n$3\r\nGET\r\n", 13);
    at += put_bulk(out + at, op->key, op->key_len);
    if (op->put)
        at += put_bulk(out + at, op->value, op->value_len);
    return at;
}

/* Copies the line at the beginning, without its end. Returns its bytes with the end; 0: it is not
 * complete; more than LINE_MAX_BYTES: it is too long. */
static size_t take_line(const unsigned char *in, size_t len, char line[LINE_MAX_BYTES])
{
    size_t seen = len < LINE_MAX_BYTES ? len : LINE_MAX_BYTES;
    const unsigned char *end = memchr(in, '\n', seen);
    if (!end)
        return len < LINE_MAX_BYTES ? 0 : LINE_MAX_BYTES + 1;
    size_t text = (size_t)(end - in);
    if (text > 0 && in[text - 1] == '\r')
        text--;
    memcpy(line, in, text);
    line[text] = '\0';
    return (size_t)(end - in) + 1;
}

/* A bulk string, behind its line. */
static int take_bulk(const char *line, size_t head, const unsigned char *in, size_t len,
                     struct rival_op *op, uint32_t value_max, size_t *used)
{
    char *end = NULL;
    long bytes = strtol(line + 1, &end, 10);
    if (end == line + 1 || *end || bytes < -1 || bytes > (long)value_max)
        return err_fail(FAR_CORRUPT, "Redis sent a value of '%s' bytes, but values have up to %u",
                        line + 1, value_max);
    op->found = bytes >= 0;
    if (!op->found) {
        *used = head;
        return FAR_OK;
    }
    if (len < head + (size_t)bytes + 2)
        return FAR_OK;
    memcpy(op->buf, in + head, (size_t)bytes);
    op->got_len = (uint32_t)bytes;
    *used = head + (size_t)bytes + 2;
    return FAR_OK;
}

static int resp_parse(const unsigned char *in, size_t len, struct rival_op *op, uint32_t value_max,
                      size_t *used)
{
    char line[LINE_MAX_BYTES];
    size_t head = take_line(in, len, line);
    *used = 0;
    if (head == 0)
        return FAR_OK;
    if (head > LINE_MAX_BYTES)
        return err_fail(FAR_CORRUPT, "Redis sent a line of more than %d bytes", LINE_MAX_BYTES);
    if (line[0] == '-')
        return err_fail(FAR_SYSTEM, "Redis reports: %s", line + 1);
    if (op->put && strcmp(line, "+OK") == 0) {
        *used = head;
        return FAR_OK;
    }
    if (!op->put && line[0] == '$')
        return take_bulk(line, head, in, len, op, value_max, used);
    return err_fail(FAR_CORRUPT, "Redis answered a %s with '%.32s'", op->put ? "SET" : "GET", line);
}

const struct protocol protocol_resp = {
    .overhead = OVERHEAD, .encode = resp_encode, .parse = resp_parse};
