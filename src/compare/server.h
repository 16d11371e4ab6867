/*
 * Server programs that the benchmark starts and ends.
 *
 * A server listens at 127.0.0.1 alone. It has a process group of its own, so that control-C ends
 * only the benchmark, which ends the server; if the benchmark is killed, the system does. Its
 * working directory is removed before the program starts, so nothing is left on a disk. What the
 * program prints goes to memory, and its last line into the error if the server does not start.
 */
#ifndef COMPARE_SERVER_H
#define COMPARE_SERVER_H

#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#define SERVER_ARGS_MAX   32
#define SERVER_READY_MS   10000
#define SERVER_REPLY_MAX  16384
#define SERVER_FIELD_MAX  48
#define SERVER_READY_FD   3 /* of the new process, if it is started with a pipe */
#define SERVER_PORT_TRIES 3

struct server {
    pid_t pid; /* 0: there is none */
    int log;
    unsigned port;
};

/* Sets the path of a program that is in PATH. FAR_NO_FABRIC; the detail says which package has
 * it. */
int server_find(const char *name, const char *package, char path[PATH_MAX]);

/* Starts the program argv[0], which is a path. *ready (may be NULL) becomes the end of a pipe whose
 * other end the program has as SERVER_READY_FD. FAR_SYSTEM. */
int server_spawn(const char *const *argv, int *ready, struct server *server);

/* Ends it at once, and collects it. */
void server_end(struct server *server);

/* The error that the server did not start; ends it. */
int server_failed(const char *name, struct server *server);

/* A port of 127.0.0.1 that is free now. FAR_SYSTEM. */
int server_free_port(unsigned *port);

/*
 * Asks the server at its port, and returns its reply up to `end`. Tries again until the server
 * listens. FAR_SYSTEM: the process has ended, or does not answer within SERVER_READY_MS.
 */
int server_ask(const struct server *server, const char *request, const char *end,
               char reply[SERVER_REPLY_MAX]);

/* The text behind `name` in a reply, up to the end of the line. "" if there is none. */
void server_field(const char *reply, const char *name, char text[SERVER_FIELD_MAX]);

#endif
