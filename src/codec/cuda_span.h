/* Codecs with a grain, on the device: tensors are cut into tiles of whole grains, one thread block a tile, and a list of
 * tensors becomes one launch: which tile is whose travels with the kernel's arguments, so nothing is copied and a
 * captured graph holds it.
 *
 * A thread owns 16 numbers, four quads of 4 that lie together. A warp owns 512 numbers in a row. */
#ifndef GW_CUDA_SPAN_H
#define GW_CUDA_SPAN_H

#include "base/random.h"
#include "codec/cuda_block.h"

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
        stride; /* abreast payloads of `stride` bytes are in shared memory */
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

/* Where the thread's quads begin, from the tile's first element. PAIRED: quads 0 and 1, and 2 and 3, are sixteen
 * apart, so that the thread owns both elements of every random word; each warp instruction then reads pieces of 64
 * bytes. Else each instruction reads 512 bytes in a row. */
template <int PAIRED> GW_DEVICE uint32_t gw_quad_at(uint32_t thread, int q)
{
    const uint32_t warp = thread / 32 * 512, lane = thread % 32;
    return PAIRED ? warp + (uint32_t)(q / 2) * 256 + lane / 4 * 32 + lane % 4 * 4 +
                        (uint32_t)(q % 2) * 16
                  : warp + (uint32_t)q * 128 + lane * 4;
}

/* The thread's numbers of a tile that begins at `at`; zeros behind the end. A whole tile, aligned, is read in loads of
 * 16 (fp32) or 8 bytes, all of them under way before the first is used. */
template <int PAIRED>
GW_DEVICE void gw_read_quads(float x[GW_OWN], const void *in, gw_dtype dtype, uint64_t at,
                             uint32_t m, uint32_t tile)
{
    const uint32_t thread = threadIdx.x;
    if (m == tile && dtype == GW_F32 && gw_aligned_to(in, 16)) {
        const float *from = (const float *)in + at;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const float4 v = __ldcs((const float4 *)(from + gw_quad_at<PAIRED>(thread, q)));
            x[4 * q] = v.x, x[4 * q + 1] = v.y, x[4 * q + 2] = v.z, x[4 * q + 3] = v.w;
        }
    } else if (m == tile && dtype != GW_F32 && gw_aligned_to(in, 8)) {
        const uint16_t *from = (const uint16_t *)in + at;
        uint2 raw[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            raw[q] = __ldcs((const uint2 *)(from + gw_quad_at<PAIRED>(thread, q)));
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
            const uint32_t j = gw_quad_at<PAIRED>(thread, q);
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

template <int PAIRED>
GW_DEVICE void gw_write_quads(const float x[GW_OWN], void *out, gw_dtype dtype, uint64_t at,
                              uint32_t m, uint32_t tile)
{
    const uint32_t thread = threadIdx.x;
    if (m == tile && dtype == GW_F32 && gw_aligned_to(out, 16)) {
        float *to = (float *)out + at;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            __stcs((float4 *)(to + gw_quad_at<PAIRED>(thread, q)),
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
            __stcs((uint2 *)(to + gw_quad_at<PAIRED>(thread, q)),
                   make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16));
        }
    } else {
        const int wide = dtype == GW_F32 && gw_aligned_to(out, 16);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t j = gw_quad_at<PAIRED>(thread, q);
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
template <int PAIRED, int FEEDBACK>
GW_DEVICE void gw_read_source(float x[GW_OWN], const gw_span_shared &s, const gw_span_in &t,
                              uint64_t at, uint32_t m)
{
    gw_read_quads<PAIRED>(x, t.in, s.dtype, at, m, s.tile);
    if (FEEDBACK) {
        float r[GW_OWN];
        gw_read_quads<PAIRED>(r, t.residual, GW_F32, at, m, s.tile);
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

/* Starts `bytes` at `from` on their way to `shared`, where they will begin at byte (from mod 16). Reads nothing outside of
 * them. By `n` ≥ 32 threads. */
GW_DEVICE void gw_copy_in(uint8_t *shared, const uint8_t *from, uint32_t bytes, uint32_t me,
                          uint32_t n)
{
    const uint32_t shift = (uint32_t)(uintptr_t)from & 15, end = shift + bytes;
    const uint8_t *base = from - shift;
    const uint32_t whole_begin = (shift + 15) / 16, whole_end = end / 16;
    for (uint32_t c = whole_begin + me; c < whole_end; c += n) {
        gw_copy16(shared + 16 * c, base + 16 * c);
    }
    if (me < 16) {
        const uint32_t stop = end < 16 ? end : 16;
        if (shift != 0 && me >= shift && me < stop) {
            shared[me] = base[me];
        }
    } else if (me < 32 && whole_end * 16 >= (shift != 0 ? 16u : 0u)) {
        const uint32_t i = 16 * whole_end + me - 16;
        if (i < end) {
            shared[i] = base[i];
        }
    }
}

/* 32 bits from bit `at` of a string on; the word behind the last one may be read. */
GW_DEVICE uint32_t gw_take32(const uint32_t *words, uint32_t at)
{
    return __funnelshift_r(words[at / 32], words[at / 32 + 1], at & 31);
}

/* The sum over the divisor, counted if not finite, and written. */
template <class B>
GW_DEVICE void gw_write_sum(float x[GW_OWN], const B &batch, const gw_span_out &t, uint64_t at,
                            uint32_t m)
{
    const uint32_t by = batch.divisor;
    uint32_t bad = 0;
    if ((by & (by - 1)) == 0) { /* a reciprocal that is exact */
        const float factor = 1 / (float)by;
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            x[i] *= factor;
        }
    } else {
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            x[i] /= (float)by;
        }
    }
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        bad |= (gw_bits(x[i]) & GW_ABS_MASK) + 0x00800000u;
    }
    if (bad >> 31 != 0) {
        uint64_t n = 0;
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            const uint32_t j = gw_quad_at<0>(threadIdx.x, i / 4) + (uint32_t)i % 4;
            n += j < m && (gw_bits(x[i]) & GW_ABS_MASK) >= GW_INF_BITS;
        }
        gw_count(&t.result->non_finite, n);
    }
    gw_write_quads<0>(x, t.out, batch.s.dtype, at, m, batch.s.tile);
}

/* Decodes a tile: `abreast` payloads at a time are brought to shared memory, all of them under way at once, and added up in
 * registers. C says what a codec's bytes mean:
 *   C::begin(s, at)            where the bytes of element `at` begin, `at` being a multiple of the tile
 *   C::bytes(s, m)             how many a tile of m elements has
 *   C::values(v, string, s, m) the thread's 16 numbers; 0 for bytes that no encoder writes */
typedef struct gw_string {
    const uint32_t *words; /* shared memory */
    uint32_t bit;          /* of the string's first byte in it */
} gw_string;

template <class C, class B> GW_DEVICE void gw_decode_tile(const B &batch)
{
    GW_DYNAMIC_SHARED(strings);
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    const gw_span_out &t = batch.tensor[index];
    const uint32_t m = gw_span_left(t.count, at, batch.s.tile), bytes = C::bytes(batch.s, m);
    if (m == 0) {
        return; /* an empty tensor */
    }
    const uint64_t from = C::begin(batch.s, at);
    const uint8_t *const *payload = batch.payload + index * batch.n_payloads;
    float sum[GW_OWN];
    int sound = 1;
    for (uint32_t first = 0; first < batch.n_payloads; first += batch.abreast) {
        const uint32_t left = batch.n_payloads - first,
                       k = left < batch.abreast ? left : batch.abreast;
        if (first != 0) {
            __syncthreads();
        }
        for (uint32_t p = 0; p < k; p++) {
            gw_copy_in(strings + p * batch.stride, payload[first + p] + from, bytes, threadIdx.x,
                       blockDim.x);
        }
        if (first == 0 && batch.add) {
            gw_read_quads<0>(sum, t.out, batch.s.dtype, at, m, batch.s.tile);
        }
        gw_copies_done();
        __syncthreads();
        for (uint32_t p = 0; p < k; p++) {
            const gw_string string = {(const uint32_t *)(strings + p * batch.stride),
                                      8 * ((uint32_t)(uintptr_t)(payload[first + p] + from) & 15)};
            float v[GW_OWN];
            sound &= C::values(v, string, batch.s, m);
#pragma unroll
            for (int i = 0; i < GW_OWN; i++) {
                sum[i] = first + p == 0 && !batch.add ? v[i] : sum[i] + v[i];
            }
        }
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    gw_write_sum(sum, batch, t, at, m);
}

/* Shared memory of one string of `bytes`: it begins anywhere in its first 16 bytes, and a word behind it may be read. */
static inline uint32_t gw_string_stride(uint32_t bytes)
{
    return (bytes + 15 + 4 + 15) / 16 * 16;
}

GW_DEVICE void gw_all_nan(float v[GW_OWN])
{
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        v[i] = gw_float(GW_NAN_BITS);
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
    for (size_t i = 0; i < n; i++) {
        const gw_cuda_sink *t = &tensors[i];
        batch.tensor[i] = {t->out.data, t->result, t->out.count};
        batch.begin[i + 1] = batch.begin[i] + gw_tiles_of(t->out.count, shared.tile);
        for (size_t p = 0; p < t->n_payloads; p++) {
            batch.payload[i * t->n_payloads + p] = (const uint8_t *)t->payloads[p].bytes;
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
