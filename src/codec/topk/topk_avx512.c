/* topk's loop, sixteen at a time. */
#include "codec/topk/topk.h"

#include <immintrin.h>

/* What becomes of G: read only, left in r′, left there around the cache (aligned to a register). */
typedef enum gw_topk_keep { NOT, BESIDE, PAST } gw_topk_keep;

GW_INLINE size_t collect_how(const gw_fed_block *f, size_t n, uint32_t first, uint32_t least,
                             int clear, gw_topk_keep keep, uint32_t *index, float *value)
{
    const __m512i mask = _mm512_set1_epi32((int)GW_ABS_MASK), limit = _mm512_set1_epi32((int)least);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 cleared = clear ? 0xFFFF : 0;
    size_t found = 0, i = 0;
    for (; i + 64 <= n; i += 64) { /* most groups have none: one branch for four registers */
        __m512 v[4];
        __mmask16 large[4];
        for (size_t j = 0; j < 4; j++) {
            const size_t at = i + 16 * j;
            v[j] = _mm512_loadu_ps(f->g + at);
            v[j] = keep != NOT ? _mm512_add_ps(v[j], _mm512_loadu_ps(f->r + at)) : v[j];
            const __m512i a = _mm512_and_si512(_mm512_castps_si512(v[j]), mask);
            large[j] = _mm512_cmpge_epu32_mask(a, limit);
            const __m512 left = _mm512_maskz_mov_ps((__mmask16) ~(large[j] & cleared), v[j]);
            if (keep == PAST) {
                _mm512_stream_ps(f->after + at, left);
            } else if (keep == BESIDE) {
                _mm512_storeu_ps(f->after + at, left);
            }
        }
        if ((large[0] | large[1] | large[2] | large[3]) == 0) {
            continue;
        }
        for (uint32_t j = 0; j < 4; j++) {
            const __m512i at =
                _mm512_add_epi32(lane, _mm512_set1_epi32((int)(first + (uint32_t)i + 16 * j)));
            _mm512_storeu_si512(index + found, _mm512_maskz_compress_epi32(large[j], at));
            _mm512_storeu_ps(value + found, _mm512_maskz_compress_ps(large[j], v[j]));
            found += (size_t)__builtin_popcount(large[j]);
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
    if (here.past && (uintptr_t)here.after % 64 == 0) {
        return collect_how(&here, n, first, least, clear, PAST, index, value);
    }
    return collect_how(&here, n, first, least, clear, BESIDE, index, value);
}

const gw_topk_kernels gw_topk_avx512 = {collect};
