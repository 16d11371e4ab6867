/* Actors A, B and C on a table of CHIME with the smallest nodes, and what they do with numbered
 * keys. */
#ifndef TESTS_CHIME_RIG_H
#define TESTS_CHIME_RIG_H

#include "support/chime_image.h"
#include "support/sweep_rig.h"
#include "support/verb_script.h"

#include <stdio.h>

#define SMALL "span=8&neighbourhood=4&cache=16&hot=0"

static struct store_rig rig;
static struct actor A, B, C; /* the session of B is the rig's; who C is, the test says */

/* How keys are made of numbers. The test changes this while the table is empty. */
static struct {
    const char *text;   /* a format of printf; NULL: 8 bytes, in the order of the numbers */
    uint64_t factor;    /* of these numbers */
    uint32_t value_len; /* 8, or more: then values are in blocks */
} keys;

static inline size_t key_bytes(uint64_t number, char key[16])
{
    uint64_t k = __builtin_bswap64(number * keys.factor);
    if (keys.text)
        return (size_t)snprintf(key, 16, keys.text, (unsigned)number);
    memcpy(key, &k, 8);
    return 8;
}

static inline void actor_join(struct actor *a, far_session *s)
{
    actor_set(a, &rig, s ? s : store_rig_join(&rig), B.t);
}

static inline int rig_close(void **state)
{
    (void)state;
    actor_leave(&A);
    actor_leave(&C);
    actor_leave(&B);
    if (rig.pool)
        store_rig_close(&rig);
    rig.pool = NULL;
    return 0;
}

/* Another pool than before, with an empty table. */
static inline void rig_open(const char *uri, const char *tuning, const struct knobs *knobs,
                            uint64_t seed)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    struct far_session_options session = {.seed = seed};
    struct knobs all = *knobs;
    all.tick_ops = 1;
    (void)rig_close(NULL);
    store_rig_open_driven(&rig, uri, &all, &session, NULL);
    expect_ok(far_table_create(rig.session, "c", "chime", &options, &B.t));
    actor_join(&B, rig.session);
    keys.text = NULL;
    keys.factor = 1;
    keys.value_len = 8;
}

/* ---- deeds ----------------------------------------------------------------------------------- */

static char no_bytes[512]; /* what long values are made of */

static inline int put_key(struct actor *a, uint64_t number, uint64_t value)
{
    char key[16];
    bool is_long = keys.value_len > sizeof value;
    return far_put(a->s, a->t, key, key_bytes(number, key), is_long ? no_bytes : (char *)&value,
                   keys.value_len);
}

static inline int insert_key(struct actor *a, uint64_t number, uint64_t value)
{
    char key[16];
    return far_insert(a->s, a->t, key, key_bytes(number, key), &value, 8);
}

/* Sets `found`, if the value is not long. */
static inline int get_key(struct actor *a, uint64_t number, uint64_t value)
{
    static char bytes[sizeof no_bytes];
    char key[16];
    size_t len = 0;
    (void)value;
    a->found = 0;
    if (keys.value_len == sizeof a->found)
        return far_get(a->s, a->t, key, key_bytes(number, key), &a->found, 8, &len);
    return far_get(a->s, a->t, key, key_bytes(number, key), bytes, sizeof bytes, &len);
}

static inline int delete_key(struct actor *a, uint64_t number, uint64_t value)
{
    char key[16];
    (void)value;
    return far_delete(a->s, a->t, key, key_bytes(number, key));
}

/* From a key on; limit 0: all keys. */
static char scanned[65536];
static bool more_to_scan;
static inline int scan_keys(struct actor *a, uint64_t from, uint64_t limit)
{
    char key[16];
    struct far_range range = {.from = key, .from_len = key_bytes(from, key), .limit = limit};
    struct far_range all = {0};
    size_t len = 0;
    int rc = far_scan(a->s, a->t, limit == 0 ? &all : &range, scanned, sizeof scanned, &len,
                      &more_to_scan);
    a->found = len;
    return rc;
}

/* One after the other, from the first key to the last one. */
#define each_ok(act, a, first, last, by)                                                           \
    for (uint64_t n_ = (first);; n_ += (uint64_t)(by)) {                                           \
        expect_ok(act(a, n_, n_));                                                                 \
        if (n_ == (last))                                                                          \
            break;                                                                                 \
    }

/* ---- nodes ----------------------------------------------------------------------------------- */

static inline struct chime_view *view_of(struct actor *a)
{
    return chime_view(store_known(a->s, a->t)->view);
}

/* The leaf of a key. */
static inline struct chime_spot spot_of(struct actor *a, uint64_t number)
{
    char key[16];
    struct chime_bound bound = chime_key_bound((struct slice){key, key_bytes(number, key)});
    struct chime_wait wait = {0};
    struct chime_spot spot;
    expect_ok(op_begin(&a->s->op, NULL));
    expect_ok(chime_descend(&a->s->op, view_of(a), &bound, 0, true, &wait, &spot));
    op_end(&a->s->op);
    return spot;
}

static inline uint64_t word_at(gaddr at, uint64_t delta)
{
    return store_rig_get(&rig, at, delta);
}

/* A node's lock is its first word. */
static inline bool is_dead(gaddr node)
{
    return word_at(node, 0) == CHIME_DEAD;
}

static inline void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
}

static inline void expect_sound_table(void)
{
    expect_ok(far_table_check(B.s, B.t, say, NULL));
}

/* The same, and no object of the pool is in two places. */
static inline void expect_whole_table(void)
{
    struct audit a;
    expect_sound_table();
    expect_sound(&rig, &B.s, 1, &a);
}

/* A request that begins with a READ of groups. */
static inline bool reads_groups(const struct fab_req *req, unsigned i)
{
    return i == 0 && req->verbs[0].kind == FAB_READ &&
           req->verbs[0].len % (8 * CHIME_GROUP_WORDS) == 0;
}

/* A test that begins with a new rig. */
#define SCRIPT(name) cmocka_unit_test_setup(name, set_up)

#endif
