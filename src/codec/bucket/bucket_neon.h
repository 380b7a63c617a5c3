/* The loops that bucket_walk.h asks for, 32 numbers at a time: the shape of bucket_avx2.h. The
 * including file defines, before, for four numbers:
 *   LEVEL_OFFSET               what levels4 adds to every level
 *   levels4(b, size, r)        levels, offset added, not yet clamped to b->levels, but below 256
 *   fractions4(b, level)       λ(level) */

#include "base/random_neon.h"

enum { GROUP = 32 };

static uint32_t max_abs(const float *x, size_t n)
{
    uint32x4_t a = vdupq_n_u32(0), b = a;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        a = vmaxq_u32(a, gw_neon_abs4(gw_neon_load4(x + i)));
        b = vmaxq_u32(b, gw_neon_abs4(gw_neon_load4(x + i + 4)));
    }
    uint32_t largest = vmaxvq_u32(vmaxq_u32(a, b));
    for (; i < n; i++) {
        const uint32_t bits = gw_bits(x[i]) & GW_ABS_MASK;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Sixteen codes of `bits` bits, one a byte -> two fields: see bucket_avx512.h. */
GW_INLINE uint64x2_t fields16(uint8x16_t codes, uint32_t bits)
{
    const int b = (int)bits; /* shifts to the right have negative counts */
    const uint16x8_t low8 = vdupq_n_u16((uint16_t)((1u << bits) - 1));
    const uint32x4_t low16 = vdupq_n_u32((1u << 2 * bits) - 1);
    const uint64x2_t low32 = vdupq_n_u64((1ull << 4 * bits) - 1);
    const uint16x8_t v8 = vreinterpretq_u16_u8(codes);
    const uint32x4_t v16 =
        vreinterpretq_u32_u16(vbslq_u16(low8, v8, vshlq_u16(v8, vdupq_n_s16((int16_t)(b - 8)))));
    const uint64x2_t v32 =
        vreinterpretq_u64_u32(vbslq_u32(low16, v16, vshlq_u32(v16, vdupq_n_s32(2 * b - 16))));
    return vbslq_u64(low32, v32, vshlq_u64(v32, vdupq_n_s64(4 * b - 32)));
}

/* 32 codes -> 4 · bits bytes. */
GW_INLINE void pack32(uint8x16_t a, uint8x16_t b, uint32_t bits, uint8_t *out)
{
    if (bits == 8) {
        vst1q_u8(out, a);
        vst1q_u8(out + 16, b);
    } else if (bits == 4) { /* odd codes shifted in above even ones */
        vst1q_u8(out, vsliq_n_u8(vuzp1q_u8(a, b), vuzp2q_u8(a, b), 4));
    } else {
        uint64_t field[4];
        vst1q_u64(field, fields16(a, bits));
        vst1q_u64(field + 2, fields16(b, bits));
        gw_fields_store(field, 4, bits, out);
    }
}

GW_INLINE uint8x16_t codes16(const gw_bucket *b, const float *x, const uint32x4_t r[4])
{
    uint32x4_t v[4], level[4];
    for (int j = 0; j < 4; j++) {
        v[j] = gw_neon_load4(x + 4 * j);
        level[j] = levels4(b, vreinterpretq_f32_u32(gw_neon_abs4(v[j])), r[j]);
    }
    const uint8x16_t packed = vsubq_u8(gw_neon_bytes(level), vdupq_n_u8(LEVEL_OFFSET));
    const uint8x16_t l = vminq_u8(packed, vdupq_n_u8((uint8_t)b->levels));
    const uint8x16_t sign = vandq_u8(gw_neon_negative(v), vdupq_n_u8((uint8_t)(b->levels + 1)));
    return vorrq_u8(l, vandq_u8(sign, vtstq_u8(l, l)));
}

GW_INLINE void encode_codes_bits(const gw_bucket *b, const float *x, size_t n, gw_random_pair k,
                                 uint64_t index, uint8_t *out, uint32_t bits, int nearest)
{
    const size_t ahead = gw_bucket_ahead(n);
    gw_bucket q = *b; /* out may alias *b, but not this */
    q.bits = bits;    /* now known to the compiler */
    const uint32x4_t middle = vdupq_n_u32(1u << (GW_MANT_BITS - 1));
    gw_random_neon random = gw_random_neon_at(k, index);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, out += 4 * bits) {
        gw_prefetch(x + i, ahead, GROUP * sizeof *x);
        uint32x4_t r[8] = {middle, middle, middle, middle, middle, middle, middle, middle};
        if (!nearest) {
            gw_random_neon_next(&random, r);
        }
        pack32(codes16(&q, x + i, r), codes16(&q, x + i + 16, r + 4), bits, out);
    }
    encode_by_core(b, x + i, n - i, k, index + i, out);
}

/* Codes 16 · half … 16 · half + 15 of the 32 in 4 · bits bytes, one a byte: fields16 backwards. */
GW_INLINE uint8x16_t unpack16(const uint8_t *in, size_t half, uint32_t bits)
{
    if (bits == 8) {
        return vld1q_u8(in + 16 * half);
    }
    const int b = (int)bits;
    const uint64x2_t v64 =
        vcombine_u64(vcreate_u64((uint64_t)gw_field_load(in, 2 * half, 4, bits)),
                     vcreate_u64((uint64_t)gw_field_load(in, 2 * half + 1, 4, bits)));
    const uint32x4_t v32 = vreinterpretq_u32_u64(
        vbslq_u64(vdupq_n_u64(0xFFFFFFFF), v64, vshlq_u64(v64, vdupq_n_s64(32 - 4 * b))));
    const uint16x8_t v16 = vreinterpretq_u16_u32(
        vbslq_u32(vdupq_n_u32(0xFFFF), v32, vshlq_u32(v32, vdupq_n_s32(16 - 2 * b))));
    const uint8x16_t v8 = vreinterpretq_u8_u16(
        vbslq_u16(vdupq_n_u16(0xFF), v16, vshlq_u16(v16, vdupq_n_s16((int16_t)(8 - b)))));
    return vandq_u8(v8, vdupq_n_u8((uint8_t)((1u << bits) - 1)));
}

/* The numbers of four codes, one a dword. */
GW_INLINE float32x4_t values4(const gw_bucket *b, uint32x4_t code, uint32_t bits)
{
    const uint32x4_t level = vandq_u32(code, vdupq_n_u32(b->levels));
    const float32x4_t size = vmulq_f32(vdupq_n_f32(b->scale), fractions4(b, level));
    const uint32x4_t sign = vshlq_u32(code, vdupq_n_s32(32 - (int)bits));
    /* size, with the sign in place of its own top bit, which is 0 */
    return vbslq_f32(vdupq_n_u32(GW_SIGN_BIT), vreinterpretq_f32_u32(sign), size);
}

static inline void put4(float *out, gw_apply how, float32x4_t value)
{
    vst1q_f32(out, how == GW_ADD ? vaddq_f32(vld1q_f32(out), value) : value);
}

/* All sixteen values that codes of up to four bits can have: byte p of each in val[p]. */
GW_INLINE uint8x16x4_t table_of(const gw_bucket *b, uint32_t bits)
{
    uint8_t bytes[64];
    for (uint32_t j = 0; j < 4; j++) {
        const uint32x4_t code = vaddq_u32(gw_neon_count4(), vdupq_n_u32(4 * j));
        vst1q_u8(bytes + 16 * j, vreinterpretq_u8_f32(values4(b, code, bits)));
    }
    return vld4q_u8(bytes);
}

/* Looks up the four bytes of sixteen numbers, then interleaves them. */
static inline void decode16_by_table(uint8x16x4_t table, uint8x16_t codes, gw_apply how, float *out)
{
    const uint8x16_t b0 = vqtbl1q_u8(table.val[0], codes), b1 = vqtbl1q_u8(table.val[1], codes);
    const uint8x16_t b2 = vqtbl1q_u8(table.val[2], codes), b3 = vqtbl1q_u8(table.val[3], codes);
    const uint16x8x2_t low = {
        {vreinterpretq_u16_u8(vzip1q_u8(b0, b1)), vreinterpretq_u16_u8(vzip2q_u8(b0, b1))}};
    const uint16x8x2_t high = {
        {vreinterpretq_u16_u8(vzip1q_u8(b2, b3)), vreinterpretq_u16_u8(vzip2q_u8(b2, b3))}};
    for (int j = 0; j < 2; j++) {
        const uint16x8_t first = vzip1q_u16(low.val[j], high.val[j]);
        const uint16x8_t second = vzip2q_u16(low.val[j], high.val[j]);
        put4(out + 8 * j, how, vreinterpretq_f32_u16(first));
        put4(out + 8 * j + 4, how, vreinterpretq_f32_u16(second));
    }
}

GW_INLINE void decode16(const gw_bucket *b, uint8x16_t codes, uint32_t bits, gw_apply how,
                        float *out)
{
    const uint16x8_t half[2] = {vmovl_u8(vget_low_u8(codes)), vmovl_high_u8(codes)};
    for (int j = 0; j < 2; j++) {
        const uint32x4_t low = vmovl_u16(vget_low_u16(half[j])), high = vmovl_high_u16(half[j]);
        put4(out + 8 * j, how, values4(b, low, bits));
        put4(out + 8 * j + 4, how, values4(b, high, bits));
    }
}

GW_INLINE void decode_codes_bits(const gw_bucket *b, const uint8_t *codes, size_t n, gw_apply how,
                                 float *out, uint32_t bits)
{
    const gw_bucket q = *b; /* out may alias *b, but not this */
    const uint8x16x4_t table = table_of(&q, bits);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, codes += 4 * bits) {
        uint8x16_t v[2];
        if (bits == 4) {
            const uint8x16_t pairs = vld1q_u8(codes);
            const uint8x16_t even = vandq_u8(pairs, vdupq_n_u8(15)), odd = vshrq_n_u8(pairs, 4);
            v[0] = vzip1q_u8(even, odd);
            v[1] = vzip2q_u8(even, odd);
        } else {
            v[0] = unpack16(codes, 0, bits);
            v[1] = unpack16(codes, 1, bits);
        }
        for (int j = 0; j < 2; j++) {
            if (bits <= 4) {
                decode16_by_table(table, v[j], how, out + i + 16 * j);
            } else {
                decode16(&q, v[j], bits, how, out + i + 16 * j);
            }
        }
    }
    decode_by_core(b, codes, n - i, how, out + i);
}

#include "codec/bucket/bucket_widths.h"
