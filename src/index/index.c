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

static void say(struct index_report *report, const char *format, va_list args)
{
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    if (report->line)
        report->line(report->arg, text);
}

void index_violation(struct index_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(report, format, args);
    va_end(args);
    report->violations++;
}

void index_stranded(struct index_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(report, format, args);
    va_end(args);
    report->stranded++;
}

void index_repaired(struct index_report *report, unsigned *count, const char *how)
{
    (*count)--;
    report->repaired++;
    if (report->line)
        report->line(report->arg, how);
}

static void journal_write(struct op *op, uint64_t first, uint64_t second)
{
    uint64_t *word = &op->pool_word[OP_POOL_WORDS - 2];
    word[0] = first;
    word[1] = second;
    batch_write(&op->batch, gaddr_make(0, 0),
                CLIENTS_OFF + op->client->slot * sizeof(struct client_slot) +
                    offsetof(struct client_slot, journal),
                word, 16);
}

void index_journal(struct op *op, const struct index_view *view, uint32_t what, uint64_t arg)
{
    journal_write(op, (uint64_t)what << 32 | (view->table->desc.id + 1), arg);
}

void index_journal_clear(struct op *op)
{
    journal_write(op, 0, 0);
}
