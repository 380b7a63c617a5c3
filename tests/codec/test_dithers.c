/* The dithers as operators: exact distribution, scales at every size, the statistics of the note. */
#include "support/check.h"
#include "support/gen.h"

#include "base/random.h"
#include "codec/bucket/bucket.h"
#include "codec/dither/dither_core.h"
#include "codec/ndither/ndither_core.h"

#include <math.h>

enum { DRAWS = 1 << 23 };

typedef uint32_t level_fn(float size, float factor, uint32_t levels, uint32_t r);

static float factor_of(int natural, float scale, uint32_t levels)
{
    return natural ? gw_ndither_factor(scale) : gw_dither_factor(scale, levels);
}

static double fraction_of(int natural, uint32_t k, uint32_t levels)
{
    return (double)(natural ? gw_ndither_fraction(k, levels) : gw_dither_fraction(k, levels));
}

/* All draws for one number in a bucket of given scale: only the two neighbouring levels, and the mean
 * is the number up to the biases that numerics.md states. */
static void exact_distribution_over_all_draws(void **state)
{
    (void)state;
    static const float scale = 0.7f;
    static const float numbers[] = {0.0f,   1e-6f, 0.004f, 0.05f,   0.0999f,
                                    0.233f, 0.35f, 0.61f,  0.6999f, 0.7f};
    for (int natural = 0; natural < 2; natural++) {
        for (uint32_t bits = 2; bits <= 8; bits += 2) {
            const uint32_t s = (1u << (bits - 1)) - 1;
            const float factor = factor_of(natural, scale, s);
            level_fn *level = natural ? gw_ndither_level : gw_dither_level;
            for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
                const double x = (double)numbers[i];
                const uint32_t low = level(numbers[i], factor, s, 0);
                uint64_t ups = 0;
                for (uint32_t r = 0; r < DRAWS; r++) {
                    const uint32_t k = level(numbers[i], factor, s, r);
                    assert_true(k == low || k == low + 1);
                    ups += k - low;
                }
                const double lo = (double)scale * fraction_of(natural, low, s);
                const double hi = (double)scale * fraction_of(natural, low < s ? low + 1 : s, s);
                const double mean = lo + (hi - lo) * ((double)ups / DRAWS);
                const double slack = x * 0x1p-20 + (hi - lo) * 0x1p-22;
                CHECK(fabs(mean - x) <= slack, "%s bits %u: mean %.9g of %.9g",
                      natural ? "ndither" : "dither", bits, mean, x);
                assert_true(lo <= x + slack && (hi >= x - slack));
            }
        }
    }
}

/* The largest magnitude is reproduced for the first and the last draw, every mantissa and width. */
static void the_maximum_is_exact(void **state)
{
    (void)state;
    gen g = {11};
    for (int i = 0; i < 300000; i++) {
        const uint32_t bits = 2 + gen_below(&g, 7), s = (1u << (bits - 1)) - 1;
        const uint32_t pattern = (uint32_t)gen_u64(&g) & GW_ABS_MASK;
        if (pattern >= GW_INF_BITS || pattern == 0) {
            continue;
        }
        const float scale = gw_float(pattern), pre = gw_bucket_pre(scale);
        for (int natural = 0; natural < 2; natural++) {
            const float factor = factor_of(natural, scale * pre, s);
            level_fn *level = natural ? gw_ndither_level : gw_dither_level;
            assert_true(isfinite(factor) && factor >= 0x1p-126f);
            assert_int_equal(level(scale * pre, factor, s, 0), s);
            assert_int_equal(level(scale * pre, factor, s, DRAWS - 1), s);
            assert_true(fraction_of(natural, s, s) == 1.0);
            assert_int_equal(level(0, factor, s, DRAWS - 1), 0);
        }
    }
}

static void encode_with(const gw_params *p, const float *x, size_t n, uint8_t *payload)
{
    const gw_stream stream = {.seed = 12};
    const gw_tensor in = {(void *)(uintptr_t)x, n, GW_F32};
    size_t written = 0;
    assert_int_equal(gw_encode(p, NULL, &stream, &in, payload, bound_of(p, n), &written, NULL),
                     GW_OK);
}

static void decode_with(const gw_params *p, const uint8_t *payload, float *y, size_t n)
{
    gw_tensor out = {y, n, GW_F32};
    assert_int_equal(gw_decode(p, NULL, payload, bound_of(p, n), GW_SET, &out, NULL), GW_OK);
}

/* Check 18: zero buckets, one non-zero element, constant buckets, tails, subnormal maxima. */
static void corners(void **state)
{
    (void)state;
    enum { N = 64 * 3 + 5 };
    static const char *const specs[] = {"dither:bits=4,bucket=64", "ndither:bits=4,bucket=64",
                                        "dither:bits=2,bucket=64", "ndither:bits=8,bucket=64"};
    static const float sizes[] = {1.0f, 3e-42f, 0x1p-149f, 3.4e38f, 0.3f, 1e-20f};
    uint8_t payload[512];
    float x[N], y[N];
    for (size_t c = 0; c < sizeof specs / sizeof specs[0]; c++) {
        const gw_params p = params_of(specs[c]);
        for (size_t v = 0; v < sizeof sizes / sizeof sizes[0]; v++) {
            memset(x, 0, sizeof x);
            x[70] = -sizes[v]; /* alone in its bucket */
            for (size_t i = 128; i < N; i++) {
                x[i] = i % 2 ? sizes[v] : -sizes[v]; /* constant, and the tail bucket too */
            }
            encode_with(&p, x, N, payload);
            decode_with(&p, payload, y, N);
            const void *a = x, *b = y; /* as bits: the sign of zero counts */
            CHECK(memcmp(a, b, sizeof x) == 0, "%s with magnitude %g is not reproduced", specs[c],
                  (double)sizes[v]);
        }
    }
}

/* Check 17: with one level, and the same draws, natural and linear dithering are the same operator. */
static void one_level_is_ternary_in_both(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N], y[N], z[N];
    static uint8_t payload[N];
    gen g = {13};
    gen_fill(&g, GEN_LARGE, GW_F32, x, N);
    const gw_params a = params_of("dither:bits=2"), b = params_of("ndither:bits=2");
    encode_with(&a, x, N, payload);
    decode_with(&a, payload, y, N);
    encode_with(&b, x, N, payload);
    decode_with(&b, payload, z, N);
    assert_memory_equal(y, z, sizeof y);
}

/* Check 17: relative variance on Gaussian numbers, the note's table 3.3, within 2 %. */
static void variance_on_gaussian_numbers(void **state)
{
    (void)state;
    static const struct {
        uint32_t bucket, bits;
        double natural, linear;
    } table[] = {{128, 2, 1.263, 1.263},  {128, 3, 0.117, 0.150},  {128, 4, 0.0774, 0.0275},
                 {512, 2, 1.588, 1.588},  {512, 3, 0.138, 0.197},  {512, 4, 0.0810, 0.0361},
                 {4096, 2, 2.044, 2.044}, {4096, 3, 0.171, 0.271}, {4096, 4, 0.0819, 0.0499}};
    enum { N = 1 << 22 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    uint8_t *payload = malloc(N);
    assert_non_null(x);
    assert_non_null(y);
    assert_non_null(payload);
    gen g = {14};
    double norm = 0;
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)gen_normal(&g);
        norm += (double)x[i] * (double)x[i];
    }
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++) {
        for (int natural = 0; natural < 2; natural++) {
            char spec[64];
            (void)snprintf(spec, sizeof spec, "%s:bits=%u,bucket=%u",
                           natural ? "ndither" : "dither", table[t].bits, table[t].bucket);
            const gw_params p = params_of(spec);
            double error = 0;
            encode_with(&p, x, N, payload);
            decode_with(&p, payload, y, N);
            for (size_t i = 0; i < N; i++) {
                error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            }
            const double want = natural ? table[t].natural : table[t].linear;
            CHECK(fabs(error / norm / want - 1) < 0.02,
                  "%s: relative error %.4f, the note says %.4f", spec, error / norm, want);
        }
    }
    free(x);
    free(y);
    free(payload);
}

/* Check 16: x = (3, 4), s = 3, the Euclidean norm: 3/5 is 1 with probability 0.2, else 1/2; 4/5 is 1 with
 * probability 0.6, else 1/2; total relative variance 0.1. */
static void euclidean_norm_by_hand(void **state)
{
    (void)state;
    enum { TRIALS = 200000 };
    const gw_params p = params_of("ndither:bits=3,norm=l2,bucket=64");
    const float x[2] = {3, 4};
    double ups[2] = {0}, square = 0;
    for (uint64_t k = 0; k < TRIALS; k++) {
        uint8_t payload[8];
        float y[2];
        size_t written = 0;
        const gw_stream stream = {.seed = 16, .step = k};
        const gw_tensor in = {(void *)(uintptr_t)x, 2, GW_F32};
        assert_int_equal(gw_encode(&p, NULL, &stream, &in, payload, sizeof payload, &written, NULL),
                         GW_OK);
        decode_with(&p, payload, y, 2);
        for (int i = 0; i < 2; i++) {
            assert_true(y[i] == 5.0f || y[i] == 2.5f);
            ups[i] += y[i] == 5.0f;
            square += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
        }
    }
    /* five standard errors */
    assert_true(fabs(ups[0] / TRIALS - 0.2) < 5 * sqrt(0.2 * 0.8 / TRIALS));
    assert_true(fabs(ups[1] / TRIALS - 0.6) < 5 * sqrt(0.6 * 0.4 / TRIALS));
    assert_true(fabs(square / TRIALS / 25 - 0.1) < 1e-3);
}

/* Nearest rounding: no draw, at most half a step away. */
static void nearest_is_deterministic(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float x[N], y[N];
    static uint8_t payload[N], again[N];
    const gw_params p = params_of("dither:bits=5,rounding=nearest");
    assert_int_equal(gw_params_flags(&p), GW_CODEC_FIXED_SIZE);
    gen g = {15};
    gen_fill(&g, GEN_LARGE, GW_F32, x, N);
    encode_with(&p, x, N, payload);
    const gw_tensor in = {x, N, GW_F32};
    size_t written = 0;
    assert_int_equal(gw_encode(&p, NULL, NULL, &in, again, sizeof again, &written, NULL), GW_OK);
    assert_memory_equal(payload, again, written);
    decode_with(&p, payload, y, N);
    for (size_t i = 0; i < N; i++) {
        float scale;
        memcpy(&scale, payload + i / 512 * (4 + 320), sizeof scale);
        assert_true(fabs((double)x[i] - (double)y[i]) <= (double)scale / 15 / 2 * (1 + 1e-6));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_distribution_over_all_draws),
        cmocka_unit_test(the_maximum_is_exact),
        cmocka_unit_test(corners),
        cmocka_unit_test(one_level_is_ternary_in_both),
        cmocka_unit_test(variance_on_gaussian_numbers),
        cmocka_unit_test(euclidean_norm_by_hand),
        cmocka_unit_test(nearest_is_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
