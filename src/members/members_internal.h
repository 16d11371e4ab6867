/* What members.c and presence.c share: asking one voter. */
#ifndef MEMBERS_MEMBERS_INTERNAL_H
#define MEMBERS_MEMBERS_INTERNAL_H

#include "base/status.h"
#include "members/members.h"

/* What a node has answered. */
struct answer {
    uint64_t found; /* the word before the change                                       */
    bool counts;    /* it votes, and in the life that counts (MEMBERS-1), or it does not vote */
    bool unknown;   /* there was no answer: the change may have happened, or happen yet */
};
/* Flushes what was added for one node, with a look at its life. If that does not count, the detail
 * says so. */
int members_flush(struct members *m, struct batch *b, unsigned node, bool *counts);
/* Changes a word of a node from `from` to `to`, or reads it if they are the same. */
int members_change_word(struct members *m, struct batch *b, unsigned node, uint64_t off,
                        uint64_t from, uint64_t to, struct answer *answer);
/* Is the node out of reach, or does it not count, so that another one may answer? Else the client
 * itself can go on no more. */
static inline bool voter_is_lost(int rc)
{
    return status_means(rc, STATUS_FABRIC);
}
unsigned members_count(const struct members *m);
/* Sets the detail to how many of the voters answered, and why one did not. FAR_UNREACHABLE. */
int members_too_few(const struct members *m, unsigned answered);

#endif
