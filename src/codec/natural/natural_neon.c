/* Natural compression, 32 numbers at a time: the shape of natural_avx2.c, the sign plane taken by
 * adding each byte's own bit to its neighbours'. */
#include "base/random_neon.h"
#include "codec/natural/natural.h"

enum { GROUP = 32 };

/* Sixteen exponent bytes, and in *negative all ones where the number has a sign to keep. */
static inline uint8x16_t exponents16(const float *x, const uint32x4_t r[4], uint8x16_t *negative)
{
    uint32x4_t v[4], e[4];
    for (int j = 0; j < 4; j++) {
        v[j] = gw_neon_load4(x + 4 * j);
        e[j] = vshrq_n_u32(vaddq_u32(gw_neon_abs4(v[j]), r[j]), GW_MANT_BITS);
    }
    const uint8x16_t bytes = gw_neon_bytes(e);
    *negative = vandq_u8(gw_neon_negative(v), vtstq_u8(bytes, bytes));
    return bytes;
}

static gw_natural_extent planes(const float *x, size_t n, gw_random_pair k, uint64_t index,
                                uint8_t *exponents, uint8_t *signs)
{
    gw_random_neon random = gw_random_neon_at(k, index);
    uint8x16_t low = vdupq_n_u8(255), high = vdupq_n_u8(0);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint32x4_t r[8];
        uint8x16_t e[2], negative[2];
        gw_random_neon_next(&random, r);
        for (int j = 0; j < 2; j++) {
            e[j] = exponents16(x + i + 16 * j, r + 4 * j, &negative[j]);
            low = vminq_u8(low, e[j]);
            high = vmaxq_u8(high, e[j]);
            vst1q_u8(exponents + i + 16 * j, e[j]);
        }
        const uint32_t sign = gw_neon_mask32(negative[0], negative[1]);
        memcpy(signs + i / 8, &sign, sizeof sign);
    }
    gw_natural_extent extent = {vminvq_u8(low), vmaxvq_u8(high)};
    const gw_natural_extent tail =
        gw_natural_scalar.planes(x + i, n - i, k, index + i, exponents + i, signs + i / 8);
    extent.low = tail.low < extent.low ? tail.low : extent.low;
    extent.high = tail.high > extent.high ? tail.high : extent.high;
    return extent;
}

static void fold(uint8_t *codes, const uint8_t *signs, size_t n, uint32_t base)
{
    const uint8x16_t below = vdupq_n_u8((uint8_t)(base - 1)), bit = gw_neon_bit_of_byte();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const uint8_t *sign = signs + i / 8;
        const uint8x16_t spread = vcombine_u8(vdup_n_u8(sign[0]), vdup_n_u8(sign[1]));
        const uint8x16_t level = vqsubq_u8(vld1q_u8(codes + i), below);
        const uint8x16_t signed_level = vorrq_u8(level, vdupq_n_u8(0x80));
        const uint8x16_t keep = vandq_u8(vtstq_u8(spread, bit), vtstq_u8(level, level));
        vst1q_u8(codes + i, vbslq_u8(keep, signed_level, level));
    }
    gw_natural_scalar.fold(codes + i, signs + i / 8, n - i, base);
}

static int any_below(const float *x, size_t n, uint32_t limit)
{
    uint32x4_t any = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) { /* a − 1 wraps for zero, which is then not below */
        const uint32x4_t a = vsubq_u32(gw_neon_abs4(gw_neon_load4(x + i)), vdupq_n_u32(1));
        any = vorrq_u32(any, vcltq_u32(a, vdupq_n_u32(limit - 1)));
    }
    return vmaxvq_u32(any) != 0 || gw_natural_scalar.any_below(x + i, n - i, limit);
}

static inline void put4(float *out, gw_apply how, uint32x4_t bits)
{
    const float32x4_t v = vreinterpretq_f32_u32(bits);
    vst1q_f32(out, how == GW_ADD ? vaddq_f32(vld1q_f32(out), v) : v);
}

/* Eight bytes as dwords. */
static inline uint32x4x2_t load8(const uint8_t *bytes)
{
    const uint16x8_t wide = vmovl_u8(vld1_u8(bytes));
    return (uint32x4x2_t){{vmovl_u16(vget_low_u16(wide)), vmovl_high_u16(wide)}};
}

static inline void decode9_how(const uint8_t *exponents, const uint8_t *signs, size_t n,
                               gw_apply how, float *out)
{
    static const int32_t to_top[8] = {31, 30, 29, 28, 27, 26, 25, 24};
    const uint32x4_t bit = vdupq_n_u32(GW_SIGN_BIT);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32x4x2_t e = load8(exponents + i);
        const uint32x4_t byte = vdupq_n_u32(signs[i / 8]);
        for (int j = 0; j < 2; j++) {
            const uint32x4_t sign = vandq_u32(vshlq_u32(byte, vld1q_s32(to_top + 4 * j)), bit);
            put4(out + i + 4 * j, how, vorrq_u32(vshlq_n_u32(e.val[j], GW_MANT_BITS), sign));
        }
    }
    gw_natural_scalar.decode9(exponents + i, signs + i / 8, n - i, how, out + i);
}

/* The loop below makes −0 of a code for a number that was not finite. */
static int any_non_finite(const uint8_t *codes, size_t n)
{
    uint8x16_t any = vdupq_n_u8(0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        any = vorrq_u8(any, vceqq_u8(vld1q_u8(codes + i), vdupq_n_u8(0x80)));
    }
    return vmaxvq_u8(any) != 0 || memchr(codes + i, 0x80, n - i) != NULL;
}

static inline void decode8_how(const uint8_t *codes, size_t n, uint32_t base, gw_apply how,
                               float *out)
{
    const uint32x4_t seven = vdupq_n_u32(0x7F), bit = vdupq_n_u32(GW_SIGN_BIT);
    const uint32x4_t below = vdupq_n_u32(base - 1);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32x4x2_t code = load8(codes + i);
        for (int j = 0; j < 2; j++) {
            const uint32x4_t level = vandq_u32(code.val[j], seven);
            const uint32x4_t e = vshlq_n_u32(vaddq_u32(level, below), GW_MANT_BITS);
            const uint32x4_t some = vandq_u32(e, vtstq_u32(level, level));
            const uint32x4_t sign = vandq_u32(vshlq_n_u32(code.val[j], 24), bit);
            put4(out + i + 4 * j, how, vorrq_u32(some, sign));
        }
    }
    gw_natural_scalar.decode8(codes + i, n - i, base, how, out + i);
}

#include "codec/natural/natural_apply.h"

const gw_natural_kernels gw_natural_neon = {planes, fold, any_below, decode9, decode8};
