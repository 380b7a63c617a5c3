/* cast on the device: number by number, each read and written once. */
#include "codec/cast/cast_core.h"
#include "codec/cuda/cuda_decode.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { TO, THREADS = 256 };

GW_DEVICE float back(uint32_t bits, gw_dtype to)
{
    return to == GW_F32   ? gw_float(bits)
           : to == GW_F16 ? gw_f32_from_f16((uint16_t)bits)
                          : gw_f32_from_bf16((uint16_t)bits);
}

/* The same, but that any NaN may be any other: for numbers that are added to others. */
GW_DEVICE float back_to_add(uint32_t bits, gw_dtype to)
{
#ifdef __CUDA_ARCH__
    if (to == GW_F16) {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)bits));
        return x;
    }
#endif
    return back(bits, to);
}

GW_DEVICE uint32_t narrow(float x, gw_dtype to)
{
    return to == GW_F32 ? gw_bits(x) : to == GW_F16 ? gw_f16_from_f32(x) : gw_bf16_from_f32(x);
}

/* Bytes of a payload of any alignment. */
GW_DEVICE uint32_t get_bytes(const uint8_t *p, uint32_t n)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < n; i++) {
        v |= (uint32_t)p[i] << 8 * i;
    }
    return v;
}

GW_DEVICE void put_bytes(uint8_t *p, uint32_t n, uint32_t v)
{
    for (uint32_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(v >> 8 * i);
    }
}

template <int TYPE>
GW_DEVICE void write_codes(const uint32_t code[GW_OWN], uint8_t *payload, uint32_t m, uint32_t tile)
{
    constexpr uint32_t width = TYPE == GW_F32 ? 4 : 2;
    if (m == tile && gw_aligned_to(payload, 4 * width)) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t *c = code + 4 * q;
            uint8_t *to = payload + width * gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
            if (TYPE == GW_F32) {
                __stcs((uint4 *)to, make_uint4(c[0], c[1], c[2], c[3]));
            } else {
                __stcs((uint2 *)to, make_uint2(c[0] | c[1] << 16, c[2] | c[3] << 16));
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t j = gw_quad_at<GW_IN_ROWS>(threadIdx.x, i / 4) + (uint32_t)i % 4;
        if (j < m) {
            put_bytes(payload + j * width, width, code[i]);
        }
    }
}

template <int TYPE>
GW_DEVICE void read_codes(uint32_t code[GW_OWN], const uint8_t *payload, uint32_t m, uint32_t tile)
{
    constexpr uint32_t width = TYPE == GW_F32 ? 4 : 2;
    if (m == tile && gw_aligned_to(payload, 4 * width)) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint8_t *from = payload + width * gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
            uint32_t *c = code + 4 * q;
            if (TYPE == GW_F32) {
                const uint4 v = __ldcs((const uint4 *)from);
                c[0] = v.x, c[1] = v.y, c[2] = v.z, c[3] = v.w;
            } else {
                const uint2 v = __ldcs((const uint2 *)from);
                c[0] = v.x & 0xFFFF, c[1] = v.x >> 16, c[2] = v.y & 0xFFFF, c[3] = v.y >> 16;
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t j = gw_quad_at<GW_IN_ROWS>(threadIdx.x, i / 4) + (uint32_t)i % 4;
        code[i] = j < m ? get_bytes(payload + j * width, width) : 0;
    }
}

template <int N, int FEEDBACK, int TYPE>
__global__ void __launch_bounds__(THREADS, FEEDBACK ? 3 : 5)
    encode_kernel(const __grid_constant__ gw_encode_batch<N> batch)
{
    uint64_t at;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint32_t m = gw_span_left(t.count, at, batch.s.tile);
    constexpr gw_dtype to = (gw_dtype)TYPE;
    const uint32_t limit = gw_cast_overflow_from(to, batch.s.dtype);
    float x[GW_OWN];
    gw_read_source<GW_IN_ROWS, FEEDBACK>(x, batch.s, t, at, m);
    uint32_t code[GW_OWN], top = 0;
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
        top = a > top ? a : top;
        code[i] = narrow(x[i], to);
    }
    write_codes<TYPE>(code, t.payload + at * (TYPE == GW_F32 ? 4 : 2), m, batch.s.tile);
    if (FEEDBACK) {
        float after[GW_OWN];
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            after[i] = x[i] - back(code[i], to);
        }
        gw_write_quads<GW_IN_ROWS>(after, t.after, GW_F32, at, m, batch.s.tile);
    }
    if (top >= limit) {
        uint64_t non_finite = 0, overflowed = 0;
        for (int i = 0; i < GW_OWN; i++) {
            const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
            non_finite += a >= GW_INF_BITS;
            overflowed += a >= limit && a < GW_INF_BITS;
        }
        gw_count(&t.result->non_finite, non_finite);
        gw_count(&t.result->overflowed, overflowed);
    }
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
}

template <int TYPE, class B>
__global__ void __launch_bounds__(THREADS, 3) decode_kernel(const __grid_constant__ B batch)
{
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    const gw_span_out &t = batch.tensor[index];
    const uint32_t m = gw_span_left(t.count, at, batch.s.tile);
    const uint8_t *const *payload = batch.payload + index * batch.n_payloads;
    const uint64_t from = at * (TYPE == GW_F32 ? 4 : 2);
    float sum[GW_OWN];
    if (batch.add || batch.n_payloads > 1) {
        gw_begin_sum<GW_IN_ROWS>(sum, batch, t, at, m);
#pragma unroll 2
        for (uint32_t p = 0; p < batch.n_payloads; p++) {
            uint32_t code[GW_OWN];
            read_codes<TYPE>(code, payload[p] + from, m, batch.s.tile);
#pragma unroll
            for (int i = 0; i < GW_OWN; i++) {
                sum[i] = sum[i] + back_to_add(code[i], (gw_dtype)TYPE);
            }
        }
    } else {
        uint32_t code[GW_OWN];
        read_codes<TYPE>(code, payload[0] + from, m, batch.s.tile);
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            sum[i] = back(code[i], (gw_dtype)TYPE);
        }
    }
    gw_write_sum<GW_IN_ROWS, 0>(sum, batch, t, at, m);
}

struct start_encode {
    const gw_cuda_call *call;
    gw_dtype to;

    template <int N, int FEEDBACK> void with(const gw_encode_batch<N> &batch, uint32_t tiles) const
    {
        void (*const kernels[])(gw_encode_batch<N>) = {encode_kernel<N, FEEDBACK, GW_F32>,
                                                       encode_kernel<N, FEEDBACK, GW_F16>,
                                                       encode_kernel<N, FEEDBACK, GW_BF16>};
        GW_LAUNCH(kernels[to - GW_F32], tiles, THREADS, 0, call->stream, batch);
    }

    template <int N> void operator()(const gw_encode_batch<N> &batch, uint32_t tiles) const
    {
        if (call->feedback) {
            with<N, 1>(batch, tiles);
        } else {
            with<N, 0>(batch, tiles);
        }
    }
};

struct start_decode {
    const gw_cuda_call *call;
    gw_dtype to;

    template <class B> void operator()(const B &batch, uint32_t tiles) const
    {
        void (*const kernels[])(B) = {decode_kernel<GW_F32, B>, decode_kernel<GW_F16, B>,
                                      decode_kernel<GW_BF16, B>};
        GW_LAUNCH(kernels[to - GW_F32], tiles, THREADS, 0, call->stream, batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    const gw_span_shared shared = {0, GW_TILE, call->dtype, {0}};
    gw_encode_list(shared, call, tensors, n, start_encode{call, (gw_dtype)call->value[TO]});
    return gw_cuda_launched(why, "cast");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    const gw_span_shared shared = {0, GW_TILE, call->dtype, {0}};
    gw_decode_list(shared, tensors, n, 0, start_decode{call, (gw_dtype)call->value[TO]});
    return gw_cuda_launched(why, "cast");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_cast = {NULL, encode, decode, NULL, NULL};
