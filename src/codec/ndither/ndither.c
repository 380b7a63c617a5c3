/* ndither: natural dithering (Horváth et al.) over buckets, each scaled by its largest magnitude. Levels
 * 1, 1/2, 1/4, … 2^(1−s) and 0, s = 2^(bits−1) − 1, chosen at random so that the expectation is the
 * number. Arithmetic: ndither_core.h. Payload: docs/wire-format.md 3.4. */
#include "codec/ndither/ndither.h"

#include <string.h>

static const gw_param_info params[] = {
    GW_BUCKET_BITS_PARAM,
    GW_BUCKET_SIZE_PARAM,
    GW_BUCKET_NORM_PARAM,
};

static uint32_t flags(const gw_params *p)
{
    (void)p;
    return GW_CODEC_FIXED_SIZE | GW_CODEC_UNBIASED | GW_CODEC_STOCHASTIC;
}

#include "codec/bucket/bucket_by_core.h"
#include "codec/bucket/bucket_scalar.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_ndither_scalar = {encode, decode};

extern const gw_codec gw_codec_ndither;
const gw_codec gw_codec_ndither = {
    .name = "ndither",
    .doc = "natural dithering in buckets: levels are powers of two",
    .params = params,
    .n_params = sizeof params / sizeof params[0],
    .check = gw_bucket_check,
    .flags = flags,
    .grain = gw_bucket_grain,
    .bytes = gw_bucket_bytes,
    .validate = gw_bucket_validate,
    .encode = gw_bucket_encode,
    .decode = gw_bucket_decode,
    .kernels = {NULL, &gw_ndither_scalar, GW_AVX2(gw_ndither_avx2), GW_AVX512(gw_ndither_avx512),
                GW_NEON(gw_ndither_neon)},
};
