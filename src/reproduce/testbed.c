#include "reproduce/testbed.h"

/* As few machines as possible, with at most this many clients on each. */
static struct plan_network spread(const char *nic, unsigned clients, unsigned on_a_machine)
{
    unsigned machines = (clients + on_a_machine - 1) / on_a_machine;
    ASSERT(clients % machines == 0);
    return (struct plan_network){
        .nic = nic, .machines = machines, .threads = clients / machines, .depth = 1, .nodes = 1};
}

struct plan_network testbed_race(unsigned clients)
{
    return spread("cx5", clients, 32);
}

struct plan_network testbed_sephash(unsigned clients)
{
    return spread("cx5", clients, 16);
}

struct plan_network testbed_shard(unsigned threads)
{
    return (struct plan_network){
        .nic = "cx5", .machines = 3, .threads = threads, .depth = 1, .nodes = 3};
}

struct plan_network testbed_rcuckoo(unsigned clients)
{
    struct plan_network n = spread("cx5", clients, clients > 8 ? clients / 8 : 1);
    n.locks_in_nic = true;
    return n;
}

struct plan_network testbed_chime(unsigned clients)
{
    struct plan_network n = spread("cx6", clients, clients > 10 ? clients / 10 : 1);
    n.gbits = 100;
    return n;
}

void testbed_divide(struct meet *meet, struct bench_config *config)
{
    config->meet = meet;
    config->machines = meet_machines(meet);
    config->rank = meet_rank(meet);
    config->clients = config->threads;
    config->threads = (config->clients + config->machines - 1) / config->machines;
}
