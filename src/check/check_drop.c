/*
 * Short-lived tables: clients drop them while others use them, and make them again under the same
 * name.
 *
 * Operations on them are not part of the history. What counts is whether they find the table: an
 * operation that begins after a drop has returned FAR_OK must return FAR_NO_TABLE; one on a table
 * that no client has begun to drop must not; and a value that is found must belong to its key.
 */
#include "check/check_internal.h"

#include "index/tuning.h"

#include "store/drop.h"

#include <string.h>

#define SHORT_LIVED_NAME "d"
#define SHORT_LIVED_KEYS 24u
#define VALUE_BYTES      200u

int check_drop_set_up(struct check *c, far_session *session)
{
    struct far_table_options options = {.tuning = tuning_varied(c->set->index, c->plan.tuning),
                                        .hash_seed = 7};
    c->short_lived_count = 0;
    if (!c->plan.drops)
        return FAR_OK;
    struct short_lived *d = &c->short_lived[c->short_lived_count++];
    *d = (struct short_lived){.table = NULL};
    return far_table_create(session, SHORT_LIVED_NAME, c->set->index, &options, &d->table);
}

static size_t value_of(unsigned key, uint8_t *value)
{
    size_t len = 1 + key * 41 % VALUE_BYTES;
    memset(value, (int)(key + 1), len);
    return len;
}

static int use(struct check *c, struct check_client *me, struct short_lived *d, uint8_t key)
{
    uint8_t value[VALUE_BYTES], got[2048];
    size_t len = value_of(key, value), got_len = 0;
    uint64_t cursor = 0;
    switch (tape_choose(c->tape, 8, TAPE_WORK)) {
    case 7:
        return far_delete(me->session, d->table, &key, 1);
    case 6:
        return far_iterate(me->session, d->table, &cursor, 0, got, sizeof got, &got_len);
    case 0:
    case 1: {
        int rc = far_get(me->session, d->table, &key, 1, got, sizeof got, &got_len);
        if (rc == FAR_OK && (got_len != len || memcmp(got, value, len) != 0))
            check_fail(c, CHECK_BAD_VALUE,
                       "short-lived table %u: key %u has the value of another key",
                       (unsigned)(d - c->short_lived), key);
        return rc;
    }
    default:
        return far_put(me->session, d->table, &key, 1, value, len);
    }
}

static int use_table(struct check *c, struct check_client *me, struct short_lived *d)
{
    bool gone = d->dropped;
    unsigned number = (unsigned)(d - c->short_lived);
    uint8_t key = (uint8_t)tape_choose(c->tape, SHORT_LIVED_KEYS, TAPE_WORK);
    sim_note(c->sim, "uses short-lived table %u", number);
    int rc = use(c, me, d, key);
    if (sim_unwinding(c->sim))
        return rc;
    sim_note(c->sim, "   %s", far_errname(rc));
    bool there = rc == FAR_OK || rc == FAR_NOT_FOUND;
    if (gone && there)
        check_fail(c, CHECK_BAD_STATUS,
                   "short-lived table %u was dropped, but an operation on it returned %s", number,
                   far_errname(rc));
    else if (rc == FAR_NO_TABLE && !d->begun)
        check_fail(c, CHECK_BAD_STATUS, "short-lived table %u is gone, but no client dropped it",
                   number);
    else if (!there && rc != FAR_NO_TABLE && !check_is_explained(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, "an operation on short-lived table %u", number);
    c->result.coverage.found_gone += rc == FAR_NO_TABLE;
    return rc;
}

static int drop(struct check *c, struct check_client *me, struct short_lived *d)
{
    bool gone = d->dropped, first = !d->begun;
    unsigned number = (unsigned)(d - c->short_lived);
    d->contended |= d->begun;
    d->begun = true;
    sim_note(c->sim, "drops short-lived table %u", number);
    int rc = far_table_drop(me->session, d->table);
    if (sim_unwinding(c->sim))
        return rc;
    sim_note(c->sim, "   %s", far_errname(rc));
    d->dropped |= rc == FAR_OK;
    c->result.coverage.dropped += rc == FAR_OK;
    if (gone && rc == FAR_OK)
        check_fail(c, CHECK_BAD_STATUS, "short-lived table %u was dropped twice", number);
    else if (rc == FAR_NO_TABLE && first && !d->contended)
        check_fail(c, CHECK_BAD_STATUS, "the first drop of short-lived table %u did not find it",
                   number);
    else if (rc != FAR_OK && rc != FAR_NO_TABLE && rc != FAR_TIMEOUT && !check_is_explained(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, "dropping short-lived table %u", number);
    return rc;
}

/* Which short-lived tables have been dropped: one bit each. */
static unsigned dropped_so_far(const struct check *c)
{
    unsigned dropped = 0;
    for (unsigned i = 0; i < c->short_lived_count; i++)
        dropped |= (unsigned)c->short_lived[i].dropped << i;
    return dropped;
}

/* Notes the handle that clients use from now on. `gone`: those that had been dropped when the call
 * began that returned it. One that was dropped since may have been found before. */
static void take_up(struct check *c, const struct short_lived *before, unsigned gone,
                    far_table *table)
{
    for (unsigned i = 0; i < c->short_lived_count; i++) {
        if (c->short_lived[i].table != table)
            continue;
        if (gone >> i & 1)
            check_fail(c, CHECK_BAD_STATUS,
                       "short-lived table %u was dropped, but was opened by its name", i);
        return;
    }
    if (!before->begun)
        check_fail(c, CHECK_BAD_STATUS,
                   "a second table of the name was made while the first was there");
    else if (c->short_lived_count < SHORT_LIVED_MAX)
        c->short_lived[c->short_lived_count++] = (struct short_lived){.table = table};
}

/* Makes the table again, or finds the one that another client has made. */
static int create(struct check *c, struct check_client *me, const struct short_lived *d)
{
    struct far_table_options options = {.tuning = tuning_varied(c->set->index, c->plan.tuning)};
    far_table *table = NULL;
    if (c->short_lived_count == SHORT_LIVED_MAX)
        return FAR_OK;
    sim_note(c->sim, "makes a short-lived table again");
    unsigned gone = dropped_so_far(c);
    int rc = far_table_create(me->session, SHORT_LIVED_NAME, c->set->index, &options, &table);
    if (rc == FAR_TABLE_EXISTS && !sim_unwinding(c->sim))
        rc = far_table_open(me->session, SHORT_LIVED_NAME, c->set->index, &table);
    if (sim_unwinding(c->sim))
        return rc;
    sim_note(c->sim, "   %s", far_errname(rc));
    if (rc == FAR_OK)
        take_up(c, d, gone, table);
    else if (rc != FAR_NO_TABLE && !check_is_explained(c, rc))
        check_fail_status(c, CHECK_BAD_STATUS, rc, "creating a short-lived table");
    return rc;
}

int check_drop_use(struct check *c, struct check_client *me)
{
    ASSERT(c->short_lived_count > 0 && c->short_lived_count <= SHORT_LIVED_MAX);
    /* Mostly the newest, sometimes an older one. */
    unsigned which = c->short_lived_count - 1, way = tape_choose(c->tape, 16, TAPE_WORK);
    if (tape_chance(c->tape, 1, 4, TAPE_WORK))
        which = tape_choose(c->tape, c->short_lived_count, TAPE_WORK);
    struct short_lived *d = &c->short_lived[which];
    if (way == 15)
        return drop(c, me, d);
    return way >= 13 && d->begun ? create(c, me, d) : use_table(c, me, d);
}

void check_drop_audit(struct check *c, far_session *fresh)
{
    unsigned id = 0;
    uint8_t key = 1;
    if (!c->plan.drops)
        return;
    int rc = store_drop_settle(c->pool, &fresh->op);
    if (rc != FAR_OK) {
        check_fail_status(c, CHECK_NOT_LIVE, rc, "with no other client at work, completing drops");
        return;
    }
    if (catalog_next(&fresh->op, true, &id) != FAR_NO_TABLE)
        check_fail(c, CHECK_NOT_LIVE, "with no other client at work, a drop was left incomplete");
    for (unsigned i = 0; i < c->short_lived_count; i++) {
        const struct short_lived *d = &c->short_lived[i];
        rc = far_exists(fresh, d->table, &key, 1);
        bool there = rc == FAR_OK || rc == FAR_NOT_FOUND;
        if ((d->dropped && there) || (!d->begun && !there))
            check_fail(c, CHECK_BAD_STATUS,
                       "short-lived table %u was%s dropped, but is%s there (%s)", i,
                       d->dropped ? "" : " not", there ? "" : " not", far_errname(rc));
        if (there && far_table_check(fresh, d->table, NULL, NULL) != FAR_OK)
            check_fail(c, CHECK_BAD_STRUCTURE, "short-lived table %u: %s", i, far_error_detail());
    }
}
