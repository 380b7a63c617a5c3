/* The sign codec, 32 numbers at a time: the 32 lanes of the mean are four registers. */
#include "codec/sign/sign.h"

#include <immintrin.h>
#include <string.h>

GW_INLINE uint32_t sums_of(const float *x, const float *r, size_t n, float lane[GW_SIGN_LANES])
{
    const __m256i mask = _mm256_set1_epi32((int)GW_ABS_MASK);
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
    __m256i top = _mm256_setzero_si256();
    uint32_t tops[8], largest = 0;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 4; j++) {
            __m256 v = _mm256_loadu_ps(x + i + 8 * j);
            v = r != NULL ? _mm256_add_ps(v, _mm256_loadu_ps(r + i + 8 * j)) : v;
            const __m256i a = _mm256_and_si256(_mm256_castps_si256(v), mask);
            sum[j] = _mm256_add_ps(sum[j], _mm256_castsi256_ps(a));
            top = _mm256_max_epu32(top, a);
        }
    }
    for (int j = 0; j < 4; j++) {
        _mm256_storeu_ps(lane + 8 * j, sum[j]);
    }
    _mm256_storeu_si256((__m256i *)(void *)tops, top);
    for (int j = 0; j < 8; j++) {
        largest = tops[j] > largest ? tops[j] : largest;
    }
    for (size_t j = 0; i + j < n; j++) {
        const uint32_t a = gw_bits(r != NULL ? x[i + j] + r[i + j] : x[i + j]) & GW_ABS_MASK;
        largest = a > largest ? a : largest;
        lane[j] += gw_float(a);
    }
    return largest;
}

static uint32_t sums(const float *x, const float *r, size_t n, float lane[GW_SIGN_LANES])
{
    return r != NULL ? sums_of(x, r, n, lane) : sums_of(x, NULL, n, lane);
}

static void signs(const float *x, size_t n, uint8_t *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) { /* below zero as a number: −0 is not */
        const __m256 negative =
            _mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_setzero_ps(), _CMP_LT_OQ);
        out[i / 8] = (uint8_t)_mm256_movemask_ps(negative);
    }
    gw_sign_scalar.signs(x + i, n - i, out + i / 8);
}

/* `past`: after is aligned to a register. */
GW_INLINE void keep_how(const gw_fed_block *f, size_t n, float scale, uint8_t *out, int past)
{
    const __m256 plus = _mm256_set1_ps(scale), sign = _mm256_set1_ps(-0.0f);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        gw_prefetch(f->next[0], 4 * i, 64);
        gw_prefetch(f->next[1], 4 * i, 64);
        for (size_t j = i; j < i + 16; j += 8) {
            const __m256 v = _mm256_add_ps(_mm256_loadu_ps(f->g + j), _mm256_loadu_ps(f->r + j));
            const __m256 negative = _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ);
            const __m256 sent = _mm256_or_ps(plus, _mm256_and_ps(negative, sign));
            out[j / 8] = (uint8_t)_mm256_movemask_ps(negative);
            if (past) {
                _mm256_stream_ps(f->after + j, _mm256_sub_ps(v, sent));
            } else {
                _mm256_storeu_ps(f->after + j, _mm256_sub_ps(v, sent));
            }
        }
    }
    const gw_fed_block rest = gw_feedback_at(f, i);
    gw_sign_scalar.keep(&rest, n - i, scale, out + i / 8);
}

static void keep(const gw_fed_block *f, size_t n, float scale, uint8_t *out)
{
    const gw_fed_block here = *f; /* out may alias *f, but not this */
    if (here.past && (uintptr_t)here.after % 32 == 0) {
        keep_how(&here, n, scale, out, 1);
    } else {
        keep_how(&here, n, scale, out, 0);
    }
}

static inline void decode_how(const uint8_t *bits, size_t n, float scale, gw_apply how, float *out)
{
    const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    const __m256 plus = _mm256_set1_ps(scale), minus = _mm256_set1_ps(-scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i negative = _mm256_sllv_epi32(_mm256_set1_epi32(bits[i / 8]), to_top);
        __m256 v = _mm256_blendv_ps(plus, minus, _mm256_castsi256_ps(negative));
        if (how == GW_ADD) {
            v = _mm256_add_ps(_mm256_loadu_ps(out + i), v);
        }
        _mm256_storeu_ps(out + i, v);
    }
    gw_sign_scalar.decode(bits + i / 8, n - i, scale, how, out + i);
}

#include "codec/sign/sign_apply.h"

const gw_sign_kernels gw_sign_avx2 = {sums, signs, keep, decode};
