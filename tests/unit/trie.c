/* The index of docs/writing-an-index.md: what interferes with what, damage, and what it costs. */
#include "trie/trie.h"
#include "support/hook.h"
#include "support/store_rig.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define KEYS 60u

static struct store_rig *the;
static far_session *other;

static struct trie_view *view_of(far_session *s)
{
    return trie_view(store_known(s, the->table)->view);
}

static int put(far_session *s, uint32_t key, uint32_t value)
{
    return far_put(s, the->table, &key, sizeof key, &value, sizeof value);
}

static int get(far_session *s, uint32_t key, uint32_t *value)
{
    size_t len = 0;
    return far_get(s, the->table, &key, sizeof key, value, sizeof *value, &len);
}

static void assert_value(far_session *s, uint32_t key, uint32_t want)
{
    uint32_t value = 0;
    assert_int_equal(get(s, key, &value), FAR_OK);
    assert_int_equal(value, want);
}

static void start_on(struct store_rig *r, const char *uri, const struct knobs *knobs, unsigned keys)
{
    struct far_table_options options = {.tuning = trie_index.smallest, .hash_seed = 3};
    the = r;
    store_rig_open(r, uri, knobs, NULL, &options);
    for (uint32_t key = 0; key < keys; key++)
        assert_int_equal(put(r->session, key, key), FAR_OK);
    other = store_rig_join_apart(r);
    assert_int_equal(far_exists(other, r->table, "x", 1), FAR_NOT_FOUND); /* it has a view */
}

static void start(struct store_rig *r, const struct knobs *knobs, unsigned keys)
{
    start_on(r, "mem:?size=8m", knobs, keys);
}

static void end(struct store_rig *r)
{
    far_session_close(other);
    store_rig_close(r);
}

static struct trie_key key_of(const uint32_t *key)
{
    struct trie_key k;
    trie_hash(view_of(the->session), (struct slice){key, sizeof *key}, &k);
    return k;
}

/* The key's digit at a level. */
static unsigned digit_of(uint32_t key, unsigned level)
{
    return trie_digit(view_of(the->session), key_of(&key).position, level);
}

/* Another key that has this one's word at level 0, but not at level 1. */
static uint32_t rival_of(uint32_t key)
{
    uint32_t rival = key + 1;
    while (digit_of(rival, 0) != digit_of(key, 0) || digit_of(rival, 1) == digit_of(key, 1))
        rival++;
    return rival;
}

static gaddr first_node(void)
{
    return view_of(the->session)->root.first;
}

/* A digit of the first node whose word names a node; behind the one given. */
static unsigned digit_of_node(unsigned from)
{
    while (!trie_is_node(store_rig_get(the, first_node(), trie_word_offset(from))))
        from++;
    assert_true(from < view_of(the->session)->words);
    return from;
}

/* A key below that word. */
static uint32_t key_below(unsigned digit)
{
    uint32_t key = 0;
    while (digit_of(key, 0) != digit)
        key++;
    assert_true(key < KEYS);
    return key;
}

static unsigned check(bool repair, unsigned *repaired)
{
    struct index_report report = {.repair = repair};
    struct op *op = &the->session->op;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(trie_check(op, &view_of(the->session)->base, &report), FAR_OK);
    op_end(op);
    if (repaired)
        *repaired = report.repaired;
    return report.violations;
}

static void assert_all_keys(far_session *s)
{
    for (uint32_t key = 0; key < KEYS; key++)
        assert_value(s, key, key);
    assert_int_equal(check(false, NULL), 0);
}

/* ---- interleavings --------------------------------------------------------------------------- */

/* What another session does before the first CAS of the hooked one. */
static int (*meanwhile)(void);
static uint32_t contended;
static uint64_t tried; /* the first word that the CAS was to put there */

static int post_behind_others(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && meanwhile; i++) {
        int (*now)(void) = meanwhile;
        if (req->verbs[i].kind != FAB_CAS)
            continue;
        tried = req->verbs[i].swap;
        meanwhile = NULL;
        assert_int_equal(now(), FAR_OK);
    }
    return hook.real->post(ep, req);
}

static void hook_session(far_session *s, int (*what)(void))
{
    meanwhile = what;
    hook_on(s->client.ep);
    hook.ops.post = post_behind_others;
}

static int update_contended(void)
{
    return put(other, contended, 100);
}

/* TRIE-T4 */
static void growth_does_not_undo_an_update_of_the_other_key(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, NULL, 1);
    contended = 0;
    uint32_t rival = rival_of(contended);
    hook_session(r.session, update_contended);
    assert_int_equal(put(r.session, rival, 7), FAR_OK);
    hook_off();
    assert_null(meanwhile);
    assert_value(other, contended, 100);
    assert_value(other, rival, 7);
    assert_int_equal(check(false, NULL), 0);
    end(&r);
}

static void a_node_that_no_word_got_to_name_is_given_back(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, NULL, 1);
    contended = 0;
    hook_session(r.session, update_contended);
    assert_int_equal(put(r.session, rival_of(contended), 7), FAR_OK);
    hook_off();
    assert_true(trie_is_node(tried));
    /* The second attempt has taken the same memory. */
    assert_true(store_rig_get(&r, first_node(), trie_word_offset(digit_of(0, 0))) == tried);
    end(&r);
}

/* The CAS of a growth takes effect, but the client does not know. */
static int post_unknown(struct fab_ep *ep, struct fab_req *req)
{
    hook_run(ep, req);
    for (unsigned i = 0; i < req->count; i++)
        if (req->verbs[i].kind == FAB_CAS && trie_is_node(req->verbs[i].swap))
            req->status = FAR_UNKNOWN;
    return FAR_OK;
}

static void a_node_of_unknown_outcome_is_not_used_for_another(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, NULL, 1);
    hook_on(r.session->client.ep);
    hook.ops.post = post_unknown;
    assert_int_equal(put(r.session, rival_of(0), 7), FAR_UNKNOWN);
    hook_off();
    assert_value(other, rival_of(0), 7);
    for (uint32_t key = 1; key < KEYS; key++)
        assert_int_equal(put(r.session, key, key), FAR_OK);
    assert_all_keys(other);
    end(&r);
}

/* TRIE-T1, where the node and the word that names it are on different memory nodes. */
static unsigned apart;
static int post_and_look(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count; i++) {
        const struct fab_verb *cas = &req->verbs[i];
        gaddr at = trie_node_at(cas->swap);
        if (cas->kind != FAB_CAS || at == 0 || gaddr_node(at) == cas->node)
            continue;
        apart++;
        for (unsigned j = 0; j < i; j++)
            assert_int_equal(req->verbs[j].node, cas->node);
    }
    return hook.real->post(ep, req);
}

static void a_node_is_whole_before_a_word_names_it(void **state)
{
    struct store_rig r;
    (void)state;
    start_on(&r, "mem:?size=8m&nodes=2", NULL, 0);
    apart = 0;
    hook_on(r.session->client.ep);
    hook.ops.post = post_and_look;
    for (uint32_t key = 0; key < KEYS; key++)
        assert_int_equal(put(r.session, key, key), FAR_OK);
    hook_off();
    assert_true(apart > 0);
    assert_all_keys(other);
    end(&r);
}

/* TRIE-T3 */
static void one_of_two_inserts_of_a_key_finds_the_other(void **state)
{
    struct store_rig r;
    uint32_t mine = 5;
    (void)state;
    start(&r, NULL, 0);
    contended = 9;
    hook_session(r.session, update_contended);
    assert_int_equal(
        far_insert(r.session, r.table, &contended, sizeof contended, &mine, sizeof mine),
        FAR_EXISTS);
    hook_off();
    assert_value(r.session, contended, 100);
    end(&r);
}

static int grow_beside(void)
{
    return put(other, rival_of(contended), 1);
}

/* The word that the update expects has become a node. */
static void an_update_follows_its_key_into_a_new_node(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, NULL, 1);
    contended = 0;
    hook_session(r.session, grow_beside);
    assert_int_equal(put(r.session, contended, 8), FAR_OK);
    hook_off();
    assert_value(other, contended, 8);
    assert_value(r.session, rival_of(contended), 1);
    end(&r);
}

/* An iteration of few entries in a call, and growth between its calls. */
static void an_iteration_returns_each_key_once_while_the_table_grows(void **state)
{
    struct store_rig r;
    unsigned returned[KEYS] = {0};
    uint64_t cursor = 0;
    uint32_t more = KEYS;
    (void)state;
    start(&r, NULL, KEYS);
    do {
        char buf[64];
        size_t len = 0;
        struct far_entry e;
        assert_int_equal(far_iterate(r.session, r.table, &cursor, 0, buf, sizeof buf, &len),
                         FAR_OK);
        for (size_t pos = 0; far_entry_next(buf, len, &pos, &e);) {
            uint32_t key = 0;
            memcpy(&key, e.key, sizeof key);
            if (key < KEYS)
                returned[key]++;
        }
        for (unsigned i = 0; i < 10 && more < 2000; i++, more++)
            assert_int_equal(put(other, more, more), FAR_OK);
    } while (cursor != 0);
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(returned[key], 1);
    end(&r);
}

static void two_keys_with_one_path_do_not_fit(void **state)
{
    struct store_rig r;
    struct knobs knobs = pool_knobs_default;
    uint32_t key = 0;
    (void)state;
    knobs.hash_mask = 0;
    start(&r, &knobs, 1);
    assert_int_equal(put(r.session, 1, 1), FAR_TABLE_FULL);
    assert_value(other, 0, 0);
    assert_int_equal(put(r.session, 0, 2), FAR_OK);
    assert_value(other, 0, 2);
    assert_int_equal(far_delete(r.session, r.table, &key, sizeof key), FAR_OK);
    assert_int_equal(put(r.session, 1, 1), FAR_OK);
    assert_value(other, 1, 1);
    end(&r);
}

/* ---- what sessions remember ------------------------------------------------------------------ */

static uint64_t round_trips(far_session *s, uint32_t key)
{
    uint32_t value = 0;
    s->op.cost.rtts = 0;
    assert_int_equal(get(s, key, &value), FAR_OK);
    return s->op.cost.rtts;
}

static void a_key_that_was_seen_takes_one_round_trip(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, NULL, KEYS);
    uint32_t key = key_below(digit_of_node(0));
    assert_in_range(round_trips(other, key), 3, 10); /* a node for each level, and the block */
    assert_int_equal(round_trips(other, key), 1);
    assert_int_equal(put(r.session, key, key), FAR_OK);
    assert_int_equal(round_trips(other, key), 3); /* the hint in vain, the known node, the block */
    assert_int_equal(round_trips(other, key), 1);
    end(&r);
}

/* HINT-H1 */
static struct fab_verb seen[4];
static unsigned seen_count;
static int post_seen(struct fab_ep *ep, struct fab_req *req)
{
    for (unsigned i = 0; i < req->count && seen_count < 4; i++)
        seen[seen_count++] = req->verbs[i];
    return hook.real->post(ep, req);
}

static void the_block_of_a_hint_is_read_behind_the_node(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, NULL, 1);
    unsigned order = r.fab->order;
    r.fab->order = ORDER_ALL & ~ORDER(FAB_R, FAB_R);
    seen_count = 0;
    hook_on(r.session->client.ep);
    hook.ops.post = post_seen;
    assert_value(r.session, 0, 0);
    hook_off();
    r.fab->order = order;
    assert_int_equal(seen_count, 2);
    assert_true(seen[0].off == gaddr_offset(first_node()));
    assert_int_equal(seen[1].flags & FAB_FENCE, FAB_FENCE);
    end(&r);
}

static void mark_nothing(struct marker *marker, gaddr at, unsigned size_class)
{
    (void)marker;
    (void)at;
    (void)size_class;
}

/* A repair has emptied a word that led to nodes, and a sweep will reuse them. */
static void sessions_forget_nodes_before_they_are_swept(void **state)
{
    struct store_rig r;
    struct knobs knobs = pool_knobs_default;
    struct marker marker = {.mark = mark_nothing, .sweeps = true};
    uint32_t value = 0;
    (void)state;
    knobs.tick_ops = 1;
    start(&r, &knobs, KEYS);
    unsigned digit = digit_of_node(0);
    assert_value(other, key_below(digit), key_below(digit));
    store_rig_set(&r, first_node(), trie_word_offset(digit), 0);
    struct op *op = &r.session->op;
    assert_int_equal(op_begin(op, NULL), FAR_OK);
    assert_int_equal(trie_mark(op, &view_of(r.session)->base, &marker), FAR_OK);
    op_end(op);
    for (unsigned i = 0; i < 3; i++) /* it announces itself, and reads the version */
        assert_int_equal(far_exists(other, r.table, "x", 1), FAR_NOT_FOUND);
    assert_int_equal(get(other, key_below(digit), &value), FAR_NOT_FOUND);
    end(&r);
}

/* A refresh of the view, by another operation of the session, between READ and note. */
static int post_before_refresh(struct fab_ep *ep, struct fab_req *req)
{
    hook_run(ep, req);
    view_of(other)->base.refreshes++;
    return FAR_OK;
}

static void what_was_read_before_a_refresh_is_not_remembered(void **state)
{
    struct store_rig r;
    uint32_t value = 0;
    (void)state;
    start(&r, NULL, KEYS);
    struct trie_view *view = view_of(other);
    memset(view->known, 0, sizeof view->known);
    hook_on(other->client.ep);
    hook.ops.post = post_before_refresh;
    assert_int_equal(get(other, key_below(digit_of_node(0)), &value), FAR_OK);
    hook_off();
    for (unsigned i = 0; i < TRIE_KNOWN; i++)
        assert_int_equal(view->known[i].id, 0);
    end(&r);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* TRIE-T6 */
static void a_word_that_leads_to_another_node_is_damage(void **state)
{
    struct store_rig r;
    uint32_t value = 0;
    (void)state;
    start(&r, NULL, KEYS);
    unsigned from = digit_of_node(0), to = digit_of_node(from + 1);
    uint32_t key = key_below(to);
    store_rig_set(&r, first_node(), trie_word_offset(to),
                  store_rig_get(&r, first_node(), trie_word_offset(from)));
    assert_int_equal(get(other, key, &value), FAR_CORRUPT);
    assert_int_equal(put(other, key, 1), FAR_CORRUPT);
    assert_int_equal(check(false, NULL), 1);
    end(&r);
}

/* Every bit of a word that names a node, or of the id of that node: TRIE-Q2. */
static void assert_repaired(gaddr at, uint64_t offset)
{
    uint64_t sound = store_rig_get(the, at, offset);
    for (unsigned bit = 0; bit < 64; bit++) {
        unsigned repaired = 0;
        store_rig_set(the, at, offset, sound ^ 1ull << bit);
        assert_int_equal(check(true, &repaired), 0);
        assert_int_equal(repaired, 1);
        assert_true(store_rig_get(the, at, offset) == sound);
    }
    assert_all_keys(the->session);
}

static void a_flipped_bit_on_the_way_to_a_node_is_repaired(void **state)
{
    struct store_rig r;
    (void)state;
    start(&r, NULL, KEYS);
    uint64_t offset = trie_word_offset(digit_of_node(0));
    assert_repaired(first_node(), offset);
    assert_repaired(trie_node_at(store_rig_get(&r, first_node(), offset)), 0);
    assert_repaired(first_node(), 0);
    end(&r);
}

/* TRIE-Q3 */
static void a_key_in_a_wrong_place_is_put_where_it_belongs(void **state)
{
    struct store_rig r;
    uint32_t value = 0;
    unsigned repaired = 0;
    (void)state;
    start(&r, NULL, 1);
    unsigned right = digit_of(0, 0), wrong = right == 0;
    store_rig_set(&r, first_node(), trie_word_offset(wrong),
                  store_rig_get(&r, first_node(), trie_word_offset(right)));
    store_rig_set(&r, first_node(), trie_word_offset(right), 0);
    assert_int_equal(get(other, 0, &value), FAR_NOT_FOUND);
    assert_int_equal(check(true, &repaired), 0);
    assert_int_equal(repaired, 1);
    assert_value(other, 0, 0);
    assert_int_equal(check(false, NULL), 0);
    assert_true(store_rig_get(&r, first_node(), trie_word_offset(wrong)) == 0);
    end(&r);
}

/* TRIE-Q4 and TRIE-Q5 */
static void other_damage_to_a_word_of_a_block_is_repaired(void **state)
{
    struct store_rig r;
    uint32_t value = 0;
    unsigned repaired = 0;
    (void)state;
    start(&r, NULL, 1);
    uint64_t offset = trie_word_offset(digit_of(0, 0)),
             sound = store_rig_get(&r, first_node(), offset);
    store_rig_set(&r, first_node(), offset, pointer_with_class(sound, pointer_class(sound) + 1));
    assert_int_equal(check(true, &repaired), 0);
    assert_int_equal(repaired, 1);
    assert_value(other, 0, 0);
    store_rig_set(&r, first_node(), offset, (sound & ~GADDR_MASK) | the->table->index.desc.root);
    assert_int_equal(get(other, 0, &value), FAR_CORRUPT);
    assert_int_equal(put(other, 0, 1), FAR_CORRUPT);
    assert_int_equal(check(true, &repaired), 0);
    assert_int_equal(repaired, 1);
    assert_int_equal(get(other, 0, &value), FAR_NOT_FOUND);
    assert_int_equal(put(other, 0, 1), FAR_OK);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_does_not_undo_an_update_of_the_other_key),
        cmocka_unit_test(a_node_that_no_word_got_to_name_is_given_back),
        cmocka_unit_test(a_node_of_unknown_outcome_is_not_used_for_another),
        cmocka_unit_test(a_node_is_whole_before_a_word_names_it),
        cmocka_unit_test(one_of_two_inserts_of_a_key_finds_the_other),
        cmocka_unit_test(an_update_follows_its_key_into_a_new_node),
        cmocka_unit_test(an_iteration_returns_each_key_once_while_the_table_grows),
        cmocka_unit_test(two_keys_with_one_path_do_not_fit),
        cmocka_unit_test(a_key_that_was_seen_takes_one_round_trip),
        cmocka_unit_test(the_block_of_a_hint_is_read_behind_the_node),
        cmocka_unit_test(sessions_forget_nodes_before_they_are_swept),
        cmocka_unit_test(what_was_read_before_a_refresh_is_not_remembered),
        cmocka_unit_test(a_word_that_leads_to_another_node_is_damage),
        cmocka_unit_test(a_flipped_bit_on_the_way_to_a_node_is_repaired),
        cmocka_unit_test(a_key_in_a_wrong_place_is_put_where_it_belongs),
        cmocka_unit_test(other_damage_to_a_word_of_a_block_is_repaired),
    };
    index_tested = trie_index.name;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
