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

/* A bucket of 4096 by one warp: lane j sums the numbers j, j + 32, … as the wire has it, and the signs of 32 numbers side by
 * side are a vote. Nothing meets in shared memory. */
enum { LONG = 4096, ROWS = LONG / 32, BATCH = 16, STREAM_THREADS = 128, FED_THREADS = 64 };

template <int TYPE> GW_DEVICE float read_one(const void *in, uint64_t i)
{
    return TYPE == GW_F32   ? __ldcs((const float *)in + i)
           : TYPE == GW_F16 ? gw_f32_from_f16(__ldcs((const uint16_t *)in + i))
                            : gw_f32_from_bf16(__ldcs((const uint16_t *)in + i));
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

GW_DEVICE float less_scale(float x, float scale)
{
    return x - gw_float(gw_bits(scale) | (x < 0 && scale > 0 ? GW_SIGN_BIT : 0));
}

/* Rows of a bucket that may be short, all under way at once; zeros behind the end. */
GW_DEVICE void read_some(float x[BATCH], const gw_span_shared &s, const gw_span_in &t,
                         const bucket &b, uint32_t row)
{
#pragma unroll
    for (uint32_t i = 0; i < BATCH; i++) {
        const uint32_t e = 32 * (row + i) + threadIdx.x % 32;
        x[i] = e < b.m ? gw_one_source(s, t, b.at + e) : 0.0f;
    }
}

/* A tensor's last bucket, read as often as it is needed. */
GW_DEVICE void short_bucket(const gw_span_shared &s, const gw_span_in &t, const bucket &b)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t signs = 0;
    float sum = 0;
#pragma unroll 1
    for (uint32_t row = 0; 32 * row < b.m; row += BATCH) {
        float x[BATCH];
        read_some(x, s, t, b, row);
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            take_row(x[i], lane == (row + i) % 32, &sum, &signs);
        }
        if (row % 32 == 32 - BATCH || 32 * (row + BATCH) >= b.m) {
            put_signs(bucket_bytes(t, b), row / 32 * 32, b.m, signs);
        }
    }
    const float scale = scale_from(sum, s, t, b);
#pragma unroll 1
    for (uint32_t row = 0; t.after != NULL && 32 * row < b.m; row += BATCH) {
        float x[BATCH];
        read_some(x, s, t, b, row);
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            const uint32_t e = 32 * (row + i) + lane;
            if (e < b.m) {
                t.after[b.at + e] = less_scale(x[i], scale);
            }
        }
    }
    put_scale(t, b, scale);
}

/* The lanes' sums of a whole bucket; its signs are written. The next batch of rows is under way while one is summed. */
template <int TYPE> GW_DEVICE float stream_rows(const void *from, uint8_t *to)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t signs = 0;
    float sum = 0, next[BATCH], x[BATCH];
#pragma unroll
    for (uint32_t i = 0; i < BATCH; i++) {
        next[i] = read_one<TYPE>(from, 32 * i);
    }
#pragma unroll 1
    for (uint32_t row = 0; row < ROWS; row += BATCH) {
        const uint32_t keeps = (lane - row) % 32;
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            x[i] = next[i];
        }
        if (row + BATCH < ROWS) {
            from = (const uint8_t *)from + 32 * BATCH * (TYPE == GW_F32 ? 4 : 2);
#pragma unroll
            for (uint32_t i = 0; i < BATCH; i++) {
                next[i] = read_one<TYPE>(from, 32 * i);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            take_row(x[i], keeps == i, &sum, &signs);
        }
        if (row % 32 == 32 - BATCH) {
            put_signs(to, row - row % 32, LONG, signs);
        }
    }
    return sum;
}

/* With feedback the bucket's numbers stay in registers. */
template <int TYPE>
GW_DEVICE float feed_rows(float G[ROWS], const void *from, const float *residual, uint8_t *to)
{
    float sum = 0, r[BATCH];
    uint32_t signs = 0, lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t row = 0; row < ROWS; row += BATCH) {
        lane = gw_afresh(lane);
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            G[row + i] = read_one<TYPE>(from, 32 * (row + i));
            r[i] = __ldcs(residual + 32 * (row + i));
        }
#pragma unroll
        for (uint32_t i = 0; i < BATCH; i++) {
            G[row + i] = G[row + i] + r[i];
            take_row(G[row + i], lane == (row + i) % 32, &sum, &signs);
        }
        if (row % 32 == 32 - BATCH) {
            put_signs(to, row - row % 32, LONG, signs);
        }
    }
    return sum;
}

template <int TYPE, int FEEDBACK, class B>
__global__ void __launch_bounds__(FEEDBACK ? FED_THREADS : STREAM_THREADS, FEEDBACK ? 6 : 10)
    stream_kernel(const __grid_constant__ B batch)
{
    uint32_t index;
    const bucket b = bucket_of(batch, &index);
    const gw_span_in &t = batch.tensor[index];
    const uint64_t mine = b.at + threadIdx.x % 32;
    if (b.m != LONG) {
        if (b.m != 0) {
            short_bucket(batch.s, t, b);
        } else if (t.count == 0 && threadIdx.x == 0) {
            t.result->written = t.bytes;
        }
        return;
    }
    const void *from = (const uint8_t *)t.in + mine * (TYPE == GW_F32 ? 4 : 2);
    float G[FEEDBACK ? ROWS : 1];
    const float sum = FEEDBACK ? feed_rows<TYPE>(G, from, t.residual + mine, bucket_bytes(t, b))
                               : stream_rows<TYPE>(from, bucket_bytes(t, b));
    const float scale = scale_from(sum, batch.s, t, b);
    if (FEEDBACK) {
        float *after = t.after + mine;
#pragma unroll
        for (uint32_t row = 0; row < ROWS; row++) {
            __stcs(after + 32 * row, less_scale(G[row], scale));
        }
    }
    put_scale(t, b, scale);
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
    GW_DEVICE int add(float sum[GW_OWN], gw_string string, const gw_span_shared &s, uint32_t m)
    {
        const gw_shape shape = gw_shape_of(1, s.set[GW_SET_SHIFT]);
        const uint32_t size = shape.size;
        uint32_t scale = 0;
        int sound = 1;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t at = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
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
                sum[4 * q + j] += gw_float(scale ^ (bits << (31 - j) & GW_SIGN_BIT));
            }
        }
        if (!gw_rest_is_zero(string, shape, m)) {
            gw_all_nan(sum);
            sound = 0;
        }
        return sound;
    }
};

/* Eight bytes, of which byte p has eight signs of payload p, become eight with the signs of one number each. */
GW_DEVICE void turn(uint32_t *low, uint32_t *high)
{
    uint32_t half[2] = {*low, *high};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t t = (half[h] ^ half[h] >> 7) & 0x00AA00AAu;
        half[h] ^= t ^ t << 7;
        t = (half[h] ^ half[h] >> 14) & 0x0000CCCCu;
        half[h] ^= t ^ t << 14;
    }
    const uint32_t t = (half[0] ^ half[1] << 4) & 0xF0F0F0F0u;
    *low = half[0] ^ t;
    *high = half[1] ^ t >> 4;
}

/* A whole tile that is one bucket. The sum of the first eight payloads has 256 values: each is made once, in the order of
 * the payloads, and looked up by the eight signs of a number. Two threads share sixteen numbers. */
typedef struct whole_tile {
    const uint8_t *const *payload;
    uint64_t from;
    uint32_t n; /* payloads */
} whole_tile;

GW_DEVICE uint32_t scale_of(const whole_tile &w, uint32_t p, int *sound)
{
    const uint8_t *at = w.payload[p] + w.from;
    uint32_t scale = 0;
#pragma unroll
    for (int i = 0; i < GW_BUCKET_HEADER; i++) {
        scale |= (uint32_t)at[i] << 8 * i;
    }
    const int right = gw_scale_is_sound(scale);
    *sound &= right;
    return right ? scale : GW_NAN_BITS;
}

/* The thread's bytes of a payload. */
GW_DEVICE const uint8_t *octets_of(const whole_tile &w, uint32_t p)
{
    return w.payload[p] + (w.from + GW_BUCKET_HEADER + threadIdx.x / 32 * 64 + threadIdx.x % 32);
}

/* Four numbers by their signs in a word's bytes. */
GW_DEVICE void look_up_quad(float sum[4], uint32_t signs, const float table[256])
{
    const char *bytes = (const char *)table;
    sum[0] = *(const float *)(bytes + (signs << 2 & 0x3FC));
    sum[1] = *(const float *)(bytes + (signs >> 6 & 0x3FC));
    sum[2] = *(const float *)(bytes + (signs >> 14 & 0x3FC));
    sum[3] = *(const float *)(bytes + (signs >> 22 & 0x3FC));
}

/* By the first K payloads, up to eight. */
template <uint32_t K>
GW_DEVICE void look_up(float sum[GW_OWN], const whole_tile &w, float table[256], int *sound)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t octets[2][8] = {};
#pragma unroll
    for (uint32_t p = 0; p < K; p++) {
        const uint8_t *from = octets_of(w, p);
        octets[0][p] = __ldcs(from);
        octets[1][p] = __ldcs(from + 32);
    }
    const uint32_t mine = lane < K ? scale_of(w, lane, sound) : 0;
    float value = -0.0f;
#pragma unroll
    for (uint32_t p = 0; p < K; p++) {
        const uint32_t scale = __shfl_sync(0xFFFFFFFFu, mine, (int)p);
        value = value + gw_float(scale ^ (threadIdx.x << (31 - p) & GW_SIGN_BIT));
    }
    if (threadIdx.x < 256) {
        table[threadIdx.x] = value;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t *o = octets[half];
        uint32_t low =
            __byte_perm(__byte_perm(o[0], o[1], 0x0040), __byte_perm(o[2], o[3], 0x0040), 0x5410);
        uint32_t high =
            __byte_perm(__byte_perm(o[4], o[5], 0x0040), __byte_perm(o[6], o[7], 0x0040), 0x5410);
        turn(&low, &high);
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, lane % 2 ? low : high, 1);
        look_up_quad(sum + 8 * half, lane % 2 ? other : low, table);
        look_up_quad(sum + 8 * half + 4, lane % 2 ? high : other, table);
    }
}

/* Returns how many payloads are in the sum. */
GW_DEVICE uint32_t look_up_some(float sum[GW_OWN], const whole_tile &w, float table[256],
                                int *sound)
{
    if (w.n >= 8) {
        look_up<8>(sum, w, table, sound);
        return 8;
    }
    if (w.n >= 4) {
        look_up<4>(sum, w, table, sound);
        return 4;
    }
    look_up<2>(sum, w, table, sound);
    return 2;
}

GW_DEVICE void add_octets(float sum[GW_OWN], const whole_tile &w, uint32_t p, int *sound)
{
    const uint32_t scale = scale_of(w, p, sound), odd = threadIdx.x % 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t mine = __ldcs(octets_of(w, p) + 32 * half);
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, mine, 1);
        const uint32_t bits = odd ? other >> 4 | (mine & 0xF0) : (mine & 15) | other << 4;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum[8 * half + i] += gw_float(scale ^ (bits << (31 - i) & GW_SIGN_BIT));
        }
    }
}

template <class B> GW_DEVICE void decode_at_once(const B &batch, uint32_t index, uint64_t at)
{
    __shared__ float table[256];
    const gw_span_out &t = batch.tensor[index];
    const whole_tile w = {batch.payload + index * batch.n_payloads,
                          gw_shape_begin(gw_shape_of(1, batch.s.set[GW_SET_SHIFT]), at),
                          batch.n_payloads};
    float sum[GW_OWN];
    int sound = 1;
    uint32_t p = 0;
    if (batch.add || w.n == 1) {
        gw_begin_sum<GW_IN_OCTETS>(sum, batch, t, at, batch.s.tile);
    } else {
        p = look_up_some(sum, w, table, &sound);
    }
#pragma unroll 2
    for (; p < w.n; p++) {
        add_octets(sum, w, p, &sound);
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    gw_write_sum<GW_IN_OCTETS>(sum, batch, t, at, batch.s.tile);
}

template <class B>
__global__ void __launch_bounds__(512, 3) decode_kernel(const __grid_constant__ B batch)
{
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    const uint32_t m = gw_span_left(batch.tensor[index].count, at, batch.s.tile);
    if (m == batch.s.tile && 1u << batch.s.set[GW_SET_SHIFT] == m) {
        decode_at_once(batch, index, at);
    } else {
        gw_decode_tile<signs>(batch, index, at, m);
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
            void (*const kernels[3][2])(B) = {
                {stream_kernel<GW_F32, 0, B>, stream_kernel<GW_F32, 1, B>},
                {stream_kernel<GW_F16, 0, B>, stream_kernel<GW_F16, 1, B>},
                {stream_kernel<GW_BF16, 0, B>, stream_kernel<GW_BF16, 1, B>}};
            GW_LAUNCH(kernels[batch.s.dtype - GW_F32][call->feedback != 0], tiles,
                      batch.s.tile / LONG * 32, 0, call->stream, batch);
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
        GW_LAUNCH(decode_kernel, tiles, batch.s.tile / GW_OWN, batch.abreast * batch.stride,
                  call->stream, batch);
    }
};

gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n, gw_why *why)
{
    const start s = {call};
    gw_span_shared shared = s.shared();
    if (shared.tile == LONG && call->value[BUCKET] == LONG) {
        shared.tile =
            (call->feedback ? FED_THREADS : STREAM_THREADS) / 32 * LONG; /* a warp a bucket */
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

extern "C" const gw_cuda_codec gw_cuda_codec_sign = {NULL, encode, decode};
