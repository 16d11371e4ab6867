#include "cli/progress.h"
#include "base/clock.h"
#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR         30u
#define COUNT_EVERY 200000000u /* nanoseconds between two lines of counts */

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

    char bar[BAR + 1];
    unsigned filled = (unsigned)((double)done / (double)total * BAR);
    memset(bar, '#', filled);
    memset(bar + filled, '.', BAR - filled);
    bar[BAR] = '\0';
    double seconds = (double)(clock_ns() - p->since) / 1e9;
    fprintf(stderr, "\r\033[K%s [%s] %3.0f %%", p->what, bar, 100.0 * (double)done / (double)total);
    if (done > p->first && seconds > 0.5) {
        double left = (double)(total - done) * seconds / (double)(done - p->first);
        fprintf(stderr, ", %.0f s left", left);
    }
    fflush(stderr);
    p->line_open = true;
}

void progress_count(struct progress *p, const char *what, uint64_t pairs, uint64_t bytes)
{
    ASSERT(what);
    uint64_t now = p->shown ? clock_ns() : 0;
    if (!p->shown || now < p->next)
        return;
    begin_work(p, what, bytes);
    p->next = now + COUNT_EVERY;
    double seconds = (double)(now - p->since) / 1e9;
    fprintf(stderr, "\r\033[K%s: %" PRIu64 " pairs, %.1f MiB", p->what, pairs,
            (double)bytes / (1 << 20));
    if (seconds > 0.5)
        fprintf(stderr, ", %.1f MiB/s", (double)(bytes - p->first) / (1 << 20) / seconds);
    fflush(stderr);
    p->line_open = true;
}

void progress_clear(struct progress *p)
{
    if (p->line_open)
        fputs("\r\033[K", stderr);
    p->line_open = false;
    p->what[0] = '\0';
}
