/* Memory that begins on a line, at other cache sets by turns, and can be given back. */
#include "support/check.h"

#include "base/huge_pages.h"

enum { LARGE = 5 << 20, TURNS = 4 };

static void begins_where_it_should(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 63, 1000, 1 << 20, LARGE};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned turn = 0; turn < 16; turn++) {
            unsigned char *data = gw_pages_allocate(sizes[i], turn);
            CHECK(data != NULL && (uintptr_t)data % 64 == 0, "%zu bytes, turn %u", sizes[i], turn);
            memset(data, 0xA5, sizes[i]);
            gw_pages_free(data);
        }
    }
    gw_pages_free(NULL);
    assert_null(gw_pages_allocate(SIZE_MAX, 3));
}

/* Of those that a step goes over side by side no two begin in the same of 64 sets; on huge pages, where a block's own place is known. */
static void turns_are_apart(void **state)
{
    (void)state;
    uintptr_t set[TURNS];
    for (unsigned turn = 0; turn < TURNS; turn++) {
        void *data = gw_pages_allocate(LARGE, turn);
        assert_non_null(data);
        set[turn] = (uintptr_t)data / 64 % 64;
        gw_pages_free(data);
        for (unsigned before = 0; before < turn; before++) {
            CHECK(set[before] != set[turn], "turns %u and %u begin at set %u", before, turn,
                  (unsigned)set[turn]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_where_it_should),
        cmocka_unit_test(turns_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
