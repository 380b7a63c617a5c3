/* Conversions, eight at a time in two registers; tails go to the scalar variant. */
#include "base/convert.h"
#include "base/neon.h"

typedef float32x4x2_t vec;
typedef uint32x4_t ivec;
enum { LANES = 8 };

static inline vec load(gw_dtype from, const uint8_t *src, size_t i)
{
    if (from == GW_F32) {
        return (vec){{vreinterpretq_f32_u32(gw_neon_load4(src + 4 * i)),
                      vreinterpretq_f32_u32(gw_neon_load4(src + 4 * i + 16))}};
    }
    const uint8x16_t bytes = vld1q_u8(src + 2 * i);
    if (from == GW_F16) {
        const float16x8_t half = vreinterpretq_f16_u8(bytes);
        return (vec){{vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)}};
    }
    const uint16x8_t half = vreinterpretq_u16_u8(bytes);
    return (vec){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(half), 16)),
                  vreinterpretq_f32_u32(vshll_high_n_u16(half, 16))}};
}

/* gw_bf16_from_f32; the result stands in the high half of each lane */
static inline uint32x4_t bf16_of(float32x4_t v)
{
    const uint32x4_t b = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(b, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
    const uint32x4_t quiet = vorrq_u32(b, vdupq_n_u32(0x400000));
    const uint32x4_t nan = vcgtq_u32(gw_neon_abs4(b), vdupq_n_u32(GW_INF_BITS));
    return vbslq_u32(nan, quiet, up);
}

static inline void store(gw_dtype to, uint8_t *dst, size_t i, vec v)
{
    if (to == GW_F32) {
        vst1q_u8(dst + 4 * i, vreinterpretq_u8_f32(v.val[0]));
        vst1q_u8(dst + 4 * i + 16, vreinterpretq_u8_f32(v.val[1]));
    } else if (to == GW_F16) {
        const float16x8_t half = vcvt_high_f16_f32(vcvt_f16_f32(v.val[0]), v.val[1]);
        vst1q_u8(dst + 2 * i, vreinterpretq_u8_f16(half));
    } else {
        const uint16x4_t low = vshrn_n_u32(bf16_of(v.val[0]), 16);
        const uint16x8_t half = vshrn_high_n_u32(low, bf16_of(v.val[1]), 16);
        vst1q_u8(dst + 2 * i, vreinterpretq_u8_u16(half));
    }
}

static inline uint32_t top_lane(uint32x4_t v)
{
    return vmaxvq_u32(v);
}

static inline uint32x4_t zero(void)
{
    return vdupq_n_u32(0);
}

static inline uint32x4_t max_abs(uint32x4_t top, vec v)
{
    const uint32x4_t a = gw_neon_abs4(vreinterpretq_u32_f32(v.val[0]));
    const uint32x4_t b = gw_neon_abs4(vreinterpretq_u32_f32(v.val[1]));
    return vmaxq_u32(top, vmaxq_u32(a, b));
}

static inline vec plus(vec a, vec b)
{
    return (vec){{vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1])}};
}

static inline vec minus(vec a, vec b)
{
    return (vec){{vsubq_f32(a.val[0], b.val[0]), vsubq_f32(a.val[1], b.val[1])}};
}

static inline vec times(vec a, vec b)
{
    return (vec){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}

static inline vec over(vec a, vec b)
{
    return (vec){{vdivq_f32(a.val[0], b.val[0]), vdivq_f32(a.val[1], b.val[1])}};
}

static inline vec all(float x)
{
    return (vec){{vdupq_n_f32(x), vdupq_n_f32(x)}};
}

/* Plain stores: nothing was measured that asks for more. */
static inline void store_past(float *dst, vec v)
{
    store(GW_F32, (uint8_t *)dst, 0, v);
}

#include "base/convert_loops.h"

const gw_convert gw_convert_neon = {narrow, widen, add, sum, difference, largest, divide};
