/* Checks of a pool: whether its nodes answer, how fast, and what room it has. */
#include "base/err.h"
#include "base/text.h"
#include "bench/probe.h"
#include "cli/cli.h"
#include "cli/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_POOL_YET   "there is none yet: the first command creates it"
#define LEASE_WAITED  10000u   /* ms; dead sessions are not looked for if it is longer */
#define SLOW_NS       1000000u /* a round trip that is worth a warning */
#define SLOW_PER_MILL 10u      /* of the lease */

/* What to do about an error of the fabric or the pool. */
static const char *advice_for(int status)
{
    switch (status) {
    case FAR_UNREACHABLE:
    case FAR_TIMEOUT:
    case FAR_UNKNOWN:
        return "see whether 'farside memd' runs there, the address and the port are right, and no "
               "firewall is in the way";
    case FAR_REFUSED:
        return "use the same secret as the node: secret=FILE, FARSIDE_SECRET_FILE or "
               "FARSIDE_SECRET";
    case FAR_NODE_LOST:
        return "the node was restarted, and its memory is gone: restart all nodes, and create the "
               "pool again";
    case FAR_LAYOUT:
        return "use the same version of Farside for nodes and clients; create the pool again if "
               "another "
               "version made it";
    case FAR_NOT_A_POOL:
        return "see whether the URI is right; size= creates a pool, and nodes must be named as "
               "when "
               "it was created";
    case FAR_CORRUPT:
        return "farside pool check URI --repair";
    case FAR_NO_CLIENT_SLOT:
        return "close some sessions; a pool that is created with clients=N has room for more";
    case FAR_NO_FABRIC:
        return "use a build that has this fabric";
    case FAR_UNSUPPORTED:
        return "see the messages about RDMA and UCX above";
    default:
        return NULL;
    }
}

static void say_error(struct doctor *d, const char *check, int status, const char *detail)
{
    doctor_say(d, DOCTOR_PROBLEM, check, advice_for(status), "%s%s%s%s", far_strerror(status),
               *detail ? " (" : "", detail, *detail ? ")" : "");
}

/* ---- the nodes ------------------------------------------------------------------------------- */

static void say_node(struct doctor *d, unsigned number, const struct probe_node *n)
{
    char check[32], bytes[DOCTOR_BYTES];
    snprintf(check, sizeof check, "node %u", number);
    if (n->status != FAR_OK) {
        say_error(d, check, n->status, n->detail);
        return;
    }
    bool slow = n->median_ns > SLOW_NS;
    doctor_say(d, slow ? DOCTOR_WARNING : DOCTOR_OK, check,
               slow ? "see whether the network or the node is busy, or other programs take the "
                      "processors of either machine"
                    : NULL,
               "answers, %s; a READ of 8 bytes takes %.2f us (least %.2f, 99 %% within %.2f; %u "
               "READs)",
               doctor_bytes(n->bytes, bytes), (double)n->median_ns / 1e3, (double)n->least_ns / 1e3,
               (double)n->p99_ns / 1e3, n->reads);
}

/* False if there is no pool to look at. *longest: the longest median of a round trip. */
static bool check_nodes(struct doctor *d, const char *uri, uint64_t *longest)
{
    static struct probe probe; /* large */
    bool good = true;
    int rc = probe_run(uri, cli_stop_on_signals(), &probe);
    if (rc != FAR_OK) {
        say_error(d, "pool", rc, far_error_detail());
        return false;
    }
    for (unsigned i = 0; i < probe.nodes; i++) {
        const struct probe_node *n = &probe.node[i];
        say_node(d, i, n);
        good &= n->status == FAR_OK;
        *longest = n->median_ns > *longest ? n->median_ns : *longest;
    }
    if (good && probe.empty && strcmp(d->scheme, "mem") != 0)
        doctor_say(d, DOCTOR_OK, "pool", NULL, NO_POOL_YET);
    return good && !probe.empty;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* Sessions that have died keep their slot and their memory until others take notice. To find them
 * takes a lease and a half. */
static void check_sessions(struct doctor *d, far_session *session, const struct far_pool_info *info)
{
    bool crowded = info->clients * 10ull >= info->clients_max * 9ull;
    bool look = info->clients > 1 && probe_lease_ms(session) <= LEASE_WAITED;
    unsigned dead = 0;
    far_session_watch(session, cli_go_on, NULL);
    int rc = look ? probe_dead(session, &dead) : FAR_OK;
    far_session_watch(session, NULL, NULL);
    if (rc != FAR_OK && rc != FAR_STOPPED)
        say_error(d, "sessions", rc, far_error_detail());
    if (dead > 0)
        doctor_say(d, DOCTOR_WARNING, "sessions",
                   "free what they hold: farside pool check URI --repair",
                   "%u of %u are open, with this one; %u of them %s silent: killed or stopped",
                   info->clients, info->clients_max, dead, dead == 1 ? "is" : "are");
    else
        doctor_say(d, crowded ? DOCTOR_WARNING : DOCTOR_OK, "sessions",
                   crowded ? "close some; a pool that is created with clients=N has room for "
                             "more"
                           : NULL,
                   "%u of %u are open, with this one", info->clients, info->clients_max);
}

static void check_room(struct doctor *d, far_session *session)
{
    struct far_pool_info info;
    char total[DOCTOR_BYTES], left[DOCTOR_BYTES];
    int rc = far_pool_info(session, &info);
    if (rc != FAR_OK) {
        say_error(d, "pool", rc, far_error_detail());
        return;
    }
    bool full = info.bytes_free < info.bytes_total / 20;
    doctor_say(d, full ? DOCTOR_WARNING : DOCTOR_OK, "memory",
               full ? "see what is free again or in use: farside stat URI" : NULL,
               "%s, of which %s were never used", doctor_bytes(info.bytes_total, total),
               doctor_bytes(info.bytes_free, left));
    check_sessions(d, session, &info);
    doctor_say(d, DOCTOR_OK, "tables", NULL, "%u; layout version %u", info.tables,
               info.layout_version);
}

static void check_lease(struct doctor *d, const far_session *session, uint64_t round_trip)
{
    uint64_t lease = probe_lease_ms(session);
    bool brief = round_trip > lease * 1000 * SLOW_PER_MILL;
    doctor_say(d, brief ? DOCTOR_WARNING : DOCTOR_OK, "lease",
               brief ? "create the pool with a longer one: lease=MS" : NULL,
               brief ? "%" PRIu64 " ms is short for such round trips: sessions may be taken for "
                       "dead"
                     : "%" PRIu64 " ms",
               lease);
}

static void check_pool(struct doctor *d, const char *uri, uint64_t round_trip)
{
    far_pool *pool = NULL;
    far_session *session = NULL;
    int rc = far_pool_open(uri, &pool);
    if (rc == FAR_OK)
        rc = far_session_open(pool, NULL, &session);
    if (rc != FAR_OK) {
        say_error(d, "pool", rc, far_error_detail());
    } else {
        check_room(d, session);
        check_lease(d, session, round_trip);
    }
    far_session_close(session);
    far_pool_close(pool);
}

/* Is there no such shared memory? */
static bool missing(const struct uri *uri)
{
    char path[URI_TEXT_MAX + 32];
    snprintf(path, sizeof path, "%s%s", *uri->rest == '/' ? "" : "/dev/shm/farside-", uri->rest);
    return access(path, F_OK) != 0 && errno == ENOENT;
}

void doctor_pool(struct doctor *d, const char *text)
{
    struct uri uri;
    char bare[URI_TEXT_MAX];
    uint64_t round_trip = 0;
    if (uri_parse(text, &uri) != FAR_OK)
        return; /* it was checked before */
    /* Without options, a pool of shared memory is never created. A device needs them. */
    if (strcmp(uri.scheme, "shm") == 0 && strncmp(uri.rest, "/dev/", 5) != 0) {
        if (uri_option(&uri, "size") && missing(&uri)) {
            doctor_say(d, DOCTOR_OK, "pool", NULL, NO_POOL_YET);
            return;
        }
        snprintf(bare, sizeof bare, "shm:%.*s", (int)sizeof bare - 5, uri.rest);
        text = bare;
    }
    if (check_nodes(d, text, &round_trip) && !cli_stopped())
        check_pool(d, text, round_trip);
}
