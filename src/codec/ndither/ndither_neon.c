/* Natural dithering, NEON. */
#include "codec/ndither/ndither.h"

#include <arm_neon.h>
#include <string.h>

#include "codec/bucket/bucket_by_core.h"

#define LEVEL_OFFSET 127

/* Why the unit may join the factor: ndither_avx2.c. */
static inline uint32x4_t levels4(const gw_bucket *b, float32x4_t size, uint32x4_t r)
{
    const float unit = gw_ndither_unit(b->levels);
    const int joined = b->bits < 8;
    float32x4_t z = vmulq_f32(size, vdupq_n_f32(joined ? b->factor * unit : b->factor));
    if (!joined) {
        z = vmulq_f32(z, vdupq_n_f32(unit));
    }
    const float32x4_t u = vmaxq_f32(vaddq_f32(z, vdupq_n_f32(1.0f)), vaddq_f32(z, z));
    return vshrq_n_u32(vaddq_u32(vreinterpretq_u32_f32(u), r), GW_MANT_BITS);
}

static inline float32x4_t fractions4(const gw_bucket *b, uint32x4_t level)
{
    const uint32x4_t e = vaddq_u32(level, vdupq_n_u32(127 - b->levels));
    const uint32x4_t some = vtstq_u32(level, level);
    return vreinterpretq_f32_u32(vandq_u32(vshlq_n_u32(e, GW_MANT_BITS), some));
}

#include "codec/bucket/bucket_neon.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_ndither_neon = {encode, decode};
