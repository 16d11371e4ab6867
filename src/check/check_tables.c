/* The tables of a run. In the end of some runs all are dropped and made again: does the pool hold
 * as much then as it did at first, and nothing of what was there? */
#include "check/check_internal.h"

#include "check/audit.h"

#include <inttypes.h>

int check_create_tables(struct check *c, far_session *session)
{
    static const char *const name[CHECK_TABLES_MAX] = {"t", "u"};
    int rc = FAR_OK;
    for (unsigned i = 0; i < c->plan.tables && rc == FAR_OK; i++) {
        const char *index = i == 0 ? c->set->index : c->plan.other_index;
        struct far_table_options options = {.tuning = tuning_varied(index, c->plan.tuning),
                                            .hash_seed = check_hash_seed(c, i)};
        rc = far_table_create(session, name[i], index, &options, &c->table[i]);
    }
    if (rc == FAR_OK)
        rc = check_drop_set_up(c, session);
    return rc == FAR_OK ? check_handle_set_up(c, session) : rc;
}

/* ---- ballast --------------------------------------------------------------------------------- */

#define BALLAST_NAME "b"
#define BALLAST_MAX  (32u << 10) /* bytes of a value */
#define BALLAST_MIN  64u
#define BALLAST_KEYS 512u

int check_stuff(struct check *c, far_session *session)
{
    static const uint8_t value[BALLAST_MAX];
    struct far_table_options options = {.tuning = tuning_varied(c->set->index, 0), .hash_seed = 11};
    far_table *table = NULL;
    unsigned key = 0;
    int rc = far_table_create(session, BALLAST_NAME, c->set->index, &options, &table);
    for (size_t bytes = BALLAST_MAX; bytes >= BALLAST_MIN && rc == FAR_OK; bytes /= 4) {
        while (rc == FAR_OK && key < BALLAST_KEYS) {
            key++;
            rc = far_put(session, table, &key, sizeof key, value, bytes);
        }
        if (rc == FAR_POOL_FULL || rc == FAR_TABLE_FULL)
            rc = FAR_OK;
    }
    far_table_close(table);
    return rc == FAR_POOL_FULL ? FAR_OK : rc;
}

static int drop_ballast(struct check *c, far_session *session)
{
    far_table *table = NULL;
    int rc = far_table_open(session, BALLAST_NAME, c->set->index, &table);
    if (rc == FAR_OK)
        rc = far_table_drop(session, table);
    far_table_close(table);
    return rc == FAR_NO_TABLE ? FAR_OK : rc;
}

/* ---- empty tables ---------------------------------------------------------------------------- */

struct counting {
    struct marker marker;
    uint64_t bytes;
};

static void count(struct marker *marker, gaddr at, unsigned size_class)
{
    struct counting *counting = (struct counting *)marker;
    (void)at;
    counting->bytes += size_class_bytes(size_class);
}
_Static_assert(offsetof(struct counting, marker) == 0, "the marker comes first");

/* What can be reached, without the lines of journals, which slots keep; and what is in no place. */
static int measure(struct check *c, far_session *session, uint64_t *live, uint64_t *lost)
{
    struct counting lines = {.marker = {.mark = count}};
    unsigned damaged = 0, slot = 0;
    struct audit a;
    int rc = sim_audit(&a, c->pool, &session, 1);
    if (rc == FAR_OK)
        rc = journal_mark(&session->op, &lines.marker, &damaged, &slot);
    *live = a.bytes[AUDIT_LIVE] - lines.bytes;
    *lost = a.bytes[AUDIT_NOWHERE];
    return rc;
}

int check_empty_note(struct check *c)
{
    uint64_t lost = 0;
    return measure(c, c->session, &c->empty_bytes, &lost);
}

static int drop_all(far_session *session, struct check *c)
{
    static const char *const name[] = {"t", "u", "d", "h", "b"};
    int rc = FAR_OK;
    for (unsigned i = 0; i < sizeof name / sizeof *name && rc == FAR_OK; i++) {
        far_table *table = NULL;
        const char *index = i == 1 ? c->plan.other_index : c->set->index;
        rc = far_table_open(session, name[i], index, &table);
        if (rc == FAR_OK)
            rc = far_table_drop(session, table);
        else if (rc == FAR_NO_TABLE)
            rc = FAR_OK;
    }
    return rc;
}

/* Has none of the new tables a key, and can each be used? */
static void use_again(struct check *c, far_session *fresh)
{
    char bytes[KEY_BYTES_MAX];
    for (unsigned key = 0; key < c->keys && c->result.verdict == CHECK_PASSED; key++) {
        size_t len = check_key_bytes(c, key, bytes);
        int rc = far_exists(fresh, check_table_of(c, key), bytes, len);
        if (rc != FAR_NOT_FOUND)
            check_fail_status(c, CHECK_BAD_STATUS, rc, "in a new table, a look for k%u", key);
    }
    for (unsigned key = 0; key < c->set->keys && c->result.verdict == CHECK_PASSED; key++) {
        size_t len = check_key_bytes(c, key, bytes);
        int rc = far_put(fresh, check_table_of(c, key), bytes, len, "", 0);
        if (rc != FAR_OK)
            check_fail_status(c, CHECK_NOT_LIVE, rc, "in a new table, put k%u", key);
    }
}

static void expect_no_error(struct check *c, int rc, const char *what, unsigned key)
{
    if (rc != FAR_OK && rc != FAR_NOT_FOUND && rc != FAR_TABLE_FULL)
        check_fail_status(c, CHECK_NOT_LIVE, rc, "in a pool that was small, %s k%u", what, key);
}

/* Two leases pass, and the session lives on. A sweep that only cuts memory for other sizes is not
 * made more often than that (RELIEF-1). */
static void let_leases_pass(struct check *c, far_session *fresh)
{
    char bytes[KEY_BYTES_MAX];
    size_t len = check_key_bytes(c, 0, bytes);
    for (unsigned i = 0; i < 17; i++) {
        batch_pause(&fresh->op.batch, client_lease_ns(&fresh->client) / 8);
        (void)far_exists(fresh, check_table_of(c, 0), bytes, len);
    }
}

void check_room_audit(struct check *c, far_session *fresh)
{
    char bytes[KEY_BYTES_MAX];
    uint8_t value[VALUE_MAX];
    if (c->program || !c->plan.tight || c->set->deletes_take_memory)
        return;
    int dropped = c->plan.stuffed ? drop_ballast(c, fresh) : FAR_OK;
    if (dropped != FAR_OK)
        check_fail_status(c, CHECK_NOT_LIVE, dropped, "dropping what filled the pool");
    for (unsigned key = 0; key < c->keys && c->result.verdict == CHECK_PASSED; key++) {
        size_t len = check_key_bytes(c, key, bytes);
        int rc = far_delete(fresh, check_table_of(c, key), bytes, len);
        expect_no_error(c, rc, "delete", key);
    }
    for (unsigned key = 0; key < c->set->keys && c->result.verdict == CHECK_PASSED; key++) {
        size_t len = check_key_bytes(c, key, bytes);
        size_t value_len = check_value_bytes(c, 1 + key, value);
        int rc = far_put(fresh, check_table_of(c, key), bytes, len, value, value_len);
        if (rc == FAR_POOL_FULL) {
            let_leases_pass(c, fresh);
            rc = far_put(fresh, check_table_of(c, key), bytes, len, value, value_len);
        }
        expect_no_error(c, rc, "after all keys were deleted, put", key);
    }
    c->result.coverage.room_made = c->result.coverage.found_full > 0;
}

void check_empty_audit(struct check *c, far_session *fresh)
{
    struct sweep_result swept;
    uint64_t live = 0, lost = 0;
    if (!c->plan.empties || c->result.verdict != CHECK_PASSED)
        return;
    int rc = drop_all(fresh, c);
    if (rc == FAR_OK)
        rc = check_create_tables(c, fresh);
    if (rc == FAR_OK)
        rc = pool_sweep(&fresh->op, &swept);
    if (rc == FAR_OK)
        rc = measure(c, fresh, &live, &lost);
    if (rc != FAR_OK)
        check_fail_status(c, CHECK_NOT_LIVE, rc, "dropping all tables and making them again");
    else if (live != c->empty_bytes || lost > 0)
        check_fail(c, CHECK_BAD_MEMORY,
                   "with new tables in place of the old ones, %" PRIu64
                   " bytes are live, not %" PRIu64 " as at first, and %" PRIu64 " are in no place",
                   live, c->empty_bytes, lost);
    else
        use_again(c, fresh);
    c->result.coverage.emptied++;
}

#define FINDING_MAX 160

static void on_finding(void *arg, const char *line)
{
    char *first = arg;
    if (first[0] == '\0')
        snprintf(first, FINDING_MAX, "%s", line);
}

/* The walker may find locks that dead clients left. It must find no damage. */
void check_walk_tables(struct check *c, far_session *session)
{
    for (unsigned i = 0; i < c->plan.tables; i++) {
        char finding[FINDING_MAX] = "";
        int rc = far_table_check(session, c->table[i], on_finding, finding);
        if (rc != FAR_OK)
            check_fail_status(c, CHECK_BAD_STRUCTURE, rc, "the walk of table %u (\"%s\")", i,
                              finding);
    }
}
