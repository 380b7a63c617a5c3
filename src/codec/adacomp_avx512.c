/* AdaComp, sixteen numbers at a time; the end of a bin by a mask. */
#include "codec/adacomp.h"

#include <immintrin.h>

/* The mask of the first n ≤ 16 lanes. */
static inline __mmask16 lanes(size_t n)
{
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xFFFFu);
}

static inline __m512 sum16(__mmask16 some, const float *g, const float *r, size_t i)
{
    const __m512 v = _mm512_maskz_loadu_ps(some, g + i);
    return r != NULL ? _mm512_add_ps(v, _mm512_maskz_loadu_ps(some, r + i)) : v;
}

static inline __m512i abs16(__m512 x)
{
    const __m512i mask = _mm512_set1_epi32((int)GW_ABS_MASK);
    return _mm512_and_si512(_mm512_castps_si512(x), mask);
}

static uint32_t top(const float *g, const float *r, size_t n)
{
    __m512i largest = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 16) {
        largest = _mm512_max_epu32(largest, abs16(sum16(lanes(n - i), g, r, i)));
    }
    return _mm512_reduce_max_epu32(largest);
}

static void mark(const float *g, const float *r, size_t n, float d, uint32_t limit, float *after,
                 uint64_t *sent, uint64_t at)
{
    const __m512i least = _mm512_set1_epi32((int)limit);
    const __m512 factor = _mm512_set1_ps(d);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 some = lanes(n - i);
        const __m512 fresh = _mm512_maskz_loadu_ps(some, g + i), G = sum16(some, g, r, i);
        const __m512 H = _mm512_add_ps(G, _mm512_mul_ps(fresh, factor));
        const __m512i size = abs16(G);
        const __mmask16 sends = _mm512_mask_test_epi32_mask(
            _mm512_mask_cmpge_epu32_mask(some, abs16(H), least), size, size);
        if (after != NULL) {
            _mm512_mask_storeu_ps(after + i, some, G);
        }
        if (sends != 0) {
            gw_adacomp_put(sent, at + i, sends);
        }
    }
}

const gw_adacomp_kernels gw_adacomp_avx512 = {top, mark};
