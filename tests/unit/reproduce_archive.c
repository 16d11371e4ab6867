/* Result files: what is found again, and what is not. */
#include "base/err.h"
#include "reproduce/archive.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char dir[64], path[128];
    struct archive_key key;
    json_t *runs;
};

static int setup(void **state)
{
    static struct fixture f;
    snprintf(f.dir, sizeof f.dir, "/tmp/farside-archive-XXXXXX");
    assert_non_null(mkdtemp(f.dir));
    snprintf(f.path, sizeof f.path, "%s/rtts/shard.json", f.dir);
    f.key =
        (struct archive_key){.dir = f.dir,
                             .experiment = "rtts",
                             .cell = "shard",
                             .configuration = json_pack("{s:i, s:f}", "keys", 7, "theta", 0.99)};
    f.runs = json_pack("[{s:f}]", "ops_per_s", 1234567.875);
    assert_non_null(f.key.configuration);
    assert_non_null(f.runs);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", f->dir);
    assert_int_equal(system(command), 0);
    json_decref(f->key.configuration);
    json_decref(f->runs);
    return 0;
}

static void save(struct fixture *f)
{
    assert_int_equal(archive_make(f->dir, "rtts"), FAR_OK);
    assert_int_equal(archive_save(&f->key, f->runs), FAR_OK);
}

/* Writes another file in the place of the result. */
static void overwrite(const struct fixture *f, const char *text)
{
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_other(const struct fixture *f)
{
    json_t *runs = NULL;
    assert_int_equal(archive_load(&f->key, &runs), ARCHIVE_OTHER);
    assert_null(runs);
}

static void a_result_is_found_again(void **state)
{
    struct fixture *f = *state;
    json_t *runs = NULL;
    assert_false(archive_has(f->dir, "rtts"));
    assert_int_equal(archive_load(&f->key, &runs), ARCHIVE_NONE);
    save(f);
    assert_true(archive_has(f->dir, "rtts"));
    assert_false(archive_has(f->dir, "space"));
    assert_int_equal(archive_load(&f->key, &runs), ARCHIVE_FOUND);
    assert_true(json_equal(runs, f->runs));
    json_decref(runs);
}

static void another_configuration_does_not_fit(void **state)
{
    struct fixture *f = *state;
    save(f);
    json_object_set_new(f->key.configuration, "keys", json_integer(8));
    expect_other(f);
}

static void another_version_does_not_fit(void **state)
{
    struct fixture *f = *state;
    save(f);
    json_t *file = json_load_file(f->path, 0, NULL);
    assert_non_null(file);
    json_object_set_new(file, "farside", json_string("0.0.1"));
    assert_int_equal(json_dump_file(file, f->path, 0), 0);
    json_decref(file);
    expect_other(f);
}

static void a_file_that_is_no_result_does_not_fit(void **state)
{
    struct fixture *f = *state;
    save(f);
    overwrite(f, "");
    expect_other(f);
    overwrite(f, "{\"farside\": ");
    expect_other(f);
    overwrite(f, "[1, 2]");
    expect_other(f);
    overwrite(f, "{\"farside\": \"" FAR_VERSION "\", \"configuration\": {}, \"runs\": 3}");
    expect_other(f);
}

/* A file that was being written when the program was killed is no result. */
static void half_a_file_is_not_seen(void **state)
{
    struct fixture *f = *state;
    json_t *runs = NULL;
    save(f);
    char part[160];
    snprintf(part, sizeof part, "%s.part", f->path);
    assert_int_equal(rename(f->path, part), 0);
    assert_false(archive_has(f->dir, "rtts"));
    assert_int_equal(archive_load(&f->key, &runs), ARCHIVE_NONE);
    save(f); /* replaces it */
    assert_int_equal(archive_load(&f->key, &runs), ARCHIVE_FOUND);
    assert_int_equal(access(part, F_OK), -1);
    json_decref(runs);
}

static void what_cannot_be_written_is_an_error(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(archive_save(&f->key, f->runs), FAR_SYSTEM); /* no directory */
    assert_int_equal(archive_make(f->path, "rtts"), FAR_SYSTEM);
    save(f);
    assert_int_equal(archive_make(f->path, "rtts"), FAR_SYSTEM); /* a file is in the way */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_result_is_found_again, setup, teardown),
        cmocka_unit_test_setup_teardown(another_configuration_does_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(another_version_does_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_is_no_result_does_not_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(half_a_file_is_not_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_is_an_error, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
