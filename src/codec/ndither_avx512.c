/* Natural dithering, AVX-512. */
#include "codec/ndither.h"

#include <immintrin.h>
#include <string.h>

#include "codec/bucket_by_core.h"

static inline __m512i levels16(const gw_bucket *b, __m512 size, __m512i r)
{
    const __m512 y = _mm512_mul_ps(size, _mm512_set1_ps(b->factor));
    const __m512 z = _mm512_mul_ps(y, _mm512_set1_ps(gw_ndither_unit(b->levels)));
    const __m512 u = _mm512_max_ps(_mm512_add_ps(z, _mm512_set1_ps(1.0f)), _mm512_add_ps(z, z));
    const __m512i sum = _mm512_add_epi32(_mm512_castps_si512(u), r);
    return _mm512_srli_epi32(_mm512_sub_epi32(sum, _mm512_set1_epi32(0x3F800000)), GW_MANT_BITS);
}

static inline __m512 fractions16(const gw_bucket *b, __m512i level)
{
    const __m512i zero_level = _mm512_set1_epi32((int)(127 - b->levels));
    const __mmask16 some = _mm512_test_epi32_mask(level, level);
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(some, _mm512_add_epi32(level, zero_level), GW_MANT_BITS));
}

#include "codec/bucket_avx512.h"
#include "codec/bucket_walk.h"

const gw_bucket_kernels gw_ndither_avx512 = {encode, decode};
