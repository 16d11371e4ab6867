/*
 * The client registry: a line on node 0 for every session of the pool. A slot is taken by a CAS of
 * its first word from 0 to the client's incarnation, a random number that is never 0.
 */
#include "pool/pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int claim_slot(struct op *op, struct client *c)
{
    unsigned clients = c->pool->clients;
    struct client_slot *slots = op_buffer(op, BUF_BULK, clients * sizeof *slots);
    gaddr registry = gaddr_make(0, 0);
    ASSERT(clients > 0);
    if (!slots)
        return FAR_NO_MEMORY;

    /* Whoever loses a slot to another client looks again; each time, somebody got one. */
    for (unsigned attempt = 0; attempt < 2 * clients; attempt++) {
        batch_read(&op->batch, registry, CLIENTS_OFF, slots, (uint32_t)(clients * sizeof *slots));
        int rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        unsigned start = (unsigned)rng_below(&c->rng, clients), i = 0;
        while (i < clients && slots[(start + i) % clients].incarnation != 0)
            i++;
        if (i == clients)
            break;
        unsigned slot = (start + i) % clients;
        uint64_t delta = CLIENTS_OFF + slot * sizeof *slots;
        batch_cas(&op->batch, registry, delta, 0, c->incarnation, &op->word[0]);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK)
            return rc;
        if (op->word[0] == 0) {
            c->slot = slot;
            op->word[0] = (uint64_t)getpid();
            batch_write(&op->batch, registry, delta + offsetof(struct client_slot, pid), op->word,
                        8);
            return batch_flush(&op->batch);
        }
    }
    return fail(FAR_NO_CLIENT_SLOT, "the pool has %u client slots, and all are taken", clients);
}

int client_open(struct pool *pool, struct fab_ep *ep, uint64_t seed, struct client *c)
{
    struct op op;
    memset(c, 0, sizeof *c);
    c->pool = pool;
    c->ep = ep;
    rng_seed(&c->rng, seed);
    c->incarnation = rng_next(&c->rng) | 1;
    c->generation = (uint8_t)rng_below(&c->rng, BLOCK_GENERATIONS);
    c->slabs = calloc(pool->nodes, sizeof *c->slabs);
    c->stock = calloc(pool->nodes, sizeof *c->stock);
    int rc = c->slabs && c->stock ? op_init(&op, c) : fail(FAR_NO_MEMORY, "no memory for a client");
    if (rc == FAR_OK) {
        rc = claim_slot(&op, c);
        op_free(&op);
    }
    if (rc != FAR_OK) {
        free(c->slabs);
        free(c->stock);
    }
    return rc;
}

void client_close(struct client *c)
{
    struct op op;
    if (op_init(&op, c) == FAR_OK) {
        batch_cas(&op.batch, gaddr_make(0, 0), CLIENTS_OFF + c->slot * sizeof(struct client_slot),
                  c->incarnation, 0, &op.word[0]);
        (void)batch_flush(&op.batch); /* a pool out of reach keeps the slot: nothing else to do */
        op_free(&op);
    }
    free(c->slabs);
    free(c->stock);
}
