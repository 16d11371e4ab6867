#include "index/lock_wait.h"

#define LOOKS_PER_INQUIRY 16
#define LOOKS_OF_LEASE    4 /* looks go on for a quarter of the lease at most */

int index_lock_wait(struct op *op, struct index_lock_wait *wait, uint64_t owner,
                    enum index_lock_state *state)
{
    bool alive = true;
    ASSERT(op->batch.count == 0 && owner != 0);
    if (wait->owner != owner) {
        wait->owner = owner;
        wait->pause_ns = 0;
        wait->looks = 0;
        wait->waited_ns = 0;
    }
    *state = INDEX_LOCK_OVERDUE;
    if (wait->looks >= op->pool->knobs.patience ||
        wait->waited_ns >= client_lease_ns(op->client) / LOOKS_OF_LEASE)
        return FAR_OK;
    bool rested = wait->rest.waited_ns > 0;
    if (wait->looks % LOOKS_PER_INQUIRY == 0 && (wait->looks > 0 || rested)) {
        int rc = client_owner_alive(op, owner, &alive);
        if (rc != FAR_OK)
            return rc;
    }
    *state = alive ? INDEX_LOCK_HELD : INDEX_LOCK_ORPHANED;
    if (alive) {
        wait->looks++;
        op_pause(op, &wait->pause_ns);
        wait->waited_ns += wait->pause_ns;
    }
    return FAR_OK;
}

int index_lock_rest(struct op *op, struct index_view *view, struct index_lock_wait *wait)
{
    index_rest(op);
    if (!client_backoff(op, &wait->rest, INDEX_LOCK_LEASES))
        return FAR_CONTENTION;
    /* With a long lease, the longer it has lasted, the less often: at last every quarter of a
     * lease. */
    uint64_t more = wait->rest.waited_ns / (4 * INDEX_LOCK_LEASES);
    if (more > wait->rest.pause_ns) {
        op_wait(op, more);
        wait->rest.waited_ns += more;
    }
    wait->looks = 0;
    wait->waited_ns = 0;
    int rc = client_drive_epoch(op);
    return rc == FAR_OK ? index_resume(op, view) : rc;
}
