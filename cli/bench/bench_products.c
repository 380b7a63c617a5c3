/* What low rank is timed beside: its two products, through CBLAS, and nothing else. */
#include "cli/bench/bench_reference.h"
#include "cli/seconds.h"

#ifdef GW_HAVE_CBLAS
#    include <cblas.h>

double gw_cli_time_products(const float *matrix, size_t rows, size_t cols, size_t rank,
                            float *factors)
{
    const int m = (int)rows, n = (int)cols, r = (int)rank;
    float *right = factors, *left = factors + rank * cols;
    for (size_t i = 0; i < rank * cols; i++) {
        right[i] = (float)(i % 17) - 8;
    }
    const double begin = gw_cli_now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, r, n, 1, matrix, n, right, n, 0, left,
                r);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, r, n, m, 1, left, r, matrix, n, 0, right,
                n);
    return gw_cli_now() - begin;
}
#else
double gw_cli_time_products(const float *matrix, size_t rows, size_t cols, size_t rank,
                            float *factors)
{
    (void)matrix, (void)rows, (void)cols, (void)rank, (void)factors;
    return 0;
}
#endif
