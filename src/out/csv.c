#include "out/csv.h"

#include <string.h>

void csv_text(struct csv *c, const char *text)
{
    bool quoted = text[strcspn(text, ",\"\r\n")] != '\0';
    fputs(c->begun ? "," : "", c->out);
    fputs(quoted ? "\"" : "", c->out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', c->out);
        fputc(*text, c->out);
    }
    fputs(quoted ? "\"" : "", c->out);
    c->begun = true;
}

void csv_value(struct csv *c, const json_t *value)
{
    char number[32] = "";
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(number, sizeof number, json_is_true(value) ? "true" : "false");
    csv_text(c, json_is_string(value) ? json_string_value(value) : number);
}

void csv_end(struct csv *c)
{
    fputs("\r\n", c->out);
    c->begun = false;
}
