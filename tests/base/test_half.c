/* fp16 and bf16: every pattern, and every rounding border, against exact arithmetic in double. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

#include <math.h>

/* The value of an fp16 pattern by its definition. */
static double f16_value(uint16_t h)
{
    const int e = h >> 10 & 31;
    const double m = h & 1023, sign = h >> 15 ? -1 : 1;
    if (e == 31) {
        return m != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25));
}

static void every_half_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 1 << 16; h++) {
        const double want = f16_value((uint16_t)h), got = (double)gw_f32_from_f16((uint16_t)h);
        CHECK((isnan(want) && isnan(got)) || (want == got && signbit(want) == signbit(got)),
              "fp16 %04X widens to %g, not %g", h, got, want);
        assert_int_equal(gw_bits(gw_f32_from_bf16((uint16_t)h)), h << 16);
    }
}

/* The midpoint between each finite half and the next, and the floats beside it: nearest even. */
static void narrowing_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7C00; h++) {
        /* beyond the largest, the next is where infinity begins: 2^16 */
        const double low = f16_value((uint16_t)h),
                     next = h == 0x7BFF ? 65536 : f16_value((uint16_t)(h + 1));
        const float middle = (float)((low + next) / 2); /* exact: one bit more than fp16 */
        const uint16_t even = (uint16_t)(h + (h & 1));
        assert_int_equal(gw_f16_from_f32((float)low), h);
        assert_int_equal(gw_f16_from_f32(middle), even);
        assert_int_equal(gw_f16_from_f32(-middle), even | 0x8000);
        assert_int_equal(gw_f16_from_f32(gw_float(gw_bits(middle) - 1)), h);
        assert_int_equal(gw_f16_from_f32(gw_float(gw_bits(middle) + 1)), h + 1);
    }
    for (uint32_t h = 0; h < 0x7F80; h++) {
        const uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(gw_bf16_from_f32(gw_float(middle)), h + (h & 1));
        assert_int_equal(gw_bf16_from_f32(gw_float(middle - 1)), h);
        assert_int_equal(gw_bf16_from_f32(gw_float(middle + 1)), h + 1);
    }
}

static void non_finite_stays_non_finite(void **state)
{
    (void)state;
    gen g = {1};
    for (int i = 0; i < 100000; i++) {
        const uint32_t nan = (uint32_t)gen_u64(&g) | GW_INF_BITS;
        if ((nan & GW_ABS_MASK) == GW_INF_BITS) {
            continue;
        }
        assert_true(isnan(gw_f32_from_f16(gw_f16_from_f32(gw_float(nan)))));
        assert_true(isnan(gw_f32_from_bf16(gw_bf16_from_f32(gw_float(nan)))));
    }
    assert_int_equal(gw_f16_from_f32(-INFINITY), 0xFC00);
    assert_int_equal(gw_bf16_from_f32(INFINITY), 0x7F80);
    assert_int_equal(gw_f16_from_f32(65519.996f), 0x7BFF);
    assert_int_equal(gw_f16_from_f32(65520.0f), 0x7C00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_widens_exactly),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(non_finite_stays_non_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
