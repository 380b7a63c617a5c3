/* AdaComp, eight numbers at a time; the end of a bin by the core. */
#include "codec/adacomp.h"

#include <immintrin.h>

static inline __m256 sum8(const float *g, const float *r, size_t i)
{
    const __m256 v = _mm256_loadu_ps(g + i);
    return r != NULL ? _mm256_add_ps(v, _mm256_loadu_ps(r + i)) : v;
}

static inline __m256i abs8(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32((int)GW_ABS_MASK));
}

static uint32_t top(const float *g, const float *r, size_t n)
{
    __m256i tops = _mm256_setzero_si256();
    uint32_t lane[8];
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        tops = _mm256_max_epu32(tops, abs8(sum8(g, r, i)));
    }
    uint32_t largest = gw_adacomp_scalar.top(g + i, r != NULL ? r + i : NULL, n - i);
    _mm256_storeu_si256((__m256i *)(void *)lane, tops);
    for (int j = 0; j < 8; j++) {
        largest = lane[j] > largest ? lane[j] : largest;
    }
    return largest;
}

static void mark(const float *g, const float *r, size_t n, float d, uint32_t limit, float *after,
                 uint64_t *sent, uint64_t at)
{
    const __m256i least = _mm256_set1_epi32((int)limit), zero = _mm256_setzero_si256();
    const __m256 factor = _mm256_set1_ps(d);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 fresh = _mm256_loadu_ps(g + i), G = sum8(g, r, i);
        const __m256i size = abs8(_mm256_add_ps(G, _mm256_mul_ps(fresh, factor)));
        const __m256i large = _mm256_cmpeq_epi32(_mm256_max_epu32(size, least), size);
        const __m256i none = _mm256_cmpeq_epi32(abs8(G), zero);
        const __m256i sends = _mm256_andnot_si256(none, large);
        const uint32_t bits = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(sends));
        if (after != NULL) {
            _mm256_storeu_ps(after + i, G);
        }
        if (bits != 0) {
            gw_adacomp_put(sent, at + i, bits);
        }
    }
    gw_adacomp_scalar.mark(g + i, r != NULL ? r + i : NULL, n - i, d, limit,
                           after != NULL ? after + i : NULL, sent, at + i);
}

const gw_adacomp_kernels gw_adacomp_avx2 = {top, mark};
