/* The loops that bucket_walk.h asks for, 64 numbers at a time. The including file defines, before,
 * for sixteen numbers:
 *   LEVEL_OFFSET                what levels16 adds to every level
 *   levels16(b, size, r)        levels, offset added, not yet clamped to b->levels, but below 256
 *   fractions16(b, level)       λ(level) */

#include "base/random_avx512.h"

enum { GROUP = 64 };

static inline __m512i abs16(__m512i x)
{
    return _mm512_and_si512(x, _mm512_set1_epi32((int)GW_ABS_MASK));
}

static uint32_t max_abs(const float *x, size_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a = _mm512_max_epu32(a, abs16(_mm512_loadu_si512(x + i)));
        b = _mm512_max_epu32(b, abs16(_mm512_loadu_si512(x + i + 16)));
    }
    for (; i < n; i += 16) {
        const uint32_t some = n - i < 16 ? (1u << (n - i)) - 1 : 0xFFFF;
        a = _mm512_max_epu32(a, abs16(_mm512_maskz_loadu_epi32((__mmask16)some, x + i)));
    }
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
}

/* The top byte's sign bits, and the low bytes, of four registers: packing interleaves the 128-bit
 * lanes, which one permutation of dwords puts right. */
static inline __m512i in_order(__m512i packed)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, packed);
}

/* 64 codes of `bits` bits, one a byte -> 8 · bits bytes, least significant first: neighbours are
 * joined to fields of 2, 4 and 8 codes, then the used bytes of each 64-bit field are moved together. */
GW_INLINE void pack64(__m512i v, uint32_t bits, uint8_t *out)
{
    if (bits == 4) { /* a pair is low + 16 · high, one instruction */
        const __m512i pair = _mm512_maddubs_epi16(v, _mm512_set1_epi16(0x1001));
        _mm256_storeu_si256((__m256i *)(void *)out, _mm512_cvtepi16_epi8(pair));
        return;
    }
    const __m512i low8 = _mm512_set1_epi16((short)((1 << bits) - 1));
    const __m512i low16 = _mm512_set1_epi32((1 << 2 * bits) - 1);
    const __m512i low32 = _mm512_set1_epi64((long long)((1ull << 4 * bits) - 1));
    const __m128i by8 = _mm_cvtsi32_si128((int)(8 - bits));
    const __m128i by16 = _mm_cvtsi32_si128((int)(16 - 2 * bits));
    const __m128i by32 = _mm_cvtsi32_si128((int)(32 - 4 * bits));
    /* 0xCA: where the mask is set the first, elsewhere the second */
    v = _mm512_ternarylogic_epi32(low8, v, _mm512_srl_epi16(v, by8), 0xCA);
    v = _mm512_ternarylogic_epi32(low16, v, _mm512_srl_epi32(v, by16), 0xCA);
    v = _mm512_ternarylogic_epi32(low32, v, _mm512_srl_epi64(v, by32), 0xCA);
    uint64_t field[8];
    _mm512_storeu_si512(field, v);
    gw_fields_store(field, 8, bits, out);
}

GW_INLINE void encode_codes_bits(const gw_bucket *b, const float *x, size_t n, gw_random_pair k,
                                 uint64_t index, uint8_t *out, uint32_t bits, int nearest)
{
    const size_t ahead = gw_bucket_ahead(n);
    gw_bucket q = *b; /* out may alias *b, but not this */
    q.bits = bits;    /* now known to the compiler */
    const __m512i top = _mm512_set1_epi8((char)b->levels), offset = _mm512_set1_epi8(LEVEL_OFFSET);
    const __m512i sign_bit = _mm512_set1_epi8((char)(1 << (bits - 1)));
    const __m512i middle = _mm512_set1_epi32(1 << (GW_MANT_BITS - 1));
    gw_random_avx512 random = gw_random_avx512_at(k, index);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, out += 8 * bits) {
        gw_prefetch(x + i, ahead, GROUP * sizeof *x);
        __m512i v[4], level[4], r[4] = {middle, middle, middle, middle};
        if (!nearest) {
            gw_random_avx512_next(&random, r);
            gw_random_avx512_next(&random, r + 2);
        }
        for (int j = 0; j < 4; j++) {
            v[j] = _mm512_loadu_si512(x + i + 16 * j);
            level[j] = levels16(&q, _mm512_castsi512_ps(abs16(v[j])), r[j]);
        }
        const __m512i l01 = _mm512_packus_epi32(level[0], level[1]);
        const __m512i l23 = _mm512_packus_epi32(level[2], level[3]);
        const __m512i s01 = _mm512_packs_epi32(v[0], v[1]), s23 = _mm512_packs_epi32(v[2], v[3]);
        const __m512i packed = _mm512_packus_epi16(l01, l23);
        const __m512i l = _mm512_min_epu8(_mm512_sub_epi8(packed, offset), top);
        const __mmask64 negative =
            _mm512_movepi8_mask(_mm512_packs_epi16(s01, s23)) & _mm512_test_epi8_mask(l, l);
        const __m512i code = in_order(_mm512_mask_add_epi8(l, negative, l, sign_bit));
        if (bits == 8) {
            _mm512_storeu_si512(out, code);
        } else {
            pack64(code, bits, out);
        }
    }
    encode_by_core(b, x + i, n - i, k, index + i, out);
}

/* 8 · bits bytes -> 64 codes, one a byte: pack64 backwards. */
GW_INLINE __m512i unpack64(const uint8_t *in, uint32_t bits)
{
    __m512i v = _mm512_setr_epi64(gw_field_load(in, 0, 8, bits), gw_field_load(in, 1, 8, bits),
                                  gw_field_load(in, 2, 8, bits), gw_field_load(in, 3, 8, bits),
                                  gw_field_load(in, 4, 8, bits), gw_field_load(in, 5, 8, bits),
                                  gw_field_load(in, 6, 8, bits), gw_field_load(in, 7, 8, bits));
    const __m128i by8 = _mm_cvtsi32_si128((int)(8 - bits));
    const __m128i by16 = _mm_cvtsi32_si128((int)(16 - 2 * bits));
    const __m128i by32 = _mm_cvtsi32_si128((int)(32 - 4 * bits));
    v = _mm512_ternarylogic_epi32(_mm512_set1_epi64(0xFFFFFFFF), v, _mm512_sll_epi64(v, by32),
                                  0xCA);
    v = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xFFFF), v, _mm512_sll_epi32(v, by16), 0xCA);
    v = _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xFF), v, _mm512_sll_epi16(v, by8), 0xCA);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)((1 << bits) - 1)));
}

/* The numbers of sixteen codes, one a dword. */
static inline __m512 values16(const gw_bucket *b, __m512i code, uint32_t bits)
{
    const __m512i level = _mm512_and_si512(code, _mm512_set1_epi32((int)b->levels));
    const __m512 size = _mm512_mul_ps(_mm512_set1_ps(b->scale), fractions16(b, level));
    const __m512i sign = _mm512_slli_epi32(code, (unsigned)(32 - bits));
    const __m512i sign_bit = _mm512_set1_epi32((int)GW_SIGN_BIT);
    /* size | (sign & sign_bit) */
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(_mm512_castps_si512(size), sign, sign_bit, 0xF8));
}

static inline void put16(float *out, gw_apply how, __m512 value)
{
    _mm512_storeu_ps(out, how == GW_ADD ? _mm512_add_ps(_mm512_loadu_ps(out), value) : value);
}

/* 64 codes of four bits: a bucket has only sixteen values, and a register holds them all. Every dword
 * of codes is copied to eight lanes, each lane shifts to its own code, and its low four bits select. */
static inline void decode4_64(__m512 table, const uint8_t *codes, gw_apply how, float *out)
{
    const __m512i shift =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i v =
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)codes));
    for (int j = 0; j < 4; j++) {
        const __m512i dword = _mm512_add_epi32(first, _mm512_set1_epi32(2 * j));
        const __m512i code = _mm512_srlv_epi32(_mm512_permutexvar_epi32(dword, v), shift);
        put16(out + 16 * j, how, _mm512_permutexvar_ps(code, table));
    }
}

GW_INLINE void decode_codes_bits(const gw_bucket *b, const uint8_t *codes, size_t n, gw_apply how,
                                 float *out, uint32_t bits)
{
    const gw_bucket q = *b; /* out may alias *b, but not this */
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 table = values16(&q, lane, bits);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, codes += 8 * bits) {
        if (bits == 4) {
            decode4_64(table, codes, how, out + i);
            continue;
        }
        const __m512i v = bits == 8 ? _mm512_loadu_si512(codes) : unpack64(codes, bits);
        const __m128i quarter[4] = {_mm512_castsi512_si128(v), _mm512_extracti32x4_epi32(v, 1),
                                    _mm512_extracti32x4_epi32(v, 2),
                                    _mm512_extracti32x4_epi32(v, 3)};
        for (int j = 0; j < 4; j++) {
            put16(out + i + 16 * j, how, values16(&q, _mm512_cvtepu8_epi32(quarter[j]), bits));
        }
    }
    decode_by_core(b, codes, n - i, how, out + i);
}

#include "codec/bucket/bucket_widths.h"
