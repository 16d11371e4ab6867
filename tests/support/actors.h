/* Actors on a table of one index, and time that the test drives. */
#ifndef TESTS_ACTORS_H
#define TESTS_ACTORS_H

#include "support/deeds.h"
#include "support/sweep_rig.h"

#include <stdio.h>

static struct store_rig rig;
static struct actor A, B, C, D; /* the session of B is the rig's; C and D may join */

static inline void actor_join(struct actor *a)
{
    actor_set(a, &rig, store_rig_join(&rig), B.t);
}

static inline int close_actors(void **state)
{
    (void)state;
    actor_leave(&A);
    actor_leave(&B);
    actor_leave(&C);
    actor_leave(&D);
    if (rig.pool)
        store_rig_close(&rig);
    rig.pool = NULL;
    return 0;
}

/* Another pool than before, with an empty table. Knobs NULL: the default. */
static inline void open_actors(const char *uri, const char *index, const char *tuning,
                               const struct knobs *knobs)
{
    struct far_table_options options = {.tuning = tuning, .hash_seed = 3};
    struct knobs all = knobs ? *knobs : pool_knobs_default;
    all.tick_ops = 1;
    (void)close_actors(NULL);
    store_rig_open_driven(&rig, uri, &all, NULL, NULL);
    actor_set(&B, &rig, rig.session, NULL);
    expect_ok(far_table_create(B.s, "s", index, &options, &B.t));
    actor_join(&A);
}

/* Puts keys from that one on until it comes to the place. */
static inline void put_until(struct actor *a, struct place place, uint32_t key)
{
    int rc = actor_begin(a, place, put_key, key, key);
    for (uint32_t end = key + 500; rc == FAR_OK && key < end; key++)
        rc = actor_begin(a, place, put_key, key + 1, key + 1);
    assert_int_equal(rc, STOPPED);
}

/* What a client that knows nothing of the table does first. */
static inline void meet_table(struct actor *a)
{
    int rc = get_key(a, 1, 0);
    assert_true(rc == FAR_OK || rc == FAR_NOT_FOUND);
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

/* Nothing is in two places. */
static inline void audit_both(struct audit *audit)
{
    expect_ok(sim_audit(audit, rig.pool, (far_session *[]){B.s, A.s}, 2));
    if (audit->wrong > 0)
        fail_msg("%u objects in two places: %s", audit->wrong, audit->first);
}

#endif
