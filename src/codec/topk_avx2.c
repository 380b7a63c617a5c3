/* topk's loop, eight at a time. */
#include "codec/topk.h"

#include <immintrin.h>

static size_t at_least(const float *x, size_t n, uint32_t first, uint32_t least, uint32_t *index,
                       float *value)
{
    const __m256i mask = _mm256_set1_epi32((int)GW_ABS_MASK), limit = _mm256_set1_epi32((int)least);
    size_t found = 0, i = 0;
    for (; i + 32 <= n; i += 32) { /* most groups have none: one branch for four registers */
        uint32_t large = 0;
        for (int j = 3; j >= 0; j--) {
            const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + i + 8 * j));
            const __m256i a = _mm256_and_si256(v, mask);
            /* a ≥ limit without a sign */
            const __m256i ge = _mm256_cmpeq_epi32(_mm256_max_epu32(a, limit), a);
            large = large << 8 | (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(ge));
        }
        for (; large != 0; large &= large - 1) {
            const uint32_t at = (uint32_t)i + (uint32_t)__builtin_ctz(large);
            index[found] = first + at;
            value[found++] = x[at];
        }
    }
    return found + gw_topk_scalar.at_least(x + i, n - i, first + (uint32_t)i, least, index + found,
                                           value + found);
}

const gw_topk_kernels gw_topk_avx2 = {at_least};
