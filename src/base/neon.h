/* What every NEON file needs: loads without alignment, and sixteen dwords to sixteen bytes. */
#ifndef GW_BASE_NEON_H
#define GW_BASE_NEON_H

#include "base/numeric.h"

#include <arm_neon.h>

static inline uint32x4_t gw_neon_load4(const void *p)
{
    return vreinterpretq_u32_u8(vld1q_u8(p));
}

static inline uint32x4_t gw_neon_abs4(uint32x4_t bits)
{
    return vandq_u32(bits, vdupq_n_u32(GW_ABS_MASK));
}

/* 0, 1, 2, 3 */
static inline uint32x4_t gw_neon_count4(void)
{
    static const uint32_t count[4] = {0, 1, 2, 3};
    return vld1q_u32(count);
}

/* 1, 2, 4, … 128, twice: the bit that each of sixteen bytes has in a mask. */
static inline uint8x16_t gw_neon_bit_of_byte(void)
{
    return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
}

/* Sixteen dwords as bytes, 255 for what is larger. */
static inline uint8x16_t gw_neon_bytes(const uint32x4_t v[4])
{
    const uint16x8_t low = vqmovn_high_u32(vqmovn_u32(v[0]), v[1]);
    const uint16x8_t high = vqmovn_high_u32(vqmovn_u32(v[2]), v[3]);
    return vqmovn_high_u16(vqmovn_u16(low), high);
}

/* All ones for each of sixteen dwords whose top bit is set, else 0. */
static inline uint8x16_t gw_neon_negative(const uint32x4_t v[4])
{
    const uint16x8_t low = vshrn_high_n_u32(vshrn_n_u32(v[0], 16), v[1], 16);
    const uint16x8_t high = vshrn_high_n_u32(vshrn_n_u32(v[2], 16), v[3], 16);
    const uint8x16_t top = vshrn_high_n_u16(vshrn_n_u16(low, 8), high, 8);
    return vcltzq_s8(vreinterpretq_s8_u8(top));
}

/* Bit i of the mask is byte i's, all of whose bits are alike. */
static inline uint32_t gw_neon_mask32(uint8x16_t a, uint8x16_t b)
{
    const uint8x16_t bit = gw_neon_bit_of_byte();
    uint8x16_t sums = vpaddq_u8(vandq_u8(a, bit), vandq_u8(b, bit));
    sums = vpaddq_u8(sums, sums);
    sums = vpaddq_u8(sums, sums);
    return vgetq_lane_u32(vreinterpretq_u32_u8(sums), 0);
}

#endif
