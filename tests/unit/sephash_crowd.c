/* Many clients append to one segment of SepHash: such a segment is split early. */
#include "index/sephash/sephash.h"
#include "support/actors.h"

#define SLOTS 16u

/* It has one segment, which has room for 256 keys. */
static void open_table(void)
{
    open_actors("mem:?size=4m&clients=8", "sephash", "slots=16&ratio=16&depth=0", NULL);
}

static struct sephash_view *view_of(struct actor *a)
{
    return sephash_view(store_known(a->s, a->t)->view);
}
static uint64_t splits_of(struct actor *a)
{
    return view_of(a)->base.grown - view_of(a)->merges;
}

/* B fills all slots but the last, the last `lost` of them while A is about to append. Then A fills
 * the last one, and merges. */
static void fill_against(unsigned lost, bool same_key)
{
    uint32_t key = 0;
    open_table();
    meet_table(&A);
    for (unsigned slot = 0; slot < SLOTS - 1; slot++, key += !same_key) {
        if (slot == SLOTS - 1 - lost)
            actor_reach(&A, (struct place){A_CAS, .side = BEFORE_REQUEST}, put_key, 99, 99);
        expect_ok(put_key(&B, key, key));
    }
    expect_ok(actor_go_on(&A));
    assert_int_equal(view_of(&A)->base.grown, 1);
    expect_found(&A, 99, 99);
    expect_keys(&A, 0, same_key ? 1 : SLOTS - 1);
    expect_keys(&B, 0, same_key ? 1 : SLOTS - 1);
    expect_sound_table();
}

TEST(a_segment_that_many_append_to_is_split_early)
{
    fill_against(4, false);
    assert_int_equal(splits_of(&A), 1);
}

TEST(a_segment_that_few_append_to_is_split_when_it_is_full)
{
    fill_against(3, false);
    assert_int_equal(splits_of(&A), 0);
}

/* A split would not help those that change the same key. */
TEST(a_crowded_segment_of_few_keys_is_not_split)
{
    fill_against(4, true);
    assert_int_equal(splits_of(&A), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_that_many_append_to_is_split_early),
        cmocka_unit_test(a_segment_that_few_append_to_is_split_when_it_is_full),
        cmocka_unit_test(a_crowded_segment_of_few_keys_is_not_split),
    };
    return cmocka_run_group_tests(tests, NULL, close_actors);
}
