/* dither: linear dithering (QSGD; with bits=2 TernGrad) over buckets, each scaled by its largest
 * magnitude. Levels k/s, s = 2^(bits−1) − 1, chosen at random so that the expectation is the number;
 * or, with rounding=nearest, the nearest level, which is biased and has half the error.
 * Arithmetic: dither_core.h. Payload: docs/wire-format.md 3.4. */
#include "codec/dither/dither.h"

#include <string.h>

static const char *const rounding_words[] = {"stochastic", "nearest"};
static const gw_param_info params[] = {
    GW_BUCKET_BITS_PARAM,
    GW_BUCKET_SIZE_PARAM,
    GW_BUCKET_NORM_PARAM,
    {"rounding", "stochastic is unbiased", 0, 1, 0, rounding_words, 0},
};

static uint32_t flags(const gw_params *p)
{
    return NEAREST(p) ? GW_CODEC_FIXED_SIZE
                      : GW_CODEC_FIXED_SIZE | GW_CODEC_UNBIASED | GW_CODEC_STOCHASTIC;
}

#include "codec/bucket/bucket_by_core.h"
#include "codec/bucket/bucket_scalar.h"
#include "codec/bucket/bucket_walk.h"

const gw_bucket_kernels gw_dither_scalar = {encode, decode};

extern const gw_codec gw_codec_dither;
const gw_codec gw_codec_dither = {
    .name = "dither",
    .doc = "linear dithering in buckets (QSGD; bits=2 is TernGrad)",
    .params = params,
    .n_params = sizeof params / sizeof params[0],
    .check = gw_bucket_check,
    .flags = flags,
    .grain = gw_bucket_grain,
    .bytes = gw_bucket_bytes,
    .validate = gw_bucket_validate,
    .encode = gw_bucket_encode,
    .decode = gw_bucket_decode,
    .kernels = {NULL, &gw_dither_scalar, GW_AVX2(gw_dither_avx2), GW_AVX512(gw_dither_avx512),
                GW_NEON(gw_dither_neon)},
};
