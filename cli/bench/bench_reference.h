/* What `bench codec` times codecs beside. */
#ifndef GW_CLI_BENCH_REFERENCE_H
#define GW_CLI_BENCH_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

typedef enum gw_cli_reference { GW_CLI_COPY, GW_CLI_ADD, GW_CLI_SUM } gw_cli_reference;

/* Seconds of d = s, d += s or d = s + t, on threads, the mean of `inner` times. */
double gw_cli_time_reference(gw_cli_reference what, float *d, const float *s, const float *t,
                             size_t n, unsigned n_threads, size_t inner);

/* The `kept` of n numbers of largest magnitude, in order of index, ties to the smaller: the obvious way,
 * nth_element over a copy of the magnitudes (n of them), then one pass that compacts.
 * 0 < kept ≤ n. */
void gw_cli_select_largest(const float *x, size_t n, size_t kept, uint32_t *magnitude,
                           uint32_t *index, float *value);

/* Seconds of the two products of a matrix with thin factors, through CBLAS and nothing else: rows × cols
 * by cols × rank, and the transposed. 0 in a build without BLAS. `factors`: rank · (rows + cols) numbers. */
double gw_cli_time_products(const float *matrix, size_t rows, size_t cols, size_t rank,
                            float *factors);

#endif
