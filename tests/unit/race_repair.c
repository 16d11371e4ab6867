/* Repairs of a RACE table beside a session that changes the key they are about. */
#include "index/walk.h"
#include "support/hook.h"
#include "support/race_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>

static struct store_rig *the;
static far_session *walker;
static struct race_spot spot; /* of the key */
static unsigned empty[2];     /* words of the subtable where the key might be, too */
static bool busy;             /* the other session is at work */
static unsigned looks;        /* of the walker at the subtable so far */
static const uint32_t key = 7;

static int get(uint32_t *value)
{
    size_t len = 0;
    return far_get(the->session, the->table, &key, sizeof key, value, sizeof *value, &len);
}

static void update(uint32_t value)
{
    assert_int_equal(far_update(the->session, the->table, &key, sizeof key, &value, sizeof value),
                     FAR_OK);
}

static unsigned word_number(unsigned place)
{
    return (unsigned)race_place_offset(&spot.key, place) / 8;
}

static uint64_t word_of(unsigned number)
{
    return store_rig_get(the, spot.look.subtable, number * 8ull);
}

static void start(struct store_rig *r)
{
    struct far_table_options options = {.tuning = "groups=2&hot=0", .hash_seed = 3};
    unsigned found = 0;
    uint32_t v = 0;
    the = r;
    looks = 0;
    store_rig_open(r, "mem:?size=4m&lease=60", NULL, NULL, &options);
    assert_int_equal(far_insert(r->session, r->table, &key, sizeof key, &v, sizeof v), FAR_OK);
    walker = store_rig_join(r);
    assert_int_equal(far_exists(walker, r->table, &key, sizeof key), FAR_OK);
    race_rig_find(r, &key, sizeof key, &spot);
    for (unsigned place = 0; place < RACE_PLACES && found < 2; place++)
        if (race_is_slot(word_number(place)) && place > (unsigned)spot.found.place &&
            word_of(word_number(place)) == 0)
            empty[found++] = word_number(place);
    assert_int_equal(found, 2);
}

static void say(void *arg, const char *line)
{
    (void)arg;
    printf("      %s\n", line);
}

static void repair(int (*post)(struct fab_ep *ep, struct fab_req *req), struct index_report *report)
{
    struct op *op = &walker->op;
    *report = (struct index_report){.line = say, .repair = true};
    hook_on(walker->client.ep);
    hook.ops.post = post;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    int rc = race_check(op, store_known(walker, the->table)->view, report);
    op_end(op);
    hook_off();
    assert_int_equal(rc, FAR_OK);
}

static struct fab_verb *read_of_subtable(struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && !busy; i++) {
        struct fab_verb *v = &req->verbs[i];
        if (v->kind == FAB_READ && v->off == gaddr_offset(spot.look.subtable) &&
            v->len == race_subtable_bytes(2))
            return v;
    }
    return NULL;
}

/* What a READ finds if the key was in an empty slot when that word was read, and was deleted and
 * inserted again before the rest was (FABRIC-F1). At each look it is another one. */
static int move_between_words(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_verb *hit = read_of_subtable(req);
    uint64_t early = 0;
    if (hit) {
        busy = true;
        early = word_of(word_number((unsigned)spot.found.place));
        update(100 + looks);
        busy = false;
    }
    hook_run(ep, req);
    if (hit)
        ((uint64_t *)hit->buf)[empty[looks++ % 2]] = early;
    return FAR_OK;
}

static void a_key_that_comes_and_goes_is_not_taken_for_two(void **state)
{
    struct store_rig r;
    struct index_report report;
    uint32_t v = 0;
    (void)state;
    start(&r);
    repair(move_between_words, &report);
    assert_true(looks > 1);
    assert_int_equal(report.violations, 0);
    assert_int_equal(report.repaired, 0);
    assert_int_equal(get(&v), FAR_OK);
    far_session_close(walker);
    store_rig_close(&r);
}

/* Two slots of the key, with the values 1 and 2. */
static void damage(void)
{
    update(2);
    uint64_t second = word_of(word_number((unsigned)spot.found.place));
    update(1);
    store_rig_set(the, spot.look.subtable, empty[0] * 8ull, second);
}

/* Before the walker touches one of the slots, the first one is deleted. */
static int delete_first(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t from = gaddr_offset(spot.look.subtable);
    uint32_t v = 0;
    looks += read_of_subtable(req) != NULL;
    for (unsigned i = 0; i < req->count && !busy && looks == INDEX_WALK_LOOKS; i++) {
        const struct fab_verb *verb = &req->verbs[i];
        if (verb->len != 8 || verb->off < from || verb->off >= from + race_subtable_bytes(2))
            continue;
        busy = true;
        looks++; /* once */
        assert_int_equal(far_delete(the->session, the->table, &key, sizeof key), FAR_OK);
        assert_int_equal(get(&v), FAR_OK);
        assert_int_equal(v, 2);
        busy = false;
    }
    return hook.real->post(ep, req);
}

/* Another client comes first, so nothing is repaired. The key has the value `left`. */
static void expect_too_late(int (*post)(struct fab_ep *ep, struct fab_req *req), unsigned looked,
                            uint32_t left)
{
    struct store_rig r;
    struct index_report report;
    uint32_t v = 0;
    start(&r);
    damage();
    repair(post, &report);
    assert_int_equal(looks, looked);
    assert_int_equal(report.violations, 1);
    assert_int_equal(report.repaired, 0);
    assert_int_equal(get(&v), FAR_OK);
    assert_int_equal(v, left);
    far_session_close(walker);
    store_rig_close(&r);
}

static void the_second_slot_stays_if_the_first_is_empty(void **state)
{
    (void)state;
    expect_too_late(delete_first, INDEX_WALK_LOOKS + 1, 2);
}

/* Before the walker empties the second slot, another client does. */
static int empty_second(struct fab_ep *ep, struct fab_req *req)
{
    uint64_t at = gaddr_offset(spot.look.subtable) + empty[0] * 8ull;
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *verb = &req->verbs[i];
        if (verb->kind != FAB_CAS || verb->off != at)
            continue;
        store_rig_set(the, spot.look.subtable, empty[0] * 8ull, 0);
        looks++;
    }
    return hook.real->post(ep, req);
}

static void a_repair_that_comes_too_late_is_not_counted(void **state)
{
    (void)state;
    expect_too_late(empty_second, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_comes_and_goes_is_not_taken_for_two),
        cmocka_unit_test(the_second_slot_stays_if_the_first_is_empty),
        cmocka_unit_test(a_repair_that_comes_too_late_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
