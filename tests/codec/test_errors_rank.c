/* The table of ranks against a singular value decomposition of the test's own. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

#include <math.h>

typedef struct dense {
    size_t rows, cols;
    double *at;
} dense;

static dense dense_new(size_t rows, size_t cols)
{
    const dense d = {rows, cols, calloc(rows * cols + 1, sizeof(double))};
    assert_non_null(d.at);
    return d;
}

static int larger_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* One-sided Jacobi: turns pairs of rows until all are orthogonal. squared[i] is then σ_i², largest first. */
static void singular_values(const float *x, size_t rows, size_t cols, double *squared)
{
    const size_t n = rows < cols ? rows : cols, m = rows < cols ? cols : rows;
    const dense a = dense_new(n, m);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < m; j++) {
            a.at[i * m + j] = (double)(rows < cols ? x[i * m + j] : x[j * n + i]);
        }
    }
    int turned = 1;
    for (int sweep = 0; turned && sweep < 40; sweep++) {
        turned = 0;
        for (size_t p = 0; p < n; p++) {
            for (size_t q = p + 1; q < n; q++) {
                double pp = 0, qq = 0, pq = 0;
                double *u = a.at + p * m, *v = a.at + q * m;
                for (size_t j = 0; j < m; j++) {
                    pp += u[j] * u[j];
                    qq += v[j] * v[j];
                    pq += u[j] * v[j];
                }
                if (fabs(pq) <= 1e-14 * sqrt(pp * qq)) {
                    continue;
                }
                turned = 1;
                const double z = (qq - pp) / (2 * pq);
                const double t = (z > 0 ? 1 : -1) / (fabs(z) + sqrt(1 + z * z));
                const double c = 1 / sqrt(1 + t * t), s = c * t;
                for (size_t j = 0; j < m; j++) {
                    const double old = u[j];
                    u[j] = c * old - s * v[j];
                    v[j] = s * old + c * v[j];
                }
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        squared[i] = 0;
        for (size_t j = 0; j < m; j++) {
            squared[i] += a.at[i * m + j] * a.at[i * m + j];
        }
    }
    qsort(squared, n, sizeof *squared, larger_first);
    free(a.at);
}

/* `n` orthonormal rows of length m. */
static dense orthonormal(gen *g, size_t n, size_t m)
{
    const dense d = dense_new(n, m);
    for (size_t i = 0; i < n * m; i++) {
        d.at[i] = gen_normal(g);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k <= 2 * i; k++) { /* all before it, twice, then its length */
            double *v = d.at + i * m, *u = d.at + (k == 2 * i ? i : k / 2) * m;
            double dot = 0;
            for (size_t j = 0; j < m; j++) {
                dot += u[j] * v[j];
            }
            for (size_t j = 0; j < m; j++) {
                v[j] = k == 2 * i ? v[j] / sqrt(dot) : v[j] - dot * u[j];
            }
        }
    }
    return d;
}

/* Singular values size · (i + 1)^−power, for the first `rank`. */
static void with_spectrum(gen *g, float *x, size_t rows, size_t cols, size_t rank, double power,
                          double size)
{
    const dense u = orthonormal(g, rank, rows), v = orthonormal(g, rank, cols);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double sum = 0;
            for (size_t k = 0; k < rank; k++) {
                sum +=
                    size * pow((double)(k + 1), -power) * u.at[k * rows + i] * v.at[k * cols + j];
            }
            x[i * cols + j] = (float)sum;
        }
    }
    free(u.at);
    free(v.at);
}

static gw_workspace workspace_for(size_t rows, size_t cols, size_t max_rank)
{
    gw_workspace w = {NULL, 0};
    const gw_status status = gw_errors_rank_workspace(rows, cols, max_rank, &w.size);
    if (status == GW_ERR_UNSUPPORTED) {
        printf("skip: a build without BLAS\n");
        exit(77);
    }
    assert_int_equal(status, GW_OK);
    w.data = malloc(w.size);
    assert_non_null(w.data);
    return w;
}

/* The table, which begins with the whole norm and never rises. */
static void table_of(const gw_tensor *in, size_t rows, size_t cols, size_t max_rank, uint64_t seed,
                     double *table)
{
    gw_why why = {""};
    const gw_exec exec = {.workspace = workspace_for(rows, cols, max_rank)};
    const gw_status status =
        gw_errors_rank(&exec, in, NULL, rows, cols, max_rank, seed, table, &why);
    CHECK(status == GW_OK, "%zu x %zu: %s", rows, cols, why.text);
    free(exec.workspace.data);
    double norm = 0;
    for (size_t i = 0; in->dtype == GW_F32 && i < in->count; i++) {
        const double v = (double)((const float *)in->data)[i];
        norm += v * v;
    }
    CHECK(in->dtype != GW_F32 || fabs(table[0] - norm) <= 1e-12 * norm, "rank 0: %g of %g",
          table[0], norm);
    for (size_t r = 0; r < max_rank; r++) {
        CHECK(table[r + 1] >= 0 && table[r + 1] <= table[r], "rank %zu: %g after %g", r + 1,
              table[r + 1], table[r]);
    }
}

/* Check 9: within 1 % of the exact tail, and never below it, tall, wide and square. */
static void within_one_percent_of_the_tail(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{96, 250, 8},  {250, 96, 8}, {200, 200, 16}, {80, 81, 1},
                                       {300, 64, 40}, {1, 500, 4},  {500, 2, 4}};
    static const double powers[] = {0.25, 0.5, 1, 1.5, 2};
    gen g = {41};
    double worst = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const size_t rows = shapes[s][0], cols = shapes[s][1], most = shapes[s][2];
        const size_t narrow = rows < cols ? rows : cols;
        float *x = malloc(rows * cols * sizeof *x);
        double *exact = malloc(narrow * sizeof *exact), *table = malloc((most + 1) * sizeof *table);
        assert_true(x != NULL && exact != NULL && table != NULL);
        for (size_t p = 0; p < sizeof powers / sizeof powers[0]; p++) {
            with_spectrum(&g, x, rows, cols, narrow, powers[p], p % 2 == 0 ? 1e-3 : 1e15);
            singular_values(x, rows, cols, exact);
            const gw_tensor in = {x, rows * cols, GW_F32};
            table_of(&in, rows, cols, most, p, table);
            double norm = 0;
            for (size_t i = 0; i < narrow; i++) {
                norm += exact[i];
            }
            for (size_t r = 0; r <= most; r++) {
                double tail = 0;
                for (size_t i = narrow; i > r; i--) {
                    tail += exact[i - 1];
                }
                CHECK(table[r] >= tail - 1e-12 * norm && table[r] <= 1.01 * tail + 1e-12 * norm,
                      "%zu x %zu, power %g, rank %zu: %.9g, exactly %.9g", rows, cols, powers[p], r,
                      table[r], tail);
                worst = tail > 0 ? fmax(worst, table[r] / tail - 1) : worst;
            }
        }
        free(x);
        free(exact);
        free(table);
    }
    print_message("worst excess over the exact tail: %.3g\n", worst);
}

/* The last rank that matters is seen; behind it there is nothing but rounding. */
static void rank_deficient(void **state)
{
    (void)state;
    enum { ROWS = 220, COLS = 200, RANK = 5, MOST = 12 };
    gen g = {42};
    static float x[ROWS * COLS];
    double table[MOST + 1];
    for (int wide = 0; wide < 2; wide++) {
        const size_t rows = wide ? COLS : ROWS, cols = wide ? ROWS : COLS;
        memset(x, 0, sizeof x);
        for (int k = 0; k < RANK; k++) { /* small whole numbers: exact in fp32 */
            int u[ROWS], v[ROWS];
            for (int i = 0; i < ROWS; i++) {
                u[i] = (int)gen_below(&g, 15) - 7;
                v[i] = (int)gen_below(&g, 15) - 7;
            }
            for (size_t i = 0; i < rows * cols; i++) {
                const int product = u[i / cols] * v[i % cols];
                x[i] += (float)product;
            }
        }
        const gw_tensor in = {x, rows * cols, GW_F32};
        table_of(&in, rows, cols, MOST, 3, table);
        assert_true(table[RANK - 1] > 1e-3 * table[0]);
        CHECK(table[RANK] <= 1e-13 * table[0], "rank %d leaves %g of %g", RANK, table[RANK],
              table[0]);
        memset(x, 0, sizeof x);
        table_of(&in, rows, cols, MOST, 3, table);
        assert_true(table[0] == 0 && table[MOST] == 0);
        for (size_t i = 0; i < 9;
             i++) { /* in a corner, where no more than three vectors can be orthogonal */
            x[i / 3 * cols + i % 3] = (float)gen_normal(&g);
        }
        table_of(&in, rows, cols, MOST, 3, table);
        assert_true(table[2] > 1e-6 * table[0] && table[3] <= 1e-13 * table[0]);
        memset(x, 0, sizeof x);
        x[77] = -3e38f; /* one number: rank 1 */
        table_of(&in, rows, cols, MOST, 3, table);
        assert_true(table[0] > 8e76 && table[1] <= 1e-13 * table[0]);
        x[77] = 0x1p-149f;
        table_of(&in, rows, cols, MOST, 3, table);
        assert_true(table[0] > 0 && table[1] <= 1e-13 * table[0]);
    }
}

/* More ranks than there are rows; halves; a residual; the seed moves nothing that matters. */
static void corners(void **state)
{
    (void)state;
    enum { ROWS = 40, COLS = 90, N = ROWS * COLS, MOST = 60 };
    gen g = {43};
    uint16_t half[N];
    float x[N], residual[N], sum[N];
    double table[MOST + 1], other[MOST + 1], exact[ROWS];
    gen_fill(&g, GEN_LARGE, GW_F16, half, N);
    gen_fill(&g, GEN_LARGE, GW_F32, residual, N);
    for (int i = 0; i < N; i++) {
        x[i] = gw_f32_from_f16(half[i]);
        sum[i] = x[i] + residual[i];
    }
    const gw_tensor in = {half, N, GW_F16}, added = {sum, N, GW_F32};
    singular_values(x, ROWS, COLS, exact);
    table_of(&in, ROWS, COLS, MOST, 0, table);
    for (size_t r = 0; r <= MOST; r++) { /* all ranks asked for: no randomness, exact */
        double tail = 0;
        for (size_t i = ROWS; i > r; i--) {
            tail += exact[i - 1];
        }
        CHECK(fabs(table[r] - tail) <= 1e-11 * table[0], "rank %zu: %g not %g", r, table[r], tail);
    }
    assert_true(table[ROWS] == 0 && table[MOST] == 0);
    const gw_exec exec = {.workspace = workspace_for(ROWS, COLS, 8)};
    assert_int_equal(gw_errors_rank(&exec, &in, residual, ROWS, COLS, 8, 7, table, NULL), GW_OK);
    table_of(&added, ROWS, COLS, 8, 7, other);
    assert_memory_equal(table, other, 9 * sizeof *table);
    table_of(&added, ROWS, COLS, 8, 8, other);
    for (int r = 0; r <= 8; r++) {
        assert_true(fabs(table[r] - other[r]) < 0.02 * table[r]);
    }
    const gw_tensor none = {NULL, 0, GW_F32};
    table_of(&none, 0, COLS, 3, 0, other);
    assert_true(other[0] == 0 && other[3] == 0);
    free(exec.workspace.data);
}

static void refusals(void **state)
{
    (void)state;
    float x[600];
    double table[5] = {-7};
    gen g = {44};
    gw_why why;
    gen_fill(&g, GEN_NORMAL, GW_F32, x, 600);
    const gw_tensor in = {x, 600, GW_F32};
    gw_exec exec = {.workspace = workspace_for(20, 30, 4)};
    assert_int_equal(gw_errors_rank(&exec, &in, NULL, 20, 31, 4, 0, table, &why), GW_ERR_ARG);
    assert_int_equal(gw_errors_rank(&exec, &in, NULL, 20, 30, 4, 0, NULL, &why), GW_ERR_ARG);
    x[431] = NAN;
    assert_int_equal(gw_errors_rank(&exec, &in, NULL, 20, 30, 4, 0, table, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "431"));
    exec.workspace.size -= 200;
    assert_int_equal(gw_errors_rank(&exec, &in, NULL, 20, 30, 4, 0, table, &why), GW_ERR_WORKSPACE);
    assert_true(table[0] == -7);
    assert_int_equal(gw_errors_rank_workspace((size_t)1 << 40, 1, 4, &exec.workspace.size),
                     GW_ERR_RANGE);
    free(exec.workspace.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_one_percent_of_the_tail),
        cmocka_unit_test(rank_deficient),
        cmocka_unit_test(corners),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
