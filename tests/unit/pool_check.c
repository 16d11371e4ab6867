/*
 * far_pool_check(): a pool is damaged in every way that the check knows. It reports and repairs
 * each, and nothing else is lost.
 */
#include "support/hook.h"
#include "support/journal_rig.h"
#include "support/probe.h"
#include "support/race_rig.h"

#include <stdio.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 300u

static struct {
    char text[8192];
    size_t len;
} reported;

static void listen(void *arg, const char *line)
{
    (void)arg;
    reported.len += (size_t)snprintf(reported.text + reported.len,
                                     sizeof reported.text - reported.len, "%s\n", line);
}

static void rig(struct store_rig *r, struct probe *p)
{
    struct far_table_options options = {.tuning = "groups=2", .hash_seed = 3};
    store_rig_open_driven(r, "mem:?size=16m&lease=1000", NULL, NULL, &options);
    probe_open(p, r->fab);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(far_insert(r->session, r->table, &i, sizeof i, &i, sizeof i), FAR_OK);
}

static void end(struct store_rig *r, struct probe *p)
{
    probe_close(p);
    store_rig_close(r);
}

static struct far_pool_check check(struct store_rig *r, bool repair, int expected)
{
    struct far_pool_check c = {0};
    reported.len = 0;
    reported.text[0] = '\0';
    int rc = far_pool_check(r->session, repair, listen, NULL, &c);
    if (rc != expected)
        print_error("%s: %s\n%s", far_errname(rc), far_error_detail(), reported.text);
    assert_int_equal(rc, expected);
    return c;
}

static void expect_reported(const char *what)
{
    if (!strstr(reported.text, what))
        fail_msg("not reported: %s\n%s", what, reported.text);
}

/* The check reports it, reports it again when it repairs it, and then finds nothing. */
static void expect_repaired(struct store_rig *r, const char *what, unsigned count)
{
    struct far_pool_check c = check(r, false, FAR_CORRUPT);
    assert_int_equal(c.violations, count);
    assert_int_equal(c.repaired, 0);
    expect_reported(what);
    c = check(r, true, FAR_OK);
    expect_reported(what);
    expect_reported("repaired");
    assert_int_equal(c.violations, 0);
    assert_int_equal(c.repaired, count);
    c = check(r, false, FAR_OK);
    assert_int_equal(c.repaired + c.stranded + c.dead_clients, 0);
    assert_true(c.leaked_bytes == 0);
}

/* All keys but one hold themselves. */
static void expect_keys(struct store_rig *r, uint32_t except)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t got = 0;
        size_t len = 0;
        if (i == except)
            continue;
        assert_int_equal(far_get(r->session, r->table, &i, sizeof i, &got, sizeof got, &len),
                         FAR_OK);
        assert_int_equal(got, i);
    }
}

static uint64_t slot_at(const struct race_spot *spot)
{
    return race_place_offset(&spot->key, (unsigned)spot->found.place);
}

static void a_whole_pool_is_clean(void **state)
{
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    struct far_pool_check c = check(&r, false, FAR_OK);
    assert_int_equal(c.violations + c.stranded + c.repaired + c.dead_clients, 0);
    assert_true(c.leaked_bytes == 0 && c.repaired_bytes == 0);
    assert_int_equal(reported.len, 0);
    end(&r, &p);
}

/* What another session frees during a sweep is lost until the next sweep, because the sweep may
 * have found it already. If that session is at work all the time, no repair ends without such a
 * loss: it is no leak. */
struct worker {
    far_session *session;
    far_table *table;
};

static bool work(void *arg, const char *what, uint64_t done, uint64_t total)
{
    static const char value[4096];
    const struct worker *w = arg;
    uint32_t key = 17;
    (void)what;
    (void)done;
    (void)total;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(far_put(w->session, w->table, &key, sizeof key, value, sizeof value),
                         FAR_OK);
    return true;
}

static void memory_lost_by_a_session_at_work_is_no_leak(void **state)
{
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    struct worker w = {.table = r.table};
    assert_int_equal(far_session_open(r.pool, NULL, &w.session), FAR_OK);
    far_session_watch(r.session, work, &w);
    for (unsigned i = 0; i < 4; i++) {
        struct far_pool_check c = check(&r, true, FAR_OK);
        if (c.leaked_bytes != 0)
            fail_msg("repair %u:\n%s", i, reported.text);
    }
    far_session_watch(r.session, NULL, NULL);
    far_session_close(w.session);
    assert_true(check(&r, true, FAR_OK).leaked_bytes == 0);
    assert_true(check(&r, false, FAR_OK).leaked_bytes == 0);
    end(&r, &p);
}

/* An address outside of the pool, a block that fails its checksum: the key cannot be read, and can
 * be written again. */
static void a_slot_that_leads_to_no_block_is_repaired(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        struct store_rig r;
        struct probe p;
        struct race_spot spot;
        uint32_t key = 17;
        rig(&r, &p);
        race_rig_find(&r, &key, sizeof key, &spot);
        if (kind == 0)
            probe_set(&p, spot.look.subtable, slot_at(&spot), spot.found.slot | GADDR_MASK);
        else
            probe_set(&p, pointer_gaddr(spot.found.slot), 16,
                      ~probe_get(&p, pointer_gaddr(spot.found.slot), 16));
        expect_repaired(&r, "broken link: no whole block", 1);
        assert_int_equal(far_exists(r.session, r.table, &key, sizeof key), FAR_NOT_FOUND);
        expect_keys(&r, key);
        assert_int_equal(far_insert(r.session, r.table, &key, sizeof key, &key, 4), FAR_OK);
        expect_keys(&r, KEYS);
        end(&r, &p);
    }
}

/* A size class that is not the block's: what can be read stays, and its neighbours are not taken
 * for parts of it. */
static void a_slot_that_gives_a_block_another_size_is_repaired(void **state)
{
    static const unsigned classes[] = {1, 19, 20, 35, 40};
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    for (uint32_t key = 0; key < 5; key++) {
        struct race_spot spot;
        race_rig_find(&r, &key, sizeof key, &spot);
        probe_set(&p, spot.look.subtable, slot_at(&spot),
                  pointer_with_class(spot.found.slot, classes[key]));
        expect_repaired(&r, "another size than it has", 1);
        assert_true(probe_get(&p, spot.look.subtable, slot_at(&spot)) == spot.found.slot);
        expect_keys(&r, KEYS);
    }
    end(&r, &p);
}

/* A fingerprint that is not the key's: the key was not found, though its block is whole. */
static void a_key_in_the_wrong_place_is_found_again(void **state)
{
    struct store_rig r;
    struct probe p;
    struct race_spot spot;
    uint32_t key = 23;
    (void)state;
    rig(&r, &p);
    race_rig_find(&r, &key, sizeof key, &spot);
    probe_set(&p, spot.look.subtable, slot_at(&spot), spot.found.slot ^ 0x5ull << 54);
    assert_int_equal(far_exists(r.session, r.table, &key, sizeof key), FAR_NOT_FOUND);
    expect_repaired(&r, "a key in a place where it is not looked for", 1);
    expect_keys(&r, KEYS);
    end(&r, &p);
}

/* The same block twice, and two blocks: what a get returned before, it returns after. */
static void a_key_that_is_there_twice_keeps_what_a_get_returned(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 2; kind++) {
        struct store_rig r;
        struct probe p;
        struct race_spot spot, other;
        uint32_t key = 42, aside = 43, got = 0, before = 0;
        size_t len = 0;
        rig(&r, &p);
        uint64_t second = 0;
        if (kind == 1) { /* an older version of it, whose block nobody has reused */
            race_rig_find(&r, &key, sizeof key, &other);
            second = other.found.slot;
            assert_int_equal(far_update(r.session, r.table, &key, sizeof key, &aside, 4), FAR_OK);
        }
        race_rig_find(&r, &key, sizeof key, &spot);
        second = kind == 1 ? second : spot.found.slot;
        unsigned place = 0;
        while (!race_is_slot(place) || spot.look.words[place] != 0)
            assert_true(++place < RACE_PLACES);
        probe_set(&p, spot.look.subtable, race_place_offset(&spot.key, place), second);
        assert_int_equal(far_get(r.session, r.table, &key, 4, &before, 4, &len), FAR_OK);
        expect_repaired(&r, "duplicate: a key that is there twice", 1);
        assert_int_equal(far_get(r.session, r.table, &key, 4, &got, 4, &len), FAR_OK);
        assert_int_equal(got, before);
        expect_keys(&r, key);
        assert_int_equal(far_delete(r.session, r.table, &key, sizeof key), FAR_OK);
        assert_int_equal(far_exists(r.session, r.table, &key, sizeof key), FAR_NOT_FOUND);
        end(&r, &p);
    }
}

static void damaged_headers_are_repaired(void **state)
{
    struct store_rig r;
    struct probe p;
    struct race_spot spot;
    uint32_t key = 5;
    (void)state;
    rig(&r, &p);
    race_rig_find(&r, &key, sizeof key, &spot);
    probe_set(&p, spot.look.subtable, sizeof(struct race_subtable_head), 4711);
    probe_set(&p, spot.look.subtable, offsetof(struct race_subtable_head, header), 1);
    expect_repaired(&r, "broken link: a wrong bucket header", 2);
    expect_keys(&r, KEYS);
    end(&r, &p);
}

/* An entry is restored from another one that leads to the same subtable. If there is none, the
 * check reports it, and leaves all lost memory alone. */
static void damaged_directory_entries_are_repaired_from_others(void **state)
{
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    const struct race_view *view = race_rig_view(&r);
    unsigned shared = 0, only = 0;
    for (uint64_t i = 0; i < 1ull << view->depth; i++) {
        uint64_t entry = probe_get(&p, view->directory, i * 8);
        probe_set(&p, view->directory, i * 8, 0);
        if (race_entry_depth(entry) < view->depth) {
            expect_repaired(&r, "broken link: directory entry", 1);
            assert_true(probe_get(&p, view->directory, i * 8) == entry);
            shared++;
        } else if (only++ == 0) {
            struct far_pool_check c = check(&r, true, FAR_CORRUPT);
            assert_int_equal(c.violations, 1);
            expect_reported("lost memory was not searched for");
        }
        probe_set(&p, view->directory, i * 8, entry);
    }
    assert_true(shared > 0 && only > 0);
    (void)check(&r, true, FAR_OK);
    expect_keys(&r, KEYS);
    end(&r, &p);
}

/* A session died in the middle of a split. The check reports the session and its lock. */
static void locks_of_dead_clients_are_released(void **state)
{
    struct store_rig r;
    struct probe p;
    struct race_spot spot;
    uint32_t key = 7;
    (void)state;
    rig(&r, &p);
    race_rig_find(&r, &key, sizeof key, &spot);
    probe_set(&p, spot.look.subtable, offsetof(struct race_subtable_head, claim), 0xdead00010009);
    for (unsigned i = 8; i < race_subtable_bytes(2) / 16; i++)
        if (race_is_slot(i))
            probe_set(&p, spot.look.subtable, i * 8,
                      race_slot_sealed(probe_get(&p, spot.look.subtable, i * 8)));
    struct far_pool_check c = check(&r, false, FAR_OK);
    assert_int_equal(c.stranded, 1);
    expect_reported("stranded lock: the session in slot 9 left a split");
    c = check(&r, true, FAR_OK);
    assert_int_equal(c.stranded, 0);
    assert_int_equal(c.repaired, 1);
    assert_true(probe_get(&p, spot.look.subtable, 0) != 0);
    assert_int_equal(check(&r, false, FAR_OK).stranded, 0);
    expect_keys(&r, KEYS);
    end(&r, &p);
}

static void a_session_that_died_is_recovered(void **state)
{
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    journal_plant(&p, &r.pool->pool, 3,
                  (struct journal_subject){.tag = r.table->index.desc.serial, .what = 5}, 0);
    probe_set(&p, 0, PROBE_SLOT(3, held_bytes), 12345);
    probe_set(&p, 0, PROBE_SLOT(3, incarnation), 4711);
    probe_set(&p, 0, PROBE_CONTROL(high), 4);
    struct far_pool_check c = check(&r, false, FAR_OK);
    assert_int_equal(c.dead_clients, 1);
    assert_int_equal(c.stranded, 1);
    expect_reported("dead: the session in slot 3");
    expect_reported("it holds 12345 bytes");
    c = check(&r, true, FAR_OK);
    assert_int_equal(c.dead_clients, 1);
    assert_int_equal(c.stranded, 0);
    expect_reported("1 dead session was removed");
    c = check(&r, false, FAR_OK);
    assert_int_equal(c.dead_clients + c.stranded, 0);
    end(&r, &p);
}

static void the_sweep_of_a_dead_client_is_ended(void **state)
{
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0xdead00010009);
    struct far_pool_check c = check(&r, false, FAR_OK);
    assert_int_equal(c.stranded, 1);
    expect_reported("stranded: the session in slot 9 died while it swept for lost memory");
    c = check(&r, true, FAR_OK);
    assert_int_equal(c.stranded, 0);
    assert_int_equal(c.repaired, 1);
    assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
    end(&r, &p);
}

/* Ends the sweep when the check has read who sweeps, and asks for that client. */
static struct probe *the_probe;
static bool control_read;
static int end_sweep(struct fab_ep *ep, struct fab_req *req)
{
    const struct fab_verb *last = &req->verbs[req->count - 1];
    if (control_read && last->off == slot_delta(9) && last->len == 8)
        probe_set(the_probe, 0, PROBE_CONTROL(sweep), 0);
    control_read = last->off == CONTROL_OFF && last->len == sizeof(struct pool_control);
    return hook.real->post(ep, req);
}

static void a_sweep_that_ends_meanwhile_is_not_stranded(void **state)
{
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    the_probe = &p;
    probe_set(&p, 0, PROBE_CONTROL(sweep), 0xdead00010009);
    hook_on(r.session->client.ep);
    hook.ops.post = end_sweep;
    struct far_pool_check c = check(&r, false, FAR_OK);
    hook_off();
    assert_true(probe_get(&p, 0, PROBE_CONTROL(sweep)) == 0);
    assert_int_equal(c.stranded, 0);
    assert_null(strstr(reported.text, "stranded"));
    end(&r, &p);
}

/* FREELIST-S4: a damaged list leads back to its first page. The walks of it end soon. */
static void a_list_that_is_a_circle_is_repaired(void **state)
{
    struct store_rig r;
    struct probe p;
    struct bundle bundle;
    (void)state;
    rig(&r, &p);
    (void)check(&r, true, FAR_OK); /* puts all that is free on the lists */
    gaddr page = freelist_top(probe_get(&p, 0, NODE_FREE_OFF));
    assert_true(page != 0);
    for (unsigned i = 0; i < sizeof bundle / 8; i++)
        ((uint64_t *)&bundle)[i] = probe_get(&p, page, 8 * i);
    bundle.next = (bundle.next & ~GADDR_MASK) | page;
    probe_set(&p, page, 8, bundle.next);
    probe_set(&p, page, 0, bundle_sum(&bundle, page, 0));
    r.session->op.cost.rtts = 0;
    (void)check(&r, false, FAR_CORRUPT);
    assert_true(r.session->op.cost.rtts < 10000);
    expect_repaired(&r, "list of free objects of 64 bytes is damaged", 1);
    expect_keys(&r, KEYS);
    end(&r, &p);
}

/* A key's slot is emptied behind everybody's back, so its block is nobody's. */
static void lost_memory_is_found(void **state)
{
    struct store_rig r;
    struct probe p;
    struct race_spot spot;
    uint32_t key = 99;
    (void)state;
    rig(&r, &p);
    race_rig_find(&r, &key, sizeof key, &spot);
    probe_set(&p, spot.look.subtable, slot_at(&spot), 0);
    struct far_pool_check c = check(&r, false, FAR_OK);
    assert_true(c.leaked_bytes == size_class_bytes(pointer_class(spot.found.slot)));
    expect_reported("leaked: 64 bytes");
    c = check(&r, true, FAR_OK);
    assert_true(c.leaked_bytes == 0 && c.repaired_bytes == 64);
    expect_reported("repaired: 64 bytes");
    expect_keys(&r, key);
    end(&r, &p);
}

/* While the check reports the damage, it goes away. */
struct damage {
    struct probe *probe;
    uint64_t at, right;
    unsigned reports;
};

static void heal(void *arg, const char *line)
{
    struct damage *d = arg;
    if (!strstr(line, "chunk table has no valid entry for chunk 0"))
        return;
    probe_set(d->probe, 0, d->at, d->right);
    d->reports++;
}

static void what_is_reported_is_counted(void **state)
{
    struct store_rig r;
    struct probe p;
    struct far_pool_check c = {0};
    (void)state;
    rig(&r, &p);
    struct damage d = {.probe = &p, .at = r.pool->pool.head[0].table_off};
    d.right = probe_get(&p, 0, d.at);
    probe_set(&p, 0, d.at, UINT64_MAX);
    assert_int_equal(far_pool_check(r.session, false, heal, &d, &c), FAR_CORRUPT);
    assert_int_equal(d.reports, 1);
    assert_int_equal(c.violations, 1);
    end(&r, &p);
}

/* Lists of free memory and the chunk table are damaged in every way. Live data stays. */
static void damaged_lists_and_chunk_tables_are_repaired(void **state)
{
    static const uint64_t bad[] = {0xff, 0xff00 | CHUNK_SLAB, UINT64_MAX, 54ull << 8 | CHUNK_SLAB,
                                   5 << 8 | CHUNK_LARGE};
    struct store_rig r;
    struct probe p;
    (void)state;
    rig(&r, &p);
    (void)check(&r, true, FAR_OK); /* puts all that is free on the lists */
    gaddr page = probe_get(&p, 0, NODE_FREE_OFF) & ((1ull << GADDR_BITS) - 1);
    assert_true(page != 0);
    probe_set(&p, page, 64, ~probe_get(&p, page, 64));
    expect_repaired(&r, "list of free objects of 64 bytes is damaged", 1);
    const struct node_head *head = &r.pool->pool.head[0];
    uint64_t chunks = probe_get(&p, 0, NODE_NEXT_CHUNK_OFF);
    assert_true(chunks > 2);
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        probe_set(&p, 0, head->table_off + chunk * 8, bad[chunk % 5]);
        expect_repaired(&r, "chunk table has no valid entry for chunk", 1);
    }
    for (uint64_t chunk = 0; chunk < chunks; chunk++) { /* legal, but not true */
        probe_set(&p, 0, head->table_off + chunk * 8, chunk_entry(CHUNK_SLAB, chunk % 3, 0, 1));
        (void)check(&r, true, FAR_OK);
    }
    for (uint32_t i = 1000; i < 3000; i++) /* what is free is used */
        assert_int_equal(far_insert(r.session, r.table, &i, sizeof i, &i, sizeof i), FAR_OK);
    expect_keys(&r, KEYS);
    assert_int_equal(far_table_check(r.session, r.table, NULL, NULL), FAR_OK);
    end(&r, &p);
}

static bool never(void *arg, const char *what, uint64_t done, uint64_t total)
{
    assert_true(done <= total);
    assert_true(what[0] != '\0');
    ++*(unsigned *)arg;
    return false;
}

static void a_check_can_be_stopped(void **state)
{
    struct far_pool_check c;
    struct far_table_info info;
    struct store_rig r;
    struct probe p;
    unsigned asked = 0;
    (void)state;
    rig(&r, &p);
    far_session_watch(r.session, never, &asked);
    assert_int_equal(far_pool_check(r.session, false, NULL, NULL, &c), FAR_STOPPED);
    assert_int_equal(far_pool_check(r.session, true, NULL, NULL, &c), FAR_STOPPED);
    assert_int_equal(far_table_info(r.session, r.table, &info), FAR_STOPPED);
    assert_true(asked >= 3);
    far_session_watch(r.session, NULL, NULL);
    (void)check(&r, true, FAR_OK);
    expect_keys(&r, KEYS);
    end(&r, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_pool_is_clean),
        cmocka_unit_test(memory_lost_by_a_session_at_work_is_no_leak),
        cmocka_unit_test(a_slot_that_leads_to_no_block_is_repaired),
        cmocka_unit_test(a_slot_that_gives_a_block_another_size_is_repaired),
        cmocka_unit_test(a_key_in_the_wrong_place_is_found_again),
        cmocka_unit_test(a_key_that_is_there_twice_keeps_what_a_get_returned),
        cmocka_unit_test(damaged_headers_are_repaired),
        cmocka_unit_test(damaged_directory_entries_are_repaired_from_others),
        cmocka_unit_test(locks_of_dead_clients_are_released),
        cmocka_unit_test(a_session_that_died_is_recovered),
        cmocka_unit_test(the_sweep_of_a_dead_client_is_ended),
        cmocka_unit_test(a_sweep_that_ends_meanwhile_is_not_stranded),
        cmocka_unit_test(lost_memory_is_found),
        cmocka_unit_test(what_is_reported_is_counted),
        cmocka_unit_test(damaged_lists_and_chunk_tables_are_repaired),
        cmocka_unit_test(a_list_that_is_a_circle_is_repaired),
        cmocka_unit_test(a_check_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
