/* Conversions, sixteen at a time; tails go to the scalar variant. The processor's own bf16
 * conversion is not used: it flushes subnormals whatever the floating-point environment says. */
#include "base/convert.h"

#include <immintrin.h>

typedef __m512 vec;
typedef __m512i ivec;
enum { LANES = 16 };

static inline __m512 load(gw_dtype from, const uint8_t *src, size_t i)
{
    if (from == GW_F32) {
        return _mm512_loadu_ps(src + 4 * i);
    }
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(src + 2 * i));
    if (from == GW_F16) {
        return _mm512_cvtph_ps(half);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* gw_bf16_from_f32 */
static inline __m256i bf16_of(__m512 v)
{
    const __m512i b = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i r = _mm512_mask_or_epi32(up, nan, b, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}

static inline void store(gw_dtype to, uint8_t *dst, size_t i, __m512 v)
{
    if (to == GW_F32) {
        _mm512_storeu_ps(dst + 4 * i, v);
        return;
    }
    const __m256i half = to == GW_F16 ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT) : bf16_of(v);
    _mm256_storeu_si256((__m256i *)(void *)(dst + 2 * i), half);
}

static inline uint32_t top_lane(__m512i v)
{
    return _mm512_reduce_max_epu32(v);
}

static inline __m512i zero(void)
{
    return _mm512_setzero_si512();
}

static inline __m512i max_abs(__m512i top, __m512 v)
{
    const __m512i mask = _mm512_set1_epi32((int)GW_ABS_MASK);
    return _mm512_max_epu32(top, _mm512_and_si512(_mm512_castps_si512(v), mask));
}

static inline __m512 plus(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}

static inline __m512 minus(__m512 a, __m512 b)
{
    return _mm512_sub_ps(a, b);
}

static inline __m512 times(__m512 a, __m512 b)
{
    return _mm512_mul_ps(a, b);
}

static inline __m512 over(__m512 a, __m512 b)
{
    return _mm512_div_ps(a, b);
}

static inline __m512 all(float x)
{
    return _mm512_set1_ps(x);
}

/* Around the cache; dst is aligned to the register. */
static inline void store_past(float *dst, __m512 v)
{
    _mm512_stream_ps(dst, v);
}

#include "base/convert_loops.h"

const gw_convert gw_convert_avx512 = {narrow, widen, add, sum, difference, largest, divide};
