/* The loops that bucket_walk.h asks for, 32 numbers at a time: the shape of bucket_avx512.h. The
 * including file defines, before, for eight numbers:
 *   LEVEL_OFFSET               what levels8 adds to every level
 *   levels8(b, size, r)        levels, offset added, not yet clamped to b->levels, but below 256
 *   fractions8(b, level)       λ(level) */

#include "base/random_avx2.h"

enum { GROUP = 32 };

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i abs8(__m256i x)
{
    return _mm256_and_si256(x, _mm256_set1_epi32((int)GW_ABS_MASK));
}

static uint32_t max_abs(const float *x, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    uint32_t lane[8], largest = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a = _mm256_max_epu32(a, abs8(load(x + i)));
        b = _mm256_max_epu32(b, abs8(load(x + i + 8)));
    }
    _mm256_storeu_si256((__m256i *)(void *)lane, _mm256_max_epu32(a, b));
    for (size_t j = 0; j < 8; j++) {
        largest = lane[j] > largest ? lane[j] : largest;
    }
    for (; i < n; i++) {
        const uint32_t bits = gw_bits(x[i]) & GW_ABS_MASK;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Packing interleaves the 128-bit lanes; this permutation of dwords puts bytes in order. */
static inline __m256i in_order(__m256i packed)
{
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Where the mask is set the first, elsewhere the second. */
static inline __m256i choose(__m256i mask, __m256i a, __m256i b)
{
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}

/* 32 codes of `bits` bits, one a byte -> 4 · bits bytes: see bucket_avx512.h. */
GW_INLINE void pack32(__m256i v, uint32_t bits, uint8_t *out)
{
    if (bits == 4) { /* a pair is low + 16 · high, one instruction */
        const __m256i pair = _mm256_maddubs_epi16(v, _mm256_set1_epi16(0x1001));
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(pair, pair), 0x08);
        _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(bytes));
        return;
    }
    const __m256i low8 = _mm256_set1_epi16((short)((1 << bits) - 1));
    const __m256i low16 = _mm256_set1_epi32((1 << 2 * bits) - 1);
    const __m256i low32 = _mm256_set1_epi64x((long long)((1ull << 4 * bits) - 1));
    const __m128i by8 = _mm_cvtsi32_si128((int)(8 - bits));
    const __m128i by16 = _mm_cvtsi32_si128((int)(16 - 2 * bits));
    const __m128i by32 = _mm_cvtsi32_si128((int)(32 - 4 * bits));
    v = choose(low8, v, _mm256_srl_epi16(v, by8));
    v = choose(low16, v, _mm256_srl_epi32(v, by16));
    v = choose(low32, v, _mm256_srl_epi64(v, by32));
    uint64_t field[4];
    _mm256_storeu_si256((__m256i *)(void *)field, v);
    gw_fields_store(field, 4, bits, out);
}

GW_INLINE void encode_codes_bits(const gw_bucket *b, const float *x, size_t n, gw_random_pair k,
                                 uint64_t index, uint8_t *out, uint32_t bits, int nearest)
{
    const size_t ahead = gw_bucket_ahead(n);
    gw_bucket q = *b; /* out may alias *b, but not this */
    q.bits = bits;    /* now known to the compiler */
    const __m256i top = _mm256_set1_epi8((char)b->levels), offset = _mm256_set1_epi8(LEVEL_OFFSET);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i sign_bit = _mm256_set1_epi8((char)(1 << (bits - 1)));
    const __m256i middle = _mm256_set1_epi32(1 << (GW_MANT_BITS - 1));
    gw_random_avx2 random = gw_random_avx2_at(k, index);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, out += 4 * bits) {
        gw_prefetch(x + i, ahead, GROUP * sizeof *x);
        __m256i v[4], level[4], r[4] = {middle, middle, middle, middle};
        if (!nearest) {
            gw_random_avx2_next(&random, r);
        }
        for (int j = 0; j < 4; j++) {
            v[j] = load(x + i + 8 * j);
            level[j] = levels8(&q, _mm256_castsi256_ps(abs8(v[j])), r[j]);
        }
        const __m256i l01 = _mm256_packus_epi32(level[0], level[1]);
        const __m256i l23 = _mm256_packus_epi32(level[2], level[3]);
        const __m256i s01 = _mm256_packs_epi32(v[0], v[1]), s23 = _mm256_packs_epi32(v[2], v[3]);
        const __m256i packed = _mm256_packus_epi16(l01, l23);
        const __m256i l = _mm256_min_epu8(_mm256_sub_epi8(packed, offset), top);
        /* all ones where the number is negative, by a signed comparison of its packed sign */
        const __m256i negative = _mm256_cmpgt_epi8(zero, _mm256_packs_epi16(s01, s23));
        const __m256i sign =
            _mm256_andnot_si256(_mm256_cmpeq_epi8(l, zero), _mm256_and_si256(negative, sign_bit));
        const __m256i code = in_order(_mm256_or_si256(l, sign));
        if (bits == 8) {
            _mm256_storeu_si256((__m256i *)(void *)out, code);
        } else {
            pack32(code, bits, out);
        }
    }
    encode_by_core(b, x + i, n - i, k, index + i, out);
}

/* 4 · bits bytes -> 32 codes, one a byte: pack32 backwards. */
GW_INLINE __m256i unpack32(const uint8_t *in, uint32_t bits)
{
    const __m128i by8 = _mm_cvtsi32_si128((int)(8 - bits));
    const __m128i by16 = _mm_cvtsi32_si128((int)(16 - 2 * bits));
    const __m128i by32 = _mm_cvtsi32_si128((int)(32 - 4 * bits));
    __m256i v = _mm256_setr_epi64x(gw_field_load(in, 0, 4, bits), gw_field_load(in, 1, 4, bits),
                                   gw_field_load(in, 2, 4, bits), gw_field_load(in, 3, 4, bits));
    v = _mm256_blend_epi32(v, _mm256_sll_epi64(v, by32), 0xAA);
    v = _mm256_blend_epi16(v, _mm256_sll_epi32(v, by16), 0xAA);
    v = choose(_mm256_set1_epi16(0xFF), v, _mm256_sll_epi16(v, by8));
    return _mm256_and_si256(v, _mm256_set1_epi8((char)((1 << bits) - 1)));
}

/* The numbers of eight codes, one a dword; `size` is the magnitude of each. */
static inline __m256 with_sign(__m256 size, __m256i code, uint32_t bits)
{
    const __m256i sign_bit = _mm256_set1_epi32((int)GW_SIGN_BIT);
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(code, (int)(32 - bits)), sign_bit);
    return _mm256_or_ps(size, _mm256_castsi256_ps(sign));
}

static inline __m256 sizes8(const gw_bucket *b, __m256i code)
{
    const __m256i level = _mm256_and_si256(code, _mm256_set1_epi32((int)b->levels));
    return _mm256_mul_ps(_mm256_set1_ps(b->scale), fractions8(b, level));
}

static inline void put8(float *out, gw_apply how, __m256 value)
{
    _mm256_storeu_ps(out, how == GW_ADD ? _mm256_add_ps(_mm256_loadu_ps(out), value) : value);
}

/* 32 codes of four bits: a bucket has eight magnitudes, and a register holds them all. Every dword of
 * codes is copied to eight lanes, each lane shifts to its own code, whose low three bits select. */
static inline void decode4_32(__m256 table, const uint8_t *codes, gw_apply how, float *out)
{
    const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for (int j = 0; j < 4; j++) {
        const __m256i dword = _mm256_set1_epi32((int)gw_get_u32(codes + 4 * j));
        const __m256i code = _mm256_srlv_epi32(dword, shift);
        put8(out + 8 * j, how, with_sign(_mm256_permutevar8x32_ps(table, code), code, 4));
    }
}

GW_INLINE void decode_codes_bits(const gw_bucket *b, const uint8_t *codes, size_t n, gw_apply how,
                                 float *out, uint32_t bits)
{
    const gw_bucket q = *b; /* out may alias *b, but not this */
    const __m256 table = sizes8(&q, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, codes += 4 * bits) {
        if (bits == 4) {
            decode4_32(table, codes, how, out + i);
            continue;
        }
        const __m256i v = bits == 8 ? load(codes) : unpack32(codes, bits);
        const __m128i half[2] = {_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)};
        const __m128i quarter[4] = {half[0], _mm_unpackhi_epi64(half[0], half[0]), half[1],
                                    _mm_unpackhi_epi64(half[1], half[1])};
        for (int j = 0; j < 4; j++) {
            const __m256i code = _mm256_cvtepu8_epi32(quarter[j]);
            put8(out + i + 8 * j, how, with_sign(sizes8(&q, code), code, bits));
        }
    }
    decode_by_core(b, codes, n - i, how, out + i);
}

#include "codec/bucket/bucket_widths.h"
