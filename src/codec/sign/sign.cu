/* sign on the device: the bucket's numbers stay in registers while one warp sums their magnitudes in the order that the
 * wire lays down. */
#include "codec/sign/cuda_sign.h"
#include "codec/sign/sign_core.h"

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
        return fabsf(x) * pre;
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
    gw_read_source<GW_IN_PAIRS, FEEDBACK>(x, s, t, at, m);
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
        const uint32_t first = gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 2 * p);
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
        gw_write_quads<GW_IN_PAIRS>(x, t.after, GW_F32, at, m, s.tile);
    }
    gw_put_image((const uint32_t *)image, t.payload + gw_shape_begin(shape, at), shape, m);
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
}

/* A bucket of 4096 by one warp, which brings it to its own shared memory by asynchronous copies: lane j sums the numbers j,
 * j + 32, … as the wire has it, and the signs of 32 numbers side by side are a vote. What has come is summed while the
 * rest is on its way. */
enum { LONG = 4096, ROWS = LONG / 32, PART = 32 /* rows copied as one */, PARTS = ROWS / PART };
enum { STREAM_WARPS = 2, FED_WARPS = 1 };

GW_DEVICE float widen(float x, gw_dtype)
{
    return x;
}

GW_DEVICE float widen(uint16_t half, gw_dtype dtype)
{
    return dtype == GW_F16 ? gw_f32_from_f16(half) : gw_f32_from_bf16(half);
}

/* Which bucket a warp works on; 0 if none. */
typedef struct bucket {
    uint64_t at;
    uint32_t m;
} bucket;

template <class B> GW_DEVICE bucket bucket_of(const B &batch, uint32_t *index)
{
    bucket b = {0, 0};
    *index = gw_find_tile(batch, &b.at);
    b.at += threadIdx.x / 32 * LONG;
    const uint64_t count = batch.tensor[*index].count;
    b.m = b.at < count ? gw_span_left(count, b.at, LONG) : 0;
    return b;
}

GW_DEVICE float fold(float sum)
{
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        sum = sum + __shfl_down_sync(0xFFFFFFFFu, sum, half);
    }
    return __shfl_sync(0xFFFFFFFFu, sum, 0);
}

/* The scale from the lanes' sums. A number beyond 2^100 shows in its lane's sum: then all is read again. */
GW_DEVICE float scale_from(float sum, const gw_span_shared &s, const gw_span_in &t, const bucket &b)
{
    if (!__any_sync(0xFFFFFFFFu, gw_bits(sum) > 0x71800000u)) {
        return mean::scale(fold(sum), 1.0f, 0, b.m, 0);
    }
    uint32_t top = 0;
    uint64_t odd = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < b.m; i += 32) {
        const uint32_t a = gw_bits(gw_one_source(s, t, b.at + i)) & GW_ABS_MASK;
        top = a > top ? a : top;
        odd += a >= GW_INF_BITS;
    }
    gw_count(&t.result->non_finite, odd);
    top = __reduce_max_sync(0xFFFFFFFFu, top);
    const float pre = mean::pre(top);
    sum = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < b.m; i += 32) {
        sum = sum + mean::term(gw_one_source(s, t, b.at + i), pre);
    }
    return mean::scale(fold(sum), pre, top, b.m, 0);
}

GW_DEVICE uint8_t *bucket_bytes(const gw_span_in &t, const bucket &b)
{
    return t.payload + gw_shape_begin(gw_shape_of(1, 12), b.at);
}

/* 32 rows' signs, of which lane l has those of row `first` + l. */
GW_DEVICE void put_signs(uint8_t *to, uint32_t first, uint32_t m, uint32_t signs)
{
    const uint32_t bytes = (m + 7) / 8, at = 4 * (first + threadIdx.x % 32);
    if (at < bytes) {
        gw_put_word(to + GW_BUCKET_HEADER + at, signs, bytes - at, gw_aligned_to(to, 4));
    }
}

/* The scale; where it is not above zero no bit is set, which says plus. */
GW_DEVICE void put_scale(const gw_span_in &t, const bucket &b, float scale)
{
    uint8_t *to = bucket_bytes(t, b);
    if (threadIdx.x % 32 == 0) {
        gw_put_word(to, gw_bits(scale), 4, gw_aligned_to(to, 4));
        if (b.at == 0) {
            t.result->written = t.bytes;
        }
    }
    if (!(scale > 0)) {
#pragma unroll 1
        for (uint32_t row = 0; 32 * row < b.m; row += 32) {
            put_signs(to, row, b.m, 0);
        }
    }
}

/* One row's share: of the lane's sum, and the row's signs for the lane that keeps them. */
GW_DEVICE void take_row(float x, int keeps, float *sum, uint32_t *signs)
{
    const uint32_t votes = __ballot_sync(0xFFFFFFFFu, x < 0);
    *sum = *sum + fabsf(x);
    *signs = keeps ? votes : *signs;
}

/* Starts a part of a bucket on its way to shared memory, of which `left` numbers are there; zeros behind them. T is a number as it
 * lies in memory. */
template <class T> GW_DEVICE void bring_part(T *shared, const T *from, uint32_t left)
{
    enum { EACH = 16 / sizeof(T) }; /* numbers of a copy */
    const int aligned = gw_aligned_to(from, 16);
    if (aligned && left >= 32 * PART) {
#pragma unroll
        for (uint32_t i = 0; i < PART / EACH; i++) {
            const uint32_t at = EACH * (32 * i + threadIdx.x % 32);
            gw_copy16(shared + at, from + at);
        }
        return;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < PART / EACH; i++) {
        const uint32_t at = EACH * (32 * i + threadIdx.x % 32);
        if (aligned && at + EACH <= left) {
            gw_copy16(shared + at, from + at);
            continue;
        }
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            shared[at + j] = at + j < left ? from[at + j] : (T)0;
        }
    }
}

/* A part of a bucket that has come: its signs are written, the lane's sum goes on. */
template <class T, int FEEDBACK>
GW_DEVICE void take_part(float *sum, const T *g, const float *r, gw_dtype dtype, uint8_t *to,
                         uint32_t m, uint32_t row)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t signs = 0;
    if (32 * row >= m) {
        return;
    }
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < PART; i++) {
        const uint32_t at = 32 * (row + i) + lane;
        const float x = widen(g[at], dtype);
        take_row(FEEDBACK ? x + r[at] : x, lane == i, sum, &signs);
    }
    put_signs(to, row, m, signs);
}

/* r′ of a bucket. */
template <class T>
GW_DEVICE void put_after(float *after, const T *g, const float *r, gw_dtype dtype, float scale,
                         uint32_t m)
{
    const float minus = scale > 0 ? -scale : scale; /* decoded where G < 0 */
    const int wide = gw_aligned_to(after, 16);
#pragma unroll 8
    for (uint32_t i = 0; i < ROWS / 4; i++) {
        const uint32_t at = 4 * (32 * i + threadIdx.x % 32);
        float x[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            const float G = widen(g[at + j], dtype) + r[at + j];
            x[j] = G - (G < 0 ? minus : scale);
        }
        if (wide && at + 4 <= m) {
            __stcs((float4 *)(after + at), make_float4(x[0], x[1], x[2], x[3]));
            continue;
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            if (at + j < m) {
                after[at + j] = x[j];
            }
        }
    }
}

/* b.m is `m`: a constant where the bucket is whole. */
template <class T, int FEEDBACK>
GW_DEVICE void encode_bucket(uint8_t *memory, const gw_span_shared &s, const gw_span_in &t,
                             const bucket &b, uint32_t m)
{
    T *g = (T *)(memory + (FEEDBACK ? 4 * LONG : 0));
    float *r = (float *)memory, sum = 0;
    uint8_t *to = bucket_bytes(t, b);
#pragma unroll
    for (uint32_t part = 0; part < PARTS; part++) {
        const uint32_t at = 32 * PART * part, left = at < m ? m - at : 0;
        if (left != 0) {
            bring_part(g + at, (const T *)t.in + b.at + at, left);
            if (FEEDBACK) {
                bring_part(r + at, t.residual + b.at + at, left);
            }
        }
        gw_copies_close();
    }
    gw_copies_come<3>();
    take_part<T, FEEDBACK>(&sum, g, r, s.dtype, to, m, 0);
    gw_copies_come<2>();
    take_part<T, FEEDBACK>(&sum, g, r, s.dtype, to, m, PART);
    gw_copies_come<1>();
    take_part<T, FEEDBACK>(&sum, g, r, s.dtype, to, m, 2 * PART);
    gw_copies_come<0>();
    take_part<T, FEEDBACK>(&sum, g, r, s.dtype, to, m, 3 * PART);
    const float scale = scale_from(sum, s, t, b);
    if (FEEDBACK) {
        put_after(t.after + b.at, g, r, s.dtype, scale, m);
    }
    put_scale(t, b, scale);
}

template <class T, int FEEDBACK, class B>
__global__ void __launch_bounds__(32 * (FEEDBACK ? FED_WARPS : STREAM_WARPS))
    stream_kernel(const __grid_constant__ B batch)
{
    GW_DYNAMIC_SHARED(memory); /* of each warp: the residual of its bucket, then the gradient */
    uint32_t index;
    const bucket b = bucket_of(batch, &index);
    const gw_span_in &t = batch.tensor[index];
    uint8_t *mine = memory + threadIdx.x / 32 * LONG * (sizeof(T) + (FEEDBACK ? 4 : 0));
    if (b.m == LONG) {
        encode_bucket<T, FEEDBACK>(mine, batch.s, t, b, LONG);
    } else if (b.m != 0) {
        encode_bucket<T, FEEDBACK>(mine, batch.s, t, b, b.m);
    } else if (t.count == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
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
        if (1u << batch.s.set[GW_SET_SHIFT] == LONG) {
            void (*const kernels[2][2])(B) = {
                {stream_kernel<float, 0, B>, stream_kernel<float, 1, B>},
                {stream_kernel<uint16_t, 0, B>, stream_kernel<uint16_t, 1, B>}};
            const uint32_t each = (batch.s.dtype == GW_F32 ? 4 : 2) + (call->feedback ? 4 : 0);
            GW_LAUNCH(kernels[batch.s.dtype != GW_F32][call->feedback != 0], tiles,
                      batch.s.tile / LONG * 32, batch.s.tile * each, call->stream, batch);
            return;
        }
        void (*const kernel)(B) = call->feedback ? encode_kernel<1, B> : encode_kernel<0, B>;
        const uint32_t string =
            gw_shape_bytes(gw_shape_of(1, batch.s.set[GW_SET_SHIFT]), batch.s.tile);
        GW_LAUNCH(kernel, tiles, batch.s.tile / GW_OWN,
                  batch.s.tile * 4 + (string + 4 + 15) / 16 * 16, call->stream, batch);
    }

    template <int N, int P>
    void operator()(const gw_decode_batch<N, P> &batch, uint32_t tiles) const
    {
        if (N == 1 && 1u << batch.s.set[GW_SET_SHIFT] == LONG && batch.n_payloads == EIGHT &&
            gw_rolls(batch, EIGHT)) {
            GW_LAUNCH(roll_kernel, (tiles + GW_ROLL - 1) / GW_ROLL, LONG / GW_OWN,
                      batch.abreast * batch.stride, call->stream, batch);
            return;
        }
        GW_LAUNCH(decode_kernel, tiles, batch.s.tile / GW_OWN, batch.abreast * batch.stride,
                  call->stream, batch);
    }
};

gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n, gw_why *why)
{
    const start s = {call};
    gw_span_shared shared = s.shared();
    if (shared.tile == LONG && call->value[BUCKET] == LONG) {
        shared.tile = (call->feedback ? FED_WARPS : STREAM_WARPS) * LONG; /* a warp a bucket */
    }
    gw_encode_list(shared, call, tensors, n, s);
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

extern "C" const gw_cuda_codec gw_cuda_codec_sign = {NULL, encode, decode, NULL, NULL};
