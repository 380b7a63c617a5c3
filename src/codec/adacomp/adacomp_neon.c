/* AdaComp, four numbers at a time; marks of sixteen; the end of a bin by the core. */
#include "base/neon.h"
#include "codec/adacomp/adacomp.h"

static uint32_t sums(const gw_adacomp_block *b, size_t i, size_t n)
{
    const float32x4_t d = vdupq_n_f32(b->d);
    const uint32x4_t sign = vdupq_n_u32(GW_SIGN_BIT);
    uint32x4_t tops = vdupq_n_u32(0);
    size_t j = 0;
    for (; j + 4 <= n; j += 4) {
        const float32x4_t g = vreinterpretq_f32_u32(gw_neon_load4(b->g + i + j));
        const float32x4_t G =
            b->r != NULL ? vaddq_f32(g, vreinterpretq_f32_u32(gw_neon_load4(b->r + i + j))) : g;
        const uint32x4_t H = vreinterpretq_u32_f32(vaddq_f32(G, vmulq_f32(g, d)));
        const uint32x4_t bits = vreinterpretq_u32_f32(G), a = gw_neon_abs4(bits);
        const uint32x4_t key = vandq_u32(vbslq_u32(sign, bits, H), vtstq_u32(a, a));
        tops = vmaxq_u32(tops, a);
        vst1q_u8((uint8_t *)(b->G + i + j), vreinterpretq_u8_u32(bits));
        vst1q_u32(b->keys + j, key);
    }
    const uint32_t head = vmaxvq_u32(tops), tail = gw_adacomp_tail(b, i, j, n);
    return head > tail ? head : tail;
}

/* Most sixteens mark nothing: seen before their bits are gathered. */
static inline uint64_t marks(const uint32_t *keys, uint32_t limit)
{
    const uint32x4_t least = vdupq_n_u32(limit);
    uint64_t word = 0;
    for (size_t j = 0; j < 64; j += 16) {
        uint32x4_t large[4];
        for (size_t k = 0; k < 4; k++) {
            large[k] = vcgeq_u32(gw_neon_abs4(vld1q_u32(keys + j + 4 * k)), least);
        }
        const uint8x16_t some = gw_neon_negative(large);
        if (vmaxvq_u8(some) != 0) {
            const uint8x16_t bit = vandq_u8(some, gw_neon_bit_of_byte());
            const uint32_t low = vaddv_u8(vget_low_u8(bit)), high = vaddv_u8(vget_high_u8(bit));
            word |= (uint64_t)(low | high << 8) << j;
        }
    }
    return word;
}

#include "codec/adacomp/adacomp_bins.h"

const gw_adacomp_kernels gw_adacomp_neon = {bins, NULL};
