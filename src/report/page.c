#include "report/page.h"

#include <string.h>

/* The page, which cmake/page.cmake has joined. */
extern const unsigned char page_template[];

/* Stands where the results belong. */
#define MARK "@RESULTS@"

/* In JSON, '<' occurs only in strings. It is escaped there, so that no string can end the page's
 * element or begin a comment in it. */
static int put_json(const char *text, size_t len, void *out)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] == '<')
            fputs("\\u003c", out);
        else
            fputc(text[i], out);
    return 0;
}

bool page_write(FILE *out, const json_t *results)
{
    const char *page = (const char *)page_template, *mark = strstr(page, MARK);
    fwrite(page, 1, (size_t)(mark - page), out);
    bool good = json_dump_callback(results, put_json, out,
                                   JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) == 0;
    fputs(mark + strlen(MARK), out);
    return good;
}
