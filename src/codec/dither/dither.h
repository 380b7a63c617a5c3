/* What bucket_walk.h and the loops need to know of linear dithering. */
#ifndef GW_DITHER_H
#define GW_DITHER_H

#include "codec/bucket/bucket.h"
#include "codec/dither/dither_core.h"

enum { GW_DITHER_ROUNDING = GW_BUCKET_COMMON };

#define NAME(suffix)          gw_dither_##suffix
#define FACTOR(scale, levels) gw_dither_factor(scale, levels)
#define NEAREST(params)       (gw_param(params, GW_DITHER_ROUNDING) == 1)

#endif
