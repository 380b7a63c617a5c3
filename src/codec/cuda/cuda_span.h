/* Codecs with a grain, on the device: tensors are cut into tiles of whole grains, one thread block a tile, and a list of
 * tensors becomes one launch: which tile is whose travels with the kernel's arguments, so nothing is copied and a
 * captured graph holds it.
 *
 * A thread owns 16 numbers, four quads of 4 that lie together. A warp owns 512 numbers in a row. */
#ifndef GW_CUDA_SPAN_H
#define GW_CUDA_SPAN_H

#include "base/random.h"
#include "codec/cuda/cuda_block.h"

enum {
    GW_OWN = 16,          /* numbers a thread */
    GW_TILE = 4096,       /* numbers a block, or the grain where that is more */
    GW_LEAST_TILES = 400, /* tensors of a long list that one launch takes */
    GW_LEAST_SINKS = 256,
    GW_SHARED = 48 * 1024,  /* shared memory that a block gets without asking */
    GW_MOST_PAYLOADS = 2800 /* of all tensors of one launch: its arguments have 32 KiB at most */
};

/* One tensor to encode, and to decode. */
typedef struct gw_span_in {
    const void *in;
    const float *residual;
    float *after;
    uint8_t *payload;
    gw_cuda_result *result;
    uint64_t count, first, key, bytes;
} gw_span_in;

typedef struct gw_span_out {
    void *out;
    gw_cuda_result *result;
    uint64_t count;
} gw_span_out;

/* A launch's arguments: what its tensors share, where each tensor's tiles begin, the tensors. */
typedef struct gw_span_shared {
    uint32_t n, tile; /* tensors; elements of a tile */
    gw_dtype dtype;
    uint32_t set[4]; /* the codec's own settings */
} gw_span_shared;

template <int N> struct gw_encode_batch {
    gw_span_shared s;
    uint32_t begin[N + 1];
    gw_span_in tensor[N];
};

template <int N, int P> struct gw_decode_batch {
    gw_span_shared s;
    uint32_t add, divisor, n_payloads, abreast,
        stride;     /* abreast payloads of `stride` bytes are in shared memory */
    uint32_t loose; /* the last bits of all payloads' addresses, together */
    uint32_t begin[N + 1];
    gw_span_out tensor[N];
    const uint8_t *payload[P]; /* n_payloads of each tensor */
};

/* Which tensor a block works on, and its tile's first element there. */
template <class B> GW_DEVICE uint32_t gw_find_tile(const B &batch, uint64_t *at)
{
    uint32_t low = 0, high = batch.s.n;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (batch.begin[middle] <= blockIdx.x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *at = (uint64_t)(blockIdx.x - batch.begin[low]) * batch.s.tile;
    return low;
}

GW_DEVICE uint32_t gw_span_left(uint64_t count, uint64_t at, uint32_t tile)
{
    const uint64_t left = count - at;
    return left < tile ? (uint32_t)left : tile;
}

GW_DEVICE float gw_one(const void *in, gw_dtype dtype, uint64_t i)
{
    return dtype == GW_F32   ? ((const float *)in)[i]
           : dtype == GW_F16 ? gw_f32_from_f16(((const uint16_t *)in)[i])
                             : gw_f32_from_bf16(((const uint16_t *)in)[i]);
}

GW_DEVICE void gw_put_one(void *out, gw_dtype dtype, uint64_t i, float v)
{
    if (dtype == GW_F32) {
        ((float *)out)[i] = v;
    } else {
        ((uint16_t *)out)[i] = dtype == GW_F16 ? gw_f16_from_f32(v) : gw_bf16_from_f32(v);
    }
}

GW_DEVICE int gw_aligned_to(const void *p, uint32_t bytes)
{
    return ((uint32_t)(uintptr_t)p & (bytes - 1)) == 0;
}

/* Where the thread's quads begin, from the tile's first element. Rows: each warp instruction reads 512 bytes in a row. Pairs:
 * quads 0 and 1, and 2 and 3, are sixteen apart, so that the thread owns both elements of every random word; each
 * warp instruction then reads pieces of 64 bytes. Octets: they are eight apart, so that two threads share the sixteen numbers
 * of two bytes of bits; pieces of 32 bytes. */
enum { GW_IN_ROWS, GW_IN_PAIRS, GW_IN_OCTETS };

template <int LAYOUT> GW_DEVICE uint32_t gw_quad_at(uint32_t thread, int q)
{
    const uint32_t warp = thread / 32 * 512, lane = thread % 32;
    return LAYOUT == GW_IN_PAIRS ? warp + (uint32_t)(q / 2) * 256 + lane / 4 * 32 + lane % 4 * 4 +
                                       (uint32_t)(q % 2) * 16
           : LAYOUT == GW_IN_OCTETS ? warp + (uint32_t)(q / 2) * 256 + lane / 2 * 16 +
                                          lane % 2 * 4 + (uint32_t)(q % 2) * 8
                                    : warp + (uint32_t)q * 128 + lane * 4;
}

/* The thread's numbers of a tile that begins at `at`; zeros behind the end. A whole tile, aligned, is read in loads of
 * 16 (fp32) or 8 bytes, all of them under way before the first is used. */
template <int LAYOUT>
GW_DEVICE void gw_read_quads(float x[GW_OWN], const void *in, gw_dtype dtype, uint64_t at,
                             uint32_t m, uint32_t tile)
{
    const uint32_t thread = threadIdx.x;
    if (m == tile && dtype == GW_F32 && gw_aligned_to(in, 16)) {
        const float *from = (const float *)in + at;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const float4 v = __ldcs((const float4 *)(from + gw_quad_at<LAYOUT>(thread, q)));
            x[4 * q] = v.x, x[4 * q + 1] = v.y, x[4 * q + 2] = v.z, x[4 * q + 3] = v.w;
        }
    } else if (m == tile && dtype != GW_F32 && gw_aligned_to(in, 8)) {
        const uint16_t *from = (const uint16_t *)in + at;
        uint2 raw[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            raw[q] = __ldcs((const uint2 *)(from + gw_quad_at<LAYOUT>(thread, q)));
        }
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            const uint32_t two = i % 4 < 2 ? raw[i / 4].x : raw[i / 4].y;
            const uint16_t half = (uint16_t)(i % 2 == 0 ? two : two >> 16);
            x[i] = dtype == GW_F16 ? gw_f32_from_f16(half) : gw_f32_from_bf16(half);
        }
    } else {
        const int wide = dtype == GW_F32 && gw_aligned_to(in, 16);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t j = gw_quad_at<LAYOUT>(thread, q);
            if (wide && j + 4 <= m) {
                const float4 v = __ldcs((const float4 *)((const float *)in + at + j));
                x[4 * q] = v.x, x[4 * q + 1] = v.y, x[4 * q + 2] = v.z, x[4 * q + 3] = v.w;
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[4 * q + i] = j + (uint32_t)i < m ? gw_one(in, dtype, at + j + (uint32_t)i) : 0.0f;
            }
        }
    }
}

template <int LAYOUT>
GW_DEVICE void gw_write_quads(const float x[GW_OWN], void *out, gw_dtype dtype, uint64_t at,
                              uint32_t m, uint32_t tile)
{
    const uint32_t thread = threadIdx.x;
    if (m == tile && dtype == GW_F32 && gw_aligned_to(out, 16)) {
        float *to = (float *)out + at;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            __stcs((float4 *)(to + gw_quad_at<LAYOUT>(thread, q)),
                   make_float4(x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]));
        }
    } else if (m == tile && dtype != GW_F32 && gw_aligned_to(out, 8)) {
        uint16_t *to = (uint16_t *)out + at;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t half[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float v = x[4 * q + j];
                half[j] = dtype == GW_F16 ? gw_f16_from_f32(v) : gw_bf16_from_f32(v);
            }
            __stcs((uint2 *)(to + gw_quad_at<LAYOUT>(thread, q)),
                   make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16));
        }
    } else {
        const int wide = dtype == GW_F32 && gw_aligned_to(out, 16);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t j = gw_quad_at<LAYOUT>(thread, q);
            if (wide && j + 4 <= m) {
                __stcs((float4 *)((float *)out + at + j),
                       make_float4(x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]));
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (j + (uint32_t)i < m) {
                    gw_put_one(out, dtype, at + j + (uint32_t)i, x[4 * q + i]);
                }
            }
        }
    }
}

/* G of the thread's numbers: g, or g + r. */
template <int LAYOUT, int FEEDBACK>
GW_DEVICE void gw_read_source(float x[GW_OWN], const gw_span_shared &s, const gw_span_in &t,
                              uint64_t at, uint32_t m)
{
    gw_read_quads<LAYOUT>(x, t.in, s.dtype, at, m, s.tile);
    if (FEEDBACK) {
        float r[GW_OWN];
        gw_read_quads<LAYOUT>(r, t.residual, GW_F32, at, m, s.tile);
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            x[i] = x[i] + r[i];
        }
    }
}

/* G of one number, read again. */
GW_DEVICE float gw_one_source(const gw_span_shared &s, const gw_span_in &t, uint64_t i)
{
    const float g = gw_one(t.in, s.dtype, i);
    return t.residual != NULL ? g + t.residual[i] : g;
}

/* `bytes` of shared memory, from byte `skip` of `words` on, to `to` of any alignment. By `n` threads, of which this is `me`. */
GW_DEVICE void gw_copy_out(uint8_t *to, const uint32_t *words, uint32_t skip, uint32_t bytes,
                           uint32_t me, uint32_t n)
{
    const uint32_t before = (0u - (uint32_t)(uintptr_t)to) & 3;
    const uint32_t head = before < bytes ? before : bytes, whole = (bytes - head) / 4;
    const uint32_t tail = (bytes - head) & 3, shift = 8 * ((skip + head) & 3);
    const uint32_t *from = words + (skip + head) / 4;
    uint32_t *out = (uint32_t *)(to + head);
    if (shift == 0) { /* the word behind may be another warp's */
        for (uint32_t i = me; i < whole; i += n) {
            __stcs(out + i, from[i]);
        }
    } else {
        for (uint32_t i = me; i < whole; i += n) {
            __stcs(out + i, __funnelshift_r(from[i], from[i + 1], shift));
        }
    }
    if (me < head + tail) {
        const uint32_t i = me < head ? me : me + 4 * whole;
        to[i] = ((const uint8_t *)words)[skip + i];
    }
}

/* The host's side: cuts a list into launches. launch(batch, tiles) is called for each. */

static inline uint32_t gw_tiles_of(uint64_t count, uint32_t tile)
{
    return count == 0 ? 1 : (uint32_t)gw_cuda_ceil_div(count, tile);
}

template <int N, class F>
static inline void gw_encode_part(const gw_span_shared &shared, const gw_cuda_source *tensors,
                                  const size_t *bytes, size_t n, F launch)
{
    gw_encode_batch<N> batch;
    batch.s = shared;
    batch.s.n = (uint32_t)n;
    batch.begin[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const gw_cuda_source *t = &tensors[i];
        batch.tensor[i] = {t->in.data, t->residual, t->residual_after, (uint8_t *)t->payload,
                           t->result,  t->in.count, t->key.first,      gw_random_key(&t->key),
                           bytes[i]};
        batch.begin[i + 1] = batch.begin[i] + gw_tiles_of(t->in.count, shared.tile);
    }
    launch(batch, batch.begin[n]);
}

template <class F>
static inline void gw_encode_list(const gw_span_shared &shared, const gw_cuda_call *call,
                                  const gw_cuda_source *tensors, size_t n, F launch)
{
    for (size_t i = 0; i < n;) {
        const size_t m = n - i < GW_LEAST_TILES ? n - i : (size_t)GW_LEAST_TILES;
        if (m == 1) {
            gw_encode_part<1>(shared, tensors + i, call->bytes + i, m, launch);
        } else {
            gw_encode_part<GW_LEAST_TILES>(shared, tensors + i, call->bytes + i, m, launch);
        }
        i += m;
    }
}

template <int N, int P, class F>
static inline void gw_decode_part(const gw_span_shared &shared, const gw_cuda_sink *tensors,
                                  size_t n, uint32_t stride, F launch)
{
    gw_decode_batch<N, P> batch;
    batch.s = shared;
    batch.s.n = (uint32_t)n;
    batch.add = tensors->how == GW_ADD;
    batch.divisor = tensors->divisor;
    batch.n_payloads = (uint32_t)tensors->n_payloads;
    batch.stride = stride;
    batch.abreast = stride > GW_SHARED / 8 ? GW_SHARED / stride : 8;
    batch.abreast = batch.n_payloads < batch.abreast ? batch.n_payloads : batch.abreast;
    batch.begin[0] = 0;
    batch.loose = 0;
    for (size_t i = 0; i < n; i++) {
        const gw_cuda_sink *t = &tensors[i];
        batch.tensor[i] = {t->out.data, t->result, t->out.count};
        batch.begin[i + 1] = batch.begin[i] + gw_tiles_of(t->out.count, shared.tile);
        for (size_t p = 0; p < t->n_payloads; p++) {
            batch.payload[i * t->n_payloads + p] = (const uint8_t *)t->payloads[p].bytes;
            batch.loose |= (uint32_t)(uintptr_t)t->payloads[p].bytes & 15;
        }
    }
    launch(batch, batch.begin[n]);
}

template <class F>
static inline void gw_decode_list(const gw_span_shared &shared, const gw_cuda_sink *tensors,
                                  size_t n, uint32_t stride, F launch)
{
    const size_t fit = n != 0 ? (size_t)GW_MOST_PAYLOADS / tensors->n_payloads : 1;
    const size_t most = fit < GW_LEAST_SINKS ? fit : (size_t)GW_LEAST_SINKS;
    for (size_t i = 0; i < n;) {
        const size_t m = n - i < most ? n - i : most;
        if (m == 1 && tensors->n_payloads <= 16) {
            gw_decode_part<1, 16>(shared, tensors + i, m, stride, launch);
        } else {
            gw_decode_part<GW_LEAST_SINKS, GW_MOST_PAYLOADS>(shared, tensors + i, m, stride,
                                                             launch);
        }
        i += m;
    }
}

#endif
