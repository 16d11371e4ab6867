/*
 * Parameters of NICs, with their sources.
 *
 * [S]  raw results published with the SMART framework (ASPLOS'24): ConnectX-6, 200 Gb/s InfiniBand,
 *      a client with 96 hardware threads, verbs of 8 bytes. Two grids of READs and WRITEs over
 *      threads and outstanding verbs, and curves over ways to share doorbells. `farside reproduce
 *      nic` shows how far the model is from each point.
 * [R]  the RCuckoo paper: ConnectX-5, 100 Gb/s.
 * [H]  the SepHash paper: PCIe packets.
 * [U]  constants that UCX has for these NICs.
 */
#include "model/nic.h"

#include <string.h>

static const struct nic nics[] = {
    {
        .name = "cx6",
        .summary = "ConnectX-6, 200 Gb/s InfiniBand, PCIe 4.0 x16",
        /* Measured here, not on the machine of [S]: a get on mem: takes about half a
         * microsecond. */
        .operation = NIC_NS(500),
        /* [U] 40 to 75 ns */
        .post = NIC_NS(60),
        /* [S] Of 12 threads, each takes 0.217 us more for a round of one verb more. */
        .completion = NIC_NS(217),
        /* [S] With one verb outstanding, a round takes 2.35 us at 12 threads and 2.91 at 96; with 4
         * outstanding, 3.53 and 4.71. */
        .crowd_completion = NIC_NS(2.0),
        .crowd_latency = {[FAB_R] = NIC_NS(4.6), [FAB_W] = NIC_NS(7.5), [FAB_A] = NIC_NS(4.6)},
        .crowd_from = 12,
        /* [S] Default doorbells: each of the 12 allows one post in 307 ns if 2 or 3 threads want
         * it, 408 if 4 do and 626 if 8 do. */
        .doorbell_shared = NIC_NS(150),
        .doorbell_others = NIC_NS(65),
        /* [S] A round with one READ takes 2.35 us, with one WRITE 2.40; without the post. For
         * atomics: [R]'s time for a word in addition. */
        .latency = {[FAB_R] = NIC_NS(2055), [FAB_W] = NIC_NS(2105), [FAB_A] = NIC_NS(2055)},
        /* [S] A round with 4 to 32 verbs takes 0.5 us more than 2.13 us and 0.217 for each. */
        .fetch = {[FAB_R] = NIC_NS(600), [FAB_W] = NIC_NS(700), [FAB_A] = NIC_NS(600)},
        /* [S] Peaks: READ 111 M/s, WRITE 92.7 M/s. The data do not tell the client's NIC from the
         * node's, so both get them. Atomics: [R], 50 M/s. */
        .message = {[FAB_R] = NIC_NS(9.0), [FAB_W] = NIC_NS(10.8), [FAB_A] = NIC_NS(9.0)},
        .served = {[FAB_R] = NIC_NS(9.0), [FAB_W] = NIC_NS(10.8), [FAB_A] = NIC_NS(20)},
        .same_word = NIC_NS(330),      /* [R] 3 M/s on one address in host memory */
        .nic_word = NIC_NS(110),       /* [R] three times as many in the NIC's memory */
        .byte = NIC_NS(1 / 24.2),      /* 4 lanes of 50 Gb/s, 64/66 */
        .pcie_byte = NIC_NS(1 / 28.2), /* [U] has 14.1 GB/s for PCIe 3.0; 4.0 is twice as fast */
        .header = 46,                  /* InfiniBand: LRH, BTH, RETH, ICRC, VCRC */
        .pcie_payload = 256,           /* [U], [H] */
        .pcie_header = 26,             /* [U] */
        /* [S] Rates past the peak, over threads and outstanding verbs together: see
         * docs/model.md. */
        .cache_room = {[FAB_R] = 960, [FAB_W] = 980, [FAB_A] = 960},
        .cache_miss = {[FAB_R] = NIC_NS(0.0085), [FAB_W] = NIC_NS(0.02), [FAB_A] = NIC_NS(0.0085)},
        .cache_most = {[FAB_R] = NIC_NS(100), [FAB_W] = NIC_NS(5.1), [FAB_A] = NIC_NS(100)},
        .cache_pair = 5,
        .outstanding = FAB_OUTSTANDING,
        .in_flight = 16, /* what NICs usually say */
    },
    {
        .name = "cx5",
        .summary = "ConnectX-5, 100 Gb/s, PCIe 3.0 x16",
        /* The client's CPU is that of cx6: there are no data on it. */
        .operation = NIC_NS(500),
        .post = NIC_NS(60),
        .completion = NIC_NS(217),
        .crowd_completion = NIC_NS(2.0),
        .crowd_latency = {[FAB_R] = NIC_NS(4.6), [FAB_W] = NIC_NS(7.5), [FAB_A] = NIC_NS(4.6)},
        .crowd_from = 12,
        .doorbell_shared = NIC_NS(150),
        .doorbell_others = NIC_NS(65),
        .latency = {[FAB_R] = NIC_NS(2055), [FAB_W] = NIC_NS(2105), [FAB_A] = NIC_NS(2055)},
        .fetch = {[FAB_R] = NIC_NS(600), [FAB_W] = NIC_NS(700), [FAB_A] = NIC_NS(600)},
        /* Half of the rates of cx6, for half its bandwidth; atomics: [R], 50 M/s. */
        .message = {[FAB_R] = NIC_NS(18.0), [FAB_W] = NIC_NS(21.6), [FAB_A] = NIC_NS(20)},
        .served = {[FAB_R] = NIC_NS(18.0), [FAB_W] = NIC_NS(21.6), [FAB_A] = NIC_NS(20)},
        .same_word = NIC_NS(330),      /* [R] */
        .nic_word = NIC_NS(110),       /* [R] */
        .byte = NIC_NS(1 / 12.5),      /* [U] 4 lanes of 25.78 Gb/s, 64/66 */
        .pcie_byte = NIC_NS(1 / 14.1), /* [U] */
        .header = 46,
        .pcie_payload = 256, /* [U], [H] */
        .pcie_header = 26,   /* [U] */
        .cache_room = {[FAB_R] = 960, [FAB_W] = 980, [FAB_A] = 960},
        .cache_miss = {[FAB_R] = NIC_NS(0.017), [FAB_W] = NIC_NS(0.04), [FAB_A] = NIC_NS(0.017)},
        .cache_most = {[FAB_R] = NIC_NS(200), [FAB_W] = NIC_NS(10.2), [FAB_A] = NIC_NS(200)},
        .cache_pair = 5,
        .outstanding = FAB_OUTSTANDING,
        .in_flight = 16,
    },
};

const struct nic *nic_at(unsigned i)
{
    return i < sizeof nics / sizeof *nics ? &nics[i] : NULL;
}

const struct nic *nic_find(const char *name)
{
    for (unsigned i = 0; nic_at(i); i++)
        if (strcmp(nic_at(i)->name, name) == 0)
            return nic_at(i);
    return NULL;
}
