/* The arena: measuring and cutting agree, pieces are aligned and apart, nothing overflows. */
#include "support/check.h"

#include "base/arena.h"

static void measure_then_cut_at_every_misalignment(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 0, 63, 64, 65, 1000};
    enum { PIECES = sizeof sizes / sizeof sizes[0] };
    gw_arena measure = gw_arena_measuring();
    for (size_t i = 0; i < PIECES; i++) {
        assert_null(gw_arena_take(&measure, sizes[i], 4));
    }
    const size_t need = gw_arena_need(&measure);
    for (size_t off = 0; off < 64; off++) {
        uint8_t *memory = malloc(need + off);
        uint8_t *last_end = memory + off;
        assert_non_null(memory);
        gw_arena arena = gw_arena_over((gw_workspace){memory + off, need});
        for (size_t i = 0; i < PIECES; i++) {
            uint8_t *piece = gw_arena_take(&arena, sizes[i], 4);
            assert_false(arena.failed);
            assert_int_equal((uintptr_t)piece % 64, 0);
            assert_true(piece >= last_end);
            memset(piece, 0xA5, sizes[i] * 4);
            last_end = piece + sizes[i] * 4;
        }
        assert_true(last_end <= memory + off + need);
        /* a workspace that was cut before, red zones and all, can be cut again */
        arena = gw_arena_over((gw_workspace){memory + off, need});
        assert_non_null(gw_arena_take(&arena, need - 192, 1));
        free(memory);
    }
}

static void too_small_and_overflow_fail_for_good(void **state)
{
    (void)state;
    uint8_t memory[256];
    gw_arena arena = gw_arena_over((gw_workspace){memory, sizeof memory});
    assert_null(gw_arena_take(&arena, 257, 1));
    assert_true(arena.failed);
    assert_null(gw_arena_take(&arena, 1, 1)); /* a failure is not forgotten */
    arena = gw_arena_over((gw_workspace){memory, sizeof memory});
    assert_null(gw_arena_take(&arena, SIZE_MAX / 2, 4));
    assert_true(arena.failed);
    arena = gw_arena_over((gw_workspace){NULL, 1000}); /* no memory, whatever the size says */
    assert_null(gw_arena_take(&arena, 1, 1));
    assert_true(arena.failed);
    arena = gw_arena_over((gw_workspace){memory + 1, 0}); /* nothing there, and nothing wanted */
    assert_false(arena.failed);
    assert_null(gw_arena_take(&arena, 1, 1));
    assert_true(arena.failed);
    gw_arena none = gw_arena_measuring();
    assert_int_equal(gw_arena_need(&none), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measure_then_cut_at_every_misalignment),
        cmocka_unit_test(too_small_and_overflow_fail_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
