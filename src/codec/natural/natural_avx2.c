/* Natural compression, 32 numbers at a time: the shape of natural_avx512.c in half the width, the
 * sign plane taken by packing the numbers themselves and one movemask. */
#include "base/random_avx2.h"
#include "codec/natural/natural.h"

enum { GROUP = 32 };

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Packing interleaves the 128-bit lanes; this permutation of dwords puts bytes in order. */
static inline __m256i in_order(__m256i packed)
{
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i exponent8(__m256i x, __m256i r)
{
    const __m256i a = _mm256_and_si256(x, _mm256_set1_epi32((int)GW_ABS_MASK));
    return _mm256_srli_epi32(_mm256_add_epi32(a, r), GW_MANT_BITS);
}

/* 32 exponent bytes, and their signs in the order of the bytes. */
static inline __m256i planes32(const float *x, gw_random_avx2 *random, uint32_t *sign)
{
    const __m256i a = load(x), b = load(x + 8), c = load(x + 16), d = load(x + 24);
    __m256i r[4];
    gw_random_avx2_next(random, r);
    const __m256i ea = exponent8(a, r[0]), eb = exponent8(b, r[1]);
    const __m256i ec = exponent8(c, r[2]), ed = exponent8(d, r[3]);
    const __m256i ab = _mm256_packus_epi32(ea, eb), cd = _mm256_packus_epi32(ec, ed);
    const __m256i e = in_order(_mm256_packus_epi16(ab, cd));
    /* signed saturation keeps the sign bit */
    const __m256i sab = _mm256_packs_epi32(a, b), scd = _mm256_packs_epi32(c, d);
    const __m256i s = in_order(_mm256_packs_epi16(sab, scd));
    const __m256i zero = _mm256_cmpeq_epi8(e, _mm256_setzero_si256());
    *sign = (uint32_t)_mm256_movemask_epi8(_mm256_andnot_si256(zero, s));
    return e;
}

static inline gw_natural_extent extent_of(__m256i low, __m256i high)
{
    uint8_t l[GROUP], h[GROUP];
    gw_natural_extent extent = {255, 0};
    _mm256_storeu_si256((__m256i *)(void *)l, low);
    _mm256_storeu_si256((__m256i *)(void *)h, high);
    for (int i = 0; i < GROUP; i++) {
        extent.low = l[i] < extent.low ? l[i] : extent.low;
        extent.high = h[i] > extent.high ? h[i] : extent.high;
    }
    return extent;
}

static gw_natural_extent planes(const float *x, size_t n, gw_random_pair k, uint64_t index,
                                uint8_t *exponents, uint8_t *signs)
{
    gw_random_avx2 random = gw_random_avx2_at(k, index);
    __m256i low = _mm256_set1_epi8(-1), high = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint32_t sign;
        const __m256i e = planes32(x + i, &random, &sign);
        low = _mm256_min_epu8(low, e);
        high = _mm256_max_epu8(high, e);
        _mm256_storeu_si256((__m256i *)(void *)(exponents + i), e);
        memcpy(signs + i / 8, &sign, sizeof sign);
    }
    gw_natural_extent extent = extent_of(low, high);
    const gw_natural_extent tail =
        gw_natural_scalar.planes(x + i, n - i, k, index + i, exponents + i, signs + i / 8);
    extent.low = tail.low < extent.low ? tail.low : extent.low;
    extent.high = tail.high > extent.high ? tail.high : extent.high;
    return extent;
}

/* 0x80 in every byte whose bit is set. */
static inline __m256i spread(uint32_t mask)
{
    const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    const __m256i m = _mm256_shuffle_epi8(_mm256_set1_epi32((int)mask), byte);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(m, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8((char)0x80));
}

static void fold(uint8_t *codes, const uint8_t *signs, size_t n, uint32_t base)
{
    const __m256i below = _mm256_set1_epi8((char)(base - 1)), zero = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint32_t sign;
        memcpy(&sign, signs + i / 8, sizeof sign);
        const __m256i level = _mm256_subs_epu8(load(codes + i), below);
        const __m256i none = _mm256_cmpeq_epi8(level, zero);
        const __m256i code = _mm256_or_si256(level, _mm256_andnot_si256(none, spread(sign)));
        _mm256_storeu_si256((__m256i *)(void *)(codes + i), code);
    }
    gw_natural_scalar.fold(codes + i, signs + i / 8, n - i, base);
}

static int any_below(const float *x, size_t n, uint32_t limit)
{
    const __m256i one = _mm256_set1_epi32(1), mask = _mm256_set1_epi32((int)GW_ABS_MASK);
    const __m256i last = _mm256_set1_epi32((int)(limit - 2)); /* largest a − 1 that is below */
    __m256i any = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) { /* a − 1 wraps for zero, so compare without a sign */
        const __m256i a = _mm256_sub_epi32(_mm256_and_si256(load(x + i), mask), one);
        any = _mm256_or_si256(any, _mm256_cmpeq_epi32(_mm256_min_epu32(a, last), a));
    }
    return _mm256_movemask_epi8(any) != 0 || gw_natural_scalar.any_below(x + i, n - i, limit);
}

static inline void put8(float *out, gw_apply how, __m256i bits)
{
    __m256 v = _mm256_castsi256_ps(bits);
    if (how == GW_ADD) {
        v = _mm256_add_ps(_mm256_loadu_ps(out), v);
    }
    _mm256_storeu_ps(out, v);
}

static inline __m256i load8(const uint8_t *bytes)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
}

static inline void decode9_how(const uint8_t *exponents, const uint8_t *signs, size_t n,
                               gw_apply how, float *out)
{
    const __m256i bit = _mm256_set1_epi32((int)GW_SIGN_BIT);
    const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i e = _mm256_slli_epi32(load8(exponents + i), GW_MANT_BITS);
        const __m256i sign = _mm256_sllv_epi32(_mm256_set1_epi32(signs[i / 8]), to_top);
        put8(out + i, how, _mm256_or_si256(e, _mm256_and_si256(sign, bit)));
    }
    gw_natural_scalar.decode9(exponents + i, signs + i / 8, n - i, how, out + i);
}

/* The loop below makes −0 of a code for a number that was not finite. */
static int any_non_finite(const uint8_t *codes, size_t n)
{
    const __m256i marker = _mm256_set1_epi8((char)0x80);
    __m256i any = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        any = _mm256_or_si256(any, _mm256_cmpeq_epi8(load(codes + i), marker));
    }
    return _mm256_movemask_epi8(any) != 0 || memchr(codes + i, 0x80, n - i) != NULL;
}

static inline void decode8_how(const uint8_t *codes, size_t n, uint32_t base, gw_apply how,
                               float *out)
{
    const __m256i seven = _mm256_set1_epi32(0x7F), bit = _mm256_set1_epi32((int)GW_SIGN_BIT);
    const __m256i below = _mm256_set1_epi32((int)(base - 1)), zero = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i code = load8(codes + i), level = _mm256_and_si256(code, seven);
        const __m256i none = _mm256_cmpeq_epi32(level, zero);
        const __m256i e = _mm256_slli_epi32(_mm256_add_epi32(level, below), GW_MANT_BITS);
        const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(code, 24), bit);
        put8(out + i, how, _mm256_or_si256(_mm256_andnot_si256(none, e), sign));
    }
    gw_natural_scalar.decode8(codes + i, n - i, base, how, out + i);
}

#include "codec/natural/natural_apply.h"

const gw_natural_kernels gw_natural_avx2 = {planes, fold, any_below, decode9, decode8};
