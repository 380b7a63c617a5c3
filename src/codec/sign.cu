/* sign on the device: the bucket's numbers stay in registers while one warp sums their magnitudes in the order that the
 * wire lays down. */
#include "codec/cuda_bucket.h"
#include "codec/sign_core.h"

namespace
{
enum { BUCKET };

/* The mean magnitude; NaN for a bucket that is not finite. */
struct mean {
    GW_DEVICE float pre(uint32_t top)
    {
        return gw_sign_pre(top);
    }
    GW_DEVICE float term(float x, float pre)
    {
        return gw_float(gw_bits(x) & GW_ABS_MASK) * pre;
    }
    GW_DEVICE float scale(float sum, float pre, uint32_t top, uint32_t n, float most)
    {
        (void)most;
        return top >= GW_INF_BITS ? gw_float(GW_NAN_BITS) : gw_sign_mean_of(sum, n, pre);
    }
};

template <int FEEDBACK, class B>
__global__ void __launch_bounds__(512, FEEDBACK ? 2 : 3)
    encode_kernel(const __grid_constant__ B batch)
{
    GW_DYNAMIC_SHARED(memory); /* the tile's numbers, then its payload */
    __shared__ uint32_t tops[GW_MOST_WARPS];
    __shared__ gw_chains chains;
    const gw_span_shared &s = batch.s;
    const gw_shape shape = gw_shape_of(1, s.set[GW_SET_SHIFT]);
    const uint32_t size = shape.size;
    uint64_t at;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint32_t m = gw_span_left(t.count, at, s.tile);
    uint8_t *image = memory + s.tile * sizeof(float);
    float x[GW_OWN], scale[2];
    gw_read_source<1, FEEDBACK>(x, s, t, at, m);
    uint32_t top[2] = {gw_top_of(x), gw_top_of(x + 8)};
    gw_bucket_tops(top, size, tops);
    if (top[0] >= GW_INF_BITS || top[1] >= GW_INF_BITS) {
        gw_count_non_finite(x, t.result);
        gw_count_non_finite(x + 8, t.result);
    }
    gw_bucket_chains<mean>(&chains, (float *)memory, x, top, shape, m, 0, scale);
    gw_tile_again(x, (const float *)memory);
#pragma unroll
    for (int p = 0; p < 2; p++) {
        const uint32_t first = gw_quad_at<1>(threadIdx.x, 2 * p);
        const int plain = scale[p] > 0; /* else all zero, or NaN: no bit is set, which says plus */
        uint32_t quad[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t bit = plain ? gw_sign_bit(gw_bits(x[8 * p + i])) : 0;
            quad[i / 4] |= bit << i % 4;
            if (FEEDBACK) {
                x[8 * p + i] -= gw_float(gw_bits(scale[p]) ^ bit << 31);
            }
        }
        gw_put_octets<1>(image, quad[0], quad[1], first, shape);
        if ((first & (size - 1)) == 0) {
            *(uint32_t *)(image + (first >> shape.shift) * shape.stride) = gw_bits(scale[p]);
        }
    }
    if (FEEDBACK) {
        gw_write_quads<1>(x, t.after, GW_F32, at, m, s.tile);
    }
    gw_put_image((const uint32_t *)image, t.payload + gw_shape_begin(shape, at), shape, m);
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
}

struct signs {
    GW_DEVICE uint64_t begin(const gw_span_shared &s, uint64_t at)
    {
        return gw_shape_begin(gw_shape_of(1, s.set[GW_SET_SHIFT]), at);
    }
    GW_DEVICE uint32_t bytes(const gw_span_shared &s, uint32_t m)
    {
        return gw_shape_bytes(gw_shape_of(1, s.set[GW_SET_SHIFT]), m);
    }
    GW_DEVICE int values(float v[GW_OWN], gw_string string, const gw_span_shared &s, uint32_t m)
    {
        const gw_shape shape = gw_shape_of(1, s.set[GW_SET_SHIFT]);
        const uint32_t size = shape.size;
        uint32_t scale = 0;
        int sound = 1;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t at = gw_quad_at<0>(threadIdx.x, q);
            const uint32_t bucket = string.bit + 8 * ((at >> shape.shift) * shape.stride);
            if (q == 0 || size < GW_WARP_OWNS) {
                scale = gw_take32(string.words, bucket);
                const int right = gw_scale_is_sound(scale);
                sound &= right || at >= m;
                scale = right ? scale : GW_NAN_BITS;
            }
            const uint32_t bits =
                gw_take32(string.words, bucket + 8 * GW_BUCKET_HEADER + (at & (size - 1)));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[4 * q + j] = gw_float(scale ^ (bits << (31 - j) & GW_SIGN_BIT));
            }
        }
        if (!gw_rest_is_zero(string, shape, m)) {
            gw_all_nan(v);
            sound = 0;
        }
        return sound;
    }
};

template <class B>
__global__ void __launch_bounds__(512, 2) decode_kernel(const __grid_constant__ B batch)
{
    gw_decode_tile<signs>(batch);
}

struct start {
    const gw_cuda_call *call;

    gw_span_shared shared(void) const
    {
        return gw_bucket_shared(call, 1, call->value[BUCKET], 0);
    }

    template <int N> void operator()(const gw_encode_batch<N> &batch, uint32_t tiles) const
    {
        typedef gw_encode_batch<N> B;
        void (*const kernel)(B) = call->feedback ? encode_kernel<1, B> : encode_kernel<0, B>;
        const uint32_t string =
            gw_shape_bytes(gw_shape_of(1, batch.s.set[GW_SET_SHIFT]), batch.s.tile);
        GW_LAUNCH(kernel, tiles, batch.s.tile / GW_OWN,
                  batch.s.tile * 4 + (string + 4 + 15) / 16 * 16, call->stream, batch);
    }

    template <int N, int P>
    void operator()(const gw_decode_batch<N, P> &batch, uint32_t tiles) const
    {
        GW_LAUNCH(decode_kernel, tiles, batch.s.tile / GW_OWN, batch.abreast * batch.stride,
                  call->stream, batch);
    }
};

gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n, gw_why *why)
{
    const start s = {call};
    gw_encode_list(s.shared(), call, tensors, n, s);
    return gw_cuda_launched(why, "sign");
}

gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n, gw_why *why)
{
    const start s = {call};
    const gw_span_shared shared = s.shared();
    const uint32_t bytes = gw_shape_bytes(gw_shape_of(1, shared.set[GW_SET_SHIFT]), shared.tile);
    gw_decode_list(shared, tensors, n, gw_string_stride(bytes), s);
    return gw_cuda_launched(why, "sign");
}
} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_sign = {NULL, encode, decode};
