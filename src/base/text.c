/* Strict on purpose: a size that is misread here becomes a pool of the wrong size. */
#include "base/text.h"

#include "base/err.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Digits only; strtoull() would also accept signs, spaces and hex. Moves *s behind them. */
static bool digits(const char **s, uint64_t *value)
{
    const char *p = *s;
    uint64_t v = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, *p - '0', &v))
            return false;
    }
    if (p == *s)
        return false;
    *s = p;
    *value = v;
    return true;
}

bool text_number(const char *s, uint64_t min, uint64_t max, uint64_t *value)
{
    uint64_t v;
    if (!digits(&s, &v) || *s != '\0' || v < min || v > max)
        return false;
    *value = v;
    return true;
}

/* The power of two of a suffix; -1 if there is no such suffix. */
static int suffix_shift(const char *s)
{
    static const char letters[] = "kKmMgGtT";
    if (*s == '\0')
        return 0;
    const char *letter = strchr(letters, *s);
    if (!letter || s[1] != '\0')
        return -1;
    return 10 * (int)((letter - letters) / 2 + 1);
}

#define FRACTION_DIGITS 18 /* as many as an unsigned 64-bit number always holds */

bool text_size(const char *s, uint64_t *bytes)
{
    uint64_t whole, fraction = 0, scale = 1;
    if (!digits(&s, &whole))
        return false;
    bool point = *s == '.';
    if (point) {
        const char *first = ++s;
        if (!digits(&s, &fraction) || s - first > FRACTION_DIGITS)
            return false;
        for (; first < s; first++)
            scale *= 10;
    }
    int shift = suffix_shift(s);
    if (shift < 0 || (point && shift == 0)) /* there are no fractions of a byte */
        return false;
    unsigned __int128 size =
        ((unsigned __int128)whole << shift) + ((unsigned __int128)fraction << shift) / scale;
    if (size > UINT64_MAX)
        return false;
    *bytes = (uint64_t)size;
    return true;
}

const char *text_of_size(uint64_t bytes, char text[TEXT_SIZE_BYTES])
{
    static const char letters[] = "\0kmgt";
    unsigned unit = 0;
    for (; unit < 4 && bytes != 0 && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    snprintf(text, TEXT_SIZE_BYTES, "%" PRIu64 "%.1s", bytes, &letters[unit]);
    return text;
}

/* The length of the character at s in bytes; 0 if it is not UTF-8: cut off, longer than necessary,
 * half of a surrogate pair, or beyond the last code point. */
static unsigned utf8_bytes(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned bytes = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : 4;
    uint32_t c = s[0] & (0x7fu >> (bytes > 1 ? bytes : 0));
    if (bytes == 4 && s[0] >> 3 != 30)
        return 0;
    for (unsigned i = 1; i < bytes; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    return c < least[bytes] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : bytes;
}

bool text_utf8(const char *s, char *copy)
{
    bool whole = true;
    while (*s) {
        unsigned bytes = utf8_bytes((const unsigned char *)s);
        if (bytes == 0) {
            whole = false;
            copy += sprintf(copy, "\\x%02x", (unsigned char)*s++);
        }
        for (; bytes > 0; bytes--)
            *copy++ = *s++;
    }
    *copy = '\0';
    return whole;
}

const char *text_escape(const void *bytes, size_t len, size_t *pos, char text[TEXT_ESCAPE_BYTES])
{
    static const char plain[] = "\\\t\n\r", letter[] = "\\tnr";
    unsigned char c[5] = {0}; /* a character that is cut off ends with NUL */
    size_t left = len - *pos;
    memcpy(c, (const char *)bytes + *pos, left < 4 ? left : 4);
    unsigned size = utf8_bytes(c);
    const char *short_form = c[0] ? strchr(plain, c[0]) : NULL;
    bool control = c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0);
    if (short_form)
        snprintf(text, TEXT_ESCAPE_BYTES, "\\%c", letter[short_form - plain]);
    else if (size == 0 || control)
        snprintf(text, TEXT_ESCAPE_BYTES, "\\x%02x", c[0]);
    else
        snprintf(text, TEXT_ESCAPE_BYTES, "%.*s", (int)size, (const char *)c);
    *pos += size == 0 || control ? 1 : size;
    return text;
}

/* A piece of the caller's text, before it is copied and split. */
struct span {
    const char *at;
    size_t len;
};

struct option_spans {
    unsigned count;
    struct span name[URI_OPTIONS_MAX], value[URI_OPTIONS_MAX];
};

static bool span_equal(struct span a, struct span b)
{
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

static int add_option(struct option_spans *options, struct span option)
{
    size_t name_len = 0;
    while (name_len < option.len && option.at[name_len] != '=')
        name_len++;
    struct span name = {option.at, name_len};
    if (name_len == option.len)
        return err_fail(FAR_BAD_URI, "option '%.*s' has no '='", (int)option.len, option.at);
    if (name_len == 0)
        return err_fail(FAR_BAD_URI, "option '%.*s' has no name", (int)option.len, option.at);
    for (unsigned i = 0; i < options->count; i++) {
        if (span_equal(options->name[i], name))
            return err_fail(FAR_BAD_URI, "option '%.*s' is given twice", (int)name_len, option.at);
    }
    if (options->count == URI_OPTIONS_MAX)
        return err_fail(FAR_BAD_URI, "the URI has more than %d options", URI_OPTIONS_MAX);
    options->name[options->count] = name;
    options->value[options->count] =
        (struct span){option.at + name_len + 1, option.len - name_len - 1};
    options->count++;
    return FAR_OK;
}

/* s is what follows the question mark. */
static int scan_options(const char *s, struct option_spans *options)
{
    for (;;) {
        size_t len = strcspn(s, "&");
        int rc = add_option(options, (struct span){s, len});
        if (rc != FAR_OK)
            return rc;
        if (s[len] == '\0')
            return FAR_OK;
        s += len + 1;
    }
}

int uri_parse(const char *text, struct uri *uri)
{
    size_t len = strlen(text);
    if (len >= URI_TEXT_MAX)
        return err_fail(FAR_BAD_URI, "the URI is longer than %d bytes", URI_TEXT_MAX - 1);
    size_t scheme_len = strcspn(text, ":?");
    if (text[scheme_len] != ':')
        return err_fail(FAR_BAD_URI, "no ':' after the scheme in '%s'", text);
    if (scheme_len == 0)
        return err_fail(FAR_BAD_URI, "no scheme before the ':' in '%s'", text);

    const char *rest = text + scheme_len + 1;
    size_t rest_len = strcspn(rest, "?");
    struct option_spans options = {.count = 0};
    if (rest[rest_len] == '?') {
        int rc = scan_options(rest + rest_len + 1, &options);
        if (rc != FAR_OK)
            return rc;
    }

    memset(uri, 0, sizeof *uri);
    memcpy(uri->text, text, len + 1);
    uri->scheme = uri->text;
    uri->rest = uri->text + (rest - text);
    uri->text[scheme_len] = '\0';
    uri->text[rest - text + (ptrdiff_t)rest_len] = '\0';
    uri->options = options.count;
    for (unsigned i = 0; i < options.count; i++) {
        struct span name = options.name[i], value = options.value[i];
        uri->option[i].name = uri->text + (name.at - text);
        uri->option[i].value = uri->text + (value.at - text);
        uri->text[name.at - text + (ptrdiff_t)name.len] = '\0';
        uri->text[value.at - text + (ptrdiff_t)value.len] = '\0';
    }
    return FAR_OK;
}

const char *uri_option(struct uri *uri, const char *name)
{
    for (unsigned i = 0; i < uri->options; i++) {
        if (strcmp(uri->option[i].name, name) == 0) {
            uri->option[i].used = true;
            return uri->option[i].value;
        }
    }
    return NULL;
}

int uri_size(struct uri *uri, const char *name, uint64_t fallback, uint64_t min, uint64_t max,
             uint64_t *value)
{
    const char *s = uri_option(uri, name);
    uint64_t v = fallback;
    if (s && (!text_size(s, &v) || v < min || v > max)) {
        char least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES];
        return err_fail(
            FAR_BAD_URI,
            "option '%s' takes a size in bytes from %s to %s (with k, m, g or t for powers "
            "of 1024), not '%s'",
            name, text_of_size(min, least), text_of_size(max, most), s);
    }
    *value = v;
    return FAR_OK;
}

int uri_number(struct uri *uri, const char *name, uint64_t fallback, uint64_t min, uint64_t max,
               uint64_t *value)
{
    const char *s = uri_option(uri, name);
    uint64_t v = fallback;
    if (s && !text_number(s, min, max, &v))
        return err_fail(FAR_BAD_URI,
                        "option '%s' takes a number from %" PRIu64 " to %" PRIu64 ", not '%s'",
                        name, min, max, s);
    *value = v;
    return FAR_OK;
}

int uri_finish(const struct uri *uri)
{
    for (unsigned i = 0; i < uri->options; i++) {
        if (!uri->option[i].used)
            return err_fail(FAR_BAD_URI, "%s: has no option '%s'", uri->scheme,
                            uri->option[i].name);
    }
    return FAR_OK;
}
