/* AdaComp's inner loops. */
#ifndef GW_ADACOMP_H
#define GW_ADACOMP_H

#include "codec/adacomp_core.h"
#include "codec/codec_impl.h"

typedef struct gw_adacomp_kernels {
    /* The largest |bits| of G = g + r (r may be NULL: G = g) of n numbers. */
    uint32_t (*top)(const float *g, const float *r, size_t n);
    /* Writes G to `after` (may be NULL, may be g), and for every number that is sent sets bit
     * (at + i) of `sent`, whose bits from `at` on are zero before. */
    void (*mark)(const float *g, const float *r, size_t n, float d, uint32_t top, float *after,
                 uint64_t *sent, uint64_t at);
} gw_adacomp_kernels;

extern const gw_adacomp_kernels gw_adacomp_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_adacomp_kernels gw_adacomp_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_adacomp_kernels gw_adacomp_avx512;
#endif

/* Form 0 of the payload, without its header, and the scale taken off r′; returns its bytes. For the
 * codec itself, and for tests, which ask for this form where the bitmap would be shorter. */
size_t gw_adacomp_entries(const gw_params *p, gw_source *source, const uint64_t *sent, float scale,
                          uint8_t *begin);

/* Sets bits [at, at + n) to the low n ≤ 32 bits of `bits`. */
static inline void gw_adacomp_put(uint64_t *sent, uint64_t at, uint64_t bits)
{
    const uint32_t shift = (uint32_t)(at % 64);
    sent[at / 64] |= bits << shift;
    if (shift > 32) { /* one word more is always there */
        sent[at / 64 + 1] |= bits >> (64 - shift);
    }
}

#endif
