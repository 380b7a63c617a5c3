/* Natural compression as an operator: exact distribution, edge cases, size, equivariance. */
#include "support/check.h"
#include "support/gen.h"
#include "support/philox.h"

#include "codec/natural/natural_core.h"

#include <math.h>

enum { DRAWS = 1 << 23 };

/* Check 1 of the note: count of draws that round up, and the mean, exactly. */
static void exact_distribution_over_all_draws(void **state)
{
    (void)state;
    static const struct {
        float x;
        uint32_t ups;
    } cases[] = {{2.5f, 2097152},       {-2.75f, 3145728}, {1.0f, 0},
                 {3.0f, 4194304},       {-0.1f, 5033165},  {1.3333334f, 2796203},
                 {1.9999999f, 8388607}, {0x1p-126f, 0},    {1e-40f, 71362},
                 {0x1p-149f, 1}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const uint32_t bits = gw_bits(cases[c].x), down = (bits & GW_ABS_MASK) >> 23;
        const double sign = signbit(cases[c].x) ? -1 : 1;
        uint32_t ups = 0;
        for (uint32_t r = 0; r < DRAWS; r++) {
            const uint32_t e = gw_natural_exponent(bits, r, 254);
            assert_true(e == down || e == down + 1);
            ups += e - down;
        }
        CHECK(ups == cases[c].ups, "%g rounds up %u times, not %u", (double)cases[c].x, ups,
              cases[c].ups);
        const double lo = gw_natural_value9(down, 0), hi = gw_natural_value9(down + 1, 0);
        const double mean = sign * (lo + (hi - lo) * (ups / (double)DRAWS));
        assert_true(mean == (double)cases[c].x);
    }
}

/* Check 2: bf16 has 7 mantissa bits, so 128 draws on a grid of 2^16 are the whole distribution. */
static void every_bf16_is_unbiased(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 1 << 16; h++) {
        const uint32_t bits = h << 16;
        const double x = (double)gw_float(bits);
        double sum = 0;
        for (uint32_t draw = 0; draw < 128; draw++) {
            const uint32_t e = gw_natural_exponent(bits, draw << 16, 254);
            if (!isfinite(x)) {
                assert_int_equal(e, GW_NATURAL_NON_FINITE);
                continue;
            }
            const double v = (double)gw_natural_value9(e, h >> 15);
            assert_true(isfinite(v) && v * x >= 0);
            sum += v;
        }
        if (isfinite(x) && fabs(x) < 0x1p127) {
            CHECK(sum / 128 == x, "bf16 %04X: mean %g of %g", h, sum / 128, x);
        } else if (isfinite(x)) {
            assert_true(fabs(sum / 128) == 0x1p127); /* saturated, never infinite */
        }
    }
}

/* Checks 3, 6 and 7 on random patterns. */
static void support_and_edges(void **state)
{
    (void)state;
    gen g = {3};
    for (int i = 0; i < 2000000; i++) {
        const uint32_t bits = (uint32_t)gen_u64(&g), r = (uint32_t)(gen_u64(&g) >> 41);
        const uint32_t a = bits & GW_ABS_MASK, e = gw_natural_exponent(bits, r, 254);
        const double x = fabs((double)gw_float(a)), v = (double)gw_natural_value9(e, 0);
        if (a >= GW_INF_BITS) {
            assert_int_equal(e, 255);
            assert_int_equal(gw_natural_code(bits, r, 254, 1 + bits % 128), 0x80);
        } else if (a < 0x00800000) {
            assert_true(v == 0 || v == 0x1p-126);
        } else if (a <= 0x7F000000) {
            assert_true(x / 2 < v && v < 2 * x);
            if ((a & 0x7FFFFF) == 0) {
                assert_true(v == x);
            }
        } else {
            assert_int_equal(e, 254);
        }
    }
    assert_int_equal(gw_natural_exponent(GW_NAN_BITS, 0x7FFFFF, 254), 255); /* not −0 */
    assert_int_equal(gw_natural_code(GW_SIGN_BIT, 0x7FFFFF, 254, 1), 0);    /* −0 */
    assert_int_equal(gw_natural_code(gw_bits(-0x1p-149f), 0, 254, 1), 0);   /* never 0x80 */
    assert_int_equal(gw_natural_code(gw_bits(-0x1p-149f), 0x7FFFFF, 254, 1), 0x81);
    assert_int_equal(gw_natural_exponent(gw_bits(65504.0f), 0x7FFFFF, gw_natural_top(1)), 142);
}

/* Check 8: below the 8-bit range, all draws. */
static void below_the_range_rounds_to_zero_or_the_smallest(void **state)
{
    (void)state;
    uint32_t ups = 0;
    for (uint32_t r = 0; r < DRAWS; r++) {
        const uint8_t code = gw_natural_code(gw_bits(1e-33f), r, 254, 19);
        assert_true(code <= 1);
        ups += code;
    }
    assert_int_equal(ups, 2722259);
}

/* Checks 9 and 10: the published Philox vectors, and the operator on that stream. */
static void philox_vectors(void **state)
{
    (void)state;
    static const uint32_t counters[3][4] = {
        {0, 0, 0, 0}, {~0u, ~0u, ~0u, ~0u}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}};
    static const uint32_t keys[3][2] = {{0, 0}, {~0u, ~0u}, {0xa4093822, 0x299f31d0}};
    static const uint32_t answers[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                           {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                           {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    static const uint32_t seven[4] = {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48};
    uint32_t out[4];
    for (int i = 0; i < 3; i++) {
        philox(counters[i], keys[i], 10, out);
        assert_memory_equal(out, answers[i], sizeof out);
    }
    philox(counters[0], keys[0], 7, out);
    assert_memory_equal(out, seven, sizeof out);

    static const uint32_t r23[16] = {0x02cc6f, 0x2f813d, 0x2e802c, 0x3cda6b, 0x697378, 0x5d208d,
                                     0x2d2128, 0x6c4338, 0x53e4b7, 0x4495bc, 0x50cbaf, 0x6c56b1,
                                     0x102679, 0x14559f, 0x1deb29, 0x2aa2e5};
    static const float x[16] = {2.5f,  -2.75f, 1,      3,      -0.1f,   1.3333334f, 0,    -0.0f,
                                1e-3f, -1e-3f, 1e-20f, 1e-33f, -3e-33f, 1e-40f,     3e5f, -7};
    static const float rounded[16] = {2,          -2, 1,        2,         -0.125f,  2,
                                      0,          0,  0x1p-10f, -0x1p-10f, 0x1p-66f, 0x1p-109f,
                                      -0x1p-108f, 0,  0x1p18f,  -8};
    static const uint8_t codes[16] = {0x6e, 0xee, 0x6d, 0x6e, 0xea, 0x6e, 0x00, 0x00,
                                      0x63, 0xe3, 0x2b, 0x01, 0x81, 0x00, 0x7f, 0xf0};
    static const uint32_t key[2] = {1, 2};
    for (uint64_t i = 0; i < 16; i++) {
        const uint32_t r = philox_word(key, i) >> 9, bits = gw_bits(x[i]);
        assert_int_equal(r, r23[i]);
        const uint32_t e = gw_natural_exponent(bits, r, 254);
        assert_true(gw_natural_value9(e, bits >> 31) == rounded[i]);
        assert_int_equal(gw_natural_code(bits, r, 254, 19), codes[i]);
    }
    static const uint64_t far[5] = {16, 17, 63, 64, (uint64_t)1 << 34};
    static const uint32_t words[5] = {0x98d2802e, 0xb2571bcc, 0xe766b338, 0xa2624c49, 0x40dc5355};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(philox_word(key, far[i]), words[i]);
    }
}

/* Encodes and decodes n numbers. */
static void round_trip(const gw_params *p, const float *x, float *y, size_t n, gw_stream stream)
{
    const size_t bytes = bound_of(p, n);
    uint8_t *payload = malloc(bytes + 1);
    size_t written = 0;
    gw_tensor in = {(void *)(uintptr_t)x, n, GW_F32}, out = {y, n, GW_F32};
    assert_non_null(payload);
    assert_int_equal(gw_encode(p, NULL, &stream, &in, payload, bytes, &written, NULL), GW_OK);
    assert_int_equal(gw_decode(p, NULL, payload, written, GW_SET, &out, NULL), GW_OK);
    free(payload);
}

/* Checks 4 and 5: variance 1/8 at 4/3, 0.0817 on Gaussian numbers. */
static void variance(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    const gw_params p = params_of("natural:bits=8");
    float *x = malloc(4 * N * sizeof *x), *y = malloc(4 * N * sizeof *y);
    double mean = 0, square = 0, error = 0, norm = 0;
    assert_non_null(x);
    assert_non_null(y);
    for (size_t i = 0; i < N; i++) {
        x[i] = 4.0f / 3;
    }
    round_trip(&p, x, y, N, (gw_stream){.seed = 4});
    for (size_t i = 0; i < N; i++) {
        mean += (double)y[i] / N;
        square += ((double)y[i] - 4.0 / 3) * ((double)y[i] - 4.0 / 3) / N;
    }
    assert_true(fabs(mean - 4.0 / 3) < 2.4e-3); /* five standard errors */
    assert_true(square * 9 / 16 > 0.1235 && square * 9 / 16 < 0.1265);
    gen g = {5};
    for (size_t i = 0; i < 4 * N; i++) {
        x[i] = (float)gen_normal(&g);
    }
    round_trip(&p, x, y, (size_t)4 * N, (gw_stream){.seed = 5});
    for (size_t i = 0; i < 4 * N; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)x[i] * (double)x[i];
    }
    CHECK(fabs(error / norm / 0.0817 - 1) < 0.01, "relative error %.5f", error / norm);
    free(x);
    free(y);
}

/* Checks 13 and 14. */
static void powers_of_two_commute_and_are_fixed(void **state)
{
    (void)state;
    enum { N = 10000 };
    static float x[N], y[N], scaled[N], z[N];
    for (int nine = 0; nine < 2; nine++) {
        const gw_params p = params_of(nine ? "natural:bits=9" : "natural:bits=8");
        gen g = {6};
        gen_fill(&g, GEN_LARGE, GW_F32, x, N);
        round_trip(&p, x, y, N, (gw_stream){.seed = 6});
        for (int k = -40; k <= 40; k++) {
            for (size_t i = 0; i < N; i++) {
                scaled[i] = ldexpf(x[i], k);
            }
            round_trip(&p, scaled, z, N, (gw_stream){.seed = 6});
            for (size_t i = 0; i < N; i++) {
                CHECK(z[i] == ldexpf(y[i], k), "2^%d times element %zu", k, i);
            }
        }
        round_trip(&p, y, z, N, (gw_stream){.seed = 77, .rank = 3}); /* any other stream */
        assert_memory_equal(y, z, sizeof y);
    }
}

/* Check 15. */
static void sizes(void **state)
{
    (void)state;
    const gw_params nine = params_of("natural:bits=9"), eight = params_of("natural:bits=8");
    static const size_t counts[] = {0, 1, 7, 8, 9, 4095, 4096, 4097, 100000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const size_t n = counts[i];
        assert_int_equal(bound_of(&nine, n), n + (n + 7) / 8);
        assert_int_equal(bound_of(&eight, n), n + (n + 4095) / 4096);
    }
}

/* What saturates is counted: with T' = 127 for fp32. */
static void overflow_is_counted(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float x[N];
    static uint8_t payload[2 * N];
    for (size_t i = 0; i < N; i++) {
        x[i] = i % 100 == 0 ? 3.4e38f : 1e-3f;
    }
    for (int nine = 0; nine < 2; nine++) {
        const gw_params p = params_of(nine ? "natural:bits=9" : "natural:bits=8");
        const gw_stream stream = {.seed = 9};
        const gw_tensor in = {x, N, GW_F32};
        gw_report report = {99, 99, 99};
        size_t written;
        assert_int_equal(
            gw_encode(&p, NULL, &stream, &in, payload, sizeof payload, &written, &report), GW_OK);
        assert_int_equal(report.non_finite, 0);
        /* 3.4e38 is 1.998 · 2^127: 50 of them, nearly all would round up */
        assert_in_range(report.overflowed, 48, 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_distribution_over_all_draws),
        cmocka_unit_test(every_bf16_is_unbiased),
        cmocka_unit_test(support_and_edges),
        cmocka_unit_test(below_the_range_rounds_to_zero_or_the_smallest),
        cmocka_unit_test(philox_vectors),
        cmocka_unit_test(variance),
        cmocka_unit_test(powers_of_two_commute_and_are_fixed),
        cmocka_unit_test(sizes),
        cmocka_unit_test(overflow_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
