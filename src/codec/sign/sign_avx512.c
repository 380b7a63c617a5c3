/* The sign codec, 32 numbers at a time: the 32 lanes of the mean are two registers. */
#include "codec/sign/sign.h"

#include <immintrin.h>
#include <string.h>

static inline __m512i abs16(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi32((int)GW_ABS_MASK));
}

GW_INLINE uint32_t sums_of(const float *x, const float *r, size_t n, float lane[GW_SIGN_LANES])
{
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512i top = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 2; j++) {
            __m512 v = _mm512_loadu_ps(x + i + 16 * j);
            v = r != NULL ? _mm512_add_ps(v, _mm512_loadu_ps(r + i + 16 * j)) : v;
            const __m512i a = abs16(_mm512_castps_si512(v));
            sum[j] = _mm512_add_ps(sum[j], _mm512_castsi512_ps(a));
            top = _mm512_max_epu32(top, a);
        }
    }
    _mm512_storeu_ps(lane, sum[0]);
    _mm512_storeu_ps(lane + 16, sum[1]);
    uint32_t largest = _mm512_reduce_max_epu32(top);
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
    const __m512i zero = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) { /* below zero as a number: −0 is not */
        const __m512 v = _mm512_loadu_ps(x + i);
        const __mmask16 negative = _mm512_cmp_ps_mask(v, _mm512_castsi512_ps(zero), _CMP_LT_OQ);
        memcpy(out + i / 8, &negative, sizeof negative);
    }
    gw_sign_scalar.signs(x + i, n - i, out + i / 8);
}

/* `past`: after is aligned to a register. */
GW_INLINE void keep_how(const gw_fed_block *f, size_t n, float scale, uint8_t *out, int past)
{
    const __m512 plus = _mm512_set1_ps(scale), minus = _mm512_set1_ps(-scale);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 v = _mm512_add_ps(_mm512_loadu_ps(f->g + i), _mm512_loadu_ps(f->r + i));
        const __mmask16 negative = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ);
        const __m512 lost = _mm512_sub_ps(v, _mm512_mask_blend_ps(negative, plus, minus));
        gw_prefetch(f->next[0], 4 * i, 64);
        gw_prefetch(f->next[1], 4 * i, 64);
        memcpy(out + i / 8, &negative, sizeof negative);
        if (past) {
            _mm512_stream_ps(f->after + i, lost);
        } else {
            _mm512_storeu_ps(f->after + i, lost);
        }
    }
    const gw_fed_block rest = gw_feedback_at(f, i);
    gw_sign_scalar.keep(&rest, n - i, scale, out + i / 8);
}

static void keep(const gw_fed_block *f, size_t n, float scale, uint8_t *out)
{
    const gw_fed_block here = *f; /* out may alias *f, but not this */
    if (here.past && (uintptr_t)here.after % 64 == 0) {
        keep_how(&here, n, scale, out, 1);
    } else {
        keep_how(&here, n, scale, out, 0);
    }
}

static inline void decode_how(const uint8_t *bits, size_t n, float scale, gw_apply how, float *out)
{
    const __m512 plus = _mm512_set1_ps(scale), minus = _mm512_set1_ps(-scale);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __mmask16 negative;
        memcpy(&negative, bits + i / 8, sizeof negative);
        __m512 v = _mm512_mask_blend_ps(negative, plus, minus);
        if (how == GW_ADD) {
            v = _mm512_add_ps(_mm512_loadu_ps(out + i), v);
        }
        _mm512_storeu_ps(out + i, v);
    }
    gw_sign_scalar.decode(bits + i / 8, n - i, scale, how, out + i);
}

#include "codec/sign/sign_apply.h"

const gw_sign_kernels gw_sign_avx512 = {sums, signs, keep, decode};
