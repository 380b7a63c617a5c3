/* gw_random_r23 for 32 consecutive elements, beginning at a multiple of 32. */
#ifndef GW_BASE_RANDOM_AVX512_H
#define GW_BASE_RANDOM_AVX512_H

#include "base/random.h"

#include <immintrin.h>

typedef struct gw_random_avx512 {
    __m512i x, k1; /* x = k0 + number · STEP of the next sixteen words */
} gw_random_avx512;

static inline gw_random_avx512 gw_random_avx512_at(gw_random_pair k, uint64_t index)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i step = _mm512_set1_epi32((int)GW_RANDOM_STEP);
    const uint32_t first = k.k0 + gw_random_number(index) * GW_RANDOM_STEP;
    return (gw_random_avx512){
        _mm512_add_epi32(_mm512_set1_epi32((int)first), _mm512_mullo_epi32(lane, step)),
        _mm512_set1_epi32((int)k.k1)};
}

/* Elements 0 … 15 into r[0], 16 … 31 into r[1]. */
static inline void gw_random_avx512_next(gw_random_avx512 *s, __m512i r[2])
{
    __m512i x = s->x;
    s->x = _mm512_add_epi32(x, _mm512_set1_epi32((int)(16u * GW_RANDOM_STEP)));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_RANDOM_MUL1));
    x = _mm512_ternarylogic_epi32(x, _mm512_srli_epi32(x, 15), s->k1, 0x96); /* a ^ b ^ c */
    x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)GW_RANDOM_MUL2));
    x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
    r[0] = _mm512_srli_epi32(x, 9);
    r[1] = _mm512_srli_epi32(_mm512_ror_epi32(x, 16), 9);
}

#endif
