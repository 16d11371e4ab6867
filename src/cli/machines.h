/* --machines and its companions: commands that several machines run together. */
#ifndef CLI_MACHINES_H
#define CLI_MACHINES_H

#include "bench/meet.h"
#include "cli/cli.h"

struct machines {
    unsigned count; /* 0: as many as were launched */
    bool given;
    unsigned rank;
    bool rank_given;
    const char *run; /* NULL: the name of the command */
    unsigned patience_s;
};
#define MACHINES_DEFAULT                                                                           \
    {                                                                                              \
        .count = 1, .patience_s = 10                                                               \
    }

#define MACHINES_OPTIONS(m)                                                                        \
    {"machines", "N|auto",                                                                         \
     "machines that measure together (1): start the same command on each; they meet in the pool, " \
     "and machine 0 prints and writes the results; auto: as many as mpirun or srun started",       \
     .take = machines_take_count, .arg = (m)},                                                     \
        {"rank", "N",                                                                              \
         "which of the machines this is, from 0 (OMPI_COMM_WORLD_RANK, else PMI_RANK, else "       \
         "SLURM_PROCID)",                                                                          \
         .take = machines_take_rank, .arg = (m)},                                                  \
        {"run", "NAME",                                                                            \
         "the name of what they do together, if the pool has several such runs at a time (that "   \
         "of the command)",                                                                        \
         .text = &(m)->run},                                                                       \
    {                                                                                              \
        "patience", "SECONDS",                                                                     \
            "a machine that does not answer for this long is given up (10); at the beginning, "    \
            "they wait 30 times as long for each other",                                           \
            .number = &(m)->patience_s, .min = 1, .max = 3600                                      \
    }

bool machines_take_count(const char *command, const char *text, void *arg);
bool machines_take_rank(const char *command, const char *text, void *arg);

/* Finds count and rank, in the environment if they were not given. Unless CLI_OK, the message is
 * printed. */
int machines_find(const char *command, struct machines *m);

/* Meets the others, if there are any; else *meet is NULL. `options` is what must be the same on
 * all. Unless CLI_OK, the message is printed. */
int machines_meet(const char *command, const struct machines *m, const char *pool,
                  const char *options, const atomic_bool *stop, struct meet **meet);

#endif
