#include "base/process.h"

#include "base/err.h"

#include <pthread.h>

unsigned process_number_now = 1;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int watch_error;

static void in_child(void)
{
    __atomic_add_fetch(&process_number_now, 1, __ATOMIC_RELAXED);
}

static void watch_forks(void)
{
    watch_error = pthread_atfork(NULL, NULL, in_child);
}

int process_number(unsigned *number)
{
    pthread_once(&once, watch_forks);
    if (watch_error != 0)
        return err_fail(FAR_NO_MEMORY, "no memory to watch for fork()");
    *number = __atomic_load_n(&process_number_now, __ATOMIC_RELAXED);
    return FAR_OK;
}
