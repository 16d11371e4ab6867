/*
 * farside doctor: looks at what commonly goes wrong.
 *
 * Each check prints one line: whether that is in order, and if not, what to do about it. A check
 * reads files of the system below `root`, so that tests can show it any machine.
 */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "farside.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum doctor_level { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_PROBLEM, DOCTOR_LEVELS };

struct doctor {
    const char *root;   /* "" but in tests */
    const char *scheme; /* of the URI; "" if there is none */
    unsigned rdma_devices;
    unsigned count[DOCTOR_LEVELS];
    struct json_t *checks; /* NULL: print text */
};

/* Reports one check. `advice` says what to do; NULL if there is nothing to be done. */
void doctor_say(struct doctor *d, enum doctor_level level, const char *check, const char *advice,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The level of something that only this fabric needs: a problem if the URI is for it. */
enum doctor_level doctor_needed_by(const struct doctor *d, const char *scheme);

#define DOCTOR_LINE 512
#define DOCTOR_PATH 1024
/* The path of a file of the system. */
const char *doctor_path(const struct doctor *d, char path[DOCTOR_PATH], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reads the first line of a file. False, and "", if there is none. */
bool doctor_read(const char *path, char line[DOCTOR_LINE]);
/* A limit of this process, from /proc/self/limits, such as "Max open files". UINT64_MAX: unlimited.
 * False if it cannot be read. */
bool doctor_limit(const struct doctor *d, const char *name, uint64_t *soft, uint64_t *hard);
/* "7.9 GiB" */
#define DOCTOR_BYTES 32
const char *doctor_bytes(uint64_t bytes, char text[DOCTOR_BYTES]);

/* ---- the checks ------------------------------------------------------------------------------ */

void doctor_machine(struct doctor *d); /* processors, clock, memory, limits */
void doctor_rdma(struct doctor *d);    /* devices, providers, locked memory; sets rdma_devices */
void doctor_ucx(struct doctor *d);     /* UCX and its transports; after doctor_rdma() */
void doctor_fabrics(struct doctor *d); /* of this build */
void doctor_pool(struct doctor *d, const char *uri);

#endif
