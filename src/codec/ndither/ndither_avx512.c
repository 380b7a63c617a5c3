/* Natural dithering, AVX-512. */
#include "codec/ndither/ndither.h"

#include <immintrin.h>
#include <string.h>

#include "codec/bucket/bucket_by_core.h"

#define LEVEL_OFFSET 127

/* The unit joins the factor where the two cannot overflow, for up to 7 bits. That changes no level:
 * a product that is subnormal without it is far below the smallest level either way. */
static inline __m512i levels16(const gw_bucket *b, __m512 size, __m512i r)
{
    const float unit = gw_ndither_unit(b->levels);
    const int joined = b->bits < 8;
    __m512 z = _mm512_mul_ps(size, _mm512_set1_ps(joined ? b->factor * unit : b->factor));
    if (!joined) {
        z = _mm512_mul_ps(z, _mm512_set1_ps(unit));
    }
    const __m512 u = _mm512_max_ps(_mm512_add_ps(z, _mm512_set1_ps(1.0f)), _mm512_add_ps(z, z));
    return _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(u), r), GW_MANT_BITS);
}

static inline __m512 fractions16(const gw_bucket *b, __m512i level)
{
    const __m512i zero_level = _mm512_set1_epi32((int)(127 - b->levels));
    const __mmask16 some = _mm512_test_epi32_mask(level, level);
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(some, _mm512_add_epi32(level, zero_level), GW_MANT_BITS));
}

#include "codec/bucket/bucket_avx512.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_ndither_avx512 = {encode, decode};
