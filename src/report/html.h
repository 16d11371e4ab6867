/* Parts of a page in HTML that needs nothing but itself: no network, no other file. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Writes text, in which <, >, &, " and ' are escaped. Characters that neither HTML nor XML has
 * become "\xHH". */
void html_text(FILE *out, const char *text);

/* Head with style, and the script that shows values under the pointer; then the page is open. */
void html_begin(FILE *out, const char *title);
void html_end(FILE *out);

/* The style of an index, by its name in any spelling: "race". NULL: it is no known index. */
const char *html_index_style(const char *name);
/* An index as its paper writes it: "SepHash". Another name is returned as it is. */
const char *html_index_title(const char *name);
/* The style of the n-th of things that are no indexes. */
const char *html_other_style(unsigned n);

/* A legend of `count` names with their styles. */
void html_legend(FILE *out, unsigned count, const char *const *names, const char *const *styles);

/* ---- tables: between begin and end, rows of heads, texts and numbers ------------------------------
 *
 * `open`: people see the table without a click.
 */
void html_table_begin(FILE *out, const char *what, bool open);
void html_table_row(FILE *out);
void html_table_head(FILE *out, const char *text);
/* A text that is aligned left, and one that stands among numbers. */
void html_table_text(FILE *out, const char *text);
void html_table_field(FILE *out, const char *text);
/* A number of the results, with its path. If there is none, the field is empty. */
void html_table_number(FILE *out, const json_t *root, const char *path, ...)
    __attribute__((format(printf, 3, 4)));
void html_table_end(FILE *out);

#endif
