/* Audits chains at rest: nothing is on its way to a tail, and heads say what tails say. */
#include "chain/chain.h"
#include "check/check_internal.h"

/* Does somebody have the slot's lines who has not got the slot? He died while he registered or
 * left. Whoever wants the slot settles him. */
static bool is_left(struct check *c, unsigned slot)
{
    const struct fab *fab = c->pool->pool.fab;
    uint64_t from, seat = chain_seat_of(fab, sim_memory(c->sim, 0), slot);
    unsigned tail = chain_tail_of(fab, 0, &from);
    const char *slots = (const char *)sim_memory(c->sim, tail) + from + CLIENTS_OFF;
    const struct client_slot *s = (const void *)(slots + slot * sizeof *s);
    return seat != 0 && seat != s->incarnation;
}

/* All clients have left, or were recovered. */
void check_chain_audit(struct check *c)
{
    struct fab *fab = c->pool->pool.fab;
    far_session *fresh = NULL;
    for (unsigned node = 0; node < fab->nodes; node++)
        for (unsigned slot = 0; slot < c->pool->pool.clients; slot++)
            if (chain_some_open(fab, sim_memory(c->sim, node), node, slot) && !is_left(c, slot))
                check_fail(c, CHECK_BAD_MEMORY, "a line of slot %u on node %u is open at rest",
                           slot, node);
    chain_read_heads(fab, true);
    int rc = far_session_open(c->pool, &(struct far_session_options){.seed = 98}, &fresh);
    if (rc != FAR_OK) {
        check_fail_status(c, CHECK_BAD_STATUS, rc, "opening a session that reads heads");
        return;
    }
    for (unsigned key = 0; key < c->keys; key++)
        check_execute(c, fresh, c->clients, LIN_GET, key);
    check_walk_tables(c, fresh);
    far_session_close(fresh);
    chain_read_heads(fab, false);
}

/* At last all heads are lost. A lock that was left at a tail keeps clients away now. */
void check_chain_alone(struct check *c)
{
    far_session *fresh = NULL;
    chain_lose_heads(c->pool->pool.fab);
    int rc = far_session_open(c->pool, &(struct far_session_options){.seed = 97}, &fresh);
    if (rc != FAR_OK)
        check_fail_status(c, CHECK_BAD_STATUS, rc, "opening a session on tails alone");
    for (unsigned key = 0; key < c->keys && rc == FAR_OK; key++) {
        char text[KEY_BYTES_MAX];
        size_t len = check_key_bytes(c, key, text);
        rc = far_put(fresh, check_table_of(c, key), text, len, "alone", 5);
        if (rc == FAR_TABLE_FULL || (rc == FAR_POOL_FULL && c->plan.tight))
            rc = FAR_OK;
        if (rc != FAR_OK)
            check_fail_status(c, CHECK_NOT_LIVE, rc, "on tails alone, put k%u", key);
    }
    far_session_close(fresh);
}
