/* gw_random_r23 for 32 consecutive elements, beginning at a multiple of 32. */
#ifndef GW_BASE_RANDOM_NEON_H
#define GW_BASE_RANDOM_NEON_H

#include "base/neon.h"
#include "base/random.h"

typedef struct gw_random_neon {
    uint32x4_t x, k1; /* x = k0 + number · STEP of the next four words */
} gw_random_neon;

static inline gw_random_neon gw_random_neon_at(gw_random_pair k, uint64_t index)
{
    const uint32_t first = k.k0 + gw_random_number(index) * GW_RANDOM_STEP;
    const uint32x4_t steps = vmulq_n_u32(gw_neon_count4(), GW_RANDOM_STEP);
    return (gw_random_neon){vaddq_u32(vdupq_n_u32(first), steps), vdupq_n_u32(k.k1)};
}

static inline uint32x4_t gw_random_neon_words(gw_random_neon *s)
{
    uint32x4_t x = s->x;
    s->x = vaddq_u32(x, vdupq_n_u32(4u * GW_RANDOM_STEP));
    x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32(x, 16)), GW_RANDOM_MUL1);
    x = veorq_u32(veorq_u32(x, s->k1), vshrq_n_u32(x, 15));
    x = vmulq_n_u32(x, GW_RANDOM_MUL2);
    return veorq_u32(x, vshrq_n_u32(x, 16));
}

/* Elements 4i … 4i + 3 into r[i]. */
static inline void gw_random_neon_next(gw_random_neon *s, uint32x4_t r[8])
{
    for (int i = 0; i < 4; i++) {
        const uint32x4_t word = gw_random_neon_words(s);
        const uint16x8_t halves = vrev32q_u16(vreinterpretq_u16_u32(word)); /* a rotation by 16 */
        r[i] = vshrq_n_u32(word, 9);
        r[i + 4] = vshrq_n_u32(vreinterpretq_u32_u16(halves), 9);
    }
}

#endif
