/* Conversions, eight at a time; tails go to the scalar variant. */
#include "base/convert.h"

#include <immintrin.h>

typedef __m256 vec;
typedef __m256i ivec;
enum { LANES = 8 };

static inline __m256 load(gw_dtype from, const uint8_t *src, size_t i)
{
    if (from == GW_F32) {
        return _mm256_loadu_ps((const float *)(const void *)(src + 4 * i));
    }
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(src + 2 * i));
    if (from == GW_F16) {
        return _mm256_cvtph_ps(half);
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* gw_bf16_from_f32; the result stands in the low half of each lane */
static inline __m256i bf16_of(__m256i b)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i quiet = _mm256_or_si256(b, _mm256_set1_epi32(0x400000));
    const __m256 f = _mm256_castsi256_ps(b);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}

static inline void store(gw_dtype to, uint8_t *dst, size_t i, __m256 v)
{
    if (to == GW_F32) {
        _mm256_storeu_ps((float *)(void *)(dst + 4 * i), v);
        return;
    }
    __m128i half;
    if (to == GW_F16) {
        half = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    } else {
        const __m256i h = bf16_of(_mm256_castps_si256(v));
        half = _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    }
    _mm_storeu_si128((__m128i *)(void *)(dst + 2 * i), half);
}

static inline uint32_t top_lane(__m256i v)
{
    uint32_t lane[LANES], top = 0;
    _mm256_storeu_si256((__m256i *)(void *)lane, v);
    for (int i = 0; i < LANES; i++) {
        top = lane[i] > top ? lane[i] : top;
    }
    return top;
}

static inline __m256i zero(void)
{
    return _mm256_setzero_si256();
}

static inline __m256i max_abs(__m256i top, __m256 v)
{
    const __m256i mask = _mm256_set1_epi32((int)GW_ABS_MASK);
    return _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(v), mask));
}

static inline __m256 plus(__m256 a, __m256 b)
{
    return _mm256_add_ps(a, b);
}

static inline __m256 minus(__m256 a, __m256 b)
{
    return _mm256_sub_ps(a, b);
}

static inline __m256 times(__m256 a, __m256 b)
{
    return _mm256_mul_ps(a, b);
}

static inline __m256 over(__m256 a, __m256 b)
{
    return _mm256_div_ps(a, b);
}

static inline __m256 all(float x)
{
    return _mm256_set1_ps(x);
}

/* Around the cache; dst is aligned to the register. */
static inline void store_past(float *dst, __m256 v)
{
    _mm256_stream_ps(dst, v);
}

#include "base/convert_loops.h"

const gw_convert gw_convert_avx2 = {narrow, widen, add, sum, difference, largest, divide};
