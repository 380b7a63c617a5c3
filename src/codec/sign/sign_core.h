/* One bit a number: docs/numerics.md section 7. The mean magnitude of a bucket is a sum that reaches the
 * wire, so its order is fixed: 32 strided lanes, then halves upon halves. */
#ifndef GW_SIGN_CORE_H
#define GW_SIGN_CORE_H

#include "base/numeric.h"

enum { GW_SIGN_LANES = 32 };

/* P of numerics.md: keeps the sum of 8192 magnitudes finite. `top` is the largest |bits|. */
GW_HD static inline float gw_sign_pre(uint32_t top)
{
    return top > 0x71800000u /* 2^100 */ ? 0x1p-64f : 1.0f;
}

/* The mean of n magnitudes from their sum. */
GW_HD static inline float gw_sign_mean_of(float sum, size_t n, float pre)
{
    return sum / (float)n / pre;
}

/* The mean of n magnitudes from their lane sums, which it folds up. */
GW_HD static inline float gw_sign_mean(float lane[GW_SIGN_LANES], size_t n, float pre)
{
    for (int half = GW_SIGN_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return gw_sign_mean_of(lane[0], n, pre);
}

/* −0 counts as +0. */
GW_HD static inline uint32_t gw_sign_bit(uint32_t bits)
{
    return bits > GW_SIGN_BIT;
}

#endif
