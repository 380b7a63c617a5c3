/* Low rank's inner loops: the product of two thin factors, into or off a part of the matrix; and the sum of its rows. */
#ifndef GW_LOWRANK_H
#define GW_LOWRANK_H

#include "base/little_endian.h"
#include "codec/codec_impl.h"
#include "codec/lowrank/lowrank_core.h"

typedef enum gw_lowrank_how { GW_LOWRANK_SET, GW_LOWRANK_ADD, GW_LOWRANK_TAKE } gw_lowrank_how;

/* Columns of the factors up to which a walk over the matrix is all that its products cost. */
enum { GW_LOWRANK_THIN = 4 };

/* Rows of n ≤ stride numbers; the factors' rows are `stride` apart, too. */
typedef struct gw_lowrank_rows {
    const float *g, *r;
    float *after;
    size_t n, stride;
    const float *left, *right; /* what is due of r; left NULL: nothing */
    const float *q;
    int past; /* as in gw_fed_block */
} gw_lowrank_rows;

typedef struct gw_lowrank_kernels {
    /* out[j] = , += or −= Σ_k left[k] · right[k · stride + j] for j < n, k ascending; the factors are
     * fp32 of any alignment */
    void (*row)(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank, size_t n,
                gw_lowrank_how how, float *out);
    /* G = g + (r − the same sum) of `rows` rows into r′; p[i · rank + k] = Σ_j G[i,j] · q[k · stride + j]
     * in 16 lanes, j mod 16, then by halves; rank ≤ GW_LOWRANK_THIN */
    void (*project)(const gw_lowrank_rows *x, size_t rows, uint32_t rank, float *p);
    /* to[k · stride + j] += Σ_i left[i · rank + k] · g[i · stride + j] for j < n, i < rows, i ascending;
     * rank ≤ GW_LOWRANK_THIN */
    void (*gather)(const float *left, const float *g, size_t stride, uint32_t rank, size_t rows,
                   size_t n, float *to);
} gw_lowrank_kernels;

/* Element i of a factor. */
static inline float gw_lowrank_number(const uint8_t *factor, size_t i)
{
    return gw_float(gw_get_u32(factor + 4 * i));
}

/* What is left of `x` from row i and column j on. */
static inline gw_lowrank_rows gw_lowrank_rest(const gw_lowrank_rows *x, uint32_t rank, size_t i,
                                              size_t j)
{
    gw_lowrank_rows rest = *x;
    rest.g += i * x->stride + j;
    rest.r += i * x->stride + j;
    rest.after += i * x->stride + j;
    rest.n -= j;
    if (x->left != NULL) {
        rest.left += i * rank;
        rest.right += j;
    }
    rest.q += j;
    return rest;
}

/* Fewer than 16 numbers of one row on top of the lanes of those before them, and the lanes' sums. */
static inline void gw_lowrank_end(const gw_lowrank_rows *x, uint32_t rank,
                                  float lane[][GW_LOWRANK_LANES], float *p)
{
    for (size_t j = 0; j < x->n; j++) {
        float r = x->r[j];
        if (x->left != NULL) {
            float taken = x->left[0] * x->right[j];
            for (uint32_t k = 1; k < rank; k++) {
                taken += x->left[k] * x->right[k * x->stride + j];
            }
            r -= taken;
        }
        x->after[j] = x->g[j] + r;
        for (uint32_t k = 0; k < rank; k++) {
            lane[k][j % GW_LOWRANK_LANES] += x->after[j] * x->q[k * x->stride + j];
        }
    }
    for (uint32_t k = 0; k < rank; k++) {
        for (int half = GW_LOWRANK_LANES / 2; half > 0; half /= 2) {
            for (int l = 0; l < half; l++) {
                lane[k][l] += lane[k][l + half];
            }
        }
        p[k] = lane[k][0];
    }
}

extern const gw_lowrank_kernels gw_lowrank_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_lowrank_kernels gw_lowrank_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_lowrank_kernels gw_lowrank_avx512;
#endif
#ifdef GW_HAVE_NEON
extern const gw_lowrank_kernels gw_lowrank_neon;
#endif

#endif
