#include "out/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *text_grouped(uint64_t n, char text[TEXT_MAX])
{
    char digits[TEXT_MAX];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n);
    char *at = text;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return text;
}

char *text_fit(double value, int width, int decimals, char text[TEXT_MAX])
{
    static const char units[] = "kMGTPE";
    const char *unit = units;
    int len = 0;
    for (int d = decimals; d >= 0; d--) {
        len = snprintf(text, TEXT_MAX, "%.*f", d, value);
        if (len <= width)
            return text;
    }
    for (; *unit && len > width; unit++) {
        value /= 1000;
        len = snprintf(text, TEXT_MAX, "%.0f%c", value, *unit);
    }
    return text;
}

void text_wrap(FILE *out, const char *head, const char *text)
{
    int indent = (int)strlen(head), column = indent;
    fputs(head, out);
    for (const char *at = text; *at; at += strspn(at, " ")) {
        int word = (int)strcspn(at, " "), space = column > indent;
        if (space && column + space + word > TEXT_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
            space = 0;
        }
        int room = TEXT_COLUMNS - column - space;
        int piece = word < room ? word : room;
        fprintf(out, "%*s%.*s", space, "", piece, at);
        column += space + piece;
        at += piece;
    }
    fputs("\n", out);
}

const char *text_range(unsigned least, unsigned most, char text[TEXT_MAX])
{
    if (least == most)
        snprintf(text, TEXT_MAX, "%u", least);
    else
        snprintf(text, TEXT_MAX, "%u to %u", least, most);
    return text;
}

const char *text_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

void text_say(FILE *out, const char *head, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_wrap(out, head, text);
}

void columns_text(struct columns *c, const char *text)
{
    int width = c->column[c->at].width, len = (int)strlen(text);
    int pad = abs(width) > len ? abs(width) - len : 0;
    c->skipped += c->at == 0 ? c->indent : c->gap ? c->gap : 1;
    c->skipped += width > 0 ? pad : 0;
    if (len > 0) {
        fprintf(c->out, "%*s%s", c->skipped, "", text);
        c->skipped = 0;
    }
    c->skipped += width < 0 ? pad : 0;
    c->at++;
}

void columns_number(struct columns *c, double value, int decimals)
{
    char text[TEXT_MAX];
    columns_text(c, text_fit(value, abs(c->column[c->at].width), decimals, text));
}

void columns_end(struct columns *c)
{
    fputs("\n", c->out);
    c->at = 0;
    c->skipped = 0;
}

void columns_heads(struct columns *c, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        columns_text(c, c->column[i].head);
    columns_end(c);
}
