/* farside memd: a memory node. */
#include "cli/cli.h"
#include "memd/memd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 256

struct memd_options {
    const char *listen[MEMD_LISTENERS_MAX];
    unsigned listens;
    const char *file, *secret_file;
    uint64_t size, threads, ready_fd;
    bool has_ready_fd;
};

static void usage(void)
{
    fputs("usage: farside memd --listen URI... --size BYTES [OPTION...]\n"
          "\n"
          "Serves memory to the clients of a pool until it is told to stop. SIGTERM and SIGINT\n"
          "finish what has arrived and end it, SIGUSR1 prints what it has done so far.\n"
          "\n"
          "  --listen URI        where: ucx://HOST:PORT or verbs://HOST:PORT; may be given\n"
          "                      several times. Port 0 takes any that is free. The address taken\n"
          "                      is printed once it is ready\n"
          "  --size BYTES        how much memory (k, m, g, t)\n"
          "  --file PATH         keep it in this file, over restarts\n"
          "  --threads N         threads for each address (half of the processors, 8 at most)\n"
          "  --secret-file PATH  let only those in who know what is in this file\n"
          "                      (FARSIDE_SECRET_FILE or FARSIDE_SECRET if it is not given)\n"
          "  --ready-fd N        write the addresses to this descriptor too, then close it\n"
          "  -h, --help          show this\n",
          stdout);
}

static void print_counts(struct memd *memd)
{
    struct wire_count_set c;

    memd_counts(memd, &c);
#define WIRE_X(name) printf("%s %" PRIu64 "\n", #name, c.name);
    WIRE_COUNTS_X(WIRE_X)
#undef WIRE_X
    fflush(stdout);
}

/* Says where it listens, on the output and to whoever waits for it. */
static int say_ready(const struct memd *memd, const struct memd_options *o)
{
    for (unsigned i = 0; i < memd->listeners; i++) {
        const char *address = memd->listener[i]->address;

        printf("listening at %s\n", address);
        if (o->has_ready_fd && dprintf((int)o->ready_fd, "%s\n", address) < 0)
            return cli_misused("memd", "--ready-fd %d: %s", (int)o->ready_fd, strerror(errno));
    }
    fflush(stdout);
    if (o->has_ready_fd)
        close((int)o->ready_fd);
    return CLI_OK;
}

static int serve(struct memd *memd, const struct memd_options *o, const sigset_t *signals)
{
    int code = CLI_OK, got;

    for (unsigned i = 0; i < o->listens && code == CLI_OK; i++) {
        int rc = memd_listen(memd, o->listen[i], (unsigned)o->threads);

        if (rc)
            code = cli_failed("memd", rc, "cannot listen at '%s'", o->listen[i]);
    }
    if (code == CLI_OK)
        code = say_ready(memd, o);
    while (code == CLI_OK && sigwait(signals, &got) == 0 && got != SIGTERM && got != SIGINT)
        print_counts(memd);
    memd_stop(memd);
    return code;
}

static int run(const struct memd_options *o)
{
    struct memd *memd = calloc(1, sizeof *memd);
    sigset_t signals;
    int code = CLI_OK, rc;

    if (!memd)
        return cli_failed("memd", FAR_NO_MEMORY, "cannot start");
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads */
    memd->region.fd = -1;
    rc = wire_secret_load(o->secret_file, &memd->secret);
    if (rc)
        code = cli_failed("memd", rc, "cannot use the secret");
    if (code == CLI_OK) {
        rc = memd_region_open(&memd->region, o->size, o->file);
        if (!rc)
            rc = memd_init(memd);
        code = rc ? cli_failed("memd", rc, "cannot provide the memory") : serve(memd, o, &signals);
    }
    memd_region_close(&memd->region);
    free(memd);
    return code;
}

static bool take_option(struct memd_options *o, int id)
{
    switch (id) {
    case 'l':
        if (o->listens == MEMD_LISTENERS_MAX)
            cli_misused("memd", "more than %u times --listen", MEMD_LISTENERS_MAX);
        else
            o->listen[o->listens++] = optarg;
        return o->listens <= MEMD_LISTENERS_MAX;
    case 's':
        return cli_size("memd", "--size", DIRECT_NODE_BYTES_MIN, DIRECT_NODE_BYTES_MAX, &o->size);
    case 'f':
        o->file = optarg;
        return true;
    case 't':
        return cli_count("memd", "--threads", 1, THREADS_MAX, &o->threads);
    case 'k':
        o->secret_file = optarg;
        return true;
    default:
        o->has_ready_fd = true;
        return cli_count("memd", "--ready-fd", 0, 65535, &o->ready_fd);
    }
}

int cmd_memd(int argc, char **argv)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},
        {"size", required_argument, NULL, 's'},
        {"file", required_argument, NULL, 'f'},
        {"threads", required_argument, NULL, 't'},
        {"secret-file", required_argument, NULL, 'k'},
        {"ready-fd", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct memd_options o = {.threads = processors < 4    ? 1
                                        : processors > 16 ? 8
                                                          : (uint64_t)processors / 2};
    int id;

    opterr = 0;
    while ((id = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (id == 'h') {
            usage();
            return CLI_OK;
        }
        if (id == '?' || id == ':')
            return cli_bad_option("memd", id, argv);
        if (!take_option(&o, id))
            return CLI_MISUSED;
    }
    if (optind < argc)
        return cli_misused("memd", "'%s' is one argument too many", argv[optind]);
    if (o.listens == 0)
        return cli_misused("memd", "--listen URI is needed");
    if (o.size == 0 && o.file == NULL)
        return cli_misused("memd", "--size BYTES is needed");
    return run(&o);
}
