/* Parts that the two kinds of pages have in common: facts, and sections with panels side by side. */
#ifndef REPORT_PART_H
#define REPORT_PART_H

#include <jansson.h>
#include <stdio.h>

/* A fact, in a list of them: its name and its text. */
void part_fact(FILE *out, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The machine on which it ran, as a few facts. NULL: it is not known. */
void part_machine(FILE *out, const json_t *machine);

/* A section of charts, and a panel in it: a caption in bold and one in plain type. */
void part_section(FILE *out, const char *title, const char *note);
void part_panels(FILE *out);
void part_panel(FILE *out, const char *caption, const char *plain);
void part_panel_end(FILE *out);
void part_panels_end(FILE *out);
void part_section_end(FILE *out);

#endif
