/* SHARD with many clients that insert at once: who resizes the table, when, and over how many
 * versions. */
#include "support/audit.h"
#include "support/shard_actors.h"

static uint64_t root_word(size_t at)
{
    return store_rig_get(&the->r, view_of(the, B.s)->root, at);
}
static void set_root_word(size_t at, uint64_t word)
{
    store_rig_set(&the->r, view_of(the, B.s)->root, at, word);
}
#define ROOT(field) offsetof(struct shard_root, field)

static unsigned version_now(void)
{
    return shard_resize_version(root_word(ROOT(resize)));
}

/* The inserts of a session have lost so often of late, each. */
static void lose(struct actor *a, double losses)
{
    view_of(the, a->s)->inserts = 16;
    view_of(the, a->s)->losses = 16 * losses;
}

/* One put that reports. */
static void report(struct actor *a)
{
    expect_ok(put_key(a, dummy, 7));
}

/* ---- how far --------------------------------------------------------------------------------- */

static void resize_by_contention(void)
{
    lose(&B, 0.6);
    set_root_word(ROOT(count), 12);
    report(&B);
    assert_int_equal(version_now(), 4); /* 4 * 4 * 1.6 * 1.6 = 41 units, of 4 */
    assert_int_equal(shard_resize_steps(root_word(ROOT(resize))), 4);
}

TEST(inserts_that_lose_resize_the_table_over_several_versions)
{
    resize_by_contention();
    settle(the);
    end();
}

TEST(inserts_that_win_do_not_resize_the_table)
{
    lose(&B, 0.4);
    set_root_word(ROOT(count), 12);
    report(&B);
    assert_int_equal(version_now(), 0);
    end();
}

/* Clients may insert and delete the same few keys for ever. */
TEST(a_table_that_is_nearly_empty_does_not_grow)
{
    set_root_word(ROOT(count), 0);
    for (unsigned i = 0; i < 10; i++) {
        lose(&B, 50);
        report(&B);
    }
    assert_int_equal(version_now(), 0);
    end();
}

TEST(a_table_that_is_large_does_not_grow_before_it_is_full)
{
    for (unsigned i = 0; i < 8 && version_now() < 10; i++) {
        lose(&B, 50);
        set_root_word(ROOT(count), 12000);
        report(&B);
        settle(the);
    }
    assert_int_equal(version_now(), 10); /* 4096 units */
    lose(&B, 50);
    set_root_word(ROOT(count), 12000);
    report(&B);
    assert_int_equal(version_now(), 10);
    end();
}

/* ---- several versions at once (SHARD-S8) ----------------------------------------------------- */

/* A knows the new version, but not that the barrier is over. */
static void hold_back(struct actor *a)
{
    struct shard_view *view = view_of(the, a->s);
    assert_int_equal(view->version, 4);
    view->settled = 0;
    view->barrier = 0;
    set_root_word(ROOT(resize), shard_resize_over(shard_resize(4, 0), 4));
}

/* The key stays with the first of the moves, and goes with the second one. */
static uint32_t goes_later(void)
{
    uint32_t key = key_with(the, &from, 15, 8);
    expect_ok(insert_key(&B, key, 6));
    resize_by_contention();
    settle(the);
    hold_back(&A);
    return key;
}

TEST(a_reader_before_the_barrier_notices_a_later_move)
{
    uint32_t key = goes_later();
    expect_ok(update_key(&B, key, 7));
    expect_found(&A, key, 7);
    end();
}

TEST(a_writer_before_the_barrier_notices_a_later_move)
{
    uint32_t key = goes_later();
    expect_ok(delete_key(&B, key, 0));
    expect_ok(insert_key(&A, key, 8));
    expect_found(&B, key, 8);
    end();
}

/* A comes to its READ of the unit. Meanwhile B resizes the table, and moves the unit as soon as it
 * may: not before A's operation has ended. */
TEST(no_move_begins_before_all_know_the_last_of_several_versions)
{
    uint32_t key = key_with(the, &from, 15, 8);
    expect_ok(insert_key(&B, key, 6));
    struct place read = {A_READ, .nth = 1, .delta = unit_off(the, 0), .bytes = 1, .len = 32};
    actor_reach(&A, read, get_key, key, 0);
    resize_by_contention();
    for (unsigned i = 0; i < 50; i++)
        report(&B);
    assert_int_equal(view_of(the, B.s)->version, 4);
    assert_int_equal(view_of(the, B.s)->settled, 0);
    expect_ok(actor_go_on(&A));
    settle(the);
    expect_found(&A, key, 6);
    end();
}

/* The next resize begins at the last version, and goes over one. */
TEST(a_session_that_missed_a_resize_knows_where_the_next_one_begins)
{
    resize_by_contention();
    settle(the);
    lose(&B, 0);
    resize(the);
    assert_int_equal(version_now(), 5);
    struct shard_view *view = view_of(the, A.s);
    assert_int_equal(view->steps, 1);
    end();
}

/* ---- one client resizes the table ------------------------------------------------------------ */

static void reach_segment(void)
{
    set_root_word(ROOT(count), 1u << 30);
    struct place cas = {A_CAS, .delta = gaddr_offset(view_of(the, B.s)->root) + ROOT(segment[1]),
                        .bytes = 1};
    actor_reach(&A, cas, put_key, dummy, 7);
}

TEST(one_client_resizes_the_table)
{
    reach_segment();
    for (unsigned i = 0; i < 40; i++)
        report(&B);
    assert_int_equal(version_now(), 0);
    assert_true(root_word(ROOT(segment[1].tops)) == 0);
    expect_ok(actor_go_on(&A));
    assert_int_equal(version_now(), 1);
    end();
}

/* The client with the claim is not registered any more. */
TEST(the_claim_of_a_dead_client_does_not_count)
{
    set_root_word(ROOT(claim), shard_claim(1, client_owner_word(&A.s->client) ^ 1ull << 40));
    set_root_word(ROOT(count), 1u << 30);
    report(&B);
    assert_int_equal(version_now(), 1);
    end();
}

TEST(the_claim_of_an_earlier_resize_does_not_count)
{
    set_root_word(ROOT(claim), shard_claim(2, client_owner_word(&A.s->client)));
    set_root_word(ROOT(count), 1u << 30);
    report(&B);
    assert_int_equal(version_now(), 1);
    end();
}

/* It has failed, and does nothing more. */
TEST(a_resize_that_fails_gives_up_its_claim)
{
    reach_segment();
    assert_true(root_word(ROOT(claim)) != 0);
    assert_true(actor_step(&A));
    expect_ok(actor_answer(&A, FAR_TIMEOUT));
    report(&B);
    assert_int_equal(version_now(), 1);
    end();
}

/* B takes A for dead, and is faster. */
TEST(a_resizer_that_is_too_late_gives_its_segment_back)
{
    far_session *both[] = {A.s, B.s};
    struct audit audit;
    reach_segment();
    set_root_word(ROOT(claim), 0);
    report(&B);
    assert_int_equal(version_now(), 1);
    expect_ok(actor_go_on(&A));
    assert_int_equal(version_now(), 1);
    assert_int_equal(sim_audit(&audit, the->r.pool, both, 2), FAR_OK);
    assert_int_equal(audit.wrong, 0);
    assert_int_equal(audit.bytes[AUDIT_NOWHERE], 0);
    end();
}

#define CASE(test) cmocka_unit_test_setup(test, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(inserts_that_lose_resize_the_table_over_several_versions),
        CASE(inserts_that_win_do_not_resize_the_table),
        CASE(a_table_that_is_nearly_empty_does_not_grow),
        CASE(a_table_that_is_large_does_not_grow_before_it_is_full),
        CASE(a_reader_before_the_barrier_notices_a_later_move),
        CASE(a_writer_before_the_barrier_notices_a_later_move),
        CASE(no_move_begins_before_all_know_the_last_of_several_versions),
        CASE(a_session_that_missed_a_resize_knows_where_the_next_one_begins),
        CASE(one_client_resizes_the_table),
        CASE(the_claim_of_a_dead_client_does_not_count),
        CASE(the_claim_of_an_earlier_resize_does_not_count),
        CASE(a_resize_that_fails_gives_up_its_claim),
        CASE(a_resizer_that_is_too_late_gives_its_segment_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
