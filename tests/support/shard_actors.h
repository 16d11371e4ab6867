/* Two clients of a table of SHARD that the test lets go on verb by verb. */
#ifndef TESTS_SHARD_ACTORS_H
#define TESTS_SHARD_ACTORS_H

#include "support/deeds.h"
#include "support/shard_rig.h"

static struct rig rig;
static struct actor A, B;
static uint32_t from; /* the next key that no test has used */

static inline int start(void **state)
{
    (void)state;
    the = &rig;
    from = 0;
    open_rig(the);
    A = B = (struct actor){0};
    actor_set(&A, &the->r, the->a, the->t);
    actor_set(&B, &the->r, the->b, the->t);
    return 0;
}

static inline void end(void)
{
    expect_ok(far_table_check(B.s, B.t, say, NULL));
    actor_leave(&A);
    actor_leave(&B);
    store_rig_close(&the->r);
}

#endif
