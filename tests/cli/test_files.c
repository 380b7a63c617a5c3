/* Files read and written whole, where others are at work in the same folder: the file becomes shorter after its size was
 * asked for, the temporary's name is taken. getentropy and fstat are wrapped by the linker. */
#include "support/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files/files.h"

static struct {
    int same, asked;     /* of getentropy: so many times the same, calls so far */
    const char *shorten; /* of fstat: the file that loses its last byte after it */
    int synced;          /* calls of fsync */
} world;

int __wrap_getentropy(void *buffer, size_t size);
int __real_fstat(int file, struct stat *out);
int __wrap_fstat(int file, struct stat *out);
int __real_fsync(int file);
int __wrap_fsync(int file);

int __wrap_getentropy(void *buffer, size_t size)
{
    const int which = world.asked++ < world.same ? 0 : world.asked;
    for (size_t i = 0; i < size; i++) {
        ((uint8_t *)buffer)[i] = (uint8_t)(which >> 5 * (i % 4));
    }
    return 0;
}

int __wrap_fstat(int file, struct stat *out)
{
    const int result = __real_fstat(file, out);
    if (world.shorten) {
        assert_int_equal(truncate(world.shorten, out->st_size - 1), 0);
    }
    return result;
}

int __wrap_fsync(int file)
{
    world.synced++;
    return __real_fsync(file);
}

#define TAKEN "out.00000000.tmp" /* what `which` 0 makes of "out" */

static bool put(const char *text, unsigned flags, char *why)
{
    const struct iovec pieces[2] = {{(void *)text, 2}, {(void *)(text + 2), strlen(text) - 2}};
    return gw_cli_file_put("out", pieces, 2, flags, why);
}

static void must_hold(const char *path, const char *text)
{
    char why[GW_FILE_WHY] = "";
    gw_file_bytes bytes;
    CHECK(gw_cli_file_get(path, &bytes, why), "%s: %s", path, why);
    assert_int_equal(bytes.size, strlen(text));
    assert_memory_equal(bytes.data, text, bytes.size);
    gw_cli_bytes_free(&bytes);
}

static void make(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static int enter(void **state)
{
    static char folder[64];
    (void)snprintf(folder, sizeof folder, "/tmp/gradwire-files-XXXXXX");
    *state = folder;
    world.same = world.asked = world.synced = 0;
    world.shorten = NULL;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    static const char *const NAMES[] = {"out", TAKEN, "victim", "in"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        (void)unlink(NAMES[i]);
    }
    return chdir("/") == 0 && rmdir(*state) == 0 ? 0 : -1; /* nothing else was left behind */
}

static void a_stale_temporary_blocks_nothing(void **state)
{
    (void)state;
    char why[GW_FILE_WHY] = "";
    make(TAKEN, "stale");
    world.same = 5;
    CHECK(put("whole", GW_CLI_DURABLE, why), "%s", why);
    assert_int_equal(world.asked, 6);
    must_hold("out", "whole");
    must_hold(TAKEN, "stale");
}

static void a_planted_link_is_not_followed(void **state)
{
    (void)state;
    char why[GW_FILE_WHY] = "";
    make("victim", "untouched");
    assert_int_equal(symlink("victim", TAKEN), 0);
    world.same = 1;
    CHECK(put("whole", GW_CLI_DURABLE, why), "%s", why);
    must_hold("out", "whole");
    must_hold("victim", "untouched");
}

static void links_are_followed_where_asked(void **state)
{
    (void)state;
    char why[GW_FILE_WHY] = "";
    struct stat link;
    make("victim", "before");
    assert_int_equal(symlink("victim", "out"), 0);
    CHECK(put("after", GW_CLI_FOLLOW, why), "%s", why);
    must_hold("victim", "after");
    assert_true(lstat("out", &link) == 0 && S_ISLNK(link.st_mode));
    CHECK(put("other", GW_CLI_DURABLE, why), "%s", why);
    must_hold("victim", "after");
    must_hold("out", "other");
    assert_true(lstat("out", &link) == 0 && S_ISREG(link.st_mode));
}

static void a_name_that_stays_taken_is_named(void **state)
{
    (void)state;
    char why[GW_FILE_WHY] = "";
    make("out", "before");
    make(TAKEN, "stale");
    world.same = 1 << 20;
    assert_false(put("whole", GW_CLI_DURABLE, why));
    assert_string_equal(why, "cannot write: '" TAKEN "' is in the way");
    assert_in_range(world.asked, 2, 1000);
    must_hold("out", "before");
}

static void a_durable_file_is_synced_with_its_folder(void **state)
{
    (void)state;
    char why[GW_FILE_WHY] = "";
    assert_true(put("whole", GW_CLI_DURABLE, why));
    assert_int_equal(world.synced, 2);
    assert_true(put("again", 0, why));
    assert_int_equal(world.synced, 2);
    must_hold("out", "again");
}

static void a_file_that_becomes_shorter_is_refused(void **state)
{
    (void)state;
    static const int SIZES[] = {1, 100, 3 << 20};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        char why[GW_FILE_WHY] = "", wanted[GW_FILE_WHY];
        gw_file_bytes bytes = {0};
        make("in", "");
        assert_int_equal(truncate("in", SIZES[i]), 0);
        assert_true(gw_cli_file_get("in", &bytes, why));
        assert_int_equal(bytes.size, SIZES[i]);
        gw_cli_bytes_free(&bytes);
        world.shorten = "in";
        assert_false(gw_cli_file_get("in", &bytes, why));
        (void)snprintf(wanted, sizeof wanted,
                       "became shorter while it was read: %d bytes instead of %d", SIZES[i] - 1,
                       SIZES[i]);
        assert_string_equal(why, wanted);
        world.shorten = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stale_temporary_blocks_nothing, enter, leave),
        cmocka_unit_test_setup_teardown(a_planted_link_is_not_followed, enter, leave),
        cmocka_unit_test_setup_teardown(links_are_followed_where_asked, enter, leave),
        cmocka_unit_test_setup_teardown(a_name_that_stays_taken_is_named, enter, leave),
        cmocka_unit_test_setup_teardown(a_durable_file_is_synced_with_its_folder, enter, leave),
        cmocka_unit_test_setup_teardown(a_file_that_becomes_shorter_is_refused, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
