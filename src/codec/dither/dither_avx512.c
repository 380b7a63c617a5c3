/* Linear dithering, AVX-512. */
#include "codec/dither/dither.h"

#include <immintrin.h>
#include <string.h>

#include "codec/bucket/bucket_by_core.h"

#define LEVEL_OFFSET 0

static inline __m512i levels16(const gw_bucket *b, __m512 size, __m512i r)
{
    const __m512i q = _mm512_cvttps_epi32(_mm512_mul_ps(size, _mm512_set1_ps(b->factor)));
    return _mm512_srli_epi32(_mm512_add_epi32(q, r), GW_MANT_BITS);
}

static inline __m512 fractions16(const gw_bucket *b, __m512i level)
{
    return _mm512_mul_ps(_mm512_cvtepi32_ps(level), _mm512_set1_ps(1.0f / (float)b->levels));
}

#include "codec/bucket/bucket_avx512.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_dither_avx512 = {encode, decode};
