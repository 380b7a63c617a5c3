/* gw_random_r23 for eight consecutive elements. */
#ifndef GW_BASE_RANDOM_AVX2_H
#define GW_BASE_RANDOM_AVX2_H

#include "base/random.h"

#include <immintrin.h>

typedef struct gw_random_avx2 {
    __m256i x, k1; /* x = k0 + index · STEP of the next eight elements */
} gw_random_avx2;

static inline gw_random_avx2 gw_random_avx2_at(gw_random_pair k, uint32_t index)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i i = _mm256_add_epi32(_mm256_set1_epi32((int)index), lane);
    const __m256i step = _mm256_set1_epi32((int)GW_RANDOM_STEP);
    return (gw_random_avx2){
        _mm256_add_epi32(_mm256_set1_epi32((int)k.k0), _mm256_mullo_epi32(i, step)),
        _mm256_set1_epi32((int)k.k1)};
}

static inline __m256i gw_random_avx2_next(gw_random_avx2 *s)
{
    __m256i x = s->x;
    s->x = _mm256_add_epi32(x, _mm256_set1_epi32((int)(8u * GW_RANDOM_STEP)));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_RANDOM_MUL1));
    x = _mm256_xor_si256(_mm256_xor_si256(x, s->k1), _mm256_srli_epi32(x, 15));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_RANDOM_MUL2));
    return _mm256_srli_epi32(x, 9);
}

#endif
