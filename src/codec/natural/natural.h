/* Natural compression's inner loops, over at most one block. */
#ifndef GW_NATURAL_H
#define GW_NATURAL_H

#include "base/random.h"
#include "codec/codec_impl.h"
#include "codec/natural/natural_core.h"

/* The smallest and largest exponent byte of a block. */
typedef struct gw_natural_extent {
    uint8_t low, high;
} gw_natural_extent;

typedef struct gw_natural_kernels {
    /* min((|bits| + r) >> 23, 255) of each number into exponents[], sign bits (cleared where that
     * is 0) into signs[⌈n/8⌉]. Exact for blocks whose extent.high is at most `top`; the caller redoes
     * the others by the core. `index` is x[0]'s, a multiple of the block. */
    gw_natural_extent (*planes)(const float *x, size_t n, gw_random_pair k, uint64_t index,
                                uint8_t *exponents, uint8_t *signs);
    /* exponents -> 8-bit codes in place: subtract base − 1 (not below 0), add the sign to what is not 0. */
    void (*fold)(uint8_t *codes, const uint8_t *signs, size_t n, uint32_t base);
    /* Is there a number with 0 < |bits| < limit? */
    int (*any_below)(const float *x, size_t n, uint32_t limit);
    void (*decode9)(const uint8_t *exponents, const uint8_t *signs, size_t n, gw_apply how,
                    float *out);
    void (*decode8)(const uint8_t *codes, size_t n, uint32_t base, gw_apply how, float *out);
} gw_natural_kernels;

extern const gw_natural_kernels gw_natural_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_natural_kernels gw_natural_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_natural_kernels gw_natural_avx512;
#endif
#ifdef GW_HAVE_NEON
extern const gw_natural_kernels gw_natural_neon;
#endif

#endif
