/* Natural dithering, AVX2. */
#include "codec/ndither/ndither.h"

#include <immintrin.h>
#include <string.h>

#include "codec/bucket/bucket_by_core.h"

#define LEVEL_OFFSET 127

/* The unit joins the factor where the two cannot overflow, for up to 7 bits. That changes no level:
 * a product that is subnormal without it is far below the smallest level either way. */
static inline __m256i levels8(const gw_bucket *b, __m256 size, __m256i r)
{
    const float unit = gw_ndither_unit(b->levels);
    const int joined = b->bits < 8;
    __m256 z = _mm256_mul_ps(size, _mm256_set1_ps(joined ? b->factor * unit : b->factor));
    if (!joined) {
        z = _mm256_mul_ps(z, _mm256_set1_ps(unit));
    }
    const __m256 u = _mm256_max_ps(_mm256_add_ps(z, _mm256_set1_ps(1.0f)), _mm256_add_ps(z, z));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(u), r), GW_MANT_BITS);
}

static inline __m256 fractions8(const gw_bucket *b, __m256i level)
{
    const __m256i none = _mm256_cmpeq_epi32(level, _mm256_setzero_si256());
    const __m256i e = _mm256_add_epi32(level, _mm256_set1_epi32((int)(127 - b->levels)));
    return _mm256_castsi256_ps(_mm256_andnot_si256(none, _mm256_slli_epi32(e, GW_MANT_BITS)));
}

#include "codec/bucket/bucket_avx2.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_ndither_avx2 = {encode, decode};
