#include "cli/cli.h"

#include <signal.h>
#include <unistd.h>

static atomic_bool stop;
static atomic_int first;       /* the first signal that came; 0: none           */
static atomic_bool interrupts; /* signals end reads and writes that wait        */
static bool caught;            /* signals do not end the program at once        */

/* One EINTR is not enough to end a write: if a part was written before, the library goes on with
 * the rest, and waits again. So SIGALRM follows, once a second. */
static void on_alarm(int number)
{
    (void)number;
    if (atomic_load(&interrupts))
        alarm(1);
}

static void on_signal(int number)
{
    int none = 0;
    atomic_compare_exchange_strong(&first, &none, number);
    atomic_store(&stop, true);
    on_alarm(0);
}

static void catch_signals(int flags)
{
    static const int once[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | flags};
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof once / sizeof *once; i++)
        sigaction(once[i], &action, NULL);
    action.sa_flags = flags;
    sigaction(SIGPIPE, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* the write fails */
    caught = true;
}

const atomic_bool *cli_stop_on_signals(void)
{
    catch_signals(SA_RESTART);
    return &stop;
}

void cli_interrupt_io(bool interrupt)
{
    struct sigaction action = {.sa_handler = on_alarm};
    sigemptyset(&action.sa_mask);
    if (!caught)
        return;
    atomic_store(&interrupts, interrupt);
    sigaction(SIGALRM, &action, NULL);
    if (!cli_stopped()) /* else the handler would be there for a second signal, too */
        catch_signals(interrupt ? 0 : SA_RESTART);
    else
        alarm(interrupt ? 1 : 0);
}

bool cli_stopped(void)
{
    return atomic_load(&stop);
}

bool cli_interrupted(void)
{
    return cli_stopped() && atomic_load(&first) != SIGPIPE;
}

int cli_end(int code)
{
    int number = atomic_load(&first);
    if (number == 0)
        return code;
    signal(number, SIG_DFL);
    raise(number);
    return 128 + number; /* the signal is blocked */
}
