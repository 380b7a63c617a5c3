/* gw_random_r23 for sixteen consecutive elements. */
#ifndef GW_BASE_RANDOM_AVX512_H
#define GW_BASE_RANDOM_AVX512_H

#include "base/random.h"

#include <immintrin.h>

typedef struct gw_random_avx512 {
    __m512i x, k1; /* x = k0 + index · STEP of the next sixteen elements */
} gw_random_avx512;

static inline gw_random_avx512 gw_random_avx512_at(gw_random_pair k, uint32_t index)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i i = _mm512_add_epi32(_mm512_set1_epi32((int)index), lane);
    const __m512i step = _mm512_set1_epi32((int)GW_RANDOM_STEP);
    return (gw_random_avx512){
        _mm512_add_epi32(_mm512_set1_epi32((int)k.k0), _mm512_mullo_epi32(i, step)),
        _mm512_set1_epi32((int)k.k1)};
}

static inline __m512i gw_random_avx512_next(gw_random_avx512 *s)
{
    __m512i x = s->x;
    s->x = _mm512_add_epi32(x, _mm512_set1_epi32((int)(16u * GW_RANDOM_STEP)));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_RANDOM_MUL1));
    x = _mm512_ternarylogic_epi32(x, _mm512_srli_epi32(x, 15), s->k1, 0x96); /* a ^ b ^ c */
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_RANDOM_MUL2));
    return _mm512_srli_epi32(x, 9);
}

#endif
