/* Natural dithering of one number: docs/numerics.md section 4. */
#ifndef GW_NDITHER_CORE_H
#define GW_NDITHER_CORE_H

#include "base/numeric.h"

/* Slightly more than 1, so that the bucket's maximum reaches its level for every r. */
#define GW_NDITHER_LIFT (1.0f + 0x1p-22f)

/* h, for a scale that gw_bucket_pre has brought into range. */
GW_HD static inline float gw_ndither_factor(float scale)
{
    return GW_NDITHER_LIFT / scale;
}

/* 2^(levels − 1): the largest level in units of the smallest. */
GW_HD static inline float gw_ndither_unit(uint32_t levels)
{
    return gw_float((126 + levels) << GW_MANT_BITS);
}

/* |x| as a level, the way to the next one in 23 fraction bits. `size` is |x| · P. Below the smallest level z + 1
 * is the larger and its mantissa is z in fixed point; above, 2z is the larger and its exponent counts
 * levels. */
GW_HD static inline uint32_t gw_ndither_fixed(float size, float factor, uint32_t levels)
{
    const float z = size * factor * gw_ndither_unit(levels);
    const float one = z + 1.0f, two = z + z;
    return gw_bits(one > two ? one : two) - 0x3F800000u;
}

GW_HD static inline uint32_t gw_ndither_level(float size, float factor, uint32_t levels, uint32_t r)
{
    const uint32_t k = (gw_ndither_fixed(size, factor, levels) + r) >> GW_MANT_BITS;
    return k < levels ? k : levels;
}

/* λ(k) = 2^(k − levels), 0 for k = 0 */
GW_HD static inline float gw_ndither_fraction(uint32_t k, uint32_t levels)
{
    return gw_float(k == 0 ? 0 : (127 + k - levels) << GW_MANT_BITS);
}

#endif
