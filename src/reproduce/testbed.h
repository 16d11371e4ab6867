/* The papers' testbeds, as the model has them, and machines that take their place. */
#ifndef REPRODUCE_TESTBED_H
#define REPRODUCE_TESTBED_H

#include "bench/meet.h"
#include "reproduce/plan.h"

/* RACE 5.2.3: up to 32 clients on a machine, 64 on two, 128 on four; ConnectX-5, one memory
 * node. */
struct plan_network testbed_race(unsigned clients);
/* SepHash 5.2: up to 16 threads on a machine, 128 on eight; ConnectX-5, one memory node. */
struct plan_network testbed_sephash(unsigned clients);
/* SHARD 4.1: three machines of up to 36 threads; ConnectX-5; each machine is a memory node, too. */
struct plan_network testbed_shard(unsigned threads);
/* RCuckoo 5.1: eight machines with up to 40 clients each; ConnectX-5, one memory node. */
struct plan_network testbed_rcuckoo(unsigned clients);
/* CHIME 5.1: ten machines with up to 64 clients each; ConnectX-6, one memory node. */
struct plan_network testbed_chime(unsigned clients);

/* Divides the threads of a benchmark among the machines: each has as many, or one less. */
void testbed_divide(struct meet *meet, struct bench_config *config);

#endif
