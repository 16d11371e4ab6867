/* Chooses what kind of run it is. */
#include "check/check_internal.h"

#include <string.h>

#define REPAIRS 8u /* of a run that has any */

/*
 * Bits of the hash that count. If extendible hashing splits at a bit that is masked, all keys end
 * up in one child, which splits again at once: so restructurings cascade. The last two masks leave
 * all keys few places. If a table starts with several parts on each node, they leave them parts on
 * two nodes, which are soon full.
 */
static const uint64_t hash_masks[HASH_MASKS] = {
    UINT64_MAX,         0x00ffffffffffffffu, 0x000000ff000000ffu, 0xff0001000000000fu,
    0xffffffffffffffe1, 0x000000ff00000fc1u, 0x0000ffff000001f1u};
#define HASH_MASKS_NARROW 3u /* the last ones */
#define HASH_MASKS_NODES  2u

static unsigned count_indexes(void)
{
    unsigned count = 0;
    while (far_index_name(count))
        count++;
    ASSERT(count <= INDEXES_MAX);
    return count;
}

const char *check_index_of(uint64_t seed)
{
    return far_index_name((unsigned)(seed % count_indexes()));
}

/* Chooses the index of the second table: now and then another one, as many places behind the first
 * one's in the list, which is a ring here. */
static void choose_other(struct check *c)
{
    struct plan *p = &c->plan;
    unsigned at = 0, count = count_indexes(), choice = tape_choose(c->tape, 4 * count, TAPE_SETUP);
    while (at < count && strcmp(far_index_name(at), c->set->index) != 0)
        at++;
    p->other =
        at < count && choice >= 3 * count ? choice - 3 * count : 0; /* else it is not listed */
    p->other_index = p->other > 0 ? far_index_name((at + p->other) % count) : c->set->index;
}

static void choose_shape(struct check *c)
{
    struct plan *p = &c->plan;
    struct tape *t = c->tape;
    p->granule = tape_choose(t, 2, TAPE_SETUP) ? 64 : 8;
    p->hash_mask = tape_choose(t, HASH_MASKS, TAPE_SETUP);
    bool narrow = tape_choose(t, 2, TAPE_SETUP);
    p->hash_seed = tape_choose(t, HASH_SEEDS, TAPE_SETUP);
    p->cold = tape_chance(t, 3, 4, TAPE_SETUP) ? COLD_KEYS_MAX : 0;
    p->tables = 1 + tape_choose(t, CHECK_TABLES_MAX, TAPE_SETUP);
    if (tape_chance(t, 1, 3, TAPE_SETUP)) {
        p->nodes = 2 + tape_choose(t, NODES_MAX - 1, TAPE_SETUP);
        p->hash_mask = HASH_MASKS - 1 - p->hash_mask % HASH_MASKS_NODES;
    } else if (narrow) {
        p->hash_mask = HASH_MASKS - 1 - p->hash_mask % HASH_MASKS_NARROW;
    }
    choose_other(c);
}

static void choose_pool(struct check *c)
{
    static const unsigned stock_max[] = {1024, 1, 4}, run_chunks[] = {1, 2, 4};
    struct plan *p = &c->plan;
    struct tape *t = c->tape;
    p->tight = tape_chance(t, 1, 2, TAPE_SETUP);
    p->wraps = tape_chance(t, 1, 4, TAPE_SETUP);
    p->no_fence = tape_chance(t, 1, 4, TAPE_SETUP);
    p->no_mcas = tape_chance(t, 1, 2, TAPE_SETUP);
    p->locks = tape_chance(t, 1, 4, TAPE_SETUP);
    p->upkeep = tape_chance(t, 1, 4, TAPE_SETUP);
    p->reopens = tape_chance(t, 1, 2, TAPE_SETUP);
    p->knobs.stock_max = stock_max[tape_choose(t, 3, TAPE_SETUP)];
    p->knobs.run_chunks = run_chunks[tape_choose(t, 3, TAPE_SETUP)];
    p->parks = true;
    p->iterates = tape_chance(t, 1, 3, TAPE_SETUP);
    p->scans = check_can_scan(c) && tape_chance(t, 1, 2, TAPE_SETUP);
    p->drives_epochs = tape_chance(t, 1, 2, TAPE_SETUP);
    p->latecomers = c->set->clients < CHECK_CLIENTS_MAX && tape_chance(t, 1, 3, TAPE_SETUP);
    p->caches = tape_chance(t, 1, 4, TAPE_SETUP);
    p->versions = tape_choose(t, 2, TAPE_SETUP);
    if (c->set->profile == SIM_IB_LOOSE) {
        /* Reuse relies on FABRIC-F4: what has completed is visible. In this profile a WRITE may be
         * visible later, so memory must be reused much later: epochs advance by time alone. */
        p->tight = p->upkeep = p->parks = p->reopens = p->drives_epochs = p->caches = false;
        p->knobs.tick_ops = UINT32_MAX;
    }
    /* Derived from earlier choices, so that runs without drops and repairs stay as they were. */
    p->drops = c->set->profile != SIM_IB_LOOSE && !p->tight && p->hash_seed == 1;
    p->repairs = c->set->profile != SIM_IB_LOOSE && p->versions ? REPAIRS : 0;
}

/* Beside the walks of this run, one key comes and goes as fast as possible: clients do nothing
 * else. */
static void choose_churn(struct plan *p)
{
    p->tables = p->ring = 1;
    p->cold = 0;
    p->locks = p->upkeep = p->reopens = p->iterates = p->scans = p->shrinks = false;
    p->drives_epochs = p->caches = p->drops = p->parks = false;
}

void check_plan(struct check *c)
{
    static const uint8_t fingerprint_mask[] = {0xff, 0x00, 0x01};
    static const uint8_t generation_mask[] = {0xff, 0x00, 0x03};
    /* get, put, insert, update, delete, exists, modify. Tables that are to grow have one of the
     * first three. */
    static const uint8_t weights[][LIN_KINDS] = {
        {2, 3, 7, 1, 1, 1, 1}, {2, 3, 5, 2, 2, 1, 2}, {2, 6, 3, 2, 2, 1, 0}, {2, 1, 4, 0, 4, 0, 0},
        {4, 0, 4, 1, 3, 2, 1}, {2, 1, 1, 4, 1, 0, 3}, {4, 2, 2, 2, 2, 2, 2}};
    static const uint8_t shrinking[LIN_KINDS] = {2, 1, 1, 1, 8, 1, 1};
    static const uint8_t churning[LIN_KINDS] = {1, 0, 8, 0, 8, 0, 0};
    const unsigned growing = 3, all = sizeof weights / sizeof *weights;
    struct plan *p = &c->plan;
    struct tape *t = c->tape;
    *p = (struct plan){
        .knobs = pool_knobs_default, .granule = 8, .nodes = 1, .ring = 1, .tables = 1};
    p->knobs.patience = 3;
    p->knobs.group_words = p->knobs.turn_queues = 0;
    if (c->program) {
        p->cold = c->set->grow ? COLD_KEYS_MAX : 0; /* check_setup.c finds out how many it takes */
        p->growers = c->set->grow > 0;
        return;
    }
    choose_shape(c);
    p->knobs.hash_mask = hash_masks[p->hash_mask];
    p->knobs.fingerprint_mask = fingerprint_mask[tape_choose(t, 3, TAPE_SETUP)];
    p->knobs.generation_mask = generation_mask[p->hash_seed % 3];
    p->knobs.hits = (unsigned)(p->hash_seed / 3 % 3);
    if (p->hash_seed % 2 == 0) /* then most keys of a leaf leave its stem */
        p->knobs.stem_slack = 0;
    p->knobs.tick_ops = 1 + tape_choose(t, 3, TAPE_SETUP);
    if (2 * c->set->clients <= CONCURRENT_MAX && tape_chance(t, 1, 3, TAPE_SETUP))
        p->ring = 2 + (3 * c->set->clients <= CONCURRENT_MAX && tape_choose(t, 2, TAPE_SETUP));
    p->open_in_client = tape_chance(t, 1, 4, TAPE_SETUP);
    if (p->open_in_client) /* derived, so that other runs stay as they were */
        p->knobs.resize_steps = 1 + (unsigned)p->hash_seed % 3;
    if (p->hash_seed % 4 == 1) /* the same: then SHARD makes each segment ahead */
        p->knobs.clear_part = 64 << p->hash_seed / 4 % 3;
    if (p->hash_seed % 8 < 2) /* and leaves most units behind that it meets */
        p->knobs.move_every = 2;
    p->focus = tape_chance(t, 1, 2, TAPE_SETUP);
    choose_pool(c);
    unsigned w = tape_choose(t, p->cold ? growing : all, TAPE_SETUP);
    p->shrinks = p->cold > 0 && !p->tight && check_can_scan(c) && tape_chance(t, 1, 3, TAPE_SETUP);
    bool churns = p->repairs > 0 && p->focus && p->granule == 8;
    if (churns)
        choose_churn(p);
    const uint8_t *weight = churns ? churning : p->shrinks ? shrinking : weights[w];
    for (unsigned i = 0; i < LIN_KINDS; i++)
        p->weight_sum += p->weight[i] = weight[i];
    ASSERT(p->weight_sum > 0 && p->nodes <= NODES_MAX && p->ring <= RING_MAX);
}
