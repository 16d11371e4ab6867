/* The protocols of Redis and memcached: requests are as their documents say, replies are read only
 * when they are complete, and what is no reply is an error. */
#include "base/err.h"
#include "compare/protocol.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 16

static char value_got[VALUE_MAX];

static struct rival_op get_of(const char *key)
{
    return (struct rival_op){.key = key, .key_len = (uint32_t)strlen(key), .buf = value_got};
}

static struct rival_op put_of(const char *key, const char *value)
{
    return (struct rival_op){.key = key,
                             .key_len = (uint32_t)strlen(key),
                             .put = true,
                             .value = value,
                             .value_len = (uint32_t)strlen(value)};
}

static void assert_request(const struct protocol *p, const struct rival_op *op, const void *bytes,
                           size_t len)
{
    unsigned char out[1024];
    assert_int_equal(p->encode(op, out), len);
    assert_memory_equal(out, bytes, len);
    assert_true(len <= p->overhead + op->key_len + op->value_len);
}

/* The reply is read once it is complete, whatever follows, and not before. The copy has exactly the
 * bytes that have come, so a sanitizer notices a look behind them. */
static void assert_reply(const struct protocol *p, struct rival_op *op, const void *bytes,
                         size_t len)
{
    size_t used = 1;
    for (size_t n = 0; n < len; n++) {
        unsigned char *part = malloc(n + 1);
        assert_non_null(part);
        memcpy(part + 1, bytes, n);
        assert_int_equal(p->parse(part + 1, n, op, VALUE_MAX, &used), FAR_OK);
        assert_int_equal(used, 0);
        free(part);
    }
    unsigned char all[256] = {0};
    memcpy(all, bytes, len);
    memset(all + len, 'x', 10);
    assert_int_equal(p->parse(all, len + 10, op, VALUE_MAX, &used), FAR_OK);
    assert_int_equal(used, len);
}

static void assert_refused(const struct protocol *p, struct rival_op op, const void *bytes,
                           size_t len, int status, const char *detail)
{
    size_t used = 0;
    assert_int_equal(err_end(p->parse(bytes, len, &op, VALUE_MAX, &used)), status);
    if (!strstr(far_error_detail(), detail))
        fail_msg("'%s' is not in: %s", detail, far_error_detail());
}

/* ---- Redis ----------------------------------------------------------------------------------- */

static void redis_requests_are_arrays_of_bulk_strings(void **state)
{
    static const char get[] = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
    static const char set[] = "*3\r\n$3\r\nSET\r\n$12\r\na key's name\r\n$0\r\n\r\n";
    struct rival_op op = get_of("key");
    (void)state;
    assert_request(&protocol_resp, &op, get, sizeof get - 1);
    op = put_of("a key's name", "");
    assert_request(&protocol_resp, &op, set, sizeof set - 1);
}

static void redis_replies_are_read_when_complete(void **state)
{
    struct rival_op op = get_of("key");
    (void)state;
    assert_reply(&protocol_resp, &op, "$5\r\nva\r\nl\r\n", 11);
    assert_true(op.found);
    assert_int_equal(op.got_len, 5);
    assert_memory_equal(value_got, "va\r\nl", 5);
    assert_reply(&protocol_resp, &op, "$0\r\n\r\n", 6);
    assert_true(op.found);
    assert_int_equal(op.got_len, 0);
    assert_reply(&protocol_resp, &op, "$-1\r\n", 5);
    assert_false(op.found);
    op = put_of("key", "value");
    assert_reply(&protocol_resp, &op, "+OK\r\n", 5);
}

static void redis_errors_are_reported(void **state)
{
    static const char oom[] = "-OOM command not allowed\r\n";
    unsigned char endless[300];
    (void)state;
    memset(endless, '+', sizeof endless);
    assert_refused(&protocol_resp, put_of("k", "v"), oom, sizeof oom - 1, FAR_SYSTEM,
                   "Redis reports: OOM command not allowed");
    assert_refused(&protocol_resp, get_of("k"), "+OK\r\n", 5, FAR_CORRUPT, "answered a GET");
    assert_refused(&protocol_resp, put_of("k", "v"), "$1\r\nv\r\n", 7, FAR_CORRUPT,
                   "answered a SET");
    assert_refused(&protocol_resp, get_of("k"), "$17\r\n", 5, FAR_CORRUPT, "values have up to 16");
    assert_refused(&protocol_resp, get_of("k"), "$-2\r\n", 5, FAR_CORRUPT, "values have up to 16");
    assert_refused(&protocol_resp, get_of("k"), "$x\r\n", 4, FAR_CORRUPT, "values have up to 16");
    assert_refused(&protocol_resp, get_of("k"), "\r\n", 2, FAR_CORRUPT, "answered a GET");
    assert_refused(&protocol_resp, get_of("k"), endless, sizeof endless, FAR_CORRUPT,
                   "more than 256 bytes");
}

/* ---- memcached ------------------------------------------------------------------------------- */

/* A reply with a body of up to 255 bytes. */
struct reply {
    unsigned char bytes[24 + 255];
    size_t len;
};

static struct reply reply_of(unsigned command, unsigned status, unsigned extras, const char *text)
{
    struct reply r = {.len = 24 + extras + strlen(text)};
    r.bytes[0] = 0x81;
    r.bytes[1] = (unsigned char)command;
    r.bytes[4] = (unsigned char)extras;
    r.bytes[7] = (unsigned char)status;
    r.bytes[11] = (unsigned char)(r.len - 24);
    memcpy(r.bytes + 24 + extras, text, strlen(text));
    return r;
}

static void memcached_requests_have_a_header(void **state)
{
    static const unsigned char get[] = {0x80, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,   3,   0,  0,
                                        0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 'k', 'e', 'y'};
    static const unsigned char set[] = {0x80, 1, 0, 3, 8, 0, 0,   0,   0,   0,   0,  13, 0,
                                        0,    0, 0, 0, 0, 0, 0,   0,   0,   0,   0,  0,  0,
                                        0,    0, 0, 0, 0, 0, 'k', 'e', 'y', 'v', 'w'};
    struct rival_op op = get_of("key");
    (void)state;
    assert_request(&protocol_memcached, &op, get, sizeof get);
    op = put_of("key", "vw");
    assert_request(&protocol_memcached, &op, set, sizeof set);
}

static void memcached_replies_are_read_when_complete(void **state)
{
    struct rival_op op = get_of("key");
    struct reply r = reply_of(0, 0, 4, "value");
    (void)state;
    assert_reply(&protocol_memcached, &op, r.bytes, r.len);
    assert_true(op.found);
    assert_int_equal(op.got_len, 5);
    assert_memory_equal(value_got, "value", 5);
    r = reply_of(0, 1, 0, "Not found");
    assert_reply(&protocol_memcached, &op, r.bytes, r.len);
    assert_false(op.found);
    op = put_of("key", "value");
    r = reply_of(1, 0, 0, "");
    assert_reply(&protocol_memcached, &op, r.bytes, r.len);
}

static void memcached_errors_are_reported(void **state)
{
    const struct protocol *p = &protocol_memcached;
    struct reply r = reply_of(1, 0x82, 0, "Out of memory");
    (void)state;
    assert_refused(p, put_of("k", "v"), r.bytes, r.len, FAR_SYSTEM,
                   "memcached reports error 130: Out of memory");
    r = reply_of(1, 1, 0, "Not found");
    assert_refused(p, put_of("k", "v"), r.bytes, r.len, FAR_SYSTEM, "error 1: Not found");
    r = reply_of(1, 0, 0, "");
    assert_refused(p, get_of("k"), r.bytes, r.len, FAR_CORRUPT, "answered a get");
    r = reply_of(0, 0, 4, "this value is too long");
    assert_refused(p, get_of("k"), r.bytes, r.len, FAR_CORRUPT, "for a value of up to 16");
    r = reply_of(0, 0, 0, "value");
    assert_refused(p, get_of("k"), r.bytes, r.len, FAR_CORRUPT, "for a value of up to 16");
    r = reply_of(0, 0, 4, "value");
    r.bytes[8] = 0xff;
    assert_refused(p, get_of("k"), r.bytes, r.len, FAR_CORRUPT, "bytes");
    assert_refused(p, get_of("k"), "ERROR\r\n                  ", 24, FAR_CORRUPT,
                   "answered a get");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(redis_requests_are_arrays_of_bulk_strings),
        cmocka_unit_test(redis_replies_are_read_when_complete),
        cmocka_unit_test(redis_errors_are_reported),
        cmocka_unit_test(memcached_requests_have_a_header),
        cmocka_unit_test(memcached_replies_are_read_when_complete),
        cmocka_unit_test(memcached_errors_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
