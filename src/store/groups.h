/*
 * Groups: changes of one key by one process go to far memory one after the other.
 *
 * A process may have hundreds of operations in flight, in the rings of many sessions. If many of
 * them change the same key, they would meet in far memory, where each that loses has to look again.
 * So the operations of a process on one key of one table form groups. A group has a leader, which
 * goes to far memory as if there were no groups. Others wait for its end, and some of them need not
 * go to far memory any more then.
 *
 *   GROUP-G1  Nobody executes an operation for another one. A follower learns how its leader ended,
 *       and judges by that whether it is done. It may stop waiting at any time, and then executes
 *       itself: nothing is done twice, and nothing depends on another thread's progress. When it
 *       stops waiting, it replaces the group in the word by one of its own, so that nobody else
 *       waits for a leader that stands still. An operation loses patience once: after that it waits
 *       for no other group.
 *   GROUP-G2  A put may join a group that a put or an update leads, an update one that an update
 *       leads, as long as the group is open. The leader closes it before it posts its first verb.
 *       So whatever instant the leader's change takes effect at, or is overwritten at (CHANGE-C1),
 *       or finds nothing at, comes after the follower began.
 *   GROUP-G3  If the leader returns FAR_OK, its followers count as done right before it: their
 *       values were overwritten at once, and nobody has seen them. An update is done with an update
 *       only: a put may have added the key, and then an update before it would have found nothing.
 *       If an update returns FAR_NOT_FOUND, updates that follow it find nothing, either. Nothing
 *       follows from any other status, and followers execute themselves.
 *   GROUP-G4  Inserts, deletes and modifies neither lead others nor follow them. What an insert or
 *       a modify returns depends on what it has found, and two deletes must not both find the key.
 *   GROUP-G5  An operation that cannot join the group of its key replaces it in the word by an open
 *       group of its own, waits for the end of the other one, and then goes to far memory. So the
 *       groups of a key form a queue, and a process has one operation on a hot key in far memory.
 *       This is for speed alone.
 *   GROUP-G6  The word of a group is in a table of the process, by a hash of the key. It names a
 *       record, and the record's generation, so it never means two groups. The record has the table
 *       and the key, since keys share words. Records are used again, in turns. So a follower
 *       compares the generation when it reads how the group ended, which is after it has read the
 *       key. Records belong to the pool, because a follower may read one after the session of its
 *       leader was closed.
 *   GROUP-G7  Operations of one session that would wait one behind the other go out as one change
 *       instead (ride.h): one of them waits, and the others ride with it. Whatever comes behind the
 *       instant at which it goes out, waits for the next one. One thread drives them all, so nobody
 *       loses patience.
 *
 * Cold keys must not pay for this. So an operation only looks at the word, and makes a group for a
 * key only if its session has changed it a short while ago. Gets do not take part: they do not
 * hinder each other. On fabrics that never wait there are no groups.
 */
#ifndef STORE_GROUPS_H
#define STORE_GROUPS_H

#include "index/index.h"
#include "pool/pool.h"

#include <stdatomic.h>
#include <string.h>

#define GROUP_KEY_WORDS 5u
#define GROUP_KEY_BYTES (8 * GROUP_KEY_WORDS) /* longer keys have no groups */
#define GROUP_SEEN      256u

/* What is behind a word, by the number in it: 64 bytes, which no two groups share. */
struct group_record {
    _Atomic uint64_t state; /* generation, and how the group ended */
    _Atomic uint64_t table; /* the number of its handle, which the leader uses */
    _Atomic uint64_t key_len;
    _Atomic uint64_t key[GROUP_KEY_WORDS];
} __attribute__((aligned(64)));

/* The groups of all operations on a pool, by process. Only a model has several processes. */
struct groups;

/* `words`: of the table of each process, a power of two. NULL, if there is no memory: no groups. */
struct groups *store_groups_open(unsigned processes, unsigned words);
void store_groups_close(struct groups *groups);

/* A session's part. */
struct group_session {
    struct groups *groups; /* NULL: there are none */
    _Atomic uint64_t *words;
    uint64_t mask;
    uint16_t
        seen[GROUP_SEEN]; /* keys that the session has changed: hashes, by other bits of them */
    uint32_t *record;     /* numbers of records that the session may use: a queue */
    unsigned record_first, record_count, record_room;
    struct waiting *waiting; /* operations of the session that wait, and take others with them */
    /* Operations that were done as followers, or as riders, or have lost patience. */
    uint64_t joined, rode, left;
};

/* Borrows records for as many operations at once; if there is no memory, the session has no groups.
 * With `groups` NULL there are none, either. */
void store_groups_join(struct groups *groups, unsigned process, unsigned operations,
                       struct group_session *session);
void store_groups_leave(struct group_session *session);

/* What a group may do with an operation. */
enum group_kind { GROUP_OTHER, GROUP_PUT, GROUP_UPDATE };
static inline enum group_kind group_kind(const struct far_op *request)
{
    return request->kind == FAR_OP_PUT      ? GROUP_PUT
           : request->kind == FAR_OP_UPDATE ? GROUP_UPDATE
                                            : GROUP_OTHER;
}

/* An operation that rides with another one. */
struct rider {
    struct rider *next;
    const struct far_op *request;
    enum { RIDER_WAITS, RIDER_DONE, RIDER_ALONE } state; /* alone: it has to execute itself */
    int rc;                                              /* if it is done */
};

/* An operation's part. */
struct grouped {
    uint64_t word;        /* of the group that it leads; 0: none */
    uint32_t at;          /* of its word in the table */
    uint64_t closed_at;   /* when it began to go to far memory */
    struct rider *riders; /* of an operation that goes out: those that ride with it, in order */
};

/* Keys with the same hash share a word, which does no harm but to speed. So the hash is simple, and
 * does not have the table in it. */
static inline uint64_t group_hash(const struct far_op *request)
{
    uint64_t first = 0, last = 0;
    size_t len = request->key_len;
    if (__builtin_expect(len >= 8, 1)) {
        memcpy(&first, request->key, 8);
        memcpy(&last, (const char *)request->key + len - 8, 8);
    } else {
        memcpy(&first, request->key, len);
    }
    first = (first ^ last >> 7) * 0x9e3779b1u;
    return first ^ first >> 32;
}

/* Is there a group in the key's word, or has the session changed the key a short while ago? */
static inline bool group_is_hot(struct group_session *session, uint64_t hash)
{
    uint16_t *seen = &session->seen[hash >> 16 & (GROUP_SEEN - 1)], tag = (uint16_t)(hash >> 24);
    bool hot = *seen == tag;
    *seen = tag;
    return hot ||
           atomic_load_explicit(&session->words[hash & session->mask], memory_order_relaxed) != 0;
}

/* The change of a hot key begins. True: it is done, with the status *rc. False: the caller executes
 * it and those that ride with it, and then calls store_group_end() with its status. `waits`: may it
 * wait for others? */
bool store_group_begin(struct group_session *session, struct op *op, const struct far_op *request,
                       uint64_t hash, bool waits, struct grouped *grouped, int *rc);
void store_group_end(struct group_session *session, struct op *op, enum group_kind kind,
                     const struct grouped *grouped, int rc);

#endif
