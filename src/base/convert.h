/* fp32 <-> fp16, bf16 over arrays, in the shapes the codecs need. Every variant gives the bits of
 * numeric.h. Pointers need no alignment beyond their element's. */
#ifndef GW_BASE_CONVERT_H
#define GW_BASE_CONVERT_H

#include "base/numeric.h"

#include <gradwire/base.h>

typedef struct gw_convert {
    /* dst = src; returns the largest |bits| seen, so that non-finite or overflowing inputs show. */
    uint32_t (*narrow)(gw_dtype to, const float *src, void *dst, size_t n);
    void (*widen)(gw_dtype from, const void *src, float *dst, size_t n);
    /* dst += src in fp32 */
    void (*add)(gw_dtype from, const void *src, float *dst, size_t n);
    /* dst = a + b; dst may be a or b */
    void (*sum)(float *dst, const float *a, const float *b, size_t n);
    /* dst = a − b. With `past`, around the cache where the instruction set can: for results too large to
     * be found there again; the caller ends with gw_stores_done. Meanwhile asks for 4n bytes at each of next[0] and next[1], so that memory is
     * not idle while the block is worked on. */
    void (*difference)(float *dst, const float *a, const float *b, size_t n, int past,
                       const void *const next[2]);
    uint32_t (*largest)(const float *x, size_t n); /* the largest |bits| */
    /* dst = src / by, each rounded once, or for by = 1 their very bits; 1 if one of the results is not finite. dst
     * may be src. `past` as in difference, without anything asked for. */
    int (*divide)(float *dst, const float *src, size_t n, uint32_t by, int past);
} gw_convert;

/* NULL where the variant is not built. */
const gw_convert *gw_convert_for(gw_isa isa);

extern const gw_convert gw_convert_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_convert gw_convert_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_convert gw_convert_avx512;
#endif
#ifdef GW_HAVE_NEON
extern const gw_convert gw_convert_neon;
#endif

#endif
