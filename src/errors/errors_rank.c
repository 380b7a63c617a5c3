/* The errors of every rank from one factorisation: the eigenvalues of G Gᵀ are the squared singular values, and
 * their tails, summed from the far end so that nothing cancels, the errors. Where few ranks are asked for, G is
 * first seen from some vectors of its short side only: random ones, turned towards the leading singular vectors by
 * multiplications with G Gᵀ and made orthonormal each time (Halko, Martinsson, Tropp, "Finding structure with
 * randomness", SIAM Review 2011). All in fp64, G widened some rows at a time. */
#include "errors/errors.h"
#include "errors/errors_eigen.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

#ifdef GW_HAVE_CBLAS
#    include <cblas.h>

/* Vectors: twice the ranks, and some more. With three turns that is within 1 % of the exact tails even where the
 * spectrum is flat. From a quarter of the short side on, all of G costs no more. */
enum { TURNS = 3, EXTRA = 16, QUARTER = 4, BAND = 128 };

/* What is left of a vector once it has been made orthogonal to the others: less than this of it was rounding. */
#    define NOTHING 1e-12

typedef struct matrix {
    gw_source source;
    size_t rows, cols, narrow, wide; /* the shorter and the longer of the two */
    size_t top;                      /* ranks asked for that the matrix can have */
    int whole;                       /* no random vectors */
    size_t k;                        /* vectors; narrow for the whole */
    double *band;                    /* BAND rows of G, or fewer columns */
    double *near, *far;              /* k vectors of narrow, of wide elements; NULL for the whole */
    double *gram, *value, *work;     /* k², k, 3k */
    double norm;                     /* ‖G‖² */
} matrix;

static gw_status shape(matrix *g, size_t rows, size_t cols, size_t max_rank, gw_why *why)
{
    if (rows > INT32_MAX || cols > INT32_MAX) {
        return GW_FAIL(why, GW_ERR_RANGE, "errors: %zu x %zu is more than BLAS can count", rows,
                       cols);
    }
    g->rows = rows;
    g->cols = cols;
    g->narrow = rows < cols ? rows : cols;
    g->wide = rows < cols ? cols : rows;
    g->top = max_rank < g->narrow ? max_rank : g->narrow;
    g->whole = 2 * g->top + EXTRA >= g->narrow / QUARTER;
    g->k = g->whole ? g->narrow : 2 * g->top + EXTRA;
    return GW_OK;
}

static void cut(gw_arena *arena, matrix *g, gw_source *source)
{
    gw_errors_cut(arena, source);
    g->band = gw_arena_take(arena, g->cols, BAND * sizeof(double));
    if (!g->whole) {
        g->near = gw_arena_take(arena, g->narrow, g->k * sizeof(double));
        g->far = gw_arena_take(arena, g->wide, g->k * sizeof(double));
    }
    g->gram = gw_arena_take(arena, g->k, g->k * sizeof(double));
    g->value = gw_arena_take(arena, g->k, sizeof(double));
    g->work = gw_arena_take(arena, g->k, 3 * sizeof(double));
}

/* `n` elements of G from `at` on, widened. */
static void widen(matrix *g, uint64_t at, size_t n, double *out)
{
    size_t m;
    for (size_t done = 0; done < n; done += m) {
        const size_t most = n - done < GW_ERRORS_BLOCK ? n - done : GW_ERRORS_BLOCK;
        const float *x = gw_errors_block(&g->source, at + done, most, &m);
        for (size_t i = 0; i < m; i++) {
            out[done + i] = (double)x[i];
        }
    }
}

/* The band of rows that begins with `row`; returns how many. */
static size_t read_rows(matrix *g, size_t row)
{
    const size_t rows = g->rows - row < BAND ? g->rows - row : BAND;
    widen(g, (uint64_t)row * g->cols, rows * g->cols, g->band);
    return rows;
}

/* The same of columns, row after row. */
static size_t read_cols(matrix *g, size_t col)
{
    const size_t cols = g->cols - col < BAND ? g->cols - col : BAND;
    for (size_t row = 0; row < g->rows; row++) {
        widen(g, (uint64_t)row * g->cols + col, cols, g->band + row * cols);
    }
    return cols;
}

/* ‖G‖², and no NaN or infinity in it. */
static gw_status measure(matrix *g, gw_why *why)
{
    size_t n;
    g->norm = 0;
    for (uint64_t at = 0; at < g->source.count; at += n) {
        const float *x = gw_errors_block(&g->source, at, GW_ERRORS_BLOCK, &n);
        double sum = 0;
        if (g->source.convert->largest(x, n) >= GW_INF_BITS) {
            return gw_errors_refuse(x, n, at, why);
        }
        for (size_t i = 0; i < n; i++) {
            sum += (double)x[i] * (double)x[i];
        }
        g->norm += sum;
    }
    return GW_OK;
}

/* k vectors over the rows -> k vectors over the columns: y = x G. */
static void to_cols(matrix *g, const double *x, double *y)
{
    const int k = (int)g->k, m = (int)g->rows, n = (int)g->cols;
    memset(y, 0, g->k * g->cols * sizeof *y);
    for (size_t row = 0; row < g->rows; row += BAND) {
        const int band = (int)read_rows(g, row);
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, k, n, band, 1, x + row, m, g->band,
                    n, 1, y, n);
    }
}

/* And back: x = y Gᵀ. */
static void to_rows(matrix *g, const double *y, double *x)
{
    const int k = (int)g->k, m = (int)g->rows, n = (int)g->cols;
    for (size_t row = 0; row < g->rows; row += BAND) {
        const int band = (int)read_rows(g, row);
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, k, band, n, 1, y, n, g->band, n, 0,
                    x + row, m);
    }
}

static void to_far(matrix *g)
{
    (g->rows <= g->cols ? to_cols : to_rows)(g, g->near, g->far);
}

static void to_near(matrix *g)
{
    (g->rows <= g->cols ? to_rows : to_cols)(g, g->far, g->near);
}

/* Gram and Schmidt, twice. A vector that holds nothing new becomes zero. */
static void make_orthonormal(matrix *g)
{
    const int length = (int)g->narrow;
    for (size_t j = 0; j < g->k; j++) {
        double *v = g->near + j * g->narrow;
        const double before = cblas_dnrm2(length, v, 1);
        for (int twice = 0; twice < 2 && j != 0; twice++) {
            cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)j, length, 1, g->near, length, v, 1, 0,
                        g->work, 1);
            cblas_dgemv(CblasRowMajor, CblasTrans, (int)j, length, -1, g->near, length, g->work, 1,
                        1, v, 1);
        }
        const double after = cblas_dnrm2(length, v, 1);
        const double factor = after > NOTHING * before ? 1 / after : 0;
        for (size_t i = 0; i < g->narrow; i++) {
            v[i] *= factor;
        }
    }
}

/* Vectors that span what matters of the short side. */
static void find_range(matrix *g, uint64_t seed)
{
    const gw_stream stream = {.seed = seed};
    const uint64_t key = gw_random_key(&stream);
    for (uint64_t i = 0; i < (uint64_t)g->k * g->narrow; i++) {
        g->near[i] = (double)gw_random_r23(gw_random_pair_at(key, i), i) * 0x1p-22 - 1;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        to_far(g);
        to_near(g);
        make_orthonormal(g);
    }
}

/* gram = the products of G's rows with each other, or of its columns, seen from the range alone. */
static void gram_of_range(matrix *g)
{
    const int k = (int)g->k, wide = (int)g->wide;
    to_far(g);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, k, k, wide, 1, g->far, wide, g->far, wide,
                0, g->gram, k);
}

static void gram_of_whole(matrix *g)
{
    const int k = (int)g->k;
    memset(g->gram, 0, g->k * g->k * sizeof *g->gram);
    for (size_t row = 0; g->rows >= g->cols && row < g->rows; row += BAND) {
        const int band = (int)read_rows(g, row);
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, k, band, 1, g->band, k, g->band, k,
                    1, g->gram, k);
    }
    for (size_t col = 0; g->rows < g->cols && col < g->cols; col += BAND) {
        const int band = (int)read_cols(g, col);
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, k, k, band, 1, g->band, band, g->band,
                    band, 1, g->gram, k);
    }
}

static gw_status tails(matrix *g, uint64_t seed, size_t max_rank, double *squared, gw_why *why)
{
    const gw_status status = measure(g, why);
    if (status != GW_OK) {
        return status;
    }
    if (g->whole && g->narrow != 0) {
        gram_of_whole(g);
    } else if (g->narrow != 0) {
        find_range(g, seed);
        gram_of_range(g);
    }
    double seen = 0; /* ‖G‖² within the range: the trace */
    for (size_t i = 0; i < g->k; i++) {
        seen += g->gram[i * g->k + i];
    }
    gw_eigenvalues(g->gram, g->k, g->value, g->work);
    double tail = g->whole ? 0 : fmax(0, g->norm - seen);
    for (size_t r = g->k; r > g->top; r--) {
        tail += g->value[r - 1];
    }
    for (size_t r = max_rank; r > g->top; r--) {
        squared[r] = 0;
    }
    for (size_t r = g->top; r > 0; r--) {
        squared[r] = tail;
        tail += g->value[r - 1];
    }
    squared[0] = fmax(tail, g->norm);
    return GW_OK;
}

gw_status gw_errors_rank_workspace(size_t rows, size_t cols, size_t max_rank, size_t *bytes)
{
    matrix g = {0};
    gw_arena arena = gw_arena_measuring();
    const gw_status status = shape(&g, rows, cols, max_rank, NULL);
    if (status != GW_OK || bytes == NULL) {
        return status != GW_OK ? status : GW_ERR_ARG;
    }
    cut(&arena, &g, NULL);
    if (arena.failed) {
        return GW_ERR_RANGE;
    }
    *bytes = gw_arena_need(&arena);
    return GW_OK;
}

gw_status gw_errors_rank(const gw_exec *exec, const gw_tensor *in, const float *residual,
                         size_t rows, size_t cols, size_t max_rank, uint64_t seed, double *squared,
                         gw_why *why)
{
    matrix g = {0};
    gw_isa isa;
    gw_status status = gw_errors_open(exec, in, residual, &g.source, &isa, why);
    status = status == GW_OK ? shape(&g, rows, cols, max_rank, why) : status;
    if (status != GW_OK) {
        return status;
    }
    if (squared == NULL || max_rank == SIZE_MAX || (uint64_t)rows * cols != in->count) {
        return GW_FAIL(why, GW_ERR_ARG, "errors: %zu x %zu are not the tensor's %zu elements", rows,
                       cols, in->count);
    }
    gw_arena arena = gw_arena_over(exec != NULL ? exec->workspace : (gw_workspace){0});
    cut(&arena, &g, &g.source);
    if (arena.failed) {
        return GW_FAIL(why, GW_ERR_WORKSPACE, "errors: the workspace is too small");
    }
    const uint32_t caller = gw_fp_enter();
    status = tails(&g, seed, max_rank, squared, why);
    gw_fp_leave(caller);
    return status;
}

#else

gw_status gw_errors_rank_workspace(size_t rows, size_t cols, size_t max_rank, size_t *bytes)
{
    (void)rows, (void)cols, (void)max_rank, (void)bytes;
    return GW_ERR_UNSUPPORTED;
}

gw_status gw_errors_rank(const gw_exec *exec, const gw_tensor *in, const float *residual,
                         size_t rows, size_t cols, size_t max_rank, uint64_t seed, double *squared,
                         gw_why *why)
{
    (void)exec, (void)in, (void)residual, (void)rows, (void)cols, (void)max_rank, (void)seed;
    (void)squared;
    return GW_FAIL(why, GW_ERR_UNSUPPORTED, "errors: this build has no BLAS");
}

#endif
