/* A memory node that runs out of file descriptors, by clients or by connections that say nothing,
 * is reachable again once they are gone. */
#include "support/memd_ports.h"
#include "fabric/rig.h"

#include <poll.h>

#define DESCRIPTORS 48 /* that the node may have more than when it starts */
#define CONNECTIONS (2 * DESCRIPTORS)
#define TRIES_MAX   100u  /* a tenth of a second each */
#define WAIT_MS     60000 /* at most */
#define AT          65536u

static struct memd_child node;

static bool works(struct rig *r)
{
    batch_read(&r->b, gaddr_make(0, AT), 0, r->buf, 8);
    return batch_flush(&r->b) == FAR_OK;
}

static bool can_connect(void)
{
    struct fab *fab = NULL;
    if (fab_open(memd_uri(&node, 1, ""), &fab) != FAR_OK)
        return false;
    struct rig *r = rig_on(fab);
    bool connected = works(r);
    rig_free(r);
    fab_close(fab);
    return connected;
}

/* The node may need a moment until it has got rid of the others. */
static void assert_reachable_in_the_end(void)
{
    for (unsigned tries = 0; !can_connect(); tries++) {
        assert_true(tries < TRIES_MAX);
        usleep(100000);
    }
}

static void clients_take_all_descriptors(void **state)
{
    struct fab *fab = NULL;
    struct rig *r[DESCRIPTORS];
    unsigned count = 0;
    bool refused = false;
    (void)state;
    assert_int_equal(fab_open(memd_uri(&node, 1, ""), &fab), FAR_OK);
    fab->ops->formatted(
        fab); /* or later clients wait until this one has made a pool, or has left */
    while (count < DESCRIPTORS && !refused) {
        r[count] = rig_on(fab); /* with a connection of its own */
        refused = !works(r[count++]);
    }
    assert_true(refused);
    while (count > 0)
        rig_free(r[--count]);
    fab_close(fab);
    assert_reachable_in_the_end();
}

static rlim_t nodes_descriptors(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)node.pid);
    DIR *dir = opendir(path);
    rlim_t count = 0;
    ASSERT(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2; /* . and .. */
}

/* ---- connections that say nothing ------------------------------------------------------------ */

/* Makes more connections than the node can have. It ends at least one at once. */
static void exhaust(const struct sockaddr_in *at, struct pollfd fds[CONNECTIONS])
{
    for (unsigned i = 0; i < CONNECTIONS; i++)
        fds[i] = (struct pollfd){.fd = memd_connect(at), .events = POLLIN};
    assert_true(poll(fds, CONNECTIONS, WAIT_MS) > 0);
}

static void silent_connections_take_all_descriptors(void **state)
{
    struct sockaddr_in at[PORTS_MAX];
    struct pollfd fds[CONNECTIONS];
    unsigned ports = memd_ports(&node, at);
    (void)state;
    assert_true(ports >= 2);
    for (unsigned i = 0; i < ports; i++) {
        exhaust(&at[i], fds);
        for (unsigned n = 0; n < ports; n++) { /* no listener gives up for that */
            struct pollfd other = {.fd = memd_connect(&at[n]), .events = POLLIN};
            assert_int_equal(poll(&other, 1, WAIT_MS), 1);
            close(other.fd);
        }
        for (unsigned n = 0; n < CONNECTIONS; n++)
            close(fds[n].fd);
        assert_reachable_in_the_end();
    }
}

int main(void)
{
    static const char *const more[] = {"--size", "8m", "--threads", "1", NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_take_all_descriptors),
        cmocka_unit_test(silent_connections_take_all_descriptors),
    };
    memd_start(&node, 0, more);
    const rlim_t most = nodes_descriptors() + DESCRIPTORS;
    const struct rlimit few = {most, most};
    ASSERT(prlimit(node.pid, RLIMIT_NOFILE, &few, NULL) == 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return memd_end(&node, SIGTERM) == 0 ? failed : 1;
}
