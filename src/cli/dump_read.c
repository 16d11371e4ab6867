#include "cli/dump_read.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#define LINE_MAX_BYTES (32u << 20) /* the longest pair, each byte written as \u0001, and names */

/* ---- failures -------------------------------------------------------------------------------- */

static bool bad(struct dump_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool bad(struct dump_reader *r, const char *format, ...)
{
    va_list args;
    int len = snprintf(r->error, sizeof r->error, "%s %" PRIu64 ", at byte %" PRIu64 ": ",
                       r->json ? "line" : "record", r->number, r->at);
    va_start(args, format);
    vsnprintf(r->error + len, sizeof r->error - (size_t)len, format, args);
    va_end(args);
    return false;
}

/* The input ended, or could not be read. */
static bool ended(struct dump_reader *r, const char *where)
{
    if (ferror(r->file))
        return bad(r, "cannot read on: %s", strerror(errno));
    return bad(r, "the input ends %s: it is cut off", where);
}

/* ---- records --------------------------------------------------------------------------------- */

static bool read_bytes(struct dump_reader *r, void *bytes, size_t len, const char *where)
{
    size_t got = fread(bytes, 1, len, r->file);
    r->offset += got;
    return got == len || ended(r, where);
}

static bool read_head(struct dump_reader *r, struct dump_head *h)
{
    int next = fgetc(r->file);
    if (next == EOF)
        return ended(r, "without an end record");
    ungetc(next, r->file);
    if (!read_bytes(r, h, sizeof *h, "in the head of a record"))
        return false;
    if (h->head_sum != dump_head_sum(h, r->sum))
        return bad(r, "the checksum of its head is wrong");
    /* From here on the head is as some writer wrote it. */
    if (h->number != r->number || h->zero != 0 || h->len > DUMP_PAYLOAD_MAX)
        return bad(r, "its head is not valid");
    return true;
}

static bool read_payload(struct dump_reader *r, const struct dump_head *h)
{
    dump_block_clear(&r->payload);
    if (!dump_block_reserve(&r->payload, h->len))
        return bad(r, "out of memory");
    if (!read_bytes(r, r->payload.bytes, h->len, "in a record"))
        return false;
    r->payload.len = h->len;
    return h->payload == dump_payload_sum(r->payload.bytes, h->len) ||
           bad(r, "the checksum of its contents is wrong");
}

/* Copies a text that must not have NULs. */
static bool take_text(char *text, size_t size, const unsigned char *bytes, size_t len)
{
    if (len >= size || memchr(bytes, '\0', len))
        return false;
    memcpy(text, bytes, len);
    text[len] = '\0';
    return true;
}

static bool take_table(struct dump_reader *r)
{
    struct dump_table *t = &r->table;
    struct dump_table_head h;
    const unsigned char *at = r->payload.bytes + sizeof h;
    if (r->payload.len < sizeof h)
        return bad(r, "a table record is too short");
    memcpy(&h, r->payload.bytes, sizeof h);
    if (r->payload.len != sizeof h + h.name_len + h.index_len + h.tuning_len || h.name_len == 0 ||
        !take_text(t->name, sizeof t->name, at, h.name_len) ||
        !take_text(t->index, sizeof t->index, at + h.name_len, h.index_len) ||
        !take_text(t->tuning, sizeof t->tuning, at + h.name_len + h.index_len, h.tuning_len))
        return bad(r, "a table record is not valid");
    r->any_table = true;
    r->totals.tables++;
    return true;
}

/* Looks at all pairs before the first of them is used. */
static bool take_pairs(struct dump_reader *r, unsigned count)
{
    struct dump_pair pair;
    unsigned found = 0;
    size_t pos = 0;
    for (; dump_pair_next(r->payload.bytes, r->payload.len, &pos, &pair); found++)
        r->totals.bytes += pair.key_len + pair.value_len;
    if (pos != r->payload.len || found != count || count == 0)
        return bad(r, "its pairs are not valid");
    if (!r->any_table)
        return bad(r, "pairs without a table");
    r->payload.count = count;
    r->totals.pairs += count;
    return true;
}

static bool take_end(struct dump_reader *r)
{
    struct dump_totals t;
    if (r->payload.len != sizeof t)
        return bad(r, "the end record is not valid");
    memcpy(&t, r->payload.bytes, sizeof t);
    if (t.tables != r->totals.tables || t.pairs != r->totals.pairs || t.bytes != r->totals.bytes)
        return bad(r,
                   "the end record counts %" PRIu64 " tables and %" PRIu64
                   " pairs, but there are %" PRIu64 " and %" PRIu64,
                   t.tables, t.pairs, r->totals.tables, r->totals.pairs);
    return fgetc(r->file) == EOF || bad(r, "more bytes follow the end record");
}

static bool read_record(struct dump_reader *r, struct dump_record *record)
{
    struct dump_head h;
    r->at = r->offset;
    if (!read_head(r, &h) || !read_payload(r, &h))
        return false;
    bool good = h.kind == DUMP_TABLE   ? take_table(r)
                : h.kind == DUMP_PAIRS ? take_pairs(r, h.count)
                : h.kind == DUMP_END   ? take_end(r)
                                     : bad(r, "a record of kind %u, which does not exist", h.kind);
    if (!good)
        return false;
    *record = (struct dump_record){.kind = (enum dump_kind)h.kind,
                                   .number = h.number,
                                   .last = h.number,
                                   .table = &r->table,
                                   .pairs = r->payload.bytes,
                                   .len = r->payload.len,
                                   .count = r->payload.count};
    r->sum = h.head_sum;
    r->number++;
    return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

enum line_state { LINE_READ, LINE_BAD, LINE_NONE };

/* Reads a line; the last one need not end with a newline. */
static enum line_state read_line(struct dump_reader *r)
{
    int c = 0;
    dump_block_clear(&r->line);
    r->at = r->offset;
    r->number++;
    while (c != '\n' && (c = getc_unlocked(r->file)) != EOF) {
        if (r->line.len == LINE_MAX_BYTES)
            return bad(r, "the line is longer than %u bytes", LINE_MAX_BYTES), LINE_BAD;
        if (!dump_block_reserve(&r->line, r->line.len + 1))
            return bad(r, "out of memory"), LINE_BAD;
        r->line.bytes[r->line.len++] = (unsigned char)c;
        r->offset++;
    }
    if (ferror(r->file))
        return ended(r, ""), LINE_BAD;
    return r->line.len > 0 ? LINE_READ : LINE_NONE;
}

static bool is_blank(const struct dump_block *line)
{
    for (size_t i = 0; i < line->len; i++)
        if (!isspace(line->bytes[i]))
            return false;
    return true;
}

/* Makes sure that there is a line in `parsed`, which may be one that was not used before. */
static enum line_state next_line(struct dump_reader *r)
{
    while (!r->held) {
        enum line_state state = read_line(r);
        if (state != LINE_READ)
            return state;
        r->held = !is_blank(&r->line);
    }
    const char *wrong = dump_json_read((const char *)r->line.bytes, r->line.len, &r->parsed);
    if (wrong)
        return bad(r, "%s", wrong), LINE_BAD;
    if (r->parsed.kind == DUMP_LINE_PAIR && !r->any_table)
        return bad(r, "a pair before the first table"), LINE_BAD;
    return LINE_READ;
}

/* The last line, or the end of a file that need not have one. */
static bool end_lines(struct dump_reader *r, bool counted)
{
    const struct dump_totals *t = &r->parsed.totals;
    if (!counted && r->declared)
        return ended(r, "without an end line");
    if (!counted)
        return true;
    if (t->tables != r->totals.tables || t->pairs != r->totals.pairs)
        return bad(r,
                   "the end counts %" PRIu64 " tables and %" PRIu64 " pairs, but there are %" PRIu64
                   " and %" PRIu64,
                   t->tables, t->pairs, r->totals.tables, r->totals.pairs);
    enum line_state state = LINE_READ;
    while ((state = read_line(r)) == LINE_READ)
        if (!is_blank(&r->line))
            return bad(r, "more lines follow the end");
    return state == LINE_NONE;
}

/* Collects pairs as long as lines have some. The line that ends them is held for the next call. */
static bool collect_pairs(struct dump_reader *r, struct dump_record *record, enum line_state *state)
{
    dump_block_clear(&r->payload);
    while ((*state = next_line(r)) == LINE_READ && r->parsed.kind == DUMP_LINE_PAIR &&
           r->payload.len < DUMP_BLOCK_BYTES) {
        if (!dump_block_add(&r->payload, &r->parsed.pair))
            return bad(r, "out of memory");
        if (r->payload.count == 1)
            record->number = r->number;
        record->last = r->number;
        r->totals.pairs++;
        r->totals.bytes += r->parsed.pair.key_len + r->parsed.pair.value_len;
        r->held = false;
    }
    record->pairs = r->payload.bytes;
    record->len = r->payload.len;
    record->count = r->payload.count;
    return true;
}

static bool take_line(struct dump_reader *r, struct dump_record *record, enum line_state state)
{
    record->number = record->last = r->number;
    record->kind = DUMP_END;
    if (state == LINE_NONE || r->parsed.kind == DUMP_LINE_END)
        return end_lines(r, state == LINE_READ);
    if (r->parsed.kind != DUMP_LINE_TABLE)
        return bad(r, "\"farside_dump\" may only be in the first line");
    r->table = r->parsed.table;
    r->any_table = true;
    r->totals.tables++;
    r->held = false;
    record->kind = DUMP_TABLE;
    return true;
}

static bool read_lines(struct dump_reader *r, struct dump_record *record)
{
    enum line_state state = LINE_NONE;
    *record = (struct dump_record){.kind = DUMP_PAIRS, .table = &r->table};
    if (!collect_pairs(r, record, &state))
        return false;
    if (record->count > 0)
        return true;
    return state != LINE_BAD && take_line(r, record, state);
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool open_binary(struct dump_reader *r)
{
    char magic[DUMP_MAGIC_BYTES];
    const size_t name = strlen("farside dump ");
    size_t got = fread(magic, 1, sizeof magic, r->file);
    r->offset = got;
    if (got < sizeof magic && ferror(r->file))
        return ended(r, "");
    if (got == sizeof magic && memcmp(magic, DUMP_MAGIC, name) == 0 && magic[name] != '1')
        return bad(r, "the dump has another version than 1");
    return (got == sizeof magic && memcmp(magic, DUMP_MAGIC, sizeof magic) == 0) ||
           bad(r, "this is not a dump of farside, or its first bytes are damaged");
}

static bool open_lines(struct dump_reader *r)
{
    r->number = 0;
    enum line_state state = next_line(r);
    if (state == LINE_NONE)
        return bad(r, "there is nothing");
    r->declared = state == LINE_READ && r->parsed.kind == DUMP_LINE_BEGIN;
    if (r->declared)
        r->held = false;
    return state == LINE_READ;
}

bool dump_open(struct dump_reader *r, FILE *file)
{
    *r = (struct dump_reader){.file = file, .sum = dump_first_sum()};
    int first = fgetc(file);
    if (first == EOF)
        return ferror(file) ? ended(r, "") : bad(r, "there is nothing");
    ungetc(first, file);
    r->json = first == '{' || isspace(first);
    return r->json ? open_lines(r) : open_binary(r);
}

bool dump_read(struct dump_reader *r, struct dump_record *record)
{
    return r->json ? read_lines(r, record) : read_record(r, record);
}

void dump_reader_free(struct dump_reader *r)
{
    dump_block_free(&r->payload);
    dump_block_free(&r->line);
    dump_block_free(&r->parsed.bytes);
}
