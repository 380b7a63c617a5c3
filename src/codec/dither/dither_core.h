/* Linear dithering of one number (QSGD with the maximum as norm): docs/numerics.md section 4. */
#ifndef GW_DITHER_CORE_H
#define GW_DITHER_CORE_H

#include "base/numeric.h"

/* Slightly more than 1, so that the bucket's maximum reaches its level for every r. */
#define GW_DITHER_LIFT (1.0f + 0x1p-22f)

/* h, for a scale that gw_bucket_pre has brought into range. */
GW_HD static inline float gw_dither_factor(float scale, uint32_t levels)
{
    return (float)levels * 0x1p23f * GW_DITHER_LIFT / scale;
}

/* q: |x| as a level in fixed point with 23 fraction bits. `size` is |x| · P. Below 2^31: the signed conversion is
 * the one that compilers have vectors for. */
GW_HD static inline uint32_t gw_dither_fixed(float size, float factor)
{
    return (uint32_t)(int32_t)(size * factor);
}

GW_HD static inline uint32_t gw_dither_level(float size, float factor, uint32_t levels, uint32_t r)
{
    const uint32_t k = (gw_dither_fixed(size, factor) + r) >> GW_MANT_BITS;
    return k < levels ? k : levels;
}

/* λ(k) */
GW_HD static inline float gw_dither_fraction(uint32_t k, uint32_t levels)
{
    return (float)(int32_t)k * (1.0f / (float)levels);
}

#endif
