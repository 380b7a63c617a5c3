/* AdaComp, eight numbers at a time; the end of a bin by the core. */
#include "codec/adacomp/adacomp.h"

#include <immintrin.h>

static inline __m256i abs8(__m256i bits)
{
    return _mm256_and_si256(bits, _mm256_set1_epi32((int)GW_ABS_MASK));
}

static uint32_t sums(const gw_adacomp_block *b, size_t i, size_t n)
{
    const __m256 d = _mm256_set1_ps(b->d), sign = _mm256_set1_ps(-0.0f);
    __m256i tops = _mm256_setzero_si256();
    uint32_t lane[8];
    size_t j = 0;
    for (; j + 8 <= n; j += 8) {
        const __m256 g = _mm256_loadu_ps(b->g + i + j);
        const __m256 G = b->r != NULL ? _mm256_add_ps(g, _mm256_loadu_ps(b->r + i + j)) : g;
        const __m256 H = _mm256_add_ps(G, _mm256_mul_ps(g, d));
        const __m256i a = abs8(_mm256_castps_si256(G));
        const __m256i none = _mm256_cmpeq_epi32(a, _mm256_setzero_si256());
        const __m256i key =
            _mm256_castps_si256(_mm256_or_ps(_mm256_and_ps(sign, G), _mm256_andnot_ps(sign, H)));
        tops = _mm256_max_epu32(tops, a);
        _mm256_storeu_ps(b->G + i + j, G);
        _mm256_storeu_si256((__m256i *)(void *)(b->keys + j), _mm256_andnot_si256(none, key));
    }
    uint32_t largest = gw_adacomp_tail(b, i, j, n);
    _mm256_storeu_si256((__m256i *)(void *)lane, tops);
    for (int k = 0; k < 8; k++) {
        largest = lane[k] > largest ? lane[k] : largest;
    }
    return largest;
}

static inline uint64_t marks(const uint32_t *keys, uint32_t limit)
{
    const __m256i least = _mm256_set1_epi32((int)(limit - 1)); /* |key| and limit have no sign */
    uint64_t word = 0;
    for (size_t j = 0; j < 64; j += 8) {
        const __m256i a = abs8(_mm256_loadu_si256((const __m256i *)(const void *)(keys + j)));
        const __m256 large = _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, least));
        word |= (uint64_t)(uint32_t)_mm256_movemask_ps(large) << j;
    }
    return word;
}

#include "codec/adacomp/adacomp_bins.h"

static void write_past(float *dst, const float *src, size_t n)
{
    const size_t head = (0 - (uintptr_t)dst) % 64 / sizeof(float);
    size_t i = head < n ? head : n;
    memcpy(dst, src, i * sizeof(float));
    for (; i + 16 <= n; i += 16) {
        _mm256_stream_ps(dst + i, _mm256_loadu_ps(src + i));
        _mm256_stream_ps(dst + i + 8, _mm256_loadu_ps(src + i + 8));
    }
    memcpy(dst + i, src + i, (n - i) * sizeof(float));
}

const gw_adacomp_kernels gw_adacomp_avx2 = {bins, write_past};
