/* The sign codec's inner loops, over one bucket. */
#ifndef GW_SIGN_H
#define GW_SIGN_H

#include "codec/codec_impl.h"
#include "codec/sign/sign_core.h"

typedef struct gw_sign_kernels {
    /* The largest |bits|, and the sum of |x| by lanes, element i going to lane i mod 32 in order. With `r`,
     * of x + r. */
    uint32_t (*sums)(const float *x, const float *r, size_t n, float lane[GW_SIGN_LANES]);
    /* gw_sign_bit of element i into bit i mod 8 of out[i / 8]; unused bits zero */
    void (*signs)(const float *x, size_t n, uint8_t *out);
    /* signs of G = g + r, and r′ = G minus scale with G's sign; scale > 0 */
    void (*keep)(const gw_fed_block *f, size_t n, float scale, uint8_t *out);
    void (*decode)(const uint8_t *signs, size_t n, float scale, gw_apply how, float *out);
} gw_sign_kernels;

extern const gw_sign_kernels gw_sign_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_sign_kernels gw_sign_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_sign_kernels gw_sign_avx512;
#endif
#ifdef GW_HAVE_NEON
extern const gw_sign_kernels gw_sign_neon;
#endif

#endif
