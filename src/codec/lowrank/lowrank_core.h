/* Low rank: how a tensor is a matrix, and the arithmetic whose order is fixed, docs/numerics.md section 10. */
#ifndef GW_LOWRANK_CORE_H
#define GW_LOWRANK_CORE_H

#include "base/numeric.h"

#include <math.h>

/* `rows` rows of `cols` numbers, the last of `last`; rank 0: sent as it is. */
typedef struct gw_matrix {
    uint64_t count, rows, cols, last;
    uint32_t rank;
} gw_matrix;

GW_HD static inline gw_matrix gw_matrix_of(uint32_t rank, uint64_t cols, uint64_t count)
{
    gw_matrix m = {count, 0, cols, 0, 0};
    if (cols == 0) {
        m.cols = (uint64_t)sqrt((double)count);
        m.cols -= m.cols != 0; /* the root may be rounded up */
        while (m.cols * m.cols < count) {
            m.cols++;
        }
    }
    if (count != 0) {
        m.rows = (count - 1) / m.cols + 1;
        m.last = count - (m.rows - 1) * m.cols;
        m.rank = rank * (m.rows + m.cols) < count ? rank : 0;
    }
    return m;
}

enum { GW_LOWRANK_LANES = 16 };

/* Sum of products in the order of the norm. */
static inline double gw_lowrank_dot(const double *a, const double *b, uint64_t n)
{
    double lane[GW_LOWRANK_LANES] = {0};
    uint64_t i = 0;
    for (; i + GW_LOWRANK_LANES <= n; i += GW_LOWRANK_LANES) {
        for (int l = 0; l < GW_LOWRANK_LANES; l++) {
            lane[l] += a[i + (uint64_t)l] * b[i + (uint64_t)l];
        }
    }
    for (int l = 0; i < n; i++, l++) {
        lane[l] += a[i] * b[i];
    }
    for (int half = GW_LOWRANK_LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

/* Orthonormal columns out of `rank` columns of `rows` numbers, in place. Gram–Schmidt, each column twice:
 * once leaves too much of the earlier ones in a nearly dependent column. What they span already is zero. */
static inline void gw_lowrank_orthogonal(double *columns, uint64_t rows, uint32_t rank)
{
    for (uint32_t k = 0; k < rank; k++) {
        double *v = columns + k * rows;
        const double before = sqrt(gw_lowrank_dot(v, v, rows));
        for (uint32_t pass = 0; pass < 2 * k; pass++) {
            const double *u = columns + pass % k * rows;
            const double share = gw_lowrank_dot(u, v, rows); /* 0 for a zero column: v stays */
            for (uint64_t i = 0; i < rows; i++) {
                v[i] -= share * u[i];
            }
        }
        const double after = sqrt(gw_lowrank_dot(v, v, rows));
        const int spanned = !(after > 0x1p-20 * before);
        const double unit = spanned ? 0 : 1 / after;
        for (uint64_t i = 0; i < rows; i++) {
            v[i] = spanned ? 0 : v[i] * unit; /* never −0 */
        }
    }
}

#endif
