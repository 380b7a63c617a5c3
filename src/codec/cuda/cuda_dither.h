/* The two dithers' kernels. The including file's L says how a number becomes a level and a level a number: L::factor,
 * L::level, L::fraction, as in its core; and for seven levels without branches L::quick, where the level's three bits stand from bit 23
 * on, and L::MOST, the upper half of the most that it may be. */
#ifndef GW_CUDA_DITHER_H
#define GW_CUDA_DITHER_H

#include "codec/cuda/cuda_bucket.h"

/* Which kernel: of 4 bits, of any, and of any with r the middle. */
enum { GW_FOUR_BITS, GW_ANY_BITS, GW_NEAREST };

/* The Euclidean norm. */
struct gw_sum_of_squares {
    GW_DEVICE float pre(uint32_t top)
    {
        return gw_bucket_square_pre(top);
    }
    GW_DEVICE float term(float x, float pre)
    {
        const float v = x * pre;
        return v * v;
    }
    GW_DEVICE float scale(float sum, float pre, uint32_t top, uint32_t n, float most)
    {
        (void)n;
        return gw_bucket_norm_of(sum, pre, top, most);
    }
};

/* How one bucket is quantised. */
typedef struct gw_quantum {
    float scale, pre, factor;
    int plain; /* neither zero nor not finite */
} gw_quantum;

template <class L> GW_DEVICE gw_quantum gw_quantum_of(uint32_t top, float scale, uint32_t levels)
{
    gw_quantum b;
    b.plain = top != 0 && top < GW_INF_BITS;
    b.scale = b.plain ? scale : gw_float(top == 0 ? 0 : GW_NAN_BITS);
    b.pre = gw_bucket_pre(scale);
    b.factor = b.plain ? L::factor(scale * b.pre, levels) : 0.0f;
    return b;
}

template <class L, int KIND, int USUAL>
GW_DEVICE uint32_t gw_code_of(float x, const gw_quantum &b, uint32_t bits, uint32_t levels,
                              uint32_t r)
{
    const float all = gw_float(gw_bits(x) & GW_ABS_MASK), size = USUAL ? all : all * b.pre;
    const uint32_t level = L::level(size, b.factor, levels, r);
    const uint32_t sign = gw_bits(x) >> 31 << (bits - 1);
    return KIND == GW_FOUR_BITS ? level | sign : level | (level != 0 ? sign : 0);
}

/* Codes of the half's two quads. USUAL: b.pre is 1. */
template <class L, int KIND, int USUAL>
GW_DEVICE void gw_codes_of(uint32_t quad[2], const float x[8], const gw_quantum &b, uint32_t bits,
                           uint32_t levels, gw_random_pair k, uint32_t number)
{
    quad[0] = quad[1] = 0;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t r[2] = {1u << (GW_MANT_BITS - 1), 1u << (GW_MANT_BITS - 1)};
        if (KIND != GW_NEAREST) {
            const uint32_t word = gw_random_word(k, number + j);
            r[0] = word >> 9;
            r[1] = (word >> 16 | word << 16) >> 9;
        }
        quad[0] |= gw_code_of<L, KIND, USUAL>(x[j], b, bits, levels, r[0]) << bits * j;
        quad[1] |= gw_code_of<L, KIND, USUAL>(x[4 + j], b, bits, levels, r[1]) << bits * j;
    }
#pragma unroll
    for (int q = 0; q < 2; q++) {
        if (KIND == GW_FOUR_BITS) { /* no sign on a zero */
            quad[q] &= (((quad[q] & 0x7777u) + 0x7777u) & 0x8888u) | 0x7777u;
        }
        quad[q] = b.plain ? quad[q] : 0;
    }
}

template <class L>
GW_DEVICE float gw_value_of(float scale, uint32_t code, uint32_t bits, uint32_t levels)
{
    const float size = scale * L::fraction(code & levels, levels);
    return gw_float(gw_bits(size) | (code >> (bits - 1) & 1u) << 31);
}

template <class L, int KIND, int FEEDBACK, class B>
__global__ void __launch_bounds__(512, 2) gw_dither_encode(const __grid_constant__ B batch)
{
    GW_DYNAMIC_SHARED(memory); /* the tile's payload; with norm=l2 its numbers in front of it */
    __shared__ uint32_t tops[GW_MOST_WARPS];
    __shared__ gw_chains chains;
    const gw_span_shared &s = batch.s;
    const gw_shape shape =
        gw_shape_of(KIND == GW_FOUR_BITS ? 4 : s.set[GW_SET_BITS], s.set[GW_SET_SHIFT]);
    const uint32_t bits = shape.bits, size = shape.size;
    const uint32_t levels = (1u << (bits - 1)) - 1;
    uint64_t at;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint32_t m = gw_span_left(t.count, at, s.tile);
    const uint64_t index = t.first + at;
    const gw_random_pair usual = gw_random_pair_at(t.key, index);
    const int two_pairs = index >> 33 != (index + s.tile - 1) >> 33;
    float x[GW_OWN];
    gw_read_source<GW_IN_PAIRS, FEEDBACK>(x, s, t, at, m);
    uint32_t top[2] = {gw_top_of(x), gw_top_of(x + 8)};
    gw_bucket_tops(top, size, tops);
    float scale[2] = {gw_float(top[0]), gw_float(top[1])};
    uint8_t *image = memory;
    if (s.set[GW_SET_NORM] == 1) {
        image = memory + s.tile * sizeof(float);
        gw_bucket_chains<gw_sum_of_squares>(&chains, (float *)memory, x, top, shape, m,
                                            gw_bucket_most(s.dtype), scale);
    }
    gw_quantum b = gw_quantum_of<L>(top[0], scale[0], levels);
#pragma unroll
    for (int p = 0; p < 2; p++) {
        const uint32_t first = gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 2 * p);
        if (p == 1 && size < GW_WARP_OWNS) {
            b = gw_quantum_of<L>(top[1], scale[1], levels);
        }
        const gw_random_pair k = two_pairs ? gw_random_pair_at(t.key, index + first) : usual;
        uint32_t quad[2];
        if (b.pre == 1.0f) {
            gw_codes_of<L, KIND, 1>(quad, x + 8 * p, b, bits, levels, k,
                                    gw_random_number(index + first));
        } else {
            gw_codes_of<L, KIND, 0>(quad, x + 8 * p, b, bits, levels, k,
                                    gw_random_number(index + first));
        }
        gw_put_octets<KIND == GW_FOUR_BITS ? 4 : 0>(image, quad[0], quad[1], first, shape);
        if ((first & (size - 1)) == 0) {
            *(uint32_t *)(image + (first >> shape.shift) * shape.stride) = gw_bits(b.scale);
        }
        if (top[p] >= GW_INF_BITS) {
            gw_count_non_finite(x + 8 * p, t.result);
        }
        if (FEEDBACK) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const uint32_t code = quad[i / 4] >> bits * (uint32_t)(i % 4);
                x[8 * p + i] -= gw_value_of<L>(b.scale, code, bits, levels);
            }
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

/* The most usual case, without feedback: 4 bits, norm=max, buckets of 512, words of the payload aligned. A warp a bucket; a
 * block goes over some tiles, reading the next while it works on one, and what it writes passes through no shared memory. */
enum { GW_STREAM_TILES = 4 };

/* Codes of the half's two quads where b.pre is 1, the first in the lower half. Two numbers at a time: a level stands in bits 7 … 9 of
 * its half, the sign is put in bit 10. */
template <class L>
GW_DEVICE uint32_t gw_quick_codes(const float x[8], float factor, gw_random_pair k, uint32_t number)
{
    uint32_t all = 0;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        const uint32_t word = gw_random_word(k, number + j), a = gw_bits(x[j]),
                       b = gw_bits(x[4 + j]);
        const uint32_t va = L::quick(gw_float(a & GW_ABS_MASK), factor) + (word >> 9);
        const uint32_t vb =
            L::quick(gw_float(b & GW_ABS_MASK), factor) + (__byte_perm(word, 0, 0x1032) >> 9);
        const uint32_t level = gw_min2(__byte_perm(va, vb, 0x7632), L::MOST * 0x10001u);
        const uint32_t code =
            (level & ~0x04000400u) | (__byte_perm(a, b, 0x7632) >> 5 & 0x04000400u);
        all |= (j < 2 ? code >> (7 - 4 * j) : code << (4 * j - 7)) & 0x000F000Fu << 4 * j;
    }
    return all & ((((all & 0x77777777u) + 0x77777777u) & 0x88888888u) | 0x77777777u);
}

/* The two words of the thread's 16 numbers; the scale is the warp's. `number` is of its first random word. */
template <class L>
GW_DEVICE gw_quantum gw_stream_words(uint32_t words[2], const float x[GW_OWN], gw_random_pair k,
                                     uint32_t number, gw_cuda_result *result)
{
    const uint32_t own[2] = {gw_top_of(x), gw_top_of(x + 8)};
    const uint32_t top = __reduce_max_sync(0xFFFFFFFFu, own[0] > own[1] ? own[0] : own[1]);
    const gw_quantum b = gw_quantum_of<L>(top, gw_float(top), 7);
    const float factor = L::quick_factor(b.factor);
    const uint32_t halves = threadIdx.x % 2 ? 0x3276 : 0x5410; /* of neighbours */
#pragma unroll
    for (int p = 0; p < 2; p++) {
        uint32_t both;
        if (b.pre == 1.0f) {
            both = gw_quick_codes<L>(x + 8 * p, factor, k, number + 128 * p);
            both = b.plain ? both : 0;
        } else {
            uint32_t quad[2];
            gw_codes_of<L, GW_FOUR_BITS, 0>(quad, x + 8 * p, b, 4, 7, k, number + 128 * p);
            both = quad[0] | quad[1] << 16;
        }
        words[p] = __byte_perm(both, __shfl_xor_sync(0xFFFFFFFFu, both, 1), halves);
    }
    if (top >= GW_INF_BITS) {
        gw_count_non_finite(x, result);
        gw_count_non_finite(x + 8, result);
    }
    return b;
}

/* A tile that is not whole, or not fp32, or not aligned. */
template <class L>
GW_DEVICE void gw_stream_short(const gw_span_shared &s, const gw_span_in &t, uint64_t at)
{
    const uint32_t m = gw_span_left(t.count, at, GW_TILE), warp = threadIdx.x / 32 * GW_WARP_OWNS;
    const uint32_t first = gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 0);
    const uint64_t index = t.first + at + first;
    float x[GW_OWN];
    uint32_t words[2];
    gw_read_quads<GW_IN_PAIRS>(x, t.in, s.dtype, at, m, GW_TILE);
    const gw_quantum b = gw_stream_words<L>(words, x, gw_random_pair_at(t.key, index),
                                            gw_random_number(index), t.result);
    uint8_t *to = t.payload + gw_shape_begin(gw_shape_of(4, 9), at + warp);
    if (threadIdx.x % 32 == 0 && warp < m) {
        *(uint32_t *)to = gw_bits(b.scale);
    }
#pragma unroll
    for (uint32_t p = 0; p < 2; p++) {
        const uint32_t e = first + (threadIdx.x & 1) * 12 + 256 * p;
        if (e < m) {
            gw_put_word(to + GW_BUCKET_HEADER + (e - warp) / 2, words[p], (m - e + 1) / 2, 1);
        }
    }
}

template <class L, class B>
__global__ void __launch_bounds__(256, 4) gw_dither_stream(const __grid_constant__ B batch)
{
    const uint32_t first = gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 0);
    const uint32_t warp = threadIdx.x / 32 * GW_WARP_OWNS;
    uint64_t at;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint64_t stop = t.count < at + batch.s.tile ? t.count : at + batch.s.tile;
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
    if (batch.s.dtype == GW_F32 && gw_aligned_to(t.in, 16) && at + GW_TILE <= stop) {
        const float4 *from = (const float4 *)((const float *)t.in + at + first);
        uint8_t *to = t.payload + gw_shape_begin(gw_shape_of(4, 9), at + warp);
        uint32_t *mine =
            (uint32_t *)(to + GW_BUCKET_HEADER + (first - warp + (threadIdx.x & 1) * 12) / 2);
        uint32_t number = gw_random_number(t.first + at + first);
        gw_random_pair k = gw_random_pair_at(t.key, t.first + at + first);
        uint32_t tiles = (uint32_t)((stop - at) / GW_TILE);
        float4 next[4] = {__ldcs(from), __ldcs(from + 4), __ldcs(from + 64), __ldcs(from + 68)};
        at += (uint64_t)tiles * GW_TILE;
#pragma unroll 2
        for (; tiles > 0; tiles--) {
            float x[GW_OWN];
            uint32_t words[2];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                x[4 * q] = next[q].x, x[4 * q + 1] = next[q].y, x[4 * q + 2] = next[q].z,
                      x[4 * q + 3] = next[q].w;
            }
            if (tiles > 1) {
                from += GW_TILE / 4;
                next[0] = __ldcs(from), next[1] = __ldcs(from + 4);
                next[2] = __ldcs(from + 64), next[3] = __ldcs(from + 68);
            }
            k.k0 = gw_afresh(k.k0);
            k.k1 = gw_afresh(k.k1);
            const gw_quantum b = gw_stream_words<L>(words, x, k, number, t.result);
            if (threadIdx.x % 32 == 0) {
                __stcs((uint32_t *)to, gw_bits(b.scale));
            }
            __stcs(mine, words[0]);
            __stcs(mine + 32, words[1]);
            to += GW_TILE / GW_WARP_OWNS * 260;
            mine += GW_TILE / GW_WARP_OWNS * 260 / 4;
            if (number + GW_TILE / 2 < number) { /* another pair from here on */
                k = gw_random_pair_at(t.key, t.first + at);
            }
            number += GW_TILE / 2;
        }
    }
#pragma unroll 1
    for (; at < stop; at += GW_TILE) {
        gw_stream_short<L>(batch.s, t, at);
    }
}

/* For gw_decode_tile. Up to 4 bits a bucket has at most sixteen values: lane c of sixteen makes that of code c, and
 * threads ask it. SMALL is 4 for 4 bits, 1 for fewer, else 0. */
template <class L, int SMALL> struct gw_dithered {
    GW_DEVICE uint64_t begin(const gw_span_shared &s, uint64_t at)
    {
        return gw_shape_begin(gw_shape_of(s.set[GW_SET_BITS], s.set[GW_SET_SHIFT]), at);
    }
    GW_DEVICE uint32_t bytes(const gw_span_shared &s, uint32_t m)
    {
        return gw_shape_bytes(gw_shape_of(s.set[GW_SET_BITS], s.set[GW_SET_SHIFT]), m);
    }
    GW_DEVICE int add(float sum[GW_OWN], gw_string string, const gw_span_shared &s, uint32_t m)
    {
        const gw_shape shape =
            gw_shape_of(SMALL == 4 ? 4 : s.set[GW_SET_BITS], s.set[GW_SET_SHIFT]);
        const uint32_t bits = shape.bits, size = shape.size, levels = (1u << (bits - 1)) - 1;
        int sound = 1;
        float scale = 0, value = 0;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t at = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
            const uint32_t bucket = string.bit + 8 * ((at >> shape.shift) * shape.stride);
            if (q == 0 || size < GW_WARP_OWNS) {
                const uint32_t pattern = gw_take32(string.words, bucket);
                const int right = gw_scale_is_sound(pattern);
                scale = gw_float(right ? pattern : GW_NAN_BITS);
                sound &= right || at >= m;
                value = SMALL ? gw_value_of<L>(scale, threadIdx.x & 15, bits, levels) : 0;
            }
            const uint32_t codes =
                gw_take32(string.words, bucket + 8 * GW_BUCKET_HEADER + (at & (size - 1)) * bits);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t code = codes >> bits * j;
                /* of sixteen lanes a shuffle looks at four bits, whatever stands above them */
                const uint32_t lane = SMALL == 4 ? code : code & (2 * levels + 1);
                sum[4 * q + (int)j] += SMALL ? __shfl_sync(0xFFFFFFFFu, value, (int)lane, 16)
                                             : gw_value_of<L>(scale, code, bits, levels);
            }
        }
        if (!gw_rest_is_zero(string, shape, m)) {
            gw_all_nan(sum);
            sound = 0;
        }
        return sound;
    }
};

/* A whole tile of 4 bits whose buckets have 512 numbers or more and whose words are aligned: a warp has one scale, and needs no
 * shared memory. A thread reads words of eight codes, and changes halves with its neighbour. */
template <class L, class B>
GW_DEVICE void gw_dither_at_once(const B &batch, uint32_t index, uint64_t at)
{
    enum { ABREAST = 8 };
    const gw_span_out &t = batch.tensor[index];
    const gw_shape shape = gw_shape_of(4, batch.s.set[GW_SET_SHIFT]);
    const uint8_t *const *payload = batch.payload + index * batch.n_payloads;
    const uint32_t n = batch.n_payloads, first_of = threadIdx.x / 32 * GW_WARP_OWNS;
    const uint64_t scale_at = gw_shape_begin(shape, at + first_of);
    const uint64_t mine =
        scale_at + GW_BUCKET_HEADER + (first_of & (shape.size - 1)) / 2 + threadIdx.x % 32 * 4;
    const uint32_t halves = threadIdx.x % 2 ? 0x3276 : 0x5410;
    float sum[GW_OWN];
    int sound = 1;
    gw_begin_sum<GW_IN_OCTETS>(sum, batch, t, at, batch.s.tile);
    for (uint32_t first = 0; first < n; first += ABREAST) {
        uint32_t scale[ABREAST], codes[ABREAST][2];
#pragma unroll
        for (uint32_t p = 0; p < ABREAST; p++) {
            if (first + p < n) {
                const uint8_t *from = payload[first + p];
                scale[p] = *(const uint32_t *)(from + scale_at);
                codes[p][0] = __ldcs((const uint32_t *)(from + mine));
                codes[p][1] = __ldcs((const uint32_t *)(from + mine) + 32);
            }
        }
#pragma unroll
        for (uint32_t p = 0; p < ABREAST; p++) {
            if (first + p < n) {
                const int right = gw_scale_is_sound(scale[p]);
                const float value = gw_value_of<L>(gw_float(right ? scale[p] : GW_NAN_BITS),
                                                   threadIdx.x & 15, 4, 7);
                sound &= right;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, codes[p][h], 1);
                    const uint32_t own = __byte_perm(codes[p][h], other, halves);
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        sum[8 * h + i] += __shfl_sync(0xFFFFFFFFu, value, (int)(own >> 4 * i), 16);
                    }
                }
            }
        }
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    gw_write_sum<GW_IN_OCTETS>(sum, batch, t, at, batch.s.tile);
}

/* For gw_roll: the same, of buckets of 512. */
template <class L> struct gw_dither_rolled {
    enum { SLOTS = 8, LAYOUT = GW_IN_OCTETS };
    typedef struct slot {
        uint32_t scale, codes[2];
    } slot;
    GW_DEVICE void load(slot *v, const uint8_t *payload, uint64_t at)
    {
        const uint32_t *bucket =
            (const uint32_t *)(payload + (at / GW_WARP_OWNS + threadIdx.x / 32) * 260);
        v->scale = __ldcs(bucket);
        v->codes[0] = __ldcs(bucket + 1 + threadIdx.x % 32);
        v->codes[1] = __ldcs(bucket + 33 + threadIdx.x % 32);
    }
    GW_DEVICE int add(float sum[GW_OWN], const slot *v)
    {
        const uint32_t halves = threadIdx.x % 2 ? 0x3276 : 0x5410;
        const int right = gw_scale_is_sound(v->scale);
        const float value =
            gw_value_of<L>(gw_float(right ? v->scale : GW_NAN_BITS), threadIdx.x & 15, 4, 7);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, v->codes[h], 1);
            const uint32_t own = __byte_perm(v->codes[h], other, halves);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                sum[8 * h + i] += __shfl_sync(0xFFFFFFFFu, value, (int)(own >> 4 * i), 16);
            }
        }
        return right;
    }
};

template <class L, class B>
__global__ void __launch_bounds__(256, 4) gw_dither_roll(const __grid_constant__ B batch)
{
    gw_roll<gw_dither_rolled<L>, gw_dithered<L, 4>>(batch);
}

template <class L, int SMALL, class B>
__global__ void __launch_bounds__(512, 2) gw_dither_decode(const __grid_constant__ B batch)
{
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    const uint32_t m = gw_span_left(batch.tensor[index].count, at, batch.s.tile);
    if (SMALL == 4 && m == batch.s.tile && (batch.loose & 3) == 0 &&
        1u << batch.s.set[GW_SET_SHIFT] >= GW_WARP_OWNS) {
        gw_dither_at_once<L>(batch, index, at);
    } else {
        gw_decode_tile<gw_dithered<L, SMALL>>(batch, index, at, m);
    }
}

template <class L> struct gw_start_dither {
    const gw_cuda_call *call;
    int nearest;

    gw_span_shared shared(void) const
    {
        return gw_bucket_shared(call, (uint32_t)call->value[GW_BUCKET_BITS],
                                call->value[GW_BUCKET_SIZE], (uint32_t)call->value[GW_BUCKET_NORM]);
    }

    template <int N> void operator()(const gw_encode_batch<N> &batch, uint32_t tiles) const
    {
        typedef gw_encode_batch<N> B;
        void (*const kernels[3][2])(B) = {
            {gw_dither_encode<L, GW_FOUR_BITS, 0, B>, gw_dither_encode<L, GW_FOUR_BITS, 1, B>},
            {gw_dither_encode<L, GW_ANY_BITS, 0, B>, gw_dither_encode<L, GW_ANY_BITS, 1, B>},
            {gw_dither_encode<L, GW_NEAREST, 0, B>, gw_dither_encode<L, GW_NEAREST, 1, B>}};
        const gw_span_shared &s = batch.s;
        if (s.tile == GW_STREAM_TILES * GW_TILE) {
            GW_LAUNCH((gw_dither_stream<L, B>), tiles, GW_TILE / GW_OWN, 0, call->stream, batch);
            return;
        }
        const int kind = nearest                   ? GW_NEAREST
                         : s.set[GW_SET_BITS] == 4 ? GW_FOUR_BITS
                                                   : GW_ANY_BITS;
        const uint32_t string =
            gw_shape_bytes(gw_shape_of(s.set[GW_SET_BITS], s.set[GW_SET_SHIFT]), s.tile);
        const uint32_t bytes = (string + 4 + 15) / 16 * 16;
        GW_LAUNCH(kernels[kind][call->feedback != 0], tiles, s.tile / GW_OWN,
                  bytes + (s.set[GW_SET_NORM] == 1 ? s.tile * 4 : 0), call->stream, batch);
    }

    template <int N, int P>
    void operator()(const gw_decode_batch<N, P> &batch, uint32_t tiles) const
    {
        typedef gw_decode_batch<N, P> B;
        const uint32_t bits = batch.s.set[GW_SET_BITS];
        if (N == 1 && bits == 4 && batch.s.set[GW_SET_SHIFT] == 9 && gw_rolls(batch, 8)) {
            GW_LAUNCH((gw_dither_roll<L, B>), (tiles + GW_ROLL - 1) / GW_ROLL, GW_TILE / GW_OWN,
                      batch.abreast * batch.stride, call->stream, batch);
            return;
        }
        void (*const kernel)(B) = bits == 4  ? gw_dither_decode<L, 4, B>
                                  : bits < 4 ? gw_dither_decode<L, 1, B>
                                             : gw_dither_decode<L, 0, B>;
        GW_LAUNCH(kernel, tiles, batch.s.tile / GW_OWN, batch.abreast * batch.stride, call->stream,
                  batch);
    }

    void encode(const gw_cuda_source *tensors, size_t n) const
    {
        gw_span_shared s = shared();
        int streams = !nearest && !call->feedback && s.set[GW_SET_BITS] == 4 &&
                      s.set[GW_SET_SHIFT] == 9 && s.set[GW_SET_NORM] == 0;
        for (size_t i = 0; i < n; i++) {
            streams &= ((uintptr_t)tensors[i].payload & 3) == 0;
        }
        s.tile = streams ? (uint32_t)(GW_STREAM_TILES * GW_TILE) : s.tile;
        gw_encode_list(s, call, tensors, n, *this);
    }

    void decode(const gw_cuda_sink *tensors, size_t n) const
    {
        const gw_span_shared s = shared();
        const uint32_t bytes =
            gw_shape_bytes(gw_shape_of(s.set[GW_SET_BITS], s.set[GW_SET_SHIFT]), s.tile);
        gw_decode_list(s, tensors, n, gw_string_stride(bytes), *this);
    }
};

#endif
