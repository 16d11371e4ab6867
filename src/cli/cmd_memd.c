/* farside memd: runs a memory node. */
#include "cli/cli.h"
#include "cli/incoming.h"
#include "memd/memd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 256
#define NO_FD       UINT64_MAX

struct memd_options {
    const char *listen[MEMD_LISTENERS_MAX];
    unsigned listens;
    const char *file, *secret_file;
    uint64_t size, threads, ready_fd;
    bool witness;
};

static void print_counts(struct memd *memd)
{
    struct wire_count_set c;

    memd_counts(memd, &c);
#define WIRE_X(name) printf("%s %" PRIu64 "\n", #name, c.name);
    WIRE_COUNTS_X(WIRE_X)
#undef WIRE_X
    fflush(stdout);
}

/* Prints the addresses, and writes them to --ready-fd. */
static int print_ready(const struct memd *memd, const struct memd_options *o)
{
    for (unsigned i = 0; i < memd->listeners; i++) {
        const char *address = memd->listener[i]->address;

        printf("listening at %s\n", address);
        if (o->ready_fd != NO_FD && dprintf((int)o->ready_fd, "%s\n", address) < 0)
            return cli_misused("memd", "cannot write to --ready-fd %d: %s", (int)o->ready_fd,
                               strerror(errno));
    }
    fflush(stdout);
    if (o->ready_fd != NO_FD)
        close((int)o->ready_fd);
    return CLI_OK;
}

static int serve(struct memd *memd, const struct memd_options *o, const sigset_t *signals)
{
    int code = CLI_OK, got;

    for (unsigned i = 0; i < o->listens && code == CLI_OK; i++) {
        int rc = memd_listen(memd, o->listen[i], (unsigned)o->threads);
        if (rc == FAR_BAD_URI) /* far_strerror() speaks of a pool's */
            code =
                cli_misused("memd", "cannot listen at '%s': %s", o->listen[i], far_error_detail());
        else if (rc != FAR_OK)
            code = cli_failed("memd", rc, "cannot listen at '%s'", o->listen[i]);
    }
    for (unsigned i = 0; i < o->listens && code == CLI_OK && memd->secret.bytes == 0; i++)
        if (strstr(o->listen[i], "://0.0.0.0:") || strstr(o->listen[i], "://[::]:"))
            fprintf(stderr,
                    "farside memd: warning: there is no secret, so anyone who reaches '%s' "
                    "can read and change the memory; give --secret-file FILE, or listen at one "
                    "address\n",
                    o->listen[i]);
    if (code == CLI_OK)
        code = print_ready(memd, o);
    while (code == CLI_OK && sigwait(signals, &got) == 0 && got != SIGTERM && got != SIGINT)
        print_counts(memd);
    memd_stop(memd);
    return code;
}

static int run(const struct memd_options *o)
{
    struct memd *memd = calloc(1, sizeof *memd);
    sigset_t signals;
    int code = CLI_OK;

    if (!memd)
        return cli_failed("memd", FAR_NO_MEMORY, "cannot start");
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
    memd->region.fd = -1;
    memd->proved = incoming_proved;
    int rc = incoming_guard();
    if (rc != FAR_OK)
        code = cli_failed("memd", rc, "cannot start");
    if (code == CLI_OK) {
        rc = wire_secret_load(o->secret_file, &memd->secret);
        if (rc != FAR_OK)
            code = cli_failed("memd", rc, "cannot use the secret");
        incoming_door(wire_knock(&memd->secret), &memd->turned_away);
    }
    if (code == CLI_OK) {
        rc = memd_region_open(&memd->region, o->size, o->file, o->witness);
        if (rc == FAR_OK)
            rc = memd_init(memd);
        code = rc == FAR_OK ? serve(memd, o, &signals)
                            : cli_failed("memd", rc, "cannot provide the memory");
    }
    memd_region_close(&memd->region);
    wire_secret_forget(&memd->secret);
    free(memd);
    return code;
}

static bool take_listen(const char *command, const char *text, void *arg)
{
    struct memd_options *o = arg;
    if (o->listens < MEMD_LISTENERS_MAX) {
        o->listen[o->listens++] = text;
        return true;
    }
    cli_misused(command, "too many --listen options: at most %u are allowed", MEMD_LISTENERS_MAX);
    return false;
}

int cmd_memd(int argc, char **argv)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct memd_options o = {.threads = processors < 4    ? 1
                                        : processors > 16 ? 8
                                                          : (uint64_t)processors / 2,
                             .ready_fd = NO_FD};
    const struct cli_option options[] = {
        {"listen", "URI",
         "address to listen at: ucx://HOST:PORT or verbs://HOST:PORT (required; may be repeated); "
         "port 0 takes any free port; the node prints its addresses when it is ready",
         .take = take_listen, .arg = &o, .needed = true},
        {"size", "BYTES",
         "bytes of memory, with k, m, g and t for powers of 1024 (required, unless --file holds a "
         "node's memory)",
         .large = &o.size, .min = DIRECT_NODE_BYTES_MIN, .max = DIRECT_NODE_BYTES_MAX,
         .bytes = true},
        {"witness", NULL,
         "keep no data: only vote, in a pool that is made with voters (takes 2 MiB)",
         .flag = &o.witness},
        {"file", "PATH", "keep the memory in this file, across restarts", .text = &o.file},
        {"threads", "N", "threads for each address (half of the processors, at most 8)",
         .large = &o.threads, .min = 1, .max = THREADS_MAX},
        {"secret-file", "PATH",
         "accept only clients that know the secret in this file (without this option, "
         "FARSIDE_SECRET_FILE or FARSIDE_SECRET, if set)",
         .text = &o.secret_file},
        {"ready-fd", "N", "also write the addresses to this descriptor, then close it",
         .large = &o.ready_fd, .max = 65535},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "memd",
        .usage = "--listen URI... {--size BYTES | --witness} [OPTION...]",
        .about =
            "Serves memory to the clients of a pool until a signal ends it. SIGTERM and SIGINT let "
            "it finish the requests that have arrived; SIGUSR1 prints its counters.",
        .options = options,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (o.witness && o.size != 0)
        return cli_misused("memd", "a witness has no size to choose: leave out --size");
    if (o.witness)
        o.size = MEMD_WITNESS_BYTES;
    if (o.size == 0 && !o.file)
        return cli_misused("memd", "missing option --size BYTES");
    return run(&o);
}
