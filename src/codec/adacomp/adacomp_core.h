/* AdaComp of one number: docs/numerics.md section 8 (Chen et al., "AdaComp: Adaptive Residual Gradient
 * Compression for Data-Parallel Distributed Training", AAAI 2018). */
#ifndef GW_ADACOMP_CORE_H
#define GW_ADACOMP_CORE_H

#include "base/numeric.h"

/* What decides whether a number is sent: |H| with the sign of G, and zero where G is. G is the number with its
 * residual, g the newest gradient, d the factor less one. */
GW_HD static inline uint32_t gw_adacomp_key(float G, float g, float d)
{
    const float soft = g * d;
    const float H = G + soft;
    const uint32_t sign = gw_bits(G) & GW_SIGN_BIT;
    return (gw_bits(G) & GW_ABS_MASK) != 0 ? (gw_bits(H) & GW_ABS_MASK) | sign : 0;
}

/* It is sent if |key| is at least this. `top` is the largest |bits| of G in the bin; of a dead bin nothing is sent. */
GW_HD static inline uint32_t gw_adacomp_limit(uint32_t top)
{
    return top > 0 ? top : 1;
}

/* S or −S, by the sign of G. */
GW_HD static inline float gw_adacomp_value(float scale, uint32_t negative)
{
    return gw_float(gw_bits(scale) | negative << 31);
}

#endif
