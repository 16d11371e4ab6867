#include "bench/tables.h"
#include "model/model.h"
#include "base/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MACHINE_MASK 0xffffffffffffull /* 12 hexadecimal digits */

struct owner {
    uint64_t machine; /* 0: unknown */
    long pid;
    uint64_t start; /* clock ticks after the machine began */
};

/* ---- processes ------------------------------------------------------------------------------- */

/* This machine since its last start, and the namespace that process numbers are from. */
static uint64_t this_machine(void)
{
    char boot[64] = "";
    struct stat space = {.st_ino = 0};
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool good = f && fgets(boot, sizeof boot, f) && stat("/proc/self/ns/pid", &space) == 0;
    if (f)
        fclose(f);
    return good ? hash_sum(boot, strlen(boot), space.st_ino) & MACHINE_MASK : 0;
}

/* When the process began: field 22 of its stat, the 20th behind its name. False if that cannot be
 * read. */
static bool process_start(long pid, uint64_t *start)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    size_t len = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[len] = '\0';
    char *at = strrchr(text, ')');
    for (unsigned field = 0; at && field < 20; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%" SCNu64, start) == 1;
}

static bool process_lives(const struct owner *o)
{
    uint64_t start = o->start;
    if (kill((pid_t)o->pid, 0) != 0 && errno == ESRCH)
        return false;
    return !process_start(o->pid, &start) || start == o->start;
}

/* ---- names ----------------------------------------------------------------------------------- */

bool tables_last(const struct bench_config *config)
{
    return strncmp(config->pool, "mem:", 4) != 0 && !model_named(config->pool);
}

bool tables_dropped(const struct bench_config *config)
{
    return !config->keep && tables_last(config);
}

void tables_name(const struct bench_config *config, const char *index, const char *suffix,
                 char name[FAR_NAME_MAX + 1])
{
    struct owner o = {.machine = this_machine(), .pid = getpid()};
    if (!tables_dropped(config)) {
        snprintf(name, FAR_NAME_MAX + 1, "bench-%s%s", index, suffix);
        return;
    }
    (void)process_start(o.pid, &o.start);
    snprintf(name, FAR_NAME_MAX + 1, TABLES_PREFIX "%012" PRIx64 "-%ld-%" PRIu64 "-%s%s", o.machine,
             o.pid, o.start, index, suffix);
}

/* Reads whose table that is. Returns what the name has behind it; NULL: not made by a benchmark. */
static const char *read_owner(const char *name, struct owner *o)
{
    int end = 0;
    bool good = sscanf(name, TABLES_PREFIX "%12" SCNx64 "-%ld-%" SCNu64 "-%n", &o->machine, &o->pid,
                       &o->start, &end) == 3;
    return good && end > 0 && name[end] != '\0' && o->pid > 0 ? name + end : NULL;
}

/* Whose table is that? */
enum whose {
    TABLES_NONE,   /* not made by a benchmark */
    TABLES_ALIVE,  /* a process that runs, perhaps this one */
    TABLES_DEAD,   /* a process that has ended */
    TABLES_FOREIGN /* a process of another machine, or of this one before it was restarted */
};

static enum whose whose_table(const char *name)
{
    struct owner o = {.machine = 0};
    if (!read_owner(name, &o))
        return TABLES_NONE;
    if (o.machine == 0 || o.machine != this_machine())
        return TABLES_FOREIGN;
    return process_lives(&o) ? TABLES_ALIVE : TABLES_DEAD;
}

/* ---- dropping -------------------------------------------------------------------------------- */

struct watch {
    const struct bench_observer *observer;
    const char *name; /* without its owner, which would leave no room for the bar */
};

/* A signal does not stop this: it ends what has begun. */
static bool on_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    const struct watch *w = arg;
    (void)what;
    if (w->observer->progress)
        w->observer->progress(w->observer->arg, "dropping", w->name, done, total);
    return true;
}

static void notify(const struct bench_observer *observer, const struct bench_drop *drop)
{
    if (observer->dropped)
        observer->dropped(observer->arg, drop);
}

void tables_drop(far_session *session, const char *name, bool left_over,
                 const struct bench_observer *observer)
{
    struct bench_drop drop = {.table = name, .left_over = left_over};
    struct owner o;
    const char *index = read_owner(name, &o);
    struct watch watch = {.observer = observer, .name = index ? index : name};
    struct far_table_info info;
    far_table *table = NULL;
    drop.status = far_table_open(session, name, NULL, &table);
    if (drop.status == FAR_OK && far_table_info(session, table, &info) == FAR_OK)
        drop.bytes = info.index_bytes + info.block_bytes;
    far_session_watch(session, on_progress, &watch);
    if (drop.status == FAR_OK)
        drop.status = far_table_drop(session, table);
    far_session_watch(session, NULL, NULL);
    if (drop.status != FAR_NO_TABLE) /* else another benchmark was faster */
        notify(observer, &drop);
}

struct list {
    unsigned count;
    struct {
        char name[FAR_NAME_MAX + 1];
        bool foreign;
    } * item;
};

static int collect(void *arg, const char *name, const char *index)
{
    struct list *list = arg;
    enum whose owner = whose_table(name);
    (void)index;
    if (owner != TABLES_DEAD && owner != TABLES_FOREIGN)
        return 0;
    void *grown = realloc(list->item, (list->count + 1) * sizeof *list->item);
    if (!grown)
        return FAR_NO_MEMORY;
    list->item = grown;
    snprintf(list->item[list->count].name, sizeof list->item->name, "%s", name);
    list->item[list->count++].foreign = owner == TABLES_FOREIGN;
    return 0;
}

int tables_drop_left(far_session *session, const struct bench_observer *observer)
{
    struct list list = {.count = 0};
    int rc = far_table_list(session, collect, &list);
    for (unsigned i = 0; i < list.count && rc == FAR_OK; i++) {
        struct bench_drop drop = {.table = list.item[i].name, .foreign = true};
        if (list.item[i].foreign)
            notify(observer, &drop);
        else
            tables_drop(session, list.item[i].name, true, observer);
    }
    free(list.item);
    return rc;
}
