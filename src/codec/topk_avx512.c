/* topk's loop, sixteen at a time. */
#include "codec/topk.h"

#include <immintrin.h>

static size_t at_least(const float *x, size_t n, uint32_t first, uint32_t least, uint32_t *index,
                       float *value)
{
    const __m512i mask = _mm512_set1_epi32((int)GW_ABS_MASK), limit = _mm512_set1_epi32((int)least);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t found = 0, i = 0;
    for (; i + 64 <= n; i += 64) { /* most groups have none: one branch for four registers */
        __mmask16 large[4];
        for (int j = 0; j < 4; j++) {
            const __m512i a = _mm512_and_si512(_mm512_loadu_si512(x + i + 16 * j), mask);
            large[j] = _mm512_cmpge_epu32_mask(a, limit);
        }
        if ((large[0] | large[1] | large[2] | large[3]) == 0) {
            continue;
        }
        for (uint32_t j = 0; j < 4; j++) {
            const __m512i at =
                _mm512_add_epi32(lane, _mm512_set1_epi32((int)(first + (uint32_t)i + 16 * j)));
            const __m512 v = _mm512_loadu_ps(x + i + 16 * j);
            _mm512_storeu_si512(index + found, _mm512_maskz_compress_epi32(large[j], at));
            _mm512_storeu_ps(value + found, _mm512_maskz_compress_ps(large[j], v));
            found += (size_t)__builtin_popcount(large[j]);
        }
    }
    return found + gw_topk_scalar.at_least(x + i, n - i, first + (uint32_t)i, least, index + found,
                                           value + found);
}

const gw_topk_kernels gw_topk_avx512 = {at_least};
