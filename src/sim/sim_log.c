/* The time line of a run, for people. */
#include "sim/sim_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool sim_keep_log(struct sim *sim, size_t lines)
{
    free(sim->line);
    sim->line = lines ? malloc(lines * sizeof *sim->line) : NULL;
    sim->lines_max = sim->line ? lines : 0;
    sim->lines = sim->lines_lost = 0;
    return sim->lines_max == lines;
}

static void add_line(struct sim *sim, int client, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static void add_line(struct sim *sim, int client, const char *format, va_list args)
{
    if (sim->lines == sim->lines_max) {
        sim->lines_lost++;
        return;
    }
    struct sim_line *line = &sim->line[sim->lines++];
    line->at = sim->now;
    line->client = client;
    vsnprintf(line->text, sizeof line->text, format, args);
}

void sim_log_line(struct sim *sim, uint32_t client, const char *format, ...)
{
    if (sim->lines_max == 0)
        return;
    va_list args;
    va_start(args, format);
    add_line(sim, client == NOBODY ? -1 : (int)client, format, args);
    va_end(args);
}

void sim_note(struct sim *sim, const char *format, ...)
{
    if (sim->lines_max == 0)
        return;
    va_list args;
    va_start(args, format);
    add_line(sim, sim->running == NOBODY ? -1 : (int)sim->running, format, args);
    va_end(args);
}

static const char *const kind_name[] = {"READ", "WRITE", "CAS", "MCAS", "FAA"};

static void describe(const struct fab_verb *v, char *text, size_t room)
{
    const char *fence = (v->flags & FAB_FENCE) ? "fenced " : "";
    if (v->kind <= FAB_WRITE)
        snprintf(text, room, "%s%s %u:%#llx+%u", fence, kind_name[v->kind], v->node,
                 (unsigned long long)v->off, v->len);
    else
        snprintf(text, room, "%s%s %u:%#llx", fence, kind_name[v->kind], v->node,
                 (unsigned long long)v->off);
}

void sim_log_post(struct sim *sim, const struct sim_request *r)
{
    if (sim->lines_max == 0)
        return;
    char text[112], one[48];
    int used = 0;
    for (unsigned i = 0; i < r->count && used < (int)sizeof text - 48; i++) {
        describe(&r->verb[i].v, one, sizeof one);
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", i ? ", " : "", one);
    }
    bool all = used < (int)sizeof text - 48;
    sim_log_line(sim, r->client, "#%u posts %s%s", r->number, text, all ? "" : ", ...");
}

static void log_atomic(struct sim *sim, const struct sim_request *r, unsigned i, enum log_part part,
                       const char *what)
{
    const struct sim_verb *verb = &r->verb[i];
    const struct fab_verb *v = &verb->v;
    unsigned long long old = 0, new = verb->result;
    if (part == LOG_SECOND_HALF) { /* its buffer may be in use for something else */
        sim_log_line(sim, r->client, "#%u.%u %s writes %#llx", r->number, i, what, new);
        return;
    }
    memcpy(&old, v->buf, 8);
    if (old == new && v->kind != FAB_FAA)
        sim_log_line(sim, r->client, "#%u.%u %s found %#llx, not %#llx", r->number, i, what, old,
                     (unsigned long long)v->compare);
    else
        sim_log_line(sim, r->client, "#%u.%u %s found %#llx, %s %#llx", r->number, i, what, old,
                     part == LOG_FIRST_HALF ? "will write" : "wrote", new);
}

void sim_log_verb(struct sim *sim, const struct sim_request *r, unsigned i, enum log_part part,
                  uint64_t pieces)
{
    if (sim->lines_max == 0)
        return;
    const struct sim_verb *verb = &r->verb[i];
    char what[48];
    describe(&verb->v, what, sizeof what);
    if (verb->v.kind > FAB_WRITE)
        log_atomic(sim, r, i, part, what);
    else if (pieces == verb->left && !verb->torn)
        sim_log_line(sim, r->client, "#%u.%u %s", r->number, i, what);
    else
        sim_log_line(sim, r->client, "#%u.%u %s pieces %#llx of %#llx", r->number, i, what,
                     (unsigned long long)pieces, (unsigned long long)verb->left);
}

void sim_print_log(const struct sim *sim, FILE *out)
{
    for (size_t i = 0; i < sim->lines; i++) {
        const struct sim_line *line = &sim->line[i];
        if (line->client < 0)
            fprintf(out, "%12.3f us       %s\n", (double)line->at / 1e3, line->text);
        else
            fprintf(out, "%12.3f us  %*sc%d  %s\n", (double)line->at / 1e3, line->client * 4, "",
                    line->client, line->text);
    }
    if (sim->lines_lost > 0)
        fprintf(out, "... and %zu lines more\n", sim->lines_lost);
}
