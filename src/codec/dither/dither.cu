/* dither on the device: cuda_dither.h with its own levels. */
#include "codec/cuda/cuda_dither.h"
#include "codec/dither/dither_core.h"

namespace
{
struct levels {
    GW_DEVICE float factor(float scale, uint32_t n)
    {
        return gw_dither_factor(scale, n);
    }
    GW_DEVICE uint32_t level(float size, float h, uint32_t n, uint32_t r)
    {
        return gw_dither_level(size, h, n, r);
    }
    enum { MOST = 0x3FF }; /* level 7 and all below it, of 16 bits */
    GW_DEVICE float quick_factor(float h)
    {
        return h;
    }
    GW_DEVICE uint32_t quick(float size, float h)
    {
        return gw_dither_fixed(size, h);
    }
    GW_DEVICE float fraction(uint32_t k, uint32_t n)
    {
        return gw_dither_fraction(k, n);
    }
};

gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n, gw_why *why)
{
    gw_start_dither<levels>{call, call->value[GW_BUCKET_COMMON] == 1}.encode(tensors, n);
    return gw_cuda_launched(why, "dither");
}

gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n, gw_why *why)
{
    gw_start_dither<levels>{call, 0}.decode(tensors, n);
    return gw_cuda_launched(why, "dither");
}
} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_dither = {NULL, encode, decode, NULL, NULL};
