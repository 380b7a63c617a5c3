/* Natural compression, 64 numbers at a time. Four registers of sixteen are narrowed to one of 64 bytes
 * by packing; the packs interleave 128-bit lanes, which one permutation of dwords puts right. */
#include "base/random_avx512.h"
#include "codec/natural/natural.h"

enum { GROUP = 64 };

/* Bytes of a, b, c, d (each 16 dwords below 256, saturated) in order. */
static inline __m512i bytes_of(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i ab = _mm512_packus_epi32(a, b), cd = _mm512_packus_epi32(c, d);
    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(ab, cd));
}

static inline __m512i exponent16(__m512i x, __m512i r)
{
    const __m512i a = _mm512_and_si512(x, _mm512_set1_epi32((int)GW_ABS_MASK));
    return _mm512_srli_epi32(_mm512_add_epi32(a, r), GW_MANT_BITS);
}

static inline uint64_t signs64(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __mmask32 ab = _mm512_kunpackw(_mm512_movepi32_mask(b), _mm512_movepi32_mask(a));
    const __mmask32 cd = _mm512_kunpackw(_mm512_movepi32_mask(d), _mm512_movepi32_mask(c));
    return (uint64_t)cd << 32 | ab;
}

static inline gw_natural_extent extent_of(__m512i low, __m512i high)
{
    uint8_t l[GROUP], h[GROUP];
    gw_natural_extent extent = {255, 0};
    _mm512_storeu_si512(l, low);
    _mm512_storeu_si512(h, high);
    for (int i = 0; i < GROUP; i++) {
        extent.low = l[i] < extent.low ? l[i] : extent.low;
        extent.high = h[i] > extent.high ? h[i] : extent.high;
    }
    return extent;
}

static gw_natural_extent planes(const float *x, size_t n, gw_random_pair k, uint64_t index,
                                uint8_t *exponents, uint8_t *signs)
{
    gw_random_avx512 random = gw_random_avx512_at(k, index);
    __m512i low = _mm512_set1_epi8(-1), high = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        const __m512i a = _mm512_loadu_si512(x + i), b = _mm512_loadu_si512(x + i + 16);
        const __m512i c = _mm512_loadu_si512(x + i + 32), d = _mm512_loadu_si512(x + i + 48);
        __m512i r[4];
        gw_random_avx512_next(&random, r);
        gw_random_avx512_next(&random, r + 2);
        const __m512i ea = exponent16(a, r[0]), eb = exponent16(b, r[1]);
        const __m512i ec = exponent16(c, r[2]), ed = exponent16(d, r[3]);
        const __m512i e = bytes_of(ea, eb, ec, ed);
        const uint64_t sign = signs64(a, b, c, d) & _mm512_test_epi8_mask(e, e);
        low = _mm512_min_epu8(low, e);
        high = _mm512_max_epu8(high, e);
        _mm512_storeu_si512(exponents + i, e);
        memcpy(signs + i / 8, &sign, sizeof sign);
    }
    gw_natural_extent extent = extent_of(low, high);
    const gw_natural_extent tail =
        gw_natural_scalar.planes(x + i, n - i, k, index + i, exponents + i, signs + i / 8);
    extent.low = tail.low < extent.low ? tail.low : extent.low;
    extent.high = tail.high > extent.high ? tail.high : extent.high;
    return extent;
}

static void fold(uint8_t *codes, const uint8_t *signs, size_t n, uint32_t base)
{
    const __m512i below = _mm512_set1_epi8((char)(base - 1)), bit = _mm512_set1_epi8((char)0x80);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint64_t sign;
        memcpy(&sign, signs + i / 8, sizeof sign);
        const __m512i level = _mm512_subs_epu8(_mm512_loadu_si512(codes + i), below);
        const __mmask64 negative = sign & _mm512_test_epi8_mask(level, level);
        _mm512_storeu_si512(codes + i, _mm512_mask_add_epi8(level, negative, level, bit));
    }
    gw_natural_scalar.fold(codes + i, signs + i / 8, n - i, base);
}

static int any_below(const float *x, size_t n, uint32_t limit)
{
    const __m512i one = _mm512_set1_epi32(1), mask = _mm512_set1_epi32((int)GW_ABS_MASK);
    const __m512i last = _mm512_set1_epi32((int)(limit - 1));
    __mmask16 any = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) { /* 0 < a < limit, as a − 1 < limit − 1 without a sign */
        const __m512i a = _mm512_and_si512(_mm512_loadu_si512(x + i), mask);
        any |= _mm512_cmplt_epu32_mask(_mm512_sub_epi32(a, one), last);
    }
    return any != 0 || gw_natural_scalar.any_below(x + i, n - i, limit);
}

static inline void put16(float *out, gw_apply how, __m512i bits)
{
    __m512 v = _mm512_castsi512_ps(bits);
    if (how == GW_ADD) {
        v = _mm512_add_ps(_mm512_loadu_ps(out), v);
    }
    _mm512_storeu_ps(out, v);
}

static inline __m512i load16(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes));
}

static inline void decode9_how(const uint8_t *exponents, const uint8_t *signs, size_t n,
                               gw_apply how, float *out)
{
    const __m512i bit = _mm512_set1_epi32((int)GW_SIGN_BIT);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        uint16_t sign;
        memcpy(&sign, signs + i / 8, sizeof sign);
        const __m512i e = _mm512_slli_epi32(load16(exponents + i), GW_MANT_BITS);
        put16(out + i, how, _mm512_mask_or_epi32(e, sign, e, bit));
    }
    gw_natural_scalar.decode9(exponents + i, signs + i / 8, n - i, how, out + i);
}

/* Powers of two have nothing in their lower sixteen bits. The upper two bytes of 64 of them are made in two
 * registers, then interleaved with each other and with zeros; the interleaving keeps to 128-bit lanes, whose
 * dwords are so placed before that each result has sixteen numbers in order. */
static inline void decode8_how(const uint8_t *codes, size_t n, uint32_t base, gw_apply how,
                               float *out)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i seven = _mm512_set1_epi8(0x7F), bit = _mm512_set1_epi8((char)0x80);
    const __m512i below = _mm512_set1_epi8((char)(base - 1)), zero = _mm512_setzero_si512();
    const __m512i nan_high = _mm512_set1_epi8((char)(GW_NAN_BITS >> 24));
    const __m512i nan_low = _mm512_set1_epi8((char)(GW_NAN_BITS >> 16 & 0xFF));
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        const __m512i code = _mm512_permutexvar_epi32(order, _mm512_loadu_si512(codes + i));
        const __m512i level = _mm512_and_si512(code, seven);
        const __mmask64 some = _mm512_test_epi8_mask(level, level);
        const __mmask64 marked = _mm512_cmpeq_epi8_mask(code, bit);
        const __m512i e = _mm512_maskz_add_epi8(some, level, below);
        /* the sign, seven bits of e; its last bit. A bit that a shift brings from another byte is masked. */
        __m512i high = _mm512_ternarylogic_epi32(seven, _mm512_srli_epi16(e, 1), code, 0xCA);
        __m512i low = _mm512_and_si512(_mm512_slli_epi16(e, 7), bit);
        high = _mm512_mask_mov_epi8(high, marked, nan_high);
        low = _mm512_mask_mov_epi8(low, marked, nan_low);
        const __m512i a = _mm512_unpacklo_epi8(low, high), b = _mm512_unpackhi_epi8(low, high);
        put16(out + i, how, _mm512_unpacklo_epi16(zero, a));
        put16(out + i + 16, how, _mm512_unpackhi_epi16(zero, a));
        put16(out + i + 32, how, _mm512_unpacklo_epi16(zero, b));
        put16(out + i + 48, how, _mm512_unpackhi_epi16(zero, b));
    }
    gw_natural_scalar.decode8(codes + i, n - i, base, how, out + i);
}

/* decode8_how sees to codes of numbers that are not finite. */
static inline int any_non_finite(const uint8_t *codes, size_t n)
{
    (void)codes;
    (void)n;
    return 0;
}

#include "codec/natural/natural_apply.h"

const gw_natural_kernels gw_natural_avx512 = {planes, fold, any_below, decode9, decode8};
