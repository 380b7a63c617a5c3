/* The random numbers: the page's known answers, uniform, and no correlation between streams that
 * differ in one field, nor between neighbours in one. */
#include "support/check.h"

#include "base/random.h"

#include <math.h>

enum { N = 1 << 18, MAX_LAG = 64 };

static void known_answers_of_the_page(void **state)
{
    static const uint64_t index[] = {0,
                                     1,
                                     15,
                                     16,
                                     31,
                                     32,
                                     4096,
                                     ((uint64_t)1 << 33) - 1,
                                     (uint64_t)1 << 33,
                                     ((uint64_t)1 << 34) + 21};
    (void)state;
    FILE *page = fopen(GW_DOCS "/numerics.md", "r");
    char line[512];
    int rows = 0;
    assert_non_null(page);
    while (fgets(line, sizeof line, page) != NULL) {
        unsigned long long v[15];
        char *at = line;
        int cells = 0;
        while (cells < 15 && *at == '|') { /* rows of hexadecimal cells alone */
            char *end;
            v[cells] = strtoull(at + 1, &end, 16);
            if (end == at + 1) {
                break;
            }
            at = end + strspn(end, " ");
            cells++;
        }
        if (cells != 15) {
            continue;
        }
        const gw_stream stream = {v[0], v[1], v[2], (uint32_t)v[3], (uint32_t)v[4], 0};
        const uint64_t key = gw_random_key(&stream);
        for (size_t i = 0; i < 10; i++) {
            const uint32_t r = gw_random_r23(gw_random_pair_at(key, index[i]), index[i]);
            CHECK(r == v[5 + i], "row %d, i=%llu: %06X, the page says %06llX", rows,
                  (unsigned long long)index[i], r, v[5 + i]);
        }
        rows++;
    }
    (void)fclose(page);
    assert_int_equal(rows, 8);
}

/* Centred: uniform on (−1/2, 1/2). */
static double *stream_of(gw_stream s, size_t n)
{
    double *u = malloc(n * sizeof *u);
    assert_non_null(u);
    const uint64_t key = gw_random_key(&s);
    for (size_t i = 0; i < n; i++) {
        u[i] = (gw_random_r23(gw_random_pair_at(key, i), i) + 0.5) * 0x1p-23 - 0.5;
    }
    return u;
}

/* Largest |correlation| over the lags, in standard errors. For independent uniform numbers the sum of
 * products has mean 0 and variance m/144. */
static double worst_correlation(const double *a, const double *b, int skip_zero)
{
    double worst = 0;
    for (int lag = -MAX_LAG; lag <= MAX_LAG; lag++) {
        double sum = 0;
        const size_t shift = (size_t)abs(lag), m = N - shift;
        const double *p = lag < 0 ? a + shift : a, *q = lag < 0 ? b : b + shift;
        if (lag == 0 && skip_zero) {
            continue;
        }
        for (size_t i = 0; i < m; i++) {
            sum += p[i] * q[i];
        }
        const double z = fabs(sum) * 12 / sqrt((double)m);
        worst = z > worst ? z : worst;
    }
    return worst;
}

/* 40 pairs of streams × 129 lags: 6.4 standard errors is passed by chance in one of 10^6 such tests. */
static const double limit = 6.4;

static void neighbouring_streams_are_uncorrelated(void **state)
{
    (void)state;
    static const char *const fields[] = {"seed", "step", "tensor", "encode point", "rank"};
    for (int field = 0; field < 5; field++) {
        for (uint32_t v = 0; v < 8; v++) {
            gw_stream s = {1, 2, 3, 4, 5, 0}, t = s;
            uint64_t *wide[] = {&t.seed, &t.step, &t.tensor};
            uint32_t *narrow[] = {&t.point, &t.rank};
            if (field < 3) {
                *wide[field] += v + 1;
            } else {
                *narrow[field - 3] += v + 1;
            }
            double *a = stream_of(s, N), *b = stream_of(t, N);
            const double z = worst_correlation(a, b, 0);
            CHECK(z < limit, "streams whose %s differs by %u: correlation of %.1f sigma",
                  fields[field], v + 1, z);
            free(a);
            free(b);
        }
    }
}

static void neighbouring_elements_are_uncorrelated(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        double *a = stream_of((gw_stream){seed, 0, 0, 0, 0, 0}, N);
        const double z = worst_correlation(a, a, 1);
        CHECK(z < limit, "seed %llu: correlation of neighbours of %.1f sigma",
              (unsigned long long)seed, z);
        free(a);
    }
}

/* Negative control: a key that forgets the rank, and a generator with serial structure, are seen. */
static void the_correlation_test_can_fail(void **state)
{
    (void)state;
    double *a = stream_of((gw_stream){1, 0, 0, 0, 0, 0}, N), *b = malloc(N * sizeof *b);
    assert_non_null(b);
    assert_true(worst_correlation(a, a, 0) > limit); /* the same key on two ranks */
    for (size_t i = 0; i < N; i++) {                 /* a bare counter times a constant */
        b[i] = (uint32_t)(i * GW_RANDOM_STEP) * 0x1p-32 - 0.5;
    }
    assert_true(worst_correlation(b, b, 1) > limit);
    free(a);
    free(b);
}

/* χ² of 2^bits equally likely cells, as standard errors above its mean. */
static double chi_square(const uint32_t *cells, int bits, double n)
{
    const double expected = n / (1 << bits);
    double sum = 0;
    for (int i = 0; i < 1 << bits; i++) {
        sum += (cells[i] - expected) * (cells[i] - expected) / expected;
    }
    const double freedom = (1 << bits) - 1;
    return (sum - freedom) / sqrt(2 * freedom);
}

static void uniform_alone_and_in_pairs(void **state)
{
    (void)state;
    enum { BITS = 10, M = 1 << 20 };
    static uint32_t top[1 << BITS], low[1 << BITS], pair[3][1 << BITS];
    static const size_t distance[3] = {1, 16, 512};
    const gw_stream s = {2026, 11, 15, 0, 3, 0};
    const uint64_t key = gw_random_key(&s);
    uint32_t ones[23] = {0};
    for (uint64_t i = 0; i < M; i++) {
        const gw_random_pair k = gw_random_pair_at(key, i);
        const uint32_t r = gw_random_r23(k, i);
        top[r >> 13]++;
        low[r & 1023]++;
        for (int d = 0; d < 3; d++) {
            pair[d][r >> 18 << 5 | gw_random_r23(k, i + distance[d]) >> 18]++;
        }
        for (int b = 0; b < 23; b++) {
            ones[b] += r >> b & 1;
        }
    }
    /* χ² is skewed: 8 standard errors above the mean of 1023 degrees is below 1e-11; five tests */
    assert_true(fabs(chi_square(top, BITS, M)) < 8);
    assert_true(fabs(chi_square(low, BITS, M)) < 8);
    for (int d = 0; d < 3; d++) {
        CHECK(fabs(chi_square(pair[d], BITS, M)) < 8, "pairs %zu apart are not uniform",
              distance[d]);
    }
    for (int b = 0; b < 23; b++) { /* 23 tests at 6 sigma: 5e-8 */
        CHECK(fabs(ones[b] - M / 2.0) < 6 * sqrt(M / 4.0), "bit %d is set %u times", b, ones[b]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers_of_the_page),
        cmocka_unit_test(neighbouring_streams_are_uncorrelated),
        cmocka_unit_test(neighbouring_elements_are_uncorrelated),
        cmocka_unit_test(the_correlation_test_can_fail),
        cmocka_unit_test(uniform_alone_and_in_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
