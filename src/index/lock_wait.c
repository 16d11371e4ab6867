#include "index/lock_wait.h"

#include "index/attempt.h"

#define LOOKS_PER_INQUIRY 16
#define LOOKS_OF_LEASE    4 /* looks go on for a quarter of the lease at most */
#define OWNERS_MOST       (16 * INDEX_ATTEMPTS)
#define PAUSES_OF_STILL   4
#define PAUSE_NS_MOST     1000000

/* How long to pause before the next look, if the last look took look_ns and the owner has had the
 * lock for still_ns. */
static uint64_t pause_for(struct op *op, const struct index_lock_wait *wait, uint64_t look_ns,
                          uint64_t still_ns)
{
    uint64_t heartbeat = client_lease_ns(op->client) / 8;
    uint64_t most = heartbeat < PAUSE_NS_MOST ? heartbeat : PAUSE_NS_MOST; /* PAUSE-3 */
    uint64_t pause = index_pause_ns(look_ns, wait->owners);
    if (pause < still_ns / PAUSES_OF_STILL) /* PAUSE-2 */
        pause = still_ns / PAUSES_OF_STILL;
    pause = pause < most ? pause : most;
    return pause - op_random(op, pause / 2 + 1);
}

int index_lock_wait(struct op *op, struct index_lock_wait *wait, uint64_t owner,
                    enum index_lock_state *state)
{
    bool alive = true;
    ASSERT(op->batch.count == 0 && owner != 0);
    uint64_t now = batch_now(&op->batch), look_ns = wait->owners > 0 ? now - wait->paused_at : 0;
    if (wait->owner != owner) {
        wait->owner = owner;
        wait->since = now;
        wait->looks = 0;
        wait->waited_ns = 0;
        if (wait->owners++ == OWNERS_MOST)
            return FAR_CONTENTION;
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
        uint64_t pause = pause_for(op, wait, look_ns, now - wait->since);
        wait->looks++;
        op_wait(op, pause);
        wait->waited_ns += pause;
        wait->paused_at = batch_now(&op->batch);
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
