/*
 * Devices: mapped as they are, never grown. Few machines have one whose memory can be shared, so
 * files stand in: while `files_are_devices`, this program's own copy of shm.c takes a file for a
 * device. Devices without such memory exist on every machine, and are refused.
 */
#include <stdbool.h>
#include <sys/stat.h>

static bool files_are_devices;

#undef S_ISREG
#undef S_ISCHR
#define S_ISREG(mode) (!files_are_devices && ((mode)&S_IFMT) == S_IFREG)
#define S_ISCHR(mode)                                                                              \
    (((mode)&S_IFMT) == S_IFCHR || (files_are_devices && ((mode)&S_IFMT) == S_IFREG))

#include "fabric/shm.c"

#include "support/shm_scratch.h"

static void refused(const char *uri, int status, const char *says)
{
    far_pool *pool = NULL;
    int rc = far_pool_open(uri, &pool);

    if (rc != status || !strstr(far_error_detail(), says))
        print_error("%s: %s: %s\n", uri, far_errname(rc), far_error_detail());
    assert_int_equal(rc, status);
    assert_non_null(strstr(far_error_detail(), says));
    assert_null(pool);
}

/* A file of zeros, of that many MiB. */
static const char *device(unsigned mib)
{
    const char *name = scratch_name(true);
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)mib << 20), 0);
    close(fd);
    files_are_devices = true;
    return name;
}

static void devices_without_memory_are_refused(void **state)
{
    static const char *const devices[] = {"zero", "null", "full", "random", "urandom"};

    (void)state;
    files_are_devices = false;
    for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++) {
        char uri[64];

        snprintf(uri, sizeof uri, "shm:/dev/%s?size=8m&nodes=2", devices[i]);
        refused(uri, FAR_NOT_A_POOL, "is a device without memory that could be shared");
        snprintf(uri, sizeof uri, "shm:/dev/%s", devices[i]);
        refused(uri, FAR_NOT_A_POOL, "is a device without memory that could be shared");
        assert_int_equal(far_pool_remove(uri), FAR_NOT_A_POOL);
    }
}

/* A terminal, where there is one to be had. */
static void a_device_that_cannot_be_mapped_is_refused(void **state)
{
    char uri[128], *name = NULL;
    int fd = posix_openpt(O_RDWR | O_NOCTTY);

    (void)state;
    files_are_devices = false;
    if (fd < 0 || grantpt(fd) != 0 || unlockpt(fd) != 0 || !(name = ptsname(fd)))
        skip();
    snprintf(uri, sizeof uri, "shm:%s?size=8m", name);
    refused(uri, FAR_NOT_A_POOL, "is a device that cannot be mapped");
    close(fd);
}

/* Where every mapping is another memory, there is nothing to share. */
static void a_device_with_memory_of_its_own_for_each_mapping_is_refused(void **state)
{
    const size_t bytes = 1 << 20;
    struct shm_fab s = {.map_bytes = bytes};
    const char *name = device(1);

    (void)state;
    assert_int_equal(place_parse(name, &s.place), FAR_OK);
    s.place.fd = open(name, O_RDWR);
    assert_true(s.place.fd >= 0);
    for (unsigned apart = 0; apart < 2; apart++) {
        s.map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, apart ? MAP_PRIVATE : MAP_SHARED,
                     s.place.fd, 0);
        assert_ptr_not_equal(s.map, MAP_FAILED);
        assert_int_equal(check_shared(&s), apart ? FAR_NOT_A_POOL : FAR_OK);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(s.map[i], 0);
        munmap(s.map, bytes);
    }
    close(s.place.fd);
}

static void a_device_needs_a_size(void **state)
{
    (void)state;
    refused(scratch_uri(device(8), ""), FAR_BAD_URI, "needs size=");
}

static void a_pool_on_a_device_is_made_and_found_again(void **state)
{
    const char *name = device(12);

    (void)state;
    for (unsigned turn = 0; turn < 3; turn++) {
        struct far_pool_info info;
        far_session *session;
        far_table *table;
        far_pool *pool;
        char value[8];
        size_t len;

        assert_int_equal(far_pool_open(scratch_uri(name, "?size=4m&nodes=3"), &pool), FAR_OK);
        assert_int_equal(far_session_open(pool, NULL, &session), FAR_OK);
        assert_int_equal(far_pool_info(session, &info), FAR_OK);
        assert_int_equal(info.nodes, 3);
        assert_int_equal(info.bytes_total, 12 << 20);
        if (turn == 0) {
            assert_int_equal(far_table_create(session, "t", "race", NULL, &table), FAR_OK);
            assert_int_equal(far_put(session, table, "key", 3, "value", 5), FAR_OK);
        }
        assert_int_equal(far_table_open(session, "t", NULL, &table), FAR_OK);
        assert_int_equal(far_get(session, table, "key", 3, value, sizeof value, &len), FAR_OK);
        assert_int_equal(len, 5);
        assert_int_equal(far_table_check(session, table, NULL, NULL), FAR_OK);
        far_session_close(session);
        far_pool_close(pool);
    }
    refused(scratch_uri(name, "?size=6m&nodes=2"), FAR_BAD_URI, "was made with size=4194304");
    assert_int_equal(far_pool_remove(scratch_uri(name, "")), FAR_UNSUPPORTED);
}

/* Another machine may have the device, and its clock goes on while this one is suspended. */
static void a_device_is_used_within_leases_that_pass_during_suspensions(void **state)
{
    (void)state;
    for (unsigned is_device = 0; is_device < 2; is_device++) {
        const char *name = device(4);
        struct fab *fab = NULL;
        struct fab_ep *ep = NULL;

        files_are_devices = is_device;
        struct uri uri = {.rest = ""};
        assert_int_equal(uri_parse(scratch_uri(name, "?size=4m"), &uri), FAR_OK);
        assert_int_equal(shm_open_fabric(&uri, &fab), FAR_OK);
        assert_int_equal(fab->ops->ep_open(fab, &ep), FAR_OK);
        assert_int_equal(ep->ops->now == boot_now, is_device);
        assert_int_equal(ep->ops->coarse == boot_now, is_device);
        assert_int_equal((fab->caps & FAB_CAP_PIECES) != 0, is_device);
        uint64_t before = clock_boot_ns(), now = boot_now(ep);
        assert_in_range(now, before, clock_boot_ns());
        fab->ops->ep_close(ep);
        fab_close(fab);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        SCRATCH_CASE(devices_without_memory_are_refused),
        SCRATCH_CASE(a_device_that_cannot_be_mapped_is_refused),
        SCRATCH_CASE(a_device_with_memory_of_its_own_for_each_mapping_is_refused),
        SCRATCH_CASE(a_device_needs_a_size),
        SCRATCH_CASE(a_pool_on_a_device_is_made_and_found_again),
        SCRATCH_CASE(a_device_is_used_within_leases_that_pass_during_suspensions),
    };

    return scratch_run(tests);
}
