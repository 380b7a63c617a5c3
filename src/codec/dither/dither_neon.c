/* Linear dithering, NEON. */
#include "codec/dither/dither.h"

#include <arm_neon.h>
#include <string.h>

#include "codec/bucket/bucket_by_core.h"

#define LEVEL_OFFSET 0

static inline uint32x4_t levels4(const gw_bucket *b, float32x4_t size, uint32x4_t r)
{
    const uint32x4_t q = vcvtq_u32_f32(vmulq_f32(size, vdupq_n_f32(b->factor))); /* truncates */
    return vshrq_n_u32(vaddq_u32(q, r), GW_MANT_BITS);
}

static inline float32x4_t fractions4(const gw_bucket *b, uint32x4_t level)
{
    return vmulq_f32(vcvtq_f32_u32(level), vdupq_n_f32(1.0f / (float)b->levels));
}

#include "codec/bucket/bucket_neon.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_dither_neon = {encode, decode};
