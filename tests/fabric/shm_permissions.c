/* Permissions are the file's: a new pool is for its owner alone, until the owner changes them. */
#include "support/shm_scratch.h"

#define NOBODY 65534

/* As another user if this is root, whom permissions do not stop. */
static void open_as_another(void *arg)
{
    far_pool *pool = NULL;

    if (geteuid() == 0)
        ASSERT(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    ASSERT(far_pool_open(arg, &pool) == FAR_SYSTEM);
    ASSERT(!pool);
    ASSERT(strstr(far_error_detail(), "Permission denied"));
    ASSERT(far_pool_remove(arg) == FAR_SYSTEM);
}

static void open_as_another_with_leave(void *arg)
{
    far_session *session;
    far_pool *pool;

    if (geteuid() == 0)
        ASSERT(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    ASSERT(far_pool_open(arg, &pool) == FAR_OK);
    ASSERT(far_session_open(pool, NULL, &session) == FAR_OK);
    far_session_close(session);
    far_pool_close(pool);
}

static void permissions(bool by_path)
{
    const char *name = scratch_name(by_path);
    char *uri = (char *)(uintptr_t)scratch_uri(name, "?size=2m");
    far_pool *pool;
    struct stat st;

    if (by_path)
        assert_int_equal(chmod(scratch.dir, 0755), 0); /* so that others get as far as the file */
    assert_int_equal(far_pool_open(uri, &pool), FAR_OK);
    far_pool_close(pool);
    assert_int_equal(stat(scratch_path(name), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    if (geteuid() != 0)
        assert_int_equal(chmod(scratch_path(name), 0), 0);
    assert_int_equal(child_end(child_start(open_as_another, uri)), 0);
    assert_true(scratch_there(name));

    assert_int_equal(chmod(scratch_path(name), 0666), 0);
    assert_int_equal(child_end(child_start(open_as_another_with_leave, uri)), 0);
}

static void only_its_owner_can_open_a_pool_by_name(void **state)
{
    (void)state;
    permissions(false);
}

static void only_its_owner_can_open_a_pool_in_a_file(void **state)
{
    (void)state;
    permissions(true);
}

/* A wide umask does not make a new pool accessible to others. */
static void the_umask_does_not_matter(void **state)
{
    static const mode_t masks[] = {0, 022, 077};

    (void)state;
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        const char *name = scratch_name(i % 2);
        mode_t before = umask(masks[i]);
        far_pool *pool;
        struct stat st;

        assert_int_equal(far_pool_open(scratch_uri(name, "?size=2m"), &pool), FAR_OK);
        umask(before);
        far_pool_close(pool);
        assert_int_equal(stat(scratch_path(name), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_CASE(only_its_owner_can_open_a_pool_by_name),
        SCRATCH_CASE(only_its_owner_can_open_a_pool_in_a_file),
        SCRATCH_CASE(the_umask_does_not_matter),
    };

    return scratch_run(tests);
}
