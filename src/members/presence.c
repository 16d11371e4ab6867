/* Who has which client slot: a line for each, at a majority of the voters (MEMBERS-4). */
#include "members/members_internal.h"

#include <stddef.h>

#define LINE_TRYS 4u /* a line changes at most so often beside us */

static uint64_t line_off(unsigned slot)
{
    return presence_off(slot) + offsetof(struct presence_line, incarnation);
}

/* *taken: the voter's line says `to`. Else, if it answers, *holder is what it says. */
static int take(struct members *m, struct batch *b, unsigned node, struct presence_claim claim,
                bool *answers, bool *taken, uint64_t *holder)
{
    uint64_t expected = claim.from;
    struct answer a = {.counts = false};
    int rc = FAR_OK;
    *taken = false;
    for (unsigned i = 0; i < LINE_TRYS; i++) { /* from == to: a look first */
        rc = members_change_word(m, b, node, line_off(claim.slot), expected, claim.to, &a);
        *taken = a.counts && (a.found == expected || a.found == claim.to);
        if (*taken || !a.counts || (a.found != 0 && !claim.owned))
            break;
        expected = a.found;
    }
    if (a.counts && !*taken)
        *holder = a.found;
    *answers = a.counts;
    return rc;
}

int members_present(struct members *m, struct batch *b, struct presence_claim claim,
                    uint64_t *holder)
{
    unsigned taken = 0, answered = 0, count = members_count(m);
    *holder = 0;
    for (unsigned i = 0; i < m->nodes; i++) {
        bool mine = false, answers = false;
        if (!members_votes(m, i))
            continue;
        int rc = take(m, b, i, claim, &answers, &mine, holder);
        if (rc != FAR_OK && !voter_is_lost(rc))
            return rc;
        answered += answers;
        taken += mine;
    }
    if (2 * taken > count)
        return FAR_OK;
    int rc = 2 * answered > count ? FAR_CONTENTION : members_too_few(m, answered);
    struct err_detail why;
    err_keep(&why);
    members_absent(m, b, claim.slot, claim.to);
    err_restore(&why);
    return rc;
}

void members_absent(struct members *m, struct batch *b, unsigned slot, uint64_t incarnation)
{
    for (unsigned i = 0; i < m->nodes; i++) {
        struct answer a = {.found = incarnation};
        int rc = FAR_OK;
        if (!members_votes(m, i))
            continue;
        if (incarnation == 0)
            rc = members_change_word(m, b, i, line_off(slot), 0, 0, &a);
        if (rc == FAR_OK && a.found != 0)
            rc = members_change_word(m, b, i, line_off(slot), a.found, 0, &a);
        if (rc != FAR_OK && !voter_is_lost(rc))
            return;
    }
}

int members_attend(struct members *m, struct batch *b, unsigned slot, uint64_t incarnation,
                   bool owned)
{
    unsigned answered = 0;
    uint64_t holder = 0;
    int present = members_present(
        m, b, (struct presence_claim){slot, incarnation, incarnation, owned}, &holder);
    if (present != FAR_OK)
        return present;
    uint64_t off = m->off + presence_off(slot) + offsetof(struct presence_line, view);
    m->word[0] = members_view(m);
    for (unsigned i = 0; i < m->nodes; i++) {
        if (!members_votes(m, i))
            continue;
        batch_write(b, MARK_EARLY, gaddr_make(i, 0), off, &m->word[0], 8);
        bool counts = false;
        int rc = members_flush(m, b, i, &counts);
        if (rc != FAR_OK && !voter_is_lost(rc))
            return rc;
        answered += counts;
    }
    return 2 * answered > members_count(m) ? FAR_OK : members_too_few(m, answered);
}
