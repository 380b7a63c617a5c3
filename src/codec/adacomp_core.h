/* AdaComp of one number: docs/numerics.md section 8 (Chen et al., "AdaComp: Adaptive Residual Gradient
 * Compression for Data-Parallel Distributed Training", AAAI 2018). */
#ifndef GW_ADACOMP_CORE_H
#define GW_ADACOMP_CORE_H

#include "base/numeric.h"

/* Is it sent? G is the number with its residual, g the newest gradient, d the factor less one, `top` the
 * largest |bits| of G in the bin. */
GW_HD static inline int gw_adacomp_sends(float G, float g, float d, uint32_t top)
{
    const float soft = g * d;
    const float H = G + soft;
    return (gw_bits(H) & GW_ABS_MASK) >= top && (gw_bits(G) & GW_ABS_MASK) != 0;
}

/* S or −S, by the sign of G. */
GW_HD static inline float gw_adacomp_value(float scale, uint32_t negative)
{
    return gw_float(gw_bits(scale) | negative << 31);
}

#endif
