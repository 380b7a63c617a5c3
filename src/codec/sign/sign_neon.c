/* The sign codec, 32 numbers at a time: the 32 lanes of the mean are eight registers. */
#include "base/neon.h"
#include "codec/sign/sign.h"

enum { GROUP = 32 };

static inline float32x4_t load4(const float *x)
{
    return vreinterpretq_f32_u32(gw_neon_load4(x));
}

GW_INLINE uint32_t sums_of(const float *x, const float *r, size_t n, float lane[GW_SIGN_LANES])
{
    float32x4_t sum[8];
    uint32x4_t top = vdupq_n_u32(0);
    size_t i = 0;
    for (int j = 0; j < 8; j++) {
        sum[j] = vdupq_n_f32(0);
    }
    for (; i + GROUP <= n; i += GROUP) {
        for (int j = 0; j < 8; j++) {
            float32x4_t v = load4(x + i + 4 * j);
            v = r != NULL ? vaddq_f32(v, load4(r + i + 4 * j)) : v;
            const uint32x4_t a = gw_neon_abs4(vreinterpretq_u32_f32(v));
            sum[j] = vaddq_f32(sum[j], vreinterpretq_f32_u32(a));
            top = vmaxq_u32(top, a);
        }
    }
    for (int j = 0; j < 8; j++) {
        vst1q_f32(lane + 4 * j, sum[j]);
    }
    uint32_t largest = vmaxvq_u32(top);
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

/* All ones for each of sixteen numbers below zero: −0 is not. */
static inline uint8x16_t below_zero(const float32x4_t v[4])
{
    uint32x4_t below[4];
    for (int j = 0; j < 4; j++) {
        below[j] = vcltzq_f32(v[j]);
    }
    return gw_neon_negative(below);
}

static void signs(const float *x, size_t n, uint8_t *out)
{
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint8x16_t negative[2];
        for (int j = 0; j < 2; j++) {
            const float *p = x + i + 16 * j;
            const float32x4_t v[4] = {load4(p), load4(p + 4), load4(p + 8), load4(p + 12)};
            negative[j] = below_zero(v);
        }
        const uint32_t mask = gw_neon_mask32(negative[0], negative[1]);
        memcpy(out + i / 8, &mask, sizeof mask);
    }
    gw_sign_scalar.signs(x + i, n - i, out + i / 8);
}

/* Plain stores: nothing was measured that asks for more. */
static void keep(const gw_fed_block *f, size_t n, float scale, uint8_t *out)
{
    const gw_fed_block here = *f; /* out may alias *f, but not this */
    const uint32x4_t plus = vreinterpretq_u32_f32(vdupq_n_f32(scale));
    const uint32x4_t bit = vdupq_n_u32(GW_SIGN_BIT);
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP) {
        uint8x16_t negative[2];
        gw_prefetch(here.next[0], 4 * i, sizeof(float) * GROUP);
        gw_prefetch(here.next[1], 4 * i, sizeof(float) * GROUP);
        for (size_t j = 0; j < 2; j++) {
            float32x4_t v[4];
            for (size_t q = 0; q < 4; q++) {
                const size_t e = i + 16 * j + 4 * q;
                v[q] = vaddq_f32(load4(here.g + e), load4(here.r + e));
                const uint32x4_t sent = vorrq_u32(plus, vandq_u32(vcltzq_f32(v[q]), bit));
                vst1q_f32(here.after + e, vsubq_f32(v[q], vreinterpretq_f32_u32(sent)));
            }
            negative[j] = below_zero(v);
        }
        const uint32_t mask = gw_neon_mask32(negative[0], negative[1]);
        memcpy(out + i / 8, &mask, sizeof mask);
    }
    const gw_fed_block rest = gw_feedback_at(&here, i);
    gw_sign_scalar.keep(&rest, n - i, scale, out + i / 8);
}

static inline void decode_how(const uint8_t *bits, size_t n, float scale, gw_apply how, float *out)
{
    static const uint32_t bit_of[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    const float32x4_t plus = vdupq_n_f32(scale), minus = vdupq_n_f32(-scale);
    const uint32x4_t bit[2] = {vld1q_u32(bit_of), vld1q_u32(bit_of + 4)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32x4_t byte = vdupq_n_u32(bits[i / 8]);
        for (size_t j = 0; j < 2; j++) {
            const float32x4_t v = vbslq_f32(vtstq_u32(byte, bit[j]), minus, plus);
            float *o = out + i + 4 * j;
            vst1q_f32(o, how == GW_ADD ? vaddq_f32(load4(o), v) : v);
        }
    }
    gw_sign_scalar.decode(bits + i / 8, n - i, scale, how, out + i);
}

#include "codec/sign/sign_apply.h"

const gw_sign_kernels gw_sign_neon = {sums, signs, keep, decode};
