#include "out/columns.h"
#include "out/text.h"

#include <stdlib.h>
#include <string.h>

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
