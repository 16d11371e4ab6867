#include "cli/dump_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

/* ---- bytes that are not UTF-8, in base64 ----------------------------------------------------- */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* NULL when out of memory. */
static json_t *encode64(const unsigned char *bytes, size_t len)
{
    char *text = malloc((len + 2) / 3 * 4 + 1), *out = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        unsigned left = len - i < 3 ? (unsigned)(len - i) : 3;
        unsigned word = (unsigned)bytes[i] << 16;
        word |= left > 1 ? (unsigned)bytes[i + 1] << 8 : 0;
        word |= left > 2 ? bytes[i + 2] : 0;
        for (unsigned k = 0; k < 4; k++)
            *out++ = k <= left ? digits64[word >> (18 - 6 * k) & 63] : '=';
    }
    json_t *string = json_stringn(text, (size_t)(out - text));
    free(text);
    return string;
}

/* The number of a digit; 64 if it is none. */
static unsigned value64(char c)
{
    const char *at = c != '\0' ? strchr(digits64, c) : NULL;
    return at ? (unsigned)(at - digits64) : 64;
}

/* Strict: whole groups of four, padding only at the end, no bits that do not count. `out` has room
 * for 3 bytes of each group. */
static bool decode64(const char *text, size_t len, unsigned char *out, size_t *out_len)
{
    if (len % 4 != 0)
        return false;
    size_t padding = len > 0 && text[len - 1] == '=' ? 1 : 0;
    if (padding == 1 && text[len - 2] == '=')
        padding = 2;
    *out_len = len / 4 * 3 - padding;
    for (size_t i = 0; i < len; i += 4) {
        unsigned used = i + 4 == len ? 4 - (unsigned)padding : 4, word = 0;
        for (unsigned k = 0; k < 4; k++) {
            unsigned value = k < used ? value64(text[i + k]) : 0;
            if (value == 64)
                return false;
            word = word << 6 | value;
        }
        if ((used == 2 && (word & 0xffff) != 0) || (used == 3 && (word & 0xff) != 0))
            return false;
        for (unsigned k = 0; k + 1 < used; k++)
            *out++ = (unsigned char)(word >> (16 - 8 * k));
    }
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Adds the bytes as "name", or if they are not UTF-8 as "name64". */
static bool set_bytes(json_t *object, const char *name, const void *bytes, size_t len)
{
    char name64[16];
    json_t *text = json_stringn(bytes ? bytes : "", len);
    if (text)
        return json_object_set_new(object, name, text) == 0;
    snprintf(name64, sizeof name64, "%s64", name);
    return json_object_set_new(object, name64, encode64(bytes, len)) == 0;
}

/* Takes over the reference. */
static bool write_line(FILE *file, json_t *object, bool complete)
{
    errno = complete ? 0 : ENOMEM;
    bool good = complete && json_dumpf(object, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF;
    if (!good && errno == 0)
        errno = ENOMEM;
    json_decref(object);
    return good;
}

bool dump_json_begin(FILE *file)
{
    json_t *line = json_pack("{s:i}", "farside_dump", 1);
    return write_line(file, line, line);
}

bool dump_json_table(FILE *file, const struct dump_table *t)
{
    json_t *line = json_object();
    bool good = line && set_bytes(line, "table", t->name, strlen(t->name)) &&
                json_object_set_new(line, "index", json_string(t->index)) == 0 &&
                json_object_set_new(line, "tuning", json_string(t->tuning)) == 0;
    return write_line(file, line, good);
}

bool dump_json_pair(FILE *file, const struct dump_pair *p)
{
    json_t *line = json_object();
    bool good = line && set_bytes(line, "key", p->key, p->key_len) &&
                set_bytes(line, "value", p->value, p->value_len);
    return write_line(file, line, good);
}

bool dump_json_end(FILE *file, const struct dump_totals *t)
{
    json_t *line = json_pack("{s:b, s:I, s:I}", "end", 1, "tables", (json_int_t)t->tables, "pairs",
                             (json_int_t)t->pairs);
    return write_line(file, line, line);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A member that holds bytes, as text or in base64. */
struct member {
    const char *name, *name64;
    size_t min, max;
    const char *wrong; /* what is said if it is missing, or anything else */
};

/* Appends the bytes to the block, which has room for them. */
static const char *take_bytes(const json_t *object, const struct member *m,
                              struct dump_block *block, size_t *len)
{
    const json_t *plain = json_object_get(object, m->name);
    const json_t *coded = json_object_get(object, m->name64);
    const json_t *text = plain ? plain : coded;
    if (!json_is_string(text) || (plain && coded))
        return m->wrong;
    *len = json_string_length(text);
    if (plain && *len <= m->max)
        memcpy(block->bytes + block->len, json_string_value(text), *len);
    if (coded && (*len > m->max / 3 * 4 + 4 ||
                  !decode64(json_string_value(text), *len, block->bytes + block->len, len)))
        return "a member in base64 is not valid, or too long";
    if (*len < m->min || *len > m->max)
        return m->wrong;
    block->len += *len;
    return NULL;
}

static const char *take_pair(const json_t *object, struct dump_json_line *line)
{
    static const struct member key = {"key", "key64", 1, FAR_KEY_MAX,
                                      "a key is missing, empty, or too long"};
    static const struct member value = {"value", "value64", 0, FAR_VALUE_MAX,
                                        "a value is missing or too long"};
    struct dump_pair *p = &line->pair;
    if (!dump_block_reserve(&line->bytes,
                            FAR_KEY_MAX + FAR_VALUE_MAX + 8)) /* decoding: up to 4 more */
        return "out of memory";
    dump_block_clear(&line->bytes);
    const char *wrong = take_bytes(object, &key, &line->bytes, &p->key_len);
    if (!wrong)
        wrong = take_bytes(object, &value, &line->bytes, &p->value_len);
    p->key = line->bytes.bytes;
    p->value = line->bytes.bytes + p->key_len;
    line->kind = DUMP_LINE_PAIR;
    return !wrong && json_object_size(object) != 2 ? "an unknown member" : wrong;
}

/* Copies a text without NULs; "" if the member is missing. Counts the members that are there. */
static bool take_text(const json_t *object, const char *name, char *text, size_t size,
                      size_t *members)
{
    const json_t *member = json_object_get(object, name);
    text[0] = '\0';
    if (!member)
        return true;
    ++*members;
    if (!json_is_string(member) || json_string_length(member) >= size ||
        strlen(json_string_value(member)) != json_string_length(member))
        return false;
    strcpy(text, json_string_value(member));
    return true;
}

static const char *take_table(const json_t *object, struct dump_json_line *line)
{
    static const struct member name = {"table", "table64", 1, FAR_NAME_MAX,
                                       "the name of a table is empty or too long"};
    struct dump_table *t = &line->table;
    size_t len = 0, members = 1;
    if (!dump_block_reserve(&line->bytes, FAR_NAME_MAX + 8))
        return "out of memory";
    dump_block_clear(&line->bytes);
    const char *wrong = take_bytes(object, &name, &line->bytes, &len);
    if (wrong)
        return wrong;
    if (memchr(line->bytes.bytes, '\0', len))
        return "the name of a table has a NUL";
    memcpy(t->name, line->bytes.bytes, len);
    t->name[len] = '\0';
    if (!take_text(object, "index", t->index, sizeof t->index, &members) ||
        !take_text(object, "tuning", t->tuning, sizeof t->tuning, &members))
        return "the index or the tuning of a table is not a text, or too long";
    line->kind = DUMP_LINE_TABLE;
    return json_object_size(object) != members ? "an unknown member" : NULL;
}

static bool take_count(const json_t *object, const char *name, uint64_t *count)
{
    const json_t *member = json_object_get(object, name);
    *count = (uint64_t)json_integer_value(member);
    return json_is_integer(member) && json_integer_value(member) >= 0;
}

static const char *take_end(const json_t *object, struct dump_json_line *line)
{
    line->kind = DUMP_LINE_END;
    if (!json_is_true(json_object_get(object, "end")) || json_object_size(object) != 3 ||
        !take_count(object, "tables", &line->totals.tables) ||
        !take_count(object, "pairs", &line->totals.pairs))
        return "the end has not \"end\": true, \"tables\" and \"pairs\"";
    return NULL;
}

static const char *take_begin(const json_t *object, struct dump_json_line *line)
{
    const json_t *version = json_object_get(object, "farside_dump");
    line->kind = DUMP_LINE_BEGIN;
    if (!json_is_integer(version) || json_object_size(object) != 1)
        return "the first line has not \"farside_dump\" alone";
    return json_integer_value(version) == 1 ? NULL : "the dump has another version than 1";
}

const char *dump_json_read(const char *text, size_t len, struct dump_json_line *line)
{
    json_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const char *wrong = "not a table, a pair or the end";
    if (!json_is_object(object))
        wrong = "not an object of JSON";
    else if (json_object_get(object, "table") || json_object_get(object, "table64"))
        wrong = take_table(object, line);
    else if (json_object_get(object, "key") || json_object_get(object, "key64"))
        wrong = take_pair(object, line);
    else if (json_object_get(object, "end"))
        wrong = take_end(object, line);
    else if (json_object_get(object, "farside_dump"))
        wrong = take_begin(object, line);
    json_decref(object);
    return wrong;
}
