#include "cli/progress.h"
#include "base/clock.h"
#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR   30u
#define EVERY 100000000u /* nanoseconds between two lines: a terminal may be slow */
#define LINE  256u

void progress_init(struct progress *p)
{
    *p = (struct progress){.shown = isatty(STDERR_FILENO)};
}

/* Notes what is done now, if it is something else than before. */
static void begin_work(struct progress *p, const char *what, uint64_t done)
{
    if (strncmp(p->what, what, sizeof p->what - 1) == 0)
        return;
    snprintf(p->what, sizeof p->what, "%s", what);
    p->since = clock_ns();
    p->first = done;
}

/* Is it time for another line? */
static bool is_due(struct progress *p, uint64_t now)
{
    if (now < p->next)
        return false;
    p->next = now + EVERY;
    return true;
}

/* Replaces the line, cut to the terminal's width: a longer one would wrap, and stay. */
static void print_line(struct progress *p, const char *line)
{
    struct winsize size = {.ws_col = 0};
    int columns =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
    fprintf(stderr, "\r\033[K%.*s", columns - 1, line);
    fflush(stderr);
    p->line_open = true;
}

void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t total)
{
    ASSERT(what);
    if (!p->shown || total == 0)
        return;
    if (done >= total) {
        progress_clear(p);
        return;
    }
    begin_work(p, what, done);
    uint64_t now = clock_ns();
    if (!is_due(p, now))
        return;

    char bar[BAR + 1], line[LINE], rest[32] = "";
    unsigned filled = (unsigned)((double)done / (double)total * BAR);
    memset(bar, '#', filled);
    memset(bar + filled, '.', BAR - filled);
    bar[BAR] = '\0';
    double seconds = (double)(now - p->since) / 1e9;
    if (done > p->first && seconds > 0.5)
        snprintf(rest, sizeof rest, ", %.0f s left",
                 (double)(total - done) * seconds / (double)(done - p->first));
    snprintf(line, sizeof line, "%s [%s] %3.0f %%%s", p->what, bar,
             100.0 * (double)done / (double)total, rest);
    print_line(p, line);
}

void progress_count(struct progress *p, const char *what, uint64_t pairs, uint64_t bytes)
{
    ASSERT(what);
    uint64_t now = p->shown ? clock_ns() : 0;
    if (!p->shown || !is_due(p, now))
        return;
    begin_work(p, what, bytes);
    char line[LINE], rest[32] = "";
    double seconds = (double)(now - p->since) / 1e9;
    if (seconds > 0.5)
        snprintf(rest, sizeof rest, ", %.1f MiB/s",
                 (double)(bytes - p->first) / (1 << 20) / seconds);
    snprintf(line, sizeof line, "%s: %" PRIu64 " pairs, %.1f MiB%s", p->what, pairs,
             (double)bytes / (1 << 20), rest);
    print_line(p, line);
}

void progress_clear(struct progress *p)
{
    if (p->line_open)
        fputs("\r\033[K", stderr);
    p->line_open = false;
    p->what[0] = '\0';
}
