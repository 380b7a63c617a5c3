/* Natural dithering, AVX2. */
#include "codec/ndither.h"

#include <immintrin.h>
#include <string.h>

#include "codec/bucket_by_core.h"

static inline __m256i levels8(const gw_bucket *b, __m256 size, __m256i r)
{
    const __m256 y = _mm256_mul_ps(size, _mm256_set1_ps(b->factor));
    const __m256 z = _mm256_mul_ps(y, _mm256_set1_ps(gw_ndither_unit(b->levels)));
    const __m256 u = _mm256_max_ps(_mm256_add_ps(z, _mm256_set1_ps(1.0f)), _mm256_add_ps(z, z));
    const __m256i sum = _mm256_add_epi32(_mm256_castps_si256(u), r);
    return _mm256_srli_epi32(_mm256_sub_epi32(sum, _mm256_set1_epi32(0x3F800000)), GW_MANT_BITS);
}

static inline __m256 fractions8(const gw_bucket *b, __m256i level)
{
    const __m256i none = _mm256_cmpeq_epi32(level, _mm256_setzero_si256());
    const __m256i e = _mm256_add_epi32(level, _mm256_set1_epi32((int)(127 - b->levels)));
    return _mm256_castsi256_ps(_mm256_andnot_si256(none, _mm256_slli_epi32(e, GW_MANT_BITS)));
}

#include "codec/bucket_avx2.h"
#include "codec/bucket_walk.h"

const gw_bucket_kernels gw_ndither_avx2 = {encode, decode};
