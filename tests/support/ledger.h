/*
 * What clients of a table did and got, kept where it outlives them: for tests in which clients,
 * nodes or connections die.
 *
 * A client has keys of its own. Before it changes one it writes down what it wants (intent), and
 * afterwards what it got (acked). So nothing that was acknowledged is forgotten with the client,
 * and at most one operation of each key is in doubt: its client was killed, or it ended with an
 * error that says that the outcome is unknown. A key without doubt holds what was acknowledged. A
 * key in doubt holds that, or what was wanted.
 *
 * If several clients change a key, its value can still be checked: it is whole, of that key, and
 * written by a client that meant to.
 */
#ifndef TESTS_LEDGER_H
#define TESTS_LEDGER_H

#include "farside.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VALUE_MOST 20000u
#define DOUBT      (1ull << 63)

/* One key of a client. Versions count up; 0: the key is absent. */
struct cell {
    uint64_t acked;
    uint64_t intent; /* a version and DOUBT; 0: nothing is under way */
};

struct key {
    uint32_t owner;
    uint32_t number;
};

struct value_head {
    struct key key;
    uint64_t writer, version;
};

enum ledger_change { CHANGE_PUT, CHANGE_INSERT, CHANGE_UPDATE, CHANGE_DELETE, CHANGES };

/* Most are small; some take chunks of their own. */
static inline size_t value_len(uint64_t version)
{
    uint64_t mix = version * 0x9e3779b97f4a7c15ull >> 40;
    return sizeof(struct value_head) + (mix % 256 == 0 ? mix % (VALUE_MOST - 24) : mix % 600);
}

static inline size_t value_make(struct key key, uint64_t writer, uint64_t version, char *value)
{
    struct value_head head = {key, writer, version};
    size_t len = value_len(version);
    memset(value, (int)('a' + version % 26), len);
    memcpy(value, &head, sizeof head);
    return len;
}

static inline bool value_whole(struct key key, const char *value, size_t len,
                               struct value_head *head)
{
    static char expected[VALUE_MOST];
    if (len < sizeof *head)
        return false;
    memcpy(head, value, sizeof *head);
    return head->key.owner == key.owner && head->key.number == key.number &&
           len == value_make(key, head->writer, head->version, expected) &&
           memcmp(value, expected, len) == 0;
}

/* What a key holds; FAR_CORRUPT if no client can have written that. */
static inline int ledger_get(far_session *s, far_table *t, struct key key, struct value_head *head)
{
    static char value[VALUE_MOST];
    size_t len = 0;
    int rc = far_get(s, t, &key, sizeof key, value, sizeof value, &len);

    return rc == FAR_OK && !value_whole(key, value, len, head) ? FAR_CORRUPT : rc;
}

/* Makes a change; the version is that of the value, if it has one. */
static inline int ledger_change(far_session *s, far_table *t, struct key key,
                                enum ledger_change change, uint64_t writer, uint64_t version)
{
    static char value[VALUE_MOST];
    size_t len = value_make(key, writer, version, value);

    switch (change) {
    case CHANGE_PUT:
        return far_put(s, t, &key, sizeof key, value, len);
    case CHANGE_INSERT:
        return far_insert(s, t, &key, sizeof key, value, len);
    case CHANGE_UPDATE:
        return far_update(s, t, &key, sizeof key, value, len);
    default:
        return far_delete(s, t, &key, sizeof key);
    }
}

/* The same with a key of the client's own that is not in doubt: what it must return is known.
 * FAR_OK: it did, and is on record. FAR_CORRUPT: it succeeded, and must not have. After any other
 * status the key is in doubt. */
static inline int cell_change(far_session *s, far_table *t, struct cell *cell, struct key key,
                              enum ledger_change change, uint64_t version)
{
    bool there = cell->acked != 0;
    int expected = change == CHANGE_INSERT ? (there ? FAR_EXISTS : FAR_OK)
                   : change == CHANGE_PUT  ? FAR_OK
                   : there                 ? FAR_OK
                                           : FAR_NOT_FOUND;
    uint64_t wanted = change == CHANGE_DELETE ? 0 : version;

    __atomic_store_n(&cell->intent, wanted | DOUBT, __ATOMIC_RELEASE);
    int rc = ledger_change(s, t, key, change, key.owner, version);
    if (rc != expected)
        return rc == FAR_OK ? FAR_CORRUPT : rc;
    if (rc == FAR_OK)
        __atomic_store_n(&cell->acked, wanted, __ATOMIC_RELEASE);
    __atomic_store_n(&cell->intent, 0, __ATOMIC_RELEASE);
    return FAR_OK;
}

/* The key was found to hold this. False: it must not. */
static inline bool cell_settle(struct cell *cell, uint64_t found)
{
    if (found != cell->acked && !(cell->intent && found == (cell->intent & ~DOUBT)))
        return false;
    cell->acked = found;
    cell->intent = 0;
    return true;
}

#endif
