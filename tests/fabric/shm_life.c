/*
 * Whether the process behind an identity lives (SHM-M4): it does while it is stopped, and does not
 * once it has ended, whatever its children and its descriptors do.
 */
#include "support/shm_scratch.h"

#define CLIENT 0x2badcafe12345671ull

static struct {
    char name[128], uri[256];
    int end[2];        /* a pipe; its other end is closed when the test is over */
    uint64_t *witness; /* shared: of the child's identity; 0: it has none yet */
    struct fab *fab;
    struct fab_ep *ep;
} at;

static void join(const char *uri)
{
    ASSERT(fab_open(uri, &at.fab) == FAR_OK);
    if (at.fab->ops->formatted)
        at.fab->ops->formatted(at.fab);
    ASSERT(at.fab->ops->ep_open(at.fab, &at.ep) == FAR_OK);
}

static void leave(void)
{
    at.fab->ops->ep_close(at.ep);
    fab_close(at.fab);
}

static enum fab_life life(uint64_t client)
{
    return at.ep->ops->life(at.ep, client, at.ep->ops->witness(at.ep, client));
}

/* A new pool, or at least its file. */
static void open_new(bool by_path)
{
    strcpy(at.name, scratch_name(by_path));
    strcpy(at.uri, scratch_uri(at.name, "?size=1m"));
    assert_int_equal(pipe(at.end), 0);
    at.witness = scratch_shared(sizeof *at.witness);
    join(at.uri);
    at.ep->ops->identify(at.ep, 1); /* an own lock, so that this one has a witness */
}

static void close_all(void)
{
    leave();
    close(at.end[0]);
    close(at.end[1]);
    munmap(at.witness, sizeof *at.witness);
}

/* ---- processes that have the identity -------------------------------------------------------- */

static uint64_t take_identity(void)
{
    join(at.uri);
    at.ep->ops->identify(at.ep, CLIENT);
    return at.ep->ops->witness(at.ep, CLIENT);
}

static void tell(uint64_t witness)
{
    ASSERT(witness != 0);
    __atomic_store_n(at.witness, witness, __ATOMIC_RELEASE);
    pause();
}

static void waits(void *arg)
{
    (void)arg;
    tell(take_identity());
}

/* Has a child that lives on until the test is over. */
static void forks(void *arg)
{
    uint64_t witness = take_identity();
    int ready[2];
    char byte;

    (void)arg;
    close(at.end[1]);
    ASSERT(pipe(ready) == 0);
    if (fork() == 0) {
        leave(); /* as a child may */
        ASSERT(write(ready[1], "x", 1) == 1);
        _exit(read(at.end[0], &byte, 1) != 0);
    }
    ASSERT(read(ready[0], &byte, 1) == 1);
    tell(witness);
}

/* As programs do that become daemons. */
static void closes_descriptors(void *arg)
{
    uint64_t witness = take_identity();

    (void)arg;
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    tell(witness);
}

static pid_t start(void (*fn)(void *))
{
    *at.witness = 0;
    pid_t child = child_start(fn, NULL);
    while (__atomic_load_n(at.witness, __ATOMIC_ACQUIRE) == 0) {
        assert_false(child_gone(child));
        usleep(100);
    }
    return child;
}

static enum fab_life child_life(void)
{
    return at.ep->ops->life(at.ep, CLIENT, *at.witness);
}

/* It is alive now, also when it is stopped, and then it is dead. */
static void lives_and_dies(pid_t child)
{
    int status = 0;

    assert_int_equal(child_life(), FAB_ALIVE);
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(child_life(), FAB_ALIVE);
    kill(child, SIGKILL);
    child_end(child);
    assert_int_equal(child_life(), FAB_DEAD);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void a_stopped_process_lives_and_a_killed_one_is_dead(void **state)
{
    (void)state;
    for (unsigned by_path = 0; by_path < 2; by_path++) {
        open_new(by_path);
        lives_and_dies(start(waits));
        close_all();
    }
}

static void a_child_of_fork_does_not_keep_its_parent_alive(void **state)
{
    (void)state;
    open_new(false);
    lives_and_dies(start(forks));
    close_all();
}

static void closing_descriptors_ends_nobody(void **state)
{
    (void)state;
    open_new(false);
    lives_and_dies(start(closes_descriptors));
    close_all();
}

static void an_identity_ends_with_its_endpoint_or_with_the_next(void **state)
{
    struct fab_ep *other = NULL;

    (void)state;
    open_new(false);
    assert_int_equal(at.fab->ops->ep_open(at.fab, &other), FAR_OK);
    assert_int_equal(life(1), FAB_ALIVE); /* in the same process */
    other->ops->identify(other, 3);
    other->ops->identify(other, 5);
    assert_int_equal(life(3), FAB_DEAD);
    assert_int_equal(life(5), FAB_ALIVE);
    other->ops->ep_close(other);
    assert_int_equal(life(5), FAB_DEAD);
    assert_int_equal(life(1), FAB_ALIVE);
    close_all();
}

/* Without a lock, a death is proved only by a witness of this kernel, file and client. */
static void a_client_of_another_machine_is_not_taken_for_dead(void **state)
{
    (void)state;
    open_new(false);
    uint64_t mine = at.ep->ops->witness(at.ep, 3), of_another = at.ep->ops->witness(at.ep, 5);
    assert_int_equal(at.ep->ops->life(at.ep, 3, mine), FAB_DEAD);
    assert_int_equal(at.ep->ops->life(at.ep, 3, mine ^ 2), FAB_LIFE_UNKNOWN);
    assert_int_equal(at.ep->ops->life(at.ep, 3, of_another), FAB_LIFE_UNKNOWN);
    assert_int_equal(at.ep->ops->life(at.ep, 3, 0), FAB_LIFE_UNKNOWN);
    /* A lock proves life without any. */
    assert_int_equal(at.ep->ops->life(at.ep, 1, 0), FAB_ALIVE);
    close_all();
}

static void pools_of_other_files_have_other_witnesses(void **state)
{
    (void)state;
    open_new(false);
    uint64_t first = at.ep->ops->witness(at.ep, 3);
    close_all();
    open_new(false);
    assert_true(at.ep->ops->witness(at.ep, 3) != first);
    assert_int_equal(at.ep->ops->life(at.ep, 3, first), FAB_LIFE_UNKNOWN);
    close_all();
}

static void a_removed_pool_still_tells(void **state)
{
    (void)state;
    open_new(true);
    pid_t child = start(waits);
    assert_int_equal(unlink(at.name), 0);
    at.ep->ops->identify(at.ep, 7);
    assert_int_equal(life(7), FAB_ALIVE);
    lives_and_dies(child);
    close_all();
}

/* The descriptor by which the fabric asks. */
static int find_descriptor(void)
{
    struct stat pool, st;

    assert_int_equal(stat(scratch_path(at.name), &pool), 0);
    for (int fd = 3; fd < 256; fd++)
        if (fstat(fd, &st) == 0 && st.st_ino == pool.st_ino && st.st_dev == pool.st_dev)
            return fd;
    return -1;
}

/* The program has closed it, and another file has its number. */
static void a_descriptor_that_is_another_file_is_not_asked(void **state)
{
    (void)state;
    open_new(false);
    uint64_t dead = at.ep->ops->witness(at.ep, 3);
    assert_int_equal(at.ep->ops->life(at.ep, 3, dead), FAB_DEAD);
    int fd = find_descriptor();
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(at.ep->ops->life(at.ep, 3, dead), FAB_LIFE_UNKNOWN);
    assert_int_equal(dup2(at.end[0], fd), fd);
    assert_int_equal(at.ep->ops->life(at.ep, 3, dead), FAB_LIFE_UNKNOWN);
    at.ep->ops->identify(at.ep, 9);
    assert_true(at.ep->ops->witness(at.ep, 9) == 0);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(a_stopped_process_lives_and_a_killed_one_is_dead),
        SCRATCH_CASE(a_child_of_fork_does_not_keep_its_parent_alive),
        SCRATCH_CASE(closing_descriptors_ends_nobody),
        SCRATCH_CASE(an_identity_ends_with_its_endpoint_or_with_the_next),
        SCRATCH_CASE(a_client_of_another_machine_is_not_taken_for_dead),
        SCRATCH_CASE(pools_of_other_files_have_other_witnesses),
        SCRATCH_CASE(a_removed_pool_still_tells),
        SCRATCH_CASE(a_descriptor_that_is_another_file_is_not_asked),
    };

    return scratch_run(tests);
}
