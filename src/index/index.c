#include "index/index.h"
#include "index/race/race.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct index_ops *const indexes[] = {&race_index};

const struct index_ops *index_at(unsigned i)
{
    return i < sizeof indexes / sizeof *indexes ? indexes[i] : NULL;
}

const struct index_ops *index_find(const char *name)
{
    const struct index_ops *ops = NULL;
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++)
        if (strcmp(ops->name, name) == 0)
            break;
    return ops;
}

const char *far_index_name(unsigned i)
{
    const struct index_ops *ops = index_at(i);
    return ops ? ops->name : NULL;
}

void index_violation(struct index_report *report, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    report->violations++;
    if (report->line)
        report->line(report->arg, text);
}
