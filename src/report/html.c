#include "report/html.h"

#include "report/lookup.h"
#include "report/number.h"
#include "report/style.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

void html_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if (c == '\'')
            fputs("&#39;", out);
        else if ((c < 0x20 && c != '\t' && c != '\n') || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
}

void html_begin(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          out);
    html_text(out, title);
    fprintf(out, "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n%s</style>\n</head>\n",
            style_css);
    fputs("<body>\n<main>\n", out);
}

void html_end(FILE *out)
{
    fprintf(out,
            "</main>\n<div id=\"tip\" hidden></div>\n<script>\n%s</script>\n</body>\n</html>\n",
            style_script);
}

/* ---- indexes ---------------------------------------------------------------------------------- */

static const struct {
    const char *style, *title;
} indexes[] = {
    {"race", "RACE"},       {"sephash", "SepHash"}, {"shard", "SHARD"},
    {"rcuckoo", "RCuckoo"}, {"chime", "CHIME"},
};
#define INDEXES (sizeof indexes / sizeof *indexes)

const char *html_index_style(const char *name)
{
    for (unsigned i = 0; i < INDEXES; i++)
        if (strcasecmp(indexes[i].style, name) == 0)
            return indexes[i].style;
    return NULL;
}

const char *html_index_title(const char *name)
{
    for (unsigned i = 0; i < INDEXES; i++)
        if (strcasecmp(indexes[i].style, name) == 0)
            return indexes[i].title;
    return name;
}

const char *html_other_style(unsigned n)
{
    return indexes[n % INDEXES].style;
}

void html_legend(FILE *out, unsigned count, const char *const *names, const char *const *styles)
{
    fputs("<ul class=\"legend\">", out);
    for (unsigned i = 0; i < count; i++) {
        fprintf(out, "<li class=\"%s\"><i></i>", styles[i]);
        html_text(out, names[i]);
        fputs("</li>", out);
    }
    fputs("</ul>\n", out);
}

/* ---- tables ----------------------------------------------------------------------------------- */

void html_table_begin(FILE *out, const char *what, bool open)
{
    fprintf(out, "<details%s><summary>", open ? " open" : "");
    html_text(out, what);
    fputs("</summary><div class=\"wide\"><table>\n<tr>", out);
}

void html_table_row(FILE *out)
{
    fputs("</tr>\n<tr>", out);
}

void html_table_head(FILE *out, const char *text)
{
    fputs("<th>", out);
    html_text(out, text);
    fputs("</th>", out);
}

void html_table_text(FILE *out, const char *text)
{
    fputs("<td class=\"text\">", out);
    html_text(out, text);
    fputs("</td>", out);
}

void html_table_field(FILE *out, const char *text)
{
    fputs("<td>", out);
    html_text(out, text);
    fputs("</td>", out);
}

void html_table_number(FILE *out, const json_t *root, const char *path, ...)
{
    char full[LOOKUP_PATH_BYTES], text[NUMBER_BYTES];
    va_list args;
    va_start(args, path);
    vsnprintf(full, sizeof full, path, args);
    va_end(args);
    double number = lookup_number(root, full);
    if (isnan(number)) {
        fputs("<td></td>", out);
        return;
    }
    fputs("<td data-json=\"", out);
    html_text(out, full);
    fprintf(out, "\" data-value=\"%.9g\">%s</td>", number, number_grouped(number, text));
}

void html_table_end(FILE *out)
{
    fputs("</tr>\n</table></div></details>\n", out);
}
