/* topk's loop, eight at a time. */
#include "codec/topk/topk.h"

#include <immintrin.h>

/* What becomes of G: read only, left in r′, left there around the cache (aligned to a register). */
typedef enum gw_topk_keep { NOT, BESIDE, PAST } gw_topk_keep;

GW_INLINE size_t collect_how(const gw_fed_block *f, size_t n, uint32_t first, uint32_t least,
                             int clear, gw_topk_keep keep, uint32_t *index, float *value)
{
    const __m256i mask = _mm256_set1_epi32((int)GW_ABS_MASK), limit = _mm256_set1_epi32((int)least);
    const __m256 cleared = _mm256_castsi256_ps(_mm256_set1_epi32(clear ? -1 : 0));
    size_t found = 0, i = 0;
    for (; i + 32 <= n; i += 32) { /* most groups have none: one branch for four registers */
        __m256 v[4];
        uint32_t large = 0;
        for (size_t j = 0; j < 4; j++) {
            const size_t at = i + 8 * j;
            v[j] = _mm256_loadu_ps(f->g + at);
            v[j] = keep != NOT ? _mm256_add_ps(v[j], _mm256_loadu_ps(f->r + at)) : v[j];
            const __m256i a = _mm256_and_si256(_mm256_castps_si256(v[j]), mask);
            /* a ≥ limit without a sign */
            const __m256 ge =
                _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(a, limit), a));
            const __m256 left = _mm256_andnot_ps(_mm256_and_ps(ge, cleared), v[j]);
            large |= (uint32_t)_mm256_movemask_ps(ge) << 8 * j;
            if (keep == PAST) {
                _mm256_stream_ps(f->after + at, left);
            } else if (keep == BESIDE) {
                _mm256_storeu_ps(f->after + at, left);
            }
        }
        if (large == 0) {
            continue;
        }
        float group[32]; /* r′ may be g, which is gone */
        for (size_t j = 0; j < 4; j++) {
            _mm256_storeu_ps(group + 8 * j, v[j]);
        }
        for (; large != 0; large &= large - 1) {
            const uint32_t at = (uint32_t)__builtin_ctz(large);
            index[found] = first + (uint32_t)i + at;
            value[found++] = group[at];
        }
    }
    const gw_fed_block rest = gw_feedback_at(f, i);
    return found + gw_topk_scalar.collect(&rest, n - i, first + (uint32_t)i, least, clear,
                                          index + found, value + found);
}

static size_t collect(const gw_fed_block *f, size_t n, uint32_t first, uint32_t least, int clear,
                      uint32_t *index, float *value)
{
    const gw_fed_block here = *f; /* the results may alias *f, but not this */
    if (here.r == NULL) {
        return collect_how(&here, n, first, least, clear, NOT, index, value);
    }
    if (here.past && (uintptr_t)here.after % 32 == 0) {
        return collect_how(&here, n, first, least, clear, PAST, index, value);
    }
    return collect_how(&here, n, first, least, clear, BESIDE, index, value);
}

const gw_topk_kernels gw_topk_avx2 = {collect};
