/*
 * Making a pool in shared memory: it is made once, however many processes open it at the same time,
 * and whichever of them dies meanwhile.
 */
#include "base/rng.h"
#include "support/shm_scratch.h"
#include "pool/pool_internal.h"

#define OPENERS 5
#define OPTIONS "?size=2m&nodes=3&clients=9"

struct finding { /* of one process about the pool */
    bool opened, formatted;
    uint64_t pool_id;
    unsigned nodes, clients;
};

struct start {
    char uri[256];
    unsigned waiting; /* processes that are ready to begin */
    unsigned go;
    struct finding found[OPENERS];
};

struct opener {
    struct start *start;
    unsigned self;
};

static void open_and_tell(const char *uri, struct finding *found)
{
    struct pool pool;
    struct fab *fab;
    bool fresh;

    ASSERT(fab_open(uri, &fab) == FAR_OK);
    fresh = fab->fresh;
    ASSERT(pool_open(fab, NULL, &pool) == FAR_OK);
    *found = (struct finding){true, fresh, pool.pool_id, pool.nodes, pool.clients};
    fab_close(fab);
}

static void open_with_others(void *arg)
{
    struct opener *o = arg;

    __atomic_fetch_add(&o->start->waiting, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&o->start->go, __ATOMIC_ACQUIRE))
        usleep(10);
    open_and_tell(o->start->uri, &o->start->found[o->self]);
}

/* All of them see one and the same pool. Returns how many had to make it. */
static unsigned same_pool(const struct finding *found, unsigned count)
{
    unsigned formatted = 0;

    for (unsigned i = 0; i < count; i++) {
        assert_true(found[i].opened);
        assert_true(found[i].pool_id == found[0].pool_id);
        assert_int_equal(found[i].nodes, 3);
        assert_int_equal(found[i].clients, 9);
        formatted += found[i].formatted;
    }
    return formatted;
}

static void of_many_creators_one_makes_the_pool(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 20; round++) {
        struct start *start = scratch_shared(sizeof *start);
        const char *name = scratch_name(round % 2);
        struct opener opener[OPENERS];
        pid_t child[OPENERS];

        strcpy(start->uri, scratch_uri(name, OPTIONS));
        for (unsigned i = 0; i < OPENERS; i++) {
            opener[i] = (struct opener){start, i};
            child[i] = child_start(open_with_others, &opener[i]);
        }
        while (__atomic_load_n(&start->waiting, __ATOMIC_ACQUIRE) < OPENERS)
            usleep(100);
        __atomic_store_n(&start->go, 1, __ATOMIC_RELEASE);
        for (unsigned i = 0; i < OPENERS; i++)
            assert_int_equal(child_end(child[i]), 0);
        assert_int_equal(same_pool(start->found, OPENERS), 1);
        assert_int_equal(far_pool_remove(start->uri), FAR_OK);
        munmap(start, sizeof *start);
    }
}

/* ---- creators that die ----------------------------------------------------------------------- */

/* Whatever a creator left behind, two more processes get one good pool. */
static unsigned others_get_a_pool(const char *uri)
{
    struct finding *found = scratch_shared(2 * sizeof *found);
    struct far_pool_info info;
    unsigned formatted;
    far_session *session;
    far_pool *pool;

    open_and_tell(uri, &found[0]);
    open_and_tell(uri, &found[1]);
    formatted = same_pool(found, 2);
    assert_false(found[1].formatted);
    munmap(found, 2 * sizeof *found);
    assert_int_equal(far_pool_open(uri, &pool), FAR_OK);
    assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
    assert_int_equal(far_pool_info(session, &info), FAR_OK);
    assert_int_equal(info.clients, 1);
    assert_int_equal(info.tables, 0);
    assert_int_equal(info.bytes_allocated, 0);
    far_session_close(session);
    far_pool_close(pool);
    assert_int_equal(far_pool_remove(uri), FAR_OK);
    return formatted;
}

static struct fab_ops dying_ops;
static int (*real_post)(struct fab_ep *ep, struct fab_req *req);
static unsigned verbs_to_live;

/* Executes as many verbs as are left, and dies before the next. */
static int dying_post(struct fab_ep *ep, struct fab_req *req)
{
    struct fab_req part = *req;

    if (req->count < verbs_to_live) {
        verbs_to_live -= req->count;
        return real_post(ep, req);
    }
    part.count = verbs_to_live;
    if (part.count)
        real_post(ep, &part);
    kill(getpid(), SIGKILL);
    return FAR_UNKNOWN;
}

struct doomed {
    const char *uri;
    unsigned verbs;
};

static void die_while_formatting(void *arg)
{
    struct doomed *d = arg;
    struct pool pool;
    struct fab *fab;

    ASSERT(fab_open(d->uri, &fab) == FAR_OK && fab->fresh);
    real_post = fab->ops->post;
    dying_ops = *fab->ops;
    dying_ops.post = dying_post;
    fab->ops = &dying_ops;
    verbs_to_live = d->verbs;
    pool_open(fab, NULL, &pool);
}

/* Formatting three nodes takes a READ of each and six WRITEs, two each; the last one makes it a
 * pool. */
static void a_creator_dies_between_any_two_verbs(void **state)
{
    (void)state;
    for (unsigned verbs = 0; verbs <= 9; verbs++) {
        for (unsigned by_path = 0; by_path < 2; by_path++) {
            struct doomed doomed = {scratch_uri(scratch_name(by_path), OPTIONS), verbs};

            assert_true(child_killed(child_end(child_start(die_while_formatting, &doomed))));
            assert_int_equal(others_get_a_pool(doomed.uri), verbs < 9);
        }
    }
}

/* What one that dies still earlier leaves: an empty file, and one that is all zeros. */
static void a_creator_dies_before_it_formats(void **state)
{
    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        for (unsigned bytes = 0; bytes <= 6u << 20; bytes += 1u << 20) {
            const char *name = scratch_name(by_path);
            int fd = open(scratch_path(name), O_RDWR | O_CREAT | O_EXCL, 0600);

            assert_true(fd >= 0);
            assert_int_equal(ftruncate(fd, bytes), 0);
            close(fd);
            assert_int_equal(others_get_a_pool(scratch_uri(name, OPTIONS)), 1);
        }
    }
}

static void create(void *arg)
{
    struct doomed *d = arg;
    far_pool *pool;

    ASSERT(far_pool_open(d->uri, &pool) == FAR_OK);
    far_pool_close(pool);
}

static void creators_die_at_any_time(void **state)
{
    unsigned made = 0, rounds = 300 / RIG_SLOW;
    struct rng rng;

    (void)state;
    rng_seed(&rng, 1);
    for (unsigned round = 0; round < rounds; round++) {
        struct doomed doomed = {scratch_uri(scratch_name(round % 2), OPTIONS), 0};
        pid_t child[2] = {child_start(create, &doomed), child_start(create, &doomed)};

        usleep((useconds_t)rng_below(&rng, 2000));
        kill(child[round / 2 % 2], SIGKILL);
        if (round / 4 % 2)
            kill(child[!(round / 2 % 2)], SIGKILL);
        for (unsigned i = 0; i < 2; i++) {
            int status = child_end(child[i]);

            assert_true(status == 0 || child_killed(status));
        }
        made += !others_get_a_pool(doomed.uri);
    }
    print_message("%u of %u pools were made by those who were killed\n", made, rounds);
}

/* The creator holds the lock until there is a pool. */
static void an_opener_waits_for_the_creator(void **state)
{
    const char *uri = scratch_uri(scratch_name(false), OPTIONS);
    struct start *start = scratch_shared(sizeof *start);
    struct opener opener = {start, 0};
    struct pool pool;
    struct fab *fab;
    pid_t child;

    (void)state;
    strcpy(start->uri, uri);
    start->go = 1;
    assert_int_equal(fab_open(uri, &fab), FAR_OK);
    child = child_start(open_with_others, &opener);
    while (!__atomic_load_n(&start->waiting, __ATOMIC_ACQUIRE))
        usleep(100);
    usleep(20000); /* time enough to go wrong in; it is right with any */
    assert_false(start->found[0].opened);
    assert_int_equal(pool_open(fab, NULL, &pool), FAR_OK);
    assert_int_equal(child_end(child), 0);
    assert_true(start->found[0].pool_id == pool.pool_id);
    assert_false(start->found[0].formatted);
    fab_close(fab);
    munmap(start, sizeof *start);
}

/* A pool that could not be made leaves nothing behind, and a process that waited for it tries
 * again. */
static void a_failed_creation_leaves_nothing(void **state)
{
    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        const char *name = scratch_name(by_path);
        far_pool *pool = NULL;

        assert_int_equal(far_pool_open(scratch_uri(name, "?size=1m&clients=65536"), &pool),
                         FAR_POOL_FULL);
        assert_null(pool);
        assert_false(scratch_there(name));
    }
}

static void a_failed_creation_lets_the_next_one_try(void **state)
{
    const char *uri = scratch_uri(scratch_name(true), OPTIONS);
    struct start *start = scratch_shared(sizeof *start);
    struct opener opener = {start, 0};
    struct fab *fab;
    pid_t child;

    (void)state;
    strcpy(start->uri, uri);
    start->go = 1;
    assert_int_equal(fab_open(uri, &fab), FAR_OK);
    child = child_start(open_with_others, &opener);
    while (!__atomic_load_n(&start->waiting, __ATOMIC_ACQUIRE))
        usleep(100);
    usleep(20000);
    fab_close(fab);
    assert_int_equal(child_end(child), 0);
    assert_true(start->found[0].formatted);
    assert_int_equal(others_get_a_pool(uri), 0);
    munmap(start, sizeof *start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(of_many_creators_one_makes_the_pool),
        SCRATCH_CASE(a_creator_dies_between_any_two_verbs),
        SCRATCH_CASE(a_creator_dies_before_it_formats),
        SCRATCH_CASE(creators_die_at_any_time),
        SCRATCH_CASE(an_opener_waits_for_the_creator),
        SCRATCH_CASE(a_failed_creation_leaves_nothing),
        SCRATCH_CASE(a_failed_creation_lets_the_next_one_try),
    };

    return scratch_run(tests);
}
