/*
 * Own slots: whole keys that this session has written itself, with the slots that it wrote.
 *
 *   HINT-H2  A change that does not depend on the old value, of a key that the session has written
 *       before, compares the slot without a look: WRITE of the new block, fence, CAS. By PTR-5 the
 *       word still means the block that the session wrote, wherever the CAS finds it, so the slot
 *       is the key's. If the CAS meets another word, nothing is known of when that came, maybe
 *       before the operation began. So the operation looks then, and does not count as overwritten
 *       by the word that it met (CHANGE-C1).
 *   HINT-H3  After OWN_TURNS changes in a row without a look, one looks all the same. So a client
 *       that wants the slot for itself (a splitter that seals it) is seen some time, and one that
 *       looks before it changes the key (far_modify()) gets its turn.
 *
 * If other sessions or operations write the key, too, the CAS may be in vain. Then it is not tried
 * again until a look has found the slot that this session wrote last.
 */
#ifndef INDEX_OWN_H
#define INDEX_OWN_H

#include "index/hints.h"

#define INDEX_OWN_KEY 44u /* bytes of the longest key that is kept */

struct index_owns {
    struct index_own {
        uint64_t slot;  /* 0: free */
        uint64_t epoch; /* of the operation that wrote it */
        uint8_t place, turns, key_len;
        bool shared; /* a CAS was in vain */
        unsigned char key[INDEX_OWN_KEY];
    } * own;             /* by a part of the key's hash; NULL: none */
    void *memory;        /* of the entries */
    unsigned bits;       /* there are 2^bits entries */
    unsigned used;       /* of them */
    unsigned generation; /* bits of it that a slot has */
};

/* Takes up to `bytes` of memory. If there is none, nothing is kept. */
void index_owns_open(struct index_owns *owns, struct slot_format format, uint64_t bytes);
void index_owns_close(struct index_owns *owns);
/* How much is in use. */
static inline uint64_t index_owns_bytes(const struct index_owns *owns)
{
    return (uint64_t)owns->used * sizeof *owns->own;
}

/* The slot that a change of the key may compare without a look; else its slot is 0. */
struct index_hint index_own_of(struct index_owns *owns, const struct op *op, uint64_t hash,
                               struct slice key);
/* The CAS without a look has met another word. */
void index_own_lost(struct index_owns *owns, uint64_t hash, struct slice key);
/* The operation has replaced the slot `old` (0: none, or not known) by its own, or by nothing. */
void index_own_note(struct index_owns *owns, const struct op *op, uint64_t hash, struct slice key,
                    uint64_t old, struct index_hint own);

#endif
