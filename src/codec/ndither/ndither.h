/* What bucket_walk.h and the loops need to know of natural dithering. */
#ifndef GW_NDITHER_H
#define GW_NDITHER_H

#include "codec/bucket/bucket.h"
#include "codec/ndither/ndither_core.h"

#define NAME(suffix)          gw_ndither_##suffix
#define FACTOR(scale, levels) gw_ndither_factor(scale)
#define NEAREST(params)       0

#endif
