/* Many products by one matrix, whose left sides have few rows: a small batch at every moment of a recurrent layer. BLAS puts all of b into an
 * order of its own each time, which for eight rows takes as long as the product; here once. */
#ifndef TRAINER_FEW_ROWS_GEMM_H
#define TRAINER_FEW_ROWS_GEMM_H

#include "trainer/gemm.h"

size_t few_rows_room(size_t n, size_t k); /* floats that b takes, packed */
/* b: k × n, or n × k and TURNED. */
void few_rows_pack(turned b_turned, size_t n, size_t k, const float *b, float *packed);
/* c (m × n) += a (m × k) · b (k × n) */
void few_rows(size_t m, size_t n, size_t k, const float *a, const float *packed, float *c);

#endif
