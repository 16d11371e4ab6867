#include "bench/text.h"

#include <inttypes.h>
#include <stdarg.h>
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

const char *text_range(struct bench_range range, char text[TEXT_MAX])
{
    if (range.min == range.max)
        snprintf(text, TEXT_MAX, "%u", range.min);
    else
        snprintf(text, TEXT_MAX, "%u to %u", range.min, range.max);
    return text;
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
