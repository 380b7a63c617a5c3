/* topk's loop, 32 numbers at a time. Plain stores: nothing was measured that asks for more. */
#include "base/neon.h"
#include "codec/topk/topk.h"

enum { GROUP = 32 };

GW_INLINE size_t collect_how(const gw_fed_block *f, size_t n, uint32_t first, uint32_t least,
                             int clear, int keep, uint32_t *index, float *value)
{
    const uint32x4_t limit = vdupq_n_u32(least), cleared = vdupq_n_u32(clear ? UINT32_MAX : 0);
    size_t found = 0, i = 0;
    for (; i + GROUP <= n; i += GROUP) { /* most groups have none: one branch for eight registers */
        uint32x4_t v[8], ge[8], any = vdupq_n_u32(0);
        for (size_t j = 0; j < 8; j++) {
            const size_t at = i + 4 * j;
            v[j] = gw_neon_load4(f->g + at);
            if (keep) {
                const float32x4_t r = vreinterpretq_f32_u32(gw_neon_load4(f->r + at));
                v[j] = vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(v[j]), r));
            }
            ge[j] = vcgeq_u32(gw_neon_abs4(v[j]), limit);
            any = vorrq_u32(any, ge[j]);
            if (keep) {
                const uint32x4_t left = vbicq_u32(v[j], vandq_u32(ge[j], cleared));
                vst1q_f32(f->after + at, vreinterpretq_f32_u32(left));
            }
        }
        if (vmaxvq_u32(any) == 0) {
            continue;
        }
        float group[GROUP]; /* r′ may be g, which is gone */
        for (size_t j = 0; j < 8; j++) {
            vst1q_f32(group + 4 * j, vreinterpretq_f32_u32(v[j]));
        }
        uint32_t large = gw_neon_mask32(gw_neon_negative(ge), gw_neon_negative(ge + 4));
        for (; large != 0; large &= large - 1) {
            const uint32_t at = (uint32_t)__builtin_ctz(large);
            index[found] = first + (uint32_t)i + at;
            value[found++] = group[at];
        }
    }
    const gw_fed_block rest = gw_feedback_at(f, i);
    return found + gw_topk_scalar.collect(&rest, n - i, first + (uint32_t)i, least, clear,
                                          index + found, value + found);
}

static size_t collect(const gw_fed_block *f, size_t n, uint32_t first, uint32_t least, int clear,
                      uint32_t *index, float *value)
{
    const gw_fed_block here = *f; /* the results may alias *f, but not this */
    return here.r == NULL ? collect_how(&here, n, first, least, clear, 0, index, value)
                          : collect_how(&here, n, first, least, clear, 1, index, value);
}

const gw_topk_kernels gw_topk_neon = {collect};
