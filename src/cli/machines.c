#include "cli/machines.h"
#include "base/err.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What launchers tell the processes that they start. A process that mpirun has started within a job
 * of Slurm has both, and mpirun's counts. */
static const struct launcher {
    const char *name, *rank, *size;
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS"},
};

bool machines_take_count(const char *command, const char *text, void *arg)
{
    struct machines *m = arg;
    uint64_t count = 0;
    bool good = strcmp(text, "auto") == 0 || text_number(text, 1, MEET_MACHINES_MAX, &count);
    if (!good)
        cli_misused(command, "invalid --machines '%s': expected a number from 1 to %u, or auto",
                    text, MEET_MACHINES_MAX);
    m->count = (unsigned)count;
    m->given = true;
    return good;
}

bool machines_take_rank(const char *command, const char *text, void *arg)
{
    struct machines *m = arg;
    uint64_t rank = 0;
    m->rank_given = text_number(text, 0, MEET_MACHINES_MAX - 1, &rank);
    if (!m->rank_given)
        cli_misused(command, "invalid --rank '%s': expected a number from 0 to %u", text,
                    MEET_MACHINES_MAX - 1);
    m->rank = (unsigned)rank;
    return m->rank_given;
}

/* A number of the environment. False if it is not there. */
static bool look_up(const char *name, uint64_t min, uint64_t max, unsigned *number)
{
    const char *text = getenv(name);
    uint64_t value = 0;
    if (!text || !text_number(text, min, max, &value))
        return false;
    *number = (unsigned)value;
    return true;
}

int machines_find(const char *command, struct machines *m)
{
    const struct launcher *by = NULL;
    unsigned rank = 0;
    if (!m->given && m->rank_given)
        return cli_misused(command, "--rank is one of several machines: say how many with "
                                    "--machines");
    if (m->count == 1 && m->rank == 0)
        return CLI_OK;
    for (unsigned i = 0; i < sizeof launchers / sizeof *launchers && !by; i++)
        if (look_up(launchers[i].rank, 0, UINT32_MAX, &rank))
            by = &launchers[i];
    if (m->count == 0 && (!by || !look_up(by->size, 1, MEET_MACHINES_MAX, &m->count)))
        return cli_misused(command,
                           "--machines auto: mpirun, mpiexec or srun must start this, with "
                           "up to %u processes; by hand, give --machines N --rank R",
                           MEET_MACHINES_MAX);
    if (!m->rank_given && !by)
        return cli_misused(command,
                           "with --machines %u, each machine needs its own --rank from 0 "
                           "to %u, unless mpirun, mpiexec or srun starts it",
                           m->count, m->count - 1);
    if (!m->rank_given)
        m->rank = rank;
    if (m->rank < m->count)
        return CLI_OK;
    return cli_misused(command, "of %u machines, the ranks are from 0 to %u: there is no %u%s%s",
                       m->count, m->count - 1, m->rank, m->rank_given ? "" : ", as in ",
                       m->rank_given ? "" : by->rank);
}

static void print_note(void *arg, const char *text)
{
    fprintf(stderr, "farside %s: %s\n", (const char *)arg, text);
}

int machines_meet(const char *command, const struct machines *m, const char *pool,
                  const char *options, const atomic_bool *stop, struct meet **meet)
{
    const struct meet_options how = {
        .pool = pool,
        .name = m->run ? m->run : command,
        .rank = m->rank,
        .machines = m->count,
        .options = options,
        .patience_ms = m->patience_s * 1000,
        .stop = stop,
        .note = print_note,
        .arg = (void *)(uintptr_t)command,
    };
    *meet = NULL;
    if (m->count == 1)
        return CLI_OK;
    int rc = meet_open(&how, meet);
    if (rc != FAR_OK)
        return cli_failed(command, rc, "machine %u cannot measure with the others", m->rank);
    if (m->rank > 0)
        fprintf(stderr, "farside %s: machine %u of %u: machine 0 (%s) has the results\n", command,
                m->rank, m->count, meet_host(*meet, 0));
    return CLI_OK;
}
