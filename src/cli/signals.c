#include "cli/cli.h"

#include <signal.h>
#include <string.h>

static atomic_bool stop;
static atomic_int first; /* the first signal that came; 0: none */

static void on_signal(int number)
{
    int none = 0;
    atomic_compare_exchange_strong(&first, &none, number);
    atomic_store(&stop, true);
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
}

const atomic_bool *cli_stop_on_signals(void)
{
    catch_signals(SA_RESTART);
    return &stop;
}

void cli_interrupt_io(void)
{
    if (!cli_stopped()) /* else the handler would be there for a second signal, too */
        catch_signals(0);
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
