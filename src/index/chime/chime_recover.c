/*
 * Recovery of a node whose lock names a dead client. What that client was doing follows from what
 * is in memory:
 *
 *   the state of X names another node M    X was being split off M, or merged into M: M comes first
 *   M's sibling S is BORN of M             M was split. Entries at or above S's separator go; S
 *   gets its name S is MERGING with M                    the merge is undone. The same entries go
 *   S was MERGED into M                    the merge is completed. M ends where S ended
 *   two entries are the same               one was being moved. One of them goes
 *   a group is not whole                   an update was writing it. `intent` is its G
 *   M has a child that is dead             a merge was to remove it. It goes
 *   a group of a leaf fits nothing         it is damaged, and stays as damaged as it is (CHIME-C11)
 *
 * Then all groups of M get a new era. A client that recovers may die as well; the next one finds
 * one of these cases.
 */
#include "index/chime/chime.h"

#define DEPTH_MAX 4u /* nodes that have to be recovered one before the other */

struct repair {
    struct op *op;
    struct chime_view *view;
    struct chime_wait *wait;
    uint64_t dead; /* the owner word */
    gaddr m, s, x; /* x: another node than these, or 0 */
    uint64_t *mi, *si, *xi;
    struct chime_name name; /* what M's becomes */
    struct chime_harm harm; /* its damaged groups */
    uint64_t gone;          /* places of M's dead children */
    gaddr child[CHIME_SPAN_MAX];
    gaddr first; /* this node has to be recovered first, from `first_owner` */
    uint64_t first_owner;
};

static enum chime_stage stage_with(const struct repair *r, uint64_t *node)
{
    uint64_t state = chime_head(node)->state;
    return chime_with(state) == r->m ? chime_stage(state) : CHIME_ALONE;
}

/* Reads a whole node. */
static int read_image(struct repair *r, gaddr at, uint64_t *node)
{
    batch_read_head(&r->op->batch, at, 0, node, r->view->shape.bytes);
    int rc = batch_flush(&r->op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? chime_damaged(r->view, at) : rc;
    const struct chime_head *head = chime_head(node);
    return head->sum == chime_head_sum(r->view, at, head) &&
                   chime_state_good(head->state, at, r->view->seed)
               ? FAR_OK
               : chime_damaged(r->view, at);
}

/* ---- the lock of M --------------------------------------------------------------------------- */

/* Takes M's lock from the word that it has. */
static int take(struct repair *r, uint64_t word, bool *held)
{
    uint64_t me = client_owner_word(r->op->client);
    unsigned n = op_cas(r->op, MARK_LOCK, r->m, offsetof(struct chime_head, lock), word, me);
    return chime_locked(r->op, r->m, n, batch_flush(&r->op->batch), held);
}

/* X's state names M, which somebody else may hold. *held: it is this client's now.
 *
 * X need not be read again behind that. If M was the dead client's, nobody has changed X, because
 * that takes M's lock. If M was free, then M is whole, and others may have completed X meanwhile.
 * Then X is used only if it was MERGED, and it is dead by now. Its groups get the name again that
 * they have. Its memory is not used again as long as this operation is in flight. */
static int take_partner(struct repair *r, bool *held)
{
    bool alive = false;
    int rc = read_image(r, r->m, r->mi);
    uint64_t lock = rc == FAR_OK ? chime_head(r->mi)->lock : 0;
    if (rc != FAR_OK || lock & CHIME_DEAD)
        return rc;
    if (lock != 0 && lock != r->dead)
        rc = client_owner_alive(r->op, lock, &alive);
    if (rc != FAR_OK || alive) {
        r->wait->rests |= alive;
        return rc;
    }
    if (lock != 0 && (lock != r->dead || chime_head(r->mi)->state != 0)) {
        r->first = r->m;
        r->first_owner = lock;
        return FAR_OK;
    }
    return take(r, lock, held);
}

/* ---- what M becomes -------------------------------------------------------------------------- */

/* Reads M's sibling, and sets the name that M will have, and the one that it may have had. */
static int look_at_sibling(struct repair *r, struct chime_name *other, bool *has_other)
{
    const struct chime_head *head = chime_head(r->mi), *s = chime_head(r->si);
    r->s = chime_next_at(head->next);
    r->name = (struct chime_name){.at = r->m, .low = head->low, .next = r->s};
    *has_other = false;
    if (r->s == 0)
        return FAR_OK;
    int rc = read_image(r, r->s, r->si);
    if (rc != FAR_OK)
        return rc;
    r->name.high = s->low;
    enum chime_stage stage = stage_with(r, r->si);
    *has_other = stage != CHIME_ALONE;
    *other = r->name;
    other->next = chime_next_at(s->next);
    other->high = s->high;
    if (stage == CHIME_MERGED) {
        struct chime_name final = *other;
        *other = r->name;
        r->name = final;
    }
    return FAR_OK;
}

/* CHIME-C11: these groups are damaged, those of the leaf that are not named here are in order. */
static int take_harm(struct repair *r, struct chime_seal seal, struct chime_seal old,
                     unsigned groups)
{
    if (chime_head(r->mi)->level != 0 || groups == (1u << r->view->shape.groups) - 1)
        return chime_damaged(r->view, r->m);
    r->harm = (struct chime_harm){.groups = groups};
    for (; groups; groups &= groups - 1) {
        unsigned g = (unsigned)__builtin_ctz(groups);
        uint64_t *words = chime_group(r->mi, g);
        if (!chime_undo_flip(seal, g, words) && !chime_undo_flip(old, g, words))
            chime_harm_beyond(&r->harm, r->mi, g);
    }
    return FAR_OK;
}

/* Makes all groups of the image such that their kinds can be believed. *moved: some have the other
 * name. */
static int judge_groups(struct repair *r, const struct chime_name *other, bool has_other)
{
    struct chime_seal seal = chime_name_seal(r->view, &r->name), old = seal;
    unsigned damaged = 0;
    if (has_other)
        old = chime_name_seal(r->view, other);
    for (unsigned g = 0; g < r->view->shape.groups; g++) {
        uint64_t *words = chime_group(r->mi, g), was = words[0];
        bool whole = chime_group_whole(seal, g, words) || chime_group_whole(old, g, words);
        if (!whole)
            words[0] = chime_head(r->mi)->intent; /* CHIME-C3 */
        if (!whole && !chime_group_whole(seal, g, words) && !chime_group_whole(old, g, words)) {
            words[0] = was;
            damaged |= 1u << g;
        }
    }
    return damaged ? take_harm(r, seal, old, damaged) : FAR_OK;
}

static void drop_entry(struct repair *r, unsigned place)
{
    uint64_t *group = chime_group(r->mi, place / CHIME_GROUP);
    group[0] = chime_with_kind(group[0], place % CHIME_GROUP, CHIME_EMPTY);
}

/* The bytes of an entry's key or separator. */
static int entry_bound(struct repair *r, unsigned place, char *copy, struct chime_bound *bound)
{
    const uint64_t *entry = chime_entry(r->mi, place);
    bool leaf = chime_head(r->mi)->level == 0;
    *bound = (struct chime_bound){.k = entry[0]};
    int rc = FAR_OK;
    if (chime_kind_at(r->mi, place) == CHIME_BLOCK) {
        rc = chime_separator(r->op, r->view, entry[1], &bound->bytes);
        if (rc == FAR_OK)
            bound->k = chime_prefix(bound->bytes);
    } else if (leaf) {
        uint64_t key = __builtin_bswap64(entry[0]);
        memcpy(copy, &key, 8);
        bound->bytes = (struct slice){copy, 8};
    }
    return rc;
}

/* Entries that belong to the sibling go. */
static int drop_above(struct repair *r)
{
    char high_bytes[FAR_KEY_MAX], copy[8], text[8];
    struct chime_stem stem = chime_head_stem(chime_head(r->mi));
    struct chime_bound high = {.k = r->name.high.k};
    if (r->name.next == 0)
        return FAR_OK;
    int rc = FAR_OK;
    if (r->name.high.lng != 0) {
        rc = chime_separator(r->op, r->view, r->name.high.lng, &high.bytes);
        if (rc != FAR_OK)
            return rc;
        memcpy(high_bytes, high.bytes.data, high.bytes.len);
        high.bytes.data = high_bytes;
    }
    uint64_t least = chime_k(r->view, &stem, chime_bound_bytes(&high, text));
    for (unsigned p = 0; p < r->view->shape.span && rc == FAR_OK; p++) {
        uint64_t k = chime_entry(r->mi, p)[0];
        struct chime_bound bound;
        if (chime_kind_at(r->mi, p) == CHIME_EMPTY || k < least)
            continue;
        bool above = k > least || (stem.len == 0 && !high.bytes.data);
        if (!above) {
            rc = entry_bound(r, p, copy, &bound);
            above = rc == FAR_OK && chime_reaches(&bound, &high);
        }
        if (above)
            drop_entry(r, p);
    }
    return rc;
}

/* An entry that was being moved is there twice. */
static void drop_copies(struct repair *r)
{
    unsigned span = r->view->shape.span;
    for (unsigned p = 0; p < span; p++)
        for (unsigned q = p + 1; q < span; q++)
            if (chime_kind_at(r->mi, p) != CHIME_EMPTY &&
                chime_kind_at(r->mi, p) == chime_kind_at(r->mi, q) &&
                memcmp(chime_entry(r->mi, p), chime_entry(r->mi, q), 16) == 0)
                drop_entry(r, q);
}

/* M is an internal node, and its holder is dead. Children die only while their parent is locked, so
 * those that are dead now are what the holder, or one before it, was about to remove. A merge of
 * children that was decided is completed first. */
static int look_at_children(struct repair *r, gaddr at, uint64_t *node)
{
    struct op *op = r->op;
    unsigned lock[CHIME_SPAN_MAX], state[CHIME_SPAN_MAX], span = r->view->shape.span;
    int rc = chime_children(op, r->view, node, r->child);
    if (rc != FAR_OK)
        return rc;
    for (unsigned p = 0; p < span; p++) {
        if (r->child[p] == 0)
            continue;
        lock[p] = op_read_head(op, r->child[p], offsetof(struct chime_head, lock));
        state[p] = op_read_head(op, r->child[p], offsetof(struct chime_head, state));
    }
    rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc == FAR_BOUNDS ? chime_damaged(r->view, at) : rc;
    for (unsigned p = 0; p < span; p++) {
        if (r->child[p] == 0)
            continue;
        uint64_t word = op_result(op, lock[p]);
        bool merged = chime_stage(op_result(op, state[p])) == CHIME_MERGED;
        if (merged && word & CHIME_DEAD) {
            r->gone |= 1ull << p;
        } else if (merged) {
            r->first = r->child[p];
            r->first_owner = word;
        }
    }
    return FAR_OK;
}

/* M does not name its dead children any more, or that is not known: then they may be lost. */
static int retire_gone(struct repair *r, int rc)
{
    for (uint64_t left = r->gone; left; left &= left - 1) {
        unsigned p = (unsigned)__builtin_ctzll(left);
        uint64_t v = chime_entry(r->mi, p)[1];
        uint64_t lng = v == r->child[p] ? 0 : v;
        if (rc == FAR_OK)
            rc = chime_retire(r->op, r->view, r->child[p], lng);
        else if (rc == FAR_UNKNOWN)
            chime_abandon(r->op, &r->view->shape, lng);
    }
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A node that was merged dies: its groups get the name of a dead one. */
static void write_dead(struct repair *r, struct chime_staging *staging, gaddr at, uint64_t *node)
{
    const struct chime_shape *s = &r->view->shape;
    const struct chime_head *head = chime_head(node);
    struct chime_name name = chime_dead_name(at, head);
    if (head->lock & CHIME_DEAD)
        return;
    for (unsigned g = 0; g < s->groups; g++)
        *chime_group(node, g) &= ~0xffull;
    chime_renew(r->view, node, &name, chime_next_era(head->next) + 1);
    chime_staging_groups(r->op, staging, s, at, node);
    chime_then(r->op, at, r->m);
}

/* M has forgotten it, so it may be retired. */
static void write_dead_lock(struct repair *r, gaddr at, uint64_t *node)
{
    uint64_t lock = chime_head(node)->lock;
    if (!(lock & CHIME_DEAD))
        op_cas(r->op, MARK_LOCK, at, offsetof(struct chime_head, lock), lock, CHIME_DEAD);
}

/* M names the node that was split off it: the groups of that one get its name, unless they have it
 * (CHIME-C7). */
static void write_name(struct repair *r, struct chime_staging *staging)
{
    const struct chime_head *head = chime_head(r->si);
    struct chime_name name = chime_head_name(r->s, head), none = chime_dead_name(r->s, head);
    struct chime_seal seal = chime_name_seal(r->view, &name);
    struct chime_seal unborn = chime_name_seal(r->view, &none);
    struct chime_harm harm = {0};
    for (unsigned g = 0; g < r->view->shape.groups; g++) {
        uint64_t *words = chime_group(r->si, g);
        bool named = chime_group_whole(seal, g, words);
        if (!named && !chime_group_whole(unborn, g, words) && chime_undo_flip(unborn, g, words))
            harm.groups |= 1u << g; /* as damaged as it was in M */
        if (chime_group_whole(unborn, g, words))
            chime_group_seal(seal, g, words);
    }
    chime_harm_set(&harm, seal, r->si);
    chime_staging_groups(r->op, staging, &r->view->shape, r->s, r->si);
    batch_fence(&r->op->batch);
}

/* A node that was split off, or was not merged after all, is on its own. */
static void write_alone(struct repair *r, struct chime_staging *staging, gaddr at, uint64_t *node)
{
    const struct chime_head *head = chime_head(node);
    chime_staging_word(r->op, staging, at, offsetof(struct chime_head, vacancy),
                       chime_vacancy(&r->view->shape, node));
    chime_staging_word(r->op, staging, at, offsetof(struct chime_head, state), 0);
    batch_fence(&r->op->batch);
    op_cas(r->op, MARK_LOCK, at, offsetof(struct chime_head, lock), head->lock, 0);
}

/* Writes M, and completes its sibling and X. The order is that of the guarantees: a sibling that
 * dies is dead before M forgets it. */
static int write_all(struct repair *r)
{
    const struct chime_shape *s = &r->view->shape;
    unsigned era = chime_next_era(chime_head(r->mi)->next) + 2;
    enum chime_stage stage = r->s != 0 ? stage_with(r, r->si) : CHIME_ALONE;
    struct chime_staging staging;
    int rc = chime_staging_start(r->op, &staging);
    if (rc != FAR_OK)
        return rc;
    if (stage == CHIME_MERGED)
        write_dead(r, &staging, r->s, r->si);
    chime_renew(r->view, r->mi, &r->name, era);
    chime_harm_set(&r->harm, chime_name_seal(r->view, &r->name), r->mi);
    chime_staging_groups(r->op, &staging, s, r->m, r->mi);
    batch_fence(&r->op->batch);
    chime_staging_next(r->op, &staging, &r->name, era);
    chime_staging_word(r->op, &staging, r->m, offsetof(struct chime_head, vacancy),
                       chime_vacancy(s, r->mi));
    chime_staging_word(r->op, &staging, r->m, offsetof(struct chime_head, intent), 0);
    chime_then(r->op, r->m, r->s);
    if (stage == CHIME_BORN)
        write_name(r, &staging);
    if (stage == CHIME_BORN || stage == CHIME_MERGING)
        write_alone(r, &staging, r->s, r->si);
    if (stage == CHIME_MERGED)
        write_dead_lock(r, r->s, r->si);
    if (r->x != 0 && stage_with(r, r->xi) == CHIME_MERGED) {
        write_dead(r, &staging, r->x, r->xi);
        write_dead_lock(r, r->x, r->xi);
    }
    chime_unlock(r->op, r->m);
    return chime_finish(r->op);
}

/* M is held, and cannot be repaired. If it is damaged, it is released, and others find that, too.
 * Otherwise it stays for another recovery, because this client gives up its name. */
static int give_up(struct repair *r, int rc)
{
    if (rc == FAR_CORRUPT)
        (void)chime_release(r->op, r->m);
    else
        client_renounce(r->op);
    return rc;
}

/* M is held. */
static int repair(struct repair *r)
{
    struct chime_name other = {0};
    bool has_other = false;
    int rc = read_image(r, r->m, r->mi);
    if (rc == FAR_OK)
        rc = look_at_sibling(r, &other, &has_other);
    if (rc == FAR_OK)
        rc = judge_groups(r, &other, has_other);
    if (rc == FAR_OK && has_other)
        rc = drop_above(r);
    if (r->x == r->s)
        r->x = 0;
    if (rc == FAR_OK) {
        drop_copies(r);
        for (uint64_t left = r->gone; left; left &= left - 1)
            drop_entry(r, (unsigned)__builtin_ctzll(left));
        return retire_gone(r, write_all(r));
    }
    return give_up(r, rc);
}

static int recover(struct repair *r, gaddr at)
{
    bool held = false;
    int rc = read_image(r, at, r->xi);
    const struct chime_head *head = chime_head(r->xi);
    if (rc != FAR_OK || head->lock != r->dead)
        return rc; /* somebody else has recovered it */
    if (head->state == 0 && head->level > 0)
        rc = look_at_children(r, at, r->xi);
    if (rc != FAR_OK || r->first != 0)
        return rc;
    if (head->state == 0) {
        r->m = at;
        rc = take(r, r->dead, &held);
        return rc == FAR_OK && held ? repair(r) : rc;
    }
    r->x = at;
    r->m = chime_with(head->state);
    rc = take_partner(r, &held);
    if (rc != FAR_OK || held)
        return rc == FAR_OK ? repair(r) : rc;
    if (!(chime_head(r->mi)->lock & CHIME_DEAD))
        return FAR_OK;
    if (stage_with(r, r->xi) != CHIME_MERGED)
        return chime_damaged(r->view, at);
    struct chime_staging staging;
    rc = chime_staging_start(r->op, &staging);
    if (rc != FAR_OK)
        return rc;
    /* Its partner had all of it, and was merged itself since. */
    write_dead(r, &staging, r->x, r->xi);
    write_dead_lock(r, r->x, r->xi);
    return batch_flush(&r->op->batch);
}

int chime_recover(struct op *op, struct chime_view *view, gaddr at, uint64_t owner,
                  struct chime_wait *wait)
{
    ASSERT(at != 0 && owner != 0 && op->batch.count == 0);
    size_t words = view->shape.bytes / 8;
    uint64_t *images = op_buffer(op, BUF_BULK, CHIME_STAGING_BYTES + 3 * (size_t)view->shape.bytes);
    if (!images)
        return FAR_NO_MEMORY;
    images += CHIME_STAGING_BYTES / 8;
    int rc = FAR_OK;
    for (unsigned depth = 0; rc == FAR_OK && at != 0 && depth < DEPTH_MAX; depth++) {
        struct repair r = {.op = op, .view = view, .wait = wait, .dead = owner};
        r.mi = images;
        r.si = images + words;
        r.xi = images + 2 * words;
        rc = recover(&r, at);
        at = r.first; /* X itself is left to the caller's next look */
        owner = r.first_owner;
    }
    return rc;
}
