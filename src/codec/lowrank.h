/* Low rank's inner loop: the product of two thin factors, into or off a part of the matrix. */
#ifndef GW_LOWRANK_H
#define GW_LOWRANK_H

#include "base/little_endian.h"
#include "codec/codec_impl.h"
#include "codec/lowrank_core.h"

typedef enum gw_lowrank_how { GW_LOWRANK_SET, GW_LOWRANK_ADD, GW_LOWRANK_TAKE } gw_lowrank_how;

typedef struct gw_lowrank_kernels {
    /* out[j] = , += or −= Σ_k left[k] · right[k · stride + j] for j < n, k ascending; the factors are
     * fp32 of any alignment */
    void (*row)(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank, size_t n,
                gw_lowrank_how how, float *out);
} gw_lowrank_kernels;

/* Element i of a factor. */
static inline float gw_lowrank_number(const uint8_t *factor, size_t i)
{
    return gw_float(gw_get_u32(factor + 4 * i));
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
