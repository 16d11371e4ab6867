/* Operations that hold lines of a journal, clients that are recovered, and a stand-in for the
 * tables that notes what it is asked to complete. */
#ifndef TESTS_RECOVERY_RIG_H
#define TESTS_RECOVERY_RIG_H

#include "support/journal_rig.h"
#include "support/puppet.h"
#include "support/register_rig.h"

/* What the stand-in was asked, and what it answers. */
static struct {
    unsigned calls;
    uint64_t sum;  /* of what the intents said */
    uint64_t redo; /* what the last redo said, 0 for none */
    bool done;
    int rc;
    int (*then)(struct op *op); /* NULL, or called, and answers instead of rc */
} seen;

static inline int note_recovery(void *arg, struct op *op, const struct journal_entry *entry)
{
    uint64_t data = 0;
    (void)arg;
    assert_true(entry->subject.what == 7 && entry->subject.tag == 8 && entry->len == 8);
    memcpy(&data, entry->data, 8);
    seen.calls++;
    seen.sum += data;
    seen.redo = 0;
    if (entry->redo) {
        assert_int_equal(entry->redo_len, 8);
        memcpy(&seen.redo, entry->redo, 8);
    }
    seen.done = entry->done;
    return seen.then ? seen.then(op) : seen.rc;
}

/* A pool with the stand-in; end() ends it. */
static inline void begin(struct store_rig *r, struct probe *p, const char *uri)
{
    start(r, p, uri);
    r->pool->pool.recover = note_recovery;
    seen = (typeof(seen)){.rc = FAR_OK};
}

/* The session's operation takes a line on that node, and writes its intent there. */
static inline void take(far_session *s, unsigned node, struct journal *j, uint64_t data)
{
    struct journal_subject subject = {.place = 6, .tag = 8, .what = 7};
    assert_int_equal(journal_take(&s->op, node, j), FAR_OK);
    assert_int_equal(gaddr_node(j->at), node);
    journal_intend(&s->op, j, &subject, &data, 8);
    assert_int_equal(batch_flush(&s->op.batch), FAR_OK);
}

/* It has ended well, and gives the line back blank. */
static inline void give(far_session *s, struct journal *j)
{
    journal_end(&s->op, j);
    assert_int_equal(batch_flush(&s->op.batch), FAR_OK);
    journal_give(&s->op, j, true);
}

/* What a slot says while that session recovers its client. */
static inline uint64_t claim_of(const far_session *s)
{
    return CLIENT_FENCED | CLIENT_REPAIRED | client_owner_word(&s->client);
}

/* Takes the session for dead, and recovers it. */
static inline int recover(far_session *by, far_session *dead)
{
    return puppet_recover(&by->op, dead->client.slot, dead->client.incarnation);
}

/* Closes a session that was taken for dead: the slot is not its own any more. */
static inline void close_dead(far_session *s)
{
    puppet_renounce(&s->client);
    far_session_close(s);
}

#endif
