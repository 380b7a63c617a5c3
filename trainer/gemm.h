/* Products of matrices that lie row by row, by CBLAS. */
#ifndef TRAINER_GEMM_H
#define TRAINER_GEMM_H

#include <cblas.h>
#include <stddef.h>

typedef enum turned { AS_IS, TURNED } turned; /* TURNED: its transpose takes part */

/* c (m × n) = a (m × k) · b (k × n) + keep · c */
static inline void gemm(turned a_turned, turned b_turned, size_t m, size_t n, size_t k,
                        const float *a, const float *b, float keep, float *c)
{
    cblas_sgemm(CblasRowMajor, a_turned ? CblasTrans : CblasNoTrans,
                b_turned ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, 1, a,
                (int)(a_turned ? m : k), b, (int)(b_turned ? k : n), keep, c, (int)n);
}

/* sums (n) = of the columns of a (m × n) */
static inline void column_sums(size_t m, size_t n, const float *a, float *sums)
{
    for (size_t j = 0; j < n; j++) {
        sums[j] = 0;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            sums[j] += a[i * n + j];
        }
    }
}

#endif
