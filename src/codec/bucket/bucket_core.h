/* What both dithers do with a bucket: docs/numerics.md section 4. */
#ifndef GW_BUCKET_CORE_H
#define GW_BUCKET_CORE_H

#include "base/numeric.h"

#include <gradwire/base.h>

#include <math.h>

/* Parameters that both have, in this order. */
enum { GW_BUCKET_BITS, GW_BUCKET_SIZE, GW_BUCKET_NORM, GW_BUCKET_COMMON };
enum { GW_BUCKET_HEADER = 4 }; /* the scale's bytes */

enum { GW_BUCKET_LANES = 32 };

/* P of the sum of squares: keeps it away from overflow and from subnormals. `top` is the largest |bits|. */
GW_HD static inline float gw_bucket_square_pre(uint32_t top)
{
    return top > 0x5D800000u /* 2^60 */ ? 0x1p-80f : top < 0x33800000u /* 2^-24 */ ? 0x1p80f : 1.0f;
}

/* The largest finite number of a tensor's dtype: what is decoded must not overflow there. */
GW_HD static inline float gw_bucket_most(gw_dtype dtype)
{
    return gw_float(dtype == GW_F16 ? 0x477FE000u : dtype == GW_BF16 ? 0x7F7F0000u : 0x7F7FFFFFu);
}

/* The Euclidean norm from the sum of squares; never below the largest magnitude, never above `most`. */
GW_HD static inline float gw_bucket_norm_of(float sum, float pre, uint32_t top, float most)
{
    const float norm = sqrtf(sum) / pre, least = gw_float(top);
    return norm > most ? most : norm > least ? norm : least;
}

/* The same from the lane sums of squares, which it folds up. */
GW_HD static inline float gw_bucket_norm(float lane[GW_BUCKET_LANES], float pre, uint32_t top,
                                         float most)
{
    for (int half = GW_BUCKET_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return gw_bucket_norm_of(lane[0], pre, top, most);
}

/* P of numerics.md: brings the scale to where its reciprocal is a normal number. */
GW_HD static inline float gw_bucket_pre(float scale)
{
    return scale < 0x1p-60f ? 0x1p64f : scale > 0x1p100f ? 0x1p-64f : 1.0f;
}

#endif
