/* gw_random_r23 for 32 consecutive elements, beginning at a multiple of 32. */
#ifndef GW_BASE_RANDOM_AVX2_H
#define GW_BASE_RANDOM_AVX2_H

#include "base/random.h"

#include <immintrin.h>

typedef struct gw_random_avx2 {
    __m256i x, k1; /* x = k0 + number · STEP of the next eight words */
} gw_random_avx2;

static inline gw_random_avx2 gw_random_avx2_at(gw_random_pair k, uint64_t index)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i step = _mm256_set1_epi32((int)GW_RANDOM_STEP);
    const uint32_t first = k.k0 + gw_random_number(index) * GW_RANDOM_STEP;
    return (gw_random_avx2){
        _mm256_add_epi32(_mm256_set1_epi32((int)first), _mm256_mullo_epi32(lane, step)),
        _mm256_set1_epi32((int)k.k1)};
}

static inline __m256i gw_random_avx2_words(gw_random_avx2 *s)
{
    __m256i x = s->x;
    s->x = _mm256_add_epi32(x, _mm256_set1_epi32((int)(8u * GW_RANDOM_STEP)));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_RANDOM_MUL1));
    x = _mm256_xor_si256(_mm256_xor_si256(x, s->k1), _mm256_srli_epi32(x, 15));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)GW_RANDOM_MUL2));
    return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

/* Elements 8i … 8i + 7 into r[i]. */
static inline void gw_random_avx2_next(gw_random_avx2 *s, __m256i r[4])
{
    const __m256i halves = _mm256_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 2,
                                            3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    const __m256i a = gw_random_avx2_words(s), b = gw_random_avx2_words(s);
    r[0] = _mm256_srli_epi32(a, 9);
    r[1] = _mm256_srli_epi32(b, 9);
    r[2] = _mm256_srli_epi32(_mm256_shuffle_epi8(a, halves), 9);
    r[3] = _mm256_srli_epi32(_mm256_shuffle_epi8(b, halves), 9);
}

#endif
