/* Linear dithering, AVX2. */
#include "codec/dither/dither.h"

#include <immintrin.h>
#include <string.h>

#include "codec/bucket/bucket_by_core.h"

#define LEVEL_OFFSET 0

static inline __m256i levels8(const gw_bucket *b, __m256 size, __m256i r)
{
    const __m256i q = _mm256_cvttps_epi32(_mm256_mul_ps(size, _mm256_set1_ps(b->factor)));
    return _mm256_srli_epi32(_mm256_add_epi32(q, r), GW_MANT_BITS);
}

static inline __m256 fractions8(const gw_bucket *b, __m256i level)
{
    return _mm256_mul_ps(_mm256_cvtepi32_ps(level), _mm256_set1_ps(1.0f / (float)b->levels));
}

#include "codec/bucket/bucket_avx2.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_dither_avx2 = {encode, decode};
