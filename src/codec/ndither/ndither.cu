/* ndither on the device: cuda_dither.h with its own levels. */
#include "codec/cuda/cuda_dither.h"
#include "codec/ndither/ndither_core.h"

namespace
{
struct levels {
    GW_DEVICE float factor(float scale, uint32_t n)
    {
        (void)n;
        return gw_ndither_factor(scale);
    }
    GW_DEVICE uint32_t level(float size, float h, uint32_t n, uint32_t r)
    {
        return gw_ndither_level(size, h, n, r);
    }
    /* gw_ndither_fixed of 7 levels, times two and without what it takes off: the exponents that count levels are then those
     * of 128 and more, whose last bits are the level. */
    enum { MOST = 0x43FF };
    GW_DEVICE float quick_factor(float h)
    {
        return h * 128.0f;
    }
    GW_DEVICE uint32_t quick(float size, float h)
    {
        const float z = size * h;
        return gw_bits(fmaxf(z + 2.0f, z + z));
    }
    GW_DEVICE float fraction(uint32_t k, uint32_t n)
    {
        return gw_ndither_fraction(k, n);
    }
};

gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n, gw_why *why)
{
    gw_start_dither<levels>{call, 0}.encode(tensors, n);
    return gw_cuda_launched(why, "ndither");
}

gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n, gw_why *why)
{
    gw_start_dither<levels>{call, 0}.decode(tensors, n);
    return gw_cuda_launched(why, "ndither");
}
} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_ndither = {NULL, encode, decode, NULL, NULL};
