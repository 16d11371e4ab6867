/* The style of pages, and their script. */
#ifndef REPORT_STYLE_H
#define REPORT_STYLE_H

extern const char style_css[];
extern const char style_script[];

#endif
