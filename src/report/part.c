#include "report/part.h"

#include "report/html.h"
#include "report/lookup.h"

#include <stdarg.h>

void part_fact(FILE *out, const char *name, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputs("<div><dt>", out);
    html_text(out, name);
    fputs("</dt><dd>", out);
    html_text(out, text);
    fputs("</dd></div>\n", out);
}

void part_machine(FILE *out, const json_t *machine)
{
    double memory = lookup_number(machine, "memory_bytes") / (1 << 30);
    if (!machine)
        return;
    part_fact(out, "processor", "%s", lookup_text(machine, "processor"));
    part_fact(out, "processors and memory", "%.0f processors, %.1f GiB",
              lookup_number(machine, "processors"), memory);
    part_fact(out, "system", "%s, %s", lookup_text(machine, "system"),
              lookup_text(machine, "architecture"));
}

void part_section(FILE *out, const char *title, const char *note)
{
    fputs("<section>\n<h2>", out);
    html_text(out, title);
    fputs("</h2>\n<p class=\"note\">", out);
    html_text(out, note);
    fputs("</p>\n", out);
}

void part_panels(FILE *out)
{
    fputs("<div class=\"panels\">\n", out);
}

void part_panel(FILE *out, const char *caption, const char *plain)
{
    fputs("<figure><figcaption>", out);
    html_text(out, caption);
    fputs(" <span>", out);
    html_text(out, plain);
    fputs("</span></figcaption>\n", out);
}

void part_panel_end(FILE *out)
{
    fputs("</figure>\n", out);
}

void part_panels_end(FILE *out)
{
    fputs("</div>\n", out);
}

void part_section_end(FILE *out)
{
    fputs("</section>\n", out);
}
