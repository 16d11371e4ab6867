/* An operation waits while another one of its ring splits a subtable. It holds a block that no slot
 * names yet, and no sweep may take that for lost memory: so the operation stays in flight. */
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* Makes the key's subtable look as if another operation of the session were splitting it: one of
 * the key's places is sealed, in its own bucket if it has one, and the view says so. */
static void begin_split(struct store_rig *r, uint64_t *key)
{
    struct race_spot spot;
    unsigned place = 0;
    race_rig_find(r, key, 8, &spot);
    if (spot.found.place >= 0)
        place = (unsigned)spot.found.place & ~(RACE_BUCKET_WORDS - 1u);
    while (!race_is_slot(place) || spot.look.words[place] != 0)
        place++;
    store_rig_set(r, spot.look.subtable, race_place_offset(&spot.key, place), RACE_SLOT_SEALED);
    race_rig_view(r)->splitting[0] = spot.look.entry;
}

static void an_operation_that_waits_for_another_is_in_flight(void **state)
{
    static const enum far_op_kind kinds[] = {FAR_OP_PUT, FAR_OP_INSERT, FAR_OP_UPDATE};

    (void)state;
    for (unsigned n = 0; n < 3; n++) {
        struct store_rig r;
        struct knobs knobs = pool_knobs_default;
        struct far_result result;
        uint64_t key = 7;
        struct far_op op = {
            .kind = kinds[n], .key = &key, .key_len = 8, .value = &key, .value_len = 8};
        knobs.patience = 1u << 30; /* it waits until the test says so */
        store_rig_open(&r, "mem:?size=4m&defer=1&lease=3600000", &knobs, NULL,
                       &(struct far_table_options){.tuning = "groups=2"});
        op.table = r.table;
        far_session *other = store_rig_join(&r); /* its keys are not changed without a look */
        for (uint64_t k = 0; k < 8; k++)
            if (k != key || kinds[n] == FAR_OP_UPDATE)
                assert_int_equal(far_put(other, r.table, &k, 8, &k, 8), FAR_OK);
        far_session_close(other);
        assert_int_equal(far_exists(r.session, r.table, &key, 8),
                         kinds[n] == FAR_OP_UPDATE ? FAR_OK : FAR_NOT_FOUND);
        begin_split(&r, &key);
        assert_int_equal(far_submit(r.session, &op), FAR_OK);
        const struct op *waiting = &r.session->slot[r.session->running[0]].op;
        for (unsigned i = 0; i < 100 && waiting->batch.wake_at == 0; i++)
            assert_int_equal(far_reap(r.session, &result, 1, 0), 0);
        assert_true(waiting->batch.wake_at != 0);
        assert_true(op_in_flight(waiting));
        race_rig_view(&r)->splitting[0] = 0; /* the other one is done */
        assert_int_equal(far_reap(r.session, &result, 1, 1), 1);
        assert_int_equal(result.status, FAR_OK);
        store_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_that_waits_for_another_is_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
